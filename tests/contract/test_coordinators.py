"""Coordinators draw no noise and read no data.

A coordinator is a function that yields requests, wherever it stands and whatever its file is called: what it returns says so, and the row of every model
names one. Neither it nor a function of its file that it uses may touch a party's table, context or ledger, or draw anything at random.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import unpooled
from unpooled.models import load, row_names

SOURCE = Path(unpooled.__file__).parent
#: What a coordinator may touch nothing of, and the pure functions among it.
FORBIDDEN = (
    "unpooled.privacy.noise",
    "unpooled.privacy.masks",
    "unpooled.privacy.table",
    "unpooled.privacy.ledger",
    "unpooled.protocol.context",
)
#: Totals that a simulation of a study imagines, without parties.
IMAGINED = "estimation/outlook.py"


def at_run_time(tree: ast.Module) -> Iterator[ast.ImportFrom]:
    """Imports of a file, but for those of types alone."""
    types = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for part in ast.walk(node)
    }
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and id(node) not in types)


def forbidden_names(tree: ast.Module) -> set[str]:
    """Return the names that stand for something forbidden in a file."""
    found = set()
    for node in at_run_time(tree):
        for alias in node.names:
            place = f"{node.module}.{alias.name}"
            if any(f"{place}.".startswith(f"{module}.") for module in FORBIDDEN):
                found.add(alias.asname or alias.name)
    return found


def own(tree: ast.Module) -> dict[str, ast.AST]:
    """Return the functions and classes of a file by name; methods as ``Class.method``, their names alone too."""
    found: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{part.name}": part for part in node.body if isinstance(part, ast.FunctionDef)}
    return found


def converses(node: ast.AST) -> bool:
    """Return True for a function whose annotation says that it yields requests."""
    said = ast.unparse(node.returns) if isinstance(node, ast.FunctionDef) and node.returns is not None else ""
    return "Conversation" in said or "list[Ask]" in said


def touched(tree: ast.Module, start: str) -> set[str]:
    """Return the forbidden names that a function of a file touches, itself or through others of the file."""
    functions, names, seen = own(tree), set[str](), set[str]()
    waiting = [start]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        node = functions[one]
        if isinstance(node, ast.ClassDef):  # a class that is used is used by its constructor and its methods' names
            continue
        used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        methods = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
        names |= used
        waiting += [name for name in functions if name in used or ("." in name and name.rpartition(".")[2] in methods)]
    return names & forbidden_names(tree)


@functools.cache
def coordinators(source: Path) -> dict[str, list[str]]:
    """Return the functions that yield requests, by file."""
    found = {}
    for file in sorted(source.rglob("*.py")):
        names = [name for name, node in own(ast.parse(file.read_text())).items() if converses(node)]
        if names:
            found[str(file.relative_to(source))] = names
    return found


@pytest.mark.slow
def test_they_touch_neither_tables_nor_ledgers_nor_randomness() -> None:
    found = coordinators(SOURCE)
    assert len(found) > 20
    wrong = {}
    for file, names in found.items():
        tree = ast.parse((SOURCE / file).read_text())
        wrong |= {f"{file}: {name}": said for name in names if (said := touched(tree, name)) and file != IMAGINED}
    assert wrong == {}


@pytest.mark.long_for("describe", "bayes", "tables", "pride", "glm")
@pytest.mark.slow_for("describe", "bayes", "tables", "pride", "glm")
@pytest.mark.parametrize("name", [*row_names(), "link"])
def test_the_coordinator_of_a_row_is_one_of_them(name: str) -> None:
    """Else a coordinator could escape by saying nothing of what it returns."""
    function = load(name).coordinate
    while isinstance(function, functools.partial):
        function = function.func
    place = Path(str(unpooled.__file__)).parent / Path(*function.__module__.split(".")[1:])
    file = place.with_suffix(".py") if place.with_suffix(".py").exists() else place / "__init__.py"
    assert function.__qualname__ in coordinators(SOURCE)[str(file.relative_to(SOURCE))]


@pytest.mark.parametrize(
    "body",
    [
        "    Stream(b'', 'x')\n    yield []",
        "    helped()\n    yield []",
        "    Kept().read()\n    yield []",
    ],
)
def test_one_that_does_is_caught(tmp_path: Path, body: str) -> None:
    text = (
        "from unpooled.privacy.noise import Stream\n"
        "def helped():\n    return Stream(b'', 'x')\n"
        "class Kept:\n    def read(self):\n        return helped()\n"
        f"def coordinate(plan) -> Conversation:\n{body}\n"
    )
    (tmp_path / "one.py").write_text(text)
    assert coordinators(tmp_path) == {"one.py": ["coordinate"]}
    assert touched(ast.parse(text), "coordinate") == {"Stream"}
    honest = text.replace(body, "    yield []")
    assert touched(ast.parse(honest), "coordinate") == set()
