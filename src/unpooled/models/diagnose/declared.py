"""Plan of a diagnosis: a released model and public cuts give one histogram per party (Theorem H.1); and the counts that a party makes of its rows."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from scipy.special import expit

from unpooled.errors import UsageError
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.bounds import Coding
from unpooled.privacy.declared import says
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach, Vector
from unpooled.privacy.plan import Plan, Release, Study, check_parameters
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.unit import Adjacency, Split, Unit
from unpooled.protocol.messages import Nothing, Released
from unpooled.protocol.registry import ROWS, Step, Template

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.table import Table
    from unpooled.protocol.context import Context

    Floats = NDArray[np.float64]


# --- Plan ------------------------------------------------------------------------------------------------------------------
# Plan of a diagnosis: a released model and public cuts give one histogram per party (Theorem H.1).

STEP, RELEASE = "cells", "cells"
#: The most cuts of one kind.
_MOST = 200


class Link(StrEnum):
    """Functions that map the linear predictor to the mean of the response."""

    IDENTITY = "identity"
    LOG = "log"
    LOGISTIC = "logistic"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[parameters]`` of a study of this model."""

    response: Annotated[str, says("A declared column: two categories, or a range.", "y", column=True)]
    coefficients: Annotated[
        dict[str, float],
        says("A number for every column (or category), as ``unpooled result --csv`` prints them.", {}),
    ]
    intercept: Annotated[float, says("The constant.")] = 0.0
    link: Annotated[str, says('Of a response with two categories "logistic"; else "identity" or "log".', choices=Link)] = (
        Link.IDENTITY
    )
    cuts: Annotated[
        tuple[float, ...], says("Rising cuts of the linear predictor, fixed before anybody looks.", shown=True)
    ] = (0.0,)
    residual_cuts: Annotated[
        tuple[float, ...],
        says(
            "Of a response that is a number: rising cuts of its residuals; of two categories: [].",
            [-1.0, 0.0, 1.0],
            shown=True,
        ),
    ] = ()
    lines: Annotated[
        tuple[tuple[float, float], ...],
        says(
            "Of a model whose probabilities are means over several lines: (constant, factor) of the log odds of each. Left out: the linear predictor's own."
        ),
    ] = ()


@dataclass(frozen=True)
class DiagnoseDesign:
    """A study, understood."""

    parameters: Parameters
    features: tuple[Column, ...]
    response: Column

    @property
    def shape(self) -> tuple[int, int]:
        """Return cells of fitted values, and of classes or residuals."""
        p = self.parameters
        return len(p.cuts) + 1, 2 if self.response.categories is not None else len(p.residual_cuts) + 1

    def statistic(self, table: Table) -> NDArray[np.int64]:
        """Return the exact counts of one party's rows."""
        rows, columns = self.shape
        total = np.zeros(rows * columns, dtype=np.int64)
        for block in table.blocks((*(column.name for column in self.features), self.response.name)):
            total += np.bincount(self._cells(block), minlength=total.size)
        return total

    def _cells(self, block: tuple[NDArray[Any], ...]) -> NDArray[np.intp]:
        p = self.parameters
        coding, natural = Coding(self.features, 1), Coding(self.features, 1).natural(list(block[:-1]))
        fitted = np.full(block[-1].size, p.intercept)
        for name, values in zip(coding.coded_names, natural.T, strict=True):  # one after the other: places do not matter
            fitted += values * p.coefficients[name]
        if self.response.categories is not None:
            second = np.asarray(block[-1] == self.response.categories[1]).astype(np.intp)
        else:
            low, high = self.response.range
            second = np.searchsorted(p.residual_cuts, np.clip(block[-1], low, high) - mean_of(p.link, fitted), side="right")
        return np.asarray(np.searchsorted(p.cuts, fitted, side="right") * self.shape[1] + second)


def mean_of(link: str, fitted: Floats) -> Floats:
    """Return the mean of the response at a linear predictor."""
    if link == Link.LOG:
        return np.exp(np.minimum(fitted, 300.0))
    return expit(fitted) if link == Link.LOGISTIC else fitted


def _rising(name: str, cuts: tuple[float, ...]) -> None:
    if not 1 <= len(cuts) <= _MOST or not all(map(math.isfinite, cuts)) or any(b <= a for a, b in itertools.pairwise(cuts)):
        msg = f"{name} are between 1 and {_MOST} rising numbers, fixed before anybody looks at data"
        raise UsageError(msg)


def design_of(study: Study) -> DiagnoseDesign:
    """Return the checked design that the study asks for."""
    p = check_parameters(study, Parameters)
    first = study.one_card_for_all()
    response = first.column(p.response)
    features = tuple(column for column in first.columns if column.name != p.response)
    if response.may_be_absent:
        msg = f'the response {p.response!r} must not be missing: declare missing = "refuse"'
        raise UsageError(msg)
    if (p.link == Link.LOGISTIC) != (response.categories is not None) or p.link not in set(Link):
        raise UsageError('link is "logistic" for a response with two categories, else "identity" or "log"')
    if response.categories is not None and (len(response.categories) != 2 or p.residual_cuts):  # noqa: PLR2004 - two classes
        raise UsageError("a response with categories has two of them, and no residuals to cut")
    names = set(Coding(features, 1).coded_names)
    if not features or set(p.coefficients) != names:
        msg = f"coefficients has one number for each of {', '.join(sorted(names))}"
        raise UsageError(msg)
    if not all(map(math.isfinite, (*p.coefficients.values(), p.intercept))):
        raise UsageError("coefficients and intercept are finite numbers")
    if p.lines and (p.link != Link.LOGISTIC or not all(math.isfinite(number) for line in p.lines for number in line)):
        raise UsageError("lines are finite numbers, two for each, of a response with two categories")
    _rising("cuts", p.cuts)
    if response.categories is None:
        _rising("residual_cuts", p.residual_cuts)
    return DiagnoseDesign(p, features, response)


def compile_plan(study: Study) -> Plan:
    """Return one histogram of every party."""
    design = design_of(study)
    moved = math.sqrt(2.0)
    row = Reach(moved, 2) if study.adjacency == Adjacency.REPLACE else Reach(1.0, 1)
    reach = {Unit.RECORD: row, Unit.ATTRIBUTE: Reach(moved, 2)}
    if study.unit == Unit.HOUSEHOLD:
        reach[Unit.HOUSEHOLD] = row.times(study.household_rows)
    mu = budget_mu(study.epsilon, study.delta)
    mechanism = GaussianRelease.calibrated((Block(math.prod(design.shape), 1.0),), reach, Unit(study.unit), mu)
    return Plan(
        study,
        Split.HORIZONTAL,
        tuple(Release(RELEASE, card.name, STEP, mechanism) for card in study.parties),
        public=(
            Sentence(
                "diagnose.public",
                "The coefficients of the model and the cuts of its fitted values and residuals, which the study declares.",
            ),
        ),
        assumptions=(
            Sentence(
                "diagnose.model",
                "The model's coefficients were released before with a guarantee of their own, or come from other people's data: they are not an "
                "unreleased function of these rows.",
            ),
        ),
        design=design,
    )


# --- Messages --------------------------------------------------------------------------------------------------------------
# Everything that may leave a party: one noisy histogram.


class CellsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The counts of all cells, with noise."""

    cells: Released


# --- The party's steps -----------------------------------------------------------------------------------------------------
# The only part of this model that touches raw data: exact counts of cells.


def answer(context: Context, request: Nothing) -> CellsReply:  # noqa: ARG001 - the request is no more than its name
    """Release this party's counts."""
    context.planned(RELEASE)
    return CellsReply(context.release(RELEASE, Vector(context.added_up(_cells))))


def _cells(context: Context[DiagnoseDesign], settings: tuple[float, ...]) -> NDArray[np.int64]:  # noqa: ARG001 - there are none
    return context.design.statistic(context.table)


STEPS = (Step(STEP, Nothing, CellsReply, answer),)


# --- The new study file ----------------------------------------------------------------------------------------------------
# The new study file of a diagnosis.

TEMPLATE = Template.of(
    Parameters, "How well a released model fits: ROC, calibration or residuals, from one histogram over public cells.", ROWS
)
