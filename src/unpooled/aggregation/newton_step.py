"""One Newton step of a generalised linear model: unshrunk estimates, their covariance, and the summary that follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np

from unpooled.aggregation.inference import CONSTANT_TERM, holm
from unpooled.aggregation.summary import SummaryTable, SummaryTerm
from unpooled.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]


#: The family whose coefficients are read as ratios.
_HAZARDS = "survival"


class NewtonStep(msgspec.Struct, frozen=True):
    """Estimates for tests, unshrunk, with their covariances (row by row) in the data's own units; the intercept last, where there is one."""

    names: tuple[str, ...]
    estimate: tuple[float, ...]
    covariance: tuple[float, ...]
    #: The part of it that there would be without privacy.
    sampling: tuple[float, ...]
    identified: tuple[bool, ...]

    def square(self, numbers: tuple[float, ...]) -> Matrix:
        """A matrix from its rows."""
        return np.array(numbers).reshape(len(self.names), len(self.names))

    def terms(self, level: float = 0.95, adjust: str | None = None) -> tuple[SummaryTerm, ...]:
        """Wald tests and intervals; ``adjust="holm"`` corrects the p-values of the slopes for their number."""
        if not 0 < level < 1:
            raise UsageError("level must lie between 0 and 1")
        if adjust not in {None, "holm"}:
            msg = f"adjust is None or 'holm', not {adjust!r}"
            raise UsageError(msg)
        values, told = np.array(self.estimate), np.array(self.identified)
        variances = self.square(self.covariance).diagonal()
        privacy = np.sqrt(np.maximum(variances - self.square(self.sampling).diagonal(), 0.0))
        errors = np.sqrt(np.maximum(variances, 0.0))
        z = np.divide(values, errors, out=np.zeros_like(values), where=errors > 0)
        p = np.array([math.erfc(abs(v) / math.sqrt(2)) for v in z.tolist()])
        if adjust == "holm":
            slopes = np.flatnonzero(told & np.array([name != CONSTANT_TERM for name in self.names]))
            p[slopes] = holm(p[slopes])
        half = NormalDist().inv_cdf(0.5 + level / 2) * np.where(told, errors, np.inf)
        columns = (
            values,
            np.where(told, errors, np.nan),
            privacy,
            z,
            np.where(told, p, np.nan),
            values - half,
            values + half,
        )
        return tuple(
            SummaryTerm(*line) for line in zip(self.names, *(c.tolist() for c in columns), told.tolist(), strict=True)
        )


@dataclass(frozen=True, repr=False)
class GlmSummary(SummaryTable):
    """Estimates, standard errors, Wald tests and intervals of a generalised linear model, on the scale of its link."""

    terms: tuple[SummaryTerm, ...]
    rows: int
    family: str
    #: The factor of the variance.
    dispersion: float
    level: float
    statement: str
    adjust: str | None = None
    _saved_types: ClassVar = (SummaryTerm,)

    def _lines(self) -> list[tuple[str, ...]]:
        """Of hazards also their ratios, with intervals."""
        head, *lines = super()._lines()
        if self.family != _HAZARDS:
            return [head, *lines]
        own = [
            tuple(f"{math.exp(min(v, 700.0)):.5g}" for v in (t.estimate, t.conf_low, t.conf_high))
            if t.identified
            else ("", "", "")
            for t in self.terms
        ]
        return [(*head, "exp", *head[-2:]), *((*line, *more) for line, more in zip(lines, own, strict=True))]

    def _foot(self) -> list[str]:
        return [f"n = {self.rows}, family {self.family}, dispersion {self.dispersion:.4g}", *super()._foot()]
