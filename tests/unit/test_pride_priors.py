"""PRIDE with earlier models: what a party's share and its prediction at home are, what they cost, and what is refused."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression

import unpooled
from unpooled import PrideClassifier, PrideGLM, PrideRegressor, PrivateLinearRegression
from unpooled.errors import StudyError, UsageError
from unpooled.families.logistic import Logistic
from unpooled.families.poisson import Poisson
from unpooled.kernels.newton import NewtonPath, OffsetLoss
from unpooled.models import load
from unpooled.models.pride.gram import GramPath, Heard
from unpooled.models.pride.local import (
    FACTORS,
    OFF,
    Centre,
    DesignProblem,
    GramProblem,
    centres,
    drawn,
    home_members,
    kernels,
    loosenings,
    nearest_at_home,
    nearest_share,
    points,
    share_members,
    weights,
)
from unpooled.models.pride.plan import Received
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import Array, Disclosed, Released
from unpooled.protocol.transcript import Transcript
from unpooled.study.earlier import with_cited
from unpooled.study.record import write_record
from unpooled.testing.cases import Case
from unpooled.testing.cases import parties as people_of

KINDS = ("good", "useless", "misleading")
ASKED: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "bounds": (-4, 4)}


def rows(count: int, width: int, seed: int, correlation: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns with one common factor, a response half of which they explain, and their slopes."""
    rng = np.random.default_rng(seed)
    X = math.sqrt(correlation) * rng.normal(size=(count, 1)) + math.sqrt(1 - correlation) * rng.normal(size=(count, width))
    slopes = rng.normal(size=width)
    slopes /= math.sqrt((1 - correlation) * np.square(slopes).sum() + correlation * slopes.sum() ** 2)
    return X, X @ slopes + rng.normal(size=count), slopes


def earlier(kind: str, slopes: np.ndarray) -> dict[str, float]:
    """A model whose slopes are nearly right, of another direction, or half of them of the wrong sign."""
    rng = np.random.default_rng(7)
    other = rng.normal(size=slopes.size)
    other -= slopes * (other @ slopes) / (slopes @ slopes)
    other *= np.linalg.norm(slopes) / np.linalg.norm(other)
    signs = np.where(np.arange(slopes.size) % 2, 1.0, -1.0)
    made = {"good": slopes + 0.15 * other, "useless": other, "misleading": slopes * signs}[kind]
    return {f"x{j}": float(b) for j, b in enumerate(made)}


def alone(own: np.ndarray, columns: int) -> GramProblem:
    """A party that received nothing from others with this number of columns."""
    none, empty = np.empty(0), np.empty((own.shape[0], 0))
    return GramProblem(own, Heard(columns, empty, none, empty, none.astype(np.bool_)))


def centre_of(own: np.ndarray, others: float, weight: float = 1.0) -> Centre:
    """An earlier model of which a party sees these coefficients."""
    return Centre(np.array([weight]), own, np.empty(0), float(np.square(own).mean()), others)


# --- the share, against the densities themselves ------------------------------------------------------------------------------


def test_a_share_about_an_earlier_model_is_the_posterior_mean_of_its_law() -> None:
    """Theorem P.14, step by step in n x n matrices."""
    X, y, _ = rows(60, 4, 0, 0.3)
    problem, b = alone(X, 6), np.array([0.4, -0.2, 0.1, 0.3])
    centre = centre_of(b, 0.09)
    members = [one for one in share_members(problem, y, [centre], fit_intercept=True) if one.centre is not None]
    kernel = kernels(problem, fit_intercept=True)[0][1]
    left = kernel.own.left()
    known = X - X.mean(axis=0)
    gram = (left * kernel.inside) @ left.T + kernel.outside * (np.eye(60) - 1 / 60 - left @ left.T)
    contrast = np.linalg.svd(np.eye(60) - 1 / 60)[0][:, :59]  # the mean is fitted, so it says nothing
    found = []
    for member, (scale, loose) in zip(members, loosenings(centre), strict=True):
        assert loose == pytest.approx(1 + 0.09 / scale)
        noise = member.alpha * scale
        covariance = scale * known @ known.T + scale * loose * gram + noise * np.eye(60)
        target = (y - y.mean()) - known @ b
        expected = b + scale * known.T @ np.linalg.solve(covariance, target)
        assert member.solution == pytest.approx(expected, abs=1e-8)
        law = multivariate_normal(np.zeros(59), contrast.T @ covariance @ contrast)
        found.append(law.logpdf(contrast.T @ target) - member.log_weight)
        rest = contrast.T @ (covariance - noise * np.eye(60)) @ contrast
        each = [
            multivariate_normal(np.zeros(59), rest + other * np.eye(59)).logpdf(contrast.T @ target)
            for other in np.geomspace(1e-6, 5.0, 100)
        ]
        assert law.logpdf(contrast.T @ target) > max(each) - 1e-3  # the noise is the likeliest
    assert found == pytest.approx([found[0]] * len(OFF))


def test_the_evidence_at_a_variance_is_the_profile_at_its_best() -> None:
    X, y, _ = rows(80, 5, 1)
    path = GramPath.of(kernels(alone(X, 5), fit_intercept=True)[0][1], y)
    scales = np.geomspace(1e-4, 10, 400)
    assert min(path.evidence(7.0, scale) for scale in scales) == pytest.approx(path.evidence(7.0), abs=1e-2)
    assert all(path.evidence(7.0, scale) >= path.evidence(7.0) for scale in scales)


def test_what_an_earlier_model_says_of_unseen_columns_has_the_covariance_of_the_theorem() -> None:
    """Theorem P.14: over all rotations of the others' columns, their part of the model varies as their Gram matrix."""
    rng = np.random.default_rng(2)
    others, b = rng.normal(size=(5, 3)), np.array([2.0, -1.0, 0.5])
    turned = rng.normal(size=(200_000, 3))
    turned *= np.linalg.norm(b) / np.linalg.norm(turned, axis=1)[:, None]  # R b of a rotation R that is any
    parts = turned @ others.T
    assert parts.mean(axis=0) == pytest.approx(np.zeros(5), abs=0.02)
    assert np.cov(parts.T) == pytest.approx((b @ b) / 3 * others @ others.T, abs=0.05)


def test_copies_of_a_good_model_are_not_counted_twice() -> None:
    """Two parties hold one column; a model gives each half of its slope. Without the looser kernel both would add a half of the other's."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 1))
    y = x[:, 0] + 0.1 * rng.normal(size=400)
    problem, centre = alone(x, 1), centre_of(np.array([0.5]), 0.25)
    members = [one for one in share_members(problem, y, [centre], fit_intercept=True) if one.centre is not None]
    nearest = members[0].solution[0]
    assert 0.49 < nearest < 0.53
    plain = GramPath.of(kernels(problem, fit_intercept=True)[0][1], y - x[:, 0] / 2)
    assert 0.5 + plain.solve(1e-3).own[0] > 0.6


def test_without_earlier_models_members_are_what_they_were() -> None:
    X, y, _ = rows(80, 5, 3)
    problem = alone(X, 5)
    about = share_members(problem, y, [centre_of(np.ones(5), 1.0)], fit_intercept=True)
    plain = share_members(problem, y, fit_intercept=True)
    assert len(plain) == len(FACTORS)
    for one, other in zip(plain, about, strict=False):
        assert other.log_weight == pytest.approx(one.log_weight + math.log(0.8))
        assert (other.solution == one.solution).all()
    assert drawn(plain).shape == (0, 2)
    home = home_members(problem, y, fit_intercept=True)
    assert [one.alpha for one in home] == [
        one.alpha for one in home_members(problem, y, [centre_of(np.ones(5), 1.0)], fit_intercept=True)
    ][: len(home)]


def test_members_at_home_are_ridges_of_what_earlier_models_leave() -> None:
    X, y, _ = rows(50, 3, 4)
    b = np.array([0.5, -0.5, 1.0])
    found = [one for one in home_members(alone(X, 3), y, [centre_of(b, 0.0)], fit_intercept=True) if one.centre is not None]
    member, known = found[len(FACTORS) // 2], X - X.mean(axis=0)
    left = y - y.mean() - known @ b
    slopes = b + np.linalg.solve(known.T @ known + member.alpha * np.eye(3), known.T @ left)
    assert member.solution == pytest.approx([*slopes, y.mean() - X.mean(axis=0) @ slopes])
    assert found[len(FACTORS)].solution[:3] == pytest.approx(
        LinearRegression().fit(X, y).coef_
    )  # least squares stay what they are


# --- weights ---------------------------------------------------------------------------------------------------------------------


def test_weights_that_are_tried_and_their_share_before_data() -> None:
    assert [one.tolist() for one in points(1)] == [[0.5], [1.0]]
    assert [one.tolist() for one in points(2)] == [[0.5, 0], [0, 0.5], [1, 0], [0, 1], [0.5, 0.5]]


def test_opposite_models_have_no_mean() -> None:
    told = [{"name": name, "coefficients": {"age": sign}} for name, sign in (("one", 1.0), ("other", -1.0))]
    design = load("pride").compile(study(told)).design
    assert [one.weights.tolist() for one in centres(design, design.parts[0], [])] == [[0.5, 0], [0, 0.5], [1, 0], [0, 1]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_a_good_model_is_found_and_another_costs_next_to_nothing(kind: str, correlation: float) -> None:
    errors: dict[str, list[float]] = {"with": [], "without": [], "with at home": [], "without at home": []}
    found = []
    for seed in range(4):
        X, y, slopes = rows(1300, 40, seed, correlation)
        fit, new, scale = slice(300), slice(300, None), float(y[300:].var())
        for name, prior in (("with", earlier(kind, slopes)), ("without", None)):
            model = PrideRegressor(prior=prior, random_state=seed, **ASKED).fit(X[fit], y[fit])
            errors[name].append(float(np.mean((y[new] - model.predict(X[new])) ** 2)) / scale)
            errors[f"{name} at home"].append(float(np.mean((y[new] - model.predict_at("party0", X[new])) ** 2)) / scale)
            assert hasattr(model, "drawn_") is (prior is not None)
            found += [one.weights[0].weight for one in model.drawn_.values()] if prior else []
    means = {name: float(np.mean(values)) for name, values in errors.items()}
    gain = 0.02 if kind == "good" else -0.01
    assert means["with"] < means["without"] - gain
    assert means["with at home"] < means["without at home"] + 0.005
    assert (np.mean(found) > 0.8) == (kind == "good")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["logistic", "poisson", "negative-binomial"])
def test_other_families_take_the_nearest_model(family: str) -> None:
    for kind in KINDS:
        X, _, slopes = rows(400, 16, 5)
        rng = np.random.default_rng(1)
        y = rng.poisson(np.exp(X @ slopes)).astype(float)
        more: dict[str, Any] = {}
        if family == "logistic":
            y, more = (rng.random(400) < 1 / (1 + np.exp(-2 * X @ slopes))).astype(int), {"classes": (0, 1)}
        prior = earlier(kind, 2 * slopes if family == "logistic" else slopes)
        model = PrideGLM(family, prior=prior, random_state=0, **ASKED, **more).fit(X, y)
        assert set(model.drawn_) == {"party0", "party1"}
        found = [one.weights[0].weight for one in model.drawn_.values()]
        assert min(found) > 0 if kind == "good" else min(found) == 0.0
        assert kind != "useless" or max(found) == 0.0
        assert np.isfinite(model.predict_at("party1", X[:50])).all()


def test_of_several_models_the_good_one_is_found() -> None:
    X, y, slopes = rows(400, 20, 6)
    prior = {kind: earlier(kind, slopes) for kind in KINDS}
    model = PrideRegressor(prior=prior, random_state=0, **ASKED).fit(X, y)
    for told in model.drawn_.values():
        found = {one.name: one.weight for one in told.weights}
        assert list(found) == list(KINDS)
        assert found["good"] > 0.7
        assert max(found["useless"], found["misleading"]) < 0.3


# --- losses with an offset --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [Logistic(), Poisson()])
def test_a_loss_with_an_offset_has_the_minimum_of_the_whole(family: Any) -> None:
    X, _, slopes = rows(90, 3, 7)
    rng = np.random.default_rng(3)
    y = np.sign(rng.normal(size=90)) if family.name == "logistic" else rng.poisson(np.exp(X @ slopes)).astype(float)
    offset = 0.5 * rng.normal(size=90)
    path = NewtonPath.of(X, y, OffsetLoss(family, offset))
    coefficients, constant = path.solve(2.0)

    def objective(at: np.ndarray) -> float:
        return float(family.value(X @ at[:3] + at[3] + offset, y).sum() + np.square(at[:3]).sum())

    assert [*coefficients, constant] == pytest.approx(minimize(objective, np.zeros(4), tol=1e-10).x, abs=1e-4)
    nothing = NewtonPath.of(X, y, OffsetLoss(family, np.zeros(90)))
    assert nothing.evidence(2.0) == pytest.approx(NewtonPath.of(X, y, family).evidence(2.0))
    assert nothing.evidence_alpha() == pytest.approx(NewtonPath.of(X, y, family).evidence_alpha())


def test_the_nearest_fit_is_about_the_model_in_decisions_and_constants() -> None:
    """As the earlier model has it where rows say nothing more: one that is right leaves nothing to fit."""
    X, _, slopes = rows(500, 4, 8)
    X = X + 1.0  # a constant that was moved wrongly would show
    y = np.where(np.random.default_rng(0).random(500) < 1 / (1 + np.exp(-3 * (X @ slopes))), 1.0, -1.0)
    centre = centre_of(3 * slopes, 0.0)
    _, share, weight = nearest_share(Logistic(), alone(X, 2), y, [centre])
    assert weight.tolist() == [[1.0, 0.0]]
    assert share.own == pytest.approx(3 * slopes, abs=0.5)
    assert share.intercept == pytest.approx(share.mean - X.mean(axis=0) @ share.own)
    _, home, weight = nearest_at_home(Logistic(), DesignProblem(X, np.empty((500, 0))), y, [centre])
    assert weight.tolist() == [[1.0, 0.0]]
    assert home.intercept == pytest.approx(0.0, abs=0.5)
    _, none, weight = nearest_at_home(Logistic(), DesignProblem(X, np.empty((500, 0))), y, [centre_of(-9 * slopes, 0.0)])
    assert weight.tolist() == [[0.0, 0.0]]
    path = NewtonPath.of(X, y, Logistic())
    assert none.own == pytest.approx(path.solve(path.evidence_alpha())[0])


# --- what a party makes of the study's numbers ------------------------------------------------------------------------------------


def study(prior: list[dict[str, Any]], **more: Any) -> Study:
    """Three parties: a column that two of them hold, a category, missing values, and a public column."""
    shared = Column("age", 20.0, 80.0)
    cards = (
        Card("clinic", 40, (shared, Column("ward", categories=("a", "b"))), ("y",)),
        Card("lab", 40, (Column("dose", 0.0, 10.0, missing="indicator"), shared), ("y",)),
        Card("registry", 40, (Column("region", 0.0, 4.0),)),
    )
    parameters = {"public": ["region"], "prior": prior, **more}
    return Study("pride", cards, 1.0, 1e-5, unit="attribute", parameters=parameters, derived=())


def test_coefficients_are_those_of_the_coded_columns_and_holders_share_a_column() -> None:
    coefficients = {"age": 0.1, "ward = b": 2.0, "dose": 0.3, "region": 5.0}
    design = load("pride").compile(study([{"name": "one", "coefficients": coefficients, "intercept": 7.0}])).design
    clinic, lab = design.parts[:2]
    told = Received("registry", (), (Disclosed(("region",), Array.of(np.zeros((40, 1)))),))
    sketched = Received("lab", (Released("sketch", 0, Array.of(np.zeros(1))),), ())
    half, whole = centres(design, clinic, [sketched, told])
    assert whole.own == pytest.approx([0.1 * 30 / 2, 0.0, 2.0])
    assert half.own == pytest.approx(whole.own / 2)
    # Of mixtures of columns the models say nothing; of public columns they do.
    assert lab.sketch is not None
    assert whole.received == pytest.approx([*np.zeros(lab.sketch.size), 5.0 * 2])
    every = np.array([1.5, 0.0, 2.0, 1.5, 0.0, 1.5, 10.0])
    every[3] = 0.3 * 5
    assert whole.size == pytest.approx(np.square(every).mean())
    assert whole.others == pytest.approx(np.square(every[3:]).mean())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"family": "huber"}, "prior goes with family = squared, logistic, poisson, negative-binomial, not with huber"),
        ({"family": "quantile"}, "not with quantile"),
        ({"family": "gamma"}, "not with gamma"),
        ({"family": "cox", "event": "z"}, "not with cox"),
        ({"family": "multinomial", "classes": ["a", "b", "c"]}, "not with multinomial"),
        ({"family": "ordinal", "classes": ["a", "b", "c"]}, "not with ordinal"),
        ({"alpha": 1.0}, "prior goes without alpha = 1.0: leave one of the two out"),
        ({"alpha": "local-cv"}, "prior goes without alpha = local-cv"),
        ({"noise_model": "calibrated"}, "without noise_model = calibrated"),
        ({"noise_model": "plain", "alpha": "local-cv"}, "alpha = local-cv, noise_model = plain"),
        ({"fit_intercept": False}, "without fit_intercept = false"),
        ({"fitted": "0" * 64, "sketch_dim": 2}, "new rows are predicted with what the parties keep"),
    ],
)
def test_forms_without_a_prior_refuse_it_by_name(more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load("pride").compile(study([{"name": "one", "coefficients": {"age": 1.0}}], **more))


def public_rows(folder: Path, response: Any) -> None:
    rng = np.random.default_rng(2)
    rows = {"age": rng.uniform(20, 80, 200), "ward": rng.choice(["a", "b"], 200), "dose": rng.uniform(0, 10, 200)}
    rows |= {"region": rng.uniform(0, 4, 200)}
    pl.DataFrame({**rows, "y": response(rows, rng)}).write_csv(folder / "public.csv")


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("response", "more"),
    [
        (lambda rows, rng: 40 + rows["age"] / 10, {}),
        (lambda rows, rng: rng.poisson(np.exp(rows["age"] / 30 - 1)), {"family": "poisson"}),
        (
            lambda rows, rng: np.where(rng.random(200) < 1 / (1 + np.exp(5 - rows["age"] / 10)), "ill", "well"),
            {"task": "classification", "classes": ["well", "ill"]},
        ),
    ],
    ids=["squared", "poisson", "logistic"],
)
def test_study_files_take_public_rows(tmp_path: Path, response: Any, more: dict[str, Any]) -> None:
    """The response is a label, so no card says more of it than its name; the rows have the columns of all parties."""
    public_rows(tmp_path, response)
    empty = study([], **more)
    cited = [
        "rows:public.csv",
        {"name": "one", "coefficients": {"age": 1.0}},
    ]
    asked = {**empty.parameters, "prior": cited}
    found, origins = with_cited("pride", asked, empty.parties, tmp_path)
    assert origins == ()
    rows, one = found["prior"]
    assert one == {"name": "one", "coefficients": {"age": 1.0}, "intercept": 0.0}
    assert set(rows["coefficients"]) <= {"age", "ward = a", "ward = b", "dose", "dose (missing)", "region"} | {
        name for name in rows["coefficients"] if name.startswith("dose")
    }
    assert rows["coefficients"]["age"] > 0.02
    plan = load("pride").compile(msgspec.structs.replace(empty, parameters=found))
    assert "The earlier models (public.csv, one) are public" in str(plan.statement)
    pl.read_csv(tmp_path / "public.csv").drop("dose").write_csv(tmp_path / "public.csv")
    with pytest.raises(StudyError, match="no column 'dose'"):
        with_cited("pride", asked, empty.parties, tmp_path)
    with pytest.raises(StudyError, match="name the response first"):
        with_cited("pride", {**asked, "response": "z"}, empty.parties, tmp_path)
    for classes in (3, ["ill"], ["a", "b", "c"]):
        with pytest.raises(StudyError, match="a list of two labels"):
            with_cited("pride", {**asked, "classes": classes}, empty.parties, tmp_path)
    with pytest.raises(StudyError, match="not with huber"):
        with_cited("pride", {**asked, "task": "regression", "family": "huber"}, empty.parties, tmp_path)


def test_study_files_take_runs_of_models_that_release_their_coefficients(tmp_path: Path) -> None:
    """PRIDE releases none, so it is drawn to a run of `bayes`, or of `glm` with its family; that run's price joins the statement."""
    rng = np.random.default_rng(4)
    columns = (Column("age", 20.0, 80.0), Column("dose", 0.0, 10.0, missing="indicator"), Column("y", 0.0, 9.0))
    table = Table({"age": rng.uniform(20, 80, 60), "dose": rng.uniform(0, 10, 60), "y": rng.poisson(2, 60).astype(float)})
    for model, own in (("bayes", {"method": "moments"}), ("glm", {"family": "poisson"})):
        parties = (Card("elsewhere", 60, columns),)
        run = Study(model, parties, 100.0, 1e-5, parameters={"response": "y", **own}, derived=())
        transcript, plan = Transcript(), load(model).compile(run)
        people = people_of(Case(model, run, {"elsewhere": table}))
        outcome = drive(load(model), plan, in_process(people), transcript)
        folder = tmp_path / model
        folder.mkdir()
        write_record(folder, plan, outcome, transcript.entries)
    numbers, counts = study([]), study([], family="poisson")
    for own, folder in ((numbers, "bayes"), (counts, "glm")):
        asked = {**own.parameters, "prior": f"run:{folder}"}
        found, origins = with_cited("pride", asked, own.parties, tmp_path)
        assert {"age", "dose"} <= set(found["prior"][0]["coefficients"])
        assert len(origins) == 1
        later = msgspec.structs.replace(own, parameters=found, origins=origins)
        together = load("pride").compile(later).statement.epsilon_per_unit
        assert together["attribute"] > load("pride").compile(own).statement.epsilon_per_unit["attribute"]
        found, origins = with_cited("pride", {**asked, "prior_rows": "others"}, own.parties, tmp_path)
        assert origins[0].rows == "others"
    for own, folder, words in (
        (numbers, "glm", "is drawn to a run of 'bayes'"),
        (counts, "bayes", "is drawn to a run of 'glm'"),
        (study([], family="negative-binomial"), "glm", "another family"),
    ):
        with pytest.raises(StudyError, match=words):
            with_cited("pride", {**own.parameters, "prior": f"run:{folder}"}, own.parties, tmp_path)


def test_public_rows_of_other_families_are_refused_before_they_are_fitted() -> None:
    X = np.zeros((9, 4))
    with pytest.raises(UsageError, match="not with ordinal: leave prior out"):
        PrideGLM("ordinal", prior=(X, np.array(list("abcabcabc"))), classes=("a", "b", "c"), **ASKED).plan(100, 4)


def test_publishing_and_the_published_form_refuse_a_prior_too() -> None:
    asked = {"bounds": (-1, 1), "y_bounds": (-1, 1), "prior": {"x0": 1.0}}
    publishing = {"publish": 0.5, "alpha": 1.0, "fit_intercept": False, "noise_model": "plain"}
    with pytest.raises(UsageError, match=r"prior goes without .*publish"):
        PrideRegressor(**asked, **publishing).plan(100, 4)
    with pytest.raises(UsageError, match="prior is not in the paper"):
        PrideRegressor(calibration="published", **asked).plan(100, 4)


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        ({"z": 1.0}, "has a coefficient of z; the coefficients here are x0"),
        ({"x0": math.nan}, "no finite number"),
        ({"(intercept)": 1.0}, "no coefficient but 0"),
        (LinearRegression(), "is not fitted"),
        ({"x0": "much"}, "is one of the earlier models|maps names"),
    ],
)
def test_priors_that_cannot_be_meant_are_refused(prior: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        PrideRegressor(prior=prior, **ASKED).plan(100, 4)


# --- forms of a prior, what it costs, and what is kept ------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_form_of_a_prior_is_the_same_numbers(tmp_path: Any) -> None:
    X, y, _ = rows(300, 6, 9)
    own = ASKED | {"random_state": 0}
    public = LinearRegression().fit(X[:100], y[:100])
    numbers = {f"x{j}": float(b) for j, b in enumerate(public.coef_)} | {"(intercept)": float(public.intercept_)}
    found = [PrideRegressor(prior=prior, **own).fit(X, y) for prior in (numbers, public, {"prior": numbers})]
    assert len({model.plan_.hash for model in found}) == 1
    assert (found[0].coef_ == found[1].coef_).all()
    fit = PrideRegressor(prior=(X[:200], y[:200]), **own).fit(X, y)
    assert max(one.weights[0].weight for one in fit.drawn_.values()) > 0.3
    fit.save(tmp_path / "fit")
    for again in (unpooled.load(tmp_path / "fit"), pickle.loads(pickle.dumps(fit)), copy.deepcopy(fit)):
        assert (again.predict(X) == fit.predict(X)).all()
        assert not {"drawn_", "kept_", "reliability_"} & set(vars(again))
    numbers_of = unpooled.load(tmp_path / "fit").prior
    assert (PrideRegressor(prior=numbers_of, **own).fit(X, y).coef_ == fit.coef_).all()
    assert (clone(found[0]).fit(X, y).coef_ == found[0].coef_).all()
    frame = pl.DataFrame({f"x{j}": X[:, j] for j in range(6)})
    framed = PrideRegressor(prior=numbers, **own | {"bounds": {f"x{j}": (-4, 4) for j in range(6)}}).fit(frame, y)
    assert framed.coef_ == pytest.approx(found[0].coef_)


@pytest.mark.slow
def test_classes_take_public_rows_and_fitted_classifiers() -> None:
    X, _, slopes = rows(400, 6, 10)
    y = np.where(X @ slopes + 0.3 * np.random.default_rng(0).logistic(size=400) > 0, "ill", "well")
    own = ASKED | {"random_state": 0, "classes": ("well", "ill")}
    for prior in ((X[:200], y[:200]), LogisticRegression().fit(X[:200], y[:200])):
        model = PrideClassifier(prior=prior, **own).fit(X, y)
        (numbers,) = model.plan_.study.parameters["prior"]
        assert [
            numbers["coefficients"][f"x{j}"] for j in range(6)
        ] @ -slopes > 0  # of "well", the second as classes_ has them
        assert list(model.classes_) == ["ill", "well"]
        assert max(one.weights[0].weight for one in model.drawn_.values()) > 0
    counts = np.random.default_rng(0).poisson(np.exp(X @ slopes)).astype(float)
    for family in ("poisson", "negative-binomial"):
        model = PrideGLM(family, prior=(X[:200], counts[:200]), **ASKED | {"random_state": 0}).fit(X, counts)
        assert max(one.weights[0].weight for one in model.drawn_.values()) > 0


@pytest.mark.guarantee
def test_an_earlier_release_of_the_same_people_joins_the_price_and_that_of_others_does_not() -> None:
    X, y, _ = rows(300, 6, 11)
    earlier_fit = PrivateLinearRegression(epsilon=1.0, delta=1e-6, bounds=(-4, 4), y_bounds=(-6, 6)).fit(X, y)
    alone_plan = PrideRegressor(**ASKED).plan(300, 6)
    for prior, more in ((earlier_fit, True), (earlier_fit.as_prior(), True), (earlier_fit.as_prior().of_others(), False)):
        plan = PrideRegressor(prior=prior, **ASKED).plan(300, 6)
        said = plan.statement
        before = alone_plan.statement.epsilon_per_unit[alone_plan.statement.unit]
        assert (said.epsilon_per_unit[said.unit] > 1.1 * before) is more
        assert plan.releases == alone_plan.releases
        assert ("the prior (plan " in str(said)) is more or "Other people's data supplied the prior" in str(said)
    hollow = PrivateLinearRegression(epsilon=1.0, bounds=(-4, 4), y_bounds=(-6, 6), random_state=0).fit(X, y)
    assert not PrideRegressor(prior=hollow, **ASKED).plan(300, 6).statement.holds
    declared = PrideRegressor(prior={"x0": 1.0}, **ASKED).plan(300, 6)
    assert "The earlier models (prior) are public" in str(declared.statement)
    assert "prior" not in alone_plan.study.parameters
    # New rows are predicted with what is kept: their study has no earlier model, and no price of one.
    model = PrideRegressor(prior=earlier_fit, random_state=0, **ASKED).fit(X, y)
    model.predict_at("party0", X[:50])
    assert model.plan_.study.origins
    assert not model.prediction_plan_.study.origins
    assert "prior" not in model.prediction_plan_.study.parameters


def test_coefficients_of_pride_are_no_prior_of_anybody() -> None:
    X, y, _ = rows(100, 4, 12)
    model = PrideRegressor(random_state=0, **ASKED).fit(X, y)
    with pytest.raises(UsageError, match="the coefficients of this model stay at its parties"):
        model.as_prior()
    for kind in (PrideRegressor, PrivateLinearRegression):
        more = {} if kind is PrideRegressor else {"y_bounds": (-6, 6)}
        with pytest.raises(UsageError, match="the coefficients of this model stay at its parties"):
            kind(prior=model, **ASKED, **more).plan(100, 4)


@pytest.mark.slow
def test_a_study_without_noise_is_drawn_too_and_an_outlook_is_not() -> None:
    X, y, slopes = rows(200, 6, 13)
    for more in ({}, {"sketch_dim": 2}, {"sketch_dim": 0}, {"public": [1, 5]}, {"unit": "record"}):
        model = PrideRegressor(prior=earlier("good", slopes), **ASKED | {"epsilon": math.inf, **more}).fit(X, y)
        assert max(one.weights[0].weight for one in model.drawn_.values()) > 0.3
        assert np.mean((y - model.predict(X)) ** 2) < 0.7 * y.var()
    asked = PrideRegressor(prior=earlier("good", slopes), **ASKED)
    found, plain = asked.outlook(200, 6, quick=True), PrideRegressor(**ASKED).outlook(200, 6, quick=True)
    assert found.error == plain.error
    assert "earlier models left out" in str(found)


@pytest.mark.guarantee
def test_a_party_with_one_row_or_of_columns_that_never_vary_is_drawn_without_trouble() -> None:
    rng = np.random.default_rng(0)
    for X in (np.zeros((30, 4)), rng.normal(size=(2, 4))):
        y = rng.normal(size=X.shape[0])
        for kind, given in ((PrideRegressor, y), (PrideGLM, np.where(y > y.mean(), 1, -1))):
            more = {} if kind is PrideRegressor else {"classes": (-1, 1)}
            model = kind(prior={"x0": 1.0}, random_state=0, **ASKED, **more).fit(X, given)
            assert np.isfinite(model.coef_).all()


def test_weights_of_members_are_those_that_are_shown() -> None:
    X, y, _ = rows(100, 3, 14)
    members = share_members(
        alone(X, 3), y, [centre_of(np.ones(3), 1.0), centre_of(np.ones(3), 1.0, 0.5)], fit_intercept=True
    )
    each = np.array([0.0 if one.centre is None else one.centre.weights[0] for one in members])
    (mean, deviation), own = drawn(members)[0], weights(members)
    assert mean == pytest.approx(own @ each)
    assert deviation == pytest.approx(math.sqrt(own @ each**2 - mean**2))
