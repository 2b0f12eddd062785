"""Arithmetic modulo 2^61 - 1 and exact products, compared with Python's integers (Theorems J.1 and J.3 compute with them)."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled.errors import UsageError
from unpooled.kernels import field
from unpooled.kernels.field import (
    LARGEST,
    four_squares,
    linear_part,
    scaled,
    signed_sums,
    term_of_masked_rows,
    term_of_masks,
    term_of_rows,
    weighted_squares,
)
from unpooled.kernels.field import masked_product as product

P = 2**61 - 1
CORNERS = [0, 1, 2, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**60, 2**60 - 1, P // 2, P // 2 + 1, P - 2, P - 1]
RNG = np.random.default_rng(0)


def residues(*shape: int) -> np.ndarray:
    return RNG.integers(0, P, shape, dtype=np.uint64)


def grid() -> tuple[np.ndarray, np.ndarray]:
    """All pairs of corners, and random pairs."""
    a, b = (side.ravel() for side in np.meshgrid(np.array(CORNERS, dtype=np.uint64), np.array(CORNERS, dtype=np.uint64)))
    return np.concatenate((a, residues(1000))), np.concatenate((b, residues(1000)))


def pair_product(a: list[int], b: list[int]) -> list[int]:
    return [(a[0] * b[0] - a[1] * b[1]) % P, (a[0] * b[1] + a[1] * b[0]) % P]


def test_sums_differences_and_products_are_those_of_integers() -> None:
    a, b = grid()
    for operation, exact in (
        (field.add, lambda x, y: x + y),
        (field.subtract, lambda x, y: x - y),
        (field.multiply, lambda x, y: x * y),
    ):
        assert operation(a, b).tolist() == [exact(x, y) % P for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert field.add(residues(3, 4), np.uint64(5)).shape == (3, 4)
    assert field.total(a) == sum(a.tolist()) % P


def test_any_signed_integer_is_encoded_and_small_ones_come_back() -> None:
    values = np.array([-(2**63), -(2**63) + 1, -P, -P - 1, -P + 1, -1, 0, 1, P - 1, P, P + 1, 2**62, 2**63 - 1])
    assert field.encode(values).tolist() == [value % P for value in values.tolist()]
    small = np.concatenate((RNG.integers(-(P // 2), P // 2 + 1, 1000), [P // 2, -(P // 2), 0]))
    assert np.array_equal(field.decode(field.encode(small)), small)


def test_products_in_the_quadratic_extension() -> None:
    corners = np.array([[x, y] for x in CORNERS for y in CORNERS], dtype=np.uint64)
    a = np.concatenate((np.repeat(corners, len(corners), axis=0), residues(100, 2)))
    b = np.concatenate((np.tile(corners, (len(corners), 1)), residues(100, 2)))
    keep = RNG.permutation(len(a))[:3000]
    a, b = a[keep], b[keep]
    exact = [pair_product(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert field.multiply_pairs(a, b).tolist() == exact


def test_minus_one_has_no_square_root() -> None:
    """So that pairs of residues are a field."""
    assert pow(P - 1, (P - 1) // 2, P) == P - 1


def exact_fold(values: list[list[int]], r: list[int], half: int) -> list[list[int]]:
    whole = values + [[0, 0]] * (2 * half - len(values))
    out = []
    for x, y in zip(whole[:half], whole[half:], strict=True):
        step = pair_product([y[0] - x[0], y[1] - x[1]], r)
        out.append([(x[0] + step[0]) % P, (x[1] + step[1]) % P])
    return out


@pytest.mark.parametrize(("size", "half"), [(1, 1), (2, 1), (3, 2), (5, 4), (8, 4), (3, 4), (100, 64)])
def test_a_vector_folds_as_if_zeros_followed_it(size: int, half: int) -> None:
    for words in (residues(size, 2), residues(size)):
        u, v = residues(size, 2), words
        pairs = v.tolist() if v.ndim == 2 else [[x, 0] for x in v.tolist()]
        for r in ([5, 7], [0, P - 1], [P - 1, 0]):
            assert field.fold(v, tuple(r), half).tolist() == exact_fold(pairs, r, half)
        ends = []
        for k in (0, 2):
            both = zip(exact_fold(u.tolist(), [k, 0], half), exact_fold(pairs, [k, 0], half), strict=True)
            products = [pair_product(x, y) for x, y in both]
            ends.append([sum(x[part] for x in products) % P for part in range(2)])
        assert field.end_values(u, v, half).tolist() == ends


def exact_product(a: np.ndarray, b: np.ndarray) -> list[list[int]]:
    found = a.astype(object).T @ b.astype(object)
    return [[int(x) % P for x in row] for row in found]


@pytest.mark.parametrize("rows", [0, 1, 7, 2048, 2049, 5000])
def test_products_of_matrices_are_exact(rows: int) -> None:
    words, others = residues(rows, 3), residues(rows, 2)
    small = RNG.integers(-(2**41) + 1, 2**20, (rows, 3))
    beyond = RNG.integers(0, 2**64, (rows, 2), dtype=np.uint64)
    assert product(words, others).tolist() == exact_product(words, others)
    assert product(small, others).tolist() == exact_product(small, others)
    assert product(beyond, beyond).tolist() == exact_product(beyond, beyond)


@pytest.mark.parametrize("corner", [P - 1, 2**64 - 1, 2**42 - 1])
def test_products_of_the_largest_words_are_exact(corner: int) -> None:
    words = np.full((4096, 2), corner, dtype=np.uint64)
    assert product(words, words).tolist() == exact_product(words, words)
    for sign in (1, -1):
        small = np.full((4096, 2), sign * (2**41 - 1))
        assert product(small, words).tolist() == exact_product(small, words)


def test_products_refuse_what_would_not_be_exact() -> None:
    words = residues(5, 2)
    with pytest.raises(UsageError, match="coarser grid"):
        product(np.full((5, 1), -(2**41)), words)
    for left, right in (
        (words[:3], words),
        (words.astype(float), words),
        (words, words.astype(np.int64)),
        (words[0], words),
    ):
        with pytest.raises(UsageError, match="product modulo p"):
            product(left, right)


def masked_pair() -> tuple[np.ndarray, ...]:
    """Rows, masks, and masked rows of both parties."""
    a, b = RNG.integers(-5000, 5000, (300, 3)), RNG.integers(-5000, 5000, (300, 2))
    masks, others = residues(300, 3), residues(300, 2)
    return a, b, masks, others, field.add(field.encode(a), masks), field.add(field.encode(b), others)


def test_the_three_terms_add_up_to_the_product() -> None:
    """Theorem J.1."""
    a, b, masks, others, sent, received = masked_pair()
    first, second, third = term_of_rows(a, received), term_of_masked_rows(sent, others), term_of_masks(masks, others)
    assert np.array_equal(field.decode(field.add(field.add(first, second), third)), a.T @ b)


def test_each_missing_term_gives_one_party_known_weights_on_the_rows_of_the_other() -> None:
    """Theorem J.1: weights of 61 bits, from which one unknown value is read exactly."""
    a, b, masks, others, sent, received = masked_pair()
    first, second, third = term_of_rows(a, received), term_of_masked_rows(sent, others), term_of_masks(masks, others)
    zero = np.zeros_like(first)
    exact = lambda left, right: product(field.encode(left) if left.dtype == np.int64 else left, right)
    # Without the first, the party of B reads A'R_b; without the second, that of A reads R_a'B; without the third, (A + R_a)'B.
    assert np.array_equal(field.subtract(zero, field.add(second, third)), exact(a, others))
    known = field.add(first, product(masks, received))
    assert np.array_equal(field.subtract(known, field.add(first, third)), exact(masks, field.encode(b)))
    without_helper = field.add(field.add(first, second), product(masks, received))
    assert np.array_equal(without_helper, exact(sent, field.encode(b)))
    # One unknown value of b, all others known: it is read through noise that hides the product itself.
    guess, noise = b.copy(), RNG.integers(-(2**30), 2**30, without_helper.shape)
    guess[17, 1] = 0
    left = field.subtract(field.add(without_helper, field.encode(noise)), exact(sent, field.encode(guess)))
    fits = [
        x
        for x in range(-5000, 5000)
        if all(
            min((int(e) - x * int(w)) % P, (x * int(w) - int(e)) % P) < 2**31
            for e, w in zip(left[:, 1], sent[17], strict=True)
        )
    ]
    assert fits == [b[17, 1]]


def test_a_liar_is_worth_the_rows_that_judge_and_helper_hold_together() -> None:
    """Theorem J.1: the total for any message, any seed at the helper and any third term is A'B* plus what the liar knows."""
    a, _, masks, others, sent, received = masked_pair()
    lie = residues(300, 2)
    wrong = residues(3, 2)
    total = field.add(field.add(term_of_rows(a, lie), wrong), term_of_masks(masks, others))
    known = field.add(wrong, product(sent, others))
    assert np.array_equal(field.subtract(total, known), product(field.encode(a), field.subtract(lie, others)))
    assert not np.array_equal(lie, received)


@pytest.mark.parametrize(
    "numbers",
    [
        np.arange(200_000),
        np.array([4**m * k for m in range(26) for k in (0, 1, 2, 3, 7, 15, 23) if 4**m * k <= LARGEST]),
        np.array([4**m * (8 * k + 7) for m in range(19) for k in range(50) if 4**m * (8 * k + 7) <= LARGEST]),
        np.arange(1, 3000) ** 2,
        2 ** np.arange(53),
        np.maximum(0, 2 ** np.arange(53) - 1),
        np.arange(2**44 - 3000, 2**44 + 3000),
        np.arange(LARGEST - 300, LARGEST + 1),
        RNG.integers(0, 2**44, 20_000),
        (2**22 - np.arange(1000)) ** 2 - 1,
        np.array([], dtype=np.int64),
    ],
)
def test_every_number_is_a_sum_of_four_squares(numbers: np.ndarray) -> None:
    roots = four_squares(numbers)
    assert roots.shape == (numbers.size, 4)
    assert roots.min(initial=0) >= 0
    assert np.array_equal((roots**2).sum(axis=1), numbers)


@pytest.mark.parametrize("number", [-1, LARGEST + 1])
def test_other_numbers_are_refused(number: int) -> None:
    with pytest.raises(UsageError, match="between 0 and 2\\^52"):
        four_squares(np.array([5, number]))


@pytest.mark.parametrize("entries", [1, 8, 13, 100])
def test_signed_sums_are_those_of_single_bits(entries: int) -> None:
    words = np.array([P - 1] * entries, dtype=np.uint64) if entries == 100 else residues(entries)
    picks = RNG.integers(0, 256, (-(-entries // 8), 2, 128), dtype=np.uint8)
    held = np.zeros((2, 128), np.uint64)
    signed_sums(words, picks, held)
    for side in range(2):
        for c in range(0, 128, 17):
            chosen = [int(w) for i, w in enumerate(words) if picks[i // 8, side, c] >> (i % 8) & 1]
            assert int(held[side, c]) == sum(chosen) % P


def test_weighted_sums_are_those_of_integers() -> None:
    words, weights, width = residues(12), residues(4, 2), 3
    out = np.empty((12, 2), np.uint64)
    exact = [sum(int(weights[i // 3, part]) * int(words[i]) ** 2 for i in range(12)) % P for part in range(2)]
    assert scaled(words, weights, width, out).tolist() == exact == weighted_squares(words, weights, width).tolist()
    assert out.tolist() == [[int(w) * int(words[i]) % P for w in weights[i // 3]] for i in range(12)]
    sums, bits, of_sums, of_bits = residues(5), residues(5, 4), residues(5, 2), residues(5, 4, 2)
    found = linear_part(sums, bits, of_sums, of_bits)
    for part in range(2):
        value = sum(
            int(of_sums[c, part]) * (int(sums[c]) - sum(2**j * int(bits[c, j]) for j in range(4)))
            - sum(int(of_bits[c, j, part]) * int(bits[c, j]) for j in range(4))
            for c in range(5)
        )
        assert int(found[part]) == value % P
