"""The paper's protocol for wide data: parties as Gram matrices of their rows, so that a further epsilon costs eigenvalues and no product of designs.

What a party has from the others is Z + sigma E, and its Gram matrix is ZZ' + sigma (ZE' + EZ') + sigma^2 EE': the three are formed once for a
sketch. Penalties, folds, sketches and noise are those of ``_protocol.fit``; :func:`check_against_the_paths` holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from experiments.pride._protocol import DELTA, Problem, fit

from unpooled.models.pride.local import random_folds
from unpooled.models.pride.plan import PublicSketch
from unpooled.papers.pride import published_sigma

#: The paper's lambda: penalties in units of the number of rows.
PENALTIES = np.logspace(-5, 7, 49)


@dataclass(frozen=True)
class Found:
    """Coefficients on standardised columns, the penalty of every party in units of n, and errors on training and test rows over those of the mean."""

    coef: np.ndarray
    penalties: tuple[float, ...]
    train: float
    test: float


def centred(gram: np.ndarray, train: np.ndarray, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the Gram matrix of training rows, and of held-out with training rows, as if columns were centred by the training rows."""
    inner, cross = gram[np.ix_(train, train)], gram[np.ix_(held, train)]
    means = inner.mean(axis=0)
    return inner - means - means[:, None] + means.mean(), cross - means - cross.mean(axis=1)[:, None] + means.mean()


class Dual:
    """A problem, its parties' own Gram matrices, and those of what they send."""

    def __init__(self, problem: Problem, seed: int) -> None:
        mean, deviation = problem.X.mean(axis=0), problem.X.std(axis=0)
        deviation = np.where(deviation > 0, deviation, 1.0)
        self.rows, self.new = (problem.X - mean) / deviation, (problem.X_test - mean) / deviation
        self.problem, self.seed = problem, seed
        self.folds = random_folds(problem.y.size, 5, seed)
        self._sent: dict[float, list[tuple[np.ndarray, ...]]] = {}

    @cached_property
    def own(self) -> list[np.ndarray]:
        """The Gram matrix of every party's own columns."""
        return [self.rows[:, block] @ self.rows[:, block].T for block in self.problem.blocks]

    def sent(self, fraction: float) -> list[tuple[np.ndarray, ...]]:
        """ZZ', ZE' + EZ' and EE' of every party's sketch Z and noise E of deviation one."""
        if fraction not in self._sent:
            self._sent[fraction] = []
            for k, block in enumerate(self.problem.blocks):
                size = max(1, round(fraction * block.size))
                sketch = PublicSketch.draw("srht", block.size, size, self.seed * 1_000_003 + k, grid=1)
                Z = sketch.apply_real(self.rows[:, block])
                E = np.random.default_rng([self.seed, k, size]).standard_normal(Z.shape)
                cross = Z @ E.T
                self._sent[fraction].append((Z @ Z.T, cross + cross.T, E @ E.T))
        return self._sent[fraction]

    def grams(self, method: str, fraction: float, epsilon: float) -> list[np.ndarray]:
        """The Gram matrix of every party's design: its own columns, and what the others sent."""
        if method == "pooled":
            return [sum(self.own)]
        if method == "semi-naive":
            return self.own
        sigma = published_sigma(self.problem.theta, epsilon, DELTA) if method == "PRIDE (paper)" else 0.0
        received = [z + sigma * c + sigma**2 * e for z, c, e in self.sent(fraction)]
        total = sum(received)
        return [own + total - mine for own, mine in zip(self.own, received, strict=True)]

    def held_out(self, method: str, fraction: float, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
        """Squared errors in five folds: of the parties' summed own contributions, by penalty; and of each on its whole design, by party and penalty."""
        grams, y = self.grams(method, fraction, epsilon), self.problem.y
        owns = grams if method == "pooled" else self.own
        shared, alone = np.zeros(PENALTIES.size), np.zeros((len(grams), PENALTIES.size))
        for fold in self.folds:
            train = np.setdiff1d(np.arange(y.size), fold)
            mean, total = y[train].mean(), 0.0
            for k, (gram, own) in enumerate(zip(grams, owns, strict=True)):
                inner, cross = centred(gram, train, fold)
                values, vectors = np.linalg.eigh(inner)
                weights = (vectors.T @ (y[train] - mean))[:, None] / (np.maximum(values, 0.0)[:, None] + PENALTIES * y.size)
                total = total + centred(own, train, fold)[1] @ vectors @ weights
                alone[k] += ((y[fold] - mean)[:, None] - cross @ vectors @ weights).__pow__(2).sum(axis=0)
            shared += ((y[fold] - mean)[:, None] - total).__pow__(2).sum(axis=0)
        return shared, alone

    def fit(self, method: str, fraction: float = 0.0, epsilon: float = np.inf, *, local: bool = False) -> Found:
        """One method, its penalty chosen over all parties (appendix E) or, ``local``, by each party."""
        shared, alone = self.held_out(method, fraction, epsilon)
        grams, y = self.grams(method, fraction, epsilon), self.problem.y
        chosen = [float(PENALTIES[int(np.argmin(one))]) for one in (alone if local else [shared] * len(grams))]
        blocks = [np.concatenate(self.problem.blocks)] if method == "pooled" else self.problem.blocks
        coef, every = np.zeros(self.rows.shape[1]), np.arange(y.size)
        for gram, block, penalty in zip(grams, blocks, chosen, strict=True):
            inner, _ = centred(gram, every, every)
            dual = np.linalg.solve(inner + penalty * y.size * np.eye(y.size), y - y.mean())
            coef[block] = self.rows[:, block].T @ (dual - dual.mean())
        errors = [
            float(((response - y.mean() - rows @ coef) ** 2).mean() / ((response - y.mean()) ** 2).mean())
            for rows, response in ((self.rows, y), (self.new, self.problem.y_test))
        ]
        return Found(coef, tuple(chosen), *errors)


def check_against_the_paths(problem: Problem, seed: int = 0) -> None:
    """Stop unless this is what ``_protocol.fit`` computes, without noise and with it."""
    dual, deviation = Dual(problem, seed), problem.X.std(axis=0)
    for method, epsilon in (("DUAL-LOCO", np.inf), ("PRIDE (paper)", 5.0)):
        found, known = dual.fit(method, 0.05, epsilon), fit(problem, method, 0.05, epsilon, seed=seed)
        difference = float(np.abs(found.coef - known.coef * deviation).max() / np.abs(found.coef).max())
        print(f"{method}: largest difference to the paths' coefficients {difference:.1e} of the largest", flush=True)
        if not difference < 1e-6:
            raise SystemExit("Gram matrices and paths do not compute the same")
