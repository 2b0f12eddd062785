"""A membership attack on a published table, for readers who never heard of epsilon: of a hundred guesses whether somebody is in it, how many are right.

Sixty people of one clinic, by age group and by whether they smoke. The attacker knows everybody else in the table, and that the person in question
is either in it or somebody of another group is; no attacker can know more. He is shown the table as it is published, and guesses as well as
anybody could (by the likelihood ratio). The shares are of the planned noise itself, drawn by the study's own code.
"""

from __future__ import annotations

import math

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_figure, write_table

from unpooled.audit.attacks import LikelihoodRatio
from unpooled.audit.stage import Stage
from unpooled.inference.summary import ACCENT, INK, OTHER, SOFT, new_figure
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
PEOPLE, DELTA = 60, 1e-6
AGES, SMOKES = ("under 40", "40 to 59", "60 to 79", "80 and over"), ("no", "yes")
COLUMNS = (Column("age", categories=AGES), Column("smokes", categories=SMOKES))


def rows(first: tuple[str, str]) -> dict[str, Table]:
    """The clinic's people; the first one is the person in question, or somebody else."""
    rng = np.random.default_rng(0)
    ages, smokes = rng.choice(AGES, PEOPLE), rng.choice(SMOKES, PEOPLE, p=[0.7, 0.3])
    ages[0], smokes[0] = first
    return {"clinic": Table({"age": ages, "smokes": smokes})}


def guesses(epsilon: float, runs: int) -> float:
    """The share of right guesses about a person of the smallest group, who is in the table in half of the runs; where nothing tells, a coin does."""
    card = Card("clinic", PEOPLE, COLUMNS)
    study = Study("tables", (card,), epsilon, DELTA, parameters={"columns": ["age", "smokes"]}, derived=())
    model = load("tables")
    person, other = rows(("80 and over", "yes")), rows(("40 to 59", "no"))
    seeds = np.random.default_rng(1).integers(2**62, size=2 * runs)
    stage = Stage(model, study, registry=load)
    ratio = LikelihoodRatio(stage, person, other, iter(seeds.tolist()))
    signs = [np.sign(ratio(0)) for _ in range(runs // 2)] + [-np.sign(ratio(1)) for _ in range(runs // 2)]
    return float(np.mean(signs) / 2 + 0.5)


def most(epsilon: float) -> float:
    """The largest share that the guarantee allows anybody: (e^epsilon + delta) / (1 + e^epsilon)."""
    return (math.exp(epsilon) + DELTA) / (1 + math.exp(epsilon))


def main(full: bool) -> None:
    """The table, and a bar for every epsilon."""
    runs = 10_000 if full else 1000
    found = {epsilon: kept([epsilon], lambda e=epsilon: guesses(e, runs)) for epsilon in EPSILONS}
    lines = [["as it is, without noise", "100", "100"]]
    lines += [[f"epsilon {e:g}", f"{100 * share:.0f}", f"{100 * most(e):.0f}"] for e, share in reversed(found.items())]
    lines.append(["not published at all", "50", "50"])
    header = ["the table is published", "right guesses of 100", "the most that the guarantee allows"]
    title = "Is this person in the table? Right guesses of the best possible attacker"
    write_table("audit/table_membership", title, header, lines, f"{runs} guesses for each epsilon, delta = {DELTA:g}.")
    figure, (axes,) = new_figure(7.0, 3.4)
    names, shares, limits = (list(column) for column in zip(*lines, strict=True))
    places = np.arange(len(lines))[::-1]
    values = [float(share) for share in shares]
    axes.barh(places, values, color=[OTHER, *[ACCENT] * len(found), SOFT], height=0.62)
    axes.plot([float(limit) for limit in limits], places, "|", color=INK, markersize=14, markeredgewidth=2)
    axes.axvline(50, color=INK, linewidth=0.8, linestyle=":")
    axes.set_yticks(places, names)
    axes.set(xlim=(0, 106), xlabel="right guesses of 100 (dotted: a coin; short line: the most that the guarantee allows)")
    for place, value in zip(places, values, strict=True):
        axes.text(value - 1.5, place, f"{value:.0f}", color="white", va="center", ha="right", fontsize=9)
    axes.set_title("Is this person in the table?", loc="left")
    write_figure("audit/table_membership", figure)


if __name__ == "__main__":
    run(main)
