"""Probabilities of stacks: what one person moves in counts along released scores, what they cost, what follows from them, and where they are not made."""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from scipy.special import expit, logit
from sklearn.metrics import log_loss

import unpooled
from unpooled import PrivateStackingClassifier
from unpooled.errors import ProtocolError, UsageError
from unpooled.kernels.score_posterior import ANY, CELLS, CUTS, ScoreCounts, score_counts, score_posterior
from unpooled.models import fitted, load
from unpooled.models.stacking import low_level
from unpooled.models.stacking.fit import StackingResult
from unpooled.models.stacking.low_level import (
    BELIEVED,
    COMMON,
    PROBABILITIES,
    RATE,
    Calibrated,
    ReleasedRate,
    ScoreLine,
    calibrated,
    counted,
    factor_of,
    place_and_width,
)
from unpooled.models.stacking.plan import CountsReply, ScoresRequest, design_of
from unpooled.privacy.accounting import Composition
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import GaussianObjective
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Plan, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Scope, Unit
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.local import run_in_process
from unpooled.protocol.messages import Nothing, encode, open_envelope
from unpooled.protocol.party import Party

MODEL = load("stacking")
N = 60
HELD = {"a": ("u", "v"), "b": ("w",), "c": ("z",)}
RNG = np.random.default_rng(31)
VALUES = {name: RNG.uniform(-1, 1, N) for names in HELD.values() for name in names}
LABELS = np.where(VALUES["u"] + VALUES["w"] + 0.3 * RNG.normal(size=N) > 0, "1", "-1").astype(object)
TABLES = {party: Table({**{name: VALUES[name] for name in names}, "y": LABELS}) for party, names in HELD.items()}
CARDS = tuple(Card(party, N, tuple(Column(name, -1.0, 1.0) for name in names), ("y",)) for party, names in HELD.items())
NAMES = {RATE, PROBABILITIES}
OPTIONS: dict[str, Any] = {"delta": 1e-5, "bounds": (-1, 1), "classes": (0, 1), "random_state": 0}


def asked(parameters: dict[str, Any], **changes: Any) -> Study:
    fields = {"model": "stacking", "parties": CARDS, "epsilon": 2.0, "delta": 1e-5, "simulation_seed": 1}
    return Study(**{**fields, "parameters": parameters, **changes}, derived=())


def counts_of(plan: Plan) -> list[str]:
    return [release.party for release in plan.releases if release.name in NAMES]


def made_up(parties: int, rows: int, seed: int, signal: float = 1.2, correlation: float = 0.0, new: int = 4000):
    """16 normal columns with one common factor, and classes of a linear predictor of this deviation."""
    rng = np.random.default_rng([seed, parties])
    Z = math.sqrt(1 - correlation) * rng.normal(size=(rows + new, 16)) + math.sqrt(correlation) * rng.normal(
        size=(rows + new, 1)
    )
    u = Z @ rng.normal(size=16)
    u *= signal / max(float(u.std()), 1e-9)
    y = (rng.random(rows + new) < expit(u)).astype(int)
    X = np.clip(Z / 4, -1, 1)
    return X[:rows], y[:rows], X[rows:], y[rows:]


def slope_of(log_odds: np.ndarray, y: np.ndarray) -> float:
    """The calibration slope: of the labels on the log odds of their prediction."""
    a, b = 0.0, 1.0
    for _ in range(30):
        q = expit(a + b * log_odds)
        w, r = q * (1 - q), y - q
        h = np.array([[w.sum(), (w * log_odds).sum()], [(w * log_odds).sum(), (w * log_odds**2).sum()]])
        step = np.linalg.solve(h, [r.sum(), (r * log_odds).sum()])
        a, b = a + step[0], b + step[1]
    return float(b)


# --- what one person moves -----------------------------------------------------------------------------------------------


def farthest(adjacency: Adjacency, unit: Unit, count: Any) -> float:
    """The largest distance between counts of data sets that differ by one row, one value or one label, over a grid of both rows."""
    block = design_of(asked({})).blocks[0]
    ends = (-1.0, -0.3, 0.0, 0.2, 0.9)
    rest = [(0.1, -0.2, "1"), (0.5, 0.5, "-1")]

    def counts(*rows: tuple[float, float, str]) -> np.ndarray:
        u, v, y = (np.array(column, dtype=object) for column in zip(*rows, *rest, strict=True))
        table = Table({"u": u.astype(float), "v": v.astype(float)})
        return count(block, block.rows(table), y == "1", np.array([9.0, -4.0, 1.0]), 0.4)

    kinds = list(itertools.product(ends, ends, ("1", "-1")))
    moved = 0.0
    for one in kinds:
        if unit is Unit.RECORD and adjacency is Adjacency.ZERO_OUT:
            moved = max(moved, float(np.linalg.norm(counts(one) - counts())))
            continue
        for other in kinds:
            if unit is Unit.RECORD or sum(a != b for a, b in zip(one, other, strict=True)) == 1:
                moved = max(moved, float(np.linalg.norm(counts(one) - counts(other))))
    return moved


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("unit", [Unit.RECORD, Unit.ATTRIBUTE])
def test_no_row_value_or_label_moves_counts_by_more_than_priced(adjacency: Adjacency, unit: Unit) -> None:
    """Theorem S.16: attained; counts of every cell from the score upwards exceed it."""
    made = design_of(asked({}, adjacency=adjacency)).probabilities
    assert made is not None
    priced = dict(made.counts.reach)[unit].distance
    assert farthest(adjacency, unit, counted) == pytest.approx(priced)

    def upwards(*given: Any) -> np.ndarray:
        return np.cumsum(counted(*given).reshape(2, CELLS), axis=1).ravel()

    assert farthest(adjacency, unit, upwards) > priced
    assert dict(made.rate.reach)[unit].distance == 1.0


def test_counts_are_of_cells_of_the_score_by_class() -> None:
    block = design_of(asked({})).blocks[0]
    rows, weights = block.rows(TABLES["a"]), np.array([9.0, -4.0, 1.0])
    middle, width = place_and_width(block, weights, 0.4)
    assert middle == pytest.approx(math.log(0.4 / 0.6))
    # What is believed of a coordinate's deviation, times the length of the slopes.
    assert width == pytest.approx(0.22 * block.scale * math.hypot(9.0, -4.0))
    found = counted(block, rows, LABELS == "1", weights, 0.4).reshape(2, CELLS)
    for label, counts in zip(("-1", "1"), found, strict=True):
        scores = ((rows @ weights - middle) / width)[label == LABELS]
        cells = [sum(score >= cut for cut in CUTS) for score in scores]
        assert counts.tolist() == [cells.count(cell) for cell in range(CELLS)]
    assert found.sum() == N


@pytest.mark.parametrize(
    ("parameters", "deviation"),
    [
        ({}, 0.22),
        ({"rows": "unit"}, None),
        ({"norm": 2.0}, 0.5 / math.sqrt(2)),
        ({"norm": 2.0, "rows": "unit"}, 1 / math.sqrt(2)),
        ({"importance": {"a": 0.01}}, None),
    ],
)
def test_the_width_of_cells_follows_how_rows_are_scaled(parameters: dict[str, Any], deviation: float | None) -> None:
    block = design_of(asked(parameters)).blocks[0]
    # Rows of one length, and rows that are shortened a lot, are as long as the bound.
    expected = block.length / math.sqrt(2) if deviation is None else deviation
    assert block.deviation == pytest.approx(block.scale * expected)


# --- what it costs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["auto", "gamma", "gaussian"])
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("unit", ["record", "attribute"])
def test_a_person_pays_for_every_histogram_and_no_more_than_was_asked(noise: str, adjacency: str, unit: str) -> None:
    """Theorem S.16."""
    plan = MODEL.compile(asked({"noise": noise}, adjacency=adjacency, unit=unit))
    assert (1.7 if unit == "record" else 1.0) < plan.epsilon(1e-5) <= 2.0
    assert counts_of(plan) == ["a", "a", "b", "c"]
    events = [release.event(Unit.RECORD) for release in plan.releases]
    assert plan.epsilon(1e-5, "record") == pytest.approx(Composition(events).epsilon(1e-5), rel=1e-9)
    # A value of one party is in one histogram; a label is in all of them.
    alone = [r.event(Unit.ATTRIBUTE) for r in plan.releases if r.party == "b"]
    assert set(alone) in [set(c.events) for c in plan.cost(Unit.ATTRIBUTE, "b", Scope.PARTY).compositions]
    every = max(plan.cost(Unit.ATTRIBUTE).compositions, key=lambda c: len(c.events))
    assert len(every.events) == len(plan.releases)
    if noise == "gaussian":
        assert isinstance(plan.release("a", "block").mechanism, GaussianObjective)
        without = MODEL.compile(asked({"noise": noise, "probabilities_share": 0.0}, adjacency=adjacency, unit=unit))
        ratio = plan.release("a", "block").scale / without.release("a", "block").scale
        assert 1.0 < ratio < 1.35


def test_the_base_rate_gets_more_where_it_is_in_doubt() -> None:
    def parts(rows: int) -> float:
        cards = tuple(msgspec.structs.replace(card, rows=rows) for card in CARDS)
        made = design_of(asked({}, parties=cards)).probabilities
        assert made is not None
        rate, counts = (m.event(Unit.RECORD).value ** 2 for m in (made.rate, made.counts))
        return rate / (rate + 3 * counts)

    assert parts(60) == pytest.approx(0.5, rel=1e-3)
    assert parts(10_000) == pytest.approx(0.04, rel=1e-3)
    assert 0.04 < parts(800) < 0.5


@pytest.mark.parametrize(
    ("parameters", "changes"),
    [
        ({}, {"delta": 0.0}),
        ({"probabilities_share": 0.0}, {}),
        ({"combiner": "probability"}, {}),
        ({"importance": {"a": 0.0, "b": 0.0}}, {}),
        ({"classes": ["-1", "1", "2"]}, {}),
        ({}, {"trust": {"meta": "trusted"}}),
        ({}, {"trust": {"meta": "perturbed"}}),
        ({}, {"calibration": "published"}),
    ],
)
def test_where_nothing_is_put_together_by_log_odds_there_are_no_counts(
    parameters: dict[str, Any], changes: dict[str, Any]
) -> None:
    study = asked(parameters, **changes)
    plan = load(study.row).compile(study)
    assert counts_of(plan) == []
    assert not any("counts" in note for note in plan.notes)


def test_sites_of_a_row_split_make_no_counts() -> None:
    cards = tuple(Card(name, N, CARDS[0].columns, ("y",)) for name in HELD)
    assert counts_of(MODEL.compile(asked({"split": "samples", "combiner": "log-odds"}, parties=cards))) == []


@pytest.mark.parametrize(
    "parameters",
    [
        {"probabilities_share": 1.0},
        {"probabilities_share": -0.1},
        {"ranks": [3.0, 2.0, 1.0], "ranking_share": 0.4},
    ],
)
def test_a_share_that_leaves_nothing_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="probabilities_share lies between 0 and 1"):
        design_of(asked(parameters))


# --- the conversation ----------------------------------------------------------------------------------------------------


def opened(study: Study) -> tuple[Plan, dict[str, Party]]:
    plan, made = MODEL.compile(study), {}
    for card in study.parties:
        ledger = Ledger.in_memory()
        party = Party(card.name, TABLES[card.name], card, ledger, KeySource(ledger.root_key), Policy.in_process(), load)
        party.answer(encode(plan.hash, "open", 0, OpenRequest(study)))
        made[card.name] = party
    return plan, made


@pytest.mark.guarantee
def test_rates_that_are_none_and_counts_before_the_fit_are_refused_and_nothing_is_debited() -> None:
    plan, people = opened(asked({}))
    party = people["b"]
    with pytest.raises(UsageError, match="nothing named 'weights' is kept"):
        party.answer(encode(plan.hash, PROBABILITIES, 0, ScoresRequest(0.4)))
    assert not party.ledger.entries()
    party.answer(encode(plan.hash, "block", 0, Nothing()))
    before = len(party.ledger.entries())
    for rate in (0.0, 1.0, -3.0, math.nan, math.inf):
        with pytest.raises(ProtocolError):
            party.answer(encode(plan.hash, PROBABILITIES, 0, ScoresRequest(rate)))
    with pytest.raises(UsageError, match="no release"):
        party.answer(encode(plan.hash, RATE, 0, Nothing()))
    assert len(party.ledger.entries()) == before
    reply = party.answer(encode(plan.hash, PROBABILITIES, 0, ScoresRequest(0.4)))
    assert msgspec.msgpack.decode(open_envelope(reply).body, type=CountsReply).counts.values.numpy().shape == (2 * CELLS,)
    assert len(party.ledger.entries()) == before + 1
    other, others = opened(asked({"probabilities_share": 0.0}))
    with pytest.raises(UsageError, match="no release"):
        others["a"].answer(encode(other.hash, RATE, 0, Nothing()))


@pytest.mark.guarantee
def test_a_finished_study_predicts_as_its_estimator(tmp_path) -> None:
    plan = MODEL.compile(asked({}, epsilon=20.0))
    result = run_in_process(MODEL, plan, TABLES, Policy.in_process(), lambda _: MODEL).outcome.result
    assert isinstance(result.calibrated, Calibrated)
    assert "counts of classes along these scores" in MODEL.reading.render(result)
    model = fitted(plan, result)
    new = pl.DataFrame(VALUES)
    blocks = plan.design.blocks
    each = np.column_stack(
        [b.rows(TABLES[b.card.name]) @ np.array(m.weights) for b, m in zip(blocks, result.models, strict=True)]
    )
    assert model.decision_function(new) == pytest.approx(result.calibrated.log_odds(each))
    model.save(tmp_path / "m")
    assert (unpooled.load(tmp_path / "m").predict_proba(new) == model.predict_proba(new)).all()
    # An older record knows of no counts: it is read, and log odds are averaged.
    older = msgspec.to_builtins(result)
    del older["calibrated"]
    old = fitted(plan, msgspec.convert(older, StackingResult))
    low = logit(np.stack(old._low(new), axis=1)[:, :, 1])
    assert old.decision_function(new) == pytest.approx(low.mean(axis=1))


@pytest.mark.parametrize("options", [{}, {"importance": "private"}, {"rows": "unit"}, {"adjacency": "zero-out"}])
def test_saved_and_fitted_again_they_predict_with_equal_bits(tmp_path, options: dict[str, Any]) -> None:
    X, y, new, _ = made_up(3, 500, 0, new=200)
    model = PrivateStackingClassifier(3, epsilon=3.0, **OPTIONS, **options).fit(X, y)
    assert model.calibrated_ is not None
    p = model.predict_proba(new)
    assert (PrivateStackingClassifier(3, epsilon=3.0, **OPTIONS, **options).fit(X, y).predict_proba(new) == p).all()
    model.save(tmp_path / "m")
    assert (unpooled.load(tmp_path / "m").predict_proba(new) == p).all()
    assert np.vstack([model.predict_proba(row[None]) for row in new[:5]]) == pytest.approx(p[:5], abs=1e-12)
    # Rows are clipped and shortened as those that were counted.
    assert (model.predict_proba(3 * np.sign(new)) == model.predict_proba(np.sign(new))).all()


# --- what follows --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_factor_of_a_sum_is_right_for_normal_scores_of_this_correlation() -> None:
    """Theorem S.17, in numbers: the slope of the classes on the sum of what scores of two normal classes say."""
    rng, n = np.random.default_rng(5), 400_000
    lengths = np.array([0.3, 0.6, 0.9])
    y = rng.integers(0, 2, n)
    common, own = rng.normal(size=(n, 1)), rng.normal(size=(n, 3))
    noise = math.sqrt(COMMON) * common + math.sqrt(1 - COMMON) * own
    evidence = lengths * noise + np.where(y == 1, 0.5, -0.5)[:, None] * lengths**2
    for k in range(3):
        assert slope_of(evidence[:, k], y) == pytest.approx(1.0, abs=0.03)
    factor = factor_of(lengths)
    assert slope_of(factor * evidence.sum(axis=1), y) == pytest.approx(1.0, abs=0.02)
    assert slope_of(evidence.sum(axis=1), y) < 0.8


def test_the_factor_lies_between_a_kth_and_one() -> None:
    assert factor_of(np.array([0.7])) == 1.0
    assert factor_of(np.array([0.7, 1e-9])) == pytest.approx(1.0)
    assert factor_of(np.full(8, 0.7)) == pytest.approx(1 / (1 + COMMON * 7))
    assert 1 / 3 < factor_of(np.array([0.2, 0.5, 0.9])) < 1


def test_more_slopes_of_zero_are_believed_where_scores_may_be_noise() -> None:
    noise = np.random.default_rng(0).normal(size=(2, CELLS)) * 300
    released = ScoreCounts(noise, 300.0, 0.5, 0.02, 400)
    few, many = (score_posterior(released, believed=believed) for believed in (ANY, BELIEVED))
    assert many.slope < few.slope
    assert many.rate == pytest.approx(0.5, abs=0.05)


def test_exact_counts_make_the_rate_and_the_spread_of_scores_known() -> None:
    rng = np.random.default_rng(2)
    t = 0.2 + 1.5 * rng.normal(size=50_000)
    y = rng.random(t.size) < expit(-0.5 + 0.8 * t)
    counts = score_counts(t, y).reshape(2, CELLS).astype(float)
    found = score_posterior(ScoreCounts(counts, 0.0, float(y.mean()), 1e-4, t.size), believed=BELIEVED)
    assert found.rate == pytest.approx(float(y.mean()), abs=0.01)
    assert found.scores == pytest.approx((0.2, 1.5), abs=0.1)
    assert found.slope == pytest.approx(0.8, abs=0.08)


def test_lines_are_of_the_models_own_log_odds() -> None:
    """CountsReply without noise, of one party's score: what it says of a row is the log odds of its cell."""
    X, y, _, _ = made_up(2, 30_000, 1, new=0)
    table = Table({f"x{j}": X[:, j] for j in range(8)})
    columns = tuple(Column(f"x{j}", -1.0, 1.0) for j in range(8))
    cards = (Card("a", 30_000, columns, ("y",)), Card("b", 30_000, (Column("w", -1.0, 1.0),), ("y",)))
    block = design_of(asked({}, parties=cards)).blocks[0]
    rows = block.rows(table)
    weights = block.outcomes.minimum(
        rows, np.where(y == 1, 1.0, -1.0), 3.0, linear=np.zeros(9), centre=np.zeros(9), tolerance=1e-6
    )
    base = ReleasedRate(float(y.mean()), 1e-4, y.size)
    counts = counted(block, rows, y == 1, weights, base.sent).astype(float)
    found = calibrated([block], [weights], [counts], 0.0, base)
    assert found.factor == 1.0
    assert slope_of(found.log_odds((rows @ weights)[:, None]), y) == pytest.approx(1.0, abs=0.1)


def test_evidence_is_what_a_model_adds_to_the_base_rate() -> None:
    line = ScoreLine(((0.1, 0.5),), -0.4)
    assert line.evidence(np.array([0.0, 2.0])) == pytest.approx([0.5, 1.5])
    both = Calibrated(-0.3, 0.5, (line, line))
    assert both.log_odds(np.array([[0.0, 2.0]])) == pytest.approx([-0.3 + 0.5 * 2.0])


# --- what it is for ------------------------------------------------------------------------------------------------------


@pytest.mark.long_for("4-0.3")
@pytest.mark.slow
@pytest.mark.parametrize(("parties", "correlation"), [(2, 0.0), (2, 0.3), (4, 0.3)])
def test_probabilities_are_nearer_to_calibrated_and_predict_no_worse(parties: int, correlation: float) -> None:
    slopes, gains = {0.0: [], 0.6: []}, []
    for seed in range(6):
        X, y, new, truth = made_up(parties, 8000, seed, correlation=correlation)
        losses = {}
        for share, found in slopes.items():
            model = PrivateStackingClassifier(
                parties, epsilon=2.0, **OPTIONS | {"random_state": seed}, probabilities_share=share
            ).fit(X, y)
            found.append(abs(math.log(max(slope_of(model.decision_function(new), truth), 1e-3))))
            losses[share] = log_loss(truth, model.predict_proba(new)[:, 1])
        gains.append(losses[0.0] - losses[0.6])
    assert np.mean(slopes[0.6]) < 0.6 * np.mean(slopes[0.0])
    assert np.mean(gains) > 0.0


@pytest.mark.long_for("8")
@pytest.mark.slow
@pytest.mark.parametrize("parties", [2, 8])
def test_columns_that_tell_nothing_cost_little_over_the_base_rate(parties: int) -> None:
    excess = []
    for seed in range(12):
        X, _, new, _ = made_up(parties, 1000, seed)
        rng = np.random.default_rng([9, seed])
        y, truth = (rng.random(1000) < 0.3).astype(int), (rng.random(4000) < 0.3).astype(int)
        model = PrivateStackingClassifier(parties, epsilon=1.0, **OPTIONS | {"random_state": seed}).fit(X, y)
        p = model.predict_proba(new)[:, 1]
        excess.append(log_loss(truth, p) / log_loss(truth, np.full(truth.size, truth.mean())) - 1)
    assert np.mean(excess) < 0.02


@pytest.mark.long
@pytest.mark.slow
def test_the_outlook_plays_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = PrivateStackingClassifier(3, epsilon=1.0, **OPTIONS)
    made = []
    original = low_level.calibrated
    module = sys.modules["unpooled.models.stacking.outlook"]
    monkeypatch.setattr(module, "calibrated", lambda *given: made.append(given) or original(*given))
    found = model.outlook(5000, 6)
    assert made
    assert all(np.isfinite([point.error for point in found.points]))
