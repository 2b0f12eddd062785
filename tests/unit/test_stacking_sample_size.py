"""Theorem 5 of the stacking paper as a function: by hand, its reduction to Proposition 2, and its directions."""

from __future__ import annotations

import math

import pytest

from unpooled.errors import UsageError
from unpooled.models.stacking.estimator import rows_wanted

ASKED = {"excess": 0.1, "epsilon": 1.0, "delta": 0.05}


def test_it_is_the_printed_maximum() -> None:
    assert rows_wanted(1.0, 100, **ASKED) == pytest.approx(100 * math.log(2000) / 0.1)  # the noise decides
    assert rows_wanted(30.0, 2, **ASKED) == pytest.approx(900 * math.log(20) / 0.01)  # sampling does
    assert rows_wanted(30.0, 2, excess=10.0, epsilon=1e-2, delta=0.9) == pytest.approx(900 / 0.1)  # the penalty does
    assert rows_wanted(1.0, 100, share=0.5, groups=5, **ASKED) == pytest.approx(100 * math.log(400) / (2.5 * 0.1))
    assert rows_wanted(1.0, 100, constant=3.0, **ASKED) == pytest.approx(3 * rows_wanted(1.0, 100, **ASKED))


def test_important_groups_and_more_privacy_budget_want_fewer_rows() -> None:
    important, even = (rows_wanted(1.0, 100, share=q, groups=5, **ASKED) for q in (0.6, 0.2))
    assert important < even < rows_wanted(1.0, 100, **ASKED) * 1.0001
    wanted = [rows_wanted(1.0, 100, excess=0.1, epsilon=e) for e in (0.1, 1.0, 10.0)]
    assert wanted == sorted(wanted, reverse=True)
    for wrong in ({"length": 0.0}, {"columns": 0}, {"share": 0.0}, {"excess": -1.0}):
        with pytest.raises(UsageError, match="positive"):
            rows_wanted(**{"length": 1.0, "columns": 3, **ASKED, **wrong})
