"""The families that a generalised linear model on split rows takes, by name: those of one linear predictor, classes, and times to an event."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from unpooled.errors import StudyError, UsageError
from unpooled.estimation.earlier import ALIKE, DrawnModel, EarlierCoefficients, ResponseKind, with_response
from unpooled.families import ROW_FAMILIES
from unpooled.families.logistic import Logistic
from unpooled.families.poisson import Poisson

if TYPE_CHECKING:
    from unpooled.privacy.plan import Card

LOGISTIC, POISSON = Logistic.name, Poisson.name
MULTINOMIAL, SURVIVAL = "multinomial", "survival"
FAMILIES = (*ROW_FAMILIES, MULTINOMIAL, SURVIVAL)
#: Families whose response is one of two classes, and those whose responses are above 0.
TWO_CLASSES = tuple(name for name, family in ROW_FAMILIES.items() if family.classes)
POSITIVE = tuple(name for name, family in ROW_FAMILIES.items() if family.positive)
_KINDS = {MULTINOMIAL: ResponseKind.CLASSES, SURVIVAL: ResponseKind.TIMES}


def public_estimator(family: str, *, shifted: bool = False) -> Any:  # noqa: ANN401 - scikit-learn's own
    """Return the estimator that makes an earlier model of public rows: this family without privacy, and without exposure and offset."""
    from sklearn.linear_model import GammaRegressor

    from unpooled.estimation.priors import SMALL, log_odds, of_counts

    if family == SURVIVAL:
        raise UsageError(
            "prior: public rows go without times to an event: fit them yourself, and pass the log hazard ratios by name"
        )
    if shifted:
        raise UsageError(
            "prior: public rows go without exposure and offset: fit them yourself, and pass the coefficients by name"
        )
    if family in {*TWO_CLASSES, MULTINOMIAL}:
        return log_odds()
    return GammaRegressor(alpha=SMALL) if family in POSITIVE else of_counts()


#: What other packages call a family, and what to take here.
_ELSEWHERE = {
    **dict.fromkeys(("binomial", "bernoulli", "logit", "binary", "quasibinomial"), "take 'logistic'"),
    **dict.fromkeys(
        ("cox", "coxph", "phreg", "hazard", "weibull", "exponential"),
        "take 'survival', whose hazards change at declared times",
    ),
    **dict.fromkeys(("negbin", "nb", "negativebinomial", "negative_binomial", "nbinom"), "take 'negative-binomial'"),
    **dict.fromkeys(("multinom", "categorical", "softmax", "mlogit"), "take 'multinomial'"),
    **dict.fromkeys(
        ("count", "quasipoisson", "loglinear"), "take 'poisson', with covariance='robust' for counts that vary more"
    ),
    **dict.fromkeys(("gaussian", "normal", "linear", "ols"), "take PrivateLinearRegression"),
}


def check_family(name: str) -> None:
    """Refuse a name that is none of a family; one that other packages have gets the name that it has here."""
    if name not in FAMILIES:
        instead = _ELSEWHERE.get(str(name).lower())
        msg = f"family is one of {', '.join(FAMILIES)}, not {name!r}{f': {instead}' if instead else ''}"
        raise UsageError(msg)


def earlier(parameters: Mapping[str, Any], cards: tuple[Card, ...]) -> EarlierCoefficients:
    """Return how a study of these parameters and cards takes earlier coefficients: those of the same family."""
    family = str(parameters.get("family", LOGISTIC))
    kind = ResponseKind.TWO_CLASSES if family in TWO_CLASSES else _KINDS.get(family, ResponseKind.NUMBER)
    shifted = any(parameters.get(role) for role in ("exposure", "offset"))
    estimator = partial(public_estimator, family, shifted=shifted)
    drawing = DrawnModel("glm", kind=kind, family=family, alike={**ALIKE, "family": LOGISTIC}, estimator=estimator)
    found = EarlierCoefficients(drawing, parameters, with_response(parameters, cards))
    try:
        check_family(family)
    except UsageError as error:
        raise StudyError(str(error)) from None
    return found
