"""The two classes of a classifier: declared and public, like bounds, because whether a class is there may hang on one person."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import DataError, PrivacyLeakWarning, UsageError
from unpooled.privacy.bounds import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

#: How a study names its classes where it does not say otherwise, and what they are coded to.
DEFAULT = ("-1", "1")


@dataclass(frozen=True)
class Classes:
    """Two labels in the order of :func:`numpy.unique`, which is scikit-learn's: the first is coded -1, the second 1."""

    labels: NDArray[Any]
    #: Whether they were read off the data, so that nothing is guaranteed.
    derived: bool

    @classmethod
    def given(cls, classes: Sequence[object] | None, y: NDArray[Any] | None = None, *, warn: bool = True) -> Classes:
        """What a caller passed as ``classes``: two labels in any order, or None, which reads them off ``y`` with a warning."""
        if classes is not None:
            labels = np.asarray(list(classes))
            try:
                labels = np.unique(labels)
            except TypeError:
                raise UsageError("classes are two labels of one kind, text or numbers") from None
            # NumPy makes text of numbers that stand beside text: then they are not what the data hold.
            mixed = labels.dtype.kind == "U" and not all(isinstance(label, str) for label in classes)
            if len(classes) != 2 or labels.shape != (2,) or mixed:  # noqa: PLR2004
                raise UsageError("classes are two labels of one kind, text or numbers, each once: classes=(first, second)")
            check_classes(labels.tolist())
            return cls(labels, derived=False)
        if y is None:
            raise UsageError("a plan needs the classes: pass classes=(first, second)")
        found = cls(_found(y), derived=True)
        check_classes(found.labels.tolist())
        if warn:
            message = (
                "no classes were declared, so they were read off the labels: the result is for exploration only and carries no "
                "privacy guarantee. Pass classes=(first, second) to get one."
            )
            warnings.warn(message, PrivacyLeakWarning, stacklevel=4)
        return found

    @property
    def texts(self) -> tuple[str, str]:
        """Both classes as a study's parameters and a plan's hash have them."""
        first, second = map(text_of, self.labels.tolist())
        return first, second

    def column(self, y: NDArray[Any]) -> NDArray[Any]:
        """The labels as a party's table holds them; one that is neither class is refused, without naming it or its row."""
        second = np.asarray(y == self.labels[1], dtype=np.bool_)
        if not (second | np.asarray(y == self.labels[0], dtype=np.bool_)).all():
            raise DataError("y holds a label that is neither of the declared classes: correct the labels, or declare others")
        low, high = self.labels if self.labels.dtype.kind in "biuf" else np.array(self.texts, dtype=object)
        column: NDArray[Any] = np.where(second, high, low)
        return column


def _found(y: ArrayLike) -> NDArray[Any]:
    labels = np.unique(np.asarray(y))
    if labels.size == 1:
        raise UsageError("Classifier can't train when only one class is present.")
    if labels.size != 2:  # noqa: PLR2004 - a logistic model of two classes
        raise UsageError("Only binary classification is supported. The type of the target is multiclass.")
    return labels


def check_classes(classes: Sequence[str | float]) -> None:
    """Refuse two declared classes that a column of labels could not tell apart."""
    first, second = map(text_of, classes)
    alike = first == second or _number(first) == _number(second)  # nan, which words become here, is not equal to itself
    finite = all(isinstance(c, str) or math.isfinite(c) for c in classes)
    if alike or not first or not second or not finite:
        raise UsageError("classes are two different labels: words, or finite numbers")


def code(labels: NDArray[Any], classes: Sequence[str | float], name: str) -> NDArray[np.float64]:
    """-1 where a label is the first of the two declared classes and 1 where it is the second; any other is refused, unnamed."""
    first, second = map(text_of, classes)
    if labels.dtype == object:
        is_first, is_second = labels == first, labels == second
    else:
        is_first, is_second = labels == _number(first), labels == _number(second)
    if not (is_first | is_second).all():
        msg = f"column {name!r} must hold the two declared classes, {first} and {second}, and nothing else"
        raise DataError(msg)
    return np.where(is_second, 1.0, -1.0)


def _number(text: str) -> float:
    """The number that a label stands for, nan for words; booleans are stored as 0 and 1."""
    try:
        return float({"false": "0", "true": "1"}.get(text.lower(), text))
    except ValueError:
        return math.nan
