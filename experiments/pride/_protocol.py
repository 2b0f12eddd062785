"""The paper's protocol for every method, fast enough for its figures: five-fold global cross-validation from one eigendecomposition per fold.

The estimators solve each penalty of global cross-validation anew; here all 41 come from one spectrum. What is computed is the same, and
:func:`check_against_the_estimator` holds it against ``PrideRegressor`` on a case without noise, where both are deterministic. The noise is a
plain normal draw of the stated deviation, the same directions for every epsilon and method of a repetition (common random numbers).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unpooled import PrideRegressor
from unpooled.kernels.ridge import RidgePath, product
from unpooled.models.pride.fit import GLOBAL_PENALTIES
from unpooled.models.pride.local import RegressionCalibration, choose_alpha, random_folds
from unpooled.models.pride.plan import PublicSketch
from unpooled.papers.pride import published_sigma
from unpooled.privacy.accounting import gaussian_sigma

DELTA = 0.05
EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
FRACTIONS = (0.01, 0.05, 0.1, 0.2)
#: The paper's semi-naive Bayes (nothing is sent), DUAL-LOCO (no noise) and optimum, its own form of PRIDE, and ours beside them.
FIXED = ("semi-naive", "DUAL-LOCO", "pooled")
PRIVATE = ("PRIDE (paper)", "sound", "sound + calibrated")


@dataclass(frozen=True)
class Problem:
    """Columns split into blocks, training rows and test rows; ``theta`` is the range of the standardised training columns."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    blocks: tuple[np.ndarray, ...]

    @property
    def theta(self) -> float:
        """The largest range of a standardised column (Table 1), data-derived as in the paper."""
        return float((np.ptp(self.X, axis=0) / self.X.std(axis=0)).max())


@dataclass(frozen=True)
class Fitted:
    """Coefficients and intercept in the data's own units, and the penalties (scikit-learn's alpha on standardised columns)."""

    coef: np.ndarray
    intercept: float
    alphas: tuple[float, ...]

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Sum of all parties' contributions."""
        return X @ self.coef + self.intercept


def designs(
    problem: Problem, rows: np.ndarray, method: str, fraction: float, epsilon: float, seed: int, theta: float | None
) -> list[np.ndarray]:
    """Xbar_k = [X_k, Z_j for j != k] of every party."""
    own = [rows[:, block] for block in problem.blocks]
    if method in {"semi-naive", "pooled"}:
        return own if method == "semi-naive" else [np.hstack(own)]
    span, sketches, sigma = theta or problem.theta, [], 0.0
    if method == "PRIDE (paper)":
        sigma = published_sigma(span, epsilon, DELTA)
    elif method != "DUAL-LOCO":
        own = [np.clip(block, -span / 2, span / 2) for block in own]  # the sound form's public bounds
        sigma = span * gaussian_sigma(epsilon, DELTA)
    for k, block in enumerate(own):
        size = max(1, round(fraction * block.shape[1]))
        sketch = PublicSketch.draw("srht", block.shape[1], size, seed * 1_000_003 + k, grid=1)
        noise = np.random.default_rng([seed, k, size]).standard_normal((block.shape[0], size))
        sketches.append(sketch.apply_real(block) + sigma * noise)
    out = []
    for k, block in enumerate(own):
        others = np.hstack([z for j, z in enumerate(sketches) if j != k])
        if method == "sound + calibrated":
            level = np.full(others.shape[1], sigma)
            others = RegressionCalibration.fit(block, others, level).apply(block, others, level)
        out.append(np.hstack([block, others]))
    return out


def global_alpha(paths: list[np.ndarray], widths: list[int], y: np.ndarray, seed: int) -> float:
    """Appendix E: one penalty for all parties, by the squared error of their summed held-out contributions in five folds."""
    penalties = GLOBAL_PENALTIES * y.size
    errors = np.empty((penalties.size, y.size))
    for fold in random_folds(y.size, 5, seed):
        train = np.setdiff1d(np.arange(y.size), fold)
        total = np.zeros((penalties.size, fold.size))
        for design, width in zip(paths, widths, strict=True):
            path = RidgePath.of(design[train], y[train])
            held = design[fold, :width] - path.column_means[:width]
            towards = product(held, product(np.ascontiguousarray(path.design[:, :width].T), path.left))
            total += product(towards, path.rotated[:, None] / (path.squares[:, None] + penalties)).T
        errors[:, fold] = y[fold] - y[train].mean() - total
    return float(penalties[int(np.argmin((errors**2).mean(axis=1)))])


def fit(
    problem: Problem,
    method: str,
    fraction: float = 0.05,
    epsilon: float = np.inf,
    choice: str = "global-cv",
    seed: int = 0,
    theta: float | None = None,
) -> Fitted:
    """One method's coefficients with the penalty chosen by global or local cross-validation, or marginal likelihood."""
    mean, deviation = problem.X.mean(axis=0), problem.X.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    parties = designs(problem, (problem.X - mean) / deviation, method, fraction, epsilon, seed, theta)
    columns = [np.concatenate(problem.blocks)] if method == "pooled" else list(problem.blocks)
    alpha: float | str = choice
    if choice == "global-cv":
        alpha = global_alpha(parties, [c.size for c in columns], problem.y, seed)
    folds, coef, alphas = random_folds(problem.y.size, 5, seed), np.zeros(mean.size), []
    for design, held in zip(parties, columns, strict=True):
        path = RidgePath.of(design, problem.y)
        alphas.append(choose_alpha(path, alpha, folds))
        coef[held] = path.solve(alphas[-1])[0][: held.size] / deviation[held]
    return Fitted(coef, float(problem.y.mean() - mean @ coef), tuple(alphas))


def check_against_the_estimator(problem: Problem, fraction: float = 0.05, seed: int = 3) -> float:
    """The largest relative difference between these coefficients and the estimator's (DUAL-LOCO, global cross-validation)."""
    model = PrideRegressor(
        parties={f"party{k}": block.tolist() for k, block in enumerate(problem.blocks)},
        bounds=(float(problem.X.min()), float(problem.X.max())),
        epsilon=np.inf,
        delta=DELTA,
        calibration="published",
        noise_model="plain",
        alpha="global-cv",
        sketch_dim=fraction,
        random_state=seed,
        public_seed=seed,
    ).fit(problem.X, problem.y)
    ours = fit(problem, "DUAL-LOCO", fraction, seed=seed)
    different = float(np.abs(ours.coef - model.coef_).max() / np.abs(model.coef_).max())
    print(f"largest difference to the estimator's coefficients: {different:.1e} of the largest", flush=True)
    if not different < 1e-5:
        raise SystemExit("the fast protocol does not compute what the estimator does")
    return different


def mean_and_error(values: np.ndarray) -> str:
    """Mean and standard error, as in 0.744 ± 0.012."""
    error = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else 0.0
    return f"{values.mean():.3f} ± {error:.3f}"


def verdict(smaller: np.ndarray, larger: np.ndarray) -> str:
    """Whether the first is at most the second over paired repetitions; within two standard errors it is a tie."""
    difference = larger - smaller
    error = float(difference.std(ddof=1) / np.sqrt(difference.size)) if difference.size > 1 else 0.0
    if abs(float(difference.mean())) <= 2 * error:
        return "tie"
    return "yes" if difference.mean() > 0 else "NO"
