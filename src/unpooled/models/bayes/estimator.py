"""``PrivateBayesianRegression``: a thin scikit-learn estimator over the Bayes study, run in process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.aggregation.moments import LinearFit, Moments
from unpooled.estimation.base import ALL, Declared
from unpooled.estimation.parameters import NONE, NUMBER, SHARED, WORD, taking
from unpooled.estimation.regression import LinearRegressor
from unpooled.estimation.tables import RESPONSE, part
from unpooled.models.bayes import MODEL, published
from unpooled.models.bayes.plan import NAIVE
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.plan import AGGREGATION, Card, Plan, Study

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.privacy.budget import Budget

    Vector = NDArray[np.float64]


class PrivateBayesianRegression(LinearRegressor):
    """Bayesian linear regression on row-split data from one private release of second moments.

    The model is y ~ N(x.beta + b, 1/noise_precision) with beta ~ N(0, I/prior_precision), in the data's own units. The moments are
    added up by secure sum with distributed noise; the posterior accounts for that noise, so its intervals mean what they say.

    Parameters
    ----------
    epsilon, delta, adjacency
        The privacy asked for, per row. ``delta=None`` is min(1e-5, 0.1/n); ``epsilon=inf`` is the noise-free algorithm.
    bounds : Bounds, (low, high), or mapping from column names to a range or a list of categories
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

    _model, _published = MODEL, published.MODEL
    _parameter_constraints: ClassVar = (
        SHARED
        | taking("geometry posterior", WORD)
        | taking("projection prior_precision noise_precision", NUMBER)
        | taking("multiple", NUMBER, NONE)
    )

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None,
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
        super().__init__(epsilon, delta, bounds, adjacency, calibration, public_seed, random_state, budget)
        self.y_bounds = y_bounds
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

    def plan(self, n_samples: int, n_features: int, sites: Mapping[str, int] | None = None) -> Plan:
        """The plan of a fit to data of this shape, without data; ``sites`` gives the rows of each of several."""
        return self._planned(sites or {ALL: n_samples}, n_features)

    def _study(self, rows: Mapping[str, int], declared: Declared) -> Study:
        assert declared.response is not None
        columns = (*declared.columns, declared.response)
        norm = self.bounds.norm if isinstance(self.bounds, Bounds) else None
        parameters = {
            "response": RESPONSE,
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
        cards = tuple(Card(name, count, columns) for name, count in rows.items())
        return self._asked(cards, parameters, declared.derived, {AGGREGATION: self.aggregation})

    def fit(self, X: ArrayLike, y: ArrayLike, sites: Sequence[object] | None = None) -> Self:
        """Release the moments of all sites (``sites``: a label per row; None is one site) and compute the posterior."""
        features, declared, response = self._numeric(X, y)
        tables = part(features, features.names, response).by_site(sites)
        study = self._study({name: table.n_rows for name, table in tables.items()}, declared)
        result = self._run(study, tables).outcome.result
        self.projection_ = result.projection
        return self._from(Moments.of(result.moments))

    @classmethod
    def from_moments(cls, moments: Moments, **parameters: Any) -> Self:  # noqa: ANN401 - this class's own parameters
        """A fitted estimator from moments that were released before: another prior, another posterior, free of charge."""
        design = moments.layout
        estimator = cls(fit_intercept=design.intercept, geometry=str(design.geometry), **parameters)
        estimator.n_features_in_ = len(design.features)
        names = [column.name for column in design.features]
        if names != [f"x{j}" for j in range(len(names))]:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        return estimator._from(moments)

    def _from(self, moments: Moments) -> Self:
        self.moments_, self._columns = moments, moments.layout.features
        self._fit_ = moments.posterior(self.prior_precision, self.noise_precision, naive=self.posterior == NAIVE)
        self.coef_, self.intercept_, self.covariance_ = self._fit_.coef_, self._fit_.intercept_, self._fit_.covariance_
        return self

    def predict(self, X: Any, *, return_std: bool = False) -> Any:  # noqa: ANN401
        """``X @ coef_ + intercept_``; with the standard deviation of a new y around it, if asked for."""
        rows = self._natural(X)
        mean: Vector = rows @ self.coef_ + self.intercept_
        if not return_std:
            return mean
        if self.moments_.layout.intercept:
            rows = np.column_stack([rows, np.ones(rows.shape[0])])
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
