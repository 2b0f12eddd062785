"""Errors carry the party, the column and the release that they are about, wherever their text names one."""

from __future__ import annotations

import ast
import math
import pickle
import re
from pathlib import Path

import pytest

import unpooled
from unpooled.errors import BudgetRefusal, DataError, RowsError
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import run_in_process

SOURCE = Path(unpooled.__file__).parent
#: A text about one column: it is quoted, and it is what is wrong.
ABOUT_A_COLUMN = re.compile(r"(^|: |there is no |the query has no )column \{\w")


def raised() -> list[tuple[str, ast.Raise, str]]:
    """Every error of ours whose text is written beside it, with that text; what is formatted in stands in braces."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for body in [b for node in ast.walk(ast.parse(path.read_text())) for b in _bodies(node)]:
            texts: dict[str, str] = {}
            for statement in body:
                if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                    texts[statement.targets[0].id] = _written(statement.value)
                elif isinstance(statement, ast.Raise) and (call := _made(statement)) is not None and call.args:
                    first = call.args[0]
                    text = texts.get(first.id, "") if isinstance(first, ast.Name) else _written(first)
                    found.append((f"{path.relative_to(SOURCE)}:{statement.lineno}", statement, text))
    return found


def _bodies(node: ast.AST) -> list[list[ast.stmt]]:
    return [b for b in (getattr(node, part, None) for part in ("body", "orelse", "finalbody")) if isinstance(b, list)]


def _written(value: ast.expr) -> str:
    if isinstance(value, ast.JoinedStr):
        return "".join(
            str(p.value) if isinstance(p, ast.Constant) else "{" + ast.unparse(p.value) + "}"  # type: ignore[attr-defined]
            for p in value.values
        )
    return str(value.value) if isinstance(value, ast.Constant) else ""


def _made(statement: ast.Raise) -> ast.Call | None:
    """The call that makes the exception: ``X(msg)``, or that inside ``X(msg).at(...)``."""
    call = statement.exc
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        call = call.func.value
    return call if isinstance(call, ast.Call) else None


@pytest.mark.long
@pytest.mark.slow
def test_every_error_about_a_column_says_which_to_a_program_too() -> None:
    about = [(where, statement) for where, statement, text in raised() if ABOUT_A_COLUMN.search(text)]
    assert len(about) > 30, "the search finds them"
    assert [where for where, statement in about if ".at(column=" not in ast.unparse(statement)] == []


def test_data_that_do_not_fit_their_declaration_name_the_column() -> None:
    with pytest.raises(DataError, match="'age'") as caught:
        Table({"age": [1.0, math.inf]})
    assert (caught.value.party, caught.value.column, caught.value.release) == (None, "age", None)


MODEL = load("describe")
PLAN = MODEL.compile(Study("describe", (Card("clinic", 3, (Column("age", low=0, high=9),)),), 1.0, 1e-6, derived=()))


def described(values: list[float]) -> None:
    """A description of one column at one party, in this process."""
    run_in_process(MODEL, PLAN, {"clinic": Table({"age": values})}, Policy.in_process(), load)


def test_a_refusal_names_the_party_and_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_others: object) -> None:
        raise BudgetRefusal("no room")

    monkeypatch.setattr(Ledger, "reserve", full)
    with pytest.raises(BudgetRefusal) as caught:
        described([1.0, 2.0, 3.0])
    assert (caught.value.party, caught.value.column) == ("clinic", None)
    assert caught.value.release in {release.name for release in PLAN.releases}


def test_data_found_wrong_by_a_step_name_party_and_column() -> None:
    with pytest.raises(DataError, match="missing value") as caught:
        described([1.0, math.nan, 3.0])
    assert (caught.value.party, caught.value.column) == ("clinic", "age")


def test_what_was_known_first_stays() -> None:
    error = BudgetRefusal("no").at(release="moments").at(party="north", release="other").at(party="south", column="age")
    assert (error.party, error.column, error.release) == ("north", "age", "moments")
    assert str(error) == "no"
    again = pickle.loads(pickle.dumps(error))
    assert (again.party, again.column, again.release) == ("north", "age", "moments")


def test_what_others_are_told_of_rows_names_the_same_place() -> None:
    told = RowsError("rows 3 and 5", "two rows").at(party="north", column="id").told()
    assert (str(told), told.party, told.column) == ("two rows", "north", "id")
    assert type(told) is DataError
