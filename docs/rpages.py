r"""Write the help pages of R functions whose arguments are Python's: `python docs/rpages.py [FOLDER]` writes r/man/*.Rd or FOLDER/*.Rd.

What an argument means is taken from the numpydoc section "Parameters" of the Python class or function, in R's words; its usage from the
function's head in r/R. What R has and Python has not (formulas, data frames, studies), titles, values and examples stand in docs/rpages.toml.
"""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import unpooled
from unpooled.cli.words_of_r import FUNCTIONS, in_r

HERE = Path(__file__).parent
R = HERE.parent / "r"
INPUT: dict[str, Any] = tomllib.loads((HERE / "rpages.toml").read_text(encoding="utf-8"))
SHARED: dict[str, Any] = INPUT.pop("shared")
WIDTH = 88
#: The end of every example: R's own checks look for connections that it leaves open.
STOP = "\\dontshow{unpooled_stop()}"
#: Parameters of Python that R hands over in another way, and names of the version before.
APART = {"budget", "self", "formula", "source", "columns", "data", "model", "X", "y"}


# --- Python's side ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameter:
    """A parameter of a Python class or function, with the words of its docstring."""

    name: str
    kind: str
    words: str
    default: Any


def parameters(name: str) -> dict[str, Parameter]:
    """Return the parameters of a public class or function, in their order; one without words of its own has those of its relatives."""
    python = getattr(unpooled, name)
    said = _said(python)
    for other in SHARED["as_of"].get(name, ()):
        said = _said(getattr(unpooled, other)) | said
    signature = inspect.signature(python).parameters
    return {one: Parameter(one, *said[one], signature[one].default) for one in signature if one in said}


def _said(python: object) -> dict[str, tuple[str, str]]:
    """Return the type and the words of every parameter that a docstring describes."""
    text = inspect.getdoc(python) or ""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    found: dict[str, tuple[str, str]] = {}
    for entry in re.finditer(r"^(\w[\w, ]*?) : (.*)\n((?:^[ ]{4}.*\n?|^\n)*)", section[1] if section else "", re.MULTILINE):
        for name in entry[1].split(", "):
            found[name] = (entry[2], " ".join(entry[3].split()))
    return found


# --- R's side --------------------------------------------------------------------------------------------------------------


def heads() -> dict[str, dict[str, str | None]]:
    """Return the arguments of every function of the R package, with the text of their defaults."""
    found: dict[str, dict[str, str | None]] = {}
    for file in sorted((R / "R").glob("*.R")):
        text = file.read_text(encoding="utf-8")
        for head in re.finditer(r"^([\w.]+) <- function\(", text, re.MULTILINE):
            found[head[1]] = dict(_arguments(text[head.end() : _closing(text, head.end())]))
    return found


def _closing(text: str, start: int) -> int:
    """Return where the bracket closes that was opened before this place."""
    depth, quote = 1, ""
    for place in range(start, len(text)):
        letter = text[place]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter in "([{") - (letter in ")]}")
            if depth == 0:
                return place
    raise ValueError("a bracket is never closed")


def _arguments(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the arguments of a head and their defaults."""
    for part in _parts(text):
        name, _, default = part.partition("=")
        yield name.strip(), " ".join(default.split()) or None


def _parts(text: str) -> Iterator[str]:
    """Yield what stands between commas outside of brackets."""
    start = place = 0
    while place < len(text):
        if text[place] in "([{\"'":
            quote = text[place] in "\"'"
            place = text.index(text[place], place + 1) if quote else _closing(text, place + 1)
        elif text[place] == ",":
            yield text[start:place]
            start = place + 1
        place += 1
    if text[start:].strip():
        yield text[start:]


def usage(name: str, arguments: Mapping[str, str | None]) -> str:
    """Return the usage of a function or a method, wrapped between arguments."""
    generic, dot, kind = name.partition(".")
    called = f"\\method{{{generic}}}{{{kind}}}" if dot else name
    parts = [one if default is None else f"{one} = {default}" for one, default in arguments.items()]
    indent = " " * (len(generic) + 1)
    lines, line = [], f"{called}("
    ended = [f"{part}, " for part in parts[:-1]] + [f"{part})" for part in parts[-1:]]
    for part in ended:
        if len(line) + len(part.rstrip()) > WIDTH and not line.endswith("("):
            lines.append(line.rstrip())
            line = indent
        line += part
    return "\n".join([*lines, line])


# --- words -----------------------------------------------------------------------------------------------------------------

_MARKED = re.compile(r"``(.+?)``|:\w+:`~?([^`]+)`")


def rd(text: str) -> str:
    r"""Return words of a docstring as an Rd page has them, in R's syntax.

    >>> rd("``inf`` adds no noise; None is 5 % (see :meth:`predict` and :class:`PrivateGLM`)")
    '\\code{Inf} adds no noise; \\code{NULL} is 5 \\% (see \\code{predict} and \\code{\\link{unpooled_glm}})'
    """
    for pattern, becomes in SHARED["phrases"].items():
        text = re.sub(pattern, becomes, text)
    text = text.strip()
    held: list[str] = []

    def keep(found: re.Match[str]) -> str:
        code, role = found[1], found[2]
        if code is None and found[0].startswith(":math:"):
            held.append(f"\\eqn{{{role}}}")
        elif code is None:
            last = role.split(".")[-1]
            ours = FUNCTIONS.get(last)
            held.append(f"\\code{{\\link{{{ours}}}}}" if ours else f"\\code{{{last}}}")
        else:
            held.append(f"\\code{{{_escaped(in_r(code))}}}")
        return f"\x01{len(held) - 1}\x01"

    said = _escaped(in_r(_MARKED.sub(keep, text)))
    said = re.sub(r"\b(NULL|TRUE|FALSE)\b", r"\\code{\1}", said)
    return re.sub("\x01(\\d+)\x01", lambda found: held[int(found[1])], said)


def _escaped(text: str) -> str:
    return re.sub(r"([\\%{}])", r"\\\1", text)


def kind_in_r(one: Parameter) -> str:
    """Return what a parameter may be, in R's words, with its default where that is not NULL."""
    kind, _, default = one.kind.partition(", default ")
    optional = kind.endswith(", optional")
    kind = SHARED["kinds"].get(one.name, kind.removesuffix(", optional"))
    choice = re.fullmatch(r"\{(.*?)\}(.*)", kind)
    if choice:
        kind = f"one of {choice[1]}{choice[2]}"
    for pattern, becomes in SHARED["types"].items():
        kind = re.sub(pattern, becomes, kind)
    words = rd(kind)
    if optional:
        return f"{words}, or \\code{{NULL}}"
    return f"{words} (by default {rd(in_default(default))})" if default else words


def in_default(text: str) -> str:
    """Return a default as R writes it."""
    text = re.sub(r"^\((.+)\)$", r"``c(\1)``", text)
    return {"()": "none", "None": "NULL", "1.0": "1", "0.0": "0"}.get(text, text)


def described(one: Parameter) -> str:
    """Return what a page says of a parameter."""
    return f"{kind_in_r(one)}. {rd(one.words)}".strip()


# --- pages -----------------------------------------------------------------------------------------------------------------


def item(name: str, page: Mapping[str, Any], known: Mapping[str, Parameter]) -> str:
    """Return what a page says of an argument of R: the words of Python, or of the input."""
    own = page.get("arguments", {}).get(name) or (None if name in known else SHARED["arguments"].get(name))
    also = page.get("also", {}).get(name) or SHARED["also"].get(name)
    said = described(known[name]) if own is None else own
    return f"{said} {also}" if also and own is None else said


def further(page: Mapping[str, Any], arguments: Mapping[str, str | None]) -> str:
    """Return the arguments of Python that R hands over by their names, as a list."""
    lines = [page.get("dots", "further arguments, handed over by their names in Python:")]
    each = {name: parameters(name) for name in page["python"]}
    told: dict[str, str] = {}
    for python, found in each.items():
        for one in found.values():
            if one.name in arguments or one.name in APART or one.name in page.get("apart", ()):
                continue
            alone = len(each) > 1 and sum(one.name in others for others in each.values()) == 1
            told.setdefault(one.name, described(one) + (f" Of Python's \\code{{{python}}} alone." if alone else ""))
    if not told:
        return page.get("dots", "further arguments; there are none.")
    return "\n".join([*lines, "\\describe{", *(f"\\item{{\\code{{{name}}}}}{{{said}}}" for name, said in told.items()), "}"])


def page_of(name: str, page: Mapping[str, Any], known_heads: Mapping[str, dict[str, str | None]]) -> str:
    """Return a page."""
    functions = page.get("functions", [name])
    known = {one: found for python in reversed(page["python"]) for one, found in parameters(python).items()}
    arguments: dict[str, str | None] = {}
    for function in functions:
        arguments |= {one: default for one, default in known_heads[function].items() if one not in arguments}
    dots = {"..."} & set(arguments)
    lines = [
        "% Generated by docs/rpages.py: change docs/rpages.toml, or the docstring of the Python class.",
        f"\\name{{{name}}}",
    ]
    lines += [f"\\alias{{{function}}}" for function in functions]
    lines += [f"\\title{{{page['title']}}}", "\\description{", page["description"].strip(), "}"]
    lines += ["\\usage{", *(usage(function, known_heads[function]) for function in functions), "}", "\\arguments{"]
    lines += [f"  \\item{{{one}}}{{{item(one, page, known)}}}" for one in arguments if one != "..."]
    lines += [f"  \\item{{\\dots}}{{{further(page, arguments)}}}" for _ in dots]
    lines.append("}")
    for section in ("details", "value", "seealso", "examples"):
        if section in page:
            lines += [f"\\{section}{{", page[section].strip("\n"), *([STOP] if section == "examples" else []), "}"]
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """Return all pages by the names of their files."""
    known = heads()
    return {f"{name}.Rd": page_of(name, page, known) for name, page in INPUT.items()}


def main(folder: Path) -> None:
    """Write all pages into a folder."""
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else R / "man")
