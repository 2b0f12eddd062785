"""Masks of joint sums: uniform residues modulo p from a seed of 32 bytes.

Words of the key stream (AES-256 in counter mode) are cut to 61 bits, and the value p is left out: the words that remain are exactly uniform below p where
the key stream is. A longer array begins with every shorter one.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError
from unpooled.kernels.field import MODULUS, add, encode
from unpooled.privacy.noise import Stream

if TYPE_CHECKING:
    from unpooled.kernels.sampler import Integers, Words

SEED_BYTES = 32
_P = np.uint64(MODULUS)
#: Words drawn at a time: half a megabyte of key stream stays in the second-level cache.
_FIELD_BLOCK = 1 << 16


def length_prefixed(*parts: bytes | str | int) -> bytes:
    """Return parts as bytes, each with its type and its length, so that no two lists of parts have the same bytes."""
    text = b""
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        text += type(part).__name__[:1].encode() + len(raw).to_bytes(8, "big") + raw
    return text


def derived(seed: bytes, *parts: bytes | str | int) -> bytes:
    """Return the seed of 32 bytes that belongs to these parts under a seed: HMAC-SHA-256."""
    return hmac.digest(seed, length_prefixed(*parts), "sha256")


def uniform_words(seed: bytes, count: int) -> Words:
    """Return the first ``count`` uniform residues of a seed (Theorem J.2)."""
    if len(seed) != SEED_BYTES:
        raise UsageError("a seed of uniform words has 32 bytes")
    stream, out, have, at = Stream(seed), np.empty(count, dtype=np.uint64), 0, 0
    while have < count:
        size = min(_FIELD_BLOCK, count - have)
        words = stream.words(at, size) & _P
        at += size
        if int(words.max()) == MODULUS:
            words = words[words != _P]
        out[have : have + words.size] = words
        have += words.size
    return out


def masks(mask_seed: bytes, rows: int, columns: int) -> Words:
    """Return the masks of a block of rows, of shape (rows, columns)."""
    return uniform_words(mask_seed, rows * columns).reshape(rows, columns)


def masked(rows: Integers, mask_seed: bytes) -> Words:
    """Return a block of rows plus its masks, in the block's shape: uniform for everybody without the seed (Theorem J.1)."""
    return add(encode(rows), masks(mask_seed, *rows.shape))
