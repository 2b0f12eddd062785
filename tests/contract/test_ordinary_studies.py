"""Two ordinary studies: the committed page is what plans, Python and R print today."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ordinary_of_docs", ROOT / "docs/ordinary.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # whose dataclass looks for it there
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_page_is_what_plans_and_python_print(script: ModuleType) -> None:
    """If this fails, run `python docs/ordinary.py`."""
    held = script.kept()
    assert len(held) == len(script.ORDINARY) == 2
    assert script.page(held) == script.PAGE.read_text(encoding="utf-8")


def test_every_table_of_the_page_has_the_line_of_the_treatment(script: ModuleType) -> None:
    text = script.PAGE.read_text(encoding="utf-8")
    assert text.count("\ntreatment: new - usual ") == 2 * len(script.ORDINARY)
    assert text.count("  treatment: new - usual ") == len(script.ORDINARY)  # in the plans
    assert "Traceback" not in text


@pytest.mark.slow
@pytest.mark.skipif("UNPOOLED_PYTHON" not in os.environ or shutil.which("Rscript") is None, reason="with the tests of R")
def test_the_page_is_what_r_prints(script: ModuleType) -> None:
    assert script.in_r() == script.kept()
