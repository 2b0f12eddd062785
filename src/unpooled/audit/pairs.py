"""Pairs of neighbours that moved a release far: kept in a file, so that later audits of the same study replay them first."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.privacy.household import BoundedTable
from unpooled.privacy.unit import Split, Unit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from unpooled.audit.neighbours import Change, Tables
    from unpooled.audit.search import Found
    from unpooled.privacy.plan import Plan

#: The part of a bound beyond which a pair is kept, and the part of its movement that it must still have.
FAR_ENOUGH, STILL = 0.9, 0.5


@dataclass(frozen=True)
class Pair:
    """One unit's values in both data sets, party by party, and how far each release moved, as a part of its bound."""

    unit: Unit
    at: int
    first: dict[str, Any]
    second: dict[str, Any]
    moved: dict[str, float]
    #: The hash of the plan with whose noise it moved so far; empty: it does whatever earlier rounds draw.
    plan: str = ""

    def base(self, tables: Tables) -> Tables:
        """Return the tables with the first values."""
        found = dict(tables)
        for name, row in self.first.items():
            table = tables[name]
            found[name] = table.exchange(row) if isinstance(table, BoundedTable) else table.replace(self.at, row)
        return found


@dataclass
class Pairs:
    """The farthest pair of every release under every unit, by the hash of the plan whose parties made them up."""

    kept: list[Pair] = field(default_factory=list)

    def note(self, plan: Plan, tables: Tables, base: Tables, unit: Unit, at: int, found: Found) -> None:
        """Keep the pairs of one search that moved a release farther than any before, and far enough; of row-split parties one of each release."""
        for (party, release), (part, changes) in found.items():
            name = f"{party}.{release}"
            places = {name} if plan.split is Split.VERTICAL else {f"{card.name}.{release}" for card in plan.study.parties}
            known = [pair for pair in self.kept if pair.unit is unit and places & pair.moved.keys()]
            if part <= FAR_ENOUGH or any(
                moved >= part for pair in known for one, moved in pair.moved.items() if one in places
            ):
                continue
            for pair in known:
                for one in places & pair.moved.keys():
                    del pair.moved[one]
            names = {card.name: tuple(c.name for c in card.columns) for card in plan.study.parties if card.name in changes}
            both = {one: (_row(base, one, columns, at), _row(tables, one, columns, at)) for one, columns in names.items()}
            first = {one: row for one, (row, was) in both.items() if repr(row) != repr(was)}
            self.kept.append(Pair(unit, at, first, _changes(changes), {name: part}))
        self.kept = [pair for pair in self.kept if pair.moved]

    def copied(self) -> Pairs:
        """Return the same pairs, for a search to go on with."""
        return Pairs([replace(pair, moved=dict(pair.moved)) for pair in self.kept])

    @classmethod
    def read(cls, rows: list[dict[str, Any]]) -> Pairs:
        """Return the pairs of a file's rows."""
        return cls([Pair(**{**row, "unit": Unit(row["unit"])}) for row in rows])

    def rows(self) -> list[dict[str, Any]]:
        """Return the pairs as rows of a file."""
        rounded = [replace(pair, moved={name: round(part, 3) for name, part in pair.moved.items()}) for pair in self.kept]
        return [asdict(pair) | {"unit": str(pair.unit)} for pair in rounded]


def read_file(path: Path, study: str) -> Pairs:
    """Return the pairs that a file has of a study; none where there is no file."""
    return Pairs.read(json.loads(path.read_text()).get(study, [])) if path.is_file() else Pairs()


def write_file(path: Path, study: str, pairs: Pairs) -> None:
    """Write the pairs of a study into the file, next to those of others."""
    known = json.loads(path.read_text()) if path.is_file() else {}
    lines = {
        name: [json.dumps(row) for row in rows] for name, rows in sorted((known | {study: pairs.rows()}).items()) if rows
    }
    body = ",\n".join(json.dumps(name) + ": [\n" + ",\n".join(rows) + "\n]" for name, rows in lines.items())
    path.write_text("{\n" + body + "\n}\n")


def _changes(changes: Mapping[str, Change]) -> dict[str, Any]:
    """Return a change as plain values."""
    return {
        name: None if row is None else _plain(row) if isinstance(row, dict) else [_plain(one) for one in row]
        for name, row in changes.items()
    }


def _row(base: Tables, name: str, columns: tuple[str, ...], at: int) -> Any:  # noqa: ANN401 - a row, or the rows of a household
    table = base[name]
    if isinstance(table, BoundedTable):
        return [_plain(row) for row in table.first()]
    return _plain({column: table[column][at] for column in columns})


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in row.items()}


__all__ = ["FAR_ENOUGH", "STILL", "Pair", "Pairs", "read_file", "write_file"]
