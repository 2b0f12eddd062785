"""Ordinary mistakes: the page of answers is what Python, study files and R answer today."""

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
    spec = importlib.util.spec_from_file_location("mistakes_of_docs", ROOT / "docs/mistakes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # whose dataclass looks for it there
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_python_and_files_answer(script: ModuleType) -> None:
    """If this fails, run `python docs/mistakes.py`."""
    held = script.kept()
    assert len(script.MISTAKES) == len(held) == 21
    assert script.page(held) == script.PAGE.read_text(encoding="utf-8")


def test_no_mistake_is_taken_and_no_answer_is_python_s_own(script: ModuleType) -> None:
    text = script.PAGE.read_text(encoding="utf-8")
    assert "ACCEPTED" not in text
    assert "Traceback" not in text
    for answer in script.kept():
        assert not any(word in answer for word in ("None", "True", "False", "bounds=", "NoneType")), answer


@pytest.mark.slow
@pytest.mark.skipif("UNPOOLED_PYTHON" not in os.environ or shutil.which("Rscript") is None, reason="with the tests of R")
def test_the_page_is_what_r_answers(script: ModuleType) -> None:
    assert script.in_r() == script.kept()
