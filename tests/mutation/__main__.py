"""`make mutants`: a random sample of small faults in what the guarantee rests on, each of which a test should notice.

Prints a table per package with the share that was noticed and its Clopper-Pearson interval, then every fault that nothing noticed, but for
those that ``survivors.toml`` lists with the reason why no test could or need notice them. Mutants are taken in the order of a seeded
shuffle of all of them: whatever the time allows is a random sample.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
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
FIELDS = ("number", "package", "file", "line", "kind", "before", "after", "outcome", "test", "ran", "of", "seconds", "statement")
#: The first round asks so many tests of so few files: most mutants die there, without the import of every test file.
FIRST, FILES = 60, 5


def sample(seed: int) -> list[tuple[str, Site]]:
    """All faults of all files, shuffled."""
    found = [(name, site) for name, file in sources(ROOT).items() for site in sites(file.read_text())]
    random.Random(seed).shuffle(found)
    return found


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
    tests = dict.fromkeys(also, 0.0) | known.of(file, site.lines)
    parts = [part for part in rounds(tests, file) if part]
    outcome, test, ran, used = "survived", "", 0, 0.0
    for part in parts:
        verdict = run(ROOT, (module, path, site.node, site.choice), part, max(5.0, seconds - used), scratch)
        outcome, test, ran, used = verdict.outcome, verdict.test, ran + verdict.ran, used + verdict.seconds
        if outcome != "survived" or used > seconds:
            break
    statement = path.read_text().splitlines()[site.lines[0] - 1].strip()
    return {
        **{"package": file.split("/")[0], "file": file, "line": site.line, "kind": site.kind, "before": site.before},
        **{"after": site.after, "outcome": outcome, "test": test, "ran": ran, "of": len(tests)},
        **{"seconds": round(used, 1), "statement": statement},
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
            lines.append(f"{row['file']}:{row['line']} [{row['kind']}] {row['before']}  ->  {row['after']}  ({row['ran']} of {row['of']} tests)")
    table = [f"{'package':<24}{'sampled':>8}{'killed':>8}{'timed out':>10}{'survived':>9}{'equivalent':>11}{'excused':>8}  noticed, without equivalent ones (95 %)"]
    for package in (*PACKAGES, "privacy and aggregation", "all"):
        count = {state: fate[package, state] for state in ("killed", "timed out", "survived", "equivalent", "excused")}
        real = sum(count.values()) - count["equivalent"]
        if real:
            noticed = count["killed"] + count["timed out"]
            low, high = binomtest(noticed, real).proportion_ci(0.95)
            share = f"{noticed / real:.1%} ({low:.1%} to {high:.1%})"
            table.append(f"{package:<24}{sum(count.values()):>8}" + "".join(f"{count[s]:>{w}}" for s, w in zip(count, (8, 10, 9, 11, 8), strict=True)) + f"  {share}")
    return "\n".join([*table, "", "Noticed by nothing:", *(lines or ["none"])])


def control(rows: list[dict[str, Any]], known: Map, scratch: Path) -> str:
    """The tests that killed must pass without a fault, run as they were run: or a kill would say nothing."""
    killers = {row["test"]: 0.0 for row in rows if row["outcome"] == "killed" and "::" in row["test"]}
    killers = {test: s for test, s in known.tests if test in killers}
    verdict = run(ROOT, None, killers, 10 * sum(killers.values()) + 600, scratch)
    return f"control: the {len(killers)} tests that killed, without a fault: {verdict.outcome} {verdict.test} ({verdict.ran} ran)"


def main() -> None:
    words = argparse.ArgumentParser(prog="mutants", description=__doc__)
    words.add_argument("--count", type=int, default=400)
    words.add_argument("--first", type=int, default=0, help="leave out so many of the shuffle")
    words.add_argument("--minutes", type=float, default=60.0)
    words.add_argument("--seed", type=int, default=21)
    words.add_argument("--each", type=float, default=60.0, help="seconds of tests for one mutant")
    words.add_argument("--folder", type=Path, default=ROOT / "build" / "mutants", help="where the map of tests lies, or is made")
    words.add_argument("--measured", nargs="*", default=[], help="make the map of these pairs coverage:durations")
    words.add_argument("--out", type=Path, help="a CSV file of the outcomes; what it holds already is kept and not run again")
    words.add_argument("--again", action="store_true", help="run those that survived, and only those, again")
    words.add_argument("--also", nargs="*", default=[], help="test ids that are newer than the map: run first for every mutant")
    said = words.parse_args()
    said.folder.mkdir(parents=True, exist_ok=True)
    kept = said.folder / "map.json"
    if said.measured:
        save(convert(ROOT, [tuple(map(Path, pair.split(":"))) for pair in said.measured]), kept)
    elif not kept.exists():
        save(measure(ROOT, said.folder), kept)
    known = load(kept)
    stale = [name for name, file in sources(ROOT).items() if known.digests.get(name) != digest(file)]
    if stale:
        words.error(f"{kept} was measured before {stale[0]} changed: delete it, and it is measured anew")
    warm()
    out = said.out or said.folder / "mutants.csv"
    rows: dict[int, dict[str, Any]] = {}
    if out.exists():
        with out.open(newline="") as file:
            rows = {int(row["number"]): row | {"line": int(row["line"])} for row in csv.DictReader(file)}
    until, chosen = time.monotonic() + 60 * said.minutes, sample(said.seed)
    for number in range(said.first, min(said.count, len(chosen))):
        if time.monotonic() > until:
            print(f"the time is used up after {number} mutants")
            break
        if (rows[number]["outcome"] != "survived" if number in rows else False) or (said.again != (number in rows)):
            continue
        name, site = chosen[number]
        scratch = said.folder / f"scratch-{os.getpid()}"
        rows[number] = {"number": number} | one(site, name, known, said.each, said.also, scratch)
        row = rows[number]
        print(f"{number} {row['outcome']} {row['seconds']}s {name}:{site.line} {site.before} -> {site.after} {row['test'][:100]}", flush=True)
        with out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(rows[k] for k in sorted(rows))
    shown = [rows[k] for k in sorted(rows)]
    print(report(shown))
    print(control(shown, known, said.folder / f"scratch-{os.getpid()}"))


if __name__ == "__main__":
    main()
