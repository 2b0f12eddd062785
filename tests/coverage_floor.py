"""Fails when a file whose branches carry the guarantee is not covered completely."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

#: Every branch of these is run by the tests; the rest of the package is covered as far as it is worth it.
COMPLETE = ("src/unpooled/privacy/", "src/unpooled/protocol/", "party.py")


def carries(name: str) -> bool:
    """Return True if a file, by its path from the root, must be covered completely."""
    return any(name.startswith(part) or name.endswith("/" + part) for part in COMPLETE) and "/cli/" not in name


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        subprocess.run([sys.executable, "-m", "coverage", "json", "-q", "-o", report], check=True)
        files = json.loads(report.read_text())["files"]
    holes = []
    for name, found in files.items():
        if carries(name):
            branches = [f"{a}->{b}" for a, b in found["missing_branches"]]
            holes += (
                [f"{name}: lines {found['missing_lines']} branches {branches}"] if found["missing_lines"] or branches else []
            )
    carrying = {str(path) for path in Path("src/unpooled").rglob("*.py") if carries(str(path))}
    holes += [f"{name}: no test runs it" for name in sorted(carrying - set(files))]
    if holes:
        holes.append(
            "measured are the tests in tests/measured.txt: add the one that runs these, or choose anew with `make measured`"
        )
    print("\n".join(holes) or "privacy/, protocol/ and party files: every branch covered")
    return bool(holes)


if __name__ == "__main__":
    sys.exit(main())
