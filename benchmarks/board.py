"""Where benchmarks note their ratios, so that ``make bench`` can put all of them on one board."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from neighbours import Neighbours

_NEIGHBOURS = Neighbours()


def on_the_board() -> bool:
    """Tell whether this run is one of ``make bench``."""
    return bool(os.environ.get("UNPOOLED_BOARD"))


def rounds(usual: int) -> int:
    """Return how often to measure: ``usual``, or once in a quick run, which only shows that everything works."""
    return 1 if os.environ.get("UNPOOLED_BENCH_QUICK") else usual


def kernels() -> list[dict[str, Any]]:
    """Return every BLAS that this process has loaded: its package, version, kernel (architecture) and number of threads."""
    if "numpy" not in sys.modules:
        return []
    from threadpoolctl import threadpool_info

    return [
        {
            "package": Path(pool["filepath"]).parent.name.removesuffix(".libs"),
            "library": f"{pool['internal_api']} {pool['version']}",
            "kernel": str(pool.get("architecture", "unknown")),
            "threads": pool["num_threads"],
        }
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    ]


def note(what: str, against: str, ratio: float, aim: str = "", *, more_is_better: bool = False) -> None:
    """Note one ratio of this run: our time (or memory) over theirs, or theirs over ours where more is better."""
    board = os.environ.get("UNPOOLED_BOARD")
    if board:
        row = {"what": what, "against": against, "ratio": round(float(ratio), 3), "aim": aim, "more": more_is_better}
        row |= {"others": round(_NEIGHBOURS.share(), 4), "blas": kernels()}
        with Path(board).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
