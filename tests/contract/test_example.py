"""The worked example of "Adding a model in an hour": it runs, its page is true, and its own tests pass where it is installed as a package."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from elsewhere import Declare

from unpooled.estimation.base import StudyEstimator
from unpooled.protocol.registry import Model, ResultReading

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "private_correlation"
SOURCE = EXAMPLE / "src" / "private_correlation"
PAGE = ROOT / "docs" / "adding-a-model.md"


def test_it_runs_from_a_checkout(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SOURCE.parent))
    runpy.run_path(str(ROOT / "examples" / "run_private_correlation.py"))
    for name in [name for name in sys.modules if name.startswith("private_correlation")]:
        monkeypatch.delitem(sys.modules, name)
    shown = capsys.readouterr().out
    assert "correlation of age and pressure" in shown
    assert "Differentially private with epsilon = 1" in shown


def test_the_page_says_which_letters_are_taken_and_which_hooks_there_are() -> None:
    """Letters of theorems are those of the package's pages; the example's own is free."""
    from test_citations import headings, pages

    page = PAGE.read_text()
    (said,) = re.findall(r"letters ([A-Z, ]+ and [A-Z]) are taken", page)
    assert re.findall("[A-Z]", said) == sorted({number[0] for number in headings(pages())})
    (own,) = {number[0] for number in headings({"": (SOURCE / "THEORY.md").read_text()})}
    assert own not in said
    table = page.partition("| hook of the estimator |")[2].partition("\n\n")[0]
    hooks = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert len(hooks) >= 7
    assert [hook for hook in hooks if not hasattr(StudyEstimator, hook) and hook not in StudyEstimator.__annotations__] == []
    for kind, required in ((Model, 4), (ResultReading, 0)):
        table = page.partition(f"| field of `{kind.__name__}` |")[2].partition("\n\n")[0]
        assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(kind.__dataclass_fields__)[required:]


def pytest_of(python: Path | str, folder: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder in a process of its own, as the author of a package does."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_", "PYTHONPATH"))}
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, env=kept | more, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.slow
def test_its_tests_pass_in_a_fresh_environment_into_which_it_is_installed(tmp_path: Path) -> None:
    """The environment sees the pinned packages of this one; unpooled and the example are installed into it, without a network."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    (site,) = (tmp_path / "env" / "lib").glob("python3*/site-packages")
    pinned = [place for place in sys.path if place.endswith("site-packages")]
    (site / "zz_pinned.pth").write_text("\n".join([*pinned, sysconfig.get_paths()["purelib"]]) + "\n")
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-build-isolation",
    ]
    for package in (ROOT, EXAMPLE):
        subprocess.run(
            [*install, "--no-index", "--prefix", str(tmp_path / "env"), "--ignore-installed", str(package)], check=True
        )
    where = "import unpooled, private_correlation as p; print(unpooled.__file__, p.__file__, p.MODEL.compile is not None)"
    found = subprocess.run([python, "-c", where], cwd=tmp_path, env={}, capture_output=True, text=True, check=True).stdout
    assert found.count(str(site)) == 2, "both are installed, and none is read from the checkout"
    done = pytest_of(python, EXAMPLE, "-n", "2")
    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= 90, done.stdout


FORGETFUL = """
from dataclasses import replace
from unpooled.models import load
MODEL = replace(load("describe"), name="forgetful", reading=replace(load("describe").reading, types={results}))
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("forgets", [False, True])
def test_the_contract_fails_for_a_model_whose_record_cannot_be_read(forgets: bool, tmp_path: Path, declare: Declare) -> None:
    results = "()" if forgets else 'load("describe").reading.types'
    folder = declare("somebodys", "forgetful", "made_up_row_forgetful", FORGETFUL.format(results=results))
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["unpooled.testing"]\n')
    (tmp_path / "test_forgetful.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tests' / 'contract')!r})\n"
        "import cases\nfrom msgspec.structs import replace\nfrom unpooled.testing.results import *\n"
        "case = cases.CASES['describe']()\nCASES = {'forgetful': lambda: (replace(case.study, model='forgetful'), case.tables)}\n"
    )
    path = os.pathsep.join([str(folder), *sys.path])
    done = pytest_of(sys.executable, tmp_path, "-n0", "-k", "record", PYTHONPATH=path)
    assert done.returncode == int(forgets), done.stdout
    assert ("test_a_record_tells_what_the_transcript_tells[forgetful]" in done.stdout) == forgets


@pytest.mark.slow
def test_a_module_without_cases_fails_in_words_and_markers_are_declared(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["unpooled.testing"]\n')
    (tmp_path / "test_nothing.py").write_text("from unpooled.testing.keys import *\nfrom unpooled.testing.shown import *\n")
    done = pytest_of(sys.executable, tmp_path, "-n0", "--strict-markers", "-rs", PYTHONPATH=os.pathsep.join(sys.path))
    assert done.returncode == 1
    assert "test_nothing has no CASES: functions by name that return a study and the parties' tables" in done.stdout
    assert "test_nothing has no ESTIMATORS" in done.stdout
