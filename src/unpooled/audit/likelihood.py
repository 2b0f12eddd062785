"""The strongest attack there is on a whole study: the likelihood ratio of everything that it released, between two neighbouring data sets.

The attacker knows both data sets and all parties' steps, not the noise: it puts the recorded requests to parties with either data (:mod:`unpooled.audit.witness`), and
so knows the exact statistic that each would have given. Of a total with distributed noise it sees the total alone, and colluders
(all but the ``honest`` fragments that the plan counts on) have given it theirs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.audit.minimisers import same_minimiser
from unpooled.audit.stage import same_given
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from unpooled.audit.stage import Stage
    from unpooled.audit.witness import Act
    from unpooled.privacy.table import Table

    Numbers = NDArray[np.float64]
    Pair = tuple[Act, Act]
    Played = Mapping[str, list[Act]]


#: What says as much as any larger ratio.
_CERTAIN = 100.0


@dataclass(frozen=True)
class LikelihoodRatio:
    """A release for :func:`~unpooled.audit.empirical.empirical_epsilon`: one run over some tables, as the number that tells neighbours apart best."""

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


__all__ = ["LikelihoodRatio", "gaussian_law", "log_ratio"]
