"""Runs of experiments on probabilities of stacks that continue where they stopped: a file for each cell, kept while the code behind it stays."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import unpooled


@functools.cache
def code() -> str:
    """Return a hash of the code behind the runs."""
    root, here = Path(unpooled.__file__).parent, Path(__file__).parent
    total = hashlib.sha256()
    for file in (
        *sorted((root / "models/stacking").glob("*.py")),
        root / "kernels/score_posterior.py",
        *sorted(here.glob("*.py")),
    ):
        total.update(file.read_bytes())
    return total.hexdigest()


def kept_runs(folder: str, cell: Sequence[float | str], often: int, once: Callable[[int], Any]) -> list[Any]:
    """Return the runs of a cell, one for each seed, as far as they are not there yet."""
    path = Path("build") / folder / f"{'-'.join(map(str, cell))}.json"
    kept = json.loads(path.read_text()) if path.is_file() else {}
    runs = kept.get("runs", []) if kept.get("code") == code() else []
    if len(runs) < often:
        runs += [once(seed) for seed in range(len(runs), often)]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"code": code(), "runs": runs}))
    return runs
