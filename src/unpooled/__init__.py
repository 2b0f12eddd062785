"""unpooled: linear models on data you cannot pool, with differential privacy that is true end to end."""

from __future__ import annotations

import re
from pathlib import Path

__version__ = "0.2.0"

#: Public name -> module that defines it, as the stub file next to this one says (docs/public_names.py writes it). Each is loaded when it is first
#: used, so that importing unpooled stays fast.
_HOME = {
    name: module
    for module, name in re.findall(
        r"^from (\S+) import (\w+) as \w+$", Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"), re.MULTILINE
    )
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the names of the stub


def __getattr__(name: str) -> object:
    if name in _HOME:
        import importlib

        return getattr(importlib.import_module(_HOME[name]), name)
    msg = f"module 'unpooled' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
