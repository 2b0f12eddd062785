"""A field in place of the paper's climate simulation: 849 + 213 years at 72 x 144 grid points, with the paper's spectrum and predictability.

Smooth waves over the grid carry shares of the variance that give the paper's Table 1: the largest 1 / 4.03, 29 of them four fifths, 54 nine
tenths, and a tail down to the smallest singular value. The response loads on the first 54 with weights of equal size and random sign, and
explains 30 % of its variance: least squares on 54 components of 849 rows then has a test error of .7 (1 + 54/849) = .74, the paper's in Table E.1.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from experiments.pride._protocol import Problem
from scipy.interpolate import PchipInterpolator

TRAIN, TEST, PARTIES = 849, 213, 4
LATITUDES, LONGITUDES = 72, 144
COMPONENTS, EXPLAINED = 54, 0.3
#: Components, and the share of the variance that lies beyond them.
BEYOND = ((0, 1.0), (1, 1 - 1 / 4.03), (29, 0.2), (54, 0.1), (150, 0.02), (400, 4e-3), (TRAIN, 1.5e-3), (TRAIN + TEST, 1e-5))


def shares() -> np.ndarray:
    """The share of the variance of every wave, from the largest down."""
    at, beyond = np.array(BEYOND).T
    rest = np.exp(PchipInterpolator(at, np.log(beyond))(np.arange(TRAIN + TEST + 1)))
    return np.sort(-np.diff(rest))[::-1]


@cache
def waves() -> np.ndarray:
    """Waves over the grid, a row each, from the smoothest on, of mean square one."""
    latitude, longitude = (np.arange(n) + 0.5 for n in (LATITUDES, LONGITUDES))
    found = []
    for i in range(40):
        along = np.cos(np.pi * i * latitude / LATITUDES)
        for j in range(40):
            around = [turn(2 * np.pi * j * longitude / LONGITUDES) for turn in ((np.cos, np.sin) if j else (np.cos,))]
            found += [(i**2 + j**2, np.outer(along, one).T.ravel()) for one in around]
    found.sort(key=lambda wave: wave[0])
    # The flat wave is nobody's anomaly.
    kept = np.array([wave for _, wave in found[1 : TRAIN + TEST + 1]])
    return kept / np.sqrt((kept**2).mean(axis=1, keepdims=True))


def climate(seed: int, components: int = COMPONENTS) -> Problem:
    """One simulation, whose response rests on the first ``components``; points are ordered by longitude, so that a party holds a region."""
    rng = np.random.default_rng([seed, 531])
    scores = rng.standard_normal((TRAIN + TEST, TRAIN + TEST))
    X = (scores * np.sqrt(shares())) @ waves()
    signal = scores[:, :components] @ rng.choice([-1.0, 1.0], components) / np.sqrt(components)
    y = np.sqrt(EXPLAINED) * signal + np.sqrt(1 - EXPLAINED) * rng.standard_normal(TRAIN + TEST)
    blocks = tuple(np.array_split(np.arange(X.shape[1]), PARTIES))
    return Problem(X[:TRAIN], y[:TRAIN], X[TRAIN:], y[TRAIN:], blocks)
