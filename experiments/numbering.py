"""The numbered items of the five papers, read out of the papers' own texts: ``docs/papers/numbering.toml``, with which the pages are compared.

python -m experiments.numbering FOLDER        # compares; --write replaces the list

The texts are not shipped. An item that the text says is another paper's ("Theorem 18 in [..]") is none of this one. An equation is numbered where its
number stands at the end of a line, or under a tag.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

LIST = Path(__file__).parent.parent / "docs/papers/numbering.toml"
TEXTS = {
    "pride": "pride.txt",
    "stacking": "stacking.txt",
    "bayes": "bayes-supplement.txt",
    "lasso": "lasso.txt",
    "pls": "pls.txt",
}
KINDS = (
    "Definition",
    "Assumption",
    "Algorithm",
    "Theorem",
    "Proposition",
    "Corollary",
    "Lemma",
    "Remark",
    "Figure",
    "Table",
)
NUMBERED = re.compile(
    rf"(?<!\[\d, )(?<!from )\b({'|'.join(KINDS)})\s+((?:[A-Z]\.)?\d+(?:\.\d+)?)\b(?!\]|\s+(?:in|of|from)\s+(?:\\?\[|[A-Z]))"
)
EQUATION = re.compile(r"\\tag\{(\d+)\}|\((\d{1,2})\)\s*\$*\s*$", re.MULTILINE)


def items_of(text: str) -> list[str]:
    """The numbered items of one paper, in the order of kinds and numbers."""
    found = {f"{kind} {number}" for kind, number in NUMBERED.findall(text)}
    equations = {int(a or b) for a, b in EQUATION.findall(text)}
    return [*sorted(found, key=_place), *(f"Equation ({number})" for number in sorted(equations))]


def _place(item: str) -> tuple[int, str, tuple[int, ...]]:
    kind, number = item.split()
    letter = number[0] if number[0].isalpha() else ""
    return KINDS.index(kind), letter, tuple(int(n) for n in re.findall(r"\d+", number))


def main(arguments: list[str]) -> int:
    """Compare the list with the texts in a folder, or write it."""
    folder = Path(next(a for a in arguments if not a.startswith("--")))
    found = {paper: items_of((folder / name).read_text()) for paper, name in TEXTS.items()}
    if "--write" in arguments:
        lines = [
            "# The numbered items of each paper, read out of its text by experiments/numbering.py; no row of our pages was looked at."
        ]
        for paper, items in found.items():
            lines += ["", f"[{paper}]", "items = [", *(f'    "{item}",' for item in items), "]"]
        LIST.write_text("\n".join(lines) + "\n")
        return 0
    written = {paper: own["items"] for paper, own in tomllib.loads(LIST.read_text()).items()}
    for paper, items in found.items():
        if written.get(paper) != items:
            print(f"{paper}: {sorted(set(items) ^ set(written.get(paper, [])))}")
    return int(written != found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
