r"""The coefficients that a fit works on, and how they become those of a request and those in the data's own units.

With one linear predictor they are one for every standardised column and for the constant. Classes have a matrix of them whose columns add up to 0:
the fit works on its coordinates in an orthonormal basis V of such contrasts, the eigenvectors of the weight at the released base rates, so that
rounds are as long in a direction as is known of it there. Noise of equal deviation everywhere keeps it in any orthonormal basis.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.families import RowFamily
from unpooled.inference.printed_terms import class_terms
from unpooled.inference.priors import rows_of
from unpooled.kernels import noisy as noisy_gram
from unpooled.linear.standard import CONSTANT
from unpooled.models.glm.curvature import curvature, curvature_of_class_sites, curvature_of_sites

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.inference.priors import EarlierModel
    from unpooled.linear.layout import MomentsLayout
    from unpooled.linear.standard import Standard
    from unpooled.models.glm.curvature import Curvature
    from unpooled.models.glm.plan import GlmDesign

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class GlmShape:
    """One linear predictor, with the base rate from which a fit begins and the (q, w) of a record with the mean response."""

    design: GlmDesign
    rate: float
    units: tuple[float, float]
    #: The mean response, of families whose responses are numbers.
    mean: float = field(default=0.0, kw_only=True)

    @property
    def layout(self) -> MomentsLayout:
        """Return the layout of the features."""
        return self.design.layout

    @property
    def columns(self) -> int:
        """Return coded features."""
        return len(self.layout.coding.attribute)

    @property
    def start(self) -> Row:
        """Return the base rate alone."""
        start = np.zeros(self.layout.size)
        if self.layout.intercept:
            start[-1] = self.constant / CONSTANT
        return start

    @property
    def constant(self) -> float:
        """Return the linear predictor of the base rate."""
        family = self.design.family
        assert isinstance(family, RowFamily)  # the others have shapes of their own
        return family.link(self.rate)

    @property
    def slopes(self) -> int:
        """Return slopes of one linear predictor, at least one."""
        return max(self.layout.size - self.layout.intercept, 1)

    @property
    def moving(self) -> NDArray[np.bool_]:
        """Return which of the coefficients that the fit works on are slopes."""
        return np.arange(self.start.size) < self.columns

    def earlier(self, models: Sequence[EarlierModel], standard: Standard) -> Matrix:
        """Return earlier models less the base rate, a row each, in the coefficients that the fit works on."""
        own = rows_of(models, self.layout.names, intercept=True)
        return np.asarray(np.linalg.solve(self.back(standard), own.T).T - self.start)

    def of_rounds(self, variances: Row) -> Matrix:
        """Return the covariance of what rounds find, from the variances of the coefficients that they move."""
        return np.diag(variances)

    def in_rounds(self, hidden: Matrix) -> Matrix:
        """Return directions that a step does not tell, a column each, as rounds tell of them."""
        return hidden

    def sent(self, start: Row) -> tuple[float, ...]:
        """Return the coefficients of a request."""
        return tuple(start.tolist())

    def received(self, gradient: Row) -> Row:
        """Return a released gradient as one of the coefficients that the fit works on."""
        return gradient

    def stepped(self, gradient: Row) -> Row:
        """Return the gradient of a round likewise."""
        return self.received(gradient)

    def curvature(self, rows: float) -> Row | float:
        """Return the addend of a unit of a coefficient to the gradient, if columns are independent and typical rows are scaled down as planned."""
        curvature = rows * self.units[1] / self.units[0] * self.design.shrinks
        return curvature if self.layout.sites is None else curvature / self.layout.steps

    def information(self, gram: Matrix, variance: Matrix) -> tuple[Matrix, Matrix]:
        """Return released second moments and the variances of their noise likewise."""
        return gram, variance

    def known(self, gram: Matrix, variance: Matrix, penalty: Row, still: Matrix, noise: float = 0.0) -> Curvature:
        """Return the curvature that a Newton step takes of the second moments; ``noise``: the deviation of the score's noise."""
        sites = self.layout.sites
        if sites is None or not variance.any():
            return curvature(gram, variance, penalty, still)
        return curvature_of_sites(gram, variance, penalty, still, self.layout.at_sites, sites.parts, noise)

    @property
    def constants(self) -> tuple[str, ...]:
        """Return the names of the constants of one linear predictor."""
        return self.layout.constants

    def still(self, standard: Standard) -> Matrix:
        """Return the directions, a column each, in the coefficients that the fit works on, along which no row varies."""
        return np.asarray(np.linalg.solve(self.one_back(standard), self.layout.still))

    @property
    def own_still(self) -> Matrix:
        """Return the same in the data's own units."""
        return self.layout.terms.with_constants(self.constants).still

    def met(self, move: Row, variance: Matrix, noises: Row) -> Matrix:
        """Return the covariance of e - N d: the noise of a gradient, and what the noise of the second moments meets in a step d (Theorem B.4)."""
        return noisy_gram.noise_covariance(np.outer(move, move), variance, noises)

    def believed(self, spread: Row | float) -> Row | float:
        """Return the variance of every coefficient about where the rounds ended."""
        return spread

    @cached_property
    def lift(self) -> Matrix:
        """Return the map from the coefficients that the fit works on to those of standardised columns, of every linear predictor."""
        return np.eye(self.layout.size)

    def scale(self, standard: Standard) -> Row:
        """Return the data's own units per unit of every standardised column, and of the constant."""
        return np.concatenate(
            [self.layout.half_widths[: self.columns] * standard.width, [1 / CONSTANT] * self.layout.intercept]
        )

    def one_back(self, standard: Standard) -> Matrix:
        """Return the map of one linear predictor's standardised coefficients to the data's own units; the intercept takes up the centres."""
        p, scale = self.columns, self.scale(standard)
        centres = self.layout.centres[:p] + self.layout.half_widths[:p] * standard.middle
        back = np.diag(1 / scale)
        if self.layout.intercept:
            back[-1, :p] = -centres / scale[:p]
        return back

    def back(self, standard: Standard) -> Matrix:
        """Return the map from the coefficients that the fit works on to those in the data's own units."""
        return self.one_back(standard)

    def penalty(self, standard: Standard, rows: float) -> Row:
        """Return the penalty of the sum of losses on every coefficient that the fit works on; a constant has none."""
        penalty = rows * self.design.parameters.ridge / self.scale(standard) ** 2
        if self.layout.intercept:
            penalty[-1] = 0.0
        penalty[self.layout.at_sites] = 0.0
        return np.asarray(penalty)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the coefficients in the data's own units."""
        return (*self.layout.names, *self.constants)

    @property
    def are_slopes(self) -> tuple[bool, ...]:
        """Return for each of these names whether it is a slope."""
        own = (True,) * self.columns + (False,) * len(self.constants)
        return own * (len(self.names) // len(own))

    def of_base(self) -> Row:
        """Return the coefficients in the data's own units where the base rate is all that is known: slopes, and then the constant."""
        return np.append(np.zeros(self.columns), self.constant)


@dataclass(frozen=True)
class Contrasts(GlmShape):
    """The linear predictors of several classes, which add up to 0."""

    rates: Row = field(default_factory=lambda: np.full(2, 0.5))
    labels: tuple[str, ...] = ()

    @cached_property
    def _basis(self) -> tuple[Row, Matrix]:
        """Return (eigenvalues of the weight at the base rates, its eigenvectors), without the constant one; signs do not depend on the machine."""
        classes = self.rates.size
        weight = np.diag(self.rates) - np.outer(self.rates, self.rates)
        # The constant direction, whose eigenvalue is 0, is moved to the end of the order.
        values, vectors = np.linalg.eigh(weight + np.full((classes, classes), 2.0 / classes))
        vectors = vectors[:, :-1]
        vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(classes - 1)])
        return values[:-1], vectors

    @property
    def centred(self) -> Row:
        """Return the linear predictors of the base rates, which add up to 0."""
        logs = np.log(self.rates)
        return np.asarray(logs - logs.mean())

    @property
    def start(self) -> Row:
        """Return the base rates alone."""
        start = np.zeros((self.rates.size - 1, self.layout.size))
        if self.layout.intercept:
            start[:, -1] = self._basis[1].T @ self.centred / CONSTANT
        return start.ravel()

    @property
    def moving(self) -> NDArray[np.bool_]:
        """Return the slopes of every contrast."""
        return np.tile(np.arange(self.layout.size) < self.columns, self.rates.size - 1)

    def earlier(self, models: Sequence[EarlierModel], standard: Standard) -> Matrix:
        """Return the contrasts of earlier models: what all classes have in common changes no probability."""
        own = rows_of(models, self.names, intercept=False)
        return np.asarray(own @ np.linalg.pinv(self.back(standard)).T - self.start)

    def sent(self, start: Row) -> tuple[float, ...]:
        """Return coefficients of every class."""
        return tuple((self.lift @ start).tolist())

    def received(self, gradient: Row) -> Row:
        """Return contrasts of the gradients of the classes."""
        return np.asarray(self.lift.T @ gradient)

    def curvature(self, rows: float) -> Row:
        """Return the curvature of every contrast, in proportion to its eigenvalue."""
        each = rows * self._basis[0] / self.units[0] * self.design.shrinks
        found: Row = np.repeat(each, self.layout.size)
        return found

    def information(self, gram: Matrix, variance: Matrix) -> tuple[Matrix, Matrix]:
        """Return contrasts of the second moments of the classes; their noise keeps its variance."""
        size = self.lift.shape[1]
        return self.lift.T @ gram @ self.lift, np.full((size, size), variance[0, 0])

    def met(self, move: Row, variance: Matrix, noises: Row) -> Matrix:
        """Return the covariance of e - N d where N is symmetric in classes and in columns (Theorem G.8)."""
        columns = self.layout.size
        d = move.reshape(-1, columns)
        eyes = np.eye(d.shape[0]), np.eye(columns)
        alike = float(move @ move) * np.eye(move.size) + np.kron(eyes[0], d.T @ d) + np.kron(d @ d.T, eyes[1])
        return np.asarray(variance[0, 0] / 4 * (alike + np.outer(move, move)) + np.diag(noises))

    @cached_property
    def lift(self) -> Matrix:
        """V (x) I."""
        return np.asarray(np.kron(self._basis[1], np.eye(self.layout.size)), dtype=np.float64)

    def known(self, gram: Matrix, variance: Matrix, penalty: Row, still: Matrix, noise: float = 0.0) -> Curvature:
        """Return the curvature of all contrasts together."""
        del noise
        sites = self.layout.sites
        if sites is None:
            return curvature(gram, variance, penalty, still)
        at = self.layout.at_sites, sites.parts, self.rates.size - 1
        return curvature_of_class_sites(gram, variance, penalty, still, *at)

    def back(self, standard: Standard) -> Matrix:
        """V (x) that of one linear predictor."""
        return np.asarray(np.kron(self._basis[1], self.one_back(standard)), dtype=np.float64)

    def penalty(self, standard: Standard, rows: float) -> Row:
        """Return the same for every contrast: the penalty of the classes' own coefficients."""
        found: Row = np.tile(super().penalty(standard, rows), self.rates.size - 1)
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the coefficients of every class, each with its label."""
        own = super().names
        return class_terms(self.labels, own)

    def still(self, standard: Standard) -> Matrix:
        """Return the still directions of every contrast of classes."""
        return np.asarray(np.kron(np.eye(self.rates.size - 1), super().still(standard)), dtype=np.float64)

    @property
    def own_still(self) -> Matrix:
        """Return the still directions of every class against the others."""
        return np.asarray(np.kron(self._basis[1], super().own_still), dtype=np.float64)

    def of_base(self) -> Row:
        """No slopes, and the classes' constants."""
        return np.column_stack([np.zeros((self.rates.size, self.columns)), self.centred]).ravel()
