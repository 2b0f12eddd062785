"""Studies of joint moments for tests: columns and values, their split over parties, exact totals, and the pooled answer."""

import math

import numpy as np

from unpooled.models.bayes.columns import design_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Unit
from unpooled.products.design import JointBudget
from unpooled.products.moments import moments_of, standards_of
from unpooled.products.sums import CONSTANT_STEPS
from unpooled.totals.total import Total

ARMS = ("placebo", "low", "high")
QUIET = JointBudget(math.inf)


def number(name, low=-4.0, high=4.0, **more):
    return Column(name, low, high, **more)


def study_of(parties, rows, epsilon=1.0, adjacency="replace", **parameters):
    cards = tuple(Card(name, rows, tuple(columns)) for name, columns in parties.items())
    given = {"response": "y", "method": "moments"} | parameters
    return Study(
        "joint", cards, epsilon, 1e-5, derived=(), adjacency=adjacency, parameters=given, helpers=(HelperCard("helper"),)
    )


def mixed(n, seed=0, share=0.05):
    """Columns by name: declarations and values; y depends on all of them."""
    rng = np.random.default_rng(seed)
    arm, sex = rng.choice(3, n, p=[0.6, 0.4 - share, share]), rng.choice(2, n)
    u, v, w = rng.normal(size=(3, n)).clip(-4, 4)
    mean = np.array([0, -0.4, -1.0])[arm] + 0.3 * sex + 0.4 * u - 0.2 * v
    values = {
        "arm": np.array(ARMS, dtype=object)[arm],
        "sex": np.array(["f", "m"], dtype=object)[sex],
        "u": u,
        "v": v,
        "w": w,
        "y": (mean + 0.7 * rng.normal(size=n)).clip(-6, 6),
    }
    columns = {
        "arm": Column("arm", categories=ARMS),
        "sex": Column("sex", categories=("f", "m")),
        "u": number("u"),
        "v": number("v"),
        "w": number("w"),
        "y": number("y", -6.0, 6.0),
    }
    return columns, values


def of(columns, values, split, budget=QUIET, **more):
    """The design and the tables of columns that are split over parties by name."""
    parties = {name: [columns[c] for c in own] for name, own in split.items()}
    study = study_of(parties, len(next(iter(values.values()))), **more)
    return design_of(study, budget), {name: Table({c: values[c] for c in own}) for name, own in split.items()}


def standards(design, tables, rng=None):
    totals = {}
    for party in design.parties:
        exact = design.scales(party).statistic(tables[party]).astype(float)
        noise = np.zeros(exact.size)
        if rng is not None:
            vector = design.constants(party)
            scale = vector.reach[Unit.RECORD].distance / (design.budget.mu * math.sqrt(vector.share))
            noise = scale * np.concatenate([np.full(b.size, b.width) for b in vector.blocks])
        totals[party] = Total(exact + (noise * rng.normal(size=exact.size) if rng else 0.0), noise, (party,))
    return standards_of(design, totals)


def joined(design, tables, known):
    parts = [design.party_rows(party).coded(tables[party], known[party]) for party in design.parties]
    return np.column_stack([*parts, np.full(len(parts[0]), CONSTANT_STEPS)])


def fitted(design, tables, known=None, rng=None):
    known = standards(design, tables, rng) if known is None else known
    rows = joined(design, tables, known)
    total = (rows.T @ rows)[design.shape.pairs].astype(float)
    noise = design.deviations
    return moments_of(design, known, total + (noise * rng.normal(size=noise.size) if rng else 0.0), noise)


def pooled(columns, values, names):
    """Least squares of treatment-coded columns and a constant: (names, estimates, standard errors)."""
    design, lines = [], []
    for name in names:
        if columns[name].categories is None:
            design.append(np.asarray(values[name], dtype=float))
            lines.append(name)
        else:
            first, *others = columns[name].categories
            design += [(values[name] == level).astype(float) for level in others]
            lines += [f"{name}: {level} - {first}" for level in others]
    x = np.column_stack([*design, np.ones(len(values["y"]))])
    found, left, *_ = np.linalg.lstsq(x, values["y"], rcond=None)
    variance = left[0] / (x.shape[0] - x.shape[1])
    return [*lines, "(intercept)"], found, np.sqrt(variance * np.linalg.inv(x.T @ x).diagonal())
