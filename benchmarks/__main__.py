"""Every benchmark beside its peers, as one table of ratios: ``make bench`` (``make peers`` makes the peers' environments first).

Each script runs in a process of its own, one after the other, under a limit of time; what it prints is shown. Ratios are those that it notes
(:mod:`board`): both sides were measured in the same run, so they mean something on a shared machine, and seconds do not. Writes
``docs/benchmarks.md`` with the date, the machine and the versions.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / ".peers"
PAGE = ROOT / "docs" / "benchmarks.md"
#: Every script with its arguments; those that say so run where the peers of today's NumPy are installed.
SCRIPTS: dict[str, tuple[str, ...]] = {
    "startup": (),
    "codec": (),
    "noise": (),
    "sketch": (),
    "ridge": (),
    "logistic": (),
    "l1": (),
    "frank_wolfe": (),
    "lasso_rounds": (),
    "glm": (),
    "pls": (),
    "pride_gram": (),
    "moments": (),
    "secure_sum": (),
    "stream": (),
    "sources": ("--rows", "5000000"),
    "clusters": ("--rows", "1000000", "5000000"),
    "linkage": ("--ids", "1000", "--rounds", "1"),
    "network": (),
}
BESIDE_PEERS = {"sketch", "l1", "glm", "pls"}
NAMED = ("numpy", "scipy", "scikit-learn", "numba", "polars", "duckdb", "opendp", "ikpls", "celer", "skglm", "statsmodels")


def python_of(name: str) -> str:
    """The interpreter for a script: with the peers if it has any and they are installed."""
    peers = PEERS / "new" / "bin" / "python"
    return str(peers) if name in BESIDE_PEERS and peers.exists() else sys.executable


def environment(board: Path) -> dict[str, str]:
    """Where the peers of other versions are, if anywhere."""
    found = {"UNPOOLED_BOARD": str(board), "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "benchmarks")])}
    for variable, place in (("DIFFPRIVLIB_PYTHON", "old"), ("UNPOOLED_OPENMINED", "psi")):
        python = PEERS / place / "bin" / "python"
        if python.exists():
            found[variable] = str(python)
    return {**found, **{key: value for key, value in os.environ.items() if key not in found or key in os.environ}}


def versions(python: str) -> dict[str, str]:
    """Of the packages that are compared."""
    code = f"import importlib.metadata as m, json\nfound = {{}}\nfor n in {NAMED!r}:\n    try: found[n] = m.version(n)\n    except Exception: pass\nprint(json.dumps(found))"
    answer = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return json.loads(answer.stdout) if answer.returncode == 0 else {}


def processor() -> str:
    """What the machine calls its processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def page(rows: list[dict], took: dict[str, float], failed: list[str]) -> str:
    """The board as a page."""
    try:
        own = version("unpooled")
    except PackageNotFoundError:
        own = "of this checkout"
    every = {**versions(python_of("pls")), **versions(sys.executable)}
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`. Both sides of a ratio were measured in the same run; ours over theirs, unless it says *times faster*. A shared machine: figures move by a tenth or two.",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {processor()}, {os.cpu_count()} processors, Python {platform.python_version()}, unpooled {own}; "
        + ", ".join(f"{name} {number}" for name, number in sorted(every.items()))
        + ".",
        "",
        "| benchmark | what | beside | ratio | aim |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = f"{row['ratio']:.3g}" + (" times faster" if row["more"] else "")
        lines.append(f"| `{row['script']}` | {row['what']} | {row['against']} | {ratio} <!--= given --> | {row['aim']} |")
    lines += ["", f"{len(took)} scripts in {sum(took.values()) / 60:.0f} minutes."]
    if failed:
        lines.append(f"Not run, or not to the end: {', '.join(failed)}.")
    reasons = Path(__file__).with_name("reasons.md")
    return "\n".join(lines) + "\n\n" + (reasons.read_text() if reasons.exists() else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scripts", nargs="*", help="only these", default=list(SCRIPTS))
    parser.add_argument("--seconds", type=float, default=300.0, help="the limit of each script")
    asked = parser.parse_args()
    rows, took, failed = [], {}, []
    for name in asked.scripts:
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as board:
            print(f"--- {name}", flush=True)
            began = time.monotonic()
            try:
                command = [python_of(name), str(ROOT / "benchmarks" / f"{name}.py"), *SCRIPTS[name]]
                done = subprocess.run(command, env=environment(Path(board.name)), timeout=asked.seconds, check=False)
                failed += [name] if done.returncode else []
            except subprocess.TimeoutExpired:
                failed.append(name)
            took[name] = time.monotonic() - began
            noted = [json.loads(line) for line in Path(board.name).read_text().splitlines()]
        rows += [{"script": name, **row} for row in noted]
        print(f"    {took[name]:.0f} s", flush=True)
    text = page(rows, took, failed)
    print(text)
    if len(asked.scripts) == len(SCRIPTS):
        PAGE.write_text(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
