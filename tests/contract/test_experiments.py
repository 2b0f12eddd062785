"""The papers' scripts do not rot: each can be imported, has a ``main(full)`` and says in its first line which figure or table it is."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAPERS = ("pride", "stacking", "bayes", "lasso", "pls")
SCRIPTS = sorted(path for paper in PAPERS for path in (ROOT / "experiments" / paper).glob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_script_can_be_imported_and_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    module = importlib.import_module(f"experiments.{path.parent.name}.{path.stem}")
    assert module.__doc__
    assert len(module.__doc__.splitlines()[0]) > 20
    if not path.stem.startswith("_"):
        assert list(inspect.signature(module.main).parameters) == ["full"]


def test_every_paper_has_scripts_and_a_page() -> None:
    assert {path.parent.name for path in SCRIPTS} == set(PAPERS)
    assert {path.stem for path in (ROOT / "docs" / "papers").glob("*.md")} == {*PAPERS, "index"}
