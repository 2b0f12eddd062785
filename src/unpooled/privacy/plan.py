"""A study as it is asked, and the plan of releases it compiles to, fixed before anybody looks at data.

A :class:`Study` is public text turned into data. A model's ``compile`` makes a :class:`Plan` of it, and every party makes the
same plan for itself: it takes bounds, sensitivities, scales and budgets from its own plan, never from the wire.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import UsageError, listed
from unpooled.privacy.bounds import Column
from unpooled.privacy.exposure import Exposure, worst
from unpooled.privacy.unit import Adjacency, Budget, Calibration, Scope, Split, Unit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from unpooled.privacy.exposure import Worst
    from unpooled.privacy.mechanisms import Mechanism
    from unpooled.privacy.statement import Statement

#: Raised whenever the meaning of a plan changes, so that an old approval never covers a new meaning.
PLAN_VERSION = 2


#: The role of :attr:`Study.trust` that adds up the parties' vectors, and the value that asks for trust in it.
AGGREGATION, TRUSTED = "aggregation", "trusted"
#: What a study may have read off the data instead of having it declared (:attr:`Study.derived`).
BOUNDS, CLASSES = "bounds", "classes"
DERIVABLE = frozenset({BOUNDS, CLASSES})
#: The exposure of a release that is a function of all rows and of no label that is covered.
EVERYBODY = Exposure()
#: Rows of a party: sums over some parties of so many stay exact in 64-bit integers, on a grid that is still one.
MOST_ROWS = 10**12


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """The public schema card of a party: its name, its number of rows and its declared columns."""

    name: str
    rows: int
    columns: tuple[Column, ...]
    #: Columns that the party holds for its own use (a response, say). They never leave, so they need no bounds.
    labels: tuple[str, ...] = ()
    #: The party's public signing key in hex, which pins who takes part. Empty only for parties of one process.
    key: str = ""

    def __post_init__(self) -> None:
        if self.key and not re.fullmatch("[0-9a-f]{64}", self.key):
            msg = f"card {self.name!r}: key is not a public key of 64 hexadecimal digits: take the card `unpooled party init` wrote"
            raise UsageError(msg)
        names = [*(column.name for column in self.columns), *self.labels]
        if not self.name or not names or len(set(names)) != len(names) or self.rows < 2:  # noqa: PLR2004
            msg = f"card {self.name!r}: give a name, at least 2 rows, and at least one column, each name once"
            raise UsageError(msg)
        if self.rows > MOST_ROWS:
            msg = f"card {self.name!r}: {MOST_ROWS:,} rows are the most that a party may have"
            raise UsageError(msg)

    def column(self, name: str) -> Column:
        """The declaration of one column."""
        if name in self._by_name:
            return self._by_name[name]
        msg = f"party {self.name!r} declares no column {name!r}; it has {listed([c.name for c in self.columns])}"
        raise UsageError(msg)

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}


class _Question(msgspec.Struct, frozen=True):
    """What every study says first, in this order."""

    model: str
    parties: tuple[Card, ...]
    epsilon: float
    delta: float


class Study(_Question, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is asked: public, complete, and enough to compile the plan without data."""

    #: Which declarations were read off the data ("bounds", "classes"); then nothing is guaranteed, and the statement says so.
    #: It has no default: whoever makes a study has to know.
    derived: tuple[str, ...]
    unit: str = "record"
    adjacency: str = "replace"
    calibration: str = "sound"
    parameters: dict[str, Any] = {}
    trust: dict[str, str] = {}
    public_seed: int = 0
    #: None for real noise; an integer makes the study a simulation, and says so in hash and statement.
    simulation_seed: int | None = None
    #: Raise it to ask the same question again with fresh noise (which costs again).
    run: int = 1
    #: The public key of whoever runs the study, which signs every request to a party over a network; empty in one process.
    coordinator: str = ""
    #: "aligned": before anything else the parties make sure that they hold the same row ids in the same order. Empty: not checked.
    ids: str = ""

    def __post_init__(self) -> None:
        budget = Budget(self.epsilon, self.delta, Unit.parse(self.unit))
        # Plain floats, so that a NumPy number or an int hashes and travels like any other.
        msgspec.structs.force_setattr(self, "epsilon", budget.epsilon)
        msgspec.structs.force_setattr(self, "delta", budget.delta)
        Adjacency.parse(self.adjacency)
        try:
            msgspec.msgpack.encode((self.parameters, self.public_seed, self.simulation_seed, self.run))
        except OverflowError:
            raise UsageError("a study holds an integer beyond 64 bits: no parameter is that large") from None
        Calibration.parse(self.calibration)
        if not set(self.derived) <= DERIVABLE or len(set(self.derived)) != len(self.derived):
            msg = f"derived names what was read off the data, each once: {', '.join(sorted(DERIVABLE))}"
            raise UsageError(msg)
        if self.ids not in {"", "aligned"}:
            msg = f'ids = {self.ids!r} is not known: leave it out, or set it to "aligned"'
            raise UsageError(msg)
        names = [card.name for card in self.parties]
        if not names or len(set(names)) != len(names):
            msg = "a study needs at least one party, each name once"
            raise UsageError(msg)

    @property
    def budget(self) -> Budget:
        """The privacy that is asked for."""
        return Budget(self.epsilon, self.delta, Unit(self.unit))

    @property
    def row(self) -> str:
        """The row of the registry that answers it: the model, or its published form where the calibration asks for that."""
        return self.model if self.calibration == Calibration.SOUND else f"{self.model}-{self.calibration}"

    def trusts(self, role: str) -> bool:
        """Whether the study asks its parties to trust this role with values in the clear."""
        return self.trust.get(role) == TRUSTED

    def card(self, party: str) -> Card:
        """The card of one party."""
        for card in self.parties:
            if card.name == party:
                return card
        msg = f"the study has no party {party!r}; it has {listed([c.name for c in self.parties])}"
        raise UsageError(msg)


@dataclass(frozen=True, slots=True)
class Release:
    """One planned release: which party makes it, in which step, by which mechanism, how often, and of whom it is a function."""

    name: str
    party: str
    step: str
    mechanism: Mechanism
    count: int = 1
    exposure: Exposure = EVERYBODY

    @property
    def size(self) -> int:
        """How many numbers one release publishes."""
        return self.mechanism.size

    @property
    def scale(self) -> float | None:
        """The scale of its noise; None where it is a closed form of values known only during the run."""
        return self.mechanism.scale

    def sensitivity(self, unit: Unit | str = Unit.RECORD) -> float | None:
        """How far one unit moves it, in the units of ``scale``."""
        return self.mechanism.sensitivity(Unit.parse(unit))


@dataclass(frozen=True)
class Plan:
    """The releases of a study and what they cost together."""

    study: Study
    split: Split
    releases: tuple[Release, ...]
    #: Sentences about what leaves a party without noise, and why that is allowed.
    public: tuple[str, ...] = ()
    #: Sentences about what this model does not protect.
    not_protected: tuple[str, ...] = ()
    #: Sentences about what must be true for the guarantee to hold.
    assumptions: tuple[str, ...] = ()
    #: Sentences about why no guarantee holds at all (a published calibration, raw values sent to somebody); mostly none.
    voids: tuple[str, ...] = ()
    #: What the model made of the study. It follows from the study, so it is no part of the hash.
    design: Any = field(default=None, compare=False, repr=False)
    #: Who sees more than releases, and is trusted with it: nobody, or names in words.
    trusted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.study.ids and (self.split is not Split.VERTICAL or not all(card.key for card in self.study.parties)):
            msg = (
                'ids = "aligned" compares the rows of a column-split study between parties whose cards carry a key: leave it out, '
                "or use the cards that `unpooled party init` writes"
            )
            raise UsageError(msg)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of everything that defines the plan, in hex: what a party approves."""
        releases = [
            (r.name, r.party, r.step, r.count, _exact(astuple(r.exposure)), _exact(r.mechanism.describe()))
            for r in self.releases
        ]
        content = (
            # Through plain data and back, so that an int in the place of a float hashes like after a journey.
            PLAN_VERSION,
            _exact(msgspec.to_builtins(msgspec.convert(msgspec.to_builtins(self.study), Study))),
            self.split,
            releases,
            self.public,
            self.voids,
            self.not_protected,
            self.assumptions,
            self.trusted,
        )
        return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()

    def release(self, party: str, name: str) -> Release:
        """The planned release of this name at this party."""
        for release in self.releases:
            if release.party == party and release.name == name:
                return release
        msg = f"the plan has no release {name!r} for party {party!r}"
        raise UsageError(msg)

    def cost(self, unit: Unit | str | None = None, party: str | None = None, scope: Scope = Scope.PERSON) -> Worst:
        """What the plan costs whoever it costs most: anybody, or the people in one party's rows (by all parties, or by it alone)."""
        return worst(self, Unit.parse(unit or self.study.unit), party, scope)

    def epsilon(self, delta: float, unit: Unit | str | None = None) -> float:
        """Smallest epsilon proved at this delta, for the study's unit or another one."""
        return self.cost(unit).epsilon(delta)

    def delta(self, epsilon: float, unit: Unit | str | None = None) -> float:
        """Smallest delta proved at this epsilon, for the study's unit or another one."""
        return self.cost(unit).delta(epsilon)

    @property
    def statement(self) -> Statement:
        """What this plan promises, in words and as data."""
        from unpooled.privacy.statement import Statement

        return Statement.of(self)

    def __str__(self) -> str:
        study = self.study
        lines = [
            f"plan {self.hash[:16]} · model {study.model} · {self.split} · {study.calibration}",
            f"  asked: {study.budget}, adjacency {study.adjacency}",
            f"  {'release':<12}{'party':<12}{'mechanism':<26}{'numbers':>9}{'sensitivity':>14}{'scale':>14}",
        ]
        for r in self.releases:
            sensitivity, scale = r.sensitivity(study.unit), r.scale
            lines.append(
                f"  {r.name + (f' x {r.count}' if r.count > 1 else ''):<12}{r.party:<12}{r.mechanism.name:<26}{r.size:>9}"
                f"{_number(sensitivity):>14}{_number(scale):>14}"
            )
        lines += [f"  public: {sentence}" for sentence in self.public]
        if study.ids:
            lines.append(
                "  public: whether all parties hold the same row ids in the same order (a keyed digest is compared)"
            )
        for unit in Unit:
            lines.append(f"  per {unit}: epsilon = {self.epsilon(study.delta, unit):.6g} at delta = {study.delta:g}")
        return "\n".join(lines)


def default_delta(n_rows: int) -> float:
    """min(1e-5, 0.1 / n): far below the 1/n at which publishing a whole row would be allowed."""
    return min(1e-5, 0.1 / n_rows)


def check_parameters(study: Study, parameters: type[Any]) -> Any:  # noqa: ANN401 - the model's own struct
    """The study's parameters as the model's struct; an unknown key or a wrong type is an error that names it."""
    try:
        return msgspec.convert(study.parameters, parameters, strict=True)
    except msgspec.ValidationError as error:
        msg = f"parameters of model {study.model!r}: {error}. It has {listed(parameters.__struct_fields__)}"
        raise UsageError(msg) from None


def _number(value: float | None) -> str:
    return "in the run" if value is None else f"{value:.6g}"


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
