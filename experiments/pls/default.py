"""What a reader gets who writes nothing: the default of ``PrivatePLSRegression`` beside the printed form and beside no privacy, on raw spectra.

The default has epsilon and the ranges of channels and response, and names no delta, components, basis, reference or method. Ranges are what the quantity can
be, in round numbers: absorbances of corn in (0, 1) and moisture in (8, 12) per cent, absorbances of meat in (2, 6) and fat in (0, 60) per cent. The printed
form is Figure 5's: 8 latent variables, delta = 0.01.
"""

from __future__ import annotations

import warnings

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.pls._corn import DELTA, corn, fitted, split, tecator

from unpooled import PrivatePLSRegression

#: The ranges of channels and of the response.
RANGES = {"corn": ((0, 1), (8, 12)), "tecator": ((2, 6), (0, 60))}
EPSILONS = (1.0, 10.0, 100.0)
FORMS = ("default", f"default, delta={DELTA}", "printed", "package", "default, epsilon=inf", "mean of the training rows")


def error(form: str, name: str, epsilon: float, X: np.ndarray, y: np.ndarray, seed: int) -> float:
    """RMSEP / sd(y) of one split and one draw of the noise."""
    train, test = split(y.size, seed)
    if form in {"printed", "package"}:
        predicted = fitted(form, epsilon, 8, X[train], y[train], seed).predict(X[test])
    elif form.startswith("mean"):
        predicted = np.full(test.size, y[train].mean())
    else:
        bounds, y_bounds = RANGES[name]
        own = np.inf if "inf" in form else epsilon
        model = PrivatePLSRegression(epsilon=own, bounds=bounds, y_bounds=y_bounds, random_state=seed)
        model.set_params(**({"delta": DELTA} if "delta" in form else {}))
        predicted = model.fit(X[train], y[train]).predict(X[test])
    return float(np.sqrt(np.mean((predicted - y[test]) ** 2)) / y.std())


def stated(errors: list[float]) -> str:
    """The median, and its standard error over 1000 bootstrap samples."""
    rng, values = np.random.default_rng(0), np.array(errors)
    medians = np.median(values[rng.integers(values.size, size=(1000, values.size))], axis=1)
    return f"{np.median(values):.3f} ± {medians.std(ddof=1):.3f}"


def main(full: bool) -> None:
    """Both data sets."""
    warnings.simplefilter("ignore", UserWarning)  # that a model fell back to the mean
    runs, rows = 40 if full else 15, []
    for name, (X, y) in {"corn": corn(), "tecator": tecator()}.items():
        for form in FORMS:
            depends = not form.startswith("mean") and "inf" not in form
            cells = []
            for epsilon in EPSILONS:
                own = epsilon if depends else 1.0

                def errors(
                    form: str = form, own: float = own, name: str = name, X: np.ndarray = X, y: np.ndarray = y
                ) -> list[float]:
                    return [error(form, name, own, X, y, seed) for seed in range(runs)]

                cells.append(stated(kept([name, form, own], errors)))
            rows.append([name, form, *cells])
    write_table(
        "pls/default",
        f"RMSEP / sd(y) of the call that names nothing, raw spectra, 70 / 30 splits: median of {runs} and its standard error",
        ["data", "form", *(f"eps {epsilon:g}" for epsilon in EPSILONS)],
        rows,
        f"The default delta is 1e-05; 'printed' and 'package' have {DELTA} and are NOT private.",
    )


if __name__ == "__main__":
    run(main)
