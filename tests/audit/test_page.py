"""`docs/audit.md` names everything that is broken on purpose, every attribute that is shown, and every audit."""

from __future__ import annotations

from pathlib import Path

from broken import BROKEN

import unpooled.audit
from unpooled.audit.interface import EVERYWHERE, OWN

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "audit.md").read_text()


def section(title: str) -> list[str]:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0].splitlines()


def test_it_lists_what_is_broken_on_purpose() -> None:
    assert [line.removeprefix("- ") for line in section("Broken on purpose") if line.startswith("- ")] == list(BROKEN)


def test_it_has_every_attribute_where_the_table_has_it() -> None:
    rows = {
        cells[1].strip(" `"): cells[2:] for line in section("What an estimator shows") if len(cells := line.split("|")) > 5
    }
    kinds = [cell.strip() for cell in rows.pop("estimator or result")]
    for name, shown in {"all": EVERYWHERE, **OWN}.items():
        cells = rows.pop(name)
        said = {
            each: kind
            for kind, cell in zip(kinds, cells, strict=True)
            for each in cell.replace("`", "").replace(",", " ").split()
        }
        assert said == {attribute: str(kind) for attribute, kind in shown.items()}
    assert set(rows) == {"---"}


def test_it_names_every_audit() -> None:
    modules = {path.name for path in Path(str(unpooled.audit.__file__)).parent.glob("*.py")}
    parts = {"__init__.py", "stage.py", "neighbours.py"}
    named = {name for name in modules if f"`audit/{name}`" in PAGE}
    assert modules == parts | named
