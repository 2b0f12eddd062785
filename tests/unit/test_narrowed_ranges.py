"""Ranges narrowed to multiples of noisy deviations: coefficients, and no interval anywhere, because what clipping moves no release says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unpooled import PrivateLinearRegression, load
from unpooled.errors import UsageError
from unpooled.estimation.running import run
from unpooled.linear.moments import Moments
from unpooled.models import load as row_of
from unpooled.privacy.table import Table

RNG = np.random.default_rng(11)
X = np.clip(RNG.normal(size=(3000, 3)) / 4, -1, 1)
Y = np.clip(X @ [1.0, 0.8, 0.0] + 0.1 * RNG.normal(size=3000), -3, 3)
GIVEN: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-5, "bounds": (-1, 1), "y_bounds": (-3, 3), "random_state": 4}


def fitted(**more: Any) -> PrivateLinearRegression:
    return PrivateLinearRegression(**{**GIVEN, **more}).fit(X, Y)


@pytest.mark.parametrize("form", [{"projection": 0.2}, {"calibration": "published"}])
def test_a_narrowed_fit_has_coefficients_and_no_interval(form: dict[str, Any], tmp_path: Path) -> None:
    model = fitted(**form)
    assert model.projection_
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.predict(X[:3])).all()
    assert np.isnan(model.credible_interval()).all()
    assert np.isnan(model.covariance_).all()
    for ask in (model.summary, model.anova, lambda: model.contrast("x0"), lambda: model.predict(X[:3], return_std=True)):
        with pytest.raises(UsageError, match="Leave projection out for a table"):
            ask()
    # By whatever door: another model of the same moments, and a file of them.
    assert np.isnan(model.ols().interval()).all()
    assert np.isnan(model.ridge(1.0).interval()).all()
    model.moments_.save(tmp_path / "moments.bin")
    for again in (Moments.load(tmp_path / "moments.bin"), model.moments_.submodel(["x0"])):
        assert again.narrowed
        with pytest.raises(UsageError, match="no standard errors, intervals or tests"):
            again.summary()
    model.save(tmp_path / "model.bin")
    with pytest.raises(UsageError, match="projection narrows"):
        load(tmp_path / "model.bin").summary()


def test_a_studys_result_says_so(tmp_path: Path) -> None:
    model = fitted(projection=0.2)
    row, plan = row_of("bayes"), model.plan_
    response = plan.design.layout.response.name
    held = {"all": Table({**{f"x{j}": column for j, column in enumerate(X.T)}, response: Y})}
    result = run(row, plan.study, held)[1].outcome.result
    assert all(one.low is None and one.high is None for one in result.coefficients)
    assert row.tables(plan, result) is None
    assert [term.std_error for term in row.reading.terms(plan, result)] == [None] * 4
    assert any("projection narrows" in line for line in row.reading.foot(plan, result))


def test_a_fit_of_the_declared_ranges_keeps_its_table() -> None:
    model = fitted(method="moments")
    assert not model.moments_.narrowed
    assert np.isfinite(model.summary().terms[0].std_error)


@pytest.mark.parametrize(
    "form",
    [
        {"noise_precision": 100.0, "prior_precision": 1.0},
        {"calibration": "published", "projection": 0.0},
        {"posterior": "naive", "noise_precision": 1.0, "prior_precision": 1.0},
    ],
)
def test_without_a_sum_of_squares_of_the_response_there_is_no_r_squared(form: dict[str, Any]) -> None:
    """What stood for the residual variance is the largest that the declared range allows: R^2 was .04 where the truth is .83."""
    table = fitted(**form).summary()
    assert np.isnan(table.r_squared)
    assert np.isnan(table.residual_variance)
    assert "R^2" not in str(table)
    assert "residual variance" not in str(table)


def test_with_one_there_is() -> None:
    table = fitted(method="moments").summary()
    assert table.r_squared == pytest.approx(1 - 0.01 / Y.var(), abs=0.1)
    assert "R^2" in str(table)
