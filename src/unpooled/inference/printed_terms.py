"""The lines of a table: which combinations of the fitted coefficients are printed, under which names, and what a contrast in words means.

Only differences of levels have a value of their own, so these are printed: each level against the reference, or (``coding="sum"``) against
the mean of all levels; the others columns of categories are held at their references (or means). The constant is that of such a row.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.inference.coding import TIME, Categories, CodedTerms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]

TREATMENT, SUM = "treatment", "sum"
CODINGS = (TREATMENT, SUM)
#: In a contrast of levels, the mean of all of them.
_MEAN = "mean"
_NUMBER = re.compile(r"\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*\*\s*")
_VALUE = re.compile(r"\s*=\s*([+-]?\d*\.?\d+(?:[eE][+-]?\d+)?)\s*")


def check_coding(coding: str, reference: Mapping[str, str], levels: Mapping[str, Sequence[str]]) -> None:
    """Refuse a coding that does not exist, and a reference that is no level of a column of categories."""
    if coding not in CODINGS:
        msg = f"coding is one of {listed(list(CODINGS))}, not {coding!r}"
        raise UsageError(msg)
    for name, level in reference.items():
        if name not in levels:
            known = f"one of {listed(list(levels))}" if levels else "and this model has none"
            msg = f"reference names {name!r}: it names a column of categories, {known}"
            raise UsageError(msg)
        if str(level) not in levels[name]:
            msg = f"the reference of {name!r} is one of its declared levels, {listed(list(levels[name]))}, not {level!r}"
            raise UsageError(msg)


def class_terms(labels: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the coefficients of several classes, class after class."""
    return tuple(f"{label}: {name}" for label in labels for name in names)


@dataclass(frozen=True)
class PrintedTerms:
    """Names and weights of the printed lines, and the names that contrasts may use."""

    names: tuple[str, ...]
    #: A row for each printed line over all fitted coefficients.
    weights: Matrix
    #: The term of the model that each line belongs to; empty for a constant.
    terms: tuple[str, ...]
    coded: CodedTerms
    #: The level that the others of each column are compared with.
    references: Mapping[str, str]
    coding: str = TREATMENT
    #: Of a model with several classes: their labels, and the one that the others are compared with.
    classes: tuple[str, ...] = ()
    against: str = ""

    @property
    def slopes(self) -> NDArray[np.bool_]:
        """Which lines are no constants."""
        return np.array([bool(term) for term in self.terms], dtype=np.bool_)

    @property
    def factors(self) -> tuple[Categories, ...]:
        """Return the columns of categories."""
        return tuple(factor for factor in self.coded.factors if factor.name != TIME)

    def without_constants(self) -> PrintedTerms:
        """Return the lines that belong to a term of the model."""
        kept = self.slopes
        names, terms = (tuple(np.array(words)[kept].tolist()) for words in (self.names, self.terms))
        return replace(self, names=names, terms=terms, weights=self.weights[kept])

    def of_classes(self, labels: tuple[str, ...], against: str) -> PrintedTerms:
        """Return the lines of every other class against this one; the fitted coefficients stand class after class."""
        others = [label for label in labels if label != against]
        found = replace(self, classes=labels, against=against, terms=self.terms * len(others))
        rows = [found.placed(row, label) for label in others for row in self.weights]
        return replace(found, names=class_terms(others, self.names), weights=np.array(rows))

    def placed(self, row: Row, label: str) -> Row:
        """Return weights over the coefficients of one linear predictor as weights over all of them."""
        if not self.classes:
            return row
        if not label:
            msg = f'several classes have a coefficient each: begin a contrast with one of them, as in "{self.classes[-1]}: ..."'
            raise UsageError(msg)
        if label == self.against:
            msg = f"class {label!r} is the one that the others are compared with: name another class, or another one to compare with"
            raise UsageError(msg)
        of_class = np.array([(name == label) - (name == self.against) for name in self.classes], dtype=np.float64)
        return np.asarray(np.kron(of_class, row))

    # --- contrasts -------------------------------------------------------------------------------------------------------

    def contrasts(self, asked: Any) -> tuple[tuple[str, ...], Matrix, Row]:  # noqa: ANN401 - words, mappings, rows
        """Return (names, weights, values that they are compared with) of what was asked: words, mappings from names, or rows of weights."""
        if isinstance(asked, (str, Mapping)):
            asked = [asked]
        rows = list(asked) if isinstance(asked, (list, tuple)) else None
        if rows is None or not rows or not all(isinstance(row, (str, Mapping)) for row in rows):
            return self._of_numbers(asked)
        found: list[tuple[str, Row, float]] = []
        for row in rows:
            found += self._of_words(row) if isinstance(row, str) else [self._of_mapping(row)]
        names, weights, values = zip(*found, strict=True)
        return names, np.array(weights), np.array(values)

    def is_column(self, asked: object) -> bool:
        """Return True if the argument names a column of categories alone (of a class, where there are several)."""
        return isinstance(asked, str) and self._factor_of(self._class_of(asked.strip())[1]) is not None

    def _factor_of(self, text: str) -> Categories | None:
        return next((f for f in self.factors if f.name == text.strip().strip("`")), None)

    def _of_numbers(self, asked: Any) -> tuple[tuple[str, ...], Matrix, Row]:  # noqa: ANN401
        width, slopes = self.weights.shape[1], len(self.coded.slopes)
        try:
            weights = np.atleast_2d(np.asarray(asked, dtype=np.float64))
        except (TypeError, ValueError):
            raise UsageError(
                'a contrast is words ("ward: b - a"), a mapping from names to weights, or a row of weights'
            ) from None
        if weights.ndim != 2 or weights.shape[1] not in {width, slopes} or not weights.size:  # noqa: PLR2004
            msg = (
                f"a contrast has a weight for each of the {slopes} coefficients (the intercept has none), or for all {width}"
            )
            raise UsageError(msg)
        whole = np.zeros((weights.shape[0], width))
        whole[:, : weights.shape[1]] = weights
        return tuple(f"contrast {k + 1}" for k in range(len(whole))), whole, np.zeros(len(whole))

    def _of_mapping(self, row: Mapping[str, float]) -> tuple[str, Row, float]:
        weights = np.zeros(self.weights.shape[1])
        for name, weight in row.items():
            weights += float(weight) * self._named(name)
        said = " + ".join(f"{weight:g} {name}" for name, weight in row.items()).replace("+ -", "- ")
        return said, weights, 0.0

    def _named(self, name: str) -> Row:
        """Return the weights of a fitted coefficient, or of a printed line, by its name."""
        label, own = self._class_of(name)
        if own in self.coded.names:
            return self.placed(np.eye(len(self.coded.terms))[self.coded.names.index(own)], label)
        if name in self.names:
            return np.asarray(self.weights[self.names.index(name)])
        msg = f"a contrast names {name!r}, which is none of the coefficients {listed(list(self.coded.slopes))}"
        raise UsageError(msg)

    def _class_of(self, name: str) -> tuple[str, str]:
        """Return ("sick", "age") of "sick: age" where there are several classes."""
        for label in sorted(self.classes, key=len, reverse=True):
            if name.startswith(f"{label}: "):
                return label, name[len(label) + 2 :]
        return "", name

    def _of_words(self, text: str) -> list[tuple[str, Row, float]]:
        """Return every contrast of "ward: b - a, c - a" or "2 * age - dose = 1"; a column of categories alone means all its lines."""
        if text.strip() in self.names:
            return [(text.strip(), np.asarray(self.weights[self.names.index(text.strip())]), 0.0)]
        label, rest = self._class_of(text.strip())
        prefix = f"{label}: " if label else ""
        factor = self._factor_of(rest)
        if factor is not None:
            base = self.references[factor.name]
            own = {level: self._level(factor, level) for level in factor.levels}
            others = [level for level in factor.levels if level != base]
            return [(f"{prefix}{factor.name}: {x} - {base}", self.placed(own[x] - own[base], label), 0.0) for x in others]
        found: list[tuple[str, Row, float]] = []
        scope: Categories | None = None
        while True:
            inner = self._factor_at(rest)
            if inner is not None:
                scope, rest = inner
            weights, said, rest = self._expression(rest, scope, text)
            value = _VALUE.match(rest)
            if value:
                rest = rest[value.end() :]
            head = f"{prefix}{scope.name}: " if scope else prefix
            found.append((f"{head}{said}", self.placed(weights, label), float(value[1]) if value else 0.0))
            rest = rest.strip()
            if not rest:
                return found
            if rest[0] != ",":
                raise _unread(text, rest)
            rest = rest[1:]

    def _level(self, factor: Categories, level: str) -> Row:
        """Return the weights of rows of this level apart from the constant (without one, all weights); other columns are held as in the table."""
        bases = _bases(self.coded, self.references, self.coding)
        if not _has_constant(self.coded):
            return _weights(self.coded, "", {}, bases | {factor.name: {level: 1.0}})
        return _weights(self.coded, "", {factor.name: {level: 1.0}}, bases)

    def _factor_at(self, text: str) -> tuple[Categories, str] | None:
        """Return the column of categories with which "ward: b - a" begins, and what follows the colon."""
        text = text.lstrip()
        for factor in sorted(self.factors, key=lambda f: -len(f.name)):
            for name in (factor.name, f"`{factor.name}`"):
                if text.startswith(name) and text[len(name) :].lstrip().startswith(":"):
                    return factor, text[len(name) :].lstrip()[1:]
        return None

    def _expression(self, text: str, scope: Categories | None, whole: str) -> tuple[Row, str, str]:
        """Return (weights, its words, what is left) of a sum of weighted names."""
        names = self._numbers
        if scope is not None:
            names = {level: self._level(scope, level) for level in scope.levels}
            names.setdefault(_MEAN, np.mean(list(names.values()), axis=0))
        weights, said, first = np.zeros(len(self.coded.terms)), "", True
        while True:
            text = text.lstrip()
            sign = 1.0
            if text[:1] in {"+", "-"}:
                sign, text = (-1.0 if text[0] == "-" else 1.0), text[1:]
            elif not first:
                return weights, said, text
            times = _NUMBER.match(text)
            if times:
                text = text[times.end() :]
            size = float(times[1]) if times else 1.0
            name, text = _name(text, tuple(names), whole)
            weights = weights + sign * size * names[name]
            said += (" - " if sign < 0 else " + ") if not first else ("-" if sign < 0 else "")
            said += (f"{size:g} * " if times else "") + name
            first = False

    @property
    def _numbers(self) -> dict[str, Row]:
        """Return the lines of numbers by name, and the fitted coefficients that have none."""
        found = dict(zip(self.coded.names, np.eye(len(self.coded.terms)), strict=True))
        bases = _bases(self.coded, self.references, self.coding)
        return found | {t.number: _weights(self.coded, t.number, {}, bases) for t in self.coded.terms if t.number}


def _name(text: str, names: Sequence[str], whole: str) -> tuple[str, str]:
    """Return the longest of these names with which the text begins, quoted or not, and what follows it."""
    text = text.lstrip()
    for name in sorted(names, key=len, reverse=True):
        for written in (f"`{name}`", f"'{name}'", f'"{name}"', name):
            after = text[len(written) : len(written) + 1]
            if text.startswith(written) and (not after or after in " ,=+-*:"):
                return name, text[len(written) :]
    raise _unread(whole, text, names)


def _unread(whole: str, at: str, names: Sequence[str] = ()) -> UsageError:
    known = f"; known here: {listed(list(names))}" if names else ""
    form = '"ward: b - a" for levels of a column, "2 * age - dose" for numbers'
    return UsageError(f"the contrast {whole!r} cannot be read at {at[:40]!r}: write {form}{known}")


# --- lines ---------------------------------------------------------------------------------------------------------------


def printed_terms(coded: CodedTerms, reference: Mapping[str, str] | None = None, coding: str = TREATMENT) -> PrintedTerms:
    """Return the lines of one linear predictor."""
    asked = {name: str(level) for name, level in (reference or {}).items()}
    check_coding(coding, asked, {factor.name: factor.levels for factor in coded.factors if factor.name != TIME})
    references = {factor.name: asked.get(factor.name, factor.reference) for factor in coded.factors}
    bases = _bases(coded, references, coding)
    # Without a constant the first column whose levels add up to 1 has a line for each level.
    own = "" if _has_constant(coded) else next((factor.name for factor in coded.factors if factor.whole), "")
    lines: dict[str, tuple[Row, str]] = {}
    for term in coded.terms:
        for cells in _within(term.cells):
            if not term.number and not cells and (term.term or term.cells):
                continue  # the constant, which is not this term's
            alone = len(cells) == 1 and not term.number and cells[0][0] in {TIME, own}
            held = bases | {name: {level: 1.0} for name, level in cells if alone}
            compared = {} if alone else {name: _compared(coded.factor(name), level, bases[name]) for name, level in cells}
            if any(not any(weights.values()) for weights in compared.values()):
                continue
            pieces = [_said(name, level, references[name], coding, alone=alone) for name, level in cells]
            said = " * ".join(
                [
                    *([term.number] if term.number else []),
                    *(f"({p})" if len(pieces) > 1 or term.number else p for p in pieces),
                ]
            )
            lines.setdefault(said or term.name, (_weights(coded, term.number, compared, held), term.term))
    names, found = tuple(lines), list(lines.values())
    weights = np.array([row for row, _ in found]).reshape(len(names), len(coded.terms))
    return PrintedTerms(names, weights, tuple(owner for _, owner in found), coded, references, coding)


def _has_constant(coded: CodedTerms) -> bool:
    return any(not term.term for term in coded.terms)


def _compared(factor: Categories, level: str, base: Mapping[str, float]) -> dict[str, float]:
    """Return the weights of a level, minus those of the base that levels are compared with."""
    return {x: (x == level) - base.get(x, 0.0) for x in factor.levels}


def _said(name: str, level: str, reference: str, coding: str, *, alone: bool) -> str:
    if alone:
        return level if name == TIME else f"{name}: {level}"
    return f"{name}: {level} - {reference if coding == TREATMENT else _MEAN}"


def _within(cells: tuple[tuple[str, str], ...]) -> list[tuple[tuple[str, str], ...]]:
    """Return the subsets of some cells, smaller ones first: a product with levels has an effect at the references, too."""
    return [some for size in range(len(cells) + 1) for some in itertools.combinations(cells, size)]


def _bases(coded: CodedTerms, references: Mapping[str, str], coding: str) -> dict[str, dict[str, float]]:
    """Return the base of each column of categories, where it is not compared: its reference level, or the mean of its levels."""
    if coding == TREATMENT:
        return {factor.name: {references[factor.name]: 1.0} for factor in coded.factors}
    return {factor.name: dict.fromkeys(factor.levels, 1 / len(factor.levels)) for factor in coded.factors}


def _weights(
    coded: CodedTerms, number: str, compared: Mapping[str, Mapping[str, float]], bases: Mapping[str, Mapping[str, float]]
) -> Row:
    """Return the part of the linear predictor that goes with this number, compared over levels of some columns, at the base of the others."""
    weights = np.zeros(len(coded.terms))
    for at, term in enumerate(coded.terms):
        if term.number == number and term.factors >= compared.keys():
            weights[at] = np.prod([compared.get(name, bases[name]).get(level, 0.0) for name, level in term.cells])
    return weights
