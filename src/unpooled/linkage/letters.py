"""Letters between members who link rows: what one seals for another and what each keeps in between, bound to the plan, the pass, the owner, and both ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from unpooled.errors import PlanMismatch, ProtocolError
from unpooled.linkage.messages import Hello, Relayed

if TYPE_CHECKING:
    from unpooled.protocol.context import Context
    from unpooled.protocol.messages import Sealed

_NONCE = bytes(12)  # each key encrypts one content: its digest is part of the key's derivation


class Letters:
    """One pass at one member: what it keeps, what it seals and what it opens. ``about`` is the protocol that letters belong to."""

    def __init__(self, context: Context, about: bytes, number: int = 0) -> None:
        self.context, self.number, self._protocol = context, number, about

    def keep(self, name: str, blob: bytes) -> None:
        """Keep bytes of this pass."""
        self.context.keep(f"{name}_{self.number}", np.frombuffer(blob, dtype=np.uint8))

    def kept(self, name: str) -> bytes:
        """Return bytes of this pass."""
        return self._kept(name, self.number).tobytes()

    def _kept(self, name: str, number: int) -> np.ndarray:
        if not self.context.has(f"{name}_{number}"):
            raise PlanMismatch("steps of linking rows come in their order: this one is asked for before what it rests on")
        return self.context.kept(f"{name}_{number}")

    def hellos(self) -> dict[str, Hello]:
        """Return the hellos of all members, by name, as they were when the own list left."""
        said = msgspec.msgpack.decode(self.kept("hellos"), type=tuple[Hello, ...])
        return {hello.party: hello for hello in said}

    def seal(self, to: str, what: str, owner: str, content: bytes) -> Sealed:
        """Seal bytes for another member."""
        words = self._about(what, owner, self.context.name, to)
        return self.context.seal(to, self.hellos()[to].agreement, content, *words)

    def open(self, relayed: Relayed, what: str, owner: str, sender: str) -> bytes:
        """Decrypt the list that another member sealed for this one, for exactly this purpose, owner and sender."""
        if (relayed.owner, relayed.sender) != (owner, sender):
            raise ProtocolError("a list of another owner or sender than this step takes")
        words = self._about(what, owner, sender, self.context.name)
        shared = self.context.shared_key(self.hellos()[sender].agreement, *words, relayed.salt)
        try:
            return AESGCM(shared).decrypt(_NONCE, relayed.ciphertext, None)
        except (InvalidTag, ValueError):
            raise ProtocolError("a sealed list was altered, or is of another party, pass or step") from None

    def _about(self, what: str, owner: str, sender: str, to: str) -> tuple[bytes, ...]:
        return self._protocol, what.encode(), str(self.number).encode(), owner.encode(), sender.encode(), to.encode()
