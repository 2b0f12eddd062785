"""The package form of edPLS beside the authors' package: two-sample tests of the laws of the coefficients.

diPLSlib needs scikit-learn < 1.8 and is GPL: it runs in an environment of its own, whose Python ``UNPOOLED_DIPLSLIB`` names, and no code of it
is here. It takes the largest response for the largest absolute one, so the data are chosen such that the two agree in every component.
"""

from __future__ import annotations

import json
import os
import subprocess

import numpy as np
from experiments.common import run, write_table
from scipy import stats

from unpooled import PrivatePLSRegression

N, CHANNELS, COMPONENTS, DELTA = 40, 5, 2, 0.01
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


def main(full: bool) -> None:
    """Two-sample tests of every coefficient at several epsilon."""
    python = os.environ.get("UNPOOLED_DIPLSLIB")
    if not python:
        print(
            "left out: UNPOOLED_DIPLSLIB does not name the Python of an environment with diPLSlib (pip install diplslib 'scikit-learn<1.8')"
        )
        return
    runs = 2000 if full else 400
    X, y = data()
    rows = []
    for epsilon in (1.0, 10.0, 100.0):
        asked = {
            "X": X.tolist(),
            "y": y.tolist(),
            "runs": runs,
            "components": COMPONENTS,
            "epsilon": epsilon,
            "delta": DELTA,
        }
        answered = subprocess.run(  # noqa: S603 - the Python that the caller names
            [python, "-c", THEIRS], input=json.dumps(asked), capture_output=True, text=True, check=True
        )
        theirs = np.array(json.loads(answered.stdout))
        settings = {"basis": "none", "calibration": "published", "epsilon": epsilon, "delta": DELTA}
        for sd in ("sigma^2", "sigma"):
            ours = np.array(
                [PrivatePLSRegression(COMPONENTS, sd=sd, random_state=s, **settings).fit(X, y).coef_ for s in range(runs)]
            )
            values = [stats.ks_2samp(a, b).pvalue for a, b in zip(ours.T, theirs.T, strict=True)]
            shown = "package" if sd == "sigma^2" else "printed (a control: another law)"
            rows.append(
                [
                    f"{epsilon:g}",
                    shown,
                    f"{min(values):.2g}",
                    f"{np.median(theirs[:, 0]):.3g}",
                    f"{np.median(ours[:, 0]):.3g}",
                ]
            )
    write_table(
        "pls/beside_diplslib",
        f"{runs} fits of each: smallest p-value of {CHANNELS} two-sample Kolmogorov-Smirnov tests of a coefficient",
        ["epsilon", "our deviation", "smallest p", "their median of b_1", "ours"],
        rows,
        f"n = {N}, {CHANNELS} channels, {COMPONENTS} components, delta = {DELTA}.",
    )


if __name__ == "__main__":
    run(main)
