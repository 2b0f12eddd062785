"""Everything that is read from others or from disk, with damage: 2,000 inputs of each kind, 100,000 at full size (UNPOOLED_FULL=1).

Messages, frames of the network, transcripts, study files with their cards, party files, data files. Each input is an honest one with a few
things wrong: bits, pieces cut out, doubled or put in from another input, values and lines of a text exchanged. The answer is what an honest
input gives, or an error of ours with words; nothing on disk and no ledger is other than before; and the work, counted in calls of functions,
is in proportion to the input.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from cases import CASES
from scipy.sparse import csc_array
from world import sized

from unpooled.errors import UnpooledError, UsageError
from unpooled.models import load
from unpooled.network.signing import check_request, open_answer, read_request, sign_answer, sign_refusal, sign_request
from unpooled.privacy.bounds import Column, check
from unpooled.privacy.unit import Target
from unpooled.protocol.identity import Identity
from unpooled.protocol.transcript import Transcript
from unpooled.study.data import read_table, write_sparse
from unpooled.study.files import policy_of, read_party, read_study, write_card
from unpooled.study.party import create_party, open_party
from unpooled.study.reading import DataFormat
from unpooled.testing.damage import Attacked, campaign
from unpooled.testing.fuzz import *

COUNT = sized(100_000, 2_000)
#: Models whose messages, between them, hold every kind of part.
SPOKEN = ("describe", "pride", "bayes", "stacking")
ONLY = {
    "test_messages_are_read_or_refused": SPOKEN,
    "test_a_party_answers_or_refuses_and_a_refusal_leaves_no_trace": SPOKEN,
}


def held(seed: str, target: Attacked) -> None:
    answers = campaign(target, seed, COUNT)
    assert 0 < answers["taken"] < COUNT
    assert len(answers) >= 10, answers  # damage reaches more than the first check


# --- messages and frames --------------------------------------------------------------------------------------------------------


def test_frames_of_the_network_are_read_or_refused() -> None:
    coordinator, own, question = Identity(b"c" * 32), Identity(b"p" * 32), b"a question"
    frames = [sign_request(coordinator, "clinic", question), sign_answer(own, "clinic", question, b"an answer")]

    def act(blob: bytes) -> None:
        if b"equest" in blob[:40]:
            check_request(read_request(blob), coordinator.public, "clinic")
        else:
            open_answer(blob, "clinic", own.public, question)

    answers = campaign(Attacked(frames, act, lambda: None, text=False), "frames", COUNT)
    assert len(answers) >= 5
    refusal = sign_refusal(own, "clinic", question, UsageError("no"))
    with pytest.raises(UnpooledError, match="no"):
        act(refusal)


def test_transcripts_are_played_cut_where_they_are_torn_or_refused(tmp_path: Path) -> None:
    file, honest = tmp_path / "transcript", []
    for model in ("describe", "pride"):
        record = Transcript.open(file)
        for (_, to, request), (_, _, reply) in zip(
            spoken(CASES[model]()).requests, spoken(CASES[model]()).replies, strict=True
        ):
            record.record(to, request, reply)
        record.close()
        honest.append(file.read_bytes())
        file.unlink()

    def act(blob: bytes) -> None:
        file.write_bytes(blob)
        record = Transcript.open(file)
        record.close()
        assert all(isinstance(entry.request, bytes) for entry in record.entries)

    answers = campaign(Attacked(honest, act, lambda: sorted(tmp_path.iterdir()), text=False), "transcripts", COUNT // 2)
    assert len(answers) >= 2


# --- files ------------------------------------------------------------------------------------------------------------------------


def tree(folder: Path, but: Path) -> dict[str, bytes]:
    """Every file but the one that is damaged."""
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file() and file != but}


STUDIES = (
    b"""[study]
model = "describe"
run = 1
purpose = "how many are ill"
[privacy]
epsilon = 1.0
delta = 1e-5
unit = "record"
[[party]]
card = "a.card.toml"
[[party]]
card = "b.card.toml"
""",
    b"""[study]
model = "glm"
public_seed = 3
[privacy]
epsilon = 2.0
adjacency = "replace"
calibration = "sound"
[parameters]
response = "ill"
tolerate = 1
method = "newton"
max_passes = 5
[trust]
aggregation = "distributed"
[[party]]
card = "a.card.toml"
[[party]]
card = "b.card.toml"
[[party]]
card = "c.card.toml"
""",
)


def test_study_files_are_a_plan_or_refused_in_words(tmp_path: Path) -> None:
    study = CASES["glm"]().study
    for name, card in zip("abc", study.parties, strict=True):
        keyed = msgspec.structs.replace(card, name=name, key=sha256(name.encode()).hexdigest())
        (tmp_path / f"{name}.card.toml").write_text(write_card(keyed))
    file = tmp_path / "study.toml"

    def act(blob: bytes) -> None:
        file.write_bytes(blob)
        read = read_study(file)
        load(read.row).compile(read)

    held("study files", Attacked(list(STUDIES), act, lambda: tree(tmp_path, file), text=True))


@pytest.mark.long
def test_cards_are_read_or_refused_in_words(tmp_path: Path) -> None:
    known = [card for model in ("describe", "glm", "pride") for card in CASES[model]().study.parties]
    cards = [write_card(msgspec.structs.replace(card, key="ab" * 32)).encode() for card in known]
    file, study = tmp_path / "a.card.toml", tmp_path / "study.toml"
    study.write_text('[study]\nmodel = "describe"\n[privacy]\nepsilon = 1.0\n[[party]]\ncard = "a.card.toml"\n')

    def act(blob: bytes) -> None:
        file.write_bytes(blob)
        read = read_study(study)
        load(read.row).compile(read)

    held("cards", Attacked(cards, act, lambda: tree(tmp_path, file), text=True))


@pytest.mark.long
def test_party_files_are_opened_or_refused_and_the_ledger_stays_as_it_is(tmp_path: Path) -> None:
    """The file is read, and where it still says who the party is, its data and its ledger are opened."""
    card = CASES["describe"]().study.parties[0]
    table = CASES["describe"]().tables[card.name]
    values = {name: [None if str(v) in {"nan", "None"} else v for v in table[name].tolist()] for name in table.names}
    pl.DataFrame(values).write_csv(tmp_path / "data.csv")
    budget = Target(1.0, 1e-5)
    config, _ = create_party(tmp_path, card.name, tmp_path / "data.csv", card.columns, budget, new_budget=True)
    honest = [
        config.read_bytes(),
        config.read_bytes().replace(b"[policy]", b'[format]\nseparator = ","\nnulls = ["NA"]\n[policy]'),
    ]
    opened = 0

    def act(blob: bytes) -> None:
        nonlocal opened
        config.write_bytes(blob)
        policy_of(read_party(config).policy)
        opened += 1
        if opened % 4 == 1:  # ten times as dear as the rest
            with open_party(config) as party:
                check(party.table, party.card.columns)

    held("party files", Attacked(honest, act, lambda: tree(tmp_path, config), text=True))
    assert opened > COUNT // 20


COLUMNS = (
    Column("age", 0.0, 120.0, missing="absent"),
    Column("dose", -10.0, 10.0),
    Column("smoker", categories=("no", "yes")),
    Column("seen", 0.0, 366.0, dates="days since 2020-01-01"),
)
FRAME = {
    "id": [f"p{k:03d}" for k in range(30)],
    "age": [None if k == 7 else 20.5 + k for k in range(30)],
    "dose": [k / 10 for k in range(30)],
    "smoker": ["no", "yes", "yes"] * 10,
    "seen": [f"2020-0{1 + k % 9}-1{k % 9}" for k in range(30)],
}


def data_files(kind: str, folder: Path) -> Iterator[tuple[bytes, DataFormat]]:
    file, frame = folder / "honest", pl.DataFrame(FRAME)
    if kind == "csv":
        for form in (DataFormat(), DataFormat(separator=";", decimal=","), DataFormat(encoding="utf-16")):
            text = frame.write_csv(separator=form.separator, decimal_comma=form.decimal == ",")
            yield text.encode(form.encoding), form
    elif kind == "npz":
        file = folder / "honest.npz"
        numbers = np.column_stack([np.nan_to_num(np.array(FRAME[c], dtype=float)) for c in ("age", "dose")])
        write_sparse(
            file, csc_array(numbers), ["age", "dose"], smoker=np.array(FRAME["smoker"], dtype=object), seen=np.arange(30.0)
        )
        yield file.read_bytes(), DataFormat()
    else:
        whole = io.BytesIO()
        if kind == "parquet":
            frame.write_parquet(whole)
        else:
            frame.write_ipc(whole)
        yield whole.getvalue(), DataFormat()


@pytest.mark.long_for("csv")
@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "npz"])
def test_data_files_are_a_table_or_refused_in_words(kind: str, tmp_path: Path) -> None:
    pairs = list(data_files(kind, tmp_path))
    for file in tmp_path.iterdir():
        file.unlink()
    file, names = tmp_path / f"data.{kind}", tuple(column.name for column in COLUMNS)
    forms, rng = [form for _, form in pairs], random.Random(kind)
    by_start = {blob[:4]: form for blob, form in pairs}

    def act(blob: bytes) -> None:
        file.write_bytes(blob)
        form = by_start.get(blob[:4]) or rng.choice(forms)
        table = read_table(file, names, None, form, COLUMNS)
        check(table, COLUMNS)
        assert all(table[name].shape == (table.n_rows,) for name in names)

    # The reader of Parquet and Feather ends its process where a damaged length asks for 2^61 bytes, as one of 25,000 does: nobody can
    # refuse that in words. The file is the party's own.
    count = COUNT // 4 if kind in {"csv", "npz"} else 500
    answers = campaign(
        Attacked([blob for blob, _ in pairs], act, lambda: [f.name for f in tmp_path.iterdir()], text=kind == "csv"),
        f"data files, {kind}",
        count,
    )
    assert 0 < answers["taken"] < count
    assert len(answers) >= 3


# --- broken on purpose ---------------------------------------------------------------------------------------------------------------


def test_an_untyped_error_a_trace_and_work_that_grows_faster_are_found() -> None:
    honest, seen = [b"model = 1\nepsilon = 2\n" * 4], []

    def untyped(blob: bytes) -> None:
        if b"\x00" in blob:
            raise KeyError("x")

    def traced(blob: bytes) -> None:
        if blob not in honest:
            seen.append(blob)

    def slow(blob: bytes) -> None:
        for _ in range(len(blob) ** 2 if b"nan" in blob else 1):
            len(blob)

    with pytest.raises(AssertionError, match="KeyError"):
        campaign(Attacked(honest, untyped, lambda: None, text=True), "untyped", 500)
    with pytest.raises(AssertionError, match="something changed"):
        campaign(Attacked(honest, traced, lambda: len(seen), text=True), "traced", 500)
    with pytest.raises(AssertionError, match="more work"):
        campaign(Attacked(honest, slow, lambda: None, text=True), "slow", 500)
