"""Here is the fitted curve of one number over its declared range, as differences from its value at a reference inside that range.

The reference is the middle knot of a spline, the middle of the range without one, or where the caller says. A difference of two points of a curve is a contrast of coefficients, so it has the standard errors of the tables, and needs no constant. The
grid is public: it follows from the declaration alone. THEORY.md of ``models/bayes``, section 10, has the covariance.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.formula.derived import middle_of
from unpooled.inference.estimates import HALF, wald_lines
from unpooled.inference.results import Result, ends
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import finite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from unpooled.formula import Derived, DerivedColumn
    from unpooled.inference.tables import Tables
    from unpooled.privacy.bounds import Column

    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]

#: The number of points of a curve; one in ten of them is printed.
POINTS, _PRINTED = 101, 10
#: Second differences below this part of the range of values are rounding: the curve is a straight line.
_STRAIGHT = 1e-9
#: The arrays of a curve: its places first.
_NUMBERS = ("at", "estimate", "std_error", "privacy", "low", "high")
#: The scale of a family's linear predictor; that of a linear model is the response itself.
_SCALES = {
    "logistic": "log odds",
    "multinomial": "log odds",
    "poisson": "log mean",
    "negative-binomial": "log mean",
    "gamma": "log mean",
    "survival": "log hazard",
}


@dataclass(frozen=True, repr=False, eq=False)
class Profile(Result):
    """A profile is the curve of a variable, as differences from its value at ``reference``, with a pointwise band.

    Points that the release does not determine, or of which the noise may hide more than half a standard error, have nan in ``estimate``, ``std_error``, ``privacy``, ``low`` and ``high``.
    """

    variable: str
    #: Where the curve is given: equal steps over the declared range.
    at: Row
    estimate: Row
    std_error: Row
    #: The part of the standard error that privacy adds: the root of its share of the variance. Unknown (NaN) with earlier models.
    privacy: Row
    low: Row
    high: Row
    confidence: float
    #: The quantity whose differences these are, in words: the response, or the linear predictor.
    scale: str
    #: Epsilon and what else the release promises, in words.
    statement: str
    #: Where the curve is 0 by its definition.
    reference: float
    #: Of several classes, the class and the one that it is compared with.
    label: str = ""
    against: str = ""

    @property
    def determined(self) -> NDArray[np.bool_]:
        """Return whether the release determines each point."""
        return np.asarray(np.isfinite(self.estimate))

    @property
    def is_credible(self) -> bool:
        """Return True for the curve of a posterior, of which nobody knows what privacy adds."""
        return bool(self.determined.any()) and not np.isfinite(self.privacy).any()

    @property
    def without_privacy(self) -> Row:
        """Return the part of the way from the curve to the ends of its band that there would be without privacy."""
        return without_privacy(self.std_error, np.nan_to_num(self.privacy))

    @property
    def axes(self) -> tuple[str, str]:
        """Return the words at the two axes of a figure."""
        first = f"{self.label} against {self.against}: " if self.label else ""
        return self.variable, f"{first}{self.scale}\nless its value at {self.variable} = {self.reference:g}"

    @property
    def panel(self) -> Panel:
        """Return the curve as a figure of a report."""
        first = f"{self.label}: " if self.label else ""
        return Panel(
            f"{first}curve of {self.variable}, {self.confidence:.0%} pointwise band",
            tuple(f"{x:g}" for x in self.at.tolist()),
            tuple(self.estimate.tolist()),
            tuple(self.low.tolist()),
            tuple(self.high.tolist()),
            tuple(self.without_privacy.tolist()),
            ordered=True,
            places=tuple(self.at.tolist()),
            axes=self.axes,
        )

    def _panels(self) -> tuple[Panel, ...]:
        return (self.panel,)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; None stands where a point is not determined."""
        words = {
            name: getattr(self, name)
            for name in ("variable", "reference", "confidence", "scale", "statement", "label", "against")
        }
        sure = self.determined.tolist()
        numbers = {name: [finite(value) for value in values.tolist()] for name, values in self._arrays().items()}
        return words | {"determined": sure} | numbers

    def _numbers(self) -> list[dict[str, Any]]:
        return [dict(zip(_NUMBERS, line, strict=True)) for line in zip(*self._arrays().values(), strict=True)]

    def _arrays(self) -> dict[str, Row]:
        return {name: getattr(self, name) for name in _NUMBERS}

    def _lines(self) -> list[tuple[str, ...]]:
        errors = ("deviation",) if self.is_credible else ("std error", "privacy")
        lines: list[tuple[str, ...]] = [(self.variable, "difference", *errors, *ends(self.confidence))]
        for k in range(0, self.at.size, _PRINTED):
            if self.determined[k]:
                adds = () if self.is_credible else (self.privacy[k],)
                numbers = (self.estimate[k], self.std_error[k], *adds, self.low[k], self.high[k])
                lines.append((f"{self.at[k]:g}", *(f"{value:.5g}" for value in numbers)))
        return lines

    def _foot(self) -> list[str]:
        foot = [self.axes[1].replace("\n", " ")]
        lost = int((~self.determined).sum())
        if lost:
            foot.append(
                f"{lost} of {self.at.size} points are not determined, so not printed (no row varies along them, or noise hides them)"
            )
        return [*foot, *self.statement.splitlines()[:1]]


def without_privacy(errors: Row, privacy: Row) -> Row:
    """Return the part of each standard error that there would be without privacy; 1 where there is no error."""
    share = np.divide(privacy, errors, out=np.zeros_like(errors), where=errors > 0)
    return np.asarray(np.sqrt(np.maximum(1 - share**2, 0.0)))


def profile(
    tables: Tables,
    variable: str,
    confidence: float = 0.95,
    *,
    reference: float | None = None,
    label: object = None,
    against: object = None,
) -> Profile:
    """Return the curve of a number that the fit's formula names; of several classes, that of the class ``label`` against another one."""
    at, rows, start = _contrasts(tables, variable, reference)
    printed = tables.printed(None, None, against)
    own = _class(tables, printed.against, label)
    weights = np.array([printed.placed(row, own) for row in rows])
    values, covariance, sampling = tables.estimates.mapped(weights)
    lines = wald_lines([f"{x:g}" for x in at.tolist()], values, covariance.diagonal(), sampling.diagonal(), confidence)
    found = np.array([(t.estimate, t.std_error, t.privacy, t.conf_low, t.conf_high) for t in lines]).T
    nothing = ~(weights != 0).any(axis=1)
    sure = tables.estimates.determined(weights) & np.isfinite(found).all(axis=0)
    sure &= tables.estimates.hidden(weights) <= HALF
    # At the reference the difference is 0 by its definition; a curve of that point alone would say nothing.
    found[:, ~(sure | (nothing & sure.any()))] = np.nan
    if tables.drawn is not None:
        found[2] = np.nan
    estimate, errors, privacy, low, high = found
    scale = f"linear predictor ({_SCALES[tables.family]})" if tables.family in _SCALES else _response(tables.response)
    words = (confidence, scale, tables.statement, start, own, printed.against)
    return Profile(variable, at, estimate, errors, privacy, low, high, *words)


def panels(tables: Tables, confidence: float) -> Iterator[Panel]:
    """Yield a figure for every variable whose curve is no straight line, where the release determines some of it."""
    for variable in curved(tables):
        for label in tables.classes[1:] or (None,):
            found = profile(tables, variable, confidence, label=label, against=tables.classes[0] if label else None)
            if found.determined.any():
                yield found.panel


def curved(tables: Tables) -> tuple[str, ...]:
    """Return the variables that have a curve of their own which is no straight line."""
    if tables.made is None:
        return ()
    numbers = [column.name for column in tables.made.derived.needs if column.categories is None]
    return tuple(name for name in numbers if not _problem(tables, name) and _bends(_contrasts(tables, name)[1]))


def _bends(rows: Matrix) -> bool:
    size = np.ptp(rows, axis=0)
    return bool((np.abs(np.diff(rows, 2, axis=0)).max(axis=0) > _STRAIGHT * size).any())


def _response(name: str) -> str:
    return "response" if name.startswith("(") else name


def _class(tables: Tables, against: str, label: object) -> str:
    """Return the class whose curve was asked for; empty where there is one linear predictor."""
    if not tables.classes:
        if label is not None:
            raise UsageError("`label` names a class, and this model has one linear predictor: leave it out")
        return ""
    others = [name for name in tables.classes if name != against]
    if label is None and len(others) == 1:
        return others[0]
    if str(label) not in others:
        msg = f"every class has a curve of its own against {against!r}: name one of them, label={others[0]!r} (known here: {listed(others)})"
        raise UsageError(msg)
    return str(label)


def _contrasts(tables: Tables, variable: str, reference: float | None = None) -> tuple[Row, Matrix, float]:
    """Return the grid, for each of its points the weights over the coefficients of one linear predictor, and the place that they are compared with."""
    problem = _problem(tables, variable)
    if problem:
        raise UsageError(problem)
    assert tables.made is not None
    derived, names = tables.made.derived, tables.coded.names
    low, high = next(column.range for column in derived.needs if column.name == variable)
    start = _middle(derived, variable, low, high) if reference is None else _inside(reference, variable, low, high)
    at = np.linspace(low, high, POINTS)
    places = np.append(at, start)
    values = derived.matrix({column.name: places if column.name == variable else _any(column) for column in derived.needs})
    weights = np.zeros((POINTS, len(names)))
    for column in _own(tables, variable):
        own = values[:, derived.names.index(column.name)]
        weights[:, names.index(column.name)] = own[:-1] - own[-1]
    return at, weights, start


def _middle(derived: Derived, variable: str, low: float, high: float) -> float:
    """Return the place that a curve is compared with where nobody says one: where people put knots, or the middle of the range."""
    knots = next((spline.knots for spline in derived.bases if spline.name == variable and spline.knots), ())
    return float(middle_of(low, high, knots))


def _inside(reference: object, variable: str, low: float, high: float) -> float:
    """Return the place that somebody asked for; refused where it is no number inside the declared range."""
    if isinstance(reference, bool) or not isinstance(reference, Real) or not low <= float(reference) <= high:
        msg = f"reference is the value of {variable!r} that the curve is compared with, a number from {low:g} to {high:g}"
        raise UsageError(msg)
    return float(reference)


def _any(column: Column) -> NDArray[Any]:
    """Return values of a column on which the curve of another one does not depend."""
    size = POINTS + 1
    return np.full(size, column.centre) if column.categories is None else np.array([column.categories[0]] * size, object)


def _own(tables: Tables, variable: str) -> tuple[DerivedColumn, ...]:
    """Return the derived columns with a coefficient that a value of this variable moves; its being missing is no value."""
    assert tables.made is not None
    derived: Derived = tables.made.derived
    fitted = set(tables.coded.names)
    return tuple(c for c in derived.columns if variable in c.sources and c.name in fitted and not c.recipe.marks)


def _problem(tables: Tables, variable: str) -> str:
    """Return why this variable has no curve of its own, and what to do instead; empty where it has one."""
    if tables.made is None:
        return "a profile is the curve that a formula makes of a variable, and this fit has no formula: each line of summary() is a slope"
    derived = tables.made.derived
    numbers = [column.name for column in derived.needs if column.categories is None]
    if variable not in numbers:
        return f"a profile is of a number that the formula names, {_known(numbers)}, not {variable!r}"
    columns = _own(tables, variable)
    if not columns:
        return f"{variable!r} has no coefficient in this fit, so it has no curve"
    if derived.offset_column is not None and variable in derived.offset_column.sources:
        return f"{variable!r} is in the offset, too, which has no coefficient: its curve would be a part of what it does"
    return next(filter(None, (_shared(column, variable) for column in columns)), "")


def _shared(column: DerivedColumn, variable: str) -> str:
    """Return why this derived column is no part of a curve; empty where it is one."""
    others = sorted(column.sources - {variable})
    if others:
        return (
            f"the curve of {variable!r} depends on {listed(others)}, with which the formula multiplies it ({column.term}): compare single "
            "values of both by contrast()"
        )
    if column.cells:
        return f"{variable!r} has levels in this formula ({column.term}), not a curve: compare them by contrast()"
    return ""


def _known(numbers: Sequence[str]) -> str:
    return f"one of {listed(list(numbers))}" if numbers else "of which this one has none"
