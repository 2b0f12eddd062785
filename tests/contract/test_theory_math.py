"""Pages of proofs: every formula can be rendered here and on code hosts, theorems have proofs, lines are short, and the site shows every page."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from test_theorems import INDEX

ROOT = Path(__file__).parents[2]
PAGES = INDEX.pages()
LONGEST = 160
#: Words that say where a proof is, in the place of one.
ELSEWHERE = re.compile(r"\bproof (?:is|of \S+ is) in\b", re.IGNORECASE)


def loaded() -> ModuleType:
    """Return the renderer of the documentation."""
    spec = importlib.util.spec_from_file_location("mathml_of_docs", ROOT / "docs" / "mathml.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mathml: Callable[..., str] = loaded().mathml


def without_code(text: str) -> str:
    """Return a page without blocks and words of code, in which a dollar is a dollar."""
    text = re.sub(r"^( *)(`{3,}).*?^\1\2$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`]*`", "", text)


def formulas(text: str) -> tuple[list[str], list[str]]:
    """Return the displayed and the inline formulas of a page."""
    bare = without_code(text)
    displayed = re.findall(r"^ *\$\$\n(.*?)\n *\$\$$", bare, flags=re.DOTALL | re.MULTILINE)
    return displayed, re.findall(r"\$([^$]*)\$", re.sub(r"^ *\$\$\n.*?\n *\$\$$", "", bare, flags=re.DOTALL | re.MULTILINE))


def wrong_formulas(text: str) -> list[str]:
    """Return the formulas that a renderer cannot show, or that a code host shows otherwise."""
    displayed, inline = formulas(text)
    wrong = []
    for block, tex in [*((True, one) for one in displayed), *((False, one) for one in inline)]:
        try:
            mathml(tex, block=block)
        except ValueError as error:
            wrong.append(str(error))
        if re.search(r"\\[^a-zA-Z]", tex):
            wrong.append(f"Markdown takes the backslash away in {tex}")
        if r"\operatorname" in tex:
            wrong.append(f"code hosts refuse this macro, use mathrm: {tex}")
        if not block and (tex != tex.strip() or "\n" in tex or not tex):
            wrong.append(f"a code host reads no formula in ${tex}$")
    left = re.sub(r"\$[^$]+\$", "", re.sub(r"^ *\$\$\n.*?\n *\$\$$", "", without_code(text), flags=re.DOTALL | re.MULTILINE))
    wrong += [f"a dollar without its other: {line}" for line in left.splitlines() if "$" in line]
    return wrong


def wrong_blocks(text: str) -> list[str]:
    """Return what is wrong with the marks of theorems, proofs and measurements."""
    wrong = [f"no mark: {one}" for one in re.findall(r"QED|(?<!\*)\*(?:Theorem|Proof|Measured)\b[^*]*\*(?!\*)", text)]
    wrong += [
        f"not at the start of a paragraph: {before}{mark}"
        for gap, before, mark in re.findall(r"(\n *\n|\n|\Z)([^\n]*?)(\*\*(?:Theorem|Proof|Measured)\.\*\*)", f"\n\n{text}")
        if gap.count("\n") < 2 or before.strip()
    ]
    for section in re.split(r"^#+ .*$", text, flags=re.MULTILINE):
        parts = re.split(r"\*\*(Theorem|Proof)\.\*\*", section)
        marks = list(zip(parts[1::2], parts[2::2], strict=True))
        for place, (mark, said) in enumerate(marks):
            following = marks[place + 1][0] if place + 1 < len(marks) else ""
            if mark == "Theorem" and following != "Proof" and not ELSEWHERE.search(said):
                wrong.append(f"no proof: {said[:60]}")
            if mark == "Proof" and said.count("∎") != 1:
                wrong.append(f"{said.count('∎')} ends of a proof: {said[:60]}")
        if parts[0].count("∎") or sum(said.count("∎") for mark, said in marks if mark == "Theorem"):
            wrong.append(f"the end of no proof: {section[:60]}")
    return wrong


def long_lines(text: str) -> list[str]:
    """Return the lines, but for rows of tables, that are too long to be read and compared."""
    return [line for line in text.splitlines() if len(line) > LONGEST and not line.startswith("|")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_of_proofs_is_well_formed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert wrong_formulas(text) == []
    assert wrong_blocks(text) == []
    assert long_lines(text) == []


def test_statements_of_the_index_can_be_rendered() -> None:
    for one in INDEX.theorems():
        assert wrong_formulas(one.statement) == [], one.number


def test_the_site_has_a_page_for_every_page_of_proofs() -> None:
    folder = ROOT / "docs" / "theory"
    listed = (folder / "index.md").read_text(encoding="utf-8")
    included = {}
    for page in sorted(folder.rglob("*.md")):
        if page.name != "index.md":
            (target,) = re.findall(r"^```\{include\} (\S+)\n```$", page.read_text(encoding="utf-8"), re.MULTILINE)
            included[(page.parent / target).resolve()] = str(page.relative_to(folder).with_suffix(""))
    assert set(included) == {page.resolve() for page in PAGES}
    (toctree,) = re.findall(r"```\{toctree\}\n(?::.*\n)+\n(.*?)```", listed, flags=re.DOTALL)
    assert sorted(toctree.split()) == sorted(included.values())
    linked = {(folder / target).resolve() for target in re.findall(r"\]\(([^)#]+)\)", listed)}
    assert {page.resolve() for page in PAGES} <= linked


GOOD = (
    "## F.1 A\n\n**Theorem.** Let $x \\le \\sqrt{2} R^2$.\n\n$$\nx = \\frac{1}{2}\n$$\n\n"
    "**Proof.** By `$` and $y$. ∎\n\n**Measured.** 3.\n"
)


def test_a_sound_page_is_accepted() -> None:
    assert wrong_formulas(GOOD) + wrong_blocks(GOOD) + long_lines(GOOD) == []
    assert formulas(GOOD) == (["x = \\frac{1}{2}"], ["x \\le \\sqrt{2} R^2", "y"])
    elsewhere = "**Theorem.** It holds. The proof is in `base.md`.\n"
    assert wrong_blocks(elsewhere) == []


@pytest.mark.parametrize(
    "tex",
    [
        r"\frac{1",
        r"\sqrtt{2}",
        r"x_1_2",
        r"\left( x",
        r"a}",
        r"\frac{1}",
        "x^",
        r"\lbrace x \}",
        r"a \, b",
        r"\operatorname{tr} A",
        " x",
        "",
    ],
)
def test_a_broken_formula_is_caught(tex: str) -> None:
    assert wrong_formulas(GOOD.replace("$y$", f"${tex}$")) != []
    if tex.strip() == tex != "":
        assert wrong_formulas(GOOD.replace("x = \\frac{1}{2}", tex)) != []


def test_a_dollar_too_few_is_caught() -> None:
    for broken in (GOOD.replace("$y$", "$y"), GOOD.replace("$y$", "y$"), GOOD.replace("$$\n\n**P", "$\n\n**P")):
        assert wrong_formulas(broken) != []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("∎", "QED"),
        (" ∎", ""),
        ("**Proof.**", "*Proof.*"),
        ("**Proof.** By", "By"),
        ("\n\n**Proof.**", " **Proof.**"),
        ("\n\n**Measured.**", "\n**Measured.**"),
        ("**Measured.** 3.", "*Measured* for 3."),
        ("**Proof.**", "## F.2 B\n\n**Proof.**"),
        ("**Measured.** 3.", "It is so. ∎"),
    ],
)
def test_a_wrong_mark_is_caught(before: str, after: str) -> None:
    assert before in GOOD
    assert wrong_blocks(GOOD.replace(before, after)) != []


def test_a_long_line_is_caught() -> None:
    assert long_lines("x" * (LONGEST + 1)) != []
    assert long_lines("| " + "x" * LONGEST + " |") == []
