"""``TreatmentEffect``: the study of a treatment effect run in process on a frame, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError, listed
from unpooled.estimation.base import ALL, StudyEstimator
from unpooled.estimation.parameters import (
    FLAG,
    LIST,
    NONE,
    NUMBER,
    NUMBERS,
    SHARED,
    WHOLE,
    WORD,
    check,
    counts_of,
    planned_counts,
    row_cards,
    site_tables,
    taking,
)
from unpooled.estimation.priors import PRIORS, SAVED, Earlier, Prior
from unpooled.estimation.tables import table_of
from unpooled.formula.arithmetic import quoted
from unpooled.inference.life_table import LifeTable
from unpooled.inference.priors import DrawnTo
from unpooled.models.effects import MODEL
from unpooled.models.effects.result import (
    BalanceLine,
    DrawnEffect,
    EffectNumber,
    EffectResult,
    Overlap,
    effect_line,
    figure,
    foot,
    terms,
)
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.plan import AGGREGATION, Plan, Study
from unpooled.protocol.messages import Array
from unpooled.protocol.terms import ResultTerm, as_html, as_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from unpooled.inference.life_table import KaplanMeier
    from unpooled.models.effects.outlook import EffectOutlook
    from unpooled.privacy.budget import Budget
    from unpooled.privacy.table import Table


@dataclass(frozen=True, repr=False)
class EffectSummary:
    """A treatment effect as a table, with the lines under it."""

    terms: tuple[ResultTerm, ...]
    notes: tuple[str, ...]
    statement: str

    def __str__(self) -> str:
        return "\n".join([*([as_table(self.terms)] if self.terms else []), *self.notes, self.statement])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self.terms, "; ".join((*self.notes, self.statement)))


class TreatmentEffect(Earlier, StudyEstimator):
    """The effect of a treatment on row-split data, adjusted for covariates: by weights, by an outcome model, or by both.

    Parameters
    ----------
    treatment : str
        The column with two declared categories, the first of which is the control.
    outcome : str
        The column of the outcome: a number, two declared categories (``family="logistic"``) of which the second counts as 1, or for
        ``family="survival"`` the time until the event or until a person left.
    covariates : str or list of names, default "."
        What is adjusted for: columns, or the right side of a formula. "." is every other declared column.
    propensity : str or list of names, optional
        The same for the propensity alone. None: as ``covariates``.
    estimator : {"aipw", "iptw", "g-formula"}, default "aipw"
        "aipw" weights the residuals of an outcome model, and is right if either model is. "iptw" compares weighted means. "g-formula"
        averages the outcome model under both treatments.
    estimand : {"ATE", "ATT"}, default "ATE"
        Whom the effect is averaged over: everybody, or the treated.
    family : {"linear", "logistic", "poisson", "gamma", "negative-binomial", "survival"}, default "linear"
        The outcome model. The effect is a difference of means; of survival a difference of the probabilities to be alive at ``horizon``.
    interactions : bool, default True
        Whether every arm has an outcome model of its own; False: one model, to which the treatment adds a number.
    event : str, optional
        Of survival: the column of 0 and 1 that says whether there was an event.
    horizon : float, optional
        Of survival: the time at which people are alive or not.
    cuts : list of times, optional
        Of survival: where hazards may change. None: six equal intervals up to the horizon.
    overlap : float, default 0.05
        Propensities are kept between this number and 1 less it.
    level : float, default 0.95
        Of the intervals.
    prior : mapping, fitted model, or a mapping from names to several of these, optional
        Earlier estimates of the same effect (docs/prior.md), as ``{"ATE": -1.5}``, to which this one is drawn as far as the rows agree; its
        interval is then credible.
    max_passes : int, default 105
        The most passes over every party's data for each of both models.
    epsilon : float, default 1.0
        The privacy asked for: smaller protects more. ``inf`` adds no noise and promises nothing.
    delta : float, optional
        The probability with which the promise may fail. None is min(1e-5, 0.1 / n).
    bounds : Bounds or mapping from column names to ranges or categories, optional
        Declared ranges and categories of all columns that are used, treatment and outcome too.
    unit : {"record", "attribute", "household"}, default "record"
        Whom the promise is for: a whole row, one value of one person, or all rows of one id (``unit_id`` of ``fit``).
    rows_per_household : int, default 1
        With ``unit="household"``, the most rows of one id that count, over all sites: the noise grows with it.
    adjacency : {"replace", "zero-out"}, default "replace"
        How two neighbouring data sets differ: one becomes any other admissible one, or contributes nothing.
    calibration : {"sound"}, default "sound"
        The noise whose guarantee is proved; there is no other form.
    aggregation : {"distributed", "trusted", "local"}, default "distributed"
        Who adds the noise of the totals over sites.
    tolerate : int, default 0
        Parties that may collude or drop out.
    nodes : list of site names, default ()
        Sites that may be nodes of the secure sum, or the trusted one. Empty: all of them, or the first.
    public_seed : int, default 0
        Seed of the public randomness.
    random_state : int, optional
        A seed makes the noise reproducible, and the fit a simulation that protects nobody. None draws real noise.
    budget : Budget, optional
        A total that several fits on the same people share.

    Attributes
    ----------
    effect_ : ResultTerm
        The effect: ``estimate``, ``std_error`` (its part by ``privacy``), ``conf_low``, ``conf_high``, ``p_value``. None where the data do not
        tell it: ``result_.why`` says why.
    drawn_ : DrawnTo
        The weight of each earlier estimate, and how far they drew the effect; absent without ``prior``.
    result_ : EffectResult
        Everything that a reader judges it by: ``means`` of the arms, ``overlap``, ``balance``, what was cut, and the lines of both models.
    statement_, plan_, ledger_, communication_
        What is promised and what is not; what was released, with which noise; what was debited; bytes sent and received.

    Examples
    --------
    >>> import numpy as np, unpooled
    >>> rng = np.random.default_rng(0)
    >>> age = rng.uniform(20, 90, 20_000)
    >>> arm = np.where(rng.uniform(size=20_000) < 1 / (1 + np.exp((55 - age) / 25)), "new", "old")
    >>> stay = np.clip(4 + 0.1 * age - 1.5 * (arm == "new") + rng.normal(0, 2, 20_000), 0, 20)
    >>> data = {"age": age, "arm": arm, "stay": stay}
    >>> known = {"age": (20, 90), "arm": ["old", "new"], "stay": (0, 20)}
    >>> found = unpooled.TreatmentEffect("arm", outcome="stay", bounds=known, random_state=0).fit(data)
    >>> bool(abs(found.effect_.estimate + 1.5) < 0.3)
    True
    >>> found.result_.overlap.weak
    False

    """

    _model = MODEL
    _parameter_constraints: ClassVar = (
        SHARED
        | taking("treatment outcome estimator estimand family", WORD)
        | taking("covariates", WORD, LIST)
        | taking("propensity", WORD, LIST, NONE)
        | taking("interactions", FLAG)
        | taking("event", WORD, NONE)
        | taking("horizon", NUMBER, NONE)
        | taking("cuts", NUMBERS, NONE)
        | taking("overlap level", NUMBER)
        | taking("max_passes", WHOLE)
        | taking("prior", PRIORS, NONE)
    )
    _saved_types: ClassVar = (
        *StudyEstimator._saved_types,  # noqa: SLF001 - its base
        Array,
        *SAVED,
        BalanceLine,
        DrawnEffect,
        EffectResult,
        EffectNumber,
        LifeTable,
        Overlap,
        ResultTerm,
    )

    def __init__(
        self,
        treatment: str,
        *,
        outcome: str,
        covariates: str | Sequence[str] = ".",
        propensity: str | Sequence[str] | None = None,
        estimator: str = "aipw",
        estimand: str = "ATE",
        family: str = "linear",
        interactions: bool = True,
        event: str | None = None,
        horizon: float | None = None,
        cuts: Sequence[float] | None = None,
        overlap: float = 0.05,
        level: float = 0.95,
        prior: Prior = None,
        max_passes: int = 105,
        epsilon: float = 1.0,
        delta: float | None = None,
        bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None,
        unit: str = "record",
        rows_per_household: int = 1,
        adjacency: str = "replace",
        calibration: str = "sound",
        aggregation: str = "distributed",
        tolerate: int = 0,
        nodes: Sequence[str] = (),
        public_seed: int = 0,
        random_state: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(epsilon, delta, bounds, adjacency, calibration, public_seed, random_state, budget)
        self.treatment = treatment
        self.outcome = outcome
        self.covariates = covariates
        self.propensity = propensity
        self.estimator = estimator
        self.estimand = estimand
        self.family = family
        self.interactions = interactions
        self.event = event
        self.horizon = horizon
        self.cuts = cuts
        self.overlap = overlap
        self.level = level
        self.prior = prior
        self.max_passes = max_passes
        self.unit = unit
        self.rows_per_household = rows_per_household
        self.aggregation = aggregation
        self.tolerate = tolerate
        self.nodes = nodes

    # --- before the data -------------------------------------------------------------------------------------------------

    def plan(self, n_samples: int, n_features: int | None = None, sites: Mapping[str, int] | None = None) -> Plan:
        """Return the plan of a fit to this number of rows, without data; ``sites`` gives the rows of each of several."""
        del n_features  # the declared columns are those of the study
        self._validate_params()
        check({"n_samples": (WHOLE,)}, {"n_samples": n_samples})
        counts = planned_counts(
            {n: int(c) for n, c in (sites or {ALL: n_samples}).items()}, self._unit, self.rows_per_household
        )
        return MODEL.compile(self._of_rows(counts, None))

    def outlook(
        self,
        n_samples: int,
        n_features: int | None = None,
        *,
        epsilon: float | None = None,
        **assumed: Any,  # noqa: ANN401 - the model's own
    ) -> EffectOutlook:
        """Return the standard error to expect of an effect in this number of rows, before any are touched: ``rows_for`` and ``power`` follow from it.

        ``epsilon`` is the estimator's own if it is None. What may be assumed, as a number or as a range (low, high): ``r2``, the part of the
        variance of the outcome that the covariates explain; ``selection``, the deviation of the log odds of treatment; ``correlation`` of the
        covariates; ``ranges``, half a declared range in standard deviations.
        """
        found: EffectOutlook = super().outlook(n_samples, n_features or 0, epsilon=epsilon, **assumed)  # type: ignore[assignment]
        return found

    def _of_rows(self, counts: Mapping[str, Any], table: Table | None) -> Study:
        """Return the study of these rows of each site."""
        if self.bounds is None:
            raise UsageError(
                "declare bounds of every column that is used, treatment and outcome too: they are no secrets to be read off the data"
            )
        known = Bounds.given(self.bounds, table)
        names = known.names if table is None else table.names
        used = {self.treatment, self.outcome, *([] if self.event is None else [self.event])}
        if missing := sorted(used - {*names}):
            msg = f"there is no column {missing[0]!r}: there are {listed(list(names))}"
            raise UsageError(msg).at(column=missing[0])
        parameters = {
            "response": self.outcome,
            "treatment": self.treatment,
            "covariates": _formula(self.covariates),
            "propensity": "" if self.propensity is None else _formula(self.propensity),
            "estimator": self.estimator,
            "estimand": self.estimand,
            "family": self.family,
            "interactions": bool(self.interactions),
            "event": self.event or "",
            "horizon": None if self.horizon is None else float(self.horizon),
            "cuts": [] if self.cuts is None else [float(cut) for cut in self.cuts],
            "overlap": float(self.overlap),
            "max_passes": int(self.max_passes),
            "tolerate": int(self.tolerate),
            "nodes": [str(node) for node in self.nodes],
            "level": float(self.level),
        }
        parameters |= self._prior_parameter(())
        cards = row_cards(counts, known.columns(names))
        return self._asked(cards, parameters, (), {AGGREGATION: self.aggregation})

    # --- the fit ---------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: None = None, *, sites: Sequence[object] | None = None, unit_id: Any = None) -> Self:  # noqa: ANN401 - a frame or mapping
        """Estimate the effect on the rows of a frame, or a mapping from names to columns; ``sites`` says which party each row belongs to."""
        self._validate_params()
        if y is not None:
            raise UsageError("the outcome is a column of the frame: name it, and leave y out")
        whole = table_of(X, None)
        declared = Bounds.given(self.bounds, None).names if self.bounds is not None else ()
        names = [name for name in whole.names if name in declared] if declared else list(whole.names)
        table = type(whole)({name: whole[name] for name in names})
        tables = site_tables(table, sites, self.unit, unit_id, self.rows_per_household)
        found = self._run(self._of_rows(counts_of(tables), table), tables)
        self.result_: EffectResult = found.outcome.result
        return self

    @property
    def effect_(self) -> ResultTerm | None:
        """Return the effect with its interval; None where the data do not tell it."""
        check_is_fitted(self)
        one = self.result_.effect
        return None if one is None else effect_line(self.result_, one, self.result_.estimand)

    def _publicly(self) -> Any:  # noqa: ANN401 - as its base
        raise UsageError("prior: public rows go without a treatment: estimate their effect yourself, and pass it by name")

    def _named_numbers(self) -> dict[str, float]:
        if self.effect_ is None:
            msg = f"this fit has no effect for a later one to be drawn to: {self.result_.why}"
            raise UsageError(msg)
        return {self.estimand: self.effect_.estimate}

    @property
    def drawn_(self) -> DrawnTo:
        """Return the weight of each earlier estimate, and how far they drew the effect; absent without ``prior`` and without an effect."""
        if self.result_.drawn is None:
            raise AttributeError("drawn_: no effect was drawn to earlier ones")
        return self.result_.drawn.drawn

    def summary(self) -> EffectSummary:
        """Return the effect, the means of the arms and the balance of the covariates, with what a reader must know."""
        check_is_fitted(self)
        return EffectSummary(terms(self.plan_, self.result_), foot(self.plan_, self.result_), self.statement_.headline)

    def curve(self, arm: str) -> KaplanMeier:
        """Return the weighted survival curve of an arm with its band; free of charge."""
        check_is_fitted(self)
        arms = self.result_.arms[: len(self.result_.life_tables)]
        if arm not in arms:
            msg = f"there is no weighted curve of {arm!r}: there are {listed(list(arms)) or 'none, for the outcome is no time or there are no weights'}"
            raise KeyError(msg)
        return self.result_.life_tables[arms.index(arm)].kaplan_meier(self.level)

    def curves_as_lists(self) -> dict[str, dict[str, list[float]]]:
        """Return the weighted survival curves as data; an effect on anything but times has none."""
        return {arm: self.curve(arm).as_lists() for arm in self.result_.arms[: len(self.result_.life_tables)]}

    def figure(self) -> Any:  # noqa: ANN401 - a matplotlib figure
        """Draw overlap and balance, of survival the weighted curves too, as a matplotlib figure."""
        check_is_fitted(self)
        return figure(self.result_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "result_")


def _formula(given: str | Sequence[str]) -> str:
    """Return what is adjusted for as the right side of a formula."""
    return given if isinstance(given, str) else " + ".join(quoted(str(name)) for name in given)
