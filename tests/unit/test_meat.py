"""Second moments of scores: how far a row and a household move them, the sandwich that they make, and controls that are caught."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from unpooled import PrivateGLM, PrivateLinearRegression
from unpooled.aggregation.layout import MomentsLayout
from unpooled.aggregation.meat import ASSUMED, Covariance, Meat, covariance_of
from unpooled.aggregation.standard import StandardRows
from unpooled.errors import UsageError
from unpooled.kernels.sandwich import drawn_to_model
from unpooled.privacy.bounds import Column
from unpooled.privacy.household import BoundedTable
from unpooled.privacy.plan import Card, Household, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit

MOST, IDS = 3, 4
COLUMNS = (Column("a", -1, 3), Column("c", categories=("u", "v")), Column("y", -2, 2))


def rows_of(clusters: int = MOST) -> StandardRows:
    return StandardRows(MomentsLayout.of(COLUMNS, "y", IDS * MOST), IDS * MOST, 1.1, clusters=clusters)


def household(rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    """Rows of one id, alike or not."""
    first = rng.random() < 0.5
    rows = []
    for _ in range(count):
        if not rows or not first:
            row = {
                "a": rng.choice([-1.0, 3.0, rng.uniform(-1, 3)]),
                "c": str(rng.choice(["u", "v"])),
                "y": rng.choice([-2.0, 2.0]),
            }
        rows.append(dict(row))
    return rows


def table_of(held: list[list[dict[str, Any]]]) -> Table:
    """The rows of several ids, at one party."""
    rows = [row for own in held for row in own]
    ids = [str(k) for k, own in enumerate(held) for _ in own]
    columns = {
        name: np.array([row[name] for row in rows], dtype=object if name == "c" else float) for name in ("a", "c", "y")
    }
    return BoundedTable(Table(columns), ids, MOST)


def farthest(seeds: int) -> dict[tuple[str, str], float]:
    """The farthest that a household at one or two parties, or one row of it, moved the total, in parts of its reach."""
    found: dict[tuple[str, str], float] = {}
    rows = rows_of()
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        standard = rng.uniform(-1, 1, 4), np.exp(rng.uniform(-4, 1, 4))
        start, clip = rng.normal(size=4) * float(rng.choice([0.0, 0.3, 30.0])), float(rng.choice([0.05, 1.0, 40.0]))

        def added(own: list[dict[str, Any]], rest: list[dict[str, Any]]) -> np.ndarray:
            """Return what the rows of an id add that are at one party (``own``) and at another (``rest``)."""
            whole = 0
            for held in (own, rest):
                if held:
                    others = [[{"a": 0.0, "c": "u", "y": 0.0}], [{"a": 0.0, "c": "u", "y": 0.0}]]
                    both = table_of([held, *others]), table_of(others)
                    sums = [rows.meat.added_up(rows.scores(rows.blocks(t, standard), start, clip), t) for t in both]
                    whole = whole + sums[0] - sums[1]
            return np.asarray(whole)

        at_first = int(rng.integers(0, MOST + 1))
        one, other = household(rng, MOST), household(rng, int(rng.integers(1, MOST + 1)))
        changed = [*one[:-1], *household(rng, 1)]
        a = added(one[:at_first], one[at_first:])
        for adjacency in Adjacency:
            vector = rows.meat.vector(1.0, rows.moves(adjacency))
            widths = np.concatenate([np.full(b.size, b.width) for b in vector.blocks])
            b = added(other[:1], other[1:]) if adjacency is Adjacency.REPLACE else 0 * a
            c = added(changed[:at_first], changed[at_first:])
            for unit, moved in ((Unit.HOUSEHOLD, a - b), (Unit.RECORD, a - c)):
                key = str(adjacency), str(unit)
                far = float(np.linalg.norm(moved / widths)) / vector.reach[unit].distance
                found[key] = max(found.get(key, 0.0), far)
    return found


def test_no_household_and_no_row_moves_the_scores_of_ids_farther_than_their_reach() -> None:
    """Theorem B.12."""
    found = farthest(150)
    assert max(found.values()) <= 1
    assert found["replace", "household"] > 0.6
    assert found["zero-out", "household"] > 0.9


def test_sums_over_an_id_that_are_not_shortened_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(self: Meat, scores: Any, owners: Any) -> Any:
        parts = np.concatenate(list(scores))
        sums = np.zeros((owners.max() + 1, self.size))
        np.add.at(sums, owners, parts)
        return sums

    monkeypatch.setattr(Meat, "_shortened", whole)
    assert max(farthest(40).values()) > 1.2


def test_an_id_whose_rows_are_at_two_parties_is_shortened_by_its_rows_there() -> None:
    rng, meat = np.random.default_rng(0), Meat(3, 1000, 4)
    direction = rng.normal(size=3)
    row = np.trunc(999 * direction / np.linalg.norm(direction))
    for count in (1, 2, 4):
        found = meat._shortened(iter([np.tile(row, (count, 1))]), np.zeros(count, dtype=np.int64))
        assert np.linalg.norm(found) <= 1000 * math.sqrt(count)
        assert np.linalg.norm(found) > 990 * math.sqrt(count)


def test_rows_without_ids_are_each_their_own() -> None:
    table = Table({"a": [1.0, 2.0, 3.0]})
    assert table.owners.tolist() == [0, 1, 2]
    held = BoundedTable(table, ["u", "v", "u"], 2)
    assert held.owners.tolist() == [0, 1, 0]
    taken = held.take(np.array([0, 2, 1]))
    assert (taken.owners.tolist(), taken.household) == ([0, 0, 1], (2, 2))


def test_scores_are_residuals_times_rows() -> None:
    rng = np.random.default_rng(1)
    n = 500
    layout = MomentsLayout.of((Column("a", -4, 4), Column("b", -4, 4), Column("y", -8, 8)), "y", n)
    rows = StandardRows(layout, n, 1.1, stretch=20.0)
    X = rng.normal(size=(n, 2)).clip(-4, 4)
    y = X @ [1.0, -1.0] + rng.normal(size=n)
    table = Table({"a": X[:, 0], "b": X[:, 1], "y": y})
    standard = np.zeros(3), np.array([0.25, 0.25, 0.125])
    start = np.zeros(3)
    total = rows.meat.added_up(rows.scores(rows.blocks(table, standard), start, 20.0), table)

    class Released:
        values, deviations = total.astype(float), np.zeros(total.size)

    found, variance = rows.meat_of(Released, 20.0)  # type: ignore[arg-type]
    Z = np.column_stack([X, np.full(n, 0.7)])
    assert found == pytest.approx((Z * y[:, None]).T @ (Z * y[:, None]), rel=2e-3, abs=0.5)
    assert not variance.any()


def test_the_middle_of_a_sandwich_is_the_models_under_noise_and_its_own_without() -> None:
    rng = np.random.default_rng(2)
    root = rng.normal(size=(4, 4))
    model = root @ root.T + np.eye(4)
    true = 3 * model + 5 * np.diag([1.0, 0, 0, 0])
    assert drawn_to_model(true, np.zeros((4, 4)), model) == pytest.approx(true)
    noise = rng.normal(size=(4, 4)) * 300
    loud = drawn_to_model(model + noise + noise.T, np.full((4, 4), 1e9), model)
    assert loud == pytest.approx(model)
    assert (np.linalg.eigvalsh(drawn_to_model(-5 * model, np.zeros((4, 4)), model)) > 0).all()


def study(unit: str, **parameters: Any) -> Study:
    together = Household("person", 500, 3, elsewhere=False) if unit == "household" else None
    card = Card("all", 1500, COLUMNS, household=together)
    return Study("bayes", (card,), 2.0, 1e-6, unit=unit, parameters={"response": "y", **parameters}, derived=())


def test_what_a_covariance_means_for_a_study() -> None:
    assert covariance_of("auto", study("record")) is Covariance.MODEL
    assert covariance_of("auto", study("household")) is Covariance.CLUSTER
    assert covariance_of("robust", study("household")) is Covariance.ROBUST
    with pytest.raises(UsageError, match="one of"):
        covariance_of("sandwich", study("record"))
    with pytest.raises(UsageError, match="without ids nobody knows"):
        covariance_of("cluster", study("record"))


@pytest.mark.parametrize("family", ["linear", "poisson"])
def test_a_table_names_its_covariance_and_a_method_without_scores_refuses_it(family: str) -> None:
    rng = np.random.default_rng(3)
    ids = np.repeat(np.arange(1500), 4)
    X = rng.uniform(-1, 1, (6000, 2))
    X[:, 1] = np.repeat(rng.uniform(-1, 1, 1500), 4)
    shared = np.repeat(rng.gamma(2.0, 0.5, 1500), 4)
    y = rng.poisson(2 * shared).clip(0, 20).astype(float)
    asked: dict[str, Any] = {"bounds": (-1, 1), "y_bounds": (0, 20), "epsilon": 1000.0, "delta": 1e-6, "random_state": 0}
    kind = PrivateLinearRegression if family == "linear" else (lambda **more: PrivateGLM("poisson", **more))
    tables = {}
    for covariance in ("model", "robust", "cluster"):
        more = {"unit": "household", "rows_per_household": 4} if covariance == "cluster" else {}
        fitted = kind(covariance="auto" if more else covariance, **asked, **more)
        given = {"unit_id": ids} if more else {}
        tables[covariance] = fitted.fit(X, y, **given).summary()
        assert ASSUMED[Covariance(covariance)] in str(tables[covariance])
    errors = {name: [t.std_error for t in table.terms] for name, table in tables.items()}
    # What varies between persons alone is known less well than the model says; what varies within them is not.
    assert errors["cluster"][1] > 1.15 * errors["model"][1]
    assert errors["robust"] == pytest.approx(errors["model"], rel=0.25)
    method = "gradient"
    with pytest.raises(UsageError, match="covariance 'robust' is of method"):
        kind(covariance="robust", method=method, **asked).fit(X, y)


def test_families_with_several_predictors_have_no_sandwich() -> None:
    with pytest.raises(UsageError, match="for families with one linear predictor"):
        PrivateGLM("multinomial", covariance="robust", bounds=(-1, 1), classes=["a", "b", "c"]).plan(5000, 3)
