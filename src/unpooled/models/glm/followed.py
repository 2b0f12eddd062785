"""Answers of a fitted survival model: hazards, survival curves, and the concordance of its ranking with times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import DataError, UsageError
from unpooled.models.glm.families import SURVIVAL

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from unpooled.inference.life_table import LifeTable
    from unpooled.models.glm.result import GlmResult

    Vector = NDArray[np.float64]

#: The column of the in-process parties that says whether there was an event; no feature can be called so.
EVENT = "(event)"
#: Pairs that are compared at a time.
_PAIRS = 1 << 22


def _has_hazards(estimator: Followed) -> bool:
    return estimator.family == SURVIVAL


class Followed:
    """The part of ``PrivateGLM`` for times to an event."""

    family: str

    def _take_hazards(self, result: GlmResult, table: LifeTable) -> None:
        """Set the hazards of a result as attributes."""
        self.hazard_ratios_ = np.exp([c.value for c in result.coefficients])
        self.baseline_hazard_ = np.exp(np.array(result.log_hazards))
        self.intervals_ = np.array([0.0, *table.edges])
        self.kaplan_meier_ = table.kaplan_meier(result.level)

    @available_if(_has_hazards)  # type: ignore[untyped-decorator]
    def cumulative_hazard(self, times: ArrayLike) -> Vector:
        """Return the hazards of a row of zeros, added up to these times; none is after the declared end of follow-up."""
        check_is_fitted(self)
        asked = np.asarray(times, dtype=np.float64)
        if not ((asked >= 0) & (asked <= self.intervals_[-1])).all():
            msg = f"times lie between 0 and {self.intervals_[-1]:g}, the declared end of follow-up"
            raise DataError(msg)
        within = np.clip(asked[..., None] - self.intervals_[:-1], 0.0, np.diff(self.intervals_))
        return np.asarray(within @ self.baseline_hazard_)

    @available_if(_has_hazards)  # type: ignore[untyped-decorator]
    def predict_survival(self, X: ArrayLike, times: ArrayLike) -> Vector:
        """Return the probability of no event until each of these times: a row for every row of ``X``, a column for every time."""
        risks = np.exp(self.predict(X))  # type: ignore[attr-defined]
        return np.asarray(
            np.exp(-risks[:, None] * self.cumulative_hazard(np.atleast_1d(np.asarray(times, dtype=np.float64))))
        )


def times_and_events(y: Any, event: Any) -> tuple[Vector, Vector]:  # noqa: ANN401 - array-likes
    """Times and events (0 or 1) as callers give them: two arrays, or one whose records are (event, time)."""
    given = np.asarray(y)
    if given.dtype.names is not None:
        if len(given.dtype.names) != 2 or event is not None:  # noqa: PLR2004
            raise UsageError("a structured y has two fields, the event and then the time, and goes without event=")
        first, second = given.dtype.names
        given, event = given[second], given[first]
    if event is None:
        raise UsageError(
            "survival needs to know who had the event: event= with one truth value for each time, or a structured y"
        )
    happened = np.asarray(event)
    if happened.shape != given.shape or happened.ndim != 1:
        raise DataError("y and event have one time and one truth value for every row")
    if happened.dtype.kind not in "biuf" or not np.isin(happened, (0, 1)).all():
        raise DataError("event holds True and False, or 1 and 0, and nothing else")
    times = given.astype(np.float64)
    if not np.isfinite(times).all() or (times < 0).any():
        raise DataError("times are finite numbers from 0 on")
    return times, happened.astype(np.float64)


def concordance(risk: Vector, time: Vector, happened: Vector) -> float:
    """Return the concordance: of the pairs where one had the event and the other was followed longer, the share where that one's risk was higher.

    >>> round(concordance(np.array([2.0, 1.0, 0.0]), np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 0.0])), 2)
    1.0
    """
    right = pairs = 0.0
    events = np.flatnonzero(happened > 0)
    for some in np.array_split(events, max(1, events.size * time.size // _PAIRS)):
        later = time[None, :] > time[some, None]
        gap = risk[some, None] - risk[None, :]
        right += float(((gap > 0) & later).sum()) + 0.5 * float(((gap == 0) & later).sum())
        pairs += float(later.sum())
    return right / pairs if pairs else 0.5
