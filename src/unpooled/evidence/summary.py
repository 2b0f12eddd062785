"""The dossier's parts in plain words, for those who decide and for patients, and the parts that people fill in and sign."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from unpooled.evidence.document import (
    Block,
    Chapter,
    Grid,
    Heading,
    Phrase,
    Signatures,
    bullets,
    counted,
    fill,
    lawyer,
    paragraph,
    stated,
)
from unpooled.privacy.statement import belief, upward
from unpooled.privacy.study import TRUSTING
from unpooled.privacy.unit import Unit
from unpooled.study.finished import moment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unpooled.evidence.document import Facts, LedgerFacts


# --- Summary ---------------------------------------------------------------------------------------------------------------
# The dossier's parts in plain words: the summary for people who decide, and a draft of what patients read.


def guarantee(facts: Facts) -> Chapter:
    """Return the promise of the study: its headline, its meaning for a person, and epsilon for every unit in one size."""
    statement = facts.statement
    blocks: list[Block] = [paragraph(statement.headline)]
    if statement.holds:
        blocks += [
            paragraph(statement.reading),
            *([paragraph(f"For a whole person instead of one value: {facts.whole}")] if facts.whole else []),
            paragraph(f"Protected against: {statement.protects_against}."),
            paragraph(f"In technical words: {_first(facts)}"),
        ]
    if said := statement.warnings[statement.links :]:
        blocks.append(bullets(*(f"Warning: {sentence}" for sentence in said)))
    if not statement.links:
        blocks += [
            paragraph(
                f"The table shows the smallest epsilon that is proved, at delta = {statement.delta:g}. A smaller epsilon is a stronger promise. "
                "Epsilon 0 would mean that results say nothing."
            ),
            Grid(("what changes", "epsilon"), facts.epsilons, (1,)),
        ]
    return Chapter("The guarantee", tuple(blocks), verdict=statement.strength)


def summary(facts: Facts) -> Chapter:
    """Return the study in a few sentences."""
    names, one = facts.parties, len(facts.parties) == 1
    who = f"One organisation takes part: {names[0]}." if one else f"{len(names)} organisations take part: {counted(names)}."
    held = "; ".join(f"{card.name}: {card.size}" for card in facts.study.parties)
    how = "rows of different people" if facts.rows_split else "columns about the same people"
    helpers = [card.name for card in facts.study.helpers]
    return Chapter(
        "Summary in plain words",
        (
            paragraph(stated("Purpose, as the study file states it", facts.purpose)),
            paragraph(
                who,
                "" if one else f"They hold {how}.",
                f"Number of rows ({held}).",
                f"{counted(helpers)} helps without data of its own." if helpers else "",
            ),
            paragraph(f"The study computes {counted(facts.analyses)}."),
            paragraph(*leaving(facts)),
            paragraph(fill("What will the results be used for, and who benefits?")),
        ),
    )


def leaving(facts: Facts) -> tuple[str, ...]:
    """Return sentences on what leaves an organisation, as the plan has it."""
    plan, statement = facts.plan, facts.statement
    if statement.links:
        return ("Lists of ids leave each organisation under secret masks. No name and no id leaves it in clear.",)
    if plan.hides:
        return (
            "Lists of ids leave each organisation under secret masks. No name and no id leaves it in clear.",
            f"{_helpers(facts)} matches pseudonyms, and learns how many people are in common, with noise.",
            "No other organisation learns who is on another list, or how many.",
        )
    said = ["No row of data leaves an organisation."] if _stay(facts) else list(_clear(facts))
    if plan.joint:
        said.append(
            "Rows travel between organisations under random masks. An organisation that has masked rows can read them only together "
            "with the one that knows the masks."
        )
    said += [f"Trusted with more than results: {sentence}." for sentence in plan.trusted]
    if math.isfinite(facts.study.epsilon) and facts.numbers_out:
        said.append(
            f"At most {facts.numbers_out} number{'s are' if facts.numbers_out > 1 else ' is'} released, in all steps together. Each of them is made "
            "random before it is released, "
            "by a method that the plan fixes before anybody reads data."
        )
    return tuple(said)


def _helpers(facts: Facts) -> str:
    return counted([card.name for card in facts.study.helpers])


def _clear(facts: Facts) -> Iterator[str]:
    """Yield a sentence for each organisation that sends columns as they are."""
    for name, columns in facts.trial.clear.items() if facts.trial else ():
        if columns:
            yield f"{name} sends {counted(columns)} as it is, a value for each person: the study declares this public."


def _stay(facts: Facts) -> bool:
    """Return True if nothing but releases leaves an organisation; False where nobody can say."""
    plan, trial = facts.plan, facts.trial
    return not (plan.joint or plan.trusted or plan.voids or trial is None or any(trial.clear.values()))


def patients(facts: Facts) -> Chapter:
    """Return a draft of what people whose data are used may read, in short sentences."""
    places = "place" if len(facts.parties) == 1 else "places"
    blocks: list[Block] = [
        paragraph("This is a draft for people whose data are used. Read it to a few of them before you use it."),
        Heading("What is this about?"),
        paragraph(
            fill("Say the question of the study in one short sentence."),
            f"The {places} that hold the data: {counted(facts.parties)}.",
            fill("Say where the data of these people come from."),
        ),
        Heading("What happens to my data?"),
        paragraph(*_happens(facts)),
        Heading("Can somebody find out about me?"),
        paragraph(*_found_out(facts)),
        Heading("Do I have to take part?"),
        paragraph(
            fill("Say if people can say no, and how."),
            "Numbers that have been shared cannot be called back. A place can stop the study at any time. Then it shares nothing more.",
        ),
        Heading("Whom can I ask?"),
        bullets(*(stated(card.name, card.contact) for card in facts.study.members)),
    ]
    return Chapter("Words for patients", tuple(blocks))


def _happens(facts: Facts) -> tuple[str, ...]:
    plan, statement = facts.plan, facts.statement
    if statement.links:
        return (
            "The places want to know which people all of them have.",
            "They compare lists. The names on the lists are hidden by secret codes.",
            "Each place learns which of its own people all places have. It learns this exactly.",
        )
    if plan.hides:
        return (
            "The places compare lists. The names on the lists are hidden by secret codes.",
            "No place learns who is on the list of another place.",
            f"{_helpers(facts)}, which has no data of these people, compares the codes.",
            "It learns about how many people are on several lists, and not exactly.",
            *filter(None, [_limit(facts)]),
        )
    where = ["Your data stay where they are now."] if _stay(facts) else list(_clear(facts))
    if plan.joint:
        where += _masked(facts)
    alone, together, added = facts.summed
    private = math.isfinite(facts.study.epsilon)
    if together or added:
        where.append("The places work out numbers together.")
    if added:
        where.append("One place that is trusted adds up the numbers of all places.")
    if private and (together or added):
        where.append(f"The {'sums' if added else 'numbers'} are changed a little, at random, before anybody else sees them.")
    if alone or not (together or added):
        where.append("Each place works out numbers from the data of its people.")
        where += ["Before it shares them, it changes them a little, at random."] if private and alone else []
    where += [f"Somebody who is trusted gets more than these numbers: {sentence}." for sentence in plan.trusted]
    return tuple(part for part in (*where, _limit(facts)) if part)


def _masked(facts: Facts) -> list[str]:
    """Return what masks hide, and from whom they do not."""
    helpers = [card.name for card in facts.study.helpers]
    said = ["Your data are hidden under random numbers before they travel."]
    if facts.plan.joint == TRUSTING:
        said.append("A place that breaks the rules could read the data of another.")
    else:
        said.append("No single place can read the data of another.")
    if helpers:
        said.append(f"{counted(helpers)}, which has no data of these people, helps them.")
        said.append(f"{counted(helpers)} and one of these places could read data together, if they broke the rules.")
    else:
        said.append("Two places that break the rules together could.")
    return said


def _limit(facts: Facts) -> str:
    if not facts.statement.holds:
        return ""
    one = "one fact about a person" if facts.statement.unit == Unit.ATTRIBUTE else "any one person"
    return f"This limits what the numbers can say about {one}."


def _found_out(facts: Facts) -> tuple[str | Phrase, ...]:
    """Return the promise as a bet, in hundredths; or that there is none."""
    statement = facts.statement
    if not statement.holds:
        return (
            "We do not promise that nobody can find out about you from what is shared.",
            fill("Say why the study is done all the same."),
        )
    unit, zero_out = Unit(statement.unit), statement.adjacency == "zero-out"
    whom = {Unit.RECORD: "you", Unit.ATTRIBUTE: "one fact about you", Unit.HOUSEHOLD: "your household"}[unit]
    guess = "that you took part" if zero_out else f"something about {whom}"
    epsilon = statement.epsilon_per_unit[unit]
    said = [
        f"Think of a person who knows everything else. This person guesses {guess}. The guess is right with a chance of 50 in 100.",
        f"After the results, the chance may be up to {_hundredths(epsilon)}. It cannot be more than that",
    ]
    said[-1] += (
        f", but for very rare bad luck. The chance of such bad luck is at most {upward(statement.failure)}."
        if statement.failure
        else "."
    )
    if zero_out:
        said.append(f"The same for a fact about {whom}: it may be up to {_hundredths(2 * epsilon)}.")
    if unit is Unit.ATTRIBUTE:
        whole = statement.epsilon_per_unit[Unit.RECORD]
        limit = "none is proved" if math.isinf(whole) else f"up to {_hundredths(whole)}"
        said.append(f"This limit is about one fact. The limit for all facts about you together: {limit}.")
    said.append("This is about this study alone. If other studies use your data, too, others may learn more.")
    for one in facts.ledgers:
        if one.budget.unit == unit:
            most = _hundredths(one.budget.epsilon * (1 + zero_out))
            said.append(f"For all studies with the data of {one.party} together, the limit is {most}.")
    said.append("The results also say something about people in general. Others may think that it is true of you as well.")
    return tuple(said)


def _hundredths(epsilon: float) -> str:
    return belief(epsilon).replace("%", "in 100")


def _first(facts: Facts) -> str:
    """Return the first sentence of the statement."""
    line = str(facts.statement).splitlines()[0]
    return line[0].lower() + line[1:]


# --- Forms -----------------------------------------------------------------------------------------------------------------
# The dossier's parts that people fill in and sign: roles, the approval sheet, the form for an incident.


def roles(facts: Facts) -> Chapter:
    """Return who does what as facts, and the questions that follow for a lawyer."""
    helpers = [card.name for card in facts.study.helpers]
    done = [
        f"{counted(facts.parties)}: {'holds' if len(facts.parties) == 1 else 'each holds'} its own data, and keeps its own ledger.",
        "Each organisation decides by its own policy and approval whether a study runs.",
        "The coordinator combines what the organisations release. It has no data of its own, and the plan does not give it rows."
        if not (facts.plan.trusted or facts.plan.voids)
        else "The coordinator combines what the organisations send. The guarantee at the top says who is trusted with more than releases.",
        f"{counted(helpers)}: has no data of this study, and {'matches pseudonyms' if facts.plan.hides else 'knows masks'}. The guarantee needs that it works together with no other participant."
        if helpers
        else "",
        "The analyst writes the study file: purpose, columns, model and strength of protection. The organisations accept it or refuse it.",
        "The authors of unpooled take no part in the study. The software sends nothing to them.",
    ]
    asked = [
        *(lawyer(f"Is {name} a controller for this study?") for name in facts.parties),
        lawyer("Do the organisations determine purpose and means jointly? If so: who informs people, and who answers them?")
        if len(facts.parties) > 1
        else "",
        lawyer("Is the one who runs the coordinator a processor, a controller, or neither? Is a contract needed?"),
        *(
            lawyer(f"In which role does {name} help, and which contract forbids it to work with a participant?")
            for name in helpers
        ),
        lawyer("Are the released numbers personal data for those who receive them?"),
        lawyer("Are linked pseudonyms personal data for those who receive them?")
        if facts.plan.links or facts.study.linked
        else "",
        fill("Who wrote the study file?"),
    ]
    return Chapter(
        "Roles",
        (
            Heading("Facts of this study"),
            bullets(*done),
            Heading("Controller, processor, joint controllers"),
            paragraph(
                "The law decides these roles from the facts above and from your contracts. This page does not decide them."
            ),
            bullets(*asked),
        ),
    )


def approval(facts: Facts) -> Chapter:
    """Return the approval of each organisation as its ledger holds it, and lines to sign on."""
    blocks: list[Block] = [
        paragraph(
            f"A signature below approves the plan with the hash {facts.plan.hash}, and no other plan. A change of the study makes another hash, "
            "except for a change of the purpose, which the hash does not hold."
        )
    ]
    for name in facts.parties:
        found = facts.ledger(name)
        blocks += [Heading(name), bullets(*(_approved(found) if found else _unknown()))]
        blocks.append(
            Signatures(
                (f"Data protection officer of {name}: name, date, signature", f"Head of {name}: name, date, signature")
            )
        )
    for card in facts.study.helpers:
        blocks += [
            Heading(card.name),
            bullets("A helper: it has no data, and its ledger debits nothing.", fill("Approved by, on, for the reason:")),
            Signatures((f"Head of {card.name}: name, date, signature",)),
        ]
    blocks += [
        Heading("Study"),
        Signatures(
            (
                "Responsible for the study: name, date, signature",
                "Ethics committee: name, number of the vote, date, signature",
            )
        ),
    ]
    return Chapter("Approval sheet", tuple(blocks))


def _unknown() -> tuple[Phrase, ...]:
    return (
        fill("Approved by, on, for the reason:"),
        fill("Total budget of the organisation, spent before this study and after it:"),
        fill("Head of the ledger after the approval:"),
    )


def _approved(one: LedgerFacts) -> tuple[str | Phrase, ...]:
    found, head = one.approval, f"Head of the ledger: {one.head}"
    if one.withdrawal is not None:
        gone = one.withdrawal
        by = f" by {gone.by}" if gone.by else ""
        return (
            f"Withdrawn on {moment(gone.time)} UTC{by}: nothing more of this plan is answered.",
            stated("Reason", gone.reason),
            head,
        )
    if found is not None:
        return (
            f"Approved in the ledger on {moment(found.time)} UTC, {found.data_words}.",
            stated("Approved by", found.by),
            stated("Reason", found.reason),
            f"Releases of this plan that are debited: {one.debited}.",
            head,
        )
    if one.listed:
        return ("The policy lists this plan as approved.", fill("Who put it on the list, when and why?"), head)
    return (Phrase("Not approved in the ledger."), fill("Approved by, on, for the reason:"), head)


def incident(facts: Facts) -> Chapter:
    """Return a form for the day on which something went wrong, with what each kind of incident means for the guarantee."""
    blocks: list[Block] = [
        paragraph("Use this form when something went wrong. Save all files as they are before you change anything."),
        bullets(
            f"Study: {facts.name}, plan {facts.plan.hash[:16]}.",
            *(f"Head of the ledger of {one.party} when this dossier was written: {one.head}" for one in facts.ledgers),
            fill("Organisation, your name, date and time:"),
            fill("What happened, when, and who noticed it?"),
            fill("Which files or machines are concerned (data, ledger, key file, card, run folder)?"),
            fill("Whose data, and how many people?"),
            fill("What was done at once?"),
            lawyer("Must the supervisory authority or the people concerned be informed, and until when?"),
        ),
        Heading("What it means for the guarantee"),
        Grid(("if this happened", "then"), tuple(_meanings(facts))),
        Heading("What to do"),
        bullets(
            "To stop the study at once: unpooled party withdraw STUDY --config PARTY-FILE. From then on nothing of it is answered.",
            "To hand over the ledger without its key: unpooled party ledger --export FILE --config PARTY-FILE.",
            "To check a run against the organisations' signatures: unpooled report RUN --verify --card CARD, once for each card.",
        ),
        Signatures(("Reported by: name, date, signature", "Data protection officer: name, date, signature")),
    ]
    return Chapter("Incident form", tuple(blocks))


def _meanings(facts: Facts) -> list[tuple[str, str]]:
    rows = [
        ("Data were stolen or read where they are kept", "Nothing in this dossier protects against it."),
        (
            "A key file, the file next to a ledger whose name ends in .key, was read by somebody else",
            "That person can work out the noise of this organisation's releases in all its studies. Their guarantees do not hold against that person.",
        ),
        (
            "A ledger was lost, or an old copy of it was put back",
            "The organisation may spend its budget twice. Compare the head of the ledger with the one that was written down.",
        ),
    ]
    if facts.statement.holds:
        rows.append(
            (
                "Results or the run's messages became known to more people",
                "The guarantee at the top covers readers of the results.",
            )
        )
    if facts.plan.joint:
        rows.append(
            (
                "An organisation that has masked rows worked together with the one that knows the masks",
                "They can read the rows of the sender.",
            )
        )
    return rows
