"""The proof that rows are short: complete, sound against every known cheat, and silent about the rows (Theorems J.4 to J.9).

Every cheat is run twice: against the product, where it fails, and against rules that are broken on purpose, where it succeeds.
"""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import short_rows_twin as twin
from scipy import stats
from short_rows_twin import Case, Opened, Proof, Rules

from unpooled.errors import ProtocolError, UsageError
from unpooled.kernels.field import four_squares
from unpooled.privacy.masks import masked, masks
from unpooled.products import prover
from unpooled.products import short_rows as coins
from unpooled.products.prover import evaluate, judge, prove
from unpooled.products.short_rows import (
    SUMS,
    BlockShape,
    Evaluation,
    ProofPlace,
    ToHelper,
    ToJudge,
    Verdict,
    rows_of_blocks,
)

P = 2**61 - 1
PLACE = ProofPlace("plan", "run", "b", "a", "h", 0)
RNG = np.random.default_rng(0)
MASKS, SECRET = bytes(range(32)), bytes(range(32, 64))
FAR = 2**36


def fair_rows(rows: int, columns: int, length: int) -> np.ndarray:
    """Rows no longer than the length; the last is exactly as long, the first is zero where there are several."""
    values = RNG.normal(size=(rows, columns)) * length
    shrunk = np.maximum(length - np.sqrt(columns) / 2, 0) / np.maximum(np.linalg.norm(values, axis=1), 1e-9)
    out = np.rint(values * np.minimum(1, shrunk)[:, None]).astype(np.int64)
    out[0], out[-1] = 0, 0
    out[-1, -1] = -length
    return out


def run(place: ProofPlace, shape: BlockShape, rows: np.ndarray, mask_seed: bytes = MASKS, secret: bytes = SECRET) -> Verdict:
    to_judge, to_helper = prove(place, shape, rows, mask_seed, secret)
    return judge(place, shape, masked(rows, mask_seed), to_judge, evaluate(place, shape, mask_seed, to_helper))


def words(values: list) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


# --- completeness --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "columns", "length"),
    [(1, 1, 0), (1, 1, 1), (2, 1, 7), (3, 5, 1000), (300, 20, 13 * 1024), (1000, 2, 50), (64, 3, 1)],
)
def test_fair_rows_are_accepted(rows: int, columns: int, length: int) -> None:
    shape = BlockShape(rows, columns, length**2)
    block = fair_rows(rows, columns, length)
    for number in range(3):
        verdict = run(replace(PLACE, block=number), shape, block)
        assert verdict.accepted
        assert {len(part) for part in (verdict.judge_digest, verdict.helper_digest, verdict.coin)} == {32}


@pytest.mark.parametrize("square", [2 * 4**10, 4**5 * 7, 4**3 * 15, 8 * 4**8, 7, 1000003])
def test_every_largest_length_can_be_completed(square: int) -> None:
    shape = BlockShape(5, 2, square)
    block = RNG.integers(-int(np.sqrt(square / 2)), int(np.sqrt(square / 2)) + 1, (5, 2))
    block[1] = 0
    completed = shape.completed(block).astype(object)
    centred = np.where(completed > P // 2, completed - P, completed)
    assert ((centred**2).sum(axis=1) == square).all()
    assert run(PLACE, shape, block).accepted


@pytest.mark.slow
def test_a_whole_block_is_accepted() -> None:
    assert run(PLACE, BlockShape(1 << 14, 20, (13 * 1024) ** 2), fair_rows(1 << 14, 20, 13 * 1024)).accepted


def test_equal_arguments_give_equal_messages() -> None:
    shape, block = BlockShape(5, 2, 10**6), fair_rows(5, 2, 1000)
    first, second = (prove(PLACE, shape, block, MASKS, SECRET) for _ in range(2))
    assert first[1] == second[1]
    assert all(np.array_equal(getattr(first[0], f.name), getattr(second[0], f.name)) for f in dataclasses.fields(ToJudge))


def test_the_next_attempt_has_other_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum out of range is met by nobody; where it is, nothing of the first attempt is sent."""
    shape, block = BlockShape(5, 2, 10**6), fair_rows(5, 2, 1000)
    answers, calls = [False, False, True], []
    monkeypatch.setattr(prover, "in_range", lambda _shape, sums: calls.append(sums) or answers[len(calls) - 1])
    to_judge, to_helper = prove(PLACE, shape, block, MASKS, SECRET)
    seeds = [prover.seeds_of(PLACE, shape, block, MASKS, SECRET, attempt) for attempt in range(3)]
    assert len(calls) == 3
    assert len({tuple(sums.tolist()) for sums in calls}) == 3
    assert len({part for one in seeds for part in (one.shares, one.third, one.blind)}) == 9
    assert (to_helper.seed, to_judge.blind) == (seeds[2].shares, seeds[2].blind)
    assert judge(PLACE, shape, masked(block, MASKS), to_judge, evaluate(PLACE, shape, MASKS, to_helper)).accepted


def test_sums_of_fair_rows_stay_far_inside_their_range() -> None:
    """The bound of Theorem J.4: the deviation of a sum is L sqrt(rows/2), a tenth of the range or less."""
    shape, block = BlockShape(500, 3, 1000**2), fair_rows(500, 3, 1000)
    completed = shape.completed(block)
    found = np.concatenate([coins.sums(bytes([k]) * 32, completed).astype(np.int64) for k in range(20)])
    values = np.where(found > P // 2, found - P, found) / (1000 * np.sqrt(500 / 2))
    assert abs(values.std() - 1) < 0.1  # 2560 values: six deviations of their spread
    assert 2**shape.wrap >= 10 * 1000 * np.sqrt(500 / 2) > 2 ** (shape.wrap - 1)


# --- what is public --------------------------------------------------------------------------------------------------------------


def test_the_range_of_sums_is_the_smallest_that_keeps_the_bound() -> None:
    for rows, length in ((1, 0), (1, 1), (3, 2), (16384, 13312), (77, 12345)):
        t = BlockShape(rows, 2, length**2).wrap
        assert 4**t >= 50 * length**2 * rows
        assert t == 0 or 4 ** (t - 1) < 50 * length**2 * rows


def test_the_range_holds_its_lower_end_and_not_its_upper_one() -> None:
    """The bits of y + 2^t are those of a number from 0 to 2^(t+1) - 1."""
    shape = BlockShape(3, 2, 100**2)
    end = 2**shape.wrap
    for sums, inside in (([0, -end, end - 1], True), ([0, end], False), ([-end - 1, 5], False), ([P // 2], False)):
        found = words([y % P for y in sums])
        assert prover.in_range(shape, found) is inside
        weighed = coins.bits_of(found, shape).astype(object) @ (2 ** np.arange(shape.bits, dtype=object)) - end
        assert (weighed.tolist() == sums) is inside


def test_shapes_whose_squares_could_wrap_are_refused() -> None:
    BlockShape(1 << 14, 20, (13 * 1024) ** 2).check()
    for shape in (BlockShape(1 << 22, 20, (13 * 1024) ** 2), BlockShape(10, 2, 2**55), BlockShape(10, 2**55, 1)):
        with pytest.raises(UsageError, match="fewer than"):
            shape.check()
    for shape in (
        BlockShape(0, 1, 1),
        BlockShape(1, 0, 1),
        BlockShape(1, 1, -1),
        BlockShape(1, 1, np.int64(1)),
        BlockShape(1.0, 1, 1),
    ):
        with pytest.raises(UsageError, match="at least one row"):
            shape.check()
    largest = next(t for t in range(40) if 24 * 4 ** (t + 2) >= P)
    at = BlockShape(1, 20, 4**largest // 50)  # the last square for which the condition holds
    assert at.wrap == largest
    at.check()
    with pytest.raises(UsageError, match="coarser"):
        BlockShape(1, 20, 4**largest // 50 + 1).check()


def test_blocks_are_as_large_as_their_squares_allow() -> None:
    assert rows_of_blocks(20, (13 * 1024) ** 2) == 1 << 14
    for columns, square in ((20, 2**40), (300, 2**38), (1, 2**48)):
        rows = rows_of_blocks(columns, square)
        assert 1 <= rows < 1 << 14
        BlockShape(rows, columns, square).check()
        with pytest.raises(UsageError):
            BlockShape(2 * rows, columns, square).check()
    with pytest.raises(UsageError, match="coarser grid"):
        rows_of_blocks(1, 2**52)


def test_places_and_shapes_have_bytes_of_their_own() -> None:
    places = [PLACE, *(replace(PLACE, **{f.name: "x"}) for f in dataclasses.fields(ProofPlace) if f.name != "block")]
    places += [
        replace(PLACE, block=1),
        ProofPlace("planrun", "", "b", "a", "h", 0),
        ProofPlace("plan", "run", "a", "b", "h", 0),
    ]
    assert len({place.bytes() for place in places}) == len(places)
    assert len({BlockShape(*size).bytes() for size in ((1, 2, 3), (2, 1, 3), (1, 2, 4), (12, 3, 3))}) == 4


def other_places() -> list[ProofPlace]:
    """The place with each of its parts changed."""
    names = [f.name for f in dataclasses.fields(ProofPlace) if f.name != "block"]
    return [*(replace(PLACE, **{name: "x"}) for name in names), replace(PLACE, block=1)]


def test_seeds_depend_on_everything_that_coins_depend_on() -> None:
    """Theorem J.8: nothing random is used under two coins."""
    shape, block = BlockShape(2, 2, 1000**2), fair_rows(2, 2, 1000)
    fair = {"place": PLACE, "shape": shape, "rows": block, "mask_seed": MASKS, "secret": SECRET, "attempt": 0}
    changed = [{"place": place} for place in other_places()]
    changed += [{"shape": replace(shape, square=shape.square + 1)}, {"rows": block + 1}, {"rows": block.reshape(4, 1)}]
    changed += [{"mask_seed": SECRET}, {"secret": MASKS}, {"attempt": 1}, {}]
    seeds = [prover.seeds_of(**{**fair, **one}) for one in changed]
    assert len({part for one in seeds for part in (one.shares, one.third, one.blind)}) == 3 * len(changed)


def test_rows_that_are_too_long_are_refused_by_their_owner_without_a_word_about_them() -> None:
    shape = BlockShape(2, 2, 1000**2)
    for row in ((1000, 1), (1001, 0), (-(2**62), 0), (2**63 - 1, 2**63 - 1), (-(2**63), 0)):
        with pytest.raises(UsageError, match="longer than the proof declares") as caught:
            prove(PLACE, shape, np.array([[0, 0], row]), MASKS, SECRET)
        assert not any(digit in str(caught.value) for digit in "0123456789")
    for block in (np.zeros((2, 2)), np.zeros((3, 2), np.int64)):
        with pytest.raises(UsageError, match="another shape"):
            prove(PLACE, shape, block, MASKS, SECRET)
    with pytest.raises(UsageError, match="32 bytes"):
        prove(PLACE, shape, np.zeros((2, 2), np.int64), MASKS, b"secret")


def test_seeds_are_not_shown_when_messages_are_printed() -> None:
    shape, block = BlockShape(2, 2, 1000**2), fair_rows(2, 2, 1000)
    to_judge, to_helper = prove(PLACE, shape, block, MASKS, SECRET)
    for secret in (to_helper.seed, to_judge.blind):
        assert repr(secret) not in repr(to_helper) + repr(to_judge)
    assert "array" not in repr(to_judge)


# --- the twin --------------------------------------------------------------------------------------------------------------------


def case_of(shape: BlockShape, place: ProofPlace = PLACE, rules: Rules = twin.FAIR) -> Case:
    members = place.prover, place.judge, place.helper
    named = place.plan, place.run, *members, place.round, place.part, place.block
    return Case(named, shape.rows, shape.columns, shape.square, rules)


def messages(proof: Proof, shape: BlockShape) -> tuple[ToJudge, ToHelper]:
    """A proof of the twin as messages of the product."""
    halvings = words([[list(start), list(end)] for start, end in proof.halvings]).reshape(-1, 2, 2)
    bits = words(proof.bits).reshape(SUMS, shape.bits)
    last = words([list(pair) for pair in proof.last])
    to_judge = ToJudge(proof.blind, proof.helper_digest, words(proof.roots), bits, halvings, last)
    return to_judge, ToHelper(proof.seed, b"".join(proof.digests))


def completed_fairly(shape: BlockShape, block: np.ndarray) -> list[list[int]]:
    return shape.completed(block).tolist()


def product_verdict(shape: BlockShape, proof: Proof, at_judge: list[list[int]], place: ProofPlace = PLACE) -> bool:
    to_judge, to_helper = messages(proof, shape)
    return judge(place, shape, words(at_judge), to_judge, evaluate(place, shape, MASKS, to_helper)).accepted


def twin_verdict(case: Case, proof: Proof, at_judge: list[list[int]]) -> bool:
    return twin.judge(case, at_judge, proof, twin.evaluate(case, MASKS, proof))


def masked_words(completed: list[list[int]], shape: BlockShape) -> list[list[int]]:
    of_masks = masks(MASKS, shape.rows, shape.columns).tolist()
    return [[(x + r) % P for x, r in zip(row, mask, strict=False)] for row, mask in zip(completed, of_masks, strict=True)]


@pytest.mark.parametrize(("rows", "columns", "length"), [(1, 1, 0), (1, 1, 3), (2, 2, 100), (5, 3, 1000)])
def test_the_product_does_what_the_twin_does_in_plain_integers(rows: int, columns: int, length: int) -> None:
    shape, block = BlockShape(rows, columns, length**2), fair_rows(rows, columns, length)
    case = case_of(shape)
    assert (shape.wrap, shape.halvings) == (case.wrap, case.halvings)
    proof = twin.prove(case, block.tolist(), completed_fairly(shape, block), MASKS, SECRET)
    to_judge, to_helper = prove(PLACE, shape, block, MASKS, SECRET)
    expected, expected_helper = messages(proof, shape)
    assert to_helper == expected_helper
    assert all(np.array_equal(getattr(to_judge, f.name), getattr(expected, f.name)) for f in dataclasses.fields(ToJudge))
    opened, found = twin.evaluate(case, MASKS, proof), evaluate(PLACE, shape, MASKS, to_helper)
    assert found.opened.tolist() == [list(opened.value), list(opened.of_ends), list(opened.of_product)]
    assert (found.helper_digest, found.coin) == (opened.helper_digest, opened.coin)
    at_judge = masked(block, MASKS)
    assert judge(PLACE, shape, at_judge, to_judge, found).accepted
    assert twin.judge(case, at_judge.tolist(), proof, opened)
    for part in range(3):
        wrong = found.opened.copy()
        wrong[part, part % 2] ^= np.uint64(1)
        changed = dataclasses.replace(found, opened=wrong)
        pairs = [tuple(pair) for pair in wrong.tolist()]
        by_twin = twin.judge(case, at_judge.tolist(), proof, Opened(*pairs, found.helper_digest, found.coin))
        assert not by_twin
        assert not judge(PLACE, shape, at_judge, to_judge, changed).accepted


# --- cheats ----------------------------------------------------------------------------------------------------------------------

KEEP = lambda _case, _coin, _weighing, _points, _completed, _sums, _bits, values: values


def wrapped_row(square: int) -> list[int]:
    """A row of one column beyond 2^36 that has the right square modulo p, by a root of what is lacking."""
    for big in range(FAR, FAR + 400):
        root = pow(square - big * big, (P + 1) // 4, P)
        if (root * root - square + big * big) % P == 0:
            return [big, 0, root, 0, 0, 0]
    raise AssertionError


@pytest.mark.parametrize(("sums", "accepted"), [(128, False), (0, True)])
def test_a_row_whose_square_wraps_passes_only_where_no_sum_is_checked(sums: int, accepted: bool) -> None:
    """Theorem J.5."""
    shape = BlockShape(4, 2, 1000**2)
    case = case_of(shape, rules=Rules(sums=sums))
    completed = completed_fairly(shape, fair_rows(4, 2, 1000))
    completed[2] = wrapped_row(shape.square)
    assert sum(x * x for x in completed[2]) % P == shape.square
    at_judge = masked_words(completed, shape)
    proof = twin.prove(case, completed, completed, MASKS, SECRET, KEEP)
    assert twin_verdict(case, proof, at_judge) is accepted
    if sums == SUMS:
        assert not product_verdict(shape, proof, at_judge)


def test_a_row_whose_square_wraps_passes_each_sum_with_a_half_at_most() -> None:
    """Theorem J.5: entries from 2^(t+1) on leave the range with every other sum, whatever the rest of the block."""
    shape = BlockShape(4, 2, 1000**2)
    completed = completed_fairly(shape, fair_rows(4, 2, 1000))
    at = words(completed)
    at[2, 0] = 2 ** (shape.wrap + 1)
    found = np.concatenate([coins.sums(bytes([k]) * 32, at).astype(np.int64) for k in range(20)])
    centred = np.where(found > P // 2, found - P, found)
    inside = (centred >= -(2**shape.wrap)) & (centred < 2**shape.wrap)
    # 2560 sums, of which half have the sign 0 and are inside; six deviations.
    assert inside.mean() < 0.5 + 6 * 0.5 / np.sqrt(2560)


@pytest.mark.parametrize("rules", [twin.FAIR, Rules(bits_weighted=False), Rules(sums_weighted=False)])
@pytest.mark.parametrize("unchecked", ["bits_weighted", "sums_weighted"])
def test_a_sum_out_of_range_passes_only_where_bits_are_not_held_to_be_bits_of_it(rules: Rules, unchecked: str) -> None:
    """Theorem J.7: words that add up to the sum and are no bits, and bits that do not add up to it."""
    shape = BlockShape(4, 2, 1000**2)
    case, rest = case_of(shape, rules=rules), [0] * (shape.bits - 1)
    completed = completed_fairly(shape, fair_rows(4, 2, 1000))
    completed[2] = wrapped_row(shape.square)
    claimed = (lambda y: [(y + 2**shape.wrap) % P, *rest]) if unchecked == "bits_weighted" else (lambda _y: [1, *rest])
    at_judge = masked_words(completed, shape)
    proof = twin.prove(case, completed, completed, MASKS, SECRET, KEEP, claimed=claimed)
    assert twin_verdict(case, proof, at_judge) is not getattr(rules, unchecked)
    if rules == twin.FAIR:
        assert not product_verdict(shape, proof, at_judge)


def long_row(shape: BlockShape, missing: int) -> list[list[int]]:
    """A block whose second row is one step too long; the squares of another row fall short by ``missing``."""
    length = int(np.sqrt(shape.square))
    block = fair_rows(shape.rows, shape.columns, length)
    block[1], block[2] = 0, 0
    block[1, :2] = length, 1
    lack = np.maximum(shape.square - (block**2).sum(axis=1), 0)
    lack[2] -= missing
    return [[x % P for x in row] for row in np.concatenate((block, four_squares(lack)), axis=1).tolist()]


@pytest.mark.parametrize(("independent", "accepted"), [(True, False), (False, True)])
def test_a_row_one_step_too_long_passes_only_where_rows_are_not_weighted_apart(independent: bool, accepted: bool) -> None:
    """Theorem J.6: with one weight for all rows, another row can make up for it."""
    shape = BlockShape(4, 2, 1000**2)
    case = case_of(shape, rules=Rules(independent=independent))
    completed = long_row(shape, 1)
    at_judge = masked_words(completed, shape)
    proof = twin.prove(case, completed, completed, MASKS, SECRET, KEEP)
    assert twin_verdict(case, proof, at_judge) is accepted
    if independent:
        assert not product_verdict(shape, proof, at_judge)


def bent(
    case: Case, coin: bytes, weighing: bytes, points: list, completed: list, sums: list, bits: list, values: list
) -> list:
    """A last polynomial that makes up for wrong equations, and is right at the point that the words as they are would give."""
    wrong = twin.mul(case.equation(weighing, completed, sums, bits, constant=True), twin.neg(twin.inv(twin.num(2))))
    for at in points:  # the error of a halving's claim is a polynomial that is 0 at 0 and 2
        wrong = twin.mul(wrong, twin.mul(at, twin.sub(twin.num(2), at)))
    at = twin.last_point(case.next(coin, b""))
    scale = twin.mul(wrong, twin.inv(twin.sub(twin.num(3), twin.add(at, at))))
    return [twin.add(value, twin.mul(scale, twin.sub(twin.num(k), at))) for k, value in enumerate(values)]


@pytest.mark.parametrize(("chained", "accepted"), [(True, False), (False, True)])
def test_a_prover_who_knows_the_coins_in_advance_proves_anything(chained: bool, accepted: bool) -> None:
    """Theorem J.7: every coin depends on the words before it."""
    shape = BlockShape(4, 2, 1000**2)
    case = case_of(shape, rules=Rules(chained=chained))
    completed = long_row(shape, 0)
    at_judge = masked_words(completed, shape)
    proof = twin.prove(case, completed, completed, MASKS, SECRET, bent)
    assert twin_verdict(case, proof, at_judge) is accepted
    if chained:
        assert not product_verdict(shape, proof, at_judge)


def form_of_first_halving(u: list, v: list, at: twin.Pair) -> twin.Pair:
    return twin.dot(twin.fold(u, at), twin.fold(v, at))


def test_a_judge_who_sends_different_coins_reads_a_form_of_the_rows_and_ours_sends_none() -> None:
    """Theorem J.8: with coins from a verifier, the helper's shares of the sum give away <u, v> at one point minus another."""
    shape, block = BlockShape(3, 2, 100**2), fair_rows(3, 2, 100)
    case = case_of(shape)
    completed, at_judge = completed_fairly(shape, block), masked(block, MASKS).tolist()
    seen = []
    for asked in (lambda step, at: (12345, 678) if step == 0 else at, None):  # the control, and the product
        proof = twin.prove(case, block.tolist(), completed, MASKS, SECRET)
        opened = twin.evaluate(case, MASKS, proof, asked)
        at = [asked(k, point) if asked else point for k, point in enumerate(proof.points)]
        # The judge folds its own shares along the coins of the helper, and adds what the helper opened.
        rows = [list(a) + b for a, b in zip(at_judge, proof.roots, strict=True)]
        coin = case.next(case.first(proof.helper_digest, proof.digests[0]), proof.digests[1])
        first = case.first(proof.helper_digest, proof.digests[0])
        sums = case.signed(first, [x for row in rows for x in row])
        claim = twin.mul(case.equation(coin, rows, sums, proof.bits, constant=True), twin.neg(twin.inv(twin.num(2))))
        for ends, one in zip(proof.halvings, at, strict=True):
            claim = twin.folded(claim, ends, one)
        read = twin.add(twin.sub(twin.add(proof.last[2], proof.last[3]), claim), opened.of_ends)
        for one in at[1:]:
            read = twin.mul(read, twin.inv(twin.mul(one, twin.sub(twin.num(2), one))))
        rows_h, bits_h = twin.residues_of_helper(case, MASKS, proof.seed)
        u, v = case.factor_of_judge(coin, rows, proof.bits), case.factor_of_helper(rows_h, bits_h)
        secret = twin.sub(form_of_first_halving(u, v, proof.points[0]), form_of_first_halving(u, v, (12345, 678)))
        seen.append(read == secret != (0, 0))
        assert asked or read == (0, 0)
    assert seen == [True, False]
    # In the product a judge gives the helper nothing at all, and a helper with digests of other words is found out.
    to_judge, to_helper = prove(PLACE, shape, block, MASKS, SECRET)
    for k in range(len(to_helper.digests) // 32):
        other = bytearray(to_helper.digests)
        other[32 * k] ^= 1
        found = evaluate(PLACE, shape, MASKS, ToHelper(to_helper.seed, bytes(other)))
        assert not judge(PLACE, shape, masked(block, MASKS), to_judge, found).accepted


@pytest.mark.parametrize(("blinded", "confirmed"), [(True, False), (False, True)])
def test_a_helper_confirms_a_guess_of_all_rows_only_where_digests_are_not_blinded(blinded: bool, confirmed: bool) -> None:
    """Theorem J.9: it knows every mask, so that an open digest of the judge's words would be a digest of the rows."""
    shape, block = BlockShape(3, 2, 100**2), fair_rows(3, 2, 100)
    case = case_of(shape, rules=Rules(blinded=blinded))
    proof = twin.prove(case, block.tolist(), completed_fairly(shape, block), MASKS, SECRET)
    if blinded:
        assert messages(proof, shape)[1] == prove(PLACE, shape, block, MASKS, SECRET)[1]
    rows_h, _ = twin.residues_of_helper(case, MASKS, proof.seed)
    guess = completed_fairly(shape, block)
    flat = [(x - h) % P for row, shares in zip(guess, rows_h, strict=True) for x, h in zip(row, shares, strict=True)]
    # The blinds that it can think of: none, and what it can derive from the seed that it has.
    blinds = [bytes(32), proof.seed, twin.mac(proof.seed, "blind"), proof.helper_digest]
    tried = [twin.digest(blind, "rows", ((3, 6), flat)) for blind in blinds]
    assert (proof.digests[0] in tried) is confirmed


@pytest.mark.parametrize(("fresh", "reads"), [(True, False), (False, True)])
def test_two_openings_under_one_random_third_give_a_form_of_the_rows(fresh: bool, reads: bool) -> None:
    """Theorem J.8: the seed depends on the place, so that two runs over the same rows and masks share nothing random."""
    shape, block = BlockShape(3, 2, 100**2), fair_rows(3, 2, 100)
    known, true = [], []
    for name in ("one run", "another run"):
        case = case_of(shape, replace(PLACE, run=name), Rules(fresh=fresh))
        proof = twin.prove(case, block.tolist(), completed_fairly(shape, block), MASKS, SECRET)
        opened = twin.evaluate(case, MASKS, proof)
        if fresh:
            place = replace(PLACE, run=name)
            found = evaluate(place, shape, MASKS, prove(place, shape, block, MASKS, SECRET)[1])
            assert found.opened[0].tolist() == list(opened.value)
        at_third, *rest = twin.basis(3, twin.last_point(opened.coin))
        known.append(twin.mul(opened.value, twin.inv(at_third)))
        v = case.factor_of_helper(*twin.residues_of_helper(case, MASKS, proof.seed))
        for point in proof.points:
            v = twin.fold(v, point)
        true.append(twin.mul(twin.dot(v, rest), twin.inv(at_third)))
    assert (twin.sub(*known) == twin.sub(*true)) is reads


def test_every_part_of_every_message_counts() -> None:
    shape, block = BlockShape(3, 2, 100**2), fair_rows(3, 2, 100)
    at_judge = masked(block, MASKS)
    to_judge, to_helper = prove(PLACE, shape, block, MASKS, SECRET)
    found = evaluate(PLACE, shape, MASKS, to_helper)
    decide = partial(judge, PLACE, shape)
    assert decide(at_judge, to_judge, found).accepted
    for name in ("roots", "bits", "halvings", "last"):
        whole = getattr(to_judge, name)
        for at in RNG.permutation(whole.size)[:12]:
            changed = whole.copy()
            changed.flat[at] = (int(changed.flat[at]) + 1) % P
            assert not decide(at_judge, replace(to_judge, **{name: changed}), found).accepted
    for name in ("blind", "helper_digest"):
        assert not decide(at_judge, replace(to_judge, **{name: bytes(32)}), found).accepted
    for name in ("helper_digest", "coin"):
        assert not decide(at_judge, to_judge, replace(found, **{name: bytes(32)})).accepted
    moved = at_judge.copy()
    moved[1, 1] = (int(moved[1, 1]) + 1) % P
    assert not decide(moved, to_judge, found).accepted
    # A helper with another seed of the masks: the rows B* that count are what it and the judge hold together.
    assert not decide(at_judge, to_judge, evaluate(PLACE, shape, bytes(32), to_helper)).accepted
    for other in other_places():
        assert not judge(other, shape, at_judge, to_judge, found).accepted
        assert not judge(other, shape, at_judge, to_judge, evaluate(other, shape, MASKS, to_helper)).accepted
    assert not judge(PLACE, replace(shape, square=shape.square - 1), at_judge, to_judge, found).accepted


# --- messages of strangers ---------------------------------------------------------------------------------------------------------


def damaged(array: np.ndarray) -> list[object]:
    """Arrays of wrong kinds and sizes, and words that are no residues."""
    high = array.copy()
    high.flat[-1] = P
    highest = array.copy()
    highest.flat[0] = 2**64 - 1
    shorter, longer = array[:-1], np.concatenate((array, array[:1]))
    kinds = [array.astype(np.int64), array.astype(float), array.astype(object), array.tolist(), array.astype(">u8")]
    return [high, highest, shorter, longer, array[..., None], array.ravel()[:0], None, b"", *kinds]


def test_malformed_messages_are_refused_as_such() -> None:
    shape, block = BlockShape(3, 2, 100**2), fair_rows(3, 2, 100)
    at_judge = masked(block, MASKS)
    to_judge, to_helper = prove(PLACE, shape, block, MASKS, SECRET)
    found = evaluate(PLACE, shape, MASKS, to_helper)
    for name in ("roots", "bits", "halvings", "last"):
        for wrong in damaged(getattr(to_judge, name)):
            with pytest.raises(ProtocolError):
                judge(PLACE, shape, at_judge, replace(to_judge, **{name: wrong}), found)
    for wrong in damaged(found.opened):
        with pytest.raises(ProtocolError):
            judge(PLACE, shape, at_judge, to_judge, replace(found, opened=wrong))
    for wrong in damaged(at_judge):
        with pytest.raises(ProtocolError):
            judge(PLACE, shape, wrong, to_judge, found)
    for wrong in (b"", bytes(31), bytes(33), "x" * 32, None, 5, bytearray(32)):
        for name in ("blind", "helper_digest"):
            with pytest.raises(ProtocolError):
                judge(PLACE, shape, at_judge, replace(to_judge, **{name: wrong}), found)
        for name in ("helper_digest", "coin"):
            with pytest.raises(ProtocolError):
                judge(PLACE, shape, at_judge, to_judge, replace(found, **{name: wrong}))
        with pytest.raises(ProtocolError):
            evaluate(PLACE, shape, MASKS, ToHelper(wrong, to_helper.digests))
        with pytest.raises(ProtocolError):
            evaluate(PLACE, shape, wrong, to_helper)
    for wrong in (b"", to_helper.digests[:-1], to_helper.digests[:-32], to_helper.digests + bytes(32), None):
        with pytest.raises(ProtocolError):
            evaluate(PLACE, shape, MASKS, ToHelper(to_helper.seed, wrong))


def test_arrays_that_cannot_be_written_to_are_read_all_the_same() -> None:
    shape, block = BlockShape(3, 2, 100**2), fair_rows(3, 2, 100)
    at_judge = masked(block, MASKS)
    to_judge, to_helper = prove(PLACE, shape, block, MASKS, SECRET)
    found = evaluate(PLACE, shape, MASKS, to_helper)

    def received(array: np.ndarray) -> np.ndarray:
        return np.frombuffer(array.tobytes(), dtype="<u8").reshape(array.shape)

    arrays = {name: received(getattr(to_judge, name)) for name in ("roots", "bits", "halvings", "last")}
    sent = Evaluation(received(found.opened), found.helper_digest, found.coin)
    assert judge(PLACE, shape, received(at_judge), replace(to_judge, **arrays), sent).accepted


# --- zero knowledge ----------------------------------------------------------------------------------------------------------------

CELLS = 16
#: False alarms of one chi-square test; there are fewer than 50 of them in this file: a false alarm of any has a chance below 10^-7.
LEVEL = 2e-9


def p_value(values: list[int] | np.ndarray) -> float:
    """Chi-square of residues in equal cells."""
    cells = np.array([int(value) * CELLS // P for value in values])
    assert len(cells) >= 50 * CELLS / 10
    return stats.chisquare(np.bincount(cells, minlength=CELLS)).pvalue


def judges_view(shape: BlockShape, block: np.ndarray, number: int) -> tuple[np.ndarray, ToJudge, Evaluation]:
    place, mask_seed = replace(PLACE, block=number), twin.sha("masks", number)
    to_judge, to_helper = prove(place, shape, block, mask_seed, SECRET)
    return masked(block, mask_seed), to_judge, evaluate(place, shape, mask_seed, to_helper)


def simulated(shape: BlockShape, number: int) -> tuple[np.ndarray, ToJudge, Evaluation]:
    """The judge's view without rows: uniform words, and the helper's two last numbers solved from the judge's own equations."""
    place, rng = replace(PLACE, block=number), np.random.default_rng(number)
    draw = lambda *size: rng.integers(0, P, size, dtype=np.uint64)
    at_judge = draw(shape.rows, shape.columns)
    arrays = draw(shape.rows, 4), draw(SUMS, shape.bits), draw(shape.halvings, 2, 2), draw(6, 2)
    to_judge = ToJudge(rng.bytes(32), rng.bytes(32), *arrays)
    case = case_of(shape, place)
    rows = np.concatenate((at_judge, to_judge.roots), axis=1).tolist()
    flat = [x for row in rows for x in row]
    coin = case.first(to_judge.helper_digest, twin.digest(to_judge.blind, "rows", ((shape.rows, shape.width), flat)))
    sums, bits = case.signed(coin, flat), to_judge.bits.ravel().tolist()
    coin = case.next(coin, twin.digest(to_judge.blind, "bits", ((SUMS, shape.bits), bits)))
    claim = twin.mul(case.equation(coin, rows, sums, bits, constant=True), twin.neg(twin.inv(twin.num(2))))
    u = case.factor_of_judge(coin, rows, bits)
    for step, ends in enumerate(to_judge.halvings):
        coin = case.next(coin, twin.digest(to_judge.blind, f"halving {step}", ((2, 2), ends.ravel().tolist())))
        at = twin.point(coin)
        claim, u = twin.folded(claim, tuple(map(tuple, ends.tolist())), at), twin.fold(u, at)
    coin = case.next(coin, twin.digest(to_judge.blind, "last", ((6, 2), to_judge.last.ravel().tolist())))
    third, *last = map(tuple, to_judge.last.tolist())
    at, value = twin.last_point(coin), tuple(draw(2).tolist())
    product = twin.sub(twin.mul(twin.lagrange([third, *u], at), value), twin.lagrange(last, at))
    opened = words([value, twin.sub(claim, twin.add(last[1], last[2])), product])
    return at_judge, to_judge, Evaluation(opened, to_judge.helper_digest, coin)


def parts(view: tuple[np.ndarray, ToJudge, Evaluation]) -> dict[str, np.ndarray]:
    at_judge, to_judge, found = view
    inside = {name: getattr(to_judge, name)[-2:].ravel() for name in ("roots", "bits", "halvings", "last")}
    opened = {f"opened {k}": found.opened[k] for k in range(3)}
    return {"masked": at_judge[:, 0], **inside, **opened}


@pytest.mark.long
@pytest.mark.slow
def test_the_judges_view_is_that_of_its_simulator() -> None:
    """Theorem J.8: every number is uniform in both, and the simulated view is accepted."""
    shape, block = BlockShape(3, 2, 100**2), fair_rows(3, 2, 100)
    real, made = [], []
    for number in range(150):
        real.append(parts(judges_view(shape, block, number)))
        if number < 60:
            view = simulated(shape, number)
            assert judge(replace(PLACE, block=number), shape, view[0], *view[1:]).accepted
            made.append(parts(view))
    for name in real[0]:
        assert p_value(np.concatenate([one[name] for one in real])) > LEVEL, name
        assert p_value(np.concatenate([one[name] for one in made])) > LEVEL, name


@pytest.mark.slow
def test_the_helpers_view_is_that_of_its_simulator() -> None:
    """Theorem J.9: a seed and digests that look uniform, and numbers that follow from them alone."""
    shape, block = BlockShape(3, 2, 100**2), fair_rows(3, 2, 100)
    rng = np.random.default_rng(1)
    for draw in (
        lambda k: prove(replace(PLACE, block=k), shape, block, MASKS, SECRET)[1],
        lambda _k: ToHelper(rng.bytes(32), rng.bytes(32 * (shape.halvings + 3))),
    ):
        seen = [draw(k) for k in range(150)]
        for name in ("seed", "digests"):
            raw = np.frombuffer(b"".join(getattr(one, name) for one in seen), dtype=np.uint8)
            assert stats.chisquare(np.bincount(raw >> 4, minlength=16)).pvalue > LEVEL
        opened = [evaluate(replace(PLACE, block=k), shape, MASKS, one).opened for k, one in enumerate(seen)]
        for k in range(3):
            assert p_value(np.concatenate([one[k] for one in opened])) > LEVEL


def beyond_the_known(case: Case, proof: Proof, opened: Opened) -> twin.Pair:
    """What is opened, minus the linear form of the rows in it: whoever guesses the rows computes this."""
    v = case.factor_of_helper(*twin.residues_of_helper(case, MASKS, proof.seed))
    for point in proof.points:
        v = twin.fold(v, point)
    return twin.sub(opened.value, twin.dot(v, twin.basis(3, twin.last_point(opened.coin))[1:]))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("third", "uniform"), [(True, True), (False, False)])
def test_what_is_opened_is_uniform_also_for_one_who_guesses_the_rows(third: bool, uniform: bool) -> None:
    """Theorem J.8: without the random third, the number opened confirms a guess."""
    shape, block = BlockShape(2, 1, 10**2), fair_rows(2, 1, 10)
    left = []
    for number in range(60):
        case = case_of(shape, replace(PLACE, block=number), Rules(third=third))
        proof = twin.prove(case, block.tolist(), completed_fairly(shape, block), MASKS, SECRET)
        opened = twin.evaluate(case, MASKS, proof)
        assert twin.judge(case, masked(block, MASKS).tolist(), proof, opened)
        left += beyond_the_known(case, proof, opened)
    assert bool(p_value(left) > LEVEL) is uniform
    assert (set(left) == {0}) is not uniform


def test_the_random_third_hides_at_every_point_that_can_be_drawn() -> None:
    """In the field of 49 elements, by enumeration: x -> x (r - 1)(r - 2)/2 is onto unless r is 1 or 2; no residue is drawn."""
    q = 7
    times = lambda a, b: ((a[0] * b[0] - a[1] * b[1]) % q, (a[0] * b[1] + a[1] * b[0]) % q)
    all_of_them = [(x, y) for x in range(q) for y in range(q)]
    for r in all_of_them:
        at_third = times(times(((r[0] - 1) % q, r[1]), ((r[0] - 2) % q, r[1])), (pow(2, -1, q), 0))
        onto = len({times(at_third, x) for x in all_of_them}) == q * q
        assert onto is (r not in {(1, 0), (2, 0)})
    assert all(coins.last_point(bytes([k]) * 32)[1] != 0 for k in range(200))


def test_a_last_point_that_would_be_a_residue_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coins, "uniform_words", lambda _seed, count: words([5, 0, 0, 9, 11])[:count])
    assert coins.last_point(bytes(32)) == (5, 9)


def test_a_helper_who_alters_its_numbers_is_rejected_whatever_the_rows() -> None:
    """Theorem J.9: the judge's factor is uniform for the helper, so that no change of its numbers asks a question about the rows."""
    shape = BlockShape(3, 2, 100**2)
    for block in (fair_rows(3, 2, 100), np.zeros((3, 2), np.int64)):
        at_judge, to_judge, found = judges_view(shape, block, 0)
        for change in ([1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [5, 0, 7]):
            opened = found.opened.copy()
            opened[:, 0] = (opened[:, 0] + words(change)) % np.uint64(P)
            assert not judge(PLACE, shape, at_judge, to_judge, replace(found, opened=opened)).accepted


@pytest.mark.parametrize(("apart", "confirmed"), [(True, False), (False, True)])
def test_the_verdict_confirms_a_guess_only_where_the_helper_can_compute_the_judges_third(
    apart: bool, confirmed: bool
) -> None:
    """Theorem J.9: a helper that computes U(r) for a guess alters its numbers so that they still fit if the guess is right."""
    shape, block = BlockShape(3, 2, 100**2), fair_rows(3, 2, 100)
    block[1] = 30, 40
    case, completed = case_of(shape, rules=Rules(apart=apart)), completed_fairly(shape, block)
    at_judge = masked(block, MASKS).tolist()
    proof = twin.prove(case, block.tolist(), completed, MASKS, SECRET)
    opened = twin.evaluate(case, MASKS, proof)
    verdicts = []
    for guess in (block, block + np.array([[0, 0], [1, 0], [0, 0]])):
        # The helper's own shares and the guess give the judge's words, its factor, and with the third the value U(r).
        rows_h, bits_h = twin.residues_of_helper(case, MASKS, proof.seed)
        words_of_guess = completed_fairly(shape, guess)
        rows = [[(x - h) % P for x, h in zip(*both, strict=True)] for both in zip(words_of_guess, rows_h, strict=True)]
        sums = case.signed(case.first(proof.helper_digest, proof.digests[0]), [x for row in words_of_guess for x in row])
        bits = [(y + 2**case.wrap) % P >> j & 1 for y in sums for j in range(case.wrap + 1)]
        coin = case.next(case.first(proof.helper_digest, proof.digests[0]), proof.digests[1])
        u = case.factor_of_judge(coin, rows, [(t - h) % P for t, h in zip(bits, bits_h, strict=True)])
        for point in proof.points:
            u = twin.fold(u, point)
        third = twin.pairs(twin.mac(twin.mac(proof.seed, "third of the judge"), "third"), 1)[0]
        factor = twin.lagrange([third, *u], twin.last_point(opened.coin))
        altered = replace(opened, value=twin.add(opened.value, (1, 0)), of_product=twin.add(opened.of_product, factor))
        verdicts.append(twin.judge(case, at_judge, proof, altered))
    assert verdicts == [confirmed, False]
    assert twin.judge(case, at_judge, proof, opened)
