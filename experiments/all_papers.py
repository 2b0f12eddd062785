"""Run every figure and table of the five papers, two at a time, each in a process of its own; say how long each took.

python -m experiments.all_papers [--full] [--fresh] [--write] [paper ...]

Each script goes on where it was stopped (``experiments/cells.py``) and compares its tables with those that are there (``experiments/agreement.py``).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
#: Those with the longest scripts first, so that none of them runs alone at the end.
PAPERS = ("pls", "stacking", "lasso", "bayes", "pride")
#: One thread each: two processes with two threads each would wait for one another.
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def run(script: Path, asked: list[str]) -> tuple[str, float, subprocess.CompletedProcess[str]]:
    """One script, its seconds, and what it printed."""
    start = time.perf_counter()
    name = f"{script.parent.name}.{script.stem}"
    done = subprocess.run(  # noqa: S603 - our own scripts
        [sys.executable, "-W", "ignore", "-m", f"experiments.{name}", *asked],
        cwd=HERE.parent,
        env={**os.environ, **ALONE},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return name, time.perf_counter() - start, done


def main(arguments: list[str]) -> int:
    """Every script of the papers that are named (all of them, if none is)."""
    asked = [a for a in arguments if a.startswith("--")]
    papers = [a for a in arguments if a not in asked] or PAPERS
    scripts = [s for paper in papers for s in sorted((HERE / paper).glob("*.py")) if not s.stem.startswith("_")]
    failed, begun = [], time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        for name, seconds, done in pool.map(lambda script: run(script, asked), scripts):
            print(f"{done.stdout}=== {name}: {seconds:.0f} s, exit {done.returncode}", flush=True)
            if done.returncode:
                failed.append(name)
    print(f"all: {time.perf_counter() - begun:.0f} s; failed: {', '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
