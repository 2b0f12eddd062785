r"""What a Newton step takes for the second derivatives: the released ones where the records tell of more than noise does (THEORY.md, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels import noisy_gram

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: Directions of which there is less than this part of the best known are unknown; a coefficient is, if this part of it lies in some.
_SINGULAR, _LOST = 1e-10, 0.1
#: An interval's own weight is believed to be what its events say, times the part of all weight that is left of all events, give or take this.
_DOUBT, _LEAST = 0.5, 0.1


@dataclass(frozen=True)
class Curvature:
    """Second derivatives, the variances of the noise of their entries, their inverse, and which coefficients they tell of."""

    information: Matrix
    variance: Matrix
    inverse: Matrix
    told: NDArray[np.bool_]


def curvature(information: Matrix, variance: Matrix, penalty: Row, lift: Matrix) -> Curvature:
    """The inverse over the directions that the records tell of more than noise does.

    Columns that add up to a constant, as all categories of one do, leave a direction that nobody knows. A step along it would be noise alone,
    and would carry the Hessian's noise into every other coefficient.
    """
    weighted = information + np.diag(penalty)
    values, vectors = np.linalg.eigh((weighted + weighted.T) / 2)
    kept = values > max(_SINGULAR * float(values[-1]), noisy_gram.noise_level(variance))
    own = vectors[:, kept]
    told = noisy_gram.shares(vectors[:, ~kept], lift) < _LOST
    told &= noisy_gram.identified(information, variance, lift=lift)
    return Curvature(weighted, variance, np.asarray((own / values[kept]) @ own.T), told)


def curvature_of_intervals(information: Matrix, variance: Matrix, penalty: Row, events: Row, prior: Row) -> Curvature:
    """Slopes first, then intervals, which are eliminated: nobody is in two intervals' corner together, so their own block is diagonal.

    Held against the noise of the whole matrix a late interval with few events would be unknown, and its hazard kept at the life table's, which is that
    of whoever is left and not of a typical person: slopes would be wrong by it. But a single number needs little to be known. It is drawn to what its
    ``events`` say; and ``prior`` is the precision with which the life table's hazard is that of a typical person, worth so much more weight.
    """
    p = penalty.size - events.size
    slopes, cross = information[:p, :p] + np.diag(penalty[:p]), information[:p, p:]
    released, noise = information.diagonal()[p:], variance.diagonal()[p:]
    share = min(max(float(released.sum()) / float(events.sum()), _LEAST), 1.0)
    expected = share * events
    trust = (_DOUBT * expected) ** 2 / ((_DOUBT * expected) ** 2 + noise)
    own = np.maximum(trust * released + (1 - trust) * expected, _LEAST * expected) + prior
    # E (B + N) C^-1 (B + N)' is larger than B C^-1 B' by what the noise N adds.
    left = slopes - (cross / own) @ cross.T + np.diag((variance[:p, p:] / own).sum(axis=1))
    known = curvature(left, variance[:p, :p], np.zeros(p), np.eye(p))
    carried = known.inverse @ cross / own
    inverse = np.block([[known.inverse, -carried], [-carried.T, np.diag(1 / own) + (cross / own).T @ carried]])
    whole = np.block([[left + (cross / own) @ cross.T, cross], [cross.T, np.diag(own)]])
    noises = variance.copy()
    np.fill_diagonal(noises[p:, p:], trust * noise)
    return Curvature(whole, noises, inverse, np.concatenate([known.told, own > 2 * np.sqrt(trust * noise)]))


__all__ = ["Curvature", "curvature", "curvature_of_intervals"]
