"""Conversion of arrays and frames to tables: text, booleans, categories and numbers, columns by name, by a formula, or by the name of the response."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import DataError, UsageError, listed
from unpooled.formula import Formula
from unpooled.inference.coding import SITE, made_by
from unpooled.inference.sites import SiteEffects
from unpooled.privacy.bounds import MISSING_WORDS, Bounds, Column, number_above
from unpooled.privacy.table import Checked, Table, as_column, gaps_of
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from unpooled.inference.coding import FormulaColumns


# --- Tables ----------------------------------------------------------------------------------------------------------------
# Conversion of arrays and frames to tables: text, booleans, categories and numbers, columns by name, and no data value in any error.

#: The label column of the in-process parties; no feature can be called so.
RESPONSE = "(response)"
#: What to do about a missing value: scikit-learn's advice to fill it in would void the promise.
_UNFILLED = "Do not fill values in from the data: what is filled in depends on other people, and no guarantee would hold"
#: What scikit-learn's messages quote of the data: a value that is no number, a whole array.
_QUOTED = (
    (re.compile(r"could not convert string to float:.*", re.DOTALL), "{} holds text where numbers are needed"),
    (
        re.compile(r"Input (X |y )?contains NaN\..*", re.DOTALL),
        "{} holds a missing value (NaN). Say in bounds what becomes of it: missing='complete', or 'indicator' for predictions. "
        + _UNFILLED,
    ),
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
    X = as_read(X, getattr(estimator, "bounds", None) if reset else getattr(estimator, "_columns", ()))
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
        if reset and "contains NaN" in message and (name := first_with_gaps(X)) is not None:
            words = MISSING_WORDS.format(name, "a missing value (NaN)")
            msg = f"{words}. In Python: bounds=Bounds(..., missing={{{name!r}: 'complete'}}). {_UNFILLED}"
            raise DataError(msg).at(column=name) from None
        for pattern, instead in _QUOTED:
            message = pattern.sub(instead.format("X" if alone else "X or y"), message)
        if message != str(error):
            raise DataError(message) from None
        raise


def first_with_gaps(X: Any) -> str | None:  # noqa: ANN401
    """Return the name of the first column of numbers with a missing value, an array's being x0, x1, ..; None where there is none, or no columns."""
    names = columns_of(X) if is_frame(X) else None
    if hasattr(X, "tocsc"):
        matrix = X.tocsc()
        lost = np.add.reduceat(np.append(np.isnan(matrix.data), 0), matrix.indptr[:-1])[: matrix.shape[1]] * np.diff(
            matrix.indptr
        )
    else:
        array = np.asarray(X, dtype=np.float64)
        if array.ndim != 2:  # noqa: PLR2004
            return None
        lost = np.isnan(array).any(axis=0)
    found = np.flatnonzero(lost)
    return (names or _numbered(len(lost)))[int(found[0])] if found.size else None


def filled(y: Any) -> tuple[Any, NDArray[np.bool_] | None]:  # noqa: ANN401
    """Return one response with another one's value in every gap (0 where there is none), and the gaps; None: there are none, and it is as it was.

    The values are only looked at, and taken out again: scikit-learn checks no array with gaps.
    """
    if y is None:  # scikit-learn says what it is
        return y, None
    try:
        array = np.asarray(y)
        column = array if array.dtype.kind == "f" else as_column("y", array) if array.dtype.kind == "O" else None
    except (DataError, ValueError):  # scikit-learn says what it is
        return y, None
    if column is None or column.ndim != 1 or not (gaps := gaps_of(column)).any():
        return y, None
    there = column[~gaps]
    held = np.where(gaps, there[0] if there.size else 0.0, column)
    return held if held.dtype.kind == "f" else np.array(held.tolist()), gaps


def lacking(name: str, *, may: bool) -> str:
    """Return what is said of a response of this name that has missing values; ``may``: its rows can be left out."""
    whose = f"the response {name!r}" if name else "the response y"
    key = f"{{{name!r}: 'complete'}}" if name else "'complete'"
    if not may:
        return f"{whose} has missing values (NaN), and this model leaves no rows out: leave such rows out of the data, at every party. {_UNFILLED}"
    return (
        f"{whose} has missing values (NaN), and its declaration does not say what becomes of them: declare missing = 'complete' (such rows are left out: right "
        f"unless, given the other columns, whether it is missing depends on it). In Python: bounds=Bounds(..., missing={key}). {_UNFILLED}"
    )


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
        names = None if names is None else list(names)  # also of an array
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


def rows_of(frame: Any, rows: NDArray[np.int64]) -> Any:  # noqa: ANN401 - a frame of the same kind
    """Return some rows of a frame, in this order."""
    if hasattr(frame, "iloc"):
        return frame.iloc[rows]
    if isinstance(frame, Mapping):
        return {name: np.asarray(column)[rows] for name, column in frame.items()}
    return frame[rows.tolist()]


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


# --- Framed ----------------------------------------------------------------------------------------------------------------
# A frame whose columns are named: by a formula, or by the name of its response.


@dataclass(frozen=True)
class Framed:
    """Features and response of a fit, and the right side of its formula; ``event`` of ``Surv(time, event)``."""

    X: Any
    y: Any
    event: Any = None
    formula: str = ""
    #: Whether the features were taken out of a frame by name.
    picks: bool = False
    #: What the response is called, where its name is known.
    response: str = ""


class TakesFrames:
    """The part of an estimator that takes columns out of frames, by a formula or by name."""

    bounds: Any
    #: Whether the fit took its columns out of a frame by name, so that new frames may hold others beside them.
    _picks: bool = False
    #: What the response of the fit is called, empty where nobody knows; and whether this fit has looked for it.
    _called: str = ""
    _looked: bool = False

    def _validate_params(self) -> None:
        """Refuse parameters of another kind than they are declared."""
        raise NotImplementedError

    def _framed(self, X: Any, y: Any, formula: str | None) -> Framed:  # noqa: ANN401 - whatever a user passes
        """Features and response of a frame, by a formula (of the call, or the estimator's own) or by the response's name."""
        self._validate_params()
        given = formula if formula is not None else getattr(self, "formula", None)
        pooled = getattr(self, "site_effects", SiteEffects.POOLED) == SiteEffects.POOLED
        found = framed(X, y, given, self.bounds, () if pooled else (SITE,))
        self._right, self._picks, self._called, self._looked = found.formula, found.picks, found.response, True
        return found

    @property
    def _formula_parameter(self) -> dict[str, str]:
        """Return the study's parameter; none without a formula, so that such a study keeps its hash."""
        text = getattr(self, "_right", None)
        if text is None:
            text = right_side(getattr(self, "formula", None), self.bounds)
        return {"formula": text} if text else {}

    @property
    def _made(self) -> FormulaColumns | None:
        """Return the columns that the formula of the fit makes; None without a formula."""
        return made_by(self._source)

    @property
    def _source(self) -> Any:  # noqa: ANN401 - moments, or the design of any model
        """Return what holds the layout of the fit."""
        moments = getattr(self, "moments_", None)
        return moments if moments is not None else getattr(getattr(self, "plan_", None), "design", None)


def as_read(data: Any, declared: Any) -> Any:  # noqa: ANN401 - whatever a user passes; bounds, or columns
    """Return data as a file would be read by these declarations: dates are counted, and values under a limit of detection are missing."""
    if not isinstance(declared, tuple) or not all(isinstance(one, Column) for one in declared):
        return above_limits(
            counted_dates(data, dated_of(declared)), declared.below if isinstance(declared, Bounds) else None
        )
    columns = tuple(declared)
    places = {
        column.name if is_frame(data) or isinstance(data, Mapping) else k: column.below for k, column in enumerate(columns)
    }
    return above_limits(counted_dates(data, columns), {key: below for key, below in places.items() if below is not None})


def above_limits(data: Any, limits: Mapping[str | int, float] | None) -> Any:  # noqa: ANN401 - whatever a user passes
    """Return data in which values under these limits are missing; columns are named as bounds name them, an array's x0, x1, .. or by place."""
    if not limits:
        return data
    if not is_frame(data) and not isinstance(data, Mapping):
        return _array_above(data, limits)
    names = columns_of(data)
    keys = {names[key] if isinstance(key, int) and key < len(names) else key: below for key, below in limits.items()}
    found = {str(name): _above(str(name), data[name], below) for name, below in keys.items() if name in names}
    if isinstance(data, Mapping):
        return {**data, **found}
    if hasattr(data, "assign"):
        return data.assign(**found)
    import polars as pl

    return data.with_columns(pl.Series(name, values, nan_to_null=True) for name, values in found.items())


def _array_above(data: Any, limits: Mapping[str | int, float]) -> Any:  # noqa: ANN401 - an array, or a sparse matrix
    if hasattr(data, "tocsc"):
        raise UsageError("below: a sparse column has no limit of detection, under which its zeros would lie. Leave it out")
    array = np.asarray(data)
    if array.ndim != 2:  # noqa: PLR2004 - scikit-learn says so
        return data
    array = array.astype(object if array.dtype.kind in "OU" else np.float64)
    for k, name in enumerate(_numbered(array.shape[1])):
        below = limits.get(name, limits.get(k))
        if below is not None:
            array[:, k] = _above(name, array[:, k], below)
    return array


def _above(name: str, values: Any, below: float) -> NDArray[np.float64]:  # noqa: ANN401 - a column of a frame
    """Return one column of numbers, nan where they lie under the limit, as they are written or as they are."""
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        found = array.astype(np.float64)
        return np.where(found < below, np.nan, found)
    try:
        return np.array([np.nan if gone(value) else number_above(str(value), below) for value in array.tolist()])
    except ValueError:
        msg = f"column {name!r} holds something that is neither a number nor written as under its limit of detection (<, and a number up to it)"
        raise DataError(msg).at(column=name) from None


def dated_of(bounds: Any) -> tuple[Column, ...]:  # noqa: ANN401 - as declared
    """Return the columns that bounds declare by a first and a last day."""
    return Bounds.given(bounds, None).dated if isinstance(bounds, Bounds | Mapping) else ()


def counted_dates(data: Any, columns: Iterable[Column]) -> Any:  # noqa: ANN401 - whatever a user passes
    """Return data in whose named columns dates are numbers, counted from the day that their declaration counts from."""
    if not is_frame(data) and not isinstance(data, Mapping):
        return data
    held = columns_of(data)
    found = {
        column.name: _counted(column, data[column.name]) for column in columns if column.calendar and column.name in held
    }
    if not found:
        return data
    if isinstance(data, Mapping):
        return {**data, **found}
    if hasattr(data, "assign"):
        return data.assign(**found)
    import polars as pl

    return data.with_columns(pl.Series(name, values) for name, values in found.items())


def _counted(column: Column, values: Any) -> NDArray[np.float64]:  # noqa: ANN401 - a column of a frame
    """Return dates as numbers; numbers were counted before."""
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    assert column.calendar is not None
    first, unit = column.calendar
    try:
        days = (
            np.array([np.datetime64("NaT") if gone(v) else v for v in array.tolist()], dtype="datetime64[D]")
            if array.dtype.kind in "OUT"
            else array
        )
    except (ValueError, TypeError):
        msg = f"column {column.name!r} holds something that is no date: dates are those of Python, NumPy, pandas or polars, or text such as 2015-01-31"
        raise DataError(msg).at(column=column.name) from None
    passed = days.astype("datetime64[D]") - np.datetime64(first)
    return np.where(np.isnat(passed), np.nan, passed.astype(np.float64) / unit)


def gone(value: object) -> bool:
    """Return True for what stands for a missing value in a column of objects."""
    return value is None or value != value or str(value) == "NaT"  # noqa: PLR0124 - what is not itself is no value


def declared_in(data: Any, bounds: Any, columns: Sequence[str] | None) -> Sequence[str] | None:  # noqa: ANN401 - whatever a user passes
    """Return the columns of data with names that are described: those that are asked for, else those that are declared; None is all."""
    if columns is not None or not (is_frame(data) or isinstance(data, Mapping)) or not isinstance(bounds, Bounds | Mapping):
        return columns
    declared, held = Bounds.given(bounds, None).names, columns_of(data)
    return [*(name for name in held if name in declared), *(name for name in declared if name not in held)] or None


def row_values(data: Any, word: str, values: Any) -> Any:  # noqa: ANN401 - as above
    """Return the values for each row that an argument of a function holds, or the column of the data that it names."""
    if not isinstance(values, str):
        return values
    if not is_frame(data) and not isinstance(data, Mapping):
        msg = f"{word}={values!r} names a column of a frame, and the data are an array: pass the values, one for each row"
        raise UsageError(msg)
    return np.asarray(data[values]) if isinstance(data, Mapping) and values in data else _column(data, values)


#: Arguments of a fit with a value for each row, which may be named where the rows are a frame.
BY_ROW = ("sites", "unit_id", "exposure", "offset", "event")
#: Words of scikit-learn that no fit here takes, and what to do instead.
_NOT_TAKEN = {
    "sample_weight": "weights= of PrivateLinearRegression and PrivateGLM are weights of rows, inside a declared weights_bounds",
}


def by_name(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Return a fit to which ``sites``, ``unit_id`` and the like can be given as names of columns of its frame, which then are no features."""

    @wraps(fit)
    def named(self: Any, X: Any, *others: Any, **more: Any) -> Any:  # noqa: ANN401 - whatever a user passes
        for word in more.keys() & _NOT_TAKEN.keys():
            msg = f"{word} is not taken: {_NOT_TAKEN[word]}"
            raise UsageError(msg)
        words = {word: name for word, name in more.items() if word in BY_ROW and isinstance(name, str)}
        if not words or more.get("on") is not None:  # rows of frames that are linked have no order yet
            return fit(self, X, *others, **more)
        more |= {word: row_values(X, word, name) for word, name in words.items()}
        if is_frame(X) and more.get("formula") is None and getattr(self, "formula", None) is None:
            X = picked(X, [name for name in columns_of(X) if name not in words.values()])
        return fit(self, X, *others, **more)

    return named


def framed(X: Any, y: Any, formula: str | None, bounds: Any, beside: Sequence[str] = ()) -> Framed:  # noqa: ANN401 - whatever a user passes
    """Return the data of ``fit(frame, "y")`` and ``fit(frame, formula="y ~ age")``; leave other calls as they are.

    ``beside``: columns that a formula may name and no frame has, because the study makes them.
    """
    if formula is None and not isinstance(y, str):
        return Framed(X, y, response=name_of(y))
    said = Formula.parse(formula) if formula is not None else None
    left = said.response if said is not None else (y,)
    if isinstance(y, str) and said is not None:
        if said.response not in {(), (y,)}:
            msg = f"the left side of the formula is {listed(said.response)}, and y is {y!r}: name one of them"
            raise UsageError(msg)
        left = (y,)
    event, called = None, left[0] if left else name_of(y)
    if y is None or isinstance(y, str):
        if not left:
            raise UsageError('the formula has no left side: write "y ~ age", or pass y')
        if not is_frame(X):
            msg = f"{left[0]!r} is a column of a frame, and X is an array: pass y as an array"
            raise UsageError(msg)
        y, *rest = (_column(X, name) for name in left)
        event = rest[0] if rest else None
    names = _names(X, said, left, bounds)
    text = "" if said is None else str(replace(said.closed(names), response=(), survival=False))
    if not is_frame(X):
        return Framed(X, y, event, text, response=called)
    needs = said.closed(names).needs if said is not None else names
    needs = tuple(name for name in needs if name not in beside)
    if not needs:
        raise UsageError("the formula names no column: name one. A base rate alone is method='mean' of PrivateGLM")
    return Framed(picked(X, needs), y, event, text, picks=True, response=called)


def name_of(y: Any) -> str:  # noqa: ANN401 - whatever a user passes
    """Return the name of a series; empty for what has none."""
    name = getattr(y, "name", None)
    return name if isinstance(name, str) else ""


def response_of(formula: str | None) -> str:
    """Return the response that a formula names; empty where there is none."""
    left = Formula.parse(formula).response if formula is not None else ()
    return left[0] if left else ""


def right_side(formula: str | None, bounds: Any) -> str:  # noqa: ANN401 - as declared
    """Return the right side of a formula, before any data."""
    if formula is None:
        return ""
    said = Formula.parse(formula)
    return str(replace(said.closed(Bounds.given(bounds, None).names), response=(), survival=False))


def picked(X: Any, names: Sequence[str]) -> Any:  # noqa: ANN401 - a frame, or rows without names
    """Return the named columns of a frame; rows without names as they are."""
    if not is_frame(X):
        return X
    missing = [name for name in names if name not in columns_of(X)]
    if missing:
        msg = f"there is no column {missing[0]!r} in the frame, which has {listed(columns_of(X))}"
        raise UsageError(msg).at(column=missing[0])
    return X[list(names)]


def _names(X: Any, said: Formula | None, left: Sequence[str], bounds: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Return the columns that a dot, or no formula, stands for: those that are declared, else all but the response."""
    declared = Bounds.given(bounds, None).names if bounds is not None else ()
    if not declared and is_frame(X):
        declared = tuple(columns_of(X))
    return tuple(name for name in declared if name not in left) if declared else (said.needs if said is not None else ())


def weights_of(X: Any, values: Any, used: Any, unit: str) -> Any:  # noqa: ANN401 - a frame, a column of it by name or as numbers, features
    """Return the column of weights that a name stands for; numbers are returned as they are.

    A column that is a feature too is refused where one value of a person is protected: such a value would move two declared columns.
    """
    if not isinstance(values, str):
        return values
    if unit == Unit.ATTRIBUTE and is_frame(used) and values in columns_of(used):
        msg = f"{values!r} is a feature and the weights: with unit='attribute' one value must be in one declared column. Leave it out of the features"
        raise UsageError(msg)
    if not is_frame(X):
        msg = f"{values!r} is a column of a frame, and X is an array: pass the numbers"
        raise UsageError(msg)
    return _column(X, values)


def _column(X: Any, name: str) -> Any:  # noqa: ANN401
    if name not in columns_of(X):
        msg = f"there is no column {name!r} in the frame, which has {listed(columns_of(X))}"
        raise UsageError(msg).at(column=name)
    return np.asarray(X[name].to_numpy())
