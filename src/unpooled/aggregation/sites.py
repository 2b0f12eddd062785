r"""A constant of its own for every site: the column of sites, which every party makes of its own name, and what is known of its moments before data.

The indicator of the own site is one short coordinate of a row, so a row is hardly longer than without it, however many sites there are (Theorem B.17).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.formula import Formula
from unpooled.privacy.bounds import Column
from unpooled.privacy.table import BLOCK_ROWS, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.study import Study

    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]

#: Below this number of sites the spread between them is hardly known.
FEW = 8
#: The name of the column of sites, in formulas and in tables.
SITE = "site"
#: Length of the indicator of the own site: as short as the constant's (``aggregation/standard.py``).
SHORT = 0.7
#: A descent steps at most this many times farther along a site's constant than along a column.
_FASTEST = 10.0
#: How far a site's part of the sum of squared constants may be from its part of the rows, as a part of it: at least, and where rows differ in weight.
_LEAST_DOUBT, _DOUBT = 0.02, 0.5


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
    def steps(self) -> Row:
        """Return how many times farther a descent steps along each site's constant: its rows alone tell of it."""
        return 1 / np.maximum(self.parts, 1 / _FASTEST)

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
        return (
            f"the noise hides the constants of all but {used} of {sites} sites, so nothing is known of the spread between them",
        )
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
    doubt = (_LEAST_DOUBT if alike else _DOUBT) * expected
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
