"""A document as one list of sections, from which its Markdown and its HTML are made; and the facts of a study that it states, from its files alone."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING

from unpooled.errors import ProtocolError, UsageError, listed
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import Summand
from unpooled.privacy.noise import KeySource
from unpooled.privacy.statement import UNIT_WORDS
from unpooled.privacy.table import NoRows
from unpooled.privacy.unit import Unit
from unpooled.protocol.party import Party
from unpooled.report.page import environment, number
from unpooled.report.releases import numbers_of
from unpooled.study.files import policy_of, purpose_of, read_party, read_study
from unpooled.study.finished import Run
from unpooled.study.made_up import trial_of
from unpooled.study.run import compile_study

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from unpooled.audit.replay import Report
    from unpooled.privacy.ledger import Entry
    from unpooled.privacy.ledger.spending import Spending
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.statement import Statement
    from unpooled.privacy.unit import Target
    from unpooled.study.files import PolicySection
    from unpooled.study.made_up import Trial


# --- Document --------------------------------------------------------------------------------------------------------------
# A document as one list of sections, from which its Markdown and its HTML are made: no sentence is written twice.
#
# A sentence is a fact of the study, or it carries a mark: the reader fills it in, or a lawyer decides it.


class Mark(StrEnum):
    """The mark of a sentence that is no fact of the study."""

    FILL = "[to be filled in by you]"
    LAWYER = "[for your lawyer]"


@dataclass(frozen=True, slots=True)
class Phrase:
    """A sentence, or a few that belong together; a marked one is a question to its reader."""

    text: str
    mark: Mark | None = None

    def __str__(self) -> str:
        return f"{self.text} {self.mark}".strip() if self.mark else self.text


def fill(question: str) -> Phrase:
    """Return a line that the reader fills in."""
    return Phrase(question, Mark.FILL)


def lawyer(question: str) -> Phrase:
    """Return a line that a lawyer decides."""
    return Phrase(question, Mark.LAWYER)


def stated(what: str, words: str) -> Phrase:
    """Return a fact under its name; where nobody stated it, a line that the reader fills in.

    >>> print(stated("Contact", "trial@example.org"), "/", stated("Contact", ""))
    Contact: trial@example.org / Contact: [to be filled in by you]
    """
    return Phrase(f"{what}: {words}") if words else fill(f"{what}:")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Lines that follow each other."""

    lines: tuple[Phrase, ...]


@dataclass(frozen=True, slots=True)
class Bullets:
    """Lines below each other."""

    lines: tuple[Phrase, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; columns of numbers are named by their places."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str | Phrase, ...], ...]
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Signatures:
    """Lines to sign on, each with the person who signs there."""

    who: tuple[str, ...]


Block = Heading | Paragraph | Bullets | Grid | Signatures


@dataclass(frozen=True, slots=True)
class Chapter:
    """A part of a document; a verdict stands out, in the colour of its strength ("good", "caution" or "none")."""

    title: str
    blocks: tuple[Block, ...]
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A whole document."""

    title: str
    under: tuple[Phrase, ...]
    sections: tuple[Chapter, ...]

    def lines(self) -> Iterator[Phrase]:
        """Yield all lines, those in tables too."""
        yield from self.under
        for section in self.sections:
            for block in section.blocks:
                if isinstance(block, Paragraph | Bullets):
                    yield from block.lines
                elif isinstance(block, Grid):
                    yield from (cell for row in block.rows for cell in row if isinstance(cell, Phrase))

    def marked(self, mark: Mark) -> int:
        """Return the number of lines that carry this mark."""
        return sum(line.mark is mark for line in self.lines())


def paragraph(*lines: str | Phrase) -> Paragraph:
    """Return a paragraph of these lines; plain text is a fact."""
    return Paragraph(tuple(_line(line) for line in lines if line))


def bullets(*lines: str | Phrase) -> Bullets:
    """Return these lines below each other; plain text is a fact."""
    return Bullets(tuple(_line(line) for line in lines if line))


def _line(line: str | Phrase) -> Phrase:
    return line if isinstance(line, Phrase) else Phrase(line)


# --- Markdown ---------------------------------------------------------------------------------------------------------------------

#: Characters that could be markup, and their harmless spelling. A backslash before a letter is no escape in Markdown, so it is spelled out too.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\\": "&#92;", "$": "&#36;"}
_ESCAPED = re.compile(r"[`*_\[\]|~]")
_BEGINS = re.compile(r"^([-+#=])|^(\d+)([.)])(?=\s|$)")


def plain(text: str) -> str:
    r"""Return text for Markdown in which nothing is markup, in one line.

    >>> print(plain("<b>1</b> | a_b"))
    &lt;b&gt;1&lt;/b&gt; \| a\_b
    """
    one = " ".join(text.split())
    spelled = "".join(_ENTITIES.get(letter, letter) for letter in one)
    return _ESCAPED.sub(lambda found: f"\\{found[0]}", spelled)


def markdown(document: Document) -> str:
    """Return the document as Markdown text."""
    parts = [f"# {plain(document.title)}", *(_begun(_marked(line)) for line in document.under)]
    for section in document.sections:
        parts += [f"## {plain(section.title)}", *map(_block, section.blocks)]
    return "\n\n".join(parts) + "\n"


def _begun(text: str) -> str:
    """Return Markdown of which the first letters begin no list, heading or rule."""
    return _BEGINS.sub(lambda found: f"\\{found[1]}" if found[1] else f"{found[2]}\\{found[3]}", text)


def _marked(line: Phrase) -> str:
    return f"{plain(line.text)} **{plain(line.mark)}**".strip() if line.mark else plain(line.text)


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"### {plain(block.text)}"
    if isinstance(block, Paragraph):
        return _begun(" ".join(map(_marked, block.lines)))
    if isinstance(block, Bullets):
        return "\n".join(f"- {_begun(_marked(line))}" for line in block.lines)
    if isinstance(block, Signatures):
        return "\n\n".join(f"{'.' * 40}\n{plain(who)}" for who in block.who)
    marks = ["---:" if place in block.numbers else "---" for place in range(len(block.titles))]
    rows = [map(plain, block.titles), marks, *([_cell(cell) for cell in row] for row in block.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(cell: str | Phrase) -> str:
    return _marked(cell) if isinstance(cell, Phrase) else plain(cell)


# --- HTML -------------------------------------------------------------------------------------------------------------------------


def page(document: Document) -> str:
    """Return the document as one HTML page, in the style of the reports: no script, nothing loaded from elsewhere."""
    source = files("unpooled.evidence").joinpath("document.html").read_text(encoding="utf-8")
    kind = {Heading: "heading", Paragraph: "paragraph", Bullets: "bullets", Grid: "grid", Signatures: "signatures"}
    return environment().from_string(source).render(document=document, kind=lambda block: kind[type(block)])


def counted(words: Sequence[str]) -> str:
    """Return names as a sentence lists them.

    >>> counted(["a"]), counted(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# --- Facts -----------------------------------------------------------------------------------------------------------------
# Facts of a study for its documents, from its files alone: study, plan, statement, a party's policy and ledger, a run, an audit. No data are read.


@dataclass(frozen=True)
class LedgerFacts:
    """The policy of one party, and what its ledger says of a plan and of everything else."""

    party: str
    policy: PolicySection
    budget: Target
    #: The last approval of the plan and, if it was withdrawn after that, the withdrawal.
    approval: Entry | None
    withdrawal: Entry | None
    #: Whether the policy itself lists the plan's hash.
    listed: bool
    #: The number of releases of the plan that were debited, and whether each of them was answered.
    debited: int
    answered: bool
    #: The time of the last debit, in seconds since 1970; 0 without one.
    last: int
    #: The spending of all studies now, and once this plan is debited.
    spent: Spending
    after: Spending
    #: The number of plans in the ledger.
    studies: int
    head: str
    #: True if this plan, or a study in the ledger, splits columns: then others release about the same people, too.
    columns: bool

    @property
    def approved(self) -> bool:
        """Return True if this party agrees to the plan now."""
        return self.withdrawal is None and (self.approval is not None or self.listed)

    @classmethod
    def read(cls, config: Path, plan: Plan) -> LedgerFacts:
        """Return the facts of the party of a party file, which is one of the plan's parties."""
        text = read_party(config)
        name, policy = text.party.name, policy_of(text.policy)
        names = [card.name for card in plan.study.parties]
        if name not in names:
            msg = f"party {name!r} of {config} is not in the study: its parties are {listed(names)}"
            raise UsageError(msg)
        budget = policy.budget
        assert budget is not None  # a party file always has one
        with Ledger.open(config.parent / text.party.ledger) as ledger:
            entries = ledger.entries()
            party = Party(name, NoRows(), plan.study.card(name), ledger, KeySource(ledger.root_key), policy, load)
            spent = ledger.spending(budget, policy.scope)
            after = ledger.spending(budget, policy.scope, party.charges(plan))
            head, withdrawn = ledger.head, not ledger.approved(plan.hash)
        own = [entry for entry in entries if entry.plan == plan.hash]
        charges = [entry for entry in own if entry.kind == "charge"]
        approvals = [entry for entry in own if entry.kind == "approval"]
        withdrawals = [entry for entry in own if entry.kind == "withdrawal"] if withdrawn else []
        return cls(
            name,
            text.policy,
            budget,
            approvals[-1] if approvals else None,
            withdrawals[-1] if withdrawals else None,
            plan.hash in (policy.approved or ()),
            len(charges),
            bool(charges) and all(entry.state == "committed" for entry in charges),
            max((entry.time for entry in charges), default=0),
            spent,
            after,
            len({entry.plan for entry in entries}),
            head,
            (plan.split.shares_people and len(names) > 1) or any(entry.kind == "shared" for entry in entries),
        )


@dataclass(frozen=True)
class Facts:
    """Everything that a dossier may state."""

    name: str
    plan: Plan
    purpose: str
    ledgers: tuple[LedgerFacts, ...] = ()
    run: Run | None = None
    audit: Report | None = None

    @classmethod
    def read(cls, study: Path, configs: tuple[Path, ...] = (), run: Path | None = None) -> Facts:
        """Return the facts of a study file, of party files, and of the folder of a finished run of this very plan."""
        plan = compile_study(read_study(study))
        ledgers = tuple(LedgerFacts.read(config, plan) for config in configs)
        return cls(study.stem, plan, purpose_of(study), ledgers, None if run is None else run_of(run, plan))

    @property
    def study(self) -> Study:
        """Return the study."""
        return self.plan.study

    @property
    def statement(self) -> Statement:
        """Return the statement of the plan."""
        return self.plan.statement

    @property
    def parties(self) -> tuple[str, ...]:
        """Return the names of the parties."""
        return tuple(card.name for card in self.study.parties)

    @property
    def rows_split(self) -> bool:
        """Return True if the parties hold rows of different people; otherwise they hold columns of the same people."""
        return not self.plan.split.shares_people

    @property
    def numbers_out(self) -> int:
        """Return the most numbers that are released with noise."""
        return numbers_of(self.plan)

    @cached_property
    def trial(self) -> Trial | None:
        """Return what a run of the plan on made-up rows read, and sent as it is; None where it cannot be run."""
        return trial_of(self.plan)

    @property
    def summed(self) -> tuple[bool, bool, bool]:
        """Return whether a party releases something by itself, whether members open a total together, and whether a trusted party adds up."""
        kinds = {(release.mechanism.takes is Summand, release.mechanism.needs_trust) for release in self.plan.releases}
        added = (True, True) in kinds
        return (False, False) in kinds and not added, (True, False) in kinds, added

    @property
    def analyses(self) -> tuple[str, ...]:
        """Return what is computed, in words: a sentence part for every analysis."""
        plans = tuple(self.plan.analyses.values()) or (self.plan,)
        return tuple(dict.fromkeys(_computed(one) for one in plans))

    @property
    def epsilons(self) -> tuple[tuple[str, str], ...]:
        """Return whom epsilon is about and its value, the unit of the promise first, in words."""
        found = self.statement.epsilon_per_unit
        units = sorted(found, key=lambda unit: unit != self.statement.unit)
        return tuple((UNIT_WORDS[Unit(unit)], epsilon_words(found[unit])) for unit in units)

    @property
    def whole(self) -> str:
        """Return the reading of epsilon for a whole person, where the promise is about one value; empty elsewhere, and where none is proved."""
        statement, unit = self.statement, Unit.RECORD
        epsilon = statement.epsilon_per_unit[unit]
        if not statement.holds or statement.unit != Unit.ATTRIBUTE or math.isinf(epsilon) or self.study.origins:
            return ""
        return replace(statement, unit=unit, failure=self.plan.cost(unit).failure(epsilon)).reading

    def ledger(self, party: str) -> LedgerFacts | None:
        """Return what is known of a party's ledger, if its party file was given."""
        return next((one for one in self.ledgers if one.party == party), None)


def run_of(folder: Path, plan: Plan) -> Run:
    """Return the finished run of a plan; refused where its folder holds another plan's run, or a result that does not follow from its messages."""
    found = checked_run(folder)
    if found.plan.hash != plan.hash:
        msg = f"{folder} is a run of plan {found.plan.hash[:16]}, and the study file makes plan {plan.hash[:16]}: give the run of this study"
        raise UsageError(msg)
    return found


def checked_run(folder: Path) -> Run:
    """Return a finished run; refused where result.json does not hold its result."""
    if folder.is_file():
        msg = f"{folder} is a file: give the folder of a run (STUDY.run)"
        raise UsageError(msg)
    found = Run.read(folder)
    if found.agrees is False:
        msg = f"{folder / 'result.json'} is not the result of this run: it was changed, or is of another run. Nothing is written about it"
        raise ProtocolError(msg)
    return found


def epsilon_words(epsilon: float) -> str:
    """Return an epsilon as documents print it."""
    return number(epsilon) if math.isfinite(epsilon) else "none is proved"


def _computed(plan: Plan) -> str:
    """Return what a plan of one analysis computes."""
    model = plan.study.model
    whose = f"{model} of {plan.maker}" if plan.maker else model
    says = load(model).says
    return f"{says} (model {whose})" if says else f"the model {whose}"
