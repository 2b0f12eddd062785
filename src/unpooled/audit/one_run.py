r"""A whole study audited in a single run: every coin of many is guessed from what was released (Steinke, Nasr and Jagielski 2023).

Some rows, the canaries, are one thing or another by a fair coin of their own: two opposite rows (under zero-out two neighbours apart, which is
counted), or rows with one value at either end of its range. The study runs once. The attacker knows both candidates of every canary, all other rows and all requests, and guesses the coins of which it is surest; of
a promise of epsilon no attacker guesses more of them than coins that fall right with probability :math:`e^\epsilon / (1 + e^\epsilon)`, but for delta.

It sees what releases with Gaussian noise tell of each canary, and not minimisers and choices. What one canary does hides what others do, so
that many columns are needed for a bound that is near the claim: the audit asks nothing of the noise but one draw, and therefore serves where a study
is too slow to run twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.audit.attacks import gaussian_law
from unpooled.audit.neighbours import allowed, changed_table
from unpooled.audit.presence import RARE
from unpooled.audit.stage import Stage
from unpooled.errors import UsageError
from unpooled.privacy.accounting import gaussian_epsilon
from unpooled.privacy.mechanisms import DistributedGaussian
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.study.made_up import made_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.audit.neighbours import Row
    from unpooled.audit.stage import Act
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.registry import Model

    Numbers = NDArray[np.float64]
    Tables = dict[str, Table]
    #: The first and the other candidate of one canary, per party.
    Canary = tuple[int, Mapping[str, Row], Mapping[str, Any]]

#: The parts of the canaries that are guessed, each of them a bound of its own.
_PARTS = (1.0, 0.5, 0.25, 0.125)
_LARGEST, _HALVINGS, _FEWEST = 50.0, 60, 8


@dataclass(frozen=True)
class OneRun:
    """The bounds that one run gave: with more right guesses than luck explains, the claim would be false."""

    canaries: int
    #: Of the number of guesses with the largest bound.
    guesses: int
    right: int
    claimed: float
    #: Lower bounds on epsilon: whatever the noise is, and if it is Gaussian as claimed.
    audited: float
    as_gaussian: float
    confidence: float
    #: Whether the claim is below a bound that is wrong once in a million: that of an honest study at this confidence is above it now and then.
    refutes: bool

    def __str__(self) -> str:
        return (
            f"one run: {self.right} of {self.guesses} guesses right, of {self.canaries} canaries; epsilon is at least {self.audited:.2f} whatever the "
            f"noise, {self.as_gaussian:.2f} for Gaussian noise (confidence {self.confidence:g}); claimed {self.claimed:.2f}"
        )


def audit_in_one_run(
    model: Model,
    study: Study,
    canaries: int,
    *,
    registry: Callable[[str], Model],
    confidence: float = 0.95,
    seed: int = 0,
) -> OneRun:
    """Return the bounds of one run of a study over made-up data with at most this number of canaries."""
    unit, delta = Unit(study.unit), study.delta
    if unit is Unit.HOUSEHOLD:
        raise UsageError("one run attacks rows and values, not households: --attacks attacks those")
    fitted, tables = made_up(model, study, canaries)
    stage, rng = Stage(model, fitted, registry), np.random.default_rng(seed)
    drawn = _canaries(stage.plan, unit, canaries, rng)
    if len(drawn) < _FEWEST:
        msg = f"one run needs at least {_FEWEST} canaries, and this study's adjacency and rows admit {len(drawn)}"
        raise UsageError(msg)
    first = _world(tables, [(at, one) for at, one, _ in drawn])
    coins = rng.integers(2, size=len(drawn))
    run = stage.run(_world(first, [(at, other) for (at, _, other), coin in zip(drawn, coins, strict=True) if coin]), seed)
    seen, expected = _seen(run.acts, run.acts), _seen(run.acts, stage.beside(run, first), means=True)
    if not seen.size:
        raise UsageError(
            "no release of this study adds Gaussian noise to numbers, and one run attacks no other: try --attacks"
        )
    others = (stage.beside(run, _world(first, [(at, other)])) for at, _, other in drawn)
    moved = [_seen(run.acts, acts, means=True) - expected for acts in others]
    surest = _decoded(np.array(moved).T, seen - expected)
    right = ((surest > 0) == (coins == 1))[np.argsort(-np.abs(surest), kind="stable")]
    apart = 2 if unit is Unit.RECORD and study.adjacency == Adjacency.ZERO_OUT else 1
    return _bounds(right, stage.plan.epsilon(delta, unit), delta, confidence, apart)


def _bounds(right: NDArray[np.bool_], claimed: float, delta: float, confidence: float, apart: int) -> OneRun:
    """Return the largest bounds over some numbers of guesses, those first of which the attacker is surest."""
    bound = partial(one_run_epsilon, delta=delta, risk=(1 - confidence) / len(_PARTS), apart=apart)
    laws, best, as_gaussian, surely = {"any", "gaussian" if delta else "any"}, (-1.0, 0), 0.0, 0.0
    for guesses in sorted({max(1, int(part * right.size)) for part in _PARTS}):
        counts = (right.size, guesses, int(right[:guesses].sum()))
        best = max(best, (bound(*counts), guesses))
        as_gaussian = max(as_gaussian, bound(*counts, law="gaussian" if delta else "any"))
        rare = partial(bound, *counts, risk=RARE / len(_PARTS) / len(laws))
        surely = max(surely, *(rare(law=law) for law in sorted(laws)), 0.0)
    audited, guesses = best
    right_ones = int(right[:guesses].sum())
    return OneRun(right.size, guesses, right_ones, claimed, audited, as_gaussian, confidence, surely > claimed)


def one_run_epsilon(
    canaries: int, guesses: int, right: int, *, delta: float, risk: float, apart: int = 1, law: str = "any"
) -> float:
    """Return the epsilon that a number of right guesses refutes, and which a true claim is below with probability at most ``risk``.

    ``law="any"`` is Theorem 5.2 of Steinke, Nasr and Jagielski (2023), and holds for every release. ``"gaussian"`` takes the release for one whose
    neighbours are as hard to tell apart as two normal laws, and is the recursion of Mahloujifar, Melis and Chaudhuri (2024).
    Candidates are ``apart`` neighbours from each other.
    """

    def refuted(tried: float) -> bool:
        if law == "gaussian":
            return _refuted_as_gaussian(tried * apart, canaries, guesses, right, risk)
        grown = delta * math.fsum(math.exp(k * tried) for k in range(apart))
        return _refuted(tried * apart, canaries, guesses, right, grown, risk)

    low, high = 0.0, _LARGEST
    if not refuted(low):
        return 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low if law == "any" else gaussian_epsilon(delta, low)


def _refuted(epsilon: float, canaries: int, guesses: int, right: int, delta: float, risk: float) -> bool:
    from scipy.stats import binom

    once = 1 / (1 + math.exp(-epsilon))
    luck = float(binom.sf(right - 1, guesses, once))
    steps = np.arange(1, right + 1)
    rare = np.max((binom.sf(right - steps - 1, guesses, once) - luck) / steps, initial=0.0) if delta else 0.0
    return luck + 2 * canaries * delta * float(rare) <= risk


def _refuted_as_gaussian(mu: float, canaries: int, guesses: int, right: int, risk: float) -> bool:
    from scipy.special import ndtr, ndtri

    correct, wrong = risk * right / canaries, risk * (guesses - right) / canaries
    for k in range(right - 1, -1, -1):
        grown = max(wrong, float(ndtr(ndtri(min(1.0, correct)) - mu)))
        correct, wrong = correct + k / (guesses - k) * (grown - wrong), grown
    return correct + wrong > guesses / canaries


def _canaries(plan: Plan, unit: Unit, most: int, rng: np.random.Generator) -> list[Canary]:
    """Draw the rows that are one thing or another: where columns are split a row of every party, else of one party after the other."""
    cards = plan.study.parties
    together = [cards] if plan.split.shares_people else [(card,) for card in cards]
    places = [(group, at) for at in range(max(card.rows for card in cards)) for group in together if at < group[0].rows]
    found: list[Canary] = []
    for group, at in places[:most]:
        rows: tuple[dict[str, Row], dict[str, Any]] = ({}, {})
        for card in group:
            ends = [_ends(column, rng) for column in card.columns]
            for row, values in zip(rows, zip(*ends, strict=True), strict=True):
                row[card.name] = {column.name: value for column, value in zip(card.columns, values, strict=True)}
        other = rows[1]
        if unit is Unit.ATTRIBUTE:
            card = group[int(rng.integers(len(group)))]
            name = card.columns[int(rng.integers(len(card.columns)))].name
            changed = allowed(plan, card.name, {name: other[card.name][name]}, unit)
            if not changed:
                continue  # under zero-out this value may not go missing
            other = {card.name: changed}
        found.append((at, rows[0], other))
    return found


def _ends(column: Any, rng: np.random.Generator) -> tuple[Any, Any]:  # noqa: ANN401 - values of this column
    """Return the values that are farthest apart, in a random order."""
    ends = (column.categories[0], column.categories[-1]) if column.categories is not None else tuple(column.range)
    return ends[::-1] if rng.integers(2) else ends


def _world(tables: Mapping[str, Table], changes: Sequence[tuple[int, Mapping[str, Any]]]) -> Tables:
    """Return the data with other rows at some places."""
    found = dict(tables)
    for at, rows in changes:
        for name, row in rows.items():
            found[name] = changed_table(found[name], row, at)
    return found


def _seen(run: Mapping[str, Sequence[Act]], acts: Mapping[str, Sequence[Act]], *, means: bool = False) -> Numbers:
    """Return what these acts released of numbers, or would have without noise, in deviations of the run's noise; of totals the sum."""
    parts: dict[tuple[str, ...], list[tuple[Numbers, Numbers]]] = {}
    for party, done in acts.items():
        counted: dict[str, int] = {}
        for one, own in zip(done, run[party], strict=True):
            place = counted[one.release] = counted.get(one.release, -1) + 1
            law = gaussian_law(one)
            if law is not None:
                shared = isinstance(one.mechanism, DistributedGaussian)
                key = (one.release, str(place)) if shared else (one.release, str(place), party)
                gave = np.asarray(own.gave, dtype=np.float64)
                parts.setdefault(key, []).append((law[0] if means else gave, law[1]))
    whitened = [
        np.sum([value for value, _ in found], axis=0) / np.sqrt(np.sum([deviation**2 for _, deviation in found], axis=0))
        for _, found in sorted(parts.items())
    ]
    return np.concatenate(whitened) if whitened else np.empty(0)


def _decoded(moved: Numbers, seen: Numbers) -> Numbers:
    """Return the best linear guess of every coin, less a half: ``moved`` is what each canary adds to what is ``seen``, whose noise is standard."""
    gram = moved.T @ moved
    found: Numbers = np.linalg.solve(gram + 4 * np.eye(len(gram)), moved.T @ (seen - moved.sum(axis=1) / 2))
    return found


__all__ = ["OneRun", "audit_in_one_run", "one_run_epsilon"]
