"""Noise looked at jointly: two coordinates at a time, its last bits, and its tails. Each coordinate by itself can have the right law and hide nothing.

Every function returns what is wrong in words, or nothing. Each test says no to honest noise once in a million (:data:`RARE`) at most: the null laws
are those of unrounded normal noise, and of many pairs the smallest chance is multiplied by their number. The audit of P parties with K kinds of
noise and R releases makes 3 tests of each kind (two ends of chi-squared, Kolmogorov-Smirnov), 1 of each release, 7 of each party (keys, three moduli,
three cuts) and 1 of all parties. So it accuses honest noise with a chance of at most (3 P K + R + 7 P + 1) RARE, but for the error of chi-squared
as the law of counts, and of rounding to steps that are a sixteenth of a deviation or less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

#: Where a test of many studies says no once in a million.
RARE = 1e-6
#: The most coordinates of which all pairs are looked at, and the fewest keys for it.
MOST, FEWEST = 400, 8
#: Noise of fewer steps than this is too coarse for the laws below; and the deviations beyond which values are counted.
STEPS, _CUTS = 16.0, (2.5, 3.5, 4.5)
_MODULI = (2, 4, 8)


def chosen(size: int, most: int = MOST) -> NDArray[np.intp]:
    """Return at most this many places of a vector: all of a short one; of a long one its beginning, and places spread over the rest."""
    if size <= most:
        return np.arange(size)
    return np.unique(np.concatenate([np.arange(most // 2), np.linspace(0, size - 1, most - most // 2).astype(np.intp)]))


def wrong_pair(drawn: Numbers) -> tuple[int, int] | None:
    """Return two columns whose sum or difference has too small a spread over the rows (keys), or None.

    Of independent normal columns, the squares of the sums over sqrt(2) add up to chi-squared with a degree for each row. With 12 rows and 400
    columns a correlation beyond .993 is seen, with 48 rows one beyond .84, with 300 rows one beyond .46.
    """
    from scipy.stats import chi2

    rows, columns = drawn.shape
    if rows < FEWEST or columns < 2:  # noqa: PLR2004 - two make a pair
        return None
    gram = drawn.T @ drawn
    squares = np.diag(gram)
    both = (squares[:, None] + squares[None, :]) / 2
    least = np.minimum(both + gram, both - gram)
    least[np.tril_indices(columns)] = np.inf
    place = int(least.argmin())
    tests = columns * (columns - 1)  # a sum and a difference of every pair
    if tests * chi2.cdf(max(float(least.flat[place]), 0.0), rows) < RARE:
        return place // columns, place % columns
    return None


def wrong_bits(steps: NDArray[np.int64], least: float) -> Iterator[str]:
    """Yield what is wrong with the last bits of integer noise, of which the smallest deviation is ``least`` steps.

    Rounded normal noise of m steps is uniform modulo m but for a part of e^(-2 pi^2), and wider noise is closer still.
    """
    from scipy.stats import chisquare

    for modulus in _MODULI:
        if least >= max(modulus, STEPS) and steps.size >= 10 * modulus:
            counts = np.bincount(np.mod(steps, modulus).astype(np.intp), minlength=modulus)
            if float(chisquare(counts).pvalue) < RARE:
                yield f"its values are not spread evenly modulo {modulus}"


def wrong_tails(drawn: Numbers) -> Iterator[str]:
    """Yield what is wrong with the numbers of values far out, in standard deviations of the planned normal law."""
    from scipy.stats import binom, norm

    for cut in _CUTS:
        beyond, chance = int((np.abs(drawn) > cut).sum()), 2 * float(norm.sf(cut))
        likely = min(binom.cdf(beyond, drawn.size, chance), binom.sf(beyond - 1, drawn.size, chance))
        if 2 * likely < RARE:
            yield f"{beyond} of {drawn.size} values lie beyond {cut:g} deviations"


def side_by_side(runs: Sequence[Sequence[Numbers]], most: int = MOST) -> Numbers:
    """Return a row for each run, of the chosen coordinates of its releases, as far as all runs have the same ones."""
    same = [places for places in zip(*runs, strict=False) if len({z.size for z in places}) == 1]
    share = max(2, most // max(len(same), 1))
    columns = [np.stack([z[chosen(z.size, share)] for z in places]) for places in same[: most // 2]]
    return np.concatenate(columns, axis=1) if columns else np.empty((len(runs), 0))
