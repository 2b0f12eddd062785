"""Render the formulas of the documentation as MathML, which browsers show without a script and without the network.

``mathml`` converts one formula and refuses what it cannot convert. ``setup`` makes it the renderer of the site.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

from docutils import nodes
from latex2mathml.converter import convert_to_element

OPENING, CLOSING = set("([{\u27e8\u230a\u2308"), set(")]}\u27e9\u230b\u2309")
#: An inline formula may be broken before one of these, outside brackets.
RELATIONS = set("=<>\u2264\u2265\u2260\u2192\u2194")
SIGNS = set("+\u2212\u00b1\u2213")
#: Operators that latex2mathml takes for names.
RENAMED = {"~": "\u223c", "\u00b1": "\u00b1"}
PRIMES = set("\u2032\u2033\u2034")
#: How many parts a fraction, a power and their like have.
PARTS = {"mfrac": 2, "msub": 2, "msup": 2, "mover": 2, "munder": 2, "msubsup": 3, "munderover": 3}
THIN = "0.1667em"


def text_of(element: ET.Element) -> str:
    """Return the characters of an element; latex2mathml writes them as references."""
    return re.sub(r"&#x([0-9A-Fa-f]+);", lambda found: chr(int(found[1], 16)), element.text or "")


def spaced(parent: ET.Element) -> None:
    """Set the spaces that latex2mathml leaves to the browser, which does not know what an operator stands before."""
    children = list(parent)
    for element in children:
        element.text = text_of(element) or None
        if element.tag == "mi" and element.text in RENAMED:
            element.tag, element.text = "mo", RENAMED[element.text]
    for place, element in enumerate(children):
        said = element.text or ""
        before = (children[place - 1].text or "") if place else "("
        if said in {"|", "/"} and element.tag == "mo":
            element.attrib.update(lspace="0", rspace="0")
        elif said in SIGNS and before in OPENING | RELATIONS | {",", ";"}:
            element.attrib.update(form="prefix", lspace="0", rspace="0")
        elif said in PRIMES:
            element.set("class", "prime")
        elif element.tag in {"mo", "mi"} and re.fullmatch(r"[A-Za-z]+", said) and (element.tag == "mo" or len(said) > 1):
            after = (children[place + 1].text or "") if place + 1 < len(children) else "("
            close = parent.tag == "mrow" and after in OPENING | {"|"}
            element.tag = "mo"
            element.attrib.update(form="prefix", lspace=THIN if place else "0", rspace="0" if close else THIN)
        spaced(element)


def lines(row: ET.Element) -> Iterator[list[ET.Element]]:
    """Yield the parts of a formula between which a line may end."""
    part: list[ET.Element] = []
    depth = 0
    for element in row:
        said = element.text or ""
        if depth == 0 and part and element.tag == "mo" and said in RELATIONS:
            yield part
            part = []
        inner = [one.text for one in element.iter() if one.tag in {"mo", "mi"} and one.text]
        depth += sum(one in OPENING for one in inner) - sum(one in CLOSING for one in inner)
        part.append(element)
    yield part


def mathml(tex: str, *, block: bool = False) -> str:
    """Return a formula as one element of MathML, or as several between which a line of text may end."""
    if tex.count("{") != tex.count("}"):
        msg = f"braces do not match: {tex}"
        raise ValueError(msg)
    try:
        named = re.sub(r"\\mathrm\{(\w+)\}(_\w)?~?", r"\\operatorname{\1}\2 ", tex)  # code hosts know no \operatorname
        whole = convert_to_element(named, display="block" if block else "inline")
    except Exception as error:  # its errors have no class in common
        msg = f"{type(error).__name__}: {tex}"
        raise ValueError(msg) from error
    if cut := [one.tag for one in whole.iter() if len(one) != PARTS.get(one.tag, len(one))]:
        msg = f"a part of {cut} is missing in {tex}"
        raise ValueError(msg)
    spaced(whole)
    if unknown := [
        one.text for one in whole.iter() if one.text and re.search(r"[\\{}$]", one.text) and one.text not in "{}"
    ]:
        msg = f"{unknown} in {tex}"
        raise ValueError(msg)
    (row,) = whole
    parts = [list(row)] if block else list(lines(row))
    found = []
    for part in parts:
        math = ET.Element("math", whole.attrib)
        ET.SubElement(math, "mrow").extend(part)
        found.append(ET.tostring(math, encoding="unicode"))
    return "<wbr>".join(found)


def visit_math(self: Any, node: nodes.math) -> None:
    """Write a formula in a line of text; no line ends between it and a bracket or a comma next to it."""
    self.body.append(f'<span class="math-inline">&#8288;{mathml(node.astext())}&#8288;</span>')
    raise nodes.SkipNode


def visit_math_block(self: Any, node: nodes.math_block) -> None:
    """Write a displayed formula, which scrolls where it is wider than the page."""
    self.body.append(f'<div class="math-block">{mathml(node.astext(), block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Make this the renderer of formulas."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.config.html_math_renderer = "mathml"
