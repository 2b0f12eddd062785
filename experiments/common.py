"""What the experiments share: their two sizes, where real data lie, tables and figures under ``results/``.

A script is run as ``python -m experiments.pride.figure_4 [--full] [--fresh] [--write]``. The reduced size (the default; ``make papers`` runs all
of them at it) shows every line of a figure with fewer repetitions or settings; ``--full`` is the paper's own. Each table says at its head
which it was. A table that is there already is compared with the new one: where they agree within their errors nothing is written; where they
do not, the new one goes to ``build/papers/`` and the script ends with 1, unless ``--write`` says that it is to replace the old one.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from experiments.agreement import differences
from experiments.cells import cost, forget, set_size, size

RESULTS = Path(__file__).parent / "results"
DATA = Path(os.environ.get("UNPOOLED_DATA", Path(__file__).parents[2] / "shared" / "data"))
#: Figures are drawn at a lower resolution until they are smaller than this.
LARGEST_FIGURE = 150_000
#: Where tables and figures go that do not agree with those that are there.
DIFFERENT = Path(__file__).parent.parent / "build/papers"
_writes, _written, _differing = [True], [False], list[str]()


def run(main: Callable[[bool], None]) -> None:
    """Run a script's ``main(full)`` at the size that the command line asks for."""
    parser = argparse.ArgumentParser(description=inspect.getdoc(sys.modules["__main__"]))
    parser.add_argument("--full", action="store_true", help="the paper's repetitions and settings")
    parser.add_argument("--fresh", action="store_true", help="begin anew: cells of an earlier run do not count")
    parser.add_argument("--write", action="store_true", help="tables replace those that are there, also where they differ")
    asked = parser.parse_args()
    set_size("full" if asked.full else "reduced")
    _writes[0] = asked.write
    if asked.fresh:
        forget()
    start = time.perf_counter()
    main(asked.full)
    print(f"{sys.argv[0]}: {time.perf_counter() - start:.0f} s at {size()} size")
    if _differing:
        sys.exit(f"differ beyond their errors (--write replaces them): {', '.join(_differing)}")


def data_file(name: str) -> Path:
    """A file of real data, or a plain word about why there is none."""
    path = DATA / name
    if not path.is_file():
        sys.exit(
            f"{name} is not in {DATA}: set UNPOOLED_DATA to the folder with the experiments' data (they are not shipped)"
        )
    return path


def write_table(name: str, title: str, header: Sequence[str], rows: Sequence[Sequence[str]], notes: str = "") -> None:
    """A Markdown table at ``results/<name>.md`` (name: "pride/figure_4"), printed; written where there is none, or one that it may replace."""
    path = RESULTS / f"{name}.md"
    lines = [
        f"# {title}",
        "",
        " ".join(part for part in (f"Size: {size()}.", notes, cost()) if part),
        "",
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
    ]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    text = "\n".join(lines) + "\n"
    print(text, flush=True)
    _written[0] = _kept_or_written(name, path, text)


def _kept_or_written(name: str, path: Path, text: str) -> bool:
    """Whether a table is written at its place: not over one of the papers' size, and not over one that says the same."""
    old = path.read_text() if path.is_file() else ""
    larger = "\nSize: full." in old and size() == "reduced"
    smaller = "\nSize: reduced." in old and size() == "full"
    found = differences(old, text) if old and not smaller else []
    if old and not smaller and not found and (larger or not _writes[0]):
        print(f"{path} agrees and stays", flush=True)
        return False
    if old and not smaller and (larger or not _writes[0]):
        print("\n".join(f"{name}: {line}" for line in found), flush=True)
        _differing.append(name)
        path = DIFFERENT / path.relative_to(RESULTS)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path.is_relative_to(RESULTS)


def write_figure(name: str, figure: object) -> None:
    """A matplotlib figure at ``results/<name>.png``, small enough to be committed, where the table before it was written or there is none yet."""
    import matplotlib.pyplot as plt

    path = RESULTS / f"{name}.png"
    if path.is_file() and not _written[0]:
        path = DIFFERENT / path.relative_to(RESULTS)
    path.parent.mkdir(parents=True, exist_ok=True)
    for dpi in (110, 90, 75, 60, 45):
        figure.savefig(path, dpi=dpi, metadata={"Description": size()})
        if path.stat().st_size <= LARGEST_FIGURE:
            break
    plt.close(figure)
    print(f"figure: {path}", flush=True)


def curves(
    name: str,
    panels: dict[str, dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]],
    xlabel: str,
    *,
    log: bool = True,
    logy: bool = True,
) -> None:
    """One panel per key, one line per method: (x, middle, band); a single x is drawn as a horizontal line."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullLocator

    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.6), squeeze=False)
    colours = {method: f"C{i}" for i, method in enumerate(dict.fromkeys(m for lines in panels.values() for m in lines))}
    for axis, (title, lines) in zip(axes[0], panels.items(), strict=True):
        for method, (x, middle, band) in lines.items():
            if np.size(x) == 1:
                axis.axhline(middle[0], color=colours[method], linestyle="--", linewidth=1, label=method)
                continue
            axis.plot(x, middle, color=colours[method], marker="o", markersize=3, label=method)
            axis.fill_between(x, band[0], band[1], color=colours[method], alpha=0.12, linewidth=0)
        axis.set(title=title, xlabel=xlabel, xscale="log" if log else "linear", yscale="log" if logy else "linear")
        points = np.unique(np.concatenate([np.ravel(x) for x, *_ in lines.values() if np.size(x) > 1]))
        if log and points.size <= 8:  # so few can have their own labels
            axis.set_xticks(points, [f"{point:g}" for point in points])
            axis.xaxis.set_minor_locator(NullLocator())
        axis.grid(alpha=0.3)
    axes[0][-1].legend(fontsize=7)
    figure.tight_layout()
    write_figure(name, figure)
