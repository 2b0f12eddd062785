"""`make mutants`: a random sample of small faults in what the guarantee rests on, each of which a test should notice.

Prints a table per package with the share that was noticed and its Clopper-Pearson interval, then every fault that nothing noticed, but for
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
#: The first round asks so many tests of so few files: most mutants die there, without the import of every test file.
FIRST, FILES = 60, 5


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


def rounds(tests: dict[str, float], file: str) -> list[dict[str, float]]:
    """The cheapest tests of the files nearest to the module; then the rest."""
    stem = Path(file).stem
    near: dict[str, tuple[bool, int]] = {}
    for test in tests:
        home = test.split("::")[0]
        near[home] = (stem not in home, near.get(home, (True, 0))[1] - 1)
    homes = set(sorted(near, key=near.__getitem__)[:FILES])
    first = dict([(test, s) for test, s in tests.items() if test.split("::")[0] in homes][:FIRST])
    return [first, {test: s for test, s in tests.items() if test not in first}]


def listed() -> dict[tuple[str, str, str, str], dict[str, Any]]:
    entries = tomllib.loads(LISTED.read_text()).get("survivor", []) if LISTED.exists() else []
    return {(e["file"], e["statement"], e["before"], e["after"]): e for e in entries}


def one(site: Site, file: str, known: Map, seconds: float, also: list[str], scratch: Path) -> dict[str, Any]:
    """What became of one mutant."""
    path = sources(ROOT)[file]
    module = ".".join(("unpooled", *Path(file).with_suffix("").parts)).removesuffix(".__init__")
    tests = dict.fromkeys(also, 0.0) | known.of(file, site.lines, current=known.digests.get(file) == digest(path))
    parts = [part for part in rounds(tests, file) if part]
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
        "of": len(tests),
        "seconds": round(used, 1),
        "statement": statement,
    }


def report(rows: list[dict[str, Any]]) -> str:
    """The table and the survivors that nobody has looked at."""
    excused, lines = listed(), []
    fate = Counter()
    for row in rows:
        entry = excused.get((row["file"], row["statement"], row["before"], row["after"]))
        state = row["outcome"] if row["outcome"] != "survived" else (entry or {}).get("kind", "survived")
        for package in (row["package"], "all", *(("privacy and aggregation",) if row["package"] in PACKAGES[:2] else ())):
            fate[package, state] += 1
        if state == "survived":
            lines.append(
                f"{row['file']}:{row['line']} [{row['kind']}] {row['before']}  ->  {row['after']}  ({row['ran']} of {row['of']} tests)"
            )
    table = [
        f"{'package':<24}{'sampled':>8}{'killed':>8}{'timed out':>10}{'survived':>9}{'equivalent':>11}{'excused':>8}  noticed, without equivalent ones (95 %)"
    ]
    for package in (*PACKAGES, "privacy and aggregation", "all"):
        count = {state: fate[package, state] for state in ("killed", "timed out", "survived", "equivalent", "excused")}
        real = sum(count.values()) - count["equivalent"]
        if real:
            noticed = count["killed"] + count["timed out"]
            low, high = binomtest(noticed, real).proportion_ci(0.95)
            share = f"{noticed / real:.1%} ({low:.1%} to {high:.1%})"
            table.append(
                f"{package:<24}{sum(count.values()):>8}"
                + "".join(f"{count[s]:>{w}}" for s, w in zip(count, (8, 10, 9, 11, 8), strict=True))
                + f"  {share}"
            )
    return "\n".join([*table, "", "Noticed by nothing:", *(lines or ["none"])])


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
    words.add_argument("--again", action="store_true", help="run those that survived, and only those, again")
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
    chosen = sample(said.seed)[: said.count]
    for key, name, site in chosen:
        if (rows[key]["outcome"] != "survived" or not said.again) if key in rows else said.again:
            continue
        if time.monotonic() > until:
            left += 1
            continue
        row = rows[key] = {"key": key} | one(site, name, known, said.each, said.also, scratch)
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
    print(report(shown))
    print(control(shown, known, scratch))


if __name__ == "__main__":
    main()
