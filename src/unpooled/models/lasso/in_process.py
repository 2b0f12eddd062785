"""Results for an estimator of parties in one process: coefficients in place, iterates, and the noise-free duality gap."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UtilityWarning
from unpooled.estimation.tables import RESPONSE
from unpooled.kernels.columns import Columns, scores
from unpooled.models.lasso.coordinator import stepped
from unpooled.models.lasso.declared import Coupling
from unpooled.privacy.bounds import Coding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.models.lasso.messages import Slot
    from unpooled.models.lasso.plan import LassoDesign
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Study
    from unpooled.privacy.table import Table

    Vector = NDArray[np.float64]


def bound_of(radius: float | None, half_range: float, renamed: Mapping[str, str], *, stacklevel: int) -> dict[str, float]:
    """Return the study's parameter for a radius that a Python call names, and warn where the number meant something else in version 0.2.0."""
    if radius is None:
        return {}
    name = renamed.get("radius", "radius")
    if name != "radius" and half_range != 1:
        warnings.warn(
            f"radius is in half ranges of y: radius={radius:g} is {radius * half_range:g} in units of y. Until version 0.2.0 it was in units of y: "
            f"for the same bound as then pass radius={radius / half_range:g}, or leave it out and the noise sets a penalty",
            FutureWarning,
            stacklevel=stacklevel + 1,
        )
    return {name: float(radius)}


def warn_if_full(result: Any, stacklevel: int) -> None:  # noqa: ANN401 - a LassoResult
    """Warn of a fit that its radius limits, and of one of joint moments whose noise leaves no coefficient."""
    if result.moments is not None and not result.terms:
        warnings.warn(
            "Noise hides what columns explain, so this fit is no more than a mean: ask for more epsilon, more rows or fewer columns.",
            UtilityWarning,
            stacklevel=stacklevel + 1,
        )
    if result.binds:
        warnings.warn(
            "The coefficients fill the ball that the radius allows, so the radius limits this fit: pass a larger radius, "
            'or radius=None with method="moments" for a fit that needs none. It is fitted.',
            UtilityWarning,
            stacklevel=stacklevel + 1,
        )


def duality_gap(design: LassoDesign, study: Study, tables: dict[str, Table], terms: dict[tuple[str, int], float]) -> float:
    """<x - s, g> for the best vertex s: at least the distance of the objective to its minimum (Frank-Wolfe's gap)."""
    coded = {card.name: _coded(card.columns, tables[card.name]) for card in study.parties}
    residual = -np.asarray(tables[study.parties[0].name][RESPONSE])
    for (party, column), value in terms.items():
        residual = residual + value * coded[party].column(column)
    if design.centres:
        residual -= residual.mean()
    slopes = {party: scores(matrix, None, residual) / residual.size for party, matrix in coded.items()}
    descent = sum(value * slopes[party][column] for (party, column), value in terms.items())
    steepest = [float(np.abs(slope).max()) for slope in slopes.values()]
    best = max(steepest) if design.coupling is Coupling.BALL else math.fsum(steepest)
    return float(descent + design.radius(study) * best)


def walked(radius: Any, path: Any) -> list[dict[tuple[str, int], float]]:  # noqa: ANN401 - one or a radius per party, a tuple of steps
    """Return the iterates of the rounds."""
    iterate: dict[Slot, float] = {}
    iterates = []
    for step in path:
        iterate = stepped(iterate, step.vertices, step.gamma, radius)
        iterates.append({(place.party, place.column): value for place, value in iterate.items()})
    return iterates


def in_place(study: Study, columns: tuple[Column, ...], result: Any) -> Vector:  # noqa: ANN401 - a Result
    """All coefficients, in the order of X's coded columns."""
    starts = _starts(columns)
    at = {column.name: int(i) for column, i in zip(columns, starts, strict=False)}
    places = {card.name: _starts(card.columns) for card in study.parties}
    found = np.zeros(starts[-1])
    for term, coefficient in zip(result.terms, result.coefficients, strict=True):
        own = places[term.party]
        i = int(np.searchsorted(own, term.column, side="right")) - 1
        found[at[study.card(term.party).columns[i].name] + term.column - own[i]] = coefficient.value
    return found


def _starts(columns: tuple[Column, ...]) -> NDArray[np.intp]:
    """Where the coded columns of every declared column begin, and how many there are in all."""
    attribute = np.array(Coding(columns, 1).attribute)
    return np.searchsorted(attribute, np.arange(len(columns) + 1))


def _coded(columns: tuple[Column, ...], table: Table) -> Columns:
    coding = Coding(columns, 1 << 40)
    sparse = table.sparse(coding.names)
    if sparse is not None:
        coded = coding.code_sparse(sparse)
        coded.data /= coding.grid
        return Columns.of(coded)
    return Columns.of(coding.real([table[name] for name in coding.names]))
