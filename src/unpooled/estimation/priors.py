"""What a user passes as ``prior``, as the earlier models of a study: numbers by name, a fitted model, public rows, or several of these."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.aggregation.estimates import CONSTANT_TERM
from unpooled.aggregation.formula_columns import coded_by
from unpooled.aggregation.priors import EarlierModel, check_models
from unpooled.errors import UsageError
from unpooled.estimation.parameters import ParameterKind
from unpooled.privacy.bounds import Coding
from unpooled.privacy.origin import PRIOR
from unpooled.privacy.table import as_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column

_WORDS = (
    "earlier models: a fitted linear model, a mapping from names of coefficients to numbers (with '(intercept)'), public rows (X, y), "
    "a mapping from names to several of these"
)
#: The type of a parameter ``prior``: any of these, or None.
Prior: TypeAlias = Any
#: A pair (X, y).
_PAIR = 2


def ridge() -> Any:  # noqa: ANN401 - scikit-learn ships no types
    """Return ridge regression whose penalty is by evidence."""
    from sklearn.linear_model import BayesianRidge

    return BayesianRidge()


def _is_prior(value: object) -> bool:
    return isinstance(value, Mapping | tuple) or hasattr(value, "coef_") or hasattr(value, "get_params")


PRIORS = ParameterKind(_WORDS, _is_prior)


def prior_parameter(
    prior: Any,  # noqa: ANN401 - in several forms
    columns: Sequence[Column],
    *,
    formula: bool,
    fitted: Callable[[], Any] = ridge,
) -> dict[str, Any]:
    """Return the study's parameter; none without earlier models, so that such a study keeps its hash.

    ``fitted``: the estimator, of standardised columns, that makes an earlier model of public rows.
    """
    return {} if prior is None else {PRIOR: msgspec.to_builtins(_models(prior, columns, fitted, formula=formula))}


def models_of(
    prior: Any,  # noqa: ANN401 - in several forms
    columns: Sequence[Column],
    names: Sequence[str],
    *,
    formula: bool,
) -> tuple[EarlierModel, ...]:
    """Return the earlier models of moments that were released before, whose coefficients have these names."""
    found = tuple(_models(prior, columns, ridge, formula=formula))
    check_models(found, names, intercept=True)
    return found


def _models(prior: Any, columns: Sequence[Column], fitted: Callable[[], Any], *, formula: bool) -> list[EarlierModel]:  # noqa: ANN401 - as above
    named = prior if _names_several(prior) else {"prior": prior}
    return [_model(str(name), one, columns, fitted, formula=formula) for name, one in named.items()]


def released_values(values: Iterable[Any]) -> list[Any]:
    """Return parameters with fitted models as the numbers that they released, which carry their origins."""
    found: list[Any] = []
    for value in values:
        several = list(value.values()) if isinstance(value, Mapping) else [value]
        found += [one.as_prior() if hasattr(one, "as_prior") and hasattr(one, "coef_") else one for one in several]
        found += [value] if isinstance(value, Mapping) else []
    return found


class Earlier:
    """The part of a fitted estimator that later fits are drawn to."""

    def as_prior(self) -> Any:  # noqa: ANN401 - a mapping of numbers that carries its origin
        """Return the coefficients by name, for ``prior`` of a later fit: plain numbers that carry what their release cost.

        ``.of_others()`` of it declares that this model's people are not those of the later fit, so that nobody pays for both.
        """
        check_is_fitted(self)
        found, plan = named_coefficients(self), getattr(self, "plan_", None)
        return found if plan is None else plan.sourced(PRIOR, found)


def _names_several(prior: Any) -> bool:  # noqa: ANN401 - as above
    return isinstance(prior, Mapping) and not all(isinstance(value, int | float | np.number) for value in prior.values())


def _model(
    name: str,
    given: Any,  # noqa: ANN401 - in several forms
    columns: Sequence[Column],
    fitted: Callable[[], Any],
    *,
    formula: bool,
) -> EarlierModel:
    if isinstance(given, Mapping):
        return _of_numbers(name, given)
    if hasattr(given, "as_prior") and hasattr(given, "coef_"):
        return _of_numbers(name, given.as_prior())
    if isinstance(given, tuple) and len(given) == _PAIR:
        if formula:
            raise UsageError("prior: public rows go without a formula; fit them yourself, and pass the coefficients by name")
        return _of_rows(name, given, columns, fitted())
    if hasattr(given, "coef_"):
        return _of_numbers(name, _of_fitted(given, columns))
    if hasattr(given, "get_params"):
        msg = f"prior {name!r} is not fitted (a clone is not): fit it, and pass model.as_prior(), which stays what it is"
        raise UsageError(msg)
    msg = f"prior {name!r} is one of the {_WORDS}; not {type(given).__name__}"
    raise UsageError(msg)


def _of_numbers(name: str, given: Mapping[Any, Any]) -> EarlierModel:
    own = {str(key): value for key, value in given.items()}
    if not all(isinstance(value, int | float | np.number) and not isinstance(value, bool) for value in own.values()):
        msg = f"prior {name!r} maps names of coefficients to numbers"
        raise UsageError(msg)
    constant = float(own.pop(CONSTANT_TERM, 0.0))
    return EarlierModel(name, {key: float(value) for key, value in own.items()}, constant)


def named_coefficients(estimator: Any) -> dict[str, float]:  # noqa: ANN401 - a fitted estimator with one linear predictor
    """Return the coefficients of a fitted estimator by name, the constant last."""
    source = estimator._source  # noqa: SLF001 - an estimator of this package
    coded = coded_by(source) if hasattr(getattr(source, "layout", source), "features") else estimator.declared_columns
    columns = estimator.declared_columns if estimator._made is None else coded  # noqa: SLF001 - as above
    names = Coding(columns, 1).coded_names
    found = dict(zip(names, np.ravel(estimator.coef_).tolist(), strict=True))
    return found | {CONSTANT_TERM: float(np.ravel(estimator.intercept_)[0])}


def _of_fitted(model: Any, columns: Sequence[Column]) -> dict[str, float]:  # noqa: ANN401 - a linear model of another package
    values = np.ravel(model.coef_).tolist()
    given = getattr(model, "feature_names_in_", None)
    names = [column.name for column in columns] if given is None else [str(name) for name in given]
    if len(values) != len(names):
        msg = f"prior: the fitted model has {len(values)} coefficients and {len(names)} columns: pass them by name"
        raise UsageError(msg)
    return dict(zip(names, values, strict=True)) | {CONSTANT_TERM: float(np.ravel(model.intercept_)[0])}


def _of_rows(name: str, given: tuple[Any, ...], columns: Sequence[Column], estimator: Any) -> EarlierModel:  # noqa: ANN401 - scikit-learn's
    """Return the fit of public rows (X, y) to their standardised columns."""
    X, y = given
    # A column at a time: a frame of numbers and words has no type of its own.
    held = [X[column.name] for column in columns] if hasattr(X, "columns") else list(np.asarray(X).T)
    values = [
        as_column(column.name, np.asarray(np.asarray(one).tolist())) for column, one in zip(columns, held, strict=False)
    ]
    response = np.asarray(y)
    if len(held) != len(columns) or any(one.shape != response.shape or one.ndim != 1 for one in values):
        msg = f"prior {name!r}: public rows are a pair (X, y) of {len(columns)} columns and a response for each row"
        raise UsageError(msg)
    return of_public_rows(name, values, response, columns, estimator)


def of_public_rows(
    name: str,
    values: Sequence[NDArray[Any]],
    response: NDArray[Any],
    columns: Sequence[Column],
    estimator: Any,  # noqa: ANN401 - scikit-learn's
) -> EarlierModel:
    """Return the fit of a response to the standardised columns of public rows, a vector of values for each column."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    coding = Coding(tuple(columns), 1)
    rows = coding.natural(values)
    with warnings.catch_warnings():
        # What scikit-learn says of defaults of its next version concerns nobody who passes rows here.
        warnings.simplefilter("ignore", FutureWarning)
        fitted = make_pipeline(StandardScaler(), estimator).fit(rows, response)
    scale, middle = fitted[0].scale_, fitted[0].mean_
    slopes = np.ravel(fitted[1].coef_) / scale
    constant = float(np.ravel(fitted[1].intercept_)[0] - middle @ slopes)
    return EarlierModel(name, dict(zip(coding.coded_names, slopes.tolist(), strict=True)), constant)
