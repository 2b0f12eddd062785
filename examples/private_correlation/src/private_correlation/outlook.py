"""The outlook of a study, from its plan alone: the error of the correlation against epsilon, before anybody touches data."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from private_correlation.coordinator import noise_of
from private_correlation.plan import compile_plan
from unpooled.estimation.outlook import EPSILONS, Expected, Outlook, Range, check_range, in_words
from unpooled.privacy.plan import Study


def outlook(study: Study, *, ranges: Range = (2.5, 8.0), quick: bool = False) -> Outlook:
    """Return the expected standard error of a small correlation; ``ranges`` is half the declared range in standard deviations of a column.

    For columns in the middle of their ranges the slopes of Theorem R.2 are those of the product alone at r = 0: ranges^2.
    """
    check_range("ranges", ranges, 0.5, 1000.0)
    low, high = ranges if isinstance(ranges, tuple | list) else (ranges, ranges)
    rows = sum(card.rows for card in study.parties)
    sampling = 1 / math.sqrt(rows - 3)

    def expected(epsilon: float) -> Expected:
        noise: np.ndarray = noise_of(compile_plan(msgspec.structs.replace(study, epsilon=epsilon)))
        added = float(noise[2]) / rows
        return Expected(epsilon, *(math.hypot(sampling, added * half**2) for half in ((low + high) / 2, low, high)))

    points = tuple(expected(e) for e in ((study.epsilon,) if quick else sorted({*EPSILONS, study.epsilon})))
    assumed = in_words("half range in deviations", ranges)
    return Outlook(
        "private_correlation",
        rows,
        2,
        study.epsilon,
        points,
        math.nan,
        sampling,
        "standard error of the correlation",
        assumed,
    )
