r"""PRIDE's simulation (section D.1): two blocks of a Gaussian random field, one confounding the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Length scale at which the design has the paper's effective rank 2.1 and needs 3 and 5 components for 80 and 90 %.
LENGTH_SCALE = 11.3


@dataclass(frozen=True)
class ConfoundedField:
    """Standardised columns: first block X (``design[:, :block]``), then block C, each a row-major ``shape`` of grid points."""

    design: NDArray[np.float64]
    response: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    block: int
    shape: tuple[int, int]
    noise: float


def make_confounded_field(
    n_samples: int = 1000,
    *,
    side: int = 20,
    pairs: int = 20,
    components: int = 20,
    signal_to_noise: float = 0.75,
    decaying: bool = False,
    signs: str = "random",
    seed: int = 0,
) -> ConfoundedField:
    """Return a Gaussian random field on a square grid, halved into X and C; ``pairs`` times X_i <- X_i + C_j; y from the top components.

    The kernel is exp(-(r / 11.3)^2). The coefficients are the sum of the top principal components of the standardised design (with
    weights 1, or 1/k when ``decaying``). The sign of a component is arbitrary, and the size of the confounding depends on it: each
    component's largest entry is made positive, and then ``signs="random"`` draws a sign per component from the seed (an algorithm's
    own signs look like these), while ``signs="positive"`` leaves them. The noise gives |X b|^2 / |noise|^2 = ``signal_to_noise``.

    >>> field = make_confounded_field(100, side=6, pairs=3, components=4, seed=1)
    >>> field.design.shape, field.block, field.shape
    ((100, 36), 18, (3, 6))
    """
    if signs not in ("random", "positive"):
        msg = f"unknown signs {signs!r}: choose random or positive"
        raise UsageError(msg)
    rng = np.random.default_rng(seed)
    points = np.array([(i, j) for i in range(side) for j in range(side)], dtype=float)
    squared = ((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2)
    values, vectors = np.linalg.eigh(np.exp(-squared / LENGTH_SCALE**2))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    field = rng.standard_normal((n_samples, side * side)) @ root.T
    half = side * side // 2
    x, c = field[:, :half].copy(), field[:, half:]
    for i, j in zip(rng.choice(half, pairs, replace=False), rng.choice(half, pairs, replace=False), strict=True):
        x[:, i] += c[:, j]
    design = np.hstack([x, c])
    design = (design - design.mean(axis=0)) / design.std(axis=0)
    right = np.linalg.svd(design, full_matrices=False)[2][:components]
    right = right * np.sign(right[np.arange(components), np.abs(right).argmax(axis=1)])[:, None]
    if signs == "random":
        right = right * rng.choice([-1.0, 1.0], components)[:, None]
    weights = 1 / np.arange(1, components + 1) if decaying else np.ones(components)
    coefficients = weights @ right
    signal = design @ coefficients
    disturbance = rng.standard_normal(n_samples)
    noise = float(np.linalg.norm(signal) / np.linalg.norm(disturbance) / np.sqrt(signal_to_noise))
    return ConfoundedField(design, signal + noise * disturbance, coefficients, half, (side // 2, side), noise)
