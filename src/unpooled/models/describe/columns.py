"""Columns of the same people at several parties: means and deviations of each, and correlations of all, from joint second moments."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.linear.inference import centred
from unpooled.models.describe.declared import JointParameters
from unpooled.models.describe.fit import (
    Correlation,
    Estimate,
    JointSummary,
    Summary,
    numeric,
    printed_summaries,
    shares_of,
)
from unpooled.privacy.bounds import Coding
from unpooled.privacy.plan import check_parameters
from unpooled.products.design import JointDesign
from unpooled.products.moments import joint_totals
from unpooled.products.plan import plan_of
from unpooled.protocol.terms import PrintedTable
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from unpooled.privacy.plan import Plan, Study
    from unpooled.protocol.registry import Conversation
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]

#: The largest correlation whose interval is worked out: at 1 the transformed one is infinite.
_LARGEST = 0.9999


def compile_columns(study: Study) -> Plan:
    """Return the plan of a description of columns at several parties."""
    parameters = check_parameters(study, JointParameters)
    for card in study.parties:
        for column in card.columns:
            if column.may_be_absent:
                msg = f'column {column.name!r} may be missing, and its correlations would be of its filled values: declare missing = "refuse"'
                raise UsageError(msg).at(column=column.name)
    return plan_of(study, JointDesign.of(study, parameters))


def coordinate_columns(plan: Plan[JointDesign]) -> Conversation:
    """Release constants and joint moments, and say what they tell."""
    constants, total = yield from joint_totals(plan)
    return summary_of(plan.design, constants, total, check_parameters(plan.study, JointParameters).confidence)


def summary_of(design: JointDesign, constants: Mapping[str, Total], total: Total, confidence: float) -> JointSummary:
    """Return summaries and correlations from noisy totals."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    summaries = tuple(s for party in design.parties for s in _summaries(design, party, constants[party], z))
    names = [name for features in design.features for name in Coding(features, 1).coded_names]
    attribute = design.layout.coding.attribute
    shape, rows = design.shape, design.rows
    matrix, noises = shape.decoded(total.values, total.deviations, rows)
    covariance, variance = centred(matrix, rows, intercept=True), noises[:-1, :-1] / rows**2
    diagonal, noise = covariance.diagonal(), np.sqrt(variance.diagonal())
    varies = diagonal > np.maximum(table("describe").column_surely * noise, 1e-9)
    found = []
    for j, k in zip(*np.triu_indices(len(names), 1), strict=True):
        if varies[j] and varies[k] and attribute[j] != attribute[k]:  # levels of one column exclude each other
            value = correlation(covariance[np.ix_([j, k], [j, k])], variance[np.ix_([j, k], [j, k])], rows, z)
            found.append(Correlation(names[j], names[k], value))
    return JointSummary(summaries, tuple(found), tuple(n for n, seen in zip(names, varies, strict=True) if not seen))


def correlation(covariance: Floats, variance: Floats, rows: int, z: float) -> Estimate:
    """Return the correlation of two columns with an interval on Fisher's scale, from covariances and the variances of their noise.

    By the delta method; sampling has the variance (1 - r^2)^2 / n of normal columns.
    """
    (a, c), (_, b) = covariance.tolist()
    (va, vc), (_, vb) = variance.tolist()
    root = math.sqrt(a * b)
    r = min(max(c / root, -_LARGEST), _LARGEST)
    noise = math.sqrt((vc + r * r / 4 * (va * b / a + vb * a / b)) / (a * b))
    spread = math.hypot(noise, (1 - r * r) / math.sqrt(rows)) / (1 - r * r)
    low, high = (math.tanh(math.atanh(r) + side * z * spread) for side in (-1, 1))
    return Estimate(r, low, high, noise)


def _summaries(design: JointDesign, party: str, total: Total, z: float) -> Iterator[Summary]:
    """Summaries of one party's columns, from its noisy sums and sums of squares."""
    scales, rows = design.scales(party), design.rows
    size, grid, attribute = scales.count, float(scales.layout.grid), np.array(scales.layout.coding.attribute)
    sums, squares = total.values[:size] / grid, total.values[size:] / grid**2
    noises = np.square(total.deviations[:size] / grid), np.square(total.deviations[size:] / grid**2)
    for k, column in enumerate(scales.layout.features):
        at = np.flatnonzero(attribute == k)
        if column.categories is None:
            (j,) = at.tolist()
            noise = [0.0, float(noises[0][j]), float(noises[1][j])]
            yield numeric(party, column, rows, [float(rows), float(sums[j]), float(squares[j])], noise, z)
            continue
        # Of zeros and ones the sum of squares is the sum: both tell it, the quieter one more.
        a, b = noises[0][at], noises[1][at]
        both = a + b
        counts = np.where(both > 0, (sums[at] * b + squares[at] * a) / np.where(both > 0, both, 1.0), sums[at])
        quiet = float((a * b / np.where(both > 0, both, 1.0)).max())
        for category, count in zip(column.categories, shares_of(rows, counts.tolist(), quiet, z), strict=True):
            yield Summary(party, column.name, category, count)


def printed(result: JointSummary) -> tuple[PrintedTable, ...]:
    """Return the summaries, and the correlations below them."""
    rows = tuple(
        (f"{c.first}, {c.second}", f"{c.value.value:.3f}", f"[{c.value.low:.3f}, {c.value.high:.3f}]")
        for c in result.correlations
    )
    foot = [_AS_NORMAL] if rows else []
    if result.still:
        foot.append(f"Without correlations, for they vary no more than their noise: {', '.join(result.still)}.")
    head = ("correlation of", "value", "interval")
    text = "\n".join(f"{name:<44}{value:>8}  {interval}" for name, value, interval in ((head, *rows) if rows else ()))
    above = printed_summaries(result.summaries)
    below = (PrintedTable(head if rows else (), rows, foot=tuple(foot), text=text),) if rows or foot else ()
    return msgspec.structs.replace(above, text=f"{above.text}\n"), *below


_AS_NORMAL = "Intervals hold the noise, and the draw of persons as for normal columns: of skewed or heavy-tailed columns they are too short."
