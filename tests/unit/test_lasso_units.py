"""The LASSO has no units: the penalty follows from the noise, a named radius is in half ranges of y, and old numbers are not misread."""

from __future__ import annotations

import dataclasses
import math
import shutil
import warnings
from pathlib import Path

import msgspec
import numpy as np
import pytest
from commands import command
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Lasso

import unpooled
from unpooled import PrivateLasso, PrivateLassoClassifier, UtilityWarning
from unpooled.errors import StudyError, UsageError
from unpooled.models import load
from unpooled.models.lasso.frank_wolfe_fit import LassoResult, fills, render
from unpooled.models.lasso.joint import Form, form_of
from unpooled.models.lasso.moments_fit import PENALTY, OwnMoments, penalised
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.study import _in_half_ranges
from unpooled.privacy.table import Table
from unpooled.protocol.local import run_in_process
from unpooled.study.files import read_study, write_card
from unpooled.study.run import advice, compile_study
from unpooled.study.templates import template

ROWS, COLUMNS = 3000, 8
RNG = np.random.default_rng(8)
X = RNG.normal(size=(ROWS, COLUMNS)) / 2.5
X[:, 4:] += 0.5 * X[:, :4]
X = np.clip(X, -1, 1)
Y = np.clip(X @ [0.9, 0, 0, -0.6, 0, 0.4, 0, 0] + 0.2 + 0.3 * RNG.normal(size=ROWS), -2, 2)
#: Powers of two are exact in floating point; the other scales round.
SCALES = (2.0**-10, 1e-3, 1e2, 1e4)


def model(y: float = 1.0, columns: np.ndarray | None = None, **options) -> PrivateLasso:
    """A model whose declared ranges are in these units."""
    wide = np.ones(COLUMNS) if columns is None else columns
    bounds = unpooled.Bounds(low=(-wide).tolist(), high=wide.tolist())
    given = {"epsilon": math.inf, "method": "moments", "delta": 1e-5, "random_state": 0}
    return PrivateLasso(2, bounds=bounds, y_bounds=(-2 * y, 2 * y), **(given | options))


def same_in_other_units(y: float, columns: np.ndarray, **options) -> None:
    own, other = model(**options).fit(X, Y), model(y, columns, **options).fit(X * columns, Y * y)
    assert np.flatnonzero(own.coef_).tolist() == np.flatnonzero(other.coef_).tolist()
    np.testing.assert_allclose(other.coef_ * columns, own.coef_ * y, rtol=1e-6, atol=1e-9 * y)
    np.testing.assert_allclose(other.predict(X * columns), own.predict(X) * y, rtol=0, atol=1e-6 * y)
    assert own.score(X, Y) > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("radius", [None, 0.4])
@pytest.mark.parametrize("method", ["moments", "frank-wolfe"])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.filterwarnings("ignore:radius is in half ranges:FutureWarning")
def test_no_result_depends_on_the_units_of_y_or_of_the_columns(scale: float, method: str, radius: float | None) -> None:
    """W9: with the radius in units of y the same call explained .54 of y and .007 of 100 y."""
    same_in_other_units(scale, np.ones(COLUMNS), method=method, radius=radius)
    same_in_other_units(1.0, scale ** np.linspace(-1, 1, COLUMNS), method=method, radius=radius)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.integers(-10, 13), st.lists(st.integers(-10, 13), min_size=COLUMNS, max_size=COLUMNS))
def test_units_of_any_columns_together(y: int, columns: list[int]) -> None:
    same_in_other_units(2.0**y, 2.0 ** np.array(columns))


class Replayed:
    """The same replies to another plan."""

    def __init__(self, plan) -> None:
        self.conversation, self.replies = load("lasso").coordinate(plan), []

    def play(self, recorded: list):
        asks, at = next(self.conversation), 0
        try:
            while True:
                asks = self.conversation.send(recorded[at : at + len(asks)])
                at += len(asks)
        except StopIteration as ended:
            return ended.value


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_same_noisy_replies_are_the_same_model_in_other_units(loss: str) -> None:
    """With noise: what parties release does not depend on units, and neither does what is made of it."""
    names = [f"x{j}" for j in range(COLUMNS)]
    held = {"a": names[:4], "b": names[4:]}
    cards = tuple(Card(party, ROWS, tuple(Column(name, -1.0, 1.0) for name in own), ("y",)) for party, own in held.items())
    parameters = {"response_bound": 2.0} if loss == "squared" else {"loss": loss}
    study = Study("lasso", cards, 3.0, 1e-5, parameters=parameters, simulation_seed=1, derived=())
    tables = {card.name: Table({n: X[:, names.index(n)] for n in held[card.name]} | {"y": Y}) for card in cards}
    plan, recorded = load("lasso").compile(study), []
    driver = load("lasso").coordinate

    def recording(asked):
        conversation, replies = driver(asked), None
        while True:
            try:
                asks = conversation.send(replies)
            except StopIteration as ended:
                return ended.value
            replies = yield asks
            recorded.extend(replies)

    watched = dataclasses.replace(load("lasso"), coordinate=recording)
    own = run_in_process(watched, plan, tables, Policy.in_process(), lambda _: watched).outcome.result
    wider = tuple(
        msgspec.structs.replace(
            card, columns=tuple(Column(c.name, -(10.0 ** (k % 3)), 10.0 ** (k % 3)) for k, c in enumerate(card.columns))
        )
        for card in cards
    )
    if loss == "squared":
        parameters = {"response_bound": 200.0}
    other = Replayed(load("lasso").compile(msgspec.structs.replace(study, parties=wider, parameters=parameters)))
    found = other.play(recorded)
    factor = 100.0 if loss == "squared" else 1.0
    assert [(t.party, t.column) for t in found.terms] == [(t.party, t.column) for t in own.terms]
    assert len(own.terms) >= 2
    np.testing.assert_allclose([t.value for t in found.terms], [factor * t.value for t in own.terms], rtol=1e-9)
    for mine, theirs in zip(own.coefficients, found.coefficients, strict=True):
        width = 10.0 ** (held[mine.party].index(mine.name) % 3)
        assert theirs.value * width == pytest.approx(mine.value * factor, rel=1e-9)
    assert found.intercept == pytest.approx(own.intercept * factor, rel=1e-9)


# --- the penalty ----------------------------------------------------------------------------------------------------------


def test_without_noise_one_party_has_the_plain_lasso_of_scikit_learn() -> None:
    """With a quarter of sqrt(2 log d / n) as the penalty of standardised columns: less than this shrinks, more would be seen."""
    found = PrivateLasso(1, bounds=(-1, 1), y_bounds=(-2, 2), epsilon=math.inf).fit(X, Y)
    assert found.n_iter_ == 1, "moments, for no ball is named"
    assert found.dual_gap_ is None
    level = PENALTY * math.sqrt(2 * math.log(COLUMNS) / ROWS)
    z, v = (X - X.mean(axis=0)) / X.std(axis=0), (Y - Y.mean()) / Y.std()
    # What rows longer than a typical one lose is a part of all of them.
    theirs = Lasso(level, tol=1e-10).fit(z, v).coef_ * Y.std() / X.std(axis=0)
    np.testing.assert_allclose(found.coef_, theirs, atol=0.05)
    squares = np.linalg.lstsq(np.column_stack([X, np.ones(ROWS)]), Y, rcond=None)[0][:-1]
    assert np.abs(found.coef_).sum() < np.abs(squares).sum()


def test_the_penalty_is_of_noise_and_of_chance() -> None:
    own = OwnMoments(np.eye(3), np.array([0.5, 0.02, -0.01]), 0.0, 0.03)
    cross, penalty = own.priced(3, 0.04)
    assert cross.tolist() == own.cross.tolist()
    assert penalty == pytest.approx([0.25 * math.sqrt(2 * math.log(3)) * 0.05] * 3)
    fit = penalised(own.gram, cross, penalty, np.array([2.0, 2.0, 2.0]))
    assert fit == pytest.approx([2 * (0.5 - penalty[0]), 2 * max(0.02 - penalty[0], 0), 0.0], abs=1e-9)
    assert penalised(own.gram, np.zeros(3), penalty, np.ones(3)).tolist() == [0.0] * 3
    in_ball, none = own.priced(3, None)
    assert not none.any()
    assert in_ball.tolist() == own.slopes(3).tolist()


def test_the_form_without_noise_follows_from_the_radius() -> None:
    study = model().plan(100, COLUMNS).study
    auto = msgspec.structs.replace(study, parameters=study.parameters | {"method": "auto"})
    assert form_of(auto) is Form.MOMENTS
    named = msgspec.structs.replace(auto, parameters=auto.parameters | {"radius_in_half_ranges": 1.0})
    assert form_of(named) is Form.ROUNDS
    rounds = load("lasso").compile(msgspec.structs.replace(auto, parameters=auto.parameters | {"rounds": 5}))
    assert rounds.design.radius(rounds.study) == 2.0, "one half range"


def test_the_classifier_needs_no_radius() -> None:
    labels = np.where(Y > 0.2, "yes", "no")
    options = {"bounds": (-1, 1), "classes": ("no", "yes"), "delta": 1e-5, "random_state": 0}
    free = PrivateLassoClassifier(2, epsilon=5.0, **options).fit(X, labels)
    assert free.score(X, labels) > 0.75
    assert "radius_in_half_ranges" not in free.plan_.study.parameters
    with pytest.warns(UtilityWarning, match="radius limits this fit"):
        tight = PrivateLassoClassifier(2, epsilon=5.0, radius=0.2, **options).fit(X, labels)
    assert np.abs(tight.coef_).sum() <= 0.2 * (1 + 1e-6)


# --- a named radius -------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:radius is in half ranges:FutureWarning")
@pytest.mark.parametrize("options", [{}, {"method": "frank-wolfe"}, {"method": "auto", "coupling": "blocks"}])
def test_a_radius_that_binds_is_warned_of(options: dict) -> None:
    tight = model(radius=0.05, **{"epsilon": 20.0, **options})
    with pytest.warns(UtilityWarning, match="radius limits this fit"):
        tight.fit(X, Y)
    assert np.abs(tight.coef_).sum() <= 0.1 * (1 + 1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        model(radius=50.0, epsilon=20.0).fit(X, Y)
        model(epsilon=20.0).fit(X, Y)


def test_the_published_form_fills_no_ball() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        model(radius=0.05, epsilon=1.0, method="auto", calibration="published").fit(X, Y)


def test_a_result_notes_that_its_radius_binds() -> None:
    assert fills(1.0 - 1e-9, 1.0)
    assert not fills(0.999, 1.0)
    assert not fills(9.0, None)
    assert "Note: the coefficients fill the ball" in render(LassoResult((), 0.0, (), (), (), binds=True))
    assert "Note" not in render(LassoResult((), 0.0, (), (), ()))


def test_a_named_radius_says_once_what_it_means_now() -> None:
    with pytest.warns(FutureWarning, match=r"radius=3 is 6 in units of y.*radius=1\.5") as caught:
        model(radius=3.0, epsilon=5.0).fit(X, Y)
    assert len([one for one in caught if one.category is FutureWarning]) == 1
    assert caught[0].filename == __file__
    with pytest.warns(FutureWarning) as caught:
        model(radius=3.0, epsilon=5.0).plan(ROWS, COLUMNS)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # In these the number means what it meant.
        model(0.5, radius=1.0, epsilon=5.0).plan(ROWS, COLUMNS)
        model(radius=1.0, epsilon=1.0, method="auto", calibration="published").plan(ROWS, COLUMNS)
        PrivateLassoClassifier(radius=9.0, bounds=(-1, 1), classes=(0, 1)).plan(ROWS, COLUMNS)
        model(epsilon=5.0).plan(ROWS, COLUMNS)


def test_the_published_form_keeps_the_papers_unit() -> None:
    options = {"epsilon": 1.0, "method": "auto", "calibration": "published"}
    assert model(**options).plan(ROWS, COLUMNS).design.eta == 1.0
    plan = model(radius=3.0, **options).plan(ROWS, COLUMNS)
    assert plan.study.parameters["radius"] == 3.0
    assert plan.design.eta == 3.0


# --- files ----------------------------------------------------------------------------------------------------------------


def files(folder: Path, parameters: str = "", calibration: str = "sound") -> Path:
    names = []
    for party in ("clinic", "lab"):
        card = Card(party, ROWS, (Column(f"{party}_x", -1.0, 1.0),), ("y",), key=f"{len(party):064x}")
        (folder / f"{party}.toml").write_text(write_card(card))
        names.append(f"{party}.toml")
    text = template("lasso", names, calibration=calibration)
    (folder / "study.toml").write_text(text.replace('response = "y"', f'{parameters}\nresponse = "y"'))
    return folder / "study.toml"


def test_a_study_of_the_former_version_is_refused_in_one_sentence_until_it_is_edited(tmp_path: Path) -> None:
    said = command(tmp_path, "plan", str(files(tmp_path, "radius = 1.0")), code=2)
    assert "radius was in units of the response and is now radius_in_half_ranges" in said
    plan = compile_study(read_study(files(tmp_path, "radius_in_half_ranges = 1.5")))
    assert plan.design.parameters.bound == 1.5
    assert compile_study(read_study(files(tmp_path, calibration="published"))).design.eta == 1.0
    with pytest.raises((StudyError, UsageError), match="is not for the published form"):
        compile_study(read_study(files(tmp_path, "radius_in_half_ranges = 1.5", "published")))


def test_a_plan_says_what_it_needs_of_the_response_and_what_a_small_radius_means(tmp_path: Path) -> None:
    study = files(tmp_path, "radius_in_half_ranges = 0.1")
    assert "every party must hold the response" in study.read_text()
    said = command(tmp_path, "plan", str(study))
    assert "Note: every party must hold the response 'y'" in said
    assert "predictions differ by at most 0.2, where the response may differ by 2" in said
    free = compile_study(read_study(files(tmp_path)))
    assert not any("radius" in note for note in advice(free))
    alone = msgspec.structs.replace(free.study, parties=free.study.parties[:1], ids="")
    assert not any("hold the response" in note for note in advice(load("lasso").compile(alone)))


def test_a_model_that_the_former_version_saved_keeps_its_bound(tmp_path: Path) -> None:
    """It was saved with radius = 1 in units of y, and half ranges of 2."""
    old = Path(__file__).parents[1] / "data" / "format_0.2.0" / "saved" / "PrivateLasso"
    shutil.copy2(old, tmp_path / "old")
    found = unpooled.load(tmp_path / "old")
    assert found.radius == 0.5
    assert found.plan_.design.parameters.bound == 1.0
    found.save(tmp_path / "again")
    assert unpooled.load(tmp_path / "again").radius == 0.5
    assert unpooled.load(old.with_name("PrivateLassoClassifier")).plan_.design.parameters.bound == 1.0


@pytest.mark.guarantee
def test_only_the_sound_lasso_is_read_in_half_ranges() -> None:
    cards = (Card("a", 9, (Column("x", -1.0, 1.0),), ("y",)),)
    study = Study("lasso", cards, 1.0, 1e-5, parameters={"radius": 3.0, "response_bound": 2.0}, derived=())
    assert _in_half_ranges(study).parameters == {"response_bound": 2.0, "radius_in_half_ranges": 1.5}
    for other in (msgspec.structs.replace(study, calibration="published"), msgspec.structs.replace(study, model="glm")):
        assert _in_half_ranges(other) is other
