"""Utility of a study compared with its budget, checked before anybody's data: once, for every model that has an outlook."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

from unpooled.errors import Refusal, UtilityWarning

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unpooled.estimation.outlook import Outlook
    from unpooled.privacy.plan import Plan, Study
    from unpooled.protocol.step import Model


def glance(model: Model, study: Study) -> Outlook | None:
    """Return the outlook at the epsilon of the study alone, by few runs; None where the model has none, or where there is nothing to spend."""
    if model.outlook is None or math.isinf(study.epsilon) or study.parameters.get("fitted"):
        return None  # a study of new rows fits nothing: what it is worth was decided by the one that did
    found: Outlook | None = model.outlook(study, quick=True)
    return found


def poor(outlook: Outlook) -> str:
    """Return the warning about a study that is not worth its budget."""
    shape = f"at epsilon {outlook.epsilon:g} with {outlook.rows} rows and {outlook.columns} columns, simulations without data expect"
    if outlook.worthwhile:
        return (
            f"{shape} next to nothing beyond the best that parties have from their own columns, which costs nothing "
            f"({outlook.measure}: {outlook.error:.3g}, nothing released: {outlook.nothing_released:.3g}): ask for more epsilon or more rows"
        )
    return (
        f"{shape} no more than a mean of this study ({outlook.measure}: {outlook.error:.3g}, a mean alone: {outlook.mean:.3g}): "
        "ask for more epsilon, more rows or fewer columns"
    )


def refuse_if_poor(asked: Iterable[tuple[Model, Study]]) -> None:
    """Refuse a study that is not worth its budget, before any party is asked; of several analyses, each must be worth its share."""
    for model, study in asked:
        outlook = glance(model, study)
        if outlook is None or outlook.pays:
            continue
        words = f"analysis {study.analysis!r}: {poor(outlook)}" if study.analysis else poor(outlook)
        all_the_same = "Nothing was asked of any party; --force, or `force = true` under [study], runs it all the same"
        msg = f"{words[0].upper()}{words[1:]}. {all_the_same}"
        raise Refusal(msg)


def warn_of_a_mean(plan: Plan, stacklevel: int) -> None:
    """Warn of a fit whose plan, decided before data, buys the mean of the response alone; nothing is simulated for it."""
    if getattr(plan.design, "mean_only", False) and not plan.study.derived:
        warnings.warn(
            f"at epsilon {plan.study.epsilon:g} with {sum(card.rows for card in plan.study.parties)} rows this fit is no more than a mean: noise "
            "would hide what columns explain. Ask for more epsilon, more rows or fewer columns; outlook(rows, columns) says what each would give",
            UtilityWarning,
            stacklevel=stacklevel + 1,
        )
