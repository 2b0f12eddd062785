"""More than two classes: fits without noise against scikit-learn's, stacks of them, private ranking, and what all of it costs."""

from __future__ import annotations

import itertools
import math

import msgspec
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

import unpooled
from unpooled import Bounds, PrivateLogisticRegression, PrivateStackingClassifier
from unpooled.errors import DataError, PlanMismatch, ProtocolError, UsageError
from unpooled.kernels.logistic import softmax_minimum
from unpooled.models import load
from unpooled.models.stacking.declared import Outcomes, meta_rows
from unpooled.models.stacking.fit import StackingResult
from unpooled.models.stacking.low_level import default_ranks, longest, release_of, score_of
from unpooled.models.stacking.plan import Claim, RankedRequest, Score, Weights, design_of, ranks_of
from unpooled.privacy.accounting import Composition
from unpooled.privacy.bounds import Column
from unpooled.privacy.classes import places
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import GaussianObjective, ObjectivePerturbation
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Plan, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Scope, Unit
from unpooled.protocol.context import signed_parts
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.messages import Array, Nothing, Signed, encode, open_envelope
from unpooled.protocol.party import Party

RNG = np.random.default_rng(4)
X = RNG.uniform(-1, 1, (900, 6))
WORDS = np.array(["ill", "tired", "well"])
Y = WORDS[(X @ RNG.normal(size=(6, 3)) * 3 + RNG.gumbel(size=(900, 3))).argmax(axis=1)]
OPTIONS = {"bounds": (-1, 1), "classes": list(WORDS)}
GROUPS = {"a": [0, 1], "b": [2, 3, 4], "c": [5]}
WAYS = ("multinomial", "one-vs-rest")


# --- the kernel ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "d", "classes", "penalty"), [(40, 3, 3, 0.5), (200, 5, 4, 1e-4), (60, 1, 2, 2.0), (30, 4, 5, 1e3)]
)
def test_the_softmax_minimum_is_the_minimum(n: int, d: int, classes: int, penalty: float) -> None:
    rng = np.random.default_rng(n)
    rows, labels = rng.uniform(-1, 1, (n, d)), rng.integers(0, classes, n)
    linear, centre = rng.normal(size=(classes, d)), rng.normal(size=(classes, d))

    def objective(flat: np.ndarray) -> float:
        w = flat.reshape(classes, d)
        losses = -log_softmax(rows @ w.T, axis=1)[np.arange(n), labels]
        return float(losses.sum() + (linear * w).sum() + penalty / 2 * ((w - centre) ** 2).sum())

    found = softmax_minimum(rows, labels, classes, penalty, linear=linear, centre=centre)
    p = np.exp(log_softmax(rows @ found.T, axis=1))
    p[np.arange(n), labels] -= 1
    gradient = p.T @ rows + linear + penalty * (found - centre)
    assert np.linalg.norm(gradient) <= 1e-9 * n
    assert objective(found.ravel()) <= minimize(objective, centre.ravel(), method="BFGS").fun + 1e-9
    with pytest.raises(ValueError, match="penalty"):
        softmax_minimum(rows, labels, classes, 0.0)


# --- without noise: scikit-learn's ---------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize("way", WAYS)
def test_without_noise_it_is_scikit_learns(way: str) -> None:
    model = PrivateLogisticRegression(epsilon=math.inf, penalty=1e-3, multi_class=way, fit_intercept=False, **OPTIONS).fit(
        X, Y
    )
    scaled = X * model._blocks[0].scale
    weights = np.array(model.released_["all"]).reshape(3, -1)
    shared = {"C": 1 / (900 * 1e-3), "fit_intercept": False, "tol": 1e-13, "max_iter": 10_000, "solver": "newton-cholesky"}
    if way == "multinomial":
        wanted = LogisticRegression(**shared).fit(scaled, Y)
        assert weights == pytest.approx(wanted.coef_, abs=1e-6)
        assert model.predict_proba(X) == pytest.approx(wanted.predict_proba(scaled), abs=1e-6)
    else:
        each = [LogisticRegression(**shared).fit(scaled, word == Y) for word in WORDS]
        assert weights == pytest.approx(np.vstack([one.coef_ for one in each]), abs=1e-6)
        alone = np.column_stack([one.predict_proba(scaled)[:, 1] for one in each])
        assert model.predict_proba(X) == pytest.approx(alone / alone.sum(axis=1, keepdims=True), abs=1e-6)
    assert model.coef_.shape == (3, 6)
    assert model.intercept_.tolist() == [0.0, 0.0, 0.0]
    assert model.decision_function(X) == pytest.approx(X @ model.coef_.T)


@pytest.mark.guarantee
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("delta", [None, 1e-5])
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_fits_of_several_classes_learn_and_cost_what_was_asked(way: str, delta: float | None, adjacency: str) -> None:
    model = PrivateLogisticRegression(
        epsilon=5.0, delta=delta, multi_class=way, adjacency=adjacency, method="perturbation", random_state=0, **OPTIONS
    ).fit(X, Y)
    assert 4.99 < model.plan_.epsilon(delta or 0.0) <= 5.0
    assert model.plan_.epsilon(delta or 0.0, Unit.ATTRIBUTE) >= 4.9
    assert model.score(X, Y) > (Y[:, None] == WORDS).mean(axis=0).max() + 0.05
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1.0)
    assert set(model.predict(X)) <= set(WORDS)
    mechanism = model.plan_.releases[0].mechanism
    assert mechanism.fits == (3 if way == "one-vs-rest" else 1)
    assert (
        model.plan_.hash
        == PrivateLogisticRegression(
            epsilon=5.0, delta=delta, multi_class=way, adjacency=adjacency, method="perturbation", random_state=0, **OPTIONS
        )
        .plan(900, 6)
        .hash
    )


def test_unit_rows_and_saved_files_keep_their_classes(tmp_path) -> None:
    model = PrivateLogisticRegression(
        epsilon=8.0, rows="unit", random_state=0, bounds=Bounds(norm=2.0), classes=list(WORDS)
    ).fit(X, Y)
    assert model.decision_function(X[:4] / 9) == pytest.approx(model.decision_function(X[:4]))
    model.save(tmp_path / "m")
    again = unpooled.load(tmp_path / "m")
    assert (again.predict(X) == model.predict(X)).all()
    assert again.predict_proba(X) == pytest.approx(model.predict_proba(X))


@pytest.mark.guarantee
def test_labels_that_are_no_class_and_classes_that_are_none_are_refused() -> None:
    with pytest.raises(DataError, match="none of the declared classes"):
        PrivateLogisticRegression(bounds=(-1, 1), classes=["ill", "tired", "other"]).fit(X, Y)
    with pytest.raises(UsageError, match="multi_class is"):
        PrivateLogisticRegression(multi_class="ovr", **OPTIONS).fit(X, Y)
    with pytest.raises(UsageError, match="the paper has two classes"):
        PrivateStackingClassifier(2, calibration="published", **OPTIONS).plan(900, 6)
    with pytest.raises(UsageError, match="two labels or more"):
        load("stacking").compile(asked(parameters={"classes": ["a"]}))
    with pytest.raises(DataError, match="3 declared classes"):
        places(np.array(["a", "d"], dtype=object), ["a", "b", "c"], "y")
    assert places(np.array([2.0, 0.0]), [0, 1, 2], "y").tolist() == [2, 0]


# --- stacks --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("combiner", ["auto", "probability", "majority", "weighted-majority", "log-odds"])
@pytest.mark.parametrize("split", ["features", "samples"])
def test_stacks_combine_as_they_say(split: str, combiner: str) -> None:
    model = PrivateStackingClassifier(
        3,
        split=split,
        epsilon=math.inf,
        combiner=combiner,
        rates=[0.3, 0.3, 0.4],
        importance=[4, 1, 1, 1, 4, 1] if split == "features" else None,
        **OPTIONS,
    ).fit(X, Y)
    low = np.stack(model._low(X), axis=1)
    assert low.shape == (900, 3, 3)
    assert low.sum(axis=2) == pytest.approx(1.0)
    shares = np.array([m.share for m in model.models_[::3]])
    meant = {"auto": "log-odds" if split == "features" else "probability"}.get(combiner, combiner)
    votes = np.eye(3)[low.argmax(axis=2)]
    wanted = {
        "probability": np.log(np.einsum("ikc,k->ic", low, shares / shares.sum())),
        "majority": votes.mean(axis=1),
        "weighted-majority": np.einsum("ikc,k->ic", votes, shares),
        "log-odds": np.log(low).mean(axis=1),
    }[meant]
    got = model.decision_function(X)
    if "majority" in meant:
        got = model.predict_proba(X)
        wanted = wanted / wanted.sum(axis=1, keepdims=True)
    assert got == pytest.approx(wanted, abs=1e-9)
    assert model.score(X, Y) > 0.5


@pytest.mark.guarantee
@pytest.mark.parametrize("meta", ["trusted", "perturbed"])
def test_a_learned_high_level_knows_all_classes(meta: str) -> None:
    model = PrivateStackingClassifier(GROUPS, epsilon=60.0, delta=1e-5, meta=meta, random_state=0, **OPTIONS).fit(X, Y)
    assert model.high_.size == 3 * (3 * 3 + 1)
    assert model.plan_.epsilon(1e-5) <= 60.0
    assert model.score(X, Y) > 0.5
    assert [term.group for term in load("stacking").reading.terms(model.plan_, result_of(model))][-1] == "high level, well"


def result_of(model: PrivateStackingClassifier) -> StackingResult:
    return StackingResult(model.models_, tuple(model.high_.tolist()))


def test_rows_of_the_high_level_are_never_longer_than_one() -> None:
    """Theorem S.5."""
    wild = [RNG.uniform(-5, 5, (50, 4)), np.full((50, 4), 1.0), np.full((50, 4), np.nan)]
    for intercept in (True, False):
        assert (np.linalg.norm(meta_rows(wild, intercept=intercept), axis=1) <= 1.0).all()
        certain = meta_rows([np.eye(4)[RNG.integers(0, 4, 50)]] * 3, intercept=intercept)
        assert np.linalg.norm(certain, axis=1) == pytest.approx(1.0)


def test_predictions_of_several_classes_move_by_no_more_than_priced() -> None:
    """Two laws on the grid, floored: sqrt 2 of it at most, reached by two certain ones (Theorem S.5)."""
    plan = PrivateStackingClassifier(GROUPS, epsilon=5.0, delta=1e-5, meta="perturbed", **OPTIONS).plan(900, 6)
    release = next(r for r in plan.releases if r.name == "predictions")
    reach = dict(release.mechanism.reach)[Unit.RECORD]
    grid, ends = 1 << 20, np.eye(3)
    laws = [*ends, *RNG.dirichlet([0.2] * 3, 200), np.full(3, 1 / 3)]
    moved = [np.linalg.norm(np.trunc(p * grid) - np.trunc(q * grid)) for p, q in itertools.combinations(laws, 2)]
    assert max(moved) == pytest.approx(reach.distance)
    assert max(moved) <= reach.distance * (1 + 1e-12)
    assert reach.coordinates == 3


# --- private ranking -----------------------------------------------------------------------------------------------------------------

CARDS = tuple(Card(name, 40, tuple(Column(f"x{j}", -1.0, 1.0) for j in own), ("y",)) for name, own in GROUPS.items())
TABLES = {
    name: Table({**{f"x{j}": X[:40, j] for j in own}, "y": np.where(X[:40, 0] > 0, "1", "-1").astype(object)})
    for name, own in GROUPS.items()
}
RANKED = {"ranks": [3.0, 2.0, 1.0]}
MODEL = load("stacking")


def asked(parameters: dict, **changes) -> Study:
    fields = {"model": "stacking", "parties": CARDS, "epsilon": 2.0, "delta": 1e-5, "simulation_seed": 1}
    return Study(**{**fields, "parameters": parameters, **changes}, derived=())


def opened(study: Study) -> tuple[Plan, dict[str, Party]]:
    plan, made = MODEL.compile(study), {}
    for card in study.parties:
        ledger = Ledger.in_memory()
        party = Party(card.name, TABLES[card.name], card, ledger, KeySource(ledger.root_key), Policy.in_process(), load)
        party.answer(encode(plan.hash, "open", 0, OpenRequest(study)))
        made[card.name] = party
    return plan, made


def read(reply: bytes, kind):
    return msgspec.msgpack.decode(open_envelope(reply).body, type=kind)


def claims_of(plan: Plan, people: dict[str, Party]) -> tuple[Claim, ...]:
    found = []
    for name, party in people.items():
        reply = read(party.answer(encode(plan.hash, "score", 0, Nothing())), Score)
        found.append(Claim(name, reply.score, reply.signed))
    return tuple(found)


@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("unit", ["record", "attribute"])
@pytest.mark.parametrize("share", [0.0, 0.6])
def test_every_order_of_ranks_costs_what_was_asked(noise: str, adjacency: str, unit: str, share: float) -> None:
    """Theorem S.13, with and without counts of classes along the scores (Theorem S.16)."""
    parameters = RANKED | {"noise": noise, "probabilities_share": share}
    plan = MODEL.compile(asked(parameters, adjacency=adjacency, unit=unit))
    # A value costs less than a row where it is replaced: what is asked for is an upper bound then.
    assert (1.99 if unit == "record" else 1.0) < plan.epsilon(1e-5) <= 2.0
    fits = [[plan.release(name, release_of(rank)).event(Unit.RECORD) for name in GROUPS] for rank in range(3)]
    assert all(event == of_rank[0] for of_rank in fits for event in of_rank)
    scores = [plan.release(name, "score").event(Unit.RECORD) for name in GROUPS]
    counts = [r.event(Unit.RECORD) for r in plan.releases if r.name in {"base rate", "probabilities"}]
    assert len(counts) == (4 if share else 0)
    everybody = Composition([*scores, *counts, *(of_rank[0] for of_rank in fits)])
    assert plan.epsilon(1e-5, "record") == pytest.approx(everybody.epsilon(1e-5), rel=1e-9)
    # One party's value: its score, and the dearest of its fits; for labels everybody's.
    names = ("score", release_of(0), *["probabilities"] * bool(share))
    (one,) = [c for c in plan.cost(Unit.ATTRIBUTE, "c", Scope.PARTY).compositions if len(c.events) == len(names)][:1]
    assert set(one.events) == {plan.release("c", n).event(Unit.ATTRIBUTE) for n in names}


def test_shares_are_given_out_by_rank_and_every_party_works_out_its_own() -> None:
    plan, people = opened(asked(RANKED | {"noise": "gaussian"}, epsilon=50.0))
    claims = claims_of(plan, people)
    ranks = ranks_of(claims)
    assert sorted(ranks.values()) == [0, 1, 2]
    assert ranks["a"] == 0  # the response is the sign of its first column
    for name, party in people.items():
        before = len(party.ledger.entries())
        reply = read(party.answer(encode(plan.hash, "ranked block", 0, RankedRequest(claims))), Weights)
        assert reply.weights.name == release_of(ranks[name])
        assert isinstance(plan.release(name, reply.weights.name).mechanism, GaussianObjective)
        assert len(party.ledger.entries()) == before + 1


@pytest.mark.guarantee
def test_claims_that_are_forged_reordered_or_incomplete_are_refused_and_nothing_is_debited() -> None:
    plan, people = opened(asked(RANKED))
    claims = claims_of(plan, people)
    party = people["b"]
    own = claims[1]
    higher = Array.of(own.score.values.numpy() + 1_000_000)
    wrong = [
        (claims[::-1], PlanMismatch),
        (claims[:2], PlanMismatch),
        ((), PlanMismatch),
        (
            (claims[0], Claim("b", type(own.score)(own.score.name, own.score.index, higher), own.signed), claims[2]),
            ProtocolError,
        ),
        ((claims[0], Claim("b", claims[0].score, claims[0].signed), claims[2]), ProtocolError),
        ((Claim("a", own.score, own.signed), *claims[1:]), ProtocolError),
    ]
    before = party.ledger.entries()
    for forged, error in wrong:
        with pytest.raises((error, ProtocolError)):
            party.answer(encode(plan.hash, "ranked block", 0, RankedRequest(tuple(forged))))
        assert party.ledger.entries() == before
    # A party that signs something else than one whole number, as its own release.
    odd = type(own.score)(own.score.name, 0, Array.of(np.zeros(2, dtype=np.int64)))
    signer = people["a"].identity
    signature = signer.sign(*signed_parts(plan, "a", "score", 0, (odd,)))
    with pytest.raises(ProtocolError, match="one whole number"):
        party.answer(
            encode(
                plan.hash, "ranked block", 0, RankedRequest((Claim("a", odd, Signed(signer.public, signature)), *claims[1:]))
            )
        )
    assert party.ledger.entries() == before
    declared, others = opened(asked({}))
    with pytest.raises(UsageError, match="no release"):
        others["a"].answer(encode(declared.hash, "score", 0, Nothing()))
    with pytest.raises(PlanMismatch, match="where the plan says so"):
        others["a"].answer(encode(declared.hash, "ranked block", 0, RankedRequest(claims)))


@pytest.mark.parametrize("rates", [(0.5, 0.5), (0.9, 0.1), (0.2, 0.3, 0.5)])
def test_no_row_moves_a_score_by_more_than_priced(rates: tuple[float, ...]) -> None:
    """All pairs of rows at corners of the ball and inside, all labels: with L for half of it some do (Theorem S.13)."""
    grid, worst = 1 << 16, {"replace": 0.0, "zero-out": 0.0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        rows, labels = rng.normal(size=(n, d)), rng.integers(0, len(rates), n)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        base = score_of(rows, labels, rates)[0]
        rest = score_of(np.vstack([np.zeros((1, d)), rows[1:]]), labels, rates)[0]
        worst["zero-out"] = max(worst["zero-out"], abs(base - rest))
        for new in (-rows[0], rows[0], rows[0] / 2, np.zeros(d)):
            for label in range(len(rates)):
                other = score_of(np.vstack([new, rows[1:]]), np.append(label, labels[1:]), rates)[0]
                worst["replace"] = max(worst["replace"], abs(base - other))
    length = longest(rates) * grid
    assert length * 0.7 < worst["zero-out"] <= length + 1
    assert length < worst["replace"] <= 2 * length + 1


def test_a_ranking_that_cannot_be_is_refused() -> None:
    for parameters, words in (
        ({"ranks": [1.0, 2.0, 3.0]}, "no larger than the one before"),
        ({"ranks": [3.0, 1.0]}, "every rank"),
        ({"ranks": [3.0, 1.0, 0.0]}, "positive"),
        (RANKED | {"importance": {"a": 1.0}}, "in place of importance"),
        (RANKED | {"ranking_share": 1.0}, "ranking_share"),
    ):
        with pytest.raises(UsageError, match=words):
            design_of(asked(parameters))
    with pytest.raises(UsageError, match="needs a delta"):
        design_of(asked(RANKED, delta=0.0))
    with pytest.raises(UsageError, match="not in the paper"):
        PrivateStackingClassifier(
            GROUPS, bounds=(-1, 1), classes=(0, 1), delta=1e-5, importance="private", calibration="published"
        ).plan(90, 6)
    for options, words in (({"importance": "secret"}, "private"), ({"falling": [1.0]}, "falling goes with")):
        with pytest.raises(UsageError, match=words):
            PrivateStackingClassifier(GROUPS, bounds=(-1, 1), classes=(0, 1), delta=1e-5, **options).plan(90, 6)


@pytest.mark.guarantee
def test_privately_ranked_stacks_learn_are_saved_and_tell_their_shares(tmp_path) -> None:
    y = (X[:, 0] + X[:, 1] + 0.2 * RNG.normal(size=900) > 0).astype(int)
    model = PrivateStackingClassifier(
        GROUPS, epsilon=20.0, delta=1e-5, bounds=(-1, 1), classes=(0, 1), importance="private", random_state=0
    ).fit(X, y)
    shares = {m.party: m.share for m in model.models_}
    assert shares["a"] == pytest.approx(3 / 6)
    assert sorted(shares.values()) == pytest.approx(sorted(q / 6 for q in default_ranks(3)))
    assert model.score(X, y) > 0.8
    assert 19.9 < model.plan_.epsilon(1e-5) <= 20.0
    model.save(tmp_path / "m")
    assert (unpooled.load(tmp_path / "m").predict(X) == model.predict(X)).all()
    exact = PrivateStackingClassifier(GROUPS, epsilon=math.inf, bounds=(-1, 1), classes=(0, 1), importance="private").fit(
        X, y
    )
    assert {m.party: m.share for m in exact.models_}["a"] == pytest.approx(0.5)


def test_outcomes_of_two_classes_are_what_they_were() -> None:
    two = Outcomes()
    assert two.predictors == 1
    assert two.probabilities(np.array([[0.0], [3.0]]))[:, 1] == pytest.approx([0.5, 1 / (1 + math.exp(-3))])


@pytest.mark.guarantee
def test_a_party_that_fits_with_another_rank_is_refused_by_the_coordinator() -> None:
    plan, people = opened(asked(RANKED))
    claims = claims_of(plan, people)
    conversation = MODEL.coordinate(plan)
    next(conversation)
    conversation.send([Score(claim.score, claim.signed) for claim in claims])
    replies = [
        read(people[name].answer(encode(plan.hash, "ranked block", 0, RankedRequest(claims))), Weights) for name in GROUPS
    ]
    wrong = (ranks_of(claims)["a"] + 1) % 3
    other = msgspec.structs.replace(replies[0].weights, name=release_of(wrong))
    with pytest.raises(ProtocolError, match="another rank"):
        conversation.send([msgspec.structs.replace(replies[0], weights=other), *replies[1:]])


@pytest.mark.parametrize("seed", range(12))
def test_every_extreme_softmax_reaches_the_residual_that_its_plan_names(seed: int) -> None:
    """Separable or empty classes, rows at their bounds or zero, tiny and huge penalties and noises."""
    rng = np.random.default_rng(seed)
    n, d, classes = int(rng.integers(2, 60)), int(rng.integers(1, 8)), int(rng.integers(3, 8))
    if seed >= 10:  # more numbers than are solved for directly at once
        n, d, classes = 90, 70, 5
    rows = rng.choice([-1.0, 1.0, 0.0], (n, d)) / math.sqrt(d) if seed % 2 else rng.normal(size=(n, d))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    labels = (rows @ rng.normal(size=(d, classes))).argmax(axis=1) if seed % 3 else np.zeros(n, dtype=np.intp)
    for penalty, scale in itertools.product((1e-6, 1e-2, 10.0), (0.0, 1.0, 1e4)):
        mechanism = ObjectivePerturbation(
            d * classes,
            n,
            1.0,
            penalty,
            scale,
            math.sqrt(8.0),
            1e-3,
            classes - 1,
            slope=math.sqrt(2.0),
            curvature=1 / classes,
            predictors=classes,
        )
        b = scale * rng.normal(size=(classes, d)) * d
        found = softmax_minimum(rows, labels, classes, n * penalty, linear=b, tolerance=mechanism.residual / 2)
        p = softmax(rows @ found.T, axis=1)
        p[np.arange(n), labels] -= 1
        gradient = p.T @ rows + b + n * penalty * found
        assert np.linalg.norm(gradient) / n <= mechanism.residual


def test_a_solver_may_stop_where_rounding_of_a_gradient_ends() -> None:
    """2^-48 times the terms of a softmax's gradient, by hand: of three classes, two columns and a minimiser at most 10^6 + 1 long."""
    mechanism = ObjectivePerturbation(6, 1000, 1.0, 1.0, 0.0, 2.0, 1e-3, centre=1e6, predictors=3)
    farthest = 1e6 + 1
    losses, jacobian, penalty = 1 + 3 / 16, 0.5 * farthest * 2, farthest
    assert mechanism.residual == pytest.approx(2.0**-48 * (losses + jacobian + penalty), rel=1e-12, abs=0)
    assert ObjectivePerturbation(6, 1000, 1.0, 1.0, 0.0, 2.0, 1e-3, predictors=3).residual == 1e-10
