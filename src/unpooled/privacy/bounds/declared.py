"""Bounds for many columns at once, as a caller writes them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import PrivacyLeakWarning, UsageError, listed
from unpooled.privacy.bounds.column import Column, Missing, text_of
from unpooled.privacy.origin import origins_of
from unpooled.privacy.unit import real

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from unpooled.privacy.table import Table


@dataclass(frozen=True, slots=True)
class Bounds:
    """Declared bounds for many columns at once, by name or in their order; scalars serve every column.

    >>> from unpooled import Bounds
    >>> [c.low for c in Bounds(low=0, high=[1, 10]).columns(["dose", "age"])]
    [0.0, 0.0]
    >>> Bounds({"age": (0, 120), "sex": ["F", "M"]}).columns(["sex", "age"])[0].categories
    ('F', 'M')

    Parameters
    ----------
    low : float, one number for each column, or mapping from column name (or index), optional
        The lower end of the declared range; values outside are clipped into the range. By name, ``low`` alone may say everything of a
        column: two numbers are its range, any other list its categories. Columns of a frame are matched by name, whatever their order.
    high : float, one number for each column, or mapping from column name (or index), optional
        The upper end of the declared range.
    norm : float, optional
        Declared bound on the L2 norm of a row's centred values; longer rows are shortened to it, their direction kept. Alone, it
        implies the range [-norm, norm] for every column, to which nothing is clipped; other ranges are clipped to first.
    categories : mapping from column name (or index) to its values, optional
        The declared categories of columns that are not numbers.
    missing : {"refuse", "absent", "indicator"} or mapping from column name (or index) to one of them, default "refuse"
        What a missing value becomes: an error; nothing (the middle of the range); or nothing, and a coded column that says so.

    """

    low: ArrayLike | Mapping[str | int, Any] | None = None
    high: ArrayLike | Mapping[str | int, float] | None = None
    norm: float | None = None
    categories: Mapping[str | int, Sequence[object]] | None = None
    missing: Missing | Mapping[str | int, Missing] = "refuse"
    #: Private releases that these bounds come from (``describe(bounds=True)``): their price belongs to every later statement.
    paid: tuple[Any, ...] = ()

    @property
    def origins(self) -> tuple[Any, ...]:
        """Return the releases that these bounds come from; none where they were declared."""
        return (*self.paid, *origins_of(self.low, self.high))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the columns that are declared by name, in the order of their declarations; none where they are declared by place."""
        return tuple(str(name) for name in self.low) if isinstance(self.low, Mapping) else ()

    def undeclared(self, names: Sequence[str]) -> list[str]:
        """Return the names that have neither a range nor categories, where columns are declared one by one."""
        if not isinstance(self.low, Mapping) or self.norm is not None or not isinstance(self.high, Mapping | None):
            return []
        declared = [mapping for mapping in (self.low, self.high, self.categories) if isinstance(mapping, Mapping)]
        known = {key for mapping in declared for key in mapping}
        return [name for i, name in enumerate(names) if name not in known and i not in known]

    def refuse_undeclared(self, names: Sequence[str]) -> None:
        """Refuse names that have neither a range nor categories; the error names all of them."""
        if undeclared := self.undeclared(names):
            many = "columns" if len(undeclared) > 1 else "column"
            msg = f"{many} {listed(undeclared)}: no range and no categories are declared. Declare them in bounds, or fit without them"
            raise UsageError(msg).at(column=undeclared[0])

    def columns(self, names: Sequence[str]) -> tuple[Column, ...]:
        """Return one :class:`Column` per name; whatever is undeclared or does not fit is an error that names the column."""
        if self.norm is not None and not 0 < real("norm", self.norm) < math.inf:
            msg = "norm must be a positive finite number"
            raise UsageError(msg)
        known = {*names, *range(len(names))}
        for mapping in (self.low, self.high, self.categories, self.missing):
            unknown = [key for key in mapping if key not in known] if isinstance(mapping, Mapping) else []
            if unknown:
                msg = f"bounds name the column {unknown[0]!r}, which is not among {listed(names)}"
                raise UsageError(msg).at(column=str(unknown[0]))
        self.refuse_undeclared(names)
        low = _per_column("low", self.low if self.low is not None or self.norm is None else -self.norm, names)
        high = _per_column("high", self.high if self.high is not None or self.norm is None else self.norm, names)
        columns = tuple(self._column(i, name, low[i], high[i]) for i, name in enumerate(names))
        if self.norm is not None and any(column.categories for column in columns):
            msg = "declare categories or a row norm, not both: a one-hot row has its own norm"
            raise UsageError(msg)
        return columns

    def _column(self, i: int, name: str, low: Any, high: Any) -> Column:  # noqa: ANN401 - declarations of several kinds
        def entry(mapping: Mapping[str | int, Any]) -> Any:  # noqa: ANN401 - values of two kinds of mapping
            return mapping.get(name, mapping.get(i))

        missing = self.missing if isinstance(self.missing, str) else entry(self.missing) or "refuse"
        categories = entry(self.categories or {})
        if isinstance(low, Sequence | np.ndarray) and not isinstance(low, str):  # by name: a range, or categories
            if categories is not None or (isinstance(self.high, Mapping) and high is not None):
                msg = f"column {name!r} is declared twice: give it one range or one list of categories"
                raise UsageError(msg).at(column=name)
            if len(low) == 2 and all(isinstance(end, Real) and not isinstance(end, bool) for end in low):  # noqa: PLR2004
                low, high = low
            else:
                categories = low
        if categories is not None:
            return Column(name, categories=tuple(text_of(c) for c in categories), missing=missing)
        return Column(name, _end(name, low), _end(name, high), missing=missing)

    @classmethod
    def given(
        cls, bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None, table: Table | None, *, warn: bool = True
    ) -> Bounds:
        """Return the bounds that a caller passed as ``bounds``: declared ones, by name or as a pair (low, high); None reads them off the data."""
        if isinstance(bounds, Bounds):
            return bounds
        if bounds is not None:
            return cls(bounds) if isinstance(bounds, Mapping) else cls(*bounds)
        if table is None:
            raise UsageError("a plan needs bounds: pass bounds=Bounds(low=..., high=...)")
        return cls.from_data(table, warn=warn)

    @classmethod
    def from_data(cls, table: Table, *, warn: bool = True) -> Bounds:
        """Return ranges and categories read off the data, with a warning: for exploration, no guarantee holds."""
        if warn:
            message = (
                "no bounds were declared, so they were read off the data: the result is for exploration only and carries no "
                "privacy guarantee. Pass bounds=Bounds(low=..., high=...) to get one."
            )
            warnings.warn(message, PrivacyLeakWarning, stacklevel=3)
        low: list[float] = []
        high: list[float] = []
        categories: dict[str | int, Sequence[object]] = {}
        for name in table.names:
            values = table[name]
            if values.dtype == object:
                found = sorted({str(v) for v in values if v is not None})
                spare = [word for word in ("(other)", "(none)", "(more)") if word not in found]
                categories[name] = [*found, *spare][: max(2, len(found))]
                low.append(0.0)
                high.append(1.0)
                continue
            known = values[~np.isnan(values)]
            smallest, largest = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
            low.append(smallest)
            high.append(largest if largest > smallest else smallest + max(1.0, abs(smallest)))
        return cls(low, high, categories=categories, missing="absent")


def _end(name: str, value: object) -> float | None:
    """Return one end of a range that is declared by name."""
    if value is None or (isinstance(value, Real) and not isinstance(value, bool)):
        return None if value is None else float(value)
    msg = f"column {name!r}: declare two numbers (low, high), or a list of categories"
    raise UsageError(msg).at(column=name)


def _per_column(name: str, value: Any, names: Sequence[str]) -> list[Any]:  # noqa: ANN401 - a mapping has declarations of several kinds
    if value is None:
        return [None] * len(names)
    if isinstance(value, Mapping):
        return [value.get(column, value.get(i)) for i, column in enumerate(names)]
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        msg = f"{name} must be finite numbers: one, or one for each column in their order"
        raise UsageError(msg)
    if array.ndim > 1 or (array.ndim == 1 and array.size != len(names)):
        msg = f"{name} has shape {array.shape}: give one number, or one for each of the {len(names)} columns"
        raise UsageError(msg)
    return [float(v) for v in np.broadcast_to(array, len(names))]
