"""Privacy statements: the guarantee, the people it holds for, and its limits, in plain words and as data."""

from __future__ import annotations

import html
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from unpooled.errors import listed
from unpooled.privacy.exposure import account
from unpooled.privacy.origin import BOUNDS_INPUT, INPUT_WORDS, OTHERS, SAME, DeclaredInput, DerivedInput
from unpooled.privacy.study import BOUNDS, CLASSES
from unpooled.privacy.unit import Adjacency, Calibration, Split, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from unpooled.privacy.origin import ReleasedInput
    from unpooled.privacy.sentence import Sentence
    from unpooled.privacy.study import Study

#: Whom a unit is about, in words.
UNIT_WORDS = {
    Unit.RECORD: "one person's whole row",
    Unit.ATTRIBUTE: "one value of one person",
    Unit.HOUSEHOLD: "one household (all rows of one id)",
}
#: The largest epsilon for a whole person at which a page shows a guarantee in the colour of a good one.
STRONG = 10.0
#: Of a unit: what an attacker knows, and what the attacker thinks likely under each adjacency.
_KNOWS = {
    Unit.RECORD: "everyone else's data",
    Unit.ATTRIBUTE: "all data but this one value",
    Unit.HOUSEHOLD: "the data of all other households",
}
_THINKS = {
    Adjacency.REPLACE: {
        Unit.RECORD: "that this person has a certain condition",
        Unit.ATTRIBUTE: "that it is one of two values",
        Unit.HOUSEHOLD: "that this household has a certain property",
    },
    Adjacency.ZERO_OUT: {
        Unit.RECORD: "that this person took part",
        Unit.ATTRIBUTE: "that it was given at all",
        Unit.HOUSEHOLD: "that this household took part",
    },
}
_DERIVED = {
    BOUNDS: "Bounds were read off the data, so no guarantee holds: the noise level itself reveals values.",
    CLASSES: "Classes were read off the data, so no guarantee holds: one person may decide whether a class is present.",
}
_ADJACENCY_WORDS = {
    Adjacency.REPLACE: "is replaced by any other admissible one",
    Adjacency.ZERO_OUT: "is replaced by no contribution at all",
}
#: What the parties hold, in words.
SPLIT_WORDS = {
    Split.VERTICAL: "columns of the same people",
    Split.HORIZONTAL: "rows of different people",
}
#: Which rows are a person's, and whom the guarantee protects against, by what the parties hold.
_PERSON_WORDS = {
    Split.HORIZONTAL: "Each person is in one row of one party.",
    Split.VERTICAL: "Each person is in one row, the same at every party.",
}
#: The same where nobody knows which people the parties have in common, and what is not protected there.
_HIDDEN_PERSON = "One id is one person everywhere, and stands once in a list."
_HIDDEN_HELD = (
    "The number of places that lists have, who is eligible, the declared columns and bounds, and the fact that the study took place. Everybody on a list is "
    "charged, in the study or not."
)
_AGAINST_WORDS = {
    Split.VERTICAL: "all other parties, {} and readers of the results, alone or together",
    Split.HORIZONTAL: "everyone outside the party that holds the row: other parties, {} and readers of the results",
}


def belief(epsilon: float) -> str:
    """Return e^epsilon / (1 + e^epsilon) in per cent: the largest belief after starting from even odds."""
    share = 1 / (1 + math.exp(-epsilon))
    return f"{100 * share:.0f} %" if share < 0.995 else f"{100 * share:.1f} %" if share < 0.9995 else "almost 100 %"  # noqa: PLR2004


def _who(study: Study, split: Split) -> str:
    """Return the sentence that says which rows belong to one unit of the study."""
    if study.hidden:
        return _HIDDEN_PERSON
    if study.unit != Unit.HOUSEHOLD:
        capped = all(card.capped for card in study.parties)
        return "Each person is in at most one row of every party." if capped else _PERSON_WORDS[split]
    most, anywhere = study.household_rows, any(card.household and card.household.elsewhere for card in study.parties)
    anywhere = anywhere or study.whole.household_rows > 1
    where = (
        "an id that several parties hold is protected in all its rows together"
        if anywhere or len(study.parties) == 1
        else "the parties' cards declare that no id has rows at several parties"
    )
    return f"At most {most} row{'s' if most > 1 else ''} of one id count in the whole study; {where}. Each person has one id, the same everywhere."


def _against(study: Study, split: Split, against: str, excepted: tuple[str, ...]) -> str:
    """Return whom the guarantee protects against, in words, and whom not: by who takes part, and by whose keys they have."""
    own = [card.name for card in study.members if card.key and card.key == study.coordinator]
    coordinator = f"the coordinator (which is {own[0]} itself, and sees its own rows)" if own else "the coordinator"
    found = against.replace("the coordinator", coordinator, 1) if against else _AGAINST_WORDS[split].format(coordinator)
    found += f"; NOT against {' or '.join(excepted)}" if excepted else ""
    if study.in_process and len(study.members) > 1:
        found += "; here all parties are in one process, and the one who runs it holds the rows of all"
    return found


def upward(probability: float) -> str:
    """Return the probability with two digits, rounded upward."""
    step = 10.0 ** (math.floor(math.log10(probability)) - 1)
    return f"{min(1.0, math.ceil(probability / step * (1 - 1e-12)) * step):.2g}"


def _from_plan(origin: ReleasedInput, study: Study) -> str:
    """Return the input of a study that an earlier plan released, with that plan, its cost to the study's people, and whether it holds."""
    parts, words = origin.parts(Unit(study.unit)), ""
    if origin.rows == SAME and not origin.holds:
        words = ", no guarantee"
    elif parts:
        words = f", epsilon = {account([parts]).epsilon(study.delta):.4g}"
    elif origin.rows == SAME:
        words = ", whose own statement holds its cost"
    return f"{INPUT_WORDS[origin.input]} (plan {origin.plan[:12]}{words})"


def _of_origins(study: Study) -> Iterator[str]:
    """Yield what is assumed of the study's public inputs: what was declared, what was released and paid for, what is other people's."""
    declared: dict[str, list[str]] = {}
    for what, origins in study.inputs.items():
        for origin in origins:
            if isinstance(origin, DeclaredInput) and what != BOUNDS_INPUT:
                declared.setdefault(origin.by, []).append(INPUT_WORDS[what])
    bounds, by = study.inputs[BOUNDS_INPUT], "the parties' cards"
    if all(isinstance(origin, DeclaredInput) for origin in bounds):
        yield f"Bounds were declared by {by} without looking at the data. Values outside them are clipped."
    elif DerivedInput() not in bounds:
        yield f"Bounds that no release supplied were declared by {by} before anybody saw the data. Values outside them are clipped."
    for who, inputs in declared.items():
        yield f"Declared by {who}, and checked by nothing here: {listed(inputs)}. They are public, or were computed without these rows."
    if paid := [_from_plan(origin, study) for origin in study.origins if origin.rows == SAME]:
        yield f"Earlier releases about the same people supplied {', '.join(paid)}. The epsilon above includes the costs that are named here."
    if others := [_from_plan(origin, study) for origin in study.origins if origin.rows == OTHERS]:
        yield (
            f"Other people's data supplied {', '.join(others)}: none of them is in this study. The analyst declares this; nothing here checks it."
        )


def _voided(study: Study) -> Iterator[str]:
    """Yield why nothing holds for a study with such inputs: they were read off the data, or a plan without a guarantee released them."""
    yield from (_DERIVED[what] for what, origins in study.inputs.items() if DerivedInput() in origins)
    for origin in study.origins:
        if origin.voids:
            words = f"{INPUT_WORDS[origin.input]} (plan {origin.plan[:12]})"
            yield f"No guarantee holds for the plan that released {words}, so none holds for a result that is computed from it."


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
    #: Whether it is about one analysis of a study, which costs more.
    alone: bool = field(default=False, kw_only=True)
    #: Whether delta is so large that it would allow publishing a whole unit of some party at random.
    coarse: bool = field(default=False, kw_only=True)
    #: Whether the study links rows: then it tells membership exactly, and has no epsilon.
    links: bool = False
    #: What stays hidden although the study tells something exactly, or is about people of whom nobody knows who has them.
    hidden: tuple[str, ...] = ()
    #: The only ones against whom it protects, in words, where others could learn rows by departing from the protocol; mostly empty.
    only_against: str = ""
    #: Those against whom it does not protect, in words: who is trusted with more than releases, and who could read rows together.
    excepted: tuple[str, ...] = field(default=(), kw_only=True)

    @classmethod
    def of(
        cls,
        study: Study,
        split: Split,
        *,
        plan: str,
        proved: dict[str, float],
        failure: float,
        said: Mapping[str, tuple[Sentence, ...]],
        links: bool = False,
        against: str = "",
        only_against: str = "",
        excepted: tuple[str, ...] = (),
    ) -> Statement:
        """Return the statement of a study's plan from the plan's hash, the epsilon proved for every unit, and what its fields of sentences say.

        ``against``: whom it protects against, where that does not follow from the split. ``only_against``: see the field of this name.
        ``excepted``: those against whom it does not protect although they are not trusted.
        """
        voids, trusted = said["voids"], said["trusted"]
        sound = study.calibration == Calibration.SOUND
        hollow = any(origin.voids for origins in study.inputs.values() for origin in origins)
        firm = not (voids or hollow) and study.simulation_seed is None
        holds = sound and firm and math.isfinite(proved[study.unit])
        warnings, held = [str(sentence) for sentence in voids], "ids" if study.unit == Unit.HOUSEHOLD else "rows"
        capped = all(card.capped for card in study.parties)
        many, verb = ("The most rows that", "may hold") if capped else (f"How many {held}", "holds")
        if study.epsilon == math.inf and not links:
            warnings.append("epsilon is infinite: no noise was added and nothing is protected.")
        if not sound:
            warnings.append(
                "This is the calibration that the paper published, kept for comparison. Its proof fails (THEORY.md)."
            )
        warnings += _voided(study)
        if study.simulation_seed is not None:
            warnings.append("The noise comes from a public seed. This is a simulation and protects nobody.")
        fewest = min(card.people for card in study.parties)
        if study.delta >= 1 / fewest:
            warnings.append(
                f"delta = {study.delta:g} is at least 1/{fewest}: such a delta would allow publishing a whole unit at random."
            )
        elsewhere = _against(study, split, against, excepted)
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
                _HIDDEN_HELD
                if study.hidden
                else f"{many} each party {verb}, the declared columns and bounds, and the fact that the study took place.",
                *map(str, said["public"]),
                *map(str, said["not_protected"]),
            ),
            assumptions=(
                _who(study, split),
                *_of_origins(study),
                "Every party runs this software unaltered and keeps its ledger and its key file private.",
                "This statement is about this run only. Every other run on the same people adds to their loss; a shared budget adds up all runs.",
                "Anything learned earlier from the same data, by a scaler, an imputer or by eye, is not counted.",
                *map(str, said["assumptions"]),
            ),
            warnings=tuple(warnings),
            plan=plan,
            links=links,
            coarse=study.delta >= 1 / fewest,
            alone=bool(study.within),
            hidden=tuple(map(str, said["hidden"])),
            only_against=only_against,
            excepted=(*excepted, *map(str, trusted)),
        )

    @property
    def headline(self) -> str:
        """Return one sentence that says for whom a guarantee holds."""
        if self.links:
            return self.warnings[0]
        if not self.holds:
            return "No privacy guarantee holds for this result."
        if Unit(self.unit) is not Unit.ATTRIBUTE:
            only = f", only against {self.only_against}" if self.only_against else ""
            return f"A guarantee holds for {UNIT_WORDS[Unit(self.unit)]}{only}."
        value = f"epsilon = {self.epsilon_per_unit[Unit.ATTRIBUTE]:.4g} for {UNIT_WORDS[Unit.ATTRIBUTE]}"
        return f"A guarantee holds: {value}; {self._whole}."

    @property
    def _whole(self) -> str:
        """Return the epsilon of the whole person, for a statement about one value."""
        whole = self.epsilon_per_unit[Unit.RECORD]
        return "none for the whole person" if math.isinf(whole) else f"epsilon = {whole:.4g} for the whole person"

    @property
    def strength(self) -> Literal["good", "caution", "none"]:
        """Return how strong the weakest promise is, by which pages colour it.

        "good": a guarantee holds against everybody, nobody excepted, and for the whole person (or the whole household, where that is protected) epsilon is at
        most :data:`STRONG` with a delta below one in the number of people. "caution": a guarantee holds, and it is weaker. "none": none holds.
        """
        if not self.holds:
            return "none"
        whole = max(epsilon for unit, epsilon in self.epsilon_per_unit.items() if unit in {Unit.RECORD, self.unit})
        weaker = whole > STRONG or self.coarse or self.only_against or self.excepted
        return "caution" if weaker else "good"

    @property
    def reading(self) -> str:
        """Return the meaning of epsilon for a person: the most that an attacker's belief of 50 % can rise to. Empty where nothing is promised."""
        if not self.holds:
            return ""
        epsilon = self.epsilon_per_unit[self.unit]
        unit, adjacency = Unit(self.unit), Adjacency(self.adjacency)
        knows, thinks = _KNOWS[unit], _THINKS[adjacency][unit]
        words = (
            f"Suppose an attacker knows {knows} and thinks there is a 50 % chance {thinks}. After seeing the results, the attacker's estimate "
            f"can rise to at most {belief(epsilon)}"
        )
        if self.failure:
            words += f", except with a probability of at most {upward(self.failure)}"
        if adjacency is Adjacency.ZERO_OUT:
            words += (
                f" (for a property of the data: {belief(2 * epsilon)}{', with more exceptions' if self.failure else ''})"
            )
        return f"{words}. Epsilon does not limit what the results say about people in general."

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as plain data."""
        said = asdict(self)
        del said["alone"], said["coarse"], said["excepted"]
        return said | {"headline": self.headline, "reading": self.reading}

    def __repr__(self) -> str:
        if not self.holds:
            return "Statement(no guarantee)"
        whole = f"; {self._whole}" if Unit(self.unit) is Unit.ATTRIBUTE else ""
        return f"Statement(epsilon = {self.epsilon_per_unit[self.unit]:.4g}, delta = {self.delta:g} per {self.unit}{whole})"

    def _repr_html_(self) -> str:
        """For notebooks: the headline, and everything below it."""
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in str(self).splitlines() if line != self.headline)
        return f"<p><strong>{html.escape(self.headline)}</strong></p><ul>{lines}</ul>"

    def __str__(self) -> str:
        moves = f"{UNIT_WORDS[Unit(self.unit)]} {_ADJACENCY_WORDS[Adjacency(self.adjacency)]}"
        if self.holds:
            only = f", only against {self.only_against}" if self.only_against else ""
            factor = "e^epsilon"
            if Unit(self.unit) is Unit.ATTRIBUTE:
                only += f" for {UNIT_WORDS[Unit.ATTRIBUTE]}, and {self._whole}"
                factor = f"e^{self.epsilon_per_unit[self.unit]:.4g}"
            whose = "This analysis alone is differentially" if self.alone else "Differentially"
            head = (
                f"{whose} private with epsilon = {self.epsilon_per_unit[self.unit]:.4g}, delta = {self.delta:g}{only}: "
                f"if {moves}, the probability of any published result grows by at most a factor of {factor}, plus delta."
            )
        else:
            head = "NO privacy guarantee holds for this result."
        if self.links:
            return "\n".join(self._of_linking())
        lines = [
            head,
            *([self.headline, self.reading] if self.holds else []),
            *(f"Warning: {sentence}" for sentence in self.warnings if not self.holds),
            f"Unit: {self.unit}. Adjacency: {self.adjacency}. Calibration: {self.calibration}.",
        ]
        for unit, epsilon in self.epsilon_per_unit.items():
            if unit != self.unit or not self.holds:
                words = f"epsilon = {epsilon:.4g} at delta = {self.delta:g}" if math.isfinite(epsilon) else "none"
                lines.append(f"For {UNIT_WORDS[Unit(unit)]}, the arithmetic alone gives: {words}.")
        if self.holds:  # nobody is protected against anybody by a promise that does not hold
            lines.append(f"Protected against: {self.protects_against}.")
            lines += [f"Protected: {sentence}" for sentence in self.hidden]
        lines += [f"NOT protected: {sentence}" for sentence in self.not_protected]
        lines += [f"Assumed: {sentence}" for sentence in self.assumptions]
        lines += [f"Warning: {sentence}" for sentence in self.warnings if self.holds]
        return "\n".join(lines)

    def _of_linking(self) -> Iterator[str]:
        """Yield the lines of a study that links rows: what it tells, and what it keeps hidden."""
        yield self.headline
        yield from (f"Warning: {sentence}" for sentence in self.warnings[1:])
        yield from (f"Told: {sentence}" for sentence in self.not_protected)
        yield from (f"Hidden: {sentence}" for sentence in self.hidden)
        yield from (f"Assumed: {sentence}" for sentence in self.assumptions)
