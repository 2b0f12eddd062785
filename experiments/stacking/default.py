"""What who writes nothing gets on the stacking paper's data: the library's defaults, the printed form in one call, and no privacy.

Features and the bound on a row's length come from rows that are dropped. Nothing else is set: five groups of columns at random with equal shares, the automatic
penalty, public weights. The printed form is ``papers.fit_stacking``, which chooses its penalty on a third of the rows, and promises nothing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.stacking._protocol import EPSILONS, GROUPS, REPETITIONS, Data, cell, mnist, newsgroups
from sklearn.base import ClassifierMixin
from sklearn.metrics import roc_auc_score

from unpooled import Bounds, PrivateLogisticRegression, PrivateStackingClassifier, papers

Fit = Callable[[Data, float, int], ClassifierMixin]


def declared(data: Data, epsilon: float, seed: int) -> dict:
    """What has to be said: epsilon, the bound, the classes; and seeds, so that it can be done again."""
    return {"epsilon": epsilon, "bounds": Bounds(norm=data[4]), "classes": (0, 1), "random_state": seed, "public_seed": seed}


FORMS: dict[str, Fit] = {
    "PrivateStackingClassifier(5), default": lambda d, e, s: PrivateStackingClassifier(GROUPS, **declared(d, e, s)).fit(
        *d[:2]
    ),
    "papers.fit_stacking(X, y, 5)": lambda d, e, s: papers.fit_stacking(*d[:2], GROUPS, **declared(d, e, s)),
    "PrivateLogisticRegression, default": lambda d, e, s: PrivateLogisticRegression(**declared(d, e, s)).fit(*d[:2]),
    "no privacy, all columns together": lambda d, _, s: PrivateLogisticRegression(**declared(d, math.inf, s)).fit(*d[:2]),
}


def once(data: Data, form: str, epsilon: float, seed: int) -> float:
    """Test AUC of one fit."""
    model = FORMS[form](data, epsilon, seed)
    return float(roc_auc_score(data[3], model.decision_function(data[2])))


def main(full: bool) -> None:
    """Ten draws of the noise and of the groups, or three."""
    warnings.simplefilter("ignore")
    repetitions, rows = REPETITIONS if full else 3, []
    for name, data in (("newsgroups", newsgroups()), ("MNIST 0/8", mnist())):
        for form in FORMS:
            found = [
                np.array([kept([name, form, e, s], lambda s=s, c=(data, form, e): once(*c, s)) for s in range(repetitions)])
                for e in EPSILONS
            ]
            rows.append([name, form, *map(cell, found)])
    header = ["data", "form", *(f"eps {e:g}" for e in EPSILONS)]
    write_table(
        "stacking/default",
        f"AUC of the defaults and of the printed form, {repetitions} repetitions",
        header,
        rows,
        "Mean ± standard error.",
    )


if __name__ == "__main__":
    run(main)
