"""Pure generator: Frank-Wolfe over parties. Each round is a pick of every party and at most one new column of the winner (or of all)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.models.lasso.messages import Claim, PickRequest, SharedColumn, ShareRequest, Term
from unpooled.models.lasso.plan import COLUMN, GRID, PICK, setup
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.protocol.messages import Array, Ask
from unpooled.protocol.roles import everybody

if TYPE_CHECKING:
    from unpooled.models.lasso.plan import Setup
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.roles import Conversation

#: (party, coded column)
Place = tuple[str, int]


class Step(msgspec.Struct, frozen=True):
    """One round: which signed columns were stepped to, and by how much."""

    gamma: float
    vertices: tuple[tuple[str, int, float], ...]


class Result(msgspec.Struct, frozen=True):
    """The last iterate on coded columns, and the path that led to it."""

    terms: tuple[Term, ...]
    path: tuple[Step, ...]
    #: Columns that were released, in order.
    shared: tuple[tuple[str, int], ...]


def coordinate(plan: Plan) -> Conversation:
    """T rounds."""
    study, asked = plan.study, setup(plan.study)
    cards = study.parties
    iterate: dict[Place, float] = {}
    shared: list[Place] = []
    counts = dict.fromkeys((card.name for card in cards), 0)
    new: tuple[SharedColumn, ...] = ()
    path: list[Step] = []
    for t in range(asked.parameters.rounds):
        terms = tuple(Term(party, column, value) for (party, column), value in iterate.items())
        picks = yield from everybody([Ask(card.name, PICK, PickRequest(terms, new), t) for card in cards])
        claims = tuple(
            Claim(card.name, reply.choice, reply.score, reply.signed) for card, reply in zip(cards, picks, strict=True)
        )
        moving = [max(claims, key=lambda claim: claim.value)] if asked.competes else list(claims)
        vertices = [(c.party, *asked.picked(study, study.card(c.party), t, c.picked)) for c in moving]
        gamma = asked.step(study, t)
        iterate = stepped(iterate, vertices, gamma, asked.radius(study))
        path.append(Step(gamma, tuple(vertices)))
        fresh = [(c, (p, j)) for c, (p, j, _) in zip(moving, vertices, strict=True) if (p, j) not in shared]
        if t + 1 == asked.parameters.rounds:
            break  # no later pick would read it
        replies = yield from everybody([_share(asked, t, claims, claim, counts) for claim, _ in fresh])
        new = tuple(_column(plan, place, reply) for (_, place), reply in zip(fresh, replies, strict=True))
        shared += [place for _, place in fresh]
    terms = tuple(Term(party, column, value) for (party, column), value in sorted(iterate.items()))
    return Result(terms, tuple(path), tuple(shared))


def stepped(
    iterate: dict[Place, float], vertices: list[tuple[str, int, float]], gamma: float, radius: float
) -> dict[Place, float]:
    """X <- (1 - gamma) x + gamma radius sum of signed vertices. One vertex stays in the ball; one per block stays in the product."""
    moved = {place: (1 - gamma) * value for place, value in iterate.items()}
    for party, column, sign in vertices:
        moved[party, column] = moved.get((party, column), 0.0) + gamma * radius * sign
    return {place: value for place, value in moved.items() if value}


def _share(asked: Setup, t: int, claims: tuple[Claim, ...], claim: Claim, counts: dict[str, int]) -> Ask:
    index = counts[claim.party]
    counts[claim.party] += 1
    shown = claims if asked.competes else (claim,)
    return Ask(claim.party, COLUMN, ShareRequest(t, shown), index)


def _column(plan: Plan, place: Place, reply: Any) -> SharedColumn:  # noqa: ANN401 - a ColumnReply
    mechanism = plan.release(place[0], COLUMN).mechanism
    if not isinstance(mechanism, GaussianRelease):  # the published form sends real numbers
        return SharedColumn(*place, reply.column.values)
    return SharedColumn(*place, Array.of(mechanism.decode(reply.column.values.numpy()) / GRID))


def render(result: Result) -> str:
    """The coefficients of the coded columns as a table."""
    lines = [f"{'party':<16}{'coded column':>14}{'coefficient':>14}"]
    lines += [f"{term.party:<16}{term.column:>14}{term.value:>14.6g}" for term in result.terms]
    lines.append(f"{len(result.path)} rounds, {len(result.shared)} columns released")
    return "\n".join(lines)
