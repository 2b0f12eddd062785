"""Constants of sites that are drawn around a mean: the random intercept of a linear model, from the release that fixed constants have.

Least squares with a constant for each site gives slopes b and constants a with a covariance C that holds sampling and privacy noise. They say all
that the moments say of both, so a ~ N(mu 1, C_aa + tau^2 I) is all there is to know of mu and tau^2: generalised least squares over it is that of the
mixed model (Theorem B.18), and the noise of the sites' sums is no spread between sites.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.inference.coding import SITE, CodedTerms
from unpooled.inference.estimates import Estimates
from unpooled.inference.printed_terms import TREATMENT
from unpooled.inference.sites import spread_words
from unpooled.inference.tables import Anova, JointTest, Tables
from unpooled.kernels.between_sites import POOLED, reml, student_over_normal
from unpooled.linear.inference import LINEAR, LinearSummary, LinearTables, tables_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.linear.inference import FittedMoments

    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]


@dataclass(frozen=True)
class RandomTables(LinearTables):
    """The tables of a linear model with a random intercept. F tests and R^2 are of a model with one variance, and are left out."""

    #: The variance of the sites' constants, and the residual variance within sites.
    spread: float = math.nan
    within: float = math.nan

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
        """Return generalised least squares with the estimated variances."""
        del seed
        asked: dict[str, Any] = {"reference": reference, "coding": coding, "against": against, "exponentiate": exponentiate}
        table = Tables.summary(self, confidence, adjust, **asked)
        own = self.within if table.terms else math.nan
        facts = (table.terms, self.rows, own, math.nan, (math.nan, math.nan), None, confidence, self.statement, adjust)
        return LinearSummary(*facts, not_determined=table.not_determined, compared=table.compared)

    def anova(self, smaller: Sequence[str] | None = None, *, against: object = None, seed: int = 0) -> Anova | JointTest:
        """Return chi-squared tests, of every column or of those that ``smaller`` leaves out."""
        del seed
        return Tables.anova(self, smaller, against=against)

    def data(self, confidence: float = 0.95) -> dict[str, Any]:
        """Return the data that a program needs in addition to the lines, with tau^2."""
        return {**super().data(confidence), "tau_squared": None if math.isnan(self.spread) else self.spread}


def tables_with_sites(
    moments: FittedMoments, reference: Mapping[str, str], coding: str = TREATMENT, *, whole: bool = False
) -> LinearTables:
    """Return the tables of released moments: of a mixed model, where they have sites whose constants are drawn around a mean."""
    sites = moments.layout.sites
    if sites is not None and sites.random:
        return random_tables(moments, reference, coding)
    return tables_of(moments, reference, coding, whole=whole)


def random_tables(moments: FittedMoments, reference: Mapping[str, str], coding: str = TREATMENT) -> RandomTables:
    """Return the tables of released moments whose sites' constants are drawn around a mean; each with its own where fewer than two are determined."""
    whole = tables_of(moments, {name: level for name, level in reference.items() if name != SITE}, coding)
    coded = _others(whole.coded)
    estimates, spread, used = _around_mean(whole.estimates, whole.coded, coded, moments.frame.centres)
    sites = len(whole.coded.factor(SITE).levels)
    _, _, within = moments.least_squares()
    within *= moments.frame.response_width**2 * moments.layout.largest
    words = (*spread_words(spread, used, sites), *whole.assumed)
    if used < POOLED:  # then the lines of constants of their own are all that can be printed
        fixed = tables_of(moments, reference, coding)
        own = {field.name: getattr(fixed, field.name) for field in fields(fixed)}
        return RandomTables(**own | {"assumed": words, "within": within})
    return RandomTables(
        estimates,
        coded,
        whole.rows,
        LINEAR,
        whole.response,
        whole.statement,
        reference=whole.reference,
        coding=coding,
        common=whole.common,
        assumed=words,
        made=whole.made,
        crowded=whole.crowded,
        cut=whole.cut,
        moments=moments,
        spread=spread,
        within=within,
    )


def _others(coded: CodedTerms) -> CodedTerms:
    """Return the coefficients that are no constants of sites."""
    kept = tuple(term for term in coded.terms if SITE not in term.factors)
    return CodedTerms(kept, tuple(factor for factor in coded.factors if factor.name != SITE))


def _middle(coded: CodedTerms, centres: Row) -> Row:
    """Return the weights of the linear predictor of a row in the middle: numbers at their means, and levels at the mean of all."""
    numbers = {term.number: centre for term, centre in zip(coded.terms, centres.tolist(), strict=True) if not term.cells}
    sizes = {factor.name: len(factor.levels) for factor in coded.factors}
    found = [
        (numbers.get(term.number, 0.0) if term.number else 1.0) * math.prod(1 / sizes[name] for name, _ in term.cells)
        for term in coded.terms
    ]
    return np.array(found)


def _around_mean(estimates: Estimates, whole: CodedTerms, coded: CodedTerms, centres: Row) -> tuple[Estimates, float, int]:
    """Return (estimates with one constant, tau^2, the sites whose constants are determined); nan and no covariance where fewer than two are."""
    sites = np.array([SITE in term.factors for term in whole.terms])
    middle = _middle(coded, centres[~sites])
    at_site = np.empty((int(sites.sum()), sites.size))
    at_site[:, ~sites] = middle
    at_site[:, sites] = np.eye(int(sites.sum()))
    at_site = at_site[estimates.determined(at_site)]
    used = len(at_site)
    others = np.eye(sites.size)[~sites]
    own = np.array(estimates.estimate), estimates.square(estimates.covariance), estimates.square(estimates.sampling)
    spread, mapped, beside = math.nan, others, np.zeros((len(others), 1))
    if used >= POOLED:
        spread, mapped, beside = _generalised(own[0], own[1], at_site, others, middle)
    between = 0.0 if math.isnan(spread) else spread
    added = between * beside @ beside.T
    covariance, sampling = mapped @ own[1] @ mapped.T + added, mapped @ own[2] @ mapped.T + added
    if used >= POOLED:  # tau^2 is estimated from few sites: the constant's interval is Student's
        wider = student_over_normal(used - 1) ** 2 - 1
        covariance[-1, -1] += wider * float(middle @ covariance @ middle)
        sampling[-1, -1] += wider * float(middle @ sampling @ middle)
    else:
        covariance, sampling = np.zeros_like(covariance), np.zeros_like(sampling)
    lift, unknown = (mapped @ estimates.square(numbers) for numbers in (estimates.lift, estimates.unknown))
    flat = [tuple(np.ravel(numbers).tolist()) for numbers in (covariance, sampling, lift, unknown, coded.still)]
    found = Estimates(
        coded.names,
        tuple((mapped @ own[0]).tolist()),
        flat[0],
        flat[1],
        lift=flat[2],
        unknown=flat[3],
        still=flat[4],
        slopes=tuple(bool(term.term) for term in coded.terms),
    )
    return found, spread, used


def _generalised(
    values: Row, covariance: Matrix, at_site: Matrix, others: Matrix, middle: Row
) -> tuple[float, Matrix, Matrix]:
    """Return (tau^2, the combinations of all coefficients that are those of the mixed model, the same of the sites' deviations)."""
    constants, own = at_site @ values, at_site @ covariance @ at_site.T
    spread = reml(constants, own)
    whole = own + spread * np.eye(constants.size)
    average = np.linalg.solve(whole, np.ones(constants.size))
    average /= average.sum()
    left = np.eye(constants.size) - np.outer(np.ones(constants.size), average)
    carried = np.linalg.solve(whole, at_site @ covariance @ others.T).T @ left
    mapped, beside = others - carried @ at_site, -carried
    # The constant is the mean of the sites' constants, less what a row in the middle has of the others.
    last = np.zeros(middle.size)
    last[-1] = 1.0
    slopes = middle - last
    mapped[-1] = average @ at_site - slopes @ mapped
    beside[-1] = average - slopes @ beside
    return spread, mapped, beside
