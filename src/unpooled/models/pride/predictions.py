"""Predictions of families from decisions of new rows: expected responses, probabilities, survival, and measures of their fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.metaestimators import available_if

from unpooled.errors import UsageError
from unpooled.estimation.priors import log_odds, of_counts, ridge
from unpooled.families.gaussian import Gaussian
from unpooled.kernels.survival import concordance
from unpooled.models.pride.base import PrideEstimator
from unpooled.models.pride.joint import JointFamily
from unpooled.models.pride.parameters import CLASSES, DRAWN, undrawn
from unpooled.models.pride.probabilities import probabilities

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from sklearn.utils import Tags

    from unpooled.families import Family

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]


def _has_classes(estimator: FamilyEstimator) -> bool:
    return estimator.family in CLASSES


def _is_survival(estimator: FamilyEstimator) -> bool:
    return estimator.family == "cox"


class FamilyEstimator(PrideEstimator):
    """Predictions and scores of any family, from ``coef_`` and ``intercept_`` or at one party."""

    family: str
    classes_: NDArray[Any]
    baseline_times_: Vector
    baseline_hazard_: Vector

    def _publicly(self) -> Any:  # noqa: ANN401 - scikit-learn's own
        if self.family not in DRAWN:
            raise UsageError(undrawn(self.family))
        return {"squared": ridge, "logistic": log_odds}.get(self.family, of_counts)()

    @property
    def _law(self) -> Family | JointFamily:
        law: Family | JointFamily = self.plan_.design.parameters.law
        return law

    def linear_predictor(self, X: ArrayLike) -> NDArray[np.float64]:
        """``X @ coef_.T + intercept_``; several numbers a row where the family has several."""
        self._know_all()
        rows = self._natural(X)
        decisions = rows @ self.coef_.T
        if np.size(self.intercept_) > 1 and decisions.ndim == 1:
            decisions = decisions[:, None]
        return np.asarray(decisions + self.intercept_)

    def _told(self, decisions: NDArray[np.float64]) -> NDArray[Any]:
        """Return the response that decisions lead to expect."""
        law = self._law
        if self.family in CLASSES:
            return np.asarray(self.classes_[np.argmax(probabilities(self.family, decisions), axis=1)])
        return decisions if isinstance(law, JointFamily) else law.mean(decisions)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the expected response, the quantile, the most likely class; "cox": the log hazard ratio to the columns' means."""
        return self._told(self.linear_predictor(X))

    def predict_at(self, party: str, X: ArrayLike) -> NDArray[Any]:
        """Return the same of new rows at one party, from its own columns and newly released sketches of the others'."""
        return self._told(self._decision_at(party, X))

    @available_if(_has_classes)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> Matrix:
        """Return probabilities of the classes."""
        return probabilities(self.family, self.linear_predictor(X))

    @available_if(_has_classes)  # type: ignore[untyped-decorator]
    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return for two classes the log odds of ``classes_[1]``; for more a number for each class, the largest of the likeliest."""
        decisions = self.linear_predictor(X)
        if self.classes_.size == 2:  # noqa: PLR2004
            return decisions if decisions.ndim == 1 else np.asarray(decisions[:, 1] - decisions[:, 0])
        if self.family == "multinomial":
            return decisions
        return np.asarray(np.log(np.maximum(probabilities(self.family, decisions), np.finfo(np.float64).tiny)))

    @available_if(_is_survival)  # type: ignore[untyped-decorator]
    def predict_survival(self, X: ArrayLike, times: ArrayLike) -> Matrix:
        """Return the probability of no event up to each of these times ("cox"), by Breslow's baseline: rows by times."""
        decisions, at = self.linear_predictor(X), np.atleast_1d(np.asarray(times, dtype=np.float64))
        passed = np.concatenate([[0.0], self.baseline_hazard_])[np.searchsorted(self.baseline_times_, at, side="right")]
        return np.asarray(np.exp(-np.exp(decisions)[:, None] * passed))

    @property
    def hazard_ratios_(self) -> Vector:
        """exp(``coef_``): by how much one more unit of each column multiplies the hazard ("cox")."""
        if not _is_survival(self):
            raise AttributeError("hazard ratios are of family 'cox'")
        return np.asarray(np.exp(self.coef_))

    def score(self, X: ArrayLike, y: ArrayLike, event: ArrayLike | None = None) -> float:
        """Return the share of right classes, the concordance ("cox"), or the part of the deviance that the fit explains (R^2 of a squared loss)."""
        decisions, told = self.linear_predictor(X), np.asarray(y)
        law = self._law
        if self.family in CLASSES:
            return float(np.mean(self._told(decisions) == told))
        if isinstance(law, JointFamily):
            return concordance(told, np.ones(told.size) if event is None else np.asarray(event), decisions)
        if event is not None:
            raise UsageError("event belongs to family 'cox'")
        told = told.astype(np.float64)
        best = np.full(told.size, law.start(told))
        if isinstance(law, Gaussian):
            best[:] = told.mean()
        return 1 - float(law.excess(decisions, told).sum() / law.excess(best, told).sum())

    def to_sklearn(self) -> Any:  # noqa: ANN401 - scikit-learn ships no types
        """Return scikit-learn's linear model with these coefficients, where it has one: the families "squared" and "logistic"."""
        if self.family not in ("squared", "logistic"):
            raise UsageError("to_sklearn is for the families squared and logistic: use coef_ and intercept_")
        return super().to_sklearn()

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import ClassifierTags, RegressorTags

        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if self.family in CLASSES:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=self.family != "logistic")
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags(poor_score=True)
            tags.target_tags.positive_only = self.family in ("poisson", "gamma", "negative-binomial", "cox")
        return tags
