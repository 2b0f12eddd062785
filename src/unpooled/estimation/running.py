"""A study of this process, as every ``fit`` and function runs it; how several of them become one; and what results say of their plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
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
# A fit reads its data, makes a study of them, runs it, and goes on with the result. A :class:`Waiting` fit stands still where its study is known,
# until it is given the result of a study that contained this one: so a fit need not know whether it is alone.


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
    #: The estimator that is fitted, if one is.
    whose: object = None


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
    whose: object = None,
) -> tuple[Plan, LocalRun]:
    """Return the plan of a study, and its run over tables of this process."""
    return (_RUNNER.get() or _in_this_process)(Asked(model, study, tables, keepers, budget, roots, views, registry, whose))


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


class Waiting:
    """A fit that made its study, and waits for the result of it in a thread of its own until it is answered, or closed."""

    def __init__(self, fit: Callable[[], Any]) -> None:
        self._said: SimpleQueue[Asked | _Ended] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Plan, LocalRun] | None] = SimpleQueue()
        self._answered = False
        Thread(target=copy_context().run, args=(self._work, fit), daemon=True).start()
        said = self._said.get()
        if isinstance(said, _Ended):
            said.value()  # raises what the fit raised, if it did
            raise UsageError("an analysis is a fit, or a function that makes one: this one released nothing")
        #: The study that the fit makes of its data.
        self.asked = said

    def _work(self, fit: Callable[[], Any]) -> None:
        _RUNNER.set(self._wait)
        try:
            found = fit()
        except BaseException as error:  # noqa: BLE001 - whatever ends the fit ends it for the caller, who waits
            self._said.put(_Ended(error=error))
        else:
            self._said.put(_Ended(found))

    def _wait(self, asked: Asked) -> tuple[Plan, LocalRun]:
        if self._answered:
            raise UsageError("an analysis asks one study: this one asked another after it was answered, or refused")
        self._said.put(_alone(asked))
        if (answer := self._answers.get()) is None:
            raise UsageError("the study of this analysis was not run")
        return answer

    def close(self) -> None:
        """Let a fit end that is not answered, because the study was refused: its thread would hold its frame. It asks nothing more."""
        self._answered = True
        self._answers.put(None)

    def answered(self, plan: Plan, found: LocalRun) -> Any:  # noqa: ANN401 - whatever the fit returns
        """Return what the fit returns, once it is given the result of this plan, which answers its study."""
        self._answered = True
        self._answers.put((plan, found))
        said = self._said.get()
        assert isinstance(said, _Ended)  # a second study is refused inside the fit
        return said.value()


@dataclass(frozen=True)
class _Ended:
    """What a fit returned, or what it raised."""

    found: Any = None
    error: BaseException | None = None

    def value(self) -> Any:  # noqa: ANN401 - as above
        if self.error is not None:
            raise self.error
        return self.found


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
        return self._model.reading.terms(self.plan_, self._result)

    def curves_as_lists(self) -> dict[str, dict[str, list[float]]]:
        """Return the curves that this result draws, by name, as data."""
        return {}

    @classmethod
    def _compiles(cls, study: Study) -> Plan:
        return cls._model.compile(study)


__all__ = ["Asked", "PlannedResult", "Runner", "Waiting", "run", "run_by"]
