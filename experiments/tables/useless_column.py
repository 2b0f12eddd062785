"""A useless column next to others: how much larger it makes the standard errors of the others.

The rows are those of coverage.py with three columns of levels. To them comes a constant, a level that nobody has, a copy of a column, or an indicator
of missing values that is never needed. Each run is played twice, with the useless column and without it. The rule: for every family the median
ratio of standard errors is at most 1.1, and no ratio is above 1.5. ``python -m experiments.tables.useless_column`` makes 40 runs, ``--full`` 200.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
from experiments.common import run, write_table
from experiments.tables.coverage import FAMILIES, WHERE, asked, lines_of, played_study, tables_seed

from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Study
from unpooled.privacy.table import Table

SHAPE, EPSILONS = "three columns of levels", (1.0,)
USELESS = ("a constant", "an unused level", "a copy", "an unused indicator")


def with_useless(study: Study, table: Table, kind: str) -> tuple[Study, Table]:
    """The same study and rows with one useless column."""
    (card,) = study.parties
    columns, values = list(card.columns), {name: table[name] for name in table.names}
    if kind == "a constant":
        columns.insert(0, Column("useless", 0.0, 8.0))
        values["useless"] = np.full(table.n_rows, 3.0)
    elif kind == "a copy":  # of a level's indicator: nothing of the lines that are compared is lost
        columns.insert(0, Column("useless", 0.0, 1.0))
        values["useless"] = (table["k"] == "l1").astype(float)
    elif kind == "an unused level":
        columns = [
            msgspec.structs.replace(c, categories=(*c.categories, "l9")) if c.name == "g" and c.categories else c
            for c in columns
        ]
    else:
        columns = [msgspec.structs.replace(c, missing="indicator") if c.name == "u" else c for c in columns]
    return msgspec.structs.replace(study, parties=(msgspec.structs.replace(card, columns=tuple(columns)),)), Table(values)


def ratios(family: str, epsilon: float, kind: str, seed: int) -> dict[str, float]:
    """The standard error of every line with the useless column, over that without it."""
    study, table, truth, deviations = asked(family, SHAPE, epsilon, tables_seed(family, SHAPE, seed))
    both: list[dict[str, list[float]]] = []
    for one, rows in ((study, table), with_useless(study, table, kind)):
        both.append(lines_of(played_study(one, rows, epsilon, seed), truth, deviations))
    return {name: both[1][name][1] / line[1] for name, line in both[0].items() if name in both[1]}


def measured(family: str, epsilon: float, kind: str, runs: int) -> list[dict[str, float]]:
    """The runs of a cell, those that are there already first."""
    file = WHERE / f"useless-{family}-{epsilon:g}-{kind.replace(' ', '-')}.json"
    found: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    WHERE.mkdir(parents=True, exist_ok=True)
    while len(found) < runs:
        found.append(ratios(family, epsilon, kind, len(found)))
        if len(found) % 10 == 0 or len(found) == runs:
            file.write_text(json.dumps(found))
    return found[:runs]


def main(full: bool) -> None:
    """All cells, and the verdict of the rule."""
    runs = 200 if full else 40
    rows, medians, largest = [], [], []
    for family in FAMILIES:
        for kind in USELESS:
            for epsilon in EPSILONS:
                found = measured(family, epsilon, kind, runs)
                names = sorted({name for one in found for name in one} - ({"k: l1 - l0"} if kind == "a copy" else set()))
                each = [[one[name] for one in found if name in one] for name in names]
                medians.append(max(float(np.median(line)) for line in each))
                largest.append(max(max(line) for line in each))
                rows.append([f"{family}, {kind}, {epsilon:g}", f"{medians[-1]:.3f}", f"{largest[-1]:.3f}"])
                print(rows[-1], flush=True)
    write_table(
        "tables/useless_column",
        "Standard errors next to a useless column",
        ["family, useless column, epsilon", "largest median ratio", "largest ratio"],
        rows,
        f"{runs} runs a cell. Largest median {max(medians):.3f} (rule: 1.1), largest ratio {max(largest):.3f} (rule: 1.5).",
    )


if __name__ == "__main__":
    run(main)
