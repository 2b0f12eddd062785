"""Second moments of hidden people: exact over places, whoever has whom; counted in the same release; short whatever a liar stands at (H.3 to H.5)."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hidden_members import NAME, hidden_study, placed_world
from joint_members import MODEL, people

from unpooled.errors import DataError, PlanMismatch, ProtocolError, UsageError
from unpooled.estimation.outlook import glance
from unpooled.privacy.places import Places
from unpooled.privacy.sensitivity import column_moments, placed_sums
from unpooled.privacy.table import PlacedTable, Table
from unpooled.privacy.unit import Adjacency
from unpooled.products import moments as coordinator
from unpooled.products.hidden import HiddenDesign
from unpooled.products.placed import PlacedMoments, PlacedSums
from unpooled.products.placed_rows import Carried, placed
from unpooled.products.sums import CONSTANT_STEPS, GRID, JointShape, RowPart
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.transcript import Transcript

Ints = np.ndarray


def opened(study: Any, tables: Any, monkeypatch: pytest.MonkeyPatch, **driving: Any) -> dict[str, Any]:
    """What a run opened: the integers of its second moments, the standards, and the result."""
    seen: dict[str, Any] = {}
    real = coordinator.moments_of

    def spy(design: Any, standards: Any, values: Any, deviations: Any, **more: Any) -> Any:
        seen.update(design=design, standards=standards, values=values)
        return real(design, standards, values, deviations, **more)

    monkeypatch.setattr(coordinator, "moments_of", spy)
    seen["result"] = drive(MODEL, MODEL.compile(study), in_process(people(study, tables)), **driving).result
    monkeypatch.setattr(coordinator, "moments_of", real)
    return seen


# --- exact ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize("seed", [1, 2])
def test_the_total_over_places_is_that_of_the_people_in_common(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cards, at, tables, common = placed_world(seed=seed)
    seen = opened(hidden_study(cards), at, monkeypatch)
    design = seen["design"]
    joined = {name: tables[name].take(common) for name in design.parties}
    exact = design.shape.exact([design.coded(name, joined[name], seen["standards"][name]) for name in design.parties])
    assert np.array_equal(seen["values"], exact)
    assert exact[-1] == len(common) * CONSTANT_STEPS**2
    sums = design.sums.exact([design.sum_rows(name, joined[name]) for name in design.parties])
    expected = design.standards(sums, np.zeros_like(sums))
    for name, standard in seen["standards"].items():
        assert np.array_equal(standard.middle, expected[name].middle)
        numbers = [column.name for column in design.layout_of(name).features if column.categories is None]
        means = [np.asarray(joined[name][column], dtype=float).mean() for column in numbers]
        assert standard.middle[: len(numbers)] == pytest.approx(means, abs=1 / GRID)
    assert seen["result"].moments.rows == len(common)


def sizes(entry: Any) -> tuple[str, int, int]:
    return entry.to, len(entry.request), len(entry.reply)


@pytest.mark.parametrize(("held", "common"), [((40, 20), 0), ((60, 60), 60), ((1, 60), 1)])
def test_lists_with_nobody_or_everybody_in_common(
    held: tuple[int, int], common: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And every transcript has the same steps and lengths."""
    if common == 0:
        cards, at, _, _ = placed_world(held=(60, 60))
        places = {name: at[name].places for name in ("p0", "p1")}
        for name, some in (("p0", slice(0, 30)), ("p1", slice(30, 60))):
            rows = np.argsort(places[name].rows)[some]  # places in one half each
            at[name] = PlacedTable(
                Table({c: at[name][c][rows] for c in at[name].names}), replace(places[name], rows=places[name].rows[rows])
            )
    else:
        cards, at, _, _ = placed_world(held=held)
    transcript = Transcript()
    seen = opened(hidden_study(cards), at, monkeypatch, transcript=transcript)
    assert seen["values"][-1] == common * CONSTANT_STEPS**2
    other = Transcript()
    opened(hidden_study(cards), placed_world(seed=3)[1], monkeypatch, transcript=other)
    assert [sizes(one) for one in transcript.entries] == [sizes(one) for one in other.entries]


@pytest.mark.guarantee
def test_a_row_with_a_gap_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    cards, at, tables, common = placed_world()
    gone = np.zeros(60, dtype=bool)
    gone[common[:7]] = True
    columns = tuple(msgspec.structs.replace(c, missing="complete") if c.name == "b0" else c for c in cards[0].columns)
    cards = (msgspec.structs.replace(cards[0], columns=columns), cards[1])
    whose = at["p0"].places
    values = {name: np.array(at["p0"][name]) for name in at["p0"].names}
    everybody = {float(v): k for k, v in enumerate(tables["p0"]["a0"])}
    values["b0"][[gone[everybody[float(v)]] for v in values["a0"]]] = np.nan
    seen = opened(hidden_study(cards), {**at, "p0": PlacedTable(Table(values), whose)}, monkeypatch)
    assert seen["values"][-1] == (len(common) - 7) * CONSTANT_STEPS**2


@pytest.mark.guarantee
@pytest.mark.parametrize("gaps", [False, True])
def test_blocks_of_places_in_which_a_party_has_nobody_are_zeros(gaps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody at any place of the block, or nobody whose row is whole."""
    for shape in (PlacedMoments, PlacedSums):
        monkeypatch.setattr(shape, "block_rows", 4)
    cards, at, tables, common = placed_world(rows=12, held=(3, 9), places=40)
    if gaps:
        columns = tuple(msgspec.structs.replace(c, missing="complete") if c.name == "b0" else c for c in cards[0].columns)
        cards = (msgspec.structs.replace(cards[0], columns=columns), cards[1])
        values = {name: np.array(at["p0"][name]) for name in at["p0"].names}
        values["b0"][0] = np.nan
        common = np.setdiff1d(common, np.flatnonzero(tables["p0"]["a0"] == values["a0"][0]))
        at = {**at, "p0": PlacedTable(Table(values), at["p0"].places)}
    assert opened(hidden_study(cards, expected=2), at, monkeypatch)["values"][-1] == len(common) * CONSTANT_STEPS**2


# --- how far a person moves ----------------------------------------------------------------------------------------------------


def widths(shape: Any) -> np.ndarray:
    return np.concatenate([np.full(block.size, block.width) for block in shape.blocks])


def moved(shape: Any, before: list[Ints], after: list[Ints]) -> float:
    """How far apart two neighbouring totals are, each integer divided by its relative noise."""
    return float(np.linalg.norm((shape.exact(before) - shape.exact(after)) / widths(shape)))


def moments_shape(adjacency: Adjacency, columns: tuple[int, int] = (2, 3), length: int = 2000) -> PlacedMoments:
    parts = tuple(RowPart(f"p{k}", count, length**2) for k, count in enumerate(columns))
    return PlacedMoments.of(JointShape(parts, 4), adjacency, 0)


def at_places(*rows: tuple[int, list[int]], inner: int, own: Carried, places: int = 4) -> Ints:
    """Rows at places, of nobody elsewhere."""
    x, present = np.zeros((places, inner), dtype=np.int64), np.zeros(places, dtype=bool)
    for place, values in rows:
        x[place], present[place] = values, True
    return placed(x, present, own)


@pytest.mark.guarantee
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_nobody_moves_the_moments_farther_and_somebody_as_far(adjacency: Adjacency) -> None:
    """A person of one list moves from a place to another, or vanishes, and the other party stands at both with rows of its choice."""
    shape, rng, farthest = moments_shape(adjacency), np.random.default_rng(0), 0.0
    a, b = (part.inner for part in shape.parts)
    for trial in range(400):

        def row(size: int, trial: int = trial) -> list[int]:
            values = rng.normal(size=size) * (rng.random(size) < 0.5)
            values = values / max(np.linalg.norm(values), 1e-9) * 2000 * (1.0 if trial % 2 else rng.random())
            return np.trunc(values).astype(int).tolist()

        liar = at_places((0, row(a)), (1, row(a)), inner=a, own=Carried.ALL)
        before = at_places((0, row(b)), inner=b, own=Carried.ALL)
        other = at_places((int(rng.integers(2)), row(b)), inner=b, own=Carried.ALL)
        after = other if adjacency is Adjacency.REPLACE else at_places(inner=b, own=Carried.ALL)
        farthest = max(farthest, moved(shape, [liar, before], [liar, after]))
    full, none = [2000, 0], [0, 2000]
    liar = at_places((0, full), (1, none), inner=a, own=Carried.ALL)
    one, two = (at_places((k, [2000, 0, 0] if k else [0, 2000, 0]), inner=b, own=Carried.ALL) for k in range(2))
    after = two if adjacency is Adjacency.REPLACE else at_places(inner=b, own=Carried.ALL)
    most, found = shape.distance(adjacency), moved(shape, [liar, one], [liar, after])
    assert max(farthest, found) <= most * (1 + 1e-12)
    assert found >= most * (
        0.9 if adjacency is Adjacency.REPLACE else 1 - 1e-9
    )  # the constants of two people are not orthogonal
    both = (
        [at_places((0, full), inner=a, own=Carried.ALL), one],
        [at_places(inner=a, own=Carried.ALL)] * 1 + [at_places(inner=b, own=Carried.ALL)],
    )
    assert moved(shape, *both) <= most * (1 + 1e-12)  # the person at every list at once


def test_a_negative_person_would_move_twice_the_square() -> None:
    """The control: what H.3 proves is needed. With p = -1 and U = -xx' at another place, planned noise would be sqrt 2 too small."""
    shape = moments_shape(Adjacency.REPLACE)
    a, b = (part.inner for part in shape.parts)
    liar = at_places((0, [2000, 0]), (1, [2000, 0]), inner=a, own=Carried.ALL)
    liar[1] *= np.r_[-1, np.ones(a, int), -np.ones(a * (a + 1) // 2, int)]
    one, two = (at_places((k, [sign * 2000, 0, 0]), inner=b, own=Carried.ALL) for k, sign in ((0, 1), (1, -1)))
    assert moved(shape, [liar, one], [liar, two]) > 1.3 * shape.distance(Adjacency.REPLACE)


@pytest.mark.guarantee
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_nobody_moves_the_sums_farther_and_somebody_as_far(adjacency: Adjacency) -> None:
    shape = PlacedSums.of({"p0": (1.0, 1.0), "p1": (1.0, 1.7)}, 2, 0.5)
    rng, farthest = np.random.default_rng(0), 0.0
    ends = [[s * GRID, t * GRID] for s, t in itertools.product((-1, 1), repeat=2)]
    steps = np.round(np.linspace(-1, 1, 21) * GRID).astype(int)
    for _ in range(3000):
        liar = at_places(*((k, rng.choice(steps, 2).tolist()) for k in range(2)), inner=2, own=Carried.SQUARES, places=2)
        before = at_places((0, rng.choice(steps, 2).tolist()), inner=2, own=Carried.SQUARES, places=2)
        where = int(rng.integers(2))
        row = at_places((where, rng.choice(steps, 2).tolist()), inner=2, own=Carried.SQUARES, places=2)
        after = row if adjacency is Adjacency.REPLACE else at_places(inner=2, own=Carried.SQUARES, places=2)
        farthest = max(farthest, moved(shape, [liar, before], [liar, after]))
    most = shape.distance(adjacency)
    assert farthest <= most * (1 + 1e-12)
    full = [at_places((0, ends[0]), inner=2, own=Carried.SQUARES, places=2)] * 2
    empty = [at_places(inner=2, own=Carried.SQUARES, places=2)] * 2
    assert moved(shape, full, empty) == pytest.approx(placed_sums(2 + 1 + 1.7**2, 0.5, shape.count, Adjacency.ZERO_OUT))
    assert moved(shape, full, empty) >= most * 0.99  # the count takes up what two people in common leave, and a little more
    assert column_moments(0.0, 0.5, 1.0, Adjacency.REPLACE, may_be_absent=False) > math.hypot(0.5, 1.0)


def test_columns_that_are_bounded_together_would_move_the_sums_farther() -> None:
    """The control: one bound for the row lets a liar put all of it into one column, whose square is then the square of all."""
    shape = PlacedSums.of({"p0": (1.0,) * 4, "p1": (1.0,)}, 2, 0.5)
    far = [2 * GRID, 0, 0, 0]  # as long as four columns at their ends
    liar = at_places((0, far), inner=4, own=Carried.SQUARES, places=2)
    one, none = (at_places(*rows, inner=1, own=Carried.SQUARES, places=2) for rows in (((0, [GRID]),), ()))
    assert moved(shape, [liar, one], [liar, none]) > 1.3 * shape.distance(Adjacency.REPLACE)
    with pytest.raises(UsageError):
        shape.parts[0].block(2).completed(liar)


def test_the_number_of_people_is_quiet_for_nothing() -> None:
    """Two people in common cancel in it; so its deviation is sqrt 2 / mu, however long rows are."""
    shape = moments_shape(Adjacency.REPLACE)
    assert shape.distance(Adjacency.REPLACE) == pytest.approx(math.sqrt(2) * shape.square)
    assert shape.quiet * shape.distance(Adjacency.REPLACE) / CONSTANT_STEPS**2 == pytest.approx(math.sqrt(2))


# --- what is refused -----------------------------------------------------------------------------------------------------------


def test_a_study_of_hidden_people_says_how_many_it_expects() -> None:
    cards, *_ = placed_world()
    for expected in (0, 1, 151):
        with pytest.raises(UsageError, match="expected = a whole number from 2 to 150"):
            MODEL.compile(hidden_study(cards, expected=expected))
    for wrong in (True, 2.5, "many"):
        with pytest.raises(UsageError):
            MODEL.compile(hidden_study(cards, expected=wrong))


def test_what_hidden_people_have_not_is_refused() -> None:
    cards, *_ = placed_world()
    with pytest.raises(UsageError, match="false presence"):
        MODEL.compile(hidden_study(cards, check="none"))
    alone = msgspec.structs.replace(hidden_study(cards), helpers=())
    with pytest.raises(UsageError, match="helper"):
        MODEL.compile(alone)


@pytest.mark.long
@pytest.mark.parametrize("expected", [1200, 40_000])
def test_a_plan_foretells_the_table_of_the_people_and_not_of_the_places(expected: int) -> None:
    """At 105,000 places and epsilon 1 too few people in common have no lines of numbers; and nothing is foretold of the holder alone."""
    cards, *_ = placed_world()
    cards = tuple(msgspec.structs.replace(card, rows=105_000) for card in cards)
    found = glance(MODEL, hidden_study(cards, 1.0, expected=expected), lines=True)
    assert found is not None
    assert found.rows == expected
    lines = {line.term: line for line in found.lines}
    printed = [lines[name].printed for name in ("a0", "b0", "a1", "b1")]
    assert max(printed) <= 0.1 if expected == 1200 else min(printed) >= 0.7
    assert all(math.isnan(line.alone) for line in found.lines)


@pytest.mark.guarantee
def test_members_without_the_places_of_the_link_answer_nothing() -> None:
    cards, at, tables, _ = placed_world()
    study = hidden_study(cards, 1.0)
    other = replace(at["p0"].places, name="hidden:" + "cd" * 32)
    below = Table({name: at["p0"][name] for name in at["p0"].names})
    with pytest.raises(PlanMismatch, match="not those of the row map"):
        drive(MODEL, MODEL.compile(study), in_process(people(study, {**at, "p0": PlacedTable(below, other)})))
    with pytest.raises(PlanMismatch, match="does not know the places"):
        drive(MODEL, MODEL.compile(study), in_process(people(study, {**at, "helper": tables["helper"]})))
    with pytest.raises(DataError, match="link them anew"):
        PlacedTable(below, replace(at["p0"].places, rows=at["p0"].places.rows[:-1]))


@pytest.mark.guarantee
def test_a_row_without_a_place_is_nobody_and_others_places_are_no_rows() -> None:
    table = Table({"a": [1.0, 2.0, 3.0]})
    placed_table = PlacedTable(table, Places(NAME, 9, np.array([4, -1, 2]), np.array([2, 4, 7])))
    assert (placed_table.n_rows, placed_table.linked, placed_table.complete) == (9, "ab" * 32, False)
    assert placed_table["a"].tolist() == [1.0, 3.0]
    assert placed_table.owners.tolist() == [0, 1]
    some, where = placed_table.between(3, 9)
    assert some is not None
    assert (some["a"].tolist(), where.tolist()) == ([1.0], [1])
    assert placed_table.places.foreign(2, 5).tolist() == [0, 1, 0]
    assert placed_table.digest != PlacedTable(table, Places(NAME, 9, np.array([4, -1, 2]), np.array([2, 4]))).digest
    placed_table.verify()
    placed_table.close()
    fewer, changed = placed_table.omit(0), placed_table.replace(0, {"a": 5.0})
    assert (fewer["a"].tolist(), fewer.at.tolist(), fewer.n_rows) == ([3.0], [2], 9)
    assert (changed["a"].tolist(), changed.at.tolist()) == ([5.0, 3.0], [4, 2])
    other = Table({"a": [7.0, 8.0]})
    assert (table.holding(other) is other, placed_table.holding(other).at.tolist()) == (True, [4, 2])


@pytest.mark.guarantee
def test_wild_numbers_to_standardise_by_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cards, at, _, _ = placed_world()
    real = HiddenDesign.settings_of
    for wrong in (0.0, -1.0):
        monkeypatch.setattr(HiddenDesign, "settings_of", lambda self, found, w=wrong: (*real(self, found)[:-1], w))
        study = hidden_study(cards, 1.0)
        with pytest.raises(ProtocolError, match="must be positive"):
            drive(MODEL, MODEL.compile(study), in_process(people(study, at)))


def test_too_few_people_in_common_have_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    cards, at, _, _ = placed_world()
    few = opened(hidden_study(cards, 0.5), at, monkeypatch)["result"]
    assert "not identified" in few.moments.few
    assert "people are at both parties" in few.moments.few
