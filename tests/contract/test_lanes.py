"""Lanes of tests and what they cost: tests/cpu_seconds.toml says it, in CPU seconds by folder, and stays true within a tenth."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest
from cpu_seconds import FILE, LANES, LONG, MEASURED, SLOW, folder

COSTS: dict[str, dict[str, dict[str, int]]] = tomllib.loads(FILE.read_text())
#: The most CPU seconds of a lane: four minutes on two cores for `make test`, and ten seconds for each of the six issues that ended since.
MOST = {"test": 2 * (240 + 6 * 10)}


def seconds(lane: str) -> int:
    return sum(cost["seconds"] for cost in COSTS[lane].values())


def test_every_lane_is_there_and_inside_its_limit() -> None:
    assert tuple(COSTS) == LANES
    for lane, most in MOST.items():
        assert seconds(lane) <= most, (
            f"`make {lane}` takes {seconds(lane)} CPU seconds: move tests that nothing rests on to test-slow"
        )


def test_the_file_counts_the_tests_that_are_collected(request: pytest.FixtureRequest) -> None:
    """Only in a run of the whole lane: `make seconds` renews the file."""
    collected = Counter(folder(item.nodeid) for item in request.session.items)
    if sum(collected.values()) < 0.95 * sum(cost["tests"] for cost in COSTS["test"].values()):
        pytest.skip("part of the lane")
    for name, count in collected.items():
        said = COSTS["test"].get(name, {"tests": 0})["tests"]
        assert abs(count - said) <= max(10, 0.1 * said), (
            f"{name} has {count} tests and the file says {said}: run `make seconds`"
        )


@pytest.mark.parametrize("listed", [LONG, MEASURED, SLOW], ids=lambda file: file.stem)
def test_every_test_that_a_list_names_is_there(listed: Path) -> None:
    for nodeid in {line.partition("[")[0] for line in listed.read_text().splitlines()}:
        file, name = Path(nodeid.partition("::")[0]), nodeid.rpartition("::")[2]
        assert file.is_file(), nodeid
        if name.startswith("test_"):  # else a page, or the example of a docstring
            text = file.read_text()
            assert f"def {name}(" in text or ("unpooled.testing." in text and "import *" in text), nodeid
