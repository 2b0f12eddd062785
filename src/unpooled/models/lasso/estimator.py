"""``PrivateLasso``: a thin scikit-learn estimator over the LASSO study, run in process."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec
import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError
from unpooled.estimation.base import ALL, Declared, LinearRegressor, cards_of, tables_of
from unpooled.estimation.columns import JOINING
from unpooled.estimation.parameters import FLAG, NONE, NUMBER, NUMBERS, SHARED, WHOLE, WORD, taking
from unpooled.estimation.priors import PRIORS, SAVED, Prior
from unpooled.estimation.tables import RESPONSE
from unpooled.models.lasso import MODEL
from unpooled.models.lasso.before_rounds import BeforeRounds
from unpooled.models.lasso.forms import Form
from unpooled.models.lasso.in_process import bound_of, duality_gap, in_place, walked, warn_if_full
from unpooled.models.lasso.joining import Joining
from unpooled.models.lasso.plan import LassoDesign
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.study import PROOF

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.estimation.columns import On
    from unpooled.privacy.budget import Budget
    from unpooled.privacy.plan import Study
    from unpooled.privacy.table import Table

    Vector = NDArray[np.float64]


class PrivateLasso(Joining, BeforeRounds, LinearRegressor):
    r"""LASSO on column-split data: from moments of privately standardised columns, or by private block-coordinate Frank-Wolfe.

    Minimises :math:`\frac1{2n}|Ax+c-y|^2` over x and c, A the columns scaled by their declared half widths, with a penalty of the standardised coefficients that follows from the noise,
    or over :math:`|x|_1\le` ``radius`` half ranges of y. No result depends on the units of y or of the columns. ``method="moments"``: each
    party standardises its columns with noise, keeps the number that the noise allows (noisy picks), and releases their moments and products with y; what columns of different parties have in common is taken
    from one released score per row and party, its noise accounted for. ``method="frank-wolfe"``: each round every party picks one of its columns by the exponential mechanism; the best pick steps, and its column is
    released once. Every iterate is feasible.

    Parameters
    ----------
    parties : int or mapping from party names to columns (indices or names), default 2
        Who holds which columns. An int splits the columns evenly.
    radius : float, optional
        Bound on the sum of absolute coefficients of the scaled columns, in half ranges of y (half the width of ``y_bounds``). None: moments are
        fitted with a penalty, a quarter of what the largest product of noise and chance with y is about; without noise that is a plain LASSO. The
        rounds of "frank-wolfe" need a ball, and None is 1. The published form has it in units of y, as the paper, and None is 1.
    epsilon : float, default 1.0
        The privacy asked for: smaller protects more. ``inf`` adds no noise and promises nothing.
    delta : float, optional
        The probability with which the promise may fail. None is min(1e-5, 0.1 / n).
    bounds : Bounds, (low, high), or mapping from column names to ranges or categories, optional
        Declared ranges of the features; they also set centre and scale of every column. None reads them off the data, warns,
        and promises nothing.
    y_bounds : (low, high), optional
        Declared range of y. None reads it off the data, warns, and promises nothing.
    unit : {"attribute", "record"}, default "attribute"
        Whom the promise is for: one value of one person, or a whole row. Rows cost far more here: prefer row-split moments,
        :class:`~unpooled.PrivateLinearRegression`, if rows can be split instead.
    adjacency : {"replace", "zero-out"}, default "replace"
        How two neighbouring data sets differ: one becomes any other admissible one, or contributes nothing.
    calibration : {"sound", "published"}, default "sound"
        The published form, kept for comparison, is not private and leaves the ball (THEORY.md).
    method : {"auto", "moments", "frank-wolfe", "joint"}, default "auto"
        "auto" is "moments", and the rounds of "frank-wolfe" where one of their parameters below is set, for sparse columns, or where ``epsilon=inf`` and a radius is named. Where the
        noise leaves nothing, moments are the mean of y alone: decided before data. "joint": the columns of all
        parties are joined under masks, whole persons are protected (``unit="record"``), and one party alone has y.
    prior : mapping, fitted model, public rows (X, y), or a mapping from names to several of these, optional
        Of methods "moments" and "joint", earlier models of the same response (docs/prior.md), to which the fit is drawn as far as the release agrees.
    coupling : {"ball", "blocks"}, default "ball"
        One ball, of which the best party steps; or an equal ball for each party, of which all step: another, more constrained problem.
    rounds : int, default 20
        T. The noise of picks grows with sqrt T, that of columns does not (unit attribute).
    sampled : int, default 0
        Columns that each party looks at in a round. 0: all.
    clip : float, default 0.0
        C, where noisy predictions are clipped. 0 chooses by the noise, before any data (see :meth:`predicted_noise`).
    refit : float, default 0.25
        Share of the budget that pays for moments of the chosen columns, to which their coefficients are fitted at the end. 0 leaves them as the
        rounds left them, which was less accurate throughout ``experiments/results/lasso/private.md``.
    shares : three floats, default (0.6, 0.2, 0.2)
        Shares of the rest, for columns, picks and scores.
    fit_intercept : bool, default True
        Fit c, from a noisy mean of y (a fiftieth of the budget) and centred columns; otherwise c is the middle of ``y_bounds``.
    response_public : bool, default False
        Declares y public: less noise at unit attribute, and no promise for records.
    sketch_rows : int, default 0
        Rows m of the published form's sketch of shared columns. 0: no sketch.
    helpers : {1, 0}, default 1
        Of method "joint", whether an outside organisation knows the masks; 0 with three parties or more: they help each other.
    response_at : str, optional
        Of method "joint", who holds y; None is the first party, or of frames the one that has it.
    check : {"proof", "none"}, default "proof"
        Of method "joint", whether every party proves that its masked rows are short; without it nothing holds against one that deviates.
    public_seed : int, default 0
        Seed of the public randomness (sampled columns).
    random_state : int, optional
        A seed makes the noise reproducible, and the fit a simulation that protects nobody. None draws real noise.
    budget : Budget, optional
        A total that several fits on the same people share.

    Attributes
    ----------
    coef_ : array
        Coefficients in the data's own units, one for each category where categories are declared.
    intercept_ : float
        The constant.
    path_ : list of dict
        For each round, the coefficients of the scaled columns so far, as {(party, coded column): value}.
    shared_ : tuple
        The columns that were released, in order.
    drawn_ : DrawnTo
        The weight of each earlier model, and how far they drew each coefficient; absent without ``prior``.
    dual_gap_ : float or None
        Frank-Wolfe's gap of the noise-free rounds (``epsilon=inf``); None otherwise, for it needs the data.
    n_iter_ : int
        Rounds.
    linkage_ : Linkage
        Where ``fit`` linked frames: the facts that each party learned, without noise.
    statement_ : Statement
        What the fit promises, and what it does not.
    plan_ : Plan
        What was released, with which noise.
    ledger_ : tuple of Entry
        What was debited.
    communication_ : dict
        Bytes sent to and received from each party.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import PrivateLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20000, 12))
    >>> y = X[:, 2] - 0.5 * X[:, 9] + 0.1 * rng.normal(size=20000)
    >>> model = PrivateLasso(3, bounds=(-1, 1), y_bounds=(-2, 2), epsilon=8.0, random_state=0).fit(X, y)
    >>> np.flatnonzero(abs(model.coef_) > 0.25).tolist()
    [2, 9]

    """

    _model = MODEL
    _takes_sparse = True
    _saved_types: ClassVar = (*LinearRegressor._saved_types, *SAVED)  # noqa: SLF001 - its base
    _parameter_constraints: ClassVar = (
        SHARED
        | taking("radius", NUMBER, NONE)
        | taking("clip refit", NUMBER)
        | taking("rounds sampled sketch_rows", WHOLE)
        | taking("coupling method", WORD)
        | taking("shares", NUMBERS)
        | taking("response_public", FLAG)
        | taking("prior", PRIORS, NONE)
        | JOINING
    )

    def __init__(
        self,
        parties: int | Mapping[str, Sequence[int | str]] = 2,
        *,
        radius: float | None = None,
        epsilon: float = 1.0,
        delta: float | None = None,
        bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None,
        y_bounds: tuple[float, float] | None = None,
        unit: str = "attribute",
        adjacency: str = "replace",
        calibration: str = "sound",
        method: str = "auto",
        prior: Prior = None,
        coupling: str = "ball",
        rounds: int = 20,
        sampled: int = 0,
        clip: float = 0.0,
        refit: float = 0.25,
        shares: tuple[float, float, float] = (0.6, 0.2, 0.2),
        fit_intercept: bool = True,
        response_public: bool = False,
        sketch_rows: int = 0,
        helpers: int = 1,
        response_at: str | None = None,
        check: str = PROOF,
        public_seed: int = 0,
        random_state: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(epsilon, delta, bounds, adjacency, calibration, public_seed, random_state, budget)
        self.parties = parties
        self.radius = radius
        self.y_bounds = y_bounds
        self.unit = unit
        self.method = method
        self.prior = prior
        self.coupling = coupling
        self.rounds = rounds
        self.sampled = sampled
        self.clip = clip
        self.refit = refit
        self.shares = shares
        self.fit_intercept = fit_intercept
        self.response_public = response_public
        self.sketch_rows = sketch_rows
        self.helpers, self.response_at, self.check = helpers, response_at, check

    def _declared(self, names: Sequence[str], table: Table | None = None, y: NDArray[Any] | None = None) -> Declared:
        sparse = table is not None and bool(table.sparse_names)
        if sparse and self.bounds is None:
            raise UsageError("sparse columns need declared ranges that are symmetric about zero: pass bounds=(-1, 1), say")
        declared = super()._declared(names, table, y)
        unfit = [problem for column in declared.columns if (problem := column.unfit_for_sparse)] if sparse else []
        if unfit:
            raise UsageError(unfit[0])
        return declared

    def _study(self, rows: Mapping[str, int], declared: Declared, holder: str | None = None) -> Study:
        assert declared.response is not None
        # Joint moments never had a radius in units of y: nothing to warn of.
        half_range = 1.0 if self._joins else declared.response.half_width
        bound = bound_of(self.radius, half_range, self._row.form.renamed, stacklevel=3)
        if self._joins:
            return self._joint_study(rows[ALL], declared, self._of_rounds() | bound, holder)
        self._check_joining()
        parameters = {
            "response": RESPONSE,
            "response_bound": declared.response.half_width,
            "method": self.method,
            **self._of_rounds(),
        }
        parameters |= bound | self._prior_parameter(declared.columns)
        cards = cards_of(self._groups(declared.names), declared, rows[ALL])
        return self._asked(cards, parameters, declared.derived)

    def _of_rounds(self) -> dict[str, Any]:
        """Return the parameters of the study that have the names of those of the estimator."""
        return {
            "coupling": self.coupling,
            "rounds": int(self.rounds),
            "sampled": int(self.sampled),
            "clip": float(self.clip),
            "refit": float(self.refit),
            "shares": [float(share) for share in self.shares],
            "fit_intercept": bool(self.fit_intercept),
            "response_public": bool(self.response_public),
            "sketch_rows": int(self.sketch_rows),
        }

    def fit(self, X: Any, y: ArrayLike | str, *, on: On | None = None) -> Self:  # noqa: ANN401 - an array, a frame, a sparse matrix, frames
        """Run over in-process parties. X may be sparse. ``on``: the ids by which their frames, {name: frame}, are linked; y names a column then."""
        holder = self._held(X, y, on)
        features, declared, response_values = self._numeric(*self._joined(X, y, on))
        assert declared.response is not None
        response, columns = declared.response, declared.columns
        if self._joins:
            study = self._study({ALL: features.n_rows}, declared, holder)
            warn_if_full(self._fit_joint(study, features, declared, response_values), stacklevel=2)
            self.path_, self.n_iter_, self.dual_gap_ = [], 1, None
            return self
        study = self._study({ALL: features.n_rows}, declared)
        if features.sparse_names and self.method == Form.AUTO:  # standardised columns are sparse no more
            study = msgspec.structs.replace(study, parameters={**study.parameters, "method": Form.ROUNDS.value})
        centred = response_values - response.centre
        tables = tables_of(study, features, centred)
        result = self._run(study, tables).outcome.result
        warn_if_full(result, stacklevel=2)
        self._keep_drawn(result)
        self.shared_, self.n_iter_ = result.shared, max(len(result.path), 1)
        self.path_ = walked(self.plan_.design.radius(study), result.path) if result.path else []
        self._columns = columns
        terms = {(t.party, t.column): t.value for t in result.terms}
        self.coef_ = in_place(study, columns, result)
        self.intercept_ = response.centre + result.intercept
        # A gap needs the data, and a private one would be one more release: only the noise-free algorithm has it.
        design = self.plan_.design
        exact = math.isinf(self.epsilon) and isinstance(design, LassoDesign)
        self.dual_gap_ = duality_gap(design, study, tables, terms) if exact else None
        return self

    @classmethod
    def _of_saved(cls, body: bytes) -> Self:
        """Return an object made from a file's body; one of version 0.2.0 has its radius in units of y, and its study is read in half ranges."""
        found = super()._of_saved(body)
        if found.radius is not None:
            found.radius = found.plan_.study.parameters.get("radius_in_half_ranges", found.radius)
        return found

    @property
    def sparse_coef_(self) -> Any:  # noqa: ANN401 - scipy ships partial types
        """Return the coefficients as a sparse row, as scikit-learn's Lasso has them."""
        from scipy.sparse import csr_array

        check_is_fitted(self)
        return csr_array(self.coef_[None, :])
