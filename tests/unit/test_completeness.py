"""Gaps that follow the response: tables of whole rows whose completeness is modelled, what they say, how far a person moves them, and who may not."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import PARTIES, approve, command
from scipy.optimize import minimize
from scipy.special import expit

import unpooled
from unpooled import Bounds, PrivateGLM, PrivateLinearRegression, PrivateLogisticRegression
from unpooled.audit.replay import Report, replay
from unpooled.errors import PlanMismatch, UsageError
from unpooled.estimation.outlook import imagine_rounds
from unpooled.kernels import rows as row_kernels
from unpooled.models import load
from unpooled.models.glm import completeness, plan
from unpooled.models.glm.completeness import Influence, Tilt, tilt_of
from unpooled.models.glm.completeness_fit import Fitted
from unpooled.models.glm.fit import coordinate
from unpooled.models.glm.rows import SCORE
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit
from unpooled.totals.whole_rows import WHOLE, MarkedRows, marked_rows

N = 4000
RNG = np.random.default_rng(0)
X1 = np.clip(RNG.normal(size=N), -4, 4)
X2 = np.clip(0.5 * X1 + math.sqrt(0.75) * RNG.normal(size=N), -4, 4)
WARD = RNG.choice(["a", "b", "c"], N).astype(object)
ILL = (RNG.random(N) < expit(-0.5 + 0.5 * X1 + 0.6 * X2 + 0.7 * (WARD == "b"))).astype(int)
WHOLE_ROWS = RNG.random(N) > expit(-1.5 + X1 + 1.5 * ILL)
FRAME = pd.DataFrame({"x1": X1, "ward": WARD, "x2": np.where(WHOLE_ROWS, X2, np.nan)})
RANGES: dict[str, Any] = {"x1": (-4, 4), "ward": ["a", "b", "c"], "x2": (-4, 4)}
BOUNDS = Bounds(RANGES, missing={"x2": "model"})
TRUTH = {"x1": 0.5, "x2": 0.6, "ward: b - a": 0.7, "ward: c - a": 0.0}


def logistic(frame: pd.DataFrame = FRAME, y: Any = ILL, sites: Any = None, formula: str | None = None, **given: Any) -> Any:
    about = {"bounds": BOUNDS, "classes": (0, 1), "epsilon": math.inf, "method": "newton", "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how = {} if formula is None else {"formula": formula}
        return PrivateGLM("logistic", **{**about, **given}).fit(frame, y, sites=sites, **how)


# --- the likelihood of Theorem G.12, maximised directly ----------------------------------------------------------------------


def fitted(rows: np.ndarray, y: np.ndarray, offset: np.ndarray | float = 0.0) -> np.ndarray:
    """Logistic regression with an offset."""

    def parts(b: np.ndarray) -> np.ndarray:
        return np.asarray(expit(rows @ b + offset))

    return np.asarray(
        minimize(
            lambda b: float(np.logaddexp(0, rows @ b + offset).sum() - y @ (rows @ b + offset)),
            np.zeros(rows.shape[1]),
            jac=lambda b: rows.T @ (parts(b) - y),
            hess=lambda b: (rows.T * (parts(b) * (1 - parts(b)))) @ rows,
            method="trust-exact",
            options={"gtol": 1e-8},
        ).x
    )


def directly(seen: np.ndarray, others: np.ndarray, y: np.ndarray, whole: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients of (seen columns, columns with gaps, constant) and their standard errors, with products of the response."""
    one = np.ones(y.size)

    def of(z: np.ndarray) -> np.ndarray:
        return np.column_stack([seen, one, seen * z[:, None], z])

    gamma = fitted(of(y), whole)
    first, second = (-np.logaddexp(0, -of(k * one) @ gamma) for k in (0.0, 1.0))
    rows, offset = np.column_stack([seen, others, one])[whole], (second - first)[whole]
    found = fitted(rows, y[whole], offset)
    p, pi = expit(rows @ found + offset), expit(of(y) @ gamma)
    moved = ((1 - np.exp(second))[:, None] * of(one) - (1 - np.exp(first))[:, None] * of(0 * one))[whole]
    information = (rows.T * (p * (1 - p))) @ rows
    influence = (rows.T * (p * (1 - p))) @ moved
    # The stacked scores: what the data themselves say, and no model of them.
    scores = np.zeros((y.size, found.size))
    scores[whole] = rows * (y[whole] - p)[:, None]
    own = of(y) * (whole - pi)[:, None] @ np.linalg.inv((of(y).T * (pi * (1 - pi))) @ of(y)) @ influence.T
    each = (scores - own) @ np.linalg.inv(information)
    return found, np.sqrt((each.T @ each).diagonal())


def lines(fit: Any) -> dict[str, Any]:
    return {t.term: t for t in fit.summary().terms}


def test_without_noise_it_is_the_likelihood_of_whole_rows_given_that_they_are() -> None:
    """Theorem G.12: estimates to 1e-5, errors as those of the stacked scores."""
    seen = np.column_stack([X1, WARD == "b", WARD == "c"]).astype(float)
    wanted, errors = directly(seen, X2[:, None], ILL.astype(float), WHOLE_ROWS)
    found = lines(logistic())
    names = ("x1", "ward: b - a", "ward: c - a", "x2", "(intercept)")
    assert [found[name].estimate for name in names] == pytest.approx(wanted, abs=1e-5)
    assert [found[name].std_error for name in names] == pytest.approx(errors, rel=0.03)
    plainly = fitted(np.column_stack([seen, X2, np.ones(N)])[WHOLE_ROWS], ILL[WHOLE_ROWS].astype(float))
    assert abs(plainly[0] - wanted[0]) > 0.2  # complete cases are somewhere else
    assert logistic()._result.whole.alone[0] == pytest.approx(plainly[0], abs=0.02)


def test_a_formula_and_sites_are_in_the_model_of_which_rows_are_whole() -> None:
    sites = np.array(["p", "q", "r"])[RNG.integers(0, 3, N)]
    whole = RNG.random(N) > expit(-1.5 + X1 + 1.5 * ILL + (sites == "q"))
    frame = FRAME.assign(x2=np.where(whole, X2, np.nan))
    indicators = np.column_stack([sites == "q", sites == "r"]).astype(float)
    curved = np.column_stack([X1, X1**2])
    wanted, _ = directly(curved, np.column_stack([X2, X1 * X2]), ILL.astype(float), whole)
    found = lines(logistic(frame, formula="y ~ x1 + I(x1**2) + x2 + x1:x2"))
    assert [found[name].estimate for name in ("x1", "I(x1**2)", "x2", "x1:x2")] == pytest.approx(wanted[:4], abs=1e-5)
    fit = logistic(frame, sites=sites, site_effects="fixed")
    seen = np.column_stack([X1, WARD == "b", WARD == "c", indicators]).astype(float)
    one = np.ones(N)

    def of(z: np.ndarray) -> np.ndarray:  # sites have constants, and no products
        return np.column_stack([seen, one, seen[:, :3] * z[:, None], z])

    gamma = fitted(of(ILL.astype(float)), whole)
    first, second = (-np.logaddexp(0, -of(k * one) @ gamma) for k in (0.0, 1.0))
    wanted = fitted(np.column_stack([seen, X2, one])[whole], ILL[whole].astype(float), (second - first)[whole])
    found = lines(fit)
    assert [found[name].estimate for name in ("x1", "ward: b - a", "x2")] == pytest.approx(wanted[[0, 1, 5]], abs=1e-5)


@pytest.mark.guarantee
def test_columns_that_are_left_out_plainly_do_not_go_with_it() -> None:
    """How many rows have a ward no release counts, and the model of the others would begin from a wrong share."""
    ward = WARD.copy()
    ward[RNG.random(N) < 0.1] = None
    bounds = Bounds(RANGES, missing={"x2": "model", "ward": "complete"})
    with pytest.raises(UsageError, match=r'goes without "complete" for ward: declare "complete"'):
        logistic(FRAME.assign(ward=ward), bounds=bounds)


def test_all_columns_may_have_gaps() -> None:
    """Then the response alone says which rows are whole, in slopes that are those of complete cases."""
    bounds = Bounds({"x1": (-4, 4), "x2": (-4, 4)}, missing="model")
    both = np.column_stack([X1, X2])
    whole = RNG.random(N) > expit(-1.5 + 1.5 * ILL)
    wanted, _ = directly(np.empty((N, 0)), both, ILL.astype(float), whole)
    frame = pd.DataFrame({"x1": X1, "x2": np.where(whole, X2, np.nan)})
    fit = logistic(frame, bounds=bounds)
    assert [lines(fit)[name].estimate for name in ("x1", "x2", "(intercept)")] == pytest.approx(wanted, abs=1e-5)
    assert "which is modelled by the response: the response" in str(fit.summary())
    noisy = lines(logistic(frame, bounds=bounds, epsilon=8.0))
    assert abs(noisy["x2"].estimate - wanted[1]) < 5 * noisy["x2"].std_error


@pytest.mark.guarantee
@pytest.mark.parametrize("epsilon", [3.0, 30.0])
def test_with_noise_the_slopes_are_those_of_complete_data(epsilon: float) -> None:
    found = lines(logistic(epsilon=epsilon))
    assert len(found) == 5
    for name, truth in TRUTH.items():
        assert abs(found[name].estimate - truth) < 4.5 * found[name].std_error
    plainly = lines(logistic(epsilon=epsilon, bounds=Bounds(RANGES, missing={"x2": "complete"})))["x1"]
    assert abs(plainly.estimate - 0.5) > 2.5 * plainly.std_error


def test_rows_that_are_all_whole_cost_little_error() -> None:
    fit = logistic(FRAME.assign(x2=X2), epsilon=8.0)
    found, plainly = lines(fit), lines(logistic(FRAME.assign(x2=X2), epsilon=8.0, bounds=RANGES))
    for name, truth in TRUTH.items():
        assert abs(found[name].estimate - truth) < 4.5 * found[name].std_error
    assert np.mean([found[name].std_error / plainly[name].std_error for name in TRUTH]) < 1.35


# --- what it says ------------------------------------------------------------------------------------------------------------


def test_the_table_says_what_is_modelled_and_what_whole_rows_alone_say(tmp_path: Path) -> None:
    fit = logistic(epsilon=8.0)
    text = str(fit.summary())
    assert "of 4,000 rows have x2; the others count only for which rows are whole, which is modelled by the response" in text
    assert "and by x1, ward, which are never missing" in text
    assert "Complete cases alone: x1 about" in text
    whole = fit._result.whole
    assert abs(whole.response + 1.5) < 5 * whole.error + 0.3
    assert whole.error > 0
    assert abs(whole.whole - WHOLE_ROWS.sum()) < 6 * whole.unsure
    fit.save(tmp_path / "fit")
    assert str(unpooled.load(tmp_path / "fit").summary()) == text


def test_products_are_for_budgets_that_tell_of_them() -> None:
    for epsilon, products in ((1.0, False), (50.0, True)):
        fit = logistic(epsilon=epsilon)
        assert fit.plan_.design.completeness.products is products
        assert ("with products of the two" if products else "without products") in str(fit.summary())


def test_the_plan_names_its_releases() -> None:
    study, _ = small("record", "replace")
    planned = load("glm").compile(study)
    names = {release.name for release in planned.releases}
    assert {"completeness", "completeness_score", "completeness_information", "influence", "count"} <= names
    assert any("which rows are whole" in note for note in planned.notes)
    assert sum(vector.share for vector in planned.design.totals.values()) == pytest.approx(1.0)
    assert {"completeness", "influence"} <= load("glm").releases.keys()
    assert planned.design.schedule.passes == sum(
        vector.count for name, vector in planned.design.totals.items() if name != "count"
    )


def test_predictions_are_of_complete_data_and_rows_with_gaps_have_none() -> None:
    fit = logistic()
    found = fit.predict_proba(FRAME)[:, 1]
    assert (np.isnan(found) == ~WHOLE_ROWS).all()
    new = FRAME.assign(x2=X2)
    assert fit.predict_proba(new)[:, 1].mean() == pytest.approx(ILL.mean(), abs=0.02)


def test_the_outlook_plays_rows_with_gaps() -> None:
    study, _ = small("record", "replace")
    cards = tuple(replace_rows(card, 2000) for card in study.parties)
    from unpooled.models.glm.outlook import outlook

    found = outlook(study_of(cards, epsilon=8.0), quick=True)
    assert found.points


def replace_rows(card: Card, rows: int) -> Card:
    return Card(card.name, rows, card.columns)


@pytest.mark.long
@pytest.mark.slow
def test_a_study_of_files_models_its_gaps(tmp_path: Path) -> None:
    for name, at in (("north", slice(0, N // 2)), ("south", slice(N // 2, N))):
        (tmp_path / name).mkdir()
        FRAME.assign(ill=np.where(ILL > 0, "yes", "no"))[at].to_csv(tmp_path / name / "data.csv", index=False)
        command(
            tmp_path,
            *("party", "init", str(tmp_path / name / "data.csv"), "--name", name, "--folder", str(tmp_path / name)),
            *(w for c in ("x1=-4:4", "ward=a,b,c", "x2=-4:4;model", "ill=no,yes") for w in ("--column", c)),
            *("--epsilon", "20", "--delta", "1e-5"),
        )
    (tmp_path / "study.toml").write_text(
        '[study]\nmodel = "glm"\n\n[parameters]\nresponse = "ill"\nfamily = "logistic"\nmethod = "newton"\n\n[privacy]\nepsilon = 8.0\ndelta = 1e-5\n\n'
        '[[party]]\ncard = "north/north.card.toml"\n\n[[party]]\ncard = "south/south.card.toml"\n'
    )
    planned = command(tmp_path, "plan", "study.toml")
    assert "completeness" in planned
    assert "which rows are whole" in planned
    approve(tmp_path)
    command(tmp_path, "run", "study.toml", *PARTIES)
    found = json.loads(command(tmp_path, "result", "study.run", "--json"))
    assert "the others count only for which rows are whole, which is modelled by ill" in json.dumps(found)
    line = next(term for term in found["terms"] if term["term"] == "x1")
    assert abs(line["estimate"] - 0.5) < 5 * line["std_error"]
    new = tmp_path / "north" / "data.csv"  # a row that lacks a value has no prediction, and the others have theirs
    told = json.loads(command(tmp_path, "predict", "study.run", "--data", str(new), "--json"))["predictions"]
    assert [row["prediction"] is not None for row in told] == WHOLE_ROWS[: N // 2].tolist()
    assert [row["probability"] is not None for row in told] == WHOLE_ROWS[: N // 2].tolist()
    written = command(tmp_path, "predict", "study.run", "--data", str(new)).splitlines()
    assert written[1 + int(np.argmin(WHOLE_ROWS))] == ","
    command(tmp_path, "report", "study.run", "--out", "report.html")
    assert "which is modelled by ill" in (tmp_path / "report.html").read_text()


# --- how far a person moves it -------------------------------------------------------------------------------------------------

FEW = (Column("a", -1, 1, missing="model"), Column("g", categories=("u", "v")), Column("y", categories=("n", "j")))


def study_of(cards: tuple[Card, ...], unit: str = "record", adjacency: str = "replace", **given: Any) -> Study:
    own = {"response": "y", "family": "logistic", "method": "newton", "max_passes": 12}
    about = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "trust": {"aggregation": "trusted"},
        "parameters": own,
        "derived": (),
        "simulation_seed": 7,
    }
    return Study("glm", cards, **{**about, "unit": unit, "adjacency": adjacency, **given})


def small(unit: str, adjacency: str, **given: Any) -> tuple[Study, dict[str, Table]]:
    rng = np.random.default_rng(1)
    tables = {
        name: Table(
            {
                "a": np.where(rng.random(6) < 0.4, np.nan, rng.uniform(-1, 1, 6)),
                "g": np.array(["u", "v"], dtype=object)[rng.integers(0, 2, 6)],
                "y": np.array(["n", "j"], dtype=object)[rng.integers(0, 2, 6)],
            }
        )
        for name in ("p", "q")
    }
    return study_of(tuple(Card(name, 6, FEW) for name in tables), unit, adjacency, **given), tables


@pytest.mark.guarantee
def test_all_rows_are_marked_and_coded_with_their_response() -> None:
    table = Table({"a": [0.0, np.nan, 1.0], "g": ["u", "v", "v"], "y": ["n", "j", "j"]})
    marked = marked_rows(table, FEW[:1])
    assert marked is marked_rows(table, FEW[:1])
    assert isinstance(marked, MarkedRows)
    assert marked[WHOLE].tolist() == [1.0, 0.0, 1.0]
    assert marked.owners.tolist() == [0, 1, 2]
    assert [block[0].tolist() for block in marked.blocks(("y",), 2)] == [["n", "j"], ["j"]]
    design = load("glm").compile(small("record", "replace")[0]).design
    seen = design.seen(table)
    assert seen["y"].tolist() == ["n", "j"]
    assert design.marked(seen)[WHOLE].tolist() == [1.0, 0.0, 1.0]
    standard = np.zeros(3), np.ones(3)
    ((rows, beside),) = list(design.long_marked.marked(design.marked(seen), standard, (0.25, 0.5)))
    assert beside[:, 0].tolist() == [1.0, 0.0, 1.0]
    assert (rows / design.long_marked.grid).round(3).tolist() == [[1, 0, -0.5, 0.7], [0, 1, 1.5, 0.7], [0, 1, 1.5, 0.7]]


def far_tilt(design: Any, rng: np.random.Generator) -> Tilt:
    own = design.completeness
    return Tilt(
        own, 0.5, 0.5, float(rng.choice([1e-3, 0.1, 1.0])), rng.normal(size=own.size) * rng.choice([0.1, 3.0, 100.0])
    )


@pytest.mark.guarantee
def test_a_row_adds_to_the_influence_no_more_than_its_bound() -> None:
    """Theorem G.13 by brute force: rows at every corner, coefficients however large; the bound is nearly met."""
    design = load("glm").compile(small("record", "replace")[0]).design
    rng, largest = np.random.default_rng(2), 0.0
    influence = design.influence
    for _ in range(200):
        tilt, start = far_tilt(design, rng), rng.normal(size=design.layout.size) * rng.choice([0.1, 3.0])
        standard = rng.uniform(-1, 1, 3), rng.choice([1e-3, 0.3, 1.0], 3)
        row = Table({"a": rng.choice([-1.0, 1.0, 0.3], 1), "g": rng.choice(["u", "v"], 1).astype(object), "y": ["j"]})
        blocks = list(design.long.blocks(row, standard))
        for rows, beside in blocks:
            beside[:, 1] += tilt.offsets(rows, float(design.long.grid))
        found = influence.added_up(iter(blocks), start, np.array([1.0, float(rng.choice([0.01, 0.25])), 1.0]), tilt)
        largest = max(largest, float(np.sqrt((found.astype(float) ** 2).sum())) / influence.longest)
    assert 0.9 < largest <= 1
    for how, most in ((Adjacency.REPLACE, 2.0), (Adjacency.ZERO_OUT, 1.0)):
        vector = influence.vector(1.0, design.long.moves(how))
        assert vector.reach[Unit.RECORD].distance == most
        assert vector.blocks[0].width == influence.longest


@pytest.mark.guarantee
def test_offsets_and_their_derivatives_are_those_of_the_odds() -> None:
    """Theorem G.12: differences of the offset by each coefficient of completeness, with products."""
    design = load("glm").compile(small("record", "replace")[0]).design
    own = replace(design.completeness, products=True)
    rng, grid = np.random.default_rng(3), float(design.long.grid)
    rows = np.asfortranarray(np.trunc(rng.normal(size=(50, design.layout.size)) * grid))
    rows[:, -1] = math.trunc(0.7 * grid)
    gamma = rng.normal(size=own.size)
    tilt = Tilt(own, 0.3, 0.5, 2.0, gamma)
    for at in range(own.size):
        step = np.eye(own.size)[at] * 1e-5
        up, down = (replace(tilt, gamma=gamma + sign * step).offsets(rows, grid) for sign in (1, -1))
        assert tilt.derivatives(rows, grid)[:, at] * 2 == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-5)
    plain = own.rows_of(rows[:, own.places] / grid, np.full(50, (1 - 0.3) / 0.5)) @ gamma
    assert tilt.log_odds(rows, grid)[1] == pytest.approx(np.clip(plain, -30, 30), abs=1e-4)


@pytest.mark.guarantee
@pytest.mark.parametrize("broken", [{"size": 1}, {"value": math.nan}, {"value": 1e9}, {"at": 1}, {"at": 2}])
def test_wild_numbers_of_a_request_are_refused(broken: dict[str, Any]) -> None:
    own = load("glm").compile(small("record", "replace")[0]).design.completeness
    numbers = np.ones(own.size + 3 + broken.get("size", 0))
    assert tilt_of(own, np.ones(own.size + 3)).width == 1.0
    numbers[broken.get("at", 4)] = broken.get("value", 0.0 if "at" in broken else 1.0)
    with pytest.raises(PlanMismatch, match="finite numbers on which rows are whole"):
        tilt_of(own, numbers)


def test_an_information_that_noise_took_whole_has_no_nearest_line() -> None:
    own = load("glm").compile(small("record", "replace")[0]).design.completeness
    nothing = np.zeros((3, 3))
    found = Fitted(Tilt(own, 0.3, 0.5, 1.0, np.ones(own.size)), nothing, nothing)
    assert found.linear(nothing).tolist() == [0.0, 0.0, 0.0]


def audited(unit: str, adjacency: str, **given: Any) -> Report:
    study, tables = small(unit, adjacency, **given)
    return replay(load("glm"), study, tables, registry=load, rounds=3)


@pytest.mark.slow
@pytest.mark.long_for("attribute-zero-out", "record-zero-out", "attribute-replace", "record-replace")
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("unit", sorted(map(str, ROWWISE)))
def test_studies_are_audited_in_every_unit(unit: str, adjacency: str) -> None:
    """Theorems B.20 and G.13: pairs of data in which rows become whole, or lose a value, and a response changes in a row with a gap."""
    report = audited(unit, adjacency)
    assert report.passed, report


@pytest.mark.long
@pytest.mark.slow
def test_offsets_of_a_model_that_a_party_fits_itself_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = plan._asked

    def asked(context: Any, rows: Any, settings: Any) -> Any:
        blocks, start, units = real(context, rows, settings)
        share = context.design.marked(context.table)[WHOLE].mean()
        return [(block, beside + np.array([0.0, 40 * (share - 0.5)])) for block, beside in blocks], start, units

    monkeypatch.setattr(plan, "_asked", asked)
    assert not audited("record", "replace", epsilon=30.0).passed  # so that pulls are not all at their ends


@pytest.mark.long
@pytest.mark.slow
def test_rows_with_gaps_that_count_with_the_mean_of_the_others_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(self: Any, table: Table) -> Table:
        del self
        held = {name: table[name] for name in table.names}
        return Table(held | {"a": np.where(np.isnan(held["a"]), np.nanmean(np.append(held["a"], 0.0)), held["a"])})

    monkeypatch.setattr(plan.GlmDesign, "seen", seen)
    monkeypatch.setattr(plan.GlmDesign, "marked", lambda _, table: marked_rows(table, FEW[:1]))
    assert not audited("record", "replace").passed


@pytest.mark.long
@pytest.mark.slow
def test_derivatives_that_are_not_shortened_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Longer:
        def __getattr__(self, name: str) -> Any:
            return getattr(row_kernels, name)

        @staticmethod
        def weigh_rows(rows: Any, square: Any, weight: Any, coarse: float, radius: int, out: Any) -> None:
            del square, radius
            out[...] = np.trunc(rows * np.sqrt(weight)[:, None] * coarse * 4)

    assert audited("record", "replace").passed
    monkeypatch.setattr(completeness, "row_kernels", Longer())
    assert not audited("record", "replace").passed


def test_rows_with_gaps_that_count_in_the_score_are_another_fit() -> None:
    """A broken control of the estimate: rows without x2 at the middle of its range."""
    compiled = load("glm").compile(logistic().plan_.study)
    response = compiled.design.responses.response
    labels = np.array(response.categories, dtype=object)
    table = Table({"x1": X1, "ward": WARD, "x2": FRAME["x2"].to_numpy(), response.name: labels[ILL]})

    class Filled(plan.GlmDesign):
        def seen(self, table: Table) -> Table:
            return Table({name: np.nan_to_num(table[name]) if name == "x2" else table[name] for name in table.names})

        def marked(self, given: Table) -> Table:
            del given
            return marked_rows(table, self.completeness.columns)

    given = {name: getattr(compiled.design, name) for name in plan.GlmDesign.__dataclass_fields__}
    broken = replace(compiled, design=Filled(**given))
    found = [imagine_rounds(one, coordinate, plan.STATISTICS, table, np.random.default_rng(0)) for one in (compiled, broken)]
    first, second = (result.coefficients[0].value for result in found)
    assert first == pytest.approx(lines(logistic())["x1"].estimate, abs=1e-6)
    assert abs(first - second) > 0.05


# --- who may not -------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"family": "poisson", "y_bounds": (0, 1), "classes": None},
            "which is for family 'logistic', and this one is 'poisson'",
        ),
        ({"method": "gradient"}, "which is for tables: method 'newton', not 'gradient'"),
        ({"ridge": 0.1}, "which goes without ridge"),
        ({"fit_intercept": False}, "which goes without fit_intercept = false"),
        ({"weights_bounds": (0.1, 1)}, "which goes without weights"),
        ({"offset_bounds": (-1, 1)}, "which goes without exposure or offset"),
        ({"covariance": "robust"}, "whose errors are those of its likelihood, and covariance is 'robust'"),
    ],
)
def test_what_has_no_proof_or_no_errors_is_refused_by_name(given: dict[str, Any], words: str) -> None:
    given = {"bounds": BOUNDS, "classes": (0, 1), "epsilon": 1.0, "method": "newton", **given}
    more = (
        {"weights": np.ones(N)} if "weights_bounds" in given else {"offset": np.zeros(N)} if "offset_bounds" in given else {}
    )
    with pytest.raises(UsageError, match=f'column \'x2\' declares missing = "model", {words}.*"complete"'):
        PrivateGLM(given.pop("family", "logistic"), **given).fit(FRAME, ILL, **more)


@pytest.mark.guarantee
def test_ids_with_several_rows_are_refused() -> None:
    """Not every id has all of its rows, so their number is no number of rows of which a share is whole."""
    ids = np.repeat(np.arange(N // 2), 2)
    with pytest.raises(UsageError, match="goes without several rows of an id"):
        PrivateGLM(
            "logistic", epsilon=1.0, bounds=BOUNDS, classes=(0, 1), method="newton", unit="household", rows_per_household=2
        ).fit(FRAME, ILL, unit_id=ids)


@pytest.mark.guarantee
def test_other_models_columns_of_several_parties_and_responses_refuse_it() -> None:
    frame = FRAME[["x1", "x2"]]
    bounds = Bounds({"x1": (-4, 4), "x2": (-4, 4)}, missing={"x2": "model"})
    words = 'has no model of completeness: column \'x2\' declares missing = "model".*declare "complete"'
    with pytest.raises(UsageError, match=f"model 'pls' {words}"):
        unpooled.PrivatePLSRegression(n_components=1, bounds=bounds, y_bounds=(0, 1)).fit(frame, ILL.astype(float))
    with pytest.raises(UsageError, match=f"model 'lasso' {words}"):
        unpooled.PrivateLasso(bounds=bounds, y_bounds=(0, 1)).fit(frame, ILL.astype(float))
    with pytest.raises(UsageError, match=f"model 'stacking.*{words}"):
        PrivateLogisticRegression(bounds=bounds, classes=(0, 1)).fit(frame, ILL)
    with pytest.raises(UsageError, match=f"columns at several parties {words}"):
        PrivateLinearRegression(
            bounds=bounds, y_bounds=(0, 1), parties={"p": ["x1"], "q": ["x2"]}, response_at="p", method="moments"
        ).fit(frame.assign(y=ILL.astype(float)), "y")
    card = Card("p", 100, (FEW[1], Column("y", categories=("n", "j"), missing="model")))
    with pytest.raises(UsageError, match="reads the response 'y' in every row"):
        load("glm").compile(study_of((card,), trust={}))


def test_without_a_method_it_is_a_table() -> None:
    study, _ = small("record", "replace")
    own = {"response": "y", "family": "logistic"}
    assert SCORE in load("glm").compile(study_of(study.parties, parameters=own)).design.totals
    assert isinstance(load("glm").compile(study).design.influence, Influence)
