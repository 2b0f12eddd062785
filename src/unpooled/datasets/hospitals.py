"""Three hospitals that measured the same few columns on their own patients: the demonstration's data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
