"""Which form a LASSO study takes, decided before data: standardised moments, the paper's rounds, joint moments, or the mean alone."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING

from unpooled.errors import UsageError
from unpooled.models.lasso.coordinator import coordinate as coordinate_rounds
from unpooled.models.lasso.declared import LOGISTIC, Parameters
from unpooled.models.lasso.joint import compile_joint, coordinate_joint
from unpooled.models.lasso.plan import compile_plan as compile_rounds
from unpooled.models.lasso.standard_coordinator import coordinate_standard
from unpooled.models.lasso.standard_plan import StandardDesign, compile_standard
from unpooled.privacy.plan import check_parameters
from unpooled.privacy.study import PROOF
from unpooled.products.design import JointDesign

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan, Study
    from unpooled.protocol.registry import Conversation

__all__ = ["Form", "compile_plan", "coordinate", "form_of"]


class Form(StrEnum):
    """Ways to spend the budget."""

    AUTO = "auto"
    #: Privately standardised columns, and moments of each party's own.
    MOMENTS = "moments"
    #: The paper's rounds, which release columns.
    ROUNDS = "frank-wolfe"
    #: Moments of the columns of all parties, joined under masks.
    JOINT = "joint"


#: Parameters that only the rounds have: a study that sets one of them means the rounds.
_OF_ROUNDS = ("coupling", "rounds", "sampled", "clip", "shares", "refit", "response_public", "sketch_rows")


def form_of(study: Study) -> Form:
    """Return the form of a study: what it asks for, or what suits it (without noise, the rounds are exact in the ball that is named)."""
    p = check_parameters(study, Parameters)
    if p.method not in set(Form):
        msg = f"method is one of {', '.join(Form)}, not {p.method!r}"
        raise UsageError(msg)
    if p.loss == LOGISTIC and p.method == Form.ROUNDS:
        msg = f"a logistic loss is fitted from moments: leave method = {Form.ROUNDS.value!r} out"
        raise UsageError(msg)
    form = Form(p.method)
    if form is Form.AUTO and study.helpers:
        form = Form.JOINT
    if form is Form.AUTO and p.loss == LOGISTIC:
        form = Form.MOMENTS
    told = [name for name in _OF_ROUNDS if getattr(p, name) != getattr(_DEFAULTS, name)]
    if form in {Form.MOMENTS, Form.JOINT} and told:
        msg = f"{told[0]} belongs to method = {Form.ROUNDS.value!r}: leave it out, or ask for that form"
        raise UsageError(msg)
    if form is not Form.JOINT and (study.helpers or p.tolerate or p.check != PROOF):
        msg = f"helpers, tolerate and check belong to method = {Form.JOINT.value!r}: leave them out, or ask for that form"
        raise UsageError(msg)
    if form is not Form.AUTO:
        return form
    exact = math.isinf(study.epsilon) and p.radius_in_half_ranges is not None
    return Form.ROUNDS if told or exact else Form.MOMENTS


_DEFAULTS = Parameters()


def compile_plan(study: Study) -> Plan:
    """Return the releases of a LASSO study."""
    form = form_of(study)
    if form is Form.JOINT:
        return compile_joint(study)
    for card in study.parties:
        if not card.columns:
            msg = f"party {card.name!r} declares no column to choose from: leave it out of the study"
            raise UsageError(msg)
    return compile_standard(study) if form is Form.MOMENTS else compile_rounds(study)


def coordinate(plan: Plan) -> Conversation:
    """The conversation of the plan's form."""
    if isinstance(plan.design, JointDesign):
        return (yield from coordinate_joint(plan))
    if isinstance(plan.design, StandardDesign):
        return (yield from coordinate_standard(plan))
    return (yield from coordinate_rounds(plan))
