"""Cells of experiments, each made once: a stop at any time loses the one that was being made.

A script asks ``kept(key, make)`` for every cell. What was made lies in ``build/cells/``, a line each, while the code behind it stays;
``--fresh`` begins anew. The CPU seconds of all cells, of earlier sittings too, stand at the head of the script's tables.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import unpooled

HERE = Path(__file__).parent
KEPT = HERE.parent / "build/cells"
#: What no figure of a paper depends on; those of ``audit_*`` depend on the audit.
WITHOUT = ("cli", "console", "network", "report", "audit", "evidence", "testing")
_size = ["reduced"]


def size() -> str:
    """Return the size at which this script runs: "reduced", or "full" as the paper has it."""
    return _size[0]


def set_size(name: str) -> None:
    """Set the size at which this script runs."""
    _size[0] = name


def script() -> str:
    """Return the name of the script that runs, as "pride.figure_4"."""
    spec = sys.modules["__main__"].__spec__
    return spec.name.removeprefix("experiments.") if spec else Path(sys.argv[0]).stem


@functools.cache
def code() -> str:
    """Return a hash of the code behind this script's cells."""
    root = Path(unpooled.__file__).parent
    without = {part for part in WITHOUT if not script().startswith(part)}
    files = [file for file in sorted(root.rglob("*.py")) if file.relative_to(root).parts[0] not in without]
    total = hashlib.sha256()
    for file in (*files, HERE / "common.py", *sorted((HERE / Path(*script().split(".")[:-1])).glob("*.py"))):
        total.update(file.read_bytes())
    return total.hexdigest()[:16]


def _cpu() -> float:
    """Return the CPU seconds of this process, and of those that it started and that have ended."""
    return sum(os.times()[:4])


def _path() -> Path:
    return KEPT / f"{script()}.{size()}.jsonl"


@functools.cache
def _lines(path: Path) -> dict[str, dict[str, Any]]:
    """Return the cells of a file whose code is this code; a line that a stop tore is no cell."""
    found: dict[str, dict[str, Any]] = {}
    if path.is_file():
        for line in path.read_text().splitlines():
            try:
                one = json.loads(line)
            except json.JSONDecodeError:
                continue
            if one["code"] == code():
                found[one["key"]] = one
    return found


def forget() -> None:
    """Remove the cells of this script at this size."""
    _path().unlink(missing_ok=True)
    _lines.cache_clear()


def kept(key: object, make: Callable[[], Any]) -> Any:
    """Return the value of a cell (numbers, text, lists of them), made now if it is not there yet."""
    path, name = _path(), json.dumps(key, default=str)
    lines = _lines(path)
    if name not in lines:
        start = _cpu()
        value = make()
        line = {"key": name, "code": code(), "cpu": _cpu() - start, "value": value}
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.read_text() if path.is_file() else ""
        with path.open("a") as file:
            file.write(("\n" if whole and not whole.endswith("\n") else "") + json.dumps(line) + "\n")
        lines[name] = json.loads(json.dumps(line))
    return lines[name]["value"]


def cost() -> str:
    """Return what all cells of this script cost, and on which machine, for the head of a table; of a script without cells, what it has used."""
    lines = _lines(_path())
    seconds = sum(one["cpu"] for one in lines.values()) if lines else _cpu()
    found = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    model = re.search(r"model name\s*:\s*(.*)", found)
    machine = model[1].strip() if model else "an unknown machine"
    hours = f"{seconds / 3600:.1f} CPU hours" if seconds >= 360 else f"{seconds:.0f} CPU seconds"
    return f"{hours}, {os.cpu_count()} cores of {machine}."
