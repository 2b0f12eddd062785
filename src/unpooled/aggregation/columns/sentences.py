"""Sentences of a statement about joint sums: which coalition sees what, what is assumed, what is not protected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.privacy.sentence import Sentence

if TYPE_CHECKING:
    from unpooled.aggregation.columns.design import ColumnsDesign


def unprotected(design: ColumnsDesign) -> tuple[Sentence, ...]:
    """Return the sentences about what joint sums do not protect."""
    most = max(design.aggregation.tolerate, 1)
    noise = Sentence(
        "joint.noise",
        "Epsilon against more than {most} member{s} who tell each other the noise that they added: then less noise is left than stated.",
        most=most,
        s="s" if most > 1 else "",
    )
    found = [coalitions(design), noise]
    if not design.proved:
        unproved = Sentence(
            "joint.unproved",
            "Anything against a party that does not follow the protocol: no party proves that its rows are short, and one that sends long rows "
            "can read the others' rows.",
        )
        found.insert(0, unproved)
    return tuple(found)


def against(design: ColumnsDesign) -> str:
    """Return whom the guarantee protects against, in words."""
    most = max(design.aggregation.tolerate, 1)
    others = "every other member of the study" if most == 1 else f"any {most} other members of the study together"
    honest = "" if design.proved else ", ONLY if all parties follow the protocol"
    return f"{others}, the coordinator and readers of the results{honest}"


def excepted(design: ColumnsDesign) -> tuple[str, ...]:
    """Return those who could read rows together, in words."""
    return (f"{design.helpers[0]} together with a party" if design.helpers else "two parties of which one helped the other",)


def coalitions(design: ColumnsDesign) -> Sentence:
    """Return the sentence about who could read whose rows, if they worked together."""
    if design.helpers:
        return Sentence(
            "joint.helper",
            "Rows against {helper} together with any one party: {helper} knows the masks, and a party has masked rows. Neither {helper} alone nor "
            "any number of parties without it can read a row.",
            helper=design.helpers[0],
        )
    return Sentence(
        "joint.third",
        "Rows against a party together with the party that helped it: with {count} parties and no outside helper, any two that share a pair and "
        "its helper can read the rows that were sent between them. No party alone can.",
        count=len(design.parties),
    )


def assumed(design: ColumnsDesign) -> tuple[Sentence, ...]:
    """Return the sentences about what must be true for the guarantee to hold."""
    sealed = Sentence(
        "joint.sealed",
        "Every one of the {count} members keeps its fragments of the sum to itself. Messages are encrypted with X25519, HKDF-SHA-256 and "
        "AES-256-GCM; masks are AES-256 key streams.",
        count=design.aggregation.count,
    )
    order = Sentence("joint.order", "All parties hold the same people in the same order.")
    return (sealed, order)


def notes(design: ColumnsDesign) -> tuple[str, ...]:
    """Return the plan's notes on the computation: the size of a row, the limits, and who helps whom."""
    what, own = design.words
    helped = "; ".join(f"{side.helper} for {side.sender} and {side.receiver}" for side in design.sides[::2])
    members, honest = len(design.aggregation.parties), design.aggregation.honest
    constants, counted = design.budget.constants, f"of {members} members' noise that of {honest} is counted"
    return (
        f"{what}: exact under masks, opened with noise by all members together",
        f"constants of standardising take {constants:.0%} of the squared budget, {own} {1 - constants:.0%}; {counted}",
        f"who knows masks and has no masked rows: {helped}",
    )
