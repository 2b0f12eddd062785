"""Parameters of a LASSO study, what no form of it does, and the notes of its plan."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import UsageError
from unpooled.estimation.earlier import ALIKE, DrawnModel, EarlierCoefficients, ResponseKind, with_response
from unpooled.inference.priors import EarlierModel, check_models
from unpooled.privacy.study import PROOF
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.protocol.registry import COLUMNS, Template

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from unpooled.privacy.plan import Card, Plan, Study


# --- Parameters ------------------------------------------------------------------------------------------------------------
# Parameters of a LASSO study, and what no form of it does.

#: Numbers of a study, and of released columns, are smaller than this: their products and sums then neither overflow nor lose their grid.
LARGEST = 1e90
#: Losses.
SQUARED, LOGISTIC = "squared", "logistic"


class Coupling(StrEnum):
    """One ball for all coefficients, of which one party steps per round, or a ball for each party, of which all step."""

    BALL = "ball"
    BLOCKS = "blocks"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[parameters]`` of a LASSO study."""

    response: str = "y"
    #: "moments", "frank-wolfe", "joint", or "auto": joint moments where the study has a helper; the rounds where one of their own parameters is
    #: set, or without noise; else moments.
    method: str = "auto"
    #: Bound on |y|: the response is centred by nobody, so give deviations from a public middle.
    response_bound: float = 1.0
    #: Bound on the sum of absolute coefficients of columns scaled by their declared half width, in half ranges of the response
    #: (``response_bound``; for a logistic loss, whose responses are -1 and 1, in log odds). None: moments have a penalty that follows from
    #: the noise in the place of a bound, the rounds take one half range.
    radius_in_half_ranges: float | None = None
    #: The same bound in units of the response, for a form that takes it so.
    radius: float | None = None
    coupling: str = Coupling.BALL
    rounds: int = 20
    #: Columns that a party looks at per round; 0: all of them.
    sampled: int = 0
    #: C: predictions are clipped to +-C where they enter a score; 0: as :meth:`Setup.clip` chooses.
    clip: float = 0.0
    #: Parts of the rest for columns, picks and scores (the last goes to the others under "blocks").
    shares: tuple[float, float, float] = (0.6, 0.2, 0.2)
    #: Part of the budget that pays for moments of the chosen columns, from which their coefficients are fitted anew; 0: they are not.
    refit: float = 0.25
    #: Fit a constant beside the columns: the response's noisy mean, and centred columns.
    fit_intercept: bool = True
    #: The response is public: scores need less noise at unit attribute, and nothing is promised for records.
    response_public: bool = False
    #: "squared", or "logistic" for a response of -1 and 1 (a value above 0 counts as 1): from moments alone.
    loss: str = SQUARED
    #: Rows m of the Gaussian sketch of shared columns, for a form that has one; 0: no sketch.
    sketch_rows: int = 0
    #: Of joint moments: the most members that may know each other's noise, and whether parties prove that their rows are short.
    tolerate: int = 0
    check: str = PROOF
    #: Of moments: earlier models of the same response, to which the fit is drawn as far as the release agrees (``inference/priors.py``).
    prior: tuple[EarlierModel, ...] = ()

    @property
    def bound(self) -> float | None:
        """Return the bound on the sum of absolute coefficients of coded columns, in units of the response (or in log odds); None where none is named."""
        return None if self.radius_in_half_ranges is None else self.radius_in_half_ranges * self.response_bound


def check_bound(p: Parameters) -> None:
    """Refuse the bound that another form and older versions have."""
    if p.radius is not None:
        raise UsageError(
            "radius was in units of the response and is now radius_in_half_ranges, in half ranges of it: write radius divided by response_bound "
            "(for a logistic loss the same number), or leave both out and the fit needs no bound"
        )


def _refuse(rules: Iterable[tuple[bool, str]]) -> None:
    for holds, what in rules:
        if not holds:
            raise UsageError(what)


def check_form(p: Parameters, named: str = "radius_in_half_ranges") -> None:
    """Refuse what no form of the LASSO does. ``named`` is the parameter that bounds the coefficients."""
    size = getattr(p, named)
    rules = (
        (size is None or 1 / LARGEST < size < LARGEST, f"{named} must be a positive number below {LARGEST:g}"),
        (p.loss in {SQUARED, LOGISTIC}, f"loss is {SQUARED!r} or {LOGISTIC!r}"),
    )
    _refuse(rules)


def check_prior(p: Parameters, names: Sequence[str]) -> None:
    """Refuse earlier models that cannot be meant of coefficients of these names, and a ball, in which such models need not lie."""
    if p.prior and p.radius_in_half_ranges is not None:
        raise UsageError(
            "prior goes without radius_in_half_ranges (`radius` in Python), for earlier models need not lie in that ball: leave it out, and the noise "
            "sets a penalty"
        )
    check_models(p.prior, names, intercept=True)


def check(study: Study, p: Parameters, named: str = "radius_in_half_ranges", *, drawn: bool = False) -> None:
    """Refuse what no form does whose parties all hold the response; ``drawn``: this one takes earlier models."""
    check_form(p, named)
    rules = (
        (
            drawn or not p.prior,
            'prior goes with method = "moments" or "joint", which releases how far earlier models agree: ask for one of them, or leave prior out',
        ),
        (1 / LARGEST < p.response_bound < LARGEST, f"response_bound must be a positive number below {LARGEST:g}"),
        (p.coupling in set(Coupling), f"coupling is one of {', '.join(Coupling)}, not {p.coupling!r}"),
        (
            p.rounds >= 1 and p.sampled >= 0 and 0 <= p.clip < LARGEST,
            "rounds must be at least 1, sampled and clip at least 0",
        ),
        (
            all(0 < s < 1 for s in p.shares) and math.isclose(math.fsum(p.shares), 1),
            "shares gives columns, picks and scores positive parts of the budget, 1 in all",
        ),
        (0 <= p.refit < 1, "refit is the part of the budget for the final fit: at least 0 and less than 1"),
        (
            p.loss != LOGISTIC or (p.response_bound == 1 and p.fit_intercept),
            "a logistic loss is of a response of -1 and 1 with a constant: leave response_bound and fit_intercept as they are",
        ),
        (study.adjacency == Adjacency.REPLACE, 'lasso studies are calibrated for adjacency = "replace"'),
        (
            not p.response_public or study.unit != Unit.RECORD,
            "a public response leaves nothing to promise for whole records: ask for unit = attribute",
        ),
    )
    _refuse(rules)
    first = study.parties[0]
    columns = [column.name for card in study.parties for column in card.columns]
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        msg = f"column {twice!r} is declared by two parties: its values would be charged at both, so declare it at one"
        raise UsageError(msg).at(column=twice)
    for card in study.parties:
        if p.response not in card.labels:
            msg = f"party {card.name!r} has no label column {p.response!r}: every party needs the response"
            raise UsageError(msg)
        if card.rows != first.rows:
            msg = f"party {card.name!r} has {card.rows} rows, {first.name!r} has {first.rows}: columns are split, people are the same"
            raise UsageError(msg)


def earlier(parameters: Mapping[str, Any], cards: tuple[Card, ...]) -> EarlierCoefficients:
    """Return how a study of these parameters and cards takes earlier coefficients: those of the same loss."""
    none = Parameters()
    logistic = parameters.get("loss") == LOGISTIC
    said = {"response": none.response, **parameters, "loss": LOGISTIC if logistic else SQUARED}
    alike = {**ALIKE, "response": none.response, "loss": none.loss}
    drawing = DrawnModel("lasso", alike=alike)
    if logistic:
        drawing = DrawnModel("lasso", kind=ResponseKind.TWO_CLASSES, signed=True, alike=alike, estimator=_log_odds)
    return EarlierCoefficients(drawing, said, with_response(said, cards, said.get("response_bound", none.response_bound)))


def _log_odds() -> Any:  # noqa: ANN401 - scikit-learn's own
    from unpooled.estimation.priors import log_odds  # takes long to import

    return log_odds()


# --- Notes -----------------------------------------------------------------------------------------------------------------
# Notes of a plan of a LASSO study, made before anybody looks at data, from the study alone.

#: A named radius below this many half ranges is said to be small: predictions then span less than half of the declared range.
_SMALL = 0.5


def notes(plan: Plan) -> tuple[str, ...]:
    """Return what every party must bring, and what a small radius means."""
    p = plan.design.parameters
    found = []
    if len(plan.study.parties) > 1 and not plan.joint:
        found.append(
            f"every party must hold the response {p.response!r}, in the same order of rows and the same units; this study neither hands it to "
            "a party that lacks it nor protects it from the parties, so agree on that before anybody looks at data"
        )
    radius = p.radius_in_half_ranges
    if p.loss == SQUARED and not plan.joint and radius is not None and radius < _SMALL:
        found.append(
            f"with radius_in_half_ranges = {radius:g} predictions differ by at most {2 * radius * p.response_bound:g}, where the response may differ by "
            f"{2 * p.response_bound:g}; without it the noise sets a penalty in the place of a bound"
        )
    return tuple(found)


# --- The new study file ----------------------------------------------------------------------------------------------------
# The new study file of the LASSO.

_JOINED = Template(
    "Sparse regression over columns of several parties, from joint second moments: whole persons are protected.",
    COLUMNS,
    "record",
    """\
response = "y"                      # a declared column of one party, with a range; for a logistic loss low = -1 and high = 1
# loss = "squared"                  # "logistic": the response is -1 or 1, coefficients and the radius are log odds
# radius_in_half_ranges = 1.0       # bound on the sum of absolute coefficients, in half ranges of y; without it the noise sets a penalty
# method = "joint"                  # the default of a study with a helper
# prior = []                        # earlier models to which the fit is drawn: { name = "2024", coefficients = { age = 0.6 }, intercept = 90 }
# check = "proof"                   # every party proves that its masked rows are short; "none" needs policies with joint = "trusting"
# tolerate = 0                      # members that may know each other's noise, or stay silent about their own""",
)

TEMPLATE = Template(
    "Sparse linear regression over many columns.",
    COLUMNS,
    "attribute",
    """\
# Every party must hold the response, in the same order of rows and the same units: give it to the parties that lack it before this study.
response = "y"                      # every party's own label column, under `labels` in its party file
response_bound = 1.0                # bound on its absolute value: what is possible, not what you saw
# radius_in_half_ranges = 1.0       # bound on the sum of absolute coefficients, in units of response_bound; without it the noise sets a penalty
# loss = "squared"                  # "logistic": the response is -1 or 1, coefficients and the radius are log odds
# method = "auto"                   # "moments"; "joint", which a study with helpers is; "frank-wolfe", which "auto" takes where one of its own parameters is set
# fit_intercept = true
# prior = []                        # of moments, earlier models to which the fit is drawn: { name = "2024", coefficients = { age = 0.6 } }
# Of method = "joint" alone, for whole persons:
# check = "proof"                   # every party proves that its masked rows are short
# tolerate = 0                      # members that may know each other's noise, or stay silent about their own
# Of method = "frank-wolfe" alone:
# rounds = 20
# refit = 0.25                      # part of the budget that fits the chosen columns at the end
# sampled = 0                       # columns that a party looks at per round; 0: all of them
# clip = 0.0                        # where noisy predictions are clipped; 0: chosen by the noise
# shares = [0.6,0.2,0.2]            # parts of the rest of the budget for columns, picks and scores
# coupling = "ball"                 # the best party steps; "blocks": all step, each in a ball of its own
# response_public = false
# radius and sketch_rows are not for this form""",
    with_helpers=_JOINED,
)
