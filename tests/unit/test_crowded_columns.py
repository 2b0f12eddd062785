"""A table whose rows were scaled down names the skewed column, and offers a transformation of it."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import unpooled
from unpooled.inference.coordinates import crowded_columns
from unpooled.models.bayes.columns import design_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table
from unpooled.products.moments import imagine

N = 20_000
BOUNDS = {"age": (18, 100), "crp": (0, 300), "arm": ["u", "v"]}


def frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    crp, age = rng.lognormal(1, 1, N).clip(0, 300), rng.normal(60, 10, N).clip(18, 100)
    y = np.log1p(crp) + 0.02 * age + rng.normal(size=N)
    return pl.DataFrame({"age": age, "crp": crp, "arm": rng.choice(["u", "v"], N), "y": y.clip(-5, 15)})


FRAME = frame()


def fitted(formula: str) -> unpooled.PrivateLinearRegression:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = unpooled.PrivateLinearRegression(
            epsilon=3.0, bounds=BOUNDS, y_bounds=(-5, 15), random_state=0, method="refinement"
        )
        return model.fit(FRAME, formula=formula)


def test_a_table_names_the_skewed_column_and_what_would_help() -> None:
    bent, mended = fitted("y ~ arm + crp + age"), fitted("y ~ arm + log1p(crp) + age")
    text = str(bent.summary())
    assert "crp: its declared range of 0 to 300 is" in text
    assert "log1p(crp) in the formula makes such rows shorter" in text
    assert "age: its declared" not in text
    line = next(line for line in mended.summary().terms if line.term == "log1p(crp)")
    assert abs(line.estimate - 1) < 3 * line.std_error
    assert "its declared range" not in str(mended.summary())
    # Where no row was scaled down, nothing is said of columns.
    tables = bent._tables()
    assert tables.crowded
    assert "its declared range" not in str(replace(tables, cut=None).summary())


def test_a_generalised_model_knows_them_too() -> None:
    counts = FRAME.with_columns(
        n=np.random.default_rng(1).poisson(np.exp(0.3 * np.log1p(FRAME["crp"].to_numpy()))).clip(0, 30)
    ).drop("y")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = unpooled.PrivateGLM(
            "poisson", epsilon=1.0, bounds=BOUNDS, y_bounds=(0, 30), random_state=0, method="newton"
        ).fit(counts, "n")
    tables = model._tables()
    assert [words.partition(":")[0] for words in tables.crowded] == ["crp"]
    assert tables.cut is not None
    assert ("log1p(crp)" in str(model.summary())) == ("were scaled down" in str(model.summary()))


@pytest.mark.parametrize(
    ("mean", "deviation", "range_", "said"),
    [
        (5.0, 4.0, (0, 300), "log1p(`a b`)"),
        (60.0, 10.0, (0, 300), ""),  # wide on one side alone
        (5.0, 4.0, (0, 20), ""),  # near an end, and no far end
        (-5.0, 4.0, (-10, 300), "a transformation"),  # a logarithm would not be defined
        (295.0, 4.0, (0, 300), "a transformation"),
        (5.0, 0.0, (0, 300), ""),
    ],
)
def test_a_crowded_column_is_near_one_end_and_far_from_the_other(
    mean: float, deviation: float, range_: tuple[float, float], said: str
) -> None:
    column = Column("a b", *range_)
    found = crowded_columns([column], np.array([mean]), np.array([deviation]))
    assert len(found) == bool(said)
    assert said in "".join(found)
    assert not crowded_columns([Column("w", categories=("x", "y"))], np.array([0.0]), np.array([0.01]))


def test_a_table_of_joint_moments_names_them_for_another_reason() -> None:
    """There long parts move slopes even where the mean is linear."""
    rows = 20_000
    cards = (
        Card("clinic", rows, (Column("crp", 0, 300),)),
        Card("registry", rows, (Column("age", 18, 100), Column("y", -5, 15))),
    )
    given = {"response": "y", "split": "columns", "method": "moments"}
    design = design_of(Study("bayes", cards, 3.0, 1e-6, parameters=given, derived=(), helpers=(HelperCard("h"),)))
    tables = {card.name: Table({c.name: FRAME[c.name].to_numpy() for c in card.columns}) for card in cards}
    text = str(imagine(design, tables, np.random.default_rng(0)).summary())
    assert "Long parts of joint rows inflate slopes, also where the mean is linear: log1p(crp) in the formula" in text
    assert "age: its declared" not in text
