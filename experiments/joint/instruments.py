"""Coverage of two-stage least squares from joint moments: strong and weaker instruments, one and two of them, at two parties.

The dose and age are at one party; a treatment of three levels, the instruments and the response at the other. Both the dose and the response depend
on something that nobody measured. Totals are exact with the planned noise. A run counts in the rule only where its table has lines, that is where
the F of the first stage, noise included, is above 30; the share of runs without lines is printed.

Run it as ``python -m experiments.joint.instruments`` (200 runs a cell; ``--full``: 500).
"""

from __future__ import annotations

import itertools

import numpy as np
from experiments.common import run, write_table

from unpooled.linear.instruments import tables_of
from unpooled.models.bayes.columns import design_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table
from unpooled.products.moments import imagine

ARMS = ("a", "b", "c")
#: (rows, epsilon) and (effect of the first instrument on the dose, number of instruments).
STUDIES = ((5000, 1.0), (5000, 3.0), (50_000, 0.5), (50_000, 1.0), (50_000, 3.0))
INSTRUMENTS = ((0.8, 1), (0.3, 1), (0.8, 2), (0.3, 2))
TRUTH = {"dose": 1.0, "age": 2.0, "arm: b - a": 0.8, "arm: c - a": 0.0, "(intercept)": 1.0}


def cards_of(rows: int, names: tuple[str, ...]) -> tuple[Card, ...]:
    """Return the cards of both parties."""
    instruments = tuple(Column(name, -4, 4) for name in names)
    other = (Column("arm", categories=ARMS), *instruments, Column("y", -20, 20))
    return Card("clinic", rows, (Column("dose", -6, 6), Column("age", 0, 1))), Card("registry", rows, other)


def values_of(rows: int, strength: float, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return made-up rows; the effect of the dose is 1."""
    unseen, z = rng.normal(size=rows), rng.normal(size=(2, rows)).clip(-4, 4)
    age, arm = rng.uniform(0, 1, rows), rng.choice(3, rows)
    moved = strength * z[0] + (strength / 2 * z[1] if count > 1 else 0.0)
    dose = (moved + 0.7 * unseen + 0.5 * age + 0.7 * rng.normal(size=rows)).clip(-6, 6)
    y = 1 + 2 * age + dose + 0.8 * (arm == 1) - 1.5 * unseen + rng.normal(size=rows)
    return {
        "dose": dose,
        "age": age,
        "arm": np.array(ARMS, dtype=object)[arm],
        "z1": z[0],
        "z2": z[1],
        "y": y.clip(-20, 20),
    }


def cell(rows: int, epsilon: float, strength: float, count: int, runs: int) -> list[str]:
    """Return a line of the table."""
    names = ("z1", "z2")[:count]
    cards = cards_of(rows, names)
    given = {"response": "y", "split": "columns", "method": "moments"}
    design = design_of(Study("bayes", cards, epsilon, 1e-6, parameters=given, derived=(), helpers=(HelperCard("h"),)))
    hits: dict[str, list[bool]] = {name: [] for name in TRUTH}
    strengths, without, away = [], 0, []
    for k in range(runs):
        rng = np.random.default_rng([k, rows, int(10 * epsilon), int(10 * strength), count])
        values = values_of(rows, strength, count, rng)
        tables = {card.name: Table({c.name: values[c.name] for c in card.columns}) for card in cards}
        table = tables_of(imagine(design, tables, rng), "dose", names).summary()
        strengths.append(table.first_stage.statistic)
        without += not table.terms
        for term in table.terms:
            hits[term.term].append(term.conf_low <= TRUTH[term.term] <= term.conf_high)
            if term.term == "dose":
                away.append((term.estimate - 1) / term.std_error)
    every = [hit for line in hits.values() for hit in line]
    lowest = min((float(np.mean(line)), name) for name, line in hits.items() if line)
    return [
        f"{rows}, {epsilon:g}, {strength:g}, {count}",
        f"{np.median(strengths):.0f}",
        f"{without / runs:.2f}",
        f"{np.mean(every):.3f}",
        f"{np.mean(hits['dose']):.3f}",
        f"{lowest[0]:.3f} {lowest[1]}",
        f"{np.mean(away):.2f}",
    ]


def main(full: bool = False) -> None:
    """Write the table."""
    runs = 500 if full else 200
    lines = [cell(*study, *instruments, runs) for study, instruments in itertools.product(STUDIES, INSTRUMENTS)]
    judged = [float(line[3]) for line in lines if float(line[2]) < 0.05]
    notes = (
        f"{runs} runs a cell. Of {len(lines)} cells, {len(judged)} have lines in more than 95 % of their runs: mean coverage {np.mean(judged):.3f}, "
        f"lowest cell {min(judged):.3f}, {sum(not 0.93 <= c <= 0.97 for c in judged)} outside .93 to .97."
    )
    header = [
        "n, epsilon, strength, instruments",
        "median F",
        "without lines",
        "coverage",
        "dose",
        "lowest line",
        "dose: mean z",
    ]
    write_table("joint/instruments", "Coverage of two-stage least squares from joint moments", header, lines, notes)


if __name__ == "__main__":
    run(main)
