"""The dossier's parts that people fill in and sign: roles, the approval sheet, the form for an incident."""

from __future__ import annotations

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
from unpooled.study.about import moment

if TYPE_CHECKING:
    from unpooled.evidence.facts import Facts, LedgerFacts


def roles(facts: Facts) -> Chapter:
    """Return who does what as facts, and the questions that follow for a lawyer."""
    helpers = [card.name for card in facts.study.helpers]
    done = [
        f"{counted(facts.parties)}: {'holds' if len(facts.parties) == 1 else 'each holds'} its own data, and keeps its own ledger.",
        "Each organisation decides by its own policy and approval whether a study runs.",
        "The coordinator combines what the organisations release. It has no data of its own, and the plan does not give it rows."
        if not (facts.plan.trusted or facts.plan.voids)
        else "The coordinator combines what the organisations send. The guarantee at the top says who is trusted with more than releases.",
        f"{counted(helpers)}: has no data of this study, and knows masks. The guarantee needs that it works together with no other participant."
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
        if facts.statement.links or facts.study.linked
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
