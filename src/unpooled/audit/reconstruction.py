r"""Reconstruction of the others' spectra from a model that data holders share: the attack of the edPLS paper, its Eq. (5), as a number.

A holder fits PLS to its own rows and takes out of the shared model's weights (or loadings) whatever its own weights span:
:math:`u=(I-VV^T)w`, V an orthonormal basis of its own. A band that only the others' spectra have stays, and stands out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Reconstruction:
    """The result of an attack."""

    #: Height at the band over the root mean square of the other channels; the largest over the components.
    prominence: float
    #: The component in which it stands out most, from 0.
    component: int
    #: What is left of every component of the shared model (a column each), of length 1.
    directions: Matrix


def reconstruction(shared: ArrayLike, own: ArrayLike, band: int, *, width: int = 3) -> Reconstruction:
    """Attack the directions ``shared`` (channels x components) of a model with one's ``own``, and look at channel ``band``.

    ``width`` channels to either side of the band are no background. A prominence around 1 is noise; a model that gives the others' band
    away has one far above.

    >>> shared, own = np.eye(50)[:, [10, 30]], np.eye(50)[:, [10]]
    >>> reconstruction(shared + 0.01, own, band=30).component
    1
    """
    shared, own = np.array(shared, dtype=np.float64), np.asarray(own, dtype=np.float64)
    if shared.ndim != 2 or own.ndim != 2 or shared.shape[0] != own.shape[0] or not 0 <= band < shared.shape[0]:  # noqa: PLR2004
        raise UsageError("shared and own are channels x components over the same channels, and the band is one of them")
    if not shared.shape[1]:  # a model that fell back to a constant shows nothing
        return Reconstruction(0.0, 0, shared)
    basis, _ = np.linalg.qr(own)
    left = shared - basis @ (basis.T @ shared)
    left /= np.maximum(np.linalg.norm(left, axis=0), np.finfo(float).tiny)
    background = np.abs(np.arange(shared.shape[0]) - band) > width
    level = np.sqrt(np.mean(np.square(left[background]), axis=0))
    heights = np.abs(left[band]) / np.maximum(level, np.finfo(float).tiny)
    best = int(heights.argmax())
    return Reconstruction(float(heights[best]), best, left)


__all__ = ["Reconstruction", "reconstruction"]
