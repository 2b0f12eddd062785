"""Effects by partialling out: how far a row moves its sums, what noise does to them and how that is undone, least squares without noise, and when it is the default."""

from __future__ import annotations

import itertools
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from treated import KNOWN, people, study

import unpooled
from unpooled.errors import PlanMismatch, UsageError
from unpooled.linear.standard import SCALES, Standard
from unpooled.models.effects import MODEL, partial
from unpooled.models.effects.outlook import play
from unpooled.models.effects.partial import RELATIONS, RESIDUALS, SCORES, PartialScores
from unpooled.models.effects.partial_fit import Relations, _coordinates, _middle
from unpooled.models.effects.plan import STATISTICS
from unpooled.privacy.sensitivity import column_moments, partialled_scores
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit

REPLACE, ZERO = Adjacency.REPLACE, Adjacency.ZERO_OUT
PARTIAL = {"estimator": "partial"}
SMALL = {"age": KNOWN["age"], "ward": KNOWN["ward"], "arm": KNOWN["arm"], "stay": KNOWN["stay"]}


# --- sensitivity ---------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_scores_and_their_squares_move_as_far_as_the_theorem_says_and_no_farther() -> None:
    """E.4, by brute force over pairs of (t, h): both squares are free up to F.1's weight, and no longer."""
    points = [(t, h) for h in np.linspace(0, 1, 21) for t in np.linspace(-h, h, 41)]
    for a, b in ((1.66 / math.sqrt(2), 1.66 / math.sqrt(2)), (0.4, 1.1), (1.3, 1.9)):
        rows = np.array([(t, a * h * h, b * t * t) for t, h in points])
        farthest = max(float(np.sqrt(np.square(rows - row).sum(axis=1)).max()) for row in rows)
        assert farthest <= partialled_scores(a, b, REPLACE) * (1 + 1e-12)
        assert farthest > 0.995 * partialled_scores(a, b, REPLACE)
        assert float(np.sqrt(np.square(rows).sum(axis=1)).max()) == pytest.approx(partialled_scores(a, b, ZERO))
    free = partialled_scores(1.66 / math.sqrt(2), 1.66 / math.sqrt(2), REPLACE)
    assert (
        free == pytest.approx(column_moments(0.0, 1.0, 1.66, REPLACE, may_be_absent=False)) == pytest.approx(2.0, abs=2e-3)
    )


def _moved(vector: Any, one: np.ndarray, other: np.ndarray) -> float:
    widths = np.concatenate([np.full(block.size, block.width) for block in vector.blocks])
    return float(np.linalg.norm((one - other) / widths))


def _score_rows(scores: PartialScores) -> list[np.ndarray]:
    """Sums of single rows at the ends of what they can be, and of others, bounded or not."""
    ends = [np.array([value]) for value in (-9.0, -1.0, -0.4, 0.0, 0.3, 1.0, 1e300, math.nan)]
    return [scores.added_up(h, q) for h, q in itertools.product(ends, ends)]


@pytest.mark.guarantee
@pytest.mark.parametrize("adjacency", [REPLACE, ZERO])
def test_no_row_moves_the_score_sums_farther_than_their_reach(adjacency: Adjacency) -> None:
    scores = PartialScores(SCORES, 500)
    vector, rows = scores.vector(1.0, adjacency), _score_rows(scores)
    reach = vector.reach[Unit.RECORD].distance
    pairs = itertools.combinations(rows, 2) if adjacency is REPLACE else ((row, np.zeros_like(row)) for row in rows)
    farthest = max(_moved(vector, a, b) for a, b in pairs)
    assert 0.99 * reach < farthest <= reach * (1 + 1e-9)
    assert max(int(np.abs(row).max()) for row in rows) <= vector.per_row


def test_scores_longer_than_their_treatment_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Controls: rows that are not cut, and a bound that forgets the squares, break the test above."""
    scores = PartialScores(SCORES, 500)
    vector = scores.vector(1.0, ZERO)
    rows = _score_rows(scores)
    monkeypatch.setattr(partial, "partialled_scores", lambda *_: 1.0)
    forgotten = scores.vector(1.0, ZERO).reach[Unit.RECORD].distance
    assert max(_moved(vector, row, np.zeros_like(row)) for row in rows) > forgotten
    monkeypatch.setattr(np, "clip", lambda part, *_: part)
    far = scores.added_up(np.array([3.0]), np.array([1.0]))
    assert _moved(vector, far, np.zeros_like(far)) > vector.reach[Unit.RECORD].distance


@pytest.mark.guarantee
def test_whatever_a_request_carries_no_row_moves_a_sum_of_partialling_out_farther() -> None:
    """A dishonest coordinator sends huge and tiny numbers for means, deviations, coefficients and bounds; wrong counts of them are refused."""
    plan = MODEL.compile(study(PARTIAL))
    design, rng = plan.design, np.random.default_rng(4)
    size = design.partial.layout.size
    middles = 2 * size  # of the columns and of the outcome: as many as the columns and the constant
    numbers = {SCALES: 0, RELATIONS: middles + 1, RESIDUALS: middles + 2 * size, SCORES: middles + 2 * size + 2}
    ends = [(20.0, "a", "old", 0.0), (90.0, "c", "new", 30.0), (55.0, "b", "old", 30.0), (20.0, "c", "new", 7.0)]
    names = ("age", "ward", "arm", "stay")
    tables = [
        Table({name: np.array([v], object if isinstance(v, str) else float) for name, v in zip(names, row, strict=True)})
        for row in ends
    ]
    for name, count in numbers.items():
        vector = design.totals[name]
        for _ in range(30):
            wild = rng.choice([0.0, 1e-6, 1.0, -3.0, 1e6, -1e6], count)
            wild[size : 2 * size] = rng.choice([1e-6, 0.3, 1e6], min(size, count)) if count else []
            if name in {RELATIONS, SCORES}:
                wild[-1:] = rng.choice([1e-99, 0.2, 1e6], 1)
            if name == SCORES:
                wild[-2:] = rng.choice([1e-99, 0.2, 1e6], 2)
            contexts = [type("Context", (), {"design": design, "table": table})() for table in tables]
            found = [STATISTICS[name](one, tuple(wild.tolist())) for one in contexts]
            assert all(np.abs(one).max() <= vector.per_row for one in found), name
            reach = vector.reach[Unit.RECORD].distance
            assert all(_moved(vector, a, b) <= reach * (1 + 1e-9) for a, b in itertools.combinations(found, 2)), name
        with pytest.raises(PlanMismatch):
            STATISTICS[name](contexts[0], (1.0,) * (count + 3))


# --- what noise does -------------------------------------------------------------------------------------------------------


def test_noise_in_what_is_taken_out_is_undone_and_its_variance_is_the_theorem_s() -> None:
    """E.5, by drawing the noise anew: uncorrected sums attenuate, corrected ones do not, and vary as they should."""
    rng = np.random.default_rng(1)
    n, d, theta = 400, 6, 0.8
    z = np.column_stack([rng.normal(size=(n, d - 1)) @ rng.normal(size=(d - 1, d - 1)), np.ones(n)])
    a = (rng.uniform(size=n) < 0.4 + 0.05 * z[:, 0]).astype(float)
    y = theta * a + z @ rng.normal(size=d) + rng.normal(size=n)
    left = [column - z @ np.linalg.lstsq(z, column, rcond=None)[0] for column in (a, y)]
    gram = z.T @ z / n
    roots = [0.05 * rng.normal(size=(d, d)) for _ in range(2)]
    c_e, c_g = (root @ root.T for root in roots)
    draws = 20_000
    delta, eta = (rng.normal(size=(draws, d)) @ root.T for root in roots)
    products = left[0] @ left[1] + n * np.einsum("ij,jk,ik->i", delta, gram, eta)
    plain = left[0] @ left[0] + n * np.einsum("ij,jk,ik->i", delta, gram, delta)
    one = (left[0] - z @ delta[7]) @ (left[1] - z @ eta[7])  # the sums as a party would add them up
    assert one == pytest.approx(products[7])
    corrected = plain - n * np.trace(gram @ c_e)
    slope = float(left[0] @ left[1] / (left[0] @ left[0]))
    assert corrected.mean() == pytest.approx(left[0] @ left[0], abs=4 * corrected.std() / math.sqrt(draws))
    assert products.mean() == pytest.approx(left[0] @ left[1], abs=4 * products.std() / math.sqrt(draws))
    assert products.mean() / plain.mean() < 0.9 * slope  # the control: without the correction it attenuates
    both = gram @ c_e
    variance = n**2 * (np.trace(both @ gram @ c_g) + 2 * slope**2 * np.trace(both @ both))
    assert (products - slope * corrected).var() == pytest.approx(variance, rel=0.06)


def test_relations_without_noise_are_least_squares_and_with_noise_lack_what_they_say() -> None:
    """P is the inverse without noise; with it, coefficients drawn anew have the covariance and the lack that are stated."""
    rng = np.random.default_rng(5)
    d, draws = 8, 400
    root = np.eye(d) + 0.15 * rng.normal(size=(d, d))
    gram = root @ root.T
    gram /= np.sqrt(np.outer(gram.diagonal(), gram.diagonal()))
    slopes, others = rng.normal(size=(2, d)) / 3
    nothing = np.zeros((d, d))

    def of(noise: float, part: float) -> Relations:
        one = np.triu(rng.normal(size=(d, d)))
        wrong = noise * (one + np.triu(one, 1).T)
        variance, own = np.full((d, d), noise**2), part**2 * np.eye(d)
        crosses = gram @ slopes + part * rng.normal(size=d), gram @ others + part * rng.normal(size=d)
        return Relations(np.eye(d), gram + wrong, variance, *crosses, own, own, 1.0, 0.0, 0.0)

    exact = Relations(np.eye(d), gram, nothing, gram @ slopes, gram @ others, nothing, nothing, 1.0, 0.0, 0.0)
    assert exact.slopes[0] == pytest.approx(slopes)
    assert exact.lacking(0.3) == pytest.approx(0.0, abs=1e-12)
    found = [of(0.12, 0.05) for _ in range(draws)]
    lack = np.array([(slopes - one.slopes[0]) @ gram @ (others - one.slopes[1]) for one in found])
    said = np.array([one.lacking(0.0) for one in found])
    confounds = slopes @ gram @ others
    assert abs(lack.mean()) < 0.35 * abs(confounds)  # most of what confounds is taken out
    assert abs((lack - said).mean()) < 0.5 * abs(lack.mean()) + 3 * (lack - said).std() / math.sqrt(draws)


def test_levels_of_one_column_are_unrelated_in_coordinates_and_nothing_is_left_along_which_no_row_varies() -> None:
    plan = MODEL.compile(study(PARTIAL))
    rows = plan.design.partial
    rng = np.random.default_rng(2)
    table = Table({name: rows_ for name, rows_ in people(20_000).items() if name in SMALL})
    block = next(iter(table.blocks(("ward",))))[0]
    share = [float(np.mean(block == level)) for level in KNOWN["ward"]]
    parts = dict.fromkeys(rows.layout.names, (0.0, 0.5)) | {
        f"ward = {level}": (p, math.sqrt(p * (1 - p))) for level, p in zip(KNOWN["ward"], share, strict=True)
    }
    middle = np.array([*(parts[name][0] for name in rows.layout.names), 0.0])
    width = np.array([*(parts[name][1] for name in rows.layout.names), 1.0])
    back = _coordinates(rows, Standard(middle, width, 0.0, (1.0, 0.0)))
    assert back.shape == (5, 4)  # age, three levels and the constant, of which one is known from the others
    wards = np.column_stack([(block == level) for level in KNOWN["ward"]]).astype(float)
    age = rng.normal(size=(len(wards), 1))
    standard = np.column_stack([age, (wards - share) / np.sqrt(np.array(share) * (1 - np.array(share)))])
    order = [rows.covariates.names.index(name) for name in ("age", *(f"ward = {level}" for level in KNOWN["ward"]))]
    sent = np.empty_like(standard)
    sent[:, order] = standard
    sent = np.column_stack([sent * rows.parts[rows.places[:-1]], np.ones(len(sent))])
    ours = sent @ back
    assert ours.T @ ours / len(ours) == pytest.approx(np.eye(4), abs=0.05)


def test_the_middle_of_cut_residuals_has_no_mean() -> None:
    """Skewed residuals: about their mean the cut ones have a mean of their own, about this number hardly any."""
    rng = np.random.default_rng(3)
    residuals = rng.exponential(size=40_000) - 1
    cells = MODEL.compile(study(PARTIAL)).design.partial.cells
    counts = cells.added_up(residuals).astype(float)
    middle = _middle(cells.cuts, counts, 0.0, 1.5)
    about = [float(np.clip(residuals - at, -1.5, 1.5).mean()) for at in (0.0, middle)]
    assert abs(about[1]) < 0.25 * abs(about[0])


# --- the effect ------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_without_noise_it_is_the_coefficient_of_least_squares() -> None:
    data = people(3000)
    z = np.column_stack([np.ones(3000), data["age"], data["ward"] == "b", data["ward"] == "c", data["arm"] == "new"])
    z = z.astype(float)
    exact = np.linalg.lstsq(z, data["stay"], rcond=None)[0]
    left = data["stay"] - z @ exact
    error = math.sqrt(float(left @ left) / (3000 - 5) * np.linalg.inv(z.T @ z)[4, 4])
    asked: dict[str, Any] = {"bounds": SMALL, "epsilon": math.inf, "outcome": "stay", "estimator": "partial"}
    found = unpooled.TreatmentEffect("arm", **asked).fit(data, sites=np.resize(["north", "south"], 3000))
    assert found.effect_ is not None
    assert found.effect_.estimate == pytest.approx(exact[4], abs=1e-3)
    assert found.effect_.std_error == pytest.approx(error, rel=0.05)
    assert found.effect_.privacy == pytest.approx(0.0, abs=1e-9)


def test_few_rows_have_an_effect_whose_interval_holds_the_truth() -> None:
    """800 people at epsilon 1, where weights of two models have nothing: twenty draws of people and noise."""
    asked = study(PARTIAL)
    card = msgspec.structs.replace(asked.parties[0], rows=800)
    plan = MODEL.compile(msgspec.structs.replace(asked, parties=(card,)))
    found = []
    for seed in range(20):
        data = people(800, seed) | {"left": np.zeros(800)}
        table = Table(
            {name: np.asarray(data[name], object if name in {"ward", "arm"} else float) for name in (*SMALL, "left")}
        )
        one = play(plan, table, np.random.default_rng(seed)).effect
        assert one is not None
        found.append((one.value, one.std_error))
    values, errors = np.array(found).T
    assert np.mean(np.abs(values + 2) < 1.96 * errors) >= 0.8
    assert abs(values.mean() + 2) < 3 * errors.mean() / math.sqrt(20)
    assert np.median(errors) < 0.6


def test_the_first_line_names_whose_effect_it_is_and_every_form_carries_it(tmp_path: Any) -> None:
    data = people(2000)
    found = unpooled.TreatmentEffect("arm", outcome="stay", bounds=SMALL, random_state=0).fit(data)
    assert (found.result_.estimator, found.result_.estimand) == ("partial", "ATO")
    assert any("estimator auto: partial" in note and "below 200" in note for note in found.plan_.notes)
    assert found.effect_ is not None
    assert found.effect_.term == "ATO"
    lines = str(found.summary())
    assert "ATO: new - old" in lines
    assert "people whose treatment was open (weights e (1 - e))" in lines.partition("\n")[2]
    assert "a person counts e (1 - e)" in lines
    assert "hides every line" not in lines
    found.save(tmp_path / "effect")
    assert unpooled.load(tmp_path / "effect").effect_ == found.effect_
    with pytest.raises(UsageError, match="has no weights"):
        found.figure()


def test_the_default_is_chosen_by_rows_epsilon_and_columns_alone() -> None:
    model = unpooled.TreatmentEffect("arm", outcome="stay", bounds=SMALL)
    small, large = model.plan(1000), model.plan(40_000)
    assert small.design.partial is not None
    assert large.design.partial is None
    assert [*large.parts] == ["propensity", "outcome"]
    assert any("estimator auto: aipw" in note and "at least 200" in note for note in large.notes)
    assert model.plan(1000).hash == small.hash
    for asked, estimator, estimand in (
        ({"estimand": "ATE"}, "aipw", "ATE"),
        ({"estimand": "ATT"}, "aipw", "ATT"),
        ({"estimand": "ATO"}, "partial", "ATO"),
        ({"estimator": "iptw"}, "iptw", "ATE"),
        ({"prior": [{"name": "Lund", "coefficients": {"ATE": -1.0}}]}, "aipw", "ATE"),
        ({"prior": [{"name": "Lund", "coefficients": {"ATO": -1.0}}]}, "partial", "ATO"),
    ):
        p = MODEL.compile(study(asked)).design.declared.parameters
        assert (p.estimator, p.estimand) == (estimator, estimand), asked


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (PARTIAL | {"estimand": "ATT"}, "that of estimator 'partial'"),
        ({"estimator": "aipw", "estimand": "ATO"}, "that of estimator 'partial'"),
        (PARTIAL | {"family": "poisson"}, "is for family 'linear'"),
        (PARTIAL | {"propensity": "age"}, "leave propensity out"),
        (PARTIAL | {"prior": [{"name": "Lund", "coefficients": {"ATE": -1.0}}]}, "ATE"),
    ],
)
def test_what_partialling_out_has_no_answer_to_is_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        MODEL.compile(study(parameters))


def test_a_treatment_that_nobody_could_have_chosen_has_no_effect() -> None:
    data = people(2000)
    data["arm"] = np.where(data["ward"] == "a", "old", "new")
    found = unpooled.TreatmentEffect("arm", outcome="stay", bounds=SMALL, estimator="partial", random_state=0).fit(data)
    assert found.effect_ is None
    assert "the noise hides what the covariates leave of the treatment" in found.result_.why
    assert found.result_.why in str(found.summary())
    assert found.ledger_


def test_an_arm_without_people_has_no_effect() -> None:
    data = people(2000)
    data["arm"] = np.full(2000, "old")
    found = unpooled.TreatmentEffect("arm", outcome="stay", bounds=SMALL, estimator="partial", random_state=0).fit(data)
    assert found.effect_ is None
    assert "not identified" in found.result_.why


def test_a_drawn_effect_of_open_treatments_goes_by_its_own_name() -> None:
    data = people(1500)
    asked: dict[str, Any] = {"outcome": "stay", "bounds": SMALL, "random_state": 0}
    first = unpooled.TreatmentEffect("arm", **asked).fit(data)
    again = unpooled.TreatmentEffect("arm", prior=first, **asked | {"random_state": 1}).fit(people(1500, seed=2))
    assert again.result_.estimand == "ATO"
    assert again.drawn_.terms[0].term == "ATO"
