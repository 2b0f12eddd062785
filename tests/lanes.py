"""Lanes for some parameters of a test: ``@pytest.mark.slow_for("pride-cv")`` marks these as slow, ``slow_but`` all others; so do ``long_for``, ``long_but``.

Each word is a test's parameters as pytest prints them between brackets. A page of the documentation is slow where it ends in ``<!-- slow -->``.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

#: Marks that some parameters of a test may have.
MARKS = ("slow", "long")
#: The last line of a page whose examples take seconds.
SLOW_PAGE = "<!-- slow -->\n"


def mark(config: pytest.Config, items: list[Any]) -> None:
    """Mark every test whose parameters are named, and fail where a word names none any more."""
    fits: dict[tuple[str, str, str], bool] = defaultdict(bool)
    for item in items:
        if item.path.suffix == ".md" and item.path.read_text().endswith(SLOW_PAGE):
            item.add_marker("slow")
        for lane in MARKS:
            for kind in ("for", "but"):
                for found in item.iter_markers(f"{lane}_{kind}"):
                    for word in found.args:
                        fits[item.nodeid.partition("[")[0], found.name, word] |= word == item.callspec.id
                    if (item.callspec.id in found.args) == (kind == "for"):
                        item.add_marker(lane)
    whole = not config.getoption("lf", default=False) and not any("[" in word for word in config.args)
    if whole and (stale := [place for place, fitting in fits.items() if not fitting]):
        raise pytest.UsageError(
            "\n".join(f"{test}: {name} names {word!r}, which is no parameter" for test, name, word in stale)
        )
