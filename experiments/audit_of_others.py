"""Regressions of other packages and ours under one black-box audit: what the documents promise, and the epsilon that a membership attack refutes.

Thirty rows with one predictor in [-1, 1]. Neighbours differ in one row, which is moved between corners of the declared ranges; of some pairs the
one that is told apart best in a first round is attacked with fresh runs. A classifier learns from a third of the runs to tell the two data sets by the
fitted model, the second third chooses a threshold, the last one judges it (Clopper and Pearson, 99.9 %). A figure below the promise refutes nothing.

Packages run in environments of their own, whose Pythons ``UNPOOLED_DIFFPRIVLIB`` and ``UNPOOLED_OPENDP`` name; without them their rows are left out.
Where a figure is above a promise, the table says "reported first" and the detail goes to ``build/reports/``, for the package's maintainers.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from unpooled import Bounds, PrivateLinearRegression, PrivateLogisticRegression
from unpooled.audit import empirical_epsilon

N, EPSILON, DELTA, CONFIDENCE = 30, 1.0, 1e-6, 0.999
REPORTS = Path("build/reports")
DIFFPRIVLIB = """
import json, sys, warnings, importlib.metadata
import numpy as np
warnings.simplefilter("ignore")
from diffprivlib.models import LinearRegression, LogisticRegression
asked = json.load(sys.stdin)
X, y, found = np.array(asked["x"])[:, None], np.array(asked["y"]), []
for _ in range(asked["runs"]):
    if asked["model"] == "linear":
        fit = LinearRegression(epsilon=asked["epsilon"], bounds_X=(-1, 1), bounds_y=(-1, 1)).fit(X, y)
    else:
        fit = LogisticRegression(epsilon=asked["epsilon"], data_norm=1.0).fit(X, (y > 0).astype(int))
    found.append([float(np.ravel(fit.coef_)[0]), float(np.ravel(fit.intercept_)[0])])
json.dump([found, asked["epsilon"], importlib.metadata.version("diffprivlib")], sys.stdout)
"""
OPENDP = """
import json, sys, importlib.metadata
import numpy as np
import opendp.prelude as dp
dp.enable_features("contrib", "floating-point", "idealized-numerics", "honest-but-curious")
asked = json.load(sys.stdin)
X, y, found = np.array(asked["x"])[:, None], np.array(asked["y"]), []
def made(scale):
    return dp.sklearn.linear_model.LinearRegression(dp.max_divergence(), x_bounds=[(-1.0, 1.0)], y_bounds=(-1.0, 1.0), scale=scale)
scale = dp.binary_search_param(lambda s: made(s).measurement, d_in=2, d_out=asked["epsilon"], T=float)
model = made(scale)
for _ in range(asked["runs"]):
    fit = model.fit(X, y)
    found.append([float(np.ravel(fit.coef_)[0]), float(np.ravel(fit.intercept_)[0])])
json.dump([found, float(model.measurement.map(2)), importlib.metadata.version("opendp")], sys.stdout)
"""
Runs = tuple[list[list[float]], float, str]
Fits = Callable[[np.ndarray, np.ndarray, int], Runs]


def elsewhere(python: str, script: str, model: str, x: np.ndarray, y: np.ndarray, runs: int) -> Runs:
    """Slopes and constants of so many fits, the epsilon that is promised, and the package's version."""
    asked = {"x": x.tolist(), "y": y.tolist(), "runs": runs, "model": model, "epsilon": EPSILON}
    done = subprocess.run([python, "-c", script], input=json.dumps(asked), capture_output=True, text=True, check=True)  # noqa: S603 - the Python that the caller names
    found, promised, version = json.loads(done.stdout)
    return found, promised, version


def ours(model: str, x: np.ndarray, y: np.ndarray, runs: int) -> Runs:
    """The same of this package, with its real noise."""
    X, found = x[:, None], []
    for _ in range(runs):
        if model == "linear":
            fit = PrivateLinearRegression(epsilon=EPSILON, delta=DELTA, bounds=(-1, 1), y_bounds=(-1, 1)).fit(X, y)
        else:
            fit = PrivateLogisticRegression(epsilon=EPSILON, bounds=Bounds(-1, 1), classes=(0, 1)).fit(
                X, (y > 0).astype(int)
            )
        found.append([float(np.ravel(fit.coef_)[0]), float(np.ravel(fit.intercept_)[0])])
    return found, EPSILON, "this version"


def pairs() -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Data sets, and their neighbours by the last row."""
    x = np.linspace(-1, 1, N)
    found = []
    for base in (x, np.where(np.arange(N) % 2, 0.01, -0.01), np.sign(x)):
        for here, there in (((1.0, 1.0), (1.0, -1.0)), ((1.0, 1.0), (-1.0, 1.0)), ((1.0, -1.0), (0.0, 0.0))):
            one, other, y, z = x.copy(), x.copy(), base.copy(), base.copy()
            (one[-1], y[-1]), (other[-1], z[-1]) = here, there
            found.append((one, y, other, z))
    return found


def seen(fits: list[list[float]]) -> np.ndarray:
    """What the attacker looks at: the numbers, and their magnitudes on a logarithmic scale."""
    values = np.array(fits)
    return np.hstack([values, np.log10(np.abs(values) + 1e-12), np.sign(values)])


def scores(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Learn from the first third of both, and score the rest."""
    third = len(one) // 3
    learn = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8, random_state=0)
    learn.fit(np.vstack([one[:third], other[:third]]), np.repeat([1, 0], third))
    return learn.decision_function(one[third:]), learn.decision_function(other[third:])


def attack(fits: Fits, pilot: int, runs: int, delta: float) -> tuple[float, float, str]:
    """The refuted epsilon of the pair that is told apart best, the promise, and the version."""
    told = []
    for x, y, other, z in pairs():
        a, b = scores(seen(fits(x, y, pilot)[0]), seen(fits(other, z, pilot)[0]))
        told.append(roc_auc_score(np.repeat([1, 0], [a.size, b.size]), np.concatenate([a, b])))
    x, y, other, z = pairs()[int(np.argmax(told))]
    (one, promised, version), (two, _, _) = fits(x, y, runs), fits(other, z, runs)
    a, b = scores(seen(one), seen(two))
    here, there = iter(a.tolist()), iter(b.tolist())
    return empirical_epsilon(next, here, there, runs=a.size, delta=delta, confidence=CONFIDENCE), promised, version


def main(full: bool) -> None:
    """Every regression that is here."""
    runs = 9000 if full else 900
    packages: list[tuple[str, str, float, Fits | None]] = []
    for model in ("linear", "logistic"):
        python = os.environ.get("UNPOOLED_DIFFPRIVLIB")
        fits = functools.partial(elsewhere, python, DIFFPRIVLIB, model) if python else None
        packages.append(("diffprivlib", f"{model} regression", 0.0, fits))
    python = os.environ.get("UNPOOLED_OPENDP")
    fits = functools.partial(elsewhere, python, OPENDP, "linear") if python else None
    packages.append(("OpenDP", "Theil-Sen line", 0.0, fits))
    packages += [
        ("unpooled", "linear regression", DELTA, functools.partial(ours, "linear")),
        ("unpooled", "logistic regression", 0.0, functools.partial(ours, "logistic")),
    ]
    rows = []
    for package, model, delta, fits in packages:
        if fits is None:
            print(f"left out: no environment with {package}")
            continue
        times = runs // 3 if package == "unpooled" else runs
        found, promised, version = kept([package, model], lambda f=fits, n=times, d=delta: attack(f, max(n // 20, 90), n, d))
        above = found > promised
        if above:
            REPORTS.mkdir(parents=True, exist_ok=True)
            (REPORTS / f"{package}-{model.replace(' ', '-')}.txt").write_text(
                f"{package} {version}, {model}: at least {found:.3f} where {promised:.3f} is promised ({__doc__})\n"
            )
        rows.append([package, version, model, f"{promised:.2f}", "reported first" if above else f"{found:.2f}", str(times)])
    header = ["package", "version", "model", "epsilon promised", "epsilon refuted", "runs"]
    title = "Regressions of several packages under one black-box audit"
    write_table("audit/others", title, header, rows, f"{N} rows, one replaced; confidence {CONFIDENCE:g}.")


if __name__ == "__main__":
    run(main)
