"""Snapshot of a source when it was opened, block by block and column by column, and later comparisons with it.

A block is 62,500 rows whatever batches rows come in. Of every column of it two things are taken when a source is opened: a SHA-256, of which the
source's digest is made, and a fingerprint with a secret key of this process, with which every later reading is compared as it goes by.
"""

from __future__ import annotations

import hashlib
import secrets
from copy import copy
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import polars as pl
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

#: What stands for no number where there is no nan to say so.
_NOTHING = np.iinfo(np.int64).min


class Snapshot:
    """Digests of the columns of one source. It holds no value, and can be handed to another process that is to read the same."""

    def __init__(self, key: bytes = b"") -> None:
        self._keys = np.frombuffer(key or new_key(), dtype=np.uint32).astype(np.uint64)
        self._known: dict[str, list[bytes]] = {}
        #: Columns in which some values are missing, and those in which some are infinite.
        self.gaps: set[str] = set()
        self.infinite: set[str] = set()
        #: Of every block what goes into the digest.
        self.parts: list[bytes] = []
        self._rows = 0

    def add(self, block: pl.DataFrame, over: Callable[..., Iterable[bytes]] = map) -> None:
        """The next block of the source, all of its columns; ``over`` is a map, perhaps that of several threads."""
        self._rows += len(block)
        found = [words_of(series) for series in block]
        parts: list[bytes] = []
        for series, words, content in zip(block, found, over(_hashed, found), strict=True):
            self._note(series)
            name = series.name.encode("utf-8", "surrogatepass")
            parts += (len(name).to_bytes(8, "big"), name, words.size.to_bytes(8, "big"), content)
            self._known.setdefault(series.name, []).append(self._fingerprint(words))
        self.parts.append(b"".join(parts))

    @property
    def digest(self) -> bytes:
        """Return SHA-256 of everything that was added, of the names and of the number of rows."""
        return digest_of_parts(self.parts, self._rows)

    @property
    def rows(self) -> int:
        """Return the number of rows that were added."""
        return self._rows

    def without_parts(self) -> Snapshot:
        """All that it takes to read again."""
        found = copy(self)
        found.parts = []
        return found

    def agrees(self, place: int, block: pl.DataFrame) -> bool:
        """Return True if a block (any of the columns) is the one that was added at this place."""
        for series in block:
            known = self._known[series.name]
            # Where nothing was missing, a nan has other words than the number that was there, whichever nan it is.
            if place >= len(known) or known[place] != self._fingerprint(words_of(series, one_nan=series.name in self.gaps)):
                return False
        return True

    def _note(self, series: pl.Series) -> None:
        if series.null_count() or (series.dtype.is_float() and series.is_nan().any()):
            self.gaps.add(series.name)
        if series.dtype.is_float() and series.is_infinite().any():
            self.infinite.add(series.name)

    def _fingerprint(self, words: Words) -> bytes:
        from unpooled.kernels.fingerprint import summed_up  # compiled code, which takes a fifth of a second to load

        return hashlib.sha256(summed_up(words, self._keys)).digest()


def new_key() -> bytes:
    """Return a key of fingerprints."""
    from unpooled.kernels.fingerprint import KEYS

    return secrets.token_bytes(4 * KEYS)


def digest_of_parts(parts: Iterable[bytes], rows: int) -> bytes:
    """Return SHA-256 of the blocks of a source in their order, by any reader, and of the number of rows."""
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    total.update(rows.to_bytes(8, "big"))
    return total.digest()


def _hashed(words: Words) -> bytes:
    return hashlib.sha256(words.data).digest()


def words_of(series: pl.Series, *, one_nan: bool = True) -> Words:
    """Return a column's block as 64-bit words; different blocks of one kind have different words.

    Which nan stands for a missing number no statistic sees, and databases do not keep it: ``one_nan`` takes all for the same.
    """
    import polars as pl

    if series.dtype == pl.String:
        return _texts(series)
    if series.dtype == pl.Float64:
        found = series.to_numpy()
        if one_nan and (missing := np.isnan(found)).any():
            found = np.where(missing, np.nan, found)
        return np.ascontiguousarray(found).view(np.uint64)
    return series.to_physical().cast(pl.Int64).fill_null(_NOTHING).to_numpy().view(np.uint64)


def _texts(series: pl.Series) -> Words:
    """Lengths (one more than there are bytes; 0 where there is no text), then all texts one after the other."""
    lengths = series.str.len_bytes().to_physical().cast(int).fill_null(-1).to_numpy().astype(np.int64) + 1
    joined: bytes = series.str.join("").item().encode()
    return np.concatenate([lengths.view(np.uint64), np.frombuffer(joined + bytes(-len(joined) % 8), dtype=np.uint64)])
