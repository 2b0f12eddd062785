"""``PrideEstimator``: what the estimators over the PRIDE study share, which is all but the response; and predictions of families."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import msgspec
import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError
from unpooled.estimation.base import ALL, Declared, StudyEstimator, cards_of, tables_of
from unpooled.estimation.parameters import (
    MAPPING,
    WORD,
    plain,
)
from unpooled.estimation.priors import Earlier, log_odds, of_counts, ridge
from unpooled.estimation.running import run
from unpooled.estimation.tables import RESPONSE
from unpooled.families.gaussian import Gaussian
from unpooled.inference.priors import DrawnTo, named
from unpooled.kernels.survival import concordance
from unpooled.models.pride import MODEL
from unpooled.models.pride.declared import AUTO, CLASSES, DRAWN, JointFamily, Parameters, check_sizes, probabilities, undrawn
from unpooled.models.pride.fit import in_own_units
from unpooled.models.pride.plan import DUALITY_GAP, sizes_of, widths_of
from unpooled.privacy.bounds import Coding
from unpooled.privacy.classes import DEFAULT
from unpooled.privacy.declared import says
from unpooled.privacy.origin import PRIOR
from unpooled.privacy.table import Table
from unpooled.protocol.identity import MemoryKeeper
from unpooled.protocol.local import column_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray
    from sklearn.utils import Tags

    from unpooled.families import Family
    from unpooled.privacy.plan import Study

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]


# --- The estimators in common ----------------------------------------------------------------------------------------------
# ``PrideEstimator``: what the estimators over the PRIDE study share, which is all but the response: study, run, predictions at a party.


def own_loss(task: str, loss: str | None, threshold: float | None, declared: Declared) -> dict[str, Any]:
    """Return the parameters of a study that describe the response of one of the two rows."""
    if loss and loss not in (losses := ("squared", "huber") if task == "regression" else ("logistic",)):
        msg = f"loss must be one of {', '.join(losses)} where task = {task}: PrideGLM(family=...) fits the other families"
        raise UsageError(msg)
    return {
        "task": task,
        "loss": loss or "",
        "threshold": None if threshold is None else float(threshold),
        "classes": list(DEFAULT if declared.classes is None else declared.classes.texts),
    }


class OfPride:
    """What a call says otherwise than a study: matrices by party, who estimates, and a range that is needed to publish alone."""

    y_bounds: Annotated[
        tuple[float, float] | None,
        says(
            "Declared range of y. Needed only to publish the coefficients of a regression; otherwise the response stays with the parties."
        ),
    ] = None
    sketch: Annotated[
        Any,
        says(
            "The public random matrix that a party's columns are multiplied by before they get noise.",
            choices=("srht", "gaussian", "dct"),
            kinds=(WORD, MAPPING),
            call='{"srht", "gaussian", "dct"} or mapping from party names to public matrices, default "srht"',
            written="str | Mapping[str, ArrayLike]",
        ),
    ] = "srht"
    estimating: Annotated[
        Sequence[str] | None,
        says(
            "The parties that have the response (the paper's scenario B): the others only send. None: all of them. The ``coef_`` of parties that only "
            "send are nan; ``predict`` then refuses, and ``predict_at`` works at an estimating party."
        ),
    ] = None


class PrideEstimator(Earlier, StudyEstimator):
    """Base of the estimators: columns to parties, study, run, coefficients back in the data's own units."""

    _model = MODEL
    #: What the parties keep and no prediction needs: no pickle and no file carries it away from them.
    _unsaved = StudyEstimator._unsaved | {"drawn_", "reliability_", "_kept_by_senders"}  # noqa: SLF001 - its base
    #: Whether it fits regressions, of which global cross-validation is.
    _crosses: ClassVar[bool] = False
    #: The label columns of an estimating party.
    _label_names: tuple[str, ...] = (RESPONSE,)

    def _of_family(self, declared: Declared) -> dict[str, Any]:
        """Return the parameters of a study that describe the response."""
        raise NotImplementedError

    def _labels(self, response: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the label columns of an estimating party."""
        return {RESPONSE: response}

    @property
    def _of_form(self) -> dict[str, Any]:
        """As its task has it: global cross-validation is of regressions."""
        own = super()._of_form
        if own.get("alpha") == "global-cv" and not (self._crosses and self.loss in {None, "squared"}):
            own["alpha"] = "local-cv"
        return own

    # --- plan ------------------------------------------------------------------------------------------------------------

    def _study(self, rows: Mapping[str, int], declared: Declared) -> Study:
        return self._about(rows[ALL], declared)

    def _about(self, rows: int, declared: Declared, fitted: str | None = None, predicting: tuple[str, ...] = ()) -> Study:
        """Return the study of a fit, or of what some parties predict of new rows by a plan that was fitted."""
        cards = cards_of(self._groups(declared.names), declared, rows, labels=not fitted)
        if not fitted:
            cards = tuple(msgspec.structs.replace(card, labels=self._label_names) for card in cards)
        if self.estimating is not None and not fitted:
            names = [card.name for card in cards]
            if not self.estimating or not set(self.estimating) <= set(names):
                msg = f"estimating names at least one party that has the response, out of {', '.join(names)}"
                raise UsageError(msg)
            cards = tuple(c if c.name in self.estimating else msgspec.structs.replace(c, labels=()) for c in cards)
        if isinstance(self.sketch, str):
            check_sizes(plain(self.sketch_dim), widths_of(cards))
        matrices = (
            {} if isinstance(self.sketch, str) else {k: np.asarray(v, dtype=float).tolist() for k, v in self.sketch.items()}
        )
        alpha, size = self._taken("alpha"), self._taken("sketch_dim")
        own = {
            "response": RESPONSE,
            **self._of_family(declared),
            "sketch": self.sketch if isinstance(self.sketch, str) else "matrix",
            "sketch_dim": sizes_of(self.plan_.design) if fitted and size == AUTO else plain(size),
            "matrices": matrices,
            "public": [column_named(declared.names, column) for column in self.public],
            # New rows are predicted with what is kept: their plan chooses no penalty, and has nothing to trust.
            "alpha": "marginal-likelihood" if fitted and alpha == "global-cv" else plain(alpha),
            "response_bound": None if self.y_bounds is None else float(np.abs(self.y_bounds).max()),
            "fitted": fitted,
            "predicting": list(predicting),
        }
        parameters = self._says(Parameters, **own)
        parameters |= {} if fitted else self._prior_parameter(declared.columns)
        trust = {"cross-validation": "trusted"} if alpha == "global-cv" and not fitted else {}
        asked = self._asked(cards, parameters, declared.derived, trust)
        if not fitted:
            return asked
        # New rows are predicted with what is kept: what that was drawn to is no input of their study, and they need no penalty.
        origins = tuple(origin for origin in asked.origins if origin.input != PRIOR)
        return msgspec.structs.replace(asked, origins=origins, parameters={**asked.parameters, "alpha": parameters["alpha"]})

    # --- fit ---------------------------------------------------------------------------------------------------------------

    def _fit(self, table: Table, declared: Declared, response: NDArray[Any]) -> Self:
        study = self._study({ALL: table.n_rows}, declared)
        labels = self._labels(response)
        tables = {}
        for name, own in tables_of(study, table, None).items():
            told = labels if study.card(name).labels else {}
            tables[name] = Table({column: own[column] for column in own.names} | told) if told else own
        done = self._run(study, tables)
        estimated = {card.name for card in study.parties if card.labels}
        kept = {
            name: {key: values for (_, key), values in keeper.items()}
            for name, keeper in done.kept.items()
            if isinstance(keeper, MemoryKeeper)
        }
        self.kept_ = {name: values for name, values in kept.items() if name in estimated}
        self._kept_by_senders = {name: values for name, values in kept.items() if name not in estimated}
        self.alpha_ = {name: float(kept["alpha"][0]) for name, kept in self.kept_.items()}
        gaps = {name: kept.get(DUALITY_GAP) for name, kept in self.kept_.items()}
        self.duality_gap_ = {name: float(gap[0]) for name, gap in gaps.items() if gap is not None}
        found = {name: kept.get("reliability") for name, kept in self.kept_.items()}
        self.reliability_ = {name: values for name, values in found.items() if values is not None}
        models = self.plan_.design.parameters.prior
        if models:
            weights = {name: kept["drawn"].T for name, kept in self.kept_.items()}
            self.drawn_ = {name: DrawnTo(named(models, *each), ()) for name, each in weights.items()}
        self._columns, self._promised = declared.columns, declared
        coded = Coding(declared.columns, 1).real([table[column.name] for column in declared.columns])
        self.coef_, self.intercept_ = in_own_units(
            self.plan_.design, self.kept_, declared.columns, coded.mean(axis=0), fit_intercept=self.fit_intercept
        )
        # A row for every class where there are several, as coef_ has at last.
        shape = np.shape(self.coef_)[1:]
        self.published_ = {
            name: np.reshape(values, (-1, *shape)).T for name, values in done.outcome.result.published.items()
        }
        return self

    def _know_all(self) -> None:
        """Refuse predictions of all columns where some coefficients are known to nobody."""
        check_is_fitted(self)
        if np.isnan(self.coef_).any():
            msg = (
                "parties that only send have no coefficients, and their columns carry a part of every prediction: use predict_at at an "
                "estimating party, or leave estimating=None so that every party estimates"
            )
            raise UsageError(msg)

    def _linear(self, X: ArrayLike) -> Vector:
        self._know_all()
        return super()._linear(X)

    def _decision_at(self, party: str, X: ArrayLike) -> Vector:
        """Return decision values of new rows at one party: the others release perturbed sketches of them (a ledger entry each)."""
        check_is_fitted(self)
        if not hasattr(self, "kept_"):
            raise UsageError(
                "this estimator was pickled or copied, and what its parties keep stays out of that: fit it here to predict at one "
                "party, or use predict, which needs all columns of the new rows"
            )
        if party not in self.kept_:
            msg = f"there is no party {party!r} that has estimated; there are {', '.join(self.kept_)}"
            raise UsageError(msg)
        new = Table(self._new(X))
        study = self._about(new.n_rows, self._promised, self.plan_.hash, (party,))
        keepers = {
            name: MemoryKeeper({(self.plan_.hash, key): v for key, v in kept.items()})
            for name, kept in (self.kept_ | self._kept_by_senders).items()
        }
        self.prediction_plan_, found = run(self._row_of(study), study, tables_of(study, new, None), keepers, self.budget)
        self.prediction_ledger_ = found.ledger
        predictions: Vector = found.kept[party].kept(self.prediction_plan_.hash, "predictions")
        return predictions

    def __getstate__(self) -> dict[str, Any]:
        """Without what stays at the parties."""
        return {name: value for name, value in super().__getstate__().items() if name not in self._unsaved}


# --- Predictions -----------------------------------------------------------------------------------------------------------
# Predictions of families from decisions of new rows: expected responses, probabilities, survival, and measures of their fit.


def _has_classes(estimator: FamilyEstimator) -> bool:
    return estimator.family in CLASSES


def _is_survival(estimator: FamilyEstimator) -> bool:
    return estimator.family == "cox"


class FamilyEstimator(PrideEstimator):
    """Predictions and scores of any family, from ``coef_`` and ``intercept_`` or at one party."""

    family: str
    classes_: NDArray[Any]
    baseline_times_: Vector
    baseline_hazard_: Vector

    def _publicly(self) -> Any:  # noqa: ANN401 - scikit-learn's own
        if self.family not in DRAWN:
            raise UsageError(undrawn(self.family))
        return {"squared": ridge, "logistic": log_odds}.get(self.family, of_counts)()

    @property
    def _law(self) -> Family | JointFamily:
        law: Family | JointFamily = self.plan_.design.parameters.law
        return law

    def linear_predictor(self, X: ArrayLike) -> NDArray[np.float64]:
        """``X @ coef_.T + intercept_``; several numbers a row where the family has several."""
        self._know_all()
        rows = self._natural(X)
        decisions = rows @ self.coef_.T
        if np.size(self.intercept_) > 1 and decisions.ndim == 1:
            decisions = decisions[:, None]
        return np.asarray(decisions + self.intercept_)

    def _told(self, decisions: NDArray[np.float64]) -> NDArray[Any]:
        """Return the response that decisions lead to expect."""
        law = self._law
        if self.family in CLASSES:
            return np.asarray(self.classes_[np.argmax(probabilities(self.family, decisions), axis=1)])
        return decisions if isinstance(law, JointFamily) else law.mean(decisions)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the expected response, the quantile, the most likely class; "cox": the log hazard ratio to the columns' means."""
        return self._told(self.linear_predictor(X))

    def predict_at(self, party: str, X: ArrayLike) -> NDArray[Any]:
        """Return the same of new rows at one party, from its own columns and newly released sketches of the others'."""
        return self._told(self._decision_at(party, X))

    @available_if(_has_classes)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> Matrix:
        """Return probabilities of the classes."""
        return probabilities(self.family, self.linear_predictor(X))

    @available_if(_has_classes)  # type: ignore[untyped-decorator]
    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return for two classes the log odds of ``classes_[1]``; for more a number for each class, the largest of the likeliest."""
        decisions = self.linear_predictor(X)
        if self.classes_.size == 2:  # noqa: PLR2004
            return decisions if decisions.ndim == 1 else np.asarray(decisions[:, 1] - decisions[:, 0])
        if self.family == "multinomial":
            return decisions
        return np.asarray(np.log(np.maximum(probabilities(self.family, decisions), np.finfo(np.float64).tiny)))

    @available_if(_is_survival)  # type: ignore[untyped-decorator]
    def predict_survival(self, X: ArrayLike, times: ArrayLike) -> Matrix:
        """Return the probability of no event up to each of these times ("cox"), by Breslow's baseline: rows by times."""
        decisions, at = self.linear_predictor(X), np.atleast_1d(np.asarray(times, dtype=np.float64))
        passed = np.concatenate([[0.0], self.baseline_hazard_])[np.searchsorted(self.baseline_times_, at, side="right")]
        return np.asarray(np.exp(-np.exp(decisions)[:, None] * passed))

    @property
    def hazard_ratios_(self) -> Vector:
        """exp(``coef_``): by how much one more unit of each column multiplies the hazard ("cox")."""
        if not _is_survival(self):
            raise AttributeError("hazard ratios are of family 'cox'")
        return np.asarray(np.exp(self.coef_))

    def score(self, X: ArrayLike, y: ArrayLike, event: ArrayLike | None = None) -> float:
        """Return the share of right classes, the concordance ("cox"), or the part of the deviance that the fit explains (R^2 of a squared loss)."""
        decisions, told = self.linear_predictor(X), np.asarray(y)
        law = self._law
        if self.family in CLASSES:
            return float(np.mean(self._told(decisions) == told))
        if isinstance(law, JointFamily):
            return concordance(told, np.ones(told.size) if event is None else np.asarray(event), decisions)
        if event is not None:
            raise UsageError("event belongs to family 'cox'")
        told = told.astype(np.float64)
        best = np.full(told.size, law.start(told))
        if isinstance(law, Gaussian):
            best[:] = told.mean()
        return 1 - float(law.excess(decisions, told).sum() / law.excess(best, told).sum())

    def to_sklearn(self) -> Any:  # noqa: ANN401 - scikit-learn ships no types
        """Return scikit-learn's linear model with these coefficients, where it has one: the families "squared" and "logistic"."""
        if self.family not in ("squared", "logistic"):
            raise UsageError("to_sklearn is for the families squared and logistic: use coef_ and intercept_")
        return super().to_sklearn()

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import ClassifierTags, RegressorTags

        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if self.family in CLASSES:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=self.family != "logistic")
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags(poor_score=True)
            tags.target_tags.positive_only = self.family in ("poisson", "gamma", "negative-binomial", "cox")
        return tags
