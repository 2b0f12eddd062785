"""Attacks on the exponential mechanism and on the picks of a LASSO: decisions beyond 28 digits, sums that overflow, requests that fail half-way."""

from __future__ import annotations

import decimal
from decimal import Decimal

import numpy as np
import pytest
from scipy.sparse import csc_array

from unpooled.errors import UnpooledError
from unpooled.kernels import sampler
from unpooled.models import load
from unpooled.models.lasso.frank_wolfe_rows import PickRequest, ReleasedColumn, Term
from unpooled.privacy import noise
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import Given, Scores
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.context import Context
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.messages import Array, Released, encode
from unpooled.protocol.party import Party

MODEL, N = load("lasso"), 40
CARDS = tuple(Card(p, N, tuple(Column(c, -1.0, 1.0) for c in names), ("y",)) for p, names in (("a", "uv"), ("b", "w")))


# --- the exact decision ---------------------------------------------------------------------------------------------------


class OneWord:
    """A first trial on the boundary of a weight, then a trial that takes candidate 0."""

    def __init__(self, word: int, further: int) -> None:
        self.both, self.further = np.array([word, 0], dtype=np.uint64), further

    def words(self, start: int, count: int, lane: int = 0) -> np.ndarray:
        return self.both

    def more(self, coordinate: int, block: int) -> int:
        return self.further


def on_the_boundary(rate: float, gap: int, offset: int) -> int:
    """The choice among [0, -gap] when R + U of candidate 1 is its weight plus offset 2^-256."""
    with decimal.localcontext(decimal.Context(prec=200)):
        weight = (-(Decimal(rate) * gap)).exp() * (1 << sampler.CHOICE_POWER)
        whole, further = int(weight), int((weight % 1) * (1 << 256))
    assert 0 <= further + offset < 1 << 256
    return noise.choose(np.array([0, -gap]), rate, stream=OneWord((1 << sampler.CHOICE_POWER) + 2 + whole, further + offset))


@pytest.mark.minutes
@pytest.mark.parametrize(("rate", "gap", "offset"), [(0.1, 7, -(1 << 180)), (0.3, 11, 1 << 180)])
def test_exact_decisions_hold_far_below_the_28_digits_of_the_default_context(rate: float, gap: int, offset: int) -> None:
    assert on_the_boundary(rate, gap, offset) == (1 if offset < 0 else 0)


def test_a_choice_does_not_depend_on_the_callers_decimal_context() -> None:
    with decimal.localcontext(decimal.Context(prec=12)):
        assert on_the_boundary(1 / 3, 7, 1 << 250) == 0


@pytest.mark.guarantee
def test_a_choice_does_not_fail_on_the_callers_decimal_traps() -> None:
    with decimal.localcontext(decimal.Context(prec=28, traps=[decimal.Inexact])):
        on_the_boundary(0.1, 7, 0)


# --- the caller: picks of a LASSO -----------------------------------------------------------------------------------------


def opened(columns, y: np.ndarray, **parameters) -> tuple[str, Party]:
    asked = Study(
        "lasso",
        parties=CARDS,
        epsilon=1.0,
        delta=1e-5,
        unit="attribute",
        simulation_seed=5,
        parameters={"radius_in_half_ranges": 2.0, "rounds": 4, "coupling": "blocks", **parameters},
        derived=(),
    )
    plan, ledger = MODEL.compile(asked), Ledger.in_memory()
    table = (
        Table({"y": y}, (("u", "v"), csc_array(columns))) if isinstance(columns, np.ndarray) else Table({"y": y, **columns})
    )
    party = Party("a", table, CARDS[0], ledger, KeySource(ledger.root_key), Policy.in_process(), load)
    party.answer(encode(plan.hash, "open", 0, OpenRequest(asked)))
    return plan.hash, party


def scored(columns, y: np.ndarray, request: PickRequest, **parameters) -> tuple[np.ndarray, int] | None:
    """The scores and their sensitivity as a pick hands them to the mechanism; None where the request is refused before."""
    (plan, party), seen, original = opened(columns, y, **parameters), [], Context.release

    def spy(context: Context, name: str, given: Given) -> Released:
        if isinstance(given, Scores):
            seen.append((given.values.copy(), given.sensitivity))
        return original(context, name, given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Context, "release", spy)
        try:
            party.answer(encode(plan, "pick", 0, request))
        except UnpooledError:
            assert not seen
    return seen[0] if seen else None


def farthest(one: np.ndarray, other: np.ndarray) -> int:
    return max(abs(int(a) - int(b)) for a, b in zip(one, other, strict=True))


@pytest.mark.filterwarnings("ignore")
def test_predictions_that_overflow_do_not_move_sparse_scores_beyond_their_sensitivity() -> None:
    """Finite terms times finite columns: inf, centred: nan. Nan times no entries is 0, times one entry -2^63."""
    shared = np.zeros(N)
    shared[0] = 1e200
    request = PickRequest((Term("b", 0, 1e150),), (ReleasedColumn("b", 0, Array.of(shared)),))
    empty, one = np.zeros((N, 2)), np.zeros((N, 2))
    one[3, 0] = 0.5  # one value of one person
    found = [scored(columns, np.linspace(-1, 1, N), request) for columns in (empty, one)]
    assert found == [None, None] or farthest(found[0][0], found[1][0]) <= found[0][1]


@pytest.mark.filterwarnings("ignore")
def test_a_response_bound_whose_steps_are_denormal_does_not_void_the_sensitivity() -> None:
    bound = 1.45 * 2**24 * N * 5e-324  # a step of 1.45 denormal units is rounded to one
    u = np.ones(N)
    moved = np.append(-1.0, u[1:])  # one value of one person
    with pytest.raises(UnpooledError, match="response_bound"):
        [scored({"u": c, "v": u}, np.full(N, bound), PickRequest((), ()), response_bound=bound) for c in (u, moved)]


@pytest.mark.guarantee
@pytest.mark.filterwarnings("ignore")
def test_a_request_that_fails_after_its_debit_is_no_equality_test_of_scores() -> None:
    """A score that overflows leaves a debited pick without a reply; the next request's refusal compares exact scores."""

    def outcomes(value: float) -> list[type]:
        u = np.zeros(N)
        u[:2] = 0.5, value
        plan, party = opened({"u": u, "v": np.zeros(N)}, np.zeros(N), coupling="ball", rounds=20)
        found = []
        for middle in (1.7e308, -1.7e308):  # all residuals are the grid's end, or minus it
            try:
                party.answer(encode(plan, "pick", 0, PickRequest((), (), middle)))
                found.append(type(None))
            except Exception as error:
                found.append(type(error))
        return found

    zero, other = outcomes(-0.5), outcomes(-0.4)  # neighbours: a column whose sum is 0, and one whose is not
    assert zero == other
