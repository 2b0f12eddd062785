"""Earlier models at a party: what they say of its own columns and of what it received (THEORY.md, section 11)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.inference.priors import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.models.pride.messages import Received
    from unpooled.models.pride.plan import Part, PrideDesign

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: Prior weight of being about no earlier model, chosen on shapes that nothing else was measured on (experiments/priors_pride_rule.py). Every
#: party decides by itself, from its own columns: at a half a useless model costs up to five times what it costs at this.
UNDRAWN = 0.8
#: Deviations of coefficients from an earlier model's, in roots of its mean square. Their logarithms are as far apart as those of the penalties
#: of an average, so that members with an earlier model and without one weigh alike before the response.
OFF = (1 / 8, 1 / 4, 1 / 2, 1.0)


@dataclass(frozen=True)
class Centre:
    """Earlier models at some weights, as coefficients of what a party fits on: its solution is these and a fit of what they leave."""

    weights: Vector
    #: Of the own coded columns, and of the received ones in their order.
    own: Vector
    received: Vector
    #: The mean square of a coefficient, over all parties' columns and over the others'.
    size: float
    others: float


def centres(design: PrideDesign, party: Part, received: Sequence[Received]) -> tuple[Centre, ...]:
    """Return the earlier models at every weight that is tried; none without earlier models."""
    models = design.parameters.prior
    if not models:
        return ()
    private, public = (
        {part.card.name: _coded(design, part, half) for part in design.parts} for half in ("private", "public")
    )
    blocks = [np.empty((len(models), 0))]
    for other in received:
        part = design.part(other.party)
        assert part is not None  # what it sent was read
        size = 0 if part.sketch is None else part.sketch.size
        # Columns of a sketch are mixtures of those that the models are about.
        blocks += [np.zeros((len(models), size))] * len(other.sketch) + [public[other.party]] * len(other.disclosed)
    name = party.card.name
    own, beyond = np.hstack([private[name], public[name]]), np.hstack(blocks)
    others = np.hstack([values for half in (private, public) for key, values in half.items() if key != name])
    every = np.hstack([*private.values(), *public.values()])
    return tuple(
        Centre(each, each @ own, each @ beyond, float(np.square(each @ every).mean()), _square(each @ others))
        for each in points(len(models))
        if (each @ every).any()  # the mean of opposite models says nothing
    )


def _square(values: Vector) -> float:
    return float(np.square(values).mean()) if values.size else 0.0


def _coded(design: PrideDesign, part: Part, half: str) -> Matrix:
    """Return coefficients of a party's coded columns, a row for each model; parties that hold one column share its coefficient."""
    coding = getattr(part, half)
    holders = Counter(column.name for other in design.parts for column in other.card.columns)
    shared = np.array([holders[coding.columns[j].name] for j in coding.attribute], dtype=np.float64)
    rows = rows_of(design.parameters.prior, coding.coded_names, intercept=False)
    return np.asarray(rows * coding.units[0] / np.maximum(shared, 1.0))


def points(count: int) -> list[Vector]:
    """Return the weights that are tried: each model alone at a half and at 1, and of several their mean."""
    each = np.eye(count)
    mean = [np.full(count, 1 / count)] if count > 1 else []
    return [*(each / 2), *each, *mean]


def before(centres: Sequence[Centre]) -> tuple[float, float]:
    """Return log prior weights of being about no earlier model, and about each of these."""
    return (math.log(UNDRAWN), math.log((1 - UNDRAWN) / len(centres))) if centres else (0.0, 0.0)


def loosenings(centre: Centre) -> list[tuple[float, float]]:
    """Return variances of own coefficients about an earlier model, each with the factor by which the others' vary more.

    What the model says of columns that the party cannot see is as unknown to it as they are (THEORY.md, P.14).
    """
    return [(scale, 1 + centre.others / scale) for scale in (off**2 * centre.size for off in OFF)]
