"""A data file that changes under an open party: refused at the next release, in words, and nothing is debited."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csc_array

from unpooled.errors import DataError, UnpooledError
from unpooled.models import load
from unpooled.models.describe import rows as describe_rows
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Study
from unpooled.privacy.unit import Target
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.messages import Nothing, encode
from unpooled.study import data as study_data
from unpooled.study.data import read_table, write_sparse
from unpooled.study.party import create_party, open_party

ROWS = 100
KINDS = ("csv", "parquet", "npz")


def write(path: Path, rows: int = ROWS, seed: int = 0) -> None:
    # Equal widths, so that files of equal rows have equal sizes as far as the format allows.
    values = np.random.default_rng(seed).integers(1000, 9999, (rows, 2)) / 1000
    if path.suffix == ".npz":
        write_sparse(path, csc_array(values), ["a", "b"])
    else:
        frame = pl.DataFrame({"a": values[:, 0], "b": values[:, 1]})
        (frame.write_csv if path.suffix == ".csv" else frame.write_parquet)(path)


def replaced(path: Path) -> None:
    other = path.with_name(f"other{path.suffix}")
    write(other, 400, 1)
    other.replace(path)


def replaced_by_as_many_rows(path: Path) -> None:
    other = path.with_name(f"other{path.suffix}")
    write(other, ROWS, 1)
    other.replace(path)


def rewritten_and_dated_back(path: Path) -> None:
    """In place, of the same size, with the old modification time."""
    found, content = path.stat(), bytearray(path.read_bytes())
    content[-3] ^= 1
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert path.stat().st_size == found.st_size
    assert path.stat().st_mtime_ns == found.st_mtime_ns


def appended(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"1.000,2.000\n")


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def removed(path: Path) -> None:
    path.unlink(missing_ok=True)


def there_and_back(path: Path) -> None:
    """The old content again, after another one was there."""
    content = path.read_bytes()
    emptied(path)
    path.write_bytes(content)


CHANGES = (replaced, replaced_by_as_many_rows, rewritten_and_dated_back, appended, emptied, removed, there_and_back)


def settle(path: Path) -> None:
    """Let the file be so old that nobody need hash it again."""
    past = time.time() - 100
    os.utime(path, (past, past))


@pytest.fixture(params=KINDS)
def world(request, tmp_path: Path) -> tuple[Path, Path]:
    """(data file, party file) of an organisation with one file of 100 rows."""
    path = tmp_path / f"data.{request.param}"
    write(path)
    settle(path)
    config, _ = create_party(
        tmp_path / "home", "one", path, (Column("a", -10.0, 10.0), Column("b", -10.0, 10.0)), Target(9.0, 1e-3)
    )
    config.write_text(config.read_text().replace('approval = "ask"', "approval = []"))
    return path, config


def study(party) -> Study:
    return Study("describe", (party.card,), 1.0, 1e-6, derived=())


def opened(party) -> str:
    asked = study(party)
    plan = load("describe").compile(asked)
    party.ledger.approve(plan.hash)
    party.answer(encode(plan.hash, "open", 0, OpenRequest(asked)))
    return plan.hash


def spent(party) -> int:
    return len([entry for entry in party.ledger.entries() if entry.kind == "charge"])


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_under_an_open_party_is_refused_and_nothing_is_debited(
    world, change: Callable[[Path], None]
) -> None:
    path, config = world
    with open_party(config) as party:
        plan = opened(party)
        change(path)
        for _ in range(2):
            with pytest.raises(DataError, match="has changed since this party opened it"):
                party.answer(encode(plan, "sums", 0, Nothing()))
        assert spent(party) == 0


def test_a_file_that_stays_is_answered(world) -> None:
    with open_party(world[1]) as party:
        plan = opened(party)
        first = party.answer(encode(plan, "sums", 0, Nothing()))
        assert party.answer(encode(plan, "sums", 0, Nothing())) == first
        assert spent(party) == 1


@pytest.mark.guarantee
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_the_middle_of_a_step_is_refused_before_the_debit(world, change, monkeypatch) -> None:
    """After the values were read and added up."""
    path, config = world
    with open_party(config) as party:
        plan, sums = opened(party), describe_rows.sums

        def added_up(*arguments, **options):
            total = sums(*arguments, **options)
            change(path)
            return total

        monkeypatch.setattr(describe_rows, "sums", added_up)
        with pytest.raises(DataError, match="has changed"):
            party.answer(encode(plan, "sums", 0, Nothing()))
        assert spent(party) == 0


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_the_middle_of_a_read_is_refused(kind: str, change, tmp_path: Path) -> None:
    path = tmp_path / f"data.{kind}"
    write(path)
    settle(path)
    table = read_table(path, ("a", "b"))
    assert table.digest
    blocks = table.blocks(("a", "b"), rows=10)
    next(blocks)
    change(path)
    with pytest.raises(DataError, match="has changed"):
        for _ in blocks:
            pass
    with pytest.raises(DataError, match="has changed"):
        table["a"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_changes_between_its_reading_and_its_hashing_is_refused(kind: str, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / f"data.{kind}"
    write(path)
    table = read_table(path, ("a", "b"))
    replaced_by_as_many_rows(path)
    with pytest.raises(DataError, match="has changed"):
        _ = table.digest


@pytest.mark.parametrize("kind", KINDS)
def test_a_young_file_is_hashed_again_because_its_stamp_may_hide_a_change(kind: str, tmp_path: Path, monkeypatch) -> None:
    """A file system whose clock stands still: content changes, the stamp does not."""
    path = tmp_path / f"data.{kind}"
    write(path)
    now = time.time_ns()
    stamp = (1, 2, 3, now, now)
    monkeypatch.setattr(study_data._Watched, "_stamp", staticmethod(lambda _: stamp))
    table = read_table(path, ("a", "b"))
    before = table.digest
    table.verify()
    replaced_by_as_many_rows(path)
    with pytest.raises(DataError, match="has changed"):
        table.verify()
    # Once the stamp is old and the content is what it was, nothing is hashed any more.
    old = (1, 2, 3, now - 10**10, now - 10**10)
    monkeypatch.setattr(study_data._Watched, "_stamp", staticmethod(lambda _: old))
    table, count = read_table(path, ("a", "b")), []
    assert table.digest != before
    monkeypatch.setattr(study_data.hashlib, "file_digest", lambda *_: count.append(1))
    table.verify()
    assert not count


def test_tables_in_memory_have_nothing_to_verify() -> None:
    from unpooled.privacy.table import Table

    Table({"a": [1.0, 2.0]}).verify()


@pytest.mark.parametrize("kind", KINDS)
def test_the_words_name_the_file_and_no_value(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"data.{kind}"
    write(path)
    table = read_table(path, ("a", "b"))
    emptied(path)
    with pytest.raises(UnpooledError) as caught:
        table.verify()
    assert f"data.{kind}" in str(caught.value)
    assert "open the party again" in str(caught.value)
