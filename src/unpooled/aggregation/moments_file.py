"""Released moments as a file: everything, exactly, and nothing that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from unpooled.aggregation.coordinates import StoredCoordinates
from unpooled.errors import DataError
from unpooled.privacy.bounds import Column
from unpooled.protocol.messages import Array

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = "unpooled moments 1"
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


def write(path: str | Path, stored: StoredMoments) -> None:
    """Write a file of moments."""
    Path(path).write_bytes(msgspec.msgpack.encode(stored))


def read(path: str | Path, make: Callable[[StoredMoments], Made]) -> Made:
    """What ``make`` makes of a file of moments; whatever is wrong with the file is an error that names it."""
    name = Path(path).name
    try:
        return make(msgspec.msgpack.decode(Path(path).read_bytes(), type=StoredMoments, strict=True))
    except FileNotFoundError:
        msg = f"{name}: there is no such file of moments"
        raise DataError(msg) from None
    except (msgspec.MsgspecError, ValueError) as error:
        what = error if isinstance(error, DataError) else "this is not a file of moments: give one that `save` wrote"
        msg = f"{name}: {what}"
        raise DataError(msg) from None
