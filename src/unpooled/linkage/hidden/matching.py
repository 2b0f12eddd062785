"""The arithmetic of the helper: which pseudonyms share a place, and places at random. It knows pseudonyms, and nothing of whose they are.

For every pair of parties with a common array of places the helper parts what the population does not match, so that each row of a place is one person's
(Theorem K.2). Places are a uniform injection, keyed by the helper's own secret and by all lists (Theorem K.1): the same lists have the same places again, and
one id more has other ones throughout.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.noise import Stream

    Ints = NDArray[np.int64]


def shared(lists: Mapping[str, Sequence[bytes]], hub: str, key: bytes) -> dict[str, set[bytes]]:
    """Return of every party but the first (of every hospital of a hub) the pseudonyms whose row shares its place with one of the first party (of the hub).

    An id that several hospitals hold is one person: the hub's row is matched with that of one of them, the one with the smallest keyed hash.
    """
    first = hub or next(iter(lists))
    others = {name: set(own) for name, own in lists.items() if name != first}
    found: dict[str, set[bytes]] = {name: set() for name in others}
    for one in lists[first]:
        holders = [name for name, own in others.items() if one in own]
        if holders:
            kept = min(holders, key=lambda name: hmac.digest(key, one + name.encode(), "sha256"))
            found[kept].add(one)
    return found


def placed(
    first: Sequence[bytes], second: Sequence[bytes], common: Collection[bytes], order: NDArray[np.int64]
) -> tuple[Ints, Ints]:
    """Return the places of two lists: rows in common share one, all others have one of their own. ``order`` is a permutation of all places."""
    own = order[: len(first)]
    at = {one: int(place) for one, place in zip(first, own, strict=True) if one in common}
    free = iter(order[len(first) :].tolist())
    return own.astype(np.int64), np.array([at[one] if one in at else next(free) for one in second], dtype=np.int64)


def permutation(stream: Stream, size: int) -> NDArray[np.int64]:
    """Return a uniform permutation: places in the order of random numbers of 128 bits, of which two are equal with probability below size^2 / 2^129."""
    one, two = (stream.words(0, size, lane) for lane in (0, 1))
    return np.lexsort((two, one)).astype(np.int64)
