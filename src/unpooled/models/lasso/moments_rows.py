"""The default form: releases of standardised columns, moments of each party's own, and what ties the blocks together (THEORY.md, 1c); and how a party computes them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.errors import ProtocolError, UsageError
from unpooled.inference.priors import assumed, rows_of
from unpooled.kernels.moments import add_gram
from unpooled.linear.standard import WIDEST
from unpooled.models.lasso.declared import LARGEST, Parameters, check, check_bound, check_prior
from unpooled.models.lasso.frank_wolfe_rows import RESPONSE_KNOWN, coded_columns, grids, response_of, shortened, widths_of
from unpooled.privacy.accounting import SAFETY, budget_mu, budget_rho
from unpooled.privacy.bounds import Coding, integer_grid
from unpooled.privacy.mechanisms import Block, GaussianRelease, NoisyChoice, Reach, Scores
from unpooled.privacy.mechanisms import Vector as Statistic
from unpooled.privacy.plan import Plan, Release, Study, check_parameters
from unpooled.privacy.sensitivity import moments_ball, standardising_sums
from unpooled.privacy.unit import ROWWISE, Adjacency, Split, Unit
from unpooled.protocol.messages import Array, Nothing, Released
from unpooled.protocol.registry import Step
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.inference.priors import EarlierModel
    from unpooled.privacy.plan import Card
    from unpooled.protocol.context import Context

    Vector = NDArray[np.float64]
    Floats = NDArray[np.float64]


# --- Messages --------------------------------------------------------------------------------------------------------------
# Messages of the default form: its requests, and the replies that may leave a party: noisy sums, picks, moments, axes and products.


class Standards(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Released means and deviations in coded units: of a party's columns (all, or the chosen ones), and of the response."""

    middle: tuple[float, ...]
    width: tuple[float, ...]
    response: tuple[float, float]


class StandardSumsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Noisy sums and sums of squares."""

    sums: Released


class ChooseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Choose a column that is not among those already chosen."""

    standards: Standards
    taken: tuple[int, ...]


class ChooseReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Its place among the others, of the signed ones."""

    choice: Released


class ProductsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Release the moments of these columns, standardised."""

    standards: Standards
    columns: tuple[int, ...]


class ProductsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Their noisy second moments, and products with the response."""

    products: Released


class AxisRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Release the score of every row along a public direction of these columns."""

    standards: Standards
    columns: tuple[int, ...]
    direction: tuple[float, ...]


class AxisReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Noisy scores of the rows."""

    scores: Released


class CrossingRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Release the products of your scores along the same direction with the others' released ones, a column for each."""

    axis: AxisRequest
    others: Array


class CrossingReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Those products, with noise."""

    products: Released


# --- Plan ------------------------------------------------------------------------------------------------------------------
# The default form's releases: standardised columns, moments of each party's own, and what ties the parties' blocks together (THEORY.md, 1c).

SUMS, CHOOSE, PRODUCTS, AXIS, CROSSING = "sums", "choose", "products", "axis", "crossing"
_TUNED = table("lasso_moments")
#: Shares of the squared budget: sums, picks (where there are any), moments, axes, and what the axes have in common.
SHARES = _TUNED.shares("shares_of_steps")
#: Weight of a sum relative to its sum of squares.
FIRST = _TUNED.first_weight
#: Standardised values are clipped to this; products of a value with the response, and the response next to a row, to these.
CAP, PAIR, CLIP = _TUNED.cap, _TUNED.pair_clip, _TUNED.clip
#: Scores along an axis are clipped to this many of their deviations.
AXIS_CAP = _TUNED.axis_clip
#: Axes are released twice where one release would leave less noise than the first in the product of two, and not at all where it would leave more
#: than the second in the mean of all products.
QUIET, DEAF = _TUNED.twice_below, _TUNED.not_above
#: n mu for each root of the columns that are kept from which on more than the mean is worth its budget: without earlier models, and with some.
WORTH, WORTH_DRAWN = _TUNED.worth, _TUNED.worth_drawn


@dataclass(frozen=True)
class StandardDesign:
    """A study of this form, understood."""

    parameters: Parameters
    widths: Mapping[str, int]
    kept: Mapping[str, int]
    rows: int
    #: Of the response's mean alone.
    mean_only: bool
    #: How often axes are released.
    stages: int
    #: Columns that a party keeps because earlier models say that they matter; the others that it keeps are picked.
    known: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def centres(self) -> bool:
        """Return True if there is a constant in addition to the columns."""
        return self.parameters.fit_intercept

    @property
    def parties(self) -> tuple[str, ...]:
        """Return the names of the parties in the order of the study."""
        return tuple(self.widths)

    @property
    def crosses(self) -> bool:
        """Return True if several parties have columns that may have something in common, which axes measure."""
        return self.stages > 0

    def picks(self, party: str) -> bool:
        """Return True if a party chooses among its columns."""
        return self.kept[party] < self.widths[party]

    def picked(self, party: str) -> int:
        """Return the number of columns that a party picks."""
        return self.kept[party] - len(self.known.get(party, ())) if self.picks(party) else 0

    def radius(self, party: str) -> float:
        """Return the length to which standardised rows are shortened: that of a typical one."""
        return math.sqrt(self.kept[party])

    def grid(self, party: str) -> int:
        """Return steps per unit of a standardised value: sums of products stay inside 64 bits."""
        exact = 1 << ((53 - math.ceil(math.log2(WIDEST**2 * self.kept[party]))) // 2)  # squared lengths below 2^53
        return min(integer_grid(self.rows * math.ceil(4 * max(self.radius(party), CAP) ** 2), 2), exact)

    def longest(self, party: str) -> tuple[int, int]:
        """Return (longest row, largest response that goes with it), in grid steps."""
        grid = self.grid(party)
        return int(self.radius(party) * grid), int(CLIP * grid)


def strength(study: Study) -> float:
    """N mu: rows times the root of the budget, in which everything about noise is said."""
    return study.parties[0].rows * budget_mu(study.epsilon, study.delta)


def kept_columns(study: Study) -> dict[str, int]:
    """Return the number of columns that each party keeps in the end: fixed before data, by the noise that their moments will have."""
    share = strength(study) / (len(study.parties) if study.unit == Unit.RECORD else 1)
    most = max(_TUNED.whole("fewest_columns"), int(share / _TUNED.per_column)) if math.isfinite(share) else None
    return {name: width if most is None else min(width, most) for name, width in widths_of(study).items()}


def known_columns(study: Study, models: Sequence[EarlierModel]) -> dict[str, tuple[int, ...]]:
    """Return the columns of each party that keeps fewer than it has which earlier models say matter most, in order: half of those it keeps, or less.

    A column matters as far as its term may move predictions, as a part of what all terms of that model may; of several models the largest part counts.
    """
    names, widths, places = coded_of(study)
    terms = np.abs(rows_of(models, names, intercept=False)) * widths
    matters = (terms / np.maximum(terms.sum(axis=1, keepdims=True), 1e-300)).max(axis=0, initial=0.0)
    found = {}
    for name, kept in kept_columns(study).items():
        own = matters[[k for k, (party, _) in enumerate(places) if party == name]]
        best = np.argsort(-own, kind="stable")[: kept // 2] if kept < own.size else ()
        found[name] = tuple(sorted(int(j) for j in best if own[j] > 0))
    return found


def coded_of(study: Study) -> tuple[tuple[str, ...], Vector, tuple[tuple[str, int], ...]]:
    """Return (names, half widths, places) of the coded columns of all parties, in the order of the study."""
    codings = {card.name: Coding(card.columns, 1) for card in study.parties}
    names = tuple(name for coding in codings.values() for name in coding.coded_names)
    widths = np.concatenate([np.asarray(coding.units[0], dtype=np.float64) for coding in codings.values()])
    return names, widths, tuple((party, j) for party, coding in codings.items() for j in range(len(coding.coded_names)))


def only_the_mean(study: Study, worth: float) -> bool:
    """Return True if the noise leaves nothing but the mean: a threshold that simulations of declared shapes fixed, never data."""
    count = sum(kept_columns(study).values()) if study.unit == Unit.RECORD else max(kept_columns(study).values())
    return strength(study) < worth * math.sqrt(count)


def design_of(study: Study) -> StandardDesign:
    """Return the checked design that the study asks for."""
    p = check_parameters(study, Parameters)
    check_bound(p)
    check(study, p, drawn=True)
    check_prior(p, coded_of(study)[0])
    mean_only, several = only_the_mean(study, WORTH_DRAWN if p.prior else WORTH), len(study.parties) > 1
    if p.prior and mean_only:
        msg = (
            f"with {study.parties[0].rows} rows and this epsilon the noise hides how far the rows agree with earlier models: ask for more rows or a larger "
            "epsilon, or use the earlier model as it is"
        )
        raise UsageError(msg)
    design = StandardDesign(
        p, widths_of(study), kept_columns(study), study.parties[0].rows, mean_only, int(several and not mean_only)
    )
    if p.prior:
        design = replace(design, known=known_columns(study, p.prior))
    return replace(design, stages=_stages(study, design)) if design.crosses else design


def _stages(study: Study, design: StandardDesign) -> int:
    """Return two where what axes have in common is known well although the budget is halved, none where all pairs tell nothing, else one."""
    mus = budgets(study, design)[0]
    noise = noise_of_axes(design, mus[AXIS] * equal_part(study), mus[CROSSING] * equal_part(study))
    if noise / math.sqrt(math.comb(len(design.parties), 2)) > DEAF:
        return 0
    return 2 if noise < QUIET else 1


def noise_of_axes(design: StandardDesign, axis: float, crossing: float) -> float:
    """About the deviation of the noise in the product of two axes of variance 1, for these mu of one party."""
    heard = 2 * AXIS_CAP / axis
    both = (
        2 * AXIS_CAP / crossing * longest_row(len(design.parties) - 1, heard) / design.rows
    ) ** 2 + heard**2 / design.rows
    return math.sqrt(both / 2) / _TUNED.heard


def longest_row(others: int, noise: float) -> float:
    """To what length rows of noisy scores are shortened, that are of variance 1 without the noise: nothing where there is none."""
    return AXIS_CAP * math.sqrt(others) * (1 + noise)


def sums_release(design: StandardDesign, card: Card, mu: float) -> GaussianRelease:
    """Return sums and sums of squares of all coded columns; at the first party of the response too (Theorem B.7 with L.7)."""
    g, first, p = float(grids(design.rows)[0]), FIRST, 0 if design.mean_only else design.widths[card.name]
    weight = math.sqrt(max(p, 1)) if card.name == design.parties[0] else 0.0
    blocks = [Block(p, g / first), Block(p, g * g)] if p else []
    if weight:
        blocks += [Block(1, g / first / weight), Block(1, g * g / weight)]
    kinds = [c.categories is not None or c.missing == "indicator" for c in card.columns] if p else []
    distance = standardising_sums(kinds, first, weight, Adjacency.REPLACE)
    reach = Reach(distance, 2 * (p + bool(weight)))
    return GaussianRelease.calibrated(blocks, dict.fromkeys(ROWWISE, reach), Unit.RECORD, mu)


def products_release(design: StandardDesign, party: str, mu: float) -> GaussianRelease:
    """Return second moments of shortened rows and their products with the response, in units of its clip over R (Theorem F.9.3)."""
    count = design.kept[party]
    off = count * (count - 1) // 2
    unit = float(design.longest(party)[0] ** 2)
    middle = (Block(off, unit * math.sqrt(0.5)),) if off else ()
    blocks = (Block(count, unit), *middle, Block(count, unit))
    reach = Reach(moments_ball(1.0, 1.0, Adjacency.REPLACE), count + off + count)
    return GaussianRelease.calibrated(blocks, dict.fromkeys(ROWWISE, reach), Unit.RECORD, mu)


def axis_release(design: StandardDesign, mu: float) -> GaussianRelease:
    """Return one number of at most AXIS_CAP for every row (Theorem L.8)."""
    reach = Reach(2.0 * grids(design.rows)[0], 1)
    return GaussianRelease.calibrated((Block(design.rows, 1.0),), dict.fromkeys(ROWWISE, reach), Unit.RECORD, mu)


def crossing_release(design: StandardDesign, mu: float) -> GaussianRelease:
    """Return the products of an exact axis with the others' released ones (Theorem L.9)."""
    first, second = grids(design.rows)
    others = len(design.parties) - 1
    reach = Reach(2.0 * first * second, others)
    return GaussianRelease.calibrated((Block(others, 1.0),), dict.fromkeys(ROWWISE, reach), Unit.RECORD, mu)


def budgets(study: Study, design: StandardDesign) -> tuple[dict[str, float], float]:
    """Return (mu of all parties together for every kind of release, epsilon of one pick; 0: none)."""
    if study.epsilon == math.inf:
        return dict.fromkeys(SHARES, math.inf), math.inf
    if design.mean_only:
        return {**dict.fromkeys(SHARES, 0.0), SUMS: budget_mu(study.epsilon, study.delta)}, 0.0
    picking = [name for name in design.parties if design.picks(name)]
    used = dict(SHARES)
    if not picking:
        del used[CHOOSE]
    if not design.crosses:
        del used[AXIS], used[CROSSING]
    whole = math.fsum(used.values())
    # Picks are no Gaussians: a plan with any is accounted by zCDP (F.13).
    squared = (
        2 * budget_rho(study.epsilon, study.delta) * (1 - SAFETY) if picking else budget_mu(study.epsilon, study.delta) ** 2
    )
    mus = {name: math.sqrt(squared * share / whole) for name, share in used.items()}
    if not picking:
        return mus, 0.0
    counts = [design.picked(name) for name in picking]
    touched = sum(counts) if study.unit == Unit.RECORD else max(counts)
    return mus, math.sqrt(8 * mus[CHOOSE] ** 2 / 2 / touched)


def compile_standard(study: Study) -> Plan:
    """Return the releases of a LASSO study in the default form."""
    design = design_of(study)
    mus, epsilon = budgets(study, design)
    choice = NoisyChoice(tuple((unit, epsilon) for unit in ROWWISE), Unit(study.unit))
    releases: list[Release] = []
    for card, part in zip(study.parties, parts_of(study, design), strict=True):
        name = card.name
        if name == design.parties[0] or not design.mean_only:
            # Squares of shares add up to one: a row is at every party.
            # The first party also has the response, whose mean all the others rely on.
            both = (part**2 + (name == design.parties[0])) / 2 if study.unit == Unit.RECORD else 1.0
            alone = 1.0 if design.mean_only else math.sqrt(both)
            releases.append(Release(SUMS, name, SUMS, sums_release(design, card, mus[SUMS] * alone)))
        if design.mean_only:
            continue
        if design.picks(name):
            releases.append(Release(CHOOSE, name, CHOOSE, choice, design.picked(name)))
        releases.append(Release(PRODUCTS, name, PRODUCTS, products_release(design, name, mus[PRODUCTS] * part)))
        if design.crosses:
            stage = equal_part(study) / math.sqrt(design.stages)
            releases.append(Release(AXIS, name, AXIS, axis_release(design, mus[AXIS] * stage), design.stages))
            releases.append(
                Release(CROSSING, name, CROSSING, crossing_release(design, mus[CROSSING] * stage), design.stages)
            )
    return Plan(
        study,
        Split.VERTICAL,
        tuple(releases),
        not_protected=(RESPONSE_KNOWN,),
        assumptions=assumed(study, design.parameters.prior),
        design=design,
    )


def parts_of(study: Study, design: StandardDesign) -> list[float]:
    """Return each party's part of mu where a row is at all of them: by its columns, so that noise is about the same everywhere (L.7)."""
    if study.unit != Unit.RECORD:
        return [1.0] * len(study.parties)
    total = sum(design.kept.values())
    return [math.sqrt(design.kept[card.name] / total) for card in study.parties]


def equal_part(study: Study) -> float:
    """Return the same part for each."""
    return 1 / math.sqrt(len(study.parties)) if study.unit == Unit.RECORD else 1.0


# --- The party's steps -----------------------------------------------------------------------------------------------------
# Computations of a party in the default form. Every number is a function of one row and of public values, and bounded whatever those are.

#: Public numbers of a request are below this, so that no number of a row overflows.
_LARGEST = 1e6
#: Steps of a product of a column and the response, per unit.
_PAIR_STEPS = 1024.0
#: Rows that are standardised at a time.
_BLOCK = 1 << 14


def _numbers(standards: Standards, columns: int) -> tuple[Floats, Floats, tuple[float, float]]:
    """Return (middles, widths, those of the response) of a request; refuse another count of numbers, or wild ones."""
    middle, width = np.array(standards.middle, dtype=float), np.array(standards.width, dtype=float)
    numbers = np.concatenate([middle, width, standards.response])
    fits = middle.size == width.size == columns and bool((np.abs(numbers) <= _LARGEST).all())
    if not fits or not (width >= 1 / _LARGEST).all() or not standards.response[1] >= 1 / _LARGEST:
        msg = f"a request over standardised columns carries {columns} finite middles and positive deviations"
        raise ProtocolError(msg)
    return middle, width, standards.response


def _chosen(context: Context[StandardDesign], columns: Sequence[int], count: int | None = None) -> list[int]:
    """Return the columns of a request: distinct ones that the party has, in the number that the plan keeps."""
    design = context.design
    width = design.widths[context.name]
    if len(set(columns)) != len(columns) or not all(0 <= j < width for j in columns):
        raise ProtocolError("columns that are named twice, or that this party does not have")
    if count is not None and len(columns) != count:
        raise ProtocolError("moments are of as many columns as the plan keeps")
    return list(columns)


def _response(context: Context, numbers: tuple[float, float]) -> Floats:
    """Return the standardised response, clipped."""
    coded = response_of(context, context.design) / context.design.parameters.response_bound
    return np.asarray(np.clip((coded - numbers[0]) / numbers[1], -CAP, CAP))


def sums(context: Context[StandardDesign], request: Nothing) -> StandardSumsReply:  # noqa: ARG001 - the request is no more than its name
    """Release sums and sums of squares, of the columns and, at the first party, of the response."""
    context.planned(SUMS)
    design = context.design
    g, parts = grids(context.table.n_rows)[0], []
    if not design.mean_only:
        coded = coded_columns(context)
        found = [coded.column(j) for j in range(design.widths[context.name])]
        parts += [np.array([f(values) for values in found]) for f in (np.sum, _square)]
    if context.name == design.parties[0]:
        own = np.trunc(response_of(context, design) / design.parameters.response_bound * g)
        parts.append(np.array([own.sum(), own @ own]))
    return StandardSumsReply(context.release(SUMS, Statistic(np.concatenate(parts).astype(np.int64))))


def _square(values: Floats) -> float:
    return float(values @ values)


def choose(context: Context[StandardDesign], request: ChooseRequest) -> ChooseReply:
    """Choose among the columns not taken yet by their products with the response, each row's clipped to +-PAIR (Theorem L.10)."""
    context.planned(CHOOSE)
    design = context.design
    width, g = design.widths[context.name], float(grids(context.table.n_rows)[0])
    taken = set(_chosen(context, request.taken))
    if not len(taken) < design.kept[context.name]:
        raise ProtocolError("as many columns are chosen as the plan keeps")
    middle, wide, numbers = _numbers(request.standards, width)
    response, coded = _response(context, numbers), coded_columns(context)
    scores = []
    for j in range(width):
        if j not in taken:
            values = np.clip((coded.column(j) / g - middle[j]) / wide[j], -CAP, CAP) * response
            scores.append(int(np.trunc(np.clip(values, -PAIR, PAIR) * _PAIR_STEPS).sum()))
    given = Scores(np.array(scores, dtype=np.int64), int(2 * PAIR * _PAIR_STEPS), signed=True)
    return ChooseReply(context.release(CHOOSE, given))


def _rows(context: Context, columns: list[int], middle: Floats, width: Floats, grid: int) -> Floats:
    """Standardised rows of these columns as floats that hold integers; what is shortened later need not be clipped now."""
    coded, g = coded_columns(context), float(grids(context.table.n_rows)[0])
    out = np.empty((context.table.n_rows, len(columns)), order="F")
    for at, (j, centre, wide) in enumerate(zip(columns, middle.tolist(), width.tolist(), strict=True)):
        out[:, at] = np.trunc(np.clip((coded.column(j) / g - centre) / wide, -WIDEST, WIDEST) * grid)
    return out


def _shortened(rows: Floats, response: Floats, grid: int, longest: int, clip: int) -> Floats:
    """Return rows of integers shortened to ``longest``, and last the response by the same factor, clipped, in steps of the grid.

    A row that rounding left too long cannot be, and would count as nothing. Squares are exact: at most 2^53, for grids are at most 2^20.
    """
    count = rows.shape[1]
    factor = np.minimum(1.0, longest / np.sqrt(np.maximum(_lengths(rows), 1.0)) * (1 - 2.0**-40))
    out = np.empty((response.size, count + 1), order="F")
    out[:, :count] = np.trunc(rows * factor[:, None])
    out[:, count] = np.trunc(np.clip(response * factor * grid, -clip, clip))
    out[_lengths(out[:, :count]) > float(longest) ** 2] = 0.0
    return out


def _lengths(rows: Floats) -> Floats:
    """Return the squared lengths of rows of integers, column by column."""
    total = np.zeros(rows.shape[0])
    for column in rows.T:
        total += column * column
    return total


def products(context: Context[StandardDesign], request: ProductsRequest) -> ProductsReply:
    """Release second moments of shortened rows: diagonal, above it, products with the response in units of its clip over R."""
    context.planned(PRODUCTS)
    design = context.design
    name, grid = context.name, design.grid(context.name)
    columns = _chosen(context, request.columns, design.kept[name])
    middle, width, numbers = _numbers(request.standards, len(columns))
    rows, response = _rows(context, columns, middle, width, grid), _response(context, numbers)
    count, (longest, clip) = len(columns), design.longest(name)
    total = np.zeros((count + 1, count + 1), dtype=np.int64)
    for start in range(0, response.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        out = _shortened(rows[part], response[part], grid, longest, clip)
        out[:, count] = np.clip(np.trunc(out[:, count] * (longest / clip)), -longest, longest)
        add_gram(out, longest, total)
    above = total[:count, :count][np.triu_indices(count, 1)]
    statistic = np.concatenate([total.diagonal()[:count], above, total[:count, count]])
    return ProductsReply(context.release(PRODUCTS, Statistic(statistic)))


def _axis(context: Context[StandardDesign], request: AxisRequest) -> Floats:
    """Return the rows' scores along a direction, clipped to AXIS_CAP, in steps of the columns' grid."""
    design = context.design
    columns = _chosen(context, request.columns, design.kept[context.name])
    middle, width, _ = _numbers(request.standards, len(columns))
    direction = np.array(request.direction, dtype=float)
    if direction.size != len(columns) or not (np.abs(direction) <= _LARGEST).all():
        raise ProtocolError("a direction has a finite number for each of the columns")
    grid = design.grid(context.name)
    rows, scores = _rows(context, columns, middle, width, grid), np.zeros(context.table.n_rows)
    for j, part in enumerate(direction.tolist()):  # one after the other, so that a score does not depend on its place
        scores += rows[:, j] * (part / grid)
    return np.asarray(np.trunc(np.clip(scores / AXIS_CAP, -1, 1) * grids(context.table.n_rows)[0]))


def axis(context: Context, request: AxisRequest) -> AxisReply:
    """Release the rows' scores along a direction, each with noise."""
    context.planned(AXIS)
    return AxisReply(context.release(AXIS, Statistic(_axis(context, request).astype(np.int64))))


def crossing(context: Context, request: CrossingRequest) -> CrossingReply:
    """Release the products of the exact scores with the others' released ones, whose rows are divided by the longest."""
    context.planned(CROSSING)
    others = request.others.numpy()
    count = len(context.design.parties) - 1
    if others.shape != (context.table.n_rows, count) or others.dtype != np.float64 or not (np.abs(others) < LARGEST).all():
        raise ProtocolError("the others' scores are one released number for every row and party")
    factors = np.trunc(shortened(others)[0] * grids(context.table.n_rows)[1])
    own = _axis(context, request.axis)
    return CrossingReply(context.release(CROSSING, Statistic((own @ factors).astype(np.int64))))


STANDARD_STEPS = (
    Step(SUMS, Nothing, StandardSumsReply, sums),
    Step(CHOOSE, ChooseRequest, ChooseReply, choose),
    Step(PRODUCTS, ProductsRequest, ProductsReply, products),
    Step(AXIS, AxisRequest, AxisReply, axis),
    Step(CROSSING, CrossingRequest, CrossingReply, crossing),
)
