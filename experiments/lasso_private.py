"""Private Frank-Wolfe on simulated data: excess risk and support recovery against epsilon and n, and bytes sent against PRIDE's sketches.

    python experiments/lasso_private.py [repetitions]

Simulator of THEORY 003: A = clip(0.5 N(0,1), +-1), n x 100; six coefficients of random sign, |x|_1 = 2; y = clip(A x + 0.3 N(0,1), +-2); K = 4, T = 20.
Relative excess risk is (f(x) - f*) / (f(0) - f*), f* the optimum with |x|_1 <= 2.
"""

from __future__ import annotations

import sys

import numpy as np
from common import write_table
from sklearn.linear_model import Lasso

from unpooled import PrideRegressor, PrivateLasso

RADIUS, PARTIES, ROUNDS, COLUMNS = 2.0, 4, 20, 100
FORMS = {
    "no noise": {"epsilon": float("inf")},
    "value, y public": {"response_public": True},
    "value": {},
    "row": {"unit": "record"},
    "value, blocks": {"coupling": "blocks"},
    "value, tau = 10": {"sampled": 10},
}


def simulated(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    A = np.clip(0.5 * rng.normal(size=(n, COLUMNS)), -1, 1)
    x = np.zeros(COLUMNS)
    size = rng.uniform(0.5, 1, 6)
    x[rng.choice(COLUMNS, 6, replace=False)] = size * rng.choice([-1, 1], 6) * RADIUS / size.sum()
    return A, np.clip(A @ x + 0.3 * rng.normal(size=n), -2, 2), x


def best(A: np.ndarray, y: np.ndarray) -> float:
    """f*, by bisection of scikit-learn's penalty."""
    low, high = 1e-6, 1.0
    for _ in range(40):
        alpha = np.sqrt(low * high)
        w = Lasso(alpha=alpha, fit_intercept=False, tol=1e-8, max_iter=20_000).fit(A, y).coef_
        low, high = (alpha, high) if np.abs(w).sum() > RADIUS else (low, alpha)
    return float(np.square(A @ (w * min(1, RADIUS / np.abs(w).sum())) - y).mean() / 2)


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    rows = []
    for n in (2000, 20_000):
        data = [simulated(n, seed) for seed in range(repetitions)]
        optima = [best(A, y) for A, y, _ in data]
        for epsilon in (1.0, 10.0):
            for form, options in FORMS.items():
                if form == "no noise" and epsilon > 1:
                    continue
                excess, found, sent = [], [], []
                for seed, ((A, y, x), optimum) in enumerate(zip(data, optima, strict=True)):
                    model = PrivateLasso(
                        PARTIES,
                        radius=RADIUS,
                        rounds=ROUNDS,
                        bounds=(-1, 1),
                        y_bounds=(-2, 2),
                        delta=1e-5,
                        random_state=seed,
                        **{"epsilon": epsilon, **options},
                    ).fit(A, y)
                    risk, null = np.square(A @ model.coef_ - y).mean() / 2, np.square(y).mean() / 2
                    excess.append((risk - optimum) / (null - optimum))
                    top = np.argsort(-np.abs(model.coef_))[:6]
                    found.append(np.isin(top, np.flatnonzero(x)).sum())
                    sent.append(sum(part["received"] for part in model.communication_.values()))
                label = "inf" if form == "no noise" else f"{epsilon:g}"
                error = np.std(excess, ddof=1) / np.sqrt(repetitions)
                rows.append(
                    [
                        str(n),
                        label,
                        form,
                        f"{np.mean(excess):.3f} ± {error:.3f}",
                        f"{np.mean(found):.1f} of 6",
                        f"{np.mean(sent) / 1e6:.2f}",
                    ]
                )
        A, y, _ = data[0]
        pride = PrideRegressor(PARTIES, bounds=(-1, 1), epsilon=10.0, delta=1e-5, sketch_dim=0.2, random_state=0).fit(A, y)
        sketch = sum(part["received"] for part in pride.communication_.values())
        rows.append([str(n), "10", "PRIDE, m = 0.2 tau", "", "", f"{sketch / 1e6:.2f}"])
    write_table(
        "lasso_private",
        f"Private Frank-Wolfe, K = {PARTIES}, T = {ROUNDS}, {repetitions} repetitions",
        ["n", "eps", "unit and form", "relative excess risk", "support among the 6 largest", "MB sent by the parties"],
        rows,
    )


if __name__ == "__main__":
    main()
