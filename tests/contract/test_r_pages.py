"""The help pages of the R package are what their script makes of the Python declarations: every argument is described, every default is Python's."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from types import ModuleType
from typing import Any

import plain
import pytest

import unpooled

SCRIPT = plain.ROOT / "docs" / "rpages.py"
MAN = plain.ROOT / "r" / "man"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rpages_of_docs", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


SCRIPTED = loaded()
HEADS = SCRIPTED.heads()
EXPORTED = re.findall(r"^export\((\w+)\)$", (MAN.parent / "NAMESPACE").read_text(encoding="utf-8"), re.MULTILINE)
FUNCTIONS = [name for name in EXPORTED if name in HEADS]
PAGES = {file.name: file.read_text(encoding="utf-8") for file in sorted(MAN.glob("*.Rd"))}
#: Defaults of R that are not Python's, each with the reason.
OTHERS: dict[tuple[str, str], str] = {
    ("unpooled_stacking", "parties"): "NULL pools rows: R has one function for both classes",
    ("unpooled_joint", "parties"): "columns at parties are what it is for",
    ("unpooled_joint", "bounds"): "a joint fit promises something",
    ("unpooled_effect", "bounds"): "the arms are declared",
    ("unpooled_pride", "family"): "gaussian() is R's own default; Python has a class for each of three",
    ("unpooled_glm", "family"): "binomial() is the logistic family",
}


@pytest.mark.parametrize("name", [f"{name}.Rd" for name in SCRIPTED.INPUT])
def test_the_committed_page_is_what_the_script_makes(name: str) -> None:
    """If this fails, run `python docs/rpages.py`."""
    assert PAGES[name] == SCRIPTED.pages()[name]


def braced(text: str, start: int) -> str:
    """What stands between the brace at this place and its partner."""
    depth, place = 0, start
    while place < len(text):
        if text[place] == "\\":
            place += 2
            continue
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[start + 1 : place]
        place += 1
    raise ValueError("a brace is never closed")


def items_of(text: str) -> dict[str, str]:
    """The arguments that a page describes, by their names."""
    section = braced(text, text.index("\\arguments{") + len("\\arguments"))
    found, place = {}, 0
    while (place := section.find("\\item{", place)) >= 0:
        names = braced(section, place + len("\\item"))
        place += len("\\item") + len(names) + 2
        words = braced(section, place)
        place += len(words) + 2
        found |= {name.strip(): words for name in names.split(",")}
    return found


def page_with(function: str) -> str:
    (page,) = (name for name, text in PAGES.items() if f"\\alias{{{function}}}" in text)
    return page


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_argument_of_every_function_is_described(function: str) -> None:
    if not HEADS[function]:
        return
    described = items_of(PAGES[page_with(function)])
    missing = [one for one in HEADS[function] if one.replace("...", "\\dots") not in described]
    assert not missing
    assert all(len(words) > 5 for words in described.values())


def test_the_functions_are_those_that_r_exports() -> None:
    assert {name for name in EXPORTED if name.startswith("unpooled_")} == set(FUNCTIONS)
    assert set(SCRIPTED.INPUT) <= set(FUNCTIONS)
    assert len(FUNCTIONS) > 25  # the heads were read


def value_of(text: str) -> Any:
    """The value of a default of R."""
    if text.startswith("c("):
        return value_of(text[2:].split(",", maxsplit=1)[0].rstrip(")"))  # of a choice, match.arg takes the first
    return {"NULL": None, "TRUE": True, "FALSE": False}.get(text, text.strip('"') if text.startswith('"') else text)


PYTHONS = [(name, python) for name, page in SCRIPTED.INPUT.items() for python in page["python"]]


@pytest.mark.parametrize(("name", "python"), PYTHONS)
def test_defaults_are_those_of_python(name: str, python: str) -> None:
    """NULL stands for Python's own default, which is then None: what is not handed over cannot differ from what the page says."""
    signature = inspect.signature(getattr(unpooled, python)).parameters
    compared = 0
    for argument, text in HEADS[name].items():
        parameter = signature.get(argument)
        if parameter is None or argument in SCRIPTED.APART or (name, argument) in OTHERS:
            continue
        compared += 1
        if parameter.default is inspect.Parameter.empty or text is None:
            assert (text is None) == (parameter.default is inspect.Parameter.empty), argument
            continue
        given = value_of(text)
        assert (
            given == parameter.default
            if not isinstance(parameter.default, int | float)
            else float(given) == parameter.default
        ), argument
    assert compared > 2
    assert all(argument in HEADS[function] for function, argument in OTHERS)


@pytest.mark.parametrize(("name", "python"), PYTHONS)
def test_every_parameter_of_python_is_described_or_named_as_left_out(name: str, python: str) -> None:
    text, page = PAGES[f"{name}.Rd"], SCRIPTED.INPUT[name]
    signature = inspect.signature(getattr(unpooled, python)).parameters
    for parameter in signature:
        described = f"\\item{{{parameter}}}" in text or f"\\item{{\\code{{{parameter}}}}}" in text
        assert described or parameter in SCRIPTED.APART or parameter in page.get("apart", ()), parameter


def test_no_page_keeps_words_of_python() -> None:
    from unpooled.cli.words_of_r import LEFT

    for name in (f"{name}.Rd" for name in SCRIPTED.INPUT):
        text = re.sub(
            r"\\code\{(?:Private|Pride)\w+\}|\\code\{Bounds\(norm = R\)\}|\\code\{options\(.*?\)\}", "", PAGES[name]
        )  # who looks for it in Python finds it
        text = re.sub(r"\\usage\{.*?\n\}|\\examples\{.*?\n\}\n|\"[^\"]*\"", "", text, flags=re.DOTALL)
        found = LEFT.search(text)
        assert found is None, (name, text[max(found.start() - 80, 0) : found.end() + 40])


def test_what_the_input_says_belongs_to_an_argument() -> None:
    for name, page in SCRIPTED.INPUT.items():
        arguments = {one for function in page.get("functions", [name]) for one in HEADS[function]}
        assert set(page.get("arguments", {})) | set(page.get("also", {})) <= arguments, name
        known = {one for python in page["python"] for one in SCRIPTED.parameters(python)}
        assert set(page.get("apart", ())) <= known - arguments, name
    used = {
        one for name, page in SCRIPTED.INPUT.items() for function in page.get("functions", [name]) for one in HEADS[function]
    }
    assert set(SCRIPTED.SHARED["arguments"]) <= used


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('f <- function(x, y = c(1, 2), z = "a, b", ...) {', {"x": None, "y": "c(1, 2)", "z": '"a, b"', "...": None}),
        ("f <- function() 1", {}),
        ('f <- function(a = g("(")) 1', {"a": 'g("(")'}),
    ],
)
def test_heads_are_read_as_r_reads_them(text: str, said: dict[str, str | None]) -> None:
    start = text.index("(") + 1
    assert dict(SCRIPTED._arguments(text[start : SCRIPTED._closing(text, start)])) == said


def test_a_docstring_becomes_a_page() -> None:
    assert SCRIPTED.rd("``bounds=None`` costs 5 %: see :class:`~unpooled.PrivateGLM`, :meth:`predict`, :math:`x^2`") == (
        "\\code{bounds = NULL} costs 5 \\%: see \\code{\\link{unpooled_glm}}, \\code{predict}, \\eqn{x^2}"
    )
