"""Texts of studies: any that somebody could write compiles to a plan that holds, or is refused in words; and the template compiles."""

from __future__ import annotations

import math
import random
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unpooled.errors import UnpooledError, UsageError
from unpooled.models import load
from unpooled.privacy.plan import Card, Plan, Study
from unpooled.privacy.unit import Adjacency, Scope, Unit
from unpooled.testing.cases import Case, sized, units_of

if TYPE_CHECKING:
    from collections.abc import Iterator


#: Values that nobody would write in the place that they get.
WILD: list[Any] = [0, 1, -1, 2, 3, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 10**18, True, None]
WILD += [0.0, -0.0, 0.5, 1.5, 1e-320, 1e-308, 1e-12, 1e12, 1e153, 1e300, 1e308, -1e308, math.inf, -math.inf, math.nan]
WILD += ["", "x", "y", "\x00", "indicator", "absent", "published", "zero-out", "attribute", "samples", "features", "matrix"]
WILD += ["none", "bspline", "blocks", "ball", "cv", "trusted", "perturbed", [], [1.0], [1e308], ["x"], {}]
WILD += ["robust", "cluster", "estimate", "focus", ["age"], ["age", "age"]]
WILD += [{"clinic": 1e308}, {"clinic": 1e-320}]

#: Twelve examples, and 240 at full size, each of which follows from the text of its test.
EXAMPLES = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=sized(240, 12),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def of_size(card: Card, count: int) -> Card:
    """Return the card with this number of rows; where rows belong together, of ids."""
    if card.household is None:
        return msgspec.structs.replace(card, rows=count)
    together = msgspec.structs.replace(card.household, ids=count)
    return msgspec.structs.replace(card, rows=count * together.rows, household=together)


@st.composite
def studies(draw: st.DrawFn, study: Study) -> Study:
    """Return a study that somebody could ask for: other promises and other numbers of rows than the given one has."""
    rows = draw(st.integers(10, 10**6))
    return msgspec.structs.replace(
        study,
        parties=tuple(of_size(card, rows) for card in study.parties),
        epsilon=draw(st.sampled_from([0.1, 0.5, 1.0, 3.0, 10.0])),
        delta=draw(st.sampled_from([1e-9, 1e-6, 1e-3])),
        unit=str(draw(st.sampled_from(list(units_of(study))))),
        adjacency=str(draw(st.sampled_from(list(Adjacency)))),
        public_seed=draw(st.integers(0, 2**31)),
        run=draw(st.integers(1, 5)),
    )


ROUNDS = sized(400, 250)


#: The keys that lead to a place in the text of a study.
Place = tuple[Any, ...]


def places(value: Any, before: Place = ()) -> Iterator[Place]:
    """Yield the keys that lead to every place of a study's text."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, part in inside:
        yield from places(part, (*before, key))
    if before:
        yield before


def changed(value: Any, place: Place, wild: Any) -> Any:
    """Return the same study text with another value at one place."""
    if not place:
        return wild
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = changed(copy[place[0]] if place[0] in copy or isinstance(value, list) else None, place[1:], wild)
    return copy


def compiled(model: str, text: Any) -> str:
    """Return the plan of a study's text as text, or the words of its refusal."""
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
def test_wild_text_gives_a_plan_or_an_error_of_ours(case: Case) -> None:
    base = msgspec.json.decode(msgspec.json.encode(case.study))
    parameters = getattr(sys.modules[load(case.model).compile_plan.__module__], "Parameters", None)
    known = list(places(base)) + [("parameters", name) for name in getattr(parameters, "__struct_fields__", ())] * 3
    rng, answers = random.Random(case.name), set()  # a fixed seed: the same text every time
    for _ in range(ROUNDS):
        text = base
        for place in rng.sample(known, rng.choice((1, 1, 2))):
            try:
                text = changed(text, place, rng.choice(WILD))
            except (TypeError, KeyError, IndexError):  # the other change took the place away
                continue
        answers.add(compiled(base["model"], text))
    assert len(answers) > 15  # many different ones: the text is wild, not all of one kind


@pytest.mark.parametrize("rows", [2**61, 2**62, 2**63 - 1])
def test_rows_beyond_all_counting_are_refused(case: Case, rows: int) -> None:
    text = msgspec.json.decode(msgspec.json.encode(case.study))
    for card in text["parties"]:
        card["rows"] = rows
        if "household" in card:
            card["household"] = {**card["household"], "ids": rows, "rows": 1}
    with pytest.raises((UsageError, msgspec.ValidationError), match="rows are the most"):
        msgspec.convert(text, Study)


def planned(study: Study) -> Plan | None:
    """Return the plan of a study; None if the model does not offer it."""
    try:
        return load(study.row).compile(study)
    except UsageError:
        return None


def test_a_plan_costs_no_more_than_was_asked_for(case: Case) -> None:
    found = []

    @EXAMPLES
    @given(studies(case.study))
    def check(study: Study) -> None:
        plan = planned(study)
        if plan is None:
            return
        found.append(study)
        asked = Unit(study.unit)
        assert plan.epsilon(study.delta, asked) <= study.epsilon * (1 + 1e-9)
        for card in study.parties:
            assert plan.cost(asked, card.name, Scope.PARTY).epsilon(study.delta) <= study.epsilon * (1 + 1e-9)
        for release in plan.releases:
            assert 0 <= release.mechanism.event(asked).value < math.inf

    check()
    assert len(found) > 3


def test_a_plan_follows_from_its_study_and_changes_with_it(case: Case) -> None:
    found = []

    @EXAMPLES
    @given(studies(case.study), st.sampled_from(["epsilon", "run", "public_seed", "parties"]))
    def check(study: Study, changed: str) -> None:
        plan = planned(study)
        if plan is None:
            return
        found.append(study)
        again = msgspec.json.decode(msgspec.json.encode(study), type=Study)
        assert load(study.row).compile(again).hash == plan.hash
        others = {
            "epsilon": study.epsilon * 1.5,
            "run": study.run + 1,
            "public_seed": study.public_seed + 1,
            "parties": tuple(
                of_size(card, (card.household.ids if card.household else card.rows) + 1) for card in study.parties
            ),
        }
        other = planned(msgspec.structs.replace(study, **{changed: others[changed]}))
        assert other is None or other.hash != plan.hash

    check()
    assert len(found) > 3
