"""Ten rows of every paper's page, drawn by the hash of a commit, made again by the page's own commands.

python -m experiments.drawn_rows COMMIT [--full] [paper ...]

A row is drawn by the digest of the commit with its page and its place, so nobody chose it. A command that is a script compares its tables with those
that are stored, within the errors that both state, and ends with 1 where they differ; one that is a test fails. What was run, and how it ended, is
printed as a table, and the program ends with 1 if any command did.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from experiments.all_papers import ALONE, PAPERS

ROOT = Path(__file__).parent.parent
ROWS = 10
HEADER = "| item | the paper says | ours | form |"


def rows_of(paper: str) -> list[list[str]]:
    """The rows of a page's table of items, as cells."""
    lines = (ROOT / f"docs/papers/{paper}.md").read_text().splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith(HEADER))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip().strip("|").split(" | ")])
    return found


def drawn(paper: str, commit: str) -> list[list[str]]:
    """Ten rows that name a command, by the smallest digests of commit, page and place."""
    rows = [(k, row) for k, row in enumerate(rows_of(paper)) if "`" in row[-1]]
    order = sorted(rows, key=lambda one: hashlib.sha256(f"{commit} {paper} {one[0]}".encode()).hexdigest())
    return [row for _, row in order[:ROWS]]


def commands_of(paper: str, row: list[str]) -> list[str]:
    """The scripts and tests of a row."""
    named = [one for one in re.findall(r"`([^`]+)`", row[-1]) if not one.startswith("UNPOOLED_")]
    return [one if one.startswith("tests/") else f"experiments.{paper}.{one}" for one in named]


def run(command: str, options: list[str]) -> tuple[int, float]:
    """The exit code and the seconds of one command."""
    begun = time.perf_counter()
    words = (
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", command]
        if command.startswith("tests/")
        else ["-W", "ignore", "-m", command, *options]
    )
    ended = subprocess.run(  # noqa: S603 - our own scripts and tests
        [sys.executable, *words], cwd=ROOT, env={**os.environ, **ALONE}, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        print((ended.stdout + ended.stderr)[-2000:], flush=True)
    return ended.returncode, time.perf_counter() - begun


def main(arguments: list[str]) -> int:
    """Draw, run every command once, and print which rows were made again."""
    options = [one for one in arguments if one.startswith("--")]
    commit, *papers = [one for one in arguments if one not in options]
    chosen = {paper: drawn(paper, commit) for paper in papers or PAPERS}
    ended: dict[str, tuple[int, float]] = {}
    print("| page | item | command | ended | seconds |\n|---|---|---|---|---|")
    failed = False
    for paper, rows in chosen.items():
        for row in rows:
            for command in commands_of(paper, row):
                if command not in ended:
                    ended[command] = run(command, options)
                code, seconds = ended[command]
                failed |= bool(code)
                said = "agrees" if not code else f"ends with {code}"
                print(f"| {paper} | {row[0]}: {row[1][:60]} | {command} | {said} | {seconds:.0f} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
