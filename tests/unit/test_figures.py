"""The figures of pages and notebooks: what is drawn, what is said to those who cannot see it, and the style that all share."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

import unpooled
from unpooled.estimation.outlook import Expected, Outlook
from unpooled.inference import drawing
from unpooled.models import load
from unpooled.models.effects.outlook import EffectOutlook
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger.spending import Spending, StudyBalance
from unpooled.privacy.plan import Card, HelperCard, Household, Plan, Study
from unpooled.privacy.unit import Target
from unpooled.protocol.registry import Panel
from unpooled.report import figures

ALLOWED = Target(5.0, 1e-6)


def heard(drawn: figures.Drawn) -> str:
    """What those hear who cannot see a figure; both of its widths are drawn, and say the same."""
    said = {ET.fromstring(text).attrib["aria-label"] for text in (drawn.wide, drawn.narrow)}
    assert len(said) == 1
    return said.pop()


def texts(text: str) -> list[str]:
    """The words inside a figure."""
    return [
        one for one in ("".join(e.itertext()).strip() for e in ET.fromstring(text).iter() if e.tag.endswith("}text")) if one
    ]


def balances(count: int, unknown: int = -1, about: str = "study {}", time: int = 1_700_000_000) -> list[StudyBalance]:
    found = []
    for k in range(count):
        known, hidden = math.sqrt(k + 1) / 10, 0 <= unknown <= k
        found.append(
            StudyBalance(
                f"{k:064x}",
                time and time + 86400 * k,
                about.format(k),
                Spending(math.inf if hidden else known, known, int(hidden)),
            )
        )
    return found


@pytest.mark.slow
def test_the_budget_chart_names_every_study_and_what_is_allowed() -> None:
    drawn = figures.budget(balances(3), ALLOWED, Spending(0.5, 0.5, 0))
    for text in (drawn.wide, drawn.narrow):
        inside = " ".join(texts(text))
        for words in ("study 0", "study 2", "2023-11-16", "allowed: epsilon = 5", "after this plan", "0.173", "0.5"):
            assert words in inside
        assert "stroke-dasharray" in text
    said = heard(drawn)
    assert "3 studies; after study 0 (2023-11-14) epsilon = 0.1;" in said
    assert said.endswith("after this plan epsilon = 0.5.")
    assert figures.budget(balances(3), ALLOWED) == figures.budget(balances(3), ALLOWED)


@pytest.mark.slow_for("200")
@pytest.mark.parametrize("count", [0, 1, 200])
def test_the_budget_chart_works_with_any_number_of_studies(count: int) -> None:
    drawn = figures.budget(balances(count), ALLOWED)
    named = [text for text in texts(drawn.wide) if text.startswith("study")]
    assert min(count, 20) <= len(named) <= min(count, 31)
    assert ("No study was charged yet" in heard(drawn)) == (count == 0)
    assert len(heard(drawn)) < 2000
    assert float(re.search(r'height="([\d.]+)pt"', drawn.wide)[1]) < 1000


def test_the_budget_chart_says_what_is_not_known() -> None:
    drawn = figures.budget(balances(4, unknown=2, time=0), Target(5.0, 1e-6, "attribute"))
    assert texts(drawn.wide).count("cost unknown") == 1
    assert "after study 2 unbounded (1 study of unknown cost" in heard(drawn)
    assert "one value of one person" in heard(drawn)
    assert not re.search(r"\d{4}-\d\d-\d\d", " ".join(texts(drawn.wide)))
    drawn = figures.budget([], ALLOWED, Spending(math.inf, 0.3, 1))
    assert texts(drawn.wide).count("cost unknown") == 1


@pytest.mark.parametrize("about", ["", "x" * 400, "$x_1$ & <b>", "Größe 高さ"])
def test_the_budget_chart_writes_any_name(about: str) -> None:
    drawn = figures.budget(balances(2, about=about), ALLOWED)
    assert (about or "000000000000") in heard(drawn)
    for text in (drawn.wide, drawn.narrow):
        assert any(one.startswith(about[:12] or "plan 0") for one in texts(text))


# --- who holds what -----------------------------------------------------------------------------------------------------


def rows_plan(parties: int, columns: int) -> Plan:
    own = tuple(Column(f"c{j}", 0.0, 1.0) for j in range(columns))
    cards = tuple(Card(f"hospital {k}", 1000 * (k + 1), own) for k in range(parties))
    return load("describe").compile(Study("describe", cards, 1.0, 1e-6, derived=()))


def columns_plan(parties: int, columns: int) -> Plan:
    cards = tuple(
        Card(f"lab {k}", 500, tuple(Column(f"p{k} c{j}", 0.0, 1.0) for j in range(columns)), ("y",) if k == 0 else ())
        for k in range(parties)
    )
    study = Study("pride", cards, 1.0, 1e-6, unit="attribute", derived=(), parameters={"sketch_dim": 2})
    return load("pride").compile(study)


@pytest.mark.parametrize(("parties", "columns"), [(2, 3), (2, 300), (12, 3), (12, 300)])
def test_who_holds_what_has_a_column_for_every_party_and_a_line_for_every_holding(parties: int, columns: int) -> None:
    drawn = figures.holdings(rows_plan(parties, columns))
    inside = texts(drawn.wide)
    assert sum(text.startswith("hospital") for text in inside) == parties
    assert "1,000 rows" in inside
    assert ("c2" in inside) == (columns == 3)
    assert ("300 columns, c0 to c299" in inside) == (columns == 300)
    assert "hospital 1 (2,000 rows): c0, c1, c2" in heard(drawn)
    assert ("and 292 more" in heard(drawn)) == (columns == 300)
    assert "rows of different people" in heard(drawn)


def test_who_holds_what_tells_columns_from_labels_and_parties_from_helpers() -> None:
    plan = columns_plan(3, 2)
    drawn = figures.holdings(plan)
    assert {"y", "p2 c1", "label (own use)", "column"} <= set(texts(drawn.wide))
    assert "lab 0 (500 rows): p0 c0, p0 c1, labels y" in heard(drawn)
    assert "columns of the same people" in heard(drawn)
    study = msgspec.structs.replace(plan.study, helpers=(HelperCard("the helper", ""),))
    helped = figures.holdings(replace(plan, study=study))
    assert {"the helper", "no data"} <= {text.strip() for text in texts(helped.wide)}
    assert "the helper: a helper without data" in heard(helped)
    household = Card("north", 60, (Column("age", 0.0, 1.0),), household=Household("family", 20, 3))
    lone = load("describe").compile(Study("describe", (household,), 1.0, 1e-6, unit="household", derived=()))
    assert "20 ids" in texts(figures.holdings(lone).wide)


@pytest.mark.slow
def test_of_very_many_holdings_the_first_are_drawn() -> None:
    columns = [tuple(Column(f"c{j}", 0.0, 1.0) for j in range(60) if j % 12 == k or (j >> k) % 2) for k in range(6)]
    cards = tuple(Card(f"lab {k}", 50, own) for k, own in enumerate(columns))
    plan = replace(columns_plan(2, 2), study=msgspec.structs.replace(columns_plan(2, 2).study, parties=cards))
    assert "groups of columns are in the table below" in heard(figures.holdings(plan))


# --- outlooks, the mark, the style ----------------------------------------------------------------------------------------


def outlook_of(kind: type[Outlook] = Outlook, **more: float) -> Outlook:
    points = tuple(Expected(e, 0.1 + 0.1 / e, 0.1, 0.2 + 0.1 / e) for e in (0.1, 1.0, 10.0))
    return kind("bayes", 2000, 3, 1.0, points, math.nan, 0.1, "standard error of the effect", "R^2 0.3", **more)


@pytest.mark.slow
def test_an_outlook_is_a_figure_of_errors_and_of_power_where_it_knows_it() -> None:
    ((title, drawn),) = figures.outlook(outlook_of())
    assert title == "standard error of the effect against epsilon"
    assert "0.2 at epsilon = 1" in heard(drawn)
    assert {"expected", "without privacy", "asked for"} <= set(texts(drawn.wide))
    assert "a mean alone" not in texts(drawn.wide)
    assert len(outlook_of().figure().axes) == 1
    effect = outlook_of(EffectOutlook, sampling=0.02, privacy=0.02)
    (_, _), (title, drawn) = figures.outlook(effect)
    assert title == "power against the size of the effect"
    assert {"1,000 rows", "2,000 rows", "4,000 rows"} <= set(texts(drawn.wide))
    power, middle = effect.figure().axes[1], effect.power(0.4)
    curve = power.lines[1]
    assert float(np.interp(0.4, curve.get_xdata(), curve.get_ydata())) == pytest.approx(middle, abs=0.01)
    # `rows_for` is the inverse of the power.
    assert effect.rows_for(0.4, power=middle) == pytest.approx(2000, rel=1e-3)


def test_an_outlook_whose_effect_is_not_identified_has_no_power() -> None:
    lost = EffectOutlook(
        "effects", 9, 1, 1.0, (Expected(1.0, math.inf, math.inf, math.inf),), math.nan, math.inf, "standard error", ""
    )
    ((_, drawn),) = figures.outlook(lost)
    assert "none is identified" in heard(drawn)


def test_a_mark_is_inside_the_figure_and_a_name_cannot_remove_it() -> None:
    hostile = Panel('</svg> width="1pt" height="1pt" viewBox="0 0 1 1" aria-label="', ("</svg>", "b"), (1.0, 2.0))
    for plain, text in zip(
        *(vars(one).values() for one in (figures.panel(hostile), figures.marked(figures.panel(hostile)))), strict=True
    ):
        root = ET.fromstring(text)
        assert root.attrib["aria-label"].startswith("SIMULATED, of made-up data. ")
        assert [one for one in texts(text) if one.startswith("SIMULATED")] == ["SIMULATED: made-up data", "SIMULATED"]
        assert float(root.attrib["height"][:-2]) > float(ET.fromstring(plain).attrib["height"][:-2])


def test_names_that_begin_alike_differ_on_a_telephone_too() -> None:
    names = ("treated, missing, [18, 40)", "treated, missing, [40, 60)", "x" * 300, " " * 40, "short")
    drawn = figures.panel(Panel("counts", names, (1.0, 2.0, 3.0, 4.0, 5.0)))
    assert {"[18, 40)", "[40, 60)", "short"} <= {text.strip() for text in texts(drawn.narrow)}
    assert any(text.endswith("…") for text in texts(drawn.narrow))


def test_a_figure_needs_no_style_sheet_and_keeps_names_that_look_like_one() -> None:
    drawn = figures.marked(figures.panel(Panel("t", ('style="fill: red"', "b"), (1.0, 2.0), (0.0, 1.0), (2.0, 3.0))))
    for text in (drawn.wide, drawn.narrow):
        tags = re.findall("<[^<>]*>", text)
        assert not any("style" in tag for tag in tags if "aria-label" not in tag)
        assert 'style="fill: red"' in " ".join(texts(text))
        assert 'stroke="var(--good, #1f6f8b)"' in text  # outside a page, where nobody sets it, a colour is its own


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_has_a_contrast_of_four_and_a_half_in_light_and_dark() -> None:
    css = (Path(unpooled.__file__).parent / "report" / "style.css").read_text()
    light, dark = (dict(re.findall(r"--(\w+): (#\w{6})", line)) for line in css.splitlines()[:2])
    for theme in (light, dark):
        for name in ("ink", "soft", "good", "bad", "warn", "other"):
            assert contrast(theme[name], theme["ground"]) >= 4.5, name
    assert (light["ink"], light["good"], light["other"], light["faint"]) == (
        drawing.INK,
        drawing.ACCENT,
        drawing.OTHER,
        drawing.SOFT,
    )
    assert all(contrast(colour, "#ffffff") >= 4.5 for colour in (drawing.INK, *drawing.CURVES))


def test_every_figure_has_the_one_style() -> None:
    """No file draws with matplotlib's own colours, or makes a figure past the one place of the style."""
    root = Path(unpooled.__file__).parent
    for path in root.rglob("*.py"):
        text = path.read_text()
        if "axes" in text and path.name != "drawing.py" and path.parts[-2] != "testing":
            assert not re.search(r'color=f?"C[0-9{]|color="0\.|figsize=\((?!width, height)', text), path


def test_dollars_are_text_in_notebooks_too() -> None:
    figure, (axes,) = drawing.new_figure(4, 2)
    drawing.forest(axes, ["$x_1$", "b"])
    assert [label.get_text() for label in axes.get_yticklabels()] == [r"\$x_1\$", "b"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert len(figure.axes) == 1
