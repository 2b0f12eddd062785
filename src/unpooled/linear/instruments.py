"""Two-stage least squares from released second moments: tables of estimates, and how strong the instruments are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.inference.estimates import Estimates, chi2_tail, wald
from unpooled.inference.summary import SummaryTable, SummaryTerm
from unpooled.inference.tables import JointTest, Tables
from unpooled.kernels.noisy import KnownDirections, SecondMoments, first_stage, first_stage_covariance, second_stage
from unpooled.linear.inference import LINEAR, submodel
from unpooled.linear.residuals import ASSUMED, Covariance
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from unpooled.kernels.noisy import TwoStage
    from unpooled.linear.moments import Moments

    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]
    Places = NDArray[np.intp]

_TUNED = table("printed")
WEAK, _LEAST = _TUNED.weak, _TUNED.residual_least


@dataclass(frozen=True, repr=False)
class TwoStageSummary(SummaryTable):
    """Estimates of two-stage least squares with standard errors, tests and intervals."""

    terms: tuple[SummaryTerm, ...]
    rows: int
    residual_variance: float
    #: The test that the instruments say nothing of the endogenous column: F, with the noise of the release.
    first_stage: JointTest
    confidence: float
    #: Epsilon and what else the release promises, in words.
    statement: str
    adjust: str | None = None
    not_determined: tuple[str, ...] = ()
    #: What the lines are compared with, in words.
    compared: tuple[str, ...] = ()
    ratio: str = ""
    _saved_types: ClassVar = (JointTest, SummaryTerm)

    @property
    def weak(self) -> bool:
        """Return True if the instruments say too little of the endogenous column: it has no line then."""
        return self.first_stage.statistic < WEAK

    def _foot(self) -> list[str]:
        first = f"first stage of {self.first_stage.name}: F {self.first_stage.statistic:.4g} with {self.first_stage.degrees} degrees of freedom"
        if self.weak:
            first += f". Weak instrument: F is below {WEAK:g}, so {self.first_stage.name} has no line"
        left = "" if self.weak else f", residual variance {self.residual_variance:.5g}"
        return [f"n = {self.rows}{left}", first, *super()._foot()]


@dataclass(frozen=True)
class TwoStageTables(Tables):
    """The tables of two-stage least squares."""

    residual_variance: float = 0.0
    first_stage: JointTest | None = None

    def summary(self, confidence: float = 0.95, adjust: str | None = None, **asked: Any) -> TwoStageSummary:  # noqa: ANN401 - reference, coding
        """Return estimates with standard errors, tests and intervals, and the strength of the instruments."""
        table = super().summary(confidence, adjust, **asked)
        assert self.first_stage is not None
        facts = (table.terms, self.rows, self.residual_variance, self.first_stage, confidence, self.statement, adjust)
        return TwoStageSummary(*facts, not_determined=table.not_determined, compared=table.compared)


def tables_of(moments: Moments, endogenous: str, instruments: Sequence[str]) -> TwoStageTables:
    """Return the tables of a model in which the instruments stand for one endogenous column; all other columns are exogenous."""
    excluded = _checked(moments, endogenous, instruments)
    names = [column.name for column in moments.layout.features]
    inner = submodel(moments, [name for name in names if name not in excluded])
    outer = submodel(moments, [name for name in names if name != endogenous])
    known_e, at_e = _exogenous(moments, [name for name in names if name not in {endogenous, *excluded}])
    at_x, at_w = _places(moments, inner), _places(moments, outer)
    column = int(_of_columns(moments, {endogenous})[-1])
    (gram, variance), (cross, cross_variance) = moments.xx, moments.xy
    released = SecondMoments(gram, cross, variance, cross_variance)
    first = first_stage(released, at_w, outer.known, column)
    least = _LEAST * float(gram[column, column]) / moments.weight
    covariance = first_stage_covariance(released, at_w, outer.known, first, moments.weight, least)
    own = np.flatnonzero(np.isin(at_w, _of_columns(moments, excluded)))
    statistic, degrees = wald(first.coefficients[own], covariance[np.ix_(own, own)])
    test = JointTest(endogenous, statistic / max(degrees, 1), degrees, chi2_tail(statistic, degrees))
    found = second_stage(released, (at_w, outer.known), (at_e, known_e), column, first)
    noise = _residual_variance(moments, released, found.mean)
    unknown = np.zeros((moments.layout.size, known_e.unknown.shape[1]))
    unknown[at_e] = known_e.unknown
    # Without the endogenous column the others would be coefficients of another model.
    hidden = np.eye(len(at_x)) if test.statistic < WEAK else unknown[at_x]
    return TwoStageTables(
        _estimates(inner, found, at_x, noise, hidden),
        inner.layout.terms.with_constants(inner.layout.constants),
        moments.rows,
        LINEAR,
        moments.layout.response.name,
        moments.statement,
        assumed=(_assumed(endogenous, instruments), ASSUMED[Covariance.JOINT]),
        residual_variance=math.nan if test.statistic < WEAK else noise * moments.frame.response_width**2,
        first_stage=test,
    )


def _checked(moments: Moments, endogenous: str, instruments: Sequence[str]) -> frozenset[str]:
    """Return the instruments; refuse what two-stage least squares cannot have."""
    layout = moments.layout
    features = {column.name: column for column in layout.features}
    if isinstance(instruments, str) or not len(instruments):
        raise UsageError("instruments must be a list of columns, at least one")
    asked = [endogenous, *instruments]
    unknown = [name for name in asked if name not in features]
    if unknown or len(set(asked)) < len(asked):
        what = f"{unknown[0]!r} is no column of the fit" if unknown else "a column is there twice"
        msg = f"endogenous must be one column of the fit, and instruments others ({listed(list(features))}): {what}"
        raise UsageError(msg)
    levels = features[endogenous].categories
    if levels is not None and len(levels) > 2:  # noqa: PLR2004 - a column of two levels is one number
        msg = f"endogenous must be a number or a column of two levels: {endogenous!r} has {len(levels)} levels, each of which needs a first stage"
        raise UsageError(msg)
    if moments.narrowed:
        from unpooled.linear.moments import NARROWED

        raise UsageError(NARROWED)
    if moments.frame.refined:
        raise UsageError(
            "these moments are of residuals about least squares, cut off there, and tell nothing of instruments: fit with method='moments'"
        )
    if not layout.intercept or layout.weighting is not None or layout.formula:
        raise UsageError("two-stage least squares is for models with an intercept, without weights and without a formula")
    return frozenset(map(str, instruments))


def _exogenous(moments: Moments, names: Sequence[str]) -> tuple[KnownDirections, Places]:
    """Return the known directions of the exogenous columns and the constant, and their places."""
    if names:
        part = submodel(moments, names)
        return part.known, _places(moments, part)
    last = moments.layout.size - 1
    (gram, variance), at = moments.xx, np.ix_([last], [last])
    return KnownDirections.of(gram[at], variance[at], np.empty((1, 0))), np.array([last], dtype=np.intp)


def _places(whole: Moments, part: Moments) -> Places:
    """Return the places of a submodel's coordinates among those of the whole model."""
    return np.append(_of_columns(whole, {column.name for column in part.layout.features}), whole.layout.size - 1)


def _of_columns(moments: Moments, names: Collection[str]) -> Places:
    """Return the places of the coordinates of these columns."""
    layout = moments.layout
    own = [k for k, at in enumerate(layout.coding.attribute) if layout.features[at].name in names]
    return np.array(own, dtype=np.intp)


def _residual_variance(moments: Moments, released: SecondMoments, b: Row) -> float:
    """Return the residual variance in coordinates: the mean square of y - x.b."""
    whole = moments.frame.squares[0]
    left = whole - 2 * b @ released.cross + b @ released.gram @ b
    return max(float(left), _LEAST * whole) / moments.weight


def _estimates(inner: Moments, found: TwoStage, at_x: Places, noise: float, unknown: Matrix) -> Estimates:
    """Return the coefficients in the data's own units."""
    layout, frame = inner.layout, inner.frame
    back = frame.back(intercept=True)
    own = back @ found.mean[at_x]
    own[-1] += frame.response_centre
    alone = noise * back @ found.sampling[np.ix_(at_x, at_x)] @ back.T
    whole = alone + back @ found.met[np.ix_(at_x, at_x)] @ back.T
    names = (*layout.names, *layout.constants)
    return Estimates.of(
        names, own, whole, alone, back, unknown, layout.still, [name not in layout.constants for name in names]
    )


def _assumed(endogenous: str, instruments: Sequence[str]) -> str:
    """Return what two-stage least squares takes for granted, in words."""
    return f"instruments of {endogenous}: {listed(list(instruments))}; valid only if they move the response through {endogenous} alone"
