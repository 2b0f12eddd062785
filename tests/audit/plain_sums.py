"""A model of three lines to break on purpose: every party's sums of its clipped columns, in hundredths."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.bounds import Column
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach, Vector
from unpooled.privacy.plan import Card, Plan, Release, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Split, Unit
from unpooled.protocol.conversation import everybody
from unpooled.protocol.messages import Ask, Nothing, Released
from unpooled.protocol.registry import Model, ResultReading, Step

#: Asymmetric ranges.
COLUMNS = tuple(Column(f"x{k}", *ends) for k, ends in enumerate([(-1.0, 3.0), (-20.0, 24.0), (0.0, 2.0), (-5.0, 1.0)] * 4))
ROWS = 20


class Sums(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sums: Released


def tables(seed: int = 0) -> dict[str, Table]:
    rng = np.random.default_rng(seed)
    return {name: Table({c.name: rng.uniform(*c.range, ROWS) for c in COLUMNS}) for name in ("a", "b")}


def study(**changes: Any) -> Study:
    cards = tuple(Card(name, ROWS, COLUMNS) for name in ("a", "b"))
    return msgspec.structs.replace(Study("sums", cards, 1.0, 1e-5, derived=()), **changes)


def sums(context: Any) -> np.ndarray:
    """The statistic, of any context: also of a broken one."""
    return np.array([np.rint(100 * np.clip(context.table[c.name], *c.range)).sum() for c in COLUMNS], dtype=np.int64)


def answer(context: Any, _request: Nothing) -> Sums:
    return Sums(context.release("sums", Vector(sums(context))))


def moves(column: Column, adjacency: Adjacency) -> float:
    low, high = column.range
    return 100 * (high - low if adjacency is Adjacency.REPLACE else max(abs(low), abs(high)))


def reaches(study: Study, far: Callable[..., float] = moves) -> dict[Unit, Reach]:
    each = [far(column, Adjacency(study.adjacency)) for column in COLUMNS]
    return {Unit.RECORD: Reach(math.hypot(*each), len(each)), Unit.ATTRIBUTE: Reach(max(each), 1)}


def compiled(study: Study, reach: Callable[[Study], dict[Unit, Reach]] = reaches, count: int = 1) -> Plan:
    found = reach(study)
    budget = budget_mu(study.epsilon, study.delta) / math.sqrt(count)
    mechanism = GaussianRelease.calibrated([Block(len(COLUMNS), 1.0)], found, Unit(study.unit), budget)
    releases = tuple(Release("sums", card.name, "sums", mechanism, count=count) for card in study.parties)
    return Plan(study, Split.HORIZONTAL, releases, design=None)


def model(
    reach: Callable[[Study], dict[Unit, Reach]] = reaches,
    said: Callable[..., Any] = answer,
    reply: type = Sums,
    rounds: int = 1,
) -> Model:
    def coordinate(plan: Plan) -> Any:
        for k in range(rounds):
            yield from everybody([Ask(card.name, "sums", Nothing(), index=k) for card in plan.study.parties])
        return 0

    steps = (Step("sums", Nothing, reply, said),)
    return Model("sums", lambda study: compiled(study, reach, rounds), steps, coordinate, ResultReading(render=str))
