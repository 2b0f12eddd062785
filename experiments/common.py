"""What the experiment scripts share: where real data lie, running methods, tables and figures."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
DATA = Path(os.environ.get("UNPOOLED_DATA", Path(__file__).parents[2] / "shared" / "data"))


def data_file(name: str) -> Path:
    """A file of real data, or a plain word about why there is none."""
    path = DATA / name
    if not path.is_file():
        sys.exit(
            f"{name} is not in {DATA}: set UNPOOLED_DATA to the folder with the experiments' data (they are not shipped)"
        )
    return path


def write_table(name: str, title: str, header: list[str], rows: list[list[str]]) -> None:
    """A Markdown table, printed and written."""
    RESULTS.mkdir(exist_ok=True)
    lines = [f"# {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    text = "\n".join(lines) + "\n"
    (RESULTS / f"{name}.md").write_text(text)
    print(text)


def curves(
    name: str, panels: dict[str, dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]], xlabel: str, *, log: bool = True
) -> None:
    """One panel per key, one line per method: (x, median, quartile band); a single x is drawn as a horizontal line."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.6), squeeze=False)
    colours = {method: f"C{i}" for i, method in enumerate(next(iter(panels.values())))}
    for axis, (title, lines) in zip(axes[0], panels.items(), strict=True):
        for method, (x, middle, band) in lines.items():
            if x.size == 1:
                axis.axhline(middle[0], color=colours[method], linestyle="--", linewidth=1, label=method)
                continue
            axis.plot(x, middle, color=colours[method], marker="o", markersize=3, label=method)
            axis.fill_between(x, band[0], band[1], color=colours[method], alpha=0.12, linewidth=0)
        axis.set(title=title, xlabel=xlabel, xscale="log" if log else "linear", yscale="log")
        axis.grid(alpha=0.3)
    axes[0][-1].legend(fontsize=7)
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / f"{name}.png", dpi=110)
    plt.close(figure)
    print(f"figure: {RESULTS / f'{name}.png'}")
