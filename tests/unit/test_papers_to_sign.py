"""Every sentence of the papers that names columns, numbers, recipients, colours or counts, held against a run of each split (P17).

The papers are dossier, report, register, the console's page and the lines of `party check`. What is true is read off the run: the messages of
its transcript, the columns that its parties' tables were asked for, the ledgers.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from unpooled.evidence.document import Facts, markdown
from unpooled.evidence.document import page as document_page
from unpooled.evidence.dossier import dossier
from unpooled.evidence.record import Answers, record
from unpooled.models import load
from unpooled.privacy.plan import BETWEEN, Plan
from unpooled.privacy.policy import Policy
from unpooled.privacy.study import TRUSTING
from unpooled.privacy.unit import Scope
from unpooled.protocol.conversation import find_step
from unpooled.protocol.identity import Identity
from unpooled.protocol.local import run_in_process
from unpooled.protocol.messages import Disclosed, Entrusted, Masked, Partial, Released, Sealed, open_envelope
from unpooled.protocol.transcript import Transcript
from unpooled.report.page import facts_of
from unpooled.report.page import page as report_page
from unpooled.report.releases import in_words, numbers_of
from unpooled.study.made_up import trial_of, watched
from unpooled.study.party import open_account
from unpooled.study.run import counted_in, waiting_plans
from unpooled.testing.cases import Case

#: A run of every case, which all tests share.
pytestmark = pytest.mark.xdist_group("papers to sign")

for folder in ("contract", "network"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
from cases import CASES  # noqa: E402
from worlds import World, command, make_world  # noqa: E402

#: A run of each split, and of each way to add up; the value says what kind of numbers leaves a party.
RUNS = {
    "describe": "rows, each party's own noise",
    "tables": "rows, each party's own noise",
    "bayes": "rows, added up with the noise of all",
    "glm": "rows, added up with the noise of all",
    "bayes, cluster": "rows, added up by a trusted party",
    "pls": "rows, added up with the noise of all",
    "analyses": "several analyses",
    "pride": "columns, with a public one",
    "lasso": "columns, in rounds that pick",
    "lasso, moments": "columns, moments",
    "stacking": "columns, with a trusted high level",
    "stacking, probabilities": "columns",
    "bayes, columns": "columns under masks",
    "lasso, joint": "columns under masks",
    "describe, columns": "columns under masks",
}
JOINT = [name for name, kind in RUNS.items() if "masks" in kind]
ANSWERS = Answers("2026-11-28", "Summary statistics")


@dataclass
class Papers:
    """A finished run on disk, and everything that is said about it."""

    name: str
    world: World
    study: Path
    folder: Path

    @cached_property
    def facts(self) -> Facts:
        configs = tuple(self.world.party(card.name) for card in self.world.study.parties)
        return Facts.read(self.study, configs, self.folder)

    @property
    def plan(self) -> Plan:
        return self.facts.plan

    @cached_property
    def dossier(self) -> str:
        return markdown(dossier(self.facts))

    @cached_property
    def report(self) -> str:
        return report_page(self.facts.run)

    @cached_property
    def told(self) -> list[tuple[str, str, int, Any]]:
        """Every part of every reply that travelled: who sent it, the step, its index, and the part."""
        model, found = load(self.plan.study.row), []
        for entry in Transcript.read(self.folder / "transcript").entries:
            envelope = open_envelope(entry.reply)
            if envelope.step == "open" or entry.short is not None:
                continue
            part, own = self.plan.part(envelope.step)
            step = find_step(
                load(part.study.row) if part is not self.plan else model,
                own if part is not self.plan else envelope.step,
                part,
            )
            reply = msgspec.msgpack.decode(envelope.body, type=step.reply)
            for value in (getattr(reply, name) for name in reply.__struct_fields__):
                found += [
                    (entry.to, envelope.step, envelope.index, one)
                    for one in (value if isinstance(value, tuple) else (value,))
                ]
        return found

    @property
    def numbers(self) -> int:
        """Return how many numbers travelled that a release made public: of a total that all open together once."""
        totals = {
            (step, i, part.name): part.values.numpy().size for _, step, i, part in self.told if isinstance(part, Partial)
        }
        return sum(totals.values()) + sum(p.values.numpy().size for *_, p in self.told if isinstance(p, Released))

    def check(self, name: str) -> str:
        return command("party", "check", str(self.study), "--config", str(self.world.party(name)))


def papers_of(root: Path, name: str, study: Any = None) -> Papers:
    """Run a case on disk, by the commands that people give."""
    case = CASES[name]()
    asked = msgspec.structs.replace(study or case.study, simulation_seed=None)
    world = make_world(root / "world", Case(case.name, asked, case.tables), Identity(b"c" * 32).public)
    file = world.write_study(root / "study.toml", world.study)
    for member in world.names:
        command("party", "check", str(file), "--config", str(world.party(member)), "--approve")
    parties = [word for member in world.names for word in ("--party", str(world.party(member)))]
    command("run", str(file), *parties, "--out", str(root / "run"), "--force")
    return Papers(name, world, file, root / "run")


_made: dict[str, Papers] = {}


@pytest.fixture
def papers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Papers:
    name = request.param
    if name not in _made:
        _made[name] = papers_of(tmp_path_factory.mktemp("papers"), name)
    return _made[name]


#: A run with rows, with columns in the open, under masks, with somebody trusted, with several analyses, and without a sum; the others are slow.
FIRST = ("describe", "bayes", "analyses", "pride", "stacking", "bayes, columns")


def over(names: Iterable[str]) -> pytest.MarkDecorator:
    marked = [pytest.param(name, marks=() if name in FIRST else pytest.mark.slow) for name in names]
    return pytest.mark.parametrize("papers", marked, indirect=True)


each_run, each_joint_run = over(RUNS), over(JOINT)


def most(text: str) -> int:
    (found,) = set(re.findall(r"At most (\d+) numbers? (?:is|are) released", text))
    return int(found)


@pytest.mark.long_for("analyses", "bayes, columns", "bayes", "glm", "bayes, cluster")
@pytest.mark.slow_but("describe")
@each_run
def test_the_numbers_that_are_said_to_be_released_travelled(papers: Papers) -> None:
    """The dossier of a joint study said "at most 119" where 49 travelled: it counted a total once for each member who adds noise to it."""
    said = most(papers.dossier)
    assert said == numbers_of(papers.plan)
    assert papers.numbers <= said
    # Of releases that are limited together, or of which one is chosen during the run, some may not be made.
    if not any(r.exposure.alternative or (r.exposure.together and r.count > 1) for r in papers.plan.releases):
        assert papers.numbers == said
    assert papers.numbers > 0


@pytest.mark.long_for("analyses", "stacking", "bayes, columns", "bayes", "pride", "lasso, joint")
@pytest.mark.slow
@each_run
def test_each_release_in_words_says_how_many_numbers_travelled_of_it(papers: Papers) -> None:
    """A number that parties make together is opened once, and one that each makes travels once for each."""
    made: dict[tuple[str, str], int] = defaultdict(int)
    totals = set()
    for sender, step, _, part in papers.told:
        name = f"{papers.plan.prefix_of(papers.plan.part(step)[0]) or ''}{getattr(part, 'name', '')}"
        if isinstance(part, Released):
            made[name, sender] += part.values.numpy().size
        if isinstance(part, Partial):
            totals.add(name)
    for one in in_words(papers.plan):
        name = f"{one.part}{BETWEEN}{one.name}" if one.part else one.name
        size = int(re.match(r"\d+", one.size)[0])
        if "together" in one.size:
            assert name in totals
            assert len(one.parties) > 1
            assert not any(made[name, party] for party in one.parties)
            continue
        assert name not in totals
        # Of a total that a trusted party opens, the others' numbers travel exact, to that party alone.
        entrusted = bool(papers.plan.trusted) and not any(made[name, party] for party in one.parties)
        assert ("exact numbers for the trusted party" in one.noise) == entrusted
        if entrusted:
            continue
        assert (", each" in one.size) == (len(one.parties) > 1)
        times = int(found[1]) if (found := re.search(r"at most (\d+) times", one.size)) else 1
        assert all(made[name, party] <= size * times for party in one.parties)
        if times == 1 and not any(r.exposure.alternative or r.exposure.together for r in papers.plan.releases):
            assert {made[name, party] for party in one.parties} == {size}
    for text in (papers.dossier, papers.report):
        for one in in_words(papers.plan):
            assert one.size in text


@pytest.mark.long_for("bayes", "glm", "bayes, cluster", "analyses")
@pytest.mark.slow_for("bayes, columns", "bayes", "analyses", "pride", "stacking")
@each_run
def test_the_columns_that_are_said_to_be_read_are_read(papers: Papers) -> None:
    """The columns are those that the parties' tables were asked for in a run over the very data."""
    model = load(papers.plan.study.row)
    case = CASES[papers.name]()
    tables = {n: watched(t) if t.n_rows else t for n, t in case.tables.items()}
    run_in_process(model, model.compile(case.study), tables, Policy.in_process(), load)
    trial = trial_of(papers.plan)
    for card in papers.plan.study.parties:
        read = tuple(column.name for column in card.columns if column.name in tables[card.name].seen)
        assert trial.read[card.name] == read
        every = [column.name for column in card.columns]
        words = "all declared columns" if len(read) == len(every) else ", ".join(read) or "none"
        assert (
            f"Of the columns of {card.name}, the study reads (in a trial on made-up rows): {words}."
            in papers.dossier.replace("\\", "")
        )


@pytest.mark.long_for("analyses", "bayes", "glm", "bayes, cluster", "bayes, columns")
@pytest.mark.slow_for("analyses", "pride", "bayes", "stacking", "bayes, columns")
@each_run
def test_what_is_said_to_stay_stays_and_what_travels_in_the_clear_is_named(papers: Papers) -> None:
    """A public column of PRIDE is sent as it is, a value for each person: "no row of data leaves" was said all the same."""
    text = papers.dossier.replace("\\", "")
    clear = {
        (sender, column) for sender, _, _, part in papers.told if isinstance(part, Disclosed) for column in part.columns
    }
    masked = any(isinstance(part, Masked) for *_, part in papers.told) or papers.plan.joint
    entrusted = any(isinstance(part, Entrusted) for *_, part in papers.told)
    assert ("No row of data leaves an organisation." in text) == (not clear and not masked and not papers.plan.trusted)
    assert ("Your data stay where they are now." in text) == (not clear and not masked and not papers.plan.trusted)
    assert not entrusted or papers.plan.trusted
    for sender, column in clear:
        assert f"{sender} sends {column} as it is" in text
    for role in papers.plan.trusted:
        assert f"Trusted with more than results: {role}." in text
        assert f"Somebody who is trusted gets more than these numbers: {role}." in text
    labels = {label for card in papers.plan.study.parties for label in card.labels}
    assert ("never sends" in text) == bool(labels and not papers.plan.trusted)
    for card in papers.plan.study.parties:
        for label in card.labels:
            own = np.asarray(papers.world.case.tables[card.name][label])
            for sender, _, _, part in papers.told:
                if sender == card.name and isinstance(part, Released | Disclosed) and own.dtype != object:
                    values = part.values.numpy()
                    assert not (values.shape == own.shape and np.array_equal(values.astype(float), own))


@pytest.mark.long_for("bayes, columns")
@pytest.mark.slow_for("pride", "bayes, columns")
@each_run
def test_everybody_who_was_sent_something_is_among_those_who_receive_it(papers: Papers) -> None:
    """The helper of a joint study, which is sent seeds of masks and the proofs, was missing."""
    entries = Transcript.read(papers.folder / "transcript").entries
    receivers = {entry.to for entry in entries} | {p.node for *_, p in papers.told if isinstance(p, Sealed | Masked)}
    section = papers.dossier.partition("### Who receives it")[2].partition("## ")[0]
    assert receivers == set(papers.world.names)
    assert all(re.search(rf"\b{name}\b", section) for name in receivers)
    assert "coordinator" in section
    for card in papers.plan.study.helpers:
        assert f"{card.name}, a helper without data" in section
        assert f"### {card.name}\n" in papers.dossier  # it approves the plan, too
        assert f"- {card.name}: " in papers.dossier.partition("### Whom can I ask?")[2]


@pytest.mark.long_for("bayes, columns")
@pytest.mark.slow
@each_joint_run
def test_masked_rows_go_to_whom_the_papers_say_and_hold_the_columns_that_they_say(papers: Papers) -> None:
    masked = facts_of(papers.plan)["masked"]
    held = {card.name: tuple(c.name for c in card.columns) for card in papers.plan.study.parties}
    assert {(sender, to) for sender, _, to, *_ in masked} == {("east", "west"), ("west", "east")}
    assert {sender: tuple(columns.split(", ")) for sender, columns, *_ in masked} == {
        name: tuple(n for n in columns if n in trial_of(papers.plan).read[name]) for name, columns in held.items()
    }
    assert {helper for *_, helper, _ in masked} == {"registry"}


@pytest.mark.guarantee
def test_columns_outside_the_formula_are_not_said_to_travel_under_masks(tmp_path: Path) -> None:
    """Report and console listed all declared columns as sent under masks, also those that the formula leaves out."""
    case = CASES["bayes, columns"]()
    study = msgspec.structs.replace(case.study, parameters=case.study.parameters | {"formula": "age + dose"})
    papers = papers_of(tmp_path, "bayes, columns", study)
    told = {sender: columns for sender, columns, *_ in facts_of(papers.plan)["masked"]}
    assert told == {"east": "age", "west": "dose, pressure"}
    assert trial_of(papers.plan).read == {"east": ("age",), "west": ("dose", "pressure")}
    assert "Declared and not read: smoker." in papers.dossier
    assert "<td>age</td><td>west</td>" in re.sub(r' (data-l|class)="[^"]*"', "", papers.report)
    domain = record(papers.facts, ANSWERS)["deployment"]["dp_variant"]["data_domain"]
    assert "The study reads: east: age; west: dose, pressure." in domain


@pytest.mark.long_for("glm", "analyses", "pride", "stacking", "stacking, probabilities")
@pytest.mark.slow_for("describe", "bayes, columns", "bayes", "analyses", "pride", "stacking")
@each_run
def test_the_good_colour_stands_only_where_nobody_is_left_out_of_the_promise(papers: Papers) -> None:
    """The good colour stood next to "NOT against registry together with a party"."""
    statement = papers.plan.statement
    left_out = "NOT against" in statement.protects_against
    assert left_out == bool(papers.plan.joint or papers.plan.trusted)
    assert bool(statement.excepted) == left_out
    assert all(who in statement.protects_against for who in statement.excepted)
    if left_out:
        assert statement.strength == "caution"
    html = document_page(dossier(papers.facts))
    assert f'<section class="verdict {statement.strength}">' in html
    assert f'<section class="verdict {statement.strength}">' in papers.report


@pytest.mark.long_for("bayes, columns")
@pytest.mark.slow_but("describe", "stacking")
@each_run
def test_a_total_counts_other_parties_only_where_columns_are_split(papers: Papers) -> None:
    """Ledgers of row-split studies said "over all parties of column-split studies"."""
    name = papers.world.study.parties[0].name
    said = papers.check(name)
    columns = papers.plan.split == "vertical"
    assert ("over all parties of column-split studies" in said) == columns
    assert ("over all studies" in said) == (not columns)
    ledger = command("party", "ledger", "--config", str(papers.world.party(name)))
    assert ("column-split" in ledger) == columns
    assert (
        "What all organisations of a study release about a person" in papers.dossier.replace("counts w", "counts W")
    ) == columns
    with open_account(papers.world.party(name)) as party:
        assert counted_in(party.ledger, Scope.PERSON, None) in said
        assert ("column-split" in counted_in(party.ledger, Scope.PERSON)) == columns


@pytest.mark.long_for("analyses", "bayes, columns")
@pytest.mark.slow_for("analyses", "pride", "bayes, columns")
@each_run
def test_a_study_that_ran_waits_no_more_at_any_member(papers: Papers) -> None:
    """At a helper, whose ledger holds no debit, every study that it had helped with was "approved here and not run yet"."""
    for name in papers.world.names:
        with open_account(papers.world.party(name)) as party:
            assert waiting_plans(party) == ()


@pytest.mark.guarantee
def test_a_study_that_was_approved_and_not_run_waits(tmp_path: Path) -> None:
    case = CASES["bayes, columns"]()
    world = make_world(
        tmp_path / "world",
        Case(case.name, msgspec.structs.replace(case.study, simulation_seed=None), case.tables),
        Identity(b"c" * 32).public,
    )
    plan = world.approve(world.study)
    for name in world.names:
        with open_account(world.party(name)) as party:
            assert waiting_plans(party) == (plan.hash,)
            assert waiting_plans(party, plan.hash) == ()


@pytest.mark.long_for("analyses")
@pytest.mark.slow_for("bayes", "analyses")
@each_run
def test_the_words_for_patients_are_true_of_this_study(papers: Papers) -> None:
    """They said of every study that each place works out numbers by itself, and that no study can say more than this one."""
    text = papers.dossier.replace("\\", "").partition("## Words for patients")[2].partition("## Incident")[0]
    alone = any(isinstance(part, Released) for *_, part in papers.told)
    together = any(isinstance(part, Partial) for *_, part in papers.told)
    added = any(step.endswith("-fragment") for _, step, *_ in papers.told) and not together  # opened by the trusted party
    assert ("Each place works out numbers from the data of its people." in text) == (alone and not added)
    assert ("The places work out numbers together." in text) == (together or added)
    assert ("One place that is trusted adds up the numbers of all places." in text) == added
    assert "about all its people" not in text
    assert "This is about this study alone." in text
    if papers.plan.joint:
        assert "registry, which has no data of these people, helps them." in text
        assert "registry and one of these places could read data together, if they broke the rules." in text
        assert "Two places that break the rules" not in text
    for one in papers.facts.ledgers:
        assert f"For all studies with the data of {one.party} together, the limit is" in text


def test_masks_without_proofs_are_not_said_to_hide_rows_from_a_place_that_breaks_the_rules(tmp_path: Path) -> None:
    case = CASES["bayes, columns"]()
    study = msgspec.structs.replace(case.study, parameters=case.study.parameters | {"check": "none"})
    plan = load("bayes").compile(study)
    assert plan.joint == TRUSTING
    text = markdown(dossier(Facts("study", plan, "")))
    assert "A place that breaks the rules could read the data of another." in text
    assert "No single place can read" not in text


@pytest.mark.slow_for("pride", "bayes")
@each_run
def test_the_register_says_of_the_arithmetic_what_the_statement_says(papers: Papers) -> None:
    """It said of every study that floating-point numbers add no error, and the statement of some that no proof covers them."""
    made = record(papers.facts, ANSWERS)["deployment"]
    doubles = any("double precision" in line for line in papers.plan.statement.assumptions)
    assert ("floating-point numbers add no error" in made["implementation"]["mechanisms"]) == (not doubles)
    for card in papers.plan.study.helpers:
        assert card.name in made["deployment_model" if "deployment_model" in made else "actors"]["actors"]
    assert "Federated" in made["deployment_model"]["model_name"]


@pytest.mark.guarantee
@each_run
def test_the_console_shows_the_same_as_the_dossier(papers: Papers) -> None:
    facts = facts_of(papers.plan)
    grid = papers.dossier.replace("\\", "")
    for row in facts["in_words"]:
        assert f"| {' | '.join(row)} |" in grid
