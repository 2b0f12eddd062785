"""``prior`` in a study file of ``bayes``, ``effects``, ``glm``, ``lasso``, ``pls`` or ``pride``: earlier models, as numbers, or out of an earlier run or public rows.

The study holds the numbers alone: they are public, and every party compiles its plan from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.aggregation.estimates import CONSTANT_TERM
from unpooled.aggregation.printed_terms import class_terms
from unpooled.aggregation.priors import EarlierModel
from unpooled.errors import DataError, StudyError, UsageError, listed
from unpooled.families.gaussian import Gaussian
from unpooled.families.logistic import Logistic
from unpooled.models import load
from unpooled.models.glm.families import FAMILIES, MULTINOMIAL, SURVIVAL, TWO_CLASSES
from unpooled.models.lasso.declared import LOGISTIC
from unpooled.models.lasso.declared import Parameters as LassoParameters
from unpooled.models.pride.parameters import DRAWN, undrawn
from unpooled.privacy.bounds import Coding, Column, text_of
from unpooled.privacy.classes import DEFAULT
from unpooled.privacy.origin import PRIOR
from unpooled.privacy.table import check_rows
from unpooled.study.cited_runs import RUN, Citations, CitedRun
from unpooled.study.data import read_table
from unpooled.study.earlier_effects import EarlierEffects, by_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from unpooled.privacy.origin import ReleasedInput
    from unpooled.privacy.plan import Card, Study

#: Those whose response is a number and whose mean is a linear function; the LASSO of a logistic loss has classes of -1 and 1.
_LINEAR = ("bayes", "lasso", "pls")
#: Models whose response is a label of the cards; PRIDE releases no coefficients, so that it is drawn to runs of others.
_LASSO, _PRIDE = "lasso", "pride"
#: What a citation of a file of public rows begins with.
ROWS = "rows:"
_WORDS = f'"{RUN}FOLDER" of an earlier run, "{ROWS}FILE" of public rows, or a table with name, coefficients and intercept'
#: Columns that a model reads without a coefficient of theirs.
_ROLES = ("weights", "exposure", "offset", "event")
#: Columns that must be those of the cited run too, for coefficients to mean the same.
_ALIKE = ("response", "exposure", "offset", "event")
#: A bound on a response that is declared without one.
_ANY = 1e300
#: Rows of each class of public rows, which are divided into this number of folds to choose a penalty.
_FEWEST = 5
#: The digits of a fit to public rows: computers differ in the last ones, and all parties must compile one plan.
_DIGITS = 6


def with_earlier_models(
    model: str, parameters: Mapping[str, Any], cards: tuple[Card, ...], folder: Path
) -> tuple[dict[str, Any], tuple[ReleasedInput, ...]]:
    """Return the parameters with the earlier models that they cite as numbers, and the origins of these."""
    found = dict(parameters)
    asked = found.get(PRIOR)
    several = asked if isinstance(asked, list) else [asked]
    cites = any(isinstance(one, str) and one.startswith(RUN) for one in several)
    citations = Citations.of(PRIOR, found, folder, cites=cites)
    said, columns = _said(model, found), columns_of(cards)
    own = EarlierEffects(found, columns) if model == "effects" else _Own(model, said, columns | _labels(model, said, cards))
    models, origins = list[tuple[str, EarlierModel]](), list["ReleasedInput"]()
    runs = dict[str, Path]()
    for one in several:
        if isinstance(one, str) and one.startswith(RUN):
            run = citations.read(one)
            if runs.setdefault(run.plan.hash, run.folder) != run.folder:
                msg = f"prior: {runs[run.plan.hash]} and {run.folder} are runs of one plan: cite one of them"
                raise StudyError(msg)
            models.append((one.removeprefix(RUN), own.of_run(run)))
            origins += [origin for origin in run.origins if origin not in origins]
        elif isinstance(one, str) and one.startswith(ROWS):
            models.append((one.removeprefix(ROWS), own.of_rows(folder / one.removeprefix(ROWS))))
        else:
            table = _of_table(one)
            models.append((table.name, table))
    named = [model.name for _, model in models]
    # Two folders of one name, or two files, are called by their paths.
    apart = [m if named.count(m.name) == 1 else msgspec.structs.replace(m, name=path) for path, m in models]
    return found | {PRIOR: msgspec.to_builtins(apart)}, tuple(origins)


def _of_table(given: object) -> EarlierModel:
    try:
        return msgspec.convert(given, EarlierModel, strict=True)
    except msgspec.ValidationError as error:
        msg = f"prior: each is {_WORDS}: {error}"
        raise StudyError(msg) from None


def columns_of(cards: Iterable[Card]) -> dict[str, Column]:
    """Return the declared columns of all cards, by name."""
    return by_name(column for card in cards for column in card.columns)


def _said(model: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with the response and the family that a study without these keys has."""
    if model == _LASSO:
        return {"response": LassoParameters().response, **parameters}
    if model != _PRIDE:
        return dict(parameters)
    found = {"response": "y", "classes": DEFAULT, **parameters}
    found["family"] = found.get("family") or found.pop("loss", "")
    found["family"] = found["family"] or (Logistic.name if found.get("task") == "classification" else Gaussian.name)
    if found["family"] not in DRAWN:
        raise StudyError(undrawn(str(found["family"])))
    if not isinstance(found["classes"], list | tuple) or len(found["classes"]) != 2:  # noqa: PLR2004 - of two classes
        raise StudyError("prior: classes of the logistic family are a list of two labels")
    return found


def _labels(model: str, parameters: Mapping[str, Any], cards: Iterable[Card]) -> dict[str, Column]:
    """Return the response as a column, where it is a label column of the cards: with its classes, or with the range that the parameters declare."""
    name = parameters.get("response")
    if not isinstance(name, str) or not any(name in card.labels for card in cards):
        return {}
    if model == _PRIDE and parameters["family"] in TWO_CLASSES:
        return {name: Column(name, categories=tuple(map(text_of, parameters["classes"])))}
    bound = _ANY if model == _PRIDE else parameters.get("response_bound", 1.0)
    return {name: Column(name, -float(bound), float(bound))} if isinstance(bound, int | float) and bound > 0 else {}


class _Own:
    """The study that is drawn: what its coefficients are of, and earlier models as it takes them."""

    def __init__(self, model: str, parameters: Mapping[str, Any], columns: Mapping[str, Column]) -> None:
        self.model, self.parameters, self.columns = model, parameters, columns
        self.linear = model in _LINEAR and parameters.get("loss") != LOGISTIC
        if model == _PRIDE:
            self.linear = parameters["family"] == Gaussian.name
        #: Whether classes are -1 and 1.
        self.signed = model == _LASSO and not self.linear
        if isinstance(parameters.get("response"), list):
            raise StudyError("prior goes with one response, and this study names several")
        response = columns.get(str(parameters.get("response")))
        if response is None:
            raise StudyError(
                "prior: name the response first, a column that the cards declare: earlier models are of the same one"
            )
        self.response = response
        self.family = str(parameters.get("family", Logistic.name))
        if self.family not in FAMILIES and not self.linear:
            msg = f"family is one of {listed(list(FAMILIES))}, not {self.family!r}"
            raise StudyError(msg)
        apart = {response.name, *(str(parameters.get(role)) for role in _ROLES)}
        self.features = tuple(column for name, column in columns.items() if name not in apart)

    # --- runs ----------------------------------------------------------------------------------------------------------------

    def of_run(self, cited: CitedRun) -> EarlierModel:
        """Return the coefficients with which a run predicts."""
        run, study = cited.folder, cited.plan.study
        self._check_same(run, study)
        terms = {term.term: term.estimate for term in load(study.row).predicting(cited.plan, cited.result)}
        constant = terms.pop(CONSTANT_TERM, 0.0)
        if self.family == SURVIVAL:  # the hazards of its intervals are those of its own times
            kept = {coefficient.name for coefficient in cited.result.coefficients}
            terms = {name: value for name, value in terms.items() if name in kept}
        if not terms:
            msg = f"prior: {run} released no coefficients: cite a run whose method fits slopes"
            raise StudyError(msg)
        self._check_names(run, terms, study)
        return EarlierModel(run.resolve().name, terms, constant)

    def _check_same(self, run: Path, study: Study) -> None:
        """Refuse a run whose coefficients would mean something else here."""
        wanted = self.model if self.model != _PRIDE else "bayes" if self.linear else "glm"
        if study.model != wanted:
            msg = f"prior: {run} is a run of model {study.model!r}; this study of {self.model!r} is drawn to a run of {wanted!r}"
            raise StudyError(msg)
        theirs = _said(study.model, study.parameters)
        differing = [name for name in _ALIKE if (theirs.get(name) or "") != (self.parameters.get(name) or "")]
        differing += ["family"] if not self.linear and theirs.get("family", Logistic.name) != self.family else []
        differing += (
            ["loss"]
            if self.model == _LASSO and (theirs.get("loss") == LOGISTIC) != (self.parameters.get("loss") == LOGISTIC)
            else []
        )
        columns = columns_of(study.parties)
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
        if self.family != MULTINOMIAL:
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

    def of_rows(self, path: Path) -> EarlierModel:
        """Return the fit to a file of public rows, without privacy."""
        from unpooled.estimation.priors import of_public_rows

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
            table = read_table(path, tuple(column.name for column in columns), declared=columns)
            check_rows(table.n_rows, 2)  # a line needs two points
            values = [_present(path, column, table[column.name]) for column in columns]
            response = self._response(path, values.pop())
            several = not self.linear and self.family == MULTINOMIAL
            found = of_public_rows(path.name, values, response, self.features, estimator, by_class=several)
        except DataError as error:
            msg = f"prior: {error}"
            raise StudyError(msg) from None
        except StudyError:
            raise
        except ValueError:  # of the library that fits, whose words may quote values
            msg = f"prior: {path.name} cannot be fitted: it holds a response that the family {self.family!r} cannot have"
            raise StudyError(msg) from None
        return _rounded(found)

    def _estimator(self) -> Any:  # noqa: ANN401 - scikit-learn's own
        from unpooled.estimation.priors import ridge
        from unpooled.models.glm.families import public_estimator

        if self.linear:
            return ridge()
        shifted = any(self.parameters.get(role) for role in ("exposure", "offset"))
        try:
            return public_estimator(self.family, shifted=shifted)
        except UsageError as error:
            raise StudyError(str(error)) from None

    def _response(self, path: Path, values: NDArray[Any]) -> NDArray[Any]:
        """Return the response as numbers, 1 for the second of two classes; of several their labels."""
        classes = self.response.categories
        several = not self.linear and self.family == MULTINOMIAL
        sorts = several or (not self.linear and self.family in TWO_CLASSES)
        if not self.signed and sorts != (classes is not None):
            asked = "has categories" if several else "has two categories" if sorts else "is a number"
            msg = f"prior: public rows need a response that {asked}: {self.response.name!r} is declared otherwise"
            raise StudyError(msg)
        if classes is not None and not set(values.tolist()) <= set(classes):
            msg = f"prior: {path.name} holds a value of {self.response.name!r} outside its declared categories"
            raise StudyError(msg)
        two = sorts and not several
        found = np.asarray(values == classes[1], dtype=np.float64) if two and classes is not None else values
        found = np.asarray(values > 0, dtype=np.float64) if self.signed else found
        held = np.unique(found, return_counts=True)[1]
        if held.size < 2:  # noqa: PLR2004 - nothing to tell apart
            msg = f"prior: {path.name} holds one value of {self.response.name!r} alone, so nothing can be learnt from it"
            raise StudyError(msg)
        if sorts and (held.min() < _FEWEST or (several and held.size < len(classes or ()))):
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
