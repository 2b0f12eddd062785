"""How many bytes one secure sum takes, exactly, from its shape alone: the formula of docs/sources.md, message by message.

Messages are MessagePack maps with the names of their fields, so that each has a constant length beside what it carries: vectors of 8 bytes a
number, seeds of 32, tags of 16, keys and signatures in hexadecimal, the names of parties. ``tests/unit/test_scale.py`` holds the formula
against the bytes that a study sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Hexadecimal digits of a hash, of a key and of a signature; bytes of a tag and of a seed.
HASH, KEY, SIGNATURE, TAG, SEED = 64, 64, 128, 16, 32


def text(length: int) -> int:
    """A text of so many bytes, with its head."""
    return length + (1 if length < 32 else 2 if length < 256 else 3)


def raw(length: int) -> int:
    """So many bytes, with their head."""
    return length + (2 if length < 256 else 3 if length < 1 << 16 else 5)


def listed(count: int) -> int:
    """The head of a list."""
    return 1 if count < 16 else 3 if count < 1 << 16 else 5


def number(value: int) -> int:
    """A whole number from 0 on."""
    return 1 if value < 128 else 2 if value < 256 else 3 if value < 1 << 16 else 5


def fields(*names: str) -> int:
    """The head of a map, and the names of its fields."""
    return 1 + sum(text(len(name)) for name in names)


@dataclass(frozen=True)
class SecureSum:
    """One total of ``size`` numbers over these parties, the first ``nodes`` of which add up; the ``index``-th of its name."""

    total: str
    parties: Sequence[str]
    nodes: int
    size: int
    index: int = 0
    settings: int = 0

    def envelope(self, step: str) -> int:
        """What is around every message, asked or answered."""
        head = fields("version", "plan", "step", "index", "body") + number(2) + text(HASH)
        return head + text(len(f"{self.total}-{step}")) + number(self.index)

    def members(self, names: Sequence[str]) -> int:
        """Keys of these parties, signed."""
        each = fields("name", "agreement", "identity", "signature") + 2 * text(KEY) + text(SIGNATURE)
        return listed(len(names)) + sum(each + text(len(name)) for name in names)

    def sealed(self, node: int) -> int:
        """One party's part for a node: a seed, or the vector itself for the last one."""
        content = SEED if node < self.nodes - 1 else 8 * self.size
        return fields("node", "ciphertext", "salt") + text(len(self.parties[node])) + raw(content + TAG) + raw(SEED)

    @property
    def _first(self) -> Sequence[str]:
        return self.parties[: self.nodes]

    def asked(self) -> dict[str, int]:
        """Bytes from the coordinator in each step, over all parties."""
        n, m, numbers = len(self.parties), self.nodes, listed(self.settings) + 9 * self.settings
        fragment = self.envelope("fragment") + fields("nodes", "settings") + self.members(self._first) + numbers
        agree = self.envelope("agree") + fields("participants") + listed(n) + sum(text(len(name)) for name in self.parties)
        total = self.envelope("total") + fields("participants", "sealed", "nodes", "signatures", "settings") + listed(0)
        total += self.members(self.parties) + listed(n) + self.members(self._first) + listed(m) + m * text(SIGNATURE)
        return {"fragment": n * fragment, "agree": m * agree, "total": m * total + n * sum(map(self.sealed, range(m)))}

    def answered(self) -> dict[str, int]:
        """Bytes to the coordinator in each step, over all parties."""
        n, m = len(self.parties), self.nodes
        fragment = self.envelope("fragment") + fields("fragments") + listed(m) + sum(map(self.sealed, range(m)))
        agree = self.envelope("agree") + fields("signature") + fields("value") + text(SIGNATURE)
        array = fields("dtype", "shape", "data") + text(3) + listed(1) + number(self.size) + raw(8 * self.size)
        part = fields("name", "index", "values") + text(len(self.total)) + number(self.index) + array
        return {"fragment": n * fragment, "agree": m * agree, "total": m * (self.envelope("total") + fields("part") + part)}

    @property
    def whole(self) -> int:
        """All of it."""
        return sum(self.asked().values()) + sum(self.answered().values())
