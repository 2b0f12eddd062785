"""Rows with gaps at two parties: exact under masks, left out everywhere, short whatever a liar sends, and nobody learns which they are."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from joint_members import INF, MODEL, people, study_of, world

import unpooled
from unpooled import Bounds, PrivateLinearRegression
from unpooled.audit.replay import replay
from unpooled.errors import StudyAborted, UsageError
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.sensitivity import standardising_sums
from unpooled.privacy.table import NoRows, Table
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.products import masking
from unpooled.products import moments as coordinator
from unpooled.products.design import JointDesign
from unpooled.products.presence import FLAG, SQUARES, FlaggedShape, squares_of, squares_part, steps_of
from unpooled.products.sums import CONSTANT_STEPS, GRID, JointShape, RowPart
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.transcript import Transcript


def with_gaps(
    rows: int = 60, *, share: float = 0.2, seed: int = 1, gone: tuple[str, ...] = ("b0", "c1", "y")
) -> tuple[tuple[Card, ...], dict[str, Table]]:
    """The two parties' cards and tables, with gaps in a number, in a category and in the response, or in some of these."""
    cards, tables = world(2, rows=rows)
    rng = np.random.default_rng(seed)

    def named(column: Column) -> Column:
        return msgspec.structs.replace(column, missing="complete") if column.name in gone else column

    held = {}
    for card in cards:
        values: dict[str, Any] = {}
        for column in card.columns:
            own = np.array(tables[card.name][column.name])
            if column.name in gone:
                own[rng.random(rows) < share] = None if own.dtype == object else np.nan
            values[column.name] = own
        held[card.name] = Table(values)
    return tuple(msgspec.structs.replace(card, columns=tuple(map(named, card.columns))) for card in cards), {
        **held,
        "helper": tables["helper"],
    }


def opened(study: Study, tables: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, dict[str, Any]]:
    """Return the opened integers of a run, and the standards of its parties."""
    seen: dict[str, Any] = {}
    real = coordinator.moments_of

    def spy(design: Any, standards: Any, values: Any, deviations: Any, **more: Any) -> Any:
        seen.update(standards=standards, values=values)
        return real(design, standards, values, deviations, **more)

    monkeypatch.setattr(coordinator, "moments_of", spy)
    drive(MODEL, MODEL.compile(study), in_process(people(study, tables)))
    monkeypatch.setattr(coordinator, "moments_of", real)
    return seen["values"], seen["standards"]


def whole(tables: dict[str, Table]) -> np.ndarray:
    """Which rows have all values at both parties."""
    found = [pd.notna(tables[name][column]) for name in ("p0", "p1") for column in tables[name].names]
    return np.logical_and.reduce(found)


# --- exact -----------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize(("block", "gone"), [(0, ("b0", "c1", "y")), (7, ("b0", "c1", "y")), (0, ("b0",)), (0, ("y",))])
def test_the_opened_integers_are_the_exact_products_of_the_whole_rows(
    block: int, gone: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With any size of blocks, and where one party alone has gaps."""
    if block:
        monkeypatch.setattr(FlaggedShape, "block_rows", block)
    cards, tables = with_gaps(gone=gone)
    study = study_of(cards, INF)
    values, standards = opened(study, tables, monkeypatch)
    design, kept = MODEL.compile(study).design, whole(tables)
    parts = [design.coded(name, tables[name], standards[name]) for name in design.parties]
    assert values.tolist() == design.shape.exact(parts).tolist()
    # The same from the whole rows alone, in units of standardised columns: exactly, but for the rounding of products of own columns.
    alone = [part[kept, : own.columns] for part, own in zip(parts, design.shape.of_rows.parts, strict=True)]
    gram, _ = design.shape.decoded(values, np.zeros(values.size), 60)
    plain, _ = design.shape.of_rows.decoded(
        design.shape.of_rows.exact(alone), np.zeros(design.shape.of_rows.size), int(kept.sum())
    )
    steps = min(steps_of(part.square) for part in design.shape.of_rows.parts)
    assert 0 < kept.sum() < 60
    assert np.abs(gram - plain).max() <= kept.sum() / steps
    split = design.shape.of_rows.parts[0].columns
    assert np.array_equal(gram[:split, split:], plain[:split, split:])
    assert np.array_equal(gram[-1], plain[-1])


@pytest.mark.guarantee
def test_values_of_a_row_with_a_gap_are_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the row's own party, not in the other's, and not in the sums by which columns are standardised at the party of the gap."""
    cards, tables = with_gaps()
    study = study_of(cards, INF)
    first, _ = opened(study, tables, monkeypatch)
    gap = int(np.flatnonzero(np.isnan(tables["p0"]["b0"]) & pd.notna(tables["p1"]["c1"]) & ~np.isnan(tables["p1"]["y"]))[0])
    there = {**tables, "p0": tables["p0"].replace(gap, {"a0": 1.0})}
    assert opened(study, there, monkeypatch)[0].tolist() == first.tolist()
    # The other party does not know of the gap: its means move, and nothing else, so the study of known means stays what it was.
    design = MODEL.compile(study).design
    moved = {**tables, "p1": tables["p1"].replace(gap, {"a1": 1.0, "b1": -1.0, "y": 4.0})}
    _, standards = opened(study, tables, monkeypatch)
    one, other = (
        design.shape.exact([design.coded(name, held[name], standards[name]) for name in design.parties])
        for held in (tables, moved)
    )
    assert one.tolist() == other.tolist()
    assert design.scales("p1").statistic(moved["p1"]).tolist() != design.scales("p1").statistic(tables["p1"]).tolist()


@pytest.mark.guarantee
def test_a_row_that_was_left_out_altogether_is_one_with_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    cards, tables = with_gaps()
    study = study_of(cards, INF)
    gap = int(np.flatnonzero(whole(tables))[3])
    _, standards = opened(study, tables, monkeypatch)
    design = MODEL.compile(study).design
    gone = {name: tables[name].omit(gap) for name in design.parties}
    blank = {**tables, "p0": tables["p0"].replace(gap, {"b0": math.nan}), "p1": tables["p1"].replace(gap, {"y": math.nan})}

    def blocks(held: Any, name: str) -> list[Any]:
        rows = design.party_rows(name)
        return [
            rows.block(held[name], standards[name], first, min(first + 16, 60), 16).tolist() for first in range(0, 60, 16)
        ]

    for name in design.parties:
        assert blocks(gone, name) == blocks(blank, name)


@pytest.mark.guarantee
def test_a_block_without_a_whole_row_is_of_zeros() -> None:
    cards, tables = with_gaps()
    design = MODEL.compile(study_of(cards)).design
    gone = np.array(tables["p0"]["b0"])
    gone[:16] = np.nan
    table = Table({"a0": tables["p0"]["a0"], "b0": gone})
    standard = coordinator.begun(design, {**tables, "p0": table}, np.random.default_rng(0))[1]["p0"]
    rows = design.party_rows("p0")
    assert not rows.block(table, standard, 0, 16, 16).any()
    assert rows.block(table, standard, 16, 32, 16)[:, -1].tolist() == [
        0 if np.isnan(b) else CONSTANT_STEPS for b in gone[16:32]
    ]


@pytest.mark.guarantee
def test_messages_are_of_one_size_with_gaps_and_without() -> None:
    sizes = []
    for share in (0.0, 0.4):
        cards, tables = with_gaps(share=share)
        study, record = study_of(cards), Transcript()
        drive(MODEL, MODEL.compile(study), in_process(people(study, tables)), record)
        sizes.append([len(entry.reply or b"") for entry in record.entries if b"joint-mask" in entry.request])
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) == 6  # both sides: columns, marks, squares


def test_products_of_own_columns_are_rounded_without_bias() -> None:
    """To nearest, a column of two values is off by up to half a step in every row; here the mean is right over any run of rows."""
    part = RowPart("p", 2, (6 * GRID) ** 2)
    rows = np.tile([[1033, -517]], (5000, 1))
    found = squares_of(rows, part, 300)
    unit = steps_of(part.square) / GRID**2
    exact = np.array([1033**2, -1033 * 517 * math.sqrt(2), 517**2]) * unit
    assert np.abs(found.mean(axis=0) - exact).max() < 1e-3
    assert np.abs(np.rint(exact) - exact).max() > 0.05  # the control
    assert (np.square(found).sum(axis=1) <= squares_part(part).square).all()
    longest = np.array([[6 * GRID, 0], [4344, 4344]])
    assert (np.square(squares_of(longest, part, 7)).sum(axis=1) <= squares_part(part).square).all()


# --- how far a person moves it -----------------------------------------------------------------------------------------------

A, B = RowPart("a", 2, 3000**2), RowPart("b", 2, 2500**2)


def sent(rng: np.random.Generator, part: RowPart, *, fair: bool, flag: float = 1.0, plain: bool = False) -> np.ndarray:
    """What a party sends of one person: fair, or whatever passes three proofs; ``plain``: products of own columns without sqrt 2, as long as proven."""
    own = squares_part(part)
    if fair:
        row = rng.normal(size=part.columns)
        row = np.trunc(row / np.linalg.norm(row) * math.sqrt(part.square))[None].astype(np.int64)
        found = np.concatenate([row[0], [CONSTANT_STEPS], squares_of(row, part, 0)[0]])
        return found if rng.random() < 0.8 else 0 * found
    row, squares = rng.normal(size=part.columns), rng.normal(size=own.columns)
    if plain:
        squares = np.array([0.0, math.sqrt(2), 0.0])  # what one product of two columns says of a plain vech
    length = 1.0 if plain else np.linalg.norm(squares)
    mark = flag * CONSTANT_STEPS * rng.choice([-1.0, 1.0])
    return np.concatenate(
        [
            np.trunc(row / np.linalg.norm(row) * math.sqrt(part.square)),
            [mark],
            np.trunc(squares / length * math.sqrt(own.square)),
        ]
    )


def farthest(adjacency: Adjacency, count: int = 3000, **broken: Any) -> float:
    """Return how far one person moves the released integers relative to their noise, over the distance that the plan has: the farthest of many."""
    rng, shape = np.random.default_rng(0), FlaggedShape.of(JointShape((A, B), 10), adjacency)
    noise = np.concatenate([np.full(block.size, block.width) for block in shape.blocks])
    longest = 0.0
    for k in range(count):
        liar = k % 3
        one, other = (
            sent(rng, A, fair=liar != 1, **(broken if liar == 1 else {})),
            sent(rng, B, fair=liar != 2, **(broken if liar == 2 else {})),
        )
        before = shape.exact([one[None], other[None]])
        after = 0.0
        if adjacency is Adjacency.REPLACE:  # what a liar sends is no person's: the row of the other becomes another
            pair = [one if liar == 1 else sent(rng, A, fair=True), other if liar == 2 else sent(rng, B, fair=True)]
            after = shape.exact([part[None] for part in pair])
        longest = max(longest, float(np.linalg.norm((before - after) / noise)))
    return longest / shape.distance(adjacency)


@pytest.mark.guarantee
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_no_person_moves_the_sums_farther_than_the_plan_says_whatever_one_party_sends(adjacency: Adjacency) -> None:
    """Theorem J.13, by brute force."""
    assert 0.9 < farthest(adjacency) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_flag_of_three_and_a_plain_vech_would_move_them_farther(adjacency: Adjacency) -> None:
    """Theorem J.13: the controls. A mark that shares the proof of its columns may be 3; a plain vech proves a norm sqrt 2 too small."""
    assert farthest(adjacency, flag=3.0) > 1.3
    if adjacency is Adjacency.ZERO_OUT:
        assert farthest(adjacency, plain=True) > 1.02


def test_the_corner_is_as_quiet_as_a_row_that_vanishes_leaves_room_for() -> None:
    shape = FlaggedShape.of(JointShape((A, B), 10), Adjacency.REPLACE)
    radius = shape.square
    assert shape.distance(Adjacency.REPLACE) == pytest.approx(math.sqrt(2) * radius, rel=1e-4)  # as without gaps
    louder = dataclasses.replace(shape, quiet=shape.quiet / 2)
    assert louder.distance(Adjacency.REPLACE) > 1.2 * shape.distance(Adjacency.REPLACE)
    vanish = FlaggedShape.of(JointShape((A, B), 10), Adjacency.ZERO_OUT)
    assert vanish.distance(Adjacency.ZERO_OUT) == pytest.approx(radius * math.sqrt(1.02), rel=1e-3)
    # The number of whole rows has the noise sqrt 2 / mu, however long rows are.
    assert shape.quiet * shape.distance(Adjacency.REPLACE) / CONSTANT_STEPS**2 == pytest.approx(math.sqrt(2), rel=1e-4)


@pytest.mark.parametrize(("adjacency", "dearer"), [(Adjacency.REPLACE, 1e-4), (Adjacency.ZERO_OUT, 0.01)])
def test_gaps_cost_the_other_entries_next_to_nothing(adjacency: Adjacency, dearer: float) -> None:
    """In the same limits every entry but the corner has the noise that it has without gaps."""
    cards, _ = with_gaps()
    design = MODEL.compile(msgspec.structs.replace(study_of(cards), adjacency=str(adjacency))).design
    plain = JointDesign.of(MODEL.compile(study_of(world(2, rows=60)[0])).study, design.parameters)
    assert design.limits == plain.limits
    scale = design.shape.distance(adjacency) / plain.shape.distance(adjacency)
    noise = np.concatenate([np.full(block.size, block.width) for block in design.shape.blocks])
    other = np.concatenate([np.full(block.size, block.width) for block in plain.shape.blocks])
    with_marks, without = (
        np.sqrt(shape.decoded(own, own, 60)[1]) for shape, own in ((design.shape, noise), (plain.shape, other))
    )
    corner = with_marks[-1, -1]
    with_marks[-1, -1] = 0.0
    assert np.allclose(with_marks, without, rtol=1e-12)
    assert 0 < corner < without[0, 0]
    assert 1 <= scale <= 1 + dearer


@pytest.mark.guarantee
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_party_whose_rows_may_vanish_pays_for_their_number(adjacency: Adjacency) -> None:
    """The sums that standardise, by brute force over the ends of ranges and gaps (B.7 with B.20); without the count's weight they are too short."""
    cards, _ = with_gaps(rows=4)
    study = msgspec.structs.replace(study_of(cards), adjacency=str(adjacency))
    design = MODEL.compile(study).design
    scales, vector = design.scales("p0"), design.constants("p0")
    noise = np.concatenate([np.full(block.size, block.width) for block in vector.blocks])
    ends = [(a, b) for a, b in itertools.product((-1.0, 0.0, 1.0), (-1.0, 0.0, 1.0, math.nan))]

    def row(a: float, b: float) -> np.ndarray:
        return np.asarray(scales.statistic(Table({"a0": [a, 0.1], "b0": [b, 0.2]})), dtype=float)

    rows = [row(*end) for end in ends]
    none = row(0.0, math.nan)
    others = rows if adjacency is Adjacency.REPLACE else [none]
    longest = max(float(np.linalg.norm((one - other) / noise)) for one in rows for other in others)
    distance = vector.reach[Unit.RECORD].distance
    assert 0.85 * distance < longest <= distance * (1 + 1e-6)
    gone = math.hypot(standardising_sums([False, False], 0.5, 0.0, Adjacency.ZERO_OUT), 0.0)
    assert gone < distance


# --- who lies --------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize("lie", ["a flag of three", "a plain square"])
def test_a_party_whose_marks_or_squares_are_too_long_is_caught(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cards, tables = with_gaps()
    study = study_of(cards)
    members, prove = people(study, tables), masking.prove
    name, real = FLAG if lie == "a flag of three" else SQUARES, masking.mask

    def evil(context: Any, request: Any) -> Any:
        if context.name != "p0" or masking.spot_of(context, "sender").part.name != name:
            return real(context, request)
        design = type(context.design)
        block, fair = design.block, context.design.block(context, masking.spot_of(context, "sender"))
        bound = masking.spot_of(context, "sender").part.square

        def long(self: Any, context: Any, spot: Any) -> Any:
            found = block(self, context, spot)
            found[5] = 0
            found[5, 0] = 3 * CONSTANT_STEPS if name == FLAG else math.ceil(math.sqrt(2 * bound))
            return found

        monkeypatch.setattr(design, "block", long)
        monkeypatch.setattr(masking, "prove", lambda place, shape, rows, *rest: prove(place, shape, fair, *rest))
        try:
            return real(context, request)
        finally:
            monkeypatch.setattr(design, "block", block)
            monkeypatch.setattr(masking, "prove", prove)

    steps = tuple(dataclasses.replace(step, answer=evil) if step.name == "joint-mask" else step for step in MODEL.steps)
    model = dataclasses.replace(MODEL, steps=steps)
    for party in members.values():
        object.__setattr__(party, "model", lambda _: model)
    with pytest.raises(StudyAborted, match="was not accepted"):
        drive(model, MODEL.compile(study), in_process(members))


def small(adjacency: str) -> tuple[Study, dict[str, Table]]:
    """A study of five people with a column that may be missing at each of two parties."""
    rng = np.random.default_rng(3)
    held = {"p0": ("a",), "p1": ("b", "y")}
    gaps = {"a": [1], "b": [1, 3], "y": []}
    tables, cards = {"helper": NoRows()}, []
    for party, names in held.items():
        values = {name: rng.uniform(-1, 1, 5) for name in names}
        for name in names:
            values[name][gaps[name]] = np.nan
        columns = (Column(name, -1.0, 1.0, missing="complete" if gaps[name] else "refuse") for name in names)
        cards.append(Card(party, 5, tuple(columns)))
        tables[party] = Table(values)
    return msgspec.structs.replace(study_of(tuple(cards)), adjacency=adjacency, simulation_seed=3), tables


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_studies_are_audited_in_each_adjacency(adjacency: str) -> None:
    """Theorem J.13: pairs of data in which rows become whole, lose a value, or vanish."""
    asked, tables = small(adjacency)
    report = replay(load("bayes"), asked, tables, registry=load, rounds=2)
    assert report.passed, str(report)


# --- what follows ----------------------------------------------------------------------------------------------------------

N = 4000
RNG = np.random.default_rng(5)
AGE, DOSE = RNG.normal(size=(2, N)).clip(-4, 4)
WARD = RNG.choice(["a", "b", "c"], N)
Y = (0.5 * AGE - 0.4 * DOSE + 0.6 * (WARD == "b") + 0.7 * RNG.normal(size=N)).clip(-5, 5)
GONE = {"age": RNG.random(N) < 0.15, "ward": RNG.random(N) < 0.1, "y": RNG.random(N) < 0.1}
FRAME = pd.DataFrame(
    {
        "age": np.where(GONE["age"], np.nan, AGE),
        "ward": [None if gone else ward for gone, ward in zip(GONE["ward"], WARD, strict=True)],
        "dose": DOSE,
        "y": np.where(GONE["y"], np.nan, Y),
    }
)
RANGES: dict[str, Any] = {"age": (-4, 4), "dose": (-4, 4), "ward": ["a", "b", "c"], "y": (-5, 5)}
HELD = {"clinic": ["age", "ward"], "lab": ["dose"]}


def fitted(frame: pd.DataFrame = FRAME, bounds: Any = None, **more: Any) -> PrivateLinearRegression:
    bounds = Bounds(RANGES, missing="complete") if bounds is None else bounds
    own = {"parties": HELD, "response_at": "lab", "method": "moments", "random_state": 0, "epsilon": 1e4} | more
    return PrivateLinearRegression(bounds=bounds, **own).fit(frame, "y")


def complete() -> tuple[np.ndarray, np.ndarray]:
    """Least squares of the whole rows, levels compared with the first, and its standard errors."""
    rows = FRAME.dropna()
    x = np.column_stack([rows["age"], rows["ward"] == "b", rows["ward"] == "c", rows["dose"], np.ones(len(rows))]).astype(
        float
    )
    found, left, *_ = np.linalg.lstsq(x, rows["y"].to_numpy(), rcond=None)
    return found, np.sqrt(left[0] / (len(rows) - 5) * np.linalg.inv(x.T @ x).diagonal())


@pytest.mark.guarantee
@pytest.mark.parametrize("formula", [None, "y ~ age + ward + dose"])
def test_without_noise_it_is_the_fit_of_the_complete_cases(formula: str | None) -> None:
    """Numbers, categories and the response may be missing, at either party; a formula makes its terms of whole rows."""
    model = (
        fitted()
        if formula is None
        else PrivateLinearRegression(
            bounds=Bounds(RANGES, missing="complete"),
            parties=HELD,
            response_at="lab",
            method="moments",
            random_state=0,
            epsilon=1e4,
        ).fit(FRAME, formula=formula)
    )
    table, (values, errors) = model.summary(), complete()
    found = {term.term: term for term in table.terms}
    names = ["age", "ward: b - a", "ward: c - a", "dose", "(intercept)"]
    for name, value, error in zip(names, values, errors, strict=True):
        assert abs(found[name].estimate - value) < 0.1 * error
        assert found[name].std_error == pytest.approx(error, rel=0.05)
    assert model.moments_.rows == len(FRAME.dropna())
    assert (
        f"{len(FRAME.dropna()):,} +- 0 of 4,000 rows had a value of age, ward, dose, the response; the others are left out"
        in str(table).replace(" and ", ", ")
    )
    new = model.predict(FRAME[["age", "ward", "dose"]].iloc[:200]) if formula is None else None
    if new is not None:
        assert np.array_equal(np.isnan(new), (GONE["age"] | GONE["ward"])[:200])


def test_moments_of_whole_rows_are_saved_with_all_that_is_said_of_them(tmp_path: Any) -> None:
    model = fitted(epsilon=3.0)
    model.moments_.save(tmp_path / "moments.unpooled")
    again = unpooled.load(tmp_path / "moments.unpooled")
    assert again == model.moments_
    assert str(again.summary()) == str(model.moments_.summary())
    rows, noise, declared = again.counted
    assert (rows, declared) == (model.moments_.rows, N)
    assert noise == pytest.approx(math.sqrt(2) / model.plan_.design.budget.of_moments, rel=1e-3)


def test_so_few_whole_rows_give_no_line() -> None:
    few = FRAME.assign(age=np.where(np.arange(N) < 200, FRAME["age"], np.nan))
    model = fitted(few, epsilon=3.0)
    assert "not identified" in str(model.summary())
    assert not model.summary().terms
    assert np.isfinite(model.coef_).all()


def test_where_nobody_has_gaps_a_study_is_what_it_was() -> None:
    """The plan of a study without such columns knows nothing of marks, whatever else is declared."""
    cards, _ = world(2)
    plan = MODEL.compile(study_of(cards))
    assert isinstance(plan.design.shape, JointShape)
    assert plan.design.constants("p0").blocks[-1].size == 2
    assert "gap" not in str(plan)


@pytest.mark.guarantee
def test_the_plan_says_what_is_masked_and_what_is_released() -> None:
    cards, _ = with_gaps()
    plan = str(MODEL.compile(study_of(cards)))
    assert "nobody learns whose row has a gap" in plan
    assert "how many rows are whole at p0, p1, each alone" in plan.replace(" and ", ", ")
    assert "rows without a value of b0, c1, y are left out" in plan.replace(" and ", ", ")
    assert "joint second moments of 7 columns" in plan
    fewer = MODEL.compile(study_of(cards, expected_missing=0.5)).design.limits
    assert fewer.columns[0] < MODEL.compile(study_of(cards, epsilon=1e3)).design.limits.columns[0]


@pytest.mark.guarantee
def test_what_is_not_left_out_is_refused_by_name() -> None:
    cards, _ = world(3)
    own = msgspec.structs.replace(cards[0].columns[0], missing="complete")
    three = (msgspec.structs.replace(cards[0], columns=(own, *cards[0].columns[1:])), *cards[1:])
    with pytest.raises(UsageError, match=r"of a study of two parties, and this one has 3: fit the columns of two of them"):
        MODEL.compile(study_of(three))
    two, _ = with_gaps()
    with pytest.raises(UsageError, match=r'method = "sines".*declare "indicator" or "absent".*method = "moments"'):
        MODEL.compile(study_of(two, method="sines"))
    with pytest.raises(UsageError, match="so few rows for each column"):
        MODEL.compile(study_of(two, method="auto", epsilon=0.1))
    modelled = tuple(
        msgspec.structs.replace(
            card, columns=tuple(msgspec.structs.replace(c, missing="model") if c.name == "b0" else c for c in card.columns)
        )
        for card in two
    )
    with pytest.raises(UsageError, match="has no model of completeness"):
        MODEL.compile(study_of(modelled))
    limit = tuple(
        msgspec.structs.replace(
            card, columns=tuple(msgspec.structs.replace(c, below=0.5) if c.name == "y" else c for c in card.columns)
        )
        for card in two
    )
    with pytest.raises(UsageError, match="is the response and has a limit of detection"):
        MODEL.compile(study_of(limit))
    with pytest.raises(UsageError, match="expected_missing goes with columns"):
        MODEL.compile(study_of(world(2)[0], expected_missing=0.2))
    with pytest.raises(UsageError, match='joint sums protect whole persons: unit = "record"'):
        MODEL.compile(msgspec.structs.replace(study_of(two), unit="attribute"))
