"""Totals of several parties: exact, opened once or not at all, and closed to a coordinator who asks for something else."""

from __future__ import annotations

import dataclasses
import itertools
import math
from functools import partial
from hashlib import sha256

import msgspec
import numpy as np
import pytest
from hypothesis import given
from strategies import Sum, examples, sums
from world import sized

from unpooled.errors import (
    PlanMismatch,
    PolicyRefusal,
    ProtocolError,
    ReleaseConflict,
    StudyAborted,
    UnpooledError,
    UsageError,
)
from unpooled.linear.moments import Moments
from unpooled.models import load
from unpooled.models.bayes.declared import design_of
from unpooled.privacy.accounting import budget_rho
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import Block, Contribution, DistributedGaussian, FieldGaussian, GaussianRelease, Reach
from unpooled.privacy.noise import KeySource, Stream
from unpooled.privacy.plan import AGGREGATION, Card, Plan, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.privacy.unit import ROWWISE, Target, Unit
from unpooled.products.sums import JointSum
from unpooled.protocol.conversation import OpenRequest, find_step
from unpooled.protocol.identity import Identity
from unpooled.protocol.local import drive
from unpooled.protocol.messages import Dropped, Nothing, Partial, Released, Sealed, encode, open_body, open_envelope
from unpooled.protocol.party import Party
from unpooled.totals import secure_sum
from unpooled.totals.modes import Distributed, Local, Mode, Trusted, aggregation_of
from unpooled.totals.total import AgreeRequest, FragmentRequest, LocalRequest, Member, Summed, TotalRequest

MODEL = load("bayes")
COLUMNS = (Column("a", -1.0, 3.0), Column("y", -4.0, 4.0))
ROWS = 5
MANY = sized(100, 25)
#: Parties, how many may be lost, how many are.
LOST = ((3, 1, 1), (10, 2, 1), (10, 2, 2), (20, 5, 5), (MANY, 3, 3))


def root(name: str) -> bytes:
    return sha256(name.encode()).digest()


def names_of(n: int) -> list[str]:
    return [f"site{k:03d}" for k in range(n)]


def study_of(
    n: int, *, tolerate: int = 0, mode: str = "distributed", pinned: bool = True, epsilon: float = 1.0, **rest
) -> Study:
    one_release = {"method": "moments", "prior_precision": 1.0, "noise_precision": 1.0}
    parameters = {"response": "y", "tolerate": tolerate, **one_release, **rest.pop("parameters", {})}
    cards = tuple(
        Card(name, ROWS + k % 3, COLUMNS, key=Identity(root(name)).public if pinned else "")
        for k, name in enumerate(names_of(n))
    )
    rest.setdefault("trust", {AGGREGATION: mode})
    return Study("bayes", cards, epsilon, 1e-5, parameters=parameters, **rest, derived=())


def tables_of(study: Study) -> dict[str, Table]:
    rng = np.random.default_rng(len(study.parties))
    return {c.name: Table({"a": rng.uniform(-1, 3, c.rows), "y": rng.normal(0, 2, c.rows)}) for c in study.parties}


RULES = Policy(None, trust=frozenset({"trusted"}), allow_simulation=True, approved=None)


def parties_of(study: Study, rules: Policy = RULES) -> dict[str, Party]:
    people, tables = {}, tables_of(study)
    for card in study.parties:
        ledger = Ledger.in_memory(root_key=root(card.name))
        people[card.name] = Party(card.name, tables[card.name], card, ledger, KeySource(ledger.root_key), rules, load)
    return people


class Wire:
    """The exchange in process, with parties that drop out of steps, and everything that came back."""

    def __init__(self, people: dict[str, Party], drops: dict[str, set[str]] | None = None, stop: str = "") -> None:
        self.people, self.drops, self.stop = people, drops or {}, stop
        self.seen: list[tuple[str, str, object]] = []

    def __call__(self, batch):
        if self.stop and batch[0][0].step == self.stop:
            raise Stopped(batch)
        return [self.answer(ask, request) for ask, request in batch]

    def answer(self, ask, request):
        if ask.to in self.drops.get(ask.step, ()):
            return Dropped(ask.to, "is gone")
        reply = self.people[ask.to].answer(request)
        self.seen.append((ask.to, ask.step, open_body(open_envelope(reply), find_step(MODEL, ask.step).reply)))
        return reply

    def issued(self, kind: type) -> list:
        found = []
        for _, _, reply in self.seen:
            for name in reply.__struct_fields__:
                value = getattr(reply, name)
                found += [part for part in (value if isinstance(value, tuple) else (value,)) if isinstance(part, kind)]
        return found


class Stopped(Exception):
    def __init__(self, batch) -> None:
        super().__init__()
        self.batch = batch


class Notebook:
    """What every party put into every total (with noise), and every vector that was opened, in integers."""

    def __init__(self, monkeypatch) -> None:
        self.shared: dict[tuple[int, ...], list[np.ndarray]] = {}
        self.vectors: list[np.ndarray] = []
        self.opened: list[np.ndarray] = []
        draw, opened = DistributedGaussian.draw, secure_sum.opened

        def noted_share(mechanism, given, bits):
            self.vectors.append(draw(mechanism, given, bits))
            return self.vectors[-1].copy()

        def noted_opened(partials, **how):
            self.opened.append(opened(partials, **how))
            return self.opened[-1]

        monkeypatch.setattr(DistributedGaussian, "draw", noted_share)
        monkeypatch.setattr(secure_sum, "opened", noted_opened)


def run(study: Study, people: dict[str, Party] | None = None, drops: dict[str, set[str]] | None = None, stop: str = ""):
    plan = MODEL.compile(study)
    wire = Wire(people or parties_of(study), drops, stop)
    return drive(MODEL, plan, wire).result, wire


def plain_sum(study: Study, participants: tuple[str, ...]) -> np.ndarray:
    asked, tables = design_of(study), tables_of(study)
    return sum(asked.layout.statistic(tables[name]) for name in participants)


# --- the total --------------------------------------------------------------------------------------------------------------


@pytest.mark.minutes
@pytest.mark.parametrize(
    ("n", "tolerate", "gone", "where"),
    [
        *((n, tolerate, 0, "keys") for n, tolerate in ((3, 0), (10, 2), (MANY, 3))),
        *((*w, "keys") for w in LOST),
        *((*w, "moments-fragment") for w in LOST),
    ],
)
def test_the_opened_sum_is_the_plain_sum(monkeypatch, n: int, tolerate: int, gone: int, where: str) -> None:
    study = study_of(n, tolerate=tolerate)
    out = set(names_of(n)[1 :: max(1, n // max(gone, 1))][:gone])
    assert len(out) == gone
    notes = Notebook(monkeypatch)
    result, wire = run(study, drops={where: out})
    assert result.participants == tuple(name for name in names_of(n) if name not in out)
    (opened,) = notes.opened
    assert len(notes.vectors) == n - gone
    assert np.array_equal(opened, sum(notes.vectors))
    mechanism = MODEL.compile(study).releases[0].mechanism
    assert isinstance(mechanism, DistributedGaussian)
    noise = mechanism.decode(opened, n - gone) - plain_sum(study, result.participants)
    spread = noise / mechanism.total_deviations(n - gone)
    assert 0 < np.abs(spread).max() < 6
    assert len(wire.issued(Partial)) == max(2, tolerate + 1)
    assert not wire.issued(Released)


@pytest.mark.slow
@examples(25)
@given(sums())
def test_whoever_is_lost_the_sum_of_the_others_is_opened_or_nothing_is(asked: Sum) -> None:
    study = study_of(asked.parties, tolerate=asked.tolerate)
    names, plan = names_of(asked.parties), MODEL.compile(study)
    wire = Wire(parties_of(study), {step: {names[k] for k in lost} for step, lost in asked.lost.items()})
    with pytest.MonkeyPatch.context() as patch:
        notes = Notebook(patch)
        if len(asked.gone) > asked.tolerate:
            with pytest.raises(StudyAborted):
                drive(MODEL, plan, wire)
            assert not notes.opened
            assert not wire.issued(Partial)
            return
        result = drive(MODEL, plan, wire).result
    assert result.participants == tuple(name for k, name in enumerate(names) if k not in asked.gone)
    (opened,) = notes.opened
    assert len(notes.vectors) == len(result.participants)
    assert np.array_equal(opened, sum(notes.vectors))
    mechanism = plan.releases[0].mechanism
    noise = mechanism.decode(opened, len(notes.vectors)) - plain_sum(study, result.participants)
    assert 0 < np.abs(noise / mechanism.total_deviations(len(notes.vectors))).max() < 7


@pytest.mark.parametrize("gone", [0, 1])
@pytest.mark.parametrize("n", [3, 10])
def test_without_noise_every_mode_gives_the_exact_sum(monkeypatch, n: int, gone: int) -> None:
    grams = set()
    for mode in Mode:
        study = study_of(n, tolerate=1, mode=mode, epsilon=math.inf)
        step = {"distributed": "moments-fragment", "trusted": "moments-fragment", "local": "moments-local"}[mode]
        result, _ = run(study, drops={step: set(names_of(n)[1 : 1 + gone])})
        moments = Moments.of(result.moments)
        asked = design_of(study)
        first, second = asked.layout.pairs
        exact = plain_sum(study, result.participants) / asked.layout.grid**2
        exact[(first == 1) & (second == 1)] = moments.rows
        assert np.array_equal(moments.gram[first, second], exact)
        assert not np.nan_to_num(moments.variance).any()
        grams.add(moments.gram.tobytes())
    assert len(grams) == 1


@pytest.mark.parametrize("mode", ["distributed", "trusted"])
@pytest.mark.parametrize("where", ["keys", "moments-fragment"])
@pytest.mark.parametrize("tolerate", [0, 1, 3])
def test_one_more_dropout_than_tolerated_aborts_and_opens_nothing(tolerate: int, where: str, mode: str) -> None:
    study = study_of(6, tolerate=tolerate, mode=mode)
    people = parties_of(study)
    wire = Wire(people, {where: set(names_of(6)[1 : tolerate + 2])})
    with pytest.raises(StudyAborted, match="Nothing was opened: run it again"):
        drive(MODEL, MODEL.compile(study), wire)
    assert not wire.issued(Partial)
    assert not wire.issued(Released)
    assert not {step for _, step, _ in wire.seen} & {"moments-agree", "moments-total", "moments-noisy"}


def test_one_more_local_dropout_than_tolerated_aborts() -> None:
    study = study_of(4, tolerate=1, mode="local")
    assert run(study, drops={"moments-local": {"site001"}})[0].participants == ("site000", "site002", "site003")
    with pytest.raises(StudyAborted, match="at their releases"):
        run(study, drops={"moments-local": {"site001", "site002"}})


@pytest.mark.parametrize("where", ["moments-agree", "moments-total"])
def test_a_node_that_is_lost_after_sharing_ends_the_study(where: str) -> None:
    study = study_of(5, tolerate=2)
    wire = Wire(parties_of(study), {where: {"site001"}})
    with pytest.raises(StudyAborted, match=r"site001 \(is gone\) did not add up, so nothing was opened"):
        drive(MODEL, MODEL.compile(study), wire)
    assert len(wire.issued(Partial)) == (0 if where == "moments-agree" else 2)  # of three: uniform words


def test_too_few_nodes_end_the_study_before_anything_is_sealed() -> None:
    study = study_of(5, tolerate=1, parameters={"nodes": ["site001", "site003"]})
    wire = Wire(parties_of(study), {"keys": {"site003"}})
    with pytest.raises(StudyAborted, match="fewer than 2 of the nodes site001, site003"):
        drive(MODEL, MODEL.compile(study), wire)
    assert not wire.issued(Sealed)
    other = study_of(5, tolerate=1, parameters={"nodes": ["site004", "site001", "site003"]})
    _, wire = run(other, drops={"keys": {"site003"}})
    assert [who for who, step, _ in wire.seen if step == "moments-total"] == ["site001", "site004"]


def test_a_lost_aggregator_ends_the_study() -> None:
    study = study_of(4, tolerate=1, mode="trusted", parameters={"nodes": ["site002"]})
    with pytest.raises(StudyAborted, match="fewer than 1 of the nodes site002"):
        run(study, drops={"keys": {"site002"}})
    with pytest.raises(StudyAborted, match="site002"):
        run(study, drops={"moments-noisy": {"site002"}})


@pytest.mark.parametrize("n", range(2, 8))
def test_no_coalition_that_the_statement_allows_opens_a_sum_or_knows_too_much_noise(n: int) -> None:
    """V12: the curious member counts. Every coalition and every set of absent parties, whichever nodes the coordinator chose (Theorem B.2)."""
    for tolerate in range(n - 1):
        aggregation = aggregation_of(study_of(n, tolerate=tolerate), tolerate)
        (said,), _ = aggregation.sentences
        most, together = said.values["most"], said.values["together"]
        assert (most, together) == (max(tolerate, 1), tolerate + 1)
        for away in range(tolerate + 1):
            there = n - away
            for coalition in range(1, most + 1):
                # The fewest nodes that a party accepts: the coordinator may choose all of them from the coalition, if it is large enough.
                opens = coalition >= aggregation.count
                # Of the variance that the plan counts on, sigma^2 = (N - T - 1) fragments, those of honest parties that are there.
                enough = there - coalition >= aggregation.honest
                assert not opens
                assert enough or coalition + away > together
        # The limits are no larger than they have to be: one more, and one of both fails.
        assert most + 1 >= aggregation.count or n - (together + 1) < aggregation.honest


# --- how much noise ---------------------------------------------------------------------------------------------------------


def constant_noise(monkeypatch) -> None:
    monkeypatch.setattr(KeySource, "stream", lambda _self, *_names, content=b"": Stream(bytes(32)))


@pytest.mark.parametrize("projection", [0.0, 0.3])
def test_trusted_sites_and_one_site_give_the_same_answer_for_the_same_noise(monkeypatch, projection: float) -> None:
    parameters = {"projection": projection, "multiple": 2.0} if projection else {}
    many = study_of(4, mode="trusted", parameters=parameters)
    whole = Card("one", sum(c.rows for c in many.parties), COLUMNS)
    one = msgspec.structs.replace(many, parties=(whole,))
    tables = tables_of(many)
    together = Table({c: np.concatenate([t[c] for t in tables.values()]) for c in ("a", "y")})
    constant_noise(monkeypatch)
    result, _ = run(many)
    ledger = Ledger.in_memory()
    party = Party("one", together, whole, ledger, KeySource(ledger.root_key), Policy.in_process(), load)
    single, _ = run(one, {"one": party})
    assert Moments.of(result.moments).gram.tobytes() == Moments.of(single.moments).gram.tobytes()
    assert Moments.of(result.moments).variance.tobytes() == Moments.of(single.moments).variance.tobytes()
    assert result.coefficients == single.coefficients
    assert result.projection == single.projection
    mechanisms = {
        r.mechanism.total if isinstance(r.mechanism, Contribution) else r.mechanism for r in MODEL.compile(many).releases
    }
    assert mechanisms == {r.mechanism for r in MODEL.compile(one).releases}


@pytest.mark.guarantee
@pytest.mark.parametrize(("n", "tolerate"), [(2, 0), (3, 1), (10, 0), (10, 2), (10, 8), (40, 5)])
def test_distributed_noise_costs_n_over_n_minus_t_minus_1_in_variance(n: int, tolerate: int) -> None:
    study = study_of(n, tolerate=tolerate)
    asked, plan = design_of(study), MODEL.compile(study)
    one = DistributedGaussian.calibrated(asked.moments.blocks, asked.moments.reach, Unit.RECORD, budget_rho(1.0, 1e-5), 1)
    ratio = (asked.moments.deviations(plan) / one.total_deviations(1)) ** 2
    exact = n / (n - tolerate - 1)
    assert ratio == pytest.approx(np.full(ratio.size, exact), rel=1e-4)  # flooring costs the rest
    fine = (Block(3, 1.0), Block(2, 0.5))
    one, many = (
        DistributedGaussian.calibrated(fine, dict.fromkeys(ROWWISE, Reach(50.0, 5)), Unit.RECORD, 0.01, h)
        for h in (1, n - tolerate - 1)
    )
    assert not one.floored
    assert n * many.scale**2 / one.scale**2 == pytest.approx(exact, rel=1e-9)


def test_local_noise_costs_n_in_variance_and_trusted_noise_nothing() -> None:
    n = 7
    of = {mode: study_of(n, mode=mode) for mode in Mode}
    noise = {mode: design_of(study).moments.deviations(MODEL.compile(study)) for mode, study in of.items()}
    assert noise[Mode.LOCAL] / noise[Mode.TRUSTED] == pytest.approx(np.full(5, math.sqrt(n)), rel=1e-12)


def residual_event(study: Study, known: int, gone: int):
    """What the total of N - gone shares protects with from a coalition that knows ``known`` of them."""
    mechanism = MODEL.compile(study).releases[0].mechanism
    n = len(study.parties)
    return dataclasses.replace(mechanism, honest=n - gone - known).event(Unit.RECORD).value, mechanism.event(
        Unit.RECORD
    ).value


@pytest.mark.parametrize(("n", "tolerate"), [(3, 1), (6, 2), (10, 4)])
def test_no_coalition_within_t_lowers_the_noise_below_the_plan(n: int, tolerate: int) -> None:
    """Theorem B.1."""
    study = study_of(n, tolerate=tolerate)
    for known in range(tolerate + 1):
        for gone in range(tolerate + 1 - known):
            left, planned = residual_event(study, known, gone)
            assert left <= planned
    # One more than the T and the asking client that the theorem allows for, and the guarantee is gone.
    if n - tolerate - 2 > 0:
        left, planned = residual_event(study, 2, tolerate)
        assert left > planned
    left, planned = residual_event(study, 1, tolerate)
    assert left == planned


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_a_coalition_that_takes_its_noise_out_is_left_with_the_planned_variance(monkeypatch) -> None:
    """Simulated: the opened sum less everything that T colluders and the client who asks know of it (Theorem B.1)."""
    n, tolerate, residuals = 5, 2, []
    for seed in range(80):
        study = study_of(n, tolerate=tolerate, simulation_seed=seed)
        with monkeypatch.context() as patch:
            notes = Notebook(patch)
            run(study)
        statistics = [design_of(study).layout.statistic(table) for table in tables_of(study).values()]
        mechanism = MODEL.compile(study).releases[0].mechanism
        left = notes.opened[0] - sum(notes.vectors[: tolerate + 1])
        residuals.append(mechanism.decode(left, n - tolerate - 1) - sum(statistics[tolerate + 1 :]))
    planned = mechanism.deviations * math.sqrt(mechanism.honest)
    ratio = np.mean((np.array(residuals) / planned) ** 2)  # over 400 draws: deviation 0.07
    assert mechanism.honest == n - tolerate - 1
    assert 0.75 < ratio < 1.25
    rho = budget_rho(1.0, 1e-5)
    reach = mechanism.sensitivity(Unit.RECORD)
    assert (reach / (mechanism.scale * math.sqrt(mechanism.honest))) ** 2 / 2 <= rho


# --- blueprints -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "mode", "parameters", "words"),
    [
        (3, "distributed", {"tolerate": 2}, "between 0 and 1"),
        (3, "distributed", {"tolerate": -1}, "between 0 and 1"),
        (2, "distributed", {"tolerate": 1}, "between 0 and 0"),
        (3, "trusted", {"tolerate": -1}, "tolerate"),
        (3, "distributed", {"nodes": ["site000", "nobody"]}, "parties of the study, each once"),
        (3, "distributed", {"nodes": ["site000", "site000"]}, "each once"),
        (3, "distributed", {"nodes": ["site000"]}, "name at least 2"),
        (5, "distributed", {"tolerate": 2, "nodes": ["site000", "site001"]}, "could all be among the 2 tolerated colluders"),
        (3, "trusted", {"nodes": ["site000", "site001"]}, "exactly one node"),
        (3, "elsewhere", {}, "distributed, trusted, local"),
    ],
)
def test_blueprints_that_protect_nobody_are_refused(n: int, mode: str, parameters: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        MODEL.compile(study_of(n, mode=mode, parameters=parameters))


def test_blueprints_say_who_adds_up() -> None:
    assert aggregation_of(study_of(5), 2) == Distributed(tuple(names_of(5)), 2, tuple(names_of(5)), 3)
    named = aggregation_of(study_of(5), 0, ("site003", "site001"))
    assert (named.nodes, named.count, named.honest) == (("site001", "site003"), 2, 4)
    assert aggregation_of(study_of(3, mode="trusted")).nodes == ("site000",)
    assert aggregation_of(study_of(3, mode="trusted"), 0, ("site002",)).nodes == ("site002",)
    assert isinstance(aggregation_of(study_of(1)), Local)
    assert isinstance(aggregation_of(msgspec.structs.replace(study_of(3), trust={})), Distributed)


@pytest.mark.parametrize("tolerate", [0, 1, 3])
def test_what_is_expected_before_data_is_the_noise_that_is_planned(tolerate: int) -> None:
    """A sensitivity of so many deviations of the total's noise: what forms of models are chosen by."""
    study = study_of(5, tolerate=tolerate)
    aggregation = aggregation_of(study, tolerate)
    vector = Summed("v", (Block(1, 1.0),), dict.fromkeys(ROWWISE, Reach(1e6, 1)), 1 << 20)
    fragment = aggregation.releases(vector, study)[0].mechanism
    assert isinstance(fragment, DistributedGaussian)
    assert aggregation.multiplier(study) == pytest.approx(1e6 / float(fragment.total_deviations(5)[0]), rel=0.02)


@pytest.mark.parametrize("tolerate", [0, 1, 3])
def test_what_is_expected_of_joint_sums_is_the_noise_that_is_planned(tolerate: int) -> None:
    study, names = study_of(5), tuple(names_of(5))
    joint = JointSum(names, tolerate, names, 5)
    vector = Summed("v", (Block(1, 1.0),), dict.fromkeys(ROWWISE, Reach(1e6, 1)), 1 << 20)
    fragment = joint.releases(vector, study)[0].mechanism
    assert isinstance(fragment, FieldGaussian)
    assert joint.multiplier(study) == pytest.approx(1e6 / float(fragment.total_deviations(5)[0]), rel=0.02)


def test_statements_say_what_is_not_protected() -> None:
    said = {mode: str(MODEL.compile(study_of(4, tolerate=1, mode=mode)).statement) for mode in Mode}
    assert (
        "a coalition of more than 1 party, its curious member counted, or of more than 2 together with"
        in said[Mode.DISTRIBUTED]
    )
    assert "drop out" in said[Mode.DISTRIBUTED]
    assert "X25519" in said[Mode.DISTRIBUTED]
    assert "site000, the trusted aggregator, sees the exact sums of the other parties." in said[Mode.TRUSTED]
    assert "coalition" not in said[Mode.LOCAL]


@pytest.mark.guarantee
def test_a_sum_that_could_wrap_around_is_refused_when_it_is_planned() -> None:
    study = study_of(3)
    names = tuple(names_of(3))
    rows = sum(c.rows for c in study.parties)

    def vector(per_row: int, distance: float = 1.0) -> Summed:
        return Summed("v", (Block(2, 1.0),), dict.fromkeys(ROWWISE, Reach(distance, 2)), per_row)

    for aggregation in (Distributed(names, 0, names, 2), Trusted(names, 0, names[:1], 1), Local(names, 0)):
        aggregation.releases(vector((1 << 62) // rows - 1000), study)
        with pytest.raises(UsageError, match="may not fit into 64 bits"):
            aggregation.releases(vector((1 << 62) // rows + 1), study)
        with pytest.raises(UsageError, match="may not fit into 64 bits"):
            aggregation.releases(vector(1, 2.0**61), study)
    for mode in Mode:
        with pytest.raises(UsageError, match="ask for"):  # too little epsilon
            MODEL.compile(study_of(3, mode=mode, epsilon=1e-6))


def test_the_largest_statistics_and_their_noise_do_not_wrap_around() -> None:
    for n, epsilon in ((3, 1e-3), (100, 1e-2)):
        study = study_of(n, epsilon=epsilon)
        mechanism, asked = MODEL.compile(study).releases[0].mechanism, design_of(study)
        largest = sum(c.rows for c in study.parties) * asked.moments.per_row
        assert largest + 12 * mechanism.total_deviations(n).max() < 2**63


@pytest.mark.guarantee
def test_a_statistic_beyond_its_declared_range_never_leaves(monkeypatch) -> None:
    from unpooled.linear.layout import MomentsLayout

    study = study_of(3)
    statistic = MomentsLayout.statistic
    for mode in Mode:
        asked = msgspec.structs.replace(study, trust={AGGREGATION: str(mode)})
        people = parties_of(asked)
        with monkeypatch.context() as patch:
            patch.setattr(MomentsLayout, "statistic", lambda self, table: statistic(self, table) + (ROWS + 3) * self.grid**2)
            with pytest.raises(ProtocolError, match="beyond its declared range"):
                run(asked, people)
        assert all(charges(party) == () for party in people.values())


def charges(party: Party) -> tuple:
    return tuple(entry for entry in party.ledger.entries() if entry.kind == "charge")


# --- policies ---------------------------------------------------------------------------------------------------------------


def opens(study: Study, rules: Policy) -> None:
    plan = MODEL.compile(study)
    party = parties_of(study, rules)["site001"]
    try:
        party.answer(encode(plan.hash, "open", 0, OpenRequest(study)))
    finally:
        assert charges(party) == ()


@pytest.mark.guarantee
def test_policies_refuse_unpinned_cards_and_trust_they_do_not_list() -> None:
    strict = Policy(Target(1.0, 1e-5, Unit.RECORD), approved=None)
    trusting = dataclasses.replace(strict, trust=frozenset({"trusted"}))
    for mode in ("distributed", "local"):
        opens(study_of(3, mode=mode), strict)
    opens(msgspec.structs.replace(study_of(3), trust={}), strict)
    opens(study_of(3, mode="trusted"), trusting)
    with pytest.raises(PolicyRefusal, match="trust aggregation = 'trusted'"):
        opens(study_of(3, mode="trusted"), strict)
    for mode in ("distributed", "trusted"):
        with pytest.raises(PolicyRefusal, match="site000, site001, site002 hold no public key"):
            opens(study_of(3, mode=mode, pinned=False), trusting)
        opens(study_of(3, mode=mode, pinned=False), dataclasses.replace(trusting, allow_in_process=True))
    with pytest.raises(PolicyRefusal, match="hold no public key"):
        opens(study_of(3, mode="local", pinned=False), strict)
    half = study_of(3)
    with pytest.raises(UsageError, match="'site002' holds no public key, and others do"):
        msgspec.structs.replace(half, parties=(*half.parties[:2], msgspec.structs.replace(half.parties[2], key="")))
    for role, value in ((AGGREGATION, "elsewhere"), ("predictions", "distributed")):
        with pytest.raises(UnpooledError, match=f"has no role {role}|aggregation is one of"):
            opens(msgspec.structs.replace(study_of(3), trust={role: value}), strict)


# --- a coordinator that cheats ------------------------------------------------------------------------------------------------


class Scene:
    """A study that ran up to a step, and what its coordinator holds in his hands then."""

    def __init__(
        self, stop: str = "moments-total", n: int = 5, tolerate: int = 1, mode: str = "distributed", **rest
    ) -> None:
        self.study = study_of(n, tolerate=tolerate, mode=mode, **rest)
        self.plan = MODEL.compile(self.study)
        self.people = parties_of(self.study)
        self.wire = Wire(self.people, stop=stop)
        with pytest.raises(Stopped) as caught:
            drive(MODEL, self.plan, self.wire)
        self.asks = [ask for ask, _ in caught.value.batch]

    def member(self, name: str) -> Member:
        reply = self.ask(name, "keys", Nothing())
        return Member(name, reply.agreement.value, reply.identity.value, reply.signature.value)

    def ask(self, name: str, step: str, payload: object, index: int = 0):
        reply = self.people[name].answer(encode(self.plan.hash, step, index, payload))
        return open_body(open_envelope(reply), find_step(MODEL, step).reply)

    def refuses(
        self,
        name: str,
        step: str,
        payload: object,
        match: str | None = None,
        index: int = 0,
        error=(ProtocolError, PlanMismatch),
    ):
        before = [party.ledger.entries() for party in self.people.values()]
        with pytest.raises(error, match=match):
            self.ask(name, step, payload, index)
        assert [party.ledger.entries() for party in self.people.values()] == before


def replaced(items: tuple, at: int, item: object) -> tuple:
    return (*items[:at], item, *items[at + 1 :])


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


@pytest.fixture
def genuine(scene: Scene) -> TotalRequest:
    """The request that node site000 would answer: every test changes one thing about it."""
    assert scene.asks[0].to == "site000"
    return scene.asks[0].payload


@pytest.mark.guarantee
def test_shares_that_are_malformed_or_of_another_place_are_refused(scene: Scene, genuine: TotalRequest) -> None:
    def with_share(at: int, sealed: Sealed) -> TotalRequest:
        return msgspec.structs.replace(genuine, sealed=replaced(genuine.sealed, at, sealed))

    share, other_node = genuine.sealed[2], scene.asks[1].payload.sealed[2]
    text = share.ciphertext
    broken = [
        Sealed(share.node, b"", share.salt),
        Sealed(share.node, text[:-1], share.salt),
        Sealed(share.node, text + b"\0", share.salt),
        Sealed(share.node, bytes([text[0] ^ 1]) + text[1:], share.salt),
        Sealed(share.node, text, b""),
        Sealed(share.node, text, share.salt[::-1]),
        other_node,  # meant for the other node
        genuine.sealed[1],  # of another party, a second time
    ]
    for one in broken:
        scene.refuses("site000", "moments-total", with_share(2, one), "altered, or was meant for another place")
    swapped = replaced(replaced(genuine.sealed, 1, genuine.sealed[2]), 2, genuine.sealed[1])
    for sealed, words in (
        (swapped, "meant for another place"),
        (genuine.sealed[:-1], "one sealed fragment of each"),
        ((*genuine.sealed, genuine.sealed[0]), "one sealed fragment of each"),
        ((), "one sealed fragment of each"),
    ):
        scene.refuses("site000", "moments-total", msgspec.structs.replace(genuine, sealed=sealed), words)


@pytest.mark.guarantee
def test_shares_of_a_wrong_length_by_a_dishonest_party_are_refused(scene: Scene, genuine: TotalRequest) -> None:
    liar = scene.people["site002"].identity
    purpose = (b"moments", bytes(8), b"site002", b"site000")
    plan = scene.plan.hash.encode()
    for length in (0, 31, 33, 40, 64):
        salt, text = secure_sum.seal(
            partial(liar.shared_key, plan), genuine.nodes[0].agreement, purpose, bytes(length), bytes(32)
        )
        sealed = replaced(genuine.sealed, 2, Sealed("site000", text, salt))
        scene.refuses("site000", "moments-total", msgspec.structs.replace(genuine, sealed=sealed), "not a seed of 32 bytes")


@pytest.mark.guarantee
def test_signatures_and_keys_that_are_not_the_pinned_ones_are_refused(scene: Scene, genuine: TotalRequest) -> None:
    change = msgspec.structs.replace
    stranger = Identity(bytes(32))
    plan = scene.plan
    victim = genuine.participants[2]
    key = stranger.agreement_key(plan.hash.encode())
    parts = secure_sum.key_parts(plan, victim.name, key)
    foreign = [
        change(victim, agreement=key),
        change(victim, signature=victim.signature[::-1]),
        change(victim, signature=""),
        Member(victim.name, key, stranger.public, stranger.sign(*parts)),  # an identity of his own
        Member(victim.name, key, victim.identity, stranger.sign(*parts)),
        change(genuine.participants[3], name=victim.name),  # another party's key under this name
    ]
    for member in foreign:
        request = change(genuine, participants=replaced(genuine.participants, 2, member))
        scene.refuses("site000", "moments-total", request, "signature that does not belong")
    names = tuple(m.name for m in genuine.participants)
    forged = stranger.sign(*_set_parts(plan, names))
    for signatures, words in (
        (replaced(genuine.signatures, 1, forged), "does not belong"),
        (replaced(genuine.signatures, 1, genuine.signatures[0]), "does not belong"),
        (genuine.signatures[::-1], "does not belong"),
        (genuine.signatures[:1], "signature of each of its nodes"),
        ((), "signature of each of its nodes"),
        ((*genuine.signatures, forged), "signature of each of its nodes"),
    ):
        scene.refuses("site000", "moments-total", change(genuine, signatures=signatures), words)
    # The coordinator signs in the place of a node and says that this is the node's identity.
    request = change(
        genuine,
        signatures=replaced(genuine.signatures, 1, forged),
        nodes=replaced(genuine.nodes, 1, change(genuine.nodes[1], identity=stranger.public)),
    )
    scene.refuses("site000", "moments-total", request, "does not belong")


def _set_parts(plan: Plan, names: tuple[str, ...], index: int = 0) -> tuple[bytes, ...]:
    return b"participants", plan.hash.encode(), b"moments", index.to_bytes(8, "big"), *(name.encode() for name in names)


@pytest.mark.guarantee
def test_another_set_of_participants_than_the_signed_one_is_refused(scene: Scene, genuine: TotalRequest) -> None:
    change = msgspec.structs.replace
    for keep, words in (
        ((0, 1, 2, 3), "does not belong"),  # one fewer: allowed in itself, not signed
        ((1, 2, 3, 4), "does not belong"),
        ((0, 1, 2), "3 participants where at least 4 are needed"),
        ((), "0 participants"),
        ((1, 0, 2, 3, 4), "in the study's order"),
        ((0, 1, 2, 3, 4, 4), "each once"),
        ((0, 0, 1, 2, 3), "each once"),
    ):
        request = change(
            genuine,
            participants=tuple(genuine.participants[k] for k in keep),
            sealed=tuple(genuine.sealed[k] for k in keep),
        )
        scene.refuses("site000", "moments-total", request, words)
    nobody = change(genuine.participants[4], name="nobody")
    scene.refuses(
        "site000",
        "moments-total",
        change(genuine, participants=replaced(genuine.participants, 4, nobody)),
        "parties of the study",
    )


@pytest.mark.guarantee
def test_other_nodes_than_the_plans_are_refused(scene: Scene, genuine: TotalRequest) -> None:
    change = msgspec.structs.replace
    two = scene.member("site002")
    for nodes, signatures, words in (
        (genuine.nodes[::-1], genuine.signatures[::-1], "in this order"),
        (genuine.nodes[:1], genuine.signatures[:1], "has 2 of the nodes"),
        ((*genuine.nodes, two), (*genuine.signatures, ""), "has 2 of the nodes"),
        ((genuine.nodes[0], genuine.nodes[0]), genuine.signatures, "in this order"),
        ((genuine.nodes[1], two), genuine.signatures, "this party among them"),
        ((genuine.nodes[0], change(two, name="nobody")), genuine.signatures, "in this order"),
        ((), (), "has 2 of the nodes"),
    ):
        scene.refuses("site000", "moments-total", change(genuine, nodes=nodes, signatures=signatures), words)
        scene.refuses("site003", "moments-total", change(genuine, nodes=nodes, signatures=signatures), words)
    fresh = Scene("moments-fragment")
    asked = fresh.asks[0].payload
    for nodes in (asked.nodes[::-1], asked.nodes[:1], (*asked.nodes, fresh.member("site002")), ()):
        fresh.refuses("site000", "moments-fragment", FragmentRequest(nodes), "in this order")
    stranger = Identity(bytes(32))
    key = stranger.agreement_key(fresh.plan.hash.encode())
    own = Member("site001", key, stranger.public, stranger.sign(*secure_sum.key_parts(fresh.plan, "site001", key)))
    fresh.refuses("site000", "moments-fragment", FragmentRequest((asked.nodes[0], own)), "does not belong")
    fresh.ask("site000", "moments-fragment", asked)
    fresh.refuses(
        "site000", "moments-fragment", FragmentRequest((asked.nodes[0], fresh.member("site002"))), error=ReleaseConflict
    )


@pytest.mark.guarantee
def test_a_party_that_is_not_a_node_adds_nothing_up() -> None:
    scene = Scene(parameters={"nodes": ["site001", "site003"]})
    request = scene.asks[0].payload
    names = tuple(m.name for m in request.participants)
    for name in ("site000", "site002", "site004"):
        scene.refuses(name, "moments-agree", AgreeRequest(names), "not a node")
        scene.refuses(name, "moments-total", request, "not a node")


def test_one_release_has_one_set_of_participants(scene: Scene, genuine: TotalRequest) -> None:
    """All nodes have signed the whole set: neither another signature nor another partial sum is given (Theorem B.2)."""
    names = tuple(m.name for m in genuine.participants)
    for k in range(5):
        fewer = AgreeRequest(names[:k] + names[k + 1 :])
        for node in ("site000", "site001"):
            scene.refuses(node, "moments-agree", fewer, "to another request", error=ReleaseConflict)
    for participants in (names[:3], (*names, "nobody"), names[::-1]):
        scene.refuses("site002", "moments-agree", AgreeRequest(participants))
    fresh = Scene()
    first = [fresh.ask(ask.to, ask.step, ask.payload).part.values for ask in fresh.asks]
    again = [fresh.ask(ask.to, ask.step, ask.payload).part.values for ask in fresh.asks]
    assert first == again  # the same request has the same answer
    other = msgspec.structs.replace(fresh.asks[0].payload, settings=(1.0,))
    fresh.refuses("site000", "moments-total", other, "answered before", error=ReleaseConflict)


def test_without_that_rule_two_sums_differ_by_one_partys_vector(monkeypatch) -> None:
    """The control: nodes that forget what they signed open a party's vector, with one share of noise (Theorem B.2)."""
    notes = Notebook(monkeypatch)
    scene = Scene(n=4)
    monkeypatch.setattr(Ledger, "reply", lambda *_, **__: None)
    monkeypatch.setattr(Ledger, "commit", lambda *_, **__: None)
    opened = []
    for keep in ((0, 1, 2, 3), (0, 1, 2)):
        names = tuple(f"site00{k}" for k in keep)
        signatures = tuple(scene.ask(a.to, "moments-agree", AgreeRequest(names)).signature.value for a in scene.asks)
        partials = []
        for ask in scene.asks:
            p = ask.payload
            request = TotalRequest(
                tuple(p.participants[k] for k in keep), tuple(p.sealed[k] for k in keep), p.nodes, signatures
            )
            partials.append(scene.ask(ask.to, "moments-total", request).part.values.numpy())
        opened.append(secure_sum.opened(partials))
    assert np.array_equal(opened[0] - opened[1], notes.vectors[3])


@pytest.mark.guarantee
def test_what_belongs_to_another_index_or_plan_is_refused(scene: Scene, genuine: TotalRequest) -> None:
    names = tuple(m.name for m in genuine.participants)
    scene.refuses("site000", "moments-total", genuine, "one more", index=1)
    scene.refuses("site000", "moments-agree", AgreeRequest(names), "one more", index=1)
    share = Scene("moments-fragment")
    asked = share.asks[0].payload
    for index in (1, 2**40):
        share.refuses("site000", "moments-fragment", asked, "one more", index=index)
    # A second run of the same question: nothing of the first fits into it, not even with signatures of its own.
    second = Scene(run=2)
    there = second.asks[0].payload
    assert second.plan.hash != scene.plan.hash
    second.refuses("site000", "moments-total", genuine, "does not belong")
    mixed = msgspec.structs.replace(there, participants=replaced(there.participants, 2, genuine.participants[2]))
    second.refuses("site000", "moments-total", mixed, "does not belong")
    replayed = msgspec.structs.replace(there, sealed=replaced(there.sealed, 2, genuine.sealed[2]))
    second.refuses("site000", "moments-total", replayed, "meant for another place")


@pytest.mark.guarantee
def test_a_total_of_another_name_is_refused() -> None:
    """Shares of the deviations are not shares of the moments, though plan, parties and index are the same."""
    scene = Scene("moments-total", parameters={"projection": 0.3, "multiple": 2.0})
    ask = scene.asks[0]
    names = tuple(m.name for m in ask.payload.participants)
    for step in ("deviations-total", "deviations-agree"):
        payload = ask.payload if step.endswith("total") else AgreeRequest(names[1:])
        scene.refuses("site000", step, payload, error=UnpooledError)
    other = next(r for who, step, r in scene.wire.seen if who == "site002" and step == "deviations-fragment")
    request = msgspec.structs.replace(ask.payload, sealed=replaced(ask.payload.sealed, 2, other.fragments[0]))
    scene.refuses("site000", "moments-total", request, "meant for another place")


@pytest.mark.guarantee
def test_steps_of_one_mode_are_refused_under_the_plan_of_another() -> None:
    members = {}
    for mode, n in ((Mode.DISTRIBUTED, 4), (Mode.TRUSTED, 4), (Mode.LOCAL, 4), (Mode.LOCAL, 1)):
        first = {Mode.DISTRIBUTED: "moments-fragment", Mode.TRUSTED: "moments-fragment", Mode.LOCAL: "moments-local"}[mode]
        scene = Scene(first, n=n, tolerate=0, mode=mode)
        names = tuple(names_of(n))
        members = {name: scene.member(name) for name in names}
        everybody = tuple(members.values())
        payloads = {
            "fragment": FragmentRequest(everybody[:2] if mode is Mode.DISTRIBUTED else everybody[:1]),
            "agree": AgreeRequest(names),
            "total": TotalRequest(everybody, tuple(Sealed(name, b"", b"") for name in names), everybody[:2], ("", "")),
            "noisy": TotalRequest(everybody[1:], tuple(Sealed(name, b"", b"") for name in names[1:])),
            "local": LocalRequest(),
        }
        own = {Mode.DISTRIBUTED: {"fragment", "agree", "total"}, Mode.TRUSTED: {"fragment", "noisy"}, Mode.LOCAL: {"local"}}[
            mode
        ]
        for act, payload in payloads.items():
            for name in names:
                if act not in own or (mode is Mode.TRUSTED and (act == "noisy") != (name == "site000")):
                    scene.refuses(name, f"moments-{act}", payload)
                scene.refuses(name, f"deviations-{act}", payload, "has no total 'deviations'")


@pytest.mark.guarantee
def test_a_trusted_aggregator_refuses_other_participants() -> None:
    scene = Scene("moments-noisy", n=5, tolerate=1, mode="trusted")
    (ask,) = scene.asks
    genuine = ask.payload
    change = msgspec.structs.replace
    assert [m.name for m in genuine.participants] == names_of(5)[1:]

    def subset(keep: tuple[int, ...]) -> TotalRequest:
        return change(
            genuine, participants=tuple(genuine.participants[k] for k in keep), sealed=tuple(genuine.sealed[k] for k in keep)
        )

    own = scene.member("site000")
    for request, words in (
        (subset((0, 1)), "3 participants where at least 4"),
        (subset((0, 1, 2, 2)), "named twice"),
        (subset((1, 0, 2, 3)), "meant for another place"),
        (change(genuine, participants=(own, *genuine.participants[1:])), "no trusted aggregator here"),
        (change(genuine, sealed=genuine.sealed[::-1]), "meant for another place"),
        (change(genuine, sealed=genuine.sealed[1:]), "one sealed fragment of each"),
        (change(genuine, settings=(1.0, 2.0)), "projection bounds belong"),
    ):
        if words == "meant for another place" and request.sealed != genuine.sealed[::-1]:
            continue  # order is the coordinator's own affair here: the sum does not depend on it
        scene.refuses("site000", "moments-noisy", request, words)
    scene.ask("site000", "moments-noisy", genuine)
    scene.refuses("site000", "moments-noisy", subset((0, 1, 2)), error=ReleaseConflict)
    assert len(charges(scene.people["site000"])) == 1


@pytest.mark.guarantee
def test_settings_that_do_not_belong_are_refused() -> None:
    scene = Scene("moments-fragment", n=3, tolerate=0, parameters={"projection": 0.3, "multiple": 2.0})
    asked = scene.asks[0].payload
    assert len(asked.settings) == 4
    for settings, error in (
        ((), PlanMismatch),
        (asked.settings[:2], UsageError),
        ((*asked.settings, 1.0), UsageError),
        ((3.0, -1.0, -4.0, 4.0), UsageError),
        ((math.nan, 1.0, -4.0, 4.0), UsageError),
        ((-math.inf, 1.0, -4.0, 4.0), UsageError),
    ):
        scene.refuses("site000", "moments-fragment", FragmentRequest(asked.nodes, settings), error=error)
    early = Scene("deviations-fragment", n=3, tolerate=0, parameters={"projection": 0.3})
    early.refuses("site000", "deviations-fragment", FragmentRequest(early.asks[0].payload.nodes, (1.0,)), "has no settings")


@pytest.mark.parametrize(
    "settings", [(-1e300, 1e300, -5e-324, 5e-324), (2.0, 2.0000000000000004, -1e-300, 3.0), (-9e9, 0.0, 1.0, 2.0)]
)
def test_no_settings_move_a_statistic_out_of_its_range(settings: tuple[float, ...]) -> None:
    """Whatever a coordinator makes of the projection, coded values stay in [-1, 1] and so does the sensitivity."""
    study = study_of(3, parameters={"projection": 0.3})
    asked = design_of(study)
    for table in tables_of(study).values():
        try:
            statistic = asked.narrowed(settings).statistic(table)
        except UsageError:
            continue  # too narrow for a float
        assert np.abs(statistic).max() <= table.n_rows * asked.moments.per_row


def test_a_share_for_other_nodes_has_other_seeds_and_keys(monkeypatch) -> None:
    """A party whose ledger was rolled back answers twice. The same node must not get a seed once and what is left another time."""
    notes = Notebook(monkeypatch)
    scenes = [Scene("moments-fragment", n=4) for _ in range(2)]  # the same root keys and data, two empty ledgers
    shares = []
    for scene, nodes in zip(scenes, (("site001", "site002"), ("site002", "site003")), strict=True):
        request = FragmentRequest(tuple(scene.member(name) for name in nodes))
        shares.append(scene.ask("site000", "moments-fragment", request).fragments)
    assert np.array_equal(*notes.vectors)  # equal noise: a repeated answer costs nothing
    node, sender = scenes[0].people["site002"].identity, scenes[0].member("site000")
    place = (b"moments", bytes(8), b"site000", b"site002")
    total = np.zeros(notes.vectors[0].size, dtype=np.uint64)
    salts = set()
    for position, sealed in ((1, shares[0][1]), (0, shares[1][0])):
        salts.add(sealed.salt)
        plan = scenes[0].plan.hash.encode()
        share = secure_sum.unseal(partial(node.shared_key, plan), sender.agreement, place, sealed.salt, sealed.ciphertext)
        secure_sum.add_fragment(total, share, position, 2)
    assert len(salts) == 2  # two messages, so two keys: the nonce is constant
    assert not np.array_equal(total.view(np.int64), notes.vectors[0])


# --- a coordinator that tries everything --------------------------------------------------------------------------------------

ROUNDS = {"method": "refinement", "prior_precision": "estimate", "noise_precision": "estimate", "max_passes": 4}
STUDIES = {
    "distributed": {"n": 4, "tolerate": 1},
    "distributed, projected": {"n": 4, "tolerate": 1, "parameters": {"projection": 0.3, "multiple": 2.0}},
    "trusted": {"n": 4, "tolerate": 1, "mode": "trusted"},
    "local": {"n": 3, "mode": "local"},
    "alone": {"n": 1},
    "distributed, rounds": {"n": 4, "tolerate": 1, "parameters": ROUNDS},
    "local, rounds": {"n": 3, "mode": "local", "parameters": ROUNDS},
}


class Cheat:
    """Sends any step to anybody, in any order, with payloads made of whatever came back so far."""

    def __init__(self, study: Study, seed: int) -> None:
        self.study, self.plan, self.people = study, MODEL.compile(study), parties_of(study)
        self.rng = np.random.default_rng(seed)
        self.names = list(self.people)
        self.members: dict[str, Member] = {}
        self.sealed: dict[tuple[str, str], list[Sealed]] = {}
        self.node_lists: dict[tuple[str, str], tuple[Member, ...]] = {}
        self.signed: dict[tuple[str, str, tuple[str, ...]], str] = {}
        self.partials: dict[str, dict[str, list[np.ndarray]]] = {}
        self.released: list[tuple[str, Released]] = []
        self.refused = self.answered = 0
        self.count = design_of(study).aggregation.count
        # Two plans of attack per release, from which the random choices mostly come.
        self.plots = {
            name: [(self.some(self.count), self.set_of()) for _ in range(2)]
            for name in sorted({step.name.rsplit("-", 1)[0] for step in MODEL.steps})
        }
        for name in self.names:
            self.people[name].answer(encode(self.plan.hash, "open", 0, OpenRequest(study)))

    def some(self, count: int) -> list[str]:
        return sorted(self.rng.choice(self.names, min(count, len(self.names)), replace=False).tolist())

    def set_of(self) -> tuple[str, ...]:
        return tuple(self.some(len(self.names) - int(self.rng.integers(0, 2))))

    def settings(self, name: str) -> tuple[float, ...]:
        if name in {"descent", "spread", "residual"} and self.rng.random() < 0.9:
            clip = (float(self.rng.uniform(0.1, 4)),) if name == "residual" else ()
            return (0.1, 0.2, 0.5, 0.5, *self.rng.integers(0, 2, 2).astype(float).tolist(), *clip)
        if self.rng.random() < 0.8:
            projected = design_of(self.study).deviations is not None
            return (-1.0, 3.0, -4.0, 4.0) if projected else ()
        return tuple(self.rng.normal(size=int(self.rng.integers(0, 5))).tolist())

    def payload(self, to: str, name: str, act: str):  # noqa: PLR0911 - one return per step
        nodes, participants = self.plots[name][self.rng.integers(2)]
        if self.rng.random() < 0.1:
            nodes, participants = self.some(int(self.rng.integers(1, 4))), tuple(self.some(int(self.rng.integers(1, 5))))
        if any(node not in self.members for node in {*nodes, *participants}):
            return None
        settings = self.settings(name) if name not in {"deviations", "scales"} else ()
        if act == "fragment":
            return FragmentRequest(tuple(self.members[node] for node in nodes), settings)
        if act == "agree":
            return AgreeRequest(participants)
        if act == "local":
            return LocalRequest(settings)
        if act == "noisy":
            participants = tuple(p for p in participants if p != to)
        kept = [self.sealed.get((name, p), []) for p in participants]
        sealed = []
        for shares in kept:
            mine = [s for s in shares if s.node == to] or shares
            if not mine:
                return None
            sealed.append(mine[0] if self.rng.random() < 0.97 else mine[-1])
        asked = tuple(self.members[p] for p in participants)
        if act == "noisy":
            return TotalRequest(asked, tuple(sealed), settings=settings)
        signatures = tuple(self.signed.get((name, node, participants), "") for node in nodes)
        return TotalRequest(asked, tuple(sealed), tuple(self.members[node] for node in nodes), signatures)

    def turn(self) -> None:
        to = str(self.rng.choice(self.names))
        planned = [s for s in MODEL.steps if s.name == "keys" or s.name.rpartition("-")[0] in self.plan.design.totals]
        steps = planned if self.rng.random() < 0.9 else MODEL.steps
        step = steps[self.rng.integers(len(steps))].name
        name, _, act = step.partition("-")
        payload = Nothing() if step == "keys" else self.payload(to, name, act)
        if payload is None:
            return
        index = 0 if self.rng.random() < 0.95 else int(self.rng.integers(1, 3))
        try:
            blob = self.people[to].answer(encode(self.plan.hash, step, index, payload))
        except UnpooledError:
            self.refused += 1
            return
        self.answered += 1
        self.learn(to, name, act, index, payload, open_body(open_envelope(blob), find_step(MODEL, step).reply))

    def learn(self, to: str, name: str, act: str, index: int, payload, reply) -> None:
        if not act:
            self.members[to] = Member(to, reply.agreement.value, reply.identity.value, reply.signature.value)
        elif act == "fragment":
            assert index == 0
            self.sealed[name, to] = list(reply.fragments)
            assert [s.node for s in reply.fragments] == [n.name for n in payload.nodes]
        elif act == "agree" and index == 0:
            self.signed[name, to, payload.participants] = reply.signature.value
        elif act == "total":
            assert (index, reply.part.name) == (0, name)
            self.partials.setdefault(name, {}).setdefault(to, []).append(reply.part.values.numpy())
        elif act in {"noisy", "local"}:
            assert (index, reply.total.name) == (0, name)
            self.released.append((to, reply.total))


def sums_in_reach(cheat: Cheat, name: str, vectors: list[np.ndarray]) -> set[tuple[int, ...]]:
    """Which sets of noisy vectors add up to what some partial sums add up to."""
    partials = [p for found in cheat.partials.get(name, {}).values() for p in {p.tobytes(): p for p in found}.values()]
    found = set()
    subsets = [s for k in range(1, len(vectors) + 1) for s in itertools.combinations(range(len(vectors)), k)]
    table = {sum(vectors[k] for k in s).astype(np.uint64).tobytes(): s for s in subsets}
    for k in range(1, len(partials) + 1):
        for some in itertools.combinations(partials, k):
            total = np.zeros_like(some[0])
            for part in some:
                total = total + part
            if total.tobytes() in table:
                found.add(table[total.tobytes()])
    return found


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", STUDIES)
def test_nothing_but_planned_things_ever_comes_back(monkeypatch, kind: str) -> None:
    """Theorem B.2."""
    opened, released, refused, answered = 0, 0, 0, 0
    for seed in range(sized(30, 15)):
        study = study_of(**STUDIES[kind])
        with monkeypatch.context() as patch:
            notes = Notebook(patch)
            cheat = Cheat(study, seed)
            for _ in range(800):
                cheat.turn()
        released, refused, answered = released + len(cheat.released), refused + cheat.refused, answered + cheat.answered
        planned = {(r.party, r.name): r for r in cheat.plan.releases}
        for to, one in cheat.released:  # only what this party's plan releases, under its own mechanism
            assert isinstance(planned[to, one.name].mechanism, GaussianRelease)
        distinct = {(to, r.name, r.values.data) for to, r in cheat.released}
        assert len(distinct) == len({(to, name) for to, name, _ in distinct})
        for name, by_node in cheat.partials.items():
            assert all(len({p.tobytes() for p in parts}) == 1 for parts in by_node.values())
            size = planned["site000", name].size
            vectors = {v.tobytes(): v for v in notes.vectors if v.size == size}
            sums = sums_in_reach(cheat, name, list(vectors.values()))
            assert len(sums) <= 1
            assert all(len(s) >= len(study.parties) - 1 for s in sums)
            opened += len(sums)
        for name, party in cheat.people.items():
            spent = charges(party)
            assert len(spent) <= sum(r.count for r in cheat.plan.releases if r.party == name)
            assert party.ledger.composition(Unit.RECORD).epsilon(1e-5) <= 1.0
        if not isinstance(design_of(study).aggregation, Local) and kind.startswith("distributed"):
            assert not cheat.released
    assert refused > 300
    assert answered > 100
    if kind.startswith("distributed"):
        assert opened > 0  # the search is not asleep
    else:
        assert released > 0
        assert not cheat.partials


def test_a_colluding_node_can_split_the_sites_but_never_undercut_the_plan(monkeypatch) -> None:
    """With a key of its own a node signs any set. Honest parties and nodes act once, so each is in one opened sum at most."""
    notes = Notebook(monkeypatch)
    scene = Scene("moments-fragment", n=3, tolerate=1)
    rogue = scene.people["site002"].identity
    members = {name: scene.member(name) for name in names_of(3)}
    plan = scene.plan.hash.encode()
    for k, victim in enumerate(("site000", "site001")):
        nodes = (members[victim], members["site002"])
        theirs = scene.ask(victim, "moments-fragment", FragmentRequest(nodes)).fragments
        names = (victim, "site002")
        own = scene.ask(victim, "moments-agree", AgreeRequest(names)).signature.value
        purpose = (b"moments", bytes(8), b"site002", victim.encode())
        salt, text = secure_sum.seal(
            partial(rogue.shared_key, plan), members[victim].agreement, purpose, bytes(32), bytes(32)
        )
        signatures = (own, rogue.sign(*_set_parts(scene.plan, names)))
        request = TotalRequest(nodes, (theirs[0], Sealed(victim, text, salt)), nodes, signatures)
        own_part = scene.ask(victim, "moments-total", request).part.values.numpy().copy()
        own_part -= Stream(bytes(32)).words(0, own_part.size)  # the rogue's own share
        place = (b"moments", bytes(8), victim.encode(), b"site002")
        rest = secure_sum.unseal(
            partial(rogue.shared_key, plan), members[victim].agreement, place, theirs[1].salt, theirs[1].ciphertext
        )
        secure_sum.add_fragment(own_part, rest, 1, 2)
        # What it gets is one noisy vector with one share of noise, and here one share is what the plan counts on.
        assert np.array_equal(own_part.view(np.int64), notes.vectors[k])
        scene.refuses(victim, "moments-agree", AgreeRequest(tuple(names_of(3))), error=ReleaseConflict)
    mechanism = scene.plan.releases[0].mechanism
    assert mechanism.honest == 1


def test_an_exact_contribution_leaves_sealed_for_the_named_party_only() -> None:
    scene = Scene("moments-noisy", mode="trusted", n=4, tolerate=0, parameters={"nodes": ["site002"]})
    shares = [(who, reply.fragments) for who, step, reply in scene.wire.seen if step == "moments-fragment"]
    assert [who for who, _ in shares] == ["site000", "site001", "site003"]
    assert all([s.node for s in sealed] == ["site002"] for _, sealed in shares)
    statistics = {name: design_of(scene.study).layout.statistic(t) for name, t in tables_of(scene.study).items()}
    for who, (sealed,) in shares:
        raw = statistics[who].astype("<u8").tobytes()
        assert not any(raw[k : k + 8] in sealed.ciphertext for k in range(0, len(raw), 8))
        key = scene.member(who).agreement
        purpose = (b"moments", bytes(8), who.encode(), b"site002")
        plan = scene.plan.hash.encode()
        identity = scene.people["site002"].identity
        assert secure_sum.unseal(partial(identity.shared_key, plan), key, purpose, sealed.salt, sealed.ciphertext) == raw
        with pytest.raises(ProtocolError):
            secure_sum.unseal(
                partial(scene.people["site001"].identity.shared_key, plan), key, purpose, sealed.salt, sealed.ciphertext
            )
