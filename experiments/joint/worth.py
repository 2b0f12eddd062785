"""Whether the outlook of joint moments says truly when they are worth it: made-up rows of five shapes, two parties, 100 seeds a cell.

The response depends on all columns, R^2 .5, and the party with the response has half of the columns. Measured is the mean squared error of new
rows over the variance of the response, of the fit to joint moments with the noise of the plan and of the holder's own least squares. The claim: where the outlook
says that it buys something, the fit is worse than the holder's own by at most .02; and the outlook says so in 90 % of the cells whose gain is above .05.
"""

from __future__ import annotations

import json
import math
import zlib

import numpy as np
from experiments.common import run, write_table
from experiments.joint.coverage import WHERE, code

from unpooled.estimation.outlook import MadeUp
from unpooled.models import load
from unpooled.models.bayes.columns import design_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table

SHAPES = ("normal", "one factor", "skewed", "heavy-tailed", "half of them 0 or 1")
SIZES, EPSILONS = ((1000, 6), (3000, 6), (10_000, 6), (3000, 16), (10_000, 16)), (0.3, 1.0, 3.0)
SEEDS, FEW, NEW = 100, 20, 2000
HEAD = (
    "shape",
    "rows, columns, epsilon",
    "joint",
    "holder alone",
    "gain",
    "outlook",
    "outlook, alone",
    "buys",
    "claim holds",
)


def columns_of(shape: str, count: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Columns of mean 0 and variance 1."""
    normal = rng.normal(size=(count, d))
    if shape == "one factor":
        return math.sqrt(0.5) * normal + math.sqrt(0.5) * rng.normal(size=(count, 1))
    if shape == "skewed":
        return rng.exponential(size=(count, d)) - 1
    if shape == "heavy-tailed":
        return rng.standard_t(5, size=(count, d)) / math.sqrt(5 / 3)
    if shape != "normal":
        normal[:, ::2] = np.where(rng.random((count, len(range(0, d, 2)))) < 0.3, 1.53, -0.65)
    return normal


def study_of(rows: int, d: int, epsilon: float) -> Study:
    """Two parties, ranges of four deviations."""
    columns = [Column(f"x{j}", -4.0, 4.0) for j in range(d)]
    cards = Card("one", rows, (*columns[: d // 2], Column("y", -4.0, 4.0))), Card("two", rows, tuple(columns[d // 2 :]))
    given = {"response": "y", "split": "columns", "method": "moments"}
    return Study("bayes", cards, epsilon, 1e-6, parameters=given, derived=(), helpers=(HelperCard("helper"),))


def once(shape: str, rows: int, d: int, epsilon: float, seed: int) -> tuple[float, float]:
    """The errors of one seed: of joint moments, and of the holder alone."""
    rng = np.random.default_rng([seed, zlib.crc32(f"{shape} {rows} {d}".encode())])
    x, b = columns_of(shape, rows + NEW, d, rng), rng.normal(size=d)
    signal = x @ b
    y = math.sqrt(0.5) * signal / signal.std() + math.sqrt(0.5) * rng.normal(size=rows + NEW)
    held = {f"x{j}": x[:, j].clip(-4, 4) for j in range(d)} | {"y": y.clip(-4, 4)}
    used, new = (Table({name: values[part] for name, values in held.items()}) for part in (slice(rows), slice(rows, None)))
    made = MadeUp(design_of(study_of(rows, d, epsilon)), used, new)
    fit = made.moments(rng).posterior()
    return made.error(fit.coef_, fit.intercept_), made.alone()


def measured(shape: str, rows: int, d: int, epsilon: float, seeds: int) -> np.ndarray:
    """Errors of all seeds, those that are there already first."""
    file = WHERE / f"worth-{zlib.crc32(shape.encode()):08x}-{rows}-{d}-{epsilon:g}.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    if found.get("code") != code():
        found = {"code": code(), "errors": []}
    while len(found["errors"]) < seeds:
        found["errors"].append(once(shape, rows, d, epsilon, len(found["errors"])))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found))
    return np.array(found["errors"][:seeds])


def main(full: bool) -> None:
    """All cells, and whether the claim holds."""
    seeds, model = SEEDS if full else FEW, load("bayes")
    rows, worse, large, said = [], 0, 0, 0
    outlooks = {(n, d, e): model.outlook(study_of(n, d, e), quick=True) for n, d in SIZES for e in EPSILONS}
    for shape in SHAPES:
        for (n, d, epsilon), outlook in outlooks.items():
            joint, alone = measured(shape, n, d, epsilon, seeds).mean(axis=0).tolist()
            gain = alone - joint
            holds = not outlook.buys_something or gain >= -0.02
            worse += not holds
            large += gain > 0.05
            said += gain > 0.05 and outlook.buys_something
            numbers = [f"{value:.3f}" for value in (joint, alone, gain, outlook.error, outlook.nothing_released)]
            rows.append(
                [shape, f"{n}, {d}, {epsilon:g}", *numbers, *("yes" if x else "no" for x in (outlook.buys_something, holds))]
            )
            print(" | ".join(rows[-1]), flush=True)
    words = (
        f"{seeds} seeds a cell. Where the outlook says that a study buys something, {worse} of {len(rows)} cells are worse than the holder alone by more than "
        f".02. Of {large} cells whose gain is above .05 the outlook says so in {said}."
    )
    write_table("joint/worth", "Whether the outlook of joint moments says truly when they are worth it", HEAD, rows, words)


if __name__ == "__main__":
    run(main)
