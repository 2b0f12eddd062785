"""Logistic regression of rows that may lie at several sites: rounds over their totals, or objective perturbation at one of them.

Which, is decided before data. Rounds are the study model ``glm``; this file only chooses, and reads its result.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError
from unpooled.estimation.base import ALL, Declared, cards_of, tables_of
from unpooled.estimation.fitted import Tabled
from unpooled.estimation.tables import RESPONSE, part
from unpooled.formula import Formula
from unpooled.inference.estimates import Estimates
from unpooled.inference.tables import Tables
from unpooled.kernels.score_posterior import mean_log_odds
from unpooled.models import load
from unpooled.models.stacking.outcomes import MULTINOMIAL
from unpooled.models.stacking.parameters import AUTO, SHORTEN, Meta
from unpooled.models.stacking.shared import StackEstimator
from unpooled.privacy.bounds import Bounds, Column
from unpooled.privacy.origin import PRIOR, SOURCE
from unpooled.privacy.plan import AGGREGATION, Card, Plan, Study

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.privacy.table import Table
    from unpooled.protocol.registry import Model

    Vector = NDArray[np.float64]

PERTURBATION, ROUNDS, MOMENTS = "perturbation", "rounds", "moments"
_METHODS = (AUTO, PERTURBATION, ROUNDS, MOMENTS)
#: The study model of the rounds, and what it calls a fit from which no slopes can be learnt.
_POOLED, _BASE_RATE = "glm", "mean"


class PooledLogistic(Tabled, StackEstimator):
    """The parameters of ``PrivateLogisticRegression`` at work: the choice, and the fit by either way."""

    method: str
    aggregation: str
    tolerate: int
    nodes: Sequence[str]
    _saved_types = (*StackEstimator._saved_types, Estimates)  # noqa: SLF001 - its base's

    def plan(self, n_samples: int, n_features: int, sites: Mapping[str, int] | None = None) -> Plan:
        """Return the plan of a fit to data of this shape, without data; ``sites`` gives the rows of each of several."""
        return self._planned(sites or {ALL: n_samples}, n_features)

    # --- which way -------------------------------------------------------------------------------------------------------

    @property
    def _of_perturbation(self) -> list[str]:
        """Return the parameters in use that mean something for objective perturbation alone."""
        used = {
            "penalty": self.penalty != AUTO,
            "noise": self.noise != AUTO,
            "prior": self.prior is not None,
            "source": self.source is not None,
            "calibration": self._row is not self._model,
            "multi_class": self.multi_class != MULTINOMIAL,
        }
        return [name for name, used_here in used.items() if used_here]

    @property
    def _of_lengths(self) -> list[str]:
        """Return the parameters in use that say how long rows are, which rounds over standardised columns have no use for."""
        norm = isinstance(self.bounds, Bounds) and self.bounds.norm is not None
        return [*(["rows"] if self.rows != SHORTEN else []), *(["norm"] if norm else [])]

    def _study(self, rows: Mapping[str, int], declared: Declared) -> Study:
        if self.method not in _METHODS:
            msg = f"method is one of {', '.join(_METHODS)}, not {self.method!r}"
            raise UsageError(msg)
        own, several = self._of_perturbation, len(rows) > 1
        if several and (self.method == PERTURBATION or own):
            msg = (
                f"{', '.join(own) or 'perturbation'}: for the rows of one party alone. Rows of several sites are pooled by "
                "other methods, or use PrivateStackingClassifier(split='samples')"
            )
            raise UsageError(msg)
        if text := self._formula_parameter.get("formula"):
            self._check_formula(text, several=several)
        free = math.isinf(self.epsilon)
        pure = not self.delta and not free
        if self.method == PERTURBATION or (self.method == AUTO and not several and (own or pure or free)):
            return self._perturbed(sum(rows.values()), declared)
        assert declared.classes is not None
        # Moments tell the direction of one linear predictor, and of declared columns.
        no_moments = declared.classes.labels.size > 2 or self._formula_parameter  # noqa: PLR2004
        if self.method == AUTO and not several and no_moments and self._of_lengths:
            return self._perturbed(sum(rows.values()), declared)
        method = (MOMENTS if self._of_lengths else ROUNDS) if self.method == AUTO else self.method
        wrong = own + (self._of_lengths if method == ROUNDS else [])
        if wrong:
            msg = f"{', '.join(wrong)}: not for method {method!r}"
            raise UsageError(msg)
        if pure:
            msg = f"{method} need a delta: pass delta=1e-5, or a smaller one; a pure promise is kept at one party alone"
            raise UsageError(msg)
        study = self._pooled(rows, declared, method)
        if self.method == AUTO and not several and load(_POOLED).compile(study).design.schedule.method == _BASE_RATE:
            return self._perturbed(sum(rows.values()), declared)
        return study

    def _check_formula(self, text: str, *, several: bool) -> None:
        """Refuse a formula that neither way can fit."""
        if Formula.parse(text).offsets:
            raise UsageError(
                "PrivateLogisticRegression has no offset: leave it out of the formula, or use PrivateGLM('logistic'), which has one"
            )
        if self.method == MOMENTS or (several and self.method == AUTO and self._of_lengths):
            raise UsageError(
                "moments bound rows of the declared columns: a formula goes with method 'rounds' or 'perturbation'"
            )

    def _perturbed(self, rows: int, declared: Declared) -> Study:
        """Return one perturbed fit to the rows of one party."""
        weights = self._drawn_to(self.prior)
        cards = cards_of({ALL: declared.names}, declared, rows)
        # A study without weights says so by the former name, by which its hash is known.
        parameters: dict[str, Any] = {"split": "samples"} | ({PRIOR: weights} if weights else {SOURCE: {}})
        return self._fits(cards, declared, parameters | self._formula_parameter, Meta.PUBLIC)

    def _pooled(self, rows: Mapping[str, int], declared: Declared, method: str) -> Study:
        """Rounds over the totals of all sites, or moments first."""
        assert declared.classes is not None
        columns = (*declared.columns, Column(RESPONSE, categories=declared.classes.texts))
        several = declared.classes.labels.size > 2  # noqa: PLR2004 - two classes have one linear predictor
        parameters: dict[str, Any] = {
            "response": RESPONSE,
            "family": "multinomial" if several else "logistic",
            "fit_intercept": bool(self.fit_intercept),
            "tolerate": int(self.tolerate),
            "nodes": [str(node) for node in self.nodes],
            **self._formula_parameter,
        }
        if method == MOMENTS:
            norm = self.bounds.norm if isinstance(self.bounds, Bounds) else None
            parameters |= {"method": MOMENTS, "rows": self.rows, "norm": None if norm is None else float(norm)}
        cards = tuple(Card(name, count, columns) for name, count in rows.items())
        study = self._asked(cards, parameters, declared.derived, {AGGREGATION: self.aggregation})
        return msgspec.structs.replace(study, model=_POOLED)

    def _row_of(self, study: Study) -> Model:
        return load(_POOLED) if study.model == _POOLED else super()._row_of(study)

    @classmethod
    def _compiles(cls, study: Study) -> Plan:
        return load(_POOLED).compile(study) if study.model == _POOLED else super()._compiles(study)

    # --- the fit ---------------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | str | None = None,
        sites: Sequence[object] | None = None,
        *,
        formula: str | None = None,
    ) -> Self:
        """Release what the method needs of all rows (``sites``: a label per row; None is one site), and fit.

        ``fit(frame, "y")`` takes the response out of a frame, ``fit(frame, formula="ill ~ age * ward")`` whatever the formula names; a frame may
        hold other columns in addition to those that are declared.
        """
        asked = self._framed(X, y, formula)
        if asked.event is not None:
            raise UsageError("Surv(time, event) goes with PrivateGLM('survival'): a response of classes is one column")
        table, declared, labels = self._labelled(asked.X, asked.y)
        held: dict[str, Table] = part(table, table.names, labels).by_site(sites) if sites is not None else {}
        tables = held if len(held) > 1 else {ALL: table}
        study = self._study({name: own.n_rows for name, own in tables.items()}, declared)
        if study.model == _POOLED:
            return self._from_rounds(study, tables if len(held) > 1 else {ALL: part(table, table.names, labels)}, declared)
        self._newton, self.method_, self._lines = None, PERTURBATION, ()
        models = self._released(study, tables_of(study, table, labels), declared).models
        self.coef_, self.intercept_ = np.array([m.coefficients for m in models]), np.array([m.intercept for m in models])
        return self

    def _from_rounds(self, study: Study, tables: Mapping[str, Table], declared: Declared) -> Self:
        result = self._run(study, tables).outcome.result
        self.__dict__.pop("released_", None)
        self._columns, self._newton, self.method_ = declared.columns, result.newton, self._said(study)
        self._lines = result.lines
        # Of several classes they stand class after class.
        self.coef_ = np.array([c.value for c in result.coefficients]).reshape(max(len(result.classes), 1), -1)
        self.intercept_ = np.array(result.intercepts or [result.intercept])
        return self

    @staticmethod
    def _said(study: Study) -> str:
        return MOMENTS if study.parameters.get("method") == MOMENTS else ROUNDS

    # --- after the fit ---------------------------------------------------------------------------------------------------

    @property
    def _is_linear(self) -> bool:
        if getattr(self, "method_", PERTURBATION) == PERTURBATION:
            return super()._is_linear
        return self.method_ == ROUNDS or not self.plan_.design.directions.unit

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """``X @ coef_.T + intercept_``, of rows scaled to one length where they were; positive means ``classes_[1]``.

        Where rounds estimated the direction of the slopes alone, the log odds of the mean probability over their possible lengths.
        """
        check_is_fitted(self)
        if self._lines:
            return mean_log_odds(super().decision_function(X), self._lines)
        if self._is_linear:
            return super().decision_function(X)
        if self.method_ == MOMENTS:
            directions, new = self.plan_.design.directions, self._new(X)
            rows = directions.lengthened([new[name] for name in directions.layout.coding.names])
            return np.asarray(rows @ self.coef_[0] + self.intercept_[0])
        found = (
            self._scaled(self._blocks[0], self._new(X))
            @ np.array(self.released_[ALL]).reshape(self._outcomes.predictors, -1).T
        )
        return np.asarray(found if self._outcomes.several else found[:, 0])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return probabilities of the classes."""
        check_is_fitted(self)
        if self.method_ != PERTURBATION or not self._outcomes.several:
            return super().predict_proba(X)
        return self._outcomes.probabilities(self.decision_function(X))

    def _tables(self) -> Tables:
        check_is_fitted(self)
        if self._newton is None:
            msg = (
                f"this fit ({self.method_}) has no standard errors: rounds have them where there are rows and epsilon enough"
            )
            raise UsageError(msg)
        layout, several = self.plan_.design.layout, len(self.classes_) > 2  # noqa: PLR2004
        return Tables(
            self._newton,
            layout.terms.with_constants(layout.constants),
            sum(card.rows for card in self.plan_.study.parties),
            "multinomial" if several else "logistic",
            RESPONSE,
            str(self.plan_.statement),
            classes=self.plan_.design.responses.response.categories if several else (),
        )
