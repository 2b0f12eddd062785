"""Cells of experiments, each made once: a stop at any time loses the one that was being made.

A script asks ``kept(key, make)`` for every cell. What was made lies in ``build/cells/``, a line each, while the code behind it stays;
``--fresh`` begins anew. The CPU seconds of all cells, of earlier sittings too, stand at the head of the script's tables.
"""

from __future__ import annotations

import ast
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
from unpooled.protocol.registry import OWN

HERE = Path(__file__).parent
KEPT = HERE.parent / "build/cells"
#: Where each public name of the package is.
PUBLIC = unpooled._HOME  # noqa: SLF001 - the list that the package itself reads
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


def _file(module: str) -> Path | None:
    """Return the file of a module of the package or of the experiments; None for any other."""
    root = {"unpooled": Path(unpooled.__file__).parent, "experiments": HERE}.get(module.partition(".")[0])
    place = root and root.joinpath(*module.split(".")[1:])
    return next((f for f in (place / "__init__.py", place.with_suffix(".py")) if f.is_file()), None) if place else None


@functools.cache
def _imported(module: str) -> frozenset[str]:
    """Return the modules that this one imports, wherever the import stands: also names that the package finds when they are first used."""
    file, found = _file(module), set()
    for node in ast.walk(ast.parse(file.read_text())) if file else ():
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in (alias.name for alias in node.names):
                inside = f"{node.module}.{name}"
                found.add(
                    inside if _file(inside) else PUBLIC.get(name, node.module) if node.module == "unpooled" else node.module
                )
                if node.module == "unpooled.models" and not _file(inside):  # it finds rows by their names
                    found |= {f"unpooled.models.{row}" for row in OWN}
    return frozenset(found)


@functools.cache
def _tables(module: str) -> frozenset[Path]:
    """Return the tables of tuned numbers that a module reads by ``table(...)``: those that it names, or all where it names one at run time."""
    if "unpooled.schedules" not in _imported(module):
        return frozenset()
    folder, found = Path(unpooled.__file__).parent / "schedules", set()
    for node in ast.walk(ast.parse(_file(module).read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "table":
            match node.args:
                case [ast.Constant(value=str(name))]:
                    found.add(folder / f"{name}.toml")
                case _:
                    found |= set(folder.glob("*.toml"))
    return frozenset(found)


def behind(module: str) -> list[Path]:
    """Return the files that a module is made of: its own, those of all that it imports, directly or not, and the tables of numbers that these read."""
    waiting, seen = [module], set()
    while waiting:
        name = waiting.pop()
        if name not in seen and _file(name):
            seen.add(name)
            waiting += [*_imported(name), name.rpartition(".")[0]]
    return sorted({file for name in seen if (file := _file(name))}.union(*map(_tables, seen)))


@functools.cache
def code() -> str:
    """Return a hash of the code behind this script's cells: of what it imports, so that other commits leave long runs alone."""
    total = hashlib.sha256()
    for file in behind(f"experiments.{script()}"):
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
