"""``PrivateLogisticRegression`` and ``PrivateStackingClassifier``: thin scikit-learn estimators over the stacking study, run in process."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from unpooled.errors import UsageError
from unpooled.models import load
from unpooled.models.stacking.plan import META_ROLE, Block, Meta, setup
from unpooled.privacy.bounds import Bounds, Column
from unpooled.privacy.classes import Classes
from unpooled.privacy.noise import seed_of
from unpooled.privacy.plan import BOUNDS, CLASSES, Card, Plan, Study, default_delta
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import columns_of_parties, run_in_process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.models.stacking.coordinator import Result
    from unpooled.privacy.budget import Budget
    from unpooled.privacy.statement import Statement

    Vector = NDArray[np.float64]

#: The label column of the in-process parties; no feature can be called so.
_RESPONSE = "(response)"
_ALL = "all"


class _Stack(ClassifierMixin, BaseEstimator):
    """What the two estimators share: validated labels, study, run."""

    epsilon: float
    delta: float | None
    bounds: Bounds | tuple[Any, Any] | None
    classes: Sequence[object] | None
    adjacency: str
    calibration: str
    penalty: float
    fit_intercept: bool
    public_seed: int
    random_state: int | None
    budget: Budget | None

    def _validated(self, X: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], NDArray[Any], Classes]:
        """Rows, labels as a party's table holds them, and the classes."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2, ensure_all_finite=self._finite())
        check_classification_targets(y)
        labels = np.asarray(y)
        classes = Classes.given(self.classes, labels, warn=not math.isinf(self.epsilon))
        self.classes_ = classes.labels
        return np.asarray(X), classes.column(labels), classes

    def _names(self, width: int) -> list[str]:
        return [str(name) for name in getattr(self, "feature_names_in_", [f"x{j}" for j in range(width)])]

    def _study(self, cards: tuple[Card, ...], parameters: dict[str, Any], meta: str, classes: Classes) -> Study:
        norm = self.bounds.norm if isinstance(self.bounds, Bounds) else None
        shared = {
            "response": _RESPONSE,
            "classes": list(classes.texts),
            "penalty": float(self.penalty),
            "norm": None if norm is None else float(norm),
            "fit_intercept": bool(self.fit_intercept),
        }
        pure = meta != Meta.PERTURBED  # then delta plays no part
        delta = (0.0 if pure else default_delta(cards[0].rows)) if self.delta is None else self.delta
        return Study(
            model="stacking",
            parties=cards,
            epsilon=self.epsilon,
            delta=delta,
            adjacency=self.adjacency,
            calibration=self.calibration,
            parameters={**shared, **parameters},
            trust={META_ROLE: meta},
            public_seed=self.public_seed,
            simulation_seed=seed_of(self.random_state),
            derived=(*(() if self.bounds is not None else (BOUNDS,)), *((CLASSES,) if classes.derived else ())),
        )

    def _run(self, study: Study, tables: dict[str, Table]) -> Result:
        model = load("stacking")
        plan = model.compile(study)
        run = run_in_process(model, plan, tables, Policy.in_process(), load, budget=self.budget)
        self.plan_, self.ledger_, self.communication_ = plan, run.ledger, run.outcome.communication
        self.released_ = {m.party: list(m.weights) for m in run.outcome.result.models}
        result: Result = run.outcome.result
        return result

    def _columns(self, features: Table) -> tuple[Column, ...]:
        return Bounds.given(self.bounds, features, warn=not math.isinf(self.epsilon)).columns(features.names)

    def _finite(self) -> bool | str:
        refuses = not isinstance(self.bounds, Bounds) or self.bounds.missing == "refuse"
        return True if refuses else "allow-nan"

    def _rows(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite=self._finite()))

    @property
    def statement_(self) -> Statement:
        """What the fit promises, and what it does not."""
        check_is_fitted(self)
        return self.plan_.statement

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "plan_")

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - scikit-learn ships no types
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class PrivateLogisticRegression(_Stack):
    """Logistic regression of two classes by objective perturbation: pure epsilon, one party.

    Parameters
    ----------
    epsilon, adjacency
        The privacy asked for, per row and label. ``epsilon=inf`` is scikit-learn's LogisticRegression with C = 1/(n penalty) on scaled rows.
    bounds : Bounds or (low, high)
        Declared ranges, or ``Bounds(norm=R)``: rows are scaled to length 1 by them. None derives them, warns, promises nothing.
    classes : (first, second)
        The declared labels, public like bounds. ``classes_`` holds them as :func:`numpy.unique` sorts them, whichever of them occur: data
        with one class fit, another label is an error. None reads them off ``y``, warns, and promises nothing.
    penalty : float
        lambda of the mean loss, on scaled rows. The constant is penalised with the rest.
    calibration : "sound" (one Jacobian factor, residual covered) or "published"
    source : list of released weights, optional
        The weights (``released_["all"]``) of another fit of the same columns, to which the penalty pulls instead of to 0.
    budget : Budget, optional
        A total that several fits on the same people share.
    delta, fit_intercept, public_seed, random_state
        ``random_state`` makes the noise a reproducible simulation that protects nobody.

    Attributes
    ----------
    coef_, intercept_ : in the data's own units, shapes (1, columns) and (1,) as in scikit-learn. They were learned on rows clipped to their
        bounds; predictions are ``X @ coef_`` of the rows as they are, also beyond them.
    released_ : the weights as released, for scaled rows, under "all"
    classes_, statement_, plan_, ledger_, communication_

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import PrivateLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (4000, 3))
    >>> y = np.where(X[:, 0] > X[:, 1], "ill", "well")
    >>> model = PrivateLogisticRegression(epsilon=1.0, bounds=(-1, 1), classes=("ill", "well"), random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    >>> model.plan_.epsilon(0.0) <= 1.0
    True

    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        bounds: Bounds | tuple[Any, Any] | None = None,
        classes: Sequence[object] | None = None,
        adjacency: str = "replace",
        calibration: str = "sound",
        penalty: float = 0.01,
        source: Sequence[float] | None = None,
        fit_intercept: bool = True,
        public_seed: int = 0,
        random_state: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.adjacency = adjacency
        self.calibration = calibration
        self.penalty = penalty
        self.source = source
        self.fit_intercept = fit_intercept
        self.public_seed = public_seed
        self.random_state = random_state
        self.budget = budget

    def plan(self, n_samples: int, n_features: int) -> Plan:
        """The plan of a fit to data of this shape, without data."""
        columns = Bounds.given(self.bounds, None).columns([f"x{j}" for j in range(n_features)])
        return load("stacking").compile(self._one(n_samples, columns, Classes.given(self.classes)))

    def _one(self, rows: int, columns: tuple[Column, ...], classes: Classes) -> Study:
        source = {} if self.source is None else {_ALL: [float(w) for w in self.source]}
        card = Card(_ALL, rows, columns, labels=(_RESPONSE,))
        return self._study((card,), {"split": "samples", "source": source}, Meta.PUBLIC, classes)

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Release the minimiser of the perturbed objective."""
        X, labels, classes = self._validated(X, y)
        features = Table({name: X[:, j] for j, name in enumerate(self._names(X.shape[1]))})
        columns = self._columns(features)
        study = self._one(X.shape[0], columns, classes)
        table = Table({**{name: features[name] for name in features.names}, _RESPONSE: labels})
        (only,) = self._run(study, {_ALL: table}).models
        self.coef_, self.intercept_ = np.array([only.coefficients]), np.array([only.intercept])
        self._coding = setup(study).blocks[0].coding
        return self

    def decision_function(self, X: ArrayLike) -> Vector:
        """``X @ coef_[0] + intercept_``; positive means ``classes_[1]``."""
        rows = self._rows(X)
        if rows.shape[1] != self.coef_.shape[1]:  # categories and missing-value indicators have columns of their own
            rows = self._coding.natural(list(rows.T))
        decision: Vector = rows @ self.coef_[0] + self.intercept_[0]
        return decision

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of the two classes."""
        positive = expit(self.decision_function(X))
        return np.column_stack([1 - positive, positive])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The more likely class of every row."""
        decision = self.decision_function(X)
        return np.asarray(self.classes_[(decision > 0).astype(int)])


class PrivateStackingClassifier(_Stack):
    """A stack of private logistic regressions over column groups (PST-F) or over sites (PST-S), and transfer between sites (PST-H).

    Parameters
    ----------
    parties : int or mapping from party names to columns (indices or names)
        Where columns are split. An int makes so many groups: of falling importance if ``importance`` is given, else random and equal.
        Where rows are split without ``sites``, the number of random groups of rows.
    split : "features" or "samples"
    importance : per column (``parties`` an int) or per party (a mapping), optional
        Public. The budget's shares q_k are proportional to a group's importance; a group of importance 0 is dropped. None: equal shares.
    meta : "public-weights", "trusted" or "perturbed" (columns split); "public-weights" or "high-level" (rows split)
        How low-level models are combined: by their public shares; by a model learned from predictions that a trusted coordinator sees,
        or that are released with noise; by a model that one site (``holder``, default the last) learns on rows of its own.
    combiner : "probability", "majority" or "weighted-majority"
        How public weights are applied. A learned high level replaces it.
    source : released weights per party, optional
        ``released_`` of a fit with the same columns elsewhere: the penalty pulls to them (PST-H).
    epsilon, delta, bounds, classes, adjacency, calibration, penalty, high_share, predictions_share, fit_intercept, public_seed, random_state, budget
        As for :class:`PrivateLogisticRegression`; ``high_share`` of the rows is kept for a learned high level.

    Attributes
    ----------
    models_ : the low-level models, with shares, weights and coefficients in the data's own units
    high_ : weights of the high-level model, empty if there is none. It sees low-level predictions of rows clipped to their bounds, learning
        and predicting; without it predictions are of the rows as they are, as ``models_``' coefficients give them.
    released_ : weights per party, for ``source``
    classes_, statement_, plan_, ledger_, communication_

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import PrivateStackingClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (4000, 4))
    >>> y = X[:, 0] + X[:, 3] > 0
    >>> parties = {"clinic": [0, 1], "lab": [2, 3]}
    >>> model = PrivateStackingClassifier(parties, epsilon=4.0, bounds=(-1, 1), classes=(False, True), random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.85
    True

    """

    def __init__(
        self,
        parties: int | Mapping[str, Sequence[int | str]] = 2,
        *,
        split: str = "features",
        epsilon: float = 1.0,
        delta: float | None = None,
        bounds: Bounds | tuple[Any, Any] | None = None,
        classes: Sequence[object] | None = None,
        adjacency: str = "replace",
        calibration: str = "sound",
        importance: Any = None,  # noqa: ANN401 - an array per column or a mapping per party
        meta: str = "public-weights",
        combiner: str = "probability",
        source: Mapping[str, Sequence[float]] | None = None,
        penalty: float = 0.01,
        holder: str | None = None,
        high_share: float = 0.2,
        predictions_share: float = 0.5,
        fit_intercept: bool = True,
        public_seed: int = 0,
        random_state: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.parties = parties
        self.split = split
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.adjacency = adjacency
        self.calibration = calibration
        self.importance = importance
        self.meta = meta
        self.combiner = combiner
        self.source = source
        self.penalty = penalty
        self.holder = holder
        self.high_share = high_share
        self.predictions_share = predictions_share
        self.fit_intercept = fit_intercept
        self.public_seed = public_seed
        self.random_state = random_state
        self.budget = budget

    # --- groups ------------------------------------------------------------------------------------------------------------

    def _groups(self, names: list[str]) -> tuple[dict[str, list[str]], dict[str, float]]:
        """Columns and importance of every party."""
        if not isinstance(self.parties, int):
            groups = columns_of_parties(self.parties, names)
            given = self.importance or {}
            if not hasattr(given, "items"):
                raise UsageError("where parties are named, importance is a mapping from their names to public numbers")
            return groups, {party: float(q) for party, q in given.items()}
        count = min(self.parties, len(names))
        if count < 1:
            raise UsageError("parties must be at least 1, or a mapping from names to columns")
        if self.importance is None:
            order = np.random.default_rng(self.public_seed).permutation(len(names))
            weight = np.ones(len(names))
        else:
            weight = np.asarray(self.importance, dtype=float)
            if weight.shape != (len(names),) or not (np.isfinite(weight).all() and weight.min() >= 0 and weight.max() > 0):
                raise UsageError("importance holds one public number >= 0 for every column, not all of them 0")
            order = np.argsort(-weight, kind="stable")
        parts = np.array_split(order, count)
        groups = {f"group{k}": [names[j] for j in part] for k, part in enumerate(parts)}
        if self.importance is None:
            return groups, {}
        return groups, {f"group{k}": float(weight[part].sum()) for k, part in enumerate(parts)}

    # --- fit -----------------------------------------------------------------------------------------------------------------

    def fit(self, X: ArrayLike, y: ArrayLike, sites: Sequence[object] | None = None) -> Self:
        """Release the low-level models, and learn the high level where it is asked for (``sites``: a label per row, rows split)."""
        X, labels, classes = self._validated(X, y)
        if self.combiner not in {"probability", "majority", "weighted-majority"}:
            msg = f"combiner is probability, majority or weighted-majority, not {self.combiner!r}"
            raise UsageError(msg)
        names = self._names(X.shape[1])
        features = Table({name: X[:, j] for j, name in enumerate(names)})
        columns = dict(zip(names, self._columns(features), strict=True))
        if self.split == "samples":
            study, tables = self._by_rows(features, columns, labels, classes, sites)
        else:
            if sites is not None:
                raise UsageError('sites belong to split="samples": where columns are split, name the parties\' columns')
            study, tables = self._by_columns(features, columns, labels, classes)
        result = self._run(study, tables)
        self.models_, self.high_ = result.models, np.array(result.high)
        self._blocks: tuple[Block, ...] = setup(study).blocks
        self._names_ = names
        return self

    def _by_columns(
        self, features: Table, columns: dict[str, Column], labels: NDArray[Any], classes: Classes
    ) -> tuple[Study, dict[str, Table]]:
        groups, importance = self._groups(list(features.names))
        cards = tuple(
            Card(party, features.n_rows, tuple(columns[c] for c in held), labels=(_RESPONSE,))
            for party, held in groups.items()
        )
        parameters = {
            "split": self.split,
            "importance": importance,
            "holder": self.holder or "",
            "high_share": float(self.high_share),
            "predictions_share": float(self.predictions_share),
            "source": {party: [float(w) for w in weights] for party, weights in (self.source or {}).items()},
        }
        study = self._study(cards, parameters, self.meta, classes)
        tables = {party: Table({**{c: features[c] for c in held}, _RESPONSE: labels}) for party, held in groups.items()}
        return study, tables

    def _by_rows(
        self,
        features: Table,
        columns: dict[str, Column],
        labels: NDArray[Any],
        classes: Classes,
        sites: Sequence[object] | None,
    ) -> tuple[Study, dict[str, Table]]:
        if self.meta not in {"public-weights", "high-level"}:
            msg = f'where rows are split, meta is "public-weights" or "high-level", not {self.meta!r}'
            raise UsageError(msg)
        if sites is None:
            if not isinstance(self.parties, int) or self.parties < 1:
                raise UsageError("where rows are split, give sites=, or a number of parties to deal the rows to")
            count = self.parties + (self.meta == "high-level")
            dealt = np.random.default_rng(self.public_seed).permutation(features.n_rows) % count
            sites = [f"group{k:03d}" for k in dealt.tolist()]
        table = Table({**{name: features[name] for name in features.names}, _RESPONSE: labels})
        tables = table.by_site(sites)
        cards = tuple(Card(name, t.n_rows, tuple(columns.values()), labels=(_RESPONSE,)) for name, t in tables.items())
        holder = (self.holder or cards[-1].name) if self.meta == "high-level" else ""
        parameters = {
            "split": "samples",
            "holder": holder,
            "source": {party: [float(w) for w in weights] for party, weights in (self.source or {}).items()},
        }
        return self._study(cards, parameters, Meta.PUBLIC, classes), tables

    # --- predict -------------------------------------------------------------------------------------------------------------

    def _low(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of ``classes_[1]`` by every low-level model."""
        rows = self._rows(X)
        table = {name: rows[:, j] for j, name in enumerate(self._names_)}
        columns = []
        for block, model in zip(self._blocks, self.models_, strict=True):
            if self.high_.size:  # learned on predictions of clipped and shortened rows: applied to the same
                own = block.rows(Table({name: table[name] for name in block.coding.names}))
                columns.append(expit(own @ np.array(model.weights)))
                continue
            natural = block.coding.natural([table[name] for name in block.coding.names])
            columns.append(expit(natural @ np.array(model.coefficients) + model.intercept))
        return np.column_stack(columns)

    def decision_function(self, X: ArrayLike) -> Vector:
        """Positive means ``classes_[1]``: the high level's decision, or log odds of the combined probability."""
        low = self._low(X)
        if self.high_.size:
            features = np.column_stack([2 * low - 1, np.ones(low.shape[0])])[:, : self.high_.size]
            decision: Vector = features @ self.high_ / math.sqrt(self.high_.size)
            return decision
        share = np.array([model.share for model in self.models_])
        votes = low if self.combiner == "probability" else (low > 0.5).astype(float)  # noqa: PLR2004 - the more likely class
        weight = np.ones_like(share) if self.combiner == "majority" else share
        positive = np.clip(votes @ weight / weight.sum(), 1e-12, 1 - 1e-12)
        return np.asarray(np.log(positive) - np.log1p(-positive))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of the two classes."""
        positive = expit(self.decision_function(X))
        return np.column_stack([1 - positive, positive])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The more likely class of every row."""
        decision = self.decision_function(X)
        return np.asarray(self.classes_[(decision > 0).astype(int)])
