"""The rule of language (CONTRIBUTING.md, "Language"), as a ratchet: no file gets worse, and what got better stays better.

Two things are counted. Openings: docstrings of the package whose first word shows that they are no sentence. Words: uses of the words that the rule
forbids, in docstrings and in pages. Code, quotations and rows of figures are left out. ``language.toml`` holds the count of every file that has one.

``python tests/contract/test_language.py --write`` lowers the counts. It raises none: mend the sentence that it names. After a merge of branches that
both changed the file, remove it and write it anew.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COUNTS = Path(__file__).with_name("language.toml")
OPENINGS = ("What", "How", "Of", "By", "In", "From", "Whether")
FORBIDDEN = re.compile(r"\b(?:so\s+many|as\s+many|told|whoever|beside)\b", re.IGNORECASE)
KINDS = ("openings", "words")
Found = dict[str, list[str]]


def files() -> list[Path]:
    """Return every module of the package and every page that users and contributors read."""
    pages = [*ROOT.glob("*.md"), *(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts)]
    return sorted([*(ROOT / "src").rglob("*.py"), *pages])


def docstrings(source: str) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and its functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            said = ast.get_docstring(node)
            if said:
                yield said


def without_code(said: str) -> str:
    """Return a docstring without examples and without words in backticks."""
    lines = (line for line in said.splitlines() if not line.lstrip().startswith((">>>", "...")))
    return re.sub(r"``.*?``|`[^`]*`", " ", "\n".join(lines), flags=re.DOTALL)


def prose(page: str) -> str:
    """Return a page without code, comments, quotations, and rows of tables that hold decimal numbers."""
    page = re.sub(r"^( *)(`{3,}|~{3,}).*?^\1\2`*$", "", page, flags=re.DOTALL | re.MULTILINE)
    page = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
    lines = (line for line in page.splitlines() if not line.lstrip().startswith(">"))
    lines = (line for line in lines if not (line.lstrip().startswith("|") and re.search(r"\d\.\d", line)))
    page = re.sub(r"``.*?``|`[^`\n]*`", " ", "\n".join(lines))
    return re.sub(r'"[^"\n]*"|\u201c[^\u201d]*\u201d', " ", page)


def found(name: str, text: str) -> Found:
    """Return what the rule does not allow in a file, by kind."""
    if name.endswith(".py"):
        said = list(docstrings(text))
        opened = [one.splitlines()[0] for one in said if (re.match(r"\w+", one) or [""])[0] in OPENINGS]
        read = "\n\n".join(map(without_code, said))
    else:
        opened, read = [], prose(text)
    return {"openings": opened, "words": [context(read, use) for use in FORBIDDEN.finditer(read)]}


def context(text: str, use: re.Match[str]) -> str:
    """Return a use with the words before and after it."""
    return re.sub(r"\s+", " ", text[max(0, use.start() - 30) : use.end() + 30]).strip()


def all_found() -> dict[str, Found]:
    """Return what the rule does not allow, for every file that has any."""
    uses = {str(path.relative_to(ROOT)): found(path.name, path.read_text(encoding="utf-8")) for path in files()}
    return {name: one for name, one in uses.items() if any(one.values())}


def held() -> dict[str, dict[str, int]]:
    """Return the counts that the files may not exceed."""
    counts: dict[str, dict[str, int]] = tomllib.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else {}
    return counts


def compared(now: dict[str, Found], then: dict[str, dict[str, int]]) -> tuple[list[str], list[str]]:
    """Return the files that got worse, with what is in them, and the files that got better."""
    worse, better = [], []
    for name in sorted(now.keys() | then.keys()):
        for kind in KINDS:
            uses, allowed = now.get(name, {}).get(kind, []), then.get(name, {}).get(kind, 0)
            if len(uses) > allowed:
                worse.append(f"{name}: {len(uses)} {kind}, and {allowed} are allowed: " + "; ".join(uses))
            elif len(uses) < allowed:
                better.append(f"{name}: {len(uses)} {kind} instead of {allowed}")
    return worse, better


def write() -> list[str]:
    """Lower the counts, and return the files that would need higher ones."""
    now, then, new = all_found(), held(), not COUNTS.exists()
    worse, _ = compared(now, then)
    lines = []
    for name, uses in now.items():
        counts = {kind: len(uses[kind]) for kind in KINDS}
        if not new:
            counts = {kind: min(count, then.get(name, {}).get(kind, 0)) for kind, count in counts.items()}
        if any(counts.values()):
            lines.append(f'"{name}" = {{ openings = {counts["openings"]}, words = {counts["words"]} }}\n')
    COUNTS.write_text("# Written by `python tests/contract/test_language.py --write`.\n" + "".join(lines), encoding="utf-8")
    return [] if new else worse


def test_no_file_got_worse_and_what_got_better_is_written_down() -> None:
    worse, better = compared(all_found(), held())
    assert worse == [], 'mend these sentences (CONTRIBUTING.md, "Language")'
    assert better == [], "lower the counts: python tests/contract/test_language.py --write"


@pytest.mark.parametrize(
    "name", ["README.md", "docs/index.md", "docs/stability.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md"]
)
def test_the_first_pages_have_none(name: str) -> None:
    assert found(name, (ROOT / name).read_text(encoding="utf-8")) == {"openings": [], "words": []}


def test_a_count_that_rises_and_one_that_falls_are_noticed() -> None:
    now = {"a.py": {"openings": ["What it is."], "words": []}}
    assert compared(now, {"a.py": {"openings": 1, "words": 0}}) == ([], [])
    assert compared(now, {})[0] == ["a.py: 1 openings, and 0 are allowed: What it is."]
    assert compared(now, {"a.py": {"openings": 2, "words": 1}})[1] == [
        "a.py: 1 openings instead of 2",
        "a.py: 0 words instead of 1",
    ]
    assert compared({}, {"gone.py": {"openings": 1, "words": 0}})[1]


@pytest.mark.parametrize(
    ("name", "text", "openings", "words"),
    [
        ("a.py", '"""What it holds."""\ndef f():\n    """Return x."""\n', 1, 0),
        ("a.py", '"""Returns."""\nclass A:\n    """Whether it is.\n\n    Whoever asks is told."""\n', 1, 2),
        ("a.py", '"""Whatever, Informed, Bystander, besides, foretold."""\n', 0, 0),
        ("a.py", '"""Say.\n\n>>> told = 1\n``told`` and `beside`\n"""\ntold = "told"  # told\n', 0, 0),
        ("a.md", "It was told so\nmany times. Beside it.", 0, 3),
        ("a.md", 'What it is. `told` and "as many".\n\n> told\n\n```python\ntold\n```\n<!-- told -->\n', 0, 0),
        ("a.md", "| a | b |\n|---|---|\n| told | 0.3 |\n| told | words |\n", 0, 1),
        ("a.md", "````\n```\ntold\n```\n````\nas many\n", 0, 1),
    ],
)
def test_prose_is_counted_and_nothing_else(name: str, text: str, openings: int, words: int) -> None:
    assert {kind: len(uses) for kind, uses in found(name, text).items()} == {"openings": openings, "words": words}


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("use: python tests/contract/test_language.py --write")
    sys.exit("\n".join(write()) or None)
