from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Code for the processes of the engine.
collect_ignore = ["inside"]

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "contract")]

from worlds import Rehearsal, make_rehearsal  # noqa: E402 - found through the line above

from unpooled.network.processes import up  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here share one network, so they stay in one process."""
    here = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.xdist_group("network"))


@pytest.fixture(scope="session")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    """One network for one horizontal and one vertical model, up for the whole session: starting it takes seconds."""
    made = make_rehearsal(tmp_path_factory.mktemp("network"), "describe", "pride")
    with up(made.kits):
        yield made
