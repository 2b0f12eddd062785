"""Earlier models that a study file cites: numbers, saved models or runs, whose people they are of, and the numbers that the study is about."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import DataError, StudyError, UsageError, listed
from unpooled.families.gaussian import Gaussian
from unpooled.families.logistic import Logistic
from unpooled.inference.estimates import CONSTANT_TERM
from unpooled.inference.printed_terms import class_terms
from unpooled.inference.priors import EarlierModel
from unpooled.models import load
from unpooled.models.analyses.coordinator import Failed
from unpooled.models.effects.declared import Estimand, OutcomeFamily
from unpooled.models.glm.families import FAMILIES, MULTINOMIAL, SURVIVAL, TWO_CLASSES
from unpooled.models.lasso.declared import LOGISTIC
from unpooled.models.lasso.declared import Parameters as LassoParameters
from unpooled.models.pride.parameters import DRAWN, undrawn
from unpooled.privacy.bounds import Coding, Column, text_of
from unpooled.privacy.classes import DEFAULT
from unpooled.privacy.origin import OTHERS, PRIOR, SAME, SOURCE, ReleasedInput
from unpooled.privacy.table import check_rows
from unpooled.study.data import read_table
from unpooled.study.record import RECORD, read_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from unpooled.privacy.plan import Card, Plan, Study


# --- Cited runs ------------------------------------------------------------------------------------------------------------
# ``prior = "run:FOLDER"`` in a study file: the run that is cited, whose people it is of, and where what it released comes from.

#: What a citation of a run begins with.
RUN = "run:"


@dataclass(frozen=True)
class CitedRun:
    """A run, or one analysis of it, as a study finds it."""

    folder: Path
    plan: Plan
    result: Any
    #: The origins of the run's own inputs, and of what it released.
    origins: tuple[ReleasedInput, ...]


@dataclass(frozen=True)
class Citations:
    """Citations under one key of ``[parameters]``, and what the study says of all runs that it cites there."""

    #: The key, by which the keys next to it and the origin are called too.
    key: str
    #: The folder of the study file.
    folder: Path
    analysis: str = ""
    rows: str = SAME

    @classmethod
    def of(cls, key: str, parameters: dict[str, Any], folder: Path, *, cites: bool) -> Citations:
        """Return what the study says of its citations, and take it out of the parameters; refused where it ``cites`` no run."""
        analysis, rows = (parameters.pop(f"{key}_{what}", "") for what in ("analysis", "rows"))
        if rows not in ("", SAME, OTHERS) or (rows == OTHERS and not cites):
            msg = f'{key}_rows is "{OTHERS}" where the people of the cited run are not those of this study, else "{SAME}"'
            raise StudyError(msg)
        if analysis and not cites:
            msg = f'{key}_analysis names an analysis of a cited run, and {key} cites none: write {key} = "{RUN}FOLDER"'
            raise StudyError(msg)
        return cls(key, folder, str(analysis), rows or SAME)

    def read(self, cited: str) -> CitedRun:
        """Return the run of this citation; refused where nothing can rest on it."""
        run = self.folder / cited.removeprefix(RUN)
        if not (run / RECORD).is_file():
            msg = f"{self.key}: {run} holds no record of a run ({RECORD}): give the folder that `unpooled run` wrote"
            raise StudyError(msg)
        _, whole, result, _ = read_record(run)
        plan = whole.analysis(self.analysis) if self.analysis else whole
        own = result[self.analysis] if self.analysis else result
        if isinstance(own, Failed):
            msg = f"{self.key}: analysis {self.analysis!r} of {run} has no result: {own.failed}"
            raise StudyError(msg)
        if plan.analyses:
            msg = (
                f"{self.key}: {run} has several analyses: name one with {self.key}_analysis ({listed(list(plan.analyses))})"
            )
            raise StudyError(msg)
        *inputs, origin = whole.origins(self.key)
        if self.rows == OTHERS:
            origin = msgspec.structs.replace(origin.of_others(), events=())
        elif not origin.holds:
            msg = (
                f"{self.key}: no guarantee holds for {run}, so none would hold here: start from a run that has one, or say "
                f"{self.key}_rows = '{OTHERS}' if its people are not those of this study"
            )
            raise StudyError(msg)
        return CitedRun(run, plan, own, (*inputs, origin))


# --- Earlier effects -------------------------------------------------------------------------------------------------------
# ``prior`` in a study file of ``effects``: earlier estimates of the same effect, as numbers or out of an earlier run.

#: Parameters that must be those of the cited run too, for its effect to mean the same, with their defaults.
_ALIKE_EFFECTS = {
    "response": "",
    "treatment": "",
    "event": "",
    "horizon": None,
    "estimand": Estimand.ALL,
    "family": OutcomeFamily.LINEAR,
}
#: Of these the declared categories must be the same, in the same order.
_IN_ORDER = ("response", "treatment")


@dataclass(frozen=True)
class EarlierEffects:
    """The study whose effect is drawn: its parameters, and its declared columns by name."""

    parameters: Mapping[str, Any]
    columns: Mapping[str, Column]

    def of_run(self, cited: CitedRun) -> EarlierModel:
        """Return the effect that a run found."""
        run, study = cited.folder, cited.plan.study
        if study.model != "effects":
            msg = f"prior: {run} is a run of model {study.model!r}; an effect is drawn to a run of 'effects'"
            raise StudyError(msg)
        theirs, ours = ({**_ALIKE_EFFECTS, **given} for given in (study.parameters, self.parameters))
        differing = [name for name in _ALIKE_EFFECTS if theirs[name] != ours[name]]
        held = by_name(column for card in study.parties for column in card.columns)
        for role in _IN_ORDER:
            one, other = held.get(theirs[role]), self.columns.get(ours[role])
            if role not in differing and one is not None and other is not None and one.categories != other.categories:
                differing.append(f"list of categories of the {role}")
        if differing:
            msg = f"prior: {run} was run with another {listed(differing)}, so its effect would mean something else here"
            raise StudyError(msg)
        result = cited.result
        if result.effect is None:
            msg = f"prior: {run} has no effect ({result.why}): cite a run that has one"
            raise StudyError(msg)
        value = result.effect.value if result.drawn is None else result.drawn.value
        return EarlierModel(run.resolve().name, {str(ours["estimand"]): value})

    def of_rows(self, path: Path) -> EarlierModel:
        """Refuse public rows."""
        msg = f"prior: public rows ({path.name}) go without a treatment: estimate their effect yourself, and write it as a table under prior"
        raise StudyError(msg)


def by_name(columns: Iterable[Column]) -> dict[str, Column]:
    """Return columns by name, the first of each."""
    found: dict[str, Column] = {}
    for column in columns:
        found.setdefault(column.name, column)
    return found


# --- Earlier models --------------------------------------------------------------------------------------------------------
# ``prior`` in a study file of ``bayes``, ``effects``, ``glm``, ``lasso``, ``pls`` or ``pride``: earlier models, as numbers, or out of an earlier run or public rows.
#
# The study holds the numbers alone: they are public, and every party compiles its plan from them.

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
        terms = {term.term: term.estimate for term in load(study.row).reading.predicting(cited.plan, cited.result)}
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


# --- Cited -----------------------------------------------------------------------------------------------------------------
# Earlier models that a study file cites, as the numbers that the study is about.

_STACKING = "stacking"
#: The models whose ``prior`` names earlier models of coefficients.
_DRAWN = ("bayes", "effects", "glm", "lasso", "pls", "pride")
#: What must be alike for weights to mean the same: they are of scaled and coded rows.
_ALIKE_STACKS: dict[str, Any] = {
    "classes": ["-1", "1"],
    "norm": None,
    "fit_intercept": True,
    "rows": "shorten",
    "importance": {},
    "split": "features",
}


def with_cited(
    model: str, parameters: Mapping[str, Any], cards: tuple[Card, ...], folder: Path
) -> tuple[dict[str, Any], tuple[ReleasedInput, ...]]:
    """Return the parameters with the numbers of what they cite, and the origin of these; ``folder`` is that of the study file."""
    found = dict(parameters)
    if model in _DRAWN:
        given = found.get(PRIOR)
        if any(isinstance(one, str) for one in (given if isinstance(given, list) else [given])):
            # Most studies cite none, and need no families of responses.

            return with_earlier_models(model, found, cards, folder)
        Citations.of(PRIOR, found, folder, cites=False)
        return found, ()
    if model == _STACKING:
        _warn_of_former_words(found)
    key = SOURCE if SOURCE in found else PRIOR
    asked = found.get(key)
    cites = isinstance(asked, str) or (isinstance(asked, list) and any(isinstance(one, str) for one in asked))
    if not cites and model != _STACKING:
        return found, ()
    if model != _STACKING:
        msg = f"{key}: earlier models are for models {', '.join((*_DRAWN, _STACKING))}, not for {model!r}: leave it out"
        raise StudyError(msg)
    citations = Citations.of(key, found, folder, cites=cites)
    if not cites:
        return found, ()
    if not isinstance(asked, str) or not asked.startswith(RUN):
        msg = f'{key} is "{RUN}FOLDER" of an earlier run, or released weights per party'
        raise StudyError(msg)
    run = citations.read(asked)
    return found | {key: _weights(key, run, found, cards)}, run.origins


def _warn_of_former_words(parameters: Mapping[str, Any]) -> None:
    """Warn of the names that the version before had."""
    from unpooled.models.stacking.parameters import are_rates

    former = {name: name.replace(SOURCE, PRIOR, 1) for name in (SOURCE, f"{SOURCE}_rows", f"{SOURCE}_analysis")}
    if are_rates(parameters.get(PRIOR)):
        former[PRIOR] = "rates"
    for name, word in former.items():
        if name in parameters:
            warnings.warn(
                f"[parameters] {name} is {word} now; the former name works for one version", FutureWarning, stacklevel=4
            )


def _weights(key: str, cited: CitedRun, parameters: Mapping[str, Any], cards: tuple[Card, ...]) -> dict[str, list[float]]:
    """Return the weights of every party's model of an earlier run; refused where they would mean something else in this study."""
    run, study = cited.folder, cited.plan.study
    if study.model != _STACKING:
        msg = f"{key}: {run} is a run of model {study.model!r}; a stack starts from a run of stacking, which releases models to start from"
        raise StudyError(msg)
    for name, default in _ALIKE_STACKS.items():
        if parameters.get(name, default) != study.parameters.get(name, default):
            msg = f"{key}: {run} was run with another {name}, so its weights would mean something else here"
            raise StudyError(msg)
    weights = {model.party: list(model.weights) for model in cited.result.models}
    own = {card.name: card.columns for card in cards}
    for name in weights:
        if own.get(name) != study.card(name).columns:
            msg = f"{key}: {run} has a model of party {name!r}; this study needs a party of that name with the same declared columns"
            raise StudyError(msg)
    return weights
