"""Earlier models in every family and split: how far predictions are off with them and without, and whether credible intervals hold the truth.

Cells were listed before any was run: the three kinds of `experiments/priors.py`, five pairs of epsilon and rows, 20 seeds. Rows: four columns
with one common factor (correlation .3), half a declared range of 4 deviations, and a column of three wards of 60, 30 and 10 %. The linear
predictor (log odds, log of a mean, log hazard; of three classes each against their mean) has a deviation of 1. What fits do with earlier
models of these families was not changed after a run of this.
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

from unpooled import PrivateGLM, PrivateLinearRegression

CELLS = ((0.3, 400), (1.0, 400), (1.0, 4000), (3.0, 4000), (10.0, 4000))
SEEDS, NEW, NUMBERS = 20, 4000, 4
WARDS, SHARES = ("a", "b", "c"), (0.6, 0.3, 0.1)
NAMES = (*(f"x{j}" for j in range(NUMBERS)), "ward = a", "ward = b", "ward = c")
BOUNDS: dict[str, Any] = {f"x{j}": (-4.0, 4.0) for j in range(NUMBERS)} | {"ward": list(WARDS)}
CLASSES, YEAR = ("first", "second", "third"), 365.0
FAMILIES = ("linear", "logistic", "poisson", "survival", "multinomial", "linear, columns split")
#: How a table calls their coefficients, the first ward's having none.
PRINTED = (*NAMES[:NUMBERS], "", "ward: b - a", "ward: c - a")


def rows(count: int, rng: np.random.Generator) -> tuple[pl.DataFrame, np.ndarray]:
    """Return a frame, and its columns with an indicator of each ward."""
    X = np.sqrt(0.3) * rng.normal(size=(count, 1)) + np.sqrt(0.7) * rng.normal(size=(count, NUMBERS))
    ward = rng.choice(3, count, p=SHARES)
    frame = pl.DataFrame({f"x{j}": X[:, j] for j in range(NUMBERS)} | {"ward": np.array(WARDS)[ward]})
    return frame, np.hstack([X, np.eye(3)[ward]])


def slopes_of(rng: np.random.Generator, predictors: int) -> np.ndarray:
    """Return slopes, a column for each linear predictor; the first ward has none, and classes add up to 0."""
    b = rng.normal(size=(len(NAMES), predictors)) * np.array([1.0] * NUMBERS + [0.0, 1.0, 1.0])[:, None]
    if predictors > 1:
        b -= b.mean(axis=1, keepdims=True)
    return np.asarray(b / (rows(20_000, np.random.default_rng(0))[1] @ b).std())


def earlier(kind: str, b: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the slopes of an earlier model of this kind."""
    wrong = rng.normal(size=b.shape) * (b != 0)
    if kind == "good":
        return b + 0.15 * wrong * np.linalg.norm(b) / np.linalg.norm(wrong)
    if kind == "useless":
        wrong -= b * (wrong * b).sum() / np.square(b).sum()
        return np.asarray(wrong * np.linalg.norm(b) / np.linalg.norm(wrong))
    return b * np.where(np.arange(len(NAMES)) % 2, 1.0, -1.0)[:, None]


def named(family: str, b: np.ndarray) -> dict[str, float]:
    """Return slopes as a parameter."""
    if family == "multinomial":
        return {
            f"{label}: {name}": float(v)
            for label, own in zip(CLASSES, b.T, strict=True)
            for name, v in zip(NAMES, own, strict=True)
        }
    constant = {} if family == "survival" else {"(intercept)": 0.3}
    return dict(zip(NAMES, b[:, 0].tolist(), strict=True)) | constant


def fitted(family: str, epsilon: float, frame: pl.DataFrame, predictor: np.ndarray, prior: Any, seed: int) -> Any:
    """Return a fit to responses of this predictor; constants are 0."""
    rng = np.random.default_rng([seed, 7])
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-6, "bounds": BOUNDS, "random_state": seed, "prior": prior}
    eta = predictor[:, 0]
    if family.startswith("linear"):
        if family != "linear":
            asked |= {
                "parties": {"lab": ["x0", "x1", "ward"], "clinic": ["x2", "x3"]},
                "response_at": "clinic",
                "method": "moments",
            }
        return PrivateLinearRegression(y_bounds=(-6, 6), **asked).fit(frame, eta + rng.normal(size=eta.size))
    if family == "survival":
        until = rng.exponential(300 * np.exp(-eta))
        model = PrivateGLM(family, y_bounds=(0, YEAR), cuts=[90, 180], **asked)
        return model.fit(frame, np.minimum(until, YEAR), event=(until <= YEAR).astype(float))
    if family == "poisson":
        return PrivateGLM(family, y_bounds=(0, 30), **asked).fit(frame, np.minimum(rng.poisson(np.exp(eta)), 30))
    if family == "logistic":
        return PrivateGLM(classes=(0, 1), **asked).fit(frame, (rng.random(eta.size) < 1 / (1 + np.exp(-eta))).astype(int))
    p = np.exp(predictor).cumsum(axis=1)
    y = np.array(CLASSES)[(rng.random(eta.size)[:, None] * p[:, -1:] > p).sum(axis=1)]
    return PrivateGLM(family, classes=CLASSES, **asked).fit(frame, y)


def held(model: Any, family: str, b: np.ndarray) -> tuple[int, int, int]:
    """Return (slopes that the table prints, those of them whose interval holds the truth, all)."""
    truth = dict(zip(PRINTED, b[:, 0].tolist(), strict=True))
    if family == "multinomial":
        less = b[:, 1:] - b[:, :1]
        truth = {
            f"{label}: {name}": float(value)
            for label, own in zip(CLASSES[1:], less.T, strict=True)
            for name, value in zip(PRINTED, own, strict=True)
        }
    try:
        lines = model.summary().terms
    except Exception:  # noqa: BLE001 - a method without standard errors says so
        lines = ()
    own = [line for line in lines if line.term in truth]
    inside = [line.conf_low <= truth[line.term] <= line.conf_high for line in own]
    return len(own), sum(inside), (len(NAMES) - 1) * (b.shape[1] - (b.shape[1] > 1))


def cell(family: str, kind: str, epsilon: float, count: int) -> dict[str, list[Any]]:
    """Return the errors of predictors over their variance, and how many slopes are printed and held."""
    found: dict[str, list[Any]] = {"with": [], "without": [], "alone": [], "held": [], "weight": []}
    several = family == "multinomial"
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, count])
        b = slopes_of(rng, 3 if several else 1)
        other = earlier(kind, b, rng)
        frame, X = rows(count, rng)
        _, new = rows(NEW, rng)
        for name, prior in (("with", named(family, other)), ("without", None)):
            model = fitted(family, epsilon, frame, X @ b, prior, seed)
            own = np.atleast_2d(model.coef_).T
            found[name].append(off(family, new, own - b, np.atleast_1d(getattr(model, "intercept_", 0.0))))
            if prior is not None:
                found["held"].append(held(model, family, b))
                found["weight"].append(model.drawn_.weights[0].weight)
        constant = np.zeros(1) if family in {"survival", "multinomial"} else np.array([0.3])
        found["alone"].append(off(family, new, other - b, constant))
    return found


def off(family: str, X: np.ndarray, slopes: np.ndarray, constant: np.ndarray) -> float:
    """Return the mean square of the predictor that is left; of hazards without what all have in common."""
    left = X @ slopes + constant
    if family == "multinomial":
        left = left - left.mean(axis=1, keepdims=True)
    if family == "survival":
        left = left - left.mean()
    return float(np.square(left).mean())


def main(full: bool) -> None:
    """Write the table; cells that are in the file are not run again."""
    del full
    warnings.simplefilter("ignore")
    path = RESULTS / "priors_families.json"
    known = json.loads(path.read_text()) if path.is_file() else {}
    lines = []
    for family, kind, (epsilon, count) in itertools.product(FAMILIES, KINDS, CELLS):
        name = f"{family} {kind} {epsilon:g} {count}"
        if name not in known:
            known[name] = cell(family, kind, epsilon, count)
            path.write_text(json.dumps(known))
        own = {arm: np.array(values) for arm, values in known[name].items()}
        gap = own["with"] - own["without"]
        printed, inside, every = own["held"].sum(axis=0)
        means = [f"{np.mean(own[arm]):.3f}" for arm in ("with", "without", "alone")]
        error = gap.std() / np.sqrt(gap.size - 1)
        coverage = f"{inside / printed:.2f} of {printed}/{every}" if printed else "no table"
        lines.append(
            (
                family,
                kind,
                f"{epsilon:g}",
                f"{count}",
                *means,
                f"{gap.mean():+.3f} +-{error:.3f}",
                f"{own['weight'].mean():.2f}",
                coverage,
            )
        )
        print(*lines[-1], flush=True)
    header = (
        "family",
        "earlier model",
        "epsilon",
        "rows",
        "with",
        "without",
        "alone",
        "with - without",
        "weight",
        "intervals that hold",
    )
    notes = f"Mean square of the linear predictor that is left, over its variance; means over {SEEDS} seeds. Intervals of 95 %: the share that holds, of the slopes that are printed out of all."
    write_table("priors_families", "Earlier models by family", header, lines, notes)


if __name__ == "__main__":
    run(main)
