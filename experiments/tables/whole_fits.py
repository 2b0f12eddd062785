"""Whole fits follow the law of played ones: 200 studies of each family, run with their ledgers and their own noise.

The experiment in coverage.py plays a study's coordinator on totals with planned noise. Here the same studies run whole, in process, on fresh rows of
the same shape. For every line the two samples of (estimate - truth) / standard error are compared, and those of the standard errors; the smallest
p-value of Kolmogorov and Smirnov's test must be above .01 over the number of tests. Runs continue where they stopped.
``python -m experiments.tables.whole_fits`` makes 40 fits a family, ``--full`` 200.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from experiments.common import run, write_table
from experiments.tables.coverage import FAMILIES, WHERE, asked, lines_of, played, tables_seed
from scipy import stats

from unpooled.models import load
from unpooled.privacy.policy import Policy
from unpooled.protocol.local import run_in_process

SHAPE, EPSILON = "three columns of levels", 1.0
#: Played runs use other seeds than whole ones.
_PLAYED = 10_000


def whole(family: str, seed: int) -> dict[str, list[float]]:
    """Every line of a study that is run whole."""
    study, table, truth, deviations = asked(family, SHAPE, EPSILON, tables_seed(family, SHAPE, seed))
    model = load(study.model)
    plan = model.compile(study)
    result = run_in_process(model, plan, {"all": table}, Policy.in_process(), load).outcome.result
    return lines_of(model.tables(plan, result), truth, deviations)


def sample(family: str, kind: str, count: int) -> list[dict[str, list[float]]]:
    """The runs of one kind, those that are there already first."""
    file = WHERE / f"whole-{family}-{kind}.json"
    found: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    WHERE.mkdir(parents=True, exist_ok=True)
    while len(found) < count:
        seed = len(found)
        found.append(whole(family, seed) if kind == "whole" else played(family, SHAPE, EPSILON, _PLAYED + seed))
        if len(found) % 10 == 0 or len(found) == count:
            file.write_text(json.dumps(found))
    return found[:count]


def numbers(runs: list[dict[str, list[float]]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """(standardised errors, standard errors) of a line over runs."""
    lines = np.array([one[name] for one in runs if name in one])
    return (lines[:, 0] - lines[:, 2]) / lines[:, 1], lines[:, 1]


def main(full: bool) -> None:
    """Two tests for every line of every family."""
    count = 200 if full else 40
    rows, smallest, tests = [], 1.0, 0
    for family in FAMILIES:
        both = [sample(family, kind, count) for kind in ("whole", "played")]
        names = sorted(set.intersection(*(set(one) for runs in both for one in runs)))
        p = []
        for name in names:
            ours, theirs = (numbers(runs, name) for runs in both)
            p += [float(stats.ks_2samp(a, b).pvalue) for a, b in zip(ours, theirs, strict=True)]
        hits = [np.mean([abs(z) <= 1.959964 for name in names for z in numbers(runs, name)[0]]) for runs in both]
        rows.append([family, str(len(names)), f"{hits[0]:.3f}", f"{hits[1]:.3f}", f"{min(p):.4f}"])
        smallest, tests = min(smallest, *p), tests + len(p)
        print(rows[-1], flush=True)
    verdict = "above" if smallest > 0.01 / tests else "BELOW"
    write_table(
        "tables/whole_fits",
        "Whole fits follow the law of played ones",
        ["family", "lines", "coverage, whole", "coverage, played", "smallest p"],
        rows,
        f"{count} fits of each kind, shape {SHAPE!r}, epsilon {EPSILON:g}. Smallest p of {tests} tests: {smallest:.4f}, {verdict} .01 / {tests}.",
    )


if __name__ == "__main__":
    run(main)
