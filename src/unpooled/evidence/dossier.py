"""The dossier of a study: everything that a privacy officer and an ethics board read and sign, put together from its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import unpooled
from unpooled.evidence.assessment import assessment
from unpooled.evidence.document import Chapter, Document, Mark, Phrase, bullets, paragraph, stated
from unpooled.evidence.forms import approval, incident, roles
from unpooled.evidence.summary import guarantee, patients, summary

if TYPE_CHECKING:
    from unpooled.evidence.facts import Facts

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
