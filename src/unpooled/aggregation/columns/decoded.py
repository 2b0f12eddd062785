"""Moments (:class:`~unpooled.aggregation.moments.Moments`) from the released means and deviations and the noisy total of joint second moments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.coordinates import Coordinates
from unpooled.aggregation.joint.shape import GRID, JOINT_CONSTANT
from unpooled.aggregation.meat import Covariance
from unpooled.aggregation.moments import Moments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.aggregation.columns.design import ColumnsDesign, JointDesign
    from unpooled.aggregation.standard import Standard
    from unpooled.aggregation.totals import Total

    Floats = NDArray[np.float64]


def standards_of(design: ColumnsDesign, totals: Mapping[str, Total]) -> dict[str, Standard]:
    """Return every party's means and deviations in coded units, from the noisy totals of its sums."""
    return {party: design.scales(party).decode(totals[party], design.rows) for party in design.parties}


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
    shape, order = design.shape, order_of(design)
    one = design.rows * JOINT_CONSTANT**2
    gram = shape.whole(values / GRID**2, one)[np.ix_(order, order)]
    variance = shape.whole(np.square(deviations / GRID**2), 0.0)[np.ix_(order, order)]
    frame = frame_of(design, standards, (float(gram[-1, -1]), float(variance[-1, -1])))
    return Moments(design.layout, design.rows, gram, variance, plan, statement, frame, holds, Covariance.JOINT)


def order_of(design: JointDesign) -> list[int]:
    """Return the places in a joint row of the columns of all parties, of the constant and of the response, in the order of the layout."""
    places, last = design.shape.places, design.shape.columns
    at = places[design.holder].stop - 1
    features = [k for party in design.parties for k in range(places[party].start, places[party].stop) if k != at]
    return [*(features[k] for k in design.order), last, at]


def frame_of(design: JointDesign, standards: Mapping[str, Standard], squares: tuple[float, float]) -> Coordinates:
    """Return the coordinates of the joint row; ``squares`` is the sum of squares of the weighted response, and the variance of its noise.

    The sum of squares is taken for at least the deviation of its noise, and for no more than the clip allows.
    """
    most = design.rows * (design.limits.response / GRID) ** 2
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
