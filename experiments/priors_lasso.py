"""Earlier models of the LASSO: how far predictions are off with them, without them, and how far the earlier model alone is.

Cells were listed before any was run: four forms, the three kinds of `experiments/priors.py` and all three at once, five pairs of epsilon and rows, 20
seeds. Rows: columns with one common factor (correlation .3), half a declared range of 4 deviations, in equal parts at the parties. Five columns
matter; they explain half of the variance of a response, or are log odds of deviation 2. A good earlier model has these slopes off by 15 %, a useless one has slopes of five other columns, and a misleading one has the
wrong sign of every second slope. A first version had a column of wards: three of its cells had run when it was dropped, for it took too long. What the fit does was fixed by simulations of other draws (THEORY.md of the LASSO, 1e), and not after a run of this.
"""

from __future__ import annotations

import itertools
import json
import warnings
from typing import Any

import numpy as np
from experiments.common import RESULTS, run, write_table
from sklearn.metrics import log_loss

from unpooled import PrivateLasso, PrivateLassoClassifier

#: Parties, columns of numbers, and how the fit is asked for.
FORMS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "values": (2, 60, {"unit": "attribute"}),
    "records": (2, 20, {"unit": "record"}),
    "joint": (2, 20, {"unit": "record", "method": "joint"}),
    "classes": (2, 20, {"unit": "record"}),
}
CELLS = ((0.5, 4000), (1.0, 2000), (1.0, 4000), (3.0, 4000), (1.0, 20_000))
KINDS, SEEDS, NEW, COMMON = ("good", "useless", "misleading", "all three"), 20, 4000, 0.3
#: The deviation of log odds, and their mean.
ODDS, RATE = 2.0, -1.0


def rows(count: int, numbers: int, rng: np.random.Generator) -> np.ndarray:
    """Return columns with one common factor."""
    own, common = rng.normal(size=(count, numbers)), rng.normal(size=(count, 1))
    return np.asarray(np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * own)


def slopes_of(numbers: int, size: float, rng: np.random.Generator) -> np.ndarray:
    """Return slopes of a linear predictor of this deviation: of five columns."""
    b = np.zeros(numbers)
    b[rng.choice(numbers, 5, replace=False)] = rng.uniform(0.5, 1, 5) * rng.choice([-1, 1], 5)
    return np.asarray(size * b / np.sqrt((1 - COMMON) * (b @ b) + COMMON * b.sum() ** 2))


def earlier(kind: str, b: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the slopes of an earlier model of this kind."""
    wrong, at = rng.normal(size=b.size) * (b != 0), np.flatnonzero(b)
    if kind == "good":
        return b + 0.15 * wrong * np.linalg.norm(b) / np.linalg.norm(wrong)
    if kind == "misleading":
        found = b.copy()
        found[at[::2]] *= -1
        return found
    found = np.zeros_like(b)
    found[rng.choice(np.flatnonzero(b == 0), at.size, replace=False)] = wrong[at]
    return np.asarray(found * np.linalg.norm(b) / np.linalg.norm(found))


def named(b: np.ndarray) -> dict[str, float]:
    """Return slopes as a parameter."""
    return {f"x{j}": float(b[j]) for j in np.flatnonzero(b)}


def error(form: str, predictor: np.ndarray, response: np.ndarray) -> float:
    """Return the squared error over the variance of a response, or the log-loss of a class."""
    if form == "classes":
        return float(log_loss(response, 1 / (1 + np.exp(-predictor)), labels=[0, 1]))
    return float(np.mean(np.square(predictor - response)) / response.var())


def cell(form: str, kind: str, epsilon: float, count: int) -> dict[str, list[float]]:
    """Return the errors of every seed, and the weight of the first model."""
    parties, numbers, asked = FORMS[form]
    two = form == "classes"
    found: dict[str, list[float]] = {"with": [], "without": [], "alone": [], "weight": []}
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, count, numbers])
        b = slopes_of(numbers, ODDS if two else 1.0, rng)
        models = {one: earlier(one, b, rng) for one in KINDS[:3]}
        told = {one: named(models[one]) for one in (KINDS[:3] if kind == "all three" else (kind,))}
        X, new = rows(count, numbers, rng), rows(NEW, numbers, rng)
        if two:
            y, response = ((rng.random(len(part)) < 1 / (1 + np.exp(-RATE - part @ b))).astype(int) for part in (X, new))
        else:
            y, response = (part @ b + rng.normal(size=len(part)) for part in (X, new))
        for name, prior in (("with", told), ("without", None)):
            own = {
                "parties": parties,
                "epsilon": epsilon,
                "delta": 1e-6,
                "bounds": (-4.0, 4.0),
                "random_state": seed,
                "prior": prior,
            }
            made = (
                PrivateLassoClassifier(classes=(0, 1), **own, **asked)
                if two
                else PrivateLasso(y_bounds=(-6, 6), **own, **asked)
            )
            model = made.fit(X, y)
            found[name].append(error(form, model.decision_function(new) if two else model.predict(new), response))
            if prior is not None:
                found["weight"].append(model.drawn_.weights[0].weight)
        best = models["good" if kind == "all three" else kind]
        found["alone"].append(error(form, (RATE if two else 0.0) + new @ best, response))
    return found


def main(full: bool) -> None:
    """Write the table; cells that are in the file are not run again."""
    del full
    warnings.simplefilter("ignore")
    path = RESULTS / "priors_lasso.json"
    known = json.loads(path.read_text()) if path.is_file() else {}
    lines = []
    for form, kind, (epsilon, count) in itertools.product(FORMS, KINDS, CELLS):
        name = f"{form} {kind} {epsilon:g} {count}"
        if name not in known:
            known[name] = cell(form, kind, epsilon, count)
            path.write_text(json.dumps(known))
        own = {arm: np.array(values) for arm, values in known[name].items()}
        gap = own["with"] - own["without"]
        means = [f"{np.mean(own[arm]):.3f}" for arm in ("with", "without", "alone")]
        spread = gap.std() / np.sqrt(gap.size - 1)
        lines.append(
            (
                form,
                kind,
                f"{epsilon:g}",
                f"{count}",
                *means,
                f"{gap.mean():+.3f} +-{spread:.3f}",
                f"{own['weight'].mean():.2f}",
            )
        )
        print(*lines[-1], flush=True)
    header = ("form", "earlier model", "epsilon", "rows", "with", "without", "alone", "with - without", "weight")
    notes = f"Squared error of new predictions over the variance of the response (classes: log-loss); means over {SEEDS} seeds. The weight of all three is the good one's."
    write_table("priors_lasso", "Earlier models of the LASSO", header, lines, notes)


if __name__ == "__main__":
    run(main)
