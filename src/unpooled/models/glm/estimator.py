"""``PrivateGLM``: a thin scikit-learn estimator over the study of generalised linear models, run in process; and its answers for new rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import DataError, UsageError
from unpooled.estimation.base import ALL, Declared, StudyEstimator
from unpooled.estimation.calls import (
    OfClasses,
    OfEveryFit,
    OfNumbers,
    OverSites,
    PerhapsOverColumns,
    Summing,
    Weighted,
    takes,
)
from unpooled.estimation.columns import UnderMasks, joint_tables
from unpooled.estimation.fitted import Tabled
from unpooled.estimation.parameters import (
    counts_of,
    row_cards,
    site_tables,
)
from unpooled.estimation.priors import SAVED, DrawnFit, Earlier, as_numbers
from unpooled.estimation.split_fit import SplitFit, places_of
from unpooled.estimation.tables import RESPONSE, part, weights_of
from unpooled.families import Response
from unpooled.inference.estimates import Estimates
from unpooled.inference.life_table import KaplanMeier, LifeTable
from unpooled.kernels.score_posterior import mean_log_odds
from unpooled.models.glm import MODEL
from unpooled.models.glm.columns import PullDesign
from unpooled.models.glm.declared import MOST_PASSES, GlmMethod, Parameters, SplitParameters, check_split_family
from unpooled.models.glm.families import (
    MULTINOMIAL,
    POISSON,
    POSITIVE,
    SURVIVAL,
    TWO_CLASSES,
    check_family,
    public_estimator,
)
from unpooled.models.glm.result import GlmCoefficient, GlmResult, tables
from unpooled.privacy.bounds import Bounds, Column
from unpooled.privacy.classes import Classes
from unpooled.privacy.declared import says
from unpooled.privacy.plan import AGGREGATION, BOUNDS, CLASSES, Plan, Study
from unpooled.privacy.table import Table, as_column, gaps_of
from unpooled.totals.weights import WEIGHT, check_weights_bounds, given_weights
from unpooled.totals.whole_rows import WholeRowsModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray
    from sklearn.utils import Tags

    from unpooled.estimation.columns import On
    from unpooled.inference.tables import Tables
    from unpooled.models.glm.plan import GlmDesign
    from unpooled.privacy.plan import Plan

    Given = tuple[ArrayLike | None, tuple[float, float] | None]
    Vector = NDArray[np.float64]


# --- Exposures and offsets -------------------------------------------------------------------------------------------------
# Exposures and offsets as a caller of the estimator gives them: a number for each row, inside a declared range.

#: Columns of the in-process parties that no feature can be called like.
EXPOSURE, OFFSET = "(exposure)", "(offset)"


def shifts(rows: int, exposure: Given, offset: Given) -> dict[str, NDArray[np.float64]]:
    """Exposures and offsets as columns, where they are declared."""
    found = {}
    for name, (values, bounds) in ((EXPOSURE, exposure), (OFFSET, offset)):
        word = name.strip("()")
        if (values is None) != (bounds is None):
            msg = f"{word} and {word}_bounds go together: a number for each row, and the declared range of such numbers"
            raise UsageError(msg)
        if values is not None:
            column = np.asarray(values, dtype=np.float64)
            if column.shape != (rows,) or not np.isfinite(column).all():
                msg = f"{word} must have a finite number for each of the {rows} rows"
                raise DataError(msg)
            found[name] = column
    return found


# --- Answers of survival models --------------------------------------------------------------------------------------------
# Answers of a fitted survival model: hazards, survival curves, and the concordance of its ranking with times.

#: The column of the in-process parties that says whether there was an event; no feature can be called so.
EVENT = "(event)"
#: Pairs that are compared at a time.
_PAIRS = 1 << 22


def _has_hazards(estimator: Followed) -> bool:
    return estimator.family == SURVIVAL


class Followed:
    """The part of ``PrivateGLM`` for times to an event."""

    family: str

    def _take_hazards(self, result: GlmResult, table: LifeTable) -> None:
        """Set the hazards of a result as attributes."""
        self.hazard_ratios_ = np.exp([c.value for c in result.coefficients])
        self.baseline_hazard_ = np.exp(np.array(result.log_hazards))
        self.intervals_ = np.array([0.0, *table.edges])
        self.kaplan_meier_ = table.kaplan_meier(result.confidence)

    @available_if(_has_hazards)  # type: ignore[untyped-decorator]
    def cumulative_hazard(self, times: ArrayLike) -> Vector:
        """Return the hazards of a row of zeros, added up to these times; none is after the declared end of follow-up."""
        check_is_fitted(self)
        asked = np.asarray(times, dtype=np.float64)
        if not ((asked >= 0) & (asked <= self.intervals_[-1])).all():
            msg = f"times lie between 0 and {self.intervals_[-1]:g}, the declared end of follow-up"
            raise DataError(msg)
        within = np.clip(asked[..., None] - self.intervals_[:-1], 0.0, np.diff(self.intervals_))
        return np.asarray(within @ self.baseline_hazard_)

    @available_if(_has_hazards)  # type: ignore[untyped-decorator]
    def predict_survival(self, X: ArrayLike, times: ArrayLike) -> Vector:
        """Return the probability of no event until each of these times: a row for every row of ``X``, a column for every time."""
        risks = np.exp(self.predict(X))  # type: ignore[attr-defined]
        return np.asarray(
            np.exp(-risks[:, None] * self.cumulative_hazard(np.atleast_1d(np.asarray(times, dtype=np.float64))))
        )


def times_and_events(y: Any, event: Any) -> tuple[Vector, Vector]:  # noqa: ANN401 - array-likes
    """Times and events (0 or 1, nan where they are missing) as callers give them: two arrays, or one whose records are (event, time)."""
    given = np.asarray(y)
    if given.dtype.names is not None:
        if len(given.dtype.names) != 2 or event is not None:  # noqa: PLR2004
            raise UsageError("a structured y has two fields, the event and then the time, and goes without event=")
        first, second = given.dtype.names
        given, event = given[second], given[first]
    if event is None:
        raise UsageError(
            "survival needs to know who had the event: event= with one truth value for each time, or a structured y"
        )
    happened = np.asarray(event)
    given, happened = (
        as_column(name, one) if one.dtype.kind == "O" and one.ndim == 1 else one
        for name, one in (("y", given), ("event", happened))
    )
    if happened.shape != given.shape or happened.ndim != 1:
        raise DataError("y and event have one time and one truth value for every row")
    if happened.dtype.kind not in "biuf" or not (np.isin(happened, (0, 1)) | gaps_of(happened)).all():
        raise DataError("event holds True and False, or 1 and 0, and nothing else")
    times = given.astype(np.float64)
    if np.isinf(times).any() or (times < 0).any():
        raise DataError("times are finite numbers from 0 on")
    return times, happened.astype(np.float64)


def concordance(risk: Vector, time: Vector, happened: Vector) -> float:
    """Return the concordance: of the pairs where one had the event and the other was followed longer, the share where that one's risk was higher.

    >>> round(concordance(np.array([2.0, 1.0, 0.0]), np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 0.0])), 2)
    1.0
    """
    right = pairs = 0.0
    events = np.flatnonzero(happened > 0)
    for some in np.array_split(events, max(1, events.size * time.size // _PAIRS)):
        later = time[None, :] > time[some, None]
        gap = risk[some, None] - risk[None, :]
        right += float(((gap > 0) & later).sum()) + 0.5 * float(((gap == 0) & later).sum())
        pairs += float(later.sum())
    return right / pairs if pairs else 0.5


# --- Predictions -----------------------------------------------------------------------------------------------------------
# Answers of a fitted generalised linear model: linear predictors, means, classes, probabilities, scores, and its summary.


def _has_classes(estimator: _GlmPredictions) -> bool:
    return estimator.family in {*TWO_CLASSES, MULTINOMIAL}


class _GlmPredictions(Tabled, Followed, StudyEstimator):
    """The part of ``PrivateGLM`` that needs nothing but its result."""

    family: str
    exposure_bounds: tuple[float, float] | None
    offset_bounds: tuple[float, float] | None
    _result: GlmResult

    @property
    def shifted_by(self) -> dict[str, str]:
        """Return the columns of the study that predictions need as ``exposure`` and ``offset``, by these words."""
        check_is_fitted(self)
        responses = self.plan_.design.responses
        given = self.plan_.design.parameters.offset  # that of a formula follows from other columns
        found = (("exposure", responses.exposure), ("offset", responses.offset if given else None))
        return {word: column.name for word, column in found if column is not None}

    @property
    def _fitted_family(self) -> Response:
        """Return the family with the range that was declared of the response."""
        check_is_fitted(self)
        family: Response = self.plan_.design.family
        return family

    def linear_predictor(
        self,
        X: ArrayLike,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        *,
        sites: ArrayLike | None = None,
    ) -> Vector:
        """``X @ coef_ + intercept_`` (multinomial: of every class), with the logarithm of the exposure and the offset where there are any.

        Where sites have constants, ``sites`` says at which site each row is; without it the rows are at the mean of all sites.
        With method "direction" the log odds of the mean probability over several lengths of the slopes, of which ``coef_`` is the mean.
        """
        u = self._lengthened(X) if self._by_direction else self._predictors(X, sites)
        made = self._made
        if made is not None and made.derived.offset_column is not None:
            u = u + made.derived.offset(self._new(X))
        if self.family == SURVIVAL:
            return u
        u = mean_log_odds(u, self._lines)
        shifts = self._shifts(u.shape[0], exposure, offset)
        if EXPOSURE in shifts:
            if not (shifts[EXPOSURE] > 0).all():
                raise DataError("exposure must be positive")
            u = u + np.log(shifts[EXPOSURE])
        return np.asarray(u + shifts[OFFSET]) if OFFSET in shifts else u

    def _predictors(self, X: ArrayLike, sites: ArrayLike | None) -> Vector:
        check_is_fitted(self)
        rows = self._natural(X, sites)
        if np.ndim(self.coef_) == 1:
            return np.asarray(rows @ self.coef_ + np.ravel(self.intercept_)[0])
        return np.asarray(rows @ self.coef_.T + self.intercept_)

    def _shifts(self, rows: int, exposure: ArrayLike | None, offset: ArrayLike | None) -> dict[str, Vector]:
        return shifts(rows, (exposure, self.exposure_bounds), (offset, self.offset_bounds))

    @property
    def _by_direction(self) -> bool:
        """Return True if rows count by their direction alone: a study asked for one length of all of them."""
        check_is_fitted(self)
        directions = self.plan_.design.directions
        return directions is not None and directions.unit

    def _lengthened(self, X: ArrayLike) -> Vector:
        directions, new = self.plan_.design.directions, self._new(X)
        rows = directions.lengthened([new[name] for name in directions.layout.coding.names])
        return np.asarray(rows @ self.coef_ + self.intercept_)

    def predict(
        self,
        X: ArrayLike,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        *,
        sites: ArrayLike | None = None,
    ) -> NDArray[Any]:
        """Return the expected response; of classes the most likely one; of times to an event the log hazard ratio to a row of zeros."""
        u = self.linear_predictor(X, exposure, offset, sites=sites)
        if self.family == SURVIVAL:
            return u
        if _has_classes(self) and np.isnan(u).any():
            raise DataError(
                "a row lacks a value that the model needs and has no most likely class: predict_proba gives nan for it"
            )
        if self.family == MULTINOMIAL:
            return np.asarray(self.classes_[u.argmax(axis=1)])
        if self.family in TWO_CLASSES:
            return np.asarray(self.classes_[(u > 0).astype(int)])
        return self._fitted_family.mean(u)

    @available_if(_has_classes)  # type: ignore[untyped-decorator]
    def decision_function(
        self,
        X: ArrayLike,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        *,
        sites: ArrayLike | None = None,
    ) -> Vector:
        """Return the linear predictor; positive means ``classes_[1]`` (of more than two classes: one per class, of which the largest wins)."""
        u = self.linear_predictor(X, exposure, offset, sites=sites)
        return u[:, 1] - u[:, 0] if u.ndim > 1 and u.shape[1] == 2 else u  # noqa: PLR2004 - as scikit-learn has it

    @available_if(_has_classes)  # type: ignore[untyped-decorator]
    def predict_proba(
        self,
        X: ArrayLike,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        *,
        sites: ArrayLike | None = None,
    ) -> Vector:
        """Return probabilities of the classes, in the order of ``classes_``."""
        positive = self._fitted_family.mean(self.linear_predictor(X, exposure, offset, sites=sites))
        if self.family == MULTINOMIAL:
            return positive
        return np.column_stack([1 - positive, positive])

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        event: ArrayLike | None = None,
    ) -> float:
        """Return the share of right classes, the part of the deviance that the fit explains (D^2), or of times to an event the concordance."""
        if self.family == SURVIVAL:
            return concordance(self.predict(X), *times_and_events(y, event))
        predicted, told = self.predict(X, exposure, offset), np.asarray(y)
        if _has_classes(self):
            return float(np.mean(predicted == told))
        family, mean = self._fitted_family, np.full(told.size, float(told.mean()))
        return 1 - float(family.deviance(told, predicted).sum() / family.deviance(told, mean).sum())

    def _tables(self) -> Tables:
        check_is_fitted(self)
        found = tables(self.plan_, self._result)
        if found is None:
            msg = (
                f"method {self.method_!r} released no second moments, so there are no standard errors: with method='newton' there are "
                "(and the noise of each coefficient grows)"
            )
            raise UsageError(msg)
        return found

    def to_sklearn(self) -> Any:  # noqa: ANN401 - scikit-learn ships no types
        """Return scikit-learn's ``LogisticRegression`` with these coefficients (logistic and multinomial family), predicting the same.

        Of method "direction" it is a ``VotingClassifier`` of one for each length of the slopes.
        """
        if not _has_classes(self) or self._shifted or self._by_direction:
            raise UsageError(
                "to_sklearn is for the logistic family (and the multinomial), without exposure and offset, of rows as they are: use coef_ and intercept_"
            )
        return super().to_sklearn()

    @property
    def _shifted(self) -> tuple[str, ...]:
        given = ((EXPOSURE, self.exposure_bounds), (OFFSET, self.offset_bounds))
        return tuple(name for name, bounds in given if bounds is not None)


# --- Estimator -------------------------------------------------------------------------------------------------------------
# ``PrivateGLM``: a thin scikit-learn estimator over the study of generalised linear models, run in process.


class Shifted(Weighted):
    """What a call declares of exposures and offsets."""

    exposure_bounds: Annotated[
        tuple[float, float] | None,
        says("Declared range, above 0, of ``exposure`` in ``fit``, to which the mean is in proportion."),
    ] = None
    offset_bounds: Annotated[
        tuple[float, float] | None,
        says("Declared range of ``offset`` in ``fit``, which is added to the linear predictor."),
    ] = None


#: Parameters that are of rows at several parties, with the values that leave them out.
_OF_ROWS: dict[str, Any] = {
    "rows_per_household": 1,
    "aggregation": "distributed",
    "nodes": (),
    "dispersion": "estimate",
    "covariance": "auto",
    "ridge": 0.0,
    "fit_intercept": True,
    "method": "auto",
    "max_passes": MOST_PASSES,
    "expected_missing": 0.0,
    "site_effects": "pooled",
    "prior": None,
    "y_bounds": None,
    "exposure_bounds": None,
    "offset_bounds": None,
    "weights_bounds": None,
}
#: Those of them that families of columns at two parties have too, and what a fit gives them for each row in addition to the response.
_TOO: dict[str, frozenset[str]] = {
    POISSON: frozenset({"y_bounds", "exposure_bounds", "offset_bounds"}),
    SURVIVAL: frozenset({"y_bounds"}),
}
_BESIDE = {POISSON: ("exposure", "offset"), SURVIVAL: ("event",)}


@takes(
    OfEveryFit,
    OfNumbers,
    OfClasses,
    OverSites,
    Summing,
    Parameters,
    Shifted,
    UnderMasks,
    PerhapsOverColumns,
    DrawnFit,
    first="family",
    never={"calibration": ("published",)},
)
class PrivateGLM(SplitFit, Earlier, _GlmPredictions):
    """A generalised linear model: logistic, multinomial, Poisson, gamma, negative binomial or survival regression by private rounds.

    Rows are split, by ``sites``; or columns are, by ``parties``: then the family is the logistic one, Poisson's or that of survival, at two parties of
    which one holds the response, and everybody's odds, rate or hazard ratios come from products under masks that an outside helper makes possible
    (``docs/joint.md``).

    Attributes
    ----------
    coef_ : array
        Coefficients in the data's own units, for predictions: shrunk by what is known of their noise. Of the multinomial family a row for each
        class; over the classes every column adds up to 0.
    intercept_ : float or array
        The constant, or one for each class.
    classes_ : array
        The labels of the logistic and the multinomial family.
    hazard_ratios_ : array
        Of the survival family: ``exp(coef_)``.
    baseline_hazard_, kaplan_meier_ : array, KaplanMeier
        Of the survival family: the hazard of a row of zeros in every interval, and the curve with its band.
    dispersion_ : float
        The dispersion of counts and of the gamma family, declared or estimated; else 1.
    method_ : str
        How the budget was spent.
    drawn_ : DrawnTo
        The weight of each earlier model, and how far they drew each term; absent without ``prior``.
    statement_, plan_, ledger_, communication_
        What is promised and what is not; what was released, with which noise; what was debited; bytes sent and received.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import PrivateGLM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (6000, 2))
    >>> y = rng.poisson(np.exp(0.5 + X @ [1.0, -0.5]))
    >>> sites = rng.choice(["oslo", "porto", "riga"], 6000)
    >>> model = PrivateGLM("poisson", epsilon=2.0, bounds=(-1, 1), y_bounds=(0, 20), random_state=0).fit(X, y, sites=sites)
    >>> bool((abs(model.coef_ - [1.0, -0.5]) < 0.2).all())
    True
    >>> model.method_
    'newton'

    """

    _model = MODEL
    _of_rows: ClassVar = _OF_ROWS
    _of_columns: ClassVar = SplitParameters
    _saved_types: ClassVar = (
        *StudyEstimator._saved_types,  # noqa: SLF001 - its base
        *SAVED,
        GlmResult,
        GlmCoefficient,
        WholeRowsModel,
        Estimates,
        KaplanMeier,
        LifeTable,
    )

    def _publicly(self) -> Any:  # noqa: ANN401 - scikit-learn's own
        """Return the estimator that makes an earlier model of public rows: this family without privacy."""
        return public_estimator(self.family, shifted=bool(self._shifted))

    # --- before the data -------------------------------------------------------------------------------------------------

    def plan(self, n_samples: int, n_features: int, sites: Mapping[str, int] | None = None) -> Plan:
        """Return the plan of a fit to data of this shape, without data; ``sites`` gives the rows of each of several."""
        return self._planned(sites or {ALL: n_samples}, n_features)

    def _declared(self, names: Sequence[str], table: Table | None = None, y: NDArray[Any] | None = None) -> Declared:
        check_family(self.family)
        if self.parties is not None:
            check_split_family(self.family)
        declared = super()._declared(names, table)
        if self._classifies:
            if y is not None:
                y = y[~gaps_of(y)]
                check_classification_targets(y)
            classes = Classes.given(
                self._classes_of_response(self.classes), y, warn=self._warns, several=self.family == MULTINOMIAL
            )
            more = (CLASSES,) if classes.derived else ()
            response = Column(RESPONSE, categories=classes.texts, missing=self._gap_in_response)
            return replace(declared, classes=classes, response=response, derived=(*declared.derived, *more))
        given = self._range_of_response(self.y_bounds)
        if given is None and y is None:
            raise UsageError("a plan needs y_bounds: pass y_bounds=(low, high)")
        read = self.bounds is None or given is None
        return replace(declared, response=self._range(y), derived=(BOUNDS,) if read else ())

    @property
    def _classifies(self) -> bool:
        return any(self.family == name for name in (*TWO_CLASSES, MULTINOMIAL))  # before it is known to be a word

    def _range(self, y: NDArray[Any] | None) -> Column:
        """Return the declared range of the response; one that is read off the data begins where the family's does."""
        given = self._range_of_response(self.y_bounds)
        if given is None and y is not None:
            y = y[~gaps_of(y)]
            y = y if y.size else np.ones(1)  # all are missing
            if not np.isfinite(y).all() or y.min() < 0 or (self.family in POSITIVE and y.min() <= 0):
                msg = f"Some value(s) of y are out of the valid range of the {self.family} family"
                raise DataError(msg)
            low = float(y.min()) if self.family in POSITIVE else 0.0
            given = (low, max(float(y.max()), low + 1.0))
            Bounds.given(None, Table({RESPONSE: y}), warn=self._warns and self.bounds is not None)
        return self._known(replace(Bounds.given(given, None), missing=self._gap_in_response).columns([RESPONSE])[0])

    def _study(self, rows: Mapping[str, Any], declared: Declared) -> Study:
        assert declared.response is not None
        if self.parties is not None:
            return self._columns_study(rows[ALL], declared)
        extra = [*self._beside_response.values()]
        extra += check_weights_bounds(self.weights_bounds)
        columns = (*declared.columns, *extra, declared.response)
        norm = self.bounds.norm if isinstance(self.bounds, Bounds) and self.method == GlmMethod.MOMENTS else None
        parameters = self._says(
            Parameters,
            response=RESPONSE,
            exposure=EXPOSURE if EXPOSURE in self._shifted else "",
            offset=OFFSET if OFFSET in self._shifted else "",
            event=EVENT if self.family == SURVIVAL else "",
            norm=None if norm is None else float(norm),
        )
        if self.weights_bounds is not None:  # without weights a study keeps its hash
            parameters["weights"] = WEIGHT
        several = declared.response.categories if self.family == MULTINOMIAL else None
        parameters |= self._prior_parameter(declared.columns, several or ())
        return self._asked(row_cards(rows, columns), parameters, declared.derived, {AGGREGATION: self.aggregation})

    def _says(self, fields: type, **own: Any) -> dict[str, Any]:  # noqa: ANN401 - of a study's parameters
        """Return what a study says in its parameters; one of columns without times says nothing of cuts, and so keeps its hash."""
        found = super()._says(fields, **own)
        if fields is SplitParameters and self.cuts is None:
            del found["cuts"]
        return found

    @property
    def _beside_response(self) -> dict[str, Column]:
        """Return the declared columns of exposures, offsets and events, by the parameter that names them."""
        given = (("exposure", EXPOSURE, self.exposure_bounds), ("offset", OFFSET, self.offset_bounds))
        found = {
            role: Column(name, float(bounds[0]), float(bounds[1])) for role, name, bounds in given if bounds is not None
        }
        if self.family == SURVIVAL:
            found["event"] = Column(EVENT, 0.0, 1.0, missing=self._gap_in_response)
        return found

    # --- the fit ---------------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | str | None = None,
        sites: Sequence[object] | None = None,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        unit_id: ArrayLike | None = None,
        event: ArrayLike | None = None,
        *,
        formula: str | None = None,
        weights: ArrayLike | str | None = None,
        on: On | None = None,
    ) -> Self:
        """Release what the rounds ask for of all sites (``sites``: a label per row; None is one site), and fit.

        ``exposure`` and ``offset`` have a number for each row, inside ``exposure_bounds`` and ``offset_bounds``, ``unit_id`` an id. For the
        survival family ``y`` are times and ``event`` says whether an event ended them (else they are censored), or ``y`` is a structured array
        of (event, time), as scikit-survival makes it.

        ``fit(frame, "y")`` takes the response out of a frame, ``fit(frame, formula="falls ~ age * ward + offset(log(days))")`` whatever the
        formula names; a frame may hold other columns in addition to those that are declared. ``weights``: a number from 0 on for each row, inside
        ``weights_bounds``, or the column of the frame that holds them. Standard errors take them as precisions (statsmodels' ``var_weights``).

        With ``parties``, or with a frame of each party and ``on`` (the ids that link their rows), columns are split. ``exposure`` and ``offset`` of
        counts, and ``event``, belong to the party that has the response; with ``on`` they are names of columns of its frame.
        """
        if on is not None or self.parties is not None:
            given = {"sites": sites, "unit_id": unit_id, "weights": weights}
            given |= {"exposure": exposure, "offset": offset, "event": event}
            return self._fit_columns(X, y, on, formula, given)
        asked = self._framed(X, y, formula)
        weights = weights_of(X, weights, asked.X, self.unit)
        X, y, event = asked.X, asked.y, asked.event if event is None else event
        happened = None
        if self.family == SURVIVAL:
            y, happened = times_and_events(y, event)
            self._without_gaps(happened)  # whether there was an event may be missing where the time may
        elif event is not None:
            raise UsageError("event goes with the survival family")
        table, labels = self._read(X, y, y_numeric=not self._classifies)
        labels = labels if self._classifies else labels.astype(np.float64)
        declared = self._declared(table.names, table, labels)
        if declared.classes is not None:
            self.classes_ = declared.classes.labels
            labels = declared.classes.column(labels)
        whole = part(table, table.names, labels)
        more = self._shifts(whole.n_rows, exposure, offset)
        more |= given_weights(weights, self.weights_bounds, whole.n_rows)
        if happened is not None:
            more[EVENT] = happened
        if more:
            whole = Table({name: whole[name] for name in whole.names} | more)
        tables = site_tables(whole, sites, self.unit, unit_id, self.rows_per_household)
        study = self._study(counts_of(tables), declared)
        result: GlmResult = self._run(study, tables).outcome.result
        self._columns = declared.columns
        return self._take(result)

    def _refuse_rows_only(self, but: frozenset[str] = frozenset()) -> None:
        """Refuse families and parameters that are of rows at several parties, the family first: its own parameters follow from it."""
        check_split_family(self.family)
        super()._refuse_rows_only(but | _TOO.get(self.family, frozenset()))

    def _fit_columns(
        self,
        X: Any,  # noqa: ANN401 - whatever a user passes
        y: Any,  # noqa: ANN401
        on: On | None,
        formula: str | None,
        given: Mapping[str, Any],
    ) -> Self:
        """Release what the products of two parties' columns ask for, and fit."""
        self._validate_params()
        check_split_family(self.family)
        own = _BESIDE.get(self.family, ())
        rows = {name: value for name, value in given.items() if name not in own}
        asked, holder, told = self._asked_columns(X, y, on, formula, rows, {name: given[name] for name in own})
        y, happened = asked.y, None
        if self.family == SURVIVAL:
            y, happened = times_and_events(y, asked.event if told["event"] is None else told["event"])
            self._without_gaps(happened)
        features, labels = self._read(asked.X, y, y_numeric=not self._classifies)
        labels = labels if self._classifies else labels.astype(np.float64)
        declared = self._declared(features.names, features, labels)
        if declared.classes is not None:
            self.classes_ = declared.classes.labels
            labels = declared.classes.column(labels)
        more = self._shifts(features.n_rows, told.get("exposure"), told.get("offset"))
        more |= {} if happened is None else {EVENT: happened}
        study = self._columns_study(features.n_rows, declared, holder)
        result: GlmResult = self._run(study, joint_tables(study, features, labels, more)).outcome.result
        self._columns = declared.columns
        return self._take(result)

    def _take(self, result: GlmResult) -> Self:
        self._result = result
        own = np.array([c.value for c in result.coefficients])
        layout = self.plan_.design.layout
        if self.plan_.joint and not layout.formula:  # of columns of parties, in the order of the data
            own = own[places_of(layout, [column.name for column in self._columns])]
        self.coef_ = own.reshape(len(result.classes), -1) if result.classes else own
        self.intercept_ = np.array(result.intercepts) if result.classes else result.intercept
        if result.life_table is not None:
            self._take_hazards(result, result.life_table)
        self.method_, self.dispersion_, self._lines = result.method, result.dispersion, result.lines
        if result.drawn is not None:
            self.drawn_ = result.drawn
        return self

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import ClassifierTags, RegressorTags

        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if self._classifies:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=self.family == MULTINOMIAL)
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags(poor_score=True)
            tags.target_tags.positive_only = True
        return tags


# --- A finished study --------------------------------------------------------------------------------------------------------


def fitted(plan: Plan[GlmDesign | PullDesign], result: GlmResult) -> PrivateGLM:
    """Return an estimator with the coefficients of the result; predictions ask for exposures and offsets, as they were declared."""
    design = plan.design
    if isinstance(design, PullDesign):
        return _fitted_columns(plan, design, result)
    given, responses = design.parameters, design.responses
    estimator = PrivateGLM._of_plan(  # noqa: SLF001 - its own model's
        plan,
        design.layout.declared,
        prior=as_numbers(given.prior),
        exposure_bounds=None if responses.exposure is None else responses.exposure.range,
        offset_bounds=None if responses.offset is None or not given.offset else responses.offset.range,
        weights_bounds=None if responses.weighting is None else responses.weighting.column.range,
    )
    if responses.response.categories is not None:
        estimator.classes_ = np.array(responses.response.categories, dtype=object)
    return estimator._take(result)  # noqa: SLF001 - as above


def _fitted_columns(plan: Plan[Any], design: PullDesign, result: GlmResult) -> PrivateGLM:
    """Return an estimator of columns at two parties, which new rows have side by side."""
    responses = design.responses
    estimator = PrivateGLM._of_plan(  # noqa: SLF001 - its own model's
        plan,
        design.layout.declared,
        exposure_bounds=None if responses.exposure is None else responses.exposure.range,
        offset_bounds=None if responses.offset is None else responses.offset.range,
    )
    if responses.response.categories is not None:
        estimator.classes_ = np.array(responses.response.categories, dtype=object)
    return estimator._take(result)  # noqa: SLF001 - as above
