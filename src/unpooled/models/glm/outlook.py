"""Outlook of a study of a generalised linear model: its own rounds, played over made-up rows with the noise that its plan has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.estimation.outlook import (
    SHAPES,
    Outlook,
    Range,
    check_range,
    checked_shapes,
    drawn,
    in_words,
    rows_to_make,
    shapes_in_words,
    simulated,
    without_prior,
)
from unpooled.estimation.outlook import imagine_rounds as imagine
from unpooled.models.glm.coordinator import coordinate
from unpooled.models.glm.families import MULTINOMIAL, SURVIVAL
from unpooled.models.glm.made_up import Assumed, losses, made_up
from unpooled.models.glm.multinomial import Softmax
from unpooled.models.glm.party import STATISTICS
from unpooled.models.glm.plan import GlmDesign, compile_plan
from unpooled.models.glm.survival import Hazards
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from unpooled.models.glm.result import GlmResult
    from unpooled.privacy.plan import Plan, Study

#: New rows that are predicted.
_NEW = 10_000
#: What is assumed where nothing is said: the deviation of the linear predictor, the mean response as a part of its largest (None: by the
#: family), how columns correlate, and how many standard deviations half a declared range has.
SIGNAL, CORRELATION, RANGES = (0.5, 1.5), (0.0, 0.6), (2.5, 8.0)
_RATES = {True: (0.2, 0.5), False: (0.05, 0.2)}
#: Of several classes the rate of one, in parts of that which they all would have.
_RARE = (0.3, 1.0)
#: Of times to an event the part of persons who would have it.
_EVENTS = (0.2, 0.6)
#: What the rate is of, where there is no mean response.
_WORDS = {MULTINOMIAL: "rate of one class", SURVIVAL: "part of persons with the event by the end of follow-up"}


def outlook(
    study: Study,
    *,
    signal: Range = SIGNAL,
    rate: Range | None = None,
    correlation: Range = CORRELATION,
    ranges: Range = RANGES,
    shapes: str | tuple[str, ...] = SHAPES,
    seed: int = 0,
    quick: bool = False,
) -> Outlook:
    """Deviance of new rows over that of the base rate, against epsilon (``quick``: at the one that is asked for alone)."""
    study, left = without_prior(study)
    shapes, plans = checked_shapes(shapes), {study.epsilon: compile_plan(study)}
    design: GlmDesign = plans[study.epsilon].design
    if rate is None and isinstance(design.family, Softmax):
        rate = _RARE[0] / len(design.family.labels), _RARE[1] / len(design.family.labels)
    if rate is None and isinstance(design.family, Hazards):
        rate = _EVENTS
    rate = _RATES[design.family.classes] if rate is None else rate
    check_range("signal", signal, 0.0, 10.0)
    check_range("rate", rate, 1e-6, 0.999)
    check_range("correlation", correlation, 0.0, 0.999)
    check_range("ranges", ranges, 0.5, 1000.0)

    def run(epsilon: float, k: int) -> tuple[float, float]:
        rng = np.random.default_rng([seed, k])
        if epsilon not in plans:
            plans[epsilon] = compile_plan(msgspec.structs.replace(study, epsilon=epsilon))
        assumed = Assumed(
            drawn(signal, rng), drawn(rate, rng), drawn(correlation, rng), drawn(ranges, rng), shapes[k % len(shapes)]
        )
        return _errors(plans[epsilon], assumed, rng)

    points, free = simulated(study.epsilon, run, part=_count(design) / design.rows, quick=quick)
    words = [
        in_words("deviation of the linear predictor", signal),
        in_words(_WORDS.get(design.family.name, "mean response over its largest"), rate),
        shapes_in_words(shapes),
        in_words("correlation of columns", correlation),
        in_words("half range in deviations", ranges),
        *left,
    ]
    if study.household_rows > 1:
        words.append(f"ids with {study.household_rows} rows each, as unlike as those of others")
    return Outlook(
        f"glm, {design.family.name} ({design.schedule.method})",
        design.rows,
        len(design.layout.features),
        study.epsilon,
        points,
        1.0,
        free,
        "deviance of new rows / deviance of the base rate",
        ", ".join(words),
    )


def _count(design: GlmDesign) -> int:
    """Return the number of rows to make up for a fit."""
    numbers = len(design.family.labels) if isinstance(design.family, Softmax) else 1
    return rows_to_make(design.rows, design.layout.size * numbers)


def _errors(plan: Plan[GlmDesign], assumed: Assumed, rng: np.random.Generator) -> tuple[float, float]:
    """Return the error of one made-up study, and that of the true coefficients."""
    design = plan.design
    count = _count(design)
    columns, y, true = made_up(design, count + _NEW, assumed, rng)
    used, new = (
        Table({name: column[part] for name, column in columns.items()}) for part in (slice(count), slice(count, None))
    )
    result: GlmResult = imagine(plan, coordinate, STATISTICS, used, rng)
    fitted, base, truth = losses(design, result, new, y[count:], true[count:])
    return fitted / max(base, 1e-300), truth / max(base, 1e-300)
