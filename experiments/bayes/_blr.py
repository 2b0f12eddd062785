"""Bayesian regression at any size without the messages: the library's plan, layout and posterior, with noise of the planned deviations.

A fit of ten sites takes a tenth of a second because shares are sealed, sent and opened; the total that comes out is the exact sum plus Gaussian noise
whose deviations stand in the plan, and that is what is drawn here (discrete noise on a grid of 2^-20 or so is not told from it).
"""

from __future__ import annotations

import numpy as np
from scipy.stats import spearmanr

from unpooled import Bounds, PrivateBayesianRegression
from unpooled.linear.fit import LinearFit
from unpooled.linear.moments import Moments
from unpooled.models.bayes.fit import best_multiple, posterior, thresholds
from unpooled.privacy.table import Table
from unpooled.totals.total import Total

#: The supplement names no delta.
DELTA, SITES = 1e-4, 10
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
#: The paper's forms: (12) with the classical deviation, its own posterior, no constant; declared ranges, and a Gram matrix as it was released.
PAPER = {"calibration": "published", "projection": 0.0, "indefinite": "kept"}
#: A fifth of the squared budget for the deviations of Algorithm 2.
PROJECTED = {"projection": 0.2}


class Blr:
    """One study: its plan is made once, and fitted to many data sets of about this size."""

    def __init__(self, n: int, d: int, epsilon: float, y_bound: float, *, sites: int = SITES, **options: object) -> None:
        # The paper's one release, with precisions that are known: the default spends its budget in rounds (experiments/regression_peers.py).
        known = {"prior_precision": 1.0, "noise_precision": 1.0}
        known |= {} if "calibration" in options else {"method": "moments"}
        options = {"bounds": (-1, 1), "delta": DELTA, **known, **options}
        model = PrivateBayesianRegression(epsilon=epsilon, y_bounds=(-y_bound, y_bound), **options)
        rows = {f"site{k}": n // sites + (k < n % sites) for k in range(sites)}
        self.plan = model.plan(n, d, rows)
        self.design, self.rows, self.y_bound = self.plan.design, n, y_bound
        self.multiple = self.design.parameters.multiple
        if self.design.deviations is not None and self.multiple is None:
            self.multiple = best_multiple(self.design, self.plan, n)

    def fit(self, X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> LinearFit:
        """The posterior of one release."""
        return posterior(self.design, self.moments(X, y, rng))

    def moments(self, X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Moments:
        """One release."""
        design, n = self.design, y.size
        table = Table({**{f"x{j}": column for j, column in enumerate(X.T)}, design.layout.response.name: y})
        settings: tuple[float, ...] = ()
        if design.deviations is not None:
            coding = design.coding
            (block,) = table.blocks(coding.names)
            coded = coding.code(block)[0]
            exact = np.concatenate([coded.sum(axis=0), (coded * coded).sum(axis=0)]).astype(float)
            spread = design.deviations.deviations(self.plan)
            total = Total(exact + spread * rng.normal(size=exact.size), spread, ())
            settings = thresholds(design, total, n, self.multiple)
        layout = design.narrowed(settings)
        spread = design.moments.deviations(self.plan)
        exact = layout.statistic(table).astype(float)
        return Moments.decode(layout, Total(exact + spread * rng.normal(size=exact.size), spread, ()), n)

    def predict(self, fit: LinearFit, X: np.ndarray) -> np.ndarray:
        """Predictions, clipped to the declared range of y: public, and the same for every method."""
        return np.clip(X @ fit.coef_ + fit.intercept_, -self.y_bound, self.y_bound)


def unit_rows(X: np.ndarray) -> np.ndarray:
    """Rows of length 1."""
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def ball() -> dict[str, object]:
    """Ours: rows in the unit ball, noise-aware posterior, no constant."""
    return {"bounds": Bounds(norm=1.0), "fit_intercept": False}


def correlation(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Spearman's; 0 where all predictions are equal."""
    return 0.0 if np.ptp(predicted) == 0 else float(spearmanr(predicted, truth)[0])


def cell(values: np.ndarray, digits: int = 3) -> str:
    """Mean and standard error."""
    spread = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else 0.0
    return f"{values.mean():.{digits}f} ± {spread:.{digits}f}"
