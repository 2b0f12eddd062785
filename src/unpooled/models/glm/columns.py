"""Logistic, Poisson and survival regression whose columns lie at two parties: what a study declares, its design with the limits of rows, its plan, and a party's steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec
import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.families.logistic import Logistic
from unpooled.inference.printed_terms import check_coding
from unpooled.linear.goals import Goal, goal_of
from unpooled.linear.residuals import Covariance
from unpooled.linear.standard import CONSTANT, Standard, StandardRows
from unpooled.models.glm.counts import CountForm
from unpooled.models.glm.declared import SplitParameters, check_split, named_columns, persons_of
from unpooled.models.glm.families import LOGISTIC, POISSON, SURVIVAL
from unpooled.models.glm.pulls import ClassForm
from unpooled.models.glm.rows import Responses
from unpooled.models.glm.split import STEPS, Begun, DeviationRows, RoundRows, SplitForm
from unpooled.models.glm.times import TimeForm
from unpooled.privacy.bounds import LEAVING_OUT, Column
from unpooled.privacy.declared import COLUMNS
from unpooled.privacy.mechanisms import GaussianRelease, Reach, Vector
from unpooled.privacy.plan import Plan, Release, Study, check_parameters
from unpooled.privacy.unit import Unit
from unpooled.products.conversation import steps_of_release
from unpooled.products.design import ColumnsDesign, Joined, JointBudget, Limits, PartScales, holder_of
from unpooled.products.masking import AT, legs_of
from unpooled.products.plan import STEPS as JOINT_STEPS
from unpooled.products.plan import plan_of
from unpooled.products.sums import GRID, JOINT, JointRound, JointShape, RowPart
from unpooled.protocol.messages import Nothing, Released
from unpooled.protocol.registry import Step
from unpooled.schedules import table
from unpooled.totals.total import Summed, Total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.families import Response
    from unpooled.models.glm.rows import BaseRate
    from unpooled.products.sums import JointSum, ProductShape, Spot
    from unpooled.protocol.context import Context

    Floats = NDArray[np.float64]


_TUNED = table("glm_columns")
SHARES, PARTS = _TUNED.shares("budget_shares"), _TUNED.several("rounds")
#: The name of the release of the base rate, and those of the rounds.
RATE, PULLS = "rate", tuple(f"pulls-{number}" for number in range(1, len(PARTS) + 1))
#: The word for how the budget was spent.
PRODUCTS = "products"
_TWO = 2
#: Bytes of a masked word, of a row's part of a proof, and of what a proof of a block has whatever its rows (measured: ``tests/unit/test_glm_columns.py``).
_WORD, _PROOF, _BLOCK = 8, 32, 32_000


# --- Design ----------------------------------------------------------------------------------------------------------------
# A study, understood: whose columns they are, the limits of rows, the rounds and their noise, what a party makes of its rows in each.


#: The families that have products of pulls.
FORMS: dict[str, SplitForm] = {LOGISTIC: ClassForm(), POISSON: CountForm(), SURVIVAL: TimeForm()}
#: What stands for the response while limits are worked out.
_CLASSES = Responses(Column("(classes)", categories=("no", "yes")), Logistic())


@dataclass(frozen=True)
class PullDesign(ColumnsDesign):
    """A study of columns at two parties of which one holds the response: two classes, counts, or times with events."""

    parameters: SplitParameters
    #: The declared response, once the study's is known.
    responses: Responses = _CLASSES

    #: What the standard errors assume.
    covariance: ClassVar[Covariance] = Covariance.JOINT
    #: Tables and predictions ask every design of the model for these.
    completeness: ClassVar[None] = None
    directions: ClassVar[None] = None
    method: ClassVar[str] = PRODUCTS

    # --- what the study says ---------------------------------------------------------------------------------------------

    @classmethod
    def _made(cls, study: Study, parameters: Joined, budget: JointBudget, formula: str) -> Self:
        assert isinstance(parameters, SplitParameters)
        return replace(super()._made(study, parameters, budget, formula), responses=_responses(study, parameters))

    @staticmethod
    def responding(study: Study, parameters: Joined) -> tuple[str, Column]:
        """Return the party that holds the response, and what stands for it in the layout: a name, for its scale is its own."""
        assert isinstance(parameters, SplitParameters)
        holder = holder_of(study, parameters.response)
        column = study.card(holder).column(parameters.response)
        FORMS[parameters.family].check(column)
        return holder, Column(column.name, 0.0, 1.0)

    @staticmethod
    def no_features(parameters: Joined) -> frozenset[str]:
        """Return the response, the exposure, the offset and the event."""
        assert isinstance(parameters, SplitParameters)
        return frozenset({parameters.response, parameters.exposure, parameters.offset, parameters.event} - {""})

    def sent(self, party: str) -> tuple[str, ...]:
        """Return the declared columns of which a party's masked rows are made, the response and what shifts it last where they are the party's."""
        own = tuple(column.name for column in self.layout_of(party).declared)
        return (*own, *self.responses.names) if party == self.holder else own

    @property
    def form(self) -> SplitForm:
        """Return what of the fit depends on the family."""
        return FORMS[self.parameters.family].of(self.responses, exact=self.exact)

    @property
    def family(self) -> Response:
        """Return the family of the response."""
        return self.responses.family

    @property
    def exact(self) -> bool:
        """Return True if there is no noise."""
        return self.budget.mu == math.inf

    @property
    def columns(self) -> int:
        """Return d: the number of coded columns of both parties."""
        return len(self.layout.coding.attribute)

    @property
    def strength(self) -> float:
        """Return k = n mu / d, with the budget that is left of distributed noise."""
        return _strength(self.columns, self.rows, self.budget)

    @property
    def untabled(self) -> str:
        """Return why there is no table, which is known before data, and what would do; empty where there is one."""
        times = _TUNED.worth_table / self.strength
        if times <= 1:
            return ""
        remedies = [f"about {math.ceil(self.rows * times):,} people", f"an epsilon about {times:.1f} times as large"]
        fewer = math.floor(self.columns / times)
        remedies += [f"{fewer} coded columns"] if fewer > 1 else []
        return (
            f"with {self.rows:,} people, {self.columns} coded columns and this epsilon noise would hide the lines of a table: rows times mu for each column "
            f"are {self.strength:.0f}, and from {_TUNED.worth_table:.0f} on there are lines. What would do: {', or '.join(remedies)}"
        )

    @property
    def target(self) -> str:
        """Return the sentence on what the coefficients are of where the linear predictor is not linear in the columns."""
        what = self.form.words.predictor
        are = "are" if what.endswith("s") else "is"
        return (
            f"target: a record counts by the parts of its {what} at either party: the same coefficients where the {what} {are} linear in the columns, else "
            f"those of the fit so weighted, which depend on who holds which column{self.form.words.assumed}"
        )

    # --- limits, rounds, noise ---------------------------------------------------------------------------------------------

    @staticmethod
    def spent(budget: JointBudget) -> JointBudget:
        """Return the budget with the share of means and deviations."""
        return replace(budget, constants=SHARES["scales"])

    @staticmethod
    def limited(columns: list[int], rows: int, budget: JointBudget) -> Limits:
        """Return the limits of rows where they multiply; of second moments the response less its mean is at most 1."""
        narrowest, widest = _TUNED.pair("spread_ends")
        k, spread = _strength(sum(columns), rows, budget), widest
        if 0 < k < math.inf:
            spread = min(max(_TUNED.spread + _TUNED.spread_growth * math.log(k / _TUNED.spread_from), narrowest), widest)
        lengths = [spread * (math.sqrt(d) + 1 / math.sqrt(d)) if d else 0.0 for d in columns]
        return Limits(tuple(round(length * GRID) for length in lengths), GRID, 1.0)

    @cached_property
    def shape(self) -> JointShape:
        """Return the parts of the rows of second moments: the offset and the response less its mean as the last columns of their holder's part."""
        found = []
        for place, party in enumerate(self.parties):
            own, holds = len(self.layout_of(party).coding.attribute), party == self.holder
            shifted = holds and self.responses.shifted
            square = self.limits.square(place, response=holds) + (GRID**2 if shifted else 0)
            found.append(RowPart(party, own + shifted + holds, square))
        return JointShape(tuple(found), self.rows)

    @cached_property
    def pulls(self) -> ProductShape:
        """Return the parts of the rows of a round."""
        finer = STEPS // GRID
        columns = {
            party: (len(self.layout_of(party).coding.attribute), (self.limits.columns[place] * finer) ** 2)
            for place, party in enumerate(self.parties)
        }
        return self.form.shape(columns, self.holder, self.rows, _TUNED.whole("exact_rounds") if self.exact else 1)

    @cached_property
    def rounds(self) -> tuple[JointRound, ...]:
        """Return second moments, and then the rounds of pulls; without noise there are rounds until the fit converges, up to a most."""
        names = PULLS[:1] * self.pulls.rounds if self.exact else PULLS
        pulls = (JointRound(name, index if self.exact else 0, self.pulls) for index, name in enumerate(names))
        return (JointRound(JOINT, 0, self.shape), *pulls)

    def share(self, name: str) -> float:
        """Return the share of the squared budget that a joint release has, with all of its repetitions."""
        if name == JOINT:
            return SHARES["moments"]
        return SHARES["score"] * (1.0 if self.exact else PARTS[PULLS.index(name)])

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

    @cached_property
    def deviations(self) -> Floats:
        """Return the planned standard deviation of the noise in every integer of the second moments."""
        return self.noise(JOINT)

    def check_size(self) -> None:
        """Refuse a study whose totals may leave the range of the sum, or whose masked rows are too many bytes to send."""
        super().check_size()
        for name, vector in self.totals.items():
            self.check_total(vector.per_row, float(self.noise(name).max()))
        if self.megabytes > _TUNED.largest_megabytes:
            msg = (
                f"the masked rows of this study are {self.megabytes:,.0f} megabytes, and more than {_TUNED.largest_megabytes:,.0f} are refused: "
                "ask for fewer columns, or for a part of the people"
            )
            raise UsageError(msg)

    def _blocks_of(self, number: int) -> int:
        return len(legs_of(self, number)) * len(self.rounds[number].shape.row_blocks) if self.proved else 0

    @cached_property
    def proofs(self) -> int:
        """Return the number of blocks that are proven to be short, in all rounds together."""
        return sum(self._blocks_of(number) for number in range(len(self.rounds)))

    def summing(self, name: str) -> JointSum:
        """Return how a release is added up: with the blocks of one of its rounds, of those of the whole study."""
        number = next(number for number, one in enumerate(self.rounds) if one.name == name)
        return replace(self.aggregation, proofs=self._blocks_of(number), charged=self.proofs)

    @property
    def megabytes(self) -> float:
        """Return about how many megabytes of masked rows and proofs travel."""
        row, block = (_PROOF, _BLOCK) if self.proved else (0, 0)
        legs = [(one.shape, at) for k, one in enumerate(self.rounds) for _, at in legs_of(self, k)]
        blocks = sum(len(shape.row_blocks) for shape, _ in legs)
        return (self.rows * sum(_WORD * shape.parts[at].columns + row for shape, at in legs) + blocks * block) / 1e6

    @property
    def words(self) -> tuple[str, str]:
        """Return what is released and from which columns, for a plan; and a word for it."""
        parties = listed(list(self.parties))
        return (
            f"{self.form.words.fit} of {self.columns} columns of {parties}: second moments, and {len(self.rounds) - 1} rounds of pulls",
            f"{self.form.words.rate}, moments and rounds",
        )

    # --- at a party --------------------------------------------------------------------------------------------------------

    @property
    def scaled(self) -> tuple[str, ...]:
        """Return the parties that have columns to be brought to one scale: a holder of the classes alone has none."""
        return tuple(party for party in self.parties if self.layout_of(party).features)

    def scales(self, party: str) -> PartScales:
        """Return the sums from which the means and deviations of a party's columns follow."""
        longest = self.limits.columns[self.parties.index(party)] / GRID
        return PartScales(self.layout_of(party), response=False, of_response=1.0, longest=longest)

    @cached_property
    def base(self) -> BaseRate:
        """Return the base rate that a fit begins from."""
        return self.form.base(self.responses, self.rows)

    @property
    def rate_release(self) -> GaussianRelease:
        """Return the release of the base rate, with a share of its own."""
        vector = self.base.vector(SHARES["rate"], self.adjacency)
        mu = self.budget.mu * math.sqrt(vector.share)
        return GaussianRelease.calibrated(vector.blocks, dict(vector.reach), Unit.RECORD, mu)

    def rate(self, values: NDArray[Any]) -> Begun:
        """Return what a fit begins from, as released integers tell it."""
        return self.rate_of(self.rate_release.decode(values))

    def rate_of(self, sums: Floats) -> Begun:
        """Return what a fit begins from, as noisy sums tell it."""
        return self.form.begun(self.base, Total(sums, self.rate_release.deviations, (self.holder,)), self.rows)

    def deviation_rows(self, party: str, begun: Begun) -> DeviationRows:
        """Return the coding of a party's part of the rows of second moments; the holder of the response takes its own off what it began from."""
        place, holds = self.parties.index(party), party == self.holder
        about = self.layout_of(party), self.shape.parts[place], self.limits.columns[place], GRID
        return self.form.deviations((*about, float(holds), self.responses), begun if holds else None)

    def pull_rows(self, party: str, at: Sequence[float], part: RowPart | None = None) -> RoundRows:
        """Return the coding of a party's rows in a round, at these numbers: slopes of all columns in the parties' order, then what the form has."""
        place = self.parties.index(party)
        before = sum(len(self.layout_of(name).coding.attribute) for name in self.parties[:place])
        own = len(self.layout_of(party).coding.attribute)
        part = part or next(one for one in self.pulls.parts if one.party == party)
        about = self.layout_of(party), part, self.limits.columns[place] * (STEPS // GRID), STEPS
        holds = 1.0 if party == self.holder else 0.0
        slopes = np.asarray(at[before : before + own], dtype=float)
        return self.form.rows((*about, holds, self.responses), slopes, place, at[self.columns :])

    def scored(self, values: Floats) -> Floats:
        """Return the released products of a round as the coefficients stand: those of columns in the order of the layout, then of the constant or the pieces."""
        if not self.form.pieces:
            return np.append(values[:-1][self.order], values[-1] * CONSTANT)
        first = sum(
            len(self.layout_of(name).coding.attribute) for name in self.parties[: self.parties.index(self.holder) + 1]
        )
        pieces = np.arange(first, first + self.form.pieces)
        return np.append(np.delete(values, pieces)[self.order], values[pieces])

    def block(self, context: Context[Any], spot: Spot) -> NDArray[np.int64]:
        """Return a block of the sender's part of the rows as integers, in a round of pulls at the coefficients that it was asked for."""
        name, one = context.name, self.rounds[spot.round]
        standard = self.standard(context) if name in self.scaled else Standard.declared()
        place = spot.first, spot.last, one.shape.block_rows
        if one.name == JOINT:
            begun = self.rate(context.kept(RATE)) if name == self.holder else Begun(0.0, 0.0)
            return self.deviation_rows(name, begun).block(context.table, standard, *place)
        rows = self.pull_rows(name, context.kept(f"{AT}_{spot.round}").tolist(), spot.part)
        kind = self.form.coin(spot.part, holds=name == self.holder)
        real = rows.block(context.table, standard, *place).astype(np.float64)
        return rows.part_of(real, context.coins("rounding", spot.round, kind), spot.first)


def _strength(columns: int, rows: int, budget: JointBudget) -> float:
    return rows * budget.mu / math.sqrt(budget.factor) / columns


def design_of(study: Study, budget: JointBudget | None = None) -> PullDesign:
    """Return the checked design that the study asks for, with the limits that this budget (else the study's) affords."""
    parameters = check_parameters(study, SplitParameters)
    check_split(parameters)
    fit = FORMS[parameters.family].words.fit
    if len(study.parties) > _TWO:
        msg = (
            f"a {fit} of split columns has two parties and a helper, and this study has {len(study.parties)}: products of three parties have "
            f'no proof. Joint moments have one: fit the response as a number (model = "bayes", split = "{COLUMNS}")'
        )
        raise UsageError(msg)
    for column in (column for card in study.parties for column in card.columns):
        if column.missing in LEAVING_OUT:
            msg = (
                f'a {fit} of split columns leaves no people out: column {column.name!r} declares missing = "{column.missing}"; declare "absent" or '
                '"indicator", or leave such people out at every party before'
            )
            raise UsageError(msg).at(column=column.name)
    design = PullDesign.of(study, parameters, budget, parameters.formula)
    check_coding(parameters.coding, parameters.reference, {f.name: f.levels for f in design.layout.terms.factors})
    if goal_of(parameters.goal) is Goal.TABLE and design.untabled:
        msg = f'goal is "table", and {design.untabled}. Nothing is spent'
        raise UsageError(msg)
    return design


def _responses(study: Study, parameters: SplitParameters) -> Responses:
    """Return the declared response with what shifts it or says of events, which its holder has."""
    holder, form = holder_of(study, parameters.response), FORMS[parameters.family]
    columns = {column.name: column for card in study.parties for column in card.columns}
    response, exposure, offset = named_columns(parameters, columns)
    form.check(response)
    event = columns.get(parameters.event)
    for role, column in (("exposure", exposure), ("offset", offset), ("event", event)):
        if column is not None and column.name not in {own.name for own in study.card(holder).columns}:
            why = "it ends the holder's times" if column is event else "it is a part of the holder's log mean"
            msg = (
                f"the {role} {column.name!r} is declared by another party than the response {response.name!r}: {why}, so "
                f"declare it at {holder!r}"
            )
            raise UsageError(msg).at(column=column.name)
    if parameters.family == SURVIVAL:
        return persons_of(parameters, columns, response)
    return Responses(response, form.family(response), exposure, offset)


# --- Plan ------------------------------------------------------------------------------------------------------------------
# The plan of a regression of split columns, and the one step that a party has in addition to those of joint moments.


class RateReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The noisy sum of the responses, and of exposures where there are some, from their holder."""

    sums: Released


def _rate(context: Context[PullDesign], request: Nothing) -> RateReply:  # noqa: ARG001 - the request is no more than its name
    context.planned(RATE)
    sums = context.release(RATE, Vector(context.design.base.statistic(context.table)))
    context.keep(RATE, sums.values.numpy())  # its rows are centred by what it released, never by what somebody sends
    return RateReply(sums)


#: The steps of this split in addition to those of rows at different parties, which exchange keys too.
STEPS_OF_COLUMNS = (
    Step(RATE, Nothing, RateReply, _rate),
    *JOINT_STEPS,
    *(step for name in PULLS for step in steps_of_release(name)),
)


def compile_columns(study: Study) -> Plan[PullDesign]:
    """Return the releases of a study of columns at two parties."""
    design = design_of(study)
    plan = plan_of(study, design, first=(Release(RATE, design.holder, RATE, design.rate_release),))
    shares = (
        f"of the squared budget the {design.form.words.rate} takes {SHARES['rate']:.0%}, second moments {SHARES['moments']:.0%} and the rounds {SHARES['score']:.0%}",
        f"about {design.megabytes:,.1f} megabytes of masked rows and proofs travel, {design.megabytes * 1e6 / design.rows:,.0f} bytes for each person",
    )
    said = (f"this study makes no table and is for predictions: {design.untabled}",) if design.untabled else ()
    return replace(plan, notes=(*said, *plan.notes, *shares))
