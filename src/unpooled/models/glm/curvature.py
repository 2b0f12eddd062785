r"""Curvature of a Newton step: the released second derivatives where the records tell of more than noise does (THEORY.md, section 3)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.inference.sites import SHORT, known_moments, longer_sites, noise_norm
from unpooled.kernels.noisy import KnownDirections
from unpooled.linear.standard import CONSTANT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: An interval's own weight is believed to be what its events say, times the part of all weight that is left of all events, give or take this.
_DOUBT, _LEAST = 0.5, 0.1
#: Of orthonormal directions, what is rounding.
_ROUNDED = 1e-9


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
    information: Matrix,
    variance: Matrix,
    penalty: Row,
    still: Matrix,
    events: Row,
    prior: Row,
    longer: Row | None = None,
) -> Curvature:
    """Return slopes first, then intervals, which are eliminated: nobody is in two intervals' corner together, so their own block is diagonal.

    Held against the noise of the whole matrix a late interval with few events would be unknown, and its hazard kept at the life table's, which is that
    of those who are left and not of a typical person: slopes would be wrong by it. But a single number needs little to be known. It is drawn to what its
    ``events`` say; and ``prior`` is the precision with which the life table's hazard is that of a typical person, worth so much more weight.
    ``longer``: factors of the slopes' coordinates in which they are held against noise.
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
    inner = curvature(left, variance[:p, :p], np.zeros(p), still[:p])
    if longer is not None:
        inner = curvature_in(longer, left, variance[:p, :p], np.zeros(p), still[:p])
    left, told = inner.information, inner.inverse
    carried = told @ cross / own
    inverse = np.block([[told, -carried], [-carried.T, np.diag(1 / own) + (cross / own).T @ carried]])
    whole = np.block([[left + (cross / own) @ cross.T, cross], [cross.T, np.diag(own)]])
    noises = variance.copy()
    np.fill_diagonal(noises[p:, p:], trust * noise)
    # An interval's hazard rests on the slopes as far as its own equation says.
    eliminated = np.vstack([np.eye(p), -(cross / own).T]) @ inner.left
    lost = p + np.flatnonzero(own <= 2 * np.sqrt(trust * noise))
    return Curvature(whole, noises, inverse, inner.unknown, eliminated, lost)


def curvature_of_sites(
    information: Matrix,
    variance: Matrix,
    penalty: Row,
    still: Matrix,
    places: NDArray[np.intp],
    parts: Row,
    noise: float = 0.0,
) -> Curvature:
    """Return slopes first, then the constants of sites, which are eliminated as intervals are: nobody is at two sites, so their own block is diagonal.

    ``places`` are those of the sites' coordinates, ``parts`` the sites' parts of all rows. The last coordinate, the constant of all rows, is the sum of
    the sites'; a step is written as what all sites have in common and what each has more, by their rows. ``noise`` is the deviation of the score's:
    where it moves a site's constant by more than one unit of the linear predictor, the constant is drawn to where it was and has no line, or the noise
    would be carried into the slopes.
    """
    size = penalty.size
    others = np.setdiff1d(np.arange(size - 1), places)
    order = np.concatenate([others, places])
    told, left = known_moments(information, variance, places, parts, (SHORT, CONSTANT), alike=False)
    whole = np.ix_(order, order)
    basis, lengths, _ = np.linalg.svd(still[others], full_matrices=False)
    own = np.maximum(told.diagonal()[places], _LEAST * np.sqrt(left.diagonal()[places]))
    found = curvature_of_intervals(
        told[whole], left[whole], penalty[order], basis[:, lengths > _ROUNDED], own, (noise * SHORT) ** 2 / own
    )
    hidden = np.flatnonzero(noise * SHORT > own)
    # From all coordinates to these, and from these back.
    onto = np.zeros((order.size, size))
    onto[np.arange(order.size), order] = 1.0
    onto[others.size :, -1] = CONSTANT / SHORT
    back = onto.T.copy()
    back[-1] = 0.0
    back[-1, others.size :] = parts * SHORT / CONSTANT
    back[np.ix_(places, np.arange(others.size, order.size))] -= parts
    return Curvature(
        onto.T @ found.information @ onto,
        left,
        back @ found.inverse @ back.T,
        found.unknown,
        back @ found.left,
        np.union1d(order[found.lost], places[hidden]),
    )


def curvature_of_class_sites(
    information: Matrix, variance: Matrix, penalty: Row, still: Matrix, places: NDArray[np.intp], parts: Row, classes: int
) -> Curvature:
    """Return the same of several contrasts of classes, each with a block of coordinates; of two blocks the sites' part is as diagonal as of one."""
    size = penalty.size // classes
    if variance.any():
        information, variance = information.copy(), variance.copy()
        ends = [slice(at * size, (at + 1) * size) for at in range(classes)]
        for at in itertools.product(ends, ends):
            told = known_moments(information[at], variance[at], places, parts, (SHORT, CONSTANT), alike=False)
            information[at], variance[at] = told
    longer = np.tile(longer_sites(size, places, parts), classes)
    return curvature_in(longer, information, variance, penalty, still)


def curvature_in(longer: Row, information: Matrix, variance: Matrix, penalty: Row, still: Matrix) -> Curvature:
    """Return the same, held against noise in coordinates that are by these factors longer."""
    both = np.outer(longer, longer)
    noise = variance * both**2
    level = noise_norm(noise)
    known = KnownDirections.of(information * both, noise, still / longer[:, None], penalty * longer**2, level)
    nothing = np.empty(0, dtype=np.intp)
    return Curvature(known.matrix / both, variance, known.inverse * both, known.unknown, np.diag(longer), nothing)


__all__ = [
    "Curvature",
    "curvature",
    "curvature_in",
    "curvature_of_class_sites",
    "curvature_of_intervals",
    "curvature_of_sites",
]
