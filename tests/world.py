"""What several test files share."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections import Counter

import numpy as np

from unpooled.privacy.accounting import Composition
from unpooled.privacy.exposure import Worst
from unpooled.privacy.mechanisms import Objective, Scores, Summand, Vector
from unpooled.privacy.plan import Plan
from unpooled.privacy.unit import Split, Unit

#: `make test-full`: statistical tests, audits and random searches at full size; `make test` runs the same assertions on less.
FULL = os.environ.get("UNPOOLED_FULL") == "1"


def sized(full: int, reduced: int) -> int:
    """How often to repeat what may be repeated less in `make test`."""
    return full if FULL else reduced


# --- the truth, worked out the slow way ------------------------------------------------------------------------------------


def truth(plan: Plan, made: Counter[tuple[str, str]], unit: Unit, people: str, own: bool) -> list[Composition]:
    """What was released so far costs, for everything that may change about somebody in the rows of the party ``people``."""
    parts = {r.exposure.part for r in plan.releases} - {""} or {""}
    everywhere = {card.name for card in plan.study.parties}
    known = everywhere if plan.split is Split.VERTICAL else {people}
    places: list[tuple[set[str], bool]] = []
    if unit is Unit.RECORD:
        places.append((known, False))
    else:
        for column in plan.study.card(people).columns:
            holders = {c.name for c in plan.study.parties if column in c.columns}
            places.append((holders & known if plan.split is Split.VERTICAL else known, False))
        places.append((known, True))
    found = []
    for (holders, label), part in itertools.product(places, parts):
        events = []
        for release in plan.releases:
            counted = made[release.party, release.name]
            if release.party not in holders or (own and release.party != people) or not counted:
                continue
            if release.exposure.part not in {"", part} or (label and release.exposure.label is None):
                continue
            event = release.exposure.label if label else release.mechanism.event(unit)
            touched = counted if unit is Unit.RECORD or release.exposure.per_value is None else release.exposure.per_value
            events.append(dataclasses.replace(event, count=event.count * min(counted, touched)))
        found.append(Composition(events))
    return found


def respects(composition: Composition) -> np.ndarray:
    """The numbers in which every curve of a composition grows (of tails that are alike but for their size)."""
    plain = [composition.mu, composition.pure_epsilon, composition.rho, composition._rho_only, composition.total_variation]
    tails = composition._tails.items()
    sums = [sum(count * max(m for _, m in tail) ** power for tail, count in tails) for power in (1, 2)]
    return np.array([*plain, composition._constants, *sums])


def covered(one: Composition, by: Worst) -> bool:
    """Whether some alternative of an account costs at least as much in every respect, and so at every epsilon and delta."""
    return any((respects(other) >= respects(one) * (1 - 1e-9)).all() for other in by.compositions)


# --- mechanisms, as tests call them ----------------------------------------------------------------------------------------


def drawn(mechanism, values, bits, sensitivity=None):
    """What a vector becomes."""
    return mechanism.draw(Vector(values, sensitivity), bits)


def summed(mechanism, values, bits):
    """What goes into a total."""
    return mechanism.draw(Summand(values, lambda *_: ()), bits)


def chosen(mechanism, scores, sensitivity, bits, *, signed=False):
    """The index that is chosen."""
    return int(mechanism.draw(Scores(scores, sensitivity, signed), bits)[0])


def minimised(mechanism, solve, bits):
    """The minimiser that is released."""
    return mechanism.draw(Objective(solve), bits)
