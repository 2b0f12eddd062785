"""Stacking, Figures 1, 2 and 4: AUC against epsilon, against the number of groups, and by combiner; penalties by a validation set."""

from __future__ import annotations

import numpy as np
from experiments.common import curves, run, write_table
from experiments.stacking._protocol import EPSILONS, GROUPS, cell, mnist, models, newsgroups, scores


def main(full: bool) -> None:
    """Ten repetitions as in the paper, or three."""
    repetitions = 10 if full else 5
    sets = {"newsgroups": newsgroups(), **({"MNIST 0/8": mnist()} if full else {})}
    rows, panels = [], {}
    for label, data in sets.items():
        lines = {}
        for name in models(data, 1.0, 0.1, 0):
            found = [scores(data, name, repetitions, epsilon) for epsilon in EPSILONS]
            rows.append([label, name, *map(cell, found)])
            quartiles = np.quantile(found, [0.25, 0.5, 0.75], axis=1)
            lines[name] = (np.array(EPSILONS), quartiles[1], quartiles[[0, 2]])
        panels[label] = lines
    title = f"Figure 1: AUC against epsilon, K = {GROUPS}, {repetitions} repetitions (mean ± standard error)"
    write_table("stacking/figure_1", title, ["data", "method", *(f"eps {e:g}" for e in EPSILONS)], rows)
    curves("stacking/figure_1", panels, "epsilon", logy=False)
    groups = (2, 5, 10, 20, 50)
    rows = [
        [label, name, *(cell(scores(data, name, repetitions, 1.0, groups=k)) for k in groups)]
        for label, data in sets.items()
        for name in ("PST-S", "PST-F(U)", "PST-F(W)")
    ]
    header = ["data", "method", *(f"K = {k}" for k in groups)]
    write_table("stacking/figure_2", f"Figure 2: AUC against K at epsilon = 1, {repetitions} repetitions", header, rows)
    combiners = ("probability", "majority", "weighted-majority")
    rows = [
        [
            label,
            *(cell(scores(data, "PST-F(W)", repetitions, 1.0, combiner=c)) for c in combiners),
            cell(scores(data, "PST-F(W), trusted", repetitions, 1.0)),
        ]
        for label, data in sets.items()
    ]
    title = f"Figure 4: combiners of PST-F(W), epsilon = 1, K = {GROUPS}, {repetitions} repetitions"
    write_table("stacking/figure_4", title, ["data", *combiners, "high level (trusted)"], rows)


if __name__ == "__main__":
    run(main)
