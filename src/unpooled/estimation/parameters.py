"""Parameters of estimators: the kinds of value that they take, rows that belong together, and which form of a model is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.plan import BOUNDS, Card, Household
from unpooled.privacy.table import BoundedTable, counted, texts_of
from unpooled.privacy.unit import Calibration, Unit
from unpooled.protocol.registry import form_of

if TYPE_CHECKING:
    from unpooled.privacy.bounds import Column, Missing
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.registry import Model


# --- Parameters ------------------------------------------------------------------------------------------------------------
# Parameters of estimators: the kinds of value that they take, in words, and the values that they have for a study that has ended.
#
# Parameters are validated, never cast: one refusal names the parameter.


@dataclass(frozen=True)
class ParameterKind:
    """A kind of value: what a message calls it, and whether a value is of it."""

    words: str
    holds: Callable[[Any], bool]


#: What a parameter takes: any of these kinds.
Constraints: TypeAlias = dict[str, tuple[ParameterKind, ...]]


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _are_numbers(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and np.ndim(np.asarray(value)) == 1 and all(map(_is_number, value))


NONE = ParameterKind("None", lambda value: value is None)
NUMBER = ParameterKind("a number", _is_number)
WHOLE = ParameterKind("a whole number", lambda value: isinstance(value, Integral) and not isinstance(value, bool))
SHARE = ParameterKind(
    "a float from 0 to 1", lambda value: _is_number(value) and not isinstance(value, Integral) and 0 <= value <= 1
)
FLAG = ParameterKind("True or False", lambda value: isinstance(value, bool | np.bool_))
WORD = ParameterKind("a word", lambda value: isinstance(value, str))
PAIR = ParameterKind("a pair of numbers (low, high)", lambda value: _are_numbers(value) and len(value) == 2)  # noqa: PLR2004
NUMBERS = ParameterKind("a list of numbers", _are_numbers)
LIST = ParameterKind("a list", lambda value: isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes))
PAIRS = ParameterKind(
    "a list of pairs (low, high)", lambda value: LIST.holds(value) and len(value) > 0 and all(map(PAIR.holds, value))
)
MAPPING = ParameterKind("a mapping", lambda value: isinstance(value, Mapping))
ARRAY = ParameterKind(
    "an array of numbers", lambda value: not isinstance(value, str) and np.asarray(value).dtype.kind in "iuf"
)
REAL = ParameterKind("None (real noise)", NONE.holds)
SEED = ParameterKind(
    "an integer (a simulation)", lambda value: WHOLE.holds(value) or isinstance(value, np.random.RandomState)
)
BOUNDED = ParameterKind(
    "Bounds, a pair (low, high) or a mapping from column names",
    lambda value: isinstance(value, Bounds | Mapping) or (LIST.holds(value) and len(value) == 2),  # noqa: PLR2004
)


def check(constraints: Constraints, values: Mapping[str, Any]) -> None:
    """Refuse the first value that is of none of the kinds that its parameter takes.

    >>> check({"rounds": (WHOLE,)}, {"rounds": 2.9})
    Traceback (most recent call last):
    unpooled.errors.UsageError: rounds must be a whole number, not float
    """
    for name, value in values.items():
        kinds = constraints.get(name, ())
        if kinds and not any(kind.holds(value) for kind in kinds):
            *first, last = (kind.words for kind in kinds)
            msg = f"{name} must be {', '.join(first) + ' or ' if first else ''}{last}, not {type(value).__name__}"
            raise UsageError(msg)


def plain(value: Any) -> Any:  # noqa: ANN401 - a NumPy number, a number or a word
    """Return a NumPy number as Python's own, which a study can hold; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


# --- the parameters of a study that has ended ----------------------------------------------------------------------------------

#: What every study says under names that estimators have too.
_OF_STUDY = ("epsilon", "delta", "unit", "adjacency", "calibration", "public_seed")
#: The parameters on which the promise of a fit rests, with the roles that a study trusts.
PROTECTING = (*_OF_STUDY, "random_state", "rows_per_household")
#: What a study says in its parameters, and an estimator is given with the data, or asked of its table. None of it protects anybody.
_GIVEN_LATER = frozenset(
    [
        "response",
        "event",
        "weights",
        "exposure",
        "offset",
        "response_bound",
        "confidence",
        "reference",
        "coding",
        "split",
        "norm",
        "prior",
        "classes",
    ]
)


def asked_by(
    plan: Plan, names: Iterable[str], columns: Sequence[Column], renamed: Mapping[str, str], said: Iterable[str] = ()
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the value of every parameter of an estimator that a study has, and what the study says that none of the parameters holds.

    A fit of the estimator asks what the study asked: it must neither protect less nor trust more. ``columns`` are those of new rows,
    ``renamed`` the study's names of parameters, and ``said`` those that the model itself turns into parameters, or into its class.
    """
    study, names, own = plan.study, frozenset(names), getattr(plan.design, "parameters", None)
    defaults: dict[str, Any] = {}
    written: dict[str, Any] = dict(study.parameters)
    if isinstance(own, msgspec.Struct):
        fields = msgspec.structs.fields(own)
        defaults = {
            field.name: field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
            for field in fields
        }
        written = {field.name: getattr(own, field.name) for field in fields}
    for ours, theirs in renamed.items():
        if theirs in written:
            written[ours] = written.pop(theirs)
            defaults[ours] = defaults.pop(theirs, msgspec.NODEFAULT)
    of_study = {name: getattr(study, name) for name in _OF_STUDY}
    of_study |= {"random_state": study.simulation_seed, "rows_per_household": study.household_rows, **study.trust}
    values = {name: value for name, value in of_study.items() if name in names}
    # A study writes nothing as empty text.
    values |= {
        name: None if value == "" else value for name, value in written.items() if name in names and name not in _GIVEN_LATER
    }
    values |= _of_columns(study, columns, written, names)
    usual = {"unit": "record", "adjacency": "replace", "calibration": "sound", "rows_per_household": 1}
    lost = [name for name, value in of_study.items() if name not in names and usual.get(name) != value]
    later = _GIVEN_LATER | frozenset(said)
    lost += [
        name
        for name, value in written.items()
        if name not in names and name not in later and value != defaults.get(name, msgspec.NODEFAULT)
    ]
    return values, tuple(lost)


def _of_columns(
    study: Study, columns: Sequence[Column], written: Mapping[str, Any], names: frozenset[str]
) -> dict[str, Any]:
    """Return the declarations of columns and response, and who holds what where columns are split."""
    found: dict[str, Any] = {}
    if BOUNDS not in study.derived:  # what was read off the data is read off the data again, and promises nothing again
        found["bounds"] = _bounds(columns, written.get("norm"))
    response = written.get("response", "")
    several = (response,) if isinstance(response, str) else tuple(response)
    declared = {column.name: column for card in study.parties for column in card.columns if column.name in several}
    ranges = [column.range for column in declared.values() if column.categories is None]
    if not declared and "response_bound" in written:
        ranges = [(-written["response_bound"], written["response_bound"])]
    if ranges and BOUNDS not in study.derived:
        found["y_bounds"] = ranges[0] if len(ranges) == 1 else ranges
    classes = [column.categories for column in declared.values() if column.categories is not None]
    if classes or "classes" in written:
        found["classes"] = list(classes[0] if classes else written["classes"])
    if study.parties[0].columns != study.parties[-1].columns:
        known = {column.name for column in columns}
        found["parties"] = {
            card.name: [column.name for column in card.columns if column.name in known] for card in study.parties
        }
        if study.helpers or any(card.joint for card in study.parties):
            found["helpers"] = len(study.helpers)
            found["response_at"] = next(
                (c.name for c in study.parties if declared.keys() & {x.name for x in c.columns}), None
            )
    return {name: value for name, value in found.items() if name in names}


def _bounds(columns: Sequence[Column], norm: float | None) -> Bounds:
    """Return the bounds that declare these columns by name."""
    missing: dict[str | int, Missing] = {c.name: c.missing for c in columns if c.missing != "refuse"}
    said: dict[str | int, Any] = {c.name: (c.low, c.high) if c.categories is None else list(c.categories) for c in columns}
    typical: dict[str | int, tuple[float, ...]] = {c.name: c.typical for c in columns if c.typical is not None}
    below: dict[str | int, float] = {c.name: c.below for c in columns if c.below is not None}
    return Bounds(said, norm=norm, missing=missing or "refuse", below=below or None, typical=typical or None)


# --- Households ------------------------------------------------------------------------------------------------------------
# Rows that belong together, in one process: at most a declared number of an id over all sites, and cards that say so.

#: What cards of parties in one process call the column of ids; no feature can be called so.
_COLUMN = "(household)"


def site_tables(table: Table, sites: Any, unit: str, unit_id: Any, most: int) -> dict[str, Table]:  # noqa: ANN401 - array-likes
    """Return the rows of every site; where households are protected, at most ``most`` of an id over all of them."""
    _check(unit, most)
    if (unit == Unit.HOUSEHOLD) != (unit_id is not None):
        raise UsageError('unit="household" and unit_id (an id for every row) go together: give both or neither')
    if unit_id is None:
        return table.by_site(sites)
    ids = texts_of(unit_id)
    if ids.size != table.n_rows:
        msg = f"unit_id has {ids.size} ids for {table.n_rows} rows: give one id per row"
        raise UsageError(msg)
    if sites is not None and np.shape(sites) != (table.n_rows,):
        return table.by_site(sites)  # which says what is wrong with it
    if sites is None:  # its own rows alone: of those with gaps the first whole ones may count
        return {name: BoundedTable(own, ids, int(most)) for name, own in table.by_site(None).items()}
    rows = np.flatnonzero(counted(ids, most))
    labels = np.asarray(sites, dtype=object)[rows]
    held = table.take(rows).by_site(labels)
    owners = {name: ids[rows][[str(label) == name for label in labels]] for name in held}
    return {name: BoundedTable(own, owners[name], int(most)) for name, own in held.items()}


def _check(unit: str, most: int) -> None:
    if most < 1 or (most != 1 and unit != Unit.HOUSEHOLD):
        raise UsageError('rows_per_household must be at least 1, and goes with unit="household"')


def counts_of(tables: Mapping[str, Table]) -> dict[str, int | Household]:
    """Return the number of rows of every party; of a party with households, the number of them, and of rows that count of each."""
    # Rows of an id were bounded over all sites together: any site may hold all of them, or some.
    return {
        name: table.n_rows if table.household is None else Household(_COLUMN, *table.household, together=True)
        for name, table in tables.items()
    }


def planned_counts(rows: Mapping[str, int], unit: str, most: int) -> dict[str, int | Household]:
    """Return the same for data of this shape: numbers of rows, or of households."""
    _check(unit, most)
    if unit != Unit.HOUSEHOLD:
        return dict(rows)
    return {name: Household(_COLUMN, count, int(most), together=True) for name, count in rows.items()}


def row_cards(counts: Mapping[str, int | Household], columns: tuple[Column, ...]) -> tuple[Card, ...]:
    """Return the cards of parties that hold rows of the same columns."""
    return tuple(
        Card(name, count, columns)
        if isinstance(count, int)
        else Card(name, count.ids * count.rows, columns, household=count)
        for name, count in counts.items()
    )


# --- Forms -----------------------------------------------------------------------------------------------------------------
# Which form of a model an estimator asks for: the sound one, or the one that a paper prints, with the paper's own settings.

#: The kinds of values that are compared with a default; an array or a frame never is one.
_PLAIN = (str, int, float, tuple, list, dict)


class HasForms:
    """An estimator whose ``calibration`` chooses the form.

    In the published form a parameter that stands at its default is the paper's own (:attr:`~unpooled.protocol.registry.Model.defaults`), and one
    that the paper does not have is refused.
    """

    _model: ClassVar[Model]
    calibration: str
    #: The arguments that it declares, by name (:class:`unpooled.estimation.calls.Argument`).
    arguments: ClassVar[Mapping[str, Any]]

    @property
    def _row(self) -> Model:
        """Return the row that the calibration asks for."""
        return self._form(self.calibration)

    @classmethod
    def _form(cls, calibration: str) -> Model:
        return cls._model if calibration == Calibration.SOUND else form_of(cls._model.name, Calibration.parse(calibration))

    @property
    def _given(self) -> dict[str, Any]:
        """Return the parameters that are declared of the estimator with their values, also where a class made from it has a constructor of its own."""
        return {name: getattr(self, name) for name in self.arguments}

    @classmethod
    def _stands(cls, name: str, given: object) -> bool:
        """Return True if a value is the default of this parameter."""
        default = cls.arguments[name].default
        if given is default:
            return True
        return isinstance(given, _PLAIN) and isinstance(given, bool) == isinstance(default, bool) and given == default

    @property
    def _of_form(self) -> dict[str, Any]:
        """Return the form's own values for parameters that stand at their defaults."""
        own = self._given
        return {
            name: value for name, value in self._row.form.defaults.items() if name in own and self._stands(name, own[name])
        }

    def _taken(self, name: str) -> Any:  # noqa: ANN401 - the parameter's own type
        """Return the value of a parameter as this form takes it."""
        return self._of_form.get(name, getattr(self, name))

    def _check_form(self) -> None:
        """Refuse parameters that the form does not have."""
        row, own = self._row, self._given
        for name in sorted(row.form.lacks & set(own)):
            allowed = name in row.form.defaults and isinstance(own[name], _PLAIN) and own[name] == row.form.defaults[name]
            if not allowed and not self._stands(name, own[name]):
                raise UsageError(not_in_the_paper(name, row))


def not_in_the_paper(name: str, row: Model) -> str:
    """Return the words that refuse a parameter of other forms."""
    has = f", which has {name} = {row.form.defaults[name]!r}" if name in row.form.defaults else ""
    return f"{name} is not in the paper{has}: leave it at its default, or use calibration = 'sound'"
