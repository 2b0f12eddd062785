"""Studies that an analyst lays before the parties of a network: signed by the coordinator, kept in each party's inbox, without any effect.

A proposal opens no plan, reads no row and touches no ledger. A party's people find it in the inbox (``unpooled party console``), and it is what
they decide there that counts.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import DataError, PlanMismatch, PolicyRefusal
from unpooled.network.signing import check_request, read_request
from unpooled.privacy.plan import Study
from unpooled.protocol.messages import Envelope, open_body, open_envelope

if TYPE_CHECKING:
    from pathlib import Path

    from unpooled.network.signing import Request

#: The step of an envelope that proposes a study, and the ending of a file that holds one. No step of a model has this name.
PROPOSE = "propose a study"
ENDING = ".proposal"
#: The folder of proposals, next to the party file.
INBOX = "inbox"
#: An inbox takes no more proposals than this, none larger than this many bytes, and no purpose of more letters.
MOST, LARGEST, LONGEST = 100, 20_000_000, 500


class Proposal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The public text of a study, its purpose, and the name of the person or kit that proposes it."""

    study: Study
    purpose: str = ""
    by: str = ""

    def __post_init__(self) -> None:
        if not all(said.isprintable() and len(said) <= LONGEST for said in (self.purpose, self.by)):
            raise ValueError("purpose and name are one printable line each")


class ProposalReceived(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a proposal: it is in the inbox. It is the same for every party, and says nothing about what anybody decides."""


@dataclass(frozen=True)
class Laid:
    """A proposal as it lies in an inbox."""

    proposal: Proposal
    #: The hash of the plan, as the coordinator says; the party compiles the study itself before it shows it.
    claimed: str


def lay(inbox: Path, party: str, key: str, request: Request, frame: bytes) -> None:
    """Write a proposal for this party into its inbox; refused where it is not the pinned coordinator's, or the inbox is full."""
    if len(frame) > LARGEST:
        msg = f"a proposal of {len(frame)} bytes: the inbox of party {party!r} takes at most {LARGEST}"
        raise PolicyRefusal(msg)
    _opened(request, open_envelope(request.body), party, key)
    inbox.mkdir(mode=0o700, exist_ok=True)
    file = inbox / f"{sha256(request.body).hexdigest()[:32]}{ENDING}"
    if file.exists():
        return
    if len(list(inbox.glob(f"*{ENDING}"))) >= MOST:
        msg = f"the inbox of party {party!r} holds {MOST} proposals: its people must remove some first"
        raise PolicyRefusal(msg)
    temporary = file.with_name(f"{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
            out.write(frame)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def read(file: Path, party: str, key: str) -> Laid:
    """Return a proposal from an inbox, its signature checked again: a file that anybody altered is refused."""
    if not file.is_file() or file.stat().st_size > LARGEST:  # a pipe or a device never ends
        msg = f"{file.name} is no file, or larger than any proposal: remove it"
        raise DataError(msg)
    request = read_request(file.read_bytes())
    envelope = open_envelope(request.body)
    return Laid(_opened(request, envelope, party, key), envelope.plan)


def _opened(request: Request, envelope: Envelope, party: str, key: str) -> Proposal:
    """Return what is proposed, after the coordinator whom the study pins signed it for this very party."""
    if envelope.step != PROPOSE:
        raise PlanMismatch("this is a message of a study that runs, and no proposal")
    proposal = open_body(envelope, Proposal)
    study = proposal.study
    if not study.coordinator:
        raise PlanMismatch("the study names no coordinator key, so nobody knows who proposes it: set [study] coordinator")
    check_request(request, study.coordinator, party)
    if study.member(party).key != key:
        msg = f"the study's card of party {party!r} does not carry this party's key: use the card that it published"
        raise PlanMismatch(msg)
    return proposal
