"""Treatment effects: what moves a sum, what is refused, what is said where nothing is told, and textbook formulas without noise."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from treated import KNOWN, people, study

import unpooled
from unpooled.errors import UsageError
from unpooled.models.effects import MODEL
from unpooled.models.effects.declared import declared_of
from unpooled.models.effects.plan import BALANCE, EXITS, OVERLAP, SLOPES, SPREAD, SUMS
from unpooled.models.effects.sums import Balance, EffectSlopes, ExitsOfArms, Pieces, overlap_cells, spread_cuts, spread_of
from unpooled.privacy.sensitivity import column_moments, contributions_of_arms
from unpooled.privacy.unit import Adjacency, Unit

REPLACE, ZERO = Adjacency.REPLACE, Adjacency.ZERO_OUT


# --- sensitivities -------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_contributions_of_two_arms_move_as_far_as_the_theorem_says_and_no_farther() -> None:
    """E.1, by brute force over pairs of rows; with c = 1 both arms cost what one sum does."""
    t = np.linspace(-1, 1, 41)
    for c in (0.5, 1.0, 1.4, 2.0):
        rows = [np.array([x, c * x * x, 0, 0]) for x in t] + [np.array([0, 0, x, c * x * x]) for x in t]
        farthest = max(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(rows, 2))
        assert farthest == pytest.approx(contributions_of_arms(c, REPLACE), rel=1e-3)
        assert max(float(np.linalg.norm(a)) for a in rows) == pytest.approx(contributions_of_arms(c, ZERO))
    assert contributions_of_arms(1.0, REPLACE) == pytest.approx(2.0)
    assert column_moments(0.0, 1.0, 1.66, REPLACE, may_be_absent=False) == pytest.approx(2.0, abs=2e-3)


def _moved(vector: Any, one: np.ndarray, other: np.ndarray) -> float:
    widths = np.concatenate([np.full(block.size, block.width) for block in vector.blocks])
    return float(np.linalg.norm((one - other) / widths))


@pytest.mark.parametrize("adjacency", [REPLACE, ZERO])
def test_no_row_moves_a_sum_farther_than_its_reach(adjacency: Adjacency) -> None:
    """Extreme rows of every sum: contributions of one and of two arms, slopes, balance, exits (E.1, E.2, E.3, B.5)."""
    rng = np.random.default_rng(4)
    pieces, arms, slopes, balance = (
        Pieces(SUMS, 1, 500),
        Pieces(SUMS, 2, 500),
        EffectSlopes(SLOPES, (3, 4), 500),
        Balance(BALANCE, 3, 500),
    )
    exits = ExitsOfArms(EXITS, declared_of(study(SURVIVAL)), 5.0, 500)
    made: list[tuple[Any, list[np.ndarray]]] = [
        (one.vector(1.0, adjacency), []) for one in (pieces, arms, slopes, balance, exits)
    ]
    for _ in range(150):
        far = rng.choice([-9.0, -1.0, 0.0, 1.0, 9.0], 12) * rng.choice([1.0, rng.uniform()])
        treated = rng.uniform(size=1) < 0.5
        weight = rng.choice([0.0, 0.3, 1.0], 1)
        held = {"stay": rng.choice([0.0, 5.0, 10.0, 30.0], 1), "left": rng.choice([0.0, 1.0], 1)}
        values = (
            pieces.added_up([far[:1]]),
            arms.added_up([np.where(treated == arm, far[:1], 0.0) for arm in (False, True)]),
            slopes.added_up([far[None, :3], far[None, 3:7]]),
            balance.added_up(far[None, :3], treated, weight),
            exits.added_up(held, treated, weight),
        )
        for (_, rows), value in zip(made, values, strict=True):
            rows.append(value)
    for vector, rows in made:
        reach = vector.reach[Unit.RECORD].distance
        nothing = [np.zeros_like(rows[0])]
        pairs = itertools.combinations(rows, 2) if adjacency is REPLACE else itertools.product(rows, nothing)
        farthest = max(_moved(vector, a, b) for a, b in pairs)
        assert 0.9 * reach < farthest <= reach * (1 + 1e-9), vector.name
        assert max(int(np.abs(row).max()) for row in rows) <= vector.per_row


def test_rows_that_are_not_shortened_and_contributions_that_are_not_cut_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Controls: without the cut or the shortening the test above would fail."""
    balance, reach = Balance(BALANCE, 3, 500), Balance(BALANCE, 3, 500).vector(1.0, REPLACE).reach[Unit.RECORD].distance
    monkeypatch.setattr("unpooled.models.effects.sums._shortened", lambda rows: rows)
    long = balance.added_up(np.full((1, 3), 9.0), np.array([True]), np.ones(1))
    assert _moved(balance.vector(1.0, REPLACE), long, np.zeros_like(long)) > reach
    pieces = Pieces(SUMS, 1, 500)
    monkeypatch.setattr(np, "clip", lambda part, *_: part)
    far = pieces.added_up([np.array([3.0])])
    assert _moved(pieces.vector(1.0, REPLACE), far, np.zeros_like(far)) > 2.0


# --- without noise -------------------------------------------------------------------------------------------------------


def by_hand(data: dict[str, Any], y: np.ndarray, logistic: bool) -> dict[str, float]:
    """The three estimators from scikit-learn's and numpy's own fits."""
    from sklearn.linear_model import LogisticRegression

    a = data["arm"] == "new"
    X = np.column_stack([data["age"] / 50, data["ward"] == "b", data["ward"] == "c"]).astype(float)
    plain: dict[str, Any] = {"C": np.inf, "tol": 1e-10, "max_iter": 10_000}
    e = np.clip(LogisticRegression(**plain).fit(X, a).predict_proba(X)[:, 1], 0.05, 0.95)
    means = []
    for arm in (False, True):
        if logistic:
            means.append(LogisticRegression(**plain).fit(X[a == arm], y[a == arm]).predict_proba(X)[:, 1])
        else:
            one = np.column_stack([np.ones(len(X)), X])
            means.append(np.clip(one @ np.linalg.lstsq(one[a == arm], y[a == arm], rcond=None)[0], 0, 30))
    m0, m1 = means
    aipw = m1 - m0 + a * (y - m1) / e - (~a) * (y - m0) / (1 - e)
    odds = e / (1 - e)
    treated = (a * (y - m0) - (~a) * odds * (y - m0)).sum() / a.sum()
    c1, c0 = y[a].mean(), y[~a].mean()
    iptw = c1 - c0 + (a * (y - c1) / e - (~a) * (y - c0) / (1 - e)).mean()
    return {
        "aipw": aipw.mean(),
        "error": aipw.std() / math.sqrt(y.size),
        "g-formula": (m1 - m0).mean(),
        "iptw": iptw,
        "ATT": treated,
    }


@pytest.mark.slow_for("False")
@pytest.mark.guarantee
@pytest.mark.parametrize("logistic", [False, True])
def test_without_noise_effects_are_the_textbook_s(logistic: bool) -> None:
    data = people(3000)
    y = (data["died"] == "yes").astype(float) if logistic else data["stay"]
    exact = by_hand(data, y, logistic)
    asked: dict[str, Any] = {"bounds": KNOWN, "epsilon": math.inf, "covariates": ["age", "ward"]}
    asked |= {"outcome": "died", "family": "logistic"} if logistic else {"outcome": "stay"}
    sites = np.resize(["north", "south"], 3000)
    for name in ("aipw", "iptw", "g-formula"):
        found = unpooled.TreatmentEffect("arm", estimator=name, **asked).fit(data, sites=sites)
        assert found.effect_ is not None
        assert found.effect_.estimate == pytest.approx(exact[name], abs=2e-4 if logistic else 2e-3), name
        if name == "aipw":
            assert found.effect_.std_error == pytest.approx(exact["error"], rel=1e-3)
            assert found.effect_.privacy == pytest.approx(0.0, abs=1e-6)
    treated = unpooled.TreatmentEffect("arm", estimand="ATT", **asked).fit(data)
    assert treated.effect_ is not None
    assert treated.effect_.estimate == pytest.approx(exact["ATT"], abs=2e-4 if logistic else 2e-3)


@pytest.mark.guarantee
def test_without_noise_weighted_curves_are_those_of_weighted_counts_and_the_difference_lies_between_them() -> None:
    rng = np.random.default_rng(3)
    data = people(6000)
    treated = data["arm"] == "new"
    until, left = rng.exponential(np.where(treated, 24, 12) * np.exp((55 - data["age"]) / 60)), rng.exponential(30, 6000)
    data |= {"days": np.minimum(np.minimum(until, left), 20), "event": (until <= np.minimum(left, 20)).astype(float)}
    known = KNOWN | {"days": (0, 20), "event": (0, 1)}
    asked: dict[str, Any] = {"outcome": "days", "event": "event", "horizon": 10.0, "family": "survival", "bounds": known}
    found = unpooled.TreatmentEffect("arm", covariates=["age", "ward"], epsilon=math.inf, **asked).fit(data)
    by_weights = unpooled.TreatmentEffect(
        "arm", covariates=["age", "ward"], epsilon=math.inf, estimator="iptw", **asked
    ).fit(data)
    truth = np.mean(
        np.exp(-10 / (24 * np.exp((55 - data["age"]) / 60))) - np.exp(-10 / (12 * np.exp((55 - data["age"]) / 60)))
    )
    assert found.effect_ is not None
    assert by_weights.effect_ is not None
    for one in (found.effect_, by_weights.effect_):
        assert abs(one.estimate - truth) < 3 * (one.std_error or 0)
    ends = [by_weights.curve(arm).survival[-1] for arm in ("old", "new")]
    assert ends[1] - ends[0] == pytest.approx(by_weights.effect_.estimate, abs=0.02)
    means = {one.name: one.value for one in by_weights.result_.means}
    assert means["new"] == pytest.approx(ends[1], abs=0.02)


# --- refused, and not told -----------------------------------------------------------------------------------------------

SURVIVAL = {"family": "survival", "event": "left", "horizon": 10.0}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"treatment": "ward"}, "declared as 3 categories"),
        ({"treatment": "age"}, "declared as a number"),
        ({"treatment": "stay"}, "name different columns"),
        ({"estimator": "matching"}, "estimator is one of"),
        ({"estimand": "ATC"}, "estimand is one of"),
        ({"family": "cox"}, "family is one of"),
        ({"family": "logistic"}, "two declared categories"),
        ({"response": "ward"}, "every other family a number"),
        ({"overlap": 0.5}, "overlap lies between"),
        ({"confidence": 1.0}, "confidence must lie"),
        ({"covariates": "age + arm"}, "the outcome, its event or the treatment"),
        ({"covariates": "y ~ age"}, "right side of a formula"),
        ({"covariates": "height"}, "no card declares"),
        ({"covariates": "0 + age"}, "keeps its constant"),
        ({"propensity": "stay"}, "propensity names 'stay'"),
        ({"estimator": "g-formula", "estimand": "ATT"}, "for estimand 'ATE'"),
        ({"horizon": 10.0}, "family = 'survival'"),
        ({"cuts": [1.0]}, "family = 'survival'"),
        (SURVIVAL | {"horizon": 40.0}, "horizon lies inside it"),
        (SURVIVAL | {"cuts": [3.0, 2.0]}, "cuts rise"),
        (SURVIVAL | {"event": "ward"}, "declared column of 0 and 1"),
        ({"matching": 1}, "matching"),
        ({"overlap": "much"}, "overlap"),
    ],
)
def test_a_study_that_no_effect_follows_from_is_refused_before_anything_is_charged(
    parameters: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        MODEL.compile(study(parameters))


def test_columns_that_may_be_missing_or_are_not_declared_are_refused() -> None:
    data, known = people(200), dict(KNOWN)
    with pytest.raises(UsageError, match="declare bounds"):
        unpooled.TreatmentEffect("arm", outcome="stay").fit(data)
    with pytest.raises(UsageError, match="there is no column 'length'"):
        unpooled.TreatmentEffect("arm", outcome="length", bounds=known).fit(data)
    with pytest.raises(UsageError, match="leave y out"):
        unpooled.TreatmentEffect("arm", outcome="stay", bounds=known).fit(data, data["stay"])
    absent = unpooled.Bounds(known, missing="absent")
    with pytest.raises(UsageError, match="must not be missing"):
        unpooled.TreatmentEffect("arm", outcome="stay", bounds=absent).plan(500)


@pytest.mark.slow_for("apart")
@pytest.mark.parametrize("empty", ["treated", "apart"])
def test_an_empty_arm_and_no_overlap_are_data_charged_and_said_in_words(empty: str) -> None:
    data = people(2000)
    if empty == "treated":
        data["arm"] = np.full(2000, "old")
    else:
        data["arm"] = np.where(data["age"] > 55, "new", "old")
    asked: dict[str, Any] = {"outcome": "stay", "bounds": KNOWN, "covariates": ["age"], "max_passes": 30, "random_state": 0}
    found = unpooled.TreatmentEffect("arm", epsilon=3.0, **asked).fit(data)
    assert found.effect_ is None
    assert "not identified" in found.result_.why or "has no result" in found.result_.why
    assert found.result_.why in str(found.summary())
    assert found.ledger_


def test_the_plan_is_its_parts_and_its_own_sums_and_costs_what_it_says() -> None:
    plan = MODEL.compile(study({"estimator": "aipw"}))
    assert [*plan.parts] == ["propensity", "outcome"]
    assert not plan.analyses
    names = {release.name for release in plan.releases}
    assert {OVERLAP, SPREAD, SUMS, SLOPES, BALANCE} <= names
    assert {name.partition(": ")[0] for name in names if ": " in name} == {"propensity", "outcome"}
    assert 0.99 < plan.epsilon(1e-6) <= 1.0
    # Its own releases stand at the end, and the ledger's first entries cost no more than all of them.
    own = [release for release in plan.releases if ": " not in release.name]
    assert plan.releases[-len(own) :] == tuple(own)


def test_an_effect_can_be_one_of_several_analyses_of_a_study() -> None:
    data = people(4000)
    known = {name: KNOWN[name] for name in ("age", "ward", "arm", "stay")}
    effect = unpooled.TreatmentEffect("arm", outcome="stay", bounds=known, covariates=["age", "ward"], max_passes=12)
    whole = unpooled.Study(
        {
            "baseline": lambda frame, **rows: unpooled.describe({"age": frame["age"]}, {"age": (20, 90)}, **rows),
            "effect": effect,
        },
        epsilon=4.0,
        shares=[0.2, 0.8],
        random_state=0,
    ).fit(data)
    found = whole["effect"].effect_
    assert abs(found.estimate + 2) < 4 * found.std_error
    assert "effect: propensity: base" in {release.name for release in whole.plan_.releases}
    assert 3.9 < whole.plan_.epsilon(whole.plan_.study.delta) <= 4.0


@pytest.mark.long
@pytest.mark.slow
def test_outlooks_give_the_rows_that_an_effect_needs() -> None:
    model = unpooled.TreatmentEffect(
        "arm", outcome="stay", bounds={k: v for k, v in KNOWN.items() if k != "died"}, max_passes=20
    )
    found = model.outlook(20_000)
    assert [point.error for point in found.points] == sorted((point.error for point in found.points), reverse=True)
    assert found.noise_free <= found.points[-1].error * 1.01
    rows = found.rows_for(0.5)
    assert found.rows_for(0.25) > 2 * rows
    assert found.rows_for(0.5, power=0.95) > rows
    assert found.power(3 * found.error) == pytest.approx(0.85, abs=0.01)
    for wrong in ((0.0, 0.8), (1.0, 0.0), (1.0, 1.0)):
        with pytest.raises(UsageError, match="effect is not 0"):
            found.rows_for(*wrong)
    with pytest.raises(UsageError, match="r2"):
        model.outlook(1000, r2=2.0)


def test_the_bound_on_contributions_follows_the_noise() -> None:
    """Where the noise of the sum grows, more is cut; without noise nothing is."""
    from unpooled.linear.residuals import ResidualCells
    from unpooled.totals.total import Total

    rng = np.random.default_rng(2)
    cells = ResidualCells(spread_cuts(10.0, 0.05))
    values = rng.standard_t(4, 50_000) + 1.0
    exact = cells.added_up(values, rng.uniform(size=values.size) < 0.5).astype(float)
    counts = cells.decode(Total(exact + 3 * rng.normal(size=exact.size), np.full(exact.size, 3.0), ("a",)), values.size)
    bounds = [spread_of(counts, noise, 210.0).bound for noise in (1e-5, 1e-3, 1e-1)]
    assert bounds[0] >= bounds[1] >= bounds[2]
    assert bounds[0] > bounds[2]
    found = spread_of(counts, 1e-3, 210.0)
    assert found.centre == pytest.approx(1.0, abs=0.3)
    cut = np.clip(values, found.centre - found.bound, found.centre + found.bound).mean() + found.missing
    assert cut == pytest.approx(values.mean(), abs=4 * found.missing_error + 0.01)
    assert spread_of(counts, 0.0, 210.0).bound >= 210.0
    once, twice = (spread_of(counts, 1e-1, 210.0, doubt=doubt) for doubt in (1.0, 2.0))
    assert twice.bound == once.bound  # noise is all that counts there
    assert once.missing_error > 0
    assert twice.missing_error == pytest.approx(2 * once.missing_error)
    assert spread_of(counts, 1e-3, 210.0, doubt=4.0).bound > spread_of(counts, 1e-3, 210.0, doubt=0.25).bound
    assert overlap_cells(OVERLAP, 0.15).cuts == (0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85)


@pytest.mark.guarantee
def test_requests_with_other_numbers_than_planned_are_refused() -> None:
    from unpooled.errors import PlanMismatch
    from unpooled.models.effects.plan import Models

    design = MODEL.compile(study()).design
    for settings in ((), (1.0,), (math.inf,) * 60, (1e12,) * 60):
        with pytest.raises(PlanMismatch, match="finite numbers"):
            Models.of(design, settings, design.further(SUMS))


@pytest.mark.guarantee
@pytest.mark.slow_for("{}")
@pytest.mark.parametrize("parameters", [{}, {"estimator": "iptw"}, {"estimand": "ATT"}, {"estimator": "g-formula"}], ids=str)
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_whatever_a_request_carries_no_row_moves_a_sum_farther(parameters: dict[str, Any]) -> None:
    """A dishonest coordinator sends zeros, huge and tiny numbers for bounds, lengths and coefficients: no row becomes longer, and nothing is no number."""
    from unpooled.models.effects.plan import STATISTICS, Models, Rows

    design = MODEL.compile(study(parameters)).design
    rng = np.random.default_rng(8)
    layouts = [one for one in (design.outcome, design.propensity) if one is not None]
    least = sum(len(layout.names) + 1 for layout in layouts)
    adding = {
        SUMS: lambda rows: design.pieces.added_up(rows.pieces()),
        SLOPES: lambda rows: design.slopes.added_up(rows.slopes()),
        BALANCE: lambda rows: design.balance.added_up(rows.standard, rows.treated, rows.parts_of_weights),
        OVERLAP: lambda rows: design.overlap.added_up(rows.propensity, rows.treated),
        SPREAD: lambda rows: design.spread.added_up(rows.contributions(), rows.treated),
    }
    assert set(adding) <= set(STATISTICS)
    ends = np.array(
        [(20.0, "a", "old", 0.0), (90.0, "c", "new", 30.0), (55.0, "b", "old", 30.0), (20.0, "c", "new", 7.0)], dtype=object
    )
    for _ in range(40):
        for name in adding.keys() & design.totals.keys():
            wild = rng.choice([0.0, -0.0, 1e-300, -1e-300, 1.0, -3.0, 1e9, -1e9], least + design.further(name))
            models = Models.of(design, tuple(wild.tolist()), design.further(name))
            found = []
            for age, ward, arm, stay in ends:
                held = {"age": np.array([age], float), "ward": np.array([ward], object), "arm": np.array([arm], object)}
                rows = Rows(
                    models, held | {"stay": np.array([stay])}, np.array([arm == "new"]), np.array([stay]), np.ones(1)
                )
                found.append(adding[name](rows))
            vector = design.totals[name]
            assert all(np.abs(one).max() <= vector.per_row for one in found), name
            reach = vector.reach[Unit.RECORD].distance
            assert all(_moved(vector, a, b) <= reach * (1 + 1e-9) for a, b in itertools.combinations(found, 2)), name


@pytest.mark.slow
def test_an_effect_is_saved_and_drawn() -> None:
    import tempfile

    data = people(3000)
    asked: dict[str, Any] = {
        "bounds": KNOWN,
        "covariates": ["age", "ward"],
        "max_passes": 12,
        "random_state": 1,
        "epsilon": 5.0,
    }
    found = unpooled.TreatmentEffect("arm", outcome="stay", **asked).fit(data)
    with tempfile.NamedTemporaryFile() as file:
        found.save(file.name)
        again = unpooled.load(file.name)
    assert again.effect_ == found.effect_
    assert len(found.figure().axes) == 2
    with pytest.raises(KeyError, match="no weighted curve"):
        found.curve("old")
    with pytest.raises(UsageError, match="'g-formula' has no weights"):
        unpooled.TreatmentEffect("arm", outcome="stay", estimator="g-formula", **asked).fit(data).figure()
    assert "ATE: new - old" in str(found.summary())
    assert "<table>" in found.summary()._repr_html_()
