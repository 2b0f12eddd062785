"""Stacking as printed: what the paper remarks, and the protocol of ``experiments/stacking``."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from unpooled import Bounds, PrivateLogisticRegression, PrivateStackingClassifier

SHARED = {"calibration": "published", "fit_intercept": False, "epsilon": 1.0, "bounds": Bounds(norm=1.0), "classes": (0, 1)}
SHARED |= {"penalty": 0.01}


@pytest.fixture
def protocol(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    return importlib.import_module("experiments.stacking._protocol")


def test_one_group_of_importance_is_one_fit_of_that_group() -> None:
    """Remark 1 of the PST paper: with importance on one group alone, Algorithm 3 is Algorithm 1 on that group."""
    groups, learns = {"a": [0, 1], "b": [2, 3]}, {"meta": "trusted", "high_share": 0.5}
    alone = PrivateLogisticRegression(**SHARED).plan(200, 2).releases[0].mechanism
    stacks = {
        q: PrivateStackingClassifier(groups, importance={"a": 1.0, "b": q}, **learns, **SHARED).plan(400, 4).releases
        for q in (0.0, 1.0)
    }
    blocks = {q: [one.mechanism for one in releases if one.name == "block"] for q, releases in stacks.items()}
    assert blocks[0.0] == [alone]
    assert len(blocks[1.0]) == 2
    assert alone not in blocks[1.0]


def test_groups_have_the_papers_shares_and_lengths(protocol: ModuleType) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 10)) * np.arange(1, 11)
    data = (X, np.zeros(200, int), X[:20], np.zeros(20, int), float(np.linalg.norm(X, axis=1).max()), X.var(axis=0))
    (scaled, *_, norm, _), groups, shares = protocol.parted(data, 5, data[5], seed=1)
    assert groups["g00"] == [8, 9]
    total = sum(shares.values())
    assert shares["g00"] / total == pytest.approx(data[5][8:].sum() / data[5].sum())  # (6)
    assert norm == 1.0
    assert [np.linalg.norm(scaled[:, part], axis=1).max() for part in groups.values()] == pytest.approx([1.0] * 5)
    _, uniform, none = protocol.parted(data, 5, None, seed=1)
    assert none is None
    assert sorted(c for part in uniform.values() for c in part) == list(range(10))
    assert uniform != groups


def test_the_high_level_has_half_of_the_rows(protocol: ModuleType) -> None:
    names, counts = np.unique(protocol.halves(101, 5, seed=3), return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True))["top"] == round(101 / 2)
    assert len(names) == 6
    assert np.ptp(counts[:-1]) <= 1


def test_a_verdict_is_of_two_standard_errors(protocol: ModuleType) -> None:
    one = np.array([0.80, 0.82, 0.81, 0.83])
    assert protocol.verdict(one, one - 0.05 + np.array([0.0, 0.001, 0.0, 0.001])) == "yes"
    assert protocol.verdict(one - 0.05 + np.array([0.0, 0.001, 0.0, 0.001]), one) == "no"
    assert protocol.verdict(one, one[::-1]) == "within the errors"
