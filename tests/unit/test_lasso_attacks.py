"""Attacks on the LASSO by whoever sends its requests: numbers that no honest coordinator has, other orders, what was lost and repeated."""

from __future__ import annotations

import dataclasses
import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csc_array

from unpooled.errors import BudgetRefusal, PlanMismatch, ReleaseConflict, UnpooledError
from unpooled.kernels.l1_ball import quadratic_in_balls
from unpooled.models.lasso.frank_wolfe_fit import ColumnMoments
from unpooled.models.lasso.frank_wolfe_rows import (
    Bid,
    ColumnRequest,
    PickRequest,
    RefitRequest,
    ReleasedColumn,
    Slot,
    Term,
    design_of,
    shortened,
)
from unpooled.privacy.accounting import Composition
from unpooled.privacy.bounds import Column
from unpooled.privacy.mechanisms import Scores
from unpooled.privacy.plan import Card, Plan, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Target, Unit
from unpooled.protocol.desk import OpenDesk
from unpooled.protocol.identity import MemoryKeeper
from unpooled.protocol.messages import Array
from unpooled.protocol.party import Party
from unpooled.study.party import DiskKeeper

sys.path.insert(0, str(Path(__file__).parent))
from test_lasso import MODEL, TABLES, VALUES, N, Y, ask, first_round, opened, picks_of, study, winner

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def moments(u: float, shared: np.ndarray) -> tuple[np.ndarray, float]:
    """The exact integers behind party a's moments of its first column with one column of the coordinator's, and their declared reach."""
    values = np.append(u, VALUES["u"][1:])
    plan, made = opened(study(), {**TABLES, "a": Table({"u": values, "v": VALUES["v"], "y": Y})})
    made["a"].keeper.keep(plan.hash, "columns", np.array([0]))
    seen: list[np.ndarray] = []
    original = OpenDesk.release

    def spy(desk: OpenDesk, name: str, given):
        seen.append(given.values.copy())
        return original(desk, name, given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenDesk, "release", spy)
        ask(plan, made["a"], "refit", RefitRequest(0, (Slot("b", 1),), (ReleasedColumn("b", 1, Array.of(shared)),)))
    return seen[0], plan.release("a", "refit").sensitivity(Unit.RECORD)


@pytest.mark.parametrize("size", [8e-296, 2.7e-162])
def test_tiny_released_columns_do_not_outgrow_the_reach_of_moments(size: float) -> None:
    """A "released" column that is 8e-296 in the row that the coordinator is after and zero elsewhere: its squares underflow. Divided by anything
    less than its norm it would let one value move the moments 66,800 times as far as declared."""
    shared = np.zeros(N)
    shared[0] = size
    (one, reach), (other, _) = moments(1.0, shared), moments(-1.0, shared)
    assert np.linalg.norm((one - other).astype(float)) <= reach


def test_the_largest_row_is_at_least_the_norm_of_every_row() -> None:
    """The same at its root: the divisor of released columns is smaller than the rows that it is to shorten to length 1."""
    for size in (1e-100, 1e-160, 2.7e-162, 1e-170, 8e-296):
        rows, norm = shortened(np.array([[size], [0.0]]))
        assert norm >= size
        assert np.abs(rows).max() <= 1


def sparse_scores(value: float, request: PickRequest) -> tuple[np.ndarray, float] | None:
    """The integer scores of sparse columns, the first of which holds one value, and their declared sensitivity; None if refused."""
    held = np.zeros((N, 2))
    held[0, 0], held[3, 1] = value, 0.5
    tables = {**TABLES, "a": Table({"y": Y}, (("u", "v"), csc_array(held)))}
    try:
        return picks_of(tables, study(parameters={"coupling": "blocks"}), request)["a"]
    except UnpooledError:
        return None


def test_predictions_that_overflow_do_not_show_which_sparse_columns_are_empty() -> None:
    """Finite coefficients times finite columns of the coordinator's give inf - inf = nan predictions, which nothing refuses. All residuals
    become nan; zeros of a sparse column are never multiplied with them, so an empty column scores 0 and any other -2^63, at a declared
    sensitivity of 2^45. Under ``blocks`` the pick is released: one value of one person decides which picks are possible at all."""
    huge = ReleasedColumn("b", 0, Array.of(np.full(N, 1e308)))
    request = PickRequest((Term("b", 0, 1e100), Term("b", 0, -1e100)), (huge,))
    empty, held = sparse_scores(0.0, request), sparse_scores(0.5, request)
    if empty is None:
        assert held is None
        return
    assert held is not None
    assert np.abs(empty[0].astype(float) - held[0].astype(float)).max() <= empty[1]


@pytest.mark.guarantee
@pytest.mark.parametrize("step", ["column", "refit"])
def test_no_order_of_indices_makes_a_column_cost_nothing(step: str) -> None:
    """The ledger debits a value for the release of index 0 only (``Release.touches``), and nobody insists that index 0 comes first. A column
    (and its moments) asked for at index 1 leaves the party and costs no value anything: 70 % of every study's budget is never debited, and
    the policy's total is exceeded by the studies that follow."""
    plan, made = opened(study())
    claims = first_round(plan, made)
    best, _ = winner(claims)
    claim = next(c for c in claims if c.party == best)
    column, _ = design_of(plan.study).picked(plan.study, plan.study.card(best), 0, claim.picked)
    party, unit = made[best], Unit.ATTRIBUTE
    cost = plan.release(best, step).mechanism.event(unit).rho
    if step == "refit":
        ask(plan, party, "column", ColumnRequest(0, claims))
    before = party.ledger.composition(unit).compositions[0].rho
    place, new = Slot(best, column), ReleasedColumn(best, column, Array.of(np.ones(N)))
    payload = ColumnRequest(0, claims) if step == "column" else RefitRequest(column, (place,), (new,))
    try:
        ask(plan, party, step, payload, index=1)
    except UnpooledError:
        return
    assert party.ledger.composition(unit).compositions[0].rho - before >= cost * (1 - 1e-9)


@pytest.mark.guarantee
def test_a_party_that_lost_what_it_kept_does_not_release_a_column_twice_at_one_charge() -> None:
    """That a column is released once is remembered in the folder ``.kept`` alone, which neither the ledger's chain nor its anchor covers. With
    the folder gone (cleaned, not restored, lost in a power cut) and the ledger whole, the column leaves again with fresh noise; a
    value is debited for the first only."""
    plan, made = opened(study(parameters={"coupling": "blocks"}))
    party, asked = made["a"], design_of(plan.study)
    where: dict[int, list[tuple[int, Bid]]] = {}
    for t in range(4):  # two columns, four picks: one is picked twice
        reply = ask(plan, party, "pick", PickRequest((), ()), t)
        claim = Bid("a", reply.choice, reply.score, reply.signed)
        where.setdefault(asked.picked(plan.study, party.card, t, claim.picked)[0], []).append((t, claim))
    (t, first), (later, second), *_ = max(where.values(), key=len)
    ask(plan, party, "column", ColumnRequest(t, (first,)))
    once = party.ledger.composition(Unit.ATTRIBUTE).compositions[0].rho
    forgetful = dataclasses.replace(party, keeper=MemoryKeeper())
    try:
        ask(plan, forgetful, "column", ColumnRequest(later, (second,)), index=1)
    except UnpooledError:
        return
    assert (
        party.ledger.composition(Unit.ATTRIBUTE).compositions[0].rho
        >= once + plan.release("a", "column").mechanism.event(Unit.ATTRIBUTE).rho
    )


def test_what_is_kept_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark "released" is renamed into place and its directory is never synced, while the ledger's debit that follows is. After a power
    cut the debit may stand without the mark: the test above, without anybody's doing."""
    synced: list[bool] = []
    original = os.fsync

    def spy(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        original(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    DiskKeeper(tmp_path / "kept").keep("0" * 64, "shared_0", np.array([0]))
    assert any(synced)


def test_a_pick_that_is_refused_costs_nothing() -> None:
    """Under ``ball`` predictions that are nan are refused only by the score's sensitivity, after the pick and the score were debited."""
    plan, made = opened(study())
    before = made["a"].ledger.entries()
    huge = ReleasedColumn("b", 0, Array.of(np.full(N, 1e308)))
    with pytest.raises(UnpooledError):
        ask(plan, made["a"], "pick", PickRequest((Term("b", 0, 1e100), Term("b", 0, -1e100)), (huge,)))
    assert made["a"].ledger.entries() == before


@pytest.mark.guarantee
def test_a_refused_request_leaves_no_mark() -> None:
    """``_once`` writes before the request is understood and before the release: a request that was refused for an unknown column blocks the honest
    one for good (and, for columns, marks as released what was not)."""
    plan, made = opened(study())
    made["a"].keeper.keep(plan.hash, "columns", np.array([0]))
    with pytest.raises(UnpooledError, match="nothing named"):
        ask(plan, made["a"], "refit", RefitRequest(0, (Slot("b", 1),), ()), index=1)
    new = ReleasedColumn("b", 1, Array.of(np.ones(N)))
    ask(plan, made["a"], "refit", RefitRequest(0, (Slot("b", 1),), (new,)), index=0)


@pytest.mark.parametrize("factor", [1.49, 1.3])
def test_scores_of_a_tiny_response_keep_within_their_sensitivity(factor: float) -> None:
    """A declared ``response_bound`` of 1e-315 or less makes the step of the residual's grid a subnormal number, which is rounded: residuals leave the
    grid, by up to one half, and scores move by as much more than declared. Such a bound should be refused with the plan."""
    bound = N * factor * 2**24 * 5e-324
    found = []
    try:
        asked = study(parameters={"response_bound": bound, "coupling": "blocks"})
        for sign in (-1.0, 1.0):
            y = np.append(sign * bound, Y[1:] * bound / 2)
            tables = {**TABLES, "a": Table({"u": np.append(1.0, VALUES["u"][1:]), "v": VALUES["v"], "y": y})}
            found.append(picks_of(tables, asked, PickRequest((), ()))["a"])
    except UnpooledError:
        return
    assert np.abs(found[0][0] - found[1][0]).max() <= found[0][1]


@pytest.mark.guarantee
@pytest.mark.parametrize("kind", ["empty order", "large coefficient"])
def test_wild_requests_are_refused_in_words(kind: str) -> None:
    """Not an UnpooledError: an empty order is numpy's ValueError (after the mark was kept), a coefficient of 1e200 Python's OverflowError."""
    plan, made = opened(study())
    made["a"].keeper.keep(plan.hash, "columns", np.array([0]))
    new = (ReleasedColumn("b", 0, Array.of(np.zeros(N))),)
    step, payload = {
        "empty order": ("refit", RefitRequest(0, (), ())),
        "large coefficient": ("pick", PickRequest((Term("b", 0, 1e200),), new)),
    }[kind]
    with pytest.raises(UnpooledError):
        ask(plan, made["a"], step, payload)


def test_the_refit_survives_columns_of_very_different_sizes() -> None:
    """Eigenvalues are raised on the scale of correlations and computed again after scaling back: some come out negative,
    their roots are nan, and the engine ends in an IndexError."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        A = rng.uniform(-1, 1, (2, 20)) * 10.0 ** rng.uniform(-8, 0, 20)
        gram = A.T @ A / 2
        exact = ColumnMoments(
            A.T @ rng.uniform(-1, 1, 2) / 2, np.diag(gram).copy(), np.zeros(20), gram, 0.0, 0.0, 0.0, 0.0, 2
        )
        assert np.abs(quadratic_in_balls(exact.gram(), exact.correlations(), 1.0).coefficients).sum() <= 1 + 1e-9


def test_a_sparse_table_is_not_changed_from_outside() -> None:
    """A read-only view of an array that others can write into is shared, not copied: the table changes and its digest does not, so old answers
    are given for, and fresh ones computed from, other data under the same fingerprint."""
    base = np.array([0.5, 0.25])
    view = base[:]
    view.setflags(write=False)
    indices, starts = np.array([0, 1]), np.array([0, 1, 2])
    indices.setflags(write=False)
    starts.setflags(write=False)
    table = Table({}, (("u", "v"), csc_array((view, indices, starts), shape=(2, 2))))
    before, digest = table["u"].tolist(), table.digest
    base[0] = -1.0
    assert table["u"].tolist() == before
    assert table.digest == digest


@pytest.mark.guarantee
def test_a_sparse_table_with_an_unfit_range_is_refused_when_the_study_opens() -> None:
    """Where every column is sparse and one has a range that is not symmetric, ``consider`` codes it dense and agrees; every pick is then refused."""
    columns = (Column("u", 0.0, 1.0), Column("v", -1.0, 1.0))
    cards: tuple[Card, ...] = (Card("a", N, columns, ("y",)), study().parties[1])
    tables = {**TABLES, "a": Table({"y": Y}, (("u", "v"), csc_array(np.eye(N, 2))))}
    asked: Study = study(parties=cards)
    try:
        made: tuple[Plan, dict[str, Party]] = opened(asked, tables)
    except UnpooledError:
        return
    assert MODEL.compile(asked).hash == made[0].hash
    ask(made[0], made[1]["a"], "pick", PickRequest((), ()))


@pytest.mark.guarantee
def test_columns_that_no_party_has_are_not_stored() -> None:
    """``_keep`` takes any column number and writes before anything else of the request is checked: refused requests fill a party's disk."""
    plan, made = opened(study())
    junk = tuple(ReleasedColumn("b", 10**6 + i, Array.of(np.zeros(N))) for i in range(50))
    with pytest.raises(UnpooledError):
        ask(plan, made["a"], "pick", PickRequest((Term("b", 7, 1.0),), junk))
    assert not made["a"].keeper.items()


@pytest.mark.guarantee
def test_marks_and_ledger_are_both_asked_for_the_order() -> None:
    """A mark that no debit followed (a power cut, a budget that was full) does not make the next number come first; nor another column's."""
    plan, made = opened(study(parameters={"coupling": "blocks"}))
    party, asked = made["a"], design_of(plan.study)
    reply = ask(plan, party, "pick", PickRequest((), ()))
    claim = Bid("a", reply.choice, reply.score, reply.signed)
    column, _ = asked.picked(plan.study, party.card, 0, claim.picked)
    party.keeper.keep(plan.hash, "columns", np.array([1 - column]))
    before = party.ledger.entries()
    with pytest.raises(PlanMismatch, match="another column"):
        ask(plan, party, "column", ColumnRequest(0, (claim,)), index=0)
    with pytest.raises(PlanMismatch, match="number 0 was not made yet"):
        ask(plan, party, "column", ColumnRequest(0, (claim,)), index=1)
    assert party.ledger.entries() == before


@pytest.mark.guarantee
def test_another_request_is_refused_whether_or_not_its_statistic_is_the_same() -> None:
    """A debit without an answer (a crash, a second release that was refused) must not tell whether another request leads to the same scores."""
    plan, made = opened(study())
    scores = np.array([1, 2])

    def choose(asked: bytes, scores: np.ndarray) -> int:
        released = OpenDesk(made["a"], plan, "pick", 0, asked).release("pick", Scores(scores, 5, signed=True))
        return int(released.values.numpy()[0])

    first = choose(b"one", scores)
    for asked, other in ((b"two", scores), (b"two", scores + 1), (b"one", scores + 1)):
        with pytest.raises(ReleaseConflict):
            choose(asked, other)
    assert choose(b"one", scores) == first


@pytest.mark.guarantee
def test_a_pick_whose_score_is_beyond_the_budget_is_not_debited_either() -> None:
    """Another study has used up the budget since this one was opened: all but what the pick alone would take."""
    plan, made = opened(study())
    party, unit = made["a"], Unit.ATTRIBUTE
    pick, score = (plan.release("a", name).mechanism.event(unit) for name in ("pick", "score"))
    room = Composition([pick]).epsilon(1e-5) * 1.01
    assert Composition([pick, score]).epsilon(1e-5) > room
    frugal = dataclasses.replace(party, policy=dataclasses.replace(party.policy, budget=Target(room, 1e-5, unit)))
    before = party.ledger.entries()
    with pytest.raises(BudgetRefusal):
        ask(plan, frugal, "pick", PickRequest((), ()))
    assert party.ledger.entries() == before
