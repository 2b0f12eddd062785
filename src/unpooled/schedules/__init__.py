"""Tuned numbers, one table for each schedule: a share of a budget, a number of rounds, a width, a threshold from which on something is worth it.

A table is a file of this folder. It has a number under each heading, with the sentence that says what the number trades, the script that chose or
measured it (``judged = true`` where none did), and the day on which it was last changed. ``docs/schedules.md`` shows all of them on one page.
"""

from __future__ import annotations

import datetime as dt
import math
import tomllib
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Steps(tuple[tuple[float, float], ...]):
    """Real numbers, each from a threshold on, in rising order: (threshold, number) each."""

    __slots__ = ()

    def at(self, k: float) -> float:
        """Return the number whose threshold is the last one that k reaches."""
        return [number for least, number in self if k >= least][-1]


#: A real number, a whole one, several real ones in an order, real ones from thresholds on, or shares by name.
Value: TypeAlias = float | int | tuple[float, ...] | Steps | dict[str, float]
_KEYS = ("value", "trades", "script", "judged", "date")
_SENTENCE = 'write what it trades against what, as one sentence: trades = "More rounds cost passes."'
_SCRIPT = 'name the script that chose or measured it, as script = "experiments/priors.py", or write judged = true'


@dataclass(frozen=True, slots=True)
class TunedNumber:
    """One entry of a table: a number, and where it comes from."""

    name: str
    value: Value
    #: What it trades against what, in a sentence.
    trades: str
    #: The script that chose or measured it, from the root of the repository; empty where it was judged.
    script: str
    #: The day of the commit that last changed the value.
    date: dt.date


class TunedNumbers:
    """The numbers of one schedule. ``numbers.name`` is a real number; whole ones, several, steps and shares have a method each, so that no kind is mistaken."""

    __slots__ = ("about", "entries", "schedule")

    def __init__(self, schedule: str, about: str, entries: Mapping[str, TunedNumber]) -> None:
        self.schedule = schedule
        self.about = about
        self.entries = dict(entries)

    def __getattr__(self, name: str) -> float:
        """Return the real number of this name."""
        if name.startswith("_") or name in self.__slots__:
            raise AttributeError(name)
        found = self._value(name)
        if not isinstance(found, float):
            raise self._other(name, "a real number")
        return found

    def whole(self, name: str) -> int:
        """Return the whole number of this name."""
        found = self._value(name)
        if not isinstance(found, int):
            raise self._other(name, "a whole number")
        return found

    def several(self, name: str) -> tuple[float, ...]:
        """Return the real numbers of this name, in their order."""
        found = self._value(name)
        if not isinstance(found, tuple) or isinstance(found, Steps):
            raise self._other(name, "a list of real numbers")
        return found

    def pair(self, name: str) -> tuple[float, float]:
        """Return the two real numbers of this name."""
        found = self.several(name)
        if len(found) != 2:  # noqa: PLR2004 - a pair
            raise self._other(name, "a pair of real numbers")
        return found[0], found[1]

    def steps(self, name: str) -> Steps:
        """Return the real numbers of this name, each from its threshold on."""
        found = self._value(name)
        if not isinstance(found, Steps):
            raise self._other(name, "real numbers from thresholds on")
        return found

    def shares(self, name: str) -> dict[str, float]:
        """Return the shares of this name, each by its own name; a new dictionary each time."""
        found = self._value(name)
        if not isinstance(found, dict):
            raise self._other(name, "shares by name")
        return dict(found)

    def but(self, **values: Value) -> TunedNumbers:
        """Return the same numbers with other values of some, for a simulation or a test."""
        changed = {}
        for name, value in values.items():
            if type(value) is not type(self._value(name)):
                msg = f"{self.schedule}.toml: {name} is {self._value(name)!r}, and {value!r} is of another kind: pass one of the same"
                raise UsageError(msg)
            changed[name] = replace(self.entries[name], value=value)
        return TunedNumbers(self.schedule, self.about, self.entries | changed)

    def _other(self, name: str, kind: str) -> TypeError:
        """Return the error of code that reads a number as one of another kind."""
        return TypeError(
            f"{self.schedule}.toml: {name} is {self.entries[name].value!r}, and not {kind}: read a real number as an "
            "attribute, a whole one by whole, a list by several or pair, numbers from thresholds on by steps, shares by shares"
        )

    def _value(self, name: str) -> Value:
        if name not in self.entries:
            msg = f"{self.schedule}.toml has no number {name}: write an entry [{name}] with value, trades, script or judged, and date"
            raise AttributeError(msg)
        return self.entries[name].value


def schedules() -> tuple[str, ...]:
    """Return the names of all tables."""
    files = (file.name for file in resources.files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml")))


@lru_cache
def table(name: str) -> TunedNumbers:
    """Return the numbers of the schedule of this name, read once and checked."""
    file = resources.files(__name__) / f"{name}.toml"
    if not file.is_file():
        msg = f"there is no table {name}: name one of {', '.join(schedules())}, or write src/unpooled/schedules/{name}.toml"
        raise UsageError(msg)
    return read_table(name, file.read_text(encoding="utf-8"))


def read_table(name: str, text: str) -> TunedNumbers:
    """Return the numbers that the text of a table holds; refuse it, with the entry and the remedy, where an entry is not whole."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"{name}.toml is no TOML: {error}"
        raise UsageError(msg) from None
    about = found.pop("about", None)
    if not isinstance(about, str) or not about:
        msg = f'{name}.toml: say first what the schedule is about, in a sentence: about = "Rounds of a linear regression."'
        raise UsageError(msg)
    return TunedNumbers(name, about, {key: _entry(f"{name}.toml, {key}", key, entry) for key, entry in found.items()})


def _entry(where: str, name: str, entry: Any) -> TunedNumber:  # noqa: ANN401 - what a file says
    """Return one entry of a table, or refuse it."""
    if not isinstance(entry, dict):
        msg = f"{where}: a number is a table of its own: write [{name}], and value = ... under it"
        raise UsageError(msg)
    if not name.isidentifier() or name.startswith("_") or hasattr(TunedNumbers, name):
        msg = f"{where}: code reads numbers by their names, and cannot read this one: choose another name"
        raise UsageError(msg)
    if unknown := sorted(set(entry) - set(_KEYS)):
        msg = f"{where}: {', '.join(unknown)} is unknown: an entry has {', '.join(_KEYS)}"
        raise UsageError(msg)
    if not isinstance(entry.get("trades"), str) or not entry["trades"]:
        msg = f"{where}: {_SENTENCE}"
        raise UsageError(msg)
    if type(entry.get("date")) is not dt.date:
        msg = f"{where}: write the day on which the value was last changed, without quotes: date = 2026-11-28"
        raise UsageError(msg)
    return TunedNumber(name, _read_value(where, entry.get("value")), entry["trades"], _script(where, entry), entry["date"])


def _script(where: str, entry: dict[str, Any]) -> str:
    """Return the script of an entry, or nothing where the number was judged."""
    script, judged = entry.get("script"), entry.get("judged")
    if (script is None) == (judged is None):
        msg = f"{where}: {_SCRIPT}; one of the two"
        raise UsageError(msg)
    if judged is True:
        return ""
    if judged is None and isinstance(script, str) and script.startswith("experiments/") and script.endswith(".py"):
        return script
    msg = f"{where}: {_SCRIPT}"
    raise UsageError(msg)


def _read_value(where: str, value: Any) -> Value:  # noqa: ANN401 - what a file says
    """Return a value of one of the five kinds, or refuse it."""
    if _is_real(value) or type(value) is int:
        found: Value = value
        return found
    if isinstance(value, list) and value and all(map(_is_real, value)):
        return tuple(value)
    if _is_steps(value):
        return Steps((least, number) for least, number in value)
    if isinstance(value, dict) and value and all(map(_is_real, value.values())):
        return dict(value)
    msg = (
        f"{where}: value is a real number (0.5), a whole one (30), a list of real ones ([0.1, 0.2]), real ones from rising "
        "thresholds on, the first of which is 0 ([[0.0, 15.0], [30.0, 40.0]]), or shares by name ({ scales = 0.1 }): write one of these"
    )
    raise UsageError(msg)


def _is_steps(value: object) -> bool:
    """Return True where a value is pairs of real numbers, whose first ones rise from 0."""
    if not isinstance(value, list) or not value:
        return False
    if not all(isinstance(pair, list) and len(pair) == 2 and all(map(_is_real, pair)) for pair in value):  # noqa: PLR2004 - a pair
        return False
    thresholds = [pair[0] for pair in value]
    return thresholds[0] == 0 and all(a < b for a, b in pairwise(thresholds))


def _is_real(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)
