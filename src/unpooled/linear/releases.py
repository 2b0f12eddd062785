"""The releases that several models make alike, in words for those who approve a plan: their content by name, and notes with their shares of the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from unpooled.linear.residuals import Covariance
    from unpooled.totals.total import Summed

#: The releases of a fit by rounds, in words, by their names: of every model that is fitted so.
ROUNDS = {
    "count": "the number of rows",
    "base": "the sum of the responses (or of each class of them), from which the fit starts",
    "scales": "counts of values by size in each column, by which columns are brought to one scale",
    "descent": "the sum over rows of how each row pulls at the coefficients, once in every round of the fit",
    "direction": "the sum over rows of how each row pulls at the coefficients, once in every round of the fit",
    "length": "the sum over rows of how each row pulls at the scale of the fit, once in every round",
    "beginning": "sums of products of all columns with each other and with the response, from which the fit starts",
    "spread": "the sum of the sizes of residuals, from which their spread follows",
    "cells": "the number of residuals in each cell of a histogram",
    "residual": "sums of products of the columns with each other and with the residuals",
    "cross": "sums of products of the columns in focus with all others",
    "meat": "sums of products of the columns, weighted by squared residuals, for standard errors",
    "score": "the sum over rows of how each row pulls at the coefficients, at the end of the fit",
    "information": "sums of products of the columns, weighted as the fit weights them, for standard errors",
    "probabilities": "predicted and observed cases by predicted probability, by which probabilities are calibrated",
}
#: The releases of a study of split columns of whole persons.
JOINT = {
    "common": "the sum and the sum of squares of each column over people in common, and how many these are",
    "constants": "sums and sums of squares of single columns, by which columns are brought to one scale",
    "joint": "sums of products of the columns of all parties",
}

#: Words for a histogram, and for second moments of scores by the assumption about rows.
HISTOGRAM = (
    "how many rows have a residual in each of its cells, from which the dispersion and the shares that are cut off follow"
)
ROBUST_SCORES = "second moments of scores (a row times its residual), for robust standard errors"
CLUSTER_SCORES = "second moments of scores (a row times its residual) that are added up over the rows of an id, for clustered standard errors"


def release_notes(
    totals: Mapping[str, Summed], covariance: Covariance, more: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield a sentence for the histogram and for second moments of scores, where a plan has them, and for ``more`` releases by name."""
    from unpooled.linear.residuals import CELLS, MEAT, Covariance  # words are read where nothing is computed

    scores = {Covariance.ROBUST: ROBUST_SCORES, Covariance.CLUSTER: CLUSTER_SCORES}
    words = {CELLS: HISTOGRAM, MEAT: scores.get(covariance, ""), **(more or {})}
    for name, vector in totals.items():
        if words.get(name):
            yield f"{name} ({vector.share:.0%} of the squared budget): {words[name]}"
