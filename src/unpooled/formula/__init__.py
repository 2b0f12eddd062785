"""Formulas in Wilkinson's notation: terms that are functions of one row, with bounds that follow from what is declared.

:meth:`Formula.parse` reads a text, :meth:`Formula.derive` gives the derived columns with their bounds by interval arithmetic, and
:meth:`Derived.matrix` their values. No part of it reads data to decide what a term is. ``docs/formulas.md`` describes the notation.
"""

from unpooled.formula.derived import CategoryFactor, Derived, DerivedColumn
from unpooled.formula.formula import Formula

__all__ = ["CategoryFactor", "Derived", "DerivedColumn", "Formula"]
