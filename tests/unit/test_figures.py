"""The figures of pages and notebooks: what is drawn, what is said to those who cannot see it, and the style that all share."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest

from unpooled.privacy.ledger.spending import Balance, Spending
from unpooled.privacy.unit import Target
from unpooled.report import figures

ALLOWED = Target(5.0, 1e-6)


def heard(drawn: figures.Drawn) -> str:
    """What those hear who cannot see a figure; both of its widths are drawn, and say the same."""
    said = {ET.fromstring(text).attrib["aria-label"] for text in (drawn.wide, drawn.narrow)}
    assert len(said) == 1
    return said.pop()


def texts(text: str) -> list[str]:
    """The words inside a figure."""
    return [
        one for one in ("".join(e.itertext()).strip() for e in ET.fromstring(text).iter() if e.tag.endswith("}text")) if one
    ]


def balances(count: int, unknown: int = -1, about: str = "study {}", time: int = 1_700_000_000) -> list[Balance]:
    found = []
    for k in range(count):
        known, hidden = math.sqrt(k + 1) / 10, 0 <= unknown <= k
        found.append(
            Balance(
                f"{k:064x}",
                time and time + 86400 * k,
                about.format(k),
                Spending(math.inf if hidden else known, known, int(hidden)),
            )
        )
    return found


def test_the_budget_chart_names_every_study_and_what_is_allowed() -> None:
    drawn = figures.budget(balances(3), ALLOWED, Spending(0.5, 0.5, 0))
    for text in (drawn.wide, drawn.narrow):
        inside = " ".join(texts(text))
        for words in ("study 0", "study 2", "2023-11-16", "allowed: epsilon = 5", "after this plan", "0.173", "0.5"):
            assert words in inside
        assert "stroke-dasharray" in text
    said = heard(drawn)
    assert "3 studies; after study 0 (2023-11-14) epsilon = 0.1;" in said
    assert said.endswith("after this plan epsilon = 0.5.")
    assert figures.budget(balances(3), ALLOWED) == figures.budget(balances(3), ALLOWED)


@pytest.mark.parametrize("count", [0, 1, 200])
def test_the_budget_chart_works_with_any_number_of_studies(count: int) -> None:
    drawn = figures.budget(balances(count), ALLOWED)
    named = [text for text in texts(drawn.wide) if text.startswith("study")]
    assert min(count, 20) <= len(named) <= min(count, 31)
    assert ("No study was charged yet" in heard(drawn)) == (count == 0)
    assert len(heard(drawn)) < 2000
    assert float(re.search(r'height="([\d.]+)pt"', drawn.wide)[1]) < 1000


def test_the_budget_chart_says_what_is_not_known() -> None:
    drawn = figures.budget(balances(4, unknown=2, time=0), Target(5.0, 1e-6, "attribute"))
    assert texts(drawn.wide).count("cost unknown") == 1
    assert "after study 2 unbounded (1 study of unknown cost" in heard(drawn)
    assert "one value of one person" in heard(drawn)
    assert not re.search(r"\d{4}-\d\d-\d\d", " ".join(texts(drawn.wide)))
    drawn = figures.budget([], ALLOWED, Spending(math.inf, 0.3, 1))
    assert texts(drawn.wide).count("cost unknown") == 1


@pytest.mark.parametrize("about", ["", "x" * 400, "$x_1$ & <b>", "Größe 高さ"])
def test_the_budget_chart_writes_any_name(about: str) -> None:
    drawn = figures.budget(balances(2, about=about), ALLOWED)
    assert (about or "000000000000") in heard(drawn)
    for text in (drawn.wide, drawn.narrow):
        assert any(one.startswith(about[:12] or "plan 0") for one in texts(text))
