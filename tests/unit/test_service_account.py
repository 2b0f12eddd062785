"""Kernels compile for a service account: no home, a package it cannot write to; and leave nothing in common folders (C7)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import unpooled
from unpooled.kernels import compiled

NOBODY = 65534
ROOT = Path(compiled.__file__).parent
KERNELS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in ROOT.rglob("*.py") if path.stem != "__init__"
)
#: Every kernel module, and one kernel that is compiled and run.
WORK = f"""
import os, importlib
assert os.getuid() == {NOBODY}
for name in {KERNELS!r}:
    importlib.import_module("unpooled.kernels." + name)
import numpy as np
from unpooled.kernels.moments import quantise
out = np.empty(3, dtype=np.int64)
quantise(np.array([0.0, 0.5, 9.0]), -1.0, 1.0, 0.0, 1.0, 8.0, out)
assert out.tolist() == [0, 4, 8], out
"""

NOBODYS = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
# It may read what root's interpreter lies under, and write nowhere: the capability covers reading only.
NOBODYS += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]


def possible() -> bool:
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        return False
    return subprocess.run([*NOBODYS, "true"], capture_output=True, check=False).returncode == 0


needs_root = pytest.mark.skipif(
    not possible(), reason="becoming user nobody needs root, its capabilities, and the command setpriv"
)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody can reach: a read-only copy of the package, and an empty temporary folder that everybody can write to."""
    folder = Path(tempfile.mkdtemp(prefix="unpooled-test-"))
    source = Path(unpooled.__file__).parent
    shutil.copytree(source, folder / "src" / "unpooled", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tmp").mkdir()
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    (folder / "tmp").chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def as_nobody(place: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*NOBODYS, sys.executable, "-c", WORK]
    clean = {
        "HOME": "/nonexistent",
        "PATH": os.environ["PATH"],
        "TMPDIR": str(place / "tmp"),
        "PYTHONPATH": str(place / "src"),
    }
    return subprocess.run(
        command, env={**clean, **environment}, cwd="/", capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
@needs_root
def test_every_kernel_is_imported_without_a_place_for_a_cache_and_none_is_made_up(place: Path) -> None:
    done = as_nobody(place)
    assert done.returncode == 0, done.stderr[-2000:]
    assert list((place / "tmp").iterdir()) == []
    assert not list(place.rglob("*.nbc"))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
@needs_root
def test_a_private_folder_that_is_named_is_used(place: Path) -> None:
    cache = place / "tmp" / "cache"
    cache.mkdir(mode=0o700)
    os.chown(cache, NOBODY, NOBODY)
    done = as_nobody(place, NUMBA_CACHE_DIR=str(cache))
    assert done.returncode == 0, done.stderr[-2000:]
    assert list(cache.rglob("*.nbc"))


def test_kernels_are_cached_where_there_is_a_place() -> None:
    from unpooled.kernels.moments import quantise

    assert quantise.stats.cache_path  # type: ignore[attr-defined]


def test_other_errors_of_the_compiler_are_not_hidden(monkeypatch) -> None:
    def fails(**_: object):
        raise RuntimeError("something else")

    monkeypatch.setattr(compiled.numba, "njit", fails)
    with pytest.raises(RuntimeError, match="something else"):
        compiled.njit()(lambda x: x)


def test_no_kernel_decides_for_itself() -> None:
    for path in Path(unpooled.__file__).parent.rglob("*.py"):
        if path.name != "compiled.py":
            text = path.read_text()
            assert "cache=True" not in text
            assert "from numba import" not in text, path
