"""The samplers against their exact laws, against OpenDP, against their own exact path, and against broken ones."""

from __future__ import annotations

import math
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext

import mpmath
import numpy as np
import pytest
from scipy import stats
from world import sized

from unpooled.errors import UsageError
from unpooled.kernels import sampler
from unpooled.privacy import noise
from unpooled.privacy.noise import KeySource

DRAWS = 400_000
SCALES = [0.3, 1.0, 3.0, 100.0, 1000.0]


def stream(name: str) -> noise.Stream:
    return KeySource.simulation(20261121).stream(name)


def rounded_law(scale: float, k: np.ndarray) -> np.ndarray:
    return stats.norm.cdf((k + 0.5) / scale) - stats.norm.cdf((k - 0.5) / scale)


def discrete_law(scale: float, k: np.ndarray) -> np.ndarray:
    all_k = np.arange(-int(12 * scale) - 12, int(12 * scale) + 13)
    return np.exp(-(k**2) / (2 * scale**2)) / np.exp(-(all_k**2) / (2 * scale**2)).sum()


def laplace_law(scale: float, k: np.ndarray) -> np.ndarray:
    return math.tanh(1 / (2 * scale)) * np.exp(-np.abs(k) / scale)


LAWS = {
    "rounded": (noise.rounded_gaussian, rounded_law),
    "discrete": (noise.discrete_gaussian, discrete_law),
    "laplace": (noise.discrete_laplace, laplace_law),
}


def p_value(sample: np.ndarray, law, scale: float) -> float:
    """Chi-square of a sample against a law on the integers, cells of at least 20 expected, both tails one cell each."""
    reach = int(np.ceil(6 * scale)) + 3
    k = np.arange(-reach, reach + 1)
    expected = law(scale, k) * sample.size
    width = max(1, int(scale / 25))
    groups = (k + reach) // width
    expected_cells = np.bincount(groups, expected)
    inside = sample[np.abs(sample) <= reach]
    observed_cells = np.bincount((inside + reach) // width, minlength=expected_cells.size).astype(float)
    large = expected_cells >= 20
    tail_expected = sample.size - expected_cells[large].sum()
    tail_observed = sample.size - observed_cells[large].sum()
    observed, wanted = observed_cells[large], expected_cells[large]
    if tail_expected > 1:
        observed, wanted = np.append(observed, tail_observed), np.append(wanted, tail_expected)
    else:  # a tail that should hold (nearly) nothing
        assert tail_observed <= 20
    statistic = ((observed - wanted) ** 2 / wanted).sum()
    return float(stats.chi2.sf(statistic, observed.size - 1))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", LAWS)
def test_samples_follow_the_exact_probabilities(name: str, scale: float) -> None:
    """Theorem F.4."""
    sample, law = LAWS[name]
    assert p_value(sample(scale, DRAWS, stream=stream(f"{name} {scale}")), law, scale) > 1e-4


@pytest.mark.guarantee
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", LAWS)
def test_a_scale_six_per_cent_off_is_caught(name: str, scale: float) -> None:
    sample, law = LAWS[name]
    for wrong in (0.94 * scale, 1.06 * scale):
        assert p_value(sample(wrong, DRAWS, stream=stream(f"{name} {scale}")), law, scale) < 1e-6


@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_a_discrete_gaussian_rounded_from_floats_is_caught(scale: float) -> None:
    floats = np.random.default_rng(0).normal(0, scale, DRAWS)
    assert p_value(np.rint(floats).astype(np.int64), discrete_law, scale) < 1e-6


def test_a_laplace_rounded_from_floats_is_caught() -> None:
    floats = np.random.default_rng(0).laplace(0, 1.0, DRAWS)
    assert p_value(np.rint(floats).astype(np.int64), laplace_law, 1.0) < 1e-6


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("scale", [3.0, 1000.0, 2.0**20])
def test_tails(name: str, scale: float) -> None:
    """Counts beyond thresholds of probability 1e-2 .. 1e-5, both sides, within 5 binomial standard deviations."""
    sample, law = LAWS[name]
    draws = 2_000_000
    x = sample(scale, draws, stream=stream(f"tail {name} {scale}"))
    for tail in (1e-2, 1e-3, 1e-4, 1e-5):
        t = math.ceil(scale * (-math.log(2 * tail) if name == "laplace" else stats.norm.isf(tail)))
        if scale <= 1000:
            probability = law(scale, np.arange(t, t + int(40 * scale) + 40)).sum()
        elif name == "laplace":
            probability = math.exp(-t / scale) / (1 + math.exp(-1 / scale))
        else:
            probability = stats.norm.sf((t - 0.5) / scale)
        for hits in ((x >= t).sum(), (x <= -t).sum()):
            assert abs(hits - draws * probability) < 5 * math.sqrt(draws * probability) + 1


@pytest.mark.slow_for("1.0")
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_agrees_with_opendp(scale: float) -> None:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    n = 20_000
    spaces = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    theirs = np.array(dp.m.make_gaussian(*spaces, scale=scale)([0] * n))
    ours = noise.discrete_gaussian(scale, n, stream=stream(f"opendp {scale}"))
    edges = np.arange(-int(3 * scale), int(3 * scale) + 1)
    table = np.array([np.bincount(np.searchsorted(edges, x), minlength=edges.size + 1) for x in (theirs, ours)])
    assert stats.chi2_contingency(table).pvalue > 1e-6  # OpenDP draws its own seed: a bound that one run in 10^6 breaks


# --- the fast path never disagrees with the exact path -----------------------------------------------------------------


@pytest.mark.long
@pytest.mark.slow
def test_quantile_error_is_far_inside_the_band() -> None:
    """|computed / true - 1| stays below 2^-47 (the band is 2^-44), at random and at the branch points of AS 241."""
    rng = np.random.default_rng(1)
    v = np.concatenate(
        [
            rng.integers(1 << 44, 1 << 63, 1500, dtype=np.uint64),
            (2.0 ** rng.uniform(44, 63, 1500)).astype(np.uint64),
            np.array([(1 << 44), (1 << 63) - 2, int(0.075 * 2**64), int(0.075 * 2**64) + 1], dtype=np.uint64),
        ]
    )
    with mpmath.workdps(40):
        for word in v.tolist():
            p = (mpmath.mpf(word) + 0.5) / mpmath.mpf(2) ** 64
            true = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * p)
            got = sampler.fast._quantile(np.uint64(word))
            assert abs(got - true) <= 2.0**-47 * true + 2.0**-62


def test_exact_tail_agrees_with_mpmath() -> None:
    with mpmath.workdps(80), localcontext(sampler.exact._EXACT):
        for x in ("0", "0.003", "0.7", "2.5", "6", "9.2", "13"):
            theirs = mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2
            assert abs(mpmath.mpf(str(sampler.exact._upper_tail(Decimal(x)))) - theirs) < mpmath.mpf(10) ** -72


class Injected:
    """A stream whose words and further bits are chosen by the test."""

    def __init__(self, words: list[int], further: int | dict[int, int] = 0, second: list[int] | None = None) -> None:
        self.lanes = [np.array(words, dtype=np.uint64), np.array(second or [0] * len(words), dtype=np.uint64)]
        self.further, self.asked = further, 0

    def words(self, start: int, count: int, lane: int = 0) -> np.ndarray:
        return self.lanes[lane][start : start + count]

    def more(self, coordinate: int, block: int) -> int:
        self.asked += 1
        return self.further if isinstance(self.further, int) else self.further.get(block, 0)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 17.3, 1000.0, 1024.5, 2.0**20])
def test_fast_equals_exact_on_random_and_tail_words(name: str, scale: float) -> None:
    rng = np.random.default_rng(2)
    words = rng.integers(0, 1 << 64, 60, dtype=np.uint64)
    words[20:40] >>= rng.integers(0, 40, 20, dtype=np.uint64)  # small words are far tails
    second = rng.integers(0, 1 << 64, 60, dtype=np.uint64)
    bits = Injected(words.tolist(), 12345, second.tolist())
    got = LAWS[name][0](scale, 60, stream=bits).tolist()
    for value, word, accept in zip(got, words.tolist(), second.tolist(), strict=True):
        if name == "rounded":
            wanted = sampler.exact_rounded_gaussian(word, lambda _: 12345, scale)
        elif name == "laplace":
            wanted = sampler.exact_discrete_laplace(word, lambda _: 12345, scale)
        elif scale <= sampler.TABLE_SCALE:
            wanted = sampler.exact_from_table(word, lambda _: 12345, scale)
        else:
            wanted = sampler.exact_discrete_gaussian(word, accept, lambda _: 12345, scale)
        assert value == wanted


@pytest.mark.parametrize("scale", [2.0**21, 3.7e9, 2.0**40])
def test_laplace_digits_equal_their_exact_path(scale: float) -> None:
    rng = np.random.default_rng(3)
    words, low = (rng.integers(0, 1 << 64, 60, dtype=np.uint64) for _ in range(2))
    got = noise.discrete_laplace(scale, 60, stream=Injected(words.tolist(), 99, low.tolist()))
    digits = math.ceil(math.log2(scale / 2**20))
    for value, word, low_word in zip(got.tolist(), words.tolist(), low.tolist(), strict=True):
        assert value == sampler.exact_discrete_laplace_by_digits(word, low_word, lambda _: 99, scale, digits)


ALL_ONES = (1 << 256) - 1


def gaussian_boundary(k: int, scale: float) -> int:
    """The word whose interval of tails holds the boundary between k and k + 1 (positive sign)."""
    with localcontext(sampler.exact._EXACT):
        return int(sampler.exact._upper_tail((k + Decimal("0.5")) / Decimal(scale)) * (1 << 64))


@pytest.mark.parametrize(("scale", "k"), [(1.0, 0), (1.0, 2), (3.0, 4), (1000.0, 612), (2.0**20, 1_300_000)])
def test_ties_of_the_rounded_gaussian_are_settled_by_further_bits(scale: float, k: int) -> None:
    word = gaussian_boundary(k, scale)
    low, high = Injected([word], 0), Injected([word], ALL_ONES)
    assert noise.rounded_gaussian(scale, 1, stream=low).tolist() == [k + 1]  # a smaller tail lies further out
    assert noise.rounded_gaussian(scale, 1, stream=high).tolist() == [k]
    assert low.asked == high.asked == 1
    clear = Injected([word + (1 << 40), word + (1 << 63) + (1 << 40)])
    if scale < 10:  # far from the boundary no further bit is read, and the sign bit mirrors
        assert noise.rounded_gaussian(scale, 2, stream=clear).tolist() == [k, -k]
        assert clear.asked == 0


@pytest.mark.guarantee
@pytest.mark.parametrize(("scale", "m"), [(1.0, 0), (3.0, 5), (1000.0, 1234)])
def test_ties_of_the_table_are_settled_by_further_bits(scale: float, m: int) -> None:
    cumulative, thresholds, _ = sampler.discrete_gaussian_table(scale)
    word = int(thresholds[m])
    rest = cumulative[m] - (word << 256)
    below, above = Injected([word], rest - 3), Injected([word], rest + 2)
    assert noise.discrete_gaussian(scale, 1, stream=below).tolist() == [m]
    assert noise.discrete_gaussian(scale, 1, stream=above).tolist() == [m + 1]
    assert below.asked == above.asked == 1
    assert noise.discrete_gaussian(scale, 2, stream=Injected([word - 1, word + 1])).tolist() == [m, m + 1]


@pytest.mark.guarantee
def test_ties_of_the_laplace_are_settled_by_further_bits() -> None:
    with localcontext(sampler.exact._EXACT):
        q = (-1 / Decimal(3)).exp()
        word = int(2 * q**4 / (1 + q) * (1 << 63))  # P(|X| >= 4)
    assert noise.discrete_laplace(3.0, 1, stream=Injected([word], 0)).tolist() == [4]
    assert noise.discrete_laplace(3.0, 1, stream=Injected([word], ALL_ONES)).tolist() == [3]


class Long(Injected):
    """Further bits as one long number: whatever block is asked for is the next 256 bits of it."""

    def __init__(self, words: list[int], bits: int, blocks: int, second: list[int] | None = None) -> None:
        super().__init__(words, 0, second)
        self.bits, self.blocks = bits, blocks

    def more(self, coordinate: int, block: int) -> int:
        self.asked += 1
        j = block if block < 1 << 32 else block >> 32
        return (self.bits >> 256 * (self.blocks - 1 - j)) & ALL_ONES


def long_tail(tail: mpmath.mpf, first: int, blocks: int) -> tuple[int, int]:
    """The leading bits and ``blocks`` blocks of further bits of a probability."""
    bits = int(mpmath.floor(mpmath.ldexp(tail, first + 256 * blocks)))
    return bits >> 256 * blocks, bits & ((1 << 256 * blocks) - 1)


@pytest.mark.long_for("40.0-524288.0", "40.0-700.0")
@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 700.0, 2.0**19])
@pytest.mark.parametrize("z", [5.0, 24.0, 40.0])
def test_the_law_is_exact_in_ratio_far_beyond_any_tail_that_is_ever_drawn(scale: float, z: float) -> None:
    """Just inside and just outside a boundary z deviations out, which 320 bits could not tell from zero for z > 21."""
    k, blocks = int(z * scale), 12
    with mpmath.workdps(1100):
        edge = mpmath.erfc((k + mpmath.mpf(0.5)) / (mpmath.mpf(scale) * mpmath.sqrt(2))) / 2
        for factor, wanted in ((mpmath.mpf(1) + mpmath.mpf(10) ** -60, k), (mpmath.mpf(1) - mpmath.mpf(10) ** -60, k + 1)):
            word, further = long_tail(edge * factor, 64, blocks)
            bits = Long([word], further, blocks)
            assert noise.rounded_gaussian(scale, 1, stream=bits).tolist() == [wanted]
            assert bits.asked == 1 or z > 15


@pytest.mark.long_for("40.0-1600")
@pytest.mark.slow
@pytest.mark.parametrize(("scale", "m"), [(1.0, 40), (3.0, 120), (3.0, 21), (40.0, 1600)])
def test_the_table_goes_on_where_it_ends(scale: float, m: int) -> None:
    blocks = 12
    with mpmath.workdps(1100):
        weights = [mpmath.exp(-mpmath.mpf(k * k) / (2 * mpmath.mpf(scale) ** 2)) for k in range(int(120 * scale) + 100)]
        beyond = 2 * mpmath.fsum(weights[m + 1 :]) / (2 * mpmath.fsum(weights) - 1)  # P(|X| > m)
        for factor, wanted in ((1 + mpmath.mpf(10) ** -50, m), (1 - mpmath.mpf(10) ** -50, m + 1)):
            word, further = long_tail(1 - beyond * factor, 63, blocks)
            assert noise.discrete_gaussian(scale, 1, stream=Long([word], further, blocks)).tolist() == [wanted]


@pytest.mark.guarantee
def test_a_laplace_and_a_choice_are_exact_in_ratio_too() -> None:
    blocks = 12
    with mpmath.workdps(1100):
        q = mpmath.exp(-mpmath.mpf(1) / 3)
        edge = 2 * q**2000 / (1 + q)  # P(|X| >= 2000), about e^-667
        for factor, wanted in ((1 + mpmath.mpf(10) ** -50, 1999), (1 - mpmath.mpf(10) ** -50, 2000)):
            word, further = long_tail(edge * factor, 63, blocks)
            assert noise.discrete_laplace(3.0, 1, stream=Long([word], further, blocks)).tolist() == [wanted]
        for x in (3, 300, 900):
            weight = mpmath.exp(-x) * mpmath.mpf(2) ** sampler.CHOICE_POWER
            for factor, taken in ((1 - mpmath.mpf(10) ** -50, True), (1 + mpmath.mpf(10) ** -50, False)):
                rest, further = long_tail(weight * factor, 0, blocks)
                more = Long([], further, blocks)
                assert sampler.exact_acceptance(rest, lambda j, m=more: m.more(0, j), 1.0, x, sampler.CHOICE_POWER) is taken


@pytest.mark.guarantee
def test_bits_that_are_zero_for_ever_end() -> None:
    bits = Injected([0], 0)
    assert noise.rounded_gaussian(3.0, 1, stream=bits)[0] > 40
    assert bits.asked == sampler.exact._LAST + 1


@pytest.mark.guarantee
def test_rejections_draw_anew() -> None:
    scale = 2000.0
    word, fresh = gaussian_boundary(3000, scale) + (1 << 50), gaussian_boundary(10, scale)
    # The largest acceptance word is refused (a(3000) < 1); the next proposal comes from block 2 and is kept.
    bits = Injected([word], {1: ALL_ONES, 2: (fresh << 64) | 5, 3: ALL_ONES}, [(1 << 64) - 1])
    assert noise.discrete_gaussian(scale, 1, stream=bits).tolist() == [10]
    # Laplace by digits: minus zero is refused, and so is a low part that fails exp(-low / scale).
    top = (1 << 64) - 1
    positive = (1 << 63) - 5
    bits = Injected([top], {0: ALL_ONES, 1: 0, 2: (positive << 64) | (3 << 63), 3: 0, 4: 0}, [0])
    assert noise.discrete_laplace(2.0**21, 1, stream=bits).tolist() == [1]
    bits = Injected([positive], {0: 0, 1: ALL_ONES, 2: 0, 3: 0}, [top])
    assert noise.discrete_laplace(2.0**21, 1, stream=bits).tolist() == [0]


# --- streams ------------------------------------------------------------------------------------------------------------


def test_noise_is_a_function_of_key_and_coordinate() -> None:
    whole = noise.rounded_gaussian(50.0, 100_001, stream=stream("chunks"))
    for start, count in ((0, 7), (7, 40_000), (32_767, 3), (99_999, 2)):
        part = noise.rounded_gaussian(50.0, count, stream=stream("chunks"), start=start)
        assert np.array_equal(part, whole[start : start + count])
    with ThreadPoolExecutor(4) as pool:
        parts = pool.map(lambda i: noise.rounded_gaussian(50.0, 25_000, stream=stream("chunks"), start=25_000 * i), range(4))
        assert np.array_equal(np.concatenate(list(parts)), whole[:100_000])


def _child(queue) -> None:
    queue.put(noise.rounded_gaussian(50.0, 1000, stream=stream("fork")).tolist())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_draws_the_same_numbers() -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == noise.rounded_gaussian(50.0, 1000, stream=stream("fork")).tolist()
    child.join(60)


@pytest.mark.guarantee
def test_streams_differ_by_every_name_and_lane() -> None:
    source = KeySource.secret()
    names = [("a", 1), ("a", "1"), (b"a", 1), ("a1",), ("a", 1, 0), ("", "a", 1)]
    first = {source.stream(*n).words(0, 1)[0] for n in names} | {source.stream("a", 1).words(0, 1, 1)[0]}
    assert len(first) == len(names) + 1
    assert KeySource.secret().stream("a", 1).words(0, 1)[0] not in first
    assert noise.discrete_laplace(2.0**30, 3).tolist() != noise.discrete_laplace(2.0**30, 3).tolist()
    assert "key" not in repr(source.stream("a"))


@pytest.mark.guarantee
@pytest.mark.parametrize("scale", [0.049, 2.0**20 + 1, math.nan, math.inf, True, "3"])
def test_scales_out_of_range_are_refused(scale: float) -> None:
    with pytest.raises(UsageError, match="scale"):
        noise.rounded_gaussian(scale, 1)


# --- the exponential mechanism ------------------------------------------------------------------------------------------

CHOICES = {
    "flat": (np.random.default_rng(0).integers(-3, 4, 300), 0.1),
    "peaked": (np.arange(300)[::-1] ** 2 // 9, 0.03),
    "one of every tile": (np.where(np.arange(640) % 64 == 5, 40, 0), 0.17),
    "one candidate": (np.array([-7]), 3.0),
    "one more than a tile": (np.arange(65) % 7, 0.5),
    "all equal": (np.full(130, -9), 2.0),
    "limits of int64": (np.array([2**63 - 1, -(2**63), 2**63 - 5, 2**63 - 2, 0]), 0.4),
    "low limit": (np.array([-(2**63), 5 - 2**63, -(2**63), 1 - 2**63]), 0.4),
    "far apart": (np.array([2**62, 2**62, -(2**62)]), 1e300),
    "rate 0": (np.array([2**63 - 1, -(2**63), 5]), 0.0),
}


def choice_p_value(scores: np.ndarray, rate: float, signed: bool, name: str, law: np.ndarray | None = None) -> float:
    """Chi-square of 12,000 choices (full size: 30,000) against the closed form (or another law), cells of at least 20 expected."""
    draws, candidates = sized(30_000, 12_000), [int(s) for s in scores] + [-int(s) for s in scores] * signed
    if law is None:
        law = np.exp([-rate * float(max(candidates) - s) for s in candidates])
    bits = KeySource.simulation(20261121)
    picks = [noise.choose(scores, rate, signed=signed, stream=bits.stream(name, signed, i)) for i in range(draws)]
    found, expected = np.bincount(picks, minlength=law.size), law / law.sum() * draws
    small = expected < 20
    found, expected = np.append(found[~small], found[small].sum()), np.append(expected[~small], expected[small].sum())
    if expected[-1] < 1:
        assert found[-1] <= 10
        found, expected = found[:-1], expected[:-1]
    return float(stats.chi2.sf(((found - expected) ** 2 / expected).sum(), found.size - 1)) if found.size > 1 else 1.0


@pytest.mark.slow
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", CHOICES)
def test_choice_frequencies_match_the_closed_form(name: str, signed: bool) -> None:
    """Theorem F.12."""
    assert choice_p_value(*CHOICES[name], signed, name) > 1e-4


@pytest.mark.parametrize("name", ["flat", "peaked", "one of every tile"])
def test_a_choice_at_another_rate_is_caught(name: str) -> None:
    scores, rate = CHOICES[name]
    wrong = np.exp((1.6 if name == "flat" else 1.06) * rate * (scores - scores.max()))
    assert choice_p_value(scores, rate, signed=False, name=name, law=wrong) < 1e-4


def test_an_envelope_below_a_weight_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theorem F.12."""
    tiles = sampler.choice_tiles

    def low(scores, signed, rate, power, masses):
        best = tiles(scores, signed, rate, power, masses)
        masses[2] //= 2
        return best

    monkeypatch.setattr(sampler, "choice_tiles", low)
    assert choice_p_value(*CHOICES["flat"], signed=False, name="flat") < 1e-6


def test_envelopes_are_above_their_weights_and_close_to_them() -> None:
    """Theorem F.12."""
    rng = np.random.default_rng(0)
    distances = [0, 1, 2, 3, 2**53 + 1, 2**64 - 1, *(int(2.0**e) for e in rng.uniform(0, 64, 400))]
    with mpmath.workdps(60):
        for power in (30, sampler.CHOICE_POWER):
            for distance in distances:
                for rate in (0.0, 5e-324, 1e-17, 1e-3, float(rng.exponential()), 10 / distance if distance else 1.0, 1e308):
                    weight = mpmath.mpf(2) ** power * mpmath.exp(-mpmath.mpf(rate) * distance)
                    assert weight <= int(sampler.choice._envelope(np.uint64(distance), rate, power)) <= 1.0615 * weight + 3


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", CHOICES)
def test_the_exact_path_makes_the_same_choices(name: str, signed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an endless band every trial is decided by 100 digits and further bits."""
    decided, exact = [], sampler.exact_acceptance

    def spy(*arguments):
        decided.append(exact(*arguments))
        return decided[-1]

    def choices() -> list[int]:
        source = KeySource.simulation(3)
        return [noise.choose(*CHOICES[name], signed=signed, stream=source.stream(name, i)) for i in range(300)]

    fast = choices()
    monkeypatch.setattr(sampler, "exact_acceptance", spy)
    monkeypatch.setattr(sampler, "CHOICE_BAND", 1e300)
    assert choices() == fast
    assert sum(decided) == 300
    assert len(decided) > 300 or name in {"one candidate", "all equal", "rate 0"}


class Words(Injected):
    """The words of the test, then no more."""

    def words(self, start: int, count: int, lane: int = 0) -> np.ndarray:
        if start:
            raise StopIteration
        return self.lanes[0]


@pytest.mark.slow
def test_further_bits_decide_where_a_word_cannot() -> None:
    """One weight of 2^44, one of 2^44 / e: what is left of a word is the whole part of a uniform number below the envelope."""
    scores, envelope = np.array([0, -1]), (1 << sampler.CHOICE_POWER) + 2
    with localcontext() as context:
        context.prec = 120
        weight = Decimal(-1).exp() * (1 << sampler.CHOICE_POWER)
        whole, further = int(weight), int((weight % 1) * (1 << 256))
    for rest, more, taken, asked in (
        (whole - 1, 0, True, 0),
        (whole, further - (1 << 40), True, 1),
        (whole, further + (1 << 40), False, 1),
        (whole + 1, 0, False, 0),
    ):
        bits = Words([envelope + rest], more)
        if taken:
            assert noise.choose(scores, 1.0, stream=bits) == 1
        else:
            with pytest.raises(StopIteration):
                noise.choose(scores, 1.0, stream=bits)
        assert bits.asked == asked
    for rest, taken in ((0, True), (envelope - 3, True), (envelope - 2, False), (envelope - 1, False)):
        assert noise.choose(scores, 1.0, stream=Words([rest, envelope])) == (0 if taken else 1)


@pytest.mark.slow
def test_a_word_beyond_the_last_multiple_of_all_envelopes_is_passed_over() -> None:
    scores, total = np.zeros(3, dtype=np.int64), 3 * ((1 << sampler.CHOICE_POWER) + 2)
    last = (1 << 64) // total * total - 1  # the third envelope's last integer, which is above its weight
    assert noise.choose(scores, 1.0, stream=Words([last - 2, 0])) == 2
    for word in (last, last + 1, (1 << 64) - 1):
        assert noise.choose(scores, 1.0, stream=Words([word, 0])) == 0
    assert noise.choose(scores, 1.0, stream=Words([last + 1, last - 2])) == 2


@pytest.mark.slow
def test_a_choice_that_outlives_its_words_asks_for_the_next() -> None:
    class Late(Injected):
        def words(self, start: int, count: int, lane: int = 0) -> np.ndarray:
            return np.full(count, 1 << 45 if start >= 2 * count else (1 << 64) - 1, dtype=np.uint64)

    assert noise.choose(np.zeros(3, dtype=np.int64), 1.0, stream=Late([])) == 1


@pytest.mark.slow
def test_a_choice_reads_scores_of_any_layout_and_needs_no_stream() -> None:
    scores = np.array([[0, 5], [100, 5], [0, 5]])
    assert noise.choose(scores[:, 0], 10.0) == 1
    assert noise.choose(np.frombuffer(scores[1].tobytes(), dtype=np.int64), 10.0, signed=True) == 0


@pytest.mark.guarantee
def test_choice_refuses_what_is_not_a_score_vector() -> None:
    for bad in (np.zeros(0, dtype=np.int64), np.zeros((2, 2), dtype=np.int64), np.zeros(2)):
        with pytest.raises(UsageError, match="int64"):
            noise.choose(bad, 1.0)
    with pytest.raises(UsageError, match="rate"):
        noise.choose(np.zeros(2, dtype=np.int64), -1.0)
