"""The entries of a list in a hidden link that are no ids: noise pairs, which hide how many people parties share, and planted ones.

The helper sees of every id under which pseudonym it stands in which lists. So it learns the sizes of cells: the number of ids that exactly these parties hold. In every
cell of two or three parties the parties that it is of put pairs of entries into their lists that look like ids. How many follows a rounded Gaussian, cut far
out and shifted, so that nothing has to be taken away (Theorem K.6). Pads fill up each list to a length that the caps alone decide.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy import noise
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.events import Event, Kind
from unpooled.privacy.mechanisms import Mechanism, Summand
from unpooled.privacy.noise import Stream
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.noise import RandomBits
    from unpooled.privacy.unit import Unit

_TUNED = table("linking")
#: A cell: the parties that hold an id, nobody else does.
Cell = tuple[str, ...]
#: Kinds of entries. No id can be one of the others: every content begins with its kind and the length of the kind.
ID, PLANTED, NOISE, SINGLE, PAD = b"id", b"planted", b"noise", b"single", b"pad"


def planted() -> int:
    """Return the number of planted pairs of a cell, and of single entries of a list."""
    return _TUNED.whole("planted")


def content(kind: bytes, *parts: bytes) -> bytes:
    """Return the bytes that are hashed to a point, of an id or of what stands in the place of one."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in (kind, *parts))


def cells_of(names: Sequence[str], hub: str = "") -> tuple[Cell, ...]:
    """Return the cells whose sizes are hidden by noise: the one of two parties; of a hub those of at most two hospitals, with it or without it."""
    if not hub:
        return (tuple(names),)
    hospitals = [name for name in names if name != hub]
    pairs = list(itertools.combinations(hospitals, 2))
    return (*((hub, name) for name in hospitals), *pairs, *((hub, *pair) for pair in pairs))


@dataclass(frozen=True, slots=True)
class CellNoise(Mechanism):
    """The sizes of cells as the helper sees them: each is the exact one plus a rounded Gaussian, cut at ``most`` and shifted by it.

    The shift is public, so the helper sees the Gaussian mechanism after rounding, up to the mass that is cut away (Theorem K.6).
    """

    kind: ClassVar[str] = "noise pairs in cells"
    takes: ClassVar[type[Any]] = Summand
    cells: int
    scale: float
    most: int

    @classmethod
    def calibrated(cls, cells: int, epsilon: float, delta: float) -> CellNoise:
        """Return the noise whose cost to a person is (epsilon, delta)."""
        moved = cls(cells, 1.0, 1).reach
        scale = max(moved / budget_mu(epsilon, delta), noise.SMALLEST_SCALE)
        return cls(cells, scale, math.ceil(_TUNED.cut * scale))

    @property
    def name(self) -> str:
        """Return its name in plans and ledgers."""
        return "noise pairs in cells"

    @property
    def size(self) -> int:
        """Return the number of cells."""
        return self.cells

    @property
    def reach(self) -> float:
        """Return how far one person moves the sizes: out of one cell and into another, of which there may be one alone (Theorem K.6)."""
        return math.sqrt(min(self.cells, 2))

    @property
    def lost(self) -> float:
        """Return the mass of the rounded Gaussian beyond the cut, in one cell."""
        return math.erfc((self.most + 0.5) / (self.scale * math.sqrt(2)))

    def sensitivity(self, unit: Unit) -> float:
        """Return the distance that one unit moves the sizes: a value that an id is made of moves no more than the person."""
        del unit
        return self.reach

    def event(self, unit: Unit) -> Event:
        """Gaussian, mu = sensitivity / scale; what is cut away in any cell is total variation."""
        return Event(Kind.GAUSSIAN, self.sensitivity(unit) / self.scale, 1, self.cells * (self.lost + noise.TOTAL_VARIATION))

    def pairs(self, bits: RandomBits) -> list[int]:
        """Return the number of noise pairs of every cell: at least none, at most twice :attr:`most`."""
        drawn = noise.rounded_gaussian(self.scale, self.cells, stream=bits)
        found: list[int] = (drawn.clip(-self.most, self.most) + self.most).tolist()
        return found

    def draw(self, given: Summand, bits: RandomBits) -> NDArray[np.int64]:
        """Return the sizes with their noise, which nobody computes: it stands among the entries of the lists."""
        self.check(given)
        sizes: NDArray[np.int64] = given.values.astype(np.int64) + np.array(self.pairs(bits), dtype=np.int64)
        return sizes


class ListMark(NamedTuple):
    """An entry that is no id and no pad: of which kind, of which cell (of a single one: of which party alone), and its number there."""

    kind: bytes
    cell: Cell
    number: int

    def content(self, seed: bytes) -> bytes:
        """Return its content, which all parties know, and nobody who does not know their seed."""
        place = content(b"entry", self.kind, str(self.number).encode(), *(party.encode() for party in self.cell))
        return content(self.kind, hmac.digest(seed, place, "sha256"))


def marks_of(party: str, cells: Sequence[Cell], pairs: Sequence[int]) -> Iterator[ListMark]:
    """Yield the planted and the noise entries of a party's list, in an order that all parties know."""
    for cell, many in zip(cells, pairs, strict=True):
        if party in cell:
            yield from (ListMark(PLANTED, cell, number) for number in range(planted()))
            yield from (ListMark(NOISE, cell, number) for number in range(many))
    yield from (ListMark(SINGLE, (party,), number) for number in range(planted()))


def room_of(party: str, cells: Sequence[Cell], most: int) -> int:
    """Return the most entries of a party's list that are no ids and no pads."""
    return planted() + sum(planted() + 2 * most for cell in cells if party in cell)


def seed_of(shares: Sequence[bytes]) -> bytes:
    """Return the seed that the shares of all parties give: unknown to anybody who lacks one of them, the helper among these."""
    return hashlib.sha256(b"".join(content(b"share", share) for share in shares)).digest()


def pairs_of(noise_in_cells: CellNoise, seed: bytes) -> list[int]:
    """Return the number of noise pairs of every cell, as every party draws them from the common seed."""
    return noise_in_cells.pairs(Stream(hmac.digest(seed, content(b"sizes"), "sha256")))


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse a budget without noise, or one that the cut alone would use up."""
    if not math.isfinite(epsilon):
        raise UsageError(
            "a hidden link adds noise to the sizes that its helper sees: write a finite epsilon under [privacy], such as 0.1"
        )
    if delta < 1e-12:  # noqa: PLR2004 - the cut is at 4e-18, times the number of cells, times e^epsilon
        msg = f"delta = {delta:g} is smaller than the noise of a hidden link can keep: write at least 1e-12 under [privacy]"
        raise UsageError(msg)
