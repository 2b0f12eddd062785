"""Numbers only: arrays in, arrays out. Nothing here knows what privacy is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unpooled.kernels.hadamard import srht as srht

__all__ = ["srht"]


def __getattr__(name: str) -> object:
    if name == "srht":  # lazily: numba takes a moment to import
        from unpooled.kernels.hadamard import srht

        return srht
    msg = f"module 'unpooled.kernels' has no attribute {name!r}"
    raise AttributeError(msg)
