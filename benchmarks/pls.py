"""PLS on n = 5000, m = 700: choosing among 10 components by 10-fold cross-validation, and the release against one X^T X.

    python benchmarks/pls.py

Peers run in the same process and turn: GridSearchCV over PLSRegression and, where it is installed, ikpls' fast cross-validation.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from board import note, rounds
from sklearn.cross_decomposition import PLSRegression
from sklearn.model_selection import GridSearchCV, KFold

from unpooled import Bounds, PrivatePLSRegression
from unpooled.datasets import make_spectra
from unpooled.kernels.pls import Centred, cross_validated
from unpooled.models.pls.declared import design_of
from unpooled.privacy.table import Table

ROWS, FOLDS, COMPONENTS, ROUNDS = 5000, 10, 10, rounds(5)


def seconds(work, rounds: int = ROUNDS) -> float:
    times = []
    for _ in range(rounds):
        time.sleep(0.1)
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def ours(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    folds = [Centred.of(X[rows], y[rows]) for rows in np.array_split(np.arange(ROWS), FOLDS)]
    return cross_validated(folds, COMPONENTS).sum(axis=0)


def main() -> None:
    data = make_spectra(ROWS, kind="corn")
    X, y = data.spectra, data.response
    grid = GridSearchCV(
        PLSRegression(scale=False),
        {"n_components": list(range(1, COMPONENTS + 1))},
        cv=KFold(FOLDS),
        scoring="neg_mean_squared_error",
        refit=False,
    )
    searched = seconds(lambda: grid.fit(X, y), 1)
    errors = ours(X, y)
    mine = seconds(lambda: ours(X, y))
    found = -grid.cv_results_["mean_test_score"] * ROWS
    print(f"10 folds x {COMPONENTS} components, n = {ROWS}, m = {X.shape[1]}")
    print(f"  GridSearchCV over PLSRegression    {searched:8.2f} s")
    note("cross-validated PLS", "GridSearchCV over PLSRegression", searched / mine, "30", more_is_better=True)
    print(f"  cross_validated (moments of folds) {mine:8.3f} s   {searched / mine:.0f} times faster  (aim: at least 30)")
    print(f"  largest relative difference of the errors {np.abs(errors / found - 1).max():.1e}")
    try:
        from ikpls.fast_cross_validation.numpy import PLS
    except ImportError:
        print("  ikpls is not installed here")
    else:
        labels = np.arange(ROWS) * FOLDS // ROWS
        peer = PLS(center_X=True, center_Y=True, scale_X=False, scale_Y=False, algorithm=2)

        def theirs() -> object:
            return peer.cross_validate(
                X,
                y[:, None],
                COMPONENTS,
                folds=labels,
                metric_function=lambda t, p: ((t - p) ** 2).sum(axis=(-2, -1)),
                n_jobs=1,
                verbose=0,
            )

        theirs()
        peers = seconds(theirs)
        note("cross-validated PLS", "ikpls", mine / peers, "1")
        print(f"  ikpls' fast cross-validation       {peers:8.3f} s   (aim: ours no slower)")
    model = PrivatePLSRegression(bounds=Bounds(norm=8.0), y_bounds=(8.8, 11.2), reference=data.mean_spectrum, epsilon=10.0)
    for basis in ("dct", "none"):
        model.set_params(basis=basis)
        asked = design_of(model.plan(ROWS, X.shape[1]).study)
        table = Table({**{name: X[:, j] for j, name in enumerate(asked.names[:-1])}, asked.names[-1]: y})
        asked.layout.added_up(asked.blocks(table))  # compiles
        product = seconds(lambda: X.T @ X)
        released = seconds(lambda asked=asked, table=table: asked.layout.added_up(asked.blocks(table)))
        fitted = seconds(lambda: model.fit(X, y), 3)
        note(f"moments of spectra, basis {basis}", "one X'X", released / product)
        note(f"the fit from moments, basis {basis}", "one X'X", fitted / product)
        print(
            f"  basis {basis:<5} X^T X {product:.3f} s, moments {released:.3f} s ({released / product:.2f} times), fit {fitted:.3f} s ({fitted / product:.1f} times)"
        )


if __name__ == "__main__":
    main()
