"""Study text that nobody would write gives an error of ours that says so, or a plan; never an arithmetic error, never a long wait."""

from __future__ import annotations

import msgspec
import pytest
from cases import CASES

from unpooled.errors import UsageError
from unpooled.models import load
from unpooled.privacy.accounting import Composition
from unpooled.privacy.bounds import Column, integer_grid
from unpooled.privacy.events import Event, Kind
from unpooled.privacy.plan import MOST_ROWS, Card, Study
from unpooled.testing.texts import *

#: Of the tests that are imported, those that the guarantee's coverage needs.
GUARANTEE = ("test_rows_beyond_all_counting_are_refused",)

SLOW = {"test_a_plan_costs_no_more_than_was_asked_for": ["describe", "stacking"]}
LONG = {
    "test_a_plan_costs_no_more_than_was_asked_for": ["stacking, probabilities", "analyses, columns"],
    "test_a_plan_follows_from_its_study_and_changes_with_it": ["analyses, columns"],
}


@pytest.mark.guarantee
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
