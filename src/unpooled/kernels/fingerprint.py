r"""A fingerprint of numbers that is as fast as reading them: NH, twice, with a secret key.

NH of 64-bit words :math:`w_i = (h_i, l_i)` under 32-bit keys is :math:`\sum_i (l_i + k_{2i} \bmod 2^{32})(h_i + k_{2i+1} \bmod 2^{32}) \bmod 2^{64}`.
For two different lists of equal length it is equal with probability at most 2^-32 over the keys, and both of two that share shifted keys with
at most 2^-64 (Black, Halevi, Krawczyk, Krovetz and Rogaway 1999, UMAC). So nobody without the key can change a list
unseen, not even on purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Words of one sum; its keys stay in the first-level cache.
CHUNK = 1024
#: Keys of both sums: the second one's are the first one's, shifted by a pair.
KEYS = 2 * CHUNK + 2


@njit(nogil=True)
def fingerprint(words: NDArray[np.uint64], keys: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """Two sums per chunk of words, the last chunk filled up with zeros; keys are below 2^32."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    for chunk in range((words.size + CHUNK - 1) // CHUNK):
        start = chunk * CHUNK
        one = np.uint64(0)
        two = np.uint64(0)
        for i in range(min(CHUNK, words.size - start)):
            left = words[start + i] & low
            right = words[start + i] >> half
            one += ((left + keys[2 * i]) & low) * ((right + keys[2 * i + 1]) & low)
            two += ((left + keys[2 * i + 2]) & low) * ((right + keys[2 * i + 3]) & low)
        out[2 * chunk] = one
        out[2 * chunk + 1] = two


def summed_up(words: NDArray[np.uint64], keys: NDArray[np.uint64]) -> bytes:
    """Return the sums of all chunks, as bytes, and the number of words."""
    out = np.zeros(2 * ((words.size + CHUNK - 1) // CHUNK), dtype=np.uint64)
    fingerprint(words, keys, out)
    return out.tobytes() + words.size.to_bytes(8, "big")
