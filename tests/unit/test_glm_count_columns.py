"""Poisson regression of columns at a clinic and a registry: exact under masks, the root without noise, exposure and offset, what is refused, Python and files."""

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

import unpooled
from unpooled import Bounds, PrivateGLM
from unpooled.errors import PlanMismatch, ProtocolError, StudyAborted, UsageError
from unpooled.linear.standard import CONSTANT, Standard
from unpooled.models import load
from unpooled.models.glm.columns import PULLS, design_of
from unpooled.models.glm.columns_fit import PullFit, added_up, imagined_pulls
from unpooled.models.glm.counts import LENGTH, CountRows, CountWeights, TypedCounts
from unpooled.models.glm.estimator import fitted
from unpooled.models.glm.outlook import outlook
from unpooled.models.glm.result import tables as tables_of
from unpooled.models.glm.split import STEPS
from unpooled.privacy import noise
from unpooled.privacy.bounds import Column
from unpooled.privacy.masks import derived
from unpooled.privacy.noise import Stream
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import NoRows, Table
from unpooled.privacy.unit import Adjacency
from unpooled.products.sines import ANGLE, PRODUCTS
from unpooled.products.sums import ProductShape
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.transcript import Transcript

MODEL, INF = load("glm"), math.inf
ARMS = ("placebo", "low", "high")
CLINIC = (Column("arm", categories=ARMS), Column("age", -4.0, 4.0), Column("falls", 0.0, 40.0))
SHIFTS = (Column("days", 0.2, 5.0), Column("known", -0.5, 0.5))
REGISTRY = (Column("marker", -5.0, 5.0), Column("blood", categories=("a", "b")), Column("iron", -4.0, 4.0))
#: Log rate ratios of the lines of a table.
TRUE = {"arm: low - placebo": -0.5, "arm: high - placebo": 0.4, "age": 0.2, "marker": -0.3, "blood: b - a": 0.3, "iron": 0.0}


def world(n: int, seed: int = 0, level: float = 0.2, strength: float = 1.0) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of both parties by column; exposure goes with age."""
    rng = np.random.default_rng(seed)
    arm, blood = rng.choice(3, n, p=[0.6, 0.3, 0.1]), rng.choice(2, n)
    age, iron = rng.normal(size=(2, n)).clip(-4, 4)
    marker = (0.5 * age + rng.normal(size=n)).clip(-5, 5)
    days, known = np.exp(0.3 * age + rng.normal(size=n) / 2).clip(0.2, 5), rng.uniform(-0.5, 0.5, n)
    u = strength * (np.array([0.0, -0.5, 0.4])[arm] + 0.2 * age - 0.3 * marker + 0.3 * blood) + level
    plain, shifted = rng.poisson(np.exp(u)), rng.poisson(np.exp(u + known) * days)
    clinic = {"arm": np.array(ARMS, dtype=object)[arm], "age": age, "falls": plain.clip(0, 40).astype(float)}
    clinic |= {"days": days, "known": known, "shifted": shifted.clip(0, 40).astype(float)}
    return clinic, {"marker": marker, "blood": np.array(["a", "b"], dtype=object)[blood], "iron": iron}


def a_study(
    n: int = 60, epsilon: float = 3.0, *, swapped: bool = False, shifted: bool = False, seed: int = 0, **asked: Any
) -> tuple[Study, dict[str, Any]]:
    """A study of both parties and a helper, and the tables of all members."""
    clinic, registry = world(n, seed)
    if shifted:
        clinic["falls"] = clinic["shifted"]
    cards = [Card("clinic", n, (*CLINIC, *SHIFTS) if shifted else CLINIC), Card("registry", n, REGISTRY)]
    given = {"response": "falls", "split": "columns", "family": "poisson"} | asked
    given |= {"exposure": "days", "offset": "known"} if shifted else {}
    study = Study(
        "glm",
        tuple(cards[::-1] if swapped else cards),
        epsilon,
        1e-6,
        parameters=given,
        derived=(),
        helpers=(HelperCard("helper"),),
        simulation_seed=3,
    )
    held = {column.name: clinic[column.name] for card in cards[:1] for column in card.columns}
    return study, {"clinic": Table(held), "registry": Table(registry), "helper": NoRows()}


def pooled(design: Any, members: Any, plan: Any, tables: Any, at: tuple[float, ...], number: int) -> list[int]:
    """What the people of all tables add to a round, one by one with Python's integers, from the parts that their parties round."""
    known, parts = standards_of(design, members, plan), {}
    for part in design.pulls.parts:
        rows = design.pull_rows(part.party, at, part)
        keys = members[part.party].keys_for(plan.study)
        coins = Stream(derived(keys.root, "coins", plan.hash, part.party, "rounding", number, part.name))
        real = rows.coded(tables[part.party], known.get(part.party, Standard.declared())).astype(float)
        parts[part.party, part.name] = rows.part_of(real, coins, 0).astype(object)
    found, (one, other) = [], design.parties
    for party, across in ((one, other), (other, one)):
        if (party, PRODUCTS) in parts:
            rows, pair = parts[party, PRODUCTS], parts[across, ANGLE]
            own = rows.shape[1] // 2
            found += [int((rows[:, k] * pair[:, 0] + rows[:, own + k] * pair[:, 1]).sum()) for k in range(own)]
    one, other = (parts[party, ANGLE] for party in design.parties)
    return [*found, int((one[:, 1] * other[:, 0] + one[:, 0] * other[:, 1]).sum())]


# --- the released integers ---------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize(("swapped", "shifted"), [(False, True), (True, False)])
def test_the_opened_integers_of_every_round_are_the_exact_sums_of_the_pooled_rows(
    swapped: bool, shifted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProductShape, "block_rows", 16)
    study, tables = a_study(30, INF, swapped=swapped, shifted=shifted)
    plan, members, (at, values, _) = MODEL.compile(study), people(study, tables), watched(monkeypatch)
    drive(MODEL, plan, in_process(members))
    assert len(values) > 3
    for number, (coefficients, total) in enumerate(zip(at, values, strict=True), start=1):
        assert total.tolist() == pooled(plan.design, members, plan, tables, coefficients, number)


@pytest.mark.guarantee
def test_a_holder_of_the_counts_alone_has_a_round_too(monkeypatch: pytest.MonkeyPatch) -> None:
    study, tables = a_study(30, INF)
    alone = Table({"falls": tables["clinic"]["falls"]})
    study = msgspec.structs.replace(study, parties=(Card("clinic", 30, CLINIC[2:]), study.parties[1]))
    plan, members, (at, values, _) = MODEL.compile(study), people(study, tables | {"clinic": alone}), watched(monkeypatch)
    drive(MODEL, plan, in_process(members))
    assert plan.design.scaled == ("registry",)
    assert values[0].tolist() == pooled(plan.design, members, plan, tables | {"clinic": alone}, at[0], 1)


@pytest.mark.slow
def test_the_totals_are_the_exact_ones_plus_the_noise_that_members_drew(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[np.ndarray] = []
    real = noise.wide_gaussian

    def spy(*given: Any, **more: Any) -> Any:
        drawn.append(real(*given, **more))
        return drawn[-1]

    monkeypatch.setattr(noise, "wide_gaussian", spy)
    study, tables = a_study(30, shifted=True)
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
def test_a_transcript_gives_the_same_bits_again_with_proofs_and_without_them() -> None:
    for check in ("proof", "none"):
        study, tables = a_study(30, shifted=True, check=check)
        plan, record = MODEL.compile(study), Transcript()
        first = drive(MODEL, plan, in_process(people(study, tables)), record).result
        assert drive(MODEL, plan, in_process({}), record.replay()).result == first
        assert plan.design.proofs == (2 + 4 * 5 if check == "proof" else 0)


def test_the_plan_has_the_sensitivity_of_the_theorem() -> None:
    study, _ = a_study(500, shifted=True)
    for adjacency, times in ((Adjacency.REPLACE, 2), (Adjacency.ZERO_OUT, 1)):
        plan = MODEL.compile(msgspec.structs.replace(study, adjacency=str(adjacency)))
        squares = sum((8 * limit) ** 2 for limit in plan.design.limits.columns) + (8 * 717) ** 2
        assert plan.release("clinic", "pulls-1").sensitivity() == pytest.approx(times * STEPS * math.sqrt(squares))
        assert plan.release("clinic", "pulls-5").sensitivity("attribute") == pytest.approx(2 * STEPS * math.sqrt(squares))
        # Second moments have the response and the offset, each within one unit.
        whole = sum(limit**2 for limit in plan.design.limits.columns) + 2 * 1024**2 + 717**2
        assert plan.design.shape.square == whole


@pytest.mark.guarantee
def test_a_liar_whose_vector_is_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    study, tables = a_study(20)
    real = CountRows.part_of

    def lied(self: CountRows, rows: Any, coins: Any, first: int) -> Any:
        found = real(self, rows, coins, first)
        return (
            np.full_like(found, STEPS - 1) if self.part.name == ANGLE else found
        )  # each number short, and both together not

    monkeypatch.setattr(CountRows, "part_of", lied)
    with pytest.raises((StudyAborted, UsageError, ProtocolError, ValueError)):
        drive(MODEL, MODEL.compile(study), in_process(people(study, tables)))


@pytest.mark.guarantee
@pytest.mark.parametrize("wild", [math.nan, math.inf, 2.0**41])
def test_wild_numbers_of_a_round_are_refused(wild: float, monkeypatch: pytest.MonkeyPatch) -> None:
    study, tables = a_study(20)
    monkeypatch.setattr(PullFit, "at", property(lambda self: (0.0,) * (self.design.columns + 5) + (wild,)))
    with pytest.raises((ProtocolError, UsageError, PlanMismatch)):
        drive(MODEL, MODEL.compile(study), in_process(people(study, tables)))


# --- the root without noise ---------------------------------------------------------------------------------------------------


def columns_of(tables: Any, known: Any) -> dict[str, np.ndarray]:
    """The standardised columns of both parties, of each column of categories all levels."""
    z = {
        "clinic": np.column_stack([*(tables["clinic"]["arm"] == arm for arm in ARMS), tables["clinic"]["age"] / 4]),
        "registry": np.column_stack(
            [
                tables["registry"]["marker"] / 5,
                *(tables["registry"]["blood"] == b for b in "ab"),
                tables["registry"]["iron"] / 4,
            ]
        ),
    }
    return {name: (rows.astype(float) - known[name].middle) / known[name].width for name, rows in z.items()}


#: One level of a column follows from the others: its coefficient is left out, and levels are compared.
KEPT = {"clinic": [1, 2, 3], "registry": [0, 2, 3]}
NAMES = ["arm: low - placebo", "arm: high - placebo", "age", "marker", "blood: b - a", "iron"]


@pytest.mark.slow_for("True-True")
@pytest.mark.parametrize(("swapped", "shifted"), [(False, False), (True, True)])
def test_without_noise_the_estimate_is_the_root_of_the_weighted_equation(
    swapped: bool, shifted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A solver on pooled rows that shares nothing but the released means, deviations, limits and what weighs the pulls."""
    n = 1500
    study, tables = a_study(n, INF, swapped=swapped, shifted=shifted)
    plan, members, (at, _, fits) = MODEL.compile(study), people(study, tables), watched(monkeypatch)
    result = drive(MODEL, plan, in_process(members)).result
    known, design, weights = standards_of(plan.design, members, plan), plan.design, fits[-1].setting
    y, z = tables["clinic"]["falls"], columns_of(tables, known)
    offset = np.log(tables["clinic"]["days"]) + tables["clinic"]["known"] if shifted else np.zeros(n)
    assert not weights.stretched
    assert (y > weights.cut).any()
    limits = dict(zip(design.parties, (limit / 1024 for limit in design.limits.columns), strict=True))
    short = {
        name: rows
        * np.minimum(1, (limits[name] - math.sqrt(8) / STEPS) / np.linalg.norm(rows * LENGTH / STEPS, axis=1))[:, None]
        for name, rows in z.items()
    }
    rows = np.column_stack([*(short[name][:, KEPT[name]] for name in z), np.full(n, CONSTANT)])

    def equation(b: np.ndarray) -> np.ndarray:
        first = z["clinic"][:, KEPT["clinic"]] @ b[:3] + CONSTANT * b[-1] + offset
        second = z["registry"][:, KEPT["registry"]] @ b[3:6]
        h = np.exp(np.minimum(weights.first - first, 0) + np.minimum(weights.second - second, 0))
        return (
            rows.T @ (h * (np.minimum(y, weights.cut) - np.exp(first + second) * np.minimum(1, weights.cut / (y + 1)))) / n
        )

    found = root(equation, np.zeros(7), tol=1e-13)
    assert found.success
    widths = np.concatenate([known[name].width[KEPT[name]] for name in z]) * np.array([1, 1, 4, 5, 1, 4])
    lines = {line.term: line for line in tables_of(plan, result).summary().terms}
    for name, value in zip(NAMES, found.x[:6] / widths, strict=True):
        assert abs(lines[name].estimate - value) < 1e-3 * lines[name].std_error, name
    assert len(at) < 30


@pytest.mark.slow
def test_without_noise_and_with_cuts_beyond_all_data_it_is_the_likelihoods_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poisson regression by iterated weighted least squares, as statsmodels has it."""
    n = 1500
    study, tables = a_study(n, INF)
    clinic, registry = world(n, level=1.6, strength=0.4)
    tables["clinic"] = Table({name: clinic[name] for name in ("arm", "age", "falls")})
    y = tables["clinic"]["falls"]
    monkeypatch.setattr(TypedCounts, "setting", lambda self, b: CountWeights(2.05, 0.65, 18.0, stretched=False))
    plan, members = MODEL.compile(study), people(study, tables)
    result = drive(MODEL, plan, in_process(members)).result
    levels = [clinic["arm"] == "low", clinic["arm"] == "high", clinic["age"], registry["marker"], registry["blood"] == "b"]
    X = np.column_stack([*levels, registry["iron"], np.ones(n)]).astype(float)
    b = np.append(np.zeros(6), math.log(y.mean()))
    for _ in range(30):
        m = np.exp(X @ b)
        b = b + np.linalg.solve((X * m[:, None]).T @ X, X.T @ (y - m))
    assert y.max() <= 18
    errors = np.sqrt(np.linalg.inv((X * np.exp(X @ b)[:, None]).T @ X).diagonal())
    lines = {line.term: line for line in tables_of(plan, result).summary().terms}
    for name, value, error in zip(NAMES, b, errors, strict=False):
        assert abs(lines[name].estimate - value) < 1e-3 * error, name
        assert lines[name].std_error == pytest.approx(error, rel=0.1)


@pytest.mark.slow
def test_what_outlooks_add_up_is_what_masked_products_give_but_for_rounding() -> None:
    study, tables = a_study(400, shifted=True)
    plan = MODEL.compile(study)
    members = people(study, tables)
    drive(MODEL, plan, in_process(members))
    known, design = standards_of(plan.design, members, plan), plan.design
    at = (*np.random.default_rng(2).normal(size=design.columns).tolist(), 0.2, 0.0, 0.3, 0.1, 3.0, 1.0)
    real = added_up(design, tables, known, at)
    whole = np.array(pooled(design, members, plan, tables, at, 1), dtype=float)
    # Of 400 people, each with four roundings of at most a step of numbers up to STEPS times the limit.
    assert np.abs(real - whole).max() < 4 * 5 * math.sqrt(400) * 2 * STEPS
    assert np.abs(real).max() > 20 * STEPS**2


@pytest.mark.long
@pytest.mark.slow
def test_intervals_cover() -> None:
    z, printed = [], 0
    for seed in range(24):
        study, tables = a_study(3000, 4.0, seed=seed, shifted=seed % 2 == 1)
        plan = MODEL.compile(study)
        result = imagined_pulls(plan.design, tables, np.random.default_rng(seed))
        lines = tables_of(plan, result).summary().terms
        z += [(line.estimate - TRUE[line.term]) / line.std_error for line in lines if line.term in TRUE]
        printed += len(lines)
    share = float(np.mean(np.abs(z) < 1.96))
    assert 0.87 < share <= 1  # of 144 lines: .95 less four deviations
    assert printed > 0.95 * 24 * 7


@pytest.mark.slow
def test_where_rounds_find_no_root_no_line_is_printed() -> None:
    study, tables = a_study(1500, 3.0)
    plan = MODEL.compile(study)
    caught: list[PullFit] = []
    with pytest.MonkeyPatch.context() as patched:
        real = PullFit.result
        patched.setattr(PullFit, "result", lambda self: caught.append(self) or real(self))
        imagined_pulls(plan.design, tables, np.random.default_rng(0))
    fit = caught[0]
    assert not fit.result().few
    fit.b = fit.b * 0 + np.append(np.full(plan.design.columns, 9.0), 0.0)
    found = fit.result()
    assert "the pulls of the counts balance" in found.few
    assert not tables_of(plan, found).summary().terms


# --- what is refused ---------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"family": "gamma"}, 'there are the families "logistic", "poisson" and "survival", not \'gamma\''),
        ({"family": "negative-binomial"}, "not 'negative-binomial'"),
        ({"family": "survival"}, "go with the survival family, which needs both"),
        ({"family": "logistic"}, "two classes and is never missing"),
        (
            {"family": "logistic", "exposure": "age"},
            'exposure and offset of columns at two parties go with the family "poisson"',
        ),
        ({"response": "blood"}, "is a count and is never missing"),
        ({"response": "age"}, "is a count and is never missing: declare low = 0"),
        ({"exposure": "iron"}, "exposure 'iron' must be positive"),
        ({"offset": "iron"}, "offset 'iron' is declared by another party than the response 'falls'.*declare it at 'clinic'"),
        ({"offset": "nobody"}, "no such column"),
        ({"exposure": "falls"}, "three columns"),
        ({"offset": "arm"}, "is a number that the mean depends on"),
        ({"goal": "table"}, 'goal is "table", and with 60 people.* Nothing is spent'),
    ],
)
def test_what_has_no_products_is_refused_by_name(asked: dict[str, Any], match: str) -> None:
    study, _ = a_study(60, **asked)
    with pytest.raises(UsageError, match=match):
        MODEL.compile(study)


@pytest.mark.guarantee
def test_three_parties_and_gaps_are_refused_with_what_would_do() -> None:
    study, _ = a_study(60)
    third = Card("pharmacy", 60, (Column("dose", 0.0, 1.0),))
    with pytest.raises(UsageError, match=r"a Poisson regression of split columns has two parties.*has 3"):
        MODEL.compile(msgspec.structs.replace(study, parties=(*study.parties, third)))
    cards = (
        study.parties[0],
        msgspec.structs.replace(study.parties[1], columns=(Column("iron", -4.0, 4.0, missing="complete"),)),
    )
    with pytest.raises(UsageError, match="a Poisson regression of split columns leaves no people out: column 'iron'"):
        design_of(msgspec.structs.replace(study, parties=cards))


@pytest.mark.long
@pytest.mark.slow
def test_the_plan_says_what_is_released_and_an_outlook_plays_it() -> None:
    study, _ = a_study(3000, shifted=True)
    plan = MODEL.compile(study)
    assert any("Poisson regression of 8 columns of clinic, registry" in note for note in plan.notes)
    assert any("the mean count takes 3%" in note for note in plan.notes)
    found = outlook(study, quick=True)
    assert found.model == "glm, poisson (products)"


# --- Python ------------------------------------------------------------------------------------------------------------------------


BOUNDS = Bounds({"arm": list(ARMS), "age": (-4, 4), "marker": (-5, 5), "blood": ["a", "b"], "iron": (-4, 4)})
HELD = {"clinic": ["arm", "age"], "registry": ["marker", "blood", "iron"]}


def _frame(n: int) -> tuple[pl.DataFrame, dict[str, Any]]:
    clinic, registry = world(n)
    whole = {name: np.asarray(values).tolist() for name, values in (clinic | registry).items()}
    return pl.DataFrame(whole).select(["iron", "arm", "marker", "age", "blood"]), clinic


def _model(epsilon: float, **more: Any) -> PrivateGLM:
    given: dict[str, Any] = {"bounds": BOUNDS, "y_bounds": (0, 40), "parties": HELD, "delta": 1e-6, "random_state": 1}
    return PrivateGLM("poisson", epsilon=epsilon, **(given | more))


@pytest.mark.long
@pytest.mark.slow
def test_the_estimator_takes_exposure_and_offset_and_is_kept_in_a_file(tmp_path: Path) -> None:
    frame, clinic = _frame(3000)
    model = _model(INF, exposure_bounds=(0.2, 5), offset_bounds=(-0.5, 0.5), response_at="clinic")
    shifts = {"exposure": clinic["days"], "offset": clinic["known"]}
    model = model.fit(frame, clinic["shifted"], **shifts)
    lines = {line.term: line for line in model.summary().terms}
    for name, true in TRUE.items():
        assert abs(lines[name].estimate - true) < 4 * lines[name].std_error
    assert "rate ratio" in str(model.summary(exponentiate=True))
    assert "counts are taken for Poisson's law" in str(model.summary())
    predicted = model.predict(frame, **shifts)
    assert np.corrcoef(predicted, clinic["shifted"])[0, 1] > 0.5
    assert predicted.mean() == pytest.approx(clinic["shifted"].mean(), rel=0.1)
    assert 0 < model.score(frame, clinic["shifted"], **shifts) < 1
    model.save(tmp_path / "model")
    again = unpooled.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(frame, **shifts), predicted)
    own = fitted(model.plan_, model._result)
    assert str(own.summary()) == str(model.summary())
    assert set(own.shifted_by) == {"exposure", "offset"}


@pytest.mark.long
@pytest.mark.slow
def test_frames_that_are_linked_name_the_exposure_of_the_frame_that_has_the_response() -> None:
    clinic, registry = world(600)
    ids, order = [f"p{k}" for k in range(600)], np.random.default_rng(1).permutation(600)
    one = {"id": ids} | {name: np.asarray(clinic[name]).tolist() for name in ("arm", "age", "days", "shifted")}
    other = pl.DataFrame({"id": ids} | {name: np.asarray(values).tolist() for name, values in registry.items()})
    frames = {"clinic": pl.DataFrame(one), "registry": other[order.tolist()]}
    model = _model(INF, parties=None, exposure_bounds=(0.2, 5)).fit(frames, y="shifted", on="id", exposure="days")
    assert [column.name for column in model.plan_.study.card("clinic").columns] == ["arm", "age", "(exposure)", "(response)"]
    frame, _ = _frame(600)
    aligned = _model(INF, exposure_bounds=(0.2, 5)).fit(frame, clinic["shifted"], exposure=clinic["days"])
    ours, theirs = ({line.term: line for line in m.summary().terms} for m in (model, aligned))
    for name, line in ours.items():
        assert abs(line.estimate - theirs[name].estimate) < 2e-3 * line.std_error
    with pytest.raises(UsageError, match="with on=, exposure is the name of its column in the frame of 'clinic'"):
        _model(INF, parties=None, exposure_bounds=(0.2, 5)).fit(frames, y="shifted", on="id", exposure=clinic["days"])
    with pytest.raises(UsageError, match="'clinic' has no column 'iron'"):
        _model(INF, parties=None, exposure_bounds=(0.2, 5)).fit(frames, y="shifted", on="id", exposure="iron")


@pytest.mark.slow
def test_a_formula_and_an_exposure_by_name_go_together() -> None:
    frame, clinic = _frame(1200)
    whole = frame.with_columns(falls=pl.Series(clinic["shifted"]), days=pl.Series(clinic["days"]))
    model = _model(INF, exposure_bounds=(0.2, 5)).fit(
        whole, formula="falls ~ arm + age + I(age ** 2) + marker", exposure="days"
    )
    assert "I(age**2)" in [line.term for line in model.summary().terms]
    assert model.predict(whole, exposure=clinic["days"]).shape == (1200,)
    with pytest.raises(UsageError, match="no offset"):
        _model(INF).fit(whole, formula="falls ~ arm + marker + offset(age)")


@pytest.mark.parametrize("family", ["gamma", "negative-binomial", "multinomial"])
def test_a_family_that_columns_cannot_have_is_refused_before_anything_about_the_data(family: str) -> None:
    """It had been "X or y holds text", and the like."""
    frame, clinic = _frame(50)
    for fit in (
        lambda: PrivateGLM(family, bounds=BOUNDS, parties=HELD).fit(frame, clinic["arm"]),
        lambda: PrivateGLM(family, bounds=BOUNDS).fit({"a": frame, "b": frame}, y="nobody", on="nothing"),
        lambda: PrivateGLM(family, bounds=BOUNDS, parties=HELD).plan(50, 5),
    ):
        with pytest.raises(UsageError, match=f"of columns at two parties there are the families .*not '{family}'"):
            fit()


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"dispersion": 2.0}, "dispersion goes with rows that are split"),
        ({"ridge": 0.1}, "ridge goes with rows that are split"),
        ({"classes": ["no", "yes"], "exposure_bounds": (1, 2)}, "exposure and exposure_bounds go together"),
    ],
)
def test_parameters_of_rows_are_refused_by_name(more: dict[str, Any], match: str) -> None:
    frame, clinic = _frame(100)
    with pytest.raises(UsageError, match=match):
        _model(3.0, **more).fit(frame, clinic["falls"])


def test_classes_take_no_exposure() -> None:
    frame, clinic = _frame(100)
    model = PrivateGLM("logistic", bounds=BOUNDS, classes=[0, 1], parties=HELD)
    with pytest.raises(UsageError, match="exposure goes with rows that are split"):
        model.fit(frame, clinic["falls"] > 0, exposure=clinic["days"])


# --- files -------------------------------------------------------------------------------------------------------------------------


STUDY = """\
[study]
model = "glm"
[privacy]
epsilon = 6
[parameters]
response = "shifted"
family = "poisson"
exposure = "days"
split = "columns"
[trust]
helpers = ["helper"]
[[party]]
card = "clinic/clinic.card.toml"
[[party]]
card = "registry/registry.card.toml"
[[party]]
card = "helper/helper.card.toml"
"""
PARTIES = [word for name in ("clinic", "registry", "helper") for word in ("--party", f"{name}/party.toml")]


def command(*words: str, code: int = 0) -> str:
    """Run the command in the folder that the test is in."""
    return run_command(Path(), *words, code=code)


@pytest.mark.long
@pytest.mark.slow
def test_two_parties_and_a_helper_approve_run_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clinic, registry = world(1200)
    held = {name: clinic[name] for name in ("arm", "age", "days", "shifted")}
    for name, values, declared in (
        ("clinic", held, ("arm=placebo,low,high", "age=-4:4", "days=0.2:5", "shifted=0:40")),
        ("registry", registry, ("marker=-5:5", "blood=a,b", "iron=-4:4")),
    ):
        ids = {"id": [f"p{k}" for k in range(1200)]}
        pl.DataFrame(ids | {column: np.asarray(own).tolist() for column, own in values.items()}).write_csv(f"{name}.csv")
        said = [word for column in declared for word in ("--column", column)]
        command("party", "init", f"{name}.csv", "--name", name, "--folder", name, "--id", "id", *said, "--epsilon", "20")
        config = Path(name, "party.toml")
        config.write_text(config.read_text().replace('joint = "no"', 'joint = "allowed"'))
        command("party", "card", "--config", str(config))
    command("party", "init", "--helper", "helper", "--folder", "helper", "--contact", "ask the helper")
    Path("study.toml").write_text(STUDY)
    for name in ("clinic", "registry", "helper"):
        assert command("party", "check", "study.toml", "--config", f"{name}/party.toml", "--approve")
    table = command("run", "study.toml", *PARTIES, "--out", "out")
    for term in ("arm: low - placebo", "marker", "blood: b - a", "columns of clinic, registry"):
        assert term in table
    assert "rate ratio" in command("contrast", "out", "blood: b - a", "--exponentiate")
    found = json.loads(command("result", "out", "--json"))
    assert {line["term"] for line in found["terms"]} >= {"marker", "age"}
    assert "days" not in {line["term"] for line in found["terms"]}
