"""Reads arithmetic and the arguments of functions; :mod:`unpooled.formula.parser` reads everything around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from unpooled.errors import UsageError
from unpooled.formula.arithmetic import FUNCTIONS, Call, Expression, Name, Number, Root, product, total
from unpooled.formula.refused import REFUSED

if TYPE_CHECKING:
    from unpooled.formula.tokens import Reader, Word

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
        return _power(reader)
    with reader.deeper():
        negative = reader.take().text == "-"
        found = _signed(reader)
        return total([(-1, found)]) if negative else found


def _power(reader: Reader) -> Expression:
    base = _atom(reader)
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


def _atom(reader: Reader) -> Expression:
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
