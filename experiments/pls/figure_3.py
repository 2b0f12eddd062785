"""edPLS, Figure 3: accuracy against epsilon on raw corn with 10 latent variables, coefficients and test predictions; both deviations."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from experiments.cells import kept
from experiments.common import run, write_figure, write_table
from experiments.pls._corn import DELTA, EPSILONS, FORMS, corn, error, fitted, split


def main(full: bool) -> None:
    """Medians and quartiles of at least 100 runs of the published forms (no fit of theirs takes long)."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    X, y = corn()
    rows, found = [], {}
    for form in (*FORMS, "no privacy"):
        runs = (400 if full else 100) if form in {"printed", "package", "no privacy"} else (100 if full else 12)
        epsilons = (float("inf"),) if form == "no privacy" else EPSILONS
        errors = np.array(
            [
                kept([form, e], lambda e=e, form=form, n=runs: [error(form, e, 10, X, y, s) for s in range(n)])
                for e in epsilons
            ]
        )
        found[form] = np.quantile(errors, [0.25, 0.5, 0.75], axis=1)
        cells = [f"{m:.3g} ({a:.2g} .. {b:.2g})" for a, m, b in found[form].T]
        rows.append([form, str(runs), *(cells * (len(EPSILONS) if form == "no privacy" else 1))])
    write_table(
        "pls/figure_3",
        "corn, raw spectra, 10 latent variables: RMSEP / sd(y), medians (quartiles)",
        ["model", "runs", *(f"eps {e:g}" for e in EPSILONS)],
        rows,
        f"delta = {DELTA}, 70 / 30 splits. 'printed' and 'package' are NOT private.",
    )
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12.6, 3.6))
    train, test = split(y.size, 0)
    for epsilon in (10.0, 100.0, 1000.0, 1e4):
        left.plot(fitted("printed", epsilon, 10, X[train], y[train], 0).coef_, linewidth=0.8, label=f"eps = {epsilon:g}")
    left.set(title="coefficients, as printed", xlabel="channel", yscale="symlog")
    left.legend(fontsize=7)
    for form in FORMS:
        middle.plot(EPSILONS, found[form][1], marker="o", markersize=3, label=form)
        middle.fill_between(EPSILONS, found[form][0], found[form][2], alpha=0.12)
    middle.axhline(found["no privacy"][1, 0], linestyle="--", color="grey", label="no privacy")
    middle.set(title="RMSEP / sd(y)", xlabel="epsilon", xscale="log", yscale="log")
    middle.legend(fontsize=7)
    predicted = fitted("no privacy", 1.0, 10, X[train], y[train], 0).predict(X[test])
    right.scatter(y[test], predicted, s=12)
    right.axline((float(y.min()), float(y.min())), slope=1, color="grey", linewidth=0.8)
    r2 = 1 - float(((predicted - y[test]) ** 2).sum() / ((y[test] - y[test].mean()) ** 2).sum())
    right.set(title=f"no privacy: test predictions, R2 = {r2:.2f}", xlabel="measured", ylabel="predicted")
    figure.tight_layout()
    write_figure("pls/figure_3", figure)


if __name__ == "__main__":
    run(main)
