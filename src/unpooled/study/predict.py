"""New rows in a file, predicted by the model that a run released: columns are found by name and coded as the study declared them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import DataError, StudyError
from unpooled.study.data import SPARSE, read_table

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from unpooled.study.reading import DataFormat


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
    """Return the model's predictions of these rows, by the name of a column."""
    predicted = model.predict(frame, **known)
    if predicted.ndim > 1:
        responses = model.plan_.design.parameters.responses
        return {f"prediction: {name}": values for name, values in zip(responses, predicted.T, strict=True)}
    found = {"prediction": predicted}
    if hasattr(model, "classes_"):
        probabilities = model.predict_proba(frame, **known)
        if getattr(model, "family", "") == "multinomial":
            return found | {f"probability: {label}": p for label, p in zip(model.classes_, probabilities.T, strict=True)}
        found["probability"] = probabilities[:, 1]
    elif hasattr(model, "predict_survival"):
        times = model.intervals_[1:]
        survival = model.predict_survival(frame, times)
        found |= {f"survival to {time:g}": values for time, values in zip(times.tolist(), survival.T, strict=True)}
    elif hasattr(model, "moments_") and hasattr(model, "credible_interval") and not model.moments_.narrowed:
        found["std"] = model.predict(frame, return_std=True)[1]
    return found
