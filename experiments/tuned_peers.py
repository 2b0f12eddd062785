"""The defaults beside peers that were tuned for nothing: the best of all their settings in every cell, chosen on half of the seeds, compared on the other.

Cells were listed before the first run: for every number of rows (300 to 50,000) and epsilon (.1 to 10) one of six shapes of columns that served for
nothing before, in turn, with 4, 10 or 25 columns. Peers are AdaSSP, boosted AdaSSP (regression), clipped gradient descent inside declared ranges
(``regression_peers.py``, ``classification_peers.py``), and clipped gradient descent on privately standardised rows at five settings. Tuning would cost
them budget; here it costs them nothing, so a peer that somebody runs is worse than this table says. Delta is 1e-5, replace. A cell holds if ours is
within 5 % of the chosen peer or the paired difference within two standard errors; the mean (base rate) that spends the whole budget stands beside it.
Each finished cell is a file under build/tuned_peers; runs of other code are discarded.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from experiments import classification_peers, regression_peers
from experiments.common import run, write_table
from scipy.special import expit, logit

from unpooled import PrivateLinearRegression, PrivateLogisticRegression
from unpooled.privacy.accounting import budget_mu

WHERE = Path("build/tuned_peers")
ROWS, EPSILONS, WIDTHS = (300, 1000, 5000, 20_000, 50_000), (0.1, 0.3, 1.0, 3.0, 10.0), (4, 10, 25)
SHAPES = ("chained", "rare marks", "sparse", "log-normal", "off centre", "curved")
#: Rounds, and the clip of |r||z| in roots of the columns.
SETTINGS = ((20, 0.1), (40, 0.3), (60, 0.5), (100, 0.5), (100, 1.0))
DELTA, NEW, FULL, REDUCED = 1e-5, 5000, 20, 6
Matrix = np.ndarray
Fit = Callable[[Matrix, Matrix, float, np.random.Generator], Matrix]


def columns(shape: str, count: int, width: int, rng: np.random.Generator) -> Matrix:
    """Rows with about variance 1 in every column, inside ranges of five deviations about a declared middle."""
    rows = rng.normal(size=(count, width))
    if shape == "chained":
        for j in range(1, width):
            rows[:, j] = 0.9 * rows[:, j - 1] + math.sqrt(1 - 0.81) * rows[:, j]
    elif shape == "rare marks":
        marks = rng.random((count, width)) < 0.08
        rows[:, ::2] = ((marks - 0.08) / math.sqrt(0.08 * 0.92))[:, ::2]
    elif shape == "log-normal":
        rows = (np.exp(0.7 * rows) - math.exp(0.245)) / math.sqrt((math.exp(0.49) - 1) * math.exp(0.49))
    elif shape == "off centre":
        rows = rows + 2.5 * rng.choice([-1, 0, 1], width)
    return np.clip(rows, -5, 5)


def made(shape: str, count: int, width: int, classes: bool, seed: int) -> tuple[Matrix, Matrix]:
    """Columns on [-1, 1] and a response there, or labels."""
    rng = np.random.default_rng([seed, width, count])
    rows = columns(shape, count, width, rng)
    effects = rng.normal(size=width)
    if shape == "sparse":
        effects[rng.permutation(width)[max(2, width // 5) :]] = 0.0
    signal = np.sin(rows) @ effects if shape == "curved" else rows @ effects
    signal = (signal - signal.mean()) / signal.std()
    if classes:
        rate = {"rare marks": 0.15, "off centre": 0.75}.get(shape, 0.45)
        return rows / 5, (rng.random(count) < expit(1.3 * signal + logit(rate))).astype(int)
    r2 = {"sparse": 0.8, "chained": 0.3}.get(shape, 0.5)
    noise = rng.normal(size=count)
    if shape == "curved":
        noise *= np.sqrt(0.5 + np.abs(rows[:, 0]) / 1.6)
    if shape == "log-normal":
        noise = rng.exponential(size=count) - 1
    y = math.sqrt(r2) * signal + math.sqrt(1 - r2) * noise + (2.5 if shape == "off centre" else 0.0)
    return rows / 5, np.clip(y / 5, -1, 1)


def standardised(rounds: int, clip: float, *, classes: bool) -> Fit:
    """Gradient descent on rows by private means and deviations (15 % of the squared budget), the mean of the later half of the rounds."""

    def fit(X: Matrix, y: Matrix, mu: float, rng: np.random.Generator) -> Matrix:
        whole = X if classes else np.column_stack([X, y])
        n, d = whole.shape
        noise = math.sqrt(5 * d / 0.15) / mu  # x and x^2 of one row move by at most the root of 4 + 1 in a column
        sums = np.array([whole.sum(axis=0), (whole**2).sum(axis=0)]) + noise * rng.normal(size=(2, d))
        means = np.clip(sums[0] / n, -1, 1)
        deviations = np.sqrt(np.clip(sums[1] / n - means**2, 4e-3, 1))
        standard = np.column_stack([(X - means[: X.shape[1]]) / deviations[: X.shape[1]], np.ones(n)])
        u = y if classes else (y - means[-1]) / deviations[-1]
        size = standard.shape[1]
        longest, length = clip * math.sqrt(size), np.linalg.norm(standard, axis=1)
        theta, total = np.zeros(size), np.zeros(size)
        step = 4.0 if classes else 1.0
        step = min(step, 12 * step / size)
        for t in range(rounds):
            fitted = standard @ theta
            residual = u - (expit(fitted) if classes else fitted)
            residual = residual * np.minimum(1, longest / np.maximum(length * np.abs(residual), 1e-12))
            theta = (
                theta
                + step * (standard.T @ residual + 2 * longest * math.sqrt(rounds / 0.85) / mu * rng.normal(size=size)) / n
            )
            total += theta * (t >= rounds // 2)
        theta = total / (rounds - rounds // 2)
        scale = 1.0 if classes else deviations[-1]
        slopes = theta[:-1] * scale / deviations[: X.shape[1]]
        constant = theta[-1] * scale + (0.0 if classes else means[-1]) - slopes @ means[: X.shape[1]]
        return np.append(slopes, constant)

    return fit


def peers(classes: bool) -> dict[str, Fit]:
    """Return every setting of every peer."""
    found = {f"standardised, {t}, {c:g}": standardised(t, c, classes=classes) for t, c in SETTINGS}
    if not classes:
        return {**regression_peers.PEERS, **found}

    def within_ranges(peer: Callable[..., Matrix]) -> Fit:
        def fit(X: Matrix, y: Matrix, mu: float, rng: np.random.Generator) -> Matrix:
            theta = peer(classification_peers.Task(X, y), X, y, mu, rng) / math.sqrt(2)
            return np.append(theta[:-1] / math.sqrt(X.shape[1]), theta[-1])

        return fit

    # AdaSSP answers on the scale of +-1, which is no probability: it ranks, and has no log-loss.
    named = {name: peer for name, peer in classification_peers.PEERS.items() if name != "AdaSSP"}
    return {**{name: within_ranges(peer) for name, peer in named.items()}, **found}


def losses(classes: bool, p: Matrix, y: Matrix) -> float:
    """Mean squared error, or log-loss."""
    if not classes:
        return float(np.mean((y - p) ** 2))
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return -float(np.mean(y * np.log(p) + (1 - y) * np.log1p(-p)))


def slope(p: Matrix, y: Matrix) -> float:
    """Return the calibration slope: of the labels on the log odds of their prediction; nan where these hardly vary."""
    u = logit(np.clip(p, 1e-6, 1 - 1e-6))
    if u.std() < 0.1:
        return math.nan
    a, b = 0.0, 1.0
    for _ in range(30):
        q = expit(a + b * u)
        w, r = q * (1 - q), y - q
        h = np.array([[w.sum(), (w * u).sum()], [(w * u).sum(), (w * u * u).sum()]])
        da, db = np.linalg.solve(h + 1e-9 * np.eye(2), [r.sum(), (r * u).sum()])
        a, b = a + da, b + db
    return float(b) if abs(b) < 100 else math.nan


def one(shape: str, rows: int, width: int, epsilon: float, classes: bool, seed: int) -> dict[str, float]:
    """Loss of everybody over that of the truth's best constant, for one seed."""
    X, y = made(shape, rows + NEW, width, classes, seed)
    X, T, y, t = X[:rows], X[rows:], y[:rows], y[rows:]
    mu = budget_mu(epsilon, DELTA)
    shared = {"epsilon": epsilon, "delta": DELTA, "bounds": (-1, 1), "random_state": seed}
    if classes:
        ours = PrivateLogisticRegression(classes=(0, 1), **shared).fit(X, y).predict_proba(T)[:, 1]
    else:
        ours = PrivateLinearRegression(y_bounds=(-1, 1), **shared).fit(X, y).predict(T)
    base = losses(classes, np.full(t.size, t.mean()), t)
    found = {"ours": losses(classes, ours, t) / base}
    rng = np.random.default_rng([seed, 5])
    mean = y.mean() + (1 if classes else 2) / (mu * rows) * rng.normal()
    mean = float(np.clip(mean, 1 / rows, 1 - 1 / rows) if classes else np.clip(mean, -1, 1))
    found["mean"] = losses(classes, np.full(t.size, mean), t) / base
    if classes:
        found["slope"] = slope(ours, t)
    for k, (name, fit) in enumerate(peers(classes).items()):
        theta = fit(X, y, mu, np.random.default_rng([seed, k]))
        fitted = T @ theta[:-1] + theta[-1]
        found[name] = losses(classes, expit(fitted) if classes else fitted, t) / base
    return found


def played(classes: bool, at: int, often: int) -> tuple[tuple[str, int, int, float], list[dict[str, float]]]:
    """Return a cell and its runs, from its file where it has one."""
    rows, epsilon = list(itertools.product(ROWS, EPSILONS))[at]
    cell = (SHAPES[(at + classes) % len(SHAPES)], rows, WIDTHS[(at + at // len(EPSILONS)) % len(WIDTHS)], epsilon)
    root = Path("src/unpooled")
    sources = [*sorted(root.rglob("*.py")), *sorted(root.glob("schedules/*.toml")), Path(__file__)]
    code = hashlib.sha256(b"".join(p.read_bytes() for p in sources))
    file = WHERE / f"{'classes' if classes else 'numbers'}-{at}-{code.hexdigest()[:12]}.json"
    held = json.loads(file.read_text()) if file.is_file() else []
    for seed in range(len(held), often):
        held.append(one(*cell, classes, seed))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(held))
    return cell, held[:often]


def judged(runs: list[dict[str, float]]) -> tuple[str, float, float, float, float]:
    """Return the peer that is best on the even seeds; and on the odd ones: our loss over its, the difference in errors, and both over the mean."""
    names = [n for n in runs[0] if n not in {"ours", "mean", "slope"}]
    even, odd = runs[::2], runs[1::2]
    best = min(names, key=lambda n: float(np.mean([r[n] for r in even])))
    gap = np.array([r["ours"] - r[best] for r in odd])
    over = np.array([r["ours"] - 1.02 * r["mean"] for r in runs])
    errors = [float(g.mean() / max(g.std(ddof=1) / math.sqrt(g.size), 1e-9)) for g in (gap, over)]
    ratio = float(np.mean([r["ours"] for r in odd]) / np.mean([r[best] for r in odd]))
    return best, ratio, errors[0], float(np.mean([r["ours"] / r["mean"] for r in runs])), errors[1]


def main(full: bool) -> None:
    """Write a table of regression and one of logistic regression."""
    warnings.simplefilter("ignore")
    often = FULL if full else REDUCED
    for classes in (False, True):
        lines, held, ten, above, slopes = [], 0, 0, 0, []
        for at in range(len(ROWS) * len(EPSILONS)):
            (shape, rows, width, epsilon), runs = played(classes, at, often)
            best, ratio, errors, over_mean, above_mean = judged(runs)
            held += ratio <= 1.05 or errors <= 2
            ten += ratio <= 1.1 or errors <= 2
            above += above_mean > 2
            ours, chosen, mean = (float(np.mean([r[n] for r in runs])) for n in ("ours", best, "mean"))
            own = float(np.median([r.get("slope", math.nan) for r in runs]))
            slopes += [own] if math.isfinite(own) else []
            line = [shape, f"{rows:,}", str(width), f"{epsilon:g}", f"{ours:.3f}", f"{chosen:.3f}", best, f"{mean:.3f}"]
            line += [f"{ratio:.2f}", f"{errors:.1f}", f"{over_mean:.3f}" + (" above" if above_mean > 2 else "")]
            lines.append(line + ([f"{own:.2f}"] if classes else []))
            print(*lines[-1], flush=True)
        count = len(lines)
        notes = (
            f"Within 5 % of the best tuned peer or two paired standard errors: {held} of {count} cells; within 10 %: {ten}. Above 1.02 times the "
            f"private {'base rate' if classes else 'mean'} by more than two standard errors: {above}. {often} seeds."
        )
        if classes:
            inside = sum(0.8 <= s <= 1.25 for s in slopes)
            notes += f" Calibration slopes from .8 to 1.25: {inside} of the {len(slopes)} cells whose log odds vary."
        header = [
            "shape",
            "rows",
            "columns",
            "epsilon",
            "ours",
            "best peer",
            "which",
            "mean",
            "ratio",
            "errors",
            "over the mean",
        ]
        write_table(
            f"{'classification' if classes else 'regression'}/tuned_peers",
            "Loss over that of the best constant, beside peers tuned for nothing",
            header + (["slope"] if classes else []),
            lines,
            notes,
        )


if __name__ == "__main__":
    run(main)
