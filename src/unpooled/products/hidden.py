"""Design of a study of hidden people: columns at two parties of whom nobody knows which people they have in common.

Every party has rows at places that an earlier link gave out (:class:`~unpooled.privacy.places.Places`). The number of people in common is a release, and so
are the means and deviations of their columns, in a round of its own: those of a party's whole list would be of other people. Their noisy values
are public, and every party standardises its rows by what it is asked to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import msgspec
import numpy as np

from unpooled.errors import PlanMismatch, ProtocolError, UsageError, listed
from unpooled.linear.standard import FIRST, Standard, coded_rows, feature_rows
from unpooled.privacy.declared import PROOF
from unpooled.privacy.table import HubTable, PlacedTable
from unpooled.products.design import Joined, JointDesign, PartScales, SeveralSums
from unpooled.products.masking import AT
from unpooled.products.placed import PlacedMoments, PlacedSums
from unpooled.products.placed_rows import Carried, placed
from unpooled.products.sums import GRID, JOINT, JointRound, JointShape, RowPart, Side, joint_sum
from unpooled.schedules import table
from unpooled.totals.total import Total
from unpooled.totals.whole_rows import expected_missing, marked_rows, whole_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from unpooled.linear.layout import MomentsLayout
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Study
    from unpooled.privacy.table import Table
    from unpooled.products.design import JointBudget
    from unpooled.products.sums import Spot
    from unpooled.protocol.context import Context

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

#: The name of the release of the means and deviations of people in common.
COMMON = "common"
_TUNED = table("joint")
#: No deviation that a party is asked to standardise by is smaller.
_NARROWEST = 1e-6
_TWO = 2


@runtime_checkable
class OfHiddenPeople(Protocol):
    """The parameters that a study of hidden people has in addition."""

    expected: int


def expected_people(study: Study, parameters: object) -> int:
    """Return how many people in common a study expects; refuse none, which has no default: limits and the plan by line follow from it."""
    number = parameters.expected if isinstance(parameters, OfHiddenPeople) else 0
    most = min(card.rows for card in study.parties)
    if not 1 < number <= most:
        msg = (
            f"a study of hidden people says how many it expects that both parties have: expected = a whole number from 2 to {most:,}, known from elsewhere "
            "and never counted by comparing the lists. Limits and the plan by line follow from it; half or double of the truth costs a third of an error"
        )
        raise UsageError(msg)
    return number


def in_common(study: Study, people: int) -> list[str]:
    """Return the line under a table of hidden people that says how many there are; none where everybody knows that."""
    return (
        [f"about {people:,} people are at both parties: a noisy count, and nobody learned who they are"]
        if study.hidden
        else []
    )


def refuse_expected(study: Study, parameters: object) -> None:
    """Refuse a number of expected people in a study whose people are known to all."""
    if not study.hidden and isinstance(parameters, OfHiddenPeople) and parameters.expected:
        raise UsageError(
            "expected is of hidden people, of whom nobody knows how many both parties have: leave it out, or fit with a hidden link (on=hidden_link(...); in "
            'a study file ids = "hidden:...")'
        )


def hub_of(study: Study) -> tuple[tuple[str, ...], str]:
    """Return the hospitals of a study, which declare the same columns, and the registry that declares others; none and nobody of two parties."""
    if len(study.parties) == _TWO:
        return (), ""
    kinds: dict[tuple[Column, ...], list[str]] = {}
    for card in study.parties:
        kinds.setdefault(card.columns, []).append(card.name)
    alone = [names[0] for names in kinds.values() if len(names) == 1]
    if len(kinds) != _TWO or len(alone) != 1:
        msg = (
            f"hidden people of {len(study.parties)} parties are those of hospitals, which all declare the same columns, and of one registry that declares others; "
            "that somebody is at three parties with different columns is a product of three presences, which no masked product has"
        )
        raise UsageError(msg)
    return tuple(card.name for card in study.parties if card.name != alone[0]), alone[0]


@dataclass(frozen=True)
class HiddenColumns(SeveralSums):
    """What every study of hidden people has: rows at places, and means and deviations of people in common.

    Of several hospitals and a registry the arrays of places lie one behind the other, and every block of rows is one hospital's, which acts for all of them.
    """

    #: The hospitals in the study's order, how many places each has in common with the registry, and the registry; empty of two parties.
    hospitals: tuple[str, ...] = ()
    arrays: tuple[int, ...] = ()
    hub: str = ""
    #: All organisations with rows, in the study's order.
    organisations: tuple[str, ...] = ()

    @classmethod
    def _made(cls, study: Study, parameters: Joined, budget: JointBudget, formula: str) -> Self:
        """Return the checked design with the limits that this budget affords: of several hospitals that of one that has all of their places."""
        hospitals, hub = hub_of(study)
        if not hospitals:
            return super()._made(study, parameters, budget, formula)
        sizes = tuple(study.card(name).rows for name in hospitals)
        if study.card(hub).rows != sum(sizes):
            msg = f"the places of {hub!r} are not those of {listed(list(hospitals))} together: take the cards that one hidden link wrote"
            raise UsageError(msg)
        kept = [card for card in study.parties if card.name in {hub, hospitals[0]}]
        cards = tuple(msgspec.structs.replace(card, rows=sum(sizes)) for card in kept)
        made = super()._made(msgspec.structs.replace(study, parties=cards), parameters, budget, formula)
        names = tuple(card.name for card in study.parties)
        whole = replace(made, hospitals=hospitals, arrays=sizes, hub=hub, organisations=names)
        aggregation = joint_sum(tuple(card.name for card in study.members), parameters.tolerate)
        return replace(whole, aggregation=replace(aggregation, proofs=whole.blocks_of(0)))

    @property
    def actors(self) -> tuple[str, ...]:
        """Return the organisations that act for the parties, and sign."""
        return self.organisations or self.parties

    def acting(self, name: str) -> str:
        """Return the party for which an organisation acts: every hospital for the first one."""
        return self.hospitals[0] if name in self.hospitals else name

    def _array(self, first: int) -> int:
        return int(np.searchsorted(np.cumsum(self.arrays), first, side="right"))

    def side_at(self, side: Side, first: int) -> Side:
        """Return the organisations behind a side in the block that begins at this row."""
        if not self.hospitals:
            return side
        hospital = self.hospitals[self._array(first)]
        return Side(*(hospital if name == self.hospitals[0] else name for name in side))

    def begins(self, spot: Spot) -> int:
        """Return the row at which the array of a block begins."""
        return sum(self.arrays[: self._array(spot.first)]) if self.hospitals else 0

    def placed(self, context: Context[Any], spot: Spot) -> PlacedTable | None:
        """Return the rows of this organisation at their places in the array of a block; None where it has none."""
        table = context.table
        if isinstance(table, HubTable):
            return next((table.arrays[name] for name in spot.side if name in table.arrays), None)
        return table if isinstance(table, PlacedTable) else None

    def layout_of(self, party: str) -> MomentsLayout:
        """Return the layout of the features of a party, or of the one for which an organisation acts."""
        return super().layout_of(self.acting(party))

    def left_out(self, party: str) -> tuple[Column, ...]:
        """Return the columns of a party without which a row is left out."""
        return super().left_out(self.acting(party))

    def sent(self, party: str) -> tuple[str, ...]:
        """Return the declared columns of which the masked rows of a party, or of an organisation that acts for it, are made."""
        return super().sent(self.acting(party))

    @staticmethod
    def expecting(study: Study, parameters: Joined) -> int:
        """Return how many rows are expected to count, once the study was found to be one of hidden people."""
        check_hidden(study, parameters)
        return round(expected_people(study, parameters) * (1 - expected_missing(study)))

    @property
    def expected(self) -> int:
        """Return how many people the study expects that both parties have."""
        assert isinstance(self.parameters, OfHiddenPeople)
        return self.parameters.expected

    @property
    def counts(self) -> bool:
        """Return True: how many people both parties have is no public number."""
        return True

    def too_few(self, seen: float, noise: float) -> str:
        """Return why nothing follows from so few people in common; empty where something may."""
        least = max(_TUNED.people_seen * noise, _TUNED.people_columns * len(self.layout.coding.attribute))
        if seen - _TUNED.people_seen * noise >= least:
            return ""
        return f"not identified: about {seen:.0f} +- {noise:.0f} people are at both parties, and the table says nothing of so few"

    @property
    def scaled(self) -> tuple[str, ...]:
        """Return nobody: no party releases sums of its own list."""
        return ()

    def scales(self, party: str) -> PartScales:
        """Return what decodes the means and deviations of a party's columns."""
        weight = math.sqrt(len(self.layout.coding.attribute))
        longest = self.limits.columns[self.parties.index(party)] / GRID
        return PartScales(self.layout_of(party), party == self.holder, weight, longest, (), counted=True)

    @cached_property
    def sums(self) -> PlacedSums:
        """Return the shape of the round of sums."""
        weights = {}
        for party in self.parties:
            own = self.scales(party)
            weights[party] = ((1.0,) * own.count + ((own.weight,) if own.response else ()), self.beside(party))
        shape = PlacedSums.of({party: own + more for party, (own, more) in weights.items()}, self.rows, FIRST)
        return replace(shape, arrays=self.arrays)

    def beside(self, party: str) -> tuple[float, ...]:
        """Return the weights of columns that a party adds up beside those that are standardised: none, unless a model has some."""
        del party
        return ()

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Return how many columns of each party are standardised."""
        return {
            party: len(own) - len(self.beside(party)) for party, own in zip(self.parties, self.sums.weights, strict=True)
        }

    def standards(self, values: Floats, deviations: Floats) -> dict[str, Standard]:
        """Return every party's means and deviations in coded units, from the noisy total of the round of sums."""
        (sums, people), (noises, doubt) = self.sums.split(values), self.sums.split(deviations)
        grid, found = float(self.layout.grid), {}
        for party, (first, second), (of_first, of_second) in zip(self.parties, sums, noises, strict=True):
            size = self.sizes[party]
            if not size:
                continue
            seen = np.concatenate([first[:size] * grid, second[:size] * grid**2, [people]])
            noise = np.concatenate([of_first[:size] * grid, of_second[:size] * grid**2, [doubt]])
            found[party] = self.scales(party).decode(Total(seen, noise, (party,)), self.rows)
        return found

    def settings_of(self, standards: Mapping[str, Standard]) -> tuple[float, ...]:
        """Return the numbers by which all parties standardise their rows: of each its means, then its deviations."""
        return tuple(number for party in self.parties if party in standards for number in standards[party].settings)

    @property
    def settings(self) -> int:
        """Return how many these are."""
        return 2 * sum(self.sizes.values())

    def standard(self, context: Context[Any]) -> Standard:
        """Return a party's means and deviations, as the request of this round says them: no bound on its rows depends on them."""
        place, sizes = self.parties.index(self.acting(context.name)), list(self.sizes.values())
        at = self.asked(context)[2 * sum(sizes[:place]) :][: 2 * sizes[place]]
        middle, width = np.split(at, 2)
        if not (width >= _NARROWEST).all():
            raise ProtocolError("the deviations by which rows are standardised must be positive")
        return Standard(middle, width, math.inf, (math.nan, math.nan))

    def asked(self, context: Context[Any]) -> Floats:
        """Return the numbers that the request of second moments carried, which this party keeps."""
        number = next(number for number, one in enumerate(self.rounds) if one.name == JOINT)
        if not context.has(f"{AT}_{number}"):
            raise PlanMismatch(
                "rows are standardised by what the request of second moments says, and that was not asked for yet"
            )
        return np.asarray(context.kept(f"{AT}_{number}"), dtype=float)

    # --- at a party --------------------------------------------------------------------------------------------------------

    def sum_rows(self, party: str, table: Table) -> Ints:
        """Return (p, x, squares of x) of rows: the coded columns of the party, and its response, in steps of the grid."""
        scales, left_out = self.scales(party), self.left_out(party)
        own = scales.layout.seen(whole_rows(table, left_out))
        names = (*scales.layout.coding.names, *(scales.layout.response_names if scales.response else ()))
        code = coded_rows if scales.response else feature_rows
        found = [np.column_stack(one) for one in code(scales.layout, own.blocks(names))] if names else []
        coded = np.concatenate(found) if found else np.zeros((own.owners.size, 0))
        for at in range(coded.shape[1]):
            coded[:, at] = scales.in_usual(at, coded[:, at])
        steps = np.rint(coded / float(scales.layout.grid) * GRID).astype(np.int64)
        return placed(*at_rows(self.with_beside(party, table, steps), table, left_out), Carried.SQUARES)

    def with_beside(self, party: str, table: Table, steps: Ints) -> Ints:
        """Return coded rows with what the party adds up beside them."""
        del party, table
        return steps

    def at_places(self, context: Context[Any], spot: Spot, make: Callable[[Table], Ints]) -> Ints:
        """Return a block of rows at their places, of zeros where the party has nobody."""
        return self.made_at_places(context, spot, make, spot.part.columns).astype(np.int64)

    def made_at_places(
        self, context: Context[Any], spot: Spot, make: Callable[[Table], NDArray[Any]], columns: int
    ) -> NDArray[np.float64]:
        """Return what is made of the party's rows, this number of columns, at their places in a block; zeros where it has nobody."""
        found, own, begin = np.zeros((spot.last - spot.first, columns)), self.placed(context, spot), self.begins(spot)
        if own is None:
            raise PlanMismatch(
                "this party has no places in this array of the hidden link that the study rests on: take the file that its link wrote"
            )
        table, at = own.between(spot.first - begin, spot.last - begin)
        if table is not None:
            found[at] = make(table)  # integers are far below 2^53
        return found


def at_rows(steps: Ints, table: Table, left_out: tuple[Any, ...]) -> tuple[Ints, NDArray[np.bool_]]:
    """Return coded rows of whole rows alone as those of all rows, with zeros where a row is not whole; and which rows are whole."""
    if not left_out:
        return steps, np.ones(len(steps), dtype=np.bool_)
    whole = np.concatenate([block[0] > 0 for block in marked_rows(table, left_out).blocks(("(whole)",))])
    found = np.zeros((whole.size, steps.shape[1]), dtype=np.int64)
    found[whole] = steps
    return found, whole


@dataclass(frozen=True)
class HiddenDesign(HiddenColumns, JointDesign):
    """A study of the second moments of hidden people."""

    def share(self, name: str) -> float:
        """Return the share of the squared budget that a release has."""
        return self.budget.constants if name == COMMON else 1 - self.budget.constants

    @cached_property
    def shape(self) -> PlacedMoments:
        """Return the parts of rows at places, and all second moments."""
        parts = []
        for place, party in enumerate(self.parties):
            own, holds = len(self.layout_of(party).coding.attribute), party == self.holder
            parts.append(RowPart(party, own + holds, self.limits.square(place, response=holds)))
        shape = PlacedMoments.of(JointShape(tuple(parts), self.rows), self.adjacency, self.settings)
        return replace(shape, arrays=self.arrays)

    @cached_property
    def rounds(self) -> tuple[JointRound, ...]:
        """Return means and deviations, then second moments."""
        return JointRound(COMMON, 0, self.sums), JointRound(JOINT, 0, self.shape)

    @cached_property
    def deviations(self) -> Floats:
        """Return the planned standard deviation of the noise in every integer of the second moments."""
        return self.noise(JOINT)

    def coded(self, party: str, table: Table, standard: Standard) -> Ints:
        """Return (p, x, products of x) for every row of a table."""
        rows = self.party_rows(party).coded(table, standard)
        return placed(np.ascontiguousarray(rows[:, :-1]), rows[:, -1] > 0, Carried.ALL)

    def block(self, context: Context[Any], spot: Spot) -> Ints:
        """Return a block of the sender's part of the rows as integers."""
        name = self.acting(context.name)
        if self.rounds[spot.round].name == COMMON:
            return self.at_places(context, spot, lambda table: self.sum_rows(name, table))
        standard = self.standard(context)
        return self.at_places(context, spot, lambda table: self.coded(name, table, standard))


def check_hidden(study: Study, parameters: Joined) -> None:
    """Refuse a study of hidden people that is not of two parties and one helper, or is without proofs."""
    if len(study.helpers) != 1:
        msg = f"a study of hidden people has the one helper of their link, who knows the places, and this one has {len(study.helpers)}: name it"
        raise UsageError(msg)
    if parameters.check != PROOF:
        raise UsageError(
            "hidden people need the proof that a row is somebody's or nobody's: leave check = \"none\" out, for one false presence would read another list"
        )
