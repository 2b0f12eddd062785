"""unpooled.describe: right without noise, honest with it, and clear about bad input."""

from __future__ import annotations

import math
import warnings

import numpy as np
import polars as pl
import pytest

import unpooled
from unpooled import Bounds, PrivacyLeakWarning
from unpooled.errors import DataError, UnpooledError, UsageError
from unpooled.models.describe import MODEL
from unpooled.models.describe.fit import Estimate, Summary, printed_summaries, shares_of
from unpooled.privacy.plan import Card, Study

RNG = np.random.default_rng(5)
N = 1200
DATA = {
    "age": RNG.uniform(20, 90, N),
    "dose": np.where(RNG.random(N) < 0.1, np.nan, RNG.normal(2, 0.5, N)),
    "group": RNG.choice(np.array(["a", "b", "c"], dtype=object), N),
}
BOUNDS = Bounds(low=[0, -1, 0], high=[100, 5, 1], categories={"group": ["a", "b", "c"]}, missing={"dose": "absent"})
SITES = np.repeat(["x", "y", "z"], [500, 400, 300])


def test_without_noise_it_is_numpy() -> None:
    result = unpooled.describe(DATA, BOUNDS, sites=SITES, epsilon=math.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unpooled.describe(DATA, BOUNDS, epsilon=math.inf)
    for source, rows in [("pooled", slice(None)), *((s, s == SITES) for s in "xyz")]:
        age, dose = DATA["age"][rows], DATA["dose"][rows]
        known = dose[~np.isnan(dose)]
        for name, values in (("age", age), ("dose", known)):
            summary = result[source, name]
            assert summary.count.value == values.size
            assert summary.mean.value == pytest.approx(values.mean(), abs=1e-4)
            assert summary.sd.value == pytest.approx(values.std(ddof=1), rel=1e-4)
            assert summary.mean.noise == 0
        for category in "abc":
            assert result[source, "group", category].count.value == (DATA["group"][rows] == category).sum()
    assert not result.statement_.holds
    assert "infinite" in str(result.statement_)


def test_arrays_frames_and_mappings_give_the_same() -> None:
    ages = DATA["age"]
    results = [
        unpooled.describe(data, (0, 100), columns=columns, random_state=3)
        for data, columns in (
            ({"age": ages}, None),
            (pl.DataFrame({"age": ages}), None),
            (ages[:, None], ["age"]),
            (ages, ["age"]),
        )
    ]
    assert len({str(r.summaries_) for r in results}) == 1
    assert unpooled.describe(ages, (0, 100)).summaries_[0].column == "x0"


def test_result_carries_plan_ledger_statement_and_bytes() -> None:
    result = unpooled.describe(DATA, BOUNDS, sites=SITES, epsilon=2.0, delta=1e-6)
    assert result.statement_.holds
    assert result.plan_.epsilon(1e-6) == pytest.approx(2.0, rel=1e-9)
    assert result.plan_.epsilon(1e-6) <= 2.0
    assert [entry.key.name for entry in result.ledger_] == ["sums"] * 3
    assert {entry.state for entry in result.ledger_} == {"committed"}
    assert set(result.communication_) == {"x", "y", "z"}
    assert result.communication_["x"]["received"] > 7 * 8
    assert "pooled" in str(result)
    with pytest.raises(KeyError, match="no summary"):
        result["pooled", "nothing"]


def test_default_delta_is_far_below_one_over_n() -> None:
    plan = unpooled.describe(DATA, BOUNDS, sites=SITES).plan_
    assert plan.study.delta == min(1e-5, 0.1 / 300)


def test_unit_attribute_needs_less_noise_and_says_what_a_record_pays() -> None:
    record = unpooled.describe(DATA, BOUNDS)
    attribute = unpooled.describe(DATA, BOUNDS, unit="attribute")
    ratio = record["all", "age"].mean.noise / attribute["all", "age"].mean.noise
    assert ratio == pytest.approx(math.sqrt(3), rel=1e-2)
    assert attribute.plan_.epsilon(1e-5, "attribute") <= 1.0 < attribute.plan_.epsilon(1e-5, "record")
    assert attribute.statement_.epsilon_per_unit["record"] == attribute.plan_.epsilon(1e-5, unit="record")


def test_without_bounds_it_warns_and_promises_nothing() -> None:
    with pytest.warns(PrivacyLeakWarning, match="exploration"):
        result = unpooled.describe(DATA)
    assert not result.statement_.holds
    assert "NO privacy guarantee" in str(result.statement_)


def test_a_seed_is_a_simulation_and_says_so() -> None:
    one, two = (unpooled.describe(DATA, BOUNDS, random_state=1) for _ in range(2))
    assert one.summaries_ == two.summaries_
    assert not one.statement_.holds
    assert "simulation" in str(one.statement_)
    real = unpooled.describe(DATA, BOUNDS)
    assert real.summaries_ != unpooled.describe(DATA, BOUNDS).summaries_


@pytest.mark.long_for("3.0")
@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_intervals_cover_the_truth(epsilon: float) -> None:
    """95 % intervals of mean and sd, pooled and per site, over 300 simulated populations; 99.9 % binomial limits."""
    hits = {"mean": 0, "sd": 0, "count": 0}
    runs = 300
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        values = rng.normal(50, 12, 1500)
        absent = rng.random(1500) < 0.2
        result = unpooled.describe(
            {"v": np.where(absent, np.nan, values)}, Bounds(0, 100, missing="absent"), epsilon=epsilon, random_state=seed
        )["all", "v"]
        hits["mean"] += result.mean.low <= 50 <= result.mean.high
        hits["sd"] += result.sd.low <= 12 <= result.sd.high
        hits["count"] += result.count.low <= (~absent).sum() <= result.count.high
    for name, covered in hits.items():
        assert 0.91 <= covered / runs <= 0.985, (name, covered / runs)


def test_the_pooled_figures_are_the_sum_of_the_releases() -> None:
    result = unpooled.describe(DATA, BOUNDS, sites=SITES, random_state=0)
    for category in "abc":
        parts = [result[s, "group", category].count.value for s in "xyz"]
        assert result["pooled", "group", category].count.value == pytest.approx(sum(parts))


SECRET = 987654.321
BAD = [
    ({"age": np.array([1.0, np.nan, SECRET])}, BOUNDS, {}, UsageError, "group"),
    ({"age": np.array([1.0, np.nan, SECRET])}, Bounds(0, 1), {}, DataError, "missing"),
    ({"age": np.array([1.0, np.inf, SECRET])}, Bounds(0, 1), {}, DataError, "infinite"),
    ({"age": np.array(["SECRET", "b"])}, Bounds(0, 1), {}, DataError, "text"),
    ({"age": np.array(["SECRET", "b"])}, Bounds(categories={"age": ["b", "c"]}), {}, DataError, "categories"),
    ({"age": np.array([SECRET])}, Bounds(0, 1), {}, UsageError, "at least 2 rows"),
    ({"age": np.array([])}, Bounds(0, 1), {}, DataError, "row"),
    ({}, Bounds(0, 1), {}, DataError, "no columns"),
    ({"age": np.ones(3), "dose": np.ones(4)}, Bounds(0, 1), {}, DataError, "rows"),
    ({"age": np.ones((3, 2))}, Bounds(0, 1), {}, DataError, "dimensions"),
    ({"age": np.array([1j, SECRET])}, Bounds(0, 1), {}, DataError, "complex"),
    ({"age": np.array([SECRET, 2.0])}, Bounds(1, 0), {}, UsageError, "low must be smaller"),
    ({"age": np.array([SECRET, 2.0])}, Bounds([0, 0], 1), {}, UsageError, "shape"),
    ({"age": np.array([SECRET, 2.0])}, Bounds(0, 1), {"sites": ["a"]}, UsageError, "labels"),
    ({"age": np.array([SECRET, 2.0])}, Bounds(0, 1), {"sites": [1.0, math.nan]}, UsageError, "missing label"),
    ({"age": np.array([SECRET, 2.0])}, Bounds(0, 1), {"sites": ["a", None]}, UsageError, "missing label"),
    (np.full((3, 2, 2), SECRET), Bounds(0, 1), {}, UsageError, "dimensions"),
    (np.full((3, 2), SECRET), Bounds(0, 1), {"columns": ["a"]}, UsageError, "columns"),
    ({"age": np.array([SECRET, 2.0])}, Bounds(0, 1), {"epsilon": math.nan}, UsageError, "nan"),
    ({"age": np.array([SECRET, 2.0])}, Bounds(0, 1), {"epsilon": -5}, UsageError, "epsilon"),
    ({"age": np.array([SECRET, 2.0])}, Bounds(0, 1), {"epsilon": True}, UsageError, "bool"),
    ({"age": np.array([SECRET, 2.0])}, Bounds(0, 1), {"epsilon": 1e-400}, UsageError, "epsilon"),
    ({"age": np.array([SECRET, 2.0])}, Bounds(0, 1), {"epsilon": "1"}, UsageError, "str"),
    ({"age": np.array([SECRET, 2.0])}, Bounds(0, 1), {"delta": 1.0}, UsageError, "delta"),
    ({"age": np.array([SECRET, 2.0])}, Bounds(0, 1), {"delta": 0.0}, UnpooledError, "delta"),
    ({"age": np.array([SECRET, 2.0])}, Bounds(0, 1), {"unit": "person"}, UsageError, "'record'"),
    ({"age": np.array([SECRET, 2.0])}, Bounds(0, 1), {"adjacency": "add"}, UsageError, "'replace'"),
    ({"age": np.array([SECRET, 2.0])}, Bounds(0, 1), {"confidence": 1.5}, UsageError, "confidence"),
    ({"age": np.array([SECRET, 2.0])}, None, {"epsilon": math.inf}, UsageError, "bounds"),
]


@pytest.mark.guarantee
@pytest.mark.parametrize(("data", "bounds", "options", "error", "match"), BAD)
def test_bad_input_gets_a_typed_error_that_holds_no_value(data, bounds, options, error, match) -> None:
    with pytest.raises(error, match=match) as caught:
        unpooled.describe(data, bounds, **options)
    assert "987654" not in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_a_series_gives_no_value_away_and_is_a_column_under_its_name() -> None:
    assert unpooled.describe(pl.Series("age", DATA["age"]), (0, 100)).summaries_[0].column == "age"

    class Series:
        """As pandas has them: items, a name and no columns; iterating gives the values."""

        name, dtype = "age", np.dtype(float)

        def __array__(self, dtype=None, copy=None):
            return np.array([SECRET, np.inf])

        def __iter__(self):
            return iter([SECRET, np.inf])

        def items(self):
            return enumerate(self)

        def __getitem__(self, key):
            raise KeyError(key)

    with pytest.raises(DataError, match="'age' holds an infinite value"):
        unpooled.describe(Series(), (0, 100))


def test_an_unknown_summary_lists_those_there_are() -> None:
    result = unpooled.describe(DATA, BOUNDS)
    with pytest.raises(KeyError, match=r"'agee'.*there are \('all', 'age'\), \('all', 'dose'\), \('all', 'group', 'a'\)"):
        result["all", "agee"]
    with pytest.raises(KeyError):
        result["all", "group"]


def test_bounds_by_name_are_bounds() -> None:
    by_name = {"group": ["a", "b", "c"], "dose": (-1, 5), "age": (0, 100)}
    named = unpooled.describe(DATA, Bounds(by_name, missing={"dose": "absent"}), random_state=0)
    assert named.plan_.hash == unpooled.describe(DATA, BOUNDS, random_state=0).plan_.hash


@pytest.mark.guarantee
def test_published_calibration_and_trust_are_refused_by_this_model() -> None:
    import msgspec

    from unpooled.models import load

    study = unpooled.describe(DATA, BOUNDS).plan_.study
    compile_plan = load("describe").compile
    with pytest.raises(UsageError, match="another form"):
        compile_plan(msgspec.structs.replace(study, calibration="published"))
    with pytest.raises(UsageError, match="trust"):
        compile_plan(msgspec.structs.replace(study, trust={"aggregation": "trusted"}))
    with pytest.raises(UsageError, match="unknown field"):
        compile_plan(msgspec.structs.replace(study, parameters={"colums": ["age"]}))
    with pytest.raises(UsageError, match="each once"):
        compile_plan(msgspec.structs.replace(study, parameters={"columns": ["age", "age"]}))
    with pytest.raises(UsageError, match="no column"):
        compile_plan(msgspec.structs.replace(study, parameters={"columns": ["weight"]}))


def test_parties_that_disagree_about_a_column_are_refused() -> None:
    import msgspec

    from unpooled.models import load

    study = unpooled.describe(DATA, BOUNDS, sites=SITES).plan_.study
    first, *others = study.parties
    other = msgspec.structs.replace(
        first, columns=(msgspec.structs.replace(first.columns[0], high=99.0), *first.columns[1:])
    )
    with pytest.raises(UsageError, match="declared differently"):
        load("describe").compile(msgspec.structs.replace(study, parties=(others[0], other)))


# --- what is known of the total ---------------------------------------------------------------------------------------------


def test_categories_of_a_column_without_gaps_add_up_to_the_rows() -> None:
    """C10: 312 of 303 rows. Against scipy's least squares on the simplex; noise of no size changes nothing."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(0)
    for _ in range(60):
        k, n = int(rng.integers(2, 7)), int(rng.integers(2, 400))
        counts = rng.normal(n / k, n, k).tolist()
        found = np.array([e.value for e in shares_of(n, counts, 4.0, 1.96)])
        assert found.min() >= 0
        assert found.sum() == pytest.approx(n, rel=1e-12)
        best = minimize(
            lambda x, c=counts: np.sum((x - c) ** 2) / n**2,
            np.full(k, n / k),
            bounds=[(0, n)] * k,
            constraints={"type": "eq", "fun": lambda x, n=n: (x.sum() - n) / n},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert np.abs(found - best.x).max() < 1e-3 * n
    exact = shares_of(10, [3.0, 7.0, 0.0], 0.0, 1.96)
    assert [(e.value, e.low, e.high) for e in exact] == [(3.0, 3.0, 3.0), (7.0, 7.0, 7.0), (0.0, 0.0, 0.0)]


@pytest.mark.parametrize("true", [[150, 100, 53], [303, 0, 0], [2, 1, 300], [152, 151]])
def test_intervals_of_shares_stay_honest_and_get_shorter(true: list[int]) -> None:
    rng, n, sigma, runs = np.random.default_rng(1), sum(true), 12.0, 4000
    inside, error, raw = 0, 0.0, 0.0
    for _ in range(runs):
        noisy = np.array(true) + rng.normal(0, sigma, len(true))
        found = shares_of(n, noisy.tolist(), sigma**2, 1.959964)
        inside += sum(e.low <= t <= e.high for e, t in zip(found, true, strict=True))
        assert all(e.low <= e.value <= e.high for e in found)
        error += sum((e.value - t) ** 2 for e, t in zip(found, true, strict=True))
        raw += float(np.square(noisy - true).sum())
    assert inside / (runs * len(true)) > 0.945
    assert error < (1 - 1 / len(true)) * raw * 1.03


def test_a_deviation_that_the_noise_swallowed_is_said_to_be() -> None:
    number = Estimate(5.0, 4.0, 6.0, 1.0)
    swallowed = Summary("a", "x", None, Estimate(9.0, 9.0, 9.0, 0.0), number, Estimate(0.0, 0.0, 34.8, 8.0))
    constant = Summary("a", "x", None, Estimate(9.0, 9.0, 9.0, 0.0), number, Estimate(0.0, 0.0, 0.0, 0.0))
    assert "below the noise, at most 34.8" in str(printed_summaries((swallowed,)))
    assert "0 [0, 0]" in str(printed_summaries((constant,)))


def test_a_card_with_labels_alone_has_nothing_to_describe() -> None:
    card = Card("a", 60, (), ("y",))
    with pytest.raises(UsageError, match="declares no columns to describe"):
        MODEL.compile(Study("describe", (card,), 1.0, 1e-6, derived=()))
