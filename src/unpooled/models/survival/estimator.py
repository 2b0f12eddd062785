"""``unpooled.survival``: the study run in process on arrays, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from unpooled.errors import UsageError, listed
from unpooled.estimation.parameters import LIST, NONE, NUMBER, SHARED, WHOLE, WORD, counts_of, row_cards, site_tables, taking
from unpooled.estimation.parameters import check as check_given
from unpooled.estimation.running import PlannedResult, run
from unpooled.estimation.tables import counted_dates, dated_of, row_values, table_of
from unpooled.models.survival import MODEL
from unpooled.models.survival.fit import ArmMean, ArmsTest, CurveDifference, SurvivalResult, curve
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.noise import seed_of
from unpooled.privacy.origin import origins_of
from unpooled.privacy.plan import AGGREGATION, Plan, Study, default_delta
from unpooled.protocol.messages import Array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.inference.life_table import KaplanMeier
    from unpooled.privacy.budget import Budget
    from unpooled.privacy.ledger import Entry


@dataclass(frozen=True, repr=False)
class SurvivalComparison(PlannedResult):
    """Private survival of arms, and tests of one against the other; printing it gives a table.

    Attributes
    ----------
    result_ : SurvivalResult
        ``counts`` of persons and events, ``tests``, restricted ``means`` with ``mean_differences``, and ``curve_differences``.
    statement_ : Statement
        What is promised, and what is not.
    plan_ : Plan
        What was released, with which noise.
    ledger_ : tuple of Entry
        What was debited.
    communication_ : dict
        Bytes sent to and received from each party.

    """

    _model: ClassVar = MODEL
    _saved_types: ClassVar = (Array, ArmMean, ArmsTest, CurveDifference, SurvivalResult)
    result_: SurvivalResult
    plan_: Plan
    ledger_: tuple[Entry, ...]
    communication_: dict[str, dict[str, int]]

    def curve(self, arm: str) -> KaplanMeier:
        """Return the survival curve of an arm with its band; free of charge."""
        if arm not in self.result_.arms:
            msg = f"there is no arm {arm!r}: there are {listed(list(self.result_.arms))}"
            raise KeyError(msg)
        return curve(self.result_, arm)

    def curves_as_lists(self) -> dict[str, dict[str, list[float]]]:
        """Return the survival curves of the arms that the noise does not hide, as data."""
        return {arm: self.curve(arm).as_lists() for arm in self.result_.arms if arm not in self.result_.hidden}

    def test(self, name: str = "log-rank") -> ArmsTest:
        """Return a test by its name."""
        for test in self.result_.tests:
            if test.name == name:
                return test
        msg = f"there is no test {name!r}: there are {listed([test.name for test in self.result_.tests])}"
        raise KeyError(msg)

    def mean_difference(self, arm: str = "") -> ArmMean:
        """Return the difference of restricted mean survival between an arm (the second one) and the first."""
        arm = arm or self.result_.arms[1]
        for one in self.result_.mean_differences:
            if one.arm == arm:
                return one
        msg = f"no difference of {arm!r} from {self.result_.arms[0]!r} is identified"
        raise KeyError(msg)

    def _what(self) -> str:
        return " against ".join(self.result_.arms)


def survival(
    data: Any,  # noqa: ANN401 - mapping of columns, or data frame
    time: str,
    event: str,
    by: str,
    bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None,
    *,
    strata: str | None = None,
    cuts: Sequence[float] = (),
    horizon: float | None = None,
    sites: Sequence[object] | None = None,
    epsilon: float = 1.0,
    delta: float | None = None,
    unit: str = "record",
    unit_id: Any = None,  # noqa: ANN401 - ids in an array, list or series
    rows_per_household: int = 1,
    adjacency: str = "replace",
    aggregation: str = "distributed",
    tolerate: int = 0,
    confidence: float = 0.95,
    random_state: int | None = None,
    budget: Budget | None = None,
) -> SurvivalComparison:
    """Return the survival of arms with private curves, log-rank tests, and restricted mean survival with its differences.

    Parameters
    ----------
    data : mapping from names to columns, or data frame
        The rows: each is one person. Other columns than the named ones are not read.
    time : str
        The column with the time until the event, or until a person left or the end came.
    event : str
        The column that says whether there was an event: 0 or 1, or two categories, the second of which is the event.
    by : str
        The column whose levels are compared with the first declared one.
    bounds : Bounds, or mapping from column names to ranges or categories, optional
        Declared ranges or categories, without which nothing is compared; of the time (0, end of follow-up). Who is there at the end counts as without the event, also with one later.
    strata : str, optional
        A column of categories inside whose levels arms are compared.
    cuts : list of rising numbers, default ()
        Ends of intervals before the end of follow-up. Without them intervals are equally long, in the number that the budget can tell.
    horizon : float, optional
        The end of an interval up to which mean survival is restricted. None is the end of follow-up.
    sites : array of n labels, optional
        Which party each row belongs to. None is one party.
    epsilon : float, default 1.0
        The privacy asked for: smaller protects more. ``inf`` adds no noise and promises nothing.
    delta : float, optional
        The probability with which the promise may fail. None is min(1e-5, 0.1 / n).
    unit : {"record", "attribute", "household"}, default "record"
        Whom the promise is for: a whole row, one value of one person, or all rows of one id.
    unit_id : array of n ids, optional
        With ``unit="household"``: which rows belong together.
    rows_per_household : int, default 1
        With ``unit="household"``, the most rows of one id that count, over all sites: the noise grows with it.
    adjacency : {"replace", "zero-out"}, default "replace"
        How two neighbouring data sets differ: one becomes any other admissible one, or contributes nothing.
    aggregation : {"distributed", "trusted", "local"}, default "distributed"
        Who adds the noise of the total over sites.
    tolerate : int, default 0
        Parties that may collude or drop out.
    confidence : float, default 0.95
        Of the intervals, which contain the noise.
    random_state : int, optional
        A seed makes the noise reproducible, and the result a simulation that protects nobody. None draws real noise.
    budget : Budget, optional
        A total that several calls and fits on the same people share.

    Examples
    --------
    >>> import numpy as np, unpooled
    >>> rng = np.random.default_rng(0)
    >>> arm = rng.choice(np.array(["usual", "new"]), 8000)
    >>> until = rng.exponential(np.where(arm == "new", 900, 500))
    >>> data = {"arm": arm, "days": np.minimum(until, 365), "died": (until <= 365).astype(float)}
    >>> bounds = {"arm": ["usual", "new"], "days": (0, 365), "died": (0, 1)}
    >>> found = unpooled.survival(data, "days", "died", "arm", bounds, epsilon=1.0, random_state=0)
    >>> found.test().p_value < 0.01
    True
    >>> found.mean_difference().low > 0
    True

    """
    given = {"epsilon": epsilon, "delta": delta, "bounds": bounds, "random_state": random_state, "budget": budget}
    check_given(
        SHARED
        | {"confidence": (NUMBER,), "cuts": (LIST,)}
        | taking("time event by", WORD)
        | taking("strata", WORD, NONE)
        | taking("horizon", NUMBER, NONE)
        | taking("tolerate", WHOLE),
        given
        | {"unit": unit, "adjacency": adjacency, "confidence": confidence, "rows_per_household": rows_per_household}
        | {"aggregation": aggregation, "tolerate": tolerate, "time": time, "event": event, "by": by}
        | {"strata": strata, "cuts": cuts, "horizon": horizon},
    )
    if bounds is None:
        raise UsageError(
            "declare bounds: the end of follow-up and the levels of the arms are no secrets to be read off the data"
        )
    names = [time, event, by, *([] if strata is None else [strata])]
    data = counted_dates(data, dated_of(bounds))
    whole = table_of(data, None)
    table = type(whole)({name: whole[name] for name in names})
    declared: Any = bounds
    if isinstance(bounds, Mapping):
        declared = {name: said for name, said in bounds.items() if name in names}
    sites, unit_id = row_values(data, "sites", sites), row_values(data, "unit_id", unit_id)
    tables = site_tables(table, sites, unit, unit_id, rows_per_household)
    cards = row_cards(counts_of(tables), Bounds.given(declared, table).columns(table.names))
    parameters = {
        "time": time,
        "event": event,
        "by": by,
        "strata": strata or "",
        "cuts": [float(cut) for cut in cuts],
        "horizon": None if horizon is None else float(horizon),
        "tolerate": int(tolerate),
        "confidence": float(confidence),
    }
    study = Study(
        model="survival",
        parties=cards,
        epsilon=epsilon,
        delta=default_delta(min(card.people for card in cards)) if delta is None else delta,
        unit=unit,
        adjacency=adjacency,
        parameters=parameters,
        trust={AGGREGATION: aggregation},
        simulation_seed=seed_of(random_state),
        origins=origins_of(bounds, cuts, horizon),
        derived=(),
    )
    plan, found = run(MODEL, study, tables, budget=budget)
    return SurvivalComparison(found.outcome.result, plan, found.ledger, found.outcome.communication)
