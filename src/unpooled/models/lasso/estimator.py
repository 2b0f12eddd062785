"""``PrivateLasso`` and ``PrivateLassoClassifier``: thin scikit-learn estimators over the LASSO study, run in process."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec
import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError, UtilityWarning, warn_caller
from unpooled.estimation.base import ALL, Declared, DeclaredClassifier, LinearRegressor, cards_of, tables_of
from unpooled.estimation.calls import ALIGNED, OfClasses, OfEveryFit, OfNumbers, OverColumns, asked_of, takes
from unpooled.estimation.columns import UnderMasks, held_by, helped, holder_of, joint_cards, joint_tables
from unpooled.estimation.priors import SAVED, DrawnFit, Earlier, as_numbers, log_odds
from unpooled.estimation.tables import RESPONSE
from unpooled.kernels.columns import Columns, scores
from unpooled.linear.moments import Moments
from unpooled.models.lasso import MODEL
from unpooled.models.lasso.declared import LOGISTIC, Coupling, Form, Parameters
from unpooled.models.lasso.frank_wolfe_fit import stepped
from unpooled.models.lasso.frank_wolfe_rows import RESPONSE_WEIGHT, LassoDesign, Term
from unpooled.models.lasso.frank_wolfe_rows import design_of as rounds_of
from unpooled.models.lasso.joint import OF_ROUNDS
from unpooled.models.lasso.outlook import VARIANCE, ScoreOutlook, outlook_of_rounds, recommend
from unpooled.privacy.bounds import Coding, Column
from unpooled.privacy.declared import PROOF

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.estimation.columns import Frames, On
    from unpooled.models.lasso.frank_wolfe_fit import LassoResult
    from unpooled.models.lasso.frank_wolfe_rows import Slot
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import Table

    Vector = NDArray[np.float64]


# --- Before rounds ---------------------------------------------------------------------------------------------------------
# Rounds of ``PrivateLasso`` before any data are touched: their noise, their expected results, and good settings.


class BeforeRounds:
    """The methods of an estimator whose study may take the form of rounds."""

    plan: Callable[[int, int], Plan]

    def predicted_noise(self, n_samples: int, n_features: int) -> dict[str, float]:
        """Return the noise of the rounds (``method="frank-wolfe"``) compared with the signal, before any data are touched.

        ``column``: its standard deviation in a released column, whose values lie in [-1, 1]; ``pick``: the Gumbel scale of a pick, and ``score``: the
        deviation of a score, both as parts of the largest score there can be (radius + half width of y); ``refit``: the deviation of a
        chosen column's mean product with y, as a part of the largest there can be (half width of y); ``clip``: where
        predictions of a full-sized iterate are clipped.
        """
        design: LassoDesign = rounds_of(self._rounds(n_samples, n_features))
        largest = design.eta + design.parameters.response_bound
        end = design.clip((Term("", 0, design.eta),))
        reach = 2 * (end + design.parameters.response_bound) / n_samples
        return {
            "column": design.column_scale,
            "pick": 2 * reach / design.choice_epsilon / largest,
            "score": design.score_multiplier * reach / largest,
            "refit": 2 * design.refit_multiplier / (RESPONSE_WEIGHT * n_samples),
            "clip": end,
        }

    def recommended(
        self, n_samples: int, n_features: int, relevant: int = 6, *, variance: float = VARIANCE
    ) -> dict[str, Any]:
        """``rounds``, ``refit`` and ``shares`` for data of this shape, for :meth:`set_params`: no data are touched.

        A simulation chooses them (:mod:`unpooled.models.lasso.outlook`): independent columns, of which ``relevant`` carry half of the response's
        variance. ``variance`` is what you expect of a column scaled to [-1, 1]: (standard deviation / half width of its range) squared. Ranges
        much wider than four standard deviations make it small, and everything harder: then say so. :meth:`outlook` tells what it expects of
        the settings as they are.

        Examples
        --------
        >>> from unpooled import PrivateLasso
        >>> model = PrivateLasso(4, bounds=(-1, 1), y_bounds=(-2, 2))
        >>> sorted(model.recommended(20_000, 50))
        ['refit', 'rounds', 'shares']

        """
        return recommend(self._rounds(n_samples, n_features), relevant=relevant, variance=variance)[0]

    def rounds_outlook(
        self, n_samples: int, n_features: int, relevant: int = 6, *, variance: float = VARIANCE
    ) -> ScoreOutlook:
        """Return the relative excess risk that a simulation expects of the rounds (``method="frank-wolfe"``), and how many relevant columns they find."""
        return outlook_of_rounds(self._rounds(n_samples, n_features), relevant=relevant, variance=variance)

    def _rounds(self, n_samples: int, n_features: int) -> Study:
        """Return the study of these parameters in the form of rounds."""
        study = self.plan(n_samples, n_features).study
        return msgspec.structs.replace(study, parameters={**study.parameters, "method": Form.ROUNDS.value})


# --- Results in process ----------------------------------------------------------------------------------------------------
# Results for an estimator of parties in one process: coefficients in place, iterates, and the noise-free duality gap.


def bound_of(radius: float | None, half_range: float, renamed: Mapping[str, str]) -> dict[str, float]:
    """Return the study's parameter for a radius that a Python call names, and warn where the number meant something else in version 0.2.0."""
    if radius is None:
        return {}
    name = renamed.get("radius", "radius")
    if name != "radius" and half_range != 1:
        warn_caller(
            f"radius is in half ranges of y: radius={radius:g} is {radius * half_range:g} in units of y. Until version 0.2.0 it was in units of y: "
            f"for the same bound as then pass radius={radius / half_range:g}, or leave it out and the noise sets a penalty",
            FutureWarning,
        )
    return {name: float(radius)}


def warn_if_full(result: Any) -> None:  # noqa: ANN401 - a LassoResult
    """Warn of a fit that its radius limits, and of one of joint moments whose noise leaves no coefficient."""
    if result.moments is not None and not result.terms:
        warn_caller(
            "Noise hides what columns explain, so this fit is no more than a mean: ask for more epsilon, more rows or fewer columns.",
            UtilityWarning,
        )
    if result.binds:
        warn_caller(
            "The coefficients fill the ball that the radius allows, so the radius limits this fit: pass a larger radius, "
            'or radius=None with method="moments" for a fit that needs none. It is fitted.',
            UtilityWarning,
        )


def duality_gap(design: LassoDesign, study: Study, tables: dict[str, Table], terms: dict[tuple[str, int], float]) -> float:
    """<x - s, g> for the best vertex s: at least the distance of the objective to its minimum (Frank-Wolfe's gap)."""
    coded = {card.name: _coded(card.columns, tables[card.name]) for card in study.parties}
    residual = -np.asarray(tables[study.parties[0].name][RESPONSE])
    for (party, column), value in terms.items():
        residual = residual + value * coded[party].column(column)
    if design.centres:
        residual -= residual.mean()
    slopes = {party: scores(matrix, None, residual) / residual.size for party, matrix in coded.items()}
    descent = sum(value * slopes[party][column] for (party, column), value in terms.items())
    steepest = [float(np.abs(slope).max()) for slope in slopes.values()]
    best = max(steepest) if design.coupling is Coupling.BALL else math.fsum(steepest)
    return float(descent + design.radius(study) * best)


def walked(radius: Any, path: Any) -> list[dict[tuple[str, int], float]]:  # noqa: ANN401 - one or a radius per party, a tuple of steps
    """Return the iterates of the rounds."""
    iterate: dict[Slot, float] = {}
    iterates = []
    for step in path:
        iterate = stepped(iterate, step.vertices, step.gamma, radius)
        iterates.append({(place.party, place.column): value for place, value in iterate.items()})
    return iterates


def in_place(study: Study, columns: tuple[Column, ...], result: Any) -> Vector:  # noqa: ANN401 - a Result
    """All coefficients, in the order of X's coded columns."""
    starts = _starts(columns)
    at = {column.name: int(i) for column, i in zip(columns, starts, strict=False)}
    places = {card.name: _starts(card.columns) for card in study.parties}
    found = np.zeros(starts[-1])
    for term, coefficient in zip(result.terms, result.coefficients, strict=True):
        own = places[term.party]
        i = int(np.searchsorted(own, term.column, side="right")) - 1
        found[at[study.card(term.party).columns[i].name] + term.column - own[i]] = coefficient.value
    return found


def _starts(columns: tuple[Column, ...]) -> NDArray[np.intp]:
    """Where the coded columns of every declared column begin, and how many there are in all."""
    attribute = np.array(Coding(columns, 1).attribute)
    return np.searchsorted(attribute, np.arange(len(columns) + 1))


def _coded(columns: tuple[Column, ...], table: Table) -> Columns:
    coding = Coding(columns, 1 << 40)
    sparse = table.sparse(coding.names)
    if sparse is not None:
        coded = coding.code_sparse(sparse)
        coded.data /= coding.grid
        return Columns.of(coded)
    return Columns.of(coding.real([table[name] for name in coding.names]))


# --- Columns joined under masks --------------------------------------------------------------------------------------------
# The part of both LASSO estimators that joins the columns of parties under masks: the study, the fit, and the released moments.

# ruff: noqa: SLF001 - the estimator's own members, of which this part of it does not know the types


class Joining(Earlier):
    """Columns of parties whose joint moments are released: what ``method="joint"`` means."""

    helpers: int
    response_at: str | None
    check: str
    method: str
    moments_: Moments
    plan_: Plan
    coef_: Vector
    intercept_: float
    shared_: Any
    _columns: Any

    @property
    def _joins(self) -> bool:
        """Return True if a fit releases joint moments."""
        return self.method == Form.JOINT

    @property
    def _response_stays(self) -> bool:
        return self._joins

    def _joint_study(self, rows: int, declared: Declared, parameters: dict[str, Any], holder: str | None = None) -> Study:
        """Return the study of parties of which one holds the response; ``holder``, else whom the parameters say."""
        estimator: Any = self  # an estimator has more than this part of it says
        groups = estimator._groups(declared.names)
        cards = joint_cards(
            groups, declared.columns, declared.response, rows, holder_of(groups, holder or self.response_at), self.check
        )
        asked = {"response": RESPONSE, "method": Form.JOINT.value, "check": self.check, **parameters}
        asked |= self._prior_parameter(declared.columns)
        return helped(estimator._asked(cards, asked, declared.derived), self.helpers)

    def _check_joining(self) -> None:
        """Refuse parameters of joint moments where a fit releases none."""
        for name, left in (("helpers", 1), ("response_at", None), ("check", PROOF)):
            if getattr(self, name) != left and not self._joins:
                msg = f"{name} goes with method={Form.JOINT.value!r}: ask for that method, or leave it at {left!r}"
                raise UsageError(msg)

    def _held(self, X: Any, y: Any, on: On | None) -> str | None:  # noqa: ANN401 - whatever a user passes
        """Return whose frame has the response, where frames are linked."""
        return held_by(X, y, self.response_at) if self._joins and on is not None else None

    def _fit_joint(self, study: Study, table: Table, declared: Declared, response: NDArray[Any]) -> Any:  # noqa: ANN401 - a LassoResult
        """Run a study of joint moments, and take its coefficients."""
        estimator: Any = self
        result = estimator._run(study, joint_tables(study, table, response)).outcome.result
        names = Coding(declared.columns, 1).coded_names
        values = {c.name: c.value for c in result.coefficients}
        self.coef_ = np.array([values.get(name, 0.0) for name in names])
        self.intercept_ = result.intercept
        self.moments_ = Moments.of(result.moments).of_run(self.plan_)
        self.shared_, self._columns = (), declared.columns
        self._keep_drawn(result)
        return result

    def _keep_drawn(self, result: Any) -> None:  # noqa: ANN401 - a LassoResult
        """Keep how earlier models drew the fit, and nothing of a fit before it."""
        self.__dict__.pop("drawn_", None)
        self.__dict__.update({} if result.drawn is None else {"drawn_": result.drawn})


# --- Estimator -------------------------------------------------------------------------------------------------------------
# ``PrivateLasso``: a thin scikit-learn estimator over the LASSO study, run in process.


@takes(OfEveryFit, OfNumbers, OverColumns, Parameters, UnderMasks, DrawnFit, first="parties", never=ALIGNED)
class PrivateLasso(Joining, BeforeRounds, LinearRegressor):
    r"""LASSO on column-split data: from moments of privately standardised columns, or by private block-coordinate Frank-Wolfe.

    Minimises :math:`\frac1{2n}|Ax+c-y|^2` over x and c, A the columns scaled by their declared half widths, with a penalty of the standardised coefficients that follows from the noise,
    or over :math:`|x|_1\le` ``radius`` half ranges of y. No result depends on the units of y or of the columns. ``method="moments"``: each
    party standardises its columns with noise, keeps the number that the noise allows (noisy picks), and releases their moments and products with y; what columns of different parties have in common is taken
    from one released score per row and party, its noise accounted for. ``method="frank-wolfe"``: each round every party picks one of its columns by the exponential mechanism; the best pick steps, and its column is
    released once. Every iterate is feasible.

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
    _saved_types: ClassVar = (*LinearRegressor._saved_types, *SAVED)

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
        bound = bound_of(self.radius, half_range, self._row.form.renamed)
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
        own = self._given
        return asked_of(Parameters, {name: own[name] for name in (*OF_ROUNDS, "fit_intercept")})

    def fit(self, X: Any, y: ArrayLike | str, *, on: On | None = None) -> Self:  # noqa: ANN401 - an array, a frame, a sparse matrix, frames
        """Run over in-process parties. X may be sparse. ``on``: the ids by which their frames, {name: frame}, are linked; y names a column then."""
        holder = self._held(X, y, on)
        features, declared, response_values = self._numeric(*self._joined(X, y, on))
        assert declared.response is not None
        response, columns = declared.response, declared.columns
        if self._joins:
            study = self._study({ALL: features.n_rows}, declared, holder)
            warn_if_full(self._fit_joint(study, features, declared, response_values))
            self.path_, self.n_iter_, self.dual_gap_ = [], 1, None
            return self
        study = self._study({ALL: features.n_rows}, declared)
        if features.sparse_names and self.method == Form.AUTO:  # standardised columns are sparse no more
            study = msgspec.structs.replace(study, parameters={**study.parameters, "method": Form.ROUNDS.value})
        centred = response_values - response.centre
        tables = tables_of(study, features, centred)
        result = self._run(study, tables).outcome.result
        warn_if_full(result)
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


# --- Classifier ------------------------------------------------------------------------------------------------------------
# ``PrivateLassoClassifier``: a thin scikit-learn estimator over the LASSO study of two classes, run in process.


#: Parameters that a classifier has not: those of the rounds, and of a response that is a number.
_OF_NUMBERS = (*OF_ROUNDS, "fit_intercept")


@takes(
    OfEveryFit,
    OfClasses,
    OverColumns,
    Parameters,
    UnderMasks,
    DrawnFit,
    first="parties",
    left=_OF_NUMBERS,
    never={**ALIGNED, "calibration": ("published",), "method": (Form.ROUNDS,)},
)
class PrivateLassoClassifier(Joining, DeclaredClassifier):
    r"""Sparse logistic regression on column-split data, from the private moments of :class:`PrivateLasso`.

    Minimises the logistic loss over coefficients and a constant, expected where the columns of each class are normal about their
    own means with a common covariance: that loss follows from moments, which is all that parties release. A penalty of the standardised
    coefficients follows from the noise, or their sum is bounded: :math:`|x|_1\le` ``radius``.

    Attributes
    ----------
    coef_ : array
        Log odds in the data's own units, one for each category where categories are declared.
    intercept_ : float
        The constant.
    classes_ : array
        The two labels.
    drawn_ : DrawnTo
        The weight of each earlier model, and how far they drew each coefficient; absent without ``prior``.
    shared_ : list
        As of :class:`PrivateLasso`.
    statement_, plan_, ledger_, communication_
        What is promised and what is not; what was released, with which noise; what was debited; bytes sent and received.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import PrivateLassoClassifier
    >>> X = np.random.default_rng(0).uniform(-1, 1, (20_000, 8))
    >>> y = X[:, 0] - X[:, 5] > 0.2
    >>> model = PrivateLassoClassifier(2, bounds=(-1, 1), classes=(False, True), epsilon=2.0, random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.8)
    True

    """

    _model = MODEL
    _saved_types: ClassVar = (*DeclaredClassifier._saved_types, *SAVED)

    def _publicly(self) -> Any:  # noqa: ANN401 - scikit-learn's own
        return log_odds()

    def _study(self, rows: Mapping[str, Any], declared: Declared, holder: str | None = None) -> Study:
        # Classes of -1 and 1 have a half range of 1.
        bound = {} if self.radius is None else {"radius_in_half_ranges": float(self.radius)}
        if self._joins:
            signed = replace(declared, response=Column(RESPONSE, -1.0, 1.0))
            return self._joint_study(rows[ALL], signed, {"loss": LOGISTIC, **bound}, holder)
        self._check_joining()
        cards = cards_of(self._groups(declared.names), declared, rows[ALL])
        asked = {"response": RESPONSE, "loss": LOGISTIC, **bound}
        asked |= {} if self.method == Form.AUTO else {"method": self.method}  # without a method a study keeps its hash
        asked |= self._prior_parameter(declared.columns)
        return self._asked(cards, asked, declared.derived)

    def fit(self, X: ArrayLike | Frames, y: ArrayLike | str, *, on: On | None = None) -> Self:
        """Release moments of in-process parties, and fit the log odds. ``on`` as of :class:`PrivateLasso`."""
        holder = self._held(X, y, on)
        rows, labels = self._joined(X, y, on)
        table, declared, _ = self._labelled(rows, labels)
        study = self._study({ALL: table.n_rows}, declared, holder)
        signs = np.where(np.asarray(labels) == self.classes_[1], 1.0, -1.0)
        if self._joins:
            warn_if_full(self._fit_joint(study, table, declared, signs))
            return self
        result = self._run(study, tables_of(study, table, signs)).outcome.result
        warn_if_full(result)
        self._keep_drawn(result)
        self.shared_, self._columns = result.shared, declared.columns
        self.coef_, self.intercept_ = in_place(study, declared.columns, result), result.intercept
        return self


# --- A finished study --------------------------------------------------------------------------------------------------------


def fitted(plan: Plan, result: LassoResult) -> PrivateLasso | PrivateLassoClassifier:
    """Return an estimator with the released coefficients; new rows need the columns of all parties in one place."""
    given_columns = tuple(column for card in plan.study.parties for column in card.columns)
    columns = plan.design.layout.features if plan.joint else given_columns
    if len({column.name for column in columns}) != len(columns):
        raise UsageError("two parties have columns of one name, which new rows in one place cannot tell apart")
    kind = PrivateLassoClassifier if plan.design.parameters.loss == LOGISTIC else PrivateLasso
    own: dict[str, Any] = {"classes": (-1, 1)} if kind is PrivateLassoClassifier else {}
    prior = as_numbers(plan.design.parameters.prior)
    estimator = kind._of_plan(plan, columns, ("loss", "radius"), prior=prior, **own)
    if isinstance(estimator, PrivateLassoClassifier):
        estimator.classes_ = np.array([-1, 1])
    place = {name: k for k, name in enumerate(Coding(columns, 1).coded_names)}
    estimator.coef_ = np.zeros(len(place))
    for coefficient in result.coefficients:
        estimator.coef_[place[coefficient.name]] = coefficient.value
    estimator.intercept_ = result.intercept
    estimator._keep_drawn(result)
    return estimator
