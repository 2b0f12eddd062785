"""What holds for every message, every coded table and every history of a ledger, tried on many that nobody thought of."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import PRICES, Act, Coded, Everything, coded_tables, examples, histories, messages

from unpooled.errors import BudgetRefusal, DataError, ProtocolError, ReleaseConflict
from unpooled.privacy.accounting import Composition
from unpooled.privacy.exposure import Cost
from unpooled.privacy.ledger import Charge, Ledger, ReleaseKey
from unpooled.privacy.unit import ROWWISE, Target
from unpooled.protocol.messages import check_reply_type, encode, open_body, open_envelope
from unpooled.totals import secure_sum

# --- the codec --------------------------------------------------------------------------------------------------------------


def test_the_message_that_holds_everything_may_be_registered() -> None:
    check_reply_type(Everything)


@pytest.mark.slow
@examples(50)
@given(messages)
def test_a_message_comes_back_as_it_was(message: tuple[str, str, int, Everything]) -> None:
    envelope = open_envelope(encode(*message))
    assert (envelope.plan, envelope.step, envelope.index) == message[:3]
    assert open_body(envelope, Everything) == message[3]
    for part in (message[3].released, message[3].partial, message[3].entrusted, message[3].disclosed):
        assert part.values.numpy().tobytes() == part.values.data


def valid_or_refused(blob: bytes) -> bool:
    """Whether bytes are a message. If they are, they can be sent on as what they were read as."""
    try:
        envelope = open_envelope(blob)
        body = open_body(envelope, Everything)
    except ProtocolError:
        return False
    for part in (body.released, *body.several, body.partial, body.entrusted, body.disclosed):
        assert part.values.numpy().shape == part.values.shape
    again = encode(envelope.plan, envelope.step, envelope.index, body)
    assert encode(*message_of(again)) == again
    return True


def message_of(blob: bytes) -> tuple[str, str, int, Everything]:
    envelope = open_envelope(blob)
    return envelope.plan, envelope.step, envelope.index, open_body(envelope, Everything)


@pytest.mark.slow
@examples(15)
@given(messages, st.integers(1, 255), st.integers(0, 255))
def test_a_byte_changed_cut_off_or_put_in_anywhere_gives_a_message_or_a_refusal(
    message: tuple[str, str, int, Everything], flip: int, more: int
) -> None:
    blob = encode(*message)
    assert valid_or_refused(blob)
    taken = [valid_or_refused(blob[:k] + bytes([blob[k] ^ flip]) + blob[k + 1 :]) for k in range(len(blob))]
    assert not all(taken)
    assert not any(valid_or_refused(blob[:k]) for k in range(len(blob)))
    for k in range(len(blob) + 1):
        valid_or_refused(blob[:k] + bytes([more]) + blob[k:])


# --- coding -------------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@examples(150)
@given(coded_tables())
def test_a_coded_row_stays_on_its_grid_and_within_its_norm(table: Coded) -> None:
    coding = table.coding
    if not table.may_be_coded:
        with pytest.raises(DataError, match="missing"):
            coding.code(table.block)
        return
    coded, present = coding.code(table.block)
    assert np.array_equal(present | np.zeros(table.present.shape, dtype=bool), table.present)
    for row in coded.tolist():
        assert max(map(abs, row)) <= coding.grid
        if coding.norm is not None:
            assert sum(v * v for v in row) <= coding.grid**2  # in Python integers: exact
    owner = np.array(coding.attribute)
    for i, column in enumerate(coding.columns):
        own, there = coded[:, owner == i], table.present[:, i]
        values = own[:, :-1] if column.missing == "indicator" else own
        assert not values[~there].any()  # what is missing contributes nothing
        if coding.norm is not None:
            continue
        if column.categories:
            assert ((values == coding.grid).sum(axis=1) == there).all()
            assert ((values == 0) | (values == coding.grid)).all()
        if column.missing == "indicator":
            assert own[:, -1].tolist() == np.where(there, 0, coding.grid).tolist()


@examples(60)
@given(coded_tables(), st.data())
def test_one_value_moves_the_coded_columns_of_its_attribute_and_no_others(table: Coded, data: st.DataObject) -> None:
    coding = table.coding
    if not table.may_be_coded or coding.norm is not None:  # under a norm the others are shortened less, or more
        return
    at, row = data.draw(st.integers(0, len(coding.columns) - 1)), data.draw(st.integers(0, table.block[0].size - 1))
    column, block = coding.columns[at], [raw.copy() for raw in table.block]
    block[at][row] = data.draw(st.sampled_from(column.categories or (*column.range, column.centre)))
    moved = coding.code(block)[0] != coding.code(table.block)[0]
    assert not np.delete(moved, row, axis=0).any()
    assert not moved[:, np.array(coding.attribute) != at].any()


# --- the ledger ---------------------------------------------------------------------------------------------------------------

PLAN, BUDGET = "ab" * 32, Target(1.0, 1e-5)


def charge(place: int, content: bytes = bytes(32)) -> Charge:
    costs = tuple(Cost(unit, "", PRICES[place]) for unit in ROWWISE)
    return Charge(ReleaseKey(PLAN, "release", place, "sketch"), content, costs)


def spent(made: dict[int, Charge]) -> Composition:
    return Composition([PRICES[place] for place in made])


@pytest.mark.slow
@examples(25)
@given(histories)
def test_a_ledger_says_what_its_distinct_releases_cost_whatever_happened(history: list[Act]) -> None:
    made: dict[int, Charge] = {}
    answered: dict[int, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        ledger = Ledger.create(path)
        for act in history:
            head = ledger.head
            if act.kind == "reserve":
                after = made | {place: charge(place) for place in act.places}
                try:
                    ledger.reserve([charge(place) for place in act.places], BUDGET)
                except BudgetRefusal:
                    assert not spent(after).within(BUDGET.epsilon, BUDGET.delta)
                    assert ledger.head == head
                else:
                    assert spent(after).within(BUDGET.epsilon, BUDGET.delta)
                    assert (ledger.head == head) == (after == made)  # what was debited before is not debited again
                    made = after
            elif act.kind == "other data" and act.places[0] in made:
                with pytest.raises(ReleaseConflict):
                    ledger.reserve([charge(act.places[0], b"\x01" * 32)], BUDGET)
                assert ledger.head == head
            elif act.kind == "commit":
                reply = answered.setdefault(act.places[0], b"reply %d" % act.places[0])
                ledger.commit(PLAN, "release", act.places[0], bytes(32), reply)
            elif act.kind == "reopen":
                ledger.close()
                ledger = Ledger.open(path)
                assert ledger.head == head
            for unit in ROWWISE:
                (said,) = ledger.composition(unit).compositions
                assert sorted(map(repr, said.events)) == sorted(repr(PRICES[place]) for place in made)
                assert said.epsilon(BUDGET.delta) == pytest.approx(spent(made).epsilon(BUDGET.delta), rel=1e-12)
            for place in range(len(PRICES)):
                assert ledger.reply(PLAN, "release", place, bytes(32)) == answered.get(place)
        ledger.close()


# --- shares ---------------------------------------------------------------------------------------------------------------------

vectors = st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3), min_size=1, max_size=6)


@examples(50)
@given(vectors, st.integers(1, 5), st.binary(min_size=32, max_size=32))
def test_shares_open_to_the_sum_of_their_vectors_and_to_nothing_else(rows: list[list[int]], nodes: int, seed: bytes) -> None:
    partials = [np.zeros(3, dtype=np.uint64) for _ in range(nodes)]
    for k, row in enumerate(rows):
        secret = bytes(b ^ k for b in seed)
        for at, share in enumerate(secure_sum.split(np.array(row, dtype=np.int64), nodes, secret)):
            secure_sum.add_fragment(partials[at], share, at, nodes)
    wanted = [sum(column) % 2**64 for column in zip(*rows, strict=True)]
    assert [v % 2**64 for v in secure_sum.opened(partials).tolist()] == wanted
    for absent in range(nodes if nodes > 1 else 0):
        rest = secure_sum.opened([p for at, p in enumerate(partials) if at != absent])
        assert [v % 2**64 for v in rest.tolist()] != wanted
