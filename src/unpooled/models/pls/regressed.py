"""Components of coefficients that rounds of regression found: post-processing of what they released (THEORY.md, section 3b)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.noisy import noise_level, psd_part
from unpooled.kernels.pls import Centred
from unpooled.linear.fit import plain
from unpooled.models.pls.components import (
    NOISE,
    RIDGE,
    components_of,
    from_moments,
    nothing,
    numbers,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.linear.conversation import LinearStudy
    from unpooled.linear.fit import LinearFit
    from unpooled.linear.moments import Moments
    from unpooled.models.pls.components import PlsFit
    from unpooled.models.pls.frame import Frame

    Matrix = NDArray[np.float64]


def of_study(found: LinearStudy, rows: int, frame: Frame, n_components: int | str) -> PlsFit:
    """Return the components of the coefficients b of rounds: those of (H, H b), which lead to b itself.

    H is the Gram of the last round, repaired. Where the rounds released gradients alone, it is that of the deviations by which coordinates
    were standardised, as if they were not correlated.
    """
    gram = np.eye(found.frame.widths.size - 1) if found.moments is None else _centred_gram(found.moments)
    return _of(found.fit, found.frame.widths[:-1], found.frame.centres[:-1], gram, rows, frame, n_components)


def of_released(moments: Moments, frame: Frame, n_components: int | str) -> PlsFit:
    """Return the model of released moments, of rounds or of one release."""
    if not moments.frame.refined:
        return from_moments(moments, frame, n_components)
    return of_refined(moments, plain(moments.posterior()), frame, n_components)


def of_refined(moments: Moments, fit: LinearFit, frame: Frame, n_components: int | str) -> PlsFit:
    """Return the components of a regression on the moments of rounds."""
    numbers(moments.layout)
    widths, centres = moments.frame.widths[:-1], moments.frame.centres[:-1]
    return _of(fit, widths, centres, _centred_gram(moments), moments.rows, frame, n_components)


def _centred_gram(moments: Moments) -> Matrix:
    """Return the Gram of standardised coordinates about their mean, repaired; its size is that of the shortened rows."""
    gram, variance = moments.xx
    inner = gram[:-1, :-1] - np.outer(gram[:-1, -1], gram[:-1, -1]) / max(float(gram[-1, -1]), 1e-300)
    return psd_part(inner) + RIDGE * noise_level(variance[:-1, :-1]) * np.eye(inner.shape[0])


def _of(
    fit: LinearFit, widths: Matrix, mean: Matrix, gram: Matrix, rows: int, frame: Frame, n_components: int | str
) -> PlsFit:
    gram = gram * np.outer(widths, widths)
    response = fit.intercept_ + float(mean @ fit.coef_)
    centred = Centred(rows, mean, response, gram, gram @ fit.coef_, float(fit.coef_ @ gram @ fit.coef_))
    if not fit.coef_.any():
        return nothing(centred, frame, response, NOISE)
    # As many as lead to b: deviations alone tell less of where to begin than a Gram does.
    return components_of(centred, frame, n_components, gram, fit.coef_, response, tried=mean.size)
