"""What coalitions see in a study of joint moments (Theorem J.11): words that say nothing of rows, or, where mask and masked rows meet, the rows."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from joint_members import MODEL, people, study_of, world
from scipy import stats

from unpooled.aggregation.joint.masking import HELD_SEED, ROWS
from unpooled.aggregation.joint.places import spots_of
from unpooled.kernels import field
from unpooled.privacy.field_words import masks
from unpooled.privacy.table import Table
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
    return plan.design.block(context, spot.first, spot.last)


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
    from unpooled.aggregation.messages import TotalReply
    from unpooled.protocol.messages import open_body, open_envelope
    from unpooled.protocol.transcript import Transcript

    cards, tables = world(4, helper=False)
    study = study_of(cards, helper=False, tolerate=2)
    record = Transcript()
    plan = MODEL.compile(study)
    drive(MODEL, plan, in_process(people(study, tables)), record)
    replies = [e.reply for e in record.entries if open_envelope(e.request).step == "joint-total"]
    partials = [open_body(open_envelope(reply), TotalReply).part.values.numpy() for reply in replies]
    assert len(partials) == 3
    for some in range(1, 3):
        for chosen in itertools.combinations(partials, some):
            words = chosen[0]
            for other in chosen[1:]:
                words = field.add(words, other)
            assert uniform(np.concatenate([words] * 1)) > ALARM
    whole = partials[0]
    for other in partials[1:]:
        whole = field.add(whole, other)
    assert np.abs(field.decode(whole)).max() < 1 << 50
