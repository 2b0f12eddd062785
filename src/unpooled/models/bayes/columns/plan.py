"""The plan of a regression whose columns lie at different parties: its parameters, and one release of joint moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from unpooled.aggregation.columns.design import JointDesign
from unpooled.aggregation.columns.releases import plan_of
from unpooled.aggregation.columns.words import COLUMNS, PROOF
from unpooled.aggregation.printed_terms import TREATMENT, check_coding
from unpooled.errors import UsageError
from unpooled.privacy.plan import check_parameters

if TYPE_CHECKING:
    from unpooled.aggregation.columns.limits import JointBudget
    from unpooled.privacy.plan import Plan, Study

AUTO, MOMENTS = "auto", "moments"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[parameters]`` of a study of joint second moments."""

    #: A declared column of one of the parties.
    response: str
    #: Not supported for columns at different parties yet; empty.
    formula: str = ""
    #: "auto" or "moments": one release of second moments.
    method: str = AUTO
    #: Columns are split: the only value of this model.
    split: str = COLUMNS
    #: The most members that may know each other's noise, or stay silent about their own.
    tolerate: int = 0
    #: "proof": every party proves that its masked rows are short; "none": it does not, and the guarantee is only against parties that follow the protocol.
    check: str = PROOF
    #: Of the intervals that are reported.
    level: float = 0.95
    #: How the levels of a column are compared in the table: with one of them (else the first that is declared), or with their mean ("sum").
    reference: dict[str, str] = msgspec.field(default_factory=dict)
    coding: str = TREATMENT


def design_of(study: Study, budget: JointBudget | None = None) -> JointDesign:
    """Return the checked design that the study asks for, with the limits that this budget (else the study's) affords."""
    parameters = check_parameters(study, Parameters)
    if parameters.method not in {AUTO, MOMENTS}:
        msg = f"method is one of {AUTO}, {MOMENTS}, not {parameters.method!r}"
        raise UsageError(msg)
    if parameters.split != COLUMNS:
        msg = f'split is "{COLUMNS}" where columns lie at different parties, not {parameters.split!r}'
        raise UsageError(msg)
    if parameters.formula:
        raise UsageError("a formula is not supported where columns lie at different parties: add its columns to the data")
    if not 0 < parameters.level < 1:
        raise UsageError("level must lie between 0 and 1")
    design = JointDesign.of(study, parameters, budget)
    factors = {factor.name: factor.levels for factor in design.layout.terms.factors}
    check_coding(parameters.coding, parameters.reference, factors)
    return design


def compile_plan(study: Study) -> Plan[JointDesign]:
    """Return the releases of a study of joint moments."""
    return plan_of(study, design_of(study))
