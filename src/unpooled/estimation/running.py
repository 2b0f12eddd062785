"""A study of this process, as every ``fit`` and function runs it; and how several of them become one study.

A fit reads its data, makes a study of them, runs it, and goes on with the result. :func:`asked_by` stops it where its study is known, and
:func:`answered` runs it again with the result of a study that contained this one: so a fit need not know whether it is alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unpooled.errors import UsageError
from unpooled.privacy.policy import Policy
from unpooled.protocol.local import run_in_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unpooled.privacy.budget import Budget
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.keeper import Keeper
    from unpooled.protocol.local import LocalRun
    from unpooled.protocol.step import Model


@dataclass(frozen=True)
class Asked:
    """The study of a fit, over these tables of its parties."""

    study: Study
    tables: Mapping[str, Table]


class _Known(BaseException):
    """A fit is stopped: its study is known. No fit may catch it."""

    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self.asked = asked


#: Who runs the studies of fits, in place of this process by itself.
_RUNNER: ContextVar[Callable[[Asked], tuple[Plan, LocalRun]] | None] = ContextVar("runner", default=None)


def run(
    model: Model,
    study: Study,
    tables: Mapping[str, Table],
    keepers: Mapping[str, Keeper] | None = None,
    budget: Budget | None = None,
    roots: Mapping[str, bytes] | None = None,
) -> tuple[Plan, LocalRun]:
    """Return the plan of a study, and its run over tables of this process."""
    runner = _RUNNER.get()
    if runner is not None:
        if keepers or roots or budget is not None:
            raise UsageError(
                "an analysis of a Study takes no budget of its own (give it to the Study), links no frames, and predicts no new rows"
            )
        return runner(Asked(study, tables))
    plan = model.compile(study)
    found = run_in_process(model, plan, dict(tables), Policy.in_process(), lambda _: model, keepers, budget, roots)
    return plan.drawn(found.outcome.draw), found


def asked_by(fit: Callable[[], Any]) -> Asked:
    """Return the study that a fit makes of its data; nothing is run, and its warnings come when it is run again."""

    def stop(asked: Asked) -> tuple[Plan, LocalRun]:
        raise _Known(asked)

    with _run_by(stop), warnings.catch_warnings():
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
        same = again.study == asked.study and _digests(again) == _digests(asked)
        if not same or not answers:
            raise UsageError(
                "an analysis asks one study, the same whenever it is made: this one asked another when it was run again"
            )
        return answers.pop()

    with _run_by(answer):
        return fit()


def _digests(asked: Asked) -> dict[str, bytes]:
    return {name: table.digest for name, table in asked.tables.items()}


@contextmanager
def _run_by(runner: Callable[[Asked], tuple[Plan, LocalRun]]) -> Iterator[None]:
    token = _RUNNER.set(runner)
    try:
        yield
    finally:
        _RUNNER.reset(token)


__all__ = ["Asked", "answered", "asked_by", "run"]
