"""Shape of a fit: from the released base rates of a study to the coefficients that its fit works on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.families import RowFamily
from unpooled.inference.life_table import LifeTable
from unpooled.models.glm.intervals import Intervals
from unpooled.models.glm.multinomial import ClassRates, Softmax
from unpooled.models.glm.shapes import Contrasts, GlmShape
from unpooled.models.glm.survival import FOLLOWED, ExitCells

if TYPE_CHECKING:
    from unpooled.models.glm.plan import GlmDesign
    from unpooled.totals.total import Total


def shape_of(design: GlmDesign, total: Total, rows: int, counted: float) -> GlmShape:
    """Return the shape that a fit begins with: the base rate inside the response's possible values, and the units of a typical record.

    ``counted`` is the sum of weights, of which the base rate is a part; classes and exits are counted without weights, by ``rows``.
    """
    base, family = design.base, design.family
    if isinstance(base, ExitCells):
        table = LifeTable.of_cells(base.ends, total.values, float(total.deviations.max()), rows)
        met = min(float(table.hazards @ np.diff(np.array([0.0, *base.ends]))), FOLLOWED)
        return Intervals(design, table.rate, (max(1.0, met), met), table)
    if isinstance(base, ClassRates) and isinstance(family, Softmax):
        rates = base.rates(total, rows)
        return Contrasts(design, 0.0, family.rates_units(rates), rates, family.labels)
    mean, rate = base.decode(total, counted)
    assert isinstance(family, RowFamily)
    return GlmShape(design, rate, family.units(mean), mean=mean)
