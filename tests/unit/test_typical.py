"""Typical values: noise follows them and not a range that is only possible, no promise changes, and wrong ones cost width alone."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import command

import unpooled
from unpooled import Bounds, PrivateGLM, PrivateLinearRegression
from unpooled.audit.replay import replay
from unpooled.errors import UsageError
from unpooled.estimation.outlook import in_range
from unpooled.linear.layout import MomentsLayout, symmetric
from unpooled.linear.scales import CountedScales
from unpooled.linear.standard import Scales
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit
from unpooled.study.files import read_card
from unpooled.study.made_up import Truth
from unpooled.study.sniff import declaration
from unpooled.totals.total import Total
from unpooled.totals.whole_rows import needed

WIDE = Column("crp", 0.0, 500.0, typical=(12.0, 8.0))
Y = Column("y", 0.0, 1000.0, typical=(50.0, 10.0))
N = 3000
RNG = np.random.default_rng(0)
CRP, AGE = 12 + 8 * RNG.normal(size=N), 60 + 12 * RNG.normal(size=N)
FRAME = pd.DataFrame({"crp": np.clip(CRP, 0, 500), "age": AGE})
RESPONSE = 50 + 0.5 * (CRP - 12) + 0.2 * (AGE - 60) + 8 * RNG.normal(size=N)
RANGES = {"crp": (0, 500), "age": (18, 100), "y": (0, 1000)}


# --- declared --------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_typical_values_are_a_centre_inside_the_range_and_a_deviation() -> None:
    assert WIDE.usual == (18.0, 18.0)
    assert Column("a", 0, 10).usual == (5.0, 5.0)
    for typical in (
        (-1.0, 8.0),
        (12.0, 0.0),
        (12.0, -1.0),
        (12.0, 251.0),
        (math.nan, 1.0),
        (12.0, math.nan),
        (12.0, 1e-320),
    ):
        with pytest.raises(UsageError, match="typical is"):
            Column("crp", 0.0, 500.0, typical=typical)
    for rule in ("absent", "indicator"):
        with pytest.raises(UsageError, match=r"goes with missing = .complete."):
            Column("crp", 0.0, 500.0, missing=rule, typical=(12.0, 8.0))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="share of each"):
        Column("g", categories=("u", "v"), typical=(1.0, 1.0))


@pytest.mark.guarantee
def test_bounds_carry_typical_values_by_name() -> None:
    bounds = Bounds({"crp": (0, 500), "age": (18, 100)}, typical={"crp": (12, 8)})
    assert bounds.columns(["crp", "age"]) == (WIDE, Column("age", 18, 100))
    assert bounds.of("crp") == WIDE
    assert bounds.without("crp").columns(["age"]) == (Column("age", 18, 100),)
    assert Bounds(0, 500, typical={0: (12, 8)}).columns(["crp"]) == (WIDE,)
    for wrong, words in (
        ({"crp": 12}, "two numbers"),
        ({"crp": "ab"}, "two numbers"),
        ({"crp": (12, 8, 1)}, "two numbers"),
        ({"crp": (True, 8)}, "two numbers"),
        ({"weight": (1, 1)}, "not among"),
    ):
        with pytest.raises(UsageError, match=words):
            Bounds({"crp": (0, 500)}, typical=wrong).columns(["crp"])
    with pytest.raises(UsageError, match="not both"):
        Bounds(norm=1.0, typical={0: (0, 0.1)}).columns(["a"])


@pytest.mark.guarantee
def test_a_declaration_at_the_command_line_says_what_is_typical() -> None:
    assert declaration("crp=0:500;typical=12,8") == WIDE
    assert declaration("crp=0:500;complete;typical=12,8").missing == "complete"
    assert declaration("day=2020-01-01:2020-12-31;typical=100,30").typical == (100.0, 30.0)
    for text in ("crp=0:500;typical=12", "crp=0:500;typical=a,b", "g=u,v;typical=1,2"):
        with pytest.raises(UsageError, match=r"typical"):
            declaration(text)


def test_made_up_people_are_typical() -> None:
    scores = np.array([-1.0, 0.0, 2.0])
    assert in_range(WIDE, scores, 3.0).tolist() == [4.0, 12.0, 28.0]
    assert Truth().number(WIDE, scores).tolist() == [4.0, 12.0, 28.0]


# --- standards -------------------------------------------------------------------------------------------------------------


def layout(*more: Column) -> MomentsLayout:
    return MomentsLayout.of((WIDE, Column("age", 18, 100), *more, Y), "y", N)


@pytest.mark.parametrize("kind", [Scales, CountedScales])
def test_exact_standards_are_those_of_the_values(kind: type[Scales]) -> None:
    scales = kind(layout())
    table = Table({"crp": FRAME["crp"].to_numpy(), "age": AGE, "y": RESPONSE})
    total = scales.statistic(table).astype(float)
    standard = scales.decode(Total(total, np.zeros(total.size), ("p",)), N)
    widths, middles = np.array([250.0, 41.0, 500.0]), np.array([250.0, 59.0, 500.0])
    near = 0.01 if kind is Scales else 0.15  # cells tell a deviation about as well as they are fine
    assert standard.width * widths == pytest.approx([FRAME["crp"].std(), AGE.std(), RESPONSE.std()], rel=near)
    assert standard.middle * widths + middles == pytest.approx([FRAME["crp"].mean(), AGE.mean(), RESPONSE.mean()], abs=1.0)
    if kind is Scales:
        assert math.isnan(standard.variance[0])  # cut to their usual part, squares do not say it


def test_a_release_that_says_nothing_leaves_what_is_typical() -> None:
    scales = Scales(layout())
    blocks = sum(block.size for block in scales.vector(1.0, Adjacency.REPLACE).blocks)
    loud = Total(np.zeros(blocks), np.full(blocks, 1e3 * N * float(scales.layout.grid) ** 2), ("p",))
    standard = scales.decode(loud, N)
    assert standard.width[0] * 250 == pytest.approx(8.0, rel=0.01)
    assert standard.width[1] == 1.0  # of an untypical column a deviation is taken for at least its noise
    assert standard.width[2] * 500 == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("kind", [Scales, CountedScales])
def test_no_person_moves_the_sums_farther_than_planned(kind: type[Scales], adjacency: Adjacency) -> None:
    """Theorem B.21, by brute force over the corners of every column, its usual part, its typical centre, and no value."""
    for column in (WIDE, Column("crp", 0.0, 500.0, missing="complete", typical=(12.0, 8.0))):
        scales = kind(MomentsLayout.of((needed(column), Column("g", categories=("u", "v")), Y), "y", 1))
        vector = scales.vector(1.0, adjacency)
        size = np.concatenate([np.full(block.size, block.width) for block in vector.blocks])
        people = [
            Table({"crp": [a], "g": [g], "y": [b]})
            for a, g, b in itertools.product(
                (0.0, 12.0, 18.0, 36.0, 250.0, 500.0), ("u", "v"), (0.0, 20.0, 50.0, 80.0, 1000.0)
            )
        ]
        moved = [scales.statistic(one) / size for one in people]
        nobody = np.zeros(size.size)
        pairs = itertools.combinations(moved, 2) if adjacency is Adjacency.REPLACE else ((one, nobody) for one in moved)
        farthest = max(float(np.linalg.norm(a - b)) for a, b in pairs)
        assert 0.9 * vector.reach[Unit.RECORD].distance < farthest <= vector.reach[Unit.RECORD].distance * (1 + 1e-9)


FEW = (Column("crp", 0.0, 500.0, typical=(12.0, 8.0)), Column("g", categories=("u", "v")), Y)


def small(model: str, unit: str, adjacency: str) -> tuple[Study, dict[str, Table]]:
    rng = np.random.default_rng(1)
    response = Y if model == "bayes" else Column("y", categories=("n", "j"))
    marked = Column("crp", 0.0, 500.0, missing="complete", typical=(12.0, 8.0))
    tables = {
        name: Table(
            {
                "crp": np.where(rng.random(6) < 0.3, np.nan, rng.uniform(0, 500, 6)),
                "g": np.array(["u", "v"], dtype=object)[rng.integers(0, 2, 6)],
                "y": rng.uniform(0, 100, 6)
                if model == "bayes"
                else np.array(["n", "j"], dtype=object)[rng.integers(0, 2, 6)],
            }
        )
        for name in ("p", "q")
    }
    own: dict[str, Any] = {"response": "y", "max_passes": 9}
    own |= (
        {"method": "refinement", "goal": "predictions"}
        if model == "bayes"
        else {"family": "logistic", "method": "newton", "goal": "predictions"}
    )
    cards = tuple(Card(name, 6, (marked, FEW[1], response)) for name in tables)
    trust = {"aggregation": "trusted"}
    return Study(
        model, cards, 1.0, 1e-5, unit=unit, adjacency=adjacency, trust=trust, parameters=own, derived=(), simulation_seed=7
    ), tables


@pytest.mark.slow
@pytest.mark.long_for("bayes-zero-out", "glm-replace", "bayes-replace", "glm-zero-out")
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("model", ["bayes", "glm"])
def test_studies_are_audited_in_every_unit(model: str, adjacency: str) -> None:
    for unit in ROWWISE:
        asked, tables = small(model, str(unit), adjacency)
        report = replay(load(model), asked, tables, registry=load, rounds=1)
        assert report.passed, str(report)


@pytest.mark.long
@pytest.mark.slow
def test_values_that_are_not_cut_to_their_usual_part_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, tables = small("bayes", "record", "replace")
    assert replay(load("bayes"), asked, tables, registry=load, rounds=1).passed

    def uncut(self: Scales, at: int, values: np.ndarray) -> np.ndarray:
        grid, (middle, width) = float(self.layout.grid), self.usual
        return np.trunc((values - middle[at] * grid) / width[at])

    monkeypatch.setattr(Scales, "in_usual", uncut)
    assert not replay(load("bayes"), asked, tables, registry=load, rounds=1).passed


@pytest.mark.parametrize("centre", [200.0, 60.0])
def test_values_that_are_not_typical_at_all_take_the_rest_of_the_range(centre: float) -> None:
    """Cut at one end of the usual part, they would seem to vary by next to nothing."""
    scales = Scales(MomentsLayout.of((Column("crp", 0.0, 500.0, typical=(centre, 5.0)), Y), "y", N))
    table = Table({"crp": FRAME["crp"].to_numpy(), "y": RESPONSE})
    total = scales.statistic(table).astype(float)
    standard = scales.decode(Total(total, np.zeros(total.size), ("p",)), N)
    low, high = (250 + 250 * (standard.middle[0] + side * standard.width[0]) for side in (-1, 1))
    assert low == pytest.approx(0.0)
    assert high == pytest.approx(centre - 15.0)


def test_without_a_constant_what_is_typical_is_the_distance_from_nothing() -> None:
    assert symmetric(WIDE) == Column("crp", -500.0, 500.0, typical=(0.0, math.hypot(12.0, 8.0)))


def test_a_formula_keeps_what_is_typical_of_a_column_as_it_is() -> None:
    columns = (WIDE, Column("age", 18, 100, typical=(60.0, 12.0)), Y)
    made = MomentsLayout.of(columns, "y", N, formula="y ~ crp + log(age)")
    assert [c.typical for c in made.features] == [(12.0, 8.0), None]


# --- what they are for -----------------------------------------------------------------------------------------------------


def fitted(epsilon: float, typical: dict[str, tuple[float, float]] | None, seed: int | None = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PrivateLinearRegression(
            epsilon=epsilon, bounds=Bounds(RANGES, typical=typical), method="refinement", random_state=seed
        ).fit(FRAME.assign(y=RESPONSE), "y")


def test_without_noise_typical_values_change_no_line() -> None:
    plain, known = (fitted(math.inf, t, 0).summary() for t in (None, {"crp": (12, 8), "y": (50, 10)}))
    wrong = fitted(math.inf, {"crp": (28, 1.6), "y": (50, 10)}, 0).summary()
    for line, *others in zip(plain.terms, known.terms, wrong.terms, strict=True):
        for other in others:
            assert other.estimate == pytest.approx(line.estimate, abs=line.std_error)
            assert other.std_error == pytest.approx(line.std_error, rel=0.2)
    assert known.r_squared == pytest.approx(plain.r_squared, abs=0.05)


def test_a_range_that_is_only_possible_costs_nothing_where_values_are_typical() -> None:
    terms = {t.term: t for t in fitted(3.0, {"crp": (12, 8), "y": (50, 10)}, 0).summary().terms}
    assert abs(terms["crp"].estimate - 0.5) < 5 * terms["crp"].std_error < 0.25
    lost = {t.term: t for t in fitted(3.0, None, 0).summary().terms}
    assert "crp" not in lost or lost["crp"].std_error > 1.3 * terms["crp"].std_error


@pytest.mark.long
@pytest.mark.slow
def test_a_plan_foretells_the_lines_of_typical_columns() -> None:
    def foretold(typical: dict[str, tuple[float, float]] | None) -> Any:
        ranges = {name: ends for name, ends in RANGES.items() if name != "y"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = PrivateLinearRegression(
                epsilon=2.0, bounds=Bounds(ranges, typical=typical), y_bounds=(0, 100), method="refinement"
            )
            found = model.outlook(n_samples=1400, n_features=2)
        return next(line for line in found.lines if line.term == "crp")

    known = foretold({"crp": (12, 8)})
    assert known.printed >= 0.5
    # A deviation of 8, and not a third of 250.
    assert known.without_privacy > 5 * foretold(None).without_privacy


def test_logistic_rows_and_saved_studies_carry_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    ill = (rng.logistic(size=N) < (CRP - 12) / 8).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PrivateGLM(
            family="logistic",
            epsilon=4.0,
            method="newton",
            classes=[0, 1],
            random_state=0,
            bounds=Bounds({"crp": (0, 500), "age": (18, 100)}, typical={"crp": (12, 8)}),
        ).fit(FRAME, ill)
        model.save(tmp_path / "model.bin")
    (line,) = (t for t in model.summary().terms if t.term == "crp")
    assert abs(line.estimate - 1 / 8) < 5 * line.std_error
    assert line.std_error < 0.03
    again = unpooled.load(tmp_path / "model.bin")
    assert again.bounds.typical == {"crp": (12.0, 8.0)}


@pytest.mark.long
@pytest.mark.slow
def test_a_party_declares_what_is_typical_in_its_card(tmp_path: Path) -> None:
    FRAME.assign(y=RESPONSE).to_csv(tmp_path / "data.csv", index=False)
    columns = ("crp=0:500;typical=12,8", "age=18:100;complete", "y=0:1000;typical=50,10")
    command(
        tmp_path,
        *("party", "init", "data.csv", "--name", "north", "--folder", "north", "--epsilon", "9", "--delta", "1e-5"),
        *(word for column in columns for word in ("--column", column)),
    )
    card = read_card(tmp_path / "north" / "north.card.toml")
    assert [c.typical for c in card.columns] == [(12.0, 8.0), None, (50.0, 10.0)]
    (tmp_path / "study.toml").write_text(
        '[study]\nmodel = "bayes"\n\n[parameters]\nresponse = "y"\nmethod = "refinement"\n\n[privacy]\nepsilon = 5.0\ndelta = 1e-5\n\n'
        '[[party]]\ncard = "north/north.card.toml"\n'
    )
    assert "crp" in command(tmp_path, "plan", "study.toml")
    assert "Approved" in command(tmp_path, "party", "check", "study.toml", "--config", "north/party.toml", "--approve")
    command(tmp_path, "run", "study.toml", "--party", "north/party.toml")
    found = json.loads(command(tmp_path, "result", "study.run", "--json"))
    line = next(term for term in found["terms"] if term["term"] == "crp")
    assert abs(line["estimate"] - 0.5) < 5 * line["std_error"]


@pytest.mark.guarantee
def test_columns_at_two_parties_are_standardised_by_them() -> None:
    def lines(typical: dict[str, tuple[float, float]] | None, epsilon: float) -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = PrivateLinearRegression(
                parties={"clinic": ["age"], "laboratory": ["crp"]},
                response_at="clinic",
                bounds=Bounds(RANGES, typical=typical),
                method="moments",
                goal="table",
                epsilon=epsilon,
                random_state=0,
            ).fit(FRAME.assign(y=RESPONSE), "y")
        return {t.term: t for t in model.summary().terms}

    known = {"crp": (12.0, 8.0), "y": (50.0, 10.0)}
    plain, typical = (lines(some, math.inf)["crp"] for some in (None, known))
    assert typical.estimate == pytest.approx(plain.estimate, rel=0.02)
    noisy = lines(known, 8.0)["crp"]
    assert abs(noisy.estimate - 0.5) < 5 * noisy.std_error < 0.6
