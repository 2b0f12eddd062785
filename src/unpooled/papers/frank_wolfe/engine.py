"""The public function: checks a problem, picks the rounds that suit it, and collects the iterates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from unpooled.kernels.columns import Columns
from unpooled.kernels.newton import Solution
from unpooled.papers.frank_wolfe.blocks import Blocks
from unpooled.papers.frank_wolfe.full import Full
from unpooled.papers.frank_wolfe.problem import Problem, labels_of, radii_of, target_of
from unpooled.papers.frank_wolfe.sampled import Ball, Sampled
from unpooled.papers.frank_wolfe.theory import Sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike
    from scipy.sparse import csc_array, csc_matrix

    from unpooled.kernels.columns import Index, Matrix, Vector
    from unpooled.kernels.newton import Iterate
    from unpooled.papers.frank_wolfe.sampled import Oracle


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
    watch: Callable[[Iterate], object] | None = None,
) -> Solution:
    r"""Minimise :math:`|Ax - y|^2 / 2n` (or the mean logistic loss, y in {-1, 1}) over l1 balls, from x = 0.

    Parameters
    ----------
    matrix
        Dense (column-major, or it is copied) or scipy CSC, n x d; or made ready by ``Columns.of``.
    y
        The response; -1 or 1 for the logistic loss.
    radius
        Of the ball; with blocks, one radius per block (in the order of sorted labels), or their sum, shared equally.
    blocks
        A label per column; each block has a ball of its own. Default: one ball.
    sampling
        Which columns a round searches; default all of them.
    loss
        What the mean over rows is taken of: half the squared error, or the logistic loss.
    step_rule
        2 / (p t + 2), p the smallest inclusion probability, or the exact minimum along the direction.
    steps
        Rounds at most.
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
        Whether blocks stay where they are if their vertex does not lead downhill (see the package). Where all columns are
        searched, a noisy vertex may; then all blocks stay if their vertices together do not.
    record
        Keep the iterate after each multiple of this number of rounds, or after these rounds.
    watch
        Called with every recorded point; True ends the run.

    Returns
    -------
    Solution
        Its certificate is Frank-Wolfe's duality gap, at least objective - minimum; ``path`` holds the recorded iterates.

    Examples
    --------
    >>> import numpy as np
    >>> fit = frank_wolfe(np.eye(3), [3.0, -1.0, 0.0], radius=2.0, step_rule="line-search", tolerance=1e-9)
    >>> fit.coefficients.round(3).tolist(), fit.converged
    ([2.0, 0.0, 0.0], True)
    """
    held = Columns.of(matrix)
    n, d = held.shape
    target = target_of(y, held.shape, loss)
    if step_rule not in {"standard", "line-search"}:
        msg = f"unknown step rule {step_rule!r}: standard or line-search"
        raise ValueError(msg)
    owner = labels_of(blocks, d)
    law = Sampling.every(d) if sampling is None else sampling
    if law.probabilities.shape != (d,):
        msg = f"a sampling of {law.probabilities.size} columns for a matrix of {d}"
        raise ValueError(msg)
    radii = radii_of(radius, int(owner.max()) + 1)
    if not 0 <= temperature < math.inf or (temperature > 0 and oracle is not None):
        raise ValueError("a temperature is finite and at least 0, and comes without an oracle")
    problem = Problem(held, target, owner, radii, step_rule == "line-search", law.least, descend)
    rng = np.random.default_rng(seed)
    engine: Full | Sampled
    if loss == "squared" and law.full and oracle is None:
        engine = Full(problem, temperature * n, int(rng.integers(2**63)) if temperature else 0)
    else:
        oracle = _exponential(temperature, rng.spawn(1)[0]) if temperature else oracle
        if loss == "squared" and radii.size == 1:
            engine = Ball(problem, law, rng, oracle)
        else:
            engine = Blocks(problem, law, rng, oracle, logistic=loss == "logistic")
    scale = math.log(2) if loss == "logistic" else float(target @ target) / (2 * n)
    every = range(record, steps + 1, max(record, 1)) if isinstance(record, int) else record
    wanted = {int(t) for t in every if 0 <= t <= steps} if record != 0 else set()
    path: list[Iterate] = []
    for stop in sorted({*wanted, steps}):
        point = engine.run(stop, tolerance * scale)
        if point.iterations in wanted:
            path.append(point)
            if watch is not None and watch(point) is True:
                break
        if point.certificate <= tolerance * scale:
            break
    return Solution(
        point.coefficients,
        point.objective,
        point.certificate,
        point.iterations,
        point.certificate <= tolerance * scale,
        path=tuple(path),
    )


def _exponential(temperature: float, rng: np.random.Generator) -> Oracle:
    """Return the exponential mechanism as an oracle: the largest of all scores with Gumbel noise."""

    def oracle(_columns: Index, slopes: Vector) -> Vector:
        ahead, back = (side / temperature + rng.gumbel(size=slopes.size) for side in (slopes, -slopes))
        drawn = np.maximum(ahead, back)
        found: Vector = np.where(ahead > back, 1.0, -1.0) * (drawn - drawn.min(initial=0.0) + 1.0)
        return found

    return oracle
