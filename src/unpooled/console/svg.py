"""Figures under a policy that allows no style in a page: their styles become attributes of the elements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import markupsafe

    from unpooled.report.figures.svg import Drawn

_STYLE = re.compile(r'\sstyle="([^"]*)"')
_SHEET = re.compile(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", re.DOTALL)
#: The size in the short form of a font; its family is the page's own.
_FONT = re.compile(r"([\d.]+(?:px)?)\s")


def without_styles(drawn: Drawn) -> tuple[markupsafe.Markup, markupsafe.Markup]:
    """Return a figure for a page and one for a telephone as markup without style attributes and style sheets."""
    import markupsafe

    wide, narrow = (_STYLE.sub(_attributes, _SHEET.sub("", text)) for text in (drawn.wide, drawn.narrow))
    # matplotlib escapes the text of a figure; the rest of it is markup.
    return markupsafe.Markup(wide), markupsafe.Markup(narrow)  # noqa: S704


def _attributes(found: re.Match[str]) -> str:
    said = []
    for declaration in found.group(1).split(";"):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font" and (size := _FONT.search(value + " ")):
            name, value = "font-size", size.group(1)
        if name:
            said.append(f' {name}="{value}"')
    return "".join(said)
