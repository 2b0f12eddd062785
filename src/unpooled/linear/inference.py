"""Inference from released second moments, free of charge: tables of estimates, tests, intervals, smaller models, correlations and components."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast

import msgspec
import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.inference.coding import SITE, commonest_levels
from unpooled.inference.coordinates import crowded_columns
from unpooled.inference.estimates import wald
from unpooled.inference.printed_terms import TREATMENT
from unpooled.inference.results import Result
from unpooled.inference.summary import SummaryTable, SummaryTerm
from unpooled.inference.tables import Anova, JointTest, Tables, most_hidden
from unpooled.kernels import noisy as noisy_gram
from unpooled.kernels.posterior import drawn_to_model
from unpooled.linear.residuals import ASSUMED, Covariance
from unpooled.schedules import table
from unpooled.totals.weights import ASSUMPTION
from unpooled.totals.whole_rows import sentences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.inference.coordinates import Coordinates
    from unpooled.inference.estimates import Estimates
    from unpooled.kernels.noisy import KnownDirections
    from unpooled.linear.layout import MomentsLayout
    from unpooled.totals.whole_rows import WholeRowsModel

    Matrix = NDArray[np.float64]
    Vector = NDArray[np.float64]
    Row = NDArray[np.float64]


# --- Sampling --------------------------------------------------------------------------------------------------------------
# Sampling covariance of least squares coefficients: that of the model, or a sandwich with released second moments of scores.


def sampling_covariance(known: KnownDirections, variance: float, meat: tuple[Matrix, Matrix] | None) -> Matrix:
    """Return the sampling covariance of coefficients over the known directions, in the coordinates of the fit.

    ``variance`` is the one that the model gives to each row's score per unit of its second moments, ``meat`` the released second moments of
    the scores with the variances of their noise, or None where the model is trusted.
    """
    inverse = known.inverse
    if meat is None:
        return variance * inverse
    model = variance * (known.vectors * known.values) @ known.vectors.T
    return np.asarray(inverse @ drawn_to_model(*meat, model) @ inverse)


def behind_prior(known: KnownDirections, mean: Vector, covariance: Matrix, prior: Vector) -> tuple[Vector, Matrix]:
    """Return the posterior mean and covariance of coefficients with these prior variances about 0, from unshrunk estimates.

    The estimates and their covariance count along the known directions alone: of the others the prior is all that is said.
    """
    own = known.vectors
    told = own @ np.linalg.solve(own.T @ covariance @ own, own.T)
    behind = np.asarray(np.linalg.inv(np.diag(1 / prior) + (told + told.T) / 2), dtype=np.float64)
    return np.asarray(behind @ told @ mean), behind


# --- Derived ---------------------------------------------------------------------------------------------------------------
# A noisy Gram alone gives correlations, principal components, variance inflation, l1-penalised coefficients and smaller models.


class _Released(Protocol):
    """Released moments, by what a smaller model takes of them (:class:`unpooled.linear.moments.Moments`)."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def layout(self) -> MomentsLayout: ...
    @property
    def frame(self) -> Coordinates: ...
    @property
    def gram(self) -> Matrix: ...
    @property
    def variance(self) -> Matrix: ...
    @property
    def covariance(self) -> str: ...
    def least_squares(self) -> tuple[Row, Matrix, float]: ...


M = TypeVar("M", bound=_Released)


@dataclass(frozen=True, repr=False)
class PrincipalComponents(Result):
    """Directions of standardised columns (a row each), and the share of variance that each explains."""

    components: Matrix
    explained_variance_ratio: Row

    __str__ = Result.__repr__

    def _said(self) -> str:
        shares = [f"{share:.0%}" for share in self.explained_variance_ratio.tolist()]
        return f"{len(shares)} directions of {self.components.shape[1]} columns: {listed(shares)} of the variance"

    def _lines(self) -> list[tuple[str, ...]]:
        head = ("variance", *(f"column {j}" for j in range(self.components.shape[1])))
        return [head, *((f"{share:.1%}", *(f"{weight:.3f}" for weight in direction)) for share, *direction in self._rows())]

    def _rows(self) -> Matrix:
        return np.column_stack([self.explained_variance_ratio, self.components])

    def _numbers(self) -> list[dict[str, Any]]:
        head, *_ = self._lines()
        return [dict(zip(head, row, strict=True)) for row in self._rows().tolist()]

    def _arrays(self) -> dict[str, Any]:
        return {"components": self.components, "explained_variance_ratio": self.explained_variance_ratio}


def centred(gram: Matrix, rows: int, *, intercept: bool) -> Matrix:
    """Covariances of the columns from their second moments, the constant (last, of any length) taken out."""
    if not intercept:
        return np.asarray(gram / rows)
    slopes = gram[:-1, :-1] - np.outer(gram[:-1, -1], gram[:-1, -1]) / gram[-1, -1]
    return np.asarray(slopes / rows)


def correlation(gram: Matrix, variance: Matrix, rows: int, *, intercept: bool) -> Matrix:
    """Return correlations of the columns; the nearest positive semidefinite ones where noise made them impossible."""
    covariance = noisy_gram.psd_part(centred(gram, rows, intercept=intercept))
    level = noisy_gram.noise_level(variance) / rows
    deviation = np.sqrt(np.maximum(covariance.diagonal(), level if level > 0 else 1e-300))
    found = np.clip(covariance / np.outer(deviation, deviation), -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    return np.asarray(found)


def principal_components(correlations: Matrix) -> PrincipalComponents:
    """Return the principal components of standardised columns, the largest first."""
    values, vectors = np.linalg.eigh(correlations)
    values = np.maximum(values[::-1], 0.0)
    return PrincipalComponents(vectors.T[::-1].copy(), values / values.sum())


def inflation(correlations: Matrix) -> Row:
    """VIF: how many times larger the variance of a coefficient is than if its column were unrelated to the others."""
    size = correlations.shape[0]
    least = 1e-8 + max(0.0, -float(np.linalg.eigvalsh(correlations)[0]))
    return np.asarray(np.maximum(np.linalg.inv(correlations + least * np.eye(size)).diagonal(), 1.0))


def lasso(gram: Matrix, cross: Row, penalties: Row, rows: float) -> Row:
    """Argmin |v - Z t|^2 / (2 n) + sum_j penalty_j |t_j| from a positive semidefinite Gram and Z'v, by coordinate descent."""
    t, left = np.zeros(cross.size), cross / rows
    scaled, own = gram / rows, np.maximum(gram.diagonal() / rows, 1e-300)
    size = float(np.abs(cross).max(initial=0.0)) / rows
    for _ in range(10_000):
        moved = 0.0
        for j in range(t.size):
            pull = left[j] + own[j] * t[j]
            new = np.sign(pull) * max(abs(pull) - penalties[j], 0.0) / own[j]
            if new != t[j]:
                left = left - scaled[:, j] * (new - t[j])
                moved = max(moved, abs(new - t[j]) * own[j])
                t[j] = new
        if moved <= 1e-10 * size:
            return t
    raise UsageError("the moments are too noisy for a lasso of so small a penalty: raise alpha")


def lasso_of(moments: _Released, gram: Matrix, cross: Row, alpha: float, rows: float) -> Row:
    """Return l1-penalised coefficients in the moments' coordinates; ``alpha`` is in the data's own units, and the constant is free."""
    penalties = alpha / (moments.frame.widths * moments.frame.response_width)
    if moments.layout.intercept:
        penalties[-1] = 0.0
    return lasso(gram, cross, penalties, rows)


def submodel(moments: M, columns: Sequence[str]) -> M:
    """Return the moments of a model of some of the declared columns alone."""
    layout, d = moments.layout, moments.layout.size
    unknown = [name for name in columns if name not in {c.name for c in layout.features}]
    if unknown or not columns:
        msg = f"a submodel names declared columns ({', '.join(c.name for c in layout.features)}), at least one"
        raise UsageError(msg)
    features = tuple(c for c in layout.features if c.name in set(columns))
    kept = [k for k, at in enumerate(layout.coding.attribute) if layout.features[at].name in set(columns)]
    kept += [d - 1] * layout.intercept
    out = [k for k in range(d) if k not in kept]
    rest = without(moments, out)
    at, frame = [*kept, d], rest.frame
    return replace(
        rest,
        layout=replace(layout, features=features),
        gram=np.ascontiguousarray(rest.gram[np.ix_(at, at)]),
        variance=np.ascontiguousarray(rest.variance[np.ix_(at, at)]),
        standard=replace(frame, widths=frame.widths[kept], centres=frame.centres[kept], start=frame.start[kept]),
    )


def without(moments: M, out: Sequence[int]) -> M:
    """Return the moments of the model without these coefficients: they are 0, and no row is said to vary along their columns."""
    d, frame = moments.layout.size, moments.frame
    b, gram, variance = frame.start[out], moments.gram.copy(), moments.variance.copy()
    # The response is what all of ``start`` left: what the columns left out had of it goes back.
    for total, held, power in ((gram, moments.gram, 1), (variance, moments.variance, 2)):
        total[:d, d] += held[:d, out] @ b**power
        total[d, :d] = total[:d, d]
    # What is left of them is a deviation of the noise: no more than it hides, and a matrix that can be inverted. Their coefficients meet no noise, for
    # they are 0, so the noise may stay.
    gram[out, :], gram[:, out] = 0.0, 0.0
    gram[out, out] = np.sqrt(moments.variance[out, out])
    cross, own = moments.gram[out, d], moments.gram[np.ix_(out, out)]
    squares = frame.squares[0] + 2 * b @ cross + b @ own @ b
    # A symmetric noise N moves b'Nb by the sum of V_jj b_j^4 + 4 sum over pairs of V_jk b_j^2 b_k^2, in variance.
    noise = moments.variance[np.ix_(out, out)] * np.outer(b**2, b**2)
    spread = frame.squares[1] + 4 * moments.variance[out, d] @ b**2 + 2 * noise.sum() - np.trace(noise)
    start = frame.start.copy()
    start[out] = 0.0
    frame = replace(frame, start=start, squares=(float(squares), float(spread)))
    # Scores of the whole model's residuals say little of a smaller one, whose residuals hold what was left out.
    smaller = replace(
        moments,
        gram=gram,
        variance=variance,
        standard=frame,
        covariance=Covariance.JOINT if moments.covariance == Covariance.JOINT else Covariance.MODEL,
        meat=None,
    )
    clipping = frame.clipping
    if clipping is None or clipping.variance is None:
        return smaller
    # The clip changed the variance of what the whole model leaves, not that of what the columns left out add to it.
    part = min(moments.least_squares()[2] / max(smaller.least_squares()[2], 1e-300), 1.0)
    clipping = msgspec.structs.replace(clipping, variance=1 + part * (clipping.variance - 1))
    return replace(smaller, standard=replace(frame, clipping=clipping))


# --- Inference -------------------------------------------------------------------------------------------------------------
# Inference from released second moments, free of charge: tables of estimates, tests, intervals, smaller models.
#
# Standard errors are those of generalised least squares: sampling and privacy noise together. Tests of single coefficients are normal,
# joint ones chi-squared; F and R^2 have the law of the whole release, drawn again and again in the space of the coefficients (a parametric
# bootstrap), because their ratios are far from normal where the noise is large. THEORY.md of ``models/bayes``, section 10.

DRAWS = table("printed").whole("draws")
#: The part of what shortened rows lack in variance that may be wrong, where R^2 needs the variance of whole ones.
UNSURE = table("printed").lengthened_unsure
#: The family of a linear model, beside those of generalised ones.
LINEAR = "linear"


class FittedMoments(Protocol):
    """The attributes of released moments that inference needs (:class:`unpooled.linear.moments.Moments`)."""

    @property
    def layout(self) -> MomentsLayout: ...  # noqa: D102
    @property
    def rows(self) -> int: ...  # noqa: D102
    @property
    def statement(self) -> str: ...  # noqa: D102
    @property
    def covariance(self) -> str: ...  # noqa: D102
    @property
    def nuisance(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def few(self) -> str: ...  # noqa: D102
    @property
    def counted(self) -> tuple[int, float, int] | None: ...  # noqa: D102
    @property
    def whole(self) -> WholeRowsModel | None: ...  # noqa: D102
    @property
    def frame(self) -> Coordinates: ...  # noqa: D102
    @property
    def known(self) -> KnownDirections: ...  # noqa: D102
    @property
    def xx(self) -> tuple[Matrix, Matrix]: ...  # noqa: D102
    @property
    def xy(self) -> tuple[Row, Row]: ...  # noqa: D102
    def least_squares(self) -> tuple[Row, Matrix, float]: ...  # noqa: D102
    def estimates(self) -> Estimates: ...  # noqa: D102


@dataclass(frozen=True, repr=False)
class LinearSummary(SummaryTable):
    """Estimates, standard errors, tests and intervals of a linear model, as statisticians are used to read them."""

    terms: tuple[SummaryTerm, ...]
    rows: int
    residual_variance: float
    r_squared: float
    r_squared_interval: tuple[float, float]
    f_test: JointTest | None
    confidence: float
    #: Epsilon and what else the release promises, in words.
    statement: str
    adjust: str | None = None
    not_determined: tuple[str, ...] = ()
    #: What the lines are compared with, in words.
    compared: tuple[str, ...] = ()
    ratio: str = ""
    _saved_types: ClassVar = (JointTest, SummaryTerm)

    def _foot(self) -> list[str]:
        low, high = self.r_squared_interval
        foot = [f"n = {self.rows}"]
        if not math.isnan(self.residual_variance):  # without lines, or without a sum of y^2, no release says what is left
            foot[0] += f", residual variance {self.residual_variance:.5g}"
        if not math.isnan(
            self.r_squared
        ):  # a focus releases nothing that all columns explain, and a posterior has no such law
            foot[0] += f", R^2 {self.r_squared:.3f} [{low:.3f}, {high:.3f}]"
        if self.f_test is not None:
            foot.append(
                f"{self.f_test.name}: {self.f_test.statistic:.4g}, p {self.f_test.p_words} ({self.f_test.draws} draws)"
            )
        return [*foot, *super()._foot()]


@dataclass(frozen=True)
class LinearTables(Tables):
    """The tables of a linear model, whose F test and R^2 have the law of the release."""

    moments: FittedMoments | None = None

    @property
    def _moments(self) -> FittedMoments:
        assert self.moments is not None
        return self.moments

    def summary(
        self,
        confidence: float = 0.95,
        adjust: str | None = None,
        *,
        reference: Mapping[str, str] | None = None,
        coding: str | None = None,
        against: object = None,
        exponentiate: bool = False,
        seed: int = 0,
    ) -> LinearSummary:
        """Generalised least squares, so that null coefficients are tested fairly; with R^2 and the F test of all slopes."""
        asked: dict[str, Any] = {"reference": reference, "coding": coding, "against": against, "exponentiate": exponentiate}
        table = super().summary(confidence, adjust, **asked)
        printed = self.printed(reference, coding)
        law = Bootstrap(self._moments, np.random.default_rng(seed))
        slopes = printed.weights[printed.slopes]
        slopes = slopes[self.estimates.determined(slopes)]
        test = law.test(slopes) if slopes.size and self.drawn is None else None
        # The law of R^2 is that of the rows alone, which a fit with earlier models is not.
        frame = self._moments.frame
        # Nor is there one without a sum of y^2: what then stands for the residual variance is the largest that its range allows.
        unknown = not table.terms or math.isnan(frame.squares[0])
        hidden = bool(self.nuisance) or unknown or self.drawn is not None or self._moments.whole is not None
        square, interval = (math.nan, (math.nan, math.nan)) if hidden else law.r_squared(confidence)
        own = math.nan if unknown else law.noise * frame.response_width**2 * self._moments.layout.largest
        facts = (table.terms, self.rows, own, square, interval, test, confidence, self.statement, adjust)
        return LinearSummary(*facts, not_determined=table.not_determined, compared=table.compared)

    def anova(self, smaller: Sequence[str] | None = None, *, against: object = None, seed: int = 0) -> Anova | JointTest:
        """Return a chi-squared test for every column; of what ``smaller`` leaves out an F test by bootstrap of the release."""
        self.check_tested()
        if smaller is None:
            return super().anova(against=against)
        return Bootstrap(self._moments, np.random.default_rng(seed)).test(self.left_out(self.printed(), smaller))


def _common(moments: FittedMoments) -> dict[str, str]:
    """Return the columns whose declared reference is rare by the released means of their indicators, with their commonest level.

    Rows of a refinement are shortened, those of rare levels most: its means are those of the release that centred the columns, whose noise is at least
    that of the second moments.
    """
    layout, frame, coded = moments.layout, moments.frame, moments.layout.terms
    if not layout.intercept:
        return {}
    (gram, variance), slopes = moments.xx, slice(None, -1)
    counted = float(gram[-1, -1])
    units = frame.widths[slopes] / float(frame.widths[-1]) / counted
    means = frame.centres[slopes] + (0.0 if frame.refined else units * gram[slopes, -1])
    levels = [k for k, term in enumerate(coded.terms) if term.cells]
    unsure = float((units * np.sqrt(variance[slopes, -1]))[levels].max(initial=0.0))
    shares = {coded.names[k]: float(means[k]) for k in levels}
    if layout.sites is not None:  # the largest is known exactly
        coded = replace(coded, factors=tuple(factor for factor in coded.factors if factor.name != SITE))
    return commonest_levels(coded, shares, unsure)


def _crowded(moments: FittedMoments) -> tuple[str, ...]:
    """Return the sentences about columns of numbers whose values are near an end of a wide range, by what their rows were standardised with."""
    layout, frame, joint = moments.layout, moments.frame, moments.covariance == Covariance.JOINT
    if not joint and (frame.clipping is None or not frame.refined):
        return ()
    first = np.searchsorted(layout.coding.attribute, range(len(layout.features)))
    return crowded_columns(layout.features, frame.centres[first], frame.widths[first], joint=joint)


def tables_of(
    moments: FittedMoments, reference: Mapping[str, str], coding: str = TREATMENT, *, whole: bool = False
) -> LinearTables:
    """Return the tables of released moments; no line is adjusted for any part of a term that the noise hides, but where it is asked for the ``whole``."""
    first, out, released = _tables_of(moments, reference, coding), set[int](), cast("Any", moments)
    found = first
    while not (whole or moments.nuisance) and (more := most_hidden(found.estimates, found.printed(), found.coded, out)):
        out |= more
        found = _tables_of(without(released, sorted(out)), reference, coding)
    if not (out and found.estimates.determined(found.printed().weights).any()):
        return first
    return replace(found, adjusted=first.estimates)


def _tables_of(moments: FittedMoments, reference: Mapping[str, str], coding: str) -> LinearTables:
    found = _without_a_model(moments, reference, coding)
    if moments.whole is None:
        return found
    alone = replace(found, estimates=msgspec.structs.replace(found.estimates, estimate=moments.whole.alone))
    (here, *_), (there, *_) = (
        (*printed.estimates.lines(printed.printed(reference, coding))[0], None) for printed in (found, alone)
    )
    compared = None if here is None or there is None else (here.term, there.estimate, here.estimate)
    return replace(found, assumed=(*moments.whole.sentences(moments.layout.response.name, compared), *found.assumed))


def _without_a_model(moments: FittedMoments, reference: Mapping[str, str], coding: str) -> LinearTables:
    """Return the same without a sentence on which rows are whole."""
    layout, clipping = moments.layout, moments.frame.clipping
    weighted, crowded = () if layout.weighting is None else (ASSUMPTION,), _crowded(moments)
    return LinearTables(
        moments.estimates(),
        layout.terms.with_constants(layout.constants),
        moments.rows,
        LINEAR,
        layout.response.name,
        moments.statement,
        reference=reference,
        coding=coding,
        common=_common(moments),
        assumed=(
            *sentences(layout.left_out, layout.declared, moments.few, moments.counted),
            *weighted,
            ASSUMED[Covariance(moments.covariance)],
            *(() if clipping else crowded),
        ),
        made=layout.made,
        nuisance=moments.nuisance,
        crowded=crowded,
        cut=None if clipping is None else clipping.in_units_of(moments.frame.response_width),
        moments=moments,
    )


class Bootstrap:
    """The law of a release, drawn again: second moments of rows of the fitted model with fresh sampling and privacy noise."""

    def __init__(self, moments: FittedMoments, rng: np.random.Generator) -> None:
        self.moments, self.rng = moments, rng
        self.gram, self.gram_variance = moments.known.matrix, moments.xx[1]
        #: The fitted coefficients in coordinates, and what their covariance is without privacy.
        self.coordinates, self.sampling, self.noise = moments.least_squares()
        self.slopes = moments.layout.size - moments.layout.intercept

    def _covariance(self, coefficients: Row, mapped: Matrix) -> Matrix:
        """Return the covariance that privacy noise gives to combinations of the least squares coefficients; ``mapped``: the combinations times the inverse."""
        left = coefficients - self.moments.frame.start
        noise = noisy_gram.noise_covariance(np.outer(left, left), self.gram_variance, self.moments.xy[1])
        return np.asarray(mapped @ noise @ mapped.T)

    def test(self, weights: Matrix) -> JointTest:
        """These combinations of the data's own coefficients are 0: the Wald statistic over their number, against its law where they are."""
        layout, frame, inverse = self.moments.layout, self.moments.frame, self.moments.known.inverse
        own = weights @ frame.back(intercept=layout.intercept)
        mapped, alone, found = own @ inverse, own @ self.sampling @ own.T, self.coordinates
        observed, rank = wald(own @ found, alone + self._covariance(found, mapped))
        rank = max(rank, 1)
        # The null that is nearest by the rows: restricted least squares.
        null = found - mapped.T @ np.linalg.lstsq(mapped @ own.T, own @ found, rcond=None)[0]
        # Under the null the estimate has the covariance of no slopes, and is divided by that of whatever was then found.
        values, vectors = np.linalg.eigh(self.sampling + self._covariance(null, inverse))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        drawn = null + self.rng.standard_normal((DRAWS, found.size)) @ root.T
        hits = sum(wald(own @ one, alone + self._covariance(one, mapped))[0] >= observed for one in drawn)
        return JointTest(f"F({rank})", observed / rank, rank, (1 + hits) / (DRAWS + 1), DRAWS)

    def r_squared(self, confidence: float) -> tuple[float, tuple[float, float]]:
        """Return 1 - residual variance over the variance of y, with an interval of the release and the rows drawn again (THEORY.md of ``bayes``, section 10).

        Where the variance of y was released, the variance of the fitted values, that of the residuals and their sum are all known with noise: each
        is mended by what the others say of it.
        """
        n, frame = self.moments.rows, self.moments.frame
        explained, drift, noise = self._explained()
        left = np.array([self.noise, explained])
        spread = np.diag([max(float(np.nan_to_num(frame.squares[1])), 0.0) / n**2, noise])
        if not frame.refined:  # the sum of y^2 was released: what is added to the fitted values is taken from the residuals
            spread += noise * np.array([[1.0, -1.0], [-1.0, 0.0]])
        value, unsure = frame.variance
        if not math.isnan(value):  # else only the moments tell how much y varies
            whole = spread.sum() + unsure
            gain = spread.sum(axis=1) / whole if whole > 0 else np.zeros(2)
            left = left + gain * (value - left.sum())
            spread = spread - np.outer(gain, spread.sum(axis=0))
        spread = spread + np.diag([2 * self.noise**2 / n, drift])
        residual, fitted = np.maximum(left, [1e-300, 0.0]).tolist()
        square = fitted / (fitted + residual)
        drawn = self.rng.multivariate_normal(left, spread, DRAWS, method="svd")
        residuals, fits = np.maximum(drawn, [1e-300, 0.0]).T
        found = fits / (fits + residuals)
        low, high = (float(np.quantile(found, share)) for share in ((1 - confidence) / 2, (1 + confidence) / 2))
        return square, (min(low, square), max(high, square))

    def _explained(self) -> tuple[float, float, float]:
        """Return the variance of the fitted values of whole rows, and the variances that sampling and the release's noise give to this number.

        A quadratic form of an estimate b with covariance V is too large by tr(GV), and varies by 2 tr((GV)^2) where b is nothing.
        """
        moments, n = self.moments, self.moments.rows
        known, frame, k = moments.known, moments.frame, self.slopes
        b, gram = self.coordinates.copy(), self.gram[:k, :k] / n
        if moments.layout.intercept:  # about the means, weighted ones too; the constant may be of any length
            gram = gram - np.outer(self.gram[:k, -1], self.gram[:k, -1]) / self.gram[-1, -1] / n
            b[-1] = -float(self.gram[-1, :k] @ b[:k]) / self.gram[-1, -1]
        alone, added = self.sampling, self._covariance(self.coordinates, known.inverse)
        drift, whole = gram @ alone[:k, :k], gram @ (alone + added)[:k, :k]
        value = float(b[:k] @ gram @ b[:k]) - float(np.trace(whole))
        size = max(value, 0.0)
        slope = gram @ b[:k]
        sampled = 4 * float(slope @ alone[:k, :k] @ slope) + 2 * float(np.trace(drift @ drift)) + 2 * size**2 / n
        # Noise e of the cross moments and N of the Gram move it by 2 u'e + u'N c, to first order: u is b about the means, c is u - 2 (b - start).
        u = known.vectors @ (known.vectors.T @ b)
        pairs = np.outer(u, u - 2 * (self.coordinates - frame.start))
        entries = 0.5 * self.gram_variance * np.square(pairs + pairs.T)
        released = 4 * float(self.moments.xy[1] @ u**2) + float(entries.sum())
        released -= float(self.gram_variance.diagonal() @ pairs.diagonal() ** 2)
        released = released / n**2 + 2 * float(np.trace(whole @ whole) - np.trace(drift @ drift))
        longer = self._longer(gram)
        released = longer**2 * max(released, 0.0) + (UNSURE * (longer - 1) * size) ** 2
        return longer * value, longer**2 * sampled, released

    def _longer(self, gram: Matrix) -> float:
        """Return how many times more whole rows vary than the shortened ones of a refinement: standardised columns have a variance of 1."""
        moments = self.moments
        if not moments.frame.refined or moments.layout.weighting is not None or not self.slopes:
            return 1.0
        at_sites = set(moments.layout.at_sites)
        own = [value for at, value in enumerate(gram.diagonal().tolist()) if at not in at_sites]
        return float(np.clip(1 / max(float(np.median(own)), 0.25), 1.0, 4.0)) if own else 1.0
