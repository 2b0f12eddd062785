"""Made-up distributions that declare models: modules and metadata in a folder of their own on the search path."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path

import pytest

Declare = Callable[..., Path]
#: A model that describes columns under another name.
ROW = """
from dataclasses import replace
from unpooled.models import load
MODEL = replace(load("describe"), name={name!r})
"""


@contextmanager
def declaring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Declare]:
    """A function that installs a made-up distribution with one entry point and one module, and returns its folder."""

    def made(distribution: str, name: str, module: str, source: str, version: str = "1.0") -> Path:
        folder = tmp_path / f"{distribution}-{version}"
        about = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (about / "entry_points.txt").write_text(f"[unpooled.models]\n{name} = {module}:MODEL\n")
        (folder / f"{module}.py").write_text(source)
        monkeypatch.syspath_prepend(str(folder))
        return folder

    yield made
    for module in [name for name in sys.modules if name.startswith("made_up_row")]:
        del sys.modules[module]
    invalidate_caches()
