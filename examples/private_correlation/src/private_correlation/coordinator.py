"""The coordinator: a generator that asks every party for its sums and adds them up. Whatever it computes of releases costs no privacy."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from private_correlation.plan import RELEASE, STEP
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.privacy.plan import Plan
from unpooled.protocol.conversation import everybody
from unpooled.protocol.messages import Ask, Nothing
from unpooled.protocol.registry import Conversation
from unpooled.protocol.terms import ResultTerm

#: The quantile of the normal law for intervals of 95 %.
_QUANTILE = 1.959963984540054


class Correlation(msgspec.Struct, frozen=True):
    """A correlation with its error; every field is None where the noise leaves nothing determined."""

    value: float | None = None
    #: The standard error, and the part of it that the noise adds.
    std_error: float | None = None
    privacy: float | None = None
    low: float | None = None
    high: float | None = None


def coordinate(plan: Plan) -> Conversation:
    """Ask every party once, and return the :class:`Correlation` of all their rows."""
    parties = plan.study.parties
    replies = yield from everybody([Ask(card.name, STEP, Nothing()) for card in parties])
    sums = np.zeros(5)
    for card, reply in zip(parties, replies, strict=True):
        mechanism = plan.release(card.name, RELEASE).mechanism
        assert isinstance(mechanism, GaussianRelease)
        sums += mechanism.decode(reply.moments.values.numpy())
    rows = sum(card.rows for card in parties)
    return correlation(sums / rows / float(plan.design.grid) ** 2, noise_of(plan) / rows, rows)


def noise_of(plan: Plan) -> np.ndarray:
    """Return the standard deviations of the noise in the five sums over all parties, in units of the coded columns."""
    squares = np.zeros(5)
    for card in plan.study.parties:
        mechanism = plan.release(card.name, RELEASE).mechanism
        assert isinstance(mechanism, GaussianRelease)
        squares += mechanism.deviations**2
    return np.sqrt(squares) / float(plan.design.grid) ** 2


def correlation(moments: np.ndarray, noise: np.ndarray, rows: int) -> Correlation:
    """Return the correlation of moments per row with these standard deviations of noise (Theorem R.2)."""
    u, v, uv, uu, vv = moments.tolist()
    of_u, of_v, together = uu - u * u, vv - v * v, uv - u * v
    if min(of_u, of_v) <= 0 or together**2 >= of_u * of_v:
        return Correlation()
    scale = math.sqrt(of_u * of_v)
    r = together / scale
    slopes = np.array([-v / scale + r * u / of_u, -u / scale + r * v / of_v, 1 / scale, -r / (2 * of_u), -r / (2 * of_v)])
    added = float(np.linalg.norm(slopes * noise))
    # On Fisher's scale, whose derivative is 1 / (1 - r^2).
    error = math.hypot(1 / math.sqrt(rows - 3), added / (1 - r * r))
    low, high = (math.tanh(math.atanh(r) + side * _QUANTILE * error) for side in (-1, 1))
    return Correlation(r, error * (1 - r * r), added, low, high)


def terms(plan: Plan, result: Correlation) -> tuple[ResultTerm, ...]:
    """Return the result as its one line; none where nothing is determined."""
    if result.value is None:
        return ()
    name = " and ".join(plan.design.names)
    return (
        ResultTerm(
            f"correlation of {name}",
            result.value,
            result.std_error,
            conf_low=result.low,
            conf_high=result.high,
            privacy=result.privacy,
        ),
    )


def foot(plan: Plan, result: Correlation) -> tuple[str, ...]:  # noqa: ARG001 - the same for every plan
    """Return the line under the table: how sure the result is, or why there is none."""
    if result.value is None:
        return (
            "The noise is larger than the variance of a column, so no correlation is determined: ask for a larger epsilon.",
        )
    return ("The interval of 95 % covers sampling and noise; privacy is the part of the error that the noise adds.",)
