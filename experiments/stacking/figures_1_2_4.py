"""Stacking, Figures 1, 2 and 4: AUC against epsilon, against the number of groups, and by combiner; penalties by a validation set."""

from __future__ import annotations

import numpy as np
from experiments.cells import kept
from experiments.common import curves, run, write_table
from experiments.stacking._protocol import (
    EPSILONS,
    GROUPS,
    OF_SHORTENED,
    OURS,
    PAPERS,
    PRINTED,
    PUBLIC,
    REPETITIONS,
    SHORTENED,
    World,
    cell,
    chosen,
    scores,
    verdict,
    worlds,
)
from sklearn.metrics import roc_auc_score

FORMS = {PRINTED: PAPERS, SHORTENED: OF_SHORTENED, PUBLIC: PAPERS, "ours": OURS}
#: The name of a method in each form.
NAMES = {
    (form, method): method if form == "ours" else f"{method}, {form}"
    for form, methods in FORMS.items()
    for method in methods
}
METHODS = tuple(NAMES.values())
#: The sentences of the paper's text on Figure 1, each of two methods.
CLAIMS = (
    ("PST-F(U)", "PLR"),
    ("PST-F(U)", "PST-S"),
    ("PST-F(W)", "PLR"),
    ("PST-F(W)", "PST-S"),
    ("PST-F(W)", "PST-F(U)"),
    ("PLR", "PST-S"),
)
#: The forms that are drawn.
DRAWN = (PRINTED, SHORTENED)
#: Methods that see the same shortened rows.
EQUAL = (("PST-F(U)", "PLR(U)"),)


def main(full: bool) -> None:
    """AUC on both data sets; ten repetitions as in the paper, or three."""
    repetitions, sets = REPETITIONS if full else 3, worlds()
    against_epsilon(sets, repetitions)
    against_groups(sets, repetitions)
    by_combiner(sets, repetitions)


def against_epsilon(sets: tuple[World, ...], repetitions: int) -> None:
    """Figure 1, and for every form, data set and epsilon whether each sentence about it holds."""
    every, rows, verdicts, panels = (*EPSILONS, np.inf), [], [], {}
    for world in sets:
        found = {}
        for name in METHODS:
            found[name] = [scores(world, name, repetitions, epsilon) for epsilon in every]
            rows.append([world.name, name, *map(cell, found[name])])
        for form in DRAWN:
            lines = panels.setdefault(f"{world.name}, {form}", {})
            for method in PAPERS:
                quartiles = np.quantile(found[NAMES[form, method]][:-1], [0.25, 0.5, 0.75], axis=1)
                lines[method] = (np.array(EPSILONS), quartiles[1], quartiles[[0, 2]])
        for form, methods in FORMS.items():
            for one, other in (*CLAIMS, *EQUAL):
                if {one, other} <= set(methods):
                    pairs = zip(found[NAMES[form, one]], found[NAMES[form, other]], strict=True)
                    verdicts.append([world.name, form, f"{one} above {other}", *(verdict(a, b) for a, b in pairs)])
    title = f"Figure 1: AUC against epsilon, K = {GROUPS}, {repetitions} repetitions (mean ± standard error)"
    header = [f"eps {e:g}" for e in every]
    write_table("stacking/figure_1", title, ["data", "method", *header], rows)
    curves("stacking/figure_1", panels, "epsilon", logy=False)
    write_table(
        "stacking/figure_1_verdicts",
        f"Figure 1: whether one method has the better AUC, {repetitions} repetitions",
        ["data", "form", "which", *header],
        verdicts,
        "By two standard errors of the difference over paired repetitions.",
    )


def against_groups(sets: tuple[World, ...], repetitions: int) -> None:
    """Figure 2."""
    groups = (2, 5, 10, 20, 50)
    rows = [
        [world.name, name, *(cell(scores(world, name, repetitions, 1.0, k)) for k in groups)]
        for world in sets
        for name in METHODS
        if not name.startswith("PLR") and not (name.startswith("PST-S") and SHORTENED in name)
    ]
    header = ["data", "method", *(f"K = {k}" for k in groups)]
    write_table("stacking/figure_2", f"Figure 2: AUC against K at epsilon = 1, {repetitions} repetitions", header, rows)


def by_combiner(sets: tuple[World, ...], repetitions: int) -> None:
    """Figure 4."""
    rows = [[world.name, form, *combined(world, form, repetitions)] for world in sets for form in FORMS]
    title = f"Figure 4: low-level models of PST-F(W) and how they are combined, epsilon = 1, K = {GROUPS}, {repetitions} repetitions"
    header = ["data", "form", *(f"C-{k}" for k in range(GROUPS)), "C-mv", "C-wmv", "C-hl", "public weights (ours)"]
    header += ["C-hl above C-mv", "C-hl above C-wmv", "C-hl above C-0"]
    write_table("stacking/figure_4", title, header, rows, "C-0 has the most important columns.")


def combined(world: World, form: str, repetitions: int) -> list[str]:
    """Test AUC of every low-level model, of their majority, of their weighted majority and of the high-level model; and ours, without D_h."""
    name = "PST-F(W), trusted" if form == "ours" else f"PST-F(W), {form}"

    def once(seed: int) -> list[float]:
        model, data = chosen(world, name, 1.0, seed)
        shares = np.array([low.share for low in model.models_])
        order = np.argsort(-shares, kind="stable")
        low = np.column_stack([p[:, 1] for p in model._low(data[2])])[:, order]  # noqa: SLF001 - the project's own
        votes = (low > 0.5).astype(float)
        every = [*low.T, votes.mean(axis=1), votes @ shares[order], model.decision_function(data[2])]
        return [float(roc_auc_score(data[3], one)) for one in every]

    found = np.array([kept(["figure 4", world.name, form, s], lambda s=s: once(s)) for s in range(repetitions)]).T
    ours = cell(scores(world, "PST-F(W)", repetitions, 1.0)) if form == "ours" else ""
    high = found[-1]
    return [*map(cell, found), ours, *(verdict(high, found[k]) for k in (-3, -2, 0))]


if __name__ == "__main__":
    run(main)
