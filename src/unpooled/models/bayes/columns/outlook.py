"""Outlook of a study of columns at different parties of some shape, next to the model that the holder of the response can fit alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.estimation.outlook import MADE_UP, MadeUp, Outlook, Range, drawn, in_words, shapes_in_words, simulated
from unpooled.models.bayes.columns.plan import design_of
from unpooled.models.bayes.columns.sines import SineDesign, imagined_sines

if TYPE_CHECKING:
    from unpooled.privacy.plan import Study


def outlook(
    study: Study, r2: Range, correlation: Range, ranges: Range, shapes: tuple[str, ...], seed: int, *, quick: bool
) -> Outlook:
    """Return squared error of predictions over the variance of y, against epsilon, and that of the model of the response's holder alone."""
    designs = {study.epsilon: design_of(study)}
    alone: list[float] = []

    def run(epsilon: float, k: int) -> tuple[float, float]:
        rng = np.random.default_rng([seed, k])
        part, related, wide = drawn(r2, rng), drawn(correlation, rng), drawn(ranges, rng)
        if math.isinf(epsilon):
            rows = MadeUp.of(designs[study.epsilon], part, related, wide, rng, shape=shapes[k % len(shapes)])
            alone.append(rows.alone())
            return rows.without_privacy(), 1 - part
        if epsilon not in designs:
            designs[epsilon] = design_of(msgspec.structs.replace(study, epsilon=epsilon))
        own = designs[epsilon]
        rows = MadeUp.of(own, part, related, wide, rng, shape=shapes[k % len(shapes)])
        fit = imagined_sines(own, rows.tables, rng) if isinstance(own, SineDesign) else rows.moments(rng).posterior()
        return rows.error(fit.coef_, fit.intercept_), 1 - part

    design = designs[study.epsilon]
    points, free = simulated(study.epsilon, run, part=min(1.0, MADE_UP / design.rows), quick=quick)
    words = [
        in_words("R^2", r2),
        shapes_in_words(shapes),
        in_words("correlation of columns", correlation),
        in_words("half range in deviations", ranges),
    ]
    return Outlook(
        f"bayes ({'sines' if isinstance(design, SineDesign) else 'joint moments'})",
        design.rows,
        len(design.layout.features),
        study.epsilon,
        points,
        1.0,
        free,
        "squared error of predictions / variance of y",
        ", ".join([*words, "every column with an effect of its own, equally large in the mean"]),
        nothing_released=min(float(np.mean(alone)), 1.0),
    )
