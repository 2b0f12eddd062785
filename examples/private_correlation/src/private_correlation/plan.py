"""From a study to its releases: five sums per party, their sensitivity (Theorem R.1) and their noise."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from unpooled.errors import UsageError
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.bounds import Coding, Column, integer_grid
from unpooled.privacy.declared import says
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach
from unpooled.privacy.plan import Plan, Release, Study, check_parameters
from unpooled.privacy.unit import Adjacency, Split, Unit
from unpooled.protocol.registry import ROWS, Template

#: The step that a party is asked to do, and the release that it makes.
STEP, RELEASE = "moments", "moments"
#: The widths of the noise in the sums of u, v and u v, and in those of u^2 and v^2.
BLOCKS = (1.0, math.sqrt(2.0))
_FEWEST_ROWS = 4


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[parameters]`` of a study of this model."""

    columns: Annotated[
        tuple[str, str],
        says("Two columns of numbers, which every party declares with the same ranges.", ["age", "pressure"], study=True),
    ]


TEMPLATE = Template.of(Parameters, "The correlation of two columns.", ROWS)


def distances(adjacency: Adjacency) -> dict[Unit, tuple[float, int]]:
    """Return the L2 distance that one unit moves the sums, in widths of the noise, and over how many coordinates (Theorem R.1)."""
    if adjacency is Adjacency.REPLACE:
        return {Unit.RECORD: (math.sqrt(8.0), 5), Unit.ATTRIBUTE: (math.sqrt(8.0), 3)}
    return {Unit.RECORD: (2.0, 5), Unit.ATTRIBUTE: (math.sqrt(2.5), 3)}


def compile_plan(study: Study) -> Plan:
    """Return the plan of a study. It is decided before data is seen, and every party compiles it again and compares."""
    parameters: Parameters = check_parameters(study, Parameters)
    one, two = (_column(study, name) for name in parameters.columns)
    if one == two:
        raise UsageError("columns names one column twice: a correlation is of two")
    if sum(card.rows for card in study.parties) < _FEWEST_ROWS:
        msg = f"a correlation with its error needs {_FEWEST_ROWS} rows at least"
        raise UsageError(msg)
    # The steps read the design as ``context.design``, the coordinator as ``plan.design``.
    coding = Coding((one, two), integer_grid(max(card.rows for card in study.parties), degree=2))
    square = float(coding.grid) ** 2
    blocks = [Block(3, square * BLOCKS[0]), Block(2, square * BLOCKS[1])]
    reach = {unit: Reach(far, moved) for unit, (far, moved) in distances(Adjacency(study.adjacency)).items()}
    mechanism = GaussianRelease.calibrated(blocks, reach, Unit(study.unit), budget_mu(study.epsilon, study.delta))
    releases = tuple(Release(RELEASE, card.name, STEP, mechanism) for card in study.parties)
    return Plan(study, Split.HORIZONTAL, releases, design=coding)


def _column(study: Study, name: str) -> Column:
    columns = {card.column(name) for card in study.parties}
    if len(columns) != 1:
        msg = f"the parties declare column {name!r} differently: agree on one range"
        raise UsageError(msg)
    (column,) = columns
    if column.categories is not None or column.may_be_absent:
        msg = f"column {name!r}: a correlation needs low and high, and no missing values"
        raise UsageError(msg)
    return column
