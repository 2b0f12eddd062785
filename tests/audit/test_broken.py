"""Every audit passes what is honest and catches what is broken on purpose (``broken.py``)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from broken import BROKEN


@pytest.mark.parametrize("what", BROKEN)
def test_it_is_caught_and_its_honest_form_is_not(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        assert not BROKEN[what](patch, broken=False)
    with monkeypatch.context() as patch:
        assert BROKEN[what](patch, broken=True), what


def test_there_are_twenty_at_least() -> None:
    assert len(BROKEN) >= 20
