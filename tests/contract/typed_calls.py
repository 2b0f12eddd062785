"""Calls of every public name, right and wrong: a type checker must refuse every line that ends in "# wrong", and no other."""
import numpy as np
import unpooled
from unpooled import Bounds, Budget, PrideClassifier, PrideGLM, PrideRegressor, PrivateBayesianRegression, PrivateGLM, PrivateLasso
from unpooled import PrivateLassoClassifier, PrivateLinearRegression, PrivateLogisticRegression, PrivatePLSRegression
from unpooled import PrivateStackingClassifier, TreatmentEffect, describe, diagnose, survival, tabulate

X, y = np.zeros((10, 2)), np.zeros(10)
frame = {"age": y, "arm": ["a", "b"] * 5, "died": y, "days": y}
known: dict[str | int, object] = {"age": (0, 100), "arm": ["a", "b"], "died": (0, 1), "days": (0, 365)}
budget = Budget(1.0, 1e-6)

# generalised linear models
PrivateGLM()
PrivateGLM("poisson")
PrivateGLM("gaussian")  # wrong
PrivateGLM(family="survival", cuts=[30.0, 90.0])
PrivateGLM("poisson", 1.0)  # wrong
PrivateGLM(epsilon=1.0, delta=None, bounds=(-1, 1), y_bounds=(0, 20))
PrivateGLM(epsilon="1")  # wrong
PrivateGLM(bounds={"age": (0, 100), "ward": ["a", "b"]})
PrivateGLM(bounds=Bounds(norm=2.0))
PrivateGLM(bounds=3)  # wrong
PrivateGLM(classes=["no", "yes"], unit="household", rows_per_household=3)
PrivateGLM(unit="person")  # wrong
PrivateGLM(method="newton", max_passes=50, ridge=0.1)
PrivateGLM(method="irls")  # wrong
PrivateGLM(dispersion="estimate")
PrivateGLM(dispersion="none")  # wrong
PrivateGLM(covariance="robust", site_effects="fixed")
PrivateGLM(exposure_bounds=(0.5, 2.0), offset_bounds=(0, 1), weights_bounds=(0, 1))
PrivateGLM(exposure_bounds=2.0)  # wrong
PrivateGLM(level=0.9)  # wrong
PrivateGLM(n_jobs=2)  # wrong
PrivateGLM(prior={"age": 0.6, "(intercept)": 1.0}, random_state=0, budget=budget)
PrivateGLM(nodes=("north", "south"), tolerate=1, aggregation="trusted")
PrivateGLM(aggregation="central")  # wrong
PrivateGLM().fit(X, y).summary(0.9).to_pandas()
PrivateGLM(formula="y ~ age", fit_intercept=True, public_seed=3)
PrivateGLM(formula=3)  # wrong

# linear regression
PrivateLinearRegression()
PrivateLinearRegression(1.0)  # wrong
PrivateLinearRegression(epsilon=2.0, bounds=(-1, 1), y_bounds=(-4, 4), random_state=0)
PrivateLinearRegression(parties={"clinic": ["age"], "lab": [1, 2]}, response_at="clinic", helpers=0, check="none")
PrivateLinearRegression(parties="two")  # wrong
PrivateLinearRegression(check="maybe")  # wrong
PrivateLinearRegression(method="refinement", focus=["arm"])
PrivateLinearRegression(focus=1)  # wrong
PrivateLinearRegression(prior_precision=2.0, noise_precision="estimate", posterior="naive", geometry="box")
PrivateLinearRegression(posterior="exact")  # wrong
PrivateLinearRegression(projection=0.3, multiple=2.0, projection_delta=0.3, indefinite="absolute", calibration="published")
PrivateLinearRegression(calibration="exact")  # wrong
PrivateLinearRegression(site_effects="random", covariance="cluster", weights_bounds=(0, 2))
PrivateLinearRegression(weights_bounds=(0, 1, 2))  # wrong
PrivateBayesianRegression(epsilon=1.0)
PrivateBayesianRegression(epsilon=None)  # wrong

# the LASSO
PrivateLasso()
PrivateLasso(3, radius=1.0, rounds=10, shares=(0.5, 0.3, 0.2))
PrivateLasso(3, shares=(0.5, 0.5))  # wrong
PrivateLasso(coupling="blocks", refit=0.1, sampled=5, clip=0.5, response_public=True, sketch_rows=0)
PrivateLasso(coupling="both")  # wrong
PrivateLasso(method="joint", unit="record")
PrivateLasso(unit="household")  # wrong
PrivateLassoClassifier({"a": [0], "b": [1]}, classes=(0, 1), radius=2.0)
PrivateLassoClassifier(rounds=3)  # wrong
PrivateLassoClassifier(y_bounds=(0, 1))  # wrong

# spectra
PrivatePLSRegression()
PrivatePLSRegression("cv", basis="bspline", basis_size=10)
PrivatePLSRegression(4, basis=np.eye(5), reference=np.zeros(5), bounds=Bounds(norm=1.5))
PrivatePLSRegression("all")  # wrong
PrivatePLSRegression(y_bounds=[(0, 1), (0, 2)], method="gradient", sd="sigma")
PrivatePLSRegression(method="newton")  # wrong

# PRIDE
PrideRegressor(2, sketch="srht", sketch_dim=0.2, alpha=0.5, loss="huber", threshold=1.0)
PrideRegressor(sketch="fourier")  # wrong
PrideRegressor(family="poisson")  # wrong
PrideRegressor(sketch={"a": np.eye(3)}, grids={"a": (4, 4)}, noise_model="plain", publish=0.2, fit_intercept=False)
PrideRegressor(others="twins")  # wrong
PrideClassifier(parties={"a": ["x"], "b": ["z"]}, classes=("no", "yes"), estimating=["a"], public=["x"])
PrideClassifier(estimating=1)  # wrong
PrideGLM("cox", parties=3, folds=4, clip_norm=1.0)
PrideGLM("survival")  # wrong
PrideGLM(quantile=0.9, cap=5.0, dispersion=1.0)
PrideGLM(loss="huber")  # wrong

# stacks
PrivateLogisticRegression(epsilon=1.0, penalty="auto", noise="gaussian", rows="unit", multi_class="one-vs-rest")
PrivateLogisticRegression(penalty="l2")  # wrong
PrivateLogisticRegression(method="perturbation", formula="ill ~ age")
PrivateLogisticRegression(method="newton")  # wrong
PrivateLogisticRegression(C=1.0)  # wrong
PrivateStackingClassifier(4, split="samples", meta="high-level", holder="north", high_share=0.3)
PrivateStackingClassifier(split="rows")  # wrong
PrivateStackingClassifier(importance="private", falling=[3, 2, 1], ranking_share=0.1, combiner="log-odds", rates=[0.2, 0.8])
PrivateStackingClassifier(combiner="mean")  # wrong
PrivateStackingClassifier(unit="record")  # wrong

# treatment effects
TreatmentEffect("arm", outcome="died", bounds=known)
TreatmentEffect("arm")  # wrong
TreatmentEffect("arm", outcome="days", event="died", horizon=365, family="survival", covariates=["age"], overlap=0.1)
TreatmentEffect("arm", outcome="died", estimator="matching")  # wrong
TreatmentEffect("arm", outcome="died", estimand="ATT", propensity="age", interactions=False, cuts=[100.0])

# functions
describe(frame, known).bounds  # wrong
describe(frame, True, columns=["age"])
describe(frame, known, by="arm", sites="arm", confidence=0.9)
describe(frame, known, confidence="high")  # wrong
describe(frame, known, parties=2, helpers=0, check="proof")
describe(frame, known, aggregation="local")  # wrong
tabulate(frame, ["arm", "died"], known, cuts={"age": [40, 60]}, totals={"arm": {"a": 5}}).effect("risk difference")
tabulate(frame)  # wrong
tabulate(frame, "age", (0, 100), cuts=5)  # wrong
survival(frame, "days", "died", "arm", known, strata=None, horizon=180.0, tolerate=1).mean_difference()
survival(frame, "days", "died")  # wrong
survival(frame, "days", "died", "arm", known, nodes=["north"])  # wrong
diagnose(PrivateGLM(), X, y, cells=10, rows="others").auc
diagnose(PrivateGLM(), X, y, rows="new")  # wrong
unpooled.describe_outlook(2000, 5, ranges=4.0)
unpooled.describe_outlook("2000", 5)  # wrong
unpooled.meta_analysis(PrivateGLM(), X, y, sites=["a", "b"], terms="age")
unpooled.meta_analysis(PrivateGLM(), X, y, terms="age")  # wrong
unpooled.load("model.unpooled")
unpooled.link({"a": frame, "b": frame}, "id", normalise=("strip",))
unpooled.link(frame)  # wrong
