"""Outcomes of a fit: two classes, or several together or each against the rest. Labels in, minimisers and probabilities out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, softmax

from unpooled.errors import UsageError
from unpooled.kernels.logistic import logistic_minimum, softmax_minimum
from unpooled.privacy.accounting import SAFETY
from unpooled.privacy.classes import code, places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: How more than two classes are told apart: together, or each from the rest.
MULTINOMIAL, REST = "multinomial", "one-vs-rest"
#: Probabilities of single classes this small count as nothing.
_LEAST = 1e-300


def check_way(multi_class: str) -> None:
    """Refuse a way that nobody knows."""
    if multi_class not in {MULTINOMIAL, REST}:
        msg = f"multi_class is {MULTINOMIAL!r} or {REST!r}, not {multi_class!r}"
        raise UsageError(msg)


@dataclass(frozen=True)
class Outcomes:
    """The number of classes; ``rest``: if they are more than two, each is fitted against the rest."""

    classes: int = 2
    rest: bool = False

    @property
    def several(self) -> bool:
        """Return True if there are more than two classes."""
        return self.classes > 2  # noqa: PLR2004 - two classes need one linear predictor

    @property
    def predictors(self) -> int:
        """Return the number of linear predictors of a row."""
        return self.classes if self.several else 1

    def coded(self, labels: NDArray[Any], classes: Sequence[str | float], name: str) -> NDArray[Any]:
        """-1 and 1, or the place of every label among the classes."""
        return places(labels, classes, name) if self.several else code(labels, classes, name)

    def minimum(
        self, rows: Matrix, coded: NDArray[Any], penalty: float, *, linear: Vector, centre: Vector, tolerance: float
    ) -> Vector:
        """Return the minimiser of the perturbed sum of losses, predictor by predictor; never an error, whatever rounding allows."""
        if self.several and not self.rest:
            shape = (self.classes, rows.shape[1])
            found = softmax_minimum(
                rows,
                coded,
                self.classes,
                penalty,
                linear=linear.reshape(shape),
                centre=centre.reshape(shape),
                tolerance=tolerance,
            )
            return found.ravel()
        targets = [np.where(coded == k, 1.0, -1.0) for k in range(self.classes)] if self.several else [coded]
        parts = (part.reshape(len(targets), -1) for part in (linear, centre))
        return np.concatenate(
            [
                logistic_minimum(rows, y, penalty, linear=own, centre=middle, tolerance=tolerance, best=True).coefficients
                for y, own, middle in zip(targets, *parts, strict=True)
            ]
        )

    def probabilities(self, decisions: Matrix) -> Matrix:
        """Return the probabilities of every class, from the values of the linear predictors (rows x predictors)."""
        if not self.several:
            second = expit(decisions[:, 0])
            return np.column_stack([1 - second, second])
        if not self.rest:
            return np.asarray(softmax(decisions, axis=1))
        alone = np.maximum(expit(decisions), _LEAST)
        return np.asarray(alone / alone.sum(axis=1, keepdims=True))

    def of(self, rows: Matrix, weights: Vector) -> Matrix:
        """Return probabilities of rows by released weights."""
        return self.probabilities(rows @ weights.reshape(self.predictors, -1).T)


TWO = Outcomes()


def meta_rows(probabilities: list[Matrix], *, intercept: bool, centred: bool = True) -> Matrix:
    """2 p - 1 of every low-level model, and a constant, divided by the square root of their number: rows of norm at most 1.

    Not ``centred``, it is p itself, of two classes alone.

    Of several classes, their probabilities less 1/C each, lengthened so that a certain one makes a part of length 1. Whatever is given is
    clipped first: it may come from a coordinator, and a row's length must not depend on its honesty.
    """
    inside = [np.clip(np.nan_to_num(p, nan=0.5), 0.0, 1.0) for p in probabilities]
    parts = [_signed(p) if centred else p[:, None] for p in inside]
    if intercept:
        parts.append(np.ones((parts[0].shape[0], 1)))
    return np.asarray(np.hstack(parts) * ((1 - SAFETY) / np.sqrt(len(parts))))


def _signed(p: Matrix) -> Matrix:
    """Return a part of a row, of length at most 1."""
    if p.ndim == 1:
        return np.asarray(2 * p - 1)[:, None]
    classes = p.shape[1]
    centred = (p - 1 / classes) * np.sqrt(classes / (classes - 1))
    return np.asarray(centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1.0))
