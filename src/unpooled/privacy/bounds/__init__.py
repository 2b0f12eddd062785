"""Declarations about the data, made before anybody looks at the data, and the coding of rows by these declarations.

A :class:`Column` is the declaration of one column, a :class:`Bounds` the short way to write many; :class:`Coding` turns raw
blocks into integers by public constants only: clip to the range, centre at its middle, scale by its half width, round toward
zero to a grid. So zero lies inside every range, every coded value lies in [-grid, grid], and nothing is read off the data.
"""

from unpooled.privacy.bounds.coding import AsDeclared, Coding, check, integer_grid
from unpooled.privacy.bounds.column import Column, Missing, text_of
from unpooled.privacy.bounds.declared import Bounds

__all__ = ["AsDeclared", "Bounds", "Coding", "Column", "Missing", "check", "integer_grid", "text_of"]
