"""A joint sum: which columns of parties are multiplied, who sends masked rows to whom, and the total over all members modulo a prime."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from unpooled.errors import ProtocolError, StudyAborted, UsageError
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.exposure import Exposure
from unpooled.privacy.mechanisms import Block, FieldGaussian
from unpooled.privacy.plan import Release, Study
from unpooled.products.placed_rows import Carried, PlacedBlock
from unpooled.products.short_rows import BlockShape, largest_block
from unpooled.totals.modes import Distributed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.unit import Adjacency
    from unpooled.protocol.context import Context
    from unpooled.totals.total import Summed

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Words = NDArray[np.uint64]
    FieldWords = NDArray[Any]


# --- Shape -----------------------------------------------------------------------------------------------------------------
# The shape of a joint sum: which columns of parties are multiplied, and, of second moments, which integers are released and how a person moves them.

#: Steps of the grid per unit of a standardised value, and the constant of a row in steps: about .7.
GRID, CONSTANT_STEPS = 1 << 10, 717
#: The constant of a row.
JOINT_CONSTANT = CONSTANT_STEPS / GRID


@dataclass(frozen=True)
class RowPart:
    """A party's part of every row that is masked and proven on its own: its number of integers, and the bound on their sum of squares in squared steps."""

    party: str
    columns: int
    square: int
    #: Its name among the parts of its party; empty where there is one.
    name: str = ""
    #: Of rows at places: how many of its integers are columns, which products of them follow, and whether each column has the bound by itself.
    inner: int = 0
    own: Carried | None = None
    apart: bool = False

    @classmethod
    def placed(cls, party: str, inner: int, square: int, own: Carried, *, apart: bool = False) -> RowPart:
        """Return the part of rows at places: presence, columns, and products of columns."""
        return cls(party, 1 + inner + own.pairs(inner)[0].size, square, "", inner, own, apart)

    def block(self, rows: int) -> BlockShape:
        """Return the shape of a block of these rows, which says what is proven of each."""
        if self.own is None:
            return BlockShape(rows, self.columns, self.square)
        return PlacedBlock.of(rows, self.inner, self.square, self.own, apart=self.apart)

    @property
    def slices(self) -> tuple[slice, slice]:
        """Return the places of presence and columns, and of the products of columns, of rows at places."""
        return slice(0, 1 + self.inner), slice(1 + self.inner, self.columns)


class JointRound(NamedTuple):
    """One round of joint sums: the name of its release, which repetition of that it is, and what is multiplied in it."""

    name: str
    repeat: int
    shape: ProductShape


@dataclass(frozen=True)
class ProductShape(ABC):
    """The parts of a row in the study's order, whose products of columns at different parties are added up, once or in several rounds."""

    parts: tuple[RowPart, ...]
    rows: int
    #: Of places in several arrays, one behind the other, how many each has; no block reaches from one into another.
    arrays: tuple[int, ...] = field(default=(), kw_only=True)
    #: Whether products of columns of one party, and their sums, are released too.
    diagonal: ClassVar[bool] = False

    @property
    def settings(self) -> int:
        """Return the number of public coefficients that the parts of a round depend on: none, unless a shape says otherwise."""
        return 0

    @property
    @abstractmethod
    def rounds(self) -> int:
        """Return the number of rounds, each a release of its own."""

    @property
    @abstractmethod
    def products(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs of parts whose columns are multiplied: the part of the earlier party first."""

    @cached_property
    def factors(self) -> tuple[tuple[slice, slice], ...]:
        """Return, for every pair of parts, the columns of each that are multiplied: all of them, unless a shape says otherwise."""
        return tuple(
            (slice(0, self.parts[one].columns), slice(0, self.parts[other].columns)) for one, other in self.products
        )

    @abstractmethod
    def released(self, whole: Words) -> Words:
        """Return the released integers in order, from the matrix of products of all columns and, last, a constant."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Return the number of released integers."""

    @property
    @abstractmethod
    def most(self) -> int:
        """Return the largest absolute value that one person adds to a released integer."""

    @property
    @abstractmethod
    def blocks(self) -> tuple[Block, ...]:
        """Return the relative noise of the released integers."""

    @abstractmethod
    def distance(self, adjacency: Adjacency) -> float:
        """Return the most that one person moves the released integers of a round, each divided by its relative noise, in the Euclidean norm."""

    @cached_property
    def parties(self) -> tuple[str, ...]:
        """Return the parties of all parts, in the study's order."""
        return tuple(dict.fromkeys(part.party for part in self.parts))

    @cached_property
    def columns(self) -> int:
        """Return the number of columns of all parts, without the constant."""
        return sum(part.columns for part in self.parts)

    @cached_property
    def spans(self) -> tuple[slice, ...]:
        """Return the place of every part's columns in a row."""
        ends = np.cumsum([0, *(part.columns for part in self.parts)]).tolist()
        return tuple(slice(a, b) for a, b in itertools.pairwise(ends))

    @cached_property
    def block_rows(self) -> int:
        """Return the number of rows of a block: the most that can be proven of every part."""
        return min(largest_block(part.block) for part in self.parts)

    @cached_property
    def row_blocks(self) -> tuple[tuple[int, int], ...]:
        """Return the first row of every block, and the row behind its last."""
        size, ends = self.block_rows, np.cumsum([0, *(self.arrays or (self.rows,))]).tolist()
        return tuple(
            (start, min(start + size, last))
            for first, last in itertools.pairwise(ends)
            for start in range(first, last, size)
        )


@dataclass(frozen=True)
class JointShape(ProductShape):
    """One part of every party, and last a constant that belongs to nobody: all second moments of a row, in one round."""

    diagonal: ClassVar[bool] = True

    @property
    def rounds(self) -> int:
        """Return one."""
        return 1

    @cached_property
    def places(self) -> dict[str, slice]:
        """Return the place of every party's columns in a row."""
        return {part.party: span for part, span in zip(self.parts, self.spans, strict=True)}

    @cached_property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Return every pair of parts."""
        return tuple(itertools.combinations(range(len(self.parts)), 2))

    def released(self, whole: Words) -> Words:
        """Return the released entries of the matrix."""
        return whole[self.pairs]

    @property
    def most(self) -> int:
        """Return the largest absolute value that one person adds to an entry."""
        return max(part.square for part in self.parts)

    @cached_property
    def square(self) -> int:
        """Return R^2 in squared steps: the largest squared length of a whole row, the constant included."""
        return sum(part.square for part in self.parts) + CONSTANT_STEPS**2

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return (rows, columns) of the released entries of the matrix: its diagonal, then what is above it; not the square of the constant."""
        width = self.columns + 1
        first, second = np.triu_indices(width, 1)
        diagonal = np.arange(self.columns)
        return np.concatenate([diagonal, first]), np.concatenate([diagonal, second])

    @property
    def size(self) -> int:
        """Return the number of released integers."""
        return self.pairs[0].size

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Return the relative noise of the entries: those off the diagonal stand twice in the matrix, and have half the variance."""
        off = self.size - self.columns
        return Block(self.columns, 1.0), Block(off, math.sqrt(0.5))

    def distance(self, adjacency: Adjacency) -> float:
        """Return the most that one person moves the matrix, in the Frobenius norm: sqrt 2 R^2 under replace, R^2 under zero-out (Theorem F.9.4)."""
        from unpooled.privacy.sensitivity import moments_augmented

        return moments_augmented(math.sqrt(self.square), adjacency)

    @property
    def of_rows(self) -> JointShape:
        """Return the shape of the columns alone: this one."""
        return self

    def decoded(self, values: Floats, deviations: Floats, rows: int) -> tuple[Floats, Floats]:
        """Return the matrix of second moments of this many rows and the variances of its noise, in units of standardised columns."""
        found = self.whole(values / GRID**2, rows * JOINT_CONSTANT**2)
        return found, self.whole(np.square(deviations / GRID**2), 0.0)

    def exact(self, parts: Sequence[Ints]) -> Floats:
        """Return the released integers without noise, from the columns of each party."""
        whole = np.column_stack([*parts, np.full(len(parts[0]), CONSTANT_STEPS)]).astype(float)
        return np.asarray((whole.T @ whole)[self.pairs])

    def whole(self, values: Floats, of_constant: float) -> Floats:
        """Return the symmetric matrix with these released entries; ``of_constant`` stands in the place of the constant's square."""
        width = self.columns + 1
        found = np.zeros((width, width))
        found[self.pairs] = values
        found[self.pairs[::-1]] = values
        found[-1, -1] = of_constant
        return found


# --- Sides -----------------------------------------------------------------------------------------------------------------
# Pairs of parties and their helpers: who sends which masked rows to whom, and who knows the masks.


class Side(NamedTuple):
    """One direction of a pair: whose masked rows travel, who receives them and judges the proof, and who knows their masks."""

    sender: str
    receiver: str
    helper: str


class Spot(NamedTuple):
    """One block of one part of a side in one round: the round, the number of the part among all that travel, side, part, block and its rows."""

    round: int
    number: int
    side: Side
    #: The number of the part in the shape.
    at: int
    part: RowPart
    block: int
    first: int
    last: int

    @property
    def key(self) -> str:
        """Return the end of the names under which a member keeps what belongs to it."""
        return f"{self.round}_{self.number}_{self.block}"

    def place(self) -> tuple[bytes, ...]:
        """Return its place as parts of a purpose: sender, receiver, helper, round, part and block."""
        where = str(self.round), self.part.name, str(self.block)
        return (b"joint", *(name.encode() for name in (*self.side, *where)))


def helper_of(pair: tuple[str, str], parties: Sequence[str], helpers: Sequence[str]) -> str:
    """Return the helper of a pair: the organisation without data, else the next party in the study's order that is not of the pair."""
    if helpers:
        return helpers[0]
    after = parties.index(pair[1]) + 1
    others = [name for name in (*parties[after:], *parties[:after]) if name not in pair]
    if not others:
        raise UsageError(
            "two parties need a helper, an organisation that has no data in this study: make its card with `unpooled party init --helper NAME`, name "
            'the card under [[party]], and the helper under [trust] helpers = ["NAME"] (in Python: helpers=1)'
        )
    return others[0]


def sides_of(parties: Sequence[str], helpers: Sequence[str] = ()) -> tuple[Side, ...]:
    """Return both directions of every pair, in the study's order."""
    found = []
    for first, second in itertools.combinations(parties, 2):
        helper = helper_of((first, second), parties, helpers)
        found += [Side(first, second, helper), Side(second, first, helper)]
    return tuple(found)


# --- Sums ------------------------------------------------------------------------------------------------------------------
# The sum over all members of a study of joint moments: every member's share or nothing, modulo a prime.

#: How far the view of a proof is from one that its verifiers could have made themselves (Theorem J.10).
PROOF_DISTANCE = 2.0**-64
#: What noise in fine steps may be away from Gaussian noise, in all releases of a study together, in such distances.
_NEARLY = 8
#: A larger exponent has no float.
_LARGEST_EXPONENT = 700.0
#: The name of the release, in every round.
JOINT = "joint"


@dataclass(frozen=True, slots=True)
class JointSum(Distributed):
    """All members, parties and helpers, are participants: with one share missing the total would be weighted rows of one party."""

    prime: ClassVar[bool] = True
    #: The number of blocks of a round that are proven to be short, each of which adds its distance to delta (Theorem J.10).
    proofs: int = 0
    #: The number of such blocks in all releases of the study together; 0 where this is its one release of joint rows.
    charged: int = 0

    def multiplier(self, study: Study) -> float:
        """Return the mu of the whole budget, times sqrt(honest / members): only the noise of honest members counts."""
        return budget_mu(study.epsilon, study.delta) * math.sqrt(self.honest / len(self.parties))

    def releases(self, vector: Summed, study: Study) -> tuple[Release, ...]:
        """Return a fragment of the noise for every member: together they are one release of the joint rows in every round."""
        mu = joint_mu(study, self.charged or self.proofs * vector.count) * math.sqrt(vector.share / vector.count)
        fragment = FieldGaussian.calibrated(vector.blocks, vector.reach, study.target.unit, mu, self.honest)
        fragment = replace(fragment, distance=self.proofs * PROOF_DISTANCE)
        together = Exposure(together=vector.count)
        return tuple(
            Release(vector.name, name, vector.step("fragment"), fragment, vector.count, together) for name in self.parties
        )

    def check_participants(self, participants: tuple[str, ...]) -> None:
        """Refuse every set of participants but that of all members, in the study's order."""
        if participants != self.parties:
            raise ProtocolError("joint moments are opened with the shares of all members of the study, or not at all")

    def enough(self, arrived: Mapping[str, Any], where: str) -> None:
        """Abort, with nothing opened, where any member is missing."""
        missing = [name for name in self.parties if name not in arrived]
        if missing:
            msg = (
                f"{', '.join(missing)} dropped out {where}. Joint moments need every member, whatever the study tolerates: nothing was opened. "
                "Run it again once they are back"
            )
            raise StudyAborted(msg)


def joint_mu(study: Study, proofs: int) -> float:
    """Return the mu of a study's whole budget, where this number of proofs, and noise that is nearly Gaussian, take their part of delta (J.10, F.29).

    What would take more than half of it is not paid for by less privacy: the statement then says what is left.
    """
    charge = (proofs + _NEARLY) * PROOF_DISTANCE * (1 + math.exp(min(study.epsilon, _LARGEST_EXPONENT)))
    return budget_mu(study.epsilon, max(study.delta - charge, study.delta / 2))


class Joint(Protocol):
    """The attributes of the design of a plan with joint moments."""

    @property
    def aggregation(self) -> JointSum: ...  # noqa: D102 - how it adds up
    @property
    def totals(self) -> Mapping[str, Summed]: ...  # noqa: D102 - what it adds up, by name
    @property
    def rounds(self) -> tuple[JointRound, ...]: ...  # noqa: D102 - what is multiplied, round by round
    @property
    def parties(self) -> tuple[str, ...]: ...  # noqa: D102 - who has rows
    @property
    def actors(self) -> tuple[str, ...]: ...  # noqa: D102 - the organisations behind them, which act and sign
    @property
    def sides(self) -> tuple[Side, ...]: ...  # noqa: D102 - whose masked rows go where
    @property
    def proved(self) -> bool: ...  # noqa: D102 - whether senders prove that their rows are short

    def acting(self, name: str) -> str:
        """Return the party for which an organisation acts: itself, or where several hold rows of one kind, the first of them."""
        ...

    def side_at(self, side: Side, first: int) -> Side:
        """Return the organisations behind a side in the block that begins at this row."""
        ...

    def block(self, context: Context[Any], spot: Spot) -> FieldWords:
        """Return a block of the sender's part of the rows as integers."""
        ...


def joint_sum(members: tuple[str, ...], tolerate: int) -> JointSum:
    """Return the sum over these members, of whom ``tolerate`` may collude. All of them are its nodes.

    With the fragments of all nodes one has every member's share, and a share is weights on somebody's rows (Theorem J.1).
    """
    return JointSum(members, tolerate, members, len(members))
