"""README and documentation: every link leads somewhere, every command that they show is one, every example in them runs (doctest, elsewhere)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from unpooled.cli.main import app

#: What typer's own copy of click raises where a command line does not fit.
NO_COMMAND = (typer.BadParameter.__mro__[2], KeyError)
ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        ROOT / "CODE_OF_CONDUCT.md",
    ]
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as renderers of Markdown make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", prose)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name}: {target}"
        assert not anchor or anchor in anchors(there), f"{name}: {target}"


def shown(text: str) -> list[str]:
    """The commands of this program in the code blocks of a page."""
    found = []
    for kind, block in re.findall(r"```(\w*)\n(.*?)```", text, flags=re.DOTALL):
        if kind in {"", "bash", "console"}:
            joined = block.replace("\\\n", " ")
            found += [line.removeprefix("$ ").strip() for line in joined.splitlines() if re.match(r"(\$ )?unpooled ", line)]
    return found


def parses(command: str) -> None:
    """Whether the command line takes it: names, options and their number; paths need not exist."""
    words = shlex.split(command.split(" #", maxsplit=1)[0])[1:]
    one = get_command(app)
    while hasattr(one, "commands"):
        one = one.commands[words.pop(0)]
    with one.make_context(one.name, words):
        pass


@pytest.mark.slow_for("docs/papers/ten-lines.md")
@pytest.mark.parametrize("name", NAMES)
def test_every_command_shown_is_one(name: str) -> None:
    for command in shown((ROOT / name).read_text()):
        try:
            parses(command)
        except NO_COMMAND as error:
            pytest.fail(f"{name}: {command}: {error}")


def promised(text: str) -> list[str]:
    """Return what a text promises to install by the package's name alone, from an index that does not have it; errors in tables are quoted."""
    read = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    return re.findall(r"(?:pip3?|pipx|uv|conda)[\w ]* (?:install|add)(?: -\S+)* ['\"]?unpooled\b(?!-)", read)


@pytest.mark.parametrize("name", NAMES)
def test_only_what_can_be_installed_is_promised(name: str) -> None:
    """A checkout and a wheel can be installed; no index has the package yet."""
    assert promised((ROOT / name).read_text()) == []


def test_a_promise_that_cannot_be_kept_is_noticed() -> None:
    for wrong in (
        "pip install unpooled",
        "`pip install 'unpooled[sql]'`",
        "pip install -q unpooled==0.2.0",
        "uv pip install unpooled",
    ):
        assert promised(wrong), wrong
    for good in ("pip install '.[sql]'", "pip install './unpooled-0.2.0-py3-none-any.whl[network]'", "pip install ."):
        assert promised(good) == [], good


def test_a_command_that_is_none_is_noticed() -> None:
    assert len(shown((ROOT / "docs/studies.md").read_text()) + shown((ROOT / "README.md").read_text())) > 4
    assert shown("```bash\nunpooled pln study.toml # a comment\n```") == ["unpooled pln study.toml # a comment"]
    for wrong in ("unpooled pln study.toml", "unpooled plan study.toml --utilty", "unpooled plan"):
        with pytest.raises(NO_COMMAND):
            parses(wrong)


def test_commands_in_running_text_are_commands() -> None:
    """`unpooled party ...` in prose names a command that is there."""
    known: set[str] = set()
    for name, one in get_command(app).commands.items():
        known |= {name} | {f"{name} {inner}" for inner in getattr(one, "commands", {})}
    for name in NAMES:
        for words in re.findall(r"`unpooled ([a-z]+(?: [a-z]+)?)", (ROOT / name).read_text()):
            first, _, second = words.partition(" ")
            assert first in known, f"{name}: unpooled {words}"
            if first in {"party", "network"} and second:
                assert words in known, f"{name}: unpooled {words}"
