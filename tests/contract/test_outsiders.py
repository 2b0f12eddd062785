"""The files that an outsider looks for are there and can be read: the citation, the workflow, the templates, the changelog, the promise of stability."""

from __future__ import annotations

import re
import subprocess
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import yaml

import unpooled
from unpooled.models.describe.estimator import describe

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
TEMPLATES = sorted(GITHUB.glob("ISSUE_TEMPLATE/*.md"))


def plain(text: str) -> str:
    """Return a text without accents, in small letters, with single spaces."""
    bare = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return re.sub(r"\s+", " ", bare.lower())


def test_the_citation_names_this_version_and_the_five_papers_of_the_documents() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= set(cited)
    assert (cited["version"], cited["license"]) == (unpooled.__version__, "Apache-2.0")
    pages = {
        page.stem: plain(page.read_text())
        for page in (ROOT / "docs/papers").glob("*.md")
        if page.stem not in {"index", "ten-lines"}
    }
    seen = set()
    for reference in cited["references"]:
        assert {"type", "title", "authors", "year"} <= set(reference)
        (name,) = re.findall(r"docs/papers/(\w+)\.md", reference["notes"])
        seen.add(name)
        page = pages[name]
        assert str(reference["year"]) in page
        assert plain(reference["authors"][0]["family-names"]) in page
        for estimator in re.findall(r"P\w+", reference["notes"]):
            assert hasattr(unpooled, estimator)
    assert seen == set(pages)


def test_the_workflow_calls_the_makefile_without_secrets_and_with_time_limits() -> None:
    text = (GITHUB / "workflows/ci.yml").read_text()
    flow = yaml.safe_load(text)
    assert flow["permissions"] == {"contents": "read"}
    assert "secrets" not in text
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = set()
    for job in flow["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 120
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])
            if "run" in step:
                make, *names = step["run"].split()
                assert make == "make"
                called |= set(names)
    assert called == {"lint", "test", "test-slow", "audit", "docs", "wheel"} <= targets


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.stem)
def test_a_template_has_a_name_and_says_what_it_is_for(template: Path) -> None:
    _, head, body = template.read_text().split("---\n", 2)
    assert {"name", "about"} <= set(yaml.safe_load(head))
    assert body.strip()


def test_privacy_concerns_are_sent_to_the_security_page() -> None:
    assert {template.stem for template in TEMPLATES} == {"bug", "wrong-answer", "privacy-concern", "feature"}
    for name in ("privacy-concern", "wrong-answer"):
        assert "SECURITY.md" in (GITHUB / f"ISSUE_TEMPLATE/{name}.md").read_text()
    assert "SECURITY.md" in (ROOT / "CODE_OF_CONDUCT.md").read_text()


def test_the_changelog_has_one_section_for_each_version_with_how_to_upgrade() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    versions = [section.split()[0] for section in sections]
    assert versions[0] == unpooled.__version__
    assert len(versions) == len(set(versions))
    assert versions == sorted(versions, key=lambda version: [int(part) for part in version.split(".")], reverse=True)
    for section in sections:
        titles = re.findall(r"^### (.+)$", section, re.MULTILINE)
        assert titles[0] == "How to upgrade"
        assert titles.count("How to upgrade") == 1
        assert {re.split(r"[:,]", title)[0] for title in titles[1:]} <= {"Added", "Changed", "Fixed", "Removed"}


def too_long(fragments: dict[str, str]) -> list[str]:
    """Return the fragments that are not one to three lines, or are not named by an issue and a word."""
    return [
        name
        for name, text in fragments.items()
        if not re.fullmatch(r"\d{3}-[a-z-]+\.md", name) or not 1 <= len(text.splitlines()) <= 3 or not all(text.splitlines())
    ]


def test_fragments_have_one_to_three_lines_and_the_changelog_at_most_sixty() -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "changes").iterdir()}
    assert too_long(found) == []
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()) <= 60
    wrong = {"065-a.md": "a\n\nb\n", "065-b.md": "a\nb\nc\nd\n", "066.md": "a\n", "067-c.md": ""}
    assert too_long({**wrong, "068-d.md": "a\n"}) == list(wrong)


def test_a_statement_keeps_the_keys_that_the_page_on_stability_promises() -> None:
    said = (ROOT / "docs/stability.md").read_text()
    (keys,) = re.findall(r"^These keys stay: (.+)\.$", said, re.MULTILINE)
    found = describe({"age": np.array([1.0, 2.0])}, {"age": (0, 3)}, epsilon=1.0).statement_.to_dict()
    assert set(re.findall(r"`(\w+)`", keys)) == set(found)


@pytest.mark.slow
def test_the_picture_of_the_landing_page_is_what_its_script_draws(tmp_path: Path) -> None:
    """If this or the example of README fails because a plan has changed, run `python docs/landing.py`."""
    import sys

    subprocess.run([sys.executable, ROOT / "docs/landing.py", tmp_path / "landing.svg"], check=True)
    assert (tmp_path / "landing.svg").read_bytes() == (ROOT / "docs/landing.svg").read_bytes()
