"""Diagnoses of released models: counts beside scikit-learn's measures, bands that hold, one row in one cell, and what is refused."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

import unpooled
from unpooled import Bounds, diagnose
from unpooled.errors import UsageError
from unpooled.models import load
from unpooled.models.diagnose import fit
from unpooled.models.diagnose.fit import Cells
from unpooled.privacy.bounds import Column
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.privacy.plan import Card, Household, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Unit
from unpooled.protocol.messages import Array
from unpooled.report import figures

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (16_000, 3))
SICK = 2 * X[:, 0] - X[:, 2] + 0.6 * RNG.logistic(size=16_000) > 0.4
DAYS = 3 * X[:, 0] + RNG.normal(size=16_000)
TRAIN, TEST = slice(0, 8000), slice(8000, None)


@pytest.fixture(scope="module")
def classifier() -> unpooled.PrivateGLM:
    model = unpooled.PrivateGLM(epsilon=5.0, delta=1e-5, bounds=(-1, 1), classes=(False, True), random_state=0)
    return model.fit(X[TRAIN], SICK[TRAIN])


@pytest.fixture(scope="module")
def regression() -> unpooled.PrivateBayesianRegression:
    model = unpooled.PrivateBayesianRegression(epsilon=5.0, bounds=(-1, 1), y_bounds=(-8, 8), random_state=0)
    return model.fit(X[TRAIN], DAYS[TRAIN])


def test_without_noise_it_is_what_scikit_learn_says(classifier: unpooled.PrivateGLM) -> None:
    found = diagnose(classifier, X[TEST], SICK[TEST], epsilon=math.inf, cells=60)
    wanted = roc_auc_score(SICK[TEST], classifier.decision_function(X[TEST]))
    assert found.auc.value == pytest.approx(wanted, abs=0.002)  # ties inside cells count half
    assert found.auc.low < wanted < found.auc.high
    probability = classifier.predict_proba(X[TEST])[:, 1]
    for cell in found.by_cell:
        inside = np.abs(probability - cell.predicted) < 1 / 120
        if inside.sum() > 100:
            assert cell.observed == pytest.approx(SICK[TEST][inside].mean(), abs=0.08)
    assert sum(cell.rows for cell in found.by_cell) == pytest.approx(8000, abs=20)
    assert not found.statement_.holds


@pytest.mark.long
@pytest.mark.slow
def test_noise_widens_bands_and_moves_little(classifier: unpooled.PrivateGLM) -> None:
    wanted = roc_auc_score(SICK[TEST], classifier.decision_function(X[TEST]))
    held, widths = 0, []
    for seed in range(40):
        found = diagnose(classifier, X[TEST], SICK[TEST], epsilon=1.0, delta=1e-5, random_state=seed)
        held += found.auc.low <= wanted <= found.auc.high
        widths.append(found.auc.high - found.auc.low)
        false, true = found.roc
        assert (np.diff(false) >= 0).all()
        assert (np.diff(true) >= 0).all()
    assert held >= 35
    exact = diagnose(classifier, X[TEST], SICK[TEST], epsilon=math.inf).auc
    assert np.median(widths) > exact.high - exact.low


def test_a_calibrated_model_passes_and_another_one_does_not() -> None:
    """Rows of probabilities that a given model has, and of others: by the released counts alone."""
    rng, p_values = np.random.default_rng(0), {1.0: [], 2.5: []}
    for slope, values in p_values.items():
        for _ in range(30):
            u = rng.normal(size=20_000)
            y = rng.random(u.size) < 1 / (1 + np.exp(-slope * u))
            cuts = np.linspace(-2.5, 2.5, 51)
            cells = np.searchsorted(cuts, u, side="right") * 2 + y
            counts = np.bincount(cells, minlength=104).reshape(52, 2) + 5 * rng.normal(size=(52, 2))
            found = Cells(Array.of(counts), 5.0, "logistic", tuple(cuts.tolist()), (), ("a",))
            values.append(fit.calibration_test(found).p_value)
    assert np.mean(np.array(p_values[1.0]) < 0.05) <= 0.25
    assert max(p_values[2.5]) < 1e-6


@pytest.mark.parametrize("residual_cuts", [(), (-1.0, 0.0, 1.0)])
def test_bands_of_cells_hold_the_noise(residual_cuts: tuple[float, ...]) -> None:
    """Counts drawn again and again about the same rows: the observed number is inside its band about as often as it should be."""
    rng, link = np.random.default_rng(0), "identity" if residual_cuts else "logistic"
    width = len(residual_cuts) + 1 if residual_cuts else 2
    exact = np.full((3, width), 300.0) * np.arange(1, width + 1)
    cuts, s = (-1.0, 1.0), 30.0
    wanted = [c.observed for c in fit.by_cell(Cells(Array.of(exact), 0.0, link, cuts, residual_cuts, ("a",)))]
    held = []
    for _ in range(300):
        noisy = Cells(Array.of(exact + s * rng.normal(size=exact.shape)), s, link, cuts, residual_cuts, ("a",))
        sampling = Cells(Array.of(exact * 1e9), 0.0, link, cuts, residual_cuts, ("a",))
        for cell, value, free in zip(fit.by_cell(noisy), wanted, fit.by_cell(sampling), strict=True):
            assert cell.high - cell.low > free.high - free.low
            # Of the band, the part that the noise alone makes: without it the sampling part would hold fewer.
            held.append(abs(cell.observed - value) <= (cell.high - cell.low) / 2)
    assert np.mean(held) > 0.95
    bare = [
        abs(cell.observed - value) <= 1.96 * math.sqrt(max(value * (1 - value), 0) / cell.rows)
        for _ in range(100)
        for cell, value in zip(
            fit.by_cell(Cells(Array.of(exact + s * rng.normal(size=exact.shape)), s, link, cuts, residual_cuts, ("a",))),
            wanted,
            strict=True,
        )
    ]
    assert residual_cuts or np.mean(bare) < 0.9


def test_residuals_of_a_regression(regression: unpooled.PrivateBayesianRegression) -> None:
    found = diagnose(regression, X[TEST], DAYS[TEST], epsilon=2.0, delta=1e-5, random_state=0)
    assert all(cell.low - 0.3 < 0 < cell.high + 0.3 for cell in found.by_cell)
    bent = DAYS[TEST] + 2 * (X[TEST][:, 0] > 0.5)
    assert max(cell.observed for cell in diagnose(regression, X[TEST], bent, epsilon=2.0, delta=1e-5).by_cell) > 1
    with pytest.raises(UsageError, match="predicts a number"):
        found.auc  # noqa: B018 - asking is enough
    assert len(found.figure().axes) == 1
    assert "mean residual" in str(found)


@pytest.mark.slow
def test_figures_files_and_notebooks(classifier: unpooled.PrivateGLM, tmp_path: Path) -> None:
    found = diagnose(classifier, X[TEST], SICK[TEST], sites=np.arange(8000) % 3, epsilon=1.0)
    assert len(found.figure().axes) == 2
    assert "AUC" in str(found)
    assert "cells seen" in repr(found)
    assert "<table" in found._repr_html_()
    found.save(tmp_path / "d.unpooled")
    assert unpooled.load(tmp_path / "d.unpooled").auc == found.auc
    assert {entry.state for entry in found.ledger_} == {"committed"}


@pytest.mark.filterwarnings("ignore::unpooled.PrivacyLeakWarning")
def test_what_the_model_s_ranges_cost_belongs_to_its_diagnosis() -> None:
    paid = unpooled.describe(X, bounds=True, epsilon=0.5, delta=1e-5).bounds_
    model = unpooled.PrivateBayesianRegression(epsilon=2.0, delta=1e-5, bounds=paid, y_bounds=(-8, 8)).fit(X, DAYS)
    found = diagnose(model, X, DAYS, epsilon=1.0, delta=1e-5).statement_
    assert found.holds
    assert found.epsilon_per_unit["record"] > 1.05
    read = unpooled.PrivateBayesianRegression(epsilon=2.0, y_bounds=(-8, 8)).fit(X, DAYS)
    assert not diagnose(read, X, DAYS).statement_.holds


@pytest.mark.guarantee
def test_counts_of_a_log_link() -> None:
    y = np.minimum(np.random.default_rng(0).poisson(np.exp(0.5 + X[:, 0])), 15)
    model = unpooled.PrivateGLM(epsilon=5.0, delta=1e-5, family="poisson", bounds=(-1, 1), y_bounds=(0, 15), random_state=0)
    found = diagnose(model.fit(X[TRAIN], y[TRAIN]), X[TEST], y[TEST], epsilon=3.0, delta=1e-5)
    assert found.cells_.link == "log"
    assert all(abs(cell.observed) < 0.6 for cell in found.by_cell if cell.rows > 300)


# --- the band of the ROC curve ---------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.slow
def test_the_roc_band_holds_the_exact_curve_and_is_about_the_released_one(classifier: unpooled.PrivateGLM) -> None:
    exact = diagnose(classifier, X[TEST], SICK[TEST], epsilon=math.inf, cells=20)
    at = np.linspace(0.05, 0.95, 19)
    wanted = np.interp(at, *exact.roc)
    held, widths, inner = [], [], []
    for seed in range(40):
        found = diagnose(classifier, X[TEST], SICK[TEST], epsilon=0.5, delta=1e-5, cells=20, random_state=seed)
        band = found.roc_band
        assert ((band.low <= band.true) & (band.true <= band.high)).all()
        assert ((band.low >= 0) & (band.high <= 1)).all()
        assert (np.diff(band.false) > 0).all()
        assert (np.diff(band.true) >= 0).all()
        assert band.true == pytest.approx(np.interp(band.false, *found.roc))
        assert ((band.without_privacy >= 0) & (band.without_privacy <= 1)).all()
        low, high = (np.interp(at, band.false, end) for end in (band.low, band.high))
        held.append((low <= wanted) & (wanted <= high))
        widths.append(float(np.mean(high - low)))
        inner.append(float(np.mean(np.interp(at, band.false, band.without_privacy))))
    assert np.mean(held) > 0.9
    assert np.mean(held, axis=0).min() > 0.75
    free = exact.roc_band
    assert (free.without_privacy == 1).all()
    width = float(np.mean([np.interp(at, free.false, free.high) - np.interp(at, free.false, free.low)]))
    assert 0 < width < np.median(widths)
    assert 0.05 < np.median(inner) < 0.95


@pytest.mark.long
@pytest.mark.slow
def test_the_roc_band_holds_the_curve_of_the_population() -> None:
    """Rows and noise are drawn again and again from shares of cells that are known: the band holds their own curve."""
    rng = np.random.default_rng(0)
    low, high = np.exp(-np.linspace(0, 3, 12)), np.exp(np.linspace(-3, 0, 12))
    shares = np.column_stack([low / low.sum(), high / high.sum()])
    at = np.linspace(0.1, 0.9, 9)
    wanted, held = np.interp(at, *fit.roc(shares)), []
    for _ in range(80):
        counts = np.column_stack([rng.multinomial(300, own) for own in shares.T]) + 4 * rng.normal(size=shares.shape)
        band = fit.roc_band(counts, 4.0)
        held.append((np.interp(at, band.false, band.low) <= wanted) & (wanted <= np.interp(at, band.false, band.high)))
    assert 0.93 < np.mean(held) <= 0.995


def test_nothing_but_noise_has_a_band_too() -> None:
    counts = np.random.default_rng(0).normal(size=(5, 2)) * 40
    for own in (counts, np.zeros((5, 2)), -np.abs(counts)):
        band = fit.roc_band(own, 40.0)
        assert np.isfinite([band.low, band.high, band.true]).all()
        assert ((band.low <= band.true) & (band.true <= band.high)).all()
        assert np.mean(band.high - band.low) > 0.5


@pytest.mark.slow
def test_the_roc_band_is_in_figures_and_reports(
    classifier: unpooled.PrivateGLM, regression: unpooled.PrivateBayesianRegression
) -> None:
    found = diagnose(classifier, X[TEST], SICK[TEST], epsilon=1.0, delta=1e-5, random_state=0)
    left, right = found.figure().axes
    assert len(left.collections) == 2  # the band, and what of it would be there without privacy
    assert len(right.collections) == 1
    calibration, roc = load("diagnose").reading.panels(found.plan_, found.cells_)
    assert calibration.places == tuple(cell.predicted for cell in found.by_cell)
    assert roc.places == tuple(found.roc_band.false.tolist())
    assert (roc.low, roc.high) == (tuple(found.roc_band.low.tolist()), tuple(found.roc_band.high.tolist()))
    assert roc.diagonal
    for drawn in map(figures.panel, (calibration, roc)):
        for text in (drawn.wide, drawn.narrow):
            assert text.startswith("<svg")
    assert "ROC: true positives by false positives" in figures.panel(roc).wide
    assert "a curve over false positives from 0 to 1" in figures.panel(roc).wide
    residuals = diagnose(regression, X[TEST], DAYS[TEST], epsilon=2.0, delta=1e-5, random_state=0)
    (panel,) = load("diagnose").reading.panels(residuals.plan_, residuals.cells_)
    assert not panel.diagonal
    assert "mean residual" in figures.panel(panel).wide
    with pytest.raises(UsageError, match="predicts a number"):
        residuals.roc_band  # noqa: B018 - asking is enough


# --- privacy ---------------------------------------------------------------------------------------------------------------

COLUMNS = (Column("a", -1.0, 1.0), Column("b", 0.0, 1.0, missing="absent"), Column("y", -2.0, 2.0))


def study(unit: str = "record", adjacency: str = "replace") -> Study:
    parameters = {"response": "y", "coefficients": {"a": 1.0, "b": -1.0}, "cuts": [-0.5, 0.5], "residual_cuts": [-1.0, 1.0]}
    together = Household("person", 20, 2) if unit == "household" else None
    card = Card("one", 40, COLUMNS, household=together)
    return Study("diagnose", (card,), 1.0, 1e-5, unit=unit, adjacency=adjacency, parameters=parameters, derived=())


def test_one_row_is_in_one_cell_and_no_change_moves_more_than_is_priced() -> None:
    """Theorem H.1."""
    plan = load("diagnose").compile(study())
    ends = list(itertools.product((-1.0, 0.2, 1.0), (0.0, 1.0, np.nan), (-2.0, 0.0, 2.0)))
    counts = np.array([plan.design.statistic(Table({"a": [a, 0.0], "b": [b, 0.5], "y": [y, 0.0]})) for a, b, y in ends])
    assert (counts.sum(axis=1) == 2).all()
    moved = max(float(np.linalg.norm(one - other)) for one, other in itertools.combinations(counts, 2))
    values = max(
        float(np.linalg.norm(counts[i] - counts[j]))
        for i, j in itertools.combinations(range(len(ends)), 2)
        if sum(not (p == q or (p != p and q != q)) for p, q in zip(ends[i], ends[j], strict=True)) == 1  # noqa: PLR0124
    )
    for unit, adjacency, found in (
        ("record", "replace", moved),
        ("attribute", "replace", values),
        ("attribute", "zero-out", values),
        ("record", "zero-out", 1.0),
        ("household", "replace", 2 * moved),
    ):
        release = load("diagnose").compile(study(unit, adjacency)).releases[0].mechanism
        assert isinstance(release, GaussianRelease)
        assert release.sensitivity(Unit(unit)) == pytest.approx(found)


def test_a_cell_does_not_depend_on_where_a_row_stands() -> None:
    plan = load("diagnose").compile(study())
    rng = np.random.default_rng(0)
    values = {"a": rng.uniform(-1, 1, 999), "b": rng.uniform(0, 1, 999), "y": rng.uniform(-2, 2, 999)}
    alone = sum(plan.design.statistic(Table({n: v[[k, k]] for n, v in values.items()})) for k in range(999)) // 2
    assert plan.design.statistic(Table(values)).tolist() == np.asarray(alone).tolist()


@pytest.mark.guarantee
def test_a_row_of_either_class_is_in_one_cell_of_its_class() -> None:
    columns = (COLUMNS[0], Column("ill", categories=("no", "yes")))
    parameters = {"response": "ill", "link": "logistic", "coefficients": {"a": 1.0}, "cuts": [-0.5, 0.5]}
    card = Card("one", 40, columns)
    asked = Study("diagnose", (card,), 1.0, 1e-5, parameters=parameters, derived=())
    statistic = load("diagnose").compile(asked).design.statistic
    cells = {
        (a, ill): int(statistic(Table({"a": [a, a], "ill": np.array([ill, ill], dtype=object)})).argmax())
        for a, ill in itertools.product((-1.0, 0.0, 1.0), ("no", "yes"))
    }
    assert sorted(cells.values()) == list(range(6))


# --- refusals --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["ill ~ I(age - 50)", "ill ~ age * ward + I(age**2)", "ill ~ 0 + C(ward, ref='b') + log(age)"]
)
def test_a_model_with_a_formula_is_diagnosed_by_its_own_predictions(text: str) -> None:
    """Its coefficients are of the columns that the formula makes, not of the declared ones."""
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"ward": rng.choice(["a", "b"], 3000), "age": rng.uniform(20, 90, 3000)})
    ill = (rng.random(3000) < 1 / (1 + np.exp(2 - 0.03 * frame["age"].to_numpy()))).astype(float)
    bounds = {"age": (10, 100), "ward": ["a", "b"]}
    model = unpooled.PrivateGLM("logistic", epsilon=np.inf, bounds=bounds, classes=(0, 1))
    model.fit(frame.with_columns(ill=pl.Series(ill)), formula=text)
    found = unpooled.diagnose(model, frame, ill, epsilon=np.inf)
    p = model.predict_proba(frame)[:, 1]
    for cell in found.by_cell:
        inside = np.floor(20 * p) == np.floor(20 * cell.predicted)  # cells are twentieths
        assert cell.rows == pytest.approx(inside.sum(), abs=3)
        assert cell.observed == pytest.approx(ill[inside].mean(), abs=0.02)
    with pytest.raises(UsageError, match="several columns of a formula"):
        unpooled.diagnose(model, frame, ill, unit="attribute")
    model.fit(frame.with_columns(ill=pl.Series(ill)), formula="ill ~ age + offset(age)")
    with pytest.raises(UsageError, match="without offset"):
        unpooled.diagnose(model, frame, ill)


def test_models_whose_coefficients_stay_at_the_parties_are_refused() -> None:
    pride = unpooled.PrideRegressor(2, bounds=(-1, 1), random_state=0, epsilon=5.0).fit(X[:300], DAYS[:300])
    with pytest.raises(UsageError, match="stay at the parties"):
        diagnose(pride, X[:300], DAYS[:300])
    stack = unpooled.PrivateStackingClassifier(2, bounds=(-1, 1), classes=(False, True), random_state=0).fit(
        X[:300], SICK[:300]
    )
    with pytest.raises(UsageError, match="linear in their columns"):
        diagnose(stack, X[:300], SICK[:300])
    several = unpooled.PrivatePLSRegression(1, basis="none", epsilon=math.inf, bounds=Bounds(norm=2.0), y_bounds=(-8, 8))
    with pytest.raises(UsageError, match="one response"):
        diagnose(several.fit(X[:300], np.column_stack([DAYS, DAYS])[:300]), X[:300], DAYS[:300])


def test_what_makes_no_sense_is_refused(
    classifier: unpooled.PrivateGLM, regression: unpooled.PrivateBayesianRegression
) -> None:
    with pytest.raises(UsageError, match="neither of the model's classes"):
        diagnose(classifier, X[:50], ["maybe"] * 50)
    with pytest.raises(UsageError, match="between 2 and 200"):
        diagnose(classifier, X[:50], SICK[:50], cells=1)
    with pytest.raises(UsageError, match="cells"):
        diagnose(classifier, X[:50], SICK[:50], cells=2.5)
    with pytest.raises(Exception, match="not fitted"):
        diagnose(unpooled.PrivateGLM(), X[:50], SICK[:50])
    alone = unpooled.PrivateBayesianRegression.from_moments(regression.moments_)
    with pytest.raises(UsageError, match="range of the response"):
        diagnose(alone, X[:50], DAYS[:50])
    assert diagnose(alone, X[TEST], DAYS[TEST], y_bounds=(-8, 8)).by_cell


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"cuts": []}, "cuts are between"),
        ({"cuts": [1.0, 1.0]}, "rising"),
        ({"residual_cuts": []}, "residual_cuts are between"),
        ({"coefficients": {"a": 1.0}}, "one number for each of a, b"),
        ({"coefficients": {"a": math.inf, "b": 0.0}}, "finite"),
        ({"link": "logistic"}, "link is"),
        ({"link": "probit"}, "link is"),
        ({"response": "b"}, "must not be missing"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(changed: dict[str, object], words: str) -> None:
    asked = study()
    with pytest.raises(UsageError, match=words):
        load("diagnose").compile(msgspec.structs.replace(asked, parameters=asked.parameters | changed))


def test_classes_and_parties_are_checked() -> None:
    asked = study()
    three = (*COLUMNS[:2], Column("y", categories=("a", "b", "c")))
    logistic = {k: v for k, v in asked.parameters.items() if k != "residual_cuts"} | {"link": "logistic"}
    for columns, words in ((three, "two of them"), ((*COLUMNS[:2], Column("y", categories=("a", "b"))), "two of them")):
        card = Card("one", 40, columns)
        parameters = logistic if len(columns[2].categories or ()) == 3 else logistic | {"residual_cuts": [0.0]}
        with pytest.raises(UsageError, match=words):
            load("diagnose").compile(msgspec.structs.replace(asked, parties=(card,), parameters=parameters))
    other = Card("two", 40, (Column("a", -2.0, 1.0), *COLUMNS[1:]))
    with pytest.raises(UsageError, match="declare different columns"):
        load("diagnose").compile(msgspec.structs.replace(asked, parties=(*asked.parties, other)))
    with pytest.raises(UsageError, match="needs no trust"):
        load("diagnose").compile(msgspec.structs.replace(asked, trust={"aggregation": "trusted"}))
