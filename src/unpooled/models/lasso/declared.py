"""Parameters of a LASSO study, what no form of it does, and the notes of its plan."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from unpooled.errors import UsageError
from unpooled.estimation.earlier import ALIKE, DrawnModel, EarlierCoefficients, ResponseKind, with_response
from unpooled.inference.priors import check_models
from unpooled.linear.declared import EarlierModels
from unpooled.privacy.declared import PROOF, CheckWord, says
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.protocol.registry import COLUMNS, Template
from unpooled.schedules import table

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


class Form(StrEnum):
    """Ways to spend the budget."""

    AUTO = "auto"
    #: Privately standardised columns, and moments of each party's own.
    MOMENTS = "moments"
    #: The paper's rounds, which release columns.
    ROUNDS = "frank-wolfe"
    #: Moments of the columns of all parties, joined under masks.
    JOINT = "joint"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[parameters]`` of a LASSO study."""

    response: Annotated[
        str,
        says(
            "Every party must hold the response, in the same order of rows and the same units: its own label column. With joint sums it is a declared column of one party.",
            column=True,
            study=True,
            shown=True,
        ),
    ] = "y"
    method: Annotated[
        str,
        says(
            '"auto" is "moments"; "joint" where the study has a helper; and the rounds of "frank-wolfe" where one of their own parameters is set, for '
            "sparse columns, or without noise where a radius is named. Where the noise leaves nothing, moments are the mean of y alone: decided before "
            'data. "joint": the columns of all parties are joined under masks, whole persons are protected (``unit="record"``), and one party alone has '
            "the response.",
            choices=Form,
        ),
    ] = Form.AUTO.value
    response_bound: Annotated[
        float,
        says(
            "Bound on the absolute value of the response: what is possible, not what you saw. Nobody centres it, so give deviations from a public middle.",
            study=True,
            shown=True,
        ),
    ] = 1.0
    radius_in_half_ranges: Annotated[
        float | None,
        says(
            "Bound on the sum of absolute coefficients of columns scaled by their declared half width, in half ranges of the response (of a logistic "
            "loss in log odds). Left out, moments have a penalty that follows from the noise in its place, and the rounds take one half range.",
            1.0,
            study=True,
        ),
    ] = None
    radius: Annotated[
        float | None,
        says(
            "Bound on the sum of absolute coefficients of the scaled columns, in half ranges of y (of classes in log odds). None: moments are fitted with "
            "a penalty, a quarter of what the largest product of noise and chance with y is about; without noise that is a plain LASSO. The rounds need "
            "a ball, and None is 1. The published form has it in units of y, as the paper, and None is 1."
        ),
    ] = None
    coupling: Annotated[
        str,
        says(
            "One ball, of which the best party steps; or an equal ball for each party, of which all step: another, more constrained problem.",
            choices=Coupling,
        ),
    ] = Coupling.BALL
    rounds: Annotated[int, says("T. The noise of picks grows with sqrt T, that of columns does not (unit attribute).")] = 20
    sampled: Annotated[int, says("Columns that each party looks at in a round. 0: all.")] = 0
    clip: Annotated[float, says("C, where noisy predictions are clipped. 0 chooses by the noise, before any data.")] = 0.0
    shares: Annotated[
        tuple[float, float, float], says("Shares of the rest of the budget, for columns, picks and scores.")
    ] = (0.6, 0.2, 0.2)
    refit: Annotated[
        float,
        says(
            "Share of the budget that pays for moments of the chosen columns, to which their coefficients are fitted at the end. 0 leaves them as the "
            "rounds left them, which was less accurate throughout ``experiments/results/lasso/private.md``."
        ),
    ] = 0.25
    fit_intercept: Annotated[
        bool,
        says(
            "Fit a constant, from a noisy mean of y (a fiftieth of the budget) and centred columns; otherwise it is the middle of the range of y."
        ),
    ] = True
    response_public: Annotated[
        bool, says("Declares y public: less noise at unit attribute, and no promise for records.")
    ] = False
    loss: Annotated[
        str,
        says(
            '"squared", or "logistic" for a response of -1 and 1 (a value above 0 counts as 1): from moments alone.',
            choices=(SQUARED, LOGISTIC),
            study=True,
        ),
    ] = SQUARED
    sketch_rows: Annotated[int, says("Rows m of the published form's sketch of shared columns. 0: no sketch.")] = 0
    tolerate: Annotated[
        int, says("Of joint sums, members that may know each other's noise, or stay silent about their own.", study=True)
    ] = 0
    check: CheckWord = PROOF
    prior: EarlierModels = ()

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

_SMALL = table("frank_wolfe").radius_small


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

_OF_ROUNDS = ("coupling", "rounds", "sampled", "clip", "shares", "refit", "response_public", "sketch_rows")
_JOINED = Template.of(
    Parameters,
    "Sparse regression over columns of several parties, from joint second moments: whole persons are protected.",
    COLUMNS,
    foreign=("radius", "response_bound", "fit_intercept", *_OF_ROUNDS),
)

TEMPLATE = Template.of(
    Parameters,
    "Sparse linear regression over many columns.",
    COLUMNS,
    unit="attribute",
    foreign=("radius", "sketch_rows"),
    with_helpers=_JOINED,
)
