"""Previews: a plan's own conversation on simulated rows of the declared shape, marked everywhere, and nothing is spent."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from commands import command, two_parties

from unpooled.errors import UsageError
from unpooled.models import load
from unpooled.privacy.accounting import gaussian_mu
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.plan import Card, Household, Plan, Study
from unpooled.report import preview as previews
from unpooled.report.preview import Preview, preview
from unpooled.study.made_up import Truth, made_up

COLUMNS = (
    Column("age", 18.0, 100.0),
    Column("dose", 0.0, 4.0, missing="absent"),
    Column("smoker", categories=("no", "yes", "former")),
    Column("died", 0.0, 1.0),
)


def plan_of(rows: int = 3000, model: str = "describe", **fields: object) -> Plan:
    cards = (Card("north", rows, COLUMNS), Card("<b>south</b>", rows // 2, COLUMNS))
    return load(model).compile(Study(model, cards, 1.0, 1e-6, derived=(), **fields))


def results_of(page: str) -> str:
    return page.split("<h2>SIMULATED results</h2>")[1].split("</section>", maxsplit=1)[0]


def test_simulated_columns_have_the_law_that_the_page_states() -> None:
    study = plan_of(20_000).study
    _, tables = made_up(load("describe"), study, 20_000, 3, Truth())
    table = tables["north"]
    age, dose, died = (np.asarray(table[name], dtype=float) for name in ("age", "dose", "died"))
    assert np.mean(age) == pytest.approx(59.0, abs=0.5)
    assert np.std(age) == pytest.approx(41 / 3, rel=0.03)
    assert np.isnan(dose).mean() == pytest.approx(0.1, abs=0.01)
    there = ~np.isnan(dose)
    assert np.corrcoef(age[there], dose[there])[0, 1] == pytest.approx(0.3, abs=0.03)
    assert set(died) == {0.0, 1.0}
    assert np.corrcoef(age, died)[0, 1] > 0.15
    shares = [np.mean(np.asarray(table["smoker"]) == one) for one in ("no", "yes", "former")]
    assert shares == pytest.approx([1 / 3] * 3, abs=1e-3)
    assert np.mean(age) != np.mean(np.asarray(tables["<b>south</b>"]["age"], dtype=float))


@pytest.mark.slow
def test_columns_of_the_same_people_share_their_factor_and_labels_follow_it() -> None:
    cards = (
        Card("clinic", 5000, (Column("age", 0.0, 100.0),), ("y",)),
        Card("lab", 5000, (Column("crp", 0.0, 9.0),), ("y",)),
    )
    study = Study("pride", cards, 1.0, 1e-6, unit="attribute", derived=(), parameters={"sketch_dim": 2})
    _, tables = made_up(load("pride"), study, 5000, 0, Truth())
    age, crp, y = tables["clinic"]["age"], tables["lab"]["crp"], tables["clinic"]["y"]
    assert np.corrcoef(age, crp)[0, 1] == pytest.approx(0.3, abs=0.05)
    assert set(y) == {-1.0, 1.0}
    assert np.array_equal(y, tables["lab"]["y"])
    assert np.corrcoef(age, y)[0, 1] > 0.15
    counts = msgspec.structs.replace(study, parameters={"sketch_dim": 2, "family": "poisson"})
    _, tables = made_up(load("pride"), counts, 5000, 0, Truth())
    assert np.corrcoef(tables["clinic"]["age"], tables["lab"]["y"])[0, 1] > 0.15
    found = Preview.of(load("pride").compile(msgspec.structs.replace(study, epsilon=9.0)))
    assert found.declared == found.simulated == 5000  # people, not rows of all parties
    assert set(found.kept) == {"clinic", "lab"}
    page = previews.page_of_preview(found)
    assert "kept by clinic alone" in results_of(page)
    assert '<section class="verdict caution">' in page  # one value is promised much, the whole person little
    assert "for the whole person.</strong>" in page


@pytest.mark.long
@pytest.mark.slow
def test_every_figure_and_table_is_marked_and_the_promise_is_the_plan_s_own() -> None:
    plan = plan_of()
    page = preview(plan)
    results = results_of(page)
    assert results.count("<svg") > 0
    for svg in re.findall(r"<svg.*?</svg>", results, flags=re.DOTALL):
        assert svg.count(">SIMULATED") == 2  # above the drawing, and across it
        assert 'aria-label="SIMULATED, of made-up data. ' in svg
        width, above = re.search(r'width="([\d.]+)pt" height="[\d.]+pt" viewBox="0 -(\d+) ', svg).groups()
        assert float(width) > 0
        assert int(above) > 0
    assert results.count("<table") == results.count("<caption>SIMULATED") > 0
    assert "<b>south" not in page
    assert page.index("SIMULATED: every result on this page comes from made-up data") < page.index("verdict good")
    assert plan.hash in page
    assert plan.statement.headline in page.replace("&#39;", "'")
    assert "public seed. This is a simulation and protects nobody" not in page
    assert "4,500 rows; 4,500 were simulated" in page
    assert "Privacy officer, date" not in page
    assert page == preview(plan)
    rest = page.replace(results, "")
    assert all("SIMULATED" not in svg for svg in re.findall(r"<svg.*?</svg>", rest, flags=re.DOTALL))


def test_no_ledger_is_opened_and_no_warning_of_a_fit_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(Ledger, "open", never)
    monkeypatch.setattr(Ledger, "create", never)
    for _ in range(2):
        assert Preview.of(plan_of()).terms


@pytest.mark.slow
def test_of_many_rows_a_part_is_simulated_with_noise_as_large_a_part_of_every_total() -> None:
    plan = plan_of(4_000_000)
    found = Preview.of(plan)
    assert found.declared == 6_000_000
    assert found.simulated * len(COLUMNS) == pytest.approx(2_000_000, rel=1e-3)
    (words,) = found.differences
    assert "Only 8.33 % of the rows were simulated" in words
    factor = found.declared / found.simulated
    assert gaussian_mu(found.run.plan.study.epsilon, 1e-6) == pytest.approx(gaussian_mu(1.0, 1e-6) * factor, rel=1e-3)
    # The error that privacy adds to a mean falls like 1/n: of the part it is what all rows would have.
    whole = Preview.of(plan_of(40_000))
    assert whole.differences == ()
    few, many = ({t.term: t.privacy for t in one.terms if t.privacy}["age: mean"] for one in (whole, found))
    assert few / many == pytest.approx(100, rel=0.1)
    assert previews._scaled(1.0, 0.0, 4.0) == 4.0
    assert previews._scaled(np.inf, 1e-6, 4.0) == np.inf
    with pytest.raises(UsageError, match="too many to simulate"):
        Preview.of(load("describe").compile(msgspec.structs.replace(plan_of(1_900_000_000).study, epsilon=9.0)))


def test_households_keep_their_rows_and_give_up_ids() -> None:
    card = Card("north", 60, COLUMNS, household=Household("family", 20, 3))
    assert previews._part(card, 0.01) == card
    large = Card("north", 30_000, COLUMNS, household=Household("family", 10_000, 3))
    assert previews._part(large, 0.01).household.ids == 100
    assert previews._part(large, 0.01).rows == 300


def test_what_cannot_be_previewed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="links rows"):
        Preview.of(replace(plan_of(), links=True))

    def refused(*_: object, **__: object) -> None:
        raise UsageError("these rows are <not> enough")

    monkeypatch.setattr(previews, "run_in_process", refused)
    found = Preview.of(plan_of())
    assert (found.run, found.terms, found.failed) == (None, (), "these rows are <not> enough")
    assert "No result: these rows are &lt;not&gt; enough" in results_of(previews.page_of_preview(found))


def test_other_releases_than_the_plan_has_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    found = Preview.of(replace(plan, releases=plan.releases[:1]))
    assert found.differences == ("With fewer rows the model would choose other releases than this plan has, and it did.",)


@pytest.mark.slow
def test_the_command_writes_the_page_and_opens_no_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = two_parties(tmp_path)
    ledgers = {path: path.read_bytes() for path in world.rglob("*") if path.is_file() and "ledger" in path.name}
    assert ledgers
    printed = command(world, "plan", "study.toml", "--preview")
    assert "Preview on SIMULATED data (500 of 500 rows), for which nothing was spent: study.preview.html" in printed
    assert "SIMULATED results" in (world / "study.preview.html").read_text()
    data = json.loads(command(world, "plan", "study.toml", "--preview", "--out", "p.html", "--json"))["preview"]
    assert (data["written"], data["simulated_rows"], data["failed"]) == ("p.html", 500, "")
    assert "age: mean" in {term["term"] for term in data["terms"]}
    assert (world / "p.html").is_file()
    assert "preview" not in json.loads(command(world, "plan", "study.toml", "--json"))
    assert {path: path.read_bytes() for path in ledgers} == ledgers
    assert "give both, or neither" in command(world, "plan", "study.toml", "--out", "p.html", code=2)
