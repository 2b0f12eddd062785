"""The table of estimates with standard errors, tests and intervals as statisticians read it, for every model that has one."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec

from unpooled.errors import listed
from unpooled.inference.results import Result, ends
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import ResultTerm, known

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from unpooled.inference.coding import Categories


# --- Summary ---------------------------------------------------------------------------------------------------------------
# A table of estimates with standard errors, tests and intervals, as statisticians are used to read them: for every model that has them.


@dataclass(frozen=True)
class SummaryTerm:
    """A line of a summary. ``privacy`` is the part of the standard error that privacy adds: the root of its share of the variance."""

    term: str
    estimate: float
    std_error: float
    privacy: float
    statistic: float
    p_value: float
    conf_low: float
    conf_high: float
    identified: bool = True

    def __post_init__(self) -> None:
        if not (self.identified and math.isfinite(self.std_error)):  # no standard error: then nothing else that rests on one
            for name in _SURE:
                object.__setattr__(self, name, math.nan)
            object.__setattr__(self, "identified", False)

    def with_p(self, value: float) -> SummaryTerm:
        """Return the line with another p-value."""
        return replace(self, p_value=value)

    def credible(self) -> SummaryTerm:
        """Return the line of a posterior: its interval says what is believed, no test of a value goes with it, and nobody knows what privacy adds."""
        return replace(self, privacy=math.nan, statistic=math.nan, p_value=math.nan)

    def exponential(self) -> SummaryTerm:
        """Return the line with the exponentials of its estimate and interval; standard error and test stay those of the logarithm."""
        estimate, low, high = (math.exp(min(v, 700.0)) for v in (self.estimate, self.conf_low, self.conf_high))
        return replace(self, estimate=estimate, conf_low=low, conf_high=high)

    @property
    def line(self) -> ResultTerm:
        """Return the term as a line of a result."""
        sure = {name: known(getattr(self, name)) for name in _SURE}
        return msgspec.structs.replace(ResultTerm(self.term, self.estimate), **sure)


#: What a term has only with a standard error.
_SURE = ("std_error", "privacy", "statistic", "p_value", "conf_low", "conf_high")
#: Why a line is missing.
NOT_DETERMINED = "not determined, so not printed (no row varies along it, or the noise exceeds what the data say of it): "
#: What that means for the lines that are there.
UNADJUSTED = (
    "the lines that are printed are those of the model without what has none: the intervals are for differences that are not adjusted for it. If a "
    "range is only possible, declare what is typical of that column; else leave it out, ask for fewer columns, or spend more"
)
#: The most characters of names in the corner of a table.
_CORNER = 48

#: The note under a table of a fit with earlier models.
CREDIBLE = "intervals are credible: they hold what the rows and the earlier models say together, so there are no p-values"


def untold(factors: Sequence[Categories]) -> list[str]:
    """Return the line about coefficients of levels that are for predictions alone; empty where there are none."""
    if not factors:
        return []
    of = listed([factor.name for factor in factors])
    return [
        f"the levels of {of} have coefficients for predictions alone: without second moments no difference of two is known, so none is shown"
    ]


def notes(not_determined: Iterable[str], terms: Sequence[object]) -> list[str]:
    """Which lines are not printed and why, and what that means for ``terms``, which are; nothing where all are."""
    names = list(not_determined)
    if not names:
        return []
    return [NOT_DETERMINED + listed(names), *([UNADJUSTED] if terms and _slopes(names) else [])]


def corner(not_determined: Iterable[str], terms: Sequence[object]) -> str:
    """Return the words above the names of ``terms`` that say what they are not adjusted for; empty where they are for all."""
    names = _slopes(not_determined) if terms else []
    words = ", ".join(names) if len(", ".join(names)) <= _CORNER else f"{len(names)} lines"
    return f"not adjusted for {words}" if names else ""


def _slopes(names: Iterable[str]) -> list[str]:
    """Return the names of these that are no constants."""
    return [name for name in names if not name.startswith("(")]


def cells_of(
    terms: Iterable[SummaryTerm], confidence: float, adjust: str | None = None, ratio: str = "", above: str = ""
) -> list[tuple[str, ...]]:
    """Return the cells of a table, its head first, with the words ``above`` the names."""
    p = "p" if adjust is None else f"p ({adjust})"
    terms = [t for t in terms if t.identified]
    tested = not is_credible(terms)
    columns = ("std error", "privacy", "z", p) if tested else ("deviation",)
    lines: list[tuple[str, ...]] = [(above, ratio or "estimate", *(columns if terms else ()), *ends(confidence))]
    for t in terms:
        numbers = (f"{v:.5g}" for v in (t.estimate, t.std_error, *([t.privacy] if tested else [])))
        test = (f"{t.statistic:.2f}", f"{t.p_value:.3g}") if tested else ()
        lines.append((t.term, *numbers, *test, f"{t.conf_low:.5g}", f"{t.conf_high:.5g}"))
    return lines


def is_credible(terms: Iterable[SummaryTerm]) -> bool:
    """Return True for the lines of a posterior, which have intervals and no tests."""
    found = [math.isnan(t.statistic) for t in terms if t.identified]
    return bool(found) and all(found)


class TermsTable(Result):
    """A table of terms with their intervals; its classes are dataclasses with these fields."""

    terms: tuple[SummaryTerm, ...]
    confidence: float
    #: The correction of the p-values for their number; None: there is none.
    adjust: str | None = None
    #: What the estimates are where they are exponentials; empty where they are none.
    ratio: str

    def _lines(self) -> list[tuple[str, ...]]:
        return cells_of(self.terms, self.confidence, self.adjust, self.ratio)

    def _panels(self) -> tuple[Panel, ...]:
        """Return the lines with their intervals; those of a posterior have no darker part, for nobody knows what they would be."""
        names, values, low, high = (
            tuple(getattr(t, name) for t in self.terms) for name in ("term", "estimate", "conf_low", "conf_high")
        )
        parts = tuple(
            0.0 if math.isnan(t.privacy) else max(1 - (t.privacy / t.std_error) ** 2, 0.0) ** 0.5 for t in self.terms
        )
        title = f"{self.ratio or 'estimate'} with {self.confidence:.0%} intervals"
        return (Panel(title, names, values, low, high, parts, ratio=bool(self.ratio)),)


class SummaryTable(TermsTable):
    """The table of a summary; its classes are dataclasses with these fields too, and say what stands below the table."""

    #: Epsilon and what else the release promises, in words.
    statement: str
    #: Lines that are not printed, because the release does not determine them.
    not_determined: tuple[str, ...]
    #: What the lines are compared with, in words.
    compared: tuple[str, ...]

    def _lines(self) -> list[tuple[str, ...]]:
        return cells_of(self.terms, self.confidence, self.adjust, self.ratio, corner(self.not_determined, self.terms))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return asdict(cast("Any", self))

    def _foot(self) -> list[str]:
        foot = [*self.compared, *notes(self.not_determined, self.terms)]
        if is_credible(self.terms):
            foot.append(CREDIBLE)
        elif self.terms:
            foot.append("std error is of sampling and privacy noise together; privacy is the part that privacy adds")
            if self.ratio:
                foot.append("std error, privacy and z are those of the logarithm")
        return [*foot, *self.statement.splitlines()[:1]]


# --- Glm summary -----------------------------------------------------------------------------------------------------------
# The summary of a generalised linear model: Wald tests on the scale of its link, or ratios.

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
    confidence: float
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
