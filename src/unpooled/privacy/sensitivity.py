r"""Sensitivities of released vectors to one unit: closed forms, each with its theorem (``privacy/THEORY.md``; second moments: Theorem F.9).

A sensitivity is always that of the exact vector that is released and of the whole unit: all the coordinates that one
person, or one value of one person, can move at once. Brute-force twins of every function are in the tests.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, assert_never

from unpooled.privacy.unit import Adjacency

if TYPE_CHECKING:
    from collections.abc import Sequence


def column_moments(count: float, first: float, second: float, adjacency: Adjacency, *, may_be_absent: bool) -> float:
    r"""Return the L2 sensitivity of :math:`\sum_i (a, b z_i, c z_i^2)` over the present values, :math:`z_i\in[-1,1]` (Theorem F.1).

    ``count``, ``first``, ``second`` are the weights a, b, c (noise of standard deviation 1 is then added to each
    coordinate). When a value cannot be absent the count is public and a plays no part under ``replace``.
    """
    a2, b2, c2 = count**2, first**2, second**2
    appears = a2 + b2 + c2
    # Two present values with difference d = |z - z'|: the worst is d^2 b^2 + c^2 d^2 (2 - d)^2, d in [0, 2].
    worst = 4 * b2
    if c2 > 2 * b2:
        d = (3 - math.sqrt(1 - 2 * b2 / c2)) / 2
        worst = max(worst, d * d * (b2 + c2 * (2 - d) ** 2))
    match adjacency:
        case Adjacency.ZERO_OUT:
            return math.sqrt(appears)
        case Adjacency.REPLACE:
            return math.sqrt(max(worst, appears) if may_be_absent else worst)
        case _ as never:
            assert_never(never)


def contributions_of_arms(second: float, adjacency: Adjacency) -> float:
    r"""Return the L2 sensitivity of :math:`\sum_i (t_i, c t_i^2)` of two arms, a row being in one of them, :math:`t_i\in[-1,1]` (Theorem E.1).

    ``second`` is the weight c of squares.
    """
    alone = math.sqrt(1 + second**2)
    match adjacency:
        case Adjacency.ZERO_OUT:
            return alone
        case Adjacency.REPLACE:
            return max(math.sqrt(2) * alone, column_moments(0.0, 1.0, second, adjacency, may_be_absent=False))
        case _ as never:
            assert_never(never)


def partialled_scores(treatment: float, square: float, adjacency: Adjacency) -> float:
    r"""Return the L2 sensitivity of :math:`\sum_i (t_i, a h_i^2, b t_i^2)` for :math:`|t_i|\le|h_i|\le 1` (Theorem E.4).

    ``treatment`` and ``square`` are the weights a and b: both squares together cost what one of weight :math:`\sqrt{a^2+b^2}` does.
    """
    both = math.hypot(treatment, square)
    match adjacency:
        case Adjacency.ZERO_OUT:
            return math.hypot(1.0, both)
        case Adjacency.REPLACE:
            return column_moments(0.0, 1.0, both, adjacency, may_be_absent=False)
        case _ as never:
            assert_never(never)


def household_row(replaced: float, appears: float, adjacency: Adjacency, *, rows_move: bool) -> float:
    """Return how far one row of a household moves a sum at most, given how far a row that is replaced and one that appears do (Theorem F.19).

    ``rows_move``: rows of an id that leave one party may appear at another one, and both parties' releases tell (Theorem F.19 d).
    """
    match adjacency:
        case Adjacency.ZERO_OUT:  # what contributes nothing appears nowhere else
            return appears
        case Adjacency.REPLACE:
            return max(replaced, math.sqrt(2.0) * appears if rows_move else appears)
        case _ as never:
            assert_never(never)


def category_counts(adjacency: Adjacency) -> float:
    """Return the L2 sensitivity of the vector of category counts (Theorem F.2): one value moves two of them under ``replace``."""
    match adjacency:
        case Adjacency.REPLACE:
            return math.sqrt(2.0)
        case Adjacency.ZERO_OUT:
            return 1.0
        case _ as never:
            assert_never(never)


def moments_box(bounds: Sequence[float], response: float, adjacency: Adjacency) -> float:
    r"""Return the L2 sensitivity of the upper triangle of :math:`\sum x x^T` with :math:`\sum x y` on a box, equal noise everywhere (Theorem F.9.1).

    ``bounds`` are c_j with :math:`|x_j|\le c_j`, ``response`` is Y with :math:`|y|\le Y`.
    """
    squares = [c * c for c in bounds]
    s, y2 = math.fsum(squares), response**2
    match adjacency:
        case Adjacency.ZERO_OUT:
            return math.sqrt((s * s + math.fsum(c2 * c2 for c2 in squares)) / 2 + s * y2)
        case Adjacency.REPLACE:
            return s + y2 if y2 <= s else 2 * response * math.sqrt(s)
        case _ as never:
            assert_never(never)


def moments_ball(radius: float, response: float, adjacency: Adjacency) -> float:
    r"""Return the L2 sensitivity of :math:`(\sum x x^T, \sum x y)` on a ball :math:`|x|\le R`, off-diagonals weighted by sqrt 2 (Theorem F.9.3).

    The weight means that an off-diagonal entry, released once, gets noise smaller by sqrt 2 than a diagonal one.
    """
    r2, y2 = radius**2, response**2
    match adjacency:
        case Adjacency.ZERO_OUT:
            return radius * math.sqrt(r2 + y2)
        case Adjacency.REPLACE:
            return (2 * r2 + y2) / math.sqrt(2) if y2 <= 2 * r2 else 2 * radius * response
        case _ as never:
            assert_never(never)


def moments_augmented(radius: float, adjacency: Adjacency) -> float:
    r"""Return the L2 sensitivity of :math:`\sum z z^T` for :math:`|z|\le r`, off-diagonals weighted by sqrt 2 (Theorem F.9.4).

    :math:`|zz^T-uu^T|_F^2=|z|^4+|u|^4-2(z\cdot u)^2`.
    """
    match adjacency:
        case Adjacency.ZERO_OUT:
            return radius**2
        case Adjacency.REPLACE:
            return radius**2 * math.sqrt(2)
        case _ as never:
            assert_never(never)


def flagged_moments(radius: float, constant: float, quiet: float, rounding: float, adjacency: Adjacency) -> float:
    r"""Return the same where a row may contribute nothing, so that the square of its constant is released too, with ``quiet`` times the noise of the others.

    A row that vanishes moves the matrix by :math:`r^2` and its corner by :math:`w^2`, which counts :math:`1/v` times; of two rows that are both there the
    corners are equal, and ``rounding`` of products of their columns moves them apart (Theorem J.13).
    """
    vanishes = math.sqrt(radius**4 + constant**4 * (1 / quiet**2 - 1))
    match adjacency:
        case Adjacency.ZERO_OUT:
            return vanishes
        case Adjacency.REPLACE:
            return max(vanishes, moments_augmented(radius, adjacency) + rounding)
        case _ as never:
            assert_never(never)


def standardising_sums(coded: Sequence[bool], first: float, response: float, adjacency: Adjacency) -> float:
    r"""Return the L2 sensitivity of weighted sums and sums of squares of several columns and of a response (Theorem B.7).

    ``first`` is the weight of a sum relative to its sum of squares, ``response`` that of the response relative to a column (0: none). ``coded`` says
    of every declared feature whether it has coded columns of 0 and 1 (categories, an indicator): one value then moves two of them at once.
    """
    number = column_moments(0.0, first, 1.0, adjacency, may_be_absent=False) ** 2
    cells = {Adjacency.REPLACE: 2, Adjacency.ZERO_OUT: 1}  # that one value of two coded columns moves
    switch = cells[adjacency] * (first**2 + 1)
    # Beside an indicator two present numbers may still be the farther pair, where sums weigh much.
    return math.sqrt(math.fsum(max(switch, number) if two else number for two in coded) + response**2 * number)


def placed_sums(weight: float, first: float, count: float, adjacency: Adjacency) -> float:
    """Return the L2 sensitivity of weighted sums and sums of squares of columns in [-1, 1] over hidden people, and of their number (Theorem H.5).

    ``weight`` is the sum of the columns' squared weights, ``first`` the weight of a sum relative to its sum of squares, ``count`` that of the number. Of two
    people who are both in common the numbers are equal; a person who vanishes takes one from it.
    """
    both, one = (
        column_moments(0.0, first, 1.0, how, may_be_absent=False) ** 2 for how in (Adjacency.REPLACE, Adjacency.ZERO_OUT)
    )
    vanishes = math.sqrt(weight * one + count**2)
    match adjacency:
        case Adjacency.ZERO_OUT:
            return vanishes
        case Adjacency.REPLACE:
            return max(vanishes, math.sqrt(weight * both))
        case _ as never:
            assert_never(never)


def counts_of_columns(marked: Sequence[bool], response: float, adjacency: Adjacency) -> float:
    """Return the L2 sensitivity of counts of the values of columns in cells, and of a response's (Theorem B.13).

    ``marked`` says of every column whether it has a mark of missing values, which is counted apart; ``response`` is the weight of the response's counts.
    """
    one = category_counts(adjacency) ** 2
    return math.sqrt(math.fsum(one + mark for mark in marked) + response**2 * one)


def clipped_products(longest: float, adjacency: Adjacency) -> float:
    """Return the L2 sensitivity of a sum of vectors of at most this length, each a function of one record (Theorem B.5)."""
    match adjacency:
        case Adjacency.ZERO_OUT | Adjacency.REPLACE:
            return longest if adjacency is Adjacency.ZERO_OUT else 2 * longest
        case _ as never:
            assert_never(never)


def unit_sums(coordinates: int) -> float:
    """Return the L2 sensitivity of a sum of vectors in the unit cube, under both adjacencies (Theorem G.1)."""
    return math.sqrt(coordinates)


#: sup over t of sigma(t) + (a - 1)/t, a the root of a sigma(a) = 1, rounded up (attained near t = 4.03).
_ONE_COLUMN = 1.0516340


def logistic_gradient(bound: float, columns: int, adjacency: Adjacency) -> float:
    r"""Return the sensitivity of the gradient of a logistic loss, at any one w, to a row of length at most ``bound`` (Theorems S.1 and S.6).

    Replaced, two rows pull apart by up to twice the bound; in one column they share the number w, and then by 1.052 times it.
    """
    match adjacency:
        case Adjacency.ZERO_OUT:
            return bound
        case Adjacency.REPLACE:
            return bound * (_ONE_COLUMN if columns == 1 else 2.0)
        case _ as never:
            assert_never(never)
