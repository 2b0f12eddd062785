"""Earlier models of two classes: log-loss of predictions with them, without them, of the earlier model alone and of the base rate.

Cells were listed before any was run: the three kinds of `experiments/priors.py` (a good model, a useless one, a misleading one), four
epsilons, two numbers of rows, 20 seeds. Rows: five columns with one common factor (correlation .3), half a declared range of 4 deviations, log odds of
deviation 1.3. What the fit does was settled on six independent columns with log odds of deviation 1.5.
"""

from __future__ import annotations

import itertools
import json
import warnings

import numpy as np
from experiments.common import RESULTS, run, write_table
from experiments.priors import KINDS
from sklearn.metrics import log_loss

from unpooled import PrivateGLM

EPSILONS, ROWS, SEEDS, NEW, COLUMNS, DEVIATION = (0.1, 0.5, 2.0, 10.0), (400, 4000), 20, 4000, 5, 1.3


def made(count: int, slopes: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return columns and classes."""
    X = np.sqrt(0.3) * rng.normal(size=(count, 1)) + np.sqrt(0.7) * rng.normal(size=(count, COLUMNS))
    return X, (rng.random(count) < 1 / (1 + np.exp(1.0 - X @ slopes))).astype(int)


def earlier(kind: str, slopes: np.ndarray, rng: np.random.Generator) -> dict[str, float]:
    """Return an earlier model of this kind."""
    size, constant = np.linalg.norm(slopes), {"good": -0.9, "useless": -0.2, "misleading": 0.5}[kind]
    own = slopes + 0.15 * size * rng.normal(size=COLUMNS) / np.sqrt(COLUMNS)
    if kind == "useless":
        own = rng.normal(size=COLUMNS)
        own -= slopes * (own @ slopes) / size**2
        own *= size / np.linalg.norm(own)
    elif kind == "misleading":
        own = slopes * np.where(np.arange(COLUMNS) % 2, 1.0, -1.0)
    return {f"x{j}": float(value) for j, value in enumerate(own)} | {"(intercept)": constant}


def cell(kind: str, epsilon: float, rows: int) -> dict[str, list[float]]:
    """Return the losses of every seed."""
    found: dict[str, list[float]] = {"with": [], "without": [], "alone": [], "base": []}
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, rows])
        slopes = rng.normal(size=COLUMNS)
        slopes *= DEVIATION / (made(20_000, slopes, np.random.default_rng(0))[0] @ slopes).std()
        prior = earlier(kind, slopes, rng)
        X, y = made(rows, slopes, rng)
        new, then = made(NEW, slopes, rng)
        for name, own in (("with", prior), ("without", None)):
            asked = {"bounds": (-4, 4), "classes": (0, 1), "delta": 1e-6, "random_state": seed}
            model = PrivateGLM(epsilon=epsilon, prior=own, **asked).fit(X, y)
            found[name].append(float(log_loss(then, model.predict_proba(new))))
        odds = new @ np.array([prior[f"x{j}"] for j in range(COLUMNS)]) + prior["(intercept)"]
        found["alone"].append(float(log_loss(then, 1 / (1 + np.exp(-odds)))))
        found["base"].append(float(log_loss(then, np.full(NEW, then.mean()))))
    return found


def main(full: bool) -> None:
    """Write the table; cells that are in the file are not run again."""
    del full
    warnings.simplefilter("ignore")
    path = RESULTS / "priors_logistic.json"
    known = json.loads(path.read_text()) if path.is_file() else {}
    lines = []
    for kind, epsilon, rows in itertools.product(KINDS, EPSILONS, ROWS):
        name = f"{kind} {epsilon:g} {rows}"
        if name not in known:
            known[name] = cell(kind, epsilon, rows)
            path.write_text(json.dumps(known))
        own = {arm: np.array(values) for arm, values in known[name].items()}
        gap = own["with"] - own["without"]
        means = [f"{own[arm].mean():.3f}" for arm in ("with", "without", "alone", "base")]
        lines.append(
            (kind, f"{epsilon:g}", str(rows), *means, f"{gap.mean():+.3f} +-{gap.std() / np.sqrt(gap.size - 1):.3f}")
        )
        print(*lines[-1], flush=True)
    header = ("earlier model", "epsilon", "rows", "with", "without", "alone", "base rate", "with - without")
    write_table(
        "priors_logistic", "Earlier models of two classes", header, lines, f"Log-loss of new rows, means over {SEEDS} seeds."
    )


if __name__ == "__main__":
    run(main)
