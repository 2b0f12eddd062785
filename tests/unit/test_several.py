"""Several analyses in one study: one plan, one approval, one budget, a result each; in files, on the command line and in Python."""

from __future__ import annotations

import json
import math
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest
from commands import PARTIES, approve, command, two_parties

import unpooled
from unpooled.errors import BudgetRefusal, DataError, PlanMismatch, PolicyRefusal, ProtocolError, UnpooledError, UsageError
from unpooled.models import load
from unpooled.models.analyses import fit as analyses_fit
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.origin import ReleasedInput
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import NoRows, Table
from unpooled.privacy.unit import Scope, Target, Unit
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.local import drive, in_process, recorded_only
from unpooled.protocol.messages import encode, open_envelope
from unpooled.protocol.party import Party
from unpooled.protocol.transcript import Transcript
from unpooled.study.files import read_study
from unpooled.study.finished import Run
from unpooled.study.run import compile_study

ANALYSES = """\
[[analysis]]
name = "baseline"
model = "describe"
share = 0.4
columns = ["age", "sex"]

[[analysis]]
name = "age by sex"
model = "bayes"
share = 0.6
columns = ["sex", "age"]
[analysis.parameters]
response = "age"
method = "moments"
"""
HEAD = '[study]\npurpose = "a look"\n\n[privacy]\nepsilon = 1.0\ndelta = 1e-6\n\n'
CARDS = '\n[[party]]\ncard = "north/north.card.toml"\n[[party]]\ncard = "south/south.card.toml"\n'


@pytest.fixture
def world(tmp_path: Path) -> Path:
    two_parties(tmp_path)
    (tmp_path / "study.toml").write_text(HEAD + ANALYSES + CARDS)
    return tmp_path


# --- in files -------------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.slow
def test_a_study_of_two_analyses_from_plan_to_report(world: Path) -> None:
    for path in (world / "study.toml", world / "north/party.toml", world / "south/party.toml"):
        path.write_text(path.read_text().replace("epsilon = 1.0", "epsilon = 30.0"))
    planned = json.loads(command(world, "plan", "study.toml", "--json"))
    assert [(one["name"], one["model"], one["share"]) for one in planned["analyses"]] == [
        ("baseline", "describe", 0.4),
        ("age by sex", "bayes", 0.6),
    ]
    assert all(one["name"].startswith(("baseline: ", "age by sex: ")) for one in planned["releases"])
    assert "analysis 'baseline': model describe, 40% of the budget" in command(world, "plan", "study.toml")
    approve(world)
    shown = command(world, "run", "study.toml", *PARTIES, "--force")
    assert shown.index("baseline (describe)") < shown.index("age by sex (bayes)")
    for name in ("north", "south"):
        account = json.loads(command(world, "party", "ledger", "--config", f"{name}/party.toml", "--json"))
        assert account["spent_epsilon"] == pytest.approx(planned["statement"]["epsilon_per_unit"]["record"], rel=1e-9)
        assert [entry["kind"] for entry in account["entries"]][:2] == ["approval", "charge"]
    found = json.loads(command(world, "result", "study.run", "--json"))
    assert found["analyses"] == [
        {"name": "baseline", "model": "describe", "failed": ""},
        {"name": "age by sex", "model": "bayes", "failed": ""},
    ]
    assert {term["group"].partition(":")[0] for term in found["terms"]} == {"baseline", "age by sex"}
    one = json.loads(command(world, "result", "study.run", "--analysis", "age by sex", "--json"))
    assert one["statement"] == found["statement"]  # of the whole study: one analysis costs less than its person loses
    assert one["epsilon"] == 30.0
    assert "nobs" in one
    contrast = command(world, "contrast", "study.run", "sex: m - f", "--analysis", "age by sex")
    assert contrast.splitlines()[-1] == str(compile_study(read_study(world / "study.toml")).statement).splitlines()[0]
    for words in (("contrast", "study.run", "sex: m - f"), ("predict", "study.run", "--data", "north/data.csv")):
        assert "name one with --analysis (baseline, age by sex)" in command(world, *words, code=2)
        assert "no analysis 'other'" in command(world, *words, "--analysis", "other", code=2)
    assert "no analysis 'other'" in command(world, "result", "study.run", "--analysis", "other", code=2)
    command(world, "report", "study.run")
    page = (world / "study.run/report.html").read_text()
    assert page.index("<h3>baseline</h3>") < page.index("<h3>age by sex</h3>")
    again = command(world, "run", "study.toml", *PARTIES, "--force")
    assert "nothing is charged" in again


@pytest.mark.guarantee
def test_a_record_without_a_transcript_tells_every_analysis(world: Path) -> None:
    approve(world)
    command(world, "run", "study.toml", *PARTIES, "--force")
    before = command(world, "result", "study.run")
    (world / "study.run/transcript").unlink()
    assert command(world, "result", "study.run") == before
    told = json.loads(command(world, "result", "study.run", "--analysis", "baseline", "--json"))
    assert not told["recomputed"]
    assert len(told["terms"]) > 3


@pytest.mark.guarantee
def test_what_is_no_whole_run_is_refused_or_says_so(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    approve(world)
    command(world, "run", "study.toml", *PARTIES, "--force")
    with pytest.raises(UsageError, match="several analyses: name one with --analysis"):
        Run.one(world / "study.run", "")
    (world / "study.run/result.json").write_text("{")
    run = Run.read(world / "study.run")
    assert run.agrees is False
    monkeypatch.setattr(Run, "parts", (replace(run.parts[0], failed="it was cold"),))
    with pytest.raises(UsageError, match="has no result: it was cold"):
        run.analysis(run.parts[0].name)
    transcript = Transcript.open(world / "study.run/transcript")
    (world / "cut").mkdir()
    beheaded = Transcript.open(world / "cut/transcript")
    for entry in (one for one in transcript.entries if open_envelope(one.request).step != "open"):
        beheaded.record(entry.to, entry.request, entry.reply)
    transcript.close()
    beheaded.close()
    with pytest.raises(ProtocolError, match="does not begin with a study"):
        Run.read(world / "cut")


@pytest.mark.guarantee
def test_what_has_ended_can_be_read_while_the_run_has_not(world: Path) -> None:
    approve(world)
    command(world, "run", "study.toml", *PARTIES, "--force")
    whole = Run.read(world / "study.run", "baseline").result
    transcript = Transcript.open(world / "study.run/transcript")
    kept = [e for e in transcript.entries if not open_envelope(e.request).step.startswith("age by sex: ")]
    transcript.close()
    (world / "cut").mkdir()
    shorter = Transcript.open(world / "cut/transcript")
    for entry in kept:
        shorter.record(entry.to, entry.request, entry.reply)
    shorter.close()
    assert "--analysis NAME" in command(world, "result", "cut", code=None)
    assert Run.read(world / "cut", "baseline").result == whole
    with pytest.raises(ProtocolError, match="ends before"):
        Run.read(world / "cut", "age by sex")


REFUSED = {
    "no analysis": (ANALYSES, "", "names no model"),
    "a model too": ('purpose = "a look"', 'purpose = "a look"\nmodel = "describe"', "names a model under [study] and lists"),
    "one name twice": ('"age by sex"', '"baseline"', "2 analyses are called 'baseline'"),
    "no name": ('name = "baseline"', 'name = ""', "the name of an analysis is 1 to 40"),
    "a name with a colon": ('name = "baseline"', 'name = "a: b"', "the name of an analysis is 1 to 40"),
    "shares of more": ("share = 0.6", "share = 0.7", "the shares of the analyses sum to 1.1"),
    "shares of less": ("share = 0.6", "share = 0.5", "the shares of the analyses sum to 0.9"),
    "one share": ("share = 0.6\n", "", "every analysis needs a share"),
    "a share of nothing": ("share = 0.4", "share = 0.0", "every analysis needs a share"),
    "a share of nan": ("share = 0.4", "share = nan", "every analysis needs a share"),
    "an unknown model": ('model = "bayes"', 'model = "baies"', "unknown model 'baies'"),
    "analyses inside": ('model = "bayes"', 'model = "analyses"', "contains analyses itself"),
    "rows linked inside": ('model = "bayes"', 'model = "link"', "links rows, which is a study of its own"),
    "an unknown column": (
        'columns = ["age", "sex"]',
        'columns = ["age", "seks"]',
        "uses column 'seks', which no card declares",
    ),
    "a helper of nobody": (
        'response = "age"',
        'response = "age"\n[analysis.trust]\nhelpers = ["registry"]\n[analysis.parameters.more]',
        "",
    ),
    "an unknown key": ("share = 0.4", "part = 0.4", "part"),
    "an unknown parameter": ('response = "age"', 'response = "age"\nrespnse = "age"', "respnse"),
    "a missing parameter": ('response = "age"\n', "", "response"),
    "a wrong type": ("share = 0.4", 'share = "half"', "share"),
    "parameters above": ("[privacy]", "[parameters]\nlevel = 0.9\n[privacy]", "stand with it"),
    "trust above": ("[privacy]", '[trust]\naggregation = "trusted"\n[privacy]', "stand with it"),
    "a published form": ("delta = 1e-6", 'delta = 1e-6\ncalibration = "published"', ""),
}


@pytest.mark.slow_for("an unknown column")
@pytest.mark.parametrize("what", REFUSED)
def test_a_wrong_study_is_refused_before_anything_is_charged(world: Path, what: str) -> None:
    old, new, words = REFUSED[what]
    text = (world / "study.toml").read_text()
    assert old in text
    (world / "study.toml").write_text(text.replace(old, new))
    said = command(world, "run", "study.toml", *PARTIES, "--force", code=2)
    assert words in said
    for name in ("north", "south"):
        account = json.loads(command(world, "party", "ledger", "--config", f"{name}/party.toml", "--json"))
        assert account["entries"] == []
    assert not (world / "study.run").exists()


@pytest.mark.long
@pytest.mark.slow
def test_each_analysis_must_be_worth_its_share(world: Path) -> None:
    text = (world / "study.toml").read_text().replace("epsilon = 1.0", "epsilon = 0.01")
    (world / "study.toml").write_text(text)
    said = command(world, "run", "study.toml", *PARTIES, code=3)
    assert "Analysis 'age by sex': at epsilon" in said
    assert "warning: analysis 'age by sex'" in command(world, "plan", "study.toml")


# --- at the parties -------------------------------------------------------------------------------------------------------------

COLUMNS = (Column("age", 20.0, 90.0), Column("arm", categories=("new", "old")), Column("stay", 0.0, 40.0))
LISTED = [
    {"name": "baseline", "model": "describe", "share": 0.3, "columns": ["age", "arm"]},
    {"name": "stay", "model": "bayes", "share": 0.7, "parameters": {"response": "stay", "method": "moments"}},
]


def asked(listed=LISTED, **changes) -> Study:
    cards = tuple(Card(name, 60, COLUMNS) for name in ("a", "b"))
    return Study(
        "analyses", cards, **{"epsilon": 1.0, "delta": 1e-6, "derived": (), **changes}, parameters={"analyses": listed}
    )


def tables(seed: int = 0) -> dict[str, Table]:
    rng = np.random.default_rng(seed)
    return {
        name: Table({"age": rng.uniform(20, 90, 60), "arm": rng.choice(["new", "old"], 60), "stay": rng.uniform(0, 40, 60)})
        for name in ("a", "b")
    }


def people(study: Study, **rules) -> dict[str, Party]:
    found = {}
    for card in study.parties:
        ledger = Ledger.in_memory(root_key=bytes(32))
        policy = Policy(Target(study.epsilon, study.delta, Unit.RECORD), approved=None, allow_in_process=True, **rules)
        found[card.name] = Party(card.name, tables()[card.name], card, ledger, KeySource(ledger.root_key), policy, load)
    return found


@pytest.mark.guarantee
def test_an_analysis_is_never_opened_alone() -> None:
    study = asked()
    plan = load("analyses").compile(study)
    party = people(study)["a"]
    for inner in plan.analyses.values():
        assert load(inner.study.row).compile(inner.study).hash == inner.hash  # a text of its own, from which all follows
        with pytest.raises(PlanMismatch, match="one analysis of a study"):
            party.answer(encode(inner.hash, "open", 0, OpenRequest(inner.study)))
    assert party.ledger.entries() == ()


@pytest.mark.guarantee
def test_a_party_whose_labels_an_analysis_does_not_use_is_no_part_of_it() -> None:
    cards = (Card("a", 60, COLUMNS), Card("b", 60, (Column("x", 0.0, 1.0),), ("y",)))
    listed = [
        {"name": "one", "model": "describe", "columns": ["age"]},
        {"name": "two", "model": "describe", "columns": ["x", "y"]},
    ]
    plan = load("analyses").compile(msgspec.structs.replace(asked(listed), parties=cards))
    held = {name: [(card.name, card.labels) for card in one.study.parties] for name, one in plan.analyses.items()}
    assert held == {"one": [("a", ())], "two": [("b", ("y",))]}


@pytest.mark.guarantee
@pytest.mark.parametrize("named", [{"arm": "sex", "sex": "arm"}, {"age": "stay", "stay": "age"}, {"born": "age"}])
def test_a_party_is_asked_for_columns_by_the_names_of_its_card(named: dict[str, str]) -> None:
    """Else values would be held against what is declared of others, and a refusal would tell which of them are there."""
    columns = (*COLUMNS, Column("sex", categories=("f", "m", "new", "old")))
    study = asked([{"name": "baseline", "model": "describe", "named": named}], simulation_seed=1)
    card = Card("a", 60, columns)
    plan = load("analyses").compile(msgspec.structs.replace(study, parties=(card,)))
    held = {**{name: tables()["a"][name] for name in ("age", "arm", "stay")}, "sex": np.array(["f", "m"] * 30)}
    ledger = Ledger.in_memory()
    party = Party("a", Table(held), card, ledger, KeySource(ledger.root_key), Policy.in_process(), load)
    with pytest.raises(PlanMismatch, match="calls columns otherwise than"):
        drive(load("analyses"), plan, in_process({"a": party}))
    assert ledger.entries() == ()


@pytest.mark.guarantee
def test_analyses_split_their_data_alike() -> None:
    cards = tuple(Card(name, 60, COLUMNS, ("y",)) for name in ("a", "b"))
    sketches = {"name": "p", "model": "pride", "share": 0.7, "columns": ["age", "arm", "y"]}
    with pytest.raises(UsageError, match="analyses of one study split their data alike"):
        load("analyses").compile(msgspec.structs.replace(asked([LISTED[0], sketches]), parties=cards))


def test_a_policy_judges_the_model_and_the_trust_of_every_analysis() -> None:
    study = asked()
    plan = load("analyses").compile(study)
    opening = encode(plan.hash, "open", 0, OpenRequest(study))
    with pytest.raises(PolicyRefusal, match="does not list model 'bayes'"):
        people(study, models=frozenset({"analyses", "describe"}))["a"].answer(opening)
    people(study, models=frozenset({"bayes", "describe"}))["a"].answer(opening)
    trusting = [LISTED[0], {**LISTED[1], "trust": {"aggregation": "trusted"}}]
    study = asked(trusting)
    plan = load("analyses").compile(study)
    opening = encode(plan.hash, "open", 0, OpenRequest(study))
    with pytest.raises(PolicyRefusal, match="aggregation = 'trusted'"):
        people(study)["a"].answer(opening)
    people(study, trust=frozenset({"trusted"}))["a"].answer(opening)


def test_a_withdrawal_in_the_middle_stops_the_rest_and_debits_what_was_made() -> None:
    study = asked()
    model, plan, parties_ = load("analyses"), load("analyses").compile(study), people(study)
    exchange = in_process(parties_)

    def until_the_second(batch):
        if batch[0][0].step.startswith("stay: "):
            parties_["a"].ledger.withdraw(plan.hash)
        return exchange(batch)

    transcript = Transcript()
    with pytest.raises(PolicyRefusal, match="withdrew"):
        drive(model, plan, until_the_second, transcript)
    first = plan.analyses["baseline"]
    spent = parties_["a"].ledger.composition(Unit.RECORD, Scope.PARTY).epsilon(1e-6)
    assert spent == pytest.approx(first.cost(Unit.RECORD, "a").epsilon(1e-6))
    assert 0 < spent < plan.epsilon(1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_random_shares_of_random_models_cost_what_was_asked_and_ledgers_say_what_the_statement_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pool = [
        {"model": "describe", "columns": ["age", "arm"]},
        {"model": "describe", "columns": ["stay"]},
        {"model": "bayes", "parameters": {"response": "stay", "method": "moments"}},
        {"model": "bayes", "parameters": {"response": "age", "method": "mean"}},
        {"model": "glm", "parameters": {"response": "arm", "method": "mean"}},
    ]
    chosen = rng.permutation(len(pool))[: int(rng.integers(1, 5))]
    shares = rng.dirichlet(np.ones(chosen.size) * 3)
    listed = [
        {"name": f"n{k}", "share": float(share), **pool[j]} for k, (j, share) in enumerate(zip(chosen, shares, strict=True))
    ]
    epsilon, delta = float(rng.choice([0.3, 1.0, 4.0])), float(rng.choice([1e-6, 1e-4]))
    adjacency = str(rng.choice(["replace", "zero-out"]))
    study = asked(listed, epsilon=epsilon, delta=delta, adjacency=adjacency)
    plan = load("analyses").compile(study)
    assert 0.99 * epsilon < plan.epsilon(delta) <= epsilon * (1 + 1e-9)
    parties_ = people(study)
    drive(load("analyses"), plan, in_process(parties_))
    spent = max(party.ledger.composition(Unit.RECORD, Scope.PERSON).epsilon(delta) for party in parties_.values())
    assert spent == pytest.approx(plan.statement.epsilon_per_unit["record"], rel=1e-9)


@pytest.mark.long
@pytest.mark.slow
def test_an_analysis_without_a_result_leaves_the_others(monkeypatch: pytest.MonkeyPatch, world: Path) -> None:
    """Its budget is spent, its table says why, and everything else goes on."""
    real = analyses_fit.load

    def broken(name: str):
        model = real(name)
        if name != "describe":
            return model

        def coordinate(plan):
            yield from model.coordinate(plan)
            raise DataError("this cannot be computed")

        return replace(model, coordinate=coordinate)

    monkeypatch.setattr(analyses_fit, "load", broken)
    approve(world)
    shown = command(world, "run", "study.toml", *PARTIES, "--force")
    assert "no result: this cannot be computed" in shown
    assert "(intercept)" in shown
    assert "has no result: this cannot be computed" in command(
        world, "result", "study.run", "--analysis", "baseline", code=2
    )
    told = json.loads(command(world, "result", "study.run", "--json"))
    assert [one["failed"] for one in told["analyses"]] == ["this cannot be computed", ""]
    command(world, "report", "study.run")
    assert "No result: this cannot be computed" in (world / "study.run/report.html").read_text()
    (world / "study.run/transcript").unlink()  # and from the record alone
    assert "no result: this cannot be computed" in command(world, "result", "study.run")


def test_one_analysis_in_two_studies_has_two_noises() -> None:
    """Its plan holds the study that contains it, and noise is keyed by its plan."""
    one = load("analyses").compile(asked())
    other = load("analyses").compile(
        asked([LISTED[0], {**LISTED[1], "parameters": {"response": "age", "method": "moments"}}])
    )
    assert one.analyses["baseline"].releases == other.analyses["baseline"].releases
    assert one.analyses["baseline"].hash != other.analyses["baseline"].hash


@pytest.mark.guarantee
def test_epsilon_without_end_is_without_end_for_all() -> None:
    plan = load("analyses").compile(asked(epsilon=math.inf))
    assert all(math.isinf(inner.study.epsilon) for inner in plan.analyses.values())
    assert not plan.statement.holds


# --- in Python ------------------------------------------------------------------------------------------------------------------

KNOWN = {"age": (20, 90), "arm": ["new", "old"]}


def frame(rows: int = 3000) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    found = pd.DataFrame({"age": rng.uniform(20, 90, rows), "arm": rng.choice(["new", "old"], rows)})
    found["stay"] = np.clip(4 + 0.1 * found["age"] - 2 * (found["arm"] == "new") + rng.normal(0, 2, rows), 0, 20)
    found["died"] = (rng.random(rows) < 1 / (1 + np.exp(-(found["age"] - 70) / 12))).astype(int)
    return found


def baseline(data, **rows):
    return unpooled.describe(data[["age", "arm"]], KNOWN, **rows)


def stay(**changes):
    return unpooled.PrivateLinearRegression(bounds=KNOWN, y_bounds=(0, 20), formula="stay ~ age + arm", **changes)


def died(**changes):
    # Another order of columns, and another response than the other fit's: each analysis sees its own.
    return unpooled.PrivateGLM("logistic", bounds=KNOWN, formula="died ~ arm + age", classes=(0, 1), **changes)


@pytest.mark.long
@pytest.mark.slow
def test_fits_of_a_study_are_right_and_share_one_statement() -> None:
    data = frame()
    study = unpooled.Study({"b": baseline, "stay": stay(), "died": died()}, epsilon=8.0).fit(
        data, sites=np.repeat(["x", "y", "z"], 1000)
    )
    assert study["stay"].contrast("arm: old - new").terms[0].estimate == pytest.approx(2, abs=0.5)
    assert study["stay"].contrast("age").terms[0].estimate == pytest.approx(0.1, abs=0.02)
    assert study["died"].contrast("age").terms[0].estimate == pytest.approx(1 / 12, abs=0.03)
    assert study["b"]["pooled", "age"].mean.value == pytest.approx(55, abs=3)
    assert study.plan_.epsilon(study.plan_.study.delta) == pytest.approx(8.0, rel=1e-2)
    assert study.statement_.epsilon == 8.0
    assert "This analysis alone" in str(study["stay"].statement_)
    assert "one analysis alone" in str(study["stay"].statement_)
    alone = sum(study[name].plan_.study.epsilon for name in ("b", "stay", "died"))
    assert alone > 8.0  # shares add up in squares
    assert repr(study) == "Study(b, stay, died; epsilon=8)"


def test_an_estimator_of_a_study_can_be_saved_and_predicts(tmp_path: Path) -> None:
    data = frame()
    study = unpooled.Study([("stay", stay()), ("died", died())], epsilon=4.0, random_state=1).fit(data)
    study["stay"].save(tmp_path / "stay.model")
    again = unpooled.load(tmp_path / "stay.model")
    assert np.array_equal(again.predict(data[["age", "arm"]][:5]), study["stay"].predict(data[["age", "arm"]][:5]))


@pytest.mark.slow
def test_the_same_study_gives_the_same_numbers_and_other_shares_other_ones() -> None:
    data = frame()
    fits = [
        unpooled.Study({"b": baseline, "stay": stay()}, epsilon=2.0, random_state=0, shares=shares).fit(data)["stay"].coef_
        for shares in (None, [0.5, 0.5], {"stay": 0.5, "b": 0.5}, [0.2, 0.8])
    ]
    assert np.array_equal(fits[1], fits[2])
    assert not np.array_equal(fits[1], fits[3])


def test_a_budget_is_debited_once_for_all_analyses() -> None:
    data, budget = frame(), unpooled.Budget(1.0, 1e-5)
    study = unpooled.Study({"b": baseline, "stay": stay()}, epsilon=1.0, delta=1e-5, budget=budget).fit(data)
    assert budget.spent == pytest.approx(study.plan_.epsilon(1e-5))
    with pytest.raises(BudgetRefusal):
        unpooled.Study({"b": baseline, "stay": stay()}, epsilon=1.0, delta=1e-5, budget=budget).fit(data)


@pytest.mark.guarantee
def test_households_and_columns_of_parties() -> None:
    data = frame(600)
    ids = np.arange(600) // 2

    def together(data, **rows):
        return unpooled.describe(data[["age"]], (20, 90), unit="household", rows_per_household=2, **rows)

    study = unpooled.Study(
        [("b", together), ("stay", stay(unit="household", rows_per_household=2))], unit="household", random_state=0
    ).fit(data, unit_id=ids)
    assert study.plan_.study.parties[0].household.ids == 300
    assert study["b"]["all", "age"].count.value == pytest.approx(600, abs=300)

    def sketches(response):
        held = {"a": ["age"], "b": ["arm"]}
        return lambda data: unpooled.PrideRegressor(held, bounds=KNOWN).fit(data[["age", "arm"]], response)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = unpooled.Study(
            {"one": sketches(data["stay"]), "two": sketches(-data["stay"])}, unit="attribute", epsilon=20.0, random_state=0
        ).fit(data)
    one, two = (np.asarray(study[name].predict(data[["age", "arm"]])).mean() for name in ("one", "two"))
    assert one == pytest.approx(-two, rel=0.2)  # each label column stays that of its own analysis
    assert one > 5


@pytest.mark.parametrize(
    ("analyses", "words"),
    [
        ([], "at least one analysis"),
        ([stay(), stay()], "two analyses have one name"),
        ([("a", 3)], "not a int"),
        ([("a", lambda data: data)], "released nothing"),
        ([("a", stay(unit="attribute"))], "has unit = 'attribute', and the study 'record'"),
        ([("a", stay(random_state=5))], "a random_state of its own"),
        ([("a", stay(public_seed=5))], "has public_seed = 5"),
        ([("a", stay(budget=unpooled.Budget(1.0, 1e-6)))], "takes no budget of its own"),
        ([("a", baseline), ("b", lambda data: baseline(data[:100]))], "uses other rows of party 'all'"),
    ],
)
def test_what_is_no_study_is_refused_in_words(analyses, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        unpooled.Study(analyses).fit(frame(300))


@pytest.mark.guarantee
def test_shares_that_do_not_fit_are_refused() -> None:
    for shares, words in (([0.5, 0.4], "sum to 0.9"), ([1.0], "gives every analysis"), ({"b": 1.0}, "gives every analysis")):
        with pytest.raises(UsageError, match=words):
            unpooled.Study({"b": baseline, "stay": stay()}, shares=shares).fit(frame(300))


def test_a_study_that_is_not_fitted_and_a_name_that_it_does_not_have() -> None:
    study = unpooled.Study({"b": baseline})
    with pytest.raises(UsageError, match="not fitted"):
        study["b"]
    with pytest.raises(KeyError, match="no analysis 'c'"):
        study.fit(frame(300))["c"]


def test_one_estimator_that_stands_for_two_analyses_has_the_result_of_each() -> None:
    data = frame()
    one = unpooled.PrivateLinearRegression(
        bounds={"age": (20, 90), "arm": ["new", "old"]}, y_bounds=(0, 20), formula="stay ~ age"
    )
    study = unpooled.Study({"up": one.fit, "again": one.fit, "whole": one}, epsilon=50.0, random_state=0).fit(data)
    assert all(study[name].coef_[0] > 0 for name in ("up", "again", "whole"))
    assert len({id(study[name]) for name in ("up", "again", "whole")}) == 3
    assert len({study[name].plan_.hash for name in ("up", "again", "whole")}) == 3
    assert not hasattr(one, "coef_")
    # In functions it cannot be copied: the second fit would overwrite what the first one knows while it waits.
    fits = {"up": lambda data: one.fit(data.copy()), "down": lambda data: one.fit(data.assign(stay=20 - data["stay"]))}
    with pytest.raises(UsageError, match="'up' and 'down' fit one estimator: give each its own"):
        unpooled.Study(fits, epsilon=50.0, random_state=0).fit(data)


def test_every_analysis_is_fitted_once() -> None:
    """A fit that draws a sample, or counts its calls, asks the study that is run."""
    calls: list[str] = []

    def sampled(data):
        calls.append("fit")
        found = unpooled.describe(data[["stay"]].sample(300, random_state=len(calls)), {"stay": (0, 30)})
        calls.append("goes on")
        return found

    study = unpooled.Study({"one": sampled}, epsilon=50.0, random_state=0).fit(frame())
    assert calls == ["fit", "goes on"]
    assert study["one"].plan_.study.parties[0].rows == 300


def test_no_fit_waits_for_a_study_that_is_refused() -> None:
    before = threading.active_count()
    with pytest.raises(UsageError, match="shares gives every analysis"):
        unpooled.Study({"one": baseline, "two": baseline}, shares={"one": 1.0}).fit(frame())
    with pytest.raises(ZeroDivisionError):  # in the second analysis, while the first one waits
        unpooled.Study({"one": baseline, "two": lambda data: 1 / 0}).fit(frame())

    def stubborn(data):
        try:
            return baseline(data)
        except UsageError:
            return baseline(data)

    with pytest.raises(UsageError, match="shares gives every analysis"):
        unpooled.Study({"one": stubborn, "two": baseline}, shares={"one": 1.0}).fit(frame())
    for _ in range(100):
        if threading.active_count() <= before:  # a thread of another test may have ended too
            break
        time.sleep(0.05)
    assert threading.active_count() <= before


def test_an_analysis_that_fails_before_its_study_or_after_it_raises_its_own_error() -> None:
    def before(data):
        raise ZeroDivisionError

    def after(data):
        baseline(data)
        raise ZeroDivisionError

    for fit in (before, after):
        with pytest.raises(ZeroDivisionError):
            unpooled.Study({"one": fit}, random_state=0).fit(frame())


def test_what_is_paid_for_can_be_read_where_another_analysis_asked_twice() -> None:
    def twice(data):
        baseline(data)
        return baseline(data)

    study = unpooled.Study({"twice": twice, "once": baseline}, random_state=0)
    with pytest.raises(UsageError, match="an analysis asks one study"):
        study.fit(frame())
    assert study["once"]["all", "age"].mean.value == pytest.approx(55, abs=2)
    assert list(study.failed_) == ["twice"]


@pytest.mark.parametrize("analyses", [None, baseline, [("a", baseline, 1)]])
def test_analyses_of_a_wrong_form_are_refused_in_words(analyses) -> None:
    with pytest.raises(UsageError, match="analyses are a mapping"):
        unpooled.Study(analyses).fit(frame())


def test_shares_that_are_no_numbers_are_refused_in_words() -> None:
    for share in ("x", None):
        with pytest.raises(UsageError, match="shares gives every analysis"):
            unpooled.Study({"a": baseline}, shares={"a": share}).fit(frame())


def test_an_analysis_that_failed_says_so_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    real = analyses_fit.load

    def broken(name: str):
        def coordinate(plan):
            yield from real(name).coordinate(plan)
            raise ZeroDivisionError

        return real(name) if name != "describe" else replace(real(name), coordinate=coordinate)

    monkeypatch.setattr(analyses_fit, "load", broken)
    study = unpooled.Study({"b": baseline, "stay": stay()}, random_state=0).fit(frame(300))
    assert study.failed_ == {"b": "no result follows from these replies"}
    with pytest.raises(UnpooledError, match="analysis 'b' has no result"):
        study["b"]
    assert study["stay"].coef_.size


@pytest.mark.guarantee
def test_a_study_with_one_analysis_has_the_hash_that_it_had() -> None:
    """The fields of a study that later versions added are not hashed where they have their default."""
    plain = Study("describe", (Card("a", 60, COLUMNS),), 1.0, 1e-6, derived=())
    assert msgspec.to_builtins(plain)["within"] == ""
    with pytest.raises(UsageError, match="leave it out"):
        msgspec.structs.replace(plain, within="something")


@pytest.mark.guarantee
def test_what_an_analysis_cites_is_held_against_its_own_columns(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[list[tuple[str, ...]]] = []

    def cites(model, parameters, cards, folder):
        assert model
        held.append([tuple(column.name for column in card.columns) for card in cards])
        origin = ReleasedInput("bounds", "f" * 64, holds=True)
        return dict(parameters), (origin,)

    monkeypatch.setattr("unpooled.study.files.with_cited", cites)
    study = read_study(world / "study.toml")
    assert held == [[("age", "sex")] * 2, [("sex", "age")] * 2]
    assert len(study.origins) == 1
    assert [list(one["origins"]) for one in study.parameters["analyses"]] == [[0], [0]]


HELPED = [LISTED[0], {**LISTED[1], "helpers": ["registry"]}]


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("listed", "changes", "words"),
    [
        ([], {}, "lists at least one"),
        ([{**LISTED[0], "name": "a: b"}, LISTED[1]], {}, "the name of an analysis is"),
        ([{**LISTED[0], "name": "stay"}, LISTED[1]], {}, "2 analyses are called 'stay'"),
        ([{**LISTED[0], "model": "analyses"}, LISTED[1]], {}, "contains analyses itself"),
        ([{**LISTED[0], "model": "link"}, LISTED[1]], {}, "links rows"),
        (HELPED, {}, "names helper 'registry'"),
        ([{**LISTED[0], "origins": [0]}, LISTED[1]], {}, "names an origin"),
        (LISTED, {"trust": {"aggregation": "trusted"}}, "stands with it"),
        (LISTED, {"calibration": "published"}, "has no published form|in their sound forms"),
        ([{**LISTED[0], "share": 0.4}, LISTED[1]], {}, "sum to 1.1"),
        ([{k: v for k, v in LISTED[0].items() if k != "share"}, LISTED[1]], {}, "every analysis needs a share"),
        ([{**LISTED[0], "columns": ["age", "none"]}, LISTED[1]], {}, "uses column 'none', which no card declares"),
    ],
)
def test_a_text_that_is_no_study_of_several_analyses_is_refused(listed, changes, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load(asked(listed, **changes).row).compile(asked(listed, **changes))


@pytest.mark.guarantee
def test_without_a_delta_shares_are_parts_of_epsilon() -> None:
    pure = {"model": "stacking", "parameters": {"split": "features"}}
    cards = (Card("a", 60, COLUMNS[:1], ("y",)), Card("b", 60, COLUMNS[1:2], ("y",)))
    listed = [{"name": "one", "share": 0.25, **pure}, {"name": "two", "share": 0.75, **pure}]
    plan = load("analyses").compile(msgspec.structs.replace(asked(listed, delta=0.0), parties=cards))
    assert [inner.study.epsilon for inner in plan.analyses.values()] == pytest.approx([0.25, 0.75])
    assert plan.epsilon(0.0) == pytest.approx(1.0)
    with pytest.raises(UsageError, match="no analysis 'three'; its analyses are one, two"):
        plan.analysis("three")
    with pytest.raises(UsageError, match="none: it is one analysis"):
        plan.analyses["one"].analysis("three")


@pytest.mark.slow
def test_joint_moments_with_proofs_are_analyses_like_others() -> None:
    """A regression and correlations of columns at two parties with a helper: masks, proofs and shares of each are its own, and a replay has equal bits."""
    columns = {"east": (Column("age", 18.0, 100.0), Column("dose", 0.0, 4.0)), "west": (Column("pressure", 60.0, 240.0),)}
    rng, rows = np.random.default_rng(8), 40
    age, dose = rng.uniform(20, 95, rows), rng.uniform(0, 4, rows)
    held = {
        "east": Table({"age": age, "dose": dose}),
        "west": Table({"pressure": np.clip(90 + 0.6 * age + 5 * dose, 60, 240)}),
    }
    listed = [
        {
            "name": "fit",
            "model": "bayes",
            "parameters": {"response": "pressure", "split": "columns", "method": "moments"},
            "helpers": ["registry"],
        },
        {"name": "correlations", "model": "describe", "parameters": {"split": "columns"}, "helpers": ["registry"]},
    ]
    study = Study(
        "analyses",
        tuple(Card(name, rows, own) for name, own in columns.items()),
        10.0,
        1e-5,
        helpers=(HelperCard("registry"),),
        parameters={"analyses": listed},
        derived=(),
    )
    model = load("analyses")
    plan = model.compile(study)
    assert plan.joint == "allowed"
    assert 9.8 < plan.epsilon(1e-5) <= 10
    parties_ = {}
    for card in study.members:
        ledger = Ledger.in_memory(root_key=bytes(32))
        rules = Policy.in_process()
        table = held.get(card.name, NoRows())
        parties_[card.name] = Party(card.name, table, card, ledger, KeySource(ledger.root_key), rules, load)
    transcript = Transcript()
    found = drive(model, plan, in_process(parties_), transcript).result
    assert found == drive(model, plan, recorded_only, transcript.replay()).result
    for name in columns:
        spent = parties_[name].ledger.composition(Unit.RECORD, Scope.PERSON).epsilon(1e-5)
        assert spent == pytest.approx(plan.epsilon(1e-5), rel=1e-9)
    assert found["fit"].coefficients
    assert len(found["correlations"].summaries) == 3
