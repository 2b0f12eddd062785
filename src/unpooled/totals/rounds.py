"""The engine of rounds: one plan of totals, one conversation that asks for them, and one descent along noisy gradients.

A model over totals says which vectors its parties add up and what follows from each. Everything else is here, once: counts of rows, sums of
weights, shares of the budget, keys, and who took part. Regression, generalised linear models and partial least squares are such models.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from unpooled.privacy.plan import Plan, Study
from unpooled.privacy.unit import Adjacency, Split
from unpooled.totals.modes import collect
from unpooled.totals.secure_sum import exchange_keys
from unpooled.totals.total import COUNT, DESCENT, counting, next_to_none, of_units, rows_of
from unpooled.totals.weights import WEIGHTS
from unpooled.totals.whole_rows import expected_missing
from unpooled.totals.whole_rows import moved as moved_by_gaps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from numpy.typing import NDArray

    from unpooled.privacy.plan import Release
    from unpooled.privacy.sentence import Sentence
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Replies
    from unpooled.totals.total import Adds, Aggregation, Member, Summed, Total
    from unpooled.totals.weights import Weighting

    Row = NDArray[np.float64]

#: The design of a model over totals.
Summing = TypeVar("Summing", bound="Adds")

# --- the plan ------------------------------------------------------------------------------------------------------------


def strength(study: Study, aggregation: Aggregation, weighting: Weighting | None = None) -> float:
    """Return n mu: the rows of all parties, times the budget's mu after the cost of distributed noise.

    A household's rows share one budget. Weighted rows count for the middle of their declared range, which is what is known before data.
    """
    typical = (1.0 if weighting is None else weighting.middle) * (1 - expected_missing(study))
    return typical * sum(card.rows for card in study.parties) / study.household_rows * aggregation.multiplier(study)


def totals_of(
    study: Study,
    vectors: Callable[[Adjacency], Iterable[Summed]],
    weighting: Weighting | None = None,
    *,
    gaps: bool = False,
) -> dict[str, Summed]:
    """Return all totals of a plan by name and in order: the count of rows and the sum of weights where needed, then the model's own.

    ``vectors`` gives the model's own for each adjacency; their shares are parts of what counts and weights leave of the budget. With ``gaps`` rows may
    contribute nothing to any of them (Theorem B.20).
    """
    totals = {vector.name: vector for vector in counting(study, gaps=gaps)}
    if weighting is not None:
        totals[WEIGHTS] = of_units(study, dict.fromkeys(Adjacency, weighting.vector()))
    left = 1 - sum(vector.share for vector in totals.values())
    moved = {how: {vector.name: vector for vector in vectors(how)} for how in Adjacency}
    for name in moved[Adjacency.REPLACE]:
        made_so = {how: made[name] for how, made in moved.items()}
        if gaps:
            made_so = {how: moved_by_gaps(vector, made_so, how) for how, vector in made_so.items()}
        vector = of_units(study, made_so)
        totals[name] = replace(vector, share=vector.share * left)
    return totals


def releases_of(study: Study, design: Adds) -> tuple[Release, ...]:
    """Return the releases of every party, total by total."""
    return tuple(release for vector in design.totals.values() for release in design.aggregation.releases(vector, study))


def plan_of_totals(
    study: Study,
    design: Adds,
    *,
    public: tuple[Sentence, ...] = (),
    assumptions: tuple[Sentence, ...] = (),
    voids: tuple[Sentence, ...] = (),
    notes: tuple[str, ...] = (),
) -> Plan:
    """Return the plan of a model over totals, with the sentences of its way to add up."""
    not_protected, assumed = design.aggregation.sentences
    return Plan(
        study,
        Split.HORIZONTAL,
        releases_of(study, design),
        public=public,
        not_protected=not_protected,
        assumptions=(*assumptions, *assumed),
        voids=voids,
        trusted=design.aggregation.trusted,
        design=design,
        notes=notes,
    )


def passes_note(method: str, passes: int) -> tuple[str, ...]:
    """Return the plan's note on its method and on the number of times that every party's data are read."""
    return (f"method {method}: {passes} pass{'es' if passes > 1 else ''} over every party's data",)


# --- the conversation ----------------------------------------------------------------------------------------------------


@dataclass
class Rounds(Generic[Summing]):
    """The conversation of one study: it asks for totals of its plan, and knows whose rows were in the last one."""

    plan: Plan[Summing]
    members: Mapping[str, Member] = field(default_factory=dict)
    participants: tuple[str, ...] = ()
    count: Total | None = None
    #: The mean weight as a part of the largest; 1 without weights.
    weight: float = 1.0

    @property
    def design(self) -> Summing:
        """Return the plan's design: its totals, and the way to add them up."""
        return self.plan.design

    @property
    def rows(self) -> int:
        """Return the number of rows of the parties in the last total."""
        return rows_of(self.plan.study, self.participants, self.count, gaps=self.gaps)

    @property
    def next_to_none(self) -> str:
        """Return why nothing follows from the rows that count: hardly any of them are whole. Empty where something may follow."""
        return next_to_none(self.plan.study, self.participants, self.count) if self.gaps else ""

    @property
    def doubt(self) -> float:
        """Return the deviation of the noise in the number of rows, where they may have gaps."""
        return float(self.count.deviations[0]) if self.gaps and self.count is not None else 0.0

    @property
    def gaps(self) -> bool:
        """Return True if rows may contribute nothing, so that a noisy count says how many do."""
        return COUNT in self.design.totals and self.design.totals[COUNT].gaps

    @property
    def counted(self) -> float:
        """Return the sum of weights as parts of the largest: the number of rows, without weights."""
        return self.rows * self.weight

    def begin(self, weighting: Weighting | None = None) -> Generator[list[Ask], Replies, None]:
        """Exchange keys, and ask for the count of rows and the sum of weights where the plan has them."""
        self.members = yield from exchange_keys(self.design.aggregation)
        if COUNT in self.design.totals:
            self.count = yield from self.total(COUNT)
        if weighting is not None:
            total = yield from self.total(WEIGHTS)
            self.weight = weighting.mean(total, self.rows)

    def total(self, name: str, settings: tuple[float, ...] = (), index: int = 0) -> Generator[list[Ask], Replies, Total]:
        """Ask for the total of this name, in its round ``index``, at these public settings."""
        vector = self.design.totals[name]
        total = yield from collect(self.plan, self.design.aggregation, vector, self.members, settings, index)
        self.participants = total.participants
        return total


def descend(
    rounds: Rounds[Any],
    sent: Callable[[Row], tuple[float, ...]],
    move: Callable[[Total, Row], Row],
    start: Row,
    count: int,
    *,
    name: str = DESCENT,
    first: int | None = None,
) -> Generator[list[Ask], Replies, Row]:
    """Take ``count`` steps along noisy gradients from ``start``, and return the mean of the later half of the coefficients.

    ``name`` is that of the total, and ``first`` the round from which on coefficients are averaged, in the place of the later half. ``sent`` gives the settings of the request at some coefficients, ``move`` the step that follows from the total of these gradients. The mean
    averages noise out: where rows' second moments are about those of independent columns, that of m gradients has 1/m of one's variance.
    """
    current, later = start.copy(), np.zeros_like(start)
    first = count // 2 if first is None else first
    for index in range(count):
        total = yield from rounds.total(name, sent(current), index)
        current = current + move(total, current)
        if index >= first:
            later += current
    return later / (count - first)
