"""Utility of a study compared with its budget, checked before anybody's data: once, for every model that has an outlook."""

from __future__ import annotations

import math
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import Refusal, UtilityWarning

if TYPE_CHECKING:
    from unpooled.estimation.outlook import Outlook
    from unpooled.privacy.plan import Study
    from unpooled.protocol.step import Model

#: Studies that were looked at before, by everything that they declare: fits of one shape are simulated once, and warned of once.
_SEEN: OrderedDict[bytes, Outlook | None] = OrderedDict()
_MOST_SEEN = 256


def glance(model: Model, study: Study) -> Outlook | None:
    """Return the outlook at the epsilon of the study alone, by few runs; None where the model has none, or where there is nothing to spend."""
    if model.outlook is None or math.isinf(study.epsilon) or study.parameters.get("fitted"):
        return None  # a study of new rows fits nothing: what it is worth was decided by the one that did
    key = _key(model, study)
    if key not in _SEEN:
        _SEEN[key] = model.outlook(study, quick=True)
        if len(_SEEN) > _MOST_SEEN:
            _SEEN.popitem(last=False)
    return _SEEN[key]


def _key(model: Model, study: Study) -> bytes:
    return model.name.encode() + msgspec.json.encode(msgspec.structs.replace(study, simulation_seed=None))


def poor(outlook: Outlook) -> str:
    """Return the warning about a study that is not worth its budget."""
    return (
        f"at epsilon {outlook.epsilon:g} with {outlook.rows} rows and {outlook.columns} columns, simulations without data expect no more than "
        f"a mean of this study ({outlook.measure}: {outlook.error:.3g}, a mean alone: {outlook.mean:.3g}): ask for more epsilon, "
        "more rows or fewer columns"
    )


def warn_if_poor(model: Model, study: Study, stacklevel: int) -> None:
    """Warn, once for each shape, of a fit that is not worth its budget.

    Nothing is simulated where such warnings are ignored, nor where bounds were read off the data: there is no promise to pay for.
    """
    if math.isinf(study.epsilon) or study.derived or model.outlook is None or _ignored() or _key(model, study) in _SEEN:
        return
    outlook = glance(model, study)
    if outlook is not None and not outlook.worthwhile:
        words = poor(outlook)
        warnings.warn(words[0].upper() + words[1:] + ". It is fitted.", UtilityWarning, stacklevel=stacklevel + 1)


def _ignored() -> bool:
    """Return True if a filter for all places ignores these warnings."""
    for action, message, category, module, line in warnings.filters:
        if issubclass(UtilityWarning, category) and message is None and module is None and not line:
            return action == "ignore"
    return False


def refuse_if_poor(model: Model, study: Study) -> None:
    """Refuse a study that is not worth its budget, before any party is asked."""
    outlook = glance(model, study)
    if outlook is not None and not outlook.worthwhile:
        words = poor(outlook)
        raise Refusal(words[0].upper() + words[1:] + ". Nothing was asked of any party; --force runs it all the same")
