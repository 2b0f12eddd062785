"""One party's side of the arithmetic of one pass (SPEC of the protocol: docs/linkage.md): ids to points, masks, and what the masks leave.

A party has two scalars for every pass. With ``a`` it multiplies everybody's lists, with ``r`` it blinds its own on their way. What remains
of its own list is T(x) = (product of all a) h(x), or with four and more parties T(x) = (sum of all a) h(x): equal ids have equal T
at every party, and nobody but the owner of a list sees its T.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.linkage import group
from unpooled.protocol.messages import PSEUDONYM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_POINT, _ROW, _MAP = b"unpooled psi 1", b"unpooled psi row 1", b"unpooled psi map 1"


def _joined(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


@dataclass(frozen=True, slots=True)
class Mask:
    """The secrets of one party for one pass of one plan: the same again after a crash, unrelated to those of any other run."""

    #: What stands before every id: the plan (which says the run) and the name of the key.
    domain: bytes
    a: bytes
    r: bytes
    order: bytes

    @classmethod
    def of(cls, plan: str, run: int, key: str, secret: Callable[[bytes], bytes]) -> Mask:
        """Return a mask made from secrets that only the party's root key gives, by purpose."""
        name = _joined(str(run).encode(), key.encode())
        a, r = (group.scalar(secret(purpose + name)) for purpose in (b"link a ", b"link r "))
        return cls(_joined(_POINT, plan.encode(), name), a, r, secret(b"link order of my list " + name))

    def hashes(self, ids: Sequence[bytes]) -> list[bytes]:
        """h(x) of every id."""
        return [group.hashed(_joined(self.domain, one)) for one in ids]

    def blinded(self, ids: Sequence[bytes]) -> tuple[list[bytes], NDArray[np.int64]]:
        """Return the points r h(x) in a secret order, and for every place the row that stands there."""
        found = group.times(self.r, self.hashes(ids))
        places = sorted(range(len(found)), key=lambda row: hmac.digest(self.order, found[row], "sha256"))
        return [found[row] for row in places], np.array(places, dtype=np.int64)

    def pass_on(self, points: Sequence[bytes]) -> list[bytes]:
        """Somebody else's list, masked by this party too, in the same order."""
        return group.times(self.a, points)

    def finish_ring(self, points: Sequence[bytes]) -> list[bytes]:
        """T of this party's own list, which all others have multiplied: times a / r."""
        return group.times(group.quotient(self.a, self.r), points)

    def finish_sum(self, own: Sequence[bytes], lists: Sequence[Sequence[bytes]]) -> list[bytes]:
        """T of this party's own list from r h(x) and what each of the others made of it: (a / r) r h(x) + (1 / r) (their sum)."""
        others = group.times(group.inverse(self.r), group.summed(lists))
        return group.summed([group.times(group.quotient(self.a, self.r), own), others])


def pseudonym(plan: str, key: str, point: bytes) -> bytes:
    """Return the pseudonym of a row that the coordinator sees: 16 bytes of a hash of T."""
    return hashlib.sha256(_joined(_ROW, plan.encode(), key.encode(), point)).digest()[:PSEUDONYM]


def in_order(secret: bytes, points: Sequence[bytes]) -> list[int]:
    """Return the places of points in the order that all parties share, and that the coordinator cannot work out."""
    return sorted(range(len(points)), key=lambda place: hmac.digest(secret, points[place], "sha256"))


def map_digest(plan: str, secret: bytes, points: Sequence[bytes]) -> str:
    """Return the name of a row map: equal where the same people stand in the same order; without the secret nobody can try out a list."""
    return hmac.new(secret, _joined(_MAP, plan.encode(), str(len(points)).encode(), *points), "sha256").hexdigest()
