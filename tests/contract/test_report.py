"""The page of a run: worked out from the transcript alone, the same bytes again, and nothing loaded from elsewhere."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest
from cases import CASES
from joint_members import study_of, world

from unpooled.errors import DataError, ProtocolError, UsageError
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.protocol.messages import encode
from unpooled.protocol.registry import Panel
from unpooled.protocol.transcript import Transcript
from unpooled.report import figures
from unpooled.report.page import page
from unpooled.study.finished import Run
from unpooled.testing.cases import transcript_of
from unpooled.testing.results import has_a_page, ran


@pytest.mark.slow
def test_a_simulation_has_a_page_that_says_so(tmp_path: Path) -> None:
    has_a_page(CASES["describe"](), tmp_path, simulated=True)


def describe(tmp_path: Path) -> Path:
    case = CASES["describe"]()
    return ran(tmp_path, case.study, case.tables)


@pytest.mark.slow
def test_a_stored_result_that_does_not_follow_from_the_transcript_is_told(tmp_path: Path) -> None:
    folder = describe(tmp_path)
    stored = (folder / "result.json").read_text()
    (folder / "result.json").write_text(stored.replace('"value": 90.0', '"value": 91.0', 1))
    assert (run := Run.read(folder)).agrees is False
    assert "NOT the recomputed one" in page(run)
    (folder / "result.json").write_text("{")
    assert Run.read(folder).agrees is False
    (folder / "result.json").unlink()
    assert (run := Run.read(folder)).agrees is None
    assert "no stored result" in page(run)


@pytest.mark.guarantee
def test_what_is_no_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no transcript"):
        Run.read(tmp_path)
    (tmp_path / "transcript").touch()
    with pytest.raises(UsageError, match="empty"):
        Run.read(tmp_path)
    folder = describe(tmp_path)
    whole = (folder / "transcript").read_bytes()
    (folder / "transcript").write_bytes(whole[:-10])
    with pytest.raises(ProtocolError, match="ends before"):
        Run.read(folder)
    other = Transcript.open(tmp_path / "other")
    other.record("north", encode("f" * 64, "sums", 0, msgspec.defstruct("Empty", [])()), b"")
    other.close()
    (folder / "transcript").write_bytes((tmp_path / "other").read_bytes())
    with pytest.raises(ProtocolError, match="does not begin with a study"):
        Run.read(folder)


@pytest.mark.guarantee
def test_a_run_whose_members_have_no_keys_is_refused(tmp_path: Path) -> None:
    """P19: nobody signed its replies, so the page of an edited one said that it was worked out from its messages."""
    transcript = transcript_of(CASES["describe"]())
    written = Transcript.open(tmp_path / "transcript")
    for entry in transcript.entries:
        written.record(entry.to, entry.request, entry.reply)
    written.close()
    with pytest.raises(ProtocolError, match="no member of this run has a key"):
        Run.read(tmp_path)


@pytest.mark.guarantee
def test_a_run_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = describe(tmp_path)
    monkeypatch.setattr("unpooled.privacy.plan.PLAN_VERSION", 999)
    with pytest.raises(UsageError, match="use the one it ran with"):
        Run.read(folder)


@pytest.mark.slow
def test_names_are_text_and_nothing_else() -> None:
    odd = ("<b>bold</b>", "$x_1$ & co", "Größe 高さ", 'a"quote')
    bars = figures.panel(Panel("title", odd, (1.0, -2.0, 3.0, 0.0))).wide
    assert "&lt;b&gt;" in bars
    assert "<b>" not in bars
    assert "$x_1$ &amp; co" in bars
    assert "高さ" in bars
    assert "<svg" in figures.panel(Panel("title", odd, (1.0, 2.0, 3.0, 4.0), ordered=True)).wide
    many = Panel("title", tuple(f"column {j}" for j in range(50)), tuple(float(j) for j in range(50)))
    assert "column 49" in figures.panel(many).wide
    assert "column 3<" not in figures.panel(many).wide
    assert "and 20 smaller ones" in figures.panel(many).narrow  # what is left out of the figure is told to those who hear it
    assert 'aria-label="title: &lt;b&gt;bold' in bars
    assert "#1d2733" not in bars.replace(
        "var(--ink, #1d2733)", ""
    )  # colours are the page's, so that they follow it into the dark


HOSTILE = ("<script>alert(1)</script>", "x" * 300, "a\"onload='x'", "{{ 7 * 7 }}", "</svg><img src=x>", "$\\frac{1}{0}$")


def hostile(tmp_path: Path) -> Path:
    """A study whose every name is written against the page."""
    columns = tuple(Column(name, 0.0, 1.0) for name in HOSTILE)
    rng = np.random.default_rng(0)
    tables, cards = {}, []
    for name in ("<b>north</b>", "south" * 20):
        tables[name] = Table({column: rng.uniform(size=60) for column in HOSTILE})
        cards.append(Card(name, 60, columns))
    parameters = {"columns": list(HOSTILE)}
    return ran(tmp_path, Study("describe", tuple(cards), 1.0, 1e-5, derived=(), parameters=parameters), tables)


@pytest.mark.slow
def test_hostile_names_do_nothing(tmp_path: Path) -> None:
    folder = hostile(tmp_path)
    (folder / "about.json").write_text('{"finished": "<i>now</i>", "by": "<script>x", "purpose": "<img src=x onerror=x>"}')
    text = page(Run.read(folder))
    outside = re.sub(
        r"<(/?)(html|head|meta|title|style|body|main|header|h1|h2|h3|p|span|section|strong|ul|li|dl|dt|dd|table|tr|th|td|div|details|summary|pre|svg|g|path|defs|use|text|tspan|clipPath|rect|metadata|rdf:RDF|cc:Work|dc:[a-z]+|!doctype)\b",
        "",
        text,
    )
    assert not re.search(r"<[a-zA-Z!/]", outside), re.findall(r"<[a-zA-Z!/].{30}", outside)[:3]
    assert "49" not in re.findall(r"<td[^>]*>([^<]*)</td>", text)
    assert "{{ 7 * 7 }}" in text
    assert "&lt;img src=x onerror=x&gt;" in text


@pytest.mark.slow
def test_the_page_says_why_by_whom_and_when(tmp_path: Path) -> None:
    folder = describe(tmp_path)
    assert "not recorded" in page(Run.read(folder))
    left = {"party": "north", "spent": 0.5, "allowed": 2.0, "delta": 1e-6, "unit": "record"}
    about = {"finished": "2026-11-22 09:00 UTC", "by": "ada", "purpose": "to know", "budgets": [left]}
    (folder / "about.json").write_bytes(msgspec.json.encode(about))
    text = page(Run.read(folder))
    for words in ("ada", "to know", "2026-11-22 09:00 UTC", "Budget of north", "epsilon = 0.5 of 2 is spent"):
        assert words in text
    (folder / "about.json").write_text("{")
    with pytest.raises(DataError, match="remove it"):
        Run.read(folder)


_FRAME = '<iframe id="{name} {width}" style="width:{width}px;height:900px;border:0" srcdoc="{page}"></iframe>'
_LOOK = """<!doctype html><html><body>{frames}<script>
onload = () => {
  const found = {};
  for (const f of document.querySelectorAll("iframe")) {
    const d = f.contentDocument, width = f.clientWidth, over = [], sizes = [];
    for (const s of d.querySelectorAll("svg")) {
      const shown = s.getBoundingClientRect().width;
      if (shown) sizes.push(shown / s.viewBox.baseVal.width);
    }
    for (const e of d.querySelectorAll("td, dd, li, p, h1, h3, strong"))
      if (e.getBoundingClientRect().right > width + 1 && !e.closest("pre")) over.push(e.textContent.slice(0, 40));
    found[f.id] = { scrolls: d.documentElement.scrollWidth, over, sizes };
  }
  document.body.textContent = "FOUND " + JSON.stringify(found) + " END";
}</script></body></html>"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.minutes
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_shows_pages_without_overflow_and_figures_at_their_size(tmp_path: Path) -> None:
    pages = {}
    for name in ("bayes", "pls"):
        case = CASES[name]()
        (tmp_path / name).mkdir()
        pages[name] = page(Run.read(ran(tmp_path / name, case.study, case.tables)))
    (tmp_path / "hostile").mkdir()
    pages["hostile"] = page(Run.read(hostile(tmp_path / "hostile")))
    widths = {f"{name} {width}": width for name in pages for width in (360, 1280)}
    frames = [
        _FRAME.format(name=which.split()[0], width=width, page=html.escape(pages[which.split()[0]]))
        for which, width in widths.items()
    ]
    look = tmp_path / "look.html"
    look.write_text(_LOOK.replace("{frames}", "".join(frames)), encoding="utf-8")
    words = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000", "--dump-dom")
    done = subprocess.run(
        [*words, f"--user-data-dir={tmp_path / 'profile'}", look.as_uri()],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    found = json.loads(html.unescape(re.search(r"FOUND (.*) END", done.stdout)[1]))
    assert found.keys() == widths.keys()
    for which, width in widths.items():
        assert found[which]["scrolls"] <= width, which
        assert not found[which]["over"], which
        # A figure's letters have 12 pixels at its own size (points to pixels: 4/3): here at least 9.6.
        assert found[which]["sizes"], which
        assert min(found[which]["sizes"]) > 0.8 * 4 / 3, which


def joint(tmp_path: Path, *, helper: bool, **parameters: str) -> str:
    """Return the page of a study of joint moments."""
    cards, tables = world(2 if helper else 3, helper=helper)
    return page(Run.read(ran(tmp_path, study_of(cards, helper=helper, **parameters), tables)))


def cells(text: str) -> list[str]:
    """Return the cells of the table that says who could read rows together."""
    section = text.split("<h2>Who could read rows together</h2>")[1].split("</section>", maxsplit=1)[0]
    return re.findall(r"<td[^>]*>([^<]*)</td>", section)


@pytest.mark.slow
def test_the_page_of_joint_moments_says_who_could_read_whose_rows_together(tmp_path: Path) -> None:
    text = joint(tmp_path, helper=True)
    assert cells(text) == [
        *("p0", "a0, b0", "p1", "helper", "p1 with helper"),
        *("p1", "a1, b1, c1, y", "p0", "helper", "p0 with helper"),
    ]
    assert "A helper of this study has no data" in text
    assert ">no data</td>" in text
    assert "2 parties with columns" in text
    assert "proves to the receiver" in text


@pytest.mark.slow
def test_the_page_names_every_pair_where_parties_help_each_other_and_a_missing_proof(tmp_path: Path) -> None:
    text = joint(tmp_path, helper=False, check="none")
    assert {cells(text)[k] for k in range(4, 30, 5)} == {f"p{a} with p{b}" for a in range(3) for b in range(3) if a != b}
    assert "no data" not in text
    assert "No sender proves that its rows are short" in text


@pytest.mark.slow
def test_a_page_without_joint_moments_says_nothing_of_masks(tmp_path: Path) -> None:
    assert "masks" not in page(Run.read(describe(tmp_path)))
