"""Design of a study of columns at different parties: whose columns they are, what each party codes, the public limits of a row, and how much noise every release has."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec
import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.formula import Formula
from unpooled.linear.layout import MomentsLayout
from unpooled.linear.standard import Scales, Standard, StandardRows
from unpooled.privacy.bounds import Column, integer_grid
from unpooled.privacy.declared import PROOF, UNPROVED
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.products.masking import legs_of
from unpooled.products.presence import FLAG, SQUARES, FlaggedShape, squares_of
from unpooled.products.rows import JointRows
from unpooled.products.sums import (
    GRID,
    JOINT,
    JOINT_CONSTANT,
    JointRound,
    JointShape,
    JointSum,
    RowPart,
    joint_mu,
    joint_sum,
    sides_of,
)
from unpooled.schedules import table
from unpooled.totals.total import Summed, Total, too_few, whole_seen
from unpooled.totals.whole_rows import expected_missing, leaving_out, moved, needed, refuse_limit, whole_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.plan import Study
    from unpooled.privacy.table import Table
    from unpooled.products.placed import PlacedMoments
    from unpooled.products.sums import ProductShape, Side, Spot
    from unpooled.protocol.context import Context

    Floats = NDArray[np.float64]


# --- Formulas --------------------------------------------------------------------------------------------------------------
# A formula over columns of several parties: every party makes the terms of its own columns.


def parts_of(
    formula: str, columns: Mapping[str, tuple[Column, ...]], response: Column, holder: str, rows: int
) -> tuple[MomentsLayout, ...]:
    """Return every party's part of a formula, of whose terms each has its columns at one party."""
    said = Formula.parse(formula)
    if said.offsets or not said.constant:
        raise UsageError("where columns lie at different parties, a formula has a constant and no offset")
    found = []
    for party, own in said.split({party: [c.name for c in held] for party, held in columns.items()}).items():
        if not own.terms and party == holder:  # it has the response alone
            found.append(MomentsLayout((), needed(response), integer_grid(rows, 2)))
            continue
        if not own.terms:
            msg = f"formula: no term is of columns of {party!r}: name one, or leave the party out of the study"
            raise UsageError(msg)
        text = str(replace(own, response=(), survival=False))
        found.append(MomentsLayout.of((*columns[party], response), response.name, rows, formula=text))
    return tuple(found)


# --- Limits ----------------------------------------------------------------------------------------------------------------
# The public limits on the parts of a joint row, and the weight of the response, from the budget of the release of second moments.
#
# With k = n mu_M / d (n rows, d coded columns of all parties, mu_M the budget of the release after the factor for distributed noise):
#
#     c = max(.7, 1.25 + .27 ln(k / 50)),    L_j = c (sqrt d_j + 1 / sqrt d_j),    c_y = 2 + max(0, .45 ln(k / 120)),
#     a^2 = (sqrt(1 + 4 r^2 / c_y^2) - 1) / 2,    r^2 = sum_j L_j^2 + w^2.
#
# Party j shortens its standardised columns to L_j, and the response is clipped to c_y deviations and multiplied by a. Parts that shorten by factors
# of their own inflate slopes, so the limits open with k: the bias stays near a third of the standard error.

_TUNED = table("joint")
#: Share of the squared budget for means and deviations, and the factor of limits without any noise.
CONSTANTS_SHARE, WIDEST = _TUNED.constants_share, _TUNED.widest


@dataclass(frozen=True)
class JointBudget:
    """The budget of a study as ``mu``, the sensitivity over the deviation of its noise, and the factor on the variance of distributed noise."""

    mu: float
    factor: float = 1.0
    #: The share of the squared budget for means and deviations.
    constants: float = CONSTANTS_SHARE

    @classmethod
    def of(cls, study: Study, members: int, tolerate: int = 0, proofs: int = 0) -> JointBudget:
        """Return the budget less what this number of proofs takes, and the factor on the variance of distributed noise.

        The factor is N / (N - 1 - T) for N members of the sum (helpers included) of whom T may collude or stay silent.
        """
        honest = members - 1 - tolerate
        if tolerate < 0 or honest < 1:
            msg = f"tolerate = {tolerate} with {members} members of the sum leaves no noise that protects"
            raise UsageError(msg)
        return cls(joint_mu(study, proofs), members / honest)

    @property
    def of_moments(self) -> float:
        """Return mu_M: the budget of the joint sums (of second moments, or of all rounds together), after the factor for distributed noise."""
        return self.mu * math.sqrt((1 - self.constants) / self.factor)


@dataclass(frozen=True)
class Limits:
    """The limits of a joint row in steps of the grid: one for the columns of every party, one for the response, and the response's weight."""

    #: L_j of every party, in the study's order; 0 for a party that holds the response alone.
    columns: tuple[int, ...]
    #: a c_y: the largest weighted response.
    response: int
    #: a: by which the standardised response is multiplied.
    weight: float

    @classmethod
    def of(cls, columns: Sequence[int], strength: float) -> Limits:
        """Return the limits for these numbers of coded columns, one for every party; ``strength`` is n mu_M."""
        k = strength / sum(columns)
        spread, clip = _TUNED.spread_least, _TUNED.clip
        if k > 0:
            opened = _TUNED.spread + _TUNED.spread_growth * math.log(k / _TUNED.spread_from)
            spread = min(max(spread, opened), WIDEST)
            clip = min(clip + max(0.0, _TUNED.clip_growth * math.log(k / _TUNED.clip_from)), WIDEST)
        lengths = [spread * (math.sqrt(d) + 1 / math.sqrt(d)) if d else 0.0 for d in columns]
        whole = math.fsum(length * length for length in lengths) + JOINT_CONSTANT**2
        weight = math.sqrt((math.sqrt(1 + 4 * whole / clip**2) - 1) / 2)
        return cls(tuple(round(length * GRID) for length in lengths), round(weight * clip * GRID), weight)

    def square(self, place: int, *, response: bool) -> int:
        """Return the bound on the squared length of a party's part in squared steps; ``response``: with the response as one of its columns."""
        return self.columns[place] ** 2 + (self.response**2 if response else 0)

    @property
    def mean_square(self) -> float:
        """Return the largest mean square of a standardised column that the limits allow, times the number of columns."""
        return math.fsum(length * length for length in self.columns) / GRID**2


# --- Design ----------------------------------------------------------------------------------------------------------------
# Design of a study of columns at different parties: whose columns they are, what each party codes, and how much noise every release has.

#: What stands in the place of a response where no column is one; nothing of it is released.
_NO_RESPONSE = Column("(no response)", -1.0, 1.0)
#: The name of a party's release of the sums and sums of squares of its own columns.
CONSTANTS = "constants"
#: A total and this number of deviations of its noise stay below half the modulus of the sum.
_HEADROOM, _TAIL = 1 << 60, 12


class Joined(Protocol):
    """The parameters of a model that a joint release reads, whatever else the model has."""

    @property
    def response(self) -> str:
        """Return the name of a declared column of one of the parties; empty where no column is a response."""

    @property
    def tolerate(self) -> int:
        """Return the most members that may know each other's noise, or stay silent about their own."""

    @property
    def check(self) -> str:
        """Return "proof" or "none": without it the guarantee is only against parties that follow the protocol."""


@dataclass(frozen=True)
class PartScales(Scales):
    """Sums and sums of squares of one party's coded columns, and of the response where it holds it."""

    #: The weight of the response relative to one column: that of the columns of all parties together.
    of_response: float = 1.0
    #: The length to which the party's columns are shortened, in standardised units.
    longest: float = math.inf
    #: The party's columns that a whole row has. With some, the number of its whole rows is released last.
    left_out: tuple[Column, ...] = ()
    #: Whether the number of people who count is released last, whatever the party's columns: rows are of hidden people.
    counted: bool = False

    def statistic(self, table: Table) -> NDArray[np.int64]:
        """Return the exact sums of the party's rows, and of the columns that a formula makes of them; of whole rows, where rows may have gaps."""
        whole = whole_rows(table, self.left_out)
        found = super().statistic(self.layout.seen(whole))
        if not self.left_out:
            return found
        return np.append(found, sum(block[0].size for block in whole.blocks(whole.names[:1])))

    def vector(self, share: float, adjacency: Adjacency) -> Summed:
        """Return the sums with their noise, as they move where a row may be none (Theorem B.20): the count adds its weight where a record vanishes."""
        if not self.left_out:
            return super().vector(share, adjacency)
        made = {how: super(PartScales, self).vector(share, how) for how in Adjacency}
        weight = _TUNED.count_weight
        for how, vector in made.items():
            row = vector.reach[Unit.RECORD]
            longer = math.hypot(row.distance, weight) if how is Adjacency.ZERO_OUT else row.distance
            reach = {**vector.reach, Unit.RECORD: Reach(longer, row.coordinates + 1)}
            made[how] = replace(vector, blocks=(*vector.blocks, Block(1, 1 / weight)), reach=reach)
        return moved(made[adjacency], made, adjacency)

    @property
    def weight(self) -> float:
        """Return the weight of the response relative to one column; 0 without it."""
        return self.of_response if self.response else 0.0

    @property
    def _indicated(self) -> list[NDArray[np.intp]]:
        """Return the places of the coded columns of each column of categories of which every row has exactly one, that of missing values included."""
        attribute = np.array(self.layout.coding.attribute)
        columns = [k for k, c in enumerate(self.layout.features) if c.categories is not None and c.missing != "absent"]
        return [np.flatnonzero(attribute == k) for k in columns]

    def decode(self, total: Total, rows: int) -> Standard:
        """Return the means and deviations that the released sums determine; the means of all levels of a column add up to one.

        A party's part is shortened and the constant is not. So the levels of a shortened row still cancel only if their means add up to one. A
        variance is taken for at least three deviations of its noise: one that came out too small would shorten or clip many rows. A rare level
        is measured in a larger unit than its deviation where all of its rows would be shortened, which would inflate its coefficient.
        """
        if self.left_out or self.counted:  # means are those of whole rows
            seen, doubt = float(total.values[-1]), float(total.deviations[-1])
            rows = max(whole_seen(seen, doubt, rows), 1)
            total = replace(total, values=total.values[:-1], deviations=total.deviations[:-1])
        found = super().decode(total, rows)
        middle = found.middle.copy()
        for places in self._indicated:
            middle[places] += (1 - middle[places].sum()) / places.size
        noise = total.deviations[middle.size :] / float(self.layout.grid) ** 2 / rows
        most = np.fmin(self.expected, 1.0)
        width = np.maximum(found.width, self.usual[1] * np.sqrt(np.minimum(_TUNED.surely * noise, most)))
        # A part that is shortened by itself must not be long because a typical deviation was too small: then its range is the unit.
        cut = ~np.isnan(self.expected) & (found.width > self.usual[1] * math.sqrt(_TUNED.saturated))
        width[cut] = 1.0
        for places in self._marked:
            width[places] = self._within(middle, width, places)[places]
        return replace(found, middle=middle, width=width)

    @property
    def _marked(self) -> list[NDArray[np.intp]]:
        """Return the places of all coded columns of each declared column that has levels or a mark of missing values."""
        attribute, marks = np.array(self.layout.coding.attribute), set(self.marks)
        found = [np.flatnonzero(attribute == k) for k in range(len(self.layout.features))]
        return [places for places in found if marks & set(places.tolist())]

    def _within(self, middle: Floats, width: Floats, places: NDArray[np.intp]) -> Floats:
        """Return the widths with those of a column's levels so large that a row of any level is about as long as the limit.

        The party's other columns take up about 1 each of a row's squared length. What they leave of the squared limit, and a quarter of it at
        least, is for the level of the row (1 - m) / s and for the levels that it has not, -m / s.
        """
        whole, marks = self.longest**2, [k for k in self.marks if k in set(places.tolist())]
        left = max(whole - (self.count - places.size), whole / 4)
        found = width.copy()
        often = [k for k in marks if middle[k] > _TUNED.mostly]  # at most one; the rows without it are the rare ones
        found[often] = np.maximum(found[often], middle[often] / math.sqrt(left / 2))
        absent = np.square(middle[places] / found[places]).sum()
        for k in marks:
            own = max(left - (absent - (middle[k] / found[k]) ** 2), left / 4)
            found[k] = max(found[k], (1 - middle[k]) / math.sqrt(own))
        return found


@dataclass(frozen=True)
class ColumnsDesign(ABC):
    """A study of columns at different parties with its limits. Every list of parties is in the study's order."""

    parameters: Joined
    #: The features of all parties, those of the first party first, and the response.
    layout: MomentsLayout
    #: The features of every party.
    features: tuple[tuple[Column, ...], ...]
    parties: tuple[str, ...]
    #: The party that holds the response; empty where no column is one.
    holder: str
    rows: int
    adjacency: Adjacency
    budget: JointBudget
    limits: Limits
    #: The sum over all members, parties and helpers.
    aggregation: JointSum
    helpers: tuple[str, ...] = ()
    #: Every party's part of a formula; empty without one.
    layouts: tuple[MomentsLayout, ...] = ()

    @classmethod
    def of(cls, study: Study, parameters: Joined, budget: JointBudget | None = None, formula: str = "") -> Self:
        """Return the checked design that the study asks for, with the limits that this budget (else the study's) affords."""
        count = len(study.members)
        design = cls._made(study, parameters, budget or JointBudget.of(study, count, parameters.tolerate), formula)
        counted = 0
        while (
            budget is None and design.proofs > counted
        ):  # limits and blocks follow from the budget, and proofs take a part of its delta
            counted = design.proofs
            design = cls._made(study, parameters, JointBudget.of(study, count, parameters.tolerate, counted), formula)
        design.check_size()
        return design

    @classmethod
    def _made(cls, study: Study, parameters: Joined, budget: JointBudget, formula: str) -> Self:
        """Return the checked design with the limits that this budget affords."""
        members, budget = tuple(card.name for card in study.members), cls.spent(budget)
        aggregation = joint_sum(members, parameters.tolerate)
        _check(study, parameters)
        holder, response = cls.responding(study, parameters)
        no_features = cls.no_features(parameters)
        asked = tuple(tuple(c for c in card.columns if c.name not in no_features) for card in study.parties)
        features = tuple(tuple(needed(c) for c in own) for own in asked)
        rows = study.parties[0].rows
        rule = study.card(holder).column(parameters.response).missing if holder else response.missing
        declared = (*(c for own in asked for c in own), msgspec.structs.replace(response, missing=rule))
        left_out = leaving_out(declared, {column.name for column in declared})
        layout = MomentsLayout(tuple(c for own in features for c in own), response, integer_grid(rows, 2))
        layout = replace(layout, left_out=left_out)
        _check_columns(study, holder)
        held = dict(zip((card.name for card in study.parties), asked, strict=True))
        layouts = parts_of(formula, held, response, holder, rows) if formula else ()
        if layouts:
            features = tuple(own.features for own in layouts)
            layout = MomentsLayout.of(declared, response.name, rows, formula=formula)
        _check_gaps(study, layout)
        columns = [len(replace(layout, features=own).coding.attribute) for own in features]
        limits = cls.limited(columns, cls.expecting(study, parameters), budget)
        names = tuple(card.name for card in study.parties)
        about = parameters, layout, features, names, holder, rows, Adjacency(study.adjacency), budget, limits
        design = cls(*about, aggregation, tuple(card.name for card in study.helpers), layouts)
        if design.proved:
            proofs = len(legs_of(design)) * len(design.shape.row_blocks)
            design = replace(design, aggregation=replace(aggregation, proofs=proofs))
        return design

    @staticmethod
    def responding(study: Study, parameters: Joined) -> tuple[str, Column]:
        """Return the party that holds the response, and the response as the layout has it; no party and none of the columns where nothing is one."""
        if not parameters.response:
            return "", _NO_RESPONSE
        holder = holder_of(study, parameters.response)
        return holder, number_of(study.card(holder).column(parameters.response))

    @staticmethod
    def no_features(parameters: Joined) -> frozenset[str]:
        """Return the declared columns that are no features."""
        return frozenset({parameters.response})

    @staticmethod
    def expecting(study: Study, parameters: Joined) -> int:
        """Return how many rows are expected to count, from which limits and rounds follow."""
        del parameters
        return round(study.parties[0].rows * (1 - expected_missing(study)))

    @property
    def proofs(self) -> int:
        """Return the number of blocks that are proven to be short, in all rounds together."""
        return self.aggregation.proofs * self.shape.rounds

    @cached_property
    def rounds(self) -> tuple[JointRound, ...]:
        """Return what is multiplied in every round."""
        return tuple(JointRound(JOINT, index, self.shape) for index in range(self.shape.rounds))

    def summing(self, name: str) -> JointSum:
        """Return how a release of this name is added up, with the blocks that are proven in one of its rounds."""
        del name
        return self.aggregation

    @property
    def actors(self) -> tuple[str, ...]:
        """Return the organisations that act for the parties, and sign: the parties."""
        return self.parties

    def acting(self, name: str) -> str:
        """Return the party for which an organisation acts: itself."""
        return name

    def side_at(self, side: Side, first: int) -> Side:
        """Return the organisations behind a side in the block that begins at this row: always the same."""
        del first
        return side

    @property
    def scaled(self) -> tuple[str, ...]:
        """Return the parties that release sums of their columns."""
        return self.parties

    @staticmethod
    def spent(budget: JointBudget) -> JointBudget:
        """Return the budget with the shares of this method."""
        return budget

    @staticmethod
    @abstractmethod
    def limited(columns: list[int], rows: int, budget: JointBudget) -> Limits:
        """Return the limits for these numbers of coded columns, one for every party."""

    @property
    @abstractmethod
    def shape(self) -> ProductShape:
        """Return the parts of a row, and the integers that are released."""

    @property
    @abstractmethod
    def words(self) -> tuple[str, str]:
        """Return what is released and from which columns, for a plan; and a word for it."""

    @abstractmethod
    def block(self, context: Context[Any], spot: Spot) -> NDArray[np.int64]:
        """Return a block of the sender's part of the rows as integers."""

    @cached_property
    def deviations(self) -> Floats:
        """Return the planned standard deviation of the noise in every integer that a round releases, all fragments together."""
        if self.budget.mu == math.inf:
            return np.zeros(self.shape.size)
        scale = self.shape.distance(self.adjacency) * math.sqrt(self.shape.rounds) / self.budget.of_moments
        return np.concatenate([np.full(block.size, scale * block.width) for block in self.shape.blocks])

    @cached_property
    def sides(self) -> tuple[Side, ...]:
        """Return whose masked rows go to whom, and who knows the masks."""
        return sides_of(self.parties, self.helpers)

    @property
    def gaps(self) -> bool:
        """Return True if rows without a value are left out, so that it is no public number how many count."""
        return bool(self.layout.left_out)

    @property
    def counts(self) -> bool:
        """Return True if the number of rows that count is released, because it is no public number."""
        return self.gaps

    @property
    def expected(self) -> int:
        """Return how many people a made-up study stands for."""
        return self.rows

    def too_few(self, seen: float, noise: float) -> str:
        """Return why nothing follows from so few rows that count; empty where something may."""
        return too_few(seen, noise, self.rows)

    def left_out(self, party: str) -> tuple[Column, ...]:
        """Return the columns of a party without which a row is left out."""
        own = {
            *(c.name for c in self.layout_of(party).declared),
            *({self.layout.response.name} if party == self.holder else ()),
        }
        return tuple(column for column in self.layout.left_out if column.name in own)

    def sent(self, party: str) -> tuple[str, ...]:
        """Return the declared columns of which a party's masked rows are made, the response last where it is the party's."""
        own = tuple(column.name for column in self.layout_of(party).declared)
        return (*own, self.layout.response.name) if party == self.holder else own

    @property
    def proved(self) -> bool:
        """Return True if every party proves that its masked rows are short."""
        return self.parameters.check == PROOF

    @cached_property
    def totals(self) -> dict[str, Summed]:
        """Return the joint sums as something that is added up. One value moves its whole row to another row, and not to none."""
        shape, share, moves = self.shape, 1 - self.budget.constants, StandardRows.moves(self.adjacency)
        reach = {unit: Reach(shape.distance(how), shape.size) for unit, how in moves.items()}
        return {JOINT: Summed(JOINT, shape.blocks, reach, shape.most, share, count=shape.rounds)}

    def standard(self, context: Context[Any]) -> Standard:
        """Return a party's means and deviations, as its own release says them."""
        mechanism = context.plan.release(context.name, CONSTANTS).mechanism
        assert isinstance(mechanism, GaussianRelease)
        values = mechanism.decode(context.kept(CONSTANTS))
        return self.scales(context.name).decode(Total(values, mechanism.deviations, (context.name,)), self.rows)

    def scales(self, party: str) -> PartScales:
        """Return the sums from which the means and deviations of a party's columns follow."""
        weight = math.sqrt(len(self.layout.coding.attribute))
        longest = self.limits.columns[self.parties.index(party)] / GRID
        return PartScales(self.layout_of(party), party == self.holder, weight, longest, self.left_out(party))

    def constants(self, party: str) -> Summed:
        """Return a party's sums as a release of its own; all parties' releases have the noise of one over all their columns (Theorem B.15).

        Squared distances add up over columns (Theorem B.7), so a party's share of the squared budget is its part of the squared distance: then
        the squared budgets of all parties add up to the planned share, and the noise is the same at every party.
        """
        found = {name: self.scales(name).vector(1.0, self.adjacency) for name in self.scaled}
        squares = {name: vector.reach[Unit.RECORD].distance ** 2 for name, vector in found.items()}
        share = self.budget.constants * squares[party] / math.fsum(squares.values())
        return replace(found[party], share=share)

    def constants_release(self, party: str) -> GaussianRelease:
        """Return the release of a party's sums: central noise, in one budget with the distributed noise of the joint sums (Theorem F.29)."""
        vector = self.constants(party)
        mu = self.budget.mu * math.sqrt(vector.share)
        return GaussianRelease.calibrated(vector.blocks, dict(vector.reach), Unit.RECORD, mu)

    def check_size(self) -> None:
        """Refuse a study whose total may leave the range of the sum."""
        self.check_total(self.shape.most, float(self.deviations.max()))

    def check_total(self, most: int, deviation: float) -> None:
        """Refuse a total of this much of each row and noise of this deviation, if it may leave the range of the sum."""
        if self.rows * most + _TAIL * deviation >= _HEADROOM:
            raise UsageError(
                "the total of the joint rows may not fit into the sum: ask for a larger epsilon, or for fewer rows"
            )

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Return the places of the layout's coded columns among those of all parties, party after party: a formula has an order of its own."""
        names = [name for party in self.parties for name in self.layout_of(party).names]
        return np.array([names.index(name) for name in self.layout.names]) if self.layouts else np.arange(len(names))

    def layout_of(self, party: str) -> MomentsLayout:
        """Return the layout of one party's features; its response is that of the study, at any party."""
        if self.layouts:
            return self.layouts[self.parties.index(party)]
        return replace(self.layout, features=self.features[self.parties.index(party)])


@dataclass(frozen=True)
class SeveralSums(ColumnsDesign):
    """A study of columns at different parties with several joint releases, each with a share of the squared budget."""

    @abstractmethod
    def share(self, name: str) -> float:
        """Return the share of the squared budget that a joint release has, with all of its repetitions."""

    @property
    def exact(self) -> bool:
        """Return True if there is no noise."""
        return self.budget.mu == math.inf

    @cached_property
    def totals(self) -> dict[str, Summed]:
        """Return the joint sums as something that is added up. One value moves its whole row to another row, and not to none."""
        return {one.name: self._summed(one.name, one.shape) for one in self.rounds}

    def _summed(self, name: str, shape: ProductShape) -> Summed:
        moves = StandardRows.moves(self.adjacency)
        reach = {unit: Reach(shape.distance(how), shape.size) for unit, how in moves.items()}
        return Summed(name, shape.blocks, reach, shape.most, self.share(name), count=shape.rounds)

    def noise(self, name: str) -> Floats:
        """Return the planned standard deviation of the noise in every integer of a release, all fragments together."""
        vector = self.totals[name]
        width = np.concatenate([np.full(block.size, block.width) for block in vector.blocks])
        if self.exact:
            return np.zeros_like(width)
        distance = vector.reach[Unit.RECORD].distance
        return np.asarray(width * distance / self.budget.mu / math.sqrt(vector.share / vector.count / self.budget.factor))

    def blocks_of(self, number: int) -> int:
        """Return the number of blocks of a round that are proven."""
        return len(legs_of(self, number)) * len(self.rounds[number].shape.row_blocks) if self.proved else 0

    @cached_property
    def proofs(self) -> int:
        """Return the number of blocks that are proven to be short, in all rounds together."""
        return sum(self.blocks_of(number) for number in range(len(self.rounds)))

    def summing(self, name: str) -> JointSum:
        """Return how a release is added up: with the blocks of one of its rounds, of those of the whole study."""
        number = next(number for number, one in enumerate(self.rounds) if one.name == name)
        return replace(self.aggregation, proofs=self.blocks_of(number), charged=self.proofs)

    def check_size(self) -> None:
        """Refuse a study whose totals may leave the range of the sum."""
        for name, vector in self.totals.items():
            self.check_total(vector.per_row, float(self.noise(name).max()))


@dataclass(frozen=True)
class JointDesign(ColumnsDesign):
    """A study of joint second moments: one release of all of them."""

    @staticmethod
    def limited(columns: list[int], rows: int, budget: JointBudget) -> Limits:
        """Return the limits that open with the budget of the release."""
        return Limits.of(columns, rows * budget.of_moments)

    @cached_property
    def shape(self) -> JointShape | FlaggedShape | PlacedMoments:
        """Return the parts of a row in the study's order, the response as the last column of its holder's part; with marks where rows may have gaps."""
        parts = []
        for place, party in enumerate(self.parties):
            own, holds = len(self.layout_of(party).coding.attribute), party == self.holder
            parts.append(RowPart(party, own + holds, self.limits.square(place, response=holds)))
        rows = JointShape(tuple(parts), self.rows)
        return FlaggedShape.of(rows, self.adjacency) if self.gaps else rows

    @property
    def words(self) -> tuple[str, str]:
        """Return what is released and from which columns, for a plan; and a word for it."""
        return f"joint second moments of {self.shape.of_rows.columns} columns of {listed(list(self.parties))}", "moments"

    def party_rows(self, party: str) -> JointRows:
        """Return the coding of a party's part of every row."""
        place = self.parties.index(party)
        part = self.shape.of_rows.parts[place]
        weight = self.limits.weight if party == self.holder else 0.0
        about = self.layout_of(party), part, self.limits.columns[place], self.limits.response, weight
        return JointRows(*about, flagged=self.counts, left_out=self.left_out(party))

    def coded(self, party: str, table: Table, standard: Standard) -> NDArray[np.int64]:
        """Return the columns of all of a party's parts for every row of its table."""
        rows = self.party_rows(party)
        found = rows.coded(table, standard)
        if not self.gaps:
            return found
        return np.column_stack([found, squares_of(np.ascontiguousarray(found[:, :-1]), rows.part, 0)])

    def block(self, context: Context[Any], spot: Spot) -> NDArray[np.int64]:
        """Return a block of the sender's part of the rows as integers."""
        rows, size = self.party_rows(context.name), self.shape.block_rows
        found = rows.block(context.table, self.standard(context), spot.first, spot.last, size)
        if not self.gaps:
            return found
        if spot.part.name == FLAG:
            return np.ascontiguousarray(found[:, -1:])
        own = np.ascontiguousarray(found[:, :-1])
        return squares_of(own, rows.part, spot.first) if spot.part.name == SQUARES else own


def _check(study: Study, parameters: Joined) -> None:
    """Refuse a study that joint sums do not answer, by name."""
    if parameters.check not in {PROOF, UNPROVED}:
        msg = f'check is "{PROOF}" or "{UNPROVED}", not {parameters.check!r}'
        raise UsageError(msg)
    if study.unit != Unit.RECORD:
        raise UsageError('joint sums protect whole persons: unit = "record"')
    if len(study.parties) < 2:  # noqa: PLR2004 - one party needs no sum
        raise UsageError("joint sums need at least two parties with different columns")
    if len({card.rows for card in study.parties}) > 1:
        raise UsageError(
            "the parties declare different numbers of rows: columns are split, so every party has a row for every person"
        )
    if study.delta <= 0 < study.epsilon < math.inf:
        raise UsageError("joint sums have Gaussian noise: delta must be positive")


def holder_of(study: Study, response: str) -> str:
    """Return the one party that declares the response."""
    holders = [card for card in study.parties if any(c.name == response for c in card.columns)]
    if len(holders) != 1:
        where = "no party declares it" if not holders else f"{listed([card.name for card in holders])} declare it"
        msg = f"the response {response!r} must be a declared column of one party: {where}"
        raise UsageError(msg).at(column=response)
    return holders[0].name


def number_of(declared: Column) -> Column:
    """Return the response of a regression as the rows that count have it; refuse one that is no number, or may be missing without a rule."""
    refuse_limit(declared)
    response = needed(declared)
    if response.categories is not None or response.may_be_absent:
        msg = f'the response {response.name!r} must be a number that is never missing: declare low and high, missing = "refuse"'
        if len(response.categories or ()) == 2:  # noqa: PLR2004 - yes and no
            msg += '. Two classes of columns at two parties have odds ratios by logistic regression: model = "glm", PrivateGLM("logistic", parties=...)'
        raise UsageError(msg).at(column=response.name)
    return response


def _check_gaps(study: Study, layout: MomentsLayout) -> None:
    """Refuse to leave rows out of a study of three parties and more: that a row is whole at all of them is a product of three marks."""
    if layout.left_out and len(study.parties) > 2:  # noqa: PLR2004 - a masked product has two factors
        msg = (
            f"rows without a value of {listed([column.name for column in layout.left_out])} can be left out of a study of two parties, and this one has "
            f'{len(study.parties)}: fit the columns of two of them, or bring those of several together at one; for predictions declare "indicator"'
        )
        raise UsageError(msg).at(column=layout.left_out[0].name)


def _check_columns(study: Study, holder: str) -> None:
    """Refuse a name that two parties use, and a party without a column."""
    names = Counter(column.name for card in study.parties for column in card.columns)
    if twice := [name for name, count in names.items() if count > 1]:
        msg = f"the column {twice[0]!r} is declared by two parties: every column of a joint model has a name of its own"
        raise UsageError(msg).at(column=twice[0])
    if empty := [card.name for card in study.parties if not card.columns and card.name != holder]:
        msg = f"party {empty[0]!r} declares no column of this model"
        raise UsageError(msg)
