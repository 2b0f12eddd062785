"""Logistic regression of columns at a clinic and a laboratory: exact under masks, the root without noise, what is refused, Python and files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from commands import command as run_command
from joint_members import people, standards_of, watched
from scipy.optimize import root
from scipy.special import expit

import unpooled
from unpooled import Bounds, PrivateGLM
from unpooled.errors import PlanMismatch, ProtocolError, StudyAborted, UsageError
from unpooled.linear.standard import CONSTANT, Standard
from unpooled.models import load
from unpooled.models.glm import columns, columns_fit
from unpooled.models.glm.columns import PULLS, SHARES, PullDesign, design_of
from unpooled.models.glm.columns_fit import PullFit, added_up, imagined_pulls
from unpooled.models.glm.estimator import fitted
from unpooled.models.glm.pulls import PLAIN, SIGNED, STEPS, PullRows, TypedPulls
from unpooled.models.glm.result import tables as tables_of
from unpooled.models.glm.typed import TypedLevels, typed_rows
from unpooled.privacy import noise
from unpooled.privacy.bounds import Column
from unpooled.privacy.masks import derived
from unpooled.privacy.noise import Stream
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import NoRows, Table
from unpooled.privacy.unit import Adjacency, Scope, Unit
from unpooled.products import conversation as sharing
from unpooled.products import masking
from unpooled.products.sums import ProductShape
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.transcript import Transcript

MODEL, INF = load("glm"), math.inf
ARMS = ("placebo", "low", "high")
CLINIC = (Column("arm", categories=ARMS), Column("age", -4.0, 4.0), Column("ill", categories=("no", "yes")))
LABORATORY = (Column("marker", -5.0, 5.0), Column("blood", categories=("a", "b")), Column("iron", -4.0, 4.0))
#: Log odds of the lines of a table.
TRUE = {"arm: low - placebo": -0.5, "arm: high - placebo": 0.8, "age": 0.5, "marker": -0.7, "blood: b - a": 0.4, "iron": 0.0}


def world(n: int, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of both parties by column."""
    rng = np.random.default_rng(seed)
    arm, blood = rng.choice(3, n, p=[0.6, 0.3, 0.1]), rng.choice(2, n)
    age, iron = rng.normal(size=(2, n)).clip(-4, 4)
    marker = (0.5 * age + rng.normal(size=n)).clip(-5, 5)
    u = np.array([0.0, -0.5, 0.8])[arm] + 0.5 * age - 0.7 * marker + 0.4 * blood - 0.6
    ill = np.where(rng.random(n) < expit(u), "yes", "no").astype(object)
    clinic = {"arm": np.array(ARMS, dtype=object)[arm], "age": age, "ill": ill}
    return clinic, {"marker": marker, "blood": np.array(["a", "b"], dtype=object)[blood], "iron": iron}


def a_study(
    n: int = 60, epsilon: float = 3.0, *, swapped: bool = False, seed: int = 0, **asked: Any
) -> tuple[Study, dict[str, Any]]:
    """A study of both parties and a helper, and the tables of all members."""
    held = dict(zip(("clinic", "laboratory"), world(n, seed), strict=True))
    cards = [Card("clinic", n, CLINIC), Card("laboratory", n, LABORATORY)]
    given = {"response": "ill", "split": "columns"} | asked
    study = Study(
        "glm",
        tuple(cards[::-1] if swapped else cards),
        epsilon,
        1e-6,
        parameters=given,
        derived=(),
        helpers=(HelperCard("registry"),),
        simulation_seed=3,
    )
    return study, {name: Table(values) for name, values in held.items()} | {"registry": NoRows()}


def pooled(design: PullDesign, members: Any, plan: Any, tables: Any, at: tuple[float, ...], number: int) -> list[int]:
    """What the people of all tables add to a round, one by one with Python's integers, from the parts that their parties round."""
    known, parts = standards_of(design, members, plan), {}
    for part in design.pulls.parts:
        rows = design.pull_rows(part.party, at, part)
        holds = part.party == design.holder
        kind = part.name if not holds else "number" if part.name in {SIGNED, PLAIN} else "row"
        keys = members[part.party].keys_for(plan.study)
        coins = Stream(derived(keys.root, "coins", plan.hash, part.party, "rounding", number, kind))
        real = rows.coded(tables[part.party], known.get(part.party, Standard.declared())).astype(float)
        parts[part.name] = rows.part_of(real, coins, 0).astype(object)
    g, r, second, first = (parts[name][:, 0] for name in ("signed", "plain", "second", "first"))
    found = []
    for party in design.parties:
        if party == design.holder:
            held = zip(
                parts.get("signed rows", np.empty((0, 0))).T, parts.get("plain rows", np.empty((0, 0))).T, strict=True
            )
            found += [int((big * (second + first) + plain * (second - first)).sum()) for big, plain in held]
        else:
            both = zip(parts["second rows"].T, parts["first rows"].T, strict=True)
            found += [int((g * (y1 + y0) + r * (y1 - y0)).sum()) for y1, y0 in both]
    return [*found, int((g * (second + first) + r * (second - first)).sum())]


# --- the released integers ---------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize("swapped", [False, True])
def test_the_opened_integers_of_every_round_are_the_exact_sums_of_the_pooled_rows(
    swapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProductShape, "block_rows", 16)
    study, tables = a_study(30, INF, swapped=swapped)
    plan, members, (at, values, _) = MODEL.compile(study), people(study, tables), watched(monkeypatch)
    drive(MODEL, plan, in_process(members))
    assert len(values) > 3
    for number, (coefficients, total) in enumerate(zip(at, values, strict=True), start=1):
        assert total.tolist() == pooled(plan.design, members, plan, tables, coefficients, number)


@pytest.mark.guarantee
def test_a_holder_of_the_classes_alone_has_a_round_too(monkeypatch: pytest.MonkeyPatch) -> None:
    study, tables = a_study(30, INF)
    alone = Table({"ill": tables["clinic"]["ill"]})
    study = msgspec.structs.replace(study, parties=(Card("clinic", 30, CLINIC[2:]), study.parties[1]))
    plan, members, (at, values, _) = MODEL.compile(study), people(study, tables | {"clinic": alone}), watched(monkeypatch)
    drive(MODEL, plan, in_process(members))
    assert plan.design.scaled == ("laboratory",)
    assert values[0].tolist() == pooled(plan.design, members, plan, tables | {"clinic": alone}, at[0], 1)


@pytest.mark.slow
def test_the_totals_are_the_exact_ones_plus_the_noise_that_members_drew(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[np.ndarray] = []
    real = noise.wide_gaussian

    def spy(*given: Any, **more: Any) -> Any:
        drawn.append(real(*given, **more))
        return drawn[-1]

    monkeypatch.setattr(noise, "wide_gaussian", spy)
    study, tables = a_study(30)
    plan, members, (at, values, _) = MODEL.compile(study), people(study, tables), watched(monkeypatch)
    drive(MODEL, plan, in_process(members))
    assert len(values) == len(PULLS) == 5
    own = drawn[3 * 2 :]  # of every member a draw for each block of noise, those of the second moments first
    for number, (coefficients, total) in enumerate(zip(at, values, strict=True), start=1):
        some = own[6 * (number - 1) : 6 * number]
        added = sum(np.concatenate(some[k : k + 2]) for k in range(0, 6, 2))
        exact = np.array(pooled(plan.design, members, plan, tables, coefficients, number), dtype=object)
        assert total.tolist() == (exact + added).tolist()
        assert np.abs(added).min() > 0


@pytest.mark.guarantee
def test_without_proofs_and_with_them_a_run_has_the_same_numbers() -> None:
    found = []
    for check in ("proof", "none"):
        study, tables = a_study(40, 5.0, check=check)
        plan = MODEL.compile(study)
        found.append((plan, drive(MODEL, plan, in_process(people(study, tables))).result))
    assert "ONLY if all parties follow the protocol" in found[1][0].against
    assert found[0][0].design.proofs == 2 + 8 * 5 > found[1][0].design.proofs == 0
    assert [c.name for c in found[0][1].coefficients] == [c.name for c in found[1][1].coefficients]


@pytest.mark.guarantee
def test_a_transcript_gives_the_same_bits_again() -> None:
    study, tables = a_study(30)
    plan, record = MODEL.compile(study), Transcript()
    first = drive(MODEL, plan, in_process(people(study, tables)), record).result
    assert drive(MODEL, plan, in_process({}), record.replay()).result == first
    again = Transcript()
    drive(MODEL, plan, in_process(people(study, tables)), again)
    assert [entry.reply for entry in again.entries] == [entry.reply for entry in record.entries]


@pytest.mark.guarantee
def test_every_party_debits_the_whole_plan_and_the_helper_nothing() -> None:
    study, tables = a_study(30)
    members, plan = people(study, tables), MODEL.compile(study)
    drive(MODEL, plan, in_process(members))
    for name, party in members.items():
        spent = party.ledger.composition(Unit.RECORD, Scope.PERSON).epsilon(study.delta)
        assert spent == pytest.approx(0.0 if name == "registry" else plan.epsilon(study.delta))
    assert plan.epsilon(study.delta) == pytest.approx(3.0, abs=1e-6)
    assert sum(SHARES.values()) == pytest.approx(1.0)
    # Proofs of all rounds take their part of delta, and each release carries the distance of its own.
    assert plan.release("clinic", "joint").mechanism.distance == 2 * 2.0**-64
    assert plan.release("clinic", "pulls-3").mechanism.distance == 8 * 2.0**-64


def test_the_plan_has_the_sensitivity_of_the_theorem() -> None:
    study, _ = a_study(500)
    for adjacency, times in ((Adjacency.REPLACE, 4), (Adjacency.ZERO_OUT, 2)):
        plan = MODEL.compile(msgspec.structs.replace(study, adjacency=str(adjacency)))
        squares = sum((8 * limit) ** 2 for limit in plan.design.limits.columns) + (8 * 717) ** 2
        assert plan.release("clinic", "pulls-1").sensitivity() == pytest.approx(times * STEPS * math.sqrt(squares))
        assert plan.release("clinic", "pulls-5").sensitivity("attribute") == pytest.approx(4 * STEPS * math.sqrt(squares))


@pytest.mark.guarantee
def test_a_liar_whose_number_is_a_step_too_large_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    study, tables = a_study(20)
    real = PullRows.part_of

    def lied(self: PullRows, rows: Any, coins: Any, first: int) -> Any:
        found = real(self, rows, coins, first)
        return np.full_like(found, STEPS + 1) if self.part.name == SIGNED else found

    monkeypatch.setattr(PullRows, "part_of", lied)
    with pytest.raises((StudyAborted, UsageError, ProtocolError, ValueError)):
        drive(MODEL, MODEL.compile(study), in_process(people(study, tables)))


@pytest.mark.guarantee
@pytest.mark.parametrize("wild", [math.nan, math.inf, 2.0**41])
def test_wild_coefficients_are_refused(wild: float, monkeypatch: pytest.MonkeyPatch) -> None:
    study, tables = a_study(20)
    monkeypatch.setattr(PullFit, "at", property(lambda self: (wild,) * (self.design.columns + 2)))
    with pytest.raises((ProtocolError, UsageError, PlanMismatch)):
        drive(MODEL, MODEL.compile(study), in_process(people(study, tables)))


# --- the root without noise ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("swapped", [False, True])
def test_without_noise_the_estimate_is_the_root_of_the_weighted_equation(
    swapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A solver on pooled rows that shares nothing but the released means, deviations, limits and the constant's part."""
    n = 1500
    study, tables = a_study(n, INF, swapped=swapped)
    plan, members, (at, _, fits) = MODEL.compile(study), people(study, tables), watched(monkeypatch)
    result = drive(MODEL, plan, in_process(members)).result
    known, design, share = standards_of(plan.design, members, plan), plan.design, fits[-1].setting
    y = (tables["clinic"]["ill"] == "yes").astype(float)
    z = {
        "clinic": np.column_stack([*(tables["clinic"]["arm"] == arm for arm in ARMS), tables["clinic"]["age"] / 4]),
        "laboratory": np.column_stack(
            [
                tables["laboratory"]["marker"] / 5,
                *(tables["laboratory"]["blood"] == b for b in "ab"),
                tables["laboratory"]["iron"] / 4,
            ]
        ),
    }
    z = {name: (rows.astype(float) - known[name].middle) / known[name].width for name, rows in z.items()}
    limits = dict(zip(design.parties, (limit / 1024 for limit in design.limits.columns), strict=True))
    short = {
        name: rows * np.minimum(1, (limits[name] - math.sqrt(4) / STEPS) / np.linalg.norm(rows, axis=1))[:, None]
        for name, rows in z.items()
    }
    # One level of a column follows from the others: its coefficient is left out, and levels are compared.
    kept = {"clinic": [1, 2, 3], "laboratory": [0, 2, 3]}
    rows = np.column_stack([*(short[name][:, kept[name]] for name in z), np.full(n, CONSTANT)])

    def parts(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first = z["clinic"][:, kept["clinic"]] @ b[:3] + share * CONSTANT * b[-1]
        return first, z["laboratory"][:, kept["laboratory"]] @ b[3:6] + (1 - share) * CONSTANT * b[-1]

    def equation(b: np.ndarray) -> np.ndarray:
        s, (first, second) = 2 * y - 1, parts(b)
        return rows.T @ (s * np.exp(-np.maximum(s * first, 0) - np.maximum(s * second, 0))) / n

    found = root(equation, np.zeros(7), tol=1e-13)
    assert found.success
    widths = np.concatenate([known[name].width[kept[name]] for name in z]) * np.array([1, 1, 4, 5, 1, 4])
    own = dict(
        zip(
            ["arm: low - placebo", "arm: high - placebo", "age", "marker", "blood: b - a", "iron"],
            found.x[:6] / widths,
            strict=True,
        )
    )
    lines = {line.term: line for line in tables_of(plan, result).summary().terms}
    for name, value in own.items():
        assert abs(lines[name].estimate - value) < 1e-3 * lines[name].std_error, name
    assert len(at) < 12


@pytest.mark.slow
def test_what_outlooks_add_up_is_what_masked_products_give_but_for_rounding() -> None:
    study, tables = a_study(400)
    plan = MODEL.compile(study)
    members = people(study, tables)
    drive(MODEL, plan, in_process(members))
    known, design = standards_of(plan.design, members, plan), plan.design
    at = tuple(np.random.default_rng(2).normal(size=design.columns + 2).tolist())
    real = added_up(design, tables, known, at)
    whole = np.array(pooled(design, members, plan, tables, at, 1), dtype=float)
    # Of 400 people, each with six roundings of at most a step of numbers up to STEPS times the limit.
    assert np.abs(real - whole).max() < 6 * 5 * math.sqrt(400) * 2 * STEPS
    assert np.abs(real).max() > 20 * STEPS**2


@pytest.mark.long
@pytest.mark.slow
def test_intervals_cover_and_tables_of_opposed_splits_agree() -> None:
    z, printed = [], 0
    for seed in range(40):
        study, tables = a_study(4000, 3.0, seed=seed)
        plan = MODEL.compile(study)
        result = imagined_pulls(plan.design, tables, np.random.default_rng(seed))
        lines = tables_of(plan, result).summary().terms
        z += [(line.estimate - TRUE[line.term]) / line.std_error for line in lines if line.term in TRUE]
        printed += len(lines)
    share = float(np.mean(np.abs(z) < 1.96))
    assert 0.89 < share < 0.99  # of 240 lines: .95 +- four deviations
    assert printed > 0.95 * 40 * 7


# --- typed rows ------------------------------------------------------------------------------------------------------------------


def test_typed_rows_have_the_released_shares_and_covariance() -> None:
    rng = np.random.default_rng(1)
    middle, levels = np.array([0.2, 0.1, 0.5, 0.4]), (TypedLevels((1, 2, 3), whole=True),)
    width = np.array([1.0, 0.3, 0.5, 0.49])
    root_ = rng.normal(size=(3, 3))
    covariance = np.zeros((4, 4))
    covariance[np.ix_([0, 1, 3], [0, 1, 3])] = root_ @ root_.T / 3 + np.eye(3) / 2
    rows = typed_rows(covariance, middle, width, levels)
    np.testing.assert_allclose(np.cov(rows[:, [0, 1, 3]].T), covariance[np.ix_([0, 1, 3], [0, 1, 3])], atol=2e-5)
    np.testing.assert_allclose(rows[:, 1:] @ width[1:], 0, atol=1e-9)  # the levels of a row add up to one
    alone = typed_rows(np.eye(1), np.array([0.3]), np.ones(1), (TypedLevels((0,), whole=False),))
    assert len(np.unique(alone.round(9))) == 2
    assert abs((alone > 0).mean() - 0.3) < 1e-3


def test_typed_curvature_is_that_of_the_people_and_their_pull_is_nothing_at_the_truth() -> None:
    rng = np.random.default_rng(2)
    rows = np.column_stack([rng.normal(size=(6000, 3)), np.full(6000, CONSTANT)])
    pulls, b = TypedPulls(rows, np.array([True, False, False]), 6000), np.array([0.8, -0.5, 0.2, -1.0])
    share = pulls.setting(b)
    bend, step = pulls.bend(b, share), 1e-5
    np.testing.assert_allclose(pulls.pull(b, share, b), 0, atol=1e-9)
    slope = (pulls.pull(b, share, b + step * np.eye(4)[1]) - pulls.pull(b, share, b)) / step
    np.testing.assert_allclose(slope, bend.curvature[:, 1], rtol=1e-4)
    others = [pulls.bend(b, part / 10).weight for part in range(11)]
    assert bend.weight == max(others) > min(others)
    assert np.linalg.eigvalsh(2 * bend.curvature - bend.meat).min() > -1e-6  # a pull is at most 1


def test_where_rounds_find_no_root_no_line_is_printed() -> None:
    study, tables = a_study(1500, 3.0)
    plan = MODEL.compile(study)
    fit = _fit_of(plan.design, tables)
    assert 0 < fit.unsure < 0.05
    for _ in range(5):
        fit.take(np.zeros(plan.design.pulls.size), 1.0)
    assert not fit.result().few
    fit.b = fit.b * 0 + np.append(np.full(plan.design.columns, 60.0), 0.0)
    found = fit.result()
    assert "did not arrive at coefficients" in found.few
    assert not tables_of(plan, found).summary().terms


@pytest.mark.long_for("inf")
@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [3.0, INF])
def test_classes_that_columns_part_have_no_line(epsilon: float) -> None:
    study, tables = a_study(1500, epsilon)
    own = {name: np.array(tables["clinic"][name]) for name in ("arm", "age", "ill")}
    own["ill"] = np.where(own["age"] + np.array(tables["laboratory"]["marker"]) > 0, "yes", "no").astype(object)
    tables |= {"clinic": Table(own)}
    plan = MODEL.compile(study)
    found = drive(MODEL, plan, in_process(people(study, tables))).result
    assert "did not arrive at coefficients" in found.few
    assert tables_of(plan, found).summary().terms == ()


def _fit_of(design: PullDesign, tables: Any) -> PullFit:
    caught: list[PullFit] = []
    real = columns_fit.fit_of

    def spy(*given: Any) -> PullFit:
        caught.append(real(*given))
        return caught[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(columns_fit, "fit_of", spy)
        imagined_pulls(design, tables, np.random.default_rng(0))
    caught[-1].rounds.clear()
    return caught[-1]


# --- what is refused ---------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("asked", "match"),
    [
        (
            {"family": "gamma"},
            'of columns at two parties there are the families "logistic", "poisson" and "survival", not \'gamma\'.*model = "bayes"',
        ),
        ({"split": "rows"}, "split"),
        ({"confidence": 2.0}, "confidence must lie"),
        ({"response": "marker"}, "two classes and is never missing"),
        ({"response": "nobody"}, "must be a declared column of one party"),
        ({"goal": "table"}, 'goal is "table", and with 60 people.* Nothing is spent'),
        ({"goal": "a chair"}, "goal is one of"),
        ({"check": "perhaps"}, "check is"),
        ({"formula": "age:marker"}, "party"),
        ({"exposure": "age"}, "exposure"),
        ({"reference": {"arm": "none"}}, "reference of 'arm'"),
        ({"tolerate": 2}, "leaves no noise that protects"),
    ],
)
def test_what_has_no_products_is_refused_by_name(asked: dict[str, Any], match: str) -> None:
    study, _ = a_study(60, **asked)
    with pytest.raises(UsageError, match=match):
        MODEL.compile(study)


@pytest.mark.guarantee
def test_three_parties_and_none_to_help_are_refused_with_what_would_do() -> None:
    study, _ = a_study(60)
    third = Card("pharmacy", 60, (Column("dose", 0.0, 1.0),))
    with pytest.raises(UsageError, match=r'has 3: products of three parties.*model = "bayes", split = "columns"'):
        MODEL.compile(msgspec.structs.replace(study, parties=(*study.parties, third)))
    with pytest.raises(UsageError, match="two parties need a helper"):
        MODEL.compile(msgspec.structs.replace(study, helpers=()))


@pytest.mark.guarantee
def test_people_with_gaps_are_not_left_out() -> None:
    study, _ = a_study(60)
    cards = (
        study.parties[0],
        msgspec.structs.replace(study.parties[1], columns=(Column("iron", -4.0, 4.0, missing="complete"),)),
    )
    asked = msgspec.structs.replace(study, parties=cards)
    with pytest.raises(UsageError, match="leaves no people out: column 'iron'"):
        design_of(asked)
    with pytest.raises(UsageError, match="iron"):
        MODEL.compile(asked)


def test_models_that_cannot_do_it_name_the_one_that_does() -> None:
    """What sent people from one error to the next: a regression of two classes, and a model of rows over different columns."""
    study, _ = a_study(60)
    with pytest.raises(UsageError, match='model = "glm", PrivateGLM'):
        load("bayes").compile(msgspec.structs.replace(study, model="bayes"))
    rows = msgspec.structs.replace(study, helpers=(), parameters={"response": "ill"})
    with pytest.raises(UsageError, match='split = "columns" of model = "glm"'):
        MODEL.compile(rows)


@pytest.mark.guarantee
def test_blocks_and_rounds_that_the_plan_has_not_are_refused() -> None:
    design = MODEL.compile(a_study(60)[0]).design
    context: Any = type("Asked", (), {"design": design, "name": "clinic", "index": 2 + 8 * 5})()
    with pytest.raises(PlanMismatch, match="no such block"):
        masking.spot_of(context, "sender")
    context.index = 1
    with pytest.raises(PlanMismatch, match="no total 'pulls-1'"):
        sharing._number_of(context, "pulls-1")
    context.index = 0
    assert sharing._number_of(context, "pulls-2") == 2


@pytest.mark.guarantee
def test_masked_rows_of_too_many_megabytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_TUNED", columns._TUNED.but(largest_megabytes=0.1))
    study, _ = a_study(60)
    with pytest.raises(UsageError, match="megabytes, and more than 0 are refused"):
        MODEL.compile(study)


@pytest.mark.slow
def test_a_small_study_is_told_before_data_that_it_makes_no_table() -> None:
    notes = MODEL.compile(a_study(60)[0]).notes
    assert "makes no table and is for predictions: with 60 people" in notes[0]
    assert "What would do: about" in notes[0]
    assert not any("no table" in note for note in MODEL.compile(a_study(20_000)[0]).notes)
    study, tables = a_study(60)
    plan = MODEL.compile(study)
    found = tables_of(plan, drive(MODEL, plan, in_process(people(study, tables))).result)
    assert found.summary().terms == ()
    assert any("with 60 people" in line for line in found.summary().compared)


@pytest.mark.slow
def test_the_planned_bytes_are_those_that_travel() -> None:
    frame, y = _frame(3000)
    model = _model(3.0).fit(frame, y)
    sent = sum(one["sent"] for one in model.communication_.values())
    assert model.plan_.design.megabytes == pytest.approx(sent / 1e6, rel=0.05)


# --- Python ------------------------------------------------------------------------------------------------------------------------


BOUNDS = Bounds({"arm": list(ARMS), "age": (-4, 4), "marker": (-5, 5), "blood": ["a", "b"], "iron": (-4, 4)})
HELD = {"clinic": ["arm", "age"], "laboratory": ["marker", "blood", "iron"]}


def _frame(n: int) -> tuple[pl.DataFrame, list[str]]:
    clinic, laboratory = world(n)
    y = clinic.pop("ill").tolist()
    whole = {name: values.tolist() for name, values in (clinic | laboratory).items()}
    return pl.DataFrame(whole).select(["iron", "arm", "marker", "age", "blood"]), y


def _model(epsilon: float, **more: Any) -> PrivateGLM:
    given: dict[str, Any] = {"bounds": BOUNDS, "classes": ["no", "yes"], "parties": HELD, "delta": 1e-6, "random_state": 1}
    return PrivateGLM("logistic", epsilon=epsilon, **(given | more))


@pytest.mark.slow
def test_the_estimator_predicts_in_the_order_of_the_frame_and_is_kept_in_a_file(tmp_path: Path) -> None:
    frame, y = _frame(3000)
    model = _model(INF, response_at="clinic").fit(frame, y)
    u = model.linear_predictor(frame)
    assert np.corrcoef(u, np.array(y) == "yes")[0, 1] > 0.3
    lines = {line.term: line.estimate for line in model.summary().terms}
    for name, true in TRUE.items():
        assert abs(lines[name] - true) < 0.35
    assert model.coef_.size == 8
    assert model.coef_[3] - model.coef_[1] == pytest.approx(lines["arm: high - placebo"])
    assert np.exp(lines["age"]) == pytest.approx(
        next(t for t in model.summary(exponentiate=True).terms if t.term == "age").estimate
    )
    assert "odds ratio" in str(model.summary(exponentiate=True))
    assert "depend on who holds which column" in str(model.summary())
    across = model.contrast("marker + age")
    assert across.terms[0].estimate == pytest.approx(lines["marker"] + lines["age"])
    model.save(tmp_path / "model")
    again = unpooled.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert str(again.summary()) == str(model.summary())
    own = fitted(model.plan_, model._result)
    assert str(own.summary()) == str(model.summary())


@pytest.mark.long
@pytest.mark.slow
def test_frames_that_are_linked_have_the_table_of_rows_that_are_aligned() -> None:
    clinic, laboratory = world(600)
    order = np.random.default_rng(1).permutation(600)
    ids = [f"p{k}" for k in range(600)]
    one = pl.DataFrame({"id": ids} | {name: values.tolist() for name, values in clinic.items()})
    other = pl.DataFrame({"id": ids} | {name: values.tolist() for name, values in laboratory.items()})[order.tolist()]
    model = _model(INF, parties=None).fit({"clinic": one, "laboratory": other}, y="ill", on="id")
    assert model.plan_.design.holder == "clinic"
    aligned = _model(INF).fit(*_frame(600))
    ours, theirs = ({line.term: line for line in m.summary().terms} for m in (model, aligned))
    for name, line in ours.items():
        assert abs(line.estimate - theirs[name].estimate) < 2e-3 * line.std_error


@pytest.mark.slow
def test_a_formula_has_terms_of_one_party_each() -> None:
    clinic, laboratory = world(1500)
    whole = pl.DataFrame({name: values.tolist() for name, values in (clinic | laboratory).items()})
    bounds = Bounds(
        {"arm": list(ARMS), "age": (-4, 4), "marker": (-5, 5), "blood": ["a", "b"], "iron": (-4, 4), "ill": ["no", "yes"]}
    )
    model = _model(INF, bounds=bounds, classes=None).fit(whole, formula="ill ~ arm + age + I(age ** 2) + marker * blood")
    names = [line.term for line in model.summary().terms]
    assert any("marker" in name and "blood" in name for name in names)
    assert model.predict_proba(whole).shape == (1500, 2)


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"ridge": 0.1}, "ridge goes with rows that are split"),
        ({"method": "newton"}, "method goes with rows that are split"),
        ({"covariance": "robust"}, "covariance goes with rows"),
        ({"helpers": 2}, "helpers must be 1"),
        ({"response_at": "nobody"}, "response_at must be one of"),
    ],
)
def test_parameters_of_rows_are_refused_by_name(more: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        _model(3.0, **more).fit(*_frame(100))


def test_a_family_without_products_and_what_a_fit_takes_of_rows_are_refused() -> None:
    frame, y = _frame(100)
    with pytest.raises(UsageError, match="sites goes with rows that are split"):
        _model(3.0).fit(frame, y, sites=["a"] * 100)
    amounts = _model(3.0, classes=None, y_bounds=(1, 9))
    amounts.family = "gamma"
    with pytest.raises(UsageError, match="there are the families"):
        amounts.fit(frame, 1 + np.arange(100) % 9)
    with pytest.raises(UsageError, match="y_bounds goes with rows"):
        _model(3.0, y_bounds=(0, 9)).fit(frame, y)


# --- files -------------------------------------------------------------------------------------------------------------------------


STUDY = """\
[study]
model = "glm"
[privacy]
epsilon = 6
[parameters]
response = "ill"
split = "columns"
[trust]
helpers = ["registry"]
[[party]]
card = "clinic/clinic.card.toml"
[[party]]
card = "laboratory/laboratory.card.toml"
[[party]]
card = "registry/registry.card.toml"
"""
PARTIES = [word for name in ("clinic", "laboratory", "registry") for word in ("--party", f"{name}/party.toml")]


def command(*words: str, code: int = 0) -> str:
    """Run the command in the folder that the test is in."""
    return run_command(Path(), *words, code=code)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clinic, a laboratory and a registry on disk, whose policies let masked rows travel, and their study."""
    monkeypatch.chdir(tmp_path)
    for name, values, declared in zip(
        ("clinic", "laboratory"),
        world(1200),
        (("arm=placebo,low,high", "age=-4:4", "ill=no,yes"), ("marker=-5:5", "blood=a,b", "iron=-4:4")),
        strict=True,
    ):
        ids = {"id": [f"p{k}" for k in range(1200)]}
        pl.DataFrame(ids | {column: own.tolist() for column, own in values.items()}).write_csv(f"{name}.csv")
        said = [word for column in declared for word in ("--column", column)]
        command("party", "init", f"{name}.csv", "--name", name, "--folder", name, "--id", "id", *said, "--epsilon", "20")
        config = Path(name, "party.toml")
        config.write_text(config.read_text().replace('joint = "no"', 'joint = "allowed"'))
        command("party", "card", "--config", str(config))
    command("party", "init", "--helper", "registry", "--folder", "registry", "--contact", "ask the registry")
    Path("study.toml").write_text(STUDY)
    return tmp_path


@pytest.mark.long
@pytest.mark.slow
def test_two_parties_and_a_helper_plan_approve_run_and_read(folder: Path) -> None:
    plan = command("plan", "study.toml")
    for words in (
        "pulls-1",
        "registry for clinic and laboratory",
        "megabytes of masked rows",
        "NOT against registry together with a party",
    ):
        assert words in plan
    for name in ("clinic", "laboratory", "registry"):
        assert command("party", "check", "study.toml", "--config", f"{name}/party.toml", "--approve")
    table = command("run", "study.toml", *PARTIES, "--out", "out")
    for term in ("arm: low - placebo", "marker", "blood: b - a", "columns of clinic, laboratory"):
        assert term in table
    assert "odds ratio" in command("contrast", "out", "blood: b - a", "--exponentiate")
    assert "epsilon = 6" in command("party", "ledger", "--config", "clinic/party.toml")
    assert "marker" in command("contrast", "out", "marker + age")
    pl.DataFrame(
        {"arm": ["low", "high"], "age": [0.1, 1.0], "marker": [0.2, 0.4], "blood": ["a", "b"], "iron": [0.0, 0.1]}
    ).write_csv("new.csv")
    assert command("predict", "out", "--data", "new.csv")
    found = json.loads(command("result", "out", "--json"))
    assert {line["term"] for line in found["terms"]} >= {"marker", "age"}
    command("report", "out", "--out", "report.html")
    page = Path("report.html").read_text()
    assert "registry" in page
    assert "marker" in page


@pytest.mark.slow
def test_a_new_study_with_a_helper_is_one_of_columns(folder: Path) -> None:
    cards = [word for name in ("clinic", "laboratory", "registry") for word in ("--card", f"{name}/{name}.card.toml")]
    command("new", "glm", *cards, "--out", "new.toml")
    text = (folder / "new.toml").read_text()
    assert 'split = "columns"' in text
    assert 'helpers = ["registry"]' in text


def test_lines_next_to_a_column_that_the_noise_hides_are_those_of_the_model_without_it() -> None:
    """A range of 0 to 4,000 for a deviation of 8: the slope of a column that is related to it is the one that is not adjusted."""
    n, rng = 20_000, np.random.default_rng(4)
    hidden = rng.normal(size=n)
    x, w = (0.6 * hidden + 0.8 * rng.normal(size=n)).clip(-4, 4), rng.normal(size=n).clip(-4, 4)
    y = np.where(rng.random(n) < expit(0.5 * x + 0.5 * hidden + 0.3 * w), "yes", "no").astype(object)
    columns = Column("x", -4.0, 4.0), Column("y", categories=("no", "yes"))
    cards = Card("clinic", n, columns), Card("lab", n, (Column("crp", 0.0, 4000.0), Column("w", -4.0, 4.0)))
    asked = {"response": "y", "split": "columns"}
    study = Study("glm", cards, 3.0, 1e-6, parameters=asked, derived=(), helpers=(HelperCard("registry"),))
    plan = load("glm").compile(study)
    held = {"clinic": Table({"x": x, "y": y}), "lab": Table({"crp": (32 + 8 * hidden).clip(0), "w": w})}
    found = tables_of(plan, imagined_pulls(plan.design, held, np.random.default_rng(1)))
    line = next(term for term in found.summary().terms if term.term == "x")
    assert "crp" in found.summary().not_determined
    assert str(found.summary()).startswith("not adjusted for crp")
    assert abs(line.estimate - 0.775) < 4 * line.std_error  # .5 + .5 * .6, less what a normal part that is left out takes
    assert abs(line.estimate - 0.5) > 4 * line.std_error
    assert found.adjusted is not None
