"""``PrideRegressor`` and ``PrideClassifier``: thin scikit-learn estimators over the PRIDE study, run in process."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from unpooled.errors import UsageError
from unpooled.models import load
from unpooled.models.pride.plan import parts
from unpooled.privacy.bounds import Bounds, Coding, Column
from unpooled.privacy.classes import DEFAULT, Classes
from unpooled.privacy.noise import seed_of
from unpooled.privacy.plan import BOUNDS, CLASSES, Card, Plan, Study, default_delta
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.keeper import MemoryKeeper
from unpooled.protocol.local import column_named, columns_of_parties, run_in_process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.privacy.budget import Budget
    from unpooled.privacy.statement import Statement

    Vector = NDArray[np.float64]

#: The label column of the in-process parties; no feature can be called so.
_RESPONSE = "(response)"


class _Pride(BaseEstimator):
    """What the two estimators share: columns to parties, study, run, coefficients back in the data's own units."""

    _task: str

    def __init__(
        self,
        parties: int | Mapping[str, Sequence[int | str]] = 2,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        bounds: Bounds | tuple[Any, Any] | None = None,
        y_bounds: tuple[float, float] | None = None,
        unit: str = "attribute",
        adjacency: str = "replace",
        calibration: str = "sound",
        alpha: float | str = "marginal-likelihood",
        sketch: str | Mapping[str, ArrayLike] = "srht",
        sketch_dim: float = 0.05,
        grids: Mapping[str, tuple[int, ...]] | None = None,
        noise_model: str = "calibrated",
        public: Sequence[int | str] = (),
        clip_norm: float | None = None,
        folds: int = 5,
        publish: float = 0.0,
        fit_intercept: bool = True,
        public_seed: int = 0,
        random_state: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.parties = parties
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.y_bounds = y_bounds
        self.unit = unit
        self.adjacency = adjacency
        self.calibration = calibration
        self.alpha = alpha
        self.sketch = sketch
        self.sketch_dim = sketch_dim
        self.grids = grids
        self.noise_model = noise_model
        self.public = public
        self.clip_norm = clip_norm
        self.folds = folds
        self.publish = publish
        self.fit_intercept = fit_intercept
        self.public_seed = public_seed
        self.random_state = random_state
        self.budget = budget

    # --- plan ------------------------------------------------------------------------------------------------------------

    def plan(self, n_samples: int, n_features: int) -> Plan:
        """The plan of a fit to data of this shape, without data."""
        names = [f"x{j}" for j in range(n_features)]
        columns = self._declared(None).columns(names)
        return load("pride").compile(self._study(n_samples, names, columns, self._classes(None), derived=()))

    def _declared(self, table: Table | None) -> Bounds:
        return Bounds.given(self.bounds, table, warn=not math.isinf(self.epsilon))

    def _classes(self, y: NDArray[Any] | None) -> tuple[str, str]:  # noqa: ARG002 - the classifier's are declared or read off y
        """The classes as the study names them; a regression has none and leaves them as they are."""
        return DEFAULT

    def _study(
        self,
        rows: int,
        names: list[str],
        columns: tuple[Column, ...],
        classes: tuple[str, str],
        *,
        derived: tuple[str, ...],
        fitted: str | None = None,
        predicting: tuple[str, ...] = (),
    ) -> Study:
        by_name = dict(zip(names, columns, strict=True))
        assigned = columns_of_parties(self.parties, names)
        cards = tuple(
            Card(party, rows, tuple(by_name[c] for c in held), labels=() if fitted else (_RESPONSE,))
            for party, held in assigned.items()
        )
        matrices = (
            {} if isinstance(self.sketch, str) else {k: np.asarray(v, dtype=float).tolist() for k, v in self.sketch.items()}
        )
        parameters: dict[str, Any] = {
            "response": _RESPONSE,
            "task": self._task,
            "classes": list(classes),
            "sketch": self.sketch if isinstance(self.sketch, str) else "matrix",
            "sketch_dim": _plain(self.sketch_dim),
            "grids": {k: [int(n) for n in v] for k, v in (self.grids or {}).items()},
            "matrices": matrices,
            "public": [column_named(names, column) for column in self.public],
            "alpha": _plain(self.alpha),
            "noise_model": self.noise_model,
            "fit_intercept": bool(self.fit_intercept),
            "clip_norm": None if self.clip_norm is None else float(self.clip_norm),
            "folds": int(self.folds),
            "publish": float(self.publish),
            "response_bound": None if self.y_bounds is None else float(np.abs(self.y_bounds).max()),
            "fitted": fitted,
            "predicting": list(predicting),
        }
        return Study(
            model="pride",
            parties=cards,
            epsilon=self.epsilon,
            delta=default_delta(rows) if self.delta is None else self.delta,
            unit=self.unit,
            adjacency=self.adjacency,
            calibration=self.calibration,
            parameters=parameters,
            trust={"cross-validation": "trusted"} if self.alpha == "global-cv" and not fitted else {},
            public_seed=self.public_seed,
            simulation_seed=seed_of(self.random_state),
            derived=derived,
        )

    # --- fit ---------------------------------------------------------------------------------------------------------------

    def _fit(self, X: NDArray[Any], response: NDArray[Any], classes: tuple[str, str], derived: tuple[str, ...] = ()) -> Self:
        names = [str(name) for name in getattr(self, "feature_names_in_", [f"x{j}" for j in range(X.shape[1])])]
        table = Table({name: X[:, j] for j, name in enumerate(names)})
        columns = self._declared(table).columns(names)
        study = self._study(
            X.shape[0], names, columns, classes, derived=(*(() if self.bounds is not None else (BOUNDS,)), *derived)
        )
        model = load("pride")
        plan = model.compile(study)
        tables = {
            card.name: Table({**{c.name: table[c.name] for c in card.columns}, _RESPONSE: response})
            for card in study.parties
        }
        run = run_in_process(model, plan, tables, Policy.in_process(), load, budget=self.budget)
        self.plan_, self.ledger_, self.communication_ = plan, run.ledger, run.outcome.communication
        self.kept_ = {
            name: {key: values for (_, key), values in keeper.items()}
            for name, keeper in run.kept.items()
            if isinstance(keeper, MemoryKeeper)
        }
        self.published_ = {name: np.array(values) for name, values in run.outcome.result.published.items()}
        self.alpha_ = {name: float(kept["alpha"][0]) for name, kept in self.kept_.items()}
        self._columns = columns
        self._unscale(table, columns)
        return self

    def _unscale(self, table: Table, columns: tuple[Column, ...]) -> None:
        """Coefficients of the coded columns to those of the data's own: b / half width, the intercept takes up the centres."""
        coding = Coding(columns, 1)
        coded = coding.real([table[name] for name in coding.names])
        first = {
            column.name: int(i)
            for column, i in zip(columns, np.searchsorted(coding.attribute, range(len(columns))), strict=True)
        }
        coefficients = np.zeros(coded.shape[1])
        for part in parts(self.plan_.study):
            kept = iter(self.kept_[part.card.name]["coded_coefficients"].tolist())
            for half in (part.private, part.public):
                for j, column in enumerate(half.columns):
                    for k in range(half.attribute.count(j)):
                        coefficients[first[column.name] + k] = next(kept)
        decision = float(np.mean([kept["mean_decision"][0] for kept in self.kept_.values()]))
        intercept = decision - float(coded.mean(axis=0) @ coefficients)
        if not self.fit_intercept and self.calibration != "published":
            intercept = 0.0
        for column in columns:
            if column.categories is None:
                at = first[column.name]
                coefficients[at] /= column.half_width
                intercept -= column.centre * coefficients[at]
        self.coef_, self.intercept_ = coefficients, float(intercept)

    def _decision(self, X: ArrayLike) -> Vector:
        check_is_fitted(self)
        array = validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite=self._finite())
        if self.coef_.size != array.shape[1]:  # categories and missing-value indicators have columns of their own
            array = Coding(self._columns, 1).natural(array.T)
        decision: Vector = array @ self.coef_ + self.intercept_
        return decision

    def _finite(self) -> bool | str:
        refuses = not isinstance(self.bounds, Bounds) or self.bounds.missing == "refuse"
        return True if refuses else "allow-nan"

    def _decision_at(self, party: str, X: ArrayLike) -> Vector:
        """Decision values of new rows at one party: the others release perturbed sketches of them (a ledger entry each)."""
        check_is_fitted(self)
        array = validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite=self._finite())
        if not hasattr(self, "kept_"):
            raise UsageError(
                "this estimator was pickled or copied, and what its parties keep stays out of that: fit it here to predict at one "
                "party, or use predict, which needs all columns of the new rows"
            )
        if party not in self.kept_:
            msg = f"there is no party {party!r}; there are {', '.join(self.kept_)}"
            raise UsageError(msg)
        names = [column.name for column in self._columns]
        fitted = self.plan_.study
        classes = tuple(fitted.parameters["classes"])
        study = self._study(
            array.shape[0],
            names,
            self._columns,
            classes,
            derived=fitted.derived,
            fitted=self.plan_.hash,
            predicting=(party,),
        )
        model = load("pride")
        plan = model.compile(study)
        at = {name: j for j, name in enumerate(names)}
        tables = {card.name: Table({c.name: array[:, at[c.name]] for c in card.columns}) for card in study.parties}
        keepers = {
            name: MemoryKeeper({(self.plan_.hash, key): v for key, v in kept.items()}) for name, kept in self.kept_.items()
        }
        run = run_in_process(model, plan, tables, Policy.in_process(), load, keepers, budget=self.budget)
        self.prediction_plan_, self.prediction_ledger_ = plan, run.ledger
        predictions: Vector = run.kept[party].kept(plan.hash, "predictions")
        return predictions

    @property
    def statement_(self) -> Statement:
        """What the fit promises, and what it does not."""
        check_is_fitted(self)
        return self.plan_.statement

    def __getstate__(self) -> dict[str, Any]:
        """Without what the parties keep, which a file or a copy would carry away from them."""
        return {name: value for name, value in super().__getstate__().items() if name != "kept_"}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")


class PrideRegressor(RegressorMixin, _Pride):
    """Ridge regression on column-split data: every party fits its columns beside perturbed sketches of the others'.

    What crosses between the parties is private. What this object shows beyond that (``coef_``, ``intercept_``, ``alpha_``, ``kept_``,
    predictions, scores) is computed from raw data and would stay with the parties: show it to nobody who may not see their data.
    Pickles and copies hold what :meth:`predict` needs, and not ``kept_``.

    Parameters
    ----------
    parties : int or mapping from party names to columns (indices or names)
        An int splits the columns evenly.
    epsilon, delta, unit, adjacency
        The privacy asked for: one value of one person (unit "attribute", the paper's S-differential privacy) or a whole row
        ("record", sketched rows are then shortened to ``clip_norm``). ``delta=None`` is min(1e-5, 0.1/n); ``epsilon=inf`` is DUAL-LOCO.
    bounds : Bounds or (low, high)
        Declared ranges; they also set centre and scale of every column. None derives them, warns, and promises nothing.
    y_bounds : (low, high), optional
        Needed only to publish the coefficients of a regression; otherwise the response stays with the parties.
    calibration : "sound" or "published"
    alpha : "marginal-likelihood", "local-cv", "global-cv" (not private), or a number
        The penalty, as scikit-learn's alpha on columns scaled by their declared half width.
    sketch : "srht", "gaussian", "dct", or a mapping from party names to public matrices
    sketch_dim : int, or float as a fraction of a party's columns; 0 is the semi-naive baseline (nothing is sent)
    grids : mapping from party names to the shape of the grid its columns lie on (dct)
    noise_model : "calibrated" or "plain"
        Regression calibration of the received sketches, or the paper's plain use of them.
    public : columns that are not sensitive and sent as they are
    publish : share of the squared budget
        Releases the coefficients too (``published_``, of the coded columns); needs a number ``alpha``, ``fit_intercept=False`` and
        ``noise_model="plain"``, because everything else reads the data. 0 keeps them at their parties.
    budget : Budget, optional
        A total that several fits and predictions on the same people share.
    clip_norm, folds, fit_intercept, public_seed, random_state
        ``random_state`` makes the noise a reproducible simulation that protects nobody.

    Attributes
    ----------
    coef_, intercept_ : in the data's own units (one coefficient per category where categories are declared)
    alpha_ : the penalty of each party
    published_ : privately published coefficients of each party's coded columns
    kept_ : what each party keeps for new rows: raw functions of its data, in no pickle and no copy
    statement_, plan_, ledger_, communication_

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
        X, y = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2, ensure_all_finite=self._finite()
        )
        return self._fit(np.asarray(X), np.asarray(y, dtype=np.float64), DEFAULT)

    def predict(self, X: ArrayLike) -> Vector:
        """``X @ coef_ + intercept_``: needs all columns of the new rows in one place."""
        return self._decision(X)

    def predict_at(self, party: str, X: ArrayLike) -> Vector:
        """Predictions of new rows at one party, from its own columns and newly released sketches of the others'."""
        return self._decision_at(party, X)


class PrideClassifier(ClassifierMixin, _Pride):
    """Logistic regression on column-split data, two classes; other parameters and attributes as for :class:`PrideRegressor`.

    What crosses between the parties is private. What this object shows beyond that (``coef_``, ``intercept_``, ``alpha_``, ``kept_``,
    predictions, scores) is computed from raw data and would stay with the parties: show it to nobody who may not see their data.
    Pickles and copies hold what :meth:`predict` needs, and not ``kept_``.

    Parameters
    ----------
    classes : (first, second)
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
        bounds: Bounds | tuple[Any, Any] | None = None,
        y_bounds: tuple[float, float] | None = None,
        classes: Sequence[object] | None = None,
        unit: str = "attribute",
        adjacency: str = "replace",
        calibration: str = "sound",
        alpha: float | str = "marginal-likelihood",
        sketch: str | Mapping[str, ArrayLike] = "srht",
        sketch_dim: float = 0.05,
        grids: Mapping[str, tuple[int, ...]] | None = None,
        noise_model: str = "calibrated",
        public: Sequence[int | str] = (),
        clip_norm: float | None = None,
        folds: int = 5,
        publish: float = 0.0,
        fit_intercept: bool = True,
        public_seed: int = 0,
        random_state: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(
            parties,
            epsilon=epsilon,
            delta=delta,
            bounds=bounds,
            y_bounds=y_bounds,
            unit=unit,
            adjacency=adjacency,
            calibration=calibration,
            alpha=alpha,
            sketch=sketch,
            sketch_dim=sketch_dim,
            grids=grids,
            noise_model=noise_model,
            public=public,
            clip_norm=clip_norm,
            folds=folds,
            publish=publish,
            fit_intercept=fit_intercept,
            public_seed=public_seed,
            random_state=random_state,
            budget=budget,
        )
        self.classes = classes

    def _classes(self, y: NDArray[Any] | None) -> tuple[str, str]:
        return Classes.given(self.classes, y).texts

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit every party's columns."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2, ensure_all_finite=self._finite())
        check_classification_targets(y)
        labels = np.asarray(y)
        classes = Classes.given(self.classes, labels, warn=not math.isinf(self.epsilon))
        self.classes_ = classes.labels
        return self._fit(np.asarray(X), classes.column(labels), classes.texts, (CLASSES,) if classes.derived else ())

    def decision_function(self, X: ArrayLike) -> Vector:
        """``X @ coef_ + intercept_``; positive means ``classes_[1]``."""
        return self._decision(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The more likely class of every row."""
        decision = self._decision(X)
        return np.asarray(self.classes_[(decision > 0).astype(int)])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of the two classes."""
        positive = 1 / (1 + np.exp(-np.clip(self._decision(X), -500, 500)))
        return np.column_stack([1 - positive, positive])

    def predict_at(self, party: str, X: ArrayLike) -> NDArray[Any]:
        """Classes of new rows at one party, from its own columns and newly released sketches of the others'."""
        return np.asarray(self.classes_[(self._decision_at(party, X) > 0).astype(int)])

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - scikit-learn ships no types
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def _plain(value: Any) -> Any:  # noqa: ANN401 - a NumPy number, a number or a word
    return value.item() if isinstance(value, np.generic) else value
