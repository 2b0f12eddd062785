"""``PrivateLinearRegression`` (``PrivateBayesianRegression``): a thin scikit-learn estimator over the Bayes study, run in process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError, listed
from unpooled.estimation.base import ALL, Declared, LinearRegressor
from unpooled.estimation.calls import OfEveryFit, OfNumbers, OverSites, PerhapsOverColumns, Summing, Weighted, takes
from unpooled.estimation.columns import UnderMasks, joint_tables
from unpooled.estimation.fitted import Profiled
from unpooled.estimation.hidden import PerhapsHidden, refuse_rows
from unpooled.estimation.parameters import (
    counts_of,
    row_cards,
    site_tables,
)
from unpooled.estimation.priors import SAVED, DrawnFit, Earlier, as_numbers
from unpooled.estimation.split_fit import SplitFit, places_of
from unpooled.estimation.tables import RESPONSE, part, weights_of
from unpooled.inference.printed_terms import TREATMENT
from unpooled.linear.drawn import drawn_fit, drawn_tables
from unpooled.linear.fit import LinearFit
from unpooled.linear.moments import NARROWED, Moments
from unpooled.models.bayes import MODEL
from unpooled.models.bayes.declared import NAIVE, SINES, ColumnsParameters, Parameters
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.declared import says
from unpooled.privacy.plan import AGGREGATION, Plan, Study
from unpooled.products.design import ColumnsDesign
from unpooled.totals.weights import WEIGHT, check_weights_bounds, with_weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.estimation.columns import On
    from unpooled.inference.tables import Anova, Contrast, JointTest
    from unpooled.linear.inference import LinearSummary, LinearTables, PrincipalComponents
    from unpooled.linear.instruments import TwoStageTables
    from unpooled.models.bayes.declared import BayesDesign
    from unpooled.models.bayes.fit import BayesResult
    from unpooled.privacy.plan import Plan

    Vector = NDArray[np.float64]


# --- Other models from the same moments ------------------------------------------------------------------------------------
# The part of the regression estimator that released second moments make: other models, free of charge.


class Following(Earlier):
    """The part of an estimator that has other models of the same moments."""

    noise_precision: float | str
    method_: str
    _fit_: LinearFit
    #: Moments of all columns; absent where the method releases none, and where a focus releases those of some columns.
    moments_: Moments
    focused_: Moments

    def _forget(self) -> None:
        """Take away what a fit before released."""
        for name in ("moments_", "focused_", "drawn_"):
            if hasattr(self, name):
                delattr(self, name)

    def _released(self) -> Moments:
        """Return the moments of all columns, or raise an error that says which method has some."""
        check_is_fitted(self)
        if hasattr(self, "moments_"):
            return self.moments_
        if hasattr(self, "focused_") and self.focused_.whole is not None:
            raise UsageError(
                "second moments of whole rows given that they are whole are those of one model: summary() and contrast() have its standard errors, and there are "
                'no errors of predictions and no other models. With missing = "complete" there are'
            )
        if hasattr(self, "focused_"):
            names = listed([column.name for column in self.focused_.layout.features])
            msg = (
                f"a focus on {names} released second moments of that alone: summary() and contrast() have its standard errors, and there are "
                "no errors of predictions and no other models. Without focus there are"
            )
            raise UsageError(msg)
        others = "'moments'" if self.method_ == SINES else "'refinement' or 'moments'"
        msg = (
            f"method {self.method_!r} released no second moments, so there are no standard errors and no other models: with "
            f"method={others} there are (and the noise of each coefficient grows)"
        )
        raise UsageError(msg)

    def _tables(self) -> LinearTables:
        check_is_fitted(self)
        moments = self.focused_ if hasattr(self, "focused_") else self._released()
        plan = getattr(self, "plan_", None)  # none where the moments come from a file
        given = getattr(getattr(plan, "design", None), "parameters", None)
        models = self._earlier(moments.layout.names)
        return drawn_tables(moments, models, getattr(given, "reference", None), getattr(given, "coding", TREATMENT))

    def submodel(self, columns: Sequence[str]) -> Self:
        """Return a fitted model of some of the columns alone, free of charge."""
        estimator: Any = type(self)
        found: Self = estimator.from_moments(self._released().submodel(columns))
        return found

    def credible_interval(self, confidence: float = 0.95) -> NDArray[np.float64]:
        """Return lower and upper ends for every coefficient."""
        check_is_fitted(self)
        return self._fit_.interval(confidence)

    def ridge(self, alpha: float = 1.0) -> LinearFit:
        """Ridge regression (scikit-learn's ``alpha``) with intervals from the same moments, free of charge."""
        return self._released().ridge(alpha, self.noise_precision)

    def ols(self) -> LinearFit:
        """Return ordinary least squares with intervals from the same moments, free of charge."""
        return self._released().ols(self.noise_precision)

    def lasso(self, alpha: float) -> LinearFit:
        """Return the lasso (scikit-learn's ``alpha``) from the same moments, free of charge."""
        return self._released().lasso(alpha)

    def two_stage(self, endogenous: str, instruments: Sequence[str]) -> TwoStageTables:
        """Return two-stage least squares from the same moments, free of charge: ``.summary()`` and ``.contrast(...)``.

        ``endogenous``: a column that depends on what the model leaves out, such as a dose that doctors chose. ``instruments``: columns that move
        it and move the response in no other way. All other columns are exogenous.
        """
        from unpooled.linear.instruments import tables_of

        return tables_of(self._released(), endogenous, instruments)

    def correlation(self) -> NDArray[np.float64]:
        """Return correlations of the features, free of charge."""
        return self._released().correlation()

    def pca(self) -> PrincipalComponents:
        """Return principal components of the standardised features, free of charge."""
        return self._released().pca()

    def vif(self) -> Vector:
        """Return variance inflation of every coefficient, free of charge."""
        return self._released().vif()


# --- Columns of several parties --------------------------------------------------------------------------------------------
# The part of the estimator of linear regression that fits columns of several parties: studies, tables, and moments in the order of the data.

#: Parameters that are of rows at several parties, with the values that leave them out.
_OF_ROWS: dict[str, Any] = {
    "rows_per_household": 1,
    "aggregation": "distributed",
    "nodes": (),
    "geometry": "ball",
    "posterior": "noise-aware",
    "projection": None,
    "projection_delta": None,
    "multiple": None,
    "indefinite": "auto",
    "covariance": "auto",
    "focus": (),
    "weights_bounds": None,
    "site_effects": "pooled",
    "fit_intercept": True,
}


# ruff: noqa: SLF001 - the estimator's own members, of which this part of it does not know the types


class ColumnSplit(SplitFit):
    """Columns of the same people at several parties, whose joint moments are released."""

    tolerate: int
    method: str
    plan_: Plan
    _of_rows: ClassVar = _OF_ROWS
    _of_columns: ClassVar = ColumnsParameters

    def _fit_columns(self, X: Any, y: Any, on: On | None, formula: str | None, of_rows: Mapping[str, Any]) -> None:  # noqa: ANN401 - whatever a user passes
        """Release the joint sums of columns at several parties."""
        estimator: Any = self
        asked, holder, _ = self._asked_columns(X, y, on, formula, of_rows)
        features, declared, response = estimator._numeric(asked.X, asked.y)
        study = self._columns_study(features.n_rows, declared, holder)
        result = estimator._run(study, joint_tables(study, features, response)).outcome.result
        estimator.projection_, estimator.method_ = result.projection, result.method
        estimator._forget()
        if result.moments is not None:
            moments = Moments.of(result.moments).of_run(self.plan_)
            estimator._from(moments if moments.layout.formula else in_order(moments, features.names))
            return
        estimator._columns = declared.columns
        coef = np.array([c.value for c in result.coefficients])[places_of(estimator.plan_.design.layout, features.names)]
        estimator._take(LinearFit.without_errors(coef, result.intercept, has_intercept=True))


def in_order(moments: Moments, names: Sequence[str]) -> Moments:
    """Return the same moments with the features in this order."""
    layout = moments.layout
    features = {column.name: column for column in layout.features}
    coded = places_of(layout, names)
    at = np.concatenate([coded, np.arange(coded.size, moments.gram.shape[0])])
    frame, own = moments.frame, at[: layout.size]
    frame = replace(frame, widths=frame.widths[own], centres=frame.centres[own], start=frame.start[own])
    return replace(
        moments,
        layout=replace(layout, features=tuple(features[name] for name in names)),
        gram=moments.gram[np.ix_(at, at)],
        variance=moments.variance[np.ix_(at, at)],
        standard=frame,
    )


# --- Estimator -------------------------------------------------------------------------------------------------------------
# ``PrivateLinearRegression`` (``PrivateBayesianRegression``): a thin scikit-learn estimator over the Bayes study, run in process.


class OfEitherSplit(UnderMasks, PerhapsOverColumns, PerhapsHidden):
    """What a call says otherwise than a study: parties that it may have, and a projection that it may leave to the form."""

    projection: Annotated[
        float | None,
        says(
            "Share of the squared budget that first narrows the ranges to multiples of private standard deviations (Algorithm 2), as it may for "
            "predictions: coefficients are then of narrowed data, and have no intervals. None, or 0: declared ranges. In the published form it is a "
            "share of epsilon, and None is the 0.3 of the authors' program."
        ),
    ] = None


@takes(OfEveryFit, OfNumbers, OverSites, Summing, Parameters, Weighted, OfEitherSplit, DrawnFit)
class PrivateLinearRegression(ColumnSplit, Following, Profiled, LinearRegressor):
    """Linear regression from private sums: of rows at several sites, or of columns of the same people at several parties (``parties``).

    ``summary`` is the table to publish; ``coef_``, the posterior mean of a Bayesian model, is what predicts. ``PrivateBayesianRegression`` is another
    name of this class, after the paper.

    The model is y ~ N(x.beta + b, 1/noise_precision) with beta ~ N(0, I/prior_precision). Sums are added up by secure sum with
    distributed noise; the posterior accounts for that noise, so its intervals mean what they say. Nothing depends on the units of the data.

    Attributes
    ----------
    coef_ : array
        Posterior mean of the coefficients, one for each category where categories are declared.
    intercept_ : float
        Posterior mean of the constant.
    covariance_ : array
        Posterior covariance of the coefficients; nan where the method has none.
    noise_variance_ : float
        Variance of y around its mean, given or estimated; nan where the method has none.
    method_ : str
        How the budget was spent.
    moments_ : Moments
        The released moments, from which ``ridge``, ``ols`` and :meth:`from_moments` compute other models free of charge; absent where
        the method releases none.
    focused_ : Moments
        The released moments of the columns of ``focus``, the others taken out, or those of rows that are whole by a model (``missing="model"``); else absent.
    drawn_ : DrawnTo
        The weight of each earlier model, and how far they drew each term; absent without ``prior``.
    projection_ : object
        The ranges that the data were projected to.
    statement_, plan_, ledger_, communication_
        What is promised and what is not; what was released, with which noise; what was debited; bytes sent and received.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import PrivateLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (6000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=6000)
    >>> sites = rng.choice(["oslo", "porto", "riga"], 6000)
    >>> model = PrivateLinearRegression(epsilon=2.0, bounds=(-1, 1), y_bounds=(-4, 4), random_state=0)
    >>> bool((abs(model.fit(X, y, sites=sites).coef_ - [1.0, -2.0, 0.5]) < 0.1).all())
    True
    >>> model.method_
    'refinement'
    >>> mean, deviation = model.predict(X[:2], return_std=True)

    """

    _model = MODEL
    _saved_types: ClassVar = (*LinearRegressor._saved_types, *SAVED)

    def plan(self, n_samples: int, n_features: int, sites: Mapping[str, int] | None = None) -> Plan:
        """Return the plan of a fit to data of this shape, without data; ``sites`` gives the rows of each of several."""
        return self._planned(sites or {ALL: n_samples}, n_features)

    def _study(self, rows: Mapping[str, Any], declared: Declared) -> Study:
        assert declared.response is not None
        if self.parties is not None:
            return self._columns_study(rows[ALL], declared)
        columns = (*declared.columns, *check_weights_bounds(self.weights_bounds), declared.response)
        norm = self.bounds.norm if isinstance(self.bounds, Bounds) else None
        parameters = self._says(Parameters, response=RESPONSE, norm=None if norm is None else float(norm))
        parameters |= {} if self.weights_bounds is None else {"weights": WEIGHT}  # without weights a study keeps its hash
        parameters |= self._prior_parameter(declared.columns)
        return self._asked(row_cards(rows, columns), parameters, declared.derived, {AGGREGATION: self.aggregation})

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | str | None = None,
        sites: Sequence[object] | None = None,
        unit_id: ArrayLike | None = None,
        *,
        formula: str | None = None,
        weights: ArrayLike | str | None = None,
        on: On | None = None,
    ) -> Self:
        """Release the moments of all sites (``sites``: a label per row; None is one site; ``unit_id``: an id per row) and compute the posterior.

        ``fit(frame, "y")`` takes the response out of a frame, ``fit(frame, formula="y ~ age * ward")`` whatever the formula names; a frame may
        hold other columns in addition to those that are declared. ``weights``: precisions, as in weighted least squares, inside ``weights_bounds``, or
        their column in the frame. With ``parties``, or with a frame of each party and ``on`` (the ids that link their rows), columns are split.
        """
        if on is not None or self.parties is not None:
            self._fit_columns(X, y, on, formula, {"sites": sites, "unit_id": unit_id, "weights": weights})
            return self
        refuse_rows(self.expected)
        asked = self._framed(X, y, formula)
        weights = weights_of(X, weights, asked.X, self.unit)
        features, declared, response = self._numeric(asked.X, asked.y)
        whole = part(features, features.names, response)
        whole = with_weights(whole, weights, self.weights_bounds)
        tables = site_tables(whole, sites, self.unit, unit_id, self.rows_per_household)
        study = self._study(counts_of(tables), declared)
        result = self._run(study, tables).outcome.result
        self.projection_, self.method_ = result.projection, result.method
        self._forget()
        if result.moments is not None:
            return self._from(Moments.of(result.moments).of_run(self.plan_))
        self._columns = declared.columns
        self.__dict__.update({} if result.drawn is None else {"drawn_": result.drawn})
        if result.focused is not None:
            self.focused_ = Moments.of(result.focused).of_run(self.plan_)
        coef = np.array([c.value for c in result.coefficients])
        return self._take(LinearFit.without_errors(coef, result.intercept, has_intercept=self.fit_intercept))

    @classmethod
    def from_moments(cls, moments: Moments, **parameters: Any) -> Self:  # noqa: ANN401 - this class's own parameters
        """Return a fitted estimator from moments that were released before: another prior, another posterior, free of charge."""
        design = moments.layout
        estimator = cls(fit_intercept=design.intercept, geometry=str(design.geometry), **parameters)
        columns = design.declared
        estimator.n_features_in_ = len(columns)
        names = [column.name for column in columns]
        if names != [f"x{j}" for j in range(len(names))]:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        return estimator._from(moments)

    def _from(self, moments: Moments) -> Self:
        self.moments_ = moments
        self._columns = moments.layout.declared
        if models := self._earlier(moments.layout.names):
            fit, self.drawn_ = drawn_fit(moments, models)
            return self._take(fit)
        prior = self._taken("prior_precision")
        noise = self._taken("noise_precision")
        return self._take(moments.posterior(prior, noise, naive=self._taken("posterior") == NAIVE))

    def _take(self, fit: LinearFit) -> Self:
        self._fit_ = fit
        self.coef_, self.intercept_, self.covariance_ = np.asarray(fit.coef_), float(fit.intercept_), fit.covariance_
        self.noise_variance_ = fit.noise_variance
        return self

    def predict(self, X: Any, *, return_std: bool = False, sites: Any = None) -> Any:  # noqa: ANN401
        """``X @ coef_ + intercept_``, at these ``sites`` or their mean where they have constants; with the standard deviation of a new y, if asked for."""
        rows = self._natural(X, sites)
        mean: Vector = rows @ self.coef_ + self.intercept_
        if not return_std:
            return mean
        if self._released().narrowed:
            raise UsageError(NARROWED)
        if self._released().layout.intercept:
            rows = np.column_stack([rows, np.ones(rows.shape[0])])
        spread = np.einsum("ij,jk,ik->i", rows, self._fit_.joint_covariance_, rows)
        return mean, np.sqrt(np.maximum(spread, 0.0) + self.noise_variance_)

    def summary(
        self,
        confidence: float = 0.95,
        adjust: str | None = None,
        *,
        reference: Mapping[str, str] | None = None,
        coding: str | None = None,
    ) -> LinearSummary:
        """Return the table to publish: estimates with standard errors, tests and intervals, free of charge; ``adjust="holm"`` for many tests.

        Levels of a column are compared with its first declared one (with the commonest where the release shows that the first is rare), with
        ``reference={"ward": "b"}``, or with their mean (``coding="sum"``).
        Estimates are generalised least squares, unbiased for tests of nothing: ``coef_``, which predicts, is shrunk and may differ.
        """
        return self._tables().summary(confidence, adjust, reference=reference, coding=coding)

    def contrast(
        self,
        C: Any,  # noqa: ANN401 - weights in several forms
        value: Any = 0.0,  # noqa: ANN401 - a number, or one for each
        confidence: float = 0.95,
        *,
        reference: Mapping[str, str] | None = None,
    ) -> Contrast:
        """Return combinations of coefficients with standard errors, intervals and a joint test, free of charge.

        Given as words ("ward: b - a", "2 * age - dose"; several joined by commas or in a list), as mappings from the names of coefficients
        to weights, or as rows of weights. ``value``: what they are compared with.
        """
        return self._tables().contrast(C, value, confidence, reference=reference)

    def anova(self, smaller: Sequence[str] | None = None) -> Anova | JointTest:
        """Return a test for every column; ``smaller``: whether the columns that it does not name explain anything."""
        return self._tables().anova(smaller)


#: Its name after the paper's model, under which it was first published.
PrivateBayesianRegression = PrivateLinearRegression


# --- A finished study --------------------------------------------------------------------------------------------------------


def fitted(plan: Plan[BayesDesign], result: BayesResult) -> PrivateLinearRegression:
    """Return a fitted estimator, made from the released moments where there are any, so that it has everything that follows from them."""
    design: Any = plan.design
    split, layout = isinstance(design, ColumnsDesign), design.layout
    columns = layout.features if split else layout.declared
    estimator = PrivateLinearRegression._of_plan(plan, columns, prior=as_numbers(design.parameters.prior))
    if result.moments is not None:
        estimator._from(Moments.of(result.moments).of_run(plan))
    else:
        coefficients = np.array([c.value for c in result.coefficients])
        fit = LinearFit.without_errors(coefficients, result.intercept, has_intercept=layout.intercept)
        if result.focused is not None:
            estimator.focused_ = Moments.of(result.focused).of_run(plan)
        estimator._take(fit)
        if result.drawn is not None:
            estimator.drawn_ = result.drawn
    estimator.projection_, estimator.method_ = result.projection, result.method
    return estimator.of_study(plan, columns)
