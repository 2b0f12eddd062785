"""Private PLS: scikit-learn's PLS without noise, one release for many models, refusals, the published form, the attack."""

from __future__ import annotations

import math
import pickle
import warnings
from dataclasses import replace

import mpmath
import msgspec
import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.cross_decomposition import PLSRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from world import drawn, sized

import unpooled
from unpooled import Bounds, PrivacyLeakWarning, PrivateBayesianRegression, PrivatePLSRegression
from unpooled.audit.attacks import reconstruction
from unpooled.datasets import make_spectra
from unpooled.errors import BudgetRefusal, DataError, PlanMismatch, PolicyRefusal, ProtocolError, StudyAborted, UsageError
from unpooled.kernels.pls import Centred
from unpooled.linear.moments import Moments
from unpooled.models import load
from unpooled.models.pls.components import fit
from unpooled.models.pls.declared import design_of
from unpooled.models.pls.estimator import RowWise
from unpooled.models.pls.fit import render
from unpooled.models.pls.spectra import Frame, basis_steps
from unpooled.papers.pls import (
    ComponentsLayout,
    EntrustedRows,
    PublishedModel,
    PublishedRequest,
    components,
    entrust,
    release_model,
)
from unpooled.privacy.accounting import gaussian_sigma
from unpooled.privacy.events import UNBOUNDED
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Plan
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Calibration, Unit
from unpooled.protocol.context import Context
from unpooled.protocol.conversation import OpenRequest, find_step
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import Array, Dropped, Entrusted, Nothing, encode
from unpooled.protocol.party import Party

CORN = make_spectra(150, kind="corn", seed=1)
X, Y = CORN.spectra, CORN.response
SITES = np.repeat(["mill", "port", "silo"], 50)
#: Few channels, for what does not depend on their number.
RNG = np.random.default_rng(0)
SMALL = RNG.normal(size=(600, 2)) @ np.array([np.linspace(0, 1, 12), np.sin(np.linspace(0, 5, 12))])
SMALL = SMALL / 2 + 0.02 * RNG.normal(size=SMALL.shape)
TARGET = SMALL[:, 3] - 2 * SMALL[:, 9] + 0.1 * RNG.normal(size=600) + 5
LABELS = RNG.choice(["mill", "port", "silo"], 600)
DECLARED = {"bounds": Bounds(norm=6.0), "y_bounds": (-5, 15), "basis_size": 5}
EXACT = {"epsilon": math.inf, "basis": "none"}


# --- scikit-learn -----------------------------------------------------------------------------------------------------------


@pytest.mark.minutes
@parametrize_with_checks([PrivatePLSRegression(**EXACT), PrivatePLSRegression(1, **EXACT)])
def test_scikit_learns_contract(estimator, check) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("count", range(1, 11))
def test_without_noise_and_basis_it_is_scikit_learns_pls(count: int) -> None:
    ours, wanted = PrivatePLSRegression(count, **EXACT).fit(X, Y), PLSRegression(count, scale=False).fit(X, Y)
    scale = max(1.0, float(np.abs(wanted.coef_).max()))
    assert np.abs(ours.coef_ - wanted.coef_.ravel()).max() <= 1e-8 * scale
    assert ours.predict(X) == pytest.approx(wanted.predict(X), abs=1e-8)
    assert ours.transform(X) == pytest.approx(wanted.transform(X), abs=1e-8)
    for name in ("x_weights_", "x_loadings_", "y_loadings_"):
        assert getattr(ours, name) == pytest.approx(getattr(wanted, name), abs=1e-7)
    assert ours.x_rotations_ == pytest.approx(wanted.x_rotations_, rel=1e-6, abs=1e-6)
    assert ours.n_components_ == count
    sites = PrivatePLSRegression(count, **EXACT).fit(X, Y, sites=SITES)
    assert sites.coef_ == pytest.approx(ours.coef_, abs=1e-8 * scale)
    assert set(sites.communication_) == set(SITES)


@pytest.mark.long
@pytest.mark.slow
def test_it_clones_and_pickles_without_data() -> None:
    model = clone(PrivatePLSRegression(**DECLARED, epsilon=5.0, random_state=1)).fit(SMALL, TARGET, sites=LABELS)
    back = pickle.loads(pickle.dumps(model))
    assert np.array_equal(back.predict(SMALL), model.predict(SMALL))
    assert not any(isinstance(value, Table) for value in vars(model).values())
    again = PrivatePLSRegression(**DECLARED, epsilon=5.0, random_state=1).fit(SMALL, TARGET, sites=LABELS)
    assert np.array_equal(again.coef_, model.coef_)
    other = PrivatePLSRegression(**DECLARED, epsilon=5.0, random_state=2).fit(SMALL, TARGET, sites=LABELS)
    assert not np.array_equal(other.coef_, model.coef_)
    assert unpooled.PrivatePLSRegression is PrivatePLSRegression
    assert PrivatePLSRegression(n_components=np.int64(2), **EXACT).fit(SMALL, TARGET).n_components_ == 2


def test_coefficients_fold_back_to_channels() -> None:
    model = PrivatePLSRegression(3, **{**DECLARED, "epsilon": math.inf}, reference=SMALL.mean(axis=0) + 0.1).fit(
        SMALL, TARGET
    )
    frame = Frame.of("dct", 12, 5, SMALL.mean(axis=0) + 0.1)
    inside = frame.coordinates(SMALL)
    wanted = PLSRegression(3, scale=False).fit(inside, TARGET)
    assert model.coef_ == pytest.approx(frame.basis @ wanted.coef_.ravel(), rel=1e-6, abs=1e-6)
    assert model.predict(SMALL) == pytest.approx(wanted.predict(inside), rel=1e-6)
    # The basis is orthonormal up to its grid, so channels see scikit-learn's identities.
    assert model.transform(SMALL) == pytest.approx(wanted.transform(inside), abs=1e-5)
    assert model.x_weights_.T @ model.x_weights_ == pytest.approx(np.eye(3), abs=1e-5)
    assert model.x_loadings_.T @ model.x_rotations_ == pytest.approx(np.eye(3), abs=1e-5)
    assert model.predict(SMALL) == pytest.approx(SMALL @ model.coef_ + model.intercept_)


class SNV(TransformerMixin, BaseEstimator):
    """Each spectrum by itself: minus its mean, by its deviation."""

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return (X - X.mean(axis=1, keepdims=True)) / X.std(axis=1, keepdims=True)


def derivative(X):
    from scipy.signal import savgol_filter

    return savgol_filter(X, 11, 2, deriv=1, axis=1)


def msc(X, reference=CORN.mean_spectrum):
    """Multiplicative scatter correction against a public reference."""
    design = np.column_stack([np.ones(reference.size), reference])
    offset, slope = np.linalg.lstsq(design, X.T, rcond=None)[0]
    return (X - offset[:, None]) / slope[:, None]


@pytest.mark.parametrize("step", [SNV(), FunctionTransformer(derivative), FunctionTransformer(msc)])
def test_rowwise_preprocessing_goes_in_front(step) -> None:
    pipe = make_pipeline(step, PrivatePLSRegression(5, **EXACT))
    wanted = make_pipeline(clone(step), PLSRegression(5, scale=False)).fit(X, Y)
    assert pipe.fit(X, Y).predict(X) == pytest.approx(wanted.predict(X).ravel(), abs=1e-6)
    reference = np.asarray(step.transform(CORN.mean_spectrum[None]))[0] if isinstance(step, FunctionTransformer) else None
    private = PrivatePLSRegression(
        epsilon=100.0, delta=1e-5, bounds=Bounds(norm=20.0), y_bounds=(8.5, 11.5), reference=reference, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a wide bound may drown a derivative
        found = make_pipeline(clone(step), private).fit(X, Y)
    assert found.predict(X).shape == (150,)
    assert "preprocessed by itself" in str(found[-1].statement_.assumptions)


@pytest.mark.slow
def test_preprocessing_that_learns_from_the_data_is_refused() -> None:
    from sklearn.preprocessing import StandardScaler

    for step in (SNV(), FunctionTransformer(derivative), FunctionTransformer(msc)):
        wrapped = make_pipeline(RowWise(step), PrivatePLSRegression(3, **EXACT)).fit(X, Y)
        assert np.array_equal(
            wrapped.predict(X), make_pipeline(clone(step), PrivatePLSRegression(3, **EXACT)).fit(X, Y).predict(X)
        )
    with pytest.raises(UsageError, match="StandardScaler learns from the data"):
        RowWise(StandardScaler()).fit(X)
    public = make_spectra(40, kind="corn", seed=77).spectra
    taught = RowWise(StandardScaler(), public=public).fit(X)
    assert np.array_equal(taught.transform(X), StandardScaler().fit(public).transform(X))
    for centred in (lambda X: X - X.mean(axis=0), lambda X: X - X[:1]):
        with pytest.raises(UsageError, match="otherwise alone than among others"):
            RowWise(FunctionTransformer(centred), public=public).fit(X)


def test_sites_are_routed_as_metadata() -> None:
    from sklearn import config_context

    with config_context(enable_metadata_routing=True):
        pipe = make_pipeline(FunctionTransformer(), PrivatePLSRegression(2, **EXACT).set_fit_request(sites=True))
        pipe.fit(SMALL, TARGET, sites=LABELS)
    assert [card.name for card in pipe[-1].plan_.study.parties] == ["mill", "port", "silo"]


# --- the released statistic ---------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize("basis", ["dct", "bspline", "none", np.column_stack([np.ones(12), np.arange(12.0)])])
def test_sites_add_up_to_one_site_exactly_in_any_blocks(basis) -> None:
    plan = PrivatePLSRegression(**{**DECLARED, "bounds": (-3, 3)}, basis=basis).plan(600, 12)
    asked = design_of(plan.study)
    table = Table({**{name: SMALL[:, j] for j, name in enumerate(asked.names[:-1])}, asked.names[-1]: TARGET})
    whole = asked.layout.added_up(asked.blocks(table))
    parts = [asked.layout.added_up(asked.blocks(part)) for part in table.by_site(LABELS).values()]
    assert np.array_equal(sum(parts), whole)
    shuffled = table.take(RNG.permutation(600))
    assert np.array_equal(asked.layout.added_up(asked.blocks(shuffled)), whole)
    # The integers are those of the projected rows, up to the grid.
    rows = asked.frame.coordinates(np.clip(SMALL, -3, 3)) / asked.radius
    middle = (TARGET - 5) / 10
    z = np.column_stack([rows, np.ones(600), middle])
    first, second = asked.layout.pairs
    assert whole / asked.layout.grid**2 == pytest.approx((z.T @ z)[first, second], abs=0.01)


@pytest.mark.parametrize("basis", ["dct", "none"])
def test_rows_are_shortened_to_the_bound(basis: str) -> None:
    plan = PrivatePLSRegression(basis=basis, basis_size=4, bounds=Bounds(norm=0.5), y_bounds=(0, 1)).plan(50, 12)
    asked = design_of(plan.study)
    wild = RNG.normal(size=(50, 12)) * np.logspace(-6, 12, 50)[:, None]
    table = Table({**{name: wild[:, j] for j, name in enumerate(asked.names[:-1])}, asked.names[-1]: np.linspace(-9, 9, 50)})
    (block,) = asked.blocks(table)
    assert np.linalg.norm(np.array(block[:-1]), axis=0).max() <= 0.5 * (1 + 1e-12)
    coded, _ = asked.layout.coding.code(block[:-1])
    assert (np.square(coded.astype(object)).sum(axis=1) <= asked.layout.grid**2).all()
    trace = asked.layout.added_up(asked.blocks(table))[: asked.frame.size].sum()
    assert trace <= 50 * asked.layout.grid**2


@pytest.mark.guarantee
def test_a_missing_channel_is_refused_by_name() -> None:
    asked = design_of(PrivatePLSRegression(**DECLARED).plan(600, 12).study)
    broken = SMALL.copy()
    broken[3, 7] = np.nan
    table = Table({**{name: broken[:, j] for j, name in enumerate(asked.names[:-1])}, asked.names[-1]: TARGET})
    with pytest.raises(DataError, match="'x7' holds a missing value"):
        list(asked.blocks(table))
    with pytest.raises(ValueError, match="NaN"):
        PrivatePLSRegression(**DECLARED).fit(broken, TARGET)


def test_bases_are_orthonormal_public_and_on_a_grid() -> None:
    for kind, size in (("dct", 8), ("bspline", 8), ("bspline", 2), ("dct", 50)):
        frame = Frame.of(kind, 30, size, np.zeros(30))
        assert frame.size == min(size, 30)
        assert frame.basis.T @ frame.basis == pytest.approx(np.eye(frame.size), abs=1e-4)
        integers = frame.basis / basis_steps(frame.basis)
        assert np.array_equal(integers, np.rint(integers))
        assert np.abs(integers).max() <= 2**20
    own = np.linalg.qr(RNG.normal(size=(30, 4)))[0]
    assert Frame.of("matrix", 30, 0, np.zeros(30), own.tolist()).basis == pytest.approx(own, abs=1e-5)
    line = np.column_stack([np.ones(30), np.arange(30.0)])
    assert Frame.of("bspline", 30, 2, np.zeros(30)).channels(np.eye(2)).shape == (30, 2)
    both = np.column_stack([line, Frame.of("bspline", 30, 2, np.zeros(30)).basis])
    assert np.linalg.matrix_rank(both, tol=1e-3) == 2  # degree one: straight lines


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_noise_is_that_of_the_specification(adjacency: str) -> None:
    """In units of z = (a1 x/R, a2 y/Y, a3): s = 1/mu* on the diagonal and s / sqrt 2 off it, sqrt 2 more for replace."""
    model = PrivatePLSRegression(**DECLARED, method="moments", epsilon=1.0, delta=0.01, adjacency=adjacency)
    plan = model.plan(600, 12)
    asked = design_of(plan.study)
    s = gaussian_sigma(1.0, 0.01) * (math.sqrt(2) if adjacency == "replace" else 1)
    a = np.sqrt([*[0.5] * 5, 0.1, 0.4])
    first, second = asked.layout.pairs
    wanted = s * np.where(first == second, 1, math.sqrt(0.5)) / (a[first] * a[second])
    assert asked.vector.deviations(plan) / asked.layout.grid**2 == pytest.approx(wanted, rel=1e-3)
    assert 0.99 < plan.epsilon(0.01) <= 1.0


# --- plans, statements, refusals ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"aggregation": "trusted", "nodes": ["port"]},
        {"aggregation": "local", "adjacency": "zero-out"},
        {"tolerate": 1, "n_components": 2, "random_state": 3},
        {"bounds": (-4, 4), "basis": "none"},
        {"bounds": Bounds(-4, 4, norm=5.0), "basis": np.eye(12)[:, :4], "reference": np.full(12, 0.1)},
        {"epsilon": math.inf},
    ],
)
def test_a_plan_without_data_is_the_plan_of_the_fit(parameters: dict) -> None:
    model = PrivatePLSRegression(**{**DECLARED, "epsilon": 20.0, **parameters})
    sites = {str(name): int((name == LABELS).sum()) for name in np.unique(LABELS)}
    plan = model.plan(600, 12, sites=sites)
    assert model.fit(SMALL, TARGET, sites=LABELS).plan_.hash == plan.hash
    assert model.statement_ == plan.statement
    assert model.statement_.holds == (model.epsilon < math.inf and model.random_state is None)
    assert {entry.plan for entry in model.ledger_} == {plan.hash}


def test_the_basis_and_the_reference_are_part_of_the_plan() -> None:
    plans = [
        PrivatePLSRegression(**{**DECLARED, **change}).plan(600, 12).hash
        for change in ({}, {"basis": "none"}, {"basis_size": 4}, {"reference": np.ones(12)}, {"basis": np.eye(12)[:, :5]})
    ]
    assert len(set(plans)) == 5


@pytest.mark.slow
@pytest.mark.minutes
def test_an_infinite_epsilon_never_warns_and_missing_bounds_always_do() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PrivatePLSRegression(epsilon=math.inf).fit(SMALL, TARGET)
        PrivatePLSRegression(epsilon=math.inf).fit(SMALL, np.full(600, 3.0))
        PrivatePLSRegression(**DECLARED, epsilon=20.0).fit(SMALL, TARGET)
    for declared in ({}, {"bounds": Bounds(norm=6.0)}, {"y_bounds": (-5, 15)}):
        with pytest.warns(PrivacyLeakWarning):
            model = PrivatePLSRegression(**declared, epsilon=20.0, basis_size=5).fit(SMALL, TARGET)
        assert not model.statement_.holds
        assert model.fallback_ == ""
    for declared in ({"bounds": (-1, 3)}, {"y_bounds": (-1, 3)}):
        with pytest.raises(UsageError, match="a plan needs bounds and y_bounds"):
            PrivatePLSRegression(**declared).plan(600, 12)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_components": 0}, "n_components is a whole number"),
        ({"n_components": "best"}, "n_components is a whole number"),
        ({"n_components": 6}, "6 with 5 coordinates"),
        ({"basis": "fourier"}, "basis is one of"),
        ({"basis": "matrix"}, "pass the matrix itself"),
        ({"basis": np.ones(12)}, "array of channels x vectors"),
        ({"basis": np.ones((12, 2))}, "linearly independent"),
        ({"basis": np.ones((11, 2))}, "12 rows"),
        ({"basis": np.full((12, 1), np.nan)}, "finite"),
        ({"basis_size": 0}, "basis_size"),
        ({"reference": np.ones(11)}, "12 channels"),
        ({"reference": np.full(12, np.inf), "bounds": (-1, 1)}, "12 channels"),
        ({"bounds": Bounds(norm=-1.0)}, "norm must be"),
        ({"bounds": Bounds(-1, 1, norm=0.0)}, "norm must be"),
        ({"bounds": Bounds(-1, 1, missing="absent")}, "a spectrum is whole"),
        ({"bounds": Bounds(-1, 1, categories={0: ["a", "b"]})}, "a spectrum is whole"),
        ({"aggregation": "elsewhere"}, "distributed, trusted, local"),
        ({"sd": "variance"}, "sd is"),
        ({"method": "mean"}, "method is one of"),
        ({"method": "refinement", "y_bounds": [(0, 1), (0, 1)]}, "goes with one response"),
        ({"method": "direction", "prior": (np.eye(12), np.arange(12.0))}, "goes without prior"),
        ({"adjacency": "add"}, "adjacency"),
        ({"calibration": "published"}, "basis_size is not in the paper"),
        (
            {"calibration": "published", "basis_size": 20, "basis": "bspline"},
            "basis is not in the paper, which has basis = 'none'",
        ),
        ({"calibration": "published", "basis_size": 20, "n_components": 2, "delta": 0.0}, "positive delta"),
        ({"epsilon": 1e-7}, "epsilon"),
    ],
)
def test_errors_say_what_to_do(parameters: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        PrivatePLSRegression(**{**DECLARED, **parameters}).plan(600, 12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("dct", 12, 5, np.ones(11)), "reference must be one finite number"),
        (("matrix", 2, 0, np.zeros(2), [[1.0], [1.0, 2.0]]), "a basis has 2 rows"),
        (("matrix", 2, 0, np.zeros(2), ()), "a basis has 2 rows"),
        (("matrix", 2, 0, np.zeros(2), [["a"], ["b"]]), "a basis has 2 rows"),
    ],
)
def test_frames_that_mean_nothing_are_refused(arguments: tuple, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Frame.of(*arguments)


def test_extreme_declarations_are_refused_before_any_data() -> None:
    """Ranges so wide that lengths overflow would make a refusal depend on the data."""
    with pytest.raises(UsageError, match="ranges of the channels are too wide"):
        PrivatePLSRegression(**{**DECLARED, "bounds": Bounds(-1e160, 1e160, norm=1.0)}).plan(600, 12)
    with pytest.raises(UsageError, match="ranges of the channels are too wide"):
        PrivatePLSRegression(**{**DECLARED, "reference": np.full(12, 1e308), "bounds": (-1e100, 1e100)}).plan(600, 12)


@pytest.mark.guarantee
def test_studies_that_do_not_fit_are_refused() -> None:
    plan = PrivatePLSRegression(**DECLARED).plan(600, 12, sites={"a": 300, "b": 300})
    study, compiled = plan.study, load("pls").compile
    a, b = study.parties
    narrower = msgspec.structs.replace(b.columns[0], high=1.0)
    other = msgspec.structs.replace(b, columns=(narrower, *b.columns[1:]))
    with pytest.raises(UsageError, match="different columns"):
        compiled(msgspec.structs.replace(study, parties=(a, other)))
    lonely = msgspec.structs.replace(a, columns=a.columns[-1:])
    with pytest.raises(UsageError, match="at least one channel"):
        compiled(msgspec.structs.replace(study, parties=(lonely,)))
    with pytest.raises(UsageError, match="norm must be positive"):
        compiled(msgspec.structs.replace(study, parameters={**study.parameters, "norm": 0.0}))
    with pytest.raises(UsageError, match="a provider that all trust: set aggregation"):
        parameters = {"response": study.parameters["response"], "basis": "none", "n_components": 2}
        load("pls-published").compile(msgspec.structs.replace(study, calibration="published", parameters=parameters))


@pytest.mark.parametrize("epsilon", [10.0, math.inf])
def test_two_holders_of_the_published_form_give_their_rows_to_a_provider(epsilon: float) -> None:
    """The paper's setting: its algorithm on the concatenated rows, first those of the provider."""
    asked = {"basis": "none", "calibration": "published", "epsilon": epsilon, "delta": 0.01, "random_state": 3}
    several = PrivatePLSRegression(2, aggregation="trusted", **asked).fit(SMALL, TARGET, sites=LABELS)
    names = [card.name for card in several.plan_.study.parties]
    order = np.concatenate([np.flatnonzero(name == LABELS) for name in names])
    whole = np.column_stack([SMALL, TARGET])[order]
    assert several.x_scores_.shape == (600, 2)
    if epsilon == math.inf:
        one = PrivatePLSRegression(2, **asked).fit(whole[:, :-1], whole[:, -1])
        assert several.coef_ == pytest.approx(one.coef_, abs=0)
        assert several.x_scores_ == pytest.approx(one.x_scores_, abs=0)
    assert "Every other holder's rows go as they are" in str(several.statement_)
    assert several.communication_[names[1]]["sent"] > 600 // len(names) * 8


def test_no_rows_go_to_a_provider_unless_every_party_lists_both() -> None:
    """A policy that only trusts somebody with sums, or only takes part in published forms, gives no row away."""
    asked = {"basis": "none", "calibration": "published", "bounds": (-5, 5), "y_bounds": (-5, 15)}
    plan = PrivatePLSRegression(2, aggregation="trusted", **asked).plan(600, 12, sites=rows_of_sites())
    open_to = {"budget": None, "allow_in_process": True, "allow_simulation": True, "allow_derived": True, "approved": None}
    both = {"calibrations": frozenset(Calibration), "trust": frozenset({"trusted"})}
    for left_out, words in (("calibrations", "allows calibration sound"), ("trust", "does not list")):
        rules = Policy(**open_to, **{name: value for name, value in both.items() if name != left_out})
        with pytest.raises(PolicyRefusal, match=words):
            drive(load("pls-published"), plan, in_process(people(plan, rules)))
    outcome = drive(load("pls-published"), plan, in_process(people(plan, Policy(**open_to, **both))))
    assert outcome.result.participants == tuple(card.name for card in plan.study.parties)


def test_the_provider_takes_no_rows_of_another_shape() -> None:
    asked = {"basis": "none", "calibration": "published", "bounds": (-5, 5), "y_bounds": (-5, 15)}
    plan = PrivatePLSRegression(2, aggregation="trusted", **asked).plan(600, 12, sites=rows_of_sites())
    talk = load("pls-published").coordinate(plan)
    asks = next(talk)
    cards = {card.name: card.rows for card in plan.study.parties}
    assert [ask.to for ask in asks] == list(cards)[1:]
    wrong = [EntrustedRows(Entrusted("aggregation", Array.of(np.zeros((cards[ask.to] - 1, 13))))) for ask in asks]
    with pytest.raises(ProtocolError, match="other shapes"):
        talk.send(wrong)
    context = Context(next(iter(cards)), Table({"x": SMALL[:, 0]}), plan, "published", 0, None)  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="other shapes"):
        release_model(context, PublishedRequest())
    alone = PrivatePLSRegression(2, **asked).plan(600, 12)
    with pytest.raises(ProtocolError, match="no provider"):
        entrust(Context("all", Table({"x": SMALL[:, 0]}), alone, "rows", 0, None), Nothing())  # type: ignore[arg-type]


def people(plan: Plan, rules: Policy | None = None) -> dict[str, Party]:
    tables = Table({**{f"x{j}": SMALL[:, j] for j in range(12)}, "(response)": TARGET}).by_site(LABELS)
    made = {}
    for card in plan.study.parties:
        ledger = Ledger.in_memory(root_key=bytes(32))
        keys = KeySource(ledger.root_key)
        made[card.name] = Party(card.name, tables[card.name], card, ledger, keys, rules or Policy.in_process(), load)
    return made


def rows_of_sites() -> dict[str, int]:
    return {str(name): int((name == LABELS).sum()) for name in np.unique(LABELS)}


@pytest.mark.guarantee
@pytest.mark.parametrize("step", ["exact", "moments-fragment", "moments-noisy", "moments-total", "moments-agree"])
def test_no_step_of_another_form_is_answered_under_a_sound_plan(step: str) -> None:
    """A coordinator that asks for exact moments under an approved sound plan gets a refusal, and no charge."""
    plan = PrivatePLSRegression(**DECLARED, aggregation="local").plan(600, 12, sites=rows_of_sites())
    party = people(plan)["mill"]
    party.answer(encode(plan.hash, "open", 0, OpenRequest(plan.study)))
    with pytest.raises(ProtocolError, match="no step"):  # the published form's own is none of this model's
        party.answer(encode(plan.hash, "published", 0, Nothing()))
    model = find_step(load("pls"), step)
    empty = {
        "moments-fragment": {"nodes": ()},
        "moments-agree": {"participants": ()},
        "moments-noisy": {"participants": (), "sealed": ()},
        "moments-total": {"participants": (), "sealed": ()},
    }
    request = model.request(**empty.get(step, {}))
    with pytest.raises((PlanMismatch, UsageError)):
        party.answer(encode(plan.hash, step, 0, request))
    assert party.ledger.entries() == ()


@pytest.mark.guarantee
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_settings_and_noisy_steps_have_no_place_beside_the_plan(epsilon: float) -> None:
    from unpooled.totals.total import LocalRequest

    plan = PrivatePLSRegression(**{**DECLARED, "epsilon": epsilon}, aggregation="local").plan(600, 12, sites=rows_of_sites())
    party = people(plan)["port"]
    party.answer(encode(plan.hash, "open", 0, OpenRequest(plan.study)))
    with pytest.raises(PlanMismatch):
        party.answer(encode(plan.hash, "moments-local", 0, LocalRequest((1.0,))))
    if math.isinf(epsilon):
        with pytest.raises(PlanMismatch, match="belongs to step 'exact'"):
            party.answer(encode(plan.hash, "moments-local", 0, LocalRequest()))
        with pytest.raises(PlanMismatch, match="one more"):
            party.answer(encode(plan.hash, "exact", 1, Nothing()))
    assert party.ledger.entries() == ()


@pytest.mark.guarantee
def test_real_policies_refuse_exact_moments_and_published_models() -> None:
    from unpooled.privacy.unit import Target

    rules = Policy(Target(10.0, 1e-3), allow_in_process=True, approved=None)
    exact = PrivatePLSRegression(**{**DECLARED, "epsilon": math.inf}).plan(600, 12, sites=rows_of_sites())
    with pytest.raises(PolicyRefusal, match="no privacy"):
        people(exact, rules)["mill"].answer(encode(exact.hash, "open", 0, OpenRequest(exact.study)))
    published = PrivatePLSRegression(
        2, basis="none", calibration="published", bounds=(-5, 5), y_bounds=(-5, 15), delta=1e-4
    ).plan(600, 12, sites={"mill": rows_of_sites()["mill"]})
    with pytest.raises(PolicyRefusal, match="calibration"):
        people(published, rules)["mill"].answer(encode(published.hash, "open", 0, OpenRequest(published.study)))
    sound = PrivatePLSRegression(**DECLARED).plan(600, 12, sites=rows_of_sites())
    with pytest.raises(BudgetRefusal):
        people(sound, replace(rules, budget=Target(0.1, 1e-5)))["mill"].answer(
            encode(sound.hash, "open", 0, OpenRequest(sound.study))
        )


def test_parties_that_are_gone_end_an_exact_or_published_study() -> None:
    for parameters, words in (
        ({"epsilon": math.inf}, "only 2 of 3 parties"),
        ({"epsilon": math.inf, "tolerate": 1}, None),
    ):
        plan = PrivatePLSRegression(**{**DECLARED, **parameters}).plan(600, 12, sites=rows_of_sites())
        present = people(plan)

        def exchange(batch, present=present):
            gone = [ask.to == "silo" and ask.step == "exact" for ask, _ in batch]
            return [
                Dropped(ask.to, "away") if g else present[ask.to].answer(b) for g, (ask, b) in zip(gone, batch, strict=True)
            ]

        if words is None:
            assert drive(load("pls"), plan, exchange).result.participants == ("mill", "port")
        else:
            with pytest.raises(StudyAborted, match=words):
                drive(load("pls"), plan, exchange)
    plan = PrivatePLSRegression(2, calibration="published", basis="none", bounds=(-5, 5), y_bounds=(-5, 15)).plan(600, 12)
    talk = load("pls-published").coordinate(plan)
    next(talk)
    with pytest.raises(StudyAborted, match="dropped out"):
        talk.send([Dropped("all", "away")])


# --- one release, many models -------------------------------------------------------------------------------------------------


@pytest.mark.minutes
def test_moments_give_other_models_free_of_charge(tmp_path) -> None:
    model = PrivatePLSRegression(**DECLARED, epsilon=20.0, random_state=0).fit(SMALL, TARGET)
    model.moments_.save(tmp_path / "moments")
    moments = Moments.load(tmp_path / "moments")
    same = PrivatePLSRegression.from_moments(moments, n_features=12, **DECLARED)
    assert np.array_equal(same.coef_, model.coef_)
    assert same.intercept_ == model.intercept_
    assert np.array_equal(same.predict(SMALL), model.predict(SMALL))
    assert moments.statement == str(model.statement_)
    two = PrivatePLSRegression.from_moments(moments, n_features=12, n_components=2, basis_size=5)
    assert two.n_components_ == 2
    assert two.transform(SMALL).shape == (600, 2)
    with pytest.raises(AttributeError, match="released elsewhere"):
        _ = two.statement_
    with pytest.raises(UsageError, match="do not fit a basis of 6"):
        PrivatePLSRegression.from_moments(moments, n_features=12, basis_size=6)
    with pytest.raises(UsageError, match="n_components = 9"):
        PrivatePLSRegression.from_moments(moments, n_features=12, basis_size=5, n_components=9)


def test_exact_moments_can_be_used_again() -> None:
    model = PrivatePLSRegression(3, epsilon=math.inf, basis_size=5, reference=np.full(12, 0.2)).fit(
        SMALL, TARGET, sites=LABELS
    )
    same = PrivatePLSRegression.from_moments(model.moments_, n_components=3, basis_size=5, reference=np.full(12, 0.2))
    assert same.coef_ == pytest.approx(model.coef_, rel=1e-6)
    assert same.predict(SMALL) == pytest.approx(model.predict(SMALL), rel=1e-8)


def test_moments_of_a_bayesian_release_serve_too() -> None:
    bayes = PrivateBayesianRegression(epsilon=math.inf, bounds=(-5, 5), y_bounds=(-5, 15), geometry="augmented").fit(
        SMALL, TARGET
    )
    model = PrivatePLSRegression.from_moments(bayes.moments_, basis="none", n_components=3)
    wanted = PLSRegression(3, scale=False).fit(SMALL, TARGET)
    assert model.coef_ == pytest.approx(wanted.coef_.ravel(), rel=1e-3, abs=1e-3)
    assert model.predict(SMALL) == pytest.approx(wanted.predict(SMALL), rel=1e-3)
    design = bayes.moments_.layout
    named = tuple(msgspec.structs.replace(c, name=f"nm {k}") for k, c in enumerate(design.features))
    other = PrivatePLSRegression.from_moments(replace(bayes.moments_, layout=replace(design, features=named)), basis="none")
    assert other.feature_names_in_[3] == "nm 3"
    ball = PrivateBayesianRegression(epsilon=math.inf, bounds=(-5, 5), y_bounds=(-5, 15)).fit(SMALL, TARGET)
    with pytest.raises(UsageError, match="augmented"):
        PrivatePLSRegression.from_moments(ball.moments_, basis="none")
    grouped = np.column_stack([RNG.integers(0, 2, 600).astype(float), SMALL[:, 0]])
    bounds = Bounds([0, -5], [1, 5], categories={0: [0, 1]})
    mixed = PrivateBayesianRegression(epsilon=math.inf, bounds=bounds, y_bounds=(-5, 15), geometry="augmented")
    with pytest.raises(UsageError, match="no place in a spectrum"):
        PrivatePLSRegression.from_moments(mixed.fit(grouped, TARGET).moments_, basis="none")


# --- the rule -----------------------------------------------------------------------------------------------------------------


@pytest.mark.minutes
def test_a_signal_below_its_noise_gives_the_public_mean_and_says_so() -> None:
    with pytest.warns(UserWarning, match="the posterior is the prior"):
        model = PrivatePLSRegression(**DECLARED, epsilon=0.01, random_state=1).fit(SMALL, TARGET)
    assert model.n_components_ == 0
    assert not model.coef_.any()
    assert model.predict(SMALL) == pytest.approx(np.full(600, 5.0), abs=0.5)  # near the middle of the declared range
    assert model.transform(SMALL).shape == (600, 0)
    assert "given the response's mean" in model.fallback_
    assert reconstruction(model.x_weights_, np.eye(12)[:, :2], 5).prominence == 0


@pytest.mark.guarantee
def test_a_response_that_does_not_vary_is_given_its_mean() -> None:
    model = PrivatePLSRegression(epsilon=math.inf).fit(SMALL, np.full(600, 3.0))
    assert "does not vary" in model.fallback_
    assert model.predict(SMALL) == pytest.approx(np.full(600, 3.0))


@pytest.mark.slow
@pytest.mark.minutes
def test_the_chosen_number_of_components_is_one_that_is_tried() -> None:
    for epsilon in (3.0, 30.0, math.inf):
        found = [PrivatePLSRegression(**DECLARED, epsilon=epsilon, random_state=s).fit(SMALL, TARGET) for s in range(5)]
        assert all(1 <= model.n_components_ <= 12 for model in found)
    exact = fit(Centred.of(SMALL, TARGET), Frame.of("none", 12, 0, np.zeros(12)), "cv")
    assert 1 <= exact.components <= 12


@pytest.mark.slow
def test_a_result_is_readable() -> None:
    plan = PrivatePLSRegression(1, **DECLARED, random_state=0, epsilon=20.0).plan(600, 12, sites=rows_of_sites())
    outcome = drive(load("pls"), plan, in_process(people(plan)))
    text = render(outcome.result)
    assert "1 component of 12 channels" in text
    assert "(intercept)" in text
    assert "rows of mill, port, silo" in text
    assert "projected rows" in str(plan.statement)


# --- the published form -------------------------------------------------------------------------------------------------------


def published(epsilon: float, **changes) -> PrivatePLSRegression:
    options = {
        "n_components": 3,
        "basis": "none",
        "calibration": "published",
        "epsilon": epsilon,
        "delta": 0.01,
        "random_state": 0,
    }
    return PrivatePLSRegression(**{**options, **changes})


def test_published_without_noise_is_ordinary_pls() -> None:
    ours, wanted = published(math.inf, n_components=6).fit(X, Y), PLSRegression(6, scale=False).fit(X, Y)
    assert ours.coef_ == pytest.approx(wanted.coef_.ravel(), rel=1e-5, abs=1e-7)
    assert ours.predict(X) == pytest.approx(wanted.predict(X), abs=1e-7)
    assert ours.x_weights_ == pytest.approx(wanted.x_weights_, abs=1e-7)
    lengths = np.linalg.norm(wanted.x_scores_, axis=0)  # the paper's scores have length 1
    assert ours.x_scores_ == pytest.approx(wanted.x_scores_ / lengths, abs=1e-7)
    assert ours.transform(X) == pytest.approx(ours.x_scores_, abs=1e-6)
    assert not hasattr(ours, "moments_")


@pytest.mark.guarantee
@pytest.mark.parametrize("sd", ["sigma", "sigma^2"])
def test_published_noise_has_the_papers_deviations(sd: str) -> None:
    layout = ComponentsLayout(60, 5, 2)
    exact = components(SMALL[:60, :5], TARGET[:60], layout)
    sigma = gaussian_sigma(1.0, 0.01)
    mechanism = PublishedModel(layout, sigma, sd)
    plain = drawn(PublishedModel(layout, 0.0, sd), exact, KeySource.simulation(0).stream("x"))
    assert np.array_equal(plain, exact[: layout.size])
    draws = np.array([drawn(mechanism, exact, KeySource.simulation(k).stream("x")) for k in range(400)])
    x, y = exact[layout.size :].reshape(2, 2).T
    loadings = np.array([layout.parts(draw)[2] for draw in draws])
    last = np.array([layout.parts(draw)[3] for draw in draws])
    for k in range(2):
        deviation = sigma * np.array([x[k], y[k]])
        deviation = deviation if sd == "sigma" else deviation**2
        assert loadings[:, :, k].std(axis=0) == pytest.approx(np.full(5, deviation[0]), rel=0.15)
        assert last[:, k].std() == pytest.approx(deviation[1], rel=0.15)
    w, t, *_ = layout.parts(draws[0])
    assert np.linalg.norm(w, axis=0) == pytest.approx(np.ones(2))
    assert np.linalg.norm(t, axis=0) == pytest.approx(np.ones(2))
    assert mechanism.change(exact, -exact) is None  # nothing to hold it against
    assert mechanism.event(Unit.RECORD) == UNBOUNDED
    assert mechanism.sensitivity(Unit.RECORD) is None
    with pytest.raises(UsageError, match="two bounds for each of 2 components"):
        drawn(mechanism, exact[1:], KeySource.simulation(0).stream("x"))


@pytest.mark.parametrize("epsilon", [1.0, 10.0, 100.0, 1e3, 1e4])
def test_published_noise_is_the_analytic_one_at_every_epsilon(epsilon: float) -> None:
    """C1: it was capped at that of epsilon = 30. The multiplier is 1 / mu*(epsilon, delta), solved here with 60 digits."""
    (release,) = published(epsilon, bounds=(-5, 5), y_bounds=(-5, 15), delta=0.01).plan(60, 12).releases
    assert isinstance(release.mechanism, PublishedModel)
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)

        def excess(mu: mpmath.mpf) -> mpmath.mpf:
            second = mpmath.exp(e) * mpmath.erfc((mu / 2 + e / mu) / mpmath.sqrt(2)) / 2
            return mpmath.erfc((e / mu - mu / 2) / mpmath.sqrt(2)) / 2 - second - mpmath.mpf(0.01)

        start = 1 / mpmath.mpf(release.mechanism.multiplier)
        true = mpmath.findroot(
            excess, (start * (1 - mpmath.mpf(10) ** -4), start * (1 + mpmath.mpf(10) ** -4)), solver="anderson"
        )
        assert abs(release.mechanism.multiplier * true - 1) < 1e-9


def test_published_is_recorded_as_unbounded_and_says_why() -> None:
    model = published(1.0).fit(SMALL, TARGET)
    assert not model.statement_.holds
    text = str(model.statement_)
    for words in ("units of X'y", "computed from the data", "does not add up"):
        assert words in text
    assert math.isinf(model.plan_.epsilon(0.01))
    assert [r.name for r in model.plan_.releases] == ["model"]


@pytest.mark.slow
@pytest.mark.minutes
def test_published_errors_rise_as_epsilon_falls() -> None:
    """Figures 3 and 5: with a derivative in front and the package's deviation, as good as no noise at 100, useless at 0.1."""
    fresh = make_spectra(300, kind="corn", seed=2)
    errors = {}
    for epsilon in (0.1, 1.0, 100.0, math.inf):
        found = []
        for seed in range(3):
            model = published(epsilon, sd="sigma^2", random_state=seed, n_components=6).fit(derivative(X), Y)
            found.append(np.sqrt(np.mean((model.predict(derivative(fresh.spectra)) - fresh.response) ** 2)) / 0.4)
        errors[epsilon] = float(np.median(found))
    print(errors)
    assert errors[0.1] > 1
    assert errors[100.0] < 0.5
    assert errors[0.1] > errors[1.0] > errors[100.0] >= 0.9 * errors[math.inf]


# --- the attack ---------------------------------------------------------------------------------------------------------------

BANDS = make_spectra(200, seed=0)


def attacks(model: PrivatePLSRegression) -> list[float]:
    """Both holders look for the other's band in the weights and in the loadings."""
    found = []
    for holder, band in (("one", 30), ("two", 40)):
        mine = BANDS.holder == holder
        own = PLSRegression(3, scale=False).fit(BANDS.spectra[mine], BANDS.response[mine]).x_weights_
        found += [reconstruction(part, own, band).prominence for part in (model.x_weights_, model.x_loadings_)]
    return found


def test_the_attack_succeeds_on_an_unprotected_model() -> None:
    model = PrivatePLSRegression(3, **EXACT).fit(BANDS.spectra, BANDS.response, sites=BANDS.holder)
    assert min(attacks(model)) > 10


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 10.0])
@pytest.mark.parametrize("basis", ["none", "dct"])
def test_the_attack_fails_on_the_sound_model(basis: str, epsilon: float) -> None:
    found = []
    for seed in range(sized(41, 21)):
        model = PrivatePLSRegression(
            3,
            basis=basis,
            epsilon=epsilon,
            delta=0.01,
            bounds=Bounds(norm=300.0),
            y_bounds=(0, 10),
            reference=BANDS.mean_spectrum,
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found.append(attacks(model.fit(BANDS.spectra, BANDS.response, sites=BANDS.holder)))
    print(np.median(found, axis=0))
    assert (np.median(found, axis=0) < 2).all()  # unprotected: 39 and 22


def test_the_published_form_hides_the_band_as_the_paper_shows() -> None:
    """Figure 2: found at epsilon = 100, in the loadings at 10, hidden at 1."""
    loadings = {
        e: np.median([attacks(published(e, random_state=s).fit(BANDS.spectra, BANDS.response))[1] for s in range(5)])
        for e in (1.0, 10.0, 100.0)
    }
    print(loadings)
    assert loadings[100.0] > 10
    assert loadings[10.0] > 5
    assert loadings[1.0] < 4


def test_attacks_on_other_shapes_are_refused() -> None:
    with pytest.raises(UsageError, match="channels x components"):
        reconstruction(np.ones((5, 2)), np.ones((6, 2)), 0)
    with pytest.raises(UsageError, match="the band is one of them"):
        reconstruction(np.ones((5, 2)), np.ones((5, 2)), 5)


def test_simulators_know_their_kinds() -> None:
    with pytest.raises(UsageError, match="bands or corn"):
        make_spectra(10, kind="meat")
    one, two = BANDS.holder == "one", BANDS.holder == "two"
    assert BANDS.spectra[one] @ np.linalg.pinv(BANDS.pure) @ np.eye(4)[3] == pytest.approx(np.zeros(100), abs=1e-9)
    assert BANDS.spectra[two] @ np.linalg.pinv(BANDS.pure) @ np.eye(4)[2] == pytest.approx(np.zeros(100), abs=1e-9)
    assert np.abs(CORN.spectra.mean(axis=0) - CORN.mean_spectrum).max() < 0.02
