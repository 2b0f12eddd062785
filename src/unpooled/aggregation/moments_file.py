"""Released moments as a file: everything, exactly, and nothing that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from unpooled.aggregation.coordinates import Coordinates, StoredCoordinates
from unpooled.aggregation.layout import Geometry, MomentsLayout
from unpooled.aggregation.meat import Covariance
from unpooled.aggregation.saving import read_saved, write_saved
from unpooled.aggregation.sites import SITE, SiteConstants
from unpooled.aggregation.weights import Weighting
from unpooled.errors import DataError
from unpooled.privacy.bounds import Column
from unpooled.privacy.origin import ReleasedInput
from unpooled.protocol.messages import UNREADABLE, Array

if TYPE_CHECKING:
    from collections.abc import Callable

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
    #: What the standard errors assume, and the second moments of scores behind them with the variances of their noise.
    covariance: str = Covariance.MODEL
    meat: Array | None = None
    meat_variance: Array | None = None
    #: Columns that were taken out of the rows.
    nuisance: tuple[str, ...] = ()
    #: The rows of every site, where each has a constant of its own.
    site_rows: tuple[int, ...] = ()
    #: Whether these constants are drawn around a mean.
    random_sites: bool = False
    #: The releases behind them.
    origins: tuple[ReleasedInput, ...] = ()
    #: Whether ranges were narrowed to multiples of noisy deviations.
    narrowed: bool = False


def parts_of(stored: StoredMoments) -> Parts:
    """Return (layout, coordinates, Gram, variances of its noise) of plain data; refuse what does not fit together."""
    if stored.format != FORMAT or stored.geometry not in list(Geometry):
        msg = f"moments of another format: this program reads {FORMAT!r}"
        raise DataError(msg)
    geometry = Geometry(stored.geometry)
    shape = stored.features, stored.response, stored.grid, geometry, stored.norm, stored.intercept
    weighting = None if stored.weights is None else Weighting(stored.weights, stored.rows)
    layout = MomentsLayout(*shape, formula=stored.formula, sources=stored.sources, weighting=weighting, sites=_sites(stored))
    square = (layout.size + 1, layout.size + 1)
    frame = None if stored.frame is None else Coordinates.of(stored.frame)
    fits = frame is None or {frame.widths.size, frame.centres.size, frame.start.size} == {layout.size}
    if not fits or any(array.shape != square or array.dtype != "<f8" for array in (stored.gram, stored.variance)):
        raise DataError("moments whose matrices do not fit their columns")
    return layout, frame, stored.gram.numpy(), stored.variance.numpy()


def with_stored_sites(stored: StoredMoments, sites: SiteConstants | None) -> StoredMoments:
    """Return plain data with the sites that have constants of their own."""
    return stored if sites is None else msgspec.structs.replace(stored, site_rows=sites.rows, random_sites=sites.random)


def _sites(stored: StoredMoments) -> SiteConstants | None:
    """Return the sites that have constants of their own."""
    if not stored.site_rows:
        return None
    names = next((c.categories for c in (*stored.sources, *stored.features) if c.name == SITE), None) or ()
    if len(names) != len(stored.site_rows) or min(stored.site_rows) < 0:
        raise DataError("moments whose sites do not fit their columns")
    return SiteConstants(names, stored.site_rows, stored.random_sites)


def meat_of(stored: StoredMoments, size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the second moments of scores of plain data, with the variances of their noise; refuse what does not fit the columns."""
    if stored.covariance not in set(Covariance):
        raise DataError("moments with an unknown kind of covariance: install the version of unpooled that wrote them")
    if stored.meat is None or stored.meat_variance is None:
        return None
    found = stored.meat.numpy(), stored.meat_variance.numpy()
    if any(array.shape != (size, size) or array.dtype != np.float64 for array in found):
        raise DataError("moments whose second moments of scores do not fit their columns")
    return found


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
