r"""Additive fragments of integer vectors modulo 2^64, sealed end to end for the nodes that add them up (Algorithm 1 of Heikkila et al. 2017; Theorem B.2).

A vector is split into M fragments: M - 1 uniform ones and the one that makes them sum. A uniform fragment is sent as the 32-byte seed
of its key stream, so a party sends about 8 bytes per coordinate however many nodes there are. Fewer than M nodes together hold
uniform noise; what the M partial sums add up to is the exact total, even if parties are missing.

Numbers only: who may ask for what is decided in ``distributed.py`` and ``trusted.py``.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from unpooled.errors import ProtocolError
from unpooled.privacy.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Buffer = bytes | memoryview

#: From another one's agreement key and a purpose to the key that both of them know (:meth:`unpooled.protocol.context.Context.shared_key`).
SharedKey = Callable[..., bytes]

_SEED_BYTES = 32
#: The modulus of sums of joint moments.
PRIME = (1 << 61) - 1
#: Each key encrypts one message, so that its nonce may be constant.
_NONCE = bytes(12)
_TAG_BYTES = 16
#: Words expanded at a time.
_BLOCK = 1 << 15


def split(vector: NDArray[np.int64], nodes: int, secret: bytes, *, prime: bool = False) -> list[Buffer]:
    """Return the fragments of a vector: seeds for all nodes but the last, which gets what is left.

    ``secret`` belongs to this vector alone, so that a repeated request is answered with equal bytes. ``prime``: the sum is modulo 2^61 - 1.
    """
    seeds = [hmac.digest(secret, b"seed %d" % k, "sha256") for k in range(nodes - 1)]
    if prime:
        from unpooled.kernels import field
        from unpooled.privacy.field_words import uniform_words

        left = field.encode(vector)
        for seed in seeds:
            left = field.subtract(left, uniform_words(seed, left.size))
        return [*seeds, left.astype("<u8").data.cast("B")]
    rest = vector.astype("<u8")  # two's complement: modulo 2^64
    for seed in seeds:
        for at, words in _expanded(seed, rest.size):
            rest[at : at + words.size] -= words
    return [*seeds, rest.data.cast("B")]


def add_fragment(total: Words, fragment: Buffer, position: int, nodes: int, *, prime: bool = False) -> None:
    """Add the fragment that the node at this position received to its partial sum, modulo 2^64 or 2^61 - 1 (``prime``)."""
    if position < nodes - 1:
        if len(fragment) != _SEED_BYTES:
            raise ProtocolError("a fragment that is not a seed of 32 bytes")
        if prime:
            from unpooled.kernels import field
            from unpooled.privacy.field_words import uniform_words

            total[:] = field.add(total, uniform_words(bytes(fragment), total.size))
            return
        for at, words in _expanded(bytes(fragment), total.size):
            total[at : at + words.size] += words
    elif len(fragment) != 8 * total.size:
        msg = f"a fragment that does not hold {total.size} numbers of 8 bytes"
        raise ProtocolError(msg)
    elif prime:
        from unpooled.kernels import field

        total[:] = field.add(total, residues(np.frombuffer(fragment, dtype="<u8")))
    else:
        total += np.frombuffer(fragment, dtype="<u8")


def residues(words: Words) -> Words:
    """Return words that somebody sent, refused unless each of them is below 2^61 - 1."""
    if words.size and int(words.max()) >= PRIME:
        raise ProtocolError("words that are no residues of the study's prime")
    return words.astype(np.uint64)


def _expanded(seed: bytes, size: int) -> Iterator[tuple[int, Words]]:
    """The key stream of a seed in blocks that stay in the cache, each with its place."""
    stream = Stream(seed)
    for at in range(0, size, _BLOCK):
        yield at, stream.words(at, min(_BLOCK, size - at))


def opened(partials: Sequence[Words], *, prime: bool = False) -> NDArray[np.int64]:
    """Return the total that the partial sums of all nodes add up to."""
    total = np.zeros(partials[0].size, dtype=np.uint64)
    if prime:
        from unpooled.kernels import field

        for part in partials:
            total = field.add(total, residues(part))
        return field.decode(total)
    for part in partials:
        total += part
    return total.view(np.int64)


def seal(
    shared_key: SharedKey, receiver_key: str, purpose: tuple[bytes, ...], message: Buffer, secret: bytes
) -> tuple[bytes, bytes]:
    """Return (salt, ciphertext) for one receiver: X25519, HKDF-SHA-256 over purpose and salt, AES-256-GCM.

    ``secret`` belongs to this message alone: the salt, and so the key, differs wherever the message does.
    """
    salt = hmac.digest(secret, b"salt" + b"".join(len(part).to_bytes(8, "big") + part for part in purpose), "sha256")
    return salt, AESGCM(shared_key(receiver_key, *purpose, salt)).encrypt(_NONCE, message, None)


def unseal(
    shared_key: SharedKey,
    sender_key: str,
    purpose: tuple[bytes, ...],
    salt: bytes,
    ciphertext: bytes,
    room: bytearray | None = None,
) -> Buffer:
    """Decrypt what this sender sealed for this receiver and purpose, or refuse.

    ``room`` is memory to decrypt into, for many messages of one length: fresh pages cost more than the cipher.
    """
    cipher = AESGCM(shared_key(sender_key, *purpose, salt))
    try:
        if room is None or len(room) != len(ciphertext) - _TAG_BYTES:
            return cipher.decrypt(_NONCE, ciphertext, None)
        cipher.decrypt_into(_NONCE, ciphertext, None, room)
    except (InvalidTag, ValueError):
        raise ProtocolError("a sealed fragment that was altered, or was meant for another place") from None
    return memoryview(room)
