"""The paper's protocol on corn: instrument m5, moisture, a random 70 / 30 split, delta = 0.01; and our sound forms beside it.

Sound forms need a public reference spectrum and a public bound on rows, which do not exist for these data: a random tenth of the training
spectra is taken as public, gives both, and is not fitted to.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import polars as pl
from experiments.common import data_file
from scipy.signal import savgol_filter

from unpooled import Bounds, PrivatePLSRegression
from unpooled.models.pls.spectra import Frame

DELTA = 0.01
EPSILONS = (0.1, 1.0, 10.0, 100.0, 1000.0, 1e4)
#: The paper's standard deviation, that of its package, and ours.
FORMS = ("printed", "package", "sound", "sound + basis")
warnings.simplefilter("ignore", UserWarning)  # "fell back to a constant" is what some cells are about


def corn() -> tuple[np.ndarray, np.ndarray]:
    """Spectra of instrument m5 and moisture."""
    stored = np.load(data_file("nir_corn.npz"))
    return stored["m5spec"].astype(float), stored["propvals"][:, 0].astype(float)


def tecator() -> tuple[np.ndarray, np.ndarray]:
    """Absorbances of meat and its fat."""
    frame = pl.read_csv(data_file("nir_tecator.csv.gz"))
    return frame.select(pl.col("^absorbance_.*$")).to_numpy().astype(float), frame["fat"].to_numpy().astype(float)


def _msc(X: np.ndarray, reference: np.ndarray) -> np.ndarray:
    offset, slope = np.linalg.lstsq(np.column_stack([np.ones(reference.size), reference]), X.T, rcond=None)[0]
    return (X - offset[:, None]) / slope[:, None]


def preprocessings(X: np.ndarray) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """The paper's: raw, Savitzky-Golay (5, 2, first derivative), MSC against the mean spectrum, airPLS (lambda 100, 15 iterations)."""
    from chemotools.baseline import AirPls

    mean = X.mean(axis=0)  # the paper's reference: read off the data
    return {
        "raw": lambda Z: Z,
        "SG": lambda Z: savgol_filter(Z, 5, 2, deriv=1, axis=1),
        "MSC": lambda Z: _msc(Z, mean),
        "airPLS": lambda Z: AirPls(lam=100.0, nr_iterations=15).fit_transform(Z),
    }


def split(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to test on, 70 / 30."""
    order = np.random.default_rng(seed).permutation(n)
    return order[: round(0.7 * n)], order[round(0.7 * n) :]


def fitted(form: str, epsilon: float, components: int, X: np.ndarray, y: np.ndarray, seed: int) -> PrivatePLSRegression:
    """A model of these training rows."""
    if form == "no privacy":
        return PrivatePLSRegression(components, basis="none", epsilon=float("inf")).fit(X, y)
    if form in {"printed", "package"}:
        sd = "sigma" if form == "printed" else "sigma^2"
        asked = PrivatePLSRegression(
            components, basis="none", calibration="published", sd=sd, epsilon=epsilon, delta=DELTA, random_state=seed
        )
        return asked.fit(X, y)
    public, own = np.split(np.arange(y.size), [max(y.size // 10, 5)])
    basis, reference = ("none" if form == "sound" else "dct"), X[public].mean(axis=0)
    lengths = np.linalg.norm(Frame.of(basis, reference.size, 20, reference).coordinates(X[public]), axis=1)
    middle, spread = float(y[public].mean()), 3 * float(y[public].std())
    asked = PrivatePLSRegression(
        "cv",
        method="moments",
        basis=basis,
        epsilon=epsilon,
        delta=DELTA,
        adjacency="zero-out",
        bounds=Bounds(norm=1.5 * float(lengths.max())),
        y_bounds=(middle - spread, middle + spread),
        reference=reference,
        random_state=seed,
    )
    return asked.fit(X[own], y[own])


def error(form: str, epsilon: float, components: int, X: np.ndarray, y: np.ndarray, seed: int) -> float:
    """RMSEP / sd(y) of one split and one draw of the noise."""
    train, test = split(y.size, seed)
    predicted = fitted(form, epsilon, components, X[train], y[train], seed).predict(X[test])
    return float(np.sqrt(np.mean((predicted - y[test]) ** 2)) / y.std())
