"""Shares: they add up exactly, fewer than all of them are uniform noise, and a seal opens in one place only."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
from scipy import stats

from unpooled.errors import ProtocolError
from unpooled.privacy.noise import Stream
from unpooled.protocol.identity import Identity
from unpooled.totals import secure_sum
from unpooled.totals.secure_sum import PRIME

CLINIC, LAB, HOME = (Identity(letter * 32) for letter in (b"c", b"l", b"h"))
RNG = np.random.default_rng(0)
EXTREME = np.array([0, 1, -1, 2**63 - 1, -(2**63), 2**62, -(2**62), 12345], dtype=np.int64)


def split(vector: np.ndarray, nodes: int, secret: bytes | None = None) -> list:
    return secure_sum.split(vector, nodes, RNG.bytes(32) if secret is None else secret)


def summed(shares: list, position: int, nodes: int, size: int) -> np.ndarray:
    """The partial sum of the node at this position."""
    total = np.zeros(size, dtype=np.uint64)
    for share in shares:
        secure_sum.add_fragment(total, share, position, nodes)
    return total


def words(shares: list, size: int) -> list[np.ndarray]:
    return [summed([share], k, len(shares), size) for k, share in enumerate(shares)]


@pytest.mark.parametrize("nodes", [1, 2, 3, 10])
def test_the_shares_of_a_vector_add_up_to_it(nodes: int) -> None:
    for vector in (EXTREME, RNG.integers(-(2**40), 2**40, 1001), RNG.integers(-9, 9, (1 << 15) + 3)):
        before = vector.copy()
        shares = split(vector, nodes)
        assert np.array_equal(vector, before)
        assert [len(s) for s in shares] == [32] * (nodes - 1) + [8 * vector.size]
        assert np.array_equal(secure_sum.opened(words(shares, vector.size)), vector)


@pytest.mark.parametrize("clients", [2, 10, 100])
@pytest.mark.parametrize("nodes", [2, 3])
def test_partial_sums_open_the_exact_sum_of_all_clients(clients: int, nodes: int) -> None:
    vectors = RNG.integers(-(2**55), 2**55, (clients, 50))
    shared = [split(vector, nodes) for vector in vectors]
    partials = [summed([s[k] for s in shared], k, nodes, 50) for k in range(nodes)]
    assert np.array_equal(secure_sum.opened(partials), vectors.sum(axis=0))
    # Without one node, or with one client counted by some nodes only, there is nothing but noise.
    for wrong in (partials[:-1], [summed([s[0] for s in shared[1:]], 0, nodes, 50), *partials[1:]]):
        assert not np.isin(secure_sum.opened(wrong), vectors.sum(axis=0)).any()


def byte_p_value(view: np.ndarray) -> float:
    """Smallest p-value that bytes, bits of every place, and neighbouring bytes of these words are uniform, times their number."""
    raw = view.astype("<u8").view(np.uint8).reshape(-1, 8)
    values = [stats.chisquare(np.bincount(raw[:, k], minlength=256)).pvalue for k in range(8)]
    pairs = raw[:, 0].astype(int) % 16 * 16 + raw[:, 1] // 16
    values.append(stats.chisquare(np.bincount(pairs, minlength=256)).pvalue)
    values.append(stats.kstest(view.astype(np.float64) / 2.0**64, "uniform").pvalue)
    return float(min(values)) * len(values)


def correlation_p_value(view: np.ndarray, vector: np.ndarray) -> float:
    """Smallest p-value that a bit of the view is independent of the lowest bit, or of the sign, of the data."""
    values = []
    for secret in (vector & 1, vector < 0):
        for bit in range(64):
            seen = (view >> np.uint64(bit)) & np.uint64(1)
            agree = int((seen == secret).sum())
            values.append(stats.norm.sf(abs(2 * agree - secret.size) / np.sqrt(secret.size)) * 2)
    return float(min(values)) * len(values)


def views(shares: list[bytes], size: int):
    """What every coalition of all nodes but one sees: each of their words, and their sum."""
    seen = words(shares, size)
    for absent in range(len(shares)):
        rest = [w for k, w in enumerate(seen) if k != absent]
        yield from rest
        yield secure_sum.opened(rest).astype(np.uint64)


@pytest.mark.long_for("5")
@pytest.mark.slow_for("5", "3")
@pytest.mark.minutes
@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_fewer_than_all_nodes_see_uniform_words_that_do_not_depend_on_the_data(nodes: int) -> None:
    size = 40_000
    for vector in (np.zeros(size, dtype=np.int64), np.full(size, -7), RNG.integers(-3, 4, size)):
        for view in views(split(vector, nodes), size):
            assert byte_p_value(view) > 1e-6
            if vector.any() and vector.min() != vector.max():
                assert correlation_p_value(view, vector) > 1e-6


def broken_split(vector: np.ndarray, nodes: int, mask: int) -> list[bytes]:
    """Uniform words whose low bits are zero: the last share keeps the data's own."""
    seeds = [bytes([k]) * 32 for k in range(1, nodes)]
    rest = vector.astype(np.uint64)
    for seed in seeds:
        rest -= Stream(seed).words(0, vector.size) & np.uint64(mask)
    return [*seeds, rest.astype("<u8").tobytes()]


@pytest.mark.parametrize("mask", [2**64 - 2, 2**64 - 256, 2**63 - 1, 2**62 - 1])
def test_a_split_that_leaves_bits_is_caught(mask: int) -> None:
    vector = RNG.integers(-3, 4, 40_000)
    last = words(broken_split(vector, 2, mask), vector.size)[-1]
    assert min(byte_p_value(last), correlation_p_value(last, vector)) < 1e-9


def test_splits_by_two_secrets_share_nothing_and_by_one_everything() -> None:
    vector = np.arange(5000)
    one, other = (split(vector, 3, secret) for secret in (b"1" * 32, b"2" * 32))
    assert len({bytes(s) for s in (*one, *other)}) == 6
    difference = words(one, 5000)[-1] - words(other, 5000)[-1]
    assert byte_p_value(difference) > 1e-6
    assert [bytes(s) for s in split(vector, 3, b"1" * 32)] == [bytes(s) for s in one]


@pytest.mark.parametrize(
    ("share", "position", "words_"),
    [
        (b"", 0, "seed"),
        (bytes(31), 0, "seed"),
        (bytes(33), 1, "seed"),
        (bytes(24), 0, "seed"),
        (bytes(23), 2, "3 numbers"),
        (bytes(25), 2, "3 numbers"),
        (bytes(32), 2, "3 numbers"),
        (b"", 2, "3 numbers"),
    ],
)
def test_shares_of_another_length_are_refused(share: bytes, position: int, words_: str) -> None:
    with pytest.raises(ProtocolError, match=words_):
        summed([share], position, 3, 3)


# --- seals ------------------------------------------------------------------------------------------------------------------

PURPOSE = (b"moments", bytes(8), b"clinic", b"lab")


def sealed(
    message: bytes = b"share", purpose: tuple[bytes, ...] = PURPOSE, secret: bytes = b"s" * 32
) -> tuple[bytes, bytes]:
    return secure_sum.seal(partial(CLINIC.shared_key, b"plan"), LAB.agreement_key(b"plan"), purpose, message, secret)


@pytest.mark.parametrize("message", [b"", b"x", bytes(32), bytes(100_000)])
def test_a_seal_opens_for_its_receiver(message: bytes) -> None:
    salt, text = sealed(message)
    assert secure_sum.unseal(partial(LAB.shared_key, b"plan"), CLINIC.agreement_key(b"plan"), PURPOSE, salt, text) == message
    assert (len(salt), len(text)) == (32, len(message) + 16)
    assert len(message) < 8 or message not in text


def changed(text: bytes):
    yield from (text[:k] for k in (0, 1, 15, 16, len(text) - 1))
    yield text + b"\0"
    yield from (text[:k] + bytes([text[k] ^ 1]) + text[k + 1 :] for k in range(len(text)))


def test_a_seal_opens_nowhere_else() -> None:
    salt, text = sealed()
    clinic = CLINIC.agreement_key(b"plan")
    attempts = [
        (HOME, clinic, b"plan", PURPOSE, salt, text),  # another receiver
        (LAB, HOME.agreement_key(b"plan"), b"plan", PURPOSE, salt, text),  # another sender
        (LAB, CLINIC.agreement_key(b"other"), b"plan", PURPOSE, salt, text),  # a key of another plan
        (LAB, clinic, b"other", PURPOSE, salt, text),
        (LAB, LAB.agreement_key(b"plan"), b"plan", PURPOSE, salt, text),
        *((LAB, clinic, b"plan", tuple(p), salt, text) for p in itertools.permutations(PURPOSE) if p != PURPOSE),
        (LAB, clinic, b"plan", PURPOSE[:-1], salt, text),
        (LAB, clinic, b"plan", (b"moment", b"s" + bytes(8), *PURPOSE[2:]), salt, text),
        *((LAB, clinic, b"plan", PURPOSE, salt, other) for other in changed(text)),
        *((LAB, clinic, b"plan", PURPOSE, other, text) for other in changed(salt)),
    ]
    for receiver, key, plan, *rest in attempts:
        with pytest.raises(ProtocolError, match="sealed fragment"):
            secure_sum.unseal(partial(receiver.shared_key, plan), key, *rest)


def test_every_place_and_every_secret_has_a_key_of_its_own() -> None:
    """The nonce is constant, so no two different messages may meet one key."""
    purposes = [PURPOSE, (b"moment", b"s" + bytes(8), *PURPOSE[2:]), *(tuple(p) for p in itertools.permutations(PURPOSE))]
    salts = {sealed(purpose=purpose, secret=secret)[0] for purpose in set(purposes) for secret in (b"1" * 32, b"2" * 32)}
    assert len(salts) == 2 * len(set(purposes))
    assert sealed() == sealed()


@pytest.mark.guarantee
@pytest.mark.parametrize("key", ["", "zz", "00" * 32, "01" + "00" * 31])
def test_keys_that_anybody_knows_are_refused(key: str) -> None:
    """Points of small order would make the shared key a constant."""
    with pytest.raises(ProtocolError, match="X25519"):
        secure_sum.seal(partial(CLINIC.shared_key, b"plan"), key, PURPOSE, b"share", bytes(32))
    with pytest.raises(ProtocolError, match="X25519"):
        secure_sum.unseal(partial(CLINIC.shared_key, b"plan"), key, PURPOSE, bytes(32), bytes(60))


def test_one_word_that_is_no_residue_among_others_is_refused() -> None:
    words = np.array([0, 5, PRIME - 1], dtype=np.uint64)
    assert secure_sum.residues(words).tolist() == words.tolist()
    assert secure_sum.residues(words[:0]).size == 0
    for at in range(3):
        wrong = words.copy()
        wrong[at] = PRIME
        with pytest.raises(ProtocolError, match="no residues"):
            secure_sum.residues(wrong)
