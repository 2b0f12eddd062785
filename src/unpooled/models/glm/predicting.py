"""Answers of a fitted generalised linear model: linear predictors, means, classes, probabilities, scores, and its summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import DataError, UsageError
from unpooled.estimation.base import StudyEstimator
from unpooled.estimation.fitted import Tabled
from unpooled.families import Response
from unpooled.kernels.score_posterior import mean_log_odds
from unpooled.models.glm.families import MULTINOMIAL, SURVIVAL, TWO_CLASSES
from unpooled.models.glm.followed import Followed, concordance, times_and_events
from unpooled.models.glm.result import tables
from unpooled.models.glm.shifted import EXPOSURE, OFFSET, shifts

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from unpooled.inference.tables import Tables
    from unpooled.models.glm.result import GlmResult

    Vector = NDArray[np.float64]


def _has_classes(estimator: GlmPredictions) -> bool:
    return estimator.family in {*TWO_CLASSES, MULTINOMIAL}


class GlmPredictions(Tabled, Followed, StudyEstimator):
    """The part of ``PrivateGLM`` that needs nothing but its result."""

    family: str
    exposure_bounds: tuple[float, float] | None
    offset_bounds: tuple[float, float] | None
    _result: GlmResult

    @property
    def shifted_by(self) -> dict[str, str]:
        """Return the columns of the study that predictions need as ``exposure`` and ``offset``, by these words."""
        check_is_fitted(self)
        responses = self.plan_.design.responses
        given = self.plan_.design.parameters.offset  # that of a formula follows from other columns
        found = (("exposure", responses.exposure), ("offset", responses.offset if given else None))
        return {word: column.name for word, column in found if column is not None}

    @property
    def _fitted_family(self) -> Response:
        """Return the family with the range that was declared of the response."""
        check_is_fitted(self)
        family: Response = self.plan_.design.family
        return family

    def linear_predictor(
        self,
        X: ArrayLike,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        *,
        sites: ArrayLike | None = None,
    ) -> Vector:
        """``X @ coef_ + intercept_`` (multinomial: of every class), with the logarithm of the exposure and the offset where there are any.

        Where sites have constants, ``sites`` says at which site each row is; without it the rows are at the mean of all sites.
        With method "direction" the log odds of the mean probability over several lengths of the slopes, of which ``coef_`` is the mean.
        """
        u = self._lengthened(X) if self._by_direction else self._predictors(X, sites)
        made = self._made
        if made is not None and made.derived.offset_column is not None:
            u = u + made.derived.offset(self._new(X))
        if self.family == SURVIVAL:
            return u
        u = mean_log_odds(u, self._lines)
        shifts = self._shifts(u.shape[0], exposure, offset)
        if EXPOSURE in shifts:
            if not (shifts[EXPOSURE] > 0).all():
                raise DataError("exposure must be positive")
            u = u + np.log(shifts[EXPOSURE])
        return np.asarray(u + shifts[OFFSET]) if OFFSET in shifts else u

    def _predictors(self, X: ArrayLike, sites: ArrayLike | None) -> Vector:
        check_is_fitted(self)
        rows = self._natural(X, sites)
        if np.ndim(self.coef_) == 1:
            return np.asarray(rows @ self.coef_ + np.ravel(self.intercept_)[0])
        return np.asarray(rows @ self.coef_.T + self.intercept_)

    def _shifts(self, rows: int, exposure: ArrayLike | None, offset: ArrayLike | None) -> dict[str, Vector]:
        return shifts(rows, (exposure, self.exposure_bounds), (offset, self.offset_bounds))

    @property
    def _by_direction(self) -> bool:
        """Return True if rows count by their direction alone: a study asked for one length of all of them."""
        check_is_fitted(self)
        directions = self.plan_.design.directions
        return directions is not None and directions.unit

    def _lengthened(self, X: ArrayLike) -> Vector:
        directions, new = self.plan_.design.directions, self._new(X)
        rows = directions.lengthened([new[name] for name in directions.layout.coding.names])
        return np.asarray(rows @ self.coef_ + self.intercept_)

    def predict(
        self,
        X: ArrayLike,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        *,
        sites: ArrayLike | None = None,
    ) -> NDArray[Any]:
        """Return the expected response; of classes the most likely one; of times to an event the log hazard ratio to a row of zeros."""
        u = self.linear_predictor(X, exposure, offset, sites=sites)
        if self.family == SURVIVAL:
            return u
        if self.family == MULTINOMIAL:
            return np.asarray(self.classes_[u.argmax(axis=1)])
        if self.family in TWO_CLASSES:
            return np.asarray(self.classes_[(u > 0).astype(int)])
        return self._fitted_family.mean(u)

    @available_if(_has_classes)  # type: ignore[untyped-decorator]
    def decision_function(
        self,
        X: ArrayLike,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        *,
        sites: ArrayLike | None = None,
    ) -> Vector:
        """Return the linear predictor; positive means ``classes_[1]`` (of more than two classes: one per class, of which the largest wins)."""
        u = self.linear_predictor(X, exposure, offset, sites=sites)
        return u[:, 1] - u[:, 0] if u.ndim > 1 and u.shape[1] == 2 else u  # noqa: PLR2004 - as scikit-learn has it

    @available_if(_has_classes)  # type: ignore[untyped-decorator]
    def predict_proba(
        self,
        X: ArrayLike,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        *,
        sites: ArrayLike | None = None,
    ) -> Vector:
        """Return probabilities of the classes, in the order of ``classes_``."""
        positive = self._fitted_family.mean(self.linear_predictor(X, exposure, offset, sites=sites))
        if self.family == MULTINOMIAL:
            return positive
        return np.column_stack([1 - positive, positive])

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        event: ArrayLike | None = None,
    ) -> float:
        """Return the share of right classes, the part of the deviance that the fit explains (D^2), or of times to an event the concordance."""
        if self.family == SURVIVAL:
            return concordance(self.predict(X), *times_and_events(y, event))
        predicted, told = self.predict(X, exposure, offset), np.asarray(y)
        if _has_classes(self):
            return float(np.mean(predicted == told))
        family, mean = self._fitted_family, np.full(told.size, float(told.mean()))
        return 1 - float(family.deviance(told, predicted).sum() / family.deviance(told, mean).sum())

    def _tables(self) -> Tables:
        check_is_fitted(self)
        found = tables(self.plan_, self._result)
        if found is None:
            msg = (
                f"method {self.method_!r} released no second moments, so there are no standard errors: with method='newton' there are "
                "(and the noise of each coefficient grows)"
            )
            raise UsageError(msg)
        return found

    def to_sklearn(self) -> Any:  # noqa: ANN401 - scikit-learn ships no types
        """Return scikit-learn's ``LogisticRegression`` with these coefficients (logistic and multinomial family), predicting the same.

        Of method "direction" it is a ``VotingClassifier`` of one for each length of the slopes.
        """
        if not _has_classes(self) or self._shifted or self._by_direction:
            raise UsageError(
                "to_sklearn is for the logistic family (and the multinomial), without exposure and offset, of rows as they are: use coef_ and intercept_"
            )
        return super().to_sklearn()

    @property
    def _shifted(self) -> tuple[str, ...]:
        given = ((EXPOSURE, self.exposure_bounds), (OFFSET, self.offset_bounds))
        return tuple(name for name, bounds in given if bounds is not None)
