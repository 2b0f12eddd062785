"""Hidden linking by the whole protocol: what it finds, what every member sees of it, what somebody could try, and each defence broken on purpose."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.hidden_world import FEW, HELPER, MODEL, HiddenWorld, hidden, plant_few, words
from tests.linkage_world import world

from unpooled.errors import DataError, PlanMismatch, PolicyRefusal, ProtocolError, RowsError, UsageError
from unpooled.linkage import hidden_places, masking
from unpooled.linkage.hidden import cells, matcher
from unpooled.linkage.hidden.cells import ID, content
from unpooled.linkage.hidden.messages import CommittedRequest, MatchRequest
from unpooled.linkage.hidden.plan import bytes_of, multiplications
from unpooled.linkage.masking import Mask, pseudonym
from unpooled.linkage.plan import keys_of
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.places import Places
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.unit import Scope
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import encode, open_body, open_envelope
from unpooled.protocol.transcript import Transcript
from unpooled.study.party import DiskKeeper

pytest.importorskip("rbcl", reason="record linkage needs unpooled[psi]")
pytestmark = pytest.mark.guarantee


@pytest.fixture(autouse=True)
def _few_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_few(monkeypatch)


TWO = (words(*range(8)), words(*range(5, 12)))
THREE = (words(*range(10)), words(1, 2, 3, 20, 21), words(3, 4, 21, 22))


# --- what it finds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lists", [TWO, (TWO[0], TWO[0]), (TWO[0], words(90, 91)), (words(1), words(1))])
def test_rows_share_a_place_where_they_are_one_person_s_and_nowhere_else(lists: tuple[list[str], ...]) -> None:
    made = hidden(*lists)
    result = made.link()
    at = {name: made.at(result, name, other) for name, other in (("p0", "p1"), ("p1", "p0"))}
    common = at["p0"].keys() & at["p1"].keys()
    assert len(common) == len(set(lists[0]) & set(lists[1]))
    assert all(at["p0"][one] == at["p1"][one] for one in common)
    assert len({*at["p0"].values()} & {*at["p1"].values()}) == len(common)
    for name, other in (("p0", "p1"), ("p1", "p0")):
        places = made.places(result)[name][other]
        assert isinstance(places, Places)
        assert (places.name, places.total) == (result.ids, result.places[0])
        assert places.total == sum(made.plan.design.length(one) for one in made.ids)
        assert (np.diff(places.given) > 0).all()
        assert places.given.size == made.plan.design.length(name)
        assert 0 <= places.given[0] <= places.given[-1] < places.total
        assert set(places.rows.tolist()) <= set(places.given.tolist())
    assert result.ids.startswith("hidden:")


@pytest.mark.parametrize("hub", ["p0", "p2"])
def test_rows_of_a_hub_share_a_place_with_one_hospital_s(hub: str) -> None:
    lists = THREE if hub == "p0" else (THREE[1], THREE[2], THREE[0])
    made = hidden(*lists, hub=hub)
    result = made.link()
    found = Counter[bytes]()
    for name in made.ids:
        if name != hub:
            mine, theirs = made.at(result, name, hub), made.at(result, hub, name)
            shared = {*mine.values()} & {*theirs.values()}
            assert {one for one, place in mine.items() if place in shared} == {
                one for one, place in theirs.items() if place in shared
            }
            found.update(one for one, place in mine.items() if place in shared)
    both = (set(THREE[1]) | set(THREE[2])) & set(THREE[0])
    assert found == Counter(keys_of([sorted(both)], ("strip",), "id"))  # each once: also person 3, whom two hospitals hold
    assert set(made.places(result)[hub]) == set(made.ids) - {hub}


def test_four_hospitals_and_a_registry_link_by_sums() -> None:
    made = hidden(words(*range(9)), *(words(k, k + 1, 30) for k in range(4)), hub="p0")
    assert not made.plan.design.ring
    result = made.link()
    met = Counter[bytes]()
    for k in range(1, 5):
        mine, theirs = made.at(result, f"p{k}", "p0"), made.at(result, "p0", f"p{k}")
        met.update(one for one, place in mine.items() if theirs.get(one) == place)
    assert met == Counter(keys_of([words(*range(5))], ("strip",), "id"))


def test_frames_are_linked_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas as pd

    clinic = {"id": ["ada", "ben", "", "cleo"], "born": [1, 2, 3, 4]}
    lab = pd.DataFrame({"id": ["cleo ", None, "dan", "ada"], "born": [4, 7, 9, 2]})
    more = {"epsilon": 8.0, "caps": {"clinic": 6}, "seed": 1}
    found = hidden_places({"clinic": clinic, "lab": lab}, "id", **more)
    one, other = found["clinic"], found["lab"]
    assert (one.rows[0], one.rows[3]) == (other.rows[3], other.rows[0])
    assert (one.rows[2], other.rows[1]) == (-1, -1)
    again = hidden_places({"clinic": clinic, "lab": lab}, "id", **more)["lab"]
    assert (again.name, again.rows.tolist()) == (other.name, other.rows.tolist())
    both = hidden_places({"clinic": clinic, "lab": lab}, ("id", "born"), **more)
    assert len({*both["clinic"].rows.tolist()} & {*both["lab"].rows.tolist()} - {-1}) == 1  # cleo alone was born alike
    long = hidden_places(
        {"clinic": {"id": ["ada"]}, "lab": {"id": words(*range(20))}}, "id", epsilon=8.0
    )  # many times the other's rows
    assert long["lab"].rows.size == 20
    hub = hidden_places({"clinic": clinic, "lab": lab, "matcher": clinic}, "id", hub="lab", **more)
    assert set(hub["lab"]) == {"clinic", "matcher"}
    with pytest.raises(UsageError, match="none of the frames"):
        hidden_places({"clinic": clinic, "lab": lab}, "id", caps={"elsewhere": 3})
    with pytest.raises(UsageError, match="more rows than its cap of 3"):
        hidden_places({"clinic": clinic, "lab": lab}, "id", caps={"lab": 3})
    with pytest.raises(UsageError, match="no column"):
        hidden_places({"clinic": clinic, "lab": lab}, "name")
    with pytest.raises(UsageError, match="a frame is"):
        hidden_places({"clinic": [1, 2], "lab": lab}, "id")


# --- what it costs ----------------------------------------------------------------------------------------------------------


def test_every_party_pays_once_for_everybody_on_its_list_and_the_helper_for_nobody() -> None:
    made = hidden(*TWO, epsilon=0.5)
    plan = made.plan
    assert plan.statement.holds
    assert plan.statement.epsilon_per_unit["record"] == pytest.approx(0.5, rel=1e-6)
    assert plan.statement.epsilon_per_unit["record"] <= 0.5
    made.link()
    made.link()  # a second time the same: nothing more
    for name in made.ids:
        for scope in Scope:
            assert made.ledgers[name].composition("record", scope).epsilon(1e-6) == pytest.approx(0.5, rel=1e-6)
    assert not [entry for entry in made.ledgers[HELPER].entries() if entry.kind == "charge"]
    later = HiddenWorld(made.ids, run=2, epsilon=0.5, ledgers=made.ledgers, keepers=made.keepers, policy=made.policy)
    with pytest.raises(PolicyRefusal, match="psi_runs"):
        later.link()
    later.policy = msgspec_replace(made.policy, psi_runs=2)
    later.link()
    assert made.ledgers["p0"].composition("record", Scope.PERSON).epsilon(1e-6) > 0.6


def msgspec_replace(policy: Policy, **more: Any) -> Policy:
    from dataclasses import replace

    return replace(policy, **more)


@pytest.mark.parametrize(("psi", "match"), [("no", 'psi = "hidden"'), ("hidden", ""), ("intersection", "")])
def test_a_policy_says_whether_rows_are_linked_hidden(psi: str, match: str) -> None:
    made = hidden(*TWO, policy=msgspec_replace(Policy.in_process(), psi=psi))
    if match:
        with pytest.raises(PolicyRefusal, match=match):
            made.link()
        assert not made.ledgers["p0"].entries()
    else:
        made.link()
        assert made.ledgers["p0"].guesses == made.plan.design.length("p1") > made.cap


def test_a_policy_for_hidden_links_refuses_open_ones_and_too_many_guesses() -> None:
    rules = msgspec_replace(Policy.in_process(), psi="hidden")
    with pytest.raises(PolicyRefusal, match='psi = "intersection"'):
        world(*TWO, policy=rules).link()
    for limits, match in (({"psi_max_rows": 11}, "psi_max_rows"), ({"psi_max_guesses": 11}, "psi_max_guesses")):
        with pytest.raises(PolicyRefusal, match=match):
            hidden(*TWO, policy=msgspec_replace(rules, **limits)).link()


# --- what is refused --------------------------------------------------------------------------------------------------------


def asked(made: HiddenWorld, **changes: Any) -> Study:
    return msgspec.structs.replace(made.study, **changes)


def parameters(made: HiddenWorld, **changes: Any) -> Study:
    return asked(made, parameters={**made.study.parameters, **changes})


def test_members_who_could_be_one_organisation_are_refused_under_every_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack 9: a helper without a key, with a party's key, that is a party, that runs the study; two helpers. The controls are FINDINGS P3 and P4."""
    made = hidden(*TWO)
    (helper,) = made.study.helpers
    wrong = {
        "holds no public key": {"helpers": (HelperCard(HELPER),)},
        "one public key": {"helpers": (HelperCard(HELPER, made.key_of("p0")),)},
        "each name once": {"helpers": (HelperCard("p0", helper.key),)},
        "key of the coordinator": {"coordinator": helper.key},
        "2 helpers": {"helpers": (helper, HelperCard("other", "ab" * 32))},
        "no helper": {"helpers": ()},
        "with keys": {
            "parties": tuple(msgspec.structs.replace(card, key="") for card in made.study.parties),
            "helpers": (HelperCard(HELPER),),
        },
        "tells its number of rows": {
            "parties": tuple(msgspec.structs.replace(card, capped=False) for card in made.study.parties)
        },
    }
    for match, changes in wrong.items():
        with pytest.raises(UsageError, match=match):
            MODEL.compile(asked(made, **changes))
    assert MODEL.compile(asked(made)).hides
    # The control: where keys are not looked at, a party that plays the helper has a study.
    with monkeypatch.context() as patch:
        patch.setattr(Study, "_check_keys", lambda self: None)
        for match in ("one public key", "key of the coordinator", "holds no public key"):
            assert MODEL.compile(asked(made, **wrong[match])).hides


def test_studies_that_ask_for_something_else_are_refused_in_words() -> None:
    made, three = hidden(*TWO), hidden(*THREE)
    wrong = {
        "one key, and this study has 2": parameters(
            made, keys=[{"name": "a", "columns": ["id"]}, {"name": "b", "columns": ["id"]}]
        ),
        "no column 'name'": parameters(made, keys=[{"name": "a", "columns": ["name"]}]),
        "between two parties, and this study has 3": asked(three),
        "several is for": parameters(made, several="one"),
        "at least two hospitals": parameters(made, hub="p0", several="one"),
        'several = "one"': parameters(three, hub="p0"),
        "hub names": parameters(three, hub="p9", several="one"),
        'population is "both"': parameters(made, population="left"),
        "needs holder": parameters(made, population="holder"),
        "holders are the hospitals": parameters(three, hub="p0", several="one", population="holder", holder="p1"),
        "unknown field `check`": parameters(made, check="none"),
        "longer than messages may be": asked(
            made, parties=tuple(msgspec.structs.replace(card, rows=10**8) for card in made.study.parties)
        ),
        "finite epsilon": asked(made, epsilon=float("inf")),
        "epsilon .and delta. alone": asked(made, adjacency="zero-out"),
        "all of .trust. but helpers": asked(made, trust={"aggregation": "trusted"}),
        "ids, simulation_seed": asked(made, simulation_seed=1),
    }
    for match, study in wrong.items():
        with pytest.raises(UsageError, match=match):
            MODEL.compile(study)
    for population in ({"population": "holder", "holder": "p1"}, {"population": "both"}):
        assert MODEL.compile(parameters(made, **population)).hash != made.plan.hash
    open_study = world(*TWO).study
    for changes in ({"population": "holder"}, {"reveal": "all"}, {"hub": "p0"}):
        with pytest.raises(UsageError, match="reveal"):
            MODEL.compile(msgspec.structs.replace(open_study, parameters={**open_study.parameters, **changes}))
    with pytest.raises(UsageError, match="needs no helper"):
        MODEL.compile(msgspec.structs.replace(open_study, helpers=made.study.helpers))
    with pytest.raises(UsageError, match="a cap goes with"):
        from unpooled.privacy.plan import Household

        Card("a", 6, (), ("x",), household=Household("h", 3, 2), capped=True)


def test_steps_of_the_other_protocol_are_not_answered() -> None:
    """Who could ask a party of a hidden link for the open one's steps would learn the intersection for the price of nothing."""
    made, other = hidden(*TWO), world(*TWO)
    for one, steps in ((made, "link-"), (other, "hide-")):
        parties, plan = one.parties(), one.plan
        for party in parties.values():
            party.answer(encode(plan.hash, "open", 0, OpenRequest(plan.study)))
        for step in MODEL.steps:
            if step.name.startswith(steps):
                with pytest.raises(PlanMismatch, match="planned 0 times"):
                    parties["p0"].answer(encode(plan.hash, step.name, 0, HELLO_OF_NOBODY))
    parties = made.parties()
    for name in (HELPER, "p0"):
        parties[name].answer(encode(made.plan.hash, "open", 0, OpenRequest(made.plan.study)))
    with pytest.raises(PlanMismatch, match="by the helper"):
        parties["p0"].answer(encode(made.plan.hash, "hide-match", 0, MatchRequest((), ())))
    with pytest.raises((PlanMismatch, ProtocolError)):
        parties[HELPER].answer(encode(made.plan.hash, "hide-mask", 0, CommittedRequest(())))


HELLO_OF_NOBODY = CommittedRequest(())


def test_a_list_longer_than_its_cap_and_a_repeated_id_are_refused_at_home() -> None:
    """Attack 6 at the own door: others learn nothing but that there is such a row."""
    made = hidden(words(*range(13)), TWO[1])
    with pytest.raises(DataError, match="raise its cap"):
        made.link()
    twice = hidden([*words(1, 2), " person-1"], TWO[1])
    with pytest.raises(RowsError, match="row 3"):
        MODEL.check(twice.plan, "p0", twice.tables["p0"])
    with pytest.raises(DataError, match="which is told which one"):
        twice.link()
    assert not any(ledger.guesses for ledger in twice.ledgers.values())


# --- what members see -------------------------------------------------------------------------------------------------------


def shape(made: HiddenWorld) -> list[tuple[str, str, int, int]]:
    """What the coordinator carries: where to, which step, and both lengths."""
    transcript = Transcript()
    made.link(transcript=transcript)
    return [(entry.to, open_envelope(entry.reply).step, *lengths_of(entry)) for entry in transcript.entries]


def lengths_of(entry: Any) -> tuple[int, int]:
    from unpooled.protocol.local import lengths

    return lengths(entry.request, entry.reply)


WORLDS = {
    "none in common": (words(*range(6)), words(*range(50, 56))),
    "all in common": (words(*range(6)), words(*range(6))),
    "one row": (words(1), words(*range(6))),
    "a full list": (words(*range(12)), words(*range(12))),
    "blank ids": ([None, "", " "] * 4, words(*range(6))),
    "some blank ids": ([*words(1, 2, 3), None, "", "\u0007"], words(*range(6))),
}


def test_lengths_and_steps_are_those_of_the_caps_whatever_the_lists_are() -> None:
    """Attack 13, and the simulator of the coordinator: lengths alone, which the plan gives; and the bytes of ciphertext, of which none comes twice."""
    shapes = {name: shape(hidden(*lists)) for name, lists in WORLDS.items()}
    noisy = [shape(hidden(*TWO, seed=seed)) for seed in range(4)]  # nor does any length tell how many noise pairs there are
    assert len({str(one) for one in (*shapes.values(), *noisy)}) == 1
    assert {step for _, step, *_ in shapes["one row"]} == {
        "open",
        *(s.name for s in MODEL.steps if s.name.startswith("hide-")),
    }
    blank = [shape(hidden(own, TWO[1], cap=110)) for own in ([None] * 100, words(*range(100)))]
    assert blank[0] == blank[1]
    # The control: the open protocol refuses blank ids, and its lengths are those of the lists.
    with pytest.raises(DataError, match="missing"):
        world(*WORLDS["blank ids"]).link()
    transcripts = [Transcript(), Transcript()]
    for transcript, name in zip(transcripts, ("none in common", "one row"), strict=True):
        world(*WORLDS[name]).link(transcript=transcript)
    assert [lengths_of(e) for e in transcripts[0].entries] != [lengths_of(e) for e in transcripts[1].entries]


@pytest.mark.parametrize("hub", ["", "p0"])
def test_bytes_and_multiplications_are_those_of_the_plan(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What surrounds lists and places (names, keys, signatures) is a few thousand bytes."""
    lists = {f"p{k}": words(*range(k, k + 9)) for k in range(4 if hub else 2)}
    made, counted, times = HiddenWorld(lists, cap=200, hub=hub), Counter[str](), masking.times

    def counting(factor: bytes, points: Any) -> list[bytes]:
        counted["x"] += len(points)
        return times(factor, points)

    monkeypatch.setattr(masking, "times", counting)
    outcome = drive(MODEL, made.plan, in_process(made.parties()))
    for name in lists:
        sent, received = bytes_of(made.plan.design, name)
        found = outcome.communication[name]
        assert 0 < found["received"] - sent < 3000 * len(lists)
        assert 0 < found["sent"] - received < 8000 * len(lists)
    assert counted["x"] == sum(multiplications(made.plan.design, name) for name in lists)


def opaque(made: HiddenWorld) -> list[bytes]:
    """Every ciphertext and salt that the coordinator carries."""
    transcript = Transcript()
    made.link(transcript=transcript)
    replies, found = {step.name: step.reply for step in MODEL.steps}, []
    for entry in transcript.entries:
        envelope = open_envelope(entry.reply)
        if envelope.step in replies:
            body = open_body(envelope, replies[envelope.step])
            found += [part for one in getattr(body, "sealed", ()) for part in (one.ciphertext, one.salt)]
    return found


def test_another_list_has_unrelated_noise_also_where_a_ledger_is_lost() -> None:
    """Two lists of one party under one plan: the helper sees sizes whose difference is not that of the lists."""
    one, other = (hidden(words(*range(many)), TWO[1], epsilon=0.1) for many in (6, 7))
    assert one.plan.hash == other.plan.hash
    seeds = []
    for made in (one, other):
        made.link()
        seeds.append(made.keepers["p1"].kept(made.plan.hash, "seed_0").tobytes())
    assert seeds[0] != seeds[1]
    drawn = [cells.pairs_of(one.plan.design.noise, seed) for seed in seeds]
    assert drawn[0] != drawn[1]


def test_no_string_that_the_coordinator_carries_comes_twice() -> None:
    strings = [one for seed in range(3) for run in (1, 2) for one in opaque(hidden(*TWO, seed=seed, run=run))]
    assert len(set(strings)) == len(strings)


class _Helper:
    """A helper who writes down what it is given."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.lists: list[dict[str, list[bytes]]] = []
        kept = matcher._placed

        def listening(design: Any, lists: Any, secret: Any) -> Any:
            self.lists.append({name: list(own) for name, own in lists.items()})
            return kept(design, lists, secret)

        patch.setattr(matcher, "_placed", listening)


def test_the_helper_sees_distinct_strings_in_cells_whose_sizes_have_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator of the helper alone: lengths, and the size with its noise; no string is seen in two runs."""
    helper, sizes = _Helper(monkeypatch), {0: list[int](), 5: list[int]()}
    for seed in range(9):
        for many, found in sizes.items():
            made = hidden(words(*range(6)), words(*range(many), *range(50, 55)), seed=2 * seed + bool(many), epsilon=2.0)
            made.link()  # other root keys than those of any other run
            one, two = helper.lists[-1].values()
            seed_of_run = made.keepers["p0"].kept(made.plan.hash, "seed_0").tobytes()
            (pairs,) = cells.pairs_of(made.plan.design.noise, seed_of_run)
            assert len({*one} & {*two}) == many + FEW + pairs
            found.append(len({*one} & {*two}) - FEW - made.plan.design.noise.most)
            assert len(one) == len(set(one)) == made.plan.design.length("p0")
    every = [one for lists in helper.lists for own in lists.values() for one in set(own)]
    shared = sum(len(set(a) & set(b)) for a, b in (lists.values() for lists in helper.lists))
    assert len(set(every)) == len(every) - shared
    scale = hidden(*TWO, epsilon=2.0).plan.design.noise.scale
    for many, found in sizes.items():
        assert abs(np.mean(found) - many) < 5 * scale / 3
        assert 0.2 * scale < np.std(found) < 2.5 * scale


def test_a_dictionary_of_helper_and_party_holds_that_party_s_ids_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack 14: a tries all ids with everything that it knows; the control is a list whose mask all parties know."""
    helper = _Helper(monkeypatch)

    def read(made: HiddenWorld) -> set[int]:
        made.link()
        party, plan = made.parties()["p0"], made.plan
        mask = Mask.of(
            plan.hash, plan.study.run, "id", lambda purpose: party.fingerprint(purpose + b" " + plan.hash.encode())
        )
        one = masking.quotient(mask.a, mask.a)
        factors = [one, mask.a, mask.r, masking.quotient(mask.a, mask.r), masking.quotient(mask.r, mask.a)]
        theirs, found = set(helper.lists[-1]["p1"]), set()
        for number in range(30):
            (key,) = keys_of([words(number)], ("strip",), "id")
            (point,) = mask.hashes([content(ID, key)])
            tried = {pseudonym(plan.hash, "id", other) for factor in factors for other in masking.times(factor, [point])}
            found |= {number} if tried & theirs else set()
        return found

    made = hidden(words(1, 2, 3), words(3, 4, 5))
    assert read(made) == set()
    # With p1's answer to its own list, p0 knows which of its own ids p1 has: that is the assumption about the helper, and all there is.
    own = {one for one in helper.lists[-1]["p0"] if one in helper.lists[-1]["p1"]}
    assert len(own) >= 1 + FEW
    of = Mask.of

    def known(*given: Any) -> Mask:
        mask = of(*given)
        return Mask(mask.domain, masking.quotient(mask.a, mask.a), mask.r, mask.order)

    monkeypatch.setattr(Mask, "of", known)
    assert read(hidden(words(1, 2, 3), words(3, 4, 5))) == {3, 4, 5}


def test_no_pseudonym_is_left_on_the_helper_s_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack 15; the control keeps them."""
    helper = _Helper(monkeypatch)

    def left(folder: Path) -> tuple[int, HiddenWorld]:
        folder.mkdir()
        made = hidden(*TWO)
        with Ledger.create(folder / "ledger") as made.ledgers[HELPER]:
            made.keepers[HELPER] = DiskKeeper(folder / "kept")  # type: ignore[assignment]
            result = made.link()
        held = b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())
        kept, places = made.keepers[HELPER], made.places(result)["p0"]["p1"]
        names = {"hidden_set_0_0", "hidden_set_1_0", "hidden_lists", "hidden_plan", "hidden_run_and_caps"}
        assert all(kept.has(places.name[7:], name) for name in names)
        assert kept.kept(places.name[7:], "hidden_set_0_0").tolist() == places.given.tolist()
        assert kept.kept(places.name[7:], "hidden_run_and_caps").tolist() == [1, 12, 12]
        assert len(held) > 1000
        return sum(one in held for own in helper.lists[-1].values() for one in own), made

    assert left(tmp_path / "honest")[0] == 0
    keep = matcher._keep

    def keeping(context: Any, name: str, lists: Any, found: Any) -> None:
        keep(context, name, lists, found)
        context.keep("lists", np.frombuffer(b"".join(helper.lists[-1]["p0"]), dtype=np.uint8))

    monkeypatch.setattr(matcher, "_keep", keeping)
    count, made = left(tmp_path / "broken")
    assert count >= made.plan.design.length("p0")


# --- runs that end early ----------------------------------------------------------------------------------------------------


class _Away(Exception):
    """The coordinator's process is gone."""


def ran(made: HiddenWorld, file: Path, most: int | None = None) -> tuple[Any, list[Any]]:
    """Run over a transcript on disk, by parties that open the study anew, for this number of requests."""
    parties, sent = made.parties(), 0

    def exchange(batch: Any) -> Any:
        nonlocal sent
        answers = []
        for one in batch:
            sent += 1
            if most is not None and sent > most:
                raise _Away
            answers += in_process(parties)([one])
        return answers

    transcript = Transcript.open(file)
    try:
        return made.link(exchange, transcript), transcript.entries
    finally:
        transcript.close()


@pytest.mark.parametrize("cut", [2, 5, 7, 9, 11, 13, 15, 16, 17, 18, 19, 20, 22, 24])
def test_a_run_that_is_cut_after_any_message_ends_like_one_that_was_not(cut: int, tmp_path: Path) -> None:
    """A cut in the middle of a batch loses answers that parties have given: they give them again, bit by bit, and pay once."""
    more: dict[str, Any] = (
        {"cap": 300} if cut in {16, 17, 18} else {}
    )  # then lists are so long that transcripts keep their digests
    calm, made = hidden(*TWO, **more), hidden(*TWO, **more)
    result, whole = ran(calm, tmp_path / "calm")
    assert len(whole) == 25
    assert any(b"sha256:" in entry.reply for entry in whole) is bool(more)
    with pytest.raises(_Away):
        ran(made, tmp_path / "cut", cut)
    again, entries = ran(made, tmp_path / "cut")
    assert again == result
    assert [(e.to, e.request, e.reply) for e in entries] == [(e.to, e.request, e.reply) for e in whole]
    for name in made.ids:
        spent = [one.ledgers[name].composition("record", Scope.PERSON).epsilon(1e-6) for one in (made, calm)]
        assert spent[0] == spent[1] > 0
    places = [one.places(result)["p0"]["p1"].rows.tolist() for one in (made, calm)]
    assert places[0] == places[1]


def test_keys_and_hashes_of_a_hidden_plan() -> None:
    made = hidden(*TWO)
    said = str(made.plan.statement)
    for words_ in (
        "Protected: Whether a person is on any list but your own",
        "works with no party",
        "at most its cap of people (p0 12, p1 12)",
    ):
        assert words_ in said
    assert "The most rows that each party may hold" in said
    assert "told exactly" not in said
    printed = str(made.plan)
    assert f"places of p0 and p1: {sum(made.plan.design.totals):,}" in printed
    assert "sizes of cells" in printed
    hub = hidden(*THREE, words(9), hub="p0")
    said = str(hub.plan.statement)
    for more in (
        "Hospitals together learn nothing",
        "exactly which three or more hospitals",
        "NOT against helper matcher together with a party or p0 together",
    ):
        assert more in said
    assert hub.plan.statement.strength == "caution"
    assert "three or more hospitals" not in str(
        hidden(*THREE, hub="p0").plan.statement
    )  # of two hospitals there are no three


@pytest.mark.parametrize("cut", [4, 10, 17, 21])
def test_ledgers_and_files_on_disk_are_taken_up_again(cut: int, tmp_path: Path) -> None:
    """Every party's ledger and kept files are opened anew after the run was cut, as by a process that starts again."""
    roots = {}
    for name in ("p0", "p1", HELPER):
        with Ledger.create(tmp_path / f"{name}.ledger") as ledger:
            roots[name] = ledger.root_key

    def opened(stack: ExitStack) -> HiddenWorld:
        ledgers = {name: stack.enter_context(Ledger.open(tmp_path / f"{name}.ledger")) for name in roots}
        keepers: dict[str, Any] = {name: DiskKeeper(tmp_path / f"{name}.kept") for name in roots}
        return hidden(*TWO, ledgers=ledgers, keepers=keepers)

    with ExitStack() as stack, pytest.raises(_Away):
        ran(opened(stack), tmp_path / "transcript", cut)
    with ExitStack() as stack:
        made = opened(stack)
        result, _ = ran(made, tmp_path / "transcript")
        found = made.places(result)["p1"]["p0"].rows.tolist()
        assert made.ledgers["p0"].guesses == made.plan.design.length("p1")
        assert made.ledgers["p1"].composition("record", Scope.PERSON).epsilon(1e-6) == pytest.approx(made.epsilon, rel=1e-6)
    calm = hidden(*TWO, ledgers={name: Ledger.in_memory(root) for name, root in roots.items()})
    assert calm.link() == result
    assert calm.places(result)["p1"]["p0"].rows.tolist() == found
