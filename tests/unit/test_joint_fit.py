"""The statistics of joint moments: what each party codes, how far a person moves it, and which fit follows from the total."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from joint_world import ARMS, fitted, joined, mixed, number, of, pooled, standards, study_of

from unpooled.errors import UsageError
from unpooled.linear.moments import Moments
from unpooled.linear.standard import FIRST, Standard
from unpooled.models.bayes.columns import design_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.products.design import CONSTANTS_SHARE, JointBudget, Limits
from unpooled.products.moments import order_of
from unpooled.products.sums import GRID, JOINT_CONSTANT

# --- limits ----------------------------------------------------------------------------------------------------------------


def test_limits_are_those_of_the_specification():
    for strength in (50.0, 900.0, 40_000.0):
        k, columns = strength / 9, (3, 5, 1)
        c = max(0.7, 1.25 + 0.27 * math.log(k / 50))
        lengths = [c * (math.sqrt(d) + 1 / math.sqrt(d)) for d in columns]
        clip = 2 + max(0.0, 0.45 * math.log(k / 120))
        whole = sum(x * x for x in lengths) + JOINT_CONSTANT**2
        found = Limits.of(columns, strength)
        assert found.columns == tuple(round(x * GRID) for x in lengths)
        assert found.weight == pytest.approx(math.sqrt((math.sqrt(1 + 4 * whole / clip**2) - 1) / 2))
        assert found.response == round(found.weight * clip * GRID)


def test_the_weight_of_the_response_makes_the_noise_of_slopes_least():
    """The noise of a slope is that of m / a and of N b: R^2 (1 / a^2 + |b|^2)^(1/2), least at this weight where |b|^2 is a half."""
    found = Limits.of((4, 4), 2000.0)
    clip = found.response / GRID / found.weight

    def noise(weight, square=0.5):
        return (found.mean_square + JOINT_CONSTANT**2 + (weight * clip) ** 2) * math.sqrt(1 / weight**2 + square)

    a = found.weight
    assert noise(a) < min(noise(a * 1.02), noise(a / 1.02))
    assert noise(a, 2.0) > noise(a / 1.02, 2.0)  # the control


# --- rows ------------------------------------------------------------------------------------------------------------------


def test_totals_are_the_moments_of_the_pooled_rows():
    columns, values = mixed(700)
    design, tables = of(columns, values, {"a": ("arm", "u"), "b": ("sex", "v", "y"), "c": ("w",)})
    known = standards(design, tables)
    rows = joined(design, tables, known)
    moments = fitted(design, tables, known)
    real = []
    for party, own in (("a", ("arm", "u")), ("b", ("sex", "v")), ("c", ("w",))):
        at = 0
        for name in own:
            levels = columns[name].categories
            coded = [values[name] / 4] if levels is None else [values[name] == level for level in levels]
            for column in coded:
                real.append((column - known[party].middle[at]) / known[party].width[at])
                at += 1
    response = (values["y"] / 6 - known["b"].middle[-1]) / known["b"].width[-1] * design.limits.weight
    whole = np.column_stack([*real, np.full(700, JOINT_CONSTANT), response])
    assert np.abs(rows[:, order_of(design)] / GRID - whole).max() < 0.6 / GRID  # nothing is shortened, all is rounded
    exact = rows[:, order_of(design)] / GRID
    np.testing.assert_allclose(moments.gram, exact.T @ exact, rtol=1e-12)
    np.testing.assert_allclose(moments.gram, whole.T @ whole, atol=700 * 20 / GRID)


def test_blocks_are_the_rows():
    columns, values = mixed(300)
    design, tables = of(columns, values, {"a": ("arm", "u"), "b": ("sex", "v", "y")}, JointBudget(0.3, 1.5))
    known = standards(design, tables)
    for party in design.parties:
        rows = design.party_rows(party)
        whole = rows.coded(tables[party], known[party])
        assert whole.dtype == np.int64
        assert whole.shape == (300, rows.part.columns)
        np.testing.assert_array_equal(np.concatenate(list(rows.blocks(tables[party], known[party], 7))), whole)
        alone = [
            rows.coded(Table({k: v[i : i + 2] for k, v in _raw(tables[party]).items()}), known[party])[0] for i in (0, 55)
        ]
        np.testing.assert_array_equal(alone, whole[[0, 55]])


def _raw(table):
    return {name: table[name] for name in table.names}


@pytest.mark.parametrize("columns", [1, 2, 5, 30])
def test_no_row_is_longer_than_its_bound(columns):
    rng = np.random.default_rng(columns)
    names = [f"x{j}" for j in range(columns)]
    values = {name: rng.normal(size=400) * 10.0 ** rng.integers(-3, 3, 400) for name in names}
    values |= {"z": rng.normal(size=400), "y": rng.standard_cauchy(size=400)}
    declared = {name: number(name) for name in (*names, "z", "y")}
    design, tables = of(declared, values, {"a": (*names, "y"), "b": ("z",)}, JointBudget(0.2, 1.5))
    rows = design.party_rows("a")
    for scale in (1e-3, 1e-2, 0.3):
        known = Standard(np.zeros(columns + 1), np.full(columns + 1, scale), 0.0, (1.0, 0.0))
        found = rows.coded(tables["a"], known)
        square = (found * found).sum(axis=1)
        assert square.max() <= rows.part.square
        assert square.max() > rows.part.square - 4 * math.sqrt(rows.part.square * (columns + 1))


def _corners(rng, columns, many):
    """Values of every declared column at the corners of what is allowed, beyond them, missing, and between."""
    found = {}
    for name, column in columns.items():
        if column.categories is not None:
            some = [*column.categories, *([None] if column.missing != "refuse" else [])]
        else:
            some = [column.low, column.high, column.centre, 3 * column.high, column.low / 3]
            some += [math.nan] if column.missing != "refuse" else []
        found[name] = np.array([some[k] for k in rng.integers(len(some), size=many)], dtype=object)
        if column.categories is None:
            found[name] = found[name].astype(float)
    return found


KINDS = {
    "arm": Column("arm", categories=ARMS, missing="indicator"),
    "u": number("u", -1, 3, missing="indicator"),
    "v": number("v", missing="absent"),
    "y": number("y", 0, 9),
    "sex": Column("sex", categories=("f", "m")),
}
SPLITS = (
    {"a": ("arm", "v"), "b": ("u", "sex", "y")},
    {"a": ("arm", "v", "y"), "b": ("u", "sex")},
    {"a": (*tuple(KINDS)[:3], "sex"), "b": ("y",)},
)


def _farthest(design, tables, known, *, zero):
    """The farthest that two persons' joint moments are apart, in the units of the noise."""
    rows = joined(design, tables, known).astype(float)
    first, second = design.shape.pairs
    weight = np.where(first == second, 1.0, math.sqrt(2.0))
    each = rows[:, first] * rows[:, second] * weight
    each[:, (first == design.shape.columns) & (second == design.shape.columns)] = 0.0
    if zero:
        return np.sqrt((each * each).sum(axis=1)).max()
    gram = each @ each.T
    own = gram.diagonal()
    return math.sqrt((own[:, None] + own - 2 * gram).max())


@pytest.mark.parametrize("split", SPLITS, ids=["beside", "at the first", "alone"])
def test_a_person_moves_the_moments_by_no_more_than_planned(split):
    rng = np.random.default_rng(3)
    values = _corners(rng, KINDS, 400)
    for adjacency in Adjacency:
        design, tables = of(KINDS, values, split, JointBudget(0.02, 1.5), adjacency=str(adjacency))
        distance = design.shape.distance(adjacency)
        for middle, width in itertools.product((-0.5, 0.0, 0.9), (0.003, 0.05, 1.0)):
            known = {}
            for party in design.parties:
                size = design.shape.places[party].stop - design.shape.places[party].start
                known[party] = Standard(np.full(size, middle), np.full(size, width), 0.0, (1.0, 0.0))
            found = _farthest(design, tables, known, zero=adjacency is Adjacency.ZERO_OUT)
            assert found <= distance
            # The control: were the response not clipped, or a part not shortened, a person would move more.
            if width == 0.003:
                assert found > 0.7 * distance if adjacency is Adjacency.REPLACE else found > 0.9 * distance
                broken = design.party_rows("a")
                broken = replace(
                    broken, columns=3 * broken.columns, part=replace(broken.part, square=9 * broken.part.square)
                )
                rows = joined(design, tables, known)
                rows[:, design.shape.places["a"]] = broken.coded(tables["a"], known["a"])
                assert (rows * rows).sum(axis=1).max() > design.shape.square


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_constants_are_one_release_over_all_columns(adjacency):
    """The sums of all parties, moved by one person at its corners; and the squared budgets add up to the planned share (Theorem B.15)."""
    rng = np.random.default_rng(1)
    columns = dict(KINDS)
    values = _corners(rng, columns, 500)
    values["u"][:250] = rng.uniform(-1, 3, 250)
    design, tables = of(columns, values, SPLITS[0], JointBudget(0.5, 1.5), adjacency=str(adjacency))
    squares, mus = np.zeros((500, 500)), []
    for party in design.parties:
        vector, scales = design.constants(party), design.scales(party)
        width = np.concatenate([np.full(b.size, b.width) for b in vector.blocks])
        own = _raw(tables[party])
        each = np.array([scales.statistic(Table({k: v[[i, i]] for k, v in own.items()})) / 2 for i in range(500)]) / width
        if adjacency is Adjacency.ZERO_OUT:  # a person's values against none
            squares += np.square(each).sum(axis=1)[:, None]
        else:
            gram = each @ each.T
            squares += gram.diagonal()[:, None] + gram.diagonal() - 2 * gram
        scale = vector.reach[Unit.RECORD].distance / (design.budget.mu * math.sqrt(vector.share))
        mus.append((design.budget.mu**2 * vector.share, scale))
    whole = math.sqrt(sum(design.constants(party).reach[Unit.RECORD].distance ** 2 for party in design.parties))
    assert 0.8 * whole < math.sqrt(squares.max()) <= whole * (1 + 1e-12)
    assert sum(square for square, _ in mus) == pytest.approx(CONSTANTS_SHARE * design.budget.mu**2)
    assert mus[0][1] == pytest.approx(mus[1][1])  # one release, one noise
    assert mus[0][1] == pytest.approx(whole / (design.budget.mu * math.sqrt(CONSTANTS_SHARE)))
    halved = replace(design.scales("b"), of_response=2 * design.scales("b").of_response)  # the control
    assert halved.vector(1.0, adjacency).reach[Unit.RECORD].distance > design.constants("b").reach[Unit.RECORD].distance
    assert design.constants("b").blocks[1].width == pytest.approx(design.layout.grid / FIRST / design.scales("b").weight)


# --- the fit ---------------------------------------------------------------------------------------------------------------


def test_without_noise_it_is_pooled_least_squares():
    """On values that lie on the grid, so that nothing is rounded, and within the limits, so that nothing is shortened."""
    rng = np.random.default_rng(0)
    columns, values = mixed(2000)
    for name in ("u", "v", "w"):
        values[name] = np.rint(values[name] * 256) / 256
    values["y"] = (0.5 * values["u"] - values["v"] + rng.normal(size=2000)).clip(-6, 6)
    design, tables = of(columns, values, {"a": ("u", "v"), "b": ("w", "y")})
    weight = design.limits.weight
    values["y"] = np.rint(values["y"] * 256) / 256
    tables["b"] = Table({"w": values["w"], "y": values["y"]})
    known = {
        "a": Standard(np.zeros(2), np.full(2, 0.25), 0.0, (1.0, 0.0)),
        "b": Standard(np.zeros(2), np.array([0.25, weight / 6]), 0.0, (1.0, 0.0)),
    }
    lines, estimates, errors = pooled(columns, values, ("u", "v", "w"))
    found = fitted(design, tables, known)
    table = found.summary()
    assert [t.term for t in table.terms] == lines
    for line, estimate, error in zip(table.terms, estimates, errors, strict=True):
        assert (
            abs(line.estimate - estimate) < 1e-6 * error + 4 * 2.0**-20 / 2
        )  # values are coded toward zero in steps of 2^-20
        assert line.std_error == pytest.approx(error, rel=1e-4)
        assert line.privacy < 1e-6


HOLDERS = [
    {"a": ("arm", "u", "y"), "b": ("sex", "v", "w")},
    {"a": ("arm", "u"), "b": ("sex", "v", "w", "y")},
    {"a": ("arm", "u"), "b": ("sex", "v", "w"), "c": ("y",)},
    {"c": ("y",), "b": ("w", "v", "sex"), "a": ("u", "arm")},
]


@pytest.mark.parametrize("split", HOLDERS, ids=["first", "second", "alone", "reordered"])
def test_the_table_is_the_pooled_one_whoever_holds_the_response(split):
    columns, values = mixed(4000, share=0.004)
    design, tables = of(columns, values, split)
    found = fitted(design, tables)
    lines, estimates, errors = pooled(columns, values, ("arm", "u", "sex", "v", "w"))
    table = {t.term: t for t in found.summary().terms}
    assert table.keys() == set(lines)
    for name, estimate, error in zip(lines, estimates, errors, strict=True):
        assert abs(table[name].estimate - estimate) < 0.01 * error, name
        assert table[name].std_error == pytest.approx(error, rel=0.01)
    contrast = found.contrast("arm: high - low")
    at = [lines.index(f"arm: {level} - placebo") for level in ("low", "high")]
    assert contrast.terms[0].estimate == pytest.approx(estimates[at[1]] - estimates[at[0]], abs=0.01 * errors[at[1]])


def test_contrasts_across_parties_and_submodels():
    columns, values = mixed(4000)
    design, tables = of(columns, values, {"a": ("arm", "u"), "b": ("sex", "v", "y")})
    found = fitted(design, tables)
    lines, estimates, errors = pooled(columns, values, ("arm", "u", "sex", "v"))
    table = dict(zip(lines, zip(estimates, errors, strict=True), strict=True))
    smaller = {t.term: t.estimate for t in found.submodel(["arm", "sex"]).summary().terms}
    for name, estimate, error in zip(*pooled(columns, values, ("arm", "sex")), strict=True):
        assert abs(smaller[name] - estimate) < 0.01 * error
    across = found.contrast({"arm: high - placebo": 1.0, "sex: m - f": 1.0})
    assert across.terms[0].estimate == pytest.approx(table["arm: high - placebo"][0] + table["sex: m - f"][0], abs=1e-3)
    assert {test.name for test in found.anova().tests} == {"arm", "u", "sex", "v"}


def test_a_constant_column_is_not_printed_and_the_others_are():
    columns, values = mixed(3000)
    columns["still"], values["still"] = number("still", 0, 8), np.full(3000, 3.0)
    design, tables = of(columns, values, {"a": ("arm", "still"), "b": ("u", "y")}, JointBudget(0.8, 1.5))
    table = fitted(design, tables, rng=np.random.default_rng(4)).summary()
    assert "still" in table.not_determined
    known = {t.term: t for t in table.terms}
    assert abs(known["u"].estimate - 0.4) < 4 * known["u"].std_error
    assert known["u"].std_error < 0.1


@pytest.mark.parametrize("share", [0.02, 0.005])
def test_a_rare_level_has_its_own_coefficient(share):
    """Were rows of the level shortened by a factor f, the coefficient would be 1/f times as large."""
    columns, values = mixed(60_000, share=share)
    design, tables = of(columns, values, {"a": ("arm", "u"), "b": ("sex", "v", "y")}, JointBudget(0.5, 1.5))
    found = fitted(design, tables, standards(design, tables))
    estimate = {t.term: t for t in found.summary().terms}["arm: high - placebo"]
    assert abs(estimate.estimate + 1.0) < 3 * (estimate.std_error**2 - estimate.privacy**2) ** 0.5 + 0.08
    loose = {
        party: replace(standard, width=np.sqrt(np.maximum(standard.middle * (1 - standard.middle), 1e-4)))
        for party, standard in standards(design, tables).items()
    }
    loose["b"] = standards(design, tables)["b"]
    loose["a"] = replace(loose["a"], width=np.append(loose["a"].width[:3], standards(design, tables)["a"].width[3:]))
    broken = {t.term: t for t in fitted(design, tables, loose).summary().terms}["arm: high - placebo"].estimate
    assert broken < estimate.estimate - 0.1  # the control: its own deviation as the unit


@pytest.mark.slow
def test_intervals_hold_the_truth_with_noise():
    """Fifty intervals: a coarse check of what experiments/joint/coverage.py measures."""
    truth = {"arm: low - placebo": -0.4, "arm: high - placebo": -1.0, "sex: m - f": 0.3, "u": 0.4, "v": -0.2}
    hits = []
    for seed in range(10):
        columns, values = mixed(6000, seed)
        design, tables = of(columns, values, {"a": ("arm", "u"), "b": ("sex", "v", "y")}, JointBudget(0.5, 1.5))
        table = fitted(design, tables, rng=np.random.default_rng([seed, 1])).summary()
        hits += [t.conf_low <= truth[t.term] <= t.conf_high for t in table.terms if t.term in truth]
    assert len(hits) > 45
    assert 0.86 <= np.mean(hits) <= 1.0


def test_moments_of_joint_rows_are_kept_in_files(tmp_path):
    columns, values = mixed(2000)
    design, tables = of(columns, values, {"a": ("arm", "u"), "b": ("sex", "v", "y")}, JointBudget(0.5, 1.5))
    found = fitted(design, tables, rng=np.random.default_rng(0))
    found.save(tmp_path / "joint.moments")
    again = Moments.load(tmp_path / "joint.moments")
    assert again == found
    assert again.frame.mean_square == found.frame.mean_square
    np.testing.assert_array_equal(again.posterior().coef_, found.posterior().coef_)


# --- refusals --------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.slow
def test_studies_that_it_does_not_answer_are_refused_by_name():
    u, v, y = number("u"), number("v"), number("y")
    good = {"a": [u], "b": [v, y]}
    cases = [
        ({"a": [u, v, y]}, {}, "two parties"),
        (good, {"response": "z"}, "'z' must be a declared column of one party: no party"),
        (good, {"formula": "y ~ v"}, "no term is of columns of 'a'"),
        (good | {"b": [v, y]}, {"formula": "y ~ u:v"}, "needs columns of a, b"),
        (good, {"formula": "z ~ u + v"}, "left side of the formula"),
        (good, {"method": "cosines"}, "method is one of"),
        (good | {"c": [number("w")]}, {"method": "sines"}, '"sines" needs two parties, and this study has 3'),
        (good, {"confidence": 1.0}, "confidence"),
        (good, {"reference": {"u": "x"}}, "u"),
        ({"a": [u], "b": [u, y]}, {}, "'u' is declared by two parties"),
        ({"a": [u, y], "b": [v, y]}, {}, "a, b declare it"),
        ({"a": [u], "b": [v, number("y", missing="absent")]}, {}, "never missing"),
        ({"a": [u], "b": [Column("y", categories=("a", "b"))]}, {}, "never missing"),
    ]
    for parties, parameters, words in cases:
        with pytest.raises(UsageError, match=words):
            design_of(study_of(parties, 100, **parameters), JointBudget(0.3, 1.5))
    uneven = Study(
        "joint", (Card("a", 100, (u,)), Card("b", 99, (v, y))), 1.0, 1e-5, derived=(), parameters={"response": "y"}
    )
    with pytest.raises(UsageError, match="different numbers of rows"):
        design_of(uneven, JointBudget(0.3))
    with pytest.raises(UsageError, match="whole persons"):
        design_of(
            Study("joint", uneven.parties, 1.0, 1e-5, derived=(), unit="attribute", parameters={"response": "y"}),
            JointBudget(0.3),
        )
    with pytest.raises(UsageError, match="noise that protects"):
        JointBudget.of(study_of(good, 100), 3, 2)
    with pytest.raises(UsageError, match="may not fit"):
        design_of(study_of(good, 10**11), JointBudget(0.3))
    assert JointBudget.of(study_of(good, 100), 3).factor == 1.5


def test_a_table_without_lines_has_no_other_numbers():
    """400 rows at an epsilon of 1: a residual variance of 2 was printed where the truth is 64."""
    columns, values = mixed(400)
    design, tables = of(
        columns,
        values,
        {"a": ("arm", "u"), "b": ("sex", "v", "w", "y")},
        design_of(
            study_of({"a": [columns["arm"], columns["u"]], "b": [columns[c] for c in ("sex", "v", "w", "y")]}, 400)
        ).budget,
    )
    table = fitted(design, tables, rng=np.random.default_rng(0)).summary()
    assert table.terms == ()
    assert math.isnan(table.residual_variance)
    assert math.isnan(table.r_squared)
    assert str(table).splitlines()[1] == "n = 400"
    plain = fitted(*of(columns, values, {"a": ("arm", "u"), "b": ("sex", "v", "w", "y")})).summary()
    assert plain.residual_variance > 0  # the control: without noise
    assert plain.r_squared > 0


def test_the_grid_of_joint_rows_is_that_of_the_theorem() -> None:
    """A part is rounded to steps of 1/1024 of a deviation, and the constant of a row is about .7 (THEORY.md of ``aggregation``)."""
    assert GRID == 1024
    assert pytest.approx(0.7, abs=0.001) == JOINT_CONSTANT
