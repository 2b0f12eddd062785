"""The dossier: every number comes from plan, policy, ledger or card; its two forms say the same; names are no markup; refusals are words."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from commands import PARTIES, approve, command, two_parties
from rich.console import Console

import unpooled
from unpooled.cli import demo
from unpooled.evidence.document import Facts, Mark, markdown, page
from unpooled.evidence.dossier import dossier
from unpooled.evidence.summary import patients
from unpooled.models import LINK, REGISTRY, load
from unpooled.privacy.mechanisms import Summand
from unpooled.privacy.study import ANALYSES
from unpooled.privacy.unit import Unit
from unpooled.report.page import number
from unpooled.study.finished import moment

#: Numbers of the text itself, each with the reason why it is no fact of the study.
STRUCTURAL = {
    "35": "article of the regulation whose list of contents the assessment follows",
    "7": "paragraph of that article",
    "0": "Epsilon 0, of which the text says what it would mean",
    "100": "of chances in words for patients: so and so in 100",
    unpooled.__version__: "version of the program that wrote it",
}
_NUMERAL = re.compile(r"(?<![\w.])\d+(?:\.\d+)*(?:e[-+]?\d+)?(?![\w])")


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's study of rows, with its run."""
    root = tmp_path_factory.mktemp("demo")
    with demo._own_state(root):
        demo._rows(root / "rows", 1.0, 0, Console(quiet=True))
    return root / "rows"


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return two_parties(tmp_path)


def read(tour: Path, *names: str) -> Facts:
    return Facts.read(tour / "study.toml", tuple(tour / name / "party.toml" for name in names), tour / "study.run")


def numerals(text: str) -> list[str]:
    return _NUMERAL.findall(text)


def facts_of(facts: Facts) -> tuple[list[str], set[str]]:
    """Words of the study that hold digits but are no numbers, and every number of plan, policy, ledger and cards."""
    plan, statement = facts.plan, facts.statement
    words = [plan.hash, plan.hash[:16]]
    found = {number(value) for value in statement.epsilon_per_unit.values()}
    found |= {f"{statement.delta:g}", number(plan.study.epsilon)}
    found |= set(numerals(str(statement)))
    for card in plan.study.parties:
        found |= {str(card.rows), str(len(card.columns))}
        for column in card.columns:
            found |= {f"{edge:g}" for edge in (column.low, column.high) if edge is not None}
    for release in plan.releases:
        found |= {str(release.count), str(release.size)}
        found |= {number(release.sensitivity(plan.study.unit)), number(release.scale)}
        many = release.scale / release.sensitivity(plan.study.unit)  # the noise, by the most that one unit can change
        found |= {f"{many:.2g}", f"{100 * many / plan.study.card(release.party).people:.2g}"}
    # A secure sum opens one total of all parties' parts, so its numbers travel once.
    opened = {r.name: r.count * r.size for r in plan.releases if r.mechanism.takes is Summand}
    alone = [r.count * r.size for r in plan.releases if r.mechanism.takes is not Summand]
    found |= {str(len(plan.study.parties)), str(sum(opened.values()) + sum(alone))}
    for one in facts.ledgers:
        words += [one.head, *(moment(entry.time) for entry in (one.approval, one.withdrawal) if entry)]
        found |= {f"{one.budget.epsilon:g}", f"{one.budget.delta:g}", str(one.debited)}
        found |= {*numerals(one.spent.words), *numerals(one.after.words)}
    if facts.run and facts.run.about:
        words.append(facts.run.about.finished)
    return words, found


def untraced(text: str, facts: Facts) -> list[str]:
    """The numerals of a dossier that are none of the study's, nor of the text's own."""
    words, found = facts_of(facts)
    marks = {str(text.count(f"\\{str(mark)[:-1]}\\]")) for mark in Mark}
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, "")
    return [one for one in numerals(text) if one not in found | set(STRUCTURAL) | marks]


@pytest.mark.long_for("parties2", "parties0")
@pytest.mark.slow
@pytest.mark.parametrize("parties", [(), ("north",), ("north", "coast", "city")])
def test_every_number_of_the_demos_dossier_is_one_of_plan_policy_ledger_or_cards(
    tour: Path, parties: tuple[str, ...]
) -> None:
    facts = read(tour, *parties)
    text = markdown(dossier(facts))
    assert len(numerals(text)) > 100
    assert untraced(text, facts) == []


@pytest.mark.long_for("97-98")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("14063", "14064"), ("27.03", "27.04"), ("most 73", "most 973"), ("97", "98"), ("0.9767", "0.9766")],
)
def test_a_number_that_was_altered_is_caught(tour: Path, right: str, wrong: str) -> None:
    facts = read(tour, "north")
    text = markdown(dossier(facts))
    # A whole numeral: the same digits may stand in the plan's hash, which is another one for every key.
    altered, times = re.subn(rf"(?<![0-9a-z.]){re.escape(right)}(?![0-9a-z])", wrong, text, count=1)
    assert times == 1
    assert wrong.rsplit(maxsplit=1)[-1] in untraced(altered, facts)


@pytest.mark.slow
def test_the_table_of_releases_is_the_plan_row_by_row(tour: Path) -> None:
    facts = read(tour)
    lines = markdown(dossier(facts)).splitlines()
    for release in facts.plan.releases:
        cells = (release.name, release.party, release.mechanism.name, release.count, release.size)
        row = (*cells, number(release.sensitivity("record")), number(release.scale))
        assert f"| {' | '.join(map(str, row))} |" in lines


class Texts(HTMLParser):
    """The text of a page's body, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: set[str] = set()
        self.off = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.off = tag in {"title", "style"}
        assert not any(name.startswith("on") or (value and "javascript:" in value) for name, value in attrs)

    def handle_data(self, data: str) -> None:
        self.words += [] if self.off else data.split()

    def handle_endtag(self, tag: str) -> None:
        self.off = self.off and tag not in {"title", "style"}


def words_of(text: str) -> list[str]:
    """The words of a Markdown text, without what is markup."""
    lines = []
    for line in text.splitlines():
        if re.fullmatch(r"\| [-: |]+\||\.{40}", line):
            continue
        said = re.sub(r"(?<!\\)\|", " ", line) if line.startswith("| ") else re.sub(r"^#+ |^- ", "", line)
        lines.append(said.replace("**", ""))
    return html.unescape(re.sub(r"\\([^a-zA-Z0-9\s])", r"\1", "\n".join(lines))).split()


@pytest.mark.slow
def test_markdown_and_page_carry_the_same_text(tour: Path) -> None:
    made = dossier(read(tour, "north"))
    shown = Texts()
    shown.feed(page(made))
    assert shown.words == words_of(markdown(made))
    assert not shown.tags & {"script", "link", "img", "iframe"}


NAME, EVIL = "<img src=x onerror=alert(1)>", "</p><script>alert(1)</script> [x](javascript:alert(1)) | `a` $x$ &lt; 1. #"


@pytest.mark.slow
def test_names_with_markup_stay_text(world: Path) -> None:
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.unit import Target
    from unpooled.study.party import create_party

    home = world / "east"
    home.mkdir()
    (home / "data.csv").write_text(f"{NAME}\n" + "".join(f"{k}\n" for k in range(50)))
    config, card = create_party(home, NAME, home / "data.csv", (Column(NAME, 0.0, 100.0),), Target(9.0, 1e-3))
    said = json.dumps(EVIL)
    text = (
        f'[study]\nmodel = "describe"\npurpose = {said}\n\n[privacy]\nepsilon = 1.0\ndelta = 1e-6\njustification = {said}\n'
    )
    (world / "east.toml").write_text(f"{text}\n[[party]]\ncard = {json.dumps(str(card.relative_to(world)))}\n")
    command(world, "party", "check", "east.toml", "--config", str(config), "--approve", "--by", EVIL, "--reason", EVIL)
    command(world, "run", "east.toml", "--party", str(config))
    command(world, "dossier", "east.toml", "--config", str(config), "--run", "east.run")
    written, shown = (world / "east.dossier/dossier.md").read_text(), Texts()
    shown.feed((world / "east.dossier/dossier.html").read_text())
    assert not shown.tags & {"script", "img"}
    assert "<" not in written
    assert "](" not in written.replace("\\](", "")
    assert shown.words == words_of(written)
    assert " ".join(shown.words).count(" ".join(EVIL.split())) >= 4
    words = ("--published", "2026-11-30", "--type", "Summary statistics", "--name", EVIL)
    assert "<" not in command(world, "register", "east.toml", *words)
    command(world, "crate", "east.run", "--config", str(config), "--dossier", "east.dossier", "--out", "crate")
    found = json.loads((world / "crate/ro-crate-metadata.json").read_text())["@graph"]
    assert {one["name"] for one in found if one["@type"] == "Person"} >= {EVIL}


def test_a_ledger_says_who_approved_and_what_is_left(world: Path) -> None:
    at = ("--config", "north/party.toml")
    command(world, "party", "check", "study.toml", *at, "--approve", "--by", "Dr. A. Example", "--reason", "vote 12/2026")
    command(world, "dossier", "study.toml", *at, "--out", "a")
    text = (world / "a/dossier.md").read_text()
    assert "- Approved by: Dr. A. Example\n- Reason: vote 12/2026\n" in text
    assert "The ledger holds epsilon = 0 now and epsilon = 1 with this study, of at most 1" in text
    assert "### south\n\n- Approved by, on, for the reason: **" in text
    command(world, "party", "withdraw", "study.toml", *at, "--by", "Dr. B. Example", "--reason", "a mistake")
    command(world, "dossier", "study.toml", *at, "--out", "b")
    text = (world / "b/dossier.md").read_text()
    assert "UTC by Dr. B. Example: nothing more of this plan is answered." in text
    assert "Approved by: Dr. A. Example" not in text


def test_without_a_party_file_the_ledgers_lines_are_marked(world: Path) -> None:
    command(world, "dossier", "study.toml")
    text = (world / "study.dossier/dossier.md").read_text()
    assert text.count("Approved by, on, for the reason: **") == 2
    assert "Only the ledgers know the total (north and south)" in text


def test_what_cards_say_is_said_and_what_they_do_not_is_marked(world: Path) -> None:
    card = world / "north/north.card.toml"
    said = 'collected = "in routine care, 2019"\nlegal_basis = "consent"\nretention = "ten years"\ncontact = "dpo@north.example"\n'
    card.write_text(card.read_text().replace("\n[[columns]]", f"\n{said}\n[[columns]]", 1))
    command(world, "dossier", "study.toml")
    text = (world / "study.dossier/dossier.md").read_text()
    for line in ("collected (north): in routine care, 2019", "states it (north): consent", "are kept (north): ten years"):
        assert line in text
    assert text.count("- north: dpo@north.example") == 1
    assert text.count("(south): **") == 4


def test_a_whole_persons_epsilon_stands_as_prominently_as_that_of_one_value(world: Path) -> None:
    study = world / "study.toml"
    study.write_text(study.read_text().replace("[privacy]", '[privacy]\nunit = "attribute"'))
    facts = Facts.read(study)
    whole = number(facts.statement.epsilon_per_unit[Unit.RECORD])
    first, *_ = dossier(facts).sections
    assert whole in first.blocks[0].lines[0].text
    assert facts.whole in {
        line.text.removeprefix("For a whole person instead of one value: ") for b in first.blocks[1:4] for line in b.lines
    }
    assert facts.epsilons[1] == ("one person's whole row", whole)
    assert "This limits what the numbers can say about one fact about a person." in str(patients(facts))


def test_a_study_without_a_guarantee_promises_nothing(world: Path) -> None:
    study = world / "study.toml"
    study.write_text(study.read_text().replace("epsilon = 1.0", "epsilon = inf"))
    command(world, "dossier", "study.toml")
    text = (world / "study.dossier/dossier.md").read_text()
    assert "No privacy guarantee holds for this result." in text
    assert "We do not promise that nobody can find out about you" in text
    assert "This limits what" not in text
    assert "made random" not in text
    assert 'class="verdict none"' in (world / "study.dossier/dossier.html").read_text()
    words = ("register", "study.toml", "--published", "2026-11-30", "--type", "Dataset")
    assert "this study is none: nothing is written" in command(world, *words, code=2)


def test_a_study_that_links_rows_says_that_it_tells_exactly(tmp_path: Path) -> None:
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.unit import Target
    from unpooled.study.party import create_party

    cards = ""
    for k, name in enumerate(("clinic", "lab")):
        home = tmp_path / name
        home.mkdir()
        (home / "data.csv").write_text(f"patient,x{k}\n" + "".join(f"p{j},0.5\n" for j in range(9)))
        create_party(home, name, home / "data.csv", (Column(f"x{k}", 0.0, 1.0),), Target(9.0, 1e-5), "patient")
        cards += f'\n[[party]]\ncard = "{name}/{name}.card.toml"\n'
    (tmp_path / "link.toml").write_text(f'[study]\nmodel = "link"\n{cards}')
    command(tmp_path, "dossier", "link.toml", "--config", "clinic/party.toml")
    text = (tmp_path / "link.dossier/dossier.md").read_text()
    assert "Are linked pseudonyms personal data for those who receive them? **\\[for your lawyer" in text
    assert "Each place learns which of its own people all places have. It learns this exactly." in text
    assert "epsilon = inf" not in text
    assert "No row of data leaves" not in text


@pytest.mark.slow
def test_patients_words_are_short(tour: Path) -> None:
    blocks = patients(read(tour, "north")).blocks
    text = " ".join(line.text for block in blocks if hasattr(block, "lines") for line in block.lines)
    lengths = [len(one.split()) for one in re.split(r"[.?:]\s", text) if one.strip()]
    assert sum(lengths) / len(lengths) < 12
    assert max(lengths) <= 20
    assert not re.search(r"epsilon|delta|differential|coordinator|parameter|plan\b", text)


def test_every_model_has_words() -> None:
    assert {name for name in (*REGISTRY, LINK) if load(name).says} == {*REGISTRY, LINK} - {ANALYSES}


@pytest.mark.slow
def test_refusals_write_nothing(world: Path) -> None:
    approve(world)
    command(world, "dossier", "study.toml", "--out", "there")
    assert "there exists already" in command(world, "dossier", "study.toml", "--out", "there", code=2)
    assert "cannot be read" in command(world, "dossier", "nothing.toml", code=2)
    assert "no transcript and no record" in command(
        world, "dossier", "study.toml", "--run", "nothing.run", "--out", "x", code=2
    )
    command(world, "run", "study.toml", *PARTIES)
    other = world / "other.toml"
    other.write_text((world / "study.toml").read_text().replace("epsilon = 1.0", "epsilon = 0.5"))
    assert "give the run of this study" in command(
        world, "dossier", "other.toml", "--run", "study.run", "--out", "x", code=2
    )
    result = world / "study.run/result.json"
    whole = result.read_text()
    result.write_text(whole.replace('"result"', '"results"', 1))
    for words in (("dossier", "study.toml", "--run", "study.run", "--out", "x"), ("crate", "study.run", "--out", "x")):
        assert "is not the result of this run" in command(world, *words, code=2)
    result.write_text(whole)
    transcript = world / "study.run/transcript"
    kept = transcript.read_bytes()
    transcript.write_bytes(kept[: len(kept) // 2])
    for words in (("dossier", "study.toml", "--run", "study.run", "--out", "x"), ("crate", "study.run", "--out", "x")):
        said = command(world, *words, code=2)
        assert "error: " in said
        assert "Traceback" not in said
    transcript.write_bytes(kept)
    alone = (world / "study.toml").read_text().split("[[party]]")
    (world / "alone.toml").write_text(f"{alone[0]}[[party]]{alone[1]}")
    assert "is not in the study" in command(
        world, "dossier", "alone.toml", "--config", "south/party.toml", "--out", "x", code=2
    )
    command(world, "party", "init", "--helper", "registry", "--folder", "registry")
    assert "is the file of a helper" in command(
        world, "dossier", "study.toml", "--config", "registry/party.toml", "--out", "x", code=2
    )
    ledger = world / "north/north.ledger"
    ledger.write_bytes(ledger.read_bytes()[:-4096])
    assert "refused: " in command(world, "dossier", "study.toml", "--config", "north/party.toml", "--out", "x", code=3)
    assert not (world / "x").exists()


@pytest.mark.long
@pytest.mark.slow
def test_findings_of_an_audit_are_those_of_the_audit(world: Path) -> None:
    command(world, "dossier", "study.toml", "--audit")
    found = json.loads(command(world, "audit", "study.toml", "--json"))
    text = (world / "study.dossier/dossier.md").read_text()
    assert f"The study was replayed on {found['neighbours']} pairs of made-up data sets" in text
    worst = max(one["part_of_bound"] for one in found["largest"])
    assert (
        f"No violation was found. The farthest that a release moved, as a part of its declared bound: {number(worst)} (1"
        in text
    )


def test_a_violation_is_said(world: Path) -> None:
    from dataclasses import replace

    from unpooled.audit.replay import Report
    from unpooled.audit.stage import Violation

    report = Report({}, [Violation(Unit.RECORD, "north", "the whole study", "moved")], 3)
    text = markdown(dossier(replace(Facts.read(world / "study.toml"), audit=report)))
    assert "Violations that were found: 1. Do not approve this study." in text
