"""Whole studies under the null law, to hold against the played sizes: four centres, real plans, ledgers and noise, one study after the other.

5,000 people at epsilon 1, two arms that do not differ, a complication in 20 % and deaths in 30 %. Counted are the studies whose test rejects at .05.
"""

from __future__ import annotations

import warnings

import numpy as np
from experiments.common import run, write_table

import unpooled
from unpooled.errors import BudgetWarning

ROWS, FULL, REDUCED = 5000, 200, 10
BOUNDS = {"arm": ["usual", "new"], "ill": ["no", "yes"], "days": (0, 365), "died": (0, 1), "age": (20, 90)}


def people(seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """People of two arms that are alike, and their centres."""
    rng = np.random.default_rng(seed)
    until, left = rng.exponential(1023, ROWS), np.where(rng.random(ROWS) < 0.15, rng.uniform(0, 365, ROWS), 365.0)
    data = {
        "arm": rng.choice(np.array(["usual", "new"]), ROWS),
        "ill": np.where(rng.random(ROWS) < 0.2, "yes", "no"),
        "days": np.minimum(until, left),
        "died": (until <= left).astype(float),
        "age": np.clip(rng.normal(60, 12, ROWS), 20, 90),
    }
    return data, rng.choice(np.array(list("abcd")), ROWS)


def main(full: bool) -> None:
    """Run the studies, each with its own people, and write how often each test rejects."""
    warnings.simplefilter("ignore", BudgetWarning)
    runs = FULL if full else REDUCED
    rejected = {
        name: [0, 0] for name in ("chi-squared", "log-rank", "log-rank, early events weighted", "restricted mean survival")
    }
    outside = 0
    for seed in range(runs):
        data, centre = people(seed)
        tests = {"chi-squared": unpooled.tabulate(data, ["arm", "ill"], BOUNDS, sites=centre).table_.independence.p_value}
        alive = unpooled.survival(data, "days", "died", "arm", BOUNDS, sites=centre)
        tests |= {test.name: test.p_value for test in alive.result_.tests}
        for name, p in tests.items():
            rejected[name][0] += p is not None
            rejected[name][1] += p is not None and p <= 0.05
        asked = {name: data[name] for name in ("arm", "age")}
        difference = unpooled.describe(asked, {n: BOUNDS[n] for n in asked}, by="arm", sites=centre).difference("age")
        outside += difference is not None and not difference.low <= 0 <= difference.high
    lines = [(name, f"{of}", f"{count / max(of, 1):.3f}") for name, (of, count) in rejected.items()]
    lines.append(("standardised difference of age: 0 outside its interval", f"{runs}", f"{outside / runs:.3f}"))
    error = np.sqrt(0.05 * 0.95 / runs)
    write_table(
        "inference/whole_studies",
        "Whole studies under the null law: share of tests that reject at .05",
        ("test", "studies that answer", "share"),
        lines,
        f"{runs} studies of four centres, {ROWS:,} people, epsilon 1. Two standard errors of a share of .05 are {2 * error:.3f}.",
    )


if __name__ == "__main__":
    run(main)
