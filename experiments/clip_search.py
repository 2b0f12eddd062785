"""Where the last round clips residuals and their squares: the search that fixed both rules (``models/bayes/THEORY.md``, section 9).

No data and no draws: losses are integrals over declared laws. A wider clip has more noise, a narrower one cuts what a long tail adds to a mean.
For each plan (rows, noise beside the sampling error) the search takes the clip whose worst loss over the laws, beside the best clip of each law,
is smallest; the rules have to come near it over four orders of magnitude of the noise.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from experiments.common import run, write_table
from scipy import stats

from unpooled.linear.schedule import clip_of, square_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

ROWS, NOISES, GROWS = (400, 1000, 10_000, 100_000, 1_000_000), (0.03, 0.1, 0.3, 1.0, 2.0), 0.4
LAWS = {
    "normal": stats.norm(),
    "exponential": stats.expon(),
    "log-normal .6": stats.lognorm(0.6),
    "log-normal 1": stats.lognorm(1.0),
    "Student 3": stats.t(3),
}
EXPLAINED = (0.0, 0.5, 0.9)
#: Probabilities far into both tails: steps of the logistic function, so that one in 10^10 is seen, and their weights.
_LOGITS = np.linspace(-24, 24, 6001)
_WEIGHTS = stats.logistic.pdf(_LOGITS) / stats.logistic.pdf(_LOGITS).sum()
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(24)
#: A uniform column of variance 1.
_COLUMN, _COLUMN_WEIGHTS = np.sqrt(3) * _NODES, _NODE_WEIGHTS / 2


def residuals(law: str) -> Numbers:
    """Of mean 0 and variance 1 under the weights."""
    values = np.where(_LOGITS < 0, LAWS[law].ppf(stats.logistic.cdf(_LOGITS)), LAWS[law].isf(stats.logistic.sf(_LOGITS)))
    centred = values - _WEIGHTS @ values
    return np.asarray(centred / np.sqrt(_WEIGHTS @ centred**2), dtype=np.float64)


def of_means(law: str, grows: bool, of: str, clips: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Squared bias, variance of a row, and the share of residuals inside, of the mean or of the product with the column, for each clip.

    What is estimated is divided by that share, as the last round does; the mean is not, for its tail is added up.
    """
    r = residuals(law) * (1 + GROWS * grows * _COLUMN[:, None])
    r /= np.sqrt(_COLUMN_WEIGHTS @ r**2 @ _WEIGHTS)
    z = _COLUMN if of == "product" else np.ones_like(_COLUMN)
    mean, square, inside = np.array(
        [
            (
                _COLUMN_WEIGHTS @ (z * (cut @ _WEIGHTS)),
                _COLUMN_WEIGHTS @ (z**2 * (cut**2 @ _WEIGHTS)),
                _COLUMN_WEIGHTS @ ((np.abs(r) < c) @ _WEIGHTS) if of == "product" else 1.0,
            )
            for c in clips
            for cut in [np.clip(r, -c, c)]
        ]
    ).T
    return (mean / inside) ** 2, (square - mean**2) / inside**2, inside  # uncut both means are zero


def of_squares(law: str, explained: float, clips: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Squared bias and variance of a row of the mean square, in squared deviations of the response."""
    square = residuals(law) ** 2 * (1 - explained)
    cut = np.minimum(square, clips[:, None])
    mean = cut @ _WEIGHTS
    return (mean - _WEIGHTS @ square) ** 2, cut**2 @ _WEIGHTS - mean**2, np.ones_like(mean)


def worst_regret(shapes: Sequence[tuple[Numbers, Numbers, Numbers]], n: int, noise: Numbers) -> Numbers:
    """For each clip the largest loss beside the best clip of the same shape (root mean squares)."""
    losses = np.array([bias + variance / n + (noise / inside) ** 2 for bias, variance, inside in shapes])
    return np.asarray(np.sqrt(np.max(losses / losses.min(axis=1, keepdims=True), axis=0)), dtype=np.float64)


def main(full: bool) -> None:
    """A row for each plan; in full on a finer grid of clips."""
    clips = np.geomspace(1, 200, 161 if full else 81)
    squares = np.geomspace(1, 4000, 161 if full else 81)
    laws = [law for law in LAWS if law != "Student 3"]  # whose squares have no variance
    means = [of_means(*shape, clips) for shape in itertools.product(LAWS, (False, True), ("mean", "product"))]
    powers = [of_squares(law, explained, squares) for law, explained in itertools.product(laws, EXPLAINED)]
    rows = []
    for n, noise in itertools.product(ROWS, NOISES):
        q = noise / np.sqrt(n)
        numbers: list[str] = []
        for grid, shapes, rule in ((clips, means, clip_of(q)), (squares, powers, square_of(1 / q))):
            regret = worst_regret(shapes, n, q * grid)
            numbers += [
                f"{grid[regret.argmin()]:.1f}",
                f"{rule:.1f}",
                f"{regret.min():.2f}",
                f"{np.interp(rule, grid, regret):.2f}",
            ]
        rows.append([f"{n}, {noise:g}", *numbers])
    write_table(
        "regression/clip_search",
        "Clips of residuals and of their squares: the search beside the rules",
        [
            "rows, noise",
            "clip found",
            "rule",
            "worst loss found",
            "of the rule",
            "square found",
            "rule's",
            "worst loss of squares",
            "of the rule's",
        ],
        rows,
        "Noise: of the mean for a clip of one, beside the sampling error 1/sqrt(n). Worst loss: the largest root mean square error over the laws, beside "
        "that of the best clip of each law.",
    )


if __name__ == "__main__":
    run(main)
