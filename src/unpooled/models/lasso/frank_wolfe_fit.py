"""Pure generator: Frank-Wolfe over parties, which chooses columns, and a fit of their coefficients to noisy moments (Theorem L.4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import ProtocolError
from unpooled.inference.priors import DrawnTo, words
from unpooled.kernels.l1_ball import quadratic_in_balls
from unpooled.linear.moments import StoredMoments
from unpooled.models.lasso.declared import Coupling
from unpooled.models.lasso.frank_wolfe_rows import (
    COLUMN,
    COLUMNS_WEIGHT,
    CONSTANT_WEIGHT,
    LEADING,
    MEAN,
    MEAN_GRID,
    PICK,
    REFIT,
    RESPONSE_WEIGHT,
    Bid,
    ColumnRequest,
    PickRequest,
    RefitRequest,
    ReleasedColumn,
    Slot,
    Term,
    grids,
    shortened,
)
from unpooled.privacy.bounds import Coding
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.protocol.conversation import everybody
from unpooled.protocol.messages import Array, Ask, Nothing
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import ResultTerm
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from numpy.typing import NDArray

    from unpooled.models.lasso.frank_wolfe_rows import LassoDesign
    from unpooled.privacy.plan import Plan, Study
    from unpooled.protocol.registry import Conversation

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Iterate = dict[Slot, float]


# --- Refit -----------------------------------------------------------------------------------------------------------------
# Coefficients of the chosen columns from their noisy moments: post-processing of releases, by numbers alone.

_FLOOR = table("frank_wolfe").raised_most


def shrunk(values: Vector, noise: float) -> Vector:
    """Noisy numbers that lie in [-1, 1], moved toward 0 by their noise: v - noise^2 / v, and 0 where noise is the larger (James-Stein)."""
    larger = np.abs(values) > noise
    moved = np.where(larger, values - noise**2 / np.where(larger, values, 1.0), 0.0)
    return np.clip(moved, -1.0, 1.0)


@dataclass(frozen=True)
class ColumnMoments:
    """A^T y / n, the diagonal of A^T A / n, the means of A, and A^T (A + noise) / n, with the noise that their release added.

    Where a constant is fitted, everything is of columns less their means; a response that has lost its mean then needs no more.
    """

    response: Vector
    squares: Vector
    means: Vector
    products: Matrix
    response_noise: float
    squares_noise: float
    products_noise: float
    #: Deviation of the noise in the released columns, and how many rows they have.
    column_noise: float
    rows: int

    @classmethod
    def of(cls, design: LassoDesign, columns: Matrix, values: Matrix, deviation: float, middle: float) -> ColumnMoments:
        """Return moments from the released columns, a row of moments (L.5) for each column with their noise, and the response's mean."""
        rows, (first, second) = columns.shape[0], grids(columns.shape[0])
        unit = 1.0 / (first * second * rows)
        response = unit * design.parameters.response_bound / RESPONSE_WEIGHT
        product = unit * shortened(columns)[1] / COLUMNS_WEIGHT
        means = np.zeros(len(values))
        if design.centres:
            means = shrunk(values[:, 2] * (unit / CONSTANT_WEIGHT), deviation * unit / CONSTANT_WEIGHT)
        return cls(
            response=values[:, 0] * response - means * middle,
            squares=values[:, 1] * unit - means**2,
            means=means,
            products=values[:, LEADING : LEADING + columns.shape[1]] * product - np.outer(means, means),
            response_noise=deviation * response,
            squares_noise=deviation * unit,
            products_noise=deviation * product,
            column_noise=design.column_scale,
            rows=rows,
        )

    def correlations(self) -> Vector:
        """A^T y / n, every entry moved toward 0 by about the largest noise of its k entries: sqrt(2 log k) deviations."""
        threshold = self.response_noise * math.sqrt(2 * math.log(self.response.size))
        return np.asarray(np.sign(self.response) * np.maximum(np.abs(self.response) - threshold, 0))

    def gram(self) -> Matrix:
        """A^T A / n, shrunk by what is known of its noise.

        Both owners of two columns release their product with the other's noisy one: unbiased, since the noise of a column knows nothing
        of other columns. On the scale of correlations the mean square of the off-diagonal entries, less that of their known
        noise, tells how much of them is signal (empirical Bayes); all are multiplied by this part. What noise is left may
        make the matrix indefinite: eigenvalues are raised to its operator norm, or to 1/20.
        """
        size = self.squares.size
        squares = np.maximum(self.squares, max(self.squares_noise, 1e-12 * float(np.abs(self.squares).max(initial=1.0))))
        scale = np.sqrt(squares)
        correlations = (self.products + self.products.T) / 2 / np.outer(scale, scale)
        np.fill_diagonal(correlations, 0.0)
        # One product has the release's noise, and that of the column which the owner multiplied its own with.
        single = self.products_noise**2 + self.column_noise**2 * squares[:, None] / self.rows
        variance = (single + single.T) / 4 / np.outer(squares, squares)
        np.fill_diagonal(variance, 0.0)
        pairs = max(size * (size - 1), 1)
        noise = float(variance.sum()) / pairs
        signal = max(float(np.square(correlations).sum()) / pairs - noise, 0.0)
        part = signal / (signal + noise) if noise else 1.0
        values, vectors = np.linalg.eigh(part * correlations + np.eye(size))
        least = max(min(_FLOOR, part * 2 * math.sqrt(noise * size)), 1e-12)
        return np.asarray((vectors * np.maximum(values, least)) @ vectors.T * np.outer(scale, scale))


# --- Coordinator -----------------------------------------------------------------------------------------------------------
# Pure generator: Frank-Wolfe over parties, which chooses columns, and a fit of their coefficients to noisy moments (Theorem L.4).
#
# Each round is a pick of every party and at most one new column of the winner (or of all).

#: By how much of the radius an l1 norm may fall short of it in a ball that is full.
_FULL = 1e-6
#: What a result says where the ball is full.
BINDS = (
    "the coefficients fill the ball that the radius allows, so the radius limits this fit: name a larger radius_in_half_ranges (`radius` in Python), "
    'or leave it and the parameters of method = "frank-wolfe" out, for a fit that needs none'
)


class Round(msgspec.Struct, frozen=True):
    """One round: which signed columns were stepped to, and by how much."""

    gamma: float
    vertices: tuple[tuple[str, int, float], ...]


class ColumnCoefficient(msgspec.Struct, frozen=True):
    """A coefficient in the data's own units."""

    party: str
    name: str
    value: float


class LassoResult(msgspec.Struct, frozen=True):
    """The model, and the path of iterates that chose its columns."""

    coefficients: tuple[ColumnCoefficient, ...]
    #: In the data's own units; of a response that is a label at every party, for its deviation from its public middle.
    intercept: float
    #: The same coefficients, of coded columns.
    terms: tuple[Term, ...]
    path: tuple[Round, ...]
    #: Columns that were released, in order.
    shared: tuple[tuple[str, int], ...]
    #: Whether the coefficients fill the ball: a larger one would hold a better fit.
    binds: bool = False
    #: The released moments of columns that were joined under masks, of which more can be asked.
    moments: StoredMoments | None = None
    #: The earlier models that the fit was drawn to, and how far; None without any.
    drawn: DrawnTo | None = None


def coordinate(plan: Plan[LassoDesign]) -> Conversation:
    """T rounds, and the refit of what they chose."""
    study, design = plan.study, plan.design
    cards, rounds = study.parties, design.parameters.rounds
    iterate: Iterate = {}
    released: dict[Slot, ReleasedColumn] = {}
    counts = dict.fromkeys((card.name for card in cards), 0)
    new: tuple[ReleasedColumn, ...] = ()
    path: list[Round] = []
    middle = (yield from _middle(plan)) if design.centres else 0.0
    for t in range(rounds):
        terms = tuple(Term(place.party, place.column, value) for place, value in iterate.items())
        picks = yield from everybody([Ask(card.name, PICK, PickRequest(terms, new, middle), t) for card in cards])
        claims = tuple(
            Bid(card.name, reply.choice, reply.score, reply.signed) for card, reply in zip(cards, picks, strict=True)
        )
        for claim, card in zip(claims, cards, strict=True):
            if not 0 <= claim.picked < 2 * design.sampled(card):
                msg = f"party {claim.party!r} picked a column that it does not have"
                raise ProtocolError(msg)
        moving = [max(claims, key=lambda claim: claim.value)] if design.competes else list(claims)
        vertices = [(c.party, *design.picked(study, study.card(c.party), t, c.picked)) for c in moving]
        gamma = design.step(study, t)
        iterate = stepped(iterate, vertices, gamma, design.radius(study))
        path.append(Round(gamma, tuple(vertices)))
        fresh = [(c, Slot(p, j)) for c, (p, j, _) in zip(moving, vertices, strict=True) if Slot(p, j) not in released]
        if t + 1 == rounds and not (design.refits or design.centres):
            break  # nobody would read it
        replies = yield from everybody([_share(design, t, claims, claim, counts) for claim, _ in fresh])
        new = tuple(_column(plan, place, reply) for (_, place), reply in zip(fresh, replies, strict=True))
        released.update(zip((place for _, place in fresh), new, strict=True))
    means = {}
    if design.centres:
        noise = design.column_scale / math.sqrt(cards[0].rows)
        columns = np.array([column.values.numpy().mean() for column in released.values()])
        means = dict(zip(released, shrunk(columns, noise).tolist(), strict=True))
    if design.refits:
        iterate, means = yield from _refit(plan, released, new, middle)
    intercept = middle - sum(value * means.get(place, 0.0) for place, value in iterate.items())
    terms = tuple(Term(p.party, p.column, iterate[p]) for p in sorted(iterate, key=lambda p: (p.party, p.column)))
    shared = tuple((place.party, place.column) for place in released)
    return LassoResult(*in_own_units(plan, terms, intercept), terms, tuple(path), shared, _fills(design, study, iterate))


def in_own_units(plan: Plan, terms: tuple[Term, ...], intercept: float) -> tuple[tuple[ColumnCoefficient, ...], float]:
    """Return (coefficients in the data's own units, the constant that belongs to them)."""
    codings = {party: Coding(plan.study.card(party).columns, 1) for party in {term.party for term in terms}}
    known = {party: (coding.coded_names, *coding.units) for party, coding in codings.items()}
    found = []
    for term in terms:
        names, width, centre = known[term.party]
        value = term.value / float(width[term.column])
        intercept -= value * float(centre[term.column])
        found.append(ColumnCoefficient(term.party, names[term.column], value))
    return tuple(found), intercept


def fills(length: float, radius: float | None) -> bool:
    """Return whether coefficients of this l1 norm fill a ball of this radius, as far as solvers tell; without a ball they fill nothing."""
    return radius is not None and bool(length >= radius * (1 - _FULL))


def _fills(design: LassoDesign, study: Study, iterate: Iterate) -> bool:
    """Return whether the iterate fills the ball, or one of the parties' balls."""
    groups = [""] if design.coupling is Coupling.BALL else [card.name for card in study.parties]
    lengths = [math.fsum(abs(x) for place, x in iterate.items() if group in {"", place.party}) for group in groups]
    return design.feasible and fills(max(lengths), design.radius(study))


def _middle(plan: Plan[LassoDesign]) -> Generator[Any, Any, float]:
    """The noisy mean of the response, which one party releases for all."""
    place = Slot(plan.study.parties[0].name, 0)
    (reply,) = yield from everybody([Ask(place.party, MEAN, Nothing())])
    mechanism, steps = _mechanism(plan, place, MEAN), MEAN_GRID * plan.study.parties[0].rows
    (part,) = shrunk(mechanism.decode(reply.mean.values.numpy()) / steps, float(mechanism.deviations[0]) / steps)
    return float(part) * plan.design.parameters.response_bound


def _refit(
    plan: Plan[LassoDesign], released: dict[Slot, ReleasedColumn], new: tuple[ReleasedColumn, ...], middle: float
) -> Generator[Any, Any, tuple[Iterate, Iterate]]:
    """Ask for the moments of every released column, one column of every party at a time; their coefficients and means."""
    study, design = plan.study, plan.design
    order = tuple(released)
    waiting = {card.name: [i for i, place in enumerate(order) if place.party == card.name] for card in study.parties}
    values = np.zeros((len(order), design.slots + LEADING))
    for k in range(max(map(len, waiting.values()))):
        turn = [own[k] for own in waiting.values() if k < len(own)]
        unseen = new if k == 0 else ()
        asks = [Ask(order[i].party, REFIT, RefitRequest(order[i].column, order, unseen), k) for i in turn]
        for i, reply in zip(turn, (yield from everybody(asks)), strict=True):
            values[i] = _mechanism(plan, order[i], REFIT).decode(reply.moments.values.numpy())
    columns = np.column_stack([column.values.numpy() for column in released.values()])
    moments = ColumnMoments.of(design, columns, values, float(_mechanism(plan, order[0], REFIT).deviations.max()), middle)
    blocks = [i for place in order for i, card in enumerate(study.parties) if card.name == place.party]
    coupled = None if design.coupling is Coupling.BALL else blocks
    fit = quadratic_in_balls(moments.gram(), moments.correlations(), design.radius(study), coupled).coefficients
    means = {place: float(mean) for place, mean in zip(order, moments.means, strict=True)}
    return {place: float(value) for place, value in zip(order, fit, strict=True) if value}, means


def stepped(iterate: Iterate, vertices: Sequence[tuple[str, int, float]], gamma: float, radius: float) -> Iterate:
    """Return X <- (1 - gamma) x + gamma radius sum of signed vertices. One vertex stays in the ball; one per block stays in the product."""
    moved = {place: (1 - gamma) * value for place, value in iterate.items()}
    for party, column, sign in vertices:
        place = Slot(party, column)
        moved[place] = moved.get(place, 0.0) + gamma * radius * sign
    return {place: value for place, value in moved.items() if value}


def _share(design: LassoDesign, t: int, claims: tuple[Bid, ...], claim: Bid, counts: dict[str, int]) -> Ask:
    index = counts[claim.party]
    counts[claim.party] += 1
    shown = claims if design.competes else (claim,)
    return Ask(claim.party, COLUMN, ColumnRequest(t, shown), index)


def _mechanism(plan: Plan, place: Slot, name: str) -> Any:  # noqa: ANN401 - a mechanism
    return plan.release(place.party, name).mechanism


def _column(plan: Plan, place: Slot, reply: Any) -> ReleasedColumn:  # noqa: ANN401 - a ColumnReply
    mechanism, values = _mechanism(plan, place, COLUMN), reply.column.values
    if isinstance(mechanism, GaussianRelease):  # others are numbers as they stand
        values = Array.of(mechanism.decode(values.numpy()) / grids(mechanism.size)[0])
    return ReleasedColumn(place.party, place.column, values)


def render(result: LassoResult) -> str:
    """Return the coefficients as a table."""
    lines = [f"{'party':<16}{'column':<24}{'coefficient':>14}"]
    lines += [f"{c.party:<16}{c.name:<24}{c.value:>14.6g}" for c in result.coefficients]
    lines.append(f"{'(constant)':<40}{result.intercept:>14.6g}")
    if result.path:
        lines.append(f"{len(result.path)} rounds, {len(result.shared)} columns released")
    elif result.moments is not None:
        lines.append("from the joint moments of all parties' columns")
    else:
        lines.append("from moments of standardised columns" if result.coefficients else "no more than the response's mean")
    if result.binds:
        lines.append(f"Note: {BINDS}.")
    lines += () if result.drawn is None else words(result.drawn)
    return "\n".join(lines)


def panels(plan: Plan, result: LassoResult) -> tuple[Panel, ...]:  # noqa: ARG001 - as every model
    """Return the coefficients that are not zero."""
    chosen = result.coefficients
    if not chosen:
        return ()
    return (Panel("coefficients", tuple(f"{c.party}: {c.name}" for c in chosen), tuple(c.value for c in chosen)),)


# --- Lines -----------------------------------------------------------------------------------------------------------------
# The lasso's coefficients, line by line; columns that are not listed have the coefficient 0.


def terms(plan: Plan, result: LassoResult) -> tuple[ResultTerm, ...]:  # noqa: ARG001 - as every model's
    """Return coefficients in the data's own units, each with the party that holds the column; the constant is of the centred response."""
    found = tuple(ResultTerm(c.name, c.value, group=c.party) for c in result.coefficients)
    return (*found, ResultTerm("(intercept)", result.intercept))
