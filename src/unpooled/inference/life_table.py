"""The life table of a released histogram of exits: who was at risk, baseline hazards, and the curve of Kaplan and Meier. All of it is post-processing.

Cells are (interval of exit) x (censored, event), and one of those who were there at the end of follow-up. With d_j events and c_j censored of n_j at risk, an interval is survived with probability
1 - d_j / (n_j - c_j / 2), the actuarial form for censoring spread over it; the curve is their product. Its variance on the scale of its logarithm
is Greenwood's sum, and what the noise of all cells adds by its derivatives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np

from unpooled.inference.estimates import check_confidence
from unpooled.inference.results import Result
from unpooled.protocol.registry import Panel
from unpooled.schedules import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Row = NDArray[np.float64]

_TUNED = table("hazards")
#: Survival stays so far from 0 and 1 where a band needs logarithms.
_CERTAIN = 1e-9
#: Between derivatives: a part of the persons.
_STEP = 1e-6


class LifeTable(msgspec.Struct, frozen=True):
    """The life table that the cells give for every interval, as far as their noise permits."""

    edges: tuple[float, ...]
    events: tuple[float, ...]
    censored: tuple[float, ...]
    #: Who was there at the end.
    stayed: float
    #: The deviation of a cell's noise.
    noise: float
    persons: float

    @classmethod
    def of_cells(cls, edges: Row, values: Row, deviation: float, persons: int) -> LifeTable:
        """Return the life table of noisy cells: counts are not negative, and add up to the persons as far as these are known."""
        cells = values + (persons - values.sum()) / values.size if deviation else values
        cells = np.maximum(cells, 0.0)
        censored, events = cells[:-1].reshape(-1, 2).T
        own = tuple(events.tolist()), tuple(censored.tolist()), float(cells[-1])
        return cls(tuple(edges.tolist()), *own, deviation, float(persons))

    @property
    def interval_names(self) -> tuple[str, ...]:
        """Return the name of the baseline of every interval."""
        starts = (0.0, *self.edges[:-1])
        return tuple(f"log hazard ({start:g}, {end:g}]" for start, end in zip(starts, self.edges, strict=True))

    @property
    def at_risk(self) -> Row:
        """Persons who were there when an interval began."""
        leaving = np.array(self.events) + np.array(self.censored)
        return np.asarray(np.cumsum(leaving[::-1])[::-1] + self.stayed)

    @property
    def exposure(self) -> Row:
        """Person-time in every interval, those who left in it counted for half of it."""
        widths = np.diff(np.array([0.0, *self.edges]))
        leaving = np.array(self.events) + np.array(self.censored)
        return np.asarray(widths * np.maximum(self.at_risk - leaving / 2, 0.0))

    @property
    def hazards(self) -> Row:
        """Events per person-time, drawn to that of all intervals as far as there are few or much noise; positive."""
        least = _TUNED.hazard_events + _TUNED.hazard_deviations * self.noise
        events, time = np.array(self.events), self.exposure
        whole = max(float(events.sum()), least) / max(float(time.sum()), self.edges[-1])
        return np.asarray((events + least) / (time + least / whole))

    @property
    def log_hazard_variances(self) -> Row:
        """About the variances of the logarithms of the hazards."""
        least = _TUNED.hazard_events + _TUNED.hazard_deviations * self.noise
        events = np.array(self.events)
        return np.asarray((events + self.noise**2 + least) / (events + least) ** 2)

    @property
    def rate(self) -> float:
        """Events per person, between 0 and 1, with one person's worth of doubt."""
        return min(max(sum(self.events), 1.0 + self.noise) / max(self.persons, 1.0), 1.0)

    def kaplan_meier(self, confidence: float = 0.95) -> KaplanMeier:
        """Return the curve at the ends of the intervals, with pointwise bands that hold sampling and privacy noise."""
        check_confidence(confidence)
        events, censored = np.array(self.events), np.array(self.censored)
        logs = _log_survival(events, censored, self.stayed)
        effective = np.maximum(self.at_risk - censored / 2, _CERTAIN)
        left = np.maximum(effective - events, _CERTAIN)
        sampling = np.cumsum(events / (effective * left))
        privacy = np.zeros(logs.size)
        step = max(self.persons * _STEP, _STEP)
        for cell in range(2 * logs.size + 1 if self.noise else 0):
            moved = np.append(np.column_stack([censored, events]).ravel(), self.stayed)
            moved[cell] += step
            there, seen = moved[:-1].reshape(-1, 2).T
            privacy += ((_log_survival(seen, there, moved[-1]) - logs) / step * self.noise) ** 2
        # On the scale of log(-log S), where a band stays between 0 and 1.
        survival = np.clip(np.exp(logs), _CERTAIN, 1 - _CERTAIN)
        scale = np.log(survival)
        half = NormalDist().inv_cdf(0.5 + confidence / 2) * np.sqrt(sampling + privacy) / np.maximum(-scale, _CERTAIN)
        half = np.minimum(half, 50.0)
        low, high = (survival ** np.exp(sign * half) for sign in (1, -1))
        return KaplanMeier(
            (0.0, *self.edges),
            (1.0, *survival.tolist()),
            (1.0, *low.tolist()),
            (1.0, *high.tolist()),
            tuple(self.at_risk.tolist()),
            self.events,
            confidence,
            math.sqrt(privacy[-1]),
        )


def _log_survival(events: Row, censored: Row, stayed: float) -> Row:
    """Return the logarithm of the survival curve, one number for each interval; a floor keeps it finite where nobody is left."""
    at_risk = np.cumsum((events + censored)[::-1])[::-1] + stayed
    effective = np.maximum(at_risk - censored / 2, _CERTAIN)
    return np.asarray(np.cumsum(np.log(np.clip(1 - events / effective, _CERTAIN, 1.0))))


@dataclass(frozen=True, repr=False)
class KaplanMeier(Result):
    """A survival curve at the ends of public intervals, and a pointwise band around it.

    ``at_risk`` and ``events`` are the noisy counts of the intervals from which it follows; times and curve begin at 0 with 1.
    """

    times: tuple[float, ...]
    survival: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    at_risk: tuple[float, ...]
    events: tuple[float, ...]
    confidence: float
    #: The deviation that privacy adds to the logarithm of the curve at its end.
    privacy: float
    _saved_types: ClassVar[tuple[type, ...]] = ()

    def at(self, times: Row) -> Row:
        """Return the curve as a step function: its value at the last end of an interval that is not after a time."""
        place = np.searchsorted(np.array(self.times), np.asarray(times, dtype=np.float64), side="right") - 1
        return np.array(self.survival)[np.clip(place, 0, len(self.times) - 1)]

    def as_lists(self) -> dict[str, list[float]]:
        """Return times, curve and band as data."""
        return {name: list(getattr(self, name)) for name in ("times", "survival", "low", "high")}

    def _panels(self) -> tuple[Panel, ...]:
        title, names = f"survival, {self.confidence:.0%} pointwise band", tuple(f"{time:g}" for time in self.times)
        curve = (self.survival, self.low, self.high)
        words = ("time", "survival")
        return (Panel(title, names, *curve, ordered=True, steps=True, places=self.times, axes=words),)

    def _numbers(self) -> list[dict[str, float]]:
        columns = (self.times[1:], self.survival[1:], self.low[1:], self.high[1:], self.at_risk, self.events)
        names = ("time", "survival", "low", "high", "at_risk", "events")
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _lines(self) -> list[tuple[str, ...]]:
        lines: list[tuple[str, ...]] = [("time", "survival", f"{self.confidence:.0%} band", "at risk", "events")]
        for row in self._numbers():
            time, survival, low, high, n, d = row.values()
            lines.append((f"{time:.5g}", f"{survival:.4f}", f"[{low:.4f}, {high:.4f}]", f"{n:.1f}", f"{d:.1f}"))
        return lines

    def __str__(self) -> str:
        widths = (10, 12, 22, 12, 10)
        return "\n".join("".join(f"{cell:>{w}}" for cell, w in zip(line, widths, strict=True)) for line in self._lines())
