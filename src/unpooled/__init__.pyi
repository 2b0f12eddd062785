# The public names, once: type checkers read this file, and so does unpooled/__init__.py to find where each name is.
# Written by docs/public_names.py from the declared parameters; do not edit.

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from numpy.typing import ArrayLike

from unpooled.estimation.priors import Prior
from unpooled.errors import BudgetWarning as BudgetWarning
from unpooled.errors import PrivacyLeakWarning as PrivacyLeakWarning
from unpooled.errors import Refusal as Refusal
from unpooled.errors import UnpooledError as UnpooledError
from unpooled.errors import UtilityWarning as UtilityWarning
from unpooled.estimation.hidden import HiddenLink as HiddenLink
from unpooled.estimation.hidden import hidden_link as hidden_link
from unpooled.models.bayes.estimator import PrivateBayesianRegression as _PrivateBayesianRegression
from unpooled.models.bayes.estimator import PrivateLinearRegression as _PrivateLinearRegression
from unpooled.models.describe.estimator import ArmsDescription
from unpooled.models.describe.estimator import DescribedBounds
from unpooled.models.describe.estimator import Description as Description
from unpooled.models.describe.estimator import JointDescription
from unpooled.models.describe.estimator import describe as _describe
from unpooled.models.describe.outlook import describe_outlook as describe_outlook
from unpooled.models.diagnose.estimator import Diagnosis as Diagnosis
from unpooled.models.diagnose.estimator import diagnose as _diagnose
from unpooled.models.effects.estimator import TreatmentEffect as _TreatmentEffect
from unpooled.models.glm.estimator import PrivateGLM as _PrivateGLM
from unpooled.models.lasso.estimator import PrivateLasso as _PrivateLasso
from unpooled.models.lasso.estimator import PrivateLassoClassifier as _PrivateLassoClassifier
from unpooled.models.pls.estimator import PrivatePLSRegression as _PrivatePLSRegression
from unpooled.models.pride.estimator import PrideClassifier as _PrideClassifier
from unpooled.models.pride.estimator import PrideGLM as _PrideGLM
from unpooled.models.pride.estimator import PrideRegressor as _PrideRegressor
from unpooled.models.stacking.estimator import PrivateLogisticRegression as _PrivateLogisticRegression
from unpooled.models.stacking.estimator import PrivateStackingClassifier as _PrivateStackingClassifier
from unpooled.models.survival.estimator import SurvivalComparison as SurvivalComparison
from unpooled.models.survival.estimator import survival as _survival
from unpooled.models.tables.estimator import Tabulation as Tabulation
from unpooled.models.tables.estimator import tabulate as _tabulate
from unpooled.privacy.bounds import Bounds as Bounds
from unpooled.privacy.budget import Budget as Budget
from unpooled.study.link import link as link
from unpooled.study.meta import MetaAnalysis as MetaAnalysis
from unpooled.study.meta import meta_analysis as meta_analysis
from unpooled.study.saved import load as load
from unpooled.study.several import Study as Study
from unpooled.study.sources.table import Source as Source

__version__: str

class PrivateLinearRegression(_PrivateLinearRegression):
    def __init__(self, *, parties: int | Mapping[str, Sequence[int | str]] | None = None, epsilon: float = 1.0, delta: float | None = None, bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None, y_bounds: tuple[float, float] | None = None, unit: Literal["record", "attribute", "household"] = "record", rows_per_household: int = 1, adjacency: Literal["replace", "zero-out"] = "replace", calibration: Literal["sound", "published"] = "sound", aggregation: Literal["distributed", "trusted", "local"] = "distributed", tolerate: int = 0, nodes: Sequence[str] = (), geometry: Literal["ball", "box", "augmented"] = "ball", prior_precision: float | Literal["estimate"] = "estimate", noise_precision: float | Literal["estimate"] = "estimate", posterior: Literal["noise-aware", "naive"] = "noise-aware", covariance: Literal["auto", "model", "robust", "cluster"] = "auto", method: Literal["auto", "moments", "refinement", "gradient", "focus", "direction", "mean", "weights", "sines"] = "auto", focus: Sequence[str] = (), max_passes: int = 105, projection: float | None = None, multiple: float | None = None, projection_delta: float | None = None, indefinite: Literal["auto", "kept", "absolute"] = "auto", expected_missing: float = 0.0, goal: Literal["auto", "table", "predictions"] = "auto", prior: Prior = None, site_effects: Literal["pooled", "fixed", "random"] = "pooled", weights_bounds: tuple[float, float] | None = None, expected: int = 0, helpers: int = 1, response_at: str | None = None, check: Literal["proof", "none"] = "proof", fit_intercept: bool = True, formula: str | None = None, public_seed: int = 0, random_state: int | None = None, budget: Budget | None = None) -> None: ...
def describe(
    data: Any,
    bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | Literal[True] | None = None,
    *,
    parties: int | Mapping[str, Sequence[int | str]] | None = None,
    sites: Sequence[object] | str | None = None,
    epsilon: float = 1.0,
    delta: float | None = None,
    unit: Literal["record", "attribute", "household"] = "record",
    unit_id: Any = None,
    rows_per_household: int = 1,
    adjacency: Literal["replace", "zero-out"] = "replace",
    by: str | None = None,
    columns: Sequence[str] | None = None,
    helpers: int = 1,
    check: Literal["proof", "none"] = "proof",
    confidence: float = 0.95,
    random_state: int | None = None,
    budget: Budget | None = None,
) -> Description | DescribedBounds | JointDescription | ArmsDescription: ...

def diagnose(
    model: Any,
    X: Any,
    y: Any,
    *,
    sites: Sequence[object] | str | None = None,
    epsilon: float = 1.0,
    delta: float | None = None,
    y_bounds: tuple[float, float] | None = None,
    unit: Literal["record", "attribute", "household"] = "record",
    unit_id: Any = None,
    rows_per_household: int = 1,
    adjacency: Literal["replace", "zero-out"] = "replace",
    cells: int = 20,
    rows: Literal["same", "others"] = "same",
    random_state: int | None = None,
    budget: Budget | None = None,
) -> Diagnosis: ...

class TreatmentEffect(_TreatmentEffect):
    def __init__(self, treatment: str, *, outcome: str, epsilon: float = 1.0, delta: float | None = None, bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None, unit: Literal["record", "attribute", "household"] = "record", rows_per_household: int = 1, adjacency: Literal["replace", "zero-out"] = "replace", calibration: Literal["sound"] = "sound", aggregation: Literal["distributed", "trusted", "local"] = "distributed", tolerate: int = 0, nodes: Sequence[str] = (), covariates: str | Sequence[str] = ".", propensity: str | Sequence[str] | None = None, estimator: Literal["auto", "aipw", "iptw", "g-formula", "partial"] = "auto", estimand: Literal["auto", "ATE", "ATT", "ATO"] = "auto", family: Literal["linear", "logistic", "poisson", "gamma", "negative-binomial", "survival"] = "linear", interactions: bool = True, event: str | None = None, horizon: float | None = None, cuts: Sequence[float] | None = None, overlap: float = 0.05, max_passes: int = 105, expected_missing: float = 0.0, prior: Prior = None, confidence: float = 0.95, public_seed: int = 0, random_state: int | None = None, budget: Budget | None = None) -> None: ...
class PrivateGLM(_PrivateGLM):
    def __init__(self, family: Literal["logistic", "poisson", "gamma", "negative-binomial", "multinomial", "survival"] = "logistic", *, parties: int | Mapping[str, Sequence[int | str]] | None = None, epsilon: float = 1.0, delta: float | None = None, bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None, y_bounds: tuple[float, float] | None = None, classes: Sequence[object] | None = None, unit: Literal["record", "attribute", "household"] = "record", rows_per_household: int = 1, adjacency: Literal["replace", "zero-out"] = "replace", calibration: Literal["sound"] = "sound", aggregation: Literal["distributed", "trusted", "local"] = "distributed", tolerate: int = 0, nodes: Sequence[str] = (), dispersion: float | Literal["estimate"] = "estimate", covariance: Literal["auto", "model", "robust", "cluster"] = "auto", cuts: Sequence[float] | None = None, ridge: float = 0.0, method: Literal["auto", "newton", "gradient", "direction", "moments", "mean"] = "auto", max_passes: int = 105, expected_missing: float = 0.0, goal: Literal["auto", "table", "predictions"] = "auto", site_effects: Literal["pooled", "fixed"] = "pooled", prior: Prior = None, exposure_bounds: tuple[float, float] | None = None, offset_bounds: tuple[float, float] | None = None, weights_bounds: tuple[float, float] | None = None, helpers: int = 1, response_at: str | None = None, check: Literal["proof", "none"] = "proof", expected: int = 0, fit_intercept: bool = True, formula: str | None = None, public_seed: int = 0, random_state: int | None = None, budget: Budget | None = None) -> None: ...
class PrivateLasso(_PrivateLasso):
    def __init__(self, parties: int | Mapping[str, Sequence[int | str]] = 2, *, epsilon: float = 1.0, delta: float | None = None, bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None, y_bounds: tuple[float, float] | None = None, unit: Literal["attribute", "record"] = "attribute", adjacency: Literal["replace"] = "replace", calibration: Literal["sound", "published"] = "sound", method: Literal["auto", "moments", "frank-wolfe", "joint"] = "auto", radius: float | None = None, coupling: Literal["ball", "blocks"] = "ball", rounds: int = 20, sampled: int = 0, clip: float = 0.0, shares: tuple[float, float, float] = (0.6, 0.2, 0.2), refit: float = 0.25, response_public: bool = False, sketch_rows: int = 0, check: Literal["proof", "none"] = "proof", prior: Prior = None, helpers: int = 1, response_at: str | None = None, fit_intercept: bool = True, public_seed: int = 0, random_state: int | None = None, budget: Budget | None = None) -> None: ...
class PrivateLassoClassifier(_PrivateLassoClassifier):
    def __init__(self, parties: int | Mapping[str, Sequence[int | str]] = 2, *, epsilon: float = 1.0, delta: float | None = None, bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None, classes: Sequence[object] | None = None, unit: Literal["attribute", "record"] = "attribute", adjacency: Literal["replace"] = "replace", calibration: Literal["sound"] = "sound", method: Literal["auto", "moments", "joint"] = "auto", radius: float | None = None, check: Literal["proof", "none"] = "proof", prior: Prior = None, helpers: int = 1, response_at: str | None = None, public_seed: int = 0, random_state: int | None = None, budget: Budget | None = None) -> None: ...
class PrivatePLSRegression(_PrivatePLSRegression):
    def __init__(self, n_components: int | Literal["cv"] = "cv", *, epsilon: float = 1.0, delta: float | None = None, bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None, y_bounds: tuple[float, float] | Sequence[tuple[float, float]] | None = None, unit: Literal["record", "attribute", "household"] = "record", rows_per_household: int = 1, adjacency: Literal["replace", "zero-out"] = "replace", calibration: Literal["sound", "published"] = "sound", aggregation: Literal["distributed", "trusted", "local"] = "distributed", tolerate: int = 0, nodes: Sequence[str] = (), basis: Literal["dct", "bspline", "none"] | ArrayLike = "dct", basis_size: int = 20, reference: ArrayLike | None = None, method: Literal["auto", "moments", "refinement", "gradient", "direction"] = "auto", prior: Prior = None, sd: Literal["sigma", "sigma^2"] = "sigma", public_seed: int = 0, random_state: int | None = None, budget: Budget | None = None) -> None: ...
class PrideClassifier(_PrideClassifier):
    def __init__(self, parties: int | Mapping[str, Sequence[int | str]] = 2, *, epsilon: float = 1.0, delta: float | None = None, bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None, y_bounds: tuple[float, float] | None = None, classes: Sequence[object] | None = None, unit: Literal["attribute", "record"] = "attribute", adjacency: Literal["replace"] = "replace", calibration: Literal["sound", "published"] = "sound", loss: Literal["logistic"] | None = None, threshold: float | None = None, sketch: Literal["srht", "gaussian", "dct"] | Mapping[str, ArrayLike] = "srht", sketch_dim: float | str = "auto", grids: Mapping[str, Sequence[int]] | None = None, public: Sequence[int | str] = (), alpha: float | Literal["marginal-likelihood", "local-cv"] = "marginal-likelihood", noise_model: Literal["gram", "calibrated", "plain"] = "gram", others: Literal["like mine", "copies", "unrelated"] = "like mine", prior: Prior = None, clip_norm: float | None = None, folds: int = 5, publish: float = 0.0, estimating: Sequence[str] | None = None, fit_intercept: bool = True, public_seed: int = 0, random_state: int | None = None, budget: Budget | None = None) -> None: ...
class PrideGLM(_PrideGLM):
    def __init__(self, family: Literal["logistic", "multinomial", "ordinal", "squared", "huber", "quantile", "poisson", "gamma", "negative-binomial", "cox"] = "logistic", *, parties: int | Mapping[str, Sequence[int | str]] = 2, epsilon: float = 1.0, delta: float | None = None, bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None, y_bounds: tuple[float, float] | None = None, classes: Sequence[object] | None = None, unit: Literal["attribute", "record"] = "attribute", adjacency: Literal["replace"] = "replace", calibration: Literal["sound", "published"] = "sound", threshold: float | None = None, dispersion: float = 1.0, quantile: float = 0.5, cap: float | None = None, sketch: Literal["srht", "gaussian", "dct"] | Mapping[str, ArrayLike] = "srht", sketch_dim: float | str = "auto", grids: Mapping[str, Sequence[int]] | None = None, public: Sequence[int | str] = (), alpha: float | Literal["marginal-likelihood", "local-cv"] = "marginal-likelihood", noise_model: Literal["gram", "calibrated", "plain"] = "gram", others: Literal["like mine", "copies", "unrelated"] = "like mine", prior: Prior = None, clip_norm: float | None = None, folds: int = 5, publish: float = 0.0, estimating: Sequence[str] | None = None, fit_intercept: bool = True, public_seed: int = 0, random_state: int | None = None, budget: Budget | None = None) -> None: ...
class PrideRegressor(_PrideRegressor):
    def __init__(self, parties: int | Mapping[str, Sequence[int | str]] = 2, *, epsilon: float = 1.0, delta: float | None = None, bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None, y_bounds: tuple[float, float] | None = None, unit: Literal["attribute", "record"] = "attribute", adjacency: Literal["replace"] = "replace", calibration: Literal["sound", "published"] = "sound", loss: Literal["squared", "huber"] | None = None, threshold: float | None = None, sketch: Literal["srht", "gaussian", "dct"] | Mapping[str, ArrayLike] = "srht", sketch_dim: float | str = "auto", grids: Mapping[str, Sequence[int]] | None = None, public: Sequence[int | str] = (), alpha: float | Literal["marginal-likelihood", "local-cv", "global-cv"] = "marginal-likelihood", noise_model: Literal["gram", "calibrated", "plain"] = "gram", others: Literal["like mine", "copies", "unrelated"] = "like mine", prior: Prior = None, clip_norm: float | None = None, folds: int = 5, publish: float = 0.0, estimating: Sequence[str] | None = None, fit_intercept: bool = True, public_seed: int = 0, random_state: int | None = None, budget: Budget | None = None) -> None: ...
class PrivateLogisticRegression(_PrivateLogisticRegression):
    def __init__(self, *, epsilon: float = 1.0, delta: float | None = None, bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None, classes: Sequence[object] | None = None, adjacency: Literal["replace", "zero-out"] = "replace", calibration: Literal["sound", "published"] = "sound", aggregation: Literal["distributed", "trusted", "local"] = "distributed", tolerate: int = 0, nodes: Sequence[str] = (), multi_class: Literal["multinomial", "one-vs-rest"] = "multinomial", penalty: float | Literal["auto"] = "auto", noise: Literal["auto", "gamma", "gaussian"] = "auto", rows: Literal["shorten", "unit"] = "shorten", prior: Prior = None, method: Literal["auto", "perturbation", "rounds", "moments"] = "auto", source: Sequence[float] | None = None, fit_intercept: bool = True, formula: str | None = None, public_seed: int = 0, random_state: int | None = None, budget: Budget | None = None) -> None: ...
class PrivateStackingClassifier(_PrivateStackingClassifier):
    def __init__(self, parties: int | Mapping[str, Sequence[int | str]] = 2, *, epsilon: float = 1.0, delta: float | None = None, bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None, classes: Sequence[object] | None = None, adjacency: Literal["replace", "zero-out"] = "replace", calibration: Literal["sound", "published"] = "sound", multi_class: Literal["multinomial", "one-vs-rest"] = "multinomial", split: Literal["features", "samples"] = "features", penalty: float | Literal["auto"] = "auto", noise: Literal["auto", "gamma", "gaussian"] = "auto", rows: Literal["shorten", "unit"] = "shorten", parts: Literal["auto", "shorten", "scale"] = "auto", importance: Any = None, ranking_share: float = 0.1, probabilities_share: float = 0.6, holder: str | None = None, high_share: float = 0.2, predictions_share: float = 0.5, prior: Prior = None, combiner: Literal["auto", "probability", "majority", "weighted-majority", "log-odds"] = "auto", rates: float | Sequence[float] | None = None, falling: Sequence[float] | None = None, meta: Literal["public-weights", "trusted", "perturbed", "high-level"] = "public-weights", source: Mapping[str, Sequence[float]] | None = None, fit_intercept: bool = True, public_seed: int = 0, random_state: int | None = None, budget: Budget | None = None) -> None: ...
def survival(
    data: Any,
    time: str,
    event: str,
    by: str,
    bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None,
    *,
    sites: Sequence[object] | str | None = None,
    epsilon: float = 1.0,
    delta: float | None = None,
    unit: Literal["record", "attribute", "household"] = "record",
    unit_id: Any = None,
    rows_per_household: int = 1,
    adjacency: Literal["replace", "zero-out"] = "replace",
    aggregation: Literal["distributed", "trusted", "local"] = "distributed",
    tolerate: int = 0,
    strata: str | None = None,
    cuts: Sequence[float] = (),
    horizon: float | None = None,
    confidence: float = 0.95,
    random_state: int | None = None,
    budget: Budget | None = None,
) -> SurvivalComparison: ...

def tabulate(
    data: Any,
    columns: str | Sequence[str],
    bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None,
    *,
    sites: Sequence[object] | str | None = None,
    epsilon: float = 1.0,
    delta: float | None = None,
    unit: Literal["record", "attribute", "household"] = "record",
    unit_id: Any = None,
    rows_per_household: int = 1,
    adjacency: Literal["replace", "zero-out"] = "replace",
    cuts: Mapping[str, Sequence[float] | int] | None = None,
    totals: Mapping[str, Mapping[str, int]] | None = None,
    confidence: float = 0.95,
    random_state: int | None = None,
    budget: Budget | None = None,
) -> Tabulation: ...

PrivateBayesianRegression = PrivateLinearRegression
