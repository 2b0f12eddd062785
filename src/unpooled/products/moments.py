"""Joint second moments from their noisy total: decoded, followed by constants, and played over made-up rows. All of it is post-processing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.inference.coordinates import Coordinates
from unpooled.linear.moments import Moments
from unpooled.linear.residuals import Covariance
from unpooled.products.conversation import joint_total
from unpooled.products.design import CONSTANTS
from unpooled.products.hidden import COMMON, HiddenColumns, HiddenDesign
from unpooled.products.sums import GRID, JOINT_CONSTANT
from unpooled.protocol.conversation import everybody
from unpooled.protocol.messages import Ask, Nothing
from unpooled.totals.secure_sum import exchange_keys
from unpooled.totals.total import Total, noisy_release, whole_seen

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from numpy.typing import NDArray

    from unpooled.linear.standard import Standard
    from unpooled.privacy.plan import Plan
    from unpooled.privacy.table import Table
    from unpooled.products.design import ColumnsDesign, JointDesign
    from unpooled.protocol.registry import Replies
    from unpooled.totals.total import Member

    Floats = NDArray[np.float64]


# --- Decoded ---------------------------------------------------------------------------------------------------------------
# Moments (:class:`~unpooled.linear.moments.Moments`) from the released means and deviations and the noisy total of joint second moments.


def standards_of(design: ColumnsDesign, totals: Mapping[str, Total]) -> dict[str, Standard]:
    """Return every party's means and deviations in coded units, from the noisy totals of its sums."""
    return {party: design.scales(party).decode(totals[party], design.rows) for party in design.scaled}


def moments_of(
    design: JointDesign,
    standards: Mapping[str, Standard],
    values: Floats,
    deviations: Floats,
    *,
    plan: str = "",
    statement: str = "",
    holds: bool = False,
) -> Moments:
    """Return the moments of the row (columns of all parties, 1, response) in standardised coordinates.

    ``values`` and ``deviations`` are the noisy total and the standard deviations of its noise in the order of the design's shape, in integers.
    """
    order = order_of(design)
    gram, variance = (matrix[np.ix_(order, order)] for matrix in design.shape.decoded(values, deviations, design.rows))
    rows, few = counted(design, float(gram[-2, -2]), float(variance[-2, -2]))
    gram[-2, -2] = rows * JOINT_CONSTANT**2
    frame = frame_of(design, standards, (float(gram[-1, -1]), float(variance[-1, -1])), rows)
    found = Moments(design.layout, rows, gram, variance, plan, statement, frame, holds, Covariance.JOINT)
    return replace(found, few=few, rows_declared=design.rows) if design.counts else found


def counted(design: ColumnsDesign, corner: float, variance: float) -> tuple[int, str]:
    """Return how many rows count, and why nothing follows from so few of them; where that is no public number, as the noisy corner of their moments says."""
    if not design.counts:
        return design.rows, ""
    seen, doubt = corner / JOINT_CONSTANT**2, math.sqrt(variance) / JOINT_CONSTANT**2
    return max(whole_seen(seen, doubt, design.rows), 1), design.too_few(seen, doubt)


def order_of(design: JointDesign) -> list[int]:
    """Return the places in a joint row of the columns of all parties, of the constant and of the response, in the order of the layout."""
    places, last = design.shape.places, design.shape.of_rows.columns
    at = places[design.holder].stop - 1
    features = [k for party in design.parties for k in range(places[party].start, places[party].stop) if k != at]
    return [*(features[k] for k in design.order), last, at]


def frame_of(design: JointDesign, standards: Mapping[str, Standard], squares: tuple[float, float], rows: int) -> Coordinates:
    """Return the coordinates of the joint row; ``squares`` is the sum of squares of the weighted response, and the variance of its noise.

    The sum of squares is taken for at least the deviation of its noise, and for no more than the clip allows in this many rows.
    """
    most = rows * (design.limits.response / GRID) ** 2
    found = min(max(squares[0], squares[1] ** 0.5), most), squares[1]
    mean_square = design.limits.mean_square / (design.layout.size - 1)
    return replace(units_of(design, standards), squares=found, mean_square=mean_square)


def units_of(design: ColumnsDesign, standards: Mapping[str, Standard]) -> Coordinates:
    """Return the units of the joint row. The weight of the response is a part of its unit."""
    layout, response = design.layout, design.layout.response
    middle, width = np.empty((2, len(layout.coding.attribute)))
    at = 0
    for party in design.parties:
        own = standards[party]
        size = own.middle.size - (party == design.holder)
        middle[at : at + size], width[at : at + size] = own.middle[:size], own.width[:size]
        at += size
    middle, width = middle[design.order], width[design.order]
    units, centres = layout.half_widths[:-1], layout.centres[:-1]
    held = standards[design.holder]
    return Coordinates(
        widths=np.append(units * width, 1 / JOINT_CONSTANT),
        centres=np.append(centres + units * middle, 0.0),
        response_width=response.half_width * float(held.width[-1]) / design.limits.weight,
        response_centre=response.centre + response.half_width * float(held.middle[-1]),
        start=np.zeros(layout.size),
        squares=(np.nan, np.nan),
    )


# --- Moments ---------------------------------------------------------------------------------------------------------------
# Pure generators: constants, and the joint moments that follow. All of it is post-processing.


def constants(plan: Plan[Any]) -> Generator[list[Ask], Replies, tuple[dict[str, Member], dict[str, Total]]]:
    """The keys of all members, and the noisy sums of every party's columns."""
    design: ColumnsDesign = plan.design
    members = yield from exchange_keys(design.aggregation)
    replies = yield from everybody([Ask(party, CONSTANTS, Nothing()) for party in design.scaled])
    totals = {}
    for party, reply in zip(design.scaled, replies, strict=True):
        release = noisy_release(plan, party, CONSTANTS)
        totals[party] = Total(release.decode(reply.sums.values.numpy()), release.deviations, (party,))
    return members, totals


def joint_totals(plan: Plan[JointDesign]) -> Generator[list[Ask], Replies, tuple[dict[str, Total], Total]]:
    """The noisy sums of every party's columns, and the noisy total of the joint second moments."""
    members, totals = yield from constants(plan)
    return totals, (yield from joint_total(plan, members))


def hidden_totals(plan: Plan[Any], design: HiddenDesign) -> Generator[list[Ask], Replies, tuple[dict[str, Standard], Total]]:
    """The means and deviations of people in common, and the noisy total of their second moments."""
    members = yield from exchange_keys(design.aggregation)
    sums = yield from joint_total(plan, members)
    standards = design.standards(sums.values, sums.deviations)
    return standards, (yield from joint_total(plan, members, design.settings_of(standards), 1))


def joint_moments(plan: Plan[JointDesign]) -> Generator[list[Ask], Replies, Moments]:
    """The second moments of the joint rows."""
    design, promise = plan.design, plan.statement
    if isinstance(design, HiddenDesign):
        standards, total = yield from hidden_totals(plan, design)
    else:
        sums, total = yield from joint_totals(plan)
        standards = standards_of(design, sums)
    return moments_of(
        design,
        standards,
        total.values,
        total.deviations,
        plan=plan.hash,
        statement=str(promise),
        holds=promise.holds,
    )


# --- Imagined --------------------------------------------------------------------------------------------------------------
# A study of joint moments, played over made-up rows of all parties with the noise that its plan has: what outlooks and coverage simulate.


def imagine(design: JointDesign, tables: Mapping[str, Table], rng: np.random.Generator) -> Moments:
    """Return the moments that a study over rows like these would release; sums are scaled to the study's number of rows."""
    times, standards = begun(design, tables, rng)
    exact = design.shape.exact([design.coded(party, tables[party], standards[party]) for party in design.parties]) * times
    noise = design.deviations
    values = exact + noise * rng.standard_normal(exact.size)
    return moments_of(design, standards, values, noise, statement="imagined", holds=True)


def begun(design: ColumnsDesign, tables: Mapping[str, Table], rng: np.random.Generator) -> tuple[float, dict[str, Standard]]:
    """Return the factor from these rows to the study's number of rows, and every party's means and deviations with noise."""
    times = design.expected / next(iter(tables.values())).n_rows
    if isinstance(design, HiddenColumns):
        exact = design.sums.exact([design.sum_rows(party, tables[party]) for party in design.parties]) * times
        noise = design.noise(COMMON)
        return times, design.standards(exact + noise * rng.standard_normal(exact.size), noise)
    totals = {}
    for party in design.scaled:
        exact = design.scales(party).statistic(tables[party]).astype(float) * times
        noise = design.constants_release(party).deviations
        totals[party] = Total(exact + noise * rng.standard_normal(exact.size), noise, (party,))
    return times, standards_of(design, totals)
