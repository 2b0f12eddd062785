"""Results of Lou & Cheung 2018: laws of sampled columns, Theorem 1's bound, and the curvature that it needs (Propositions 3 and 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.columns import Columns, add_column, column_squares, scores
from unpooled.kernels.compiled import njit
from unpooled.papers.frank_wolfe.problem import labels_of, radii_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike
    from scipy.sparse import csc_array, csc_matrix

    from unpooled.kernels.columns import Index, Matrix, Vector

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
        """Return the smallest inclusion probability."""
        return float(self.probabilities.min())

    @classmethod
    def every(cls, d: int) -> Sampling:
        """All columns, always."""
        columns = np.arange(d)
        return cls(np.ones(d), lambda: lambda _rng, _t: columns, full=True)

    @classmethod
    def uniform(cls, d: int) -> Sampling:
        """Return one column, each with the same probability."""
        return cls.nice(d, 1)

    @classmethod
    def nice(cls, d: int, tau: int) -> Sampling:
        """Return a set of tau columns, each such set with the same probability."""
        return cls.distributed(np.zeros(d, dtype=np.int64), tau)

    @classmethod
    def distributed(cls, groups: ArrayLike, tau: int) -> Sampling:
        """Return a sampling that draws a set of tau columns in every group, each set with the same probability; groups draw independently.

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
            inner, none = self.start(), np.zeros(0, dtype=np.int64)  # a round may draw no block at all
            return lambda rng, t: np.concatenate([none, *(members[k] for k in inner(rng, t))])

        return Sampling(self.probabilities[labels], start, full=self.full)


@njit(nogil=True)
def _shuffle(permutation: Index, starts: Index, sizes: Index, uniforms: Matrix) -> Index:
    """Return the first steps of a Fisher-Yates shuffle in every group: a uniform subset, wherever the last one left the order."""
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


def bound(t: ArrayLike, initial: float, curvature: float, probability: float, inexactness: float = 0.0) -> Vector:
    """Theorem 1 of Lou & Cheung: the expected f(x_t) - f* is at most this, if f(x_0) - f* = initial (the gap at x_0 is an upper bound)."""
    rounds = np.asarray(t, dtype=np.float64)
    found: Vector = 2 * (initial + (1 + inexactness) * curvature / probability) / (probability * rounds + 2)
    return found


def interactions(
    matrix: Columns | Matrix | csc_array | csc_matrix,
    radii: ArrayLike,
    *,
    blocks: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    exact: bool = False,
    smoothness: float = 1.0,
) -> tuple[float, float, float]:
    r"""Return the constants of Propositions 3 and 4 of Lou & Cheung: how far blocks move predictions, alone and together.

    :math:`\mu_1` is the largest :math:`|A_k (s - x)|^2/n` of one block, :math:`\mu_2` the largest product
    :math:`(A_k(s-x))\cdot(A_l(s-x))/n` of two blocks of one group, :math:`\mu_3` of two blocks of different groups. A ball's differences are
    the ball of twice the radius, so :math:`\mu_1 = 4\eta_k^2 |a_j|^2/n` is exact from column norms; the other two are bounded by them
    (Cauchy-Schwarz), or with ``exact`` come from the Gram matrix, in n d^2 operations. ``smoothness`` bounds the
    second derivative of the loss: 1 for least squares, 1/4 for the logistic loss.
    """
    held = Columns.of(matrix)
    n, d = held.shape
    owner = labels_of(blocks, d)
    radius = radii_of(radii, int(owner.max()) + 1)
    party = labels_of(groups, d)
    reach = 2 * radius[owner] * np.sqrt(column_squares(held.data, held.starts, n, d) * (smoothness / n))
    first = float((reach**2).max())
    second = third = 0.0
    if exact:
        weight = 2 * radius[owner] * math.sqrt(smoothness / n)
        for j in range(d):
            column = np.zeros(n)
            add_column(held.data, held.rows, held.starts, n, j, weight[j], column)
            product = np.abs(scores(held, None, column)) * weight
            other, near = owner != owner[j], party == party[j]
            second = max(second, float(product[other & near].max(initial=0.0)))
            third = max(third, float(product[~near].max(initial=0.0)))
        return first, second, third
    tallest = np.zeros(radius.size)
    np.maximum.at(tallest, owner, reach)
    home = np.zeros(radius.size, dtype=np.int64)
    home[owner] = party
    ordered = np.argsort(-tallest, kind="stable")
    for a, k in enumerate(ordered):  # the first partner of each kind is the largest
        later = ordered[a + 1 :]
        same = later[home[later] == home[k]]
        away = later[home[later] != home[k]]
        second = max(second, float(tallest[k] * tallest[same[0]]) if same.size else 0.0)
        third = max(third, float(tallest[k] * tallest[away[0]]) if away.size else 0.0)
        if second and (third or party.max() == 0):
            break
    return first, second, third


def expected_curvature(constants: tuple[float, float, float], tau: int = 1, groups: int = 1) -> float:
    """Propositions 3 (one group) and 4 of Lou & Cheung: an upper bound of the expected curvature when each group samples tau of its blocks.

    One block in all (the ball) has tau = 1, however many of its columns are searched.
    """
    one, near, far = constants
    return groups * tau * one + groups * tau * (tau - 1) * near + groups * (groups - 1) * tau**2 * far
