"""Simulated spectra: the four bands of two data holders of the edPLS paper (section 3.1), near infrared ones, and samples on two instruments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]


# --- Spectra ---------------------------------------------------------------------------------------------------------------
# Simulated spectra: the four bands of two data holders of the edPLS paper (section 3.1), and near-infrared-like ones.

#: Section 3.1: centre, width and height of the analyte's band and of three interferents' on 100 points.
BANDS = ((50, 15, 8.0), (70, 10, 10.0), (40, 1, 0.5), (30, 1, 0.5))
#: Corn-like: means, deviations and weights of four concentrations.
MEANS, _SPREADS = np.array([10.0, 3.5, 8.5, 64.0]), np.array([0.4, 0.18, 0.5, 0.9])
WEIGHTS = np.array([0.03, 0.03, 0.03, 0.004])
CHANNELS = 700
#: The baseline at the first channel, and how much it rises to the last.
BASE, SLOPE = 0.25, 0.45


@dataclass(frozen=True)
class Spectra:
    """Rows of spectra and a concentration to predict; what a chemist knows beforehand is public."""

    spectra: Matrix
    response: NDArray[np.float64]
    #: Which data holder measured a row.
    holder: NDArray[np.str_]
    #: Spectra of the pure components, one per row.
    pure: Matrix
    #: The expected spectrum and response.
    mean_spectrum: NDArray[np.float64]
    mean_response: float


def bumps(axis: Matrix, count: int, shapes: np.random.Generator) -> Matrix:
    """Return spectra of pure components at these places of the axis, one per row: four bumps each, of height 1 at the highest place."""
    rows = []
    for _ in range(count):
        heights, centres, widths = shapes.uniform(0.2, 1, 4), shapes.uniform(0, 1, 4), shapes.uniform(0.03, 0.12, 4)
        found = heights[:, None] * np.exp(-0.5 * ((axis - centres[:, None]) / widths[:, None]) ** 2)
        rows.append(found.sum(axis=0) / found.sum(axis=0).max())
    return np.array(rows)


def concentrations(n_samples: int, rng: np.random.Generator) -> Matrix:
    """Return four normal concentrations for each sample."""
    return np.asarray(MEANS + _SPREADS * np.clip(rng.normal(size=(n_samples, 4)), -3.5, 3.5))


def scattered(spectra: Matrix, rng: np.random.Generator) -> Matrix:
    """Return spectra as an instrument reads them: scatter, a constant and a slope of each sample, and noise of 2e-4."""
    count, channels = spectra.shape
    spectra = spectra * (1 + 0.03 * rng.normal(size=(count, 1)))
    spectra += 0.02 * rng.normal(size=(count, 1))
    spectra += 0.02 * rng.normal(size=(count, 1)) * (np.linspace(0, 1, channels) - 0.5)
    return np.asarray(spectra + 2e-4 * rng.normal(size=spectra.shape))


def make_spectra(n_samples: int = 200, *, kind: str = "bands", seed: int = 0, pure_seed: int = 0) -> Spectra:
    """Spectra of mixtures.

    ``kind="bands"`` is section 3.1 of the edPLS paper: 100 points, concentrations uniform on [0, 10), no noise. Holders "one" and "two"
    have half of the rows each; both have the analyte (centre 50) and a broad interferent (70), and each has a narrow band that the
    other lacks: "one" at 40, "two" at 30.

    ``kind="corn"`` has 700 channels, four pure components of four bumps each (drawn from ``pure_seed``), normal concentrations, a
    sloping baseline, multiplicative and additive scatter, a random slope, noise of 2e-4; the response is the first concentration
    (mean 10, deviation 0.4). One holder, "one".

    >>> data = make_spectra(20)
    >>> data.spectra.shape, sorted(set(data.holder.tolist()))
    ((20, 100), ['one', 'two'])
    >>> make_spectra(5, kind="corn").spectra.shape
    (5, 700)
    """
    rng = np.random.default_rng(seed)
    if kind == "bands":
        points = np.arange(100)
        pure = np.array([h * np.exp(-0.5 * ((points - centre) / width) ** 2) for centre, width, h in BANDS])
        amounts = rng.uniform(0, 10, (n_samples, 4))
        first = n_samples - n_samples // 2
        amounts[:first, 3] = amounts[first:, 2] = 0
        holder = np.repeat(["one", "two"], [first, n_samples - first])
        expected = np.array([5, 5, 2.5, 2.5]) @ pure
        return Spectra(amounts @ pure, amounts[:, 0].copy(), holder, pure, expected, 5.0)
    if kind != "corn":
        msg = f"unknown kind {kind!r}: choose bands or corn"
        raise UsageError(msg)
    axis = np.linspace(0, 1, CHANNELS)
    pure, baseline = bumps(axis, 4, np.random.default_rng(pure_seed)), BASE + SLOPE * axis
    amounts = concentrations(n_samples, rng)
    spectra = scattered((amounts * WEIGHTS) @ pure + baseline, rng)
    expected = (MEANS * WEIGHTS) @ pure + baseline
    return Spectra(spectra, amounts[:, 0].copy(), np.repeat(["one"], n_samples), pure, expected, float(MEANS[0]))


# --- Instruments -----------------------------------------------------------------------------------------------------------
# Simulated spectra of the same samples on two instruments, for calibration transfer.


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
