"""PRIDE's prediction error against epsilon, on thirty declared designs, five epsilons and twenty seeds: more must never predict worse.

Two predictions of a squared loss are measured on new rows. *Joint*: the parties' shares added up (``predict``). *At a party*: from its own columns
and sketches of the new rows (``predict_at``), mean over the parties. Each is compared with a party's own best model: least squares or the ridge by
evidence, of its own columns, whichever predicts the new rows better; the joint prediction with the best party's, the other with the same party's.
A step goes from one epsilon to the next, on the same rows.

The rule (``models/pride/THEORY.md``, section 10) was developed on other designs, ``DEVELOPED`` below, with six to twelve seeds. These were run three
times (``monotone_rule_first.md``, ``monotone_rule_second.md``): one field rose at epsilon 10, and twice the use of the sketches' directions in shares
became stricter. Both changes were developed on the smooth fields that ``DEVELOPED`` ends with, and not on the field that rose.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass

import numpy as np
from experiments.common import RESULTS, run, write_table
from sklearn.linear_model import LinearRegression

from unpooled import PrideRegressor
from unpooled.kernels.ridge import RidgePath

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
NEW = 1000
#: Of all steps at most this share may rise beyond two paired standard errors, and none beyond four; the largest excess over the own model.
SHARE, TWO, FOUR, EXCESS = 1 / 12, 2.0, 4.0, 1.05
#: In words: the designs on which the rule was developed.
DEVELOPED = (
    "near copies of one factor, 4 parties of 2 (two strengths of signs)",
    "neighbours on a line, 2 of 15",
    "two factors, 3 of 5",
    "uniform, 2 of 6",
    "everything at one of 3 of 4",
    "one weak party of 4 of 3",
    "copies of six columns at 3 parties",
    "t with 4 degrees, 4 of 3",
    "three factors, 2 of 60",
    "smooth fields (lengths .25 to .4), 2 of 10, 4 of 5, 3 of 8, 3 of 7 and 3 of 5",
)


@dataclass(frozen=True)
class Design:
    """A shape of the columns, how they are split, rows to fit, and the explained part of the response."""

    shape: str
    columns: tuple[int, ...]
    n: int
    #: A correlation, a length, or the deviation of a copy, as the shape needs it.
    strength: float = 0.0
    r2: float = 0.5
    #: Parties whose columns carry the signal; none named: all.
    carriers: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Words for a table."""
        several = len(set(self.columns)) > 1
        split = "+".join(map(str, self.columns)) if several else f"{len(self.columns)} of {self.columns[0]}"
        where = f", signal at {len(self.carriers)}" if self.carriers else ""
        strength = f" {self.strength:g}" if self.strength else ""
        return f"{self.shape}{strength}, {split}, n {self.n}, R2 {self.r2:g}{where}"


DESIGNS = (
    Design("independent", (3, 3), 200),
    Design("independent", (8, 8, 8), 500),
    Design("independent", (1, 1, 1, 1), 1000),
    Design("independent", (40, 40), 300),
    Design("one factor", (4, 4), 500, 0.5),
    Design("one factor", (5, 5, 5, 5), 300, 0.7),
    Design("one factor", (10, 10, 10), 1000, 0.3),
    Design("one factor", (50, 50), 200, 0.5),
    Design("near copies of one", (3, 3, 3, 3), 800, 0.1, 0.6),
    Design("near copies of one", (1, 1, 1), 300, 0.3),
    Design("near copies of one", (2, 2, 2, 2), 2000, 0.25, 0.6),
    Design("near copies of several", (4, 4), 1000, 0.3),
    Design("field", (20, 20), 400, 0.1),
    Design("field", (10, 10, 10, 10), 600, 0.2),
    Design("field", (6, 6, 6), 2000, 0.3),
    Design("lognormal", (4, 4, 4), 500),
    Design("lognormal factor", (6, 6), 1000, 0.5),
    Design("exponential", (4, 4, 4, 4), 400),
    Design("t3 factor", (5, 5, 5), 400, 0.5),
    Design("t3", (10, 10), 700),
    Design("dummies", (6, 6, 6), 500),
    Design("dummies of a factor", (9, 9), 800, 0.6),
    Design("independent", (5, 5), 300, r2=0.95, carriers=(0,)),
    Design("one factor", (3, 3, 3), 500, 0.4, 0.7, (0,)),
    Design("one factor", (8, 30), 600, 0.6, 0.06, (0,)),
    Design("independent", (5, 5, 5), 300, r2=0.0),
    Design("one factor", (1, 1), 100, 0.6),
    Design("independent", (2, 2, 2, 2), 100),
    Design("one factor", (25, 25, 25, 25), 300, 0.6),
    Design("field", (2, 30), 500, 0.15),
)


def _rows(design: Design, count: int, rng: np.random.Generator) -> np.ndarray:
    """Columns of all parties, of a deviation of about 1."""
    shape, s, widths = design.shape, design.strength, design.columns
    p = sum(widths)
    if shape.startswith("near copies"):
        base = rng.normal(size=(count, 1 if shape.endswith("one") else widths[0]))
        return np.hstack([base + s * rng.normal(size=(count, width)) for width in widths])
    if shape == "field":
        places = np.linspace(0, 1, p)
        kernel = np.exp(-(((places[:, None] - places) / s) ** 2)) + 1e-6 * np.eye(p)
        return rng.normal(size=(count, p)) @ np.linalg.cholesky(kernel).T
    noise = rng.standard_t(3, size=(count, p)) if shape.startswith("t3") else rng.normal(size=(count, p))
    factor = rng.standard_t(3, size=(count, 1)) if shape.startswith("t3") else rng.normal(size=(count, 1))
    rows = np.sqrt(s) * factor + np.sqrt(1 - s) * noise
    if shape.startswith("lognormal"):
        return np.exp(rows)
    if shape == "exponential":
        return rng.exponential(size=(count, p))
    if shape.startswith("dummies"):  # three of the four categories of every third column
        level = np.searchsorted([-0.7, 0.2, 0.9], rows[:, ::3])
        return np.stack([level == k for k in range(3)], axis=2).reshape(count, -1).astype(np.float64)
    return rows


def made(design: Design, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows inside (-1, 1), a quarter of four deviations each, and responses; the last NEW of them are new."""
    rng = np.random.default_rng([DESIGNS.index(design), seed])
    rows = _rows(design, design.n + NEW, rng)
    holder = np.repeat(np.arange(len(design.columns)), design.columns)
    effects = rng.normal(size=rows.shape[1]) * np.isin(holder, design.carriers or np.unique(holder))
    signal = rows @ effects
    signal = (signal - signal.mean()) / signal.std()
    y = np.sqrt(design.r2) * signal + np.sqrt(1 - design.r2) * rng.normal(size=signal.size)
    return np.clip((rows - np.median(rows, axis=0)) / rows.std(axis=0) / 4, -1, 1), y


def measured(design: Design, seed: int) -> dict[str, list[float]]:
    """Errors over the variance of y: of both predictions at every epsilon, of the best party's own model, and of the parties' own on average."""
    X, y = made(design, seed)
    new, n = slice(design.n, None), design.n
    ends = np.cumsum([0, *design.columns])
    parties = {f"p{k}": list(range(ends[k], ends[k + 1])) for k in range(len(design.columns))}

    def error(predicted: np.ndarray) -> float:
        return round(float(np.mean((y[new] - predicted) ** 2) / y[new].var()), 5)

    own = []
    for columns in parties.values():
        part = X[:, columns]
        ridge = RidgePath.of(part[:n], y[:n])
        slopes, constant = ridge.solve(ridge.evidence_alpha())
        least = LinearRegression().fit(part[:n], y[:n]).predict(part[new])
        own.append(min(error(part[new] @ slopes + constant), error(least)))
    joint, at = [], []
    for epsilon in EPSILONS:
        model = PrideRegressor(parties, epsilon=epsilon, delta=1e-5, bounds=(-1, 1), random_state=seed).fit(X[:n], y[:n])
        joint.append(error(model.predict(X[new])))
        at.append([error(model.predict_at(name, X[new])) for name in parties])
    worst = [float(np.max(np.divide(each, own))) for each in at]
    return {
        "joint": joint,
        "at": [float(np.mean(each)) for each in at],
        "worst": worst,
        "own": [min(own), float(np.mean(own))],
    }


def steps(errors: np.ndarray) -> list[float]:
    """Mean rise from each epsilon to the next in paired standard errors; 0 where nothing changes. ``errors``: seeds by epsilons."""
    rises = np.diff(errors, axis=1)
    mean, deviation = rises.mean(axis=0), rises.std(axis=0, ddof=1) / np.sqrt(rises.shape[0])
    return [float(m / d) if d > 0 else 0.0 for m, d in zip(mean, deviation, strict=True)]


def summary(kind: str, found: dict[str, list[dict[str, list[float]]]]) -> list[str]:
    """A line: how many steps rise, and which designs exceed the own model."""
    errors = {name: np.array([each[kind] for each in cells]) for name, cells in found.items()}
    all_steps = np.array([steps(each) for each in errors.values()])
    own = {name: np.mean([each["own"][0 if kind == "joint" else 1] for each in cells]) for name, cells in found.items()}
    over = [name for name, each in errors.items() if (each.mean(axis=0) > EXCESS * own[name]).any()]
    two, four = int((all_steps > TWO).sum()), int((all_steps > FOUR).sum())
    biggest = max(float(np.diff(each.mean(axis=0)).max()) for each in errors.values())
    words = "joint (shares added up)" if kind == "joint" else "at a party"
    return [words, str(all_steps.size), str(two), str(four), f"{biggest:.3f}", str(len(over)), "; ".join(over) or "none"]


def main(full: bool) -> None:
    """All designs; a run that was stopped goes on with the next design."""
    warnings.simplefilter("ignore")
    seeds = 20 if full else 3
    path = RESULTS / "pride" / f"monotone{'' if full else '_reduced'}.json"
    found = json.loads(path.read_text()) if path.is_file() else {}
    for design in DESIGNS:
        if design.name not in found:
            found[design.name] = [measured(design, seed) for seed in range(seeds)]
            path.write_text(json.dumps(found))
            print(design.name, flush=True)
    rows = []
    for design in DESIGNS:
        cells = found[design.name]
        joint, at = (np.mean([each[kind] for each in cells], axis=0) for kind in ("joint", "at"))
        best, mean = np.mean([each["own"] for each in cells], axis=0)
        errors = [f"{a:.3f} / {b:.3f}" for a, b in zip(joint, at, strict=True)]
        rows.append([design.name, *errors, f"{best:.3f} / {mean:.3f}"])
    write_table(
        "pride/monotone",
        "PRIDE's squared error / variance of y, by epsilon: joint prediction / at a party (mean over parties)",
        ["design", *(f"eps {epsilon:g}" for epsilon in EPSILONS), "own best model: best party / mean"],
        rows,
        f"{seeds} seeds a design, {NEW} new rows each. The rule was developed on other designs: {'; '.join(DEVELOPED)}.",
    )
    write_table(
        "pride/monotone_rule",
        "Steps from one epsilon to the next that raise PRIDE's error, in paired standard errors",
        ["prediction", "steps", "beyond 2", "beyond 4", "largest mean rise", "over 1.05 x own", "which"],
        [summary("joint", found), summary("at", found)],
        f"Allowed: {SHARE:.3f} of the steps beyond {TWO:g}, none beyond {FOUR:g}, none over {EXCESS:g} of the own best model, at any epsilon.",
    )


if __name__ == "__main__":
    run(main)
