"""Declarations as people type them: age=0:100, smoker=never,former,current, seen=2015-01-01:2024-12-31; and the party file that asks for them."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec
import tomli_w

from unpooled.errors import StudyError, UsageError
from unpooled.privacy.bounds import Column
from unpooled.study.files import PartySection, write_party
from unpooled.study.reading import day

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.privacy.unit import Target
    from unpooled.study.sniff import Sniffed


def declared(texts: Sequence[str], names: Sequence[str]) -> tuple[Column, ...]:
    """Return the typed declarations as columns. A name with ``*`` stands for all of the file's columns that match and are not declared by name."""
    columns = [declaration(text) for text in texts]
    by_name = {column.name for column in columns}
    found: list[Column] = []
    for column in columns:
        if "*" not in column.name or column.name in names:
            found.append(column)
            continue
        alike = [name for name in names if fnmatchcase(name, column.name) and name not in by_name]
        if not alike:
            msg = f"no column of the file is called like {column.name!r}"
            raise StudyError(msg)
        found += [msgspec.structs.replace(column, name=name) for name in alike]
    twice = [name for name, count in Counter(column.name for column in found).items() if count > 1]
    if twice:
        msg = f"column {twice[0]!r} is declared more than once: give each name once"
        raise UsageError(msg).at(column=twice[0])
    return tuple(found)


def declaration(text: str) -> Column:
    """Return one declaration."""
    name, _, rest = text.partition("=")
    rule, _, missing = rest.partition(";")
    how = missing or "refuse"
    try:
        if ":" in rule:
            low, high = rule.split(":")
            first, last = day(low), day(high)
            if first and last:
                days = float((last - first).days)
                return Column(name, 0.0, days, missing=how, dates=f"days since {first}")  # type: ignore[arg-type]
            return Column(name, float(low), float(high), missing=how)  # type: ignore[arg-type]
        if "," in rule:
            return Column(name, categories=tuple(part.strip() for part in rule.split(",")), missing=how)  # type: ignore[arg-type]
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
    msg = f"--column {text!r} is not NAME=LOW:HIGH or NAME=A,B,C (with ;absent or ;indicator for missing values)"
    raise UsageError(msg)


def template(party: PartySection, sniffed: Sniffed, budget: Target) -> str:
    """Return a party file in which every column of the data waits for its declaration, in comments."""
    others = {party.id, party.household, *party.labels}
    waiting = [(column, kind) for column, kind in sniffed.kinds.items() if column not in others]
    lines = [
        "\n# Declare each column that studies may use: take the # away and give what is POSSIBLE, not what you see in the file.",
        "# A range read off the data gives data away. Then: unpooled party init --config party.toml",
    ]
    for column, kind in waiting:
        lines += ["", "# [[columns]]", f"# {tomli_w.dumps({'name': column}).strip()}    # {kind}"]
        lines += [f"# {line}" for line in _wanted(kind)]
        lines += ['# missing = "refuse"             # or "absent", "indicator"']
    text = write_party(party, (), budget, sniffed.form, template="\n".join(lines) + "\n")
    return f"# The party {party.name!r}: what it declares of its data, and what it allows. docs/studies.md explains every key.\n{text}"


def _wanted(kind: str) -> tuple[str, ...]:
    if kind.startswith("text"):
        return ('categories = ["A", "B"]',)
    if kind == "true or false":
        return ('categories = ["false", "true"]',)
    if kind == "dates":
        return ('dates = "days since 2000-01-01"  # or weeks, months, years', "low = 0.0", "high = 9999.0")
    return ("low = 0.0", "high = 1.0")
