"""Noise-aware posteriors by MCMC next to ours: Alparslan, Yildirim and Birbil (2023), and Bernstein and Sheldon (2019).

One declared design: three normal columns (correlation .3, rows clipped to length 4), y = x.theta + N(0, .25) clipped to 6, theta ~ N(0, I), 2000 rows, delta
1e-5. Every line has the whole budget in Gaussian noise. Ours and the samplers of 2023 (experiments/bayes/_mcmc.py, from the paper) read the same release,
X'X and X'y, of which .03 of our budget is y'y. Bernstein and Sheldon need the sums and y'y too: their own program runs on the moments of geometry
"augmented", in an environment of its own whose Python ``UNPOOLED_GIBBS`` names. Three of its functions are replaced: the law of the noise, which is Laplace
there, and the normal fourth moments and the update of the rows' law, which it has for one covariate alone. Samplers know the law of sigma^2 (IG(20, 4.75)); ours estimates it.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import Any

import numpy as np
from experiments.bayes._mcmc import Prior, Released, chain, fast
from experiments.cells import kept
from experiments.common import run, write_table

from unpooled import Bounds, PrivateLinearRegression
from unpooled.linear.moments import Moments

D, ROWS, NORM, Y_BOUND, NOISE, DELTA = 3, 2000, 4.0, 6.0, 0.25, 1e-5
EPSILONS, DRAWS, NORMAL = (0.1, 1.0, 10.0), 10_000, 1.6449
PRIOR = Prior(1.0, 20.0, 19 * NOISE, 1.0)
#: Burn-in and draws of the program of 2019, which takes a hundredth of a second for each.
THEIR_DRAWS = (500, 1500)
OWN = ("ours", "ours, both precisions known", "naive", "MCMC-normalX", "MCMC-fixedS", "Bayes-fixedS-fast")
THEIRS = r"""
import json, sys, time
import numpy as np
import Gibbs
given = json.load(sys.stdin)
np.random.seed(given["seed"])
noise = np.diag(np.array(given["variances"]))
n, d = given["rows"], len(given["Xy"]) - 1
def fourth(mu, tau):
    mu, tau = np.append(np.ravel(mu), 1.0), np.pad(np.atleast_2d(tau), (0, 1))
    c, p = np.einsum, tau + np.outer(mu, mu)
    m = np.einsum("i,j,k,l->ijkl", mu, mu, mu, mu)
    pairs = [("ij", "kl"), ("ik", "jl"), ("il", "jk")]
    return sum(c(a + "," + b + "->ijkl", p, p) for a, b in pairs) - 2 * m
def updated(S, prior, N):
    mu, lamb, psi, nu = prior
    mean = S["X"][:d] / N
    about = N * (S["XX"][:d, :d] / N - mean @ mean.T) + lamb * N / (lamb + N) * (mean - mu) @ (mean - mu).T
    values, vectors = np.linalg.eigh(psi + about)
    scale = (vectors * np.maximum(values, 0.1)) @ vectors.T
    return Gibbs.NIW_rvs((lamb * mu + N * mean) / (lamb + N), lamb + N, scale, nu + N)
Gibbs.calc_hier_norm_X_fourth_moment, Gibbs.NIW_conjugate_update = fourth, updated
Gibbs.update_noise_covariance = lambda *rest: noise
first = Gibbs.initialize_values
Gibbs.initialize_values = lambda *rest: (*first(*rest)[:2], noise)
data_prior = [np.zeros((d, 1)), 1, np.eye(d), d + 1]
model_prior = [np.zeros((d + 1, 1)), given["ratio"] * np.eye(d + 1), given["shape"], given["scale"]]
Z = {"XX": np.array(given["XX"]), "Xy": np.array(given["Xy"])[:, None], "yy": given["yy"]}
Z["X"] = Z["XX"][:, -1][:, None]
begun = time.process_time()
theta, _ = Gibbs.Gibbs(data_prior, model_prior, n, 1.0, Z, 1.0, given["burn"], given["draws"], "gibbs-update")
print(json.dumps({"theta": theta[:, :d].tolist(), "seconds": time.process_time() - begun}))
"""


def simulated(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, response, coefficients; inside their bounds."""
    rng = np.random.default_rng(seed)
    X = np.sqrt(0.7) * rng.normal(size=(ROWS, D)) + np.sqrt(0.3) * rng.normal(size=(ROWS, 1))
    X *= np.minimum(1, NORM / np.linalg.norm(X, axis=1))[:, None]
    theta = rng.normal(size=D)
    return X, np.clip(X @ theta + np.sqrt(NOISE) * rng.normal(size=ROWS), -Y_BOUND, Y_BOUND), theta


def scored(mean: np.ndarray, low: np.ndarray, high: np.ndarray, theta: np.ndarray, seconds: float) -> list[float]:
    """Mean squared error, coverage and mean length of the 90 % intervals, and seconds."""
    inside = np.mean((low <= theta) & (theta <= high))
    return [float(np.mean((mean - theta) ** 2)), float(inside), float(np.mean(high - low)), seconds]


def of_normal(mean: np.ndarray, covariance: np.ndarray, theta: np.ndarray, seconds: float) -> list[float]:
    """The same of a normal posterior."""
    half = NORMAL * np.sqrt(np.maximum(covariance.diagonal(), 0))
    return scored(mean, mean - half, mean + half, theta, seconds)


def of_draws(draws: np.ndarray, theta: np.ndarray, seconds: float) -> list[float]:
    """The same of draws."""
    return scored(draws.mean(axis=0), *np.quantile(draws, [0.05, 0.95], axis=0), theta, seconds)


def fitted(X: np.ndarray, y: np.ndarray, epsilon: float, seed: int, **options: Any) -> PrivateLinearRegression:
    """One release of moments with the declared bounds."""
    given = {"bounds": Bounds(norm=NORM), "y_bounds": (-Y_BOUND, Y_BOUND), "method": "moments", "random_state": seed}
    return PrivateLinearRegression(epsilon=epsilon, delta=DELTA, **given, **options).fit(X, y)


def released(moments: Moments) -> Released:
    """The Gram matrix and cross moments of the columns in the data's own units, and the variances of their noise."""
    scale = moments.layout.half_widths[:D]
    both, cross = np.outer(scale, scale), scale * Y_BOUND
    (gram, gram_variance), (xy, xy_variance) = moments.xx, moments.xy
    return Released(gram[:D, :D] * both, xy[:D] * cross, gram_variance[:D, :D] * both**2, xy_variance[:D] * cross**2, ROWS)


def own_scores(epsilon: float, seed: int) -> list[list[float]]:
    """Ours and the methods of 2023, from one release."""
    X, y, theta = simulated(seed)
    moments = fitted(X, y, epsilon, seed, fit_intercept=False).moments_
    found, given = [], released(moments)
    for options in ({}, {"prior_precision": 1.0, "noise_precision": 1 / NOISE}):
        begun = time.process_time()
        fit = Moments.posterior.__wrapped__(moments, **options)  # not from the store of lately computed posteriors
        found.append(of_normal(fit.coef_, fit.covariance_, theta, time.process_time() - begun))
    fit = moments.posterior(1.0, 1 / NOISE, naive=True)
    found.append(of_normal(fit.coef_, fit.covariance_, theta, 0.0))
    for fixed in (False, True):
        begun = time.process_time()
        draws, _ = chain(given, PRIOR, DRAWS, np.random.default_rng([seed, fixed]), fixed=fixed)
        found.append(of_draws(draws, theta, time.process_time() - begun))
    begun = time.process_time()
    mean, spread = fast(given, PRIOR, Y_BOUND)
    found.append(of_normal(mean, spread, theta, time.process_time() - begun))
    return found


def their_scores(python: str, epsilon: float, seed: int) -> list[list[float]]:
    """The program of 2019 and ours, from one release of all moments with a constant."""
    X, y, theta = simulated(seed)
    moments = fitted(X, y, epsilon, seed, geometry="augmented").moments_
    begun = time.process_time()
    fit = Moments.posterior.__wrapped__(moments)
    seconds = time.process_time() - begun
    widths = np.append(moments.layout.half_widths[:D], [1.0, Y_BOUND])  # x, 1, y
    both = np.outer(widths, widths)
    gram, variance = moments.gram * both, moments.variance * both**2
    variance[D, D] = 1e-3  # the number of rows has no noise, and the program wants some everywhere
    request = {
        "XX": gram[:-1, :-1].tolist(),
        "Xy": gram[:-1, -1].tolist(),
        "yy": float(gram[-1, -1]),
        "variances": [*variance[:-1, :-1].ravel(), *variance[:-1, -1], variance[-1, -1]],
        "rows": ROWS,
        "ratio": NOISE / PRIOR.spread,
        "shape": PRIOR.shape,
        "scale": PRIOR.scale,
        "seed": seed,
        "burn": THEIR_DRAWS[0],
        "draws": THEIR_DRAWS[1],
    }
    done = subprocess.run(  # noqa: S603 - the Python that the caller names
        [python, "-W", "ignore", "-c", THEIRS], input=json.dumps(request), capture_output=True, text=True, check=True
    )
    said = json.loads(done.stdout)
    return [
        of_draws(np.array(said["theta"]), theta, said["seconds"]),
        of_normal(fit.coef_, fit.covariance_, theta, seconds),
    ]


def line(name: str, found: list[list[list[float]]], place: int) -> list[list[str]]:
    """A line of the table for every epsilon: means over seeds with standard errors; seconds without."""
    rows = []
    for epsilon, runs in zip(EPSILONS, found, strict=True):
        values = np.array([one[place] for one in runs])
        middle, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
        numbers = [f"{m:.4f} ± {e:.4f}" for m, e in zip(middle[:3], error[:3], strict=True)]
        rows.append([name, f"{epsilon:g}", str(len(values)), *numbers, f"{middle[3]:.2g}"])
    return rows


def main(full: bool) -> None:
    """40 data sets for each epsilon, 12 for the program of 2019; 6 and 2."""
    sets, fewer = (40, 12) if full else (6, 2)
    found = [[kept([e, s], lambda e=e, s=s: own_scores(e, s)) for s in range(sets)] for e in EPSILONS]
    rows = [row for place, name in enumerate(OWN) for row in line(name, found, place)]
    python = os.environ.get("UNPOOLED_GIBBS")
    if python:
        theirs = [
            [kept(["gibbs", e, s], lambda e=e, s=s: their_scores(python, e, s)) for s in range(fewer)] for e in EPSILONS
        ]
        rows += line("Bernstein and Sheldon, augmented release", theirs, 0) + line("ours, augmented release", theirs, 1)
    else:
        print(
            "left out: UNPOOLED_GIBBS names no Python that can import the authors' Gibbs (numpy < 2, scipy < 1.14, autograd)"
        )
    write_table(
        "bayes/mcmc",
        f"Posteriors from noisy moments: {D} columns, {ROWS} rows, delta = {DELTA:g}",
        ["method", "eps", "data sets", "squared error", "coverage of 90 %", "length", "CPU seconds"],
        rows,
        f"Means over data sets and coefficients ± standard errors. {DRAWS} draws, half of them burn-in; of Bernstein and Sheldon {sum(THEIR_DRAWS)}, "
        f"{THEIR_DRAWS[0]} of them burn-in. Numbers without an error agree within 1.",
    )


if __name__ == "__main__":
    run(main)
