"""The summary of a generalised linear model: Wald tests on the scale of its link, or ratios."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unpooled.aggregation.summary import SummaryTable, SummaryTerm

#: What the exponential of a coefficient is called.
RATIOS = {
    "logistic": "odds ratio",
    "multinomial": "odds ratio",
    "poisson": "rate ratio",
    "negative-binomial": "rate ratio",
    "gamma": "ratio of means",
    "survival": "hazard ratio",
}


@dataclass(frozen=True, repr=False)
class GlmSummary(SummaryTable):
    """Estimates, standard errors, Wald tests and intervals of a generalised linear model, on the scale of its link or as ratios."""

    terms: tuple[SummaryTerm, ...]
    rows: int
    family: str
    #: The factor of the variance.
    dispersion: float
    level: float
    statement: str
    adjust: str | None = None
    not_determined: tuple[str, ...] = ()
    #: What the lines are compared with, in words.
    compared: tuple[str, ...] = ()
    #: What the estimates are where they are exponentials: "odds ratio"; else empty.
    ratio: str = ""
    _saved_types: ClassVar = (SummaryTerm,)

    def _foot(self) -> list[str]:
        return [f"n = {self.rows}, family {self.family}, dispersion {self.dispersion:.4g}", *super()._foot()]
