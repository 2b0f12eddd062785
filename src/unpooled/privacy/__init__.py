"""Privacy guarantees: units, bounds, sensitivities, noise, mechanisms, accounting, plans, ledgers, statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unpooled.privacy.accounting import gaussian_sigma as gaussian_sigma

__all__ = ["gaussian_sigma"]


def __getattr__(name: str) -> object:
    if name == "gaussian_sigma":  # lazily: SciPy takes a moment to import
        from unpooled.privacy.accounting import gaussian_sigma

        return gaussian_sigma
    msg = f"module 'unpooled.privacy' has no attribute {name!r}"
    raise AttributeError(msg)
