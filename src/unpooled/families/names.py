"""What other packages call a family, and the name that it has in a model here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Names of one law: those of unpooled's models first, then those of R, statsmodels, scikit-learn and lifelines.
_LAWS = (
    ("logistic", "binomial", "bernoulli", "logit", "binary", "quasibinomial"),
    ("survival", "cox", "coxph", "phreg", "hazard", "weibull", "exponential"),
    ("negative-binomial", "negbin", "nb", "negativebinomial", "negative_binomial", "nbinom"),
    ("multinomial", "multinom", "categorical", "softmax", "mlogit"),
    ("ordinal", "polr", "ordered", "cumulative", "proportional-odds"),
    ("poisson", "count", "quasipoisson", "loglinear"),
    ("linear", "squared", "gaussian", "normal", "ols"),
)
#: What to take where a model has no family of this law.
_ELSEWHERE = {
    "linear": "take PrivateLinearRegression, or PrideRegressor where parties hold columns",
    "survival": "take PrivateGLM('survival') where parties hold rows, or PrideGLM('cox') where they hold columns",
    "ordinal": "take PrideGLM('ordinal') where parties hold columns",
    "multinomial": "take PrivateGLM('multinomial') or PrideGLM('multinomial')",
}


def refused_family(name: object, known: Iterable[str]) -> str:
    """Return the words that refuse a family that is not among the ``known`` ones: which ones there are, and which one is meant.

    >>> refused_family("binomial", ["logistic", "poisson"])
    "family is one of logistic, poisson, not 'binomial': take 'logistic'"
    """
    known = tuple(map(str, known))
    law = next((law for law in _LAWS if str(name).lower() in law), ())
    meant = next((f"take {one!r}" for one in law if one in known), _ELSEWHERE.get(law[0], "") if law else "")
    return f"family is one of {', '.join(known)}, not {str(name)!r}{f': {meant}' if meant else ''}"
