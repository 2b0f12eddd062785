"""``PrivateLogisticRegression`` and ``PrivateStackingClassifier``: thin scikit-learn estimators over the stacking study, run in process."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

import msgspec
import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError
from unpooled.estimation.base import ALL, Declared, cards_of, tables_of
from unpooled.estimation.calls import OfClasses, OfEveryFit, Summing, takes
from unpooled.estimation.fitted import Tabled
from unpooled.estimation.parameters import (
    LIST,
    MAPPING,
    NONE,
    NUMBER,
    NUMBERS,
    WHOLE,
    WORD,
)
from unpooled.estimation.tables import RESPONSE, part
from unpooled.formula import Formula
from unpooled.inference.estimates import Estimates
from unpooled.inference.tables import Tables
from unpooled.kernels.score_posterior import mean_log_odds
from unpooled.linear.goals import Goal
from unpooled.models import load
from unpooled.models.stacking.declared import AUTO, MULTINOMIAL, SHORTEN, Meta, Parameters
from unpooled.models.stacking.stacked import StackedClassifier, StackEstimator, released_weights
from unpooled.privacy.bounds import COMPLETE, Bounds, Column
from unpooled.privacy.declared import OverParties, says
from unpooled.privacy.origin import PRIOR, SOURCE
from unpooled.privacy.plan import AGGREGATION, Card, Plan, Study
from unpooled.privacy.unit import Split

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from unpooled.models.stacking.fit import StackingResult
    from unpooled.models.stacking.plan import StackingDesign
    from unpooled.privacy.plan import Plan
    from unpooled.privacy.table import Table
    from unpooled.protocol.registry import Model

    Vector = NDArray[np.float64]


# --- Sample size -----------------------------------------------------------------------------------------------------------
# Sample size of a private logistic model: Theorem 5 of the PST paper (Yao et al. 2019), up to its unknown constant.


def rows_wanted(
    length: float,
    columns: int,
    *,
    excess: float,
    epsilon: float,
    delta: float = 0.05,
    share: float = 1.0,
    groups: int = 1,
    constant: float = 1.0,
) -> float:
    r"""Return rows above which :math:`\Pr[L(w)\le L(v)+excess]\ge 1-\delta` by Theorem 5 of the PST paper (Yao et al. 2019).

    With ``groups`` = 1 it is Proposition 2 of the PST paper (Yao et al. 2019).

    Parameters
    ----------
    length : float
        :math:`a = q |v|`, v the reference model for rows of length q: it stays the same as q changes.
    columns : int
        d, of all groups together.
    excess : float
        :math:`\epsilon_g`, how much more loss than the reference's is allowed.
    epsilon, delta : float
        The privacy asked for, and the probability with which the statement may fail.
    share, groups : float and int
        :math:`q_k`, the importance of a group, and K.
    constant : float
        :math:`C_1`, which the paper does not give: only ratios of these numbers mean something.

    Returns
    -------
    float
        The number of rows.

    """
    if not (length > 0 and columns >= 1 and excess > 0 and epsilon > 0 and 0 < delta < 1 and 0 < share <= 1 and groups >= 1):
        raise UsageError(
            "length, excess and epsilon are positive, delta and share lie between 0 and 1, columns and groups are at least 1"
        )
    sampling = length**2 * math.log(1 / delta) / excess**2
    noise = columns * math.log(columns / (groups * delta)) * length / (share * groups * excess * epsilon)
    penalty = length**2 / (excess * epsilon)
    return constant * max(sampling, noise, penalty)


# --- Rows at several sites -------------------------------------------------------------------------------------------------
# Logistic regression of rows that may lie at several sites: rounds over their totals, or objective perturbation at one of them.
#
# Which, is decided before data. Rounds are the study model ``glm``; this file only chooses, and reads its result.

PERTURBATION, ROUNDS, MOMENTS = "perturbation", "rounds", "moments"
_METHODS = (AUTO, PERTURBATION, ROUNDS, MOMENTS)
#: The study model of the rounds, and what it calls a fit from which no slopes can be learnt.
_POOLED, _BASE_RATE = "glm", "mean"


class _PooledLogistic(Tabled, StackEstimator):
    """The parameters of ``PrivateLogisticRegression`` at work: the choice, and the fit by either way."""

    method: str
    aggregation: str
    tolerate: int
    nodes: Sequence[str]
    _saved_types = (*StackEstimator._saved_types, Estimates)  # noqa: SLF001 - its base's

    def plan(self, n_samples: int, n_features: int, sites: Mapping[str, int] | None = None) -> Plan:
        """Return the plan of a fit to data of this shape, without data; ``sites`` gives the rows of each of several."""
        return self._planned(sites or {ALL: n_samples}, n_features)

    # --- which way -------------------------------------------------------------------------------------------------------

    @property
    def _leaves_out(self) -> bool:
        """Rounds can, and are chosen where the declarations ask for it."""
        return True

    @property
    def _of_perturbation(self) -> list[str]:
        """Return the parameters in use that mean something for objective perturbation alone."""
        used = {
            "penalty": self.penalty != AUTO,
            "noise": self.noise != AUTO,
            "prior": self.prior is not None,
            "source": self.source is not None,
            "calibration": self._row is not self._model,
            "multi_class": self.multi_class != MULTINOMIAL,
        }
        return [name for name, used_here in used.items() if used_here]

    @property
    def _of_lengths(self) -> list[str]:
        """Return the parameters in use that say how long rows are, which rounds over standardised columns have no use for."""
        norm = isinstance(self.bounds, Bounds) and self.bounds.norm is not None
        return [*(["rows"] if self.rows != SHORTEN else []), *(["norm"] if norm else [])]

    def _study(self, rows: Mapping[str, int], declared: Declared) -> Study:
        if self.method not in _METHODS:
            msg = f"method is one of {', '.join(_METHODS)}, not {self.method!r}"
            raise UsageError(msg)
        own, several = self._of_perturbation, len(rows) > 1
        gaps = COMPLETE in {self._gap_in_response, *(column.missing for column in declared.columns)}
        if several and (self.method == PERTURBATION or own):
            msg = (
                f"{', '.join(own) or 'perturbation'}: for the rows of one party alone. Rows of several sites are pooled by "
                "other methods, or use PrivateStackingClassifier(split='samples')"
            )
            raise UsageError(msg)
        if text := self._formula_parameter.get("formula"):
            self._check_formula(text, several=several)
        free = math.isinf(self.epsilon)
        pure = not self.delta and not free
        if self.method == PERTURBATION or (self.method == AUTO and not several and (own or pure or (free and not gaps))):
            return self._perturbed(sum(rows.values()), declared)
        assert declared.classes is not None
        # Moments tell the direction of one linear predictor, and of declared columns.
        no_moments = declared.classes.labels.size > 2 or self._formula_parameter  # noqa: PLR2004
        if self.method == AUTO and not several and no_moments and self._of_lengths and not gaps:
            return self._perturbed(sum(rows.values()), declared)
        method = (MOMENTS if self._of_lengths else ROUNDS) if self.method == AUTO else self.method
        wrong = own + (self._of_lengths if method == ROUNDS else [])
        if wrong:
            msg = f"{', '.join(wrong)}: not for method {method!r}"
            raise UsageError(msg)
        if pure:
            msg = f"{method} need a delta: pass delta=1e-5, or a smaller one; a pure promise is kept at one party alone"
            raise UsageError(msg)
        study = self._pooled(rows, declared, method)
        if (
            self.method == AUTO
            and not several
            and not gaps
            and load(_POOLED).compile(study).design.schedule.method == _BASE_RATE
        ):
            return self._perturbed(sum(rows.values()), declared)
        return study

    def _check_formula(self, text: str, *, several: bool) -> None:
        """Refuse a formula that neither way can fit."""
        if Formula.parse(text).offsets:
            raise UsageError(
                "PrivateLogisticRegression has no offset: leave it out of the formula, or use PrivateGLM('logistic'), which has one"
            )
        if self.method == MOMENTS or (several and self.method == AUTO and self._of_lengths):
            raise UsageError(
                "moments bound rows of the declared columns: a formula goes with method 'rounds' or 'perturbation'"
            )

    def _perturbed(self, rows: int, declared: Declared) -> Study:
        """Return one perturbed fit to the rows of one party."""
        if COMPLETE in {self._gap_in_response, *(column.missing for column in declared.columns)}:
            raise UsageError(
                "objective perturbation leaves no rows out: missing = 'complete' goes with method 'rounds' and a delta, without parameters of perturbation"
            )
        weights = self._drawn_to(self.prior)
        cards = cards_of({ALL: declared.names}, declared, rows)
        # A study without weights says so by the former name, by which its hash is known.
        parameters: dict[str, Any] = {"split": "samples"} | ({PRIOR: weights} if weights else {SOURCE: {}})
        return self._fits(cards, declared, parameters | self._formula_parameter, Meta.PUBLIC)

    def _pooled(self, rows: Mapping[str, int], declared: Declared, method: str) -> Study:
        """Rounds over the totals of all sites, or moments first."""
        assert declared.classes is not None
        response = Column(RESPONSE, categories=declared.classes.texts, missing=self._gap_in_response)
        columns = (*declared.columns, response)
        several = declared.classes.labels.size > 2  # noqa: PLR2004 - two classes have one linear predictor
        parameters: dict[str, Any] = {
            "response": RESPONSE,
            "family": "multinomial" if several else "logistic",
            "goal": Goal.PREDICTIONS.value,  # it is a classifier
            "fit_intercept": bool(self.fit_intercept),
            "tolerate": int(self.tolerate),
            "nodes": [str(node) for node in self.nodes],
            **self._formula_parameter,
        }
        if method == MOMENTS:
            norm = self.bounds.norm if isinstance(self.bounds, Bounds) else None
            parameters |= {"method": MOMENTS, "rows": self.rows, "norm": None if norm is None else float(norm)}
        cards = tuple(Card(name, count, columns) for name, count in rows.items())
        study = self._asked(cards, parameters, declared.derived, {AGGREGATION: self.aggregation})
        return msgspec.structs.replace(study, model=_POOLED)

    def _row_of(self, study: Study) -> Model:
        return load(_POOLED) if study.model == _POOLED else super()._row_of(study)

    @classmethod
    def _compiles(cls, study: Study) -> Plan:
        return load(_POOLED).compile(study) if study.model == _POOLED else super()._compiles(study)

    # --- the fit ---------------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | str | None = None,
        sites: Sequence[object] | None = None,
        *,
        formula: str | None = None,
    ) -> Self:
        """Release what the method needs of all rows (``sites``: a label per row; None is one site), and fit.

        ``fit(frame, "y")`` takes the response out of a frame, ``fit(frame, formula="ill ~ age * ward")`` whatever the formula names; a frame may
        hold other columns in addition to those that are declared.
        """
        asked = self._framed(X, y, formula)
        if asked.event is not None:
            raise UsageError("Surv(time, event) goes with PrivateGLM('survival'): a response of classes is one column")
        table, declared, labels = self._labelled(asked.X, asked.y)
        held: dict[str, Table] = part(table, table.names, labels).by_site(sites) if sites is not None else {}
        tables = held if len(held) > 1 else {ALL: table}
        study = self._study({name: own.n_rows for name, own in tables.items()}, declared)
        if study.model == _POOLED:
            return self._from_rounds(study, tables if len(held) > 1 else {ALL: part(table, table.names, labels)}, declared)
        self._newton, self.method_, self._lines = None, PERTURBATION, ()
        models = self._released(study, tables_of(study, table, labels), declared).models
        self.coef_, self.intercept_ = np.array([m.coefficients for m in models]), np.array([m.intercept for m in models])
        return self

    def _from_rounds(self, study: Study, tables: Mapping[str, Table], declared: Declared) -> Self:
        result = self._run(study, tables).outcome.result
        self.__dict__.pop("released_", None)
        self._columns, self._newton, self.method_ = declared.columns, result.newton, self._said(study)
        self._common = {
            RESPONSE if name == study.parameters["response"] else name: level for name, level in result.common.items()
        }
        self._lines = result.lines
        # Of several classes they stand class after class.
        self.coef_ = np.array([c.value for c in result.coefficients]).reshape(max(len(result.classes), 1), -1)
        self.intercept_ = np.array(result.intercepts or [result.intercept])
        return self

    @staticmethod
    def _said(study: Study) -> str:
        return MOMENTS if study.parameters.get("method") == MOMENTS else ROUNDS

    # --- after the fit ---------------------------------------------------------------------------------------------------

    @property
    def _is_linear(self) -> bool:
        if getattr(self, "method_", PERTURBATION) == PERTURBATION:
            return super()._is_linear
        return self.method_ == ROUNDS or not self.plan_.design.directions.unit

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """``X @ coef_.T + intercept_``, of rows scaled to one length where they were; positive means ``classes_[1]``.

        Where rounds estimated the direction of the slopes alone, the log odds of the mean probability over their possible lengths.
        """
        check_is_fitted(self)
        if self._lines:
            return mean_log_odds(super().decision_function(X), self._lines)
        if self._is_linear:
            return super().decision_function(X)
        if self.method_ == MOMENTS:
            directions, new = self.plan_.design.directions, self._new(X)
            rows = directions.lengthened([new[name] for name in directions.layout.coding.names])
            return np.asarray(rows @ self.coef_[0] + self.intercept_[0])
        found = (
            self._scaled(self._blocks[0], self._new(X))
            @ np.array(self.released_[ALL]).reshape(self._outcomes.predictors, -1).T
        )
        return np.asarray(found if self._outcomes.several else found[:, 0])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return probabilities of the classes."""
        check_is_fitted(self)
        if self.method_ != PERTURBATION or not self._outcomes.several:
            return super().predict_proba(X)
        return self._outcomes.probabilities(self.decision_function(X))

    def _tables(self) -> Tables:
        check_is_fitted(self)
        if self._newton is None:
            msg = (
                f"this fit ({self.method_}) has no standard errors: rounds have them where there are rows and epsilon enough"
            )
            raise UsageError(msg)
        layout, several = self.plan_.design.layout, len(self.classes_) > 2  # noqa: PLR2004
        return Tables(
            self._newton,
            layout.terms.with_constants(layout.constants),
            sum(card.rows for card in self.plan_.study.parties),
            "multinomial" if several else "logistic",
            RESPONSE,
            str(self.plan_.statement),
            classes=self.plan_.design.responses.response.categories if several else (),
            common=self._common,
        )


# --- Estimator -------------------------------------------------------------------------------------------------------------
# ``PrivateLogisticRegression`` and ``PrivateStackingClassifier``: thin scikit-learn estimators over the stacking study, run in process.


class Pure:
    """What a call of one fit says otherwise than other calls, and than a study."""

    delta: Annotated[
        float | None,
        says("None is 0: a pure promise, by perturbation at one party. With a delta there are rounds, and Gaussian noise."),
    ] = None
    method: Annotated[
        str,
        says(
            '"rounds" (as :class:`PrivateGLM`) pool the rows of any number of sites and need a ``delta``; so do "moments", for rows with a bound on '
            'their length or all of one. "auto" takes them wherever slopes can be learnt, before data; not where ``penalty``, ``noise`` or ``prior`` ask '
            "for perturbation.",
            choices=_METHODS,
        ),
    ] = AUTO
    prior: Annotated[
        Any,
        says(
            'Weights (``released_`` or ``released_["all"]``) of another fit of the same columns, to which the penalty pulls instead of to 0. They carry '
            "their cost, and whether their statement holds; plain numbers are declared by the caller.",
            kinds=(NUMBERS, MAPPING, NONE),
            call='list of float, or mapping with it under "all", optional',
            written="Prior",
        ),
    ] = None
    source: Annotated[
        Any,
        says(
            "The name that ``prior`` had in the version before. It works for one version, with a warning.",
            kinds=(NUMBERS, MAPPING, NONE),
            call="list of float, optional",
            written="Sequence[float] | None",
        ),
    ] = None


#: What a study of a stack says of it, and one fit has not.
_OF_STACKS = (
    "split",
    "parts",
    "importance",
    "ranking_share",
    "probabilities_share",
    "holder",
    "high_share",
    "predictions_share",
    "combiner",
    "rates",
)


@takes(OfEveryFit, OfClasses, Summing, OverParties, Parameters, Pure, left=_OF_STACKS)
class PrivateLogisticRegression(_PooledLogistic):
    """Logistic regression of two classes: by objective perturbation at one party, or by rounds over the totals of one or several.

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


class Stacking:
    """What a call of a stack says otherwise than a study."""

    delta: Annotated[
        float | None,
        says(
            'None is 0, or min(1e-5, 0.1 / n) with ``meta="perturbed"``, which alone needs it. With one, columns of two classes are put together by '
            "``probabilities_share``."
        ),
    ] = None
    parties: Annotated[
        Any,
        says(
            "Where columns are split. An int is a number of groups: of falling importance if ``importance`` is given, else random and equal. Where rows "
            "are split without ``sites``, the number of random groups of rows.",
            kinds=(WHOLE, MAPPING),
            call="int or mapping from party names to columns (indices or names), default 2",
            written="int | Mapping[str, Sequence[int | str]]",
        ),
    ] = 2
    importance: Annotated[
        Any,
        says(
            "Public. The budget's shares q_k are proportional to a group's importance; a group of importance 0 is dropped. None: equal shares. "
            '"private" ranks the groups by noisy scores, and gives out ``falling`` by rank: it needs a ``delta``.',
            kinds=(MAPPING, LIST, WORD, NONE),
            call='array with a number for each column, mapping from party names, or "private", optional',
            written="Any",
        ),
    ] = None
    falling: Annotated[
        Sequence[float] | None,
        says(
            'With ``importance="private"``, the importance of the first rank, of the second, and so on. None is K, K - 1, .., 1.'
        ),
    ] = None
    meta: Annotated[
        str,
        says(
            "How low-level models are combined: by their public shares; by a model learned from predictions that a trusted coordinator sees, or that are "
            "released with noise (columns split); by a model that one site learns on rows of its own (rows split).",
            choices=("public-weights", "trusted", "perturbed", "high-level"),
        ),
    ] = "public-weights"
    prior: Annotated[
        Any,
        says(
            "``released_`` of a fit with the same columns elsewhere: the penalty pulls to them (PST-H). They carry their cost, and whether their statement "
            "holds; ``released_.of_others()`` declares that the people of that fit are not those of this one. A number, or a list of numbers, is what "
            "``rates`` is now: it works for one version, with a warning.",
            kinds=(MAPPING, NUMBER, NUMBERS, NONE),
            call="mapping from party names to released weights, optional",
            written="Prior",
        ),
    ] = None
    source: Annotated[
        Any,
        says(
            "The name that ``prior`` had in the version before. It works for one version, with a warning.",
            kinds=(MAPPING, NONE),
            call="mapping from party names to released weights, optional",
            written="Mapping[str, Sequence[float]] | None",
        ),
    ] = None


@takes(OfEveryFit, OfClasses, Parameters, Stacking, first="parties", left=("formula",))
class PrivateStackingClassifier(StackedClassifier):
    """A stack of private logistic regressions over column groups (PST-F) or over sites (PST-S), and transfer between sites (PST-H).

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


# --- A finished study --------------------------------------------------------------------------------------------------------


def fitted(plan: Plan[StackingDesign], result: StackingResult) -> PrivateStackingClassifier:
    """Return a stack of the released models; where columns are split, new rows need all of them in one place."""
    design = plan.design
    cards = [block.card for block in design.blocks]
    rows = design.split is Split.HORIZONTAL
    given = design.parameters
    columns = {column.name: column for card in (cards[:1] if rows else cards) for column in card.columns}
    made = design.made
    own: dict[str, Any] = {"split": "samples" if rows else "features", "prior": dict(given.prior) or None}
    own |= (
        {"importance": "private", "falling": list(given.ranks)}
        if given.ranks
        else {"importance": dict(given.importance) or None}
    )
    own |= {"meta": "high-level"} if rows and given.holder else {}
    estimator = PrivateStackingClassifier._of_plan(  # noqa: SLF001 - its own model's
        plan, list(columns.values()) if made is None else made.derived.needs, ("ranks",), **own
    )
    estimator.models_, estimator.high_ = result.models, np.array(result.high)
    estimator.calibrated_ = result.calibrated
    estimator.__dict__["released_"] = released_weights(result)
    estimator.classes_ = np.array(design.parameters.classes)
    return estimator
