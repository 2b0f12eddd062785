"""Simulators: what they promise about shapes, bounds and truth."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled.datasets import make_regression_sites
from unpooled.errors import UsageError


def test_rows_of_sites_lie_within_their_bounds_and_follow_one_model() -> None:
    data = make_regression_sites(4000, 3, sites=4, noise=0.1, seed=1)
    assert np.abs(data.rows).max() <= data.bounds[1] == -data.bounds[0]
    assert np.abs(data.response).max() <= data.response_bounds[1] == -data.response_bounds[0]
    found = np.linalg.lstsq(data.rows, data.response, rcond=None)[0]
    assert found == pytest.approx(data.coefficients, abs=0.03)
    assert np.linalg.norm(data.coefficients) == pytest.approx(1.0)
    names, counts = np.unique(data.site, return_counts=True)
    assert names.tolist() == ["site0", "site1", "site2", "site3"]
    assert counts.tolist() == sorted(counts.tolist())
    middles = np.array([data.rows[data.site == name].mean(axis=0) for name in names])
    assert middles.std(axis=0).max() > 0.1
    again = make_regression_sites(4000, 3, sites=4, noise=0.1, seed=1)
    assert np.array_equal(again.rows, data.rows)


@pytest.mark.parametrize("wrong", [{"n_samples": 5, "sites": 3}, {"n_features": 0}, {"sites": 0}, {"noise": -1.0}])
def test_shapes_that_make_no_sense_are_refused(wrong: dict) -> None:
    with pytest.raises(UsageError, match="at least 2 rows"):
        make_regression_sites(**wrong)
