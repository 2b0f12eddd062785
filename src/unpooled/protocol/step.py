"""What a model brings to the protocol: its steps at a party, and the row of the registry that names everything of it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from unpooled.errors import UsageError
from unpooled.privacy.unit import Unit
from unpooled.protocol.messages import Ask, check_reply_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec
    import numpy as np
    from numpy.typing import NDArray

    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.context import Context
    from unpooled.protocol.terms import ResultTerm

Replies: TypeAlias = list[Any]
#: A coordinator yields batches of requests and is sent the replies in the same order; it returns its result.
Conversation: TypeAlias = Generator[list[Ask], Replies, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing a party can be asked to do: a function from (context, request) to a reply of declared type."""

    name: str
    request: type[msgspec.Struct]
    reply: type[msgspec.Struct]
    answer: Callable[[Context, Any], msgspec.Struct]
    #: The release that it belongs to without making it (adding up what others released): it is asked for as often as that one is made.
    of: str = ""
    #: How often it may be asked for, of a plan without releases; else as often as its releases are planned.
    times: Callable[[Plan], int] | None = None

    def __post_init__(self) -> None:
        check_reply_type(self.reply)


@dataclass(frozen=True, slots=True)
class Panel:
    """Numbers of a result that belong into one figure, with intervals where the model has them."""

    title: str
    names: tuple[str, ...]
    values: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    #: The names follow each other (channels of a spectrum): a line, not bars.
    ordered: bool = False
    #: Ordered names are times, and a value holds from its own to the next one: steps.
    steps: bool = False


def no_panels(result: Any) -> tuple[Panel, ...]:  # noqa: ANN401, ARG001 - for models whose results stay at the parties
    """Nothing to draw."""
    return ()


def no_terms(plan: Plan, result: Any) -> tuple[ResultTerm, ...]:  # noqa: ANN401, ARG001 - for models that name no coefficients
    """Nothing to list."""
    return ()


def no_kept_terms(plan: Plan, party: str, kept: Mapping[str, NDArray[Any]]) -> tuple[ResultTerm, ...]:  # noqa: ARG001 - as above
    """Nothing that a party keeps has a name of its own."""
    return ()


def no_check(plan: Plan, party: str, table: Table) -> None:
    """Nothing that bounds do not say already."""


def no_labels(study: Study, count: int, rng: np.random.Generator) -> Mapping[str, NDArray[Any]]:  # noqa: ARG001 - as above
    """-1 and 1 will do."""
    return {}


@dataclass(frozen=True, slots=True)
class Model:
    """One system: everything the protocol needs to run it. Models are rows of ``unpooled.models.REGISTRY``."""

    #: What a study's :attr:`~unpooled.privacy.plan.Study.row` is called that asks for it.
    name: str
    compile_plan: Callable[[Study], Plan]
    steps: tuple[Step, ...]
    coordinate: Callable[[Plan], Conversation]
    #: The coordinator's result as text for a terminal, and as figures.
    render: Callable[[Any], str]
    panels: Callable[[Any], tuple[Panel, ...]] = no_panels
    #: What a study may achieve, from its plan alone (:class:`unpooled.estimation.outlook.Outlook`; ``quick=True``: at the epsilon that it asks
    #: for, by few runs); None where nobody can say.
    outlook: Callable[..., Any] | None = None
    #: The types of the coordinator's result, of which the first that fits reads it again from the record of a run; none: only a transcript gives it.
    results: tuple[Any, ...] = ()
    #: The result, and what a party keeps of a plan, line by line, in the data's own units.
    terms: Callable[[Plan, Any], tuple[ResultTerm, ...]] = no_terms
    kept_terms: Callable[[Plan, str, Mapping[str, NDArray[Any]]], tuple[ResultTerm, ...]] = no_kept_terms
    #: Made-up label columns, by name, of so many rows: where a study takes others than -1 and 1.
    made_up_labels: Callable[[Study, int, np.random.Generator], Mapping[str, NDArray[Any]]] = no_labels
    #: The units whose guarantee covers the parties' label columns too.
    covers_labels: frozenset[Unit] = frozenset()
    #: Whether a study of it may protect all rows of an id together.
    households: bool = False
    #: Refuses, at a party and before anything is sent, data that a plan cannot use.
    check: Callable[[Plan, str, Table], None] = no_check

    def compile(self, study: Study) -> Plan:
        """The plan of a study of this model, in this form."""
        if study.row != self.name:
            msg = f"model {self.name!r} is asked for {study.model!r} with calibration {study.calibration!r}, which is another form or none at all"
            raise UsageError(msg)
        if study.unit == Unit.HOUSEHOLD and not self.households:
            msg = f'model {study.row!r} has no proof for unit "household": describe, bayes, glm, pls and diagnose in their sound form have one'
            raise UsageError(msg)
        return self.compile_plan(study)
