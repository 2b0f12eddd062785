"""A step cannot send what its context did not release, whichever way it tries (FINDINGS G8)."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as replace_struct

from unpooled.errors import ProtocolError
from unpooled.models import load
from unpooled.models.describe.rows import SumsReply
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import Vector
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.context import Context
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.messages import Array, Nothing, Released, encode
from unpooled.protocol.party import Party
from unpooled.protocol.registry import Step

STATISTIC = Vector(np.array([1, 2], dtype=np.int64))


def _sent(forge: Callable[[Any], Any]) -> bytes:
    """What a party answers in a step that sends what ``forge`` makes of its context."""
    columns, table = (Column("age", 0.0, 100.0),), Table({"age": np.arange(20.0)})
    model = load("describe")
    study = Study("describe", (Card("north", 20, columns),), 1.0, 1e-5, derived=())

    def smuggling(context: Any, request: Any) -> Any:
        del request
        return SumsReply(forge(context))

    broken = replace(model, steps=(Step("sums", Nothing, SumsReply, smuggling),))
    ledger = Ledger.in_memory()
    party = Party(
        "north", table, study.parties[0], ledger, KeySource(ledger.root_key), Policy.in_process(), lambda _: broken
    )
    plan = broken.compile(study)
    party.answer(encode(plan.hash, "open", 0, OpenRequest(study)))
    return party.answer(encode(plan.hash, "sums", 0, Nothing()))


def _raw(context: Any) -> Released:
    return Released("sums", 0, Array.of(context.table["age"].astype(np.int64)))


def _by_hand(context: Any) -> Released:
    return _raw(context)


def _through_the_list(context: Any) -> Released:
    context.issued.append(_raw(context))
    return context.issued[-1]


def _through_the_party(context: Any) -> Released:
    context.party.ledger.reserve([], None)
    return _raw(context)


def _through_another_context(context: Any) -> Released:
    twin = copy.copy(context)
    twin.release("sums", STATISTIC)
    return _raw(context)


def _through_what_it_was_given(context: Any) -> Released:
    """The values of a real release, changed behind its back."""
    released = context.release("sums", STATISTIC)
    return replace_struct(released, values=_raw(context).values)


def _through_closures(context: Any) -> Released:
    """Whatever hangs on the context, however deep: no list of what was handed out, no party, no ledger."""
    seen, waiting = set(), [context]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, (type, types.ModuleType, str, bytes, int, float, np.ndarray)):
            continue
        seen.add(id(thing))
        if isinstance(thing, (Party, Ledger)) or (isinstance(thing, list) and any(isinstance(x, Released) for x in thing)):
            thing.append(_raw(context))
            return _raw(context)
        names = [*getattr(type(thing), "__slots__", ()), *getattr(thing, "__dict__", {})]
        waiting += [getattr(thing, name, None) for name in names]
        waiting += [cell.cell_contents for cell in getattr(getattr(thing, "__func__", thing), "__closure__", None) or ()]
        waiting += [getattr(thing, name) for name in ("release", "keep", "sign") if hasattr(thing, name)]
        if isinstance(thing, (list, tuple, dict, set)):
            waiting += list(thing.values()) if isinstance(thing, dict) else list(thing)
    return _raw(context)


@pytest.mark.parametrize(
    "forge",
    [
        _by_hand,
        _through_the_list,
        _through_the_party,
        _through_another_context,
        _through_what_it_was_given,
        _through_closures,
    ],
)
def test_a_step_cannot_send_what_the_context_did_not_release(forge: Callable[[Any], Any]) -> None:
    with pytest.raises((ProtocolError, AttributeError)):
        _sent(forge)


@pytest.mark.guarantee
def test_a_context_is_worth_nothing_once_its_request_is_answered() -> None:
    kept: list[Context] = []

    def honest(context: Any) -> Released:
        kept.append(context)
        return context.release("sums", STATISTIC)

    assert _sent(honest)
    with pytest.raises(ProtocolError, match="was answered"):
        kept[0].release("sums", STATISTIC)
