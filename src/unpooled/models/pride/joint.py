r"""Families whose loss is no sum over rows of one number each: Cox's partial likelihood, several classes, ordered levels.

They are fitted as the others are, on [X_k, Z] or over the others' Gram matrix (THEORY.md, P.10): ``beta_k = X_k' V`` with one column of V
for each decision of a row, at no further cost in privacy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from unpooled.kernels.joint_newton import JointPath, ProportionalOdds, SoftmaxLoss, contrasts
from unpooled.kernels.survival import PartialLikelihood
from unpooled.models.pride.gram import Share, features, raised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.kernels.joint_newton import JointLoss
    from unpooled.models.pride.gram import Kernel

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: Thresholds of levels that do not occur lie no farther out than this.
_FAR = 30.0


@dataclass(frozen=True)
class JointFamily(ABC):
    """A loss of all rows together; responses as :meth:`loss` takes them."""

    name: ClassVar[str]
    #: Why its coefficients are not published; empty where a row of length 1 pulls at all of them by at most ``pull``.
    unpublished: ClassVar[str] = ""
    pull: ClassVar[float] = math.inf

    @abstractmethod
    def loss(self, y: Matrix, *, fit_intercept: bool) -> JointLoss:
        """For these responses."""

    @abstractmethod
    def told(self, loss: JointLoss, coefficients: Matrix, shared: Vector) -> tuple[Matrix, Vector]:
        """Return coefficients and constants as they are kept: of the decisions that the family's predictions are made of."""

    @abstractmethod
    def check(self, y: Matrix) -> None:
        """Refuse responses that are none of this family."""


@dataclass(frozen=True)
class Cox(JointFamily):
    """Proportional hazards of censored times, ties by Breslow; responses are (time, 1 for an event and 0 for the end of observation)."""

    name: ClassVar[str] = "cox"
    unpublished: ClassVar[str] = (
        "a partial likelihood is no sum over rows (a row is in others' risk sets), so there is no bound on what one row moves"
    )

    def loss(self, y: Matrix, *, fit_intercept: bool) -> PartialLikelihood:  # noqa: ARG002 - the baseline hazard takes its place
        """Return Breslow's partial likelihood."""
        return PartialLikelihood(np.ascontiguousarray(y[:, 0]), np.ascontiguousarray(y[:, 1]))

    def told(self, loss: JointLoss, coefficients: Matrix, shared: Vector) -> tuple[Matrix, Vector]:  # noqa: ARG002
        """Return log hazard ratios; no constant."""
        return coefficients[:, 0], np.zeros(1)

    def check(self, y: Matrix) -> None:
        """Times are above 0, events are 0 and 1."""
        if not np.isfinite(y).all() or (y[:, 0] <= 0).any():
            raise ValueError("times of a Cox regression are positive finite numbers")
        if not np.isin(y[:, 1], (0.0, 1.0)).all():
            raise ValueError("events of a Cox regression are 1 (it happened) and 0 (observation ended)")


@dataclass(frozen=True)
class Multinomial(JointFamily):
    """Softmax of C unordered classes, all of which have coefficients (they sum to 0); responses are 0 .. C - 1."""

    name: ClassVar[str] = "multinomial"
    pull: ClassVar[float] = math.sqrt(2.0)
    classes: int = 2

    def loss(self, y: Matrix, *, fit_intercept: bool) -> SoftmaxLoss:
        """-log p."""
        return SoftmaxLoss(y[:, 0].astype(np.intp), self.classes, fit_intercept)

    def told(self, loss: JointLoss, coefficients: Matrix, shared: Vector) -> tuple[Matrix, Vector]:  # noqa: ARG002
        """Return a column, and a constant, for every class."""
        basis = contrasts(self.classes)
        return coefficients @ basis.T, basis @ shared if shared.size else np.zeros(self.classes)

    def check(self, y: Matrix) -> None:
        """Classes were coded when they were read."""


@dataclass(frozen=True)
class Ordinal(JointFamily):
    """Proportional odds of J ordered levels: logit P(y > level j) = u - s_j; responses are 0 .. J - 1."""

    name: ClassVar[str] = "ordinal"
    unpublished: ClassVar[str] = "there is no proof yet of how far one row moves the thresholds"
    classes: int = 2

    def loss(self, y: Matrix, *, fit_intercept: bool) -> ProportionalOdds:  # noqa: ARG002 - thresholds take its place
        """-log of a difference of two logistic functions."""
        return ProportionalOdds(y[:, 0].astype(np.intp), self.classes)

    def told(self, loss: JointLoss, coefficients: Matrix, shared: Vector) -> tuple[Matrix, Vector]:
        """Return the common coefficients; a constant -s_j for every level but the last."""
        assert isinstance(loss, ProportionalOdds)
        return coefficients[:, 0], -np.clip(loss.thresholds(shared), -_FAR, _FAR)

    def check(self, y: Matrix) -> None:
        """Levels were coded when they were read."""


@dataclass(frozen=True)
class JointDesignPath:
    """Solutions on a design whose first columns are the party's own."""

    family: JointFamily
    inner: JointPath
    design: Matrix
    own: int

    @classmethod
    def of(cls, family: JointFamily, design: Matrix, own: int, response: Matrix, *, fit_intercept: bool) -> JointDesignPath:
        """Return the path for a party's response."""
        loss = family.loss(response, fit_intercept=fit_intercept)
        return cls(family, JointPath.of(design, loss, centred=fit_intercept), design, own)

    @property
    def squares(self) -> Vector:
        """Return squared singular values of the design."""
        return self.inner.squares

    def evidence_alpha(self) -> float:
        """Return the penalty of largest marginal likelihood."""
        return self.inner.evidence_alpha()

    def cross_validated(self, alphas: Sequence[float] | Vector, folds: Sequence[NDArray[np.intp]]) -> Vector:
        """Return for every penalty the loss that held-out rows add."""
        return self.inner.cross_validated(alphas, folds)

    def solve(self, alpha: float) -> Share:
        """Return the coefficients of the own columns and of the received ones."""
        found = self.inner.minimum(alpha)
        coefficients, mean = self.family.told(self.inner.loss, found.coefficients, found.shared)
        # Decisions at the columns' means are the constants; those of Cox are counted from there.
        constant = mean - self.inner.column_means @ coefficients
        return Share(coefficients[: self.own], coefficients[self.own :], constant, mean, found.decisions[:, 0])


@dataclass(frozen=True)
class GramJointPath:
    """Solutions over the others' Gram matrix: beta_k = X_k' V, with the kernel's e_0 as effects of every row's decisions."""

    family: JointFamily
    kernel: Kernel
    path: JointPath

    @classmethod
    def of(cls, family: JointFamily, kernel: Kernel, response: Matrix, *, fit_intercept: bool) -> GramJointPath:
        """Return the path for a party's response."""
        loss = family.loss(response, fit_intercept=fit_intercept)
        path = JointPath.of(features(kernel), loss, centred=fit_intercept, outside=kernel.outside)
        return cls(family, kernel, path)

    @property
    def squares(self) -> Vector:
        """Return squared singular values of the features."""
        return self.path.squares

    def evidence_alpha(self) -> float:
        """Return the penalty of largest marginal likelihood."""
        return self.path.evidence_alpha()

    def cross_validated(self, alphas: Sequence[float] | Vector, folds: Sequence[NDArray[np.intp]]) -> Vector:
        """Return for every penalty the loss that held-out rows add, their own effects unknown."""
        return self.path.cross_validated(alphas, folds)

    def solve(self, alpha: float) -> Share:
        """Return the party's share: F's coefficients are F'V, so U'V stands in them."""
        found = self.path.minimum(alpha)
        coefficients, mean = self.family.told(self.path.loss, found.coefficients, found.shared)
        inside = (coefficients[: self.kernel.own.rank].T / raised(self.kernel)).T
        return self.kernel.share(inside, mean, found.decisions[:, 0])


JOINT: dict[str, type[JointFamily]] = {family.name: family for family in (Cox, Multinomial, Ordinal)}
