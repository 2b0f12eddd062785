"""Odds ratios of hidden people: those of the people in common, exact over places, and nothing of places without a person (Theorem G.19)."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import numpy as np
import pandas as pd
import pytest
from hidden_members import NAME, hidden_study, key_of, placed_world
from joint_members import INF, people

import unpooled
from unpooled import Bounds, PrivateGLM, PrivateLinearRegression
from unpooled.errors import PlanMismatch, UsageError
from unpooled.estimation.columns import keys_of_study
from unpooled.estimation.hidden import HiddenLink
from unpooled.models import load
from unpooled.models.glm.columns_fit import PullFit, added_up, imagined_pulls
from unpooled.models.glm.hidden import HiddenPullDesign
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import HelperCard, Study
from unpooled.privacy.table import PlacedTable, Table
from unpooled.products.placed import PlacedMoments
from unpooled.products.sums import GRID
from unpooled.protocol.local import drive, in_process

MODEL = load("glm")


def ill_world(**asked: Any) -> tuple[Any, dict[str, Table], dict[str, Table], np.ndarray]:
    """The world of hidden people whose response is in two classes, more often the second where it was large."""
    cards, at, tables, common = placed_world(**asked)
    luck = np.random.default_rng(9).logistic(size=len(tables["p1"]["y"]))

    def of(table: Table) -> Table:
        values = {name: np.asarray(table[name]) for name in table.names}
        values["y"] = np.where(1.5 * values["y"] + luck > 0.1, "yes", "no").astype(object)
        return Table(values)

    columns = tuple(Column("y", categories=("no", "yes")) if c.name == "y" else c for c in cards[1].columns)
    cards = (cards[0], msgspec.structs.replace(cards[1], columns=columns))
    placed = PlacedTable(of(tables["p1"]).take(rows_of(at["p1"], tables["p1"])), at["p1"].places)
    return cards, {**at, "p1": placed}, {**tables, "p1": of(tables["p1"])}, common


def rows_of(placed: Any, whole: Table) -> np.ndarray:
    """Which rows of everybody's table a party has."""
    where = {float(value): k for k, value in enumerate(whole["a1"])}
    return np.array([where[float(value)] for value in placed["a1"]])


def odds_study(cards: Any, epsilon: float = INF, **parameters: Any) -> Study:
    asked = {"response": "y", "split": "columns", "expected": 30, **parameters}
    study = msgspec.structs.replace(hidden_study(cards, epsilon), model="glm", parameters=asked)
    return msgspec.structs.replace(study, helpers=(HelperCard("helper", key_of("helper")),))


@pytest.mark.guarantee
def test_every_total_is_that_of_the_people_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    cards, at, tables, common = ill_world()
    seen: list[tuple[Any, np.ndarray]] = []
    real, started = PullFit.take, PullFit.__post_init__
    begun: list[PullFit] = []
    monkeypatch.setattr(
        PullFit, "take", lambda self, total, noise: seen.append((self.at, total.copy())) or real(self, total, noise)
    )
    monkeypatch.setattr(PullFit, "__post_init__", lambda self: begun.append(self) or started(self))
    study = odds_study(cards)
    plan = MODEL.compile(study)
    result = drive(MODEL, plan, in_process(people(study, at))).result
    (fit,), design = begun, plan.design
    assert isinstance(design.shape, PlacedMoments)
    assert (fit.people, result.rows) == (len(common), len(common))
    joined = {name: tables[name].take(common) for name in design.parties}
    sums = design.sums.exact([design.sum_rows(name, joined[name]) for name in design.parties])
    standards = design.standards(sums, np.zeros_like(sums))
    assert fit.begun.mean == pytest.approx((joined["p1"]["y"] == "yes").mean())
    steps = 8 * GRID
    for at_numbers, total in seen[:3]:
        exact = added_up(design, joined, standards, at_numbers)
        assert (
            np.abs(total - exact).max() < 6 * steps * np.sqrt(len(common)) * 4
        )  # rounding at random, of four products of numbers of that many steps
    assert seen


def test_the_table_is_that_of_rows_that_were_linked_openly() -> None:
    cards, at, tables, common = ill_world(rows=400, held=(380, 390), places=900)
    study = odds_study(cards, expected=350)
    hidden = drive(MODEL, MODEL.compile(study), in_process(people(study, at))).result
    open_cards = tuple(msgspec.structs.replace(card, rows=len(common), linked="", capped=False) for card in cards)
    asked = {name: value for name, value in study.parameters.items() if name != "expected"}
    openly = msgspec.structs.replace(study, parties=open_cards, ids="", parameters=asked)
    joined = {name: tables[name].take(common) for name in ("p0", "p1")} | {"helper": tables["helper"]}
    known = drive(MODEL, MODEL.compile(openly), in_process(people(openly, joined))).result
    values = [[c.value for c in result.coefficients] for result in (hidden, known)]
    assert values[0] == pytest.approx(values[1], abs=2e-3)
    assert hidden.intercept == pytest.approx(known.intercept, abs=2e-3)


def test_what_is_played_is_what_a_whole_fit_gives() -> None:
    cards, _, tables, common = ill_world(rows=600, held=(580, 590), places=1200)
    design = MODEL.compile(odds_study(cards, expected=len(common))).design
    joined = {name: tables[name].take(common) for name in ("p0", "p1")}
    played = imagined_pulls(design, joined, np.random.default_rng(0))
    assert played.rows == len(common)
    assert all(np.isfinite(c.value) for c in played.coefficients)


@pytest.mark.guarantee
def test_a_place_without_a_person_adds_nothing_to_pulls_and_rows_come_after_second_moments() -> None:
    cards, at, _, _ = ill_world()
    study = odds_study(cards, 3.0)
    plan = MODEL.compile(study)
    design = plan.design
    assert isinstance(design, HiddenPullDesign)

    class Context:
        name, table = "p1", at["p1"]

        def kept(self, name: str) -> np.ndarray:
            return np.full(design.settings + 1 if name.endswith("_1") else design.pulls.settings, 0.5)

        def has(self, _: str) -> bool:
            return True

        def coins(self, *_: Any) -> Any:
            return (
                np.random.default_rng(0)
                and type("Coins", (), {"words": lambda _, first, size: np.zeros(size, dtype=np.uint64)})()
            )

    from unpooled.products.masking import spots_of

    empty = np.setdiff1d(np.arange(150), at["p1"].at)
    for number in range(len(design.rounds)):
        for spot in spots_of(design, number):
            if spot.side.sender == "p1":
                block = design.block(Context(), spot)  # type: ignore[arg-type]
                assert not block[empty].any()
                assert block[at["p1"].at].any()
    early = Context()
    early.has = lambda _: False  # type: ignore[method-assign]
    with pytest.raises(PlanMismatch, match="not asked for yet"):
        design.asked(early)  # type: ignore[arg-type]


def test_other_families_of_hidden_people_are_refused() -> None:
    cards, *_ = placed_world()
    counts = tuple(Column("y", 0.0, 9.0) if c.name == "y" else c for c in cards[1].columns)
    cards = (cards[0], msgspec.structs.replace(cards[1], columns=counts))
    with pytest.raises(UsageError, match="odds ratios are what hidden people have"):
        MODEL.compile(odds_study(cards, 1.0, family="poisson"))
    ill, *_ = ill_world()
    with pytest.raises(UsageError, match="expected is of hidden people"):
        openly = tuple(msgspec.structs.replace(card, linked="", capped=False) for card in ill)
        MODEL.compile(msgspec.structs.replace(odds_study(openly, 1.0), ids=""))


# --- in Python -----------------------------------------------------------------------------------------------------------------


def frames(rows: int = 900, seed: int = 0) -> tuple[dict[str, pd.DataFrame], Bounds, np.ndarray, pd.DataFrame]:
    """A clinic and a laboratory with some people in common, the bounds, who they are, and everybody."""
    rng = np.random.default_rng(seed)
    everybody = pd.DataFrame(
        {"id": [f"p{k}" for k in range(rows)], "age": rng.uniform(20, 90, rows), "crp": rng.uniform(0, 30, rows)}
    )
    everybody["ward"] = rng.choice(["a", "b"], rows)
    u = (everybody.age - 55) / 20 - everybody.crp / 15 + 0.6 * (everybody.ward == "b")
    everybody["ill"] = np.where(u + rng.logistic(size=rows) > -1, "yes", "no")
    everybody["y"] = np.clip(u + rng.normal(size=rows), -6, 6)
    one, two = (rng.permutation(rows)[: int(0.85 * rows)] for _ in range(2))
    held = {
        "clinic": everybody.iloc[one][["id", "age", "ward", "ill", "y"]].reset_index(drop=True),
        "lab": everybody.iloc[two][["id", "crp"]].reset_index(drop=True),
    }
    bounds = Bounds({"age": (0, 100), "ward": ["a", "b"], "crp": (0, 30), "y": (-6, 6)})
    return held, bounds, np.intersect1d(one, two), everybody


@pytest.mark.guarantee
def test_keys_are_those_of_open_links() -> None:
    """Places of a hidden link are known, so its study compares no ids; other studies compare all that are named."""
    assert keys_of_study(HiddenLink(NAME, ("id",), cast("Any", None), "", ()), ("whole",)) == []
    assert keys_of_study(["id", "name"], ("whole",)) == [
        *keys_of_study("id", ("whole",)),
        *keys_of_study("name", ("whole",)),
    ]


@pytest.mark.slow
def test_frames_are_fitted_over_a_hidden_link() -> None:
    held, bounds, common, everybody = frames()
    link = unpooled.hidden_link(held, on="id", random_state=1)
    assert "places of clinic, lab" in str(link)
    assert "ids" in str(link.statement)
    odds = {**held, "clinic": held["clinic"].drop(columns="y")}
    of_three = Bounds({"age": (0, 100), "ward": ["a", "b"], "crp": (0, 30)})
    model = PrivateGLM("logistic", bounds=of_three, epsilon=INF, expected=600, classes=["no", "yes"], random_state=0)
    model.fit(odds, "ill", on=link)
    both = everybody.iloc[common]
    from sklearn.linear_model import LogisticRegression

    x = np.column_stack([both.age, both.ward == "b", both.crp])
    known = LogisticRegression(C=np.inf, max_iter=5000, tol=1e-10).fit(x, both.ill == "yes").coef_[0]
    lines = {line.term: line.estimate for line in model.summary().terms}
    # The same weighted equation is solved, not the likelihood: near it where the law is logistic.
    assert [lines["age"], lines["ward: b - a"], lines["crp"]] == pytest.approx(known, abs=0.15)
    assert "adds to that of the fit" in str(model.linkage_)
    assert model.plan_.study.hidden
    assert model.plan_.study.delta < 1 / link.total
    linear = {**held, "clinic": held["clinic"].drop(columns="ill")}
    fit = PrivateLinearRegression(bounds=bounds, epsilon=INF, expected=600, random_state=0).fit(linear, "y", on=link)
    slopes = {line.term: line.estimate for line in fit.summary().terms}
    least = np.linalg.lstsq(np.column_stack([x, np.ones(len(x))]).astype(float), both.y, rcond=None)[0]
    assert [slopes["age"], slopes["ward: b - a"], slopes["crp"]] == pytest.approx(least[:3], abs=0.02)
    assert fit.moments_.rows == len(common)


@pytest.mark.slow
def test_what_a_hidden_link_cannot_do_is_refused_by_name() -> None:
    held, bounds, _, _ = frames(120)
    link = unpooled.hidden_link(held, on="id", random_state=1)
    linear = {**held, "clinic": held["clinic"].drop(columns="ill")}
    asked = PrivateLinearRegression(bounds=bounds, epsilon=1.0, expected=60)
    with pytest.raises(UsageError, match="two parties"):
        unpooled.hidden_link({**held, "third": held["lab"]}, on="id")
    with pytest.raises(UsageError, match="the link is of clinic, lab"):
        asked.fit({"clinic": linear["clinic"], "other": held["lab"]}, "y", on=link)
    with pytest.raises(UsageError, match="another number of rows"):
        asked.fit({"clinic": linear["clinic"], "lab": held["lab"].iloc[:-1]}, "y", on=link)
    with pytest.raises(UsageError, match="none has it"):
        asked.fit(linear, "z", on=link)
    with pytest.raises(UsageError, match="expected = a whole number"):
        PrivateLinearRegression(bounds=bounds, epsilon=1.0).fit(linear, "y", on=link)
    with pytest.raises(UsageError, match="expected must be left out"):
        PrivateLinearRegression(bounds=bounds, epsilon=1.0, expected=60).fit(
            linear["clinic"][["age"]], linear["clinic"]["y"]
        )
    with pytest.raises(UsageError, match="expected is of hidden people"):
        asked.fit(linear, "y", on="id")
    assert NAME.startswith("hidden:")
