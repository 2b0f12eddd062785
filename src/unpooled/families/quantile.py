"""The check loss of a quantile, smoothed so that it has derivatives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import ndtr

from unpooled.families.base import LEAST, Family

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


#: The half width of a quantile's smoothing in robust deviations.
HALF_WIDTH = 0.2


@dataclass(frozen=True)
class Quantile(Family):
    """The check loss of a quantile, smoothed by a uniform kernel: f' falls from tau to tau - 1 over residuals between -h and h."""

    name: ClassVar[str] = "quantile"
    dispersed: ClassVar[bool] = True
    curvature: ClassVar[float] = 1 / (2 * HALF_WIDTH)
    #: The quantile that is asked for is that of the response, unknown effects and all: inside the loss they would draw it to the middle.
    has_effects: ClassVar[bool] = False
    tau: float = 0.5

    @property
    def slope(self) -> float:  # type: ignore[override]
        """Tau on one side, 1 - tau on the other."""
        return max(self.tau, 1 - self.tau)

    def value(self, u: Vector, y: Vector) -> Vector:
        """Tau r or (tau - 1) r; (tau - 1/2) r + r^2 / 4h + h / 4 within h."""
        r = y - u
        inside = (self.tau - 0.5) * r + r**2 / (4 * HALF_WIDTH) + HALF_WIDTH / 4
        return np.where(np.abs(r) <= HALF_WIDTH, inside, np.where(r > 0, self.tau * r, (self.tau - 1) * r))

    def pull(self, u: Vector, y: Vector) -> Vector:
        """Tau less the smoothed share of residuals below 0."""
        return np.asarray(self.tau - np.clip((HALF_WIDTH - (y - u)) / (2 * HALF_WIDTH), 0.0, 1.0))

    def weight(self, u: Vector, y: Vector) -> Vector:
        """1 / 2h for residuals up to h, next to nothing beyond."""
        return np.where(np.abs(y - u) <= HALF_WIDTH, self.curvature, LEAST)

    def information(self, u: Vector, y: Vector) -> Vector:
        """Return its expectation tau (1 - tau) / dispersion, for an asymmetric Laplace law of the likeliest dispersion: the mean loss.

        f'' itself is 0 on the straight lines, where Laplace's approximation would take a coefficient for free.
        """
        dispersion = max(float(self.value(u, y).mean()), 1e-300)
        return np.full_like(u, min(self.tau * (1 - self.tau) / dispersion, self.curvature))

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """Return the integral of -pull over the step: its parts left of, within and right of the band, each by its length."""
        r, moved = y - u, -step  # r' = r + moved
        clipped, clipped_after = np.clip(r, -HALF_WIDTH, HALF_WIDTH), np.clip(r + moved, -HALF_WIDTH, HALF_WIDTH)
        both = (np.abs(r) <= HALF_WIDTH) & (np.abs(r + moved) <= HALF_WIDTH)
        within = np.where(both, moved, clipped_after - clipped)
        band = within * ((self.tau - 0.5) + (clipped + clipped_after) / (4 * HALF_WIDTH))
        same = (np.sign(r) == np.sign(r + moved)) & (np.abs(r) >= HALF_WIDTH) & (np.abs(r + moved) >= HALF_WIDTH)
        above = np.where(same & (r > 0), moved, np.maximum(r + moved - HALF_WIDTH, 0.0) - np.maximum(r - HALF_WIDTH, 0.0))
        below = np.where(same & (r < 0), moved, np.minimum(r + moved + HALF_WIDTH, 0.0) - np.minimum(r + HALF_WIDTH, 0.0))
        return np.asarray(band + self.tau * above + (self.tau - 1) * below)

    def start(self, y: Vector) -> float:
        """Return the quantile."""
        return float(np.quantile(y, self.tau))

    def unit(self, y: Vector) -> float:
        """Return the median absolute deviation as a normal law's deviation, or the deviation itself where half of the responses are equal."""
        spread = 1.4826 * float(np.median(np.abs(y - np.median(y))))
        return spread or float(y.std()) or 1.0

    def log_normaliser(self, dispersion: float) -> float:
        """Return two exponential tails and a piece of a normal law."""
        tau, h, s = self.tau, HALF_WIDTH, math.sqrt(2 * HALF_WIDTH * dispersion)
        centre = h * (2 * tau - 1)
        tails = [math.log(dispersion / part) - part * h / dispersion for part in (tau, 1 - tau)]
        inner = float(ndtr((centre + h) / s) - ndtr((centre - h) / s))  # 0 lies between the two
        middle = -h * tau * (1 - tau) / dispersion + math.log(math.sqrt(2 * math.pi) * s) + math.log(inner)
        return float(np.logaddexp.reduce([*tails, middle]))
