"""Second moments of scores: how far a row and a household move them, the sandwich that they make, and controls that are caught."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from unpooled import PrivateGLM, PrivateLinearRegression
from unpooled.errors import UsageError
from unpooled.kernels.posterior import drawn_to_model
from unpooled.linear.layout import MomentsLayout
from unpooled.linear.residuals import ASSUMED, Covariance, Meat, covariance_of, steps_within
from unpooled.linear.standard import StandardRows
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.mechanisms import DistributedGaussian, Reach
from unpooled.privacy.plan import Card, Household, Study
from unpooled.privacy.table import BoundedTable, Table
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


@pytest.mark.slow
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


@pytest.mark.guarantee
def test_rows_without_ids_are_each_their_own() -> None:
    table = Table({"a": [1.0, 2.0, 3.0]})
    assert table.owners.tolist() == [0, 1, 2]
    held = BoundedTable(table, ["u", "v", "u"], 2)
    assert held.owners.tolist() == [0, 1, 0]
    taken = held.take(np.array([0, 2, 1]))
    assert (taken.owners.tolist(), taken.household) == ([0, 0, 1], (2, 2))


@pytest.mark.parametrize("most", [2, 8192, 20_000, 1_000_000])
def test_sums_of_thousands_of_rows_of_an_id_stay_exact(most: int) -> None:
    """Theorem B.12: squared lengths and products are integers that float64 holds, however many rows an id has."""
    rng, size = np.random.default_rng(most), 3
    meat = Meat(size, steps_within(1 << 20, most), most)
    count = min(most, 30_000)
    row = np.trunc(meat.longest * np.array([0.6, -0.64, 0.48]))
    others = np.trunc(rng.uniform(-0.57, 0.57, (5, size)) * meat.longest)
    scores, owners = np.concatenate([np.tile(row, (count, 1)), others]), np.array([*[0] * count, *range(1, 6)])
    sums = meat._shortened(iter(np.array_split(scores, 7)), owners)
    exact = [[int(value) for value in one] for one in sums]
    assert sum(v * v for v in exact[0]) <= count * meat.longest**2
    assert sum(v * v for v in exact[0]) > 0.999 * count * meat.longest**2
    table = BoundedTable(Table({"a": np.zeros(owners.size)}), owners.astype(str), max(most, count))
    entries = meat.added_up(iter(np.array_split(scores, 7)), table)
    wanted = [sum(one[i] * one[j] for one in exact) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]
    assert entries.tolist() == wanted


def test_parties_that_floor_their_vectors_move_a_household_no_farther_than_its_reach() -> None:
    """Theorem F.19 c: the rows of an id are at three parties, and each of them floors its own vector."""
    meat, moves = Meat(4, 1 << 20, MOST), StandardRows.moves(Adjacency.REPLACE)
    vector = meat.vector(1.0, moves)
    fragment = DistributedGaussian.calibrated(vector.blocks, vector.reach, Unit.HOUSEHOLD, 0.05, MOST)
    assert fragment.floored
    steps = np.concatenate([np.full(block.size, 1 << fragment._shift(block)) for block in vector.blocks])
    widths = np.concatenate([np.full(block.size, block.width) for block in vector.blocks])
    reach = vector.reach[Unit.HOUSEHOLD]
    whole = reach.distance * widths / math.sqrt(widths.size) / MOST  # that a party's part moves by
    moved = (np.floor(whole / steps) * steps + 1).astype(np.int64)
    assert np.linalg.norm(MOST * moved / widths) == pytest.approx(reach.distance, rel=1e-4)
    floored = MOST * (np.zeros(moved.size) - np.floor(-moved / steps)) / fragment.steps
    excess = float(np.linalg.norm(floored)) - float(np.linalg.norm(MOST * moved / widths)) / fragment.scale
    assert excess <= fragment._mu(reach) - reach.distance / fragment.scale
    # A control: one step for every coordinate, as if the rows of an id were at one party, is too little.
    one = Reach(reach.distance, meat.size * (meat.size + 1) // 2)
    assert excess > fragment._mu(one) - reach.distance / fragment.scale


def test_records_have_scores_no_longer_than_the_longest_whatever_a_request_says() -> None:
    """Scores of generalised linear models, at wild coefficients and units."""
    rng, seen = np.random.default_rng(5), 0.0
    count = 60
    X, y = rng.choice([-1.0, 1.0, 0.3], (count, 2)), rng.choice([0.0, 1.0, 9.0], count)
    table = Table({"a": X[:, 0], "b": X[:, 1], "y": y})
    card = Card("all", count, (Column("a", -1, 1), Column("b", -1, 1), Column("y", 0, 9)))
    for covariance, unit, most in (("robust", "record", 1), ("cluster", "household", 3)):
        together = Household("person", count, most, elsewhere=False) if unit == "household" else None
        own = msgspec.structs.replace(card, rows=count * most, household=together)
        asked = {"response": "y", "family": "poisson", "method": "newton", "covariance": covariance}
        design = load("glm").compile(Study("glm", (own,), 9.0, 1e-6, unit=unit, parameters=asked, derived=())).design
        rows = design.long
        for _ in range(60):
            scale = float(rng.choice([0.1, 1.0, 1e5]))
            standard, start = (rng.normal(size=2), 10 ** rng.uniform(-6, 6, 2)), rng.normal(size=3) * scale
            units = 10 ** rng.uniform(-50, 6, 3)
            for part in rows.scores_of_pulls(rows.blocks(table, standard), start, units):
                assert np.isfinite(part).all()
                assert (part == np.trunc(part)).all()
                square = [sum(int(v) ** 2 for v in one) for one in part]
                assert max(square) <= rows.meat.longest**2
                seen = max(seen, max(square) / rows.meat.longest**2)
    assert seen > 0.99


@pytest.mark.parametrize("clusters", [0, 20_000])
def test_scores_are_residuals_times_rows(clusters: int) -> None:
    rng = np.random.default_rng(1)
    n = 500
    layout = MomentsLayout.of((Column("a", -4, 4), Column("b", -4, 4), Column("y", -8, 8)), "y", n)
    rows = StandardRows(layout, n, 1.1, stretch=20.0, clusters=clusters)
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


def test_a_study_whose_noise_hides_every_direction_has_no_sandwich() -> None:
    assert not drawn_to_model(np.eye(3), np.ones((3, 3)), np.zeros((3, 3))).any()


def test_families_with_several_predictors_have_no_sandwich() -> None:
    with pytest.raises(UsageError, match="for families with one linear predictor"):
        PrivateGLM("multinomial", covariance="robust", bounds=(-1, 1), classes=["a", "b", "c"]).plan(5000, 3)


@pytest.mark.parametrize(
    ("covariance", "words"),
    [("model", ""), ("robust", "a row times its residual), for"), ("cluster", "over the rows of an id")],
)
@pytest.mark.parametrize("model", ["bayes", "glm"])
def test_a_plan_says_what_a_histogram_and_scores_hold_and_what_they_take_of_the_budget(
    model: str, covariance: str, words: str
) -> None:
    asked = study("household" if covariance == "cluster" else "record", covariance=covariance)
    more = {"method": "refinement"} if model == "bayes" else {"method": "newton", "family": "poisson"}
    columns = (*COLUMNS[:2], Column("y", 0, 9))
    cards = tuple(msgspec.structs.replace(card, columns=columns) for card in asked.parties)
    asked = msgspec.structs.replace(asked, model=model, parties=cards, parameters={**asked.parameters, **more})
    plan = load(model).compile(asked)
    text = str(plan)
    for name in ("cells", "meat"):
        share = f"{name} ({plan.design.totals[name].share:.0%} of the squared budget)" if name in plan.design.totals else ""
        assert share in text
        assert (f"{name} (" in text) == bool(share)
    assert ("meat" in plan.design.totals) == bool(words)
    assert words in text
