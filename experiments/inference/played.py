"""Plays a study's own coordinator on exact totals of given rows, with the noise that the study's plan has."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import unpooled
from unpooled.estimation.outlook import imagine_rounds as imagine
from unpooled.models import load
from unpooled.privacy.plan import Plan
from unpooled.privacy.table import Table

#: The parts of the package that a played study depends on.
PARTS = (
    "estimation",
    "families",
    "formula",
    "inference",
    "kernels",
    "linear",
    "models",
    "privacy",
    "products",
    "schedules",
    "totals",
)


class Quiet:
    """A stand-in for a generator: no noise is drawn, and the errors are those that are planned."""

    def standard_normal(self, size: int) -> np.ndarray:
        """Zeros."""
        return np.zeros(size)


def played_result(plan: Plan, table: Table, noise: Any) -> Any:
    """The model's own result of a study that is played over these rows."""
    package = importlib.import_module(f"unpooled.models.{plan.study.model}")
    return imagine(plan, package.MODEL.coordinate, package.STATISTICS, table, noise)


def played_tables(plan: Plan, table: Table, noise: Any) -> Any:
    """The tables of such a study; None where its method makes none."""
    return load(plan.study.model).tables(plan, played_result(plan, table, noise))


def sources(root: Path, parts: Sequence[str]) -> list[Path]:
    """Return the files of these parts of the package that say what it computes: its code, and its tables of numbers."""
    found = []
    for part in parts:
        assert (root / part).is_dir(), f"there is no {part} in the package: name the rooms that there are"
        found += sorted(file for file in (root / part).rglob("*") if file.suffix in {".py", ".toml"})
    return found


def code() -> str:
    """A hash of the code that a played study depends on, and of the designs: runs of different hashes are not mixed."""
    root, own = Path(unpooled.__file__).parent, Path(__file__).parent
    files = sources(root, PARTS)
    total = hashlib.sha256()
    for file in (*files, *(own / name for name in ("designs.py", "responses.py", "targets.py", "played.py"))):
        total.update(file.read_bytes())
    return total.hexdigest()[:12]
