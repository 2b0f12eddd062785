"""Attacks on a whole study: the likelihood ratio of everything that it released, attacks from the literature, and lower bounds on epsilon from outside."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.audit.neighbours import changed_tables, corner
from unpooled.audit.stage import Stage, same_given, same_minimiser
from unpooled.errors import UsageError
from unpooled.privacy.accounting import gaussian_epsilon
from unpooled.privacy.mechanisms import (
    Contribution,
    DistributedGaussian,
    GaussianObjective,
    GaussianRelease,
    NoisyChoice,
    ObjectivePerturbation,
    ScaledGaussian,
    Scores,
    Summand,
    Vector,
)
from unpooled.privacy.table import BoundedTable
from unpooled.privacy.unit import Adjacency, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.audit.stage import Act
    from unpooled.privacy.plan import Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.registry import Model

    Numbers = NDArray[np.float64]
    Pair = tuple[Act, Act]
    Played = Mapping[str, list[Act]]
    Matrix = NDArray[np.float64]
    Tables = dict[str, Table]


# --- Likelihood ------------------------------------------------------------------------------------------------------------
# The strongest attack there is on a whole study: the likelihood ratio of everything that it released, between two neighbouring data sets.
#
# The attacker knows both data sets and all parties' steps, not the noise: it puts the recorded requests to parties with either data (:mod:`unpooled.audit.stage`), and
# so knows the exact statistic that each would have given. Of a total with distributed noise it sees the total alone, and colluders
# (all but the ``honest`` fragments that the plan counts on) have given it theirs.

#: What says as much as any larger ratio.
_CERTAIN = 100.0


@dataclass(frozen=True)
class LikelihoodRatio:
    """A release for :func:`~unpooled.audit.attacks.empirical_epsilon`: one run over some tables, as the number that tells neighbours apart best."""

    stage: Stage
    #: The two worlds.
    tables: Mapping[str, Table]
    neighbour: Mapping[str, Table]
    #: Every run has a seed of its own.
    seeds: Iterator[int]

    def __call__(self, which: int) -> float:
        """Return the log likelihood ratio of a fresh run over the first (0) or the second (1) world's data."""
        given, seed = self._fixed, next(self.seeds)
        if given is not None:
            found = log_ratio(self.stage.again(given[which], seed), given[1 - which])
        else:
            here, there = (self.tables, self.neighbour) if which == 0 else (self.neighbour, self.tables)
            run = self.stage.run(here, seed)
            found = log_ratio(run.acts, self.stage.beside(run, there))
        return float(np.clip(found if which == 0 else -found, -_CERTAIN, _CERTAIN))

    @cached_property
    def _fixed(self) -> tuple[Played, Played] | None:
        """Return the inputs of the mechanisms in either world, if they do not depend on earlier draws: then a run is nothing but its draws."""
        worlds = self.tables, self.neighbour
        first, second = ([self.stage.acts(tables, seed) for tables in worlds] for seed in (0, 1))
        same = all(same_given(one, two) for one, two in zip(first, second, strict=True))
        return (first[0], first[1]) if same else None


def log_ratio(ours: Mapping[str, list[Act]], theirs: Mapping[str, list[Act]]) -> float:
    """Return the log p(released | our data) - log p(released | their data), over all acts of a run."""
    total, shared = 0.0, defaultdict[tuple[str, int], list["Pair"]](list)
    for party, acts in ours.items():
        counted: dict[str, int] = defaultdict(int)
        for one, other in zip(acts, theirs[party], strict=True):
            place = counted[one.release]
            counted[one.release] += 1
            if isinstance(one.mechanism, DistributedGaussian):
                shared[one.release, place].append((one, other))
            else:
                total += _of_act(one, other)
    return total + math.fsum(_of_total(pairs) for pairs in shared.values())


def _of_act(one: Act, other: Act) -> float:
    mechanism = one.mechanism
    if one is other or isinstance(mechanism, Contribution):
        return 0.0  # of a table that did not change; or exact, sealed to the aggregator, whose own release is counted
    if isinstance(mechanism, ObjectivePerturbation):
        return _of_minimiser(one, other)
    if isinstance(mechanism, NoisyChoice):
        chosen = int(one.gave[0])
        return float(_shares(mechanism, one)[chosen] - _shares(mechanism, other)[chosen])
    ours, theirs = gaussian_law(one), gaussian_law(other)
    assert ours is not None
    assert theirs is not None
    return _gaussian(one.gave, (ours[0], theirs[0]), ours[1])


def gaussian_law(act: Act) -> tuple[Numbers, Numbers] | None:
    """Return the means and deviations of what an act gave, in its steps; None where noise is not added to numbers. Of a part of a total, its own noise."""
    mechanism, given = act.mechanism, act.given
    if isinstance(mechanism, DistributedGaussian):
        assert isinstance(given, Summand)
        return np.asarray(mechanism.floor(given.values), dtype=np.float64), np.asarray(mechanism.steps, dtype=np.float64)
    if isinstance(mechanism, GaussianRelease):
        assert isinstance(given, Vector)
        return np.asarray(mechanism.floor(given.values), dtype=np.float64), np.sqrt(mechanism.steps**2 + 1 / 12)
    if not isinstance(mechanism, ScaledGaussian):
        return None
    assert isinstance(given, Vector)
    assert given.sensitivity is not None
    step = mechanism.step(given.sensitivity)
    deviation = mechanism.multiplier * (given.sensitivity + step * math.sqrt(mechanism.size))
    return given.values, np.full(mechanism.size, deviation)


def _gaussian(x: NDArray[Any], means: tuple[NDArray[Any], NDArray[Any]], deviation: Numbers) -> float:
    ours, theirs = (np.asarray(x - mean, dtype=np.float64) / deviation for mean in means)
    return float(theirs @ theirs - ours @ ours) / 2


def _of_total(pairs: list[Pair]) -> float:
    """Return the log ratio of one total: its noise is that of the guaranteed fragments, with the changed one's; all others are known."""
    mechanism = pairs[0][0].mechanism
    assert isinstance(mechanism, DistributedGaussian)
    moved: list[Numbers] = []
    noise: list[Numbers] = []
    for one, other in pairs:
        assert isinstance(one.given, Summand)
        assert isinstance(other.given, Summand)
        ours, theirs = mechanism.floor(one.given.values), mechanism.floor(other.given.values)
        moved.append(np.asarray(theirs - ours, dtype=np.float64))
        noise.append(np.asarray(one.gave - ours, dtype=np.float64))
    order = sorted(range(len(pairs)), key=lambda k: not moved[k].any())
    total = np.sum([noise[k] for k in order[: mechanism.honest]], axis=0)
    return _gaussian(total, (np.zeros(total.size), np.sum(moved, axis=0)), mechanism.steps * math.sqrt(mechanism.honest))


def _shares(mechanism: NoisyChoice, act: Act) -> Numbers:
    """Return the log probabilities of the candidates."""
    from scipy.special import log_softmax

    assert isinstance(act.given, Scores)
    values = np.asarray(act.given.values, dtype=np.float64)
    every = np.concatenate([values, -values]) if act.given.signed else values
    found: Numbers = log_softmax(dict(mechanism.epsilon)[mechanism.unit] * every / (2 * act.given.sensitivity))
    return found


def _of_minimiser(one: Act, other: Act) -> float:
    mechanism = one.mechanism
    assert isinstance(mechanism, ObjectivePerturbation)
    found = same_minimiser(one, other)
    if found is None:
        return math.inf
    parts, determinants = found
    power = 2 if isinstance(mechanism, GaussianObjective) else 1
    lengths = ((np.linalg.norm(b) / mechanism.scale, np.linalg.norm(same) / mechanism.scale) for b, same in parts)
    return determinants + math.fsum(float(s**power - b**power) / power for b, s in lengths)


# --- Empirical -------------------------------------------------------------------------------------------------------------
# A lower bound on epsilon by attack: run a release on two neighbours, and tell them apart as well as a threshold can.

#: Confidence with which the first half chooses a threshold.
_CHOOSING = 0.8


def empirical_epsilon(
    release: Callable[[Any], Any],
    neighbour_a: Any,  # noqa: ANN401 - whatever the release takes
    neighbour_b: Any,  # noqa: ANN401
    *,
    runs: int = 2000,
    delta: float = 0.0,
    confidence: float = 0.95,
    law: str = "any",
) -> float:
    """Return an epsilon that the release exceeds with this confidence: a claim below it is refuted, one above it is not proved.

    ``release(data)`` gives a number or an array, with fresh noise each time. The first half of the runs chooses a direction (the difference of the
    means), a threshold and which neighbour exceeds it; the second half, untouched, bounds both probabilities by Clopper and Pearson.

    ``law="gaussian"`` takes the release for one whose neighbours are as hard to tell apart as two normal laws (the claim of every Gaussian mechanism):
    then any threshold refutes a mu, not only the rare events to which delta leaves an epsilon, and far fewer runs come close to the claim.

    >>> import numpy as np
    >>> from unpooled.audit import empirical_epsilon
    >>> rng = np.random.default_rng(0)
    >>> noisy = lambda value: value + rng.laplace(scale=0.5)  # epsilon = 2 for neighbours one apart
    >>> 1.0 < empirical_epsilon(noisy, 0.0, 1.0, runs=4000) < 2.0
    True
    """
    if law not in ("any", "gaussian"):
        raise UsageError('law must be "any" or "gaussian"')
    if runs < 8 or not 0 <= delta < 1 or not 0 < confidence < 1:  # noqa: PLR2004 - two halves of something
        raise UsageError("runs must be at least 8, delta in [0, 1) and confidence between 0 and 1")
    outputs = [np.array([np.ravel(release(data)) for _ in range(runs)], dtype=float) for data in (neighbour_a, neighbour_b)]
    half = runs // 2
    direction = outputs[0][:half].mean(axis=0) - outputs[1][:half].mean(axis=0)
    if not np.isfinite(direction).all():
        raise UsageError("the release must give finite numbers")
    direction = direction if direction.any() else np.ones_like(direction)
    scores = [values @ direction for values in outputs]
    learn, test = ([score[part] for score in scores] for part in (slice(half), slice(half, None)))
    best: tuple[float, int, float] = (-math.inf, 0, 0.0)
    for threshold in np.unique(np.quantile(np.concatenate(learn), np.linspace(0.002, 0.998, 499))).tolist():
        for one in (0, 1):
            sign = 1 if one == 0 else -1
            ours, theirs = (int((sign * score >= sign * threshold).sum()) for score in (learn[one], learn[1 - one]))
            # A milder confidence than at the end, but one that does not prefer rare events for their luck.
            bound = _bound(ours, theirs, half, delta, _CHOOSING, law)
            best = max(best, (bound, one, threshold))
    _, one, threshold = best
    sign = 1 if one == 0 else -1
    ours, theirs = (int((sign * score >= sign * threshold).sum()) for score in (test[one], test[1 - one]))
    return max(0.0, _bound(ours, theirs, runs - half, delta, confidence, law))


def _bound(ours: int, theirs: int, runs: int, delta: float, confidence: float, law: str) -> float:
    """Return the epsilon that the lower end of p and the upper end of q refute; each end fails with half of 1 - confidence.

    By log((p - delta) / q), which holds for every release; or by mu = quantile(p) - quantile(q) of the normal law.
    """
    from scipy.stats import beta, norm

    risk = (1 - confidence) / 2
    low = float(beta.ppf(risk, ours, runs - ours + 1)) if ours else 0.0
    high = float(beta.ppf(1 - risk, theirs + 1, runs - theirs)) if theirs < runs else 1.0
    if law == "gaussian":
        mu = float(norm.ppf(low) - norm.ppf(high))
        return gaussian_epsilon(delta, mu) if mu > 0 else -math.inf
    return math.log((low - delta) / high) if low > delta else -math.inf


# --- Reconstruction --------------------------------------------------------------------------------------------------------
# Reconstruction of the others' spectra from a model that data holders share: the attack of the edPLS paper, its Eq. (5), as a number.
#
# A holder fits PLS to its own rows and takes out of the shared model's weights (or loadings) whatever its own weights span:
# :math:`u=(I-VV^T)w`, V an orthonormal basis of its own. A band that only the others' spectra have stays, and stands out.


@dataclass(frozen=True)
class Reconstruction:
    """The result of an attack."""

    #: Height at the band over the root mean square of the other channels; the largest over the components.
    prominence: float
    #: The component in which it stands out most, from 0.
    component: int
    #: What is left of every component of the shared model (a column each), of length 1.
    directions: Matrix


def reconstruction(shared: ArrayLike, own: ArrayLike, band: int, *, width: int = 3) -> Reconstruction:
    """Attack the directions ``shared`` (channels x components) of a model with one's ``own``, and look at channel ``band``.

    ``width`` channels to either side of the band are no background. A prominence around 1 is noise; a model that gives the others' band
    away has one far above.

    >>> shared, own = np.eye(50)[:, [10, 30]], np.eye(50)[:, [10]]
    >>> reconstruction(shared + 0.01, own, band=30).component
    1
    """
    shared, own = np.array(shared, dtype=np.float64), np.asarray(own, dtype=np.float64)
    if shared.ndim != 2 or own.ndim != 2 or shared.shape[0] != own.shape[0] or not 0 <= band < shared.shape[0]:  # noqa: PLR2004
        raise UsageError("shared and own are channels x components over the same channels, and the band is one of them")
    if not shared.shape[1]:  # a model that fell back to a constant shows nothing
        return Reconstruction(0.0, 0, shared)
    basis, _ = np.linalg.qr(own)
    left = shared - basis @ (basis.T @ shared)
    left /= np.maximum(np.linalg.norm(left, axis=0), np.finfo(float).tiny)
    background = np.abs(np.arange(shared.shape[0]) - band) > width
    level = np.sqrt(np.mean(np.square(left[background]), axis=0))
    heights = np.abs(left[band]) / np.maximum(level, np.finfo(float).tiny)
    best = int(heights.argmax())
    return Reconstruction(float(heights[best]), best, left)


# --- Attacks ---------------------------------------------------------------------------------------------------------------
# Attacks from the literature on a whole study: how often they are right without noise, as released, and as often as the claim allows.
#
# - **Membership** and **attribute inference** by likelihood ratio (Carlini and others 2022), in their strongest form: the attacker knows everybody else, both
#   possible values, and the noise's law.
# - **Tracing** (Homer and others 2008; Dwork and others 2015): the attacker knows the person and the population, nobody's rows else, and projects
#   what was released, less what it expects, on what the person would add.
# - **Differencing**: of two totals, of all and of all but one person, who is then what they differ by.
#
# Every figure is a share of right answers to a question with two answers, equally often true; a half is a guess.

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
        self.cards = cards if self.plan.split.shares_people else cards[:1]
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


__all__ = ["LikelihoodRatio", "Power", "Reconstruction", "attack_study", "gaussian_law", "log_ratio", "reconstruction"]
