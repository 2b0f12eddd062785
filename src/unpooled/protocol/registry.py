"""Rows of the registry that are found through entry points: models of other packages, and forms that stand apart from our own models.

A distribution declares a row in the group ``unpooled.models``: its name, and the place of its :class:`~unpooled.protocol.step.Model` as
``module:NAME``. Entry points are read where such a row is asked for or all rows are listed, never by an import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.errors import UsageError
from unpooled.protocol.entries import OURS, distribution, entry_of, names
from unpooled.protocol.step import Model

if TYPE_CHECKING:
    from collections.abc import Mapping


def joined(name: str) -> Model | None:
    """Return the row of this name that a distribution declares; None if there is none. A row that cannot be used is refused with its distribution."""
    entry = entry_of(name)
    if entry is None:
        return None
    whose = distribution(entry)
    try:
        row = entry.load()
    except Exception as error:
        system, _, form = name.rpartition("-")
        if whose == OURS and isinstance(error, ModuleNotFoundError) and f"{entry.module}.".startswith(f"{error.name}."):
            raise UsageError(_absent(system, form)) from None
        msg = (
            f"model {name!r} cannot be loaded from distribution {whose!r} ({entry.value}): {type(error).__name__}: {error}. "
            f"Install {whose!r} again, or uninstall it"
        )
        raise UsageError(msg) from error
    if not isinstance(row, Model):
        msg = f"distribution {whose!r} declares {entry.value} as model {name!r}, which is no unpooled Model: correct its entry point, or uninstall it"
        raise UsageError(msg)
    if row.name != name:
        msg = f"distribution {whose!r} declares {entry.value} as model {name!r}, but that Model is named {row.name!r}: correct its entry point, or uninstall it"
        raise UsageError(msg)
    return row


def form_of(system: str, form: str) -> Model:
    """Return the row of another form of a model, as a study's calibration asks for; refuse a form that no distribution declares."""
    row = joined(f"{system}-{form}")
    if row is not None:
        return row
    if not any(name.endswith(f"-{form}") for name in names()):
        raise UsageError(_absent(system, form))
    msg = f"model {system!r} has no {form} form: leave calibration out"
    raise UsageError(msg)


def check_own(own: Mapping[str, str]) -> None:
    """Refuse distributions that declare a row of our own name, which is never loaded from them, and names that several of them declare."""
    for name in names():
        entry = entry_of(name)
        if entry is not None and name in own:
            msg = f"distribution {distribution(entry)!r} declares model {name!r}, which is one of unpooled's own: uninstall it, or give its model another name"
            raise UsageError(msg)


def _absent(system: str, form: str) -> str:
    return f"model {system!r} has no {form} form here: the {form} forms are not part of this installation of unpooled, so leave calibration out"
