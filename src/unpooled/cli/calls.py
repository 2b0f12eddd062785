"""Calls of another program: the columns, arguments and fitted models that one brings, and its answer, by the Python function of that name."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.cli.schemas import serving
from unpooled.cli.schemas.serving import FactorData, NumbersData, SavedModel
from unpooled.errors import BudgetRefusal, DataError, UsageError, listed, not_taken
from unpooled.inference.coding import coded_by
from unpooled.privacy.bounds import Bounds, Coding
from unpooled.protocol.terms import ResultTerm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.cli.schemas.serving import Column, Fitted
    from unpooled.inference.tables import JointTest, Tables
    from unpooled.privacy.budget import Budget
    from unpooled.privacy.plan import Plan


# --- Asked -----------------------------------------------------------------------------------------------------------------
# Columns, keyword arguments and fitted models that a call of ``unpooled serve`` brings.

#: Loaded models that are kept for the next call about them.
_KEPT = 8

# --- columns and arguments -----------------------------------------------------------------------------------------------------


def column_of(name: str, column: Column) -> NDArray[Any]:
    """Return a column's values: numbers, or texts in which None is missing."""
    if isinstance(column, NumbersData):
        return _buffer(name, column.values, "<f8")
    if isinstance(column, FactorData):
        codes = _buffer(name, column.codes, "<i4")
        if codes.size and not -1 <= codes.min() <= codes.max() < len(column.levels):
            msg = f"column {name!r}: a code has no level: codes are places in the levels from 0 on, or -1"
            raise DataError(msg).at(column=name)
        levels: NDArray[Any] = np.array([*column.levels, None], dtype=object)
        return np.asarray(levels[codes])
    return np.array(column.values, dtype=object)


def _buffer(name: str, raw: bytes, kind: str) -> NDArray[Any]:
    if len(raw) % np.dtype(kind).itemsize:
        msg = f"column {name!r}: its bytes are no whole number of values"
        raise DataError(msg).at(column=name)
    return np.frombuffer(raw, dtype=kind)


def frame_of(columns: Mapping[str, Column]) -> Any:  # noqa: ANN401 - a frame of a package without types for it
    """Return columns as a data frame."""
    import polars as pl

    values = {name: column_of(name, column) for name, column in columns.items()}
    if len({one.size for one in values.values()}) > 1:
        raise DataError("the columns have different lengths: give one value per row in each of them")
    return pl.DataFrame(
        {name: pl.Series(name, one.tolist() if one.dtype == object else one) for name, one in values.items()}, strict=False
    )


def rows_of(rows: Mapping[str, Column]) -> dict[str, Any]:
    """Return the arguments that have a value for each row."""
    return {name: column_of(name, column) for name, column in rows.items()}


def arguments_of(function: Any, given: Mapping[str, Any], rows: Mapping[str, Any] | None = None) -> dict[str, Any]:  # noqa: ANN401
    """Return the keyword arguments of a call; a name that the function does not have is refused.

    Pairs of numbers are tuples; ``missing`` says of columns what a missing value becomes, ``below`` what their limit of detection is, ``typical`` what
    their values are like, ``norm`` how long rows are: all go into the bounds.
    """
    known = [name for name in inspect.signature(function).parameters if name not in {"budget", "self"}]
    asked = dict(given)
    missing, below, typical, norm = (asked.pop(name, None) for name in ("missing", "below", "typical", "norm"))
    unknown = [name for name in (*asked, *(rows or ())) if name not in known]
    if unknown:
        raise UsageError(not_taken("this function", unknown[0], known))
    if asked.get("epsilon") == "inf":
        asked["epsilon"] = math.inf
    for name, value in asked.items():
        if name.endswith("_bounds") and isinstance(value, list):
            asked[name] = tuple(value)
    if any(one is not None for one in (missing, below, typical)):
        if not isinstance(asked.get("bounds"), Mapping):
            raise UsageError(
                "`missing` (and `below`) say what a missing value of a declared column becomes, and `typical` what its values are like: declare the "
                "columns in bounds"
            )
        rule: Any = "refuse" if missing is None else missing
        asked["bounds"] = Bounds(asked["bounds"], missing=rule, below=below, typical=typical)
    if norm is not None:
        asked["bounds"] = _of_length(asked.get("bounds"), norm)
    return asked | dict(rows or {})


def _of_length(bounds: Any, norm: Any) -> Bounds:  # noqa: ANN401 - whatever the asker passes
    """Return bounds that say how long a row is too."""
    if isinstance(bounds, Bounds):
        return dataclasses.replace(bounds, norm=norm)
    if isinstance(bounds, Mapping):
        return Bounds(bounds, norm=norm)
    low, high = (None, None) if bounds is None else bounds
    return Bounds(low, high, norm=norm)


def with_prior(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with earlier models as estimators, where they are given as saved files or runs."""
    prior = given.get("prior")
    if not isinstance(prior, Mapping):
        return given
    found = _earlier(prior) if "of" in prior else {name: _earlier(one) for name, one in prior.items()}
    return given | {"prior": found}


def _earlier(given: Any) -> Any:  # noqa: ANN401 - numbers by name, or one of the forms of a fitted model
    if not (isinstance(given, Mapping) and isinstance(given.get("of"), str)):
        return given
    try:
        return model_of(msgspec.convert(given, serving.Fitted))
    except msgspec.ValidationError as error:
        msg = f"prior: {error}"
        raise UsageError(msg) from None


# --- shared budgets ------------------------------------------------------------------------------------------------------------

#: Budgets that live in this process, by the names that it gave them. No other process knows one of them.
_BUDGETS: dict[str, Budget] = {}


@contextmanager
def debited(shared: serving.Shared | None) -> Iterator[dict[str, Any]]:
    """Hand over the argument of a call that is debited to this budget: nothing without one. A file is closed again."""
    if shared is None:
        yield {}
    elif isinstance(shared, serving.MemoryBudget):
        if shared.name not in _BUDGETS:
            raise BudgetRefusal(
                "this budget ended with the process that kept its account, so that nobody knows what is left of it: make a new one for people "
                "who were in no fit yet, and give it a file (path=...) where it has to outlive the process"
            )
        yield {"budget": _BUDGETS[shared.name]}
    else:
        from unpooled.privacy.budget import Budget

        budget = Budget(shared.epsilon, shared.delta, shared.unit, shared.path)
        try:
            yield {"budget": budget}
        finally:
            budget._open().close()  # noqa: SLF001 - nothing stays open between two calls


# --- models --------------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=_KEPT)
def _loaded(saved: bytes) -> Any:  # noqa: ANN401 - whatever was saved
    from unpooled.study.saved import load

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        path.write_bytes(saved)
        return load(path)


def model_of(fitted: Fitted) -> Any:  # noqa: ANN401 - an estimator
    """Return the estimator that is meant: a saved one, or that of a finished run."""
    if isinstance(fitted, SavedModel):
        return _loaded(fitted.saved)
    from unpooled.models import fitted as estimator_of
    from unpooled.study.finished import Run

    found = Run.one(Path(fitted.run), fitted.analysis)
    return estimator_of(found.plan, found.result)


# --- Served ----------------------------------------------------------------------------------------------------------------
# The answers of ``unpooled serve``: each call of :mod:`unpooled.cli.schemas.serving` becomes a call of the Python function of that name.

#: What a constant is called in a table.
_CONSTANT = "(intercept)"
#: Where an estimator says how it fitted.
_METHODS = ("method_", "method", "noise_model", "meta")
#: Plans of more lines than these are printed by `unpooled plan`.
_PLAN_LINES = 60


@singledispatch
def answer(call: Any) -> dict[str, Any]:  # noqa: ANN401 - one of the calls
    """Return the answer to a call, as data."""
    msg = f"no answer to {type(call).__name__}"
    raise UsageError(msg)


@answer.register
def _hello(call: serving.HelloCall) -> dict[str, Any]:  # noqa: ARG001 - it asks nothing else
    from unpooled import __version__

    return {"answer": "hello", "version": __version__, "process": os.getpid()}


@answer.register
def _budget(call: serving.BudgetCall) -> dict[str, Any]:
    """Make a budget that lives in this process, or say what is left of one."""
    from unpooled.privacy.budget import Budget

    of = call.of
    if of is None:
        if call.epsilon is None or call.delta is None:
            raise UsageError("a budget has an epsilon and a delta: give both")
        of = serving.MemoryBudget(secrets.token_hex(16))
        _BUDGETS[of.name] = Budget(call.epsilon, call.delta, call.unit)
    with debited(of) as found:
        budget: Budget = found["budget"]
        return {
            "answer": "budget",
            "name": of.name if isinstance(of, serving.MemoryBudget) else None,
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "unit": budget.unit,
            "spent": budget.spent,
            "fits": len(budget.entries),
            "process": os.getpid(),
        }


# --- models --------------------------------------------------------------------------------------------------------------------


def saved_of(thing: Any) -> bytes:  # noqa: ANN401 - anything that can be saved
    """Return what ``save`` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        thing.save(path)
        return path.read_bytes()


def tables_of(model: Any, references: Mapping[str, str] | None = None, against: str | None = None) -> Tables:  # noqa: ANN401
    """Return the tables of a model, its levels compared with these; refused where its method has no standard errors."""
    from unpooled.estimation.fitted import Profiled

    if not isinstance(model, Profiled):
        msg = f"{type(model).__name__} has no table of standard errors"
        raise UsageError(msg)
    found = model._tables()  # noqa: SLF001 - of all estimators that print tables
    asked = {**found.reference, **(references or {})}
    if against is not None and found.classes:
        asked[found.response] = against
    return dataclasses.replace(found, reference=asked)


def _has_tables(model: Any) -> bool:  # noqa: ANN401
    """Return whether a fit has standard errors: its method says so, whatever the data are."""
    try:
        tables_of(model)
    except UsageError:
        return False
    return True


def people_of(plan: Plan) -> int:
    """Return the number of rows of a plan: those of one party, where the same people are at all of them."""
    rows = [card.rows for card in plan.study.parties]
    return rows[0] if plan.split.shares_people else sum(rows)


def family_of(model: Any) -> str:  # noqa: ANN401
    """Return the family of a model's response."""
    said = getattr(model, "family", None)
    if said is not None:
        return str(said)
    return ("linear", "logistic", "multinomial")[min(max(np.size(getattr(model, "classes_", ())) - 1, 0), 2)]


def _method_of(model: Any) -> str:  # noqa: ANN401
    """Return how a model was fitted, as it says or as it was asked to."""
    said = str(next((getattr(model, name) for name in _METHODS if hasattr(model, name)), ""))
    if said == "auto" and hasattr(model, "radius"):  # decided before data, between rounds that choose columns and moments
        return "frank-wolfe" if hasattr(model.plan_.design, "choice_epsilon") else "moments"
    return said


def _planned(plan: Any) -> str:  # noqa: ANN401
    lines = str(plan).splitlines()
    more = len(lines) - _PLAN_LINES
    return "\n".join(lines if more <= 0 else [*lines[:_PLAN_LINES], f"... ({more:,} more lines: unpooled plan prints all)"])


def lines_of(model: Any) -> Iterator[ResultTerm]:  # noqa: ANN401 - an estimator without standard errors
    """Yield the coefficients of an estimator in the data's own units, of every class or response apart, and then its constants."""
    if hasattr(model, "models_"):
        for one in model.models_:
            yield from _lines(one.names, one.coefficients, one.name)
            yield ResultTerm(_CONSTANT, float(one.intercept), group=one.name)
        return
    columns = model.declared_columns if model._made is None else coded_by(model._source)  # noqa: SLF001 - what its fit made of its columns
    names = Coding(columns, 1).coded_names
    slopes, constants = np.atleast_2d(model.coef_), np.ravel(model.intercept_)
    groups = _groups(model, len(slopes))
    for group, row in zip(groups, slopes, strict=True):
        yield from _lines(names, row.tolist(), group)
        if len(slopes) == len(constants):
            yield ResultTerm(_CONSTANT, float(constants[groups.index(group)]), group=group)
    if len(slopes) != len(constants):  # ordered classes: a constant above each level but the last
        for level, value in zip(model.classes_.tolist(), constants.tolist(), strict=False):
            yield ResultTerm(f"{_CONSTANT} above {level}", float(value))


def _groups(model: Any, count: int) -> list[str]:  # noqa: ANN401 - an estimator
    """Return the names of the linear predictors: of a single one, none."""
    if count == 1:
        return [""]
    classes: NDArray[Any] = np.asarray(getattr(model, "classes_", ()))
    if classes.size == count:
        return [str(label) for label in classes.tolist()]
    return [str(k) for k in range(count)]


def _lines(names: Sequence[str], values: Sequence[float], group: str) -> Iterator[ResultTerm]:
    for name, value in zip(names, values, strict=True):
        yield ResultTerm(name, float(value), group=group)


def _coefficients(model: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """Return the coefficients that predict, where nothing more is known of them."""
    result = getattr(model, "_result", None)
    if result is not None:
        from unpooled.models import load

        return [_term(term) for term in load(model.plan_.study.row).reading.terms(model.plan_, result)]
    layout = getattr(model.plan_.design, "layout", None)
    if not hasattr(model, "credible_interval") or layout is None:
        return [_term(term) for term in lines_of(model)]
    of_columns = model.plan_.joint and layout.formula is None  # columns of parties, in the order of the data
    names = Coding(model.declared_columns, 1).coded_names if of_columns else layout.names
    found = [ResultTerm(name, value) for name, value in zip(names, model.coef_.tolist(), strict=True)]
    if getattr(model, "moments_", None) is None:  # levels read as effects, and are none
        found = [term for term in found if term.term not in layout.terms.of_levels(layout.names)]
    constant = [ResultTerm(_CONSTANT, float(model.intercept_))] if layout.intercept else []
    return [_term(term) for term in (*found, *constant)]


def _term(term: Any) -> dict[str, Any]:  # noqa: ANN401
    return dict(msgspec.structs.asdict(term))


def fitted_data(
    model: Any,  # noqa: ANN401 - an estimator
    saved: bytes | None,
    references: Mapping[str, str] | None = None,
    against: str | None = None,
) -> dict[str, Any]:
    """Return a fitted model as data."""
    plan = model.plan_
    statement = plan.statement
    tabled: dict[str, Any] = {}
    if _has_tables(model):
        tables = tables_of(model, references, against)
        tabled = tables.data()
        terms = [_term(term.line) for term in tables.summary().terms]
    else:
        terms = _coefficients(model)
    curve = getattr(model, "kaplan_meier_", None)
    return tabled | {
        "answer": "fitted",
        "model": plan.study.model,
        "family": tabled.get("family", family_of(model)),
        "method": _method_of(model),
        "nobs": tabled.get("nobs", people_of(plan)),
        "plan": plan.hash,
        "holds": statement.holds,
        "statement": statement.to_dict(),
        "words": str(statement),
        "planned": _planned(plan),
        "terms": terms,
        "saved": saved,
        "classes": np.asarray(getattr(model, "classes_", [])).tolist(),
        "columns": [str(column.name) for column in model.declared_columns],
        "curve": None if curve is None else curve.as_lists(),
    }


# --- fits ----------------------------------------------------------------------------------------------------------------------


@answer.register
def _fit(call: serving.FitCall) -> dict[str, Any]:
    import unpooled

    kind: Any = unpooled.PrivateLinearRegression if call.model == "linear" else unpooled.PrivateGLM
    given = arguments_of(kind, call.arguments)
    with debited(call.budget) as debit:
        model = kind(**with_prior(given), **debit)
        rows = rows_of(call.rows)
        arguments_of(model.fit, {}, rows)
        model.fit(frame_of(call.data), formula=call.formula, **rows)
    return fitted_data(model, saved_of(model), call.references, call.against)


@answer.register
def _fitted(call: serving.FittedCall) -> dict[str, Any]:
    return fitted_data(model_of(call.model), call.model.saved if isinstance(call.model, SavedModel) else None)


def _split(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Any, Any]]:
    """Return the arguments of a table, and those that say what levels and classes are compared with."""
    asked = dict(given)
    return asked, (asked.pop("references", None), asked.pop("against", None))


@answer.register
def _summary(call: serving.SummaryCall) -> dict[str, Any]:
    asked, compared = _split(call.arguments)
    tables = tables_of(model_of(call.model), *compared)
    found = tables.summary(**arguments_of(tables.summary, asked))
    low, high = getattr(found, "r_squared_interval", (math.nan, math.nan))
    return {
        "answer": "summary",
        "terms": [_term(term.line) for term in found.terms],
        "confidence": found.confidence,
        "ratio": found.ratio,
        "foot": [*found._foot()],  # noqa: SLF001 - printed by R as Python prints it
        "not_determined": list(found.not_determined),
        "residual_variance": getattr(found, "residual_variance", math.nan),
        "r_squared": getattr(found, "r_squared", math.nan),
        "r_squared_interval": (low, high),
    }


def _test(test: JointTest) -> dict[str, Any]:
    return {"statistic": test.statistic, "degrees": test.degrees, "p_value": test.p_value}


@answer.register
def _contrast(call: serving.ContrastCall) -> dict[str, Any]:
    asked, compared = _split(call.arguments)
    tables = tables_of(model_of(call.model), *compared)
    words: Any = call.asked[0] if len(call.asked) == 1 else call.asked  # a column alone is all its levels
    found = tables.contrast(words, **arguments_of(tables.contrast, asked))
    terms = [_term(term.line) for term in found.terms]
    return {
        "answer": "contrast",
        "confidence": found.confidence,
        "ratio": found.ratio,
        "terms": terms,
        "joint": _test(found.joint),
    }


@answer.register
def _submodel(call: serving.SubmodelCall) -> dict[str, Any]:
    from unpooled.cli.result import data_of, smaller_table

    found = data_of(smaller_table(model_of(call.model), call.columns, call.confidence))
    return {"answer": "submodel"} | found | {"terms": [_term(term) for term in found["terms"]]}


@answer.register
def _anova(call: serving.AnovaCall) -> dict[str, Any]:
    found: Any = tables_of(model_of(call.model)).anova(call.smaller)
    tests: Sequence[JointTest] = found.tests if call.smaller is None else (found,)
    return {"answer": "tests", "names": [test.name for test in tests], "tests": [_test(test) for test in tests]}


@answer.register
def _predict(call: serving.PredictCall) -> dict[str, Any]:
    from unpooled.study.saved import answers

    model = model_of(call.model)
    if missing := [column.name for column in model.declared_columns if column.name not in call.data]:
        msg = f"new rows have no column {listed(missing)}: the model was fitted to it"
        raise UsageError(msg).at(column=missing[0])
    names = [column.name for column in model.declared_columns]
    frame, rows = frame_of({name: call.data[name] for name in names}), rows_of(call.rows)
    arguments_of(model.predict, {}, rows)
    if call.scores:
        if not hasattr(model, "transform"):
            raise UsageError("scores are those of components: fit partial least squares for them")
        found = {f"score {k + 1}": values for k, values in enumerate(model.transform(frame).T)}
        return {"answer": "predicted", "predictions": {name: values.tolist() for name, values in found.items()}}
    found = answers(model, frame, rows)
    if call.times:
        if not hasattr(model, "predict_survival"):
            raise UsageError("times are asked of a model of times to an event: leave them out")
        survival = model.predict_survival(frame, call.times)
        found |= {f"survival to {time:g}": values for time, values in zip(call.times, survival.T, strict=True)}
    linear = getattr(model, "linear_predictor", getattr(model, "decision_function", None))
    if linear is not None:
        linked = linear(frame, **rows)
        found["link"] = linked if linked.ndim == 1 else linked.max(axis=1)
    return {"answer": "predicted", "predictions": {name: values.tolist() for name, values in found.items()}}


# --- releases of a function ----------------------------------------------------------------------------------------------------


@answer.register
def _release(call: serving.ReleaseCall) -> dict[str, Any]:
    import unpooled

    if call.function == "effect":
        return _effect(call)
    function = getattr(unpooled, call.function)
    given = arguments_of(function, call.arguments, rows_of(call.rows))
    data = {name: column_of(name, column) for name, column in call.data.items()}
    with debited(call.budget) as debit:
        return _released(function(data, **given, **debit))


def _effect(call: serving.ReleaseCall) -> dict[str, Any]:
    """Return a treatment effect, which an estimator fits."""
    import unpooled
    from unpooled.models import load

    rows = rows_of(call.rows)
    given = with_prior(arguments_of(unpooled.TreatmentEffect, call.arguments))
    with debited(call.budget) as debit:
        model = unpooled.TreatmentEffect(**given, **debit)
        arguments_of(model.fit, {}, rows)
        model.fit(frame_of(call.data), **rows)
    return _released(model, load(model.plan_.study.row).reading.terms(model.plan_, model.result_), str(model.summary()))


@answer.register
def _diagnose(call: serving.DiagnoseCall) -> dict[str, Any]:
    import unpooled

    model = model_of(call.model)
    given = arguments_of(unpooled.diagnose, call.arguments, rows_of(call.rows))
    frame = frame_of({column.name: call.data[column.name] for column in model.declared_columns if column.name in call.data})
    with debited(call.budget) as debit:
        return _released(unpooled.diagnose(model, frame, column_of("response", call.response), **given, **debit))


def _released(found: Any, terms: Sequence[Any] | None = None, text: str = "") -> dict[str, Any]:  # noqa: ANN401 - a result that keeps its plan
    """Return the result of a release as data; its lines and its text are its own where none are given."""
    plan = found.plan_
    return {
        "answer": "released",
        "kind": type(found).__name__,
        "nobs": people_of(plan),
        "plan": plan.hash,
        "holds": plan.statement.holds,
        "statement": plan.statement.to_dict(),
        "words": str(plan.statement),
        "planned": _planned(plan),
        "text": text or str(found),
        "terms": [_term(term) for term in (found.terms if terms is None else terms)],
        "curves": found.curves_as_lists(),
        "saved": saved_of(found),
    }
