"""The summary of a generalised linear model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unpooled.aggregation.summary import SummaryTable, SummaryTerm


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

    def _foot(self) -> list[str]:
        return [f"n = {self.rows}, family {self.family}, dispersion {self.dispersion:.4g}", *super()._foot()]
