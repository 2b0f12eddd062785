"""No value of the data stands anywhere that people look: in messages, the folder of a run, its report, what is logged or printed, saved models, errors."""

from __future__ import annotations

import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import CASES as CASES
from test_interface import ESTIMATORS as FITTED
from test_interface import fits
from world import FULL

from unpooled.audit.transcripts import audit_sealed, canaries
from unpooled.errors import UnpooledError
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.study.made_up import made_up
from unpooled.testing.traces import *

sys.path[:0] = [str(Path(__file__).parents[1] / part) for part in ("unit", "contract")]

from test_estimation import ESTIMATORS  # noqa: E402 - of another folder

#: Estimators that keep what belongs to a party: their pickles say so (`docs/guarantee.md`).
KEEPING = ("pride", "pride-classifier", "pride-counts")


@pytest.mark.minutes
@pytest.mark.parametrize("name", ESTIMATORS if FULL else [*KEEPING, "bayes", "pls"])
def test_a_saved_model_has_no_value_of_the_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control beside it: the same search finds a table that was pickled."""
    from test_interface import rows

    fitted = fits(FITTED[name], monkeypatch)[0]
    X, _ = rows(name, 1)
    hidden = canaries(Table({f"x{j}": X[:, j] for j in range(X.shape[1])}))
    assert any(value in pickle.dumps(X) for value in hidden)
    saved = pickle.dumps(fitted)
    assert not any(value in saved for value in hidden)


@pytest.mark.parametrize("broken", ["beyond the bounds", "missing", "another class", "another number of rows", "words"])
def test_a_refusal_has_no_value_of_the_data(broken: str) -> None:
    kind, own, y = ESTIMATORS["stacking"]
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (80, 6)) + 1e-10
    values = {value for value in canaries(Table({f"x{j}": X[:, j] for j in range(6)})) if len(value) > 8}
    labels: np.ndarray = np.asarray(y)
    frame: object = X
    if broken == "missing":
        X[3, 2] = np.nan
    elif broken == "another class":
        labels = np.where(np.arange(80) == 5, 7, labels.astype(int))
    elif broken == "another number of rows":
        labels = labels[:-1]
    elif broken == "words":
        frame = X.astype(object)
        frame[2, 2] = "secret-0123456789"
    refused: list[str] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            kind(**{"bounds": (-0.2, 0.2), "epsilon": 2.0, **own}).fit(frame, labels)
        except (UnpooledError, ValueError, TypeError) as error:
            refused.append(f"{error!r} {error.__cause__!r}")
    text = " ".join([*refused, *(str(warning.message) for warning in said)])
    assert refused or broken == "beyond the bounds"
    assert "secret" not in text
    assert not any(value.decode()[:9] in text for value in values)


@pytest.mark.long_for("distributed")
@pytest.mark.parametrize("mode", ["distributed", "trusted", "local"])
def test_what_is_sealed_is_judged_alike_whatever_its_length(mode: str) -> None:
    """A fragment that is no seed may have the length of one: then it is neither a secret nor a repetition."""
    found = []
    for columns in range(1, 6):
        every = tuple(Column(name, -1.0, 1.0) for name in (*(f"x{j}" for j in range(columns)), "y"))
        cards = tuple(Card(name, 20, every) for name in ("north", "south", "west"))
        asked: dict[str, Any] = {"parameters": {"response": "y"}, "trust": {"aggregation": mode}, "derived": ()}
        study, tables = made_up(load("bayes"), Study("bayes", cards, 1.0, 1e-6, **asked), 20)
        found += audit_sealed(load("bayes"), study, tables, registry=load)
    assert found == []
