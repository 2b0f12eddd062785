"""Private Frank-Wolfe on simulated data: excess risk and support against epsilon, n, K and tau; bytes at equal error beside PRIDE's.

    python experiments/lasso_private.py [repetitions]

Simulator: A = clip(0.5 N(0,1), +-1), n x 100; six coefficients of random sign, |x|_1 = 2; y = clip(A x + 0.3 N(0,1), +-2); K = 4, T = 20.
Relative excess risk is (f(x) - f*) / (f(0) - f*), f* the optimum with |x|_1 <= 2. "Rounds alone" is without the refit, as in that document.
"Expected" is what the planner says before any data.
"""

from __future__ import annotations

import sys

import numpy as np
from common import write_table
from sklearn.linear_model import Lasso

from unpooled import PrideRegressor, PrivateLasso

RADIUS, PARTIES, COLUMNS = 2.0, 4, 100
ALONE = {"refit": 0.0}
FORMS = {
    "value, y public, rounds alone": {"response_public": True, **ALONE},
    "value, rounds alone": ALONE,
    "row, rounds alone": {"unit": "record", **ALONE},
    "value": {},
    "row": {"unit": "record"},
    "value, blocks": {"coupling": "blocks"},
    "value, tau = 10": {"sampled": 10},
    "value, as recommended": {},
    "row, as recommended": {"unit": "record"},
}


def simulated(n: int, seed: int, factors: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """With ``factors``, so many common causes make up 0.6 of every column's variance, across parties."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, COLUMNS))
    if factors:
        common = rng.normal(size=(n, factors)) @ rng.normal(size=(factors, COLUMNS)) / np.sqrt(factors)
        A = np.sqrt(0.4) * A + np.sqrt(0.6) * common
    A = np.clip(0.5 * A, -1, 1)
    x = np.zeros(COLUMNS)
    size = rng.uniform(0.5, 1, 6)
    x[rng.choice(COLUMNS, 6, replace=False)] = size * rng.choice([-1, 1], 6) * RADIUS / size.sum()
    return A, np.clip(A @ x + 0.3 * rng.normal(size=n), -2, 2), x


def best(A: np.ndarray, y: np.ndarray) -> float:
    """f*, by bisection of scikit-learn's penalty."""
    low, high = 1e-6, 1.0
    for _ in range(40):
        alpha = np.sqrt(low * high)
        w = Lasso(alpha=alpha, fit_intercept=False, precompute=True, tol=1e-8, max_iter=20_000).fit(A, y).coef_
        low, high = (alpha, high) if np.abs(w).sum() > RADIUS else (low, alpha)
    return float(np.square(A @ (w * min(1, RADIUS / np.abs(w).sum())) - y).mean() / 2)


def lasso(epsilon: float, seed: int = 0, **options: object) -> PrivateLasso:
    settings = {"parties": PARTIES, "radius": RADIUS, "bounds": (-1, 1), "y_bounds": (-2, 2), "delta": 1e-5}
    settings |= {"fit_intercept": False, **options}  # the simulated response has no constant
    return PrivateLasso(epsilon=epsilon, random_state=seed, **settings)


def sent(model: PrivateLasso | PrideRegressor) -> float:
    """Megabytes that the parties sent."""
    return sum(part["received"] for part in model.communication_.values()) / 1e6


class Data:
    """Simulated data sets of one size, and their optima."""

    def __init__(self, n: int, repetitions: int) -> None:
        self.n = n
        self.sets = [simulated(n, seed) for seed in range(repetitions)]
        self.optima = [best(A, y) for A, y, _ in self.sets]

    def row(self, epsilon: float, **options: object) -> list[str]:
        """Excess risk, how much of it was expected, support, bytes."""
        excess, found, traffic = [], [], []
        for seed, ((A, y, x), optimum) in enumerate(zip(self.sets, self.optima, strict=True)):
            model = lasso(epsilon, seed, **options).fit(A, y)
            risk, null = np.square(A @ model.coef_ - y).mean() / 2, np.square(y).mean() / 2
            excess.append((risk - optimum) / (null - optimum))
            found.append(np.isin(np.argsort(-np.abs(model.coef_))[:6], np.flatnonzero(x)).sum())
            traffic.append(sent(model))
        error = np.std(excess, ddof=1) / np.sqrt(len(excess))
        expected = "" if options.get("sampled") or np.isinf(epsilon) else f"{model.outlook(self.n, COLUMNS).excess:.3f}"
        mean = f"{np.mean(excess):.4f} ± {error:.4f}"
        return [mean, expected, f"{np.mean(found):.1f} of 6", f"{np.mean(traffic):.2f}"]


HEADER = ["relative excess risk", "expected", "support among the 6 largest", "MB sent by the parties"]


def against_epsilon(data: dict[int, Data]) -> None:
    rows = []
    for n, sets in data.items():
        rows.append([str(n), "inf", "no noise, rounds alone", *sets.row(float("inf"), **ALONE)])
        rows.append([str(n), "inf", "no noise", *sets.row(float("inf"))])
        for epsilon in (1.0, 3.0, 10.0):
            for form, options in FORMS.items():
                chosen = lasso(epsilon, **options).recommended(n, COLUMNS) if "recommended" in form else {}
                rows.append([str(n), f"{epsilon:g}", form, *sets.row(epsilon, **options, **chosen)])
    title = f"Private Frank-Wolfe, K = {PARTIES}, T = 20, {len(sets.sets)} repetitions"
    write_table("lasso_private", title, ["n", "eps", "unit and form", *HEADER], rows)


def against_shape(sets: Data) -> None:
    """K does not matter to a value, and matters to a row; looking at fewer columns costs accuracy."""
    rows = []
    for parties in (1, 2, 4, 10):
        for unit, epsilon in (("attribute", 1.0), ("record", 10.0)):
            rows.append([f"K = {parties}", unit, f"{epsilon:g}", *sets.row(epsilon, parties=parties, unit=unit)])
    for tau in (25, 12, 6, 3):
        for unit, epsilon in (("attribute", 1.0), ("record", 10.0)):
            rows.append([f"tau = {tau} of 25", unit, f"{epsilon:g}", *sets.row(epsilon, sampled=tau, unit=unit)])
    rows += [[f"T = {rounds}", "attribute", "1", *sets.row(1.0, rounds=rounds)] for rounds in (5, 10, 20, 40, 80)]
    title = f"Private Frank-Wolfe at n = {sets.n} against K, tau and T, {len(sets.sets)} repetitions"
    write_table("lasso_shape", title, ["shape", "unit", "eps", *HEADER], rows)


def against_pride(n: int, repetitions: int) -> None:
    """Error of the coefficients in predictions, |A(x - x*)|^2 / |A x*|^2, and bytes.

    A LASSO publishes its coefficients; PRIDE's stay at the owners of the columns, who fit them to their own columns as they are.
    """
    rows = []
    for factors, design in ((0, "independent"), (5, "five common causes")):
        sets = [simulated(n, seed, factors) for seed in range(repetitions)]
        for epsilon in (1.0, 10.0):
            makers = {
                **{
                    f"LASSO, T = {rounds}": lambda seed, r=rounds, e=epsilon: lasso(e, seed, rounds=r)
                    for rounds in (5, 10, 20, 40)
                },
                **{
                    f"PRIDE, m = {m} tau": lambda seed, m=m, e=epsilon: PrideRegressor(
                        PARTIES, bounds=(-1, 1), epsilon=e, delta=1e-5, sketch_dim=m, random_state=seed
                    )
                    for m in (0.05, 0.2, 0.5, 1.0)
                },
            }
            for name, make in makers.items():
                errors, traffic = [], []
                for seed, (A, y, x) in enumerate(sets):
                    model = make(seed).fit(A, y)
                    errors.append(np.square(A @ (model.coef_ - x)).sum() / np.square(A @ x).sum())
                    traffic.append(sent(model))
                rows.append([design, f"{epsilon:g}", name, f"{np.mean(errors):.4f}", f"{np.mean(traffic):.2f}"])
    title = f"Error of predictions and bytes sent, unit attribute, n = {n}, {repetitions} repetitions"
    write_table("lasso_uplink", title, ["design", "eps", "method", "relative error", "MB sent by the parties"], rows)


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    data = {n: Data(n, repetitions) for n in (2000, 20_000)}
    against_epsilon(data)
    against_shape(data[20_000])
    against_pride(20_000, repetitions)


if __name__ == "__main__":
    main()
