"""PRIDE, Table 1 and Theorem 3: the shapes of the data sets, and how far the bound is from the measured error."""

from __future__ import annotations

import math

import numpy as np
from experiments.cells import kept
from experiments.common import curves, run, write_table
from experiments.pride._climate import climate
from experiments.pride._protocol import fit
from experiments.pride._real import pressure, selected
from experiments.pride.figure_4 import THETA, problem_of

from unpooled.papers.pride_bounds import Shape, relative_error_bound

ROWS, OWN, OTHERS, PENALTY = 6, 40, 4000, 50.0
SKETCHED, NOISE = (500, 700, 1000, 1400, 2000, 2800, 4000), (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
#: Received columns at which the noise is varied.
AT = 2000
#: The data of Table 1, and how often each is drawn, or split, at the full size.
SETS = {
    "simulation": (lambda seed: problem_of(seed)[0], 20),
    "climate": (climate, 5),
    "pressure": (pressure, 20),
    "expression": (selected, 20),
}


def errors(sketched: int, sigma: float, seeds: range) -> np.ndarray:
    """|b_k - b_k*| / |b_k*| of one party on a design of 6 rows and full rank, and the bound (constant 1, xi 0.1), for every seed."""
    measured, bounds = [], []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(ROWS, OWN + OTHERS)), rng.normal(size=ROWS)
        # The columns of a Gaussian sketch have covariance X_o X_o': drawn so, no matrix of the size of the sketch is needed.
        root = np.linalg.cholesky(X[:, OWN:] @ X[:, OWN:].T)
        Z = root @ rng.normal(size=(ROWS, sketched)) / math.sqrt(sketched) + sigma * rng.normal(size=(ROWS, sketched))
        kernels = X @ X.T, X[:, :OWN] @ X[:, :OWN].T + Z @ Z.T
        exact, found = (X[:, :OWN].T @ np.linalg.solve(k + PENALTY * np.eye(ROWS), y) for k in kernels)
        measured.append(np.linalg.norm(found - exact) / np.linalg.norm(exact))
        bounds.append(relative_error_bound(Shape.of(X), sketched, sigma))
    return np.array([measured, bounds])


def row(measured: np.ndarray, bounds: np.ndarray) -> list[str]:
    """Mean, largest, bound, and by how much the bound is larger than the largest."""
    return [f"{v:.3g}" for v in (measured.mean(), measured.max(), bounds.mean(), (bounds / measured.max()).mean())]


def statistics(name: str, seed: int) -> list[float]:
    """Rows, columns, largest range, d_min, effective rank, J80 and J90 of the standardised training columns of one draw."""
    problem = SETS[name][0](seed)
    X = (problem.X - problem.X.mean(axis=0)) / np.where(problem.X.std(axis=0) > 0, problem.X.std(axis=0), 1.0)
    shape = Shape.of(X)
    return [*X.shape, problem.theta, shape.d_min, shape.effective_rank, shape.j80, shape.j90]


def table_1(full: bool) -> None:
    """Means with standard errors over draws of the simulations, and over splits of the real data into training and test rows."""
    rows = []
    for name, (_, draws) in SETS.items():
        seeds = range(draws if full else 3)
        found = np.array([kept([name, seed], lambda name=name, seed=seed: statistics(name, seed)) for seed in seeds])
        means, errors = found.mean(axis=0), found.std(axis=0, ddof=1) / math.sqrt(len(found))
        said = [f"{mean:.4g} ± {error:.2g}" for mean, error in zip(means[2:], errors[2:], strict=True)]
        rows.append([name, *(f"{int(count)}" for count in found[0, :2]), str(len(seeds)), *said])
    header = ["data", "n", "p", "draws", "largest range", "d_min", "effective rank", "J80", "J90"]
    write_table("pride/table_1", "Table 1: shapes of the data, means and standard errors", header, rows)


def main(full: bool) -> None:
    """Table 1, and one party's measured distance to the pooled solution beside the bound, over tau_K without noise and over sigma."""
    table_1(full)
    seeds = range(2000 if full else 300)
    size = f"{ROWS} rows of full rank, {len(seeds)} designs"
    without = [np.array(kept([m, 0.0], lambda m=m: errors(m, 0.0, seeds).tolist())) for m in SKETCHED]
    noisy = [np.array(kept([AT, s], lambda s=s: errors(AT, s, seeds).tolist())) for s in NOISE]
    header = ["mean error", "largest error", "bound", "bound / largest"]
    title = f"Theorem 3 (constant 1, xi 0.1): relative error of one party without noise, {size}"
    rows = [[str(m), *row(*pair)] for m, pair in zip(SKETCHED, without, strict=True)]
    write_table("pride/theorem_3", title, ["received columns", *header], rows)
    title = f"Theorem 3 (constant 1, xi 0.1): relative error of one party with noise, {AT} received columns, {size}"
    rows = [[f"{s:g}", *row(*pair)] for s, pair in zip(NOISE, noisy, strict=True)]
    write_table("pride/theorem_3_noise", title, ["sigma", *header], rows)
    panels = {
        "no noise: over received columns": lines(np.array(SKETCHED, float), without),
        f"{AT} received columns: over sigma": lines(np.array(NOISE[1:]), noisy[1:]),
    }
    curves("pride/theorem_3", panels, "received columns, or sigma")
    problem = problem_of(0)[0]
    loco = fit(problem, "DUAL-LOCO", 0.2, theta=THETA)
    bound = relative_error_bound(Shape.of(problem.X), 40)
    print(f"simulation, m = 0.2 tau: the bound is {bound}; penalty {loco.alphas[0]:.3g}")


def lines(x: np.ndarray, found: list[tuple[np.ndarray, np.ndarray]]) -> dict:
    """Mean error with all between smallest and largest, and the bound."""
    measured, bounds = (np.array([pair[k] for pair in found]) for k in (0, 1))
    band = measured.min(axis=1), measured.max(axis=1)
    return {
        "measured (mean, smallest to largest)": (x, measured.mean(axis=1), band),
        "bound of Theorem 3": (x, bounds.mean(axis=1), (bounds.min(axis=1), bounds.max(axis=1))),
    }


if __name__ == "__main__":
    run(main)
