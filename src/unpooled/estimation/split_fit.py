"""Fits whose columns lie at several parties, of estimators that take rows at several sites too: their study, what they refuse, and frames that are linked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from unpooled.errors import UsageError
from unpooled.estimation.columns import held_by, helped, holder_of, joint_cards
from unpooled.estimation.hidden import in_frames
from unpooled.estimation.tables import RESPONSE, columns_of
from unpooled.formula import Formula
from unpooled.privacy.declared import COLUMNS
from unpooled.protocol.local import columns_of_parties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.estimation.base import Declared
    from unpooled.estimation.columns import On
    from unpooled.linear.layout import MomentsLayout
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Study

# ruff: noqa: SLF001 - the estimator's own members, of which this part of it does not know the types


class SplitFit:
    """The part of an estimator that fits columns of the same people at several parties under masks, where it is asked to."""

    parties: Any
    helpers: int
    response_at: str | None
    check: str
    #: Parameters that are of rows at several parties, with the values that leave them out.
    _of_rows: ClassVar[Mapping[str, Any]]
    #: The struct of what a study of columns declares.
    _of_columns: ClassVar[type]

    @property
    def _response_stays(self) -> bool:
        """Return True if no party is handed the response of another."""
        return True

    @property
    def _beside_response(self) -> dict[str, Column]:
        """Return the declared columns that the holder of the response has in addition to it, by the parameter that names them."""
        return {}

    def _columns_study(self, rows: int, declared: Declared, holder: str | None = None) -> Study:
        """Return the study of a fit of columns that several parties hold; ``holder`` has the response, else whom the parameters say."""
        self._refuse_rows_only()
        estimator: Any = self  # an estimator has more than this part of it says
        groups: dict[str, list[str]] = self._held(declared.names)
        holder = holder_of(groups, holder or self.response_at)
        beside = self._beside_response
        cards = joint_cards(groups, declared.columns, declared.response, rows, holder, self.check, tuple(beside.values()))
        roles = {role: column.name for role, column in beside.items()}
        parameters = estimator._says(self._of_columns, response=RESPONSE, split=COLUMNS, **roles)
        parameters |= estimator._prior_parameter(declared.columns)
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

    def _asked_columns(
        self,
        X: Any,  # noqa: ANN401 - whatever a user passes
        y: Any,  # noqa: ANN401
        on: On | None,
        formula: str | None,
        of_rows: Mapping[str, Any],
        beside: Mapping[str, Any] | None = None,
    ) -> tuple[Any, str | None, dict[str, Any]]:
        """Return features and response as a frame asks for them, linked where ``on`` names keys, who holds the response, and what stands beside it.

        ``beside`` are what the holder has for each row in addition to the response; where ``on`` names keys, the columns of its frame that have it.
        """
        if given := [name for name, value in of_rows.items() if value is not None]:
            msg = f"{given[0]} goes with rows that are split: with parties= or on= the columns are"
            raise UsageError(msg)
        estimator: Any = self
        formula = formula if formula is not None else estimator.formula
        more = dict(beside or {})
        if on is not None and y is None and formula is not None and (left := Formula.parse(formula).response):
            y, *ends = left
            more |= {"event": ends[0]} if ends and "event" in more else {}
        holder = self.response_at if on is None else held_by(in_frames(X, on), y, self.response_at)
        if on is not None:
            _check_named(more, X, str(holder))
        joined, response_of, *told = estimator._joined(X, y, on, *more.values())
        if on is not None:  # the response was taken out of its frame: bounds and formulas know it by its name
            joined = joined.with_columns(_column(str(y), response_of))
            if formula is not None and Formula.parse(formula).survival and "event" in more:
                joined = joined.with_columns(_column(str(more["event"]), told[list(more).index("event")]))
            named = formula is not None and bool(Formula.parse(formula).response)
            response_of = None if named else str(y)
        return estimator._framed(joined, response_of, formula), holder, dict(zip(more, told, strict=True))

    def _refuse_rows_only(self, but: frozenset[str] = frozenset()) -> None:
        """Refuse parameters that are of rows at several parties, but these."""
        for name, left in self._of_rows.items():
            given = getattr(self, name)
            if name not in but and (tuple(given) if isinstance(left, tuple) else given) != left:
                msg = f"{name} goes with rows that are split: with parties= the columns are, so leave it at {left!r}"
                raise UsageError(msg)


def _check_named(beside: Mapping[str, Any], frames: Any, holder: str) -> None:  # noqa: ANN401 - whatever a user passes
    """Refuse what stands beside the response of linked frames, unless it is a column of the frame that has the response."""
    for word, name in beside.items():
        if name is not None and not isinstance(name, str):
            msg = f"with on=, {word} is the name of its column in the frame of {holder!r}, for rows have no order yet"
            raise UsageError(msg)
        if name is not None and name not in columns_of(frames[holder]):
            msg = f"{word} is a column of the frame that has the response, and that of {holder!r} has no column {name!r}"
            raise UsageError(msg).at(column=name)


def _column(name: str, values: NDArray[Any]) -> Any:  # noqa: ANN401 - polars is imported where frames are
    import polars as pl

    return pl.Series(name, values.tolist() if values.dtype == object else values)


def places_of(layout: MomentsLayout, names: Sequence[str]) -> NDArray[np.intp]:
    """Return the places of the coded columns of these features, in the order of the names."""
    attribute = np.array(layout.coding.attribute)
    first = {column.name: np.flatnonzero(attribute == k) for k, column in enumerate(layout.features)}
    return np.concatenate([first[name] for name in names])
