"""The group in which ids are masked: ristretto255, of prime order l, behind a few functions, so that another library can take its place.

Points and scalars are 32 bytes. The library's own check calls the identity a valid point and its addition takes what is no point at all:
so everything that comes from outside goes through :func:`points`, which knows both.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import ProtocolError, UsageError
from unpooled.protocol.messages import PSEUDONYM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

#: Bytes of a point, and of a scalar.
SIZE = 32
_IDENTITY = bytes(SIZE)


@cache
def _library() -> Any:  # noqa: ANN401 - rbcl ships no types
    try:
        import rbcl
    except ModuleNotFoundError:
        raise UsageError("record linkage needs the psi extra: pip install 'unpooled[psi]'") from None
    return rbcl


def ready() -> None:
    """Refuse now where the library is missing: before anything is written down."""
    _library()


def hashed(content: bytes) -> bytes:
    """Return a point of which nobody knows a logarithm: SHA-512, then the map of RFC 9496, section 4.3.4 (never g^H(id), which can be tried out)."""
    point: bytes = _library().crypto_core_ristretto255_from_hash(hashlib.sha512(content).digest())
    return point


def scalar(secret: bytes) -> bytes:
    """Return a scalar from a secret: 64 bytes reduced modulo l, as good as uniform; zero is refused."""
    reduced: bytes = _library().crypto_core_ristretto255_scalar_reduce(hashlib.sha512(secret).digest())
    if reduced == _IDENTITY:  # never met: its probability is 2^-252
        raise ProtocolError("a secret that gives the scalar zero: raise `run` in the study")
    return reduced


def quotient(one: bytes, other: bytes) -> bytes:
    """Return the quotient of two scalars modulo l."""
    library = _library()
    found: bytes = library.crypto_core_ristretto255_scalar_mul(one, library.crypto_core_ristretto255_scalar_invert(other))
    return found


def inverse(one: bytes) -> bytes:
    """Return the inverse of a scalar modulo l."""
    found: bytes = _library().crypto_core_ristretto255_scalar_invert(one)
    return found


def times(factor: bytes, factors: Iterable[bytes]) -> list[bytes]:
    """Return every point multiplied by this scalar."""
    multiply = _library().crypto_scalarmult_ristretto255
    try:
        return [multiply(factor, point) for point in factors]
    except (
        RuntimeError,
        TypeError,
        ValueError,
    ):  # the library refuses the identity, what is no point, and the scalars 0 and l
        raise _refused("a point that is none, or the identity") from None


def summed(lists: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Return the sums of the points that stand in the same places of several lists, all checked before."""
    add = _library().crypto_core_ristretto255_add
    total, *others = lists
    for other in others:
        total = [add(one, two) for one, two in zip(total, other, strict=True)]
    if _IDENTITY in total:
        raise _refused("points that cancel each other")
    return list(total)


def points(blob: bytes, count: int) -> list[bytes]:
    """Return the ``count`` points of a list from outside; refuse another number, the identity, non-canonical points, and repeats."""
    if len(blob) != count * SIZE:
        raise _refused("a list of another length than the card and the passes before say")
    found = [blob[k : k + SIZE] for k in range(0, len(blob), SIZE)]
    valid = _library().crypto_core_ristretto255_is_valid_point
    if _IDENTITY in found or not all(map(valid, found)):
        raise _refused("a point that is none, or the identity")
    if len(set(found)) != count:
        raise _refused("a point that stands there twice")
    return found


def _refused(what: str) -> ProtocolError:
    return ProtocolError(f"a masked list holds {what}: no party that runs this study sends it, so nothing is answered")


# --- Masking ---------------------------------------------------------------------------------------------------------------
# One party's side of the arithmetic of one pass (SPEC of the protocol: docs/linkage.md): ids to points, masks, and what the masks leave.
#
# A party has two scalars for every pass. With ``a`` it multiplies everybody's lists, with ``r`` it blinds its own on their way. What remains
# of its own list is T(x) = (product of all a) h(x), or with four and more parties T(x) = (sum of all a) h(x): equal ids have equal T
# at every party, and nobody but the owner of a list sees its T.

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
        a, r = (scalar(secret(purpose + name)) for purpose in (b"link a ", b"link r "))
        return cls(_joined(_POINT, plan.encode(), name), a, r, secret(b"link order of my list " + name))

    def hashes(self, ids: Sequence[bytes]) -> list[bytes]:
        """h(x) of every id."""
        return [hashed(_joined(self.domain, one)) for one in ids]

    def blinded(self, ids: Sequence[bytes]) -> tuple[list[bytes], NDArray[np.int64]]:
        """Return the points r h(x) in a secret order, and for every place the row that stands there."""
        found = times(self.r, self.hashes(ids))
        places = sorted(range(len(found)), key=lambda row: hmac.digest(self.order, found[row], "sha256"))
        return [found[row] for row in places], np.array(places, dtype=np.int64)

    def pass_on(self, points: Sequence[bytes]) -> list[bytes]:
        """Somebody else's list, masked by this party too, in the same order."""
        return times(self.a, points)

    def finish_ring(self, points: Sequence[bytes]) -> list[bytes]:
        """T of this party's own list, which all others have multiplied: times a / r."""
        return times(quotient(self.a, self.r), points)

    def finish_sum(self, own: Sequence[bytes], lists: Sequence[Sequence[bytes]]) -> list[bytes]:
        """T of this party's own list from r h(x) and what each of the others made of it: (a / r) r h(x) + (1 / r) (their sum)."""
        others = times(inverse(self.r), summed(lists))
        return summed([times(quotient(self.a, self.r), own), others])


def pseudonym(plan: str, key: str, point: bytes) -> bytes:
    """Return the pseudonym of a row that the coordinator sees: 16 bytes of a hash of T."""
    return hashlib.sha256(_joined(_ROW, plan.encode(), key.encode(), point)).digest()[:PSEUDONYM]


def in_order(secret: bytes, points: Sequence[bytes]) -> list[int]:
    """Return the places of points in the order that all parties share, and that the coordinator cannot work out."""
    return sorted(range(len(points)), key=lambda place: hmac.digest(secret, points[place], "sha256"))


def map_digest(plan: str, secret: bytes, points: Sequence[bytes]) -> str:
    """Return the name of a row map: equal where the same people stand in the same order; without the secret nobody can try out a list."""
    return hmac.new(secret, _joined(_MAP, plan.encode(), str(len(points)).encode(), *points), "sha256").hexdigest()
