"""From a study to its releases: one sum per party, its sensitivity (Theorem M.1) and its noise."""

from __future__ import annotations

import msgspec

from unpooled.errors import UsageError
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.bounds import Coding, integer_grid
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach
from unpooled.privacy.plan import Plan, Release, Study, check_parameters
from unpooled.privacy.unit import ROWWISE, Adjacency, Split, Unit

#: The step that a party is asked to do, and the release that it makes.
STEP, RELEASE = "sum", "sum"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[parameters]`` of a study of this model."""

    #: The column whose mean is wanted.
    column: str


def compile_plan(study: Study) -> Plan:
    """Everything about the study that can be decided before data is seen. It is pure: every party compiles it again and compares."""
    parameters: Parameters = check_parameters(study, Parameters)
    columns = {card.column(parameters.column) for card in study.parties}
    if len(columns) != 1:
        msg = f"the parties declare column {parameters.column!r} differently: agree on one range"
        raise UsageError(msg)
    (column,) = columns
    if column.categories is not None or column.may_be_absent:
        msg = f"column {column.name!r}: a mean needs low and high, and no missing values"
        raise UsageError(msg)
    # What the model understood of the study: the steps read it as ``context.design``, the coordinator as ``plan.design``.
    coding = Coding((column,), integer_grid(max(card.rows for card in study.parties), degree=1))
    distance = coding.grid * (2.0 if Adjacency(study.adjacency) is Adjacency.REPLACE else 1.0)
    mechanism = GaussianRelease.calibrated(
        [Block(1, 1.0)], dict.fromkeys(ROWWISE, Reach(distance, 1)), Unit(study.unit), budget_mu(study.epsilon, study.delta)
    )
    releases = tuple(Release(RELEASE, card.name, STEP, mechanism) for card in study.parties)
    return Plan(study, Split.HORIZONTAL, releases, design=coding)
