"""Earlier results that a study cites: a run as it is found, and the coefficients of an earlier model as a later study of linear predictors takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from unpooled.errors import DataError, StudyError, UsageError, listed
from unpooled.families.logistic import Logistic
from unpooled.inference.estimates import CONSTANT_TERM
from unpooled.inference.printed_terms import class_terms
from unpooled.inference.priors import EarlierModel
from unpooled.privacy.bounds import Coding, Column
from unpooled.privacy.table import check_rows
from unpooled.protocol.registry import Citing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from unpooled.privacy.origin import ReleasedInput
    from unpooled.privacy.plan import Card, Plan, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.registry import Model

    #: Reads these columns of a file of public rows.
    ReadRows: TypeAlias = Callable[[Path, Sequence[Column]], Table]


# --- Cited -----------------------------------------------------------------------------------------------------------------
# What a study file cites, as it is found, and what a model makes of it (``Citing.taken`` in its row of the registry).


@dataclass(frozen=True)
class CitedRun:
    """A run, or one analysis of it, as a study finds it."""

    #: The key of the study's parameters that cites it.
    key: str
    folder: Path
    #: The row of the registry that the run was of.
    row: Model
    plan: Plan
    result: Any
    #: The origins of the run's own inputs, and of what it released.
    origins: tuple[ReleasedInput, ...]


class TakesEarlier(Protocol):
    """The study that is drawn to earlier models: it takes them out of runs and public rows, and refuses what would mean something else in it."""

    def of_run(self, cited: CitedRun) -> EarlierModel:
        """Return the earlier model that a run found."""

    def of_rows(self, path: Path, read: ReadRows) -> EarlierModel:
        """Return the fit to a file of public rows."""


def by_name(columns: Iterable[Column]) -> dict[str, Column]:
    """Return columns by name, the first of each."""
    found: dict[str, Column] = {}
    for column in columns:
        found.setdefault(column.name, column)
    return found


def declared_columns(cards: Iterable[Card]) -> dict[str, Column]:
    """Return the declared columns of all cards, by name."""
    return by_name(column for card in cards for column in card.columns)


def with_response(
    parameters: Mapping[str, Any], cards: tuple[Card, ...], bound: object = 1.0, classes: tuple[str, ...] | None = None
) -> dict[str, Column]:
    """Return the declared columns of all cards, and the response where it is a label column of theirs: with these classes, or with numbers up to a bound."""
    columns, name = declared_columns(cards), parameters.get("response")
    if not isinstance(name, str) or not any(name in card.labels for card in cards):
        return columns
    if classes is not None:
        return columns | {name: Column(name, categories=classes)}
    return columns | (
        {name: Column(name, -float(bound), float(bound))} if isinstance(bound, int | float) and bound > 0 else {}
    )


# --- Coefficients ----------------------------------------------------------------------------------------------------------
# Coefficients of an earlier model: what a model says of its studies that are drawn to such ones, and how they are taken.

#: A bound on a response that is declared without one.
ANY = 1e300
#: Columns that a model reads without a coefficient of theirs.
_ROLES = ("weights", "exposure", "offset", "event")
#: Parameters that must be those of the cited run too, for coefficients to mean the same, each with the value of a study without it.
ALIKE: Mapping[str, str] = {"response": "", "exposure": "", "offset": "", "event": ""}
#: Rows of each class of public rows, which are divided into this number of folds to choose a penalty.
_FEWEST = 5
#: The digits of a fit to public rows: computers differ in the last ones, and all parties must compile one plan.
_DIGITS = 6


class ResponseKind(Enum):
    """What a response is, and so what coefficients there are of it."""

    NUMBER = auto()
    TWO_CLASSES = auto()
    #: Several classes, each with coefficients of its own.
    CLASSES = auto()
    #: Times to an event: hazards of intervals in the place of a constant.
    TIMES = auto()

    @property
    def has_classes(self) -> bool:
        """Return True if a response is one of declared classes."""
        return self in {ResponseKind.TWO_CLASSES, ResponseKind.CLASSES}

    @property
    def words(self) -> str:
        """Return what public rows need, in words."""
        return {
            ResponseKind.NUMBER: "is a number",
            ResponseKind.TWO_CLASSES: "has two categories",
            ResponseKind.CLASSES: "has categories",
            ResponseKind.TIMES: "is a number",
        }[self]


def _ridge() -> Any:  # noqa: ANN401 - scikit-learn's own
    from unpooled.estimation.priors import ridge  # takes long to import

    return ridge()


@dataclass(frozen=True)
class DrawnModel:
    """What a model says of a study of its own that is drawn to earlier coefficients."""

    #: The model of the study, and that of the runs whose coefficients it takes (empty: the same).
    model: str
    of: str = ""
    kind: ResponseKind = ResponseKind.NUMBER
    #: Whether two classes are -1 and 1.
    signed: bool = False
    #: The name of the response's family in an error.
    family: str = Logistic.name
    alike: Mapping[str, str] = field(default_factory=lambda: ALIKE)
    #: Makes the estimator that fits public rows, or refuses them.
    estimator: Callable[[], Any] = _ridge


class EarlierCoefficients:
    """The study that is drawn: what its coefficients are of, and earlier models as it takes them."""

    def __init__(self, drawing: DrawnModel, parameters: Mapping[str, Any], columns: Mapping[str, Column]) -> None:
        self.drawing, self.parameters, self.columns = drawing, parameters, columns
        if isinstance(parameters.get("response"), list):
            raise StudyError("prior goes with one response, and this study names several")
        response = columns.get(str(parameters.get("response")))
        if response is None:
            raise StudyError(
                "prior: name the response first, a column that the cards declare: earlier models are of the same one"
            )
        self.response = response
        apart = {response.name, *(str(parameters.get(role)) for role in _ROLES)}
        self.features = tuple(column for name, column in columns.items() if name not in apart)

    # --- runs ----------------------------------------------------------------------------------------------------------------

    def of_run(self, cited: CitedRun) -> EarlierModel:
        """Return the coefficients with which a run predicts."""
        run, study = cited.folder, cited.plan.study
        self._check_same(run, study)
        terms = {term.term: term.estimate for term in cited.row.reading.predicting(cited.plan, cited.result)}
        constant = terms.pop(CONSTANT_TERM, 0.0)
        if self.drawing.kind is ResponseKind.TIMES:  # the hazards of its intervals are those of its own times
            kept = {coefficient.name for coefficient in cited.result.coefficients}
            terms = {name: value for name, value in terms.items() if name in kept}
        if not terms:
            msg = f"prior: {run} released no coefficients: cite a run whose method fits slopes"
            raise StudyError(msg)
        self._check_names(run, terms, study)
        return EarlierModel(run.resolve().name, terms, constant)

    def _check_same(self, run: Path, study: Study) -> None:
        """Refuse a run whose coefficients would mean something else here."""
        own, theirs = self.drawing, study.parameters
        wanted = own.of or own.model
        if study.model != wanted:
            msg = f"prior: {run} is a run of model {study.model!r}; this study of {own.model!r} is drawn to a run of {wanted!r}"
            raise StudyError(msg)
        alike = own.alike.items()
        differing = [name for name, none in alike if (theirs.get(name) or none) != (self.parameters.get(name) or none)]
        columns = declared_columns(study.parties)
        response = columns.get(self.response.name, self.response)  # a label has no categories
        if not differing and response.categories != self.response.categories:
            differing = ["list of categories of the response"]
        if differing:
            msg = (
                f"prior: {run} was run with another {listed(differing)}, so its coefficients would mean something else here"
            )
            raise StudyError(msg)
        dated = [column.name for column in self.features if column.dates != columns.get(column.name, column).dates]
        if dated:
            msg = f"prior: {run} counts {listed(dated)} in other units of time: write its coefficients in this study's as a table under prior"
            raise StudyError(msg)

    @property
    def _names(self) -> tuple[str, ...]:
        """Return the names of the coefficients of a study without a formula, but for a single constant."""
        names = Coding(self.features, 1).coded_names
        if self.drawing.kind is not ResponseKind.CLASSES:
            return names
        return class_terms(self.response.categories or (), (*names, CONSTANT_TERM))

    def _check_names(self, run: Path, terms: Mapping[str, float], study: Study) -> None:
        """Refuse coefficients of columns that this study has not; those of a formula are looked at where its plan is made."""
        if self.parameters.get("formula") or study.parameters.get("formula"):
            return
        known = set(self._names)
        if strange := [name for name in terms if name not in known]:
            msg = (
                f"prior: {run} has a coefficient of {listed(strange)}, and this study has no such column: declare it on the cards, or leave the run "
                "out and write the coefficients that the two share as a table under prior (name, coefficients, intercept)"
            )
            raise StudyError(msg)

    # --- public rows -----------------------------------------------------------------------------------------------------------

    def of_rows(self, path: Path, read: ReadRows) -> EarlierModel:
        """Return the fit to a file of public rows, without privacy."""
        from unpooled.estimation.priors import of_public_rows  # takes long to import

        if not path.is_file():
            msg = f"prior: there is no file {path}: a path is relative to the study file"
            raise StudyError(msg)
        if self.parameters.get("formula"):
            raise StudyError(
                "prior: public rows go without a formula; fit them yourself, and write the coefficients as a table under prior"
            )
        if not self.features:
            raise StudyError("prior: this study has no column but the response")
        columns, estimator = (*self.features, self.response), self._estimator()
        try:
            table = read(path, columns)
            check_rows(table.n_rows, 2)  # a line needs two points
            values = [_present(path, column, table[column.name]) for column in columns]
            response = self._response(path, values.pop())
            several = self.drawing.kind is ResponseKind.CLASSES
            found = of_public_rows(path.name, values, response, self.features, estimator, by_class=several)
        except DataError as error:
            msg = f"prior: {error}"
            raise StudyError(msg) from None
        except StudyError:
            raise
        except ValueError:  # of the library that fits, whose words may quote values
            msg = f"prior: {path.name} cannot be fitted: it holds a response that the family {self.drawing.family!r} cannot have"
            raise StudyError(msg) from None
        return _rounded(found)

    def _estimator(self) -> Any:  # noqa: ANN401 - scikit-learn's own
        try:
            return self.drawing.estimator()
        except UsageError as error:
            raise StudyError(str(error)) from None

    def _response(self, path: Path, values: NDArray[Any]) -> NDArray[Any]:
        """Return the response as numbers, 1 for the second of two classes; of several their labels."""
        classes = self.response.categories
        kind, signed = self.drawing.kind, self.drawing.signed
        if not signed and kind.has_classes != (classes is not None):
            msg = f"prior: public rows need a response that {kind.words}: {self.response.name!r} is declared otherwise"
            raise StudyError(msg)
        if classes is not None and not set(values.tolist()) <= set(classes):
            msg = f"prior: {path.name} holds a value of {self.response.name!r} outside its declared categories"
            raise StudyError(msg)
        two = kind is ResponseKind.TWO_CLASSES
        found = np.asarray(values == classes[1], dtype=np.float64) if two and classes is not None else values
        found = np.asarray(values > 0, dtype=np.float64) if signed else found
        held = np.unique(found, return_counts=True)[1]
        if held.size < 2:  # noqa: PLR2004 - nothing to tell apart
            msg = f"prior: {path.name} holds one value of {self.response.name!r} alone, so nothing can be learnt from it"
            raise StudyError(msg)
        if kind.has_classes and (held.min() < _FEWEST or (kind is ResponseKind.CLASSES and held.size < len(classes or ()))):
            msg = f"prior: {path.name} needs {_FEWEST} rows or more of each category of {self.response.name!r}"
            raise StudyError(msg)
        return found


def _present(path: Path, column: Column, values: NDArray[Any]) -> NDArray[Any]:
    """Return the values of a column; refused where they are missing and must not be, or are no numbers."""
    missing = np.array([value is None for value in values]) if values.dtype == object else np.isnan(values)
    if missing.all():
        msg = f"prior: all values of {column.name!r} in {path.name} are missing"
        raise StudyError(msg)
    if missing.any() and not column.may_be_absent:
        msg = f"prior: {path.name} lacks values of {column.name!r}, which the cards declare as never missing: leave such rows out"
        raise StudyError(msg)
    if values.dtype == object and column.categories is None:
        msg = f"prior: {path.name} holds something in {column.name!r} that is no number"
        raise StudyError(msg)
    return values


def _rounded(model: EarlierModel) -> EarlierModel:
    """Return the model with coefficients in the digits that every computer finds alike."""
    coefficients = {name: _to_digits(value) for name, value in model.coefficients.items()}
    return EarlierModel(model.name, coefficients, _to_digits(model.intercept))


def _to_digits(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def linear(model: str) -> Citing:
    """Return how a model of a linear mean, whose response is a declared column, takes earlier coefficients."""

    def taken(parameters: Mapping[str, Any], cards: tuple[Card, ...]) -> EarlierCoefficients:
        return EarlierCoefficients(DrawnModel(model), parameters, with_response(parameters, cards))

    return Citing(taken)
