"""Estimates of sites that were fitted apart, and what they say together: a meta-analysis, whose variances hold the noise of each site."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.aggregation.drawing import ACCENT, OTHER, SOFT, forest, interval, new_figure, plain
from unpooled.aggregation.sites import few_words
from unpooled.aggregation.summary import as_html_table, as_text
from unpooled.kernels.between_sites import POOLED, Pooled, pooled
from unpooled.privacy.exposure import BETWEEN
from unpooled.protocol.step import Panel
from unpooled.protocol.terms import ResultTerm, finite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from unpooled.aggregation.summary import SummaryTerm

#: The lines under those of the sites.
FIXED, RANDOM, NEW = "fixed effect", "random effects", "a new site"


@dataclass(frozen=True)
class PooledTerm:
    """One term at every site, and pooled.

    ``sites`` are the lines of the sites by their names, whose standard errors hold sampling and privacy noise; ``left_out`` says of the other sites why
    they have none. ``pooled`` has the numbers of the meta-analysis; None where fewer than two sites have a line.
    """

    term: str
    level: float
    sites: Mapping[str, SummaryTerm]
    left_out: Mapping[str, str]
    pooled: Pooled | None

    @classmethod
    def of(cls, term: str, level: float, sites: Mapping[str, SummaryTerm], left_out: Mapping[str, str]) -> PooledTerm:
        """Pool the estimates of the sites, by the squares of their standard errors."""
        values = np.array([line.estimate for line in sites.values()])
        variances = np.array([line.std_error for line in sites.values()]) ** 2
        return cls(term, level, sites, left_out, pooled(values, variances, level) if len(sites) >= POOLED else None)

    @property
    def lines(self) -> tuple[ResultTerm, ...]:
        """Return a line for every site, then the pooled ones, and the interval for a new site."""
        own = tuple(
            ResultTerm(self.term, t.estimate, t.std_error, t.statistic, t.p_value, t.conf_low, t.conf_high, t.privacy, name)
            for name, t in self.sites.items()
        )
        found = self.pooled
        if found is None:
            return own
        from scipy.special import ndtr, ndtri

        (fixed, variance), half = found.fixed, float(ndtri(0.5 + self.level / 2))
        error = math.sqrt(variance)
        one = ResultTerm(
            self.term,
            fixed,
            error,
            fixed / error,
            2 * float(ndtr(-abs(fixed) / error)),
            fixed - half * error,
            fixed + half * error,
            group=FIXED,
        )
        statistic = finite(found.mean / found.error if found.error else math.inf)
        two = ResultTerm(self.term, found.mean, found.error, statistic, found.p_value, *found.interval, group=RANDOM)
        if found.predicted is None:
            return (*own, one, two)
        low, high = found.predicted
        return (*own, one, two, ResultTerm(self.term, found.mean, conf_low=low, conf_high=high, group=NEW))

    @property
    def panel(self) -> Panel:
        """Return the forest plot: the sites and the pooled lines with their intervals, of which the darker part would be there without privacy."""
        lines = self.lines
        parts = tuple(
            math.sqrt(max(1 - ((t.privacy or 0.0) / t.std_error) ** 2, 0.0)) if t.std_error else 1.0 for t in lines
        )
        low, high = (tuple(getattr(t, end) for t in lines) for end in ("conf_low", "conf_high"))
        title = f"{self.term} at every site, with {self.level:.0%} intervals"
        return Panel(title, tuple(t.group for t in lines), tuple(t.estimate for t in lines), low, high, parts)

    def figure(self) -> Any:  # noqa: ANN401 - a matplotlib figure
        """Return the forest plot as a matplotlib figure; the size of a site's square is its weight."""
        shown = self.panel
        figure, (axes,) = new_figure(6, 0.8 + 0.28 * max(len(shown.names), 1))
        most = max([1 / t.std_error**2 for t in self.sites.values()], default=1.0)
        for place, (name, middle, low, high, part) in enumerate(
            zip(shown.names, shown.values, shown.low, shown.high, shown.without_privacy, strict=True)
        ):
            own = self.sites.get(name)
            colour = ACCENT if own else OTHER
            interval(axes, place, (low, high), (middle + part * (low - middle), middle + part * (high - middle)), colour)
            size = 4 + 6 * math.sqrt(1 / own.std_error**2 / most) if own else 7
            axes.plot([middle], [place], "s" if own else "D", color=colour, markersize=size)
        axes.axvline(0.0, color=SOFT, lw=0.8, zorder=0)
        forest(axes, shown.names)
        axes.set_xlabel(plain(shown.title))
        return figure

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        own = None if self.pooled is None else asdict(self.pooled)
        lines = [msgspec.structs.asdict(line) for line in self.lines]
        facts = {"left_out": dict(self.left_out), "pooled": own, "notes": self.notes}
        return {"term": self.term, "level": self.level, "terms": lines, **facts}

    @property
    def notes(self) -> list[str]:
        """Return the sentences under the table."""
        found, words = self.pooled, []
        if found is None:
            words.append(f"fewer than {POOLED} sites have an estimate, so nothing is pooled")
        else:
            words += [
                f"Q = {found.q:.4g} on {len(self.sites) - 1} degrees, p {found.q_p_value:.3g}",
                f"I^2 = {found.i_squared:.0%}, tau^2 = {found.tau_squared:.4g} (DerSimonian and Laird)",
                "the interval of random effects is Hartung and Knapp's; variances hold the noise of each site, so noise is no spread between sites",
                *few_words(len(self.sites)),
            ]
            if found.error**2 < found.fixed[1]:
                words.append(
                    "sites agree better than their errors would let them: the interval of the fixed effect is the more careful one"
                )
        return [*words, *(f"site {name} is left out: {why}" for name, why in self.left_out.items())]

    def _cells(self) -> list[tuple[str, ...]]:
        ends = f"[{(1 - self.level) / 2:.3g}", f"{(1 + self.level) / 2:.3g}]"
        rows: list[tuple[str, ...]] = [(self.term, "estimate", "std error", "privacy", "p", *ends)]
        for t in self.lines:
            numbers = (t.estimate, t.std_error, t.privacy, t.p_value, t.conf_low, t.conf_high)
            shown = ("" if v is None else f"{v:.3g}" if k == 3 else f"{v:.5g}" for k, v in enumerate(numbers))  # noqa: PLR2004 - the p-value
            rows.append((t.group, *shown))
        return rows

    def __str__(self) -> str:
        return "\n".join([as_text(self._cells()), *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks; names are text, whatever they are."""
        return as_html_table(self._cells(), self.notes)


@dataclass(frozen=True)
class PooledTables:
    """The meta-analyses of a study, by analysis and term."""

    by_analysis: Mapping[str, tuple[PooledTerm, ...]]

    @property
    def lines(self) -> tuple[ResultTerm, ...]:
        """Return the lines of all; the group says which analysis, and which site."""
        return tuple(
            msgspec.structs.replace(line, group=f"{name}{BETWEEN}{line.group}")
            for name, terms in self.by_analysis.items()
            for term in terms
            for line in term.lines
        )

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Return the forest plots."""
        return tuple(
            replace(term.panel, title=f"{name}{BETWEEN}{term.panel.title}")
            for name, terms in self.by_analysis.items()
            for term in terms
            if term.sites
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the tables."""
        return tuple(f"{name}, pooled over sites\n{term}" for name, terms in self.by_analysis.items() for term in terms)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the sentences under the tables."""
        return tuple(
            f"{name}{BETWEEN}{term.term}: {note}"
            for name, terms in self.by_analysis.items()
            for term in terms
            for note in term.notes
        )

    def data(self, level: float) -> dict[str, Any]:  # noqa: ARG002 - each has the level of its fits
        """Return them as data."""
        return {"meta_analyses": {name: [term.to_dict() for term in terms] for name, terms in self.by_analysis.items()}}
