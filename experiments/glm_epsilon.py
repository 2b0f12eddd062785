"""Attacks on generalised linear models of all six families: a lower bound on epsilon by the likelihood ratio of everything that is released.

A study of thirty records is run on two neighbours, many times each, with fresh noise. Whoever attacks knows all other records, both candidates for
the one that differs, and every request; the exact totals of both neighbours at these requests give the likelihood ratio of all noisy totals
together, and no other attack tells more. A threshold on it is chosen on one half of the runs and judged on the other (Clopper and Pearson, 95 %).
The candidates are the pair of corners of the declared ranges whose ratio is farthest apart in a few runs.
"""

from __future__ import annotations

import itertools
import warnings
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from experiments.common import run, write_table

from unpooled.audit import empirical_epsilon
from unpooled.models import load
from unpooled.models.glm import fit
from unpooled.models.glm.plan import STATISTICS
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import run_in_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    Record = dict[str, float | str]

MODEL = load("glm")
RECORDS, EPSILONS, DELTA = 30, (1.0, 4.0, 10.0), 1e-5
FEATURES = (Column("x1", -1, 1), Column("x2", -1, 1))
#: (family, its columns beside the features, parameters)
FAMILIES: tuple[tuple[str, tuple[Column, ...], dict[str, Any]], ...] = (
    ("logistic", (Column("y", categories=("no", "yes")),), {}),
    ("poisson", (Column("y", 0, 10),), {}),
    ("gamma", (Column("y", 0.1, 10),), {}),
    ("negative-binomial", (Column("y", 0, 10),), {}),
    ("multinomial", (Column("y", categories=("a", "b", "c")),), {}),
    ("survival", (Column("y", 0, 5), Column("died", categories=("no", "yes"))), {"event": "died", "cuts": [1.0, 2.0]}),
)
#: Candidates are compared by so many runs.
PILOT = 2


def study(family: str, own: tuple[Column, ...], more: dict[str, Any], epsilon: float, seed: int) -> Study:
    """One site, two rounds and a Newton step."""
    card = Card("site", RECORDS, (*FEATURES, *own))
    parameters = {"response": "y", "family": family, "method": "newton", "max_passes": 6, **more}
    return Study("glm", (card,), epsilon, DELTA, parameters=parameters, derived=(), simulation_seed=seed)


def corners(columns: tuple[Column, ...]) -> list[Record]:
    """Records at the ends of all ranges."""
    ends = [column.categories or column.range for column in columns]
    return [dict(zip([c.name for c in columns], values, strict=True)) for values in itertools.product(*ends)]


def neighbours(columns: tuple[Column, ...], one: Record, other: Record) -> tuple[Table, Table]:
    """Thirty records of no particular kind, of which the first is one candidate or the other."""
    rng = np.random.default_rng(5)
    held: dict[str, Any] = {}
    for c in columns:
        if c.categories is not None:
            held[c.name] = rng.choice(np.array(c.categories, dtype=object), RECORDS)
        else:
            held[c.name] = np.clip(rng.normal(c.centre, 0.3 * c.half_width, RECORDS), *c.range)
    return tuple(Table({name: _with(values, record[name]) for name, values in held.items()}) for record in (one, other))  # type: ignore[return-value]


def _with(values: Any, first: float | str) -> Any:
    changed = values.copy()
    changed[0] = first
    return changed


@contextmanager
def watched(plan: Any, pair: tuple[Table, Table], ratios: list[tuple[float, float]]) -> Iterator[None]:
    """Collect of every total of a run the logarithm of the likelihood ratio, and the square of its mu."""
    honest = fit.collect

    def collect(asked: Any, aggregation: Any, vector: Any, members: Any, settings: Any, index: int = 0) -> Any:
        total = yield from honest(asked, aggregation, vector, members, settings, index)
        first, second = (
            STATISTICS[vector.name](SimpleNamespace(design=plan.design, plan=plan, table=table), settings) for table in pair
        )
        far = ((total.values - second) ** 2 - (total.values - first) ** 2) / (2 * total.deviations**2)
        ratios.append((float(far.sum()), float((((first - second) / total.deviations) ** 2).sum())))
        return total

    fit.collect = collect
    try:
        yield
    finally:
        fit.collect = honest


def attack(
    family: tuple[str, tuple[Column, ...], dict[str, Any]],
    epsilon: float,
    pair: tuple[Table, Table],
    table: Table,
    seed: int,
) -> tuple[float, float]:
    """The logarithm of the likelihood ratio of everything that one run releases, and the square of the mu that these neighbours use."""
    plan = MODEL.compile(study(*family, epsilon, seed))
    ratios: list[tuple[float, float]] = []
    with watched(plan, pair, ratios):
        run_in_process(MODEL, plan, {"site": table}, Policy.in_process(), lambda _: MODEL)
    return sum(ratio for ratio, _ in ratios), sum(square for _, square in ratios)


def worst(family: tuple[str, tuple[Column, ...], dict[str, Any]], epsilon: float) -> tuple[Table, Table]:
    """The neighbours whose likelihood ratio is largest in a few runs."""
    columns = (*FEATURES, *family[1])
    best, found = -np.inf, neighbours(columns, corners(columns)[0], corners(columns)[-1])
    first = corners(columns)
    rng = np.random.default_rng(1)
    pairs = [(a, b) for a, b in itertools.combinations(first, 2)]
    for k in rng.permutation(len(pairs))[:60]:
        pair = neighbours(columns, *pairs[k])
        score = np.mean([attack(family, epsilon, pair, pair[0], seed)[1] for seed in range(PILOT)])
        if score > best:
            best, found = float(score), pair
    return found


def main(full: bool) -> None:
    """2,000 runs a neighbour; 20,000 in full."""
    warnings.simplefilter("ignore")
    rows = []
    for family, epsilon in itertools.product(FAMILIES, EPSILONS):
        pair, seeds, seen = worst(family, epsilon), itertools.count(1000), []

        def release(
            table: Table,
            family: Any = family,
            epsilon: float = epsilon,
            pair: Any = pair,
            seeds: Any = seeds,
            seen: Any = seen,
        ) -> float:
            ratio, square = attack(family, epsilon, pair, table, next(seeds))
            seen.append(square)
            return ratio

        bound = empirical_epsilon(release, *pair, runs=20_000 if full else 2000, delta=DELTA)
        part = np.sqrt(np.mean(seen)) / budget_mu(epsilon, DELTA)
        rows.append([family[0], f"{epsilon:g}", f"{bound:.2f}", f"{part:.2f}"])
        print(rows[-1], flush=True)
    write_table(
        "glm/epsilon",
        "Lower bounds on epsilon by the likelihood ratio of all releases (delta = 1e-5, replace, 30 records, one Newton step)",
        ["family", "claimed", "empirical epsilon", "part of the budget that these neighbours use"],
        rows,
    )


if __name__ == "__main__":
    run(main)
