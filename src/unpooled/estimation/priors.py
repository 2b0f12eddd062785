"""The earlier models of a study, from whatever a user passes as ``prior``: numbers by name, a fitted model, public rows, or several of these."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError, listed
from unpooled.estimation.fitted import refuse_kept, released_model
from unpooled.estimation.parameters import NONE, ParameterKind
from unpooled.inference.coding import coded_by
from unpooled.inference.estimates import CONSTANT_TERM
from unpooled.inference.printed_terms import class_terms
from unpooled.inference.priors import DrawnTo, EarlierModel, Pull, Weight, check_models
from unpooled.privacy.bounds import Coding, text_of
from unpooled.privacy.declared import says
from unpooled.privacy.origin import PRIOR, as_inputs, origins_of, sourced
from unpooled.privacy.table import as_column
from unpooled.schedules import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.origin import ReleasedInput

_WORDS = (
    "earlier models: a fitted linear model, a mapping from names of coefficients to numbers (with '(intercept)'), public rows (X, y), "
    "a mapping from names to several of these"
)
#: The type of a parameter ``prior``: any of these, or None.
Prior: TypeAlias = Any
# ruff: noqa: SLF001 - the estimator's own members, of which this part of it does not know the types
#: The penalty of an earlier model of counts or positive numbers that public rows make, as scikit-learn has it.
SMALL = table("priors").penalty
#: A pair (X, y).
_PAIR = 2


def ridge() -> Any:  # noqa: ANN401 - scikit-learn ships no types
    """Return ridge regression whose penalty is by evidence."""
    from sklearn.linear_model import BayesianRidge

    return BayesianRidge()


def log_odds() -> Any:  # noqa: ANN401 - as above
    """Return logistic regression, of two classes or several, whose penalty is by cross-validation."""
    from sklearn.linear_model import LogisticRegressionCV

    return LogisticRegressionCV(max_iter=1000)


def of_counts() -> Any:  # noqa: ANN401 - as above
    """Return Poisson regression with a small penalty."""
    from sklearn.linear_model import PoissonRegressor

    return PoissonRegressor(alpha=SMALL)


def _is_prior(value: object) -> bool:
    return isinstance(value, Mapping | tuple) or hasattr(value, "coef_") or hasattr(value, "get_params")


PRIORS = ParameterKind(_WORDS, _is_prior)


class DrawnFit:
    """How a call names the earlier models to which its fit is drawn."""

    prior: Annotated[
        Any,
        says(
            "Earlier models of the same response (docs/prior.md), to which the fit is drawn as far as the rows agree; intervals are then credible.",
            kinds=(PRIORS, NONE),
            call="mapping, fitted model, public rows (X, y), or a mapping from names to several of these, optional",
            written="Prior",
        ),
    ] = None


def _models(
    prior: Any,  # noqa: ANN401 - as above
    columns: Sequence[Column],
    fitted: Callable[[], Any],
    *,
    formula: bool,
    classes: Sequence[str] = (),
) -> list[EarlierModel]:
    named = prior if _names_several(prior) else {"prior": prior}
    return [_model(str(name), one, columns, fitted, formula=formula, classes=classes) for name, one in named.items()]


def released_origins(values: Iterable[Any]) -> tuple[ReleasedInput, ...]:
    """Return the releases that the parameters of an estimator come from, fitted models among them."""
    return as_inputs(origins_of(*values), PRIOR)


def _is_fit_of_ours(given: object) -> bool:
    if not hasattr(given, "as_prior"):
        return False
    try:
        check_is_fitted(given)
    except NotFittedError:
        return False
    return True


#: Classes that a file of a fit with earlier models holds.
SAVED = (DrawnTo, Pull, Weight)


class Earlier:
    """The part of a fitted estimator that is drawn to earlier models, and that later fits are drawn to."""

    prior: Prior

    def _publicly(self) -> Any:  # noqa: ANN401 - scikit-learn's own
        """Return the estimator that makes an earlier model of public rows."""
        return ridge()

    def _named_numbers(self) -> dict[str, float]:
        """Return the numbers, by name, to which a later fit may be drawn."""
        return named_coefficients(self)

    def _prior_parameter(self, columns: Sequence[Column], classes: Sequence[str] = ()) -> dict[str, Any]:
        """Return the study's parameter; none without earlier models, so that such a study keeps its hash.

        ``classes``: those that have coefficients of their own.
        """
        estimator: Any = self  # an estimator has more than this part of it says
        if self.prior is None:
            return {}
        formula = bool(getattr(estimator, "_formula_parameter", None))
        return {PRIOR: msgspec.to_builtins(_models(self.prior, columns, self._publicly, formula=formula, classes=classes))}

    def _earlier(self, names: Sequence[str]) -> tuple[EarlierModel, ...]:
        """Return the earlier models of moments that were released before, whose coefficients have these names."""
        if self.prior is None:
            return ()
        estimator: Any = self
        made = estimator._made is not None
        found = tuple(_models(self.prior, estimator._columns, self._publicly, formula=made))
        check_models(found, names, intercept=True)
        return found

    def _saved_fields(self) -> dict[str, Any]:
        """Return what a file holds: the earlier models as numbers, whatever they were given as."""
        found: dict[str, Any] = super()._saved_fields()  # type: ignore[misc]
        given = list(self.prior.values()) if _names_several(self.prior) else [self.prior]
        if self.prior is not None and not all(isinstance(one, Mapping) for one in given):
            estimator: Any = self
            models = estimator.plan_.study.parameters[PRIOR]
            numbers = as_numbers(msgspec.convert(models, tuple[EarlierModel, ...]))
            # Of one parameter's models each number carries the releases of all: which of them a model came from is not kept.
            found["parameters"][PRIOR] = sourced(numbers or {}, released_origins([self.prior])) or None
        return found

    def as_prior(self) -> Any:  # noqa: ANN401 - a mapping of numbers that carries its origin
        """Return the coefficients by name, for ``prior`` of a later fit: plain numbers that carry what their release cost.

        ``.of_others()`` of it declares that this model's people are not those of the later fit, so that nobody pays for both.
        """
        refuse_kept(self)
        released_model(self, "as_prior")
        check_is_fitted(self)
        estimator: Any = self
        return sourced(self._named_numbers(), as_inputs(estimator.origins, PRIOR))


def as_numbers(models: Iterable[EarlierModel]) -> dict[str, dict[str, float]] | None:
    """Return the parameter that stands for a study's earlier models; None without any."""
    return {one.name: {**one.coefficients, CONSTANT_TERM: one.intercept} for one in models} or None


def _names_several(prior: Any) -> bool:  # noqa: ANN401 - as above
    return isinstance(prior, Mapping) and not all(isinstance(value, int | float | np.number) for value in prior.values())


def _model(
    name: str,
    given: Any,  # noqa: ANN401 - in several forms
    columns: Sequence[Column],
    fitted: Callable[[], Any],
    *,
    formula: bool,
    classes: Sequence[str],
) -> EarlierModel:
    if isinstance(given, Mapping):
        return _of_numbers(name, given)
    refuse_kept(given)
    if _is_fit_of_ours(given):
        return _of_numbers(name, given.as_prior())
    if isinstance(given, tuple) and len(given) == _PAIR:
        if formula:
            raise UsageError("prior: public rows go without a formula; fit them yourself, and pass the coefficients by name")
        return _of_rows(name, given, columns, fitted(), classes)
    if hasattr(given, "coef_"):
        return _of_numbers(name, _of_fitted(given, columns, by_class=bool(classes)))
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


def named_coefficients(estimator: Any) -> dict[str, float]:  # noqa: ANN401 - a fitted estimator
    """Return the coefficients of a fitted estimator by name, with the constant last: of every class, and of hazards without one."""
    source = estimator._source
    coded = coded_by(source) if hasattr(getattr(source, "layout", source), "features") else estimator.declared_columns
    columns = estimator.declared_columns if estimator._made is None else coded
    names: Sequence[str] = Coding(columns, 1).coded_names
    if not columns:  # of moments that were released elsewhere
        names = getattr(estimator, "feature_names_in_", [f"x{j}" for j in range(estimator.n_features_in_)])
    constants = () if hasattr(estimator, "baseline_hazard_") else np.ravel(estimator.intercept_)
    classes = getattr(estimator, "classes_", ()) if len(constants) > 1 else ()
    return _named(names, classes, estimator.coef_, constants)


def _named(names: Sequence[str], classes: Iterable[Any], slopes: Any, constants: Any) -> dict[str, float]:  # noqa: ANN401 - arrays of any shape
    """Return slopes and constants by name, class after class where there are several."""
    if labels := [text_of(np.asarray(label).item()) for label in classes]:
        table = np.column_stack([np.atleast_2d(slopes), constants])
        if len(table) < len(labels):  # log odds of the second class against the first
            table = np.vstack([0 * table, table])
        return dict(zip(class_terms(labels, (*names, CONSTANT_TERM)), table.ravel().tolist(), strict=True))
    found = dict(zip(names, np.ravel(slopes).tolist(), strict=True))
    return found | ({CONSTANT_TERM: float(constants[0])} if len(constants) else {})


def _of_fitted(model: Any, columns: Sequence[Column], *, by_class: bool) -> dict[str, float]:  # noqa: ANN401 - a linear model of another package
    values, constants = np.asarray(model.coef_), np.ravel(getattr(model, "intercept_", ()))
    given = getattr(model, "feature_names_in_", None)
    names = [column.name for column in columns] if given is None else [str(name) for name in given]
    several = constants.size > 1 or (by_class and hasattr(model, "classes_"))
    if values.size != len(names) * max(constants.size, 1):
        msg = f"prior: the fitted model has {values.size} coefficients and {len(names)} columns: pass them by name"
        raise UsageError(msg)
    return _named(names, model.classes_ if several else (), values, constants)


def _of_rows(
    name: str,
    given: tuple[Any, ...],
    columns: Sequence[Column],
    estimator: Any,  # noqa: ANN401 - scikit-learn's
    classes: Sequence[str],
) -> EarlierModel:
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
    if lacking := sorted(set(classes) - {text_of(one) for one in np.unique(response).tolist()}):
        msg = f"prior {name!r}: the public rows have none of the class {listed(lacking)}, so they say nothing of its coefficients"
        raise UsageError(msg)
    return of_public_rows(name, values, response, columns, estimator, by_class=bool(classes))


def of_public_rows(
    name: str,
    values: Sequence[NDArray[Any]],
    response: NDArray[Any],
    columns: Sequence[Column],
    estimator: Any,  # noqa: ANN401 - scikit-learn's
    *,
    by_class: bool = False,
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
    slopes = np.atleast_2d(fitted[1].coef_) / scale
    constants = np.ravel(fitted[1].intercept_) - slopes @ middle
    return _of_numbers(name, _named(coding.coded_names, fitted[1].classes_ if by_class else (), slopes, constants))
