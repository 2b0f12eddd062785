"""Outlook of a table of some shape: the error of a difference of two shares, from the plan's noise and the sampling that nobody avoids."""

from __future__ import annotations

import math

import msgspec

from unpooled.estimation.outlook import EPSILONS, Expected, Outlook, Range, check_range, in_words
from unpooled.models.tables.plan import RELEASE, compile_plan
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.privacy.plan import Study

#: The share of the level in question, where nothing is said.
SHARES = (0.05, 0.5)


def outlook(study: Study, *, shares: Range = SHARES, quick: bool = False) -> Outlook:
    """Return the root mean squared error of a share's difference between two lines of equal size, against epsilon; of one column, of a share.

    No simulation: sampling has the variance p (1 - p) over the rows of a line, and noise that of the plan, for the assumed ``shares``.
    """
    check_range("shares", shares, 0.001, 0.999)
    low, high = shares if isinstance(shares, tuple | list) else (shares, shares)
    rows = sum(card.rows for card in study.parties)
    plan = compile_plan(study)
    lines = plan.design.layout.shape[0] if len(plan.design.layout.columns) > 1 else 1
    grid = (study.epsilon,) if quick else sorted({*EPSILONS, study.epsilon})
    compared = min(lines, 2)

    def expected(epsilon: float) -> Expected:
        cell = _cell(msgspec.structs.replace(study, epsilon=epsilon))
        levels = plan.design.layout.shape[-1]
        errors = []
        for share in ((low + high) / 2, low, high):
            noise = cell * ((1 - share) ** 2 + (levels - 1) * share**2) * lines / rows
            errors.append(math.sqrt(compared * (share * (1 - share) + noise) * lines / rows))
        return Expected(epsilon, errors[0], min(errors), max(errors))

    middle = (low + high) / 2
    words = "error of a difference of two shares" if compared > 1 else "error of a share"
    return Outlook(
        "tables",
        rows,
        len(plan.design.layout.columns),
        study.epsilon,
        tuple(expected(epsilon) for epsilon in grid),
        math.nan,
        math.sqrt(compared * middle * (1 - middle) * lines / rows),
        words,
        in_words("share of the level", shares) + ", lines of equal size, sampling error included",
    )


def _cell(study: Study) -> float:
    """Return the variance of the noise of the count of a line and level, over all parties and strata."""
    plan = compile_plan(study)
    shape: tuple[int, ...] = plan.design.layout.shape
    total = 0.0
    for card in study.parties:
        release = plan.release(card.name, RELEASE).mechanism
        assert isinstance(release, GaussianRelease)
        total += float(release.deviations[0]) ** 2
    return total * math.prod(shape[1:-1])
