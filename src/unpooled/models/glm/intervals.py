"""The coefficients of times to an event: slopes of persons, and a log hazard for every interval in the place of one constant."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.inference.life_table import LifeTable
from unpooled.inference.priors import rows_of
from unpooled.inference.sites import SHORT, known_moments, longer_sites
from unpooled.linear.standard import CONSTANT
from unpooled.models.glm.curvature import curvature_of_intervals
from unpooled.models.glm.rounds import PRIOR
from unpooled.models.glm.shapes import GlmShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.inference.priors import EarlierModel
    from unpooled.linear.standard import Standard
    from unpooled.models.glm.curvature import Curvature

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: The variance of a coefficient of which rounds tell nothing.
_UNTOLD = 1e6


@dataclass(frozen=True)
class Intervals(GlmShape):
    """The slopes of persons, and the log hazards of the intervals in the place of one constant."""

    table: LifeTable = field(default_factory=lambda: LifeTable((1.0,), (1.0,), (1.0,), 0.0, 0.0, 2.0))

    @property
    def start(self) -> Row:
        """Return the hazards of the life table."""
        return np.concatenate([np.zeros(self.columns), np.log(self.table.hazards) / CONSTANT])

    def earlier(self, models: Sequence[EarlierModel], standard: Standard) -> Matrix:
        """Return log hazard ratios alone: the hazards of an earlier model are those of other times, and the life table has these."""
        own = rows_of(models, self.layout.names, intercept=False) * self.scale(standard)[: self.columns]
        return np.hstack([own, np.zeros((len(models), len(self.table.edges)))])

    def of_rounds(self, variances: Row) -> Matrix:
        """The intervals' hazards move together, and rounds tell nothing of how they differ."""
        found, intervals = np.diag(variances), len(self.table.edges)
        found[self.columns :, self.columns :] = variances[-1] + _UNTOLD * (np.eye(intervals) - 1 / intervals)
        return found

    def in_rounds(self, hidden: Matrix) -> Matrix:
        """A step eliminates intervals, and rounds tell of the slopes alone what it does not."""
        return hidden * (np.arange(len(hidden)) < self.columns)[:, None]

    def stepped(self, gradient: Row) -> Row:
        """Return the gradient of a round with its last entry for every interval: the intervals' hazards move together."""
        return np.concatenate([gradient[:-1], np.full(len(self.table.edges), gradient[-1])])

    def curvature(self, rows: float) -> float:
        """Information is counted in events."""
        return rows * self.table.rate / self.units[0] * self.design.shrinks

    def believed(self, spread: Row | float) -> Row:
        """The intervals' hazards are also as uncertain as in the life table."""
        own = np.full(self.columns + len(self.table.edges), spread)
        own[self.columns :] += self.table.log_hazard_variances / CONSTANT**2
        return own

    def known(self, gram: Matrix, variance: Matrix, penalty: Row, still: Matrix, noise: float = 0.0) -> Curvature:
        """Return intervals by themselves, where there is noise."""
        if not variance.any():
            return super().known(gram, variance, penalty, still, noise)
        events = np.array(self.table.events) + 1.0 + self.table.noise
        believed = PRIOR**2 + self.table.log_hazard_variances
        own = penalty, still, CONSTANT**2 * events, CONSTANT**2 / believed
        sites, places = self.layout.sites, self.layout.at_sites
        if sites is None:
            return curvature_of_intervals(gram, variance, *own)
        gram, variance = gram.copy(), variance.copy()
        # The intervals' hazards add up to a constant, of which a site has its part.
        p, added = (
            self.columns,
            np.vstack(
                [np.eye(self.columns + 1), *[np.eye(self.columns + 1)[-1:]] * (self.lift.shape[0] - self.columns - 1)]
            ),
        )
        told = added.T @ gram @ added, added.T @ variance @ added
        told = known_moments(*told, places, sites.parts, (SHORT, CONSTANT), alike=False)
        gram[:p, :p], variance[:p, :p] = (moments[:p, :p] for moments in told)
        return curvature_of_intervals(gram, variance, *own, longer_sites(self.columns, places, sites.parts))

    @cached_property
    def lift(self) -> Matrix:
        """Both are the same."""
        return np.eye(self.columns + len(self.table.edges))

    def back(self, standard: Standard) -> Matrix:
        """Every log hazard takes up the centres."""
        one, p, intervals = self.one_back(standard), self.columns, len(self.table.edges)
        back = np.zeros((p + intervals, p + intervals))
        back[:p, :p] = one[:p, :p]
        back[p:, :p] = one[-1, :p]
        back[p:, p:] = CONSTANT * np.eye(intervals)
        return back

    def penalty(self, standard: Standard, rows: float) -> Row:
        """Return the penalty, which the slopes alone have."""
        return np.append(super().penalty(standard, rows)[:-1], np.zeros(len(self.table.edges)))

    @property
    def constants(self) -> tuple[str, ...]:
        """Return intervals by their ends."""
        return self.table.interval_names

    def still(self, standard: Standard) -> Matrix:
        """Return the still directions: levels against the hazards of all intervals."""
        return np.asarray(np.linalg.solve(self.back(standard), self.own_still))

    def of_base(self) -> Row:
        """Return the life table alone."""
        return np.append(np.zeros(self.columns), np.log(self.table.hazards))
