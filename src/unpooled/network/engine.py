"""The two classes that the engine starts in a job, one at each party and one at the server: the only use of ``nvflare.collab``.

Jobs name these installed classes and carry no code. What a job may say is bounded by the arguments below: a party takes none, so its
data, ledger and policy come from its own configuration folder and from nowhere else.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from nvflare.collab import CollabCallError, collab

from unpooled.errors import ProtocolError
from unpooled.network.kits import RESULTS, STUDIES, coordinator_identity
from unpooled.network.service import RequestDesk, Silence, coordinate, propose
from unpooled.network.signing import Proposal
from unpooled.privacy.plan import Study


class PartyService:
    """A party's end: bytes to bytes."""

    @collab.init
    def open(self) -> None:
        """Find the party's own configuration; it is read at the first request, so that its errors reach the coordinator."""
        self._desk = RequestDesk(Path(collab.workspace.get_site_config_dir()) / "party.toml", collab.site_name)

    @collab.publish
    def step(self, request: bytes) -> bytes:
        """Answer one signed request."""
        if collab.caller != "server":
            raise ProtocolError("only the coordinator may ask")
        return self._desk.answer(request)

    @collab.final
    def close(self) -> None:
        """Close the ledger at the end of the job."""
        self._desk.close()


class CoordinatorService:
    """The coordinator's end: runs one study, or lays it before the parties. Both are given as hexadecimal msgpack, and one of them is empty."""

    def __init__(self, study: str, patience: float, resume: bool, proposal: str = "") -> None:
        self._study = msgspec.msgpack.decode(bytes.fromhex(study), type=Study, strict=True) if study else None
        self._proposal = msgspec.msgpack.decode(bytes.fromhex(proposal), type=Proposal, strict=True) if proposal else None
        self._patience, self._resume = patience, resume

    @collab.main
    def run(self) -> None:
        """Run the study to its end, or propose it; results, or the reason why there are none, are files of the job."""
        workspace, parties = collab.workspace, {proxy.name: proxy for proxy in collab.clients}

        def call(party: str, frame: bytes, patience: float) -> bytes:
            if party not in parties:
                raise Silence("it was not connected when the study started")
            try:
                reply: bytes = parties[party](timeout=patience).step(frame)
            except CollabCallError as error:
                # The engine says "timed out" also of a process that died; its text may hold more than it should.
                msg = f"no answer ({error.cause_type}): it is away, was stopped, or needed more than {patience:g} s"
                raise Silence(msg) from None
            return reply

        out = Path(workspace.get_run_dir(collab.fl_ctx.get_job_id())) / RESULTS
        home = Path(workspace.get_root_dir())
        identity = coordinator_identity(home)
        if self._proposal is not None:
            propose(self._proposal, identity, call, out, patience=self._patience)
        elif self._study is not None:
            coordinate(self._study, identity, call, home / STUDIES, out, patience=self._patience, resume=self._resume)
