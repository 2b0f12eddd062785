"""Fits that are drawn to earlier models: the fit without them and the models share the weight, by what the release says of each (THEORY.md, 1e)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.inference.priors import DrawnTo, Pull, named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.inference.priors import EarlierModel
    from unpooled.models.lasso.standard_fit import OwnMoments, Solve

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: How fast a direction of a party's columns loses weight that varies more than a mean one, for which the other parties' columns may speak.
#: From 1 to 16 the error over declared shapes is the same (THEORY.md, 1e).
_OTHERS = 4.0
#: The least that a combination of models is taken to vary, as a part of the largest.
_LEAST = 1e-9


@dataclass(frozen=True)
class Agreement:
    """Released moments of some columns, which tell how far coefficients x of these agree with the rows: b'x - x'Gx/2, along directions weighed by W."""

    weigh: Matrix
    gram: Matrix
    cross: Vector
    #: G without directions that vary as little as noise, the deviation of noise and chance in a product with the response, and the penalty of a
    #: coefficient of the fit without earlier models.
    raised: Matrix
    noise: float
    penalty: float

    @classmethod
    def of_party(cls, own: OwnMoments, chance: float, many: int, *, alone: bool) -> Agreement:
        """Return what one party's moments say, for the ``chance`` and the columns of the fit (:meth:`OwnMoments.priced`).

        What other parties' columns explain is in b too, and nobody knows their products with these. It lies along directions that vary more
        than a mean one, where columns have something in common: these have less weight, unless the party is ``alone``.
        """
        values, vectors = np.linalg.eigh(own.gram)
        more = 0.0 if alone else np.maximum(values / own.level - 1, 0.0)
        weigh = (vectors / (1 + _OTHERS * np.square(more))) @ vectors.T
        noise = math.hypot(own.cross_noise, chance) / own.level
        cross, penalty = own.priced(many, chance)
        return cls(weigh, own.gram / own.level, cross, own.repaired[0] / own.level, noise, float(penalty[0]))

    def learnt(self, x: Vector) -> float:
        """Return how much noise a fit x has learnt, about: the covariance of x with the noise in the products, along the directions as weighed (Theorem L.11).

        On its columns a LASSO is x = s inv(G) (b - penalty), with s = 1 or how far x was shrunk after that.
        """
        used = np.flatnonzero(x)
        if not used.size:
            return 0.0
        among = np.ix_(used, used)
        told = float(x @ self.cross) - self.penalty * float(np.abs(x).sum())
        shrunk = float(x @ self.raised @ x) / max(told, self.noise * float(np.linalg.norm(x)))
        return shrunk * self.noise**2 * float(np.trace(np.linalg.solve(self.raised[among], self.weigh[among])))


@dataclass(frozen=True)
class Mixture:
    """Coefficients that are a mixture of a fit and of earlier models, the weights of these, and the constant; the fit has what is left of a weight of 1."""

    mixed: Vector
    weights: Vector
    constant: float

    @classmethod
    def of(cls, own: Vector, models: Matrix, heard: Sequence[Agreement], solve: Solve) -> Mixture:
        """Return the mixture whose models have the weights with the least loss that the release shows, of at least 0 and at most 1 in all.

        ``own`` is the fit without models, and ``models`` has a row for each, both in standardised coefficients of the columns that were ``heard``.
        ``solve`` is a fit in the l1 ball of radius 1, of mixtures in the place of columns: one number for each model is all that is fitted.
        """
        each = np.vstack([own, models])
        gram, cross = _said(each, heard, weigh=True)
        cross[0] -= sum(one.learnt(part) for part, one in zip(_apart(own, heard), heard, strict=True))
        values, vectors = np.linalg.eigh(gram)
        gram = (vectors * np.maximum(values, _LEAST * max(float(values[-1]), _LEAST))) @ vectors.T
        weights, left = np.zeros(len(each)), np.arange(len(each))
        while left.size:
            found, _ = solve(gram[np.ix_(left, left)], cross[left], np.zeros(left.size), np.ones(left.size))
            if (found >= 0).all():
                weights[left] = found + 0.0  # no zero has a sign
                break
            left = np.delete(left, int(found.argmin()))
        rest = float(1 - weights[1:].sum())
        weights[0] = (
            rest if rest > _LEAST else 0.0
        )  # the fit without models is shrunk as it should be, and rounding leaves none of it
        mixed = weights @ each
        size, told = _said(mixed[None], heard, weigh=False)
        _, constant = solve(np.maximum(size, _LEAST), told, np.zeros(1), np.ones(1))
        return cls(mixed, weights[1:], constant)


def _said(each: Matrix, heard: Sequence[Agreement], *, weigh: bool) -> tuple[Matrix, Vector]:
    """Return second moments of linear predictors (a row of coefficients each), and their products with the response."""
    gram, cross = np.zeros((len(each), len(each))), np.zeros(len(each))
    for part, one in zip(_apart(each, heard), heard, strict=True):
        along = part @ one.weigh if weigh else part
        both = along @ one.gram @ part.T
        gram += (both + both.T) / 2
        cross += along @ one.cross
    return gram, cross


def _apart(each: Matrix, heard: Sequence[Agreement]) -> list[Matrix]:
    """Return the coefficients of the columns of each that was heard."""
    return np.split(each, np.cumsum([one.cross.size for one in heard])[:-1], axis=-1)


def drawn_by(
    models: Sequence[EarlierModel], mixture: Mixture, coefficients: Mapping[str, float], alone: Mapping[str, float]
) -> DrawnTo:
    """Return the weights of earlier models, and how far they drew each coefficient, by name; ``alone``: those without them."""
    moved = (Pull(name, coefficients.get(name, 0.0), alone.get(name, 0.0)) for name in {**coefficients, **alone})
    return DrawnTo(named(models, mixture.weights), tuple(pull for pull in moved if pull.value != pull.alone))
