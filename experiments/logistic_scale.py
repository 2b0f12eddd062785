"""Log-loss and calibration of logistic regression at small budgets: direction then scale, rounds, and the base rate (``models/glm/THEORY.md``, section 5).

Normal columns on ranges of four deviations, independent or with one common factor (correlation .8); linear predictors of deviation .5, 1, 1.5 and 2
in turn; delta = 1e-5, replace. A run plays the study's own coordinator on exact totals with the noise of its plan, and predicts 4,000 new rows whose
true probabilities are known, so log-loss and calibration slope (that of the truth on the log odds of the prediction) have no sampling error of
responses. "before" is what ``auto`` was without the histogram along the score: the base rate below k = 5, rounds, from 80 on a Newton step.
"rounds" are those of k >= 40 at every k, with the histogram. Half of the cells (a checkerboard over rows, columns, correlation, base rate and epsilon)
served while the method was built, to check the switch and the likelihood of the histogram; the other half chose nothing. Runs continue where they stopped: each cell is a file under build/logistic_scale, and runs of
other code are discarded.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from experiments.common import run, write_table
from experiments.inference.played import PARTS, played_result, sources
from scipy.special import expit, logit
from sklearn.metrics import roc_auc_score

import unpooled
from unpooled import PrivateGLM
from unpooled.kernels.score_posterior import mean_log_odds
from unpooled.models.glm import declared as glm_declared
from unpooled.models.glm import plan as glm_plan
from unpooled.models.glm.declared import WORTH_ERRORS, WORTH_LENGTHS
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

WHERE = Path("build/logistic_scale")
ROWS, COLUMNS, CORRELATIONS, RATES, EPSILONS = (
    (500, 2000, 5000, 20_000, 50_000),
    (5, 30),
    (0.0, 0.8),
    (0.5, 0.1),
    (0.1, 0.3, 1.0, 3.0),
)
SIGNALS, NEW, HALF_RANGE = (0.5, 1.0, 1.5, 2.0), 4000, 4.0
METHODS = ("before", "direction", "rounds")
BINS, SHOWN = (0.0, 3.0, 8.0, 20.0, 40.0, 80.0, math.inf), ("before", "now", "base rate", "truth")
FULL, REDUCED = 12, 4
#: Numbers in the share of the base rate; the first is the rule's.
STRENGTHS = (8.0, 16.0, 25.0)
_CERTAIN = 1e-12
Cell = tuple[int, int, float, float, float]


@functools.cache
def code() -> str:
    """A hash of the code behind the runs."""
    root = Path(unpooled.__file__).parent
    total = hashlib.sha256()
    for file in (*sources(root, PARTS), Path(__file__)):
        total.update(file.read_bytes())
    return total.hexdigest()[:12]


def cells() -> list[Cell]:
    """All cells."""
    return list(itertools.product(ROWS, COLUMNS, CORRELATIONS, RATES, EPSILONS))


def chooses(cell: Cell) -> bool:
    """Return True for a cell of the half that served while the method was built."""
    axes = (ROWS, COLUMNS, CORRELATIONS, RATES, EPSILONS)
    return sum(axis.index(value) for axis, value in zip(axes, cell, strict=True)) % 2 == 0  # type: ignore[arg-type]


def drawn(cell: Cell, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows and classes of a study; new rows and their true probabilities. Cells that differ in epsilon alone have the same ones."""
    rows, columns, correlation, rate, _ = cell
    rng = np.random.default_rng([seed, zlib.crc32(repr(cell[:4]).encode())])
    X = math.sqrt(1 - correlation) * rng.normal(size=(rows + NEW, columns))
    X = np.clip(X + math.sqrt(correlation) * rng.normal(size=(rows + NEW, 1)), -HALF_RANGE, HALF_RANGE)
    u = X @ rng.normal(size=columns)
    u *= SIGNALS[seed % len(SIGNALS)] / u.std()
    low, high = -40.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(u + middle).mean() < rate else (low, middle)
    p = expit(u + low)
    y = (rng.random(p.size) < p).astype(int)
    return X[:rows], y[:rows], X[rows:], p[rows:]


def planned(cell: Cell, method: str) -> Any:
    """The plan of a study; "before" is that of no histogram along the score."""
    rows, columns, _, _, epsilon = cell
    declared = (*(Column(f"x{j}", -HALF_RANGE, HALF_RANGE) for j in range(columns)), Column("y", categories=("no", "yes")))
    asked = {"before": "auto", "direction": "direction"}.get(method)
    if asked is None:
        asked = "newton" if strength(cell) >= WORTH_ERRORS else "gradient"
    study = Study(
        "glm", (Card("all", rows, declared),), epsilon, 1e-5, parameters={"response": "y", "method": asked}, derived=()
    )
    with mock.patch.object(glm_plan, "_calibrates", return_value=False) if method == "before" else mock.MagicMock():
        return glm_plan.compile_plan(study)


def strength(cell: Cell) -> float:
    """k: n mu for each coefficient."""
    plan = PrivateGLM("logistic", epsilon=cell[4], delta=1e-5, bounds=(-1, 1), classes=(0, 1)).plan(cell[0], cell[1])
    return cell[0] * plan.design.aggregation.multiplier(plan.study) / (cell[1] + 1)


def judged(p: np.ndarray, q: np.ndarray) -> tuple[float, float]:
    """Expected log-loss of predictions q where p is true, and the slope of the truth on their log odds; nan where they are all alike."""
    q = np.clip(q, _CERTAIN, 1 - _CERTAIN)
    loss = float(-(p * np.log(q) + (1 - p) * np.log(1 - q)).mean())
    u = logit(q)
    if u.std() < 0.02:
        return loss, math.nan
    Z, b = np.column_stack([np.ones_like(u), u - u.mean()]), np.zeros(2)
    for _ in range(40):
        m = expit(Z @ b)
        b = b + np.linalg.solve((Z * (m * (1 - m))[:, None]).T @ Z + 1e-9 * np.eye(2), Z.T @ (p - m))
    return loss, float(b[1])


def once(cell: Cell, plans: dict[str, Any], seed: int) -> dict[str, tuple[float, float]]:
    """(log-loss, calibration slope) of every method, of the base rate of the study's rows, and of the truth."""
    X, y, new, p = drawn(cell, seed)
    names = [f"x{j}" for j in range(cell[1])]
    table = Table({**{name: X[:, j] for j, name in enumerate(names)}, "y": np.array(["no", "yes"], dtype=object)[y]})
    base = min(max(y.mean(), 0.5 / y.size), 1 - 0.5 / y.size)
    found = {"base rate": judged(p, np.full(p.size, base)), "truth": judged(p, p)}
    for place, (method, plan) in enumerate(plans.items()):
        result = played_result(plan, table, np.random.default_rng([seed, place, zlib.crc32(repr(cell).encode())]))
        slopes = np.array([c.value for c in result.coefficients])
        found[method] = judged(p, expit(mean_log_odds(new @ slopes + result.intercept, result.lines)))
    return found


def of_cell(cell: Cell, often: int) -> list[dict[str, tuple[float, float]]]:
    """The runs of a cell, as far as they are not there yet."""
    path = WHERE / f"{'-'.join(map(str, cell))}.json"
    kept = json.loads(path.read_text()) if path.is_file() else {}
    runs = kept.get("runs", []) if kept.get("code") == code() else []
    if len(runs) < often:
        plans = {method: planned(cell, method) for method in METHODS}
        runs += [once(cell, plans, seed) for seed in range(len(runs), often)]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"code": code(), "runs": runs}))
    return runs


def three_directions(seed: int, sites: int | None) -> tuple[float, float]:
    """(Log-loss, AUC) of new rows: 30 columns that span three directions, n = 456, separable classes, epsilon 1."""
    rng = np.random.default_rng([456, seed])
    rows = 456
    X = rng.normal(size=(rows + NEW, 3)) @ rng.normal(size=(3, 30)) + 0.05 * rng.normal(size=(rows + NEW, 30))
    X = np.clip(X / X.std(axis=0), -HALF_RANGE, HALF_RANGE)
    y = (X[:, :10].sum(axis=1) > 0).astype(int)
    model = PrivateGLM("logistic", epsilon=1.0, delta=1e-5, bounds=(-4, 4), classes=(0, 1), random_state=seed)
    model.fit(X[:rows], y[:rows], sites=None if sites is None else np.arange(rows) % sites)
    q = model.predict_proba(X[rows:])[:, 1]
    return judged(y[rows:].astype(float), q)[0], float(roc_auc_score(y[rows:], q))


@dataclass(frozen=True)
class Judged:
    """A cell's mean log-losses by method, and its median calibration slopes."""

    cell: Cell
    k: float
    loss: dict[str, float]
    slope: dict[str, float]

    @property
    def now(self) -> str:
        """Return the method that is the default in this cell."""
        return "direction" if self.k < WORTH_LENGTHS else "rounds"

    def row(self) -> list[str]:
        """Return the line of the table of cells."""
        rows, columns, correlation, rate, epsilon = self.cell
        losses = (*METHODS, "base rate", "truth")
        slopes = ["" if math.isnan(self.slope[m]) else f"{self.slope[m]:.2f}" for m in ("before", self.now)]
        words = f"{rows} x {columns}, {correlation:g}, {rate:g}, {epsilon:g}"
        half = "chose" if chooses(self.cell) else "judges"
        return [words, f"{self.k:.3g}", self.now, *(f"{self.loss[m]:.3f}" for m in losses), *slopes, half]


def judged_cell(cell: Cell, often: int) -> Judged:
    """The runs of a cell, averaged."""
    runs = of_cell(cell, often)
    loss = {m: float(np.mean([r[m][0] for r in runs])) for m in (*METHODS, "base rate", "truth")}
    slopes = {m: [r[m][1] for r in runs if not math.isnan(r[m][1])] for m in METHODS}
    return Judged(cell, strength(cell), loss, {m: float(np.median(s)) if s else math.nan for m, s in slopes.items()})


def summary(found: list[Judged]) -> list[list[str]]:
    """A line for each range of k and half of the cells."""
    table = []
    for (least, most), half in itertools.product(itertools.pairwise(BINS), (True, False)):
        some = [each for each in found if least <= each.k < most and chooses(each.cell) == half]
        losses = [float(np.mean([each.loss[each.now if m == "now" else m] for each in some])) for m in SHOWN]
        slopes = [
            float(np.nanmedian([each.slope[each.now if m == "now" else m] for each in some])) for m in ("before", "now")
        ]
        worst = [max(each.loss[each.now] - each.loss[other] for each in some) for other in ("before", "base rate")]
        words = f"{least:g} to {most:g}" if math.isfinite(most) else f"from {least:g}"
        numbers = [
            *(f"{x:.3f}" for x in losses),
            *("" if math.isnan(x) else f"{x:.2f}" for x in slopes),
            *(f"{x:.3f}" for x in worst),
        ]
        table.append([words, "chose" if half else "judges", str(len(some)), *numbers])
        print(table[-1], flush=True)
    return table


def base_shares(often: int) -> list[list[str]]:
    """Losses over the base rate's of the direction, where the base rate gets other shares: min(.5, max(.04, (number / n mu)^2))."""
    table = []
    for (least, most), rate in itertools.product(itertools.pairwise(BINS[:4]), RATES):
        some = [cell for cell in cells() if least <= strength(cell) < most and cell[3] == rate]
        row = [f"{least:g} to {most:g}, {rate:g}", str(len(some))]
        for number in STRENGTHS:
            with mock.patch.object(glm_declared, "_BASE_STRENGTH", number):
                plans = {cell: {"direction": planned(cell, "direction")} for cell in some}
            runs = [[once(cell, plans[cell], seed) for seed in range(often)] for cell in some]
            over = [float(np.mean([r["direction"][0] - r["base rate"][0] for r in each])) for each in runs]
            row.append(f"{np.mean(over):.3f} ({max(over):.3f})")
        table.append(row)
        print(row, flush=True)
    return table


def main(full: bool) -> None:
    """Four runs a cell, one of each signal; twelve in full."""
    found = []
    for cell in cells():
        found.append(judged_cell(cell, FULL if full else REDUCED))
        print(found[-1].row(), flush=True)
    header = [
        "rows x columns, correlation, base rate, epsilon",
        "k",
        "default",
        *METHODS,
        "base rate",
        "truth",
        "slope before",
        "slope now",
        "half",
    ]
    write_table(
        "glm/logistic_scale_cells",
        "Log-loss and calibration slopes of logistic regression",
        header,
        [each.row() for each in found],
    )
    notes = ""
    for sites in (None, 4):
        loss, area = np.median([three_directions(seed, sites) for seed in range(FULL)], axis=0)
        where = "one site" if sites is None else "four sites"
        notes += f" 30 columns that span three directions, n = 456, separable classes, epsilon 1, {where}: log-loss {loss:.3f}, AUC {area:.3f} (medians of {FULL})."
    header = ["k", "half", "cells", *SHOWN, "slope before", "slope now", "largest now - before", "largest now - base rate"]
    write_table(
        "glm/logistic_scale",
        "Logistic regression at small budgets: mean log-loss, median calibration slope",
        header,
        summary(found),
        notes.strip(),
    )
    header = ["k, base rate", "cells", *(f"{number:g}" for number in STRENGTHS)]
    title = "Log-loss over the base rate's, by the number in the share of the base rate: mean (largest) over cells"
    write_table("glm/logistic_base_share", title, header, base_shares(FULL if full else REDUCED))


if __name__ == "__main__":
    run(main)
