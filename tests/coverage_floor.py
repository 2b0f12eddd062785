"""Run the tests marked ``guarantee`` under coverage, and fail where a branch of code on which the guarantee rests is not run.

Which code that is follows from its place and from what it may touch, not from the name of its file: all of ``privacy/`` and ``protocol/``, and elsewhere the
functions that may read a party's table, act for a party, draw noise or write a ledger, with all that they use of their file. Arguments go to pytest.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

PACKAGE = Path("src/unpooled")
#: Every file of these rooms.
ROOMS = ("privacy", "protocol")
#: Functions elsewhere that use one of these names may read a party's table, act for the party, draw noise or randomness, or write a ledger.
ACTS = {
    "unpooled.protocol.context": {"Context", "serving"},
    "unpooled.privacy.noise": {"KeySource", "Stream"},
    "unpooled.privacy.ledger": {"Ledger", "Charge"},
}
#: Rooms that no party runs in a study: forms of the papers, attacks and tests on made-up data, and what shows a plan or a ledger to people.
APART = ("papers", "audit", "testing", "cli", "console", "evidence")
FOLDER = Path("build/coverage")


def imports(file: Path) -> Iterator[tuple[str, str]]:
    """Return the modules that a file imports from, each with the name; those for types too."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def acts(module: str, name: str) -> bool:
    """Return True if an import gives a file one of the names of ``ACTS``: by itself, by its module, or from a module of that package."""
    return any(
        name in names if module == home or module.startswith(f"{home}.") else f"{module}.{name}".rstrip(".") == home
        for home, names in ACTS.items()
    )


def parts(tree: ast.Module) -> dict[str, ast.AST]:
    """Return the functions of a file by name, and its methods as ``Class.method``."""
    found: dict[str, ast.AST] = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{part.name}": part for part in node.body if isinstance(part, ast.FunctionDef)}
    return found


def words(node: ast.AST) -> set[str]:
    """Return the names that a function uses, those after a dot too; in texts of types as well."""
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return found | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


@cache
def named() -> dict[Path, set[str]]:
    """Return the functions that a party runs because a row names them, by file: the answers of its steps, and the check of its data."""
    from unpooled.models import load, row_names

    found: dict[Path, set[str]] = defaultdict(set)
    for row in map(load, (*row_names(), "link")):
        for each in (*(step.answer for step in (*row.steps, *row.more_steps(None))), row.check):
            function = each.func if isinstance(each, partial) else each
            found[Path(function.__code__.co_filename).resolve()].add(function.__qualname__)
    return found


def held(file: Path) -> set[int]:
    """Return the lines of a file that must be run: of functions that use one of the names of ``ACTS`` or that a row names, and of all that these use
    of the file."""
    text = file.read_text()
    tree = ast.parse(text)
    if file.relative_to(PACKAGE).parts[0] in ROOMS:
        return set(range(1, len(text.splitlines()) + 1))
    every = {name: words(node) for name, node in parts(tree).items()}
    actors = {alias for names in ACTS.values() for alias in names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            actors |= {alias.asname or alias.name for alias in node.names if acts(node.module or "", alias.name)}
    waiting = [name for name, used in every.items() if used & actors or name in named().get(file.resolve(), ())]
    found = set[str]()
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            used = every[name]
            waiting += [
                one for one in every if one.rpartition(".")[2] in used or (one.partition(".")[0] in used and "__" in one)
            ]
    nodes = parts(tree)
    return {line for name in found for line in range(nodes[name].lineno, nodes[name].end_lineno + 1)}  # type: ignore[attr-defined]


def carrying() -> list[Path]:
    """Return the files that hold such code."""
    files = sorted(PACKAGE.rglob("*.py"))
    rooms = {file: file.relative_to(PACKAGE).parts[0] for file in files}
    return [
        file
        for file in files
        if rooms[file] in ROOMS
        or (rooms[file] not in APART and (file.resolve() in named() or any(acts(*one) for one in imports(file))))
    ]


def marked() -> list[str]:
    """Return the files that hold tests with the mark: to read all others under coverage takes longer than to run these."""
    return [str(file) for file in sorted(Path("tests").rglob("test_*.py")) if "guarantee" in file.read_text().lower()]


def holes(file: Path, found: dict[str, dict[str, list[object]]]) -> str:
    """Return the lines and branches that must be run and were not; empty if all were."""
    if str(file) not in found:
        return f"{file}: no test runs it"
    must = held(file)
    lines = [line for line in found[str(file)]["missing_lines"] if line in must]
    branches = [f"{a}->{b}" for a, b in found[str(file)]["missing_branches"] if a in must]  # type: ignore[misc]
    return f"{file}: lines {lines} branches {branches}" if lines or branches else ""


def main() -> int:
    """Run them, and say what is missing."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    files, settings, report = carrying(), FOLDER / "rc", FOLDER / "report.json"
    include = "".join(f"    {file}\n" for file in files)
    settings.write_text(
        f"[run]\nbranch = true\ndata_file = {FOLDER / 'data'}\ninclude =\n{include}"
        "[report]\nexclude_also =\n    if TYPE_CHECKING:\n    case _ as never:\n    ^\\s*\\.\\.\\.$\n    -> [^:]*: \\.\\.\\.$\n"
    )
    measured = ["--cov", f"--cov-config={settings}", "--cov-report=", *marked()]
    if code := subprocess.run([sys.executable, "-m", "pytest", "-q", *measured, *sys.argv[1:]], check=False).returncode:
        return code
    subprocess.run([sys.executable, "-m", "coverage", "json", "-q", f"--rcfile={settings}", "-o", report], check=True)
    found = json.loads(report.read_text())["files"]
    missing = [hole for file in files if (hole := holes(file, found))]
    if missing:
        missing.append("add a test that runs these, or mark the one that does: @pytest.mark.guarantee")
    count = sum(len(held(file)) for file in files)
    print("\n".join(missing) or f"{len(files)} files with {count} lines on which the guarantee rests: every branch was run")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
