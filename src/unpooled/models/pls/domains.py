"""Calibrations moved to a second instrument: domain-invariant PLS and direct standardisation, from released moments (THEORY.md, section 8)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError
from unpooled.kernels.noisy import noise_covariance, noise_level, psd_part
from unpooled.kernels.pls import Components, domain_pls, kernel_pls, relaxed
from unpooled.models.pls.components import (
    CONSTANT,
    NOISE,
    RIDGE,
    MomentsNoise,
    PlsFit,
    ResponseMoments,
    about_means,
    estimated_errors,
    first,
    folded,
    heard,
    most_components,
    nothing,
    repaired,
    sized,
)
from unpooled.models.pls.plan import CHOSEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from unpooled.kernels.pls import Centred
    from unpooled.linear.layout import MomentsLayout
    from unpooled.linear.moments import Moments
    from unpooled.models.pls.frame import Frame

    Matrix = NDArray[np.float64]

#: Penalties that are tried, as multiples of y'y over the largest eigenvalue of the difference of covariances.
PENALTIES = (0.0, 1.0, 10.0, 100.0, 1e3, 1e4)
#: Ridges that are tried, as parts of the largest eigenvalue of the Gram.
RIDGES = tuple(np.geomspace(1e-10, 1e2, 49).tolist())
#: Where the constant of a transferred model comes from.
TARGET, SOURCE, RESPONSES = "target", "source", "responses"


@dataclass(frozen=True)
class _Heard:
    """The source as it is believed: moments whose Gram is repaired and whose cross vector is that of the believed slopes."""

    found: ResponseMoments
    believed: Centred

    @classmethod
    def of(cls, moments: Moments) -> _Heard:
        found = heard(one_release(moments), CHOSEN)
        centred = found.centred
        if found.slopes is None or found.noise is None:
            return cls(found, centred)
        gram = repaired(centred.gram, found.noise)
        cross = gram @ found.slopes
        return cls(found, replace(centred, gram=gram, cross=cross, square=max(centred.square, float(found.slopes @ cross))))

    def errors(self, components: Components) -> Matrix:
        """Return the mean squared error on new rows of the source, up to a constant, for every number of components."""
        believed, b = self.believed, components.coefficients
        count = b.shape[1]
        if self.found.slopes is None:
            squares = estimated_errors(components, count, believed.gram, believed.gram, believed, None)
        else:
            left = b - self.found.slopes[:, None]
            squares = np.einsum("ik,ik->k", left, believed.gram @ left)
        return squares / believed.rows


def one_release(moments: Moments) -> Moments:
    """Refuse moments of rounds, whose rows are standardised and shortened by what the same data said."""
    if moments.frame.refined:
        raise UsageError('a transfer needs the moments of one release: fit with method="moments"')
    return moments


def alike(source: MomentsLayout, target: MomentsLayout) -> None:
    """Refuse moments of two domains in other coordinates."""
    if source.size != target.size:
        msg = f"the source has {source.size - 1} coordinates and the target {target.size - 1}: give both the same basis"
        raise UsageError(msg)
    if source.norm != target.norm or any(
        not np.array_equal(one, other)
        for one, other in ((source.half_widths, target.half_widths), (source.centres, target.centres))
    ):
        raise UsageError(
            "the bounds of source and target differ: rows that are clipped otherwise have other covariances. Declare the same"
        )


def adapted(
    source: Moments, target: Moments, frame: Frame, n_components: int | str, penalty: float | str, centre: str
) -> PlsFit:
    """Return domain-invariant PLS of a source with responses and a target's spectra.

    Of several penalties and numbers of components it takes those with the least source error plus b'|D|b, |D| the relaxed difference of the
    covariances: a bound on the error in the target as far as variances of predictions differ.
    """
    other, noise = about_means(one_release(target))
    alike(source.layout, target.layout)
    own = _Heard.of(source)
    believed, found = own.believed, own.found
    sized(believed, frame)
    spread, level = other.gram, 0.0
    if noise.gram.any():
        spread = repaired(spread, noise)
    quiet = found.noise is None and not noise.gram.any()
    if not quiet:
        known = np.zeros_like(noise.gram) if found.noise is None else found.noise.gram
        level = noise_level(known / believed.rows**2 + noise.gram / other.rows**2)
    mean, response = _centre(own, other, centre)
    centred = replace(believed, mean=mean)
    if not believed.cross.any():
        return nothing(centred, frame, response, CONSTANT if found.slopes is None else NOISE)
    apart = relaxed(believed.gram / believed.rows - spread / other.rows, level)
    largest = float(np.linalg.norm(apart, 2))
    unit = believed.square / largest if largest > 0 else 0.0
    tried = sorted({part * unit for part in PENALTIES}) if isinstance(penalty, str) else [float(penalty)]
    most = most_components(n_components, frame.size, believed.rows)
    best: tuple[float, Components] | None = None
    for each in tried:
        components = domain_pls(believed, spread, other.rows, each, most, level)
        kept = max(int(np.count_nonzero(components.y_loadings)), 1)
        components = first(components, kept)
        b = components.coefficients
        bounds = own.errors(components) + np.einsum("ik,ik->k", b, apart @ b)
        k = int(bounds.argmin()) if n_components == CHOSEN else kept - 1
        if best is None or bounds[k] < best[0]:
            best = float(bounds[k]), first(components, k + 1)
    assert best is not None
    components = best[1]
    return folded(components, components.coefficients[:, -1], centred, frame, response)


def _centre(own: _Heard, other: Centred, centre: str) -> tuple[Matrix, float]:
    """Return the mean spectrum (in coordinates) and the response that the constant makes go together."""
    if centre == SOURCE:
        return own.believed.mean, own.found.response
    return other.mean, other.response if centre == RESPONSES else own.found.response


def standardised(
    pairs: Centred, noise: MomentsNoise | None, start: Matrix, frame: Frame, n_components: int, ridge: float | None
) -> PlsFit:
    """Return the source's model carried to the target by paired samples: the coefficients F b of direct standardisation.

    ``pairs`` are moments of the target's spectra (in coordinates) and of the source model's predictions for the same samples on the source's
    instrument. F b is the ridge regression of one on the other, so no more of F is needed. It is shrunk toward ``start``: the source's own
    coefficients where both instruments have the same channels, as instruments that are alike have nearly F = I.
    """
    size, rows = sized(pairs, frame), pairs.rows
    gram = pairs.gram if noise is None else psd_part(pairs.gram)
    cross = pairs.cross - gram @ start
    square = max(pairs.square - 2 * float(pairs.cross @ start) + float(start @ gram @ start), 0.0)
    values, vectors = np.linalg.eigh(gram)
    values, turned = np.maximum(values, 0.0), vectors.T @ cross
    # Without noise, what eigenvalues of rounding size say is nothing.
    floor = values[-1] * 1e-12 if noise is None else RIDGE * noise_level(noise.gram)
    if ridge is None:
        ridge = _ridge(values, turned, square, rows, floor, lambda b: _met(start + vectors @ b, vectors, noise))
    solved = np.divide(
        turned, values + ridge, out=np.zeros(size), where=values > floor if ridge == 0 else values + ridge > 0
    )
    wanted = start + vectors @ solved
    kept = gram if noise is None else repaired(pairs.gram, noise)
    components = kernel_pls(kept, kept @ wanted, min(n_components, size, max(rows - 1, 1)))
    components = first(components, int(np.count_nonzero(components.y_loadings)))
    return folded(components, wanted, pairs, frame, pairs.response, "" if wanted.any() else CONSTANT)


def _met(coefficients: Matrix, vectors: Matrix, noise: MomentsNoise | None) -> Matrix | None:
    """Return the variances that noise gives to cross moments with what these coefficients leave, along these vectors."""
    if noise is None:
        return None
    covariance = noise_covariance(np.outer(coefficients, coefficients), noise.gram, noise.cross)
    return np.asarray(np.einsum("ij,ij->j", vectors, covariance @ vectors))


def _ridge(
    values: Matrix, turned: Matrix, square: float, rows: int, floor: float, met: Callable[[Matrix], Matrix | None]
) -> float:
    """Return the ridge with the least estimated error of predictions.

    Without noise by generalised cross-validation. With noise, of variances ``met`` in the cross moments with what coefficients leave, by the criterion of
    section 3: its optimism, and that of sampling by the size of the response itself.
    """
    best, found = np.inf, float("inf")
    for part in (*RIDGES, np.inf):
        each = floor + part * float(values[-1])
        weights = 1 / (values + each) if np.isfinite(each) else np.zeros_like(values)
        slopes = turned * weights
        left = square - 2 * float(turned @ slopes) + float(slopes**2 @ values)
        free, variances = float(values @ weights) + 1, met(slopes)
        if variances is None:
            error = max(left, 0.0) / max(1 - free / rows, 1e-3) ** 2
        else:
            error = left + 2 * float(variances @ weights) + 2 * free * square / rows
        if error < best:
            best, found = error, each
    return found
