"""A study put on as often as an attack needs: compiled once, its parties made anew for every run, ended after the last draw.

An attacker sees totals. So of a total modulo a prime, whose shares are uniform whatever the data are, the acts of a run hold parts that add up to
it: the total itself and the first holder's noise, and of every other holder the noise alone.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.aggregation.secure_sum import opened
from unpooled.audit.witness import Acts, watched
from unpooled.kernels import field as field_arithmetic
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import Contribution, FieldGaussian, Objective, Summand
from unpooled.privacy.noise import KeySource, Stream
from unpooled.privacy.policy import Policy
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.party import Party

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

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
    #: The acts as their parties did them, with shares.
    own: dict[str, list[Act]]


class Stage:
    """One study and its model, for any number of runs over any tables."""

    def __init__(
        self, model: Model, study: Study, registry: Callable[[str], Model], keys: Callable[[bytes], KeySource] = KeySource
    ) -> None:
        """``keys`` makes the source of a party's keys from its root key."""
        self.keys = keys
        self.study = msgspec.structs.replace(study, simulation_seed=None)
        self._acts: dict[str, Acts] = {}
        self._model = watched(model, self._acts)
        self._registry = registry
        self.plan = self._model.compile(self.study)
        self._planned = sum(release.count for release in self.plan.releases)

    def run(self, tables: Mapping[str, Table], seed: int, *, frozen: bool = False) -> StagedRun:
        """Return one run with root keys that follow from ``seed`` and the party's name. With ``frozen`` noise, other tables meet the same."""
        parties = {card.name: self._party(card, tables[card.name], seed, frozen=frozen) for card in self.study.members}
        asked = self._driven(parties)
        own = {name: noted.done for name, noted in self._acts.items()}
        return StagedRun(tables, seed, frozen, with_totals(own), asked, own)

    def _driven(self, parties: dict[str, Party]) -> dict[str, list[bytes]]:
        """Run the study with these parties, and return what each of them was asked."""
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
        return asked

    def acts(self, tables: Mapping[str, Table], seed: int, *, frozen: bool = False) -> dict[str, list[Act]]:
        """Return the acts of every party in one run."""
        return self.run(tables, seed, frozen=frozen).acts

    def beside(self, run: StagedRun, tables: Mapping[str, Table]) -> dict[str, list[Act]]:
        """Return the acts of parties with other tables at the same requests, their steps handed the run's releases; other parties keep their acts."""
        if self.plan.joint or any(isinstance(act.mechanism, Contribution) for done in run.own.values() for act in done):
            # What is entrusted or masked is no release, and goes on into requests: the whole study runs again, with the same releases.
            everybody = {**run.tables, **tables}
            self._driven({card.name: self._again(run, card, everybody[card.name]) for card in self.study.members})
            return with_totals({name: noted.done for name, noted in self._acts.items()})
        acts = dict(run.acts)
        for card in self.study.parties:
            if tables[card.name] is not run.tables[card.name]:
                party = self._again(run, card, tables[card.name])
                for request in run.asked[card.name]:
                    party.answer(request)
                acts[card.name] = self._acts[card.name].done
        return acts

    def _again(self, run: StagedRun, card: Card | HelperCard, table: Table) -> Party:
        return self._party(card, table, run.seed, frozen=run.frozen, recorded=run.own[card.name])

    def _party(
        self, card: Card | HelperCard, table: Table, seed: int, *, frozen: bool, recorded: Sequence[Act] = ()
    ) -> Party:
        self._acts[card.name] = Acts(tuple(recorded), entrusts=True)
        ledger = Ledger.in_memory(sha256(f"{seed} {card.name}".encode()).digest())
        keys = FrozenKeys(ledger.root_key) if frozen else self.keys(ledger.root_key)
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


def with_totals(acts: Mapping[str, Sequence[Act]]) -> dict[str, list[Act]]:
    """Return the acts with the total in place of the first holder's share, and nothing in place of the others': noise stays where it is."""
    found = {party: list(done) for party, done in acts.items()}
    shares = defaultdict[tuple[str, int], list[tuple[str, int]]](list)
    for party, done in acts.items():
        counted = defaultdict[str, int](int)
        for place, act in enumerate(done):
            if isinstance(act.mechanism, FieldGaussian):
                shares[act.release, counted[act.release]].append((party, place))
                counted[act.release] += 1
    for holders in shares.values():
        given = [given for party, place in holders if isinstance(given := acts[party][place].given, Summand)]
        total = total_of([share.values for share in given])
        for (party, place), share in zip(holders, given, strict=True):
            act = acts[party][place]
            noise = act.gave - share.values
            found[party][place] = replace(act, given=replace(share, values=total), gave=total + noise)
            total = np.zeros_like(total)
    return found


def total_of(shares: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the total of which these are shares modulo the prime."""
    return opened([field_arithmetic.encode(share) for share in shares], prime=True)


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


__all__ = ["FrozenKeys", "Stage", "StagedRun", "same_given", "total_of", "with_totals"]
