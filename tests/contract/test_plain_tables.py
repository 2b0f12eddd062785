"""Tables are plain Markdown: any reader that knows tables, and no other extension, shows them as they are meant."""

from __future__ import annotations

from pathlib import Path

import plain
import pytest


@pytest.mark.parametrize("page", plain.PAGES, ids=lambda page: str(page.relative_to(plain.ROOT)))
def test_every_row_has_as_many_cells_as_its_head_and_no_comment(page: Path) -> None:
    assert plain.broken(page.read_text()) == []


HEAD = "| a | b |\n|---|---|\n"


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "| 1 <!--= made/table | x | b --> | 2 |\n",
        HEAD + "| 1 <!--= given --> | 2 |\n",
        HEAD + "| 1 |\n",
        HEAD + "| 1 | 2 | 3 |\n",
        HEAD + "| `x | y` | 2 |\n",  # a bar ends a cell in code too
        "| a | b |\n|---|\n| 1 | 2 |\n",  # no table at all
        "| a <!-- c --> | b |\n|---|---|\n| 1 | 2 |\n",
        "a paragraph\n\n    | 1 | 2 |\n",  # indented by four: code
    ],
)
def test_a_broken_table_is_found(text: str) -> None:
    assert plain.broken(text)


def test_a_sound_table_is_read_as_it_is_written() -> None:
    text = f"# Page\n\n{HEAD}| `x \\| y` | 2 |\n\n```\n| no table |\n```\n\n- item\n\n  | c |\n  |---|\n  | 1 |\n"
    assert plain.broken(text) == []
    first, second = plain.read(text)[0]
    assert (first.section, first.number, first.header, first.rows) == ("Page", 1, ["a", "b"], [["`x | y`", "2"]])
    assert (second.number, second.rows) == (2, [["1"]])
