r"""Block-coordinate Frank-Wolfe under arbitrary sampling (Lou & Cheung 2018, Algorithm 1), for linear models.

Minimises a smooth convex f over a product of l1 balls, one per block of columns: :math:`f(x) = |Ax - y|^2 / 2n`, or the mean
logistic loss. One block is the LASSO in its constrained form; more blocks with radii that add up to the same are a smaller
set, and a different problem. The matrix is dense (by columns) or sparse (CSC) and never made dense.

A round searches a random set of columns. In every block that has some of them it finds the best signed vertex
:math:`\pm\eta_k e_j`, and all these blocks step by one common :math:`\gamma`: :math:`2/(p t + 2)` with p the smallest probability
that a column is searched, or by line search. A block stays where it is if the vertex found does not lead downhill. Only so does
the expected gap obey Theorem 1 when part of a block is searched: the best vertex is found with probability at least p, and a
worse one does no harm to first order. Without it (``descend=False``) the iterates of a sampled ball settle at the mean of
the vertices found, which is not the optimum.

With a temperature vertices are picked at random, as private picks are: the better, the likelier (the exponential mechanism).

What a round costs:

* all columns, least squares: the gradient :math:`A^T(Ax - y)` is kept up to date through the rows that the chosen column
  touches (after Raff, Khanna & Lu 2023), or for a dense matrix by products :math:`A^T a_j` that are made once per column
  chosen, several likely ones in one pass over the matrix. The factor :math:`1-\gamma` is one lazy scalar. What is left is one
  search for the largest of d numbers, and most of these are passed over by bounds. So is most of the noise of a noisy pick, which
  for a dense matrix costs more where it leads to ever new columns;
* sampled columns, least squares, one ball: the nonzeros of the sampled columns;
* several blocks of which some step: these, and the nonzeros of the present support of the blocks that step;
* logistic loss: in addition the number of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.linalg import blas

from unpooled.kernels.columns import Columns, add_column, column_dot, column_square, column_squares, scores
from unpooled.kernels.compiled import njit
from unpooled.kernels.samplings import Sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray
    from scipy.sparse import csc_array, csc_matrix

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Index = NDArray[np.int64]
    Places = NDArray[np.int32] | NDArray[np.int64]
    Oracle = Callable[[Index, Vector], Vector]

#: Below this the lazy scale is multiplied out.
_LEAST = 1e-100
#: Products A^T a_j of a dense matrix: so many made in one pass, and so many numbers kept.
_AHEAD, _KEPT = 16, 1 << 25
#: The same where columns are picked with noise and foreseen.
_NOISY_AHEAD = 64
#: Rows of a sparse matrix: those of so many columns are listed in one pass, and all of them after so many passes.
_ROWS_AHEAD, _PASSES = 64, 8
#: Columns that share one bound in a search.
_TILE = 256
#: Columns that share one bound where a noisy pick looks closer.
_PART = 16
_ROUNDING = 1e-14
_NEWTON = 60


# --- theory -------------------------------------------------------------------------------------------------------------


def bound(t: ArrayLike, initial: float, curvature: float, probability: float, inexactness: float = 0.0) -> Vector:
    """Theorem 1: the expected f(x_t) - f* is at most this, if f(x_0) - f* = initial (the gap at x_0 is an upper bound)."""
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
    r"""The constants of Propositions 3 and 4: how far blocks move predictions, alone and together.

    :math:`\mu_1` is the largest :math:`|A_k (s - x)|^2/n` of one block, :math:`\mu_2` the largest product
    :math:`(A_k(s-x))\cdot(A_l(s-x))/n` of two blocks of one group, :math:`\mu_3` of two blocks of different groups. A ball's differences are
    the ball of twice the radius, so :math:`\mu_1 = 4\eta_k^2 |a_j|^2/n` is exact from column norms; the other two are bounded by them
    (Cauchy-Schwarz), or with ``exact`` come from the Gram matrix, in n d^2 operations. ``smoothness`` bounds the
    second derivative of the loss: 1 for least squares, 1/4 for the logistic loss.
    """
    held = Columns.of(matrix)
    n, d = held.shape
    owner = _labels(blocks, d)
    radius = _radii(radii, int(owner.max()) + 1)
    party = _labels(groups, d)
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
    """Propositions 3 (one group) and 4: an upper bound of the expected curvature when each group samples tau of its blocks.

    One block in all (the ball) has tau = 1, however many of its columns are searched.
    """
    one, near, far = constants
    return groups * tau * one + groups * tau * (tau - 1) * near + groups * (groups - 1) * tau**2 * far


# --- results ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """An iterate, with only its nonzero coefficients."""

    #: Rounds made to get here.
    n_iter: int
    indices: Index
    values: Vector
    objective: float
    #: Frank-Wolfe's duality gap: at least objective - minimum.
    gap: float
    #: Columns in all.
    size: int

    def dense(self) -> Vector:
        """All coefficients."""
        full = np.zeros(self.size)
        full[self.indices] = self.values
        return full


@dataclass(frozen=True)
class Fit(Point):
    """The last iterate, and those of the recorded rounds."""

    #: f(0), which the tolerance refers to.
    scale: float
    converged: bool
    #: The smallest inclusion probability, which the standard step uses.
    probability: float
    path: tuple[Point, ...]


# --- the engine ---------------------------------------------------------------------------------------------------------


def frank_wolfe(
    matrix: Columns | Matrix | csc_array | csc_matrix,
    y: ArrayLike,
    radius: ArrayLike,
    *,
    blocks: ArrayLike | None = None,
    sampling: Sampling | None = None,
    loss: Literal["squared", "logistic"] = "squared",
    step_rule: Literal["standard", "line-search"] = "standard",
    steps: int = 1000,
    tolerance: float = 0.0,
    seed: int | np.random.Generator = 0,
    oracle: Oracle | None = None,
    temperature: float = 0.0,
    descend: bool = True,
    record: int | Sequence[int] = 0,
    watch: Callable[[Point], object] | None = None,
) -> Fit:
    """Minimise |A x - y|^2 / 2n (or the mean logistic loss, y in {-1, 1}) over l1 balls, from x = 0.

    Parameters
    ----------
    matrix
        Dense (column-major, or it is copied) or scipy CSC, n x d; or made ready by ``Columns.of``.
    radius
        Of the ball; with blocks, one radius per block (in the order of sorted labels), or their sum, shared equally.
    blocks
        A label per column; each block has a ball of its own. Default: one ball.
    sampling
        Which columns a round searches; default all of them.
    step_rule
        2 / (p t + 2), p the smallest inclusion probability, or the exact minimum along the direction.
    tolerance
        Stop when the gap is at most this times f(0). Checked in every round if all columns are searched exactly (least
        squares), otherwise when a round is recorded, because a gap needs all columns.
    seed
        Of the sampled columns, which depend on nothing else; or a generator.
    oracle
        Called as oracle(columns, gradient entries), returns the entries by which vertices are chosen instead: an inexact linear
        oracle. The step itself is still judged by the exact ones.
    temperature
        Pick a block's vertex by the exponential mechanism, -+e_j with probability proportional to exp(+-g_j / temperature), g the
        gradient entries searched: how private picks behave, in double precision and from a seed. The picks of a party come
        from ``privacy.noise.choose``. Gaps remain those of the best vertex.
    descend
        Whether blocks stay where they are if their vertex does not lead downhill (see the module). Where all columns are
        searched, a noisy vertex may; then all blocks stay if their vertices together do not.
    record
        Keep the iterate after every so many rounds, or after these rounds.
    watch
        Called with every recorded point; True ends the run.
    """
    held = Columns.of(matrix)
    n, d = held.shape
    target = _target(y, held.shape, loss)
    if step_rule not in {"standard", "line-search"}:
        msg = f"unknown step rule {step_rule!r}: standard or line-search"
        raise ValueError(msg)
    owner = _labels(blocks, d)
    law = Sampling.every(d) if sampling is None else sampling
    if law.probabilities.shape != (d,):
        msg = f"a sampling of {law.probabilities.size} columns for a matrix of {d}"
        raise ValueError(msg)
    radii = _radii(radius, int(owner.max()) + 1)
    if not 0 <= temperature < math.inf or (temperature > 0 and oracle is not None):
        raise ValueError("a temperature is finite and at least 0, and comes without an oracle")
    problem = _Problem(held, target, owner, radii, step_rule == "line-search", law.least, descend)
    rng = np.random.default_rng(seed)
    engine: _Full | _Ball | _Blocks
    if loss == "squared" and law.full and oracle is None:
        engine = _Full(problem, temperature * n, int(rng.integers(2**63)) if temperature else 0)
    else:
        oracle = _exponential(temperature, rng.spawn(1)[0]) if temperature else oracle
        if loss == "squared" and radii.size == 1:
            engine = _Ball(problem, law, rng, oracle)
        else:
            engine = _Blocks(problem, law, rng, oracle, logistic=loss == "logistic")
    scale = math.log(2) if loss == "logistic" else float(target @ target) / (2 * n)
    every = range(record, steps + 1, max(record, 1)) if isinstance(record, int) else record
    wanted = {int(t) for t in every if 0 <= t <= steps} if record != 0 else set()
    path: list[Point] = []
    for stop in sorted({*wanted, steps}):
        point = engine.run(stop, tolerance * scale)
        if point.n_iter in wanted:
            path.append(point)
            if watch is not None and watch(point) is True:
                break
        if point.gap <= tolerance * scale:
            break
    return Fit(
        point.n_iter, point.indices, point.values, point.objective, point.gap, d,
        scale, point.gap <= tolerance * scale, law.least, tuple(path),
    )  # fmt: skip


def _target(y: ArrayLike, shape: tuple[int, int], loss: str) -> Vector:
    target = np.ascontiguousarray(y, dtype=np.float64)
    if target.shape != shape[:1] or min(shape) == 0:
        msg = f"y has shape {target.shape}, the matrix {shape}"
        raise ValueError(msg)
    if loss not in {"squared", "logistic"}:
        msg = f"unknown loss {loss!r}: squared or logistic"
        raise ValueError(msg)
    if loss == "logistic" and not np.isin(target, (-1.0, 1.0)).all():
        raise ValueError("the target of a logistic loss is -1 or 1")
    return target


def _labels(labels: ArrayLike | None, d: int) -> Index:
    if labels is None:
        return np.zeros(d, dtype=np.int64)
    given = np.asarray(labels)
    if given.shape != (d,):
        msg = f"{given.size} labels for {d} columns"
        raise ValueError(msg)
    return np.unique(given, return_inverse=True)[1].astype(np.int64)


def _radii(radius: ArrayLike, count: int) -> Vector:
    given = np.asarray(radius, dtype=np.float64)
    radii = np.full(count, float(given) / count) if given.ndim == 0 else given
    if radii.shape != (count,) or not (radii > 0).all() or not np.isfinite(radii).all():
        msg = f"{count} positive radii are needed, or their sum"
        raise ValueError(msg)
    return radii


def _exponential(temperature: float, rng: np.random.Generator) -> Oracle:
    """The exponential mechanism as an oracle: the largest of all scores with Gumbel noise."""

    def oracle(_columns: Index, slopes: Vector) -> Vector:
        ahead, back = (side / temperature + rng.gumbel(size=slopes.size) for side in (slopes, -slopes))
        drawn = np.maximum(ahead, back)
        found: Vector = np.where(ahead > back, 1.0, -1.0) * (drawn - drawn.min(initial=0.0) + 1.0)
        return found

    return oracle


@dataclass(frozen=True)
class _Problem:
    columns: Columns
    target: Vector
    owner: Index
    radii: Vector
    search: bool
    probability: float
    descend: bool

    def step(self, t: int) -> float:
        """The standard step, or -1 for a line search."""
        return -1.0 if self.search else 2.0 / (self.probability * t + 2.0)


class _Full:
    """All columns, least squares: the gradient is kept."""

    def __init__(self, problem: _Problem, temperature: float = 0.0, key: int = 0) -> None:
        held, (n, d) = problem.columns, problem.columns.shape
        self._problem, self._t = problem, 0
        self._temperature, self._key = temperature, key
        self._moments = scores(held, None, problem.target)  # A^T y
        self._moved, self._x = np.zeros(d), np.zeros(d)  # A^T A x and x, both divided by the scale
        #: scale, |Ax|^2, y.Ax, |y|^2, n times the gap
        self._state = np.array([1.0, 0.0, 0.0, float(problem.target @ problem.target), np.inf])
        # Tiles are stretches of the columns in the order of their blocks, and never of two blocks.
        sizes = np.bincount(problem.owner)
        order, self._ends = np.argsort(problem.owner, kind="stable"), np.cumsum(-(-sizes // _TILE))
        starts = [np.arange(end - size, end, _TILE) for size, end in zip(sizes, np.cumsum(sizes), strict=True)]
        self._edges, home = np.concatenate([*starts, [d]]), np.empty(d, dtype=np.int32)
        home[order] = np.repeat(np.arange(self._ends[-1]), np.diff(self._edges))
        #: Columns by position, or none if they are in order already; and in which tile they are.
        self._order, self._home = order if (np.diff(order) < 0).any() else np.empty(0, dtype=np.int64), home
        self._tops = np.empty(self._ends[-1])
        for b in range(self._tops.size):
            self._tops[b] = _tile_top(self._moved, self._moments, 1.0, self._order, self._edges[b], self._edges[b + 1])
        #: No score of a tile is larger in magnitude than its bound.
        self._bounds = self._tops * (1 + _ROUNDING)
        self._chosen, self._weights = np.zeros(problem.radii.size, dtype=np.int64), np.zeros(problem.radii.size)
        self._work = np.zeros(n if held.sparse else 1)
        #: Where a column's product is kept, or that its rows are listed; -1: not yet.
        self._slots, self._passes = np.full(d, -1, dtype=np.int64), 0
        #: Rows that are listed: values, columns, where a row begins (-1: it is not listed) and ends.
        self._rows = np.zeros(0), np.zeros(0, dtype=np.int32), np.full(n, -1), np.full(n, -1)
        room = 0 if held.sparse else min(d, max(_KEPT // d, _NOISY_AHEAD * (problem.radii.size + 1)))
        self._products, self._kept = np.empty((room, d)), np.full(room, -1, dtype=np.int64)
        self._next = self._looked = 0

    def run(self, stop: int, limit: float) -> Point:
        problem = self._problem
        held = problem.columns
        while True:
            self._t, missing = _rounds(
                held.data, held.rows, held.starts, *self._rows, self._products, self._slots,
                self._moments, self._moved, self._x, self._state, self._bounds, self._tops,
                self._order, self._home, self._edges, self._ends, problem.radii, self._chosen, self._weights, self._work,
                self._temperature, self._key, problem.descend, problem.search, self._t, stop, limit * held.shape[0],
            )  # fmt: skip
            if missing < 0:
                return self.point(self._t)
            self._make(missing)

    def _make(self, missing: int) -> None:
        """What is needed to follow a column into the gradient: for it, and for those most likely to be next."""
        held = self._problem.columns
        promise = np.abs(self._state[0] * self._moved - self._moments)
        promise[self._slots >= 0] = -1.0
        promise[self._chosen] = np.where(self._slots[self._chosen] < 0, np.inf, -1.0)  # of this round
        promise[missing] = np.inf
        count = min(_ROWS_AHEAD if held.sparse else _AHEAD, promise.size)
        if self._temperature and not held.sparse:
            foreseen = self._foreseen()
            promise[foreseen] = np.inf
            count = min(max(count, foreseen.size + self._chosen.size), promise.size)
        likely = np.argpartition(promise, -count)[-count:]
        likely = likely[promise[likely] >= 0]
        if held.sparse:
            self._passes += 1
            # Noise picks ever new columns, which soon reach every row.
            few = self._passes < (2 if self._temperature else _PASSES)
            likely = likely if few else np.flatnonzero(self._slots < 0)
            self._rows = _list_rows(held.data, held.rows, held.starts, likely, *self._rows)
            self._slots[likely] = 0
            return
        places = (self._next + np.arange(likely.size)) % self._kept.size  # the oldest make room
        self._next = int(places[-1] + 1) % self._kept.size
        out = self._kept[places]
        self._slots[out[out >= 0]] = -1
        dense = held.dense()
        self._products[places] = blas.dgemm(1.0, dense, dense[:, likely], trans_a=True).T
        self._kept[places], self._slots[likely] = likely, places

    def _foreseen(self) -> Index:
        """Columns that the next rounds will likely pick: for somewhat more rounds than the last such look was good for."""
        found = np.empty(_NOISY_AHEAD, dtype=np.int64)
        rounds, self._looked = self._t - self._looked + _AHEAD, self._t
        number = _foresee(
            self._problem.columns.data, self._products, self._slots, self._moments, self._moved, self._state[0],
            self._order, self._edges, self._ends, self._problem.radii, self._temperature, self._key, self._t, rounds, found,
        )  # fmt: skip
        return found[:number]

    def point(self, t: int) -> Point:
        n = self._problem.columns.shape[0]
        scale, square, cross, total, gap = (float(value) for value in self._state)
        support = np.flatnonzero(self._x)
        objective = (square - 2 * cross + total) / (2 * n)
        return Point(t, support, scale * self._x[support], objective, gap / n, self._x.size)

    def gradient(self) -> Vector:
        """The gradient of f as it is kept."""
        found: Vector = (self._state[0] * self._moved - self._moments) / self._problem.columns.shape[0]
        return found


@njit(nogil=True)
def _list_rows(
    data: Vector,
    rows: Places,
    starts: Places,
    columns: Index,
    row_data: Vector,
    row_columns: NDArray[np.int32],
    begins: Index,
    ends: Index,
) -> tuple[Vector, NDArray[np.int32], Index, Index]:
    """The lists of rows, extended by the rows that these columns touch: one pass over the nonzeros."""
    new = np.zeros(begins.size, dtype=np.uint8)
    for j in columns:
        for e in range(starts[j], starts[j + 1]):
            new[rows[e]] = begins[rows[e]] < 0
    places, count = np.empty(rows.size + 1, dtype=rows.dtype), 0
    for e in range(rows.size):  # without a branch: an entry that does not count is written over
        places[count] = e
        count += int(new[rows[e]])
    for e in places[:count]:
        ends[rows[e]] += 1
    at = row_data.size
    for i in range(begins.size):
        if new[i]:
            begins[i], at = at, at + ends[i] + 1
            ends[i] = begins[i]
    values, owners = np.empty(at), np.empty(at, dtype=np.int32)
    values[: row_data.size], owners[: row_data.size] = row_data, row_columns
    j = 0
    for e in places[:count]:
        while starts[j + 1] <= e:
            j += 1
        values[ends[rows[e]]], owners[ends[rows[e]]] = data[e], j
        ends[rows[e]] += 1
    return values, owners, begins, ends


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz", "nnan"})
def _tile_top(moved: Vector, moments: Vector, scale: float, order: Index, low: int, high: int) -> float:
    """The largest score's magnitude at these positions."""
    top = 0.0
    if order.size:
        for j in order[low:high]:
            top = max(top, abs(scale * moved[j] - moments[j]))
        return top
    some, others = moved[low:high], moments[low:high]
    for j in range(some.size):
        top = max(top, abs(scale * some[j] - others[j]))
    return top


@njit(inline="always")
def _column(order: Index, position: int) -> int:
    return order[position] if order.size else position


@njit(nogil=True)
def _largest(
    moved: Vector, moments: Vector, scale: float, bounds: Vector, order: Index, edges: Index, begin: int, end: int
) -> int:
    """Where |scale * moved - moments| is largest in these tiles; bounds are made exact where they are looked behind.

    So none of them stays above the largest score.
    """
    first = begin
    for b in range(begin, end):
        if bounds[b] > bounds[first]:
            first = b
    best, tile = -1.0, first
    for step in range(begin - 1, end):
        b = first if step < begin else step
        if bounds[b] <= best or step == first:
            continue
        bounds[b] = _tile_top(moved, moments, scale, order, edges[b], edges[b + 1]) * (1 + _ROUNDING)
        if bounds[b] > best:
            best, tile = bounds[b], b
    where, top = 0, -1.0
    for position in range(edges[tile], edges[tile + 1]):
        j = _column(order, position)
        value = abs(scale * moved[j] - moments[j])
        if value > top:
            where, top = j, value
    return where


@njit(nogil=True)
def _vertices(
    moments: Vector,
    moved: Vector,
    scale: float,
    bounds: Vector,
    order: Index,
    edges: Index,
    ends: Index,
    radii: Vector,
    chosen: Index,
    weights: Vector,
) -> float:
    """The best vertex of every block; n times the gradient times all of them."""
    downhill, begin = 0.0, 0
    for k in range(radii.size):
        j = _largest(moved, moments, scale, bounds, order, edges, begin, ends[k])
        slope = scale * moved[j] - moments[j]
        chosen[k], weights[k], begin = j, -radii[k] if slope > 0 else radii[k], ends[k]
        downhill += weights[k] * slope
    return downhill


@njit(inline="always")
def _mixed(z: np.uint64) -> np.uint64:
    """SplitMix64's output function (Steele, Lea & Flood 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(nogil=True)
def _race(  # noqa: C901, PLR0912 - a tile as a whole, then its parts
    moments: Vector,
    moved: Vector,
    scale: float,
    bounds: Vector,
    order: Index,
    edges: Index,
    begin: int,
    end: int,
    top: float,
    temperature: float,
    seed: np.uint64,
) -> tuple[int, float]:
    """A column and the sign of a score, with probability proportional to exp(sign * score / temperature), in these tiles.

    Every candidate has a clock that rings at exponential times, and a weight w = exp((sign * score - top) / temperature) <= 1:
    the least time / w wins. A tile is left once not even the weight that its bound allows could win. From the first ring
    in a tile on its parts are on their own. Random numbers belong to parts of tiles (SplitMix64), so the winner does not
    depend on the bounds, and stays the winner of this seed as long as scores change little.
    """
    first, stride, parts = begin, np.uint64(0x9E3779B97F4A7C15), np.empty(_TILE // _PART)
    for b in range(begin, end):
        if bounds[b] > bounds[first]:
            first = b
    least, winner, side = np.inf, 0, 1.0
    for step in range(begin - 1, end):
        b = first if step < begin else step
        if step == first:
            continue
        low, high, start, best = edges[b], edges[b + 1], 0.0, 0
        for turn in range(-2, -(-(high - low) // _PART)):  # the tile as a whole, its best part, the others
            part = max(turn, best) if turn < 0 else turn
            if turn == best:
                continue
            here, there, limit = low, high, bounds[b]
            if turn >= -1:
                here, there, limit = low + part * _PART, min(low + (part + 1) * _PART, high), parts[part]
            most = math.exp((limit - top) / temperature)
            time, candidates = start, 2 * (there - here)
            state = _mixed(_mixed(seed + np.uint64(b)) + np.uint64(part if turn >= -1 else _TILE))
            while time < least * most:
                state += stride
                time -= math.log((np.float64(_mixed(state) >> np.uint64(11)) + 0.5) * 2.0**-53) / candidates
                if not time < least * most:
                    break
                state += stride
                drawn = int(np.float64(_mixed(state) >> np.uint64(11)) * 2.0**-53 * candidates)
                j = _column(order, here + (drawn >> 1))
                score = scale * moved[j] - moments[j]
                sign = 1.0 if drawn & 1 else -1.0
                weight = math.exp((sign * score - top) / temperature)
                if time < least * weight:
                    least, winner, side = time / weight, j, sign
                if turn < -1:
                    break
            if turn >= -1:
                continue
            if not time < least * most:
                break
            start, bounds[b] = time, 0.0
            for other in range(-(-(high - low) // _PART)):
                here = low + other * _PART
                there = min(here + _PART, high)
                parts[other] = _tile_top(moved, moments, scale, order, here, there) * (1 + _ROUNDING)
                best = other if parts[other] > bounds[b] else best
                bounds[b] = max(bounds[b], parts[other])
    return winner, side


@njit(nogil=True)
def _noisy_vertices(
    moments: Vector,
    moved: Vector,
    scale: float,
    bounds: Vector,
    order: Index,
    edges: Index,
    ends: Index,
    radii: Vector,
    temperature: float,
    key: int,
    t: int,
    chosen: Index,
    weights: Vector,
) -> None:
    """Round t's noisy vertex of every block, whose bounds were made to stay below its best score."""
    begin, seed = 0, _mixed(np.uint64(key) + np.uint64(t))
    for k in range(radii.size):
        top = bounds[begin]
        for b in range(begin, ends[k]):
            top = max(top, bounds[b])
        j, sign = _race(moments, moved, scale, bounds, order, edges, begin, ends[k], top, temperature, seed)
        chosen[k], weights[k], begin = j, -sign * radii[k], ends[k]


@njit(nogil=True)
def _foresee(
    data: Vector,
    products: Matrix,
    slots: Index,
    moments: Vector,
    moved: Vector,
    scale: float,
    order: Index,
    edges: Index,
    ends: Index,
    radii: Vector,
    temperature: float,
    key: int,
    t: int,
    rounds: int,
    found: Index,
) -> int:
    """Columns of a dense matrix without a product that the next rounds will likely pick, with the noise of these rounds.

    Steps are standard ones, and a product that is missing is taken to be zero but for the column itself.
    """
    chosen, weights, count = np.empty(radii.size, dtype=np.int64), np.empty(radii.size), 0
    moved, bounds, none = moved.copy(), np.empty(edges.size - 1), np.empty(0, dtype=np.int64)
    n = data.size // moved.size
    for later in range(t, t + rounds):
        bounds[:] = np.inf
        _vertices(moments, moved, scale, bounds, order, edges, ends, radii, chosen, weights)
        _noisy_vertices(moments, moved, scale, bounds, order, edges, ends, radii, temperature, key, later, chosen, weights)
        gamma = 2.0 / (later + 2.0)
        scale *= 1.0 - gamma
        if scale < _LEAST:
            moved *= scale
            scale = 1.0
        for k in range(radii.size):
            j, pull = chosen[k], gamma * weights[k] / scale
            if slots[j] >= 0:
                moved += pull * products[slots[j]]
                continue
            moved[j] += pull * column_square(data, none, n, j)
            if not (found[:count] == j).any():
                if count == found.size:
                    return count
                found[count] = j
                count += 1
    return count


@njit(nogil=True)
def _through_rows(
    rows: Places,
    starts: Places,
    row_data: Vector,
    row_columns: NDArray[np.int32],
    row_begins: Index,
    row_ends: Index,
    chosen: Index,
    work: Vector,
    factor: float,
    moved: Vector,
) -> None:
    """Add factor * A^T m to the products, m in the workspace, which is left clean."""
    for j in chosen:
        for e in range(starts[j], starts[j + 1]):
            i = rows[e]
            pull = factor * work[i]
            work[i] = 0.0  # blocks may share rows
            if pull != 0.0:
                for f in range(row_begins[i], row_ends[i]):
                    moved[row_columns[f]] += pull * row_data[f]


@njit(nogil=True)
def _raise_bounds(
    rows: Places,
    begin: int,
    end: int,
    row_columns: NDArray[np.int32],
    row_begins: Index,
    row_ends: Index,
    moved: Vector,
    moments: Vector,
    scale: float,
    home: NDArray[np.int32],
    bounds: Vector,
) -> None:
    """Let the bounds hold for the columns that share a row with a chosen one."""
    for e in range(begin, end):
        for f in range(row_begins[rows[e]], row_ends[rows[e]]):
            j = row_columns[f]
            value = abs(scale * moved[j] - moments[j]) * (1 + _ROUNDING)
            bounds[home[j]] = max(bounds[home[j]], value)


@njit(nogil=True)
def _rounds(  # noqa: C901, PLR0912 - dense and sparse differ in three places
    data: Vector,
    rows: Places,
    starts: Places,
    row_data: Vector,
    row_columns: NDArray[np.int32],
    row_begins: Index,
    row_ends: Index,
    products: Matrix,
    slots: Index,
    moments: Vector,
    moved: Vector,
    x: Vector,
    state: Vector,
    bounds: Vector,
    tops: Vector,
    order: Index,
    home: NDArray[np.int32],
    edges: Index,
    ends: Index,
    radii: Vector,
    chosen: Index,
    weights: Vector,
    work: Vector,
    temperature: float,
    key: int,
    descend: bool,
    search: bool,
    t: int,
    stop: int,
    limit: float,
) -> tuple[int, int]:
    """Rounds from t to stop, or until n times the gap is at most the limit, or until a chosen column is not made ready (that one)."""
    sparse = starts.size > 0
    while True:
        scale, square, cross = state[0], state[1], state[2]
        downhill = _vertices(moments, moved, scale, bounds, order, edges, ends, radii, chosen, weights)
        gap = square - cross - downhill
        state[4] = max(gap, 0.0)
        if t >= stop or gap <= limit:
            return t, -1
        if temperature > 0:
            _noisy_vertices(moments, moved, scale, bounds, order, edges, ends, radii, temperature, key, t, chosen, weights)
        for j in chosen:
            if slots[j] < 0:
                return t, j  # and come back to this round, whose noise stays the same
        along, towards = 0.0, 0.0  # m . Ax, m . y
        for k in range(radii.size):
            along += weights[k] * scale * moved[chosen[k]]
            towards += weights[k] * moments[chosen[k]]
        if temperature > 0:
            gap = square - cross - (along - towards)
            if gap <= 0 and (descend or search):
                t += 1
                continue
        length = 0.0  # |m|^2
        if sparse:
            for k in range(radii.size):
                add_column(data, rows, starts, 0, chosen[k], weights[k], work)
            for k in range(radii.size):
                length += weights[k] * column_dot(data, rows, starts, 0, chosen[k], work)
        else:
            for k in range(radii.size):
                for other in range(radii.size):
                    length += weights[k] * weights[other] * products[slots[chosen[k]], chosen[other]]
        gamma = 2.0 / (t + 2.0)
        if search:
            away = length - 2 * along + square
            gamma = min(gap / away, 1.0) if away > 0 else 1.0
        keep = 1.0 - gamma
        state[1] = keep * keep * square + 2 * gamma * keep * along + gamma * gamma * length
        state[2] = keep * cross + gamma * towards
        scale *= keep
        if scale < _LEAST:
            moved *= scale
            x *= scale
            scale = 1.0
        state[0] = scale
        for k in range(radii.size):
            x[chosen[k]] += gamma * weights[k] / scale
        if sparse:
            # An entry that no chosen column reaches moves from g to keep * g - gamma * moment.
            for b in range(bounds.size):
                bounds[b] = (keep * bounds[b] + gamma * tops[b]) * (1 + _ROUNDING)
            _through_rows(rows, starts, row_data, row_columns, row_begins, row_ends, chosen, work, gamma / scale, moved)
            for j in chosen:
                begin, end = starts[j], starts[j + 1]
                _raise_bounds(rows, begin, end, row_columns, row_begins, row_ends, moved, moments, scale, home, bounds)
        else:
            bounds[:] = np.inf
            for k in range(radii.size):
                pull, product = gamma * weights[k] / scale, products[slots[chosen[k]]]
                for j in range(moved.size):
                    moved[j] += pull * product[j]
        t += 1


class _Sampled:
    """What both engines for sampled columns share."""

    def __init__(self, problem: _Problem, law: Sampling, rng: np.random.Generator, oracle: Oracle | None) -> None:
        d, count = problem.columns.shape[1], problem.radii.size
        self._problem, self._rng, self._oracle, self._t = problem, rng, oracle, 0
        self._draw = law.start()
        self._x = np.zeros(d)
        #: A chain of the support of every block: its first column, and the next of every column (-1: none, -2: not in it).
        self._heads, self._links = np.full(count, -1, dtype=np.int64), np.full(d, -2, dtype=np.int64)

    def run(self, stop: int, limit: float) -> Point:  # noqa: ARG002 - the gap is known to point() only
        while self._t < stop:
            self._round(np.asarray(self._draw(self._rng, self._t), dtype=np.int64))
            self._t += 1
        return self.point(self._t)

    def _round(self, columns: Index) -> None:
        raise NotImplementedError

    def point(self, t: int) -> Point:
        """The iterate, with its gap."""
        raise NotImplementedError

    def _chosen(self, columns: Index, slopes: Vector) -> Vector:
        return slopes if self._oracle is None else np.asarray(self._oracle(columns, slopes / self._problem.target.size))

    def _point(self, t: int, x: Vector, pulls: Vector, objective: float) -> Point:
        """From n times the derivatives by predictions."""
        problem, n = self._problem, self._problem.target.size
        support = np.flatnonzero(x)
        slopes = scores(problem.columns, None, pulls)
        tops = np.zeros(problem.radii.size)
        np.maximum.at(tops, problem.owner, np.abs(slopes))
        gap = float(x[support] @ slopes[support]) + float(problem.radii @ tops)
        return Point(t, support, x[support], objective, max(gap, 0.0) / n, x.size)


class _Ball(_Sampled):
    """Sampled columns of one ball, least squares: predictions and coefficients share one lazy scale."""

    def __init__(self, problem: _Problem, law: Sampling, rng: np.random.Generator, oracle: Oracle | None) -> None:
        super().__init__(problem, law, rng, oracle)
        self._predictions = np.zeros(problem.target.size)
        #: scale, |Ax|^2, y.Ax
        self._state = np.array([1.0, 0.0, 0.0])

    def _round(self, columns: Index) -> None:
        problem, held = self._problem, self._problem.columns
        step = problem.step(self._t)
        slopes = _residual_scores(
            held.data, held.rows, held.starts, columns, self._predictions, problem.target, self._state[0]
        )
        _ball_step(
            held.data, held.rows, held.starts, columns, slopes, self._chosen(columns, slopes), problem.target,
            problem.radii[0], step, problem.descend, self._predictions, self._x, self._heads, self._links, self._state,
        )  # fmt: skip

    def point(self, t: int) -> Point:
        target = self._problem.target
        residuals = self._state[0] * self._predictions - target
        return self._point(t, self._state[0] * self._x, residuals, float(residuals @ residuals) / (2 * target.size))


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _dense_residual(column: Vector, predictions: Vector, target: Vector, scale: float) -> float:
    total = 0.0
    for i in range(column.size):
        total += column[i] * (scale * predictions[i] - target[i])
    return total


@njit(nogil=True)
def _residual_scores(
    data: Vector, rows: Places, starts: Places, columns: Index, predictions: Vector, target: Vector, scale: float
) -> Vector:
    """a_j . (scale * predictions - target)."""
    n, out = target.size, np.empty(columns.size)
    for k in range(columns.size):
        j = columns[k]
        if starts.size:
            total = 0.0
            for e in range(starts[j], starts[j + 1]):
                total += data[e] * (scale * predictions[rows[e]] - target[rows[e]])
            out[k] = total
        else:
            out[k] = _dense_residual(data[j * n : (j + 1) * n], predictions, target, scale)
    return out


@njit(nogil=True)
def _ball_step(
    data: Vector,
    rows: Places,
    starts: Places,
    columns: Index,
    slopes: Vector,
    chosen: Vector,
    target: Vector,
    radius: float,
    step: float,
    descend: bool,
    predictions: Vector,
    x: Vector,
    heads: Index,
    links: Index,
    state: Vector,
) -> None:
    if columns.size == 0:
        return
    scale, square, cross = state[0], state[1], state[2]
    best = 0
    for k in range(columns.size):
        if abs(chosen[k]) > abs(chosen[best]):
            best = k
    j, slope = columns[best], slopes[best]
    weight = -radius if chosen[best] > 0 else radius
    gap = square - cross - weight * slope
    if descend and gap <= 0:
        return
    towards = weight * column_dot(data, rows, starts, target.size, j, target)
    along = weight * slope + towards
    length = weight * weight * column_square(data, starts, target.size, j)
    gamma = step
    if gamma < 0:
        away = length - 2 * along + square
        gamma = min(max(gap / away, 0.0), 1.0) if away > 0 else (1.0 if gap > 0 else 0.0)
    keep = 1.0 - gamma
    state[1] = keep * keep * square + 2 * gamma * keep * along + gamma * gamma * length
    state[2] = keep * cross + gamma * towards
    scale *= keep
    if scale < _LEAST:
        k = heads[0]
        while k >= 0:
            x[k] *= scale
            k = links[k]
        predictions *= scale
        scale = 1.0
    state[0] = scale
    if links[j] == -2:  # noqa: PLR2004 - not in the chain
        links[j] = heads[0]
        heads[0] = j
    x[j] += gamma * weight / scale
    add_column(data, rows, starts, target.size, j, gamma * weight / scale, predictions)


class _Blocks(_Sampled):
    """Sampled columns of several blocks, or the logistic loss: predictions are changed through the support of each block."""

    def __init__(
        self, problem: _Problem, law: Sampling, rng: np.random.Generator, oracle: Oracle | None, *, logistic: bool
    ) -> None:
        super().__init__(problem, law, rng, oracle)
        n, count = problem.target.size, problem.radii.size
        self._logistic = logistic
        self._predictions, self._direction = np.zeros(n), np.zeros(n)
        self._touched, self._mark = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
        self._vertices, self._moving = np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=np.int64)
        self._weights = np.zeros(count)

    def _pulls(self) -> Vector:
        target = self._problem.target
        if not self._logistic:
            return self._predictions - target
        return -target * np.exp(-np.logaddexp(0.0, target * self._predictions))

    def _round(self, columns: Index) -> None:
        problem, held = self._problem, self._problem.columns
        matrix = (held.data, held.rows, held.starts)
        # Least squares has residuals where they are asked for, without a pass over all rows.
        pulls, target = (
            (self._pulls(), np.zeros_like(problem.target)) if self._logistic else (self._predictions, problem.target)
        )
        slopes = _residual_scores(*matrix, columns, pulls, target, 1.0)
        moving, touched, slope, length = _turn(
            *matrix, columns, slopes, self._chosen(columns, slopes), problem.owner, problem.radii, problem.descend,
            pulls, target, self._x, self._heads, self._links, self._vertices, self._weights, self._moving,
            self._direction, self._touched, self._mark,
        )  # fmt: skip
        gamma = problem.step(self._t)
        if gamma < 0:
            if slope >= 0:
                gamma = 0.0
            elif self._logistic:
                gamma = _logistic_search(problem.target * self._predictions, problem.target * self._direction)
            else:
                gamma = min(-slope / length, 1.0) if length > 0 else 1.0
        _go(
            gamma, self._x, self._heads, self._links, self._vertices, self._weights, self._moving[:moving],
            self._predictions, self._direction, self._touched[:touched], self._mark,
        )  # fmt: skip

    def point(self, t: int) -> Point:
        target = self._problem.target
        if self._logistic:
            objective = float(np.logaddexp(0.0, -target * self._predictions).mean())
        else:
            objective = float(((self._predictions - target) ** 2).mean()) / 2
        return self._point(t, self._x.copy(), self._pulls(), objective)


@njit(nogil=True)
def _turn(  # noqa: C901 - one pass over blocks, one over their supports
    data: Vector,
    rows: Places,
    starts: Places,
    columns: Index,
    slopes: Vector,
    chosen: Vector,
    owner: Index,
    radii: Vector,
    descend: bool,
    pulls: Vector,
    target: Vector,
    x: Vector,
    heads: Index,
    links: Index,
    vertices: Index,
    weights: Vector,
    moving: Index,
    direction: Vector,
    touched: Index,
    mark: NDArray[np.bool_],
) -> tuple[int, int, float, float]:
    """The direction of the sampled blocks in predictions: how many blocks and rows move, n times the slope, squared length."""
    n, blocks = target.size, 0
    for i in range(columns.size):
        k = owner[columns[i]]
        if vertices[k] < 0:
            moving[blocks] = k
            blocks += 1
            vertices[k] = i
        elif abs(chosen[i]) > abs(chosen[vertices[k]]):
            vertices[k] = i
    kept, touches, slope = 0, 0, 0.0
    here = np.empty(1, dtype=np.int64)
    for b in range(blocks):
        k = moving[b]
        i = vertices[k]
        j = columns[i]
        weight = -radii[k] if chosen[i] > 0 else radii[k]
        change = weight * slopes[i]
        m = heads[k]
        while m >= 0:
            here[0] = m
            if x[m] != 0.0:
                change -= x[m] * _residual_scores(data, rows, starts, here, pulls, target, 1.0)[0]
            m = links[m]
        if descend and change >= 0:
            vertices[k] = -1
            continue
        vertices[k], weights[k] = j, weight
        moving[kept] = k
        kept += 1
        slope += change
        touches = _aim(data, rows, starts, n, j, weight, direction, touched, mark, touches)
        m = heads[k]
        while m >= 0:
            if x[m] != 0.0:
                touches = _aim(data, rows, starts, n, m, -x[m], direction, touched, mark, touches)
            m = links[m]
    length = 0.0
    for e in range(touches):
        length += direction[touched[e]] ** 2
    return kept, touches, slope, length


@njit(nogil=True)
def _aim(
    data: Vector,
    rows: Places,
    starts: Places,
    n: int,
    j: int,
    weight: float,
    direction: Vector,
    touched: Index,
    mark: NDArray[np.bool_],
    touches: int,
) -> int:
    """Add weight * a_j to the direction; rows met for the first time join the list of touched ones."""
    add_column(data, rows, starts, n, j, weight, direction)
    if starts.size:
        for e in range(starts[j], starts[j + 1]):
            if not mark[rows[e]]:
                mark[rows[e]] = True
                touched[touches] = rows[e]
                touches += 1
    elif touches == 0:
        for i in range(n):
            touched[i] = i
        touches = n
    return touches


@njit(nogil=True)
def _go(
    gamma: float,
    x: Vector,
    heads: Index,
    links: Index,
    vertices: Index,
    weights: Vector,
    moving: Index,
    predictions: Vector,
    direction: Vector,
    touched: Index,
    mark: NDArray[np.bool_],
) -> None:
    """Move by gamma, and leave the workspace clean."""
    for k in moving:
        m = heads[k]
        while m >= 0:
            x[m] *= 1.0 - gamma
            m = links[m]
        j = vertices[k]
        if links[j] == -2:  # noqa: PLR2004 - not in the chain
            links[j] = heads[k]
            heads[k] = j
        x[j] += gamma * weights[k]
        vertices[k] = -1
    for i in touched:
        predictions[i] += gamma * direction[i]
        direction[i] = 0.0
        mark[i] = False


def _logistic_search(margins: Vector, change: Vector) -> float:
    """The minimum over [0, 1] of the logistic loss at margins + gamma * change: Newton, bisection where that leaves it."""
    low, high, gamma = 0.0, 1.0, 1.0
    for _ in range(_NEWTON):
        miss = np.exp(-np.logaddexp(0.0, margins + gamma * change))
        slope = -float(change @ miss)
        if slope > 0:
            high = gamma
        elif gamma >= 1.0:
            return 1.0
        else:
            low = gamma
        bend = float(change**2 @ (miss * (1.0 - miss)))
        tried = gamma - slope / bend if bend > 0 else -1.0
        if not low < tried < high:
            tried = (low + high) / 2
        if abs(tried - gamma) <= 1e-15 * gamma:
            break
        gamma = tried
    return gamma
