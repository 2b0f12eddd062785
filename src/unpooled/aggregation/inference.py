r"""What a statistician reads off released second moments, free of charge: tables of estimates, tests, intervals, smaller models.

Standard errors are those of generalised least squares: sampling and privacy noise together. Tests of single coefficients are normal,
joint ones chi-squared; F and R^2 have the law of the whole release, drawn again and again in the space of the coefficients (a parametric
bootstrap), because their ratios are far from normal where the noise is large. THEORY.md of ``models/bayes``, section 10.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from unpooled.aggregation.summary import SummaryTable, SummaryTerm
from unpooled.errors import UsageError, listed
from unpooled.kernels import noisy_gram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.aggregation.coordinates import Coordinates
    from unpooled.aggregation.layout import MomentsLayout
    from unpooled.aggregation.linear_fit import LinearFit

    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]

#: Draws of a parametric bootstrap, and the smallest p-value that they can tell.
DRAWS = 999
_NORMAL = NormalDist()
#: Name of the constant in a table.
CONSTANT_TERM = "(intercept)"


class FittedMoments(Protocol):
    """What inference needs of released moments (:class:`unpooled.aggregation.moments.Moments`)."""

    @property
    def layout(self) -> MomentsLayout: ...  # noqa: D102
    @property
    def rows(self) -> int: ...  # noqa: D102
    @property
    def weight(self) -> float: ...  # noqa: D102
    @property
    def statement(self) -> str: ...  # noqa: D102
    @property
    def frame(self) -> Coordinates: ...  # noqa: D102
    @property
    def xx(self) -> tuple[Matrix, Matrix]: ...  # noqa: D102
    @property
    def xy(self) -> tuple[Row, Row]: ...  # noqa: D102
    def ols(self) -> LinearFit: ...  # noqa: D102


@dataclass(frozen=True, repr=False)
class JointTest:
    """A joint test: of some contrasts, of a smaller model, of all slopes."""

    name: str
    statistic: float
    degrees: int
    p_value: float
    #: Of a bootstrap: fewer than 3 of so many draws cannot be told from none.
    draws: int = 0

    @property
    def p_words(self) -> str:
        """The p-value as it may be printed: no hits among the draws are "< 3/B"."""
        if self.draws and self.p_value <= 1 / (self.draws + 1):
            return f"< 3/{self.draws}"
        return f"{self.p_value:.3g}"

    def __repr__(self) -> str:
        return f"JointTest({self.name}: statistic {self.statistic:.4g}, {self.degrees} degrees, p {self.p_words})"

    def _repr_html_(self) -> str:
        """For notebooks."""
        cells = (self.name, f"{self.statistic:.4g}", str(self.degrees), self.p_words)
        titles = ("joint test", "statistic", "degrees", "p")
        head, body = ("".join(f"<{t}>{html.escape(c)}</{t}>" for c in row) for t, row in (("th", titles), ("td", cells)))
        return f"<table><thead><tr>{head}</tr></thead><tbody><tr>{body}</tr></tbody></table>"


@dataclass(frozen=True, repr=False)
class LinearSummary(SummaryTable):
    """Estimates, standard errors, tests and intervals of a linear model, as statisticians are used to read them."""

    terms: tuple[SummaryTerm, ...]
    rows: int
    residual_variance: float
    r_squared: float
    r_squared_interval: tuple[float, float]
    f_test: JointTest | None
    level: float
    #: Epsilon and what else the release promises, in words.
    statement: str
    adjust: str | None = None
    _saved_types: ClassVar = (JointTest, SummaryTerm)

    def _foot(self) -> list[str]:
        low, high = self.r_squared_interval
        foot = [
            f"n = {self.rows}, residual variance {self.residual_variance:.5g}, R^2 {self.r_squared:.3f} [{low:.3f}, {high:.3f}]",
        ]
        if self.f_test is not None:
            foot.append(
                f"{self.f_test.name}: {self.f_test.statistic:.4g}, p {self.f_test.p_words} ({self.f_test.draws} draws)"
            )
        return [*foot, *super()._foot()]


def summarise(moments: FittedMoments, level: float = 0.95, adjust: str | None = None, seed: int = 0) -> LinearSummary:
    """The table of a linear model from its released moments: generalised least squares, so that null coefficients are tested fairly.

    ``adjust="holm"`` corrects the p-values of the slopes for their number.
    """
    if not 0 < level < 1:
        raise UsageError("level must lie between 0 and 1")
    if adjust not in {None, "holm"}:
        msg = f"adjust is None or 'holm', not {adjust!r}"
        raise UsageError(msg)
    fit = moments.ols()
    sampling = _sampling(moments, fit)
    names = [*moments.layout.names, *([CONSTANT_TERM] if moments.layout.intercept else [])]
    known = np.append(fit.identified, [bool(fit.identified.all())] * moments.layout.intercept)
    values = np.append(fit.coef_, [fit.intercept_] * moments.layout.intercept)
    variances = fit.joint_covariance_.diagonal()
    errors = np.sqrt(np.maximum(variances, 0.0))
    privacy = np.sqrt(np.maximum(variances - sampling.diagonal(), 0.0))
    z = np.divide(values, errors, out=np.zeros_like(values), where=errors > 0)
    p = np.array([math.erfc(abs(v) / math.sqrt(2)) for v in z.tolist()])
    slopes = np.flatnonzero(known[: fit.coef_.size])
    if adjust == "holm":
        p[slopes] = holm(p[slopes])
    half = _NORMAL.inv_cdf(0.5 + level / 2) * np.where(known, errors, np.inf)
    p = np.where(known, p, np.nan)
    columns = (values, np.where(known, errors, np.nan), privacy, z, p, values - half, values + half)
    lines = zip(names, *(column.tolist() for column in columns), known.tolist(), strict=True)
    terms = tuple(SummaryTerm(*line) for line in lines)
    law = Bootstrap(moments, fit, np.random.default_rng(seed))
    test = law.test(list(range(fit.coef_.size))) if slopes.size == fit.coef_.size else None
    square, interval = law.r_squared(level)
    return LinearSummary(terms, moments.rows, fit.noise_variance, square, interval, test, level, moments.statement, adjust)


def holm(p_values: Row) -> Row:
    """Holm's correction: valid whatever the tests have to do with each other.

    >>> holm(np.array([0.01, 0.04, 0.03])).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    steps = p_values[order] * np.arange(p_values.size, 0, -1)
    result = np.empty_like(p_values)
    result[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return result


def _sampling(moments: FittedMoments, fit: LinearFit) -> Matrix:
    """The covariance that the same rows would give without privacy noise, in the data's own units."""
    gram, variance = moments.xx
    m = noisy_gram.repaired(gram, variance)
    noise = fit.noise_variance / moments.frame.response_width**2 * moments.weight / moments.rows
    back = moments.frame.back(intercept=moments.layout.intercept)
    covariance = back @ (noise * np.linalg.inv(m)) @ back.T
    return np.asarray(covariance)


def contrast(moments: FittedMoments, C: Any, value: Any = 0.0) -> JointTest:  # noqa: ANN401 - rows of weights, or a mapping from names
    """The chi-squared test that ``C @ beta`` is ``value``: rows of weights over the coefficients, or mappings from their names."""
    fit = moments.ols()
    weights = _weights(moments, C)
    # A difference may be told where its terms are not: of two categories, which all together are as good as a constant.
    lift = weights[(weights != 0).any(axis=1)] @ moments.frame.back(intercept=moments.layout.intercept)[: fit.coef_.size]
    if not noisy_gram.identified(*moments.xx, lift=lift).all():
        raise UsageError(
            "a contrast of a coefficient that is not identified cannot be tested: spend more epsilon, or leave it out"
        )
    gap = weights @ fit.coef_ - np.broadcast_to(np.asarray(value, dtype=np.float64), (weights.shape[0],))
    covariance = weights @ fit.covariance_ @ weights.T
    statistic, rank = _wald(gap, covariance)
    return JointTest("chi2", statistic, rank, _chi2_tail(statistic, rank))


def _weights(moments: FittedMoments, C: Any) -> Matrix:  # noqa: ANN401
    names = moments.layout.names
    rows = [C] if isinstance(C, dict) else C
    if isinstance(rows, (list, tuple)) and rows and isinstance(rows[0], dict):
        matrix = np.zeros((len(rows), len(names)))
        for i, row in enumerate(rows):
            for name, weight in row.items():
                if name not in names:
                    msg = f"a contrast names {name!r}, which is none of the coefficients {listed(list(names))}"
                    raise UsageError(msg)
                matrix[i, names.index(name)] = weight
        return matrix
    matrix = np.atleast_2d(np.asarray(rows, dtype=np.float64))
    if matrix.shape[1] != len(names):
        msg = f"a contrast has a weight for each of the {len(names)} coefficients (the intercept has none)"
        raise UsageError(msg)
    return matrix


def _wald(gap: Row, covariance: Matrix) -> tuple[float, int]:
    """G' V^-1 g over the directions in which V is positive, and their number."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    kept = values > 1e-12 * max(float(values.max(initial=0.0)), 1e-300)
    scaled = (vectors[:, kept].T @ gap) / np.sqrt(values[kept])
    return float(scaled @ scaled), int(kept.sum())


def _chi2_tail(statistic: float, degrees: int) -> float:
    from scipy.special import chdtrc

    return float(chdtrc(degrees, statistic))


class Bootstrap:
    """The law of a release, drawn again: second moments of rows of the fitted model with fresh sampling and privacy noise."""

    def __init__(self, moments: FittedMoments, fit: LinearFit, rng: np.random.Generator) -> None:
        self.moments, self.fit, self.rng = moments, fit, rng
        self.width = moments.frame.response_width
        gram, self.gram_variance = moments.xx
        self.gram = noisy_gram.repaired(gram, self.gram_variance)
        self.noise = fit.noise_variance / self.width**2
        self.slopes = moments.layout.size - moments.layout.intercept

    def _covariance(self, coefficients: Row) -> Matrix:
        """Of generalised least squares at these coefficients, in coordinates."""
        moments = self.moments
        left = coefficients - moments.frame.start
        _, cross_variance = moments.xy
        v = self.noise * (moments.weight / moments.rows) * self.gram + noisy_gram.noise_covariance(
            np.outer(left, left), self.gram_variance, cross_variance
        )
        inverse = np.linalg.inv(self.gram)
        return np.asarray(inverse @ v @ inverse)

    @property
    def coordinates(self) -> Row:
        """The fitted coefficients in coordinates."""
        layout, frame = self.moments.layout, self.moments.frame
        own = np.append(self.fit.coef_, [self.fit.intercept_ - frame.response_centre] * layout.intercept)
        return np.linalg.solve(frame.back(intercept=layout.intercept), own)

    def test(self, left: list[int]) -> JointTest:
        """These slopes are 0: the Wald statistic over their number, against its law where they are."""
        found, null, pick = self.coordinates, self.coordinates, np.ix_(left, left)
        null[left] = 0.0
        observed = _wald(found[left], self._covariance(found)[pick])[0]
        # Under the null the estimate has the covariance of no slopes, and is divided by that of whatever was then found.
        root = np.linalg.cholesky(self._covariance(null) + 1e-300 * np.eye(found.size))
        drawn = null + self.rng.standard_normal((DRAWS, found.size)) @ root.T
        hits = sum(_wald(one[left], self._covariance(one)[pick])[0] >= observed for one in drawn)
        return JointTest(f"F({len(left)})", observed / len(left), len(left), (1 + hits) / (DRAWS + 1), DRAWS)

    def r_squared(self, level: float) -> tuple[float, tuple[float, float]]:
        """1 - residual variance over the variance of y, and the interval of the drawn release around it."""
        n = self.moments.rows
        released = np.nan_to_num(self.moments.frame.squares[1])
        noise_error = math.hypot(self.noise * math.sqrt(2 / n), math.sqrt(max(float(released), 0.0)) / n)
        first, second = self.rng.standard_normal((2, DRAWS))
        noise = np.maximum(self.noise + noise_error * first, 0.0)
        value, spread = self.moments.frame.variance
        if math.isnan(value):  # only the moments tell how much the fitted values vary
            explained, error = self._explained()
            total, totals = explained + self.noise, np.maximum(explained + error * second, 0.0) + noise
        else:
            total, totals = value, value + math.hypot(value * math.sqrt(2 / n), math.sqrt(spread)) * second
        square = min(max(1 - self.noise / total, 0.0), 1.0) if total > 0 else 0.0
        found = np.clip(1 - noise / np.maximum(totals, 1e-300), 0.0, 1.0)
        low, high = (float(np.quantile(found, share)) for share in ((1 - level) / 2, (1 + level) / 2))
        return square, (min(low, square), max(high, square))

    def _explained(self) -> tuple[float, float]:
        """The variance of the fitted values, and its standard error."""
        moments, n = self.moments, self.moments.rows
        b, k = self.coordinates, self.slopes
        gram = self.gram[:k, :k] / n
        if moments.layout.intercept:
            mean = self.gram[:k, -1] / n
            gram = gram - np.outer(mean, mean)
        explained = max(float(b[:k] @ gram @ b[:k]), 0.0)
        slope = 2 * gram @ b[:k]
        fitted = float(slope @ self._covariance(b)[:k, :k] @ slope)
        # A symmetric noise N moves b'Nb by the sum of V_jj b_j^4 + 4 sum over pairs of V_jk b_j^2 b_k^2, in variance.
        squares = np.outer(b[:k] ** 2, b[:k] ** 2) * self.gram_variance[:k, :k]
        release = (2 * float(squares.sum()) - float(np.trace(squares))) / n**2
        return explained, math.sqrt(max(fitted, 0.0) + max(release, 0.0) + 2 * explained**2 / n)


def anova(larger: FittedMoments, smaller: Sequence[str], seed: int = 0) -> JointTest:
    """Whether the columns that ``smaller`` leaves out explain anything: their joint test, by bootstrap of the release."""
    names = larger.layout.names
    unknown = [name for name in smaller if name not in names]
    if unknown:
        msg = f"the smaller model names {unknown[0]!r}, which is none of the coefficients {listed(list(names))}"
        raise UsageError(msg)
    left = [k for k, name in enumerate(names) if name not in set(smaller)]
    if not left:
        raise UsageError("the smaller model must leave something out")
    fit = larger.ols()
    if not fit.identified[left].all():
        raise UsageError("what the smaller model leaves out is not identified: spend more epsilon")
    return Bootstrap(larger, fit, np.random.default_rng(seed)).test(left)
