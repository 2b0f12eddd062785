"""``BinaryClassifier``: declared classes in, decisions, probabilities and labels out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit
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


class BinaryClassifier(ClassifierMixin, StudyEstimator):
    """An estimator of two declared classes. Its own part is a decision value: positive means ``classes_[1]``."""

    classes: Sequence[object] | None

    def _declared(self, names: Sequence[str], table: Table | None = None, y: NDArray[Any] | None = None) -> Declared:
        if y is not None:
            check_classification_targets(y)
        declared = super()._declared(names, table)
        classes = Classes.given(self.classes, y, warn=self._warns)
        return replace(declared, classes=classes, derived=(*declared.derived, *((CLASSES,) if classes.derived else ())))

    def _labelled(self, X: ArrayLike, y: ArrayLike) -> tuple[Table, Declared, NDArray[Any]]:
        """Features, declarations, and the labels as a party's table holds them."""
        table, labels = self._read(X, y)
        declared = self._declared(table.names, table, labels)
        assert declared.classes is not None
        self.classes_ = declared.classes.labels
        return table, declared, declared.classes.column(labels)

    def decision_function(self, X: ArrayLike) -> Vector:
        """``X @ coef_ + intercept_``; positive means ``classes_[1]``."""
        return self._linear(X)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of the two classes."""
        positive = expit(self.decision_function(X))
        return np.column_stack([1 - positive, positive])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The more likely class of every row."""
        positive = self.decision_function(X) > 0
        return np.asarray(self.classes_[positive.astype(int)])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
