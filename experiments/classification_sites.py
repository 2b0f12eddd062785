"""Does it matter over how many sites rows are split? AUC of pooled logistic regression at 1, 4, 10 and 50 sites with equal rows in all."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
from experiments.common import run, write_table
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from unpooled import PrivateLogisticRegression

SITES, SEEDS = (1, 4, 10, 50), 30
ROWS, LARGE = (5000,), (5000, 20_000)


def auc(n: int, d: int, epsilon: float, sites: int, seed: int) -> float:
    """Of new rows; the same rows for every number of sites, dealt to them in turn."""
    rng = np.random.default_rng([seed, n, d])
    X = rng.normal(size=(n + 5000, d))
    u = X @ rng.normal(size=d)
    y = (rng.random(n + 5000) < expit(1.5 * u / u.std())).astype(int)
    X = np.clip(X / 4, -1, 1)
    model = PrivateLogisticRegression(epsilon=epsilon, delta=1e-5, bounds=(-1, 1), classes=(0, 1), random_state=seed)
    model.fit(X[:n], y[:n], sites=np.arange(n) % sites if sites > 1 else None)
    return float(roc_auc_score(y[n:], model.decision_function(X[n:])))


def main(full: bool) -> None:
    """Thirty seeds at 5,000 rows; in full at 20,000, too."""
    warnings.simplefilter("ignore")
    rows, worst = [], 0.0
    for n, d, epsilon in itertools.product(LARGE if full else ROWS, (5, 20), (1.0, 3.0)):
        medians = [float(np.median([auc(n, d, epsilon, sites, seed) for seed in range(SEEDS)])) for sites in SITES]
        worst = max(worst, max(medians) - min(medians))
        rows.append(
            [f"{n} x {d}, {epsilon:g}", f"{SEEDS}", *(f"{m:.4f}" for m in medians), f"{max(medians) - min(medians):.4f}"]
        )
        print(rows[-1], flush=True)
    write_table(
        "classification/sites",
        "Median AUC by the number of sites (delta = 1e-5, replace, noise in parts by secure sum)",
        ["rows, eps", "seeds", *(f"{sites} sites" if sites > 1 else "1 site" for sites in SITES), "largest difference"],
        rows,
        f"Largest difference of medians: {worst:.4f}.",
    )


if __name__ == "__main__":
    run(main)
