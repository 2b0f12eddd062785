"""The group in which ids are masked: ristretto255, of prime order l, behind a few functions, so that another library can take its place.

Points and scalars are 32 bytes. The library's own check calls the identity a valid point and its addition takes what is no point at all:
so everything that comes from outside goes through :func:`points`, which knows both.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any

from unpooled.errors import ProtocolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
