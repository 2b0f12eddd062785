"""The classes of a classifier, two or several: declared and public, like bounds, because whether a class is there may hang on one person."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import DataError, PrivacyLeakWarning, UsageError, warn_caller
from unpooled.privacy.bounds import text_of
from unpooled.privacy.table import gaps_of, with_gaps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

#: How a study names its classes where it does not say otherwise, and what they are coded to.
DEFAULT = ("-1", "1")


@dataclass(frozen=True)
class Classes:
    """Labels in the order of :func:`numpy.unique`, which is scikit-learn's: of two the first is coded -1, the second 1."""

    labels: NDArray[Any]
    #: Whether they were read off the data, so that nothing is guaranteed.
    derived: bool

    @classmethod
    def given(
        cls, classes: Sequence[object] | None, y: NDArray[Any] | None = None, *, warn: bool = True, several: bool = False
    ) -> Classes:
        """Return the classes that a caller passed: two labels (``several``: or more) in any order; None is 0 and 1 where ``y`` holds no other number, else they are read off it with a warning."""
        words = "two labels or more" if several else "two labels"
        if classes is not None:
            labels = np.asarray(list(classes))
            try:
                labels = np.unique(labels)
            except TypeError:
                msg = f"classes are {words} of one kind, text or numbers"
                raise UsageError(msg) from None
            # NumPy makes text of numbers that stand beside text: then they are not what the data hold.
            mixed = labels.dtype.kind == "U" and not all(isinstance(label, str) for label in classes)
            enough = labels.size >= 2 if several else labels.size == 2  # noqa: PLR2004
            if not enough or labels.shape != (len(classes),) or mixed:
                msg = f"classes are {words} of one kind, text or numbers, each once: classes=(first, second{', ..' if several else ''})"
                raise UsageError(msg)
            check_classes(labels.tolist())
            return cls(labels, derived=False)
        if y is None:
            raise UsageError("a plan needs the classes: pass classes=(first, second)")
        if (usual := _no_and_yes(y)) is not None:
            return cls(usual, derived=False)
        found = cls(_found(y, several=several), derived=True)
        check_classes(found.labels.tolist())
        if warn:
            message = (
                "no classes were declared, so they were read off the labels: the result is for exploration only and carries no "
                "privacy guarantee. Pass classes=(first, second) to get one."
            )
            warn_caller(message, PrivacyLeakWarning)
        return found

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the classes as a study's parameters and a plan's hash have them."""
        return tuple(map(text_of, self.labels.tolist()))

    def column(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return the labels as a party's table holds them, missing ones too; one that is none of the classes is refused, without naming it or its row."""
        same, gaps = np.array([np.asarray(y == label, dtype=np.bool_) for label in self.labels]), gaps_of(y)
        if not (same.any(axis=0) | gaps).all():
            few = "neither" if self.labels.size == 2 else "none"  # noqa: PLR2004
            msg = f"y holds a label that is {few} of the declared classes: correct the labels, or declare others"
            raise DataError(msg)
        known = self.labels if self.labels.dtype.kind in "biuf" else np.array(self.texts, dtype=object)
        column: NDArray[Any] = known[same.argmax(axis=0)]
        return with_gaps(column, gaps)


def _no_and_yes(y: NDArray[Any]) -> NDArray[Any] | None:
    """Return the classes of a response that is 0 or 1, or true or false: what nobody has to declare. None for every other response.

    The promise is about responses of these two values, whichever of them are there, as it would be if they were declared.
    """
    if y.dtype.kind not in "biuf" or not np.isin(y, (0, 1)).all():
        return None
    return np.array([0, 1]).astype(y.dtype)


def _found(y: ArrayLike, *, several: bool) -> NDArray[Any]:
    labels = np.unique(np.asarray(y))
    if labels.size == 1:
        raise UsageError("Classifier can't train when only one class is present.")
    if labels.size != 2 and not several:  # noqa: PLR2004 - a logistic model of two classes
        raise UsageError("Only binary classification is supported. The type of the target is multiclass.")
    return labels


def check_classes(classes: Sequence[str | float]) -> None:
    """Refuse declared classes that a column of labels could not tell apart."""
    texts = [text_of(c) for c in classes]
    numbers = [n for n in map(_number, texts) if not math.isnan(n)]
    alike = len(set(texts)) < len(texts) or len(set(numbers)) < len(numbers)
    finite = all(isinstance(c, str) or math.isfinite(c) for c in classes)
    if alike or not all(texts) or not finite:
        two = "two different labels" if len(texts) == 2 else "different labels"  # noqa: PLR2004
        msg = f"classes are {two}: words, or finite numbers"
        raise UsageError(msg)


def code(labels: NDArray[Any], classes: Sequence[str | float], name: str) -> NDArray[np.float64]:
    """-1 where a label is the first of the two declared classes and 1 where it is the second; any other is refused, unnamed."""
    first, second = map(text_of, classes)
    if labels.dtype == object:
        is_first, is_second = labels == first, labels == second
    else:
        is_first, is_second = labels == _number(first), labels == _number(second)
    if not (is_first | is_second).all():
        msg = f"column {name!r} must hold the two declared classes, {first} and {second}, and nothing else"
        raise DataError(msg).at(column=name)
    return np.where(is_second, 1.0, -1.0)


def places(labels: NDArray[Any], classes: Sequence[str | float], name: str) -> NDArray[np.intp]:
    """Return the place of every label among the declared classes; one that is none of them is refused, unnamed."""
    texts = [text_of(c) for c in classes]
    known = texts if labels.dtype == object else [_number(text) for text in texts]
    same = np.array([labels == label for label in known])
    if not same.any(axis=0).all():
        msg = f"column {name!r} must hold the {len(texts)} declared classes, {', '.join(texts)}, and nothing else"
        raise DataError(msg).at(column=name)
    return np.asarray(same.argmax(axis=0))


def _number(text: str) -> float:
    """Return the number that a label stands for, nan for words; booleans are stored as 0 and 1."""
    try:
        return float({"false": "0", "true": "1"}.get(text.lower(), text))
    except ValueError:
        return math.nan
