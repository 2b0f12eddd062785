"""The only file of this model that touches raw data: exact integer moments, sums for marginal deviations, rounds over standardised rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import PlanMismatch
from unpooled.linear import design as linear_party
from unpooled.linear.design import standard_rows
from unpooled.linear.residuals import CELLS, MEAT
from unpooled.linear.standard import RESIDUAL, public_numbers
from unpooled.models.bayes import whole
from unpooled.models.bayes.declared import CROSS, DEVIATIONS, MOMENTS, SQUARE
from unpooled.privacy.bounds import Coding
from unpooled.totals.modes import steps_of
from unpooled.totals.secure_sum import KEYS
from unpooled.totals.threads import shared_out
from unpooled.totals.total import COUNT, no_settings, rows_counted
from unpooled.totals.weights import WEIGHTS, weights_added_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.linear.layout import MomentsLayout
    from unpooled.models.bayes.declared import BayesDesign
    from unpooled.protocol.context import Context

    Raw = Iterator[tuple[NDArray[Any], ...]]
    Settings = tuple[float, ...]


def _moments(context: Context, settings: Settings) -> NDArray[np.int64]:
    # Whatever bounds a request carries: clipping to them gives coded values in [-1, 1], and the sensitivity holds.
    return _narrowed(context, settings).statistic(context.table)


def _square(context: Context, settings: Settings) -> NDArray[np.int64]:
    layout = _narrowed(context, settings)
    coding, weighting = Coding((layout.response,), layout.grid), layout.weighting

    def added_up(blocks: Raw) -> NDArray[np.int64]:
        total = 0
        for block in blocks:
            coded = coding.code(block[:1])[0]
            if weighting is not None:
                coded = np.trunc(coded * np.sqrt(weighting.parts(block[1]))[:, None]).astype(np.int64)
            total += int((coded * coded).sum())
        return np.array([total], dtype=np.int64)

    return shared_out(context.table.blocks(layout.names_read[len(layout.coding.names) :]), added_up)


def _narrowed(context: Context[BayesDesign], settings: Settings) -> MomentsLayout:
    design = context.design
    if bool(settings) != (design.deviations is not None):
        raise PlanMismatch("projection bounds belong to a plan that releases deviations first, and to no other")
    return design.narrowed(settings)


def _deviations(context: Context[BayesDesign], settings: Settings) -> NDArray[np.int64]:
    no_settings(settings)
    coding = context.design.coding
    count = len(coding.columns)
    first = np.searchsorted(coding.attribute, range(count))

    def added_up(blocks: Raw) -> NDArray[np.int64]:
        total = np.zeros(2 * count, dtype=np.int64)
        for block in blocks:
            coded = coding.code(block)[0][:, first]  # without missing-value indicators
            total += np.concatenate([coded.sum(axis=0), (coded * coded).sum(axis=0)])
        return total

    return shared_out(context.table.blocks(coding.names), added_up)


def _residual(context: Context[BayesDesign], settings: Settings) -> NDArray[np.int64]:
    if (rows := context.design.focus) is None:
        return linear_party.residual(context, settings)
    standard, start, (clip,) = _asked(context, settings)
    return shared_out(standard_rows(context, standard), lambda own: rows.products(own, start, float(clip)))


def _asked(context: Context[BayesDesign], settings: Settings) -> tuple[Any, NDArray[np.float64], NDArray[np.float64]]:
    """Return (means and deviations, coefficients, the clip) of a request for the last round."""
    design = context.design
    size = design.standard.layout.size
    count = size if design.focus is None else size + len(design.focus.focused) * len(design.focus.others)
    return public_numbers(design.standard.layout, settings, 1, coefficients=count)


def _cross(context: Context[BayesDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.focus
    assert rows is not None  # it has no such total
    standard, _, _ = public_numbers(rows.whole, settings, 0, coefficients=0)
    return shared_out(standard_rows(context, standard), rows.products_of_columns)


def _cells(context: Context[BayesDesign], settings: Settings) -> NDArray[np.int64]:
    if (focus := context.design.focus) is None:
        return linear_party.cells(context, settings)
    standard, start, _ = public_numbers(focus.whole, settings, 0)
    return shared_out(standard_rows(context, standard), lambda own: focus.residuals_of_all(own, start))


def _meat(context: Context[BayesDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.last
    standard, start, (clip,) = _asked(context, settings)
    blocks = standard_rows(context, standard)
    if rows.clusters:  # whose rows lie in several blocks
        return rows.meat.added_up(rows.scores(blocks, start, float(clip)), context.table)
    return shared_out(blocks, lambda own: rows.meat.added_up(rows.scores(own, start, float(clip)), context.table))


#: What a party adds up, by the name of the total.
STATISTICS = {
    COUNT: rows_counted,
    WEIGHTS: weights_added_up,
    DEVIATIONS: _deviations,
    SQUARE: _square,
    MOMENTS: _moments,
    **linear_party.STATISTICS,
    CELLS: _cells,
    CROSS: _cross,
    RESIDUAL: _residual,
    MEAT: _meat,
    **whole.STATISTICS,
}

STEPS = (KEYS, *(step for name, statistic in STATISTICS.items() for step in steps_of(name, statistic)))
