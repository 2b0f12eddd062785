"""A fitted linear estimator as scikit-learn's own, for whatever reads those: the same predictions, no privacy machinery."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from unpooled.privacy.bounds import Column


def linear_model(estimator: Any, columns: tuple[Column, ...]) -> Any:  # noqa: ANN401 - scikit-learn ships no types
    """Return a ``LinearRegression``, or a ``LogisticRegression`` where the estimator has classes, with these coefficients."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    if any(column.categories or column.may_be_absent for column in columns):
        raise UsageError(
            "to_sklearn is for number columns without missing values: scikit-learn's linear models code no categories and fill in nothing"
        )
    several = np.ndim(estimator.intercept_) == 1 and np.size(estimator.intercept_) > 1
    coefficients = np.asarray(estimator.coef_ if several else np.ravel(estimator.coef_), dtype=np.float64)
    if not np.isfinite(coefficients).all():
        raise UsageError("some coefficients are unknown here (their parties only send), so there is no model of all columns")
    intercept = float(np.ravel(estimator.intercept_)[0])
    if hasattr(estimator, "classes_"):
        found = LogisticRegression()
        found.classes_, found.n_iter_ = np.array(estimator.classes_), np.array([0], dtype=np.int32)
        found.coef_, found.intercept_ = coefficients[None, :], np.array([intercept])
        if several:  # of two classes scikit-learn has one row: that of the second against the first
            two = coefficients.shape[0] == 2  # noqa: PLR2004
            found.coef_ = np.diff(coefficients, axis=0) if two else coefficients
            found.intercept_ = np.diff(estimator.intercept_) if two else np.array(estimator.intercept_)
    else:
        found = LinearRegression()
        found.coef_, found.intercept_ = coefficients, np.array(estimator.intercept_) if several else intercept
    found.n_features_in_ = estimator.n_features_in_
    if hasattr(estimator, "feature_names_in_"):
        found.feature_names_in_ = estimator.feature_names_in_
    return found


def mean_of_lines(model: Any, lines: tuple[tuple[float, float], ...]) -> Any:  # noqa: ANN401 - scikit-learn ships no types
    """Return a ``VotingClassifier`` of the logistic regressions whose log odds are constant + factor * (those of ``model``), a line for each."""
    from sklearn.ensemble import VotingClassifier
    from sklearn.preprocessing import LabelEncoder
    from sklearn.utils import Bunch

    members = []
    for constant, factor in lines:
        member = copy.deepcopy(model)
        member.coef_, member.intercept_ = factor * model.coef_, constant + factor * model.intercept_
        members.append(member)
    names = [f"line{place}" for place in range(len(members))]
    found = VotingClassifier(list(zip(names, members, strict=True)), voting="soft")
    found.estimators_, found.named_estimators_ = members, Bunch(**dict(zip(names, members, strict=True)))
    found.le_, found.classes_ = LabelEncoder(), model.classes_
    found.le_.classes_ = model.classes_
    if hasattr(model, "feature_names_in_"):
        found.feature_names_in_ = model.feature_names_in_
    return found
