"""Noise looked at jointly: two coordinates at a time, its last bits, and its tails. Each coordinate by itself can have the right law and hide nothing.

Every function returns what is wrong in words, or nothing. Each test says no to honest noise once in a million (:data:`RARE`) at most: the null laws
are those of unrounded normal noise, and of many pairs the smallest chance is multiplied by their number. The audit of P parties with K kinds of
noise and R releases makes 3 tests of each kind (two ends of chi-squared, Kolmogorov-Smirnov), 1 of each release, 7 of each party (keys, three moduli,
three cuts) and 1 of all parties. So it accuses honest noise with a chance of at most (3 P K + R + 7 P + 1) RARE, but for the error of chi-squared
as the law of counts, and of rounding to steps that are a sixteenth of a deviation or less.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.audit.stage import Stage, Violation
from unpooled.privacy.mechanisms import (
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
from unpooled.privacy.noise import KeySource
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.audit.stage import Act
    from unpooled.privacy.noise import Stream
    from unpooled.privacy.plan import Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.registry import Model

    Numbers = NDArray[np.float64]

#: Where a test of many studies says no once in a million.
RARE = 1e-6
#: The most coordinates of which all pairs are looked at, and the fewest keys for it.
MOST, FEWEST = 400, 8
#: Noise of fewer steps than this is too coarse for the laws below; and the deviations beyond which values are counted.
STEPS, _CUTS = 16.0, (2.5, 3.5, 4.5)
_MODULI = (2, 4, 8)


def chosen(size: int, most: int = MOST) -> NDArray[np.intp]:
    """Return at most this many places of a vector: all of a short one; of a long one its beginning, and places spread over the rest."""
    if size <= most:
        return np.arange(size)
    return np.unique(np.concatenate([np.arange(most // 2), np.linspace(0, size - 1, most - most // 2).astype(np.intp)]))


def wrong_pair(drawn: Numbers) -> tuple[int, int] | None:
    """Return two columns whose sum or difference has too small a spread over the rows (keys), or None.

    Of independent normal columns, the squares of the sums over sqrt(2) add up to chi-squared with a degree for each row. With 12 rows and 400
    columns a correlation beyond .993 is seen, with 48 rows one beyond .84, with 300 rows one beyond .46.
    """
    from scipy.stats import chi2

    rows, columns = drawn.shape
    if rows < FEWEST or columns < 2:  # noqa: PLR2004 - two make a pair
        return None
    gram = drawn.T @ drawn
    squares = np.diag(gram)
    both = (squares[:, None] + squares[None, :]) / 2
    least = np.minimum(both + gram, both - gram)
    least[np.tril_indices(columns)] = np.inf
    place = int(least.argmin())
    tests = columns * (columns - 1)  # a sum and a difference of every pair
    if tests * chi2.cdf(max(float(least.flat[place]), 0.0), rows) < RARE:
        return place // columns, place % columns
    return None


def wrong_bits(steps: NDArray[np.int64], least: float) -> Iterator[str]:
    """Yield what is wrong with the last bits of integer noise, of which the smallest deviation is ``least`` steps.

    Rounded normal noise of m steps is uniform modulo m but for a part of e^(-2 pi^2), and wider noise is closer still.
    """
    from scipy.stats import chisquare

    for modulus in _MODULI:
        if least >= max(modulus, STEPS) and steps.size >= 10 * modulus:
            counts = np.bincount(np.mod(steps, modulus).astype(np.intp), minlength=modulus)
            if float(chisquare(counts).pvalue) < RARE:
                yield f"its values are not spread evenly modulo {modulus}"


def wrong_tails(drawn: Numbers) -> Iterator[str]:
    """Yield what is wrong with the numbers of values far out, in standard deviations of the planned normal law."""
    from scipy.stats import binom, norm

    for cut in _CUTS:
        beyond, chance = int((np.abs(drawn) > cut).sum()), 2 * float(norm.sf(cut))
        likely = min(binom.cdf(beyond, drawn.size, chance), binom.sf(beyond - 1, drawn.size, chance))
        if 2 * likely < RARE:
            yield f"{beyond} of {drawn.size} values lie beyond {cut:g} deviations"


def side_by_side(runs: Sequence[Sequence[Numbers]], most: int = MOST) -> Numbers:
    """Return a row for each run, of the chosen coordinates of its releases, as far as all runs have the same ones."""
    same = [places for places in zip(*runs, strict=False) if len({z.size for z in places}) == 1]
    share = max(2, most // max(len(same), 1))
    columns = [np.stack([z[chosen(z.size, share)] for z in places]) for places in same[: most // 2]]
    return np.concatenate(columns, axis=1) if columns else np.empty((len(runs), 0))


# --- Presence --------------------------------------------------------------------------------------------------------------
# The noise is there, with the planned law, under every key: a replay with frozen noise cannot see noise that is absent.
#
# A study runs under many root keys. Whatever a mechanism added to what it was given, in standard deviations of its planned law, must look like that
# law (chi-squared and Kolmogorov-Smirnov tests, which say no once in a million); two keys must never add the same. And no run of words of a stream
# may be read twice, by two draws or by two parts of one draw: what comes of the same bits is no noise against each other, whatever its law.

#: Numbers of noise of each kind that are looked at in all, drawn again from one run where a study has fewer: a deviation that is a twentieth too
#: small is then missed less than once in a thousand times.
ENOUGH, MOST_DRAWS = 20_000, 4000
#: Of a grid with fewer steps a deviation only the squares are tested: spread over their cells, its numbers still follow no normal law.
_STEPS_SEEN = 3.0


def audit_noise(
    model: Model, study: Study, tables: Mapping[str, Table], *, registry: Callable[[str], Model], keys: int = 12
) -> list[Violation]:
    """Run a study under ``keys`` root keys, with real noise, and hold what was added against the planned laws."""
    stage = Stage(model, study, registry)
    runs = [stage.acts(tables, seed) for seed in range(keys)]
    found = []
    for party in tables:
        every = [acts[party] for acts in runs]
        wrong = (*_wrong_law([act for acts in every for act in acts]), *_repeated(every), *_wrong_together(every))
        found += [Violation(Unit.RECORD, party, "noise", what) for what in wrong]
    found += [Violation(Unit.RECORD, "all", "noise", what) for what in _wrong_law(_drawn_again(stage, runs[0]))]
    found += [
        Violation(Unit.RECORD, "all", "noise", what)
        for what in _shared_words(Stage(model, study, registry, NotingKeys()), tables)
    ]
    together = side_by_side([[z for party in tables for z in _fine(acts[party])] for acts in runs])
    if wrong_pair(together) is not None:
        found.append(
            Violation(
                Unit.RECORD,
                "all",
                "noise",
                "two numbers of one run, of any releases or parties, have noise that follows each other",
            )
        )
    return found


@dataclass
class NotedBits:
    """A stream that notes which runs of words were read, so that an audit sees what is drawn of the same bits."""

    bits: Stream
    runs: list[tuple[bytes, int, int, int]]

    @property
    def key(self) -> bytes:
        """Return the key of the stream, by which parts of totals are sealed."""
        return self.bits.key

    def words(self, start: int, count: int, lane: int = 0) -> NDArray[np.uint64]:
        """Return words of a lane, and note them; a single word may be read again where further bits decide about one number."""
        if count > 1:
            self.runs.append((self.bits.key, lane, start, count))
        return self.bits.words(start, count, lane)

    def more(self, coordinate: int, block: int) -> int:
        """Return a further block of bits for one coordinate."""
        return self.bits.more(coordinate, block)


@dataclass
class NotingKeys:
    """Makes key sources whose streams are noted."""

    runs: list[tuple[bytes, int, int, int]] = field(default_factory=list)

    def __call__(self, root: bytes) -> KeySource:
        """Return a source of keys from this root."""
        runs = self.runs

        class Noting(KeySource):
            """Keys as they are, with streams that note what is read."""

            def stream(self, *names: str | int | bytes, content: bytes = b"") -> Any:  # noqa: ANN401 - random bits
                return NotedBits(super().stream(*names, content=content), runs)

        return Noting(root)


def _shared_words(stage: Stage, tables: Mapping[str, Table]) -> Iterator[str]:
    """Yield what is wrong where words of one stream are read twice in a run."""
    stage.run(tables, 0)
    assert isinstance(stage.keys, NotingKeys)
    by_lane: dict[tuple[bytes, int], list[tuple[int, int]]] = defaultdict(list)
    for key, lane, start, count in stage.keys.runs:
        by_lane[key, lane].append((start, start + count))
    for spans in by_lane.values():
        spans.sort()
        if any(one[1] > other[0] for one, other in itertools.pairwise(spans)):
            yield "two draws, or two parts of one draw, come of the same random bits"
            return


def _drawn_again(stage: Stage, acts: Mapping[str, Sequence[Act]]) -> list[Act]:
    """Return fresh draws of what one run gave to mechanisms that add noise to a vector, enough of them for the tests of laws."""
    given = {party: [act for act in done if added(act) is not None] for party, done in acts.items()}
    kinds: dict[str, int] = defaultdict(int)
    for act in (act for done in given.values() for act in done):
        kinds[act.mechanism.name] += act.gave.size
    if not kinds:
        return []
    draws = min(-(-ENOUGH // min(kinds.values())), MOST_DRAWS)
    first = int(stage.plan.hash[:12], 16)  # another plan draws other noise
    return [act for seed in range(draws) for done in stage.again(given, first + seed).values() for act in done]


def _fine(acts: Sequence[Act]) -> list[Numbers]:
    """Return the added noise of the acts whose steps are fine enough for joint laws."""
    return [z for act in acts if _steps(act) >= STEPS and (z := added(act)) is not None]


def _steps(act: Act) -> float:
    """Return the smallest deviation of an act's noise in steps of its grid; 0 where it adds nothing to a vector of integers."""
    mechanism = act.mechanism
    return float(np.min(mechanism.steps)) if isinstance(mechanism, GaussianRelease | DistributedGaussian) else 0.0


def _whole(act: Act) -> NDArray[np.int64]:
    """Return the added noise in steps of the grid."""
    mechanism, given = act.mechanism, act.given
    assert isinstance(mechanism, GaussianRelease | DistributedGaussian)
    assert isinstance(given, Vector | Summand)
    return np.asarray(act.gave - mechanism.floor(given.values), dtype=np.int64)


def _wrong_together(runs: Sequence[Sequence[Act]]) -> Iterator[str]:
    """Yield what is wrong with the noise of one party jointly: pairs of coordinates, pairs of keys, last bits, tails."""
    for same in zip(*runs, strict=False):
        drawn = [z for z in _fine(same) if z.size > 1]
        if len(drawn) == len(runs) and len({z.size for z in drawn}) == 1:
            place = chosen(drawn[0].size)
            if (pair := wrong_pair(np.stack([z[place] for z in drawn]))) is not None:
                yield f"numbers {place[pair[0]]} and {place[pair[1]]} of release {same[0].release!r} have noise that follows each other"
                break
    if wrong_pair(side_by_side([_fine(acts) for acts in runs]).T) is not None:
        yield "the noise under two keys follows each other"
    fine = [act for acts in runs for act in acts if _steps(act) >= STEPS]
    if fine:
        yield from wrong_bits(np.concatenate([*map(_whole, fine)]), min(map(_steps, fine)))
        yield from wrong_tails(np.concatenate([z for act in fine if (z := added(act)) is not None]))


def added(act: Act) -> Numbers | None:
    """Return the added noise, in standard deviations of the planned law; None where an act adds nothing to a vector."""
    mechanism, given = act.mechanism, act.given
    if isinstance(mechanism, GaussianRelease | DistributedGaussian):
        assert isinstance(given, Vector | Summand)
        # Rounding to an integer adds a variance of 1/12 to a rounded Gaussian.
        rounding = 1 / 12 if isinstance(mechanism, GaussianRelease) else 0.0
        return np.asarray(
            (act.gave - mechanism.floor(given.values)) / np.sqrt(mechanism.steps**2 + rounding), dtype=np.float64
        )
    if isinstance(mechanism, ScaledGaussian) and mechanism.multiplier:
        assert isinstance(given, Vector)
        assert given.sensitivity is not None
        return np.asarray((act.gave - given.values) / (mechanism.multiplier * given.sensitivity), dtype=np.float64)
    return None


def _wrong_law(acts: Sequence[Act]) -> Iterator[str]:
    """Yield the deviations from the planned laws, of all acts of one party."""
    from scipy import stats

    kinds: dict[str, list[Numbers]] = defaultdict(list)
    whole_laws: dict[str, list[Numbers]] = defaultdict(list)
    for act in acts:
        z = added(act)
        if z is not None:
            kinds[act.mechanism.name].append(z)
            whole_laws[act.mechanism.name].append(_spread(act, z))
        elif isinstance(act.mechanism, ObjectivePerturbation) and act.mechanism.scale:
            kinds["objective perturbation"].append(_lengths(act))
        elif isinstance(act.mechanism, NoisyChoice):
            kinds["choice"].append(_ranks(act.mechanism, act))
        if isinstance(act.mechanism, ScaledGaussian) and act.mechanism.multiplier and not _on_grid(act.mechanism, act):
            yield f"release {act.release!r} is off its grid: the last bits of a number tell what was added to it"
            return
    for name, parts in kinds.items():
        z = np.concatenate(parts)
        law = stats.norm() if name not in {"objective perturbation", "choice"} else stats.uniform()
        square = float((z**2).sum())
        chi = min(stats.chi2.cdf(square, z.size), stats.chi2.sf(square, z.size)) if law.support()[0] < 0 else 1.0
        whole = np.concatenate(whole_laws[name]) if name in whole_laws else z
        if min(chi, float(stats.kstest(whole, law.cdf).pvalue) if whole.size else 1.0) < RARE:
            yield f"the noise of {name} is not of the planned law"


def _spread(act: Act, z: Numbers) -> Numbers:
    """Return the added noise in deviations, integers spread evenly over their cells: nearly the normal law that they are rounded from."""
    if not isinstance(act.mechanism, GaussianRelease | DistributedGaussian):
        return z
    if _steps(act) < _STEPS_SEEN:
        return np.empty(0)
    whole = _whole(act)
    even = np.random.default_rng(np.frombuffer(sha256(whole.tobytes()).digest(), dtype=np.uint64))
    return np.asarray((whole + even.uniform(-0.5, 0.5, whole.size)) / act.mechanism.steps, dtype=np.float64)


def _on_grid(mechanism: ScaledGaussian, act: Act) -> bool:
    """Return True if every released number is a multiple of a power of two that is public (integers always are)."""
    assert isinstance(act.given, Vector)
    assert act.given.sensitivity is not None
    return bool((act.gave % mechanism.step(act.given.sensitivity) == 0).all())


def _lengths(act: Act) -> Numbers:
    """Return the ranks of the lengths of a perturbation: uniform if they have the planned law."""
    from scipy import stats

    mechanism = act.mechanism
    assert isinstance(mechanism, ObjectivePerturbation)
    assert act.perturbation is not None
    law = (stats.chi if isinstance(mechanism, GaussianObjective) else stats.gamma)(mechanism.width, scale=mechanism.scale)
    return np.array([law.cdf(np.linalg.norm(part)) for part in np.split(act.perturbation, mechanism.fits)])


def _ranks(mechanism: NoisyChoice, act: Act) -> Numbers:
    """Return the ranks of a choice: uniform if its probabilities are the planned ones (with a public random number within the chosen one)."""
    from scipy.special import softmax

    given = act.given
    assert isinstance(given, Scores)
    values = np.asarray(given.values, dtype=np.float64)
    every = np.concatenate([values, -values]) if given.signed else values
    share = softmax(dict(mechanism.epsilon)[mechanism.unit] * every / (2 * given.sensitivity))
    chosen = int(act.gave[0])
    inside = int.from_bytes(sha256(share.tobytes() + bytes([chosen % 256])).digest()[:8], "big") / 2.0**64
    return np.array([share[:chosen].sum() + inside * share[chosen]])


def _repeated(runs: Sequence[Sequence[Act]]) -> Iterator[str]:
    """Yield the cases where two keys, or two acts of one run, added the same noise."""
    for same in zip(*runs, strict=False):
        under = [z.tobytes() for act in same if (z := added(act)) is not None and z.size > 3]  # noqa: PLR2004 - fewer integers may be equal by chance
        if len(set(under)) < len(under):
            yield f"release {same[0].release!r} has the same noise under two keys"
    for acts in runs:
        within = [z.tobytes() for act in acts if (z := added(act)) is not None and z.size > 3]  # noqa: PLR2004
        if len(set(within)) < len(within):
            yield "two releases of one run have the same noise"
            return


__all__ = ["RARE", "added", "audit_noise"]
