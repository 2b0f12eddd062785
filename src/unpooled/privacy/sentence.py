"""A sentence of a statement: words for people, and the key and the values that a plan's hash holds in place of the words."""

from __future__ import annotations

import re
from typing import Any, Self

from unpooled.errors import UsageError

_KEY = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*")


class Sentence(str):
    """Text made of a template and its values. Improving or translating the words leaves every approval as it is.

    >>> said = Sentence("example.rows", "The coordinator sees {rows} rows.", rows=3)
    >>> str(said), said.identity
    ('The coordinator sees 3 rows.', ('example.rows', (('rows', 3),)))
    """

    __slots__ = ("key", "template", "values")
    key: str
    template: str
    values: dict[str, Any]

    def __new__(cls, key: str, template: str, /, **values: float | str) -> Self:
        """Fill the template with the values; every value stands in the template."""
        if not _KEY.fullmatch(key):
            msg = f"the key of a sentence is lowercase words joined by dots and hyphens, not {key!r}"
            raise UsageError(msg)
        unused = [name for name in values if not re.search(rf"\{{{name}[}}:!.]", template)]
        if unused:
            msg = f"sentence {key!r} does not say its value {unused[0]!r}: put it into the words, or leave it out"
            raise UsageError(msg)
        made = super().__new__(cls, template.format(**values))
        made.key, made.template, made.values = key, template, values
        return made

    @property
    def identity(self) -> tuple[str, tuple[tuple[str, Any], ...]]:
        """Return the key and the values by name: what the hash of a plan holds."""
        return self.key, tuple(sorted(self.values.items()))

    def __getnewargs_ex__(self) -> tuple[tuple[str, str], dict[str, Any]]:
        """Return what makes this sentence again, for copies and pickles."""
        return (self.key, self.template), self.values
