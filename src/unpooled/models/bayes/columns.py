"""Linear regression of columns at different parties: from their joint moments (:mod:`unpooled.products`), or by rounds of sines."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.estimation.expected_lines import PlayedTables
from unpooled.estimation.outlook import (
    MADE_UP,
    Evenly,
    MadeUp,
    Outlook,
    Range,
    drawn,
    in_words,
    shapes_in_words,
    simulated,
    with_lines,
)
from unpooled.inference.coding import check_formula
from unpooled.inference.printed_terms import check_coding
from unpooled.inference.priors import assumed, check_models
from unpooled.linear.descent import arrived, shrunk
from unpooled.linear.drawn import drawn_tables
from unpooled.linear.fit import LinearFit
from unpooled.linear.goals import Goal, goal_of
from unpooled.linear.standard import coded_rows, feature_rows
from unpooled.models.bayes.declared import AUTO, MOMENTS, SINES, ColumnsParameters
from unpooled.privacy.declared import COLUMNS
from unpooled.privacy.plan import check_parameters
from unpooled.products.conversation import joint_total
from unpooled.products.design import WIDEST, ColumnsDesign, JointBudget, JointDesign, Limits
from unpooled.products.hidden import HiddenDesign, refuse_expected
from unpooled.products.masking import AT
from unpooled.products.moments import begun as imagined
from unpooled.products.moments import constants, standards_of, units_of
from unpooled.products.plan import plan_of
from unpooled.products.rows import SineRows
from unpooled.products.sines import ANGLE, SineShape
from unpooled.products.sums import GRID, JOINT_CONSTANT, RowPart
from unpooled.schedules import table
from unpooled.totals.whole_rows import notes_of

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.linear.standard import Standard
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import Table
    from unpooled.products.sums import Spot
    from unpooled.protocol.context import Context
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Replies

    Floats = NDArray[np.float64]


# --- Rounds of sines -------------------------------------------------------------------------------------------------------
# Rounds by sines for two parties: small errors of predictions where n mu is small, and no standard errors.
#
# The coefficients b of standardised columns descend along noisy gradients of a bounded loss of the residuals r = v - z.b,
#
#     g = sum of sin(w r) (z, w_0),      b += s g / (n w kappa),      kappa = exp(-.3 w^2),
#
# kappa being about the mean of cos(w r). Every round is one joint sum (``products/sines.py``), its noise that of a row whose length is
# about sqrt d: second moments would have that of its square. The answer is the mean of the later half of the coefficients, shrunk by its noise.
# All numbers here follow from k = n mu / d before data (``schedules/sines.toml``), and were fixed by simulating declared shapes.

_TUNED = table("sines")
FREQUENCY, WORTH_MOMENTS = _TUNED.frequency, _TUNED.worth_moments
_ROUNDS, _EARLY = _TUNED.steps("rounds"), _TUNED.early_frequency

#: Why there would be no table, and what would do.
_NO_LINES = (
    "with so few rows for each column and this epsilon noise would hide every line of a table: ask for more rows, a larger epsilon or fewer columns, "
    'or say goal = "predictions"'
)


@dataclass(frozen=True)
class SineDesign(ColumnsDesign):
    """A study of two parties by rounds of sines."""

    @staticmethod
    def spent(budget: JointBudget) -> JointBudget:
        """Return the budget with the larger share of the constants."""
        return replace(budget, constants=_TUNED.constants_share)

    @staticmethod
    def limited(columns: list[int], rows: int, budget: JointBudget) -> Limits:
        """Return the limits of rows. The response has none, because a sine bounds what it adds."""
        spread = _spread(strength(sum(columns), rows, budget))
        lengths = [spread * (math.sqrt(d) + 0.5 / math.sqrt(d)) if d else 0.0 for d in columns]
        return Limits(tuple(round(length * GRID) for length in lengths), 0, 1.0)

    @property
    def columns(self) -> int:
        """Return d: the number of coded columns of both parties."""
        return len(self.layout.coding.attribute)

    @property
    def step(self) -> float:
        """Return the part of the way that one round goes where there is no noise."""
        return min(max(_TUNED.step, _TUNED.step_of_rounds / self.shape.rounds), _TUNED.step_of_columns / self.columns)

    @property
    def untabled(self) -> str:
        """Return why a study that asks for no goal makes no table, and what would do; empty where it says what it is for."""
        given = cast("ColumnsParameters", self.parameters)
        return (
            f"this study makes no table and is for predictions: {_NO_LINES}"
            if (given.goal, given.method) == (Goal.AUTO, AUTO)
            else ""
        )

    @property
    def k(self) -> float:
        """Return n mu / d."""
        return strength(self.columns, self.rows, self.budget)

    @cached_property
    def shape(self) -> SineShape:
        """Return the two parts of both parties, and the number of rounds."""
        columns = {
            party: (len(self.layout_of(party).coding.attribute), self.limits.square(place, response=False))
            for place, party in enumerate(self.parties)
        }
        rounds = int(_ROUNDS.at(self.k))
        return SineShape.of(columns, self.rows, rounds)

    @property
    def words(self) -> tuple[str, str]:
        """Return what is released and from which columns, for a plan; and a word for it."""
        columns, parties = f"{self.columns} columns of {listed(list(self.parties))}", "predictions without standard errors"
        return f"method sines: {self.shape.rounds} rounds of gradients of {columns}, for {parties}", "rounds"

    def frequency(self, number: int) -> float:
        """Return w of a round."""
        early = self.k >= _TUNED.early_from and number < self.shape.rounds // 2
        return _EARLY if early else FREQUENCY

    def slope(self, number: int) -> float:
        """Return about the derivative of a column's gradient in its coefficient in a round: n w kappa."""
        frequency = self.frequency(number)
        return self.rows * frequency * math.exp(-0.3 * frequency**2)

    def rows_at(self, party: str, at: Sequence[float], number: int) -> SineRows:
        """Return the coding of a party's two parts of every row in a round, at these coefficients of all columns, that of the constant last."""
        place, holds = self.parties.index(party), party == self.holder
        before = sum(len(self.layout_of(name).coding.attribute) for name in self.parties[:place])
        own = len(self.layout_of(party).coding.attribute)
        part = RowPart(party, own, self.limits.square(place, response=False))
        slopes, constant = np.asarray(at[before : before + own], dtype=float), float(at[-1]) * JOINT_CONSTANT * holds
        limit, weight = self.limits.columns[place], self.limits.weight if holds else 0.0
        return SineRows(self.layout_of(party), part, limit, 0, weight, slopes, constant, self.frequency(number))

    def block(self, context: Context[Any], spot: Spot) -> NDArray[np.int64]:
        """Return a block of the sender's part of the rows as integers, at the coefficients that it was asked for."""
        at, size = context.kept(f"{AT}_{spot.round}").tolist(), self.shape.block_rows
        rows = self.rows_at(context.name, at, spot.round)
        found = rows.block(context.table, self.standard(context), spot.first, spot.last, size)
        return found[:, -2:] if spot.part.name == ANGLE else np.ascontiguousarray(found[:, :-2])


class Descent:
    """Holds the coefficients of a study by sines between its rounds."""

    def __init__(self, design: SineDesign) -> None:
        self._design = design
        self._at: Floats = np.zeros(design.columns + 1)
        self._later: list[Floats] = []

    @property
    def at(self) -> tuple[float, ...]:
        """Return the coefficients of the next round, in deviations."""
        return tuple(self._at.tolist())

    def take(self, values: Floats, number: int) -> None:
        """Go one step along the noisy total of round ``number``, given in integers."""
        design = self._design
        gradient = values / GRID**2
        gradient[-1] *= JOINT_CONSTANT
        self._at = self._at + design.step * gradient / design.slope(number)
        if number >= design.shape.rounds // 2:
            self._later.append(self._at)

    def found(self, standard: Standard) -> Floats:
        """Return the mean of the later half of the coefficients, shrunk by its noise; ``standard``: of the holder of the response."""
        design, mean = self._design, np.asarray(np.mean(self._later, axis=0))
        _, weight = arrived(design.step, design.shape.rounds)
        least = design.step * float(design.deviations[0]) / GRID**2 / design.slope(design.shape.rounds) * weight
        return shrunk(mean, least, standard, intercept=True)


def _spread(k: float) -> float:
    """Return the limit on rows in typical lengths."""
    if k < _TUNED.short_below:
        return _TUNED.short
    return min(1.0 + _TUNED.opening * max(0.0, math.log(k / _TUNED.open_from)), WIDEST)


def strength(columns: int, rows: int, budget: JointBudget) -> float:
    """Return k = n mu / d, with the budget that is left of distributed noise."""
    return rows * budget.mu / math.sqrt(budget.factor) / columns


def by_sines(plan: Plan[SineDesign]) -> Generator[list[Ask], Replies, LinearFit]:
    """The coefficients after all rounds."""
    members, totals = yield from constants(plan)
    descent = Descent(plan.design)
    for number in range(plan.design.shape.rounds):
        total = yield from joint_total(plan, members, descent.at, number)
        descent.take(total.values, number)
    return _fit(plan.design, standards_of(plan.design, totals), descent)


def imagined_sines(design: SineDesign, tables: Mapping[str, Table], rng: np.random.Generator) -> LinearFit:
    """Return the coefficients that a study over rows like these would release; sums are scaled to the study's number of rows."""
    times, standards = imagined(design, tables, rng)
    descent, shape, noise = Descent(design), design.shape, design.deviations
    rows = {party: _standardised(design, party, tables[party], standards[party]) for party in design.parties}
    for number in range(shape.rounds):
        parts = (design.rows_at(party, descent.at, number).turned(*rows[party]).astype(float) for party in design.parties)
        exact = _added_up(*parts) * times
        descent.take(exact + noise * rng.standard_normal(exact.size), number)
    return _fit(design, standards, descent)


def _added_up(first: Floats, second: Floats) -> Floats:
    """Return the released integers of rows of both parties, as the masked products give them."""
    found = []
    for own, other in ((first, second), (second, first)):
        half = own.shape[1] // 2 - 1
        found.append(own[:, :half].T @ other[:, -2] + own[:, half : 2 * half].T @ other[:, -1])
    return np.concatenate([*found, [first[:, -1] @ second[:, -2] + first[:, -2] @ second[:, -1]]])


def _standardised(design: SineDesign, party: str, table: Table, standard: Standard) -> tuple[NDArray[np.int64], Floats]:
    """Return a party's standardised rows, which all rounds share, and its responses."""
    rows = design.rows_at(party, [0.0] * (design.columns + 1), 0)
    names = (*rows.layout.coding.names, *([rows.layout.response.name] if rows.holds else []))
    coded = (coded_rows if rows.holds else feature_rows)(rows.layout, table.blocks(names))
    blocks = [rows.standardised(np.column_stack(block[: 1 + rows.holds]), standard) for block in coded]
    return np.concatenate([z for z, _ in blocks]), np.concatenate([v for _, v in blocks])


def _fit(design: SineDesign, standards: Mapping[str, Standard], descent: Descent) -> LinearFit:
    """Return the coefficients of the rounds in the data's own units, without errors."""
    own = units_of(design, standards).of_own_units(descent.found(standards[design.holder]), intercept=True)
    return LinearFit.without_errors(*own, has_intercept=True)


# --- Plan ------------------------------------------------------------------------------------------------------------------
# The plan of a regression whose columns lie at different parties: its parameters, and its method, which "auto" decides before data.

_TWO = 2
WORTH_PRIOR = table("joint").worth_prior


def design_of(study: Study, budget: JointBudget | None = None) -> JointDesign | SineDesign:
    """Return the checked design that the study asks for, with the limits that this budget (else the study's) affords."""
    parameters = check_parameters(study, ColumnsParameters)
    if parameters.method not in {AUTO, MOMENTS, SINES}:
        msg = f"method is one of {AUTO}, {MOMENTS}, {SINES}, not {parameters.method!r}"
        raise UsageError(msg)
    if parameters.split != COLUMNS:
        msg = f'split is "{COLUMNS}" where columns lie at different parties, not {parameters.split!r}'
        raise UsageError(msg)
    check_formula(parameters.formula, (parameters.response,))
    if parameters.formula and parameters.method == SINES:
        msg = f'a formula goes with method = "{MOMENTS}", not with "{SINES}"'
        raise UsageError(msg)
    if not 0 < parameters.confidence < 1:
        raise UsageError("confidence must lie between 0 and 1")
    refuse_expected(study, parameters)
    design = (HiddenDesign if study.hidden else JointDesign).of(study, parameters, budget, parameters.formula)
    factors = {factor.name: factor.levels for factor in design.layout.terms.factors}
    check_coding(parameters.coding, parameters.reference, factors)
    check_models(parameters.prior, design.layout.names, intercept=design.layout.intercept)
    if parameters.prior and parameters.method == SINES:
        msg = f'prior goes with method = "{MOMENTS}", whose release says how far the models agree, and not with "{SINES}"'
        raise UsageError(msg)
    strong = strength(len(design.layout.coding.attribute), design.expecting(study, parameters), design.budget)
    if parameters.prior and parameters.method == AUTO and strong < WORTH_PRIOR:
        msg = (
            f"with {design.rows} rows and this epsilon the noise of the response's mean hides how far the rows agree with earlier models: ask for more "
            f'rows or a larger epsilon, use the earlier model as it is, or ask for method = "{MOMENTS}" all the same'
        )
        raise UsageError(msg)
    two = len(design.parties) == _TWO
    if parameters.method == SINES and not two:
        msg = f'method = "{SINES}" needs two parties, and this study has {len(design.parties)}: use method = "{MOMENTS}"'
        raise UsageError(msg)
    goal, weak = goal_of(parameters.goal), strong < WORTH_MOMENTS
    if goal is Goal.TABLE and (weak or parameters.method == SINES):
        msg = f'goal is "table", and {_NO_LINES if weak else "method = sines tells no standard errors"}. Nothing is spent'
        raise UsageError(msg)
    weak = weak and two and not parameters.formula and not parameters.prior and not study.hidden
    by_sines = parameters.method == SINES or (parameters.method == AUTO and weak)
    if by_sines and design.gaps:
        named = listed([column.name for column in design.layout.left_out])
        msg = (
            f'method = "{SINES}", for predictions{"" if parameters.method == SINES else ", which so few rows for each column and this epsilon would have"}, '
            f'leaves no rows out, and {named} declare{"s" if len(design.layout.left_out) == 1 else ""} missing = "complete": declare "indicator" or "absent", '
            f'which are right for predictions, or say method = "{MOMENTS}". Nothing is spent'
        )
        raise UsageError(msg).at(column=design.layout.left_out[0].name)
    return SineDesign.of(study, parameters, budget) if by_sines else design


def compile_plan(study: Study) -> Plan[JointDesign | SineDesign]:
    """Return the releases of a study of columns at different parties."""
    design = design_of(study)
    models = design.parameters.prior if isinstance(design.parameters, ColumnsParameters) else ()
    plan = plan_of(study, design, assumed(study, models))
    gaps = notes_of(design.layout.left_out, study)
    return replace(plan, notes=(*filter(None, (getattr(design, "untabled", ""),)), *plan.notes, *gaps))


# --- Outlook ---------------------------------------------------------------------------------------------------------------
# Outlook of a study of columns at different parties of some shape, next to the model that the holder of the response can fit alone.


#: The epsilon at which the noise of joint sums is nothing beside sampling: what a table has without privacy.
_PLENTY = 1e4


def outlook(
    study: Study,
    r2: Range,
    correlation: Range,
    ranges: Range,
    shapes: tuple[str, ...],
    seed: int,
    *,
    quick: bool,
    lines: bool,
) -> Outlook:
    """Return squared error of predictions over the variance of y, against epsilon, and that of the model of the response's holder alone."""
    designs, seen = {study.epsilon: design_of(study)}, PlayedTables(lines)
    alone: list[float] = []

    def played(epsilon: float, at: float, k: int, rows: MadeUp, rng: np.random.Generator) -> LinearFit:
        """Return the fit of a study over these people, whose table is kept as that of an epsilon."""
        if at not in designs:
            designs[at] = design_of(msgspec.structs.replace(study, epsilon=at))
        own = designs[at]
        if isinstance(own, SineDesign):
            seen.add(epsilon, k, None)
            return imagined_sines(own, rows.tables, rng)
        moments, given = replace(rows, design=own).moments(rng), cast("ColumnsParameters", own.parameters)
        seen.add(epsilon, k, drawn_tables(moments, (), given.reference, given.coding))
        return moments.posterior()

    def run(epsilon: float, k: int) -> tuple[float, float]:
        rng = np.random.default_rng([seed, k])
        evenly = Evenly(k, seed)
        part, related, wide = drawn(r2, evenly), drawn(correlation, evenly), drawn(ranges, evenly)
        rows = MadeUp.of(designs[study.epsilon], part, related, wide, rng, shape=shapes[k % len(shapes)])
        if math.isinf(epsilon):
            alone.append(rows.alone())
            played(epsilon, _PLENTY, k, rows, rng)
            return rows.without_privacy(), 1 - part
        fit = played(epsilon, epsilon, k, rows, rng)
        return rows.error(fit.coef_, fit.intercept_), 1 - part

    design = designs[study.epsilon]
    part = min(1.0, MADE_UP / design.expected)
    found = simulated(study.epsilon, run, part=part, quick=quick)
    points, free = with_lines(seen, run, *found, study.epsilon)
    words = [
        in_words("R^2", r2),
        shapes_in_words(shapes),
        in_words("correlation of columns", correlation),
        in_words("half range in deviations", ranges),
    ]
    return Outlook(
        f"bayes ({'sines' if isinstance(design, SineDesign) else 'joint moments'})",
        design.expected,
        len(design.layout.features),
        study.epsilon,
        points,
        1.0,
        free,
        "squared error of predictions / variance of y",
        ", ".join([*words, "every column with an effect of its own, equally large in the mean"]),
        nothing_released=min(float(np.mean(alone)), 1.0),
    ).with_gaps(study, design.layout.left_out)
