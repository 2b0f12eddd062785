"""Stacking, Proposition 2 and Theorem 5: the rows they want against d, epsilon and K, beside the measured excess loss of a low-level model.

Labels follow the first group alone, so its reference model v is the truth. Rows of a group have length q = 1/K and q |v| stays the same, as the
text after Theorem 5 has it. The excess is the expected loss above the reference's; a size suffices where 95 % of the runs stay below 0.05.
"""

from __future__ import annotations

import functools
import math
import warnings

import numpy as np
from experiments.cells import kept
from experiments.common import curves, run, write_table

from unpooled import Bounds, PrivateStackingClassifier
from unpooled.models.stacking.estimator import rows_wanted

EXCESS, LENGTH, FAILS = 0.05, 3.0, 0.05
SIZES = tuple(round(125 * 2 ** (k / 2)) for k in range(19))
#: Columns, epsilon and groups: one at a time around the first.
SETTINGS = (
    *((d, 1.0, 1) for d in (5, 10, 20, 40, 80)),
    *((20, e, 1) for e in (0.3, 3.0, 10.0)),
    *((40, 1.0, k) for k in (2, 4, 8)),
)
FORMS = ("published", "sound")


def excess(form: str, columns: int, epsilon: float, groups: int, size: int, seed: int) -> float:
    """Expected loss of the first group's model above that of its reference, over fresh rows."""
    rng, width = np.random.default_rng(seed), columns // groups
    truth = rng.normal(size=width)
    truth *= LENGTH * groups / np.linalg.norm(truth)
    blocks = rng.normal(size=(groups, size + 2000, width))
    blocks /= groups * np.linalg.norm(blocks, axis=2, keepdims=True)
    decision = blocks[0] @ truth
    y = (rng.random(size) < 1 / (1 + np.exp(-decision[:size]))).astype(int)
    model = PrivateStackingClassifier(
        {f"g{k}": list(range(k * width, (k + 1) * width)) for k in range(groups)},
        calibration=form,
        epsilon=epsilon,
        bounds=Bounds(norm=1.0),
        classes=(0, 1),
        fit_intercept=False,
        penalty=EXCESS / (LENGTH * groups) ** 2,
        random_state=seed,
    ).fit(np.hstack(list(blocks[:, :size])), y)
    fresh, right = blocks[0, size:], decision[size:]
    found = fresh @ np.array(model.models_[0].coefficients)
    losses = [np.logaddexp(0, u) - u / (1 + np.exp(-right)) for u in (found, right)]
    return float(np.mean(losses[0] - losses[1]))


@functools.cache
def quantile(form: str, columns: int, epsilon: float, groups: int, size: int, runs: int) -> float:
    """The excess that 95 % of the runs stay below."""
    every = kept(
        [form, columns, epsilon, groups, size],
        lambda: [excess(form, columns, epsilon, groups, size, s) for s in range(runs)],
    )
    return float(np.quantile(every, 1 - FAILS))


def needed(form: str, columns: int, epsilon: float, groups: int, runs: int) -> float:
    """Rows at which that excess falls below 0.05, between two sizes on a line in logarithms."""
    before = math.inf
    for at, size in enumerate(SIZES):
        now = quantile(form, columns, epsilon, groups, size, runs)
        if now <= EXCESS:
            if at == 0:
                return float(size)
            share = math.log(before / EXCESS) / math.log(before / now)
            return float(SIZES[at - 1] * (size / SIZES[at - 1]) ** share)
        before = now
    return math.inf


def noise_term(columns: int, epsilon: float, groups: int) -> float:
    """The theorem's second term alone, constant 1, q = 1/K: the only one that knows d."""
    return columns * math.log(columns / (groups * FAILS)) * LENGTH / (EXCESS * epsilon)


def theorem(columns: int, epsilon: float, groups: int) -> float:
    """Theorem 5 with constant 1; one group is Proposition 2."""
    return rows_wanted(
        LENGTH, columns, excess=EXCESS, epsilon=epsilon, delta=FAILS, share=1 / groups, groups=groups
    )  # fmt: skip


def main(full: bool) -> None:
    """The table, and a figure: rows over d, epsilon and K, and the measured excess over n."""
    warnings.simplefilter("ignore", UserWarning)
    runs = 200 if full else 40
    found = {setting: [needed(form, *setting, runs) for form in FORMS] for setting in SETTINGS}
    rows = [
        [
            str(d),
            f"{e:g}",
            str(k),
            *(f"{m:.0f}" for m in found[d, e, k]),
            f"{theorem(d, e, k):.0f}",
            f"{noise_term(d, e, k):.0f}",
        ]
        for d, e, k in SETTINGS
    ]
    title = f"Rows wanted for an excess loss of {EXCESS} in 95 % of runs, and Theorem 5 (Proposition 2 where K is 1) with constant 1"
    header = ["columns", "epsilon", "K", "measured, as printed", "measured, sound", "theorem", "its second term"]
    write_table("stacking/theorem_5", title, header, rows, f"{runs} runs.")
    panels = {}
    for name, position, others in (
        ("rows over d", 0, {1: 1.0, 2: 1}),
        ("rows over epsilon", 1, {0: 20, 2: 1}),
        ("rows over K, d = 40", 2, {0: 40, 1: 1.0}),
    ):
        chosen = sorted(s for s in SETTINGS if all(s[i] == v for i, v in others.items()))
        x = np.array([s[position] for s in chosen], float)
        lines = {f"measured, {form}": [found[s][i] for s in chosen] for i, form in enumerate(FORMS)}
        lines |= {"theorem, constant 1": [theorem(*s) for s in chosen], "its second term": [noise_term(*s) for s in chosen]}
        panels[name] = {label: (x, np.array(line), np.tile(line, (2, 1))) for label, line in lines.items()}
    sizes = SIZES[:15:2]
    allowed = [max(LENGTH * math.sqrt(math.log(1 / FAILS) / n), noise_term(20, 1.0, 1) * EXCESS / n) for n in sizes]
    lines = {f"measured, {form}": [quantile(form, 20, 1.0, 1, n, runs) for n in sizes] for form in FORMS}
    lines |= {"theorem, constant 1": allowed, "its second term": [noise_term(20, 1.0, 1) * EXCESS / n for n in sizes]}
    panels["excess over n (d = 20, epsilon 1, K = 1)"] = {
        label: (np.array(sizes, float), np.array(line), np.tile(line, (2, 1))) for label, line in lines.items()
    }
    curves("stacking/theorem_5", panels, "d, epsilon, K, n")


if __name__ == "__main__":
    run(main)
