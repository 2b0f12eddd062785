"""Releases of other packages and ours under one black-box audit: the documents' promise, the epsilon that an attack refutes, and what the attack would notice.

Thirty rows of one predictor and one response. Neighbours differ in one row, which moves between corners of the declared ranges. The ranges are
(-1, 1), (0, 1) and (0, 1000), there with values at one end alone; and (0, 1) with values that are missing. First rounds, at the promise and at a
tenth of its noise, choose the pair of a setting that is told apart best. It is attacked with fresh runs: a classifier learns from a third of them to
tell the two data sets by what was released, the second third chooses a threshold, the last one judges it (Clopper and Pearson). A figure below the
promise refutes nothing.

An attack that could not have refuted anything has *no power*, and no figure. It has power if it refutes the promise where the same release is made
with the noise of a larger epsilon, on the same pair with as many runs: the smallest of these epsilons is the one that it *notices*.

Packages run in environments of their own, whose Pythons ``UNPOOLED_DIFFPRIVLIB`` and ``UNPOOLED_OPENDP`` name; without them their rows are left out.
Where a figure is above a promise, the table withholds it and the detail goes to ``build/reports/``, for the package's maintainers.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from scipy.stats import beta
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

import unpooled
from unpooled import Bounds, PrivateLinearRegression, PrivateLogisticRegression
from unpooled.audit import empirical_epsilon

N, EPSILON, DELTA, CONFIDENCE = 30, 1.0, 1e-6, 0.9999
#: Epsilons of the releases by which an attack shows that it would have noticed something.
LOUD = (3.0, 10.0, 100.0)
REPORTS = Path("build/reports")
WITHHELD, NO_POWER = "above the promise; withheld until reported", "no power"
#: What every script below does with its package's ``made(x, y)``: a refusal is its words.
_ANSWER = """
def answer(x, y):
    found = []
    for _ in range(asked["runs"]):
        try:
            found.append([float(value) for value in made(np.array(x), np.array(y))])
        except ValueError as error:
            return f"{type(error).__name__}: {error}"[:200]
    return found
json.dump([[answer(x, y) for x, y in asked["tables"]], promised, importlib.metadata.version(PACKAGE)], sys.stdout)
"""
DIFFPRIVLIB = (
    """
import json, sys, warnings, importlib.metadata
import numpy as np
warnings.simplefilter("ignore")
from diffprivlib import models, tools
PACKAGE, asked = "diffprivlib", json.load(sys.stdin)
kind, promised, bounds = asked["kind"], asked["epsilon"], tuple(asked["bounds"])
norm = max(abs(end) for end in bounds)
def made(x, y):
    if kind in ("mean", "var", "sum", "nanmean", "nanvar", "nansum"):
        return [getattr(tools, kind)(x, epsilon=promised, bounds=bounds)]
    if kind == "median":
        return [tools.quantile(x, 0.5, epsilon=promised, bounds=bounds)]
    if kind == "logistic regression":
        fit = models.LogisticRegression(epsilon=promised, data_norm=norm).fit(x[:, None], y > sum(bounds) / 2)
    else:
        fit = models.LinearRegression(epsilon=promised, bounds_X=bounds, bounds_y=bounds, fit_intercept="through 0" not in kind)
        fit.fit(x[:, None], y)
    return [np.ravel(fit.coef_)[0], np.ravel(fit.intercept_)[0]]
"""
    + _ANSWER
)
OPENDP = (
    """
import json, sys, warnings, importlib.metadata
import numpy as np
warnings.simplefilter("ignore")
import opendp.prelude as dp
dp.enable_features("contrib", "idealized-numerics", "honest-but-curious")
PACKAGE, asked = "opendp", json.load(sys.stdin)
bounds = tuple(float(end) for end in asked["bounds"])
def line(scale):
    return dp.sklearn.linear_model.LinearRegression(dp.max_divergence(), x_bounds=[bounds], y_bounds=bounds, scale=scale)
model = line(dp.binary_search_param(lambda scale: line(scale).measurement, d_in=2, d_out=asked["epsilon"], T=float))
promised = float(model.measurement.map(2))
def made(x, y):
    fit = model.fit(x[:, None], y)
    return [np.ravel(fit.coef_)[0], np.ravel(fit.intercept_)[0]]
"""
    + _ANSWER
)
Table = tuple[np.ndarray, np.ndarray]
Pair = tuple[Table, Table]
#: What was released of a table in every run; or the words by which it was refused.
Answers = list[list[float]] | str


class Setting(NamedTuple):
    """The declared range of both columns, the ends at which all values but one may lie, and whether values of the predictor are missing."""

    name: str
    low: float
    high: float
    one_sided: bool = False
    missing: bool = False

    def pairs(self) -> list[Pair]:
        """Return data sets of this setting, each with its neighbour by the last row."""
        low, high, steps = self.low, self.high, np.linspace(0, 1, N)
        middle, width = (low + high) / 2, high - low
        spread, at_low, at_high = low + width * steps, low + 0.01 * width * steps, high - 0.01 * width * steps
        exact = np.full(N, low)
        shapes = [(at_low, at_low), (exact, spread), (at_high, at_high)]
        if not self.one_sided:
            shapes = [(spread, spread), (exact, spread), (np.full(N, middle), spread)]
        moves = [
            ((high, high), (high, low)),
            ((high, high), (low, low)),
            ((high, low), (low, low)),
            ((low, high), (middle, middle)),
        ]
        if self.missing:
            half, most = (np.where(np.arange(N) % every, np.nan, spread) for every in (2, N - 2))
            shapes = [(half, spread), (most, spread), (half, np.full(N, low))]
            moves = [*moves[:3], ((high, high), (np.nan, high))]
        found = []
        for x, y in shapes:
            for ends in moves:
                one, other = ((np.append(x[:-1], a), np.append(y[:-1], b)) for a, b in ends)
                found.append((one, other))
        return found


SETTINGS = (
    Setting("(-1, 1)", -1, 1),
    Setting("(0, 1)", 0, 1),
    Setting("(0, 1000), one side", 0, 1000, one_sided=True),
    Setting("(0, 1), missing", 0, 1, missing=True),
)


class Asked(NamedTuple):
    """What a package is asked for: the tables, how often each, and with the noise of which epsilon."""

    tables: list[Table]
    runs: int
    epsilon: float
    setting: Setting


class Found(NamedTuple):
    """What an attack found: an epsilon that it refutes, the promise, the version, the epsilon that it notices (0: no power), words of a refusal."""

    refuted: float
    promised: float
    version: str
    notices: float
    refusal: str = ""


Release = Callable[[Asked], tuple[list[Answers], float, str]]


def elsewhere(python: str, script: str, kind: str, asked: Asked) -> tuple[list[Answers], float, str]:
    """Return what a package in another environment released of every table, the epsilon that it promises, and its version."""
    text = {
        "tables": [[x.tolist(), y.tolist()] for x, y in asked.tables],
        "runs": asked.runs,
        "epsilon": asked.epsilon,
        "kind": kind,
        "bounds": [asked.setting.low, asked.setting.high],
    }
    done = subprocess.run(  # noqa: S603 - the Python that the caller names
        [python, "-c", script], input=json.dumps(text), capture_output=True, text=True, check=True
    )
    answers, promised, version = json.loads(done.stdout)
    return answers, promised, version


def ours(kind: str, asked: Asked) -> tuple[list[Answers], float, str]:
    """Return the same of this package, with its real noise. Missing values count as absent."""
    epsilon, (_, low, high, _, missing) = asked.epsilon, asked.setting
    bounds = Bounds(low, high, missing="absent") if missing else Bounds(low, high)

    def made(x: np.ndarray, y: np.ndarray) -> list[float]:
        if kind == "description":
            one = unpooled.describe({"x": x}, bounds, epsilon=epsilon, delta=DELTA).summaries_[0]
            return [one.count.value, one.mean.value, one.sd.value]
        if kind == "linear regression":
            fit = PrivateLinearRegression(epsilon=epsilon, delta=DELTA, bounds=bounds, y_bounds=(low, high)).fit(
                x[:, None], y
            )
        else:
            answer = (y > (low + high) / 2).astype(int)
            fit = PrivateLogisticRegression(epsilon=epsilon, bounds=bounds, classes=(0, 1)).fit(x[:, None], answer)
        return [float(np.ravel(fit.coef_)[0]), float(np.ravel(fit.intercept_)[0])]

    def answer(x: np.ndarray, y: np.ndarray) -> Answers:
        try:
            return [made(x, y) for _ in range(asked.runs)]
        except ValueError as error:
            return f"{type(error).__name__}: {error}"[:200]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [answer(x, y) for x, y in asked.tables], epsilon, "this version"


def seen(answers: list[list[float]]) -> np.ndarray:
    """Return what the attacker looks at: the numbers, their magnitudes on a logarithmic scale, their signs, and which are none."""
    raw = np.array(answers, dtype=float)
    values = np.clip(np.nan_to_num(raw), -1e300, 1e300)
    return np.hstack([values, np.log10(np.abs(values) + 1e-12), np.sign(values), np.isnan(raw)])


def scores(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Learn from the first third of both, and score the rest."""
    third = len(one) // 3
    learn = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8, min_samples_leaf=5, random_state=0)
    learn.fit(np.vstack([one[:third], other[:third]]), np.repeat([1, 0], third))
    return learn.decision_function(one[third:]), learn.decision_function(other[third:])


def area(one: list[list[float]], other: list[list[float]]) -> float:
    """Return the area under the curve of a classifier that tells these two apart."""
    a, b = scores(seen(one), seen(other))
    return float(roc_auc_score(np.repeat([1, 0], [a.size, b.size]), np.concatenate([a, b])))


def ceiling(runs: int, delta: float) -> float:
    """Return the largest epsilon that so few runs can refute: that of an attacker who is never wrong about the third that judges."""
    judged = len(range(runs)[runs // 3 :]) // 2
    low, high = (
        float(beta.ppf(risk, *shape))
        for risk, shape in (((1 - CONFIDENCE) / 2, (judged, 1)), ((1 + CONFIDENCE) / 2, (1, judged)))
    )
    return float(np.log(max(low - delta, 1e-300) / high))


def refuted(
    release: Release, pair: Pair, runs: int, epsilon: float, delta: float, setting: Setting
) -> tuple[float, float, str]:
    """Return the epsilon that an attack on one pair refutes where the noise is that of ``epsilon``, the promise, and the version."""
    (one, two), promised, version = release(Asked(list(pair), runs, epsilon, setting))
    a, b = scores(seen(one), seen(two))
    here, there = iter(a.tolist()), iter(b.tolist())
    return empirical_epsilon(next, here, there, runs=a.size, delta=delta, confidence=CONFIDENCE), promised, version


def attack(release: Release, setting: Setting, pilot: int, runs: int, delta: float) -> Found:
    """Attack the pair of a setting that is told apart best, and where nothing is refuted, ask whether anything could have been."""
    pairs = setting.pairs()
    told, refusals = np.zeros(len(pairs)), set[str]()
    for epsilon in (LOUD[1], EPSILON):  # the promise last: it is that of what follows
        answers, promised, version = release(Asked([table for pair in pairs for table in pair], pilot, epsilon, setting))
        for number, (one, two) in enumerate(zip(answers[::2], answers[1::2], strict=True)):
            refusals |= {words for words in (one, two) if isinstance(words, str)}
            told[number] += -1.0 if isinstance(one, str) or isinstance(two, str) else area(one, two)
    if max(told) < 0:
        return Found(0.0, promised, version, 0.0, min(refusals))
    pair = pairs[int(np.argmax(told))]
    if ceiling(runs, delta) <= promised:
        return Found(0.0, promised, version, 0.0)
    found, promised, version = refuted(release, pair, runs, EPSILON, delta, setting)
    if found > promised:
        return Found(found, promised, version, EPSILON)
    noticed = (loud for loud in LOUD if refuted(release, pair, runs, loud, delta, setting)[0] > promised)
    return Found(found, promised, version, next(noticed, 0.0))


def row(found: Found) -> list[str]:
    """Return the last columns of a line: promised, refuted, and noticed. Without power there is no figure."""
    promised = f"{found.promised:.2f}"
    if found.refusal:
        return [promised, "refuses such data", "-"]
    if found.refuted > found.promised:
        return [promised, WITHHELD, "-"]
    return [promised, f"{found.refuted:.2f}", f"{found.notices:g}"] if found.notices else [promised, NO_POWER, NO_POWER]


def releases() -> list[tuple[str, str, float, Release | None]]:
    """Return every release that is attacked: package, name, delta, and how it is made; None without its package."""
    found: list[tuple[str, str, float, Release | None]] = []
    python = os.environ.get("UNPOOLED_DIFFPRIVLIB")
    models = ("linear regression", "linear regression through 0", "logistic regression")
    kinds = (*models, "mean", "var", "sum", "median", "nanmean", "nanvar", "nansum")
    made = [(kind, functools.partial(elsewhere, python, DIFFPRIVLIB, kind) if python else None) for kind in kinds]
    found += [("diffprivlib", kind, 0.0, release) for kind, release in made]
    python = os.environ.get("UNPOOLED_OPENDP")
    kind = "Theil-Sen line"
    found.append(("OpenDP", kind, 0.0, functools.partial(elsewhere, python, OPENDP, kind) if python else None))
    for kind, delta in (("description", DELTA), ("linear regression", DELTA), ("logistic regression", 0.0)):
        found.append(("unpooled", kind, delta, functools.partial(ours, kind)))
    return found


def reported(package: str, kind: str, setting: Setting, found: Found) -> None:
    """Write what the table withholds, for the package's maintainers."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    words = f"{package} {found.version}, {kind}, {setting.name}: at least {found.refuted:.3f} where {found.promised:.3f} is promised ({__doc__})\n"
    (REPORTS / "-".join([package, *kind.split(), *setting.name.split()])).with_suffix(".txt").write_text(words)


def main(full: bool) -> None:
    """Attack every release that is here, in every setting."""
    missing: list[str] = []
    rows: list[Sequence[str]] = []
    for package, kind, delta, release in releases():
        if release is None:
            missing += [] if package in missing else [package]
            continue
        runs = (9000 if full else 900) // (3 if package == "unpooled" else 1)
        for setting in SETTINGS:
            if kind.startswith("nan") and not setting.missing:
                continue
            asked = functools.partial(attack, release, setting, max(runs // 20, 45), runs, delta)
            found = Found(*kept([package, kind, setting.name, runs], asked))
            if found.refuted > found.promised:
                reported(package, kind, setting, found)
            rows.append([package, found.version, kind, setting.name, *row(found), str(runs)])
    for package in missing:
        print(f"left out: no environment with {package}")
    header = ["package", "version", "release", "data", "epsilon promised", "epsilon refuted", "notices", "runs"]
    title = "Releases of several packages under one black-box audit"
    write_table("audit/others", title, header, rows, f"{N} rows, one replaced; confidence {CONFIDENCE:g} for each line.")


if __name__ == "__main__":
    run(main)
