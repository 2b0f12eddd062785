"""Outlook of a Bayes study of some shape: the study's own rounds, played over made-up rows with the noise that its plan has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.estimation.expected_lines import PlayedTables
from unpooled.estimation.outlook import (
    SHAPES,
    Evenly,
    Outlook,
    Range,
    check_range,
    checked_shapes,
    drawn,
    in_words,
    made_up_rows,
    rows_to_make,
    shapes_in_words,
    simulated,
    with_lines,
    without_prior,
)
from unpooled.estimation.outlook import imagine_rounds as imagine
from unpooled.linear.goals import Goal
from unpooled.linear.residuals import Covariance
from unpooled.linear.schedule import Method
from unpooled.models.bayes import declared
from unpooled.models.bayes.columns import outlook as of_columns
from unpooled.models.bayes.fit import compile_plan as compile_either
from unpooled.models.bayes.fit import coordinate_rows as coordinate
from unpooled.models.bayes.fit import tables
from unpooled.models.bayes.rows import STATISTICS
from unpooled.privacy.bounds import Coding
from unpooled.privacy.declared import COLUMNS
from unpooled.privacy.table import Table
from unpooled.schedules import table
from unpooled.totals.whole_rows import modelled

if TYPE_CHECKING:
    from unpooled.models.bayes.declared import BayesDesign
    from unpooled.models.bayes.fit import BayesResult
    from unpooled.privacy.plan import Plan, Study

_TUNED = table("outlooks")
SIGNAL, CORRELATION, RANGES = _TUNED.pair("linear_signal"), _TUNED.pair("linear_correlation"), _TUNED.pair("linear_ranges")


def outlook(
    study: Study,
    *,
    r2: Range = SIGNAL,
    correlation: Range = CORRELATION,
    ranges: Range = RANGES,
    shapes: str | tuple[str, ...] = SHAPES,
    seed: int = 0,
    quick: bool = False,
    lines: bool | None = None,
) -> Outlook:
    """Return squared error of predictions over the variance of y, against epsilon (``quick``: at the one that is asked for alone)."""
    check_range("r2", r2, 0.0, 1.0)
    check_range("correlation", correlation, 0.0, 0.999)
    check_range("ranges", ranges, 0.5, 1000.0)
    study, left = without_prior(study)
    if study.parameters.get("split") == COLUMNS:
        return _beside_alone(
            of_columns(
                study,
                r2,
                correlation,
                ranges,
                checked_shapes(shapes),
                seed,
                quick=quick,
                lines=not quick if lines is None else lines,
            ),
            study,
        )
    shapes, plans, seen = (
        checked_shapes(shapes),
        {study.epsilon: compile_plan(study)},
        PlayedTables(not quick if lines is None else lines),
    )
    rows = sum(card.rows for card in study.parties)
    count = rows_to_make(rows, plans[study.epsilon].design.layout.size)

    def run(epsilon: float, k: int) -> tuple[float, float]:
        rng = np.random.default_rng([seed, k])
        if epsilon not in plans:
            plans[epsilon] = compile_plan(_at(study, epsilon))
        evenly = Evenly(k, seed)
        part = drawn(r2, evenly)
        assumed = part, drawn(correlation, evenly), drawn(ranges, evenly), shapes[k % len(shapes)]
        new, result = _played(plans[epsilon], count, assumed, rng)
        seen.add(epsilon, k, tables(plans[epsilon], result))
        return _error(plans[epsilon].design, new, result), 1 - part

    found = simulated(study.epsilon, run, part=count / rows, quick=quick)
    points, free = with_lines(seen, run, *found, study.epsilon)
    design = plans[study.epsilon].design
    words = [
        in_words("R^2", r2),
        shapes_in_words(shapes),
        in_words("correlation of columns", correlation),
        in_words("half range in deviations", ranges),
        *left,
    ]
    if study.household_rows > 1:
        words.append(f"ids with {study.household_rows} rows each, as unlike as those of others")
    return Outlook(
        f"bayes ({design.method})",
        rows,
        len(design.layout.features),
        study.epsilon,
        points,
        1.0,
        free,
        "squared error of predictions / variance of y",
        ", ".join(words),
    ).with_gaps(study, design.layout.left_out)


def compile_plan(study: Study) -> Plan[BayesDesign]:
    """Return the plan that is played; of a formula made-up rows are what it makes of columns, and which rows are whole is not modelled."""
    return (declared.compile_plan if study.parameters.get("formula") else compile_either)(study)


def _beside_alone(found: Outlook, study: Study) -> Outlook:
    """Return the outlook of joint columns with what the response's holder can expect of its own columns at the same epsilon, line by line.

    A card of a hidden link does not say how many people its party holds, so that nothing is foretold of the holder alone.
    """
    response, given = study.parameters["response"], study.parameters
    holder = next(card for card in study.parties if response in {column.name for column in card.columns})
    if not found.lines or given.get("formula") or len(holder.columns) == 1 or study.hidden:
        return found
    own = {"response": response, "goal": Goal.AUTO.value} | {name: given[name] for name in ("coding",) if name in given}
    named = {name: level for name, level in given.get("reference", {}).items() if name in {c.name for c in holder.columns}}
    card = msgspec.structs.replace(holder, labels=(), linked="")
    asked = msgspec.structs.replace(
        study, parties=(card,), helpers=(), trust={}, ids="", parameters=own | ({"reference": named} if named else {})
    )
    return found.beside({line.term: line.std_error for line in outlook(asked, quick=True, lines=True).lines})


def _at(study: Study, epsilon: float) -> Study:
    """Return the study at another epsilon; without privacy coefficients alone, for there is no budget that a focus or standard errors could have a part of."""
    parameters = dict(study.parameters)
    if not np.isfinite(epsilon):
        own = {"focus": (), "covariance": Covariance.MODEL}
        parameters |= {name: value for name, value in own.items() if name in parameters}
        if parameters.get("method") == Method.FOCUS:
            del parameters["method"]
    return msgspec.structs.replace(study, epsilon=epsilon, parameters=parameters)


def _played(
    plan: Plan[BayesDesign], count: int, assumed: tuple[float, float, float, str], rng: np.random.Generator
) -> tuple[Table, BayesResult]:
    """Return new rows of one made-up study, and its result."""
    design = plan.design
    layout, (r2, correlation, ranges, shape) = design.layout, assumed
    table = made_up_rows(
        layout.features,
        layout.response,
        count + _TUNED.whole("linear_new_rows"),
        r2,
        correlation,
        ranges,
        rng,
        shape=shape,
        made=layout.made,
    )
    names = (*(c.name for c in layout.features), layout.response.name)
    if layout.weighting is not None:  # uniform over the declared range
        name = layout.weighting.column.name
        low, high = layout.weighting.column.range
        weights = rng.uniform(low, high, table.n_rows)
        table, names = Table({own: table[own] for own in names} | {name: weights}), (*names, name)
    used, new = (Table({name: table[name][part] for name in names}) for part in (slice(count), slice(count, None)))
    if design.whole is not None:  # its model is of rows with gaps; new rows have none
        first = modelled(layout.left_out)[0]
        held = np.array(used[first.name])
        held[np.flatnonzero(rng.random(count) < _TUNED.glm_gaps)] = np.nan if first.categories is None else None
        used = Table({name: used[name] for name in names} | {first.name: held})
    return new, imagine(plan, coordinate, STATISTICS, used, rng)


def _error(design: BayesDesign, new: Table, result: BayesResult) -> float:
    """Return the error of predictions of these new rows."""
    layout = design.layout
    coefficients = np.array([c.value for c in result.coefficients])
    fitted = Coding(layout.features, 1).natural([new[c.name] for c in layout.features]) @ coefficients + result.intercept
    y = new[layout.response.name]
    return float(np.mean((y - fitted) ** 2) / np.var(y))
