"""Plans that contain plans: their shares of one budget, and their releases, steps and requests under their names (Theorem F.26)."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from unpooled.errors import UsageError
from unpooled.privacy.exposure import BETWEEN, Release, Releases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from unpooled.privacy.plan import Plan
    from unpooled.privacy.sentence import Sentence
    from unpooled.privacy.study import Study
    from unpooled.protocol.registry import Conversation, Model, Step

#: Parts that do not add up to the budget exactly are made anew with another part of it, at most so often, until they cost this part of it; a
#: guess of the right part is made a little smaller, so that it fits.
_TRIED, _ENOUGH = 12, 0.998


def within_budget(study: Study, parts: Callable[[float], dict[str, Plan]]) -> dict[str, Plan]:
    """Return the plans of all parts with the largest part of the budget at which they compose to no more than it.

    Of Gaussian releases that is all of it. Other events compose by rules that lose a little: then as much less is spent.
    """
    plans = parts(1.0)
    if math.isinf(study.epsilon):
        return plans
    scale: float = 1.0
    best: dict[str, Plan] = {}
    for tried in range(_TRIED):
        together = Releases(study, next(iter(plans.values())).split, releases_under(plans)).cost(study.unit)
        spent = together.epsilon(study.delta)
        if together.within(study.epsilon, study.delta):
            best = plans
            if scale == 1.0 or spent >= _ENOUGH * study.epsilon:
                return best
        # Nothing is proved of what costs too much, and nothing is spent where noise hides all: then half of it, or twice.
        guess = study.epsilon / spent if 0 < spent < math.inf else 0.5 if spent else 2.0
        scale = min(scale * min(guess, 2.0) * (1 - 2.0 ** (tried - 20)), 1.0)
        plans = parts(scale)
    if not best:
        raise UsageError(
            "these analyses cannot share this budget: ask for more epsilon or a larger delta, or make two studies of them"
        )
    return best


def releases_under(plans: Mapping[str, Plan]) -> tuple[Release, ...]:
    """Return the releases of all parts, with their names, steps and exposures under those of the parts."""
    return tuple(
        replace(
            release,
            name=f"{name}{BETWEEN}{release.name}",
            step=f"{name}{BETWEEN}{release.step}",
            exposure=replace(release.exposure, part=release.exposure.part and f"{name}{BETWEEN}{release.exposure.part}"),
        )
        for name, plan in plans.items()
        for release in plan.releases
    )


def union(said: Iterable[tuple[Sentence, ...]]) -> tuple[Sentence, ...]:
    """Return the sentences of all parts, each once."""
    found = {repr(sentence.identity): sentence for sentences in said for sentence in sentences}
    return tuple(found.values())


def steps_under(plan: Plan | None, load: Callable[[str], Model]) -> tuple[Step, ...]:
    """Return the steps of all parts, under their names; none without a plan."""
    return tuple(
        _under(name, step)
        for name, inner in (plan.parts if plan else {}).items()
        for model in (load(inner.study.row),)
        for step in (*model.steps, *model.more_steps(inner))
    )


@lru_cache(maxsize=4096)
def _under(name: str, step: Step) -> Step:
    """Return a step under the name of its part; remembered, for every request looks for its step."""
    return replace(
        step,
        name=f"{name}{BETWEEN}{step.name}",
        of=step.of and f"{name}{BETWEEN}{step.of}",
        times=_times(name, step.times),
    )


def _times(name: str, times: Callable[[Plan], int] | None) -> Callable[[Plan], int] | None:
    return None if times is None else lambda plan: times(plan.parts[name])


def conversation_under(name: str, conversation: Conversation) -> Conversation:
    """One conversation, whose steps have the name of the part before their own."""
    try:
        asks = next(conversation)
        while True:
            replies = yield [replace(ask, step=f"{name}{BETWEEN}{ask.step}") for ask in asks]
            asks = conversation.send(replies)
    except StopIteration as end:
        return end.value
