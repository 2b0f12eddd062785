"""The plan of a study of columns at different parties: which constants and joint sums are released, and who takes part."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from unpooled.aggregation.columns.design import CONSTANTS
from unpooled.aggregation.columns.sentences import against, assumed, excepted, notes, unprotected
from unpooled.aggregation.joint.sums import JOINT
from unpooled.errors import JointRowsError, UsageError, listed
from unpooled.privacy.plan import Plan, Release
from unpooled.privacy.study import ALLOWED, TRUSTING
from unpooled.privacy.unit import Split

if TYPE_CHECKING:
    from unpooled.aggregation.columns.design import ColumnsDesign
    from unpooled.privacy.plan import Study
    from unpooled.privacy.sentence import Sentence

Columns = TypeVar("Columns", bound="ColumnsDesign")


def plan_of(study: Study, design: Columns, assumptions: tuple[Sentence, ...] = ()) -> Plan[Columns]:
    """Return the releases of a study of columns at different parties; ``assumptions`` are those of its model."""
    _check_cards(study, design)
    constants = tuple(Release(CONSTANTS, party, CONSTANTS, design.constants_release(party)) for party in design.parties)
    return Plan(
        study,
        Split.VERTICAL,
        (*constants, *design.aggregation.releases(design.totals[JOINT], study)),
        not_protected=unprotected(design),
        assumptions=(*assumptions, *assumed(design)),
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
            msg = (
                f"party {card.name!r} does not let masked rows travel{'' if design.proved else ' without a proof that they are short'}: its card says "
                f'joint = "{card.joint or "no"}". It would have to set joint = "{word}" under [policy] and write its card anew. '
                'Without it there is model = "pride", which needs no joint rows'
            )
            raise JointRowsError(msg)
