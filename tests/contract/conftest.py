from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from elsewhere import Declare, declaring

from unpooled.protocol.registry import OWN

#: The name of a case that is no model's plain one: "glm, survival".
VARIANT = re.compile(rf"\b(?:{'|'.join(OWN)}), [a-z ]+")


def _is_variant(item: pytest.Item) -> bool:
    """Return True if a test runs over a variant of a case, or over a published row: `make test-slow` runs it."""
    over = getattr(item, "callspec", None)
    if over is None or not item.path.is_relative_to(Path(__file__).parent):
        return False
    words = item.nodeid.partition("[")[2]
    return "-published" in words or VARIANT.search(words) is not None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In `make test` each model has one case: the plain one of its row."""
    for item in items:
        if _is_variant(item):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Declare]:
    """Install a made-up distribution with one entry point and one module."""
    with declaring(tmp_path, monkeypatch) as made:
        yield made
