"""The plan of a regression whose columns lie at different parties: its parameters, and its method, which "auto" decides before data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import UsageError
from unpooled.inference.coding import check_formula
from unpooled.inference.printed_terms import TREATMENT, check_coding
from unpooled.inference.priors import EarlierModel, assumed, check_models
from unpooled.models.bayes.columns.sines import WORTH_MOMENTS, SineDesign, strength
from unpooled.privacy.plan import check_parameters
from unpooled.privacy.study import COLUMNS, PROOF
from unpooled.products.design import JointDesign
from unpooled.products.plan import plan_of

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan, Study
    from unpooled.products.design import JointBudget

AUTO, MOMENTS, SINES = "auto", "moments", "sines"
_TWO = 2
#: With earlier models, below this k = n mu / d the noise of the response's mean alone is about as large as its deviation.
WORTH_PRIOR = 6.0


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[parameters]`` of a study of columns at different parties."""

    #: A declared column of one of the parties.
    response: str
    #: What the model is a function of; every term is of columns of one party. Empty: every declared column as it is.
    formula: str = ""
    #: "moments" (one release of second moments), "sines" (rounds for predictions), or "auto", which decides before data.
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
    #: Earlier models of the same response, to which the fit is drawn as far as the release agrees.
    prior: tuple[EarlierModel, ...] = ()


def design_of(study: Study, budget: JointBudget | None = None) -> JointDesign | SineDesign:
    """Return the checked design that the study asks for, with the limits that this budget (else the study's) affords."""
    parameters = check_parameters(study, Parameters)
    if parameters.method not in {AUTO, MOMENTS, SINES}:
        msg = f"method is one of {AUTO}, {MOMENTS}, {SINES}, not {parameters.method!r}"
        raise UsageError(msg)
    if parameters.split != COLUMNS:
        msg = f'split is "{COLUMNS}" where columns lie at different parties, not {parameters.split!r}'
        raise UsageError(msg)
    check_formula(parameters.formula, (parameters.response,))
    if parameters.formula and parameters.method == SINES:
        msg = f'a formula goes with method = "{MOMENTS}", not with "{SINES}"'
        raise UsageError(msg)
    if not 0 < parameters.level < 1:
        raise UsageError("level must lie between 0 and 1")
    design = JointDesign.of(study, parameters, budget, parameters.formula)
    factors = {factor.name: factor.levels for factor in design.layout.terms.factors}
    check_coding(parameters.coding, parameters.reference, factors)
    check_models(parameters.prior, design.layout.names, intercept=design.layout.intercept)
    if parameters.prior and parameters.method == SINES:
        msg = f'prior goes with method = "{MOMENTS}", whose release says how far the models agree, and not with "{SINES}"'
        raise UsageError(msg)
    strong = strength(len(design.layout.coding.attribute), design.rows, design.budget)
    if parameters.prior and parameters.method == AUTO and strong < WORTH_PRIOR:
        msg = (
            f"with {design.rows} rows and this epsilon the noise of the response's mean hides how far the rows agree with earlier models: ask for more "
            f'rows or a larger epsilon, use the earlier model as it is, or ask for method = "{MOMENTS}" all the same'
        )
        raise UsageError(msg)
    two = len(design.parties) == _TWO
    if parameters.method == SINES and not two:
        msg = f'method = "{SINES}" needs two parties, and this study has {len(design.parties)}: use method = "{MOMENTS}"'
        raise UsageError(msg)
    weak = two and not parameters.formula and not parameters.prior and strong < WORTH_MOMENTS
    by_sines = parameters.method == SINES or (parameters.method == AUTO and weak)
    return SineDesign.of(study, parameters, budget) if by_sines else design


def compile_plan(study: Study) -> Plan[JointDesign | SineDesign]:
    """Return the releases of a study of columns at different parties."""
    design = design_of(study)
    models = design.parameters.prior if isinstance(design.parameters, Parameters) else ()
    return plan_of(study, design, assumed(study, models))
