"""Declarations about the data, made before anybody looks at the data, and the coding of rows by these declarations.

A :class:`Column` is the declaration of one column, a :class:`Bounds` the short way to write many; :class:`Coding` turns raw
blocks into integers by public constants only: clip to the range, centre at its middle, scale by its half width, round toward
zero to a grid. So zero lies inside every range, every coded value lies in [-grid, grid], and nothing is read off the data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import repeat
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec
import numpy as np

from unpooled.errors import DataError, PrivacyLeakWarning, UsageError, listed, warn_caller
from unpooled.privacy.origin import origins_of
from unpooled.privacy.table import BLOCK_ROWS
from unpooled.privacy.unit import real
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray
    from scipy.sparse import csc_array

    from unpooled.privacy.table import Table


# --- Column ----------------------------------------------------------------------------------------------------------------
# The public declaration of one column, and what its values are called.

#: What a missing value becomes. refuse: an error before any charge; absent: it contributes zero;
#: indicator: zero, and one more coded column says that it was missing.
Missing = Literal["refuse", "complete", "model", "absent", "indicator"]
#: The rules by which rows without a value contribute nothing to a fit; by the second one a model of which rows are whole is part of it.
COMPLETE, MODELLED = "complete", "model"
LEAVING_OUT = frozenset({COMPLETE, MODELLED})
#: Half the part of a range that is usual, in typical deviations: values beyond count as its ends where columns are standardised, and nowhere else.
USUAL = table("rows").usual
#: How near to 1 the shares of all categories add up, which people round.
SHARES_NEAR = 0.005
#: Half a range is at most this number of typical deviations wide.
FINEST = 5000
_RULES = get_args(Missing)  # once: there are many columns

#: Days in each unit that a column of dates may count; a year is the calendar's mean one.
_DAYS = {"days": 1.0, "weeks": 7.0, "months": 365.2425 / 12, "years": 365.2425}
_DATES = re.compile(rf"({'|'.join(_DAYS)}) since (\d{{4}}-\d{{2}}-\d{{2}})")


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The public declaration of one column: a range or a list of categories, and the rule for missing values.

    ``dates`` says that a file holds dates, and what the range counts: "days since 2015-01-01" (or weeks, months, years). ``below`` is the limit of
    detection: what is written as under it ("<0.5"), or is a number under it, counts as missing, and leaves its row out where no rule is declared.
    ``typical`` is the centre and the standard deviation that its values are known to have, from elsewhere and never from these data: noise then
    follows them and not the range. Of categories it is the share of each, in their order: what is foretold of a study then knows rare ones.
    """

    name: str
    low: float | None = None
    high: float | None = None
    categories: tuple[str, ...] | None = None
    missing: Missing = "refuse"
    dates: str = ""
    below: float | None = None
    typical: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            msg = f"column {self.name!r}: {problem}"
            raise UsageError(msg).at(column=self.name)
        if self.below is not None and self.missing == "refuse":
            msgspec.structs.force_setattr(self, "missing", COMPLETE)  # a value under the limit is no error

    def _problem(self) -> str | None:  # noqa: PLR0911 - one line per rule
        if self.missing not in _RULES:
            return f"unknown rule for missing values; choose one of {', '.join(_RULES)}"
        if self.dates and (self.categories is not None or self.calendar is None):
            return f'dates are counted in a range: dates = "days since 2015-01-01" (or {", ".join(_DAYS)}), with low and high so counted'
        if self.below is not None and (problem := self._problem_of_limit(self.below)):
            return problem
        if self.categories is not None:
            if self.low is not None or self.high is not None:
                return "declare a range (low, high) or categories, not both"
            if len(self.categories) < 2 or len(set(self.categories)) != len(self.categories):  # noqa: PLR2004
                return "declare at least two categories, each once"
            return self._unlike_shares()
        if self.low is None or self.high is None:
            return "no bounds: declare low and high, or categories"
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high and self.half_width > 0):
            return "low must be smaller than high, both finite"
        return self._untypical()

    def _untypical(self) -> str | None:
        """Return what is wrong with the typical values; None where nothing is."""
        if self.typical is None:
            return None
        if len(self.typical) != 2:  # noqa: PLR2004
            return "typical is two numbers, (centre, deviation)"
        centre, deviation = self.typical
        if not (self.range[0] <= centre <= self.range[1] and self.half_width / FINEST <= deviation <= self.half_width):
            return f"typical is (centre, deviation): a centre inside the range, and a deviation between half its width and 1 / {FINEST:,} of that"
        if self.missing in {"absent", "indicator"}:
            return 'what is typical goes with missing = "complete": a gap that counts as the middle of the range would be far from anything typical'
        return None

    def _unlike_shares(self) -> str | None:
        """Return what is wrong with the typical shares of categories; None where nothing is."""
        if self.typical is None:
            return None
        assert self.categories is not None
        right = len(self.typical) == len(self.categories) and all(share > 0 for share in self.typical)
        if right and math.isclose(math.fsum(self.typical), 1.0, abs_tol=SHARES_NEAR):
            return None
        return "typical of categories is the share of each, in their order: positive numbers that add up to 1"

    @property
    def shares(self) -> tuple[float, ...]:
        """Return the share of each category: as it is typical, else all alike."""
        said = self.typical or (1.0,) * len(self.categories or ())
        return tuple(share / math.fsum(said) for share in said)

    def _problem_of_limit(self, below: float) -> str:
        if (
            self.categories is not None
            or self.dates
            or self.low is None
            or self.high is None
            or not self.low < below < self.high
        ):
            return "below is the limit of detection of a number: it lies inside the declared range (low, high)"
        if self.missing not in {"refuse", COMPLETE}:
            return (
                f'values under a limit of detection are left out (missing = "complete"): {self.missing!r} would take them for values like those above it, '
                "which they are not"
            )
        return ""

    @property
    def usual(self) -> tuple[float, float]:
        """Return (middle, half width) of the part of the range in which most values lie: three typical deviations around the typical centre, else all of it."""
        if self.typical is None or self.categories is not None:
            return self.centre, self.half_width
        centre, deviation = self.typical
        low, high = max(self.range[0], centre - USUAL * deviation), min(self.range[1], centre + USUAL * deviation)
        return low / 2 + high / 2, high / 2 - low / 2

    @property
    def calendar(self) -> tuple[date, float] | None:
        """Return the first day that a column of dates counts from, and the days in its unit; None of other columns."""
        said = _DATES.fullmatch(self.dates)
        try:
            return None if said is None else (date.fromisoformat(said[2]), _DAYS[said[1]])
        except ValueError:  # no such day
            return None

    @property
    def centre(self) -> float:
        """Return the middle of the range, where coded values are zero."""
        return self.range[0] / 2 + self.range[1] / 2

    @property
    def half_width(self) -> float:
        """Return the size of one coded unit in the column's own units: half the width of the range."""
        return self.range[1] / 2 - self.range[0] / 2

    @property
    def range(self) -> tuple[float, float]:
        """Return (low, high) of a numeric column."""
        if self.low is None or self.high is None:
            msg = f"column {self.name!r} has categories, not a range"
            raise UsageError(msg).at(column=self.name)
        return self.low, self.high

    @property
    def may_be_absent(self) -> bool:
        """Return True if a value may be missing without being refused."""
        return self.missing != "refuse"

    @property
    def unfit_for_sparse(self) -> str | None:
        """Return the reason why this column cannot be coded sparse (its zeros would not stay zeros), or None if it can."""
        if self.categories is not None or self.range[0] != -self.range[1]:
            return "a sparse column's range must be symmetric about zero, so that zeros stay zeros: declare low = -high"
        if self.missing == "indicator":
            return "a sparse column has no indicator, which would not be sparse: declare missing = 'absent' or 'refuse'"
        return None


def truth_words(categories: tuple[str, ...]) -> tuple[str, str] | None:
    """Return (false, true) as these categories write them, or None: a file's yes-or-no column holds the words themselves, not 0 and 1."""
    words = {category.lower(): category for category in categories}
    return (words["false"], words["true"]) if words.keys() == {"false", "true"} else None


#: How people write a value under a limit of detection; the limit is the number after the sign.
UNDER = r"^[<\u2264]\s*=?\s*(\d+(?:[.,]\d+)?|[.,]\d+)$"


def number_above(text: str, below: float) -> float:
    """Return the number that a text is, nan if it lies under this limit or is written as under one up to it; anything else raises ValueError.

    >>> [number_above(text, 0.5) for text in ("1.5", "1,5", "0.2", "<0,5", "< 0.3")]
    [1.5, 1.5, nan, nan, nan]
    """
    plain = text.strip()
    under = re.match(UNDER, plain)
    if under and float(under[1].replace(",", ".")) <= below:
        return math.nan
    number = float(plain.replace(",", ".")) if plain else math.nan
    return math.nan if number < below else number


def text_of(value: object) -> str:
    """Return a value as a category: text as it is; 1, 1.0 and True (all stored as 1.0) are '1'."""
    if not isinstance(value, Real | np.bool_):
        return str(value)
    number = float(value)
    return str(int(number)) if number.is_integer() else str(number)


# --- Declared --------------------------------------------------------------------------------------------------------------
# Bounds for many columns at once, as a caller writes them.


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
    missing : {"refuse", "complete", "model", "absent", "indicator"} or mapping from column name (or index) to one of them, default "refuse"
        What a missing value becomes: an error; a row that is left out ("complete", for tables); the same, and which rows are whole is modelled
        by the response ("model", for tables of linear and logistic regression); nothing (the middle of the range); or nothing, and a coded column that says so.
    below : mapping from column name (or index) to float, optional
        Limits of detection: a value under its limit ("<0.5" or "<0,5" in text, or a smaller number) counts as missing, and its row is left out.
    typical : mapping from column name (or index) to (centre, deviation), or to shares of categories, optional
        What values of a column are known to be like, from a textbook or an earlier study, never from these data. A range that is only
        possible (0 to 500) then costs nothing; what is wrong by a factor of five costs wider intervals, and never the guarantee. Shares
        ({"north": .9, "south": .1}, or numbers in the order of the categories) make what an outlook foretells of rare ones true, and change nothing else.

    """

    low: ArrayLike | Mapping[str | int, Any] | None = None
    high: ArrayLike | Mapping[str | int, float] | None = None
    norm: float | None = None
    categories: Mapping[str | int, Sequence[object]] | None = None
    missing: Missing | Mapping[str | int, Missing] = "refuse"
    below: Mapping[str | int, float] | None = None
    typical: Mapping[str | int, Sequence[float] | Mapping[str, float]] | None = None
    #: Private releases that these bounds come from (``describe(bounds=True)``): their price belongs to every later statement.
    paid: tuple[Any, ...] = ()

    @property
    def origins(self) -> tuple[Any, ...]:
        """Return the releases that these bounds come from; none where they were declared."""
        return (*self.paid, *origins_of(self.low, self.high, self.typical))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the columns that are declared by name, in the order of their declarations; none where they are declared by place."""
        return tuple(str(name) for name in self.low) if isinstance(self.low, Mapping) else ()

    def without(self, name: str) -> Bounds:
        """Return the declarations of all columns but one, where they are made by name."""
        parts: tuple[Any, ...] = (self.low, self.high, self.categories, self.missing, self.below, self.typical)
        low, high, categories, missing, below, typical = (
            {key: value for key, value in own.items() if key != name} if isinstance(own, Mapping) else own for own in parts
        )
        return replace(self, low=low, high=high, categories=categories, missing=missing, below=below, typical=typical)

    def rule(self, name: str) -> Missing:
        """Return what a missing value of this column becomes, whether its range is declared here or apart."""
        return self.missing if isinstance(self.missing, str) else self.missing.get(name, "refuse")

    def of(self, name: str) -> Column | None:
        """Return the declaration of one column, where it is made by name."""
        if name not in self.names:
            return None
        others = [other for other in self.names if other != name]
        alone = self
        for other in others:
            alone = alone.without(other)
        return alone.columns([name])[0]

    @property
    def may_miss(self) -> bool:
        """Return True if a value of any column may be missing."""
        return self.missing != "refuse" or bool(self.below)

    @property
    def dated(self) -> tuple[Column, ...]:
        """Return the columns that are declared by a first and a last day."""
        pairs = self.low.items() if isinstance(self.low, Mapping) else ()
        named = [str(name) for name, said in pairs if isinstance(said, Sequence) and _days_of(said) is not None]
        return tuple(column for name in named if (column := self.of(name)) is not None)

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
        for mapping in (self.low, self.high, self.categories, self.missing, self.below, self.typical):
            unknown = [key for key in mapping if key not in known] if isinstance(mapping, Mapping) else []
            if unknown:
                msg = f"bounds name the column {unknown[0]!r}, which is not among {listed(names)}"
                raise UsageError(msg).at(column=str(unknown[0]))
        self.refuse_undeclared(names)
        low = _per_column("low", self.low if self.low is not None or self.norm is None else -self.norm, names)
        high = _per_column("high", self.high if self.high is not None or self.norm is None else self.norm, names)
        columns = tuple(self._column(i, name, low[i], high[i]) for i, name in enumerate(names))
        if self.norm is not None and self.typical:
            raise UsageError("declare typical values of columns with ranges of their own, or a row norm, not both")
        if self.norm is not None and any(column.categories for column in columns):
            msg = "declare categories or a row norm, not both: a one-hot row has its own norm"
            raise UsageError(msg)
        return columns

    def _column(self, i: int, name: str, low: Any, high: Any) -> Column:  # noqa: ANN401 - declarations of several kinds
        def entry(mapping: Mapping[str | int, Any]) -> Any:  # noqa: ANN401 - values of two kinds of mapping
            return mapping.get(name, mapping.get(i))

        missing = self.missing if isinstance(self.missing, str) else entry(self.missing) or "refuse"
        categories, said = entry(self.categories or {}), entry(self.typical or {})
        below = entry(self.below or {})
        below = below if below is None else real(f"below[{name!r}]", below)
        if isinstance(low, Sequence | np.ndarray) and not isinstance(low, str):  # by name: a range, or categories
            if categories is not None or (isinstance(self.high, Mapping) and high is not None):
                msg = f"column {name!r} is declared twice: give it one range or one list of categories"
                raise UsageError(msg).at(column=name)
            if (days := _days_of(low)) is not None:
                typical, dates = self._typical(name, said), f"days since {days[0]}"
                return Column(name, 0.0, days[1], missing=missing, dates=dates, below=below, typical=typical)
            if len(low) == 2 and all(isinstance(end, Real) and not isinstance(end, bool) for end in low):  # noqa: PLR2004
                low, high = low
            else:
                categories = low
        if categories is not None:
            levels = tuple(text_of(c) for c in categories)
            typical = self._typical(name, said, levels)
            return Column(name, categories=levels, missing=missing, below=below, typical=typical)
        typical = self._typical(name, said)
        return Column(name, _end(name, low), _end(name, high), missing=missing, below=below, typical=typical)

    @staticmethod
    def _typical(name: str, said: Any, levels: tuple[str, ...] = ()) -> tuple[float, ...] | None:  # noqa: ANN401 - whatever a caller wrote
        """Return the typical values of a column, or the shares of its levels, as a caller wrote them."""
        if said is None:
            return None
        if levels and isinstance(said, Mapping):
            by_text = {text_of(level): share for level, share in said.items()}
            said = [by_text[level] for level in levels] if set(by_text) == set(levels) else []
        found: list[Any] = list(said) if isinstance(said, Sequence | np.ndarray) and not isinstance(said, str) else []
        numbers = all(not isinstance(n, bool) and isinstance(n, Real) and math.isfinite(n) for n in found)
        if len(found) != (len(levels) or 2) or not numbers:
            words = (
                "typical of categories is the share of each of them"
                if levels
                else "typical is two numbers, (centre, deviation)"
            )
            msg = f"column {name!r}: {words}"
            raise UsageError(msg).at(column=name)
        return tuple(float(n) for n in found)

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
            warn_caller(message, PrivacyLeakWarning)
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


def _days_of(said: Any) -> tuple[date, float] | None:  # noqa: ANN401 - declarations of several kinds
    """Return the first day of a range of dates, and the days until the last one; None if it is no range of dates."""
    if len(said) != 2 or isinstance(said, str) or not all(isinstance(end, date | np.datetime64) for end in said):  # noqa: PLR2004
        return None
    first, last = (np.datetime64(end, "D") for end in said)
    return first.astype(date), float((last - first) / np.timedelta64(1, "D"))


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


# --- Coding ----------------------------------------------------------------------------------------------------------------
# Codes rows into integers by what was declared of their columns, and refuses rows that do not fit.

#: Values in units of a row's norm beyond which they are not told apart, so that squares are finite.
_FARTHEST = 1e150
#: Values that :func:`check` reads at a time.
_READ = 1 << 24
#: Up to this number of categories it is faster to compare all texts with each category than to look the texts up.
_FEW = 2

#: What is said of a missing value that nobody declared, whichever way a column is held.
MISSING_WORDS = (
    "column {!r} holds {}, and its declaration does not say what becomes of it: for a table declare missing = 'complete' (such rows are left out: right "
    "unless missingness depends on the response), for predictions 'indicator', or clean the column"
)


@dataclass(frozen=True, slots=True)
class Coding:
    """Codes blocks of rows into integers by public constants.

    Numeric columns give one coded column, categories one each (one-hot), and a missing-value indicator one more.
    ``attribute[j]`` is the declared column that coded column j belongs to: one attribute may move several of them.
    """

    columns: tuple[Column, ...]
    grid: int
    norm: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the declared columns this coding reads."""
        return tuple(column.name for column in self.columns)

    @property
    def attribute(self) -> tuple[int, ...]:
        """For every coded column, the index of the declared column it comes from."""
        return tuple(i for i, column in enumerate(self.columns) for _ in range(self._width(column)))

    @property
    def coded_names(self) -> tuple[str, ...]:
        """For every coded column, what to call it: the column, its category, or that it was missing."""
        names: list[str] = []
        for column in self.columns:
            names += [f"{column.name} = {c}" for c in column.categories] if column.categories else [column.name]
            names += [f"{column.name} missing"] if column.missing == "indicator" else []
        return tuple(names)

    @property
    def units(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (width, centre) of every coded column: a number z is coded as (z - centre) / width, categories and indicators as 0 and 1."""
        numbers = [c.categories is None for c in self.columns]
        first = np.searchsorted(self.attribute, np.flatnonzero(numbers))
        width, centre = np.ones(len(self.attribute)), np.zeros(len(self.attribute))
        width[first] = [c.half_width if self.norm is None else self.norm for c in self.columns if c.categories is None]
        centre[first] = [c.centre for c in self.columns if c.categories is None]
        return width, centre

    @staticmethod
    def _width(column: Column) -> int:
        return len(column.categories or " ") + (column.missing == "indicator")

    def real(self, block: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        """Return the same code without rounding, in [-1, 1] and column-major: for what a party computes and keeps for itself."""
        out = np.empty((block[0].size, len(self.attribute)), order="F")
        replace(self, grid=1)._fill(block, out, rounded=False)  # noqa: SLF001 - its own
        return out

    def natural(self, block: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        """Return the same columns in the data's own units: numbers as they are (the centre where missing), categories as 0 and 1."""
        out = Coding(self.columns, 1).real(block)
        at = 0
        for column, raw in zip(self.columns, block, strict=True):
            if column.categories is None:
                out[:, at] = np.where(np.isnan(raw), column.centre, raw)
            at += self._width(column)
        return out

    def code(self, block: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return (coded integers, which declared values are present) of a block of raw columns."""
        out = np.empty((block[0].size, len(self.attribute)), dtype=np.int64)
        return out, self.code_into(block, out)

    def code_into(self, block: Sequence[NDArray[Any]], out: NDArray[Any]) -> NDArray[np.bool_]:
        """Return the same integers into an array of the caller's (int64, or float64 that BLAS is to work on); what is present."""
        return self._fill(block, out, rounded=True)

    def code_sparse(self, matrix: csc_array) -> csc_array:
        """Return the same integers, as floats, of columns that are held sparse, in the order of ``columns``: only stored values are looked at.

        Missing values become zero where the column says "absent".
        """
        from scipy.sparse import csc_array

        if self.norm is not None:
            raise UsageError("a bound on rows needs whole rows, and sparse columns are coded one by one: declare no norm")
        for column in self.columns:
            if problem := column.unfit_for_sparse:
                msg = f"column {column.name!r}: {problem}"
                raise UsageError(msg).at(column=column.name)
        values, owner = matrix.data, np.repeat(np.arange(len(self.columns)), np.diff(matrix.indptr))
        missing = np.isnan(values)
        if missing.any():
            refusing = np.array([not column.may_be_absent for column in self.columns])
            for i in owner[missing & refusing[owner]][:1]:
                raise DataError(MISSING_WORDS.format(self.columns[i].name, "a missing value")).at(
                    column=self.columns[i].name
                )
            values = np.where(missing, 0.0, values)
        # What `kernels.moments.quantise` does, operation by operation; the centre is zero.
        high = np.array([column.range[1] for column in self.columns])[owner]
        scale = np.array([column.half_width for column in self.columns])[owner]
        coded = np.trunc(np.clip(np.clip(values, -high, high) / scale, -1.0, 1.0) * float(self.grid))
        kept = np.flatnonzero(coded)
        return csc_array((coded[kept], matrix.indices[kept], np.searchsorted(kept, matrix.indptr)), shape=matrix.shape)

    def _fill(self, block: Sequence[NDArray[Any]], out: NDArray[Any], *, rounded: bool) -> NDArray[np.bool_]:
        if self.norm is not None:
            return self._shortened(block, out, rounded=rounded)
        return self._columns(block, out, rounded=rounded)

    def _columns(self, block: Sequence[NDArray[Any]], out: NDArray[Any], *, rounded: bool) -> NDArray[np.bool_]:
        present = np.empty((block[0].size, len(self.columns)), dtype=np.bool_, order="F")
        at = 0
        for i, (column, raw) in enumerate(zip(self.columns, block, strict=True)):
            width = self._width(column)
            present[:, i] = self._code_column(column, raw, out[:, at : at + width], rounded=rounded)
            at += width
        return present

    def _shortened(self, block: Sequence[NDArray[Any]], out: NDArray[Any], *, rounded: bool) -> NDArray[np.bool_]:
        """Return rows in units of the norm, shortened to it where they are longer: their direction stays what it is.

        Values are clipped to declared ranges first, but not to a range that the norm alone implies.
        """
        rows = np.empty(out.shape, order="F")
        present = replace(self, grid=1)._columns(block, rows, rounded=False)  # noqa: SLF001 - its own
        length = np.sqrt((rows**2).sum(axis=1))
        # One part in 2^40 shorter than the bound, so that no rounding here can exceed it; and then toward zero.
        rows *= np.minimum(1.0, (1 - 2.0**-40) / np.maximum(length, 1e-200))[:, None]
        out[...] = np.trunc(rows * self.grid) if rounded else rows
        return present

    def _code_column(
        self, column: Column, raw: NDArray[Any], out: NDArray[Any], *, rounded: bool
    ) -> NDArray[np.bool_] | np.bool_:
        present: NDArray[np.bool_] | np.bool_
        if column.categories is not None:
            present = np.zeros(raw.size, dtype=np.bool_)
            for j, same in enumerate(_held(raw, column.categories)):
                out[:, j] = np.where(same, self.grid, 0)
                present |= same
        else:
            raw = numbers_of(column, raw)
            present = self._code_number(column, raw, out[:, 0], rounded=rounded)
        if column.missing == "refuse" and not present.all():
            what = "a value outside its declared categories or missing" if column.categories else "a missing value"
            raise DataError(MISSING_WORDS.format(column.name, what)).at(column=column.name)
        if column.missing == "indicator":
            out[:, -1] = np.where(present, 0, self.grid)
        return present

    def _code_number(
        self, column: Column, raw: NDArray[np.float64], out: NDArray[Any], *, rounded: bool
    ) -> NDArray[np.bool_] | np.bool_:
        low, high = column.range
        if self.norm is not None:
            if (low, high) == (-self.norm, self.norm):
                low, high = -math.inf, math.inf
            missing_here = np.isnan(raw)
            with np.errstate(over="ignore"):
                coded = np.where(missing_here, 0.0, (np.clip(raw, low, high) - column.centre) / self.norm)
            out[:] = np.clip(coded, -_FARTHEST, _FARTHEST)
            return ~missing_here
        from unpooled.kernels.moments import quantise, standardise

        if rounded:  # toward zero, so that no bound is exceeded
            missing = quantise(raw, low, high, column.centre, column.half_width, float(self.grid), out)
        else:
            missing = standardise(raw, low, high, column.centre, column.half_width, out)
        return ~np.isnan(raw) if missing else np.True_


def numbers_of(column: Column, raw: NDArray[Any]) -> NDArray[np.float64]:
    """Return the values of a column with a range; one whose values are all missing does not show of which kind they would be, and text is refused."""
    if raw.dtype != object:
        return raw
    if all(value is None for value in raw):
        return np.full(raw.size, np.nan)
    msg = (
        f"column {column.name!r} holds text where a range is declared: declare categories, or of dates the first and the last day, or convert it "
        "(missing values are empty cells, not NA or nan)"
    )
    raise DataError(msg).at(column=column.name)


def _held(raw: NDArray[Any], categories: tuple[str, ...]) -> Iterator[NDArray[np.bool_]]:
    """Yield for every category a mask of the values that are it.

    No number is turned into text, and where there are many categories every text is looked up once.
    """
    if raw.dtype != object:
        for number in _numbers(categories):
            yield np.asarray(raw == number, dtype=np.bool_)
    elif len(categories) <= _FEW:
        for category in categories:
            yield np.asarray(raw == category, dtype=np.bool_)
    else:
        places = {category: j for j, category in enumerate(categories)}
        place = np.fromiter(map(places.get, raw.tolist(), repeat(-1)), dtype=np.intp, count=raw.size)
        for j in range(len(categories)):
            yield place == j


def _numbers(categories: tuple[str, ...]) -> list[float]:
    """Return the number that each category is the text of, or nan: 1 for "1", nan for "1.0", "01" and words.

    Booleans are stored as 0 and 1: where categories are the words for them, "true" is 1 and "false" is 0.
    """
    words = truth_words(categories)
    if words is not None:
        return [float(words.index(category)) if category in words else math.nan for category in categories]
    return [_number(category) for category in categories]


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if text_of(number) == text else math.nan


@dataclass(frozen=True, slots=True)
class AsDeclared:
    """The look at data that goes before a plan: it gives no number, and refuses what does not fit its declaration."""

    columns: tuple[Column, ...]
    joined: bool = False

    def over(self, table: Table) -> NDArray[np.int64]:
        """Look at these rows."""
        check(table, self.columns)
        return np.empty(0, dtype=np.int64)


def check(table: Table, columns: Sequence[Column]) -> None:
    """Refuse data that do not fit their declarations, reading a bounded number of values at a time."""
    sparse = [c for c in columns if c.name in table.sparse_names and not c.unfit_for_sparse]
    matrix = table.sparse([column.name for column in sparse])
    if matrix is not None:
        Coding(tuple(sparse), 1).code_sparse(matrix)
        coded = {column.name for column in sparse}
        columns = [column for column in columns if column.name not in coded]
    width = max(1, _READ // min(table.n_rows, BLOCK_ROWS))
    for start in range(0, len(columns), width):
        some = columns[start : start + width]
        for block in table.blocks(tuple(column.name for column in some)):
            for column, raw in zip(some, block, strict=True):
                Coding((column,), 1).code((raw,))


def integer_grid(n_rows: int, degree: int, largest: int = 1 << 20) -> int:
    """Return the finest power-of-two grid on which a sum of n products of ``degree`` coded values stays below 2^61."""
    exponent = (61 - math.ceil(math.log2(max(n_rows, 2)))) // degree
    if exponent < 1:
        raise UsageError("so many rows that 64-bit integers do not hold their sums: the cards name too many rows")
    return min(largest, 1 << exponent)


__all__ = ["AsDeclared", "Bounds", "Coding", "Column", "Missing", "check", "integer_grid", "text_of"]
