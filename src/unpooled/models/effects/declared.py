"""Declarations of a study of a treatment effect: its columns, its estimand, and the models by which it adjusts."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

import msgspec

from unpooled.errors import UsageError, listed
from unpooled.families.names import refused_family
from unpooled.formula import Formula
from unpooled.formula.arithmetic import quoted
from unpooled.inference.priors import EarlierModel, check_models
from unpooled.privacy.bounds import Column
from unpooled.privacy.declared import Confidence, ExpectedMissing, OverParties, says
from unpooled.privacy.study import Study, check_parameters
from unpooled.protocol.registry import ROWS, Template
from unpooled.schedules import table
from unpooled.totals.whole_rows import leaving_out, needed, refuse_limit

# --- Parameters ------------------------------------------------------------------------------------------------------------
# Declarations of a study of a treatment effect: its columns, its estimand, and the models by which it adjusts.

#: The parts of the plan, by name: models that other systems fit. The last says whose outcome is on record.
PROPENSITY, OUTCOME, PRESENCE = "propensity", "outcome", "presence"
#: A treatment has two levels.
_TWO = 2
_INTERVALS = table("effects").whole("intervals")


class Estimator(StrEnum):
    """The way to the effect."""

    #: That which the size of the study allows: augmented weighting, or partialling out where it has too few rows for two models of everybody.
    AUTO = "auto"
    #: Augmented inverse probability weighting: right if either model is.
    AIPW = "aipw"
    #: Inverse probability weighting of each arm's mean.
    IPTW = "iptw"
    #: The g-formula: the outcome model's mean under both treatments.
    OUTCOME = "g-formula"
    #: Partialling out: what covariates leave of the outcome against what they leave of the treatment.
    PARTIAL = "partial"


class Estimand(StrEnum):
    """The people whom the effect is averaged over."""

    #: Those over whom the estimator averages.
    AUTO = "auto"
    ALL = "ATE"
    TREATED = "ATT"
    #: People whose treatment was open: a person counts e (1 - e), with e the probability of treatment given the covariates.
    OVERLAP = "ATO"


class OutcomeFamily(StrEnum):
    """The outcome model."""

    LINEAR = "linear"
    LOGISTIC = "logistic"
    POISSON = "poisson"
    GAMMA = "gamma"
    NEGATIVE_BINOMIAL = "negative-binomial"
    SURVIVAL = "survival"


#: Families whose mean is the exponential of the linear predictor.
_LOGS = frozenset({OutcomeFamily.POISSON, OutcomeFamily.GAMMA, OutcomeFamily.NEGATIVE_BINOMIAL})


class Parameters(OverParties, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[parameters]`` of a study of a treatment effect."""

    response: Annotated[
        str,
        says(
            'The outcome: a declared number, or two categories (family = "logistic") of which the second counts as 1; of survival the time until the '
            "event or until a person left.",
            "y",
            column=True,
            study=True,
        ),
    ]
    treatment: Annotated[
        str,
        says("The declared column of two categories, the first of which is the control.", "arm", column=True),
    ]
    covariates: Annotated[
        str,
        says('What is adjusted for, as the right side of a formula. "." is every other declared column.', shown=True),
    ] = "."
    propensity: Annotated[str, says("The same for the propensity alone. Left out: as the covariates.")] = ""
    estimator: Annotated[
        str,
        says(
            '"aipw" weights the residuals of an outcome model, and is right if either model is. "iptw" compares weighted means. "g-formula" averages the '
            'outcome model under both treatments. "partial" takes out of treatment and outcome what the covariates say of them, which needs the fewest '
            'rows. "auto" is "aipw" where rows, epsilon and columns allow it, else "partial"; the plan says which.',
            choices=Estimator,
        ),
    ] = Estimator.AUTO
    estimand: Annotated[
        str,
        says(
            'Whom the effect is averaged over: everybody (ATE), the treated (ATT), or people whose treatment was open (ATO, of "partial": a person counts '
            'e (1 - e), with e the probability of treatment given the covariates). "auto" is that of the estimator.',
            choices=Estimand,
        ),
    ] = Estimand.AUTO
    family: Annotated[
        str,
        says(
            "The outcome model. The effect is a difference of means; of survival a difference of the probabilities to be alive at ``horizon``.",
            choices=OutcomeFamily,
        ),
    ] = OutcomeFamily.LINEAR
    interactions: Annotated[
        bool,
        says(
            "Whether every arm has an outcome model of its own; else there is one model, to which the treatment adds a number."
        ),
    ] = True
    event: Annotated[
        str, says("Of survival: the declared column of 0 and 1 that says whether there was an event.", column=True)
    ] = ""
    horizon: Annotated[float | None, says("Of survival: the time at which people are alive or not.", 365.0)] = None
    cuts: Annotated[
        tuple[float, ...],
        says("Of survival: where hazards may change. Left out: six equal intervals up to the horizon."),
    ] = ()
    overlap: Annotated[float, says("Propensities are kept between this number and 1 less it.")] = 0.05
    max_passes: Annotated[int, says("The most passes over every party's data for each of both models.")] = 105
    expected_missing: ExpectedMissing = 0.0
    confidence: Confidence = 0.95
    prior: Annotated[
        tuple[EarlierModel, ...],
        says(
            'Earlier estimates of the same effect, to which it is drawn (docs/prior.md): { name = "2024", coefficients = { ATE = -1.5 } }',
            lean=True,
        ),
    ] = ()


@dataclass(frozen=True)
class DeclaredEffect:
    """The columns and the two formulas of a study of an effect, checked."""

    parameters: Parameters
    response: Column
    treatment: Column
    event: Column | None
    #: The right sides of both models, without dots.
    outcome_formula: str
    propensity_formula: str
    #: The declared columns that they read, beside the treatment.
    outcome_needs: tuple[str, ...]
    propensity_needs: tuple[str, ...]
    #: The declared columns whose missing values leave a row out: of everything, but for the outcome.
    left_out: tuple[Column, ...] = ()

    @property
    def arms(self) -> tuple[str, str]:
        """Return the control and the treatment."""
        control, treated = self.treatment.categories or ("", "")
        return control, treated

    @property
    def family(self) -> OutcomeFamily:
        """Return the outcome model."""
        return OutcomeFamily(self.parameters.family)

    def by(self, estimator: Estimator, estimand: Estimand) -> DeclaredEffect:
        """Return the same study with this estimator and estimand."""
        asked = msgspec.structs.replace(self.parameters, estimator=str(estimator), estimand=str(estimand))
        return replace(self, parameters=asked)

    @property
    def unseen(self) -> Column | None:
        """Return the outcome as it is declared where people without it count too; None where all have one, or are left out."""
        if self.family is OutcomeFamily.SURVIVAL or self.parameters.estimator in {Estimator.AUTO, Estimator.PARTIAL}:
            return None
        return next((column for column in self.left_out if column.name == self.response.name), None)

    @property
    def always(self) -> tuple[Column, ...]:
        """Return the columns whose missing values leave a row out of everything: all but the outcome, where people without it count."""
        return tuple(column for column in self.left_out if column != self.unseen)

    @property
    def partial_formula(self) -> str:
        """Return the right side of treatment and covariates side by side."""
        return f"{quoted(self.treatment.name)} + ({self.propensity_formula})"

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the names of treatment, outcome and event."""
        columns = (self.treatment, self.response, *([] if self.event is None else [self.event]))
        return tuple(column.name for column in columns)

    @property
    def arm_formula(self) -> str:
        """Return the right side of a model of the arms alone."""
        return quoted(self.treatment.name)

    @property
    def edges(self) -> tuple[float, ...]:
        """Return the ends of the intervals of survival, the last of which is the horizon."""
        end = self.parameters.horizon or 0.0
        inner = self.parameters.cuts or tuple(end * k / _INTERVALS for k in range(1, _INTERVALS))
        return (*(cut for cut in inner if cut < end), end)

    @property
    def hazard_cuts(self) -> tuple[float, ...]:
        """Return the times at which hazards may change: the ends inside the declared follow-up."""
        return tuple(edge for edge in self.edges if edge < self.response.range[1])

    @property
    def limits(self) -> tuple[float, float]:
        """Return the smallest and the largest outcome, as the effect counts it."""
        if self.family is OutcomeFamily.SURVIVAL or self.response.categories is not None:
            return 0.0, 1.0
        return self.response.range

    @property
    def widest(self) -> float:
        """Return the length of the range of the outcome."""
        low, high = self.limits
        return high - low

    @property
    def logs(self) -> bool:
        """Return True if the mean is the exponential of the linear predictor."""
        return self.family in _LOGS


def declared_of(study: Study) -> DeclaredEffect:
    """Return what a study declares; refuse in words what no effect follows from."""
    p = check_parameters(study, Parameters)
    first = study.one_card_for_all()
    _check_words(p)
    p = _settled(p)
    response, treatment = first.column(p.response), first.column(p.treatment)
    event = first.column(p.event) if p.event else None
    refuse_limit(response)
    _check_columns(p, response, treatment, event)
    others = [column.name for column in first.columns if column.name not in {p.response, p.treatment, p.event}]
    adjusted = _closed("covariates", p.covariates, p, others)
    propensity = _closed("propensity", p.propensity, p, others) if p.propensity else adjusted
    arm, right = quoted(p.treatment), _right(adjusted)
    sign = "*" if p.interactions else "+"
    read = {p.response, p.treatment, p.event, *adjusted.needs, *propensity.needs}
    return DeclaredEffect(
        p,
        needed(response),
        needed(treatment),
        None if event is None else needed(event),
        f"{arm} {sign} ({right})",
        _right(propensity),
        adjusted.needs,
        propensity.needs,
        leaving_out(first.columns, read),
    )


def _check_words(p: Parameters) -> None:
    for name, words in (("estimator", Estimator), ("estimand", Estimand), ("family", OutcomeFamily)):
        if getattr(p, name) not in set(words):
            said = f"{name} is one of {listed(list(words))}, not {getattr(p, name)!r}"
            raise UsageError(refused_family(p.family, words) if name == "family" else said)
    if not 0 < p.overlap < 0.5:  # noqa: PLR2004
        raise UsageError("overlap lies between 0 and 0.5: propensities are kept between it and 1 less it")
    if not 0 < p.confidence < 1:
        raise UsageError("confidence must lie between 0 and 1")
    if len({p.response, p.treatment, p.event}) < 3:  # noqa: PLR2004
        raise UsageError("response, treatment and event name different columns")
    survival = p.family == OutcomeFamily.SURVIVAL
    if survival != bool(p.event) or survival != (p.horizon is not None) or (p.cuts and not survival):
        raise UsageError(
            "event (the declared column that says whether there was one), horizon (the time at which people are alive or not) and cuts go with "
            "family = 'survival', which needs the first two"
        )


def _settled(p: Parameters) -> Parameters:
    """Return the parameters with estimator and estimand as far as the words say them; both stay "auto" where the size of the study decides."""
    estimator, estimand = Estimator(p.estimator), Estimand(p.estimand)
    if p.prior and estimand is Estimand.AUTO and estimator in {Estimator.AUTO, Estimator.PARTIAL}:
        named = {name for model in p.prior for name in model.coefficients}
        estimand = Estimand.OVERLAP if named == {Estimand.OVERLAP} or estimator is Estimator.PARTIAL else Estimand.ALL
    if estimator is Estimator.AUTO and (estimand is not Estimand.AUTO or p.family != OutcomeFamily.LINEAR):
        estimator = Estimator.PARTIAL if estimand is Estimand.OVERLAP else Estimator.AIPW
    if estimand is Estimand.AUTO and estimator is not Estimator.AUTO:
        estimand = Estimand.OVERLAP if estimator is Estimator.PARTIAL else Estimand.ALL
    if (estimand is Estimand.OVERLAP) != (estimator is Estimator.PARTIAL):
        raise UsageError("estimand 'ATO' is that of estimator 'partial', which has no other: leave one of them out")
    if estimator is Estimator.PARTIAL and p.family != OutcomeFamily.LINEAR:
        raise UsageError("estimator 'partial' is for family 'linear': declare an outcome of two categories as a number, 0:1")
    if estimator is Estimator.PARTIAL and p.propensity:
        raise UsageError("estimator 'partial' takes the same covariates out of treatment and outcome: leave propensity out")
    if estimand is Estimand.TREATED and estimator is Estimator.OUTCOME:
        raise UsageError("the g-formula is for estimand 'ATE': the effect on the treated comes with 'aipw' or 'iptw'")
    if estimand is not Estimand.AUTO:
        check_models(p.prior, (estimand,), intercept=False)
    return msgspec.structs.replace(p, estimator=str(estimator), estimand=str(estimand))


def _check_columns(p: Parameters, response: Column, treatment: Column, event: Column | None) -> None:
    levels = len(treatment.categories or ())
    if levels != _TWO:
        said = "a number" if treatment.categories is None else f"{levels} categor{'y' if levels == 1 else 'ies'}"
        msg = f"treatment = {p.treatment!r} is declared as {said}: declare two categories, the first of which is the control"
        raise UsageError(msg).at(column=p.treatment)
    for column in (response, treatment, *([] if event is None else [event])):
        if needed(column).may_be_absent:
            msg = f'{column.name!r} must not be missing: declare missing = "complete" (people without it are left out) or "refuse"'
            raise UsageError(msg).at(column=column.name)
    two = response.categories is not None
    if two != (p.family == OutcomeFamily.LOGISTIC) or (two and len(response.categories or ()) != _TWO):
        msg = f"response = {p.response!r}: family 'logistic' has two declared categories, the second of which counts as 1, and every other family a number"
        raise UsageError(msg).at(column=p.response)
    if event is None:
        return
    if not all(a < b for a, b in itertools.pairwise((0.0, *p.cuts))):
        raise UsageError("cuts rise from above 0")
    if response.range[0] != 0 or not 0 < (p.horizon or 0.0) <= response.range[1] or not math.isfinite(p.horizon or 0.0):
        msg = f"time {p.response!r} is declared from 0 to the end of follow-up, and horizon lies inside it"
        raise UsageError(msg).at(column=p.response)
    if event.categories is not None or event.range != (0.0, 1.0):
        msg = f"event = {p.event!r} is a declared column of 0 and 1"
        raise UsageError(msg).at(column=p.event)


def _closed(name: str, text: str, p: Parameters, others: list[str]) -> Formula:
    """Return the formula of what is adjusted for; refuse one that names the treatment or the outcome."""
    found = Formula.parse(text)
    if found.response:
        msg = f"{name} is the right side of a formula: leave out {' and '.join(found.response)} and the ~"
        raise UsageError(msg)
    closed = found.closed(others)
    if taken := [one for one in closed.needs if one in {p.response, p.treatment, p.event}]:
        msg = f"{name} names {taken[0]!r}, which is the outcome, its event or the treatment: leave it out"
        raise UsageError(msg).at(column=taken[0])
    if not closed.needs or closed.offsets or not closed.constant:
        msg = f"{name} names at least one column, keeps its constant and has no offset"
        raise UsageError(msg)
    if unknown := [one for one in closed.needs if one not in others]:
        msg = f"{name} names {unknown[0]!r}, which no card declares; they declare {listed(others)}"
        raise UsageError(msg).at(column=unknown[0])
    return closed


def _right(formula: Formula) -> str:
    """Return the right side of a closed formula as text."""
    return str(formula).partition("~")[2].strip()


# --- The new study file ----------------------------------------------------------------------------------------------------
# The new study file of a treatment effect.

TEMPLATE = Template.of(
    Parameters, "The effect of a treatment, adjusted for covariates: by weights, by an outcome model, or by both.", ROWS
)
