"""The part of the estimator of linear regression that fits columns of several parties: studies, tables, and moments in the order of the data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from unpooled.errors import UsageError
from unpooled.estimation.columns import held_by, helped, holder_of, joint_cards, joint_tables
from unpooled.estimation.tables import RESPONSE
from unpooled.formula import Formula
from unpooled.linear.fit import LinearFit
from unpooled.linear.moments import Moments
from unpooled.privacy.study import COLUMNS
from unpooled.protocol.local import columns_of_parties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.estimation.base import Declared
    from unpooled.estimation.columns import On
    from unpooled.linear.layout import MomentsLayout
    from unpooled.privacy.plan import Plan, Study

#: Parameters that are of rows at several parties, with the values that leave them out.
_OF_ROWS: dict[str, Any] = {
    "rows_per_household": 1,
    "aggregation": "distributed",
    "nodes": (),
    "geometry": "ball",
    "posterior": "noise-aware",
    "projection": None,
    "projection_delta": None,
    "multiple": None,
    "indefinite": "auto",
    "covariance": "auto",
    "focus": (),
    "weights_bounds": None,
    "site_effects": "pooled",
    "fit_intercept": True,
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
    plan_: Plan

    @property
    def _response_stays(self) -> bool:
        """Return True if no party is handed the response of another."""
        return True

    def _columns_study(self, rows: int, declared: Declared, holder: str | None = None) -> Study:
        """Return the study of a fit of columns that several parties hold; ``holder`` has the response, else whom the parameters say."""
        self._refuse_rows_only()
        estimator: Any = self  # an estimator has more than this part of it says
        groups: dict[str, list[str]] = self._held(declared.names)
        cards = joint_cards(
            groups, declared.columns, declared.response, rows, holder_of(groups, holder or self.response_at), self.check
        )
        parameters = {
            "response": RESPONSE,
            "split": COLUMNS,
            "method": self.method,
            "tolerate": int(self.tolerate),
            "check": self.check,
            **estimator._formula_parameter,
            **estimator._prior_parameter(declared.columns),
        }
        return helped(estimator._asked(cards, parameters, declared.derived), self.helpers)

    def _held(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Return who holds which of these columns: all that are declared, or those that a formula reads."""
        estimator: Any = self
        if not estimator._formula_parameter:
            return cast("dict[str, list[str]]", estimator._groups(names))
        linkage = vars(self).get("linkage_")
        who = self.parties if linkage is None else linkage.columns
        if isinstance(who, int):
            return columns_of_parties(who, names)
        found = {party: [str(name) for name in own if str(name) in set(names)] for party, own in who.items()}
        holder = holder_of(found, self.response_at) if linkage is None else None
        if empty := [party for party, own in found.items() if not own and party != holder and linkage is None]:
            msg = f"formula: no term is of columns of {empty[0]!r}: name one, or leave the party out"
            raise UsageError(msg)
        return found

    def _fit_columns(self, X: Any, y: Any, on: On | None, formula: str | None, of_rows: Mapping[str, Any]) -> None:  # noqa: ANN401 - whatever a user passes
        """Release the joint sums of columns at several parties."""
        if given := [name for name, value in of_rows.items() if value is not None]:
            msg = f"{given[0]} goes with rows that are split: with parties= or on= the columns are"
            raise UsageError(msg)
        estimator: Any = self
        formula = formula if formula is not None else estimator.formula
        if on is not None and y is None and formula is not None and len(Formula.parse(formula).response) == 1:
            (y,) = Formula.parse(formula).response
        holder = self.response_at if on is None else held_by(X, y, self.response_at)
        joined, response_of, *_ = estimator._joined(X, y, on)
        if on is not None and formula is not None:  # the response was taken out of its frame
            formula = str(replace(Formula.parse(formula), response=()))
        asked = estimator._framed(joined, response_of, formula)
        features, declared, response = estimator._numeric(asked.X, asked.y)
        study = self._columns_study(features.n_rows, declared, holder)
        result = estimator._run(study, joint_tables(study, features, response)).outcome.result
        estimator.projection_, estimator.method_ = result.projection, result.method
        estimator._forget()
        if result.moments is not None:
            moments = Moments.of(result.moments).of_run(self.plan_)
            estimator._from(moments if moments.layout.formula else in_order(moments, features.names))
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
