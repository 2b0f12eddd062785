"""Algorithm 2 as printed and in its sound form: excess risk and support against epsilon, n, K, tau and T.

Simulator of ``_scores.py``: K = 4, T = 20 where nothing else is said. Relative excess risk is (f(x) - f*) / (f(0) - f*), f* the optimum with |x|_1 <= 2.
"Rounds alone" is without the refit, as in the paper; "expected" is what the planner says before any data. The published form is NOT private.
"""

from __future__ import annotations

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.lasso._scores import COLUMNS, PARTIES, RADIUS, Moments, lasso, sent, simulated

ALONE = {"refit": 0.0}
PUBLISHED = {"calibration": "published"}
FORMS = {
    "published": PUBLISHED,
    "value, rounds alone": ALONE,
    "row, rounds alone": {"unit": "record", **ALONE},
    "value": {},
    "row": {"unit": "record"},
    "value, y public": {"response_public": True},
    "value, blocks": {"coupling": "blocks"},
    "value, tau = 10": {"sampled": 10},
    "published, tau = 10": {**PUBLISHED, "sampled": 10},
}
RECOMMENDED = {"value, as recommended": {}, "row, as recommended": {"unit": "record"}}


class Data:
    """Simulated data sets of one size, and their optima."""

    def __init__(self, n: int, repetitions: int) -> None:
        self.n = n
        self.sets = [simulated(n, seed) for seed in range(repetitions)]
        self.moments = [Moments.of(A, y) for A, y, _ in self.sets]
        self.optima = [m.optimum() for m in self.moments]

    def row(self, epsilon: float, **options: object) -> list[str]:
        """Excess risk, how much of it was expected, support, length, bytes."""
        return kept([self.n, epsilon, options], lambda: self._row(epsilon, **options))

    def _row(self, epsilon: float, **options: object) -> list[str]:
        found = []
        for seed, ((A, y, x), data, optimum) in enumerate(zip(self.sets, self.moments, self.optima, strict=True)):
            model = lasso(epsilon, seed, **options).fit(A, y)
            right = np.isin(np.argsort(-np.abs(model.coef_))[:6], np.flatnonzero(x)).sum()
            found.append((data.excess(model.coef_, optimum), right, np.abs(model.coef_).sum() / RADIUS, sent(model)))
        excess, support, length, traffic = np.array(found, dtype=float).T
        known = not (options.get("sampled") or options.get("calibration") or np.isinf(epsilon))
        expected = f"{model.rounds_outlook(self.n, COLUMNS).excess:.3f}" if known else ""
        mean = f"{excess.mean():.4f} ± {excess.std(ddof=1) / np.sqrt(excess.size):.4f}"
        return [mean, expected, f"{support.mean():.1f} of 6", f"{length.max():.2f}", f"{traffic.mean():.2f}"]


HEADER = [
    "relative excess risk",
    "expected",
    "support among the 6 largest",
    "largest length / radius",
    "MB sent by the parties",
]


def against_epsilon(data: dict[int, Data], *, full: bool) -> None:
    """Every form."""
    rows = []
    for n, sets in data.items():
        rows.append([str(n), "inf", "no noise, rounds alone", *sets.row(float("inf"), **ALONE)])
        rows.append([str(n), "inf", "no noise", *sets.row(float("inf"))])
        for epsilon in (1.0, 3.0, 10.0) if full else (1.0, 10.0):
            for form, options in (FORMS | RECOMMENDED if full else FORMS).items():
                chosen = lasso(epsilon, **options).recommended(n, COLUMNS) if "recommended" in form else {}
                rows.append([str(n), f"{epsilon:g}", form, *sets.row(epsilon, **options, **chosen)])
    title = f"Algorithm 2, K = {PARTIES}, T = 20, {len(sets.sets)} data sets"
    write_table(
        "lasso/private", title, ["n", "eps", "unit and form", *HEADER], rows, "Numbers without an error agree within 1.2."
    )


def against_shape(sets: Data, *, full: bool) -> None:
    """K does not matter to a value, and matters to a row; looking at fewer columns costs accuracy."""
    shapes = [(f"K = {parties}", {"parties": parties}) for parties in ((1, 2, 4, 10) if full else (1, 4, 10))]
    shapes += [(f"tau = {tau} of 25", {"sampled": tau}) for tau in ((25, 12, 6, 3) if full else (12, 3))]
    shapes += [(f"T = {rounds}", {"rounds": rounds}) for rounds in ((5, 10, 20, 40, 80) if full else (5, 10, 40))]
    rows = []
    for name, options in shapes:
        value, row, printed = (
            sets.row(e, **options, **o) for e, o in ((1.0, {}), (10.0, {"unit": "record"}), (1.0, PUBLISHED))
        )
        rows.append([name, value[0], value[4], row[0], row[4], printed[0], printed[3], printed[4]])
    header = ["shape", "value, eps 1", "MB", "row, eps 10", "MB ", "published, eps 1", "largest length / radius", "MB  "]
    title = f"Algorithm 2 at n = {sets.n} against K, tau and T: relative excess risk, {len(sets.sets)} data sets"
    write_table("lasso/shape", title, header, rows)


def main(full: bool) -> None:
    """Two sizes of data."""
    data = {n: Data(n, 10 if full else 4) for n in (2000, 20_000)}
    against_epsilon(data, full=full)
    against_shape(data[20_000], full=full)


if __name__ == "__main__":
    run(main)
