r"""How far one unit can move a released vector: closed forms, each with its theorem (``privacy/THEORY.md``).

A sensitivity is always that of the exact vector that is released and of the whole unit: all the coordinates that one
person, or one value of one person, can move at once. Brute-force twins of every function are in the tests.
"""

from __future__ import annotations

import math

from unpooled.privacy.unit import Adjacency


def column_moments(count: float, first: float, second: float, adjacency: Adjacency, *, may_be_absent: bool) -> float:
    r"""L2 sensitivity of :math:`\sum_i (a, b z_i, c z_i^2)` over the present values, :math:`z_i\in[-1,1]` (Theorem F.1).

    ``count``, ``first``, ``second`` are the weights a, b, c (noise of standard deviation 1 is then added to each
    coordinate). When a value cannot be absent the count is public and a plays no part under ``replace``.
    """
    a2, b2, c2 = count**2, first**2, second**2
    appears = a2 + b2 + c2
    if adjacency is Adjacency.ZERO_OUT:
        return math.sqrt(appears)
    # Two present values with difference d = |z - z'|: the worst is d^2 b^2 + c^2 d^2 (2 - d)^2, d in [0, 2].
    worst = 4 * b2
    if c2 > 2 * b2:
        d = (3 - math.sqrt(1 - 2 * b2 / c2)) / 2
        worst = max(worst, d * d * (b2 + c2 * (2 - d) ** 2))
    return math.sqrt(max(worst, appears) if may_be_absent else worst)


def category_counts(adjacency: Adjacency) -> float:
    """L2 sensitivity of the vector of category counts (Theorem F.2): one value moves two of them under ``replace``."""
    return math.sqrt(2.0) if adjacency is Adjacency.REPLACE else 1.0
