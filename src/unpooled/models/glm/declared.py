"""What a study of a generalised linear model declares, and which form it takes, with how many rounds of which size: decided before data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec

from unpooled.errors import UsageError, listed
from unpooled.families import ROW_FAMILIES, Response
from unpooled.inference.coding import check_formula
from unpooled.inference.estimates import CONSTANT_TERM
from unpooled.inference.printed_terms import TREATMENT, class_terms
from unpooled.inference.priors import ESTIMATE, check_models
from unpooled.inference.sites import SiteEffects
from unpooled.linear.declared import (
    CodingWord,
    CovarianceWord,
    EarlierModels,
    FormulaText,
    GoalWord,
    Intercept,
    MaxPasses,
    ReferenceLevels,
    WeightColumn,
)
from unpooled.linear.declared import (
    Response as ResponseColumn,
)
from unpooled.linear.goals import Goal
from unpooled.linear.residuals import Covariance
from unpooled.linear.schedule import AFFORDED, AMPLE, opened
from unpooled.models.glm.families import (
    FAMILIES,
    LOGISTIC,
    MULTINOMIAL,
    POISSON,
    SURVIVAL,
    TWO_CLASSES,
    ClassResponses,
    Hazards,
    PersonResponses,
    Softmax,
    check_family,
)
from unpooled.models.glm.rows import Responses
from unpooled.privacy.declared import (
    COLUMNS,
    PROOF,
    CheckWord,
    Colluding,
    ExpectedMissing,
    ExpectedPeople,
    OverParties,
    SplitWord,
    TableConfidence,
    says,
)
from unpooled.protocol.registry import ROWS, Template
from unpooled.schedules import table
from unpooled.totals.weights import weighting_of

if TYPE_CHECKING:
    from unpooled.linear.layout import MomentsLayout
    from unpooled.privacy.bounds import Column


# --- Rounds ----------------------------------------------------------------------------------------------------------------
# Which form a study takes, and with how many rounds of which size: decided before data, from the noise per row and the columns.
#
# Everything follows from k = n mu / D, as for the regression: rows times the root of the privacy budget in mu (less what distributed noise
# costs), per coefficient. The numbers were fixed by simulating declared shapes (THEORY.md, section 4, which says where real data prompted a simulation).


class GlmMethod(StrEnum):
    """Ways to spend the budget."""

    AUTO = "auto"
    #: Rounds of gradients, then one Newton step from a released Hessian: standard errors. Without noise: Newton steps to convergence.
    NEWTON = "newton"
    #: Rounds of gradients alone: the smallest error of predictions where there is little to learn, no standard errors.
    GRADIENT = "gradient"
    #: Rounds for the direction of the slopes, then one histogram for their length: a direction that predicts nothing gives the base rate.
    DIRECTION = "direction"
    #: The direction of the slopes from one release of second moments, and rounds for their length: the best ranking of rows of one length.
    MOMENTS = "moments"
    #: The base rate alone.
    MEAN = "mean"


_TUNED = table("glm")
WORTH_SLOPES, WORTH_ERRORS, WORTH_LENGTHS = _TUNED.worth_slopes, _TUNED.worth_errors, _TUNED.worth_lengths
#: From this k on a table has lines.
WORTH_LINES = _TUNED.worth_lines
_BASE_STRENGTH, _TAILED_STRENGTH = _TUNED.base_strength, _TUNED.tailed_strength
_DIRECTION, _WHOLE = _TUNED.shares("direction_shares"), _TUNED.shares("completeness_shares")
#: Newton steps without noise, and when they have converged.
EXACT_ROUNDS, CONVERGED = 60, 1e-11
#: Below this a step that is not half of the one before is rounding.
ROUNDED = 1e-7
#: A record's pull times the length of its row, in units of a typical row and of most pulls: of a round, and of the Newton step.
SHORT, LONG = _TUNED.short, _TUNED.long
#: What is believed of the slopes of standardised columns: together they have this variance of the linear predictor.
PRIOR = _TUNED.prior
#: Passes of a Newton step in addition to its rounds.
_BESIDE = 5
#: The shares of a Newton step and of the rounds before it.
_NEWTON = ("base", "scales", "descent", "cells", "score", "information")


@dataclass(frozen=True, slots=True)
class GlmSchedule:
    """The rounds of a study; shares are of the squared budget."""

    method: GlmMethod
    #: Without noise.
    exact: bool = False
    #: Sums of responses, and of what they are exposed to.
    base: float = 1.0
    #: Means and deviations of the columns.
    scales: float = 0.0
    descent: float = 0.0
    moments: float = 0.0
    #: Histogram of classes along the score.
    probabilities: float = 0.0
    #: Histogram of residuals, gradients and second derivatives of Newton steps, second moments of scores.
    cells: float = 0.0
    score: float = 0.0
    information: float = 0.0
    meat: float = 0.0
    rounds: int = 0
    steps: int = 0
    step: float = 0.0
    #: How much the length that rounds estimated is in doubt, where the histogram corrects it.
    doubt: float = 0.0
    #: The bound on a pull times its row in a round for the direction, in lengths of the longest row.
    clip: float = 0.0
    #: As ``LONG``, of this study's Newton step, and the same for the rows of its second moments.
    long: float = LONG
    stretch: float = LONG
    #: Whether pulls of two classes are balanced: where noise counts.
    balanced: bool = False
    #: The rounds, the end of the fit and the information of the model of which rows are whole; and how the coefficients rest on it.
    whole_descent: float = 0.0
    whole_score: float = 0.0
    whole_information: float = 0.0
    influence: float = 0.0
    whole_rounds: int = 0

    @property
    def passes(self) -> int:
        """Return the number of times that every party's data are read."""
        beside = sum(share > 0 for share in (self.scales, self.moments, self.cells, self.meat, self.probabilities))
        whole = self.whole_rounds + 2 * self._whole_steps + (self.influence > 0)
        return 1 + beside + self.rounds + 2 * self.steps + whole

    @property
    def _whole_steps(self) -> int:
        return self.steps * (self.whole_score > 0)

    def calibrated(self, k: float, *, drawn: bool) -> GlmSchedule:
        """Return the schedule with a histogram of classes along its score, for which everything else gives a part of its budget.

        Earlier models (``drawn``) tell the direction where rounds tell little, and the histogram how far to go in it.
        """
        share = _DIRECTION["probabilities"] if drawn and k < WORTH_LENGTHS else _TUNED.calibration
        names = ("base", "scales", "descent", "cells", "score", "information", "meat")
        less = {name: (1 - share) * getattr(self, name) for name in names}
        return replace(self, probabilities=share, doubt=min(_TUNED.doubt_most, WORTH_LENGTHS / k), **less)

    def with_completeness(self, rounds: int) -> GlmSchedule:
        """Return the schedule with a model of which rows are whole, in these rounds, for which everything else gives a part of its budget."""
        share, names = _WHOLE, ("base", "scales", "descent", "cells", "score", "information")
        less = {name: share["others"] * getattr(self, name) for name in names}
        descent = 0.0 if self.exact else share["descent"]
        return replace(
            self,
            whole_descent=descent,
            whole_score=share["score"],
            whole_information=share["information"],
            influence=share["influence"],
            whole_rounds=0 if self.exact else rounds,
            **less,
        )


def _toward(k: float, coefficients: int, max_passes: int) -> GlmSchedule:
    """Return the rounds for the direction of the slopes, and the histogram for their length."""
    base = min(_TUNED.base_most, max(_TUNED.direction_base_least, (_BASE_STRENGTH / (k * coefficients)) ** 2))
    scales, descent, probabilities = ((1 - base) * _DIRECTION[name] for name in ("scales", "descent", "probabilities"))
    rounds = int(_TUNED.steps("direction_rounds").at(k))
    return GlmSchedule(
        GlmMethod.DIRECTION,
        base=base,
        scales=scales,
        descent=descent,
        probabilities=probabilities,
        rounds=max(1, min(rounds, max_passes - 3)),
        step=_TUNED.direction_step,
        clip=_TUNED.steps("direction_clips").at(k),
    )


def _chosen(k: float, max_passes: int, *, calibrates: bool, drawn: bool, errors_from: float) -> GlmMethod:
    """Return the method that serves a study of this k best; with earlier models slopes are worth rounds at any k."""
    fewest = _TUNED.whole("fewest") + calibrates
    if max_passes < fewest + 2 and not drawn:
        return GlmMethod.MEAN
    if drawn and k < errors_from:
        return GlmMethod.GRADIENT
    if calibrates and k < min(WORTH_LENGTHS, errors_from):
        return GlmMethod.DIRECTION
    if k < WORTH_SLOPES:
        return GlmMethod.MEAN
    return GlmMethod.NEWTON if k >= errors_from and max_passes >= fewest + _BESIDE else GlmMethod.GRADIENT


def schedule_of(
    method: GlmMethod,
    k: float,
    coefficients: int,
    max_passes: int,
    *,
    rows: int = 1,
    tailed: bool = False,
    wider: float = 1.0,
    meat: float = 0.0,
    calibrates: bool = False,
    drawn: bool = False,
    balances: bool = False,
    errors_from: float = WORTH_ERRORS,
) -> GlmSchedule:
    """Return the rounds of this method, or of the one that serves a study of this k best.

    ``tailed``: a response may be far from its mean; ``wider``: above 1 a dispersion is estimated, and pulls have this many times the bound; ``meat``: the share of the squared budget that a sandwich covariance takes; ``rows``: of the study;
    ``drawn``: there are earlier models; ``calibrates``: the response is one of two classes whose probabilities a histogram along the score tells;
    ``balances``: pulls of its classes may be balanced; ``errors_from``: the k from which on standard errors are worth their part.
    """
    if method is GlmMethod.MEAN:
        return GlmSchedule(method)
    if method is GlmMethod.MOMENTS:
        rounds = max(1, min(_TUNED.whole("moments_rounds"), max_passes - 2))
        of = _TUNED.shares("moments_shares")
        return GlmSchedule(
            method, base=of["base"], moments=of["moments"], descent=of["descent"], rounds=rounds, step=_TUNED.step
        )
    if k == math.inf:  # every way of learning slopes is the exact one
        return GlmSchedule(
            GlmMethod.NEWTON,
            exact=True,
            base=0.2,
            score=0.4,
            information=0.4 - meat,
            meat=meat,
            steps=min(EXACT_ROUNDS, max(1, max_passes // 2)),
        )
    if method is GlmMethod.AUTO:
        method = _chosen(k, max_passes, calibrates=calibrates, drawn=drawn, errors_from=errors_from)
    if method is GlmMethod.MEAN:
        return GlmSchedule(method)
    if method is GlmMethod.DIRECTION:
        return _toward(k, coefficients, max_passes)
    left = max_passes - calibrates
    if method is GlmMethod.NEWTON:
        found = _refined(k, coefficients, left, rows=rows, tailed=tailed, wider=wider, meat=meat, balances=balances)
    else:
        found = _along_gradients(k, coefficients, left - 2, tailed=tailed)
    return found.calibrated(k, drawn=drawn) if calibrates else found


def with_completeness_of(k: float, coefficients: int, max_passes: int, rows: int) -> GlmSchedule:
    """Return the rounds of a table whose rows may be incomplete by a model, with those of that model: a third of the passes are its own."""
    rounds = _rounds(k, (max_passes - _BESIDE) // 3)
    others = max(1, max_passes - rounds - 3)
    return schedule_of(
        GlmMethod.NEWTON, k * math.sqrt(_WHOLE["others"]), coefficients, others, rows=rows, balances=True
    ).with_completeness(rounds)


def _along_gradients(k: float, coefficients: int, most: int, *, tailed: bool) -> GlmSchedule:
    """Return rounds of gradients alone; the base rate gets the more of the budget the less of it there is."""
    strength = _TAILED_STRENGTH if tailed else _BASE_STRENGTH
    base = min(_TUNED.base_most, max(_TUNED.gradient_base_least, (strength / (k * coefficients)) ** 2))
    shares = _TUNED.shares("gradient_shares")
    scales, descent = (1 - base) * shares["scales"], (1 - base) * shares["descent"]
    rounds = _rounds(k, most)
    return GlmSchedule(
        GlmMethod.GRADIENT, base=base, scales=scales, descent=descent, rounds=rounds, step=_step(coefficients)
    )


def _rounds(k: float, most: int) -> int:
    return max(1, min(int(_TUNED.steps("rounds").at(k)), most))


def _step(coefficients: int) -> float:
    return min(_TUNED.step, _TUNED.step_of_columns / coefficients)


def _refined(
    k: float, coefficients: int, max_passes: int, *, rows: int, tailed: bool, wider: float, meat: float, balances: bool
) -> GlmSchedule:
    """Return rounds of gradients and the Newton steps after them."""
    rounds = _rounds(k, max_passes - _BESIDE - (meat > 0))
    shares = _TUNED.shares("dispersed_shares") if wider > 1 else _TUNED.shares("newton_shares")
    base, scales, descent, cells, score, information = (shares[name] * (1 - meat) for name in _NEWTON)
    # The noise of a coordinate of the score is 2 long sqrt(D) q / (mu sqrt share), its sampling deviation sqrt(n w).
    afforded = AFFORDED * k * math.sqrt(coefficients * score / rows) / (2 * _TUNED.most_deviations)
    steps, wide, balanced = 1, opened(afforded), balances and afforded < _TUNED.balanced_below
    if balanced or afforded >= AMPLE:
        shares = _TUNED.shares("balanced_shares") if balanced else _TUNED.shares("ample_shares")
        base, scales, descent, cells, score, information = (shares[name] * (1 - meat) for name in _NEWTON)
    if afforded >= AMPLE:
        steps = _TUNED.whole("ample_steps")
        # Where bounds on pulls grow with the mean, rows count for more.
        wide *= wider if wider > 1 or tailed else _TUNED.ample_longer
    once = max(LONG, min(_TUNED.longest, (k / _TUNED.longer_from) ** (1 / 3)))
    long = max(once * wider, wide)
    # The noise of second moments hides directions: its operator norm is sqrt(2 D) 1.4 stretch^2 D / (n mu sqrt share).
    quiet = math.sqrt(_TUNED.hiding * k * math.sqrt(information / coefficients) / 2)
    stretch = min(max(once, quiet), long)
    return GlmSchedule(
        GlmMethod.NEWTON,
        base=base,
        scales=scales,
        descent=descent,
        cells=cells,
        score=score,
        information=information,
        meat=meat,
        rounds=min(rounds, max(1, max_passes - _BESIDE - (meat > 0) - 2 * (steps - 1))),
        steps=steps,
        step=_step(coefficients),
        long=long,
        stretch=stretch,
        balanced=balanced,
    )


# --- Parameters ------------------------------------------------------------------------------------------------------------
# The columns that the parameters of a generalised linear model name: response, exposure, offset, weights, event; and the family that they fit.

SHORTEN, UNIT_ROWS = "shorten", "unit"
#: The most passes over the data, where nothing else is asked.
MOST_PASSES = _TUNED.whole("passes")
#: Why a family takes no exposure and no offset.
UNSHIFTED = (
    "exposure and offset are for families with one linear predictor: the multinomial family has one for each class, and persons of the survival "
    "family are followed from time 0 (no late entry)"
)
_SURVIVAL_WORDS = (
    "event (the declared column that says whether there was one) and cuts (times at which the hazard may change, [] for a constant one) go with "
    "the survival family, which needs both"
)
#: The most intervals.
_MOST_INTERVALS = 100
#: Families whose records have more than one linear predictor, or are followed for a time.
_UNSHIFTED_FAMILIES = (MULTINOMIAL, SURVIVAL)


class Parameters(OverParties, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[parameters]`` of a study of a generalised linear model."""

    response: ResponseColumn
    family: Annotated[
        str,
        says(
            'The law of the response. "logistic" has two declared classes and the logit link, "multinomial" two or more and the softmax, the others '
            'the logarithm. "survival" is for times to an event: hazards that change at ``cuts`` and are in proportion (piecewise exponential).',
            choices=FAMILIES,
            shown=True,
        ),
    ] = LOGISTIC
    dispersion: Annotated[
        float | str,
        says(
            'The variance is dispersion * mean ("poisson"), dispersion * mean^2 ("gamma"), or mean + dispersion * mean^2 ("negative-binomial"). '
            '"estimate" learns it from released residuals, at least 1 for the Poisson family.',
            choices=(ESTIMATE,),
        ),
    ] = ESTIMATE
    covariance: CovarianceWord = Covariance.AUTO
    exposure: Annotated[
        str, says("A declared column, above 0, to which the mean is in proportion.", column=True, study=True)
    ] = ""
    offset: Annotated[str, says("A declared column that is added to the linear predictor.", column=True, study=True)] = ""
    weights: WeightColumn = ""
    event: Annotated[
        str,
        says(
            "Of the survival family: the declared column that is 0 or 1, or has two categories, of which the second is the event. The response is then "
            "the time, from 0 to the end of follow-up.",
            column=True,
            study=True,
        ),
    ] = ""
    cuts: Annotated[
        tuple[float, ...] | None,
        says(
            "Of the survival family: where the hazard may change, rising, between 0 and the end of follow-up; [] is a constant hazard.",
            [365.0],
        ),
    ] = None
    ridge: Annotated[
        float,
        says(
            "L2 penalty of the mean loss on the slopes, in the data's own units: ``alpha`` of scikit-learn's PoissonRegressor, 1/(n C) of its "
            "LogisticRegression."
        ),
    ] = 0.0
    norm: Annotated[
        float | None,
        says('Of method "moments": an L2 bound on the centred row, in its own units (``Bounds(norm=R)``).', 1.0, study=True),
    ] = None
    rows: Annotated[
        str,
        says(
            'Of method "moments": whether longer rows are shortened to that bound, or all are scaled to one length.',
            choices=(SHORTEN, UNIT_ROWS),
            study=True,
        ),
    ] = SHORTEN
    fit_intercept: Intercept = True
    method: Annotated[
        str,
        says(
            'How the budget is spent. "newton": rounds of gradients, then one Newton step that tells standard errors. "gradient": without the step. '
            '"direction" (logistic): rounds for the direction of the slopes, then a histogram for their length. "moments" (logistic): the slopes\' '
            'direction from one release, for rows with a bound on their length (``Bounds(norm=R)``). "mean": the base rate alone. "auto" chooses by '
            "rows, columns and privacy, before data.",
            choices=GlmMethod,
        ),
    ] = GlmMethod.AUTO
    max_passes: MaxPasses = MOST_PASSES
    expected_missing: ExpectedMissing = 0.0
    confidence: TableConfidence = 0.95
    reference: ReferenceLevels = msgspec.field(default_factory=dict)
    coding: CodingWord = TREATMENT
    formula: FormulaText = ""
    goal: GoalWord = Goal.AUTO
    site_effects: Annotated[
        str,
        says(
            "Whether sites differ: one constant for all; or one for each, in lines against the first.",
            choices=(SiteEffects.POOLED, SiteEffects.FIXED),
            lean=True,
        ),
    ] = SiteEffects.POOLED
    prior: EarlierModels = ()


def check_prior(parameters: Parameters, layout: MomentsLayout, responses: Responses) -> None:
    """Refuse earlier models where nothing could be drawn to them."""
    if not parameters.prior:
        return
    others = ["ridge"] if parameters.ridge else []
    others += [] if layout.intercept else ["fit_intercept = false"]
    others += ["site_effects"] if layout.sites is not None else []
    if others:
        msg = f"prior goes without {', '.join(others)}"
        raise UsageError(msg)
    names: tuple[str, ...] = layout.names
    if parameters.family == MULTINOMIAL:
        names = class_terms(responses.response.categories or (), (*names, CONSTANT_TERM))
    check_models(parameters.prior, names, intercept=parameters.family not in {MULTINOMIAL, SURVIVAL})
    if parameters.method not in {GlmMethod.AUTO, GlmMethod.GRADIENT, GlmMethod.NEWTON}:
        msg = f"prior goes with methods 'auto', 'gradient' and 'newton', not with {parameters.method!r}"
        raise UsageError(msg)


def responses_of(parameters: Parameters, columns: dict[str, Column], rows: int) -> Responses:
    """Return the columns that the family reads of a record, checked."""
    response, exposure, offset = named_columns(parameters, columns)
    survival = parameters.family == SURVIVAL
    if survival != bool(parameters.event) or survival != (parameters.cuts is not None):
        raise UsageError(_SURVIVAL_WORDS)
    if parameters.family in _UNSHIFTED_FAMILIES and (exposure is not None or offset is not None):
        raise UsageError(UNSHIFTED)
    if survival and parameters.weights:
        raise UsageError(
            "the survival family takes no weights: a person counts once. The Poisson family with an exposure takes them"
        )
    if survival:
        return persons_of(parameters, columns, response)
    family = _family(parameters, response)
    taken = tuple(column.name for column in (response, exposure, offset) if column is not None)
    weighting = weighting_of(parameters.weights, columns, taken, rows)
    if isinstance(family, Softmax):
        return ClassResponses(response, family, weighting=weighting)
    return Responses(response, family, exposure, offset, weighting)


def named_columns(
    parameters: Parameters | SplitParameters, columns: dict[str, Column]
) -> tuple[Column, Column | None, Column | None]:
    """Return the columns of the response, of what it is exposed to, and of an offset."""
    found: dict[str, Column | None] = {}
    for role in ("response", "exposure", "offset"):
        name = getattr(parameters, role)
        found[role] = columns.get(name)
        if name and name not in columns:
            msg = f"the study names the {role} {name!r}, and the cards declare no such column: they have {listed(list(columns))}"
            raise UsageError(msg)
        if name and columns[name].may_be_absent:
            msg = f'the {role} {name!r} must be one declared column, never missing: declare missing = "refuse"'
            raise UsageError(msg)
    chosen = [column.name for column in found.values() if column is not None]
    if len(set(chosen)) != len(chosen):
        raise UsageError("response, exposure and offset are three columns, each with a name of its own")
    response, exposure, offset = found["response"], found["exposure"], found["offset"]
    if response is None:
        raise UsageError("the response must be one declared column, beside at least one feature")
    for column in (exposure, offset):
        if column is not None and column.categories is not None:
            msg = f"{column.name!r} is a number that the mean depends on in a known way: declare low and high"
            raise UsageError(msg)
    if exposure is not None and not exposure.range[0] > 0:
        msg = f"the exposure {exposure.name!r} must be positive: declare a range that begins above 0"
        raise UsageError(msg)
    return response, exposure, offset


def persons_of(parameters: Parameters | SplitParameters, columns: dict[str, Column], response: Column) -> PersonResponses:
    """Return times and events, and the intervals, checked."""
    event, cuts = columns.get(parameters.event), parameters.cuts or ()
    if event is None or event.may_be_absent or event.name == response.name:
        msg = f'the event {parameters.event!r} must be one declared column beside the time, never missing: declare missing = "refuse"'
        raise UsageError(msg)
    if event.categories is not None and len(event.categories) != 2:  # noqa: PLR2004
        msg = f"the event {event.name!r} has two categories, of which the second says that there was one, or a range such as 0 to 1"
        raise UsageError(msg)
    if response.categories is not None or response.range[0] != 0:
        msg = f"the time {response.name!r} is a number from 0 on: declare low = 0 and as high the end of follow-up"
        raise UsageError(msg)
    edges = (*map(float, cuts), response.range[1])
    if len(edges) > _MOST_INTERVALS or not all(a < b for a, b in zip((0.0, *edges[:-1]), edges, strict=True)):
        msg = f"cuts rise and lie between 0 and the declared end of follow-up; there are less than {_MOST_INTERVALS}"
        raise UsageError(msg)
    if isinstance(parameters, Parameters) and not parameters.fit_intercept:
        raise UsageError("a baseline hazard is always fitted: survival goes without fit_intercept=False")
    return PersonResponses(response, Hazards(edges=edges), event=event)


def _family(parameters: Parameters, response: Column) -> Response:
    """Return the family, with what is declared of its response."""
    check_family(parameters.family)
    if parameters.family == MULTINOMIAL:
        if response.categories is None:
            msg = f"the response {response.name!r} of the multinomial family has classes: declare categories of two labels or more"
            raise UsageError(msg)
        return Softmax(labels=response.categories)
    if parameters.family in TWO_CLASSES:
        if response.categories is None or len(response.categories) != 2:  # noqa: PLR2004 - two classes
            msg = f"the response {response.name!r} of the {parameters.family} family has two classes: declare categories of two labels"
            raise UsageError(msg)
        return ROW_FAMILIES[parameters.family]()
    if response.categories is not None:
        msg = f"the response {response.name!r} of the {parameters.family} family is a number: declare low and high"
        raise UsageError(msg)
    given = parameters.dispersion
    return ROW_FAMILIES[parameters.family](*response.range, 1.0 if isinstance(given, str) else float(given))


def estimated(parameters: Parameters) -> bool:
    """Return True if the dispersion is to be estimated; refuse any other word in the place of a number."""
    if isinstance(parameters.dispersion, str) and parameters.dispersion != ESTIMATE:
        msg = f"dispersion must be a positive number or {ESTIMATE!r}, not {parameters.dispersion!r}"
        raise UsageError(msg)
    return parameters.dispersion == ESTIMATE


# --- Columns ---------------------------------------------------------------------------------------------------------------
# What a study of columns at two parties declares, and what is refused of it by name.


class SplitParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[parameters]`` of a study of columns at two parties."""

    response: ResponseColumn
    family: Annotated[
        str,
        says(
            "The law of the response: of columns at two parties two declared classes, counts, or times to an event.",
            choices=FAMILIES,
            shown=True,
        ),
    ] = LOGISTIC
    exposure: Annotated[
        str,
        says(
            "Of counts: a declared column, above 0, of the party that has the response, to which the mean is in proportion. It is known before the "
            "count is.",
            column=True,
            study=True,
        ),
    ] = ""
    offset: Annotated[
        str,
        says(
            "Of counts: a declared column of the party that has the response, which is added to the log mean.",
            column=True,
            study=True,
        ),
    ] = ""
    event: Annotated[
        str,
        says(
            "Of times to an event: the declared column of the party that has the times that is 0 or 1, or has two categories, of which the second is "
            "the event. The response is then the time, from 0 to the end of follow-up.",
            column=True,
            study=True,
        ),
    ] = ""
    cuts: Annotated[
        tuple[float, ...] | None,
        says(
            "Of times to an event: where the hazard may change, rising, between 0 and the end of follow-up; [] is a constant hazard.",
            [365.0],
        ),
    ] = None
    formula: FormulaText = ""
    goal: GoalWord = Goal.AUTO
    split: SplitWord = COLUMNS
    tolerate: Colluding = 0
    check: CheckWord = PROOF
    expected: ExpectedPeople = 0
    confidence: TableConfidence = 0.95
    reference: ReferenceLevels = msgspec.field(default_factory=dict)
    coding: CodingWord = TREATMENT


#: The families that have products of two parties.
SPLIT_FAMILIES = (LOGISTIC, POISSON, SURVIVAL)


def check_split_family(family: str) -> None:
    """Refuse a family that has no products yet, with what does it."""
    check_family(family)
    if family in SPLIT_FAMILIES:
        return
    msg = (
        f'of columns at two parties there are the families "{LOGISTIC}", "{POISSON}" and "{SURVIVAL}", not {family!r}: make two classes of the response, as some and none, '
        f'or fit its mean by linear regression (model = "bayes", split = "{COLUMNS}"). Where rows lie at different parties, '
        'model = "glm" has all families'
    )
    raise UsageError(msg)


def check_split(parameters: SplitParameters) -> None:
    """Refuse values that mean nothing, and families that have no products yet, with what does them."""
    if parameters.split != COLUMNS:
        msg = f'split is "{COLUMNS}" where columns lie at different parties, not {parameters.split!r}'
        raise UsageError(msg)
    check_split_family(parameters.family)
    if parameters.family != POISSON and (parameters.exposure or parameters.offset):
        others = (
            'where rows lie at different parties, model = "glm" has both' if parameters.family == LOGISTIC else UNSHIFTED
        )
        msg = f'exposure and offset of columns at two parties go with the family "{POISSON}", not with "{parameters.family}": {others}'
        raise UsageError(msg)
    survival = parameters.family == SURVIVAL
    if survival != bool(parameters.event) or survival != (parameters.cuts is not None):
        raise UsageError(_SURVIVAL_WORDS)
    if not 0 < parameters.confidence < 1:
        raise UsageError("confidence must lie between 0 and 1")
    check_formula(parameters.formula, (parameters.response,))


# --- The new study file ----------------------------------------------------------------------------------------------------
# The new study file of a generalised linear model.

_COLUMNS = Template.of(
    SplitParameters,
    "Logistic, Poisson or survival regression over columns of two parties, from products under masks: odds, rate or hazard ratios with standard errors.",
    COLUMNS,
)

TEMPLATE = Template.of(
    Parameters,
    "Logistic, multinomial, Poisson, gamma, negative binomial or survival regression with standard errors, by rounds through a secure sum.",
    ROWS,
    offsets=True,
    with_helpers=_COLUMNS,
)
