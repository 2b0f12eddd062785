"""A test-only model of hundreds of rounds and of large replies: it measures the network, not a statistic.

Every round each party answers with a public number; at the end the first one sends as many bytes as the study asks for.
"""

from __future__ import annotations

import math
import sys
import types

import msgspec
import numpy as np

import unpooled.models
from unpooled.errors import UsageError
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach, Vector
from unpooled.privacy.plan import Plan, Release, Study, check_parameters
from unpooled.privacy.unit import ROWWISE, Split, Unit
from unpooled.protocol.context import Context
from unpooled.protocol.messages import Ask, Dropped, Nothing, Released
from unpooled.protocol.registry import Conversation, Model, ResultReading, Step

NAME = "contract"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rounds: int = 300
    size: int = 0


class Round(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    total: int


class Counted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rows: Released


class Bulk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    filler: Released


def filler(size: int) -> bytes:
    """Bytes that do not compress, made quickly."""
    part = np.random.default_rng(0).bytes(1 << 20)
    return (part * (size // len(part) + 1))[:size]


def _count(context: Context, request: Round) -> Counted:
    return Counted(context.release("rows", Vector(np.array([context.card.rows, request.total % 2], dtype=np.int64))))


def _bulk(context: Context, _: Nothing) -> Bulk:
    size = context.planned("bulk").size
    return Bulk(context.release("bulk", Vector(np.frombuffer(filler(8 * size), dtype=np.int64) >> 16)))


COUNT = Step("count", Round, Counted, _count)
BULK = Step("bulk", Nothing, Bulk, _bulk)


def _compile(study: Study) -> Plan:
    rounds = check_parameters(study, Parameters).rounds
    mu = budget_mu(study.epsilon, study.delta) / math.sqrt(rounds)
    reach = dict.fromkeys(ROWWISE, Reach(2.0, 2))
    mechanism = GaussianRelease.calibrated([Block(2, 1)], reach, Unit(study.unit), mu)
    releases = [Release("rows", card.name, COUNT.name, mechanism, rounds) for card in study.parties]
    if size := check_parameters(study, Parameters).size:
        # Numbers that say nothing of anybody: it is their bytes that travel.
        bulk = GaussianRelease((Block(-(-size // 8), 1.0),), tuple(dict.fromkeys(ROWWISE, Reach(1e-9, 1)).items()), 1.0)
        releases.append(Release("bulk", study.parties[0].name, BULK.name, bulk))
    return Plan(study, Split.HORIZONTAL, tuple(releases))


def _coordinate(plan: Plan) -> Conversation:
    parameters, names, total = check_parameters(plan.study, Parameters), [card.name for card in plan.study.parties], 0
    for index in range(parameters.rounds):
        replies = yield [Ask(name, COUNT.name, Round(total), index) for name in names]
        total += sum(int(reply.rows.values.numpy()[0]) for reply in _complete(replies))
    sizes = []
    if parameters.size:
        replies = yield [Ask(names[0], BULK.name, Nothing())]
        sizes = [len(reply.filler.values.data) for reply in _complete(replies)]
    return [total, *sizes]


def _complete(replies: list) -> list:
    for reply in replies:
        if isinstance(reply, Dropped):
            msg = f"party {reply.party!r}: {reply.reason}"
            raise UsageError(msg)
    return replies


MODEL = Model(NAME, _compile, (COUNT, BULK), _coordinate, ResultReading(render=str))


def install() -> None:
    """Make it known in this process as any other model."""
    module = types.ModuleType(f"unpooled.models.{NAME}")
    module.MODEL = MODEL
    sys.modules[module.__name__] = module
    unpooled.models.REGISTRY[NAME] = module.__name__
