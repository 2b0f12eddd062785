"""What a reader gets who writes nothing: the default of ``PrivateLinearRegression`` beside the printed form and beside no privacy.

Abalone, red wine and drug sensitivity, in splits of the authors' sizes. The default gets epsilon and ranges that were written down without the data (those of
``abalone.py`` and ``wine.py``; genes in +-1, ln IC50 in +-7.5), and the columns as they are. The printed form is ``papers.fit_bayes``, which assumes columns of
mean zero: it gets them on [-1, 1] less their training means, which no private run has for free. Drug sensitivity has centred rows of length 1 for all
forms. N = n is drawn from the call's own plan without its messages (``_blr.py``); ``default_clients`` holds it against the call itself.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from experiments.bayes import abalone, authors, wine
from experiments.bayes._authors import unit
from experiments.bayes._blr import DELTA, Blr, cell, correlation
from experiments.cells import kept
from experiments.common import run, write_table

from unpooled import Bounds, PrivateLinearRegression
from unpooled.papers import fit_bayes
from unpooled.papers.bayes import posterior_as_published

EPSILONS, DRUG = (1.0, 3.0, 10.0), 7.5
SIZES = {"abalone": (3000, 1000), "red wine": (1000, 500)}
DEFAULTS = {"default": {}, "default, delta=0.0001": {"delta": DELTA}}
HALVES, CLIENTS, PLAIN, MEAN = "printed, two halves", "printed, N = n", "default, epsilon=inf", "mean of the training rows"
Predictor = Callable[[np.ndarray], np.ndarray]


def own(
    epsilon: float, seed: int, X: np.ndarray, y: np.ndarray, bounds: object, width: tuple[float, float]
) -> list[Predictor]:
    """The default, with and without the printed form's delta."""
    return [
        PrivateLinearRegression(epsilon=epsilon, bounds=bounds, y_bounds=width, random_state=seed, **more).fit(X, y).predict
        for more in DEFAULTS.values()
    ]


@functools.cache
def clients(n: int, d: int, epsilon: float, width: float) -> Blr:
    """The printed form of n clients: its plan."""
    return Blr(n, d, epsilon, width, sites=n, calibration="published")


def printed(epsilon: float, seed: int, X: np.ndarray, y: np.ndarray, width: float) -> list[Predictor]:
    """The printed form of two halves, by its call; and of N = n, drawn."""
    sites = np.where(np.random.default_rng(seed).permutation(y.size) < y.size // 2, "a", "b")
    given = {"bounds": (-1, 1), "y_bounds": (-width, width), "random_state": seed}
    halves = fit_bayes(X, y, sites, epsilon=epsilon, **given)
    return [halves.predict, of_clients(epsilon, seed, X, y, width)]


def of_clients(epsilon: float, seed: int, X: np.ndarray, y: np.ndarray, width: float) -> Predictor:
    """The printed form of N = n, drawn from its plan."""
    study = clients(round(y.size, -2), X.shape[1], epsilon, width)
    moments = study.moments(X, y, np.random.default_rng([seed, 7]))
    moments = replace(moments, statement=str(study.plan.statement))
    coef = posterior_as_published(moments, indefinite="absolute").coef_
    return lambda rows: rows @ coef


class Uci:
    """A table: columns as they are with their declared ranges, and what the printed form gets."""

    def __init__(self, name: str) -> None:
        X, y, ranges = (abalone if name == "abalone" else wine).raw()
        self.rows, self.ranges, self.sizes = np.column_stack([X, y]), ranges, SIZES[name]
        self.centre, self.half = np.mean(ranges, axis=1), np.ptp(ranges, axis=1) / 2

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Training and test rows."""
        order = np.random.default_rng([seed, 1]).permutation(len(self.rows))
        return self.rows[order[: self.sizes[0]]], self.rows[order[-self.sizes[1] :]]

    def centred(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Both on [-1, 1] by the declared ranges, less the training means; training rows inside [-1, 1]."""
        train, test = ((rows - self.centre) / self.half for rows in self.split(seed))
        train = np.clip(train, -1, 1)
        return np.clip(train - train.mean(axis=0), -1, 1), test - train.mean(axis=0)

    def errors(self, epsilon: float, seed: int) -> list[float]:
        """Mean absolute test error of every private form; predictions are not clipped."""
        train, test = self.split(seed)
        bounds = {f"x{j}": tuple(ends) for j, ends in enumerate(self.ranges[:-1])}
        found = [
            float(np.abs(f(test[:, :-1]) - test[:, -1]).mean())
            for f in own(epsilon, seed, train[:, :-1], train[:, -1], bounds, self.ranges[-1])
        ]
        rows, others = self.centred(seed)
        forms = printed(epsilon, seed, rows[:, :-1], rows[:, -1], 1.0)
        return found + [float(np.abs(f(others[:, :-1]) - others[:, -1]).mean() * self.half[-1]) for f in forms]

    def plain(self, seed: int) -> list[float]:
        """The same of no privacy and of the mean."""
        train, test = self.split(seed)
        bounds = {f"x{j}": tuple(ends) for j, ends in enumerate(self.ranges[:-1])}
        model = PrivateLinearRegression(epsilon=np.inf, bounds=bounds, y_bounds=self.ranges[-1])
        predicted = model.fit(train[:, :-1], train[:, -1]).predict(test[:, :-1])
        return [float(np.abs(p - test[:, -1]).mean()) for p in (predicted, train[:, -1].mean())]

    def call(self, epsilon: float, seed: int) -> list[float]:
        """N = n by the call itself, drawn, and the seconds of the call."""
        rows, test = self.centred(seed)
        begun = time.process_time()
        model = fit_bayes(rows[:, :-1], rows[:, -1], epsilon=epsilon, bounds=(-1, 1), y_bounds=(-1, 1), random_state=seed)
        seconds = time.process_time() - begun
        forms = (model.predict, of_clients(epsilon, seed, rows[:, :-1], rows[:, -1], 1.0))
        return [*(float(np.abs(f(test[:, :-1]) - test[:, -1]).mean() * self.half[-1]) for f in forms), seconds]


def ranks(epsilon: float, seed: int, every: int) -> list[float]:
    """Spearman's correlation of every form, mean over every so many drugs, of one split and one draw of the noise."""
    found = []
    for k in range(seed % every, len(authors.drugs()), every):
        X, y = authors.drugs()[k]
        order = np.random.default_rng([seed, k]).permutation(y.size)
        test, train = order[: authors.TEST], order[authors.TEST : authors.TEST + 840]
        rows, response = unit(X[train]), y[train] - y[train].mean()
        width = (-DRUG, DRUG)
        forms = own(epsilon, seed, rows, response, (-1, 1), width)
        forms += own(epsilon, seed, rows, response, Bounds(norm=1.0), width)[:1]
        forms += printed(epsilon, seed, rows, response, DRUG)
        forms.append(PrivateLinearRegression(epsilon=np.inf, bounds=(-1, 1), y_bounds=width).fit(rows, response).predict)
        found.append([correlation(f(unit(X[test])), y[test]) for f in forms])
    return np.mean(found, axis=0).tolist()


def stated(errors: np.ndarray) -> str:
    """The median, and its standard error over 1000 bootstrap samples."""
    medians = np.median(errors[np.random.default_rng(0).integers(errors.size, size=(1000, errors.size))], axis=1)
    return f"{np.median(errors):.3f} ± {medians.std(ddof=1):.3f}"


def main(full: bool) -> None:
    """25 splits of the tables, and 5 repetitions of a fifth of the drugs; 4, and 3 of every 25th drug."""
    warnings.simplefilter("ignore", UserWarning)  # that an infinite epsilon, or the printed form, promises nothing
    splits, runs, every, calls = (25, 5, 5, 3) if full else (4, 3, 25, 1)
    head, rows = ["data", "form", *(f"eps {e:g}" for e in EPSILONS)], []
    for name in SIZES:
        table = Uci(name)
        found = np.array(
            [[kept([name, e, s], lambda t=table, e=e, s=s: t.errors(e, s)) for s in range(splits)] for e in EPSILONS]
        )
        rows += [[name, form, *map(stated, found[..., k])] for k, form in enumerate((*DEFAULTS, HALVES, CLIENTS))]
        plain = np.array([kept([name, "plain", s], lambda t=table, s=s: t.plain(s)) for s in range(splits)])
        rows += [[name, form, *[stated(plain[:, k])] * len(EPSILONS)] for k, form in enumerate((PLAIN, MEAN))]
    write_table(
        "bayes/default",
        f"Mean absolute error of the call that names nothing: median of {splits} splits and its standard error",
        head,
        rows,
        f"3000 + 1000 rows of abalone, 1000 + 500 of red wine; rings and points of quality, predictions as they are. The default delta is 1e-05; "
        f"'printed' has {DELTA:g} and is NOT private.",
    )
    found = np.array(
        [[kept(["gdsc", e, s, every], lambda e=e, s=s: ranks(e, s, every)) for s in range(runs)] for e in EPSILONS]
    )
    forms = (*DEFAULTS, "default, Bounds(norm=1.0)", HALVES, CLIENTS, PLAIN)
    write_table(
        "bayes/default_ranks",
        "GDSC, the call that names nothing: Spearman's correlation, mean over drugs",
        head,
        [["drug sensitivity", form, *map(cell, found[..., k])] for k, form in enumerate(forms)],
        f"{runs} repetitions of {265 // every} drugs, 840 + 100 lines, mean ± standard error over repetitions. The default delta is 1e-05; 'printed' has "
        f"{DELTA:g} and is NOT private.",
    )
    table, name = Uci("red wine"), "red wine"
    found = np.array([[kept(["call", e, s], lambda e=e, s=s: table.call(e, s)) for s in range(calls)] for e in EPSILONS])
    rows = [
        [name, f"{e:g}", cell(v[:, 0]), cell(v[:, 1]), f"{v[:, 2].mean():.0f}"] for e, v in zip(EPSILONS, found, strict=True)
    ]
    write_table(
        "bayes/default_clients",
        "N = n by the call, every record a party, beside the same plan drawn without messages",
        ["data", "eps", "the call", "drawn", "CPU seconds of a call"],
        rows,
        f"1000 clients, {calls} splits: mean absolute error ± standard error.",
    )


if __name__ == "__main__":
    run(main)
