"""Entry points of the group ``unpooled.models``: the rows that distributions declare, and the distribution behind a row.

Entry points are read where a row that is not one of our own is asked for, or where all rows are listed, never by an import.
"""

from __future__ import annotations

import importlib
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from unpooled.errors import UsageError, listed

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: The group of entry points.
GROUP = "unpooled.models"
#: The distribution of this package.
OURS = "unpooled"
#: The names of our own rows, in the order in which they are listed. Each is a folder of ``unpooled/models``.
OWN = (
    "describe",
    "tables",
    "pride",
    "bayes",
    "glm",
    "stacking",
    "lasso",
    "pls",
    "diagnose",
    "survival",
    "effects",
    "analyses",
)
#: A study may name this in place of a model: it links rows, releases nothing and predicts nothing.
LINK = "link"


def with_households() -> list[str]:
    """Return the names of our own rows that have a proof for all rows of an id together."""
    own = ((name, importlib.import_module(f"{GROUP}.{name}").MODEL) for name in OWN)
    return [name for name, row in own if row.households]


def names() -> tuple[str, ...]:
    """Return the names of all rows that distributions declare, in alphabetical order."""
    return tuple(_declared(tuple(sys.path)))


def entry_of(name: str) -> EntryPoint | None:
    """Return the entry point of the row of this name; None if there is none. A name that several distributions declare is refused."""
    found = _declared(tuple(sys.path)).get(name, ())
    if len(found) > 1:
        msg = f"model {name!r} is declared by {listed([distribution(entry) for entry in found])}, and nobody can tell which one is meant: uninstall all but one"
        raise UsageError(msg)
    return found[0] if found else None


def distribution(entry: EntryPoint) -> str:
    """Return the name of the distribution that declares an entry point."""
    return entry.dist.name if entry.dist is not None else "unknown"


def maker(name: str) -> str:
    """Return the distribution of a row and its version, such as ``"private-correlation 0.1.0"``; empty for our own rows and for rows that nobody declares."""
    return "" if name in OWN or name == LINK else _maker(name, tuple(sys.path))


@lru_cache(maxsize=64)
def _maker(name: str, path: tuple[str, ...]) -> str:  # noqa: ARG001 - the answer is good for one search path
    entry = entry_of(name)
    if entry is None or distribution(entry) == OURS:
        return ""
    return f"{distribution(entry)} {entry.dist.version if entry.dist is not None else 'unknown'}"


@lru_cache(maxsize=1)
def _declared(path: tuple[str, ...]) -> dict[str, tuple[EntryPoint, ...]]:  # noqa: ARG001 - as above
    """Return the entry points of the group by name, one of each distribution and value."""
    from importlib.metadata import entry_points

    found: dict[str, dict[tuple[str, str], EntryPoint]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        found.setdefault(entry.name, {})[distribution(entry), entry.value] = entry
    return {name: tuple(entries.values()) for name, entries in found.items()}
