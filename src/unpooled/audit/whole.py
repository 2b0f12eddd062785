"""The whole audit of a study on made-up data: neighbours, cuts, other orders, every byte, and the noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.audit.account import audit_account
from unpooled.audit.made_up import made_up
from unpooled.audit.presence import audit_noise
from unpooled.audit.replay import replay
from unpooled.audit.transcripts import audit_transcript
from unpooled.errors import UsageError
from unpooled.models import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from unpooled.audit.replay import Report
    from unpooled.privacy.plan import Study


def audit_study(asked: Study, rows: int = 40, rounds: int = 10, say: Callable[[str], None] = lambda _: None) -> Report:
    """Return the findings on a study; refused where it releases nothing. ``say`` hears in words what is done next."""
    model = load(asked.row)
    if not model.compile(asked).releases:
        msg = "this study releases nothing with noise, so there is no claim to attack: `unpooled plan` says who learns what without noise"
        raise UsageError(msg)
    fitted, tables = made_up(model, asked, rows)
    say(f"replaying model {asked.model!r} on neighbouring data sets")
    report = replay(model, fitted, tables, registry=load, rounds=rounds)
    say("cutting it after every message, and asking in other orders")
    report.violations += audit_account(model, fitted, tables, registry=load)
    say("looking at every byte that leaves a party")
    _, others = made_up(model, asked, rows, seed=1)
    report.violations += audit_transcript(model, fitted, tables, others, registry=load)
    say("holding its noise against the planned laws, under many keys")
    report.violations += audit_noise(model, fitted, tables, registry=load)
    return report
