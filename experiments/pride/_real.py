"""Real data of the PRIDE experiments: January sea-level pressure, and expression in breast cancers; four parties each."""

from __future__ import annotations

import numpy as np
from experiments.common import data_file
from experiments.pride._protocol import Problem

PARTIES = 4
#: Probes that are kept, in the paper 2000 of 45,000.
PROBES = 500


def _problem(X: np.ndarray, y: np.ndarray, train: int) -> Problem:
    blocks = tuple(np.array_split(np.arange(X.shape[1]), PARTIES))
    return Problem(X[:train], y[:train], X[train:], y[train:], blocks)


def pressure(seed: int) -> Problem:
    """January's anomalies at 2496 land points; the response is February's mean anomaly (the file has no temperatures, the paper's target).

    Points are ordered by longitude, so that a party holds a region; the seed chooses which four fifths of the 55 years are trained on.
    """
    file = np.load(data_file("ncep_slp_land_monthly.npz"))
    slp, weights = file["slp"].astype(float), np.cos(np.deg2rad(file["lonlat"][:, 1]))
    january, february = slp[0::12], slp[1::12]
    order = np.lexsort((file["lonlat"][:, 1], file["lonlat"][:, 0]))
    X = (january - january.mean(axis=0))[:, order]
    y = (february - february.mean(axis=0)) @ weights / weights.sum()
    rows = np.random.default_rng(seed).permutation(y.size)
    return _problem(X[rows], y[rows], round(0.8 * y.size))


def expression(seed: int, probes: int = 1000) -> Problem:
    """Expression in 236 breast cancers (the file has 1000 probes); the response is the log of the time; four fifths are trained on.

    Fewer probes are those of largest absolute correlation with the response over all rows, test rows too, as the paper's words have it.
    """
    file = np.load(data_file("miller05_gse3494_1000genes.npz"))
    X, time = file["X"].astype(float), file["time"].astype(float)
    kept = np.isfinite(time) & (time > 0)
    X, y = X[kept], np.log(time[kept])
    if probes < X.shape[1]:
        related = np.abs((X - X.mean(axis=0)).T @ (y - y.mean())) / X.std(axis=0)
        X = X[:, np.sort(np.argsort(-related, kind="stable")[:probes])]
    rows = np.random.default_rng(seed).permutation(y.size)
    return _problem(X[rows], y[rows], round(0.8 * y.size))


def selected(seed: int) -> Problem:
    """Expression of the probes that are selected by marginal correlation."""
    return expression(seed, PROBES)


SETS = {"pressure": pressure, "expression": expression}
