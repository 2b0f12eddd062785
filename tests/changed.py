"""Print what `make check` runs: tests of the files that changed since main, by the imports, where few tests need them; else all unit tests.

An import for types alone counts, one by a name of the package (``from unpooled import Bounds``) leads to the module that defines it. A test that
reaches a file through more than ``FAR`` imports is about something else.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from pathlib import Path

FAR, FEW = 3, 30
UNIT = "tests/unit"


def git(*words: str) -> list[str]:
    """Return the lines that git prints; none where it refuses (no main, no checkout)."""
    ran = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    return ran.stdout.splitlines() if ran.returncode == 0 else []


def changed() -> set[Path]:
    """Return the Python files that differ from where this branch left main, and those that git does not know; of tables of numbers what reads them."""
    base = git("merge-base", "HEAD", "main") or git("merge-base", "HEAD", "origin/main") or ["HEAD"]
    names = git("diff", "--name-only", base[0]) + git("ls-files", "--others", "--exclude-standard")
    tables = {Path(name).with_name("__init__.py") for name in names if name.startswith("src/unpooled/schedules/")}
    return {Path(name) for name in names if name.endswith(".py")} | tables


def module(file: Path) -> str:
    """Return the name by which other files import this one."""
    parts = file.relative_to("src").with_suffix("").parts if file.parts[0] == "src" else (file.stem,)
    return ".".join(parts).removesuffix(".__init__")


def imported(file: Path, public: dict[str, str]) -> set[str]:
    """Return the modules that a file may import: of ``from a import b`` both a and a.b, or the home of b."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "unpooled":
            found |= {public.get(alias.name, f"unpooled.{alias.name}") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def tests_of(files: set[Path]) -> list[str]:
    """Return the unit tests that reach one of the files through few imports."""
    stub = Path("src/unpooled/__init__.pyi").read_text()
    public = {name: home for home, name in re.findall(r"^from (\S+) import \w+ as (\w+)$", stub, re.MULTILINE)}
    importers: dict[str, set[Path]] = defaultdict(set)
    for file in [*Path("src").rglob("*.py"), *Path("tests").glob("*.py"), *Path(UNIT).glob("*.py")]:
        for name in imported(file, public):
            importers[name].add(file)
    seen = ring = {file for file in files if file.exists()}
    for _ in range(FAR):
        ring = {after for file in ring for after in importers[module(file)]} - seen
        seen = seen | ring
        if len(found := [str(file) for file in seen if file.parent == Path(UNIT) and file.name.startswith("test_")]) > FEW:
            break
    return sorted(found)


def main() -> None:
    """Print files of tests, or the folder of all."""
    found = tests_of(changed())
    print(*(found if 0 < len(found) <= FEW else [UNIT]))


if __name__ == "__main__":
    main()
