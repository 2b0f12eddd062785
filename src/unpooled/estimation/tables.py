"""Conversion of arrays and frames to tables: text, booleans, categories and numbers, columns by name, and no data value in any error."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import DataError, UsageError
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.table import Checked, Table, as_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The label column of the in-process parties; no feature can be called so.
RESPONSE = "(response)"
#: What scikit-learn's messages quote of the data: a value that is no number, a whole array.
_QUOTED = (
    (re.compile(r"could not convert string to float:.*", re.DOTALL), "{} holds text where numbers are needed"),
    (re.compile(r"instead:\narray=.*\.\n(?=Reshape)", re.DOTALL), "instead. "),
    (re.compile(r"(?<=Complex data not supported)\n.*", re.DOTALL), ""),
)


def checked(estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool = True, **rules: Any) -> Any:  # noqa: ANN401
    """Return rows (and responses) as scikit-learn checks them: an array of numbers, or of objects where there is text among them.

    Texts stay what they are, and what may stand in a column is left to its declaration. Messages are scikit-learn's without the
    values that some of them quote.
    """
    # Where it is needed: `describe` takes no scikit-learn, whose import takes a third of a second.
    from sklearn.utils import check_X_y
    from sklearn.utils.validation import validate_data

    alone = isinstance(y, str) and y == "no_validation"
    if reset and is_frame(X) and getattr(estimator, "bounds", None) is not None:
        Bounds.given(estimator.bounds, None).refuse_undeclared(
            columns_of(X)
        )  # before what stands in a column that nobody declared
    try:
        mixed = _mixed(X)
        if mixed is None:
            return validate_data(estimator, X, y, reset=reset, dtype=np.float64, **rules)
        validate_data(estimator, X, y, reset=reset, skip_check_array=True)
        if alone:
            return mixed
        rules = {name: value for name, value in rules.items() if name in {"y_numeric", "ensure_min_samples"}}
        return mixed, check_X_y(np.zeros((mixed.shape[0], 1)), y, estimator=estimator, **rules)[1]
    except UsageError:
        raise
    except ValueError as error:
        message = str(error)
        for pattern, instead in _QUOTED:
            message = pattern.sub(instead.format("X" if alone else "X or y"), message)
        if message != str(error):
            raise DataError(message) from None
        raise


def _mixed(X: Any) -> NDArray[Any] | None:  # noqa: ANN401
    """Return the rows as an array of objects if they hold something else than numbers; None leaves them to scikit-learn."""
    if is_frame(X):
        columns = list(_of_frame(X).values())
        if not columns or all(column.dtype.kind in "biufc" for column in columns):
            return None
        rows = np.empty((len(columns[0]), len(columns)), dtype=object)
        for j, column in enumerate(columns):
            rows[:, j] = as_column(str(X.columns[j]), column)
        return rows
    if hasattr(X, "tocsc") or getattr(getattr(X, "dtype", None), "kind", "O") in "biufc":
        return None
    try:
        array = np.asarray(X)
        rows = array if array.dtype.kind == "O" else np.asarray(X, dtype=object)
    except (ValueError, TypeError):
        return None  # rows of different lengths, or nothing like an array: scikit-learn says so
    if array.ndim != 2 or array.dtype.kind not in "OU" or not any(isinstance(value, str) for value in rows.ravel().tolist()):  # noqa: PLR2004
        return None
    return rows


def table_of(data: Any, names: Sequence[str] | None = None) -> Table:  # noqa: ANN401 - array, sparse matrix, mapping, frame or series
    """Data as a table; ``names`` are those of an array's columns (default x0, x1, ..), or say which of a frame's to take."""
    if hasattr(data, "tocsc"):
        return Table({}, sparse=(names or _numbered(data.shape[1]), data))
    if is_frame(data):
        data = _of_frame(data)
    if isinstance(data, Mapping):
        missing = [name for name in names or () if name not in data]
        if missing:
            msg = f"there is no column {missing[0]!r} in the data"
            raise UsageError(msg).at(column=missing[0])
        return Table({name: data[name] for name in names or data})
    own = getattr(data, "name", None)
    array = np.asarray(data)
    if array.ndim == 1:  # a series: one column, under its own name if it has one
        names = [own] if names is None and isinstance(own, str) and own else names
        array = array[:, None]
    if array.ndim != 2:  # noqa: PLR2004
        msg = f"data have {array.ndim} dimensions: give rows and columns"
        raise UsageError(msg)
    if isinstance(data, list | tuple) and array.dtype.kind == "U":  # NumPy makes text of numbers that stand beside text
        array = np.asarray(data, dtype=object).reshape(array.shape)
    names = _numbered(array.shape[1]) if names is None else names
    if len(names) != array.shape[1]:
        msg = f"columns names {len(names)} columns, the data have {array.shape[1]}"
        raise UsageError(msg)
    return Table({name: array[:, j] for j, name in enumerate(names)})


def responses_of(y: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the columns of a response by name, or of several."""
    return {RESPONSE: y} if y.ndim == 1 else dict(zip(response_names(y.shape[1]), y.T, strict=True))


def response_names(count: int) -> tuple[str, ...]:
    """Return names for ``count`` responses in columns of an array."""
    return tuple(f"(response {k + 1})" for k in range(count))


def part(table: Table, names: Sequence[str], response: NDArray[Any] | None = None) -> Table:
    """Return one party's table: some columns of a table, sparse ones still so, with a response (or several) appended."""
    own = {} if response is None else responses_of(response)
    matrix = table.sparse(names) if names else None
    if matrix is not None:
        return Table(own, sparse=(names, matrix))
    return Table({**{name: Checked(table[name]) for name in names}, **own})


def names_of(estimator: Any, count: int) -> list[str]:  # noqa: ANN401
    """Return the names of the features that an estimator has seen, or x0, x1, .. where they have none."""
    return [str(name) for name in getattr(estimator, "feature_names_in_", _numbered(count))]


def _numbered(count: int) -> list[str]:
    return [f"x{j}" for j in range(count)]


def columns_of(frame: Any) -> list[str]:  # noqa: ANN401 - a frame, or a mapping from names to columns
    """Return the names of a frame's columns."""
    return [str(name) for name in (frame if isinstance(frame, Mapping) else frame.columns)]


def is_frame(data: Any) -> bool:  # noqa: ANN401
    """Return True if data are a frame of pandas, polars or their like, without importing any of them."""
    return hasattr(data, "columns") and hasattr(data, "__getitem__") and not isinstance(data, Mapping)


def _of_frame(data: Any) -> dict[str, NDArray[Any]]:  # noqa: ANN401
    columns = {str(name): data[name].to_numpy() for name in data.columns}
    if len(columns) != len(data.columns):
        raise DataError("two columns of the frame have the same name: give each name once")
    return columns
