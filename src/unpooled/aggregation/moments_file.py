"""Released moments as a file: everything, exactly, and nothing that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from unpooled.aggregation.coordinates import Coordinates, StoredCoordinates
from unpooled.aggregation.layout import Geometry, MomentsLayout
from unpooled.aggregation.saving import read_saved, write_saved
from unpooled.aggregation.weights import Weighting
from unpooled.errors import DataError
from unpooled.privacy.bounds import Column
from unpooled.protocol.messages import UNREADABLE, Array

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    Parts = tuple[MomentsLayout, Coordinates | None, NDArray[np.float64], NDArray[np.float64]]

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
    #: The declared column of weights, where the rows have some.
    weights: Column | None = None


def parts_of(stored: StoredMoments) -> Parts:
    """Return (layout, coordinates, Gram, variances of its noise) of plain data; refuse what does not fit together."""
    if stored.format != FORMAT or stored.geometry not in list(Geometry):
        msg = f"moments of another format: this program reads {FORMAT!r}"
        raise DataError(msg)
    geometry = Geometry(stored.geometry)
    shape = stored.features, stored.response, stored.grid, geometry, stored.norm, stored.intercept
    weighting = None if stored.weights is None else Weighting(stored.weights, stored.rows)
    layout = MomentsLayout(*shape, formula=stored.formula, sources=stored.sources, weighting=weighting)
    square = (layout.size + 1, layout.size + 1)
    frame = None if stored.frame is None else Coordinates.of(stored.frame)
    fits = frame is None or {frame.widths.size, frame.centres.size, frame.start.size} == {layout.size}
    if not fits or any(array.shape != square or array.dtype != "<f8" for array in (stored.gram, stored.variance)):
        raise DataError("moments whose matrices do not fit their columns")
    return layout, frame, stored.gram.numpy(), stored.variance.numpy()


def write(path: str | Path, stored: StoredMoments) -> None:
    """Write a file of moments."""
    write_saved(path, KIND, msgspec.msgpack.encode(stored))


def read(path: str | Path, make: Callable[[StoredMoments], Made]) -> Made:
    """Return the object that ``make`` makes of a file of moments; whatever is wrong with the file is an error that names it."""
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
    """Return the object that ``make`` makes of the content of a file of moments."""
    try:
        return make(msgspec.msgpack.decode(body, type=StoredMoments, strict=True))
    except DataError:
        raise
    except UNREADABLE:
        raise DataError("this is not a file of moments: give one that `save` wrote") from None
