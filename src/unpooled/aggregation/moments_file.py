"""Released moments as a file: everything, exactly, and nothing that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from unpooled.aggregation.coordinates import StoredCoordinates
from unpooled.aggregation.saving import read_saved, write_saved
from unpooled.errors import DataError
from unpooled.privacy.bounds import Column
from unpooled.protocol.messages import UNREADABLE, Array

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT, KIND = "unpooled moments 1", "Moments"
Made = TypeVar("Made")


class StoredMoments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Moments as a file: everything, exactly, and nothing that runs."""

    format: str
    features: tuple[Column, ...]
    response: Column
    grid: int
    geometry: str
    norm: float | None
    intercept: bool
    rows: int
    gram: Array
    variance: Array
    plan: str
    statement: str
    #: Where the rows were standardised, by what.
    frame: StoredCoordinates | None = None
    #: Whether the statement holds; files of unpooled 0.2.0 say it in the statement's words only.
    holds: bool | None = None
    #: Of features that a formula makes: the formula, and the columns that it reads.
    formula: str = ""
    sources: tuple[Column, ...] = ()


def write(path: str | Path, stored: StoredMoments) -> None:
    """Write a file of moments."""
    write_saved(path, KIND, msgspec.msgpack.encode(stored))


def read(path: str | Path, make: Callable[[StoredMoments], Made]) -> Made:
    """What ``make`` makes of a file of moments; whatever is wrong with the file is an error that names it."""
    name, file = Path(path).name, read_saved(path)
    if file.kind != KIND:
        msg = f"{name}: this is not a file of moments: read it with unpooled.load"
        raise DataError(msg)
    try:
        return decoded(file.body, make)
    except DataError as error:
        msg = f"{name}: {error}"
        raise DataError(msg) from None


def decoded(body: bytes, make: Callable[[StoredMoments], Made]) -> Made:
    """What ``make`` makes of the content of a file of moments."""
    try:
        return make(msgspec.msgpack.decode(body, type=StoredMoments, strict=True))
    except DataError:
        raise
    except UNREADABLE:
        raise DataError("this is not a file of moments: give one that `save` wrote") from None
