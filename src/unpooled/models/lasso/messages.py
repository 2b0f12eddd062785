"""Everything that may leave a party: noisy picks and their scores, columns with their moments, once each, and the response's mean."""

from __future__ import annotations

import msgspec

from unpooled.protocol.messages import Array, Released, Signed


class Term(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One non-zero coefficient of the current iterate, for a coded column of a party."""

    party: str
    column: int
    value: float


class ReleasedColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column as it was released: sent to every party once."""

    party: str
    column: int
    values: Array


class MeanReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The noisy mean of the response."""

    mean: Released


class PickRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The iterate, the response's released mean (0 without a constant), and the columns released since the last round."""

    iterate: tuple[Term, ...]
    new: tuple[ReleasedColumn, ...]
    middle: float = 0.0


class Pick(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which signed column a party picks, its noisy score where parties compete, and the party's signature under both."""

    choice: Released
    score: tuple[Released, ...]
    signed: Signed


class Bid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A party's signed pick of one round, as another party is shown it."""

    party: str
    choice: Released
    score: tuple[Released, ...]
    signed: Signed

    @property
    def picked(self) -> int:
        """Return the index that was chosen."""
        return int(self.choice.values.numpy()[0])

    @property
    def value(self) -> float:
        """Return the noisy score; 0 where parties do not compete."""
        return float(self.score[0].values.numpy()[0]) if self.score else 0.0


class ColumnRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Release the column that was picked in this round: the claims show that it won (all parties') or was picked (its own)."""

    round: int
    claims: tuple[Bid, ...]


class ColumnReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The released column."""

    column: Released


class Slot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A coded column of a party."""

    party: str
    column: int


class RefitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Release the moments of one of your released columns with all of them, in this order; and those you were not sent yet."""

    column: int
    order: tuple[Slot, ...]
    new: tuple[ReleasedColumn, ...]


class MomentsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Noisy products with the response, with itself, and with every column of the order."""

    moments: Released
