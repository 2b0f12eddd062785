"""The part of the regression estimator that released second moments make: other models, free of charge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError, listed
from unpooled.estimation.priors import Earlier
from unpooled.inference.printed_terms import TREATMENT
from unpooled.linear.drawn import drawn_tables
from unpooled.models.bayes.columns.plan import SINES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from unpooled.linear.fit import LinearFit
    from unpooled.linear.inference import LinearTables, PrincipalComponents
    from unpooled.linear.instruments import TwoStageTables
    from unpooled.linear.moments import Moments

    Vector = NDArray[np.float64]


class Following(Earlier):
    """The part of an estimator that has other models of the same moments."""

    noise_precision: float | str
    method_: str
    _fit_: LinearFit
    #: Moments of all columns; absent where the method releases none, and where a focus releases those of some columns.
    moments_: Moments
    focused_: Moments

    def _forget(self) -> None:
        """Take away what a fit before released."""
        for name in ("moments_", "focused_", "drawn_"):
            if hasattr(self, name):
                delattr(self, name)

    def _released(self) -> Moments:
        """Return the moments of all columns, or raise an error that says which method has some."""
        check_is_fitted(self)
        if hasattr(self, "moments_"):
            return self.moments_
        if hasattr(self, "focused_"):
            names = listed([column.name for column in self.focused_.layout.features])
            msg = (
                f"a focus on {names} released second moments of that alone: summary() and contrast() have its standard errors, and there are "
                "no errors of predictions and no other models. Without focus there are"
            )
            raise UsageError(msg)
        others = "'moments'" if self.method_ == SINES else "'refinement' or 'moments'"
        msg = (
            f"method {self.method_!r} released no second moments, so there are no standard errors and no other models: with "
            f"method={others} there are (and the noise of each coefficient grows)"
        )
        raise UsageError(msg)

    def _tables(self) -> LinearTables:
        check_is_fitted(self)
        moments = self.focused_ if hasattr(self, "focused_") else self._released()
        plan = getattr(self, "plan_", None)  # none where the moments come from a file
        given = getattr(getattr(plan, "design", None), "parameters", None)
        models = self._earlier(moments.layout.names)
        return drawn_tables(moments, models, getattr(given, "reference", None), getattr(given, "coding", TREATMENT))

    def submodel(self, columns: Sequence[str]) -> Self:
        """Return a fitted model of some of the columns alone, free of charge."""
        estimator: Any = type(self)
        found: Self = estimator.from_moments(self._released().submodel(columns))
        return found

    def credible_interval(self, level: float = 0.95) -> NDArray[np.float64]:
        """Return lower and upper ends for every coefficient."""
        check_is_fitted(self)
        return self._fit_.interval(level)

    def ridge(self, alpha: float = 1.0) -> LinearFit:
        """Ridge regression (scikit-learn's ``alpha``) with intervals from the same moments, free of charge."""
        return self._released().ridge(alpha, self.noise_precision)

    def ols(self) -> LinearFit:
        """Return ordinary least squares with intervals from the same moments, free of charge."""
        return self._released().ols(self.noise_precision)

    def lasso(self, alpha: float) -> LinearFit:
        """Return the lasso (scikit-learn's ``alpha``) from the same moments, free of charge."""
        return self._released().lasso(alpha)

    def two_stage(self, endogenous: str, instruments: Sequence[str]) -> TwoStageTables:
        """Return two-stage least squares from the same moments, free of charge: ``.summary()`` and ``.contrast(...)``.

        ``endogenous``: a column that depends on what the model leaves out, such as a dose that doctors chose. ``instruments``: columns that move
        it and move the response in no other way. All other columns are exogenous.
        """
        from unpooled.linear.instruments import tables_of

        return tables_of(self._released(), endogenous, instruments)

    def correlation(self) -> NDArray[np.float64]:
        """Return correlations of the features, free of charge."""
        return self._released().correlation()

    def pca(self) -> PrincipalComponents:
        """Return principal components of the standardised features, free of charge."""
        return self._released().pca()

    def vif(self) -> Vector:
        """Return variance inflation of every coefficient, free of charge."""
        return self._released().vif()
