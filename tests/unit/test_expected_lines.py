"""The lines of a table to expect, before data: played studies, checked against whole fits over people of the same law."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pandas as pd
import pytest

import unpooled
from unpooled.errors import UsageError
from unpooled.estimation.expected_lines import ExpectedLine, PlayedTables, in_text
from unpooled.estimation.outlook import made_up_features
from unpooled.models import load
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.plan import Card, Study

BOUNDS = {"age": (18, 100), "arm": ["usual", "new"], "sex": ["f", "m"], "y": ["0", "1"]}
COLUMNS = Bounds.given(BOUNDS, None).columns(list(BOUNDS))


def study(rows: int, epsilon: float, **parameters: object) -> Study:
    cards = tuple(Card(f"site {k}", rows // 2, COLUMNS) for k in range(2))
    asked = {"response": "y", "formula": "age + arm * sex"} | parameters
    return Study("glm", cards, epsilon, 1e-5, parameters=asked, derived=())


def test_an_interaction_of_made_up_people_is_the_product_of_what_it_is_made_of() -> None:
    design = load("glm").compile(study(2000, 1.0)).design
    rng = np.random.default_rng(0)
    columns, rows = made_up_features(design.layout.features, 500, 0.3, 4.0, rng, "normal", design.layout.made)
    both = (np.array(columns["sex"]) == "m") & (np.array(columns["arm"]) == "new")
    assert (
        (columns["sex[m]:arm[new]"] == both).all()
        if "sex[m]:arm[new]" in columns
        else (columns["arm[new]:sex[m]"] == both).all()
    )
    assert rows.shape == (500, len(design.layout.features))
    assert rows.std(axis=0) == pytest.approx(1.0)


@pytest.mark.long
@pytest.mark.slow
def test_the_lines_are_those_of_the_formula_and_grow_with_the_budget() -> None:
    small, large = (load("glm").outlook(study(3000, epsilon), quick=True, lines=True) for epsilon in (1.0, 5.0))
    names = [line.term for line in small.lines]
    assert names[:2] == ["age", "arm: new - usual"]
    assert len(names) == 5
    for one, other in zip(small.lines, large.lines, strict=True):
        assert 0.5 < one.without_privacy / other.without_privacy < 2.0
        assert one.printed <= other.printed
        assert 0 <= one.narrow <= one.printed
        assert other.std_error > other.without_privacy
    assert all(line.is_expected for line in large.lines)
    assert "without privacy" in str(small)
    assert not load("glm").outlook(study(3000, 1.0, goal="predictions", method="gradient"), quick=True, lines=True).lines


@pytest.mark.long
@pytest.mark.slow
def test_played_errors_are_those_of_whole_fits() -> None:
    """Within the spread of the assumed laws: people with independent columns are among them."""
    found = {line.term: line for line in load("glm").outlook(study(4000, 3.0), quick=True, lines=True).lines}
    errors = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        frame = pd.DataFrame({"age": rng.normal(60, 12, 4000).clip(18, 100), "arm": rng.choice(["usual", "new"], 4000)})
        frame["sex"] = rng.choice(["f", "m"], 4000)
        frame["y"] = (rng.random(4000) < 0.3).astype(int).astype(str)
        model = unpooled.PrivateGLM(epsilon=3.0, delta=1e-5, bounds=BOUNDS, random_state=seed)
        fit = model.fit(frame, formula="y ~ age + arm * sex", sites=np.arange(4000) % 2)
        errors.append({line.term: line.std_error for line in fit.summary().terms})
    for term, line in found.items():
        seen = float(np.median([one[term] for one in errors if term in one]))
        assert 0.33 < line.std_error / seen < 3.0, term


@pytest.mark.long
@pytest.mark.slow
def test_the_epsilon_and_the_rows_of_a_line_that_is_wanted_give_it() -> None:
    asked = study(10_000, 1.0)
    found = load("glm").outlook(asked)
    epsilon, rows = found.for_line("arm: new - usual", 0.1)
    assert 1.0 < epsilon < 10.0
    assert rows > 10_000
    again = {line.term: line for line in load("glm").outlook(study(int(rows), 1.0), quick=True, lines=True).lines}
    assert again["arm: new - usual"].std_error == pytest.approx(0.1, rel=0.25)
    assert found.for_line("arm: new - usual", 1e-6)[0] == math.inf
    with pytest.raises(UsageError, match="no line 'weight' is expected"):
        found.for_line("weight", 0.1)
    with pytest.raises(UsageError, match="std_error"):
        found.for_line("age", "small")  # type: ignore[arg-type]


def test_lines_that_no_study_prints_are_hidden_and_take_endless_rows() -> None:
    seen = PlayedTables()
    assert seen.lines(1.0) == ()
    assert seen.missing(1.0) == []
    for number in range(4):
        seen.found[math.inf][number] = {"age": 0.1, "arm": 0.2}
        seen.found[1.0][number] = {"age": 0.15 if number else 0.9}
    age, arm = seen.lines(1.0)
    assert age == ExpectedLine("age", 0.15, 0.1, 1.0, 0.75)
    assert (arm.printed, arm.narrow) == (0.0, 0.0)
    assert math.isnan(arm.std_error)
    assert arm.at_rows(0.1, 100) == math.inf
    assert age.at_rows(0.15, 100) == pytest.approx(100)
    assert ExpectedLine("age", 0.1, 0.1, 1.0, 1.0).at_rows(0.05, 100) == pytest.approx(400)
    assert seen.missing(1.0, 6) == [(1.0, 4), (math.inf, 4), (1.0, 5), (math.inf, 5)]
    seen.found[3.0] = dict.fromkeys(range(4))
    assert seen.lines(3.0) == ()
    assert seen.missing(3.0) == []
    assert "hidden" in in_text((age, arm))


# --- columns at several parties --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.slow
def test_joint_lines_stand_beside_those_of_the_response_s_holder_alone() -> None:
    bounds = {"age": (18, 100), "arm": ["usual", "new"], "crp": (0, 100), "hba1c": (3, 15)}
    parties = {"clinic": ["age", "arm"], "lab": ["crp", "hba1c"]}
    model = unpooled.PrivateLinearRegression(
        epsilon=2.0, bounds=bounds, y_bounds=(-4, 4), parties=parties, helpers=1, method="moments", response_at="clinic"
    )
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(60, 12, 1400).clip(18, 100), "arm": rng.choice(["usual", "new"], 1400)})
    frame["crp"], frame["hba1c"] = rng.uniform(0, 100, 1400), rng.uniform(3, 15, 1400)
    asked = model.set_params(random_state=0).fit(frame, rng.normal(size=1400).clip(-4, 4)).plan_.study
    found = load("bayes").outlook(asked, quick=True, lines=True)
    assert [line.term for line in found.lines] == ["age", "arm: new - usual", "crp", "hba1c", "(intercept)"]
    alone = {line.term: line.alone for line in found.lines}
    assert alone["arm: new - usual"] > 0
    assert math.isnan(alone["crp"])
    assert "holder alone" in str(found)
    assert (
        not load("bayes")
        .outlook(msgspec.structs.replace(asked, parameters=asked.parameters | {"method": "sines"}), quick=True, lines=True)
        .lines
    )
