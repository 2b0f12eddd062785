"""People of whom some are treated, and a study of the effect."""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study

KNOWN: dict[str, Any] = {
    "age": (20, 90),
    "ward": ["a", "b", "c"],
    "arm": ["old", "new"],
    "stay": (0, 30),
    "died": ["no", "yes"],
}


def people(rows: int, seed: int = 0, effect: float = -2.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    age, ward = rng.uniform(20, 90, rows), rng.choice(np.array(["a", "b", "c"]), rows, p=[0.5, 0.3, 0.2])
    treated = rng.uniform(size=rows) < 1 / (1 + np.exp(-(age - 55) / 25 - 0.5 * (ward == "b")))
    stay = np.clip(5 + 0.1 * age + 2 * (ward == "b") + effect * treated + rng.normal(0, 2, rows), 0, 30)
    died = rng.uniform(size=rows) < 1 / (1 + np.exp(-((age - 60) / 20 - treated)))
    arm = np.where(treated, "new", "old")
    return {"age": age, "ward": ward, "arm": arm, "stay": stay, "died": np.where(died, "yes", "no")}


def study(parameters: dict[str, Any] | None = None, **changes: Any) -> Study:
    columns = (
        Column("age", 20.0, 90.0),
        Column("ward", categories=("a", "b", "c")),
        Column("arm", categories=("old", "new")),
        Column("stay", 0.0, 30.0),
        Column("left", 0.0, 1.0),
    )
    asked = {"response": "stay", "treatment": "arm", "covariates": "age + ward"} | (parameters or {})
    cards = (Card("one", 3000, columns), Card("two", 2000, columns))
    return Study("effects", cards, **{"epsilon": 1.0, "delta": 1e-6, "derived": ()} | changes, parameters=asked)
