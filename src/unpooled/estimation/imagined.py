"""A study's own rounds, played over made-up rows with the noise that its plan has: what outlooks of row-split models simulate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from unpooled.aggregation.totals import Aggregation, Total
from unpooled.protocol.context import Context

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import Any

    import numpy as np

    from unpooled.aggregation.messages import Member
    from unpooled.aggregation.totals import Statistic, Summed
    from unpooled.privacy.plan import Plan, Release, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.step import Conversation, Replies


@dataclass(frozen=True, slots=True)
class Imagined(Aggregation):
    """Totals of made-up rows, scaled to the study's number of rows, with noise of the plan's deviations: nobody is asked."""

    table: Table | None = None
    real: Plan | None = None
    rng: np.random.Generator | None = None
    statistics: Mapping[str, Statistic] = field(default_factory=dict)

    def releases(self, vector: Summed, study: Study) -> tuple[Release, ...]:
        """None: nothing is planned by it."""
        del vector, study
        return ()

    def collect(
        self, plan: Plan, vector: Summed, members: Mapping[str, Member], settings: tuple[float, ...], index: int = 0
    ) -> Generator[list[Ask], Replies, Total]:
        """The total as the study would have it."""
        yield from ()
        del members
        assert self.table is not None and self.real is not None and self.rng is not None  # noqa: PT018 - set where it is made
        context: Any = Context("imagined", self.table, plan, vector.name, index, None)
        exact = self.statistics[vector.name](context, settings)
        rows = sum(card.rows for card in plan.study.parties)
        noise = vector.deviations(self.real)
        values = exact * (rows / self.table.n_rows) + noise * self.rng.standard_normal(exact.size)
        return Total(values, noise, self.parties)


def imagine(
    plan: Plan,
    coordinate: Callable[[Plan], Conversation],
    statistics: Mapping[str, Statistic],
    table: Table,
    rng: np.random.Generator,
) -> Any:  # noqa: ANN401 - the model's own result
    """Return the result of a study over these made-up rows."""
    seen = getattr(plan.design, "seen", None)  # with the columns of a formula
    table = table if seen is None else seen(table)
    parties = plan.design.aggregation.parties
    aggregation = Imagined(parties, 0, table=table, real=plan, rng=rng, statistics=statistics)
    conversation = coordinate(replace(plan, design=replace(plan.design, aggregation=aggregation)))
    try:
        next(conversation)
    except StopIteration as end:
        return end.value
    raise AssertionError("an imagined study asks nobody")
