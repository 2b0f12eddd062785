"""Every theorem that code or pages cite is the heading of a page in the package, or a theorem of a paper that the sentence names.

A heading is ``## F.3 Flooring before the noise``. Cited are ``Theorem F.3``, ``F.1 and F.2``, ``F.1 to F.8``; a letter that no heading has is a theorem only
behind the word (``Table D.2`` is none). ``Theorem 1`` and ``Proposition 12`` are a paper's own. Numbers of pages that are not in the repository
(``T002.6``, ``SPEC 3``) are refused. Every file that is cited by name must exist, and hold the theorems that the sentence places in it.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from fnmatch import filter as filter_names
from pathlib import Path

import pytest

import unpooled

SOURCE = Path(unpooled.__file__).parent
ROOT = Path(__file__).parents[2]
#: The name of a page, a module or a settings file, with or without folders before it.
FILE = re.compile(r"(?<![\w/.*<>{}$-])((?:[\w.*-]+/)*[\w*-]+\.(?:md|py|toml))\b(?!\()")
#: Files that users and parties write: each of them has this name in the commands and in the documents.
OF_USERS = {"study.toml", "dossier.md", "party.toml", "network.toml", "link.toml", "predict.toml", "THIS.toml"}
WORD = r"(?:Theorem|Lemma|Proposition|Corollary)(?:s|'s)?"
NUMBER = r"[A-Z]\.\d+(?:\.\d+)*"
HEADING = re.compile(rf"^#+ ({NUMBER}) \S", re.MULTILINE)
#: A theorem of a paper is told by its number alone.
OF_A_PAPER = re.compile(rf"\b{WORD}\s+\d+")
ELSEWHERE = re.compile(r"\bT00\d\b(?:\.\d+)?|\bSPEC(?:\s+section)?\s+\d+|\bTHEORY\s+00\d")
#: Authors, the names of their methods, and the keys under which a page introduces them: [P], KLS21.
PAPER = re.compile(
    r"\[[A-Z]\b|\b[A-Z]{2,4}\d\d\b|\bPRIDE\b|Lou & Cheung|Balle|Kairouz|Canonne|Heikkila|Chaudhuri|Steinke|\bPST\b"
)


def prose(file: Path) -> Iterator[str]:
    """The text of a page; of a module its strings and comments, neighbouring lines of comments as one."""
    text = file.read_text()
    if file.suffix == ".md":
        yield text
        return
    comments: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.append(token.string.lstrip("#: "))
        elif token.type not in {tokenize.NL, tokenize.NEWLINE}:
            yield " ".join(comments)
            comments = []
            if token.type == tokenize.STRING:
                yield token.string


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text; a blank line, a row of a table and a bullet end one too."""
    for block in re.split(r"\n\s*\n|\n\s*[-*|] ", text):
        yield from re.split(r"(?<=[.:;])\s+(?=[A-Z*`\[])(?<!al\. )", re.sub(r"\s+", " ", block))


def headings(pages: dict[str, str]) -> set[str]:
    return {number for text in pages.values() for number in HEADING.findall(text)}


def unfounded(text: str, known: set[str]) -> list[str]:
    """What a text cites that is nowhere to be read."""
    letters = "".join(sorted({number[0] for number in known}))
    bare = re.compile(rf"(?<![\w.]){'[' + letters + ']'}\.\d+(?:\.\d+)*(?!\w)")
    wrong = ELSEWHERE.findall(text)
    for sentence in sentences(text):
        cited = {*bare.findall(sentence), *re.findall(rf"\b{WORD}\s+({NUMBER})", sentence)}
        wrong += sorted(cited - known)
        if not PAPER.search(sentence):
            wrong += OF_A_PAPER.findall(sentence)
    return wrong


def repository() -> set[str]:
    """Return the names of all files of the repository's sources and documents: each with no folder, one, two, up to all folders before it."""
    folders = [
        ROOT / name for name in ("changes", "docs", "examples", "experiments", "benchmarks", "src", "tests", "requirements")
    ]
    files = [
        *(path for path in ROOT.iterdir() if path.is_file()),
        *(path for folder in folders for path in folder.rglob("*")),
    ]
    parts = [path.relative_to(ROOT).parts for path in files if not {"_build", "__pycache__"} & set(path.parts)]
    return {"/".join(part[k:]) for part in parts for k in range(len(part))}


def absent(text: str, files: set[str]) -> list[str]:
    """Return the files that a text cites and that do not exist. A name without folders may be that of a file in any folder."""
    cited = {re.sub(r"^(\.\./)+", "", name) for name in FILE.findall(text)}
    cited = {name for name in cited - files if name.rpartition("/")[2] not in OF_USERS}
    return sorted(name for name in cited if "*" not in name or not filter_names(files, name))


def misplaced(text: str, there: dict[str, str]) -> list[str]:
    """Return the theorems that a text places in a page (``F.1 and F.2 in `blocks.md```) that has no such heading."""
    wrong = []
    for numbers, name in re.findall(rf"((?:{NUMBER}(?:,? and |, | to )?)+) in `([\w/]+\.md)`", text):
        held = {
            number for page, said in there.items() if f"/{page}".endswith(f"/{name}") for number in HEADING.findall(said)
        }
        wrong += [f"{number} in {name}" for number in re.findall(NUMBER, numbers) if number not in held]
    return wrong


def pages() -> dict[str, str]:
    return {str(file.relative_to(SOURCE)): file.read_text() for file in sorted(SOURCE.rglob("*.md"))}


@pytest.mark.slow
def test_every_citation_is_a_heading_or_names_its_paper() -> None:
    known = headings(pages())
    found = {
        str(file.relative_to(SOURCE)): wrong
        for file in sorted([*SOURCE.rglob("*.py"), *SOURCE.rglob("*.md")])
        if (wrong := [one for text in prose(file) for one in unfounded(text, known)])
    }
    assert found == {}


@pytest.mark.slow
def test_every_cited_file_exists() -> None:
    """Records of decisions and the changelog are left out: they say what was, and are not rewritten."""
    files, there = repository(), pages()
    readers = [SOURCE, ROOT / "docs", ROOT / "examples"]
    citing = [*(file for root in readers for kind in ("*.py", "*.md") for file in root.rglob(kind)), *ROOT.glob("*.md")]
    found = {
        str(file.relative_to(ROOT)): wrong
        for file in citing
        if not {"_build", "decisions"} & set(file.parts) and file.name != "CHANGELOG.md"
        if (wrong := [one for text in prose(file) for one in absent(text, files) + misplaced(text, there)])
    }
    assert found == {}


@pytest.mark.parametrize(
    "made_up",
    ["as `shares.md` says", "see [it](../shares.md)", "in mechanisms/shares.md.", "`models/gaussian.md`", "own.toml"],
)
def test_a_file_that_does_not_exist_is_found(made_up: str) -> None:
    assert absent(made_up, repository())


@pytest.mark.parametrize(
    "good",
    [
        "as `blocks.md` says",
        "`mechanisms/*.md`",
        "[it](../../examples/private_correlation/pyproject.toml)",
        "`pyproject.toml`, `A/study.toml`",
    ],
)
def test_a_file_that_exists_is_none_of_them(good: str) -> None:
    assert absent(good, repository()) == []


def test_a_theorem_that_another_page_holds_is_found() -> None:
    assert misplaced("F.3 in `mechanisms/blocks.md`, F.10 and F.11 in `distributed.md`", pages()) == []
    assert misplaced("F.10, F.11 and F.3 in `distributed.md`", pages()) == ["F.3 in distributed.md"]
    assert misplaced("F.10 in `shares.md`", pages()) == ["F.10 in shares.md"]


def test_no_heading_is_there_twice() -> None:
    numbers = [number for text in pages().values() for number in HEADING.findall(text)]
    assert sorted(numbers) == sorted(set(numbers))


def test_every_mechanism_has_its_page() -> None:
    folder = SOURCE / "privacy" / "mechanisms"
    modules = {file.stem for file in folder.glob("*.py")} - {"__init__"}
    assert {file.stem for file in folder.glob("*.md")} == modules
    for name in modules:
        text = (folder / f"{name}.md").read_text()
        assert "*Precondition.*" in text, name
        assert "**Theorem.**" in text, name
        assert "**Proof.**" in text, name


@pytest.mark.parametrize(
    "made_up",
    [
        "as Theorem F.999 says",
        "as F.999 says",
        "by Theorems F.1 and F.999",
        "(Theorem Z.1)",
        "It is T002.6.",
        "see SPEC section 3",
        "This is Theorem 7 of somebody.",
        "the paper's Theorem 1",
        "Balle & Wang 2018 have another. But Theorem 8 is the one meant.",
        "F.9.99 is no part of F.9",
    ],
)
def test_a_made_up_citation_is_found(tmp_path: Path, made_up: str) -> None:
    known = headings(pages())
    assert {"F.1", "F.9", "F.9.1", "S.1", "L.5", "B.1", "P.1"} <= known
    assert unfounded(made_up, known)
    module = tmp_path / "module.py"
    for text in (f'"""{made_up}"""\n', f"x = 1  # {made_up}\n", f"#: {made_up}\nx = 1\n"):
        module.write_text(text)
        assert [one for part in prose(module) for one in unfounded(part, known)], text


@pytest.mark.parametrize(
    "good",
    [
        "Theorem F.1, F.9.1 and S.8",
        "by Theorems F.1 to F.8.",
        "It follows Kairouz, Liu & Steinke 2021, Theorem 1, in part.",
        "PRIDE's Theorem 1",
        "Figures 4 and Table D.2 of section D.1",
        "a scale of 1.5 and n F.",
    ],
)
def test_a_citation_that_can_be_followed_is_none_of_them(good: str) -> None:
    assert unfounded(good, headings(pages())) == []
