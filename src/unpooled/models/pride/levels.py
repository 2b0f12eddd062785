"""Several classes, or ordered levels: declared and public, distinguished in words, and coded by their place."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import DataError, PrivacyLeakWarning, UsageError, listed
from unpooled.privacy.bounds import text_of
from unpooled.privacy.classes import Classes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Vector = NDArray[np.float64]


def check_levels(classes: Sequence[str | float]) -> None:
    """Refuse declared classes, or ordered levels, that a column of labels could not tell apart."""
    texts = [text_of(each) for each in classes]
    numbers = [number for text in texts if not math.isnan(number := _number(text))]
    finite = all(isinstance(each, str) or math.isfinite(each) for each in classes)
    alike = len(set(texts)) < len(texts) or len(set(numbers)) < len(numbers)
    if len(texts) < 2 or alike or "" in texts or not finite:  # noqa: PLR2004 - one class is no choice
        raise UsageError("classes are two or more different labels: words, or finite numbers")


def places(labels: NDArray[np.generic], classes: Sequence[str | float], name: str) -> Vector:
    """Return the place of every label among the declared classes, from 0; any other label is refused, unnamed."""
    found = np.full(labels.shape[0], -1.0)
    for k, each in enumerate(classes):
        text = text_of(each)
        found[np.asarray(labels == (text if labels.dtype == object else _number(text)), dtype=np.bool_)] = k
    if (found < 0).any():
        msg = f"column {name!r} must hold the declared classes, {listed([text_of(each) for each in classes])}, and nothing else"
        raise DataError(msg).at(column=name)
    return found


def _number(text: str) -> float:
    """Return the number that a label stands for, nan for words; booleans are stored as 0 and 1."""
    try:
        return float({"false": "0", "true": "1"}.get(text.lower(), text))
    except ValueError:
        return math.nan


@dataclass(frozen=True)
class Levels(Classes):
    """Two or more labels: in the order of :func:`numpy.unique`, or from the lowest level up as they were declared."""

    @classmethod
    def declared(
        cls, classes: Sequence[object] | None, y: ArrayLike | None = None, *, ordered: bool, warn: bool = True
    ) -> Levels:
        """Return the levels that a caller passed as ``classes``; None reads them off ``y`` with a warning."""
        if classes is None and y is None:
            raise UsageError("a plan needs the classes: pass classes=(first, second, ..)")
        given = np.asarray(list(classes)) if classes is not None else np.unique(np.asarray(y))
        # NumPy makes text of numbers that stand beside text: then they are not what the data hold.
        mixed = classes is not None and given.dtype.kind == "U" and not all(isinstance(each, str) for each in classes)
        if given.ndim != 1 or mixed or given.dtype.kind not in "biufUO":
            raise UsageError("classes are labels of one kind, text or numbers, each once: classes=(first, second, ..)")
        if classes is None and given.size == 1:
            raise UsageError("Classifier can't train when only one class is present.")
        check_levels(given.tolist())
        if classes is None and warn:
            message = (
                "no classes were declared, so they were read off the labels: the result is for exploration only and carries no "
                "privacy guarantee. Pass classes=(first, second, ..) to get one."
            )
            warnings.warn(message, PrivacyLeakWarning, stacklevel=5)
        return cls(given if ordered else np.unique(given), derived=classes is None)

    @property
    def texts(self) -> tuple[str, ...]:
        """All of them as a study's parameters and a plan's hash have them."""
        return tuple(map(text_of, self.labels.tolist()))

    def column(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return the labels as a party's table holds them; one that is none of the classes is refused, without naming it or its row."""
        known, words = np.zeros(y.shape[0], dtype=np.bool_), np.empty(y.shape[0], dtype=object)
        for label in self.labels:
            same = np.asarray(y == label, dtype=np.bool_)
            known |= same
            words[same] = str(label)
        if not known.all():
            raise DataError("y holds a label that is none of the declared classes: correct the labels, or declare others")
        if self.labels.dtype.kind in "biuf":
            return np.asarray(y)
        if self.labels.dtype.kind == "U":
            return words
        return np.array([text_of(label) for label in y.tolist()], dtype=object)
