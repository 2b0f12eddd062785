r"""edPLS as printed (Algorithm 1 of the paper) and as its package computes it: kept for comparison, no guarantee (THEORY.md, section 4).

Per component Gaussian noise goes to the normalised weights, the normalised scores, the loadings and the y loading, of the analytic scale
for (epsilon, delta) each, times bounds that are read off the deflated data: :math:`\max|f|\max|E_i|`, :math:`\max|E_i|`, :math:`\max|E_i|`, :math:`\max|f|`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy import noise
from unpooled.privacy.mechanisms.unpriced import Unpriced

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.mechanisms import Vector
    from unpooled.privacy.noise import RandomBits

    Matrix = NDArray[np.float64]

SIGMA, SQUARED = "sigma", "sigma^2"
#: Standard normals are rounded to this part of a deviation.
_FINE = 2.0**18


@dataclass(frozen=True)
class Layout:
    """Where things are in the flat vector of a model."""

    rows: int
    channels: int
    components: int

    @property
    def width(self) -> int:
        """Of one component: weights, scores, loadings, y loading."""
        return 2 * self.channels + self.rows + 1

    @property
    def size(self) -> int:
        """Of the whole: the components, the mean spectrum and the mean response."""
        return self.components * self.width + self.channels + 1

    def parts(self, flat: Matrix) -> tuple[Matrix, Matrix, Matrix, Matrix, Matrix, float]:
        """Weights, scores, loadings (a column per component), y loadings, mean spectrum, mean response."""
        m, n = self.channels, self.rows
        table = flat[: self.components * self.width].reshape(self.components, self.width)
        means = flat[self.components * self.width :]
        return table[:, :m].T, table[:, m : m + n].T, table[:, m + n : -1].T, table[:, -1], means[:m], float(means[m])


def components(X: Matrix, y: Matrix, layout: Layout) -> Matrix:
    """The exact model, flat, and behind it the bounds max|E_i| and max|f| of every component."""
    mean, middle = X.mean(axis=0), float(y.mean())
    E, f = X - mean, y - middle
    table, bounds = np.zeros((layout.components, layout.width)), np.zeros((layout.components, 2))
    m, n = layout.channels, layout.rows
    for k in range(layout.components):
        w = E.T @ f
        w /= np.linalg.norm(w) or 1.0
        w *= np.sign(w[np.abs(w).argmax()])
        t = E @ w
        t /= np.linalg.norm(t) or 1.0
        p, c = E.T @ t, float(f @ t)
        bounds[k] = np.linalg.norm(E, axis=1).max(), np.abs(f).max()
        table[k, :m], table[k, m : m + n], table[k, m + n : -1], table[k, -1] = w, t, p, c
        E, f = E - np.outer(t, p), f - c * t
    return np.concatenate([table.ravel(), mean, [middle], bounds.ravel()])


def coefficients(weights: Matrix, loadings: Matrix, y_loadings: Matrix) -> Matrix:
    """Equation (1): b = W (P^T W)^-1 c; a combination that noise made singular is solved by least squares."""
    inside = loadings.T @ weights
    return np.asarray(weights @ np.linalg.lstsq(inside, y_loadings, rcond=None)[0])


@dataclass(frozen=True, slots=True)
class PublishedModel(Unpriced):
    """The paper's noise on every component. Its bounds are read off the data and its argument fails: the cost is unknown."""

    layout: Layout
    #: The analytic scale for sensitivity 1; 0 is no noise.
    multiplier: float
    #: "sigma" is the paper's standard deviation, "sigma^2" that of the authors' package.
    sd: str
    name: ClassVar[str] = "published Gaussian"

    @property
    def size(self) -> int:
        """How many numbers are published."""
        return self.layout.size

    def draw(self, given: Vector, bits: RandomBits) -> Matrix:
        """Noise in the order of Algorithm 1: weights and scores are normalised again after it."""
        lay, statistic = self.layout, given.values
        if statistic.shape != (lay.size + 2 * lay.components,):
            msg = (
                f"this release is of {lay.size} numbers, with two bounds for each of {lay.components} components behind them"
            )
            raise UsageError(msg)
        published, bounds = statistic[: lay.size].copy(), statistic[lay.size :].reshape(-1, 2)
        table = published[: lay.components * lay.width].reshape(lay.components, lay.width)
        z = noise.rounded_gaussian(_FINE, table.size, stream=bits).reshape(table.shape) / _FINE
        m, n = lay.channels, lay.rows
        x, y = bounds.T
        table += self._deviation(np.repeat([x * y, x, x, y], [m, n, m, 1], axis=0).T) * z
        for part in (table[:, :m], table[:, m : m + n]) if self.multiplier else ():
            np.divide(part, np.maximum(np.linalg.norm(part, axis=1, keepdims=True), np.finfo(float).tiny), out=part)
        return published

    def _deviation(self, sensitivity: Matrix) -> Matrix:
        sigma = self.multiplier * sensitivity
        return sigma if self.sd == SIGMA else sigma**2
