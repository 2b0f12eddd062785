"""Outlook of a study of columns at different parties of some shape, next to the model that the holder of the response can fit alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.aggregation.columns.imagined import imagine
from unpooled.estimation.imagined import made_up_rows
from unpooled.estimation.outlook import Outlook, Range, drawn, in_words, simulated
from unpooled.models.bayes.columns.plan import design_of
from unpooled.models.bayes.columns.sines import SineDesign, imagined_sines
from unpooled.privacy.bounds import Coding
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from unpooled.aggregation.columns.design import JointDesign
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Study

#: Made-up rows of a fit, and new ones.
_ROWS, _NEW = 2500, 2000


def outlook(study: Study, r2: Range, correlation: Range, ranges: Range, seed: int, *, quick: bool) -> Outlook:
    """Return squared error of predictions over the variance of y, against epsilon, and that of the model of the response's holder alone."""
    designs = {study.epsilon: design_of(study)}
    alone: list[float] = []

    def run(epsilon: float, k: int) -> tuple[float, float]:
        rng = np.random.default_rng([seed, k])
        if epsilon not in designs:
            designs[epsilon] = design_of(msgspec.structs.replace(study, epsilon=epsilon))
        part = drawn(r2, rng)
        error, own = _errors(designs[epsilon], part, drawn(correlation, rng), drawn(ranges, rng), rng)
        alone.append(own)
        return error, 1 - part

    points, free = simulated(study.epsilon, run, quick=quick)
    design = designs[study.epsilon]
    words = [
        in_words("R^2", r2),
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


def _errors(
    design: JointDesign | SineDesign, r2: float, correlation: float, ranges: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the errors of one made-up study and of the holder's own least squares, over the variance of y."""
    layout, count = design.layout, min(design.rows, _ROWS)
    table = made_up_rows(layout.features, layout.response, count + _NEW, r2, correlation, ranges, rng)
    names = (*(c.name for c in layout.features), layout.response.name)
    used, new = (Table({name: table[name][part] for name in names}) for part in (slice(count), slice(count, None)))
    held = {}
    for party, own in zip(design.parties, design.features, strict=True):
        response = [layout.response.name] if party == design.holder else []
        held[party] = Table({name: used[name] for name in (*(c.name for c in own), *response)})
    fit = imagined_sines(design, held, rng) if isinstance(design, SineDesign) else imagine(design, held, rng).posterior()
    y = new[layout.response.name]
    whole = Coding(layout.features, 1).natural([new[c.name] for c in layout.features]) @ fit.coef_ + fit.intercept_
    own = design.features[design.parties.index(design.holder)]
    return float(np.mean((y - whole) ** 2) / np.var(y)), _alone(own, used, new, layout.response.name)


def _alone(own: tuple[Column, ...], used: Table, new: Table, response: str) -> float:
    """Return the error of least squares on these columns alone."""
    y = new[response]
    if not own:
        return 1.0
    fit, test = (
        np.column_stack([Coding(own, 1).natural([table[c.name] for c in own]), np.ones(table.n_rows)])
        for table in (used, new)
    )
    beta = np.linalg.lstsq(fit, used[response], rcond=None)[0]
    return float(np.mean((y - test @ beta) ** 2) / np.var(y))
