"""Noisy counts of all parties made consistent with public totals, and the noise that is left in every weighted sum of them (THEORY.md, section 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]

#: Steps towards possible counts at most, halvings of a step, and how closely the public totals are met, in persons.
_STEPS, _HALVES, _CLOSE = 100, 40, 1e-6
#: The part of the full products of sums that is added to those of the counts above 0.
_SLIGHT = 1e-4


@dataclass(frozen=True)
class Counts:
    """Noisy counts of the parties' cells, and what is public about their sums.

    ``raw`` has a row of cells per party, as released; ``variance`` is that of the noise of one released cell. ``sums`` has a row for every sum
    of cells whose true value is public, over all parties' cells one after the other; ``known`` are these values.
    """

    raw: Floats
    variance: float
    sums: Floats
    known: Floats
    #: The inverse of the products of the public sums.
    inverse: Floats

    @classmethod
    def of(cls, raw: Floats, variance: float, sums: Sequence[Floats], known: Sequence[float]) -> Counts:
        """Return the counts with their public sums; none is needed."""
        stacked = np.array(sums).reshape(len(known), raw.size)
        return cls(raw, variance, stacked, np.array(known, dtype=np.float64), _inverse(stacked))

    @cached_property
    def values(self) -> Floats:
        """Return the nearest counts with the public sums, a row per party: unbiased, and possibly negative (Theorem N.2)."""
        excess = self.sums @ self.raw.ravel() - self.known
        return self.raw - (self.sums.T @ (self.inverse @ excess)).reshape(self.raw.shape)

    @property
    def fit(self) -> float:
        """Return the p-value of the noisy sums against the public ones; 1 where there is no noise, or nothing is public."""
        freedom = int(np.linalg.matrix_rank(self.sums)) if self.known.size else 0
        if not freedom or not self.variance:
            return 1.0
        from scipy.special import chdtrc

        excess = self.sums @ self.raw.ravel() - self.known
        return float(chdtrc(freedom, float(excess @ self.inverse @ excess) / self.variance))

    def totals(self, cells: Sequence[Places]) -> Floats:
        """Return the sum of :attr:`values` over every set of places; cells of a party stand one after the other, and so do parties."""
        values = self.values.ravel()
        return np.array([values[places].sum() for places in cells])

    def covariance(self, cells: Sequence[Places]) -> Floats:
        """Return the covariances of the noise of these totals; no place is in two sets."""
        known = np.stack([self.sums[:, places].sum(axis=1) for places in cells], axis=1)
        together: Floats = np.diag([float(places.size) for places in cells]) - known.T @ self.inverse @ known
        return self.variance * together

    def noise(self, weights: Floats, places: Places) -> Floats:
        """Return the covariances of the noise of weighted sums of the cells at these places, a row of weights per sum."""
        known = self.sums[:, places] @ weights.T
        together: Floats = weights @ weights.T - known.T @ self.inverse @ known
        return self.variance * together

    def pooled(self) -> tuple[Floats, Floats, Floats]:
        """Return the cells' sums over parties as they were estimated, the deviations of their noise, and the nearest possible ones."""
        parties, cells = self.raw.shape
        known = self.sums.reshape(-1, parties, cells).sum(axis=1)
        variance = self.variance * (parties - np.einsum("ij,ij->j", known, self.inverse @ known))
        values = self.values.sum(axis=0)
        # Rows of `known` are sums over one party's cells or over all: of all, they are known of the pooled cells as well.
        whole = np.array([bool((row == row[:1]).all()) for row in self.sums.reshape(-1, parties, cells)], dtype=bool)
        rows = [self.sums.reshape(-1, parties, cells)[whole, 0]]
        limits = [self.known[whole]]
        if self.known.size and not whole.all():  # the parties' totals
            rows.append(np.ones((1, cells)))
            limits.append(self.known[~whole].sum(keepdims=True))
        return values, np.sqrt(np.maximum(variance, 0.0)), nearest(values, np.concatenate(rows), np.concatenate(limits))


def nearest(values: Floats, sums: Floats, known: Floats) -> Floats:
    """Return the counts >= 0 with these sums that are nearest to some values.

    They are max(0, values + A'm) with a number m for every sum, the maximum of a concave function, which Newton's steps climb.
    """

    def at(multipliers: Floats) -> tuple[Floats, float]:
        found = np.maximum(values + sums.T @ multipliers, 0.0)
        return found, float(multipliers @ known - found @ found / 2)

    multipliers = np.zeros(known.size)
    found, height = at(multipliers)
    slight = _SLIGHT * (sums @ sums.T)
    for _ in range(_STEPS):
        gap = known - sums @ found
        if not gap.size or float(np.abs(gap).max()) < _CLOSE:
            break
        held = sums[:, found > 0]
        step = np.linalg.pinv(held @ held.T + slight, hermitian=True) @ gap
        for _ in range(_HALVES):
            new, higher = at(multipliers + step)
            if higher > height:
                break
            step = step / 2
        multipliers, found, height = multipliers + step, new, higher
    return found


def _inverse(sums: Floats) -> Floats:
    """Return the inverse of the products of these sums, of which some may follow from the others."""
    return np.asarray(np.linalg.pinv(sums @ sums.T, hermitian=True), dtype=np.float64)


def spread(variance: float) -> float:
    """Return the root of a variance that rounding may have made negative."""
    return math.sqrt(max(variance, 0.0))
