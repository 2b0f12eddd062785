"""What a study may achieve, from its plan alone: the error of the mean against epsilon, before anybody touches data."""

from __future__ import annotations

import math

import msgspec

from private_mean.plan import RELEASE, compile_plan
from unpooled.estimation.outlook import EPSILONS, Expected, Outlook, Range, check_range, in_words
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.privacy.plan import Study


def outlook(study: Study, *, ranges: Range = (2.5, 8.0), quick: bool = False) -> Outlook:
    """Return the expected error in standard deviations of the column; ``ranges`` is half the declared range in such deviations."""
    check_range("ranges", ranges, 0.5, 1000.0)
    low, high = ranges if isinstance(ranges, tuple | list) else (ranges, ranges)
    rows = sum(card.rows for card in study.parties)
    sampling = 1 / math.sqrt(rows)

    def expected(epsilon: float) -> Expected:
        noise = noise_of(msgspec.structs.replace(study, epsilon=epsilon)) / rows
        return Expected(epsilon, *(math.hypot(sampling, noise * half) for half in ((low + high) / 2, low, high)))

    points = tuple(expected(e) for e in ((study.epsilon,) if quick else sorted({*EPSILONS, study.epsilon})))
    measure, assumed = "error of the mean / standard deviation of the column", in_words("half range in deviations", ranges)
    return Outlook("private_mean", rows, 1, study.epsilon, points, math.nan, sampling, measure, assumed)


def noise_of(study: Study) -> float:
    """Return the standard deviation of the noise in the sum over all parties, in half widths of the declared range."""
    plan, deviations = compile_plan(study), []
    for card in study.parties:
        mechanism = plan.release(card.name, RELEASE).mechanism
        assert isinstance(mechanism, GaussianRelease)
        deviations.append(float(mechanism.deviations[0]) / plan.design.grid)
    return math.hypot(*deviations)
