"""Where a public input of a study comes from: people declared it, an earlier plan released it, or it was read off the data.

Values that a plan releases carry their origins (:attr:`Sourced.origins`, :attr:`~unpooled.Bounds.origins`) to whatever takes them next, and
:func:`origins_of` is the one door by which a study takes them. A statement holds only if the origin of every public input holds. What has
no other origin was declared by people, and the statement names it under "Assumed".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.privacy.events import UNBOUNDED, Event, Kind
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What may have an origin, and how statements call it.
BOUNDS_INPUT, SOURCE, COEFFICIENTS, PRIOR, RATES = "bounds", "source", "coefficients", "prior", "rates"
#: Which rows of parties are one person's: those of an open link, or of a hidden one.
ROW_MAP, PLACES = "row map", "places"
INPUT_WORDS = {
    BOUNDS_INPUT: "the bounds",
    "classes": "the classes",
    SOURCE: "the source's weights",
    COEFFICIENTS: "the model's coefficients",
    "basis": "the basis",
    "reference": "the reference",
    PRIOR: "the prior",
    RATES: "the rates of the classes",
    ROW_MAP: "the row map",
    PLACES: "the places of the link",
}
#: The parameters of a study that are public inputs; other inputs are on cards.
PARAMETERS = {
    "classes": "classes",
    "source": SOURCE,
    "coefficients": COEFFICIENTS,
    "matrix": "basis",
    "reference": "reference",
    "prior": PRIOR,
    "rates": RATES,
    "prior_precision": PRIOR,
}
#: Whose rows an input was computed from: the study's own, or those of other people.
SAME, OTHERS = "same", "others"


class PastEvent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The cost of an earlier plan to one unit, in one of its alternatives (:func:`unpooled.privacy.exposure.alternatives`)."""

    unit: str
    part: str
    kind: str
    value: float
    count: int
    total_variation: float = 0.0
    tails: tuple[tuple[int, float], ...] = ()

    @property
    def event(self) -> Event:
        """Return the event; a kind that this version does not know is refused."""
        if self.kind not in Kind.__members__:
            msg = f"the origin of an input names an event {self.kind!r}: its cost cannot be accounted"
            raise UsageError(msg)
        return Event(Kind[self.kind], self.value, self.count, self.total_variation, self.tails)


class DeclaredInput(msgspec.Struct, frozen=True):
    """The origin of an input that people declared."""

    by: str
    voids = False


class DerivedInput(msgspec.Struct, frozen=True):
    """The origin of an input that was read off the data of the study itself."""

    voids = True


class ReleasedInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The origin of an input that an earlier plan released."""

    #: A key of :data:`INPUT_WORDS`.
    input: str
    #: The hash of the plan that released it, which also stands for the cards of its rows.
    plan: str
    #: Whether that plan's statement holds.
    holds: bool
    #: What the plan cost one unit of its rows.
    events: tuple[PastEvent, ...] = ()
    #: "others": somebody declares that its rows are other people's, whose loss is no part of this study's.
    rows: str = SAME
    #: The name of the draw, which no two draws share, also of one plan. Empty: not known, and then it is counted as a draw of its own.
    release: str = ""

    def __post_init__(self) -> None:
        if self.input not in INPUT_WORDS or self.rows not in {SAME, OTHERS}:
            msg = f"an origin is of {listed(list(INPUT_WORDS))}, and of the {SAME!r} rows or of {OTHERS!r}"
            raise UsageError(msg)
        if self.release and not re.fullmatch("[0-9a-f]{64}", self.release):
            raise UsageError("the release of an origin is named by 64 hexadecimal digits, as the run wrote them")
        for past in self.events:
            Unit.parse(past.unit)
            past.event  # noqa: B018 - refuses an unknown kind or a number that is none

    @property
    def voids(self) -> bool:
        """Return True if nothing that rests on this input is private: it came from these rows under no guarantee."""
        return not self.holds and self.rows == SAME

    def parts(self, unit: Unit) -> dict[str, tuple[Event, ...]]:
        """Return the events of every alternative of the earlier plan, the empty one for everybody; none where its rows are other people's."""
        if self.rows == OTHERS:
            return {}
        if self.voids:
            return {"": (UNBOUNDED,)}
        found: dict[str, tuple[Event, ...]] = {}
        for past in self.events:
            if past.unit == unit:
                found[past.part] = (*found.get(past.part, ()), past.event)
        # Nobody bounded how many rows of a household counted, where the plan was asked for its cost to other units alone.
        return found or ({"": (UNBOUNDED,)} if unit is Unit.HOUSEHOLD and self.events else {})

    def of_others(self) -> Self:
        """Return the same input, declared to come from other people's rows."""
        return msgspec.structs.replace(self, rows=OTHERS)


Origin = DeclaredInput | DerivedInput | ReleasedInput


class Sourced:
    """Base of values that carry the releases they come from. A plain value, ``list(value)`` say, is one that the caller declares."""

    origins: tuple[ReleasedInput, ...] = ()

    def of_others(self) -> Any:  # noqa: ANN401 - a value of the same kind
        """Return the same value, declared to come from other people's rows."""
        return sourced(self, tuple(origin.of_others() for origin in self.origins))


class SourcedFloat(Sourced, float):
    """A number that carries its origins, also into what is computed from it."""


def _computing(name: str) -> Any:  # noqa: ANN401 - a method
    """Return an operation of numbers whose result carries the origins of both."""
    plain = getattr(float, name)

    def computed(self: SourcedFloat, *others: Any) -> Any:  # noqa: ANN401 - as of numbers
        found = plain(self, *others)
        return found if found is NotImplemented else sourced(found, origins_of(self, *others))

    computed.__name__ = name
    return computed


for _operation in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    for _side in ("", "r"):
        setattr(SourcedFloat, f"__{_side}{_operation}__", _computing(f"__{_side}{_operation}__"))
for _operation in ("neg", "pos", "abs"):
    setattr(SourcedFloat, f"__{_operation}__", _computing(f"__{_operation}__"))


class SourcedList(Sourced, list[Any]):
    """A list that carries its origins."""


class SourcedTuple(Sourced, tuple[Any, ...]):  # noqa: SLOT001 - it has an attribute
    """A tuple that carries its origins."""


class SourcedDict(Sourced, dict[str, Any]):
    """A mapping that carries its origins, as each of its values does."""


class SourcedArray(Sourced, np.ndarray[Any, Any]):
    """An array that carries its origins, also into what is computed from it."""

    def __array_finalize__(self, other: NDArray[Any] | None) -> None:
        self.origins = getattr(other, "origins", ())

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **asked: Any) -> Any:  # noqa: ANN401 - NumPy's protocol
        """Compute as arrays do; the result carries the origins of all inputs."""
        given = {} if out is None else {"out": tuple(_plain(one) for one in out)}
        found = getattr(ufunc, method)(*(_plain(one) for one in inputs), **given, **asked)
        if out is not None:
            for one in out:
                if isinstance(one, SourcedArray):
                    one.origins = origins_of(one, *inputs)
            return out[0] if len(out) == 1 else out
        return _with(found, origins_of(*inputs))

    def __array_function__(self, function: Any, types: Any, args: Any, asked: Any) -> Any:  # noqa: ANN401 - NumPy's protocol
        """Compute as arrays do: means, products, stacks; the result carries the origins of all arguments."""
        del types
        found = function(*_all_plain(args), **{name: _all_plain(one) for name, one in asked.items()})
        return _with(found, origins_of(args, asked))

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401 - a number or an array
        """Return a part, which carries the same origins."""
        return _with(np.asarray(self)[key], self.origins)

    def __iter__(self) -> Any:  # noqa: ANN401 - of numbers or arrays
        """Iterate over parts, each with the same origins."""
        return iter([self[k] for k in range(len(self))])

    def tolist(self) -> Any:  # noqa: ANN401 - lists as deep as the array
        """Return lists of numbers that carry the same origins."""
        return [one.tolist() if isinstance(one, np.ndarray) else one for one in self]

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return sourced, (np.asarray(self), self.origins)


def _reducing(name: str) -> Any:  # noqa: ANN401 - a method
    """Return a method of arrays that hands out numbers, whose result carries the origins of its operands."""

    def reduced(self: SourcedArray, *args: Any, **asked: Any) -> Any:  # noqa: ANN401 - as of arrays
        found = getattr(np.asarray(self), name)(*_all_plain(args), **{key: _all_plain(one) for key, one in asked.items()})
        return _with(found, origins_of(self, args, asked))

    reduced.__name__ = name
    return reduced


for _method in ("mean", "std", "var", "sum", "prod", "min", "max", "dot", "item", "trace", "round", "ptp", "take", "clip"):
    if hasattr(np.ndarray, _method):
        setattr(SourcedArray, _method, _reducing(_method))


def _plain(value: Any) -> Any:  # noqa: ANN401 - an operand
    """Return an operand without its origins."""
    return (
        np.asarray(value) if isinstance(value, SourcedArray) else float(value) if isinstance(value, SourcedFloat) else value
    )


def _all_plain(value: Any) -> Any:  # noqa: ANN401 - an argument of a function
    """Return an argument without origins, in lists and tuples too."""
    if isinstance(value, list | tuple):
        return type(value)(map(_all_plain, value)) if type(value) in {list, tuple} else [_all_plain(one) for one in value]
    return _plain(value)


def _with(found: Any, origins: tuple[ReleasedInput, ...]) -> Any:  # noqa: ANN401 - what was computed
    """Return numbers and arrays with these origins, and whatever else was computed as it is."""
    if not origins or found is None or found is NotImplemented:
        return found
    if isinstance(found, tuple):
        return tuple(_with(one, origins) for one in found)
    return sourced(found, origins) if isinstance(found, np.ndarray | np.floating | float) else found


def sourced(value: Any, origins: tuple[ReleasedInput, ...]) -> Any:  # noqa: ANN401 - a value of the same kind
    """Return the value with these origins: a number, a list, a tuple, an array, or a mapping of such values."""
    found: Any
    if isinstance(value, np.ndarray):
        found = np.array(value, subok=False).view(SourcedArray)
    elif isinstance(value, Mapping):
        found = SourcedDict({name: sourced(one, origins) for name, one in value.items()})
    elif isinstance(value, list | tuple):
        found = SourcedList(value) if isinstance(value, list) else SourcedTuple(value)
    else:
        found = SourcedFloat(value)
    found.origins = origins
    return found


def unsourced(value: Any) -> Any:  # noqa: ANN401 - a value of the same kind
    """Return a value without its origins: for files and reports, which hold them elsewhere."""
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if isinstance(value, Mapping):
        return {name: unsourced(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [unsourced(one) for one in value] if isinstance(value, list) else tuple(unsourced(one) for one in value)
    return float(value) if isinstance(value, SourcedFloat) else value


def origins_of(*inputs: object) -> tuple[ReleasedInput, ...]:
    """Return the releases that these public inputs carry, each once, by the names of their draws; a release without a name each time it is carried."""
    carried = list(_carried(inputs))
    named = dict.fromkeys(one for one in carried if one.release or one.rows == OTHERS)
    return (*named, *(one for one in carried if not one.release and one.rows == SAME))


def as_inputs(origins: Iterable[ReleasedInput], what: str) -> tuple[ReleasedInput, ...]:
    """Return origins as those of another public input: coefficients that were released serve as "prior", say. Other inputs stay what they are."""
    return tuple(msgspec.structs.replace(one, input=what) if one.input == COEFFICIENTS else one for one in origins)


def by_draw(origins: Iterable[ReleasedInput]) -> dict[str, ReleasedInput]:
    """Return these origins by the draw that each comes from: what has no name is a draw of its own, and so is what states another cost."""
    known: dict[str, list[ReleasedInput]] = {}
    found: dict[str, ReleasedInput] = {}
    for number, origin in enumerate(origins):
        name = origin.release or f"unnamed {number}"
        same = known.setdefault(name, [])
        if all((one.events, one.rows) != (origin.events, origin.rows) for one in same):
            found[f"{name} {len(same)}" if same else name] = origin
            same.append(origin)
    return found


def _carried(inputs: Iterable[object]) -> Iterable[ReleasedInput]:
    for value in inputs:
        yield from getattr(value, "origins", ())
        if isinstance(value, Mapping | list | tuple):
            yield from _carried(value.values() if isinstance(value, Mapping) else value)
