"""Rows are linked as set algebra says, by every number of parties, and nothing else is answered."""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.linkage_world import MODEL, ONE, World, altered, words, world
from tests.world import sized

from unpooled.errors import (
    DataError,
    PlanMismatch,
    PolicyRefusal,
    ProtocolError,
    Refusal,
    ReleaseConflict,
    RowsError,
    UnpooledError,
    UsageError,
)
from unpooled.linkage.plan import LinkResult, keys_of, normalised, soundex
from unpooled.models import fitted, load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol import local
from unpooled.protocol.identity import ROW_MAP, Identity
from unpooled.protocol.local import check_reply, drive, in_process, recorded_only
from unpooled.protocol.messages import Ask, Nothing, Pseudonyms, encode, open_body, open_envelope, reply_parts
from unpooled.protocol.transcript import Transcript
from unpooled.study.run import advice

rbcl = pytest.importorskip("rbcl", reason="record linkage needs unpooled[psi]")


def agree(made: World, expected: set[str]) -> LinkResult:
    result = made.link()
    orders = list(made.linked(result).values())
    assert all(order == orders[0] for order in orders)
    assert set(orders[0]) == expected
    assert len(orders[0]) == len(expected) == result.rows
    return result


@pytest.mark.parametrize("parties", [2, 3, 4, 5, pytest.param(10, marks=pytest.mark.minutes)])
def test_the_intersection_is_that_of_sets_and_all_have_it_in_one_order(parties: int) -> None:
    rng = np.random.default_rng(parties)
    sets = [words(*rng.permutation(24)[: 14 + k % 5]) for k in range(parties)]
    agree(world(*sets), set.intersection(*map(set, sets)))


@pytest.mark.parametrize(
    "sets",
    [
        ([1, 2], [3, 4]),
        ([1, 2], [2, 1]),
        ([1, 2, 3], [4, 3, 2], [3, 9]),
        ([1, 2], [1, 2, 3, 4, 5, 6, 7, 8, 9], [2, 9]),
        ([1, 2], [1, 3], [1, 4], [5, 1]),
    ],
)
def test_unequal_disjoint_and_identical_sets(sets: tuple[list[int], ...]) -> None:
    agree(world(*(words(*one) for one in sets)), set.intersection(*(set(words(*one)) for one in sets)))


def test_shuffled_files_link_the_same_people_in_the_same_order() -> None:
    one, other = world(words(1, 2, 3, 4, 5), words(4, 9, 2, 1)), world(words(5, 3, 1, 4, 2), words(1, 2, 4, 9))
    first, second = one.link(), other.link()
    assert first == second
    assert one.linked(first) == other.linked(second)


@pytest.mark.guarantee
def test_a_waterfall_matches_by_the_first_key_that_does() -> None:
    def table(rows: list[tuple[str, str, str]]) -> Table:
        return Table(
            {
                name: np.array(column, dtype=object)
                for name, column in zip(("id", "name", "born"), zip(*rows, strict=True), strict=True)
            }
        )

    one = table([("A-1", "Robert", "1970"), ("A-2", "Anna", "1980"), ("A-3", "Karl", "1990")])
    two = table([("X-8", "Rupert ", "1970"), ("a 2", "Other", "1999"), ("A-7", "Karl", "1991")])
    keys = (
        {"name": "id", "columns": ["id"], "normalise": ["digits"]},
        {"name": "person", "columns": ["name", "born"], "normalise": ["strip", "soundex"]},
    )
    with pytest.raises(DataError, match="malformed"):  # years have no letters
        World({"one": one, "two": two}, keys).link()
    keys = (keys[0], {"name": "person", "columns": ["name"], "normalise": ["soundex"]})
    made = World({"one": one, "two": two}, keys)
    result = made.link()
    assert (result.rows, result.passes) == (3, (1, 2))
    assert any("which pass matched" in words for words in made.plan.public)
    found = made.linked(result)
    assert found["one"][0] == "A-2"
    assert set(zip(found["one"], found["two"], strict=True)) == {("A-2", "a 2"), ("A-1", "X-8"), ("A-3", "A-7")}


# --- the same bits, however it runs; crashes ------------------------------------------------------------------------------------------


@pytest.mark.long_for("4")
@pytest.mark.slow_but("2")
@pytest.mark.parametrize("parties", [2, 3, 4])
def test_a_crash_after_any_message_costs_nothing_and_changes_nothing(parties: int) -> None:
    sets = [words(*range(k, k + 4)) for k in range(parties)]
    whole, made = Transcript(), world(*sets)
    result = made.link(transcript=whole)
    assert MODEL.reading.types[0] is LinkResult
    assert drive(MODEL, made.plan, recorded_only, whole.replay()).result == result
    for cut in range(1, len(whole.entries)):
        again, torn, asked = world(*sets), Transcript(), itertools.count()

        def dies(batch: Any, again: World = again, asked: Any = asked, cut: int = cut) -> Any:
            parties, answers = again.parties(), []
            for ask, request in batch:
                if ask.step != "open":
                    parties[ask.to].answer(whole.entries[0].request)
                answers.append(parties[ask.to].answer(request))
                if next(asked) == cut:
                    raise KeyboardInterrupt
            return answers

        with pytest.raises(KeyboardInterrupt):
            again.link(dies, torn)
        assert again.link(transcript=torn.replay()) == result
        assert torn.entries == whole.entries
        assert again.linked(result) == made.linked(result)


# --- who learns what --------------------------------------------------------------------------------------------------------------------


def test_the_last_hop_of_three_learns_nothing_about_pairs() -> None:
    """p1 is the last hop of p2's list (p2 -> p0 -> p1). It knows its own T and scalar: what it sees must fit no T, whatever it multiplies by."""
    from unpooled.linkage import masking
    from unpooled.linkage.masking import Mask

    def overlap(*, blind: bool) -> int:
        made = world(words(1, 2, 3), words(2, 3, 4, 5), words(3, 4, 5, 6))
        masks = {}
        for name, party in made.parties().items():
            masks[name] = Mask.of(
                made.plan.hash,
                1,
                "id",
                lambda purpose, party=party: party.fingerprint(purpose + b" " + made.plan.hash.encode()),
            )
        if blind:
            result = made.link()
            assert result.rows == 1
            seen, final = (made.keepers["p1"].kept(made.plan.hash, name).tobytes() for name in ("seen2_0", "final_0"))
            cut = [[blob[k : k + 32] for k in range(0, len(blob), 32)] for blob in (seen, final)]
            received, own = cut
        else:  # the ring whose last hop finishes: p2 sends a h(x)
            names = list(masks)
            ids = {name: keys_of([made.tables[name]["id"].tolist()], (), "id") for name in names}
            received = masks["p0"].pass_on(masks["p2"].pass_on(masks["p2"].hashes(ids["p2"])))
            own = masks["p2"].pass_on(masks["p0"].pass_on(masks["p1"].pass_on(masks["p1"].hashes(ids["p1"]))))
        mine = masks["p1"]
        factors = [
            mine.a,
            mine.r,
            masking.quotient(mine.a, mine.r),
            masking.quotient(mine.r, mine.a),
            masking.inverse(mine.r),
        ]
        return max(len(set(masking.times(factor, received)) & set(own)) for factor in factors)

    assert overlap(blind=False) == 3  # the size of its overlap with p2, exactly
    assert overlap(blind=True) == 0


def test_the_coordinator_sees_pseudonyms_that_two_runs_do_not_share() -> None:
    sets = (words(1, 2, 3), words(2, 3, 4))
    seen = []
    for run in (1, 2):
        transcript = Transcript()
        world(*sets, run=run).link(transcript=transcript)
        replies = [open_envelope(entry.reply) for entry in transcript.entries]
        rows = [open_body(reply, MODEL.steps[3].reply).rows for reply in replies if reply.step == "link-finish"]
        seen.append({row for one in rows for row in one.split()})
    assert [len(one) for one in seen] == [4, 4]
    assert not seen[0] & seen[1]


@pytest.mark.guarantee
def test_what_is_said_is_exact_and_holds_no_guarantee() -> None:
    plan = world(words(1, 2), words(2, 3), words(2, 4)).plan
    said = str(plan.statement)
    assert not plan.statement.holds
    assert said.startswith("Linking rows has no epsilon")
    assert (
        "Told: The coordinator learns, under pseudonyms, how many ids are held by exactly each combination of parties."
        in said
    )
    assert "small counts of that table are told exactly" in said
    # No line says at once that something is hidden and that it is not protected, or that somebody is protected by a guarantee there is not.
    assert "NOT protected" not in said
    assert "Protected against" not in said
    assert [line for line in said.splitlines() if line.startswith("Hidden: Ids that a party does not hold itself")]
    assert not any("id column" in note for note in advice(plan))
    assert "pass" not in "".join(plan.public)
    assert "no epsilon" in repr(plan)
    assert "epsilon =" not in str(plan).replace("epsilon = inf", "")
    with pytest.raises(UsageError, match="row maps"):
        fitted(plan, None)


# --- refusals -------------------------------------------------------------------------------------------------------------------------


def first_flipped(payload: Any) -> Any:
    letter = payload.relayed[0]
    changed = msgspec.structs.replace(letter, ciphertext=bytes([letter.ciphertext[0] ^ 1]) + letter.ciphertext[1:])
    return msgspec.structs.replace(payload, relayed=(changed, *payload.relayed[1:]))


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("step", "change", "match"),
    [
        ("link-mask", lambda p: msgspec.structs.replace(p, hellos=p.hellos[:1]), "every party"),
        ("link-mask", lambda p: msgspec.structs.replace(p, hellos=p.hellos[::-1]), "every party"),
        (
            "link-mask",
            lambda p: msgspec.structs.replace(
                p, hellos=tuple(msgspec.structs.replace(h, commitment="0" * 64) for h in p.hellos)
            ),
            "signature",
        ),
        ("link-pass", first_flipped, "altered"),
        ("link-pass", lambda p: msgspec.structs.replace(p, relayed=()), "another number of lists"),
        (
            "link-pass",
            lambda p: msgspec.structs.replace(p, relayed=tuple(msgspec.structs.replace(r, owner="p9") for r in p.relayed)),
            "another owner",
        ),
        ("link-finish", first_flipped, "altered"),
        ("link-finish", lambda p: msgspec.structs.replace(p, relayed=()), "another number of lists"),
        ("link-return", lambda p: msgspec.structs.replace(p, rows=bytes(16)), "did not send"),
        ("link-return", lambda p: msgspec.structs.replace(p, rows=p.rows * 2), "in order"),
        ("link-return", lambda p: msgspec.structs.replace(p, rows=p.rows[:-1]), "did not send"),
        ("link-close", first_flipped, "altered"),
        ("link-close", lambda p: msgspec.structs.replace(p, relayed=()), "another number of digests"),
    ],
)
def test_a_coordinator_that_alters_a_message_is_refused_and_the_study_goes_on_after_it(
    step: str, change: Any, match: str
) -> None:
    made = world(words(1, 2, 3), words(2, 3, 4))
    with pytest.raises((ProtocolError, Refusal), match=match):
        made.link(altered(made, step, change))
    assert made.link().rows == 2


@pytest.mark.guarantee
def test_lists_of_one_length_that_differ_are_noticed_by_the_parties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "check_signature", lambda *_: None)  # a coordinator that lies holds nobody to what was asked
    made = world(words(1, 2, 3), words(1, 2, 3))
    parties = made.parties()

    def exchange(batch: Any) -> Any:
        requests = []
        for ask, request in batch:
            if ask.step == "link-return":
                cut = slice(0, 32) if ask.to == "p0" else slice(16, 48)
                payload = msgspec.structs.replace(ask.payload, rows=ask.payload.rows[cut])
                requests.append((ask, encode(made.plan.hash, ask.step, ask.index, payload)))
            else:
                requests.append((ask, request))
        return in_process(parties)(requests)

    with pytest.raises(ProtocolError, match="another list to"):
        made.link(exchange)
    assert not any(name == ROW_MAP for (_, name), _ in made.keepers["p0"].items())


def hostile(made: World, name: str, change: Any) -> Any:
    """An exchange with one party that masks as ``change`` says (``name`` of a method of Mask)."""
    parties = made.parties()

    def exchange(batch: Any) -> Any:
        from unpooled.linkage import masking

        answers = []
        for ask, request in batch:
            with pytest.MonkeyPatch.context() as patch:
                if ask.to == "p0":
                    real = getattr(masking.Mask, name)
                    patch.setattr(masking.Mask, name, lambda *a, real=real: change(real(*a)))
                answers.append(parties[ask.to].answer(request))
        return answers

    return exchange


def _places(found: Any, change: Any) -> Any:
    return change(found[0]), found[1]


@pytest.mark.guarantee
@pytest.mark.parametrize("parties", [3, 4])
@pytest.mark.parametrize(
    ("method", "change", "match"),
    [
        ("blinded", lambda found: _places(found, lambda points: [bytes(32), *points[1:]]), "or the identity"),
        ("blinded", lambda found: _places(found, lambda points: [b"\xff" * 32, *points[1:]]), "or the identity"),
        ("blinded", lambda found: _places(found, lambda points: [points[1], *points[1:]]), "twice"),
        ("blinded", lambda found: _places(found, lambda points: points[1:]), "another length"),
        ("pass_on", lambda points: points[1:], "another length"),
        ("pass_on", lambda points: [points[1], *points[1:]], "twice"),
        ("pass_on", lambda points: [bytes(32), *points[1:]], "or the identity"),
    ],
)
def test_a_party_that_sends_no_list_of_points_is_refused(parties: int, method: str, change: Any, match: str) -> None:
    made = world(*(words(*range(k, k + 4)) for k in range(parties)))
    with pytest.raises(ProtocolError, match=match):
        made.link(hostile(made, method, change))


@pytest.mark.guarantee
def test_a_party_that_sends_another_list_than_it_committed_to_is_refused() -> None:
    made = world(words(1, 2, 3), words(2, 3, 4))
    parties = made.parties()

    def exchange(batch: Any) -> Any:
        if batch[0][0].step == "link-mask":
            kept, plan = made.keepers["p0"], made.plan.hash
            honest = kept.kept(plan, "masked_0")
            with pytest.MonkeyPatch.context() as patch:
                from unpooled.linkage.party import ListPass

                state = ListPass.kept

                def cheats(self: Any, name: str) -> bytes:
                    blob = state(self, name)
                    own = name == "masked" and self.context.name == "p0"
                    return blob[32:] + blob[:32] if own else blob

                real = ListPass.commitment
                patch.setattr(ListPass, "kept", cheats)
                patch.setattr(
                    ListPass,
                    "commitment",
                    lambda self, blob: real(self, honest.tobytes()) if self.context.name == "p0" else real(self, blob),
                )
                return in_process(parties)(batch)
        return in_process(parties)(batch)

    with pytest.raises(ProtocolError, match="another list than it had committed to"):
        made.link(exchange)


@pytest.mark.guarantee
def test_a_party_that_sends_somebody_else_s_list_as_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that, a party would learn what another one's list looks like under everybody's masks."""
    from unpooled.linkage.party import ListPass

    made = world(words(1, 2, 3), words(2, 3, 4), words(3, 4, 5))
    stolen = {}
    new = ListPass.new

    def steals(self: Any, owner: str, blob: bytes) -> Any:
        # p1 meets p0's list twice: once as p0's, once as p2's.
        if self.context.name == "p1":
            blob = stolen.setdefault("list", blob)
        return new(self, owner, blob)

    monkeypatch.setattr(ListPass, "new", steals)
    with pytest.raises(ProtocolError, match="seen before"):
        made.link()


@pytest.mark.guarantee
def test_a_changed_set_is_refused_in_the_run_and_counted_in_the_next() -> None:
    made = world(words(1, 2, 3), words(2, 3, 4))
    transcript, parties = Transcript(), made.parties()

    def dies(batch: Any) -> Any:
        if batch[0][0].step == "link-pass":
            raise KeyboardInterrupt
        return in_process(parties)(batch)

    with pytest.raises(KeyboardInterrupt):
        made.link(dies, transcript)
    old = made.tables["p0"]
    made.tables["p0"] = Table({"id": np.array(words(1, 2, 9), dtype=object)})
    with pytest.raises(UnpooledError, match="over other data"):
        made.link(transcript=transcript.replay())
    made.tables["p0"] = old
    assert made.link(transcript=transcript.replay()).rows == 2
    made.run = 2
    with pytest.raises(PolicyRefusal, match="psi_runs"):
        made.link()
    made.policy = replace(made.policy, psi_runs=2)
    assert made.link().rows == 2
    assert made.ledgers["p0"].guesses == 6


@pytest.mark.guarantee
def test_guesses_are_counted_over_all_sets_of_parties() -> None:
    """V8: with a third party, or a new key, the runs with one set began anew; the total does not."""
    made = world(words(1, 2, 3), words(2, 3, 4), policy=replace(Policy.in_process(), psi_max_guesses=5, psi_runs=9))
    assert made.link().rows == 2
    assert made.ledgers["p0"].guesses == 3
    more = world(words(1, 2, 3), words(2, 3, 4), words(3, 4, 5), policy=made.policy)
    more.ledgers |= made.ledgers
    with pytest.raises(PolicyRefusal, match=r"test 6 ids against .* 3 could be tested before, .* allows 5 in total"):
        more.link()
    assert more.ledgers["p0"].guesses == 3, "a refusal records nothing"
    more.policy = replace(more.policy, psi_max_guesses=9)
    assert more.link().rows == 1
    assert more.ledgers["p0"].guesses == 9


def test_another_request_under_the_same_step_is_refused() -> None:
    made = world(words(1, 2, 3), words(2, 3, 4))
    transcript = Transcript()
    made.link(transcript=transcript)
    parties = made.parties()
    opening, last = (
        transcript.entries[0],
        next(e for e in transcript.entries if open_envelope(e.request).step == "link-return"),
    )
    parties["p0"].answer(opening.request)
    assert parties["p0"].answer(last.request) == last.reply
    from unpooled.linkage.messages import ReturnRequest

    with pytest.raises(ReleaseConflict):
        parties["p0"].answer(encode(made.plan.hash, "link-return", 0, ReturnRequest(b"")))


@pytest.mark.guarantee
def test_steps_are_answered_in_their_order_and_as_often_as_there_are_keys() -> None:
    made = world(words(1, 2, 3), words(2, 3, 4))
    transcript = Transcript()
    made.link(transcript=transcript)
    fresh = world(words(1, 2, 3), words(2, 3, 4))
    party = fresh.parties()["p0"]
    party.answer(transcript.entries[0].request)
    for entry in transcript.entries:
        if entry.to == "p0" and open_envelope(entry.request).step not in {"open", "link-hello"}:
            with pytest.raises((PlanMismatch, ProtocolError)):
                party.answer(entry.request)
    with pytest.raises(PlanMismatch, match="one more"):
        party.answer(encode(fresh.plan.hash, "link-hello", 1, Nothing()))


@pytest.mark.guarantee
def test_nothing_about_rows_leaves_before_the_ledger_says_so() -> None:
    from unpooled.protocol.desk import OpenDesk

    made = world(words(1, 2, 3), words(2, 3, 4))
    desk = OpenDesk(made.parties()["p0"], made.plan, "link-finish", 0, bytes(32))
    for act in (lambda: desk.pseudonyms([bytes(16)]), lambda: desk.seal("p1", "", b"", ())):
        with pytest.raises(PlanMismatch, match="before its ledger says"):
            act()


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("ids", "match"),
    [
        (["a", None, "b"], "blank in row 2"),
        (["a", " ", "b"], "blank in row 2"),
        (["a", "b", "a "], "before in row 3"),
        (["a", "\ud800", "b"], "malformed.* in row 2"),
        (["a", "b\x07", "c"], "malformed.* in row 2"),
        (["a\u0301", "b", "\u00e1"], "before in row 3"),
    ],
)
def test_ids_that_cannot_be_linked_are_refused_with_their_rows_at_their_party_alone(ids: list[Any], match: str) -> None:
    made = world(ids, ["a", "b"])
    with pytest.raises(RowsError, match=match):
        MODEL.check(made.plan, "p0", made.tables["p0"])
    if all(ids):
        with pytest.raises(DataError) as refused:
            made.link()
        assert "row 2" not in str(refused.value)
        assert not made.ledgers["p0"].guesses


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("rules", "match"),
    [
        ({"psi": "no"}, "does not link rows"),
        ({"psi_max_rows": 2}, "psi_max_rows"),
        ({"psi_runs": 0}, "psi_runs"),
        ({"psi_max_guesses": 1}, "psi_max_guesses"),
    ],
)
def test_a_policy_that_says_no_refuses_before_anything_is_written_down(rules: dict[str, Any], match: str) -> None:
    made = world(words(1, 2), words(2, 3, 4), policy=replace(Policy.in_process(), **rules))
    with pytest.raises(PolicyRefusal, match=match):
        made.link()
    assert [ledger.guesses for ledger in made.ledgers.values()] == [0, 0]


@pytest.mark.guarantee
def test_by_default_nobody_may_bring_more_than_ten_times_the_own_rows() -> None:
    made = world(words(1, 2), words(*range(21)))
    with pytest.raises(PolicyRefusal, match="brings 21 rows"):
        made.link()
    assert Policy(None).psi == "no"


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 1.0},
        {"ids": "psi:" + "0" * 64},
        {"simulation_seed": 1},
        {"unit": "attribute"},
        {"trust": {"aggregation": "trusted"}},
        {"parameters": {"keys": []}},
        {"parameters": {"keys": [ONE[0], ONE[0]]}},
        {"parameters": {"keys": [{"name": "\x07", "columns": ["id"]}]}},
        {"parameters": {"keys": [{"columns": ["other"]}]}},
        {"parameters": {"keys": [{}]}},
        {"parameters": {"keys": [{"columns": ["id"], "normalise": ["upper"]}]}},
        {"parameters": {"other": 1}},
    ],
)
def test_studies_that_ask_for_what_linking_has_not_are_refused(changes: dict[str, Any]) -> None:
    study = world(words(1, 2), words(2, 3)).study
    with pytest.raises(UsageError):
        MODEL.compile(msgspec.structs.replace(study, **changes))
    with pytest.raises(UsageError, match="between 2 and 10 parties"):
        MODEL.compile(msgspec.structs.replace(study, parties=study.parties[:1]))


@pytest.mark.guarantee
def test_a_coordinator_refuses_pseudonyms_that_no_honest_party_sends() -> None:
    made = world(words(1, 2), words(2, 3))
    ask = Ask("p0", "link-finish", Nothing())
    reply = MODEL.steps[3].reply
    check_reply(made.plan, ask, reply(Pseudonyms(bytes(16))))
    for values in (bytes(32), b"\1" * 16 + bytes(16), bytes(15), bytes(range(48))):
        with pytest.raises(ProtocolError, match="pseudonyms"):
            check_reply(made.plan, ask, reply(Pseudonyms(values)))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("Robert", "R163"),
        ("Rupert", "R163"),
        ("Ashcraft", "A261"),
        ("Tymczak", "T522"),
        ("Pfister", "P236"),
        ("Honeyman", "H555"),
        ("Zoe Ruiz", "Z620"),
        ("É", "E000"),
        ("12", ""),
    ],
)
def test_soundex_is_the_american_one(name: str, code: str) -> None:
    assert soundex(name) == code


def test_of_a_key_of_several_columns_the_row_says_what_is_wrong() -> None:
    with pytest.raises(DataError, match="blank in row 2"):  # somebody left it empty
        keys_of([["a", "b"], ["1970", ""]], (), "person")
    with pytest.raises(DataError, match=r"malformed.* in row 2"):  # something stands there, of which nothing is left
        keys_of([["1", "2"], ["1970", "x"]], ["digits"], "person")


def test_normalisers_are_applied_in_their_order() -> None:
    assert normalised(" 12-3\u0664 ", ["digits"]) == "1234"
    assert normalised("\u00c9 ", ["casefold", "strip"]) == normalised("e\u0301", ["nfc"])
    assert keys_of([["ab"], ["c"]], (), "k") != keys_of([["a"], ["bc"]], (), "k")
    assert keys_of([[1970.0]], (), "year") == keys_of([["1970"]], (), "year")
    assert keys_of([[2.0**53 - 1]], (), "number") == keys_of([["9007199254740991"]], (), "number")
    for long in (2.0**53, -(2.0**53)):  # 2^53 + 1 is read as the same number
        with pytest.raises(DataError, match="malformed"):
            keys_of([[long]], (), "number")


@pytest.mark.guarantee
def test_sums_that_end_in_nothing_and_lists_that_come_back_with_repeats_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from unpooled.linkage import masking

    one, two = masking.hashed(b"1"), masking.hashed(b"2")
    back = masking.times(masking.scalar(b"s"), [one])
    assert masking.times(masking.inverse(masking.scalar(b"s")), back) == [one]
    minus = rbcl.crypto_core_ristretto255_sub(rbcl.crypto_core_ristretto255_sub(one, one), one)
    with pytest.raises(ProtocolError, match="cancel"):
        masking.summed([[one, two], [minus, one]])
    made = world(*(words(*range(k, k + 4)) for k in range(4)))
    finish = masking.Mask.finish_sum
    monkeypatch.setattr(masking.Mask, "finish_sum", lambda *a: [finish(*a)[0]] * 4)
    with pytest.raises(ProtocolError, match="came back"):
        made.link()


@pytest.mark.guarantee
def test_a_party_whose_own_commitment_was_replaced_by_an_older_one_of_its_own_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from unpooled.linkage.party import ListPass

    made = world(words(1, 2, 3), words(2, 3, 4))
    monkeypatch.setattr(ListPass, "check_hellos", lambda *_: None)
    change = altered(
        made,
        "link-mask",
        lambda p: msgspec.structs.replace(
            p, hellos=tuple(msgspec.structs.replace(h, commitment="0" * 64) for h in p.hellos)
        ),
    )
    with pytest.raises(PlanMismatch, match="not the one of this party's list"):
        made.link(change)


def test_parties_whose_maps_differ_are_noticed_by_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    from unpooled.linkage import party

    real, count = party.map_digest, itertools.count()
    monkeypatch.setattr(party, "map_digest", lambda *a: real(a[0], str(next(count)).encode(), a[2]))
    with pytest.raises(ProtocolError, match="row maps differ"):
        world(words(1, 2, 3), words(2, 3, 4)).link()


def test_a_party_that_returns_another_number_of_lists_than_it_was_given_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from unpooled.linkage.messages import SealedReply

    transcript, made = Transcript(), world(*(words(*range(k, k + 4)) for k in range(4)))
    made.link(transcript=transcript)
    replies = {(e.to, open_envelope(e.request).step): e.reply for e in transcript.entries}

    def short(batch: Any) -> Any:
        answers = []
        for ask, request in batch:
            reply = replies[ask.to, ask.step]
            if ask.step == "link-pass" and ask.to == "p0":
                body = open_body(open_envelope(reply), SealedReply)
                sign = Identity(made.ledgers["p0"].root_key).sign  # a party that cheats signs what it sends
                reply = encode(
                    made.plan.hash,
                    ask.step,
                    ask.index,
                    SealedReply(body.sealed[:2]),
                    lambda said, asked=request: sign(*reply_parts(said, "p0", asked)),
                )
            answers.append(reply)
        return answers

    with pytest.raises(ProtocolError, match="another number of lists"):
        made.link(short)


def test_a_result_is_said_in_words() -> None:
    assert "nobody in common" in MODEL.reading.render(LinkResult(0, (0,), "psi:" + "0" * 64))
    assert "by pass: 1, 2" in MODEL.reading.render(LinkResult(3, (1, 2), "psi:" + "0" * 64))


@pytest.mark.parametrize("parties", [2, 3])
def test_what_travels_has_a_size_that_says_no_more_than_the_statement(parties: int) -> None:
    """Two worlds of other people with equal sizes and overlaps: the same steps, to the same parties, of the same lengths."""
    shapes = []
    for start in (1000, 5000):
        sets = [
            words(*range(start, start + 3), *range(start + 100 * (k + 1), start + 100 * (k + 1) + 4)) for k in range(parties)
        ]
        transcript = Transcript()
        world(*sets).link(transcript=transcript)
        sent = [(e.to, open_envelope(e.request).step, len(e.request), len(e.reply)) for e in transcript.entries]
        seen = b"".join(e.request + e.reply for e in transcript.entries)
        assert b"person" not in seen
        shapes.append(sent)
    assert shapes[0] == shapes[1]


@pytest.mark.guarantee
def test_any_changed_byte_of_a_reply_ends_in_words_and_never_in_another_intersection() -> None:
    made, whole = world(words(1, 2, 3), words(2, 3, 4), words(3, 2, 5)), Transcript()
    result, rng = made.link(transcript=whole), np.random.default_rng(5)
    ends: list[str] = []
    for at in rng.permutation([k for k, e in enumerate(whole.entries) if open_envelope(e.request).step != "open"])[
        : sized(200, 18)
    ]:
        again, count = world(words(1, 2, 3), words(2, 3, 4), words(3, 2, 5)), itertools.count()
        parties = again.parties()

        def exchange(batch: Any, at: int = at, parties: Any = parties, count: Any = count) -> Any:
            answers = []
            for ask, request in batch:
                reply = bytearray(parties[ask.to].answer(request))
                if next(count) == at:
                    reply[int(rng.integers(len(reply) * 3 // 4, len(reply)))] ^= int(rng.integers(1, 256))
                answers.append(bytes(reply))
            return answers

        try:
            found = again.link(exchange)
        except UnpooledError as error:
            ends.append(type(error).__name__)
        else:
            assert found.rows <= result.rows  # a pseudonym was changed: its row is not found
            ends.append("a result")
    assert len(ends) > ends.count("a result")


@pytest.mark.slow
@pytest.mark.parametrize(("parties", "full"), [(2, 100_000), (3, 100_000), (5, 10_000), (10, 10_000)])
def test_sets_of_full_size(parties: int, full: int) -> None:
    size = sized(full, 12)
    rng = np.random.default_rng(parties)
    sets = [rng.choice(size * 3 // 2, size, replace=False) for _ in range(parties)]
    agree(world(*(words(*one.tolist()) for one in sets)), set.intersection(*(set(words(*one.tolist())) for one in sets)))


@pytest.mark.slow
@pytest.mark.parametrize(("parties", "full"), [(2, 100_000), (3, 100_000), (5, 10_000), (10, 10_000)])
def test_sets_of_every_size_from_two_people_on(parties: int, full: int) -> None:
    """The first has two people, the last as many as there may be, the others sizes between; the first two people are everywhere, or in all but one."""
    largest = sized(full, 20)
    rng, everywhere = np.random.default_rng(parties), Policy.in_process()
    everywhere = replace(everywhere, psi_max_rows=largest)
    for shared in (2, 1):
        sets = [
            [
                *range(2 if k < parties - 1 else shared),
                *range(10 + k * full, 10 + k * full + int(size) - (2 if k < parties - 1 else shared)),
            ]
            for k, size in enumerate(np.geomspace(2, largest, parties).round())
        ]
        assert [len(one) for one in sets][:: parties - 1] == [2, largest]
        people = [words(*rng.permutation(one).tolist()) for one in sets]
        agree(world(*people, policy=everywhere), set(words(*range(shared))))


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sets(st.integers(0, 6), min_size=2, max_size=5), min_size=2, max_size=4))
def test_any_small_sets(sets: list[set[int]]) -> None:
    agree(world(*(words(*one) for one in sets)), set.intersection(*(set(words(*one)) for one in sets)))


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from unpooled.linkage import masking

    made = world(words(1, 2), words(2, 3))
    masking._library.cache_clear()
    monkeypatch.setitem(sys.modules, "rbcl", None)
    with pytest.raises(UsageError, match="unpooled\\[psi\\]"):
        made.link()
    monkeypatch.undo()
    assert made.link().rows == 1


def test_a_secret_that_gives_zero_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from unpooled.linkage import masking

    monkeypatch.setattr(masking._library(), "crypto_core_ristretto255_scalar_reduce", lambda _: bytes(32))
    with pytest.raises(ProtocolError, match="zero"):
        masking.scalar(b"any")


def test_every_multiplication_checks_its_point() -> None:
    from unpooled.linkage import masking

    for wrong in (bytes(32), b"\xff" * 32):
        with pytest.raises(ProtocolError, match="or the identity"):
            masking.times(masking.scalar(b"any"), [wrong])


@pytest.mark.guarantee
def test_a_plan_is_aligned_once_and_a_chain_that_says_it_twice_is_none() -> None:
    from unpooled.privacy.ledger.chain import History, Row, link

    history = History()
    history.take_in(list(first := Row(kind="genesis", fingerprint=bytes(32))), link(history.head.digest, first))
    for position, right in ((1, True), (2, False)):
        row = list(Row(position, 1, "alignment", "0" * 64, "", 5, "circle"))
        if right:
            history.take_in(row, link(history.head.digest, row))
        else:
            with pytest.raises(ValueError):
                history.take_in(row, link(history.head.digest, row))
    assert len(history.rows) == 2
    ledger = Ledger.in_memory()
    for _ in range(2):
        ledger.align("0" * 64, "circle", 5, 1)
    assert ledger.guesses == 5
    ledger.withdraw("0" * 64)
    with pytest.raises(PolicyRefusal, match="withdrew"):
        ledger.align("0" * 64, "circle", 5, 1)
    ledger.close()


@pytest.mark.guarantee
def test_a_study_without_privacy_that_is_not_about_linking_is_refused_by_a_policy_with_a_budget() -> None:
    """The exception for linked rows is theirs alone."""
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.unit import Target

    card = Card("north", 20, (Column("age", 0.0, 100.0),))
    plan = load("describe").compile(Study("describe", (card,), math.inf, 0.0, derived=()))
    with pytest.raises(PolicyRefusal, match="no privacy at all"):
        Policy(Target(1.0, 1e-6)).check(plan, approved_in_ledger=True)
    Policy(Target(1.0, 1e-6), psi="intersection").check(world(words(1, 2), words(2, 3)).plan, approved_in_ledger=True)
