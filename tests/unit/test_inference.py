"""Tables, tests and smaller models from released moments, held against scikit-learn and textbook formulas without noise."""

from __future__ import annotations

import builtins
import html
import math
from dataclasses import replace

import msgspec
import numpy as np
import polars as pl
import pytest
from scipy import stats
from sklearn.linear_model import Lasso, LinearRegression

import unpooled
from unpooled import PrivateBayesianRegression
from unpooled.errors import UsageError
from unpooled.inference.coding import coded_terms
from unpooled.inference.estimates import CONSTANT_TERM, Estimates, holm, wald
from unpooled.inference.printed_terms import CODINGS, printed_terms
from unpooled.inference.tables import JointTest
from unpooled.linear.inference import DRAWS, LinearSummary, correlation, inflation, principal_components
from unpooled.linear.layout import MomentsLayout
from unpooled.privacy.bounds import Column
from unpooled.protocol.registry import of_terms
from unpooled.protocol.terms import ResultTerm

N, NAMES = 4000, ("age", "dose", "<b>weight</b>", "none")
METHODS = ("moments", "refinement")


def made(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 4))
    X[:, 1] += 0.5 * X[:, 0]
    X = np.clip(X, -5, 5)
    return X, X @ [1.0, -0.5, 0.25, 0.0] + 2.0 + rng.normal(size=N)


X, Y = made()


def fitted(method: str = "moments", epsilon: float = math.inf, **parameters) -> PrivateBayesianRegression:
    options = {"bounds": dict.fromkeys(NAMES, (-5, 5)), "y_bounds": (-12, 12), "delta": 1e-5, "random_state": 0}
    import polars as pl

    model = PrivateBayesianRegression(epsilon=epsilon, method=method, **(options | parameters))
    return model.fit(pl.DataFrame(X, schema=list(NAMES)), Y)


def textbook() -> tuple[np.ndarray, np.ndarray, float]:
    Z = np.column_stack([X, np.ones(N)])
    beta = np.linalg.lstsq(Z, Y, rcond=None)[0]
    variance = float(np.sum((Y - Z @ beta) ** 2) / (N - 5))
    return beta, np.sqrt(variance * np.linalg.inv(Z.T @ Z).diagonal()), variance


@pytest.mark.parametrize("method", METHODS)
def test_without_noise_a_summary_is_the_textbooks(method: str) -> None:
    table = fitted(method).summary()
    beta, errors, variance = textbook()
    assert [t.term for t in table.terms] == [*NAMES, CONSTANT_TERM]
    assert [t.estimate for t in table.terms] == pytest.approx(beta, abs=0.01)
    # Rows of the rounds are shortened to a typical length, which a standard error must pay for.
    assert np.array([t.std_error for t in table.terms]) / errors == pytest.approx(
        np.ones(5), abs=0.02 if method == "moments" else 0.45
    )
    assert table.residual_variance == pytest.approx(variance, rel=0.02)
    assert table.r_squared == pytest.approx(LinearRegression().fit(X, Y).score(X, Y), abs=0.01)
    low, high = table.r_squared_interval
    assert low < table.r_squared < high
    assert table.f_test is not None
    assert (table.f_test.p_words, table.f_test.p_value) == (f"< 3/{DRAWS}", pytest.approx(1 / (DRAWS + 1)))
    for t in table.terms:
        assert t.conf_low < t.estimate < t.conf_high
        assert t.p_value == pytest.approx(2 * stats.norm.sf(abs(t.statistic)))
        assert t.privacy <= 0.1 * t.std_error


def test_privacy_is_told_apart_and_adds_up() -> None:
    loud, quiet = fitted(epsilon=10.0).summary(), fitted(epsilon=50.0).summary()
    for a, b in zip(loud.terms, quiet.terms, strict=True):
        assert a.privacy > b.privacy
        assert a.std_error > a.privacy


def test_a_summary_reads_as_people_expect() -> None:
    table = fitted("refinement", epsilon=5.0).summary(confidence=0.9, adjust="holm")
    text = str(table)
    for word in ("estimate", "std error", "privacy", "[0.05", "0.95]", "R^2", "F(4)", "p (holm)", f"n = {N}"):
        assert word in text
    assert repr(table) == f"LinearSummary({len(table.terms)} lines)"
    page = table._repr_html_()
    assert "<b>weight" not in page
    assert "&lt;b&gt;weight" in page
    plain = table.to_dict()
    assert plain["terms"][0]["term"] == "age"
    assert plain["rows"] == N
    assert plain["adjust"] == "holm"


def test_a_table_without_lines_says_nothing_of_columns_that_it_does_not_have() -> None:
    table = fitted("refinement", epsilon=5.0).summary()
    empty = str(replace(table, terms=(), not_determined=("age",)))
    assert "std error" in str(table)
    for word in ("std error", "privacy is the part", "credible"):
        assert word not in empty
    assert "not determined, so not printed" in empty


def test_pandas_is_asked_for_only_when_it_is_used(monkeypatch) -> None:
    table = fitted().summary()
    real = builtins.__import__

    def without(name, *rest):
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match="pip install pandas"):
        table.to_pandas()

    class Frame:
        def __init__(self, rows):
            self.rows = rows

        def set_index(self, name):
            return name, self.rows

    class Pandas:
        DataFrame = Frame

    monkeypatch.setattr(builtins, "__import__", lambda name, *rest: Pandas if name == "pandas" else real(name, *rest))
    index, rows = table.to_pandas()
    assert (index, rows[0]["term"]) == ("term", "age")


def test_a_summary_is_asked_for_in_known_words() -> None:
    with pytest.raises(UsageError, match="adjust is None or 'holm', not 'bonferroni'"):
        fitted().summary(adjust="bonferroni")
    for level in (0.0, 1.0, -0.5, 2.0):
        with pytest.raises(UsageError, match="confidence"):
            fitted().summary(confidence=level)


def test_what_is_not_identified_says_so() -> None:
    table = fitted(epsilon=0.05).summary()
    assert [t.term for t in table.terms] == [CONSTANT_TERM]
    assert table.not_determined == NAMES
    assert "not determined" in str(table)
    assert table.f_test is None
    assert "not determined" in table._repr_html_()
    for ask in (lambda m: m.contrast({"age": 1.0}), lambda m: m.anova(["age"])):
        with pytest.raises(UsageError, match="not determined"):
            ask(fitted(epsilon=0.05))


def test_contrasts_of_weights_are_numbered_from_one() -> None:
    found = fitted().contrast(np.eye(len(NAMES))[:2])
    assert [term.term for term in found.terms] == ["contrast 1", "contrast 2"]


HABITS = ("never", "former", "current")


def with_habit(method: str, seed: int, epsilon: float = 4.0) -> PrivateBayesianRegression:
    """20,000 rows: a number, a column of categories, one of them rare, and a response that knows both."""
    import polars as pl

    rng = np.random.default_rng(7)
    habit = rng.choice(3, 20_000, p=[0.6, 0.37, 0.03])
    age = np.clip(rng.normal(size=20_000) + 0.5 * (habit == 2), -5, 5)
    y = 0.5 * age + np.array([0.0, 0.5, 2.0])[habit] + rng.normal(size=20_000)
    frame = pl.DataFrame({"age": age, "habit": np.array(HABITS)[habit]})
    bounds = {"age": (-5.0, 5.0), "habit": HABITS}
    model = PrivateBayesianRegression(
        bounds=bounds, y_bounds=(-12.0, 12.0), method=method, epsilon=epsilon, delta=1e-5, random_state=seed
    )
    return model.fit(frame, y)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_categories_that_add_up_to_the_constant_do_not_spoil_what_is_told_beside_them(method: str) -> None:
    """The noise along the one direction in which no row varies made standard errors of everything up to forty times as large."""
    errors, scores = [], []
    for seed in range(8):
        model = with_habit(method, seed)
        table = {term.term: term for term in model.summary().terms}
        assert table["age"].identified
        assert not any(f"habit = {habit}" in table for habit in HABITS)
        errors.append(table["age"].std_error)
        scores.append((table["age"].estimate - 0.5) / table["age"].std_error)
        # A difference of two is told, and tested.
        for habit, gap in (("former", 0.5), ("current", 2.0)):
            test = model.contrast({f"habit = {habit}": 1.0, "habit = never": -1.0}, gap)
            assert test.degrees == 1
            scores.append(math.sqrt(test.statistic))
    assert max(errors) < 1.3 * min(errors)
    moments = model.moments_
    known = np.linalg.solve(moments.frame.back(intercept=True), moments.layout.still)
    assert np.abs(moments.xx[0] @ known).max() > 1e-3  # noise, which no fit hears
    assert np.abs(moments.noisy.gram @ known).max() < 1e-6
    assert np.abs(moments.noisy.cross @ known).max() < 1e-6
    assert np.abs(scores).max() < 4.5
    assert np.square(scores).mean() < 2.5
    with pytest.raises(UsageError, match="not determined"):
        model.contrast({"habit = never": 1.0})
    assert model.contrast([{"age": 0.0}]).degrees == 0


@pytest.mark.parametrize("missing", ["refuse", "indicator", "absent"])
def test_what_no_row_varies_along_is_known_of_every_row(missing: str) -> None:
    columns = (
        Column("x", 0.0, 3.0),
        Column("a", categories=("u", "v"), missing=missing),
        Column("b", categories=("p", "q", "r")),
        Column("y", 0.0, 1.0),
    )
    layout = MomentsLayout.of(columns, "y", 40)
    rng = np.random.default_rng(1)
    a = rng.choice(np.array(["u", "v", None] if missing != "refuse" else ["u", "v"], dtype=object), 40)
    raw = {"x": rng.uniform(0, 3, 40), "a": a, "b": rng.choice(np.array(["p", "q", "r"], dtype=object), 40)}
    rows = np.column_stack([layout.coding.real([raw[c.name] for c in layout.features]), np.ones(40)])
    known = layout.still.T
    assert len(known) == 1 + (missing != "absent")
    np.testing.assert_allclose(rows @ known.T, 0.0, atol=1e-12)
    assert np.linalg.matrix_rank(rows) == rows.shape[1] - len(known)
    alone = MomentsLayout.of(columns, "y", 40, intercept=False)
    assert alone.still.shape == (alone.size, int(missing != "absent")), (
        "of two columns whose levels add up to 1, the difference"
    )
    np.testing.assert_allclose(rows[:, :-1] @ alone.still, 0.0, atol=1e-12)
    assert MomentsLayout.of(columns, "y", 40, norm=1.0).still.shape == (layout.size, 0)
    # Every line of the table has a value: it is 0 along what no row varies along.
    for given in (layout, alone):
        for coding in CODINGS:
            printed = printed_terms(given.terms.with_constants(given.constants), {"b": "q"}, coding)
            np.testing.assert_allclose(printed.weights @ given.still, 0.0, atol=1e-12)


@pytest.mark.minutes
@pytest.mark.parametrize("method", METHODS)
def test_contrasts_and_smaller_models(method: str) -> None:
    model = fitted(method, epsilon=20.0)
    true = model.contrast({"age": 1.0, "dose": 2.0})
    false = model.contrast([{"age": 1.0}, {"dose": 1.0}])
    assert true.degrees == 1
    assert true.p_value > 1e-4
    assert false.degrees == 2
    assert false.p_value < 1e-12
    assert model.contrast([0, 0, 0, 1.0]).p_value == pytest.approx(model.summary().terms[3].p_value)
    assert model.contrast([[1, 0, 0, 0]], 1.0).p_value > 1e-4
    assert model.anova(["age", "dose", NAMES[2]]).p_value > 1e-3
    assert model.anova(["age", "none"]).p_words.startswith("<")
    for wrong, words in (
        (lambda: model.contrast({"height": 1.0}), "'height'"),
        (lambda: model.contrast([1.0, 2.0]), "a weight for each of the 4"),
        (lambda: model.anova(["height"]), "'height'"),
        (lambda: model.anova(list(NAMES)), "leave something out"),
        (lambda: model.summary(confidence=1.0), "confidence"),
        (lambda: model.summary(adjust="bonferroni"), "adjust"),
    ):
        with pytest.raises(UsageError, match=words):
            wrong()


@pytest.mark.parametrize("method", METHODS)
def test_a_submodel_is_the_model_of_its_columns(method: str) -> None:
    whole = fitted(method)
    small = whole.submodel(["age", "none"])
    wanted = LinearRegression().fit(X[:, [0, 3]], Y)
    assert small.ols().coef_ == pytest.approx(wanted.coef_, abs=0.02 if method == "moments" else 0.12)
    assert small.summary().residual_variance == pytest.approx(float(np.var(Y - wanted.predict(X[:, [0, 3]]))), rel=0.1)
    assert list(small.feature_names_in_) == ["age", "none"]
    assert whole.submodel(list(NAMES)).ols().coef_ == pytest.approx(whole.ols().coef_)
    with pytest.raises(UsageError, match="declared columns"):
        whole.submodel(["height"])
    with pytest.raises(UsageError, match="at least one"):
        whole.submodel([])


def test_the_noise_of_a_submodel_is_that_of_a_simulation() -> None:
    """What columns that are left out had explained goes back to the response, with the noise of their moments."""
    whole, rng = fitted("refinement", epsilon=5.0).moments_, np.random.default_rng(5)
    start = np.array([0.8, -0.5, 0.6, 0.3, 0.2])
    whole = replace(whole, standard=replace(whole.frame, start=start))
    kept, out, d, draws = [0, 4], [1, 2, 3], 5, 40_000
    small = whole.submodel(["age"])
    noise = rng.normal(size=(draws, d + 1, d + 1)) * np.sqrt(np.nan_to_num(whole.variance))
    noise = np.triu(noise) + np.triu(noise, 1).transpose(0, 2, 1)
    b = start[out]
    squares = rng.normal(size=draws) * math.sqrt(whole.frame.squares[1])
    squares += 2 * noise[:, out, d] @ b + np.einsum("i,nij,j->n", b, noise[:, out][:, :, out], b)
    assert small.frame.squares[1] == pytest.approx(squares.var(), rel=0.05)
    cross = noise[:, kept, d] + noise[:, kept][:, :, out] @ b
    assert small.xy[1] == pytest.approx(cross.var(axis=0), rel=0.05)
    exact = whole.frame.squares[0] + 2 * b @ whole.gram[out, d] + b @ whole.gram[np.ix_(out, out)] @ b
    assert small.frame.squares[0] == pytest.approx(exact)


def test_a_submodel_takes_the_clips_variance_for_what_the_whole_model_left_alone() -> None:
    """What the clip left of residuals is .8 of least squares' variance; what the columns left out add to them was never clipped."""
    whole = fitted("refinement", epsilon=50.0).moments_
    clipping = msgspec.structs.replace(whole.frame.clipping, variance=0.8)
    whole = replace(whole, standard=replace(whole.frame, clipping=clipping))
    small = whole.submodel(["age"])
    left, more = whole.least_squares()[2], small.least_squares()[2]
    assert more > 1.2 * left
    assert small.frame.sampling * more == pytest.approx(0.8 * left + (more - left), rel=1e-3)
    assert whole.submodel(list(NAMES)).frame.sampling == pytest.approx(0.8, rel=0.02)


def test_a_prior_about_the_rounds_is_the_law_of_two_draws() -> None:
    """The unshrunk estimates with their errors, and coefficients drawn from the prior, as one normal law (Theorem B.8)."""
    moments, rng, draws = fitted("refinement", epsilon=3.0).moments_, np.random.default_rng(6), 200_000
    frame, noise = moments.frame, 0.02
    prior = frame.prior_of(20_000.0, intercept=True)
    estimate = frame.start + moments.known.inverse @ moments.xy[0]
    errors = noise * moments.weight / moments.rows * moments.known.inverse + moments.met(estimate)
    # Coefficients from the prior and estimates of them: their regression on the estimates is the posterior mean.
    true = np.sqrt(prior) * rng.standard_normal((draws, 5))
    seen = true + rng.multivariate_normal(np.zeros(5), errors, draws)
    slope = np.linalg.lstsq(seen, true, rcond=None)[0].T
    wanted = moments._in_own_units(slope @ estimate, np.cov((true - seen @ slope.T).T), noise)
    fit = moments._about_start(prior, noise)
    assert fit.coef_ == pytest.approx(wanted.coef_, abs=0.02 * abs(wanted.coef_).max())
    assert fit.covariance_ == pytest.approx(wanted.covariance_, abs=0.03 * abs(wanted.covariance_).max())
    plain = moments._about_start(None, noise)
    assert abs(plain.covariance_ - fit.covariance_).max() > 0.1 * abs(fit.covariance_).max(), "the prior counts here"


def test_r_squared_of_columns_far_from_the_middle_of_their_ranges() -> None:
    import polars as pl

    shifted = np.clip(X + 2.0, -5, 5)
    options = {"bounds": dict.fromkeys(NAMES, (-5, 5)), "y_bounds": (-12, 12), "delta": 1e-5, "random_state": 0}
    model = PrivateBayesianRegression(epsilon=math.inf, method="moments", **options)
    table = model.fit(pl.DataFrame(shifted, schema=list(NAMES)), Y).summary()
    assert table.r_squared == pytest.approx(LinearRegression().fit(shifted, Y).score(shifted, Y), abs=0.01)


def test_an_interval_of_r_squared_is_as_wide_as_its_noise() -> None:
    """Sampling alone moves it by about 2 (1 - R^2) sqrt(R^2 / n) (Olkin and Finn); at this epsilon privacy adds less than ten times as much."""
    table = fitted("refinement", epsilon=20.0).summary()
    low, high = table.r_squared_interval
    alone = 4 * 1.96 * (1 - table.r_squared) * math.sqrt(table.r_squared / N)
    assert 0.5 * alone < high - low < 10 * alone


@pytest.mark.parametrize("method", METHODS)
def test_lasso_is_scikit_learns(method: str) -> None:
    wanted = Lasso(alpha=0.2).fit(X, Y)
    found = fitted(method).lasso(0.2)
    assert found.intercept_ == pytest.approx(wanted.intercept_, abs=0.03), "the constant is not shrunk"
    assert found.coef_ == pytest.approx(wanted.coef_, abs=0.005 if method == "moments" else 0.06)
    assert found.coef_[3] == 0.0
    assert np.isnan(found.interval()).all()
    assert not fitted(method).lasso(100.0).coef_.any()
    with pytest.raises(UsageError, match="alpha"):
        fitted(method).lasso(-1.0)


def test_correlations_components_and_inflation() -> None:
    model = fitted()
    wanted = np.corrcoef(X.T)
    assert model.correlation() == pytest.approx(wanted, abs=1e-3)
    assert model.vif() == pytest.approx(np.linalg.inv(wanted).diagonal(), rel=1e-2)
    found = model.pca()
    assert found.explained_variance_ratio.sum() == pytest.approx(1.0)
    assert (np.diff(found.explained_variance_ratio) <= 0).all()
    assert found.components @ found.components.T == pytest.approx(np.eye(4))


def test_impossible_correlations_are_mended() -> None:
    gram = np.array([[1.0, 2.0], [2.0, 1.0]]) * 100
    found = correlation(gram, np.full((2, 2), 4.0), 100, intercept=False)
    assert np.linalg.eigvalsh(found)[0] >= -1e-9
    assert (inflation(found) >= 1).all()
    assert principal_components(found).explained_variance_ratio[0] == pytest.approx(1.0)


def test_the_lines_of_estimates_are_walds() -> None:
    covariance = np.diag([0.04, 1e-4, 0.0])
    found, none = np.array([0.3, -0.005, 1.0]), np.empty((3, 0))
    estimates = Estimates.of(("a", "b", "c"), found, covariance, covariance / 2, np.eye(3), none, none)
    columns = tuple(Column(name, -1.0, 1.0) for name in "abc")
    (a, b), without = estimates.lines(printed_terms(coded_terms(columns)), 0.9)
    for term, error, estimate in ((a, 0.2, 0.3), (b, 0.01, -0.005)):
        assert term.std_error == pytest.approx(error)
        assert term.privacy == pytest.approx(error * math.sqrt(0.5))
        assert term.statistic == pytest.approx(estimate / error)
        assert term.p_value == pytest.approx(2 * stats.norm.sf(abs(estimate) / error))
        assert (term.conf_low, term.conf_high) == pytest.approx(stats.norm.interval(0.9, estimate, error))
    assert without == ("c",), "without an error nothing is tested"


def test_columns_that_repeat_one_another_are_inflated_beyond_measure() -> None:
    assert (inflation(np.ones((2, 2))) > 1e6).all()
    assert inflation(np.eye(3)) == pytest.approx(np.ones(3))


def test_a_wald_statistic_does_not_depend_on_units() -> None:
    rng = np.random.default_rng(4)
    gap, root = rng.normal(size=3), rng.normal(size=(3, 3))
    covariance = root @ root.T
    wanted = float(gap @ np.linalg.solve(covariance, gap))
    for unit in (1.0, 1e-9, 1e9):
        assert wald(unit * gap, unit**2 * covariance) == (pytest.approx(wanted), 3)
    assert wald(np.array([1.0, 1e-6, 0.0]), np.diag([1.0, 1e-12, 0.0])) == (pytest.approx(2.0), 2), (
        "one column's unit is not another's"
    )
    twice = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert wald(twice @ [1.0, 2.0], twice @ twice.T) == (pytest.approx(5.0), 2), (
        "a combination that is asked for twice counts once"
    )


def test_moments_show_what_they_are_and_their_statement() -> None:
    moments = fitted("moments", epsilon=5.0).moments_
    text = f"Moments(4 columns and {moments.layout.response.name!r} of {N} rows, plan {moments.plan[:16]})"
    assert repr(moments) == text
    page = moments._repr_html_()
    assert html.escape(text) in page
    assert html.escape(moments.statement.splitlines()[0]) in page
    assert replace(moments, statement="")._repr_html_().endswith("<p></p>")


def test_holm_is_holms() -> None:
    assert holm(np.array([0.01, 0.04, 0.03])).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert holm(np.array([0.5, 0.9])).tolist() == [1.0, 1.0]


def test_p_values_in_words() -> None:
    assert JointTest("F", 1.0, 1, 0.04).p_words == "0.04"
    assert JointTest("F", 1.0, 1, 0.001, 999).p_words == "< 3/999"
    assert isinstance(fitted().summary(), LinearSummary)


@pytest.mark.slow
def test_a_constant_of_which_more_may_hide_than_its_error_is_not_printed() -> None:
    """Ages and their squares are almost one column, so the constant, which is at age 0, is as unknown as they are."""
    rng, n = np.random.default_rng(0), 30_000
    age, arm = rng.uniform(20, 90, n), rng.choice(["x", "y"], n)
    others = rng.normal(size=(n, 4)).clip(-4, 4)
    y = 0.01 * (age - 50) ** 2 + 2 * (arm == "y") + others @ [1, 0.5, 0, 0] + 5 * rng.normal(size=n)
    frame = pl.DataFrame({"age": age, "arm": arm, **{f"u{k}": others[:, k] for k in range(4)}, "y": y})
    bounds = {"age": (20, 90), "arm": ["x", "y"], **{f"u{k}": (-4, 4) for k in range(4)}}
    model = unpooled.PrivateLinearRegression(bounds=bounds, y_bounds=(-30, 60), method="refinement", random_state=0)
    model.fit(frame, formula="y ~ age + I(age**2) + arm + u0 + u1 + u2 + u3")
    table = model.summary()
    assert {"age", "I(age**2)"} <= set(table.not_determined)
    assert {"arm: y - x", "u0", "u1", "u2", "u3"} == {t.term for t in table.terms} - {CONSTANT_TERM}
    # Without the bound on what hides the constant is printed, and false.
    estimates = msgspec.structs.replace(model.moments_.estimates(), slopes=())
    lines, _ = estimates.lines(model.moments_.tables().printed())
    (constant,) = (t for t in lines if t.term == CONSTANT_TERM)
    assert abs(constant.estimate - 25) > 10 * constant.std_error
    with pytest.raises(UsageError, match="not determined"):
        model.contrast({"age": 10.0, "I(age**2)": 1100.0})
    # The same model about the middle of the range has all its lines.
    model.fit(frame, formula="y ~ I(age - 55) + I((age - 55)**2) + arm + u0 + u1 + u2 + u3")
    assert not model.summary().not_determined


def test_without_noise_the_residual_variance_is_that_of_least_squares() -> None:
    """No prior has to help, also where columns are nearly collinear."""
    rng = np.random.default_rng(0)
    dose, ward = rng.integers(4, 64, 2000) / 4, rng.integers(0, 3, 2000)
    y = np.round((0.3 * np.log(dose) + 0.2 * (ward == 1) + rng.normal(size=2000)).clip(-7, 7) * 2**14) / 2**14
    frame = pl.DataFrame({"dose": dose, "ward": np.array(["a", "b", "c"])[ward], "y": y})
    bounds = {"dose": (1, 17), "ward": ["a", "b", "c"]}
    model = unpooled.PrivateLinearRegression(epsilon=math.inf, bounds=bounds, y_bounds=(-8, 8))
    table = model.fit(frame, formula="y ~ log(dose) * ward").summary()
    levels = np.column_stack([np.ones(2000), ward == 1, ward == 2])
    rows = np.column_stack([levels, levels * np.log(dose)[:, None]])
    (left,) = np.linalg.lstsq(rows, y, rcond=None)[1]
    assert table.residual_variance == pytest.approx(left / (2000 - 6), rel=1e-6)


def test_a_test_of_one_coefficient_has_one_degree_and_is_the_square_of_its_z() -> None:
    X, y = made()
    model = unpooled.PrivateLinearRegression(epsilon=math.inf, bounds=(-6, 6), y_bounds=(-12, 14), method="moments").fit(
        X, y
    )
    assert "the intercept is that of a row" not in str(model.summary())  # it has no categories
    test = model.anova(smaller=["x0", "x1", "x3"])
    (line,) = [term for term in model.summary().terms if term.term == "x2"]
    assert (test.name, test.degrees) == ("F(1)", 1)
    assert test.statistic == pytest.approx(line.statistic**2, rel=1e-6)
    least = model.anova(smaller=["x0", "x1", "x2"])  # a column that says nothing: by chance its F is neither large nor small
    assert least.p_value == pytest.approx(stats.f.sf(least.statistic, 1, N - 5), abs=0.05)
    assert 0.1 < least.p_value < 0.9


def test_estimates_of_a_file_of_the_first_build_are_told_by_their_flags() -> None:
    """Such a file has a flag for each coefficient, and no coordinates: a combination is determined if all that it touches is."""
    told = Estimates(("a", "b", "c"), (1.0, 2.0, 3.0), (0.0,) * 9, (0.0,) * 9, identified=(True, False, True))
    asked = np.array([[1, 0, 0], [0, 1, 0], [1, 0, -1], [1, -1, 0], [0, 0, 0]], dtype=float)
    assert told.determined(asked).tolist() == [True, False, True, False, False]


@pytest.mark.guarantee
def test_the_darker_part_of_an_interval_is_what_is_left_of_the_error_without_privacy() -> None:
    """By the root of its share of the variance; nothing is darker where nobody knows what privacy adds."""
    lines = [
        ResultTerm("a", 1.0, 5.0, conf_low=0.0, conf_high=2.0, privacy=3.0),
        ResultTerm("b", 1.0),
        ResultTerm("c", 1.0, 1.0),
    ]
    (panel,) = of_terms(lines)
    assert panel.without_privacy == pytest.approx((0.8,))
    believed = msgspec.structs.replace(lines[0], privacy=None)
    assert of_terms([believed])[0].without_privacy == ()
    assert of_terms(lines[1:]) == ()
