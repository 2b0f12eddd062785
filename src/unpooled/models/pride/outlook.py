"""Outlook of a PRIDE study of some shape: the study, run over made-up rows of its columns, compared with the best that needs no release."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from scipy.special import logit

from unpooled.errors import UsageError
from unpooled.estimation.outlook import (
    Outlook,
    Range,
    check_range,
    drawn,
    in_words,
    simulated,
    without_prior,
)
from unpooled.families.gamma import Gamma
from unpooled.families.negative_binomial import NegativeBinomial
from unpooled.families.quantile import Quantile
from unpooled.kernels.survival import concordance
from unpooled.models.pride.declared import JointFamily, Parameters, places, probabilities
from unpooled.models.pride.fit import in_own_units
from unpooled.models.pride.local import own_decisions
from unpooled.models.pride.rows import estimate, response_of
from unpooled.privacy.bounds import Coding, text_of
from unpooled.privacy.plan import check_parameters
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.identity import MemoryKeeper
from unpooled.protocol.local import run_in_process
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.study import Study
    from unpooled.protocol.registry import Model

    Vector = NDArray[np.float64]
    Labels = dict[str, NDArray[Any]]


# --- Made-up rows ----------------------------------------------------------------------------------------------------------
# Made-up responses of any family: for audits by people who hold no data, and for what a study may achieve.

_TUNED = table("outlooks")
_SHAPE = _TUNED.pride_shape
#: No probability counts for less than this.
_LEAST = 1e-12


def responses(parameters: Parameters, signal: Vector, r2: float, rng: np.random.Generator) -> Labels:
    """Label columns of a family whose linear predictor is a signal of variance 1, as strong as would explain r2 of a normal response."""
    strength = math.sqrt(r2 / max(1 - r2, 1e-9))
    u, law, n = min(strength, _TUNED.pride_strongest) * signal, parameters.law, signal.size
    if parameters.has_classes:
        texts = np.array([text_of(each) for each in parameters.classes], dtype=object)
        if parameters.named == "multinomial":
            towards = np.linspace(-1.0, 1.0, texts.size)
            chosen = np.argmax(np.outer(2 * u, towards) + rng.gumbel(size=(n, texts.size)), axis=1)
        else:
            cuts = logit(np.arange(1, texts.size) / texts.size)
            chosen = np.searchsorted(cuts, strength * signal + rng.logistic(size=n))
        return {parameters.response: texts[chosen]}
    if isinstance(law, JointFamily):
        time, censored = rng.exponential(np.exp(-u)), rng.exponential(1 / _TUNED.pride_censoring, n)
        found = np.minimum(time, censored) + 1e-9
        return {parameters.response: found, parameters.event: (time <= censored).astype(np.float64)}
    mean = _TUNED.pride_mean * np.exp(u)
    if parameters.named == "poisson":
        y = rng.poisson(mean).astype(np.float64)
    elif isinstance(law, NegativeBinomial):
        y = rng.poisson(mean * rng.gamma(1 / law.dispersion, law.dispersion, n)).astype(np.float64)
    elif isinstance(law, Gamma):
        y = mean * np.maximum(rng.gamma(_SHAPE, 1 / _SHAPE, n), 1e-6)
    else:
        y = math.sqrt(r2) * signal + math.sqrt(1 - r2) * rng.normal(size=n)
    return {parameters.response: y}


def admissible_labels(study: Study, count: int, rng: np.random.Generator) -> Mapping[str, NDArray[Any]]:
    """Label columns that a study takes and that mean nothing; none where -1 and 1 suit it."""
    parameters = check_parameters(study, Parameters)
    if parameters.named in ("squared", "huber", "quantile") or parameters.fitted is not None:
        return {}
    return responses(parameters, rng.normal(size=count), 0.5, rng)


def measure(parameters: Parameters) -> tuple[str, float]:
    """Return (what an outlook of a family counts, what that is where nothing but the base rate is known)."""
    if parameters.named == "cox":
        return "1 - concordance", 0.5
    words = "check loss" if isinstance(parameters.law, Quantile) else "deviance"
    return f"{words} of new rows / that of the base rate", 1.0


def error(parameters: Parameters, labels: Labels, new: slice, decisions: NDArray[np.float64]) -> float:
    """Return the error of the decisions for new rows, which are those of the labels behind ``new``; the others were fitted on."""
    law, y = parameters.law, labels[parameters.response]
    if parameters.has_classes:
        told = places(y, parameters.classes, parameters.response).astype(np.intp)
        counts = np.bincount(told[: new.start], minlength=len(parameters.classes)) + 0.5
        if decisions.ndim == 1:
            decisions = decisions[:, None]
        chances = probabilities(parameters.named, decisions)
        truth = chances[np.arange(decisions.shape[0]), told[new]]
        base = (counts / counts.sum())[told[new]]
        return float(np.log(np.maximum(truth, _LEAST)).sum() / np.log(base).sum())
    if isinstance(law, JointFamily):
        return 1 - concordance(y[new], labels[parameters.event][new], decisions)
    base = np.full(decisions.size, law.start(y[: new.start]))
    return float(law.excess(decisions, y[new]).sum() / law.excess(base, y[new]).sum())


# --- Outlook ---------------------------------------------------------------------------------------------------------------
# Outlook of a PRIDE study of some shape: the study, run over made-up rows of its columns, compared with the best that needs no release.
#
# That is the smaller error of two: of the best party's own model (of its own columns, on the same rows), and of shares without sketches.

_ROWS, _NEW, _COLUMNS = _TUNED.whole("pride_rows"), _TUNED.whole("pride_new_rows"), _TUNED.whole("pride_columns")
#: How columns may be related: not at all, by one common factor, or as neighbours on a line.
STRUCTURES = ("independent", "common factor", "field")
SIGNAL, CORRELATION = _TUNED.pair("pride_signal"), _TUNED.pair("pride_correlation")
#: Half a declared range in standard deviations.
_RANGES = _TUNED.pride_ranges


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
    study, left = without_prior(study)
    steps = (replace(s, answer=partial(estimate, predicts=False)) if s.answer is estimate else s for s in model.steps)
    model, small = replace(model, steps=tuple(steps)), _smaller(study)
    alone = msgspec.structs.replace(small, parameters={**small.parameters, "sketch_dim": 0})

    exact: dict[int, tuple[float, float, float]] = {}

    def one(asked: Study, epsilon: float, k: int, *, own: bool = False) -> float:
        rng = np.random.default_rng([seed, k])
        asked = msgspec.structs.replace(asked, epsilon=epsilon)
        made = MadeUpStudy.of(asked, drawn(r2, rng), structure, drawn(correlation, rng), rng)
        return made.own_error() if own else made.error(model, int(rng.integers(1 << 31)))

    def run(epsilon: float, k: int) -> tuple[float, float]:
        if k not in exact:  # without noise, with no sketches, and of a party by itself
            exact[k] = one(small, math.inf, k), one(alone, math.inf, k), one(small, math.inf, k, own=True)
        return one(small, epsilon, k), exact[k][0]

    points, free = simulated(study.epsilon, run, quick=quick)
    nothing = min(float(np.mean(each)) for each in list(zip(*exact.values(), strict=True))[1:])
    classes = _is_binary(study)
    what, base = measure(check_parameters(study, Parameters))
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
        ", ".join(words + left),
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


@dataclass(frozen=True)
class MadeUpStudy:
    """One made-up study: columns and labels of all parties, of the rows to fit and of new ones behind them."""

    study: Study
    values: dict[str, Any]
    labels: dict[str, NDArray[Any]]
    #: The response as errors are measured against it.
    truth: NDArray[np.float64]

    @classmethod
    def of(cls, study: Study, r2: float, structure: str, correlation: float, rng: np.random.Generator) -> MadeUpStudy:
        """Return a study of these assumptions."""
        columns = tuple(column for card in study.parties for column in card.columns)
        values, signal = _rows(columns, study.parties[0].rows + _NEW, structure, correlation, rng)
        parameters = check_parameters(study, Parameters)
        if not (_is_binary(study) or _is_straight(study)):
            return cls(study, values, responses(parameters, signal, r2, rng), signal)
        y = math.sqrt(r2) * signal + math.sqrt(1 - r2) * rng.normal(size=signal.size)
        if not _is_binary(study):
            return cls(study, values, {parameters.response: y}, y)
        first, second = parameters.classes
        label = np.array([str(second) if one > 0 else str(first) for one in y], dtype=object)
        return cls(study, values, {parameters.response: label}, np.where(y > 0, 1.0, -1.0))

    @property
    def count(self) -> int:
        """Return the number of rows to fit."""
        return self.study.parties[0].rows

    def table(self, names: Sequence[str], labels: Sequence[str]) -> Table:
        """Return the rows to fit of some columns and labels."""
        own = {name: self.values[name][: self.count] for name in names}
        return Table(own | {name: self.labels.get(name, self.truth)[: self.count] for name in labels})

    def error(self, model: Model, seed: int) -> float:
        """Return the error of the study: everybody fits, the parts of a prediction are added up over new rows."""
        study, count = self.study, self.count
        tables = {card.name: self.table([column.name for column in card.columns], card.labels) for card in study.parties}
        asked = msgspec.structs.replace(study, simulation_seed=seed)
        plan = model.compile(asked)
        done = run_in_process(model, plan, tables, Policy.in_process(), lambda _: model)
        kept = {
            name: {key: numbers for (_, key), numbers in keeper.items()}
            for name, keeper in done.kept.items()
            if isinstance(keeper, MemoryKeeper) and asked.card(name).labels
        }
        columns = tuple(column for card in study.parties for column in card.columns)
        coded = Coding(columns, 1)
        middle = coded.real([self.values[c.name][:count] for c in columns]).mean(axis=0)
        with_constant = bool(study.parameters.get("fit_intercept", True))
        coef, constant = in_own_units(plan.design, kept, columns, middle, fit_intercept=with_constant)
        fitted = coded.natural([self.values[c.name][count:] for c in columns]) @ np.nan_to_num(coef)
        if np.size(constant) > 1 and fitted.ndim == 1:
            fitted = fitted[:, None]
        return self._missed(fitted + constant)

    def own_error(self) -> float:
        """Return the error of the best party's own model of its own columns: the family's, by evidence; for a squared loss least squares too."""
        parameters, errors = check_parameters(self.study, Parameters), []
        for card in self.study.parties:
            if not card.labels:
                continue
            response = response_of(parameters, self.table([], card.labels))
            rows = Coding(card.columns, 1).real([self.values[column.name] for column in card.columns])
            errors += [self._missed(decisions) for decisions in own_decisions(parameters, rows, response)]
        return min(errors)

    def _missed(self, decisions: NDArray[np.float64]) -> float:
        """Return the error of decisions of the new rows."""
        count = self.count
        truth = self.truth[count:]
        if _is_binary(self.study):
            return float(np.mean(np.where(decisions > 0, 1.0, -1.0) != truth))
        if _is_straight(self.study):
            return float(np.mean((truth - decisions) ** 2) / np.var(truth))
        return error(check_parameters(self.study, Parameters), self.labels, slice(count, None), decisions)


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
