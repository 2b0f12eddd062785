"""Claimed beside audited: every model, in every unit, adjacency and way to add up that it offers, attacked by likelihood ratio.

The studies are the small ones of ``tests/contract/cases.py``, with twelve made-up rows a party, so that one of them matters. For each, the worst of some
neighbours is looked for (the largest sum of squares of what moved over what is declared); then the study is run many times over
either, with fresh noise. The attacker knows both and the likelihood ratio of everything that was released (:mod:`unpooled.audit.likelihood`).
A threshold is chosen on one half of the runs and judged on the other, by Clopper and Pearson at a confidence of 99.9 % for the whole table
(Bonferroni). An audited epsilon above its claim would refute it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from experiments.common import write_table

from unpooled.audit.empirical import empirical_epsilon
from unpooled.audit.likelihood import LikelihoodRatio
from unpooled.audit.made_up import made_up
from unpooled.audit.neighbours import changed_tables, neighbours
from unpooled.audit.presence import acts_under
from unpooled.audit.shares import share
from unpooled.errors import UnpooledError, UsageError
from unpooled.models import load
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "contract"))

from cases import CASES

EPSILONS = (0.5, 1.0, 4.0)
#: Ways to add up, where a model has several.
TRUSTS: dict[str, tuple[str, ...]] = dict.fromkeys(("bayes", "glm", "pls"), ("distributed", "trusted", "local"))
ROWS, CANDIDATES, CONFIDENCE = 12, 40, 0.999


def studies() -> list[tuple[str, str, str, str]]:
    """(case, unit, adjacency, trust) of everything that is offered."""
    found = []
    for name in CASES:
        case = CASES[name]()
        for unit, adjacency, trust in itertools.product(ROWWISE, Adjacency, TRUSTS.get(case.model, ("",))):
            try:
                load(case.model).compile(asked(name, str(unit), str(adjacency), trust, 1.0))
            except UsageError:
                continue
            found.append((name, str(unit), str(adjacency), trust))
    return found


def asked(name: str, unit: str, adjacency: str, trust: str, epsilon: float) -> Any:
    """The study of a row of the table."""
    case = CASES[name]()
    more = {"trust": {"aggregation": trust}} if trust else {}
    changed = msgspec.structs.replace(
        case.study, unit=unit, adjacency=adjacency, epsilon=epsilon, simulation_seed=None, **more
    )
    if "tolerate" in changed.parameters and trust != "distributed":
        changed = msgspec.structs.replace(changed, parameters={**changed.parameters, "tolerate": 0})
    return changed


def power(model: Any, plan: Any, study: Any, tables: Any, other: Any, unit: Unit) -> float:
    """How far a neighbour moves what is released, in one run."""
    ours = acts_under(model, study, tables, 0, registry=load)
    theirs = acts_under(model, study, other, 0, registry=load, recorded=ours)
    total = 0.0
    for party, acts in ours.items():
        for one, two in zip(acts, theirs[party], strict=True):
            part = share(one, two, plan.release(party, one.release).event(unit))
            total += 0.0 if part is None else part**2
    return total


def attack(row: tuple[str, str, str, str], epsilon: float, runs: int, confidence: float) -> tuple[float, float]:
    """(claimed, audited) of one study."""
    name, unit, *_rest = row
    model = load(CASES[name]().model)
    study, tables = made_up(model, asked(*row, epsilon), ROWS)
    plan, rng = model.compile(study), np.random.default_rng(0)
    best: tuple[float, Any] = (-1.0, tables)
    labels = Unit(unit) in model.covers_labels
    for changes in itertools.islice(neighbours(plan, tables, Unit(unit), rng, 6, 0, labels=labels), CANDIDATES):
        other = changed_tables(plan, tables, changes, Unit(unit), 0)
        if other is None:
            continue
        moved = power(model, plan, study, tables, other, Unit(unit))
        best = max(best, (moved, other), key=lambda pair: pair[0])
    seeds = itertools.count(zlib.crc32(repr((row, epsilon)).encode()))
    ratio = LikelihoodRatio(model, study, tables, best[1], load, seeds)
    audited = empirical_epsilon(ratio, 0, 1, runs=runs, delta=study.delta, confidence=confidence)
    return plan.epsilon(study.delta, unit), audited


def main(*, runs: int, epsilons: tuple[float, ...], only: str, minutes: float) -> None:
    """Attack row after row; stops at the time limit and says how far it came."""
    rows = [row for row in studies() if only in row[0]]
    confidence = 1 - (1 - CONFIDENCE) / (len(rows) * len(epsilons))
    table: list[tuple[Any, ...]] = []
    began = time.monotonic()
    for row, epsilon in itertools.product(rows, epsilons):
        if time.monotonic() - began > 60 * minutes:
            print(f"time is up after {len(table)} of {len(rows) * len(epsilons)} attacks")
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                claimed, audited = attack(row, epsilon, runs, confidence)
            except UnpooledError as error:
                print(*row, epsilon, "refused:", type(error).__name__, flush=True)
                continue
        table.append((*row, claimed, audited, runs))
        print(*row, f"claimed {claimed:.3f} audited {audited:.3f}", f"{time.monotonic() - began:.0f} s", flush=True)
    header = ["study", "unit", "adjacency", "trust", "claimed", "audited", "runs"]
    write_table("audit/epsilon", header, [[*r[:4], round(r[4], 4), round(r[5], 3), r[6]] for r in table])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="runs over either neighbour")
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--only", default="", help="studies whose name holds this")
    parser.add_argument("--minutes", type=float, default=120.0)
    given = parser.parse_args()
    main(runs=given.runs, epsilons=tuple(given.epsilons), only=given.only, minutes=given.minutes)
