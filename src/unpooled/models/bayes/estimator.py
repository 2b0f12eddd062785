"""``PrivateBayesianRegression``: a thin scikit-learn estimator over the Bayes study, run in process."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from unpooled.aggregation.moments import Design, LinearFit, Moments
from unpooled.errors import UsageError
from unpooled.models import load
from unpooled.models.bayes.plan import NAIVE
from unpooled.privacy.bounds import Bounds, Column
from unpooled.privacy.noise import seed_of
from unpooled.privacy.plan import AGGREGATION, BOUNDS, Card, Plan, Study, default_delta
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import run_in_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.privacy.budget import Budget
    from unpooled.privacy.statement import Statement

    Vector = NDArray[np.float64]

#: The response among the declared columns of the in-process parties; no feature can be called so.
_RESPONSE = "(response)"


class PrivateBayesianRegression(RegressorMixin, BaseEstimator):
    """Bayesian linear regression on row-split data from one private release of second moments.

    The model is y ~ N(x.beta + b, 1/noise_precision) with beta ~ N(0, I/prior_precision), in the data's own units. The moments are
    added up by secure sum with distributed noise; the posterior accounts for that noise, so its intervals mean what they say.

    Parameters
    ----------
    epsilon, delta, adjacency
        The privacy asked for, per row. ``delta=None`` is min(1e-5, 0.1/n); ``epsilon=inf`` is the noise-free algorithm.
    bounds : Bounds or (low, high)
        Declared ranges of the features, or ``Bounds(norm=R)`` for an L2 bound on rows. None derives them, warns, promises nothing.
    y_bounds : (low, high)
        Declared range of y. None derives it likewise.
    aggregation : "distributed", "trusted" or "local"
        Who adds the noise: all sites in shares, one of them, or each all of it. One site alone adds all of it in any case.
    tolerate : int
        T: sites that may collude or drop out; costs N/(N - T - 1) in noise variance under "distributed".
    nodes : names of the sites that may be nodes of the secure sum, or the trusted one
    geometry : "ball", "box" or "augmented"
        Which bound sets the noise; "augmented" also releases the sums and y^2, for models that need them.
    posterior : "noise-aware" or "naive" (takes noisy moments for exact ones, as published: its intervals are too short)
    projection : share of the squared budget
        Narrows the ranges to multiples of private standard deviations first (Algorithm 2). 0 uses the declared ranges.
    multiple : float, optional
        Those multiples; None picks the best on synthetic data of the model.
    prior_precision, noise_precision, calibration, fit_intercept, public_seed, random_state
        ``random_state`` makes the noise a reproducible simulation that protects nobody.
    budget : Budget, optional
        A total that several fits on the same people share.

    Attributes
    ----------
    coef_, intercept_, covariance_ : posterior mean and covariance (one coefficient per category where categories are declared)
    moments_ : the released moments, from which ``ridge``, ``ols`` and :meth:`from_moments` compute other models free of charge
    projection_ : the ranges that the data were projected to
    statement_, plan_, ledger_, communication_

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import PrivateBayesianRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (6000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=6000)
    >>> sites = rng.choice(["oslo", "porto", "riga"], 6000)
    >>> model = PrivateBayesianRegression(epsilon=2.0, bounds=(-1, 1), y_bounds=(-4, 4), noise_precision=10.0, random_state=0)
    >>> bool((abs(model.fit(X, y, sites=sites).coef_ - [1.0, -2.0, 0.5]) < 0.2).all())
    True
    >>> mean, deviation = model.predict(X[:2], return_std=True)
    >>> model.ols().interval(0.9).shape
    (3, 2)

    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        bounds: Bounds | tuple[Any, Any] | None = None,
        y_bounds: tuple[float, float] | None = None,
        adjacency: str = "replace",
        calibration: str = "sound",
        aggregation: str = "distributed",
        tolerate: int = 0,
        nodes: Sequence[str] = (),
        geometry: str = "ball",
        posterior: str = "noise-aware",
        projection: float = 0.0,
        multiple: float | None = None,
        prior_precision: float = 1.0,
        noise_precision: float = 1.0,
        fit_intercept: bool = True,
        public_seed: int = 0,
        random_state: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.y_bounds = y_bounds
        self.adjacency = adjacency
        self.calibration = calibration
        self.aggregation = aggregation
        self.tolerate = tolerate
        self.nodes = nodes
        self.geometry = geometry
        self.posterior = posterior
        self.projection = projection
        self.multiple = multiple
        self.prior_precision = prior_precision
        self.noise_precision = noise_precision
        self.fit_intercept = fit_intercept
        self.public_seed = public_seed
        self.random_state = random_state
        self.budget = budget

    def plan(self, n_samples: int, n_features: int, sites: dict[str, int] | None = None) -> Plan:
        """The plan of a fit to data of this shape, without data; ``sites`` gives the rows of each of several."""
        if self.y_bounds is None:
            raise UsageError("a plan needs y_bounds: pass y_bounds=(low, high)")
        columns = Bounds.given(self.bounds, None).columns([f"x{j}" for j in range(n_features)])
        columns = (*columns, Column(_RESPONSE, float(self.y_bounds[0]), float(self.y_bounds[1])))
        return load("bayes").compile(self._study(sites or {"all": n_samples}, columns, declared=True))

    def _study(self, rows: dict[str, int], columns: tuple[Column, ...], *, declared: bool) -> Study:
        norm = self.bounds.norm if isinstance(self.bounds, Bounds) else None
        parameters = {
            "response": _RESPONSE,
            "tolerate": int(self.tolerate),
            "nodes": [str(node) for node in self.nodes],
            "geometry": self.geometry,
            "norm": None if norm is None else float(norm),
            "fit_intercept": bool(self.fit_intercept),
            "prior_precision": float(self.prior_precision),
            "noise_precision": float(self.noise_precision),
            "posterior": self.posterior,
            "projection": float(self.projection),
            "multiple": None if self.multiple is None else float(self.multiple),
        }
        return Study(
            model="bayes",
            parties=tuple(Card(name, count, columns) for name, count in rows.items()),
            epsilon=self.epsilon,
            delta=default_delta(min(rows.values())) if self.delta is None else self.delta,
            adjacency=self.adjacency,
            calibration=self.calibration,
            parameters=parameters,
            trust={AGGREGATION: self.aggregation},
            public_seed=self.public_seed,
            simulation_seed=seed_of(self.random_state),
            derived=() if declared else (BOUNDS,),
        )

    def fit(self, X: ArrayLike, y: ArrayLike, sites: Sequence[object] | None = None) -> Self:
        """Release the moments of all sites (``sites``: a label per row; None is one site) and compute the posterior."""
        finite = True if not isinstance(self.bounds, Bounds) or self.bounds.missing == "refuse" else "allow-nan"
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2, ensure_all_finite=finite)
        X, y = np.asarray(X), np.asarray(y, dtype=np.float64)
        names = [str(name) for name in getattr(self, "feature_names_in_", [f"x{j}" for j in range(X.shape[1])])]
        features = Table({name: X[:, j] for j, name in enumerate(names)})
        response = Table({_RESPONSE: y})
        warn = not math.isinf(self.epsilon)
        declared_x = Bounds.given(self.bounds, features, warn=warn)
        declared_y = Bounds.given(self.y_bounds, response, warn=warn and self.bounds is not None)
        if self.bounds is None:  # bounds read off data admit missing values; these data were checked to have none
            declared_x = replace(declared_x, missing="refuse")
        columns = (*declared_x.columns(names), *replace(declared_y, missing="refuse").columns([_RESPONSE]))
        tables = Table({**{name: features[name] for name in names}, _RESPONSE: y}).by_site(sites)
        declared = self.bounds is not None and self.y_bounds is not None
        study = self._study({name: table.n_rows for name, table in tables.items()}, columns, declared=declared)
        model = load("bayes")
        plan = model.compile(study)
        run = run_in_process(model, plan, tables, Policy.in_process(), load, budget=self.budget)
        self.plan_, self.ledger_, self.communication_ = plan, run.ledger, run.outcome.communication
        self.projection_ = run.outcome.result.projection
        return self._from(Moments.of(run.outcome.result.moments))

    @classmethod
    def from_moments(cls, moments: Moments, **parameters: Any) -> Self:  # noqa: ANN401 - this class's own parameters
        """A fitted estimator from moments that were released before: another prior, another posterior, free of charge."""
        design = moments.design
        estimator = cls(fit_intercept=design.intercept, geometry=str(design.geometry), **parameters)
        estimator.n_features_in_ = len(design.features)
        names = [column.name for column in design.features]
        if names != [f"x{j}" for j in range(len(names))]:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        return estimator._from(moments)

    def _from(self, moments: Moments) -> Self:
        self.moments_ = moments
        self._fit_ = moments.posterior(self.prior_precision, self.noise_precision, naive=self.posterior == NAIVE)
        self.coef_, self.intercept_, self.covariance_ = self._fit_.coef_, self._fit_.intercept_, self._fit_.covariance_
        return self

    def predict(self, X: ArrayLike, *, return_std: bool = False) -> Vector | tuple[Vector, Vector]:
        """``X @ coef_ + intercept_``; with the standard deviation of a new y around it, if asked for."""
        check_is_fitted(self)
        missing = any(column.may_be_absent for column in self._design.features)
        X = validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite="allow-nan" if missing else True)
        X = np.asarray(X)
        if self.coef_.size != X.shape[1] or missing:  # categories and missing-value indicators have columns of their own
            X = self._design.coding.natural(list(X.T))
        mean: Vector = X @ self.coef_ + self.intercept_
        if not return_std:
            return mean
        rows = np.column_stack([X, np.ones(X.shape[0])]) if self._design.intercept else X
        spread = np.einsum("ij,jk,ik->i", rows, self._fit_.joint_covariance_, rows)
        return mean, np.sqrt(np.maximum(spread, 0.0) + 1 / self.noise_precision)

    def credible_interval(self, level: float = 0.95) -> NDArray[np.float64]:
        """Lower and upper ends for every coefficient."""
        check_is_fitted(self)
        return self._fit_.interval(level)

    def ridge(self, alpha: float = 1.0) -> LinearFit:
        """Ridge regression (scikit-learn's ``alpha``) with intervals from the same moments, free of charge."""
        check_is_fitted(self)
        return self.moments_.ridge(alpha, self.noise_precision)

    def ols(self) -> LinearFit:
        """Ordinary least squares with intervals from the same moments, free of charge."""
        check_is_fitted(self)
        return self.moments_.ols(self.noise_precision)

    @property
    def _design(self) -> Design:
        return self.moments_.design

    @property
    def statement_(self) -> Statement:
        """What the fit promises, and what it does not."""
        check_is_fitted(self)
        if not hasattr(self, "plan_"):
            raise AttributeError("these moments were released elsewhere: moments_.statement holds their statement in words")
        return self.plan_.statement

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")
