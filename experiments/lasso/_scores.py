"""The paper's algorithm and ours on Gram matrix and A^T y: the rounds at any n, for what is released enters them only through scores.

A released column's noise is in a party's scores as A^T xi / n, which is normal with covariance sigma^2 G / n: exact. Clipping multiplies the slope by
the share of predictions that it leaves alone (the planner's rule). ``rate.py`` holds these excess risks beside the library's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unpooled import PrivateLasso
from unpooled.kernels.l1_ball import quadratic_in_balls
from unpooled.models.lasso.frank_wolfe_fit import ColumnMoments
from unpooled.models.lasso.frank_wolfe_rows import COLUMNS_WEIGHT, RESPONSE_WEIGHT

RADIUS, PARTIES, COLUMNS, BOUND = 2.0, 4, 100, 2.0


def simulated(n: int, seed: int, factors: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A = clip(0.5 N(0, 1), +-1), n x 100; six coefficients, |x|_1 = 2; with ``factors``, so many common causes of every column."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, COLUMNS))
    if factors:
        common = rng.normal(size=(n, factors)) @ rng.normal(size=(factors, COLUMNS)) / np.sqrt(factors)
        A = np.sqrt(0.4) * A + np.sqrt(0.6) * common
    A = np.clip(0.5 * A, -1, 1)
    x = np.zeros(COLUMNS)
    size = rng.uniform(0.5, 1, 6)
    x[rng.choice(COLUMNS, 6, replace=False)] = size * rng.choice([-1, 1], 6) * RADIUS / size.sum()
    return A, np.clip(A @ x + 0.3 * rng.normal(size=n), -BOUND, BOUND), x


def lasso(epsilon: float, seed: int | None = 0, **options: object) -> PrivateLasso:
    """The study of these simulations: the response has no constant."""
    settings = {
        "parties": PARTIES,
        # In half ranges of y; the published form has the paper's unit.
        "radius": RADIUS if options.get("calibration") == "published" else RADIUS / BOUND,
        "bounds": (-1, 1),
        "y_bounds": (-BOUND, BOUND),
        "delta": 1e-5,
        "method": "frank-wolfe",
    }
    return PrivateLasso(epsilon=epsilon, random_state=seed, **(settings | {"fit_intercept": False} | options))


@dataclass
class Moments:
    """A data set by its moments."""

    n: int
    gram: np.ndarray
    linear: np.ndarray
    square: float

    @classmethod
    def of(cls, A: np.ndarray, y: np.ndarray) -> Moments:
        """From rows."""
        return cls(y.size, A.T @ A / y.size, A.T @ y / y.size, float(y @ y) / y.size)

    @classmethod
    def large(cls, n: int, seed: int, chunk: int = 100_000) -> Moments:
        """Of simulated rows that are never held at once: the coefficients of one seed, chunk by chunk."""
        x = simulated(1, seed)[2]
        parts = []
        for k in range(-(-n // chunk)):
            rng = np.random.default_rng([seed, k])
            A = np.clip(0.5 * rng.normal(size=(min(chunk, n - k * chunk), COLUMNS)), -1, 1)
            parts.append(cls.of(A, np.clip(A @ x + 0.3 * rng.normal(size=len(A)), -BOUND, BOUND)))
        weights = np.array([p.n for p in parts]) / n
        gram, linear = (
            sum(w * getattr(p, name) for w, p in zip(weights, parts, strict=True)) for name in ("gram", "linear")
        )
        return cls(n, gram, linear, float(weights @ [p.square for p in parts]))

    def objective(self, x: np.ndarray) -> float:
        """|Ax - y|^2 / 2n."""
        return float(x @ self.gram @ x / 2 - self.linear @ x + self.square / 2)

    def optimum(self) -> float:
        """The least of it in the ball."""
        return self.objective(quadratic_in_balls(self.gram, self.linear, RADIUS).coefficients)

    def excess(self, x: np.ndarray, optimum: float) -> float:
        """(f(x) - f*) / (f(0) - f*)."""
        return (self.objective(x) - optimum) / (self.square / 2 - optimum)


OWNED = np.array_split(np.arange(COLUMNS), PARTIES)


def sound(data: Moments, model: PrivateLasso, rng: np.random.Generator) -> np.ndarray:
    """The library's rounds and refit, with the noise of its plan (values, one ball, all columns searched)."""
    plan = model.plan(data.n, COLUMNS)
    design, n = plan.design, data.n
    root, x = np.linalg.cholesky(data.gram + 1e-12 * np.eye(COLUMNS)), np.zeros(COLUMNS)
    blurs: dict[int, np.ndarray] = {}
    for t in range(design.parameters.rounds):
        noise = design.column_scale * float(np.linalg.norm(x))
        end = max(RADIUS, min(2 * noise, design.ceiling))
        slope = math.erf(end / (noise * math.sqrt(2))) if noise else 1.0
        blur = sum((x[j] * own for j, own in blurs.items()), np.zeros(COLUMNS))
        scores = data.linear - slope * (data.gram @ x + blur)
        reach = 2 * (min(end, 4 * noise + RADIUS) + BOUND) / n
        bids = []
        for own in OWNED:
            signed = np.concatenate([scores[own], -scores[own]])
            gumbel = 2 * reach / design.choice_epsilon * rng.gumbel(size=signed.size) if design.column_scale else 0.0
            best = int(np.argmax(signed + gumbel))
            value = signed[best] + design.score_multiplier * reach * rng.normal()
            bids.append((value, int(own[best % own.size]), 1.0 if best < own.size else -1.0))
        _, column, sign = max(bids)
        gamma = design.step(plan.study, t)
        x *= 1 - gamma
        x[column] += gamma * RADIUS * sign
        if column not in blurs:
            blurs[column] = design.column_scale / math.sqrt(n) * (root @ rng.normal(size=COLUMNS))
    return x if not design.refits else _refitted(data, design, blurs, rng)


def _refitted(data: Moments, design: object, blurs: dict[int, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    chosen, n = list(blurs), data.n
    unit = 2 * design.refit_multiplier / n
    # The longest of n rows of the released columns.
    longest = math.hypot(1.0, design.column_scale) * (math.sqrt(len(chosen)) + math.sqrt(2 * math.log(n)))
    noises = unit * BOUND / RESPONSE_WEIGHT, unit, unit * longest / COLUMNS_WEIGHT
    shape = (len(chosen), len(chosen))
    blur = np.array([[blurs[j][i] for j in chosen] for i in chosen])
    own = data.gram[np.ix_(chosen, chosen)]
    moments = ColumnMoments(
        response=data.linear[chosen] + noises[0] * rng.normal(size=len(chosen)),
        squares=np.diag(own) + noises[1] * rng.normal(size=len(chosen)),
        means=np.zeros(len(chosen)),
        products=own + blur + noises[2] * rng.normal(size=shape),
        response_noise=noises[0],
        squares_noise=noises[1],
        products_noise=noises[2],
        column_noise=design.column_scale,
        rows=n,
    )
    x = np.zeros(COLUMNS)
    x[chosen] = quadratic_in_balls(moments.gram(), moments.correlations(), RADIUS).coefficients
    return x


def published(
    data: Moments, epsilon: float, rounds: int, rng: np.random.Generator, *, vertices: int = PARTIES
) -> np.ndarray:
    """Algorithm 2 as printed: Laplace noise after the data's own gradient, nearly exact columns, the sum of all parties' vertices.

    With ``vertices`` = 1 only the party with the largest noisy score steps, and the iterate stays in the ball.
    """
    plan = lasso(epsilon, calibration="published", rounds=rounds).plan(data.n, COLUMNS)
    pick, column = (release.mechanism for release in plan.releases[:2])
    root, x = np.linalg.cholesky(data.gram + 1e-12 * np.eye(COLUMNS)), np.zeros(COLUMNS)
    blurs: dict[int, np.ndarray] = {}
    for t in range(rounds):
        blur = sum((x[j] * own for j, own in blurs.items()), np.zeros(COLUMNS))
        scores = data.linear - data.gram @ x - blur
        bids = []
        for own in OWNED:
            signed = np.concatenate([scores[own], -scores[own]])
            noisy = signed + pick.multiplier * float(np.abs(scores[own]).max()) * rng.laplace(size=signed.size)
            best = int(np.argmax(noisy))
            bids.append((float(noisy[best]), int(own[best % own.size]), 1.0 if best < own.size else -1.0))
        gamma = 2 / (t + 2)
        x *= 1 - gamma
        for _, j, sign in sorted(bids)[-vertices:]:
            x[j] += gamma * RADIUS * sign
            if j not in blurs:
                blurs[j] = column.multiplier / math.sqrt(data.n) * (root @ rng.normal(size=COLUMNS))
    return x


def sent(model: object) -> float:
    """Megabytes that the parties sent."""
    return sum(part["received"] for part in model.communication_.values()) / 1e6
