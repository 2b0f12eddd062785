"""Results of functions that release once: what each of them says of its plan, and how a file of it is read again."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from unpooled.aggregation.saving import Savable

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.statement import Statement
    from unpooled.protocol.step import Model
    from unpooled.protocol.terms import ResultTerm


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
