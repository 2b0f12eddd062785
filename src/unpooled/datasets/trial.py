"""A trial of two arms at four centres: the tutorial's data, from the table of its people to the comparison of survival."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

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
