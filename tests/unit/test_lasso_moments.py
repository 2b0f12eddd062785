"""The LASSO from moments of standardised columns: its sensitivities by search, its fit, its outlook, what it refuses."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from unpooled import PrivateLasso, UtilityWarning
from unpooled.errors import ProtocolError, UsageError
from unpooled.models import load
from unpooled.models.lasso import moments_rows
from unpooled.models.lasso.frank_wolfe_fit import render
from unpooled.models.lasso.frank_wolfe_rows import grids
from unpooled.models.lasso.joint import Form, form_of
from unpooled.models.lasso.moments_fit import (
    OwnMoments,
    believed_moments,
    combined,
    fitting,
    heard_rows,
    in_ball,
    shared_axes,
    standards_of,
)
from unpooled.models.lasso.moments_rows import (
    AXIS,
    CHOOSE,
    CROSSING,
    PRODUCTS,
    SUMS,
    AxisRequest,
    ChooseRequest,
    CrossingRequest,
    ProductsRequest,
    StandardDesign,
    Standards,
    design_of,
)
from unpooled.privacy.bounds import Column
from unpooled.privacy.mechanisms import Scores, Vector
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Unit
from unpooled.protocol.messages import Array, Nothing

pytestmark = pytest.mark.filterwarnings("ignore:radius is in half ranges:FutureWarning")
N, MORE = 12, {"radius": 1.0, "bounds": (-1, 1), "y_bounds": (-2, 2), "delta": 1e-5}
RNG = np.random.default_rng(5)


def study(epsilon: float = 300.0, widths: tuple[int, ...] = (3, 7), rows: int = N, **changes) -> Study:
    cards = tuple(
        Card(f"p{k}", rows, tuple(Column(f"x{k}_{j}", -1.0, 1.0) for j in range(width)), ("y",))
        for k, width in enumerate(widths)
    )
    parameters = {"radius_in_half_ranges": 3.0, "response_bound": 1.0, **changes.pop("parameters", {})}
    return Study("lasso", cards, epsilon, 1e-5, parameters=parameters, simulation_seed=1, derived=(), **changes)


class Recorder:
    """A context that keeps what would be released."""

    def __init__(self, plan, name: str, table: Table) -> None:
        self.plan, self.name, self.table, self.index = plan, name, table, 0
        self.given: list = []

    @property
    def design(self) -> StandardDesign:
        return self.plan.design

    @property
    def card(self) -> Card:
        return self.plan.study.card(self.name)

    def planned(self, name: str):
        return self.plan.release(self.name, name)

    def release(self, name: str, given):
        self.given.append(given)
        raise StopIteration


def statistic(plan, name: str, rows: np.ndarray, step, request):
    """What a step would release of these rows (the response last)."""
    names = [column.name for column in plan.study.card(name).columns]
    context = Recorder(plan, name, Table(dict(zip([*names, "y"], rows.T, strict=True))))
    with pytest.raises(StopIteration):
        step(context, request)
    return context.given[0]


def requests(plan, name: str) -> dict:
    """A request of every step, whose public numbers are as wild as a coordinator may make them."""
    design = plan.design
    width, kept = design.widths[name], design.kept[name]
    all_of = Standards((0.3,) * width, (0.05,) * width, (0.1, 0.1))
    some = Standards(all_of.middle[:kept], all_of.width[:kept], all_of.response)
    axis = AxisRequest(some, tuple(range(kept)), tuple((-1.0) ** j * 3 for j in range(kept)))
    others = RNG.normal(size=(plan.study.parties[0].rows, len(plan.study.parties) - 1)) * 50
    return {
        SUMS: (moments_rows.sums, Nothing()),
        CHOOSE: (moments_rows.choose, ChooseRequest(all_of, ())),
        PRODUCTS: (moments_rows.products, ProductsRequest(some, tuple(range(kept)))),
        AXIS: (moments_rows.axis, axis),
        CROSSING: (moments_rows.crossing, CrossingRequest(axis, Array.of(others))),
    }


def ends(width: int) -> list[np.ndarray]:
    """Rows that move things far: corners, the middle, single columns, random ones."""
    rng = np.random.default_rng(7)
    corners = [np.append(s * np.ones(width), t) for s in (-1, 1) for t in (-1, 1)]
    singles = [np.append(s * np.eye(width)[0], t) for s in (-1, 1) for t in (-1, 0, 1)]
    return [np.zeros(width + 1), *corners, *singles, *(rng.uniform(-1, 1, width + 1) for _ in range(6))]


def farthest(plan, name: str, release: str) -> tuple[float, float]:
    """(the farthest that replacing one row moved a release, in the metric of its noise; what was declared)."""
    step, request = requests(plan, name)[release]
    width = plan.design.widths[name]
    base = np.random.default_rng(3).uniform(-1, 1, (plan.study.parties[0].rows, width + 1))
    found = []
    for row in ends(width):
        rows = base.copy()
        rows[4] = row
        found.append(statistic(plan, name, rows, step, request))
    mechanism = plan.release(name, release).mechanism
    if isinstance(found[0], Scores):
        return max(float(np.abs(a.values - b.values).max()) for a in found for b in found), float(found[0].sensitivity)
    assert isinstance(found[0], Vector)
    widths = mechanism.deviations / mechanism.scale
    moved = max(float(np.linalg.norm((a.values - b.values) / widths)) for a in found for b in found)
    return moved, dict(mechanism.reach)[Unit.RECORD].distance


@pytest.mark.parametrize("release", [SUMS, CHOOSE, PRODUCTS, AXIS, CROSSING])
@pytest.mark.parametrize("name", ["p0", "p1"])
def test_no_row_moves_a_release_farther_than_declared(name: str, release: str) -> None:
    """Theorems L.7 to L.10 by search, at public numbers that no honest coordinator sends."""
    plan = load("lasso").compile(study())
    if (name, release) == ("p0", CHOOSE):
        return  # it keeps all its columns
    moved, declared = farthest(plan, name, release)
    assert 0.2 * declared < moved <= declared * (1 + 1e-12)


@pytest.mark.parametrize(
    ("release", "name", "value"),
    [(CHOOSE, "PAIR", 400.0), (AXIS, "AXIS_CAP", None), (CROSSING, "shortened", lambda columns: (columns, 1.0))],
)
def test_controls_that_forget_a_bound_are_caught(release: str, name: str, value, monkeypatch) -> None:
    """The control clips products late, scores not at all, and does not divide the others' rows."""
    plan = load("lasso").compile(study())
    honest = farthest(plan, "p1", release)[1]
    if value is None:
        original = moments_rows._axis
        monkeypatch.setattr(moments_rows, "_axis", lambda *a: original(*a) * 3)
    else:
        monkeypatch.setattr(moments_rows, name, value)
    assert farthest(plan, "p1", release)[0] > honest


def test_controls_that_forget_to_shorten_or_to_clip_are_caught(monkeypatch) -> None:
    """The control leaves rows three times as long, and a response beyond its bound."""
    plan, original, shorten = load("lasso").compile(study()), moments_rows.response_of, moments_rows._shortened

    declared = farthest(plan, "p1", PRODUCTS)[1]
    monkeypatch.setattr(moments_rows, "_shortened", lambda r, y, g, longest, clip: shorten(r, y, g, 3 * longest, clip))
    assert farthest(plan, "p1", PRODUCTS)[0] > declared
    declared = farthest(plan, "p0", SUMS)[1]
    monkeypatch.setattr(moments_rows, "response_of", lambda *a: original(*a) * 3)
    assert farthest(plan, "p0", SUMS)[0] > declared


def test_a_row_at_all_parties_costs_what_was_asked_and_a_value_no_more() -> None:
    """Theorem L.7: squares of the parties' shares add up; the control gives each party all of it."""
    for widths in ((3, 7), (2, 2, 9), (1, 1)):
        plan = load("lasso").compile(study(5.0, widths, rows=3000))
        assert plan.epsilon(1e-5, Unit.RECORD) == pytest.approx(5.0, rel=0.02)
        assert plan.epsilon(1e-5, Unit.RECORD) <= 5.0
        assert plan.epsilon(1e-5, Unit.ATTRIBUTE) <= 5.0
        value = load("lasso").compile(study(5.0, widths, rows=3000, unit="attribute"))
        assert value.epsilon(1e-5, Unit.ATTRIBUTE) <= 5.0 < value.epsilon(1e-5, Unit.RECORD)


def correlated(n: int, seed: int, correlation: float, d: int = 24) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.sqrt(1 - correlation) * rng.normal(size=(n, d)) + np.sqrt(correlation) * rng.normal(size=(n, 1))
    X = np.clip(X / 2, -1, 1)
    truth = np.zeros(d)
    truth[rng.choice(d, 5, replace=False)] = rng.uniform(0.2, 0.5, 5) * rng.choice([-1, 1], 5)
    return X, np.clip(X @ truth + 0.2 * rng.normal(size=n) + 0.3, -2, 2), truth


@pytest.mark.slow_for("0.5")
@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_whole_rows_are_protected_and_something_is_learnt(correlation: float) -> None:
    errors = []
    for seed in range(6):
        X, y, _ = correlated(12_000, seed, correlation)
        model = PrivateLasso(4, unit="record", random_state=seed, **MORE).fit(X, y)
        errors.append(np.mean((y - model.predict(X)) ** 2) / y.var())
        assert np.abs(model.coef_).sum() <= 2.0 + 1e-9
        assert model.statement_.to_dict()["epsilon"] is not None
    assert max(errors) < 0.9
    assert np.median(errors) < 0.65


def fitted(owns: list[OwnMoments], x: np.ndarray, stages: int) -> np.ndarray:
    """Without noise, in a ball that does not matter."""
    steps = fitting(
        owns, np.ones(x.shape[1]), lambda gram, cross, _, scale: (in_ball(gram, cross, scale, 50.0), 0.0), stages
    )
    ends = np.cumsum([own.cross.size for own in owns])[:-1]
    answer = None
    while True:
        try:
            axes = steps.send(answer)
        except StopIteration as ended:
            return np.asarray(ended.value[0])
        scores = [
            np.clip(part @ axis.direction, -1.5, 1.5) for part, axis in zip(np.split(x, ends, axis=1), axes, strict=True)
        ]
        answer = np.array(scores) @ np.array(scores).T / len(x), np.zeros((len(owns), len(owns)))


def moments_of(x: np.ndarray, y: np.ndarray, parties: int) -> list[OwnMoments]:
    gram, cross, width = x.T @ x / len(x), x.T @ y / len(x), x.shape[1] // parties
    return [
        OwnMoments(gram[k : k + width, k : k + width], cross[k : k + width], 1e-6, 1e-6) for k in range(0, x.shape[1], width)
    ]


def unexplained(x: np.ndarray, y: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean((y - x @ b) ** 2) / y.var())


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.7])
def test_a_fit_to_noisy_products_is_believed_to_vary_no_less_than_it_does(correlation: float) -> None:
    """The fit looks for what the noise made small: without more on the diagonal it varies 1.2 to 2.8 times what is believed."""
    d, rng = 40, np.random.default_rng(0)
    alike = np.where(np.eye(d), 1.0, correlation)
    for noise in (0.01, 0.03, 0.05, 0.1):
        found = []
        for _ in range(40):
            slopes = rng.normal(size=d)
            slopes *= 0.8 / math.sqrt(slopes @ alike @ slopes)
            error = rng.normal(size=(d, d)) * noise
            told = alike @ slopes + rng.normal(size=d) * noise
            believed = OwnMoments(alike + (error + error.T) / math.sqrt(2), told, noise, noise).repaired[0]
            fit = np.linalg.solve(believed, told)
            varies = fit @ alike @ fit
            found.append((varies / (fit @ believed @ fit), 1 - 2 * fit @ alike @ slopes + varies))
        ratio, left = np.mean(found, axis=0)
        assert ratio < 1.15
        assert left < 1.0


@pytest.mark.parametrize("parties", [2, 3, 8])
def test_half_of_what_sums_may_cost_is_for_the_mean_of_the_response(parties: int) -> None:
    """Every other party's numbers rely on it; together they cost what was asked for, whoever holds how many columns."""
    plan = load("lasso").compile(study(3.0, widths=(3, *[7] * (parties - 1)), rows=20_000))
    squared = [plan.release(card.name, SUMS).event(Unit.RECORD).value ** 2 for card in plan.study.parties]
    assert squared[0] > sum(squared) / 2
    assert max(squared[1:]) / min(squared[1:]) == pytest.approx(1.0)


def test_common_axes_save_correlated_columns() -> None:
    """The control leaves cross terms at zero: what all parties' columns share is then counted as often as there are parties."""
    rng = np.random.default_rng(0)
    x = math.sqrt(0.5) * rng.normal(size=(20_000, 24)) + math.sqrt(0.5) * rng.normal(size=(20_000, 1))
    y = x.sum(axis=1) + rng.normal(size=20_000)
    y /= y.std()
    owns = moments_of(x, y, 4)
    assert unexplained(x, y, fitted(owns, x, 2)) < 0.2
    assert unexplained(x, y, fitted(owns, x, 1)) < 0.2
    assert unexplained(x, y, in_ball(*combined(owns, None, 24), np.ones(24), 50.0)) > 1.5


def test_columns_that_no_single_factor_ties_are_not_explained_twice() -> None:
    """Three factors across the parties: first axes alone leave two of them untied (the control), and end far worse than the mean."""
    rng = np.random.default_rng(3)
    errors: dict[str, list[float]] = {"one": [], "two": [], "first axes alone": []}
    for _ in range(5):
        x = rng.normal(size=(8000, 3)) @ rng.normal(size=(3, 40)) + 1.2 * rng.normal(size=(8000, 40))
        x /= x.std(axis=0)
        y = x @ rng.normal(size=40)
        y = y / y.std() + 0.8 * rng.normal(size=8000)
        y /= y.std()
        owns = moments_of(x, y, 8)
        axes = [np.clip(x[:, 5 * k : 5 * k + 5] @ own.repaired[1], -1.5, 1.5) for k, own in enumerate(owns)]
        told = np.array([own.repaired[1] @ own.cross for own in owns])
        tied = shared_axes(np.array(axes) @ np.array(axes).T / len(x), np.zeros((8, 8)), told)
        errors["first axes alone"].append(unexplained(x, y, in_ball(*combined(owns, tied, 40), np.ones(40), 50.0)))
        errors["one"].append(unexplained(x, y, fitted(owns, x, 1)))
        errors["two"].append(unexplained(x, y, fitted(owns, x, 2)))
    assert max(errors["one"] + errors["two"]) < 0.75
    assert np.mean(errors["first axes alone"]) > 1.2


def test_a_party_whose_columns_say_nothing_has_no_part() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(4000, 6))
    y = x[:, 0] - x[:, 2]
    owns = moments_of(x, y / y.std(), 3)
    silent = [*owns[:2], OwnMoments(owns[2].gram, np.zeros(2), 1e-6, 1e-6)]
    for stages in (1, 2):
        found = fitted(silent, x, stages)
        assert np.abs(found[4:]).max() < 0.01 * (stages - 1) + 1e-15  # two stages may make a suppressor of it
        assert unexplained(x, y / y.std(), found) < 0.02
    assert not fitted([OwnMoments(own.gram, np.zeros(2), 1e-6, 1e-6) for own in owns], x, 1).any()


def directions(kind: str, count: int, alike: float, rng: np.random.Generator) -> np.ndarray:
    """Correlations of so many directions of one factor, of two blocks, or of a factor that they follow unevenly."""
    weights = math.sqrt(alike) * (rng.uniform(-1, 1, count) if kind == "uneven" else rng.choice([-1.0, 1.0], count))
    correlations = np.outer(weights, weights)
    if kind == "blocks":
        block = rng.integers(0, 2, count)
        correlations[block[:, None] != block] = 0.0
    np.fill_diagonal(correlations, 1.0)
    return correlations


def excesses(moments, count: int, noise: float, kind: str, alike: float) -> np.ndarray:
    """What a fit by believed moments loses, as a part of what directions explain: the mean has 1."""
    rng, found = np.random.default_rng([count, int(100 * noise), len(kind), int(100 * alike)]), []
    for explained in (0.2, 0.9) * 40:
        exact = directions(kind, count, alike, rng)
        b = rng.normal(size=count)
        b *= math.sqrt(explained / (b @ exact @ b))
        told, upper = exact @ b, np.triu(noise * rng.normal(size=exact.shape), 1)
        left = np.linalg.solve(moments(exact + upper + upper.T, noise, told), told) - b
        found.append(left @ exact @ left / explained)
    return np.array(found)


WORLDS = [
    (k, s, kind, a)
    for k in (2, 5, 12)
    for s in (0.05, 0.3, 1.0, 4.0)
    for kind in ("one", "blocks", "uneven")
    for a in (0.0, 0.5, 0.9)
]


@pytest.mark.long
@pytest.mark.slow
def test_a_fit_by_what_is_believed_in_common_is_not_worse_than_the_mean() -> None:
    """Over shapes that were declared beforehand; nothing in common is the control, and so is the noisy matrix made positive."""

    def raised(correlations: np.ndarray, noise: float, told: np.ndarray) -> np.ndarray:
        values, vectors = np.linalg.eigh(correlations)
        return (vectors * np.maximum(values, 0.1)) @ vectors.T

    found = {world: excesses(believed_moments, *world).mean() for world in WORLDS}
    assert max(found.values()) < 0.85, max(found, key=found.get)
    assert np.mean([value for (_, noise, _, _), value in found.items() if noise == 0.05]) < 0.05
    for control in (lambda correlations, noise, told: np.eye(told.size), raised):
        assert max(excesses(control, *world).mean() for world in WORLDS[-18:]) > 3


def test_what_is_known_of_directions_is_believed_and_no_more_than_there_is_is_explained() -> None:
    rng = np.random.default_rng(2)
    for count in (2, 3, 7):
        for _ in range(20):
            factors = rng.normal(size=(count, count + 3))
            exact = factors @ factors.T
            exact /= np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
            if np.linalg.eigvalsh(exact)[0] < 0.15 or np.abs(exact - np.eye(count)).max() > 0.9:
                continue
            assert believed_moments(exact, 0.0, np.zeros(count)) == pytest.approx(exact, abs=0.02)
            told = rng.uniform(-1, 1, count)
            believed = believed_moments(exact, rng.uniform(0, 1), told)
            assert told @ np.linalg.solve(believed, told) <= 1 + 1e-9
    assert believed_moments(np.eye(1), 1.0, np.ones(1)) == pytest.approx(np.eye(1))
    assert believed_moments(np.zeros((0, 0)), 0.0, np.zeros(0)).shape == (0, 0)


@pytest.mark.slow
def test_no_plan_costs_more_than_was_asked() -> None:
    """Over widths, rows, epsilons and units, with picks and without, for every number of stages; each was met."""
    rng, met = np.random.default_rng(0), set()
    for _ in range(120):
        widths = tuple(int(w) for w in rng.integers(1, 80, int(rng.integers(1, 9))))
        epsilon, rows = float(10 ** rng.uniform(-1, 2)), int(10 ** rng.uniform(2, 5))
        unit = Unit(str(rng.choice(["record", "attribute"])))
        plan = load("lasso").compile(study(epsilon, widths, rows=rows, unit=str(unit)))
        assert plan.epsilon(1e-5, unit) <= epsilon * (1 + 1e-9)
        met.add((plan.design.stages, plan.design.mean_only, any(plan.design.picks(name) for name in plan.design.parties)))
    assert {stages for stages, _, _ in met} == {0, 1, 2}
    assert {only for _, only, _ in met} == {picks for _, _, picks in met} == {False, True}


@pytest.mark.long_for("0.0-9", "0.0-3", "0.0-1")
@pytest.mark.slow_for("0.0-1", "0.0-3", "0.0-9")
@pytest.mark.parametrize("others", [1, 3, 9])
@pytest.mark.parametrize("noise", [0.0, 0.7, 4.0, 30.0])
def test_products_with_shortened_rows_are_a_known_part_of_the_exact_ones(noise: float, others: int) -> None:
    """Against the same products with the whole rows; without the part (the control) they are too small where noise is large."""
    rng = np.random.default_rng([others, int(10 * noise)])
    factor = rng.normal(size=(400_000, 1))
    own = np.clip(math.sqrt(0.7) * factor[:, 0] + math.sqrt(0.3) * rng.normal(size=400_000), -1.5, 1.5)
    scores = np.clip(math.sqrt(0.7) * factor + math.sqrt(0.3) * rng.normal(size=(400_000, others)), -1.5, 1.5)
    rows, part = heard_rows(scores + noise * rng.normal(size=scores.shape), noise)
    exact, found = own @ scores / len(own), own @ rows / len(own)
    error = 4 * math.sqrt((1 + noise**2) / len(own))
    assert found / part == pytest.approx(exact, rel=0.03, abs=error)
    assert np.linalg.norm(rows, axis=1).max() <= 1.5 * math.sqrt(others) * (1 + noise) * (1 + 1e-12)
    if noise == 4.0 and others == 1:
        assert found[0] / exact[0] < 0.93
    if noise == 0.0:
        assert (part, rows) == (1.0, pytest.approx(scores))


def test_columns_that_are_much_alike_do_not_count_against_the_response() -> None:
    """Axes alike up to noise: solving (the control) puts the one that says least against the others."""
    correlations = np.array([0.6, 0.58, 0.2])
    owns = [OwnMoments(np.eye(1), np.array([told]), 0.01, 0.01) for told in correlations]
    told = np.full((3, 3), 0.78), np.full((3, 3), 0.01)  # of clipped scores: nearly all of it
    steps = fitting(owns, np.ones(3), lambda gram, cross, _, scale: (in_ball(gram, cross, scale, 50.0), 0.0), 1)
    assert len(next(steps)) == 3
    with pytest.raises(StopIteration) as ended:
        steps.send(told)
    found = ended.value.value[0]
    assert (found >= 0).all()
    assert found[0] > 0.2
    assert np.linalg.solve(shared_axes(*told, correlations), correlations).min() < -0.05


def test_axes_are_released_twice_where_noise_is_small_and_not_at_all_where_they_tell_nothing() -> None:
    for epsilon, stages in ((10.0, 2), (1.0, 1), (0.2, 0)):
        plan = load("lasso").compile(study(epsilon, (12, 12), rows=20_000, unit="record"))
        assert not plan.design.mean_only
        assert plan.design.stages == stages
        assert {release.count for release in plan.releases if release.name in {AXIS, CROSSING}} == {stages} - {0}
        assert plan.epsilon(1e-5, Unit.RECORD) == pytest.approx(epsilon, rel=0.02)
    assert design_of(study(10.0, (12,), rows=20_000)).stages == 0


def test_standards_are_those_of_the_columns_where_there_is_no_noise() -> None:
    x = RNG.uniform(-0.5, 0.9, (500, 3))
    middle, width = standards_of(x.mean(axis=0), (x**2).mean(axis=0), (np.zeros(3), np.zeros(3)), centred=True)
    assert middle == pytest.approx(x.mean(axis=0))
    assert width == pytest.approx(x.std(axis=0))
    assert not standards_of(x.mean(axis=0), (x**2).mean(axis=0), (np.zeros(3), np.zeros(3)), centred=False)[0].any()


def test_the_form_is_decided_before_data() -> None:
    asked = study()
    assert form_of(asked) is Form.MOMENTS
    assert form_of(msgspec.structs.replace(asked, epsilon=math.inf)) is Form.ROUNDS
    assert form_of(study(parameters={"rounds": 7})) is Form.ROUNDS
    assert design_of(study(0.01)).mean_only
    assert not design_of(asked).mean_only
    with pytest.raises(UsageError, match="method is one of"):
        form_of(study(parameters={"method": "none"}))
    with pytest.raises(UsageError, match="belongs to method"):
        form_of(study(parameters={"method": "moments", "coupling": "blocks"}))


def test_where_noise_leaves_nothing_the_mean_alone_is_paid_for() -> None:
    X, y, _ = correlated(300, 2, 0.0)
    model = PrivateLasso(3, unit="record", epsilon=0.5, random_state=0, **MORE)
    with pytest.warns(UtilityWarning, match="no more than a mean"):
        model.fit(X, y)
    assert [release.name for release in model.plan_.releases] == [SUMS]
    assert not model.coef_.any()
    assert abs(model.intercept_ - y.mean()) < 0.3


def test_without_an_intercept_and_with_one_party() -> None:
    X, y, truth = correlated(20_000, 3, 0.0)
    alone = PrivateLasso(1, unit="record", epsilon=3.0, random_state=0, **MORE).fit(X, y)
    assert AXIS not in {release.name for release in alone.plan_.releases}
    assert alone.coef_ == pytest.approx(truth, abs=0.15)
    assert alone.intercept_ == pytest.approx(0.3, abs=0.05)
    through = PrivateLasso(2, unit="record", epsilon=3.0, fit_intercept=False, random_state=0, **MORE).fit(X, y - 0.3)
    assert through.intercept_ == 0.0
    assert through.coef_ == pytest.approx(truth, abs=0.2)


@pytest.mark.slow
@pytest.mark.minutes
def test_many_columns_are_chosen_among_first() -> None:
    X, y, truth = correlated(4000, 4, 0.0, d=200)
    model = PrivateLasso(2, epsilon=4.0, random_state=0, **MORE).fit(X, y)
    assert {release.name for release in model.plan_.releases} >= {CHOOSE, PRODUCTS}
    assert set(np.flatnonzero(np.abs(truth) > 0.3)) <= set(np.flatnonzero(model.coef_))
    assert "standardised" in render(_result(model, X, y))


def _result(model: PrivateLasso, X: np.ndarray, y: np.ndarray):
    from unpooled.estimation.base import ALL

    _, declared, _ = model._numeric(X, y)
    asked = model._study({ALL: len(y)}, declared)
    from unpooled.estimation.base import tables_of

    features, _, response = model._numeric(X, y)
    return model._run(asked, tables_of(asked, features, response)).outcome.result


@pytest.mark.guarantee
@pytest.mark.parametrize(
    "request_of",
    [
        lambda s: ProductsRequest(s, (0, 0, 1)),
        lambda s: ProductsRequest(s, (0, 1, 9)),
        lambda s: ProductsRequest(s, (0, 1)),
        lambda s: ProductsRequest(msgspec.structs.replace(s, width=(1.0, 0.0, 1.0)), (0, 1, 2)),
        lambda s: ProductsRequest(msgspec.structs.replace(s, middle=(math.nan, 0.0, 1.0)), (0, 1, 2)),
        lambda s: ProductsRequest(msgspec.structs.replace(s, response=(0.0, 0.0)), (0, 1, 2)),
        lambda s: AxisRequest(s, (0, 1, 2), (1.0, math.inf, 0.0)),
        lambda s: AxisRequest(s, (0, 1, 2), (1.0,)),
        lambda s: CrossingRequest(AxisRequest(s, (0, 1, 2), (1.0, 0.0, 0.0)), Array.of(np.zeros((N, 2)))),
        lambda s: CrossingRequest(AxisRequest(s, (0, 1, 2), (1.0, 0.0, 0.0)), Array.of(np.full((N, 1), np.nan))),
    ],
)
def test_requests_beyond_the_plan_are_refused(request_of) -> None:
    plan = load("lasso").compile(study())
    request = request_of(Standards((0.0,) * 3, (1.0,) * 3, (0.0, 1.0)))
    steps = {ProductsRequest: "products", AxisRequest: "axis", CrossingRequest: "crossing"}
    rows = np.random.default_rng(0).uniform(-1, 1, (N, 4))
    table = Table(dict(zip(["x0_0", "x0_1", "x0_2", "y"], rows.T, strict=True)))
    with pytest.raises(ProtocolError):
        getattr(moments_rows, steps[type(request)])(Recorder(plan, "p0", table), request)


@pytest.mark.guarantee
def test_a_choice_beyond_what_is_kept_is_refused() -> None:
    plan = load("lasso").compile(study())
    kept, width = plan.design.kept["p1"], plan.design.widths["p1"]
    rows = np.random.default_rng(0).uniform(-1, 1, (N, width + 1))
    names = [column.name for column in plan.study.card("p1").columns]
    context = Recorder(plan, "p1", Table(dict(zip([*names, "y"], rows.T, strict=True))))
    numbers = Standards((0.0,) * width, (1.0,) * width, (0.0, 1.0))
    with pytest.raises(ProtocolError, match="as many columns"):
        moments_rows.choose(context, ChooseRequest(numbers, tuple(range(kept))))


def test_sums_fit_exact_integers() -> None:
    assert math.prod(grids(10**6)) * 10**6 <= 2**53
    assert design_of(study(rows=10**6, epsilon=1.0)).longest("p1")[0] > 100


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_the_outlook_is_what_happens() -> None:
    """Squared errors of predictions against what was expected of the same shape."""
    model = PrivateLasso(4, unit="record", random_state=0, **MORE)
    expected = model.outlook(12_000, 24, r2=0.6, correlation=0.0, relevant=5)
    found = []
    for seed in range(9):  # errors of single fits lie between .03 and .5
        X, y, _ = correlated(12_000, seed, 0.0)
        explained = 1 - 0.04 / y.var()
        fitted = model.set_params(random_state=seed).fit(X, y).predict(X)
        found.append((np.mean((y - fitted) ** 2) / y.var() - (1 - explained)) / explained)
    assert np.median(found) == pytest.approx((expected.error - 0.4) / 0.6, abs=0.15)
    assert model.outlook(12_000, 24, epsilon=5.0).epsilon == 5.0
    assert not model.outlook(100, 24).worthwhile
    with pytest.raises(UsageError, match="r2 must be"):
        model.outlook(100, 24, r2=2.0)
    rounds = PrivateLasso(4, method="frank-wolfe", **MORE).outlook(100_000, 24, r2=0.5)
    assert "rounds" in str(rounds) or "frank-wolfe" in str(rounds)
    assert rounds.worthwhile
    assert PrivateLasso(2, **MORE).outlook(3000, 400).columns == 400
