"""Coordinates of released moments: their units, the coefficients about which they were taken, and what a fit cut off."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.formula.arithmetic import quoted
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column

    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]


# --- Clipping --------------------------------------------------------------------------------------------------------------
# The parts of the rows and residuals that a fit cut off, as one release counted them, and the sentences that a table prints about them.

_TUNED = table("printed")
#: The tail is named where its deviation exceeds this part of a line's standard error.
TAIL_PART = _TUNED.tail_part


class Clipping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Released shares of shortened rows and clipped residuals, and the estimate of the mean that the clip took away."""

    #: (share, deviation of its noise) of the rows longer than ``longest`` and of the residuals beyond ``clip``.
    shortened: tuple[float, float]
    clipped: tuple[float, float]
    #: The bound on rows in lengths of a typical row, and the bound on residuals in their deviations.
    longest: float
    clip: float
    #: (estimate, deviation) of the mean residual beyond the clip, in the units of the fit's response.
    tail: tuple[float, float] = (0.0, 0.0)
    #: The sampling variance of slopes beside that of least squares, where slopes are scaled back by the share of residuals that the clip left; else None.
    variance: float | None = None

    def in_units_of(self, width: float) -> Clipping:
        """Return the same with the tail in the response's own units, of which the fit's unit has this many."""
        return msgspec.structs.replace(self, tail=(self.tail[0] * width, self.tail[1] * width))

    def data(self) -> dict[str, Any]:
        """Return everything as plain data; without a bound on residuals ``clip`` is None."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        del found["variance"]
        return found | {"clip": self.clip if math.isfinite(self.clip) else None}

    def sentences(self, *, curved: bool = False, crowded: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return what a table says about them; ``curved``: the mean is not a linear function of the columns even where the model is right.

        ``crowded`` are sentences about the columns whose rows these are most likely.
        """
        said = []
        share, noise = self.shortened
        if share > max(_TUNED.least_shortened, _TUNED.seen * noise):
            scale = "on the scale of the link " if curved else ""
            length = "a typical row" if self.longest == 1 else f"{self.longest:.3g} typical rows"
            said.append(
                f"{share:.1%} of rows are longer than {length} and were scaled down: if the mean is linear {scale}"
                "in the columns, the coefficients keep their values; if it is not, the target is the fit of the rows so weighted"
            )
            said += crowded
        share, noise = self.clipped
        if share > max(_TUNED.least_clipped, _TUNED.seen * noise):
            said.append(f"{share:.1%} of residuals were clipped at {self.clip:.3g} of their standard deviations")
        if self.variance is not None and self.clip < _TUNED.clip_named:
            said.append(
                f"target: slopes of residuals clipped at {self.clip:.3g} of their standard deviations, scaled back by the share inside: those of the mean, "
                "unless errors are skewed and their spread follows a column"
            )
        return tuple(said)

    def tail_sentence(self) -> str:
        """Return the sentence under a table whose intercept rests on the model of the tail."""
        return (
            f"tail: residuals beyond {self.clip:.3g} standard deviations are clipped, and a generalised Pareto law estimates their mean. "
            "It makes up more than half of the intercept's standard error"
        )


def crowded_columns(columns: Sequence[Column], means: Row, deviations: Row, *, joint: bool = False) -> tuple[str, ...]:
    """Return a sentence about every column of numbers most of whose values lie near an end of a wide declared range, by released means and deviations.

    ``means`` and ``deviations`` are in the columns' own units, one of each for every column. ``joint``: every party shortens its own part of a row.
    """
    why = (
        "Long parts of joint rows inflate slopes, also where the mean is linear"
        if joint
        else "If its effect is not a straight line"
    )
    said = []
    for column, mean, deviation in zip(columns, means.tolist(), deviations.tolist(), strict=True):
        if column.categories is not None or not deviation > 0:
            continue
        low, high = column.range
        ends = (mean - low) / deviation, (high - mean) / deviation
        if min(ends) > _TUNED.crowded_near or max(ends) < _TUNED.crowded_far:
            continue
        right = ends[0] < ends[1]
        bent = f"log1p({quoted(column.name)})" if right and low > -1 else "a transformation"
        end, other = ("lower", "upper") if right else ("upper", "lower")
        wide = f"its declared range of {low:g} to {high:g} is {(high - low) / deviation:.3g} of its deviations wide"
        said.append(
            f"{column.name}: {wide}, and most values are near the {end} end, so long rows are most likely rows of the {other} one. "
            f"{why}{':' if joint else ','} {bent} in the formula makes such rows shorter"
        )
    return tuple(said)


def typically_crowded(columns: Sequence[Column], *, joint: bool = False) -> tuple[str, ...]:
    """Return the same of columns that say what is typical of them, before there are data: for plans."""
    known = [column for column in columns if column.typical is not None and column.categories is None]
    centres, deviations = (np.array([column.typical[at] for column in known if column.typical]) for at in (0, 1))
    return crowded_columns(known, centres, deviations, joint=joint)


# --- Coordinates -----------------------------------------------------------------------------------------------------------
# Coordinates of released moments: their units, and the coefficients about which they were taken.


class StoredCoordinates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A frame as plain data."""

    widths: tuple[float, ...]
    centres: tuple[float, ...]
    response_width: float
    response_centre: float
    start: tuple[float, ...]
    squares: tuple[float, float]
    variance: tuple[float, float]
    least: float
    mean_weight: float = 1.0
    clipping: Clipping | None = None
    mean_square: float | None = None


@dataclass(frozen=True)
class Coordinates:
    """Coordinates z = (x - centre) / width and v = (y - centre) / width; the constant has the width by which it must be multiplied to be 1.

    Moments of rounds are about ``start``: their cross moments are those of v - z.start. Zeros where there were no rounds.
    """

    widths: Row
    centres: Row
    response_width: float
    response_centre: float
    start: Row
    #: Sum of squared residuals about ``start``, and the variance of its noise.
    squares: tuple[float, float]
    #: Variance of v, and the variance of its noise; nan where only the moments tell.
    variance: tuple[float, float] = (float("nan"), float("nan"))
    #: Deviation of every coordinate of ``start`` from its rounds' own noise; 0 where there were none.
    least: float = 0.0
    #: The mean weight of the rows as a part of the largest; 1 without weights.
    mean_weight: float = 1.0
    #: The parts of rows and residuals that the last round cut off; None where there was none, or in files of version 0.3.0 and before.
    clipping: Clipping | None = None
    #: The largest mean square of a column's coordinates that the bounds on rows allow; None: that of the declared ranges.
    mean_square: float | None = None

    @property
    def tail_deviation(self) -> float:
        """Return the deviation of the constant's coordinate that the mean of what the clip took away has."""
        return 0.0 if self.clipping is None else self.clipping.tail[1] * float(self.widths[-1])

    @property
    def sampling(self) -> float:
        """Return the sampling variance of slopes beside that of least squares: 1 where no clip changed it."""
        return 1.0 if self.clipping is None or self.clipping.variance is None else self.clipping.variance

    @property
    def refined(self) -> bool:
        """Return True if there were rounds."""
        return self.least > 0

    def back(self, *, intercept: bool) -> Matrix:
        """Return the linear map from coordinates to coefficients in the data's own units; the intercept takes up the centres."""
        back = np.diag(self.response_width / self.widths)
        if intercept:
            back[-1] -= self.centres * back.diagonal()
        return back

    def of_own_units(self, coefficients: Row, *, intercept: bool) -> tuple[Row, float]:
        """Return (slopes, intercept) in the data's own units."""
        own = self.back(intercept=intercept) @ coefficients
        return own[: own.size - intercept], float(own[-1]) + self.response_centre if intercept else 0.0

    def prior_of(self, precision: float, *, intercept: bool) -> Row:
        """Return the prior variances of coordinates, for one precision of all slopes in the data's own units."""
        prior = (self.widths / self.response_width) ** 2 / precision
        if intercept:
            prior[-1] = 1.0
        return np.asarray(prior)

    def prior_of_all(self, variance: float, *, intercept: bool) -> Row:
        """Return one prior variance for every coordinate but the constant's, which has the half width of the response."""
        prior = np.full(self.widths.size, variance)
        if intercept:
            prior[-1] = 1.0
        return prior

    def stored(self) -> StoredCoordinates:
        """As plain data."""
        widths, centres, start = (tuple(row.tolist()) for row in (self.widths, self.centres, self.start))
        rest = (self.response_width, self.response_centre, start, self.squares, self.variance, self.least, self.mean_weight)
        return StoredCoordinates(widths, centres, *rest, self.clipping, self.mean_square)

    @classmethod
    def of(cls, stored: StoredCoordinates) -> Coordinates:
        """Return coordinates made from plain data."""
        widths, centres, start = (np.array(row) for row in (stored.widths, stored.centres, stored.start))
        rest = (start, stored.squares, stored.variance, stored.least, stored.mean_weight, stored.clipping)
        return cls(widths, centres, stored.response_width, stored.response_centre, *rest, stored.mean_square)
