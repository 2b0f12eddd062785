"""Everything that a table says, from the noisy counts of all parties: consistent counts, shares, a test, effects, quantiles. All of it is post-processing."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import StudyAborted
from unpooled.models.tables.declared import RELEASE, STEP, TablesDesign
from unpooled.models.tables.result import (
    POOLED,
    Cell,
    Contingency,
    Effect,
    Independence,
    LineShare,
    TableEstimate,
    TableQuantile,
)
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.protocol.messages import Ask, Dropped, Nothing
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from unpooled.models.tables.declared import TableLayout
    from unpooled.privacy.plan import Card, Plan
    from unpooled.protocol.registry import Conversation

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]


# --- Counts ----------------------------------------------------------------------------------------------------------------
# Noisy counts of all parties made consistent with public totals, and the noise that is left in every weighted sum of them (THEORY.md, section 3).

#: Steps towards possible counts at most, halvings of a step, and how closely the public totals are met, in persons.
_STEPS, _HALVES, _CLOSE = 100, 40, 1e-6
#: The part of the full products of sums that is added to those of the counts above 0.
_SLIGHT = 1e-4


@dataclass(frozen=True)
class Counts:
    """Noisy counts of the parties' cells, and what is public about their sums.

    ``raw`` has a row of cells per party, as released; ``variance`` is that of the noise of one released cell. ``sums`` has a row for every sum
    of cells whose true value is public, over all parties' cells one after the other; ``known`` are these values.
    """

    raw: Floats
    variance: float
    sums: Floats
    known: Floats
    #: The inverse of the products of the public sums.
    inverse: Floats

    @classmethod
    def of(cls, raw: Floats, variance: float, sums: Sequence[Floats], known: Sequence[float]) -> Counts:
        """Return the counts with their public sums; none is needed."""
        stacked = np.array(sums).reshape(len(known), raw.size)
        return cls(raw, variance, stacked, np.array(known, dtype=np.float64), _inverse(stacked))

    @cached_property
    def values(self) -> Floats:
        """Return the nearest counts with the public sums, a row per party: unbiased, and possibly negative (Theorem N.2)."""
        excess = self.sums @ self.raw.ravel() - self.known
        return self.raw - (self.sums.T @ (self.inverse @ excess)).reshape(self.raw.shape)

    @property
    def fit(self) -> float:
        """Return the p-value of the noisy sums against the public ones; 1 where there is no noise, or nothing is public."""
        freedom = int(np.linalg.matrix_rank(self.sums)) if self.known.size else 0
        if not freedom or not self.variance:
            return 1.0
        from scipy.special import chdtrc

        excess = self.sums @ self.raw.ravel() - self.known
        return float(chdtrc(freedom, float(excess @ self.inverse @ excess) / self.variance))

    def totals(self, cells: Sequence[Places]) -> Floats:
        """Return the sum of :attr:`values` over every set of places; cells of a party stand one after the other, and so do parties."""
        values = self.values.ravel()
        return np.array([values[places].sum() for places in cells])

    def covariance(self, cells: Sequence[Places]) -> Floats:
        """Return the covariances of the noise of these totals; no place is in two sets."""
        known = np.stack([self.sums[:, places].sum(axis=1) for places in cells], axis=1)
        together: Floats = np.diag([float(places.size) for places in cells]) - known.T @ self.inverse @ known
        return self.variance * together

    def noise(self, weights: Floats, places: Places) -> Floats:
        """Return the covariances of the noise of weighted sums of the cells at these places, a row of weights per sum."""
        known = self.sums[:, places] @ weights.T
        together: Floats = weights @ weights.T - known.T @ self.inverse @ known
        return self.variance * together

    def pooled(self) -> tuple[Floats, Floats, Floats]:
        """Return the cells' sums over parties as they were estimated, the deviations of their noise, and the nearest possible ones."""
        parties, cells = self.raw.shape
        known = self.sums.reshape(-1, parties, cells).sum(axis=1)
        variance = self.variance * (parties - np.einsum("ij,ij->j", known, self.inverse @ known))
        values = self.values.sum(axis=0)
        # Rows of `known` are sums over one party's cells or over all: of all, they are known of the pooled cells as well.
        whole = np.array([bool((row == row[:1]).all()) for row in self.sums.reshape(-1, parties, cells)], dtype=bool)
        rows = [self.sums.reshape(-1, parties, cells)[whole, 0]]
        limits = [self.known[whole]]
        if self.known.size and not whole.all():  # the parties' totals
            rows.append(np.ones((1, cells)))
            limits.append(self.known[~whole].sum(keepdims=True))
        return values, np.sqrt(np.maximum(variance, 0.0)), nearest(values, np.concatenate(rows), np.concatenate(limits))


def nearest(values: Floats, sums: Floats, known: Floats) -> Floats:
    """Return the counts >= 0 with these sums that are nearest to some values.

    They are max(0, values + A'm) with a number m for every sum, the maximum of a concave function, which Newton's steps climb.
    """

    def at(multipliers: Floats) -> tuple[Floats, float]:
        found = np.maximum(values + sums.T @ multipliers, 0.0)
        return found, float(multipliers @ known - found @ found / 2)

    multipliers = np.zeros(known.size)
    found, height = at(multipliers)
    slight = _SLIGHT * (sums @ sums.T)
    for _ in range(_STEPS):
        gap = known - sums @ found
        if not gap.size or float(np.abs(gap).max()) < _CLOSE:
            break
        held = sums[:, found > 0]
        step = np.linalg.pinv(held @ held.T + slight, hermitian=True) @ gap
        for _ in range(_HALVES):
            new, higher = at(multipliers + step)
            if higher > height:
                break
            step = step / 2
        multipliers, found, height = multipliers + step, new, higher
    return found


def _inverse(sums: Floats) -> Floats:
    """Return the inverse of the products of these sums, of which some may follow from the others."""
    return np.asarray(np.linalg.pinv(sums @ sums.T, hermitian=True), dtype=np.float64)


def spread(variance: float) -> float:
    """Return the root of a variance that rounding may have made negative."""
    return math.sqrt(max(variance, 0.0))


# --- Effects ---------------------------------------------------------------------------------------------------------------
# Odds ratio, risk ratio and risk difference of two lines, pooled or over strata: sets of values in Fieller's way (THEORY.md, section 5).

#: Of an effect, with cells in the order (reference without event, reference with event, line without, line with): the matrices H and G with
#: T'(H + theta G)T/2 = 0 at the true value, and the ends of what is possible.
_FORMS: dict[str, tuple[Floats, Floats, float, float]] = {}


def _symmetric(entries: dict[tuple[int, int], float]) -> Floats:
    matrix = np.zeros((4, 4))
    for (i, j), value in entries.items():
        matrix[i, j] = matrix[j, i] = value
    return matrix


# With a, b: the reference's rows without and with the event; c, d: the line's. d a - theta c b; d (a + b) - theta b (c + d); and
# d (a + b) - b (c + d) - theta (a + b)(c + d), which is d a - c b - theta (a c + a d + b c + b d).
_FORMS["odds ratio"] = _symmetric({(3, 0): 1.0}), _symmetric({(2, 1): -1.0}), 0.0, math.inf
_FORMS["risk ratio"] = _symmetric({(3, 0): 1.0, (3, 1): 1.0}), _symmetric({(1, 2): -1.0, (1, 3): -1.0}), 0.0, math.inf
_FORMS["risk difference"] = (
    _symmetric({(3, 0): 1.0, (2, 1): -1.0}),
    _symmetric({(0, 2): -1.0, (0, 3): -1.0, (1, 2): -1.0, (1, 3): -1.0}),
    -1.0,
    1.0,
)
#: What the same are called where strata are added up.
OVER_STRATA = {"odds ratio": "Mantel-Haenszel odds ratio", "risk difference": "common risk difference"}


def effects(counts: Counts, strata: Sequence[Sequence[Places]], z: float, line: str, reference: str) -> list[Effect]:
    """Return the effects of two lines, pooled and, where there are several strata, over strata; a stratum is four sets of places among all parties' cells."""
    pooled = [np.concatenate([stratum[k] for stratum in strata]) for k in range(4)]
    found = [_effect(counts, [pooled], name, z, (name, line, reference)) for name in _FORMS]
    if len(strata) > 1:
        found += [_effect(counts, strata, name, z, (title, line, reference)) for name, title in OVER_STRATA.items()]
    return found


def _effect(counts: Counts, strata: Sequence[Sequence[Places]], kind: str, z: float, named: tuple[str, str, str]) -> Effect:
    """Return the values theta with F(theta)^2 <= z^2 v(theta): F is linear in theta, and its variance v is a square (Theorem N.4)."""
    first, second, low, high = _FORMS[kind]
    f, sampling, noise = np.zeros(2), np.zeros(3), np.zeros(3)
    gradients: list[Floats] = []
    for cells in strata:
        t, covariance = counts.totals(cells), counts.covariance(cells)
        weight = _weight(t, counts.variance * cells[0].size) if len(strata) > 1 else 1.0
        matrices = weight * first, weight * second
        pulls = np.array([m @ t for m in matrices])
        # The noise of products has the mean tr(H N)/2 and the variance tr(H N H N)/2.
        spreads = [m @ covariance for m in matrices]
        f += [(pull @ t - np.trace(s)) / 2 for pull, s in zip(pulls, spreads, strict=True)]
        sampling += _square((pulls * np.maximum(t, 0.0)) @ pulls.T)
        noise += _square(np.array([[np.trace(a @ b) / 2 for b in spreads] for a in spreads]))
        gradients += [np.repeat(pulls[:, [k]], places.size, axis=1) for k, places in enumerate(cells)]
    used = np.concatenate([places for cells in strata for places in cells])
    noise += _square(counts.noise(np.concatenate(gradients, axis=1), used))
    return _solved(f, sampling, noise, z, (low, high), named)


def _square(products: Floats) -> Floats:
    """Return the coefficients of 1, theta and theta^2 of the variance of X + theta Y, from their covariances."""
    return np.array([products[0, 0], 2 * products[0, 1], products[1, 1]])


def _weight(cells: Floats, variance: float) -> float:
    """Return a stratum's weight: the inverse of its rows, as Mantel and Haenszel's, and less where noise is what its products hold (Theorem N.5)."""
    rows = max(float(cells.sum()), 1 + spread(variance))
    return 1 / (rows + 4 * variance + 32 * (variance / rows) ** 2)


def _solved(
    f: Floats, sampling: Floats, noise: Floats, z: float, ends: tuple[float, float], named: tuple[str, str, str]
) -> Effect:
    """Return the set of theta with (f0 + theta f1)^2 <= z^2 v(theta), inside what is possible."""
    constant, linear, square = np.array([f[0] ** 2, 2 * f[0] * f[1], f[1] ** 2]) - z * z * (sampling + noise)
    low, high = ends
    root = linear**2 - 4 * square * constant
    if not square or root < 0:
        return Effect(*named, "unknown")
    # In the form that loses no digits where the square's coefficient is small.
    half = -(linear + math.copysign(math.sqrt(root), linear)) / 2
    one, two = sorted((float(half / square), float(constant / half))) if half else (0.0, 0.0)
    found = float(-f[0] / f[1]) if f[1] else math.nan
    value = found if low < found < high else None
    if square < 0:
        return _outside(one, two, ends, value, named)
    if value is not None:
        powers = np.array([1.0, value, value**2])
        deviation, own = (spread(float(powers @ v)) / abs(float(f[1])) for v in (sampling + noise, noise))
        return Effect(*named, "interval", value, max(one, low), min(two, high), deviation, own)
    if one <= low < two < high:
        return Effect(*named, "below", high=two)
    return Effect(*named, "above", low=one) if low < one < high <= two else Effect(*named, "unknown")


def _outside(one: float, two: float, ends: tuple[float, float], value: float | None, named: tuple[str, str, str]) -> Effect:
    """Return the possible values up to one, and from two on."""
    below, above = one > ends[0], two < ends[1]
    if below and above:
        return Effect(*named, "outside", value, one, two)
    if not (below or above):
        return Effect(*named, "unknown")
    return Effect(*named, "below", value, high=one) if below else Effect(*named, "above", value, low=two)


# --- Independence ----------------------------------------------------------------------------------------------------------
# Test of independence of two columns of a noisy table, whose null law holds the noise (THEORY.md, section 4).

_TUNED = table("tables")
DRAWS = _TUNED.whole("draws")


def independence(table: Floats, deviation: float, rows: int | None, rng: np.random.Generator) -> Independence:
    """Return statistic and p-value of a table whose cells have noise of this deviation; ``rows``: how many rows it counts, where that is public."""
    lines, columns = table.shape
    if any(_filled(table, axis, deviation) < 2 for axis in (0, 1)):  # noqa: PLR2004 - two can be compared
        why = "fewer than two levels of a column have more rows than noise"
        return Independence(None, None, (lines - 1) * (columns - 1), why)
    (statistic,), p, q = statistics(table[None], deviation)
    size = max(float(table.sum()), 1.0)
    if _noise_part(p[0], q[0], size, deviation) > 0.5:  # noqa: PLR2004 - half
        return Independence(None, None, (lines - 1) * (columns - 1), "the noise moves it more than sampling does")
    people = rows if rows is not None else max(round(size), 1)
    drawn = rng.multinomial(people, np.outer(p[0], q[0]).ravel(), size=DRAWS).reshape(DRAWS, lines, columns)
    null, _, _ = statistics(drawn + deviation * rng.standard_normal(drawn.shape), deviation)
    p_value = (1 + int(np.sum(null >= statistic))) / (1 + DRAWS)
    return Independence(float(statistic), p_value, (lines - 1) * (columns - 1), "")


def _filled(table: Floats, axis: int, deviation: float) -> int:
    """Return how many lines, each a sum along the axis, have more rows than noise explains."""
    noise = _TUNED.empty_deviations * deviation * math.sqrt(table.shape[axis])
    return int(np.sum(table.sum(axis=axis) > max(noise, _TUNED.empty_persons)))


def statistics(tables: Floats, deviation: float) -> tuple[Floats, Floats, Floats]:
    """Return sum (O - E)^2 / (E + s^2) of every table, and the shares of its lines and columns, which are floored."""
    lines, columns = tables.shape[1:]
    total = np.maximum(tables.sum(axis=(1, 2)), 1.0)
    p, q = (
        np.maximum(tables.sum(axis=axis), 1 + deviation * math.sqrt(cells) / 2) for axis, cells in ((2, columns), (1, lines))
    )
    p, q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
    expected = total[:, None, None] * p[:, :, None] * q[:, None, :]
    return ((tables - expected) ** 2 / (expected + deviation**2)).sum(axis=(1, 2)), p, q


def _noise_part(p: Floats, q: Floats, size: float, deviation: float) -> float:
    """Return the part that noise has in the statistic's mean under independence (Theorem N.3)."""
    weight = 1 / (size * np.outer(p, q) + deviation**2)
    sampling = size * np.outer(p * (1 - p), q * (1 - q))
    noise = deviation**2 * np.outer((1 - p) ** 2 + (p.size - 1) * p**2, (1 - q) ** 2 + (q.size - 1) * q**2)
    return float((weight * noise).sum() / (weight * (sampling + noise)).sum())


# --- Quantiles -------------------------------------------------------------------------------------------------------------
# Quantiles of a column in bins, from noisy counts: which bins they may lie in (THEORY.md, section 6).

#: The quantiles that a table shows.
SHOWN = _TUNED.several("quantiles")


def quantiles(
    counts: Counts, bins: Sequence[Places], edges: Sequence[float], z: float, line: str, parts: Sequence[float] = SHOWN
) -> list[TableQuantile]:
    """Return quantiles of a line: ``bins`` are the places of the cells of each of its bins, ``edges`` their ends."""
    found, noise = counts.totals(bins), counts.covariance(bins)
    total, hidden = float(found.sum()), z * math.sqrt(max(float(noise.sum()), 0.0))
    if total <= max(hidden, 0.5):
        return [TableQuantile(line, part) for part in parts]
    from scipy.optimize import isotonic_regression

    rising = isotonic_regression(np.cumsum(found)[:-1].clip(0.0, total)).x
    cumulative = np.concatenate([[0.0], rising, [total]])
    return [_quantile(found, noise, cumulative, np.asarray(edges), z, line, part) for part in parts]


def _quantile(
    found: Floats, noise: Floats, cumulative: Floats, edges: Floats, z: float, line: str, part: float
) -> TableQuantile:
    """Return one quantile: its interval is from the first to the last bin that neither of its ends excludes (Theorem N.6)."""
    # Row b: the count below edge b, less the part of all: 0 at the quantile.
    below = np.tri(edges.size, edges.size - 1, -1) - part
    gap = below @ found
    # The rows below an edge are binomial; at the quantile their variance is n q (1 - q).
    variance = max(float(found.sum()), 0.0) * part * (1 - part) + ((below @ noise) * below).sum(axis=1)
    error = z * np.sqrt(np.maximum(variance, 0.0))
    may = np.flatnonzero((gap[:-1] <= error[:-1]) & (gap[1:] >= -error[1:]))
    target = part * cumulative[-1]
    # The middle of the values at which the cumulative count is this: one value, but where no rows are.
    first, last = (int(np.searchsorted(cumulative, target, side=side)) for side in ("left", "right"))
    value = float(np.mean([_crossing(cumulative, edges, k, target) for k in (max(first, 1), min(last, edges.size - 1))]))
    if not may.size:
        may = np.array([min(max(int(np.searchsorted(edges, value)) - 1, 0), edges.size - 2)])
    low, high = float(edges[may[0]]), float(edges[may[-1] + 1])
    return TableQuantile(line, part, min(max(value, low), high), low, high)


def _crossing(cumulative: Floats, edges: Floats, k: int, target: float) -> float:
    """Return where, between edge k - 1 and edge k, the line between cumulative counts has this value."""
    rise = cumulative[k] - cumulative[k - 1]
    inside = (target - cumulative[k - 1]) / rise if rise > 0 else 0.5
    return float(edges[k - 1] + min(max(inside, 0.0), 1.0) * (edges[k] - edges[k - 1]))


# --- Shares ----------------------------------------------------------------------------------------------------------------
# Shares of a level among the rows of a line, with Wilson's interval and the noise in it (THEORY.md, section 5).


def shares(counts: Counts, cells: Sequence[Places], z: float, line: str, levels: Sequence[str]) -> list[LineShare]:
    """Return the share of every level among the rows of one line; None where nobody can say that the line has rows."""
    found, noise = counts.totals(cells), counts.covariance(cells)
    rows, own = float(found.sum()), float(noise.sum())
    if rows <= max(z * spread(own), 0.5):
        return [LineShare(line, level, None) for level in levels]
    with_rows = noise.sum(axis=1)
    return [
        LineShare(line, level, share(float(found[j]), rows, float(noise[j, j]), float(with_rows[j]), own, z))
        for j, level in enumerate(levels)
    ]


def share(part: float, rows: float, noise: float, both: float, noise_of_rows: float, z: float) -> TableEstimate | None:
    """Return part / rows: the values p with (part - p rows)^2 <= z^2 (rows p (1 - p) + noise of part - p rows)."""
    square = rows**2 + z * z * (rows - noise_of_rows)
    linear = -2 * part * rows - z * z * (rows - 2 * both)
    constant = part**2 - z * z * noise
    root = linear**2 - 4 * square * constant
    if square <= 0 or root < 0:
        return None
    value = min(max(part / rows, 0.0), 1.0)
    low, high = ((-linear + side * math.sqrt(root)) / (2 * square) for side in (-1, 1))
    hidden = noise - 2 * value * both + value**2 * noise_of_rows
    return TableEstimate(
        value,
        min(max(low, 0.0), value),
        max(min(high, 1.0), value),
        spread(hidden) / rows,
        spread(rows * value * (1 - value) + hidden) / rows,
    )


# --- Coordinator -----------------------------------------------------------------------------------------------------------
# Pure generator: collect the parties' noisy counts, and read everything that a table says from them.
#
# Everything here is post-processing of releases (THEORY.md, sections 3 to 6).


def coordinate(plan: Plan[TablesDesign]) -> Conversation:
    """Ask every party for its counts; a party that drops out is left out."""
    cards = plan.study.parties
    replies = yield [Ask(card.name, STEP, Nothing()) for card in cards]
    answered = [(card, reply) for card, reply in zip(cards, replies, strict=True) if not isinstance(reply, Dropped)]
    if not answered:
        raise StudyAborted("no party answered: run the study again once they are back")
    raw, variance = [], 0.0
    for card, reply in answered:
        release = plan.release(card.name, RELEASE).mechanism
        assert isinstance(release, GaussianRelease)
        raw.append(release.decode(reply.counts.values.numpy()))
        variance = float(release.deviations[0]) ** 2  # one study, one budget: the same at every party
    return read(plan, tuple(card for card, _ in answered), np.array(raw), variance)


def read(plan: Plan[TablesDesign], cards: Sequence[Card], raw: Floats, variance: float) -> Contingency:
    """Return the result from a row of noisy counts per party."""
    design = plan.design
    counts = counts_of(design, cards, raw, variance, whole=len(cards) == len(plan.study.parties))
    z = NormalDist().inv_cdf(0.5 + design.parameters.confidence / 2)
    # The same counts of the same plan give the same bits: what is drawn here is post-processing of what everybody has.
    seed = hashlib.sha256(plan.hash.encode() + raw.tobytes()).digest()
    layout = design.layout
    rows = None if design.uncertain else sum(card.rows for card in cards)
    reading = _Reading(layout, counts, z)
    return Contingency(
        design.parameters.columns,
        layout.levels,
        rows,
        len(cards),
        tuple(cells_of(layout, cards, counts, rows, z)),
        tuple(reading.shares()),
        reading.independence(rows, np.random.default_rng(int.from_bytes(seed[:16], "big"))),
        tuple(reading.effects()),
        tuple(reading.quantiles()),
        len(reading.strata) * len(cards),
        design.parameters.confidence,
        bool(design.contradicted) or (bool(design.parameters.totals) and counts.fit < _TUNED.fits),
    )


def counts_of(design: TablesDesign, cards: Sequence[Card], raw: Floats, variance: float, *, whole: bool) -> Counts:
    """Return the counts with their public sums: rows of the parties where they are public, declared totals where all parties answered."""
    known: list[tuple[Floats, float]] = []
    if not design.uncertain:
        for row, card in zip(np.kron(np.eye(len(cards)), np.ones(raw.shape[1])), cards, strict=True):
            known.append((row, float(card.rows)))
    if whole:
        known += design.margins(len(cards))
    return Counts.of(raw, variance, [row for row, _ in known], [total for _, total in known])


def cells_of(layout: TableLayout, cards: Sequence[Card], counts: Counts, rows: int | None, z: float) -> Iterator[Cell]:
    """Return the counts of all cells, pooled first where there are several parties; intervals hold the noise only."""
    levels = tuple(product(*layout.levels))
    most = float(sum(card.rows for card in cards))
    values, deviations, shown = counts.pooled()
    if len(cards) > 1:
        yield from _cells(POOLED, levels, values, deviations, shown, most, z)
    ones = np.ones((0 if rows is None else 1, layout.size))
    for card, raw in zip(cards, counts.raw, strict=True):
        if len(cards) > 1:
            values = raw - ((raw.sum() - card.rows) / raw.size if rows is not None else 0.0)
            own = counts.variance * (1 - (1 / raw.size if rows is not None else 0.0))
            deviations = np.full(raw.size, math.sqrt(own))
            shown = nearest(values, ones, np.array([float(card.rows)][: ones.shape[0]]))
        yield from _cells(card.name, levels, values, deviations, shown, float(card.rows), z)


def _cells(
    source: str,
    levels: tuple[tuple[str, ...], ...],
    values: Floats,
    deviations: Floats,
    shown: Floats,
    most: float,
    z: float,
) -> Iterator[Cell]:
    for names, value, deviation, count in zip(levels, values.tolist(), deviations.tolist(), shown.tolist(), strict=True):
        low, high = (min(max(value + side * z * deviation, 0.0), most) for side in (-1, 1))
        yield Cell(source, names, TableEstimate(count, min(low, count), max(high, count), deviation))


class _Reading:
    """The first column's levels as lines, the last one's as their parts, and what stands in between as strata."""

    def __init__(self, layout: TableLayout, counts: Counts, z: float) -> None:
        self._layout, self._counts, self._z = layout, counts, z
        places = layout.places(counts.raw.shape[0])
        last = len(layout.columns) - 1
        self._levels = layout.levels[last][: layout.present(last)]
        self._edges = () if layout.columns[last].categories is not None else layout.edges(last)
        self._lines = layout.levels[0][: layout.present(0)] if last else ("",)
        # Axes: parties, lines, strata, levels; missing values are in no line and no level.
        shaped = places.reshape(places.shape[0], places.shape[1] if last else 1, -1, places.shape[-1])
        self._places = shaped[:, : len(self._lines), :, : len(self._levels)]
        self.strata = range(self._places.shape[2])

    def _cells(self, line: int) -> list[Places]:
        """Return the places of every level of a line, over all parties and strata."""
        return [self._places[:, line, :, j].ravel() for j in range(len(self._levels))]

    def shares(self) -> Iterator[LineShare]:
        for i, line in enumerate(self._lines):
            yield from shares(self._counts, self._cells(i), self._z, line, self._levels)

    def quantiles(self) -> Iterator[TableQuantile]:
        for i, line in enumerate(self._lines if self._edges else ()):
            yield from quantiles(self._counts, self._cells(i), self._edges, self._z, line)

    def independence(self, rows: int | None, rng: np.random.Generator) -> Independence | None:
        if len(self._layout.columns) == 1:
            return None
        table = self._counts.raw.ravel()[self._places].sum(axis=(0, 2))
        deviation = math.sqrt(self._counts.variance * self._places.shape[0] * self._places.shape[2])
        some_missing = self._layout.columns[0].may_be_absent or self._layout.columns[-1].may_be_absent
        return independence(table, deviation, None if some_missing else rows, rng)

    def effects(self) -> Iterator[Effect]:
        if len(self._layout.columns) == 1 or len(self._levels) != 2:  # noqa: PLR2004 - an event, or none
            return
        for i, line in enumerate(self._lines[1:], 1):
            two = self._places[:, [0, i]]
            strata = [[two[k, a, t, [j]] for a in (0, 1) for j in (0, 1)] for k in range(two.shape[0]) for t in self.strata]
            yield from effects(self._counts, strata, self._z, line, self._lines[0])
