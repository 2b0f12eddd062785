"""The forms of five models as their papers print them, and the algorithms and bounds of these papers: kept for comparison, none of them private.

``papers.fit_pride``, ``fit_stacking``, ``fit_bayes``, ``fit_lasso`` and ``fit_pls`` fit each of them in one call, with its paper's own settings.

Nothing of the package imports this folder. Its rows join the registry through the entry points of the distribution, as those of any other package
(:mod:`unpooled.protocol.registry`), so an installation without it fits every sound model.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unpooled.papers.calls import fit_bayes, fit_lasso, fit_pls, fit_pride, fit_stacking

__all__ = ["fit_bayes", "fit_lasso", "fit_pls", "fit_pride", "fit_stacking"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - one of the functions above
    """Import the calls, and with them the estimators, when one of them is asked for."""
    if name in __all__:
        return getattr(importlib.import_module("unpooled.papers.calls"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
