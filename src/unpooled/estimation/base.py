"""``StudyEstimator``: what every estimator does alike, from parameters and data to a study that runs; declared classifiers and linear regressors."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec
import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import DataError, UsageError, listed
from unpooled.estimation.calls import asked_of
from unpooled.estimation.columns import Linkable, Linkage
from unpooled.estimation.fitted import at_sites, linear_model, mean_of_lines, natural_at
from unpooled.estimation.parameters import (
    PROTECTING,
    WHOLE,
    HasForms,
    asked_by,
    check,
    planned_counts,
)
from unpooled.estimation.priors import released_origins
from unpooled.estimation.running import ModelResult, run
from unpooled.estimation.tables import (
    RESPONSE,
    TakesFrames,
    by_name,
    checked,
    filled,
    lacking,
    name_of,
    names_of,
    part,
    picked,
    response_of,
    table_of,
)
from unpooled.inference.coding import coded_by
from unpooled.inference.saving import Savable, unpack
from unpooled.linear.fit import LinearFit
from unpooled.linear.moments import Moments
from unpooled.privacy.bounds import COMPLETE, LEAVING_OUT, Bounds, Coding, Column, text_of
from unpooled.privacy.classes import Classes
from unpooled.privacy.noise import seed_of
from unpooled.privacy.origin import COEFFICIENTS, INPUT_WORDS, ReleasedInput, origins_of, sourced
from unpooled.privacy.plan import BOUNDS, CLASSES, Card, Plan, Study, default_delta
from unpooled.privacy.table import Table, as_column, gaps_of, with_gaps
from unpooled.privacy.unit import check_epsilon
from unpooled.totals.whole_rows import refuse_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray
    from sklearn.utils import Tags

    from unpooled.estimation.calls import Argument
    from unpooled.estimation.outlook import Outlook
    from unpooled.privacy.bounds import Missing
    from unpooled.privacy.budget import Budget
    from unpooled.privacy.statement import Statement
    from unpooled.protocol.identity import Keeper
    from unpooled.protocol.local import LocalRun
    from unpooled.protocol.registry import Model

    Vector = NDArray[np.float64]


# --- Base ------------------------------------------------------------------------------------------------------------------
# ``StudyEstimator``: what every estimator does alike, from parameters and data to a study that runs in this process, and to predictions.

#: The one party of a study that is not split.
ALL = "all"


@dataclass(frozen=True)
class Declared:
    """Declarations of a study about its data, and the names of those that were read off the data."""

    columns: tuple[Column, ...]
    derived: tuple[str, ...]
    #: The range of the response, or its two classes, where the model needs one of them.
    response: Column | None = None
    #: Further responses, where a model takes several.
    others: tuple[Column, ...] = ()
    classes: Classes | None = None

    @property
    def names(self) -> list[str]:
        """Return the names of the features."""
        return [column.name for column in self.columns]


class StudyEstimator(TakesFrames, Linkable, Savable, HasForms, BaseEstimator):
    """A scikit-learn estimator whose ``fit`` runs a study over parties of this process.

    A model's estimator says what is its own: its declared parameters (:func:`unpooled.estimation.calls.takes`), its model, the study that
    they ask (:meth:`_study`), and the attributes that the result becomes. Everything else is here, once.
    """

    _model: ClassVar[Model]
    #: Whether ``fit`` and ``predict`` take scipy's sparse matrices.
    _takes_sparse: ClassVar[bool] = False
    _columns: tuple[Column, ...]
    #: What the study that it stands for says and no parameter holds: a fit would ask for something else, and is refused.
    _unheld: tuple[str, ...] = ()
    #: The result of its study as the record of a run has it; empty where it was made of moments, or by an earlier version.
    _record: bytes = b""
    #: Fitted attributes that no file holds: what parties keep would be carried away from them.
    _unsaved: ClassVar[frozenset[str]] = frozenset({"kept_", Linkable._roots})  # noqa: SLF001 - its base
    #: Lines of the log odds over which probabilities are averaged; none: the linear predictor is the log odds.
    _lines: tuple[tuple[float, float], ...] = ()
    _saved_types: ClassVar[tuple[type, ...]] = (Classes, Declared, LinearFit, Linkage, Moments)

    #: What its constructor takes (:func:`unpooled.estimation.calls.takes`), by name.
    arguments: ClassVar[Mapping[str, Argument]]
    epsilon: float
    delta: float | None
    bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None
    adjacency: str
    calibration: str
    public_seed: int
    random_state: int | None
    budget: Budget | None

    def __init__(self, *args: Any, **given: Any) -> None:  # noqa: ANN401 - its own
        """Every estimator has a constructor of its own, which its declared parameters make."""
        msg = f"{type(self).__name__} declares no parameters: its class needs the decorator that makes a constructor"
        raise NotImplementedError(msg, args, given)

    def __init_subclass__(cls, **options: Any) -> None:  # noqa: ANN401 - of other bases
        """Let every ``fit`` take columns of its frame by name."""
        super().__init_subclass__(**options)
        if "fit" in vars(cls):
            setattr(cls, "fit", by_name(vars(cls)["fit"]))  # noqa: B010 - a method

    # --- before the data -------------------------------------------------------------------------------------------------

    def plan(self, n_samples: int, n_features: int) -> Plan:
        """Return the plan of a fit to data of this shape, without data; ``n_samples`` counts households where these are the unit."""
        return self._planned({ALL: n_samples}, n_features)

    def _planned(self, rows: Mapping[str, int], n_features: int) -> Plan:
        """Return the plan of a fit to these numbers of rows of every party. Columns are called as the bounds name them, else x0, x1, .."""
        self._validate_params()
        for count in rows.values():
            check({"n_samples": (WHOLE,), "n_features": (WHOLE,)}, {"n_samples": count, "n_features": n_features})
        given = Bounds.given(self.bounds, None)
        self._called = response_of(getattr(self, "formula", None))
        names = given.without(self._called).names
        names = names if len(names) == n_features else tuple(f"x{j}" for j in range(n_features))
        counts = planned_counts({n: int(c) for n, c in rows.items()}, self._unit, getattr(self, "rows_per_household", 1))
        study = self._study(counts, self._declared(names))
        return self._row_of(study).compile(study)

    def outlook(self, n_samples: int, n_features: int, *, epsilon: float | None = None, **assumed: Any) -> Outlook:  # noqa: ANN401 - the model's own
        """Return the outlook of a fit to data of this shape, before any are touched: simulations of this very plan.

        ``epsilon`` is the estimator's own if it is None. What may be assumed, as a number or as a range (low, high): ``r2``, the part of the
        variance of y that the columns explain; ``correlation`` of the columns; rows split: ``ranges``, half a declared range in standard
        deviations, and ``shapes`` of columns, one or several of "normal", "skewed" and "near copies"; columns split: ``structure``,
        "independent", "common factor" or "field" (neighbours on a line);
        ``signal``, the deviation of a generalised linear model's linear predictor, and ``rate``, its mean response as a part of the largest;
        lasso: ``relevant``, how many columns the response goes with; pls: ``decay``, the deviation of the last coordinate as a part of the first's.

        Examples
        --------
        >>> from unpooled import PrivateLinearRegression
        >>> model = PrivateLinearRegression(epsilon=1.0, bounds=(-1, 1), y_bounds=(-1, 1))
        >>> few, many = (model.outlook(rows, 5, r2=0.6, correlation=0.2, ranges=3.0) for rows in (100, 20_000))
        >>> bool(few.error > 0.6 > 0.45 > many.error)
        True

        """
        study = self.plan(n_samples, n_features).study
        if epsilon is not None:
            study = msgspec.structs.replace(study, epsilon=check_epsilon(epsilon))
        row = self._row_of(study)
        expects = row.outlook
        if expects is None:
            msg = f"model {row.name!r} has no outlook"
            raise UsageError(msg)
        try:
            inspect.signature(expects).bind(study, **assumed)
        except TypeError as error:
            msg = f"outlook of model {row.name!r}: {error}"
            raise UsageError(msg) from None
        found: Outlook = expects(study, **assumed)
        return found

    @property
    def _unit(self) -> str:
        """Whom the promise is for."""
        return str(self._taken("unit")) if hasattr(self, "unit") else "record"

    def _row_of(self, study: Study) -> Model:  # noqa: ARG002 - for estimators that choose between models
        """Return the model that a study of this estimator asks for."""
        return self._row

    def _study(self, rows: Mapping[str, Any], declared: Declared) -> Study:
        """Return the study that the parameters ask, over these rows of each party (of :data:`ALL`, where columns are split)."""
        raise NotImplementedError

    def _validate_params(self) -> None:
        if self._unheld:
            msg = (
                f"this estimator stands for a study that has ended, and no parameter of {type(self).__name__} holds {listed(list(self._unheld))} of "
                "it, so a fit would be another study: ask the study again with its file, or make an estimator of your own"
            )
            raise UsageError(msg)
        check({name: one.kinds for name, one in self.arguments.items()}, self._given)
        self._check_form()

    @property
    def _warns(self) -> bool:
        """Return True if declarations that are read off the data cause a warning: where nothing is promised there is nothing to lose."""
        return not math.isinf(self.epsilon) and self._row.form.promises

    def _declared(
        self,
        names: Sequence[str],
        table: Table | None = None,
        y: NDArray[Any] | None = None,  # noqa: ARG002 - for estimators that declare the response
    ) -> Declared:
        """Return the declarations of these features, or read them off the table."""
        bounds = Bounds.given(self.bounds, table, warn=self._warns)
        bounds = bounds.without(self._called) if self._called not in names else bounds
        if self.bounds is None:  # bounds read off data admit missing values, and these data were checked to have none
            bounds = replace(bounds, missing="refuse")
        return Declared(self._coded(bounds, names), () if self.bounds is not None else (BOUNDS,))

    @property
    def _leaves_out(self) -> bool:
        """Return True if the model can leave rows out, so that responses may be missing."""
        return self._model.gaps

    @property
    def _gap_in_response(self) -> Missing:
        """Return what a missing response becomes: it is refused, or its row is left out where the bounds say so of it or of every column."""
        if self.bounds is None:
            return "refuse"
        bounds = Bounds.given(self.bounds, None)
        said = bounds.rule(self._called)
        if (own := bounds.of(self._called)) is not None:
            refuse_limit(own)
        if said not in {"refuse", COMPLETE} and not isinstance(bounds.missing, str):
            msg = f'{self._called!r} is the response: rows without it are left out (missing = "complete") or refused, and {said!r} is for other columns'
            raise UsageError(msg).at(column=self._called)
        return COMPLETE if said == COMPLETE else "refuse"

    def _of_response(self) -> Column | None:
        """Return what the bounds declare of the response, where a fit or a formula names it."""
        return Bounds.given(self.bounds, None).of(self._called) if self.bounds is not None and self._called else None

    def _range_of_response(self, given: Any) -> Any:  # noqa: ANN401 - a pair, or None
        """Return the range that is declared of the response: by itself, or among the bounds of all columns."""
        own = self._of_response()
        if own is None:
            return given
        if own.categories is not None:
            msg = f"{own.name!r} is the response, a number here, and bounds declare categories of it: declare a range (low, high), or fit PrivateGLM, whose response may have classes"
            raise UsageError(msg).at(column=own.name)
        if given is not None and tuple(map(float, given)) != own.range:
            msg = f"the response {own.name!r} is declared twice: {own.range} in bounds, {tuple(given)} in y_bounds. Leave one out"
            raise UsageError(msg).at(column=own.name)
        return own.range

    def _known(self, response: Column) -> Column:
        """Return the column of a response with the typical values that the bounds declare of it."""
        own = self._of_response()
        return response if own is None or own.typical is None else msgspec.structs.replace(response, typical=own.typical)

    def _classes_of_response(self, given: Sequence[object] | None) -> Sequence[object] | None:
        """Return the classes that are declared of the response: by themselves, or among the bounds of all columns."""
        own = self._of_response()
        if own is None:
            return given
        said: Sequence[object] = (
            own.categories if own.categories is not None else [int(end) if end.is_integer() else end for end in own.range]
        )
        if given is not None and {text_of(one) for one in given} != {text_of(one) for one in said}:
            msg = f"the response {own.name!r} is declared twice: {listed(list(map(text_of, said)))} in bounds, {listed(list(map(text_of, given)))} in classes. Leave one out"
            raise UsageError(msg).at(column=own.name)
        return given if given is not None else said

    def _coded(self, bounds: Bounds, names: Sequence[str]) -> tuple[Column, ...]:
        """Return the columns as the study codes them; what is declared of others does not matter where columns are taken by name."""
        if self._picks and set(names) < set(bounds.names):
            declared = {column.name: column for column in bounds.columns(bounds.names)}
            return tuple(declared[name] for name in names)
        return bounds.columns(names)

    def _says(self, fields: type, **own: Any) -> dict[str, Any]:  # noqa: ANN401 - of a study's parameters
        """Return what a study says in its parameters: those of the estimator that this struct has by their names, and the study's ``own``.

        A formula and earlier models are said apart, by what they depend on.
        """
        given = self._given | self._of_form
        return asked_of(fields, given, {*own, "formula", "prior"}) | own | self._formula_parameter

    def _asked(
        self,
        cards: tuple[Card, ...],
        parameters: dict[str, Any],
        derived: tuple[str, ...],
        trust: dict[str, str] | None = None,
        *,
        pure: bool = False,
    ) -> Study:
        """Return a study of these cards with the parameters that all estimators have; ``pure``: delta plays no part in it."""
        default = 0.0 if pure else default_delta(min(card.people for card in cards))
        own, delta = self._of_form, self._taken("delta")
        return Study(
            model=self._model.name,
            parties=cards,
            epsilon=self.epsilon,
            delta=default if delta is None else delta,
            unit=self._unit,
            adjacency=self.adjacency,
            calibration=self.calibration,
            parameters=parameters | {name: value for name, value in own.items() if name in parameters},
            trust={role: own.get(role, who) for role, who in (trust or {}).items()},
            public_seed=int(self.public_seed),
            simulation_seed=seed_of(self.random_state),
            origins=released_origins(self._given.values()),
            derived=derived,
        )

    # --- the fit ---------------------------------------------------------------------------------------------------------

    def _read(self, X: Any, y: Any, **rules: Any) -> tuple[Table, NDArray[Any]]:  # noqa: ANN401 - whatever a user passes
        """Parameters, features and responses, checked; the features as a table."""
        self._validate_params()
        if not self.__dict__.pop("_looked", False):
            self._called = name_of(y)
        may_miss = isinstance(self.bounds, Bounds) and self.bounds.may_miss
        rules |= {"accept_sparse": "csc" if self._takes_sparse else False, "ensure_min_samples": 2}
        held, gaps = self._without_gaps(y)
        X, held = checked(self, X, held, ensure_all_finite="allow-nan" if may_miss else True, **rules)
        return table_of(X, names_of(self, X.shape[1])), with_gaps(np.asarray(held), gaps)

    def _without_gaps(self, y: Any) -> tuple[Any, NDArray[np.bool_] | None]:  # noqa: ANN401 - whatever a user passes
        """Return responses with one that is there in every place where one is missing, and these places; refused where nobody declared what they become."""
        held, gaps = filled(y)
        if gaps is None:
            return y, None
        if self._gap_in_response == COMPLETE and self._leaves_out:
            return held, gaps
        raise DataError(lacking(self._called, may=self._leaves_out))

    def _run(self, study: Study, tables: Mapping[str, Table], keepers: Mapping[str, Keeper] | None = None) -> LocalRun:
        """Run a study over these parties; what it promised, debited and sent becomes attributes."""
        study, roots, tables = self._as_linked(study, tables)
        row = self._row_of(study)
        self.plan_, found = run(row, study, tables, keepers, self.budget, roots, whose=self)
        self.ledger_, self.communication_ = found.ledger, found.outcome.communication
        self._record = msgspec.msgpack.encode(found.outcome.result)
        return found

    @classmethod
    def _of_plan(cls, plan: Plan, columns: Sequence[Column], said: Iterable[str] = (), **own: Any) -> Self:  # noqa: ANN401 - its parameters
        """Return an estimator that asks what this study asked; what no parameter holds refuses its fit.

        ``own`` are the parameters that the model words itself, out of those of the study that ``said`` names.
        """
        names = cls._get_param_names()
        asked, lost = asked_by(plan, names, columns, cls._form(plan.study.calibration).form.renamed, said)
        estimator = cls(**(asked | own))
        declared = estimator.bounds
        if isinstance(declared, Bounds) and declared.columns([column.name for column in columns]) != tuple(columns):
            lost = (*lost, "the units of time of its columns")
        origins = released_origins(estimator._given.values())
        inputs = sorted({origin.input for origin in plan.study.origins if origin not in origins})
        estimator._unheld = (*lost, *(f"the origin of {INPUT_WORDS[name]}" for name in inputs))
        return estimator.of_study(plan, columns)

    def _held_to(self, plan: Plan) -> Self:
        """Keep the names of what protects in this study and is lost in the estimator: then its fit is refused."""
        given = self._given
        asked, lost = asked_by(plan, given, (), {}, given)
        protects = {*PROTECTING, *plan.study.trust} & set(given)
        unlike = (name for name in sorted(protects) if name in asked and asked[name] != given[name])
        self._unheld = tuple(dict.fromkeys((*self._unheld, *(name for name in lost if name in PROTECTING), *unlike)))
        return self

    def __sklearn_clone__(self) -> Self:
        """Return an estimator of the same parameters, which is refused a fit where this one is."""
        made: Self = super().__sklearn_clone__()
        if self._unheld:
            made._unheld = self._unheld
        return made

    def of_study(self, plan: Plan, columns: Sequence[Column]) -> Self:
        """Make it one of a study that ran elsewhere: new rows have these columns, by name."""
        self.plan_, self._columns = plan, tuple(columns)
        self.n_features_in_, self.feature_names_in_ = len(columns), np.array([c.name for c in columns], dtype=object)
        return self

    @property
    def declared_columns(self) -> tuple[Column, ...]:
        """Return the columns that the fit declared, by which new rows are coded."""
        return self._columns

    @property
    def origins(self) -> tuple[ReleasedInput, ...]:
        """Return the releases that this fit comes from, by which a later fit that rests on it knows them; empty before a fit.

        They are those of its own run, of the moments that it was made of, and of the domains of a transferred model: of whatever it holds.
        """
        held = vars(self)
        moments = held.get("moments_", ())
        parts = [*(moments if isinstance(moments, tuple) else (moments,)), held.get("focused_"), held.get("domains_")]
        own = held["plan_"].origins(COEFFICIENTS) if "plan_" in held else ()
        return origins_of(sourced((), own), *parts)

    # --- after the fit ---------------------------------------------------------------------------------------------------

    def _rows(self, X: Any) -> Any:  # noqa: ANN401 - an array of numbers or objects, or a sparse matrix
        """New rows, checked: values may be missing in them where the declarations of the fit allow it in any column."""
        check_is_fitted(self)
        if self._picks:
            X = picked(X, self.feature_names_in_.tolist())
        may_miss = any(column.may_be_absent for column in self._columns)
        sparse = "csr" if self._takes_sparse else False
        return checked(self, X, reset=False, accept_sparse=sparse, ensure_all_finite="allow-nan" if may_miss else True)

    def _new(self, X: Any) -> dict[str, NDArray[Any]]:  # noqa: ANN401
        """New rows as the columns of a party's table."""
        rows = self._rows(X)
        found = {column.name: as_column(column.name, rows[:, j]) for j, column in enumerate(self._columns)}
        for column in self._columns:  # a column whose values are all missing does not show of which kind they would be
            values = found[column.name]
            if column.categories is None and values.dtype == object and all(value is None for value in values):
                found[column.name] = np.full(values.size, np.nan)
        return found

    def _natural(self, X: Any, sites: Any = None) -> Any:  # noqa: ANN401
        """New rows in the columns of ``coef_``, in the data's own units: categories and indicators as 0 and 1.

        A missing value is the middle of its range, where it contributed nothing to the fit; where such rows were left out of it, all of the row is nan.
        ``sites``: labels, where sites have constants.
        """
        check_is_fitted(self)
        left_out = tuple(column for column in self._columns if column.missing in LEAVING_OUT)
        if left_out:
            new = self._new(X)
            whole = Coding(left_out, 1).code([new[column.name] for column in left_out])[1].all(axis=1)
            found = np.full((whole.size, np.shape(self.coef_)[-1]), np.nan)
            if whole.any():
                rows = {name: values[whole] for name, values in new.items()}
                found[whole] = self._coded_of(rows, sites if sites is None else np.asarray(sites)[whole])
            return found
        if at_sites(self._source, sites) or self._made is not None:
            return self._coded_of(self._new(X), sites)
        rows = self._rows(X)
        if not isinstance(rows, np.ndarray):  # sparse: ranges are symmetric about zero, and there are no categories
            if np.isnan(rows.data).any():
                rows = rows.copy()
                rows.data[np.isnan(rows.data)] = 0.0
            return rows
        if rows.dtype != object and not any(column.categories or column.may_be_absent for column in self._columns):
            return rows
        return self._coded_of(self._new(X), None)

    def _coded_of(self, new: Mapping[str, NDArray[Any]], sites: Any) -> NDArray[np.float64]:  # noqa: ANN401 - labels
        """Return new rows, as the columns of a party's table, in the columns of ``coef_``."""
        if at_sites(self._source, sites):
            return natural_at(self._source, new, sites)
        made = self._made
        if made is None:
            return Coding(self._columns, 1).natural(list(new.values()))
        count = next(iter(new.values())).size
        # A table has at least two rows.
        own = made.seen(Table({name: np.resize(values, max(2, count)) for name, values in new.items()}))
        features = coded_by(self._source)
        blocks = own.blocks(tuple(column.name for column in features))
        return np.concatenate([Coding(features, 1).natural(block) for block in blocks])[:count]

    def _linear(self, X: Any) -> Vector:  # noqa: ANN401
        """``X @ coef_ + intercept_``."""
        check_is_fitted(self)
        result: Vector = self._natural(X) @ np.ravel(self.coef_) + np.ravel(self.intercept_)[0]
        return result

    def summary(self) -> Any:  # noqa: ANN401 - a result; models with standard errors have a table with arguments of its own
        """Return the result of the fit as its model reads it: print it, or take it as a frame, JSON, Markdown or a figure."""
        check_is_fitted(self)
        if not self._record:
            raise UsageError(
                "this estimator holds no result of a study: it was made of moments, or saved by an earlier version"
            )
        return ModelResult.of_record(self._record, self.plan_)

    def to_sklearn(self) -> Any:  # noqa: ANN401 - scikit-learn ships no types
        """Return scikit-learn's ``LinearRegression`` or ``LogisticRegression`` with these coefficients, predicting the same.

        Where probabilities are means over several lengths of the slopes, it is a ``VotingClassifier`` of one logistic regression for each.
        """
        check_is_fitted(self)
        if not self._is_linear:
            raise UsageError(
                "this model is not linear in its columns: scikit-learn has no linear model that predicts the same"
            )
        if self._made is not None or at_sites(self._source):
            raise UsageError(
                "to_sklearn is for declared columns as they are, and this model has a formula or constants of sites: fit scikit-learn's to the columns that it makes"
            )
        found = linear_model(self, self._columns or (self.plan_.study.parties[0].columns if hasattr(self, "plan_") else ()))
        found = mean_of_lines(found, self._lines) if self._lines else found
        found.origins = self.origins  # a later fit that is drawn to it counts what it rests on
        return found

    @property
    def _is_linear(self) -> bool:
        """Return True if predictions follow from ``coef_`` and ``intercept_`` alone."""
        return hasattr(self, "coef_")

    def _saved_fields(self) -> dict[str, Any]:
        check_is_fitted(self)
        # A budget is a ledger elsewhere: a file of it would be a second budget for the same people.
        parameters = self.get_params(deep=False) | {"budget": None}
        fitted = {name: value for name, value in vars(self).items() if name not in parameters and name not in self._unsaved}
        return {"parameters": parameters, "fitted": fitted}

    @classmethod
    def _of_saved(cls, body: bytes) -> Self:
        match unpack(body, cls._saved_types, cls._compiles):
            case {"parameters": dict(parameters), "fitted": dict(fitted)}:
                pass
            case _:
                raise DataError("the content of this file is not what its class holds")
        names = cls._get_param_names()
        if not set(parameters) <= set(names) or not all(isinstance(name, str) and name not in names for name in fitted):
            raise DataError("its parameters are not those of this version of unpooled: use the version that saved it")
        estimator = cls(**parameters)
        estimator._validate_params()
        estimator.__dict__.update(fitted)
        return estimator

    @classmethod
    def _compiles(cls, study: Study) -> Plan:
        return cls._form(study.calibration).compile(study)

    @property
    def statement_(self) -> Statement:
        """Return the privacy statement of the fit: its promise, and the limits of it."""
        check_is_fitted(self)
        if not hasattr(self, "plan_"):
            raise AttributeError("released elsewhere: moments_.statement (or domains_) holds its statement in words")
        return self.plan_.statement

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._takes_sparse
        tags.input_tags.allow_nan = isinstance(self.bounds, Bounds) and self.bounds.may_miss
        return tags


def cards_of(groups: Mapping[str, Sequence[str]], declared: Declared, rows: int, *, labels: bool = True) -> tuple[Card, ...]:
    """Return the cards of parties that each hold some of the columns (and the response)."""
    columns = {column.name: column for column in declared.columns}
    own = (RESPONSE,) if labels else ()
    return tuple(Card(party, rows, tuple(columns[name] for name in held), own) for party, held in groups.items())


def tables_of(study: Study, table: Table, response: NDArray[Any] | None) -> dict[str, Table]:
    """Return the tables that the parties of a study hold where columns are split."""
    return {card.name: part(table, [column.name for column in card.columns], response) for card in study.parties}


# --- Classifier ------------------------------------------------------------------------------------------------------------
# ``DeclaredClassifier``: declared classes in, decisions, probabilities and labels out.


class DeclaredClassifier(ClassifierMixin, StudyEstimator):
    """An estimator of declared classes. Its own part is a decision value, where positive means ``classes_[1]``, or one for every class."""

    classes: Sequence[object] | None
    #: Whether it knows more than two classes.
    _several: ClassVar[bool] = False

    def _declared(self, names: Sequence[str], table: Table | None = None, y: NDArray[Any] | None = None) -> Declared:
        if y is not None:
            y = y[~gaps_of(y)]
            check_classification_targets(y)
        declared = super()._declared(names, table)
        classes = Classes.given(self._classes_of_response(self.classes), y, warn=self._warns, several=self._several)
        return replace(declared, classes=classes, derived=(*declared.derived, *((CLASSES,) if classes.derived else ())))

    def _labelled(self, X: ArrayLike, y: ArrayLike) -> tuple[Table, Declared, NDArray[Any]]:
        """Return features, declarations, and the labels as a party's table holds them."""
        table, labels = self._read(X, y)
        declared = self._declared(table.names, table, labels)
        assert declared.classes is not None
        self.classes_ = declared.classes.labels
        return table, declared, declared.classes.column(labels)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """``X @ coef_.T + intercept_``: positive means ``classes_[1]``, of more than two classes the largest is the likeliest."""
        if not hasattr(self, "coef_") or len(self.coef_) < 2:  # noqa: PLR2004 - rows of several classes
            return self._linear(X)
        return np.asarray(self._natural(X) @ self.coef_.T + self.intercept_)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return probabilities of the classes."""
        decisions = self.decision_function(X)
        if decisions.ndim > 1:
            return np.asarray(softmax(decisions, axis=1))
        positive = expit(decisions)
        return np.column_stack([1 - positive, positive])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the likeliest class of every row."""
        decisions = self.decision_function(X)
        chosen = (decisions > 0).astype(int) if decisions.ndim == 1 else decisions.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._several
        return tags


# --- Regression ------------------------------------------------------------------------------------------------------------
# ``LinearRegressor``: a response with a declared range in, ``X @ coef_ + intercept_`` out.


class LinearRegressor(RegressorMixin, StudyEstimator):
    """An estimator of a numeric response whose range is declared in addition to those of the features."""

    y_bounds: Any

    def _declared(self, names: Sequence[str], table: Table | None = None, y: NDArray[Any] | None = None) -> Declared:
        ranges = self._ranges
        if ranges[0] is None and y is None:
            raise UsageError("a plan needs y_bounds: pass y_bounds=(low, high)")
        declared = super()._declared(names, table)
        derived = () if self.bounds is not None and ranges[0] is not None else (BOUNDS,)
        return replace(declared, response=self._response(RESPONSE, ranges[0], y), derived=derived)

    @property
    def _ranges(self) -> list[Any]:
        """Return the declared range of every response."""
        return [self._range_of_response(self.y_bounds)]

    def _response(self, name: str, given: Any, y: NDArray[Any] | None) -> Column:  # noqa: ANN401 - a pair, or None
        """Return a response with the range that is given of it, or read off the data."""
        bounds = Bounds.given(given, None if y is None else Table({name: y}), warn=self._warns and self.bounds is not None)
        (response,) = replace(bounds, missing=self._gap_in_response).columns([name])
        return self._known(response)

    def _numeric(self, X: Any, y: ArrayLike) -> tuple[Table, Declared, Vector]:  # noqa: ANN401 - an array, a frame or a sparse matrix
        """Return features, declarations and responses."""
        table, response = self._read(X, y, y_numeric=True)
        response = response.astype(np.float64)
        return table, self._declared(table.names, table, response), response

    def predict(self, X: Any) -> Vector:  # noqa: ANN401
        """``X @ coef_ + intercept_``."""
        return self._linear(X)
