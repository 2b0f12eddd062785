"""The only privacy randomness of unpooled: keyed streams, and exact integer noise drawn from them."""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from unpooled.errors import UsageError
from unpooled.kernels import sampler
from unpooled.kernels.sampler import TOTAL_VARIATION
from unpooled.privacy.unit import real

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from unpooled.kernels.sampler import Integers, MoreBits, Words


# --- Noise -----------------------------------------------------------------------------------------------------------------
# The only privacy randomness of unpooled: keyed streams, and exact integer noise drawn from them.
#
# A :class:`Stream` is a pure function of its key: word ``i`` belongs to coordinate ``i``, whatever the chunking, the thread or the
# process that asks (so it is safe under fork), and a crashed release that is drawn again draws the same noise. A
# :class:`KeySource` derives one key per release from a root key and everything that names the release.
#
# Scales are in grid units: the released statistics are integers (F.4). All three laws are exact up to 2^-16000 per
# coordinate, for which :data:`TOTAL_VARIATION` stands in the events that the accountant composes.

SMALLEST_SCALE, LARGEST_GAUSSIAN, LARGEST_LAPLACE = 0.05, 2.0**20, 2.0**40
#: Words drawn at a time: half a megabyte of key stream stays in the second-level cache.
_BLOCK = 1 << 15
#: The largest scale of the coarse part of a wide Gaussian, the scale of the fine one in steps of the coarse one, and the lanes that a sampler reads.
_COARSE, _SMOOTH, _LANES = 2.0**19, 8.0, 2
#: Words drawn at a time for the trials of a choice.
_TRIALS = 64


class RandomBits(Protocol):
    """The random bits that a sampler needs: words in two lanes, and further bits for single coordinates."""

    def words(self, start: int, count: int, lane: int = 0) -> Words:
        """Words ``start .. start + count`` of a lane."""
        ...

    def more(self, coordinate: int, block: int) -> int:
        """Return a further block of 256 bits for one coordinate."""
        ...


@dataclass(frozen=True, slots=True)
class Stream:
    """AES-256 in counter mode as an array of random 64-bit words; HMAC-SHA-256 for the rare further bits."""

    key: bytes = field(repr=False)

    @classmethod
    def fresh(cls) -> Stream:
        """Return a stream nobody can draw again: its key comes from the operating system and is kept nowhere else."""
        return cls(os.urandom(32))

    def words(self, start: int, count: int, lane: int = 0) -> Words:
        """Words ``start .. start + count`` of one of the lanes (lanes never overlap: the lane is the counter's upper half)."""
        block, skip = divmod(start, 2)
        counter = (lane << 64) | block
        encryptor = Cipher(algorithms.AES256(self.key), modes.CTR(counter.to_bytes(16, "big"))).encryptor()
        zeros = bytes(16 * ((count + skip + 1) // 2))
        return np.frombuffer(encryptor.update(zeros), dtype="<u8")[skip : skip + count].astype(np.uint64, copy=False)

    def more(self, coordinate: int, block: int) -> int:
        """Further 256 bits for one coordinate, independent of every word."""
        text = b"more" + coordinate.to_bytes(8, "big") + block.to_bytes(8, "big")
        return int.from_bytes(hmac.digest(self.key, text, hashlib.sha256), "big")


@dataclass(frozen=True, slots=True)
class KeySource:
    """Derives the key of each release. ``seed`` is not None exactly when the noise is a simulation."""

    root: bytes = field(repr=False)
    seed: int | None = None

    @classmethod
    def secret(cls) -> KeySource:
        """Return a root key from the operating system: real privacy."""
        return cls(os.urandom(32))

    @classmethod
    def simulation(cls, seed: int) -> KeySource:
        """Return a root key that anybody can compute from the seed: for tests and figures, never for protection."""
        return cls(hashlib.sha256(b"unpooled simulation %d" % seed).digest(), seed)

    def stream(self, *names: str | int | bytes, content: bytes = b"") -> Stream:
        """Return the stream of one release of this content. Parts are length-prefixed and typed, so no two lists collide (Theorem F.6)."""
        text = b""
        for name in (*names, content):
            raw = name if isinstance(name, bytes) else str(name).encode()
            text += type(name).__name__[:1].encode() + len(raw).to_bytes(8, "big") + raw
        return Stream(hmac.digest(self.root, text, hashlib.sha256))


def seed_of(random_state: Any) -> int | None:  # noqa: ANN401 - whatever scikit-learn users pass
    """Return an estimator's ``random_state`` as the seed of a simulation; None is real noise."""
    if random_state is None:
        return None
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return int(random_state)
    raise UsageError("random_state must be None (real noise) or an integer (a simulation)")


def rounded_gaussian(scale: float, size: int, *, stream: RandomBits | None = None, start: int = 0) -> Integers:
    """``size`` independent integers with the exact law of round(N(0, scale^2)): post-processing of the Gaussian mechanism.

    >>> from unpooled.privacy.noise import KeySource, rounded_gaussian
    >>> rounded_gaussian(3.0, 5, stream=KeySource.simulation(1).stream("example")).tolist()
    [6, -2, -2, -2, 5]
    """
    scale = _check_scale(scale, LARGEST_GAUSSIAN)
    bits = stream or Stream.fresh()

    return _draw(
        bits,
        size,
        start,
        lambda _at, words, out, flags: sampler.rounded_gaussian(words, scale, out, flags),
        lambda _i, word, more: sampler.exact_rounded_gaussian(word, more, scale),
    )


def discrete_gaussian(scale: float, size: int, *, stream: RandomBits | None = None, start: int = 0) -> Integers:
    """``size`` independent integers with P(k) proportional to ``exp(-k^2 / (2 scale^2))``: for distributed noise."""
    scale = _check_scale(scale, LARGEST_GAUSSIAN)
    bits = stream or Stream.fresh()
    if scale <= sampler.TABLE_SCALE:
        _, thresholds, guide = sampler.discrete_gaussian_table(scale)
        return _draw(
            bits,
            size,
            start,
            lambda _at, words, out, flags: sampler.from_table(words, thresholds, guide, out, flags),
            lambda _i, word, more: sampler.exact_from_table(word, more, scale),
        )
    return _draw(
        bits,
        size,
        start,
        lambda at, words, out, flags: sampler.discrete_gaussian_by_rejection(
            words, bits.words(at, words.size, 1), scale, out, flags
        ),
        lambda i, word, more: sampler.exact_discrete_gaussian(word, int(bits.words(i, 1, 1)[0]), more, scale),
    )


def wide_gaussian(scale: float, size: int, *, stream: RandomBits | None = None, start: int = 0) -> Integers:
    """``size`` independent integers of a Gaussian law whose scale may lie beyond the sampler's range.

    Beyond it a coarse discrete Gaussian on multiples of a power of two and a fine one, whose scale is eight of these, are added up: a law within
    a factor 1 + 2^-1000 of the discrete Gaussian of their joint variance at every integer (Theorem F.24).
    """
    steps = wide_steps(scale)
    if not steps:
        return discrete_gaussian(scale, size, stream=stream, start=start)
    bits = stream or Stream.fresh()
    coarse, fine = wide_scales(scale)
    found = discrete_gaussian(coarse, size, stream=bits, start=start)
    return (found << steps) + discrete_gaussian(fine, size, stream=_Apart(bits), start=start)


def wide_steps(scale: float) -> int:
    """Return the power of two of the coarse part's steps; 0 where the scale is in the sampler's range."""
    return max(0, int(np.ceil(np.log2(scale / _COARSE)))) if scale else 0


def wide_scales(scale: float) -> tuple[float, float]:
    """Return the scales of the coarse part, in its own steps, and of the fine part."""
    step = 2.0 ** wide_steps(scale)
    fine = _SMOOTH * step
    return float(np.sqrt(scale**2 - fine**2) / step), fine


@dataclass(frozen=True, slots=True)
class _Apart:
    """The same source of bits at places that nothing else reads."""

    bits: RandomBits

    def words(self, start: int, count: int, lane: int = 0) -> Words:
        """Return words of the lanes behind those that one sampler reads."""
        return self.bits.words(start, count, lane + _LANES)

    def more(self, coordinate: int, block: int) -> int:
        """Return further bits of coordinates that no vector has."""
        return self.bits.more(coordinate + (1 << 62), block)


def discrete_laplace(scale: float, size: int, *, stream: RandomBits | None = None, start: int = 0) -> Integers:
    """``size`` independent integers with P(k) proportional to ``exp(-|k| / scale)``."""
    scale = _check_scale(scale, LARGEST_LAPLACE)
    bits = stream or Stream.fresh()
    if scale <= sampler.LAPLACE_SCALE:
        shift = sampler.discrete_laplace_shift(scale)
        return _draw(
            bits,
            size,
            start,
            lambda _at, words, out, flags: sampler.discrete_laplace(words, scale, shift, out, flags),
            lambda _i, word, more: sampler.exact_discrete_laplace(word, more, scale),
        )
    digits = int(np.ceil(np.log2(scale / sampler.LAPLACE_SCALE)))
    return _draw(
        bits,
        size,
        start,
        lambda at, words, out, flags: sampler.discrete_laplace_by_digits(
            words, bits.words(at, words.size, 1), scale, digits, out, flags
        ),
        lambda i, word, more: sampler.exact_discrete_laplace_by_digits(
            word, int(bits.words(i, 1, 1)[0]), more, scale, digits
        ),
    )


def gaussian_vector(scale: float, size: int, *, stream: RandomBits | None = None, lane: int = 0) -> NDArray[np.float64]:
    """Return normal numbers of this deviation, in double precision, not on a grid: a release that uses them says so. Uses one lane."""
    scale = real("scale", scale)
    if not 0 <= scale < np.inf:
        msg = "scale must be finite and >= 0"
        raise UsageError(msg)
    from scipy.special import ndtri

    words = (stream or Stream.fresh()).words(0, size, lane)
    return np.asarray(scale * ndtri(((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53))


def laplace_ball(scale: float, size: int, *, stream: RandomBits | None = None, lane: int = 0) -> NDArray[np.float64]:
    """Return a vector with density proportional to exp(-|b| / scale): uniform direction, norm Gamma(size, scale).

    Real numbers in double precision, not a grid form: a release that uses them says so in its statement. Uses two lanes.
    """
    scale = real("scale", scale)
    if not 0 <= scale < np.inf:
        msg = "scale must be finite and >= 0"
        raise UsageError(msg)
    bits = stream or Stream.fresh()

    def uniform(at: int) -> NDArray[np.float64]:
        return ((bits.words(0, size, at) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

    from scipy.special import ndtri

    direction = ndtri(uniform(lane))
    length = -np.log(uniform(lane + 1)).sum()  # a Gamma of whole shape is a sum of exponentials
    return np.asarray(direction * (scale * length / np.linalg.norm(direction)))


def choose(scores: NDArray[np.int64], rate: float, *, signed: bool = False, stream: RandomBits | None = None) -> int:
    """Return one index of ``scores`` with P(i) proportional to exp(rate * scores[i]): the exponential mechanism.

    With integer scores of sensitivity D and ``rate = epsilon / (2 D)`` the choice is epsilon-DP and (epsilon^2/8)-zCDP.
    ``signed``: an index of the candidates [scores, -scores], which are not built. The whole stream belongs to the choice: word t
    and coordinate t to its t-th trial (THEORY F.12).
    """
    if scores.ndim != 1 or scores.size == 0 or scores.dtype != np.int64:
        msg = "choose needs a non-empty one-dimensional int64 array of scores"
        raise UsageError(msg)
    rate = real("rate", rate)
    if not 0 <= rate < np.inf:
        msg = "rate must be finite and >= 0"
        raise UsageError(msg)
    bits = stream or Stream.fresh()
    scores = np.ascontiguousarray(scores)
    # Envelopes are integers of at most 2^power + 2, and the sum of all stays below 2^62.
    power = min(sampler.CHOICE_POWER, 61 - (2 * scores.size).bit_length())
    masses = np.empty(-(-scores.size // sampler.CHOICE_TILE), dtype=np.uint64)
    refined = np.zeros(masses.size, dtype=np.bool_)
    best = np.uint64(sampler.choice_tiles(scores, signed, rate, power, masses))
    top = int(best) if signed else int(best) - (1 << 63)
    for first in count(step=_TRIALS):
        words, at = bits.words(first, _TRIALS), 0
        while True:
            at, place, rest, doubtful = sampler.choice_trials(
                words, at, scores, signed, rate, power, sampler.CHOICE_BAND, best, masses, refined
            )
            if place < 0:
                break
            index, negative = (place // 2, place % 2) if signed else (place, 0)
            score = -int(scores[index]) if negative else int(scores[index])
            trial = partial(bits.more, first + at - 1)
            if doubtful and not sampler.exact_acceptance(int(rest), trial, rate, top - score, power):
                continue
            return index + negative * scores.size
    raise AssertionError  # pragma: no cover - the loop has no other end


def _check_scale(scale: float, largest: float) -> float:
    number = real("scale", scale)
    if SMALLEST_SCALE <= number <= largest:
        return number
    msg = f"a noise scale must lie between {SMALLEST_SCALE:g} and {largest:g} grid units: choose another grid"
    raise UsageError(msg)


def _draw(
    bits: RandomBits,
    size: int,
    start: int,
    fast: Callable[[int, Words, Integers, Integers], int],
    exact: Callable[[int, int, MoreBits], int],
) -> Integers:
    """Run the fast sampler block by block and settle what it flagged."""
    out = np.empty(size, dtype=np.int64)
    flagged = np.empty(min(size, _BLOCK), dtype=np.int64)
    for begin in range(0, size, _BLOCK):
        count = min(_BLOCK, size - begin)
        first = start + begin
        words = bits.words(first, count)
        for i in flagged[: fast(first, words, out[begin : begin + count], flagged)].tolist():
            coordinate = first + i
            out[begin + i] = exact(coordinate, int(words[i]), lambda block, c=coordinate: bits.more(c, block))  # type: ignore[misc]
    return out


__all__ = [
    "TOTAL_VARIATION",
    "KeySource",
    "RandomBits",
    "Stream",
    "choose",
    "discrete_gaussian",
    "discrete_laplace",
    "laplace_ball",
    "rounded_gaussian",
    "seed_of",
    "wide_gaussian",
]
