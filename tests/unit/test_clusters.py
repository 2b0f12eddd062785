"""Rows as shards: the same bits whoever adds them up, and refusals before anything is debited."""

from __future__ import annotations

from pathlib import Path

import pytest
from asked import bits
from clusters import Here, in_shards

NAMES = (
    "describe", "bayes", "glm", "glm, multinomial", "glm, survival", "pls", "pls, two responses", "diagnose", "diagnose, classes",
    "pride", "pride, cox", "lasso", "lasso, moments",
)


@pytest.fixture(scope="module")
def cases():
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
    from cases import CASES

    return CASES


@pytest.mark.parametrize("name", NAMES)
def test_releases_are_the_same_bits_in_memory_and_in_shards(name: str, cases, tmp_path: Path) -> None:
    case, engine = cases[name](), Here()
    cards = {card.name: card.columns for card in case.study.parties}
    shards = {n: in_shards(t, n, tmp_path, engine, columns=cards[n]) for n, t in case.tables.items()}
    assert bits(case.study, shards) == bits(case.study, case.tables)
    asked = [task for task in engine.tasks if task.work is not None]
    print(name, len(engine.tasks), {type(t.work).__name__ + ":" + getattr(getattr(t.work, "statistic", None), "__name__", "") for t in asked})
