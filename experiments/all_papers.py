"""Run every figure and table of the five papers, each in a process of its own, and say how long each took.

python -m experiments.all_papers [--full] [paper ...]
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
PAPERS = ("pride", "stacking", "bayes", "lasso", "pls")


def main(arguments: list[str]) -> int:
    """Every script of the papers that are named (all of them, if none is)."""
    full = [a for a in arguments if a == "--full"]
    papers = [a for a in arguments if a not in full] or PAPERS
    failed, begun = [], time.perf_counter()
    for paper in papers:
        for script in sorted((HERE / paper).glob("*.py")):
            if script.stem.startswith("_"):
                continue
            start = time.perf_counter()
            print(f"=== {paper}/{script.stem}", flush=True)
            done = subprocess.run(
                [sys.executable, "-m", f"experiments.{paper}.{script.stem}", *full], cwd=HERE.parent, check=False
            )
            print(f"=== {paper}/{script.stem}: {time.perf_counter() - start:.0f} s, exit {done.returncode}", flush=True)
            if done.returncode:
                failed.append(f"{paper}/{script.stem}")
    print(f"all: {time.perf_counter() - begun:.0f} s; failed: {', '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
