"""PRIDE, Table 1 and Theorem 3: the shapes of the data sets, and how far the bound is from the measured error."""

from __future__ import annotations

import math

import numpy as np
from experiments.common import run, write_table
from experiments.pride._protocol import fit
from experiments.pride._real import SETS
from experiments.pride.figure_4 import THETA, problem_of

from unpooled.models.pride.approximation import Shape, relative_error_bound


def main(full: bool) -> None:
    """Table 1, and DUAL-LOCO's measured distance to the pooled solution beside the bound (constant 1) over tau_K on a design of low rank."""
    problems = {"simulation": problem_of(0)[0], **{name: load(0) for name, load in SETS.items()}}
    rows = []
    for name, problem in problems.items():
        X = (problem.X - problem.X.mean(axis=0)) / np.where(problem.X.std(axis=0) > 0, problem.X.std(axis=0), 1.0)
        shape = Shape.of(X)
        cells = [f"{problem.theta:.2f}", f"{shape.d_min:.3g}", f"{shape.effective_rank:.2f}", str(shape.j80), str(shape.j90)]
        rows.append([name, str(X.shape[0]), str(X.shape[1]), *cells])
    header = ["data", "n", "p", "largest range", "d_min", "effective rank", "J80", "J90"]
    write_table("pride/table_1", "Table 1: shapes of the data", header, rows)
    rows, n, own, others = [], 6, 40, 4000
    for sketched in (500, 1000, 2000, 4000):
        errors = []
        for seed in range(200 if full else 50):
            rng = np.random.default_rng(seed)
            X, y = rng.normal(size=(n, own + others)), rng.normal(size=n)
            Z = X[:, own:] @ rng.normal(size=(others, sketched)) / math.sqrt(sketched)
            kernels = X @ X.T, X[:, :own] @ X[:, :own].T + Z @ Z.T
            exact, found = (X[:, :own].T @ np.linalg.solve(k + 50 * np.eye(n), y) for k in kernels)
            errors.append(np.linalg.norm(found - exact) / np.linalg.norm(exact))
        bound = relative_error_bound(Shape.of(X), sketched)
        rows.append([str(sketched), f"{np.mean(errors):.3f}", f"{np.max(errors):.3f}", f"{bound:.3f}"])
    title = "Theorem 3 (constant 1, xi 0.1): relative error of one party without noise, 6 rows of full rank"
    write_table("pride/theorem_3", title, ["received columns", "mean error", "largest error", "bound"], rows)
    problem = problems["simulation"]
    loco = fit(problem, "DUAL-LOCO", 0.2, theta=THETA)
    bound = relative_error_bound(Shape.of(problem.X), 40)
    print(f"simulation, m = 0.2 tau: the bound is {bound}; penalty {loco.alphas[0]:.3g}")


if __name__ == "__main__":
    run(main)
