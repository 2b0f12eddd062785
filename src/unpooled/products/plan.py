"""The plan of a study of columns at different parties: its releases, the sentences of its statement, and the steps of a party."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import msgspec

from unpooled.errors import JointRowsError, UsageError, listed
from unpooled.inference.coordinates import typically_crowded
from unpooled.privacy.accounting import gaussian_epsilon
from unpooled.privacy.mechanisms import Vector
from unpooled.privacy.plan import Plan, Release
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.study import ALLOWED, TRUSTING
from unpooled.privacy.unit import Split
from unpooled.products.conversation import STEPS as JOINT_STEPS
from unpooled.products.conversation import steps_of_release
from unpooled.products.design import CONSTANTS
from unpooled.products.hidden import COMMON, HiddenColumns
from unpooled.products.masking import once
from unpooled.protocol.messages import Nothing, Released
from unpooled.protocol.registry import Step, own_rows
from unpooled.totals.secure_sum import KEYS

if TYPE_CHECKING:
    from unpooled.privacy.plan import Study
    from unpooled.products.design import ColumnsDesign
    from unpooled.protocol.context import Context


_PEOPLE = Sentence(
    "hidden.people",
    "Whether a person is on any list but your own, whom two organisations share, how many these are, and every value of a person. Only totals with noise are "
    "published.",
)


# --- Sentences -------------------------------------------------------------------------------------------------------------
# Sentences of a statement about joint sums: which coalition sees what, what is assumed, what is not protected.


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


def assumed(design: ColumnsDesign, study: Study) -> tuple[Sentence, ...]:
    """Return the sentences about what must be true for the guarantee to hold."""
    sealed = Sentence(
        "joint.sealed",
        "Every one of the {count} members keeps its fragments of the sum to itself. Messages are encrypted with X25519, HKDF-SHA-256 and "
        "AES-256-GCM; masks are AES-256 key streams.",
        count=design.aggregation.count,
    )
    if not isinstance(design, HiddenColumns):
        return (sealed, Sentence("joint.order", "All parties hold the same people in the same order."))
    helped = Sentence(
        "hidden.helper",
        "{helper} works with no party: together they have the rows that were sent to that party, and know which of its people the other one has. {helper} "
        "matched people and drew places as the link says; else epsilon is {second:.3g}.",
        helper=design.helpers[0],
        second=gaussian_epsilon(study.delta, (1 + max(len(design.hospitals), 1)) * design.budget.mu)
        if math.isfinite(design.budget.mu)
        else math.inf,
    )
    return (sealed, helped)


def notes(design: ColumnsDesign) -> tuple[str, ...]:
    """Return the plan's notes on the computation: the size of a row, the limits, and who helps whom."""
    what, own = design.words
    sides = [design.side_at(side, first) for first in _firsts(design) for side in design.sides[::2]]
    helped = "; ".join(f"{side.helper} for {side.sender} and {side.receiver}" for side in sides)
    members, honest = len(design.aggregation.parties), design.aggregation.honest
    constants, counted = design.budget.constants, f"of {members} members' noise that of {honest} is counted"
    gaps = tuple(party for party in design.parties if design.left_out(party))
    marked = (
        f"nobody learns whose row has a gap: marks of whole rows travel under masks too, proven short by themselves. Released with noise are how many rows "
        f"are whole at {listed(list(gaps))}{' alone' if len(gaps) == 1 else ', each alone'}, with the constants, and how many at both parties"
    )
    hidden = isinstance(design, HiddenColumns)
    arrays = (
        f", {listed(list(design.hospitals))} each with {design.hub}"
        if isinstance(design, HiddenColumns) and design.hospitals
        else ""
    )
    people = (
        f"nobody learns whom two parties have in common{arrays}: rows lie at {design.rows:,} places of the link, most of them nobody's, each proven to be somebody's or "
        f"nobody's at a place of its own. About {design.expected:,} people in common are expected; how many there are is released with noise"
    )
    return (
        *((people,) if hidden else ()),
        *((marked,) if gaps and not hidden else ()),
        f"{what}: exact under masks, opened with noise by all members together",
        f"{'means and deviations of people in common' if hidden else 'constants of standardising'} take {constants:.0%} of the squared budget, {own} {1 - constants:.0%}; {counted}",
        f"who knows masks and has no masked rows: {helped}",
        *typically_crowded(design.layout.features, joint=True),
    )


def _firsts(design: ColumnsDesign) -> list[int]:
    """Return the rows at which arrays of places begin: one, but for those of several hospitals."""
    arrays = design.arrays if isinstance(design, HiddenColumns) else ()
    return [sum(arrays[:number]) for number in range(max(len(arrays), 1))]


# --- Releases --------------------------------------------------------------------------------------------------------------
# The plan of a study of columns at different parties: which constants and joint sums are released, and who takes part.

Columns = TypeVar("Columns", bound="ColumnsDesign")


def plan_of(
    study: Study, design: Columns, assumptions: tuple[Sentence, ...] = (), first: tuple[Release, ...] = ()
) -> Plan[Columns]:
    """Return the releases of a study of columns at different parties; ``assumptions`` and ``first`` releases are those of its model."""
    _check_cards(study, design)
    constants = tuple(Release(CONSTANTS, party, CONSTANTS, design.constants_release(party)) for party in design.scaled)
    sums = [release for name, one in design.totals.items() for release in design.summing(name).releases(one, study)]
    return Plan(
        study,
        Split.VERTICAL,
        (*first, *constants, *sums),
        not_protected=unprotected(design),
        assumptions=(*assumptions, *assumed(design, study)),
        hidden=(_PEOPLE,) if study.hidden else (),
        design=design,
        notes=notes(design),
        joint=ALLOWED if design.proved else TRUSTING,
        against=against(design),
        excepted=excepted(design),
    )


def _check_cards(study: Study, design: ColumnsDesign) -> None:
    """Refuse a study with two outside helpers, or with a party whose card says that its masked rows do not travel, or not without a proof."""
    if len(study.helpers) > 1:
        msg = (
            f"{listed([card.name for card in study.helpers])} would help in one joint sum: its proofs are for one outside helper, who knows all masks, "
            "so name one of them"
        )
        raise UsageError(msg)
    keyed = [card for card in study.parties if card.key]  # parties of one process have no policy to ask
    wanted = {ALLOWED, TRUSTING} if design.proved else {TRUSTING}
    for card in keyed:
        if card.joint not in wanted:
            word = ALLOWED if design.proved else TRUSTING
            others = [f'"{row.name}"' for row in own_rows() if row.without_joint_rows is not None]
            msg = (
                f"party {card.name!r} does not let masked rows travel{'' if design.proved else ' without a proof that they are short'}: its card says "
                f'joint = "{card.joint or "no"}". It would have to set joint = "{word}" under [policy] and write its card anew. '
                f"Without it there is model = {listed(others)}, which needs no joint rows"
            )
            raise JointRowsError(msg)


# --- Steps -----------------------------------------------------------------------------------------------------------------
# The steps of a party: its constants with noise, then the steps of joint sums.


class ConstantsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The noisy sums and sums of squares of a party's own columns."""

    sums: Released


def _constants(context: Context[ColumnsDesign], request: Nothing) -> ConstantsReply:  # noqa: ARG001 - the request is no more than its name
    context.planned(CONSTANTS)
    table, design = context.table, context.design
    sums = context.release(CONSTANTS, Vector(design.scales(context.name).statistic(table)))
    context.keep(
        CONSTANTS, sums.values.numpy()
    )  # its own rows are standardised by what it released, never by what somebody sends
    return ConstantsReply(sums)


#: The steps of joint moments in addition to a model's own, of a model that exchanges keys for other sums too.
STEPS = (Step(CONSTANTS, Nothing, ConstantsReply, _constants), *JOINT_STEPS, *steps_of_release(COMMON))
#: The same with the exchange of keys, of a model that has no other use for them.
ALONE = (replace(KEYS, times=once), *STEPS)
