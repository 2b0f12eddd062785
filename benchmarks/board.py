"""Where benchmarks note their ratios, so that ``make bench`` can put all of them on one board."""

from __future__ import annotations

import json
import os
from pathlib import Path


def on_the_board() -> bool:
    """Whether this run is one of ``make bench``."""
    return bool(os.environ.get("UNPOOLED_BOARD"))


def note(what: str, against: str, ratio: float, aim: str = "", *, more_is_better: bool = False) -> None:
    """One ratio of this run: our time (or memory) over theirs, or theirs over ours where more is better."""
    board = os.environ.get("UNPOOLED_BOARD")
    if board:
        row = {"what": what, "against": against, "ratio": round(float(ratio), 3), "aim": aim, "more": more_is_better}
        with Path(board).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
