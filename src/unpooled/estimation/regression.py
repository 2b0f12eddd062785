"""``LinearRegressor``: a response with a declared range in, ``X @ coef_ + intercept_`` out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import RegressorMixin

from unpooled.errors import UsageError
from unpooled.estimation.base import Declared, StudyEstimator
from unpooled.estimation.tables import RESPONSE
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.plan import BOUNDS
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.privacy.bounds import Column

    Vector = NDArray[np.float64]


class LinearRegressor(RegressorMixin, StudyEstimator):
    """An estimator of a numeric response whose range is declared in addition to those of the features."""

    y_bounds: Any

    def _declared(self, names: Sequence[str], table: Table | None = None, y: NDArray[Any] | None = None) -> Declared:
        if self.y_bounds is None and y is None:
            raise UsageError("a plan needs y_bounds: pass y_bounds=(low, high)")
        declared = super()._declared(names, table)
        derived = () if self.bounds is not None and self.y_bounds is not None else (BOUNDS,)
        return replace(declared, response=self._response(RESPONSE, self._ranges[0], y), derived=derived)

    @property
    def _ranges(self) -> list[Any]:
        """Return the declared range of every response."""
        return [self.y_bounds]

    def _response(self, name: str, given: Any, y: NDArray[Any] | None) -> Column:  # noqa: ANN401 - a pair, or None
        """Return a response with the range that is given of it, or read off the data."""
        bounds = Bounds.given(given, None if y is None else Table({name: y}), warn=self._warns and self.bounds is not None)
        (response,) = replace(bounds, missing="refuse").columns([name])
        return response

    def _numeric(self, X: Any, y: ArrayLike) -> tuple[Table, Declared, Vector]:  # noqa: ANN401 - an array, a frame or a sparse matrix
        """Return features, declarations and responses."""
        table, response = self._read(X, y, y_numeric=True)
        response = response.astype(np.float64)
        return table, self._declared(table.names, table, response), response

    def predict(self, X: Any) -> Vector:  # noqa: ANN401
        """``X @ coef_ + intercept_``."""
        return self._linear(X)
