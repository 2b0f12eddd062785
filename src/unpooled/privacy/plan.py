"""The plan of releases that a study compiles to, fixed before anybody looks at data.

A :class:`Study` is public text turned into data. A model's ``compile`` makes a :class:`Plan` of it, and every party makes the
same plan for itself: it takes bounds, sensitivities, scales and budgets from its own plan, never from the wire.
"""

from __future__ import annotations

import hashlib
import html
import math
from copy import copy
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self

import msgspec

from unpooled.errors import UsageError, listed
from unpooled.privacy.exposure import BETWEEN, Exposure, Release, Releases, Worst, account, alternatives
from unpooled.privacy.origin import PastEvent, ReleasedInput, by_draw, sourced
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.statement import Statement
from unpooled.privacy.study import (
    AGGREGATION,
    ALIGNED,
    ANALYSES,
    BOUNDS,
    CLASSES,
    MOST_ROWS,
    TRUSTED,
    TRUSTING,
    Card,
    HelperCard,
    Household,
    Study,
    check_parameters,
    default_delta,
)
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import TypeVar

    #: What a model makes of a study; a plan of no particular model is ``Plan``.
    Design = TypeVar("Design", default=Any)
else:
    from typing import TypeVar

    Design = TypeVar("Design")

#: Raised whenever the meaning of a plan changes, so that an old approval never covers a new meaning (docs/decisions/0048).
PLAN_VERSION = 4
_LINKED = Sentence(
    "plan.linked",
    "Who is in the data: an earlier study linked the rows. It told every party, without noise, which of its ids all parties hold.",
)
#: Whom joint moments without proofs protect against.
_HONEST = "parties that follow the protocol"
_REMADE = Sentence(
    "plan.remade",
    "This statement was worked out again from the study by a later version of unpooled than the one that ran it.",
)
_PART = Sentence(
    "plan.part",
    "This statement is about one analysis alone. The study that contains it releases more, and its own statement counts all of it.",
)
#: How many releases a notebook shows.
_SHOWN = 30
#: The fields of a plan that hold sentences.
_SENTENCES = ("public", "not_protected", "assumptions", "voids", "trusted", "hidden")


@dataclass(frozen=True, repr=False)
class Plan(Releases, Generic[Design]):
    """The releases of a study, and everything that is said about them."""

    #: Sentences about what leaves a party without noise, and why that is allowed.
    public: tuple[Sentence, ...] = ()
    #: Sentences about what this model does not protect.
    not_protected: tuple[Sentence, ...] = ()
    #: Sentences about what must be true for the guarantee to hold.
    assumptions: tuple[Sentence, ...] = ()
    #: Sentences about why no guarantee holds at all (a published calibration, raw values sent to somebody); mostly none.
    voids: tuple[Sentence, ...] = ()
    #: Sentences about what stays hidden where a study tells something exactly.
    hidden: tuple[Sentence, ...] = ()
    #: How it is computed, for people: no part of the hash, for it follows from the study.
    notes: tuple[str, ...] = field(default=(), compare=False)
    #: What the model made of the study. It follows from the study, so it is no part of the hash.
    design: Design = field(default=None, compare=False, repr=False)  # type: ignore[assignment]
    #: Who sees more than releases, and is trusted with it: nobody, or names in words.
    trusted: tuple[Sentence, ...] = ()
    #: Whether it links rows between parties. It follows from the model, so it is no part of the hash.
    links: bool = field(default=False, compare=False)
    #: Whether it links rows and tells no party and no coordinator who is on another list: then it has an epsilon. It follows from the model too.
    hides: bool = field(default=False, compare=False)
    #: What a policy must say where parties send each other masked rows: "allowed", or "trusting" where nothing proves that rows are short; empty
    #: where no rows travel. It follows from the model, so it is no part of the hash.
    joint: str = field(default="", compare=False)
    #: Whom it protects against, in words, where that does not follow from the split. It follows from the model, so it is no part of the hash.
    against: str = field(default="", compare=False)
    #: Those against whom it does not protect although they are not trusted, in words. They follow from the model, so they are no part of the hash.
    excepted: tuple[str, ...] = field(default=(), compare=False)
    #: The hash under which an older version of unpooled ran this study: then results of that run are read, and nothing is run.
    formerly: str = field(default="", compare=False)
    #: The distribution and version of a model that is not one of unpooled's own, such as "private-correlation 0.1.0".
    maker: str = ""
    #: The plans that it contains, by name. They follow from the study, so they are no part of the hash.
    parts: Mapping[str, Plan] = field(default_factory=dict, compare=False, repr=False)
    #: The name of the draw: of the run that released what this plan lists. Empty before it ran. No part of the hash: one plan may be drawn twice.
    draw: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in _SENTENCES:
            if not all(isinstance(sentence, Sentence) for sentence in getattr(self, name)):
                msg = f"{name} of a plan holds sentences with a key: Sentence('model.key', 'The words, with {{values}}.', values=..)"
                raise UsageError(msg)
        unkeyed = not all(card.key for card in self.study.parties) and not (self.study.hidden and self.study.in_process)
        if self.study.ids and (not self.split.shares_people or unkeyed):
            msg = (
                "a card of linked rows is for studies of several parties' columns: for rows that are split use the card of the party's first file"
                if any(card.linked for card in self.study.parties)
                else 'ids = "aligned" (or "psi:...") compares the rows of a column-split study between parties whose cards carry a key: leave it out, '
                "or use the cards that `unpooled party init` writes"
            )
            raise UsageError(msg)

    @cached_property
    def hash(self) -> str:
        """Return SHA-256 of everything that defines the plan, in hex: what a party approves.

        Of each sentence it holds the key and the values, never the words. What has its default is not written, so that a field that comes
        later leaves the hashes of plans without it alone.
        """
        releases = [
            (r.name, r.party, r.step, r.count, _exact(_spelled(r.exposure)), _exact(r.mechanism.describe()))
            for r in self.releases
        ]
        content = {
            "version": PLAN_VERSION,
            "study": _exact(_said(self.study)),
            "split": self.split,
            "releases": releases,
            "sentences": {name: [_exact(s.identity) for s in said] for name in _SENTENCES if (said := getattr(self, name))},
            **({"maker": self.maker} if self.maker else {}),
        }
        return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()

    @property
    def discloses(self) -> bool:
        """Return True if it tells exactly who is in common: then it has no epsilon."""
        return self.links and not self.hides

    @property
    def analyses(self) -> Mapping[str, Plan]:
        """Return the parts that have a result of their own: the analyses of a study that contains several; else none."""
        return self.parts if self.study.model == ANALYSES else {}

    def part(self, step: str) -> tuple[Plan, str]:
        """Return the plan and the name of a step there: of the part that the step belongs to, or of this very plan."""
        name, between, own = step.partition(BETWEEN)
        return self.parts[name].part(own) if between and name in self.parts else (self, step)

    def prefix_of(self, part: Plan) -> str | None:
        """Return the beginning that the names of a part's releases have here; empty for this very plan, None for a plan that is no part of it."""
        if part is self:
            return ""
        for name, own in self.parts.items():
            if (inner := own.prefix_of(part)) is not None:
                return f"{name}{BETWEEN}{inner}"
        return None

    def analysis(self, name: str) -> Plan:
        """Return the plan of the analysis of this name."""
        if name in self.analyses:
            return self.analyses[name]
        has = listed(list(self.analyses)) if self.analyses else "none: it is one analysis"
        msg = f"the study has no analysis {name!r}; its analyses are {has}"
        raise UsageError(msg)

    @property
    def statement(self) -> Statement:
        """Return the privacy statement of this plan, in words and as data."""
        study = self.study
        costs = {unit: self._together(unit) for unit in self.units}
        # What is told without a release has no price, which is not a price of nothing.
        proved = {str(unit): math.inf if self.discloses else cost.epsilon(study.delta) for unit, cost in costs.items()}
        asked = proved[study.unit]
        return Statement.of(
            study,
            self.split,
            plan=self.hash,
            proved=proved,
            failure=costs[Unit(study.unit)].failure(asked) if math.isfinite(asked) else 1.0,
            said={name: getattr(self, name) for name in _SENTENCES}
            | {
                "public": (*self.public, *([_LINKED] if study.linked and not study.hidden else [])),
                "assumptions": (
                    *self.assumptions,
                    *([_REMADE] if self.formerly else []),
                    *([_PART] if study.within else []),
                ),
            },
            links=self.discloses,
            against=self.against,
            only_against=_HONEST if self.joint == TRUSTING else "",
            excepted=self.excepted,
        )

    def drawn(self, draw: str) -> Self:
        """Return this plan as the run of this name drew it, and its parts with names of their own."""
        made = copy(self)
        parts = {
            name: part.drawn(hashlib.sha256(f"{draw} {name}".encode()).hexdigest()) for name, part in self.parts.items()
        }
        object.__setattr__(made, "draw", draw)
        object.__setattr__(made, "parts", parts)
        return made

    def origin(self, what: str) -> ReleasedInput:
        """Return the origin of a public input that this plan released: whether its statement holds, and what it cost its people."""
        holds, events = self._priced
        return ReleasedInput(what, self.hash, holds, events, release=self.draw)

    def origins(self, what: str) -> tuple[ReleasedInput, ...]:
        """Return the origin of a public input that this plan released, after those of the plan's own inputs."""
        return (*self.study.origins, self.origin(what))

    def sourced(self, what: str, value: Any) -> Any:  # noqa: ANN401 - a value of the same kind
        """Return the value as this plan released it, for later studies that take it as "basis", "prior" or another public input."""
        return sourced(value, self.origins(what))

    @cached_property
    def _priced(self) -> tuple[bool, tuple[PastEvent, ...]]:
        """Return whether the statement holds, and the cost of the plan."""
        holds = self.statement.holds
        events = tuple(
            PastEvent(cost.unit, cost.part, e.kind.name, e.value, e.count, e.total_variation, e.tails)
            for cost in (alternatives(self) if holds else ())
            if (e := cost.event).count
        )
        return holds, events

    def _together(self, unit: Unit) -> Worst:
        """Return the cost of this plan to one unit, together with the earlier plans that released its public inputs (each of them once)."""
        earlier = {draw: parts for draw, origin in by_draw(self.study.origins).items() if (parts := origin.parts(unit))}
        cost = self.cost(unit)
        if not earlier:
            return cost
        own = {f"{number}": composition.events for number, composition in enumerate(cost.compositions)}
        return account([own, *earlier.values()])

    def __repr__(self) -> str:
        study = self.study
        if self.discloses:
            return f"Plan({study.row}: rows of {len(study.parties)} parties are linked, no epsilon; {self.hash[:16]})"
        spent = self.epsilon(study.delta)
        return f"Plan({study.row}: {len(self.releases)} releases, epsilon = {spent:.4g} at delta = {study.delta:g} per {study.unit}; {self.hash[:16]})"

    def _repr_html_(self) -> str:
        """For notebooks: what would be released, and the promise."""
        titles = ("release", "party", "mechanism", "times", "numbers", "sensitivity", "noise scale")
        rows = [titles]
        for r in self.releases[:_SHOWN]:
            moved = _number(r.sensitivity(self.study.unit))
            rows.append((r.name, r.party, r.mechanism.name, str(r.count), str(r.size), moved, _number(r.scale)))
        cells = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
        more = len(self.releases) - _SHOWN
        below = f"<p>and {more} more</p>" if more > 0 else ""
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>{below}{self.statement._repr_html_()}"

    def __str__(self) -> str:
        study = self.study

        def named(r: Release) -> str:
            return f"{r.name} x {r.count}" if r.count > 1 else r.name

        wide = max([14, *(len(named(r)) + 2 for r in self.releases)])
        lines = [
            f"plan {self.hash[:16]} · model {study.model}{f' of {self.maker}' if self.maker else ''} · {self.split} · {study.calibration}",
            f"  asked: {study.target}, adjacency {study.adjacency}",
            f"  {'release':<{wide}}{'party':<12}{'mechanism':<26}{'numbers':>9}{'sensitivity':>14}{'scale':>14}",
        ]
        for r in self.releases:
            sensitivity, scale = r.sensitivity(study.unit), r.scale
            lines.append(
                f"  {named(r):<{wide}}{r.party:<12}{r.mechanism.name:<26}{r.size:>9}"
                f"{_number(sensitivity):>14}{_number(scale):>14}"
            )
        if study.justification:
            lines.insert(2, f"  why this epsilon: {study.justification}")
        lines += [f"  {note}" for note in self.notes]
        lines += [f"  public: {sentence}" for sentence in self.public]
        if study.linked and not study.hidden:
            lines.append("  public: how many people all parties have, by the row map that an earlier study made")
        if study.ids == ALIGNED:
            lines.append(
                "  public: whether all parties hold the same row ids in the same order (a keyed digest is compared)"
            )
        for unit in () if self.discloses else self.units:
            lines.append(f"  per {unit}: epsilon = {self.epsilon(study.delta, unit):.6g} at delta = {study.delta:g}")
        return "\n".join(lines)


def digest_of(study: Study) -> str:
    """Return SHA-256 of a study's own text, in hex, by which the analyses that it contains name it."""
    return hashlib.sha256(msgspec.json.encode(_exact(_said(study)), order="deterministic")).hexdigest()


def _said(study: Study) -> dict[str, object]:
    """Return a study as plain data, without the fields that have their default."""
    # Through plain data and back, so that an int in the place of a float hashes like after a journey.
    said: dict[str, object] = msgspec.to_builtins(msgspec.convert(msgspec.to_builtins(study), Study))
    for one in msgspec.structs.fields(Study):
        default = one.default_factory() if one.default is msgspec.NODEFAULT and not one.required else one.default
        if getattr(study, one.name) == default:
            del said[one.name]
    return said


def _number(value: float | None) -> str:
    return "in the run" if value is None else f"{value:.6g}"


def _spelled(exposure: Exposure) -> dict[str, object]:
    """Return the fields of an exposure that do not have their default."""
    said = asdict(exposure)
    return {one.name: said[one.name] for one in fields(exposure) if getattr(exposure, one.name) != one.default}


def _exact(value: object) -> object:
    """Floats as hexadecimal text, so that a hash never depends on how a number is printed."""
    if isinstance(value, float):
        return value.hex() if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [_exact(v) for v in value]
    if isinstance(value, dict):
        items: Mapping[str, object] = value
        return {k: _exact(v) for k, v in items.items()}
    return value


__all__ = [
    "AGGREGATION",
    "ALIGNED",
    "BOUNDS",
    "CLASSES",
    "MOST_ROWS",
    "PLAN_VERSION",
    "TRUSTED",
    "TRUSTING",
    "Card",
    "HelperCard",
    "Household",
    "Plan",
    "Release",
    "Study",
    "check_parameters",
    "default_delta",
    "digest_of",
]
