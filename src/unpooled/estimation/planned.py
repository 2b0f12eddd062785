"""Results of functions that release once: what each of them says of its plan, and how a file of it is read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from unpooled.aggregation.saving import Savable

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.statement import Statement
    from unpooled.protocol.step import Model


class PlannedResult(Savable):
    """A result that keeps the plan of its release."""

    _model: ClassVar[Model]
    plan_: Plan

    @property
    def statement_(self) -> Statement:
        """Return the privacy statement of this result."""
        return self.plan_.statement

    @classmethod
    def _compiles(cls, study: Study) -> Plan:
        return cls._model.compile(study)
