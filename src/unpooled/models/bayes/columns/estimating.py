"""The part of the estimator of linear regression that fits columns of several parties: studies, tables, and moments in the order of the data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.aggregation.moments import Moments
from unpooled.errors import UsageError, listed
from unpooled.estimation.tables import RESPONSE, columns_of, part
from unpooled.models.bayes.columns.design import COLUMNS, MOMENTS, PROOF
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.study import ALLOWED, TRUSTING
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.estimation.base import Declared
    from unpooled.estimation.linking import On

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
#: The name of the helper of parties in one process.
_HELPER = "(helper)"


# ruff: noqa: SLF001 - the estimator's own members, of which this part of it does not know the types


class ColumnSplit:
    """Columns of the same people at several parties, whose joint moments are released."""

    parties: Any
    helpers: int
    response_at: str | None
    check: str
    tolerate: int
    method: str

    def _columns_study(self, rows: int, declared: Declared) -> Study:
        """Return the study of a fit of columns that several parties hold."""
        self._refuse_rows_only()
        response = declared.response
        assert response is not None
        estimator: Any = self  # an estimator has more than this part of it says
        groups: dict[str, list[str]] = estimator._groups(declared.names)
        holder = self._holder(groups)
        columns = {column.name: column for column in declared.columns}
        cards = tuple(
            Card(
                name,
                rows,
                (*(columns[own] for own in held), *([response] if name == holder else [])),
                joint=ALLOWED if self.check == PROOF else TRUSTING,
            )
            for name, held in groups.items()
        )
        parameters = {
            "response": RESPONSE,
            "split": COLUMNS,
            "method": MOMENTS if self.method == "auto" else self.method,
            "tolerate": int(self.tolerate),
            "check": self.check,
        }
        study: Study = estimator._asked(cards, parameters, declared.derived)
        if self.helpers not in {0, 1}:
            raise UsageError(
                "helpers must be 1 (an organisation without data) or 0 (three parties or more help each other): three helpers have no proof yet"
            )
        return msgspec.structs.replace(study, helpers=(HelperCard(_HELPER),) * self.helpers)

    def _fit_columns(self, X: Any, y: Any, on: On | None, of_rows: Mapping[str, Any]) -> None:  # noqa: ANN401 - whatever a user passes
        """Release the joint moments of columns at several parties."""
        if given := [name for name, value in of_rows.items() if value is not None]:
            msg = f"{given[0]} goes with rows that are split: with parties= or on= the columns are"
            raise UsageError(msg)
        estimator: Any = self
        if on is not None:
            self._held_by(X, y)
        joined, response_of, *_ = estimator._joined(X, y, on)
        asked = estimator._framed(joined, response_of, None)
        features, declared, response = estimator._numeric(asked.X, asked.y)
        study = self._columns_study(features.n_rows, declared)
        result = estimator._run(study, self._column_tables(study, features, response)).outcome.result
        estimator.projection_, estimator.method_ = result.projection, result.method
        estimator._forget()
        estimator._from(in_order(Moments.of(result.moments), features.names))

    def _column_tables(self, study: Study, features: Table, response: NDArray[np.float64]) -> dict[str, Table]:
        """Return the table of every party."""
        whole = part(features, features.names, response)
        return {card.name: Table({column.name: whole[column.name] for column in card.columns}) for card in study.parties}

    def _holder(self, groups: Mapping[str, Sequence[str]]) -> str:
        """Return the party that holds the response: as ``response_at`` says, else the first."""
        holder = next(iter(groups)) if self.response_at is None else self.response_at
        if holder not in groups:
            msg = f"response_at must be one of the parties, {listed(list(groups))}, not {holder!r}"
            raise UsageError(msg)
        return holder

    def _held_by(self, frames: Any, y: Any) -> None:  # noqa: ANN401 - whatever a user passes
        """Refuse frames of which two or none have the response, or another one than ``response_at`` says."""
        held = [name for name, frame in frames.items() if y in columns_of(frame)]
        if len(held) != 1 or self.response_at not in {None, held[0]}:
            where = f"{listed(held)} have it" if held else "none has it"
            msg = f"the response {y!r} must be a column of one frame (of {self.response_at!r}, if response_at says so): {where}"
            raise UsageError(msg)

    def _refuse_rows_only(self) -> None:
        """Refuse parameters that are of rows at several parties."""
        for name, left in _OF_ROWS.items():
            given = getattr(self, name)
            if (tuple(given) if isinstance(left, tuple) else given) != left:
                msg = f"{name} goes with rows that are split: with parties= the columns are, so leave it at {left!r}"
                raise UsageError(msg)


def in_order(moments: Moments, names: Sequence[str]) -> Moments:
    """Return the same moments with the features in this order."""
    layout = moments.layout
    features = {column.name: column for column in layout.features}
    attribute = np.array(layout.coding.attribute)
    first = {column.name: np.flatnonzero(attribute == k) for k, column in enumerate(layout.features)}
    rest = np.arange(attribute.size, moments.gram.shape[0])
    at = np.concatenate([*(first[name] for name in names), rest])
    frame, own = moments.frame, at[: layout.size]
    frame = replace(frame, widths=frame.widths[own], centres=frame.centres[own], start=frame.start[own])
    return replace(
        moments,
        layout=replace(layout, features=tuple(features[name] for name in names)),
        gram=moments.gram[np.ix_(at, at)],
        variance=moments.variance[np.ix_(at, at)],
        standard=frame,
    )
