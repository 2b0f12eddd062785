"""What a call in Python takes: parameters that many calls share, and signature, docstring and kinds of value of each call, from declared parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from unpooled.errors import not_taken
from unpooled.estimation.parameters import (
    BOUNDED,
    FLAG,
    LIST,
    MAPPING,
    NONE,
    NUMBER,
    NUMBERS,
    PAIR,
    REAL,
    SEED,
    WHOLE,
    WORD,
    ParameterKind,
    plain,
)
from unpooled.privacy.bounds import text_of
from unpooled.privacy.budget import Budget
from unpooled.privacy.declared import parameters_of, says
from unpooled.privacy.unit import Adjacency, Calibration, Unit

if TYPE_CHECKING:
    from unpooled.privacy.declared import Parameter

Estimator = TypeVar("Estimator")

# --- Shared ----------------------------------------------------------------------------------------------------------------
# What calls in Python take beside the parameters of a study: each declared here, once for all estimators and functions.


_BUDGET = ParameterKind("a Budget", lambda value: isinstance(value, Budget))
_PARTIES = ParameterKind("a mapping from names to columns", MAPPING.holds)


class OfEveryCall:
    """What every fit and every function that releases takes."""

    epsilon: Annotated[
        float, says("The privacy asked for: smaller protects more. ``inf`` adds no noise and promises nothing.")
    ] = 1.0
    delta: Annotated[float | None, says("The probability with which the promise may fail. None is min(1e-5, 0.1 / n).")] = (
        None
    )
    bounds: Annotated[
        Any,
        says(
            "Declared ranges or categories of the columns that are read. None reads them off the data, warns, and promises nothing.",
            kinds=(BOUNDED, NONE),
            call="Bounds, (low, high), or mapping from column names to ranges or categories, optional",
            written="Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None",
        ),
    ] = None
    adjacency: Annotated[
        str,
        says(
            "How two neighbouring data sets differ: one becomes any other admissible one, or contributes nothing.",
            choices=Adjacency,
        ),
    ] = Adjacency.REPLACE.value
    random_state: Annotated[
        int | None,
        says(
            "A seed makes the noise reproducible, and the result a simulation that protects nobody. None draws real noise.",
            kinds=(REAL, SEED),
        ),
    ] = None
    budget: Annotated[
        Any,
        says(
            "A total that several calls and fits on the same people share.",
            kinds=(_BUDGET, NONE),
            call="Budget, optional",
            written="Budget | None",
        ),
    ] = None


class OfEveryFit(OfEveryCall):
    """What every estimator takes."""

    calibration: Annotated[
        str,
        says(
            "The noise whose guarantee is proved, or the paper's, which promises nothing.",
            choices=Calibration,
        ),
    ] = Calibration.SOUND.value
    public_seed: Annotated[int, says("Seed of the public randomness.")] = 0


class OverSites:
    """What is asked where rows lie at several sites."""

    unit: Annotated[
        str,
        says(
            "Whom the promise is for: a whole row, one value of one person, or all rows of one id (``unit_id``).",
            choices=(Unit.RECORD, Unit.ATTRIBUTE, Unit.HOUSEHOLD),
        ),
    ] = Unit.RECORD.value
    rows_per_household: Annotated[
        int, says('With ``unit="household"``, the most rows of one id that count, over all sites: the noise grows with it.')
    ] = 1


class Summing:
    """Who adds the noise of a total over sites."""

    aggregation: Annotated[
        str,
        says(
            "Who adds the noise: all sites in parts, one of them that the others trust, or each all of it. One site alone adds all of it in any case.",
            choices=("distributed", "trusted", "local"),
        ),
    ] = "distributed"


class OfNumbers:
    """How a response that is a number is declared."""

    y_bounds: Annotated[
        tuple[float, float] | None,
        says(
            "Declared range of the response, unless ``bounds`` have it. None then reads it off the data, warns, and promises nothing."
        ),
    ] = None


class OfClasses:
    """How a response of classes is declared."""

    classes: Annotated[
        Sequence[object] | None,
        says(
            "Declared labels of the response, unless ``bounds`` have them; 0 and 1 need none. None then reads them off ``y``, warns, and promises nothing."
        ),
    ] = None


class Weighted:
    """How weights of rows are declared."""

    weights_bounds: Annotated[
        tuple[float, float] | None,
        says(
            "Declared range, from 0 on, of ``weights`` in ``fit``, by which everything that a row adds to a sum is multiplied."
        ),
    ] = None


class PerhapsOverColumns:
    """What is asked where either rows or columns may lie at several parties."""

    parties: Annotated[
        Any,
        says(
            "Columns are split: the parties and what each of them holds (a number: even parts). Sums over their joint rows are released, and nobody sees "
            "another's rows. None: rows are split, by ``sites``.",
            kinds=(WHOLE, MAPPING, NONE),
            call="int or mapping from names to columns, optional",
            written="int | Mapping[str, Sequence[int | str]] | None",
        ),
    ] = None


#: Where columns are split, rows are aligned and visible: none of them can vanish.
ALIGNED: Mapping[str, Iterable[str]] = MappingProxyType({"adjacency": (Adjacency.ZERO_OUT,)})


class OverColumns:
    """What is asked where columns of the same people lie at several parties."""

    parties: Annotated[
        Any,
        says(
            "The parties and the columns that each of them holds; of a number of parties each holds an even part.",
            kinds=(WHOLE, _PARTIES),
            call="int or mapping from names to columns, default 2",
            written="int | Mapping[str, Sequence[int | str]]",
        ),
    ] = 2
    unit: Annotated[
        str,
        says(
            "Whom the promise is for: one value of one person, or a whole row.",
            choices=(Unit.ATTRIBUTE, Unit.RECORD),
        ),
    ] = Unit.ATTRIBUTE.value


#: The order in which calls take what several of them have: these, their own, and then the last.
FIRST = [
    "parties",
    "sites",
    "epsilon",
    "delta",
    "bounds",
    "y_bounds",
    "classes",
    "unit",
    "unit_id",
    "rows_per_household",
    "adjacency",
    "calibration",
    "aggregation",
    "tolerate",
    "nodes",
]
LAST = ["confidence", "fit_intercept", "formula", "public_seed", "random_state", "budget"]


# --- Calls -----------------------------------------------------------------------------------------------------------------
# What a call in Python takes: signature, docstring and kinds of value, from declared parameters.


@dataclass(frozen=True)
class Argument:
    """One argument of a call: its annotation, its default, its kinds of value, and its entry in the docstring."""

    name: str
    annotation: str
    default: Any
    kinds: tuple[ParameterKind, ...]
    head: str
    words: str
    choices: tuple[str, ...] = ()

    def entry(self) -> str:
        """Return its lines in a docstring's section of parameters."""
        if self.default is _REQUIRED or "default" in self.head or "optional" in self.head:
            said = ""
        else:
            said = ", optional" if self.default is None else f", default {_shown(self.default)}"
        return f"{self.name} : {self.head}{said}\n    {self.words}"


_REQUIRED = inspect.Parameter.empty
_KINDS: dict[Any, ParameterKind] = {
    float: NUMBER,
    int: WHOLE,
    bool: FLAG,
    str: WORD,
    NoneType: NONE,
    dict: MAPPING,
    Mapping: MAPPING,
}
#: Types of numbers, which a call may give as NumPy's own.
_NUMBERS = (bool, int, float)
_HEADS = {float: "float", int: "int", bool: "bool", str: "str", dict: "mapping", Mapping: "mapping"}


def _shown(value: Any) -> str:  # noqa: ANN401 - a default
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _parts(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a type
    """Return the types of which a value may be any."""
    return get_args(kind) if isinstance(kind, UnionType) or get_origin(kind) is Union else (kind,)


def _asked(one: Parameter) -> tuple[tuple[Any, ...], Any]:
    """Return the types that a call takes for a study's parameter, and its default: None for a column, a word or a mapping that is left out."""
    kinds = _parts(one.type)
    default = _REQUIRED if one.required else one.default
    if default == "" or (default == {} and dict in {get_origin(kind) for kind in kinds}):
        return (*kinds, NoneType), None
    return kinds, default.value if isinstance(default, Enum) else default


def _kind(kind: Any) -> ParameterKind:  # noqa: ANN401 - a type
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin is tuple and parts == (float, float):
        return PAIR
    if origin in {tuple, Sequence}:
        return NUMBERS if parts and set(parts) <= {float, Ellipsis} else LIST
    return _KINDS[origin]


def _written(kind: Any) -> str:  # noqa: ANN401 - a type
    """Return a type as an annotation of a call has it: whatever is a sequence will do for a tuple of any length."""
    if kind is NoneType:
        return "None"
    origin, parts = get_origin(kind), get_args(kind)
    if origin is None:
        return str(kind.__name__)
    if isinstance(kind, UnionType) or origin is Union:
        return " | ".join(map(_written, parts))
    if origin is tuple and parts[-1] is Ellipsis:
        return f"Sequence[{_written(parts[0])}]"
    name = {dict: "Mapping", tuple: "tuple"}.get(origin, origin.__name__)
    return f"{name}[{', '.join(map(_written, parts))}]"


def _head(kind: Any) -> str:  # noqa: ANN401 - a type
    if (found := _HEADS.get(get_origin(kind) or kind)) is not None:
        return found
    parts = get_args(kind)
    if (get_origin(kind), parts) == (tuple, (float, float)):
        return "(low, high)"
    return f"sequence of {_HEADS.get(parts[0], 'labels')}" if parts else "sequence"


#: Of no parameter any word.
NONE_OF_THEM: Mapping[str, Iterable[str]] = MappingProxyType({})


def argument_of(one: Parameter, never: Iterable[str] = ()) -> Argument:
    """Return a declared parameter as the argument of a call, which takes ``never`` some of its words."""
    kinds, default = _asked(one)
    choices = tuple(word for word in one.flag("choices") or () if word not in never)
    words = " or ".join(map(_shown, choices)) if len(choices) == 1 else f"{{{', '.join(map(_shown, choices))}}}"
    heads = [words if choices and kind is str else _head(kind) for kind in kinds if kind not in {NoneType, Any}]
    return Argument(
        one.name,
        one.flag("written") or " | ".join(map(_written, kinds)),
        default,
        one.flag("kinds") or (() if Any in kinds else tuple(map(_kind, kinds))),
        one.flag("call") or " or ".join(heads),
        one.words,
        choices,
    )


def arguments_of(
    *groups: type, first: str = "", left: Iterable[str] = (), never: Mapping[str, Iterable[str]] = NONE_OF_THEM
) -> dict[str, Argument]:
    """Return the arguments of a call that takes the parameters of these groups but those that are ``left`` out; of a name in several the last one.

    Those that are named ``first`` lead, in this order; required ones come next.
    """
    found: dict[str, Parameter] = {}
    for group in groups:
        found |= {name: one for name, one in parameters_of(group).items() if not one.flag("study")}
    last = len(FIRST) + len(found)
    place = {name: -1 for name, one in found.items() if one.required}
    place |= {name: k for k, name in enumerate(FIRST)} | {name: last + k for k, name in enumerate(LAST)}
    leading = first.split()
    place |= {name: k - len(leading) - 1 for k, name in enumerate(leading)}
    order = sorted(found.keys() - set(left), key=lambda name: place.get(name, len(FIRST) + list(found).index(name)))
    return {name: argument_of(found[name], never.get(name, ())) for name in order}


def signature_of(arguments: Iterable[Argument], *, leading: int = 0, bound: bool = False) -> inspect.Signature:
    """Return the signature of a call, of whose arguments so many ``leading`` ones go without their names; ``bound``: of a method."""
    named, free = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [inspect.Parameter("self", free)] if bound else []
    own += [
        inspect.Parameter(one.name, free if k < leading else named, default=one.default, annotation=one.annotation)
        for k, one in enumerate(arguments)
    ]
    return inspect.Signature(own)


def bound_to(signature: inspect.Signature, name: str, args: tuple[Any, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call with their defaults; refuse one that the signature has not, with the word that was meant."""
    unknown = [word for word in given if word not in signature.parameters]
    if unknown:
        raise TypeError(not_taken(name, unknown[0], [word for word in signature.parameters if word != "self"]))
    try:
        bound = signature.bind(*args, **given)
    except TypeError as error:
        msg = f"{name}: {error}"
        raise TypeError(msg) from None
    bound.apply_defaults()
    return dict(bound.arguments)


def documented(text: str | None, arguments: Iterable[Argument]) -> str | None:
    """Return a docstring with the section of its parameters, which stands before the attributes, or else before the examples."""
    if text is None:  # Python was asked for no docstrings
        return None
    text = inspect.cleandoc(text)
    section = "Parameters\n----------\n" + "\n".join(one.entry() for one in arguments)
    for head in ("Attributes\n", "Returns\n", "Examples\n"):
        before, found, after = text.partition(f"\n\n{head}")
        if found:
            return f"{before}\n\n{section}{found}{after}\n"
    return f"{text}\n\n{section}\n"


# --- Estimators ------------------------------------------------------------------------------------------------------------
# The constructor of an estimator, and what of it a study says.


def takes(
    *groups: type, first: str = "", left: Iterable[str] = (), never: Mapping[str, Iterable[str]] = NONE_OF_THEM
) -> Callable[[type[Estimator]], type[Estimator]]:
    """Return a decorator that gives an estimator its constructor, the kinds of its parameters and their section in its docstring.

    It takes the parameters of these groups, ``first`` with or without its name, but not those that are ``left`` out,
    and ``never`` some words of a study, by parameter.
    """
    arguments = arguments_of(*groups, first=first, left=left, never=never)

    def made(cls: type[Estimator]) -> type[Estimator]:
        signature = signature_of(arguments.values(), leading=len(first.split()), bound=True)

        def __init__(self: Any, *args: Any, **given: Any) -> None:  # noqa: ANN401, N807 - the constructor of the class
            values = bound_to(signature, cls.__name__, (self, *args), given)
            vars(self).update({name: values[name] for name in arguments})

        __init__.__signature__ = signature  # type: ignore[attr-defined]
        __init__.__qualname__ = f"{cls.__qualname__}.__init__"
        __init__.__module__ = cls.__module__
        constructed: Any = cls
        constructed.__init__ = __init__
        constructed.arguments = arguments
        cls.__doc__ = documented(cls.__doc__, arguments.values())
        return cls

    return made


def asked_of(fields: type, given: Mapping[str, Any], left: Iterable[str] = ()) -> dict[str, Any]:
    """Return what a study says of the parameters of this struct that are given, but those that are ``left`` out: lean ones only where they say something."""
    found = {}
    for name, one in parameters_of(fields).items():
        if name in given and name not in left:
            value = in_study(one.type, given[name])
            if value is None and NoneType not in _parts(one.type):  # left out
                value = in_study(one.type, one.default)
            if not one.flag("lean") or value != in_study(one.type, one.default):
                found[name] = value
    return found


def in_study(kind: Any, value: Any) -> Any:  # noqa: ANN401 - a type, and a value of a call
    """Return a value of a call as a study holds one of this type: Python's own numbers and words, lists and mappings."""
    parts = _parts(kind)
    if isinstance(value, str):
        return [str(value)] if str not in parts and any(get_origin(part) is tuple for part in parts) else str(value)
    for part in parts:
        inner = get_args(part)
        if get_origin(part) is tuple and LIST.holds(value):
            kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
            return [in_study(one, each) for one, each in zip(kinds, value, strict=True)]
        if get_origin(part) is dict and MAPPING.holds(value):
            return {text_of(key): in_study(inner[1], each) for key, each in value.items()}
        if part in _NUMBERS and _KINDS[part].holds(value):
            return part(value)
    if int in parts and isinstance(value, float) and value.is_integer():  # a count that carries its origin
        return int(value)
    return plain(value)
