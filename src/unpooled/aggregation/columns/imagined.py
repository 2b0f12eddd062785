"""A study of joint moments, played over made-up rows of all parties with the noise that its plan has: what outlooks and coverage simulate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.columns.decoded import moments_of, standards_of
from unpooled.aggregation.joint.shape import CONSTANT_STEPS
from unpooled.aggregation.totals import Total

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.aggregation.columns.design import ColumnsDesign, JointDesign
    from unpooled.aggregation.moments import Moments
    from unpooled.aggregation.standard import Standard
    from unpooled.privacy.table import Table

    Floats = NDArray[np.float64]


def imagine(design: JointDesign, tables: Mapping[str, Table], rng: np.random.Generator) -> Moments:
    """Return the moments that a study over rows like these would release; sums are scaled to the study's number of rows."""
    times, standards = begun(design, tables, rng)
    parts = [design.party_rows(party).coded(tables[party], standards[party]) for party in design.parties]
    whole = np.column_stack([*parts, np.full(len(parts[0]), CONSTANT_STEPS)]).astype(float)
    exact = (whole.T @ whole)[design.shape.pairs] * times
    noise = design.deviations
    values = exact + noise * rng.standard_normal(exact.size)
    return moments_of(design, standards, values, noise, statement="imagined", holds=True)


def begun(design: ColumnsDesign, tables: Mapping[str, Table], rng: np.random.Generator) -> tuple[float, dict[str, Standard]]:
    """Return the factor from these rows to the study's number of rows, and every party's means and deviations with noise."""
    times = design.rows / next(iter(tables.values())).n_rows
    totals = {}
    for party in design.parties:
        exact = design.scales(party).statistic(tables[party]).astype(float) * times
        noise = design.constants_release(party).deviations
        totals[party] = Total(exact + noise * rng.standard_normal(exact.size), noise, (party,))
    return times, standards_of(design, totals)
