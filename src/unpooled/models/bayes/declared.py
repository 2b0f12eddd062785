"""The parameters of a Bayes study, and what is refused of them by themselves."""

from __future__ import annotations

import math

import msgspec

from unpooled.errors import UsageError
from unpooled.inference.printed_terms import TREATMENT
from unpooled.inference.priors import EarlierModel
from unpooled.inference.sites import SiteEffects
from unpooled.linear.layout import Geometry
from unpooled.linear.residuals import Covariance
from unpooled.linear.schedule import ROUNDS, Method

AWARE, NAIVE = "noise-aware", "naive"
#: What is done with a Gram matrix that noise made indefinite: the supplement says nothing, the authors' program takes absolute eigenvalues.
AUTO, KEPT, ABSOLUTE = "auto", "kept", "absolute"
#: A precision that is estimated from the release itself.
ESTIMATE = "estimate"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[parameters]`` of a Bayes study."""

    response: str
    #: A declared column of weights, by which everything that a row adds to a sum is multiplied.
    weights: str = ""
    #: T: parties that may collude or drop out. Meaningless to trusted and local aggregation but for dropouts.
    tolerate: int = 0
    #: Parties that may be nodes of the secure sum, or the trusted aggregator; empty: all, or the first.
    nodes: tuple[str, ...] = ()
    geometry: str = Geometry.BALL
    #: L2 bound on the centred row of features.
    norm: float | None = None
    fit_intercept: bool = True
    #: In the data's own units, or "estimate".
    prior_precision: float | str = ESTIMATE
    noise_precision: float | str = ESTIMATE
    posterior: str = AWARE
    #: What standard errors assume: "model", "robust", "cluster", or "auto" (``linear/residuals.py``).
    covariance: str = Covariance.AUTO
    #: "auto" is decided before data (``rounds.py``).
    method: str = Method.AUTO
    #: Columns to which the budget goes; the others are nuisance, without standard errors.
    focus: tuple[str, ...] = ()
    #: The most passes over the data.
    max_passes: int = ROUNDS + 5
    #: Share of the squared budget for the marginal deviations of Algorithm 2; 0 projects nothing.
    projection: float = 0.0
    #: Projection thresholds in deviations; None: the best on synthetic data.
    multiple: float | None = None
    #: Of the published form: the deviations' share of delta (None: that of epsilon, which is ``projection`` there), and what becomes of a Gram
    #: matrix that noise made indefinite, "kept" or "absolute" ("auto").
    projection_delta: float | None = None
    indefinite: str = AUTO
    #: Of the intervals that are reported.
    level: float = 0.95
    #: How the levels of a column are compared in the table: with one of them (else the first that is declared), or with their mean ("sum").
    reference: dict[str, str] = msgspec.field(default_factory=dict)
    coding: str = TREATMENT
    #: What the model is a function of (docs/formulas.md); empty: every declared column beside the response, as it is.
    formula: str = ""
    #: Earlier models of the same response, to which the fit is drawn as far as the rows agree (``inference/priors.py``).
    prior: tuple[EarlierModel, ...] = ()
    #: Whether sites differ by a constant: "pooled" (they do not), "fixed" or "random" (``inference/sites.py``).
    site_effects: str = SiteEffects.POOLED


def check_values(parameters: Parameters) -> None:
    """Refuse values that mean nothing, by name."""
    for name in ("prior_precision", "noise_precision"):
        value = getattr(parameters, name)
        if value != ESTIMATE and (isinstance(value, str) or not 0 < value < math.inf):
            msg = f'{name} must be a positive finite number, or "{ESTIMATE}"'
            raise UsageError(msg)
    if parameters.posterior not in {AWARE, NAIVE}:
        msg = f"posterior is {AWARE!r} or {NAIVE!r}, not {parameters.posterior!r}"
        raise UsageError(msg)
    if not 0 < parameters.level < 1 or not 0 <= parameters.projection < 1:
        raise UsageError("level must lie between 0 and 1, and projection in [0, 1)")
    if parameters.multiple is not None and not 0 < parameters.multiple < math.inf:
        raise UsageError("multiple must be a positive number of deviations")
    if parameters.formula and (parameters.projection or parameters.norm is not None):
        raise UsageError(
            "a formula goes without projection and norm: they are of the declared columns, not of what it makes of them"
        )
    if parameters.weights and paper_parameters(parameters):
        msg = f"weights go without {', '.join(paper_parameters(parameters))}: those are of rows that count alike"
        raise UsageError(msg)
    if parameters.norm is not None and (parameters.projection or not 0 < parameters.norm < math.inf):
        raise UsageError("norm must be positive and finite, and goes without projection, which narrows single columns")
    if parameters.geometry not in set(Geometry):
        msg = f"geometry is one of {', '.join(Geometry)}, not {parameters.geometry!r}"
        raise UsageError(msg)
    _check_published(parameters)
    _check_method(parameters)
    _check_sites(parameters)
    _check_prior(parameters)


def _check_published(parameters: Parameters) -> None:
    """Refuse what the published form alone has, where it means nothing."""
    if parameters.projection_delta is not None and not 0 < parameters.projection_delta < 1:
        raise UsageError("projection_delta must lie between 0 and 1")
    if parameters.indefinite not in {AUTO, KEPT, ABSOLUTE}:
        msg = f"indefinite is {AUTO!r}, {KEPT!r} or {ABSOLUTE!r}, not {parameters.indefinite!r}"
        raise UsageError(msg)


def _check_sites(parameters: Parameters) -> None:
    """Refuse site effects where no table follows, or rows are bounded otherwise."""
    if parameters.site_effects != SiteEffects.POOLED and (
        paper_parameters(parameters)
        or parameters.method not in {Method.AUTO, Method.REFINEMENT, Method.MOMENTS}
        or parameters.focus
    ):
        msg = (
            f"site_effects {parameters.site_effects!r} goes with methods 'auto', 'refinement' and 'moments', and without focus, norm, geometry, "
            "projection, posterior and the precisions"
        )
        raise UsageError(msg)


def _check_prior(parameters: Parameters) -> None:
    """Refuse earlier models where another prior, or none, is asked for."""
    if not parameters.prior:
        if parameters.method == Method.WEIGHTS:
            raise UsageError("method 'weights' finds the weights of earlier models: name some with prior")
        return
    others = ["focus"] if parameters.focus else []
    others += paper_parameters(parameters)
    others += [] if parameters.fit_intercept else ["fit_intercept=False"]
    others += [] if parameters.site_effects == SiteEffects.POOLED else ["site_effects"]
    if others:
        msg = f"prior goes without {', '.join(others)}"
        raise UsageError(msg)
    if parameters.method == Method.MEAN:
        raise UsageError(
            "prior goes with every method but 'mean', which fits no slopes: 'weights' fits the weights of earlier models alone"
        )


def _check_method(parameters: Parameters) -> None:
    if parameters.method not in set(Method):
        msg = f"method is one of {', '.join(Method)}, not {parameters.method!r}"
        raise UsageError(msg)
    if parameters.max_passes < 1:
        raise UsageError("max_passes must be at least 1")
    if parameters.method not in {Method.AUTO, Method.MOMENTS} and paper_parameters(parameters):
        msg = f"{', '.join(paper_parameters(parameters))}: for method 'moments' alone, not for {parameters.method!r}"
        raise UsageError(msg)
    if bool(parameters.focus) != (parameters.method == Method.FOCUS) and parameters.method != Method.AUTO:
        raise UsageError(
            "focus goes with method 'auto' or 'focus', and method 'focus' with the columns that it is for: focus = [..]"
        )
    if parameters.focus and (paper_parameters(parameters) or not parameters.fit_intercept):
        raise UsageError("focus goes with an intercept, and without the parameters of method 'moments'")


def paper_parameters(parameters: Parameters) -> list[str]:
    """Return the parameters in use that mean something for one release of moments alone."""
    own = {
        "geometry": parameters.geometry != Geometry.BALL,
        "norm": parameters.norm is not None,
        "projection": parameters.projection > 0,
        "posterior": parameters.posterior != AWARE,
        "prior_precision": parameters.prior_precision != ESTIMATE,
        "noise_precision": parameters.noise_precision != ESTIMATE,
    }
    return [name for name, used in own.items() if used]
