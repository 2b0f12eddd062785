"""The coefficients that a fit works on, and the curvature of a Newton step in them (THEORY.md, section 3)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from unpooled.families import RowFamily
from unpooled.inference.estimates import Estimates
from unpooled.inference.life_table import LifeTable
from unpooled.inference.printed_terms import TREATMENT, class_terms, printed_terms
from unpooled.inference.priors import rows_of
from unpooled.inference.sites import SHORT, known_moments, longer_sites, noise_norm
from unpooled.inference.tables import most_hidden
from unpooled.kernels import noisy as noisy_gram
from unpooled.kernels.noisy import KnownDirections
from unpooled.linear.standard import CONSTANT
from unpooled.models.glm.declared import PRIOR
from unpooled.models.glm.families import FOLLOWED, ClassRates, ExitCells, Softmax
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from unpooled.families.logistic import Logistic
    from unpooled.inference.coding import CodedTerms
    from unpooled.inference.priors import EarlierModel
    from unpooled.linear.layout import MomentsLayout
    from unpooled.linear.standard import Standard
    from unpooled.models.glm.plan import GlmDesign
    from unpooled.totals.total import Total

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]


# --- Curvature -------------------------------------------------------------------------------------------------------------
# Curvature of a Newton step: the released second derivatives where the records tell of more than noise does (THEORY.md, section 3).

_TUNED = table("glm")
#: Log odds farther out count as this.
_FARTHEST = 30.0
#: Nodes of two independent standard normals, and their weights.
_AXIS, _AXIS_WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_NODES = np.stack([axis.ravel() for axis in np.meshgrid(_AXIS, _AXIS)])
_NODE_WEIGHTS = np.outer(_AXIS_WEIGHTS, _AXIS_WEIGHTS).ravel() / _AXIS_WEIGHTS.sum() ** 2
#: Of orthonormal directions, what is rounding.
_ROUNDED = 1e-9


@dataclass(frozen=True)
class Curvature:
    """Second derivatives, the variances of the noise of their entries, their inverse, and what they do not tell of."""

    information: Matrix
    variance: Matrix
    inverse: Matrix
    #: Directions that the noise hides, of what ``left`` maps the fit's coordinates to; and coordinates that nothing is known of.
    unknown: Matrix
    left: Matrix
    lost: NDArray[np.intp]


def curvature(information: Matrix, variance: Matrix, penalty: Row, still: Matrix) -> Curvature:
    """Return the inverse over the directions that the records tell of more than noise does; ``still``: those along which no row varies.

    A step along the others would be noise alone, and would carry the Hessian's noise into every other coefficient.
    """
    known = KnownDirections.of(information, variance, still, penalty)
    size = penalty.size
    nothing = np.empty(0, dtype=np.intp)
    return Curvature(known.matrix, variance, known.inverse, known.unknown, np.eye(size), nothing)


def curvature_of_intervals(
    information: Matrix,
    variance: Matrix,
    penalty: Row,
    still: Matrix,
    events: Row,
    prior: Row,
    longer: Row | None = None,
) -> Curvature:
    """Return slopes first, then intervals, which are eliminated: nobody is in two intervals' corner together, so their own block is diagonal.

    Held against the noise of the whole matrix a late interval with few events would be unknown, and its hazard kept at the life table's, which is that
    of those who are left and not of a typical person: slopes would be wrong by it. But a single number needs little to be known. It is drawn to what its
    ``events`` say; and ``prior`` is the precision with which the life table's hazard is that of a typical person, worth so much more weight.
    ``longer``: factors of the slopes' coordinates in which they are held against noise.
    """
    p = penalty.size - events.size
    slopes, cross = information[:p, :p] + np.diag(penalty[:p]), information[:p, p:]
    released, noise = information.diagonal()[p:], variance.diagonal()[p:]
    share = min(max(float(released.sum()) / float(events.sum()), _TUNED.own_least), 1.0)
    expected = share * events
    trust = (_TUNED.interval_doubt * expected) ** 2 / ((_TUNED.interval_doubt * expected) ** 2 + noise)
    own = np.maximum(trust * released + (1 - trust) * expected, _TUNED.own_least * expected) + prior
    # E (B + N) C^-1 (B + N)' is larger than B C^-1 B' by what the noise N adds.
    left = slopes - (cross / own) @ cross.T + np.diag((variance[:p, p:] / own).sum(axis=1))
    inner = curvature(left, variance[:p, :p], np.zeros(p), still[:p])
    if longer is not None:
        inner = curvature_in(longer, left, variance[:p, :p], np.zeros(p), still[:p])
    left, told = inner.information, inner.inverse
    carried = told @ cross / own
    inverse = np.block([[told, -carried], [-carried.T, np.diag(1 / own) + (cross / own).T @ carried]])
    whole = np.block([[left + (cross / own) @ cross.T, cross], [cross.T, np.diag(own)]])
    noises = variance.copy()
    np.fill_diagonal(noises[p:, p:], trust * noise)
    # An interval's hazard rests on the slopes as far as its own equation says.
    eliminated = np.vstack([np.eye(p), -(cross / own).T]) @ inner.left
    lost = p + np.flatnonzero(own <= 2 * np.sqrt(trust * noise))
    return Curvature(whole, noises, inverse, inner.unknown, eliminated, lost)


def curvature_of_sites(
    information: Matrix,
    variance: Matrix,
    penalty: Row,
    still: Matrix,
    places: NDArray[np.intp],
    parts: Row,
    noise: float = 0.0,
) -> Curvature:
    """Return slopes first, then the constants of sites, which are eliminated as intervals are: nobody is at two sites, so their own block is diagonal.

    ``places`` are those of the sites' coordinates, ``parts`` the sites' parts of all rows. The last coordinate, the constant of all rows, is the sum of
    the sites'; a step is written as what all sites have in common and what each has more, by their rows. ``noise`` is the deviation of the score's:
    where it moves a site's constant by more than one unit of the linear predictor, the constant is drawn to where it was and has no line, or the noise
    would be carried into the slopes.
    """
    size = penalty.size
    others = np.setdiff1d(np.arange(size - 1), places)
    order = np.concatenate([others, places])
    told, left = known_moments(information, variance, places, parts, (SHORT, CONSTANT), alike=False)
    whole = np.ix_(order, order)
    basis, lengths, _ = np.linalg.svd(still[others], full_matrices=False)
    own = np.maximum(told.diagonal()[places], _TUNED.own_least * np.sqrt(left.diagonal()[places]))
    found = curvature_of_intervals(
        told[whole], left[whole], penalty[order], basis[:, lengths > _ROUNDED], own, (noise * SHORT) ** 2 / own
    )
    hidden = np.flatnonzero(noise * SHORT > own)
    # From all coordinates to these, and from these back.
    onto = np.zeros((order.size, size))
    onto[np.arange(order.size), order] = 1.0
    onto[others.size :, -1] = CONSTANT / SHORT
    back = onto.T.copy()
    back[-1] = 0.0
    back[-1, others.size :] = parts * SHORT / CONSTANT
    back[np.ix_(places, np.arange(others.size, order.size))] -= parts
    return Curvature(
        onto.T @ found.information @ onto,
        left,
        back @ found.inverse @ back.T,
        found.unknown,
        back @ found.left,
        np.union1d(order[found.lost], places[hidden]),
    )


def curvature_of_class_sites(
    information: Matrix, variance: Matrix, penalty: Row, still: Matrix, places: NDArray[np.intp], parts: Row, classes: int
) -> Curvature:
    """Return the same of several contrasts of classes, each with a block of coordinates; of two blocks the sites' part is as diagonal as of one."""
    size = penalty.size // classes
    if variance.any():
        information, variance = information.copy(), variance.copy()
        ends = [slice(at * size, (at + 1) * size) for at in range(classes)]
        for at in itertools.product(ends, ends):
            told = known_moments(information[at], variance[at], places, parts, (SHORT, CONSTANT), alike=False)
            information[at], variance[at] = told
    longer = np.tile(longer_sites(size, places, parts), classes)
    return curvature_in(longer, information, variance, penalty, still)


def curvature_in(longer: Row, information: Matrix, variance: Matrix, penalty: Row, still: Matrix) -> Curvature:
    """Return the same, held against noise in coordinates that are by these factors longer."""
    both = np.outer(longer, longer)
    noise = variance * both**2
    level = noise_norm(noise)
    known = KnownDirections.of(information * both, noise, still / longer[:, None], penalty * longer**2, level)
    nothing = np.empty(0, dtype=np.intp)
    return Curvature(known.matrix / both, variance, known.inverse * both, known.unknown, np.diag(longer), nothing)


def of_balanced(family: Logistic, information: Matrix, start: Row) -> Matrix:
    """Return the second moments of balanced scores, from the information at these coefficients, as of rows that are normal under its weights.

    A record's score has a times the weight that it has in the information, a function of its linear predictor alone.
    """
    whole = float(information[-1, -1]) / CONSTANT**2
    if whole <= 0:  # noise hides every row
        return information
    middle = information[-1] / CONSTANT / whole
    spread = information / whole - np.outer(middle, middle)
    deviation = math.sqrt(max(float(start @ spread @ start), 1e-12))
    along = spread @ start / deviation
    level, tilt, bend = family.balance(float(middle @ start), deviation)
    found = level * information / whole + tilt * (np.outer(middle, along) + np.outer(along, middle))
    return np.asarray(whole * noisy_gram.psd_part(found + bend * np.outer(along, along)))


def beyond(family: Logistic, information: Matrix, start: Row, move: Row) -> Row:
    """Return the score after a move of the coefficients, less that at the start and its linear part; of rows that are normal under their weights at the start.

    The classes are taken to have the probabilities of the start, and so the score is of no more than the second order in the move.
    """
    whole = float(information[-1, -1]) / CONSTANT**2
    if whole <= 0:  # noise hides every row
        return np.zeros_like(start)
    middle = information[-1] / CONSTANT / whole
    spread = noisy_gram.psd_part(information / whole - np.outer(middle, middle))
    both = np.stack([start, move])
    values, vectors = np.linalg.eigh(both @ spread @ both.T)
    values = np.maximum(values, 0.0)
    u, way = (both @ middle)[:, None] + vectors @ (np.sqrt(values)[:, None] * _NODES)
    u = np.clip(u, -_FARTHEST, _FARTHEST)
    # A pull over the weight at the start: p - p' over p (1 - p), times what balances it.
    pull = (expit(u) - expit(u + way)) * (2 + 2 * np.cosh(u)) * (_balance(u, way) if family.balanced else 1.0)
    left = _NODE_WEIGHTS * (pull + way)
    along = spread @ both.T @ vectors / np.sqrt(np.where(values > 0, values, np.inf))
    return np.asarray(whole * (middle * left.sum() + along @ (_NODES @ left)))


def _balance(u: Row, way: Row) -> Row:
    """Return the factor that balances a pull after a move, over that before it."""
    return np.asarray((1 + np.exp(-np.abs(u + way))) / (1 + np.exp(-np.abs(u))))


# --- Shapes ----------------------------------------------------------------------------------------------------------------
# The coefficients that a fit works on, and how they become those of a request and those in the data's own units.
#
# With one linear predictor they are one for every standardised column and for the constant. Classes have a matrix of them whose columns add up to 0:
# the fit works on its coordinates in an orthonormal basis V of such contrasts, the eigenvectors of the weight at the released base rates, so that
# rounds are as long in a direction as is known of it there. Noise of equal deviation everywhere keeps it in any orthonormal basis.


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
    #: The deviation of the noise of a released rate.
    unsure: float = 0.0

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


def without_hidden(
    shape: GlmShape, terms: CodedTerms, found: Estimates, again: Callable[[list[int]], Estimates]
) -> Estimates | None:
    """Return the estimates of the model without the terms that the noise hides wholly, left out one by one; None where there are none.

    Those of the other terms are then adjusted for no part of them. ``again`` fits without these places of the fit's coefficients.
    """
    coded, predictors, out = terms.with_constants(shape.constants), 1, set[int]()
    printed = printed_terms(coded, {}, TREATMENT)
    if isinstance(shape, Contrasts):
        printed, predictors = printed.of_classes(shape.labels, shape.labels[0]), len(shape.labels) - 1
    while more := most_hidden(found, printed, coded, out):
        out |= more
        found = again([k * len(coded.terms) + at for k in range(predictors) for at in sorted(out)])
    return found if out and found.determined(printed.weights).any() else None


def estimates_of(shape: GlmShape, back: Matrix, known: Curvature, own: Row, covariance: Matrix, alone: Matrix) -> Estimates:
    """Return estimates in the data's own units with what a curvature does not tell of; ``alone``: the covariance that there would be without privacy."""
    lost = np.zeros((own.size, known.lost.size))
    lost[known.lost, np.arange(known.lost.size)] = 1.0
    still = np.column_stack([shape.own_still, lost])
    return Estimates.of(shape.names, own, covariance, alone, back @ known.left, known.unknown, still, shape.are_slopes)


# --- Intervals -------------------------------------------------------------------------------------------------------------
# The coefficients of times to an event: slopes of persons, and a log hazard for every interval in the place of one constant.

#: The variance of a coefficient of which rounds tell nothing.
_UNTOLD = 1e6


@dataclass(frozen=True)
class Intervals(GlmShape):
    """The slopes of persons, and the log hazards of the intervals in the place of one constant."""

    table: LifeTable = field(default_factory=lambda: LifeTable((1.0,), (1.0,), (1.0,), 0.0, 0.0, 2.0))

    @property
    def typical(self) -> Row:
        """Return the precision with which the life table's hazards are believed to be those of a typical person, of the fit's own coefficients."""
        return np.asarray(CONSTANT**2 / (PRIOR**2 + self.table.log_hazard_variances))

    @property
    def start(self) -> Row:
        """Return the hazards of the life table."""
        return np.concatenate([np.zeros(self.columns), np.log(self.table.hazards) / CONSTANT])

    def earlier(self, models: Sequence[EarlierModel], standard: Standard) -> Matrix:
        """Return log hazard ratios alone: the hazards of an earlier model are those of other times, and the life table has these."""
        own = rows_of(models, self.layout.names, intercept=False) * self.scale(standard)[: self.columns]
        return np.hstack([own, np.zeros((len(models), len(self.table.edges)))])

    def of_rounds(self, variances: Row) -> Matrix:
        """The intervals' hazards move together, and rounds tell nothing of how they differ."""
        found, intervals = np.diag(variances), len(self.table.edges)
        found[self.columns :, self.columns :] = variances[-1] + _UNTOLD * (np.eye(intervals) - 1 / intervals)
        return found

    def in_rounds(self, hidden: Matrix) -> Matrix:
        """A step eliminates intervals, and rounds tell of the slopes alone what it does not."""
        return hidden * (np.arange(len(hidden)) < self.columns)[:, None]

    def stepped(self, gradient: Row) -> Row:
        """Return the gradient of a round with its last entry for every interval: the intervals' hazards move together."""
        return np.concatenate([gradient[:-1], np.full(len(self.table.edges), gradient[-1])])

    def curvature(self, rows: float) -> float:
        """Information is counted in events."""
        return rows * self.table.rate / self.units[0] * self.design.shrinks

    def believed(self, spread: Row | float) -> Row:
        """The intervals' hazards are also as uncertain as in the life table."""
        own = np.full(self.columns + len(self.table.edges), spread)
        own[self.columns :] += self.table.log_hazard_variances / CONSTANT**2
        return own

    def known(self, gram: Matrix, variance: Matrix, penalty: Row, still: Matrix, noise: float = 0.0) -> Curvature:
        """Return intervals by themselves, where there is noise."""
        if not variance.any():
            return super().known(gram, variance, penalty, still, noise)
        events = np.array(self.table.events) + 1.0 + self.table.noise
        own = penalty, still, CONSTANT**2 * events, self.typical
        sites, places = self.layout.sites, self.layout.at_sites
        if sites is None:
            return curvature_of_intervals(gram, variance, *own)
        gram, variance = gram.copy(), variance.copy()
        # The intervals' hazards add up to a constant, of which a site has its part.
        p, added = (
            self.columns,
            np.vstack(
                [np.eye(self.columns + 1), *[np.eye(self.columns + 1)[-1:]] * (self.lift.shape[0] - self.columns - 1)]
            ),
        )
        told = added.T @ gram @ added, added.T @ variance @ added
        told = known_moments(*told, places, sites.parts, (SHORT, CONSTANT), alike=False)
        gram[:p, :p], variance[:p, :p] = (moments[:p, :p] for moments in told)
        return curvature_of_intervals(gram, variance, *own, longer_sites(self.columns, places, sites.parts))

    @cached_property
    def lift(self) -> Matrix:
        """Both are the same."""
        return np.eye(self.columns + len(self.table.edges))

    def back(self, standard: Standard) -> Matrix:
        """Every log hazard takes up the centres."""
        one, p, intervals = self.one_back(standard), self.columns, len(self.table.edges)
        back = np.zeros((p + intervals, p + intervals))
        back[:p, :p] = one[:p, :p]
        back[p:, :p] = one[-1, :p]
        back[p:, p:] = CONSTANT * np.eye(intervals)
        return back

    def penalty(self, standard: Standard, rows: float) -> Row:
        """Return the penalty, which the slopes alone have."""
        return np.append(super().penalty(standard, rows)[:-1], np.zeros(len(self.table.edges)))

    @property
    def constants(self) -> tuple[str, ...]:
        """Return intervals by their ends."""
        return self.table.interval_names

    def still(self, standard: Standard) -> Matrix:
        """Return the still directions: levels against the hazards of all intervals."""
        return np.asarray(np.linalg.solve(self.back(standard), self.own_still))

    def of_base(self) -> Row:
        """Return the life table alone."""
        return np.append(np.zeros(self.columns), np.log(self.table.hazards))


# --- The shape of a fit ----------------------------------------------------------------------------------------------------
# Shape of a fit: from the released base rates of a study to the coefficients that its fit works on.


def shape_of(design: GlmDesign, total: Total, rows: int, counted: float) -> GlmShape:
    """Return the shape that a fit begins with: the base rate inside the response's possible values, and the units of a typical record.

    ``counted`` is the sum of weights, of which the base rate is a part; classes and exits are counted without weights, by ``rows``.
    """
    base, family = design.base, design.family
    if isinstance(base, ExitCells):
        table = LifeTable.of_cells(base.ends, total.values, float(total.deviations.max()), rows)
        met = min(float(table.hazards @ np.diff(np.array([0.0, *base.ends]))), FOLLOWED)
        return Intervals(design, table.rate, (max(1.0, met), met), table)
    if isinstance(base, ClassRates) and isinstance(family, Softmax):
        rates = base.rates(total, rows)
        unsure = float(total.deviations.max()) / rows
        return Contrasts(design, 0.0, family.rates_units(rates), rates, family.labels, unsure)
    mean, rate = base.decode(total, counted)
    assert isinstance(family, RowFamily)
    return GlmShape(design, rate, family.units(mean), mean=mean)


__all__ = [
    "Curvature",
    "curvature",
    "curvature_in",
    "curvature_of_class_sites",
    "curvature_of_intervals",
    "curvature_of_sites",
    "estimates_of",
]
