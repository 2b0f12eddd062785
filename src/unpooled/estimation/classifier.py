"""``DeclaredClassifier``: declared classes in, decisions, probabilities and labels out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from unpooled.estimation.base import Declared, StudyEstimator
from unpooled.privacy.classes import Classes
from unpooled.privacy.plan import CLASSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray
    from sklearn.utils import Tags

    from unpooled.privacy.table import Table

    Vector = NDArray[np.float64]


class DeclaredClassifier(ClassifierMixin, StudyEstimator):
    """An estimator of declared classes. Its own part is a decision value, where positive means ``classes_[1]``, or one for every class."""

    classes: Sequence[object] | None
    #: Whether it knows more than two classes.
    _several: ClassVar[bool] = False

    def _declared(self, names: Sequence[str], table: Table | None = None, y: NDArray[Any] | None = None) -> Declared:
        if y is not None:
            check_classification_targets(y)
        declared = super()._declared(names, table)
        classes = Classes.given(self.classes, y, warn=self._warns, several=self._several)
        return replace(declared, classes=classes, derived=(*declared.derived, *((CLASSES,) if classes.derived else ())))

    def _labelled(self, X: ArrayLike, y: ArrayLike) -> tuple[Table, Declared, NDArray[Any]]:
        """Return features, declarations, and the labels as a party's table holds them."""
        table, labels = self._read(X, y)
        declared = self._declared(table.names, table, labels)
        assert declared.classes is not None
        self.classes_ = declared.classes.labels
        return table, declared, declared.classes.column(labels)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """``X @ coef_.T + intercept_``: positive means ``classes_[1]``, of more than two classes the largest is the likeliest."""
        if not hasattr(self, "coef_") or len(self.coef_) < 2:  # noqa: PLR2004 - rows of several classes
            return self._linear(X)
        return np.asarray(self._natural(X) @ self.coef_.T + self.intercept_)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return probabilities of the classes."""
        decisions = self.decision_function(X)
        if decisions.ndim > 1:
            return np.asarray(softmax(decisions, axis=1))
        positive = expit(decisions)
        return np.column_stack([1 - positive, positive])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the likeliest class of every row."""
        decisions = self.decision_function(X)
        chosen = (decisions > 0).astype(int) if decisions.ndim == 1 else decisions.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._several
        return tags
