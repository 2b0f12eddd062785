"""Plays a study of joint moments on the exact integers of all parties, with noise of the planned deviations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unpooled.linear.moments import Moments
from unpooled.privacy.table import Table
from unpooled.products.design import JointDesign
from unpooled.products.moments import moments_of, standards_of
from unpooled.products.sums import CONSTANT_STEPS
from unpooled.totals.total import Total


def exact_total(design: JointDesign, parts: list[np.ndarray]) -> np.ndarray:
    """The exact released integers of these parts of rows, in the order of the design's shape."""
    whole = np.column_stack([*parts, np.full(len(parts[0]), CONSTANT_STEPS)]).astype(float)
    return (whole.T @ whole)[design.shape.pairs]


def standards(design: JointDesign, tables: Mapping[str, Table], rng: np.random.Generator) -> dict[str, Any]:
    """Every party's released means and deviations."""
    totals = {}
    for party in design.parties:
        exact = design.scales(party).statistic(tables[party]).astype(float)
        vector = design.constants(party)
        noise = np.zeros(exact.size)
        if np.isfinite(design.budget.mu):
            (reach,) = (r.distance for unit, r in vector.reach.items() if unit == "record")
            scale = reach / (design.budget.mu * np.sqrt(vector.share))
            noise = np.concatenate([np.full(block.size, scale * block.width) for block in vector.blocks])
        totals[party] = Total(exact + noise * rng.standard_normal(exact.size), noise, (party,))
    return standards_of(design, totals)


def play(design: JointDesign, tables: Mapping[str, Table], rng: Any) -> Moments:
    """The released moments of one run."""
    known = standards(design, tables, rng)
    parts = [design.party_rows(party).coded(tables[party], known[party]) for party in design.parties]
    total, noise = exact_total(design, parts), design.deviations
    return moments_of(design, known, total + noise * rng.standard_normal(total.size), noise, statement="played", holds=True)
