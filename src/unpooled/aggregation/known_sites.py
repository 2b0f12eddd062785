"""Released moments whose sites have constants of their own, with what is known of the sites beforehand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.sites import known_moments, longer_sites

if TYPE_CHECKING:
    from unpooled.aggregation.moments import Moments


def with_known_sites(moments: Moments, *, alike: bool) -> Moments:
    """Return the moments with what is known of the sites, in coordinates in which a site's constant is as long as the constant of all rows.

    ``alike``: rows count alike but for those that were shortened. Moments of sites that share a constant are returned as they are.
    """
    layout, frame = moments.layout, moments.frame
    if layout.sites is None:
        return moments
    places, parts, d = layout.at_sites, layout.sites.parts, layout.size
    lengths = 1 / float(frame.widths[places[0]]), 1 / float(frame.widths[-1])
    gram, variance = moments.gram.copy(), moments.variance.copy()
    gram[:d, :d], variance[:d, :d] = known_moments(*moments.xx, places, parts, lengths, alike=alike)
    longer = longer_sites(d + 1, places, parts)
    both = np.outer(longer, longer)
    meat = None if moments.meat is None else (moments.meat[0] * both[:d, :d], moments.meat[1] * both[:d, :d] ** 2)
    standard = replace(frame, widths=frame.widths / longer[:d], start=frame.start / longer[:d])
    return replace(moments, gram=gram * both, variance=variance * both**2, standard=standard, meat=meat)
