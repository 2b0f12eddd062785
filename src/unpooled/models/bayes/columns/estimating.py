"""The part of the estimator of linear regression that fits columns of several parties: studies, tables, and moments in the order of the data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.aggregation.columns.words import COLUMNS
from unpooled.aggregation.linear_fit import LinearFit
from unpooled.aggregation.moments import Moments
from unpooled.errors import UsageError
from unpooled.estimation.joint import held_by, helped, holder_of, joint_cards, joint_tables
from unpooled.estimation.tables import RESPONSE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.aggregation.layout import MomentsLayout
    from unpooled.estimation.base import Declared
    from unpooled.estimation.linking import On
    from unpooled.privacy.plan import Study

#: Parameters that are of rows at several parties, with the values that leave them out.
_OF_ROWS: dict[str, Any] = {
    "rows_per_household": 1,
    "aggregation": "distributed",
    "nodes": (),
    "geometry": "ball",
    "posterior": "noise-aware",
    "projection": 0.0,
    "multiple": None,
    "covariance": "auto",
    "focus": (),
    "weights_bounds": None,
    "fit_intercept": True,
    "formula": None,
}


# ruff: noqa: SLF001 - the estimator's own members, of which this part of it does not know the types


class ColumnSplit:
    """Columns of the same people at several parties, whose joint moments are released."""

    parties: Any
    helpers: int
    response_at: str | None
    check: str
    tolerate: int
    method: str

    @property
    def _response_stays(self) -> bool:
        """Return True if no party is handed the response of another."""
        return True

    def _columns_study(self, rows: int, declared: Declared, holder: str | None = None) -> Study:
        """Return the study of a fit of columns that several parties hold; ``holder`` has the response, else whom the parameters say."""
        self._refuse_rows_only()
        estimator: Any = self  # an estimator has more than this part of it says
        groups: dict[str, list[str]] = estimator._groups(declared.names)
        cards = joint_cards(
            groups, declared.columns, declared.response, rows, holder_of(groups, holder or self.response_at), self.check
        )
        parameters = {
            "response": RESPONSE,
            "split": COLUMNS,
            "method": self.method,
            "tolerate": int(self.tolerate),
            "check": self.check,
        }
        return helped(estimator._asked(cards, parameters, declared.derived), self.helpers)

    def _fit_columns(self, X: Any, y: Any, on: On | None, of_rows: Mapping[str, Any]) -> None:  # noqa: ANN401 - whatever a user passes
        """Release the joint sums of columns at several parties."""
        if given := [name for name, value in of_rows.items() if value is not None]:
            msg = f"{given[0]} goes with rows that are split: with parties= or on= the columns are"
            raise UsageError(msg)
        estimator: Any = self
        holder = self.response_at if on is None else held_by(X, y, self.response_at)
        joined, response_of, *_ = estimator._joined(X, y, on)
        asked = estimator._framed(joined, response_of, None)
        features, declared, response = estimator._numeric(asked.X, asked.y)
        study = self._columns_study(features.n_rows, declared, holder)
        result = estimator._run(study, joint_tables(study, features, response)).outcome.result
        estimator.projection_, estimator.method_ = result.projection, result.method
        estimator._forget()
        if result.moments is not None:
            estimator._from(in_order(Moments.of(result.moments), features.names))
            return
        estimator._columns = declared.columns
        coef = np.array([c.value for c in result.coefficients])[_places(estimator.plan_.design.layout, features.names)]
        estimator._take(LinearFit.without_errors(coef, result.intercept, has_intercept=True))

    def _refuse_rows_only(self) -> None:
        """Refuse parameters that are of rows at several parties."""
        for name, left in _OF_ROWS.items():
            given = getattr(self, name)
            if (tuple(given) if isinstance(left, tuple) else given) != left:
                msg = f"{name} goes with rows that are split: with parties= the columns are, so leave it at {left!r}"
                raise UsageError(msg)


def _places(layout: MomentsLayout, names: Sequence[str]) -> NDArray[np.intp]:
    """Return the places of the coded columns of these features, in the order of the names."""
    attribute = np.array(layout.coding.attribute)
    first = {column.name: np.flatnonzero(attribute == k) for k, column in enumerate(layout.features)}
    return np.concatenate([first[name] for name in names])


def in_order(moments: Moments, names: Sequence[str]) -> Moments:
    """Return the same moments with the features in this order."""
    layout = moments.layout
    features = {column.name: column for column in layout.features}
    coded = _places(layout, names)
    at = np.concatenate([coded, np.arange(coded.size, moments.gram.shape[0])])
    frame, own = moments.frame, at[: layout.size]
    frame = replace(frame, widths=frame.widths[own], centres=frame.centres[own], start=frame.start[own])
    return replace(
        moments,
        layout=replace(layout, features=tuple(features[name] for name in names)),
        gram=moments.gram[np.ix_(at, at)],
        variance=moments.variance[np.ix_(at, at)],
        standard=frame,
    )
