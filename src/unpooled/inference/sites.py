"""Sites: constants of their own for every site of one fit, and estimates of sites that were fitted apart, put together by a meta-analysis."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.formula import Formula
from unpooled.inference.coding import SITE
from unpooled.inference.results import Result, ends, records
from unpooled.inference.summary import SummaryTerm
from unpooled.kernels.between_sites import POOLED, Pooled, pooled
from unpooled.privacy.bounds import Column
from unpooled.privacy.exposure import BETWEEN
from unpooled.privacy.table import BLOCK_ROWS, Table
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import ResultTerm, finite
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.study import Study

    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]


# --- Sites -----------------------------------------------------------------------------------------------------------------
# A constant of its own for every site: the column of sites, which every party makes of its own name, and what is known of its moments before data.
#
# The indicator of the own site is one short coordinate of a row, so a row is hardly longer than without it, however many sites there are (Theorem B.17).

_TUNED = table("rows")
#: Below this number of sites the spread between them is hardly known.
FEW = table("printed").whole("few_sites")
#: Length of the indicator of the own site: as short as the constant's (``linear/standard.py``).
SHORT = _TUNED.site_constant


class SiteEffects(StrEnum):
    """The parameter ``site_effects``: whether sites differ by a constant."""

    POOLED = "pooled"
    FIXED = "fixed"
    RANDOM = "random"


@dataclass(frozen=True)
class SiteConstants:
    """The sites of a study, with the rows of each by its card."""

    names: tuple[str, ...]
    rows: tuple[int, ...]
    #: Whether their constants are drawn around a mean.
    random: bool = False

    @property
    def column(self) -> Column:
        """Return the column of sites: every row has the level of its party."""
        return Column(SITE, categories=self.names)

    @cached_property
    def parts(self) -> Row:
        """Return each site's part of all rows."""
        rows = np.array(self.rows, dtype=np.float64)
        return np.asarray(rows / rows.sum())

    @property
    def largest(self) -> str:
        """Return the site with the most rows; the first of several."""
        return self.names[int(np.argmax(self.rows))]

    @property
    def steps(self) -> Row:
        """Return how many times farther a descent steps along each site's constant: its rows alone tell of it."""
        return 1 / np.maximum(self.parts, 1 / _TUNED.site_fastest)

    def of(self, participants: Sequence[str]) -> SiteConstants:
        """Return the same with no rows at sites that dropped out, whose constants nobody knows."""
        rows = tuple(count if name in participants else 0 for name, count in zip(self.names, self.rows, strict=True))
        return replace(self, rows=rows)

    def seen(self, table: Table, party: str) -> Table:
        """Return the party's table with the column of sites; a table that has one, such as made-up rows, is left as it is."""
        if SITE in table.names or party not in self.names:
            return table
        # One view of a table, so that what is remembered of it in one round is found in the next. The table holds it: both go together.
        views: dict[str, Table] = vars(table).setdefault("_at_sites", {})
        if party not in views:
            views[party] = AtSite(table, party)
        return views[party]


class AtSite(Table):
    """A table whose rows lie at one site, which is a column of it."""

    def __init__(self, table: Table, site: str) -> None:
        self._raw, self._site = table, site
        self.names = (*table.names, SITE)
        self.n_rows, self.household = table.n_rows, table.household

    @property
    def owners(self) -> NDArray[Any]:
        """Return the numbers that the table gives to its ids."""
        return self._raw.owners

    def blocks(self, names: tuple[str, ...], rows: int = BLOCK_ROWS) -> Iterator[tuple[NDArray[Any], ...]]:
        """The named columns; the site is the same in every row."""
        others = tuple(name for name in names if name != SITE) or self._raw.names[:1]
        for block in self._raw.blocks(others, rows):
            held = dict(zip(others, block, strict=True))
            yield tuple(np.full(block[0].size, self._site, dtype=object) if name == SITE else held[name] for name in names)


def sites_of(study: Study, site_effects: str, formula: str, *, intercept: bool) -> SiteConstants | None:
    """Return the sites whose constants the study asks for; None where it pools them. Refuse words and studies that cannot have them."""
    if site_effects not in set(SiteEffects):
        msg = f"site_effects is one of {listed([repr(str(word)) for word in SiteEffects])}, not {site_effects!r}"
        raise UsageError(msg)
    columns = [column.name for column in study.parties[0].columns]
    if site_effects == SiteEffects.POOLED:
        return None
    if len(study.parties) == 1:
        msg = f"site_effects {site_effects!r} is for several sites, and this study has one: leave it out"
        raise UsageError(msg)
    if SITE in columns:
        msg = f"site_effects {site_effects!r} makes a column {SITE!r} of the parties' names, and the cards declare one: rename that one, or leave site_effects out"
        raise UsageError(msg).at(column=SITE)
    if not intercept or (formula and not Formula.parse(formula).constant):
        msg = f"site_effects {site_effects!r} gives every site a constant: it goes with an intercept"
        raise UsageError(msg)
    if site_effects == SiteEffects.RANDOM and formula and SITE in Formula.parse(formula).needs:
        msg = f"site_effects 'random' has one slope for all sites: leave {SITE!r} out of the formula, or use 'fixed'"
        raise UsageError(msg)
    names, rows = (tuple(getattr(card, what) for card in study.parties) for what in ("name", "rows"))
    return SiteConstants(names, rows, site_effects == SiteEffects.RANDOM)


def spread_words(spread: float, used: int, sites: int) -> tuple[str, ...]:
    """Return sentences about the spread between sites: tau^2, the sites that it rests on, and whether they are few."""
    if math.isnan(spread):
        hidden = f"the noise hides the constants of all but {used} of {sites} sites, so nothing is known of the spread between them"
        return (f"{hidden}: each site has a constant of its own here, as with site_effects = 'fixed'",)
    words = [f"constants of sites are drawn around a mean: tau^2 = {spread:.4g} (restricted maximum likelihood)"]
    if used < sites:
        words.append(f"tau^2 and the constant rest on {used} of {sites} sites: the noise hides the constants of the others")
    return (*words, *few_words(used))


def few_words(sites: int) -> tuple[str, ...]:
    """Return the sentence about few sites; none from eight sites on."""
    return () if sites >= FEW else (f"{sites} sites: below {FEW} sites the spread between sites is hardly known",)


def asked_effects(site_effects: str) -> dict[str, str]:
    """Return the parameter of a study; none where sites are pooled, so that such a study keeps its hash."""
    return {} if site_effects == SiteEffects.POOLED else {"site_effects": site_effects}


def with_sites(formula: str, declared: Sequence[str]) -> str:
    """Return a formula with the sites' constants, whether or not it names them itself."""
    said = Formula.parse(formula).closed(declared)
    return formula if any(term == SITE or term.startswith(f"C({SITE}") for term in said.terms) else f"{formula} + {SITE}"


def known_moments(
    gram: Matrix, variance: Matrix, places: NDArray[np.intp], parts: Row, short: tuple[float, float], *, alike: bool
) -> tuple[Matrix, Matrix]:
    """Return second moments of rows with what is known of the sites' beforehand, and the variances of the noise that is left.

    No row is at two sites, so their products are 0. A site's part of the sum of squared constants is about its part of the rows: a little off where
    rows are shortened (``alike``), and more where they are weighted. ``short``: the lengths of the indicator and of the constant, which stands last.
    """
    gram, variance = gram.copy(), variance.copy()
    cross = np.ix_(places, places)
    own, noise = gram.diagonal()[places], variance.diagonal()[places]
    ratio = short[0] / short[1]
    beside, beside_noise = gram[places, -1] * ratio, variance[places, -1] * ratio**2
    # Hidden in noise, the whole is taken for as much as the noise.
    expected = max(float(gram[-1, -1]), math.sqrt(float(variance[-1, -1]))) * ratio**2 * parts
    doubt = (_TUNED.site_doubt_least if alike else _TUNED.site_doubt) * expected
    gram[cross], variance[cross] = 0.0, 0.0
    # Three numbers tell one: the released square, the released product with the constant, and the part of all rows.
    weights = np.array([1 / np.maximum(each, 1e-300) for each in (noise, beside_noise, doubt**2)])
    if variance.any():
        own = (weights * np.array([own, beside, expected])).sum(axis=0) / weights.sum(axis=0)
        noise = 1 / weights.sum(axis=0)
    gram[places, places], variance[places, places] = own, noise
    gram[places, -1] = gram[-1, places] = own / ratio
    variance[places, -1] = variance[-1, places] = noise / ratio**2
    return gram, variance


def with_indicators(middle: Row, width: Row, places: NDArray[np.intp]) -> tuple[Row, Row]:
    """Return means and deviations with those of the sites' indicators, which are not centred, and short."""
    if not places.size:
        return middle, width
    told = np.setdiff1d(np.arange(middle.size + places.size), places)
    found = np.zeros(told.size + places.size), np.full(told.size + places.size, 1 / SHORT)
    found[0][told], found[1][told] = middle, width
    return found


def longer_sites(size: int, places: NDArray[np.intp], parts: Row) -> Row:
    """Return the factors by which coordinates are longer in which every site's constant is as long as the constant of all rows."""
    longer = np.ones(size)
    longer[places] = 1 / np.sqrt(np.where(parts > 0, parts, 1.0))  # a site that dropped out has no rows
    return longer


def noise_norm(variance: Matrix) -> float:
    """About the operator norm of symmetric noise whose entries have these variances, however unlike: twice the root of their largest eigenvalue.

    The diagonal is halved. Of equal variances off the diagonal, and twice those on it, it is ``noisy_gram.noise_level``.
    """
    return (
        2 * math.sqrt(float(np.linalg.eigvalsh(variance - np.diag(variance.diagonal() / 2))[-1])) if variance.any() else 0.0
    )


# --- Meta analysis ---------------------------------------------------------------------------------------------------------
# Estimates of sites that were fitted apart, and what they say together: a meta-analysis, whose variances hold the noise of each site.

#: The lines under those of the sites.
FIXED, RANDOM, NEW = "fixed effect", "random effects", "a new site"


@dataclass(frozen=True, repr=False)
class PooledTerm(Result):
    """One term at every site, and pooled.

    ``sites`` are the lines of the sites by their names, whose standard errors hold sampling and privacy noise; ``left_out`` says of the other sites why
    they have none. ``pooled`` has the numbers of the meta-analysis; None where fewer than two sites have a line.
    """

    term: str
    confidence: float
    sites: Mapping[str, SummaryTerm]
    left_out: Mapping[str, str]
    pooled: Pooled | None
    _saved_types: ClassVar = (Pooled, SummaryTerm)

    @classmethod
    def of(cls, term: str, confidence: float, sites: Mapping[str, SummaryTerm], left_out: Mapping[str, str]) -> PooledTerm:
        """Pool the estimates of the sites, by the squares of their standard errors."""
        values = np.array([line.estimate for line in sites.values()])
        variances = np.array([line.std_error for line in sites.values()]) ** 2
        return cls(
            term, confidence, sites, left_out, pooled(values, variances, confidence) if len(sites) >= POOLED else None
        )

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

        (fixed, variance), half = found.fixed, float(ndtri(0.5 + self.confidence / 2))
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
        title = f"{self.term} at every site, with {self.confidence:.0%} intervals"
        weights = tuple(1 / self.sites[t.group].std_error ** 2 if t.group in self.sites else 0.0 for t in lines)
        shown = (tuple(t.group for t in lines), tuple(t.estimate for t in lines))
        return Panel(title, *shown, low, high, parts, weights=weights)

    def _panels(self) -> tuple[Panel, ...]:
        return (self.panel,)

    def _numbers(self) -> list[dict[str, Any]]:
        return records(self.lines)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        own = None if self.pooled is None else asdict(self.pooled)
        facts = {"left_out": dict(self.left_out), "pooled": own, "notes": self.notes}
        return {"term": self.term, "confidence": self.confidence, "terms": self._numbers(), **facts}

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

    def _lines(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [(self.term, "estimate", "std error", "privacy", "p", *ends(self.confidence))]
        for t in self.lines:
            numbers = (t.estimate, t.std_error, t.privacy, t.p_value, t.conf_low, t.conf_high)
            shown = ("" if v is None else f"{v:.3g}" if k == 3 else f"{v:.5g}" for k, v in enumerate(numbers))  # noqa: PLR2004 - the p-value
            rows.append((t.group, *shown))
        return rows

    def _foot(self) -> list[str]:
        return self.notes


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

    def data(self, confidence: float) -> dict[str, Any]:  # noqa: ARG002 - each has the level of its fits
        """Return them as data."""
        return {"meta_analyses": {name: [term.to_dict() for term in terms] for name, terms in self.by_analysis.items()}}
