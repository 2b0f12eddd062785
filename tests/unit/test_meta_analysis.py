"""Meta-analyses of fits at every site: the textbook's numbers, one plan whose budget nobody pays twice, who is left out, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from commands import PARTIES, approve, command

import unpooled
from unpooled import PrivateGLM, PrivateLinearRegression, meta_analysis
from unpooled.errors import UsageError
from unpooled.inference.sites import FIXED, PooledTerm
from unpooled.inference.summary import SummaryTerm
from unpooled.kernels.between_sites import pooled
from unpooled.models import load
from unpooled.models.analyses import declared
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Household, Study
from unpooled.privacy.unit import Target, Unit
from unpooled.study.party import create_party

#: Trials of the BCG vaccine (Colditz et al. 1994): cases and others, vaccinated and not.
BCG = [
    (4, 119, 11, 128),
    (6, 300, 29, 274),
    (3, 228, 11, 209),
    (62, 13536, 248, 12619),
    (33, 5036, 47, 5761),
    (180, 1361, 372, 1079),
    (8, 2537, 10, 619),
    (505, 87886, 499, 87892),
    (29, 7470, 45, 7232),
    (17, 1699, 65, 1600),
    (186, 50448, 141, 27197),
    (5, 2493, 3, 2338),
    (27, 16886, 29, 17825),
]


def test_the_textbooks_trials_are_pooled_as_the_textbook_has_them() -> None:
    a, b, c, d = np.array(BCG, dtype=float).T
    values = np.log(a / (a + b)) - np.log(c / (c + d))
    variances = 1 / a - 1 / (a + b) + 1 / c - 1 / (c + d)
    found = pooled(values, variances, 0.95)
    assert found.q == pytest.approx(152.2330, abs=1e-4)
    assert found.tau_squared == pytest.approx(0.3088, abs=5e-5)
    assert found.i_squared == pytest.approx(0.9212, abs=5e-5)
    assert found.mean == pytest.approx(-0.7141, abs=5e-5)
    assert found.fixed[0] == pytest.approx(-0.4303, abs=5e-5)
    assert math.sqrt(found.fixed[1]) == pytest.approx(0.0405, abs=5e-5)
    weights = 1 / (variances + found.tau_squared)
    error = math.sqrt(weights @ (values - found.mean) ** 2 / 12 / weights.sum())
    assert found.error == pytest.approx(error)
    low, high = found.interval
    assert (high - low) / 2 == pytest.approx(2.1788128 * error, rel=1e-6)  # Student's with 12 degrees
    assert found.predicted is not None
    assert (found.predicted[1] - found.mean) == pytest.approx(
        2.2009852 * math.hypot(math.sqrt(found.tau_squared), error), rel=1e-6
    )


def test_the_line_of_fixed_effects_has_the_normal_interval_and_test_of_its_error() -> None:
    sites = {
        name: SummaryTerm("age", value, error, 0.0, value / error, 0.5, value - error, value + error)
        for name, value, error in (("a", 1.0, 0.5), ("b", 0.4, 0.25), ("c", 0.9, 0.4))
    }
    found = PooledTerm.of("age", 0.9, sites, {})
    lines = found.lines
    assert str(found).splitlines()[0].split()[-2:] == ["[0.05", "0.95]"]
    (fixed,) = [line for line in lines if line.group == FIXED]
    precision = np.array([4.0, 16.0, 6.25])
    error = 1 / math.sqrt(precision.sum())
    assert fixed.estimate == pytest.approx(precision @ [1.0, 0.4, 0.9] / precision.sum())
    assert fixed.std_error == pytest.approx(error)
    assert (fixed.conf_low, fixed.conf_high) == pytest.approx(
        (fixed.estimate - 1.6448536 * error, fixed.estimate + 1.6448536 * error), rel=1e-6
    )
    assert fixed.p_value == pytest.approx(math.erfc(fixed.estimate / error / math.sqrt(2)), rel=1e-9)
    assert [line.group for line in lines[:3]] == ["a", "b", "c"]
    squares = [mark.get_markersize() for mark in found.figure().axes[0].lines if mark.get_marker() == "s"]
    assert squares == pytest.approx([4 + 6 * 0.5, 10.0, 4 + 6 * 0.625])  # as the roots of their weights


def test_equal_errors_give_the_t_interval_of_the_estimates() -> None:
    values = np.array([1.0, 1.4, 0.7, 1.2])
    found = pooled(values, np.full(4, 1e-6), 0.9)
    half = 2.3533634 * values.std(ddof=1) / 2
    assert found.mean == pytest.approx(values.mean())
    assert found.interval == pytest.approx((found.mean - half, found.mean + half))
    assert pooled(values[:2], np.ones(2), 0.9).predicted is None
    assert pooled(np.array([1.0, 1.0]), np.ones(2), 0.95).interval == (1.0, 1.0)


def test_q_has_its_size_with_the_noise_and_not_without_it() -> None:
    rng = np.random.default_rng(0)
    sampling, noise = rng.uniform(0.01, 0.04, (2, 8))
    drawn = [np.sqrt(sampling + noise) * rng.normal(size=8) for _ in range(1500)]
    assert np.mean([pooled(v, sampling + noise, 0.95).q_p_value < 0.05 for v in drawn]) == pytest.approx(0.05, abs=0.02)
    assert (
        np.mean([pooled(v, sampling, 0.95).q_p_value < 0.05 for v in drawn]) > 0.3
    )  # broken on purpose: the noise is forgotten
    held = [low <= 0 <= high for low, high in (pooled(v, sampling + noise, 0.95).interval for v in drawn)]
    assert np.mean(held) == pytest.approx(0.95, abs=0.025)


# --- one study ----------------------------------------------------------------------------------------------------------------------


def frame_of(n: int = 12_000, seed: int = 0) -> tuple[pl.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    site = rng.choice(["lyon", "oslo", "riga"], n, p=[0.5, 0.3, 0.2])
    arm, age = rng.choice(["old", "new"], n), rng.uniform(20, 90, n)
    y = 10 + 0.1 * age - 2 * (arm == "new") + (site == "riga") + rng.normal(0, 3, n)
    return pl.DataFrame({"arm": arm, "age": age, "y": np.clip(y, 0, 40)}), site


BOUNDS = {"arm": ["old", "new"], "age": (20, 90)}


def model_of(epsilon: float = 2.0, **more: Any) -> PrivateLinearRegression:
    return PrivateLinearRegression(epsilon=epsilon, bounds=BOUNDS, y_bounds=(0, 40), random_state=0, **more)


def test_without_noise_every_site_has_its_own_least_squares() -> None:
    frame, site = frame_of(1500)
    found = meta_analysis(model_of(math.inf), frame, "y", sites=site, terms=["arm", "age"])
    assert list(found.pooled_) == ["arm: new - old", "age"]
    for name, line in found["age"].sites.items():
        own = frame.filter(pl.Series(site == name))
        X = np.column_stack([own["arm"] == "new", own["age"], np.ones(own.height)]).astype(float)
        b = np.linalg.lstsq(X, own["y"].to_numpy(), rcond=None)[0]
        left = own["y"].to_numpy() - X @ b
        error = math.sqrt(np.linalg.inv(X.T @ X)[1, 1] * (left @ left) / (own.height - 3))
        assert line.estimate == pytest.approx(b[1], abs=1e-5)
        assert line.std_error == pytest.approx(error, rel=2e-3)
    lines = list(found["age"].sites.values())
    own = pooled(np.array([t.estimate for t in lines]), np.array([t.std_error**2 for t in lines]), 0.95)
    assert found["age"].pooled == own


@pytest.mark.slow
def test_a_private_meta_analysis_says_everything() -> None:
    frame, site = frame_of()
    found = meta_analysis(model_of(), frame, "y", sites=site, terms="arm: new - old")
    term = found["arm: new - old"]
    assert term.pooled is not None
    assert abs(term.pooled.fixed[0] + 2) < 5 * math.sqrt(term.pooled.fixed[1])
    assert all(0 < line.privacy < line.std_error for line in term.sites.values())
    text = str(found)
    for words in (
        "lyon",
        "fixed effect",
        "random effects",
        "a new site",
        "Q =",
        "I^2",
        "tau^2",
        "3 sites: below 8 sites",
        "NO privacy",
    ):
        assert words.lower() in text.lower()
    assert [line.group for line in found.terms] == ["lyon", "oslo", "riga", "fixed effect", "random effects", "a new site"]
    assert found.to_dict()["terms"][0]["pooled"]["q"] == term.pooled.q
    assert found.figure().axes[0].get_yticklabels()[0].get_text() == "lyon"
    assert found.tables_["oslo"].contrast("age").terms[0].term == "age"
    assert found.plan_.statement.epsilon == pytest.approx(2.0, abs=1e-6)
    with pytest.raises(KeyError, match="there are arm: new - old"):
        found["dose"]


@pytest.mark.slow
def test_a_generalised_linear_model_is_pooled_too() -> None:
    frame, site = frame_of(9000)
    died = np.random.default_rng(1).random(9000) < 1 / (1 + np.exp(-(frame["age"].to_numpy() - 60) / 20))
    model = PrivateGLM("logistic", epsilon=4.0, bounds=BOUNDS, classes=[False, True], random_state=0)
    found = meta_analysis(model, frame.drop("y"), died, sites=site, terms="age")
    assert found["age"].pooled is not None
    assert found["age"].pooled.mean == pytest.approx(1 / 20, abs=0.02)


# --- the budget -----------------------------------------------------------------------------------------------------------------------

COLUMNS = (Column("a", 0, 1), Column("b", 0, 1), Column("y", 0, 1))


def study_of(rows: int = 2000, **analysis: Any) -> Study:
    cards = tuple(Card(name, rows, COLUMNS) for name in ("lyon", "oslo", "riga"))
    one = {"name": "fit", "model": "bayes", "parameters": {"response": "y"}, "apart": True, "pool": ["a"]} | analysis
    return Study("analyses", cards, 1.0, 1e-5, parameters={"analyses": [one]}, derived=())


def paid(plan: Any, unit: Unit, holders: dict[str, float]) -> float:
    """Return mu of everything that somebody pays who has these parts of the rows that may count, at these parties."""
    squares = 0.0
    for release in plan.releases:
        event = release.event(unit)
        squares += release.count * (event.value * holders.get(release.party, 0.0)) ** 2
    return math.sqrt(squares)


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_each_site_spends_the_whole_budget_and_nobody_pays_twice(adjacency: str) -> None:
    """Theorem F.27."""
    study = msgspec.structs.replace(study_of(), adjacency=adjacency)
    plan = load("analyses").compile(study)
    assert list(plan.parts) == ["fit at lyon", "fit at oslo", "fit at riga"]
    assert [[card.name for card in inner.study.parties] for inner in plan.parts.values()] == [["lyon"], ["oslo"], ["riga"]]
    assert plan.epsilon(1e-5) == pytest.approx(1.0, abs=1e-6)
    mu = budget_mu(1.0, 1e-5)
    for site in ("lyon", "oslo", "riga"):
        assert paid(plan, Unit.RECORD, {site: 1.0}) == pytest.approx(mu, rel=1e-3)
    two = {"name": "two", "model": "describe", "columns": ["a"], "share": 0.5}
    one = {**study.parameters["analyses"][0], "share": 0.5}
    both = load("analyses").compile(msgspec.structs.replace(study, parameters={"analyses": [one, two]}))
    assert both.epsilon(1e-5) == pytest.approx(1.0, abs=1e-6)


def test_fits_on_the_rows_of_all_sites_would_be_paid_by_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: every plan takes the rows of all parties."""
    names_of = declared.names_of
    monkeypatch.setattr(declared, "names_of", lambda study, one: dict.fromkeys(names_of(study, one), ""))
    monkeypatch.setattr(declared, "within_budget", lambda _study, parts: parts(1.0))
    plan = load("analyses").compile(msgspec.structs.replace(study_of(), trust={}, parameters=_trusting()))
    assert paid(plan, Unit.RECORD, {"lyon": 1.0}) > 1.5 * budget_mu(1.0, 1e-5)
    assert plan.epsilon(1e-5) > 1.5  # and the statement says so


def _trusting() -> dict[str, Any]:
    (one,) = study_of().parameters["analyses"]
    return {"analyses": [{**one, "trust": {"aggregation": "local"}}]}


def test_a_household_at_several_sites_pays_no_more_than_one_fit() -> None:
    cards = tuple(Card(name, 3000, COLUMNS, household=Household("id", 1000, 3)) for name in ("lyon", "oslo"))
    study = msgspec.structs.replace(study_of(), parties=cards, unit="household")
    plan = load("analyses").compile(study)
    assert plan.epsilon(1e-5) == pytest.approx(1.0, rel=1e-3)
    mu = budget_mu(1.0, 1e-5)
    assert paid(plan, Unit.HOUSEHOLD, {"lyon": 1.0}) <= mu * (1 + 1e-3)
    assert paid(plan, Unit.HOUSEHOLD, {"lyon": 2 / 3, "oslo": 1 / 3}) <= mu
    assert paid(plan, Unit.HOUSEHOLD, {"lyon": 1.0, "oslo": 1.0}) > 1.2 * mu  # broken on purpose: three rows at each


# --- who is left out, and what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_site_without_errors_or_without_the_term_is_left_out_in_words() -> None:
    rng = np.random.default_rng(0)
    n = {"lyon": 8000, "oslo": 8000, "riga": 60}
    site = np.repeat(list(n), list(n.values()))
    x = rng.uniform(0, 1, (len(site), 2))
    x[site == "oslo", 0] = 0.5  # nobody varies there
    y = np.clip(x @ [0.5, 0.3] + rng.normal(0, 0.1, len(site)), 0, 1)
    model = PrivateLinearRegression(epsilon=1.0, bounds=(0, 1), y_bounds=(0, 1), random_state=0)
    found = meta_analysis(model, x, y, sites=site, terms=["x0", "x1"])
    assert list(found["x0"].sites) == ["lyon"]
    assert found["x0"].pooled is None
    assert "no standard errors" in found["x0"].left_out["riga"]
    assert "not determined" in found["x0"].left_out["oslo"]
    assert "nothing is pooled" in str(found["x0"])
    assert list(found["x1"].sites) == ["lyon", "oslo"]
    assert "2 sites: below 8" in str(found["x1"])
    assert found.tables_["riga"] is None


def test_few_sites_are_said_to_be_few_and_many_are_not() -> None:
    line = SummaryTerm("a", 1.0, 0.1, 0.05, 10.0, 0.0, 0.8, 1.2)
    for count in (7, 8):
        text = str(PooledTerm.of("a", 0.95, {f"s{k}": line for k in range(count)}, {}))
        assert ("hardly known" in text) == (count < 8)
    assert "more careful" in text  # equal estimates have no spread at all


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pool": ["dose"]}, "dose"),
        ({"apart": False}, "apart = true"),
        ({"model": "describe", "parameters": {}, "pool": ["a"]}, "no terms with standard errors"),
        ({"name": "a name of thirty-eight letters, or more"}, "letters"),
        ({"parameters": {"response": "y", "site_effects": "fixed"}}, "this study has one"),
    ],
)
def test_what_cannot_be_pooled_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load("analyses").compile(study_of(**change))


def test_a_meta_analysis_needs_sites_and_terms() -> None:
    frame, site = frame_of(500)
    with pytest.raises(UsageError, match="several sites"):
        meta_analysis(model_of(), frame, "y", sites=None, terms="age")
    with pytest.raises(UsageError, match="at least one term"):
        meta_analysis(model_of(), frame, "y", sites=site, terms=[])
    with pytest.raises(UsageError, match="has one"):
        meta_analysis(model_of(), frame, "y", sites=np.full(500, "oslo"), terms="age")
    one = load("analyses")
    cards = study_of().parties
    with pytest.raises(UsageError, match="would be called"):
        listed = [*study_of().parameters["analyses"], {"name": "fit at oslo", "model": "describe"}]
        one.compile(msgspec.structs.replace(study_of(), parameters={"analyses": listed}))
    with pytest.raises(UsageError, match="this study has one"):
        one.compile(msgspec.structs.replace(study_of(), parties=cards[:1]))
    long = tuple(msgspec.structs.replace(card, name=f"the hospital (of {card.name}), a long name") for card in cards)
    assert next(iter(one.compile(msgspec.structs.replace(study_of(), parties=long)).parts)) == "fit at site 1"


@pytest.mark.slow
def test_the_budget_of_the_model_is_debited() -> None:
    frame, site = frame_of(3000)
    budget = unpooled.Budget(3.0, 1e-4)
    model = PrivateLinearRegression(epsilon=1.0, bounds=BOUNDS, y_bounds=(0, 40), budget=budget)
    meta_analysis(model, frame, "y", sites=site, terms="age")
    assert 0.5 < budget.spent < 1.01


TEXT = """\
[study]

[privacy]
epsilon = 4.0
delta = 1e-6

[[analysis]]
name = "apart"
model = "glm"
apart = true
pool = ["sex"]
share = 0.5

[analysis.parameters]
response = "age"
family = "poisson"
max_passes = 15

[[analysis]]
name = "fixed"
model = "bayes"
share = 0.5

[analysis.parameters]
response = "age"
max_passes = 15
site_effects = "fixed"

[[party]]
card = "north/north.card.toml"

[[party]]
card = "south/south.card.toml"
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_study_over_files_pools_sites_and_gives_them_constants(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    for name, n in (("north", 6000), ("south", 5000)):
        (home := tmp_path / name).mkdir()
        sex = rng.choice(["f", "m"], n)
        age = rng.poisson(20 + 5 * (sex == "m") + 3 * (name == "south"), n)
        pl.DataFrame({"age": age.astype(float), "sex": sex}).write_csv(home / "data.csv")
        columns = (Column("age", 0.0, 60.0), Column("sex", categories=("f", "m")))
        create_party(home, name, home / "data.csv", columns, Target(4.0, 1e-6))
    (tmp_path / "study.toml").write_text(TEXT)
    plan = command(tmp_path, "plan", "study.toml")
    assert "analysis 'apart' is fitted at every site by itself" in plan
    approve(tmp_path)
    command(tmp_path, "run", "study.toml", *PARTIES)
    text = command(tmp_path, "result", "study.run")
    for words in ("apart, pooled over sites", "site: south - north", "fixed effect", "2 sites: below 8 sites"):
        assert words in text
    data = msgspec.json.decode(command(tmp_path, "result", "study.run", "--json"))
    (term,) = data["meta_analyses"]["apart"]
    assert [line["group"] for line in term["terms"]] == ["north", "south", "fixed effect", "random effects"]
    assert abs(term["pooled"]["fixed"][0] - math.log(25 / 20)) < 0.1
    # Run again it is continued: nobody is asked a second time.
    assert command(tmp_path, "result", "study.run", "--analysis", "apart at north")
    command(tmp_path, "run", "study.toml", *PARTIES)
    assert command(tmp_path, "result", "study.run") == text
    command(tmp_path, "report", "study.run")
    page = next((tmp_path / "study.run").glob("*.html"), None) or next(tmp_path.glob("*.html"))
    assert "sex: m - f at every site" in page.read_text()
