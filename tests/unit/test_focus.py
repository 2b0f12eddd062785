"""A study whose budget goes to some columns: how far a unit moves its totals, what it estimates, and what is refused."""

from __future__ import annotations

import itertools
import math
from typing import Any

import msgspec
import numpy as np
import pytest

from unpooled.aggregation.counted_scales import CountedScales
from unpooled.aggregation.layout import MomentsLayout
from unpooled.errors import UsageError
from unpooled.kernels import focus_rows
from unpooled.models import load
from unpooled.models.bayes.focus import FocusRows
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.protocol.local import run_in_process

COLUMNS = (
    Column("a", -1, 3),
    Column("c", categories=("u", "v")),
    Column("m", 0, 1, missing="indicator"),
    Column("y", -2, 2),
)
Row = dict[str, Any]


def one_row(rng: np.random.Generator) -> Row:
    """A row whose values are ends of their ranges, anything between, or missing."""
    row: Row = {}
    for column in COLUMNS:
        if column.categories is not None:
            row[column.name] = str(rng.choice(column.categories))
        else:
            values = [*column.range, float(rng.uniform(*column.range))]
            row[column.name] = values[rng.integers(3)] if column.missing == "refuse" or rng.random() < 0.7 else math.nan
    return row


def alone(statistic: Any, row: Row) -> np.ndarray:
    """What one record adds: a table has two rows at least, so half of what two equal ones add."""
    columns = {k: np.array([v, v], dtype=object if isinstance(v, str) else float) for k, v in row.items()}
    return np.asarray(statistic(Table(columns)) // 2)


def shares_of_reach(seeds: int) -> dict[tuple[str, str, str], float]:
    """The farthest that one unit moved each total, in parts of its reach."""
    found: dict[tuple[str, str, str], float] = {}
    whole = MomentsLayout.of(COLUMNS, "y", 100)
    for seed, focus in itertools.product(range(seeds), (("c",), ("a", "m"))):
        rng = np.random.default_rng(seed)
        rows = FocusRows.of(whole, focus, 100)
        p = len(whole.coding.attribute) + 1
        standard = rng.uniform(-1, 1, p), np.exp(rng.uniform(-4, 1, p))
        start = rng.normal(size=whole.size + len(rows.focused) * len(rows.others)) * float(rng.choice([0.0, 0.3, 30.0]))
        clip = float(rng.choice([0.05, 1.0, 40.0]))
        first, second = one_row(rng), one_row(rng)
        changed = str(rng.choice(list(first)))
        value = {**first, changed: second[changed]}
        for adjacency in Adjacency:
            totals = (
                (CountedScales(whole).vector(1.0, adjacency), CountedScales(whole).statistic),
                (rows.cross(1.0, adjacency), lambda t: rows.products_of_columns(rows.blocks(t, standard))),
                (
                    rows.cells_of_all.vector(1.0, rows.moves(adjacency)),
                    lambda t: rows.residuals_of_all(rows.blocks(t, standard), start[: whole.size]),
                ),
                (rows.residual(1.0, adjacency), lambda t: rows.products(rows.blocks(t, standard), start, clip)),
            )
            for vector, statistic in totals:
                widths = np.concatenate([np.full(b.size, b.width) for b in vector.blocks])
                a, b, c = (alone(statistic, row) for row in (first, second, value))
                assert np.abs(a).max(initial=0) <= vector.per_row
                moved = a - b if adjacency is Adjacency.REPLACE else a
                for unit, difference in ((Unit.RECORD, moved), (Unit.ATTRIBUTE, a - c)):
                    far = float(np.linalg.norm(difference / widths)) / vector.reach[unit].distance
                    key = vector.name, str(adjacency), str(unit)
                    found[key] = max(found.get(key, 0.0), far)
    return found


def test_no_unit_moves_a_total_farther_than_its_reach() -> None:
    """Counts of columns by Theorem B.13, products of columns by Theorem B.5, residuals by F.2 and F.9.3."""
    found = shares_of_reach(60)
    assert max(found.values()) <= 1 + 1e-12
    for name in {name for name, *_ in found}:
        assert found[name, "replace", "record"] > 0.45, name
    assert found["scales", "replace", "attribute"] > 0.99
    assert found["scales", "zero-out", "record"] > 0.99


def test_products_that_are_not_shortened_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(focus_rows, "shorten_products", lambda first, second, most: None)
    with pytest.raises(AssertionError):  # one record adds more to a coordinate than any may
        shares_of_reach(20)


def study(n: int, epsilon: float, **parameters: Any) -> Study:
    columns = (Column("x", -4, 4), Column("arm", categories=("control", "treated")), Column("y", -6, 6))
    given = {"response": "y", "focus": ["arm"]} | parameters
    return Study("bayes", (Card("all", n, columns),), epsilon, 1e-5, parameters=given, derived=())


def trial(n: int, seed: int) -> tuple[Table, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n).clip(-4, 4)
    arm = (0.5 * x + rng.normal(size=n) > 0).astype(float)
    y = (0.6 * x + 0.5 * arm + 0.8 * rng.normal(size=n)).clip(-6, 6)
    table = Table({"x": x, "arm": np.where(arm > 0, "treated", "control").astype(object), "y": y})
    return table, np.column_stack([arm, x, np.ones(n)]), y


def test_a_large_budget_gives_the_least_squares_coefficient() -> None:
    table, design, y = trial(4000, 0)
    model = load("bayes")
    plan = model.compile(study(4000, 1e4))
    result = run_in_process(model, plan, {"all": table}, Policy.in_process(), load).outcome.result
    (line,) = model.tables(plan, result).summary().terms
    beta = np.linalg.lstsq(design, y, rcond=None)[0]
    assert line.term == "arm: treated - control"
    assert abs(line.estimate - beta[0]) < 0.2 * line.std_error
    foot = model.table(plan, result)
    assert "focus: x and the intercept are nuisance, and have no line" in foot
    assert len(result.coefficients) == 3


def test_the_plan_says_what_a_focus_costs() -> None:
    plan = load("bayes").compile(study(1000, 1.0))
    assert any("focus on arm" in note and "no standard errors" in note for note in plan.notes)
    assert plan.epsilon(1e-5, "record") <= 1.0


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"focus": ["leg"]}, "none of the columns"),
        ({"focus": ["arm", "x"]}, "some of the columns"),
        ({"fit_intercept": False}, "goes with an intercept"),
        ({"method": "gradient"}, "goes with method"),
        ({"focus": [], "method": "focus"}, "goes with method"),
        ({"geometry": "box"}, "without the parameters of method"),
    ],
)
def test_what_a_focus_does_not_go_with_is_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load("bayes").compile(study(1000, 1.0, **parameters))


def test_a_focus_that_would_be_noise_is_refused_before_data() -> None:
    with pytest.raises(UsageError, match="ask for more rows or a larger epsilon"):
        load("bayes").compile(study(60, 0.2))
    with pytest.raises(UsageError, match="epsilon = inf has none"):
        load("bayes").compile(msgspec.structs.replace(study(60, 1.0), epsilon=math.inf))
