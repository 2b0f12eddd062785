"""Hidden people: coverage of 95 % intervals of slopes and odds ratios, and standard errors next to those of the same people known to all.

A clinic and a registry with n people in common, at N places of which the others are of one list alone; nobody learns who or how many they are. Totals are
exact with the planned noise (``imagined``), so that places cost nothing here; whole fits over masks are in the tests. The same people, known, are fitted
at the same epsilon: what it costs to hide them. ``expected`` is the truth, half of it, or twice.

Run it as ``python -m experiments.joint.hidden`` (40 runs a cell; ``--full``: 200). It goes on where it was stopped.
"""

from __future__ import annotations

from unittest import mock

import msgspec
import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.joint.odds import DELTA, columns_of, declared, people

from unpooled.linear.drawn import drawn_tables
from unpooled.models import load
from unpooled.models.glm.columns import PullDesign
from unpooled.models.glm.columns_fit import imagined_pulls
from unpooled.models.glm.result import tables
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table
from unpooled.products.moments import imagine

#: Model, people in common, places, columns, share of the event, epsilon, kind of columns, and expected people over the truth.
CELLS = (
    ("bayes", 1200, 105_000, 6, 0.0, 1.0, "mixed", 1.0),
    ("bayes", 5000, 105_000, 6, 0.0, 0.5, "mixed", 1.0),
    ("bayes", 5000, 105_000, 6, 0.0, 1.0, "correlated", 1.0),
    ("bayes", 5000, 105_000, 12, 0.0, 3.0, "mixed", 1.0),
    ("bayes", 5000, 105_000, 12, 0.0, 3.0, "mixed", 0.5),
    ("bayes", 5000, 105_000, 12, 0.0, 3.0, "mixed", 2.0),
    ("bayes", 20_000, 105_000, 12, 0.0, 0.5, "mixed", 1.0),
    ("bayes", 20_000, 105_000, 12, 0.0, 1.0, "correlated", 1.0),
    ("bayes", 40_000, 1_080_000, 12, 0.0, 1.0, "mixed", 1.0),
    ("bayes", 40_000, 1_080_000, 12, 0.0, 3.0, "mixed", 1.0),
    ("glm", 5000, 105_000, 6, 0.5, 1.0, "mixed", 1.0),
    ("glm", 5000, 105_000, 6, 0.2, 3.0, "mixed", 1.0),
    ("glm", 5000, 105_000, 6, 0.2, 3.0, "mixed", 0.5),
    ("glm", 5000, 105_000, 6, 0.2, 3.0, "mixed", 2.0),
    ("glm", 20_000, 105_000, 12, 0.2, 1.0, "mixed", 1.0),
    ("glm", 20_000, 105_000, 12, 0.5, 3.0, "correlated", 1.0),
    ("glm", 40_000, 1_080_000, 12, 0.1, 1.0, "mixed", 1.0),
    ("glm", 40_000, 1_080_000, 12, 0.1, 3.0, "mixed", 1.0),
)
HIDDEN, KEYS = "hidden:" + "ab" * 32, tuple(f"{k}" * 64 for k in "123")


def drawn(model: str, n: int, d: int, share: float, kind: str, rng: np.random.Generator):
    """Return columns of both parties by name, the response, its declaration, and the effects of the lines of a table with their errors without privacy."""
    if model == "glm":
        clinic, registry, truth, event = people(n, d, share, kind, rng)
        return clinic, registry, event, Column("response", categories=("no", "yes")), truth
    clinic, registry, X, names = columns_of(n, d, kind, rng)
    effects = rng.normal(size=d)
    effects /= (X @ effects).std()
    noise = rng.normal(size=n)
    y = np.clip(X @ effects + noise, -8, 8)
    whole = np.column_stack([X, np.ones(n)])
    errors = np.sqrt(np.linalg.inv(whole.T @ whole).diagonal())[:-1]
    truth = dict(zip(names, zip(effects.tolist(), errors.tolist(), strict=True), strict=True))
    return clinic, registry, y, Column("response", -8.0, 8.0), truth


def study_of(model: str, places: int, epsilon: float, held, response: Column, expected: int) -> Study:
    """Return the study of these columns; with a number of expected people it is one of hidden people."""
    hidden = {"linked": HIDDEN, "capped": True} if expected else {}
    names = ("clinic", "registry")
    cards = tuple(
        Card(name, places, (*columns, *([response] if name == "registry" else [])), key=key, joint="allowed", **hidden)
        for name, columns, key in zip(names, held, KEYS[:2], strict=True)
    )
    asked = {"response": "response", "split": "columns"} | ({"method": "moments"} if model == "bayes" else {})
    asked |= {"expected": expected} if expected else {}
    study = Study(model, cards, epsilon, DELTA, parameters=asked, derived=(), helpers=(HelperCard("helper", KEYS[2]),))
    return msgspec.structs.replace(study, ids=HIDDEN) if expected else study


def lines_of(model: str, study: Study, values: dict[str, Table], rng: np.random.Generator):
    """Return the lines of the model with all columns, and how many people the table says that there are."""
    plan = load(model).compile(study)
    if model == "bayes":
        moments = imagine(plan.design, values, rng)
        return drawn_tables(moments, ()).summary().terms, moments.rows, moments.few
    with mock.patch.object(PullDesign, "untabled", ""):
        result = imagined_pulls(plan.design, values, rng)
    found = tables(plan, msgspec.structs.replace(result, without=None)).summary().terms
    return found, result.rows, result.few


def played(
    model: str, n: int, places: int, d: int, share: float, epsilon: float, kind: str, times: float, seed: int
) -> dict[str, list[float]]:
    """Return of one run (estimate - truth)/error, errors over those without privacy and over those of people who are known, and how far n was off."""
    rng = np.random.default_rng([17_000 + seed, n, d])
    clinic, registry, y, response, truth = drawn(model, n, d, share, kind, rng)
    held = [tuple(declared(name, kind, f"x{d - 1}") for name in own) for own in (clinic, registry)]
    values = {"clinic": Table(clinic), "registry": Table(registry | {"response": y})}
    hidden = study_of(model, places, epsilon, held, response, round(times * n))
    # What is played scales the totals of these rows to the expected people: give it as many rows as are in common, whatever was expected.
    with mock.patch("unpooled.products.hidden.HiddenColumns.expected", n):
        design_lines, people_seen, few = lines_of(model, hidden, values, rng)
    known, *_ = lines_of(model, study_of(model, n, epsilon, held, response, 0), values, rng)
    lines = {line.term: line for line in design_lines if line.term in truth}
    others = {line.term: line.std_error for line in known if line.term in truth}
    printed = {name: line for name, line in lines.items() if line.std_error is not None and np.isfinite(line.std_error)}
    both = {name: line for name, line in ((line.term, line) for line in known) if name in truth and others.get(name)}
    # A table that leaves hidden columns out is of another model: its lines have another truth.
    return {
        "z": [(line.estimate - truth[name][0]) / line.std_error for name, line in printed.items()]
        if len(printed) == len(truth)
        else [],
        "z known": [(line.estimate - truth[name][0]) / line.std_error for name, line in both.items()]
        if len(both) == len(truth)
        else [],
        "printed": [float(len(printed))],
        "alone": [line.std_error / truth[name][1] for name, line in printed.items()],
        "known": [line.std_error / others[name] for name, line in printed.items() if others.get(name)],
        "people": [people_seen - n],
        "few": [float(bool(few))],
        "lines": [len(truth)],
    }


def cell(*asked, runs: int) -> list[str]:
    """Return a line of the table."""
    found = [kept(["hidden people", *asked, seed], lambda s=seed: played(*asked, s)) for seed in range(runs)]
    model, n, places, d, share, epsilon, kind, times = asked
    z, alone, known, off = (np.array([v for one in found for v in one[name]]) for name in ("z", "alone", "known", "people"))
    known_z = np.array([v for one in found for v in one["z known"]])

    def covered(z: np.ndarray) -> str:
        share = float(np.mean(np.abs(z) < 1.96)) if z.size else np.nan
        return f"{share:.3f} ± {np.sqrt(share * (1 - share) / len(z)):.3f}" if z.size else "none"

    return [
        "linear" if model == "bayes" else f"odds ratios, event {share:g}",
        f"{n:,} of {places:,}, {d}, {epsilon:g}, {kind}",
        f"{times:g}",
        covered(z),
        covered(known_z),
        f"{sum(one['printed'][0] for one in found) / sum(one['lines'][0] for one in found):.2f}",
        f"{np.median(alone):.2f}" if alone.size else "none",
        f"{np.median(known):.2f}" if known.size else "none",
        f"{off.std():.0f}",
        f"{np.mean([one['few'][0] for one in found]):.2f}",
    ]


def main(full: bool) -> None:
    """Write the table."""
    runs, lines = 200 if full else 40, []
    for one in CELLS:
        lines.append(cell(*one, runs=runs))
        print(lines[-1], flush=True)
    write_table(
        "joint/hidden",
        "Hidden people: nobody learns who is in the study (delta = 1e-6, two parties and a helper)",
        [
            "what",
            "people in common of places, columns, epsilon, columns' kind",
            "expected over true",
            "covered",
            "covered, known people",
            "printed",
            "SE/without privacy",
            "SE/known people",
            "deviation of n",
            "no table",
        ],
        lines,
        f"{runs} runs a cell; the middle of the ratios of standard errors. Coverage is over runs in which the noise hides no column, whose lines are those of the "
        "model with all columns.",
    )


if __name__ == "__main__":
    run(main)
