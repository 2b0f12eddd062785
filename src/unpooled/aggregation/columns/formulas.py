"""A formula over columns of several parties: every party makes the terms of its own columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from unpooled.aggregation.layout import MomentsLayout
from unpooled.errors import UsageError
from unpooled.formula import Formula
from unpooled.privacy.bounds import integer_grid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from unpooled.privacy.bounds import Column


def parts_of(
    formula: str, columns: Mapping[str, tuple[Column, ...]], response: Column, holder: str, rows: int
) -> tuple[MomentsLayout, ...]:
    """Return every party's part of a formula, of whose terms each has its columns at one party."""
    said = Formula.parse(formula)
    if said.offsets or not said.constant:
        raise UsageError("where columns lie at different parties, a formula has a constant and no offset")
    found = []
    for party, own in said.split({party: [c.name for c in held] for party, held in columns.items()}).items():
        if not own.terms and party == holder:  # it has the response alone
            found.append(MomentsLayout((), response, integer_grid(rows, 2)))
            continue
        if not own.terms:
            msg = f"formula: no term is of columns of {party!r}: name one, or leave the party out of the study"
            raise UsageError(msg)
        text = str(replace(own, response=(), survival=False))
        found.append(MomentsLayout.of((*columns[party], response), response.name, rows, formula=text))
    return tuple(found)
