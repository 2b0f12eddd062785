r"""Second moments of scores, the middle of a sandwich covariance: of rows (robust errors), or of their sums over the rows of an id (clustered ones).

A row's score is its residual times its row. Scores are integers on the grid of shortened rows and no longer than a public bound S, so their outer
products move as those of rows do (Theorem F.9.4). The scores of j rows of one id are added up and shortened to S sqrt(j): if m rows of an id count
over all parties, its sums have squared lengths of at most m S^2 together, wherever its rows are (Theorem B.12).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.totals import Summed
from unpooled.errors import UsageError
from unpooled.kernels.moments import add_gram
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import moments_augmented
from unpooled.privacy.unit import Adjacency, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from unpooled.aggregation.totals import Total
    from unpooled.privacy.plan import Study
    from unpooled.privacy.table import Table

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


class Covariance(StrEnum):
    """The assumptions that the standard errors of a table rest on."""

    #: "cluster" where several rows of an id count, else "model".
    AUTO = "auto"
    #: The family's own variance, rows independent.
    MODEL = "model"
    #: Rows independent, whatever the variance.
    ROBUST = "robust"
    #: Rows of different ids independent.
    CLUSTER = "cluster"
    #: As "model", of columns at several parties: there is no other, and nobody asks for it by name.
    JOINT = "joint"


#: The name of the release, and its share of the squared budget.
MEAT, MEAT_SHARE = "meat", 0.1
#: Squared lengths of sums over an id are at most this, so that float64 holds them, their roots and their products exactly.
_EXACT_SQUARE = 1 << 52
#: The sentences under a table.
ASSUMED = {
    Covariance.MODEL: "standard errors assume independent rows whose variance is that of the model (covariance = 'robust' drops the second)",
    Covariance.JOINT: "standard errors assume independent rows whose variance is that of the model",
    Covariance.ROBUST: "standard errors assume independent rows, of any variance (robust, from released second moments of the scores)",
    Covariance.CLUSTER: "standard errors assume independent ids; rows of one id at one party may depend on each other (clustered, from released second moments of the scores)",
}


def covariance_of(asked: str, study: Study) -> Covariance:
    """Return the covariance that a study's parameter means for it; refuse an unknown word, and clusters where no id has several rows."""
    known = [word for word in Covariance if word is not Covariance.JOINT]
    if asked not in known:
        msg = f"covariance is one of {', '.join(known)}, not {asked!r}"
        raise UsageError(msg)
    several = study.unit == Unit.HOUSEHOLD and study.household_rows > 1
    found = Covariance(asked)
    if found is Covariance.AUTO:
        return Covariance.CLUSTER if several else Covariance.MODEL
    if found is Covariance.CLUSTER and not several:
        raise UsageError(
            "covariance 'cluster' is for unit 'household' with several rows of an id: without ids nobody knows which rows belong together"
        )
    return found


def without_meat(asked: str, method: str, needed: str) -> Covariance:
    """Return the model's covariance, for a method that releases no scores; refuse where another one was asked for by name."""
    if asked not in {Covariance.AUTO, Covariance.MODEL}:
        msg = f"covariance {asked!r} is of method {str(needed)!r}, and this study's is {str(method)!r}: ask for more epsilon, or leave it out"
        raise UsageError(msg)
    return Covariance.MODEL


def steps_within(longest: int, most: int) -> int:
    """Return how many steps the longest score has: ``longest``, or fewer where the squared sum of this many scores of an id would not be exact."""
    return max(1, min(longest, math.isqrt(_EXACT_SQUARE // max(most, 1))))


@dataclass(frozen=True)
class Meat:
    """The outer products of scores of this size, no longer than ``longest`` steps each."""

    size: int
    longest: int
    #: Rows of an id that count over all parties; 0 where scores of rows are not added up.
    most: int = 0

    def vector(self, share: float, moves: Mapping[Unit, Adjacency]) -> Summed:
        """Return the entries on the diagonal and above it with their noise (Theorem F.9.4; of sums over ids Theorem B.12)."""
        d, off = self.size, self.size * (self.size - 1) // 2
        unit = float(self.longest**2 * max(self.most, 1))
        blocks = (Block(d, unit), *((Block(off, unit * math.sqrt(0.5)),) if off else ()))
        reach = {who: Reach(moments_augmented(1.0, how), d + off) for who, how in moves.items()}
        if self.most:  # a row of an id moves the id's sum to another one
            reach = {who: Reach(moments_augmented(1.0, Adjacency.REPLACE), d + off) for who in moves}
            # Its rows may be at several parties, each of which floors its own vector: lengths of steps add up (Theorem F.19 c).
            farthest = moments_augmented(1.0, moves[Unit.RECORD])
            reach[Unit.HOUSEHOLD] = Reach(farthest, (d + off) * self.most**2)
        return Summed(MEAT, blocks, reach, self.longest**2, share)

    def added_up(self, scores: Iterator[Floats], table: Table) -> Ints:
        """Return the exact entries for these scores, a row each in the order of the table's blocks."""
        d, bound = self.size, self.longest
        total = np.zeros((d, d), dtype=np.int64)
        if self.most:
            scores, bound = iter([self._shortened(scores, table.owners)]), math.isqrt(self.longest**2 * self.most)
        for part in scores:
            add_gram(np.asfortranarray(part), bound, total)
        return np.concatenate([total.diagonal(), total[np.triu_indices(d, 1)]])

    def _shortened(self, scores: Iterator[Floats], owners: NDArray[np.int64]) -> Floats:
        """Return the sums of scores over the rows of every id, each shortened to the root of its number of rows times the bound."""
        count = np.bincount(owners)
        sums, at = np.zeros((count.size, self.size)), 0
        for part in scores:
            np.add.at(sums, owners[at : at + len(part)], part)  # integers below 2^53: exact in any order
            at += len(part)
        square = np.square(sums).sum(axis=1)
        far = np.floor(np.sqrt(np.minimum(count, self.most) * float(self.longest) ** 2))
        over = square > far * far
        sums[over] = np.trunc(sums[over] * (far[over] / np.sqrt(square[over]) * (1 - 2.0**-40))[:, None])
        sums[np.square(sums).sum(axis=1) > far * far] = 0.0
        return sums

    def decode(self, total: Total) -> tuple[Floats, Floats]:
        """Return (second moments in squared steps, variances of their noise)."""
        d = self.size
        upper = np.triu_indices(d, 1)
        rows, columns = (np.concatenate([np.arange(d), upper[side]]) for side in (0, 1))
        found, variance = np.empty((2, d, d))
        found[rows, columns] = found[columns, rows] = total.values
        variance[rows, columns] = variance[columns, rows] = total.deviations**2
        return found, variance
