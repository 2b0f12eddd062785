"""Declared shapes of studies of a treatment whose effect is the same for everybody: what the shares, the rule and the coverage of partialling out are measured on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unpooled.models.effects import MODEL
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.plan import Card, Plan, Study

#: The levels of the columns that are none of numbers, and how often they occur.
LEVELS = ((0.5, 0.5), (0.85, 0.15), (0.2, 0.2, 0.4, 0.1, 0.1), (0.2, 0.4, 0.4))
EFFECT = 0.4


@dataclass(frozen=True)
class Shape:
    """Rows, columns and how a treatment follows from them."""

    name: str
    rows: int
    epsilon: float
    #: Numbers and columns of levels.
    numbers: int
    factors: int
    #: The deviation of the log odds of treatment that the columns drive; 0 is a trial.
    selection: float
    #: The part of the variance of the outcome that they explain, and whether what they drive is what drives the treatment.
    explained: float = 0.2
    treated: float = 0.35
    #: The correlation of any two numbers.
    correlation: float = 0.3
    #: Half a declared range, in deviations.
    ranges: float = 4.0
    #: Whether residuals have long right tails.
    skewed: bool = False

    @property
    def bounds(self) -> dict[str, object]:
        """Return everything that is declared."""
        far = self.ranges
        numbers = {f"x{k}": (-far, far) for k in range(self.numbers)}
        factors = {f"f{k}": [f"l{j}" for j in range(len(LEVELS[k % 4]))] for k in range(self.factors)}
        return numbers | factors | {"arm": ["old", "new"], "y": (-far, far)}

    def data(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return the rows of a study."""
        n, far = self.rows, self.ranges
        shared = np.sqrt(self.correlation) * rng.normal(size=(n, 1))
        x = shared + np.sqrt(1 - self.correlation) * rng.normal(size=(n, self.numbers))
        parts = [rng.choice(len(LEVELS[k % 4]), n, p=LEVELS[k % 4]) for k in range(self.factors)]
        columns = np.column_stack([x, *((part - part.mean()) / part.std() for part in parts)])
        way = np.random.default_rng(columns.shape[1]).normal(size=columns.shape[1]) + 0.5
        signal = columns @ way
        signal = (signal - signal.mean()) / signal.std()
        odds = self.selection * signal + np.log(self.treated / (1 - self.treated))
        treated = rng.uniform(size=n) < 1 / (1 + np.exp(-odds))
        noise = rng.exponential(size=n) - 1 if self.skewed else rng.normal(size=n)
        y = EFFECT * treated + np.sqrt(self.explained) * signal + np.sqrt(1 - self.explained) * noise
        named = {f"x{k}": np.clip(x[:, k], -far, far) for k in range(self.numbers)}
        named |= {f"f{k}": np.array([f"l{j}" for j in part]) for k, part in enumerate(parts)}
        return named | {"arm": np.where(treated, "new", "old"), "y": np.clip(y, -far, far)}

    def plan(self, *, epsilon: float | None = None, **parameters: object) -> Plan:
        """Return the plan of the study at one site."""
        columns = Bounds.given(self.bounds, None).columns(list(self.bounds))
        return MODEL.compile(
            Study(
                model="effects",
                parties=(Card("all", self.rows, columns),),
                epsilon=self.epsilon if epsilon is None else epsilon,
                delta=1e-5,
                derived=(),
                parameters={"response": "y", "treatment": "arm"} | parameters,
            )
        )
