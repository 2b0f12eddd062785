"""The families that a generalised linear model on split rows takes, by name: those of one linear predictor, classes, and times to an event."""

from __future__ import annotations

from typing import Any

from unpooled.errors import UsageError, listed
from unpooled.families import ROW_FAMILIES
from unpooled.families.logistic import Logistic
from unpooled.families.poisson import Poisson

LOGISTIC, POISSON = Logistic.name, Poisson.name
MULTINOMIAL, SURVIVAL = "multinomial", "survival"
FAMILIES = (*ROW_FAMILIES, MULTINOMIAL, SURVIVAL)
#: Families whose response is one of two classes, and those whose responses are above 0.
TWO_CLASSES = tuple(name for name, family in ROW_FAMILIES.items() if family.classes)
POSITIVE = tuple(name for name, family in ROW_FAMILIES.items() if family.positive)


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


def check_family(name: str) -> None:
    """Refuse a name that is none of a family."""
    if name not in FAMILIES:
        msg = f"family is one of {listed(list(FAMILIES))}, not {name!r}"
        raise UsageError(msg)
