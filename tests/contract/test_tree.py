"""The shape of the package: no file too long, no circle of files, and every file says what it is for.

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
    left_alone = ("cli/", "kernels/", "papers/", "/estimator.py", "lasso/classifier.py", "models/pride/base.py")
    files = [file for file in SOURCE.rglob("*.py") if not any(part in file.as_posix() for part in left_alone)]
    long = [
        f"{file.name}: {f.name}"
        for file in files
        for f in functions(file)
        if len(f.args.posonlyargs) + len(f.args.args) + len(f.args.kwonlyargs) > PARAMETERS
    ]
    assert long == []
