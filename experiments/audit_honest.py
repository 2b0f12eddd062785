"""How often the noise audit says no to honest noise: its single tests over 100,000 draws at several levels, and 200 whole audits of three studies.

Every single test must be wrong at most as often as its level says; whole audits use the level of the audit, one in a million a test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from scipy import stats

from unpooled.audit import presence as joint_laws
from unpooled.audit.presence import audit_noise
from unpooled.models import load

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "contract"))

from cases import CASES

LEVELS = (0.1, 0.01, 0.001)
#: The studies whose audits are cheapest; keys of an audit.
STUDIES, KEYS, SCALE = ("pride", "stacking", "bayes"), 4, 40.0


def integers(rng: np.random.Generator, size: int) -> np.ndarray:
    """Rounded normal numbers, as mechanisms draw them."""
    return np.rint(SCALE * rng.standard_normal(size)).astype(np.int64)


def at_level(level: float, test: Callable[[np.random.Generator], int], trials: int, seed: int) -> int:
    """How often a test of joint laws says no at this level."""
    rng, own = np.random.default_rng([7, seed]), joint_laws.RARE
    joint_laws.RARE = level
    try:
        return sum(test(rng) for _ in range(trials))
    finally:
        joint_laws.RARE = own


#: Tests of joint laws, and how many single tests each is.
JOINT: dict[str, tuple[Callable[[np.random.Generator], int], int]] = {
    "435 pairs of 30 numbers, 12 keys": (lambda rng: joint_laws.wrong_pair(rng.standard_normal((12, 30))) is not None, 1),
    "last bits of 500 numbers": (lambda rng: len([*joint_laws.wrong_bits(integers(rng, 500), SCALE)]), 3),
    "tails of 2000 numbers": (lambda rng: len([*joint_laws.wrong_tails(rng.standard_normal(2000))]), 3),
}


def chances(trials: int) -> list[list[float]]:
    """Chances of the tests of the whole law over honest draws of 200 numbers: of their squares, and of Kolmogorov and Smirnov."""
    rng, found = np.random.default_rng(8), []
    for _ in range(trials):
        drawn = integers(rng, 200)
        squares = float((drawn.astype(float) ** 2).sum()) / (SCALE**2 + 1 / 12)
        spread = (drawn + rng.uniform(-0.5, 0.5, drawn.size)) / SCALE  # as the audit does
        found.append([float(stats.chi2.sf(squares, drawn.size)), float(stats.kstest(spread, stats.norm().cdf).pvalue)])
    return np.array(found).T.tolist()


def audits(name: str, times: int) -> int:
    """How many of so many audits of a study say anything."""
    case = CASES[name]()
    model, study = load(case.study.model), msgspec.structs.replace(case.study, simulation_seed=None)
    found = 0
    for seed in range(times):
        renamed = msgspec.structs.replace(study, epsilon=study.epsilon * (1 + seed * 1e-6))  # another plan, other keys
        found += bool(audit_noise(model, renamed, case.tables, registry=load, keys=KEYS))
    return found


def main(full: bool) -> None:
    """Both tables."""
    trials = 100_000 if full else 5000
    rows = []
    for k, (name, (test, single)) in enumerate(JOINT.items()):
        shares = [kept([name, level], lambda v=level, t=test, k=k: at_level(v, t, trials, k)) / trials for level in LEVELS]
        rows.append([name, str(single), *(f"{share / single:.5f}" for share in shares)])
    for name, values in zip(
        ("squares of 200 numbers", "Kolmogorov and Smirnov"), kept("law", lambda: chances(trials)), strict=True
    ):
        rows.append([name, "1", *(f"{np.mean(np.array(values) < level):.5f}" for level in LEVELS)])
    header = ["test", "single tests", *(f"share of no at {level:g}" for level in LEVELS)]
    write_table("audit/honest_tests", f"Honest noise, {trials} draws: how often single tests say no", header, rows)
    times = 200 if full else 20
    rows = [[name, str(times), str(kept(["audits", name], lambda n=name: audits(n, times)))] for name in STUDIES]
    write_table(
        "audit/honest_audits",
        f"Honest studies: audits of noise that raise anything ({KEYS} keys)",
        ["study", "audits", "raised"],
        rows,
    )


if __name__ == "__main__":
    run(main)
