"""Small numbers inside larger computations, each against its definition: faults there were noticed by no other test."""

import importlib
import inspect
import pkgutil
from datetime import date
from types import SimpleNamespace

import numpy as np
import pytest

from unpooled.inference.drawing import drawn
from unpooled.inference.estimates import chi2_tail
from unpooled.inference.priors import _typical_of
from unpooled.inference.profiles import _bends, _response
from unpooled.inference.sites import _TUNED as TUNED
from unpooled.inference.sites import known_moments
from unpooled.linear.descent import CONSTANT, steep_of
from unpooled.linear.drawn import _typical
from unpooled.linear.inference import PrincipalComponents
from unpooled.linear.moments import Moments
from unpooled.linear.residuals import _TUNED as CELLS_TUNED
from unpooled.linear.residuals import ResidualCells, ResidualCounts
from unpooled.linear.tilted import TiltedRows
from unpooled.privacy.bounds import Column, _days_of
from unpooled.privacy.mechanisms.blocks import Reach
from unpooled.privacy.sensitivity import standardising_sums
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.products.sines import SineShape
from unpooled.protocol.registry import Panel, _line
from unpooled.totals.weights import Weighting

RNG = np.random.default_rng(8)


@pytest.mark.guarantee
@pytest.mark.parametrize("first", [0.3, 1.0, 2.5])
def test_an_indicator_that_vanishes_moves_one_column_and_one_that_changes_moves_two(first: float) -> None:
    """The closed form is the largest distance over all pairs of a row of two coded columns, and no more (Theorem B.7)."""

    def sums(row: tuple[int, int]) -> np.ndarray:
        return np.array([first * value for value in row] + [value**2 for value in row], dtype=float)

    levels = ((1, 0), (0, 1))
    vanishes = max(float(np.linalg.norm(sums(row))) for row in levels)
    changes = max(float(np.linalg.norm(sums(a) - sums(b))) for a in levels for b in levels)
    assert standardising_sums((True,), first, 0.0, Adjacency.ZERO_OUT) == pytest.approx(vanishes)
    numbers = standardising_sums((False,), first, 0.0, Adjacency.REPLACE)  # present numbers may lie farther apart
    assert standardising_sums((True,), first, 0.0, Adjacency.REPLACE) == pytest.approx(max(changes, numbers))


def test_the_tail_of_chi_squared() -> None:
    """A statistic of 3.84 with one degree of freedom has five per cent beyond it; without degrees nothing is tested."""
    assert chi2_tail(3.841458820694124, 1) == pytest.approx(0.05)
    assert chi2_tail(5.991464547107979, 2) == pytest.approx(0.05)
    assert chi2_tail(7.0, 0) == 1.0


def test_a_typical_slope_explains_all_together() -> None:
    """Four slopes of this size explain a variance of one; no slope counts as one."""
    assert _typical_of(np.array([True, False, True, True, True])) == pytest.approx(0.5)
    assert _typical_of(np.array([False, False])) == 1.0


def test_a_curve_bends_where_one_of_its_columns_does() -> None:
    """A straight column beside a bent one does not hide the bend."""
    x = np.linspace(0.0, 1.0, 9)
    assert not _bends(np.column_stack([x, 3 - 2 * x]))
    assert _bends(np.column_stack([x, np.abs(x - 0.5)]))
    assert not _bends(np.column_stack([x, np.repeat(1.0, 9)]))


def test_a_response_with_parameters_is_only_called_a_response() -> None:
    """A name of its own is kept; a formula in parentheses is no name."""
    assert _response("(log of charges)") == "response"
    assert _response("charges") == "charges"


def test_the_noise_of_a_symmetric_matrix_is_that_of_its_released_entries() -> None:
    """Entries beside the diagonal were released times the root of two: half the variance stays in each."""
    three = SimpleNamespace(size=3)
    variance = sum(TiltedRows.matrix(three, 0.7 * upper) ** 2 for upper in np.eye(6))
    np.testing.assert_allclose(TiltedRows.noises(three, 3, 0.7), variance)


@pytest.mark.parametrize("said", [(date(2026, 1, 1), 7.0), (0.0, date(2026, 1, 1)), (0.0, 7.0), "ab"])
def test_one_date_makes_no_range_of_dates(said: object) -> None:
    """Both ends must be dates; a range that mixes them is refused elsewhere."""
    assert _days_of(said) is None
    assert _days_of((date(2026, 1, 1), date(2026, 1, 8))) == (date(2026, 1, 1), 7.0)


def test_three_numbers_tell_a_site_s_part_and_all_places_of_the_matrix_agree() -> None:
    """Weights are inverse variances; the indicator times the constant is the same number in other units, and so is its noise."""
    gram, variance = np.diag([40.0, 25.0, 90.0]), np.full((3, 3), 4.0)
    gram[:2, 2] = gram[2, :2] = (60.0, 30.0)
    places, parts, ratio = np.array([0, 1]), np.array([0.6, 0.4]), 0.5
    found, noise = known_moments(gram, variance, places, parts, (1.0, 2.0), alike=True)
    told = np.array([gram.diagonal()[:2], gram[:2, 2] * ratio, 90.0 * ratio**2 * parts])
    weights = 1 / np.array([[4.0, 4.0], [4.0 * ratio**2] * 2, (TUNED.site_doubt_least * told[2]) ** 2])
    mean = (weights * told).sum(axis=0) / weights.sum(axis=0)
    np.testing.assert_allclose(found.diagonal()[:2], mean)
    np.testing.assert_allclose(noise.diagonal()[:2], 1 / weights.sum(axis=0))
    for row in range(2):
        assert found[row, 2] == found[2, row] == pytest.approx(mean[row] / ratio)
        assert noise[row, 2] == noise[2, row] == pytest.approx(noise[row, row] / ratio**2)
    assert (found[0, 1], noise[1, 0]) == (0.0, 0.0)


@pytest.mark.guarantee
def test_sines_of_the_longer_party_bound_an_entry() -> None:
    """A gradient of one person is a row, at most as long as the longer party's, times one step of a sine."""
    shape = SineShape.of({"a": (2, 30**2), "b": (3, 900**2)}, 5, 2, steps=7)
    assert shape.most >= 7 * 900
    assert shape.most == SineShape.of({"b": (3, 900**2), "a": (2, 30**2)}, 5, 2, steps=7).most


def test_every_interval_is_of_95_per_cent_unless_asked() -> None:
    """One default in all results: of public classes and functions that take a confidence."""
    found = []
    for name in names_of("unpooled.inference"):
        module = importlib.import_module(name)
        own = [one for one in vars(module).values() if getattr(one, "__module__", "") == name]
        for one in own:
            for part in (one, *vars(one).values()) if inspect.isclass(one) else (one,):
                asked = inspect.signature(part).parameters if inspect.isfunction(part) else {}
                found += [(part.__qualname__, asked["confidence"].default)] if "confidence" in asked else []
    assert len(found) > 10
    assert [(name, said) for name, said in found if said not in {0.95, inspect.Parameter.empty}] == []


def test_a_row_of_figures_is_as_high_as_its_tallest() -> None:
    few, many = (Panel(str(n), tuple(map(str, range(n))), (1.0,) * n) for n in (2, 30))
    alone = drawn([many]).get_size_inches()[1]
    assert drawn([few, many]).get_size_inches()[1] == drawn([many, few]).get_size_inches()[1] == pytest.approx(alone)


def test_directions_have_a_number_for_every_column() -> None:
    found = PrincipalComponents(np.eye(3)[:2], np.array([0.6, 0.3]))
    assert found._lines()[0] == ("variance", "column 0", "column 1", "column 2")


@pytest.mark.guarantee
def test_a_weight_moves_the_sum_of_weights_by_one() -> None:
    """Parts are between 0 and 1, floored to the grid: one number moves by at most one."""
    weighting = Weighting(Column("w", 0.5, 4.0), 100)
    vector = weighting.vector()
    assert set(vector.reach.values()) == {Reach(1.0, 1)}
    assert [float(weighting.parts(np.array([w]))[0]) for w in (0.0, 2.0, 9.0)] == [0.125, 0.5, 1.0]


@pytest.mark.guarantee
def test_a_residual_is_counted_once() -> None:
    """A row that changes leaves one cell and enters another; counts are whole numbers, with steps of one."""
    vector = ResidualCells().vector(0.5, {Unit.RECORD: Adjacency.REPLACE})
    assert [(block.size, block.width) for block in vector.blocks] == [(2 * ResidualCells().each, 1.0)]
    assert vector.reach[Unit.RECORD].distance == pytest.approx(np.sqrt(2))


def test_a_tail_is_counted_until_the_noise_of_both_counts_hides_it() -> None:
    """Cells of whole and of shortened rows are added up, so that their noise has twice the variance."""
    cuts, variance = ResidualCells().cuts, 100.0
    first = next(k for k, start in enumerate(cuts) if start >= CELLS_TUNED.core)

    def excess(count: float) -> float:
        whole = np.zeros(2 * len(cuts) + 1)
        whole[len(cuts) + 1 + first] = count
        return ResidualCounts(cuts, whole, np.zeros_like(whole), variance, 1000)._excess(cuts[0])

    hidden = CELLS_TUNED.hidden * np.sqrt(2 * variance)
    assert excess(1.05 * hidden) > 0.0
    assert excess(0.95 * hidden) == 0.0


def test_shortened_rows_count_for_a_quarter_at_least() -> None:
    """The noisy number of whole rows is kept between a quarter of the rows and all of them."""
    frame = SimpleNamespace(refined=True, widths=np.array([1.0, 2.0]), mean_weight=1.0)
    found = []
    for whole in (1.0, 15.0, 90.0):
        gram = np.diag([1.0, whole])
        found.append(
            Moments.weight.fget(
                SimpleNamespace(frame=frame, layout=SimpleNamespace(size=2, intercept=True), rows=100, gram=gram)
            )
        )
    assert found == [25.0, 60.0, 100.0]


def test_a_typical_slope_of_moments_explains_the_response() -> None:
    """The root of squares of the response over those of all columns; rounds have no such scale."""
    layout = SimpleNamespace(size=3, intercept=True)
    xx = (np.diag([3.0, 6.0, 50.0]), np.diag([1.0, 1.0, 1.0]))
    frames = [SimpleNamespace(refined=refined, squares=(36.0, 1.0)) for refined in (False, True)]
    found = [_typical(SimpleNamespace(frame=frame, layout=layout, xx=xx, rows=80)) for frame in frames]
    assert found == [pytest.approx(2.0), None]


@pytest.mark.parametrize(("example", "words"), [(3, "a number of rounds"), (5, "a number of rounds; here an example")])
def test_a_line_of_a_new_study_says_what_a_parameter_means(example: int, words: str) -> None:
    one = SimpleNamespace(
        name="rounds", required=False, example=example, default=3, words="A number of rounds.", flag=lambda name: None
    )
    assert _line(one).partition("# ")[2].partition("# ")[2] == words


def names_of(package: str) -> list[str]:
    return [one.name for one in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}.")]


def test_steepness_is_the_share_of_typical_rows_that_a_clip_leaves_whole() -> None:
    """Rows of four slopes and the constant have this length; their gradients are normal."""
    length = np.sqrt(4 + CONSTANT**2)
    gradients = np.abs(RNG.standard_normal(400_000)) * length
    for clip in (0.5, 2.0, 6.0):
        assert steep_of(clip, 4) == pytest.approx(float((gradients < clip).mean()), abs=0.004)
