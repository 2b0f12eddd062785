"""What a reader gets who writes nothing: the default of ``PrivateLasso`` beside the printed form and beside no privacy, on this page's simulations.

The default has epsilon, the ranges of columns and response, and who holds which columns. It names no radius, no method, no unit and no delta. The printed
form has what it needs besides: the radius that the data were made with, T = 20, delta. Excess risk is of predictions, with the constant where one is fitted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.lasso._scores import BOUND, PARTIES, Moments, lasso, simulated

from unpooled import PrivateLasso

Make = Callable[[float], PrivateLasso]
#: Every form's model of one seed. The first is the call of the page.
FORMS: dict[str, Make] = {
    "default": lambda epsilon: PrivateLasso(PARTIES, epsilon=epsilon, bounds=(-1, 1), y_bounds=(-BOUND, BOUND)),
    'default, unit="record"': lambda epsilon: PrivateLasso(
        PARTIES, epsilon=epsilon, bounds=(-1, 1), y_bounds=(-BOUND, BOUND), unit="record"
    ),
    'method="frank-wolfe", radius known': lasso,
    "printed, radius known": lambda epsilon: lasso(epsilon, calibration="published"),
}
PRIVATE = "default, epsilon=inf"


def main(full: bool) -> None:
    """Two sizes of data, two epsilons."""
    warnings.simplefilter("ignore", UserWarning)  # that a ball is full is known
    warnings.simplefilter("ignore", FutureWarning)
    repetitions = 20 if full else 10
    cells: dict[str, list[str]] = {}
    columns = [(n, epsilon) for n in (2000, 20_000) for epsilon in (1.0, 10.0)]
    for n, epsilon in columns:
        sets = [simulated(n, seed) for seed in range(repetitions)]
        optima = [Moments.of(A, y).optimum() for A, y, _ in sets]
        for name, make in (FORMS | {PRIVATE: None}).items():

            def excesses(
                make: Make | None = make, epsilon: float = epsilon, sets: list = sets, optima: list = optima
            ) -> list:
                found = []
                for seed, ((A, y, _), best) in enumerate(zip(sets, optima, strict=True)):
                    model = FORMS["default"](np.inf) if make is None else make(epsilon)
                    risk = np.mean(np.square(y - model.set_params(random_state=seed).fit(A, y).predict(A))) / 2
                    found.append(float((risk - best) / (np.mean(np.square(y)) / 2 - best)))
                return found

            found = kept([n, "inf" if make is None else epsilon, name], excesses)
            error = np.std(found, ddof=1) / np.sqrt(len(found))
            cells.setdefault(name, []).append(f"{np.mean(found):.4f} ± {error:.4f}")
    write_table(
        "lasso/default",
        f"Relative excess risk of the call that names nothing, {repetitions} data sets",
        ["form", *(f"n = {n}, eps {epsilon:g}" for n, epsilon in columns)],
        [[name, *cells[name]] for name in (*FORMS, PRIVATE)],
        "0 is the optimum of (12) with the radius known, 1 is x = 0. The printed form is NOT private.",
    )


if __name__ == "__main__":
    run(main)
