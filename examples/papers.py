"""Each of the five papers' systems from an empty folder: by command line, and in ten lines of Python. Writes docs/papers/ten-lines.md.

python examples/papers.py          # prints the page; --write puts it in its place

Rows are simulated, and the noise is seeded, so that the page can be made again; studies of real people leave the seed out. Identities of plans and
keys are cut to their first digits on the page, because every folder has keys of its own.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import textwrap
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from unpooled.cli import main as cli

PAGE = Path(__file__).parents[1] / "docs/papers/ten-lines.md"
ROWS = 400


#: The longest line of an output on the page.
WIDTH = 200
INTRODUCTION = """\
A study of each published form from an empty folder: simulated rows at two holders, the paper's own settings, the statement, what every holder's
ledger has of it, a prediction, the report. `python examples/papers.py --write` makes this page again, and a test compares it, but for numbers that
follow from noise. None of these forms promises anything; the sound form of each is the default of the same estimators. Party files were edited in
one place: their policy allows published forms, trusted roles and seeded noise."""


@dataclass(frozen=True)
class Walk:
    """One paper's system: its parties and their columns, what the study file says beside the template, and the ten lines."""

    title: str
    model: str
    #: Columns of each party (of rows at several parties: the same for all); the last is the response.
    parties: dict[str, tuple[str, ...]]
    python: str
    rows_split: bool = False
    unit: str = "record"
    label: bool = True
    delta: float = 1e-4
    epsilon: float = 1.0
    changed: dict[str, str] = field(default_factory=dict)


def simulated(rows: int = ROWS, seed: int = 0) -> pl.DataFrame:
    """Six columns between -1 and 1, a response that is a number, and one that is a word."""
    rng = np.random.default_rng(seed)
    X = np.clip(rng.normal(size=(rows, 6)) / 3, -1, 1).round(3)
    y = np.clip(X @ [0.8, -0.5, 0.0, 0.6, 0.0, 0.3] / 2 + 0.05 * rng.normal(size=rows), -1, 1).round(3)
    columns = {f"x{j}": X[:, j] for j in range(6)} | {"y": y, "ill": np.where(y > 0, "yes", "no")}
    return pl.DataFrame(columns)


def python(paper: str, call: str, prediction: str = "np.round(model.predict(X[:3]), 2)") -> str:
    """The ten lines: data, a fit, its statement, what every holder is debited, a prediction."""
    return textwrap.dedent(f"""\
        import numpy as np
        from unpooled import papers

        rng = np.random.default_rng(0)
        X = np.clip(rng.normal(size=({ROWS}, 6)) / 3, -1, 1)
        y = np.clip(X @ [0.8, -0.5, 0.0, 0.6, 0.0, 0.3] / 2 + 0.05 * rng.normal(size={ROWS}), -1, 1)
        model = papers.fit_{paper}({call}, random_state=1)
        print(str(model.statement_).splitlines()[0])
        for release in model.plan_.releases:
            print(release.party or "together", release.name, release.count, release.event(model.plan_.study.target.unit).kind.name)
        print({prediction})""")


COLUMNS = {"clinic": ("x0", "x1", "x2"), "laboratory": ("x3", "x4", "x5")}
SITES = {"north": tuple(f"x{j}" for j in range(6)), "south": tuple(f"x{j}" for j in range(6))}
WALKS = (
    Walk(
        "PRIDE (Heinze-Deml et al. 2017)",
        "pride",
        COLUMNS,
        python("pride", "X, y, 2, epsilon=5.0"),
        unit="attribute",
        delta=0.1,
        epsilon=5.0,
    ),
    Walk(
        "Stacking (Yao et al. 2019)",
        "stacking",
        COLUMNS,
        python("stacking", "X, y > 0, 2, epsilon=5.0, bounds=(-1, 1)", "model.predict(X[:3])"),
        epsilon=5.0,
        changed={'classes = ["-1", "1"] ': 'classes = ["no", "yes"]'},
    ),
    Walk(
        "Bayesian regression (Heikkila et al. 2017)",
        "bayes",
        SITES,
        python("bayes", 'X, y, ["north", "south"] * 200, epsilon=5.0, bounds=(-1, 1), y_bounds=(-1, 1)'),
        rows_split=True,
        delta=1e-3,
        epsilon=5.0,
        label=False,
    ),
    Walk(
        "LASSO (Lou and Cheung 2018)",
        "lasso",
        COLUMNS,
        python("lasso", "X, y, 2, epsilon=5.0, bounds=(-1, 1), y_bounds=(-1, 1)"),
        epsilon=5.0,
    ),
    Walk(
        "edPLS (Nikzad-Langerodi et al. 2024)",
        "pls",
        SITES,
        python("pls", 'X, y, ["north", "south"] * 200, n_components=3, epsilon=100.0'),
        rows_split=True,
        delta=0.02,
        epsilon=100.0,
        label=False,
        changed={"n_components = 10  ": "n_components = 3   "},
    ),
)


def command(folder: Path, *words: str) -> str:
    """Run a command in this process, as the console script does; return what it printed. One that fails stops the page."""
    out, argv = io.StringIO(), sys.argv
    sys.argv = ["unpooled", *words]
    code: object = 0
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        finally:
            sys.argv = argv
    if code:
        msg = f"unpooled {' '.join(words)}: {out.getvalue()}"
        raise SystemExit(msg)
    return out.getvalue()


def cut(text: str) -> str:
    """Cut what differs from folder to folder (identities, times), and numbers to four decimals."""
    text = re.sub(r"-?\d+\.\d{5,}(?:e-\d+)?", lambda number: f"{float(number[0]):.4f}", text)
    text = re.sub(r"(?<![.\d])\b[0-9a-f]{16,}\b", "(identity)", text)
    text = re.sub(r"(?<![.\d])\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{8}\b", "(identity)", text)
    return re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?Z?", "(time)", text)


def shown(text: str, *patterns: str) -> str:
    """The lines of an output that have one of these patterns, each once, and no longer than a page is wide."""
    lines = [line.rstrip() for line in cut(text).splitlines() if any(re.search(pattern, line) for pattern in patterns)]
    return "\n".join(
        textwrap.shorten(line, WIDTH, placeholder=" ..") if len(line) > WIDTH else line for line in dict.fromkeys(lines)
    )


def party(folder: Path, walk: Walk, name: str, columns: tuple[str, ...], rows: pl.DataFrame) -> list[str]:
    """Write a party's file, its party file and card, and a policy that allows published forms, trust and simulations; return the words of the command."""
    response = "ill" if walk.model == "stacking" else "y"
    rows.select(*columns, response).write_csv(folder / f"{name}.csv")
    words = [
        "party",
        "init",
        f"{name}.csv",
        "--name",
        name,
        "--folder",
        name,
        "--epsilon",
        "100",
        "--delta",
        str(walk.delta),
        "--unit",
        walk.unit,
    ]
    words += ["--label", response] if walk.label else ["--column", f"{response}=-1:1"]
    words += [word for column in columns for word in ("--column", f"{column}=-1:1")]
    command(folder, *words)
    path = folder / name / "party.toml"
    text = (
        path.read_text()
        .replace('calibrations = ["sound"]', 'calibrations = ["sound", "published"]')
        .replace("trust = []", 'trust = ["trusted"]')
    )
    path.write_text(text.replace("allow_simulation = false", "allow_simulation = true"))
    return words


def walked(walk: Walk) -> list[tuple[str, str]]:
    """The commands of one paper, and the lines of what they print."""
    with tempfile.TemporaryDirectory() as place:
        folder, rows, said = Path(place), simulated(), []
        for k, (name, columns) in enumerate(walk.parties.items()):
            own = rows[k::2] if walk.rows_split else rows
            words = party(folder, walk, name, columns, own)
            said.append((f"unpooled {' '.join(words)}", ""))
        names = list(walk.parties)
        cards = [word for name in names for word in ("--card", f"{name}/{name}.card.toml")]
        new = ["new", walk.model, "--calibration", "published", *cards, "--out", "study.toml"]
        said.append((f"unpooled {' '.join(new)}", shown(command(folder, *new), "written")))
        study = folder / "study.toml"
        text = study.read_text().replace('response = "y"', f'response = "{"ill" if walk.model == "stacking" else "y"}"')
        for old, other in {"[study]\n": "[study]\nsimulation_seed = 1\n", **walk.changed}.items():
            if old not in text:
                msg = f"{walk.title}: the template has no {old!r}"
                raise SystemExit(msg)
            text = text.replace(old, other)
        study.write_text(re.sub(r"^epsilon = .*$", f"epsilon = {walk.epsilon}", text, flags=re.MULTILINE))
        said.append(
            (
                "unpooled plan study.toml",
                shown(command(folder, "plan", "study.toml"), "paper's own settings", "NO privacy guarantee"),
            )
        )
        for name in names:
            check = ["party", "check", "study.toml", "--config", f"{name}/party.toml", "--approve"]
            said.append((f"unpooled {' '.join(check)}", shown(command(folder, *check), "after this plan", "^Approved")))
        at = [word for name in names for word in ("--party", f"{name}/party.toml")]
        run = ["run", "study.toml", *at]
        said.append((f"unpooled {' '.join(run)}", shown(command(folder, *run, "--force"), "files are in")))
        for name in names:
            ledger = ["party", "ledger", "--config", f"{name}/party.toml"]
            said.append((f"unpooled {' '.join(ledger)}", shown(command(folder, *ledger), "^spent", "unbounded", "charged")))
        said += predicted(folder, walk, rows)
        said.append(("unpooled report study.run", shown(command(folder, "report", "study.run"), "report")))
        return said


def predicted(folder: Path, walk: Walk, rows: pl.DataFrame) -> list[tuple[str, str]]:
    """New rows: from one file of all columns, or (PRIDE) by a study of their own, in which each party has its columns of them."""
    rows[:3].select(f"x{j}" for j in range(6)).write_csv(folder / "new.csv")
    if walk.model != "pride":
        words = ["predict", "study.run", "--data", "new.csv"]
        return [(f"unpooled {' '.join(words)}", cut(command(folder, *words)).strip())]
    said = []
    for name, columns in walk.parties.items():
        rows[:3].select(*columns).write_csv(folder / f"{name}-new.csv")
        words = ["party", "rows", f"{name}-new.csv", "--config", f"{name}/party.toml", "--folder", f"{name}-new"]
        said.append((f"unpooled {' '.join(words)}", shown(command(folder, *words), "written", "card")))
    cards = [word for name in walk.parties for word in ("--card", f"{name}-new/{name}.card.toml")]
    new = ["new", "pride", "--fitted", "study.toml", *cards, "--out", "predict.toml"]
    said.append((f"unpooled {' '.join(new)}", shown(command(folder, *new), "written")))
    (folder / "predict.toml").write_text(
        (folder / "predict.toml").read_text().replace("[study]\n", "[study]\nsimulation_seed = 1\n")
    )
    at = [word for name in walk.parties for word in ("--party", f"{name}-new/party.toml")]
    for name in walk.parties:
        check = ["party", "check", "predict.toml", "--config", f"{name}-new/party.toml", "--approve"]
        said.append((f"unpooled {' '.join(check)}", shown(command(folder, *check), "after this plan", "^Approved")))
    run = ["run", "predict.toml", *at]
    said.append((f"unpooled {' '.join(run)}", shown(command(folder, *run, "--force"), "files are in")))
    export = ["party", "export", "predict.toml", "--config", "clinic-new/party.toml", "--out", "predictions.csv"]
    command(folder, *export)
    said.append((f"unpooled {' '.join(export)}", cut((folder / "predictions.csv").read_text()).strip()))
    return said


def page() -> str:
    """The whole page."""
    parts = [
        "# Each paper in ten lines, and by command",
        "",
        INTRODUCTION,
    ]
    for walk in WALKS:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(walk.python, walk.title, "exec"), {})  # noqa: S102 - the page's own lines
        parts += [
            "",
            f"## {walk.title}",
            "",
            "```python",
            walk.python,
            "```",
            "",
            "```text",
            cut(out.getvalue()).strip(),
            "```",
            "",
            "By command line:",
            "",
            "```console",
        ]
        for line, printed in walked(walk):
            parts += [f"$ {line}", *([printed] if printed else [])]
        parts += ["```"]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "200")
    made = page()
    if "--write" in sys.argv:
        PAGE.write_text(made)
    print(made)
