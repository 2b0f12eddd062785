"""Outlook of a PRIDE study of some shape: the study, run over made-up rows of its columns, compared with nothing released."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.estimation.outlook import Outlook, Range, check_range, drawn, in_words, simulated
from unpooled.models.pride import made_up
from unpooled.models.pride.parameters import Parameters
from unpooled.models.pride.units import in_own_units
from unpooled.privacy.bounds import Coding
from unpooled.privacy.plan import check_parameters
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.keeper import MemoryKeeper
from unpooled.protocol.local import run_in_process

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.study import Study
    from unpooled.protocol.step import Model

#: Made-up rows of a fit and of its test, and columns of all parties together.
_ROWS, _NEW, _COLUMNS = 300, 1000, 160
#: How columns may be related: not at all, by one common factor, or as neighbours on a line.
STRUCTURES = ("independent", "common factor", "field")
SIGNAL, CORRELATION = (0.2, 0.9), (0.2, 0.7)
#: Half a declared range in standard deviations.
_RANGES = 4.0


def outlook(
    model: Model,
    study: Study,
    *,
    r2: Range = SIGNAL,
    structure: str = "common factor",
    correlation: Range = CORRELATION,
    seed: int = 0,
    quick: bool = False,
) -> Outlook:
    """Return squared error of predictions over the variance of y (misclassified rows of two classes, deviance of other families), against epsilon.

    ``structure`` says how all parties' columns are related, ``correlation`` how closely (of neighbours on a field, in the place of a factor).
    """
    if study.parameters.get("fitted"):
        raise UsageError(
            "a study of new rows fits nothing, so it has no outlook of its own: ask for that of the study that fitted"
        )
    check_range("r2", r2, 0.0, 1.0)
    check_range("correlation", correlation, 0.0, 0.999)
    if structure not in STRUCTURES:
        msg = f"structure is one of {', '.join(STRUCTURES)}, not {structure!r}"
        raise UsageError(msg)
    small = _smaller(study)
    alone = msgspec.structs.replace(small, parameters={**small.parameters, "sketch_dim": 0})

    exact: dict[int, tuple[float, float]] = {}

    def one(asked: Study, epsilon: float, k: int) -> float:
        rng = np.random.default_rng([seed, k])
        asked = msgspec.structs.replace(asked, epsilon=epsilon)
        return _error(model, asked, drawn(r2, rng), structure, drawn(correlation, rng), rng)

    def run(epsilon: float, k: int) -> tuple[float, float]:
        if k not in exact:  # without noise, and with nothing released
            exact[k] = one(small, math.inf, k), one(alone, math.inf, k)
        return one(small, epsilon, k), exact[k][0]

    points, free = simulated(study.epsilon, run, quick=quick)
    nothing = float(np.mean([own for _, own in exact.values()]))
    classes = _is_binary(study)
    what, base = made_up.measure(check_parameters(study, Parameters))
    if classes or _is_straight(study):
        what, base = ("misclassified rows", 0.5) if classes else ("squared error of predictions / variance of y", 1.0)
    words = [in_words("R^2", r2), structure, in_words("correlation", correlation), f"half range in deviations {_RANGES:g}"]
    return Outlook(
        "pride",
        study.parties[0].rows,
        sum(len(card.columns) for card in study.parties),
        study.epsilon,
        points,
        base,
        free,
        what,
        ", ".join(words),
        nothing,
    )


def _is_binary(study: Study) -> bool:
    return check_parameters(study, Parameters).named == "logistic"


def _is_straight(study: Study) -> bool:
    """Return True if predictions are of the response itself."""
    return check_parameters(study, Parameters).named in ("squared", "huber")


def _smaller(study: Study) -> Study:
    """Return the study in one process over fewer rows and columns; noise is per value, so neither changes it."""
    width = sum(len(card.columns) for card in study.parties)
    free = not isinstance(study.parameters.get("sketch_dim", "auto"), int) and study.parameters.get("sketch", "srht") in {
        "srht",
        "gaussian",
    }
    part = min(1.0, _COLUMNS / width) if free and not study.parameters.get("public") else 1.0
    cards = tuple(
        msgspec.structs.replace(
            card, key="", rows=min(card.rows, _ROWS), columns=card.columns[: max(2, math.ceil(part * len(card.columns)))]
        )
        for card in study.parties
    )
    return msgspec.structs.replace(study, parties=cards, ids="", coordinator="", derived=())


def _error(model: Model, study: Study, r2: float, structure: str, correlation: float, rng: np.random.Generator) -> float:
    """Return one made-up study: everybody fits, the parts of a prediction are added up over new rows."""
    count = study.parties[0].rows
    columns = tuple(column for card in study.parties for column in card.columns)
    values, signal = _rows(columns, count + _NEW, structure, correlation, rng)
    parameters = check_parameters(study, Parameters)
    binary, plain = _is_binary(study), _is_straight(study)
    labels = {} if binary or plain else made_up.responses(parameters, signal, r2, rng)
    truth = signal
    if binary or plain:
        y = math.sqrt(r2) * signal + math.sqrt(1 - r2) * rng.normal(size=signal.size)
        truth = np.where(y > 0, 1.0, -1.0) if binary else y
        label: NDArray[Any] = truth
        if binary:
            first, second = parameters.classes
            label = np.array([str(second) if one > 0 else str(first) for one in truth], dtype=object)
        labels = {parameters.response: label}
    tables = {}
    for card in study.parties:
        own = {column.name: values[column.name][:count] for column in card.columns}
        told = {name: labels.get(name, truth)[:count] for name in card.labels}
        tables[card.name] = Table(own | told)
    asked = msgspec.structs.replace(study, simulation_seed=int(rng.integers(1 << 31)))
    plan = model.compile(asked)
    done = run_in_process(model, plan, tables, Policy.in_process(), lambda _: model)
    kept = {
        name: {key: numbers for (_, key), numbers in keeper.items()}
        for name, keeper in done.kept.items()
        if isinstance(keeper, MemoryKeeper) and asked.card(name).labels
    }
    coded = Coding(columns, 1)
    middle = coded.real([values[c.name][:count] for c in columns]).mean(axis=0)
    with_constant = bool(study.parameters.get("fit_intercept", True))
    coef, constant = in_own_units(plan.design, kept, columns, middle, fit_intercept=with_constant)
    fitted = coded.natural([values[c.name][count:] for c in columns]) @ np.nan_to_num(coef)
    if np.size(constant) > 1 and fitted.ndim == 1:
        fitted = fitted[:, None]
    fitted = fitted + constant
    if not binary and not plain:
        return made_up.error(parameters, labels, slice(count, None), fitted)
    if binary:
        return float(np.mean(np.where(fitted > 0, 1.0, -1.0) != truth[count:]))
    return float(np.mean((truth[count:] - fitted) ** 2) / np.var(truth[count:]))


def _rows(
    columns: tuple[Column, ...], count: int, structure: str, correlation: float, rng: np.random.Generator
) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Return made-up columns inside their ranges, and a signal of variance 1 that a few of them carry."""
    width = len(columns)
    normal = rng.normal(size=(count, width))
    if structure == "common factor":
        normal = math.sqrt(1 - correlation) * normal + math.sqrt(correlation) * rng.normal(size=(count, 1))
    if structure == "field":
        for j in range(1, width):
            normal[:, j] = correlation * normal[:, j - 1] + math.sqrt(1 - correlation**2) * normal[:, j]
    values: dict[str, Any] = {}
    for column, own in zip(columns, normal.T, strict=True):
        if column.categories is not None:
            places = np.searchsorted(np.quantile(own, np.linspace(0, 1, len(column.categories) + 1)[1:-1]), own)
            values[column.name] = np.array(column.categories, dtype=object)[places]
            own[:] = (places - places.mean()) / max(places.std(), 1e-9)
        else:
            values[column.name] = np.clip(column.centre + column.half_width * own / _RANGES, *column.range)
    signal = normal @ rng.normal(size=width)
    return values, signal / signal.std()
