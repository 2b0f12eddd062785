"""A parameter is declared once: calls, studies, schemas and pages follow, and refuse alike."""

from __future__ import annotations

import importlib.util
import inspect
import json
import tomllib
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

import jsonschema
import msgspec
import numpy as np
import pytest
from cases import CASES, FIRST
from sklearn.base import clone

import unpooled
from unpooled.cli.schemas.files import FILES, declared_parameters, file_document, schema_of_file
from unpooled.errors import UsageError
from unpooled.estimation.calls import _parts, in_study
from unpooled.estimation.parameters import check
from unpooled.inference.estimates import wald_lines
from unpooled.models import load
from unpooled.privacy.declared import Parameter, parameters_of
from unpooled.privacy.study import check_parameters
from unpooled.study.templates import MODELS, template

ROOT = Path(__file__).parents[2]
CALLS = {name: getattr(unpooled, name) for name in unpooled.__all__ if hasattr(getattr(unpooled, name), "arguments")}
ESTIMATORS = {name: call for name, call in CALLS.items() if inspect.isclass(call) and name != "PrivateBayesianRegression"}
STRUCTS = [(model, fields) for model, each in declared_parameters().items() for fields in each]
#: Values of every kind: what a parameter does not take among these is refused with its name.
VALUES: list[Any] = [
    None,
    True,
    1,
    2.5,
    "word",
    [1.0],
    ["a"],
    {"a": 1},
    (0, 1),
    object(),
    np.float64(0.5),
    np.array([1, 2]),
    b"raw",
    {1},
]


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_of_no_kind_that_it_takes_is_refused_by_its_name(name: str) -> None:
    """One property in the place of a test for each parameter and each wrong value."""
    for one in CALLS[name].arguments.values():
        taken = [value for value in VALUES if not one.kinds or any(kind.holds(value) for kind in one.kinds)]
        assert taken, one.name
        for value in VALUES:
            if any(value is other for other in taken):
                check({one.name: one.kinds}, {one.name: value})
                continue
            with pytest.raises(UsageError, match=rf"^{one.name} must be .*, not {type(value).__name__}$"):
                check({one.name: one.kinds}, {one.name: value})


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_refusal_comes_before_anything_else_of_a_fit(name: str) -> None:
    needed = {one.name: "arm" for one in CALLS[name].arguments.values() if one.default is inspect.Parameter.empty}
    for argument in CALLS[name].arguments:
        model = ESTIMATORS[name](**(needed | {argument: b"raw"}))
        with pytest.raises(UsageError, match=rf"^{argument} must be"):
            model.plan(100, 3)


@pytest.mark.parametrize("name", CALLS)
def test_a_default_is_of_a_kind_that_its_argument_takes(name: str) -> None:
    for one in CALLS[name].arguments.values():
        assert one.words.endswith((".", "}", '"')), one.name
        if one.default is not inspect.Parameter.empty:
            check({one.name: one.kinds}, {one.name: one.default})


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_are_scikit_learn_s(name: str) -> None:
    needed = {one.name: "arm" for one in CALLS[name].arguments.values() if one.default is inspect.Parameter.empty}
    model = ESTIMATORS[name](**needed)
    assert list(model.get_params()) == sorted(CALLS[name].arguments)
    model.set_params(epsilon=3.0)
    again = clone(model)
    assert again.get_params() == model.get_params()
    assert again.epsilon == 3.0
    with pytest.raises(TypeError, match=f"^{name} takes no 'epsilom': did you mean 'epsilon'"):
        ESTIMATORS[name](**needed, epsilom=1.0)
    with pytest.raises(TypeError, match="uses every core"):
        ESTIMATORS[name](**needed, n_jobs=2)


def wrong_for(one: Parameter) -> Any:
    """A value that no study may have there: of another kind than all that the type admits."""
    kinds = {get_origin(kind) or kind for kind in _parts(one.type)}
    return next(
        value
        for kind, value in ((str, "word"), (dict, {"a": {}}), (tuple, [{}]), (bool, True))
        if kind not in kinds and not (kind is bool and int in kinds)
    )


@pytest.mark.parametrize(("model", "fields"), STRUCTS, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_a_study_refuses_a_value_of_another_kind_and_an_unknown_key_by_name(
    model: str, fields: type[msgspec.Struct]
) -> None:
    case = CASES[FIRST[model]]().study
    declared = parameters_of(fields)
    right = {
        name: in_study(one.type, one.example if one.example is not None else one.default)
        for name, one in declared.items()
        if one.required
    }
    for name, one in declared.items():
        study = msgspec.structs.replace(case, parameters=right | {name: wrong_for(one)})
        with pytest.raises(UsageError, match=rf"parameters of model '{model}'.*\$\.{name}"):
            check_parameters(study, fields)
    with pytest.raises(UsageError, match="unknown field `epsilom`"):
        check_parameters(msgspec.structs.replace(case, parameters=right | {"epsilom": 1}), fields)


@pytest.mark.parametrize(("model", "fields"), STRUCTS, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_every_declared_parameter_has_words_and_a_default_of_its_type(model: str, fields: type[msgspec.Struct]) -> None:
    for name, one in parameters_of(fields).items():
        assert len(one.words) > 10, (model, name)
        assert one.words.endswith((".", "}", "]")), (model, name, one.words)
        if not one.required:
            msgspec.convert(in_study(one.type, one.default), one.type, strict=True)
        if one.example is not None:
            msgspec.convert(in_study(one.type, one.example), one.type, strict=True)
        if one.flag("choices") and NoneType not in _parts(one.type) and isinstance(one.default, str) and one.default:
            assert one.default in one.flag("choices"), (model, name)
    assert get_args(str) == ()


# --- schemas ---------------------------------------------------------------------------------------------------------------

SCHEMA = schema_of_file("study file")


def problems(text: str) -> list[str]:
    found = jsonschema.Draft202012Validator(SCHEMA).iter_errors(tomllib.loads(text))
    return [error.message for error in found]


@pytest.mark.parametrize("model", MODELS)
def test_the_schema_admits_what_a_new_study_file_says_and_marks_what_is_wrong(model: str) -> None:
    text = template(model, ["a.card.toml", "b.card.toml"])
    assert not problems(text)
    assert problems(text.replace("[parameters]", '[parameters]\nunknown_word = "x"'))
    assert problems(text.replace("epsilon = ", 'epsilon = "much" # '))
    assert problems(text.replace("[study]", "[study]\nmodle = 1"))


def test_the_committed_files_are_what_the_declared_parameters_say() -> None:
    """If this fails, run `python -m unpooled.cli.schemas --write` and `python docs/parameters.py`."""
    for name in FILES:
        assert (ROOT / "docs/schemas" / f"{name.replace(' ', '-')}.json").read_bytes() == file_document(name)
        jsonschema.Draft202012Validator.check_schema(json.loads(file_document(name)))
    spec = importlib.util.spec_from_file_location("parameters_of_docs", ROOT / "docs/parameters.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    held = {file.name: file.read_text(encoding="utf-8") for file in (ROOT / "docs/parameters").iterdir()}
    assert held == script.tables()
    page = (ROOT / "docs/studies.md").read_text(encoding="utf-8")
    assert all(f"{{include}} parameters/{name}" in page for name in held)
    assert all(load(model).template for model in declared_parameters())


@pytest.mark.parametrize("model", MODELS)
def test_every_line_of_a_new_study_file_may_stand_without_its_comment_sign(model: str) -> None:
    text = template(model, ["a.card.toml", "b.card.toml"])
    own = text.partition("[parameters]\n")[2].split("\n[")[0]
    lines = [line for line in own.splitlines() if " = " in line]
    assert lines
    for line in lines:
        assert not problems(text.replace(line, line.removeprefix("# "))), line


EARLIER = """
prior = ["rows:register.csv", "run:spring.run", { name = "Lund 2019", intercept = -4.2, coefficients = { age = 0.05 } }]
prior_rows = "others"
prior_analysis = "stay"
"""
RIGHT = [
    ("bayes", "prior_precision = 3.5"),
    ("bayes", EARLIER),
    ("glm", 'prior = "run:spring.run"'),
    ("pride", 'family = ""\nloss = ""'),
    ("pride", "alpha = 0.5"),
    ("stacking", 'prior = "run:spring.run"'),
    ("stacking", "prior = { a = [0.5] }"),
    ("pls", 'response = ["starch", "oil"]\nn_components = 4'),
]
WRONG = [
    ("bayes", 'prior_precision = "much"'),
    ("bayes", 'prior = "spring.run"'),
    ("bayes", 'prior_rows = "mine"'),
    ("tables", EARLIER),
    ("glm", 'site_effects = "random"'),
    ("glm", 'method = "irls"'),
]


@pytest.mark.parametrize(("model", "line"), RIGHT)
def test_the_schema_admits_every_form_that_a_study_may_have(model: str, line: str) -> None:
    text = template(model, ["a.card.toml", "b.card.toml"])
    key = line.strip().partition(" ")[0]
    free = "\n".join(part for part in text.splitlines() if part.partition(" ")[0] != key)
    assert not problems(free.replace("[parameters]", f"[parameters]\n{line}"))


@pytest.mark.parametrize(("model", "line"), WRONG)
def test_the_schema_marks_what_no_study_may_have(model: str, line: str) -> None:
    assert problems(template(model, ["a.card.toml", "b.card.toml"]).replace("[parameters]", f"[parameters]\n{line}"))


@pytest.mark.parametrize("word", ["unit", "adjacency", "calibration"])
def test_the_schema_lists_the_words_that_every_study_has(word: str) -> None:
    text = template("glm", ["a.card.toml"])
    lines = [line for line in text.splitlines() if line.partition(" ")[0] != word]
    assert problems("\n".join(lines).replace("[privacy]", f'[privacy]\n{word} = "another"'))


# --- roles and numbers of a study ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_a_role_that_a_model_has_not_is_refused(name: str) -> None:
    """A misspelt role of ``[trust]`` had been the default, without a word."""
    study = CASES[name]().study
    asked = msgspec.structs.replace(study, trust=study.trust | {"aggregaton": "trusted"})
    with pytest.raises(UsageError, match=r"aggregaton|stands with it"):
        load(study.row).compile(asked)
    assert problems(template("glm", ["a.card.toml"]) + '\n[trust]\naggregaton = "trusted"\n')
    assert not problems(template("glm", ["a.card.toml"]) + '\n[trust]\naggregation = "trusted"\n')


@pytest.mark.guarantee
def test_a_question_is_asked_for_the_first_time_or_again() -> None:
    with pytest.raises(UsageError, match="from 1 on"):
        msgspec.structs.replace(CASES["bayes"]().study, run=0)


# --- classes that users make from estimators -------------------------------------------------------------------------------


SITES = {f"site {k}": 100 for k in range(4)}


class Own(unpooled.PrivateGLM):
    """A class with a constructor of its own, which sets what its users need not know."""

    def __init__(self, epsilon: float = 1.0, mine: int = 3) -> None:
        super().__init__(epsilon=epsilon, tolerate=1, method="gradient", bounds={"x0": (0, 1), "x1": (0, 1)}, classes=[0, 1])
        self.mine = mine


def test_a_class_with_a_constructor_of_its_own_asks_for_what_its_base_was_given() -> None:
    plan = Own(epsilon=2.0).plan(400, 2, SITES)
    same = unpooled.PrivateGLM(
        epsilon=2.0, tolerate=1, method="gradient", bounds={"x0": (0, 1), "x1": (0, 1)}, classes=[0, 1]
    ).plan(400, 2, SITES)
    assert plan.study.parameters["tolerate"] == 1
    assert plan.hash == same.hash
    assert clone(Own(mine=5)).get_params() == {"epsilon": 1.0, "mine": 5}
    with pytest.raises(UsageError, match=r"^epsilon must be"):
        Own(epsilon="much").plan(400, 2)  # type: ignore[arg-type]


# --- words of calls --------------------------------------------------------------------------------------------------------


def test_no_call_lists_a_word_that_it_always_refuses() -> None:
    listed = {name: {one.name: set(one.choices) for one in call.arguments.values()} for name, call in CALLS.items()}
    assert listed["PrivateGLM"]["calibration"] == {"sound"}
    assert "random" not in listed["PrivateGLM"]["site_effects"]
    assert listed["PrideRegressor"]["adjacency"] == {"replace"}
    assert listed["PrideClassifier"]["loss"] == {"logistic"}
    assert "frank-wolfe" not in listed["PrivateLassoClassifier"]["method"]


@pytest.mark.parametrize(
    ("name", "word", "meant"),
    [
        ("TreatmentEffect", "level", "did you mean 'confidence'"),
        ("PrivateGLM", "level", r"summary\(confidence=...\)"),
        ("PrivateGLM", "alpha", "did you mean 'ridge'"),
        ("PrivateLogisticRegression", "C", r"penalty, 1 / \(n C\)"),
        ("PrivateLinearRegression", "alpha", "did you mean 'prior_precision'"),
    ],
)
def test_a_word_of_another_library_finds_the_parameter_that_the_call_has(name: str, word: str, meant: str) -> None:
    needed = {one.name: "arm" for one in CALLS[name].arguments.values() if one.default is inspect.Parameter.empty}
    with pytest.raises(TypeError, match=meant):
        CALLS[name](**needed, **{word: 0.9})


@pytest.mark.parametrize("given", ["a", 95, True, None, float("nan")])
def test_a_confidence_that_is_none_is_refused(given: Any) -> None:
    values = np.array([1.0])
    with pytest.raises(UsageError, match="between 0 and 1"):
        wald_lines(["x"], values, values, values, given)
