"""Published forms have their papers' settings by every door: an estimator, a call, a study that names none, the template; what a paper lacks is refused."""

from __future__ import annotations

import math
import re
import tomllib
import warnings
from typing import Any

import msgspec
import numpy as np
import pytest

from unpooled import papers
from unpooled.errors import UsageError
from unpooled.models import load
from unpooled.privacy.study import Study
from unpooled.protocol.registry import Model

pytestmark = pytest.mark.filterwarnings("ignore::unpooled.errors.PrivacyLeakWarning")

RNG = np.random.default_rng(8)
X = np.clip(RNG.normal(size=(60, 12)) / 3, -1, 1)
Y = np.clip(X @ RNG.normal(size=12) / 3, -1, 1)
CALLS: dict[str, Any] = {
    "pride": lambda **more: papers.fit_pride(X, Y, bounds=(-1, 1), random_state=1, **more),
    "stacking": lambda **more: papers.fit_stacking(
        X, Y > 0, 3, **{"bounds": (-1, 1), "random_state": 1, "penalty": 0.01, **more}
    ),
    "bayes": lambda **more: papers.fit_bayes(
        X, Y, ["a", "b"] * 30, bounds=(-1, 1), y_bounds=(-1, 1), random_state=1, **more
    ),
    "lasso": lambda **more: papers.fit_lasso(X, Y, bounds=(-1, 1), y_bounds=(-1, 1), random_state=1, **more),
    "pls": lambda **more: papers.fit_pls(X, Y, bounds=(-1, 1), y_bounds=(-1, 1), random_state=1, **more),
}
#: What the rows say of roles is a part of [trust], and of delta and unit a part of the study.
NO_PARAMETERS = {"delta", "unit", "meta", "aggregation"}


def row(system: str) -> Model:
    return load(f"{system}-published")


def said(study: Study) -> dict[str, Any]:
    return {"delta": study.delta, "unit": study.unit, **study.trust, **study.parameters}


@pytest.mark.parametrize("system", CALLS)
def test_one_call_has_the_papers_settings_and_promises_nothing(system: str) -> None:
    model = CALLS[system]()
    study = model.plan_.study
    assert study.row == f"{system}-published"
    assert not model.plan_.statement.holds
    for name, value in row(system).form.defaults.items():
        assert said(study).get(name) == value, name
    assert "this study has them" in " ".join(model.plan_.notes)


@pytest.mark.parametrize("system", CALLS)
def test_an_estimator_at_its_defaults_asks_the_same(system: str) -> None:
    model = CALLS[system]()
    alone = type(model)(**model.get_params())
    assert alone.get_params() == model.get_params()
    own = row(system).form.defaults
    assert own
    for name, value in own.items():
        if name in alone.get_params():
            assert alone._taken(name) == value
    sound = type(model)(**{**model.get_params(), "calibration": "sound"})
    assert not sound._of_form  # the settings are of one form alone


@pytest.mark.parametrize("system", CALLS)
def test_a_study_that_names_none_has_them_too_and_the_template_writes_them(system: str) -> None:
    study = CALLS[system]().plan_.study
    own, fields = (
        row(system).form.defaults,
        {f.name for f in msgspec.structs.fields(type(row(system).compile(study).design.parameters))},
    )
    kept = {name: value for name, value in study.parameters.items() if name not in own}
    bare = row(system).compile(msgspec.structs.replace(study, parameters=kept)).design.parameters
    full = row(system).compile(study).design.parameters
    assert {name: getattr(bare, name) for name in own if name in fields} == {
        name: getattr(full, name) for name in own if name in fields
    }
    template = row(system).template
    assert template is not None
    lines = [line.split("#")[0] for line in template.parameters.splitlines() if re.match(r"\w+ = ", line)]
    written = tomllib.loads("\n".join(lines))
    assert {name: written[name] for name in own if name in fields} == {
        name: value for name, value in own.items() if name in fields
    }
    assert template.delta == own.get("delta", template.delta)


@pytest.mark.parametrize("system", CALLS)
def test_a_departure_is_named_in_the_plan(system: str) -> None:
    changed = {
        "pride": {"sketch_dim": 0.1},
        "stacking": {"high_share": 0.3},
        "bayes": {"projection": 0.1},
        "lasso": {"delta": 1e-3},
        "pls": {"n_components": 2},
    }
    ((name, value),) = changed[system].items()
    assert f"{name} = {value} in their place" in " ".join(CALLS[system](**changed[system]).plan_.notes)


REFUSED: dict[str, dict[str, Any]] = {
    "pride": {
        "adjacency": "zero-out",
        "unit": "record",
        "sketch": "gaussian",
        "publish": 0.1,
        "clip_norm": 2.0,
        "noise_model": "calibrated",
    },
    "stacking": {
        "adjacency": "zero-out",
        "delta": 1e-5,
        "noise": "gaussian",
        "rows": "unit",
        "importance": "private",
        "predictions_share": 0.4,
        "multi_class": "one-vs-rest",
        "rates": 0.3,
    },
    "bayes": {
        "adjacency": "zero-out",
        "unit": "household",
        "geometry": "box",
        "covariance": "robust",
        "focus": ["x0"],
        "method": "refinement",
        "site_effects": "fixed",
        "formula": "x0 + x1",
    },
    "lasso": {
        "adjacency": "zero-out",
        "method": "moments",
        "coupling": "blocks",
        "clip": 1.0,
        "refit": 0.5,
        "response_public": True,
    },
    "pls": {"unit": "household", "basis": "bspline", "basis_size": 5, "method": "moments", "tolerate": 1},
}


@pytest.mark.parametrize(("system", "name"), [(system, name) for system, names in REFUSED.items() for name in names])
def test_what_the_paper_lacks_is_refused(system: str, name: str) -> None:
    with pytest.raises(UsageError, match=r"not in the paper|published|the paper"):
        CALLS[system](**{name: REFUSED[system][name]})


@pytest.mark.parametrize("system", CALLS)
def test_a_study_is_refused_what_the_paper_lacks(system: str) -> None:
    study = CALLS[system]().plan_.study
    kind = type(row(system).compile(study).design.parameters)
    names = sorted(row(system).form.lacks & {f.name for f in msgspec.structs.fields(kind)})
    assert names
    for name in names:
        with pytest.raises(UsageError):
            row(system).compile(msgspec.structs.replace(study, parameters={**study.parameters, name: ["of no paper"]}))


def test_the_penalty_of_a_stack_is_the_validation_sets() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (1500, 6))
    labels = np.where(rows[:, 0] > rows[:, 5], "yes", "no")
    model = papers.fit_stacking(rows, labels, 3, epsilon=3.0, bounds=(-1, 1), random_state=0)
    assert model.penalty in papers.calls.PENALTIES
    assert sum(card.rows for card in model.plan_.study.parties) == 3 * 1000  # a third validates
    tried = {
        penalty: papers.fit_stacking(rows, labels, 3, epsilon=3.0, bounds=(-1, 1), random_state=0, penalty=penalty)
        for penalty in papers.calls.PENALTIES
    }
    assert all(one.plan_.study.parties[0].rows == 1500 for one in tried.values())
    with pytest.raises(UsageError, match="two classes"):
        papers.fit_stacking(rows, np.arange(1500) % 3, 3, bounds=(-1, 1))


def test_pst_s_deals_half_of_the_rows_to_the_high_level() -> None:
    model = papers.fit_stacking(X, Y > 0, 3, split="samples", penalty=0.1, bounds=(-1, 1), random_state=1)
    counts = [card.rows for card in model.plan_.study.parties]
    assert counts[-1] == 30
    assert sorted(counts[:-1]) == [10, 10, 10]
    assert model.high_.size == 3


@pytest.mark.slow
def test_every_record_may_be_a_client() -> None:
    """N = n, as the authors' program has it: parties of one record each, and a sum that a few of them open."""
    model = papers.fit_bayes(X[:, :2], Y, epsilon=5.0, bounds=(-1, 1), y_bounds=(-1, 1), random_state=1)
    assert [card.rows for card in model.plan_.study.parties] == [1] * 60
    # Shares of variance 1 / (N - 1): nearly the trusted party's noise.
    alone = papers.fit_bayes(
        X[:, :2],
        Y,
        ["a"] * 30 + ["b"] * 30,
        epsilon=5.0,
        bounds=(-1, 1),
        y_bounds=(-1, 1),
        aggregation="trusted",
        random_state=1,
    )
    ours, theirs = (one.plan_.design.moments.deviations(one.plan_) for one in (model, alone))
    assert ours / theirs == pytest.approx(np.full(ours.size, math.sqrt(60 / 59)), rel=1e-3)


@pytest.mark.guarantee
def test_a_study_of_one_record_is_refused() -> None:
    study = CALLS["bayes"]().plan_.study
    one = msgspec.structs.replace(study.parties[0], rows=1)
    with pytest.raises(UsageError, match="at least 2 rows"):
        msgspec.structs.replace(study, parties=(one,))


def test_the_folder_says_what_it_has() -> None:
    assert papers.__all__ == ["fit_bayes", "fit_lasso", "fit_pls", "fit_pride", "fit_stacking"]
    with pytest.raises(AttributeError, match="fit_other"):
        _ = papers.fit_other
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CALLS["pls"]()  # nothing is promised, so nothing is lost: no warning
