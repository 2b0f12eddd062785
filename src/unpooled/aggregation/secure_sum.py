r"""Additive shares of integer vectors modulo 2^64, sealed end to end for the nodes that add them up (SPEC section 3, Algorithm 1).

A vector is split into M shares: M - 1 uniform ones and the one that makes them sum. A uniform share is sent as the 32-byte seed
of its key stream, so a party sends about 8 bytes per coordinate however many nodes there are. Fewer than M nodes together hold
uniform noise; what the M partial sums add up to is the exact total, whoever of the parties is missing.

Numbers only: who may ask for what is decided in ``totals.py``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from unpooled.errors import ProtocolError
from unpooled.privacy.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from unpooled.protocol.identity import Identity

    Words = NDArray[np.uint64]

_SEED_BYTES = 32
_SALT_BYTES = 32
#: Each key encrypts one message, so that its nonce may be constant.
_NONCE = bytes(12)


def split(vector: NDArray[np.int64], nodes: int) -> list[bytes]:
    """The shares of a vector: seeds for all nodes but the last, which gets what is left."""
    seeds = [os.urandom(_SEED_BYTES) for _ in range(nodes - 1)]
    rest = vector.astype(np.uint64)  # two's complement: modulo 2^64
    for seed in seeds:
        rest -= Stream(seed).words(0, vector.size)
    return [*seeds, rest.astype("<u8", copy=False).tobytes()]


def expand(share: bytes, position: int, nodes: int, size: int) -> Words:
    """The share that the node at this position received."""
    if position < nodes - 1:
        if len(share) != _SEED_BYTES:
            raise ProtocolError("a share that is not a seed of 32 bytes")
        return Stream(share).words(0, size)
    if len(share) != 8 * size:
        msg = f"a share that does not hold {size} numbers of 8 bytes"
        raise ProtocolError(msg)
    return np.frombuffer(share, dtype="<u8").astype(np.uint64, copy=False)


def add(parts: Iterable[Words], size: int) -> Words:
    """The sum modulo 2^64."""
    total = np.zeros(size, dtype=np.uint64)
    for part in parts:
        total += part
    return total


def opened(partials: Sequence[Words]) -> NDArray[np.int64]:
    """The total that the partial sums of all nodes add up to."""
    return add(partials, partials[0].size).astype(np.int64)


def seal(sender: Identity, receiver_key: str, context: bytes, purpose: tuple[bytes, ...], message: bytes) -> bytes:
    """Encrypt for one receiver: X25519, HKDF-SHA-256 over sender, receiver, purpose and a fresh salt, AES-256-GCM."""
    salt = os.urandom(_SALT_BYTES)
    return salt + AESGCM(sender.shared_key(context, receiver_key, *purpose, salt)).encrypt(_NONCE, message, None)


def unseal(receiver: Identity, sender_key: str, context: bytes, purpose: tuple[bytes, ...], sealed: bytes) -> bytes:
    """Decrypt what this sender sealed for this receiver and purpose, or refuse."""
    salt, ciphertext = sealed[:_SALT_BYTES], sealed[_SALT_BYTES:]
    try:
        return AESGCM(receiver.shared_key(context, sender_key, *purpose, salt)).decrypt(_NONCE, ciphertext, None)
    except (InvalidTag, ValueError):
        raise ProtocolError("a sealed share that was altered, or was meant for another place") from None
