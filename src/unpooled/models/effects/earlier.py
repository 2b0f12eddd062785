"""An effect with earlier estimates of the same effect: which ones a study takes, and how far it is drawn to them (THEORY.md, section 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import StudyError, listed
from unpooled.estimation.earlier import declared_columns
from unpooled.inference.priors import (
    DrawnTo,
    EarlierModel,
    Pull,
    Told,
    drawn_to,
    named,
    rows_of,
)
from unpooled.models.effects.declared import Estimand, OutcomeFamily
from unpooled.models.effects.result import DrawnEffect

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from unpooled.estimation.earlier import CitedRun, ReadRows
    from unpooled.models.effects.declared import DeclaredEffect
    from unpooled.models.effects.result import EffectNumber
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Card

#: A typical effect is one deviation of the outcome, whose declared range is about four.
_DEVIATIONS_OF_RANGE = 4.0


def drawn_effect(declared: DeclaredEffect, alone: EffectNumber | None) -> DrawnEffect | None:
    """Return the posterior of an effect about earlier ones; None without any, or where the data do not tell the effect."""
    p = declared.parameters
    if alone is None or not p.prior:
        return None
    # An effect without noise and without chance would have an endless precision.
    variance = max(alone.std_error, 1e-9 * declared.widest) ** 2
    told = Told(np.array([[1 / variance]]), np.array([alone.value / variance]))
    there = rows_of(p.prior, (p.estimand,), intercept=False)
    typical = declared.widest / _DEVIATIONS_OF_RANGE
    mean, covariance, weights, deviations = drawn_to(told, there, np.array([True]), typical)
    pull = Pull(p.estimand, float(mean[0]), alone.value)
    return DrawnEffect(float(mean[0]), math.sqrt(covariance[0, 0]), DrawnTo(named(p.prior, weights, deviations), (pull,)))


# --- Cited -----------------------------------------------------------------------------------------------------------------
# ``prior`` in a study file: earlier estimates of the same effect, as numbers or out of an earlier run.

#: Parameters that must be those of the cited run too, for its effect to mean the same, with their defaults.
_ALIKE = {
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
        theirs, ours = ({**_ALIKE, **given} for given in (study.parameters, self.parameters))
        differing = [name for name in _ALIKE if theirs[name] != ours[name]]
        held = declared_columns(study.parties)
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

    def of_rows(self, path: Path, read: ReadRows) -> EarlierModel:  # noqa: ARG002 - it reads none
        """Refuse public rows."""
        msg = f"prior: public rows ({path.name}) go without a treatment: estimate their effect yourself, and write it as a table under prior"
        raise StudyError(msg)


def earlier(parameters: Mapping[str, Any], cards: tuple[Card, ...]) -> EarlierEffects:
    """Return how a study of these parameters and cards takes earlier effects."""
    return EarlierEffects(parameters, declared_columns(cards))
