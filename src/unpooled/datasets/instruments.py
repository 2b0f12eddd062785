"""Simulated spectra of the same samples on two instruments, for calibration transfer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.datasets.spectra import BASE, CHANNELS, SLOPE, WEIGHTS, bumps, concentrations, scattered
from unpooled.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Instruments:
    """Samples that two instruments measured, a row for each: row i of both arrays is the same sample."""

    #: Spectra of the instrument that the calibration was made for, and of the second one.
    source: Matrix
    target: Matrix
    response: NDArray[np.float64]


def make_instruments(
    n_samples: int = 200,
    *,
    shift: float = 3.0,
    gain: float = 1.05,
    baseline: float = 0.03,
    interferent: float = 0.01,
    seed: int = 0,
    pure_seed: int = 0,
) -> Instruments:
    """Return near-infrared-like spectra of the same samples on two instruments.

    The chemistry is that of ``make_spectra(kind="corn")``: 700 channels, four components drawn from ``pure_seed``, the response is the first
    concentration (mean 10, deviation 0.4). Both instruments see scatter and noise of their own. The second one has its wavelengths ``shift``
    channels off, multiplies by ``gain``, adds ``baseline``, and sees a fifth component, of normal amounts with mean and deviation ``interferent``,
    that the first one does not see.

    >>> data = make_instruments(20)
    >>> data.source.shape, data.target.shape, data.response.shape
    ((20, 700), (20, 700), (20,))
    """
    if n_samples < 1 or not all(np.isfinite([shift, gain, baseline, interferent])) or gain <= 0:
        raise UsageError("make_instruments needs at least 1 sample, finite numbers, and a gain above 0")
    rng, axis = np.random.default_rng(seed), np.linspace(0, 1, CHANNELS)
    amounts = concentrations(n_samples, rng)
    foreign = interferent * (1 + rng.normal(size=(n_samples, 1)))

    def clean(places: Matrix) -> tuple[Matrix, Matrix]:
        pure = bumps(places, 5, np.random.default_rng(pure_seed))
        return (amounts * WEIGHTS) @ pure[:4] + BASE + SLOPE * places, pure[4:]

    source, _ = clean(axis)
    target, fifth = clean(axis + shift / (CHANNELS - 1))
    target = gain * (target + foreign @ fifth) + baseline
    return Instruments(scattered(source, rng), scattered(target, rng), amounts[:, 0].copy())
