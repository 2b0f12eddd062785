"""Attacks on what the rest of the house promises: neighbours replayed, studies broken on purpose, epsilon measured from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unpooled.audit.attacks import empirical_epsilon as empirical_epsilon

__all__ = ["empirical_epsilon"]


def __getattr__(name: str) -> object:
    import importlib

    home = {"empirical_epsilon": "unpooled.audit.attacks"}
    if name in home:
        return getattr(importlib.import_module(home[name]), name)
    msg = f"module 'unpooled.audit' has no attribute {name!r}"
    raise AttributeError(msg)
