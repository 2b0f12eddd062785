"""Error against epsilon and N on a table of UCI, ten sites with public ranges: the paper's forms and ours. The authors' settings: ``authors.py``.

Columns are scaled by public ranges. The paper assumes means of zero: its forms get columns less their training means, which no private run has for
free; ours have a constant and the ranges as they are. With fewer than five sites T is N - 2. A fifth of the rows is kept for testing; rows are dealt to the sites at random.
"""

from __future__ import annotations

import numpy as np
from experiments.bayes._blr import DELTA, EPSILONS, PAPER, PROJECTED, SITES, Blr, cell
from experiments.cells import kept
from experiments.common import curves, write_table

#: A public guess: residuals of about a fifth of the half range.
OURS = {"noise_precision": 20.0}
METHODS = {
    "paper: trusted": {**PAPER, "aggregation": "trusted"},
    "paper: distributed": {**PAPER},
    "paper: trusted, projected": {**PAPER, **PROJECTED, "aggregation": "trusted"},
    "paper: distributed, projected": {**PAPER, **PROJECTED},
    "paper: local": {**PAPER, "aggregation": "local"},
    "ours: trusted": {**OURS, "aggregation": "trusted"},
    "ours: trusted, projected": {**OURS, **PROJECTED, "aggregation": "trusted"},
    "ours: distributed": OURS,
    "ours: distributed, T = 3": {**OURS, "tolerate": 3},
    "ours: distributed, projected": {**OURS, **PROJECTED},
    "ours: local": {**OURS, "aggregation": "local"},
    "ours: local, projected": {**OURS, **PROJECTED, "aggregation": "local"},
}
MULTIPLES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)


def scaled(columns: np.ndarray, ranges: list[tuple[float, float]]) -> np.ndarray:
    """Columns on [-1, 1] by ranges that were written down without the data."""
    low, high = np.array(ranges).T
    return np.clip((columns - (low + high) / 2) / ((high - low) / 2), -1, 1)


class Table:
    """Coded rows and response, with what one coded unit of the response is worth."""

    def __init__(self, name: str, X: np.ndarray, y: np.ndarray, unit: float) -> None:
        self.name, self.X, self.y, self.unit = name, X, y, unit
        self._studies: dict[tuple[object, ...], Blr] = {}

    def _split(self, seed: int, *, centred: bool) -> tuple[np.ndarray, ...]:
        order = np.random.default_rng(seed).permutation(self.y.size)
        test, train = np.split(order, [self.y.size // 5])
        x0, y0 = (self.X[train].mean(axis=0), self.y[train].mean()) if centred else (0.0, 0.0)
        return (np.clip(self.X[train] - x0, -1, 1), np.clip(self.y[train] - y0, -1, 1), self.X[test] - x0, self.y[test] - y0)

    def error(self, method: str, epsilon: float, seed: int, sites: int = SITES, multiple: float | None = None) -> float:
        """Mean absolute error in units of y; kept."""
        return float(
            kept(
                [self.name, method, epsilon, seed, sites, multiple],
                lambda: self._error(method, epsilon, seed, sites, multiple),
            )
        )

    def study(self, method: str, epsilon: float, sites: int, multiple: float | None) -> Blr:
        """The study of a method, made once."""
        key = (method, epsilon, sites, multiple)
        if key not in self._studies:
            options = {**METHODS[method]} | ({"multiple": multiple} if multiple else {})
            if options.get("tolerate"):
                options["tolerate"] = min(3, sites - 2)
            rows = self.y.size - self.y.size // 5
            self._studies[key] = Blr(rows, self.X.shape[1], epsilon, 1.0, sites=sites, **options)
        return self._studies[key]

    def _error(self, method: str, epsilon: float, seed: int, sites: int, multiple: float | None) -> float:
        X, y, X_test, y_test = self._split(seed, centred=method.startswith("paper"))
        blr = self.study(method, epsilon, sites, multiple)
        fit = blr.fit(X, y, np.random.default_rng([seed, 7]))
        return float(np.abs(blr.predict(fit, X_test) - y_test).mean()) * self.unit

    def plain(self, seed: int, *, fitted: bool = True) -> float:
        """Without noise; or, for scale, the training mean."""
        X, y, X_test, y_test = self._split(seed, centred=False)
        Z, Z_test = (np.column_stack([A, np.ones(len(A))]) for A in (X, X_test))
        coef = np.linalg.solve(np.eye(Z.shape[1]) + 20 * Z.T @ Z, 20 * Z.T @ y)
        return float(np.abs((Z_test @ coef if fitted else y.mean()) - y_test).mean()) * self.unit

    def tables(self, *, full: bool) -> None:
        """Against epsilon, against N, against the multiple."""
        runs = 50 if full else 12
        file, rows, lines = f"bayes/{self.name}", [], {}
        note = f"delta = {DELTA:g}, {runs} splits and draws, mean ± standard error; predictions within the declared range."
        for name, fitted in (("non-private", True), ("mean", False)):
            found = np.array([self.plain(s, fitted=fitted) for s in range(runs)])
            rows.append([name, *[cell(found)] * len(EPSILONS)])
            lines[name] = (np.array([1.0]), np.array([found.mean()]), np.zeros((2, 1)))
        for method in METHODS:
            found = np.array([[self.error(method, e, s) for s in range(runs)] for e in EPSILONS])
            rows.append([method, *map(cell, found)])
            lines[method] = (np.array(EPSILONS), found.mean(axis=1), np.quantile(found, [0.25, 0.75], axis=1))
        title = f"{self.name}: mean absolute error"
        write_table(file, f"{title} against epsilon, N = {SITES}", ["method", *(f"eps {e:g}" for e in EPSILONS)], rows, note)
        curves(file, {self.name: lines}, "epsilon")
        sizes = (2, 5, 10, 20, 40)
        rows = [[m, *(cell(np.array([self.error(m, 1.0, s, n) for s in range(runs)])) for n in sizes)] for m in METHODS]
        write_table(f"{file}_sites", f"{title} against N at eps = 1", ["method", *(f"N = {n}" for n in sizes)], rows, note)
        rows = []
        for method in ("paper: distributed, projected", "ours: distributed, projected"):
            for epsilon in (0.3, 1.0, 10.0):
                tried = [
                    np.array([self.error(method, epsilon, s, SITES, m) for s in range(runs)]) for m in (*MULTIPLES, None)
                ]
                which = self.study(method, epsilon, SITES, None).multiple
                rows.append([method, f"{epsilon:g}", *map(cell, tried), f"{which:g}"])
        header = ["method", "eps", *(f"x {m:g}" for m in MULTIPLES), "chosen on synthetic data", "which"]
        write_table(f"{file}_multiples", f"{title} against the multiple of the projection", header, rows, note)
