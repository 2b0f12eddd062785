"""Stacking, Figure 3: AUC when the importance of the i-th component is alpha^i, on both sides of 1: below it is right, above inverted."""

from __future__ import annotations

import numpy as np
from experiments.common import curves, run, write_table
from experiments.stacking._protocol import GROUPS, cell, mnist, newsgroups, scores

ALPHAS = (0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1)


def main(full: bool) -> None:
    """Components are in falling order of variance; "uniform" is PST-F(U), random groups of equal importance."""
    repetitions, rows, panels = 10, [], {}
    for label, data in {"newsgroups": newsgroups(), **({"MNIST 0/8": mnist()} if full else {})}.items():
        found = []
        for alpha in ALPHAS:
            importance = alpha ** np.arange(data[5].size)
            found.append(scores(data, "PST-F(W)", repetitions, 1.0, importance=importance))
        uniform, variance = (scores(data, name, repetitions, 1.0) for name in ("PST-F(U)", "PST-F(W)"))
        rows.append([label, *map(cell, found), cell(uniform), cell(variance)])
        quartiles = np.quantile(found, [0.25, 0.5, 0.75], axis=1)
        level = np.array([np.median(uniform)])
        panels[label] = {
            "importance alpha^i": (np.array(ALPHAS), quartiles[1], quartiles[[0, 2]]),
            "uniform": (np.array([1.0]), level, np.zeros((2, 1))),
        }
    write_table(
        "stacking/figure_3",
        f"Figure 3: AUC of PST-F(W) where component i has importance alpha^i, epsilon = 1, K = {GROUPS}, {repetitions} repetitions",
        ["data", *(f"alpha {a:g}" for a in ALPHAS), "uniform", "variance"],
        rows,
    )
    curves("stacking/figure_3", panels, "alpha", log=False, logy=False)


if __name__ == "__main__":
    run(main)
