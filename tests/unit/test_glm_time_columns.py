"""Hazard ratios of columns at a clinic and a registry: exact under masks, the likelihood's maximum without noise, what is refused, Python and files."""

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

import unpooled
from unpooled import Bounds, PrivateGLM
from unpooled.errors import PlanMismatch, ProtocolError, StudyAborted, UsageError
from unpooled.linear.standard import Standard
from unpooled.models import load
from unpooled.models.glm import columns
from unpooled.models.glm.columns import design_of
from unpooled.models.glm.columns_fit import PullFit, added_up, imagined_pulls
from unpooled.models.glm.estimator import fitted
from unpooled.models.glm.outlook import outlook
from unpooled.models.glm.result import tables as tables_of
from unpooled.models.glm.split import STEPS
from unpooled.models.glm.times import TimeRows
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
EDGES = np.array([0.0, 0.5, 1.0, 2.0])
CLINIC = (
    Column("arm", categories=("no", "yes")),
    Column("age", -4.0, 4.0),
    Column("died", categories=("alive", "dead")),
    Column("years", 0.0, 2.0),
)
REGISTRY = (Column("marker", -5.0, 5.0), Column("blood", categories=("a", "b")), Column("iron", -4.0, 4.0))
#: Log hazard ratios of the lines of a table.
TRUE = {"arm: yes - no": -0.5, "age": 0.3, "marker": -0.3, "blood: b - a": 0.3, "iron": 0.0}


def world(n: int, seed: int = 0, level: float = -1.0) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of both parties by column; half of the people leave at some time."""
    rng = np.random.default_rng(seed)
    arm, blood = rng.choice(2, n), rng.choice(2, n)
    age, iron = rng.normal(size=(2, n)).clip(-4, 4)
    marker = (0.5 * age + rng.normal(size=n)).clip(-5, 5)
    u = -0.5 * arm + 0.3 * age - 0.3 * marker + 0.3 * blood
    met = np.concatenate([[0.0], np.cumsum(np.diff(EDGES) * math.exp(level) * np.array([1.0, 0.6, 1.4]))])
    event = np.interp(rng.exponential(size=n) * np.exp(-u), met, EDGES, right=9.0)
    left = np.where(rng.random(n) < 0.5, rng.uniform(0, 2, n), 2.0)
    died = np.array(["alive", "dead"], dtype=object)[(event <= left).astype(int)]
    clinic = {"arm": np.array(["no", "yes"], dtype=object)[arm], "age": age, "died": died, "years": np.minimum(event, left)}
    return clinic, {"marker": marker, "blood": np.array(["a", "b"], dtype=object)[blood], "iron": iron}


def a_study(
    n: int = 60, epsilon: float = 3.0, *, swapped: bool = False, seed: int = 0, **asked: Any
) -> tuple[Study, dict[str, Any]]:
    """A study of both parties and a helper, and the tables of all members."""
    clinic, registry = world(n, seed)
    cards = [Card("clinic", n, CLINIC), Card("registry", n, REGISTRY)]
    given = {"response": "years", "event": "died", "cuts": [0.5, 1.0], "split": "columns", "family": "survival"} | asked
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
    return study, {"clinic": Table(clinic), "registry": Table(registry), "helper": NoRows()}


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
        rows, pair = parts[party, PRODUCTS], parts[across, ANGLE]
        own = rows.shape[1] // 2
        found += [int((rows[:, k] * pair[:, 0] + rows[:, own + k] * pair[:, 1]).sum()) for k in range(own)]
    return found


def likelihood(clinic: Any, registry: Any) -> tuple[np.ndarray, np.ndarray]:
    """The piecewise exponential fit of pooled rows with its errors, by Newton's steps: a Poisson model of persons split at the cuts."""
    X = np.column_stack(
        [clinic["arm"] == "yes", clinic["age"], registry["marker"], registry["blood"] == "b", registry["iron"]]
    ).astype(float)
    time, widths = np.asarray(clinic["years"]), np.diff(EDGES)
    within = np.clip(time[:, None] - EDGES[:-1], 0, widths)
    events = np.zeros_like(within)
    events[np.arange(time.size), np.minimum(np.searchsorted(EDGES[1:], time), 2)] = clinic["died"] == "dead"
    b = np.append(np.zeros(5), np.log(events.sum(axis=0) / within.sum(axis=0)))
    for _ in range(40):
        m = within * np.exp(X @ b[:5])[:, None] * np.exp(b[5:])
        score = np.append(X.T @ (events - m).sum(axis=1), (events - m).sum(axis=0))
        information = np.block([[X.T @ (X * m.sum(axis=1)[:, None]), X.T @ m], [m.T @ X, np.diag(m.sum(axis=0))]])
        b = b + np.linalg.solve(information, score)
    return b, np.sqrt(np.linalg.inv(information).diagonal())


# --- the released integers ---------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize("swapped", [False, True])
def test_the_opened_integers_of_every_round_are_the_exact_sums_of_all_pieces(
    swapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProductShape, "block_rows", 16)
    monkeypatch.setattr(columns, "_TUNED", columns._TUNED.but(exact_rounds=4))
    study, tables = a_study(30, INF, swapped=swapped)
    plan, members, (at, values, _) = MODEL.compile(study), people(study, tables), watched(monkeypatch)
    drive(MODEL, plan, in_process(members))
    assert len(values) == 4
    for number, (numbers, total) in enumerate(zip(at, values, strict=True), start=1):
        assert len(numbers) == plan.design.pulls.settings == 7 + 3 + 3
        assert len(total) == 7 + 3
        assert total.tolist() == pooled(plan.design, members, plan, tables, numbers, number)


@pytest.mark.guarantee
def test_a_transcript_of_times_gives_the_same_bits_again_with_proofs_and_without_them() -> None:
    for check in ("proof", "none"):
        study, tables = a_study(30, check=check)
        plan, record = MODEL.compile(study), Transcript()
        first = drive(MODEL, plan, in_process(people(study, tables)), record).result
        assert drive(MODEL, plan, in_process({}), record.replay()).result == first
        assert plan.design.proofs == (2 + 4 * 5 if check == "proof" else 0)


@pytest.mark.guarantee
def test_the_plan_of_times_has_the_sensitivity_of_the_theorem() -> None:
    study, _ = a_study(500)
    for adjacency, times in ((Adjacency.REPLACE, 2), (Adjacency.ZERO_OUT, 1)):
        plan = MODEL.compile(msgspec.structs.replace(study, adjacency=str(adjacency)))
        one, other = ((8 * limit) ** 2 for limit in plan.design.limits.columns)
        square = (math.ceil(math.sqrt(one + 2 * (0.7 * STEPS) ** 2)) + math.ceil(math.sqrt(2 * (3 + 3)))) ** 2 + other
        assert plan.release("clinic", "pulls-1").sensitivity() == pytest.approx(times * STEPS * math.sqrt(square))
        assert plan.release("clinic", "pulls-5").sensitivity("attribute") == pytest.approx(2 * STEPS * math.sqrt(square))
        # Counts of exits are the holder's own release: a person is in one of seven cells.
        assert plan.release("clinic", "rate").sensitivity() == pytest.approx(math.sqrt(2) if times > 1 else 1.0)


@pytest.mark.guarantee
def test_a_liar_whose_pieces_are_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    study, tables = a_study(20)
    real = TimeRows.part_of

    def lied(self: TimeRows, rows: Any, coins: Any, first: int) -> Any:
        found = real(self, rows, coins, first)
        if self.part.name == PRODUCTS and self.holds:  # every piece as long as one may be alone
            found[:, [3, 4, 5]] = math.isqrt(self.part.square) - 1
        return found

    monkeypatch.setattr(TimeRows, "part_of", lied)
    with pytest.raises((StudyAborted, UsageError, ProtocolError, ValueError)):
        drive(MODEL, MODEL.compile(study), in_process(people(study, tables)))


@pytest.mark.guarantee
@pytest.mark.parametrize("wild", [math.nan, math.inf, 2.0**41])
def test_wild_numbers_of_a_round_of_times_are_refused(wild: float, monkeypatch: pytest.MonkeyPatch) -> None:
    study, tables = a_study(20)
    monkeypatch.setattr(PullFit, "at", property(lambda self: (0.0,) * (self.design.columns + 5) + (wild,)))
    with pytest.raises((ProtocolError, UsageError, PlanMismatch)):
        drive(MODEL, MODEL.compile(study), in_process(people(study, tables)))


# --- without noise --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("swapped", [False, True])
def test_without_noise_it_is_the_piecewise_exponential_fit_of_pooled_rows(swapped: bool) -> None:
    study, tables = a_study(1200, INF, swapped=swapped)
    plan = MODEL.compile(study)
    result = drive(MODEL, plan, in_process(people(study, tables))).result
    values, errors = likelihood(*world(1200))
    lines = tables_of(plan, result).summary().terms
    assert [line.term for line in lines[:5]] == (list(TRUE) if not swapped else [*list(TRUE)[2:], *list(TRUE)[:2]])
    order = [0, 1, 2, 3, 4, 5, 6, 7] if not swapped else [2, 3, 4, 0, 1, 5, 6, 7]
    for line, value, error in zip(lines, values[order], errors[order], strict=True):
        assert abs(line.estimate - value) < 1e-3 * error, line.term
        assert line.std_error == pytest.approx(error, rel=0.05)


def test_a_holder_of_times_alone_gets_the_hazards_too() -> None:
    study, tables = a_study(400, INF)
    alone = Table({name: tables["clinic"][name] for name in ("died", "years")})
    study = msgspec.structs.replace(study, parties=(Card("clinic", 400, CLINIC[2:]), study.parties[1]))
    plan = MODEL.compile(study)
    assert plan.design.scaled == ("registry",)
    result = drive(MODEL, plan, in_process(people(study, tables | {"clinic": alone}))).result
    assert len(result.log_hazards) == 3
    assert result.life_table.edges == (0.5, 1.0, 2.0)
    assert len(tables_of(plan, result).summary().terms) == 3 + 3


def test_what_outlooks_of_times_add_up_is_what_masked_products_give_but_for_rounding() -> None:
    study, tables = a_study(300)
    plan = MODEL.compile(study)
    members = people(study, tables)
    drive(MODEL, plan, in_process(members))
    known, design = standards_of(plan.design, members, plan), plan.design
    rng = np.random.default_rng(2)
    slopes = rng.normal(size=design.columns) / 2
    at = (*slopes.tolist(), -1.0, -1.5, -0.7, -0.3, 0.2, 1.0)
    real = added_up(design, tables, known, at)
    whole = np.array(pooled(design, members, plan, tables, at, 1), dtype=float)
    # Of 300 people, each with four roundings of at most a step of numbers up to STEPS times the limit.
    assert np.abs(real - whole).max() < 4 * 5 * math.sqrt(300) * 2 * STEPS
    assert np.abs(real).max() > 20 * STEPS**2


# --- with noise -------------------------------------------------------------------------------------------------------------------


def test_intervals_of_hazard_ratios_cover() -> None:
    z, printed = [], 0
    plan = MODEL.compile(a_study(3000, 4.0)[0])
    for seed in range(12):
        clinic, registry = world(3000, seed, level=-1.5)
        tables = {"clinic": Table(clinic), "registry": Table(registry)}
        result = imagined_pulls(plan.design, tables, np.random.default_rng(seed))
        lines = tables_of(plan, result).summary().terms
        z += [(line.estimate - TRUE[line.term]) / line.std_error for line in lines if line.term in TRUE]
        printed += len(lines)
    share = float(np.mean(np.abs(z) < 1.96))
    assert 0.83 < share <= 1  # of 60 lines: .95 less four deviations
    assert printed > 0.95 * 12 * 8


def test_where_rounds_of_times_find_no_root_no_line_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    study, tables = a_study(1500, 3.0)
    plan = MODEL.compile(study)
    caught: list[PullFit] = []
    real = PullFit.result
    monkeypatch.setattr(PullFit, "result", lambda self: caught.append(self) or real(self))
    imagined_pulls(plan.design, tables, np.random.default_rng(0))
    monkeypatch.setattr(PullFit, "result", real)
    fit = caught[0]
    assert not fit.result().few
    fit.b = fit.b + np.append(np.full(plan.design.columns, 3.0), np.zeros(3))
    found = fit.result()
    assert "the pulls of the events balance" in found.few
    assert not tables_of(plan, found).summary().terms


# --- what is refused ---------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"family": "gamma"}, 'there are the families "logistic", "poisson" and "survival", not \'gamma\''),
        ({"family": "multinomial"}, "not 'multinomial'"),
        ({"family": "negative-binomial"}, "not 'negative-binomial'"),
        ({"event": ""}, "go with the survival family, which needs both"),
        ({"cuts": None}, "go with the survival family, which needs both"),
        ({"family": "poisson"}, "go with the survival family, which needs both"),
        (
            {"exposure": "age"},
            'exposure and offset of columns at two parties go with the family "poisson", not with "survival"',
        ),
        (
            {"event": "blood"},
            "the event 'blood' is declared by another party than the response 'years': .*declare it at 'clinic'",
        ),
        ({"event": "nobody"}, "the event 'nobody' must be one declared column"),
        ({"event": "years"}, "must be one declared column beside the time"),
        ({"response": "age"}, "the time 'age' is a number from 0 on"),
        ({"cuts": [1.0, 0.5]}, "cuts rise and lie between 0 and the declared end"),
        ({"cuts": [2.0]}, "cuts rise and lie between 0 and the declared end"),
        ({"goal": "table"}, 'goal is "table", and with 60 people.* Nothing is spent'),
    ],
)
def test_what_has_no_products_of_times_is_refused_by_name(asked: dict[str, Any], match: str) -> None:
    study, _ = a_study(60, **asked)
    with pytest.raises(UsageError, match=match):
        MODEL.compile(study)


@pytest.mark.guarantee
def test_three_parties_and_gaps_of_times_are_refused_with_what_would_do() -> None:
    study, _ = a_study(60)
    third = Card("pharmacy", 60, (Column("dose", 0.0, 1.0),))
    with pytest.raises(UsageError, match=r"a survival regression of split columns has two parties.*has 3"):
        MODEL.compile(msgspec.structs.replace(study, parties=(*study.parties, third)))
    cards = (
        study.parties[0],
        msgspec.structs.replace(study.parties[1], columns=(Column("iron", -4.0, 4.0, missing="complete"),)),
    )
    with pytest.raises(UsageError, match="a survival regression of split columns leaves no people out: column 'iron'"):
        design_of(msgspec.structs.replace(study, parties=cards))


def test_the_plan_of_times_says_what_is_released_and_an_outlook_plays_it() -> None:
    study, _ = a_study(3000)
    plan = MODEL.compile(study)
    assert any("survival regression of 7 columns of clinic, registry" in note for note in plan.notes)
    assert any("the count of exits takes 3%" in note for note in plan.notes)
    found = outlook(study, quick=True)
    assert found.model == "glm, survival (products)"


# --- Python ------------------------------------------------------------------------------------------------------------------------


BOUNDS = Bounds({"arm": ["no", "yes"], "age": (-4, 4), "marker": (-5, 5), "blood": ["a", "b"], "iron": (-4, 4)})
HELD = {"clinic": ["arm", "age"], "registry": ["marker", "blood", "iron"]}


def _frames(n: int) -> tuple[dict[str, Any], dict[str, Any]]:
    clinic, registry = ({name: np.asarray(own).tolist() for name, own in one.items()} for one in world(n))
    clinic["died"] = [own == "dead" for own in clinic["died"]]
    return clinic, registry


def _model(epsilon: float, **more: Any) -> PrivateGLM:
    given: dict[str, Any] = {"bounds": BOUNDS, "y_bounds": (0, 2), "cuts": (0.5, 1.0), "parties": HELD}
    return PrivateGLM("survival", epsilon=epsilon, delta=1e-6, random_state=1, **(given | more))


@pytest.mark.slow
def test_the_estimator_takes_times_and_events_and_is_kept_in_a_file(tmp_path: Path) -> None:
    clinic, registry = _frames(2000)
    frame = pl.DataFrame(clinic | registry).select(["iron", "arm", "marker", "age", "blood"])
    model = _model(8.0, response_at="clinic").fit(frame, clinic["years"], event=clinic["died"])
    lines = {line.term: line for line in model.summary().terms}
    for name, true in TRUE.items():
        assert abs(lines[name].estimate - true) < 4 * lines[name].std_error
    assert "hazard ratio" in str(model.summary(exponentiate=True))
    assert "errors take people to leave without an event" in str(model.summary())
    assert model.contrast("blood: b - a").terms[0].estimate == pytest.approx(lines["blood: b - a"].estimate)
    survival = model.predict_survival(frame, [0.5, 2.0])
    assert (survival[:, 0] > survival[:, 1]).all()
    assert 0.55 < model.score(frame, clinic["years"], event=clinic["died"]) < 0.75
    assert len(model.baseline_hazard_) == 3
    assert model.kaplan_meier_.survival[-1] == pytest.approx(survival[:, 1].mean(), abs=0.08)
    model.save(tmp_path / "model")
    again = unpooled.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_survival(frame, [1.0]), model.predict_survival(frame, [1.0]))
    own = fitted(model.plan_, model._result)
    assert str(own.summary()) == str(model.summary())


@pytest.mark.slow
def test_frames_that_are_linked_name_time_and_event_of_one_frame() -> None:
    clinic, registry = _frames(500)
    ids, order = [f"p{k}" for k in range(500)], np.random.default_rng(1).permutation(500)
    frames = {
        "clinic": pl.DataFrame({"id": ids} | clinic),
        "registry": pl.DataFrame({"id": ids} | registry)[order.tolist()],
    }
    given = {"parties": None}
    one = _model(INF, **given).fit(frames, y="years", event="died", on="id")
    assert [column.name for column in one.plan_.study.card("clinic").columns] == ["arm", "age", "(event)", "(response)"]
    terms = "arm + age + marker + blood + iron"
    other = _model(INF, **given).fit(frames, formula=f"Surv(years, died) ~ {terms}", on="id")
    whole = pl.DataFrame(clinic | registry)
    third = _model(INF).fit(whole, formula=f"Surv(years, died) ~ {terms}")
    ours = [{line.term: line for line in model.summary().terms} for model in (one, other, third)]
    for name in TRUE:
        assert len({round(lines[name].estimate / lines[name].std_error, 2) for lines in ours}) <= 2
        assert abs(ours[0][name].estimate - ours[2][name].estimate) < 2e-3 * ours[0][name].std_error
    with pytest.raises(UsageError, match="with on=, event is the name of its column in the frame of 'clinic'"):
        _model(INF, **given).fit(frames, y="years", event=clinic["died"], on="id")


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"ridge": 0.1}, "ridge goes with rows that are split"),
        ({"site_effects": "fixed"}, "site_effects goes with rows that are split"),
        ({"cuts": None}, "go with the survival family, which needs both"),
    ],
)
def test_parameters_of_rows_are_refused_of_times_by_name(more: dict[str, Any], match: str) -> None:
    clinic, registry = _frames(60)
    frame = pl.DataFrame(clinic | registry).select(["iron", "arm", "marker", "age", "blood"])
    with pytest.raises(UsageError, match=match):
        _model(3.0, **more).fit(frame, clinic["years"], event=clinic["died"])
    with pytest.raises(UsageError, match="survival needs to know who had the event"):
        _model(3.0).fit(frame, clinic["years"])


# --- files -------------------------------------------------------------------------------------------------------------------------


STUDY = """\
[study]
model = "glm"
[privacy]
epsilon = 8
[parameters]
response = "years"
event = "died"
cuts = [0.5, 1.0]
family = "survival"
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
def test_a_clinic_with_times_a_registry_and_a_helper_approve_run_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clinic, registry = world(600)
    for name, values, declared in (
        ("clinic", clinic, ("arm=no,yes", "age=-4:4", "died=alive,dead", "years=0:2")),
        ("registry", registry, ("marker=-5:5", "blood=a,b", "iron=-4:4")),
    ):
        ids = {"id": [f"p{k}" for k in range(600)]}
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
    for term in ("arm: yes - no", "marker", "blood: b - a", "columns of clinic, registry", "log hazard (0.5, 1]"):
        assert term in table
    assert "hazard ratio" in command("contrast", "out", "blood: b - a", "--exponentiate")
    found = json.loads(command("result", "out", "--json"))
    assert {line["term"] for line in found["terms"]} >= {"marker", "age", "survival to 0.5"}
    assert "died" not in {line["term"] for line in found["terms"]}
    report = command("report", "out")
    assert "report" in report
