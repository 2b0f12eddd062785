"""Corn and tecator: RMSEP / sd(y) against epsilon, numbers of components, preprocessing (edPLS' Figures 3-5), beside the sound forms.

    python experiments/pls_corn.py [runs]

The data are read from UNPOOLED_DATA and not shipped. airPLS needs the extra [spectra] and is left out where it is not installed.
A reference spectrum and a row bound that are public do not exist for these data; the sound rows use those of a random tenth of the spectra, which is
taken as public and not fitted to.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
import polars as pl
from common import curves, data_file, write_table
from scipy.signal import savgol_filter
from sklearn.cross_decomposition import PLSRegression
from sklearn.model_selection import KFold

from unpooled import Bounds, PrivatePLSRegression
from unpooled.kernels.kernel_pls import Centred, cross_validated
from unpooled.models.pls.frame import Frame
from unpooled.models.pls.published import coefficients

DELTA, EPSILONS = 0.01, (0.1, 1.0, 10.0, 100.0, 1000.0, 1e4)


def msc(X: np.ndarray, reference: np.ndarray) -> np.ndarray:
    offset, slope = np.linalg.lstsq(np.column_stack([np.ones(reference.size), reference]), X.T, rcond=None)[0]
    return (X - offset[:, None]) / slope[:, None]


def preprocessings(reference: np.ndarray) -> dict:
    """Row by row, with public constants only."""
    steps = {
        "raw": lambda X: X,
        "SG": lambda X: savgol_filter(X, 5, 2, deriv=1, axis=1),
        "MSC": lambda X: msc(X, reference),
    }
    try:
        from chemotools.baseline import AirPls
    except ImportError:
        print("chemotools is not installed: no airPLS (pip install unpooled[spectra])")
    else:
        steps["airPLS"] = lambda X: AirPls(lam=1e4, nr_iterations=15).fit_transform(X)
    return steps


def corn() -> tuple[np.ndarray, np.ndarray]:
    stored = np.load(data_file("nir_corn.npz"))
    return stored["m5spec"].astype(float), stored["propvals"][:, 0].astype(float)


def tecator() -> tuple[np.ndarray, np.ndarray]:
    frame = pl.read_csv(data_file("nir_tecator.csv.gz"))
    return frame.select(pl.col("^absorbance_.*$")).to_numpy().astype(float), frame["fat"].to_numpy().astype(float)


def split(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Public, fitted and tested rows."""
    order = np.random.default_rng(seed).permutation(n)
    public = max(n // 10, 5)
    return order[:public], order[public : public + round(0.6 * n)], order[public + round(0.6 * n) :]


def model(
    form: str, epsilon: float, components: int, public: tuple[np.ndarray, np.ndarray], seed: int
) -> PrivatePLSRegression:
    spectra, responses = public
    if form in {"published", "package"}:
        return PrivatePLSRegression(
            components,
            basis="none",
            calibration="published",
            sd="sigma" if form == "published" else "sigma^2",
            epsilon=epsilon,
            delta=DELTA,
            random_state=seed,
        )
    basis, reference = ("none" if form == "sound" else "dct"), spectra.mean(axis=0)
    lengths = np.linalg.norm(Frame.of(basis, reference.size, 20, reference).coordinates(spectra), axis=1)
    spread = 3 * float(responses.std())
    return PrivatePLSRegression(
        "cv",
        basis=basis,
        epsilon=epsilon,
        delta=DELTA,
        adjacency="zero-out",
        bounds=Bounds(norm=1.5 * float(lengths.max())),
        y_bounds=(float(responses.mean()) - spread, float(responses.mean()) + spread),
        reference=reference,
        random_state=seed,
    )


def error(X: np.ndarray, y: np.ndarray, form: str, epsilon: float, components: int, seed: int) -> float:
    public, fitted, tested = split(y.size, seed)
    found = model(form, epsilon, components, (X[public], y[public]), seed).fit(X[fitted], y[fitted])
    return float(np.sqrt(np.mean((found.predict(X[tested]) - y[tested]) ** 2)) / y.std())


def equality(X: np.ndarray, y: np.ndarray) -> None:
    """Without noise and basis: the largest difference of any coefficient from scikit-learn's PLSRegression."""
    row = []
    for count in range(1, 11):
        ours = PrivatePLSRegression(count, basis="none", epsilon=float("inf")).fit(X, y).coef_
        row.append(f"{np.abs(ours - PLSRegression(count, scale=False).fit(X, y).coef_.ravel()).max():.0e}")
    write_table(
        "pls_corn_equality",
        "corn: largest difference of a coefficient from scikit-learn's",
        [str(k) for k in range(1, 11)],
        [row],
    )


def against_epsilon(name: str, X: np.ndarray, y: np.ndarray, components: int, runs: int) -> None:
    panels, rows = {}, []
    for title, step in preprocessings(X[split(y.size, 0)[0]].mean(axis=0)).items():
        Z, lines = step(X), {}
        for form in ("published", "package", "sound", "sound + basis"):
            found = np.array([[error(Z, y, form, e, components, s) for s in range(runs)] for e in EPSILONS])
            lines[form] = (np.array(EPSILONS), np.median(found, axis=1), np.quantile(found, [0.25, 0.75], axis=1))
            rows.append([title, form, *(f"{value:.3g}" for value in np.median(found, axis=1))])
        baseline = []
        for s in range(runs):
            _, fitted, tested = split(y.size, s)
            plain = PrivatePLSRegression(components, basis="none", epsilon=float("inf")).fit(Z[fitted], y[fitted])
            baseline.append(float(np.sqrt(np.mean((plain.predict(Z[tested]) - y[tested]) ** 2)) / y.std()))
        middle = np.array([np.median(baseline)])
        lines["no privacy"] = (np.array([1.0]), middle, np.array([middle, middle]))
        rows.append([title, "no privacy", *[f"{middle[0]:.3g}"] * len(EPSILONS)])
        panels[title] = lines
    header = ["preprocessing", "model", *(f"eps = {e:g}" for e in EPSILONS)]
    what = f"RMSEP / sd(y), n = {round(0.6 * y.size)}, {components} components, delta = {DELTA}, medians of {runs}; published and package are NOT private"
    write_table(f"pls_{name}", f"{name}: {what}", header, rows)
    curves(f"pls_{name}", panels, "epsilon")


def numbers_of_components(X: np.ndarray, y: np.ndarray, runs: int, most: int = 10) -> None:
    """Figures 4 and 5: RMSECV of the published form against the number of components (not private: the folds see the data)."""
    rows = []
    for title, step in preprocessings(X.mean(axis=0)).items():
        Z = step(X)
        folds = list(KFold(10, shuffle=True, random_state=0).split(Z))
        plain = cross_validated([Centred.of(Z[test], y[test]) for _, test in folds], most).sum(axis=0)
        rows.append([title, "no privacy", *(f"{v:.3g}" for v in np.sqrt(plain / y.size) / y.std())])
        for epsilon in (1.0, 10.0, 100.0):
            total = np.zeros((runs, most))
            for seed in range(runs):
                for k, (train, test) in enumerate(folds):
                    found = model("published", epsilon, most, (Z, y), 100 * seed + k).fit(Z[train], y[train])
                    for a in range(1, most + 1):  # the first components of a model are a model
                        parts = (found.x_weights_[:, :a], found.x_loadings_[:, :a], found.y_loadings_[0, :a])
                        predicted = y[train].mean() + (Z[test] - Z[train].mean(axis=0)) @ coefficients(*parts)
                        total[seed, a - 1] += float(((predicted - y[test]) ** 2).sum())
            middle = np.median(np.sqrt(total / y.size), axis=0) / y.std()
            rows.append([title, f"published, eps = {epsilon:g}", *(f"{v:.3g}" for v in middle)])
    write_table(
        "pls_corn_components",
        f"corn: 10-fold RMSECV / sd(y) against the number of components, medians of {runs}; NOT private",
        ["preprocessing", "model", *map(str, range(1, most + 1))],
        rows,
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    equality(*corn())
    against_epsilon("corn", *corn(), 8, repeats)
    numbers_of_components(*corn(), max(repeats // 4, 1))
    against_epsilon("tecator", *tecator(), 8, repeats)
