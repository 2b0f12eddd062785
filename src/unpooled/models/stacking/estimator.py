"""``PrivateLogisticRegression`` and ``PrivateStackingClassifier``: thin scikit-learn estimators over the stacking study, run in process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError
from unpooled.estimation.base import ALL, Declared, cards_of, tables_of
from unpooled.estimation.parameters import LIST, MAPPING, NONE, NUMBER, NUMBERS, SHARED, WHOLE, WORD, check, plain, taking
from unpooled.estimation.tables import RESPONSE, part
from unpooled.models.stacking.combining import combined
from unpooled.models.stacking.groups import dealt, weighed
from unpooled.models.stacking.outcomes import MULTINOMIAL, meta_rows
from unpooled.models.stacking.plan import AUTO, SHORTEN, Meta, rates_of
from unpooled.models.stacking.pooled import PooledLogistic
from unpooled.models.stacking.shared import StackEstimator
from unpooled.privacy.plan import Card, Plan, Study

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from unpooled.privacy.bounds import Bounds
    from unpooled.privacy.budget import Budget

    Vector = NDArray[np.float64]


class PrivateLogisticRegression(PooledLogistic):
    """Logistic regression of two classes: by objective perturbation at one party, or by rounds over the totals of one or several.

    Parameters
    ----------
    epsilon : float, default 1.0
        The privacy asked for, for each row and label. ``inf``: scikit-learn's LogisticRegression, C = 1/(n penalty), no promise.
    delta : float, optional
        None is 0: a pure promise, by perturbation at one party. With a delta there are rounds, and Gaussian noise.
    bounds : Bounds, (low, high), or mapping from column names to ranges or categories, optional
        Declared ranges; by them, or by ``Bounds(norm=R)``, rows are scaled to length 1. None reads them off the data, and
        promises nothing.
    classes : list of labels, optional
        The declared labels, two or more, public like bounds; ``classes_`` holds them sorted, whichever of them occur. Another label is an error. None
        reads them off ``y``, warns, and promises nothing.
    adjacency : {"replace", "zero-out"}, default "replace"
        How two neighbouring data sets differ: one becomes any other admissible one, or contributes nothing.
    calibration : {"sound", "published"}, default "sound"
        The sound form counts one Jacobian factor and covers the solver's residual. The published one promises nothing.
    method : {"auto", "perturbation", "rounds", "moments"}, default "auto"
        "rounds" (as :class:`PrivateGLM`) pool the rows of any number of sites and need a ``delta``; so do "moments", for rows with a bound on
        their length or all of one. "auto" takes them wherever slopes can be learnt, before data; not where ``penalty``, ``noise`` or
        ``source`` ask for perturbation.
    aggregation : {"distributed", "trusted", "local"}, default "distributed"
        Of rounds: who adds the noise, all sites in parts, one of them that the others trust, or each all of it.
    tolerate : int, default 0
        Of rounds: the sites that may collude or drop out.
    nodes : list of site names, default ()
        Of rounds: sites that may be nodes of the secure sum, or the trusted one. Empty: all of them, or the first.
    penalty : float or "auto", default "auto"
        lambda of the mean loss, on scaled rows. The constant is penalised with the rest. "auto" is 0.1 d / (n epsilon), at most one half.
    noise : {"auto", "gamma", "gaussian"}, default "auto"
        The law of the perturbation. "gamma" is pure; "gaussian" needs a ``delta``, and is what "auto" takes where there is one and it is shorter.
    rows : {"shorten", "unit"}, default "shorten"
        "unit" scales every row to one length, which suits texts and spectra: predictions then depend on a row's direction alone, and ``coef_``
        is of such rows.
    multi_class : {"multinomial", "one-vs-rest"}, default "multinomial"
        Of perturbation with more than two classes: one softmax fit, or one fit for each class, which all together cost the budget.
    source : list of float, optional
        Weights (``released_["all"]``) of another fit of the same columns, to which the penalty pulls instead of to 0.
    fit_intercept : bool, default True
        Whether to fit a constant.
    public_seed : int, default 0
        Seed of the public randomness.
    random_state : int, optional
        A seed makes the noise reproducible, and the fit a simulation that protects nobody. None draws real noise.
    budget : Budget, optional
        A total that several fits on the same people share.

    Attributes
    ----------
    coef_, intercept_ : arrays of shapes (1, columns) and (1,), or a row for each of more than two classes
        Coefficients and constant in the data's own units, learned on rows clipped to their bounds; predictions use the rows as they are.
    method_, classes_
        "perturbation" or "rounds"; and the two labels.
    released_
        Of perturbation: the weights as released, for scaled rows, under "all".
    statement_, plan_, ledger_, communication_
        What is promised and what is not; what was released, with which noise; what was debited; bytes sent and received.

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

    _parameter_constraints: ClassVar = (
        SHARED
        | taking("source", NUMBERS, NONE)
        | taking("penalty", NUMBER, WORD)
        | taking("noise rows method multi_class", WORD)
    )

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None,
        classes: Sequence[object] | None = None,
        adjacency: str = "replace",
        calibration: str = "sound",
        method: str = "auto",
        aggregation: str = "distributed",
        tolerate: int = 0,
        nodes: Sequence[str] = (),
        penalty: float | str = AUTO,
        noise: str = AUTO,
        rows: str = SHORTEN,
        multi_class: str = MULTINOMIAL,
        source: Sequence[float] | None = None,
        fit_intercept: bool = True,
        public_seed: int = 0,
        random_state: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(epsilon, delta, bounds, adjacency, calibration, public_seed, random_state, budget)
        self.classes = classes
        self.method = method
        self.aggregation = aggregation
        self.tolerate = tolerate
        self.nodes = nodes
        self.penalty = penalty
        self.noise = noise
        self.rows = rows
        self.multi_class = multi_class
        self.source = source
        self.fit_intercept = fit_intercept


class PrivateStackingClassifier(StackEstimator):
    """A stack of private logistic regressions over column groups (PST-F) or over sites (PST-S), and transfer between sites (PST-H).

    Parameters
    ----------
    parties : int or mapping from party names to columns (indices or names), default 2
        Where columns are split. An int makes so many groups: of falling importance if ``importance`` is given, else random and equal.
        Where rows are split without ``sites``, the number of random groups of rows.
    split : {"features", "samples"}, default "features"
        Whether parties hold columns or rows.
    epsilon : float, default 1.0
        The privacy asked for, for each row and label: smaller protects more. ``inf`` adds no noise and promises nothing.
    delta : float, optional
        None is 0, or min(1e-5, 0.1 / n) with ``meta="perturbed"``, which alone needs it.
    bounds : Bounds, (low, high), or mapping from column names to ranges or categories, optional
        Declared ranges; by them, or by ``Bounds(norm=R)``, rows are scaled to length 1. None reads them off the data, and
        promises nothing.
    classes : list of labels, optional
        The declared labels, as for :class:`PrivateLogisticRegression`.
    adjacency : {"replace", "zero-out"}, default "replace"
        How two neighbouring data sets differ: one becomes any other admissible one, or contributes nothing.
    calibration : {"sound", "published"}, default "sound"
        The sound form counts one Jacobian factor and covers the solver's residual. The published one promises nothing.
    importance : array with a number for each column, or mapping from party names, optional
        Public. The budget's shares q_k are proportional to a group's importance; a group of importance 0 is dropped. None: equal shares.
    meta : {"public-weights", "trusted", "perturbed", "high-level"}, default "public-weights"
        How low-level models are combined: by their public shares; by a model learned from predictions that a trusted coordinator sees,
        or that are released with noise (columns split); by a model that one site learns on rows of its own (rows split).
    combiner : {"probability", "majority", "weighted-majority", "log-odds"}, default "probability"
        How public weights are applied. "log-odds" adds the models' log odds, less what they all know of the base rate (columns split), over
        their number: averages of probabilities pull to the base rate. A learned high level replaces it.
    prior : float or list of floats, default 0.5
        With "log-odds" and split columns, the declared base rate of ``classes_[1]``, or those of all classes; 0.5 takes classes as equally
        frequent.
    source : mapping from party names to released weights, optional
        ``released_`` of a fit with the same columns elsewhere: the penalty pulls to them (PST-H).
    penalty : float or "auto", default "auto"
        lambda of the mean loss, on scaled rows; as for :class:`PrivateLogisticRegression`, of the widest low-level model.
    noise : {"auto", "gamma", "gaussian"}, default "auto"
        As there. Low-level models of the same rows compose; a high level that learns from noisy predictions is always "gamma".
    rows : {"shorten", "unit"}, default "shorten"
        As there, of every party's part of a row.
    multi_class : {"multinomial", "one-vs-rest"}, default "multinomial"
        As there.
    holder : str, optional
        The party that learns a high level. None: the first where columns are split, the last where rows are.
    high_share : float, default 0.2
        The part of the rows that is kept for a learned high level.
    predictions_share : float, default 0.5
        Share of those rows' epsilon that their noisy predictions cost (``meta="perturbed"``).
    fit_intercept : bool, default True
        Whether to fit a constant.
    public_seed : int, default 0
        Seed of the public randomness (groups).
    random_state : int, optional
        A seed makes the noise reproducible, and the fit a simulation that protects nobody. None draws real noise.
    budget : Budget, optional
        A total that several fits on the same people share.

    Attributes
    ----------
    models_ : tuple
        The low-level models, with shares, weights and coefficients in the data's own units.
    high_ : array
        Weights of the high-level model, empty if there is none. It sees predictions of rows clipped to their bounds; without it
        predictions are of the rows as they are.
    released_, classes_
        Weights of each party, for ``source``; and the two labels.
    statement_, plan_, ledger_, communication_
        What is promised and what is not; what was released, with which noise; what was debited; bytes sent and received.

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

    _parameter_constraints: ClassVar = (
        SHARED
        | taking("split meta combiner", WORD)
        | taking("importance", MAPPING, LIST, NONE)
        | taking("source", MAPPING, NONE)
        | taking("holder", WORD, NONE)
        | taking("high_share predictions_share", NUMBER)
        | taking("prior", NUMBER, NUMBERS)
        | taking("penalty", NUMBER, WORD)
        | taking("noise rows multi_class", WORD)
    )

    def __init__(
        self,
        parties: int | Mapping[str, Sequence[int | str]] = 2,
        *,
        split: str = "features",
        epsilon: float = 1.0,
        delta: float | None = None,
        bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None,
        classes: Sequence[object] | None = None,
        adjacency: str = "replace",
        calibration: str = "sound",
        importance: Any = None,  # noqa: ANN401 - an array per column or a mapping per party
        meta: str = "public-weights",
        combiner: str = "probability",
        prior: float | Sequence[float] = 0.5,
        source: Mapping[str, Sequence[float]] | None = None,
        penalty: float | str = AUTO,
        noise: str = AUTO,
        rows: str = SHORTEN,
        multi_class: str = MULTINOMIAL,
        holder: str | None = None,
        high_share: float = 0.2,
        predictions_share: float = 0.5,
        fit_intercept: bool = True,
        public_seed: int = 0,
        random_state: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(epsilon, delta, bounds, adjacency, calibration, public_seed, random_state, budget)
        self.parties = parties
        self.split = split
        self.classes = classes
        self.importance = importance
        self.meta = meta
        self.combiner = combiner
        self.prior = prior
        self.source = source
        self.penalty = penalty
        self.noise = noise
        self.rows = rows
        self.multi_class = multi_class
        self.holder = holder
        self.high_share = high_share
        self.predictions_share = predictions_share
        self.fit_intercept = fit_intercept

    # --- groups ------------------------------------------------------------------------------------------------------------

    def _groups(self, names: Sequence[str]) -> dict[str, list[str]]:
        return self._weighed(names)[0]

    def _weighed(self, names: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, float]]:
        """Columns and importance of every party."""
        return weighed(super()._groups(names), names, self.importance, seed=None if self._named else int(self.public_seed))

    @property
    def _named(self) -> bool:
        return isinstance(self.parties, Mapping)

    def _dealt(self, rows: int) -> list[str]:
        """Which of the random groups every row is dealt to, where rows are split without sites."""
        if isinstance(self.parties, Mapping) or self.parties < 1:
            raise UsageError(
                "parties must be at least 1, a number of groups to deal the rows to, where rows are split without sites="
            )
        return dealt(rows, int(self.parties) + (self.meta == "high-level"), int(self.public_seed))

    # --- fit -----------------------------------------------------------------------------------------------------------------

    def plan(self, n_samples: int, n_features: int) -> Plan:
        """The plan of a fit to data of this shape, without data (rows split: dealt to random groups)."""
        check({"n_samples": (WHOLE,)}, {"n_samples": n_samples})
        self._validate_params()
        if self.split != "samples":
            return self._planned({ALL: n_samples}, n_features)
        names, counts = np.unique(self._dealt(int(n_samples)), return_counts=True)
        return self._planned(dict(zip(names.tolist(), counts.tolist(), strict=True)), n_features)

    def _study(self, rows: Mapping[str, int], declared: Declared) -> Study:
        assert declared.classes is not None
        rates_of(self.combiner, self.prior, declared.classes.labels.size)
        source = {party: [float(w) for w in weights] for party, weights in (self.source or {}).items()}
        parameters: dict[str, Any] = {
            "split": self.split,
            "holder": self.holder or "",
            "source": source,
            "combiner": plain(self.combiner),
            "prior": [float(rate) for rate in self.prior] if isinstance(self.prior, Sequence) else float(self.prior),
        }
        if self.split != "samples":
            groups, importance = self._weighed(declared.names)
            parameters |= {
                "importance": importance,
                "high_share": float(self.high_share),
                "predictions_share": float(self.predictions_share),
            }
            return self._fits(cards_of(groups, declared, rows[ALL]), declared, parameters, self.meta)
        if self.meta not in {"public-weights", "high-level"}:
            msg = f'where rows are split, meta is "public-weights" or "high-level", not {self.meta!r}'
            raise UsageError(msg)
        cards = tuple(Card(party, count, declared.columns, labels=(RESPONSE,)) for party, count in rows.items())
        holder = (self.holder or cards[-1].name) if self.meta == "high-level" else ""
        return self._fits(cards, declared, parameters | {"holder": holder}, Meta.PUBLIC)

    def fit(self, X: ArrayLike, y: ArrayLike, sites: Sequence[object] | None = None) -> Self:
        """Release the low-level models, and learn the high level where it is asked for (``sites``: a label per row, rows split)."""
        table, declared, labels = self._labelled(X, y)
        if self.split == "samples":
            whole = part(table, table.names, labels)
            tables = whole.by_site(self._dealt(table.n_rows) if sites is None else sites)
            study = self._study({name: own.n_rows for name, own in tables.items()}, declared)
        else:
            if sites is not None:
                raise UsageError('sites belong to split="samples": where columns are split, name the parties\' columns')
            study = self._study({ALL: table.n_rows}, declared)
            tables = tables_of(study, table, labels)
        result = self._released(study, tables, declared)
        self.models_, self.high_ = result.models, np.array(result.high)
        return self

    # --- predict -------------------------------------------------------------------------------------------------------------

    def _low(self, X: ArrayLike) -> list[NDArray[np.float64]]:
        """Probabilities of every class by every low-level model."""
        check_is_fitted(self)
        new, outcomes, found = self._new(X), self._outcomes, []
        for place, block in enumerate(self._blocks):
            # One for every class, where they are more than two.
            models = self.models_[place * outcomes.predictors : (place + 1) * outcomes.predictors]
            if self.high_.size or block.unit:  # learned on predictions of clipped and scaled rows: applied to the same
                found.append(outcomes.of(self._scaled(block, new), np.concatenate([m.weights for m in models])))
                continue
            own = block.coding.natural([new[name] for name in block.coding.names])
            decisions = own @ np.array([m.coefficients for m in models]).T + [m.intercept for m in models]
            found.append(outcomes.probabilities(decisions))
        return found

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Positive means ``classes_[1]``: the high level's decision, or log odds of the combined probability; of several classes, one each."""
        low, outcomes = self._low(X), self._outcomes
        if self.high_.size:
            features = meta_rows([p if outcomes.several else p[:, 1] for p in low], intercept=bool(self.fit_intercept))
            high = features @ self.high_.reshape(outcomes.predictors, -1).T
            return np.log(outcomes.probabilities(high)) if outcomes.several else np.asarray(high[:, 0])
        each = np.stack(low, axis=1)
        rates = rates_of(self.combiner, self.prior if self.split == "features" else 0.5, outcomes.classes)
        logs = combined(each, [block.weight for block in self._blocks], self.combiner, rates)
        return logs if outcomes.several else np.asarray(logs[:, 1] - logs[:, 0])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "models_")
