"""Reads a formula by recursive descent. No part of the text is ever run as a program.

::

    formula      = [ response "~" ] [ sum ]              response = column | "Surv" "(" column "," column ")"
    sum          = [ sign ] crossing { sign crossing }   sign = "+" | "-"
    crossing     = interaction { "*" interaction }
    interaction  = power { ":" power }
    power        = atom [ "**" whole number ]
    atom         = "(" sum ")" | "." | "0" | "1" | column | category | "I" "(" arithmetic ")" | function | spline | offset
    category     = "C" "(" column { "," ( "ref" | "levels" ) "=" value } ")"
    spline       = ( "bs" | "ns" ) "(" column "," "knots" "=" list [ "," "degree" "=" whole number ] ")"
    offset       = "offset" "(" arithmetic ")"
    function     = ( "log" | "log1p" | "sqrt" | "exp" ) "(" arithmetic ")"
    arithmetic   = + - * / ** on columns, numbers, functions and parentheses
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from unpooled.errors import UsageError
from unpooled.formula.arithmetic import FUNCTIONS, Expression
from unpooled.formula.expressions import (
    Value,
    arguments,
    column,
    error_of_function,
    expression,
    function,
    number,
)
from unpooled.formula.factors import Category, Factor, Numeric, Plain, Rest, Spline
from unpooled.formula.refused import REFUSED_KEYWORDS
from unpooled.formula.terms import Addition, Crossing, Degree, Leaf, Node
from unpooled.formula.tokens import Reader
from unpooled.privacy.bounds import text_of

if TYPE_CHECKING:
    from unpooled.formula.tokens import Word

#: Interactions of more columns than this are refused.
_LARGEST_DEGREE = 10
_LARGEST_SPLINE_DEGREE, _MOST_KNOTS = 5, 100
_RESPONSE = (
    "the response is used as it is declared, so its bounds and its units stay what the parties approved. Write the column alone, "
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
