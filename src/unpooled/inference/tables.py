"""The tables that a finished fit gives free of charge: its summary, contrasts, tests of whole columns, and all of it as data."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.inference.coding import SITE
from unpooled.inference.coordinates import TAIL_PART, Clipping
from unpooled.inference.estimates import chi2_tail, wald, wald_lines
from unpooled.inference.printed_terms import TREATMENT, printed_terms
from unpooled.inference.priors import DrawnTo, Pull, words
from unpooled.inference.results import Result, records
from unpooled.inference.summary import RATIOS, GlmSummary, SummaryTerm, TermsTable, is_credible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.inference.coding import CodedTerms, FormulaColumns
    from unpooled.inference.estimates import Estimates
    from unpooled.inference.printed_terms import PrintedTerms
    from unpooled.inference.summary import SummaryTable

    Matrix = NDArray[np.float64]

#: The family whose mean is the linear predictor itself.
_STRAIGHT = "linear"


@dataclass(frozen=True, repr=False)
class JointTest(Result):
    """A joint test: of some contrasts, of a smaller model, of all slopes."""

    name: str
    statistic: float
    degrees: int
    p_value: float
    #: The number of draws of a bootstrap, where it is one: fewer than 3 hits cannot be distinguished from none.
    draws: int = 0

    @property
    def p_words(self) -> str:
        """Return the p-value as it may be printed: no hits among the draws are "< 3/B"."""
        if self.draws and self.p_value <= 1 / (self.draws + 1):
            return f"< 3/{self.draws}"
        return f"{self.p_value:.3g}"

    __str__ = Result.__repr__

    def _lines(self) -> list[tuple[str, ...]]:
        cells = (self.name, f"{self.statistic:.4g}", str(self.degrees), self.p_words)
        return [("joint test", "statistic", "degrees", "p"), cells]

    def _numbers(self) -> list[dict[str, Any]]:
        return records([self])

    def _said(self) -> str:
        return f"{self.name}: statistic {self.statistic:.4g}, {self.degrees} degrees, p {self.p_words}"


@dataclass(frozen=True, repr=False)
class Contrast(TermsTable):
    """Combinations of coefficients: each with its estimate, standard error, interval and test, and the test of all together."""

    terms: tuple[SummaryTerm, ...]
    #: That each has the value that it is compared with, 0 where nothing else was said.
    joint: JointTest
    confidence: float
    #: What the estimates are where they are exponentials.
    ratio: str = ""
    _saved_types: ClassVar = (JointTest, SummaryTerm)

    @property
    def statistic(self) -> float:
        """Return the statistic of the joint test: chi-squared."""
        return self.joint.statistic

    @property
    def degrees(self) -> int:
        """Return the degrees of freedom of the joint test."""
        return self.joint.degrees

    @property
    def p_value(self) -> float:
        """Return the p-value of the joint test."""
        return self.joint.p_value

    def _foot(self) -> list[str]:
        tested = len(self.terms) > 1 and not is_credible(self.terms)
        return [f"joint test: chi2({self.degrees}) = {self.statistic:.4g}, p {self.joint.p_words}"] if tested else []


@dataclass(frozen=True, repr=False)
class Anova(Result):
    """A Wald test for every declared column: that none of its coefficients is anything but 0, all others staying in the model."""

    tests: tuple[JointTest, ...]

    _saved_types: ClassVar = (JointTest,)

    def _lines(self) -> list[tuple[str, ...]]:
        return [("", "chi2", "degrees", "p"), *(test._lines()[1] for test in self.tests)]  # noqa: SLF001 - its own parts

    def _numbers(self) -> list[dict[str, Any]]:
        return records(self.tests)


def most_hidden(estimates: Estimates, printed: PrintedTerms, coded: CodedTerms, out: set[int]) -> set[int]:
    """Return the places of the coefficients of the term that the noise hides most, of those without any line; none is left: nothing.

    The lines of the others hold what they hold without these terms: an estimate that is adjusted for a part of a column, by chance, covers nothing that has
    a name. Terms that are ``out`` already, sites, and terms that a determined one is made of, stay; and all, where half of them would hide the rest.
    """
    told: dict[str, list[bool]] = {}
    lost: dict[str, float] = {}
    rows = zip(
        printed.terms, estimates.determined(printed.weights).tolist(), estimates.lost(printed.weights).tolist(), strict=True
    )
    for name, sure, part in rows:
        told.setdefault(name, []).append(sure)
        lost[name] = max(lost.get(name, 0.0), part)
    shown = [_words(name) for name, sure in told.items() if name and any(sure)]
    places: dict[str, set[int]] = {}
    for at, term in enumerate(coded.terms):
        places.setdefault(term.term, set()).add(at)
    terms = [name for name in told if name and name != SITE]
    gone = sum(places[name] <= out for name in terms)
    if not shown and 2 * (gone + 1) > len(
        terms
    ):  # one column may hide all others, but a model of less than half of the terms is not what was asked for
        return set()
    left = [
        name
        for name, sure in told.items()
        if name
        and name != SITE
        and not any(sure)
        and not any(_words(name) <= other for other in shown)
        and not places[name] <= out
    ]
    if not left:
        return set()
    # With a term go the hidden ones of the same columns: the square of an age without its slope is a model of its own.
    first = _columns(max(left, key=lambda name: lost[name]))
    return set[int]().union(*(places[name] for name in left if _columns(name) & first))


def _words(term: str) -> frozenset[str]:
    """Return the names that a term of a formula is made of, its functions among them."""
    return frozenset(re.findall(r"`[^`]+`|[^\W\d][\w.]*", term))


def _columns(term: str) -> frozenset[str]:
    """Return the names of the columns that a term is made of, without its functions."""
    return frozenset(name for name, call in re.findall(r"(`[^`]+`|[^\W\d][\w.]*)(\(?)", term) if not call)


@dataclass(frozen=True)
class Tables:
    """Everything that a table is made of."""

    estimates: Estimates
    #: The fitted coefficients of one linear predictor.
    coded: CodedTerms
    rows: int
    family: str
    response: str
    statement: str
    dispersion: float = 1.0
    #: Of a model with several classes, their labels.
    classes: tuple[str, ...] = ()
    #: What the study asks for, where nothing else is asked here.
    reference: Mapping[str, str] = field(default_factory=dict)
    coding: str = TREATMENT
    #: The commonest level or class of columns whose declared reference is rare, as the release shows them; of classes under the response's name.
    common: Mapping[str, str] = field(default_factory=dict)
    #: Sentences about what the standard errors assume.
    assumed: tuple[str, ...] = ()
    #: The columns that the fit's formula makes of the declared ones; None without a formula.
    made: FormulaColumns | None = None
    #: What the fit cut off of rows and residuals, its tail in the units of the intercept; None where it cut nothing.
    cut: Clipping | None = None
    #: Sentences about the columns of which most rows that were scaled down are likely long.
    crowded: tuple[str, ...] = ()
    #: Columns of which nothing is told beside those of the table, nor of the constant.
    nuisance: tuple[str, ...] = ()
    #: How earlier models drew the estimates, which are then a posterior; None without any.
    drawn: DrawnTo | None = None
    #: The estimates before terms that the noise hides were left out: best guesses for further models, and no lines. None where none was left out.
    adjusted: Estimates | None = None

    @property
    def best(self) -> Estimates:
        """Return the best guess of all coefficients, those that the noise hides among them."""
        return self.estimates if self.adjusted is None else self.adjusted

    def printed(
        self, reference: Mapping[str, str] | None = None, coding: str | None = None, against: object = None
    ) -> PrintedTerms:
        """Return the lines of the table; ``reference``: levels that others are compared with, ``against``: the class."""
        if not isinstance(reference, Mapping | None):
            raise UsageError('reference is a mapping from columns to levels: reference={"ward": "b"}')
        asked = {**self.common, **self.reference, **{str(k): str(v) for k, v in (reference or {}).items()}}
        chosen = asked.pop(self.response, None) if self.classes else None
        found = printed_terms(self.coded, asked, coding or self.coding)
        if self.nuisance:
            found = found.without_constants()
        if not self.classes:
            if against is not None:
                raise UsageError(
                    "`against` names a class, and this model has one linear predictor: use `reference` for levels"
                )
            return found
        label = str(against) if against is not None else chosen or self.classes[0]
        if label not in self.classes:
            msg = f"the class that others are compared with is one of {listed(list(self.classes))}, not {label!r}"
            raise UsageError(msg)
        return found.of_classes(self.classes, label)

    def ratio(self, *, exponentiate: bool) -> str:
        """Return the name of exponentials of this family's coefficients; empty where none are asked for."""
        if not exponentiate:
            return ""
        if self.family not in RATIOS:
            msg = (
                f"the exponential of a coefficient means a ratio for {listed(list(RATIOS))}; a linear model has differences"
            )
            raise UsageError(msg)
        return RATIOS[self.family]

    def pulled(self, printed: PrintedTerms) -> DrawnTo:
        """Return how earlier models drew the lines of the table, those of categories among them."""
        assert self.drawn is not None
        if not self.drawn.alone:  # of a file of an earlier build, which kept the terms of numbers alone
            return msgspec.structs.replace(self.drawn, terms=() if self.classes else self.drawn.terms)
        there = printed.weights
        alone = msgspec.structs.replace(self.estimates, estimate=self.drawn.alone, slopes=self.drawn.slopes)
        each = zip(
            printed.names,
            self.estimates.mapped(there)[0].tolist(),
            alone.mapped(there)[0].tolist(),
            alone.determined(there).tolist(),
            strict=True,
        )
        return DrawnTo(
            self.drawn.weights, tuple(Pull(name, now, before if told else None) for name, now, before, told in each)
        )

    def compared(self, printed: PrintedTerms, without: Sequence[str] = ()) -> tuple[str, ...]:
        """Return words for the base that the lines are compared with; ``without``: the lines that are not printed."""
        words = []
        if printed.classes:
            words.append(f"log odds of each class against {printed.against!r}{self._rare(self.response, printed.against)}")
        if printed.factors and printed.coding != TREATMENT:
            words.append("levels are compared with the mean of their column")
        elif (
            not self.nuisance
            and printed.factors
            and not {n for n, term in zip(printed.names, printed.terms, strict=True) if not term} <= {*without}
        ):
            names = ", ".join(f"{factor.name} = {printed.references[factor.name]}" for factor in printed.factors)
            words.append(f"the intercept is that of a row with {names}, and 0 in every number")
        if printed.coding == TREATMENT:
            there = {factor.name: printed.references[factor.name] for factor in printed.factors}
            words += [
                f"{name} is compared with {level!r}{rare}"
                for name, level in there.items()
                if (rare := self._rare(name, level))
            ]
        if self.nuisance:
            words.append(f"focus: {listed(list(self.nuisance))} and the intercept are nuisance, and have no line")
        return (*words, *self.assumed)

    def _rare(self, name: str, base: str) -> str:
        """Return words for why a column (or the response) is compared with its commonest level; empty where it is not."""
        if self.common.get(name) != base or name in self.reference:
            return ""
        word = "against" if name == self.response and self.classes else "reference"
        return f", the commonest: the first one declared is rare ({word} names another)"

    def cut_off(self, printed: PrintedTerms, lines: Sequence[SummaryTerm]) -> tuple[str, ...]:
        """Return the sentences about rows and residuals that were cut, and about the tail where a line without columns rests on it."""
        if self.cut is None:
            return ()
        constants = {name for name, term in zip(printed.names, printed.terms, strict=True) if not term}
        rests = any(line.term in constants and self.cut.tail[1] > TAIL_PART * line.std_error for line in lines)
        return (
            *self.cut.sentences(curved=self.family != _STRAIGHT, crowded=self.crowded),
            *([self.cut.tail_sentence()] if rests else []),
        )

    def summary(
        self,
        confidence: float = 0.95,
        adjust: str | None = None,
        *,
        reference: Mapping[str, str] | None = None,
        coding: str | None = None,
        against: object = None,
        exponentiate: bool = False,
    ) -> SummaryTable:
        """Return estimates with standard errors, tests and intervals."""
        printed, ratio = self.printed(reference, coding, against), self.ratio(exponentiate=exponentiate)
        lines, without = self.estimates.lines(printed, confidence, adjust)
        compared = (*self.compared(printed, without), *self.cut_off(printed, lines))
        if self.drawn is not None:
            lines, compared = (
                tuple(line.credible() for line in lines),
                (*compared, *words(self.pulled(printed))),
            )
        if ratio:
            lines = tuple(line.exponential() for line in lines)
        facts = (self.rows, self.family, self.dispersion, confidence, self.statement, adjust)
        return GlmSummary(lines, *facts, not_determined=without, compared=compared, ratio=ratio)

    def errors(self) -> dict[str, float]:
        """Return the standard error of every line of a summary, without what stands beside and below the lines."""
        return {line.term: line.std_error for line in self.estimates.lines(self.printed(), 0.95, None)[0]}

    def contrast(
        self,
        asked: Any,  # noqa: ANN401 - words, mappings, rows of weights
        value: Any = 0.0,  # noqa: ANN401 - a number, or one for each
        confidence: float = 0.95,
        *,
        reference: Mapping[str, str] | None = None,
        against: object = None,
        exponentiate: bool = False,
    ) -> Contrast:
        """Return the combinations that were asked for, with a joint test."""
        ratio = self.ratio(exponentiate=exponentiate)
        printed = self.printed(reference, None, against)
        names, weights, said = printed.contrasts(asked)
        if printed.is_column(asked):  # all its levels: those that are determined
            sure = self.estimates.determined(weights)
            if sure.any():
                names, weights, said = tuple(np.array(names)[sure].tolist()), weights[sure], said[sure]
        values = said + np.broadcast_to(np.asarray(value, dtype=np.float64), said.shape)
        empty = ~(weights != 0).any(axis=1)
        unknown = [
            name for name, sure in zip(names, (self.estimates.determined(weights) | empty).tolist(), strict=True) if not sure
        ]
        if unknown:
            msg = (
                f"the contrast {unknown[0]!r} is not determined: levels of a column have a value only beside each other "
                '("ward: b - a"), and where the noise hides a difference more rows, narrower bounds or more epsilon would help'
            )
            raise UsageError(msg)
        found, covariance, sampling = self.estimates.mapped(weights)
        lines = wald_lines(names, found, covariance.diagonal(), sampling.diagonal(), confidence, values)
        statistic, degrees = wald(found - values, covariance)
        tail = chi2_tail(statistic, degrees)
        if self.drawn is not None:
            lines, statistic, tail = [line.credible() for line in lines], math.nan, math.nan
        joint = JointTest("chi2", statistic, degrees, tail)
        terms = tuple(line.exponential() for line in lines) if ratio else tuple(lines)
        return Contrast(terms, joint, confidence, ratio)

    def anova(self, smaller: Sequence[str] | None = None, *, against: object = None) -> Anova | JointTest:
        """Return a Wald test for every column; ``smaller``: one for all columns (or coefficients) that it leaves out."""
        self.check_tested()
        printed = self.printed(None, None, against)
        if smaller is None:
            terms = dict.fromkeys(name for name in printed.terms if name)
            tests = [self._joint(name, [k for k, own in enumerate(printed.terms) if own == name], printed) for name in terms]
            return Anova(tuple(test for test in tests if test is not None))
        weights = self.left_out(printed, smaller)
        values, covariance, _ = self.estimates.mapped(weights)
        statistic, degrees = wald(values, covariance)
        return JointTest("chi2", statistic, degrees, chi2_tail(statistic, degrees))

    def check_tested(self) -> None:
        """Refuse a test of estimates that earlier models drew."""
        if self.drawn is not None:
            raise UsageError(
                "a fit with a prior has intervals of what is believed, and no tests: leave prior out for p-values of these rows alone"
            )

    def left_out(self, printed: PrintedTerms, smaller: Sequence[str]) -> Matrix:
        """Return the determined lines of the columns that a smaller model leaves out; refused where a column has none."""
        left = np.array(left_out(printed, smaller))
        told = self.estimates.determined(printed.weights[left])
        owners = np.array(printed.terms)[left]
        for column in dict.fromkeys(owners.tolist()):
            if not told[owners == column].any():
                msg = f"{column!r}, which the smaller model leaves out, is {NOT_DETERMINED}"
                raise UsageError(msg)
        return np.asarray(printed.weights[left[told]])

    def _joint(self, name: str, at: Sequence[int], printed: PrintedTerms) -> JointTest | None:
        """Return the joint test of the determined lines among these; None where there are none."""
        weights = printed.weights[list(at)]
        weights = weights[self.estimates.determined(weights)]
        if not weights.size:
            return None
        values, covariance, _ = self.estimates.mapped(weights)
        statistic, degrees = wald(values, covariance)
        return JointTest(name, statistic, degrees, chi2_tail(statistic, degrees))

    def data(self, confidence: float = 0.95) -> dict[str, Any]:
        """Return the data that a program needs in addition to the lines: levels and references, and the covariance of the lines."""
        printed = self.printed()
        lines, without = self.estimates.lines(printed, confidence)
        kept = [printed.names.index(line.term) for line in lines]
        _, covariance, _ = self.estimates.mapped(printed.weights[kept])
        return {
            "nobs": self.rows,
            "family": self.family,
            "response": self.response,
            "dispersion": self.dispersion,
            "levels": {factor.name: list(factor.levels) for factor in printed.factors},
            "references": {factor.name: printed.references[factor.name] for factor in printed.factors}
            | ({self.response: printed.against} if printed.classes else {}),
            "coding": self.coding,
            "confidence": confidence,
            "vcov": [[value if math.isfinite(value) else None for value in row] for row in covariance.tolist()],
            "not_determined": list(without),
            "notes": [
                *self.compared(printed, without),
                *self.cut_off(printed, lines),
                *([] if self.drawn is None else words(self.pulled(printed))),
            ],
            "clipping": None if self.cut is None else self.cut.data(),
        }


#: Why there is no test.
NOT_DETERMINED = (
    "not determined (the noise hides it, or no row varies along it): more rows, narrower bounds or more epsilon would help"
)


def left_out(printed: PrintedTerms, smaller: Sequence[str]) -> list[int]:
    """Return the printed lines that a smaller model leaves out; it names columns, or coefficients of them."""
    given = {smaller} if isinstance(smaller, str) else set(smaller)
    known = {*printed.terms, *printed.names, *printed.coded.slopes}
    for name in sorted(given):
        if name not in known:
            msg = f"the smaller model names {name!r}, which is none of the columns {listed(sorted({term for term in printed.terms if term}))}"
            raise UsageError(msg)
    left = [k for k, name in enumerate(printed.names) if printed.terms[k] and not {name, printed.terms[k]} & given]
    if not left:
        raise UsageError("the smaller model must leave something out")
    return left
