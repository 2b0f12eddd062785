"""Earlier models in PRIDE: how far joint predictions and those at a party are off, with them and without, by their own, and by the party's own model.

Cells were listed before any was run: the three kinds of `experiments/priors.py`, the layouts and epsilons below, 20 seeds. Rows: columns with one
common factor (correlation .3), half a declared range of 4 deviations, and a column of three wards of 60, 30 and 10 % at the last party. The
linear predictor (log odds, log of a mean) has a deviation of 1, and a number has noise of deviation 1. The prior weight of "no earlier model" was
set by other simulations before (THEORY.md of ``pride``, section 11); nothing was changed after a run of this.
"""

from __future__ import annotations

import itertools
import json
import warnings
from typing import Any

import numpy as np
import polars as pl
from experiments.common import RESULTS, run, write_table
from experiments.priors import KINDS
from experiments.priors_families import SEEDS, SHARES, WARDS, earlier

from unpooled import PrideGLM
from unpooled.models.pride.declared import Parameters
from unpooled.models.pride.local import own_decisions

#: (family, rows, parties, numeric columns of each).
LAYOUTS = (
    ("squared", 100, 2, 3),
    ("squared", 100, 2, 20),
    ("squared", 300, 2, 20),
    ("squared", 300, 4, 5),
    ("squared", 1000, 2, 20),
    ("logistic", 300, 2, 20),
    ("logistic", 1000, 2, 5),
    ("poisson", 300, 2, 5),
)
EPSILONS = (1.0, 5.0)
NEW = 1000
ARMS = ("with", "without", "alone", "at a party", "at it without", "own model")


def rows(count: int, width: int, rng: np.random.Generator) -> tuple[pl.DataFrame, np.ndarray]:
    """Return a frame, and its columns with an indicator of each ward."""
    X = np.sqrt(0.3) * rng.normal(size=(count, 1)) + np.sqrt(0.7) * rng.normal(size=(count, width))
    ward = rng.choice(3, count, p=SHARES)
    frame = pl.DataFrame({f"x{j}": X[:, j] for j in range(width)} | {"ward": np.array(WARDS)[ward]})
    return frame, np.hstack([X, np.eye(3)[ward]])


def slopes_of(rng: np.random.Generator, width: int) -> np.ndarray:
    """Return slopes of numbers, and of wards of which the first has none."""
    b = np.append(rng.normal(size=width), [0.0, *rng.normal(size=2)])
    return np.asarray(b / (rows(20_000, width, np.random.default_rng(0))[1] @ b).std())


def response(family: str, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return responses of this predictor."""
    if family == "logistic":
        return (rng.random(eta.size) < 1 / (1 + np.exp(-eta))).astype(int)
    return rng.poisson(np.exp(eta)).astype(float) if family == "poisson" else eta + rng.normal(size=eta.size)


def own_error(family: str, X: np.ndarray, y: np.ndarray, eta: np.ndarray) -> float:
    """Return the error of the better own model of the first party: the family's by evidence, or least squares."""
    parameters = Parameters(task="classification") if family == "logistic" else Parameters(family=family)
    told = np.where(y > 0, 1.0, -1.0) if family == "logistic" else y
    return min(float(np.square(found - eta).mean()) for found in own_decisions(parameters, X / 4, told))


def cell(family: str, kind: str, epsilon: float, count: int, parties: int, width: int) -> dict[str, list[float]]:
    """Return errors of predictors over their variance, by arm, and the weight of the earlier model in a party's share."""
    found: dict[str, list[float]] = {arm: [] for arm in (*ARMS, "weight")}
    columns = parties * width
    held = {f"p{k}": [f"x{j}" for j in range(k * width, (k + 1) * width)] for k in range(parties)}
    held[f"p{parties - 1}"].append("ward")
    bounds: dict[str, Any] = {f"x{j}": (-4.0, 4.0) for j in range(columns)} | {"ward": list(WARDS)}
    names = [*(f"x{j}" for j in range(columns)), *(f"ward = {ward}" for ward in WARDS)]
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, count, columns])
        b = slopes_of(rng, columns)
        other = (
            earlier(kind, b[:, None], rng)[:, 0] if kind != "misleading" else b * np.where(np.arange(b.size) % 2, 1.0, -1.0)
        )
        frame, X = rows(count, columns, rng)
        later, new = rows(NEW, columns, rng)
        y, eta = response(family, X @ b, rng), new @ b
        asked: dict[str, Any] = {"parties": held, "epsilon": epsilon, "delta": 1e-6, "bounds": bounds, "random_state": seed}
        asked |= {"classes": (0, 1)} if family == "logistic" else {}
        for prior, joint, home in ((dict(zip(names, other.tolist(), strict=True)), *ARMS[:4:3]), (None, *ARMS[1:5:3])):
            model = PrideGLM(family, prior=prior, **asked).fit(frame, y)
            found[joint].append(float(np.square(model.linear_predictor(later) - eta).mean()))
            at = model._decision_at("p0", later)  # noqa: SLF001 - the linear predictor of any family
            found[home].append(float(np.square(at - eta).mean()))
            if prior:
                found["weight"].append(float(np.mean([one.weights[0].weight for one in model.drawn_.values()])))
        found["alone"].append(float(np.square(new @ (other - b)).mean()))
        own = np.vstack([X[:, :width], new[:, :width]])
        found["own model"].append(own_error(family, own, y, eta))
    return found


def main(full: bool) -> None:
    """Write the table; cells that are in the file are not run again."""
    del full
    warnings.simplefilter("ignore")
    path = RESULTS / "priors_pride.json"
    known = json.loads(path.read_text()) if path.is_file() else {}
    lines = []
    for (family, count, parties, width), kind, epsilon in itertools.product(LAYOUTS, KINDS, EPSILONS):
        name = f"{family} {kind} {epsilon:g} {count} {parties} x {width}"
        if name not in known:
            known[name] = cell(family, kind, epsilon, count, parties, width)
            path.write_text(json.dumps(known))
        own = {arm: np.array(values) for arm, values in known[name].items()}
        gap = own["with"] - own["without"]
        error = gap.std() / np.sqrt(gap.size - 1)
        means = [f"{own[arm].mean():.3f}" for arm in ARMS]
        shape = (family, kind, f"{epsilon:g}", f"{count}", f"{parties} x {width}")
        lines.append((*shape, *means, f"{gap.mean():+.3f} +-{error:.3f}", f"{own['weight'].mean():.2f}"))
        print(*lines[-1], flush=True)
    header = ("family", "earlier model", "epsilon", "rows", "columns", *ARMS, "with - without", "weight")
    notes = (
        f"Mean square of the linear predictor that is left, over its variance; means over {SEEDS} seeds. Joint predictions with the earlier model, "
        "without it, and it alone; predictions at the first party with it and without, and the better of its own models, of its own columns."
    )
    write_table("priors_pride", "Earlier models in PRIDE", header, lines, notes)


if __name__ == "__main__":
    run(main)
