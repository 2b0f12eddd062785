"""The sentences about Figures 4 and 5, each with the standard error of its figure: cross-validated errors of 1, 2, 3 and 8 latent variables, and test errors.

``figures_4_and_5`` has all lines of both figures, without errors. The draws and splits of a row are those of its first seeds.
"""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.pls._corn import DELTA, corn, error, preprocessings
from experiments.pls.default import stated
from experiments.pls.figures_4_and_5 import one_draw
from sklearn.model_selection import KFold

#: What the paper says something about: preprocessing, form, epsilon.
COUNTED = [("raw", form, epsilon) for epsilon in (10.0, 1.0) for form in ("printed", "package")]
COUNTED += [(step, "package", 1.0) for step in ("SG", "MSC", "airPLS")] + [("SG", "printed", 1.0)]
TESTED = [(step, form) for step in ("raw", "SG", "MSC", "airPLS") for form in ("printed", "package")]
NUMBERS = (1, 2, 3, 8)


def main(full: bool) -> None:
    """Both tables."""
    warnings.simplefilter("ignore", UserWarning)
    X, y = corn()
    made = {name: step(X) for name, step in preprocessings(X).items()}
    draws, splits = (100, 60) if full else (10, 30)
    rows = []
    for name, form, epsilon in COUNTED:
        Z = made[name]
        folds = list(KFold(10, shuffle=True, random_state=0).split(Z))
        totals = [
            kept(["LVs", name, form, epsilon, s], partial(one_draw, form, epsilon, Z, y, folds, s)) for s in range(draws)
        ]
        found = np.sqrt(np.array(totals) / y.size) / y.std()
        second = stated((found[:, 1] - found[:, 0]).tolist())  # of the same draw of the noise
        rows.append([name, f"{form}, eps {epsilon:g}", *(stated(found[:, a - 1].tolist()) for a in NUMBERS), second])
    write_table(
        "pls/claims_components",
        f"corn: 10-fold RMSECV / sd(y) of 1, 2, 3 and 8 latent variables, median of {draws} draws of the noise and its standard error",
        ["preprocessing", "model", *map(str, NUMBERS), "2 less 1"],
        rows,
        f"delta = {DELTA}. Last column: median of the differences within draws. NOT private: the folds see the data.",
    )
    rows = []
    for name, form in TESTED:
        cells = []
        for epsilon in (10.0, 1.0):
            make = partial(error, form, epsilon, 8, made[name], y)
            cells.append(stated([kept(["test", name, form, epsilon, s], partial(make, s)) for s in range(splits)]))
        rows.append([name, form, *cells])
    write_table(
        "pls/claims_test",
        f"corn: RMSEP / sd(y) with 8 latent variables, median of {splits} splits and draws, and its standard error",
        ["preprocessing", "model", "eps 10", "eps 1"],
        rows,
        f"delta = {DELTA}. 'printed' and 'package' are NOT private; predicting the mean has 1.",
    )


if __name__ == "__main__":
    run(main)
