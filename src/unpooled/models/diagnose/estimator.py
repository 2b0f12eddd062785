"""``unpooled.diagnose``: how well a released model fits, in process, and its result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
import numpy as np
from scipy.special import logit
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError
from unpooled.estimation.fitted import released_model
from unpooled.estimation.parameters import PAIR
from unpooled.estimation.releasing import OfRows, asks, study_of
from unpooled.estimation.running import PlannedResult, run
from unpooled.estimation.tables import table_of
from unpooled.inference.coding import coded_by
from unpooled.models.diagnose import MODEL, fit
from unpooled.models.diagnose.declared import Link
from unpooled.models.diagnose.fit import Cells
from unpooled.privacy.bounds import Coding, Column
from unpooled.privacy.declared import says
from unpooled.privacy.origin import COEFFICIENTS, OTHERS, SAME, ReleasedInput, origins_of
from unpooled.privacy.plan import Plan
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Unit
from unpooled.protocol.messages import Array
from unpooled.schedules import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.diagnose.fit import Banded, CalibrationTest, CellReading, RocBand
    from unpooled.privacy.ledger import Entry
    from unpooled.protocol.registry import Panel

#: What the response is called; no feature can be.
_RESPONSE = "(response)"
_RESIDUALS = table("diagnose").several("residual_cuts")


@dataclass(frozen=True, repr=False)
class Diagnosis(PlannedResult):
    """Diagnosis of a model's fit; printing it gives a table.

    Attributes
    ----------
    cells_ : Cells
        The released counts.
    statement_ : Statement
        What is promised, and what is not.
    plan_ : Plan
        What was released, with which noise.
    ledger_ : tuple of Entry
        What was debited.
    communication_ : dict
        Bytes sent to and received from each party.

    """

    _model: ClassVar = MODEL
    _saved_types: ClassVar = (Cells, Array)
    cells_: Cells
    plan_: Plan
    ledger_: tuple[Entry, ...]
    communication_: dict[str, dict[str, int]]

    @property
    def auc(self) -> Banded:
        """Return the area under the ROC curve with its interval (of two classes)."""
        self._of_classes()
        return fit.area_under(self.cells_.counts.numpy(), self.cells_.deviation)

    @property
    def roc(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (shares of false positives, of true positives) as the threshold falls."""
        self._of_classes()
        return fit.roc(self.cells_.counts.numpy())

    @property
    def roc_band(self) -> RocBand:
        """Return the ROC curve with a pointwise 95 % band that holds sampling and noise (of two classes)."""
        self._of_classes()
        return fit.roc_band(self.cells_.counts.numpy(), self.cells_.deviation)

    @property
    def calibration_test(self) -> CalibrationTest:
        """Test observed shares against those that the model predicts (Hosmer and Lemeshow's test, with the noise in its variance)."""
        self._of_classes()
        return fit.calibration_test(self.cells_)

    @property
    def by_cell(self) -> list[CellReading]:
        """Observed shares, or mean residuals, by fitted value: the calibration curve, or the residual plot."""
        return fit.by_cell(self.cells_)

    def curves_as_lists(self) -> dict[str, dict[str, list[float]]]:
        """Return the cells of the calibration curve, or of the residual plot, as data; of two classes the ROC curve too, and its area."""
        cells = self.by_cell
        found = {
            "cells": {name: [getattr(cell, name) for cell in cells] for name in ("predicted", "observed", "low", "high")}
        }
        if self.cells_.residual_cuts:
            return found
        band, area = self.roc_band, self.auc
        found["roc"] = {name: getattr(band, name).tolist() for name in ("false", "true", "low", "high")}
        found["auc"] = {name: [float(getattr(area, name))] for name in ("value", "low", "high")}
        return found

    def _of_classes(self) -> None:
        if self.cells_.residual_cuts:
            raise UsageError("this model predicts a number: by_cell has its residuals")

    def _panels(self) -> tuple[Panel, ...]:
        """Return the ROC curve first, then the calibration; or the residual plot."""
        return tuple(reversed(super()._panels()))

    def _what(self) -> str:
        return f"{len(self.by_cell)} cells seen"


class Diagnosed:
    """What a diagnosis takes beside the rows."""

    model: Annotated[
        Any,
        says(
            "One whose coefficients were released: regression, GLM, PLS of one response, LASSO, logistic regression. A model whose coefficients stay at the "
            "parties has fitted values that move with every row of theirs: it is refused.",
            call="fitted estimator",
            written="Any",
        ),
    ]
    X: Annotated[
        Any,
        says(
            "Rows, as for ``fit``; best others than those the model was fitted to, for on the same rows errors look smaller than they are.",
            call="array or data frame",
            written="Any",
        ),
    ]
    y: Annotated[Any, says("Their responses.", call="array", written="Any")]
    y_bounds: Annotated[
        tuple[float, float] | None,
        says("Declared range of a response that is a number. None is the model's own."),
    ] = None
    cells: Annotated[
        int, says("Cells of fitted values: of equal probability steps, or of equal parts of the declared range.")
    ] = 20
    rows: Annotated[
        str,
        says(
            'Whose rows the model was fitted to. "others" declares that they are other people\'s than these. It matters for a model whose fit promises '
            "nothing (a seed, ``epsilon=inf``, published calibration, ranges read off the data): diagnosed on its own rows it gives them away.",
            choices=(SAME, OTHERS),
        ),
    ] = SAME


@asks(OfRows, Diagnosed, leading="model X y", left=("data", "bounds"))
def diagnose(asked: Any) -> Diagnosis:  # noqa: ANN401 - its arguments
    """ROC, area and calibration of a classifier, or residuals of a regression, on row-split data: one more private release.

    Examples
    --------
    >>> import numpy as np, unpooled
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 3))
    >>> y = X[:, 0] + 0.3 * rng.logistic(size=20_000) > 0
    >>> model = unpooled.PrivateGLM(bounds=(-1, 1), classes=(False, True), random_state=0).fit(X[:10_000], y[:10_000])
    >>> found = unpooled.diagnose(model, X[10_000:], y[10_000:], random_state=1)
    >>> bool(0.7 < found.auc.value < 0.95)
    True

    """
    if asked.rows not in {SAME, OTHERS}:
        msg = f"rows is {SAME!r}, or {OTHERS!r} where the model was fitted to other people's rows"
        raise UsageError(msg)
    model, asked.data = released_model(asked.model, "diagnose"), asked.X
    columns = _released(model)
    if not 2 <= asked.cells <= 200:  # noqa: PLR2004 - as the study's own limit
        raise UsageError("cells must lie between 2 and 200")
    columns, table = _as_fitted(model, table_of(asked.X, [column.name for column in columns]), columns, asked.unit)
    response, values, parameters = _asked(model, np.asarray(asked.y), asked.y_bounds, asked.cells)
    names = Coding(columns, 1).coded_names
    parameters |= {
        "response": _RESPONSE,
        "coefficients": dict(zip(names, map(float, np.ravel(model.coef_)), strict=True)),
        "intercept": float(np.ravel(model.intercept_)[0]),
    }
    if lines := getattr(model, "_lines", ()):  # models without them keep their study's hash
        parameters["lines"] = [list(line) for line in lines]
    whole = Table({**{name: table[name] for name in table.names}, _RESPONSE: values})
    origins = (*_origins(model, asked.rows), *origins_of(asked.y_bounds))
    study, tables = study_of("diagnose", asked, whole, (*columns, response), parameters, origins=origins)
    plan, found = run(MODEL, study, tables, budget=asked.budget)
    return Diagnosis(found.outcome.result, plan, found.ledger, found.outcome.communication)


def _as_fitted(
    model: Any,  # noqa: ANN401 - a fitted estimator
    table: Table,
    columns: tuple[Column, ...],
    unit: str,
) -> tuple[tuple[Column, ...], Table]:
    """Return the columns that the coefficients are of, and their values: of a formula those that it makes, each a function of one row."""
    made = getattr(model, "_made", None)
    if made is None:
        return columns, table
    if made.derived.offset_column is not None:
        raise UsageError("diagnose is for models that are linear in their columns, without offset or exposure")
    if unit == Unit.ATTRIBUTE:
        msg = "one value of a person may move several columns of a formula: with unit='attribute' diagnose a model without a formula"
        raise UsageError(msg)
    features = coded_by(model._source)  # noqa: SLF001 - of all estimators with a formula
    blocks = list(made.seen(table).blocks(tuple(column.name for column in features)))
    values = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return features, Table({column.name: part for column, part in zip(features, values, strict=True)})


def _origins(model: Any, rows: str) -> tuple[ReleasedInput, ...]:  # noqa: ANN401
    """Where the coefficients come from, and the ranges by which the model codes its columns."""
    known: tuple[ReleasedInput, ...] = model.origins
    # What the fit itself cost is in its own statement; here it matters whether that holds.
    fitted = (msgspec.structs.replace(one, events=()) for one in known if one.input == COEFFICIENTS)
    found = (*fitted, *(one for one in known if one.input != COEFFICIENTS))
    return tuple(origin.of_others() for origin in found) if rows == OTHERS else found


def _released(model: Any) -> tuple[Column, ...]:  # noqa: ANN401
    """Return the declared columns of a model whose coefficients are public; another one is refused."""
    check_is_fitted(model)
    if not getattr(model, "_is_linear", False) or getattr(model, "shifted_by", {}):
        raise UsageError("diagnose is for models that are linear in their columns, without offset or exposure")
    if getattr(model, "family", "") in {"multinomial", "survival"}:
        raise UsageError(
            "a diagnosis is of one linear predictor and its response: not of several classes, nor of times to an event"
        )
    coefficients = np.ravel(model.coef_)
    if not np.isfinite(coefficients).all():
        raise UsageError(
            "some coefficients of this model are not finite, so it has no fitted values: diagnose a model whose fit succeeded"
        )
    if np.size(model.intercept_) > 1:
        raise UsageError("diagnose is for one response: take the models of each, from its moments")
    columns: tuple[Column, ...] = tuple(model.declared_columns)
    if not columns:
        raise UsageError("this model does not know the declared ranges of its columns: fit it to rows, not to moments alone")
    return columns


def _asked(
    model: Any,  # noqa: ANN401
    y: NDArray[Any],
    y_bounds: tuple[float, float] | None,
    cells: int,
) -> tuple[Column, NDArray[Any], dict[str, Any]]:
    """Return (the response as a column, its values, link and cuts)."""
    steps = np.arange(1, cells) / cells
    if hasattr(model, "classes_"):
        known = (y == model.classes_[1]) | (y == model.classes_[0])
        if not known.all():
            raise UsageError("y holds a label that is neither of the model's classes")
        values = np.where(y == model.classes_[1], "1", "0").astype(object)
        return Column(_RESPONSE, categories=("0", "1")), values, {"link": Link.LOGISTIC.value, "cuts": logit(steps).tolist()}
    ends = y_bounds if y_bounds is not None else getattr(model, "y_bounds", None)
    if ends is None or not PAIR.holds(ends):
        raise UsageError("declare the range of the response: y_bounds=(low, high)")
    low, high = map(float, ends)
    response = Column(_RESPONSE, low, high)
    scale = float(getattr(model, "noise_variance_", math.nan))
    scale = math.sqrt(scale) if scale > 0 else (high - low) / 12
    log = getattr(model, "family", "") in {"poisson", "gamma", "negative-binomial"}
    middle = low + (high - low) * steps
    cuts = np.log(middle[middle > 0]) if log else middle
    residuals = [scale * cut for cut in _RESIDUALS]
    link = Link.LOG if log else Link.IDENTITY
    return response, y.astype(np.float64), {"link": link.value, "cuts": cuts.tolist(), "residual_cuts": residuals}
