"""A study of this process, as every ``fit`` and function runs it; how several of them become one; and what results say of their plan."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from unpooled.errors import UsageError
from unpooled.inference.saving import Savable
from unpooled.privacy.policy import Policy
from unpooled.protocol.local import run_in_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unpooled.privacy.budget import Budget
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.statement import Statement
    from unpooled.privacy.table import Table
    from unpooled.protocol.identity import Keeper
    from unpooled.protocol.local import LocalRun
    from unpooled.protocol.registry import Model
    from unpooled.protocol.terms import ResultTerm


# --- Running ---------------------------------------------------------------------------------------------------------------
# A study of this process, as every ``fit`` and function runs it; and how several of them become one study.
#
# A fit reads its data, makes a study of them, runs it, and goes on with the result. :func:`asked_by` stops it where its study is known, and
# :func:`answered` runs it again with the result of a study that contained this one: so a fit need not know whether it is alone.


@dataclass(frozen=True)
class Asked:
    """The study of a fit, over these tables of its parties, and what else its run is given."""

    model: Model
    study: Study
    tables: Mapping[str, Table]
    keepers: Mapping[str, Keeper] | None = None
    budget: Budget | None = None
    roots: Mapping[str, bytes] | None = None
    #: The tables of each party as single analyses of the study see them.
    views: Mapping[str, Mapping[str, Table]] | None = None
    #: Finds the models of its parts; None: it is of this model alone.
    registry: Callable[[str], Model] | None = None


class _Known(BaseException):
    """A fit is stopped: its study is known. No fit may catch it."""

    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self.asked = asked


#: Runs the study of a fit: this process by itself, a Study that contains it, or an audit.
Runner = Callable[[Asked], "tuple[Plan, LocalRun]"]
_RUNNER: ContextVar[Runner | None] = ContextVar("runner", default=None)


def run(
    model: Model,
    study: Study,
    tables: Mapping[str, Table],
    keepers: Mapping[str, Keeper] | None = None,
    budget: Budget | None = None,
    roots: Mapping[str, bytes] | None = None,
    views: Mapping[str, Mapping[str, Table]] | None = None,
    registry: Callable[[str], Model] | None = None,
) -> tuple[Plan, LocalRun]:
    """Return the plan of a study, and its run over tables of this process."""
    return (_RUNNER.get() or _in_this_process)(Asked(model, study, tables, keepers, budget, roots, views, registry))


def _in_this_process(asked: Asked) -> tuple[Plan, LocalRun]:
    plan = asked.model.compile(asked.study)
    known, registry = (asked.keepers, asked.budget, asked.roots, asked.views), asked.registry or (lambda _: asked.model)
    found = run_in_process(asked.model, plan, dict(asked.tables), Policy.in_process(), registry, *known)
    return plan.drawn(found.outcome.draw), found


def _alone(asked: Asked) -> Asked:
    """Refuse what an analysis of a Study cannot have of its own."""
    if asked.keepers or asked.roots or asked.views or asked.budget is not None:
        raise UsageError(
            "an analysis of a Study takes no budget of its own (give it to the Study), links no frames, and predicts no new rows"
        )
    return asked


def asked_by(fit: Callable[[], Any]) -> Asked:
    """Return the study that a fit makes of its data; nothing is run, and its warnings come when it is run again."""

    def stop(asked: Asked) -> tuple[Plan, LocalRun]:
        raise _Known(_alone(asked))

    with run_by(stop), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit()
        except _Known as known:
            return known.asked
    raise UsageError("an analysis is a fit, or a function that makes one: this one released nothing")


def answered(fit: Callable[[], Any], plan: Plan, found: LocalRun, asked: Asked) -> Any:  # noqa: ANN401 - whatever the fit returns
    """Return a fit that goes on with the result of this plan, which answers the study that it made before."""
    answers = [(plan, found)]

    def answer(again: Asked) -> tuple[Plan, LocalRun]:
        same = _alone(again).study == asked.study and _digests(again) == _digests(asked)
        if not same or not answers:
            raise UsageError(
                "an analysis asks one study, the same whenever it is made: this one asked another when it was run again"
            )
        return answers.pop()

    with run_by(answer):
        return fit()


def _digests(asked: Asked) -> dict[str, bytes]:
    return {name: table.digest for name, table in asked.tables.items()}


@contextmanager
def run_by(runner: Runner) -> Iterator[None]:
    """Let this runner run the studies of all fits inside."""
    token = _RUNNER.set(runner)
    try:
        yield
    finally:
        _RUNNER.reset(token)


# --- Planned ---------------------------------------------------------------------------------------------------------------
# Results of functions that release once: what each of them says of its plan, and how a file of it is read again.


class PlannedResult(Savable):
    """A result that keeps the plan of its release."""

    _model: ClassVar[Model]
    plan_: Plan

    @property
    def statement_(self) -> Statement:
        """Return the privacy statement of this result."""
        return self.plan_.statement

    @property
    def _result(self) -> Any:  # noqa: ANN401 - the model's own result
        """Return what the model found: the first field of every such class."""
        return getattr(self, dataclasses.fields(self)[0].name)  # type: ignore[arg-type]

    @property
    def terms(self) -> tuple[ResultTerm, ...]:
        """Return the result line by line."""
        return self._model.terms(self.plan_, self._result)

    @classmethod
    def _compiles(cls, study: Study) -> Plan:
        return cls._model.compile(study)


__all__ = ["Asked", "Runner", "answered", "asked_by", "run", "run_by"]
