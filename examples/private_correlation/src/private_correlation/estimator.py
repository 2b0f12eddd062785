"""``PrivateCorrelation``: the correlation of two columns as an estimator in scikit-learn's style."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from private_correlation.coordinator import Correlation
from private_correlation.model import MODEL
from unpooled.errors import UsageError
from unpooled.estimation.base import ALL, Declared, StudyEstimator
from unpooled.estimation.calls import OfEveryFit, takes
from unpooled.estimation.tables import checked, names_of, table_of
from unpooled.privacy.plan import Card, Study


@takes(OfEveryFit, first="epsilon")
class PrivateCorrelation(StudyEstimator):
    """The correlation of two columns with differential privacy, with its standard error and an interval.

    Attributes
    ----------
    correlation_, std_error_ : float
        The estimate and its standard error; nan where nothing is determined.
    interval_ : tuple of float
        The interval of 95 %.

    """

    _model = MODEL
    _saved_types = (*StudyEstimator._saved_types, Correlation)  # noqa: SLF001 - its base

    def _study(self, rows: Mapping[str, Any], declared: Declared) -> Study:
        card = Card(ALL, rows[ALL], declared.columns)
        return self._asked((card,), {"columns": declared.names}, declared.derived)

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ANN401, ARG002 - scikit-learn's signature
        """Estimate the correlation of the two columns of ``X``; ``y`` is ignored."""
        self._validate_params()
        X = checked(self, X, ensure_min_samples=4)
        if X.shape[1] != 2:  # noqa: PLR2004 - a correlation is of two
            msg = f"X has {X.shape[1]} columns: a correlation is of two"
            raise UsageError(msg)
        table = table_of(X, names_of(self, 2))
        declared = self._declared(table.names, table)
        found = self._run(self._study({ALL: table.n_rows}, declared), {ALL: table})
        self._columns, result = declared.columns, found.outcome.result
        nan = float("nan")
        self.result_ = result
        self.correlation_ = nan if result.value is None else result.value
        self.std_error_ = nan if result.std_error is None else result.std_error
        self.interval_ = (nan, nan) if result.low is None else (result.low, result.high)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Return True after ``fit``."""
        return hasattr(self, "result_")
