"""The part of both LASSO estimators that joins the columns of parties under masks: the study, the fit, and the released moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError
from unpooled.estimation.columns import held_by, helped, holder_of, joint_cards, joint_tables
from unpooled.estimation.priors import Earlier
from unpooled.estimation.tables import RESPONSE
from unpooled.linear.moments import Moments
from unpooled.models.lasso.forms import Form
from unpooled.privacy.bounds import Coding
from unpooled.privacy.study import PROOF

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.estimation.base import Declared
    from unpooled.estimation.columns import On
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import Table

    Vector = NDArray[np.float64]

# ruff: noqa: SLF001 - the estimator's own members, of which this part of it does not know the types


class Joining(Earlier):
    """Columns of parties whose joint moments are released: what ``method="joint"`` means."""

    helpers: int
    response_at: str | None
    check: str
    method: str
    moments_: Moments
    plan_: Plan
    coef_: Vector
    intercept_: float
    shared_: Any
    _columns: Any

    @property
    def _joins(self) -> bool:
        """Return True if a fit releases joint moments."""
        return self.method == Form.JOINT

    @property
    def _response_stays(self) -> bool:
        return self._joins

    def _joint_study(self, rows: int, declared: Declared, parameters: dict[str, Any], holder: str | None = None) -> Study:
        """Return the study of parties of which one holds the response; ``holder``, else whom the parameters say."""
        estimator: Any = self  # an estimator has more than this part of it says
        groups = estimator._groups(declared.names)
        cards = joint_cards(
            groups, declared.columns, declared.response, rows, holder_of(groups, holder or self.response_at), self.check
        )
        asked = {"response": RESPONSE, "method": Form.JOINT.value, "check": self.check, **parameters}
        asked |= self._prior_parameter(declared.columns)
        return helped(estimator._asked(cards, asked, declared.derived), self.helpers)

    def _check_joining(self) -> None:
        """Refuse parameters of joint moments where a fit releases none."""
        for name, left in (("helpers", 1), ("response_at", None), ("check", PROOF)):
            if getattr(self, name) != left and not self._joins:
                msg = f"{name} goes with method={Form.JOINT.value!r}: ask for that method, or leave it at {left!r}"
                raise UsageError(msg)

    def _held(self, X: Any, y: Any, on: On | None) -> str | None:  # noqa: ANN401 - whatever a user passes
        """Return whose frame has the response, where frames are linked."""
        return held_by(X, y, self.response_at) if self._joins and on is not None else None

    def _fit_joint(self, study: Study, table: Table, declared: Declared, response: NDArray[Any]) -> Any:  # noqa: ANN401 - a LassoResult
        """Run a study of joint moments, and take its coefficients."""
        estimator: Any = self
        result = estimator._run(study, joint_tables(study, table, response)).outcome.result
        names = Coding(declared.columns, 1).coded_names
        values = {c.name: c.value for c in result.coefficients}
        self.coef_ = np.array([values.get(name, 0.0) for name in names])
        self.intercept_ = result.intercept
        self.moments_ = Moments.of(result.moments).of_run(self.plan_)
        self.shared_, self._columns = (), declared.columns
        self._keep_drawn(result)
        return result

    def _keep_drawn(self, result: Any) -> None:  # noqa: ANN401 - a LassoResult
        """Keep how earlier models drew the fit, and nothing of a fit before it."""
        self.__dict__.pop("drawn_", None)
        self.__dict__.update({} if result.drawn is None else {"drawn_": result.drawn})
