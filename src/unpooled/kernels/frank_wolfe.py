"""The former place of ``unpooled.papers.frank_wolfe``: its names still work in this version, with a warning."""

from __future__ import annotations

import importlib
import warnings

_MOVED = ("Sampling", "bound", "expected_curvature", "frank_wolfe", "interactions")


def __getattr__(name: str) -> object:
    if name not in _MOVED:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    home = __name__.replace("kernels", "papers")
    warnings.warn(
        f"{__name__}.{name} is now {home}.{name}: import it from there. The old name goes with the next version",
        FutureWarning,
        stacklevel=2,
    )
    return getattr(importlib.import_module(home), name)
