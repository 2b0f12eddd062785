"""The papers' scripts do not rot: each can be imported, says which figure it is, goes on where it stopped, and compares what it found with what is there."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAPERS = ("pride", "stacking", "bayes", "lasso", "pls")
SCRIPTS = sorted(path for paper in PAPERS for path in (ROOT / "experiments" / paper).glob("*.py"))
#: The headings of the table of a page.
COLUMNS = ("item", "the paper says", "ours", "form", "protocol differs in", "verdict", "command")


@pytest.fixture
def experiments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """The modules that scripts share, whose cells, tables and figures lie in a folder of the test."""
    monkeypatch.syspath_prepend(str(ROOT))
    cells, common = (importlib.import_module(f"experiments.{name}") for name in ("cells", "common"))
    monkeypatch.setattr(cells, "KEPT", tmp_path / "cells")
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(common, "DIFFERENT", tmp_path / "different")
    for name in ("_writes", "_written"):
        monkeypatch.setattr(common, name, [False])
    monkeypatch.setattr(common, "_differing", [])
    monkeypatch.setattr(cells, "_size", ["reduced"])
    cells._lines.cache_clear()
    return SimpleNamespace(cells=cells, common=common, agreement=importlib.import_module("experiments.agreement"))


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
    assert {path.stem for path in (ROOT / "docs" / "papers").glob("*.md")} == {*PAPERS, "index", "ten-lines"}


# --- pages: a row for every numbered item, and a command for every row -----------------------------------------------------


def rows_of(page: str) -> list[dict[str, str]]:
    """The rows of all tables of a page that have its columns."""
    found: list[dict[str, str]] = []
    header: list[str] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")] if line.startswith("|") else []
        if not cells:
            header = []
        elif not header:
            header = cells
        elif set(header) == set(COLUMNS) and not set(line) <= set("|-: "):
            found.append(dict(zip(header, cells, strict=True)))
    return found


NUMBERING = tomllib.loads((ROOT / "docs/papers/numbering.toml").read_text())


@pytest.mark.slow_for("bayes")
@pytest.mark.parametrize("paper", PAPERS)
def test_every_numbered_item_of_a_paper_has_a_row(paper: str) -> None:
    """The list was read out of the paper's text (``experiments/numbering.py``), not made from these rows."""
    items = NUMBERING[paper]["items"]
    assert len(items) == len(set(items)) > 10
    rows = rows_of((ROOT / f"docs/papers/{paper}.md").read_text())
    of_rows = [{part.strip() for part in re.split(r"[;,]| and ", row["item"])} for row in rows]
    assert [item for item in items if not any(item in parts for parts in of_rows)] == []
    for row in rows:
        assert row["ours"], row
        assert row["verdict"], row
        assert row["protocol differs in"], row
        assert row["form"], row


def test_the_numbering_is_that_of_a_papers_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a text of every kind; ``UNPOOLED_PAPERS`` names a folder with the papers' own, which are not shipped."""
    monkeypatch.syspath_prepend(str(ROOT))
    numbering = importlib.import_module("experiments.numbering")
    text = (
        "Theorem 2 follows from Theorem 9 in [Chaudhuri et al.]. Lemma 4 (Adapted from Lemma 1 (Zhang et al.)). See [3, Theorem 7] and\n"
        "[2, Theorem 5], Figure D.1 and Definition 3.1:\n$$x = 1 \\tag{7}$$\ny = 2 (8)\nwhere (9) is no number at an end.\n"
    )
    assert numbering.items_of(text) == [
        "Definition 3.1",
        "Theorem 2",
        "Lemma 4",
        "Figure D.1",
        "Equation (7)",
        "Equation (8)",
    ]
    if folder := os.environ.get("UNPOOLED_PAPERS"):
        assert numbering.main([folder]) == 0


@pytest.mark.parametrize("paper", PAPERS)
def test_the_command_of_every_row_exists(paper: str) -> None:
    rows = rows_of((ROOT / f"docs/papers/{paper}.md").read_text())
    scripts = {path.stem for path in SCRIPTS if path.parent.name == paper and not path.stem.startswith("_")}
    for row in rows:
        named = [one for one in re.findall(r"`([^`]+)`", row["command"]) if not one.startswith("UNPOOLED_")]
        assert named or re.match("cannot be tested|nothing to ", row["verdict"]), row
        for one in named:
            assert one in scripts or (ROOT / one.split("::")[0]).is_file(), one
            if "::" in one:
                assert f"def {one.split('::')[1]}(" in (ROOT / one.split("::")[0]).read_text(), one


# --- cells and comparisons ---------------------------------------------------------------------------------------------


def test_a_stop_loses_one_cell(experiments: SimpleNamespace) -> None:
    made = []

    def stopped() -> None:
        raise KeyboardInterrupt

    kept = experiments.cells.kept
    assert kept(["a", 1], lambda: made.append("a") or [1.5, 2.0]) == [1.5, 2.0]
    with pytest.raises(KeyboardInterrupt):
        kept(["b", 1], stopped)
    (file,) = (experiments.cells.KEPT).glob("*.jsonl")
    file.write_text(file.read_text() + '{"key": "torn')
    experiments.cells._lines.cache_clear()
    assert kept(["a", 1], lambda: made.append("again")) == [1.5, 2.0]
    assert kept(["b", 1], lambda: made.append("b") or "text") == "text"
    experiments.cells._lines.cache_clear()
    assert kept(["b", 1], lambda: made.append("again")) == "text"
    assert made == ["a", "b"]
    assert "CPU seconds" in experiments.cells.cost()
    experiments.cells.forget()
    assert kept(["a", 1], lambda: 3) == 3


@pytest.mark.slow
def test_the_code_behind_a_script_is_what_it_imports(experiments: SimpleNamespace) -> None:
    """So a commit elsewhere leaves its cells alone, and one in anything that it uses does not."""
    behind = experiments.cells.behind
    names = {str(file.relative_to(ROOT)) for file in behind("experiments.pls.claims")}
    assert {"experiments/pls/claims.py", "experiments/common.py", "src/unpooled/kernels/pls.py"} <= names
    assert not any(name.startswith(("src/unpooled/console", "src/unpooled/study/", "src/unpooled/audit/")) for name in names)
    public = {str(file.relative_to(ROOT)) for file in behind("experiments.bayes.mcmc")}
    assert "src/unpooled/models/bayes/estimator.py" in public  # through names that are found when they are used
    by_name = {str(file.relative_to(ROOT)) for file in behind("unpooled.study.run")}
    assert {"src/unpooled/models/describe/__init__.py", "src/unpooled/models/glm/__init__.py"} <= by_name


@pytest.mark.slow
def test_a_tuned_number_that_changes_begins_the_cells_anew(experiments: SimpleNamespace) -> None:
    """The tables that the imported modules read are part of the code; those that none of them reads are not."""
    files = {str(file.relative_to(ROOT)) for file in experiments.cells.behind("experiments.clip_search")}
    tables = {Path(file).stem for file in files if file.startswith("src/unpooled/schedules/") and file.endswith(".toml")}
    assert {"regression", "directions", "focus", "rows", "residuals"} <= tables
    assert not {"joint", "outlooks", "lasso"} & tables
    assert "src/unpooled/schedules/__init__.py" in files
    focused = {file.name for file in experiments.cells.behind("experiments.inference.focus")}
    assert "joint.toml" in focused  # a model is found by its name, and so may be any


def test_cells_of_other_code_do_not_count(experiments: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert experiments.cells.kept("a", lambda: 1) == 1
    monkeypatch.setattr(experiments.cells, "code", lambda: "another")
    experiments.cells._lines.cache_clear()
    assert experiments.cells.kept("a", lambda: 2) == 2


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("0.500 ± 0.010", "0.540 ± 0.010", True),
        ("0.500 ± 0.010", "0.570 ± 0.010", False),
        ("-1.00 ± 0.00", "-0.99 ± 0.00", True),
        ("-1.00 ± 0.00", "-0.90 ± 0.00", False),
        ("1.50 (1.2 .. 1.8)", "1.90 (1.5 .. 2.4)", True),
        ("1.50 (1.2 .. 1.8)", "9.00 (8.5 .. 9.5)", False),
        ("0.500", "0.540", True),
        ("0.500", "0.600", False),
        ("-0.02", "0.02", False),
        ("2 of 6", "2 of 6", True),
        ("2 of 6", "5 of 6", False),
        ("yes", "no", False),
        ("NO", "yes", False),
        ("yes", "within the errors", True),
        ("tie", "NO", True),
        ("within the errors", "0.5", False),
        ("holds", "broken", True),
        ("holds", "yes", False),
        ("not reached", "0.5", False),
        ("1e-05", "4e-05", False),
        ("1.08 (1.14)", "1.12 (1.38)", True),
        ("1.08 (1.10)", "1.30 (1.31)", False),
        ("", "", True),
    ],
)
def test_cells_agree_within_what_they_state(experiments: SimpleNamespace, old: str, new: str, same: bool) -> None:
    assert experiments.agreement.cells_agree(old, new) is same


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("0.500", "0.900", True),  # no error is stated: a few runs tell nothing of many
        ("0.500 ± 0.010", "0.900 ± 0.010", False),
        ("0.500 ± 0.010", "0.510 ± 0.030", True),
        ("0.5 (0.4 .. 0.6)", "3.0 (2.9 .. 3.1)", False),
        ("yes", "no", False),
        ("0.500 ± 0.010", "not run", False),
        ("not reached", "0.5", True),
        ("0.81 ± 0.02", "1.00 ± 0.00", True),  # six runs that were all alike
        ("0.81 ± 0.02", "1.00 ± 0.02", False),
    ],
)
def test_two_sizes_are_compared_where_both_state_errors(
    experiments: SimpleNamespace, old: str, new: str, same: bool
) -> None:
    agreement = experiments.agreement
    assert agreement.cells_agree(old, new, sizes=True) is same
    page = "Size: {}.{}\n\n| name | found |\n|---|---|\n| a | {} |\n"
    found = agreement.differences(page.format("full", "", old), page.format("reduced", "", new))
    assert (found == []) is same
    # A table that says how near its numbers must be is held to that.
    near = " Numbers without an error agree within 0.1."
    strict = agreement.differences(page.format("full", near, "0.500"), page.format("reduced", near, "0.900"))
    assert strict != []


HEADER = ["method", "epsilon", "error"]


def table(common: ModuleType, *errors: str) -> None:
    rows = [["ours", str(k), error] for k, error in enumerate(errors)]
    common.write_table("paper/figure", "Figure", HEADER, rows, "Notes.")


def test_a_table_that_agrees_is_left_and_one_that_does_not_is_reported(experiments: SimpleNamespace) -> None:
    common = experiments.common
    path = common.RESULTS / "paper/figure.md"
    table(common, "0.500 ± 0.010", "0.3")
    first = path.read_text()
    table(common, "0.510 ± 0.010", "0.31")
    assert path.read_text() == first
    assert common._differing == []
    table(common, "0.900 ± 0.010", "0.31")
    assert path.read_text() == first
    assert common._differing == ["paper/figure"]
    assert "0.900" in (common.DIFFERENT / "paper/figure.md").read_text()
    table(common, "0.500 ± 0.010", "0.3", "0.2")
    assert common._differing == ["paper/figure"]  # a further row takes nothing away
    table(common, "no row")
    assert common._differing == ["paper/figure"] * 2
    common._writes[0] = True
    table(common, "0.900 ± 0.010", "0.31")
    assert "0.900" in path.read_text()


def test_a_table_of_the_papers_size_is_compared_with_and_never_replaced_by_a_reduced_one(
    experiments: SimpleNamespace,
) -> None:
    common, path = experiments.common, experiments.common.RESULTS / "paper/figure.md"
    table(common, "0.500 ± 0.010")
    experiments.cells.set_size("full")
    table(common, "0.800 ± 0.010", "0.3")  # larger: it replaces the reduced one without a word
    full = path.read_text()
    assert "Size: full." in full
    experiments.cells.set_size("reduced")
    common._writes[0] = True
    table(common, "0.810 ± 0.030")
    assert path.read_text() == full
    table(common, "0.500 ± 0.010")
    assert path.read_text() == full
    assert common._differing == ["paper/figure"]


def test_a_script_without_a_spec_has_a_name(experiments: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys.modules["__main__"], "__spec__", SimpleNamespace(name="experiments.pride.table_d2"), raising=False
    )
    assert experiments.cells.script() == "pride.table_d2"


# --- the audit of other packages: a figure, or why there is none -------------------------------------------------------------


@pytest.fixture
def others(experiments: SimpleNamespace) -> ModuleType:
    return importlib.import_module("experiments.audit_of_others")


def mean_with(scale: Callable[[float, float], float]) -> Callable[[Any], tuple[list[Any], float, str]]:
    """The mean of the predictor, with Laplace noise of a scale that is given by epsilon and by the sensitivity; missing values are refused."""
    rng = np.random.default_rng(5)

    def release(asked: Any) -> tuple[list[Any], float, str]:
        width = (asked.setting.high - asked.setting.low) / 30
        found: list[Any] = []
        for x, _ in asked.tables:
            noise = rng.laplace(scale=scale(asked.epsilon, width), size=asked.runs)
            found.append("ValueError: a value is missing" if np.isnan(x).any() else (x.mean() + noise)[:, None].tolist())
        return found, asked.epsilon, "1"

    return release


@pytest.mark.slow
def test_an_honest_release_has_a_figure_and_the_epsilon_that_the_attack_notices(others: ModuleType) -> None:
    honest = mean_with(lambda epsilon, width: width / epsilon)
    for setting in others.SETTINGS[:3]:
        found = others.attack(honest, setting, 60, 900, 0.0)
        assert found.refuted <= found.promised == 1.0
        assert found.notices in {3.0, 10.0}
        assert others.row(found)[2] == f"{found.notices:g}"


@pytest.mark.slow
def test_a_release_that_spends_more_than_it_promises_is_found_and_withheld(others: ModuleType) -> None:
    cheating = mean_with(lambda epsilon, width: width / epsilon / 8)
    found = others.attack(cheating, others.SETTINGS[1], 60, 900, 0.0)
    assert found.refuted > 2
    assert others.row(found) == ["1.00", others.WITHHELD, "-"]


@pytest.mark.slow
def test_an_attack_that_would_notice_nothing_says_that_it_has_no_power(others: ModuleType) -> None:
    """Noise that hides whatever is promised: a figure of 0 would read like a pass."""
    hidden = mean_with(lambda _, width: 1e4 * width)
    found = others.attack(hidden, others.SETTINGS[0], 60, 900, 0.0)
    assert (found.notices, others.row(found)) == (0.0, ["1.00", others.NO_POWER, others.NO_POWER])


@pytest.mark.slow
def test_too_few_runs_have_no_power_whatever_is_released(others: ModuleType) -> None:
    cheating = mean_with(lambda epsilon, width: width / epsilon / 1e6)
    assert others.ceiling(60, 0.0) < 1.0 < others.ceiling(900, 0.0)
    assert others.row(others.attack(cheating, others.SETTINGS[0], 60, 60, 0.0))[1] == others.NO_POWER


def test_what_refuses_missing_values_has_no_figure(others: ModuleType) -> None:
    found = others.attack(mean_with(lambda epsilon, width: width / epsilon), others.SETTINGS[3], 60, 900, 0.0)
    assert "a value is missing" in found.refusal
    assert others.row(found) == ["1.00", "refuses such data", "-"]


def test_neighbours_differ_in_one_row_within_their_range(others: ModuleType) -> None:
    shapes = {(setting.low, setting.high) for setting in others.SETTINGS}
    assert {(-1, 1), (0, 1), (0, 1000)} <= shapes
    for setting in others.SETTINGS:
        for (x, y), (other, z) in setting.pairs():
            assert len(x) == len(other) == others.N
            np.testing.assert_array_equal(x[:-1], other[:-1])
            np.testing.assert_array_equal(y[:-1], z[:-1])
            assert not (np.array_equal(x, other, equal_nan=True) and np.array_equal(y, z))
            assert np.isnan([*x, *other]).any() == setting.missing
            seen = np.concatenate([x, y, other, z])
            assert setting.low <= np.nanmin(seen) <= np.nanmax(seen) <= setting.high
    far = others.SETTINGS[2].pairs()
    assert any(np.ptp(x[:-1]) <= 0.01 * (others.SETTINGS[2].high - others.SETTINGS[2].low) for (x, _), _ in far)
