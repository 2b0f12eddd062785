"""`make mutants`: a random sample of small faults in what the guarantee rests on, each of which a test should notice.

Prints, and writes beside the outcomes, a table per package with the share that was noticed and its Clopper-Pearson interval, then every fault that nothing noticed, but for
those that ``survivors.toml`` lists with the reason why no test could or need notice them. Mutants are taken in the order of a seeded
shuffle of all of them: whatever the time allows is a random sample.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from coverage_map import PACKAGES, Map, convert, digest, load, measure, save, sources
from mutators import Site, sites
from scipy.stats import binomtest
from server import run, warm

ROOT = Path(__file__).resolve().parents[2]
LISTED = Path(__file__).with_name("survivors.toml")
FIELDS = (
    "key",
    "package",
    "file",
    "line",
    "kind",
    "before",
    "after",
    "outcome",
    "test",
    "ran",
    "of",
    "seconds",
    "statement",
)
HEAD = """# Mutants

`make mutants`: a seeded random sample of small faults, and whether a test noticed. Survivors that a line of `tests/mutation/survivors.toml` explains are
"equivalent" (no test could notice) or "excused" (none need); the share is of all but the equivalent ones, with its 95 % Clopper-Pearson interval.

"""
#: Rooms that show a line together: the ledger's, and those that add up what a party holds.
SUMS = ("privacy", "totals", "products", "linear", "inference")
#: The first round asks tests of so few files: most mutants die there, without the import of every test file.
FILES = 6


def sample(seed: int) -> list[tuple[str, str, Site]]:
    """All faults of all files, each with its key, in the order of a digest of seed and key: another line in a file leaves the order of the rest
    as it is."""
    found = []
    for name, file in sources(ROOT).items():
        source, seen = file.read_text(), Counter()
        text = source.splitlines()
        for site in sites(source):
            words = (name, text[site.line - 1].strip(), site.kind, site.before, site.after)
            seen[words] += 1
            key = hashlib.sha256(repr((seed, seen[words], *words)).encode()).hexdigest()[:16]
            found.append((key, name, site))
    return sorted(found, key=lambda fault: fault[0])


def rounds(tests: dict[str, float], file: str, kills: Counter[tuple[str, str]], seconds: float) -> list[dict[str, float]]:
    """The files of tests nearest to the module, then the rest; in both one test of each function, the cheapest, before a second one of any.

    Nearest are those that are named after it, then those that noticed most of its other faults, then those with most tests of the line.
    """
    stem, turns = Path(file).stem, Counter()
    near: dict[str, tuple[bool, int, int]] = {}
    turn: dict[str, int] = {}
    for test in sorted(tests, key=tests.__getitem__):
        home, function = test.split("::")[0], test.split("[")[0]
        near[home] = (stem not in home, -kills[file, home], near.get(home, (True, 0, 0))[2] - 1)
        turn[test] = turns[function].bit_length()  # the first, the second, the next two, the next four
        turns[function] += 1
    order = sorted(tests, key=lambda test: (turn[test], tests[test]))
    homes, first, used = set(sorted(near, key=near.__getitem__)[:FILES]), dict[str, float](), 0.0
    for test in order:
        if test.split("::")[0] in homes and used < seconds:
            first[test] = tests[test]
            used += tests[test]
    return [first, {test: tests[test] for test in order if test not in first}]


def listed() -> dict[tuple[str, str, str, str], dict[str, Any]]:
    entries = tomllib.loads(LISTED.read_text()).get("survivor", []) if LISTED.exists() else []
    return {(e["file"], e["statement"], e["before"], e["after"]): e for e in entries}


def one(
    site: Site, file: str, known: Map, kills: Counter[tuple[str, str]], seconds: float, also: list[str], scratch: Path
) -> dict[str, Any]:
    """What became of one mutant."""
    path = sources(ROOT)[file]
    module = ".".join(("unpooled", *Path(file).with_suffix("").parts)).removesuffix(".__init__")
    tests = known.of(file, site.lines, current=known.digests.get(file) == digest(path))
    parts = [part for part in (dict.fromkeys(also, 0.0), *rounds(tests, file, kills, seconds / 2)) if part]
    outcome, test, ran, used = "survived", "", 0, 0.0
    for part in parts:
        verdict = run(ROOT, (module, path, site.node, site.choice), part, max(5.0, seconds - used), scratch)
        outcome, test, ran, used = verdict.outcome, verdict.test, ran + verdict.ran, used + verdict.seconds
        if outcome != "survived" or used > seconds:
            break
    statement = path.read_text().splitlines()[site.lines[0] - 1].strip()
    return {
        "package": file.split("/", maxsplit=1)[0],
        "file": file,
        "line": site.line,
        "kind": site.kind,
        "before": site.before,
        "after": site.after,
        "outcome": outcome,
        "test": test,
        "ran": ran,
        "of": len({*tests, *also}),
        "seconds": round(used, 1),
        "statement": statement,
    }


def table(rows: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """A line per package, and the survivors that nobody has looked at."""
    excused, lines, fate = listed(), [], Counter()
    sums = ", ".join(SUMS)
    for row in rows:
        entry = excused.get((row["file"], row["statement"], row["before"], row["after"]))
        state = row["outcome"] if row["outcome"] != "survived" else (entry or {}).get("kind", "survived")
        for package in (row["package"], "all", *((sums,) if row["package"] in SUMS else ())):
            fate[package, state] += 1
        if state == "survived":
            lines.append(
                f"{row['file']}:{row['line']} [{row['kind']}] {row['before']}  ->  {row['after']}  ({row['ran']} of {row['of']} tests)"
            )
    states = ("killed", "timed out", "survived", "excused", "equivalent")
    shown = [f"| package | sampled | {' | '.join(states)} | noticed, % | from | to |", "|---" * (len(states) + 5) + "|"]
    for package in (*PACKAGES, sums, "all"):
        count = {state: fate[package, state] for state in states}
        real, noticed = sum(count.values()) - count["equivalent"], count["killed"] + count["timed out"]
        if real:
            low, high = binomtest(noticed, real).proportion_ci(0.95)
            cells = [sum(count.values()), *count.values(), *(f"{100 * share:.1f}" for share in (noticed / real, low, high))]
            shown.append(f"| {package} | {' | '.join(map(str, cells))} |")
    return "\n".join(shown), lines


def control(rows: list[dict[str, Any]], known: Map, scratch: Path) -> str:
    """The tests that killed must pass without a fault, run as they were run: or a kill would say nothing. A file that could not be loaded
    is stood for by its cheapest test."""
    words = {row["test"] for row in rows if row["outcome"] != "survived"}
    killers = {test: s for test, s in known.tests if test in words}
    for test, s in sorted(known.tests, key=lambda test: test[1]):
        if (home := test.split("::")[0]) in words:
            killers[test] = s
            words.remove(home)
    verdict = run(ROOT, None, killers, 10 * sum(killers.values()) + 600, scratch)
    return f"control: the {len(killers)} tests that noticed, without a fault: {verdict.outcome} {verdict.test} ({verdict.ran} ran)"


def main() -> None:
    words = argparse.ArgumentParser(prog="mutants", description=__doc__)
    words.add_argument("--count", type=int, default=400)
    words.add_argument("--minutes", type=float, default=60.0)
    words.add_argument("--seed", type=int, default=21)
    words.add_argument("--each", type=float, default=60.0, help="seconds of tests for one mutant")
    words.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "mutants", help="where the map of tests lies, or is made"
    )
    words.add_argument("--measured", nargs="*", default=[], help="make the map of these pairs coverage:durations")
    words.add_argument(
        "--out", type=Path, help="a CSV file of the outcomes; what it holds already is kept and not run again"
    )
    words.add_argument(
        "--again", action="store_true", help="run those that survived or took too long, and only those, again"
    )
    words.add_argument(
        "--also", nargs="*", default=[], help="test ids that are newer than the map: run first for every mutant"
    )
    said = words.parse_args()
    said.folder.mkdir(parents=True, exist_ok=True)
    kept = said.folder / "map.json"
    if said.measured:
        save(convert(ROOT, [tuple(map(Path, pair.split(":"))) for pair in said.measured]), kept)
    elif not kept.exists():
        save(measure(ROOT, said.folder), kept)
    known = load(kept)
    warm()
    out = said.out or said.folder / "mutants.csv"
    rows: dict[str, dict[str, Any]] = {}
    if out.exists():
        with out.open(newline="") as file:
            rows = {row["key"]: row | {"line": int(row["line"])} for row in csv.DictReader(file)}
    scratch = said.folder / f"scratch-{os.getpid()}"
    cheapest = {test.split("::")[0]: test for test, _ in sorted(known.tests, key=lambda test: -test[1])}
    whole = run(ROOT, None, dict.fromkeys(cheapest.values(), 1.0), 600.0, scratch)
    if whole.outcome != "survived":
        words.error(f"without a fault, {whole.test} is {whole.outcome}: what it says of mutants would mean nothing")
    until, left = time.monotonic() + 60 * said.minutes, 0
    chosen, known_survivors = sample(said.seed)[: said.count], listed()
    for key, name, site in chosen:
        if key in rows:
            row = rows[key]
            settled = (
                row["outcome"] == "killed" or (row["file"], row["statement"], row["before"], row["after"]) in known_survivors
            )
            if settled or not said.again:
                continue
        elif said.again:
            continue
        if time.monotonic() > until:
            left += 1
            continue
        kills = Counter((row["file"], row["test"].split("::")[0]) for row in rows.values() if row["outcome"] == "killed")
        row = rows[key] = {"key": key} | one(site, name, known, kills, said.each, said.also, scratch)
        print(
            f"{key} {row['outcome']} {row['seconds']}s {name}:{site.line} {site.before} -> {site.after} {row['test'][:100]}",
            flush=True,
        )
        with out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(rows.values())
    shown = [rows[key] for key, _, _ in chosen if key in rows]
    print(
        f"{len(shown)} of {len(sample(said.seed))} mutants; {left} were left when the time was used up"
        if left
        else f"{len(shown)} mutants"
    )
    said_of_packages, survivors = table(shown)
    print("\n".join([said_of_packages, "", "Noticed by nothing:", *(survivors or ["none"])]))
    out.with_suffix(".md").write_text(HEAD + said_of_packages + "\n")
    print(control(shown, known, scratch))


if __name__ == "__main__":
    main()
