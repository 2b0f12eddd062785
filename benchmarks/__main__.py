"""Every benchmark compared with its peers, as one table of ratios: ``make bench`` (``make peers`` makes the peers' environments first).

    python -m benchmarks                     all parts; docs/benchmarks.md is written
    python -m benchmarks logistic squares    these parts alone; the table is printed
    python -m benchmarks --quick             every part once, to see that it works; nothing is written

Each part runs in a process of its own, one after the other, under a limit of time and without the variables that choose older kernels for BLAS.
A result is kept in ``.bench`` until the sources change, so a bench that was interrupted goes on where it stopped. A part is measured again where
other processes took more than 5 % of a core; where that does not help, the page is not written and the exit code is 2 (1: a part failed).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.page import page, versions
from benchmarks.runs import ROOT, Part, Result, result_of

PAGE = ROOT / "docs" / "benchmarks.md"
#: Families and methods whose whole fits are measured, each a part of its own.
FITS = ("glm", "regression", "features", "linkage")
PARTS = (
    Part("startup", "startup"),
    Part("codec", "codec"),
    Part("noise", "noise"),
    Part("sketch", "sketch", beside_peers=True),
    Part("ridge", "ridge"),
    Part("logistic", "logistic"),
    Part("squares", "squares"),
    Part("l1", "l1", beside_peers=True),
    Part("frank_wolfe", "frank_wolfe"),
    Part("lasso_rounds", "lasso_rounds"),
    Part("glm", "glm", beside_peers=True),
    Part("pls", "pls", beside_peers=True),
    Part("pride_gram", "pride_gram"),
    Part("moments", "moments"),
    Part("secure_sum", "secure_sum"),
    Part("stream", "stream"),
    Part("sources", "sources", ("--rows", "5000000")),
    Part("clusters", "clusters", ("--rows", "1000000", "5000000")),
    Part("linkage", "linkage", ("--ids", "1000", "--rounds", "1")),
    Part("network", "network"),
    *(Part(f"whole_fits_{kind}", "whole_fits", (kind,), beside_peers=kind != "linkage") for kind in FITS),
)


def verdict(results: Mapping[str, Result]) -> int:
    """Return the exit code: 2 where other processes took too much, else 1 where a part failed, else 0."""
    if any(not result.quiet for result in results.values()):
        return 2
    return int(any(result.failed for result in results.values()))


def write(results: Mapping[str, Result], text: str, place: Path) -> int:
    """Write the page unless other processes took too much, and return the exit code."""
    for name, result in results.items():
        if not result.quiet:
            print(f"{name}: other processes took {result.others:.0%} of a core, so the page is not written", file=sys.stderr)
    code = verdict(results)
    if code != 2:
        place.write_text(text, encoding="utf-8")
    return code


def main() -> int:
    """Run the parts that are asked for, print the table, and write the page where all of them were measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="only these")
    parser.add_argument("--seconds", type=float, default=180.0, help="the limit of each part")
    parser.add_argument("--again", action="store_true", help="measure again what is kept of these sources")
    parser.add_argument("--quick", action="store_true", help="measure once, whatever other processes do, and write nothing")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - {part.name for part in PARTS}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    results = {}
    for part in PARTS:
        if not asked.parts or part.name in asked.parts:
            print(f"--- {part.name}", flush=True)
            results[part.name] = result_of(part, asked.seconds, again=asked.again, quick=asked.quick)
            print(f"    {results[part.name].seconds:.0f} s", flush=True)
    reasons = Path(__file__).with_name("reasons.md").read_text(encoding="utf-8")
    peers = next(part for part in PARTS if part.beside_peers).command[0]
    text = page(results, {**versions(peers), **versions(sys.executable)}, reasons)
    print(text)
    if asked.quick:
        return int(any(result.failed for result in results.values()))
    return verdict(results) if asked.parts else write(results, text, PAGE)


if __name__ == "__main__":
    sys.exit(main())
