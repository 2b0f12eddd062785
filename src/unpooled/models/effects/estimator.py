"""``TreatmentEffect``: the study of a treatment effect run in process on a frame, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError, listed
from unpooled.estimation.base import ALL, StudyEstimator
from unpooled.estimation.calls import OfEveryFit, OverSites, Summing, takes
from unpooled.estimation.parameters import (
    NONE,
    WHOLE,
    check,
    counts_of,
    planned_counts,
    row_cards,
    site_tables,
)
from unpooled.estimation.priors import PRIORS, SAVED, Earlier
from unpooled.estimation.tables import as_read, table_of
from unpooled.formula.arithmetic import quoted
from unpooled.inference.life_table import LifeTable
from unpooled.inference.priors import DrawnTo
from unpooled.models.effects import MODEL
from unpooled.models.effects.declared import Parameters
from unpooled.models.effects.result import (
    BalanceLine,
    DrawnEffect,
    EffectNumber,
    EffectResult,
    Overlap,
    effect_line,
    figure,
)
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.declared import says
from unpooled.privacy.plan import AGGREGATION, Plan, Study
from unpooled.protocol.messages import Array
from unpooled.protocol.terms import ResultTerm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from unpooled.inference.life_table import KaplanMeier
    from unpooled.models.effects.outlook import EffectOutlook
    from unpooled.privacy.table import Table


class Adjusting:
    """What a call of an effect says otherwise than a study: the outcome, and columns by their names."""

    outcome: Annotated[
        str,
        says(
            'The column of the outcome: a number, two declared categories (``family="logistic"``) of which the second counts as 1, or for '
            '``family="survival"`` the time until the event or until a person left.'
        ),
    ]
    covariates: Annotated[
        str | Sequence[str],
        says('What is adjusted for: columns, or the right side of a formula. "." is every other declared column.'),
    ] = "."
    propensity: Annotated[
        str | Sequence[str] | None, says("The same for the propensity alone. None: as ``covariates``.")
    ] = None
    cuts: Annotated[
        Sequence[float] | None,
        says("Of survival: where hazards may change. None: six equal intervals up to the horizon."),
    ] = None
    prior: Annotated[
        Any,
        says(
            'Earlier estimates of the same effect (docs/prior.md), as ``{"ATE": -1.5}``, to which this one is drawn as far as the rows agree; its '
            "interval is then credible.",
            kinds=(PRIORS, NONE),
            call="mapping, fitted model, or a mapping from names to several of these, optional",
            written="Prior",
        ),
    ] = None


@takes(OfEveryFit, OverSites, Summing, Parameters, Adjusting, first="treatment", never={"calibration": ("published",)})
class TreatmentEffect(Earlier, StudyEstimator):
    """The effect of a treatment on row-split data, adjusted for covariates: by weights, by an outcome model, or by both.

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
        parameters = self._says(
            Parameters,
            response=self.outcome,
            covariates=_formula(self.covariates),
            propensity="" if self.propensity is None else _formula(self.propensity),
        )
        parameters |= self._prior_parameter(())
        cards = row_cards(counts, known.columns(names))
        return self._asked(cards, parameters, (), {AGGREGATION: self.aggregation})

    # --- the fit ---------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: None = None, *, sites: Sequence[object] | None = None, unit_id: Any = None) -> Self:  # noqa: ANN401 - a frame or mapping
        """Estimate the effect on the rows of a frame, or a mapping from names to columns; ``sites`` says which party each row belongs to."""
        self._validate_params()
        if y is not None:
            raise UsageError("the outcome is a column of the frame: name it, and leave y out")
        whole = table_of(as_read(X, self.bounds), None)
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
        return {self.result_.estimand: self.effect_.estimate}

    @property
    def drawn_(self) -> DrawnTo:
        """Return the weight of each earlier estimate, and how far they drew the effect; absent without ``prior`` and without an effect."""
        if self.result_.drawn is None:
            raise AttributeError("drawn_: no effect was drawn to earlier ones")
        return self.result_.drawn.drawn

    def curve(self, arm: str) -> KaplanMeier:
        """Return the weighted survival curve of an arm with its band; free of charge."""
        check_is_fitted(self)
        arms = self.result_.arms[: len(self.result_.life_tables)]
        if arm not in arms:
            msg = f"there is no weighted curve of {arm!r}: there are {listed(list(arms)) or 'none, for the outcome is no time or there are no weights'}"
            raise KeyError(msg)
        return self.result_.life_tables[arms.index(arm)].kaplan_meier(self.confidence)

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
