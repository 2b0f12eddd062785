"""Families without noise beside statsmodels and scikit-survival: coefficients, standard errors, survival curves.

Runs where the peers of today's NumPy are (``make peers``; ``.peers/new/bin/python -m experiments.oracles`` with ``src`` on the path). At epsilon =
inf nothing is added and the rounds run to convergence, so what is left is rounding and, for standard errors, the last pass's Newton step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf
from experiments.common import write_table
from numpy.typing import ArrayLike
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.nonparametric import kaplan_meier_estimator
from sksurv.util import Surv
from statsmodels.duration.hazard_regression import PHReg
from statsmodels.miscmodels.ordinal_model import OrderedModel

from unpooled import PrideGLM, PrivateGLM, PrivateLinearRegression

N, WIDTH = 600, 4
RNG = np.random.default_rng(20261122)
X = RNG.uniform(-1, 1, (N, WIDTH))
SIGNAL = X @ np.array([1.0, -0.7, 0.4, 0.0])
ONE = sm.add_constant(X)
HOURS, OFFSET = RNG.uniform(0.5, 3.0, N), RNG.uniform(-0.5, 0.5, N)
SITES = np.arange(N) % 3
CUTS, END = [0.5, 1.0, 2.0], 4.0
LAST = np.array([*CUTS, END])
NONE = float("nan")
Row = tuple[str, str, str, float, float]


def farthest(ours: ArrayLike, theirs: ArrayLike) -> float:
    """The largest difference."""
    return float(np.abs(np.ravel(ours) - np.ravel(theirs)).max())


def private(family: str, y: ArrayLike, *, data: dict[str, ArrayLike] | None = None, **options: object) -> PrivateGLM:
    """Three sites, no noise."""
    return PrivateGLM(family, epsilon=np.inf, bounds=(-1, 1), **options).fit(X, y, sites=SITES, **(data or {}))


def errors_of(model: PrivateGLM) -> list[float]:
    """Standard errors, the constant's first."""
    told = {term.term: term.std_error for term in model.summary().terms}
    constant = next(name for name in told if not name.startswith("x"))
    return [told[constant], *(told[f"x{j}"] for j in range(WIDTH))]


def linear(
    family: str, y: np.ndarray, theirs: sm.families.Family, ours: dict[str, object], shifts: dict[str, ArrayLike]
) -> Row:
    """A generalised linear model of row-split data."""
    model = private(family, y, data=shifts, **ours)
    fit = sm.GLM(y, ONE, family=theirs, **shifts).fit(tol=1e-12, maxiter=200)
    found = farthest([model.intercept_, *model.coef_], fit.params)
    relative = farthest(np.array(errors_of(model)) / fit.bse, np.ones(WIDTH + 1))
    return "PrivateGLM", family + (", exposure and offset" if shifts else ""), "statsmodels GLM", found, relative


def private_families() -> list[Row]:
    """Every family of :class:`PrivateGLM` that is one linear predictor."""
    shifts = {"exposure": HOURS, "offset": OFFSET}
    declared = {"exposure_bounds": (0.5, 3.0), "offset_bounds": (-0.5, 0.5)}
    log = sm.families.links.Log()
    mean = np.exp(0.3 + SIGNAL)
    yes = (RNG.uniform(size=N) < 1 / (1 + np.exp(-SIGNAL))) * 1.0
    counts = RNG.poisson(mean * HOURS * np.exp(OFFSET)).astype(float)
    times, wide = mean * RNG.gamma(2.0, 0.5, N) + 1e-3, RNG.poisson(mean * RNG.gamma(2.0, 0.5, N)).astype(float)
    return [
        linear("logistic", yes, sm.families.Binomial(), {"classes": [0.0, 1.0]}, {}),
        linear("poisson", counts, sm.families.Poisson(), {"y_bounds": (0, counts.max()), **declared}, shifts),
        linear("gamma", times, sm.families.Gamma(log), {"y_bounds": (1e-3, times.max())}, {}),
        linear(
            "negative-binomial",
            wide,
            sm.families.NegativeBinomial(log, alpha=0.5),
            {"y_bounds": (0, wide.max()), "dispersion": 0.5},
            {},
        ),
    ]


def multinomial() -> Row:
    """Coefficients are told up to a constant per column: differences to the first class are compared."""
    label = np.argmax(np.outer(SIGNAL, [-1.0, 0.0, 1.0]) + RNG.gumbel(size=(N, 3)), axis=1)
    model = private("multinomial", label, classes=[0, 1, 2])
    fit = sm.MNLogit(label, ONE).fit(disp=False, method="newton", tol=1e-12, maxiter=200)
    ours = np.column_stack([model.intercept_, model.coef_])
    return "PrivateGLM", "multinomial", "statsmodels MNLogit", farthest((ours - ours[0])[1:], np.asarray(fit.params).T), NONE


def survival() -> list[Row]:
    """Hazards that are constant in intervals are a Poisson model of person-time."""
    died = RNG.exponential(np.exp(-SIGNAL)).round(3) + 1e-3
    left = RNG.choice(LAST, N)
    time, event = np.minimum(died, left), died <= left
    model = private("survival", time, y_bounds=(0, END), cuts=CUTS, data={"event": event})
    starts = np.array([0.0, *CUTS])
    followed = np.clip(time[:, None] - starts, 0, LAST - starts)
    person, interval = np.nonzero(followed)
    seen = followed[person, interval]
    happened = (event[person] & (time[person] <= LAST[interval])) * 1.0
    rows = np.column_stack([X[person], np.eye(len(LAST))[interval]])
    fit = sm.GLM(happened, rows, family=sm.families.Poisson(), exposure=seen).fit(tol=1e-12, maxiter=200)
    told = {term.term: term.std_error for term in model.summary().terms}
    relative = farthest(np.array([told[f"x{j}"] for j in range(WIDTH)]) / fit.bse[:WIDTH], np.ones(WIDTH))
    coefficients = farthest([*model.coef_, *np.log(model.baseline_hazard_)], fit.params)
    # A life table counts who leaves within an interval by half; it is Kaplan's and Meier's curve where nobody does.
    stayed, seen_to = died <= END, np.minimum(died, END)
    whole = private("survival", seen_to, y_bounds=(0, END), cuts=CUTS, data={"event": stayed})
    x, curve = kaplan_meier_estimator(stayed, seen_to)
    theirs = curve[np.searchsorted(x, LAST, side="right") - 1]
    ours = whole.kaplan_meier_.at(LAST)
    return [
        ("PrivateGLM", "survival", "statsmodels GLM on person-time", coefficients, relative),
        ("PrivateGLM", "Kaplan-Meier, followed to the end", "scikit-survival", farthest(ours, theirs), NONE),
    ]


def pride(family: str, y: ArrayLike, **options: object) -> np.ndarray:
    """One party that has all columns, next to no penalty, no noise."""
    more = {name: options.pop(name) for name in ("event",) if name in options}
    return PrideGLM(family, parties=1, epsilon=np.inf, bounds=(-1, 1), alpha=1e-9, **options).fit(X, y, **more).coef_


def pride_families() -> list[Row]:
    """What :class:`PrideGLM` has beside the linear models: ordinal and Cox; and least squares."""
    y = SIGNAL + RNG.normal(size=N)
    level = np.digitize(SIGNAL + RNG.logistic(size=N), [-1.0, 0.5, 2.0])
    died, left = RNG.exponential(np.exp(-SIGNAL)).round(2) + 0.01, RNG.exponential(2.0, N).round(2) + 0.01
    time, event = np.minimum(died, left), died <= left
    ordered = OrderedModel(level, X, distr="logit").fit(method="newton", disp=False, tol=1e-12, maxiter=200)
    hazards = PHReg(time, X, status=event * 1, ties="breslow").fit()
    cox = pride("cox", time, event=event * 1)
    other = CoxPHSurvivalAnalysis(ties="breslow", tol=1e-13).fit(X, Surv.from_arrays(event, time))
    return [
        ("PrideGLM", "squared", "statsmodels OLS", farthest(pride("squared", y, y_bounds=(-9, 9)), sm.OLS(y, ONE).fit().params[1:]), NONE),
        ("PrideGLM", "ordinal", "statsmodels OrderedModel", farthest(pride("ordinal", level, classes=[0, 1, 2, 3]), ordered.params[:WIDTH]), NONE),
        ("PrideGLM", "cox", "statsmodels PHReg (Breslow)", farthest(cox, hazards.params), NONE),
        ("PrideGLM", "cox", "scikit-survival (Breslow)", farthest(cox, other.coef_), NONE),
    ]  # fmt: skip


def with_formula() -> list[Row]:
    """Factors, products, an offset and weights at once: a formula of ours beside the same formula of statsmodels."""
    rng = np.random.default_rng(20261125)
    n = 3000
    age, dose = rng.uniform(20, 80, n), rng.uniform(0.5, 4.0, n)
    arm, ward = rng.choice(["x", "y", "z"], n), rng.choice(["a", "b"], n, p=[0.8, 0.2])
    years, weight = rng.uniform(0.5, 5.0, n), rng.choice([0.5, 1.0, 2.0, 3.5], n)
    u = (
        0.1
        + 0.5 * (age - 50) / 20
        + 0.4 * (arm == "y")
        - 0.3 * (arm == "z") * (age - 50) / 20
        + 0.2 * (ward == "b")
        - 0.1 * dose
    )
    columns = {"age": age, "dose": dose, "arm": arm, "ward": ward, "years": years, "w": weight}
    bounds = {"age": (20, 80), "dose": (0.5, 4), "arm": ["x", "y", "z"], "ward": ["a", "b"], "years": (0.5, 5)}
    right, log = "I((age - 50) / 20) * arm + C(ward, ref='b') + dose", sm.families.links.Log()
    theirs = right.replace("C(ward, ref='b')", "C(ward, Treatment('b'))")
    shift = " + offset(log(years))"
    laws: list[tuple[str, np.ndarray, object, dict[str, object], bool]] = [
        ("linear", u + rng.normal(size=n), None, {"y_bounds": (-8, 8)}, False),
        ("logistic", (rng.random(n) < 1 / (1 + np.exp(-u - np.log(years)))) * 1.0, sm.families.Binomial(), {"classes": [0.0, 1.0]}, True),
        ("poisson", rng.poisson(years * np.exp(u)).astype(float), sm.families.Poisson(), {"y_bounds": (0, 99)}, True),
        ("gamma", years * np.exp(u) * rng.gamma(2.0, 0.5, n) + 1e-3, sm.families.Gamma(log), {"y_bounds": (1e-3, 200)}, True),
        ("negative-binomial", rng.poisson(years * np.exp(u) * rng.gamma(2.0, 0.5, n)).astype(float), sm.families.NegativeBinomial(log, alpha=0.5), {"y_bounds": (0, 400), "dispersion": 0.5}, True),
    ]  # fmt: skip
    found: list[Row] = []
    for family, y, law, options, shifted in laws:
        frame = pd.DataFrame({**columns, "y": y})
        text = f"y ~ {right}" + (shift if shifted else "")
        asked = {"epsilon": np.inf, "bounds": bounds, "weights_bounds": (0, 4), **options}
        model = PrivateLinearRegression(**asked) if law is None else PrivateGLM(family, **asked)
        table = model.fit(frame, formula=text, weights="w", sites=np.arange(n) % 3).summary()
        if law is None:
            fit = smf.wls(f"y ~ {theirs}", frame, weights=weight).fit()
        else:
            offset = np.log(years) if shifted else None
            fit = smf.glm(f"y ~ {theirs}", frame, family=law, var_weights=weight, offset=offset).fit(tol=1e-13, maxiter=200)
        pairs = {"(intercept)": "Intercept", "dose": "dose", "I((age - 50) / 20)": "I((age - 50) / 20)"}
        pairs |= {f"arm: {k} - x": f"arm[T.{k}]" for k in "yz"} | {"ward: a - b": "C(ward, Treatment('b'))[T.a]"}
        pairs |= {f"I((age - 50) / 20) * (arm: {k} - x)": f"I((age - 50) / 20):arm[T.{k}]" for k in "yz"}
        lines = {term.term: term for term in table.terms}
        differences = [lines[ours].estimate - fit.params[other] for ours, other in pairs.items()]
        errors = [lines[ours].std_error / fit.bse[other] - 1 for ours, other in pairs.items()]
        words = "factors, products, weights" + (", offset" if shifted else "")
        name, oracle = ("PrivateLinearRegression", "statsmodels WLS") if law is None else ("PrivateGLM", "statsmodels GLM")
        found.append((name, f"{family}, {words}", oracle, farthest(differences, 0.0), farthest(errors, 0.0)))
    return found


def main() -> None:
    """One row per family and oracle."""
    rows: list[list[str]] = []
    parts: list[Callable[[], list[Row]]] = [
        private_families,
        lambda: [multinomial()],
        survival,
        pride_families,
        with_formula,
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in parts:
            for model, family, oracle, found, errors in part():
                rows.append([model, family, oracle, f"{found:.1e}", "-" if np.isnan(errors) else f"{errors:.1e}"])
    header = ["model", "family", "oracle", "largest difference", "of standard errors, relative"]
    notes = (
        "The gamma's dispersion is worked out from clipped squares (so that it can be released), statsmodels' from squares."
    )
    write_table("classification/oracles", "Without noise, beside statsmodels and scikit-survival", header, rows, notes)


if __name__ == "__main__":
    main()
