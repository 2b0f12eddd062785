"""What a study's budget is for, a table or predictions; and whether a table can expect any line, which is known before data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import UsageError
from unpooled.totals.rounds import strength

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unpooled.privacy.plan import Study
    from unpooled.totals.total import Aggregation
    from unpooled.totals.weights import Weighting

_HALVINGS = 12
#: The largest epsilon that is named as a remedy: beyond it a promise means little.
_MOST = 20.0


class Goal(StrEnum):
    """What a budget is for."""

    #: A table where a line of it can be expected, else predictions, with a warning.
    AUTO = "auto"
    #: A table; a study that cannot expect a line of it is refused before it pays.
    TABLE = "table"
    #: The smallest error of predictions.
    PREDICTIONS = "predictions"


def goal_of(word: str) -> Goal:
    """Return the goal of this word."""
    if word not in set(Goal):
        msg = f"goal is one of {', '.join(Goal)}, not {word!r}"
        raise UsageError(msg)
    return Goal(word)


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a study has for a table, and what it would need: k is rows times mu for each coefficient, before data."""

    study: Study
    aggregation: Aggregation
    weighting: Weighting | None
    #: The coefficients that rows are counted for.
    coefficients: float
    #: The k from which on second moments tell of columns.
    least: float

    @property
    def k(self) -> float:
        """Return rows times mu for each coefficient."""
        return self._at(self.study.epsilon)

    @property
    def has_lines(self) -> bool:
        """Return True if a line of a table can be expected."""
        return self.k >= self.least

    def _at(self, epsilon: float) -> float:
        asked = msgspec.structs.replace(self.study, epsilon=epsilon)
        return strength(asked, self.aggregation, self.weighting) / self.coefficients

    def _epsilon(self) -> float:
        """Return the smallest epsilon that would do, to a per cent."""
        low = high = self.study.epsilon
        while self._at(high) < self.least and high < _MOST:
            low, high = high, 2 * high
        for _ in range(_HALVINGS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self._at(middle) < self.least else (low, middle)
        return high

    def words(self, others: Iterable[str] = ()) -> str:
        """Return why there would be no line, and what would do: of other remedies, those that the model has."""
        rows, epsilon, found = sum(card.rows for card in self.study.parties), self.study.epsilon, self._epsilon()
        remedies = [f"epsilon = {math.ceil(found * 100) / 100:g}"] if found <= _MOST else []
        remedies.append(f"{math.ceil(rows * self.least / self.k):,} rows")
        fewer = math.floor(self.coefficients * self.k / self.least)
        if fewer > 1:
            remedies.append(f"columns of {fewer} coefficients together (these have {self.coefficients:g})")
        return (
            f"with {rows:,} rows, {self.coefficients:g} coefficients and epsilon {epsilon:g} noise would hide every line of a table. "
            f"What would do: {', or '.join((*remedies, *others))}"
        )


def check_goal(goal: Goal, prospect: Prospect, method: str, tells: bool, others: Iterable[str] = ()) -> None:
    """Refuse a study that asks for a table which its method does not make, or of which nobody can expect a line."""
    if goal is not Goal.TABLE:
        return
    if not prospect.has_lines:
        because = prospect.words((*others, 'goal = "predictions"'))
        msg = f'goal is "table", and {because}. Nothing is spent'
        raise UsageError(msg)
    if not tells:
        msg = f'goal is "table", and method {str(method)!r} tells no standard errors: leave method out, or ask for goal = "predictions"'
        raise UsageError(msg)


def untabled(goal: Goal, prospect: Prospect, others: Iterable[str] = ()) -> str:
    """Return what a study that asks for no goal is to be told where it makes no table; empty where nothing is."""
    if goal is not Goal.AUTO or prospect.has_lines:
        return ""
    return f'this study makes no table and is for predictions (goal = "predictions" says so): {prospect.words(others)}'
