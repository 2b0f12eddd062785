"""One row per model: a small study and its data. Every contract test runs over every row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unpooled.datasets.hospitals import make_hospitals
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

Tables = dict[str, Table]


@dataclass(frozen=True)
class Case:
    model: str
    study: Study
    tables: Tables


HOSPITAL_COLUMNS = (
    Column("age", 18.0, 100.0),
    Column("pressure", 70.0, 230.0, missing="absent"),
    Column("cholesterol", 2.0, 10.0, missing="indicator"),
    Column("smoker", categories=("never", "former", "current")),
)


def describe_case() -> Case:
    tables = {name: Table(columns) for name, columns in make_hospitals((40, 30, 20), seed=1).items()}
    cards = tuple(Card(name, table.n_rows, HOSPITAL_COLUMNS) for name, table in tables.items())
    return Case("describe", Study("describe", cards, 1.0, 1e-5, simulation_seed=7), tables)


CASES: dict[str, Callable[[], Case]] = {"describe": describe_case}
