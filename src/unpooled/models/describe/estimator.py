"""``unpooled.describe``: the study run in process on arrays; what each kind of description holds, and how it prints."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from unpooled.errors import UsageError, listed
from unpooled.estimation.columns import JOINING, helped, joint_cards
from unpooled.estimation.parameters import NUMBER, SHARED, counts_of, row_cards, site_tables
from unpooled.estimation.parameters import check as check_given
from unpooled.estimation.running import PlannedResult, run
from unpooled.estimation.tables import counted_dates, dated_of, declared_in, row_values, table_of
from unpooled.models.describe import MODEL
from unpooled.models.describe.declared import FARTHEST, Range
from unpooled.models.describe.fit import ArmsSummary, Correlation, Difference, Estimate, JointSummary, Summary
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.noise import seed_of
from unpooled.privacy.origin import BOUNDS_INPUT, origins_of
from unpooled.privacy.plan import BOUNDS, Study, default_delta
from unpooled.privacy.study import COLUMNS, PROOF
from unpooled.privacy.table import Table
from unpooled.protocol.local import columns_of_parties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from unpooled.privacy.budget import Budget
    from unpooled.privacy.ledger import Entry
    from unpooled.privacy.plan import Plan


# --- Results ---------------------------------------------------------------------------------------------------------------
# Results of ``unpooled.describe``: what each kind of description holds, and how it prints.


class _Described(PlannedResult):
    """The part that results of every kind of description share."""

    _model: ClassVar = MODEL


@dataclass(frozen=True, repr=False)
class Description(_Described):
    """Private counts, means and standard deviations; printing it gives a table.

    Attributes
    ----------
    summaries_ : tuple of Summary
        One per source (``"pooled"`` first, then the sites), column and category; ``count``, ``mean`` and ``sd`` each have
        ``value``, ``low``, ``high`` and ``noise``.
    statement_ : Statement
        What is promised, and what is not.
    plan_ : Plan
        What was released, with which noise.
    ledger_ : tuple of Entry
        What was debited.
    communication_ : dict
        Bytes sent to and received from each party.

    """

    _saved_types: ClassVar = (Estimate, Summary)
    summaries_: tuple[Summary, ...]
    plan_: Plan
    ledger_: tuple[Entry, ...]
    communication_: dict[str, dict[str, int]]

    def __getitem__(self, key: tuple[str, str] | tuple[str, str, str]) -> Summary:
        """Return the summary of (source, column) or (source, column, category)."""
        keys = [(s.source, s.column, s.category)[: 2 if s.category is None else 3] for s in self.summaries_]
        if key in keys:
            return self.summaries_[keys.index(key)]
        msg = f"there is no summary of {key}: there are {listed([str(known) for known in keys])}"
        raise KeyError(msg)

    def _what(self) -> str:
        sources, columns = ({getattr(s, field) for s in self.summaries_} for field in ("source", "column"))
        return f"{len(columns)} columns, sources {', '.join(sorted(sources))}"


@dataclass(frozen=True, repr=False)
class DescribedBounds(_Described):
    """Private ranges of columns; printing it gives a table.

    Attributes
    ----------
    ranges_ : tuple of Range
        ``low``, ``high`` and the estimated shares that are ``clipped`` and ``missing``, of every column.
    bounds_ : Bounds
        The same as declared bounds, with their price.
    statement_ : Statement
        What is promised, and what is not.
    plan_ : Plan
        What was released, with which noise.
    ledger_ : tuple of Entry
        What was debited.
    communication_ : dict
        Bytes sent to and received from each party.

    """

    _saved_types: ClassVar = (Range,)
    ranges_: tuple[Range, ...]
    plan_: Plan
    ledger_: tuple[Entry, ...]
    communication_: dict[str, dict[str, int]]

    @property
    def bounds_(self) -> Bounds:
        """Return ranges by name, missing values as "absent" where any were seen."""
        return self.bounds([r.column for r in self.ranges_])

    def bounds(self, columns: Sequence[str]) -> Bounds:
        """Return the bounds of some of the columns, with the price of all: they were released together."""
        chosen: dict[str | int, Any] = {r.column: (r.low, r.high) for r in self.ranges_ if r.column in set(columns)}
        missing: dict[str | int, Any] = {r.column: "absent" for r in self.ranges_ if r.column in chosen and r.missing > 0}
        return Bounds(chosen, missing=missing, paid=self.plan_.origins(BOUNDS_INPUT))

    def range(self, column: str) -> tuple[float, float]:
        """Return (low, high) of one column, which carries its price to an estimator's ``y_bounds`` and the like."""
        ends: tuple[float, float] = next((r.low, r.high) for r in self.ranges_ if r.column == column)
        return self.plan_.sourced(BOUNDS_INPUT, ends)  # type: ignore[no-any-return]

    def _what(self) -> str:
        return f"{len(self.ranges_)} columns"


@dataclass(frozen=True, repr=False)
class JointDescription(_Described):
    """Private means, deviations and correlations of columns at several parties; printing it gives a table.

    Attributes
    ----------
    summaries_ : tuple of Summary
        One per party, column and category, as of :class:`Description`.
    correlations_ : tuple of Correlation
        ``first``, ``second`` and the ``value`` with ``low``, ``high`` and ``noise``, of all pairs of columns (a level has a column of its own).
    still_ : tuple of str
        Columns whose variance is not larger than its noise: they have no correlations.
    statement_ : Statement
        What is promised, and what is not.
    plan_ : Plan
        What was released, with which noise.
    ledger_ : tuple of Entry
        What was debited.
    communication_ : dict
        Bytes sent to and received from each party.

    """

    _saved_types: ClassVar = (Estimate, Summary, Correlation)
    summaries_: tuple[Summary, ...]
    correlations_: tuple[Correlation, ...]
    still_: tuple[str, ...]
    plan_: Plan
    ledger_: tuple[Entry, ...]
    communication_: dict[str, dict[str, int]]

    def correlation(self, first: str, second: str) -> Correlation:
        """Return the correlation of two columns, in any order."""
        for found in self.correlations_:
            if {found.first, found.second} == {first, second}:
                return found
        msg = f"there is no correlation of {first!r} and {second!r}: print the description to see all"
        raise KeyError(msg)

    @property
    def _result(self) -> JointSummary:
        return JointSummary(self.summaries_, self.correlations_, self.still_)

    def _what(self) -> str:
        return f"{len(self.correlations_)} correlations"


@dataclass(frozen=True, repr=False)
class ArmsDescription(_Described):
    """Private means, deviations and counts of every arm, and how far the arms are apart; printing it gives the table of a paper.

    Attributes
    ----------
    table_ : ArmsSummary
        ``rows`` of every source and arm, ``summaries`` of every arm, and ``differences`` from the first arm in standard deviations.
    statement_ : Statement
        What is promised, and what is not.
    plan_ : Plan
        What was released, with which noise.
    ledger_ : tuple of Entry
        What was debited.
    communication_ : dict
        Bytes sent to and received from each party.

    """

    _saved_types: ClassVar = (Estimate, Summary, Difference, ArmsSummary)
    table_: ArmsSummary
    plan_: Plan
    ledger_: tuple[Entry, ...]
    communication_: dict[str, dict[str, int]]

    def difference(self, column: str, category: str | None = None, arm: str = "") -> Estimate | None:
        """Return the standardised difference of a column (of one category of it) between an arm and the first one, over all sites."""
        arm = arm or self.table_.arms[1]
        for found in self.table_.differences:
            if (found.column, found.category, found.arm) == (column, category, arm):
                return found.value
        msg = f"there is no difference of {column!r} between {arm!r} and {self.table_.arms[0]!r}: print the description to see all"
        raise KeyError(msg)

    def _what(self) -> str:
        return f"{len(self.table_.arms)} arms of {self.table_.by}"


# --- Estimator -------------------------------------------------------------------------------------------------------------
# ``unpooled.describe``: the study run in process on arrays, and its result.


def _joined(
    table: Table,
    parties: int | Mapping[str, Sequence[int | str]],
    study: Study,
    helpers: int,
    check_rows: str,
    budget: Budget | None,
) -> JointDescription:
    """Return the study of columns at several parties; ``study`` has one card with all of them."""
    groups = columns_of_parties(parties, table.names)
    cards = joint_cards(groups, study.parties[0].columns, None, table.n_rows, "", check_rows)
    asked = {"split": COLUMNS, "check": check_rows, **study.parameters}
    joined = helped(msgspec.structs.replace(study, parties=cards, parameters=asked), helpers)
    tables = {card.name: Table({c.name: table[c.name] for c in card.columns}) for card in cards}
    plan, found = run(MODEL, joined, tables, budget=budget)
    result = found.outcome.result
    return JointDescription(
        result.summaries, result.correlations, result.still, plan, found.ledger, found.outcome.communication
    )


def _ranges(
    data: Any,  # noqa: ANN401 - array, mapping of columns, or data frame
    sites: Sequence[object] | None,
    columns: Sequence[str] | None,
    epsilon: float,
    delta: float | None,
    unit: str,
    unit_id: Any,  # noqa: ANN401 - ids in an array, list or series
    rows_per_household: int,
    adjacency: str,
    random_state: int | None,
    budget: Budget | None,
) -> DescribedBounds:
    """Return the study of private ranges."""
    given = {"epsilon": epsilon, "delta": delta, "random_state": random_state, "budget": budget}
    check_given(SHARED, given | {"unit": unit, "adjacency": adjacency, "rows_per_household": rows_per_household})
    table = table_of(data, columns)
    sites, unit_id = row_values(data, "sites", sites), row_values(data, "unit_id", unit_id)
    tables = site_tables(table, sites, unit, unit_id, rows_per_household)
    wide = Bounds(-FARTHEST, FARTHEST, missing="absent").columns(table.names)
    cards = row_cards(counts_of(tables), wide)
    study = Study(
        model="describe",
        parties=cards,
        epsilon=epsilon,
        delta=default_delta(min(card.people for card in cards)) if delta is None else delta,
        unit=unit,
        adjacency=adjacency,
        parameters={"ranges": True},
        simulation_seed=seed_of(random_state),
        derived=(),
    )
    plan, found = run(MODEL, study, tables, budget=budget)
    return DescribedBounds(found.outcome.result, plan, found.ledger, found.outcome.communication)


def describe(
    data: Any,  # noqa: ANN401 - array, mapping of columns, or data frame
    bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | Literal[True] | None = None,
    *,
    sites: Sequence[object] | None = None,
    columns: Sequence[str] | None = None,
    by: str | None = None,
    parties: int | Mapping[str, Sequence[int | str]] | None = None,
    epsilon: float = 1.0,
    delta: float | None = None,
    unit: str = "record",
    unit_id: Any = None,  # noqa: ANN401 - ids in an array, list or series
    rows_per_household: int = 1,
    adjacency: str = "replace",
    confidence: float = 0.95,
    helpers: int = 1,
    check: str = PROOF,
    random_state: int | None = None,
    budget: Budget | None = None,
) -> Description | DescribedBounds | JointDescription | ArmsDescription:
    """Return private counts, means and standard deviations of columns; of columns at several ``parties`` their correlations too.

    Parameters
    ----------
    data : array of shape (n, p), mapping from names to columns, or data frame
        The rows.
    bounds : Bounds, (low, high), mapping from column names to ranges or categories, or True, optional
        Declared ranges or categories. None reads them off the data, warns, and promises nothing. True releases private ranges of columns of
        numbers instead of means: the result's ``bounds_`` may be passed to any estimator, whose statement then holds this price too.
    sites : array of n labels, optional
        Which party each row belongs to. None is one party.
    columns : list of str, optional
        Names for an array's columns. None calls them x0, x1, ..
    by : str, optional
        A column with categories, an arm of a trial for one: describe the others apart for each of its levels, with standardised differences from
        the first level.
    parties : int or mapping from names to columns, optional
        Columns of the same people are split: who holds which (a number: even parts). Their joint second moments are released (``unit="record"``), and the result has
        the correlations of all columns.
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
    confidence : float, default 0.95
        Of the intervals, which contain the noise.
    helpers : {1, 0}, default 1
        With ``parties``, whether an outside organisation knows the masks; 0 with three parties or more: they help each other.
    check : {"proof", "none"}, default "proof"
        With ``parties``, whether every party proves that its masked rows are short; without it nothing holds against one that deviates.
    random_state : int, optional
        A seed makes the noise reproducible, and the result a simulation that protects nobody. None draws real noise.
    budget : Budget, optional
        A total that several calls and fits on the same people share.

    Examples
    --------
    >>> import numpy as np, unpooled
    >>> age = np.random.default_rng(0).normal(50, 10, 4000)
    >>> result = unpooled.describe({"age": age}, unpooled.Bounds(0, 100), epsilon=1.0, random_state=0)
    >>> abs(result["all", "age"].mean.value - 50) < 1
    True
    >>> found = unpooled.describe({"age": age}, bounds=True, epsilon=0.5, random_state=0)
    >>> [(c.low < 20, c.high > 80) for c in found.bounds_.columns(["age"])]
    [(True, True)]

    The correlation of columns at two parties, of which none shows the other its rows:

    >>> weight = 0.5 * age + np.random.default_rng(1).normal(50, 8, 4000)
    >>> parties = {"clinic": ["age"], "lab": ["weight"]}
    >>> data, ranges = {"age": age, "weight": weight}, {"age": (0, 100), "weight": (20, 140)}
    >>> joint = unpooled.describe(data, ranges, parties=parties, epsilon=2.0, random_state=0)
    >>> abs(joint.correlation("age", "weight").value.value - 0.53) < 0.1
    True

    """
    if bounds is True:
        if by is not None:
            raise UsageError("private ranges are of all rows together: leave by= out, or pass the ranges as bounds")
        return _ranges(
            data, sites, columns, epsilon, delta, unit, unit_id, rows_per_household, adjacency, random_state, budget
        )
    given = {"epsilon": epsilon, "delta": delta, "bounds": bounds, "random_state": random_state, "budget": budget}
    check_given(
        SHARED | JOINING | {"confidence": (NUMBER,)},
        given | {"unit": unit, "adjacency": adjacency, "confidence": confidence, "helpers": helpers, "check": check},
    )
    check_given(SHARED, {"rows_per_household": rows_per_household})
    if parties is None and (helpers != 1 or check != PROOF):
        raise UsageError("helpers and check go with columns that are split: pass parties=, or leave them out")
    if by is not None and (parties is not None or bounds is None):
        raise UsageError("by= goes with rows of declared bounds: pass bounds, and no parties")
    if parties is not None and (sites is not None or bounds is None):
        raise UsageError("with parties= the columns are split: pass bounds, and no sites")
    if math.isinf(epsilon) and bounds is None:
        msg = "declare bounds: even without noise they say how values are clipped"
        raise UsageError(msg)
    data = counted_dates(data, dated_of(bounds))
    table = table_of(data, declared_in(data, bounds, columns))
    chosen = Bounds.given(bounds, table).columns(table.names)
    sites, unit_id = row_values(data, "sites", sites), row_values(data, "unit_id", unit_id)
    tables = site_tables(table, sites, unit, unit_id, rows_per_household)
    cards = row_cards(counts_of(tables), chosen)
    study = Study(
        model="describe",
        parties=cards,
        epsilon=epsilon,
        delta=default_delta(min(card.people for card in cards)) if delta is None else delta,
        unit=unit,
        adjacency=adjacency,
        parameters={"confidence": float(confidence), **({"by": by} if by is not None else {})},
        simulation_seed=seed_of(random_state),
        origins=origins_of(bounds),
        derived=() if bounds is not None else (BOUNDS,),
    )
    if parties is not None:
        return _joined(table, parties, study, helpers, check, budget)
    plan, found = run(MODEL, study, tables, budget=budget)
    if by is not None:
        return ArmsDescription(found.outcome.result, plan, found.ledger, found.outcome.communication)
    return Description(found.outcome.result, plan, found.ledger, found.outcome.communication)
