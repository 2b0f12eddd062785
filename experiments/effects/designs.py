"""Declared shapes of confounded data, and one private effect of them, played with the noise that its plan has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unpooled.models.effects import MODEL
from unpooled.models.effects.outlook import play
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

BOUNDS = {
    "x0": (-4, 4),
    "x1": (-4, 4),
    "x2": (-4, 4),
    "ward": ["a", "b", "c"],
    "arm": ["old", "new"],
}
RIGHT, WRONG = "x0 + x1 + x2 + ward + I(x0**2)", "x0 + x1 + x2 + ward"


@dataclass(frozen=True)
class Design:
    """How people came to be treated, and what became of them."""

    name: str
    #: How strongly the columns drive treatment and outcome together.
    confounding: float
    #: The deviation of the log odds of treatment that no outcome depends on: less overlap, without more confounding.
    apart: float = 0.0
    binary: bool = False
    survival: bool = False
    outcome: str = RIGHT
    propensity: str = RIGHT
    effect: float = 0.5

    @property
    def bounds(self) -> dict[str, object]:
        """Everything that is declared."""
        if self.survival:
            return BOUNDS | {"y": (0, 2), "died": (0, 1)}
        return BOUNDS | {"y": ["no", "yes"] if self.binary else (-8, 8)}

    def columns(self, rng: np.random.Generator, rows: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Columns of people, and the log odds (or means) of their outcomes under both treatments."""
        x = np.clip(rng.normal(size=(rows, 3)), -4, 4)
        ward = rng.choice(np.array(["a", "b", "c"]), rows, p=[0.6, 0.3, 0.1])
        shared = 0.6 * x[:, 0] - 0.4 * x[:, 1] + 0.3 * (ward == "b") + 0.35 * (x[:, 0] ** 2 - 1)
        odds = self.confounding * shared + self.apart * x[:, 2]
        treated = rng.uniform(size=rows) < 1 / (1 + np.exp(-odds))
        base = self.confounding * shared
        other = base + self.effect + 0.3 * x[:, 1]
        found = {"x0": x[:, 0], "x1": x[:, 1], "x2": x[:, 2], "ward": ward, "arm": np.where(treated, "new", "old")}
        return found, base, other

    def data(self, rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
        """Return the rows of a study."""
        found, base, other = self.columns(rng, rows)
        mean = np.where(found["arm"] == "new", other, base)
        if self.survival:
            until, left = rng.exponential(np.exp(mean)), rng.exponential(3.0, rows)
            time = np.minimum(np.minimum(until, left), 2.0)
            return found | {"y": time, "died": (until <= np.minimum(left, 2.0)).astype(float)}
        if self.binary:
            y = np.where(rng.uniform(size=rows) < 1 / (1 + np.exp(-mean)), "yes", "no")
        else:
            y = np.clip(mean + rng.normal(size=rows), -8, 8)
        return found | {"y": y}

    def truth(self, rows: int = 2_000_000, *, treated: bool = False) -> float:
        """Return the effect in the population, or among the treated."""
        found, base, other = self.columns(np.random.default_rng(12345), rows)
        if treated:
            base, other = (means[found["arm"] == "new"] for means in (base, other))
        if self.survival:
            return float(np.mean(np.exp(-np.exp(-other)) - np.exp(-np.exp(-base))))
        if self.binary:
            return float(np.mean(1 / (1 + np.exp(-other)) - 1 / (1 + np.exp(-base))))
        return float(np.mean(other - base))

    def parameters(self, **more: object) -> dict[str, object]:
        """Return the parameters of the study."""
        family = "logistic" if self.binary else "survival" if self.survival else "linear"
        more = more | ({"event": "died", "horizon": 1.0} if self.survival else {})
        own = {"covariates": self.outcome, "propensity": self.propensity} if more.get("estimator") != "g-formula" else {"covariates": self.outcome}
        return {"response": "y", "treatment": "arm", "family": family, **own, **more}

    def plan(self, rows: int, epsilon: float, **more: object):
        """Return the plan of the study at one site."""
        columns = Bounds.given(self.bounds, None).columns(list(self.bounds))
        return MODEL.compile(
            Study(
                model="effects",
                parties=(Card("all", rows, columns),),
                epsilon=epsilon,
                delta=1e-6,
                derived=(),
                parameters=self.parameters(**more),
            )
        )


def played(plan, data: dict[str, np.ndarray], rng: np.random.Generator):
    """Return the result of one study of these rows."""
    table = Table({name: values.astype(object) if values.dtype.kind == "U" else values for name, values in data.items()})
    return play(plan, table, rng)
