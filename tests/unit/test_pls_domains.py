"""Calibrations carried to a second instrument: the row-wise twin, the authors' package, noise, what it rests on, refusals."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import warnings
from functools import cache

import numpy as np
import pytest

import unpooled
from unpooled import Bounds, PrivateLinearRegression, PrivatePLSRegression
from unpooled.datasets import make_instruments
from unpooled.errors import UsageError
from unpooled.kernels.pls import Centred, domain_pls, kernel_pls, relaxed
from unpooled.models.pls.instruments import Transfers, one_release
from unpooled.models.pls.spectra import whitened

RNG = np.random.default_rng(0)
MIXING = RNG.normal(size=(4, 9))
S = RNG.normal(size=(70, 4)) @ MIXING + 0.1 * RNG.normal(size=(70, 9)) + 1
Y = S @ RNG.normal(size=9) + 0.2 * RNG.normal(size=70)
T = 1.3 * RNG.normal(size=(50, 4)) @ MIXING + RNG.normal(size=(50, 1)) * RNG.normal(size=9) + 0.1 * RNG.normal(size=(50, 9))
EXACT = {
    "epsilon": math.inf,
    "basis": "none",
    "reference": np.zeros(9),
    "bounds": Bounds(norm=100.0),
    "y_bounds": (-50, 50),
}


def row_wise(
    source: np.ndarray, y: np.ndarray, target: np.ndarray, components: int, penalty: float
) -> tuple[np.ndarray, float]:
    """The published algorithm over rows: scores, loadings and residuals of both domains."""
    X, Z, r = source - source.mean(axis=0), target - target.mean(axis=0), y - y.mean()
    weights, loadings, inner = [], [], []
    for _ in range(components):
        values, vectors = np.linalg.eigh(X.T @ X / len(X) - Z.T @ Z / len(Z))
        apart = vectors @ np.diag(np.abs(values)) @ vectors.T
        w = np.linalg.solve(np.eye(X.shape[1]) + penalty / (r @ r) * apart, X.T @ r / (r @ r))
        w /= np.linalg.norm(w)
        t, u = X @ w, Z @ w
        weights.append(w)
        loadings.append(X.T @ t / (t @ t))
        inner.append(r @ t / (t @ t))
        X, Z, r = X - np.outer(t, loadings[-1]), Z - np.outer(u, Z.T @ u / (u @ u)), r - inner[-1] * t
    W, P = np.array(weights).T, np.array(loadings).T
    b = W @ np.linalg.solve(P.T @ W, np.array(inner))
    return b, float(y.mean() - target.mean(axis=0) @ b)


def exact(X: np.ndarray, y: np.ndarray, **more: object) -> PrivatePLSRegression:
    return PrivatePLSRegression(**EXACT | more).fit(X, y)


@pytest.mark.parametrize("components", [1, 2, 3, 5])
@pytest.mark.parametrize("penalty", [0.0, 10.0, 1e3, 1e5])
def test_without_noise_it_is_the_published_algorithm(components: int, penalty: float) -> None:
    model = exact(S, Y).adapted(exact(T, np.zeros(50)), penalty=penalty, n_components=components)
    b, constant = row_wise(S, Y, T, components, penalty)
    assert model.coef_ == pytest.approx(b, abs=1e-8 * float(np.abs(b).max()))
    assert model.intercept_ == pytest.approx(constant, rel=1e-8)
    assert model.n_components_ == components
    assert model.x_rotations_ @ model.y_loadings_[0] == pytest.approx(model.coef_, abs=1e-8)


def spectra() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every tenth channel of simulated spectra: the source's with responses, and others of the target."""
    data = make_instruments(120, seed=4)
    return data.source[:70, ::10], data.response[:70], data.target[70:, ::10]


def of_spectra(components: int, penalty: float) -> PrivatePLSRegression:
    X, y, Z = spectra()
    here = {"reference": X.mean(axis=0), "y_bounds": (5, 15)}
    return exact(X, y, **here).adapted(exact(Z, np.full(50, 10.0), **here), penalty=penalty, n_components=components)


@pytest.mark.parametrize(("components", "penalty"), [(1, 1e3), (3, 1e2), (4, 1e5)])
def test_spectra_give_the_published_coefficients(components: int, penalty: float) -> None:
    ours, (b, constant) = of_spectra(components, penalty), row_wise(*spectra(), components, penalty)
    assert ours.coef_ == pytest.approx(b, abs=1e-8 * float(np.abs(b).max()))
    assert ours.intercept_ == pytest.approx(constant, rel=1e-7)


#: What the other environment runs.
THEIRS = """
import json, sys
import numpy as np
from diPLSlib.models import DIPLS
asked = json.load(sys.stdin)
X, y, Z = (np.array(asked[name]) for name in "XyZ")
model = DIPLS(A=asked["components"], l=asked["penalty"]).fit(X, y[:, None], X, Z)
json.dump([np.ravel(model.b_).tolist(), np.ravel(model.predict(Z)).tolist()], sys.stdout)
"""


@pytest.mark.skipif(
    not os.environ.get("UNPOOLED_DIPLSLIB"),
    reason="UNPOOLED_DIPLSLIB names no Python with diPLSlib (its own environment: it wants scikit-learn < 1.8)",
)
@pytest.mark.parametrize(("components", "penalty"), [(1, 1e3), (3, 1e2), (4, 1e5)])
def test_it_is_the_authors_own_package(components: int, penalty: float) -> None:
    X, y, Z = spectra()
    asked = {"X": X.tolist(), "y": y.tolist(), "Z": Z.tolist(), "components": components, "penalty": penalty}
    answered = subprocess.run(
        [os.environ["UNPOOLED_DIPLSLIB"], "-c", THEIRS],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    b, predicted = map(np.array, json.loads(answered.stdout))
    ours = of_spectra(components, penalty)
    assert ours.coef_ == pytest.approx(b, abs=1e-8 * float(np.abs(b).max()))
    assert ours.predict(Z) == pytest.approx(predicted, abs=1e-7)


def test_rows_of_either_domain_may_be_at_several_sites() -> None:
    sites = [exact(X, y).fit(X, y, sites=np.arange(y.size) % 3) for X, y in ((S, Y), (T, np.zeros(50)))]
    joint, split = (
        one.adapted(other, penalty=50.0, n_components=2) for one, other in ((exact(S, Y), exact(T, np.zeros(50))), sites)
    )
    assert split.coef_ == pytest.approx(joint.coef_, abs=1e-8)


def test_no_penalty_is_pls_with_the_targets_mean() -> None:
    source, target = exact(S, Y, n_components=3), exact(T, np.zeros(50))
    moved = source.adapted(target, penalty=0.0, n_components=3)
    for name in ("coef_", "x_weights_", "x_rotations_", "y_loadings_"):
        assert getattr(moved, name) == pytest.approx(getattr(source, name), abs=1e-8)
    assert moved.predict(T).mean() == pytest.approx(Y.mean())
    assert source.adapted(target, penalty=0.0, n_components=3, centre="source").predict(T) == pytest.approx(
        source.predict(T), abs=1e-7
    )
    labelled = exact(T, np.full(50, 7.0))
    assert source.adapted(labelled, centre="responses").predict(T).mean() == pytest.approx(7.0)


def test_a_component_avoids_what_differs() -> None:
    """More penalty, less difference of the scores' variances; and the order of components is that of the published algorithm."""
    source, target = exact(S, Y), exact(T, np.zeros(50))

    def difference(penalty: float) -> float:
        w = source.adapted(target, penalty=penalty, n_components=1).x_weights_[:, 0]
        return abs(float(((S - S.mean(axis=0)) @ w).var() - ((T - T.mean(axis=0)) @ w).var()))

    sizes = [difference(penalty) for penalty in (0.0, 1e3, 1e5)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.2 * sizes[0]
    first, both = (source.adapted(target, penalty=1e3, n_components=k) for k in (1, 2))
    assert both.x_weights_[:, 0] == pytest.approx(first.x_weights_[:, 0])


def test_moments_suffice_and_stay_as_they_are() -> None:
    own, other = Centred.of(S, Y), Centred.of(T, np.zeros(50))
    before = own.gram.copy(), other.gram.copy()
    found = domain_pls(own, other.gram, other.rows, 0.0, 4)
    assert found.coefficients == pytest.approx(kernel_pls(own.gram, own.cross, 4).coefficients, abs=1e-9)
    assert all(np.array_equal(one, two) for one, two in zip(before, (own.gram, other.gram), strict=True))
    # A response without any part in the spectra, and more components than coordinates.
    assert not domain_pls(Centred.of(S, np.ones(70)), other.gram, 50, 10.0, 3).coefficients.any()
    assert np.isfinite(domain_pls(own, other.gram, 50, 10.0, 20).coefficients).all()
    difference = np.diag([3.0, -2.0, 0.5])
    assert relaxed(difference, 1.0) == pytest.approx(np.diag([2.0, 1.0, 0.0]))


# --- noise ------------------------------------------------------------------------------------------------------------------


@cache
def world() -> tuple[np.ndarray, ...]:
    data = make_instruments(4060, seed=7, pure_seed=7)
    snv = [(X - X.mean(axis=1, keepdims=True)) / X.std(axis=1, keepdims=True) for X in (data.source, data.target)]
    return *snv, data.response


@cache
def noisy(instrument: int, epsilon: float = 10.0) -> PrivatePLSRegression:
    X, y = world()[instrument], world()[2]
    basis, reference, norm = whitened(world()[0][:60])
    rows = slice(60, 1560) if instrument == 0 else slice(1560, 3050)
    asked = PrivatePLSRegression(
        epsilon=epsilon,
        delta=1e-5,
        basis=basis,
        reference=reference,
        bounds=Bounds(norm=2 * norm),
        y_bounds=(8, 12),
        method="moments",
    )
    return asked.fit(X[rows], y[rows])


def error(model: PrivatePLSRegression) -> float:
    return float(np.sqrt(np.mean((model.predict(world()[1][3060:]) - world()[2][3060:]) ** 2)) / world()[2].std())


@pytest.mark.slow
def test_with_noise_a_second_instrument_is_predicted_better() -> None:
    source, target = noisy(0), noisy(1)
    asis, adapted = error(source), error(source.adapted(target))
    standard = error(source.standardised((world()[0][:20], world()[1][:20])))
    assert asis > 1.0
    assert adapted < 0.8 * asis
    assert standard < 0.8 * asis
    # The same moments without the fits around them.
    same = PrivatePLSRegression.from_moments(
        source.moments_, basis=source.basis, reference=source.reference, method="moments"
    ).adapted(target.moments_)
    assert same.coef_ == pytest.approx(source.adapted(target).coef_)


@pytest.mark.long
@pytest.mark.slow
def test_what_noise_explains_is_not_penalised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases of the same rows differ by noise alone: the penalty leaves that out, in the median of 9 draws. A control penalises it."""
    X, y = world()[0][60:1560], world()[2][60:1560]
    fits = [
        PrivatePLSRegression(**noisy(0).get_params() | {"random_state": seed, "epsilon": 20.0}).fit(X, y)
        for seed in range(10)
    ]

    def turned(one: PrivatePLSRegression, other: PrivatePLSRegression) -> float:
        free, heavy = (one.adapted(other, penalty=penalty, n_components=1).x_weights_[:, 0] for penalty in (0.0, 1e9))
        return 1 - abs(float(free @ heavy)) / float(np.linalg.norm(free) * np.linalg.norm(heavy))

    left = float(np.median([turned(fits[0], other) for other in fits[1:]]))
    monkeypatch.setattr("unpooled.models.pls.instruments.noise_level", lambda variance: 0.0 * float(variance[0, 0]))
    broken = float(np.median([turned(fits[0], other) for other in fits[1:]]))
    assert left < broken / 2, (left, broken)


# --- standardisation --------------------------------------------------------------------------------------------------------


def test_public_pairs_are_direct_standardisation() -> None:
    source = exact(S, Y, n_components=3)
    seen = S @ (np.eye(9) + 0.1 * RNG.normal(size=(9, 9))) + 2.0
    model = source.standardised((S, seen), ridge=0.5)
    A, B = S - S.mean(axis=0), seen - seen.mean(axis=0)
    # F = I + (B'B + ridge)^-1 B'(A - B): instruments that are alike have nearly the identity.
    F = np.eye(9) + np.linalg.solve(B.T @ B + 0.5 * np.eye(9), B.T @ (A - B))
    assert model.coef_ == pytest.approx(F @ source.coef_)
    assert model.intercept_ == pytest.approx(source.predict(S).mean() - seen.mean(axis=0) @ model.coef_)
    assert source.standardised((S, seen)).predict(seen) == pytest.approx(source.predict(S), abs=0.05 * Y.std())
    exactly = source.standardised((S, seen), ridge=0.0)
    assert exactly.predict(seen) == pytest.approx(source.predict(S), abs=1e-6)
    # Another number of channels: the map is shrunk toward nothing.
    few = seen[:, ::2]
    other = source.standardised((S, few), ridge=0.5)
    C = few - few.mean(axis=0)
    assert other.coef_ == pytest.approx(np.linalg.solve(C.T @ C + 0.5 * np.eye(5), C.T @ A) @ source.coef_)
    assert other.predict(few).shape == (70,)
    assert other.n_features_in_ == 5


def test_released_pairs_are_the_same_as_public_ones() -> None:
    source = exact(S, Y, n_components=3)
    seen = S @ (np.eye(9) + 0.05 * RNG.normal(size=(9, 9))) + 0.5
    pairs = exact(seen, source.predict(S))
    released, public = source.standardised(pairs, ridge=0.5), source.standardised((S, seen), ridge=0.5)
    assert released.coef_ == pytest.approx(public.coef_, abs=1e-6)
    assert released.intercept_ == pytest.approx(public.intercept_, abs=1e-5)
    assert source.standardised(pairs.moments_, ridge=0.5).coef_ == pytest.approx(released.coef_)


@pytest.mark.slow
def test_pairs_that_are_noise_leave_the_source_as_it_is() -> None:
    """At epsilon .05 the pairs tell nothing; a ridge that does not know the noise believes them."""
    source, (here, there, _) = noisy(0), world()
    predicted = np.clip(source.predict(here[1560:3050]), 8, 12)
    with warnings.catch_warnings(action="ignore"):
        pairs = PrivatePLSRegression(**source.get_params() | {"epsilon": 0.05}).fit(there[1560:3050], predicted)

    def moved(ridge: float | None) -> float:
        changed = source.standardised(pairs, ridge=ridge).coef_ - source.coef_
        return float(np.linalg.norm(changed) / np.linalg.norm(source.coef_))

    assert moved(None) < 0.2 < moved(1e-6)


# --- what it rests on -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_model_says_what_both_domains_pay() -> None:
    """Theorem C.7: each domain's people by their own plan, somebody in both by the composition of both."""
    source, target = noisy(0), noisy(1)
    model = source.adapted(target)
    rests = model.domains_
    assert rests.holds
    alone = source.plan_.epsilon(1e-5)
    assert rests.epsilon is not None
    assert alone < rests.epsilon < 2.1 * alone
    assert {origin.plan for origin in rests.origins} == {source.plan_.hash, target.plan_.hash}
    words = str(rests)
    assert "post-processing" in words
    assert "Somebody with rows in both domains pays for both" in words
    assert source.plan_.hash[:12] in words
    with pytest.raises(AttributeError, match="domains_"):
        model.statement_  # noqa: B018
    # Bare moments carry what they cost.
    bare = source.adapted(target.moments_).domains_
    assert bare.holds
    assert bare.epsilon == rests.epsilon
    # But for moments that no run of a plan handed out: they know whether they hold, not what they cost.
    unknown = source.adapted(dataclasses.replace(target.moments_, known_origins=())).domains_
    assert unknown.holds
    assert unknown.epsilon is None
    assert "its own statement holds the promise" in str(unknown)
    # Public pairs have no people: the source's alone pay.
    standard = source.standardised((world()[0][:20], world()[1][:20])).domains_
    assert standard.epsilon == pytest.approx(alone)
    assert "nobody's rows" in str(standard)
    # Adapted, then standardised: everything behind it is kept.
    assert len(model.standardised((world()[0][:20], world()[1][:20])).domains_.releases) == 2


@pytest.mark.slow
@pytest.mark.parametrize("hollow", ["source", "target", "none"])
def test_where_one_promise_does_not_hold_none_does(hollow: str) -> None:
    """Theorem C.7; a source or a target whose noise has a public seed promises nothing."""
    fits = [noisy(0), noisy(1)]
    if hollow != "none":
        k = ["source", "target"].index(hollow)
        seeded = PrivatePLSRegression(**fits[k].get_params() | {"random_state": 0})
        fits[k] = seeded.fit(world()[k][60:1560], world()[2][60:1560])
    model = fits[0].adapted(fits[1])
    bare = fits[0].adapted(fits[1].moments_)
    assert model.domains_.holds is bare.domains_.holds is (hollow == "none")
    assert ("No guarantee holds" in str(model.domains_)) is (hollow != "none")
    # What rests on the model knows it.
    options = {"epsilon": 1.0, "delta": 1e-5, "y_bounds": (8, 12)}
    found = unpooled.diagnose(model, world()[1][:200], world()[2][:200], **options)
    assert found.statement_.holds is (hollow == "none")
    assert not {"plan_", "moments_"} & vars(model).keys()


@pytest.mark.slow
def test_two_releases_of_equal_plans_both_count() -> None:
    first = noisy(0)
    second = PrivatePLSRegression(**first.get_params()).fit(world()[0][60:1560], world()[2][60:1560])
    assert second.plan_.hash == first.plan_.hash
    both = first.adapted(second).domains_.epsilon
    assert both > 1.2 * first.plan_.epsilon(1e-5)
    bare = first.adapted(second.moments_).domains_
    assert bare.epsilon == both
    # Moments of an equal plan that do not say what they cost: nobody knows the sum, and it is not the price of one.
    unknown = first.adapted(dataclasses.replace(second.moments_, known_origins=())).domains_
    assert unknown.epsilon is None
    assert unknown.holds
    assert first.adapted(first).domains_.epsilon == pytest.approx(first.plan_.epsilon(1e-5))


@pytest.mark.slow
def test_it_saves_and_loads(tmp_path: object) -> None:
    for model in (noisy(0).adapted(noisy(1)), noisy(0).standardised((world()[0][:20], world()[1][:20]))):
        model.save(tmp_path / "model")
        back = unpooled.load(tmp_path / "model")
        assert np.array_equal(back.predict(world()[1][:5]), model.predict(world()[1][:5]))
        assert back.domains_ == model.domains_
        assert str(back.domains_) == str(model.domains_)
    again = noisy(0).adapted(noisy(1)).fit(world()[0][60:1560], world()[2][60:1560])
    assert not hasattr(again, "domains_")


def test_a_second_fit_forgets_the_moments_of_the_first() -> None:
    """Else a transfer would use moments under a plan that did not release them."""
    model = PrivatePLSRegression(**noisy(0).get_params()).fit(world()[0][60:1560], world()[2][60:1560])
    assert model.moments_.plan == model.plan_.hash
    model.set_params(method="gradient").fit(world()[0][60:1560], world()[2][60:1560])
    assert not hasattr(model, "moments_")
    with pytest.raises(UsageError, match='fit it with method="moments"'):
        model.adapted(noisy(1))
    standard = model.standardised((world()[0][:20], world()[1][:20]))
    assert standard.domains_.holds
    assert "released a model of 1500 rows" in str(standard.domains_)


def test_frames_are_predicted_by_name() -> None:
    polars = pytest.importorskip("polars")
    names = [f"nm{k}" for k in range(9)]
    source = exact(polars.DataFrame(S, names), Y)
    model = source.adapted(exact(polars.DataFrame(T, names), np.zeros(50)))
    assert model.feature_names_in_.tolist() == names
    assert model.predict(polars.DataFrame(T, names)) == pytest.approx(T @ model.coef_ + model.intercept_)
    assert model.transform(polars.DataFrame(T, names)).shape == (50, model.n_components_)


def test_moments_of_regression_are_moments_too() -> None:
    options = {"epsilon": math.inf, "bounds": (-20, 20), "y_bounds": (-50, 50), "geometry": "augmented"}
    fits = [PrivateLinearRegression(**options).fit(X, y) for X, y in ((S, Y), (T, np.zeros(50)))]
    source = PrivatePLSRegression.from_moments(fits[0].moments_, basis="none", epsilon=math.inf)
    model = source.adapted(fits[1].moments_, penalty=10.0, n_components=2)
    assert model.coef_ == pytest.approx(row_wise(S, Y, T, 2, 10.0)[0], abs=1e-4)  # integers on a grid


# --- refusals ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"basis": "dct", "basis_size": 9}, "another basis"),
        ({"basis": "dct", "basis_size": 4}, "another basis"),
        ({"reference": np.ones(9)}, "another reference"),
        ({"bounds": Bounds(norm=50.0)}, "bounds of source and target differ"),
    ],
)
def test_a_target_in_other_coordinates_is_refused(more: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        exact(S, Y).adapted(exact(T, np.zeros(50), **more))


def test_bare_moments_of_another_size_are_refused() -> None:
    with pytest.raises(UsageError, match="9 coordinates and the target 4"):
        exact(S, Y).adapted(exact(T, np.zeros(50), basis="dct", basis_size=4).moments_)
    short = exact(T[:, :5], np.zeros(50), reference=np.zeros(5))
    with pytest.raises(UsageError, match="another basis"):
        exact(S, Y).adapted(short)


def test_moments_that_no_transfer_can_use_are_refused() -> None:
    source, two = exact(S, Y), exact(S, np.column_stack([Y, Y]))
    with pytest.raises(UsageError, match="several responses"):
        source.adapted(two)
    with pytest.raises(UsageError, match="several"):
        two.standardised((S, S))
    with pytest.raises(UsageError, match="fitted PrivatePLSRegression"):
        source.adapted(S)
    moved = source.adapted(source)
    with pytest.raises(UsageError, match="no released moments"):
        moved.adapted(source)
    sums = PrivateLinearRegression(
        epsilon=math.inf, bounds=(-20, 20), y_bounds=(-50, 50), geometry="augmented", fit_intercept=False
    ).fit(S, Y)
    with pytest.raises(UsageError, match="sums"):
        source.adapted(sums.moments_)
    rounds = PrivatePLSRegression(
        epsilon=20.0, bounds=Bounds(norm=12.0), y_bounds=(-50, 50), basis_size=3, reference=np.ones(9), method="refinement"
    ).fit(np.tile(S, (9, 1)), np.tile(Y, 9))
    with pytest.raises(UsageError, match="one release"):
        one_release(rounds.moments_)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"penalty": -1.0}, "penalty"),
        ({"penalty": math.nan}, "penalty"),
        ({"penalty": "most"}, "penalty"),
        ({"penalty": None}, "penalty"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": "all"}, "n_components"),
        ({"n_components": 10}, "n_components = 10"),
        ({"centre": "nowhere"}, "centre"),
    ],
)
def test_wrong_arguments_are_refused(more: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        exact(S, Y).adapted(exact(T, np.zeros(50)), **more)


@pytest.mark.parametrize("pairs", [(S, T), (S[:, :3], T), (S[:1], S[:1]), (S,), ("a", "b"), (S, np.full_like(S, np.nan))])
def test_pairs_that_are_no_pairs_are_refused(pairs: tuple) -> None:
    with pytest.raises(UsageError, match="pairs are two arrays"):
        exact(S, Y).standardised(pairs)
    with pytest.raises(UsageError, match="ridge"):
        exact(S, Y).standardised((S, S), ridge=-1.0)


def test_spectra_that_do_not_vary_get_the_mean() -> None:
    model = exact(np.ones((40, 9)), Y[:40]).adapted(exact(T, np.zeros(50)))
    assert model.fallback_
    assert model.n_components_ == 0
    assert model.predict(T) == pytest.approx(np.full(50, Y[:40].mean()))
    still = exact(S, Y).adapted(exact(np.ones((40, 9)), np.zeros(40)))
    assert np.isfinite(still.coef_).all()
    assert issubclass(PrivatePLSRegression, Transfers)


# --- the simulator ----------------------------------------------------------------------------------------------------------


def test_instruments_measure_the_same_samples() -> None:
    same = make_instruments(300, shift=0.0, gain=1.0, baseline=0.0, interferent=0.0, seed=3)
    assert np.abs(same.source.mean(axis=0) - same.target.mean(axis=0)).max() < 0.01
    data = make_instruments(300, seed=3)
    assert np.array_equal(data.response, same.response)
    assert np.array_equal(data.source, same.source)
    assert np.abs(data.source.mean(axis=0) - data.target.mean(axis=0)).max() > 0.02
    for wrong in ({"n_samples": 0}, {"gain": 0.0}, {"shift": math.nan}):
        with pytest.raises(UsageError, match="make_instruments needs"):
            make_instruments(**wrong)
