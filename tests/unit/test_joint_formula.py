"""Formulas over columns of several parties: every party makes its own terms, and the table is that of the pooled rows."""

import math

import numpy as np
import pandas as pd
import pytest

from unpooled import PrivateLinearRegression
from unpooled.errors import UsageError
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study

BOUNDS = {"age": (20, 90), "arm": ["a", "b", "c"], "dose": (0.1, 4), "w": (-4, 4), "other": (0, 2)}
PARTIES = {"clinic": ["age", "arm", "other"], "lab": ["dose", "w"]}
FORMULA = "y ~ log(dose) + w*dose + age + I(age**2) + arm"


def frame(rows: int = 5000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, dose, w = rng.uniform(20, 90, rows), rng.uniform(0.1, 4, rows), rng.normal(size=rows).clip(-4, 4)
    arm = rng.choice(np.array(["a", "b", "c"], dtype=object), rows)
    mean = 50 + 0.2 * age + 0.002 * age**2 + np.where(arm == "c", 4, 0) + 3 * np.log(dose) + 2 * w + 0.5 * w * dose
    y = (mean + rng.normal(0, 3, rows)).clip(20, 120)
    return pd.DataFrame({"age": age, "arm": arm, "dose": dose, "w": w, "other": np.ones(rows), "y": y})


def model(**given: object) -> PrivateLinearRegression:
    asked = {"epsilon": math.inf, "bounds": BOUNDS, "y_bounds": (20, 120), "parties": PARTIES, "random_state": 0}
    return PrivateLinearRegression(**asked | given)


def pooled(data: pd.DataFrame) -> dict[str, float]:
    """Least squares on the same terms, without privacy."""
    columns = {
        "log(dose)": np.log(data["dose"]),
        "w": data["w"],
        "dose": data["dose"],
        "age": data["age"],
        "I(age**2)": data["age"] ** 2,
        "arm: b - a": data["arm"] == "b",
        "arm: c - a": data["arm"] == "c",
        "dose:w": data["dose"] * data["w"],
        "(intercept)": np.ones(len(data)),
    }
    rows = np.column_stack([np.asarray(values, dtype=float) for values in columns.values()])
    return dict(zip(columns, np.linalg.lstsq(rows, data["y"], rcond=None)[0].tolist(), strict=True))


def test_without_noise_the_table_is_that_of_the_pooled_terms() -> None:
    data = frame()
    fit = model().fit(data, formula=FORMULA)
    truth = pooled(data)
    table = {term.term: term for term in fit.summary().terms}
    assert set(table) == set(truth)
    for name, term in table.items():
        assert term.estimate == pytest.approx(truth[name], abs=0.15 * term.std_error)
    assert {column.name for card in fit.plan_.study.parties for column in card.columns} == {
        "age", "arm", "dose", "w", "(response)"
    }  # fmt: skip
    rest = data.drop(columns=["y", "other"])
    assert fit.predict(rest) == pytest.approx(fit.predict(data))
    assert fit.score(data, data["y"]) > 0.88
    assert "dose:w" in str(fit.anova())


@pytest.mark.long
@pytest.mark.slow
def test_noise_is_in_the_errors_and_frames_are_linked_first() -> None:
    data = frame(4000)
    ids = np.arange(len(data))
    clinic = pd.DataFrame({"id": ids, "age": data["age"], "arm": data["arm"]})
    lab = pd.DataFrame({"id": ids, "dose": data["dose"], "w": data["w"], "y": data["y"]}).sample(frac=1, random_state=2)
    parties = {"clinic": ["age", "arm"], "lab": ["dose", "w"]}
    fit = model(epsilon=30.0, parties=parties, method="moments").fit(
        {"clinic": clinic, "lab": lab}, formula="y ~ w + dose + arm", on="id"
    )
    assert fit.plan_.design.holder == "lab"
    for name, truth in (("w", 3.0), ("arm: c - a", 4.0)):
        term = next(t for t in fit.summary().terms if t.term == name)
        assert abs(term.estimate - truth) < 5 * term.std_error
        assert term.privacy > 0


def test_even_parts_of_the_columns_that_a_formula_reads() -> None:
    data = frame(2000)
    fit = model(parties=2).fit(data, formula="y ~ age + w")
    assert [[c.name for c in card.columns] for card in fit.plan_.study.parties] == [["age", "(response)"], ["w"]]


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("formula", "given", "words"),
    [
        ("y ~ age:dose + arm", {}, "needs columns of clinic, lab"),
        ("y ~ age + arm", {}, "no term is of columns of 'lab'"),
        ("y ~ 0 + age + w", {}, "has a constant and no offset"),
        ("y ~ age + offset(w)", {}, "has a constant and no offset"),
        ("y ~ age + w", {"method": "sines"}, 'goes with method = "moments"'),
        ("y ~ age + height", {}, "height"),
    ],
)
def test_what_a_formula_cannot_say_here_is_refused_by_name(formula: str, given: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        model(epsilon=1.0, **given).fit(frame(100), formula=formula)


@pytest.mark.guarantee
def test_the_party_with_the_response_may_have_no_term() -> None:
    data = frame(3000)
    fit = model(response_at="clinic").fit(data, formula="y ~ w + dose")
    assert [[c.name for c in card.columns] for card in fit.plan_.study.parties] == [["(response)"], ["dose", "w"]]
    found = {term.term: term.estimate for term in fit.summary().terms}
    rows = np.column_stack([data["w"], data["dose"], np.ones(len(data))])
    truth = np.linalg.lstsq(rows, data["y"], rcond=None)[0]
    assert [found["w"], found["dose"]] == pytest.approx(truth[:2].tolist(), abs=0.02)


def test_a_study_with_a_formula_has_moments_however_small_it_is() -> None:
    cards = (
        Card("a", 300, (Column("u", 0.0, 1.0), Column("y", 0.0, 1.0))),
        Card("b", 300, (Column("v", 0.0, 1.0), Column("g", categories=("k", "l")))),
    )
    asked = {"response": "y", "split": "columns", "formula": "v:g + I(u**2)"}
    study = Study("bayes", cards, 1.0, 1e-6, parameters=asked, derived=(), helpers=(HelperCard("h"),))
    plan = load("bayes").compile(study)
    assert plan.design.shape.rounds == 1
    assert plan.design.layout.names == ("I(u**2)", "g[k]:v", "g[l]:v")
    assert [part.columns for part in plan.design.shape.parts] == [2, 2]
    assert sorted(plan.design.order.tolist()) == [0, 1, 2]
