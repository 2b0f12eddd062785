"""Which columns a round of block-coordinate Frank-Wolfe searches: laws of random sets and their inclusion probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Index = NDArray[np.int64]
    Draw = Callable[[np.random.Generator, int], Index]


@dataclass(frozen=True)
class Sampling:
    """Which columns a round searches: a law of random sets, the same in every round, independent between rounds."""

    #: The probability of every column to be in the set.
    probabilities: Vector
    #: Gives a fresh draw(generator, round) -> columns.
    start: Callable[[], Draw]
    #: Every round searches every column.
    full: bool = False

    @property
    def least(self) -> float:
        """The smallest inclusion probability."""
        return float(self.probabilities.min())

    @classmethod
    def every(cls, d: int) -> Sampling:
        """All columns, always."""
        columns = np.arange(d)
        return cls(np.ones(d), lambda: lambda _rng, _t: columns, full=True)

    @classmethod
    def uniform(cls, d: int) -> Sampling:
        """One column, each with the same probability."""
        return cls.nice(d, 1)

    @classmethod
    def nice(cls, d: int, tau: int) -> Sampling:
        """A set of tau columns, each such set with the same probability."""
        return cls.distributed(np.zeros(d, dtype=np.int64), tau)

    @classmethod
    def distributed(cls, groups: ArrayLike, tau: int) -> Sampling:
        """In every group of columns a set of tau, each with the same probability; groups draw independently.

        A column's inclusion probability is tau over the size of its group (of K equal groups: K tau / d).
        """
        labels = np.unique(np.asarray(groups), return_inverse=True)[1]
        sizes = np.bincount(labels)
        if not 1 <= tau <= sizes.min():
            msg = f"tau = {tau}, but groups have {sizes.min()} columns and more"
            raise ValueError(msg)
        order, ends = np.argsort(labels, kind="stable"), np.cumsum(sizes)
        starts = ends - sizes

        def start() -> Draw:
            permutation = order.copy()

            def draw(rng: np.random.Generator, _t: int) -> Index:
                return _shuffle(permutation, starts, sizes, rng.random((sizes.size, tau)))

            return draw

        return cls(tau / sizes[labels], start)

    @classmethod
    def of(cls, draw: Draw, probabilities: ArrayLike) -> Sampling:
        """Any law, with the inclusion probability of every column as the caller states it."""
        stated = np.asarray(probabilities, dtype=np.float64)
        if not (stated > 0).all() or (stated > 1).any():
            raise ValueError("every column needs a probability above 0 and at most 1")
        return cls(stated, lambda: draw)

    def of_blocks(self, blocks: ArrayLike) -> Sampling:
        """Whole blocks instead of columns: this sampling's k-th column stands for all columns of the k-th block."""
        labels = np.unique(np.asarray(blocks), return_inverse=True)[1]
        members = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])

        def start() -> Draw:
            inner = self.start()
            return lambda rng, t: np.concatenate([members[k] for k in inner(rng, t)])

        return Sampling(self.probabilities[labels], start, full=self.full)


@njit(nogil=True)
def _shuffle(permutation: Index, starts: Index, sizes: Index, uniforms: Matrix) -> Index:
    """The first steps of a Fisher-Yates shuffle in every group: a uniform subset, wherever the last one left the order."""
    groups, tau = uniforms.shape
    out = np.empty(groups * tau, dtype=np.int64)
    for k in range(groups):
        for i in range(tau):
            here = starts[k] + i
            there = here + int(uniforms[k, i] * (sizes[k] - i))
            out[k * tau + i] = permutation[there]
            permutation[there] = permutation[here]
            permutation[here] = out[k * tau + i]
    return out
