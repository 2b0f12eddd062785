"""Released second moments: one release, many models, at no further cost; and the file that keeps them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec
import numpy as np

from unpooled.errors import DataError, UsageError
from unpooled.inference.coding import SITE
from unpooled.inference.coordinates import Coordinates, StoredCoordinates
from unpooled.inference.estimates import Estimates
from unpooled.inference.printed_terms import TREATMENT
from unpooled.inference.priors import ESTIMATE, is_estimated, positive
from unpooled.inference.results import Result
from unpooled.inference.saving import read_saved, write_saved
from unpooled.inference.sites import SiteConstants, noise_norm
from unpooled.kernels import noisy as noisy_gram
from unpooled.kernels.noisy import GramPrior, KnownDirections, cross_without_still
from unpooled.kernels.posterior import PRIORS, NoisyMoments, least_squares_state
from unpooled.linear import inference as derived
from unpooled.linear.fit import LinearFit, once
from unpooled.linear.inference import behind_prior, sampling_covariance
from unpooled.linear.layout import Geometry, MomentsLayout
from unpooled.linear.random_sites import tables_with_sites
from unpooled.linear.residuals import Covariance
from unpooled.privacy.bounds import Column
from unpooled.privacy.origin import COEFFICIENTS, ReleasedInput
from unpooled.protocol.messages import UNREADABLE, Array
from unpooled.totals.weights import Weighting
from unpooled.totals.whole_rows import WholeRowsModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.inference.tables import Anova, Contrast, JointTest
    from unpooled.linear.inference import LinearSummary, LinearTables
    from unpooled.privacy.plan import Plan
    from unpooled.totals.total import Total

    Parts = tuple[MomentsLayout, Coordinates | None, NDArray[np.float64], NDArray[np.float64]]
    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]


# --- Moments file ----------------------------------------------------------------------------------------------------------
# Released moments as a file: everything, exactly, and nothing that runs.

FORMAT, KIND = "unpooled moments 1", "Moments"
Made = TypeVar("Made")


class StoredMoments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Moments as a file: everything, exactly, and nothing that runs."""

    format: str
    features: tuple[Column, ...]
    response: Column
    grid: int
    geometry: str
    norm: float | None
    intercept: bool
    rows: int
    gram: Array
    variance: Array
    plan: str
    statement: str
    #: Where the rows were standardised, by what.
    frame: StoredCoordinates | None = None
    #: Whether the statement holds; files of unpooled 0.2.0 say it in the statement's words only.
    holds: bool | None = None
    #: Of features that a formula makes: the formula, and the columns that it reads.
    formula: str = ""
    sources: tuple[Column, ...] = ()
    #: The declared column of weights, where the rows have some.
    weights: Column | None = None
    #: What the standard errors assume, and the second moments of scores behind them with the variances of their noise.
    covariance: str = Covariance.MODEL
    meat: Array | None = None
    meat_variance: Array | None = None
    #: Columns that were taken out of the rows.
    nuisance: tuple[str, ...] = ()
    #: The rows of every site, where each has a constant of its own.
    site_rows: tuple[int, ...] = ()
    #: Whether these constants are drawn around a mean.
    random_sites: bool = False
    #: The releases behind them.
    origins: tuple[ReleasedInput, ...] = ()
    #: Whether ranges were narrowed to multiples of noisy deviations.
    narrowed: bool = False
    #: The declared columns whose missing values left a row out, and why the others are too few for a line; empty where they are not.
    left_out: tuple[Column, ...] = ()
    few: str = ""
    #: How many rows there are, whole or not, where that is said next to the number of whole ones; else left out of the file.
    rows_declared: int | msgspec.UnsetType = msgspec.UNSET
    #: The model of which rows are whole, and what its noise adds to the covariance of the scores, where the rows are whole by one; else left out of the file.
    whole: WholeRowsModel | msgspec.UnsetType = msgspec.UNSET
    added: Array | msgspec.UnsetType = msgspec.UNSET


def parts_of(stored: StoredMoments) -> Parts:
    """Return (layout, coordinates, Gram, variances of its noise) of plain data; refuse what does not fit together."""
    if stored.format != FORMAT or stored.geometry not in list(Geometry):
        msg = f"moments of another format: this program reads {FORMAT!r}"
        raise DataError(msg)
    geometry = Geometry(stored.geometry)
    shape = stored.features, stored.response, stored.grid, geometry, stored.norm, stored.intercept
    weighting = None if stored.weights is None else Weighting(stored.weights, stored.rows)
    layout = MomentsLayout(*shape, formula=stored.formula, sources=stored.sources, weighting=weighting, sites=_sites(stored))
    layout = replace(layout, left_out=stored.left_out)
    square = (layout.size + 1, layout.size + 1)
    frame = None if stored.frame is None else Coordinates.of(stored.frame)
    fits = frame is None or {frame.widths.size, frame.centres.size, frame.start.size} == {layout.size}
    if not fits or any(array.shape != square or array.dtype != "<f8" for array in (stored.gram, stored.variance)):
        raise DataError("moments whose matrices do not fit their columns")
    return layout, frame, stored.gram.numpy(), stored.variance.numpy()


def with_stored_sites(stored: StoredMoments, sites: SiteConstants | None) -> StoredMoments:
    """Return plain data with the sites that have constants of their own."""
    return stored if sites is None else msgspec.structs.replace(stored, site_rows=sites.rows, random_sites=sites.random)


def _sites(stored: StoredMoments) -> SiteConstants | None:
    """Return the sites that have constants of their own."""
    if not stored.site_rows:
        return None
    names = next((c.categories for c in (*stored.sources, *stored.features) if c.name == SITE), None) or ()
    if len(names) != len(stored.site_rows) or min(stored.site_rows) < 0:
        raise DataError("moments whose sites do not fit their columns")
    return SiteConstants(names, stored.site_rows, stored.random_sites)


def meat_of(stored: StoredMoments, size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the second moments of scores of plain data, with the variances of their noise; refuse what does not fit the columns."""
    if stored.covariance not in set(Covariance):
        raise DataError("moments with an unknown kind of covariance: install the version of unpooled that wrote them")
    if stored.meat is None or stored.meat_variance is None:
        return None
    found = stored.meat.numpy(), stored.meat_variance.numpy()
    if any(array.shape != (size, size) or array.dtype != np.float64 for array in found):
        raise DataError("moments whose second moments of scores do not fit their columns")
    return found


def write_moments(path: str | Path, stored: StoredMoments) -> None:
    """Write a file of moments."""
    write_saved(path, KIND, msgspec.msgpack.encode(stored))


def read_moments(path: str | Path, make: Callable[[StoredMoments], Made]) -> Made:
    """Return the object that ``make`` makes of a file of moments; whatever is wrong with the file is an error that names it."""
    name, file = Path(path).name, read_saved(path)
    if file.kind != KIND:
        msg = f"{name}: this is not a file of moments: read it with unpooled.load"
        raise DataError(msg)
    try:
        return decoded_moments(file.body, make)
    except DataError as error:
        msg = f"{name}: {error}"
        raise DataError(msg) from None


def decoded_moments(body: bytes, make: Callable[[StoredMoments], Made]) -> Made:
    """Return the object that ``make`` makes of the content of a file of moments."""
    try:
        return make(msgspec.msgpack.decode(body, type=StoredMoments, strict=True))
    except DataError:
        raise
    except UNREADABLE:
        raise DataError("this is not a file of moments: give one that `save` wrote") from None


# --- Moments ---------------------------------------------------------------------------------------------------------------
# Released second moments: one release, many models, at no further cost.

#: What is said to who asks for errors of coefficients whose columns were narrowed.
NARROWED = (
    "projection narrows the ranges of the columns and of the response to multiples of their deviations, and values beyond count as the ends. The "
    "coefficients are of such data: how far they are from those of the data themselves no release says, so there are no standard errors, intervals "
    "or tests. Leave projection out for a table"
)


@dataclass(frozen=True, eq=False, repr=False)
class Moments(Result):
    """Released second moments of rows (x, 1, y) in coordinates of their own (:class:`Coordinates`), over ``rows`` rows.

    ``gram`` and ``variance`` are those of the whole row; entries that were not released are nan. Where the study had rounds, y is what
    their coefficients left of the response.
    """

    layout: MomentsLayout
    rows: int
    gram: Matrix
    variance: Matrix
    plan: str = ""
    statement: str = ""
    #: None: the coordinates are the coded ones of the declared ranges.
    standard: Coordinates | None = field(default=None)
    #: Whether the statement of the plan that released them holds.
    holds: bool = False
    #: What the standard errors assume, and (second moments of scores, variances of their noise) where they rest on some.
    covariance: str = Covariance.MODEL
    meat: tuple[Matrix, Matrix] | None = None
    #: Columns that were taken out of these rows, and of which they tell nothing.
    nuisance: tuple[str, ...] = ()
    #: Whether ranges were narrowed to where most values lie: then clipped values move the coefficients, and none has an interval.
    narrowed: bool = False
    #: The releases behind them, with what each cost: those of the inputs of the fit, and the fit itself. Empty where no plan was at hand.
    known_origins: tuple[ReleasedInput, ...] = ()
    #: Why no line follows from so few rows; empty where lines may.
    few: str = ""
    #: How many rows there are, whole or not, where columns of several parties may have gaps; else 0.
    rows_declared: int = 0
    #: The model of which rows are whole, and what its noise adds to the covariance of the scores; None where rows are whole by no model.
    whole: WholeRowsModel | None = None
    added: Matrix | None = None

    @property
    def origins(self) -> tuple[ReleasedInput, ...]:
        """Return the releases that the moments, and everything that is computed from them, come from."""
        if self.known_origins or not self.plan:
            return self.known_origins
        return (ReleasedInput(COEFFICIENTS, self.plan, self.holds),)

    def of_run(self, plan: Plan) -> Self:
        """Return the moments with the origins that the run of this plan gives them."""
        return replace(self, known_origins=plan.origins(COEFFICIENTS))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Moments):
            return False
        # Which draw they come from is no part of what they are.
        one, two = (msgspec.structs.replace(each.stored(), origins=()) for each in (self, other))
        return one == two or msgspec.msgpack.encode(one) == msgspec.msgpack.encode(two)  # where nan is nan

    __str__ = Result.__repr__

    def _said(self) -> str:
        layout = self.layout
        return f"{len(layout.features)} columns and {layout.response.name!r} of {self.rows} rows, plan {self.plan[:16]}"

    def _foot(self) -> list[str]:
        return [repr(self), self.statement.partition("\n")[0]]

    def _arrays(self) -> dict[str, Any]:
        return {"gram": self.gram, "variance": self.variance}

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def decode(
        cls, layout: MomentsLayout, total: Total, rows: int, plan: str = "", statement: str = "", *, holds: bool = False
    ) -> Self:
        """Return the noisy moments of the coded row (x, 1, y), in coded units."""
        width, (first, second) = layout.size + 1, layout.pairs
        gram, variance = (np.full((width, width), np.nan) for _ in range(2))
        gram[first, second] = gram[second, first] = total.values / layout.grid**2
        variance[first, second] = variance[second, first] = (total.deviations / layout.grid**2) ** 2
        if layout.intercept and layout.weighting is None:  # the number of rows is public, the sum of weights is not
            one = layout.size - 1
            gram[one, one], variance[one, one] = rows, 0.0
        return cls(layout, rows, gram, variance, plan, statement, holds=holds)

    @classmethod
    def decode_each(
        cls, layout: MomentsLayout, total: Total, rows: int, plan: str = "", statement: str = "", *, holds: bool = False
    ) -> tuple[Self, ...]:
        """Return the moments of every response of a layout that has several, from one release."""
        each = (
            (alone, replace(total, values=total.values[at], deviations=total.deviations[at]))
            for alone, at in layout.singles()
        )
        return tuple(cls.decode(alone, part, rows, plan, statement, holds=holds) for alone, part in each)

    @cached_property
    def frame(self) -> Coordinates:
        """Return the units of the coordinates, and the coefficients about which they were taken."""
        if self.standard is not None:
            return self.standard
        layout, last = self.layout, (-1, -1)
        response = layout.response.half_width, layout.response.centre
        squares = float(self.gram[last]), float(self.variance[last])
        return Coordinates(layout.half_widths, layout.centres, *response, np.zeros(layout.size), squares)

    @property
    def counted(self) -> tuple[int, float, int] | None:
        """Return how many rows are whole, the noise of that number, and how many rows there are, where that is said; else None."""
        last = self.layout.size - 1
        noise = math.sqrt(float(self.variance[last, last])) * float(self.frame.widths[last]) ** 2
        return (self.rows, noise, self.rows_declared) if self.rows_declared else None

    @property
    def xx(self) -> tuple[Matrix, Matrix]:
        """Return the Gram of (x, 1) and the variances of its noise."""
        d = self.layout.size
        return self.gram[:d, :d], self.variance[:d, :d]

    @property
    def xy(self) -> tuple[Row, Row]:
        """Return the cross moments of (x, 1) with y, and the variances of their noise."""
        d = self.layout.size
        return self.gram[:d, d], self.variance[:d, d]

    @property
    def weight(self) -> float:
        """Return the number of whole rows that the moments count: rows of rounds are shortened, and their constants with them.

        Over the rows it is the mean of the squared weights, by which sampling variance is smaller than sigma^2 M^-1 (Theorem B.9).
        """
        if not (self.frame.refined and self.layout.intercept):
            return float(self.rows)
        last = self.layout.size - 1
        whole = self.gram[last, last] * self.frame.widths[last] ** 2 / self.frame.mean_weight
        return float(np.clip(whole, self.rows / 4, self.rows))

    @property
    def _per_row(self) -> float:
        """Return the sampling variance of a row's score per unit of its second moments and of the residual variance."""
        return self.weight / self.rows * self.frame.sampling

    @cached_property
    def known(self) -> KnownDirections:
        """Return the directions that the Gram determines, without those along which no row varies (THEORY.md, section 10)."""
        (gram, variance), layout = self.xx, self.layout
        still = np.asarray(
            np.linalg.solve(self.frame.back(intercept=layout.intercept), layout.still),
            dtype=np.float64,
        )
        return KnownDirections.of(gram, variance, still, level=noise_norm(variance) if layout.sites else None)

    @cached_property
    def _cross(self) -> Row:
        """Return the cross moments of (x, 1) likewise."""
        return cross_without_still(*self.xy, self.known.still)

    @property
    def _invertible(self) -> Matrix:
        """Return the Gram as if rows varied along still directions as they do on average: what is between them and the others stays nothing."""
        gram, still = self.known.matrix, self.known.still
        return gram + still @ still.T * float(gram.diagonal().mean()) if still.size else gram

    @property
    def noisy(self) -> NoisyMoments:
        """Return the moments that a fit needs."""
        return NoisyMoments(self.known.matrix, self._cross, self.xx[1], self.xy[1], self.rows)

    @property
    def of_unknown_gram(self) -> NoisyMoments:
        """Return the same for a posterior that knows of the Gram what the release and the declared bounds say (THEORY.md, section 5)."""
        square = self.layout.mean_square if self.frame.mean_square is None else self.frame.mean_square
        prior = GramPrior(self.rows * square, self.layout.intercept, self.known.still)
        return replace(self.noisy, gram_prior=prior)

    # --- models ----------------------------------------------------------------------------------------------------------

    @once
    def posterior(
        self, prior_precision: float | str = ESTIMATE, noise_precision: float | str = ESTIMATE, *, naive: bool = False
    ) -> LinearFit:
        """Return the posterior of y ~ N(x.beta + b, 1/noise_precision), beta ~ N(0, I/prior_precision), in the data's own units.

        "estimate": as the moments themselves tell (THEORY.md, section 9); where they hold no sum of y^2, the residual variance is the largest
        that the declared range allows. The intercept, at the centre of the declared ranges, has the half width of y as its prior deviation.
        """
        frame, one = self.frame, self.layout.intercept
        noise = None if is_estimated(noise_precision) else 1 / (positive(noise_precision) * self._unit)
        prior = None if is_estimated(prior_precision) else frame.prior_of(positive(prior_precision), intercept=one)
        if naive:  # the paper's own takes both for known: 1 where nothing else is said
            prior = frame.prior_of(1.0, intercept=one) if prior is None else prior
            noise = 1 / self._unit if noise is None else noise
            found = noisy_gram.naive_posterior(self.xx[0], self.xy[0], 1 / prior, 1 / noise)
            return self._in_own_units(*found, noise)
        if frame.refined:
            return self._about_start(prior, noise)
        squares = frame.squares[0]
        if noise is None and math.isnan(squares):
            noise = 1.0  # y lies within one half width of its centre: no residual variance is larger
        priors = [prior] if prior is not None else [frame.prior_of_all(t * t, intercept=one) for t in PRIORS.tolist()]
        whole = self.of_unknown_gram.averaged(squares, priors, noise)
        return self._in_own_units(whole.mean, whole.covariance, whole.noise_variance)

    def ridge(self, alpha: float = 1.0, noise_precision: float | str = ESTIMATE) -> LinearFit:
        """Ridge regression with scikit-learn's ``alpha`` (on centred data of the declared ranges, intercept not penalised).

        Its covariance holds sampling (with noise of this precision) and privacy noise, not the bias of the penalty.
        """
        if not 0 <= alpha < math.inf:
            raise UsageError("alpha must be a finite number >= 0")
        if alpha == 0:
            return self.ols(noise_precision)
        frame = self.frame
        penalty = alpha / frame.widths**2 * (self.weight / self.rows) / self.layout.largest
        if self.layout.intercept:
            penalty[-1] = 0.0
        noise = self._noise_variance(noise_precision)
        (_, gram_variance), (_, cross_variance) = self.xx, self.xy
        precision = self.rows / (noise * self.weight)
        moments = self.known.matrix, self._cross, gram_variance, cross_variance
        mean, covariance = noisy_gram.ridge(*moments, penalty, precision, frame.start)
        return self._in_own_units(mean, covariance, noise, prior=False).carrying(self.origins)

    def least_squares(self, noise_precision: float | str = ESTIMATE) -> tuple[Row, Matrix, float]:
        """Return (coefficients in coordinates, what their sampling covariance is times, residual variance) over the known directions."""
        noise = self._noise_variance(noise_precision)
        sampling = sampling_covariance(self.known, noise * self._per_row, self.meat)
        return self.frame.start + self.known.inverse @ self._cross, sampling, noise

    def met(self, coefficients: Row) -> Matrix:
        """Return the covariance that privacy noise gives to least squares coefficients about these."""
        left, inverse = coefficients - self.frame.start, self.known.inverse
        found = inverse @ noisy_gram.noise_covariance(np.outer(left, left), self.xx[1], self.xy[1]) @ inverse
        return np.asarray(found + found.T) / 2

    def ols(self, noise_precision: float | str = ESTIMATE) -> LinearFit:
        """Return ordinary least squares over the directions that the release tells of, without any penalty."""
        mean, sampling, noise = self.least_squares(noise_precision)
        return self._in_own_units(mean, sampling + self.met(mean), noise, prior=False).carrying(self.origins)

    def estimates(self) -> Estimates:
        """Return the same with what its tables need."""
        mean, sampling, _ = self.least_squares()
        layout = self.layout
        back = self.frame.back(intercept=layout.intercept)
        own = back @ mean
        if layout.intercept:
            own[-1] += self.frame.response_centre
        names = (*layout.names, *layout.constants)
        alone = back @ sampling @ back.T
        added = self.met(mean) + self._tail
        if self.added is not None:
            added = added + self.known.inverse @ self.added @ self.known.inverse
        whole = alone + back @ added @ back.T
        slopes = [name not in layout.constants for name in names]
        found = Estimates.of(names, own, whole, alone, back, self.known.unknown, layout.still, slopes)
        return found.untold() if self.few else found

    def _noise_variance(self, noise_precision: float | str) -> float:
        """Return the noise variance in coordinates: as given in the data's own units, or estimated."""
        if not is_estimated(noise_precision):
            return 1 / (positive(noise_precision) * self._unit)
        # The residual sum of squares loses one degree of freedom for each coefficient; rounds count them already.
        free = self.rows if self.frame.refined else max(self.rows - self.known.values.size, 1)
        if not (self.xx[1].any() or self.xy[1].any() or self.frame.squares[1]):  # without noise no prior has to help
            return max(self.frame.squares[0] - float(self._cross @ self.known.inverse @ self._cross), 0.0) / free
        return float(self.posterior().noise_variance) / self._unit * self.rows / free

    @property
    def _unit(self) -> float:
        """Return the residual variance of a row of weight 1 in the data's own units, per unit of that of coordinates."""
        return self.frame.response_width**2 * self.layout.largest

    def _about_start(self, prior: Row | None, noise: float | None) -> LinearFit:
        """Return the least squares solution of the rows from residual moments, then the coefficients behind it (THEORY.md, section 9)."""
        frame = self.frame
        if noise is None:
            noise = self.residual_variance()
        if prior is not None:
            mean = frame.start + self.known.inverse @ self._cross
            sampling = sampling_covariance(self.known, noise * self._per_row, self.meat)
            return self._in_own_units(*behind_prior(self.known, mean, sampling + self.met(mean), prior), noise)
        return self._in_own_units(*self.behind_rows(noise), noise)

    def behind_rows(self, noise: float) -> tuple[Row, Matrix]:
        """Return the mean and covariance of the coefficients behind the rows, in coordinates, without a prior about 0."""
        found, spread = least_squares_state(self.noisy, self.frame.least)
        gram = noisy_gram.repaired(self._invertible, self.xx[1])
        return self.frame.start + found, spread + noise * self._per_row * np.linalg.inv(gram)

    def residual_variance(self) -> float:
        """Return the residual variance of the rounds' coefficients, which are nearly the rows' own; never below the noise of that number."""
        squares, variance = self.frame.squares
        free = max(self.rows - self.layout.size + int(self.layout.still.shape[1]), 1)
        return max(squares, 0.0 if self.nuisance else math.sqrt(variance), 1e-12) / free

    @property
    def _tail(self) -> Matrix:
        """Return the covariance of what is added to the constant for the residuals beyond the clip."""
        found = np.zeros((self.layout.size, self.layout.size))
        found[-1, -1] = self.frame.tail_deviation**2
        return found

    def _in_own_units(self, mean: Row, covariance: Matrix, noise: float, *, prior: bool = True) -> LinearFit:
        """beta_j = Y b_j / h_j; the intercept takes up the centres."""
        layout, frame = self.layout, self.frame
        back = frame.back(intercept=layout.intercept)
        spread = back @ (covariance + self._tail) @ back.T
        own, intercept = frame.of_own_units(mean, intercept=layout.intercept)
        if self.narrowed:
            alone = LinearFit.without_errors(own, intercept, has_intercept=layout.intercept)
            return replace(alone, noise_variance=noise * self._unit)
        known = self.known.determined(back)[: own.size]
        return LinearFit(own, intercept, spread, known, prior, noise * self._unit)

    # --- other models and tables, all post-processing ----------------------------------------------------------------------

    def tables(
        self, reference: Mapping[str, str] | None = None, coding: str = TREATMENT, *, whole: bool = False
    ) -> LinearTables:
        """Return everything that a table, a contrast or a test of columns needs; ``whole``: also of terms that the noise hides, as far as it is told."""
        if self.narrowed:
            raise UsageError(NARROWED)
        return tables_with_sites(self, reference or {}, coding, whole=whole)

    def summary(self, confidence: float = 0.95, adjust: str | None = None, **asked: Any) -> LinearSummary:  # noqa: ANN401 - reference, coding
        """Return estimates with standard errors, tests and intervals; ``reference`` and ``coding`` say how levels are compared."""
        return self.tables().summary(confidence, adjust, **asked)

    def contrast(self, C: Any, value: Any = 0.0, confidence: float = 0.95, **asked: Any) -> Contrast:  # noqa: ANN401 - weights in several forms
        """Return combinations of coefficients: "ward: b - a", mappings from names to weights, rows of weights."""
        return self.tables().contrast(C, value, confidence, **asked)

    def anova(self, smaller: Sequence[str] | None = None) -> Anova | JointTest:
        """Return a test for every column; ``smaller``: whether what it does not name explains anything."""
        return self.tables().anova(smaller)

    def correlation(self) -> Matrix:
        """Return the correlation matrix of the coded features, in the order of ``layout.names``."""
        return derived.correlation(*self.xx, self.rows, intercept=self.layout.intercept)

    def pca(self) -> derived.PrincipalComponents:
        """Return principal components of the standardised features."""
        return derived.principal_components(self.correlation())

    def vif(self) -> Row:
        """Return variance inflation of every coefficient."""
        return derived.inflation(self.correlation())

    def lasso(self, alpha: float) -> LinearFit:
        """Return scikit-learn's lasso (``alpha`` in the data's own units, the intercept free), without standard errors."""
        if not 0 <= alpha < math.inf:
            raise UsageError("alpha must be a finite number >= 0")
        frame = self.frame
        m = noisy_gram.repaired(self.known.matrix, self.xx[1])
        found = derived.lasso_of(self, m, self._cross + m @ frame.start, alpha, self.weight * frame.mean_weight)
        has = self.layout.intercept
        return LinearFit.without_errors(*frame.of_own_units(found, intercept=has), has_intercept=has).carrying(self.origins)

    def submodel(self, columns: Sequence[str]) -> Moments:
        """Return the moments of a model of some of the declared columns alone."""
        return derived.submodel(self, columns)

    # --- files -----------------------------------------------------------------------------------------------------------

    def stored(self) -> StoredMoments:
        """Return everything as plain data."""
        d = self.layout
        head = (FORMAT, d.features, d.response, d.grid, str(d.geometry), d.norm, d.intercept, self.rows)
        released = (Array.of(self.gram), Array.of(self.variance), self.plan, self.statement)
        frame = None if self.standard is None else self.standard.stored()
        weights = None if d.weighting is None else d.weighting.column
        meat = (None, None) if self.meat is None else tuple(Array.of(numbers) for numbers in self.meat)
        own = (frame, self.holds, d.formula, d.sources, weights, str(self.covariance), *meat, self.nuisance)
        stored = msgspec.structs.replace(
            StoredMoments(*head, *released, *own),
            origins=self.known_origins,
            narrowed=self.narrowed,
            left_out=d.left_out,
            few=self.few,
            rows_declared=self.rows_declared or msgspec.UNSET,
            whole=msgspec.UNSET if self.whole is None else self.whole,
            added=msgspec.UNSET if self.added is None else Array.of(self.added),
        )
        return with_stored_sites(stored, d.sites)

    @classmethod
    def of(cls, stored: StoredMoments) -> Self:
        """Return moments made from plain data; refuse data that do not fit together."""
        layout, frame, gram, variance = parts_of(stored)
        holds = stored.statement.startswith("Differentially private") if stored.holds is None else stored.holds
        own = (stored.plan, stored.statement, frame, holds, stored.covariance)
        meat = meat_of(stored, layout.size)
        return cls(
            layout,
            stored.rows,
            gram,
            variance,
            *own,
            meat,
            stored.nuisance,
            stored.narrowed,
            stored.origins,
            stored.few,
            stored.rows_declared or 0,
            stored.whole or None,
            stored.added.numpy() if stored.added else None,
        )

    def save(self, path: str | Path) -> None:
        """Write everything, exactly, to a file that can be read again."""
        write_moments(path, self.stored())

    @classmethod
    def _of_saved(cls, body: bytes) -> Self:
        return decoded_moments(body, cls.of)

    @staticmethod
    def stored_type() -> type[StoredMoments]:
        """Return the plain data that :meth:`stored` makes."""
        return StoredMoments

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote."""
        return read_moments(path, cls.of)


__all__ = ["ESTIMATE", "Geometry", "LinearFit", "Moments", "MomentsLayout", "StoredMoments"]
