"""Reads a formula by recursive descent, from its words to its terms. No part of the text is ever run as a program."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from unpooled.errors import UsageError
from unpooled.formula.arithmetic import (
    FUNCTIONS,
    Call,
    Expression,
    Name,
    Number,
    Root,
    product,
    total,
)
from unpooled.formula.terms import (
    Addition,
    Category,
    Crossing,
    Degree,
    Factor,
    Leaf,
    Node,
    Numeric,
    Plain,
    Rest,
    Spline,
)
from unpooled.privacy.bounds import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator


# --- Tokens ----------------------------------------------------------------------------------------------------------------
# The words of a formula: names, numbers, quoted texts and signs, each with its place, and a reader that goes through them.

#: Longer texts and deeper parentheses are refused: a study file may come from somebody else.
LONGEST, DEEPEST = 10_000, 40
#: A message quotes this number of characters around the place that it is about.
_QUOTED = 24

_WORD = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<name>[^\W\d]\w*)
    | `(?P<column>[^`\n]+)`
    | '(?P<single>[^'\n]*)' | "(?P<double>[^"\n]*)"
    | (?P<sign>\*\*|%in%|[-~+*/:()\[\],=.^|])
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a formula. ``kind`` is number, name, column (a name in backticks), text, sign, or end."""

    kind: str
    text: str
    at: int


class Reader:
    """The words of a formula in their order, and the place that has been reached."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            msg = f"a formula is a text such as 'y ~ age + C(ward)', not {type(text).__name__}"
            raise UsageError(msg)
        if len(text) > LONGEST:
            msg = f"the formula has {len(text):,} characters: up to {LONGEST:,} are read. Write `.` for all other columns"
            raise UsageError(msg)
        self._text, self._depth = text, 0
        self._words = list(self._split())
        self._place = 0

    def _split(self) -> Iterator[Word]:
        at, end = 0, len(self._text.rstrip())
        while at < end:
            found = _WORD.match(self._text, at)
            if found is None:
                at = end - len(self._text[at:end].lstrip())
                msg = f"{self._text[at]!r} has no meaning in a formula: remove it, or put a column's name in backticks"
                raise self._error(at, msg)
            kind = str(found.lastgroup)
            yield Word("text" if kind in {"single", "double"} else kind, found[kind], found.start(kind))
            at = found.end()
        yield Word("end", "", end)

    @property
    def word(self) -> Word:
        """Return the next word."""
        return self._words[self._place]

    def sees(self, *signs: str) -> bool:
        """Return whether the next word is one of these signs."""
        return self.word.kind == "sign" and self.word.text in signs

    def follows(self, sign: str) -> bool:
        """Return whether this sign comes after the next word."""
        after = self._words[min(self._place + 1, len(self._words) - 1)]
        return after.kind == "sign" and after.text == sign

    def has(self, sign: str) -> bool:
        """Return whether this sign occurs anywhere in the formula."""
        return any(word.kind == "sign" and word.text == sign for word in self._words)

    def take(self) -> Word:
        """Return the next word and go past it."""
        word = self.word
        self._place = min(self._place + 1, len(self._words) - 1)
        return word

    def took(self, *signs: str) -> bool:
        """Go past the next word if it is one of these signs, and return whether it was."""
        found = self.sees(*signs)
        if found:
            self.take()
        return found

    def expect(self, sign: str, why: str) -> None:
        """Go past this sign; refuse any other word."""
        if not self.took(sign):
            msg = f"expected {sign!r} {why}"
            raise self.error(msg)

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Read something inside parentheses, or refuse if they are nested too deeply."""
        self._depth += 1
        if self._depth > DEEPEST:
            msg = f"parentheses and signs are nested more than {DEEPEST} deep: write the formula out"
            raise self.error(msg)
        yield
        self._depth -= 1

    def error(self, problem: str, word: Word | None = None) -> UsageError:
        """Return an error about this word, or about the next one."""
        return self._error((word or self.word).at, problem)

    def _error(self, at: int, problem: str) -> UsageError:
        near = self._text[max(0, at - _QUOTED // 3) : at + _QUOTED].strip()
        return UsageError(f"formula, character {at + 1} (near {near!r}): {problem}")


# --- Refused ---------------------------------------------------------------------------------------------------------------
# Functions that other formulas have and ours refuse: each with the reason and what to write instead.

_MOMENTS = "reads the mean or the spread off the data"
_CUTS = "reads its cut points off the data"
_ORDER = "depends on other rows, and every term must be a function of one row"
_SCALED = "Write public numbers, as in I((age - 50) / 10)"
_SPLINE = "Write ns(x, knots=[...]) or bs(x, knots=[...]) with public knots"
_BINS = "Write C(x, levels=[...]) for a column of few numbers, or cut the column in your data and declare its categories"
_BEFORE = "Compute it in your data and declare the range of the new column"

#: The reason and the remedy, by the name of the function.
REFUSED: Final[dict[str, tuple[str, str]]] = {
    "scale": (_MOMENTS, _SCALED),
    "standardize": (_MOMENTS, _SCALED),
    "standardise": (_MOMENTS, _SCALED),
    "zscore": (_MOMENTS, _SCALED),
    "center": (_MOMENTS, _SCALED),
    "centre": (_MOMENTS, _SCALED),
    "mean": (_MOMENTS, "Write the number itself if it is public"),
    "std": (_MOMENTS, "Write the number itself if it is public"),
    "sd": (_MOMENTS, "Write the number itself if it is public"),
    "min": (_ORDER, "Write the number itself if it is public"),
    "max": (_ORDER, "Write the number itself if it is public"),
    "poly": ("makes its polynomials orthogonal over the data", "Write x + I(x**2) + I(x**3)"),
    "cut": (_CUTS, _BINS),
    "qcut": (_CUTS, _BINS),
    "quantile": (_CUTS, _BINS),
    "ntile": (_CUTS, _BINS),
    "bin": (_CUTS, _BINS),
    "cr": ("takes its knots from the data unless all of them are given", _SPLINE),
    "cs": ("takes its knots from the data unless all of them are given", _SPLINE),
    "cc": ("takes its knots from the data unless all of them are given", _SPLINE),
    "te": ("takes its knots from the data unless all of them are given", _SPLINE),
    "s": ("chooses its knots and its smoothness by the data", _SPLINE),
    "rank": (_ORDER, _BEFORE),
    "lag": (_ORDER, _BEFORE),
    "diff": (_ORDER, _BEFORE),
    "cumsum": (_ORDER, _BEFORE),
    "hashed": ("gives no column a declared meaning", "Declare the categories and write C(x)"),
    "Q": ("is not needed", "Put the column's name in backticks: `blood pressure`"),
    "factor": ("is R's name", "Write C(x), or C(x, ref='b') with a reference level"),
    "relevel": ("is R's name", "Write C(x, ref='b')"),
    "Treatment": ("is not needed", "Write C(x, ref='b')"),
    "Sum": ("is no part of a formula", "All codings give the same fit: choose the coding where the table is printed"),
    "Poly": ("is no part of a formula", "All codings give the same fit: choose the coding where the table is printed"),
    "Diff": ("is no part of a formula", "All codings give the same fit: choose the coding where the table is printed"),
    "Helmert": ("is no part of a formula", "All codings give the same fit: choose the coding where the table is printed"),
    "Surv": ("belongs on the left side", "Write Surv(time, event) ~ age"),
    "np": ("is Python", "Write log(x), not np.log(x)"),
    "log10": ("is not among the functions", "Write I(log(x) / 2.302585092994046)"),
    "log2": ("is not among the functions", "Write I(log(x) / 0.6931471805599453)"),
    "pow": ("is not among the functions", "Write I(x**2)"),
    "abs": ("is not among the functions", _BEFORE),
}

#: Keywords of bs and ns that would read the data, or are settled by what is declared.
REFUSED_KEYWORDS: Final[dict[str, tuple[str, str]]] = {
    "df": ("places the knots at quantiles of the data", "Write knots=[...] with public numbers"),
    "lower_bound": ("is the lower end of the column's declared range", "Leave it out"),
    "upper_bound": ("is the upper end of the column's declared range", "Leave it out"),
    "include_intercept": (
        "is not needed: the constant is a term of its own",
        "Leave it out, or write 0 + to fit without a constant",
    ),
    "intercept": (
        "is not needed: the constant is a term of its own",
        "Leave it out, or write 0 + to fit without a constant",
    ),
}


# --- Expressions -----------------------------------------------------------------------------------------------------------
# Reads arithmetic and the arguments of functions; :mod:`unpooled.formula.parser` reads everything around them.

#: What an argument may be: a number, a text, or a list of them.
Value: TypeAlias = float | str | list[float | str]
#: Terms of their own, which arithmetic cannot hold.
TERMS = ("C", "I", "bs", "ns", "offset")
#: Numbers whose size is larger say nothing about data and would only overflow.
_LARGEST = 1e300


def expression(reader: Reader) -> Expression:
    """Read a sum of products."""
    with reader.deeper():
        summands = [(1, _product(reader))]
        while reader.sees("+", "-"):
            sign = 1 if reader.take().text == "+" else -1
            summands.append((sign, _product(reader)))
        return total(summands)


def _product(reader: Reader) -> Expression:
    factors = [(_signed(reader), 1)]
    while reader.sees("*", "/"):
        exponent = 1 if reader.take().text == "*" else -1
        factors.append((_signed(reader), exponent))
    return product(factors)


def _signed(reader: Reader) -> Expression:
    if not reader.sees("+", "-"):
        return _expression_power(reader)
    with reader.deeper():
        negative = reader.take().text == "-"
        found = _signed(reader)
        return total([(-1, found)]) if negative else found


def _expression_power(reader: Reader) -> Expression:
    base = _expression_atom(reader)
    if not reader.took("**"):
        if reader.sees("^"):
            raise reader.error("powers are written **, as in I(age**2)")
        return base
    word = reader.word
    sign = -1 if reader.took("-") else 1
    if reader.word.kind != "number":
        raise reader.error("an exponent is a number: write exp(...) for a power whose exponent varies")
    exponent = sign * number(reader)
    if reader.sees("**"):
        raise reader.error("a power of a power needs parentheses, as in (x**2)**3")
    if exponent == 0:
        raise reader.error("a power of 0 is 1 in every row: leave it out", word)
    return product([(base, int(exponent))]) if exponent.is_integer() else Root(base, exponent)


def _expression_atom(reader: Reader) -> Expression:
    word = reader.word
    if word.kind == "number":
        return Number(number(reader))
    if reader.took("("):
        found = expression(reader)
        reader.expect(")", "to close the parenthesis")
        return found
    if word.kind == "name" and reader.follows("("):
        if word.text not in FUNCTIONS:
            raise error_of_function(reader, inside=True)
        return function(reader)
    if word.kind in {"name", "column"}:
        return Name(column(reader))
    if word.kind == "sign" and word.text == ".":
        raise reader.error("the dot stands for terms and cannot be computed with: name the column")
    raise reader.error("expected a column, a number or a function here")


def function(reader: Reader) -> Call:
    """Read a function of an expression."""
    name = reader.take().text
    reader.expect("(", "after the function's name")
    argument = expression(reader)
    if reader.sees(","):
        msg = f"{name} takes one argument: log(x, base) is written I(log(x) / log(base)) with the base as a number"
        raise reader.error(msg)
    reader.expect(")", f"to close {name}(")
    return Call(name, argument)


def column(reader: Reader) -> str:
    """Read a column's name, plain or in backticks."""
    word = reader.take()
    if word.kind not in {"name", "column"}:
        raise reader.error("expected a column's name: names that are no identifiers stand in backticks", word)
    if word.text.strip() != word.text:
        raise reader.error("a column's name has no blanks at its ends", word)
    if word.kind == "name" and reader.sees("."):
        if word.text in REFUSED:
            raise error_of_function(reader, word)
        msg = f"a name with a dot stands in backticks, as in `{word.text}.b`; functions are written without a module's name"
        raise reader.error(msg, word)
    return word.text


def number(reader: Reader) -> float:
    """Read a number without a sign."""
    word = reader.take()
    found = float(word.text)
    if not found <= _LARGEST:
        raise reader.error("the number is too large to compute with: write a smaller one", word)
    return found


def error_of_function(reader: Reader, word: Word | None = None, *, inside: bool = False) -> UsageError:
    """Return an error about the function that comes next, with the reason and what to write instead."""
    word = word or reader.word
    if word.text in REFUSED:
        reason, remedy = REFUSED[word.text]
        return reader.error(f"{word.text} {reason}. {remedy}", word)
    if inside and word.text in TERMS:
        return reader.error(
            f"{word.text}(...) is a term of its own, and arithmetic cannot hold it. Write it outside, joined by + or :", word
        )
    known = ", ".join([*FUNCTIONS, *(() if inside else TERMS)])
    return reader.error(
        f"there is no function {word.text}. Known are {known}; compute others in your data and declare the new column's range",
        word,
    )


def arguments(reader: Reader) -> dict[str, Value]:
    """Read ``, name=value`` until the closing parenthesis, and go past it."""
    found: dict[str, Value] = {}
    while reader.took(","):
        word = reader.take()
        if word.kind == "name" and reader.sees("("):
            raise error_of_function(reader, word)
        if word.kind != "name" or not reader.took("="):
            raise reader.error("every argument after the column has a name, as in ref='b' or knots=[2, 5]", word)
        if word.text in found:
            msg = f"{word.text} is given twice: give it once"
            raise reader.error(msg, word)
        found[word.text] = _value(reader)
    reader.expect(")", "or `, name=value`")
    return found


def _value(reader: Reader) -> Value:
    if not reader.took("["):
        return _literal(reader)
    values: list[float | str] = []
    while not reader.took("]"):
        if values:
            reader.expect(",", "or ']' in the list")
        values.append(_literal(reader))
    return values


def _literal(reader: Reader) -> float | str:
    word = reader.word
    sign = -1 if reader.took("-") else 1
    if reader.word.kind == "number":
        return sign * number(reader)
    if word.kind == "text":
        return reader.take().text
    raise reader.error("expected a number, a text in quotes, or a list such as [2, 5]")


# --- Parser ----------------------------------------------------------------------------------------------------------------
# Reads a formula by recursive descent. No part of the text is ever run as a program.
#
# ::
#
#     formula      = [ response "~" ] [ sum ]              response = column | "Surv" "(" column "," column ")"
#     sum          = [ sign ] crossing { sign crossing }   sign = "+" | "-"
#     crossing     = interaction { "*" interaction }
#     interaction  = power { ":" power }
#     power        = atom [ "**" whole number ]
#     atom         = "(" sum ")" | "." | "0" | "1" | column | category | "I" "(" arithmetic ")" | function | spline | offset
#     category     = "C" "(" column { "," ( "ref" | "levels" ) "=" value } ")"
#     spline       = ( "bs" | "ns" ) "(" column "," "knots" "=" list [ "," "degree" "=" whole number ] ")"
#     offset       = "offset" "(" arithmetic ")"
#     function     = ( "log" | "log1p" | "sqrt" | "exp" ) "(" arithmetic ")"
#     arithmetic   = + - * / ** on columns, numbers, functions and parentheses

#: Interactions of more columns than this are refused.
_LARGEST_DEGREE = 10
_LARGEST_SPLINE_DEGREE, _MOST_KNOTS = 5, 100
_RESPONSE = (
    "the response is used as it is declared, one column, so its bounds and its units stay what the parties approved. Write the column alone, "
    "or Surv(time, event); transform it in your data, or choose a family (log link for a log response)"
)


@dataclass
class Parsed:
    """The content of a formula's text: the response's columns, the constant, and the terms and offsets on the right side."""

    response: tuple[str, ...] = ()
    survival: bool = False
    constant: bool = True
    summands: list[tuple[int, Node]] = field(default_factory=list)
    offsets: list[Expression] = field(default_factory=list)


def parse(text: str) -> Parsed:
    """Read a formula; a text that is none is refused with the place and what to write."""
    reader, parsed = Reader(text), Parsed()
    if reader.has("~"):
        parsed.response, parsed.survival = _response(reader)
        reader.expect("~", f"after the response: {_RESPONSE}")
    _right_side(reader, parsed)
    if reader.word.kind != "end":
        raise _error_of_next(reader)
    merged = _merged(parsed, reader)
    parsed.summands = [(sign, node.mapped(merged)) for sign, node in parsed.summands]
    return parsed


def _response(reader: Reader) -> tuple[tuple[str, ...], bool]:
    if reader.sees("~"):
        return (), False
    if reader.word.kind == "name" and reader.follows("("):
        if reader.word.text != "Surv":
            raise reader.error(_RESPONSE)
        word = reader.take()
        reader.expect("(", "after Surv")
        time = column(reader)
        reader.expect(",", "between time and event: Surv(time, event)")
        event = column(reader)
        if reader.sees(","):
            raise reader.error("Surv takes two columns, Surv(time, event): starting times are not supported")
        reader.expect(")", "to close Surv(")
        if time == event:
            raise reader.error("Surv needs two different columns, the time and the event", word)
        return (time, event), True
    if reader.word.kind not in {"name", "column"}:
        raise reader.error(_RESPONSE)
    return (column(reader),), False


def _right_side(reader: Reader, parsed: Parsed) -> None:
    if reader.word.kind == "end":
        raise reader.error("there are no terms: write 1 for a constant alone")
    sign = -1 if reader.sees("-") else 1
    reader.took("+", "-")
    while True:
        if not _constant(reader, parsed, sign) and not _offset(reader, parsed, sign):
            parsed.summands.append((sign, _crossing(reader)))
        if not reader.sees("+", "-"):
            return
        sign = 1 if reader.take().text == "+" else -1


def _constant(reader: Reader, parsed: Parsed, sign: int) -> bool:
    word = reader.word
    if word.kind != "number":
        return False
    value = number(reader)
    if value not in {0, 1} or reader.sees(":", "*", "**", "/"):
        raise reader.error("a number alone is 0 or 1, for no constant or a constant: write I(2 * x) for arithmetic", word)
    if value == 0 and sign < 0:
        raise reader.error("write + 1 for a constant, not - 0", word)
    parsed.constant = value == 1 and sign > 0
    return True


def _offset(reader: Reader, parsed: Parsed, sign: int) -> bool:
    word = reader.word
    if word.kind != "name" or word.text != "offset" or not reader.follows("("):
        return False
    reader.take()
    reader.take()
    found = expression(reader)
    reader.expect(")", "to close offset(")
    if reader.sees(":", "*", "**"):
        raise reader.error("an offset has no coefficient, so it has no products: add it as + offset(...)")
    if sign < 0:
        raise reader.error("an offset is added: write + offset(-x) to subtract x", word)
    if not found.columns:
        raise reader.error("this offset is the same in every row: leave it out", word)
    parsed.offsets.append(found)
    return True


def _sum(reader: Reader) -> Node:
    with reader.deeper():
        sign = -1 if reader.sees("-") else 1
        reader.took("+", "-")
        summands = [(sign, _crossing(reader))]
        while reader.sees("+", "-"):
            sign = 1 if reader.take().text == "+" else -1
            summands.append((sign, _crossing(reader)))
        return summands[0][1] if len(summands) == 1 and sign > 0 else Addition(tuple(summands))


def _crossing(reader: Reader) -> Node:
    parts = [_interaction(reader)]
    while reader.took("*"):
        parts.append(_interaction(reader))
    return parts[0] if len(parts) == 1 else Crossing(tuple(parts))


def _interaction(reader: Reader) -> Node:
    parts = [_power(reader)]
    while reader.took(":"):
        parts.append(_power(reader))
    return parts[0] if len(parts) == 1 else Crossing(tuple(parts), main=False)


def _power(reader: Reader) -> Node:
    base = _atom(reader)
    if not reader.took("**"):
        return base
    word = reader.word
    exponent = number(reader) if word.kind == "number" else 0.5
    if not exponent.is_integer() or not 1 <= exponent <= _LARGEST_DEGREE:
        msg = f"here ** crosses terms up to a degree, a whole number from 1 to {_LARGEST_DEGREE}: write I(x**0.5) for arithmetic"
        raise reader.error(msg, word)
    if reader.sees("**"):
        raise reader.error("a degree has no power: write the degree as one number")
    return Degree(base, int(exponent)) if exponent > 1 else base


def _atom(reader: Reader) -> Node:
    word = reader.word
    if reader.took("("):
        found = _sum(reader)
        reader.expect(")", "to close the parenthesis")
        return found
    if reader.took("."):
        return Leaf(Rest())
    if word.kind == "name" and reader.follows("("):
        return Leaf(_called(reader))
    if word.kind in {"name", "column"}:
        return Leaf(Plain(column(reader)))
    if word.kind == "number":
        raise reader.error("0 and 1 stand outside parentheses, as in y ~ 0 + age: write I(2 * x) for arithmetic")
    raise _error_of_next(reader)


def _called(reader: Reader) -> Factor:
    word = reader.word
    if word.text in FUNCTIONS:
        return _numeric(reader, word, function(reader), marked=False)
    if word.text == "offset":
        raise reader.error("an offset has no coefficient, so it stands alone: add it as + offset(...) outside parentheses")
    readers = {"I": _arithmetic, "C": _category, "bs": _spline, "ns": _spline}
    if word.text not in readers:
        raise error_of_function(reader)
    reader.take()
    reader.expect("(", f"after {word.text}")
    return readers[word.text](reader, word)


def _arithmetic(reader: Reader, word: Word) -> Factor:
    found = expression(reader)
    if reader.sees(":"):
        raise reader.error("inside I(...) a product is written *")
    reader.expect(")", "to close I(")
    return _numeric(reader, word, found, marked=True)


def _numeric(reader: Reader, word: Word, found: Expression, *, marked: bool) -> Factor:
    if not found.columns:
        raise reader.error("this is the same number in every row: write 1 for a constant, or name a column", word)
    return Numeric(found, marked)


def _column_of(reader: Reader, word: Word) -> str:
    name = column(reader)
    if not reader.sees(",", ")"):
        msg = f"{word.text} takes a column's name, not arithmetic: compute the column in your data and declare its range"
        raise reader.error(msg)
    return name


def _category(reader: Reader, word: Word) -> Factor:
    name, given = _column_of(reader, word), arguments(reader)
    reference, levels = given.pop("ref", None), given.pop("levels", None)
    for unknown in given:
        msg = f"C has no argument {unknown}: it takes ref='b' (the level that others are compared with) and levels=[...]"
        raise reader.error(msg, word)
    if isinstance(reference, list) or levels == [] or not isinstance(levels, list | None):
        raise reader.error("write C(x, ref='b', levels=['a', 'b']): one reference and a list of levels", word)
    texts = tuple(map(text_of, levels or ()))
    if len(set(texts)) < len(texts) or len(texts) == 1:
        raise reader.error("levels are at least two, each once", word)
    return Category(name, None if reference is None else text_of(reference), texts)


def _spline(reader: Reader, word: Word) -> Factor:
    name, given = _column_of(reader, word), arguments(reader)
    for unknown in [key for key in given if key not in {"knots", "degree"}]:
        reason, remedy = REFUSED_KEYWORDS.get(unknown, ("is no argument", "Write knots=[...], and degree=... for bs"))
        msg = f"{word.text}: {unknown} {reason}. {remedy}"
        raise reader.error(msg, word)
    if "knots" not in given:
        msg = f"{word.text} would place its knots by the data. Write knots=[...] with public numbers, [] for none"
        raise reader.error(msg, word)
    if word.text == "ns" and "degree" in given:
        raise reader.error("natural splines are cubic: leave degree out", word)
    return Spline(word.text, name, _knots(reader, word, given["knots"]), _degree(reader, word, given.get("degree", 3.0)))


def _knots(reader: Reader, word: Word, given: Value) -> tuple[float, ...]:
    listed = given if isinstance(given, list) else [given]
    knots = tuple(sorted(knot for knot in listed if not isinstance(knot, str)))
    if len(knots) < len(listed) or any(a == b for a, b in pairwise(knots)) or len(knots) > _MOST_KNOTS:
        msg = f"knots are up to {_MOST_KNOTS} different numbers, as in knots=[2, 5]"
        raise reader.error(msg, word)
    return knots


def _degree(reader: Reader, word: Word, given: Value) -> int:
    if not isinstance(given, float) or not given.is_integer() or not 1 <= given <= _LARGEST_SPLINE_DEGREE:
        msg = f"degree is a whole number from 1 to {_LARGEST_SPLINE_DEGREE}"
        raise reader.error(msg, word)
    return int(given)


def _merged(parsed: Parsed, reader: Reader) -> Merging:
    """Return a function that gives every C(x) of a column the reference and the levels that one of them says."""
    said: dict[str, Category] = {}
    for _, node in parsed.summands:
        for factor in node.leaves():
            if isinstance(factor, Category):
                known = said.get(factor.name, factor)
                said[factor.name] = Category(factor.name, known.reference or factor.reference, known.levels or factor.levels)
    for _, node in parsed.summands:
        for factor in node.leaves():
            both = said.get(factor.columns[0]) if isinstance(factor, Category) else None
            if isinstance(factor, Category) and both is not None:
                differs = factor.reference not in {None, both.reference} or factor.levels not in {(), both.levels}
                if differs:
                    msg = f"{factor.text} and {both.text} differ: give a column one reference and one list of levels"
                    raise reader.error(msg)
    return Merging(said)


@dataclass(frozen=True)
class Merging:
    """Gives every C(x) of a column what one of them says."""

    said: dict[str, Category]

    def __call__(self, factor: Factor) -> Factor:
        """Return the factor with the column's reference and levels."""
        return self.said[factor.name] if isinstance(factor, Category) else factor


def _error_of_next(reader: Reader) -> UsageError:
    """Return an error about the next word, which no rule of the grammar allows here."""
    word = reader.word
    said = {
        "/": "nesting is written out: a + a:b instead of a / b, and I(a / b) for a quotient",
        "%in%": "nesting is written out: a + a:b",
        "^": "powers are written **: I(age**2) for values, (a + b)**2 for crossing",
        "|": "random effects are no part of a formula",
        "~": "a formula has one ~, between the response and the terms",
        "=": "an equals sign stands inside a function's parentheses only",
    }
    if word.kind == "sign" and word.text in said:
        return reader.error(said[word.text])
    return reader.error(
        "the formula ends where a term is expected"
        if word.kind == "end"
        else "expected a term, or one of + - * : ** between terms"
    )
