"""Columns, keyword arguments and fitted models that a call of ``unpooled serve`` brings."""

from __future__ import annotations

import inspect
import math
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.cli.schemas import serving
from unpooled.cli.schemas.serving import FactorData, NumbersData, SavedModel
from unpooled.errors import DataError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.cli.schemas.serving import Column, Fitted

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

    Pairs of numbers are tuples; ``missing`` says of columns what a missing value becomes, and goes into the bounds.
    """
    from unpooled.privacy.bounds import Bounds

    known = [name for name in inspect.signature(function).parameters if name not in {"budget", "self"}]
    asked = dict(given)
    missing = asked.pop("missing", None)
    unknown = [name for name in (*asked, *(rows or ())) if name not in known]
    if unknown:
        msg = f"there is no argument {unknown[0]!r} here: choose of {', '.join(known)}"
        raise UsageError(msg)
    if asked.get("epsilon") == "inf":
        asked["epsilon"] = math.inf
    for name, value in asked.items():
        if name.endswith("_bounds") and isinstance(value, list):
            asked[name] = tuple(value)
    if missing is not None:
        if not isinstance(asked.get("bounds"), Mapping):
            raise UsageError(
                "`missing` says what a missing value of a declared column becomes: declare the columns in bounds"
            )
        asked["bounds"] = Bounds(asked["bounds"], missing=missing)
    return asked | dict(rows or {})


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
