"""PLS of several responses by rounds: the reach of gradients of all together, counts of each, the components of their coefficients, and errors."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

import unpooled
from unpooled import Bounds, PrivatePLSRegression
from unpooled.errors import PlanMismatch, UsageError
from unpooled.kernels import rows as kernels
from unpooled.linear.descent import learnt_length, steepness
from unpooled.linear.design import lines_of
from unpooled.linear.lines import LineRows
from unpooled.linear.standard import CONSTANT, public_numbers
from unpooled.models import load
from unpooled.models.pls.components import LEFT, PlsFit
from unpooled.models.pls.declared import PlsDesign, design_of
from unpooled.models.pls.fit import of_studies
from unpooled.models.pls.outlook import outlook
from unpooled.privacy.bounds import Column
from unpooled.privacy.policy import Policy
from unpooled.privacy.study import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.protocol.local import run_in_process

CHANNELS, RESPONSES = 5, 3


def study(adjacency: str = "replace", **changes: object) -> Study:
    """Return a study of five channels in a basis of three vectors, and of three responses."""
    basis = np.linalg.qr(np.random.default_rng(3).normal(size=(CHANNELS, 3)))[0]
    columns = (
        *(Column(f"x{j}", -1.0, 1.0) for j in range(CHANNELS)),
        *(Column(f"y{k}", 0.0, 1.0 + k) for k in range(RESPONSES)),
    )
    parameters = {"response": [f"y{k}" for k in range(RESPONSES)], "basis": "matrix", "matrix": basis.tolist(), "norm": 0.8}
    asked = Study("pls", (Card("a", 500, columns),), 1.0, 1e-5, parameters=parameters | {"method": "gradient"}, derived=())
    return msgspec.structs.replace(asked, adjacency=adjacency, **changes)


def directed(adjacency: str = "replace") -> PlsDesign:
    """Return the design of the same study by directions."""
    asked = study(adjacency)
    return design_of(msgspec.structs.replace(asked, parameters=asked.parameters | {"method": "direction"}))


def alone(name: str) -> PlsDesign:
    """Return the design of the same study with one of the responses, without the others."""
    (card,) = study().parties
    columns = tuple(c for c in card.columns if c.name == name or c.name.startswith("x"))
    cards = (msgspec.structs.replace(card, columns=columns),)
    return design_of(study(parties=cards, parameters=study().parameters | {"response": name}))


def farthest(design: PlsDesign, unit: Unit, adjacency: Adjacency, tries: int = 200) -> dict[str, float]:
    """Return the farthest that one unit moved each total, in parts of its reach: a whole row, or one value of it."""
    rng, found = np.random.default_rng(5), {}
    low, high = np.array([c.range for c in study().parties[0].columns]).T
    size, rows = design.layout.size, design.standard
    for _ in range(tries):
        first, second = np.where(rng.random((2, low.size)) < 0.5, low, high) * rng.choice([0.02, 0.3, 1.0], size=(2, 1))
        if unit is Unit.ATTRIBUTE:
            second = np.where(np.arange(low.size) == rng.integers(low.size), second, first)
        tables = [
            Table({name: np.array([v, v]) for name, v in zip(design.names, row, strict=True)}) for row in (first, second)
        ]
        count = size - 1 + RESPONSES
        standard = rng.uniform(-1, 1, count), np.exp(rng.uniform(math.log(0.01), 0.0, count))
        start = rng.normal(size=rows.width) * 2
        statistics = {
            "scales": design.scales.statistic,
            "descent": lambda t, s=standard, b=start: rows.gradient(rows.blocks(t, s), b),
        }
        if design.schedule.base:
            along = rng.normal(size=RESPONSES * (size - 1)) * rng.choice([0.1, 1.0, 10.0])
            for name, line in zip(("base", "length"), lines_of(design.schedule, rows), strict=True):
                at = np.append(along, start[: line.width])
                statistics[name] = lambda t, r=line, s=standard, b=at: r.gradient(r.blocks(t, s), b)
        for name, vector in design.totals.items():
            added = statistics[name]
            widths = np.concatenate([np.full(b.size, b.width) for b in vector.blocks])
            a, b = (
                added(design.seen(table)) / 2 for table in tables
            )  # of two rows that are alike: a table of one is refused
            moved = a if adjacency is Adjacency.ZERO_OUT and unit is Unit.RECORD else a - b
            found[name] = max(found.get(name, 0.0), float(np.linalg.norm(moved / widths)) / vector.reach[unit].distance)
    return found


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("unit", [Unit.RECORD, Unit.ATTRIBUTE])
def test_no_unit_moves_a_total_of_several_responses_farther_than_its_reach(unit: Unit, adjacency: Adjacency) -> None:
    """Theorem C.8 by search, over the code that adds up."""
    found = farthest(design_of(study(str(adjacency))), unit, adjacency)
    assert max(found.values()) <= 1 + 1e-9
    assert set(found) == {"scales", "descent"}
    # The search is not asleep. One value moves all coordinates or one response, and is charged for a whole row (Theorem C.6).
    assert found["descent"] > 0.8
    assert found["scales"] > (0.99 if unit is Unit.RECORD else 0.49)


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("unit", [Unit.RECORD, Unit.ATTRIBUTE])
def test_no_unit_moves_a_total_of_several_directions_farther_than_its_reach(unit: Unit, adjacency: Adjacency) -> None:
    """The last part of Theorem C.8 by search: rows of every response, with a value along a direction of its own."""
    found = farthest(directed(str(adjacency)), unit, adjacency)
    assert set(found) == {"base", "descent", "length"}
    assert 0.7 < min(found.values()) <= max(found.values()) <= 1 + 1e-9


@pytest.mark.slow
def test_responses_that_are_cut_one_by_one_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of Theorem C.8: each response cut to C by itself, the gradients of all of them are up to sqrt(q) C long."""

    def apart(residuals: np.ndarray, square: np.ndarray, fine: float, longest: int) -> None:
        for own in residuals:
            kernels.cut_residuals(own, square, fine, 1 << 26, longest)

    monkeypatch.setattr("unpooled.kernels.rows.cut_together", apart)
    assert farthest(design_of(study()), Unit.RECORD, Adjacency.REPLACE)["descent"] > 1.5
    found = farthest(directed(), Unit.RECORD, Adjacency.REPLACE)
    assert min(found["base"], found["length"]) > 1.5


@pytest.mark.slow
def test_rows_of_the_shortest_value_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the last part of Theorem C.8: residuals are cut for the longest of a record's rows, one for each response."""

    cut, least = kernels.cut_together, float(CONSTANT**2 * directed().standard.grid ** 2)

    def shortest(residuals: np.ndarray, square: np.ndarray, fine: float, longest: int) -> None:
        cut(residuals, np.full(square.size, least), fine, longest)

    monkeypatch.setattr("unpooled.kernels.rows.cut_together", shortest)
    found = farthest(directed(), Unit.RECORD, Adjacency.REPLACE)
    assert found["length"] > 1.5
    assert found["base"] > 1.5


def test_counts_whose_reach_is_that_of_one_response_are_caught() -> None:
    design = design_of(study())
    reach = alone("y0").totals["scales"].reach
    assert reach[Unit.RECORD].distance < design.totals["scales"].reach[Unit.RECORD].distance
    loose = replace(design, totals={**design.totals, "scales": replace(design.totals["scales"], reach=reach)})
    assert farthest(loose, Unit.RECORD, Adjacency.REPLACE)["scales"] > 1.05


def test_cut_residuals_are_integers_of_one_direction_and_never_too_long() -> None:
    """By the kernel beside a twin in Python's integers: |r||z| <= C holds exactly, and what need not be cut is only rounded."""
    rng = np.random.default_rng(0)
    residuals = rng.normal(size=(3, 400)) * 10.0 ** rng.integers(-6, 7, 400)
    square = np.append(rng.integers(1, 1 << 40, 398), [0, 1]).astype(float)
    cut, longest, fine = residuals.copy(), 1 << 32, 1024.0
    kernels.cut_together(cut, square, fine, longest)
    assert np.array_equal(cut, np.trunc(cut))
    lengths = [math.isqrt(int(z) - 1) + 1 if z else 0 for z in square]
    for k, (length, r) in enumerate(zip(lengths, cut.T, strict=True)):
        most, whole = (longest // length if length else 0), residuals[:, k] * fine
        assert sum(int(v) ** 2 for v in r) <= min(most, 1 << 26) ** 2
        if np.linalg.norm(whole) < min(most, 1 << 26) * 0.999:
            assert np.array_equal(r, np.trunc(whole))
        elif most:
            assert np.linalg.norm(r) > 0.999 * min(most, 1 << 26) - 2
            assert float(r @ whole) / np.linalg.norm(r) / np.linalg.norm(whole) > 0.99 or most < 100


def test_sites_add_up_to_one_site_exactly() -> None:
    rng = np.random.default_rng(0)
    design = design_of(study())
    table = Table({name: rng.uniform(0, 1, 300) for name in design.names})
    whole, parts = design.seen(table), [design.seen(part) for part in table.by_site(rng.choice(["a", "b"], 300)).values()]
    assert np.array_equal(design.scales.statistic(whole), sum(design.scales.statistic(part) for part in parts))
    standard, start = (np.zeros(6), np.full(6, 0.3)), rng.normal(size=12)
    rows = design.standard
    found = rows.gradient(rows.blocks(whole, standard), start)
    assert np.array_equal(found, sum(rows.gradient(rows.blocks(part, standard), start) for part in parts))
    # The gradient of each response where nothing is cut is that of it alone, up to the rounding of residuals.
    wide = replace(rows, longest=1e3)
    one = alone("y1")
    own, few = replace(one.standard, longest=1e3), tuple(part[[0, 1, 2, 4]] for part in standard)
    table = Table({name: table[name] for name in one.names})
    one = own.gradient(own.blocks(one.seen(table), few), start[4:8]) / own.grid**2
    assert wide.gradient(wide.blocks(whole, standard), start).reshape(3, 4)[1] / wide.grid**2 == pytest.approx(one, abs=0.1)


def test_lines_of_each_response_are_those_of_it_alone_where_nothing_is_cut() -> None:
    """Directions come first in a request, and after them (length, constant) of one response after another."""
    rng = np.random.default_rng(0)
    design = directed()
    table = Table({name: rng.uniform(0, 1, 300) for name in design.names})
    standard, along, at = (np.zeros(6), np.full(6, 0.3)), rng.normal(size=(3, 3)), rng.normal(size=(3, 2))
    _, lines = lines_of(design.schedule, design.standard)
    assert (lines.width, lines.numbers) == (6, 15)
    request = np.concatenate([along.ravel(), at.ravel()])
    blocks = design.standard.blocks(design.seen(table), standard)
    wide = replace(lines, longest=1e3, full=replace(lines.full, longest=1e3))
    found = wide.gradient(blocks, request).reshape(3, 2) / wide.grid**2
    own, few = replace(alone("y1").standard, longest=1e3), tuple(part[[0, 1, 2, 4]] for part in standard)
    one = LineRows.of(own, 1e3)
    table = Table({name: table[name] for name in alone("y1").names})
    single = one.gradient(own.blocks(alone("y1").seen(table), few), np.concatenate([along[1], at[1]])) / one.grid**2
    assert found[1] == pytest.approx(single, abs=0.1)
    table = Table({name: rng.uniform(0, 1, 300) for name in design.names})
    sites = table.by_site(rng.choice(["a", "b"], 300)).values()
    whole, *parts = (
        lines.gradient(design.standard.blocks(design.seen(rows), standard), request) for rows in (table, *sites)
    )
    assert np.array_equal(whole, sum(parts))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_small_studies_of_two_responses_learn_a_direction_of_each() -> None:
    """k of each is 1.8. What is learnt of the first says nothing of the second, which has its mean or something as good."""
    size, rows, errors = 25, 250, {}
    given = {"epsilon": 1.0, "delta": 1e-5, "y_bounds": [(-4, 4)] * 2, "basis": "none", "reference": np.zeros(size)}
    for seed in range(8):
        rng = np.random.default_rng([seed, 4])
        slopes = rng.normal(size=size)
        X, noise = rng.normal(size=(rows + 1000, size)), rng.normal(size=(rows + 1000, 2))
        y = np.column_stack(
            [math.sqrt(0.8) * X @ slopes / np.linalg.norm(slopes) + math.sqrt(0.2) * noise[:, 0], noise[:, 1]]
        )
        for method in ("direction", "moments"):
            model = PrivatePLSRegression(**given, bounds=Bounds(norm=6.2), method=method, random_state=seed)
            model.fit(X[:rows], np.clip(y[:rows], -4, 4))
            assert model.method_ == method
            assert hasattr(model, "moments_") == (method == "moments")
            errors.setdefault(method, []).append(np.mean((model.predict(X[rows:]) - y[rows:]) ** 2, axis=0))
    directed, one = (np.mean(errors[method], axis=0) for method in ("direction", "moments"))
    assert directed[0] < 0.93 * one[0]
    assert directed[1] < 1.08  # the mean of eight studies, give or take


def test_requests_have_numbers_of_every_response() -> None:
    layout = design_of(study()).layout
    good = (*[0.0] * 6, *[0.5] * 6, *[0.0] * 12)
    public_numbers(layout, good, 0, responses=3, coefficients=12)
    for spoilt in (good[:-1], (*good, 0.0), (*good[:6], 0.0, *good[7:])):
        with pytest.raises(PlanMismatch):
            public_numbers(layout, spoilt, 0, responses=3, coefficients=12)


def test_deviations_of_every_response_come_from_its_own_counts() -> None:
    from unpooled.totals.total import Total

    design = design_of(study())
    rng = np.random.default_rng(0)
    y = [0.5 + 0.1 * rng.normal(size=4000), 0.6 + 0.3 * rng.normal(size=4000), 1.5 + 0.1 * rng.normal(size=4000)]
    columns = [*rng.normal(size=(3, 4000)) * 0.1, *y]
    exact = design.scales.statistic(Table(dict(zip(design.layout.names_read, columns, strict=True))))
    each = design.scales.decode_each(Total(exact.astype(float), np.full(exact.size, 3.0), ()), 4000)
    assert [one.width[-1] for one in each] == pytest.approx([0.2, 0.3, 0.0667], rel=0.1)
    assert [one.middle[-1] for one in each] == pytest.approx([0.0, -0.4, 0.0], abs=0.03)
    assert all(np.array_equal(one.width[:-1], each[0].width[:-1]) for one in each)


@pytest.mark.parametrize("responses", [1, 2, 5])
@pytest.mark.parametrize("clip", [0.3, 1.0, 2.5])
def test_the_steepness_of_clipped_residuals_is_that_of_simulated_ones(responses: int, clip: float) -> None:
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(200_000, responses))
    gap = np.eye(responses)[0] * 0.01

    def mean(r: np.ndarray) -> float:
        return float(np.mean(r[:, 0] * np.minimum(1.0, clip / np.linalg.norm(r, axis=1))))

    assert steepness(clip, responses) == pytest.approx((mean(normal + gap) - mean(normal - gap)) / 0.02, abs=0.01)


# --- components and results ----------------------------------------------------------------------------------------------------

GIVEN = {"basis": "none", "reference": np.zeros(4), "bounds": Bounds(norm=2.5), "y_bounds": [(-3, 3), (-4, 4)]}


def spectra(n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Four scores, and two responses of two directions of them."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, 4)) * np.array([1.0, 0.5, 0.3, 0.1])
    slopes = np.array([[0.3, -0.5, 1.0, 2.0], [0.6, 1.0, 0.0, 1.0]]).T
    return scores, scores @ slopes + 0.3 * rng.normal(size=(n, 2))


def test_all_components_are_the_coefficients_of_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full rank returns B; "cv" takes the fewest components that leave a ten-thousandth of it, in units of half ranges."""
    asked = []

    def heard(*given: Any) -> PlsFit:
        asked[:] = given
        return of_studies(*given)

    monkeypatch.setattr("unpooled.models.pls.fit.of_studies", heard)
    x, y = spectra(600)
    model = PrivatePLSRegression(**GIVEN, random_state=0).fit(x, y)
    assert model.method_ == "gradient"
    assert not hasattr(model, "moments_")
    assert "method gradient: 101 passes" in str(model.plan_.notes)
    found, units, rows, frame, wanted = asked
    assert (units.tolist(), rows, wanted) == ([3.0, 4.0], 600, "cv")
    B, gram = np.column_stack([one.fit.coef_ for one in found]), np.diag(found[0].frame.widths[:-1] ** 2)
    fits = [of_studies(found, units, rows, frame, count) for count in (1, 2, 3, 4)]
    assert fits[3].coefficients == pytest.approx(B, rel=1e-6)
    x0 = found[0].frame.centres[:-1]
    predicted = [float(x0 @ one.fit.coef_) + one.fit.intercept_ for one in found]
    for one in fits:  # what components leave of the slopes, the mean of each response keeps
        assert x0 @ one.coefficients + one.intercept == pytest.approx(predicted)
    apart = [(one.coefficients - B) / units for one in fits]
    left = [float(np.trace(own.T @ gram @ own)) for own in apart]
    assert left == sorted(left, reverse=True)
    enough = LEFT * float(np.trace((B / units).T @ gram @ (B / units)))
    assert model.n_components_ == 1 + next(k for k, much in enumerate(left) if much <= enough)
    w = fits[3].weights
    assert w.T @ w == pytest.approx(np.eye(4), abs=1e-9)


def test_a_response_of_which_nothing_is_learnt_has_about_its_mean() -> None:
    x, y = spectra(1500)
    y = np.column_stack([y[:, 0], np.random.default_rng(5).uniform(-1, 3, 1500)])
    model = PrivatePLSRegression(**GIVEN, random_state=0).fit(x, y)
    predicted = model.predict(x)
    assert predicted[:, 1].std() < 0.2 * y[:, 1].std()
    assert predicted[:, 1].mean() == pytest.approx(1.0, abs=0.1)
    assert (y - predicted)[:, 0].std() < 0.9 * y[:, 0].std()


def test_where_nothing_is_learnt_every_response_has_its_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(design: object, standard: object, start: np.ndarray, *_: object) -> np.ndarray:
        return np.append(np.zeros(start.size - 1), start[-1])

    monkeypatch.setattr("unpooled.linear.conversation.believed", none)
    x, y = spectra(600)
    with pytest.warns(UserWarning, match="No response was learnt"):
        model = PrivatePLSRegression(**GIVEN, random_state=0).fit(x, y)
    assert model.n_components_ == 0
    assert np.ptp(model.predict(x), axis=0).tolist() == [0.0, 0.0]


def test_rounds_are_better_where_one_release_gives_up() -> None:
    """Ten scores, three responses of two directions, 1000 rows, epsilon 1: one release gives about the mean."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2000, 10))
    y = x @ rng.normal(size=(10, 2)) @ rng.normal(size=(2, 3))
    y = math.sqrt(0.7) * y / y.std(axis=0) + math.sqrt(0.3) * rng.normal(size=y.shape)
    given = {"basis": "none", "reference": np.zeros(10), "bounds": Bounds(norm=4.5), "y_bounds": [(-4, 4)] * 3}
    rounds, one = (
        PrivatePLSRegression(**given, method=method, random_state=0).fit(x[:1000], y[:1000])
        for method in ("auto", "moments")
    )
    assert (rounds.method_, one.method_) == ("gradient", "moments")
    errors = [((y[1000:] - m.predict(x[1000:])).std(axis=0) / y.std(axis=0)).mean() for m in (rounds, one)]
    assert errors[0] < 0.65
    assert errors[1] > 1.2 * errors[0]


def test_a_saved_model_is_the_fitted_one_and_has_no_moments_to_transfer(tmp_path: Path) -> None:
    x, y = spectra(400)
    model = PrivatePLSRegression(**GIVEN, random_state=0).fit(x, y)
    model.save(tmp_path / "pls.unpooled")
    again = unpooled.load(tmp_path / "pls.unpooled")
    assert again.predict(x[:3]).tolist() == model.predict(x[:3]).tolist()
    one = PrivatePLSRegression(**{**GIVEN, "y_bounds": (-3, 3)}, method="moments", random_state=0).fit(x, y[:, 0])
    for refused in (lambda: model.adapted(one), lambda: one.adapted(model), lambda: model.standardised((x, x))):
        with pytest.raises(UsageError, match=r'several.*method="moments"'):
            refused()


def test_a_study_s_result_names_its_responses() -> None:
    rng = np.random.default_rng(0)
    asked = study()
    table = Table({c.name: rng.uniform(*c.range, 500) for c in asked.parties[0].columns})
    model = load("pls")
    plan = model.compile(asked)
    result = run_in_process(model, plan, {"a": table}, Policy.in_process(), lambda _: model).outcome.result
    assert (result.method, result.moments, result.more) == ("gradient", None, ())
    assert result.responses == ("y0", "y1", "y2")
    assert {line.group for line in model.reading.terms(plan, result)} == {"y0", "y1", "y2"}
    assert [panel.title for panel in model.reading.panels(plan, result)] == [f"coefficients: y{k}" for k in range(3)]
    assert "y2" in model.reading.render(result)


def test_rounds_are_taken_from_the_k_of_each_response_on() -> None:
    """k = n mu / (D + 1) / sqrt(q); residuals are together as long as sqrt(q) ones."""
    model = PrivatePLSRegression(bounds=Bounds(norm=2.5), y_bounds=[(0, 1)] * 4, basis_size=5)
    single = PrivatePLSRegression(bounds=Bounds(norm=2.5), y_bounds=(0, 1), basis_size=5, method="gradient")
    methods = [model.plan(n, 12).design.schedule.method for n in (100, 150, 400, 2_000_000)]
    assert methods == ["moments", "gradient", "gradient", "moments"]
    many = PrivatePLSRegression(bounds=Bounds(norm=2.5), y_bounds=[(0, 1)] * 4, basis_size=40)
    assert [many.plan(n, 50).design.schedule.method for n in (300, 400, 600)] == ["moments", "direction", "direction"]
    four, one = (
        PrivatePLSRegression(bounds=Bounds(norm=2.5), y_bounds=y, basis_size=40, method="direction")
        .plan(n, 50)
        .design.schedule
        for y, n in (([(0, 1)] * 4, 600), ((0, 1), 300))
    )
    assert (four.line, four.longest) == pytest.approx((2 * one.line, 2 * one.longest), rel=0.05)
    four, one = model.plan(400, 12).design.schedule, single.plan(200, 12).design.schedule
    assert four.longest == pytest.approx(2 * one.longest, rel=0.05)
    assert model.set_params(epsilon=math.inf).plan(400, 12).design.one_release
    assert not model.set_params(epsilon=1.0, method="gradient").plan(2_000_000, 12).design.one_release
    with pytest.raises(UsageError, match=r"refinement.*one response"):
        model.set_params(method="refinement").plan(400, 12)
    with pytest.raises(UsageError, match="prior goes with one response"):
        design_of(
            msgspec.structs.replace(study(), parameters=study().parameters | {"prior": [{"name": "a", "coefficients": {}}]})
        )


def test_the_outlook_of_several_plays_their_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unpooled.estimation.outlook.RUNS", 2)
    model = PrivatePLSRegression(basis=np.eye(8)[:, :4], bounds=Bounds(norm=2.5), y_bounds=[(0, 1), (0, 2)])
    expected = outlook(model.plan(500, 8).study, r2=0.9, quick=True)
    assert expected.error < 0.6
    one = outlook(model.set_params(method="moments").plan(500, 8).study, r2=0.9, quick=True)
    assert expected.error < one.error


def test_each_of_several_has_its_part_of_what_a_direction_of_noise_learns() -> None:
    """Residuals of all are cut together: those of each are as long as a q-th of the squared clip."""

    def learnt(longest: float, responses: int) -> float:
        layout = SimpleNamespace(size=7, responses=responses)
        design = SimpleNamespace(
            schedule=SimpleNamespace(rounds=30), standard=SimpleNamespace(longest=longest), layout=layout
        )
        return learnt_length(SimpleNamespace(design=design, rows=1000), 3.0)

    assert learnt(2.0, 4) == pytest.approx(learnt(1.0, 1))
