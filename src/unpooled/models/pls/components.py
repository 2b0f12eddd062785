"""Fit of a PLS model to released moments: repair, choice of components, fallback. Everything here is post-processing (THEORY.md, section 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtri

from unpooled.errors import UsageError
from unpooled.kernels.noisy import noise_covariance, noise_level, psd_part
from unpooled.kernels.pls import Centred, Components, kernel_pls
from unpooled.kernels.posterior import NoisyMoments
from unpooled.linear.layout import Geometry
from unpooled.models.pls.declared import CHOSEN
from unpooled.schedules import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.linear.layout import MomentsLayout
    from unpooled.linear.moments import Moments
    from unpooled.models.pls.spectra import Frame

    Matrix = NDArray[np.float64]


# --- Posterior -------------------------------------------------------------------------------------------------------------
# Coefficients where the signal is about as large as the noise: a posterior that knows the noise, averaged over priors (THEORY.md, section 3).

_TUNED = table("pls")
#: How many principal directions may have slopes, and the deviations of their priors: of standardised directions, and of directions as they are.
COUNTS = tuple(map(int, _TUNED.several("counts")))
SLOPES = tuple(np.geomspace(*_TUNED.pair("slopes"), 4).tolist())
STEEP = tuple(np.geomspace(*_TUNED.pair("steep_slopes"), 4).tolist())
#: The prior variance of the others' slopes, as a part: none, for what is inverted.
NO_SLOPE = 1e-8


def posterior(moments: Moments) -> tuple[Matrix, float, bool]:
    """Return (slopes, constant, whether anything was learnt) of the coded response on coded coordinates and a constant.

    The constant is a column like the others, with a prior of its own: so the noise of means is known to the posterior, which centred moments
    would hide. Coordinates are turned to the principal directions of the noisy Gram, which leaves the law of its noise what it is
    (equal variances, half off the diagonal). Priors let the first k directions have slopes, equal ones for directions of
    deviation 1 or for directions as they are; all are averaged by their evidence, which is that of the cross moments given the Gram.
    """
    p = moments.layout.size - 1
    gram, variance, rows = moments.gram, moments.variance, moments.rows
    middle = gram[p, :p] / rows
    noise = math.sqrt(float(variance.diagonal()[:p].max())) / rows
    values, vectors = np.linalg.eigh(gram[:p, :p] / rows - np.outer(middle, middle))
    values, vectors = np.maximum(values[::-1], noise), vectors[:, ::-1]
    # Beyond the last direction that may have a slope there is nothing to learn: those moments are left out, which hundreds of channels need.
    size = min(p, COUNTS[-1])
    values, vectors, kept = values[:size], vectors[:, :size], [*range(size), p]
    turn = np.zeros((p + 1, size + 1))
    turn[:p, :size], turn[p, size] = vectors, 1.0
    known = NoisyMoments(
        turn.T @ gram[: p + 1, : p + 1] @ turn,
        turn.T @ gram[: p + 1, -1],
        variance[np.ix_(kept, kept)],
        variance[kept, -1],
        rows,
    )
    # No smaller than its own noise.
    response = max(gram[-1, -1] / rows - (gram[p, -1] / rows) ** 2, math.sqrt(variance[-1, -1]) / rows, 1e-3)
    priors = []
    for count in sorted({min(count, size) for count in COUNTS}):
        few = np.full(size, NO_SLOPE)
        few[:count] = 1.0
        flat = 1 / values[:count].mean()
        priors += [tau**2 * response * few / values for tau in SLOPES]
        if values[0] > 2 * values[count - 1]:
            priors += [tau**2 * response * few * flat for tau in STEEP]
    # A tenth as much belief in no slopes at all: of declared shapes, more of it cost more than it saved (THEORY.md, section 3).
    priors += [np.full(size, NO_SLOPE)] * math.ceil(len(priors) / 10)
    found = known.averaged(float(gram[-1, -1]), [np.append(prior, _TUNED.mean_prior**2) for prior in priors])
    slopes = vectors @ found.mean[:size]
    learnt = float(slopes @ psd_part(gram[:p, :p]) @ slopes) / rows > _TUNED.learnt * response
    return slopes, float(found.mean[size]), learnt


# --- Components ------------------------------------------------------------------------------------------------------------
# Fit of a PLS model to released moments: repair, choice of components, fallback. Everything here is post-processing (THEORY.md, section 3).

#: Ridge in units of the noise level of the Gram (`THEORY.md`, section 3).
RIDGE = _TUNED.ridge
#: Most components that are tried.
MOST = _TUNED.whole("components_most")
#: The chosen number of components leaves at most this part of the posterior's fitted variance.
LEFT = _TUNED.left
NOISE = (
    "The released moments tell nothing of how the response goes with the spectra (the posterior is the prior), so every spectrum is given "
    "the response's mean: ask for a larger epsilon, more rows, a smaller basis, or tighter bounds."
)
CONSTANT = "The response does not vary with the spectra, so every spectrum is given its mean."


@dataclass(frozen=True)
class PlsFit:
    """A PLS model of spectra: directions over channels, one column per component. Of several responses coefficients have a column for each."""

    coefficients: Matrix
    intercept: float | Matrix
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
        """Return the number of components."""
        return int(self.y_loadings.shape[-1])


@dataclass(frozen=True)
class MomentsNoise:
    """Variances of the noise on the centred moments."""

    gram: Matrix
    cross: Matrix


@dataclass(frozen=True)
class ResponseMoments:
    """The moments of one response: centred moments, their noise (None: none), and with noise the coefficients believed under it."""

    centred: Centred
    noise: MomentsNoise | None
    #: The mean of the response.
    response: float
    #: Coefficients of coordinates, zero where nothing was learnt; None where there is no noise, and PLS is what the moments say.
    slopes: Matrix | None = None


def about_means(moments: Moments) -> tuple[Centred, MomentsNoise]:
    """Return the moments of one release about their means, in the units of coordinates, and the variances of their noise."""
    layout = moments.layout
    if layout.geometry is not Geometry.AUGMENTED:
        raise UsageError("PLS needs moments with sums and squares of the response: release them with geometry = 'augmented'")
    numbers(layout)
    p, one, y = layout.size - 1, layout.size - 1, layout.size
    gram, variance, rows = moments.gram, moments.variance, moments.rows
    mean, middle = gram[:p, one] / rows, float(np.clip(gram[one, y] / rows, -1, 1))
    # Noise can take a mean out of the bounds.
    mean = mean * min(1.0, 1 / max(float(np.linalg.norm(mean)), 1e-300)) if layout.norm else np.clip(mean, -1, 1)
    width, height, centre = layout.half_widths[:p], layout.response.half_width, layout.response.centre
    centred = Centred(
        rows,
        width * mean + layout.centres[:p],
        height * middle + centre,
        (gram[:p, :p] - rows * np.outer(mean, mean)) * np.outer(width, width),
        (gram[:p, y] - rows * mean * middle) * width * height,
        (gram[y, y] - rows * middle**2) * height**2,
    )
    sums, total = variance[:p, one], variance[one, y]
    cross = variance[:p, y] + middle**2 * sums + mean**2 * total + sums * total / rows
    noise = MomentsNoise(variance[:p, :p] * np.outer(width, width) ** 2, cross * (width * height) ** 2)
    return centred, noise


def heard(moments: Moments, n_components: int | str) -> ResponseMoments:
    """Return the moments about their means, and how they are to be read.

    Where the cross moments stand clear of the noise, what is believed is a mean of the posterior's coefficients and of those of PLS on the
    moments themselves: each is better on some data, and the mean has neither's large errors. The clearer, the less of the posterior
    (THEORY.md, section 3a).
    """
    centred, noise = about_means(moments)
    layout, p = moments.layout, moments.layout.size - 1
    width, height, centre = layout.half_widths[:p], layout.response.half_width, layout.response.centre
    mean = (centred.mean - layout.centres[:p]) / width
    if not noise.cross.any():
        return ResponseMoments(centred, None, centred.response)
    slopes, constant, learnt = posterior(moments)
    # What components leave of the slopes, the mean of the response keeps.
    response = centre + height * (constant + float(slopes @ mean) * learnt)
    slopes = height / width * slopes * learnt
    above = float((centred.cross**2 / noise.cross).sum() / chdtri(p, _TUNED.chance))
    if above > 1:
        _, found = chosen(centred, n_components, noise)
        part = min(0.5, _TUNED.fading / above)
        response = part * response + (1 - part) * centred.response
        slopes = part * slopes + (1 - part) * found.coefficients[:, -1]
    return ResponseMoments(centred, noise, response, slopes)


def numbers(layout: MomentsLayout) -> None:
    """Refuse moments without a constant, and those of anything but numbers."""
    if not layout.intercept:
        raise UsageError("PLS needs moments with sums: release them with an intercept")
    if len(layout.half_widths) != len(layout.features) + 1 or any(c.categories is not None for c in layout.features):
        raise UsageError(
            "PLS needs moments of numbers: categories and indicators of missing values have no place in a spectrum"
        )


def from_moments(moments: Moments, frame: Frame, n_components: int | str) -> PlsFit:
    """Return the model of released moments of coordinates."""
    found = heard(moments, n_components)
    if found.slopes is None:
        return fit(found.centred, frame, n_components)
    assert found.noise is not None
    if not found.slopes.any():
        return nothing(found.centred, frame, found.response, NOISE)
    gram = repaired(found.centred.gram, found.noise)
    return components_of(found.centred, frame, n_components, gram, found.slopes, found.response)


def components_of(
    centred: Centred,
    frame: Frame,
    n_components: int | str,
    gram: Matrix,
    wanted: Matrix,
    response: float,
    tried: int = MOST,
) -> PlsFit:
    """Return the PLS components of a linear model b: those of the moments (H, H b), H the repaired Gram, which lead to b itself."""
    size = sized(centred, frame)
    most = most_components(n_components, size, centred.rows, tried)
    found = kernel_pls(gram, gram @ wanted, most)
    kept = most
    if n_components == CHOSEN:
        kept = int(np.count_nonzero(found.y_loadings))
        apart = found.coefficients[:, :kept] - wanted[:, None]
        near = np.einsum("ik,ik->k", apart, gram @ apart) <= LEFT * float(wanted @ gram @ wanted)
        kept = 1 + int(np.argmax(near)) if near.any() else kept
    return _alone(first(found, kept), centred, frame, response)


def repaired(gram: Matrix, noise: MomentsNoise) -> Matrix:
    """Return the Gram without its negative eigenvalues, with a ridge in units of its noise."""
    return psd_part(gram) + RIDGE * noise_level(noise.gram) * np.eye(gram.shape[0])


def fit(centred: Centred, frame: Frame, n_components: int | str) -> PlsFit:
    """PLS on exact centred moments of coordinates."""
    sized(centred, frame)
    anything, found = chosen(centred, n_components, None)
    return (
        _alone(found, centred, frame, centred.response) if anything else nothing(centred, frame, centred.response, CONSTANT)
    )


def chosen(centred: Centred, n_components: int | str, noise: MomentsNoise | None) -> tuple[bool, Components]:
    """PLS on centred moments whose noise (if any) has known variances and is smaller than the signal; and whether there is a component.

    1. The Gram loses its negative eigenvalues and gains a ridge of 0.3 noise levels.
    2. "cv" takes the k that minimises an estimate of the squared error on new rows: b'Sb - 2 b's, plus 2 tr((W'HW)^-1 W'CW) for the privacy
       noise C = Cov(e - N b) that a fit in the span of W turns into optimism, plus 2 k times the residual variance (Mallows).
    """
    gram = penalised = centred.gram
    if noise is not None:
        gram, penalised = psd_part(gram), repaired(gram, noise)
    most = most_components(n_components, centred.cross.size, centred.rows)
    found = kernel_pls(penalised, centred.cross, most)
    kept = int(np.count_nonzero(found.y_loadings)) if n_components == CHOSEN else most
    anything = bool(found.y_loadings.any())
    if n_components == CHOSEN and anything:
        kept = 1 + int(estimated_errors(found, kept, gram, penalised, centred, noise).argmin())
    return anything, first(found, kept)


def estimated_errors(
    found: Components, count: int, gram: Matrix, penalised: Matrix, centred: Centred, noise: MomentsNoise | None
) -> Matrix:
    """Return the criterion of :func:`fit` for 1 .. count components."""
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


def sized(centred: Centred, frame: Frame) -> int:
    """Return the number of coordinates, which the basis and the moments agree on."""
    if frame.size != centred.cross.size:
        msg = f"moments of {centred.cross.size} coordinates do not fit a basis of {frame.size}: give the basis they were released in"
        raise UsageError(msg)
    return frame.size


def most_components(n_components: int | str, size: int, rows: int, tried: int = MOST) -> int:
    """Return the number of components that are asked for, or the most that are tried."""
    most = min(tried, size, max(rows - 1, 1)) if n_components == CHOSEN else int(n_components)
    if most > size:
        msg = f"n_components = {most} with {size} coordinates: ask for fewer, or enlarge the basis"
        raise UsageError(msg)
    return most


def first(found: Components, count: int) -> Components:
    """Return the first components alone."""
    b, w, p, r = (part[:, :count] for part in (found.coefficients, found.weights, found.loadings, found.rotations))
    return Components(b, w, p, r, found.y_loadings[:count])


def nothing(centred: Centred, frame: Frame, response: float, why: str) -> PlsFit:
    """No component at all."""
    size = sized(centred, frame)
    return _alone(kernel_pls(centred.gram, np.zeros(size), 0), centred, frame, response, why)


def _alone(found: Components, centred: Centred, frame: Frame, response: float, fallback: str = "") -> PlsFit:
    """Return the model of one response."""
    own = found.coefficients[:, -1] if found.y_loadings.size else np.zeros(frame.size)
    return folded(found, own, centred, frame, response, fallback)


def folded(
    found: Components, own: Matrix, centred: Centred, frame: Frame, response: float | Matrix, fallback: str = ""
) -> PlsFit:
    """Return the fit mapped from coordinates to channels: coef = B b; spectra (mean, loadings) by B (B'B)^-1, which preserves scores."""
    coefficients = frame.channels(own)
    mean = frame.reference + frame.spectra(centred.mean)
    intercept = np.asarray(response - frame.reference @ coefficients - centred.mean @ own)
    w, p, r = frame.channels(found.weights), frame.spectra(found.loadings), frame.channels(found.rotations)
    return PlsFit(coefficients, intercept if own.ndim > 1 else float(intercept), w, p, r, found.y_loadings, mean, fallback)
