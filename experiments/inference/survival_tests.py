"""Size and power of log-rank tests and of the test of restricted means, played on the law of the planned release.

Persons of two or three arms, in one stratum or two (the hazard of the second is double), are censored at random and at the end. Under the null law
all arms have one hazard. A test refuses where the noise adds more to it than the draw of persons: such runs are counted apart. Cells are kept in
``results/inference/survival_tests.json`` as they end, and a run goes on where it stopped.
"""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
from experiments.common import RESULTS, run, write_table
from scipy.stats import norm

from unpooled.kernels import survival as survival_tests
from unpooled.models.survival import MODEL
from unpooled.models.survival.fit import DRAWS
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study

SIZES, EPSILONS = (500, 2000, 5000, 20_000), (0.3, 1.0, 3.0)
#: (arms, share of the last arm, strata, events by the end, censored before it).
DESIGNS = (
    (2, 0.5, 1, 0.3, 0.15),
    (2, 0.5, 1, 0.05, 0.15),
    (2, 0.25, 1, 0.3, 0.4),
    (2, 0.5, 2, 0.3, 0.15),
    (3, 1 / 3, 1, 0.3, 0.15),
)
FULL, REDUCED = 2000, 60
NAMES = ("log-rank", "early", "means")
KEPT = RESULTS / "inference/survival_tests.json"


def table(
    rng: np.random.Generator, rows: int, design: tuple[int, float, int, float, float], intervals: int, ratio: float
) -> np.ndarray:
    """Exact exits of these people; ``ratio`` is the hazard ratio of the last arm."""
    arms, share, strata, events, leave = design
    others = (1 - share) / (arms - 1)
    arm = rng.choice(arms, rows, p=[*[others] * (arms - 1), share])
    stratum = rng.integers(0, strata, rows)
    hazard = -math.log(1 - events) * np.where(arm == arms - 1, ratio, 1.0) * np.where(stratum == 1, 2.0, 1.0)
    until = rng.exponential(1 / hazard)
    left = np.where(rng.random(rows) < leave, rng.uniform(0, 1, rows), 1.0)
    seen, time = until <= left, np.minimum(until, left)
    place = np.minimum((time * intervals).astype(int), intervals - 1)
    exits = np.where((left >= 1) & ~seen, 2 * intervals, 2 * place + seen)
    cell = np.ravel_multi_index((stratum, arm, exits), (strata, arms, 2 * intervals + 1))
    return np.bincount(cell, minlength=strata * arms * (2 * intervals + 1)).reshape(strata, arms, -1).astype(float)


def planned(rows: int, epsilon: float, arms: int, strata: int) -> tuple[int, float]:
    """The intervals of the planned release, and the deviation of a cell."""
    columns = [Column("t", 0.0, 1.0), Column("e", 0.0, 1.0), Column("arm", categories=tuple("abc"[:arms]))]
    columns += [Column("s", categories=("x", "y"))] if strata > 1 else []
    asked = {"time": "t", "event": "e", "by": "arm", "strata": "s" if strata > 1 else ""}
    study = Study("survival", (Card("one", rows, tuple(columns)),), epsilon, 1e-6, parameters=asked, derived=())
    plan = MODEL.compile(study)
    return len(plan.design.layout.edges), float(plan.releases[0].mechanism.deviations.max())


def played(
    rows: int, epsilon: float, design: tuple[int, float, int, float, float], ratio: float, runs: int
) -> dict[str, list[float]]:
    """(share of refused runs, share of the others that reject at .05) of every test."""
    intervals, deviation = planned(rows, epsilon, design[0], design[2])
    weights = survival_tests.areas(np.arange(1, intervals + 1) / intervals, intervals - 1)[1]
    tests = {
        "log-rank": lambda cells: survival_tests.log_rank(cells, deviation),
        "early": lambda cells: survival_tests.log_rank(cells, deviation, early=True),
        "means": lambda cells: survival_tests.differences(cells, deviation, weights),
    }
    refused, rejected = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0)
    for seed in range(runs):
        rng = np.random.default_rng([seed, rows, design[0]])
        exact = table(rng, rows, design, intervals, ratio)
        cells = exact + deviation * rng.normal(size=exact.shape)
        drawn = survival_tests.null_tables(cells, deviation, DRAWS, rng)
        for name, test in tests.items():
            found = test(cells)
            if bool(found.is_noise):
                refused[name] += 1
                continue
            above = int((test(drawn).statistic >= found.statistic).sum())
            rejected[name] += (1 + above) / (1 + DRAWS) <= 0.05
    return {name: [refused[name] / runs, rejected[name] / max(runs - refused[name], 1)] for name in NAMES}


def ratio_of_power(rows: int, design: tuple[int, float, int, float, float], power: float = 0.8) -> float:
    """The hazard ratio that the log-rank test without privacy finds so often (Schoenfeld's formula)."""
    _, share, _, events, leave = design
    seen = rows * events * (1 - leave / 2)
    return math.exp(-(norm.ppf(0.975) + norm.ppf(power)) / math.sqrt(seen * share * (1 - share)))


def main(full: bool) -> None:
    """Play every cell that is not kept yet, and write both tables."""
    runs = FULL if full else REDUCED
    kept = json.loads(KEPT.read_text()) if full and KEPT.is_file() else {}
    lines, powers, sizes = [], [], []
    for design, rows, epsilon in itertools.product(DESIGNS, SIZES, EPSILONS):
        for ratio in (1.0, ratio_of_power(rows, design)) if design[0] == 2 and design[2] == 1 else (1.0,):
            key = repr((design, rows, epsilon, round(ratio, 6), runs))
            if key not in kept:
                kept[key] = played(rows, epsilon, design, ratio, runs if ratio == 1.0 else runs // 5)
                if full:
                    KEPT.write_text(json.dumps(kept, indent=1))
            found = kept[key]
            cells = [
                f"({found[n][0]:.0%})" if found[n][0] > 0.5 else f"{found[n][1]:.3f} ({found[n][0]:.0%})" for n in NAMES
            ]
            arms, share, strata, events, leave = design
            line = (f"{arms}", f"{share:.2g}", f"{strata}", f"{events:g}", f"{leave:g}", f"{rows:,}", f"{epsilon:g}")
            print(*line, f"{ratio:.2f}", *cells, flush=True)
            if ratio == 1.0:
                lines.append((*line, *cells))
                sizes += [found[n][1] for n in NAMES if found[n][0] <= 0.5]
            else:
                powers.append((*line, f"{ratio:.2f}", *cells))
    off = sum(not 0.04 <= size <= 0.06 for size in sizes)
    head = ("arms", "share of the last", "strata", "events", "censored", "rows", "epsilon")
    write_table(
        "inference/survival_tests",
        "Size of survival tests at .05 (share of refused runs)",
        (*head, *NAMES),
        lines,
        f"{runs} runs a cell, {DRAWS} draws of the null law, one site. Cells that refuse more than half of the runs show this share alone. "
        f"{len(sizes)} cells, mean {np.mean(sizes):.4f}, from {min(sizes):.4f} to {max(sizes):.4f}, {off} outside .04 to .06.",
    )
    write_table(
        "inference/survival_power",
        "Power of survival tests at the hazard ratio that the log-rank test without privacy finds in 80 % of studies",
        (*head, "hazard ratio", *NAMES),
        powers,
        f"{runs // 5} runs a cell; in brackets the share of refused runs.",
    )


if __name__ == "__main__":
    run(main)
