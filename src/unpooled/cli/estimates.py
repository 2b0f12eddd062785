"""Estimators that another program asks for by name: fits to columns of parties and to rows, and plans before data."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.cli.calls import answer, arguments_of, column_of, debited, fitted_data, frame_of, rows_of, saved_of, with_prior
from unpooled.cli.schemas import serving
from unpooled.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


# --- Fits ------------------------------------------------------------------------------------------------------------------


@answer.register
def _estimate(call: serving.EstimateCall) -> dict[str, Any]:
    """Fit an estimator to columns and a response, whose names are those of its lines."""
    import unpooled

    kind: Any = getattr(unpooled, call.estimator)
    given = with_weights(with_prior(arguments_of(kind, call.arguments)))
    rows = rows_of(call.rows)
    response = {name: column_of(name, column) for name, column in call.response.items()}
    with debited(call.budget) as debit:
        model = kind(**given, **debit)
        arguments_of(model.fit, {}, rows)
        if call.formula is None:
            values = list(response.values())
            model.fit(frame_of(call.data), values[0] if len(values) == 1 else np.column_stack(values), **rows)
        else:
            _check_formula(model, call.estimator)
            model.fit(frame_of(call.data | call.response), formula=f"{next(iter(response))} ~ {call.formula}", **rows)
    told = fitted_data(model, saved_of(model), call.references) | {"details": details(model)}
    if hasattr(model, "x_rotations_"):
        told["matrices"] = _matrices(model)
    if len(response) > 1:
        told["terms"] = [_named(line, list(response)) for line in told["terms"]]
    return told


def with_weights(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the weights that an earlier fit released in place of the fit, where the estimator is drawn to weights."""
    released = getattr(given.get("prior"), "released_", None)
    return given if released is None else given | {"prior": released}


def _check_formula(model: Any, name: str) -> None:  # noqa: ANN401 - an estimator
    if "formula" not in inspect.signature(model.fit).parameters:
        msg = f"{name} takes the columns as they are: name them, and transform them in your data"
        raise UsageError(msg)


def _matrices(model: Any) -> dict[str, list[list[float]]]:  # noqa: ANN401 - partial least squares
    """Return what a fit by components has of its columns: a row for each column, and of the response for each response."""
    names = ("x_weights_", "x_loadings_", "x_rotations_", "y_loadings_")
    return {name.strip("_"): np.atleast_2d(getattr(model, name)).tolist() for name in names}


def details(model: Any) -> dict[str, dict[str, float | str | None]]:  # noqa: ANN401 - an estimator
    """Return further numbers of a fit, by name and by party."""
    found: dict[str, dict[str, float | str | None]] = {}
    if hasattr(model, "alpha_"):
        found["penalty"] = dict(model.alpha_)
    if hasattr(model, "models_"):
        found["share"] = {one.party: float(one.share) for one in model.models_}
    if hasattr(model, "n_components_"):
        found["components"] = {"all": float(model.n_components_)}
    if getattr(model, "fallback_", ""):
        found["fallback"] = {"all": str(model.fallback_)}
    return found


def _named(line: dict[str, Any], responses: Sequence[str]) -> dict[str, Any]:
    """Return a line of one of several responses under the name that the asker gave it."""
    return line | {"group": responses[int(line["group"])]}


# --- Before data -----------------------------------------------------------------------------------------------------------


@answer.register
def _plan(call: serving.PlanCall) -> dict[str, Any]:
    """Return what a fit to data of this shape would release, and its promise."""
    import unpooled
    from unpooled.cli.study import releases_of
    from unpooled.study.run import advice

    kind: Any = getattr(unpooled, call.estimator)
    model = kind(**with_weights(with_prior(arguments_of(kind, call.arguments))))
    sites: Mapping[str, Any] = {"sites": call.sites} if call.sites else {}
    if sites and "sites" not in inspect.signature(model.plan).parameters:
        msg = f"{call.estimator} has parties with columns: leave sites out"
        raise UsageError(msg)
    plan = model.plan(call.samples, call.features, **sites)
    return {
        "answer": "planned",
        "plan": plan.hash,
        "releases": releases_of(plan),
        "statement": plan.statement.to_dict(),
        "words": str(plan.statement),
        "notes": advice(plan),
    }
