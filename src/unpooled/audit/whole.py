"""The audit of a study as a whole: everything that needs no attacks, in one call, for the command line, the console and the dossier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.audit.account import audit_account
from unpooled.audit.made_up import made_up
from unpooled.audit.oracle import must_release
from unpooled.audit.orders import audit_orders
from unpooled.audit.pairs import read_file, write_file
from unpooled.audit.presence import audit_noise
from unpooled.audit.replay import replay, steady
from unpooled.audit.sealed import audit_sealed
from unpooled.audit.transcripts import audit_transcript
from unpooled.models import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from unpooled.audit.replay import Report
    from unpooled.privacy.plan import Study


def audit_study(
    asked: Study, say: Callable[[str], None], *, rows: int = 40, rounds: int = 10, pairs: Path | None = None
) -> Report:
    """Return what was found when the study was replayed on made-up data of at most ``rows`` rows a party; ``say`` is given each thing it does.

    Needs no data. ``rounds`` is the number of random neighbours, and of steps of the search for worse ones. ``pairs`` is a
    file of pairs that earlier audits kept for a study of this plan: they are replayed first, and farther ones are written into it.
    """
    model = load(asked.row)
    must_release(model, asked)
    fitted, tables = made_up(model, asked, rows)
    say(f"replaying model {asked.model!r} on neighbouring data sets")
    plan = model.compile(fitted).hash
    kept = None if pairs is None else read_file(pairs, plan)
    report = replay(model, fitted, tables, registry=load, rounds=rounds, pairs=kept)
    if pairs is not None:
        write_file(pairs, plan, steady(model, fitted, tables, report.pairs, registry=load, keys=2))
    say("cutting it after every message, and asking in other orders")
    report.violations += audit_account(model, fitted, tables, registry=load)
    say("asking once more than planned, out of order, and over data that changed")
    report.violations += audit_orders(model, fitted, tables, registry=load)
    say("looking at every byte that leaves a party")
    report.violations += audit_sealed(model, fitted, tables, registry=load)
    _, others = made_up(model, asked, rows, seed=1)
    report.violations += audit_transcript(model, fitted, tables, others, registry=load)
    say("holding its noise against the planned laws, under many keys")
    report.violations += audit_noise(model, fitted, tables, registry=load)
    return report
