"""A basis from public spectra in which every coordinate has deviation 1: so noise that is equal everywhere costs each the same part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Matrix = NDArray[np.float64]


def whitened(public: ArrayLike, variance: float = 0.999, most: int = 12) -> tuple[Matrix, Matrix, float]:
    """Return (basis, reference, R) of public spectra, for ``PrivatePLSRegression(basis=..., reference=..., bounds=Bounds(norm=R))`` (Theorem C.3).

    The basis has the loadings that hold ``variance`` of the public spectra's variance (at most ``most``), each divided by its scores'
    deviation; at least three public spectra stand behind each of them. The reference is their mean, R the length that 95 % of new spectra are
    expected to stay below in these coordinates.

    Parameters
    ----------
    public : array of shape (spectra, channels)
        Spectra that are nobody's secret, preprocessed as the private ones will be.
    variance : float, default 0.999
        The part of their variance that is kept: a direction beyond is mostly noise, which whitening would make as loud as the rest.
    most : int, default 12
        The most directions.

    Examples
    --------
    >>> from unpooled.datasets import make_spectra
    >>> public = make_spectra(60, kind="corn", seed=1).spectra
    >>> basis, reference, norm = whitened(public)
    >>> scores = (public - reference) @ basis
    >>> scores.std(axis=0).round(6).tolist() == [1.0] * basis.shape[1]
    True

    """
    spectra = np.asarray(public, dtype=np.float64)
    if spectra.ndim != 2 or spectra.shape[0] < 3 or not np.isfinite(spectra).all():  # noqa: PLR2004
        raise UsageError("whitening needs at least three public spectra of finite numbers, a row for each")
    if not 0 < variance <= 1 or most < 1:
        raise UsageError("variance is a part, above 0 and at most 1, and most at least 1")
    reference = spectra.mean(axis=0)
    _, values, loadings = np.linalg.svd(spectra - reference, full_matrices=False)
    squares = values**2
    if not squares[0] > 0:
        raise UsageError("the public spectra are all the same: there is no direction to keep")
    enough = int(np.searchsorted(np.cumsum(squares) / squares.sum(), variance * (1 - 1e-12))) + 1
    # The deviation of a direction that few spectra have chosen is too small for others, which would be far out.
    count = min(enough, most, max(spectra.shape[0] // 3, 1), int(np.count_nonzero(values > 1e-8 * values[0])))
    basis = loadings[:count].T * (np.sqrt(spectra.shape[0]) / values[:count])
    lengths = np.linalg.norm((spectra - reference) @ basis, axis=1)
    # New spectra are farther out than those that chose mean and directions: Student's factor, large where there are few.
    rows = spectra.shape[0]
    farther = float(np.sqrt(rows / max(rows - count - 2, 1)))
    return basis, reference, float(np.quantile(lengths, 0.95)) * farther
