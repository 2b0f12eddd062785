"""Tuned numbers: each has a table entry that is whole, a script that exists or the word that there is none, code that uses it, and a line on the page."""

from __future__ import annotations

import ast
import copy
import datetime as dt
import functools
import importlib.util
import pickle
import re
from pathlib import Path

import pytest

import unpooled
from unpooled.errors import UsageError
from unpooled.schedules import Steps, TunedNumbers, read_table, schedules, table

ROOT = Path(__file__).parents[2]
SOURCE = Path(unpooled.__file__).parent
#: Ways to read a number.
READERS = {"whole", "several", "pair", "steps", "shares"}
WHOLE = 'about = "A schedule."\n\n[width]\nvalue = 0.5\ntrades = "Noise against what is cut."\njudged = true\ndate = 2026-11-28\n'


@functools.cache
def uses() -> dict[tuple[str, str], set[str]]:
    """The readers of each number that code reads, by (schedule, name); "" where it is read as an attribute."""
    found: dict[tuple[str, str], set[str]] = {}
    for file in SOURCE.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        held = dict(assigned(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr not in READERS and (name := schedule_of(node.value, held)):
                found.setdefault((name, node.attr), set()).add("")
            match node:
                case ast.Call(func=ast.Attribute(value=value, attr=attr), args=[ast.Constant(value=str(number))]):
                    if attr in READERS and (name := schedule_of(value, held)):
                        found.setdefault((name, number), set()).add(attr)
    return found


def schedule_of(node: ast.AST, held: dict[str, str]) -> str | None:
    """The schedule of ``table("rows")`` or of a name that holds it."""
    if isinstance(node, ast.Name):
        return held.get(node.id)
    match node:
        case ast.Call(func=ast.Name(id="table"), args=[ast.Constant(value=str(name))]):
            return name
    return None


def assigned(tree: ast.AST) -> list[tuple[str, str]]:
    """The names of a module that hold the numbers of a schedule."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            (target,) = node.targets[:1]
            pairs = (
                zip(target.elts, node.value.elts, strict=True) if both_tuples(target, node.value) else [(target, node.value)]
            )
            found += [
                (one.id, name) for one, value in pairs if isinstance(one, ast.Name) and (name := schedule_of(value, {}))
            ]
    return found


def both_tuples(target: ast.AST, value: ast.AST) -> bool:
    return isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)


@pytest.mark.parametrize("schedule", schedules())
def test_an_entry_names_a_script_that_exists_or_says_that_there_is_none(schedule: str) -> None:
    for number in table(schedule).entries.values():
        assert not number.script or (ROOT / number.script).is_file(), number
        assert re.fullmatch(r"[A-Z][^|]{15,}\.", number.trades), number  # a sentence that fits a cell
        assert dt.date(2026, 11, 21) <= number.date, number


@pytest.mark.parametrize("schedule", schedules())
def test_code_reads_every_number_as_one_of_its_kind(schedule: str) -> None:
    kinds = {float: {""}, int: {"whole"}, tuple: {"several", "pair"}, Steps: {"steps"}, dict: {"shares"}}
    for name, number in table(schedule).entries.items():
        readers = uses().get((schedule, name), set())
        assert readers, f"no code reads {name} of schedules/{schedule}.toml: remove it"
        assert readers <= kinds[type(number.value)], number


def test_every_number_that_code_reads_is_there() -> None:
    there = {(name, number) for name in schedules() for number in table(name).entries}
    assert set(uses()) - there == set()
    assert len(uses()) > 350


def test_shares_of_a_whole_budget_add_up_to_it() -> None:
    whole = [
        table("focus").shares("focus_shares"),
        *(table("regression").shares(f"{name}_shares") for name in ("ample", "gradient", "refinement", "quiet")),
        *(table("effects").shares(f"{name}_shares") for name in ("aipw", "iptw", "outcome", "partial")),
        *(
            table("glm").shares(f"{name}_shares")
            for name in ("ample", "direction", "dispersed", "gradient", "moments", "newton")
        ),
    ]
    assert [sum(shares.values()) for shares in whole] == pytest.approx([1.0] * 15)
    squares = [getattr(table("frank_wolfe"), f"{name}_weight") ** 2 for name in ("response", "constant", "columns")]
    assert 0.99 < sum(squares) <= 1.0  # a longer row would need more noise than is planned
    tried = [table("frank_wolfe").several(f"tried_{name}") for name in ("columns", "picks", "scores")]
    assert [sum(parts) for parts in zip(*tried, strict=True)] == pytest.approx([1.0] * 3)
    assert sum(table("rows").several("augmented_weights")) == pytest.approx(1.0)


def test_the_page_is_what_its_script_writes() -> None:
    """If this fails, run `python docs/schedules.py`."""
    spec = importlib.util.spec_from_file_location("schedules_of_docs", ROOT / "docs/schedules.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page() == (ROOT / "docs/schedules.md").read_text(encoding="utf-8")
    for name in schedules():
        assert f"## {name.capitalize()}\n" in module.page()


# --- reading ---------------------------------------------------------------------------------------------------------------


def test_numbers_are_read_by_their_kind() -> None:
    text = WHOLE + "".join(
        f'\n[{name}]\nvalue = {value}\ntrades = "Noise against time."\nscript = "experiments/priors.py"\ndate = 2026-11-27\n'
        for name, value in (
            ("rounds", "30"),
            ("cuts", "[0.1, 0.2]"),
            ("parts", "{ first = 0.25, last = 0.75 }"),
            ("rising", "[[0.0, 5.0], [2.0, 9.0]]"),
        )
    )
    found = read_table("made", text)
    assert (found.width, found.whole("rounds"), found.several("cuts")) == (0.5, 30, (0.1, 0.2))
    assert (found.pair("cuts"), found.shares("parts")) == ((0.1, 0.2), {"first": 0.25, "last": 0.75})
    assert [found.steps("rising").at(k) for k in (0.0, 1.99, 2.0, 1e9)] == [5.0, 5.0, 9.0, 9.0]
    found.shares("parts")["first"] = 1.0
    assert found.shares("parts")["first"] == 0.25
    assert found.entries["rounds"].script == "experiments/priors.py"
    assert found.entries["width"].script == ""
    assert found.about == "A schedule."
    for wrong in (
        lambda: found.rounds,
        lambda: found.whole("width"),
        lambda: found.several("parts"),
        lambda: found.several("rising"),
        lambda: found.steps("cuts"),
        lambda: found.pair("rounds"),
        lambda: found.shares("cuts"),
    ):
        with pytest.raises(TypeError, match="read a real number as an attribute"):
            wrong()


def test_a_pair_has_two_numbers() -> None:
    with pytest.raises(TypeError, match="a pair"):
        table("rows").pair("cuts")


def test_a_number_that_is_not_there_is_named() -> None:
    with pytest.raises(AttributeError, match=r"focus\.toml has no number widht: write an entry \[widht\]"):
        _ = table("focus").widht
    with pytest.raises(AttributeError, match="no number widht"):
        table("focus").whole("widht")
    with pytest.raises(UsageError, match="there is no table rounds: name one of describe, diagnose"):
        table("rounds")


def test_tables_are_read_once_and_can_be_copied() -> None:
    assert table("focus") is table("focus")
    for copied in (copy.deepcopy(table("focus")), pickle.loads(pickle.dumps(table("focus")))):
        assert copied.entries == table("focus").entries


def test_other_values_are_of_the_same_kind_and_change_no_table() -> None:
    changed = table("focus").but(step=0.5, rounds=6)
    assert (changed.step, changed.whole("rounds")) == (0.5, 6)
    assert (table("focus").step, table("focus").whole("rounds")) == (0.4, 12)
    assert isinstance(changed, TunedNumbers)
    with pytest.raises(UsageError, match=r"rounds is 12, and 6\.0 is of another kind"):
        table("focus").but(rounds=6.0)
    with pytest.raises(AttributeError, match="no number widht"):
        table("focus").but(widht=1.0)
    with pytest.raises(UsageError, match="is of another kind"):
        table("sines").but(rounds=(3.0, 5.0))
    assert table("sines").but(rounds=Steps(((0.0, 3.0),))).steps("rounds").at(40.0) == 3.0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("judged = true", "judged = true\nwhy = 1", "width: why is unknown: an entry has value, trades"),
        ("value = 0.5\n", "", "width: value is a real number"),
        ("value = 0.5", "value = true", "width: value is a real number"),
        ("value = 0.5", 'value = "0.5"', "width: value is a real number"),
        ("value = 0.5", "value = nan", "width: value is a real number"),
        ("value = 0.5", "value = []", "width: value is a real number"),
        ("value = 0.5", "value = [1, 2.0]", "width: value is a real number"),
        ("value = 0.5", "value = [[0.0, 1.0], [2.0]]", "width: value is a real number"),
        ("value = 0.5", "value = [[0.0, 1.0], 2.0]", "width: value is a real number"),
        ("value = 0.5", "value = [[0.0, 1.0], [2.0, 3]]", "width: value is a real number"),
        ("value = 0.5", "value = [[1.0, 1.0], [2.0, 3.0]]", "width: value is a real number"),
        ("value = 0.5", "value = [[0.0, 1.0], [0.0, 3.0]]", "width: value is a real number"),
        ("value = 0.5", "value = {}", "width: value is a real number"),
        ("value = 0.5", "value = { a = 1 }", "width: value is a real number"),
        ('trades = "Noise against what is cut."\n', "", "width: write what it trades against what"),
        ('"Noise against what is cut."', '""', "width: write what it trades against what"),
        ('"Noise against what is cut."', "3", "width: write what it trades against what"),
        ("date = 2026-11-28\n", "", "width: write the day"),
        ("2026-11-28", '"2026-11-28"', "width: write the day"),
        ("2026-11-28", "2026-11-28T10:00:00", "width: write the day"),
        ("judged = true\n", "", "width: name the script that chose or measured it.*one of the two"),
        ("judged = true", 'judged = true\nscript = "experiments/priors.py"', "one of the two"),
        ("judged = true", "judged = false", "width: name the script"),
        ("judged = true", 'script = "priors"', "width: name the script"),
        ("judged = true", 'script = "experiments/priors"', "width: name the script"),
        ("judged = true", "script = 3", "width: name the script"),
        ("[width]", "[whole]", "whole: code reads numbers by their names"),
        ("[width]", "[entries]", "entries: code reads numbers by their names"),
        ("[width]", "[_width]", "_width: code reads numbers by their names"),
        ("[width]", '["a width"]', "a width: code reads numbers by their names"),
        ("\n[width]", "\nlength = 3.0\n[width]", "length: a number is a table of its own"),
        ('about = "A schedule."\n', "", "say first what the schedule is about"),
        ('"A schedule."', '""', "say first what the schedule is about"),
        ("[width]", "[width", " is no TOML"),
    ],
)
def test_an_entry_that_is_not_whole_is_refused_with_the_remedy(old: str, new: str, said: str) -> None:
    assert WHOLE.count(old) == 1
    with pytest.raises(UsageError, match=rf"^made\.toml.*{said}"):
        read_table("made", WHOLE.replace(old, new))
