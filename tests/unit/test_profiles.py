"""Profiles, the fitted curves of single variables, are contrasts of a public grid: values, bands, gaps, refusals, figures."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest

from unpooled import PrivateGLM, PrivateLinearRegression
from unpooled.errors import UsageError
from unpooled.formula import Formula
from unpooled.inference.estimates import Estimates
from unpooled.inference.profiles import POINTS, Profile, curved, panels, profile
from unpooled.models.bayes import MODEL as BAYES
from unpooled.models.bayes.fit import BayesResult
from unpooled.models.glm import MODEL as GLM
from unpooled.report import figures

N = 3000
RNG = np.random.default_rng(7)
DOSE, AGE, GRADE = RNG.uniform(0, 10, N), RNG.uniform(20, 90, N), RNG.integers(1, 4, N).astype(float)
WARD, WIDE = RNG.choice(["a", "b", "c"], N), RNG.uniform(0, 5, N)
ETA = 1.5 * np.sin(DOSE / 2) + 0.01 * (AGE - 50) + 0.5 * (WARD == "b")
FRAME = pl.DataFrame(
    {
        "dose": DOSE,
        "age": AGE,
        "grade": GRADE,
        "ward": WARD,
        "wide": WIDE,
        "y": ETA + RNG.normal(size=N),
        "ill": (RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(int),
        "kind": np.array(["p", "q", "r"])[(ETA + 1.5 * RNG.normal(size=N) > 0).astype(int) + (ETA > 1)],
    }
)
BOUNDS: dict[str, Any] = {
    "dose": (0, 10),
    "age": (0, 100),
    "grade": (1, 3),
    "ward": ["a", "b", "c"],
    "wide": (0, 10),
}
SPLINE = "bs(dose, knots=[3, 6])"
NAMES = tuple(f"bs(dose)[{k}]" for k in range(1, 6))


def regression(formula: str, epsilon: float = math.inf, **more: Any) -> PrivateLinearRegression:
    model = PrivateLinearRegression(epsilon=epsilon, delta=1e-5, bounds=BOUNDS, y_bounds=(-8, 8), random_state=0, **more)
    return model.fit(FRAME, formula=f"y ~ {formula}")


def glm(formula: str, epsilon: float = math.inf) -> PrivateGLM:
    model = PrivateGLM(epsilon=epsilon, delta=1e-5, bounds=BOUNDS, classes=(0, 1), random_state=0, method="newton")
    return model.fit(FRAME, formula=f"ill ~ {formula}")


def basis(formula: str, **columns: Any) -> np.ndarray:
    return Formula.parse(formula).derive({name: BOUNDS[name] for name in columns}).matrix(columns)


@pytest.fixture(scope="module")
def noisy() -> PrivateLinearRegression:
    return regression(f"{SPLINE} + age + ward", 14.0)


@pytest.mark.parametrize("spline", [SPLINE, "ns(dose, knots=[3, 6])"])
def test_without_noise_it_is_the_curve_of_least_squares(spline: str) -> None:
    found = regression(f"{spline} + age + ward").profile("dose")
    assert found.at.tolist() == pytest.approx(np.linspace(0, 10, POINTS))
    design = np.column_stack([basis(spline, dose=DOSE), AGE, WARD == "b", WARD == "c", np.ones(N)])
    beta, *_ = np.linalg.lstsq(design, FRAME["y"].to_numpy(), rcond=None)
    left = FRAME["y"].to_numpy() - design @ beta
    covariance = left @ left / (N - design.shape[1]) * np.linalg.inv(design.T @ design)
    grid = basis(spline, dose=found.at) - basis(spline, dose=np.array([6.0]))
    k = grid.shape[1]
    assert found.estimate == pytest.approx(grid @ beta[:k], abs=1e-4)
    assert found.std_error == pytest.approx(
        np.sqrt(np.einsum("ij,jk,ik->i", grid, covariance[:k, :k], grid)), rel=1e-3, abs=1e-6
    )
    assert not found.privacy.any()
    assert found.without_privacy == pytest.approx(1.0)
    assert found.reference == 6.0
    assert (found.estimate[60], found.low[60], found.high[60]) == (0, 0, 0)


def test_it_is_the_contrast_that_one_would_write(noisy: PrivateLinearRegression) -> None:
    found = noisy.profile("dose", confidence=0.9)
    rows, start = basis(SPLINE, dose=found.at), basis(SPLINE, dose=np.array([6.0]))[0]
    for k in (1, 40, 100):
        weights = {name: rows[k, j] - start[j] for j, name in enumerate(NAMES)}
        (line,) = noisy.contrast(weights, confidence=0.9).terms
        own = (found.estimate[k], found.std_error[k], found.privacy[k], found.low[k], found.high[k])
        assert own == pytest.approx((line.estimate, line.std_error, line.privacy, line.conf_low, line.conf_high))
    others = np.arange(POINTS) != 60
    assert (found.privacy[others] > 0).all()
    assert (found.low[others] < found.estimate[others]).all()
    assert ((found.without_privacy[others] > 0) & (found.without_privacy[others] < 1)).all()
    assert found.determined.all()
    moved = noisy.profile("dose", reference=2)
    assert (moved.reference, moved.estimate[20], moved.std_error[20]) == (2.0, 0.0, 0.0)
    assert moved.estimate == pytest.approx(found.estimate - found.estimate[20])


def test_a_curve_of_powers_and_logarithms_is_one_too() -> None:
    model = regression("age + I((age - 50)**2) + log(dose + 1) + ward")
    age, dose = model.profile("age"), model.profile("dose")
    own = dict(zip(model.summary().to_pandas().index, model.summary().to_pandas()["estimate"], strict=True))
    wanted = own["age"] * (age.at - age.reference) + own["I((age - 50)**2)"] * (
        (age.at - 50) ** 2 - (age.reference - 50) ** 2
    )
    assert age.estimate == pytest.approx(wanted, abs=1e-6)
    assert dose.reference == 5.0, "the middle of the range, where there is no spline"
    assert dose.estimate == pytest.approx(own["log(dose + 1)"] * np.log((dose.at + 1) / 6), abs=1e-6)
    assert curved(model._tables()) == ("age", "dose")
    assert curved(regression("age + I((age - 50) / 10) + dose")._tables()) == ()
    straight = regression("age + dose").profile("age")
    assert np.abs(np.diff(straight.estimate, 2)).max() < 1e-9


def test_a_generalised_model_has_it_on_its_linear_predictor() -> None:
    model = glm(f"{SPLINE} + age")
    found = model.profile("dose")
    frame = pl.DataFrame({"dose": found.at, "age": np.full(POINTS, 50.0)})
    u = model.linear_predictor(frame)
    assert found.estimate == pytest.approx(u - u[60], abs=1e-4)
    assert found.scale == "linear predictor (log odds)"
    assert "log odds" in found.figure().axes[0].get_ylabel()
    assert "dose = 6" in found.figure().axes[0].get_ylabel()


def test_every_class_has_a_curve_against_another_one() -> None:
    model = PrivateGLM("multinomial", epsilon=math.inf, bounds=BOUNDS, classes=("p", "q", "r"), random_state=0)
    model.fit(FRAME, formula=f"kind ~ {SPLINE}")
    with pytest.raises(UsageError, match="every class has a curve of its own"):
        model.profile("dose")
    with pytest.raises(UsageError, match="every class"):
        model.profile("dose", label="p")
    found, back = model.profile("dose", label="q"), model.profile("dose", label="p", against="q")
    assert found.estimate == pytest.approx(-back.estimate)
    u = model.linear_predictor(pl.DataFrame({"dose": found.at}))
    own = u[:, 1] - u[:, 0]
    assert found.estimate == pytest.approx(own - own[60], abs=1e-3)
    assert "q against p" in found.axes[1]
    titles = [panel.title for panel in GLM.reading.panels(model.plan_, model._result)]
    assert [title.split(":")[0] for title in titles[1:]] == ["q", "r"]


@pytest.mark.long
@pytest.mark.slow
def test_the_middle_of_the_band_holds_the_true_curve() -> None:
    """Sixty seeded data sets and fits of a curve that the spline can be: about nineteen of twenty intervals hold it."""
    formula, beta = "ns(dose, knots=[5])", np.array([1.5, -0.5])
    ends = basis(formula, dose=np.array([5.0, 0.0]))
    truth, held, narrow = float((ends[1] - ends[0]) @ beta), 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        dose = rng.uniform(0, 10, 1500)
        frame = pl.DataFrame({"dose": dose, "y": basis(formula, dose=dose) @ beta + rng.normal(size=1500)})
        model = PrivateLinearRegression(
            epsilon=3.0, delta=1e-5, bounds={"dose": (0, 10)}, y_bounds=(-5, 6), method="refinement", random_state=seed
        )
        found = model.fit(frame, formula=f"y ~ {formula}").profile("dose")
        k = 0
        part = found.without_privacy[k]
        held += found.low[k] <= truth <= found.high[k]
        narrow += abs(truth - found.estimate[k]) <= part * (found.high[k] - found.estimate[k])
    assert 53 <= held <= 60
    assert narrow < held  # without the noise in it the band would hold fewer


@pytest.mark.parametrize("knots", ["[50, 70]", "[50, 65, 80]"])
@pytest.mark.parametrize("epsilon", [3.0, 10.0])
def test_where_nobody_is_at_the_lower_end_the_curve_is_there_all_the_same(knots: str, epsilon: float) -> None:
    """People of about 62 years and a range from 18 on: compared with its lower end, no point of this curve was determined."""
    rng = np.random.default_rng(0)
    age = rng.normal(62, 12, 5000).clip(18, 95)
    frame = pl.DataFrame({"age": age, "y": np.sin((age - 62) / 12) + rng.normal(size=age.size)})
    model = PrivateLinearRegression(
        epsilon=epsilon, delta=1e-5, bounds={"age": (18, 95)}, y_bounds=(-6, 6), method="refinement", random_state=0
    ).fit(frame, formula=f"y ~ ns(age, knots={knots})")
    found = model.profile("age")
    among = (found.at > 42) & (found.at < 82)
    assert found.reference == {"[50, 70]": 70.0, "[50, 65, 80]": 65.0}[knots]
    assert found.determined[among].all()
    truth = np.sin((found.at - 62) / 12) - np.sin((found.reference - 62) / 12)
    assert (abs(found.estimate - truth)[among] < 4 * found.std_error[among] + 0.2).all()
    assert model.profile("age", reference=62).determined[among].all()


# --- what is not determined ------------------------------------------------------------------------------------------------


def test_where_no_row_is_there_is_no_number_and_no_mark() -> None:
    """No row has more than 5: nothing determines the curve above, once its rise from there is a tenth of a contrast's squared length."""
    model = regression("bs(wide, knots=[5, 7], degree=1) + age")
    found = model.profile("wide", reference=0)
    sure = found.determined
    assert sure[found.at <= 5].all()
    assert not sure[found.at >= 5.8].any()
    for numbers in (found.estimate, found.std_error, found.privacy, found.low, found.high):
        assert np.isnan(numbers[~sure]).all()
        assert np.isfinite(numbers[sure]).all()
    assert f"{(~sure).sum()} of 101 points are not determined" in str(found)
    assert "\n6 " not in str(found)
    assert all("nan" not in text for text in (str(found), found._repr_html_().partition("<img")[0]))
    data = found.to_dict()
    assert data["estimate"][60] is None
    assert data["low"][60] is None
    json.dumps(data, allow_nan=False)
    (line, *_) = found.figure().axes[0].lines
    assert np.isnan(line.get_ydata()[~sure]).all()
    band = found.figure().axes[0].collections[0].get_paths()
    assert max(path.vertices[:, 0].max() for path in band) < 5.8
    drawn = figures.panel(found.panel)
    assert "gaps where the release determines nothing" in drawn.wide
    assert "nan" not in drawn.wide.partition("<defs>")[2]


def test_a_curve_of_which_nothing_is_determined_has_no_point_and_no_panel() -> None:
    model = regression(SPLINE)
    tables = model._tables()
    hidden = msgspec.structs.replace(
        tables.estimates, unknown=tuple(np.ravel(tables.estimates.square(tables.estimates.lift)).tolist())
    )
    without = replace(tables, estimates=hidden)
    lost = profile(without, "dose")
    assert not lost.determined.any()
    assert "101 of 101" in str(lost)
    assert "nothing of it is determined" in figures.panel(lost.panel).wide
    assert list(panels(tables, 0.95))
    assert list(panels(without, 0.95)) == []


def test_what_hides_in_a_point_is_small_against_its_error_or_it_has_no_number() -> None:
    """The rule of the tables lets pass a tenth of a squared length: along a spline that noise half hides, intervals of such points are false."""
    model = regression(f"{SPLINE} + age + ward", 6.0)
    tables, found = model._tables(), model.profile("dose")
    weights = np.zeros((POINTS, len(tables.coded.names)))
    rows = basis(SPLINE, dose=found.at)
    weights[:, [tables.coded.names.index(name) for name in NAMES]] = rows - rows[60]
    passed = tables.estimates.determined(weights)
    former = msgspec.structs.replace(tables.estimates, slopes=())  # which says nothing of what hides
    assert passed.any()
    small = tables.estimates.hidden(weights) <= 0.5
    others = np.arange(POINTS) != 60
    assert (found.determined[others] == (former.determined(weights) & small)[others]).all()


def test_what_hides_is_a_length_along_hidden_directions_times_that_of_the_slopes() -> None:
    eye, none = np.eye(3), np.zeros((3, 0))
    hidden = np.array([[0.0], [1.0], [0.0]])
    estimates = Estimates.of(
        ("a", "b", "1"), np.array([6.0, 0.0, 50.0]), 4 * eye, eye, 2 * eye, hidden, none, (True, True, False)
    )
    weights = np.array([[1.0, 0.0, 0.0], [1.0, 0.1, 0.0], [0.0, 0.0, 1.0]])
    # The slopes are 3 long in the fit's coordinates, 0.1 of b is 0.2 there, and errors are 2 and a little more.
    assert estimates.hidden(weights) == pytest.approx([0.0, 0.3 / math.sqrt(1.01), 0.0])
    former = msgspec.structs.replace(estimates, lift=(), unknown=(), identified=(True, True, True))
    assert not former.hidden(weights).any()


# --- refusals --------------------------------------------------------------------------------------------------------------


def test_what_has_no_curve_of_its_own_is_refused() -> None:
    cases = [
        (f"{SPLINE}:ward + {SPLINE}", "dose", "depends on ward, with which the formula multiplies it"),
        ("dose * age", "age", "depends on dose"),
        ("dose * age * ward", "dose", "depends on (age|ward|age and ward), with"),
        ("C(grade, levels=[1, 2, 3]) + age", "grade", "has levels"),
        (SPLINE, "age", "is of a number that the formula names, one of dose"),
        ("ward", "dose", "of which this one has none"),
        (f"{SPLINE} + ward", "ward", "one of dose"),
    ]
    for formula, variable, words in cases:
        with pytest.raises(UsageError, match=words):
            regression(formula).profile(variable)
    with pytest.raises(UsageError, match="has no formula"):
        PrivateLinearRegression(epsilon=math.inf, bounds=(-8, 8), y_bounds=(-8, 8)).fit(DOSE[:, None] / 2, ETA).profile("x0")
    model = regression(SPLINE)
    with pytest.raises(UsageError, match="one linear predictor"):
        model.profile("dose", label="q")
    with pytest.raises(UsageError, match="confidence must be"):
        model.profile("dose", confidence=1.0)
    for wrong in (11, -0.1, "five", True, math.nan):
        with pytest.raises(UsageError, match="the value of 'dose' that the curve is compared with, a number from 0 to 10"):
            model.profile("dose", reference=wrong)
    offset = PrivateGLM("poisson", epsilon=math.inf, bounds=BOUNDS, y_bounds=(0, 20), random_state=0)
    counts = FRAME.with_columns(n=np.minimum(np.random.default_rng(0).poisson(1 + DOSE / 5), 20))
    offset.fit(counts, formula="n ~ dose + offset(log(dose + 1))")
    with pytest.raises(UsageError, match="in the offset, too"):
        offset.profile("dose")
    assert curved(offset._tables()) == ()
    alone = offset.fit(counts, formula="n ~ age + offset(log(dose + 1))")
    with pytest.raises(UsageError, match="no coefficient"):
        alone.profile("dose")


# --- figures and tables ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_reports_have_a_panel_of_each_curve(noisy: PrivateLinearRegression) -> None:
    result = noisy_result(noisy)
    first, panel = BAYES.reading.panels(noisy.plan_, result)
    assert first.title.startswith("estimates")
    assert panel.title == "curve of dose, 95% pointwise band"
    assert panel.ordered
    assert panel.values == pytest.approx(noisy.profile("dose").estimate)
    drawn = figures.panel(panel)
    for text in (drawn.wide, drawn.narrow):
        assert text.startswith("<svg")
        assert "The darker part of the band" in text
        assert "less its value at dose = 6" in text
        assert "a curve over dose from 0 to 10" in text
    model = glm("ns(dose, knots=[5]) + age", 30.0)
    _, curve = GLM.reading.panels(model.plan_, model._result)
    assert "log odds" in figures.panel(curve).wide


def noisy_result(model: PrivateLinearRegression) -> Any:
    return BayesResult((), 0.0, 0.95, ("a",), (), model.moments_.stored(), model.method_)


def test_figures_and_tables_hold_names_as_text() -> None:
    odd = "<b>$do_se$</b>"
    frame = pl.DataFrame({odd: DOSE, "y": FRAME["y"]})
    model = PrivateLinearRegression(epsilon=8.0, delta=1e-5, bounds={odd: (0, 10)}, y_bounds=(-8, 8), random_state=0)
    found = model.fit(frame, formula=f"y ~ ns(`{odd}`, knots=[5])").profile(odd)
    assert isinstance(found, Profile)
    figure = found.figure()
    figure.canvas.draw()
    assert len(figure.axes[0].collections) == 2  # the band, and what of it would be there without privacy
    assert len(regression(SPLINE).profile("dose").figure().axes[0].collections) == 1
    assert "<b>" not in figures.panel(found.panel).wide
    html = found._repr_html_()
    assert "&lt;b&gt;$do_se$&lt;/b&gt;" in html
    assert "<b>" not in html
    assert str(found).count("\n") == 13
    assert repr(found) == "Profile(11 lines)"
    assert "privacy guarantee" in str(found)


def test_every_table_has_a_form_for_notebooks() -> None:
    frame = FRAME.rename({"ward": "<i>ward"})
    bounds = {"<i>ward": BOUNDS["ward"], "dose": BOUNDS["dose"]}
    model = PrivateLinearRegression(epsilon=math.inf, bounds=bounds, y_bounds=(-8, 8)).fit(frame, "y")
    contrast = model.contrast("<i>ward: b - a, c - a")
    for table in (model.summary(), contrast, contrast.joint, model.anova(), model.anova(["dose"])):
        html = table._repr_html_()  # type: ignore[attr-defined]
        assert html.startswith("<table>")
        assert "<i>" not in html
    assert "&lt;i&gt;ward: b - a" in contrast._repr_html_()
