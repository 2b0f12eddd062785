"""Which way a study adds up, and the steps and the conversation of one total, whichever way it is."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from unpooled.aggregation import distributed, local, trusted
from unpooled.aggregation.distributed import Distributed
from unpooled.aggregation.local import Local
from unpooled.aggregation.totals import Quantity
from unpooled.aggregation.trusted import Trusted
from unpooled.errors import UsageError
from unpooled.privacy.plan import AGGREGATION, Study

if TYPE_CHECKING:
    from unpooled.aggregation.messages import Member
    from unpooled.aggregation.totals import Aggregation, Statistic, Summed, Total
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.step import Replies, Step


class Mode(StrEnum):
    """Who adds the noise."""

    DISTRIBUTED = "distributed"
    TRUSTED = "trusted"
    LOCAL = "local"


def aggregation_of(study: Study, tolerate: int = 0, nodes: tuple[str, ...] = ()) -> Aggregation:
    """As the study's ``[trust] aggregation`` asks for it; one party alone adds nothing up and is ``local``."""
    names = tuple(card.name for card in study.parties)
    try:
        mode = Mode(study.trust.get(AGGREGATION, Mode.DISTRIBUTED))
    except ValueError:
        msg = f"trust: aggregation is one of {', '.join(Mode)}, not {study.trust[AGGREGATION]!r}"
        raise UsageError(msg) from None
    if len(names) == 1:
        mode = Mode.LOCAL
    if tolerate < 0 or (mode is Mode.DISTRIBUTED and len(names) - tolerate < 2):  # noqa: PLR2004 - N - T - 1 >= 1
        msg = (
            f"tolerate = {tolerate} with {len(names)} parties leaves no noise that protects: it must be between 0 and "
            f"{max(len(names) - 2, 0)}"
        )
        raise UsageError(msg)
    if not set(nodes) <= set(names) or len(set(nodes)) != len(nodes):
        raise UsageError("nodes must be parties of the study, each once")
    if mode is Mode.LOCAL:
        return Local(names, tolerate)
    if mode is Mode.TRUSTED:
        if len(nodes) > 1:
            raise UsageError("trusted aggregation has exactly one node: the trusted party")
        return Trusted(names, tolerate, nodes or names[:1], 1)
    fewest = max(2, tolerate + 1)
    if nodes and len(nodes) < fewest:
        msg = f"{len(nodes)} node(s) could all be among the {tolerate} tolerated colluders: name at least {fewest}"
        raise UsageError(msg)
    return Distributed(names, tolerate, tuple(n for n in names if n in nodes) or names, fewest)


def steps_of(name: str, statistic: Statistic) -> tuple[Step, ...]:
    """Return the steps that a party performs for the total of this name, whichever way a plan adds it up."""
    quantity = Quantity(name, statistic)
    return (*distributed.steps(quantity), *trusted.steps(quantity), *local.steps(quantity))


def collect(
    plan: Plan,
    aggregation: Aggregation,
    vector: Summed,
    members: Mapping[str, Member],
    settings: tuple[float, ...] = (),
    index: int = 0,
) -> Generator[list[Ask], Replies, Total]:
    """The conversation that leads to one total."""
    return (yield from aggregation.collect(plan, vector, members, settings, index))
