"""Sentences of a plan about releases whose names do not say what they hold, with their shares of the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.aggregation.meat import MEAT, Covariance
from unpooled.aggregation.residual_cells import CELLS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from unpooled.aggregation.totals import Summed

#: Words for a histogram, and for second moments of scores by the assumption about rows.
HISTOGRAM = (
    "how many rows have a residual in each of its cells, from which the dispersion and the shares that are cut off follow"
)
SCORES = {
    Covariance.ROBUST: "second moments of scores (a row times its residual), for robust standard errors",
    Covariance.CLUSTER: "second moments of scores (a row times its residual) that are added up over the rows of an id, for clustered standard errors",
}


def release_notes(
    totals: Mapping[str, Summed], covariance: Covariance, more: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield a sentence for the histogram and for second moments of scores, where a plan has them, and for ``more`` releases by name."""
    words = {CELLS: HISTOGRAM, MEAT: SCORES.get(covariance, ""), **(more or {})}
    for name, vector in totals.items():
        if words.get(name):
            yield f"{name} ({vector.share:.0%} of the squared budget): {words[name]}"
