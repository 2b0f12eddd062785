"""``PrideGLM``, and its rows ``PrideRegressor`` and ``PrideClassifier``: thin scikit-learn estimators over the PRIDE study, run in process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from unpooled.errors import DataError, UsageError
from unpooled.estimation.base import DeclaredClassifier
from unpooled.estimation.parameters import NONE, NUMBER, WORD, taking
from unpooled.estimation.priors import log_odds
from unpooled.estimation.tables import RESPONSE
from unpooled.models.pride.base import FamilyEstimator, PrideEstimator, own_loss
from unpooled.models.pride.declared import AUTO, CLASSES, NUMBERS, Levels
from unpooled.models.pride.rows import baseline
from unpooled.privacy.bounds import Coding
from unpooled.privacy.classes import DEFAULT, Classes
from unpooled.privacy.plan import CLASSES as DERIVED_CLASSES

#: What the label column of events is called in a study of this process.
EVENT = "(event)"

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.estimation.base import Declared
    from unpooled.estimation.columns import Frames, On
    from unpooled.estimation.priors import Prior
    from unpooled.privacy.bounds import Bounds
    from unpooled.privacy.budget import Budget
    from unpooled.privacy.table import Table

    Vector = NDArray[np.float64]


class PrideRegressor(RegressorMixin, PrideEstimator):
    """Ridge regression on column-split data: every party fits its columns together with perturbed sketches of the others'.

    What crosses between the parties is private. What this object shows beyond that (``coef_``, ``intercept_``, ``alpha_``, ``drawn_``, ``reliability_``,
    ``kept_``, predictions, scores) is computed from raw data and would stay with the parties: show it to nobody who may not see their data.
    Pickles and copies hold what :meth:`predict` needs, and not ``drawn_``, ``kept_`` and ``reliability_``.

    Parameters
    ----------
    parties : int or mapping from party names to columns (indices or names), default 2
        Who holds which columns. An int splits the columns evenly.
    epsilon : float, default 1.0
        The privacy asked for: smaller protects more. ``inf`` adds no noise and promises nothing (with
        ``noise_model="plain"`` the algorithm is then DUAL-LOCO).
    delta : float, optional
        The probability with which the promise may fail. None is min(1e-5, 0.1 / n).
    bounds : Bounds, (low, high), or mapping from column names to ranges or categories, optional
        Declared ranges of the features; they also set centre and scale of every column. None reads them off the data, warns,
        and promises nothing.
    y_bounds : (low, high), optional
        Declared range of y. Needed only to publish the coefficients of a regression; otherwise the response stays with the parties.
    unit : {"attribute", "record"}, default "attribute"
        Whom the promise is for: one value of one person (the paper's S-differential privacy), or a whole row.
    adjacency : {"replace", "zero-out"}, default "replace"
        How two neighbouring data sets differ: one becomes any other admissible one, or contributes nothing.
    calibration : {"sound", "published"}, default "sound"
        The noise whose guarantee is proved, or the paper's, which promises nothing: parameters at their defaults are then the paper's own.
    alpha : {"marginal-likelihood", "local-cv", "global-cv"} or float, default "marginal-likelihood"
        The penalty, as scikit-learn's alpha on columns scaled by their declared half width. "global-cv" is not private.
    sketch : {"srht", "gaussian", "dct"} or mapping from party names to public matrices, default "srht"
        The public random matrix that a party's columns are multiplied by before they get noise.
    sketch_dim : "auto", int or float, default "auto"
        Columns of a sketch: a number, or a fraction up to 1 of the party's columns. "auto" is 5 % of them, times epsilon where that is
        above 1, up to half; up to eight columns are sketched whole. 0 sends nothing: each party has its own columns only (the
        semi-naive baseline if ``noise_model`` is not "gram").
    grids : mapping from party names to shapes, optional
        The shape of the grid that a party's columns lie on, for the sketch "dct".
    noise_model : {"gram", "calibrated", "plain"}, default "gram"
        What a party makes of the sketches that it received: a model of the others' Gram matrix from its own columns and the sketches'
        likelihood, regression calibration, or the paper's plain use of them. All three release the same.
    others : {"like mine", "copies", "unrelated"}, default "like mine"
        With ``noise_model="gram"``, what the study declares of the others' columns: that they relate to a party's own as halves of its
        own do to each other, that they measure the same variables again, or that they have nothing in common.
    prior : mapping, fitted model, public rows (X, y), or a mapping from names to several of these, optional
        Earlier models of the same response (docs/prior.md), to which each party's fit is drawn as far as its rows agree.
    public : list of columns, default ()
        Columns that are not sensitive; they are sent as they are.
    estimating : list of party names, optional
        The parties that have the response (the paper's scenario B): the others only send. None: all of them. The ``coef_`` of parties that
        only send are nan; ``predict`` then refuses, and ``predict_at`` works at an estimating party.
    clip_norm : float, optional
        With ``unit="record"``, the length to which sketched rows are shortened. None is 1.25 sqrt(columns / 3).
    folds : int, default 5
        Folds of a cross-validation of ``alpha``.
    publish : float, default 0.0
        Share of the squared budget that releases the coefficients too (``published_``, of the coded columns). It needs a number ``alpha``,
        ``fit_intercept=False`` and ``noise_model="plain"``, because everything else reads the data. 0 keeps them at their parties.
    loss : {"squared", "huber"}, optional
        "huber" lets responses far from the fit pull no harder than those ``threshold`` away from it. The choice costs no privacy.
        None is "squared", for a classifier "logistic".
    threshold : float, optional
        In units of y. None is 1.345 robust deviations of what a first fit leaves, as each party computes them.
    fit_intercept : bool, default True
        Whether to fit a constant.
    public_seed : int, default 0
        Seed of the public randomness (sketch matrices).
    random_state : int, optional
        A seed makes the noise reproducible, and the fit a simulation that protects nobody. None draws real noise.
    budget : Budget, optional
        A total that several fits and predictions on the same people share.

    Attributes
    ----------
    coef_ : array
        Coefficients in the data's own units, one for each category where categories are declared.
    intercept_ : float
        The constant, in the data's own units.
    alpha_ : dict
        The penalty of each party.
    duality_gap_ : dict
        With ``calibration="published"``, whose solver is SDCA: how far each party's objective, half the squared errors plus ``alpha / 2``
        times the squared coefficients, is from its minimum at most. Empty where the solver is exact: the sound form, ``loss="huber"``, and a
        classifier with an intercept.
    reliability_ : dict
        For each party and direction of what its own columns leave of the sketches, largest first: the part that is no noise. Where all are 0,
        no coefficient rests on a direction that only the sketches show. Empty where nothing is averaged (THEORY.md, section 10).
    drawn_ : dict
        For each party the weight of each earlier model in its share, 1 as it is and 0 not at all; absent without ``prior``.
    published_ : dict
        Privately published coefficients of each party's coded columns.
    kept_ : dict
        What each party keeps for new rows: raw functions of its data, in no pickle and no copy.
    linkage_ : Linkage
        Where ``fit`` linked frames: the facts that each party learned, without noise.
    statement_, plan_, ledger_, communication_
        What is promised and what is not; what was released, with which noise; what was debited; bytes sent and received.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import PrideRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (400, 40))
    >>> y = X[:, 0] - X[:, 30] + 0.1 * rng.normal(size=400)
    >>> model = PrideRegressor(parties=2, bounds=(-1, 1), epsilon=5.0, sketch_dim=0.2).fit(X, y)
    >>> model.statement_.unit, model.plan_.epsilon(model.plan_.study.delta) <= 5.0
    ('attribute', True)

    """

    _crosses = True

    def _of_family(self, declared: Declared) -> dict[str, Any]:
        return own_loss("regression", self.loss, self.threshold, declared)

    def fit(self, X: ArrayLike | Frames, y: ArrayLike | str, *, on: On | None = None) -> Self:
        """Fit every party's columns. ``on``: the ids by which frames of the parties, {name: frame}, are linked; y names a column then."""
        table, response = self._read(*self._joined(X, y, on), y_numeric=True)
        return self._fit(table, self._declared(table.names, table), response.astype(np.float64))

    def predict(self, X: ArrayLike) -> Vector:
        """``X @ coef_ + intercept_``: needs all columns of the new rows in one place."""
        return self._linear(X)

    def predict_at(self, party: str, X: ArrayLike) -> Vector:
        """Return predictions of new rows at one party, from its own columns and newly released sketches of the others'."""
        return self._decision_at(party, X)


class PrideClassifier(PrideEstimator, DeclaredClassifier):
    """Logistic regression on column-split data, two classes; other parameters and attributes as for :class:`PrideRegressor`.

    What crosses between the parties is private. What this object shows beyond that (``coef_``, ``intercept_``, ``alpha_``, ``drawn_``, ``reliability_``,
    ``kept_``, predictions, scores) is computed from raw data and would stay with the parties: show it to nobody who may not see their data.
    Pickles and copies hold what :meth:`predict` needs, and not ``drawn_``, ``kept_`` and ``reliability_``.

    Parameters
    ----------
    classes : (first, second), optional
        The declared labels, public like bounds. ``classes_`` holds them as :func:`numpy.unique` sorts them, whichever of them occur: data
        with one class fit, another label is an error. None reads them off ``y``, warns, and promises nothing.

    """

    def __init__(
        self,
        parties: int | Mapping[str, Sequence[int | str]] = 2,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None,
        y_bounds: tuple[float, float] | None = None,
        classes: Sequence[object] | None = None,
        unit: str = "attribute",
        adjacency: str = "replace",
        calibration: str = "sound",
        alpha: float | str = "marginal-likelihood",
        sketch: str | Mapping[str, ArrayLike] = "srht",
        sketch_dim: float | str = AUTO,
        grids: Mapping[str, tuple[int, ...]] | None = None,
        noise_model: str = "gram",
        others: str = "like mine",
        prior: Prior = None,
        public: Sequence[int | str] = (),
        estimating: Sequence[str] | None = None,
        clip_norm: float | None = None,
        folds: int = 5,
        publish: float = 0.0,
        loss: str | None = None,
        threshold: float | None = None,
        fit_intercept: bool = True,
        public_seed: int = 0,
        random_state: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in {"self", "classes", "__class__"}}
        super().__init__(**given)
        self.classes = classes

    def _of_family(self, declared: Declared) -> dict[str, Any]:
        return own_loss("classification", self.loss, self.threshold, declared)

    def _publicly(self) -> Any:  # noqa: ANN401 - scikit-learn's own
        return log_odds()

    def fit(self, X: ArrayLike | Frames, y: ArrayLike | str, *, on: On | None = None) -> Self:
        """Fit every party's columns. ``on`` as of :class:`PrideRegressor`."""
        return self._fit(*self._labelled(*self._joined(X, y, on)))

    def predict_at(self, party: str, X: ArrayLike) -> NDArray[Any]:
        """Return classes of new rows at one party, from its own columns and newly released sketches of the others'."""
        return np.asarray(self.classes_[(self._decision_at(party, X) > 0).astype(int)])


#: Parameters of :class:`PrideGLM` alone.
_OF_FAMILIES = {"self", "family", "classes", "dispersion", "quantile", "cap", "__class__"}


class PrideGLM(FamilyEstimator):
    """Generalised linear models on column-split data; other parameters and attributes as for :class:`PrideRegressor`.

    Every family is fitted on the same released sketches: the choice costs no privacy. What crosses between the parties is private. What this
    object shows beyond that (``coef_``, ``baseline_hazard_``, predictions, scores) is computed from raw data and would stay with the
    parties: show it to nobody who may not see their data.

    Parameters
    ----------
    family : {"logistic", "multinomial", "ordinal", "squared", "huber", "quantile", "poisson", "gamma", "negative-binomial", "cox"}, default "logistic"
        The law of the response: two, several or ordered classes (proportional odds); numbers; counts and positive numbers with the
        logarithm as link; censored times (proportional hazards, ties by Breslow).
    classes : (first, second, ..), optional
        The declared labels, public like bounds; ordered from the lowest up for "ordinal". None reads them off ``y``, warns, and promises
        nothing.
    threshold : float, optional
        In units of y: where Huber's loss becomes straight, or half the width over which a quantile's is smoothed. None is 1.345, or 0.2,
        robust deviations of what a first fit leaves, as each party computes them.
    dispersion : float, default 1.0
        Of the negative binomial: the variance is mean + dispersion * mean^2.
    quantile : float, default 0.5
        Which quantile.
    cap : float, optional
        Poisson and gamma: beyond this linear predictor (gamma: below minus this) the loss is a straight line. ``publish`` needs it.

    Attributes
    ----------
    coef_ : array
        Coefficients in the data's own units; "multinomial": a row for every class (they sum to 0); "cox": log hazard ratios.
    intercept_ : float or array
        The constant; "multinomial": of every class; "ordinal": minus the threshold above every level but the last; "cox": what makes the
        decision 0 at the columns' means.
    classes_ : array
        The labels of a family with classes.
    baseline_times_, baseline_hazard_ : array
        "cox": times of events, and Breslow's cumulative hazard up to each, at the columns' means.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import PrideGLM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (400, 40))
    >>> y = rng.poisson(np.exp(1 + X[:, 0] - X[:, 30]))
    >>> model = PrideGLM("poisson", parties=2, bounds=(-1, 1), epsilon=5.0, sketch_dim=0.2).fit(X, y)
    >>> model.predict(X).shape, model.plan_.epsilon(model.plan_.study.delta) <= 5.0
    ((400,), True)

    """

    _parameter_constraints: ClassVar = PrideEstimator._parameter_constraints | (  # noqa: SLF001 - its base
        taking("family", WORD) | taking("dispersion quantile", NUMBER) | taking("cap", NUMBER, NONE)
    )
    _saved_types: ClassVar = (*PrideEstimator._saved_types, Levels)  # noqa: SLF001 - its base

    def __init__(
        self,
        family: str = "logistic",
        *,
        parties: int | Mapping[str, Sequence[int | str]] = 2,
        epsilon: float = 1.0,
        delta: float | None = None,
        bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None,
        y_bounds: tuple[float, float] | None = None,
        classes: Sequence[object] | None = None,
        unit: str = "attribute",
        adjacency: str = "replace",
        calibration: str = "sound",
        alpha: float | str = "marginal-likelihood",
        sketch: str | Mapping[str, ArrayLike] = "srht",
        sketch_dim: float | str = AUTO,
        grids: Mapping[str, tuple[int, ...]] | None = None,
        noise_model: str = "gram",
        others: str = "like mine",
        prior: Prior = None,
        public: Sequence[int | str] = (),
        estimating: Sequence[str] | None = None,
        clip_norm: float | None = None,
        folds: int = 5,
        publish: float = 0.0,
        threshold: float | None = None,
        dispersion: float = 1.0,
        quantile: float = 0.5,
        cap: float | None = None,
        fit_intercept: bool = True,
        public_seed: int = 0,
        random_state: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(**{name: value for name, value in locals().items() if name not in _OF_FAMILIES})
        self.family = family
        self.classes = classes
        self.dispersion = dispersion
        self.quantile = quantile
        self.cap = cap

    # --- before the data -------------------------------------------------------------------------------------------------

    def _of_family(self, declared: Declared) -> dict[str, Any]:
        if self.family not in (*NUMBERS, *CLASSES):
            msg = f"family must be one of {', '.join((*CLASSES, *NUMBERS))}, not {self.family!r}"
            raise UsageError(msg)
        return {
            "family": self.family,
            "threshold": None if self.threshold is None else float(self.threshold),
            "classes": list(DEFAULT if declared.classes is None else declared.classes.texts),
            "event": EVENT if self.family == "cox" else "",
            "dispersion": float(self.dispersion),
            "quantile": float(self.quantile),
            "cap": None if self.cap is None else float(self.cap),
        }

    @property
    def _label_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return (RESPONSE, EVENT) if self.family == "cox" else (RESPONSE,)

    def _declared(self, names: Sequence[str], table: Any = None, y: NDArray[Any] | None = None) -> Declared:  # noqa: ANN401
        declared = super()._declared(names, table)
        if self.family not in CLASSES:
            return declared
        if y is not None:
            check_classification_targets(y)
        if self.family == "logistic":
            classes = Classes.given(self.classes, y, warn=self._warns)
        else:
            classes = Levels.declared(self.classes, y, ordered=self.family == "ordinal", warn=self._warns)
        derived = (*declared.derived, DERIVED_CLASSES) if classes.derived else declared.derived
        return replace(declared, classes=classes, derived=derived)

    # --- the fit -----------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, event: Any = None, *, on: On | None = None) -> Self:  # noqa: ANN401 - as PrideRegressor's
        """Fit every party's columns. "cox": ``y`` are times, ``event`` 1 where one ends with an event, else 0 (None: all do)."""
        X, y, event = self._joined(X, y, on, event)
        table, told = self._read(X, y, y_numeric=self.family not in CLASSES)
        declared = self._declared(table.names, table, told)
        if declared.classes is not None:
            self.classes_ = declared.classes.labels
            return self._fit(table, declared, declared.classes.column(told))
        told = told.astype(np.float64)
        if self.family == "cox":
            events = np.ones(told.size) if event is None else np.asarray(event)
            if events.shape != told.shape or events.dtype.kind not in "biuf":
                raise DataError("event has a number for every row: 1 for an event, 0 where observation ended")
            told = np.column_stack([told, events.astype(np.float64)])
        elif event is not None:
            raise UsageError("event belongs to family 'cox'")
        return self._fit(table, declared, told)

    def _labels(self, response: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return dict(zip(self._label_names, response.T if response.ndim > 1 else [response], strict=True))

    def _fit(self, table: Table, declared: Declared, response: NDArray[Any]) -> Self:
        super()._fit(table, declared, response)
        self.coef_ = np.ascontiguousarray(self.coef_.T)
        if self.family == "cox" and not np.isnan(self.coef_).any():
            rows = Coding(declared.columns, 1).natural([table[column.name] for column in declared.columns])
            self.baseline_times_, self.baseline_hazard_ = baseline(response, rows @ self.coef_ + self.intercept_)
        return self
