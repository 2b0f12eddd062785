"""Hospitals and a registry in one plan: each hospital has places in common with the registry alone, totals add up, and nobody learns who is in the study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from hidden_members import NAME, hidden_study, hub_world, placed_world
from joint_members import MODEL, people
from tests.commands import command
from tests.hidden_world import plant_few

import unpooled
from unpooled import Bounds, PrivateGLM
from unpooled.errors import PlanMismatch, UsageError
from unpooled.privacy.places import NAMES, Places, set_of
from unpooled.privacy.table import HubTable, NoRows, Table
from unpooled.products import moments as coordinator
from unpooled.products.masking import spots_of
from unpooled.products.sums import CONSTANT_STEPS, Side
from unpooled.protocol.local import drive, in_process


def opened(study: Any, tables: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a run opened: the integers of its second moments, the standards, and the result."""
    seen: dict[str, Any] = {}
    real = coordinator.moments_of

    def spy(design: Any, standards: Any, values: Any, deviations: Any, **more: Any) -> Any:
        seen.update(design=design, standards=standards, values=values)
        return real(design, standards, values, deviations, **more)

    monkeypatch.setattr(coordinator, "moments_of", spy)
    seen["result"] = drive(MODEL, MODEL.compile(study), in_process(people(study, tables))).result
    monkeypatch.setattr(coordinator, "moments_of", real)
    return seen


@pytest.mark.guarantee
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 0, 1)])
def test_the_total_is_that_of_all_people_in_common_in_any_order_of_lists(
    order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    cards, own, tables, common = hub_world()
    study = hidden_study(tuple(cards[k] for k in order), expected=60)
    seen = opened(study, own, monkeypatch)
    design, everybody = seen["design"], np.concatenate(list(common.values()))
    joined = {name: tables["p1" if name == "p1" else "p0"].take(everybody) for name in design.parties}
    exact = design.shape.exact([design.coded(name, joined[name], seen["standards"][name]) for name in design.parties])
    assert np.array_equal(seen["values"], exact)
    assert exact[-1] == everybody.size * CONSTANT_STEPS**2
    assert seen["result"].moments.rows == everybody.size


@pytest.mark.guarantee
@pytest.mark.parametrize("hub", [True, False])
def test_a_helper_that_kept_the_sets_of_its_link_gives_the_same_totals(hub: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a helper keeps in a file and what a table holds are the same places; one that keeps fewer parties answers nothing."""
    cards, own, *_ = hub_world() if hub else placed_world()
    study = hidden_study(cards, expected=40 if hub else 30)
    names = [card.name for card in cards]
    members = people(study, {**own, "helper": NoRows()})
    arrays = [name for name in names if name != "p1"] if hub else [""]

    def keep(known: list[str]) -> None:
        keeper, link = members["helper"].keeper, NAME.partition(":")[2]
        keeper.keep(link, NAMES, np.frombuffer("\n".join(known).encode(), dtype=np.uint8))
        for (sender, other), places in own["helper"].given.items():
            if sender in known:
                array = arrays.index(sender if other == "p1" else other) if hub else 0
                keeper.keep(link, set_of(known.index(sender), array), places)

    keep(names)
    seen: list[np.ndarray] = []
    monkeypatch.setattr(coordinator, "moments_of", noting(seen, coordinator.moments_of))
    drive(MODEL, MODEL.compile(study), in_process(members))
    drive(MODEL, MODEL.compile(study), in_process(people(study, own)))
    assert np.array_equal(*seen)
    members = people(study, {**own, "helper": NoRows()})
    keep(["p1", "other"])
    with pytest.raises(PlanMismatch, match="does not know the places"):
        drive(MODEL, MODEL.compile(study), in_process(members))


def noting(seen: list[np.ndarray], real: Any) -> Any:
    def spy(design: Any, standards: Any, values: Any, deviations: Any, **more: Any) -> Any:
        seen.append(values)
        return real(design, standards, values, deviations, **more)

    return spy


@pytest.mark.long
def test_ten_hospitals_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cards, own, tables, common = hub_world(held=(9, 12, 7, 15, 3, 8, 20, 5, 11, 10), registry=85, seed=4)
    seen = opened(hidden_study(cards, expected=70), own, monkeypatch)
    design, everybody = seen["design"], np.concatenate(list(common.values()))
    joined = {name: tables["p1" if name == "p1" else "p0"].take(everybody) for name in design.parties}
    exact = design.shape.exact([design.coded(name, joined[name], seen["standards"][name]) for name in design.parties])
    assert np.array_equal(seen["values"], exact)
    assert (len(common), exact[-1]) == (10, everybody.size * CONSTANT_STEPS**2)


def test_every_block_is_of_one_hospital_and_the_registry() -> None:
    cards, own, *_ = hub_world()
    design = MODEL.compile(hidden_study(cards, 1.0, expected=60)).design
    assert (design.hub, design.hospitals, design.actors) == ("p1", ("h0", "h1", "h2"), ("h0", "h1", "h2", "p1"))
    assert design.parties == ("h0", "p1")
    ends = np.cumsum(design.arrays)
    assert ends[-1] == design.rows == own["p1"].n_rows
    for number in range(len(design.rounds)):
        for spot in spots_of(design, number):
            hospital = next(name for name in spot.side if name.startswith("h") and name != "helper")
            k = design.hospitals.index(hospital)
            assert ends[k] - design.arrays[k] <= spot.first < spot.last <= ends[k]
            assert design.begins(spot) == ends[k] - design.arrays[k]
            assert set(spot.side) == {hospital, "p1", "helper"}
    assert design.side_at(Side("p1", "h0", "helper"), int(ends[0])) == Side("p1", "h1", "helper")
    assert {design.sent(name) for name in design.hospitals} == {design.sent("h0")}


def test_the_statement_counts_a_person_at_every_hospital_if_the_helper_lies() -> None:
    cards, *_ = hub_world()
    plan = MODEL.compile(hidden_study(cards, 1.0, expected=60))
    assert "helper for h0 and p1; helper for h1 and p1; helper for h2 and p1" in "\n".join(plan.notes)
    assert "h0, h1, h2 each with p1" in plan.notes[0]
    (said,) = [str(one) for one in plan.assumptions if "else epsilon is" in str(one)]
    assert float(said.rpartition(" ")[2].rstrip(".")) > 4  # four times the distance


@pytest.mark.guarantee
def test_parties_that_are_no_hospitals_and_registry_are_refused() -> None:
    cards, own, tables, _ = hub_world()
    other = msgspec.structs.replace(cards[1], columns=cards[1].columns[:1])
    with pytest.raises(UsageError, match="hospitals, which all declare the same columns"):
        MODEL.compile(hidden_study((cards[0], other, cards[2], cards[3]), 1.0, expected=60))
    few = msgspec.structs.replace(cards[3], rows=cards[3].rows - 1)
    with pytest.raises(UsageError, match="the cards that one hidden link wrote"):
        MODEL.compile(hidden_study((*cards[:3], few), 1.0, expected=60))
    study = hidden_study(cards, 1.0, expected=60)
    arrays = {name: one.places for name, one in own["p1"].arrays.items() if name != "h2"}
    held = {name: own["p1"][name] for name in own["p1"].names}
    with pytest.raises(PlanMismatch, match="no places in this array"):
        drive(MODEL, MODEL.compile(study), in_process(people(study, {**own, "p1": HubTable(Table(held), arrays)})))
    with pytest.raises(PlanMismatch, match="does not know the places"):
        drive(MODEL, MODEL.compile(study), in_process(people(study, {**own, "helper": tables["helper"]})))


@pytest.mark.guarantee
def test_rows_of_a_registry_have_a_place_in_every_array() -> None:
    table = Table({"a": [1.0, 2.0]})
    arrays = {name: Places(NAME, 5, np.array([k, 4]), np.array([k, 4])) for k, name in enumerate(("h0", "h1"))}
    hub = HubTable(table, arrays)
    assert (hub.n_rows, hub.linked, hub.complete, hub["a"].tolist()) == (10, "ab" * 32, False, [1.0, 2.0])
    assert hub.owners.tolist() == [0, 1]
    assert hub.digest != HubTable(table, {**arrays, "h1": Places(NAME, 5, np.array([2, 4]), np.array([2, 4]))}).digest
    hub.verify()
    hub.close()


# --- in Python -----------------------------------------------------------------------------------------------------------------


def frames(seed: int = 0) -> tuple[dict[str, pd.DataFrame], Bounds, pd.DataFrame]:
    """Three hospitals with patients of their own, a registry, the bounds, and everybody in common."""
    rng = np.random.default_rng(seed)
    n = 700
    everybody = pd.DataFrame({"id": [f"p{k}" for k in range(n)], "age": rng.uniform(20, 90, n)})
    everybody["treatment"] = rng.choice(["usual", "new"], n)
    u = (everybody.age - 55) / 20 - 0.8 * (everybody.treatment == "new")
    everybody["dead"] = np.where(u + rng.logistic(size=n) > 0, "yes", "no")
    parts, known = np.split(rng.permutation(n)[:600], [150, 400]), rng.permutation(n)[:620]
    held = {
        f"hospital {k}": everybody.iloc[part][["id", "age", "treatment"]].reset_index(drop=True)
        for k, part in enumerate(parts)
    }
    held["registry"] = everybody.iloc[known][["id", "dead"]].reset_index(drop=True)
    return (
        held,
        Bounds({"age": (0, 100), "treatment": ["usual", "new"]}),
        everybody.iloc[np.intersect1d(np.concatenate(parts), known)],
    )


@pytest.mark.slow
def test_odds_of_three_hospitals_and_a_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_few(monkeypatch)
    held, bounds, both = frames()
    link = unpooled.hidden_link(held, on="id", hub="registry", epsilon=5.0, random_state=0)
    assert link.parties == ("hospital 0", "hospital 1", "hospital 2", "registry")
    model = PrivateGLM("logistic", bounds=bounds, epsilon=float("inf"), expected=500, classes=["no", "yes"], random_state=0)
    model.fit(held, "dead", on=link)
    from sklearn.linear_model import LogisticRegression

    x = np.column_stack([both.age, both.treatment == "new"])
    known = LogisticRegression(C=np.inf, max_iter=5000, tol=1e-10).fit(x, both.dead == "yes").coef_[0]
    lines = {line.term: line.estimate for line in model.summary().terms}
    # The same weighted equation is solved, not the likelihood: near it where the law is logistic.
    assert [lines["age"], lines["treatment: new - usual"]] == pytest.approx(known, abs=0.15)
    assert "hospital 0, hospital 1, hospital 2 each with registry" in model.plan_.notes[0]
    assert {card.name for card in model.plan_.study.parties} == set(link.parties)
    odd = {**held, "hospital 1": held["hospital 1"].rename(columns={"age": "years"})}
    with pytest.raises(UsageError, match="hospitals have the same columns"):
        model.fit(odd, "dead", on=link)
    with pytest.raises(UsageError, match="none of the frames"):
        unpooled.hidden_link(held, on="id", hub="nobody")


@pytest.mark.slow
def test_hospitals_and_a_registry_from_files_to_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_few(monkeypatch)
    held, _, _ = frames()
    names = ("north", "south", "registry")
    for name, frame in zip(names, (held["hospital 0"], held["hospital 1"], held["registry"]), strict=True):
        (tmp_path / name).mkdir()
        frame.to_csv(tmp_path / name / "data.csv", index=False)
        declared = ("dead=no,yes",) if name == "registry" else ("age=0:100", "treatment=usual,new")
        words = [word for column in declared for word in ("--column", column)]
        command(
            tmp_path,
            "party",
            "init",
            f"{name}/data.csv",
            "--name",
            name,
            "--cap",
            "700",
            "--id",
            "id",
            *words,
            "--epsilon",
            "9",
            "--folder",
            name,
        )
        config = tmp_path / name / "party.toml"
        config.write_text(
            config.read_text().replace('psi = "no"', 'psi = "hidden"').replace('joint = "no"', 'joint = "allowed"')
        )
        command(tmp_path, "party", "card", "--config", f"{name}/party.toml")
    command(tmp_path, "party", "init", "--helper", "trust", "--folder", "trust")
    cards = [word for name in (*names, "trust") for word in ("--card", f"{name}/{name}.card.toml")]
    command(tmp_path, "new", "link", "--hidden", *cards, "--epsilon", "3", "--out", "link.toml")
    text = (
        (tmp_path / "link.toml")
        .read_text()
        .replace('# hub = "..."', 'hub = "registry"')
        .replace('# several = "one"', 'several = "one"')
    )
    (tmp_path / "link.toml").write_text(text)
    everybody = [word for name in (*names, "trust") for word in ("--party", f"{name}/party.toml")]
    for name in (*names, "trust"):
        command(tmp_path, "party", "check", "link.toml", "--config", f"{name}/party.toml", "--approve")
    command(tmp_path, "link", "link.toml", *everybody)
    linked = [word for name in ("registry", "north", "south") for word in ("--card", f"{name}/linked/{name}.card.toml")]
    command(tmp_path, "new", "glm", *linked, "--card", "trust/trust.card.toml", "--epsilon", "6", "--out", "odds.toml")
    text = (
        (tmp_path / "odds.toml")
        .read_text()
        .replace('response = "y"', 'response = "dead"')
        .replace("# expected = 0", "expected = 340")
    )
    (tmp_path / "odds.toml").write_text(text)
    own = [
        word
        for name in ("registry/linked", "north/linked", "south/linked", "trust")
        for word in ("--party", f"{name}/party.toml")
    ]
    for name in ("registry/linked", "north/linked", "south/linked", "trust"):
        command(tmp_path, "party", "check", "odds.toml", "--config", f"{name}/party.toml", "--approve")
    table = command(tmp_path, "run", "odds.toml", *own, "--out", "odds.run", "--force")
    for words in ("age", "people are at both parties", "trust works with no party"):
        assert words in table
    assert "written" in command(tmp_path, "report", "odds.run")
    assert "p12" not in (tmp_path / "odds.run/report.html").read_text()
