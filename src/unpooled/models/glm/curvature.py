r"""Curvature of a Newton step: the released second derivatives where the records tell of more than noise does (THEORY.md, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.sites import SHORT, known_moments, noise_norm
from unpooled.aggregation.standard import CONSTANT
from unpooled.kernels.known_directions import KnownDirections

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: An interval's own weight is believed to be what its events say, times the part of all weight that is left of all events, give or take this.
_DOUBT, _LEAST = 0.5, 0.1


@dataclass(frozen=True)
class Curvature:
    """Second derivatives, the variances of the noise of their entries, their inverse, and what they do not tell of."""

    information: Matrix
    variance: Matrix
    inverse: Matrix
    #: Directions that the noise hides, of what ``left`` maps the fit's coordinates to; and coordinates that nothing is known of.
    unknown: Matrix
    left: Matrix
    lost: NDArray[np.intp]


def curvature(information: Matrix, variance: Matrix, penalty: Row, still: Matrix) -> Curvature:
    """Return the inverse over the directions that the records tell of more than noise does; ``still``: those along which no row varies.

    A step along the others would be noise alone, and would carry the Hessian's noise into every other coefficient.
    """
    known = KnownDirections.of(information, variance, still, penalty)
    size = penalty.size
    nothing = np.empty(0, dtype=np.intp)
    return Curvature(known.matrix, variance, known.inverse, known.unknown, np.eye(size), nothing)


def curvature_of_intervals(
    information: Matrix, variance: Matrix, penalty: Row, still: Matrix, events: Row, prior: Row
) -> Curvature:
    """Return slopes first, then intervals, which are eliminated: nobody is in two intervals' corner together, so their own block is diagonal.

    Held against the noise of the whole matrix a late interval with few events would be unknown, and its hazard kept at the life table's, which is that
    of those who are left and not of a typical person: slopes would be wrong by it. But a single number needs little to be known. It is drawn to what its
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
    known = KnownDirections.of(left, variance[:p, :p], still[:p])
    left, inner = known.matrix, known.inverse
    carried = inner @ cross / own
    inverse = np.block([[inner, -carried], [-carried.T, np.diag(1 / own) + (cross / own).T @ carried]])
    whole = np.block([[left + (cross / own) @ cross.T, cross], [cross.T, np.diag(own)]])
    noises = variance.copy()
    np.fill_diagonal(noises[p:, p:], trust * noise)
    # An interval's hazard rests on the slopes as far as its own equation says.
    eliminated = np.vstack([np.eye(p), -(cross / own).T])
    lost = p + np.flatnonzero(own <= 2 * np.sqrt(trust * noise))
    return Curvature(whole, noises, inverse, known.unknown, eliminated, lost)


def curvature_of_sites(
    information: Matrix, variance: Matrix, penalty: Row, still: Matrix, places: NDArray[np.intp], parts: Row
) -> Curvature:
    """Return the same where sites have constants: with what is known of them beforehand, and held against noise where each is as long as the others.

    ``places`` are those of the sites' coordinates, ``parts`` the sites' parts of all rows.
    """
    if variance.any():
        information, variance = known_moments(information, variance, places, parts, (SHORT, CONSTANT), alike=False)
    longer = np.ones(penalty.size)
    longer[places] = 1 / np.sqrt(parts)
    both = np.outer(longer, longer)
    noise = variance * both**2
    known = KnownDirections.of(
        information * both, noise, still / longer[:, None], penalty * longer**2, noise_norm(noise)
    )
    nothing = np.empty(0, dtype=np.intp)
    return Curvature(known.matrix / both, variance, known.inverse * both, known.unknown, np.diag(longer), nothing)


__all__ = ["Curvature", "curvature", "curvature_of_intervals", "curvature_of_sites"]
