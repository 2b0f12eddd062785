"""The estimator that a finished study amounts to asks what the study asked: whom it protects, how much, with which seeds and which trust."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from sklearn.base import clone

import unpooled
from unpooled.errors import UsageError
from unpooled.models import fitted, load
from unpooled.privacy.origin import PRIOR, ReleasedInput
from unpooled.privacy.plan import HelperCard, Study
from unpooled.privacy.unit import Adjacency
from unpooled.study.finished import Run
from unpooled.testing.cases import Case, ran, units_of

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
from cases import CASES

#: Models whose finished studies amount to an estimator.
PREDICTING = ("bayes", "glm", "lasso", "pls", "stacking")
NAMES = [name for name in CASES if name.partition(",")[0] in PREDICTING]
pytestmark = pytest.mark.filterwarnings("ignore:The released (covariance|moments)", "ignore::UserWarning")


def estimator_of(study: Study, case: Case, folder: Path) -> Any:
    """Return the estimator of a run of this study."""
    folder.mkdir(exist_ok=True)
    run = Run.read(ran(folder, study, case.tables))
    return run.plan, fitted(run.plan, run.result)


def same(one: object, other: object) -> bool:
    """Return True if two values are equal, whether lists or tuples hold them and whether nothing is empty text or None."""
    plain = [
        msgspec.json.encode(value.tolist() if isinstance(value, np.ndarray) else value or None) for value in (one, other)
    ]
    return plain[0] == plain[1]


def asked(study: Study, plan: Any) -> dict[str, Any]:
    """Return everything that a study says under the name of a parameter that an estimator may have."""
    of_form = load(study.row).form.renamed
    own = {name: getattr(plan.design.parameters, name) for name in plan.design.parameters.__struct_fields__}
    # Earlier models have another form in an estimator; the class says the loss; a matrix is the basis itself.
    written = {name: value for name, value in own.items() if name not in {"prior", "split", "matrix", "ranks"}}
    if own.get("matrix"):
        written["basis"] = own["matrix"]
    if own.get("ranks"):
        written |= {"falling": own["ranks"], "importance": "private"}
    joint = {"helpers": len(study.helpers)} if plan.joint else {}
    return (
        {name: getattr(study, name) for name in ("epsilon", "delta", "unit", "adjacency", "calibration", "public_seed")}
        | {"random_state": study.simulation_seed, "rows_per_household": study.household_rows}
        | study.trust
        | joint
        | written
        | {ours: written[theirs] for ours, theirs in of_form.items() if theirs in written}
    )


@pytest.mark.long_for("bayes", "glm, columns", "glm, columns of counts", "glm, columns of times")
@pytest.mark.slow_for(
    "bayes",
    "bayes, robust",
    "bayes, sites",
    "bayes, focus",
    "glm, sites",
    "glm, direction",
    "glm, prior",
    "glm, columns",
    "stacking, ranked",
    "stacking, probabilities",
    "pls, two responses by rounds",
    "bayes, columns",
    "bayes, sines",
    "glm",
    "glm, poisson robust",
    "glm, multinomial",
    "glm, survival",
    "glm, columns of counts",
    "glm, columns of times",
)
@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_of_a_study_is_that_of_its_estimator(name: str, tmp_path: Path) -> None:
    """P12: a household study with zero-out, a trusted aggregator and sites gave an estimator of records, replaced, added up in parts, pooled."""
    case, tried = CASES[name](), 0
    for unit in units_of(case.study):
        for adjacency in Adjacency:
            changes = {"unit": str(unit), "adjacency": str(adjacency), "public_seed": 11, "simulation_seed": 13}
            study = msgspec.structs.replace(case.study, **changes)
            try:
                load(study.row).compile(study)
            except UsageError:  # not offered by this model
                continue
            tried += 1
            plan, model = estimator_of(study, case, tmp_path / f"{unit}{adjacency}")
            for one in (model, clone(model), pickle.loads(pickle.dumps(model)), clone(clone(model))):
                held = one.get_params(deep=False)
                unlike = {
                    key: (value, held[key])
                    for key, value in asked(study, plan).items()
                    if key in held and not same(value, held[key])
                }
                assert not unlike, f"{unit}, {adjacency}"
            if "unit" not in model.get_params() and unit != "record":
                refuses(model, "unit")
    assert tried


def refuses(model: Any, words: str) -> None:
    """The estimator, and what scikit-learn makes of it, is refused a fit before it looks at data."""
    for one in (model, clone(model), clone(model).set_params(epsilon=1.0)):
        with pytest.raises(UsageError, match=words):
            one.fit(np.zeros((40, one.n_features_in_ if hasattr(one, "n_features_in_") else 3)), np.zeros(40))


def frame_of(case: Case) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the rows of all sites in one frame, and the site of each."""
    columns = [column.name for column in case.study.parties[0].columns]
    held = {c: [v for table in case.tables.values() for v in np.asarray(table[c]).tolist()] for c in columns}
    return held, [name for name, table in case.tables.items() for _ in range(table.n_rows)]


@pytest.mark.slow_for("bayes", "pls")
@pytest.mark.parametrize("name", ["bayes", "bayes, sites", "glm, sites", "pls", "glm, poisson robust"])
def test_a_clone_fits_what_the_study_promised(name: str, tmp_path: Path) -> None:
    """The plan of a fit of the clone to all rows promises what the study did: epsilon, delta, unit, adjacency, releases and their noise."""
    import pandas as pd

    case = CASES[name]()
    study = msgspec.structs.replace(case.study, adjacency="zero-out", trust={"aggregation": "trusted"}, simulation_seed=None)
    if "tolerate" in study.parameters:
        study = msgspec.structs.replace(study, parameters=study.parameters | {"tolerate": 0})
    plan, model = estimator_of(study, case, tmp_path / "run")
    rows, sites = frame_of(case)
    frame = pd.DataFrame(rows)
    y = frame[study.parameters["response"]] if name == "pls" else study.parameters["response"]
    frame = frame.drop(columns=study.parameters["response"]) if name == "pls" else frame
    more = {role: frame.pop(study.parameters[role]) for role in ("exposure", "offset") if study.parameters.get(role)}
    again = clone(model).fit(frame, y, sites=sites, **more).plan_
    for field in ("epsilon", "delta", "unit", "adjacency", "calibration", "trust", "public_seed", "derived"):
        assert getattr(again.study, field) == getattr(plan.study, field), field
    assert [(r.step, str(r.mechanism)) for r in again.releases] == [(r.step, str(r.mechanism)) for r in plan.releases]
    assert again.statement.holds


def test_households_of_a_study_are_those_of_its_estimator(tmp_path: Path) -> None:
    case = CASES["bayes, cluster"]()
    _, model = estimator_of(case.study, case, tmp_path / "run")
    own = clone(model).get_params()
    assert (own["unit"], own["rows_per_household"], own["aggregation"]) == ("household", 6, "trusted")
    rows, sites = frame_of(case)
    import pandas as pd

    frame = pd.DataFrame(rows)
    with pytest.raises(UsageError, match="unit_id"):  # never as if every row were a person
        clone(model).fit(frame, "pressure", sites=sites)


def test_what_no_parameter_holds_refuses_a_fit_by_name(tmp_path: Path) -> None:
    case = CASES["glm"]()
    study = msgspec.structs.replace(case.study, parameters={"response": "ill", "rows": "unit", "method": "moments"})
    _, model = estimator_of(study, case, tmp_path / "run")
    refuses(model, "rows")
    model.save(tmp_path / "model")
    refuses(unpooled.load(tmp_path / "model"), "rows")
    again = pickle.loads(pickle.dumps(model))
    refuses(again, "rows")
    with pytest.raises(UsageError, match="make an estimator of your own"):
        model.plan(100, 3)


def test_an_estimator_that_was_made_by_hand_of_a_study_is_held_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of another package words its own ``fitted``: what it forgets refuses a fit."""
    from unpooled.models.pls import estimator as home

    case = CASES["pls"]()
    study = msgspec.structs.replace(case.study, adjacency="zero-out", trust={"aggregation": "trusted"}, public_seed=3)
    study = msgspec.structs.replace(study, parameters=study.parameters | {"tolerate": 0})
    made = home.fitted

    def forgetful(plan: Any, result: Any) -> Any:
        return made(plan, result).set_params(adjacency="replace", aggregation="distributed", random_state=None)

    monkeypatch.setattr(home, "fitted", forgetful)
    _, model = estimator_of(study, case, tmp_path / "run")
    refuses(model, "adjacency.*aggregation.*random_state")


def test_an_earlier_models_origin_that_is_lost_refuses_a_fit(tmp_path: Path) -> None:
    """The study was drawn to a release, whose price its statement counts: numbers alone would not."""
    case = CASES["glm, prior"]()
    origin = ReleasedInput(PRIOR, "0" * 64, holds=True)
    _, model = estimator_of(msgspec.structs.replace(case.study, origins=(origin,)), case, tmp_path / "run")
    refuses(model, "prior")


def test_helpers_and_parties_of_a_joint_study_are_its_estimators(tmp_path: Path) -> None:
    case = CASES["bayes, columns"]()
    study = msgspec.structs.replace(case.study, helpers=(HelperCard("registry"),))
    _, model = estimator_of(study, case, tmp_path / "run")
    own = clone(model).get_params()
    assert own["parties"] == {"east": ["age", "smoker"], "west": ["dose"]}
    assert (own["helpers"], own["response_at"], own["check"]) == (1, "west", "proof")
