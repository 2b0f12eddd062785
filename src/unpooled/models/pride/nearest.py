"""Losses that are log likelihoods as they stand: the earlier model of largest evidence, or none (THEORY.md, section 11)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from unpooled.families import Family
from unpooled.kernels.newton import NewtonPath, OffsetLoss
from unpooled.models.pride.drawn import before, loosenings
from unpooled.models.pride.gram import GramNewtonPath, Kernel
from unpooled.models.pride.local import DesignPath

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.models.pride.drawn import Centre
    from unpooled.models.pride.gram import Share
    from unpooled.models.pride.joint import JointFamily
    from unpooled.models.pride.local import DesignProblem, GramProblem

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Tried:
    """A fit about earlier models, or about none: its log weight, and the coefficients that it is about."""

    log_weight: float
    path: GramNewtonPath | DesignPath
    alpha: float
    centre: Centre | None
    #: Of the own columns and of received ones.
    own: Vector
    received: Vector


def nearest_share(
    family: Family | JointFamily,
    problem: GramProblem,
    response: Vector,
    centres: Sequence[Centre],
    *,
    fit_intercept: bool = True,
) -> tuple[float, Share, Matrix]:
    """Return the penalty and the party's share of largest evidence, and the weights of earlier models in it."""
    assert isinstance(family, Family)  # the parameters saw to it
    plain, about = before(centres)
    kernel = Kernel.of(problem.own, problem.heard, fit_intercept=fit_intercept)
    path = GramNewtonPath.of(kernel, response, family, fit_intercept=fit_intercept)
    alpha, none = path.evidence_alpha(), np.empty(0)
    tried = [Tried(plain - path.evidence(alpha) / 2, path, alpha, None, np.zeros(problem.own.shape[1]), none)]
    for centre in centres:
        loss = OffsetLoss(family, (problem.own - kernel.own_means) @ centre.own)
        for scale, loose in loosenings(centre):
            path = GramNewtonPath.of(kernel.loosened(loose), response, loss, fit_intercept=fit_intercept)
            weight = about - path.evidence(1 / scale) / 2
            tried.append(Tried(weight, path, 1 / scale, centre, centre.own, none))
    return _best(tried, kernel.own_means)


def nearest_at_home(
    family: Family | JointFamily,
    problem: DesignProblem,
    response: Vector,
    centres: Sequence[Centre],
    *,
    fit_intercept: bool = True,
) -> tuple[float, Share, Matrix]:
    """Return the penalty and the prediction at the party of largest evidence, and the weights of earlier models in it."""
    assert isinstance(family, Family)  # the parameters saw to it
    design, width = np.hstack([problem.own, problem.received]), problem.own.shape[1]
    means, tried = design.mean(axis=0), []
    for centre, weight in ((None, before(centres)[0]), *((centre, before(centres)[1]) for centre in centres)):
        middle = np.zeros(design.shape[1]) if centre is None else np.concatenate([centre.own, centre.received])
        loss = OffsetLoss(family, (design - means) @ middle)
        inner = NewtonPath.of(design, response, loss, fit_intercept=fit_intercept)
        alpha = inner.evidence_alpha()
        path = DesignPath(inner, design, width)
        tried.append(Tried(weight - inner.evidence(alpha) / 2, path, alpha, centre, middle[:width], middle[width:]))
    return _best(tried, means)


def _best(tried: Sequence[Tried], means: Vector) -> tuple[float, Share, Matrix]:
    """Return the heaviest: the offset has the mean 0, so the decision at the columns' means is that of the fit."""
    best = max(tried, key=lambda one: one.log_weight)
    size = max(one.centre.weights.size for one in tried if one.centre is not None)
    weights = np.zeros(size) if best.centre is None else best.centre.weights
    found = best.path.solve(best.alpha)
    moved = replace(
        found,
        own=found.own + best.own,
        received=found.received + best.received,
        intercept=found.intercept - float(means @ np.concatenate([best.own, best.received])),
    )
    return best.alpha, moved, np.column_stack([weights, np.zeros(size)])
