"""The documents name what exists: files, decisions under their numbers, words explained once, and the lines that a page says an example has."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import unpooled

ROOT = Path(__file__).parents[2]
SOURCE = Path(unpooled.__file__).parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
#: A path in backticks: with a slash, and either a known ending or a slash at its end. Names of a user's own files have none of these folders.
PATH = re.compile(r"`((?:[\w.*-]+/)+(?:[\w*-]+\.(?:py|md|toml|txt))?)`")
#: What is built is not there in a fresh checkout.
FOLDERS = {path.name for path in [*SOURCE.iterdir(), *ROOT.iterdir()] if path.is_dir()} - {"build"}


def missing(text: str) -> set[str]:
    """The paths of the repository or of the package that a text names and that are not there."""
    named = {path for path in PATH.findall(text) if path.split("/")[0] in FOLDERS}
    return {path for path in named if not any(any(root.glob(path)) for root in (ROOT, SOURCE))}


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "decisions"], ids=lambda page: page.name)
def test_every_path_that_a_page_names_is_there(page: Path) -> None:
    """Records of decisions are left out: they say what was, and are not rewritten."""
    assert missing(page.read_text()) == set()


def test_a_path_that_is_not_there_is_found() -> None:
    assert missing("see `protocol/no_such_file.py` and `privacy/plan.py`, `north/party.toml`") == {
        "protocol/no_such_file.py"
    }


def test_decisions_are_numbered_dated_and_listed() -> None:
    listed = (ROOT / "docs" / "decisions" / "index.md").read_text()
    for number, file in enumerate(DECISIONS, 1):
        text = file.read_text()
        (title,) = re.findall(r"^# (\d{4} .+)$", text, re.MULTILINE)
        assert file.name.startswith(f"{number:04d}-"), file
        assert title.startswith(f"{number:04d} "), file
        (date,) = re.findall(r"^(\d{4}-\d\d-\d\d), commit `[0-9a-f]{7}`\.$", text, re.MULTILINE)
        (state,) = re.findall(
            rf"^\| \[{number:04d}\]\({file.name}\) \| {date} \| {re.escape(title[5:])} \| ?(.*?) ?\|$", listed, re.MULTILINE
        )
        assert state.startswith("superseded") == ("\nSuperseded " in text), file
        assert state.startswith("moved to") == ("\nMoved to [its theory](" in text), file
        if state.startswith("moved to"):
            continue
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [
            "Context",
            "Decision",
            "Alternatives considered",
            "Consequences",
        ], file


def test_every_word_of_the_glossary_is_explained_once() -> None:
    words = re.findall(r"^(\w[\w ]*)\n: ", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert len(words) == len(set(words)) >= 35


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name in unpooled.__all__
        if name in {"describe", "survival", "tabulate", "TreatmentEffect"} or name.startswith("Pri")
    ),
)
def test_every_parameter_of_an_estimator_has_its_own_entry_with_its_default(name: str) -> None:
    public = getattr(unpooled, name)
    if name == "PrivacyLeakWarning":
        return
    said = inspect.getdoc(public) or ""
    section = said.split("Parameters\n----------\n")[1].split("\n\n")[0]
    entries = dict(re.findall(r"^(\w+) : (.*)$", section, re.MULTILINE))
    parameters = inspect.signature(public).parameters
    if other := re.search(
        r"other parameters and attributes as for :class:`(\w+)`", said
    ):  # those that it has alone, and what differs
        theirs = inspect.signature(getattr(unpooled, other[1])).parameters
        parameters = {key: value for key, value in parameters.items() if key not in theirs or key in entries}
    assert set(entries) == set(parameters)
    for parameter, entry in entries.items():
        default = parameters[parameter].default
        if default is None:
            assert entry.endswith(", optional"), parameter
        elif default is not inspect.Parameter.empty:
            (told,) = re.findall(r", default (.+)$", entry)
            assert ast.literal_eval(told) == default, parameter
