"""Odds ratios of columns at two parties: coverage of 95 % intervals, printed lines, and standard errors next to those of pooled rows and of one holder of them.

Cells of the design's first list (``../shared/designs/joint_glm.md``): n, columns, share of events, epsilon. Columns share two factors with loadings .6
(``mixed``) or .8 (``correlated``); the clinic has a treatment of two levels among its half of them, the laboratory a category of three levels and, unless
``plain``, a lognormal column. The linear predictor has a deviation of 1. Totals are exact with the planned noise (``imagined_pulls``); the row-split fit
is ``PrivateGLM`` with noise of one holder for all rows, which pays nothing for distributed noise.

Run it as ``python -m experiments.joint.odds`` (40 runs a cell; ``--full``: 200). It goes on where it was stopped.
"""

from __future__ import annotations

import warnings
from unittest import mock

import msgspec
import numpy as np
import polars as pl
from experiments.cells import kept
from experiments.common import run, write_table
from scipy.optimize import brentq
from scipy.special import expit

from unpooled import Bounds, PrivateGLM
from unpooled.models.glm.columns import PullDesign
from unpooled.models.glm.columns_fit import PullFit, compile_plan, imagined_pulls
from unpooled.models.glm.result import tables
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table

CELLS = (
    (5000, 6, 0.5, 1.0, "mixed"),
    (5000, 6, 0.5, 3.0, "correlated"),
    (5000, 6, 0.1, 3.0, "mixed"),
    (5000, 12, 0.5, 3.0, "mixed"),
    (20_000, 6, 0.1, 1.0, "correlated"),
    (20_000, 6, 0.02, 3.0, "mixed"),
    (20_000, 12, 0.5, 1.0, "correlated"),
    (20_000, 12, 0.1, 3.0, "mixed"),
    (20_000, 20, 0.5, 3.0, "correlated"),
    (20_000, 20, 0.02, 3.0, "plain"),
    (12_000, 10, 0.25, 1.0, "mixed"),
    (15_000, 10, 0.03, 3.0, "mixed"),
)
#: Studies about the k from which on a table is made.
SMALL = (
    (3000, 6, 0.5, 1.0, "mixed"),
    (3000, 6, 0.1, 1.0, "correlated"),
    (5000, 12, 0.5, 1.0, "mixed"),
    (5000, 12, 0.1, 1.0, "mixed"),
    (2000, 6, 0.5, 1.0, "mixed"),
    (5000, 20, 0.5, 1.0, "correlated"),
    (1500, 6, 0.2, 1.0, "mixed"),
    (1400, 6, 0.2, 1.0, "mixed"),
)
#: Runs of a cell in which rows are fitted too.
ROWS_TOO = 10
#: From this k on rows are fitted too.
OF_ROWS = 100.0
DELTA, LEVELS, ARMS = 1e-6, ("low", "middle", "high"), ("no", "yes")


def columns_of(n: int, d: int, kind: str, rng: np.random.Generator):
    """Return columns of the clinic and of the laboratory by name, the pooled design, and the names of its columns."""
    half, loads = d // 2, 0.8 if kind == "correlated" else 0.6
    factors = rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) / np.sqrt(2)
    E = loads * factors + np.sqrt(1 - loads**2) * rng.normal(size=(n, d))
    X = np.clip(E / 3.5, -1, 1)
    treated, level = E[:, 0] > 0.3, np.digitize(E[:, half], [-0.5, 0.8])
    X[:, 0], X[:, half], X[:, half + 1] = treated, level == 1, level == 2
    if kind != "plain":
        X[:, -1] = np.clip(np.exp(0.8 * E[:, -1]) / 10, 0, 1)
    clinic = {"arm": np.array(ARMS, dtype=object)[treated.astype(int)]} | {f"x{k}": X[:, k] for k in range(1, half)}
    laboratory = {"level": np.array(LEVELS, dtype=object)[level]} | {f"x{k}": X[:, k] for k in range(half + 2, d)}
    names = ["arm: yes - no", *(f"x{k}" for k in range(1, half)), "level: middle - low", "level: high - low"]
    names += [f"x{k}" for k in range(half + 2, d)]
    return clinic, laboratory, X, names


def people(n: int, d: int, share: float, kind: str, rng: np.random.Generator):
    """Return columns of the clinic and of the laboratory by name, the effects of the lines of a table with their pooled errors, and who had the event."""
    clinic, laboratory, X, names = columns_of(n, d, kind, rng)
    effects = rng.normal(size=d)
    effects /= (X @ effects).std()
    u = X @ effects
    constant = brentq(lambda a: expit(u + a).mean() - share, -20, 20)
    event = rng.random(n) < expit(u + constant)
    weight = expit(u + constant) * expit(-u - constant)
    whole = np.column_stack([X, np.ones(n)])
    pooled = np.sqrt(np.linalg.inv((whole * weight[:, None]).T @ whole).diagonal())[:-1]
    truth = dict(zip(names, zip(effects.tolist(), pooled.tolist(), strict=True), strict=True))
    return clinic, laboratory, truth, np.array(["no", "yes"], dtype=object)[event.astype(int)]


def declared(name: str, kind: str, last: str) -> Column:
    """Return the declaration of a column; the lognormal one has no values below 0."""
    if name in {"arm", "level"}:
        return Column(name, categories=ARMS if name == "arm" else LEVELS)
    return Column(name, 0.0 if name == last and kind != "plain" else -1.0, 1.0)


def played(n: int, d: int, share: float, epsilon: float, kind: str, seed: int) -> dict[str, list[float]]:
    """Return of one run: (estimate - truth)/error, error over that of pooled rows, and over that of rows at one holder (nan where it was not fitted)."""
    rng = np.random.default_rng([7000 + seed, n, d])
    clinic, laboratory, truth, event = people(n, d, share, kind, rng)
    last = f"x{d - 1}"
    columns = {name: declared(name, kind, last) for name in (*clinic, *laboratory)}
    answer = Column("event", categories=("no", "yes"))
    cards = (
        Card("clinic", n, (*(columns[name] for name in clinic), answer)),
        Card("laboratory", n, tuple(columns[name] for name in laboratory)),
    )
    asked = {"response": "event", "split": "columns"}
    study = Study("glm", cards, epsilon, DELTA, parameters=asked, derived=(), helpers=(HelperCard("registry"),))
    plan = compile_plan(study)
    with mock.patch.object(PullDesign, "untabled", ""):  # what a table below the threshold would be
        return _of_run(plan, (clinic, laboratory, event), columns, truth, epsilon, seed, rng)


def _of_run(plan, values, columns, truth, epsilon: float, seed: int, rng: np.random.Generator) -> dict[str, list[float]]:
    """Return the same of a plan and of the values of both parties."""
    clinic, laboratory, event = values
    held = {"clinic": Table(clinic | {"event": event}), "laboratory": Table(laboratory)}
    result = imagined_pulls(plan.design, held, rng)
    # Of the model with all columns: without those that the noise hides the other lines have another truth.
    found = tables(plan, msgspec.structs.replace(result, without=None)).summary().terms
    lines = {line.term: line for line in found if line.term in truth}
    printed = {line.term: line for line in tables(plan, result).summary().terms if line.term in truth}
    levels = [name in printed for name in truth if name.startswith("level")]
    own = {}
    if (
        result.without is not None and printed and all(levels) == any(levels)
    ):  # a level alone that leaves moves the reference
        own = target_without(clinic | laboratory, event, truth, list(printed))
    rows = {}
    if seed < ROWS_TOO and plan.design.strength > OF_ROWS:
        ranges = {name: list(c.categories) if c.categories else (c.low, c.high) for name, c in columns.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = PrivateGLM(
                "logistic", epsilon=epsilon, delta=DELTA, bounds=Bounds(ranges), classes=["no", "yes"], random_state=seed
            )
            fit = fit.fit(
                pl.DataFrame({name: values.tolist() for name, values in (clinic | laboratory).items()}), event.tolist()
            )
        rows = {line.term: line.std_error for line in fit.summary().terms} if fit.method_ == "newton" else {}
    return {
        "z": [(line.estimate - truth[name][0]) / line.std_error for name, line in lines.items()],
        "pooled": [line.std_error / truth[name][1] for name, line in lines.items()],
        "rows": [line.std_error / rows[name] for name, line in lines.items() if name in rows],
        "k": [plan.design.strength],
        "own": [(printed[name].estimate - value) / printed[name].std_error for name, value in own.items()],
        "left": [float(result.without is not None)],
    }


def target_without(values, event, truth, kept: list[str]) -> dict[str, float]:
    """Return the coefficients of these lines in the model without the other columns, at the columns that the people have and the chances that they had."""
    held = {"arm: yes - no": values["arm"] == "yes"} | {name: values[name] for name in values if name.startswith("x")}
    held |= {f"level: {one} - low": values["level"] == one for one in LEVELS[1:]}
    u = np.column_stack([held[name] for name in truth]) @ np.array([effect for effect, _ in truth.values()])
    share = float((event == "yes").mean())
    p = expit(u + brentq(lambda a: expit(u + a).mean() - share, -30, 30))
    rows, found = np.column_stack([*(held[name] for name in kept), np.ones(len(u))]).astype(float), np.zeros(len(kept) + 1)
    for _ in range(25):
        mean = expit(rows @ found)
        found += np.linalg.solve((rows.T * (mean * (1 - mean))) @ rows, rows.T @ (p - mean))
    return dict(zip(kept, found[:-1].tolist(), strict=True))


def cell(n: int, d: int, share: float, epsilon: float, kind: str, runs: int) -> list[str]:
    """Return a line of the table."""
    found = [
        kept(["odds", n, d, share, epsilon, kind, seed], lambda s=seed: played(n, d, share, epsilon, kind, s))
        for seed in range(runs)
    ]
    z, pooled, rows = (np.array([value for one in found for value in one[name]]) for name in ("z", "pooled", "rows"))
    covered, lines = float(np.mean(np.abs(z) < 1.96)) if z.size else np.nan, runs * d
    own = np.array([value for one in found for value in one["own"]])
    return [
        f"{n}, {d}, {share:g}, {epsilon:g}, {kind}",
        f"{found[0]['k'][0]:.0f}",
        f"{covered:.3f} ± {np.sqrt(covered * (1 - covered) / len(z)):.3f}" if z.size else "none",
        f"{len(z) / lines:.2f}",
        f"{np.median(pooled):.2f}" if z.size else "none",
        f"{np.mean([bool(one['z']) for one in found]):.2f}",
        f"{np.median(rows):.2f}" if rows.size else "none",
        f"{np.mean([one['left'] for one in found]):.2f}",
        f"{np.mean(np.abs(own) < 1.96):.3f} of {own.size}" if own.size else "none",
    ]


#: People, the deviation of their log odds (0: classes that the columns part), and epsilon.
SIGNALS = tuple((n, signal, 3.0) for n in (3000, 20_000) for signal in (1.0, 1.5, 2.0, 3.0, 4.0, 0.0))


def signal_of(n: int, signal: float, epsilon: float, seed: int) -> list[float]:
    """Return of one run with four normal columns: the last step in deviations of the log odds, and the share of intervals that cover."""
    rng = np.random.default_rng([seed, n, int(10 * signal)])
    X, effects = rng.normal(size=(n, 4)).clip(-4, 4), rng.normal(size=4)
    effects *= (signal or 1.0) / np.linalg.norm(effects)
    u = X @ effects
    y = np.array(["no", "yes"], dtype=object)[(rng.random(n) < expit(u - 0.5) if signal else u > 0).astype(int)]
    columns = [Column(f"x{k}", -4.0, 4.0) for k in range(4)]
    cards = (
        Card("clinic", n, (*columns[:2], Column("event", categories=("no", "yes")))),
        Card("laboratory", n, tuple(columns[2:])),
    )
    asked = {"response": "event", "split": "columns"}
    study = Study("glm", cards, epsilon, DELTA, parameters=asked, derived=(), helpers=(HelperCard("registry"),))
    held = {"clinic": Table({"x0": X[:, 0], "x1": X[:, 1], "event": y}), "laboratory": Table({"x2": X[:, 2], "x3": X[:, 3]})}
    seen: list[float] = []
    real = PullFit.estimates

    def spy(self):
        found, without, _ = real(self)
        ended = np.linalg.solve(self.shape.back(self.standard), np.array(found.estimate))
        seen.append(self._length(ended - self.b))
        return found, without, True  # the table that would be printed

    plan = compile_plan(study)
    with mock.patch.object(PullFit, "estimates", spy), mock.patch.object(PullDesign, "untabled", ""):
        result = imagined_pulls(plan.design, held, rng)
    lines = {line.term: line for line in tables(plan, result).summary().terms}
    hits = [lines[f"x{k}"].conf_low < effects[k] < lines[f"x{k}"].conf_high for k in range(4) if f"x{k}" in lines]
    return [seen[0], float(np.mean(hits)) if hits and signal else np.nan]


def of_signals(runs: int) -> None:
    """Write the table of last steps."""
    lines = []
    for n, signal, epsilon in SIGNALS:
        asked = [(n, signal, epsilon, seed) for seed in range(runs)]
        found = np.array([kept(["signal", *one], lambda one=one: signal_of(*one)) for one in asked])
        low, middle, high = np.quantile(found[:, 0], [0, 0.5, 1])
        covered = f"{np.nanmean(found[:, 1]):.2f}" if signal else "none"
        lines.append([f"{n}, {signal or 'parted'}, {epsilon:g}", f"{low:.2f}", f"{middle:.2f}", f"{high:.2f}", covered])
    write_table(
        "joint/odds_signals",
        "How far the last step of odds ratios goes by the deviation of the log odds (delta = 1e-6, two parties and a helper)",
        ["n, deviation of the log odds, epsilon", "shortest step", "middle", "longest", "covered, if it were printed"],
        lines,
        f"{runs} runs a cell, two normal columns at each party, a third to a half of the people with the event. Steps are in deviations of the log odds; no "
        "line is printed above the number ``arrived`` of ``glm_columns.toml``.",
    )


def main(full: bool) -> None:
    """Write the table."""
    runs, lines = 200 if full else 40, {CELLS: [], SMALL: []}
    of_signals(runs // 2)
    for some, own in lines.items():
        for one in some:
            own.append(cell(*one, runs))
            print(own[-1], flush=True)
    head = [
        "n, columns, share of events, epsilon, columns' kind",
        "k",
        "covered",
        "printed",
        "SE/pooled",
        "tables with a line",
        "SE/rows",
        "columns left out",
        "then covered",
    ]
    write_table(
        "joint/odds_small",
        "What a table of small studies of columns at two parties would be (delta = 1e-6, two parties and a helper)",
        head[:-3],
        [line[:-3] for line in lines[SMALL]],
        f"{runs} runs a cell. Below the threshold of ``glm_columns.toml`` no table is made: what it would have.",
    )
    write_table(
        "joint/odds",
        "Odds ratios of columns at two parties (delta = 1e-6, two parties and a helper)",
        head,
        lines[CELLS],
        f"{runs} runs a cell, in {ROWS_TOO} of which one holder of all rows is fitted too; the middle of the ratios of standard errors. Lines are those of the model with all columns; in "
        "this part of the tables some are hidden by the noise, and the lines that are printed are then those of the model without them, which they held so often.",
    )


if __name__ == "__main__":
    run(main)
