"""Responses of the designs of the coverage of intervals, and the study that asks for them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from experiments.inference.designs import CURVED, LOG_LINKS, PARTIES, REPEATED, SKEWED_CURVED, TIMES, Rows
from scipy.special import expit, ndtr

from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Household, Study
from unpooled.privacy.table import BoundedTable, Table

FAMILIES = ("regression", "logistic", "poisson", "negative-binomial", "gamma", "survival", "multinomial")
RESIDUALS = ("t3 residuals", "exponential residuals", "lognormal residuals", "gamma .3 residuals")
UNEQUAL = "unequal spread"
OVERDISPERSED = {f"overdispersion {phi:g}": phi for phi in (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)}
DISPERSED = {f"dispersion {a:g}": a for a in (0.5, 1.0, 2.0)}
#: The linear predictor at the origin, and the hazard of survival there.
CONSTANTS = {"regression": 0.5, "logistic": -0.5, "poisson": 0.5, "negative-binomial": 0.5, "gamma": 0.3}
HAZARD, CUTS, END = 0.2, (1.5, 3.0), 6.0
DELTA, INTERCEPT = 1e-5, "(intercept)"
#: How fast the spread grows with the first column, on the scale of logarithms.
GROWS = 0.4


@dataclass(frozen=True)
class Asked:
    """A study with its rows: the true value of every line, and the deviation of its column (1 of a constant) in the units of the rule."""

    study: Study
    table: Table
    truth: dict[str, float]
    deviations: dict[str, float]


def left(design: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Residuals of mean 0 and variance 1."""
    if design == "t3 residuals":
        return rng.standard_t(3, n) / math.sqrt(3)
    if design == "exponential residuals":
        return rng.exponential(size=n) - 1
    if design == "lognormal residuals":
        return (np.exp(rng.normal(size=n)) - math.exp(0.5)) / math.sqrt(math.expm1(1) * math.e)
    if design == "gamma .3 residuals":
        return (rng.gamma(0.3, size=n) - 0.3) / math.sqrt(0.3)
    if design == REPEATED:  # half of the variance is the person's
        return math.sqrt(0.5) * (np.repeat(rng.normal(size=n // TIMES), TIMES) + rng.normal(size=n))
    return rng.normal(size=n)


def _range(design: str) -> tuple[float, float]:
    """The declared range of the response of a regression, which nearly no response leaves."""
    ranges = {
        "t3 residuals": (-25.0, 25.0),
        "exponential residuals": (-10.0, 25.0),
        "gamma .3 residuals": (-10.0, 25.0),
        "lognormal residuals": (-10.0, 40.0),
        UNEQUAL: (-25.0, 25.0),
        CURVED: (-10.0, 14.0),
        SKEWED_CURVED: (-10.0, 26.0),
    }
    return ranges.get(design, (-8.0, 9.0))


def _counts(family: str, design: str, mean: np.ndarray, rng: np.random.Generator) -> tuple[Column, np.ndarray]:
    """Counts of these means: Poisson, or with more variance."""
    if design in OVERDISPERSED and OVERDISPERSED[design] > 1:  # the variance is phi times the mean
        more = OVERDISPERSED[design] - 1
        rates = rng.gamma(mean / more, more)
    elif family == "negative-binomial":
        a = DISPERSED.get(design, 1.0)
        rates = mean * rng.gamma(1 / a, a, mean.size)
    elif design == UNEQUAL:  # the variance is m + m^2 / 2, where the family says that it is in proportion to m
        rates = mean * rng.gamma(2.0, 0.5, mean.size)
    elif design == REPEATED:
        rates = mean * np.repeat(rng.gamma(2.0, 0.5, mean.size // TIMES), TIMES)
    else:
        rates = mean
    high = 60.0 if rates is mean and design != CURVED else 200.0
    return Column("y", 0.0, high), rng.poisson(rates).clip(0, high).astype(float)


def _positive(design: str, rows: Rows, mean: np.ndarray, rng: np.random.Generator) -> tuple[Column, np.ndarray]:
    """Positive responses of these means: gamma of shape 2, or of another shape or law."""
    n = mean.size
    if design == "lognormal residuals":
        factor = np.exp(rng.normal(size=n) - 0.5)
    elif design == UNEQUAL:  # the deviation over the mean grows
        shape = 2.0 / np.exp(2 * GROWS * rows.grows)
        factor = rng.gamma(shape) / shape
    elif design == REPEATED:  # a correlation of one half
        factor = np.repeat(rng.gamma(3.5, 1 / 3.5, n // TIMES), TIMES) * rng.gamma(4.5, 1 / 4.5, n)
    else:
        shape = {"exponential residuals": 1.0, "gamma .3 residuals": 0.3}.get(design, 2.0)
        factor = rng.gamma(shape, 1 / shape, n)
    high = 40.0 if design not in {*RESIDUALS, UNEQUAL, CURVED, SKEWED_CURVED} else 200.0
    return Column("y", 1e-3, high), (mean * factor).clip(1e-3, high)


def mean_of(family: str, eta: np.ndarray) -> np.ndarray:
    """The mean responses of linear predictors with their constant."""
    if family == "regression":
        return eta
    return expit(eta) if family == "logistic" else np.exp(eta)


def responded(family: str, design: str, rows: Rows, rng: np.random.Generator) -> tuple[list[Column], dict[str, Any]]:
    """(declarations, values) of the response."""
    n = rows.n
    if family == "survival":
        until, leaves = rng.exponential(np.exp(-rows.eta) / HAZARD), rng.uniform(0, 2 * END, n)
        time, event = np.minimum(np.minimum(until, leaves), END), (until <= np.minimum(leaves, END)).astype(float)
        return [Column("y", 0.0, END), Column("event", 0.0, 1.0)], {"y": time, "event": event}
    if family == "multinomial":
        pulls = np.column_stack([0 * rows.eta, rows.eta, -rows.eta]) + rng.gumbel(size=(n, 3))
        return [Column("y", categories=("a", "b", "c"))], {
            "y": np.array(["a", "b", "c"], dtype=object)[pulls.argmax(axis=1)]
        }
    mean = mean_of(family, rows.eta + CONSTANTS[family])
    if family == "regression":
        residuals = left(design, n, rng) * (np.exp(GROWS * rows.grows) if design == UNEQUAL else 1.0)
        low, high = _range(design)
        return [Column("y", low, high)], {"y": (mean + residuals).clip(low, high)}
    if family == "logistic":
        hit = ndtr(left(design, n, rng)) < mean if design == REPEATED else rng.random(n) < mean
        return [Column("y", categories=("no", "yes"))], {"y": np.where(hit, "yes", "no").astype(object)}
    column, y = _positive(design, rows, mean, rng) if family == "gamma" else _counts(family, design, mean, rng)
    return [column], {"y": y}


def truths(family: str, rows: Rows) -> tuple[dict[str, float], dict[str, float]]:
    """(true value, deviation of the column) of every line, the constants' among them."""
    truth = {name: line.truth for name, line in rows.lines.items()}
    spread = {name: float(line.values.std()) for name, line in rows.lines.items()}
    if family == "survival":
        edges = (0, *CUTS, END)
        names = [f"log hazard ({a:g}, {b:g}]" for a, b in itertools.pairwise(edges)]
        constants = dict.fromkeys(names, math.log(HAZARD))
    else:
        constants = {INTERCEPT: CONSTANTS.get(family, 0.0)}
    if rows.constant:
        truth, spread = truth | constants, spread | dict.fromkeys(constants, 1.0)
    if family != "multinomial":
        return truth, spread
    signs = {"b": 1.0, "c": -1.0}
    return (
        {f"{label}: {name}": sign * value for label, sign in signs.items() for name, value in truth.items()},
        {f"{label}: {name}": value for label in signs for name, value in spread.items()},
    )


def asked(
    family: str, design: str, epsilon: float, rows: Rows, parameters: dict[str, Any], rng: np.random.Generator
) -> Asked:
    """The study of these rows, with responses drawn now; ``parameters``: those that a cell adds to the family's own."""
    columns, values = responded(family, design, rows, rng)
    truth, deviations = truths(family, rows)
    scale = float(np.std(values["y"])) if family == "regression" else 1.0
    own: dict[str, Any] = {"response": "y", "method": "refinement" if family == "regression" else "newton"}
    if family != "regression":
        own["family"] = family
    if family == "survival":
        own |= {"event": "event", "cuts": list(CUTS)}
    if rows.formula:
        own["formula"] = rows.formula
    declared = (*rows.columns, *columns)
    held = {**rows.values, **values}
    table, unit = Table(held), "record"
    if rows.ids is not None:
        people = rows.n // TIMES
        cards = (Card("all", rows.n, declared, household=Household("person", people, TIMES)),)
        table, unit = BoundedTable(Table({**held, "person": rows.ids}), rows.ids, TIMES, hidden="person"), "household"
    elif design == PARTIES:
        part = rows.n // 3
        sizes = {"north": part, "east": part, "south": rows.n - 2 * part}
        cards = tuple(Card(name, size, declared) for name, size in sizes.items())
    else:
        cards = (Card("all", rows.n, declared),)
    model = "bayes" if family == "regression" else "glm"
    study = Study(model, cards, epsilon, DELTA, unit=unit, parameters=own | parameters, derived=())
    return Asked(study, table, truth, {name: value / scale for name, value in deviations.items()})


assert set(CONSTANTS) | {"survival", "multinomial"} == set(FAMILIES) >= LOG_LINKS
