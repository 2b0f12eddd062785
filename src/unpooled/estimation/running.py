"""A study of this process, as every ``fit`` and function runs it; how several of them become one; and what results say of their plan."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec

from unpooled.errors import UsageError
from unpooled.estimation.outlook import warn_of_little
from unpooled.inference.results import Result
from unpooled.inference.saving import unpack
from unpooled.privacy.policy import Policy
from unpooled.protocol.local import run_in_process
from unpooled.protocol.registry import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unpooled.privacy.budget import Budget
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.statement import Statement
    from unpooled.privacy.table import Table
    from unpooled.protocol.identity import Keeper
    from unpooled.protocol.local import LocalRun
    from unpooled.protocol.registry import Model, Panel
    from unpooled.protocol.terms import PrintedTable, ResultTerm


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
    warn_of_little(plan)
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


class PlannedResult(Result):
    """A result that keeps the plan of its release: the row of its model says how it is read."""

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

    def __str__(self) -> str:
        return self._model.table(self.plan_, self._result)

    def _said(self) -> str:
        return f"{self._what()}; {self.statement_!r}"

    def _what(self) -> str:
        """Return what the result is of, in the short form."""
        return self.plan_.study.model

    def _printed(self) -> tuple[PrintedTable, ...]:
        return self._model.printed(self.plan_, self._result)

    def _foot(self) -> list[str]:
        return [*self._model.reading.foot(self.plan_, self._result), self.statement_.headline]

    def _panels(self) -> tuple[Panel, ...]:
        return self._model.reading.panels(self.plan_, self._result)

    def _arrays(self) -> dict[str, list[float]]:
        curves = self.curves_as_lists().items()
        return {f"{name}: {part}": values for name, curve in curves for part, values in curve.items()}

    @classmethod
    def _compiles(cls, study: Study) -> Plan:
        return cls._model.compile(study)


@dataclass(frozen=True, repr=False)
class ModelResult(PlannedResult):
    """The result of any model, of another package too, as the row of its model reads it.

    Attributes
    ----------
    result_ : object
        The model's own result.
    plan_ : Plan
        What was released, with which noise.
    terms : tuple of ResultTerm
        The result line by line.

    """

    result_: Any
    plan_: Plan

    @property
    def _model(self) -> Model:  # type: ignore[override]
        """Return the row of its model."""
        return _row(self.plan_.study.row)

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.statement_.headline}".lstrip("\n")

    def _saved_fields(self) -> dict[str, Any]:
        return {"record": msgspec.msgpack.encode(self.result_), "plan_": self.plan_}

    @classmethod
    def _of_saved(cls, body: bytes) -> Self:
        """Return a result made from the body of a file, in which it is as the record of a run has it."""
        return cls.of_record(**unpack(body, cls._saved_types, cls._compiles))

    @classmethod
    def of_record(cls, record: bytes, plan_: Plan, **more: Any) -> Self:  # noqa: ANN401 - of a class of its own
        """Return the result that these bytes record, which ran by this plan."""
        row = _row(plan_.study.row)
        return cls(row.reading.again(row.name, plan_, record), plan_, **more)

    @classmethod
    def _compiles(cls, study: Study) -> Plan:
        return _row(study.row).compile(study)


def _row(name: str) -> Model:
    """Return the row of this name: the registry stands above, and knows the rows of every package."""
    found: Model = importlib.import_module(GROUP).load(name)
    return found


__all__ = ["Asked", "ModelResult", "PlannedResult", "Runner", "Waiting", "run", "run_by"]
