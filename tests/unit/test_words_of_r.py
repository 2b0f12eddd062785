"""What errors and warnings name of Python reaches users of R as R writes it: every text of the package, by one table of forms."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import unpooled
from unpooled.cli.words_of_r import _QUOTED, FORMS, FUNCTIONS, LEFT, in_r

SOURCE = Path(unpooled.__file__).parent
#: Calls whose first argument is a text that somebody reads, besides what is raised.
SAID = {"warn_caller", "fail", "refuse"}


def text_of(node: ast.AST) -> str:
    """The text of an expression, with {} where a value stands."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) if isinstance(part, ast.Constant) else "{}" for part in parts)
        case ast.BinOp(left=left, right=right):
            return text_of(left) + text_of(right)
        case ast.IfExp(body=body, orelse=other):
            return f"{text_of(body)} {text_of(other)}"
    return "{}"


def each_text() -> Iterator[tuple[str, str]]:
    """Every message of the package: what is raised, what becomes of `msg` and `message`, and what is warned of."""
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Raise(exc=ast.Call(args=[first, *_])):
                    yield file.name, text_of(first)
                case ast.Assign(targets=[ast.Name(id="msg" | "message")], value=value):
                    yield file.name, text_of(value)
                case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in SAID:
                    yield file.name, text_of(first)
                case ast.Call(func=ast.Name(id="ParameterKind"), args=[first, *_]):
                    yield file.name, f"x must be a number or {text_of(first)}, not dict"


@functools.cache
def texts() -> list[tuple[str, str]]:
    """The same, each once: read when a test first asks, not when tests are collected."""
    return sorted(set(each_text()))


def test_no_message_of_the_package_keeps_a_form_of_python() -> None:
    """If this fails, add the form to the table in unpooled/cli/words_of_r.py, or word the message without Python."""
    left = {}
    for file, text in texts():
        said = in_r(text)
        if found := LEFT.search(_QUOTED.sub("''", said)):
            left[file, found[0]] = said
    assert not left
    assert len(texts()) > 1500  # the texts were found


@pytest.mark.long
@pytest.mark.slow
def test_there_is_something_to_translate_and_every_form_does_it() -> None:
    """A form that no message has any more is taken out of the table."""
    assert sum(in_r(text) != text for _, text in texts()) > 80
    described = [inspect.getdoc(getattr(unpooled, name)) or "" for name in FUNCTIONS]  # which become help pages
    needed = [*(text for _, text in texts()), *MADE_OF_VALUES, *described]
    for k, form in enumerate(FORMS):
        without = [one for j, one in enumerate(FORMS) if j != k]
        assert any(in_r(text) != in_r(text, without) for text in needed), form


#: Messages whose forms stand in values, which the text of the source does not show.
MADE_OF_VALUES = [
    "penalty must be a number or a word, not NoneType",
    "method must be a word, not float",
    "y_bounds must be a pair of numbers (low, high) or None, not str",
    "parties must be a whole number or a mapping from names to columns, not list",
    "fit_intercept must be True or False, not bool",
    "bounds must be Bounds, a pair (low, high) or a mapping from column names or None, not int",
    "choose one of ['a', 'b']",
    "not list(this), not dict",
]


@pytest.mark.parametrize(
    ("python", "r"),
    [
        (
            "declare the range of the response: y_bounds=(low, high)",
            "declare the range of the response: y_bounds = c(low, high)",
        ),
        ("pass bounds=(-1, 1), say", "pass bounds = c(-1, 1), say"),
        ("pass bounds=Bounds(norm=...), y_bounds=(low, high)", "pass norm = R, y_bounds = c(low, high)"),
        ("Pass classes=(first, second) to get one.", "Pass classes = c(first, second) to get one."),
        ("leave estimating=None, or fit_intercept=False", "leave estimating = NULL, or fit_intercept = FALSE"),
        ("parties={name: columns, ..}", "parties = list(name = columns, ..)"),
        ("as in Bounds({'age': (0, 110), 'ward': ['a', 'b']})", "as in bounds = list(age = c(0, 110), ward = c('a', 'b'))"),
        ("C(x, levels=[1, 2, 3])", "C(x, levels = c(1, 2, 3))"),
        ("budget=unpooled.Budget(epsilon, delta) (docs: with scikit-learn)", "budget = unpooled_budget(epsilon, delta)"),
        (
            "use PrivateGLM('logistic'), or PrideGLM(family=...)",
            "use unpooled_glm(family = 'logistic'), or unpooled_pride(family = ...)",
        ),
        ("with on=, X is", "with on, X is"),
        ("a list of [0, 1), and [trust] meta = 'trusted'", "a list of [0, 1), and [trust] meta = 'trusted'"),
        ("--column NAME=LOW:HIGH", "--column NAME=LOW:HIGH"),
        ('add models = ["x"] under [policy]', 'add models = ["x"] under [policy]'),
        ("Surv(time, event) ~ age, log(x, base)", "Surv(time, event) ~ age, log(x, base)"),
    ],
)
def test_forms(python: str, r: str) -> None:
    assert in_r(python) == r
    assert in_r(r) == r  # what is R's already stays


@pytest.mark.parametrize("name", ["None", "True", "inf", "coef_", "a=b", "PrivateGLM", "(low, high)"])
def test_names_in_quotes_stay_what_they_are(name: str) -> None:
    """They are columns and values of the asker's own."""
    for quoted in (f"'{name}'", f'"{name}"', f"`{name}`"):
        assert (
            in_r(f"there is no column {quoted}: leave it, or pass None")
            == f"there is no column {quoted}: leave it, or pass NULL"
        )


def test_every_function_that_words_point_to_is_one_of_the_package() -> None:
    exported = (SOURCE.parents[1] / "r" / "NAMESPACE").read_text(encoding="utf-8")
    assert {name for name in FUNCTIONS.values() if f"export({name})" not in exported} == set()
    assert set(FUNCTIONS) <= set(unpooled.__all__)
