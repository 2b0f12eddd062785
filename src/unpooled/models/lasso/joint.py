"""LASSO from joint moments, where whole persons are protected; and which form a study takes, decided before data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError
from unpooled.inference.priors import assumed, rows_of
from unpooled.kernels.l1_ball import TwoClasses, logistic_in_ball, logistic_with_penalty
from unpooled.linear.inference import centred
from unpooled.models.lasso.declared import LOGISTIC, Form, Parameters, check_bound, check_form, check_prior
from unpooled.models.lasso.frank_wolfe_fit import ColumnCoefficient, LassoResult, fills
from unpooled.models.lasso.frank_wolfe_fit import coordinate as coordinate_rounds
from unpooled.models.lasso.frank_wolfe_rows import Term
from unpooled.models.lasso.frank_wolfe_rows import compile_plan as compile_rounds
from unpooled.models.lasso.moments_fit import PENALTY, Agreement, Mixture, coordinate_standard, drawn_by, in_ball, penalised
from unpooled.models.lasso.moments_rows import StandardDesign, compile_standard
from unpooled.privacy.bounds import Coding
from unpooled.privacy.declared import PROOF
from unpooled.privacy.plan import check_parameters
from unpooled.products.design import JointDesign
from unpooled.products.moments import joint_moments
from unpooled.products.plan import plan_of
from unpooled.products.sums import GRID

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.linear.moments import Moments
    from unpooled.models.lasso.moments_fit import Solve
    from unpooled.privacy.plan import Plan, Study
    from unpooled.protocol.registry import Conversation

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]


# --- Joint moments ---------------------------------------------------------------------------------------------------------
# LASSO from the joint moments of columns at several parties (:mod:`unpooled.products`): whole persons are protected, and one party has the response.


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
    check_prior(p, _names(design))
    return plan_of(study, design, assumed(study, p.prior))


def _names(design: JointDesign) -> tuple[str, ...]:
    """Return the names of the coded columns of all parties."""
    return tuple(name for features in design.features for name in Coding(features, 1).coded_names)


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
    clip = design.limits.response / GRID if p.loss == LOGISTIC else None
    own, intercept = found.slopes(radius) if clip is None else found.log_odds(clip, p.radius_in_half_ranges)
    drawn = None
    if p.prior:
        names, alone = _names(design), own
        own, mixture = found.drawn(alone, rows_of(p.prior, names, intercept=False), clip)
        intercept = mixture.constant
        after, before = (dict(zip(names, slopes.tolist(), strict=True)) for slopes in (own, alone))
        drawn = drawn_by(p.prior, mixture, after, before)
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
    return LassoResult(tuple(coefficients), intercept, tuple(terms), (), (), full, moments.stored(), drawn)


@dataclass(frozen=True)
class Correlations:
    """Second moments of released columns about their means, in coordinates in which they have variance 1 or less."""

    moments: Moments
    gram: Matrix
    cross: Vector
    #: The deviation of noise and chance in a product with the response, the penalty of every standardised coefficient, and the variance of the response.
    noise: float
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
        both = math.hypot(math.sqrt(float(cross_variance[:-1].mean())) / rows, noise * math.sqrt(spread), chance)
        penalty = part * math.sqrt(2 * math.log(max(len(raw), 2))) * both
        gram, products = (vectors * values) @ vectors.T, (cross[:-1] - one * cross[-1]) / rows
        return cls(moments, gram, products, both, penalty, spread, energy < spread)

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
        slopes, _ = self.moments.frame.of_own_units(np.append(t, 0.0), intercept=True)
        return slopes, self._constant(slopes)

    def _constant(self, slopes: Vector) -> float:
        """Return the constant that goes with slopes in the data's own units."""
        frame, layout, size = self.moments.frame, self.moments.layout, self.cross.size
        columns, response = self._means
        means = frame.centres[:size] + frame.widths[:size] * columns
        middle = frame.response_centre + frame.response_width * response
        low, high = layout.response.range
        return min(max(middle, low), high) - float(slopes @ means)

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
        frame, size = self.moments.frame, self.cross.size
        slope, share = self._classes(clip)
        classes = TwoClasses.of(self.gram, self.cross / slope, share)
        scale = self.moments.layout.half_widths[:size] / frame.widths[:size]
        if not self.tells:
            w, constant = np.zeros(size), math.log(share / (1 - share))
        elif radius is None:
            # Where nothing is fitted yet, the loss falls by half of what the squared one falls by.
            w, constant = logistic_with_penalty(classes, np.full(size, self.penalty / (2 * slope)))
        else:
            x, constant = logistic_in_ball(classes, scale, radius)
            w = x / scale
        own = w / frame.widths[:size]
        return own, self._moved(constant, w)

    def _classes(self, clip: float) -> tuple[float, float]:
        """Return the slope of the clipped, standardised response along the class, and the share of the second class."""
        frame, rows, (_, middle) = self.moments.frame, self.moments.rows, self._means
        low, high = np.clip((np.array([-1.0, 1.0]) - frame.response_centre) / frame.response_width, -clip, clip)
        slope = max(float(high - low) / 2, 1e-3)
        mean = (middle - float(high + low) / 2) / slope
        return slope, min(max((1 + mean) / 2, 1 / rows), 1 - 1 / rows)

    def _moved(self, constant: float, w: Vector) -> float:
        """Return the constant of standardised log odds for columns in the data's own units."""
        frame, size = self.moments.frame, self.cross.size
        # Standardised columns have these means where the released ones were not exact.
        constant -= float(self._means[0] @ w)
        return constant - float(w / frame.widths[:size] @ frame.centres[:size])

    def drawn(self, alone: Vector, models: Matrix, clip: float | None) -> tuple[Vector, Mixture]:
        """Return the slopes of the mixture of a fit with earlier models (a row each), all in the data's own units, and the mixture with their constant.

        ``clip`` is that of the response of two classes, whose slopes are log odds.
        """
        frame = self.moments.frame
        unit = (1.0 if clip is not None else frame.response_width) / frame.widths[: self.cross.size]
        if clip is None:
            solve: Solve = lambda gram, cross, _, scale: (in_ball(gram, cross, scale, 1.0), 0.0)  # noqa: E731 - as the other one
        else:
            slope, share = self._classes(clip)
            solve = lambda gram, cross, _, scale: logistic_in_ball(TwoClasses.of(gram, cross / slope, share), scale, 1.0)  # noqa: E731
        agreement = Agreement(np.eye(alone.size), self.gram, self.cross, self.gram, self.noise, self.penalty)
        mixture = Mixture.of(alone / unit, models / unit, [agreement], solve)
        own = mixture.mixed * unit
        return own, replace(
            mixture, constant=self._constant(own) if clip is None else self._moved(mixture.constant, mixture.mixed)
        )


# --- Forms -----------------------------------------------------------------------------------------------------------------
# Which form a LASSO study takes, decided before data: standardised moments, the paper's rounds, joint moments, or the mean alone.


#: Parameters that only the rounds have: a study that sets one of them means the rounds.
OF_ROUNDS = ("coupling", "rounds", "sampled", "clip", "shares", "refit", "response_public", "sketch_rows")


def form_of(study: Study) -> Form:
    """Return the form of a study: what it asks for, or what suits it (without noise, the rounds are exact in the ball that is named)."""
    p = check_parameters(study, Parameters)
    if p.method not in set(Form):
        msg = f"method is one of {', '.join(Form)}, not {p.method!r}"
        raise UsageError(msg)
    if p.loss == LOGISTIC and p.method == Form.ROUNDS:
        msg = f"a logistic loss is fitted from moments: leave method = {Form.ROUNDS.value!r} out"
        raise UsageError(msg)
    form = Form(p.method)
    if form is Form.AUTO and study.helpers:
        form = Form.JOINT
    if form is Form.AUTO and p.loss == LOGISTIC:
        form = Form.MOMENTS
    told = [name for name in OF_ROUNDS if getattr(p, name) != getattr(_DEFAULTS, name)]
    if form in {Form.MOMENTS, Form.JOINT} and told:
        msg = f"{told[0]} belongs to method = {Form.ROUNDS.value!r}: leave it out, or ask for that form"
        raise UsageError(msg)
    if form is not Form.JOINT and (study.helpers or p.tolerate or p.check != PROOF):
        msg = f"helpers, tolerate and check belong to method = {Form.JOINT.value!r}: leave them out, or ask for that form"
        raise UsageError(msg)
    if form is not Form.AUTO:
        return form
    exact = math.isinf(study.epsilon) and p.radius_in_half_ranges is not None
    return Form.ROUNDS if told or exact else Form.MOMENTS


_DEFAULTS = Parameters()


def compile_plan(study: Study) -> Plan:
    """Return the releases of a LASSO study."""
    form = form_of(study)
    if form is Form.JOINT:
        return compile_joint(study)
    for card in study.parties:
        if not card.columns:
            msg = f"party {card.name!r} declares no column to choose from: leave it out of the study"
            raise UsageError(msg)
    return compile_standard(study) if form is Form.MOMENTS else compile_rounds(study)


def coordinate(plan: Plan) -> Conversation:
    """The conversation of the plan's form."""
    if isinstance(plan.design, JointDesign):
        return (yield from coordinate_joint(plan))
    if isinstance(plan.design, StandardDesign):
        return (yield from coordinate_standard(plan))
    return (yield from coordinate_rounds(plan))


__all__ = ["Form", "compile_plan", "coordinate", "form_of"]
