"""A least-squares fit in an l1 ball from rows, beside celer and skglm, which solve the same problem by its penalty.

celer finds the coefficients for a penalty; their l1 norm is the ball's radius, so that the minimum is the same. Ours pays for X'X, which a party
has anyway, and is timed with and without it. All end at the same objective, which is checked. Peers are left out where they are not installed.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np
from board import note, rounds

from unpooled.kernels.l1_ball import quadratic_in_balls

ROWS, COLUMNS, NONZERO, ROUNDS, SHARE = 20_000, 400, 20, rounds(5), 0.05


def median(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
        time.sleep(0.1)
    return statistics.median(times)


def peers() -> dict[str, Callable[[float], object]]:
    """A solver for every peer that is here."""
    found: dict[str, Callable[[float], object]] = {}
    try:
        from celer import Lasso as Celer

        found["celer"] = lambda alpha: Celer(alpha=alpha, fit_intercept=False, tol=1e-10)
    except ImportError:
        print("celer is not installed here: not compared")
    try:
        from skglm import Lasso as Skglm

        found["skglm"] = lambda alpha: Skglm(alpha=alpha, fit_intercept=False, tol=1e-10)
    except ImportError:
        print("skglm is not installed here: not compared")
    from sklearn.linear_model import Lasso

    found["scikit-learn"] = lambda alpha: Lasso(alpha=alpha, fit_intercept=False, tol=1e-10, max_iter=100_000)
    return found


def main() -> None:
    rng = np.random.default_rng(0)
    X = np.asfortranarray(rng.standard_normal((ROWS, COLUMNS)))
    truth = np.zeros(COLUMNS)
    truth[:NONZERO] = rng.standard_normal(NONZERO)
    y = X @ truth + rng.standard_normal(ROWS)
    alpha = SHARE * float(np.abs(X.T @ y).max()) / ROWS
    solvers = peers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = solvers["scikit-learn"](alpha).fit(X, y).coef_
        radius = float(np.abs(wanted).sum())
        gram, linear = X.T @ X / ROWS, X.T @ y / ROWS
        ours = quadratic_in_balls(gram, linear, radius).coefficients
        objective = [float(np.square(y - X @ w).mean()) for w in (ours, wanted)]
        assert abs(objective[0] - objective[1]) < 1e-6 * objective[1], objective
        whole = median(lambda: quadratic_in_balls(X.T @ X / ROWS, X.T @ y / ROWS, radius))
        given = median(lambda: quadratic_in_balls(gram, linear, radius))
        print(
            f"{ROWS} x {COLUMNS}, {np.count_nonzero(wanted)} columns chosen: from rows {1e3 * whole:.1f} ms, from moments {1e3 * given:.1f} ms"
        )
        for name, solver in solvers.items():
            theirs = median(lambda s=solver: s(alpha).fit(X, y))
            note("least squares in an l1 ball, from rows", name, whole / theirs)
            note("least squares in an l1 ball, from moments that are there", name, given / theirs)
            print(
                f"  {name:<14}{1e3 * theirs:9.1f} ms   from rows {whole / theirs:.2f}, from moments {given / theirs:.2f} times"
            )


if __name__ == "__main__":
    main()
