"""Unshrunk estimates with their covariance, which combinations of them a release determines, and the tests that follow."""

from __future__ import annotations

import math
from numbers import Real
from statistics import NormalDist
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.inference.summary import SummaryTerm
from unpooled.kernels.noisy import LOST, touches
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.inference.printed_terms import PrintedTerms

    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]

#: What may hide of a printed line, in standard errors: as accidents of the noise make it, and where it would be a bias.
MOST, HALF = table("printed").hidden_most, table("printed").hidden_half
#: Name of the constant in a table.
CONSTANT_TERM = "(intercept)"


def _flat(matrix: Matrix) -> tuple[float, ...]:
    return tuple(np.ravel(matrix).tolist())


class Estimates(msgspec.Struct, frozen=True):
    """Estimates and covariances (row by row) of all coefficients in the data's own units; the constants are the last."""

    names: tuple[str, ...]
    estimate: tuple[float, ...]
    covariance: tuple[float, ...]
    #: The part of the covariance that there would be without privacy.
    sampling: tuple[float, ...]
    #: Of files of version 0.2.0, which had no more: whether each coefficient is determined.
    identified: tuple[bool, ...] = ()
    collinear: tuple[bool, ...] = ()
    #: From coordinates of the fit to the coefficients, a row for each coefficient; the same of the coordinates that the noise hides.
    lift: tuple[float, ...] = ()
    unknown: tuple[float, ...] = ()
    #: Combinations that touch one of these columns have no value at all.
    still: tuple[float, ...] = ()
    #: Which coefficients are slopes; the others are constants.
    slopes: tuple[bool, ...] = ()

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        estimate: Row,
        covariance: Matrix,
        sampling: Matrix,
        lift: Matrix,
        unknown: Matrix,
        still: Matrix,
        slopes: Sequence[bool] = (),
    ) -> Estimates:
        """Make estimates from matrices. ``unknown`` has a column for each hidden direction of the fit's coordinates, ``still`` one for each combination of coefficients that has no value."""
        numbers = (_flat(m) for m in (lift, lift @ unknown, still))
        whole, alone = _flat(covariance), _flat(sampling)
        values = tuple(estimate.tolist())
        lifted, hidden, fixed = numbers
        return cls(tuple(names), values, whole, alone, lift=lifted, unknown=hidden, still=fixed, slopes=tuple(slopes))

    def untold(self) -> Estimates:
        """Return the same estimates with every combination hidden, where so few rows count that a table has no line."""
        return msgspec.structs.replace(self, unknown=self.lift, identified=(False,) * len(self.names))

    def square(self, numbers: tuple[float, ...]) -> Matrix:
        """Return a matrix from its rows."""
        return np.array(numbers).reshape(len(self.names), -1)

    def determined(self, weights: Matrix) -> NDArray[np.bool_]:
        """Return True for each combination of coefficients (a row each) that has a value, and one that the noise does not hide."""
        if not self.lift:
            told = np.array(self.identified, dtype=np.bool_)
            return np.asarray((weights != 0).any(axis=1) & ~((weights != 0) & ~told).any(axis=1))
        lift, unknown, still = (self.square(numbers) for numbers in (self.lift, self.unknown, self.still))
        lengths = np.square(weights @ lift).sum(axis=1)
        lost = np.square(weights @ unknown).sum(axis=1)
        found = (lengths > 0) & (lost < LOST * lengths) & ~touches(weights, still)
        # A combination of coefficients that are hidden themselves has to be shown almost wholly: what hides of it is a bias, and no accident.
        alone = np.square(unknown).sum(axis=1) > LOST * np.square(lift).sum(axis=1)
        most = np.where(((weights != 0) & alone).any(axis=1), HALF, MOST)
        return np.asarray(found & (self.hidden(weights) <= most))

    def lost(self, weights: Matrix) -> Row:
        """Return the part of each combination (a row each) that lies where the noise hides the coefficients."""
        if not self.lift:
            return np.where(self.determined(weights), 0.0, 1.0)
        lift, unknown = self.square(self.lift), self.square(self.unknown)
        lengths = np.square(weights @ lift).sum(axis=1)
        return np.asarray(np.square(weights @ unknown).sum(axis=1) / np.maximum(lengths, 1e-300))

    def hidden(self, weights: Matrix) -> Row:
        """Return how many of its standard errors each combination (a row each) may be off, if what is hidden is no longer than the slopes that are shown.

        A combination that is determined may still have a small part where the noise hides the coefficients. They are taken to be 0 there,
        which no standard error holds. Lengths are those of the fit's coordinates.
        """
        if not self.slopes or not self.unknown:
            return np.zeros(len(weights))
        slopes, lift, unknown = np.array(self.slopes), self.square(self.lift), self.square(self.unknown)
        shown = np.linalg.lstsq(lift[slopes], np.array(self.estimate)[slopes], rcond=None)[0]
        far = float(np.linalg.norm(shown)) * np.linalg.norm(weights @ unknown, axis=1)
        variance = self.mapped(weights)[1].diagonal()
        errors = np.sqrt(np.maximum(variance, 0.0))
        return np.asarray(np.divide(far, errors, out=np.where(far > 0, np.inf, 0.0), where=errors > 0))

    @property
    def own(self) -> tuple[Row, Row, Row]:
        """Return (values, variances, the part of them without privacy) of the coefficients themselves."""
        variances = (self.square(numbers).diagonal() for numbers in (self.covariance, self.sampling))
        whole, alone = variances
        return np.array(self.estimate), whole, alone

    def mapped(self, weights: Matrix) -> tuple[Row, Matrix, Matrix]:
        """Return (values, covariance, the part of it without privacy) of combinations."""
        whole, alone = self.square(self.covariance), self.square(self.sampling)
        return weights @ np.array(self.estimate), weights @ whole @ weights.T, weights @ alone @ weights.T

    def in_fit(self) -> tuple[Matrix, Matrix, Matrix]:
        """Return (the lift in parts of the constant's coordinate, the covariance, the part of it without privacy), both in the coordinates of the fit."""
        lift = self.square(self.lift)
        lift = lift / (abs(float(lift[-1, -1])) or 1.0)
        back = np.linalg.pinv(lift)
        whole, alone = (np.asarray(back @ self.square(numbers) @ back.T) for numbers in (self.covariance, self.sampling))
        return lift, whole, alone

    def lines(
        self, printed: PrintedTerms, confidence: float = 0.95, adjust: str | None = None
    ) -> tuple[tuple[SummaryTerm, ...], tuple[str, ...]]:
        """Wald tests and intervals of the printed lines that are determined, and the names of the others.

        ``adjust="holm"`` corrects the p-values of the slopes for their number.
        """
        if adjust not in {None, "holm"}:
            msg = f"adjust is None or 'holm', not {adjust!r}"
            raise UsageError(msg)
        told = self.determined(printed.weights)
        values, covariance, sampling = self.mapped(printed.weights)
        told &= covariance.diagonal() > 0
        found = wald_lines(printed.names, values, covariance.diagonal(), sampling.diagonal(), confidence)
        lines = [line for line, sure in zip(found, told.tolist(), strict=True) if sure]
        if adjust == "holm":
            slopes = printed.slopes[told]
            p = np.array([line.p_value for line in lines])
            p[slopes] = holm(p[slopes])
            lines = [line.with_p(value) for line, value in zip(lines, p.tolist(), strict=True)]
        return tuple(lines), tuple(name for name, sure in zip(printed.names, told.tolist(), strict=True) if not sure)


def check_confidence(confidence: float) -> None:
    """Refuse a confidence that is no number between 0 and 1."""
    if isinstance(confidence, bool) or not isinstance(confidence, Real) or not 0 < confidence < 1:
        raise UsageError("confidence must be a number between 0 and 1, as 0.95")


def wald_lines(
    names: Sequence[str], values: Row, variances: Row, sampling: Row, confidence: float, against: Row | float = 0.0
) -> list[SummaryTerm]:
    """Return estimates with standard errors, z tests against values, and intervals."""
    check_confidence(confidence)
    errors = np.sqrt(np.maximum(variances, 0.0))
    privacy = np.sqrt(np.maximum(variances - sampling, 0.0))
    z = np.divide(values - against, errors, out=np.zeros_like(values), where=errors > 0)
    p = np.array([math.erfc(abs(v) / math.sqrt(2)) for v in z.tolist()])
    half = NormalDist().inv_cdf(0.5 + confidence / 2) * errors
    columns = (values, errors, privacy, z, p, values - half, values + half)
    return [SummaryTerm(*line) for line in zip(names, *(c.tolist() for c in columns), strict=True)]


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


def wald(gap: Row, covariance: Matrix) -> tuple[float, int]:
    """G' V^-1 g over the directions in which V is positive, and their number."""
    scale = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    scale = np.where(scale > 0, scale, 1.0)  # so that units do not decide which directions are
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2 / np.outer(scale, scale))
    kept = values > 1e-10 * max(float(values.max(initial=0.0)), 1e-300)
    scaled = (vectors[:, kept].T @ (gap / scale)) / np.sqrt(values[kept])
    return float(scaled @ scaled), int(kept.sum())


def chi2_tail(statistic: float, degrees: int) -> float:
    """Return the probability that a chi-squared number with this many degrees of freedom is larger than the statistic."""
    from scipy.special import chdtrc

    return float(chdtrc(degrees, statistic)) if degrees else 1.0
