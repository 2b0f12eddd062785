"""Rounds of sines at two parties: bounded by construction, exact under masks, opened round by round, decided before data."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from joint_members import INF, MODEL, people, study_of, world
from joint_world import number, standards
from joint_world import study_of as study_of_columns

from unpooled import PrivateLinearRegression
from unpooled.errors import DataError, PlanMismatch, ProtocolError, StudyAborted, UnpooledError, UsageError
from unpooled.linear.standard import Standard
from unpooled.models.bayes import columns as bayes_columns
from unpooled.models.bayes.columns import Descent, SineDesign, design_of, imagined_sines, strength
from unpooled.models.bayes.estimator import fitted
from unpooled.privacy import noise
from unpooled.privacy.bounds import Column
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Scope, Unit
from unpooled.products import masking, prover
from unpooled.products.design import JointBudget
from unpooled.products.masking import spot_of, spots_of, times, verdict_parts
from unpooled.products.rows import SineRows
from unpooled.products.sines import ANGLE, PRODUCTS, SineShape
from unpooled.products.sums import CONSTANT_STEPS, GRID, JOINT_CONSTANT, ProductShape, RowPart
from unpooled.protocol import messages as shortened
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import Dropped, encode, open_envelope
from unpooled.protocol.transcript import Transcript
from unpooled.schedules import Steps

Rounds = tuple[list[tuple[float, ...]], list[np.ndarray]]


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> int:
    """Three rounds in the place of the planned number."""
    monkeypatch.setattr(bayes_columns, "_ROUNDS", Steps(((0.0, 3.0),)))
    return 3


def a_study(epsilon: float = 1.0, **parameters: Any) -> tuple[Any, Any]:
    """A study by sines over small tables, and the tables."""
    cards, tables = world(2)
    return study_of(cards, epsilon, method="sines", **parameters), tables


def watched(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    """The coefficients and the opened totals of all rounds of the runs that follow."""
    at: list[tuple[float, ...]] = []
    values: list[np.ndarray] = []
    real = Descent.take

    def spy(self: Descent, total: np.ndarray, number: int) -> None:
        at.append(self.at)
        values.append(total.copy())
        real(self, total, number)

    monkeypatch.setattr(Descent, "take", spy)
    return at, values


def exact(design: SineDesign, tables: Any, known: Any, at: tuple[float, ...], number: int = 0) -> list[int]:
    """The pooled sums over persons, one by one with Python's integers: z (sin cos + cos sin), and the sum of sines."""
    coded = [design.rows_at(name, at, number).coded(tables[name], known[name]).astype(object) for name in design.parties]
    sizes = [(part.shape[1] - 2) // 2 for part in coded]
    out = [0] * (sum(sizes) + 1)
    for rows in zip(*coded, strict=True):
        for k, (own, other) in enumerate((rows, rows[::-1])):
            d, cosine, sine = sizes[k], other[-2], other[-1]
            for j in range(d):
                out[j + k * sizes[0]] += own[j] * cosine + own[d + j] * sine
        out[-1] += rows[0][-1] * rows[1][-2] + rows[0][-2] * rows[1][-1]
    return out


def released_standards(design: SineDesign, members: Any, plan: Any) -> dict[str, Standard]:
    """The means and deviations that members released in a run."""
    found = {}
    for name in design.parties:
        keeper = members[name].keeper
        context = type("C", (), {"plan": plan, "name": name, "kept": lambda _, n, k=keeper: k.kept(plan.hash, n)})()
        found[name] = design.standard(context)
    return found


# --- the released integers ---------------------------------------------------------------------------------------------------


@pytest.mark.slow_for("7")
@pytest.mark.parametrize("block", [None, 7])
def test_the_opened_integers_of_every_round_are_the_exact_sums_of_the_pooled_rows(
    block: int | None, monkeypatch: pytest.MonkeyPatch, three: int
) -> None:
    if block:
        monkeypatch.setattr(ProductShape, "block_rows", block)
    study, tables = a_study(INF)
    plan, members, (at, values) = MODEL.compile(study), people(study, tables), watched(monkeypatch)
    drive(MODEL, plan, in_process(members))
    known = released_standards(plan.design, members, plan)
    assert len(values) == three
    assert len(set(at)) == three
    for k, (coefficients, total) in enumerate(zip(at, values, strict=True)):
        assert total.tolist() == exact(plan.design, tables, known, coefficients, k)
    assert (
        plan.design.frequency(0) < plan.design.frequency(1) == bayes_columns.FREQUENCY
    )  # without noise: small angles first


@pytest.mark.guarantee
def test_without_proofs_the_integers_are_the_same(monkeypatch: pytest.MonkeyPatch, three: int) -> None:
    study, tables = a_study(INF, check="none")
    plan, members, (at, values) = MODEL.compile(study), people(study, tables), watched(monkeypatch)
    drive(MODEL, plan, in_process(members))
    known = released_standards(plan.design, members, plan)
    assert plan.design.proofs == 0
    assert [total.tolist() for total in values] == [exact(plan.design, tables, known, b, k) for k, b in enumerate(at)]
    assert "ONLY if all parties follow the protocol" in plan.against


@pytest.mark.guarantee
def test_proofs_take_their_part_of_delta_before_noise_is_calibrated() -> None:
    """At an epsilon of 10 and a delta of 1e-9 the distance of 120 proofs shows: without its charge the plan would cost more than was asked."""
    cards, _ = world(2)
    cards = tuple(msgspec.structs.replace(card, rows=400) for card in cards)
    study = msgspec.structs.replace(study_of(cards, 10.0, method="sines"), delta=1e-9)
    plan = MODEL.compile(study)
    assert plan.design.proofs == 4 * plan.design.shape.rounds == 120
    assert plan.epsilon(1e-9) <= 10.0 * (1 + 1e-9)
    uncharged = dataclasses.replace(plan.design, aggregation=dataclasses.replace(plan.design.aggregation, proofs=0))
    release = uncharged.aggregation.releases(uncharged.totals["joint"], study)[0]
    assert release.mechanism.scale < plan.release("p0", "joint").mechanism.scale
    hopeless = MODEL.compile(
        msgspec.structs.replace(study, epsilon=30.0)
    )  # proofs take more than half of delta: the statement says what is left
    assert hopeless.epsilon(1e-9) > 30.0


def test_the_totals_are_the_exact_ones_plus_the_noise_that_members_drew(monkeypatch: pytest.MonkeyPatch, three: int) -> None:
    drawn: list[np.ndarray] = []
    real = noise.wide_gaussian

    def spy(*given: Any, **more: Any) -> Any:
        drawn.append(real(*given, **more))
        return drawn[-1]

    monkeypatch.setattr(noise, "wide_gaussian", spy)
    study, tables = a_study()
    plan, members, (at, values) = MODEL.compile(study), people(study, tables), watched(monkeypatch)
    drive(MODEL, plan, in_process(members))
    known, blocks = released_standards(plan.design, members, plan), len(plan.design.shape.blocks)
    assert len(drawn) == 3 * three * blocks  # of every member one draw for each block of every round
    for k, (coefficients, total) in enumerate(zip(at, values, strict=True)):
        own = drawn[3 * blocks * k : 3 * blocks * (k + 1)]
        added = sum(np.concatenate(own[j : j + blocks]) for j in range(0, len(own), blocks))
        assert np.abs(added).min() > 0
        assert total.tolist() == (np.array(exact(plan.design, tables, known, coefficients), dtype=object) + added).tolist()


@pytest.mark.guarantee
def test_the_gradient_is_that_of_the_sines_of_residuals() -> None:
    """In real numbers, from the standardised rows: the integers differ by their rounding alone."""
    study, tables = a_study()
    design = MODEL.compile(study).design
    known = {name: design.scales(name).decode(_total(design, name, tables), design.rows) for name in design.parties}
    rng = np.random.default_rng(1)
    at = tuple(rng.normal(size=design.columns + 1).tolist())
    z, v = [], 0.0
    for name in design.parties:
        rows = bayes_columns._standardised(design, name, tables[name], known[name])
        z.append(rows[0] / GRID)
        v = v + rows[1]
    whole = np.column_stack([*z, np.full(design.rows, JOINT_CONSTANT)])
    expected = whole.T @ np.sin(bayes_columns.FREQUENCY * (v - whole @ np.array(at)))
    found = np.array(exact(design, tables, known, at), dtype=float) / GRID**2
    found[-1] *= JOINT_CONSTANT
    assert np.abs(found - expected).max() < 8 * design.rows / GRID
    assert np.abs(expected).max() > 1


def _total(design: SineDesign, name: str, tables: Any) -> Any:
    from unpooled.totals.total import Total

    values = design.scales(name).statistic(tables[name]).astype(float)
    return Total(values, np.zeros(values.size), (name,))


def test_what_outlooks_add_up_is_what_masked_products_give() -> None:
    study, tables = a_study()
    design = MODEL.compile(study).design
    known = {name: design.scales(name).decode(_total(design, name, tables), design.rows) for name in design.parties}
    at = tuple(np.random.default_rng(2).normal(size=design.columns + 1).tolist())
    parts = [design.rows_at(name, at, 0).coded(tables[name], known[name]) for name in design.parties]
    whole = np.column_stack(parts)
    one, other = design.shape.terms
    products = whole.T @ whole
    found = bayes_columns._added_up(*(part.astype(float) for part in parts))
    assert found.tolist() == (products[one] + products[other]).tolist() == exact(design, tables, known, at)


# --- sensitivity (Theorem J.12) ------------------------------------------------------------------------------------------------


def rows_of(columns: int, square: int, *, holds: bool, at: tuple[float, ...]) -> SineRows:
    """A party's coding with rows of any length, no study around it."""
    from unpooled.linear.layout import MomentsLayout

    layout = MomentsLayout(tuple(number(f"x{j}") for j in range(columns)), number("y"), 1 << 20)
    slopes, constant = np.array(at[:columns]), at[-1]
    part = RowPart("a", columns, square)
    return SineRows(layout, part, math.isqrt(square), 0, float(holds), slopes, constant, bayes_columns.FREQUENCY)


def turned(rng: np.random.Generator, columns: int, square: int, many: int, *, long: float = 1.0) -> np.ndarray:
    """The parts of persons whose columns are at the corners and on the surface of the ball, at many coefficients."""
    z = rng.normal(size=(many, columns))
    corners = np.array(list(itertools.islice(itertools.cycle(itertools.product((-1, 0, 1), repeat=columns)), many // 2)))
    z[: len(corners)] = corners
    length = np.maximum(np.linalg.norm(z, axis=1), 1e-9)
    z = np.trunc(z / length[:, None] * math.sqrt(square) * long).astype(np.int64)
    at = (*rng.normal(size=columns).tolist(), float(rng.normal()))
    return rows_of(columns, square, holds=True, at=at).turned(z, rng.normal(size=many) * 3)


def gradient(shape: SineShape, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """What persons with these parts add to the released integers, in the units of the noise."""
    whole = np.column_stack([first, second]).astype(float)
    one, other = shape.terms
    added = whole[:, one[0]] * whole[:, one[1]] + whole[:, other[0]] * whole[:, other[1]]
    width = np.concatenate([np.full(block.size, block.width) for block in shape.blocks])
    return added / width


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(
    ("columns", "squares"), [((1, 1), (900, 400)), ((2, 3), (5000, 1700)), ((3, 2), (GRID**2, 9 * GRID**2))]
)
def test_a_person_moves_a_round_by_no_more_than_planned(
    columns: tuple[int, int], squares: tuple[int, int], adjacency: Adjacency
) -> None:
    """Brute force over persons at the corners of both parties; honest ones, and one at a liar with any short parts."""
    rng = np.random.default_rng(2)
    shape = SineShape.of({"a": (columns[0], squares[0]), "b": (columns[1], squares[1])}, 10, 1)
    bound = shape.distance(adjacency)

    def farthest(added: np.ndarray) -> float:
        if adjacency is Adjacency.ZERO_OUT:
            return float(np.sqrt((added * added).sum(axis=1)).max())
        gram = added @ added.T
        own = gram.diagonal()
        return math.sqrt((own[:, None] + own - 2 * gram).max())

    honest = lied = 0.0
    for _ in range(40):
        first, second = (turned(rng, d, square, 400) for d, square in zip(columns, squares, strict=True))
        for part, square in ((first, squares[0]), (second, squares[1])):
            assert (part[:, :-2] ** 2).sum(axis=1).max() <= square  # pairs rounded toward zero are no longer
            assert (part[:, -2:] ** 2).sum(axis=1).max() <= GRID**2
        honest = max(honest, farthest(gradient(shape, first, second)))
        liar = short_parts(rng, columns[1], squares[1], 400)
        lied = max(lied, farthest(gradient(shape, first, np.repeat(liar[:1], 400, axis=0))))
    assert 0.8 * bound < honest <= bound
    assert 0.8 * bound < lied <= bound


def short_parts(rng: np.random.Generator, columns: int, square: int, many: int, *, together: bool = False) -> np.ndarray:
    """Any parts that proofs admit, of full length; ``together``: if one proof were about both parts of a row."""
    z, pair = rng.normal(size=(many, 2 * columns)), rng.normal(size=(many, 2))
    z /= np.linalg.norm(z, axis=1)[:, None]
    pair /= np.linalg.norm(pair, axis=1)[:, None]
    if together:
        return np.column_stack([0 * z, pair * math.sqrt(square + GRID**2)]).astype(np.int64)
    return np.column_stack([z * math.sqrt(square), pair * GRID]).astype(np.int64)


def test_broken_on_purpose_a_person_moves_farther() -> None:
    """The controls: a row that is not shortened, pairs rounded away from zero, one proof for both parts, the sum of sines with the noise of a column."""
    rng = np.random.default_rng(3)
    square = 900
    shape = SineShape.of({"a": (1, square), "b": (1, square)}, 10, 1)
    bound = shape.distance(Adjacency.ZERO_OUT)

    def most(first: np.ndarray, second: np.ndarray, shape: SineShape = shape) -> float:
        return float(np.linalg.norm(gradient(shape, first, second), axis=1).max())

    short = turned(rng, 1, square, 4000)
    longer = rows_of(1, 9 * square, holds=True, at=(0.3, 0.1)).turned(np.full((4000, 1), 90), rng.normal(size=4000) * 3)
    assert most(longer, short) > bound
    z = np.full((4000, 1), 30)
    angle = rng.normal(size=4000) * 3
    away = np.ceil(np.abs(np.column_stack([z * np.sin(angle)[:, None], z * np.cos(angle)[:, None]])))
    assert (away * away).sum(axis=1).max() > square
    long = SineShape.of({"a": (1, 4 * GRID**2), "b": (1, 4 * GRID**2)}, 10, 1)
    honest, liar = turned(rng, 1, 4 * GRID**2, 4000), short_parts(rng, 1, 4 * GRID**2, 4000, together=True)
    assert most(honest, liar, long) > 1.5 * long.distance(Adjacency.ZERO_OUT)
    small = SineShape.of({"a": (1, 1), "b": (1, 1)}, 10, 1)
    sum_of_sines = gradient(small, turned(rng, 1, 1, 4000), turned(rng, 1, 1, 4000))[:, -1] / JOINT_CONSTANT
    assert np.abs(sum_of_sines).max() > small.distance(Adjacency.ZERO_OUT)


def test_the_plan_has_the_sensitivity_of_the_theorem() -> None:
    study, _ = a_study()
    for adjacency, times_ in ((Adjacency.REPLACE, 2), (Adjacency.ZERO_OUT, 1)):
        plan = MODEL.compile(msgspec.structs.replace(study, adjacency=str(adjacency)))
        shape, limits = plan.design.shape, plan.design.limits
        length = math.sqrt(sum(limit**2 for limit in limits.columns) + CONSTANT_STEPS**2)
        assert plan.release("p0", "joint").sensitivity() == pytest.approx(times_ * GRID * length)
        assert plan.release("p0", "joint").sensitivity("attribute") == pytest.approx(2 * GRID * length)
        assert shape.blocks[-1].width == 1 / JOINT_CONSTANT
    assert [part.name for part in shape.parts] == [PRODUCTS, ANGLE] * 2
    assert limits.columns[0] == round(0.7 * (math.sqrt(2) + 0.5 / math.sqrt(2)) * GRID)  # k is below 12


def test_one_value_moves_a_round_farther_than_a_person_who_goes() -> None:
    """Another response turns the sign of a person's whole part: twice its length, whatever the adjacency of persons is."""
    square = 4 * GRID**2
    shape = SineShape.of({"a": (1, square), "b": (1, square)}, 10, 1)
    z = np.full((2, 1), 2 * GRID)
    still = rows_of(1, square, holds=False, at=(0.0, 0.0)).turned(z, np.zeros(2))
    quarter = math.pi / 2 / bayes_columns.FREQUENCY
    moved = rows_of(1, square, holds=True, at=(0.0, 0.0)).turned(z, np.array([quarter, -quarter]))
    added = gradient(shape, still, moved)
    distance = float(np.linalg.norm(added[0] - added[1]))
    assert 1.9 * shape.distance(Adjacency.ZERO_OUT) < distance <= shape.distance(Adjacency.REPLACE)


@pytest.mark.parametrize("where", ["products", "angle"])
def test_arithmetic_that_fails_counts_as_no_row(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sine of 2 would lengthen a row: the length is checked on the integers."""
    rows = rows_of(2, 5000, holds=True, at=(0.5, 0.5, 0.0))
    z = np.array([[50, 49], [1, 1]])
    monkeypatch.setattr(np, "sin", lambda x: np.full(x.shape, 2.0 if where == "products" else 1.001))
    found = rows.turned(z, np.zeros(2))
    assert (found[:, :-2] ** 2).sum(axis=1).max() <= 5000
    assert (found[:, -2:] ** 2).sum(axis=1).max() <= GRID**2
    assert not found[0, -2:].any()


@pytest.mark.guarantee
def test_a_person_who_is_left_out_adds_nothing() -> None:
    study, tables = a_study()
    design = MODEL.compile(study).design
    rows = design.rows_at("p0", [0.1] * (design.columns + 1), 0)
    known = Standard(np.zeros(2), np.ones(2), 0.0, (1.0, 0.0))
    whole = rows.coded(tables["p0"], known)
    assert whole[:, -2:].any(axis=1).all()
    found = rows.block(tables["p0"].omit(3), known, 0, 40, 40)
    assert not found[3].any()
    np.testing.assert_array_equal(np.delete(found, 3, axis=0), np.delete(whole, 3, axis=0))


# --- the protocol ------------------------------------------------------------------------------------------------------------


def test_a_transcript_gives_the_same_bits_again_and_every_member_the_same_replies(three: int) -> None:
    study, tables = a_study()
    plan, record = MODEL.compile(study), Transcript()
    first = drive(MODEL, plan, in_process(people(study, tables)), record).result
    assert first.method == "sines"
    assert first.moments is None
    assert drive(MODEL, plan, in_process({}), record.replay()).result == first
    again = Transcript()
    drive(MODEL, plan, in_process(people(study, tables)), again)
    assert [entry.reply for entry in again.entries] == [entry.reply for entry in record.entries]
    steps = [open_envelope(entry.request).step for entry in record.entries]
    assert steps.count("joint-mask") == 4 * three
    assert steps.count("joint-verdict") == 2 * three
    assert steps.count("joint-fragment") == 3 * three
    for number_ in range(three):  # everything is proven before anybody gives a share of the round
        begun = [open_envelope(e.request) for e in record.entries]
        judged = [k for k, e in enumerate(begun) if e.step == "joint-judge" and e.index // 4 == number_]
        shared = [k for k, e in enumerate(begun) if e.step == "joint-fragment" and e.index == number_]
        assert max(judged) < min(shared)


def test_every_party_debits_all_rounds_and_the_helper_nothing(three: int) -> None:
    study, tables = a_study()
    members, plan = people(study, tables), MODEL.compile(study)
    drive(MODEL, plan, in_process(members))
    for name, party in members.items():
        spent = party.ledger.composition(Unit.RECORD, Scope.PERSON).epsilon(study.delta)
        assert spent == pytest.approx(0.0 if name == "helper" else plan.epsilon(study.delta))
    assert plan.epsilon(study.delta) == pytest.approx(1.0, abs=1e-6)
    release = plan.release("p1", "joint")
    assert release.count == release.exposure.together == three
    assert release.mechanism.distance == 4 * 2.0**-64  # of the four proofs of a round


def test_nothing_random_serves_two_rounds_or_two_parts(monkeypatch: pytest.MonkeyPatch, three: int) -> None:
    """Rows are made equal in all rounds: seeds of masks, of proofs, blinds and coins are all different even so."""
    monkeypatch.setattr(Descent, "at", property(lambda self: (0.0,) * (self._design.columns + 1)))
    seeds: list[Any] = []
    coins: list[bytes] = []
    real, first = prover.seeds_of, prover.coins.first_coin

    def seeds_of(*given: Any) -> Any:
        seeds.append(real(*given))
        return seeds[-1]

    def first_coin(*given: Any) -> bytes:
        coins.append(first(*given))
        return coins[-1]

    monkeypatch.setattr(prover, "seeds_of", seeds_of)
    monkeypatch.setattr(prover.coins, "first_coin", first_coin)
    study, tables = a_study()
    members, plan = people(study, tables), MODEL.compile(study)
    drive(MODEL, plan, in_process(members))
    proofs = 4 * three
    for field in ("shares", "third", "blind"):
        assert len({getattr(one, field) for one in seeds}) == len(seeds) == proofs
    assert len(set(coins)) == proofs
    kept = [
        values.tobytes() for name in ("p0", "p1") for (_, key), values in members[name].keeper.items() if "joint_own" in key
    ]
    assert len(set(kept)) == len(kept) == proofs
    places = {spot.place() for k in range(three) for spot in spots_of(plan.design, k)}
    assert len(places) == proofs
    assert len({verdict_parts(plan, k, ("00" * 32,)) for k in range(three)}) == three


@pytest.mark.guarantee
def test_a_message_of_another_round_or_part_is_refused(three: int) -> None:
    from unpooled.products.masking import EvaluateRequest, JudgeRequest, ShareRequest

    study, tables = a_study()
    plan, record = MODEL.compile(study), Transcript()
    drive(MODEL, plan, in_process(people(study, tables)), record)
    members, asked = people(study, tables), {}
    for entry in record.entries:
        envelope = open_envelope(entry.request)
        asked[envelope.step, envelope.index, entry.to] = envelope
        if envelope.step == "joint-evaluate" and envelope.index in {
            1,
            4,
        }:  # the same direction: its other part, its next round
            body = msgspec.msgpack.decode(envelope.body, type=EvaluateRequest)
            earlier = asked["joint-evaluate", 0, "helper"]
            theirs = msgspec.msgpack.decode(earlier.body, type=EvaluateRequest)
            wrong = msgspec.structs.replace(body, seeds=theirs.seeds)
            with pytest.raises(ProtocolError, match="another place"):
                members["helper"].answer(encode(envelope.plan, envelope.step, envelope.index, wrong))
        if envelope.step == "joint-judge" and envelope.index in {1, 4}:
            body = msgspec.msgpack.decode(envelope.body, type=JudgeRequest)
            theirs = msgspec.msgpack.decode(asked["joint-judge", 0, entry.to].body, type=JudgeRequest)
            for part in ("rows", "proof", "evaluation"):
                with pytest.raises(ProtocolError, match="another place"):
                    wrong = msgspec.structs.replace(body, **{part: getattr(theirs, part)})
                    members[entry.to].answer(encode(envelope.plan, envelope.step, envelope.index, wrong))
        if envelope.step == "joint-fragment" and envelope.index == 1:  # verdicts and digests of the round before
            body = msgspec.msgpack.decode(envelope.body, type=ShareRequest)
            theirs = msgspec.msgpack.decode(asked["joint-fragment", 0, entry.to].body, type=ShareRequest)
            for fields in ({"verdicts": theirs.verdicts}, {"digests": theirs.digests, "verdicts": theirs.verdicts}):
                with pytest.raises(ProtocolError):
                    wrong = msgspec.structs.replace(body, **fields)
                    members[entry.to].answer(encode(envelope.plan, envelope.step, envelope.index, wrong))
        assert members[entry.to].answer(entry.request) == entry.reply


@pytest.mark.parametrize("wrong", [(), (math.nan,) * 7, (math.inf,) * 7, (1e300,) * 7, (0.0,) * 8])
def test_coefficients_are_finite_numbers_one_for_each_column_and_the_constant(wrong: tuple[float, ...], three: int) -> None:
    members, envelope, body, kind = before_the_first_block()
    with pytest.raises(ProtocolError, match="coefficients of a round"):
        members["p0"].answer(encode(envelope.plan, envelope.step, 0, msgspec.structs.replace(body, at=wrong)))
    members["p0"].answer(encode(envelope.plan, envelope.step, 0, body))
    assert kind is type(body)


@pytest.mark.guarantee
def test_second_moments_take_no_coefficients() -> None:
    members, envelope, body, _ = before_the_first_block("moments")
    with pytest.raises(ProtocolError, match="coefficients of a round"):
        members["p0"].answer(encode(envelope.plan, envelope.step, 0, msgspec.structs.replace(body, at=(0.0,))))


@pytest.mark.guarantee
def test_one_round_has_one_set_of_coefficients(three: int) -> None:
    members, envelope, body, _ = before_the_first_block()
    members["p0"].answer(encode(envelope.plan, envelope.step, 0, body))
    other = msgspec.structs.replace(body, at=(0.5, *body.at[1:]))
    with pytest.raises(ProtocolError, match="the first one counts"):
        members["p0"].answer(encode(envelope.plan, envelope.step, 1, other))  # the other part of the same round
    members["p0"].answer(encode(envelope.plan, envelope.step, 4, other))  # the next round has its own


def before_the_first_block(method: str = "sines") -> tuple[Any, Any, Any, Any]:
    """Members that were asked everything before the first block; the request for it."""
    from unpooled.products.masking import MaskRequest

    cards, tables = world(2)
    study = study_of(cards, method=method)
    record = Transcript()
    drive(MODEL, MODEL.compile(study), in_process(people(study, tables)), record)
    members = people(study, tables)
    for entry in record.entries:
        envelope = open_envelope(entry.request)
        if envelope.step == "joint-mask":
            body = msgspec.msgpack.decode(envelope.body, type=MaskRequest)
            return members, envelope, body, MaskRequest
        members[entry.to].answer(entry.request)
    raise AssertionError


@pytest.mark.guarantee
def test_data_that_change_between_two_blocks_are_refused(three: int) -> None:
    members, envelope, body, _ = before_the_first_block()
    members["p0"].answer(encode(envelope.plan, envelope.step, 0, body))
    table = members["p0"].table
    other = Table({name: table[name] * 0.5 for name in table.names})
    object.__setattr__(members["p0"], "table", other)
    with pytest.raises(DataError, match="have changed since their rows were masked"):
        members["p0"].answer(encode(envelope.plan, envelope.step, 1, body))


@pytest.mark.guarantee
def test_a_request_beyond_the_last_round_is_refused(three: int) -> None:
    members, envelope, body, _ = before_the_first_block()
    with pytest.raises(PlanMismatch, match="is planned 12 times"):
        members["p0"].answer(encode(envelope.plan, envelope.step, 12, body))
    plan = MODEL.compile(a_study()[0])
    assert times(plan) == 12
    context = type("C", (), {"design": plan.design, "index": 9, "name": "p0"})()
    with pytest.raises(PlanMismatch, match="not the receiver"):
        spot_of(context, "receiver")
    assert spot_of(context, "sender").round == 2
    assert spot_of(context, "sender").part.name == ANGLE


@pytest.mark.parametrize(
    "step", ["joint-mask", "joint-evaluate", "joint-judge", "joint-verdict", "joint-fragment", "joint-total"]
)
def test_a_member_that_leaves_within_the_second_round_can_come_back(step: str, three: int) -> None:
    study, tables = a_study()
    members, plan, record = people(study, tables), MODEL.compile(study), Transcript()
    honest, gone = in_process(members), "helper" if step in {"joint-evaluate", "joint-total"} else "p1"
    first = {"joint-mask": 4, "joint-evaluate": 4, "joint-judge": 4}.get(step, 1)

    def exchange(batch: list[Any]) -> list[Any]:
        left = [a.to == gone and a.step == step and a.index >= first for a, _ in batch]
        return [Dropped(gone, "gone") if out else honest([asked])[0] for out, asked in zip(left, batch, strict=True)]

    with pytest.raises(StudyAborted, match=gone):
        drive(MODEL, plan, exchange, record)
    opened = [e for e in record.entries if open_envelope(e.request).step == "joint-total" and e.reply]
    assert {open_envelope(e.request).index for e in opened} <= {0, 1}
    result = drive(MODEL, plan, honest, record.replay()).result
    assert result == drive(MODEL, plan, in_process(people(study, tables))).result
    for name in ("p0", "p1"):
        spent = members[name].ledger.composition(Unit.RECORD, Scope.PERSON).epsilon(study.delta)
        assert spent == pytest.approx(plan.epsilon(study.delta))


@pytest.mark.long
@pytest.mark.slow
def test_a_run_that_was_cut_within_a_round_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut after every message of two rounds: the result, the debits and what travelled are those of a run without a cut."""
    monkeypatch.setattr(shortened, "_LONGEST", 64)
    monkeypatch.setattr(bayes_columns, "_ROUNDS", Steps(((0.0, 2.0),)))
    study, tables = a_study()
    plan, calm_record = MODEL.compile(study), Transcript.open(tmp_path / "calm")
    calm = drive(MODEL, plan, in_process(people(study, tables)), calm_record)
    entries = calm_record.entries
    calm_record.close()
    for cut in range(0, len(entries), 3):
        members, path, left = people(study, tables), tmp_path / f"cut{cut}", [cut]

        def exchange(batch: list[Any], members: Any = members, left: list[int] = left) -> list[Any]:
            answers = []
            for ask, request in batch:
                if left[0] <= 0:
                    raise ConnectionError("cut")
                answers.append(members[ask.to].answer(request))
                left[0] -= 1
            return answers

        record = Transcript.open(path)
        with pytest.raises(ConnectionError):
            drive(MODEL, plan, exchange, record)
        record.close()
        record = Transcript.open(path)
        assert drive(MODEL, plan, in_process(members), record) == calm
        assert [entry.reply for entry in record.entries] == [entry.reply for entry in entries]
        spent = members["p0"].ledger.composition(Unit.RECORD, Scope.PERSON).epsilon(study.delta)
        assert spent == pytest.approx(plan.epsilon(study.delta))
        record.close()


@pytest.mark.parametrize("part", [PRODUCTS, ANGLE])
def test_a_party_whose_part_is_too_long_is_caught_in_its_round(
    part: str, monkeypatch: pytest.MonkeyPatch, three: int
) -> None:
    """A liar masks 2^36 in one row of one part of the second round, and proves another row."""
    study, tables = a_study(INF)
    members = people(study, tables)
    real, prove, block = masking.mask, masking.prove, SineDesign.block

    def evil(context: Any, request: Any) -> Any:
        spot = spot_of(context, "sender")
        if (context.name, spot.round, spot.part.name) != ("p0", 1, part):
            return real(context, request)

        def long(self: Any, context: Any, spot: Any) -> Any:
            found = block(self, context, spot).copy()
            found[5, 0] = 1 << 36
            return found

        fair = np.zeros((40, spot.part.columns), dtype=np.int64)
        with monkeypatch.context() as patch:
            patch.setattr(SineDesign, "block", long)
            patch.setattr(masking, "prove", lambda place, shape, rows, *rest: prove(place, shape, fair, *rest))
            return real(context, request)

    steps = tuple(dataclasses.replace(step, answer=evil) if step.name == "joint-mask" else step for step in MODEL.steps)
    model = dataclasses.replace(MODEL, steps=steps)
    for party in members.values():
        object.__setattr__(party, "model", lambda _: model)
    record = Transcript()
    with pytest.raises(StudyAborted, match="was not accepted"):
        drive(model, MODEL.compile(study), in_process(members), record)
    asked = [open_envelope(e.request) for e in record.entries]
    assert {e.index for e in asked if e.step == "joint-fragment"} == {0}


# --- the decision ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1000, 40_000])
@pytest.mark.parametrize("parties", [2, 3])
def test_the_method_is_decided_by_the_parties_and_k_before_data(rows: int, parties: int) -> None:
    cards, _ = world(parties)
    cards = tuple(msgspec.structs.replace(card, rows=rows) for card in cards)
    design = design_of(study_of(cards, method="auto"))
    k = strength(len(design.layout.coding.attribute), rows, JointBudget.of(study_of(cards), parties + 1))
    assert isinstance(design, SineDesign) == (parties == 2 and k < bayes_columns.WORTH_MOMENTS)
    assert (k < bayes_columns.WORTH_MOMENTS) == (rows == 1000)
    assert not isinstance(design_of(study_of(cards, method="moments")), SineDesign)
    assert not isinstance(design_of(study_of(cards, INF, method="auto")), SineDesign)


def test_sines_need_two_parties() -> None:
    with pytest.raises(
        UsageError, match=r'method = "sines" needs two parties, and this study has 3: use method = "moments"'
    ):
        MODEL.compile(study_of(world(3)[0], method="sines"))


def test_a_total_that_may_leave_the_range_of_the_sum_is_refused() -> None:
    good = {"a": [number("u")], "b": [number("v"), number("y")]}
    with pytest.raises(UsageError, match="may not fit"):
        design_of(study_of_columns(good, 10**8, 1e-3, split="columns", method="sines"), JointBudget(1e-12))


def test_the_plan_says_what_it_does() -> None:
    study, _ = a_study()
    said = str(MODEL.compile(study))
    assert "rounds of gradients of 6 columns of p0, p1, for predictions without standard errors" in said
    assert "constants of standardising take 15% of the squared budget, rounds 85%" in said


# --- the fit -----------------------------------------------------------------------------------------------------------------


def made_up(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns, response and coefficients."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4)).clip(-3.5, 3.5)
    beta = np.array([0.6, -0.4, 0.3, 0.2])
    return x, (x @ beta + 0.5 + 0.5 * rng.normal(size=n)).clip(-6, 6), beta


def estimator(**more: Any) -> PrivateLinearRegression:
    """An estimator by sines."""
    given = {"epsilon": 3.0, "delta": 1e-5, "bounds": (-4, 4), "y_bounds": (-6, 6), "random_state": 0, "method": "sines"}
    return PrivateLinearRegression(**{**given, **more})


@pytest.mark.long_for("held0", "held1")
@pytest.mark.slow
@pytest.mark.parametrize("held", [{"west": [2, 0], "east": [1, 3]}, {"west": [], "east": [3, 2, 1, 0]}])
def test_coefficients_come_in_the_order_of_the_data_whoever_holds_the_columns(held: dict[str, list[int]]) -> None:
    x, y, beta = made_up(3000)
    model = estimator(parties=held, response_at="west").fit(x, y)
    assert model.method_ == "sines"
    assert np.abs(model.coef_ - beta).max() < 0.12
    assert abs(model.intercept_ - 0.5) < 0.12
    assert np.isnan(model.covariance_).all()
    assert np.isnan(model.noise_variance_)
    assert not hasattr(model, "moments_")
    assert np.corrcoef(model.predict(x), y)[0, 1] > 0.8


def test_a_finished_study_is_an_estimator_that_predicts() -> None:
    study, tables = a_study()
    plan = MODEL.compile(study)
    result = drive(MODEL, plan, in_process(people(study, tables))).result
    model = fitted(plan, result)
    assert model.method_ == model.method == "sines"
    assert model.coef_.tolist() == [c.value for c in result.coefficients]
    rows = {name: table[name] for table in tables.values() for name in table.names if name != "y"}
    coded = np.column_stack([rows["a0"], rows["b0"], rows["a1"], rows["b1"], rows["c1"] == "u", rows["c1"] == "v"])
    expected = coded.astype(float) @ model.coef_ + model.intercept_
    np.testing.assert_allclose(model.predict(pl.DataFrame(rows)), expected)
    assert "'moments' gives them" in MODEL.reading.foot(plan, result)[0]
    assert [c.low for c in result.coefficients] == [None] * 6


@pytest.mark.long
@pytest.mark.slow
def test_without_errors_tables_are_refused_in_the_words_of_other_rounds() -> None:
    x, y, _ = made_up(400)
    by_sines = estimator(parties=2).fit(x, y)
    by_rounds = PrivateLinearRegression(
        epsilon=1.0, delta=1e-5, bounds=(-4, 4), y_bounds=(-6, 6), random_state=0, method="gradient"
    ).fit(x, y)
    for ask in ("summary", "anova", "ols"):
        said = []
        for model in (by_sines, by_rounds):
            with pytest.raises(UnpooledError) as refusal:
                getattr(model, ask)()
            said.append(str(refusal.value).replace("sines", "gradient").replace("'refinement' or ", ""))
        assert said[0] == said[1]  # of columns the moments alone have standard errors
    assert np.isnan(by_sines.credible_interval()).all()


@pytest.mark.long
@pytest.mark.slow
def test_an_estimator_that_decides_takes_the_moments_where_they_are_worth_it() -> None:
    x, y, _ = made_up(400)
    assert estimator(parties=2, method="auto").fit(x, y).method_ == "sines"
    assert estimator(parties=2, method="auto", epsilon=math.inf).fit(x, y).method_ == "joint moments"
    assert estimator(parties=3, method="auto").fit(x, y).method_ == "joint moments"


@pytest.mark.guarantee
def test_rounds_without_noise_arrive_at_least_squares() -> None:
    x, y, _ = made_up(2000)
    columns = [number(f"x{j}") for j in range(4)]
    study = study_of_columns(
        {"a": columns[:2], "b": [*columns[2:], Column("y", -6.0, 6.0)]}, 2000, math.inf, split="columns", method="sines"
    )
    design = design_of(study, JointBudget(math.inf))
    tables = {"a": Table({"x0": x[:, 0], "x1": x[:, 1]}), "b": Table({"x2": x[:, 2], "x3": x[:, 3], "y": y})}
    assert standards(design, tables).keys() == tables.keys()
    fit = imagined_sines(design, tables, np.random.default_rng(0))
    own = np.linalg.lstsq(np.column_stack([x, np.ones(2000)]), y, rcond=None)[0]
    assert np.abs(fit.coef_ - own[:-1]).max() < 0.04
    assert abs(fit.intercept_ - own[-1]) < 0.04


@pytest.mark.parametrize("early", [True, False])
def test_small_angles_first_find_a_rare_level_with_a_large_effect(early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: with the large angle from the first round on, rows three deviations off pull the wrong way."""
    if not early:
        monkeypatch.setattr(bayes_columns, "_EARLY", bayes_columns.FREQUENCY)
    rng = np.random.default_rng(5)
    n = 4000
    rare, x = (rng.random(n) < 0.05).astype(float), rng.normal(size=(n, 3)).clip(-4, 4)
    y = (-3.2 * rare + x @ [0.5, 0.3, 0.2] + 0.3 * rng.normal(size=n)).clip(-6, 6)
    columns = {"rare": Column("rare", 0.0, 1.0), **{f"x{j}": number(f"x{j}") for j in range(3)}, "y": number("y", -6.0, 6.0)}
    split = {"a": ("rare", "x0"), "b": ("x1", "x2", "y")}
    parties = {name: [columns[c] for c in own] for name, own in split.items()}
    design = design_of(study_of_columns(parties, n, split="columns", method="sines"), JointBudget(1.0))
    values = {"rare": rare, **{f"x{j}": x[:, j] for j in range(3)}, "y": y}
    tables = {name: Table({c: values[c] for c in own}) for name, own in split.items()}
    found = imagined_sines(design, tables, np.random.default_rng(0)).coef_[0]
    assert (abs(found + 3.2) < 1.0) == early, found


@pytest.mark.long
@pytest.mark.slow
def test_the_outlook_plays_the_method_of_the_study() -> None:
    from unpooled.models.bayes.outlook import outlook

    cards, _ = world(2)
    cards = tuple(msgspec.structs.replace(card, rows=1000) for card in cards)
    by_sines, by_moments = (outlook(study_of(cards, method=method), quick=True) for method in ("auto", "moments"))
    assert (by_sines.model, by_moments.model) == ("bayes (sines)", "bayes (joint moments)")
    ours, theirs = (next(p for p in one.points if p.epsilon == 1.0) for one in (by_sines, by_moments))
    assert ours.error < theirs.error
