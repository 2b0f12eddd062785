"""Lines of tables and contrasts in words, against designs written down row by row."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from unpooled.errors import UsageError
from unpooled.inference.coding import MISSING, Categories, CodedTerm, CodedTerms, coded_terms
from unpooled.inference.printed_terms import CODINGS, SUM, PrintedTerms, printed_terms
from unpooled.privacy.bounds import Column

COLUMNS = (
    Column("age", 0.0, 90.0),
    Column("ward", categories=("a", "b", "c d")),
    Column("dose", 0.0, 5.0),
    Column("arm", categories=("0", "1")),
)
CODED = coded_terms(COLUMNS).with_constants(("(intercept)",))
TABLE = printed_terms(CODED)

FORMS = list(itertools.product((True, False), repeat=2))
WARD, ARM = Categories("ward", ("a", "b", "c"), "a"), Categories("arm", ("x", "y"), "x")


def product(*, constant: bool = True, main: bool = True) -> CodedTerms:
    """age * ward * arm, one coefficient for every level and cell."""
    terms = []
    for number in ("", "age"):
        for chosen in ((), (WARD,), (ARM,), (WARD, ARM)):
            if not chosen and not number:
                continue
            if not main and chosen == ():
                continue
            term = ":".join([number] * bool(number) + [f.name for f in chosen])
            for levels in itertools.product(*(f.levels for f in chosen)):
                cells = tuple((f.name, level) for f, level in zip(chosen, levels, strict=True))
                terms.append(CodedTerm(f"{term} {levels}", number, cells, term))
    return CodedTerms(tuple(terms), (WARD, ARM)).with_constants(("(intercept)",) * constant)


def rows_of(coded: CodedTerms, age: float, levels: dict[str, str]) -> np.ndarray:
    """The coded row of a person, written down."""
    return np.array(
        [
            (age if term.number else 1.0) * all(levels.get(name) == level for name, level in term.cells)
            for term in coded.terms
        ]
    )


def every_row(coded: CodedTerms, **more: tuple[str | None, ...]) -> np.ndarray:
    levels = {f.name: (*f.levels, *more.get(f.name, ())) for f in coded.factors}
    return np.array(
        [
            rows_of(coded, age, dict(zip(levels, chosen, strict=True)))
            for age in (1.0, 2.5)
            for chosen in itertools.product(*levels.values())
        ]
    )


@pytest.mark.parametrize(("constant", "main"), FORMS)
def test_still_directions_are_all_that_no_row_tells(constant: bool, main: bool) -> None:
    coded = product(constant=constant, main=main)
    rows, still = every_row(coded), coded.still
    np.testing.assert_allclose(rows @ still, 0.0, atol=1e-12)
    assert np.linalg.matrix_rank(rows) == rows.shape[1] - still.shape[1]
    np.testing.assert_allclose(still.T @ still, np.eye(still.shape[1]), atol=1e-12)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize(("constant", "main"), FORMS)
def test_every_line_has_a_value_and_the_lines_tell_all_that_rows_tell(constant: bool, main: bool, coding: str) -> None:
    coded = product(constant=constant, main=main)
    printed = printed_terms(coded, {"ward": "b"}, coding)
    np.testing.assert_allclose(printed.weights @ coded.still, 0.0, atol=1e-12)
    rank = np.linalg.matrix_rank(every_row(coded))
    assert np.linalg.matrix_rank(printed.weights) == rank
    if coding != SUM:
        assert len(printed.names) == rank, "no line follows from the others"
    assert len(set(printed.names)) == len(printed.names)


def test_lines_of_a_product_are_those_of_treatment_coding() -> None:
    """Against the means of cells: what a textbook calls the effect at the reference, and the difference of differences."""
    coded = product()
    printed = printed_terms(coded, {"ward": "b", "arm": "y"})
    beta = np.random.default_rng(0).normal(size=len(coded.terms))
    lines = dict(zip(printed.names, (printed.weights @ beta).tolist(), strict=True))

    def mean(age: float, ward: str, arm: str) -> float:
        return float(rows_of(coded, age, {"ward": ward, "arm": arm}) @ beta)

    def slope(ward: str, arm: str) -> float:
        return mean(1.0, ward, arm) - mean(0.0, ward, arm)

    assert lines["(intercept)"] == pytest.approx(mean(0, "b", "y"))
    assert lines["ward: a - b"] == pytest.approx(mean(0, "a", "y") - mean(0, "b", "y"))
    assert lines["age"] == pytest.approx(slope("b", "y"))
    assert lines["age * (arm: x - y)"] == pytest.approx(slope("b", "x") - slope("b", "y"))
    both = (mean(0, "c", "x") - mean(0, "b", "x")) - (mean(0, "c", "y") - mean(0, "b", "y"))
    assert lines["(ward: c - b) * (arm: x - y)"] == pytest.approx(both)
    # In words the same lines, and others at the same references.
    names, weights, _ = printed.contrasts(["ward: a - b", "age", "ward: a - c", "age * (arm: x - y)"])
    assert names == ("ward: a - b", "age", "ward: a - c", "age * (arm: x - y)")
    found = weights @ beta
    assert found[:2] == pytest.approx([lines["ward: a - b"], lines["age"]])
    assert found[2] == pytest.approx(mean(0, "a", "y") - mean(0, "c", "y"))
    assert found[3] == pytest.approx(lines["age * (arm: x - y)"])


def test_sums_compare_with_the_mean_of_all_levels() -> None:
    printed = printed_terms(CODED, coding="sum")
    beta = np.random.default_rng(1).normal(size=len(CODED.terms))
    lines = dict(zip(printed.names, (printed.weights @ beta).tolist(), strict=True))
    ward = beta[1:4]
    assert lines["ward: b - mean"] == pytest.approx(ward[1] - ward.mean())
    assert sum(lines[f"ward: {level} - mean"] for level in ("a", "b", "c d")) == pytest.approx(0)
    assert lines["(intercept)"] == pytest.approx(beta[-1] + ward.mean() + beta[5:7].mean())


def test_without_a_constant_the_first_column_has_a_line_for_each_level() -> None:
    printed = printed_terms(coded_terms(COLUMNS))
    assert printed.names == ("age", "ward: a", "ward: b", "ward: c d", "dose", "arm: 1 - 0")
    assert printed.slopes.all()


def test_intervals_are_constants_at_the_references() -> None:
    coded = coded_terms(COLUMNS).with_constants(("log hazard (0, 1]", "log hazard (1, 2]"))
    printed = printed_terms(coded, {"arm": "1"})
    assert printed.names[-2:] == ("log hazard (0, 1]", "log hazard (1, 2]")
    assert printed.slopes.tolist() == [True] * (len(printed.names) - 2) + [False] * 2
    assert coded.still.shape[1] == 2
    assert np.abs(coded.still).sum(axis=1)[-2:].min() > 0
    first = dict(zip(coded.names, printed.weights[-2], strict=True))
    assert {name for name, weight in first.items() if weight} == {"ward = a", "arm = 1", "log hazard (0, 1]"}
    assert [factor.name for factor in printed.factors] == ["ward", "arm"]


@pytest.mark.parametrize("missing", ["refuse", "indicator", "absent"])
def test_missing_values_are_a_level_where_they_have_an_indicator(missing: str) -> None:
    columns = (Column("x", 0.0, 1.0, missing=missing), Column("w", categories=("u", "v"), missing=missing))
    coded = coded_terms(columns).with_constants(("(intercept)",))
    names = printed_terms(coded).names
    assert (f"w: {MISSING} - u" in names) == (missing == "indicator")
    assert ("x missing" in names) == (missing == "indicator")
    assert coded.still.shape[1] == int(missing != "absent")


def beta_of(table: PrintedTerms) -> np.ndarray:
    return np.arange(1.0, table.weights.shape[1] + 1) ** 2


@pytest.mark.parametrize(
    ("text", "names", "values", "against"),
    [
        ("ward: b - a", ("ward: b - a",), (9 - 4,), 0),
        ("ward:b-a", ("ward: b - a",), (9 - 4,), 0),
        ("ward: b - a, c d - a", ("ward: b - a", "ward: c d - a"), (5, 12), 0),
        ("ward: c d - mean", ("ward: c d - mean",), (16 - 29 / 3,), 0),
        ("ward: 0.5 * b + 0.5 * 'c d' - a", ("ward: 0.5 * b + 0.5 * c d - a",), (12.5 - 4,), 0),
        ("arm: 1 - 0", ("arm: 1 - 0",), (49 - 36,), 0),
        ("`arm`: `1` - `0`", ("arm: 1 - 0",), (49 - 36,), 0),
        ("ward", ("ward: b - a", "ward: c d - a"), (5, 12), 0),
        ("2 * age - dose", ("2 * age - dose",), (2 - 25,), 0),
        ("-age + 1e1 * dose", ("-age + 10 * dose",), (249,), 0),
        ("age = 1.5", ("age",), (1,), 1.5),
        ("age = -.5, dose", ("age", "dose"), (1, 25), (-0.5, 0)),
        ("ward: b - a = 1, arm: 1 - 0", ("ward: b - a", "arm: 1 - 0"), (5, 13), (1, 0)),
    ],
)
def test_contrasts_in_words(text: str, names: tuple[str, ...], values: tuple[float, ...], against: object) -> None:
    said, weights, compared = TABLE.contrasts(text)
    assert said == names
    assert (weights @ beta_of(TABLE)).tolist() == pytest.approx(list(values))
    assert compared == pytest.approx(np.broadcast_to(against, compared.shape))


@pytest.mark.parametrize(
    "text",
    [
        "ward: b - z",
        "weight",
        "age -",
        "ward: b - a;",
        "age dose",
        "2 age",
        "ward: b - a, ",
        "",
        "age == 1",
        "ward: ",
        "age * dose",
    ],
)
def test_what_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r'write "ward: b - a" for levels') as caught:
        TABLE.contrasts(text)
    assert len(str(caught.value)) < 400


def test_contrasts_of_mappings_and_rows() -> None:
    _, weights, _ = TABLE.contrasts(
        [{"age": 1.0, "ward = b": -2.0}, "ward: b - a", {"ward: b - a": 2.0, "(intercept)": 1.0}]
    )
    assert weights[0, :3].tolist() == [1.0, 0.0, -2.0]
    assert (weights[2] == 2 * weights[1] + np.eye(8)[7]).all()
    _, rows, _ = TABLE.contrasts([[0, 1, -1, 0, 0, 0, 0]])
    assert rows.tolist() == [[0, 1, -1, 0, 0, 0, 0, 0]]
    for wrong, words in (
        ([1.0, 2.0], "a weight for each of the 7"),
        ({"height": 1.0}, "'height'"),
        ([], "a weight for each"),
        (object(), "a contrast is words"),
        ([["a"]], "a contrast is words"),
    ):
        with pytest.raises(UsageError, match=words):
            TABLE.contrasts(wrong)


def test_several_classes_are_compared_with_one() -> None:
    table = TABLE.of_classes(("well", "ill", "very ill"), "well")
    assert table.names[: len(TABLE.names)] == tuple(f"ill: {name}" for name in TABLE.names)
    assert len(table.names) == 2 * len(TABLE.names)
    beta = beta_of(table)
    base, ill, very = beta.reshape(3, -1)
    for text, own in (("ill: age", ill), ("very ill: age", very)):
        names, weights, _ = table.contrasts(text)
        assert names == (text,)
        assert weights @ beta == pytest.approx([own[0] - base[0]])
    _, weights, _ = table.contrasts("very ill: ward: b - a")
    assert weights @ beta == pytest.approx([(very[2] - very[1]) - (base[2] - base[1])])
    assert table.is_column("ill: ward")
    for wrong, words in (
        ("age", "begin a contrast with one of them"),
        ("well: age", "is the one that the others are compared with"),
    ):
        with pytest.raises(UsageError, match=words):
            table.contrasts(wrong)


@pytest.mark.parametrize(
    ("reference", "coding", "words"),
    [
        ({"place": "a"}, "treatment", "names 'place'"),
        ({"age": "a"}, "treatment", "a column of categories, one of"),
        ({"ward": "z"}, "treatment", "one of its declared levels"),
        ({}, "helmert", "coding is one of"),
    ],
)
def test_a_coding_that_is_none_is_refused(reference: dict[str, str], coding: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        printed_terms(CODED, reference, coding)
