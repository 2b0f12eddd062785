r"""The acts that make a value public: each object holds its noise and its privacy event together, so they cannot drift apart.

All mechanisms act on exact integers (SPEC section 0). ``event(unit)`` is what the accountant composes; ``release`` draws
the noise from a stream; nothing else in unpooled adds noise to anything.

A :class:`Reach` says how far one unit can move the statistic: in multiples of the declared standard deviations (an L2 norm over
everything that moves together) and in how many coordinates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from unpooled.errors import AccountingError, UsageError
from unpooled.privacy import noise
from unpooled.privacy.accounting import NO_COST, SAFETY, UNBOUNDED, Event, Kind
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.noise import RandomBits


#: What mechanisms publish: integers on a grid, real numbers, or words modulo 2^64.
INTEGERS, REALS, WORDS = "<i8", "<f8", "<u8"


class Mechanism(Protocol):
    """What a plan lists: a name, its numbers for print and hash, and the cost to each unit."""

    @property
    def name(self) -> str:
        """Its name in plans and ledgers."""
        ...

    @property
    def size(self) -> int:
        """How many numbers one release publishes."""
        ...

    @property
    def dtype(self) -> str:
        """The type of these numbers, as an array in a message names it."""
        ...

    @property
    def scale(self) -> float | None:
        """The scale of its noise; None where it is known during the run only."""
        ...

    def sensitivity(self, unit: Unit) -> float | None:
        """How far one unit moves the statistic, in the units of ``scale``."""
        ...

    def event(self, unit: Unit) -> Event:
        """What one release costs one unit."""
        ...

    def describe(self) -> tuple[object, ...]:
        """Everything that defines it, for the plan's hash."""
        ...


@runtime_checkable
class Additive(Mechanism, Protocol):
    """A mechanism that adds noise to an integer vector (a choice, by contrast, returns an index)."""

    def release(self, statistic: NDArray[np.int64], bits: RandomBits) -> NDArray[np.int64]:
        """The released integers."""
        ...

    def change(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        """The distance of two releases with equal noise, in the unit of ``event(...).value``: what an audit measures."""
        ...


@runtime_checkable
class Shared(Mechanism, Protocol):
    """A mechanism whose output protects inside a total only: it may leave its party sealed to the nodes that add up, never plain."""

    #: Whether the receiving node is trusted with exact values, which the study must ask for and a policy may refuse.
    needs_trust: bool

    def share(self, statistic: NDArray[np.int64], bits: RandomBits) -> NDArray[np.int64]:
        """What goes into the total, in released integers."""
        ...

    def change(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        """The distance of two totals with equal noise, in the unit of ``event(...).value``."""
        ...


@runtime_checkable
class Scaled(Mechanism, Protocol):
    """A mechanism whose noise is a fixed multiple of a sensitivity that is known only during the run."""

    def release_scaled(self, statistic: NDArray[np.float64], sensitivity: float, bits: RandomBits) -> NDArray[np.float64]:
        """The released numbers."""
        ...


@runtime_checkable
class Minimising(Mechanism, Protocol):
    """A mechanism that perturbs an objective and releases its minimiser."""

    def minimise(self, solve: Callable[[NDArray[np.float64]], NDArray[np.float64]], bits: RandomBits) -> NDArray[np.float64]:
        """The released minimiser; ``solve`` is given the linear perturbation b."""
        ...


def _check_statistic(statistic: NDArray[np.int64], size: int) -> None:
    if statistic.shape != (size,) or statistic.dtype != np.int64:
        msg = f"this release is of {size} int64 values, not {statistic.shape} {statistic.dtype}"
        raise UsageError(msg)


@dataclass(frozen=True, slots=True)
class Block:
    """``size`` coordinates that share the relative noise ``width``, in units of the statistic's integers."""

    size: int
    width: float


@dataclass(frozen=True, slots=True)
class Reach:
    """The most that one unit moves a statistic: L2 ``distance`` in units of the blocks' widths, over ``coordinates``."""

    distance: float
    coordinates: int


@dataclass(frozen=True, slots=True)
class _Blocked:
    r"""An integer vector in blocks that share a standard deviation, ``scale * width``, and how noise fits the sampler's range.

    Where the noise would exceed the sampler's largest scale, the statistic is first floored to a multiple of
    :math:`2^{shift}`, at most :math:`2^{-18}` of the noise: flooring moves two neighbours apart by less than one such
    step more in every coordinate that moves at all, which the event charges (Theorem F.3).

    ``scale = 0`` is the noise-free algorithm, whose event is unbounded.
    """

    blocks: tuple[Block, ...]
    reach: tuple[tuple[Unit, Reach], ...]
    scale: float

    dtype: ClassVar[str] = INTEGERS
    #: Shifted standard deviations lie in (2^18, 2^19], inside the sampler's range.
    _LARGEST = 2.0**19

    @property
    def size(self) -> int:
        """The number of released integers."""
        return sum(block.size for block in self.blocks)

    def sensitivity(self, unit: Unit) -> float:
        """L2 reach of the unit in the same units as ``scale``."""
        return dict(self.reach)[unit].distance

    @property
    def floored(self) -> bool:
        """Whether any block's noise exceeds the sampler's range, so that its statistic is floored."""
        return any(self._shift(block) for block in self.blocks)

    def _shift(self, block: Block) -> int:
        return max(0, math.ceil(math.log2(self.scale * block.width / self._LARGEST))) if self.scale else 0

    def _step(self, block: Block) -> float:
        """The standard deviation of a block's noise in floored steps."""
        return math.ldexp(self.scale * block.width, -self._shift(block))

    def _mu(self, reach: Reach) -> float:
        """(distance + flooring) / scale."""
        step = max((1 / self._step(b) if self._shift(b) else 0.0) for b in self.blocks)
        return reach.distance / self.scale + step * math.sqrt(reach.coordinates)

    def _widened(self, reach: Reach, cost: float, limit: float) -> Self:
        """The same with a scale that is larger by as much as the cost, in units of 1/scale, exceeds its limit."""
        # One floored step per coordinate costs up to 2^-18 at any scale: far below that, no scale would ever do.
        if self.floored and limit < 2.0**-16 * math.sqrt(reach.coordinates):
            msg = "epsilon is too small for a release of this size on this grid: ask for more, or release less"
            raise UsageError(msg)
        return replace(self, scale=self.scale * max(cost / limit, 1 + SAFETY))

    def floor(self, statistic: NDArray[np.int64]) -> NDArray[np.int64]:
        """The statistic in the steps in which it is released."""
        _check_statistic(statistic, self.size)
        out, at = statistic.copy(), 0
        for block in self.blocks:
            out[at : at + block.size] >>= self._shift(block)
            at += block.size
        return out

    def _noisy(
        self, statistic: NDArray[np.int64], bits: RandomBits, law: Callable[..., NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        """The floored statistic plus noise of this law; exactly the statistic where the scale is 0."""
        out, at = self.floor(statistic), 0
        for block in self.blocks if self.scale else ():
            out[at : at + block.size] += law(self._step(block), block.size, stream=bits, start=at)
            at += block.size
        return out

    def decode(self, released: NDArray[np.int64], shares: int = 1) -> NDArray[np.float64]:
        """A total of so many released vectors in the statistic's units, the middle of a floored step standing for it."""
        out, at = released.astype(np.float64), 0
        for block in self.blocks:
            shift = self._shift(block)
            if shift:
                out[at : at + block.size] = (out[at : at + block.size] + 0.5 * shares) * 2.0**shift
            at += block.size
        return out

    def _distance(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        """How far two vectors of released integers are apart, in standard deviations."""
        if not self.scale:
            return 0.0 if np.array_equal(one, other) else math.inf
        per_step = np.concatenate([np.full(b.size, 1 / self._step(b)) for b in self.blocks])
        return float(np.linalg.norm((one - other) * per_step))

    @property
    def deviations(self) -> NDArray[np.float64]:
        """Standard deviation of every released coordinate in the statistic's units: noise, and rounding to a step."""
        if not self.scale:
            return np.zeros(self.size)
        rounding = 1 / math.sqrt(12)
        return np.concatenate(
            [np.full(b.size, math.hypot(self.scale * b.width, rounding * 2.0 ** self._shift(b))) for b in self.blocks]
        )

    def _describe(self) -> tuple[object, ...]:
        blocks = tuple((b.size, b.width) for b in self.blocks)
        return (blocks, tuple((u, r.distance, r.coordinates) for u, r in self.reach), self.scale)


@dataclass(frozen=True, slots=True)
class GaussianRelease(_Blocked):
    """An integer vector plus a rounded Gaussian of standard deviation ``scale * width`` in every block.

    A rounded Gaussian on an integer is the Gaussian mechanism followed by rounding, so its exact law of composition applies.
    """

    @classmethod
    def calibrated(cls, blocks: Sequence[Block], reach: Mapping[Unit, Reach], unit: Unit, mu: float) -> GaussianRelease:
        """The release whose event for ``unit`` is at most the Gaussian ``mu`` (infinite: no noise)."""
        release = cls(tuple(blocks), tuple(sorted(reach.items())), 0.0)
        if mu == math.inf:
            return release
        if not mu > 0:
            msg = f"mu must be positive, not {mu}: ask for a larger epsilon"
            raise UsageError(msg)
        # Also keep every block inside the sampler's smallest scale.
        smallest = noise.SMALLEST_SCALE * (1 + SAFETY) / min(block.width for block in release.blocks)
        release = replace(release, scale=max(reach[unit].distance * (1 + SAFETY) / mu, smallest))
        while (cost := release.event(unit).value) > mu:  # flooring cost a little: once or twice round, each time closer
            release = release._widened(reach[unit], cost, mu)  # noqa: SLF001 - its own
        return release

    @property
    def name(self) -> str:
        """Its name in plans and ledgers."""
        return "rounded Gaussian" if self.scale else "no noise"

    def event(self, unit: Unit) -> Event:
        """Gaussian, mu = (sensitivity + flooring) / scale."""
        if not self.scale:
            return UNBOUNDED
        reach = dict(self.reach)[unit]
        return Event(Kind.GAUSSIAN, self._mu(reach), 1, reach.coordinates * noise.TOTAL_VARIATION)

    def release(self, statistic: NDArray[np.int64], bits: RandomBits) -> NDArray[np.int64]:
        """The released integers; :meth:`decode` puts them back into the statistic's units."""
        return self._noisy(statistic, bits, noise.rounded_gaussian)

    def change(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        """The mu by which two released vectors with equal noise differ."""
        return self._distance(one, other)

    def describe(self) -> tuple[object, ...]:
        """Everything that defines this mechanism, for the plan's hash."""
        return (self.name, *self._describe())


@dataclass(frozen=True, slots=True)
class NoNoise:
    """The statistic itself: the noise-free algorithm, whose event is unbounded."""

    size: int
    name: str = "no noise"
    scale: float = 0.0
    dtype: ClassVar[str] = REALS

    def sensitivity(self, unit: Unit) -> None:  # noqa: ARG002 - the protocol's signature
        """Not needed: nothing is promised."""
        return

    def event(self, unit: Unit) -> Event:  # noqa: ARG002 - the protocol's signature
        """Unbounded."""
        return UNBOUNDED

    def release(self, statistic: NDArray[np.int64], bits: RandomBits) -> NDArray[np.int64]:  # noqa: ARG002
        """What was given."""
        return statistic

    def change(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        """Any difference is beyond every bound."""
        return 0.0 if np.array_equal(one, other) else math.inf

    def describe(self) -> tuple[object, ...]:
        """Everything that defines this mechanism, for the plan's hash."""
        return (self.name, self.size)


@dataclass(frozen=True, slots=True)
class ScaledGaussian:
    r"""Real numbers plus Gaussian noise of ``multiplier`` times a sensitivity D that the run makes known.

    The numbers are rounded to a grid of step g, a power of two of at most :math:`2^{-10}` of the noise, which moves two
    neighbours apart by less than g more in every coordinate: the noise is calibrated to :math:`D + g\sqrt{size}` (SPEC section 0).
    """

    size: int
    mu: tuple[tuple[Unit, float], ...]
    multiplier: float
    name: str = "rounded Gaussian"
    scale: float | None = None
    dtype: ClassVar[str] = REALS

    #: Noise of 2^12 to 2^13 steps, and the rounding's share, stay within the sampler's range.
    _LARGEST: ClassVar[float] = 2.0**19

    def __post_init__(self) -> None:
        if not 0 <= self.multiplier * math.sqrt(self.size) <= self._LARGEST:
            raise UsageError("epsilon is too small for a release whose noise follows the run: ask for more, or release less")

    def sensitivity(self, unit: Unit) -> None:  # noqa: ARG002 - known during the run only
        """Known during the run only."""
        return

    def event(self, unit: Unit) -> Event:
        """Gaussian, with the planned mu of this unit."""
        if not self.multiplier or dict(self.mu)[unit] == math.inf:
            return UNBOUNDED
        return Event(Kind.GAUSSIAN, dict(self.mu)[unit], 1, self.size * noise.TOTAL_VARIATION)

    def release_scaled(self, statistic: NDArray[np.float64], sensitivity: float, bits: RandomBits) -> NDArray[np.float64]:
        """The released numbers, multiples of the step."""
        if statistic.shape != (self.size,) or not 0 < sensitivity < math.inf:
            msg = f"this release is of {self.size} numbers with a positive finite sensitivity"
            raise UsageError(msg)
        if not self.multiplier:
            return statistic
        step = 2.0 ** math.floor(math.log2(self.multiplier * sensitivity) - 12)
        scale = self.multiplier * (sensitivity / step + math.sqrt(self.size))
        integers = np.rint(statistic / step).astype(np.int64) + noise.rounded_gaussian(scale, self.size, stream=bits)
        return np.asarray(integers * step, dtype=np.float64)

    def describe(self) -> tuple[object, ...]:
        """Everything that defines this mechanism, for the plan's hash."""
        return (self.name, self.size, self.mu, self.multiplier)


@dataclass(frozen=True, slots=True)
class LaplaceRelease:
    """Integers plus discrete Laplace noise: epsilon = (L1 sensitivity) / scale, delta = the sampler's total variation alone."""

    size: int
    reach: tuple[tuple[Unit, Reach], ...]
    scale: float
    name: str = "discrete Laplace"
    dtype: ClassVar[str] = INTEGERS

    def sensitivity(self, unit: Unit) -> float:
        """L1 reach of the unit in grid units."""
        return dict(self.reach)[unit].distance

    def event(self, unit: Unit) -> Event:
        """Pure epsilon."""
        reach = dict(self.reach)[unit]
        return Event(Kind.PURE, reach.distance / self.scale, 1, reach.coordinates * noise.TOTAL_VARIATION)

    def release(self, statistic: NDArray[np.int64], bits: RandomBits) -> NDArray[np.int64]:
        """The statistic plus noise, in grid units."""
        _check_statistic(statistic, self.size)
        return statistic + noise.discrete_laplace(self.scale, self.size, stream=bits)

    def change(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        """The epsilon by which two released vectors with equal noise differ."""
        return float(np.abs(one - other).sum()) / self.scale

    def describe(self) -> tuple[object, ...]:
        """Everything that defines this mechanism, for the plan's hash."""
        return (self.name, self.size, tuple((u, r.distance, r.coordinates) for u, r in self.reach), self.scale)


@dataclass(frozen=True, slots=True)
class NoiseShare(_Blocked):
    r"""One party's share of a distributed discrete Gaussian (Kairouz, Liu & Steinke 2021, Theorem 1; SPEC section 3).

    Each of the ``honest`` shares that are guaranteed to arrive has standard deviation ``scale * width`` in every block; their sum
    protects like a Gaussian of standard deviation :math:`\sqrt{honest}` times that, up to :math:`\tau=10\sum_{k<honest}
    e^{-2\pi^2 s^2 k/(k+1)}` with s the smallest standard deviation on the (floored) grid: :math:`\epsilon^2/2`-zCDP with
    :math:`\epsilon=\min(\sqrt{\mu^2+\tau d/2},\mu+\tau\sqrt d)`.
    """

    honest: int
    needs_trust: ClassVar[bool] = False
    #: Of a node's part of the total; a share itself is sealed.
    dtype: ClassVar[str] = WORDS

    #: Below two grid units the sum is not Gaussian enough (T002.6).
    SMALLEST: ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        thinnest = min(self.scale * block.width for block in self.blocks)
        if self.honest < 1 or (self.scale and thinnest < self.SMALLEST):
            msg = "a noise share needs at least one honest party and a scale of at least 2 grid units: refine the grid"
            raise UsageError(msg)

    @classmethod
    def calibrated(
        cls, blocks: Sequence[Block], reach: Mapping[Unit, Reach], unit: Unit, rho: float, honest: int
    ) -> NoiseShare:
        """The share whose event for ``unit`` is at most rho-zCDP (infinite: no noise)."""
        share = cls(tuple(blocks), tuple(sorted(reach.items())), 0.0, honest)
        if rho == math.inf:
            return share
        if not rho > 0:
            msg = f"rho must be positive, not {rho}: ask for a larger epsilon"
            raise UsageError(msg)
        mu = math.sqrt(2 * rho)
        smallest = cls.SMALLEST * (1 + SAFETY) / min(block.width for block in share.blocks)
        wanted = reach[unit].distance * (1 + SAFETY) / (mu * math.sqrt(honest))
        share = replace(share, scale=max(wanted, smallest))
        while (spent := share.event(unit).value) > rho:
            share = share._widened(reach[unit], math.sqrt(2 * spent), mu)  # noqa: SLF001 - its own
        return share

    @property
    def name(self) -> str:
        """Its name in plans and ledgers."""
        return "discrete Gaussian share" if self.scale else "no noise"

    def event(self, unit: Unit) -> Event:
        """ZCDP with rho = epsilon^2 / 2 of the theorem above."""
        if not self.scale:
            return UNBOUNDED
        reach = dict(self.reach)[unit]
        mu = self._mu(reach) / math.sqrt(self.honest)
        thinnest = min(self._step(block) for block in self.blocks)
        tau = 10 * math.fsum(math.exp(-2 * math.pi**2 * thinnest**2 * k / (k + 1)) for k in range(1, self.honest))
        d = reach.coordinates
        epsilon = min(math.sqrt(mu**2 + tau * d / 2), mu + tau * math.sqrt(d))
        return Event(Kind.ZCDP, epsilon**2 / 2, 1, d * self.honest * noise.TOTAL_VARIATION)

    def share(self, statistic: NDArray[np.int64], bits: RandomBits) -> NDArray[np.int64]:
        """The statistic plus this party's share of the noise: private only inside the secure sum."""
        return self._noisy(statistic, bits, noise.discrete_gaussian)

    def change(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        """The rho by which two shares with equal noise differ once they are summed with the honest others."""
        return self._distance(one, other) ** 2 / (2 * self.honest)

    def total_deviations(self, shares: int) -> NDArray[np.float64]:
        """Standard deviation of every coordinate of the total of so many shares, in the statistic's units."""
        return self.deviations * math.sqrt(shares)

    def describe(self) -> tuple[object, ...]:
        """Everything that defines this mechanism, for the plan's hash."""
        return (self.name, *self._describe(), self.honest)


@dataclass(frozen=True, slots=True)
class Contribution:
    """An exact vector, sealed to a trusted aggregator whose noisy release of the total this party's ledger pays for as its own."""

    total: GaussianRelease
    aggregator: str
    needs_trust: ClassVar[bool] = True
    dtype: ClassVar[str] = WORDS

    @property
    def name(self) -> str:
        """Its name in plans and ledgers."""
        return "noise at the total"

    @property
    def size(self) -> int:
        """The number of integers."""
        return self.total.size

    @property
    def scale(self) -> float:
        """The scale of the noise that the aggregator adds."""
        return self.total.scale

    def sensitivity(self, unit: Unit) -> float:
        """L2 reach of the unit in the total."""
        return self.total.sensitivity(unit)

    def event(self, unit: Unit) -> Event:
        """The event of the total's release."""
        return self.total.event(unit)

    def share(self, statistic: NDArray[np.int64], bits: RandomBits) -> NDArray[np.int64]:  # noqa: ARG002 - the protocol's signature
        """The statistic itself."""
        _check_statistic(statistic, self.size)
        return statistic.copy()

    def change(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        """The mu by which two totals with equal noise differ."""
        return self.total.change(*(self.total.floor(vector) for vector in (one, other)))

    def describe(self) -> tuple[object, ...]:
        """Everything that defines this mechanism, for the plan's hash."""
        return (self.name, self.aggregator, *self.total.describe())


@dataclass(frozen=True, slots=True)
class NoisyChoice:
    """One of many candidates by the exponential mechanism; (epsilon^2/8)-zCDP per choice (bounded range).

    The scores' sensitivity may be a closed form of public values that is known only during the run (SPEC section 4), so
    ``scale`` is None here and :meth:`release` is given it.
    """

    epsilon: tuple[tuple[Unit, float], ...]
    size: int = 1
    name: str = "exponential mechanism"
    scale: float | None = None
    #: An index.
    dtype: ClassVar[str] = INTEGERS

    def sensitivity(self, unit: Unit) -> None:  # noqa: ARG002 - the protocol's signature
        """Known during the run only."""
        return

    def event(self, unit: Unit) -> Event:
        """The cost of one choice."""
        epsilon = dict(self.epsilon)[unit]
        if epsilon == math.inf:
            return UNBOUNDED
        return Event(Kind.EXPONENTIAL, epsilon, 1, noise.TOTAL_VARIATION) if epsilon else NO_COST

    def release(
        self, scores: NDArray[np.int64], sensitivity: float, unit: Unit, bits: RandomBits, *, signed: bool = False
    ) -> int:
        """The index chosen among integer scores, or [scores, -scores], each of which one unit moves by at most ``sensitivity``."""
        if not 0 < sensitivity < math.inf:
            msg = "the sensitivity of the scores must be positive and finite"
            raise AccountingError(msg)
        if dict(self.epsilon)[unit] == math.inf:
            high, low = int(scores.argmax()), int(scores.argmin())
            return scores.size + low if signed and -int(scores[low]) > int(scores[high]) else high
        return noise.choose(scores, dict(self.epsilon)[unit] / (2 * sensitivity), signed=signed, stream=bits)

    def describe(self) -> tuple[object, ...]:
        """Everything that defines this mechanism, for the plan's hash."""
        return (self.name, self.epsilon, self.size)


@dataclass(frozen=True, slots=True)
class ObjectivePerturbation:
    r"""The minimiser of a perturbed logistic objective (Chaudhuri et al. 2011; SPEC section 2; T001.8-9).

    :math:`\frac1n\sum\log(1+e^{-y_iw\cdot x_i})+\frac{b\cdot w}n+\frac{\Lambda}2|w-c|^2` with rows of norm at most ``bound`` = q, n = ``rows``,
    :math:`\Lambda` = ``penalty`` and b of density proportional to :math:`e^{-|b|/scale}`. One row moves n times the gradient by at most ``reach`` and the
    Jacobian's determinant by a factor of at most :math:`1+q^2/(4n\Lambda)`, ``factors`` times over in the published form. The solver's
    residual, a gradient of at most :attr:`residual`, is covered by noise of the same shape, which costs ``covering``.
    """

    size: int
    rows: int
    bound: float
    penalty: float
    scale: float
    reach: float
    covering: float
    factors: int = 1
    #: The same for one value of the row; None: as far as the whole row.
    value_reach: float | None = None
    #: Length of c.
    centre: float = 0.0
    dtype: ClassVar[str] = REALS

    #: The smallest gradient norm at which a solver may be asked to stop, for the mean loss; and so improbable, e^-this, is a longer b.
    _FINEST: ClassVar[float] = 1e-10
    _TAIL: ClassVar[float] = 100.0
    #: Several times what the rounding of one operation of a gradient leaves.
    _ROUNDING: ClassVar[float] = 2.0**-48

    def __post_init__(self) -> None:
        if not self.residual < self._COARSEST:
            raise UsageError("the penalty is too small for double precision: its minimiser may lie too far out. Raise it")

    #: Beyond this nothing would be minimised.
    _COARSEST: ClassVar[float] = 1e100

    @property
    def residual(self) -> float:
        """The gradient norm, for the mean loss, at which the solver stops: above all rounding, and known before any data (S.2)."""
        pull = self.scale * (self.size + math.sqrt(2 * self._TAIL * self.size) + self._TAIL) / self.rows
        farthest = self.centre + (self.bound + pull) / self.penalty
        terms = self.bound * (1 + self.bound * farthest * self.size / 4) + pull + self.penalty * farthest
        return max(self._FINEST, self._ROUNDING * terms)

    @property
    def name(self) -> str:
        """Its name in plans and ledgers."""
        return "objective perturbation" if self.scale else "no noise"

    def sensitivity(self, unit: Unit) -> float:
        """How far one unit moves n times the gradient: one value as far as the whole row may, or farther where it makes another row of it."""
        return self.reach if unit is Unit.RECORD or self.value_reach is None else self.value_reach

    def event(self, unit: Unit) -> Event:
        """Pure epsilon: the noise's ratio, the Jacobian's, and the covering of the residual."""
        if not self.scale:
            return UNBOUNDED
        jacobian = self.factors * math.log1p(self.bound**2 / (4 * self.rows * self.penalty))
        return Event(Kind.PURE, self.sensitivity(unit) / self.scale + jacobian + self.covering, 1, 0.0)

    @property
    def label(self) -> Event:
        """What another label of one row costs (Theorem S.8).

        The gradients of log(1 + e^-u) and log(1 + e^u) differ by exactly the row, which is at most ``bound`` long, and their second
        derivatives are equal: no determinant changes.
        """
        if not self.scale:
            return UNBOUNDED
        return Event(Kind.PURE, self.bound / self.scale + self.covering, 1, 0.0)

    def minimise(self, solve: Callable[[NDArray[np.float64]], NDArray[np.float64]], bits: RandomBits) -> NDArray[np.float64]:
        """The minimiser for a fresh b, with its residual covered."""
        solution = solve(noise.laplace_ball(self.scale, self.size, stream=bits))
        if not self.covering:
            return solution
        # Two solutions of this residual lie within 2 residual / penalty of each other where they are of the same exact minimiser.
        width = 2 * self.residual / (self.penalty * self.covering)
        return solution + noise.laplace_ball(width, self.size, stream=bits, lane=2)

    def describe(self) -> tuple[object, ...]:
        """Everything that defines this mechanism, for the plan's hash."""
        return (
            self.name,
            self.size,
            self.rows,
            self.bound,
            self.penalty,
            self.scale,
            self.reach,
            self.covering,
            self.factors,
            self.value_reach,
            self.centre,
            self.residual,
        )


@dataclass(frozen=True, slots=True)
class NoisyMaximum:
    """The index of the largest value after Laplace noise, as the LASSO paper has it: a scale read off the data, a cost nobody knows."""

    #: Noise per unit of the sensitivity that the run gives.
    multiplier: float
    size: int = 1
    name: str = "report noisy maximum"
    scale: float | None = None
    #: An index, as the paper's algorithm handles it.
    dtype: ClassVar[str] = REALS

    def sensitivity(self, unit: Unit) -> None:  # noqa: ARG002 - known during the run only
        """Known during the run only."""
        return

    def event(self, unit: Unit) -> Event:  # noqa: ARG002 - the protocol's signature
        """Unbounded."""
        return UNBOUNDED

    def release_scaled(self, statistic: NDArray[np.float64], sensitivity: float, bits: RandomBits) -> NDArray[np.float64]:
        """The index of the winner."""
        uniform = ((bits.words(0, statistic.size) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53 - 0.5
        laplace = -np.sign(uniform) * np.log1p(-2 * np.abs(uniform))
        return np.array([float(np.argmax(statistic + self.multiplier * sensitivity * laplace))])

    def describe(self) -> tuple[object, ...]:
        """Everything that defines this mechanism, for the plan's hash."""
        return (self.name, self.multiplier)
