"""``PrideRegressor`` and ``PrideClassifier``: thin scikit-learn estimators over the PRIDE study, run in process."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError
from unpooled.estimation.base import ALL, Declared, StudyEstimator, cards_of, run, tables_of
from unpooled.estimation.classifier import DeclaredClassifier
from unpooled.estimation.parameters import LIST, MAPPING, NONE, NUMBER, SHARE, SHARED, WHOLE, WORD, plain, taking
from unpooled.estimation.tables import RESPONSE, part
from unpooled.models.pride import MODEL, published
from unpooled.models.pride.parameters import AUTO
from unpooled.models.pride.plan import sizes_of
from unpooled.models.pride.units import in_own_units
from unpooled.privacy.bounds import Bounds, Coding
from unpooled.privacy.classes import DEFAULT
from unpooled.privacy.table import Table
from unpooled.protocol.keeper import MemoryKeeper
from unpooled.protocol.local import column_named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.privacy.budget import Budget
    from unpooled.privacy.plan import Study

    Vector = NDArray[np.float64]


class _Pride(StudyEstimator):
    """What the two estimators share: columns to parties, study, run, coefficients back in the data's own units."""

    _task: str
    _model, _published = MODEL, published.MODEL
    _parameter_constraints: ClassVar = (
        SHARED
        | taking("alpha", NUMBER, WORD)
        | taking("sketch", WORD, MAPPING)
        | taking("sketch_dim", WHOLE, SHARE, WORD)
        | taking("publish", NUMBER)
        | taking("grids", MAPPING, NONE)
        | taking("noise_model", WORD)
        | taking("others", WORD)
        | taking("loss", WORD, NONE)
        | taking("threshold", NUMBER, NONE)
        | taking("public", LIST)
        | taking("estimating", LIST, NONE)
        | taking("clip_norm", NUMBER, NONE)
        | taking("folds", WHOLE)
    )

    def __init__(
        self,
        parties: int | Mapping[str, Sequence[int | str]] = 2,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None,
        y_bounds: tuple[float, float] | None = None,
        unit: str = "attribute",
        adjacency: str = "replace",
        calibration: str = "sound",
        alpha: float | str = "marginal-likelihood",
        sketch: str | Mapping[str, ArrayLike] = "srht",
        sketch_dim: float | str = AUTO,
        grids: Mapping[str, tuple[int, ...]] | None = None,
        noise_model: str = "gram",
        others: str = "like mine",
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
        super().__init__(epsilon, delta, bounds, adjacency, calibration, public_seed, random_state, budget)
        self.parties = parties
        self.y_bounds = y_bounds
        self.unit = unit
        self.alpha = alpha
        self.sketch = sketch
        self.sketch_dim = sketch_dim
        self.grids = grids
        self.noise_model = noise_model
        self.others = others
        self.public = public
        self.estimating = estimating
        self.clip_norm = clip_norm
        self.folds = folds
        self.publish = publish
        self.loss = loss
        self.threshold = threshold
        self.fit_intercept = fit_intercept

    # --- plan ------------------------------------------------------------------------------------------------------------

    def _study(self, rows: Mapping[str, int], declared: Declared) -> Study:
        return self._about(rows[ALL], declared)

    def _about(self, rows: int, declared: Declared, fitted: str | None = None, predicting: tuple[str, ...] = ()) -> Study:
        """The study of a fit, or of what some parties predict of new rows by a plan that was fitted."""
        cards = cards_of(self._groups(declared.names), declared, rows, labels=not fitted)
        if self.estimating is not None and not fitted:
            names = [card.name for card in cards]
            if not self.estimating or not set(self.estimating) <= set(names):
                msg = f"estimating names at least one party that has the response, out of {', '.join(names)}"
                raise UsageError(msg)
            cards = tuple(c if c.name in self.estimating else msgspec.structs.replace(c, labels=()) for c in cards)
        widest = max(len(Coding(card.columns, 1).attribute) for card in cards)
        most = 1 << max(widest - 1, 0).bit_length()  # a Hadamard transform works on a power of two
        if isinstance(self.sketch_dim, Integral) and self.sketch_dim > most and isinstance(self.sketch, str):
            msg = f"sketch_dim must be at most {most}, for the widest party has {widest} columns to be sketched"
            raise UsageError(msg)
        matrices = (
            {} if isinstance(self.sketch, str) else {k: np.asarray(v, dtype=float).tolist() for k, v in self.sketch.items()}
        )
        parameters: dict[str, Any] = {
            "response": RESPONSE,
            "task": self._task,
            "loss": self.loss or "",
            "threshold": None if self.threshold is None else float(self.threshold),
            "classes": list(DEFAULT if declared.classes is None else declared.classes.texts),
            "sketch": self.sketch if isinstance(self.sketch, str) else "matrix",
            "sketch_dim": sizes_of(self.plan_.design) if fitted and self.sketch_dim == AUTO else plain(self.sketch_dim),
            "grids": {k: [int(n) for n in v] for k, v in (self.grids or {}).items()},
            "matrices": matrices,
            "public": [column_named(declared.names, column) for column in self.public],
            # New rows are predicted with what is kept: their plan chooses no penalty, and has nothing to trust.
            "alpha": "marginal-likelihood" if fitted and self.alpha == "global-cv" else plain(self.alpha),
            "noise_model": self.noise_model,
            "others": self.others,
            "fit_intercept": bool(self.fit_intercept),
            "clip_norm": None if self.clip_norm is None else float(self.clip_norm),
            "folds": int(self.folds),
            "publish": float(self.publish),
            "response_bound": None if self.y_bounds is None else float(np.abs(self.y_bounds).max()),
            "fitted": fitted,
            "predicting": list(predicting),
        }
        trust = {"cross-validation": "trusted"} if self.alpha == "global-cv" and not fitted else {}
        return self._asked(cards, parameters, declared.derived, trust)

    # --- fit ---------------------------------------------------------------------------------------------------------------

    def _fit(self, table: Table, declared: Declared, response: NDArray[Any]) -> Self:
        study = self._study({ALL: table.n_rows}, declared)
        tables = tables_of(study, table, response) | {
            card.name: part(table, [column.name for column in card.columns], None)
            for card in study.parties
            if not card.labels
        }
        done = self._run(study, tables)
        estimated = {card.name for card in study.parties if card.labels}
        self.kept_ = {
            name: {key: values for (_, key), values in keeper.items()}
            for name, keeper in done.kept.items()
            if isinstance(keeper, MemoryKeeper) and name in estimated
        }
        self.published_ = {name: np.array(values) for name, values in done.outcome.result.published.items()}
        self.alpha_ = {name: float(kept["alpha"][0]) for name, kept in self.kept_.items()}
        gaps = {name: kept.get(published.DUALITY_GAP) for name, kept in self.kept_.items()}
        self.duality_gap_ = {name: float(gap[0]) for name, gap in gaps.items() if gap is not None}
        self._columns, self._promised = declared.columns, declared
        coded = Coding(declared.columns, 1).real([table[column.name] for column in declared.columns])
        self.coef_, self.intercept_ = in_own_units(
            self.plan_.design, self.kept_, declared.columns, coded.mean(axis=0), fit_intercept=self.fit_intercept
        )
        return self

    def _linear(self, X: ArrayLike) -> Vector:
        check_is_fitted(self)
        if np.isnan(self.coef_).any():
            msg = (
                "parties that only send have no coefficients, and their columns carry a part of every prediction: use predict_at at an "
                "estimating party, or leave estimating=None so that every party estimates"
            )
            raise UsageError(msg)
        return super()._linear(X)

    def _decision_at(self, party: str, X: ArrayLike) -> Vector:
        """Decision values of new rows at one party: the others release perturbed sketches of them (a ledger entry each)."""
        check_is_fitted(self)
        if not hasattr(self, "kept_"):
            raise UsageError(
                "this estimator was pickled or copied, and what its parties keep stays out of that: fit it here to predict at one "
                "party, or use predict, which needs all columns of the new rows"
            )
        if party not in self.kept_:
            msg = f"there is no party {party!r} that has estimated; there are {', '.join(self.kept_)}"
            raise UsageError(msg)
        new = Table(self._new(X))
        study = self._about(new.n_rows, self._promised, self.plan_.hash, (party,))
        keepers = {
            name: MemoryKeeper({(self.plan_.hash, key): v for key, v in kept.items()}) for name, kept in self.kept_.items()
        }
        self.prediction_plan_, found = run(MODEL, study, tables_of(study, new, None), keepers, self.budget)
        self.prediction_ledger_ = found.ledger
        predictions: Vector = found.kept[party].kept(self.prediction_plan_.hash, "predictions")
        return predictions

    def __getstate__(self) -> dict[str, Any]:
        """Without what the parties keep, which a file or a copy would carry away from them."""
        return {name: value for name, value in super().__getstate__().items() if name != "kept_"}


class PrideRegressor(RegressorMixin, _Pride):
    """Ridge regression on column-split data: every party fits its columns beside perturbed sketches of the others'.

    What crosses between the parties is private. What this object shows beyond that (``coef_``, ``intercept_``, ``alpha_``, ``kept_``,
    predictions, scores) is computed from raw data and would stay with the parties: show it to nobody who may not see their data.
    Pickles and copies hold what :meth:`predict` needs, and not ``kept_``.

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
        The noise whose guarantee is proved, or the paper's, which promises nothing.
    alpha : {"marginal-likelihood", "local-cv", "global-cv"} or float, default "marginal-likelihood"
        The penalty, as scikit-learn's alpha on columns scaled by their declared half width. "global-cv" is not private.
    sketch : {"srht", "gaussian", "dct"} or mapping from party names to public matrices, default "srht"
        The public random matrix that a party's columns are multiplied by before they get noise.
    sketch_dim : "auto", int or float, default "auto"
        Columns of a sketch: a number, or a fraction up to 1 of the party's columns. "auto" is 5 % of them, times epsilon where that is
        above 1, up to half. 0 sends nothing: each party has its own columns only (the semi-naive baseline if ``noise_model`` is not
        "gram").
    grids : mapping from party names to shapes, optional
        The shape of the grid that a party's columns lie on, for the sketch "dct".
    noise_model : {"gram", "calibrated", "plain"}, default "gram"
        What a party makes of the sketches that it received: a model of the others' Gram matrix from its own columns and the sketches'
        likelihood, regression calibration, or the paper's plain use of them. All three release the same.
    others : {"like mine", "copies", "unrelated"}, default "like mine"
        With ``noise_model="gram"``, what the study declares of the others' columns: that they relate to a party's own as halves of its
        own do to each other, that they measure the same variables again, or that they have nothing in common.
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
    published_ : dict
        Privately published coefficients of each party's coded columns.
    kept_ : dict
        What each party keeps for new rows: raw functions of its data, in no pickle and no copy.
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
    >>> from unpooled import PrideRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (400, 40))
    >>> y = X[:, 0] - X[:, 30] + 0.1 * rng.normal(size=400)
    >>> model = PrideRegressor(parties=2, bounds=(-1, 1), epsilon=5.0, sketch_dim=0.2).fit(X, y)
    >>> model.statement_.unit, model.plan_.epsilon(model.plan_.study.delta) <= 5.0
    ('attribute', True)

    """

    _task = "regression"

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit every party's columns."""
        table, response = self._read(X, y, y_numeric=True)
        return self._fit(table, self._declared(table.names, table), response.astype(np.float64))

    def predict(self, X: ArrayLike) -> Vector:
        """``X @ coef_ + intercept_``: needs all columns of the new rows in one place."""
        return self._linear(X)

    def predict_at(self, party: str, X: ArrayLike) -> Vector:
        """Predictions of new rows at one party, from its own columns and newly released sketches of the others'."""
        return self._decision_at(party, X)


class PrideClassifier(_Pride, DeclaredClassifier):
    """Logistic regression on column-split data, two classes; other parameters and attributes as for :class:`PrideRegressor`.

    What crosses between the parties is private. What this object shows beyond that (``coef_``, ``intercept_``, ``alpha_``, ``kept_``,
    predictions, scores) is computed from raw data and would stay with the parties: show it to nobody who may not see their data.
    Pickles and copies hold what :meth:`predict` needs, and not ``kept_``.

    Parameters
    ----------
    classes : (first, second), optional
        The declared labels, public like bounds. ``classes_`` holds them as :func:`numpy.unique` sorts them, whichever of them occur: data
        with one class fit, another label is an error. None reads them off ``y``, warns, and promises nothing.

    """

    _task = "classification"

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

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit every party's columns."""
        return self._fit(*self._labelled(X, y))

    def predict_at(self, party: str, X: ArrayLike) -> NDArray[Any]:
        """Classes of new rows at one party, from its own columns and newly released sketches of the others'."""
        return np.asarray(self.classes_[(self._decision_at(party, X) > 0).astype(int)])
