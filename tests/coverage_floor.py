"""Run the tests marked ``guarantee`` under coverage, and fail where a branch of a file on which the guarantee rests is not run.

Which files those are follows from their place and their imports: what a file may touch, not what it is called. Arguments go to pytest.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path("src/unpooled")
#: Every file of these rooms.
ROOMS = ("privacy", "protocol")
#: Other files that import one of these names may read a party's table, act for the party, draw noise or randomness, or write a ledger.
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


def carrying() -> list[Path]:
    """Return the files whose every branch must be run."""
    files = sorted(PACKAGE.rglob("*.py"))
    rooms = {file: file.relative_to(PACKAGE).parts[0] for file in files}
    return [
        file
        for file in files
        if rooms[file] in ROOMS or (rooms[file] not in APART and any(acts(*one) for one in imports(file)))
    ]


def holes(file: Path, found: dict[str, dict[str, list[object]]]) -> str:
    """Return the lines and branches of a file that no test ran; empty if all were."""
    if str(file) not in found:
        return f"{file}: no test runs it"
    lines = found[str(file)]["missing_lines"]
    branches = [f"{a}->{b}" for a, b in found[str(file)]["missing_branches"]]  # type: ignore[misc]
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
    measured = ["--cov", f"--cov-config={settings}", "--cov-report="]
    if code := subprocess.run([sys.executable, "-m", "pytest", "-q", *measured, *sys.argv[1:]], check=False).returncode:
        return code
    subprocess.run([sys.executable, "-m", "coverage", "json", "-q", f"--rcfile={settings}", "-o", report], check=True)
    found = json.loads(report.read_text())["files"]
    missing = [hole for file in files if (hole := holes(file, found))]
    if missing:
        missing.append("add a test that runs these, or mark the one that does: @pytest.mark.guarantee")
    print("\n".join(missing) or f"{len(files)} files on which the guarantee rests: every branch was run")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
