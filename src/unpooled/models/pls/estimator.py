"""``PrivatePLSRegression``: a thin scikit-learn estimator over the PLS study, run in process; and ``RowWise``, preprocessing in front of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from unpooled.errors import UsageError, warn_caller
from unpooled.estimation.base import ALL, Declared
from unpooled.estimation.calls import OfEveryFit, OverSites, Summing, takes
from unpooled.estimation.parameters import (
    ARRAY,
    NONE,
    PAIR,
    PAIRS,
    WORD,
    counts_of,
    row_cards,
    site_tables,
)
from unpooled.estimation.priors import SAVED, DrawnFit, Earlier, as_numbers
from unpooled.estimation.tables import part, response_names
from unpooled.linear.moments import Moments
from unpooled.models.pls import MODEL
from unpooled.models.pls.declared import Parameters
from unpooled.models.pls.fit import from_several, of_released, stored
from unpooled.models.pls.instruments import DomainRelease, Transfers, TwoReleases
from unpooled.models.pls.spectra import MATRIX, Frame
from unpooled.models.pls.spectra import NONE as NO_BASIS
from unpooled.privacy.bounds import Bounds, Column
from unpooled.privacy.declared import says
from unpooled.privacy.plan import AGGREGATION, Plan, Study
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray
    from sklearn.utils import Tags

    from unpooled.models.pls.declared import PlsDesign
    from unpooled.models.pls.fit import PlsResult, StoredModel
    from unpooled.privacy.plan import Plan
    from unpooled.privacy.table import Table

    Matrix = NDArray[np.float64]


# --- Preprocessing row by row ----------------------------------------------------------------------------------------------
# ``RowWise``: preprocessing in front of a private model that provably treats every spectrum by itself, or is refused.


class RowWise(TransformerMixin, BaseEstimator):
    """A transformer that must not learn from the data it is fitted to, for a pipeline with a private model at its end.

    What learns from all spectra (their mean, say) makes every row depend on every other, and no bound on a row survives that. With
    ``public`` spectra the transformer learns from those alone. Without them it is refused if two halves of the data teach it different
    things; in both cases it is refused if a spectrum is transformed otherwise alone than among others.

    Parameters
    ----------
    transformer : a scikit-learn transformer
    public : array, optional
        Public spectra that it may learn from.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from unpooled.models.pls.estimator import RowWise
    >>> X = np.random.default_rng(0).normal(size=(20, 5))
    >>> RowWise(StandardScaler()).fit(X)
    Traceback (most recent call last):
    unpooled.errors.UsageError: StandardScaler learns from the data it is fitted to: pass public=, spectra that it may learn from
    >>> RowWise(StandardScaler(), public=np.eye(5)).fit_transform(X).shape
    (20, 5)

    """

    def __init__(self, transformer: Any, public: ArrayLike | None = None) -> None:  # noqa: ANN401 - any transformer
        self.transformer = transformer
        self.public = public

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Fit to the public spectra, or make sure that there is nothing to learn."""
        rows = np.asarray(validate_data(self, X, dtype=np.float64, ensure_min_samples=2))
        name = type(self.transformer).__name__
        self.transformer_ = clone(self.transformer).fit(rows[::2] if self.public is None else np.asarray(self.public))
        whole = np.asarray(self.transformer_.transform(rows))
        if self.public is None:
            other = np.asarray(clone(self.transformer).fit(rows[1::2]).transform(rows))
            if not _equal(whole, other):
                msg = f"{name} learns from the data it is fitted to: pass public=, spectra that it may learn from"
                raise UsageError(msg)
        tried = range(min(table("pls").whole("rows_tried"), rows.shape[0]))
        if not all(_equal(whole[i : i + 1], np.asarray(self.transformer_.transform(rows[i : i + 1]))) for i in tried):
            msg = f"{name} transforms a spectrum otherwise alone than among others: use one that treats each by itself"
            raise UsageError(msg)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return each row by itself."""
        check_is_fitted(self)
        return np.asarray(self.transformer_.transform(np.asarray(validate_data(self, X, dtype=np.float64, reset=False))))


def _equal(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    return one.shape == other.shape and bool(
        np.allclose(one, other, rtol=1e-9, atol=1e-12 * float(np.abs(one).max(initial=1.0)))
    )


# --- Estimator -------------------------------------------------------------------------------------------------------------
# ``PrivatePLSRegression``: a thin scikit-learn estimator over the PLS study, run in process.

#: Channels without declared ranges may be this many row bounds away from the reference.
_FAR = 256.0


class OfSpectra:
    """What a call says otherwise than a study: arrays, and a range for each of several responses."""

    y_bounds: Annotated[
        Any,
        says(
            "Declared range of y, or of each of several responses. None reads it off the data, warns, and promises nothing.",
            kinds=(PAIR, PAIRS, NONE),
            call="(low, high), or a sequence of them, optional",
            written="tuple[float, float] | Sequence[tuple[float, float]] | None",
        ),
    ] = None
    basis: Annotated[
        Any,
        says(
            "Public vectors that spectra are projected onto: smooth ones for ordered channels, loadings of public spectra, or none. An array keeps its "
            "scaling: loadings divided by public deviations whiten the coordinates, which then get equal parts of the noise "
            "(:func:`~unpooled.models.pls.spectra.whitened`).",
            choices=("dct", "bspline", "none"),
            kinds=(WORD, ARRAY),
            call='{"dct", "bspline", "none"} or array of shape (channels, vectors), default "dct"',
            written="str | ArrayLike",
        ),
    ] = "dct"
    reference: Annotated[
        Any,
        says(
            "A public spectrum that is subtracted. None is the middle of the declared ranges.",
            kinds=(ARRAY, NONE),
            call="array, optional",
            written="ArrayLike | None",
        ),
    ] = None


@takes(OfEveryFit, OverSites, Summing, Parameters, OfSpectra, DrawnFit, first="n_components")
class PrivatePLSRegression(Earlier, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Transfers):
    """Partial least squares on spectra of one or several laboratories, from private sums over projected rows.

    Rows are projected onto a public basis and shortened to a public length. Rounds of regression on these coordinates, or one release of their
    moments, give coefficients: components, their number and everything else cost no more privacy. Row-wise preprocessing (a derivative, SNV,
    MSC against a public reference) goes in front of it in a pipeline; whatever learns from the data does not
    (:class:`~unpooled.models.pls.estimator.RowWise` refuses it). Several responses share the components (PLS2) and all rounds, or one release.

    Attributes
    ----------
    coef_ : array
        Coefficients of the channels: ``predict(X)`` is ``X @ coef_ + intercept_``. Of several responses a row for each, as in scikit-learn.
    intercept_ : float or array
        The constant, one for each response.
    x_weights_ : array of shape (channels, components)
        As in scikit-learn's PLSRegression.
    x_loadings_ : array of shape (channels, components)
        As in scikit-learn's PLSRegression.
    x_rotations_ : array of shape (channels, components)
        As in scikit-learn's PLSRegression.
    y_loadings_ : array of shape (responses, components)
        As in scikit-learn's PLSRegression.
    n_components_ : int
        How many components were kept; 0 where the model fell back to a constant.
    fallback_ : str
        Why it did, in words; empty where it did not.
    method_ : str
        How the budget was spent.
    moments_ : Moments, or a tuple of them
        The released moments (of each response), from which :meth:`from_moments` computes other models free of charge; "gradient" and "direction" have none.
    domains_ : TwoReleases
        What a model of :meth:`adapted` or :meth:`standardised` rests on: the releases of both domains, and whether their promises hold.
    drawn_ : DrawnTo
        The weight of each earlier model; absent without ``prior``.
    x_scores_ : array
        Noisy scores of the training rows ("published" only).
    statement_ : Statement
        What the fit promises, and what it does not.
    plan_ : Plan
        What was released, with which noise.
    ledger_ : tuple of Entry
        What was debited.
    communication_ : dict
        Bytes sent to and received from each party.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import Bounds, PrivatePLSRegression
    >>> from unpooled.datasets import make_spectra
    >>> data = make_spectra(4000, kind="corn")
    >>> model = PrivatePLSRegression(
    ...     epsilon=2.0, bounds=Bounds(norm=1.5), y_bounds=(8.8, 11.2), reference=data.mean_spectrum, random_state=0
    ... )
    >>> error = model.fit(data.spectra, data.response).predict(data.spectra) - data.response
    >>> bool(error.std() < 0.9 * data.response.std())
    True
    >>> model.transform(data.spectra).shape == (4000, model.n_components_)
    True

    """

    _model = MODEL
    _saved_types = (*Transfers._saved_types, *SAVED, DomainRelease, TwoReleases)  # noqa: SLF001 - its base

    # --- the study -------------------------------------------------------------------------------------------------------

    def plan(self, n_samples: int, n_features: int, sites: Mapping[str, int] | None = None) -> Plan:
        """Return the plan of a fit to data of this shape, without data; ``sites`` gives the rows of each of several."""
        self._validate_params()
        if self.bounds is None or self.y_bounds is None:
            raise UsageError("a plan needs bounds and y_bounds: pass bounds=Bounds(norm=...), y_bounds=(low, high)")
        return self._planned(sites or {ALL: n_samples}, n_features)

    def _coded(self, bounds: Bounds, names: Sequence[str]) -> tuple[Column, ...]:
        """Return the channels; a bound on projected rows alone lets them be far from the reference."""
        if bounds.norm is not None and bounds.low is None and bounds.high is None:
            centre = np.zeros(len(names)) if self.reference is None else self._reference(len(names))
            half = _FAR * float(bounds.norm) * self._frame(len(names), centre).stretch
            bounds = replace(bounds, low=centre - half, high=centre + half)
        return bounds.columns(names)

    def _reference(self, channels: int) -> Matrix:
        reference = np.asarray(self.reference, dtype=np.float64)
        if reference.shape != (channels,) or not np.isfinite(reference).all():
            msg = f"reference must be one finite number for each of the {channels} channels"
            raise UsageError(msg)
        return reference

    def _basis(self) -> tuple[str, list[list[float]]]:
        """Return the name of the basis, and the vectors where it is a matrix."""
        if isinstance(self.basis, str):
            if self.basis == MATRIX:
                raise UsageError("basis: pass the matrix itself, an array of channels x vectors")
            return self.basis, []
        matrix = np.asarray(self.basis, dtype=np.float64)
        if matrix.ndim != 2:  # noqa: PLR2004
            raise UsageError("a basis is an array of channels x vectors")
        return MATRIX, matrix.tolist()

    def _frame(self, channels: int, reference: Matrix) -> Frame:
        kind, matrix = self._basis()
        return Frame.of(kind, channels, self.basis_size, reference, matrix)

    def _study(self, rows: Mapping[str, Any], declared: Declared, norm: float | None = None) -> Study:
        assert declared.response is not None
        columns = (*declared.columns, declared.response, *declared.others)
        if isinstance(self.bounds, Bounds) and self.bounds.norm is not None:
            norm = float(self.bounds.norm)
        basis, matrix = self._basis()
        several = [c.name for c in (declared.response, *declared.others)]
        parameters = self._says(
            Parameters,
            response=several if declared.others else declared.response.name,
            basis=basis,
            matrix=matrix,
            reference=[] if self.reference is None else self._reference(len(declared.columns)).tolist(),
            norm=norm,
        )
        parameters |= self._prior_parameter(declared.columns)
        return self._asked(row_cards(rows, columns), parameters, declared.derived, {AGGREGATION: self.aggregation})

    def _number(self) -> int | str:
        """``n_components`` as a plain number, also where a search over parameters made it a numpy one."""
        return self.n_components if isinstance(self.n_components, str) else int(self.n_components)

    def _declared(self, names: Sequence[str], table: Table | None = None, y: NDArray[Any] | None = None) -> Declared:
        ranges = self._ranges
        count = 1 if y is not None and y.ndim == 1 else len(ranges) if y is None else y.shape[1]
        if len(ranges) not in {1, count}:
            msg = f"y_bounds has {len(ranges)} ranges for {count} response{'s' if count > 1 else ''}: give one for each, or one pair for all"
            raise UsageError(msg)
        first = y if y is None or y.ndim == 1 else y[:, 0]
        declared = super()._declared(names, table, first)
        if count == 1 and (y is None or y.ndim == 1):
            return declared
        found = [
            self._response(name, ranges[k % len(ranges)], None if y is None else y[:, k])
            for k, name in enumerate(response_names(count))
        ]
        return replace(declared, response=found[0], others=tuple(found[1:]))

    @property
    def _ranges(self) -> list[Any]:
        return [self.y_bounds] if self.y_bounds is None or PAIR.holds(self.y_bounds) else list(self.y_bounds)

    # --- fitting ---------------------------------------------------------------------------------------------------------

    def fit(
        self, X: ArrayLike, y: ArrayLike, sites: Sequence[object] | None = None, unit_id: ArrayLike | None = None
    ) -> Self:
        """Release the moments of all sites (``sites``: a label per row; None is one site; ``unit_id``: an id per row) and compute PLS from them."""
        features, declared, response = self._numeric(X, y)
        norm = self._longest(features, declared.columns) if self.bounds is None else None
        whole = part(features, features.names, response)
        tables = site_tables(whole, sites, self.unit, unit_id, self.rows_per_household)
        study = self._study(counts_of(tables), declared, norm)
        result = self._run(study, tables).outcome.result
        for left in ("domains_", "drawn_", "moments_", "x_scores_"):  # of a fit before this one
            self.__dict__.pop(left, None)
        self._columns, self.method_ = declared.columns, result.method
        if result.moments is not None:
            found = tuple(Moments.of(one).of_run(self.plan_) for one in (result.moments, *result.more))
            self.moments_ = found if result.more else found[0]
        self.__dict__.update({} if result.drawn is None else {"drawn_": result.drawn})
        if result.scores is not None:
            self.x_scores_ = result.scores.numpy()
        return self._from(result.model)

    def _longest(self, features: Table, channels: tuple[Column, ...]) -> float:
        """Return the length of the longest projected row: read off the data, after a warning."""
        rows = np.column_stack([features[name] for name in features.names])
        centre = np.array([c.centre for c in channels]) if self.reference is None else self._reference(len(channels))
        frame = self._frame(len(channels), centre)
        return float(np.linalg.norm(frame.coordinates(rows), axis=1).max()) * (1 + 1e-9) or 1.0

    @classmethod
    def from_moments(
        cls,
        moments: Moments | tuple[Moments, ...],
        *,
        n_features: int | None = None,
        **parameters: Any,  # noqa: ANN401
    ) -> Self:
        """Return a fitted estimator from moments that were released before: another number of components, free of charge.

        ``basis``, ``basis_size`` and ``reference`` must be those of the release; ``n_features`` is the number of channels where neither
        tells it. Moments of :class:`~unpooled.PrivateLinearRegression` with ``geometry="augmented"`` have ``basis="none"``.
        """
        estimator = cls(**parameters)
        several = moments if isinstance(moments, tuple) else (moments,)
        layout = several[0].layout
        kind, matrix = estimator._basis()
        known = len(matrix) or (0 if estimator.reference is None else np.size(estimator.reference)) or n_features
        channels = known or len(layout.features)
        centre = np.zeros(channels) if estimator.reference is None else estimator._reference(channels)
        frame = Frame.of(kind, channels, estimator.basis_size, centre, matrix)
        estimator.n_features_in_ = channels
        names = [column.name for column in layout.features]
        if kind == NO_BASIS and names != [f"x{j}" for j in range(channels)] and not names[0].startswith("coordinate"):
            estimator.feature_names_in_ = np.array(names, dtype=object)
        estimator.moments_, estimator._columns = moments, ()
        wanted = estimator._number()
        found = from_several(several, frame, wanted) if len(several) > 1 else of_released(several[0], frame, wanted)
        return estimator._from(stored(found))

    def _from(self, model: StoredModel) -> Self:
        many = isinstance(model.intercept, tuple)
        self.coef_ = model.coefficients.numpy().T.copy()
        self.intercept_ = np.array(model.intercept) if many else model.intercept
        self.x_weights_, self.x_loadings_ = model.weights.numpy().copy(), model.loadings.numpy().copy()
        self.x_rotations_, self.y_loadings_ = model.rotations.numpy().copy(), np.atleast_2d(model.y_loadings.numpy()).copy()
        self.x_mean_, self.fallback_ = model.mean.numpy().copy(), model.fallback
        self.n_components_ = self._n_features_out = self.x_rotations_.shape[1]
        if self.fallback_ and not math.isinf(self.epsilon):
            warn_caller(self.fallback_, UserWarning)
        return self

    def _numeric(self, X: Any, y: ArrayLike) -> tuple[Table, Declared, Matrix]:  # noqa: ANN401 - an array or a frame
        table, response = self._read(X, y, y_numeric=True, multi_output=True)
        response = response.astype(np.float64)
        response = response[:, 0] if response.ndim > 1 and response.shape[1] == 1 else response
        return table, self._declared(table.names, table, response), response

    def predict(self, X: Any) -> Matrix:  # noqa: ANN401
        """``X @ coef_ + intercept_``, a column for each of several responses."""
        check_is_fitted(self)
        return np.asarray(self._natural(X) @ self.coef_.T + self.intercept_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # --- use -------------------------------------------------------------------------------------------------------------

    def transform(self, X: ArrayLike) -> Matrix:
        """Scores of rows: ``(X - x_mean_) @ x_rotations_``."""
        return np.asarray((self._natural(X) - self.x_mean_) @ self.x_rotations_)


# --- A finished study --------------------------------------------------------------------------------------------------------


def fitted(plan: Plan[PlsDesign], result: PlsResult) -> PrivatePLSRegression:
    """Return an estimator with the released coefficients, weights and loadings."""
    given = plan.design.parameters
    channels = [column for column in plan.study.parties[0].columns if column.name not in given.responses]
    own: dict[str, Any] = {
        "prior": as_numbers(given.prior),
        "reference": np.array(given.reference) if given.reference else None,
    }
    own |= {"basis": np.array(given.matrix)} if given.matrix else {}
    estimator = PrivatePLSRegression._of_plan(plan, channels, ("matrix",), **own)  # noqa: SLF001 - its own model's
    estimator.method_ = result.method
    if result.moments is not None:
        found = tuple(Moments.of(one).of_run(plan) for one in (result.moments, *result.more))
        estimator.moments_ = found if result.more else found[0]
    if result.drawn is not None:
        estimator.drawn_ = result.drawn
    return estimator._from(result.model).of_study(plan, channels)  # noqa: SLF001 - as above
