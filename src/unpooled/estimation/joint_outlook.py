"""Made-up rows of parties that join their columns, and the error of models on new ones: what outlooks of joint moments simulate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.columns.design import JointDesign
from unpooled.aggregation.columns.imagined import imagine
from unpooled.estimation.made_up import NORMAL, made_up_rows
from unpooled.privacy.bounds import Coding
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.aggregation.columns.design import ColumnsDesign
    from unpooled.aggregation.moments import Moments
    from unpooled.privacy.bounds import Column

    Floats = NDArray[np.float64]

#: Made-up rows of a fit, and new ones.
MADE_UP, _NEW = 2500, 2000


@dataclass(frozen=True)
class MadeUp:
    """Rows that a study of columns at different parties might have, and new rows of the same people."""

    design: ColumnsDesign
    used: Table
    new: Table

    @classmethod
    def of(
        cls,
        design: ColumnsDesign,
        r2: float,
        correlation: float,
        ranges: float,
        rng: np.random.Generator,
        relevant: int | None = None,
        shape: str = NORMAL,
    ) -> MadeUp:
        """Return rows with these properties (:func:`~unpooled.estimation.made_up.made_up_rows`)."""
        layout, count = design.layout, min(design.rows, MADE_UP)
        whole = made_up_rows(layout.features, layout.response, count + _NEW, r2, correlation, ranges, rng, relevant, shape)
        names = (*(c.name for c in layout.features), layout.response.name)
        used, new = (Table({name: whole[name][part] for name in names}) for part in (slice(count), slice(count, None)))
        return cls(design, used, new)

    @property
    def tables(self) -> dict[str, Table]:
        """Return the rows of the fit as the parties hold them."""
        design, held = self.design, {}
        for party, own in zip(design.parties, design.features, strict=True):
            response = [design.layout.response.name] if party == design.holder else []
            held[party] = Table({name: self.used[name] for name in (*(c.name for c in own), *response)})
        return held

    def moments(self, rng: np.random.Generator) -> Moments:
        """Return the moments that the study would release."""
        assert isinstance(self.design, JointDesign)  # others release none
        return imagine(self.design, self.tables, rng)

    def error(self, slopes: Floats, intercept: float) -> float:
        """Return the squared error of predictions of new rows over the variance of y."""
        return self._error(self.design.layout.features, slopes, intercept)

    def alone(self) -> float:
        """Return the error of the least squares that the holder of the response can fit alone, and nobody sees."""
        own = self.design.features[self.design.parties.index(self.design.holder)]
        if not own:
            return 1.0
        slopes, intercept = self.pooled(own)
        return self._error(own, slopes, intercept)

    def without_privacy(self) -> float:
        """Return the error of the least squares on all columns, without noise."""
        return self.error(*self.pooled(self.design.layout.features))

    def pooled(self, columns: tuple[Column, ...]) -> tuple[Floats, float]:
        """Return the least squares on these columns without noise."""
        natural = Coding(columns, 1).natural([self.used[c.name] for c in columns])
        rows = np.column_stack([natural, np.ones(len(natural))])
        beta = np.linalg.lstsq(rows, self.used[self.design.layout.response.name], rcond=None)[0]
        return beta[:-1], float(beta[-1])

    def _error(self, columns: tuple[Column, ...], slopes: Floats, intercept: float) -> float:
        y = self.new[self.design.layout.response.name]
        found = Coding(columns, 1).natural([self.new[c.name] for c in columns]) @ slopes + intercept
        return float(np.mean((y - found) ** 2) / np.var(y))
