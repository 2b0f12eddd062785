"""Ids as the parties compare them: named normalisers, applied in the declared order; what cannot be an id is refused with its row here.

A key of several columns joins its normalised parts with their lengths, so that no two rows are spelled alike by accident.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from unpooled.errors import RowsError, UsageError, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Of each letter its group in American Soundex; vowels part groups, h and w do not.
_GROUPS = {letter: str(k) for k, group in enumerate(("bfpv", "cgjkqsxz", "dt", "l", "mn", "r"), 1) for letter in group}
_LONG = 4
#: Whole numbers up to here are told apart as floats.
_EXACT = 2.0**53


def soundex(text: str) -> str:
    """American Soundex of the letters a to z: Robert and Rupert are R163, Ashcraft is A261; without such letters empty."""
    plain = unicodedata.normalize("NFD", text).casefold()
    letters = [letter for letter in plain if "a" <= letter <= "z"]
    if not letters:
        return ""
    code, before = letters[0].upper(), _GROUPS.get(letters[0], "")
    for letter in letters[1:]:
        group = _GROUPS.get(letter, "")
        if group and group != before:
            code += group
        if letter not in "hw":
            before = group
    return (code + "000")[:_LONG]


def _digits(text: str) -> str:
    """Return the decimal digits, whichever script they are of, as 0 to 9."""
    return "".join(str(unicodedata.decimal(sign)) for sign in text if unicodedata.decimal(sign, None) is not None)


NORMALISERS: dict[str, Callable[[str], str]] = {
    "nfc": lambda text: unicodedata.normalize("NFC", text),
    "casefold": lambda text: unicodedata.normalize("NFC", text.casefold()),
    "strip": str.strip,
    "digits": _digits,
    "soundex": soundex,
}


def check_names(names: Sequence[str]) -> None:
    """Refuse a normaliser that nobody knows."""
    unknown = [name for name in names if name not in NORMALISERS]
    if unknown:
        msg = f"normalise names {listed(unknown)}: there are {', '.join(NORMALISERS)}"
        raise UsageError(msg)


def normalised(text: str, names: Sequence[str]) -> str:
    """Return one id. It ends in Unicode's form NFC, whatever else is asked for: the hash is of that."""
    for name in names:
        text = NORMALISERS[name](text)
    return unicodedata.normalize("NFC", text)


def keys_of(columns: Sequence[Sequence[object]], names: Sequence[str], key: str) -> list[bytes]:
    """Return the key of every row; blanks, malformed ids and duplicates are refused with the numbers of their rows, counted from 1."""
    found: list[bytes] = []
    blank: list[int] = []
    malformed: list[int] = []
    for row, values in enumerate(zip(*columns, strict=True), 1):
        if any(isinstance(value, float) and abs(value) >= _EXACT for value in values):
            malformed.append(row)  # a number so long that a neighbour of it is written alike: read the column as text
            continue
        parts = [normalised(_text(value), names) for value in values]
        try:
            coded = [part.encode() for part in parts]
        except UnicodeEncodeError:
            malformed.append(row)
            continue
        if not all(parts):
            (malformed if all(_text(value).strip() for value in values) else blank).append(row)
        elif not all(part.isprintable() for part in parts):
            malformed.append(row)
        found.append(b"".join(len(part).to_bytes(8, "big") + part for part in coded))
    _refuse(blank, key, "is blank", "complete it, or leave those rows out")
    _refuse(
        malformed,
        key,
        f"is malformed (nothing is left after {', '.join(names) or 'nfc'}, or it cannot be printed)",
        "correct it",
    )
    first: dict[bytes, int] = {}
    twice = [row for row, one in enumerate(found, 1) if first.setdefault(one, row) != row]
    _refuse(twice, key, "was met in a row before", "keep one row of each person (docs/linkage.md says how)")
    return found


def _text(value: object) -> str:
    """Return a value as it is written: whole numbers without a point, missing ones blank."""
    if value is None or (isinstance(value, float) and value != value):  # noqa: PLR0124 - nan
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _refuse(rows: Sequence[int], key: str, what: str, remedy: str) -> None:
    if rows:
        numbers = listed([str(row) for row in rows])
        msg, outside = (
            f"key {key!r} {what} in row {numbers}: {remedy}",
            f"key {key!r} {what} in a row of a party, which is told which one",
        )
        raise RowsError(msg, outside)
