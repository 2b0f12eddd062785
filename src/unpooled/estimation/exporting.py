"""A fitted linear estimator as scikit-learn's own, and the estimator that an object stands for, by what its row declares of coefficients."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.protocol.step import KEPT, RELEASED

if TYPE_CHECKING:
    from unpooled.privacy.bounds import Column


def stands_for(given: Any) -> Any:  # noqa: ANN401 - whatever a user passes
    """Return the estimator that an object stands for: of a pipeline its last step, of anything else the object."""
    steps = getattr(given, "steps", None)
    return steps[-1][1] if isinstance(steps, list) and steps and isinstance(steps[-1], tuple) else given


def declared_of(given: Any) -> str:  # noqa: ANN401 - as above
    """Return what the row of a model declares of its coefficients; empty where the object says nothing.

    A subclass inherits its row, a wrapper hands it on, a pipeline is asked for that of its last step, and an unpickled object has its class's.
    """
    return str(getattr(getattr(stands_for(given), "_model", None), "coefficients", ""))


def refuse_kept(given: Any) -> None:  # noqa: ANN401 - as above
    """Refuse a model whose coefficients stay at the parties: they are raw functions of what the parties hold, and a prior is public."""
    if declared_of(given) == KEPT:
        raise UsageError(
            "the coefficients of this model stay at its parties, so no later study can take them as a prior: fit a model that releases its coefficients "
            "(PrivateLinearRegression, PrivateGLM), and pass that"
        )


def released_model(given: Any, what: str) -> Any:  # noqa: ANN401 - as above
    """Return the estimator that an object stands for, whose coefficients were released; ``what`` asks for it."""
    declared = declared_of(given)
    if declared == KEPT:
        msg = (
            "the coefficients of this model stay at the parties: a fitted value then moves with every row of theirs, and its cells are no "
            "private histogram. Diagnose a model that was released"
        )
        raise UsageError(msg)
    if declared != RELEASED:
        msg = (
            f"{type(given).__name__} does not say whether its coefficients were released, so {what} refuses it: pass the fitted estimator of unpooled "
            'itself (a model of another package declares coefficients = "released" in its row)'
        )
        raise UsageError(msg)
    found = stands_for(given)
    before = (
        [name for name, step in getattr(given, "steps", [])[:-1] if step not in (None, "passthrough")]
        if found is not given
        else []
    )
    if before:
        msg = f"the steps {listed(before)} come before the model: they were fitted to rows, and no statement counts them. Pass the model itself"
        raise UsageError(msg)
    return found


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
