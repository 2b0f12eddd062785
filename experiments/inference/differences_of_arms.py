"""Coverage of standardised differences between two arms: ``describe(by="arm")``, played on the law of the planned release.

Four columns: normal, skewed (a shifted exponential, clipped to its range), a category of half of the people and one of a twentieth. The target of a
column is the difference in the population that is drawn from, after clipping. Cells count the intervals that hold it, and the share that is printed.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from experiments.common import run, write_table
from scipy.stats import norm

from unpooled.models.describe import MODEL
from unpooled.models.describe.declared import ARMS, ArmsLayout
from unpooled.models.describe.fit import _compared
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

SIZES, EPSILONS, SHARES = (400, 2000, 20_000), (0.3, 1.0, 3.0), (0.5, 0.2)
COLUMNS = (
    Column("arm", categories=("usual", "new")),
    Column("normal", -4.0, 4.0),
    Column("skewed", 0.0, 6.0),
    Column("half", categories=("no", "yes")),
    Column("rare", categories=("no", "yes")),
)
NAMES = tuple(column.name for column in COLUMNS[1:])
POPULATION, FULL, REDUCED = 400_000, 500, 60


def people(rng: np.random.Generator, rows: int, share: float) -> dict[str, np.ndarray]:
    """People of whom this share is in the new arm, which is a little older, sicker and rarer."""
    new = rng.random(rows) < share
    yes = lambda p: np.where(rng.random(rows) < p, "yes", "no")  # noqa: E731
    return {
        "arm": np.where(new, "new", "usual"),
        "normal": np.clip(rng.normal(size=rows) + 0.2 * new, -4, 4),
        "skewed": np.clip(rng.exponential(size=rows) * np.where(new, 1.1, 1.0), 0, 6),
        "half": yes(np.where(new, 0.55, 0.5)),
        "rare": yes(np.where(new, 0.06, 0.05)),
    }


def truth(share: float) -> dict[str, float]:
    """The differences in a large population."""
    data = people(np.random.default_rng(1), POPULATION, share)
    found = {}
    for name in NAMES:
        values = (data[name] == "yes").astype(float) if name in {"half", "rare"} else data[name]
        one, other = values[data["arm"] == "new"], values[data["arm"] == "usual"]
        found[name] = float((one.mean() - other.mean()) / math.sqrt((one.var() + other.var()) / 2))
    return found


def main(full: bool) -> None:
    """Write coverage and the share of intervals that are printed."""
    lines, runs, z = [], FULL if full else REDUCED, norm.ppf(0.975)
    every = []
    for share, rows, epsilon in itertools.product(SHARES, SIZES, EPSILONS):
        study = Study("describe", (Card("a", rows, COLUMNS),), epsilon, 1e-6, parameters={"by": "arm"}, derived=())
        layout = ArmsLayout.of(study, "arm", NAMES)
        deviations = MODEL.compile(study).release("a", ARMS).mechanism.deviations
        target, held, printed = truth(share), dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0)
        for seed in range(runs):
            rng = np.random.default_rng([seed, rows])
            sums = layout.statistic(Table(people(rng, rows, share))) + rng.normal(size=layout.size) * deviations
            for d in _compared("a", rows, sums, deviations**2, layout, z)[2]:
                if d.category != "no" and d.value is not None:
                    printed[d.column] += 1
                    held[d.column] += d.value.low <= target[d.column] <= d.value.high
        cells = []
        for name in NAMES:
            of = printed[name]
            cells.append(f"{held[name] / of:.3f} ({of / runs:.0%})" if of >= runs / 2 else f"({of / runs:.0%})")
            every += [held[name] / of] if of >= runs / 2 else []
        lines.append((f"{share:g}", f"{rows:,}", f"{epsilon:g}", *cells))
        print(*lines[-1], flush=True)
    off = sum(not 0.93 <= one <= 0.97 for one in every)
    write_table(
        "inference/differences_of_arms",
        "Coverage of 95% intervals of standardised differences between two arms",
        ("share of the new arm", "rows", "epsilon", *NAMES),
        lines,
        f"{runs} runs a cell, one site. In brackets: the share of runs that print an interval; coverage where at least half do. "
        f"{len(every)} cells, mean {np.mean(every):.3f}, from {min(every):.3f} to {max(every):.3f}, {off} outside .93 to .97.",
    )


if __name__ == "__main__":
    run(main)
