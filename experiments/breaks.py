"""Fifty breaks of what the guarantee rests on, each under the audit: which are caught, and by which test first.

The list is ``tests/audit/breaks.toml``, committed before the audit changed. Every break is written into a copy of the package, and the audit's
tests over some cheap cases run against it until the first fails. The package as it is must pass them. A break is run once; a stop loses
one. ``RULE=1`` runs the ten that were drawn by rule, which are for the end. What the audit of before said of some of them stands in
``breaks_before.json``, and stays.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from experiments.common import RESULTS, run, write_table

ROOT = Path(__file__).parents[1]
LIST, SCRATCH = ROOT / "tests/audit/breaks.toml", Path(os.environ.get("TMPDIR", "/tmp")) / "unpooled-breaks"  # noqa: S108 - a copy of public files
#: Cases whose audit is cheap and which between them have every way to add up, both splits and both kinds of fit.
CASES = (
    *("describe", "describe, columns", "bayes", "bayes, robust", "bayes, focus", "bayes, columns", "glm"),
    *("stacking", "lasso", "pride"),
)
TESTS = (
    *(f"tests/audit/test_replay.py::test_every_model_passes_on_its_own_data[{case}]" for case in CASES),
    "tests/audit/test_search.py",
    "tests/audit/test_noise_is_there.py",
    "tests/audit/test_one_account.py",
    "tests/audit/test_second_account.py",
    "tests/audit/test_transcripts.py",
    "tests/audit/test_audited_households.py",
    "tests/audit/test_faults.py",
    "tests/audit/test_search.py",
)
#: A run that takes longer hangs, which nobody would overlook.
SECONDS = 900


def broken(one: dict[str, Any]) -> tuple[Path, str]:
    """Return the file that is broken, and its text afterwards."""
    file = ROOT / "src/unpooled" / one["file"]
    text = file.read_text()
    if "old" in one:
        if text.count(one["old"]) != 1:
            raise LookupError(one["name"])
        return file, text.replace(one["old"], one["new"])
    sys.path.insert(0, str(ROOT / "tests/mutation"))
    from mutators import mutated, sites

    lines = text.splitlines()
    same = [s for s in sites(text) if (lines[s.line - 1].strip(), s.kind, s.before, s.after) == tuple(one[n] for n in WORDS)]
    if len(same) < one["nth"]:
        raise LookupError(one["statement"])
    site = same[one["nth"] - 1]
    return file, ast.unparse(mutated(text, site.node, site.choice))


WORDS = ("statement", "kind", "before", "after")


def audited(one: dict[str, Any] | None) -> tuple[str, float]:
    """Return (the first test that fails, empty where none does; seconds) for a break, or for the package as it is."""
    if not SCRATCH.is_dir():  # the same copy for all: compiled code is kept by path and time
        shutil.copytree(ROOT / "src", SCRATCH / "src", ignore=shutil.ignore_patterns("__pycache__"))
    place, was = None, None
    if one is not None:
        file, text = broken(one)
        place = SCRATCH / "src" / file.relative_to(ROOT / "src")
        was = place.read_bytes(), place.stat()
        place.write_text(text)
    start = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "2",
        "-p",
        "no:cacheprovider",
        "--no-header",
        "--tb=no",
        *TESTS,
    ]
    try:
        found = subprocess.run(  # noqa: S603 - our own interpreter and tests
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(SCRATCH / "src")},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        lines = [line for line in found.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        first = (
            (lines[0].split(" ")[1].partition("::")[2] or f"{lines[0].split(' ')[1]}, which cannot be loaded")
            if lines
            else ("" if found.returncode == 0 else "nothing could be collected")
        )
    except subprocess.TimeoutExpired:
        first = "it hangs"
    finally:
        if place is not None and was is not None:
            place.write_bytes(was[0])
            os.utime(place, ns=(was[1].st_atime_ns, was[1].st_mtime_ns))
    return first, time.perf_counter() - start


def main(full: bool) -> None:
    """Write the table; breaks that are in the file are not run again."""
    del full
    path = RESULTS / "audit" / "breaks.json"
    path.parent.mkdir(exist_ok=True)
    known: dict[str, list[Any]] = json.loads(path.read_text()) if path.is_file() else {}
    listed = tomllib.loads(LIST.read_text())
    asked = [(one["name"], one["kind"], one) for one in listed["break"]]
    if os.environ.get("RULE"):
        asked += [(f"{one['file']}: {one['statement'][:60]}", "by rule", one) for one in listed["rule"]]
    if "" not in known:
        known[""] = list(audited(None))
        path.write_text(json.dumps(known, indent=1))
    if known[""][0]:
        sys.exit(f"the package as it is fails {known[''][0]}: mend that first")
    for name, _, one in asked:
        if name not in known:
            try:
                known[name] = list(audited(one))
            except LookupError:
                known[name] = ["no longer applies", 0.0]
            path.write_text(json.dumps(known, indent=1))
            print(name, *known[name], flush=True)
            write(known, asked)


def write(known: dict[str, list[Any]], asked: list[tuple[str, str, dict[str, Any]]]) -> None:
    """The table of the breaks that were tried so far."""
    before: dict[str, list[Any]] = json.loads((RESULTS / "audit" / "breaks_before.json").read_text())
    tried = [(kind, name, known[name]) for name, kind, _ in asked if name in known]
    rows = [(kind, name, said(before.get(name)), said(found), f"{found[1]:.0f}") for kind, name, found in tried]
    by_hand, by_rule = ([row for row in rows if (row[0] == "by rule") is drawn] for drawn in (False, True))
    notes = f"{caught(by_hand)} of the {len(by_hand)} by hand that were tried are caught"
    notes += f", and {caught(by_rule)} of the {len(by_rule)} drawn by rule" if by_rule else ""
    old = [row[2] for row in rows].count("missed")
    notes += f". The audit of before missed {old} of the {len(before) - 1} with which it was tried."
    notes += f" The package as it is passes in {known[''][1]:.0f} s."
    header = ("kind", "break", "audit of before", "first test that fails", "seconds")
    write_table("audit/breaks", "Broken on purpose", header, rows, notes)


def caught(rows: list[tuple[str, ...]]) -> int:
    """Return how many of these breaks a test noticed."""
    return len(rows) - [row[3] for row in rows].count("missed")


def said(found: list[Any] | None) -> str:
    """Return the test that caught a break, or that none did."""
    return "not tried" if found is None else found[0] or "missed"


if __name__ == "__main__":
    run(main)
