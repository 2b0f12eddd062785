"""``unpooled.describe``: the study run in process on arrays; what each kind of description holds, and how it prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from unpooled.errors import UsageError, listed
from unpooled.estimation.calls import PerhapsOverColumns, asked_of
from unpooled.estimation.columns import UnderMasks, helped, joint_cards
from unpooled.estimation.parameters import BOUNDED, NONE, ParameterKind
from unpooled.estimation.releasing import OfRows, asks, study_of, study_of_rows
from unpooled.estimation.running import PlannedResult, run
from unpooled.estimation.tables import declared_in, table_of
from unpooled.models.describe import MODEL
from unpooled.models.describe.declared import FARTHEST, Parameters, Range
from unpooled.models.describe.fit import ArmsSummary, Correlation, Difference, Estimate, JointSummary, Summary
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.declared import COLUMNS, PROOF, says
from unpooled.privacy.origin import BOUNDS_INPUT
from unpooled.privacy.plan import Study
from unpooled.privacy.table import Table
from unpooled.protocol.local import columns_of_parties

if TYPE_CHECKING:
    from unpooled.privacy.ledger import Entry
    from unpooled.privacy.plan import Plan


_TRUE = ParameterKind("True", lambda value: value is True)

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
        """Return ranges by name. What becomes of missing values they do not say: ``dataclasses.replace(bounds, missing="complete")`` does."""
        return self.bounds([r.column for r in self.ranges_])

    def bounds(self, columns: Sequence[str]) -> Bounds:
        """Return the bounds of some of the columns, with the price of all: they were released together."""
        chosen: dict[str | int, Any] = {r.column: (r.low, r.high) for r in self.ranges_ if r.column in set(columns)}
        return Bounds(chosen, paid=self.plan_.origins(BOUNDS_INPUT))

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


class Described(UnderMasks, PerhapsOverColumns):
    """What a call says otherwise than a study: whose columns they are, and bounds that it may ask for."""

    bounds: Annotated[
        Any,
        says(
            "Declared ranges or categories. None reads them off the data, warns, and promises nothing. True releases private ranges of columns of numbers "
            "instead of means: the result's ``bounds_`` may be passed to any estimator, whose statement then holds this price too.",
            kinds=(BOUNDED, _TRUE, NONE),
            call="Bounds, (low, high), mapping from column names to ranges or categories, or True, optional",
            written="Bounds | Mapping[str | int, Any] | tuple[Any, Any] | Literal[True] | None",
        ),
    ] = None
    columns: Annotated[
        Sequence[str] | None,
        says("Columns of a frame, or names for an array's; None takes those that are declared, or calls them x0, x1, .."),
    ] = None


def _joined(table: Table, study: Study, asked: Any) -> JointDescription:  # noqa: ANN401 - the arguments of a call
    """Return the study of columns at several parties; ``study`` has one card with all of them."""
    groups = columns_of_parties(asked.parties, table.names)
    cards = joint_cards(groups, study.parties[0].columns, None, table.n_rows, "", asked.check)
    parameters = {"split": COLUMNS, "check": asked.check, **study.parameters}
    joined = helped(msgspec.structs.replace(study, parties=cards, parameters=parameters), asked.helpers)
    tables = {card.name: Table({c.name: table[c.name] for c in card.columns}) for card in cards}
    plan, found = run(MODEL, joined, tables, budget=asked.budget)
    result = found.outcome.result
    return JointDescription(
        result.summaries, result.correlations, result.still, plan, found.ledger, found.outcome.communication
    )


def _ranges(asked: Any) -> DescribedBounds:  # noqa: ANN401 - as above
    """Return the study of private ranges."""
    if asked.by is not None:
        raise UsageError("private ranges are of all rows together: leave by= out, or pass the ranges as bounds")
    table = table_of(asked.data, asked.columns)
    wide = Bounds(-FARTHEST, FARTHEST, missing="absent").columns(table.names)
    study, tables = study_of("describe", asked, table, wide, {"ranges": True})
    plan, found = run(MODEL, study, tables, budget=asked.budget)
    return DescribedBounds(found.outcome.result, plan, found.ledger, found.outcome.communication)


@asks(OfRows, Parameters, Described, leading="data bounds", left=("response_at",))
def describe(asked: Any) -> Description | DescribedBounds | JointDescription | ArmsDescription:  # noqa: ANN401 - its arguments
    """Return private counts, means and standard deviations of columns; of columns at several ``parties`` their correlations too.

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
    if asked.bounds is True:
        return _ranges(asked)
    split = asked.parties is not None
    if not split and (asked.helpers != 1 or asked.check != PROOF):
        raise UsageError("helpers and check go with columns that are split: pass parties=, or leave them out")
    if asked.by is not None and (split or asked.bounds is None):
        raise UsageError("by= goes with rows of declared bounds: pass bounds, and no parties")
    if split and (asked.sites is not None or asked.bounds is None):
        raise UsageError("with parties= the columns are split: pass bounds, and no sites")
    names = declared_in(asked.data, asked.bounds, asked.columns)
    study, tables = study_of_rows("describe", asked, names, asked_of(Parameters, vars(asked), ("columns",)))
    if split:
        (table,) = tables.values()
        return _joined(table, study, asked)
    plan, found = run(MODEL, study, tables, budget=asked.budget)
    kind = Description if asked.by is None else ArmsDescription
    return kind(found.outcome.result, plan, found.ledger, found.outcome.communication)
