"""``PrideGLM``, and its rows ``PrideRegressor`` and ``PrideClassifier``: thin scikit-learn estimators over the PRIDE study, run in process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from unpooled.errors import DataError, UsageError
from unpooled.estimation.base import DeclaredClassifier
from unpooled.estimation.calls import ALIGNED, OfClasses, OfEveryFit, OverColumns, takes
from unpooled.estimation.priors import DrawnFit, log_odds
from unpooled.estimation.tables import RESPONSE
from unpooled.families.names import refused_family
from unpooled.models.pride.base import FamilyEstimator, OfPride, PrideEstimator, own_loss
from unpooled.models.pride.declared import CLASSES, NUMBERS, Levels, Parameters
from unpooled.models.pride.rows import baseline
from unpooled.privacy.bounds import Coding
from unpooled.privacy.classes import DEFAULT, Classes
from unpooled.privacy.declared import says
from unpooled.privacy.plan import CLASSES as DERIVED_CLASSES

#: What the label column of events is called in a study of this process.
EVENT = "(event)"

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.estimation.base import Declared
    from unpooled.estimation.columns import Frames, On
    from unpooled.privacy.table import Table

    Vector = NDArray[np.float64]


#: Parameters of :class:`PrideGLM` alone.
_OF_FAMILIES = ("family", "dispersion", "quantile", "cap")


@takes(
    OfEveryFit,
    OverColumns,
    Parameters,
    OfPride,
    DrawnFit,
    first="parties",
    left=_OF_FAMILIES,
    never={**ALIGNED, "loss": ("logistic",)},
)
class PrideRegressor(RegressorMixin, PrideEstimator):
    """Ridge regression on column-split data: every party fits its columns together with perturbed sketches of the others'.

    What crosses between the parties is private. What this object shows beyond that (``coef_``, ``intercept_``, ``alpha_``, ``drawn_``, ``reliability_``,
    ``kept_``, predictions, scores) is computed from raw data and would stay with the parties: show it to nobody who may not see their data.
    Pickles and copies hold what :meth:`predict` needs, and not ``drawn_``, ``kept_`` and ``reliability_``.

    Attributes
    ----------
    coef_ : array
        Coefficients in the data's own units, one for each category where categories are declared.
    intercept_ : float
        The constant, in the data's own units.
    alpha_ : dict
        The penalty of each party.
    duality_gap_ : dict
        With ``calibration="published"``, whose solver is SDCA: how far each party's objective, half the squared errors plus ``alpha / 2``
        times the squared coefficients, is from its minimum at most. Empty where the solver is exact: the sound form, ``loss="huber"``, and a
        classifier with an intercept.
    reliability_ : dict
        For each party and direction of what its own columns leave of the sketches, largest first: the part that is no noise. Where all are 0,
        no coefficient rests on a direction that only the sketches show. Empty where nothing is averaged (THEORY.md, section 10).
    drawn_ : dict
        For each party the weight of each earlier model in its share, 1 as it is and 0 not at all; absent without ``prior``.
    published_ : dict
        Privately published coefficients of each party's coded columns.
    kept_ : dict
        What each party keeps for new rows: raw functions of its data, in no pickle and no copy.
    linkage_ : Linkage
        Where ``fit`` linked frames: the facts that each party learned, without noise.
    statement_, plan_, ledger_, communication_
        What is promised and what is not; what was released, with which noise; what was debited; bytes sent and received.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import PrideRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (400, 40))
    >>> y = X[:, 0] - X[:, 30] + 0.1 * rng.normal(size=400)
    >>> model = PrideRegressor(parties=2, bounds=(-1, 1), epsilon=5.0, sketch_dim=0.2).fit(X, y)
    >>> model.statement_.unit, model.plan_.epsilon(model.plan_.study.delta) <= 5.0
    ('attribute', True)

    """

    _crosses = True

    def _of_family(self, declared: Declared) -> dict[str, Any]:
        return own_loss("regression", self.loss, self.threshold, declared)

    def fit(self, X: ArrayLike | Frames, y: ArrayLike | str, *, on: On | None = None) -> Self:
        """Fit every party's columns. ``on``: the ids by which frames of the parties, {name: frame}, are linked; y names a column then."""
        table, response = self._read(*self._joined(X, y, on), y_numeric=True)
        return self._fit(table, self._declared(table.names, table), response.astype(np.float64))

    def predict(self, X: ArrayLike) -> Vector:
        """``X @ coef_ + intercept_``: needs all columns of the new rows in one place."""
        return self._linear(X)

    def predict_at(self, party: str, X: ArrayLike) -> Vector:
        """Return predictions of new rows at one party, from its own columns and newly released sketches of the others'."""
        return self._decision_at(party, X)


@takes(
    OfEveryFit,
    OfClasses,
    OverColumns,
    Parameters,
    OfPride,
    DrawnFit,
    first="parties",
    left=_OF_FAMILIES,
    never={**ALIGNED, "loss": ("squared", "huber"), "alpha": ("global-cv",)},
)
class PrideClassifier(PrideEstimator, DeclaredClassifier):
    """Logistic regression on column-split data, two classes; other parameters and attributes as for :class:`PrideRegressor`.

    What crosses between the parties is private. What this object shows beyond that (``coef_``, ``intercept_``, ``alpha_``, ``drawn_``, ``reliability_``,
    ``kept_``, predictions, scores) is computed from raw data and would stay with the parties: show it to nobody who may not see their data.
    Pickles and copies hold what :meth:`predict` needs, and not ``drawn_``, ``kept_`` and ``reliability_``.
    """

    def _of_family(self, declared: Declared) -> dict[str, Any]:
        return own_loss("classification", self.loss, self.threshold, declared)

    def _publicly(self) -> Any:  # noqa: ANN401 - scikit-learn's own
        return log_odds()

    def fit(self, X: ArrayLike | Frames, y: ArrayLike | str, *, on: On | None = None) -> Self:
        """Fit every party's columns. ``on`` as of :class:`PrideRegressor`."""
        return self._fit(*self._labelled(*self._joined(X, y, on)))

    def predict_at(self, party: str, X: ArrayLike) -> NDArray[Any]:
        """Return classes of new rows at one party, from its own columns and newly released sketches of the others'."""
        return np.asarray(self.classes_[(self._decision_at(party, X) > 0).astype(int)])


class OfFamilies:
    """What a call of any family says otherwise than a study."""

    family: Annotated[
        str,
        says(
            "The law of the response: two, several or ordered classes (proportional odds); numbers; counts and positive numbers with the logarithm as "
            "link; censored times (proportional hazards, ties by Breslow).",
            choices=(*CLASSES, *NUMBERS),
        ),
    ] = CLASSES[0]


@takes(
    OfEveryFit,
    OfClasses,
    OverColumns,
    Parameters,
    OfPride,
    OfFamilies,
    DrawnFit,
    first="family",
    left=("loss",),
    never={**ALIGNED, "alpha": ("global-cv",)},
)
class PrideGLM(FamilyEstimator):
    """Generalised linear models on column-split data; other parameters and attributes as for :class:`PrideRegressor`.

    Every family is fitted on the same released sketches: the choice costs no privacy. What crosses between the parties is private. What this
    object shows beyond that (``coef_``, ``baseline_hazard_``, predictions, scores) is computed from raw data and would stay with the
    parties: show it to nobody who may not see their data.

    Attributes
    ----------
    coef_ : array
        Coefficients in the data's own units; "multinomial": a row for every class (they sum to 0); "cox": log hazard ratios.
    intercept_ : float or array
        The constant; "multinomial": of every class; "ordinal": minus the threshold above every level but the last; "cox": what makes the
        decision 0 at the columns' means.
    classes_ : array
        The labels of a family with classes.
    baseline_times_, baseline_hazard_ : array
        "cox": times of events, and Breslow's cumulative hazard up to each, at the columns' means.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import PrideGLM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (400, 40))
    >>> y = rng.poisson(np.exp(1 + X[:, 0] - X[:, 30]))
    >>> model = PrideGLM("poisson", parties=2, bounds=(-1, 1), epsilon=5.0, sketch_dim=0.2).fit(X, y)
    >>> model.predict(X).shape, model.plan_.epsilon(model.plan_.study.delta) <= 5.0
    ((400,), True)

    """

    _saved_types: ClassVar = (*PrideEstimator._saved_types, Levels)  # noqa: SLF001 - its base

    # --- before the data -------------------------------------------------------------------------------------------------

    def _of_family(self, declared: Declared) -> dict[str, Any]:
        if self.family not in (*NUMBERS, *CLASSES):
            raise UsageError(refused_family(self.family, (*CLASSES, *NUMBERS)))
        return {
            "classes": list(DEFAULT if declared.classes is None else declared.classes.texts),
            "event": EVENT if self.family == "cox" else "",
        }

    @property
    def _label_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return (RESPONSE, EVENT) if self.family == "cox" else (RESPONSE,)

    def _declared(self, names: Sequence[str], table: Any = None, y: NDArray[Any] | None = None) -> Declared:  # noqa: ANN401
        declared = super()._declared(names, table)
        if self.family not in CLASSES:
            return declared
        if y is not None:
            check_classification_targets(y)
        if self.family == "logistic":
            classes = Classes.given(self.classes, y, warn=self._warns)
        else:
            classes = Levels.declared(self.classes, y, ordered=self.family == "ordinal", warn=self._warns)
        derived = (*declared.derived, DERIVED_CLASSES) if classes.derived else declared.derived
        return replace(declared, classes=classes, derived=derived)

    # --- the fit -----------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, event: Any = None, *, on: On | None = None) -> Self:  # noqa: ANN401 - as PrideRegressor's
        """Fit every party's columns. "cox": ``y`` are times, ``event`` 1 where one ends with an event, else 0 (None: all do)."""
        X, y, event = self._joined(X, y, on, event)
        table, told = self._read(X, y, y_numeric=self.family not in CLASSES)
        declared = self._declared(table.names, table, told)
        if declared.classes is not None:
            self.classes_ = declared.classes.labels
            return self._fit(table, declared, declared.classes.column(told))
        told = told.astype(np.float64)
        if self.family == "cox":
            events = np.ones(told.size) if event is None else np.asarray(event)
            if events.shape != told.shape or events.dtype.kind not in "biuf":
                raise DataError("event has a number for every row: 1 for an event, 0 where observation ended")
            told = np.column_stack([told, events.astype(np.float64)])
        elif event is not None:
            raise UsageError("event belongs to family 'cox'")
        return self._fit(table, declared, told)

    def _labels(self, response: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return dict(zip(self._label_names, response.T if response.ndim > 1 else [response], strict=True))

    def _fit(self, table: Table, declared: Declared, response: NDArray[Any]) -> Self:
        super()._fit(table, declared, response)
        self.coef_ = np.ascontiguousarray(self.coef_.T)
        if self.family == "cox" and not np.isnan(self.coef_).any():
            rows = Coding(declared.columns, 1).natural([table[column.name] for column in declared.columns])
            self.baseline_times_, self.baseline_hazard_ = baseline(response, rows @ self.coef_ + self.intercept_)
        return self
