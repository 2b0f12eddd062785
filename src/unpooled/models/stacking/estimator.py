"""``PrivateLogisticRegression`` and ``PrivateStackingClassifier``: thin scikit-learn estimators over the stacking study, run in process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from unpooled.estimation.parameters import LIST, MAPPING, NONE, NUMBER, NUMBERS, SHARED, WORD, taking
from unpooled.estimation.priors import Prior
from unpooled.models.stacking.outcomes import MULTINOMIAL
from unpooled.models.stacking.parameters import AUTO, SHORTEN
from unpooled.models.stacking.pooled import PooledLogistic
from unpooled.models.stacking.stacked import StackedClassifier

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
        The sound form counts one Jacobian factor and covers the solver's residual. The published one promises nothing; it has the paper's settings
        where parameters stand at their defaults, and refuses what the paper has not.
    method : {"auto", "perturbation", "rounds", "moments"}, default "auto"
        "rounds" (as :class:`PrivateGLM`) pool the rows of any number of sites and need a ``delta``; so do "moments", for rows with a bound on
        their length or all of one. "auto" takes them wherever slopes can be learnt, before data; not where ``penalty``, ``noise`` or
        ``prior`` ask for perturbation.
    aggregation : {"distributed", "trusted", "local"}, default "distributed"
        Of rounds: who adds the noise, all sites in parts, one of them that the others trust, or each all of it.
    tolerate : int, default 0
        Of rounds: the sites that may collude or drop out.
    nodes : list of site names, default ()
        Of rounds: sites that may be nodes of the secure sum, or the trusted one. Empty: all of them, or the first.
    penalty : float or "auto", default "auto"
        lambda of the mean loss, on scaled rows. The constant is penalised with the rest. "auto" is 0.3 d / (n epsilon), 0.1
        with Gaussian noise, at most one half.
    noise : {"auto", "gamma", "gaussian"}, default "auto"
        The law of the perturbation. "gamma" is pure; "gaussian" needs a ``delta``, and is what "auto" takes where there is one and it is shorter.
    rows : {"shorten", "unit"}, default "shorten"
        "unit" scales every row to one length, which suits texts and spectra: predictions then depend on a row's direction alone, and ``coef_``
        is of such rows.
    multi_class : {"multinomial", "one-vs-rest"}, default "multinomial"
        Of perturbation with more than two classes: one softmax fit, or one fit for each class, which all together cost the budget.
    prior : list of float, or mapping with it under "all", optional
        Weights (``released_`` or ``released_["all"]``) of another fit of the same columns, to which the penalty pulls instead of to 0. They
        carry their cost, and whether their statement holds; plain numbers are declared by the caller.
    fit_intercept : bool, default True
        Whether to fit a constant.
    formula : str, optional
        What the model is a function of, as in "ill ~ age * ward + log(dose)"; None is every declared column as it is. It goes without offsets,
        ``Bounds(norm=R)`` and moments.
    public_seed : int, default 0
        Seed of the public randomness.
    random_state : int, optional
        A seed makes the noise reproducible, and the fit a simulation that protects nobody. None draws real noise.
    budget : Budget, optional
        A total that several fits on the same people share.
    source : list of float, optional
        The name that ``prior`` had in the version before. It works for one version, with a warning.

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
        | taking("prior source", NUMBERS, MAPPING, NONE)
        | taking("penalty", NUMBER, WORD)
        | taking("noise rows method multi_class", WORD)
        | taking("formula", WORD, NONE)
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
        prior: Prior = None,
        fit_intercept: bool = True,
        formula: str | None = None,
        public_seed: int = 0,
        random_state: int | None = None,
        budget: Budget | None = None,
        source: Sequence[float] | None = None,
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
        self.prior = prior
        self.fit_intercept = fit_intercept
        self.formula = formula
        self.source = source


class PrivateStackingClassifier(StackedClassifier):
    """A stack of private logistic regressions over column groups (PST-F) or over sites (PST-S), and transfer between sites (PST-H).

    Parameters
    ----------
    parties : int or mapping from party names to columns (indices or names), default 2
        Where columns are split. An int is a number of groups: of falling importance if ``importance`` is given, else random and equal.
        Where rows are split without ``sites``, the number of random groups of rows.
    split : {"features", "samples"}, default "features"
        Whether parties hold columns or rows.
    epsilon : float, default 1.0
        The privacy asked for, for each row and label: smaller protects more. ``inf`` adds no noise and promises nothing.
    delta : float, optional
        None is 0, or min(1e-5, 0.1 / n) with ``meta="perturbed"``, which alone needs it. With one, columns of two classes are put together
        by ``probabilities_share``.
    bounds : Bounds, (low, high), or mapping from column names to ranges or categories, optional
        Declared ranges; by them, or by ``Bounds(norm=R)``, rows are scaled to length 1. None reads them off the data, and
        promises nothing.
    classes : list of labels, optional
        The declared labels, as for :class:`PrivateLogisticRegression`.
    adjacency : {"replace", "zero-out"}, default "replace"
        How two neighbouring data sets differ: one becomes any other admissible one, or contributes nothing.
    calibration : {"sound", "published"}, default "sound"
        The sound form counts one Jacobian factor and covers the solver's residual. The published one promises nothing; it has the paper's settings
        where parameters stand at their defaults, and refuses what the paper has not.
    importance : array with a number for each column, mapping from party names, or "private", optional
        Public. The budget's shares q_k are proportional to a group's importance; a group of importance 0 is dropped. None: equal shares.
        "private" ranks the groups by noisy scores, and gives out ``falling`` by rank: it needs a ``delta``.
    falling : list of floats, optional
        With ``importance="private"``, the importance of the first rank, of the second, and so on. None is K, K - 1, .., 1.
    ranking_share : float, default 0.1
        Share of the budget that those scores cost.
    probabilities_share : float, default 0.6
        Share of the budget that makes probabilities of the parties' scores: a base rate, and counts of both classes along every party's score. It is
        used where columns of two classes are split, low-level models are combined by "log-odds", and there is a ``delta``; else, and
        with 0, log odds are averaged as they are.
    meta : {"public-weights", "trusted", "perturbed", "high-level"}, default "public-weights"
        How low-level models are combined: by their public shares; by a model learned from predictions that a trusted coordinator sees,
        or that are released with noise (columns split); by a model that one site learns on rows of its own (rows split).
    combiner : {"auto", "probability", "majority", "weighted-majority", "log-odds"}, default "auto"
        How public weights are applied. "log-odds" averages the models' log odds (or see ``probabilities_share``): averages of probabilities pull to
        the base rate. "auto" is "log-odds" where columns are split, else "probability". A learned high level replaces it.
    rates : float or list of floats, optional
        The declared base rate of ``classes_[1]``, or those of all classes: what scores of ``importance="private"`` are taken from. None
        takes them as equal.
    prior : mapping from party names to released weights, optional
        ``released_`` of a fit with the same columns elsewhere: the penalty pulls to them (PST-H). They carry their cost, and whether their
        statement holds; ``released_.of_others()`` declares that the people of that fit are not those of this one.
        A number, or a list of numbers, is what ``rates`` is now: it works for one version, with a warning.
    penalty : float or "auto", default "auto"
        lambda of the mean loss, on scaled rows; as for :class:`PrivateLogisticRegression`, of the widest low-level model.
    noise : {"auto", "gamma", "gaussian"}, default "auto"
        As there. Low-level models of the same rows compose; a high level that learns from noisy predictions is always "gamma".
    rows : {"shorten", "unit"}, default "shorten"
        As there, of every party's part of a row.
    parts : {"auto", "shorten", "scale"}, default "auto"
        Where columns are split. "shorten": a whole row has some length at most, and a party's part that is longer than its share of it is
        shortened. "scale": every part may be as long as its own bounds allow, and is multiplied by its share, as in the paper, which costs
        more noise. "auto" shortens, and scales in the published form.
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
    source : mapping from party names to released weights, optional
        The name that ``prior`` had in the version before. It works for one version, with a warning.

    Attributes
    ----------
    models_ : tuple
        The low-level models, with shares, weights and coefficients in the data's own units.
    high_ : array
        Weights of the high-level model, empty if there is none. It sees predictions of rows clipped to their bounds; without it
        predictions are of the rows as they are.
    calibrated_
        How log odds of the models become those of a class: the base rate's, and a line for each model. None where they are averaged as they are.
    released_, classes_
        Weights of each party, for ``prior``; and the two labels.
    linkage_
        Where ``fit`` linked frames: the facts that each party learned, without noise.
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
        | taking("split meta combiner parts", WORD)
        | taking("importance", MAPPING, LIST, WORD, NONE)
        | taking("falling", NUMBERS, NONE)
        | taking("source", MAPPING, NONE)
        | taking("rates", NUMBER, NUMBERS, NONE)
        | taking("holder", WORD, NONE)
        | taking("high_share predictions_share ranking_share probabilities_share", NUMBER)
        | taking("prior", MAPPING, NUMBER, NUMBERS, NONE)
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
        importance: Any = None,  # noqa: ANN401 - an array per column, a mapping per party, or "private"
        falling: Sequence[float] | None = None,
        ranking_share: float = 0.1,
        probabilities_share: float = 0.6,
        meta: str = "public-weights",
        combiner: str = AUTO,
        rates: float | Sequence[float] | None = None,
        prior: Prior = None,
        penalty: float | str = AUTO,
        noise: str = AUTO,
        rows: str = SHORTEN,
        parts: str = AUTO,
        multi_class: str = MULTINOMIAL,
        holder: str | None = None,
        high_share: float = 0.2,
        predictions_share: float = 0.5,
        fit_intercept: bool = True,
        public_seed: int = 0,
        random_state: int | None = None,
        budget: Budget | None = None,
        source: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        super().__init__(epsilon, delta, bounds, adjacency, calibration, public_seed, random_state, budget)
        self.parties = parties
        self.split = split
        self.classes = classes
        self.importance = importance
        self.falling = falling
        self.ranking_share = ranking_share
        self.probabilities_share = probabilities_share
        self.meta = meta
        self.combiner = combiner
        self.rates = rates
        self.prior = prior
        self.penalty = penalty
        self.noise = noise
        self.rows = rows
        self.parts = parts
        self.multi_class = multi_class
        self.holder = holder
        self.high_share = high_share
        self.predictions_share = predictions_share
        self.fit_intercept = fit_intercept
        self.source = source
