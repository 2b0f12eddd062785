"""``prior`` in a study file of ``effects``: earlier estimates of the same effect, as numbers or out of an earlier run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unpooled.aggregation.priors import EarlierModel
from unpooled.errors import StudyError, listed
from unpooled.models.effects.declared import Estimand, OutcomeFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from unpooled.privacy.bounds import Column
    from unpooled.study.cited_runs import CitedRun

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
