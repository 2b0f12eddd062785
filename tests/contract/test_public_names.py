"""The public names agree wherever they are written down, and so do the parameters that several estimators share."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import itertools
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import unpooled
from unpooled.estimation.base import StudyEstimator
from unpooled.estimation.calls import FIRST, LAST

ROOT = Path(__file__).parents[2]
ESTIMATORS = {
    name: thing
    for name in unpooled.__all__
    if name != "PrivateBayesianRegression"
    and inspect.isclass(thing := getattr(unpooled, name))
    and issubclass(thing, StudyEstimator)
}
#: Other names of the same class.
OTHER_NAMES = {"PrivateBayesianRegression": "PrivateLinearRegression"}
#: The parameters that mean the same wherever they occur, in the order that every signature keeps.
ORDER = [*FIRST, *LAST]


def test_all_and_the_loader_s_table_hold_the_same_names_in_order() -> None:
    assert unpooled.__all__ == sorted(unpooled._HOME)
    assert set(unpooled.__all__) <= set(dir(unpooled))


def test_each_name_is_loaded_from_where_it_is_defined() -> None:
    for name, home in unpooled._HOME.items():
        found = getattr(unpooled, name).__module__
        assert found == home or found.startswith(f"{home}.")  # a package may have it in one of its files
        assert getattr(unpooled, name).__name__ == OTHER_NAMES.get(name, name)


def test_type_checkers_see_the_names_that_the_loader_loads() -> None:
    stub = ast.parse(Path(unpooled.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [statement for statement in stub.body if isinstance(statement, ast.ImportFrom)]
    seen = {alias.name: statement.module for statement in imports for alias in statement.names if alias.asname}
    assert seen == unpooled._HOME
    # What is re-exported as it is, and what the stub itself says with an exact signature.
    exported = {alias.name for statement in imports for alias in statement.names if alias.asname == alias.name}
    made = {node.name for node in stub.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    made |= {
        target.id
        for node in stub.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert exported | made == set(seen)
    assert not exported & made
    assert files("unpooled").joinpath("py.typed").is_file()


def documented() -> dict[str, list[str]]:
    """Every name of docs/api.md with the members that it lists."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "docs" / "api.md").read_text(encoding="utf-8").splitlines():
        if entry := re.match(r"\.\. auto\w+:: ([\w.]+)", line):
            found[entry[1]] = []
        elif members := re.match(r"\s+:members: (.+)", line):
            found[list(found)[-1]] = members[1].split(", ")
    return found


def resolved(path: str) -> Any:
    """The module, class or function of this dotted path."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(resolved(module), name)


def test_the_names_of_the_manual_exist_and_the_public_ones_are_among_them() -> None:
    names = documented()
    for path, members in names.items():
        thing = resolved(path)
        fields = getattr(thing, "__annotations__", {})
        missing = [member for member in members if not hasattr(thing, member) and member not in fields]
        assert not missing, (path, missing)
    for name, home in unpooled._HOME.items():
        assert {f"{home}.{name}", home} & set(names), f"docs/api.md does not list {name}"


def test_the_engine_of_the_lasso_paper_is_public_and_in_the_manual() -> None:
    """Algorithm 1 stands on its own: everything it is called with comes from one module."""
    engine = importlib.import_module("unpooled.papers.frank_wolfe")
    assert {"Sampling", "bound", "expected_curvature", "frank_wolfe"} <= set(engine.__all__)
    for name in engine.__all__:
        assert f"unpooled.papers.frank_wolfe.{name}" in documented()
        assert inspect.getdoc(getattr(engine, name))


def test_every_estimator_is_in_the_readme_and_every_folder_in_the_architecture() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ESTIMATORS:
        assert f"`{name}`" in readme, name
    assert "`unpooled.describe`" in readme
    assert "`unpooled.tabulate`" in readme
    assert "`unpooled.survival`" in readme
    listed = re.findall(r"^\| `(\w+)/` \|", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE)
    folders = [path.parent.name for path in Path(unpooled.__file__).parent.glob("*/__init__.py")]
    assert sorted(listed) == sorted(folders)


def has_module(package: str, name: str) -> bool:
    """Return True if a package has a module of this name."""
    return importlib.util.find_spec(f"{package}.{name}") is not None


def test_every_estimator_of_the_package_is_public() -> None:
    """Walks the registry of models, so that a new one cannot be forgotten."""
    found = set()
    for package in importlib.import_module("unpooled.models").REGISTRY.values():
        modules = [
            importlib.import_module(f"{package}.{own}") for own in ("estimator", "classifier") if has_module(package, own)
        ]
        found |= {
            name
            for module in modules
            for name, thing in vars(module).items()
            if inspect.isclass(thing)
            and issubclass(thing, StudyEstimator)
            and thing.__module__ == module.__name__
            and name[0] != "_"
        }
    assert found - set(OTHER_NAMES) == set(ESTIMATORS)


# --- parameters -------------------------------------------------------------------------------------------------------------


def parameters(of: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(of).parameters)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_shared_parameters_stand_in_one_order_and_only_the_first_may_go_without_its_name(name: str) -> None:
    own = parameters(ESTIMATORS[name])
    assert [p for p in own if p in ORDER] == [p for p in ORDER if p in own]
    kinds = [p.kind for p in own.values()]
    assert set(kinds[1:]) == {inspect.Parameter.KEYWORD_ONLY}
    assert list(own) == list(ESTIMATORS[name].arguments)
    assert {"epsilon", "delta", "bounds", "adjacency", "calibration", "public_seed", "random_state", "budget"} <= set(own)
    for function in (unpooled.describe, unpooled.tabulate, unpooled.survival):
        asked = [p for p in parameters(function) if p in ORDER and p != "bounds"]
        assert asked == [p for p in ORDER if p in asked]


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(ESTIMATORS, 2)])
def test_a_parameter_of_two_estimators_has_one_default_and_one_type(one: str, other: str) -> None:
    first, second = parameters(ESTIMATORS[one]), parameters(ESTIMATORS[other])
    # Sources are a list of one model's weights, or such a list per party; a dispersion is learnt from rows of one party's responses alone.
    # The ordinary outcome of a treatment is a number, and that of a generalised linear model is not.
    # Parties are None where rows may be split instead of columns.
    for name in (first.keys() & second.keys()) - {"source", "dispersion", "parties", "family"}:
        # Where columns are split a value is protected if nothing else is said, where rows may be split a row.
        split = ["parties" in one and one["parties"].default is not None for one in (first, second)]
        same = name != "unit" or split[0] == split[1]
        assert first[name].default == second[name].default or not same, name
        assert type(first[name].default) is type(second[name].default), name
        if name != "y_bounds":  # where a model takes several responses, a range of each
            assert first[name].annotation == second[name].annotation, name


@pytest.mark.parametrize("name", ["describe", "tabulate", "survival"])
def test_functions_have_the_defaults_of_the_estimators(name: str) -> None:
    """But for the unit: a table is described per row, where an estimator of split columns promises per value."""
    own, theirs = parameters(getattr(unpooled, name)), parameters(unpooled.PrivateBayesianRegression)
    for given in own.keys() & theirs.keys():
        assert own[given].default == theirs[given].default, given
        more = " | Literal[True]" if given == "bounds" else ""  # private ranges instead of means
        assert own[given].annotation.replace(more, "") == theirs[given].annotation, given


def section(kind: Any) -> str:
    """The section of a docstring that lists parameters, with that of the class it refers to for the others."""
    text = inspect.getdoc(kind) or ""
    own = text.split("Parameters\n----------\n")[1].split("\n\nAttributes\n")[0]
    others = re.search(r"other parameters and attributes as for :class:`(\w+)`", text)
    return own + ("\n" + section(getattr(unpooled, others[1])) if others else "")


@pytest.mark.parametrize("name", [*ESTIMATORS, "describe", "tabulate", "survival"])
def test_every_parameter_is_documented(name: str) -> None:
    thing = getattr(unpooled, name)
    """As an entry of its own or, where it belongs to another parameter, in that one's text."""
    text = section(thing)
    heads = [line.split(" : ")[0] for line in text.splitlines() if line and not line.startswith(" ")]
    listed = {word for head in heads for word in re.findall(r"\w+", head)} | set(re.findall(r"``(\w+)``", text))
    missing = [parameter for parameter in parameters(thing) if parameter not in listed]
    assert not missing


@pytest.mark.parametrize(
    ("statement", "unneeded"),
    [
        ("import unpooled", ("numpy", "scipy", "numba", "sklearn", "polars", "matplotlib")),
        (
            "from unpooled import describe, tabulate",
            ("scipy.special", "scipy.optimize", "numba", "sklearn", "polars", "matplotlib"),
        ),
    ],
)
def test_what_is_not_needed_yet_is_not_imported(statement: str, unneeded: tuple[str, ...]) -> None:
    """A plan draws no noise and fits nothing: what takes long to import waits until it is used."""
    code = f"import sys; {statement}; print(*sorted(sys.modules.keys() & set({unneeded!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []
