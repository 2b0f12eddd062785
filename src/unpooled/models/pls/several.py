"""PLS2: several responses that share spectra, basis and components, from one release of their moments or from rounds (THEORY.md, sections 3b and C.5).

Each response says what it can as it would alone, under its noise; nothing where that is the prior. The components are those of all of them together, in units of their declared half ranges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.noisy import psd_part
from unpooled.kernels.pls import Centred, kernel_pls2
from unpooled.models.pls.components import (
    CONSTANT,
    LEFT,
    MOST,
    PlsFit,
    ResponseMoments,
    estimated_errors,
    folded,
    heard,
    most_components,
    repaired,
    sized,
)
from unpooled.models.pls.plan import CHOSEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.kernels.pls import Components
    from unpooled.linear.conversation import LinearStudy
    from unpooled.linear.moments import Moments
    from unpooled.models.pls.frame import Frame

    Matrix = NDArray[np.float64]

_NOTHING = "No response was learnt from the spectra, so each is given its mean: ask for a larger epsilon, more rows, or a smaller basis."


@dataclass(frozen=True)
class _Understood:
    """The target of one response: a cross vector in its own units, the unit, and the moments that limit the number of components."""

    one: ResponseMoments
    cross: Matrix
    unit: float


def from_several(moments: Sequence[Moments], frame: Frame, n_components: int | str) -> PlsFit:
    """Return the model of the released moments of several responses, which share the Gram of the spectra."""
    found = [heard(one, n_components) for one in moments]
    gram = penalised = found[0].centred.gram
    if found[0].noise is not None:
        gram, penalised = psd_part(gram), repaired(gram, found[0].noise)
    units = np.array([one.layout.response.half_width for one in moments])
    return _together(found, units, (gram, penalised), frame, n_components, MOST)


def of_studies(found: Sequence[LinearStudy], units: Matrix, rows: int, frame: Frame, n_components: int | str) -> PlsFit:
    """Return the components of the coefficients B that rounds of gradients found, a study for each response: those of (H, H B), which lead to B itself.

    H is that of the deviations by which coordinates were standardised, as if they were not correlated; ``units`` are those of the responses.
    """
    mean, gram = found[0].frame.centres[:-1], np.diag(found[0].frame.widths[:-1] ** 2)
    heard_of = []
    for one in found:
        b = one.fit.coef_
        response = one.fit.intercept_ + float(mean @ b)
        centred = Centred(rows, mean, response, gram, gram @ b, float(b @ gram @ b))
        heard_of.append(ResponseMoments(centred, None, response, b))
    return _together(heard_of, units, (gram, gram), frame, n_components, mean.size)


def _together(
    found: Sequence[ResponseMoments],
    units: Matrix,
    grams: tuple[Matrix, Matrix],
    frame: Frame,
    n_components: int | str,
    tried: int,
) -> PlsFit:
    """Return the components of all responses; ``grams`` are the Gram of the coordinates and the one that components are of."""
    (gram, penalised), centred = grams, found[0].centred
    size = sized(centred, frame)
    wants = [
        _Understood(one, penalised @ one.slopes if one.slopes is not None else one.centred.cross, float(unit))
        for one, unit in zip(found, units, strict=True)
    ]
    most = most_components(n_components, size, centred.rows, tried)
    cross = np.column_stack([want.cross / want.unit for want in wants])
    joint = kernel_pls2(penalised, cross, most)
    responses = np.array([one.response for one in found])
    if not joint.y_loadings.any():
        flat = np.zeros((size, len(wants)))
        return folded(_first(joint, 0), flat, centred, frame, responses, CONSTANT if found[0].slopes is None else _NOTHING)
    kept = most
    if n_components == CHOSEN:
        kept = _chosen(joint, wants, gram, penalised)
    joint = _first(joint, kept)
    coefficients = joint.coefficients[:, :, -1] * units
    return folded(replace(joint, y_loadings=joint.y_loadings * units[:, None]), coefficients, centred, frame, responses)


def _chosen(joint: Components, wants: Sequence[_Understood], gram: Matrix, penalised: Matrix) -> int:
    """Return the number of components with the smallest error of all responses, each in its unit; the fewest that are about as good."""
    count = int(np.count_nonzero(joint.y_loadings.any(axis=0)))
    total, explained = np.zeros(count), 0.0
    for k, want in enumerate(wants):
        own = replace(joint, coefficients=joint.coefficients[:, k] * want.unit)
        if want.one.slopes is None:
            errors = estimated_errors(own, count, gram, penalised, want.one.centred, want.one.noise)
        else:
            apart = own.coefficients[:, :count] - want.one.slopes[:, None]
            errors = np.einsum("ik,ik->k", apart, penalised @ apart)
            explained += float(want.one.slopes @ penalised @ want.one.slopes) / want.unit**2
        total += errors / want.unit**2
    return 1 + int(np.argmax(total <= total.min() + LEFT * explained))


def _first(joint: Components, count: int) -> Components:
    b, w, p, r = joint.coefficients, joint.weights, joint.loadings, joint.rotations
    return replace(
        joint,
        coefficients=b[:, :, :count],
        weights=w[:, :count],
        loadings=p[:, :count],
        rotations=r[:, :count],
        y_loadings=joint.y_loadings[:, :count],
    )
