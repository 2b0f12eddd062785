r"""Attacks from the literature on a whole study: how often they are right without noise, as released, and as often as the claim allows.

- **Membership** and **attribute inference** by likelihood ratio (Carlini and others 2022), in their strongest form: the attacker knows everybody else, both
  possible values, and the noise's law.
- **Tracing** (Homer and others 2008; Dwork and others 2015): the attacker knows the person and the population, nobody's rows else, and projects
  what was released, less what it expects, on what the person would add.
- **Differencing**: of two totals, of all and of all but one person, who is then what they differ by.

Every figure is a share of right answers to a question with two answers, equally often true; a half is a guess.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.audit.likelihood import LikelihoodRatio
from unpooled.audit.neighbours import changed_tables, corner
from unpooled.audit.stage import Stage
from unpooled.privacy.household import BoundedTable
from unpooled.privacy.mechanisms import ScaledGaussian, Summand, Vector
from unpooled.privacy.unit import Adjacency, Split, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.audit.witness import Act
    from unpooled.privacy.plan import Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.step import Model

    Tables = dict[str, Table]
    Numbers = NDArray[np.float64]

#: Draws of the population from which a tracer learns what to expect.
_POPULATION = 40
_HALF = 0.5


@dataclass(frozen=True)
class Power:
    """The success rate of an attack."""

    attack: str
    #: What the attacker wants to know.
    question: str
    #: Of exact statistics, and of what is released.
    without_noise: float
    as_released: float
    #: The largest share that the claim lets any attack have.
    allowed: float
    runs: int

    @property
    def refutes(self) -> bool:
        """Return True if luck (once in a million) does not explain that the attack is right more often than allowed."""
        from scipy.stats import binom

        right = round(self.as_released * self.runs)
        return bool(self.allowed < 1 and binom.sf(right - 1, self.runs, self.allowed) < 1e-6)  # noqa: PLR2004


class _Field:
    """A study, its made-up people, and which of them is attacked."""

    def __init__(
        self, model: Model, study: Study, population: Callable[[int], Tables], registry: Callable[[str], Model], runs: int
    ) -> None:
        self.model, self.population, self.runs = model, population, runs
        self.tables = population(0)
        self.stage = Stage(model, study, registry)
        self.plan = self.stage.plan
        self.unit = next(unit for unit in (Unit(self.plan.study.unit), *self.plan.units) if unit in self.plan.units)
        self.zero_out = self.plan.study.adjacency == Adjacency.ZERO_OUT
        cards = self.plan.study.parties
        #: A person is a row of every party where columns are split, of one where rows are.
        self.cards = cards if self.plan.split is Split.VERTICAL else cards[:1]
        self.seeds = itertools.count(1)
        self.fixed = _fixed(self)

    def person(self, tables: Tables) -> dict[str, Any]:
        """Return the first person's rows (of a household all), with the responses where they are covered."""
        found: dict[str, Any] = {}
        for card in self.cards:
            table = tables[card.name]
            labels = card.labels if self.unit in self.model.covers_labels else ()
            names = [*(column.name for column in card.columns), *labels]
            if isinstance(table, BoundedTable):
                found[card.name] = table.first()
            else:
                found[card.name] = {name: table[name][0] for name in names}
        return found

    def world(self, tables: Tables, changes: Mapping[str, Any]) -> Tables:
        """Return the data with another first person."""
        unit = Unit.HOUSEHOLD if self.unit is Unit.HOUSEHOLD else Unit.RECORD
        return changed_tables(self.plan, tables, changes, unit, 0) or tables

    def allowed(self, times: int = 1) -> float:
        """Return (e^eps + delta) / (1 + e^eps), for ``times`` neighbours in a row or releases."""
        delta = self.plan.study.delta
        epsilon = times * self.plan.epsilon(delta, self.unit)
        grown = delta * sum(math.exp(k * epsilon / times) for k in range(times)) if delta else 0.0
        return 1.0 if epsilon > 50 else min(1.0, (math.exp(epsilon) + grown) / (1 + math.exp(epsilon)))  # noqa: PLR2004 - indistinguishable from 1


def attack_study(
    model: Model,
    study: Study,
    population: Callable[[int], Tables],
    *,
    registry: Callable[[str], Model],
    runs: int = 200,
) -> list[Power]:
    """Attack a study over data of a population, of which ``population(seed)`` draws tables that its cards admit."""
    field = _Field(model, study, population, registry, runs)
    if not field.plan.units:
        return []
    found = [_membership(field)]
    if field.unit is not Unit.HOUSEHOLD:
        found += list(_attribute(field))
    if field.fixed:
        found += [_tracing(field), _differencing(field)]
    return found


def _membership(field: _Field) -> Power:
    """Attack membership: decide if this person is in the data, or somebody else is (nobody, under zero-out)."""
    somebody = field.person(field.population(1))
    other = {name: _nobody(rows) for name, rows in somebody.items()} if field.zero_out else somebody
    return _told_apart(field, "membership", "is this person in the data?", field.tables, field.world(field.tables, other))


def _nobody(rows: Any) -> Any:  # noqa: ANN401 - rows of a household, or one
    return [] if isinstance(rows, list) else None


def _attribute(field: _Field) -> Iterator[Power]:
    """Attack an attribute: decide if an otherwise known person's value is the smallest or largest possible, for the column of best success."""
    if field.zero_out:
        return
    card = field.cards[0]
    best: tuple[float, Tables, Tables] | None = None
    for column in card.columns:
        low, high = (
            changed_tables(
                field.plan, field.tables, {card.name: {column.name: corner(card, end)[column.name]}}, Unit.ATTRIBUTE, 0
            )
            for end in (0, 1)
        )
        assert low is not None and high is not None  # noqa: PT018 - under replace every value may change
        moved = _distance(field.stage.acts(low, 0, frozen=True), field.stage.acts(high, 0, frozen=True))
        best = max(best or (-1.0, low, high), (moved, low, high), key=lambda found: found[0])
    if best is not None:
        yield _told_apart(field, "attribute inference", "is this value the smallest or the largest?", *best[1:])


def _distance(ours: Mapping[str, Sequence[Act]], theirs: Mapping[str, Sequence[Act]]) -> float:
    pairs = [(a, b) for name, acts in ours.items() for a, b in zip(acts, theirs[name], strict=False)]
    return math.fsum(float(np.linalg.norm(a.gave - b.gave)) for a, b in pairs if a.gave.shape == b.gave.shape)


def _told_apart(field: _Field, attack: str, question: str, one: Tables, other: Tables) -> Power:
    """Return the power of the sign of the log likelihood ratio; without noise a difference is seen wherever there is one."""
    ratio = LikelihoodRatio(field.stage, one, other, field.seeds)
    half = max(1, field.runs // 2)
    signs = [*(np.sign(ratio(0)) for _ in range(half)), *(-np.sign(ratio(1)) for _ in range(half))]
    exact = [field.stage.acts(tables, 0, frozen=True) for tables in (one, other)]
    seen = 1.0 if _distance(*exact) else _HALF
    # One neighbouring pair, whatever the adjacency: what is attacked is a change that it allows.
    return Power(attack, question, seen, float(np.mean(signs) / 2 + _HALF), field.allowed(), 2 * half)


def _fixed(field: _Field) -> list[tuple[str, str]]:
    """Return (party, release) of vectors that are the same whatever was released before: what a tracer can work out beforehand."""
    first, second = (field.stage.acts(field.tables, next(field.seeds)) for _ in range(2))
    found = []
    for party, done in first.items():
        others = {act.release: act for act in second[party]}
        for one in done:
            two = others.get(one.release)
            if two is None or field.plan.release(party, one.release).count > 1 or isinstance(one.mechanism, ScaledGaussian):
                continue
            if isinstance(one.given, Vector | Summand) and isinstance(two.given, Vector | Summand):
                found += [(party, one.release)] if np.array_equal(one.given.values, two.given.values) else []
    return found


def _seen(field: _Field, acts: Mapping[str, Sequence[Act]], *, exact: bool) -> Numbers:
    """Return the values that are seen of these releases: of a total with distributed noise its sum alone."""
    parts: dict[tuple[str, ...], list[Numbers]] = {}
    for party, release in field.fixed:
        act = next(act for act in acts[party] if act.release == release)
        assert isinstance(act.given, Vector | Summand)
        floored = act.mechanism.floor(act.given.values) if hasattr(act.mechanism, "floor") else act.given.values
        value = np.asarray(floored if exact else act.gave, dtype=np.float64)
        parts.setdefault((release,) if isinstance(act.given, Summand) else (release, party), []).append(value)
    return np.concatenate([np.sum(values, axis=0) for values in parts.values()])


def _tracing(field: _Field) -> Power:
    """Return the score <released - expected, what this person adds>, for members and for others; the threshold is learnt on the first half."""
    base = field.tables
    draws = [_seen(field, field.stage.acts(field.population(2 + k), 0), exact=True) for k in range(_POPULATION)]
    expected, spread = np.mean(draws, axis=0), np.var(draws, axis=0)
    weight = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-12 * spread.max())
    own = _seen(field, field.stage.acts(base, 0), exact=True)
    answers: dict[bool, list[tuple[float, bool]]] = {True: [], False: []}
    for k in range(field.runs):
        tables = field.population(2 + _POPULATION + k)
        member = bool(k % 2)
        target = field.person(tables if member else field.population(-2 - k))
        adds = _seen(field, field.stage.acts(field.world(base, target), 0), exact=True) - own
        acts = field.stage.acts(tables, next(field.seeds))
        for exact in (True, False):
            answers[exact].append((float((_seen(field, acts, exact=exact) - expected) @ (adds * weight)), member))
    shares = {exact: _learnt(scores) for exact, scores in answers.items()}
    # Under zero-out somebody else is two neighbours away.
    times = 2 if field.zero_out else 1
    return Power(
        "tracing", "was this person among them?", shares[True], shares[False], field.allowed(times), field.runs // 2
    )


def _learnt(scores: Sequence[tuple[float, bool]]) -> float:
    """Return the share of right answers on the second half, with the threshold that was best on the first."""
    half = len(scores) // 2
    values, members = (np.array(part) for part in zip(*scores, strict=True))
    thresholds = np.sort(values[:half])
    right = [np.mean((values[:half] > at) == members[:half]) for at in thresholds]
    at = thresholds[int(np.argmax(right))] if half else 0.0
    return float(np.mean((values[half:] > at) == members[half:]))


def _differencing(field: _Field) -> Power:
    """Attack by differencing: decide if the one person by whom two totals differ is at one corner of the bounds or at the other.

    In the second total nobody stands in that person's place (zero-out), or somebody whom the attacker knows.
    """
    ends = [{c.name: _everywhere(c, end, field.tables[c.name]) for c in field.cards} for end in (0, 1)]
    known = field.person(field.population(1))
    nobody = {name: _nobody(rows) for name, rows in known.items()}
    *worlds, without = (field.world(field.tables, who) for who in (*ends, nobody if field.zero_out else known))
    exact = [_seen(field, field.stage.acts(tables, 0), exact=True) for tables in (*worlds, without)]
    adds = [total - exact[2] for total in exact[:2]]
    right = []
    for k in range(field.runs):
        truth = k % 2
        asked = [field.stage.acts(tables, next(field.seeds)) for tables in (worlds[truth], without)]
        found = _seen(field, asked[0], exact=False) - _seen(field, asked[1], exact=False)
        right.append(int(np.linalg.norm(found - adds[1]) < np.linalg.norm(found - adds[0])) == truth)
    seen = _HALF if np.array_equal(adds[0], adds[1]) else 1.0
    times = 2 if field.zero_out else 1
    question = "by whom do two totals differ, one corner of the bounds or the other?"
    return Power("differencing", question, seen, float(np.mean(right)), field.allowed(times), field.runs)


def _everywhere(card: Any, end: int, table: Table) -> Any:  # noqa: ANN401 - a row, or all of a household
    return [corner(card, end)] * table.household[1] if isinstance(table, BoundedTable) else corner(card, end)


__all__ = ["Power", "attack_study"]
