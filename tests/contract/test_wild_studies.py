"""Study text that nobody would write gives an error of ours that says so, or a plan; never an arithmetic error, never a long wait."""

from __future__ import annotations

import importlib
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from cases import CASES
from world import sized

from unpooled.errors import UnpooledError, UsageError
from unpooled.models import REGISTRY, load
from unpooled.privacy.accounting import Composition
from unpooled.privacy.bounds import Column, integer_grid
from unpooled.privacy.events import Event, Kind
from unpooled.privacy.plan import MOST_ROWS, Card, Study

if TYPE_CHECKING:
    from collections.abc import Iterator

WILD: list[Any] = [0, 1, -1, 2, 3, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 10**18, True, None]
WILD += [
    0.0,
    -0.0,
    0.5,
    1.5,
    1e-320,
    1e-308,
    1e-12,
    1e12,
    1e153,
    1e300,
    1e308,
    -1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
]
WILD += [
    "",
    "x",
    "y",
    "\x00",
    "indicator",
    "absent",
    "published",
    "zero-out",
    "attribute",
    "samples",
    "features",
    "matrix",
    "none",
]
WILD += [
    "bspline",
    "blocks",
    "ball",
    "cv",
    "trusted",
    "perturbed",
    [],
    [1.0],
    [1e308],
    ["x"],
    {},
    {"clinic": 1e308},
    {"clinic": 1e-320},
]
ROUNDS = sized(400, 250)

Path = tuple[Any, ...]


def places(value: Any, before: Path = ()) -> Iterator[Path]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, part in inside:
        yield from places(part, (*before, key))
    if before:
        yield before


def changed(value: Any, place: Path, wild: Any) -> Any:
    """The same study text with another value at one place."""
    if not place:
        return wild
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = changed(copy[place[0]] if place[0] in copy or isinstance(value, list) else None, place[1:], wild)
    return copy


def compiled(model: str, text: Any) -> str:
    try:
        study = msgspec.convert(text, Study)
    except (msgspec.ValidationError, UnpooledError) as error:
        return type(error).__name__
    try:
        plan = load(model).compile(study)
        return plan.hash + str(plan.statement) + str(plan)
    except UnpooledError as error:
        return str(error)


@pytest.mark.slow
@pytest.mark.parametrize("model", CASES)
def test_wild_text_gives_a_plan_or_an_error_of_ours(model: str) -> None:
    base = msgspec.json.decode(msgspec.json.encode(CASES[model]().study))
    parameters = importlib.import_module(f"{REGISTRY[base['model']]}.plan").Parameters if model != "describe" else None
    known = list(places(base)) + [("parameters", name) for name in getattr(parameters, "__struct_fields__", ())] * 3
    rng, answers = random.Random(model), set()  # a fixed seed: the same text every time
    for _ in range(ROUNDS):
        text = base
        for place in rng.sample(known, rng.choice((1, 1, 2))):
            try:
                text = changed(text, place, rng.choice(WILD))
            except (TypeError, KeyError, IndexError):  # the other change took the place away
                continue
        answers.add(compiled(base["model"], text))
    assert len(answers) > 20  # many different ones: the text is wild, not all of one kind


@pytest.mark.parametrize("model", CASES)
@pytest.mark.parametrize("rows", [2**61, 2**62, 2**63 - 1])
def test_rows_beyond_all_counting_are_refused(model: str, rows: int) -> None:
    text = msgspec.json.decode(msgspec.json.encode(CASES[model]().study))
    for card in text["parties"]:
        card["rows"] = rows
    with pytest.raises((UsageError, msgspec.ValidationError), match="rows are the most"):
        msgspec.convert(text, Study)


def test_the_most_rows_of_many_parties_still_have_a_grid() -> None:
    Card("a", MOST_ROWS, (Column("x", 0.0, 1.0),))
    with pytest.raises(UsageError, match="1,000,000,000,000 rows are the most"):
        Card("a", MOST_ROWS + 1, (Column("x", 0.0, 1.0),))
    assert integer_grid(1000 * MOST_ROWS, 2) >= 2
    with pytest.raises(UsageError, match="too many rows"):
        integer_grid(2**60, 2)


def test_a_sketch_beyond_all_size_is_as_wide_as_it_can_be() -> None:
    base = msgspec.json.decode(msgspec.json.encode(CASES["pride"]().study))
    plans = [
        load("pride").compile(msgspec.convert(changed(base, ("parameters", "sketch_dim"), m), Study)) for m in (10.0, 1e308)
    ]
    assert [r.size for r in plans[0].releases] == [r.size for r in plans[1].releases]


@pytest.mark.parametrize("epsilon", [1e-300, 1e-18, 1e-9])
def test_a_cost_next_to_nothing_is_priced(epsilon: float) -> None:
    mixture = Composition([Event(Kind.PURE, epsilon), Event(Kind.ZCDP, epsilon)])
    assert 0 < mixture.delta(0.0) < 1e-3
    assert mixture.delta(1.0) < 1e-30
