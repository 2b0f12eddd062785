"""The papers stand apart: without their folder every sound model works, and rows join the registry through entry points alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest
from cases import CASES
from elsewhere import ROW, Declare
from test_templates import written

import unpooled
from unpooled.errors import UsageError
from unpooled.models import REGISTRY, load, row_names
from unpooled.protocol.registry import names

SOURCE = Path(unpooled.__file__).parent
FORMS = ("pride", "bayes", "stacking", "lasso", "pls")
SENTENCE = (
    "has no published form here: the published forms are not part of this installation of unpooled, so leave calibration out"
)


def python(code: str, *where: Path, arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, in which these folders come first."""
    path = os.pathsep.join([*map(str, where), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, *(["-c", textwrap.dedent(code)] if code else ["-m", "unpooled"]), *arguments]
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=280)


# --- without the folder ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package without its papers. The distribution still declares their rows."""
    folder = tmp_path_factory.mktemp("without")
    shutil.copytree(SOURCE, folder / "unpooled", ignore=lambda here, _: ["papers"] if Path(here) == SOURCE else [])
    return folder


FITS = """
import importlib, sys, warnings
import numpy as np

import unpooled
from unpooled.models import REGISTRY, load
from unpooled.study.templates import template

assert unpooled.__file__.startswith(sys.argv[1])
assert importlib.util.find_spec("unpooled.papers") is None
for row in REGISTRY:
    assert load(row).name == row
    assert row == "analyses" or f'model = "{row}"' in template(row)
warnings.simplefilter("ignore", unpooled.UtilityWarning)
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (400, 4))
y = np.clip(X @ [1.0, -1.0, 0.5, 0.0], -2, 2)
two = np.where(y > 0, 1, -1)
own = {"bounds": (-1, 1), "epsilon": 5.0, "random_state": 0}
fits = {
    "PrideRegressor": (y, {"sketch_dim": 2}),
    "PrideClassifier": (two, {"classes": (-1, 1), "sketch_dim": 2}),
    "PrideGLM": (np.floor(np.exp(y)), {"family": "poisson", "sketch_dim": 2}),
    "PrivateLinearRegression": (y, {"y_bounds": (-2, 2)}),
    "PrivateGLM": (two, {"family": "logistic", "classes": (-1, 1)}),
    "PrivateLogisticRegression": (two, {"classes": (-1, 1)}),
    "PrivateStackingClassifier": (two, {"classes": (-1, 1)}),
    "PrivateLasso": (y, {"y_bounds": (-2, 2)}),
    "PrivateLassoClassifier": (two, {"classes": (-1, 1)}),
    "PrivatePLSRegression": (y, {"y_bounds": (-2, 2), "basis": "none", "n_components": 1}),
}
for name, (response, options) in fits.items():
    model = getattr(unpooled, name)(**own, **options).fit(X, response)
    assert model.predict(X).shape == (400,), name
    print(name)
unpooled.describe(X, bounds=(-1, 1), random_state=0)
for name in ("PrideRegressor", "PrivateLinearRegression", "PrivateStackingClassifier", "PrivateLasso", "PrivatePLSRegression"):
    response, options = fits[name]
    for call in ("plan", "fit"):
        model = getattr(unpooled, name)(**own | {"delta": 1e-3}, **options, calibration="published")
        try:
            model.plan(400, 4) if call == "plan" else model.fit(X, response)
        except unpooled.errors.UsageError as error:
            print(f"{name}, {call}: {error}")
"""


@pytest.mark.slow
def test_without_the_papers_every_estimator_fits_and_the_published_forms_are_refused_in_one_sentence(without: Path) -> None:
    done = python(FITS, without, arguments=(str(without),))
    assert done.returncode == 0, done.stderr[-2000:]
    fitted, refused = [line for line in done.stdout.splitlines() if ":" not in line], done.stdout.splitlines()[-10:]
    assert {"PrivateBayesianRegression", *fitted} == {
        name for name in unpooled.__all__ if name.startswith("Pri") and hasattr(getattr(unpooled, name), "fit")
    }
    assert [line.partition(": ")[2] for line in refused] == [
        f"model {model!r} {SENTENCE}" for model in ("pride", "bayes", "stacking", "lasso", "pls") for _ in ("plan", "fit")
    ]


@pytest.mark.long_for("pride")
@pytest.mark.slow
@pytest.mark.parametrize("model", FORMS)
def test_the_commands_say_so_without_the_papers(model: str, without: Path, tmp_path: Path) -> None:
    """Each ends with code 2, as every refusal of what a user asks for does."""
    written(f"{model}-published", tmp_path)
    study = str(tmp_path / "study.toml")
    commands = {
        ("new", model, "--calibration", "published", "--out", str(tmp_path / "new.toml")),
        ("plan", study),
        ("run", study, "--party", str(tmp_path / "party.toml")),
    }
    for arguments in commands if model == "pride" else [("plan", study)]:
        done = python("", without, arguments=arguments)
        assert done.returncode == 2, (arguments, done.stdout, done.stderr)
        assert f"model {model!r} {SENTENCE}" in re.sub(r"\s+", " ", done.stderr)
    assert not (tmp_path / "new.toml").exists()


@pytest.mark.guarantee
def test_a_form_that_no_distribution_declares_is_refused_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation may lack the entry points too."""
    monkeypatch.setattr("unpooled.protocol.registry._declared", lambda _: {})
    with pytest.raises(UsageError, match=SENTENCE):
        load("pride-published")
    assert row_names() == tuple(REGISTRY)


@pytest.mark.guarantee
def test_an_entry_point_of_our_own_without_its_module_is_refused_alike(declare: Declare) -> None:
    """Such is an installation without the folder, whose distribution still declares the rows."""
    folder = declare("unpooled", "glm-published", "made_up_row_absent", "")
    (folder / "made_up_row_absent.py").unlink()
    with pytest.raises(UsageError, match=SENTENCE):
        load("glm-published")


def test_no_sound_code_names_a_published_form() -> None:
    """The word stays in the enumeration, in policies and in prose."""
    admitted = {"privacy/unit.py", "privacy/policy.py"}
    naming = {
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if "papers" not in file.relative_to(SOURCE).parts
        and re.search(r"Calibration\.PUBLISHED|== \"published\"|\w-published|unpooled\.papers", file.read_text())
    }
    assert naming <= admitted


# --- who reads entry points --------------------------------------------------------------------------------------------------

UNREAD = """
import importlib.metadata

def read(**_):
    raise AssertionError("entry points are read")

importlib.metadata.entry_points = read
import unpooled
import unpooled.cli.main
from unpooled.models import REGISTRY, load

for row in REGISTRY:
    load(row)
unpooled.PrivateLinearRegression(bounds=(-1, 1), y_bounds=(-1, 1)).plan(100, 2)
print("unread")
try:
    load("pride-published")
except AssertionError as error:
    print(error)
"""


@pytest.mark.slow
def test_neither_an_import_nor_a_model_of_our_own_reads_entry_points() -> None:
    done = python(UNREAD)
    assert done.stdout.splitlines() == ["unread", "entry points are read"], done.stderr


# --- rows of other distributions ---------------------------------------------------------------------------------------------


def test_a_row_of_another_distribution_is_loaded_and_listed(declare: Declare) -> None:
    declare("somebodys", "census", "made_up_row_a", ROW.format(name="census"))
    assert load("census").name == "census"
    assert row_names()[: len(REGISTRY)] == tuple(REGISTRY)
    assert "census" in row_names()
    study = CASES["describe"]().study
    assert load("census").compile(msgspec.structs.replace(study, model="census")).study.row == "census"
    with pytest.raises(UsageError, match=r"choose one of describe, .*, census, or 'link'"):
        load("censuss")


def test_a_form_of_our_model_may_come_from_another_distribution(declare: Declare) -> None:
    declare("somebodys", "glm-published", "made_up_row_b", ROW.format(name="glm-published"))
    assert load("glm-published").name == "glm-published"
    with pytest.raises(UsageError, match="model 'describe' has no published form: leave calibration out"):
        load("describe-published")


@pytest.mark.guarantee
def test_a_name_that_two_distributions_declare_is_refused_with_both(declare: Declare) -> None:
    declare("one", "census", "made_up_row_c", ROW.format(name="census"))
    declare("another", "census", "made_up_row_d", ROW.format(name="census"))
    for ask in (lambda: load("census"), row_names):
        with pytest.raises(
            UsageError, match=r"'census' is declared by (one, another|another, one), .* uninstall all but one"
        ):
            ask()
    assert load("glm").name == "glm"


@pytest.mark.guarantee
def test_a_name_of_our_own_is_ours_and_its_declaration_is_refused(declare: Declare) -> None:
    declare("taker", "glm", "made_up_row_e", "raise AssertionError('it ran')")
    assert load("glm").compile_plan.__module__.startswith("unpooled.models.glm")
    with pytest.raises(UsageError, match="distribution 'taker' declares model 'glm', which is one of unpooled's own"):
        row_names()


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("source", "match"),
    [
        ("import no_such_package", "distribution 'broken' .*ModuleNotFoundError: .*no_such_package.*again, or uninstall it"),
        ("raise OSError('disk')", "cannot be loaded from distribution 'broken' .*OSError: disk"),
        ("", "cannot be loaded from distribution 'broken' .*AttributeError"),
        ("MODEL = 'census'", "'broken' declares made_up_row_f:MODEL as model 'census', which is no unpooled Model"),
        (ROW.format(name="other"), "as model 'census', but that Model is named 'other'"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_distribution(declare: Declare, source: str, match: str) -> None:
    declare("broken", "census", "made_up_row_f", source)
    assert "census" in names()
    with pytest.raises(UsageError, match=match):
        load("census")


@pytest.mark.guarantee
def test_a_study_names_the_model_and_not_the_row_of_its_form() -> None:
    study = CASES["bayes"]().study
    with pytest.raises(UsageError, match="name the model, and the form as its calibration"):
        load("bayes-published").compile(msgspec.structs.replace(study, model="bayes-published"))
