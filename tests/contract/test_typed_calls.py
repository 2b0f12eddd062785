"""Type checkers see the exact signatures of the public names, and of no other ones."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CALLS = Path(__file__).with_name("typed_calls.py")


def test_the_stub_is_what_the_declared_parameters_say() -> None:
    """If this fails, run `python docs/public_names.py`."""
    spec = importlib.util.spec_from_file_location("public_names_of_docs", ROOT / "docs/public_names.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.STUB.read_text(encoding="utf-8") == script.stub()


def wrong() -> set[int]:
    return {number for number, line in enumerate(CALLS.read_text().splitlines(), 1) if line.endswith("# wrong")}


def test_the_calls_are_a_hundred_of_which_many_are_wrong() -> None:
    calls = [
        line
        for line in CALLS.read_text().splitlines()
        if line[:1].isalpha() and line.partition("  # ")[0].endswith((")", ".bounds", ".auc"))
    ]
    assert len(calls) >= 100
    assert 30 <= len(wrong()) <= 60


@pytest.mark.long
@pytest.mark.slow
def test_mypy_refuses_the_wrong_calls_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text(CALLS.read_text())
    options = [
        "--strict",
        "--no-error-summary",
        "--hide-error-context",
        "--cache-dir",
        str(tmp_path / "cache"),
        "--config-file",
        str(ROOT / "pyproject.toml"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
    )
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert found == wrong(), done.stdout
