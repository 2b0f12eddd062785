"""The words of a formula: names, numbers, quoted texts and signs, each with its place, and a reader that goes through them."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

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
