"""Every audit passes what is honest and catches what is broken on purpose (``broken.py``)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from broken import BROKEN


@pytest.mark.long_for(
    "composition forgotten",
    "fits of the same rows, each at the whole epsilon (Corollary 6)",
    "counts of every cell from the score upwards, priced as counts of single cells (Theorem S.16)",
    "contributions of two arms priced as those of one row that stays in its arm (Theorem E.1)",
    "weighted rows of a table of balance that are not shortened (Theorem E.2)",
    "a label that nobody counted (G2)",
    "PLS as its paper prints it, at a claimed epsilon of 1",
)
@pytest.mark.parametrize("what", BROKEN)
def test_it_is_caught_and_its_honest_form_is_not(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        assert not BROKEN[what](patch, broken=False)
    with monkeypatch.context() as patch:
        assert BROKEN[what](patch, broken=True), what


def test_there_are_twenty_at_least() -> None:
    assert len(BROKEN) >= 20
