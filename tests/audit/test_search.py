"""The search for the worst neighbour: values where statistics jump, pairs that are kept, and what must count as the same value."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from cases import CASES

from unpooled.audit.neighbours import FAR, Pairs, extremes, read_file, same_values, write_file
from unpooled.audit.oracle import audit_study
from unpooled.audit.replay import Report, replay, steady
from unpooled.kernels import rows as standard_rows
from unpooled.models import load
from unpooled.privacy.bounds import Coding, Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.study.made_up import made_up

KEPT = Path(__file__).with_name("pairs.json")


def study_with_norm(norm: float, run: int = 1) -> tuple[Study, dict[str, Table]]:
    columns = (Column("x0", -1.0, 1.0), Column("x1", -2.0, 1.0), Column("y", -1.0, 1.0))
    rng = np.random.default_rng(1)
    tables = {name: Table({c.name: rng.uniform(*c.range, 12) for c in columns}) for name in ("a", "b")}
    cards = tuple(Card(name, 12, columns) for name in tables)
    asked = {"response": "y", "norm": norm}
    return Study("bayes", cards, 1.0, 1e-5, parameters=asked, run=run, derived=()), tables


def audited(study: Study, tables: dict[str, Table], rounds: int = 1) -> Report:
    return replay(load("bayes"), study, tables, registry=load, rounds=rounds)


def test_every_cut_of_a_column_is_tried_with_its_neighbours_in_floating_point() -> None:
    found = extremes(Column("x", -1.0, 3.0))
    for cut in (-1.0, 3.0, 1.0, 0.0, -1.0 + 4 * 3 / 10):
        assert {math.nextafter(cut, -math.inf), cut, math.nextafter(cut, math.inf)} <= set(found)
    assert {FAR, -FAR, 5e-324} <= set(found)
    assert any(value == 0 and math.copysign(1, value) < 0 for value in found)


@pytest.mark.long
def test_values_beyond_their_range_that_count_as_they_are_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beneath a norm no bound shows it: the row is shortened whatever it holds."""
    honest = audited(*study_with_norm(1.0))
    assert honest.passed, str(honest)
    assert max(honest.largest.values()) > 0.9
    code = Coding._code_number

    def unclipped(self, column, raw, out, *, rounded):
        return code(
            self,
            msgspec.structs.replace(column, low=-1e9 + column.centre, high=1e9 + column.centre),
            raw,
            out,
            rounded=rounded,
        )

    monkeypatch.setattr(Coding, "_code_number", unclipped)
    broken = audited(*study_with_norm(1.0, run=2))
    assert {v.what for v in broken.violations} == {"values beyond a declared range count otherwise than its end"}


def test_a_range_that_a_norm_implies_is_not_clipped_to() -> None:
    study, _ = study_with_norm(1.0)
    card = study.parties[0]
    names = {name for one, *_ in same_values(load("bayes").compile(study), card) for name in one}
    assert names == {"x1"}  # the others' range is the norm's own
    study, _ = study_with_norm(1.5)
    found = list(same_values(load("bayes").compile(study), card))
    assert {name for one, *_ in found for name in one} == {"x0", "x1", "y"}
    assert [one.get("x1") for one, *_ in found] == [-2.0, None, 0.0]  # of a range made symmetric its farther end stays


def test_rows_that_are_not_shortened_are_caught_by_a_kept_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """They count as nothing, so no bound shows it: it shows that what moved the release does so no longer."""
    name = "bayes, focus"
    case, kept = CASES[name](), read_file(KEPT, name)
    chosen = Pairs([pair for pair in kept.kept if any(name.endswith(".residual") for name in pair.moved)])
    assert chosen.kept
    model, shorten = load(case.model), standard_rows.shorten_rows

    def gone() -> set[str]:
        same = steady(model, case.study, case.tables, chosen, registry=load, keys=1)
        far = {(pair.unit, name) for pair in same.kept for name in pair.moved}
        return {name for pair in chosen.kept for name in pair.moved if (pair.unit, name) not in far}

    assert gone() == set()

    def whole(rows, residual, square, coarse, grid, radius, clip, out) -> None:
        long = square > (radius / coarse) ** 2
        shorten(rows, residual, square, coarse, grid, radius, clip, out)
        out[long] = 0.0

    monkeypatch.setattr(standard_rows, "shorten_rows", whole)
    assert gone()


@pytest.mark.long
def test_pairs_are_kept_where_they_moved_far_and_written_as_they_are(tmp_path: Path) -> None:
    case = CASES["describe"]()
    model, study, tables = load(case.model), case.study, case.tables
    found = replay(model, study, tables, registry=load, rounds=2).pairs
    assert found.kept
    kept = steady(model, study, tables, found, registry=load, keys=2)
    assert kept.kept
    assert all(part > 0.9 for pair in kept.kept for part in pair.moved.values())
    write_file(tmp_path / "pairs.json", "one", kept)
    write_file(tmp_path / "pairs.json", "two", Pairs(kept.kept[:1]))
    read = read_file(tmp_path / "pairs.json", "one")
    assert repr(read.rows()) == repr(kept.rows())
    assert len(read_file(tmp_path / "pairs.json", "two").kept) == 1
    assert read_file(tmp_path / "pairs.json", "three").kept == []
    again = replay(model, study, tables, registry=load, rounds=1, pairs=read)
    assert again.slower == []
    assert {name for pair in again.pairs.kept for name in pair.moved} >= {name for pair in read.kept for name in pair.moved}
    for pair in read.kept:
        pair.moved.update(dict.fromkeys(pair.moved, 3.0))
    slow = replay(model, study, tables, registry=load, rounds=1, pairs=read)
    assert set(slow.slower) == {name for pair in read.kept for name in pair.moved}
    assert "moved less than by the kept pairs" in str(slow)


@pytest.mark.long
def test_the_command_keeps_pairs_and_replays_them_first(tmp_path: Path) -> None:
    case = CASES["diagnose"]()
    file, said = tmp_path / "pairs.json", []
    for _ in range(2):
        report = audit_study(case.study, said.append, rows=6, rounds=1, pairs=file)
        assert report.passed, str(report)
        assert report.slower == []
        plan = load(case.model).compile(made_up(load(case.model), case.study, 6)[0]).hash
        kept = read_file(file, plan)
        assert kept.kept
        assert {"", plan} >= {pair.plan for pair in kept.kept}
    assert len({repr(row) for row in kept.rows()}) == len(kept.kept)
