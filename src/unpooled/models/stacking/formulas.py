"""Reads the formula of a stacking study: returns the columns that it derives, or refuses it with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.errors import UsageError
from unpooled.inference.coding import check_formula, formula_columns
from unpooled.linear.layout import symmetric

if TYPE_CHECKING:
    from unpooled.inference.coding import FormulaColumns
    from unpooled.models.stacking.parameters import Parameters
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.study import Study


def made_of(study: Study, p: Parameters) -> FormulaColumns | None:
    """Return the columns that the formula derives; None without a formula."""
    if not p.formula:
        return None
    check_formula(p.formula, (p.response,))
    if p.split != "samples":
        raise UsageError(
            "a formula is for the rows of one party, or of several with the same columns: set split = 'samples'. Where columns are split, "
            "each party adds the columns that it derives to its own data, and declares them"
        )
    if p.norm is not None:
        raise UsageError("a formula goes without norm, which bounds rows of the declared columns: leave norm out")
    made = formula_columns(p.formula, study.parties[0].columns)
    if made.derived.offset_column is not None:
        raise UsageError(
            "a perturbed logistic fit has no offset: leave it out of the formula, or fit model 'glm', which has one"
        )
    if not made.features:
        raise UsageError("the formula names no column: a base rate alone is fitted by model 'glm' with method = 'mean'")
    return made


def features_of(made: FormulaColumns, *, intercept: bool) -> tuple[Column, ...]:
    """Return the derived columns as they are coded: about 0 where there is no constant that could take up the middle of a range."""
    columns = tuple(feature.column for feature in made.features)
    return columns if intercept else tuple(map(symmetric, columns))
