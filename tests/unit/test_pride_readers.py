"""PRIDE plans, pays for and sends no sketch that nobody reads, in any plan; and whoever reads gets all others' (C4)."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from unpooled import PrideRegressor
from unpooled.errors import PlanMismatch, UsageError
from unpooled.models import load
from unpooled.models.pride.plan import Folds, Parameters, PenaltyLosses, Predicted, Sketch, parts_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Plan, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Scope, Unit
from unpooled.protocol.conversation import find_step
from unpooled.protocol.identity import MemoryKeeper
from unpooled.protocol.local import run_in_process
from unpooled.protocol.messages import Array, Disclosed, Entrusted, Public, Released

MODEL = load("pride")
ROWS, DELTA = 12, 1e-6


def random_study(seed: int) -> Study:
    """Parties with columns of their own and shared ones, some of which know the response, in every kind of plan."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 5))
    names = [f"p{k}" for k in range(count)]
    knows = rng.random(count) < rng.choice([0.3, 0.7])
    knows[int(rng.integers(count))] = True
    shared = rng.random(count) < rng.choice([0.0, 0.5])
    cards = []
    for k, name in enumerate(names):
        columns = [Column(f"{name}{j}", -1.0, 1.0) for j in range(int(rng.integers(1, 4)))]
        columns += [Column("shared", -1.0, 1.0)] if shared[k] else []
        cards.append(Card(name, ROWS, tuple(columns), ("y",) if knows[k] else ()))
    parameters: dict[str, object] = {"sketch_dim": int(rng.integers(0, 3)), "sketch": str(rng.choice(["srht", "gaussian"]))}
    if max(len(card.columns) for card in cards) == 1:  # a column is sketched to one at most
        parameters["sketch_dim"] = min(parameters["sketch_dim"], 1)
    if rng.random() < 0.3:
        parameters["public"] = [f"{rng.choice(names)}0"]
    trust = {}
    kind = rng.choice(["fit", "predict", "publish", "global"])
    if kind == "predict":
        parameters["fitted"] = "0" * 64
        if rng.random() < 0.7:
            parameters["predicting"] = [n for n in names if rng.random() < 0.5]
    elif kind == "publish":
        parameters |= {"publish": 0.5, "alpha": 3.0, "fit_intercept": False, "noise_model": "plain", "response_bound": 2.0}
    elif kind == "global":
        parameters["alpha"], trust = "global-cv", {"cross-validation": "trusted"}
    unit = str(rng.choice(["record", "attribute"]))
    return Study("pride", tuple(cards), 1.0, DELTA, unit=unit, parameters=parameters, trust=trust, derived=())


def conversation(plan: Plan) -> dict[str, dict[str, set[str]]]:
    """Who is shown whose sketch and disclosed columns, as the coordinator has it: reader -> kind -> senders."""
    shown: dict[str, dict[str, set[str]]] = {}
    held = {part.card.name: part for part in parts_of(plan.study)}
    talk, replies = MODEL.coordinate(plan), None
    while True:
        try:
            asks = talk.send(replies)
        except StopIteration:
            return shown
        replies = []
        for ask in asks:
            for received in getattr(ask.payload, "received", ()):
                assert received.party != ask.to
                into = shown.setdefault(ask.to, {"sketch": set(), "disclosed": set()})
                into["sketch"] |= {received.party} if received.sketch else set()
                into["disclosed"] |= {received.party} if received.disclosed else set()
            own = [r for r in plan.releases if r.party == ask.to and r.step == ask.step]
            released = tuple(Released(r.name, 0, Array.of(np.zeros(r.size))) for r in own)
            part = held[ask.to]
            if ask.step == "sketch":
                columns = part.public.names
                disclosed = (
                    (Disclosed(columns, Array.of(np.zeros((ROWS, len(columns))))),) if columns and part.is_read else ()
                )
                replies.append(Sketch(released, disclosed))
            elif ask.step == "folds":
                replies.append(Folds(Entrusted("cross-validation", Array.of(np.zeros((len(ask.payload.alphas), ROWS))))))
            elif ask.step == "score":
                replies.append(PenaltyLosses(Entrusted("cross-validation", Array.of(np.zeros(41)))))
            elif ask.step == "predict":
                replies.append(Predicted(Public(ROWS)))
            else:
                replies.append(find_step(MODEL, "estimate").reply(released))


@pytest.mark.parametrize("seed", range(150))
def test_every_planned_sketch_has_a_reader_and_every_reader_all_sketches(seed: int) -> None:
    study = random_study(seed)
    plan = MODEL.compile(study)
    shown = conversation(plan)
    parameters: Parameters = msgspec.convert(study.parameters, Parameters)
    names = [card.name for card in study.parties]
    readers = (
        set(parameters.predicting or names)
        if parameters.fitted
        else {card.name for card in study.parties if "y" in card.labels}
    )
    sending = {r.party for r in plan.releases if r.name == "sketch"}
    assert sending == {party for into in shown.values() for party in into["sketch"]}
    disclosing = {part.card.name for part in parts_of(study) if part.public.columns and readers - {part.card.name}}
    for reader in readers:
        into = shown.get(reader, {"sketch": set(), "disclosed": set()})
        could = {
            p.card.name for p in parts_of(study) if p.card.name != reader and p.private.columns and parameters.sketch_dim
        }
        assert into["sketch"] == could
        assert into["disclosed"] == disclosing - {reader}
    assert plan.epsilon(DELTA) <= 1.0


@pytest.mark.parametrize("unit", ["record", "attribute"])
@pytest.mark.parametrize("seed", range(60))
def test_the_whole_budget_goes_to_what_is_read(seed: int, unit: str) -> None:
    study = msgspec.structs.replace(random_study(seed), unit=unit)
    plan = MODEL.compile(study)
    spent = plan.epsilon(DELTA)
    assert spent <= 1.0
    sketches = [r for r in plan.releases if r.name == "sketch"]
    # Grids and flooring cost a little; where columns are shared, or coefficients published too, somebody may be part of fewer releases.
    if sketches and unit == "record" and len(sketches) == len(plan.releases):
        assert spent > 0.999


def two(knowing: tuple[str, ...], **parameters) -> Study:
    cards = tuple(Card(n, 30, (Column(f"x{n}", -1.0, 1.0),), ("y",) if n in knowing else ()) for n in "abc")
    fields = {"unit": "record", "parameters": {"sketch_dim": 1, **parameters}, "simulation_seed": 1}
    return Study("pride", cards, 1.0, DELTA, derived=(), **fields)


def test_the_only_party_that_estimates_pays_nothing_and_the_others_need_less_noise() -> None:
    alone, both = MODEL.compile(two(("a",))), MODEL.compile(two(("a", "b")))
    assert {r.party for r in alone.releases} == {"b", "c"}
    assert {r.party for r in both.releases} == {"a", "b", "c"}
    scales = [plan.release("c", "sketch").scale for plan in (alone, both)]
    assert scales[1] / scales[0] == pytest.approx(math.sqrt(3 / 2), rel=1e-3)
    assert alone.cost(Unit.RECORD, "a", Scope.PARTY).epsilon(DELTA) == 0
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (30, 3))
    tables = {n: Table({f"x{n}": X[:, k], **({"y": X.sum(axis=1)} if n == "a" else {})}) for k, n in enumerate("abc")}
    run = run_in_process(MODEL, alone, tables, Policy.in_process(), load)
    assert [entry.key.name for entry in run.ledger if entry.kind == "charge"] == ["sketch", "sketch"]
    assert run.outcome.result.estimated == ("a",)
    # New rows at the only party that can predict them: the others alone send.
    cards = tuple(msgspec.structs.replace(card, labels=()) for card in alone.study.parties)
    asked = msgspec.structs.replace(two(("a",), fitted=alone.hash, predicting=["a"]), parties=cards)
    new = MODEL.compile(asked)
    assert {r.party for r in new.releases} == {"b", "c"}
    fresh = {n: Table({f"x{n}": X[:, k]}) for k, n in enumerate("abc")}
    keepers = {n: MemoryKeeper(dict(k.items())) for n, k in run.kept.items()}
    again = run_in_process(MODEL, new, fresh, Policy.in_process(), load, keepers)
    assert again.kept["a"].kept(new.hash, "predictions").shape == (30,)
    assert not again.kept["b"].has(new.hash, "predictions")


@pytest.mark.guarantee
def test_only_who_is_named_predicts() -> None:
    from unpooled.models.pride.plan import PredictRequest
    from unpooled.privacy.ledger import Ledger
    from unpooled.privacy.noise import KeySource
    from unpooled.protocol.conversation import OpenRequest
    from unpooled.protocol.messages import encode
    from unpooled.protocol.party import Party

    study = two((), fitted="0" * 64, predicting=["a"])
    plan, ledger = MODEL.compile(study), Ledger.in_memory()
    table = Table({"xb": np.linspace(-1, 1, 30)})
    party = Party("b", table, study.parties[1], ledger, KeySource(ledger.root_key), Policy.in_process(), load)
    party.answer(encode(plan.hash, "open", 0, OpenRequest(study)))
    with pytest.raises(PlanMismatch, match="predicts nothing"):
        party.answer(encode(plan.hash, "predict", 0, PredictRequest(())))
    with pytest.raises(UsageError, match="no party of the study"):
        MODEL.compile(two((), fitted="0" * 64, predicting=["z"]))
    with pytest.raises(UsageError, match="needs fitted"):
        MODEL.compile(two(("a",), predicting=["a"]))


def test_the_estimators_party_that_predicts_releases_nothing() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 6))
    model = PrideRegressor(parties=3, bounds=(-1, 1), epsilon=5.0, sketch_dim=2, unit="record").fit(X, X[:, 0])
    assert {r.party for r in model.plan_.releases} == {"party0", "party1", "party2"}
    model.predict_at("party1", X[:9])
    assert {r.party for r in model.prediction_plan_.releases} == {"party0", "party2"}
    assert sum(entry.kind == "charge" for entry in model.prediction_ledger_) == 2
    assert PrideRegressor(parties=1, bounds=(-1, 1)).plan(60, 6).releases == ()
