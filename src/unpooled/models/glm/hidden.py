"""Logistic regression of hidden people: columns at two parties of whom nobody knows whom they have in common.

Rows lie at the places of a hidden link. The mean response comes with the means and deviations of people in common, second moments are those of
people in common, and a place without a person has numbers and rows of zeros in the rounds of pulls: these need no proof of presence (Theorem G.19).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from unpooled.errors import UsageError
from unpooled.models.glm.columns import PULLS, SHARES, PullDesign
from unpooled.models.glm.families import LOGISTIC
from unpooled.models.glm.split import Begun
from unpooled.products.design import JointBudget, PartScales
from unpooled.products.hidden import COMMON, HiddenColumns
from unpooled.products.masking import AT
from unpooled.products.placed import PlacedMoments
from unpooled.products.placed_rows import Carried, placed
from unpooled.products.sums import GRID, JointRound

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.linear.standard import Standard
    from unpooled.privacy.plan import Study
    from unpooled.privacy.table import Table
    from unpooled.products.design import Joined
    from unpooled.products.sums import ProductShape, Spot
    from unpooled.protocol.context import Context

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


_TWO = 2


@dataclass(frozen=True)
class HiddenPullDesign(HiddenColumns, PullDesign):
    """A study of two classes at one of two parties, over people in common of whom nobody knows who they are."""

    @classmethod
    def _made(cls, study: Study, parameters: Joined, budget: JointBudget, formula: str) -> Self:
        family = getattr(parameters, "family", "")
        if family != LOGISTIC:
            msg = (
                f'odds ratios are what hidden people have, family = "{LOGISTIC}", and not {family!r}: link the rows openly (docs/linkage.md says what that '
                'shows), or fit the number by model = "bayes"'
            )
            raise UsageError(msg)
        return super()._made(study, parameters, budget, formula)

    def scales(self, party: str) -> PartScales:
        """Return what decodes the means and deviations of a party's columns."""
        longest = self.limits.columns[self.parties.index(party)] / GRID
        return PartScales(self.layout_of(party), response=False, of_response=1.0, longest=longest, counted=True)

    def beside(self, party: str) -> tuple[float, ...]:
        """Return the weight of the classes at the holder of the response, which are added up with its columns; as much budget as the base rate has elsewhere."""
        if party != self.holder:
            return ()
        return (math.sqrt(SHARES["rate"] / SHARES["scales"] * max(len(self.layout.coding.attribute), 1)),)

    def with_beside(self, party: str, table: Table, steps: Ints) -> Ints:
        """Return coded rows with the classes as 1 or -1 behind them, at the holder of the response."""
        if party != self.holder:
            return steps
        y = np.concatenate([self.responses.read(block)[0] for block in table.blocks(self.responses.names)])
        return np.column_stack([steps, ((2 * y - 1) * GRID).astype(np.int64)])

    def begun(self, values: Floats, deviations: Floats) -> Begun:
        """Return the share of the second class, from the noisy total of the round of sums."""
        at = self.parties.index(self.holder)
        (sums, people), (noises, doubt) = self.sums.split(values), self.sums.split(deviations)
        people = max(people, 3 * doubt, 1.0)
        noise = float(noises[at][0][-1]) / people
        least = min(max(2 * noise, 1e-4 if noise else 1e-12), 0.25)
        share = (1 + float(sums[at][0][-1]) / people) / 2
        share = min(max(share, least), 1 - least)
        return Begun(share, share)

    def settings_from(self, standards: dict[str, Standard], begun: Begun) -> tuple[float, ...]:
        """Return the numbers that the request of second moments carries: means and deviations, and last the share of the second class."""
        return (*self.settings_of(standards), begun.mean)

    def unsure(self, people: int) -> float:
        """Return the largest deviation of a released mean of a coded column, over this many people."""
        noises, _ = self.sums.split(self.noise(COMMON))
        sizes = self.sizes.values()
        return max(float(first[:size].max(initial=0.0)) for (first, _), size in zip(noises, sizes, strict=True)) / people

    # --- rounds ------------------------------------------------------------------------------------------------------------

    @cached_property
    def shape(self) -> PlacedMoments:
        """Return the parts of rows at places, and all second moments."""
        return replace(PlacedMoments.of(self.moment_rows(), self.adjacency, self.settings + 1), arrays=self.arrays)

    @cached_property
    def pulls(self) -> ProductShape:
        """Return the parts of the rows of a round, in blocks of one hospital each."""
        return replace(self.round_products(), arrays=self.arrays)

    @cached_property
    def rounds(self) -> tuple[JointRound, ...]:
        """Return sums of people in common, their second moments, and the rounds of pulls."""
        return (JointRound(COMMON, 0, self.sums), *self.moments_and_pulls())

    def share(self, name: str) -> float:
        """Return the share of the squared budget that a joint release has, with all of its repetitions."""
        return SHARES["scales"] + SHARES["rate"] if name == COMMON else super().share(name)

    # --- at a party --------------------------------------------------------------------------------------------------------

    def deviation_coded(self, party: str, table: Table, standard: Standard, begun: Begun) -> Ints:
        """Return (p, x, products of x) of the rows of second moments."""
        rows = self.deviation_rows(party, begun).coded(table, standard)
        return placed(rows, np.ones(len(rows), dtype=np.bool_), Carried.ALL)

    def block(self, context: Context[Any], spot: Spot) -> Ints:
        """Return a block of the sender's part of the rows as integers, of zeros at places where it has nobody."""
        name, one = self.acting(context.name), self.rounds[spot.round]
        if one.name == COMMON:
            return self.at_places(context, spot, lambda table: self.sum_rows(name, table))
        standard = self.standard(context)
        if one.name not in PULLS:
            mean = float(self.asked(context)[-1])
            return self.at_places(
                context, spot, lambda table: self.deviation_coded(name, table, standard, Begun(mean, mean))
            )
        rows = self.pull_rows(name, context.kept(f"{AT}_{spot.round}").tolist(), spot.part)
        kind = self.form.coin(spot.part, holds=name == self.holder)
        own = len(rows.layout.coding.attribute)
        width = own + _TWO if rows.holds else _TWO * (own + 1)
        real = self.made_at_places(context, spot, lambda table: rows.coded(table, standard), width)
        return rows.part_of(real, context.coins("rounding", spot.round, kind), spot.first)
