"""Label columns of a party by family: coded classes and levels, counts, censored times; unfit ones are refused in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import DataError
from unpooled.kernels.survival import PartialLikelihood
from unpooled.models.pride.levels import places
from unpooled.privacy.classes import code

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.pride.parameters import Parameters
    from unpooled.privacy.table import Table

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]


def response_of(parameters: Parameters, table: Table) -> NDArray[np.float64]:
    """Return the response as the family takes it: a number a row, or a row of them; refused with :class:`DataError` if it is none of it."""
    law = parameters.law
    if parameters.is_joint and parameters.has_classes:
        return places(table[parameters.response], parameters.classes, parameters.response)[:, None]
    if parameters.has_classes:
        return np.asarray(code(table[parameters.response], parameters.classes, parameters.response), dtype=np.float64)
    columns = [table[name] for name in parameters.labels]
    for name, values in zip(parameters.labels, columns, strict=True):
        if values.dtype == object:
            msg = f"column {name!r} holds text: a regression's response is numbers"
            raise DataError(msg).at(column=name)
    found = np.column_stack(columns).astype(np.float64) if parameters.is_joint else np.asarray(columns[0], dtype=np.float64)
    if parameters.publish and parameters.response_bound is not None:
        found = np.clip(found, -parameters.response_bound, parameters.response_bound)
    try:
        law.check(found)
    except ValueError as error:
        msg = f"column {parameters.response!r}: {error}"
        raise DataError(msg).at(column=parameters.response) from None
    return found


def baseline(response: Matrix, decisions: Vector) -> tuple[Vector, Vector]:
    """Return Breslow's baseline of censored times: the times of events, and the cumulative hazard up to each where the decision is 0."""
    loss = PartialLikelihood(response[:, 0], response[:, 1])
    return loss.event_times, np.cumsum(loss.hazards(decisions))
