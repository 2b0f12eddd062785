"""Simulated rows of several sites that one linear model serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Sites:
    """Rows, their response, the site of each, and the truth. Every value lies within the public bounds."""

    rows: NDArray[np.float64]
    response: Vector
    site: NDArray[np.str_]
    coefficients: Vector
    #: (low, high) of every column, and of the response.
    bounds: tuple[float, float]
    response_bounds: tuple[float, float]


def make_regression_sites(
    n_samples: int = 3000, n_features: int = 5, *, sites: int = 3, shift: float = 0.3, noise: float = 0.3, seed: int = 0
) -> Sites:
    """Row-split data: offices with their own rows, of different size, whose columns differ in their means by about ``shift``.

    Columns are normal with deviation 1/2, clipped to [-1, 1]; coefficients are normal and scaled so that their squares add up to 1; ``noise`` is the
    deviation of the response's noise; the response is clipped to [-4, 4]. Site k of K has about (k + 1) parts of K (K + 1) / 2 of the rows.

    >>> data = make_regression_sites(1000, 4)
    >>> data.rows.shape, sorted(set(data.site.tolist()))
    ((1000, 4), ['site0', 'site1', 'site2'])
    >>> import unpooled
    >>> bayes = unpooled.PrivateLinearRegression(bounds=data.bounds, y_bounds=data.response_bounds, random_state=0)
    >>> bayes.fit(data.rows, data.response, sites=data.site).coef_.shape
    (4,)
    """
    if n_features < 1 or sites < 1 or n_samples < 2 * sites or noise < 0:
        raise UsageError("make_regression_sites needs columns, sites with at least 2 rows each, and a noise of at least 0")
    rng = np.random.default_rng(seed)
    share = np.arange(1.0, sites + 1) / (sites * (sites + 1) / 2)
    # Two rows for every site, the others by chance.
    site = np.concatenate([np.repeat(np.arange(sites), 2), rng.choice(sites, n_samples - 2 * sites, p=share)])
    middle = shift * rng.normal(size=(sites, n_features))
    rows = np.clip(middle[site] + 0.5 * rng.normal(size=(n_samples, n_features)), -1, 1)
    coefficients = rng.normal(size=n_features)
    coefficients /= np.linalg.norm(coefficients)
    response = np.clip(rows @ coefficients + noise * rng.normal(size=n_samples), -4, 4)
    order = rng.permutation(n_samples)
    labels = np.array([f"site{k}" for k in site])
    return Sites(rows[order], response[order], labels[order], coefficients, (-1.0, 1.0), (-4.0, 4.0))
