"""What coalitions see in a study of joint moments (Theorem J.11): words that say nothing of rows, or, where mask and masked rows meet, the rows."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np
import pytest
from joint_members import MODEL, people, study_of, world
from scipy import stats

from unpooled.errors import UsageError
from unpooled.kernels import field
from unpooled.privacy.masks import masks
from unpooled.privacy.plan import HelperCard, Study
from unpooled.privacy.table import Table
from unpooled.products.masking import HELD_SEED, ROWS, spots_of
from unpooled.protocol.local import drive, in_process

#: False alarms of one test of uniformity: with fewer than a thousand of them, once in ten thousand runs of this file.
ALARM = 1e-7
ROWS_OF_A_STUDY = 600


def ran(study: Any, tables: Any) -> tuple[Any, dict[str, Any]]:
    """Return the plan of a study, and its members after a run."""
    plan, members = MODEL.compile(study), people(study, tables)
    drive(MODEL, plan, in_process(members))
    return plan, members


def seen(plan: Any, members: dict[str, Any], coalition: set[str]) -> list[tuple[Any, np.ndarray, bool]]:
    """Return the masked rows that a coalition holds of others: the block, the words, and whether it has the masks as well."""
    found = []
    for spot in spots_of(plan.design):
        side = spot.side
        if side.receiver in coalition and side.sender not in coalition:
            words = members[side.receiver].keeper.kept(plan.hash, f"{ROWS}_{spot.key}")
            found.append((spot, words, side.helper in coalition))
    return found


def rows_of(plan: Any, members: dict[str, Any], spot: Any) -> np.ndarray:
    """Return the rows of a block as their party codes them."""
    sender = members[spot.side.sender]
    context = type(
        "Context",
        (),
        {"plan": plan, "name": sender.name, "table": sender.table, "kept": lambda _, n: sender.keeper.kept(plan.hash, n)},
    )()
    return plan.design.block(context, spot)


def uniform(words: np.ndarray) -> float:
    """Return the p-value of a chi-square test that words are uniform below the prime, over 64 cells."""
    cells = (words.ravel().astype(object) * 64) // field.MODULUS
    return float(stats.chisquare(np.bincount(cells.astype(int), minlength=64)).pvalue)


@pytest.mark.parametrize(("parties", "helper"), [(2, True), (3, True), (3, False), (4, False)])
def test_allowed_coalitions_see_uniform_words_and_forbidden_ones_read_the_rows(parties: int, helper: bool) -> None:
    cards, tables = world(parties, ROWS_OF_A_STUDY, helper=helper)
    study = study_of(cards, helper=helper)
    plan, members = ran(study, tables)
    names, counted = [card.name for card in study.members], {True: 0, False: 0}
    for size in range(1, len(names)):
        for coalition in map(set, itertools.combinations(names, size)):
            for spot, words, has_masks in seen(plan, members, coalition):
                rows = rows_of(plan, members, spot)
                counted[has_masks] += 1
                if has_masks:  # the control: what the statement names as not protected
                    seed = bytes(members[spot.side.helper].keeper.kept(plan.hash, f"{HELD_SEED}_{spot.key}"))
                    read = field.decode(field.subtract(words, masks(seed, *words.shape)))
                    assert np.array_equal(read, rows)
                else:
                    assert uniform(words) > ALARM
                    level = (words / np.float64(field.MODULUS) - 0.5).ravel()
                    assert abs(np.corrcoef(level, rows.ravel())[0, 1]) < 5.4 / np.sqrt(rows.size)  # 7e-8
    assert counted[True] > 0
    assert counted[False] > 0
    said = str(plan.statement)
    assert ("NOT against helper together" in said) == helper
    assert ("NOT against two parties of which one helped" in said) != helper


@pytest.mark.slow
def test_words_of_quite_other_rows_have_the_same_law() -> None:
    """All rows at one end of the bounds, or all at the other: what the receiver and the helper hold cannot tell which."""
    cards, tables = world(2, ROWS_OF_A_STUDY)
    views = []
    for end in (-1.0, 1.0):
        first = {"a0": np.full(ROWS_OF_A_STUDY, end), "b0": np.full(ROWS_OF_A_STUDY, end)}
        first["a0"][:2] = -end  # a column that is constant has no deviation
        study = study_of(cards)
        plan, members = ran(study, {**tables, "p0": Table(first)})
        ((spot, words, _),) = seen(plan, members, {"p1"})
        seed = members["helper"].keeper.kept(plan.hash, f"{HELD_SEED}_{spot.key}")
        views.append((words.ravel() / np.float64(field.MODULUS), seed))
    (one, seed), (other, another) = views
    assert stats.ks_2samp(one, other).pvalue > ALARM
    assert not np.array_equal(seed, another)


def test_the_share_of_a_member_is_hidden_from_every_coalition_that_lacks_a_node() -> None:
    """Partial sums of one node are uniform, whatever the total is; all nodes' together are the total."""
    from unpooled.protocol.messages import open_body, open_envelope
    from unpooled.protocol.transcript import Transcript
    from unpooled.totals.total import TotalReply

    cards, tables = world(4, helper=False)
    study = study_of(cards, helper=False, tolerate=2)
    record = Transcript()
    plan = MODEL.compile(study)
    drive(MODEL, plan, in_process(people(study, tables)), record)
    replies = [e.reply for e in record.entries if open_envelope(e.request).step == "joint-total"]
    partials = [open_body(open_envelope(reply), TotalReply).part.values.numpy() for reply in replies]
    assert len(partials) == 4  # whoever lacks one member's lacks every share
    for some in range(1, 4):
        for chosen in itertools.combinations(partials, some):
            words = chosen[0]
            for other in chosen[1:]:
                words = field.add(words, other)
            assert uniform(np.concatenate([words])) > ALARM
    whole = partials[0]
    for other in partials[1:]:
        whole = field.add(whole, other)
    assert np.abs(field.decode(whole)).max() < 1 << 50


def read_by_nodes(monkeypatch: pytest.MonkeyPatch, nodes: int) -> tuple[int, list[int]]:
    """Return one value of a row of p2, and the values that fit what p0 and p1 hold of p2's share, where so many members are nodes.

    They know all other values of p2. Its share holds -(A + R_a)'R_c and p2's own noise; p0 adds (A + R_a)'(C + R_c), and has weights of 61 bits on C.
    """
    from unpooled.products import conversation as sharing
    from unpooled.products import design as designs
    from unpooled.products.masking import OWN_SEED
    from unpooled.products.sums import JointSum
    from unpooled.totals import secure_sum

    monkeypatch.setattr(designs, "joint_sum", lambda members, tolerate: JointSum(members, tolerate, members, nodes))
    cards, tables = world(3, 40)
    study = study_of(cards)
    sent: list[list[Any]] = []
    split = secure_sum.split

    def noted(*given: Any, **how: Any) -> Any:
        sent.append(split(*given, **how))
        return sent[-1]

    monkeypatch.setattr(sharing.secure_sum, "split", noted)
    plan, members = ran(study, tables)
    shape, spots = plan.design.shape, spots_of(plan.design)
    held = [np.zeros(shape.size, dtype=np.uint64) for _ in range(2)]
    for at, part in enumerate(sent[2][:2]):  # members answer in the study's order: the third share is that of p2
        secure_sum.add_fragment(held[at], part, at, nodes, prime=True)
    whole = np.zeros((shape.columns + 1, shape.columns + 1), dtype=np.uint64)
    whole[shape.pairs] = field.add(*held)
    there = next(s for s in spots if s.side[:2] == ("p0", "p2"))
    back = next(s for s in spots if s.side[:2] == ("p2", "p0"))
    rows, truth = rows_of(plan, members, there).astype(object), rows_of(plan, members, back).astype(object)
    seed = bytes(members["p0"].keeper.kept(plan.hash, f"{OWN_SEED}_{there.key}"))
    weights = (rows + masks(seed, *rows.shape).astype(object)) % field.MODULUS
    received = members["p0"].keeper.kept(plan.hash, f"{ROWS}_{back.key}").astype(object)
    share = whole[shape.places["p0"], shape.places["p2"]].astype(object)
    row, column = 7, 0
    known = truth[:, column].copy()
    known[row] = 0
    rest = (weights.T @ received[:, column] + share[:, column] - weights.T @ known) % field.MODULUS
    noise, half = 8 * float(plan.design.deviations.max()), field.MODULUS // 2

    def fits(value: int) -> bool:
        left = ((int(r) - int(w) * value + half) % field.MODULUS - half for r, w in zip(rest, weights[row], strict=True))
        return all(abs(one) < noise for one in left)

    return int(truth[row, column]), [value for value in range(-3000, 3001) if fits(value)]


@pytest.mark.slow
def test_two_nodes_would_read_a_row_of_the_third_party_and_so_all_members_are_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        truth, found = read_by_nodes(patch, 2)
        assert found == [truth]  # through all noise: the control
    _, found = read_by_nodes(monkeypatch, 4)
    assert found == []
    cards, _ = world(3)
    assert MODEL.compile(study_of(cards)).design.aggregation.count == 4


@pytest.mark.guarantee
def test_a_party_that_plays_its_own_helper_reads_the_rows_and_no_such_study_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """P3 and P4: the check of members is what stands between; without it one organisation holds masked rows and masks."""
    cards, tables = world(2, ROWS_OF_A_STUDY)
    keyed = [msgspec.structs.replace(card, key=digit * 64, joint="allowed") for card, digit in zip(cards, "ab", strict=True)]

    def study(helpers_key: str) -> Any:
        return msgspec.structs.replace(study_of(tuple(keyed)), helpers=(HelperCard("helper", helpers_key),))

    study("c" * 64)
    for key in ("b" * 64, ""):
        with pytest.raises(UsageError, match=r"have one public key|holds no public key"):
            study(key)
    monkeypatch.setattr(Study, "_check_keys", lambda _: None)
    MODEL.compile(study("b" * 64))  # nothing else refuses it
    plan, members = ran(study_of(cards), tables)
    ((spot, words, has_masks),) = seen(plan, members, {"p1", "helper"})  # whom one key stands for
    assert has_masks
    seed = bytes(members["helper"].keeper.kept(plan.hash, f"{HELD_SEED}_{spot.key}"))
    read = field.decode(field.subtract(words, masks(seed, *words.shape)))
    assert np.array_equal(read, rows_of(plan, members, spot))
