"""Sample size of a private logistic model: Theorem 5 of the PST paper (Yao et al. 2019), up to its unknown constant."""

from __future__ import annotations

import math

from unpooled.errors import UsageError


def rows_wanted(
    length: float,
    columns: int,
    *,
    excess: float,
    epsilon: float,
    delta: float = 0.05,
    share: float = 1.0,
    groups: int = 1,
    constant: float = 1.0,
) -> float:
    r"""Return rows above which :math:`\Pr[L(w)\le L(v)+excess]\ge 1-\delta` by Theorem 5 of the PST paper (Yao et al. 2019).

    With ``groups`` = 1 it is Proposition 2 of the PST paper (Yao et al. 2019).

    Parameters
    ----------
    length : float
        :math:`a = q |v|`, v the reference model for rows of length q: it stays the same as q changes.
    columns : int
        d, of all groups together.
    excess : float
        :math:`\epsilon_g`, how much more loss than the reference's is allowed.
    epsilon, delta : float
        The privacy asked for, and the probability with which the statement may fail.
    share, groups : float and int
        :math:`q_k`, the importance of a group, and K.
    constant : float
        :math:`C_1`, which the paper does not give: only ratios of these numbers mean something.

    Returns
    -------
    float
        The number of rows.

    """
    if not (length > 0 and columns >= 1 and excess > 0 and epsilon > 0 and 0 < delta < 1 and 0 < share <= 1 and groups >= 1):
        raise UsageError(
            "length, excess and epsilon are positive, delta and share lie between 0 and 1, columns and groups are at least 1"
        )
    sampling = length**2 * math.log(1 / delta) / excess**2
    noise = columns * math.log(columns / (groups * delta)) * length / (share * groups * excess * epsilon)
    penalty = length**2 / (excess * epsilon)
    return constant * max(sampling, noise, penalty)
