"""A study put on as often as an attack needs: compiled once, its parties made anew for every run, ended after the last draw."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.audit.witness import Acts, watched
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import Objective
from unpooled.privacy.noise import KeySource, Stream
from unpooled.privacy.policy import Policy
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.party import Party

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from unpooled.audit.witness import Act
    from unpooled.privacy.plan import Study
    from unpooled.privacy.study import Card, HelperCard
    from unpooled.privacy.table import Table
    from unpooled.protocol.messages import Ask, Dropped
    from unpooled.protocol.step import Model


class FrozenKeys(KeySource):
    """Keys that do not depend on the released content, so that two data sets meet the same noise. Audits only."""

    def stream(self, *names: str | int | bytes, content: bytes = b"") -> Stream:  # noqa: ARG002 - that is the point
        """Return the stream of these names, whatever the content."""
        return super().stream(*names)


@dataclass(frozen=True, slots=True)
class StagedRun:
    """A study as it was run: over which tables, what every party did, and what it was asked."""

    tables: Mapping[str, Table]
    seed: int
    frozen: bool
    acts: dict[str, list[Act]]
    asked: dict[str, list[bytes]]


class Stage:
    """One study and its model, for any number of runs over any tables."""

    def __init__(self, model: Model, study: Study, registry: Callable[[str], Model]) -> None:
        self.study = msgspec.structs.replace(study, simulation_seed=None)
        self._acts: dict[str, Acts] = {}
        self._model = watched(model, self._acts)
        self._registry = registry
        self.plan = self._model.compile(self.study)
        self._planned = sum(release.count for release in self.plan.releases)

    def run(self, tables: Mapping[str, Table], seed: int, *, frozen: bool = False) -> StagedRun:
        """Return one run with root keys that follow from ``seed`` and the party's name. With ``frozen`` noise, other tables meet the same."""
        parties = {card.name: self._party(card, tables[card.name], seed, frozen=frozen) for card in self.study.members}
        exchange, asked = in_process(parties), {name: list[bytes]() for name in parties}

        def until_all_is_released(batch: list[tuple[Ask, bytes]]) -> list[bytes | Dropped]:
            """Stop a run after its last release: the coordinator's later replies are no draws, and take most of a run's time."""
            for ask, request in batch:
                asked[ask.to].append(request)
            answers = exchange(batch)
            if sum(len(noted.done) for noted in self._acts.values()) >= self._planned:
                raise _AllIsReleasedError
            return answers

        with suppress(_AllIsReleasedError):
            drive(self._model, self.plan, until_all_is_released)
        return StagedRun(tables, seed, frozen, {name: noted.done for name, noted in self._acts.items()}, asked)

    def acts(self, tables: Mapping[str, Table], seed: int, *, frozen: bool = False) -> dict[str, list[Act]]:
        """Return the acts of every party in one run."""
        return self.run(tables, seed, frozen=frozen).acts

    def beside(self, run: StagedRun, tables: Mapping[str, Table]) -> dict[str, list[Act]]:
        """Return the acts of parties with other tables at the same requests, their steps handed the run's releases; other parties keep their acts."""
        acts = dict(run.acts)
        for card in self.study.parties:
            if tables[card.name] is not run.tables[card.name]:
                party = self._party(card, tables[card.name], run.seed, frozen=run.frozen, recorded=run.acts[card.name])
                for request in run.asked[card.name]:
                    party.answer(request)
                acts[card.name] = self._acts[card.name].done
        return acts

    def _party(
        self, card: Card | HelperCard, table: Table, seed: int, *, frozen: bool, recorded: Sequence[Act] = ()
    ) -> Party:
        self._acts[card.name] = Acts(tuple(recorded))
        ledger = Ledger.in_memory(sha256(f"{seed} {card.name}".encode()).digest())
        keys = (FrozenKeys if frozen else KeySource)(ledger.root_key)
        return Party(card.name, table, card, ledger, keys, Policy.in_process(), self._known)

    def again(self, acts: Mapping[str, Sequence[Act]], seed: int) -> dict[str, list[Act]]:
        """Fresh draws from what the mechanisms were given in a run: all that differs from run to run where requests tell nothing of earlier releases."""
        drawn = {}
        for party, done in acts.items():
            noted = self._acts[party] = Acts()
            keys = KeySource(sha256(f"{seed} {party}".encode()).digest())
            for place, act in enumerate(done):
                self.plan.release(party, act.release).mechanism.draw(act.given, keys.stream("again", place))
            drawn[party] = noted.done
        return drawn

    def _known(self, name: str) -> Model:
        return self._model if name == self._model.name else self._registry(name)


class _AllIsReleasedError(Exception):
    """Ends a run of which only the draws are wanted."""


def same_given(ours: Mapping[str, Sequence[Act]], theirs: Mapping[str, Sequence[Act]]) -> bool:
    """Return True if the mechanisms of two runs were given the same, bit for bit."""
    return all(
        len(acts) == len(theirs[party])
        and all(_exact(one) == _exact(two) for one, two in zip(acts, theirs[party], strict=True))
        for party, acts in ours.items()
    )


def _exact(act: Act) -> tuple[str, bytes]:
    given = act.given
    numbers = given.solve(np.zeros(act.mechanism.size)) if isinstance(given, Objective) else given.values
    return act.release, np.ascontiguousarray(numbers).tobytes()


__all__ = ["FrozenKeys", "Stage", "StagedRun", "same_given"]
