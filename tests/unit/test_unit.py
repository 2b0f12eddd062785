"""Words and numbers of a guarantee: what is understood, and what is refused with the choices named."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unpooled.privacy
from unpooled.errors import UsageError
from unpooled.privacy import sensitivity, statement
from unpooled.privacy.unit import Adjacency, Calibration, Split, Target, Unit, check_delta, check_epsilon, real

WORDS = {
    Unit: ["record", "attribute"],
    Adjacency: ["replace", "zero-out"],
    Calibration: ["sound", "published"],
    Split: ["vertical", "horizontal"],
}


@pytest.mark.parametrize("kind", WORDS)
def test_known_words_are_parsed_and_unknown_ones_name_the_choices(kind: type) -> None:
    for word in WORDS[kind]:
        assert kind.parse(word) is kind(word)
        assert kind.parse(kind(word)) is kind(word)
    for unknown in ("", "Record", "add-remove", 3, None, ["record"], True):
        with pytest.raises(UsageError) as caught:
            kind.parse(unknown)
        assert all(repr(word) in str(caught.value) for word in WORDS[kind])


@pytest.mark.parametrize(
    "epsilon", [math.nan, -5, -0.0, 0, True, False, 1e-400, 1e-320, 9e-7, 10_001, -math.inf, "1", None, [1.0], 1j]
)
def test_an_epsilon_that_is_no_guarantee_is_refused(epsilon: object) -> None:
    with pytest.raises(UsageError, match="epsilon"):
        check_epsilon(epsilon)


@pytest.mark.parametrize("epsilon", [1e-6, 1, 1.0, 1e4, math.inf, np.float64(0.5)])
def test_an_admissible_epsilon_becomes_a_plain_float(epsilon: float) -> None:
    assert check_epsilon(epsilon) == epsilon
    assert type(check_epsilon(epsilon)) is float


@pytest.mark.guarantee
@pytest.mark.parametrize("delta", [math.nan, -1e-9, 1, 1.5, math.inf, 1e-31, 1e-320, True, "0", None])
def test_an_unfit_delta_is_refused(delta: object) -> None:
    with pytest.raises(UsageError, match="delta"):
        check_delta(delta)


@pytest.mark.parametrize("delta", [0, 0.0, 1e-30, 0.5, np.float64(1e-5)])
def test_an_admissible_delta_becomes_a_plain_float(delta: float) -> None:
    assert check_delta(delta) == delta
    assert type(check_delta(delta)) is float


@pytest.mark.guarantee
def test_an_integer_too_large_for_a_float_is_refused_like_any_other() -> None:
    with pytest.raises(UsageError, match="epsilon"):
        check_epsilon(10**400)


def test_numbers_are_named_in_the_refusal() -> None:
    with pytest.raises(UsageError, match="weight must be a number, not str"):
        real("weight", "x")
    with pytest.raises(UsageError, match="weight is nan"):
        real("weight", math.nan)


def test_a_budget_is_checked_and_prints_itself() -> None:
    budget = Target(1, 1e-5, "attribute")
    assert str(budget) == "epsilon = 1, delta = 1e-05 per attribute"
    assert budget == Target(1.0, 1e-5, Unit.ATTRIBUTE)
    assert Target(1.0, 0).unit is Unit.RECORD
    for wrong in ((0, 1e-5), (1, 1), (1, 1e-5, "person")):
        with pytest.raises(UsageError):
            Target(*wrong)


def test_the_package_has_one_lazy_name() -> None:
    assert unpooled.privacy.gaussian_sigma(1.0, 1e-5) == pytest.approx(3.7306, abs=1e-4)
    with pytest.raises(AttributeError, match="no attribute 'gauss'"):
        _ = unpooled.privacy.gauss


def test_a_split_says_whether_people_are_shared() -> None:
    assert {split: split.shares_people for split in Split} == {Split.VERTICAL: True, Split.HORIZONTAL: False}


def test_an_adjacency_that_nobody_decided_has_no_sensitivity() -> None:
    """A new member is met by an error, and never by the formula of another one."""
    new: Any = "sideways"
    forms: list[Callable[[], float]] = [
        lambda: sensitivity.column_moments(1.0, 1.0, 1.0, new, may_be_absent=True),
        lambda: sensitivity.contributions_of_arms(1.0, new),
        lambda: sensitivity.household_row(1.0, 1.0, new, rows_move=True),
        lambda: sensitivity.category_counts(new),
        lambda: sensitivity.moments_box([1.0], 1.0, new),
        lambda: sensitivity.moments_ball(1.0, 1.0, new),
        lambda: sensitivity.moments_augmented(1.0, new),
        lambda: sensitivity.standardising_sums([True], 1.0, 1.0, new),
        lambda: sensitivity.counts_of_columns([True], 1.0, new),
        lambda: sensitivity.clipped_products(1.0, new),
        lambda: sensitivity.logistic_gradient(1.0, 2, new),
    ]
    for form in forms:
        with pytest.raises(AssertionError):
            form()


def test_a_statement_has_words_for_every_member() -> None:
    for table in (statement.UNIT_WORDS, statement._KNOWS, *statement._THINKS.values()):
        assert set(table) == set(Unit)
    for table in (statement.SPLIT_WORDS, statement._PERSON_WORDS, statement._AGAINST_WORDS):
        assert set(table) == set(Split)
    for table in (statement._THINKS, statement._ADJACENCY_WORDS):
        assert set(table) == set(Adjacency)
