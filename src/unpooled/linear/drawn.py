"""Released second moments with earlier models: the fit that is drawn to them, and its tables, free of charge."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from unpooled.inference.printed_terms import TREATMENT
from unpooled.inference.priors import (
    DrawnTo,
    Told,
    drawn_to,
    in_coordinates,
    named,
    posterior_of,
    rows_of,
)
from unpooled.linear.fit import LinearFit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from unpooled.inference.priors import EarlierModel
    from unpooled.linear.inference import LinearTables
    from unpooled.linear.moments import Moments


def told_of_moments(moments: Moments) -> Told:
    """Return what released moments say of the coefficients, without a prior: what a fit with earlier models begins from."""
    frame, still = moments.frame, moments.known.still
    if frame.refined:
        return Told.of(*moments.behind_rows(moments.residual_variance()), still)
    prior = frame.prior_of_all(1.0, intercept=moments.layout.intercept)
    squares = frame.squares[0]
    # As without earlier models: y lies within one half width of its centre, and no residual variance is larger.
    found = moments.of_unknown_gram.averaged(squares, [prior], 1.0 if math.isnan(squares) else None)
    return Told.of(found.mean, found.covariance, still, prior)


def _typical(moments: Moments) -> float | None:
    """Return a slope of coefficients that explain all of the response together, as far as the release tells the lengths of rows."""
    if moments.frame.refined:
        return None
    slopes = moments.layout.size - moments.layout.intercept
    squares = moments.frame.squares[0]
    length = float(moments.xx[0].diagonal()[:slopes].sum())
    least = float(np.sqrt(moments.xx[1].diagonal()[:slopes].sum()))  # no less than its own noise
    return math.sqrt(max(float(moments.rows) if math.isnan(squares) else squares, 1.0) / max(length, least, 1e-9))


def drawn_tables(
    moments: Moments,
    models: Sequence[EarlierModel],
    reference: Mapping[str, str] | None = None,
    coding: str = TREATMENT,
) -> LinearTables:
    """Return the tables of released moments, drawn to earlier models where there are some."""
    tables = moments.tables(reference, coding, whole=bool(models))  # earlier models tell of what the noise hides
    if not models:
        return tables
    layout, frame = moments.layout, moments.frame
    there = in_coordinates(rows_of(models, layout.names, intercept=layout.intercept), frame, intercept=layout.intercept)
    slopes = np.arange(layout.size) < layout.size - layout.intercept
    mean, covariance, weights, deviations = drawn_to(told_of_moments(moments), there, slopes, _typical(moments))
    back = frame.back(intercept=layout.intercept)
    own = back @ mean + np.where(slopes, 0.0, frame.response_centre)
    estimates, drawn = posterior_of(tables.estimates, own, back @ covariance @ back.T, named(models, weights, deviations))
    return replace(tables, estimates=estimates, drawn=drawn)


def drawn_fit(moments: Moments, models: Sequence[EarlierModel]) -> tuple[LinearFit, DrawnTo]:
    """Return the fit of released moments that is drawn to earlier models, and how they drew it."""
    tables, has = drawn_tables(moments, models), moments.layout.intercept
    assert tables.drawn is not None  # there are models
    found = np.array(tables.estimates.estimate)
    coef = found[: found.size - has]
    covariance = tables.estimates.square(tables.estimates.covariance)
    known = tables.estimates.determined(np.eye(found.size))[: coef.size]
    fit = LinearFit(coef, float(found[-1]) if has else 0.0, covariance, known, noise_variance=moments.ols().noise_variance)
    return fit, tables.drawn
