"""What an estimator shows after ``fit`` is what ``unpooled.audit.interface`` says: a function of declarations, of releases, or named as a party's own."""

from __future__ import annotations

import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unpooled import TreatmentEffect, describe, diagnose, survival, tabulate
from unpooled.audit.interface import EVERYWHERE, OWN
from unpooled.errors import ProtocolError
from unpooled.privacy.classes import Classes
from unpooled.testing.shown import *

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from test_estimation import ESTIMATORS as KINDS
from test_estimation import SITES

RNG = np.random.default_rng(5)

#: Drawn noise would hide the effect of a category in one fit of three, and what is not identified is not shown.
SEEN: dict[str, Any] = {"bounds": (-1, 1), "epsilon": 20.0, "random_state": 0}


def rows(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """As many other rows and responses as the estimator's own test has, of which it takes any."""
    _, own, y = KINDS[name]
    rng = np.random.default_rng(seed)
    found = rng.uniform(-1, 1, (80, 6)), np.asarray(y)[rng.permutation(80)]
    return found if y.dtype == bool or own.get("family") == "poisson" else (found[0], np.clip(found[0][:, 2], -2, 2))


def fitted(name: str, seed: int, noise: int) -> Any:
    kind, own, _ = KINDS[name]
    return kind(**{"bounds": (-1, 1), "epsilon": 20.0, "random_state": noise, **own}).fit(*rows(name, seed))


#: Every estimator, fitted to the rows of a seed with the noise of another.
ESTIMATORS = {name: partial(fitted, name) for name in KINDS}


@pytest.mark.long
def test_the_table_has_no_attribute_that_nobody_shows() -> None:
    """Over every estimator, frames with names included."""
    found: dict[str, set[str]] = {}
    for name, (kind, own, y) in KINDS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = kind(**{**SEEN, **own}).fit(rows(name, 1)[0], y)
        found.setdefault(kind.__name__, set()).update(shown_by(model))
    described = describe(rows("bayes", 1)[0], bounds=(-1, 1), sites=SITES)
    fitted = KINDS["bayes"][0](**SEEN, y_bounds=(-2, 2)).fit(*rows("bayes", 1))
    focused = KINDS["bayes"][0](**SEEN, y_bounds=(-2, 2), focus=["x0"]).fit(*rows("bayes", 1))
    found[type(focused).__name__].update(shown_by(focused))
    for name, more in (
        ("lasso", {"method": "joint", "unit": "record"}),
        ("lasso-classifier", {"method": "joint", "unit": "record"}),
        ("pls", {"method": "moments"}),
        *((name, {"method": "moments", "radius": None, "prior": {"x0": 1.0}}) for name in ("lasso", "lasso-classifier")),
        ("bayes", {"prior": {"x0": 1.0}}),
        ("glm", {"prior": {"x0": 1.0}}),
        ("pls", {"prior": {"x0": 1.0}}),
        ("pride", {"prior": {"x0": 1.0}}),
        ("pride-classifier", {"prior": {"x0": 1.0}}),
        ("pride-counts", {"prior": {"x0": 1.0}}),
    ):
        kind, own, y = KINDS[name]
        found[kind.__name__].update(shown_by(kind(**{**SEEN, **own, **more}).fit(rows(name, 1)[0], y)))
    ranges = {f"x{j}": (-1, 1) for j in range(6)}
    parties = {"one": ["x0", "x1", "x2"], "two": ["x3", "x4", "x5"]}
    apart = describe(dict(zip(ranges, rows("bayes", 1)[0].T, strict=True)), ranges, parties=parties)
    found[type(apart).__name__] = set(shown_by(apart))
    crossed = tabulate(rows("bayes", 1)[0][:, 0], "x0", (-1, 1), cuts={"x0": 3})
    arms = np.array(["a", "b"])[np.arange(rows("bayes", 1)[0].shape[0]) % 2]
    trial = {
        "x": rows("bayes", 1)[0][:, 0],
        "days": np.abs(rows("bayes", 1)[0][:, 1]),
        "arm": arms,
        "died": (arms == "a").astype(float),
    }
    known = {"x": (-1, 1), "days": (0, 1), "arm": ["a", "b"], "died": (0, 1)}
    compared, alive = describe(trial, known, by="arm"), survival(trial, "days", "died", "arm", known)
    given = {**SEEN, "epsilon": 200.0, "bounds": known, "max_passes": 6, "prior": {"ATE": 1.0}}
    effect = TreatmentEffect("arm", outcome="days", covariates="x", **given).fit(trial)
    for result in (described, compared, alive, crossed, effect, diagnose(fitted, *rows("bayes", 2), epsilon=5.0)):
        found[type(result).__name__] = set(shown_by(result))
    assert set(found) == set(OWN)
    assert {kind: missing for kind, own in OWN.items() if (missing := set(own) - found[kind])} == {}
    assert set(EVERYWHERE) - set.union(*found.values()) == {"feature_names_in_"}


def test_what_a_party_keeps_stays_out_of_files_and_prints() -> None:
    """Whoever saves, prints or pickles an estimator passes on what it shows: a party's own things are no part of it."""
    import pickle

    for name in ("pride", "pride-classifier"):
        kind, own, _ = KINDS[name]
        model = kind(**{"bounds": (-1, 1), "epsilon": 20.0, **own}).fit(*rows(name, 1))
        assert not hasattr(pickle.loads(pickle.dumps(model)), "kept_")


def test_classes_read_off_the_labels_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """G4: what was called public followed from a label: here, which class comes first."""
    one, two, _ = fits(ESTIMATORS["logistic"], monkeypatch)
    assert content(one.classes_) == content(two.classes_)
    assert rows("logistic", 1)[1][0] != rows("logistic", 2)[1][0]
    first = classmethod(lambda kind, classes, y=None, **_: kind(np.array(list(dict.fromkeys(y.tolist()))), derived=False))
    monkeypatch.setattr(Classes, "given", first)
    with pytest.raises(ProtocolError):  # the plan itself, which names the classes, follows from a label
        fits(ESTIMATORS["logistic"], monkeypatch)
