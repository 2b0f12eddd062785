"""Sums over blocks on several threads: the same bits for every number of threads and every size of a block, and the first error."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from asked import bits

from unpooled.errors import DataError, UsageError
from unpooled.kernels.threads import processors
from unpooled.linear.layout import MomentsLayout
from unpooled.linear.standard import Scales, StandardRows
from unpooled.models.describe.declared import compile_plan
from unpooled.models.describe.rows import sums
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.study.sources.table import Source, SourceTable
from unpooled.totals.threads import THREADS, alone, shared_out, threads

ROWS = 3000
COLUMNS = (Column("a", -3.0, 3.0), Column("b", -3.0, 3.0, missing="absent"), Column("y", -9.0, 9.0))


def table() -> Table:
    rng = np.random.default_rng(2)
    b = np.where(rng.random(ROWS) < 0.1, np.nan, rng.normal(size=ROWS))
    return Table({"a": rng.normal(size=ROWS), "b": b, "y": rng.normal(size=ROWS) * 4})


class InBlocks(Table):
    """A table whose blocks have another size."""

    size = 17

    def blocks(self, names, rows=0):
        return super().blocks(names, self.size)


def in_blocks(size: int) -> Table:
    inside = table()
    cut = InBlocks({name: inside[name] for name in inside.names})
    cut.size = size
    return cut


@pytest.mark.parametrize("size", [7, 1000, 5000])
@pytest.mark.parametrize("count", [2, 5])
def test_the_same_bits_for_every_number_of_threads_and_every_size_of_a_block(count: int, size: int, monkeypatch) -> None:
    layout = MomentsLayout.of(COLUMNS, "y", 4 * ROWS)
    asked = Study("describe", (Card("one", ROWS, COLUMNS),), 1.0, 1e-6, derived=())
    described = compile_plan(asked).design.layouts["one"]
    works = (layout.statistic, Scales(layout).statistic, lambda t: sums(t, described))
    for work in works:
        monkeypatch.setenv(THREADS, "1")
        alone = work(table())
        monkeypatch.setenv(THREADS, str(count))
        assert work(in_blocks(size)).tobytes() == alone.tobytes()


@pytest.mark.parametrize("size", [7, 1000, 5000])
@pytest.mark.parametrize("count", [2, 5])
def test_rounds_over_standardised_rows_are_the_same_bits_too(count: int, size: int, monkeypatch) -> None:
    layout = MomentsLayout.of(COLUMNS, "y", 4 * ROWS)
    rows = StandardRows(layout, ROWS, 3.0)
    standard = np.array([0.1, -0.1, 0.2]), np.array([0.4, 0.3, 0.5])
    start = np.array([0.3, -0.2, 0.1])
    works = (
        lambda blocks: rows.gradient(blocks, start),
        lambda blocks: rows.squares(blocks, start),
        lambda blocks: rows.products(blocks, start, 1.5),
    )
    for work in works:
        alone = work(rows.blocks(table(), standard))
        assert np.abs(alone).max() > 0
        monkeypatch.setenv(THREADS, str(count))
        assert shared_out(rows.blocks(in_blocks(size), standard), work).tobytes() == alone.tobytes()


def test_several_threads_are_at_work(monkeypatch) -> None:
    """Each waits until the other has a block, too."""
    monkeypatch.setenv(THREADS, "2")
    meeting, seen = threading.Barrier(2, timeout=30), set()

    def total(blocks):
        found = 0
        for k, block in enumerate(blocks):
            if not k:
                meeting.wait()
            seen.add(threading.get_ident())
            found += block
        return np.array([found])

    assert shared_out(range(100), total).tolist() == [4950]
    assert len(seen) == 2


def test_one_block_needs_no_threads(monkeypatch) -> None:
    monkeypatch.setenv(THREADS, "4")
    assert shared_out([5], lambda blocks: np.array([threading.get_ident() * 0 + sum(blocks)])).tolist() == [5]
    assert shared_out([], lambda blocks: np.array([sum(blocks)])).tolist() == [0]
    here = threading.get_ident()
    assert shared_out([5], lambda _: np.array([threading.get_ident()])).tolist() == [here]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_first_error_is_told_whichever_thread_meets_it(count: int, monkeypatch) -> None:
    monkeypatch.setenv(THREADS, str(count))

    def total(blocks):
        for block in blocks:
            if block in {40, 41, 42, 43}:
                msg = f"block {block}"
                raise DataError(msg)
        return np.array([0])

    for _ in range(20):
        with pytest.raises(DataError, match="block 40"):
            shared_out(range(1000), total)


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_of_the_reader_is_told_and_no_thread_is_left(count: int, monkeypatch) -> None:
    monkeypatch.setenv(THREADS, str(count))
    before = threading.active_count()

    def broken():
        yield from range(50)
        raise DataError("the reader broke")

    with pytest.raises(DataError, match="the reader broke"):
        shared_out(broken(), lambda blocks: np.array([sum(blocks)]))
    assert threading.active_count() == before


def test_a_reader_is_not_far_ahead_of_the_threads(monkeypatch) -> None:
    monkeypatch.setenv(THREADS, "2")
    read, added, farthest = [], [], []

    def blocks():
        for k in range(200):
            read.append(k)
            farthest.append(len(read) - len(added))
            yield k

    def total(own):
        for k in own:
            added.append(k)  # noqa: PERF402 - one by one, as they come
        return np.array([0])

    shared_out(blocks(), total)
    assert max(farthest) <= 2 * 2 + 2 + 2 + 1


def test_the_number_of_threads_is_what_is_said_or_all_cores(monkeypatch) -> None:
    monkeypatch.delenv(THREADS, raising=False)
    assert threads() == processors() >= 1
    monkeypatch.setenv(THREADS, "3")
    assert threads() == 3
    for wrong in ("0", "-1", "two", "1.5"):
        monkeypatch.setenv(THREADS, wrong)
        with pytest.raises(UsageError, match=THREADS):
            threads()


@pytest.mark.slow_for("2")
@pytest.mark.parametrize("count", [1, 2])
def test_a_source_on_threads_is_the_same_bits_as_a_table_in_memory(count: int, monkeypatch) -> None:
    monkeypatch.setenv(THREADS, str(count))
    n = 200_000
    query = f"SELECT sin(i) AS a, cos(i * 3) AS b, sin(i * 7) * 5 AS y FROM range({n}) AS t(i) ORDER BY i"
    source = SourceTable(Source(query.replace("SELECT ", "SELECT i, ")), ("a", "b", "y"))
    inside = Table({name: source[name] for name in ("a", "b", "y")})
    layout = MomentsLayout.of(COLUMNS, "y", 4 * n)
    assert layout.statistic(source).tobytes() == layout.statistic(inside).tobytes()
    permuted = inside.take(np.random.default_rng(0).permutation(n))
    assert layout.statistic(source).tobytes() == layout.statistic(permuted).tobytes()


@pytest.mark.slow
def test_releases_of_a_large_source_are_the_same_bits_on_one_thread_and_on_two_and_in_memory(monkeypatch, tmp_path) -> None:
    n = 70_000
    query = f"SELECT i, sin(i) AS a, CASE WHEN i % 9 = 0 THEN NULL ELSE cos(i * 3) END AS b, sin(i * 7) * 5 AS y FROM range({n}) AS t(i) ORDER BY i"
    cards = (Card("one", n, COLUMNS), Card("two", n, COLUMNS))
    studies = {
        "describe": Study("describe", cards, 1.0, 1e-6, simulation_seed=3, derived=()),
        "bayes": Study(
            "bayes", cards, 1.0, 1e-6, parameters={"response": "y", "method": "moments"}, simulation_seed=3, derived=()
        ),
    }
    monkeypatch.setenv(THREADS, "1")
    source = SourceTable(Source(query), ("a", "b", "y"), declared=COLUMNS)
    inside = Table({name: source[name] for name in ("a", "b", "y")})
    for name, study in studies.items():
        found = set()
        for count, table in ((1, inside), (1, source), (2, source)):
            monkeypatch.setenv(THREADS, str(count))
            found.add(bits(study, {"one": table, "two": table}))
        assert len(found) == 1, name


def test_other_workers_of_a_machine_leave_one_thread_for_as_long_as_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(THREADS, "3")
    assert threads() == 3
    with alone():
        assert threads() == 1
    assert threads() == 3
