"""Stacking, Figures 1, 2 and 4: AUC against epsilon, against the number of groups, and by combiner; penalties by a validation set."""

from __future__ import annotations

import numpy as np
from experiments.common import curves, run, write_table
from experiments.stacking._protocol import (
    EPSILONS,
    GROUPS,
    REPETITIONS,
    Data,
    cell,
    chosen,
    mnist,
    models,
    newsgroups,
    scores,
)
from sklearn.metrics import roc_auc_score


def main(full: bool) -> None:
    """AUC on both data sets; ten repetitions as in the paper, or three."""
    repetitions = REPETITIONS if full else 3
    sets = {"newsgroups": newsgroups(), "MNIST 0/8": mnist()}
    rows, panels = [], {}
    for label, data in sets.items():
        lines = {}
        for name in models(data, 1.0, 0.1, 0):
            found = [scores(data, name, repetitions, epsilon) for epsilon in (*EPSILONS, np.inf)]
            rows.append([label, name, *map(cell, found)])
            quartiles = np.quantile(found[:-1], [0.25, 0.5, 0.75], axis=1)
            lines[name] = (np.array(EPSILONS), quartiles[1], quartiles[[0, 2]])
        panels[label] = lines
    title = f"Figure 1: AUC against epsilon, K = {GROUPS}, {repetitions} repetitions (mean ± standard error)"
    write_table("stacking/figure_1", title, ["data", "method", *(f"eps {e:g}" for e in (*EPSILONS, np.inf))], rows)
    curves("stacking/figure_1", panels, "epsilon", logy=False)
    groups = (2, 5, 10, 20, 50)
    rows = [
        [label, name, *(cell(scores(data, name, repetitions, 1.0, groups=k)) for k in groups)]
        for label, data in sets.items()
        for name in ("PST-S", "PST-F(U)", "PST-F(W)", "PST-F(U), trusted, published", "PST-F(W), trusted, published")
    ]
    header = ["data", "method", *(f"K = {k}" for k in groups)]
    write_table("stacking/figure_2", f"Figure 2: AUC against K at epsilon = 1, {repetitions} repetitions", header, rows)
    rows = [[label, *combined(data, form, repetitions)] for label, data in sets.items() for form in ("published", "sound")]
    title = f"Figure 4: low-level models of PST-F(W) and how they are combined, epsilon = 1, K = {GROUPS}, {repetitions} repetitions"
    header = ["data", "form", *(f"C-{k}" for k in range(GROUPS)), "C-mv", "C-wmv", "C-hl", "public weights (ours)"]
    write_table("stacking/figure_4", title, header, rows, "C-0 has the most important columns.")


def combined(data: Data, form: str, repetitions: int) -> list[str]:
    """Test AUC of every low-level model, of their majority, of their weighted majority and of the high-level model; and ours, without D_h."""
    found = []
    for seed in range(repetitions):
        model = chosen(data, "PST-F(W), trusted" + (", published" if form == "published" else ""), 1.0, seed)
        shares = np.array([low.share for low in model.models_])
        order = np.argsort(-shares, kind="stable")
        low = model._low(data[2])[:, order]  # noqa: SLF001 - the project's own
        votes = (low > 0.5).astype(float)
        every = [*low.T, votes.mean(axis=1), votes @ shares[order], model.decision_function(data[2])]
        found.append([roc_auc_score(data[3], one) for one in every])
    ours = cell(scores(data, "PST-F(W)", repetitions, 1.0)) if form == "sound" else ""
    return [form, *map(cell, np.array(found).T), ours]


if __name__ == "__main__":
    run(main)
