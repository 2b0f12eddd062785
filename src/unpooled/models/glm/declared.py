"""The columns that the parameters of a generalised linear model name: response, exposure, offset, weights, event; and the family that they fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import UsageError, listed
from unpooled.families import ROW_FAMILIES, Response
from unpooled.inference.estimates import CONSTANT_TERM
from unpooled.inference.printed_terms import TREATMENT, class_terms
from unpooled.inference.priors import ESTIMATE, EarlierModel, check_models
from unpooled.inference.sites import SiteEffects
from unpooled.linear.residuals import Covariance
from unpooled.models.glm.families import LOGISTIC, MULTINOMIAL, SURVIVAL, TWO_CLASSES, check_family
from unpooled.models.glm.multinomial import ClassResponses, Softmax
from unpooled.models.glm.rounds import GlmMethod
from unpooled.models.glm.rows import Responses
from unpooled.models.glm.survival import Hazards, PersonResponses
from unpooled.totals.weights import weighting_of

if TYPE_CHECKING:
    from unpooled.linear.layout import MomentsLayout
    from unpooled.privacy.bounds import Column

SHORTEN, UNIT_ROWS = "shorten", "unit"
#: The most passes over the data, where nothing else is asked.
MOST_PASSES = 105
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


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[parameters]`` of a study of a generalised linear model."""

    response: str
    family: str = LOGISTIC
    #: Of counts: the variance is dispersion times the mean (Poisson), or mean + dispersion mean^2; or "estimate", from the residuals.
    dispersion: float | str = ESTIMATE
    #: What standard errors assume: "model", "robust", "cluster", or "auto" (``linear/residuals.py``).
    covariance: str = Covariance.AUTO
    #: A declared column that the mean is in proportion to, and one that is added to the linear predictor.
    exposure: str = ""
    offset: str = ""
    #: A declared column of weights, by which everything that a record adds to a sum is multiplied.
    weights: str = ""
    #: Of times to an event: the declared column that says whether there was one, and where the hazard may change.
    event: str = ""
    cuts: tuple[float, ...] | None = None
    #: L2 penalty of the mean loss on the slopes, in the data's own units (scikit-learn's alpha).
    ridge: float = 0.0
    #: For method "moments": an L2 bound on the centred row, in its own units, and whether longer rows are shortened to it ("shorten") or all
    #: are scaled to one length ("unit").
    norm: float | None = None
    rows: str = SHORTEN
    fit_intercept: bool = True
    #: "auto" is decided before data (``rounds.py``).
    method: str = GlmMethod.AUTO
    #: The most passes over the data.
    max_passes: int = MOST_PASSES
    #: T: parties that may collude or drop out.
    tolerate: int = 0
    #: Parties that may be nodes of the secure sum, or the trusted aggregator; empty: all, or the first.
    nodes: tuple[str, ...] = ()
    #: Of the intervals that are reported.
    level: float = 0.95
    #: How the levels of a column are compared in the table: with one of them (else the first that is declared), or with their mean ("sum").
    reference: dict[str, str] = msgspec.field(default_factory=dict)
    coding: str = TREATMENT
    #: What the model is a function of (docs/formulas.md); empty: every declared column beside the response, as it is.
    formula: str = ""
    #: Whether sites differ by a constant: "pooled" (they do not) or "fixed" (``inference/sites.py``).
    site_effects: str = SiteEffects.POOLED
    #: Earlier models of the same response, to which the fit is drawn as far as the records agree (``inference/priors.py``).
    prior: tuple[EarlierModel, ...] = ()


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
    response, exposure, offset = _named(parameters, columns)
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
        return _persons(parameters, columns, response)
    family = _family(parameters, response)
    taken = tuple(column.name for column in (response, exposure, offset) if column is not None)
    weighting = weighting_of(parameters.weights, columns, taken, rows)
    if isinstance(family, Softmax):
        return ClassResponses(response, family, weighting=weighting)
    return Responses(response, family, exposure, offset, weighting)


def _named(parameters: Parameters, columns: dict[str, Column]) -> tuple[Column, Column | None, Column | None]:
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


def _persons(parameters: Parameters, columns: dict[str, Column], response: Column) -> PersonResponses:
    """Times and events, and the intervals."""
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
    if not parameters.fit_intercept:
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
