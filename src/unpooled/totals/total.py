"""Totals over parties: the statistic that every party adds up, the three ways in which integer vectors become one noisy total, and all that travels for it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from unpooled.errors import PlanMismatch, ProtocolError, StudyAborted, UsageError
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.mechanisms import Block, DistributedGaussian, GaussianRelease, Reach
from unpooled.privacy.plan import Plan, Release, Study
from unpooled.privacy.sensitivity import household_row
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit
from unpooled.protocol.context import Context
from unpooled.protocol.messages import Partial, Public, Released, Sealed
from unpooled.schedules import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.sentence import Sentence
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Replies


# --- Messages --------------------------------------------------------------------------------------------------------------
# Everything that may travel for a total: keys, sealed summands, agreements on participants, parts of a total, released totals.


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A party's key for one plan, signed by the identity that its card pins."""

    name: str
    agreement: str
    identity: str
    signature: str


class KeyReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same, as the party sends it."""

    agreement: Public[str]
    identity: Public[str]
    signature: Public[str]


class FragmentRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The nodes to encrypt for, and public settings of the statistic."""

    nodes: tuple[Member, ...]
    settings: tuple[float, ...] = ()


class FragmentReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One sealed fragment per node."""

    fragments: tuple[Sealed, ...]


class AgreeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose fragments arrived."""

    participants: tuple[str, ...]


class AgreeReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node's signature under the one set of participants that it will add up."""

    signature: Public[str]


class TotalRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sealed fragments of the participants for this node; every node's signature (secure sums); settings (trusted sums)."""

    participants: tuple[Member, ...]
    sealed: tuple[Sealed, ...]
    nodes: tuple[Member, ...] = ()
    signatures: tuple[str, ...] = ()
    settings: tuple[float, ...] = ()


class TotalReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node's part of the total."""

    part: Partial


class LocalRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Public settings of the statistic."""

    settings: tuple[float, ...] = ()


class NoisyReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A released total: of all parties (trusted) or of one (local)."""

    total: Released


# --- Totals ----------------------------------------------------------------------------------------------------------------
# Totals over parties: the base of three ways to turn the parties' integer vectors into one noisy total.
#
# * ``distributed``: every party adds a fragment of the noise and a secure sum opens nothing but the total. Nobody need be trusted: up to
#   T parties may collude with the coordinator or drop out, N - T - 1 fragments suffice for the guarantee (Theorem B.1).
# * ``trusted``: the parties seal exact vectors for one named party, which adds the noise once. That party sees the exact vectors.
# * ``local``: every party releases its own vector with all the noise it needs.
#
# Each has a file of its own; ``modes.py`` picks one. One release has one set of participants, and no two sums that could be subtracted from each
# other are ever opened.

#: A vector and its noise stay this far below the point where int64 wraps around.
_HEADROOM = 1 << 62
#: Standard deviations of noise that are taken into account there (beyond: once in 10^32).
_TAIL = 12


@dataclass(frozen=True, slots=True)
class Summed:
    """An integer vector that the parties add up: its noise blocks, how far a unit moves it, how much one row can add."""

    name: str
    blocks: tuple[Block, ...]
    reach: Mapping[Unit, Reach]
    #: The largest absolute value that one row adds to any coordinate.
    per_row: int
    #: Its share of the squared budget.
    share: float = 1.0
    #: A noise scale that the model brings, instead of the calibrated one.
    scale: float | None = None
    #: How many rounds it has, each a release of its own that gets an equal part of the share.
    count: int = 1
    #: Whether rows may contribute nothing to any total: those without a value that the model needs.
    gaps: bool = False

    def step(self, act: str) -> str:
        """Return the name of one of its steps."""
        return f"{self.name}-{act}"

    def gaussian(self, study: Study) -> GaussianRelease:
        """Return the vector with all its noise at once."""
        if self.scale is not None:
            return GaussianRelease(self.blocks, tuple(sorted(self.reach.items())), self.scale)
        mu = budget_mu(study.epsilon, study.delta) * math.sqrt(self.share / self.count)
        return GaussianRelease.calibrated(self.blocks, self.reach, study.target.unit, mu)

    def fits(self, study: Study, scale: float) -> None:
        """Refuse a total that, with noise of this scale from every party, may not fit into 64 bits."""
        rows = sum(card.rows for card in study.parties)
        noise = _TAIL * scale * max(block.width for block in self.blocks) * math.sqrt(len(study.parties))
        if rows * self.per_row + noise >= _HEADROOM:
            msg = f"the total of {self.name!r} may not fit into 64 bits: ask for a larger epsilon, or declare tighter bounds"
            raise UsageError(msg)

    def deviations(self, plan: Plan) -> NDArray[np.float64]:
        """Return the standard deviation of every coordinate of the total if every party is in it."""
        mechanisms = [release.mechanism for release in plan.releases if release.name == self.name]
        if isinstance(mechanisms[0], DistributedGaussian):
            return mechanisms[0].total_deviations(len(mechanisms))
        noise = [m.deviations for m in mechanisms if isinstance(m, GaussianRelease)]
        return np.asarray(noise[0] * math.sqrt(len(noise)))


def of_units(study: Study, moved: Mapping[Adjacency, Summed]) -> Summed:
    """Return a vector for the units of a study, given what one row is to it under each adjacency.

    A household's rows become others, vanish or appear: ``household_rows`` times the farther of a row's moves (Theorem F.19). Whether a total is of
    all parties, of some or of one does not matter: where rows of an id may lie elsewhere, it is priced as a release of one party.
    """
    adjacency = Adjacency(study.adjacency)
    found = moved[adjacency]
    if study.unit != Unit.HOUSEHOLD or Unit.HOUSEHOLD in found.reach:  # a vector that knows how far a household moves it
        return found
    row, appears = found.reach[Unit.RECORD], moved[Adjacency.ZERO_OUT].reach[Unit.RECORD]
    distance = household_row(row.distance, appears.distance, adjacency, rows_move=study.rows_move)
    one = Reach(distance, max(row.coordinates, appears.coordinates))
    return replace(found, reach={**found.reach, Unit.HOUSEHOLD: one.times(study.household_rows)})


#: How many rows count, where that is not public.
COUNT = "count"
#: The totals of gradients, one for every round.
DESCENT = "descent"
#: Its share of the squared budget.
_TUNED = table("totals")
_COUNT_SHARE = _TUNED.count_share


def counting(study: Study, *, gaps: bool = False) -> Iterator[Summed]:
    """The number of rows that count, where an id may have several or rows may have ``gaps``: nobody else knows it."""
    if study.household_rows > 1 or gaps:
        reach = {unit: Reach(1.0, 1) for unit in ROWWISE}
        vector = Summed(COUNT, (Block(1, 1.0),), reach, 1, _COUNT_SHARE, gaps=gaps)
        yield of_units(study, dict.fromkeys(Adjacency, vector))  # a row more or less, however it changes


def rows_of(study: Study, participants: Iterable[str], count: Total | None, *, gaps: bool = False) -> int:
    """Return the rows of these parties: as their cards say, or as a noisy count does, between one and all that could count of every id.

    Where rows may have ``gaps``, the count is at least three deviations of its noise.
    """
    cards = [study.card(name) for name in participants]
    most = sum(card.rows for card in cards)
    if count is None:
        return most
    if gaps:
        return whole_seen(float(count.values[0]), float(count.deviations[0]), most)
    return round(min(max(float(count.values[0]), sum(card.people for card in cards)), most))


def whole_seen(seen: float, noise: float, most: int) -> int:
    """Return how many rows count as whole, by their noisy number: at least three deviations of its noise, and no more than all."""
    return round(min(max(seen, _TUNED.count_seen * noise), most))


def next_to_none(study: Study, participants: Iterable[str], count: Total | None) -> str:
    """Return why nothing follows from the rows that count, by their noisy number; empty where something may."""
    if count is None:
        return ""
    return too_few(float(count.values[0]), float(count.deviations[0]), sum(study.card(name).rows for name in participants))


def too_few(seen: float, noise: float, most: int) -> str:
    """Return why nothing follows from so few whole rows of all that there are, by their noisy number; empty where something may."""
    if seen >= max(_TUNED.count_seen * noise, _TUNED.count_part * most):
        return ""
    return f"not identified: {seen:.0f} +- {noise:.0f} of {most} rows had all columns, and the table says nothing of so few"


@dataclass(frozen=True, slots=True)
class Total:
    """The result of a sum: the noisy total, the standard deviation of its noise, and the parties whose vectors are in it."""

    values: NDArray[np.float64]
    deviations: NDArray[np.float64]
    participants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Aggregation(ABC):
    """One way to add up: T, and which parties may be its ``count`` nodes (or the one trusted aggregator).

    The nodes are the first of them that are there when keys are exchanged. They are more than T, so whichever they are (a dishonest
    coordinator may choose), one of them is honest.
    """

    parties: tuple[str, ...]
    tolerate: int
    nodes: tuple[str, ...] = ()
    count: int = 0

    @property
    def seals(self) -> bool:
        """Return True if parties seal something for each other, for which they exchange keys first."""
        return self.count > 0

    @property
    def sentences(self) -> tuple[tuple[Sentence, ...], tuple[Sentence, ...]]:
        """Return the statement's sentences about this aggregation: (not protected, assumptions)."""
        return (), ()

    @property
    def trusted(self) -> tuple[Sentence, ...]:
        """Return who sees exact sums, in words."""
        return ()

    def multiplier(self, study: Study) -> float:
        """Return the mu of a total's whole budget, less what this way to add up costs: sensitivity over deviation of its noise."""
        return budget_mu(study.epsilon, study.delta)

    @abstractmethod
    def releases(self, vector: Summed, study: Study) -> tuple[Release, ...]:
        """Return the releases of the plan, one per party."""

    @abstractmethod
    def collect(
        self, plan: Plan, vector: Summed, members: Mapping[str, Member], settings: tuple[float, ...], index: int = 0
    ) -> Generator[list[Ask], Replies, Total]:
        """The conversation that leads to one total: of this round, where it has several."""

    def check_nodes(self, nodes: tuple[str, ...]) -> None:
        """Refuse nodes other than the right number of eligible parties, in the study's order."""
        if len(nodes) != self.count or list(nodes) != [n for n in self.nodes if n in nodes]:
            msg = f"a secure sum of this plan has {self.count} of the nodes {', '.join(self.nodes)}, in this order"
            raise PlanMismatch(msg)

    def check_participants(self, participants: tuple[str, ...]) -> None:
        """Refuse a set of participants that is not in order, names somebody twice, or misses more than T parties."""
        positions = [self.parties.index(name) for name in participants if name in self.parties]
        if len(positions) != len(participants) or positions != sorted(set(positions)):
            raise ProtocolError("the participants are not parties of the study, each once and in the study's order")
        if len(participants) < len(self.parties) - self.tolerate:
            msg = f"{len(participants)} participants where at least {len(self.parties) - self.tolerate} are needed"
            raise ProtocolError(msg)

    def enough(self, arrived: Mapping[str, Any], where: str) -> None:
        """Abort, with nothing opened, where more than T parties are missing."""
        missing = [party for party in self.parties if party not in arrived]
        if len(missing) > self.tolerate:
            msg = (
                f"{', '.join(missing)} dropped out {where}, and this study tolerates {self.tolerate}. Nothing was opened: run it "
                "again once they are back"
            )
            raise StudyAborted(msg)


# --- at a party ----------------------------------------------------------------------------------------------------------

#: From a party's data and a request's public settings to its vector.
Statistic = Callable[[Context, tuple[float, ...]], "NDArray[np.int64]"]


class Adds(Protocol):
    """The attributes of the design of a plan with totals."""

    @property
    def aggregation(self) -> Aggregation: ...  # noqa: D102 - how it adds up
    @property
    def totals(self) -> Mapping[str, Summed]: ...  # noqa: D102 - what it adds up, by name


@dataclass(frozen=True, slots=True)
class Quantity:
    """One total of a model, as a party computes its part of it."""

    name: str
    statistic: Statistic

    def planned(self, context: Context[Adds]) -> tuple[Aggregation, Summed]:
        """Return the aggregation and the vector that the plan has for this total; refused where it has none."""
        design = context.design
        if self.name not in design.totals:
            msg = f"this plan has no total {self.name!r}"
            raise PlanMismatch(msg)
        return design.aggregation, design.totals[self.name]

    def own(self, context: Context, settings: tuple[float, ...]) -> NDArray[np.int64]:
        """Return the party's vector, inside the range for which wrap-around was excluded."""
        _, vector = self.planned(context)
        statistic = context.added_up(self.statistic, settings)
        if statistic.size and int(np.abs(statistic).max()) > vector.per_row * context.card.rows:
            raise ProtocolError("a statistic beyond its declared range")
        return statistic


def no_settings(settings: tuple[float, ...]) -> None:
    """Refuse a request with numbers where a statistic has none."""
    if settings:
        raise PlanMismatch("what is counted or taken inside the declared ranges has no settings in its request")


def rows_counted(context: Context, settings: tuple[float, ...]) -> NDArray[np.int64]:
    """Return the number of rows of a party that count, as a vector of one number."""
    no_settings(settings)
    table = context.table
    return np.array([sum(block[0].size for block in table.blocks(table.names[:1]))], dtype=np.int64)


def noisy_release(plan: Plan, party: str, name: str) -> GaussianRelease:
    """Return the planned release of a party's noisy vector."""
    mechanism = plan.release(party, name).mechanism
    assert isinstance(mechanism, GaussianRelease)
    return mechanism
