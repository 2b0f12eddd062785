"""Uniform residues from seeds: exactly those of the key stream that are below p, in order (Theorem J.2)."""

from __future__ import annotations

import numpy as np
import pytest
import short_rows_twin as twin

from unpooled.errors import UsageError
from unpooled.kernels.field import MODULUS, decode, subtract
from unpooled.privacy import masks as words
from unpooled.privacy.noise import Stream

SEED = bytes(range(32))


@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
def test_words_are_those_of_the_key_stream_below_p(count: int) -> None:
    assert words.uniform_words(SEED, count).tolist() == twin.words(SEED, count)


def test_a_longer_array_begins_with_every_shorter_one() -> None:
    longest = words.uniform_words(SEED, (1 << 17) + 5)
    for count in (1, 2, 3, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 1 << 17):
        assert np.array_equal(words.uniform_words(SEED, count), longest[:count])


@pytest.mark.guarantee
def test_the_value_p_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word of the key stream whose lower 61 bits are all set is no residue, and would be a second 0."""
    fair = words.uniform_words(SEED, 100)
    drawn = Stream.words

    def rigged(self: Stream, start: int, count: int, lane: int = 0) -> np.ndarray:
        found = drawn(self, start, count, lane).copy()
        places = np.arange(start, start + count)
        found[(places % 10 == 3) | (places == 101)] |= np.uint64(MODULUS)
        return found

    monkeypatch.setattr(Stream, "words", rigged)
    kept = [x for i, x in enumerate(rigged(Stream(SEED), 0, 200).tolist()) if i % 10 != 3 and i != 101]
    for count in (1, 4, 9, 100):
        got = words.uniform_words(SEED, count)
        assert got.tolist() == [x & MODULUS for x in kept[:count]]
        assert int(got.max()) < MODULUS
    assert not np.array_equal(fair, words.uniform_words(SEED, 100))


def test_masked_rows_come_back_from_their_masks() -> None:
    rows = np.random.default_rng(0).integers(-5000, 5000, (50, 3))
    received = words.masked(rows, SEED)
    assert np.array_equal(decode(subtract(received, words.masks(SEED, 50, 3))), rows)


def test_parts_of_different_lists_never_have_the_same_bytes() -> None:
    lists = [("a", "b"), ("ab",), ("ab", ""), (b"ab",), (1, 2), (12,), ("12",), ("a", b"b"), ()]
    assert len({words.length_prefixed(*parts) for parts in lists}) == len(lists)


@pytest.mark.guarantee
def test_a_seed_has_32_bytes() -> None:
    with pytest.raises(UsageError, match="32 bytes"):
        words.uniform_words(b"short", 3)
