"""A search for the worst neighbour of every release, guided by how far each one moved.

Every release has its own farthest neighbour so far. A step changes one value of the farthest of all, or of that of the release that is farthest below its
bound and was taken least often, in turn; and keeps what moves any release farther than before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.audit.neighbours import changed_once, searchable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np

    from unpooled.audit.neighbours import Change
    from unpooled.privacy.plan import Plan
    from unpooled.privacy.unit import Unit

#: A release, as (party, name).
Key = tuple[str, str]
#: How far each release moved at most, as a part of its bound, and which change moved it so far.
Found = dict[Key, tuple[float, "Mapping[str, Change]"]]


def searched(
    plan: Plan,
    compare: Callable[[Mapping[str, Change]], Mapping[Key, float]],
    tried: Iterable[Mapping[str, Change]],
    unit: Unit,
    rng: np.random.Generator,
    rounds: int,
) -> Found:
    """Return the farthest neighbour of every release: among those that are tried, and after ``rounds`` steps from the farthest so far."""
    best: Found = {}

    def note(changes: Mapping[str, Change]) -> None:
        for key, part in compare(changes).items():
            if part > best.get(key, (0.0, {}))[0]:
                best[key] = (part, dict(changes))

    for changes in tried:
        note(changes)
    taken: list[Key] = []
    for step in range(rounds):
        keys = sorted(
            (key for key in best if searchable(plan, best[key][1])), key=lambda key: (taken.count(key), best[key][0])
        )
        if not keys:
            break
        key = keys[0] if step % 2 else max(keys, key=lambda key: best[key][0])
        taken += [key] * (step % 2)
        note(changed_once(plan, best[key][1], unit, rng))
    return best


__all__ = ["Found", "searched"]
