"""A study put on as often as an attack needs, with a witness of every mechanism: what it was given, what it drew, and the share of its declaration that two acts use."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.kernels import field as field_arithmetic
from unpooled.privacy.events import Event, Kind
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import (
    Contribution,
    FieldGaussian,
    GaussianObjective,
    NoisyChoice,
    Objective,
    ObjectivePerturbation,
    ScaledGaussian,
    Scores,
    Summand,
    Vector,
)
from unpooled.privacy.noise import KeySource, Stream
from unpooled.privacy.policy import Policy
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.party import Party
from unpooled.totals.secure_sum import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.mechanisms import Given, Mechanism
    from unpooled.privacy.noise import RandomBits
    from unpooled.privacy.plan import Plan, Release, Study
    from unpooled.privacy.study import Card, HelperCard
    from unpooled.privacy.table import Table
    from unpooled.privacy.unit import Unit
    from unpooled.protocol.messages import Ask, Dropped
    from unpooled.protocol.registry import Model

    Floats = NDArray[np.float64]
    Solver = Callable[[Floats], Floats]


# --- Violation -------------------------------------------------------------------------------------------------------------
# Violations that an audit found.


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that moved where it must not, or farther than declared, was not debited, or left a party unreleased. Holds no data value."""

    unit: Unit
    party: str
    where: str
    what: str


# --- Witness ---------------------------------------------------------------------------------------------------------------
# Witnesses of every mechanism of a replayed study, with its input and output: the exact statistic, scores, objective and perturbation.
#
# Witnesses stand in a model's plans in place of the mechanisms. Hashes and costs stay what they are.


@dataclass(frozen=True, slots=True, eq=False)
class Act:
    """One draw of a planned release."""

    release: str
    mechanism: Mechanism
    given: Given
    gave: NDArray[Any]
    #: Of an objective: the linear term that its mechanism drew.
    perturbation: NDArray[np.float64] | None = None


@dataclass(slots=True)
class Acts:
    """The acts of one party, in order; and those recorded in another world, which its steps are handed instead of their own.

    What a party does next is a function of what it has released. With equal releases in both worlds each act is compared under
    the condition on which adaptive composition rests, although a party may keep a release to itself.
    """

    recorded: tuple[Act, ...] = ()
    #: Whether what is entrusted to an aggregator, which is no release, goes on as it is in this world.
    entrusts: bool = False
    done: list[Act] = field(default_factory=list)

    def note(self, act: Act) -> NDArray[Any]:
        """Write an act down; what its step is handed."""
        at = len(self.done)
        self.done.append(act)
        if self.entrusts and isinstance(act.mechanism, Contribution):
            return act.gave
        same = at < len(self.recorded) and self.recorded[at].release == act.release
        return self.recorded[at].gave if same and self.recorded[at].gave.shape == act.gave.shape else act.gave


def _watching(mechanism: Mechanism, release: str, acts: Callable[[], Acts]) -> Mechanism:
    """Return the same mechanism, of a class of its own, which also writes down each draw."""
    kind = type(mechanism)

    def draw(self: Mechanism, given: Given, bits: RandomBits) -> NDArray[Any]:
        del self
        terms: list[NDArray[np.float64]] = []
        asked = given
        if isinstance(given, Objective):
            solve = given.solve

            def noted(term: NDArray[np.float64]) -> NDArray[Any]:
                terms.append(np.copy(term))
                return solve(term)

            asked = replace(given, solve=noted)
        gave = mechanism.draw(asked, bits)
        return acts().note(Act(release, mechanism, given, gave, terms[0] if terms else None))

    made: Mechanism = object.__new__(
        type(kind.__name__, (kind,), {"draw": draw, "describe": lambda _: mechanism.describe()})
    )
    for each in dataclasses.fields(mechanism):  # type: ignore[arg-type]
        object.__setattr__(made, each.name, getattr(mechanism, each.name))
    return made


def watched(model: Model, written: Mapping[str, Acts]) -> Model:
    """Return the model with witnesses in its plans, which write to the list of the party that draws.

    A plan is a function of its study alone, so each is compiled once, not anew for every neighbour.
    """
    plans: dict[bytes, Plan] = {}

    def watch(release: Release) -> Release:
        return replace(release, mechanism=_watching(release.mechanism, release.name, lambda: written[release.party]))

    def compile_plan(study: Study) -> Plan:
        asked = msgspec.msgpack.encode(study)
        if asked not in plans:
            plan = model.compile(study)
            releases = tuple(watch(release) for release in plan.releases)
            plans[asked] = _with(plan, releases)
        return plans[asked]

    return replace(model, compile_plan=compile_plan)


def _with(plan: Plan, releases: tuple[Release, ...]) -> Plan:
    """Return a plan with these releases, and its parts with their mechanisms: parties draw from those of the parts, whose releases come first."""
    left = iter(releases)
    parts = {
        name: _with(inner, tuple(replace(own, mechanism=next(left).mechanism) for own in inner.releases))
        for name, inner in plan.parts.items()
    }
    return replace(plan, releases=releases, parts=parts)


# --- Minimisers ------------------------------------------------------------------------------------------------------------
# The privacy loss of a minimiser that is published: the ratio of its densities over two neighbouring data sets, at what was drawn.
#
# With w the minimiser for the perturbation b, and b' the one for which the other data have the same w, it is
#
# .. math:: \log\frac{p(b)}{p(b')} + \log\frac{|\partial w'/\partial b'|}{|\partial w/\partial b|}

#: Objectives of more numbers than this are left to the tests of their mechanism: every column costs solutions on both sides.
MOST_COLUMNS = 12
#: Steps of Newton's method at most, after how many its slopes are old, and where it may stop: in units of the noise.
_STEPS, _STALE, _CLOSE = 60, 6, 1e-6
#: A difference quotient's width in units of the noise.
_WIDTH = 1e-3


def same_minimiser(one: Act, other: Act) -> tuple[list[tuple[Floats, Floats]], float] | None:
    """For every fit (b, b'), and the logarithm of the determinants' ratio; None if no perturbation leads to the same minimiser.

    Then the other world's minimiser is another function of its perturbation altogether.
    """
    mechanism = one.mechanism
    assert isinstance(mechanism, ObjectivePerturbation)
    assert isinstance(other.given, Objective)
    assert one.perturbation is not None
    wanted, slopes = _recorded(one)
    same = _perturbation_for(other.given.solve, wanted, one.perturbation, slopes, mechanism.scale)
    if same is None:
        return None
    determinants = _log_determinant(_jacobian(other.given.solve, same, mechanism.scale)) - _log_determinant(slopes)
    parts = [np.split(term, mechanism.fits) for term in (one.perturbation, same)]
    return list(zip(*parts, strict=True)), determinants


@lru_cache(maxsize=256)
def _recorded(act: Act) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the minimiser that was drawn, without what covers its residual, and its Jacobian: the same for every neighbour."""
    assert isinstance(act.given, Objective)
    assert act.perturbation is not None
    assert act.mechanism.scale is not None
    return act.given.solve(act.perturbation), _jacobian(act.given.solve, act.perturbation, act.mechanism.scale)


def _perturbation_for(
    solve: Solver, wanted: NDArray[np.float64], start: NDArray[np.float64], slopes: NDArray[np.float64], noise: float
) -> NDArray[np.float64] | None:
    """Return the perturbation whose minimiser is ``wanted``, by steps along another world's slopes: one row more or less changes them little.

    Where it changes them much, they are worked out anew every few steps.
    """
    term = start
    for k in range(_STEPS):
        if k % _STALE == _STALE - 1:
            slopes = _jacobian(solve, term, noise)
        try:
            step = np.linalg.solve(slopes, wanted - solve(term))
        except np.linalg.LinAlgError:
            return None
        term = term + step
        if np.linalg.norm(step) <= _CLOSE * noise:
            return term
    return None


def _jacobian(solve: Solver, term: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """Return the Jacobian of the minimiser in the perturbation."""
    width = _WIDTH * noise
    ends = np.eye(term.size) * width
    return np.column_stack([(solve(term + end) - solve(term - end)) / (2 * width) for end in ends])


def _log_determinant(slopes: NDArray[np.float64]) -> float:
    return float(np.linalg.slogdet(slopes).logabsdet)


# --- Shares ----------------------------------------------------------------------------------------------------------------
# Distance of two acts of one mechanism, with equal noise and on neighbouring data, as a part of what is declared.
#
# Vectors and parts of totals move by a distance, scores by the largest difference of one, and a minimiser by its privacy loss
# (:mod:`unpooled.audit.stage`): it must stay below a pure claim; of a Gaussian one the perturbations' distance and the determinants are each
# held against their own bound (S.11).

#: What difference quotients make of a loss of nothing.
_STILL = 1e-4


def share(one: Act, other: Act, declared: Event) -> float | None:
    """Return the part of what is declared by which two acts differ; None where nothing is declared or it cannot be measured."""
    mechanism = one.mechanism
    if declared.kind is Kind.UNBOUNDED:
        return None
    if isinstance(mechanism, ObjectivePerturbation):
        return _objective(one, other, declared)
    moved = mechanism.change(one.gave, other.gave)
    if isinstance(mechanism, NoisyChoice):
        moved = _choice(mechanism, one, other)
    if isinstance(mechanism, ScaledGaussian):
        moved = _scaled(mechanism, one, other)
    if moved is None:
        return None
    if not declared.value:
        return math.inf if moved else 0.0
    return moved / declared.value


def _choice(mechanism: NoisyChoice, one: Act, other: Act) -> float:
    """Return the epsilon of a choice whose scores moved so far."""
    ours, theirs = one.given, other.given
    assert isinstance(ours, Scores)
    assert isinstance(theirs, Scores)
    if (ours.sensitivity, ours.signed, ours.values.shape) != (theirs.sensitivity, theirs.signed, theirs.values.shape):
        return math.inf  # public by now, so the same in both worlds
    farthest = int(np.abs(ours.values - theirs.values).max())
    return dict(mechanism.epsilon)[mechanism.unit] * farthest / ours.sensitivity


def _scaled(mechanism: ScaledGaussian, one: Act, other: Act) -> float:
    """Return the mu of a vector that moved so far."""
    ours, theirs = one.given, other.given
    assert isinstance(ours, Vector)
    assert isinstance(theirs, Vector)
    if ours.sensitivity != theirs.sensitivity or ours.sensitivity is None:
        return math.inf
    return float(np.linalg.norm(ours.values - theirs.values)) / (mechanism.multiplier * ours.sensitivity)


def _objective(one: Act, other: Act, declared: Event) -> float | None:
    mechanism = one.mechanism
    assert isinstance(mechanism, ObjectivePerturbation)
    if mechanism.size > MOST_COLUMNS:
        return None
    found = same_minimiser(one, other)
    if found is None:
        return math.inf
    parts, determinants = found
    if declared.tails and isinstance(mechanism, GaussianObjective):
        farthest = max(float(np.linalg.norm(a - b)) for a, b in parts) / mechanism.scale
        bend = mechanism.fits * (declared.value - mechanism.covering)
        return max(farthest / declared.tails[0][1], abs(determinants) / bend if bend else 0.0)
    pulled = math.fsum(float(np.linalg.norm(b) - np.linalg.norm(a)) for a, b in parts) / mechanism.scale
    loss = abs(pulled + determinants)
    if not declared.value:
        return math.inf if loss > _STILL else 0.0
    return loss / (declared.value * declared.count)


# --- Stage -----------------------------------------------------------------------------------------------------------------
# A study put on as often as an attack needs: compiled once, its parties made anew for every run, ended after the last draw.
#
# An attacker sees totals. So of a total modulo a prime, whose shares are uniform whatever the data are, the acts of a run hold parts that add up to
# it: the total itself and the first holder's noise, and of every other holder the noise alone.


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


__all__ = [
    "MOST_COLUMNS",
    "Act",
    "Acts",
    "FrozenKeys",
    "Stage",
    "StagedRun",
    "Violation",
    "same_given",
    "same_minimiser",
    "share",
    "total_of",
    "watched",
    "with_totals",
]
