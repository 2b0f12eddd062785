"""The dossier of a study: everything that a privacy officer and an ethics board read and sign, with the assessment of the impact on people."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import unpooled
from unpooled.evidence.document import (
    Block,
    Chapter,
    Document,
    Grid,
    Heading,
    Mark,
    Phrase,
    bullets,
    counted,
    epsilon_words,
    fill,
    lawyer,
    paragraph,
    stated,
)
from unpooled.evidence.summary import approval, guarantee, incident, leaving, patients, roles, summary
from unpooled.privacy.study import CIRCUMSTANCES
from unpooled.privacy.unit import Unit
from unpooled.report.page import number
from unpooled.report.releases import TITLES, in_words
from unpooled.study.made_up import said_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unpooled.evidence.document import Facts, LedgerFacts
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.study import Card


# --- Assessment ------------------------------------------------------------------------------------------------------------
# The dossier's assessment of the impact on people: description, necessity, risks with their bounds, measures.

#: The number of columns that one line names in full.
_NAMED = 8
#: What happens to missing values, in words.
_MISSING = {
    "refuse": "none: a file that has some is refused",
    "complete": "rows without a value are left out of models that need it",
    "model": "rows without a value are left out of models that need it, and which rows are whole is modelled by the response",
    "absent": "they count for nothing",
    "indicator": "they count for nothing, and a column says where they are",
}
#: Names of what a card may say of its data, in words.
_SAID = {
    "collected": "How and why the data were collected",
    "legal_basis": "Legal basis, as the organisation states it",
    "retention": "How long the data are kept",
    "contact": "Whom to ask",
}
#: What a policy's total counts.
_SCOPE = {
    "person": "what all organisations of a study release about a person",
    "party": "what this organisation releases by itself",
}
#: The same where no study splits columns.
_EVERY = "what all studies release about the people here"


def assessment(facts: Facts) -> tuple[Chapter, ...]:
    """Return the four parts of the assessment."""
    return _described(facts), _needed(facts), _risks(facts), _measures(facts)


# --- description ------------------------------------------------------------------------------------------------------------------


def _described(facts: Facts) -> Chapter:
    study = facts.study
    blocks: list[Block] = [
        paragraph(
            "This part and the next three follow the list of contents in Article 35(7) of the General Data Protection Regulation.",
            lawyer("Is a data protection impact assessment required for this study, and by which law?"),
        ),
        paragraph(stated("Purpose", facts.purpose)),
        Heading("Data, and where they come from"),
    ]
    for card in study.parties:
        lines = [stated(f"{_SAID[name]} ({card.name})", getattr(card, name)) for name in CIRCUMSTANCES]
        blocks.append(
            bullets(f"{card.name} has rows: {card.size}; columns that the plan lists: {len(card.columns)}.", *lines)
        )
    if facts.trial is not None:
        read = facts.trial.read
        blocks.append(bullets(*(_used(card, read[card.name]) for card in study.parties)))
    titles = ("organisation", "columns", "declared range or categories", "missing values")
    blocks.append(Grid(titles, tuple(line for card in study.parties for line in _columns(card))))
    labels = [f"{card.name}: {', '.join(card.labels)}" for card in study.parties if card.labels]
    blocks += (
        [paragraph(f"Columns that an organisation uses itself and never sends ({'; '.join(labels)}).")]
        if labels and not (facts.plan.trusted or facts.plan.voids)
        else []
    )
    blocks += [
        paragraph(
            fill("Are there special categories of data (health, genes, beliefs), children, or other vulnerable people?"),
            fill("Does the study need every column that it reads?"),
        ),
        Heading("What leaves an organisation"),
        paragraph(*leaving(facts)),
        *_released(facts),
        Heading("Who receives it"),
        bullets(
            f"The organisations of the study: {counted(facts.parties)}."
            if len(facts.parties) > 1
            else "No other organisation takes part.",
            *(
                f"{card.name}, a helper without data: it sees pseudonyms, and the numbers of people in common, with noise."
                if facts.plan.hides
                else f"{card.name}, a helper without data: it knows masks and the size of the study, and the released totals."
                for card in study.helpers
            ),
            *_under_masks(facts),
            *(f"With more than results: {sentence}." for sentence in facts.plan.trusted),
            "Those who run the coordinator, a program that combines the released numbers.",
            fill("Who runs the coordinator, and where?"),
            fill("Who reads the results, and will they be published?"),
        ),
    ]
    return Chapter("Assessment: description of the processing", tuple(blocks))


def _under_masks(facts: Facts) -> Iterator[str]:
    """Yield a sentence for each direction in which masked rows travel."""
    for one in (*facts.plan.analyses.values(), facts.plan):
        for side in one.design.sides if one.joint and not one.analyses else ():
            columns = counted(one.design.sent(side.sender))
            yield f"{side.receiver} receives {columns} of {side.sender} under masks, which {side.helper} knows."


def _used(card: Card, read: Sequence[str]) -> str:
    """Return the columns of a party that a study reads, and those that it only declares."""
    every = [column.name for column in card.columns]
    unread = [name for name in every if name not in read]
    told = f"Of the columns of {card.name}, the study reads (in a trial on made-up rows): {said_of(read, len(every))}."
    return f"{told} Declared and not read: {said_of(unread, len(every))}." if unread else told


def _released(facts: Facts) -> list[Block]:
    """Return the plan's releases as a table, and what leaves without noise."""
    plan, unit = facts.plan, facts.study.unit
    blocks: list[Block] = []
    if plan.releases:
        rows = tuple(
            (r.name, r.party, r.mechanism.name, str(r.count), str(r.size), number(r.sensitivity(unit)), number(r.scale))
            for r in plan.releases
        )
        titles = ("release", "organisation", "method", "times, at most", "numbers", "sensitivity", "noise")
        blocks += [
            Grid(("organisations", *TITLES[1:]), tuple(one.row for one in in_words(plan))),
            paragraph(
                f"The last column compares the noise with the most that one of the units can change ({_UNITS[unit]}). The same in numbers:"
            ),
            Grid(titles, rows, (3, 4, 5, 6)),
            paragraph(
                f"Sensitivity is the most that a release can change when {_UNITS[unit]} changes. Noise is the scale of the random numbers that are added. "
                "Both are in steps of the grid on which a release is computed."
            ),
        ]
    if plan.public:
        blocks.append(bullets(*(f"Without noise: {sentence}" for sentence in plan.public)))
    return blocks


_UNITS = {
    str(Unit.RECORD): "one person's row",
    str(Unit.ATTRIBUTE): "one value of one person",
    str(Unit.HOUSEHOLD): "the data of one household",
}


def _columns(card: Card) -> Iterator[tuple[str, str, str, str]]:
    """Yield the declared columns of a card, those that follow each other under one declaration in one line."""
    for (declared, missing), same in groupby(card.columns, lambda column: (_declared(column), _MISSING[column.missing])):
        names = [column.name for column in same]
        shown = ", ".join(names) if len(names) <= _NAMED else f"{names[0]} ... {names[-1]} ({len(names)} columns)"
        yield card.name, shown, declared, missing


def _declared(column: Column) -> str:
    if column.categories is not None:
        return ", ".join(column.categories)
    low, high = column.range
    limit = f", under {column.below:g} missing" if column.below is not None else ""
    return f"{low:g} to {high:g}" + (f" ({column.dates})" if column.dates else "") + limit


# --- necessity --------------------------------------------------------------------------------------------------------------------


def _needed(facts: Facts) -> Chapter:
    epsilon = "" if facts.statement.links else f" (epsilon = {epsilon_words(facts.study.epsilon)})"
    return Chapter(
        "Assessment: necessity and proportionality",
        (
            bullets(
                stated("Purpose", facts.purpose),
                fill("Why can the question not be answered with fewer data, or with data that are not about people?"),
                fill("Why must several organisations compute together?") if len(facts.parties) > 1 else "",
                stated(f"Reason for this strength of protection{epsilon}, as the study states it", facts.study.justification)
                if epsilon
                else "",
                fill(
                    "Is the result precise enough to be of use? The command unpooled plan STUDY --utility estimates this for many models, "
                    "without data."
                )
                if epsilon
                else "",
                lawyer("Does the legal basis of each organisation cover this purpose?"),
                lawyer("How are people informed, and how can they use their rights (access, erasure, objection)?"),
                lawyer("Do data or results go to another country, and on which ground?"),
            ),
        ),
    )


# --- risks ------------------------------------------------------------------------------------------------------------------------


def _risks(facts: Facts) -> Chapter:
    statement = facts.statement
    blocks: list[Block] = [
        Heading("Risks that have a proved bound"),
        _bounds(facts),
        *_audited(facts),
        Heading("Not protected"),
        bullets(*statement.not_protected),
    ]
    if statement.hidden:
        blocks += [Heading("What stays hidden"), bullets(*statement.hidden)]
    blocks += [
        Heading("What must be true for the bounds to hold"),
        bullets(*statement.assumptions, fill("Is each of these true in your organisation? Say how you know.")),
        Heading("Risks without a bound"),
        bullets(
            fill("Theft or misuse of the data where they are kept now: likelihood, severity, and what you do about it."),
            fill("Results that harm a group of people, although no single person can be recognised."),
            fill("For each risk on this page: how likely is it, and how severe for the people concerned?"),
            lawyer("Is the remaining risk so high that the supervisory authority must be consulted first?"),
        ),
    ]
    return Chapter("Assessment: risks to people", tuple(blocks))


def _bounds(facts: Facts) -> Block:
    statement = facts.statement
    if statement.links:
        return paragraph("None. The study tells facts exactly, and no epsilon limits them. The next list names them.")
    if not statement.holds:
        return paragraph("None: no guarantee holds for this study.")
    rows: list[tuple[str | Phrase, ...]] = [("Somebody learns about a person from the results", statement.reading)]
    if statement.unit == Unit.ATTRIBUTE:
        whole = statement.epsilon_per_unit[Unit.RECORD]
        rows.append(("The same, about a whole person", facts.whole or f"epsilon for a whole person: {epsilon_words(whole)}"))
    rows += [(f"Several studies together tell more about the people at {one.party}", _total(one)) for one in facts.ledgers]
    missing = [name for name in facts.parties if facts.ledger(name) is None]
    if missing:
        text = f"Only the ledgers know the total ({counted(missing)}). The command unpooled party check shows it before and after this study."
        rows.append(("Several studies together tell more about the same people", fill(text)))
    return Grid(("risk", "bound"), tuple(rows))


def _total(one: LedgerFacts) -> str:
    """Return the state of a ledger before and after the plan, in one sentence."""
    most = f"of at most {one.budget.epsilon:g} (delta = {one.budget.delta:g}, per {one.budget.unit})"
    if one.debited:
        return f"The ledger holds {one.spent.words} {most}, this study included."
    return f"The ledger holds {one.spent.words} now and {one.after.words} with this study, {most}."


def _audited(facts: Facts) -> list[Block]:
    """Return the findings of an audit on made-up data."""
    found = facts.audit
    if found is None:
        line = fill("Findings of an audit on made-up data (the command unpooled audit STUDY, or this one with --audit).")
        return [paragraph(line)]
    words = (
        "No violation was found"
        if found.passed
        else f"Violations that were found: {len(found.violations)}. Do not approve this study"
    )
    worst = max(found.largest.values(), default=0.0)
    return [
        paragraph(
            f"The study was replayed on {found.neighbours} pairs of made-up data sets that differ as the guarantee says. {words}.",
            f"The farthest that a release moved, as a part of its declared bound: {number(worst)} (1 is allowed)."
            if found.largest
            else "",
        )
    ]


# --- measures ---------------------------------------------------------------------------------------------------------------------


def _measures(facts: Facts) -> Chapter:
    study, statement = facts.study, facts.statement
    methods = sorted({release.mechanism.name for release in facts.plan.releases})
    signed = all(card.key for card in study.members)
    lines: list[str | Phrase] = [
        "The plan fixes all releases before anybody reads data. Each organisation works it out for itself, and refuses any other plan.",
        f"Methods that make releases random: {counted(methods)}." if methods else "",
        "Each organisation's software writes what a release costs into its ledger before it answers. A ledger whose past was edited is refused.",
        "The organisations' cards hold their signing keys: every reply is signed."
        if signed
        else "Not every card holds a signing key, so replies are not signed.",
        "Row ids are compared by a keyed digest before anything else." if study.ids == "aligned" else "",
    ]
    blocks: list[Block] = [Heading("In the software"), bullets(*lines)]
    for one in facts.ledgers:
        blocks += [Heading(f"Policy of {one.party}"), bullets(*_rules(one))]
    missing = [name for name in facts.parties if facts.ledger(name) is None]
    if missing:
        blocks.append(
            paragraph(
                fill(f"The policy of {counted(missing)}: total budget, models, trusted roles (party file, under policy).")
            )
        )
    blocks += [
        Heading("In the organisations"),
        bullets(
            fill(
                "Who may use the machine with the data, the ledger and its key file, and how are they protected and backed up?"
            ),
            fill("Who writes down the head of the ledger in another place after each study?"),
            fill("When are kept values and run folders deleted?"),
            fill("Advice of the data protection officer:"),
            fill("Views of the people concerned or their representatives:"),
        ),
    ]
    if statement.warnings:
        blocks.append(paragraph(fill("What is done about the warnings at the top?")))
    return Chapter("Assessment: measures", tuple(blocks))


def _rules(one: LedgerFacts) -> tuple[str, ...]:
    rules = one.policy
    return (
        f"All studies together may spend epsilon = {rules.epsilon:g} at delta = {rules.delta:g} per {rules.unit}. The total counts {_SCOPE[rules.bounds] if one.columns else _EVERY}.",
        f"Accepted calibrations: {counted(rules.calibrations)}.",
        f"Accepted models: {counted(rules.models)}."
        if rules.models
        else "Accepted models: all of unpooled itself, and no others.",
        f"Trusted roles: {counted(rules.trust)}." if rules.trust else "Trusted roles: none.",
        "Every plan needs an approval."
        if isinstance(rules.approval, str)
        else f"Plans listed as approved: {len(rules.approval)}.",
        "Rows under masks may travel." if rules.joint != "no" else "Rows under masks may not travel.",
        "Rows may be linked with other organisations."
        if rules.psi != "no"
        else "Rows may not be linked with other organisations.",
    )


# --- Dossier ---------------------------------------------------------------------------------------------------------------
# The dossier of a study: everything that a privacy officer and an ethics board read and sign, put together from its parts.

#: The names of the files of a dossier.
MARKDOWN, HTML = "dossier.md", "dossier.html"


def dossier(facts: Facts) -> Document:
    """Return the dossier of a study."""
    sections = (
        guarantee(facts),
        summary(facts),
        *assessment(facts),
        roles(facts),
        *([_run(facts)] if facts.run else []),
        approval(facts),
        patients(facts),
        incident(facts),
    )
    open_ = Document("", (), sections)
    under = (
        Phrase(f"Plan {facts.plan.hash}, written by unpooled {unpooled.__version__}."),
        Phrase(
            "A sentence without a mark is a fact of the study: it was taken from the study file, the plan, the cards of the organisations, and the "
            "party files and ledgers that were given."
        ),
        Phrase(
            "An organisation that holds data is called a party. Those who combine what the parties release run the coordinator."
        ),
        Phrase(
            f"Two marks show what is open: {open_.marked(Mark.FILL)} lines are for you to fill in, and {open_.marked(Mark.LAWYER)} lines are "
            "questions for your lawyer. No sentence here is legal advice."
        ),
    )
    return Document(f"Dossier of a study: {facts.purpose or facts.name}", under, sections)


def _run(facts: Facts) -> Chapter:
    """Return what is known of the run."""
    run = facts.run
    assert run is not None  # the caller asks only then
    about = run.about
    how = (
        "The result was worked out again from the run's messages, and is the stored one."
        if run.agrees
        else "The result was not stored."
    )
    return Chapter(
        "The run",
        (
            bullets(
                stated("Finished", about.finished if about else ""),
                stated("Run by", about.by if about else ""),
                how
                if run.recomputed
                else "The run's messages are at the coordinator. The result is as the coordinator recorded it.",
            ),
            paragraph("Name and time are as those who ran the study wrote them down. The plan's hash does not hold them."),
        ),
    )
