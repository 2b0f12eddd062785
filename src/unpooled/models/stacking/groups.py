"""Who holds what where nobody says so: groups of columns, of falling importance or random, and groups of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def weighed(
    groups: Mapping[str, list[str]], names: Sequence[str], importance: object, *, seed: int | None
) -> tuple[dict[str, list[str]], dict[str, float]]:
    """Return columns and importance of every party; no seed where the caller named the parties, else the columns are dealt."""
    if seed is None:
        given = {} if importance is None else importance
        if not isinstance(given, Mapping):
            raise UsageError("where parties are named, importance is a mapping from their names to public numbers")
        return dict(groups), {party: float(q) for party, q in given.items()}
    if importance is None:
        order = np.random.default_rng(seed).permutation(len(names))
        weight = np.ones(len(names))
    else:
        weight = np.asarray(importance, dtype=float)
        if weight.shape != (len(names),) or not (np.isfinite(weight).all() and weight.min() >= 0 and weight.max() > 0):
            raise UsageError("importance holds one public number >= 0 for every column, not all of them 0")
        order = np.argsort(-weight, kind="stable")
    places = {f"group{k}": own for k, own in enumerate(np.array_split(order, len(groups)))}
    held = {group: [names[j] for j in own] for group, own in places.items()}
    if importance is None:
        return held, {}
    return held, {group: float(weight[own].sum()) for group, own in places.items()}


def dealt(rows: int, groups: int, seed: int, *, last: float | None = None) -> list[str]:
    """Return for every row the one of ``groups`` random groups that it is dealt to; ``last``: the share of the last one, where it has its own."""
    order = np.random.default_rng(seed).permutation(rows)
    if last is None:
        order %= groups
    else:
        low = rows - round(rows * last)
        order = np.where(order < low, order % (groups - 1), groups - 1)
    return [f"group{k:03d}" for k in order.tolist()]
