"""The row of studies that link rows, of which no registry of models knows: it finds who is in common, or, hidden, lets nobody find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.linkage.coordinator import coordinate
from unpooled.linkage.hidden.coordinator import coordinate_hidden
from unpooled.linkage.hidden.matcher import MATCHER_STEPS
from unpooled.linkage.hidden.party import STEPS as HIDDEN_STEPS
from unpooled.linkage.hidden.party import check_hidden
from unpooled.linkage.hidden.plan import SIZES, HiddenResult, compile_hidden, render_hidden, reveals_nothing
from unpooled.linkage.party import STEPS, check
from unpooled.linkage.plan import LinkResult, compile_plan, render
from unpooled.protocol.registry import Model, ResultReading

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.registry import Conversation


def _compiled(study: Study) -> Plan:
    return compile_hidden(study) if reveals_nothing(study) else compile_plan(study)


def _coordinated(plan: Plan) -> Conversation:
    return (yield from (coordinate_hidden if plan.hides else coordinate)(plan))


def _checked(plan: Plan, party: str, table: Table) -> None:
    (check_hidden if plan.hides else check)(plan, party, table)


def _rendered(result: LinkResult | HiddenResult) -> str:
    return render_hidden(result) if isinstance(result, HiddenResult) else render(result)


#: Not a row of the registry of models: it predicts nothing. A study of it says ``model = "link"``. Steps of the other protocol are planned 0 times.
MODEL = Model(
    "link",
    _compiled,
    (*STEPS, *HIDDEN_STEPS, *MATCHER_STEPS),
    _coordinated,
    ResultReading(render=_rendered, types=(LinkResult, HiddenResult)),
    caps=True,
    check=_checked,
    releases={SIZES: "how many people exactly these parties hold, by pseudonyms, for the helper alone"},
    says="which people all parties have in common",
)
