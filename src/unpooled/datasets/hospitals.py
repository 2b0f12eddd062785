"""Simulated people: three hospitals of the demonstration, sites that one linear model serves, and a trial of two arms at four centres."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


# --- Hospitals -------------------------------------------------------------------------------------------------------------
# Three hospitals that measured the same few columns on their own patients: the demonstration's data.


def make_hospitals(rows: tuple[int, ...] = (2400, 1500, 900), seed: int = 0) -> dict[str, dict[str, NDArray[Any]]]:
    """Return columns of each hospital: age, systolic pressure (some missing), cholesterol, and smoking habit.

    The hospitals differ in mean age; pressure rises with age and smoking.

    >>> hospitals = make_hospitals((50, 40), seed=1)
    >>> list(hospitals), list(hospitals["north"])
    (['north', 'coast'], ['age', 'pressure', 'cholesterol', 'smoker'])
    """
    rng = np.random.default_rng(seed)
    hospitals = {}
    for name, n, mean_age in zip(
        ("north", "coast", "city", *map(str, range(3, len(rows)))), rows, (63, 55, 47, *[50] * len(rows)), strict=False
    ):
        age = np.clip(rng.normal(mean_age, 12, n), 18, 100).round()
        smoker = rng.choice(np.array(["never", "former", "current"], dtype=object), n, p=[0.55, 0.25, 0.2])
        pressure = (95 + 0.55 * age + 8 * (smoker == "current") + rng.normal(0, 13, n)).round()
        pressure[rng.choice(n, n // 16, replace=False)] = np.nan
        cholesterol = np.clip(rng.normal(5.2, 1.0, n), 2, 10).round(1)
        hospitals[name] = {"age": age, "pressure": pressure, "cholesterol": cholesterol, "smoker": smoker}
    return hospitals


# --- Regression sites ------------------------------------------------------------------------------------------------------
# Simulated rows of several sites that one linear model serves.


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


# --- Trial -----------------------------------------------------------------------------------------------------------------
# A trial of two arms at four centres: the tutorial's data, from the table of its people to the comparison of survival.

#: Rows of the four centres.
CENTRES = {"aarhus": 7000, "bergen": 6000, "cork": 4500, "delft": 2500}
#: Days of follow-up, and the share of people who leave before its end.
_FOLLOWED, _LEAVE = 365.0, 0.15


def make_trial(rows: Sequence[int] = tuple(CENTRES.values()), seed: int = 0) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the columns of four centres: age, sex, severity, arm, complication, days in hospital, days until death or the end, and whether it was death.

    People are randomised within their centre. The new treatment lowers the odds of a complication (odds ratio .7), shortens the stay by a day and a
    half, and lowers the hazard of death in the first year (hazard ratio .75). Centres differ in the age and the severity of their people.

    >>> trial = make_trial((50, 40, 30, 20))
    >>> list(trial), list(trial["cork"])
    (['aarhus', 'bergen', 'cork', 'delft'], ['age', 'sex', 'severity', 'arm', 'complication', 'stay', 'days', 'died'])
    """
    rng = np.random.default_rng(seed)
    found = {}
    for name, n, older in zip(CENTRES, rows, (0.0, 4.0, -3.0, 2.0), strict=True):
        age = np.clip(rng.normal(62 + older, 12, n), 18, 95).round()
        sex = rng.choice(np.array(["female", "male"], dtype=object), n)
        illness = rng.normal((age - 62) / 40 + older / 20, 1)
        severity = np.array(["mild", "moderate", "severe"], dtype=object)[np.digitize(illness, (0.3, 1.6))]
        severe = np.digitize(illness, (0.3, 1.6))
        arm = rng.choice(np.array(["usual", "new"], dtype=object), n)
        new = arm == "new"
        logit = -2.0 + 0.03 * (age - 62) + 0.5 * severe + np.log(0.7) * new
        complication = np.where(rng.random(n) < 1 / (1 + np.exp(-logit)), "yes", "no").astype(object)
        stay = np.clip(7 + 0.06 * (age - 62) + 1.5 * severe - 1.5 * new + rng.normal(0, 3, n), 0.5, 40).round(1)
        hazard = np.exp(-7.6 + 0.035 * (age - 62) + 0.6 * severe + np.log(0.75) * new)
        until = rng.exponential(1 / hazard)
        left = np.where(rng.random(n) < _LEAVE, rng.uniform(30, _FOLLOWED, n), _FOLLOWED)
        days = np.maximum(np.minimum(until, left).round(), 1.0)
        found[name] = {
            "age": age,
            "sex": sex,
            "severity": severity,
            "arm": arm,
            "complication": complication,
            "stay": stay,
            "days": days,
            "died": (until <= left).astype(float),
        }
    return found
