"""Defects that a review found and that later issues mend: each test states what is wanted and fails today, strictly, for the stated reason.

When a mend makes one pass, the strict mark fails the suite: take the mark off and move the test to its subject's file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from unpooled.errors import ProtocolError
from unpooled.models import load
from unpooled.models.describe.messages import SumsReply
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.messages import Array, Nothing, Released, encode
from unpooled.protocol.roles import Model, OpenRequest, Party, Step


def known(finding: str, what: str, *, raises: type[BaseException] | tuple[type[BaseException], ...] = AssertionError) -> Any:
    """A strict expected failure that fails for this reason and no other."""
    return pytest.mark.xfail(strict=True, raises=raises, reason=f"{finding}: {what}")


DID_NOT_RAISE = pytest.fail.Exception

# --- C9 --------------------------------------------------------------------------------------------------------------------------


@known("C9", "Model.split is read nowhere: a plan has a split of its own")
def test_a_model_has_no_field_that_nobody_reads() -> None:
    assert "split" not in Model.__dataclass_fields__


# --- G8: a step can send more than its releases ------------------------------------------------------------------------------


def _sent(forge: Callable[[Any], Any]) -> bytes:
    """What a party answers in a step that debits its release and then tries to send something else."""
    columns, table = (Column("age", 0.0, 100.0),), Table({"age": np.arange(20.0)})
    model = load("describe")
    study = Study("describe", (Card("north", 20, columns),), 1.0, 1e-5, derived=())

    def smuggling(context: Any, request: Any) -> Any:
        model.steps[0].answer(context, request)
        return SumsReply(forge(context))

    broken = replace(model, steps=(Step("sums", Nothing, SumsReply, smuggling),))
    ledger = Ledger.in_memory()
    party = Party(
        "north", table, study.parties[0], ledger, KeySource(ledger.root_key), Policy.in_process(), lambda _: broken
    )
    plan = broken.compile(study)
    party.answer(encode(plan.hash, "open", 0, OpenRequest(study)))
    return party.answer(encode(plan.hash, "sums", 0, Nothing()))


def _through_the_list(context: Any) -> Released:
    raw = Released("sums", 0, Array.of(context.table["age"].astype(np.int64)))
    context.issued.append(raw)
    return raw


def _through_the_party(context: Any) -> Released:
    other = type(context)(context.party, context.plan, context.step, context.index)
    raw = Released("sums", 0, Array.of(context.table["age"].astype(np.int64)))
    other.issued.append(raw)
    context.issued = other.issued
    return raw


@known("G8", "context.issued is public and context.party holds everything", raises=DID_NOT_RAISE)
@pytest.mark.parametrize("forge", [_through_the_list, _through_the_party])
def test_a_step_cannot_send_what_the_context_did_not_release(forge: Callable[[Any], Any]) -> None:
    with pytest.raises((ProtocolError, AttributeError)):
        _sent(forge)
