"""Outlook of a description of some shape: the error of a column's mean, from the plan's noise and the sampling that nobody avoids."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from unpooled.estimation.outlook import EPSILONS, Expected, Outlook, Range, check_range, in_words
from unpooled.models.describe.declared import RELEASE, compile_plan
from unpooled.privacy.bounds import Column
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.privacy.plan import Card, Household, Study, default_delta
from unpooled.privacy.unit import Unit
from unpooled.schedules import table

#: Half a declared range in deviations, where nothing is said.
RANGES = table("outlooks").pair("describe_ranges")


def outlook(study: Study, *, ranges: Range = RANGES, quick: bool = False) -> Outlook | None:
    """Return root mean squared error of a column's pooled mean in deviations of the column, against epsilon; None for private ranges, arms and correlations.

    No simulation: sampling has variance 1/n, noise that of the plan, in deviations by the assumed ``ranges``.
    """
    check_range("ranges", ranges, 0.5, 1000.0)
    if any(study.parameters.get(name) for name in ("ranges", "split", "by")):
        return None
    low, high = ranges if isinstance(ranges, tuple | list) else (ranges, ranges)
    grid = (study.epsilon,) if quick else sorted({*EPSILONS, study.epsilon})
    sampling = 1 / math.sqrt(sum(card.rows for card in study.parties))

    def expected(epsilon: float) -> Expected:
        noise = _noise(msgspec.structs.replace(study, epsilon=epsilon))
        middle, least, most = (math.hypot(sampling, noise * half) for half in ((low + high) / 2, low, high))
        return Expected(epsilon, middle, least, most)

    return Outlook(
        "describe",
        sum(card.rows for card in study.parties),
        len(study.parties[0].columns),
        study.epsilon,
        tuple(expected(epsilon) for epsilon in grid),
        math.nan,
        sampling,
        "error of a mean / standard deviation of its column",
        in_words("half range in deviations", ranges) + ", sampling error included",
    )


def _noise(study: Study) -> float:
    """Return the deviation of the noise of the pooled mean of a number, in half widths: the largest over columns; 0 where there are none."""
    plan = compile_plan(study)
    design = plan.design
    rows, found = sum(card.rows for card in study.parties), [0.0]
    first = design.layouts[study.parties[0].name]
    variances = []
    for card in study.parties:
        release = plan.release(card.name, RELEASE).mechanism
        assert isinstance(release, GaussianRelease)
        variances.append(release.deviations**2)
    total, at = np.sum(variances, axis=0), 0
    for i, column in enumerate(first.columns):
        if column.categories is None:
            found.append(math.sqrt(float(total[at + first.counts(column)])) / first.grid / rows)
        at += first.width(i)
    return max(found)


def describe_outlook(
    n_samples: int,
    n_features: int,
    *,
    epsilon: float = 1.0,
    delta: float | None = None,
    unit: str = "record",
    rows_per_household: int = 1,
    adjacency: str = "replace",
    ranges: Range = RANGES,
) -> Outlook:
    """Return the outlook of :func:`unpooled.describe` for data of this shape at one site, before any are touched.

    Parameters
    ----------
    n_samples : int
        Rows, or households where these are the unit.
    n_features : int
        Columns of numbers.
    epsilon : float, default 1.0
        The privacy asked for.
    delta : float, optional
        The probability with which the promise may fail. None is min(1e-5, 0.1 / n).
    unit : {"record", "attribute", "household"}, default "record"
        Whom the promise is for.
    rows_per_household : int, default 1
        With ``unit="household"``, the most rows of one id that count.
    adjacency : {"replace", "zero-out"}, default "replace"
        How two neighbouring data sets differ.
    ranges : float or (low, high), default (2.5, 8.0)
        Half a declared range in deviations of its column: what is assumed of the data.

    Examples
    --------
    >>> import unpooled
    >>> found = unpooled.describe_outlook(2000, 5, epsilon=1.0, ranges=4.0)
    >>> found.epsilon_for(0.05) < 1.0 < found.epsilon_for(0.0)
    True

    """
    columns = tuple(Column(f"x{j}", -1.0, 1.0) for j in range(n_features))
    together = Household("(household)", n_samples, rows_per_household, together=True) if unit == Unit.HOUSEHOLD else None
    card = Card("all", n_samples * rows_per_household, columns, household=together)
    study = Study(
        model="describe",
        parties=(card,),
        epsilon=epsilon,
        delta=default_delta(n_samples) if delta is None else delta,
        unit=unit,
        adjacency=adjacency,
        derived=(),
    )
    found = outlook(study, ranges=ranges)
    assert found is not None
    return found
