"""Outlook of a PLS study of some shape: made-up coordinates with the noise that its plan has, fitted as the study's own would be (C.4)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.estimation.outlook import Outlook, Range, check_range, drawn, in_words, simulated, without_prior
from unpooled.estimation.outlook import imagine_rounds as imagine
from unpooled.linear.moments import Moments
from unpooled.models.pls.components import from_moments
from unpooled.models.pls.declared import STATISTICS, compile_plan
from unpooled.models.pls.fit import by_response, coordinate
from unpooled.models.pls.spectra import MATRIX, Frame
from unpooled.privacy.table import Table
from unpooled.schedules import table
from unpooled.totals.total import Total

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.pls.declared import PlsDesign
    from unpooled.models.pls.fit import PlsResult
    from unpooled.privacy.plan import Plan, Study

    Matrix = NDArray[np.float64]

_TUNED = table("outlooks")
#: What is assumed where nothing is said. A matrix is taken to be whitened.
SIGNAL, RANGES, DECAY = _TUNED.pair("pls_signal"), _TUNED.pair("pls_ranges"), _TUNED.pls_decay


def outlook(
    study: Study,
    *,
    r2: Range = SIGNAL,
    ranges: Range = RANGES,
    decay: Range | None = None,
    seed: int = 0,
    quick: bool = False,
) -> Outlook:
    """RMSEP over the deviation of y, against epsilon."""
    check_range("r2", r2, 0.0, 1.0)
    check_range("ranges", ranges, 0.5, 1000.0)
    study, left = without_prior(study)
    plans: dict[float, Plan] = {study.epsilon: compile_plan(study)}
    design: PlsDesign = plans[study.epsilon].design
    decay = (1.0 if design.parameters.basis == MATRIX else DECAY) if decay is None else decay
    check_range("decay", decay, 1e-6, 1.0)

    def run(epsilon: float, k: int) -> tuple[float, float]:
        rng = np.random.default_rng([seed, k])
        if epsilon not in plans:
            plans[epsilon] = compile_plan(msgspec.structs.replace(study, epsilon=epsilon))
        part = drawn(r2, rng)
        return _error(plans[epsilon], part, drawn(ranges, rng), drawn(decay, rng), rng), math.sqrt(1 - part)

    rows = sum(card.rows for card in study.parties)
    points, free = simulated(study.epsilon, run, part=min(1.0, _made(design) / rows), quick=quick)
    words = [
        in_words("R^2", r2),
        in_words("half range of y in deviations", ranges),
        in_words("last coordinate's deviation over the first's", decay),
        *left,
    ]
    if study.household_rows > 1:
        words.append(f"ids with {study.household_rows} rows each, as unlike as those of others")
    return Outlook(
        "pls",
        rows,
        len(design.channels),
        study.epsilon,
        points,
        1.0,
        free,
        "RMSEP / standard deviation of y",
        ", ".join(words),
    )


def _made(design: PlsDesign) -> int:
    """Return the number of made-up rows: some for every coordinate."""
    return max(_TUNED.whole("pls_rows"), 5 * design.frame.size)


def _error(plan: Plan[PlsDesign], r2: float, ranges: float, decay: float, rng: np.random.Generator) -> float:
    """Return one made-up study of rows in the coordinates themselves, with noise of the plan's deviations."""
    design = plan.design
    rows, size = sum(card.rows for card in plan.study.parties), design.frame.size
    profile = np.geomspace(1.0, decay, size) if size > 1 else np.ones(1)
    turn = np.linalg.qr(rng.normal(size=(size, size)))[0]
    # One release of several responses is to each what it is to the first; rounds are of all.
    count = 1 if design.one_release else design.layout.responses
    slopes = rng.normal(size=(size, count)) / profile[:, None]  # signal in every direction, however small it is
    slopes *= math.sqrt(r2) / (ranges * np.linalg.norm(slopes * profile[:, None], axis=0))
    # 95 of 100 rows are no longer than the bound.
    bound = math.sqrt(float(np.square(profile).sum())) * (1 + 1.65 / math.sqrt(2 * size))

    def some(made: int) -> tuple[Matrix, Matrix]:
        scores = rng.normal(size=(made, size)) * profile
        y = scores @ slopes + math.sqrt(1 - r2) / ranges * rng.normal(size=(made, count))
        return scores @ turn / bound, y

    x, y = some(min(rows, _made(design)))
    x *= np.minimum(1.0, 1.0 / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300))
    # In coordinates themselves: a basis folds them to channels and back.
    made = _of_one_release if design.one_release else _of_rounds
    coefficients, intercept = made(plan, x, np.clip(y, -1, 1), Frame(np.zeros(size), None), rng)
    # Of several responses the first: all are alike to it.
    layout, _ = next(iter(design.layout.singles()))
    x, y = some(_TUNED.whole("pls_new_rows"))
    width, height = layout.half_widths[:size], layout.response.half_width
    predicted = ((x * width) @ coefficients + intercept - layout.response.centre) / height
    return float(np.sqrt(np.mean((y[:, 0] - predicted) ** 2)) / y[:, 0].std())


def _of_one_release(
    plan: Plan[PlsDesign], x: Matrix, y: Matrix, frame: Frame, rng: np.random.Generator
) -> tuple[Matrix, float]:
    """Return coefficients and constant of coordinates from the moments of these rows with the plan's noise."""
    design = plan.design
    rows = sum(card.rows for card in plan.study.parties)
    whole = np.column_stack([x, np.ones(len(y)), y])
    layout, own = next(iter(design.layout.singles()))
    first, second = layout.pairs
    exact = (whole.T @ whole)[first, second] * (rows / len(y)) * layout.grid**2
    noise = design.vector.deviations(plan)[own] if math.isfinite(plan.study.epsilon) else np.zeros(exact.size)
    total = Total(exact + noise * rng.standard_normal(exact.size), noise, ())
    fitted = from_moments(Moments.decode(layout, total, rows), frame, design.parameters.n_components)
    return fitted.coefficients, float(fitted.intercept)


def _of_rounds(plan: Plan[PlsDesign], x: Matrix, y: Matrix, frame: Frame, rng: np.random.Generator) -> tuple[Matrix, float]:
    """Return the same from the study's own rounds, played over these rows: of several responses the first."""
    layout = plan.design.layout
    responses = (c.centre + c.half_width * values for c, values in zip((layout.response, *layout.others), y.T, strict=True))
    columns = [*(x * layout.half_widths[:-1]).T, *responses]
    table = Table(dict(zip(layout.names_read, columns, strict=True)))
    result: PlsResult = imagine(replace(plan, design=replace(plan.design, frame=frame)), coordinate, STATISTICS, table, rng)
    slopes, constants = by_response(result)
    return np.array(next(iter(slopes.values()))), constants[0]
