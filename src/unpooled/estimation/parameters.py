"""Parameters are validated, never cast: the kinds of value that they take, in words, and one refusal that names the parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.budget import Budget


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
LIST = ParameterKind("a list", lambda value: isinstance(value, Sequence | np.ndarray) and not isinstance(value, str))
PAIRS = ParameterKind(
    "a list of pairs (low, high)", lambda value: LIST.holds(value) and len(value) > 0 and all(map(PAIR.holds, value))
)
MAPPING = ParameterKind("a mapping", lambda value: isinstance(value, Mapping))
ARRAY = ParameterKind(
    "an array of numbers", lambda value: not isinstance(value, str) and np.asarray(value).dtype.kind in "iuf"
)
_SEED = ParameterKind(
    "an integer (a simulation)", lambda value: WHOLE.holds(value) or isinstance(value, np.random.RandomState)
)
_BOUNDS = ParameterKind(
    "Bounds, a pair (low, high) or a mapping from column names",
    lambda value: isinstance(value, Bounds | Mapping) or (LIST.holds(value) and len(value) == 2),  # noqa: PLR2004
)


def taking(names: str, *kinds: ParameterKind) -> Constraints:
    """Return the same kinds for each of these parameters."""
    return dict.fromkeys(names.split(), kinds)


#: The parameters that mean the same for every estimator, and for ``describe``.
SHARED: Constraints = (
    taking("epsilon penalty", NUMBER)
    | taking("delta", NUMBER, NONE)
    | taking("bounds", _BOUNDS, NONE)
    | taking("y_bounds", PAIR, NONE)
    | taking("classes", LIST, NONE)
    | taking("rows_per_household", WHOLE)
    | taking("unit adjacency calibration aggregation", WORD)
    | taking("parties", WHOLE, ParameterKind("a mapping from names to columns", MAPPING.holds))
    | taking("fit_intercept", FLAG)
    | taking("tolerate public_seed", WHOLE)
    | taking("nodes", LIST)
    | taking("random_state", ParameterKind("None (real noise)", NONE.holds), _SEED)
    | taking("budget", ParameterKind("a Budget", lambda value: isinstance(value, Budget)), NONE)
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
