"""Brute-force twins of the closed forms, end-to-end twins of ``describe``, and broken forms that both catch."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from unpooled.models.describe.party import sums
from unpooled.models.describe.plan import WEIGHTS, Layout, layout, mechanism
from unpooled.privacy.bounds import Coding, Column
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.sensitivity import category_counts, column_moments
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit

REPLACE, ZERO_OUT = Adjacency.REPLACE, Adjacency.ZERO_OUT
SHAPES = [
    (1.0, 1.0, 1.0),
    (1.0, 1.0, math.sqrt(2)),
    (0.0, 1.0, math.sqrt(2)),
    (1.0, 1.0, 1.5),
    (1.0, 0.5, 3.0),
    (0.0, 0.0, 1.0),
    (2.0, 0.0, 1.0),
    (5.0, 1.0, 1.0),
    (0.0, 1.0, 0.0),
    (1.0, 0.7, 0.99),
    (1.0, 0.7, 1.0),
    (0.3, 1.0, 40.0),
    (1.0, 40.0, 1.0),
    (0.0, 1.0, 2.5),
    (0.0, 1.0, 1.69),
    (0.5, 1.0, 1.73),
]


# --- column_moments -------------------------------------------------------------------------------------------------------


def contribution(z: np.ndarray, weights: tuple[float, float, float]) -> np.ndarray:
    """What one present value adds, weighted; the last row is an absent value."""
    z = np.asarray(z, dtype=float)
    return np.concatenate([np.stack([np.ones_like(z), z, z * z], axis=-1) * weights, np.zeros((1, 3))])


def brute_force(weights: tuple[float, float, float], adjacency: Adjacency, may_be_absent: bool) -> float:
    """Largest distance of two contributions: a dense grid of both values, polished from the best pairs."""
    z = np.linspace(-1, 1, 401)
    points = contribution(z, weights)
    if adjacency is ZERO_OUT:
        return float(np.linalg.norm(points, axis=1).max())
    if not may_be_absent:
        points = points[:-1]
    squared = ((points[:, None, :] - points[None, :, :]) ** 2).sum(-1)
    best = math.sqrt(squared.max())

    def negative(pair: np.ndarray) -> float:
        one, other = contribution(pair, weights)[:2]
        return -float(((one - other) ** 2).sum())

    starts = np.argsort(squared[:401, :401].ravel())[-3:]
    for start in starts:
        pair = z[list(np.unravel_index(start, (401, 401)))]
        found = optimize.minimize(
            negative, pair, bounds=[(-1, 1)] * 2, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10}
        )
        best = max(best, math.sqrt(-found.fun))
    return best


def holds(form, weights: tuple[float, float, float], adjacency: Adjacency, may_be_absent: bool) -> bool:
    declared = form(*weights, adjacency, may_be_absent=may_be_absent)
    return declared >= brute_force(weights, adjacency, may_be_absent) * (1 - 1e-9)


@pytest.mark.parametrize("may_be_absent", [False, True])
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("weights", SHAPES)
def test_column_moments_bounds_every_pair_and_is_attained(weights: tuple, adjacency: Adjacency, may_be_absent: bool) -> None:
    declared = column_moments(*weights, adjacency, may_be_absent=may_be_absent)
    found = brute_force(weights, adjacency, may_be_absent)
    assert declared >= found * (1 - 1e-9)
    assert declared == pytest.approx(found, rel=1e-6)


def test_column_moments_bounds_random_weights() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        weights = tuple(np.exp(rng.normal(0, 1.2, 3)))
        assert holds(column_moments, weights, REPLACE, bool(rng.integers(2)))


def no_interior(a: float, b: float, c: float, adjacency: Adjacency, *, may_be_absent: bool) -> float:
    """Forgets the interior maximum at c^2 > 2 b^2."""
    return math.sqrt(max(4 * b * b, a * a + b * b + c * c if may_be_absent or adjacency is ZERO_OUT else 0))


def no_absence(a: float, b: float, c: float, adjacency: Adjacency, *, may_be_absent: bool) -> float:
    """Forgets that a value may appear where none was."""
    return column_moments(a, b, c, adjacency, may_be_absent=False)


def five_per_cent_less(a: float, b: float, c: float, adjacency: Adjacency, *, may_be_absent: bool) -> float:
    return 0.95 * column_moments(a, b, c, adjacency, may_be_absent=may_be_absent)


@pytest.mark.parametrize(
    ("broken", "weights", "may_be_absent"),
    [
        (five_per_cent_less, (1.0, 1.0, 1.0), False),
        (no_interior, (0.0, 1.0, 2.5), False),
        (no_absence, (5.0, 1.0, 1.0), True),
    ],
)
def test_the_brute_force_catches_broken_forms(broken, weights: tuple, may_be_absent: bool) -> None:
    assert holds(column_moments, weights, REPLACE, may_be_absent)
    assert not holds(broken, weights, REPLACE, may_be_absent)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (-1.0, 9.0), (2.0, 3.0), (-7.0, 0.25)])
@pytest.mark.parametrize("weights", [(0.0, 1.0, 1.0), (1.0, 1.0, math.sqrt(2)), (1.0, 0.5, 3.0)])
def test_integers_of_any_range_move_no_further_than_the_form(low: float, high: float, weights: tuple) -> None:
    grid = 64
    column = Column("x", low, high, missing="absent")
    raw = np.append(np.linspace(low - 1, high + 1, 301), np.nan)
    coded, present = Coding((column,), grid).code((raw,))
    z = coded[:, 0] / grid
    points = np.stack([present[:, 0], z, z * z], axis=1) * weights
    found = math.sqrt(((points[:, None] - points[None]) ** 2).sum(-1).max())
    declared = column_moments(*weights, REPLACE, may_be_absent=True)
    assert 0.99 * declared <= found <= declared * (1 + 1e-12)


# --- category_counts ------------------------------------------------------------------------------------------------------


def worst_counts(categories: int, adjacency: Adjacency) -> float:
    states = np.concatenate([np.eye(categories), np.zeros((1, categories))])  # each category, or absent
    pairs = itertools.product(states, states if adjacency is REPLACE else states[-1:])
    return max(float(np.linalg.norm(one - other)) for one, other in pairs)


@pytest.mark.parametrize("categories", [2, 3, 7])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_category_counts_is_exact(categories: int, adjacency: Adjacency) -> None:
    assert category_counts(adjacency) == worst_counts(categories, adjacency)
    assert not 0.95 * category_counts(adjacency) >= worst_counts(categories, adjacency)


def test_forgetting_the_second_category_is_caught() -> None:
    assert not category_counts(ZERO_OUT) >= worst_counts(3, REPLACE)


# --- describe, end to end -------------------------------------------------------------------------------------------------

COLUMNS = {
    "one number": (Column("x", -1.0, 3.0),),
    "a number that may be absent": (Column("x", 0.0, 50.0, missing="absent"),),
    "a number with an indicator": (Column("x", -2.0, -1.0, missing="indicator"),),
    "categories": (Column("g", categories=("a", "b", "c")),),
    "categories that may be absent": (Column("g", categories=("a", "b"), missing="absent"),),
    "everything": (
        Column("x", -1.0, 3.0),
        Column("g", categories=("a", "b", "c"), missing="indicator"),
        Column("y", 0.0, 1e-3, missing="indicator"),
        Column("h", categories=("1", "2")),
        Column("z", 10.0, 11.0, missing="absent"),
    ),
}
ROWS = 4


def study(columns: tuple[Column, ...], unit: Unit, adjacency: Adjacency, epsilon: float = 1.0, rows: int = ROWS) -> Study:
    return Study("describe", (Card("site", rows, columns),), epsilon, 1e-5, unit, adjacency)


def values(column: Column, rng: np.random.Generator) -> object:
    """A vertex of the admissible values, or a random one."""
    if column.categories is not None:
        choices = [*column.categories, None] if column.may_be_absent else list(column.categories)
        return choices[rng.integers(len(choices))]
    low, high = column.range
    vertices = [low, high, (low + high) / 2, low - 5, high + 5, rng.uniform(low, high), low + 0.3 * (high - low)]
    return [*vertices, *([np.nan] * 2 if column.may_be_absent else [])][
        rng.integers(len(vertices) + 2 * column.may_be_absent)
    ]


def table_of(rows: list[dict[str, object]], columns: tuple[Column, ...]) -> Table:
    kind = {c.name: object if c.categories else float for c in columns}
    return Table({c.name: np.array([row[c.name] for row in rows], dtype=kind[c.name]) for c in columns})


def neighbours(columns: tuple[Column, ...], unit: Unit, adjacency: Adjacency, rng: np.random.Generator, runs: int):
    """Statistics of neighbouring tables: (one, other)."""
    lay = layout(study(columns, unit, adjacency), Card("site", ROWS, columns))
    for _ in range(runs):
        rows = [{c.name: values(c, rng) for c in columns} for _ in range(ROWS)]
        here = sums(table_of(rows, columns), lay)
        if adjacency is REPLACE:
            changed = columns if unit is Unit.RECORD else [columns[rng.integers(len(columns))]]
            other = [*rows[:-1], {**rows[-1], **{c.name: values(c, rng) for c in changed}}]
            yield here, sums(table_of(other, columns), lay)
            continue
        without = sums(table_of(rows[:-1], columns), lay)
        if unit is Unit.ATTRIBUTE:  # one value contributes nothing: only its column's coordinates move
            i = rng.integers(len(columns))
            start = sum(lay.width(j) for j in range(i))
            other = here.copy()
            other[start : start + lay.width(i)] = without[start : start + lay.width(i)]
            without = other
        yield here, without


def moved(release: GaussianRelease, one: np.ndarray, other: np.ndarray) -> float:
    """The mu of two RELEASED vectors: equal noise is drawn for both, so what remains is the floored statistics' difference."""
    bits = KeySource.simulation(1).stream("equal")
    difference, at, total = release.release(one, bits) - release.release(other, bits), 0, 0.0
    for block in release.blocks:
        noise = release.scale * block.width
        shift = max(0, math.ceil(math.log2(noise / 2**19)))
        total += ((difference[at : at + block.size] * 2.0**shift / noise) ** 2).sum()
        at += block.size
    return math.sqrt(total)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("unit", list(Unit))
@pytest.mark.parametrize("name", COLUMNS)
def test_no_neighbour_moves_a_description_further_than_its_event(name: str, unit: Unit, adjacency: Adjacency) -> None:
    columns = COLUMNS[name]
    asked = study(columns, unit, adjacency)
    release = mechanism(asked, asked.parties[0])
    worst = 0.0
    for one, other in neighbours(columns, unit, adjacency, np.random.default_rng(5), 120):
        worst = max(worst, moved(release, one, other))
        assert moved(release, one, other) == pytest.approx(
            release.change(*(release.release(s, KeySource.simulation(1).stream("equal")) for s in (one, other)))
        )
    declared = release.event(unit).value
    assert worst <= declared
    assert worst >= (0.5 if name == "everything" and unit is Unit.RECORD else 0.8) * declared  # the search is not asleep


@pytest.mark.parametrize("epsilon", [1e-2, 1.0, 20.0])
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(
    "column", [Column("x", -1.0, 3.0), Column("x", 2.0, 9.0, missing="absent"), Column("x", 0.0, 1.0, missing="indicator")]
)
def test_a_vertex_neighbour_attains_the_event_and_catches_one_that_is_five_per_cent_short(
    column: Column, adjacency: Adjacency, epsilon: float
) -> None:
    asked = study((column,), Unit.RECORD, adjacency, epsilon)
    card = asked.parties[0]
    release, lay = mechanism(asked, card), layout(asked, card)
    low, high = column.range
    rows = [low, 0.3 * low + 0.7 * high, high]
    here = sums(Table({"x": [*rows, low]}), lay)
    others = [Table({"x": rows})] if adjacency is ZERO_OUT else [Table({"x": [*rows, high]})]
    if adjacency is REPLACE and column.may_be_absent:
        others.append(Table({"x": [*rows, np.nan]}))
    worst = max(moved(release, here, sums(other, lay)) for other in others)
    declared = release.event(Unit.RECORD).value
    assert 0.99 * declared <= worst <= declared
    reach = tuple((unit, type(r)(0.95 * r.distance, r.coordinates)) for unit, r in release.reach)
    assert worst > GaussianRelease(release.blocks, reach, release.scale).event(Unit.RECORD).value


def test_the_floor_may_add_a_step_and_the_event_covers_it() -> None:
    """Statistics on both sides of a multiple of 2^shift move further, floored, than they are apart."""
    column = Column("x", 0.0, 1.0)
    asked = study((column,), Unit.RECORD, REPLACE, 1e-2)
    release = mechanism(asked, asked.parties[0])
    steps = [max(0, math.ceil(math.log2(release.scale * b.width / 2**19))) for b in release.blocks]
    assert min(steps) > 0
    step = np.array([1 << s for s in steps])
    one, other = np.zeros(2, dtype=np.int64), np.array([-1, -1])  # one grid unit apart, one step after flooring
    enlarged = float(np.linalg.norm(step / release.deviations))
    assert moved(release, one, other) == pytest.approx(enlarged)
    distance = release.sensitivity(Unit.RECORD) / release.scale
    assert release.event(Unit.RECORD).value == pytest.approx(
        distance + max(step / release.deviations) * math.sqrt(2), rel=1e-12
    )
    assert enlarged > float(np.linalg.norm((one - other) / release.deviations)) * 1000


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_layout_gives_every_column_a_reach_of_one(adjacency: Adjacency) -> None:
    columns = COLUMNS["everything"]
    lay = Layout(columns, adjacency, 256)
    for i, column in enumerate(columns):
        weights = [1.0 / b.width for b in lay.blocks(i)]
        if column.categories is not None:
            assert weights == [1 / category_counts(adjacency)]
        else:
            count = WEIGHTS[0] if column.may_be_absent else 0.0
            scaled = [w * u for w, u in zip(weights[-2:], (256, 256**2), strict=True)]
            first = weights[0] if column.may_be_absent else count
            assert column_moments(first, *scaled, adjacency, may_be_absent=column.may_be_absent) == pytest.approx(
                1.0, rel=1e-12
            )
        assert lay.width(i) == sum(b.size for b in lay.blocks(i))
