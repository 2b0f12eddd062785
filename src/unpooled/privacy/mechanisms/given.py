"""Inputs that a step hands to a mechanism: a vector, scores to choose by, an objective to minimise, or a vector for a sum of several parties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Vector:
    """A statistic that gets noise. ``sensitivity`` is for noise that follows the run: a closed form of values that are public by then."""

    values: NDArray[Any]
    sensitivity: float | None = None

    def content(self) -> tuple[bytes, ...]:
        """Return everything that the released value depends on, apart from the noise."""
        return self.values.tobytes(), repr(self.sensitivity).encode()


@dataclass(frozen=True, slots=True)
class Scores:
    """Integer scores to choose by, each moved by one unit by at most ``sensitivity``. ``signed``: choose among [values, -values]."""

    values: NDArray[Any]
    sensitivity: int
    signed: bool = False

    def content(self) -> tuple[bytes, ...]:
        """Return everything that the released value depends on, apart from the noise."""
        return self.values.tobytes(), repr((self.sensitivity, self.signed)).encode()


@dataclass(frozen=True, slots=True)
class Objective:
    """An objective: ``solve`` finds its minimum for a given linear perturbation.

    A function has no bytes, so ``over`` is everything that it depends on: coded rows and labels, values of a request.
    """

    solve: Callable[[NDArray[Any]], NDArray[Any]]
    over: tuple[NDArray[Any] | bytes, ...]

    def content(self) -> tuple[bytes | memoryview, ...]:
        """Return everything that the released value depends on, apart from the noise."""
        found: list[bytes | memoryview] = []
        for part in self.over:
            if isinstance(part, bytes):
                found.append(part)
            else:
                found += [
                    repr((part.shape, part.dtype.str)).encode(),
                    np.ascontiguousarray(part).reshape(-1).view(np.uint8).data,
                ]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Summand:
    """A vector that goes into a sum over parties: ``seal`` encrypts what is drawn for those who add up.

    It is given the drawn vector and a secret that belongs to this release alone.
    """

    values: NDArray[Any]
    seal: Callable[[NDArray[Any], bytes], tuple[Any, ...]]

    def content(self) -> tuple[bytes, ...]:
        """Return everything that the released value depends on, apart from the noise."""
        return (self.values.tobytes(),)


Given = Vector | Scores | Objective | Summand
