"""One problem as every kind of round sees it: matrix, target, blocks and their radii, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from unpooled.kernels.columns import Columns, Index, Vector

#: Below this the lazy scale of coefficients is multiplied out.
LEAST_SCALE = 1e-100


@final
@dataclass(frozen=True)
class Problem:
    """The minimisation problem, and the rule by which steps are chosen."""

    columns: Columns
    target: Vector
    #: The block of every column.
    owner: Index
    #: Of every block.
    radii: Vector
    #: Line search instead of the standard step.
    search: bool
    #: p, the smallest probability that a column is searched.
    probability: float
    #: Blocks stay where they are if their vertex does not lead downhill.
    descend: bool

    def step(self, t: int) -> float:
        """Return the standard step, or -1 for a line search."""
        return -1.0 if self.search else 2.0 / (self.probability * t + 2.0)


def target_of(y: ArrayLike, shape: tuple[int, int], loss: str) -> Vector:
    """Return the target as a vector, if it fits the matrix and the loss."""
    target = np.ascontiguousarray(y, dtype=np.float64)
    if target.shape != shape[:1] or min(shape) == 0:
        msg = f"y has shape {target.shape}, the matrix {shape}"
        raise ValueError(msg)
    if loss not in {"squared", "logistic"}:
        msg = f"unknown loss {loss!r}: squared or logistic"
        raise ValueError(msg)
    if loss == "logistic" and not np.isin(target, (-1.0, 1.0)).all():
        raise ValueError("the target of a logistic loss is -1 or 1")
    return target


def labels_of(labels: ArrayLike | None, d: int) -> Index:
    """Return the number of every column's block (or group): labels in sorted order, 0 .. k - 1."""
    if labels is None:
        return np.zeros(d, dtype=np.int64)
    given = np.asarray(labels)
    if given.shape != (d,):
        msg = f"{given.size} labels for {d} columns"
        raise ValueError(msg)
    return np.unique(given, return_inverse=True)[1].astype(np.int64)


def radii_of(radius: ArrayLike, count: int) -> Vector:
    """Return one radius per block; a single number is their sum."""
    given = np.asarray(radius, dtype=np.float64)
    radii = np.full(count, float(given) / count) if given.ndim == 0 else given
    if radii.shape != (count,) or not (radii > 0).all() or not np.isfinite(radii).all():
        msg = f"{count} positive radii are needed, or their sum"
        raise ValueError(msg)
    return radii
