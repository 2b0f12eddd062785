"""``unpooled.load``: fitted models, results and moments from files, and new rows predicted by the model that a run released."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import DataError, StudyError, UsageError, listed
from unpooled.inference.saving import model_of, read_saved
from unpooled.models import REGISTRY
from unpooled.models import load as row_of
from unpooled.protocol.registry import maker, names
from unpooled.study.data import SPARSE, read_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.inference.saving import SavedFile
    from unpooled.study.reading import DataFormat


# --- Saved -----------------------------------------------------------------------------------------------------------------
# ``unpooled.load``: a fitted estimator, a result or released moments from the file that ``save`` wrote.

#: Results that are no model's own -> the module that defines them. A file names one of these, or a class that a row of the registry
#: declares (``Model.saved``). Nothing else is ever imported for it.
_RESULTS = {
    "Anova": "unpooled.inference.tables",
    "Contrast": "unpooled.inference.tables",
    "GlmSummary": "unpooled.inference.summary",
    "JointTest": "unpooled.inference.tables",
    "KaplanMeier": "unpooled.inference.life_table",
    "LinearFit": "unpooled.linear.fit",
    "LinearSummary": "unpooled.linear.inference",
    "MetaAnalysis": "unpooled.study.meta",
    "ModelResult": "unpooled.estimation.running",
    "Moments": "unpooled.linear.moments",
    "Outlook": "unpooled.estimation.outlook",
    "PooledTerm": "unpooled.inference.sites",
    "PrincipalComponents": "unpooled.linear.inference",
    "Profile": "unpooled.inference.profiles",
    "TwoStageSummary": "unpooled.linear.instruments",
}


def load(path: str | Path) -> Any:  # noqa: ANN401 - whatever was saved
    """Return the object that ``save(path)`` wrote: a fitted estimator, a result of ``describe``, a summary or fit, or moments.

    Nothing in the file runs. A damaged file is refused by its digest; a file that somebody changed on purpose, digest and all, is not distinguished
    from a true one. An estimator's plan is made again from its study, and must be the one it was fitted under.

    >>> import tempfile, unpooled
    >>> X, y = [[0.0], [0.4], [0.6], [1.0]] * 500, [0, 0, 1, 1] * 500
    >>> model = unpooled.PrivateLogisticRegression(epsilon=5.0, bounds=(0, 1), classes=(0, 1), random_state=0).fit(X, y)
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     model.save(file.name)
    ...     bool((unpooled.load(file.name).predict(X) == model.predict(X)).all())
    True
    """
    file = read_saved(path)
    home = _RESULTS.get(file.kind) or _own(file) or _elsewhere(file.kind)
    if home is None:
        msg = f"{Path(path).name}: it holds a class that this version of unpooled does not know, and no installed model declares it"
        raise DataError(msg)
    kind = getattr(importlib.import_module(home), file.kind)
    try:
        return kind._of_saved(file.body)  # noqa: SLF001 - of all savable classes
    except DataError as error:
        msg = f"{Path(path).name}: {error}"
        raise DataError(msg) from None


def homes() -> dict[str, str]:
    """Return the classes that a file of ours may hold, each with the module that defines it."""
    return _RESULTS | {kind: home for name in REGISTRY for kind, home in _declared(name).items()}


def _declared(name: str) -> dict[str, str]:
    """Return the classes that a row of the registry declares, each with the module that defines it."""
    return {kind: home for home, _, kind in (place.partition(":") for place in row_of(name).saved)}


def _own(file: SavedFile) -> str | None:
    """Return the module of a class that one of our own rows declares: that of the file's study, so that no other model is imported, else another one."""
    model = model_of(file.body)
    for name in sorted(REGISTRY, key=lambda name: name != model):
        if (home := _declared(name).get(file.kind)) is not None:
            return home
    return None


def _elsewhere(kind: str) -> str | None:
    """Return the module of a class that a model of another distribution declares; None if none does. A class that two declare is refused."""
    found: dict[str, str] = {}
    unusable: list[UsageError] = []
    for name in names():
        if not maker(name):
            continue
        try:
            row = row_of(name)
        except UsageError as error:
            unusable.append(error)
            continue
        found |= {home: maker(name) for home, _, said in (place.partition(":") for place in row.saved) if said == kind}
    if len(found) > 1:
        msg = f"class {kind!r} is declared by {listed(sorted(found.values()))}, and nobody can tell which one is meant: uninstall all but one"
        raise UsageError(msg)
    if not found and unusable:
        raise unusable[0]
    return next(iter(found), None)


# --- Predict ---------------------------------------------------------------------------------------------------------------
# New rows in a file, predicted by the model that a run released: columns are found by name and coded as the study declared them.


def predictions(
    model: Any,  # noqa: ANN401 - an estimator
    data: Path,
    id_column: str | None = None,
    form: DataFormat | None = None,
) -> dict[str, NDArray[Any]]:
    """``prediction``, for a classifier ``probability`` (of its second class), for a regression with errors ``std``; ids first, if asked for.

    Several classes have a probability each, times to an event the probability of none until each end of an interval.
    """
    import polars as pl

    if data.suffix == SPARSE:
        msg = f"{data.name}: new rows are read from CSV, Parquet, Feather or Excel"
        raise StudyError(msg)
    names = tuple(model.feature_names_in_.tolist())
    #: What the mean depends on in a known way: columns of new rows like any other.
    shifts: dict[str, str] = getattr(model, "shifted_by", {})
    table = read_table(data, (*names, *shifts.values()), id_column, form, model.declared_columns)
    columns = {name: table[name] for name in names}
    for column in model.declared_columns:
        if column.categories is None and columns[column.name].dtype == object:
            msg = f"column {column.name!r} holds text where the study declares a range: correct it, or leave the cell empty"
            raise DataError(msg).at(column=column.name)
    known = {word: table[name] for word, name in shifts.items()}
    for word, values in known.items():
        if values.dtype == object:
            msg = f"column {shifts[word]!r} holds text, or a cell is empty, where the study declares a range"
            raise DataError(msg).at(column=shifts[word])
    frame = pl.DataFrame({name: values.tolist() if values.dtype == object else values for name, values in columns.items()})
    found: dict[str, NDArray[Any]] = {}
    if id_column is not None:
        found[id_column] = np.array(table.ids(), dtype=object)
    return found | answers(model, frame, known)


def answers(model: Any, frame: Any, known: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:  # noqa: ANN401 - an estimator, a frame
    """Return the model's predictions of these rows, by the name of a column; of classes none for a row that lacks a value."""
    gaps = np.isnan(model.predict_proba(frame, **known)).any(axis=1) if hasattr(model, "classes_") else np.zeros(0, np.bool_)
    if gaps.any():
        predicted = np.full(gaps.size, None, dtype=object)
        if not gaps.all():
            whole = {word: values[~gaps] for word, values in known.items()}
            predicted[~gaps] = model.predict(frame.filter(~gaps), **whole)
    else:
        predicted = model.predict(frame, **known)
    if predicted.ndim > 1:
        responses = model.plan_.design.parameters.responses
        return {f"prediction: {name}": values for name, values in zip(responses, predicted.T, strict=True)}
    found = {"prediction": predicted}
    if hasattr(model, "classes_"):
        probabilities = model.predict_proba(frame, **known)
        if getattr(model, "family", "") == "multinomial" or len(model.classes_) > 2:  # noqa: PLR2004 - else the second one's
            return found | {f"probability: {label}": p for label, p in zip(model.classes_, probabilities.T, strict=True)}
        found["probability"] = probabilities[:, 1]
    elif hasattr(model, "predict_survival") and hasattr(model, "intervals_"):
        times = model.intervals_[1:]
        survival = model.predict_survival(frame, times)
        found |= {f"survival to {time:g}": values for time, values in zip(times.tolist(), survival.T, strict=True)}
    elif hasattr(model, "moments_") and hasattr(model, "credible_interval") and not model.moments_.narrowed:
        found["std"] = model.predict(frame, return_std=True)[1]
    return found
