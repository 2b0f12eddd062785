"""The shape of the package: no file too long, no circle of files, every file says what it is for, and no generic room names a model.

The graph of imports is read from the source: every import counts, also one inside a function or under ``TYPE_CHECKING``. A circle that
only a type checker or only one call meets is a circle all the same: neither file can be understood without the other. Not counted are modules that are loaded by a
name made at run time (the registry of models, lazy public names).

An import of a package is an import of its ``__init__``, and so is an import of one of its modules from outside the package.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import unpooled
from unpooled.privacy.study import ANALYSES
from unpooled.protocol.registry import LINK, OWN

SOURCE = Path(unpooled.__file__).parent
LONGEST = 800
#: Lines of a function's body, and parameters of functions that are neither estimators, nor public functions, nor commands, nor kernels.
BODY, PARAMETERS = 60, 12


def modules(source: Path) -> dict[str, Path]:
    """Every module of a package by its full name."""
    found = {}
    for file in sorted(source.rglob("*.py")):
        parts = (source.name, *file.relative_to(source).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported(tree: ast.AST, known: set[str]) -> set[str]:
    """The modules among the known ones that a module imports, wherever the import stands."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & known
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not read here"
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                found |= {inside if inside in known else node.module} & known
    return found


def entered(name: str, targets: set[str]) -> set[str]:
    """The packages that importing these modules runs first, but for those in which the importing module lies itself."""
    parts = {".".join(target.split(".")[:depth]) for target in targets for depth in range(1, target.count(".") + 1)}
    return {package for package in parts if not f"{name}.".startswith(f"{package}.")}


def graph(source: Path) -> dict[str, set[str]]:
    files = modules(source)
    found = {name: imported(ast.parse(file.read_text()), set(files)) for name, file in files.items()}
    return {name: (targets | entered(name, targets)) - {name} for name, targets in found.items()}


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected sets of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(edges[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in sorted(edges):
        if name not in index:
            visit(name)
    return found


def test_no_file_is_longer_than_a_reader_bears() -> None:
    lengths = {str(file.relative_to(SOURCE)): len(file.read_text().splitlines()) for file in SOURCE.rglob("*.py")}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


@pytest.mark.slow
def test_no_circle_of_files() -> None:
    assert circles(graph(SOURCE)) == []


@pytest.mark.parametrize(
    "importing",
    [
        "from made_up.second import b",
        "import made_up.second",
        "from made_up import second",
        "def f():\n    from made_up.second import b",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from made_up.second import b",
    ],
)
def test_a_circle_is_seen(tmp_path: Path, importing: str) -> None:
    package = tmp_path / "made_up"
    package.mkdir()
    (package / "__init__.py").write_text("from made_up.first import a\n")
    (package / "first.py").write_text(f"{importing}\na = 1\n")
    (package / "second.py").write_text("from made_up.third import c\nb = 1\n")
    (package / "third.py").write_text("c = 1\n")
    assert circles(graph(package)) == []
    (package / "third.py").write_text("from made_up.first import a\nc = 1\n")
    assert circles(graph(package)) == [["made_up.first", "made_up.second", "made_up.third"]]


def test_a_circle_through_a_package_is_seen(tmp_path: Path) -> None:
    """Whoever imports a module of a package runs the package first."""
    package = tmp_path / "made_up"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner" / "__init__.py").write_text("from made_up.inner.one import a\nfrom made_up.inner.two import b\n")
    (package / "inner" / "one.py").write_text("from made_up.inner.two import b\na = 1\n")
    (package / "inner" / "two.py").write_text("b = 1\n")
    (package / "outer.py").write_text("from made_up.inner.two import b\nc = 1\n")
    assert circles(graph(package)) == []
    (package / "inner" / "one.py").write_text("from made_up.outer import c\na = 1\n")
    assert circles(graph(package)) == [["made_up.inner", "made_up.inner.one", "made_up.outer"]]


@pytest.mark.slow
def test_every_file_says_first_why_it_exists() -> None:
    silent = []
    for name, file in modules(SOURCE).items():
        said = ast.get_docstring(ast.parse(file.read_text()), clean=True)
        first = file.read_text().lstrip("r")
        if not said or not first.startswith('"""') or not said.splitlines()[0].strip().endswith((".", ":")):
            silent.append(name)
    assert silent == []


@pytest.mark.slow
def test_no_name_of_a_class_stands_for_two_things() -> None:
    """Only what every model has one of is called alike everywhere; and ``unpooled.Study``, which makes the study that parties are asked."""
    homes: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: files for name, files in homes.items() if len(files) > 1 and name not in {"Parameters", "Study"}} == {}


def functions(file: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]


def body(function: ast.FunctionDef) -> int:
    """The lines of a function without its signature and its docstring."""
    own = function.body[1:] if ast.get_docstring(function) else function.body
    return (own[-1].end_lineno or 0) - own[0].lineno + 1 if own else 0


@pytest.mark.slow
def test_no_function_is_too_long() -> None:
    """Kernels of papers, whose loops are the algorithm as printed, are left alone."""
    files = [file for file in SOURCE.rglob("*.py") if "papers/frank_wolfe" not in file.as_posix()]
    long = [f"{file.name}: {f.name} has {body(f)} lines" for file in files for f in functions(file) if body(f) > BODY]
    assert long == []


@pytest.mark.slow
def test_no_parameter_list_is_too_long() -> None:
    left_alone = ("cli/", "kernels/", "papers/", "/estimator.py", "models/pride/base.py")
    files = [file for file in SOURCE.rglob("*.py") if not any(part in file.as_posix() for part in left_alone)]
    long = [
        f"{file.name}: {f.name}"
        for file in files
        for f in functions(file)
        if len(f.args.posonlyargs) + len(f.args.args) + len(f.args.kwonlyargs) > PARAMETERS
    ]
    assert long == []


# --- No generic room names a model ---------------------------------------------------------------------------------------------

#: Files of generic rooms that hold a word that is a model's name too, each with the words and the reason.
WORDS: dict[str, tuple[set[str], str]] = {
    "protocol/registry.py": ({*OWN, LINK}, "the list of our own rows, and the name of the study that links rows"),
    "linkage/model.py": ({LINK}, "the row of the study that links rows"),
    "privacy/study.py": (
        {ANALYSES, "lasso"},
        "the name of several analyses; and a parameter of files that version 0.2.0 wrote",
    ),
    "families/names.py": ({"survival"}, "the family of a response"),
    "inference/profiles.py": ({"survival"}, "the family of a response"),
    "inference/summary.py": ({"survival"}, "the family of a response"),
    "inference/life_table.py": ({"survival"}, "the label of an axis"),
    "audit/stage.py": ({"describe"}, "a method of mechanisms"),
    "cli/demo.py": ({"bayes", "pride", "pls"}, "a demonstration says which models it shows"),
    "cli/schemas/serving.py": (
        {"glm", "describe", "survival", "diagnose"},
        "the calls that `unpooled serve` answers are a fixed list",
    ),
    "cli/schemas/registry.py": ({LINK}, "a command"),
    "cli/study.py": ({ANALYSES, LINK}, "a key of the data that a command prints, and a command"),
    "cli/say.py": ({LINK}, "a command"),
    "cli/result.py": ({ANALYSES}, "a key of the data that a command prints"),
    "cli/calls.py": ({LINK}, "a key of the data that a call answers"),
    "testing/shown.py": ({LINK}, "an attribute"),
    "testing/results.py": ({"describe"}, "one case stands for the others where not all are run"),
    "testing/wholes.py": ({*OWN}, "whole programs are made of the models that they use"),
}
#: Files of generic rooms that import a model, each with its name and the reason.
IMPORTS: dict[str, tuple[set[str], str]] = {
    "study/earlier.py": ({ANALYSES}, "a study of several analyses is no model of its own"),
    "study/finished.py": ({ANALYSES}, "as above"),
    "study/meta.py": ({ANALYSES}, "as above"),
    "study/several.py": ({ANALYSES}, "as above"),
    "cli/demo.py": ({"pls"}, "a demonstration says which models it shows"),
}
NAMES = {*OWN, LINK}


def names_of_models(tree: ast.AST) -> set[str]:
    """The texts of a file that are a model's name, or that begin with one as the form of a paper does."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text for text in texts if text.removesuffix("-published") in NAMES}


def models_inside(tree: ast.AST) -> set[str]:
    """The models from whose inside a file imports, or whose modules it names in a text."""
    whole = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            whole |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            whole |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            whole |= {node.value}
    parts = [name.split(".") for name in whole if name.startswith("unpooled.models.")]
    return {part[2].partition(":")[0] for part in parts} & NAMES


def generic() -> dict[str, ast.AST]:
    files = {file.relative_to(SOURCE).as_posix(): file for file in SOURCE.rglob("*.py")}
    return {name: ast.parse(file.read_text()) for name, file in files.items() if not name.startswith(("models/", "papers/"))}


@pytest.mark.slow
def test_no_generic_room_names_a_model() -> None:
    """What is a model's own is in its row of the registry; every exception is listed, with its reason, and is still needed."""
    assert {
        name: found for name, tree in generic().items() if (found := names_of_models(tree) - WORDS.get(name, (set(),))[0])
    } == {}
    files = generic()
    needed = {name: names_of_models(files[name]) for name in WORDS if name in files}
    assert {name for name, (words, _) in WORDS.items() if name != "testing/wholes.py" and needed.get(name) != words} == set()


@pytest.mark.slow
def test_no_generic_room_imports_a_model() -> None:
    files = generic()
    assert {name: found for name, tree in files.items() if (found := models_inside(tree))} == {
        name: models for name, (models, _) in IMPORTS.items()
    }


@pytest.mark.parametrize(
    ("text", "named", "inside"),
    [
        ('if study.model == "pride":\n    pass', {"pride"}, set()),
        ('ABLE = {"lasso-published": 1}', {"lasso-published"}, set()),
        ("from unpooled.models.glm.families import FAMILIES", set(), {"glm"}),
        ("def f():\n    import unpooled.models.glm.plan", set(), {"glm"}),
        ("from unpooled.models import pls", set(), {"pls"}),
        ('HOME = "unpooled.models.bayes.estimator:Some"', set(), {"bayes"}),
        ('"""Bayes and pride in words."""\nfrom unpooled.models import load', set(), set()),
    ],
)
def test_a_named_model_is_seen(text: str, named: set[str], inside: set[str]) -> None:
    assert (names_of_models(ast.parse(text)), models_inside(ast.parse(text))) == (named, inside)
