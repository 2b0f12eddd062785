"""edPLS, Figures 4 and 5: RMSECV against the number of latent variables, and accuracy against epsilon after each preprocessing."""

from __future__ import annotations

from functools import partial

import matplotlib as mpl
import numpy as np
from experiments.cells import kept
from experiments.common import curves, run, write_figure, write_table
from experiments.pls._corn import DELTA, EPSILONS, FORMS, corn, error, fitted, preprocessings, split, tecator
from sklearn.model_selection import KFold

from unpooled.kernels.pls import Centred, cross_validated
from unpooled.papers.pls import coefficients

MOST = 10


def against_components(X: np.ndarray, y: np.ndarray, runs: int, epsilons: tuple[float, ...]) -> list[list[str]]:
    """10-fold RMSECV / sd(y) of 1 .. 10 latent variables, median over the noise (the folds see the data: not private)."""
    rows = []
    for title, step in preprocessings(X).items():
        Z = step(X)
        folds = list(KFold(10, shuffle=True, random_state=0).split(Z))
        plain = cross_validated([Centred.of(Z[test], y[test]) for _, test in folds], MOST).sum(axis=0)
        rows.append([title, "no privacy", *(f"{v:.3g}" for v in np.sqrt(plain / y.size) / y.std())])
        for form in ("printed", "package"):
            for epsilon in epsilons:
                draws = range(
                    max(runs, 25) if title == "raw" or epsilon == 1 else runs
                )  # what the paper says something about
                total = np.array(
                    [
                        kept(["LVs", title, form, epsilon, seed], partial(one_draw, form, epsilon, Z, y, folds, seed))
                        for seed in draws
                    ]
                )
                middle = np.median(np.sqrt(total / y.size), axis=0) / y.std()
                rows.append([title, f"{form}, eps {epsilon:g}", *(f"{v:.3g}" for v in middle)])
    return rows


def one_draw(form: str, epsilon: float, Z: np.ndarray, y: np.ndarray, folds: list, seed: int) -> list[float]:
    """The held-out sum of squares of 1 .. 10 latent variables, with one draw of the noise in every fold."""
    total = np.zeros(MOST)
    for k, (train, test) in enumerate(folds):
        found = fitted(form, epsilon, MOST, Z[train], y[train], 100 * seed + k)
        for a in range(1, MOST + 1):  # the first components of a model are a model
            parts = (found.x_weights_[:, :a], found.x_loadings_[:, :a], found.y_loadings_[0, :a])
            predicted = y[train].mean() + (Z[test] - Z[train].mean(axis=0)) @ coefficients(*parts)
            total[a - 1] += float(((predicted - y[test]) ** 2).sum())
    return total.tolist()


def against_epsilon(name: str, X: np.ndarray, y: np.ndarray, runs: int) -> None:
    """RMSEP / sd(y) with 8 latent variables after each preprocessing."""
    rows, panels = [], {}
    for title, step in preprocessings(X).items():
        Z, lines = step(X), {}
        for form in FORMS:
            count = max(runs // 5, 5) if form.startswith("sound") else max(runs, 100) if title == "raw" else runs
            errors = np.array([several(name, title, form, e, Z, y, count) for e in EPSILONS])
            lines[form] = (np.array(EPSILONS), np.median(errors, axis=1), np.quantile(errors, [0.25, 0.75], axis=1))
            rows.append([title, form, *(f"{v:.3g}" for v in np.median(errors, axis=1))])
        plain = np.median([error("no privacy", 1.0, 8, Z, y, s) for s in range(runs)])
        lines["no privacy"] = (np.array([1.0]), np.array([plain]), np.zeros((2, 1)))
        rows.append([title, "no privacy", *[f"{plain:.3g}"] * len(EPSILONS)])
        panels[title] = lines
    write_table(
        f"pls/figure_5_{name}",
        f"{name}: RMSEP / sd(y) with 8 latent variables, medians of {runs} (raw: at least 100; sound forms: a fifth)",
        ["preprocessing", "model", *(f"eps {e:g}" for e in EPSILONS)],
        rows,
        f"delta = {DELTA}, 70 / 30 splits. 'printed' and 'package' are NOT private.",
    )
    curves(f"pls/figure_5_{name}", panels, "epsilon")


def several(name: str, title: str, form: str, epsilon: float, Z: np.ndarray, y: np.ndarray, count: int) -> list[float]:
    """The errors of several splits and draws."""
    return kept([name, title, form, epsilon], lambda: [error(form, epsilon, 8, Z, y, s) for s in range(count)])


def scatter(X: np.ndarray, y: np.ndarray) -> None:
    """Figures 4 and 5, right: test predictions of 2 latent variables at epsilon 10 (raw) and 1 (SG)."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(14, 3.4))
    train, test = split(y.size, 0)
    for axis, (title, form, epsilon) in zip(
        axes,
        (("raw", "printed", 10.0), ("raw", "package", 10.0), ("SG", "printed", 1.0), ("SG", "package", 1.0)),
        strict=True,
    ):
        Z = preprocessings(X)[title](X)
        axis.scatter(y[test], fitted(form, epsilon, 2, Z[train], y[train], 0).predict(Z[test]), s=12)
        axis.axline((float(y.min()), float(y.min())), slope=1, color="grey", linewidth=0.8)
        axis.set(title=f"{title}, {form}, eps = {epsilon:g}", xlabel="measured", ylabel="predicted")
    figure.tight_layout()
    write_figure("pls/figures_4_and_5_scatter", figure)


def main(full: bool) -> None:
    """Figure 4 (raw) and 5 (all preprocessings)."""
    mpl.use("Agg")
    X, y = corn()
    write_table(
        "pls/figure_4",
        "corn: 10-fold RMSECV / sd(y) against the number of latent variables",
        ["preprocessing", "model", *map(str, range(1, MOST + 1))],
        against_components(X, y, 100 if full else 3, (1.0, 10.0, 100.0)),
        f"Medians of {100 if full else 3} draws of the noise (raw, and epsilon 1: at least 25), delta = {DELTA}. NOT private: the folds see the data.",
    )
    against_epsilon("corn", X, y, 100 if full else 25)
    if full:
        against_epsilon("tecator", *tecator(), 100)
    scatter(X, y)


if __name__ == "__main__":
    run(main)
