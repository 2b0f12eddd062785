"""From released moments to a PLS model: repair, choice of components, fallback. Everything here is post-processing (THEORY.md, section 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.layout import Geometry
from unpooled.errors import UsageError
from unpooled.kernels.kernel_pls import Centred, Components, kernel_pls
from unpooled.kernels.noisy_gram import noise_covariance, noise_level, psd_part
from unpooled.models.pls.plan import CHOSEN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.aggregation.moments import Moments
    from unpooled.models.pls.frame import Frame

    Matrix = NDArray[np.float64]

#: Ridge in units of the noise level of the Gram (`THEORY.md`, section 3).
RIDGE = 0.3
#: Most components that are tried.
MOST = 12
_NOISE = (
    "The released covariance of spectra and response is not larger than its noise, so every spectrum is given the middle of the declared "
    "range of the response: ask for a larger epsilon, more rows, a smaller basis, or tighter bounds."
)
_CONSTANT = "The response does not vary with the spectra, so every spectrum is given its mean."


@dataclass(frozen=True)
class PlsFit:
    """A PLS model of spectra: directions over channels, one column per component."""

    coefficients: Matrix
    intercept: float
    weights: Matrix
    loadings: Matrix
    rotations: Matrix
    y_loadings: Matrix
    #: The mean spectrum, as far as coordinates tell it.
    mean: Matrix
    #: Why there is no component at all; empty where there is one.
    fallback: str = ""

    @property
    def components(self) -> int:
        """How many."""
        return int(self.y_loadings.size)


@dataclass(frozen=True)
class _Noise:
    """Variances of the noise on the centred moments."""

    gram: Matrix
    cross: Matrix


def from_moments(moments: Moments, frame: Frame, n_components: int | str) -> PlsFit:
    """The model of released moments of coordinates."""
    layout = moments.layout
    if layout.geometry is not Geometry.AUGMENTED or not layout.intercept:
        raise UsageError("PLS needs moments with sums and squares of the response: release them with geometry = 'augmented'")
    if len(layout.half_widths) != len(layout.features) + 1 or any(c.categories is not None for c in layout.features):
        raise UsageError(
            "PLS needs moments of numbers: categories and indicators of missing values have no place in a spectrum"
        )
    p, one, y = layout.size - 1, layout.size - 1, layout.size
    gram, variance, rows = moments.gram, moments.variance, moments.rows
    mean, middle = gram[:p, one] / rows, float(np.clip(gram[one, y] / rows, -1, 1))
    # Noise can take a mean out of the bounds.
    mean = mean * min(1.0, 1 / max(float(np.linalg.norm(mean)), 1e-300)) if layout.norm else np.clip(mean, -1, 1)
    width, height = layout.half_widths[:p], layout.response.half_width
    centred = Centred(
        rows,
        width * mean + layout.centres[:p],
        height * middle + layout.response.centre,
        (gram[:p, :p] - rows * np.outer(mean, mean)) * np.outer(width, width),
        (gram[:p, y] - rows * mean * middle) * width * height,
        (gram[y, y] - rows * middle**2) * height**2,
    )
    sums, total = variance[:p, one], variance[one, y]
    cross = variance[:p, y] + middle**2 * sums + mean**2 * total + sums * total / rows
    noise = _Noise(variance[:p, :p] * np.outer(width, width) ** 2, cross * (width * height) ** 2)
    return fit(centred, frame, n_components, noise if noise.cross.any() else None, layout.response.centre)


def fit(
    centred: Centred, frame: Frame, n_components: int | str, noise: _Noise | None = None, public_mean: float = 0.0
) -> PlsFit:
    """PLS on centred moments of coordinates, whose noise (if any) has known variances.

    1. The Gram loses its negative eigenvalues and gains a ridge of 0.3 noise levels.
    2. Where sum s_j^2/v_j over the cross vector s is at most D + 2 sqrt(2 D), what noise alone may reach, the model is the public mean.
    3. "cv" takes the k that minimises an estimate of the squared error on new rows: b'Sb - 2 b's, plus 2 tr((W'HW)^-1 W'CW) for the privacy
       noise C = Cov(e - N b) that a fit in the span of W turns into optimism, plus 2 k times the residual variance (Mallows).
    """
    if frame.size != centred.cross.size:
        msg = f"moments of {centred.cross.size} coordinates do not fit a basis of {frame.size}: give the basis they were released in"
        raise UsageError(msg)
    size, rows = frame.size, centred.rows
    gram = penalised = centred.gram
    if noise is not None:
        signal = float((centred.cross**2 / noise.cross).sum())
        if signal <= size + 2 * math.sqrt(2 * size):
            return _folded(kernel_pls(gram, np.zeros(size), 0), centred, frame, public_mean, _NOISE)
        gram = psd_part(gram)
        penalised = gram + RIDGE * noise_level(noise.gram) * np.eye(size)
    most = min(MOST, size, max(rows - 1, 1)) if n_components == CHOSEN else int(n_components)
    if most > size:
        msg = f"n_components = {most} with {size} coordinates: ask for fewer, or enlarge the basis"
        raise UsageError(msg)
    found = kernel_pls(penalised, centred.cross, most)
    kept = np.count_nonzero(found.y_loadings) if n_components == CHOSEN else most
    if not found.y_loadings.any():
        return _folded(kernel_pls(gram, np.zeros(size), 0), centred, frame, centred.response, _CONSTANT)
    if n_components == CHOSEN:
        kept = 1 + int(_estimated_errors(found, int(kept), gram, penalised, centred, noise).argmin())
    return _folded(_first(found, int(kept)), centred, frame, centred.response)


def _estimated_errors(
    found: Components, count: int, gram: Matrix, penalised: Matrix, centred: Centred, noise: _Noise | None
) -> Matrix:
    """The criterion of :func:`fit` for 1 .. count components."""
    b = found.coefficients[:, :count]
    inside = centred.square - 2 * (centred.cross @ b) + np.einsum("ik,ik->k", b, gram @ b)
    residual = max(float(inside.min()), 0.0) / max(centred.rows - count - 1, 1)
    errors = inside + 2 * residual * np.arange(1, count + 1)
    for k in range(count if noise is not None else 0):
        assert noise is not None
        W = found.weights[:, : k + 1]
        covariance = noise_covariance(np.outer(b[:, k], b[:, k]), noise.gram, noise.cross)
        errors[k] += 2 * np.trace(np.linalg.solve(W.T @ penalised @ W, W.T @ covariance @ W))
    return np.asarray(errors)


def _first(found: Components, count: int) -> Components:
    b, w, p, r = (part[:, :count] for part in (found.coefficients, found.weights, found.loadings, found.rotations))
    return Components(b, w, p, r, found.y_loadings[:count])


def _folded(found: Components, centred: Centred, frame: Frame, response: float, fallback: str = "") -> PlsFit:
    """From coordinates back to channels: coef = B b, and the intercept takes up reference and means."""
    own = found.coefficients[:, -1] if found.y_loadings.size else np.zeros(frame.size)
    coefficients = frame.channels(own)
    mean = frame.reference + frame.channels(centred.mean)
    intercept = response - float(frame.reference @ coefficients) - float(centred.mean @ own)
    w, p, r = (frame.channels(part) for part in (found.weights, found.loadings, found.rotations))
    return PlsFit(coefficients, intercept, w, p, r, found.y_loadings, mean, fallback)
