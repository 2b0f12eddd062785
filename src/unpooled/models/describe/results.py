"""Results of ``unpooled.describe``: what each kind of description holds, and how it prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from unpooled.errors import listed
from unpooled.estimation.running import PlannedResult
from unpooled.models.describe import MODEL
from unpooled.models.describe.compared import ArmsSummary, Difference
from unpooled.models.describe.coordinator import Correlation, Estimate, JointSummary, Summary, render
from unpooled.models.describe.ranges import Range
from unpooled.models.describe.terms import terms
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.origin import BOUNDS_INPUT
from unpooled.protocol.terms import as_html

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.privacy.ledger import Entry
    from unpooled.privacy.plan import Plan


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

    def __str__(self) -> str:
        return render(self.summaries_)

    def __repr__(self) -> str:
        sources, columns = ({getattr(s, field) for s in self.summaries_} for field in ("source", "column"))
        return f"Description({len(columns)} columns, sources {', '.join(sorted(sources))}; {self.statement_!r})"

    def _repr_html_(self) -> str:
        return as_html(terms(self.plan_, self.summaries_), self.statement_.headline)


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

    def __str__(self) -> str:
        return render(self.ranges_)

    def __repr__(self) -> str:
        return f"DescribedBounds({len(self.ranges_)} columns; {self.statement_!r})"

    def _repr_html_(self) -> str:
        return as_html(terms(self.plan_, self.ranges_), self.statement_.headline)


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

    def __str__(self) -> str:
        return MODEL.table(self.plan_, self._result)

    def __repr__(self) -> str:
        return f"JointDescription({len(self.correlations_)} correlations; {self.statement_!r})"

    def _repr_html_(self) -> str:
        return as_html(terms(self.plan_, self._result), self.statement_.headline)


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

    def __str__(self) -> str:
        return MODEL.table(self.plan_, self.table_)

    def __repr__(self) -> str:
        return f"ArmsDescription({len(self.table_.arms)} arms of {self.table_.by}; {self.statement_!r})"

    def _repr_html_(self) -> str:
        return as_html(terms(self.plan_, self.table_), self.statement_.headline)
