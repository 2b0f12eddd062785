"""What is promised, to whom, and what is not: in plain words and as data."""

from __future__ import annotations

import html
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from unpooled.privacy.study import BOUNDS, CLASSES
from unpooled.privacy.unit import Calibration, Split, Unit

if TYPE_CHECKING:
    from unpooled.privacy.study import Study

#: Whom a unit is about, in words.
UNIT_WORDS = {
    Unit.RECORD: "one person's whole row",
    Unit.ATTRIBUTE: "one value of one person",
    Unit.HOUSEHOLD: "one household (all rows of one id)",
}
#: What changes about it, what somebody may come to believe of it, and that under zero-out.
_READ = {
    Unit.RECORD: ("this person's own row", "that it has a certain property", "that the person took part"),
    Unit.ATTRIBUTE: ("this one value", "that it is one of two", "that it was given at all"),
    Unit.HOUSEHOLD: ("this household's own rows", "that they have a certain property", "that the household took part"),
}
_DERIVED = {
    BOUNDS: "Bounds were read off the data, so no guarantee holds: the noise level itself gives values away.",
    CLASSES: "Classes were read off the data, so no guarantee holds: one person alone may decide whether a class is there.",
}
_ADJACENCY_WORDS = {
    "replace": "is replaced by any other admissible one",
    "zero-out": "is replaced by no contribution at all",
}


def _belief(epsilon: float) -> str:
    """e^epsilon / (1 + e^epsilon): from even odds, in per cent."""
    share = 1 / (1 + math.exp(-epsilon))
    return f"{100 * share:.0f} %" if share < 0.995 else f"{100 * share:.1f} %" if share < 0.9995 else "almost 100 %"  # noqa: PLR2004


def _who(study: Study, split: Split) -> str:
    """Which rows are one unit's."""
    if study.unit != Unit.HOUSEHOLD:
        words = "Each person is in one row of one party."
        return words if split is Split.HORIZONTAL else "Each person is in one row, the same at every party."
    most, anywhere = study.household_rows, any(card.household and card.household.elsewhere for card in study.parties)
    where = (
        "an id that several parties hold is protected in all its rows together"
        if anywhere or len(study.parties) == 1
        else "no id's rows at several parties count more often together, as their cards declare"
    )
    return f"At most {most} row{'s' if most > 1 else ''} of one id count in the whole study; {where}. Each person has one id, the same everywhere."


def _upward(probability: float) -> str:
    """Two digits, never below the probability."""
    step = 10.0 ** (math.floor(math.log10(probability)) - 1)
    return f"{min(1.0, math.ceil(probability / step * (1 - 1e-12)) * step):.2g}"


def _said(study: Study) -> str:
    return ", ".join(f"{earlier.what}, plan {earlier.plan[:12]}" for earlier in study.earlier)


@dataclass(frozen=True, repr=False)
class Statement:
    """The guarantee of one plan. ``str()`` gives words, :meth:`to_dict` data."""

    #: Whether any guarantee holds at all.
    holds: bool
    unit: str
    adjacency: str
    calibration: str
    epsilon: float
    delta: float
    #: The smallest epsilon proved at this delta for each unit; infinite means none.
    epsilon_per_unit: dict[str, float]
    #: A bound on the probability that the loss exceeds epsilon: not delta, but several times that (Theorem F.20).
    failure: float
    protects_against: str
    not_protected: tuple[str, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    plan: str

    @classmethod
    def of(
        cls,
        study: Study,
        split: Split,
        *,
        plan: str,
        proved: dict[str, float],
        failure: float,
        trusted: tuple[str, ...],
        public: tuple[str, ...],
        not_protected: tuple[str, ...],
        assumptions: tuple[str, ...],
        voids: tuple[str, ...],
    ) -> Statement:
        """The statement of a study's plan, of which this is the hash, what is proved for every unit, and what its model says in words."""
        sound = study.calibration == Calibration.SOUND
        holds = (
            sound and not voids and not study.derived and study.simulation_seed is None and math.isfinite(proved[study.unit])
        )
        warnings, held = list(voids), "ids" if study.unit == Unit.HOUSEHOLD else "rows"
        if study.epsilon == math.inf:
            warnings.append("epsilon is infinite: no noise was added and nothing is protected.")
        if not sound:
            warnings.append(
                "This is the published calibration, kept for comparison: its own argument does not hold, see THEORY.md."
            )
        warnings += [_DERIVED[what] for what in study.derived]
        if study.simulation_seed is not None:
            warnings.append("The noise comes from a seed that anybody can use: this is a simulation, not a protection.")
        fewest = min(card.people for card in study.parties)
        if study.delta >= 1 / fewest:
            warnings.append(
                f"delta = {study.delta:g} is at least 1/{fewest}: such a delta would allow publishing a whole unit at random."
            )
        elsewhere = (
            "every other party, the coordinator and readers of the results, alone or together"
            if split is Split.VERTICAL
            else "everybody outside the party that holds the row: other parties, the coordinator, and readers of the results"
        )
        if trusted:
            elsewhere += f"; but NOT against {' and '.join(trusted)}, trusted with more than releases"
        return cls(
            holds=holds,
            unit=study.unit,
            adjacency=study.adjacency,
            calibration=study.calibration,
            epsilon=study.epsilon,
            delta=study.delta,
            epsilon_per_unit=proved,
            failure=failure,
            protects_against=elsewhere,
            not_protected=(
                f"How many {held} each party holds, the declared columns and bounds, and that the study took place.",
                *public,
                *not_protected,
            ),
            assumptions=(
                _who(study, split),
                "Bounds were declared without looking at the data; values outside them were clipped."
                if not study.earlier
                else f"Bounds came from private releases about the same rows ({_said(study)}): epsilon holds their price too.",
                "Each party runs this software unaltered and keeps its ledger and its key file to itself.",
                "This is about this one run: every other run on the same people adds to it (a shared budget composes them, and refuses).",
                "Whatever was learnt from the same data before it, by a scaler, an imputer or by eye, is not counted.",
                *assumptions,
            ),
            warnings=tuple(warnings),
            plan=plan,
        )

    @property
    def headline(self) -> str:
        """For whom a guarantee holds, in one sentence."""
        if not self.holds:
            return "No privacy guarantee holds for this result."
        if Unit(self.unit) is not Unit.ATTRIBUTE:
            return f"A guarantee holds for {UNIT_WORDS[Unit(self.unit)]}."
        whole = self.epsilon_per_unit[Unit.RECORD]
        words = "not for a whole person" if math.isinf(whole) else f"for a whole person epsilon is {whole:.4g}"
        return f"A guarantee holds for one value of one person; {words}."

    @property
    def reading(self) -> str:
        """What epsilon means for a person: how far a belief of 50 % can move. Empty where nothing is promised."""
        if not self.holds:
            return ""
        epsilon = self.epsilon_per_unit[self.unit]
        what, *properties = _READ[Unit(self.unit)]
        property_ = properties[self.adjacency == "zero-out"]
        words = (
            f"Read: {what} can move somebody who knows everything else, and believes with 50 % {property_}, to at most "
            f"{_belief(epsilon)}"
        )
        if self.failure:
            words += f", except with a probability of at most {_upward(self.failure)}"
        if self.adjacency == "zero-out":
            words += f" (about what it is: {_belief(2 * epsilon)}{', with more exceptions' if self.failure else ''})"
        return f"{words}. What is learnt about people in general is not limited by it."

    def to_dict(self) -> dict[str, Any]:
        """The statement as plain data."""
        return asdict(self) | {"headline": self.headline, "reading": self.reading}

    def __repr__(self) -> str:
        if not self.holds:
            return "Statement(no guarantee)"
        return f"Statement(epsilon = {self.epsilon_per_unit[self.unit]:.4g}, delta = {self.delta:g} per {self.unit})"

    def _repr_html_(self) -> str:
        """For notebooks: the headline, and everything below it."""
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in str(self).splitlines() if line != self.headline)
        return f"<p><strong>{html.escape(self.headline)}</strong></p><ul>{lines}</ul>"

    def __str__(self) -> str:
        moves = f"{UNIT_WORDS[Unit(self.unit)]} {_ADJACENCY_WORDS[self.adjacency]}"
        if self.holds:
            head = (
                f"Differentially private with epsilon = {self.epsilon_per_unit[self.unit]:.4g}, delta = {self.delta:g}: "
                f"if {moves}, no published result becomes more than e^epsilon times as likely, except with probability delta."
            )
        else:
            head = "NO privacy guarantee holds for this result."
        lines = [
            head,
            *([self.headline, self.reading] if self.holds else []),
            *(f"Warning: {sentence}" for sentence in self.warnings if not self.holds),
            f"Unit: {self.unit}. Adjacency: {self.adjacency}. Calibration: {self.calibration}.",
        ]
        for unit, epsilon in self.epsilon_per_unit.items():
            if unit != self.unit or not self.holds:
                words = f"epsilon = {epsilon:.4g} at delta = {self.delta:g}" if math.isfinite(epsilon) else "none"
                lines.append(f"For {UNIT_WORDS[Unit(unit)]} the arithmetic alone gives: {words}.")
        lines.append(f"Protected against: {self.protects_against}.")
        lines += [f"NOT protected: {sentence}" for sentence in self.not_protected]
        lines += [f"Assumed: {sentence}" for sentence in self.assumptions]
        lines += [f"Warning: {sentence}" for sentence in self.warnings if self.holds]
        return "\n".join(lines)
