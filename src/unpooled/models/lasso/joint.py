"""LASSO from the joint moments of columns at several parties (:mod:`unpooled.aggregation.columns`): whole persons are protected, and one party has the response."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.columns.design import JointDesign
from unpooled.aggregation.columns.moments import joint_moments
from unpooled.aggregation.columns.releases import plan_of
from unpooled.aggregation.derived import centred
from unpooled.aggregation.joint.shape import GRID
from unpooled.errors import UsageError
from unpooled.kernels.logistic_moments import TwoClasses, logistic_in_ball, logistic_with_penalty
from unpooled.models.lasso.coordinator import ColumnCoefficient, LassoResult, fills
from unpooled.models.lasso.declared import LOGISTIC, Parameters, check_bound, check_form
from unpooled.models.lasso.messages import Term
from unpooled.models.lasso.standard_fit import PENALTY, in_ball, penalised
from unpooled.privacy.bounds import Coding
from unpooled.privacy.plan import check_parameters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.aggregation.moments import Moments
    from unpooled.privacy.plan import Plan, Study
    from unpooled.protocol.step import Conversation

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]


def compile_joint(study: Study) -> Plan:
    """Return the releases of a LASSO study that joins its columns under masks."""
    p = check_parameters(study, Parameters)
    check_bound(p)
    check_form(p)
    if not p.fit_intercept:
        raise UsageError("joint moments always fit a constant: leave fit_intercept out")
    design = JointDesign.of(study, p)
    response = design.layout.response
    if p.loss == LOGISTIC and (response.low, response.high) != (-1.0, 1.0):
        msg = f"a logistic loss is of a response of -1 and 1: declare low = -1, high = 1 for {response.name!r}"
        raise UsageError(msg).at(column=response.name)
    return plan_of(study, design)


def coordinate_joint(plan: Plan[JointDesign]) -> Conversation:
    """Release the joint moments, and fit what they say."""
    moments = yield from joint_moments(plan)
    return result_of(plan.design, plan.study, moments)


def result_of(design: JointDesign, study: Study, moments: Moments) -> LassoResult:
    """Return the fit of released moments, column by column."""
    p = check_parameters(study, Parameters)
    layout = moments.layout
    radius = None if p.radius_in_half_ranges is None else p.radius_in_half_ranges * layout.response.half_width
    found = Correlations.of(moments)
    if p.loss == LOGISTIC:
        clip = design.limits.response / GRID
        own, intercept = found.log_odds(clip, p.radius_in_half_ranges)
    else:
        own, intercept = found.slopes(radius)
    widths = layout.half_widths[: own.size]
    coefficients, terms, at = [], [], 0
    for party, features in zip(design.parties, design.features, strict=True):
        for column, name in enumerate(Coding(features, 1).coded_names):
            value = float(own[at])
            if value:
                coefficients.append(ColumnCoefficient(party, name, value))
                terms.append(Term(party, column, value * float(widths[at])))
            at += 1
    full = fills(float(np.abs(own * widths).sum()), p.radius_in_half_ranges if p.loss == LOGISTIC else radius)
    return LassoResult(tuple(coefficients), intercept, tuple(terms), (), (), full, moments.stored())


@dataclass(frozen=True)
class Correlations:
    """Second moments of released columns about their means, in coordinates in which they have variance 1 or less."""

    moments: Moments
    gram: Matrix
    cross: Vector
    #: The penalty of every standardised coefficient, and the variance of the response.
    penalty: float
    spread: float
    #: Whether noise is less than all that columns can explain of the response.
    tells: bool

    @classmethod
    def of(cls, moments: Moments, part: float = PENALTY) -> Correlations:
        """Return them with eigenvalues not below the norm of the Gram's noise, and the penalty that noise and chance ask for.

        The penalty is a part of what the largest of all products of noise and chance with the response is about. The noise of a product is that
        of the release and that of the Gram, which meets coefficients whose squares add up to the variance of the response at most.
        """
        rows, (matrix, variance), (cross, cross_variance) = moments.rows, moments.xx, moments.xy
        one = matrix[:-1, -1] / matrix[-1, -1]
        raw = centred(moments.known.matrix, rows, intercept=True)
        noise = math.sqrt(float(variance[:-1, :-1].mean())) / rows
        values, vectors = np.linalg.eigh(raw)
        values = np.maximum(values, noise * math.sqrt(2 * len(raw)))
        mean = float(cross[-1] * moments.frame.widths[-1]) / rows
        spread = max(moments.frame.squares[0] / rows - mean**2, 1e-12)
        # The response as the clip left it has this deviation.
        chance = math.sqrt(spread) / math.sqrt(rows)
        energy = len(raw) * float(cross_variance[:-1].mean()) / rows**2
        both = math.sqrt(float(cross_variance[:-1].mean())) / rows, noise * math.sqrt(spread), chance
        penalty = part * math.sqrt(2 * math.log(max(len(raw), 2))) * math.hypot(*both)
        return cls(
            moments, (vectors * values) @ vectors.T, (cross[:-1] - one * cross[-1]) / rows, penalty, spread, energy < spread
        )

    @property
    def _scale(self) -> Vector:
        """Return what one coefficient of coordinates is in coded columns, in units of the response."""
        frame, layout = self.moments.frame, self.moments.layout
        size = self.cross.size
        return np.asarray(frame.response_width * layout.half_widths[:size] / frame.widths[:size])

    def slopes(self, radius: float | None) -> tuple[Vector, float]:
        """Return the slopes and the constant of least squares with a penalty or in a ball, in the data's own units."""
        if not self.tells:
            t = np.zeros(self.cross.size)
        elif radius is None:
            t = penalised(self.gram, self.cross, np.full(self.cross.size, self.penalty), np.ones(self.cross.size))
        else:
            t = in_ball(self.gram, self.cross, self._scale, radius) / self._scale
        frame, layout, size = self.moments.frame, self.moments.layout, self.cross.size
        slopes, _ = frame.of_own_units(np.append(t, 0.0), intercept=True)
        columns, response = self._means
        means = frame.centres[:size] + frame.widths[:size] * columns
        middle = frame.response_centre + frame.response_width * response
        low, high = layout.response.range
        return slopes, min(max(middle, low), high) - float(slopes @ means)

    @property
    def _means(self) -> tuple[Vector, float]:
        """Return the means of columns and response in coordinates, moved to those that were released before as far as they are noise.

        Those that were released before are 0 here, and lie within about one deviation of the true ones (the constant of a row is the inverse of its width).
        """
        (matrix, variance), (cross, noise) = self.moments.xx, self.moments.xy
        unit, size = float(self.moments.frame.widths[-1]) / self.moments.rows, self.cross.size
        columns = matrix[-1, :size] * unit / (1 + variance[-1, :size] * unit**2)
        squared = float(noise[-1]) * unit**2
        return columns, float(cross[-1]) * unit * self.spread / (self.spread + squared)

    def log_odds(self, clip: float, radius: float | None) -> tuple[Vector, float]:
        """Return log odds per unit of every column, and the constant, of the smallest logistic loss of two normal classes.

        A class has two values, so that standardising and clipping leave it a straight line of the class.
        """
        frame, rows, (columns, middle) = self.moments.frame, self.moments.rows, self._means
        low, high = np.clip((np.array([-1.0, 1.0]) - frame.response_centre) / frame.response_width, -clip, clip)
        slope = max(float(high - low) / 2, 1e-3)
        mean = (middle - float(high + low) / 2) / slope
        share = min(max((1 + mean) / 2, 1 / rows), 1 - 1 / rows)
        classes = TwoClasses.of(self.gram, self.cross / slope, share)
        size = self.cross.size
        scale = self.moments.layout.half_widths[:size] / frame.widths[:size]
        if not self.tells:
            w, constant = np.zeros(size), math.log(share / (1 - share))
        elif radius is None:
            # Where nothing is fitted yet, the loss falls by half of what the squared one falls by.
            w, constant = logistic_with_penalty(classes, np.full(size, self.penalty / (2 * slope)))
        else:
            x, constant = logistic_in_ball(classes, scale, radius)
            w = x / scale
        # Standardised columns have these means where the released ones were not exact.
        constant -= float(columns @ w)
        own = w / frame.widths[:size]
        return own, constant - float(own @ frame.centres[:size])
