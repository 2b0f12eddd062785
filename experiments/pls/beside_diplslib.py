"""The package form of edPLS beside the authors' package: two-sample tests of the laws of the coefficients.

diPLSlib needs scikit-learn < 1.8 and is GPL: it runs in an environment of its own, whose Python ``UNPOOLED_DIPLSLIB`` names, and no code of it
is here. It takes the largest response for the largest absolute one, so the data are chosen such that the two agree in every component.
``tests/stats/test_beside_diplslib.py`` asks the same as a test.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from scipy import stats

from unpooled import PrivatePLSRegression

N, CHANNELS, COMPONENTS, DELTA = 40, 5, 2, 0.01
EPSILONS = (1.0, 10.0, 100.0)
#: What the other environment runs: coefficients of so many fits, as JSON.
THEIRS = """
import json, sys
import numpy as np
from diPLSlib.models import EDPLS
asked = json.load(sys.stdin)
X, y = np.array(asked["X"]), np.array(asked["y"])
found = []
for seed in range(asked["runs"]):
    np.random.seed(seed)
    model = EDPLS(A=asked["components"], epsilon=asked["epsilon"], delta=asked["delta"], random_state=np.random.RandomState(seed))
    found.append(np.ravel(model.fit(X, y).coef_).tolist())
json.dump(found, sys.stdout)
"""


@functools.cache
def data() -> tuple[np.ndarray, np.ndarray]:
    """Rows whose response is largest in absolute value where it is largest, after every deflation too."""
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(N, CHANNELS)) * np.linspace(2, 0.5, CHANNELS)
        y = X @ rng.normal(size=CHANNELS) + rng.exponential(2.0, size=N) ** 1.5
        E, f = X - X.mean(axis=0), y - y.mean()
        agree = True
        for _ in range(COMPONENTS):
            agree &= bool(f.max() == np.abs(f).max())
            w = E.T @ f
            t = E @ (w / np.linalg.norm(w))
            t /= np.linalg.norm(t)
            E, f = E - np.outer(t, t @ E), f - (f @ t) * t
        if agree:
            return X, y
    raise RuntimeError("no such data among the seeds")


def version(python: str) -> str:
    """The version of the authors' package in that environment."""
    asked = "import importlib.metadata as m; print(m.version('diPLSlib'))"
    return subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 - as above


def theirs(python: str, epsilon: float, runs: int) -> np.ndarray:
    """Coefficients of so many fits of the authors' package, by the Python of its environment."""
    X, y = data()
    asked = {"X": X.tolist(), "y": y.tolist(), "runs": runs, "components": COMPONENTS, "epsilon": epsilon, "delta": DELTA}
    answered = subprocess.run(  # noqa: S603 - the Python that the caller names
        [python, "-c", THEIRS], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    return np.array(json.loads(answered.stdout))


def ours(sd: str, epsilon: float, runs: int) -> np.ndarray:
    """Coefficients of so many fits of the published form with one of its deviations."""
    X, y = data()
    settings = {"basis": "none", "calibration": "published", "epsilon": epsilon, "delta": DELTA, "sd": sd}
    return np.array([PrivatePLSRegression(COMPONENTS, random_state=s, **settings).fit(X, y).coef_ for s in range(runs)])


def smallest_p(one: np.ndarray, two: np.ndarray) -> float:
    """Of two-sample Kolmogorov-Smirnov tests, one for every coefficient."""
    return float(min(stats.ks_2samp(a, b).pvalue for a, b in zip(one.T, two.T, strict=True)))


def main(full: bool) -> None:
    """Two-sample tests of every coefficient at several epsilon."""
    python = os.environ.get("UNPOOLED_DIPLSLIB")
    if not python:
        print(
            "left out: UNPOOLED_DIPLSLIB does not name the Python of an environment with diPLSlib (pip install diplslib 'scikit-learn<1.8')"
        )
        return
    runs = 2000 if full else 400
    rows = []
    for epsilon in EPSILONS:
        found = np.array(kept(["theirs", version(python), epsilon], lambda e=epsilon: theirs(python, e, runs).tolist()))
        for sd, shown in (("sigma^2", "package"), ("sigma", "printed (a control: another law)")):
            own = np.array(kept(["ours", sd, epsilon], lambda e=epsilon, sd=sd: ours(sd, e, runs).tolist()))
            medians = (f"{np.median(values[:, 0]):.3g}" for values in (found, own))
            rows.append([f"{epsilon:g}", shown, f"{smallest_p(own, found):.2g}", *medians])
    write_table(
        "pls/beside_diplslib",
        f"{runs} fits of each: smallest p-value of {CHANNELS} two-sample Kolmogorov-Smirnov tests of a coefficient",
        ["epsilon", "our deviation", "smallest p", "their median of b_1", "ours"],
        rows,
        f"n = {N}, {CHANNELS} channels, {COMPONENTS} components, delta = {DELTA}; diPLSlib {version(python)}.",
    )


if __name__ == "__main__":
    run(main)
