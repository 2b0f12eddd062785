"""A frame whose columns are named: by a formula, or by the name of its response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.aggregation.formula_columns import made_by
from unpooled.aggregation.sites import SITE, SiteEffects
from unpooled.errors import UsageError, listed
from unpooled.estimation.tables import columns_of, is_frame
from unpooled.formula import Formula
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from unpooled.aggregation.formula_columns import FormulaColumns


@dataclass(frozen=True)
class Framed:
    """Features and response of a fit, and the right side of its formula; ``event`` of ``Surv(time, event)``."""

    X: Any
    y: Any
    event: Any = None
    formula: str = ""
    #: Whether the features were taken out of a frame by name.
    picks: bool = False


class TakesFrames:
    """The part of an estimator that takes columns out of frames, by a formula or by name."""

    bounds: Any
    #: Whether the fit took its columns out of a frame by name, so that new frames may hold others beside them.
    _picks: bool = False

    def _validate_params(self) -> None:
        """Refuse parameters of another kind than they are declared."""
        raise NotImplementedError

    def _framed(self, X: Any, y: Any, formula: str | None) -> Framed:  # noqa: ANN401 - whatever a user passes
        """Features and response of a frame, by a formula (of the call, or the estimator's own) or by the response's name."""
        self._validate_params()
        given = formula if formula is not None else getattr(self, "formula", None)
        pooled = getattr(self, "site_effects", SiteEffects.POOLED) == SiteEffects.POOLED
        found = framed(X, y, given, self.bounds, () if pooled else (SITE,))
        self._right, self._picks = found.formula, found.picks
        return found

    @property
    def _formula_parameter(self) -> dict[str, str]:
        """Return the study's parameter; none without a formula, so that such a study keeps its hash."""
        text = getattr(self, "_right", None)
        if text is None:
            text = right_side(getattr(self, "formula", None), self.bounds)
        return {"formula": text} if text else {}

    @property
    def _made(self) -> FormulaColumns | None:
        """Return the columns that the formula of the fit makes; None without a formula."""
        return made_by(self._source)

    @property
    def _source(self) -> Any:  # noqa: ANN401 - moments, or the design of any model
        """Return what holds the layout of the fit."""
        moments = getattr(self, "moments_", None)
        return moments if moments is not None else getattr(getattr(self, "plan_", None), "design", None)


def framed(X: Any, y: Any, formula: str | None, bounds: Any, beside: Sequence[str] = ()) -> Framed:  # noqa: ANN401 - whatever a user passes
    """Return the data of ``fit(frame, "y")`` and ``fit(frame, formula="y ~ age")``; leave other calls as they are.

    ``beside``: columns that a formula may name and no frame has, because the study makes them.
    """
    if formula is None and not isinstance(y, str):
        return Framed(X, y)
    said = Formula.parse(formula) if formula is not None else None
    left = said.response if said is not None else (y,)
    if isinstance(y, str) and said is not None:
        if said.response not in {(), (y,)}:
            msg = f"the left side of the formula is {listed(said.response)}, and y is {y!r}: name one of them"
            raise UsageError(msg)
        left = (y,)
    event = None
    if y is None or isinstance(y, str):
        if not left:
            raise UsageError('the formula has no left side: write "y ~ age", or pass y')
        if not is_frame(X):
            msg = f"{left[0]!r} is a column of a frame, and X is an array: pass y as an array"
            raise UsageError(msg)
        y, *rest = (_column(X, name) for name in left)
        event = rest[0] if rest else None
    names = _names(X, said, left, bounds)
    text = "" if said is None else str(replace(said.closed(names), response=(), survival=False))
    if not is_frame(X):
        return Framed(X, y, event, text)
    needs = said.closed(names).needs if said is not None else names
    needs = tuple(name for name in needs if name not in beside)
    if not needs:
        raise UsageError("the formula names no column: name one. A base rate alone is method='mean' of PrivateGLM")
    return Framed(picked(X, needs), y, event, text, picks=True)


def right_side(formula: str | None, bounds: Any) -> str:  # noqa: ANN401 - as declared
    """Return the right side of a formula, before any data."""
    if formula is None:
        return ""
    said = Formula.parse(formula)
    return str(replace(said.closed(Bounds.given(bounds, None).names), response=(), survival=False))


def picked(X: Any, names: Sequence[str]) -> Any:  # noqa: ANN401 - a frame, or rows without names
    """Return the named columns of a frame; rows without names as they are."""
    if not is_frame(X):
        return X
    missing = [name for name in names if name not in columns_of(X)]
    if missing:
        msg = f"there is no column {missing[0]!r} in the frame, which has {listed(columns_of(X))}"
        raise UsageError(msg).at(column=missing[0])
    return X[list(names)]


def _names(X: Any, said: Formula | None, left: Sequence[str], bounds: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Return the columns that a dot, or no formula, stands for: those that are declared, else all but the response."""
    declared = Bounds.given(bounds, None).names if bounds is not None else ()
    if not declared and is_frame(X):
        declared = tuple(columns_of(X))
    return tuple(name for name in declared if name not in left) if declared else (said.needs if said is not None else ())


def weights_of(X: Any, values: Any, used: Any, unit: str) -> Any:  # noqa: ANN401 - a frame, a column of it by name or as numbers, features
    """Return the column of weights that a name stands for; numbers are returned as they are.

    A column that is a feature too is refused where one value of a person is protected: such a value would move two declared columns.
    """
    if not isinstance(values, str):
        return values
    if unit == Unit.ATTRIBUTE and is_frame(used) and values in columns_of(used):
        msg = f"{values!r} is a feature and the weights: with unit='attribute' one value must be in one declared column. Leave it out of the features"
        raise UsageError(msg)
    if not is_frame(X):
        msg = f"{values!r} is a column of a frame, and X is an array: pass the numbers"
        raise UsageError(msg)
    return _column(X, values)


def _column(X: Any, name: str) -> Any:  # noqa: ANN401
    if name not in columns_of(X):
        msg = f"there is no column {name!r} in the frame, which has {listed(columns_of(X))}"
        raise UsageError(msg).at(column=name)
    return np.asarray(X[name].to_numpy())
