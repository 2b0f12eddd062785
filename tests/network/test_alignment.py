"""``ids = "aligned"``: equal rows in equal order, or the study ends before anything is released; and no id is ever told."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import msgspec
import polars as pl
import pytest
from cases import CASES
from worlds import World, command, make_world

from unpooled.errors import DataError, PlanMismatch, ProtocolError, UnpooledError, UsageError
from unpooled.models import load
from unpooled.privacy.table import Table
from unpooled.protocol.conversation import (
    DIGEST,
    KEY,
    OPEN,
    SECRET,
    DigestRequest,
    Key,
    OpenRequest,
    SecretRequest,
    align,
)
from unpooled.protocol.identity import Identity
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import Dropped, Nothing, Public, Sealed, encode, open_body, open_envelope
from unpooled.protocol.transcript import Transcript
from unpooled.study.data import read_table
from unpooled.study.files import read_study
from unpooled.study.party import open_party
from unpooled.study.run import compile_study

NAMES = ["clinic", "laboratory", "registry"]
IDS = [f"pätient-{i:03}" for i in range(24)]


def aligned(root: Path, **ids: list) -> World:
    """PRIDE's parties with an id column each, the same for all of them where nothing else is said."""
    world = make_world(root, CASES["pride"](), Identity(b"c" * 32).public, ids={n: ids.get(n, IDS) for n in NAMES})
    world.study = world.variant(ids="aligned")
    world.approve(world.study)
    return world


@contextlib.contextmanager
def opened(world: World):
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(open_party(world.party(name))) for name in world.names}


def run(world: World, transcript: Transcript | None = None):
    plan = compile_study(world.study)
    with opened(world) as parties:
        return drive(load("pride"), plan, in_process(parties), transcript)


def refused(world: World, kind: type[UnpooledError], match: str) -> None:
    with pytest.raises(kind, match=match) as caught:
        run(world)
    assert "tient-0" not in str(caught.value)
    assert not any(world.charges(world.study).values())


@pytest.mark.guarantee
def test_aligned_parties_run_with_the_bits_of_a_study_that_does_not_check(tmp_path: Path) -> None:
    world = aligned(tmp_path)
    transcript = Transcript()
    outcome = run(world, transcript)
    assert outcome.result == world.in_process(world.variant(ids="", run=1)).result
    assert [e.to for e in transcript.entries][:10] == [*NAMES, *NAMES, "clinic", *NAMES]
    seen = b"".join(e.request + (e.reply or b"") for e in transcript.entries)
    assert b"tient-0" not in seen
    assert run(world).result == outcome.result  # from the stores
    assert "same row ids" in str(compile_study(world.study))


@pytest.mark.guarantee
def test_unicode_forms_and_blanks_around_ids_do_not_matter(tmp_path: Path) -> None:
    decomposed = [f"  pa\u0308tient-{i:03}\t" for i in range(24)]
    assert decomposed[0].strip() != IDS[0]
    run(aligned(tmp_path, laboratory=decomposed))


@pytest.mark.parametrize("wrong", [IDS[::-1], [*IDS[:-1], "somebody else"], [*IDS[1:], IDS[0]], [i.upper() for i in IDS]])
def test_other_rows_or_another_order_are_refused_by_name_of_the_party(tmp_path: Path, wrong: list[str]) -> None:
    refused(aligned(tmp_path, registry=wrong), DataError, "row ids of registry are not those of 'clinic'")


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ([*IDS[:-1], " \t"], "blank id"),
        ([*IDS[:-1], None], "blank id"),
        ([float(i) for i in range(24)], "neither text nor whole numbers"),
    ],
)
def test_blank_and_repeated_ids_are_refused_at_their_party(tmp_path: Path, wrong: list, match: str) -> None:
    world = aligned(tmp_path, laboratory=wrong)
    refused(world, DataError, match)
    file = world.write_study(tmp_path / "study.toml", world.study)
    config = str(world.party("laboratory"))
    assert match in command("party", "check", str(file), "--config", config, code=2)


@pytest.mark.guarantee
@pytest.mark.parametrize("again", [IDS[0], " pa\u0308tient-000 "])
def test_an_id_with_two_rows_makes_no_party(tmp_path: Path, again: str) -> None:
    with pytest.raises(DataError, match="an id has several rows"):
        aligned(tmp_path, laboratory=[*IDS[:-1], again])


@pytest.mark.guarantee
def test_ids_of_a_text_file_are_text(tmp_path: Path) -> None:
    """007 is not 7, also where a whole column looks like numbers; whole numbers of a Parquet file are their digits."""
    texts, numbers = [f"{i:03}" for i in range(3)], [7, 8, 9]
    pl.DataFrame({"id": texts, "a": [1.0, 2.0, 3.0]}).write_csv(tmp_path / "a.csv")
    pl.DataFrame({"id": texts, "a": [1.0, 2.0, 3.0]}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"id": numbers, "a": [1.0, 2.0, 3.0]}).write_parquet(tmp_path / "n.parquet")
    pl.DataFrame({"id": numbers, "a": [1.0, 2.0, 3.0]}).write_csv(tmp_path / "n.csv")
    digests = [
        read_table(tmp_path / f, ("a",), "id").ids_digest(b"key") for f in ("a.csv", "a.parquet", "n.parquet", "n.csv")
    ]
    assert digests[0] == digests[1] != digests[2] == digests[3]
    assert read_table(tmp_path / "a.csv", ("a",), "id").ids_digest(b"other key") != digests[0]
    for table in (read_table(tmp_path / "a.csv", ("a",)), Table({"a": [1.0, 2.0]})):
        with pytest.raises(DataError, match="no id column"):
            table.ids_digest(b"key")
    with pytest.raises(DataError, match="no column 'person'"):
        read_table(tmp_path / "a.csv", ("a",), "person")


@pytest.mark.guarantee
def test_a_study_file_may_ask_for_it_and_for_nothing_else(tmp_path: Path) -> None:
    world = aligned(tmp_path)
    file = world.write_study(tmp_path / "study.toml", world.study)
    assert read_study(file) == world.study
    file.write_text(file.read_text().replace('"aligned"', '"sorted"'))
    with pytest.raises(UsageError, match="'sorted' is not known"):
        read_study(file)
    with pytest.raises(UsageError, match="column-split"):
        compile_study(msgspec.structs.replace(CASES["describe"]().study, ids="aligned"))
    with pytest.raises(UsageError, match="carry a key"):
        compile_study(msgspec.structs.replace(CASES["pride"]().study, ids="aligned"))


# --- a coordinator that lies ------------------------------------------------------------------------------------------------


class Liar:
    """Talks to the parties of a world step by step, with requests of its own choosing."""

    def __init__(self, world: World, parties: dict) -> None:
        self.plan, self.parties = compile_study(world.study), parties
        for name in NAMES:
            self.say(name, OPEN, OpenRequest(world.study))

    def say(self, name: str, step, payload, index: int = 0):
        blob = self.parties[name].answer(encode(self.plan.hash, step.name, index, payload))
        return open_body(open_envelope(blob), step.reply)

    def key(self, name: str) -> Key:
        reply = self.say(name, KEY, Nothing())
        return Key(name, reply.agreement.value, reply.signature.value)


@pytest.mark.guarantee
def test_only_the_first_party_makes_the_secret_and_only_for_pinned_keys(tmp_path: Path) -> None:
    world = aligned(tmp_path)
    with opened(world) as parties:
        liar = Liar(world, parties)
        keys = {name: liar.key(name) for name in NAMES}
        others = (keys["laboratory"], keys["registry"])
        own = Identity(b"x" * 32)
        agreement = own.agreement_key(liar.plan.hash.encode())
        forged = Key(
            "registry",
            agreement,
            own.sign(b"row ids agreement key", liar.plan.hash.encode(), b"registry", agreement.encode()),
        )
        swapped = Key("registry", keys["laboratory"].agreement, keys["laboratory"].signature)
        for name, wanted, kind in (
            ("laboratory", others, PlanMismatch),
            ("clinic", others[::-1], PlanMismatch),
            ("clinic", others[:1], PlanMismatch),
            ("clinic", (others[0], forged), ProtocolError),
            ("clinic", (others[0], swapped), ProtocolError),
        ):
            with pytest.raises(kind):
                liar.say(name, SECRET, SecretRequest(wanted))
        sealed = liar.say("clinic", SECRET, SecretRequest(others)).secrets
        assert [part.node for part in sealed] == ["laboratory", "registry"]
        assert len({part.ciphertext for part in sealed}) == 2
        lab = sealed[0].ciphertext
        for name, request, kind in (
            ("clinic", DigestRequest(keys["clinic"], lab), PlanMismatch),
            ("laboratory", DigestRequest(), PlanMismatch),
            ("laboratory", DigestRequest(keys["registry"], lab), PlanMismatch),
            ("laboratory", DigestRequest(Key("clinic", agreement, keys["clinic"].signature), lab), ProtocolError),
            ("laboratory", DigestRequest(keys["clinic"], lab[:-1] + bytes([lab[-1] ^ 1])), ProtocolError),
            ("laboratory", DigestRequest(keys["clinic"], b""), ProtocolError),
            ("registry", DigestRequest(keys["clinic"], lab), ProtocolError),
        ):
            with pytest.raises(kind):
                liar.say(name, DIGEST, request)
        first = liar.say("clinic", DIGEST, DigestRequest()).digest.value
        assert liar.say("laboratory", DIGEST, DigestRequest(keys["clinic"], lab)).digest.value == first


@pytest.mark.guarantee
def test_a_plan_that_does_not_ask_for_it_gets_no_digest(tmp_path: Path) -> None:
    world = aligned(tmp_path)
    world.study = world.variant(ids="")
    world.approve(world.study)
    with opened(world) as parties:
        liar = Liar(world, parties)
        for step, request in ((SECRET, SecretRequest(())), (DIGEST, DigestRequest())):
            with pytest.raises(PlanMismatch, match="does not ask"):
                liar.say("clinic", step, request)


def test_digests_of_two_studies_cannot_be_compared(tmp_path: Path) -> None:
    world = aligned(tmp_path)
    digests = []
    for number in (1, 2):
        world.study = world.variant(run=number)
        world.approve(world.study)
        with opened(world) as parties:
            digests.append(Liar(world, parties).say("clinic", DIGEST, DigestRequest()).digest.value)
    assert digests[0] != digests[1]


@pytest.mark.guarantee
def test_a_party_that_is_away_or_lies_ends_the_comparison(tmp_path: Path) -> None:
    world = aligned(tmp_path)
    plan = compile_study(world.study)
    conversation = align(plan)
    next(conversation)
    with pytest.raises(UsageError, match="'laboratory' did not take part in comparing the ids: asleep"):
        conversation.send([KEY.reply(Public("a"), Public("b")), Dropped("laboratory", "asleep"), None])
    conversation = align(plan)
    asked = next(conversation)
    asked = conversation.send([KEY.reply(Public(f"{i}"), Public("s")) for i, _ in enumerate(asked)])
    with pytest.raises(ProtocolError, match="sealed a secret for 1 parties, not for 2"):
        conversation.send([SECRET.reply((Sealed("laboratory", b"x"),))])


@pytest.mark.guarantee
def test_one_command_line_run_with_misaligned_ids_says_so(tmp_path: Path) -> None:
    world = aligned(tmp_path, registry=IDS[::-1])
    file = world.write_study(tmp_path / "study.toml", world.study)
    words = [part for name in NAMES for part in ("--party", str(world.party(name)))]
    assert "row ids of registry" in command("run", str(file), "--force", *words, code=2)
    assert json.dumps(world.charges(world.study)) == json.dumps(dict.fromkeys(NAMES, 0))
