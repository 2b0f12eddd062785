"""A study as it is asked: public text turned into data, the same for everybody; and several analyses in one study, each with its share."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from unpooled.errors import UsageError, listed, not_taken
from unpooled.privacy.accounting import budget_mu, gaussian_epsilon
from unpooled.privacy.bounds import Column
from unpooled.privacy.declared import parameters_of
from unpooled.privacy.events import UNBOUNDED
from unpooled.privacy.origin import (
    BOUNDS_INPUT,
    PARAMETERS,
    PLACES,
    ROW_MAP,
    DeclaredInput,
    DerivedInput,
    Origin,
    PastEvent,
    ReleasedInput,
)
from unpooled.privacy.unit import Adjacency, Calibration, Target, Unit

# --- Study -----------------------------------------------------------------------------------------------------------------
# A study as it is asked: public text turned into data, the same for everybody.

#: The role of :attr:`Study.trust` that adds up the parties' vectors, and the value that asks for trust in it.
AGGREGATION, TRUSTED = "aggregation", "trusted"
#: What a study may have read off the data instead of having it declared (:attr:`Study.derived`).
BOUNDS, CLASSES = "bounds", "classes"
DERIVABLE = frozenset({BOUNDS, CLASSES})
#: The ways of :attr:`Study.ids`: the same people in the same order already, by the row map of an earlier study that linked them, or by places of a hidden link.
ALIGNED, LINKED, HIDDEN = "aligned", "psi:", "hidden:"
#: What a hidden link reveals to parties and coordinator (``reveal`` under [parameters] of a study that links rows).
NOTHING = "nothing"
#: The model of a study that contains several analyses, and the parameter that lists them (:mod:`unpooled.privacy.study`).
ANALYSES = "analyses"
#: The role of a card whose organisation has no data.
HELPER = "helper"
#: What a policy and a card say of masked rows of this party: that they may travel with a proof that they are short, or without one too.
ALLOWED, TRUSTING = "allowed", "trusting"
JOINT_WORDS = frozenset({"", ALLOWED, TRUSTING})
#: Fields of a card that are free text, and how long a text of a card or a study may be.
CIRCUMSTANCES, LONGEST_TEXT = ("collected", "legal_basis", "retention", "contact"), 500
#: Those who declare what no release supplies.
_CARDS, _TEXT = DeclaredInput("the parties' cards"), DeclaredInput("the analyst, in the study")
#: The form of an analysis' name: its words are part of the names of releases, steps and files.
NAME = r"\w[\w .-]{0,39}"
#: A model's own struct of parameters.
Fields = TypeVar("Fields", bound=msgspec.Struct)
#: Rows of a party: sums over some parties of so many stay exact in 64-bit integers, on a grid that is still one.
MOST_ROWS = 10**12


class Household(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Declaration of rows that belong together: the column with their ids, the number of ids, and the number of rows of each that count."""

    column: str
    ids: int
    rows: int
    #: Whether other parties may hold rows of the same id. Where no party says so, no id counts with more than one party's number.
    elsewhere: bool = True
    #: Whether one process counted the rows of every id over all parties together: each party may hold all rows that count, or some of them.
    #: No card of a file can say so.
    together: bool = False

    def __post_init__(self) -> None:
        if not self.column or self.ids < 2 or not 1 <= self.rows <= MOST_ROWS:  # noqa: PLR2004
            raise UsageError("a card's household names a column, at least 2 ids, and at least 1 row that counts of each")
        if self.together and not self.elsewhere:
            raise UsageError("ids whose rows were counted over all parties may have rows elsewhere: leave elsewhere out")


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """The public schema card of a party: its name, its number of rows and its declared columns."""

    name: str
    rows: int
    columns: tuple[Column, ...]
    #: Columns that the party holds for its own use (a response, say). They never leave, so they need no bounds.
    labels: tuple[str, ...] = ()
    #: The party's public signing key in hex, which pins who takes part. Empty only where all members are parties of one process.
    key: str = ""
    #: The name of the column with the row ids, where the party has one. It is never data; column-split parties compare it.
    id: str = ""
    #: For studies that protect all rows of an id: then ``rows`` is the most that can count, and the number of rows is not told.
    household: Household | None = None
    #: The name of the row map by which the party takes its rows, where an earlier study linked them.
    linked: str = ""
    #: Whether the party's policy lets its masked rows travel: "allowed", "trusting" (unproved ones too), or empty for "no".
    joint: str = ""
    #: Whether ``rows`` is the most that the party has, and its number is not told: of hidden links, and of studies of their places.
    capped: bool = False
    #: Free text that those who approve a study are shown: how the data were collected, on which legal basis, how long they are kept, whom to ask.
    collected: str = ""
    legal_basis: str = ""
    retention: str = ""
    contact: str = ""

    def __post_init__(self) -> None:
        if not all(words.isprintable() and len(words) <= LONGEST_TEXT for words in self.circumstances.values()):
            msg = f"card {self.name!r}: {listed(list(CIRCUMSTANCES))} are each one line of at most {LONGEST_TEXT} printable characters"
            raise UsageError(msg)
        if self.joint not in JOINT_WORDS:
            msg = f'card {self.name!r}: joint is "{ALLOWED}", "{TRUSTING}", or left out'
            raise UsageError(msg)
        together = self.household
        if together and (self.rows != together.ids * together.rows or together.column in {c.name for c in self.columns}):
            msg = f"card {self.name!r}: with a household its rows are ids times the rows that count of each, and the ids are no data"
            raise UsageError(msg)
        if self.key and not re.fullmatch("[0-9a-f]{64}", self.key):
            msg = f"card {self.name!r}: key is not a public key of 64 hexadecimal digits: take the card `unpooled party init` wrote"
            raise UsageError(msg)
        if self.capped and self.household is not None:
            msg = f"card {self.name!r}: a cap goes with rows of one person each, and a household counts several: leave one of them out"
            raise UsageError(msg)
        hidden = self.linked.startswith(HIDDEN)
        if hidden and not self.capped:
            msg = f"card {self.name!r}: places of a hidden link go with a cap: take the card that `unpooled link` wrote"
            raise UsageError(msg)
        if self.linked and not re.fullmatch("[0-9a-f]{64}", self.linked.removeprefix(HIDDEN)):
            msg = f"card {self.name!r}: linked is not the name of a row map of 64 hexadecimal digits: take the card that `unpooled link` wrote"
            raise UsageError(msg)
        names = [*(column.name for column in self.columns), *self.labels]
        if not self.name or not names or len(set(names)) != len(names) or self.rows < 1:
            msg = f"card {self.name!r}: give a name, at least 1 row, and at least one column, each name once"
            raise UsageError(msg)
        if self.rows > MOST_ROWS:
            msg = f"card {self.name!r}: {MOST_ROWS:,} rows are the most that a party may have"
            raise UsageError(msg)

    @property
    def circumstances(self) -> dict[str, str]:
        """Return the party's statements about its data other than the declarations, by the name of the field; empty ones are left out."""
        return {name.replace("_", " "): words for name in CIRCUMSTANCES if (words := getattr(self, name))}

    def column(self, name: str) -> Column:
        """Return the declaration of one column."""
        if name in self._by_name:
            return self._by_name[name]
        msg = f"party {self.name!r} declares no column {name!r}; it has {listed([c.name for c in self.columns])}"
        raise UsageError(msg).at(column=name)

    @property
    def size(self) -> str:
        """Return the number of rows, or of ids and rows of each, in words."""
        if self.capped:
            return f"at most {self.rows}"
        if self.household is None:
            return f"{self.rows}"
        return f"{self.household.ids} ids, at most {self.household.rows} rows of each"

    @property
    def people(self) -> int:
        """Return the number of units: ids where rows belong together, else rows."""
        return self.rows if self.household is None else self.household.ids

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}


class HelperCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The public card of an organisation that helps others to compute on joint rows: it has a name and a key, and no rows or columns."""

    name: str
    #: The helper's public signing key in hex. Empty only for helpers of one process.
    key: str = ""
    role: str = HELPER
    contact: str = ""

    def __post_init__(self) -> None:
        if not self.name or self.role != HELPER or (self.key and not re.fullmatch("[0-9a-f]{64}", self.key)):
            msg = (
                f'card {self.name!r}: a helper has a name, role = "{HELPER}", and a public key of 64 hexadecimal digits: take the card that '
                "`unpooled party init --helper` wrote"
            )
            raise UsageError(msg)
        if not self.contact.isprintable() or len(self.contact) > LONGEST_TEXT:
            msg = f"card {self.name!r}: contact is one line of at most {LONGEST_TEXT} printable characters"
            raise UsageError(msg)

    @property
    def circumstances(self) -> dict[str, str]:
        """Return the helper's statements about itself, as a party's card has them about its data."""
        return {"contact": self.contact} if self.contact else {}


class Whole(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The facts about a whole study that a part of it has to know: the person may be at parties that the part leaves out."""

    #: The most rows of one id that count in the whole study.
    household_rows: int = 1
    #: Whether the rows of one id may lie at other parties in neighbouring data (:attr:`Study.rows_move`).
    rows_move: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.household_rows <= MOST_ROWS:
            raise UsageError("of an id at least 1 row counts in the whole study")


class _Question(msgspec.Struct, frozen=True):
    """The fields that every study begins with, in this order."""

    model: str
    parties: tuple[Card, ...]
    epsilon: float
    delta: float


class Study(_Question, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The question of a study: public, complete, and enough to compile the plan without data."""

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
    #: Where public inputs come from that an earlier plan released. What people declared has no origin.
    origins: tuple[ReleasedInput, ...] = ()
    #: "aligned": before anything else the parties make sure that they hold the same row ids in the same order. "psi:" and the name of a row
    #: map: each takes its rows by its own map of this name. "hidden:" and the name of a link: each has rows at places of its own, and nobody knows
    #: whose they are elsewhere. Empty: not checked.
    ids: str = ""
    #: Why this epsilon is asked for, in words for those who approve it.
    justification: str = ""
    #: Organisations without data that help the parties to compute on joint rows.
    helpers: tuple[HelperCard, ...] = ()
    #: Of an analysis: the digest of the study that contains it, and its name there. It is a study to be compiled, and is never run alone.
    within: str = ""
    #: Whether a person's row may be at one party in one analysis and at another in the next: in one process each analysis may part the rows by itself.
    scattered: bool = False
    #: Of an analysis, or another part: what holds for the whole study and cannot be seen from the part's own cards.
    whole: Whole = Whole()

    def __post_init__(self) -> None:
        if not self.justification.isprintable() or len(self.justification) > LONGEST_TEXT:
            msg = f"justification is one line of at most {LONGEST_TEXT} printable characters"
            raise UsageError(msg)
        if self.within and not re.fullmatch(f"[0-9a-f]{{64}} {NAME}", self.within):
            raise UsageError("within names the study that contains this analysis: leave it out")
        budget = Target(self.epsilon, self.delta, Unit.parse(self.unit))
        # Plain floats, so that a NumPy number or an int hashes and travels like any other.
        msgspec.structs.force_setattr(self, "epsilon", budget.epsilon)
        msgspec.structs.force_setattr(self, "delta", budget.delta)
        Adjacency.parse(self.adjacency)
        try:
            msgspec.msgpack.encode((self.parameters, self.public_seed, self.simulation_seed, self.run))
        except OverflowError:
            raise UsageError("a study holds an integer beyond 64 bits: no parameter is that large") from None
        if self.run < 1:
            raise UsageError("run numbers the times that a question is asked, from 1 on: 2 asks it again with fresh noise")
        Calibration.parse(self.calibration)
        if not set(self.derived) <= DERIVABLE or len(set(self.derived)) != len(self.derived):
            msg = f"derived names what was read off the data, each once: {', '.join(sorted(DERIVABLE))}"
            raise UsageError(msg)
        if self.ids not in {"", ALIGNED} and not re.fullmatch(f"({LINKED}|{HIDDEN})[0-9a-f]{{64}}", self.ids):
            msg = (
                f'ids = {self.ids!r} is not known: leave it out, or set it to "aligned", or to what a study that linked the rows said '
                '("psi:" or "hidden:" and 64 digits); in a study file also "unchecked"'
            )
            raise UsageError(msg)
        names = [card.name for card in self.members]
        if not self.parties or len(set(names)) != len(names):
            msg = "a study needs at least one party, each name once"
            raise UsageError(msg)
        if sum(card.rows for card in self.parties) < 2:  # noqa: PLR2004
            raise UsageError("a study needs at least 2 rows over all its parties: an answer about one record is that record")
        self._check_keys()
        together = [card.household is not None for card in self.parties]
        if not all(together) if self.unit == Unit.HOUSEHOLD else any(together):
            msg = (
                'unit = "household" goes with cards that declare a household, and with no others: make cards for this unit with '
                "`unpooled party init --household COLUMN --household-rows M` (in Python: fit(..., unit_id=...))"
            )
            raise UsageError(msg)

    def _check_keys(self) -> None:
        """Refuse members of whom some have a key and some have none, or of whom two have one: then one organisation could play two parts."""
        without = [card.name for card in self.members if not card.key]
        if without and len(without) < len(self.members):
            msg = (
                f"the card of {without[0]!r} holds no public key, and others do: every member of a study, helpers included, is pinned by a key of its "
                "own, or anybody could take its place. Use the cards that `unpooled party init` writes (with --helper for a helper)"
            )
            raise UsageError(msg).at(party=without[0])
        holders: dict[str, str] = {}
        for card in self.members:
            if card.key and holders.setdefault(card.key, card.name) != card.name:
                msg = (
                    f"{holders[card.key]!r} and {card.name!r} have one public key: members who rely on each other are different organisations, each "
                    "with a key of its own. Take the card of another organisation for one of them"
                )
                raise UsageError(msg).at(party=card.name)
        for helper in self.helpers:
            if helper.key and helper.key == self.coordinator:
                msg = (
                    f"helper {helper.name!r} has the key of the coordinator, who runs the study: a helper knows masks, and the coordinator carries everybody's "
                    "messages. Let another organisation help, or another one run the study"
                )
                raise UsageError(msg).at(party=helper.name)
        together = any(card.household is not None and card.household.together for card in self.parties)
        if not self.in_process and (together or self.scattered):
            raise UsageError(
                "only one process can count the rows of an id over all parties together, or part rows anew for every analysis: leave "
                "household.together and scattered out"
            )

    @property
    def in_process(self) -> bool:
        """Return True if its members are parties of one process, which have no keys: the person who runs it holds all of their rows."""
        return not any(card.key for card in self.members)

    @property
    def target(self) -> Target:
        """Return the privacy that is asked for."""
        return Target(self.epsilon, self.delta, Unit(self.unit))

    @property
    def inputs(self) -> dict[str, tuple[Origin, ...]]:
        """Return the origins of every public input by its name; what was neither released nor read off the data was declared."""
        given = {
            name
            for held in (self.parameters, *(one.get("parameters") for one in self.contained))
            for key, name in PARAMETERS.items()
            if isinstance(held, dict) and held.get(key) and not isinstance(held[key], str)
        }
        declared: dict[str, tuple[Origin, ...]] = {BOUNDS_INPUT: (_CARDS,), **dict.fromkeys(sorted(given), (_TEXT,))}
        if self.linked:
            declared[PLACES if self.hidden else ROW_MAP] = (_CARDS,)
        known: dict[str, tuple[Origin, ...]] = {what: (DerivedInput(),) for what in self.derived}
        for origin in self.origins:
            known[origin.input] = (*known.get(origin.input, ()), origin)
        return declared | known

    @property
    def analysis(self) -> str:
        """Return its name, where it is one of several analyses of a study."""
        return self.within.partition(" ")[2]

    @property
    def contained(self) -> tuple[dict[str, Any], ...]:
        """Return the analyses that the study contains, as they are written; none of a study that is one analysis."""
        listed = self.parameters.get(ANALYSES) if self.model == ANALYSES else None
        return tuple(one for one in listed if isinstance(one, dict)) if isinstance(listed, list | tuple) else ()

    @property
    def models(self) -> tuple[Study, ...]:
        """Return a study for every model that is asked for, by which a policy judges it: of several analyses one for each."""
        asked = (one.get("model") for one in self.contained)
        each = [msgspec.structs.replace(self, model=model, parameters={}) for model in asked if isinstance(model, str)]
        return tuple(each) or (self,)

    @property
    def linked(self) -> str:
        """Return the name of the row map, or of the hidden link, by which the parties take their rows; empty without one."""
        return self.ids.partition(":")[2]

    @property
    def hidden(self) -> bool:
        """Return True if nobody knows which people two parties have in common: rows lie at places."""
        return self.ids.startswith(HIDDEN)

    @property
    def members(self) -> tuple[Card | HelperCard, ...]:
        """Return the cards of all who take part: the parties, and after them the helpers, who have no data."""
        return (*self.parties, *self.helpers)

    def member(self, name: str) -> Card | HelperCard:
        """Return the card of one party or helper."""
        for card in self.helpers:
            if card.name == name:
                return card
        return self.card(name)

    @property
    def circle(self) -> str:
        """Return the set of its parties, by the keys of their cards."""
        return hashlib.sha256(" ".join(sorted(card.key for card in self.parties)).encode()).hexdigest()

    @property
    def row(self) -> str:
        """Return the row of the registry that answers it: the model, or its published form where the calibration asks for that."""
        return self.model if self.calibration == Calibration.SOUND else f"{self.model}-{self.calibration}"

    @property
    def household_rows(self) -> int:
        """Return the most rows of one id that count in the whole study; 1 where every row is a unit of its own."""
        declared = [card.household for card in self.parties if card.household is not None]
        over_all = max((one.rows for one in declared if one.together), default=0)
        shared = sum(one.rows for one in declared if one.elsewhere and not one.together)
        return max([shared + over_all, *(one.rows for one in declared), self.whole.household_rows])

    @property
    def rows_move(self) -> bool:
        """Return True if the rows of one id may lie at other parties in neighbouring data.

        Cards that say how many rows of an id count at each party bound the rows at every party by themselves. Rows that were counted over all
        parties together are bounded in total alone: all of them but one may leave one party and appear at another (Theorem F.19 d). The one row of
        an id that has no more stays where it is, for the number of ids of every party is public.
        """
        together = any(card.household is not None and card.household.together for card in self.parties)
        return self.whole.rows_move or (together and len(self.parties) > 1 and self.household_rows > 1)

    @property
    def of_whole(self) -> Whole:
        """Return what every part of this study has to know of it."""
        return Whole(self.household_rows, self.rows_move)

    def one_card_for_all(self) -> Card:
        """Return the first card, where all parties declare the same columns: rows are split."""
        first, *others = self.parties
        for card in others:
            if card.columns != first.columns:
                own, theirs = ({column.name: column for column in one.columns} for one in (first, card))
                unlike = sorted(name for name in own.keys() | theirs.keys() if own.get(name) != theirs.get(name))
                what = f"column {unlike[0]!r} of" if unlike else "the order of the columns of"
                msg = (
                    f"parties {first.name!r} and {card.name!r} declare different columns ({what} one is not that of the other): rows are split, so "
                    "columns must be equal, in one order. Different columns of the same people are joined under masks, with a helper: "
                    'split = "columns" of model = "glm" (odds ratios) and "bayes" (a number)'
                )
                raise UsageError(msg)
        return first

    def trusts(self, role: str) -> bool:
        """Return True if the study asks its parties to trust this role with values in the clear."""
        return self.trust.get(role) == TRUSTED

    def card(self, party: str) -> Card:
        """Return the card of one party."""
        for card in self.parties:
            if card.name == party:
                return card
        msg = f"the study has no party {party!r}; it has {listed([c.name for c in self.parties])}"
        raise UsageError(msg)


def default_delta(n_rows: int) -> float:
    """min(1e-5, 0.1 / n): far below the 1/n at which publishing a whole row would be allowed."""
    return min(1e-5, 0.1 / n_rows)


def check_parameters(study: Study, parameters: type[Fields]) -> Fields:
    """Return the study's parameters as the model's struct; an unknown key or a wrong type is an error that names it."""
    try:
        return msgspec.convert(study.parameters, parameters, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(_refused_parameter(study.model, str(error), parameters)) from None


def _refused_parameter(model: str, error: str, parameters: type[msgspec.Struct]) -> str:
    """Return the words that refuse a parameter: what is wrong, and what it is or which one is meant."""
    declared = parameters_of(parameters)
    unknown, at = re.search(r"unknown field `(\w+)`$", error), re.search(r"\$\.(\w+)", error)
    if unknown is not None:
        return f"parameters: unknown field `{unknown[1]}`: {not_taken(f'model {model!r}', unknown[1], list(declared))}"
    one = declared.get(at[1]) if at is not None else None
    return f"parameters of model {model!r}: {error}{'' if one is None or not one.words else f'. {one.name}: {one.words}'}"


# --- Analyses --------------------------------------------------------------------------------------------------------------
# Several analyses in one study: each is a study of its own columns and parameters, with its share of the budget.
#
# The shares are fixed before data. Under Gaussian noise a share is one of mu squared, which adds up over releases: analyses that each spend their
# share cost together what the whole study asks for (Theorem F.26).

#: How far the sum of the shares may be from 1: what decimal fractions lose.
_ROUNDED = 1e-9


class Analysis(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One analysis of a study: its name, its model, its part of the budget, and everything that a study of this model asks."""

    name: str
    model: str
    #: Its share of the budget. Given for every analysis or for none; without shares all have the same.
    share: float | None = None
    #: The columns and labels that it uses, of those that the cards declare, in this order; without it all of them.
    columns: tuple[str, ...] = ()
    parameters: dict[str, Any] = {}
    trust: dict[str, str] = {}
    #: The helpers of the study that help in this analysis.
    helpers: tuple[str, ...] = ()
    #: Its own names of columns that the cards call otherwise, because other analyses declare other ranges for the same name.
    named: dict[str, str] = {}
    #: Which of the study's origins are those of its own inputs, by number.
    origins: tuple[int, ...] = ()
    #: Whether it is fitted at every party by itself, each with the whole share: a row is at one party.
    apart: bool = False
    #: The terms of such fits that are pooled over the parties.
    pool: tuple[str, ...] = ()


class Analyses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[parameters]`` of a study with several analyses."""

    analyses: tuple[Analysis, ...]

    @property
    def shares(self) -> tuple[float, ...]:
        """Return the share of every analysis; refused where they are not all given, or do not sum to 1."""
        given = [one.share for one in self.analyses]
        if all(share is None for share in given):
            return (1 / len(given),) * len(given)
        if not all(share is not None and 0 < share <= 1 for share in given):
            raise UsageError("every analysis needs a share of the budget between 0 and 1, or none of them names one")
        total = math.fsum(share for share in given if share is not None)
        if abs(total - 1) > _ROUNDED:
            msg = f"the shares of the analyses sum to {total:g}: they are parts of one budget, so make them sum to 1"
            raise UsageError(msg)
        return tuple(share / total for share in given if share is not None)


def analyses_of(study: Study) -> Analyses:
    """Return the analyses that a study contains, checked as far as they can be without their models."""
    asked = check_parameters(study, Analyses)
    if not asked.analyses:
        raise UsageError("a study of several analyses lists at least one under [[analysis]]")
    for name, times in Counter(one.name for one in asked.analyses).items():
        if not re.fullmatch(NAME, name):
            raise UsageError("the name of an analysis is 1 to 40 letters, digits, spaces, dots, dashes or underscores")
        if times > 1:
            msg = f"{times} analyses are called {name!r}: give each a name of its own"
            raise UsageError(msg)
    for one in asked.analyses:
        if one.model == ANALYSES:
            msg = f"analysis {one.name!r} contains analyses itself: list them all under [[analysis]]"
            raise UsageError(msg)
        if unknown := [name for name in one.helpers if name not in {card.name for card in study.helpers}]:
            msg = f"analysis {one.name!r} names helper {unknown[0]!r}, which is none of the study"
            raise UsageError(msg)
        if not all(0 <= number < len(study.origins) for number in one.origins):
            msg = f"analysis {one.name!r} names an origin that the study does not have"
            raise UsageError(msg)
    if study.trust:
        raise UsageError("whom an analysis trusts stands with it: [analysis.trust]")
    return asked


def part_of(
    study: Study, one: Analysis, digest: str, epsilon: float, delta: float, name: str = "", party: str = ""
) -> Study:
    """Return the study that one analysis is: its columns, its parameters, its part of the budget; ``party``: of the rows of this one alone."""
    cards = cards_of(tuple(card for card in study.parties if party in ("", card.name)), one)
    known = {name for card in cards for name in (*(column.name for column in card.columns), *card.labels)}
    if missing := [name for name in one.columns if name not in known]:
        declared = sorted({column.name for card in study.parties for column in card.columns})
        msg = f"analysis {one.name!r} uses column {missing[0]!r}, which no card declares; they declare {listed(declared)}"
        raise UsageError(msg).at(column=missing[0])
    return msgspec.structs.replace(
        study,
        model=one.model,
        parties=cards,
        epsilon=epsilon,
        delta=delta,
        parameters=one.parameters,
        trust=one.trust,
        helpers=tuple(card for card in study.helpers if card.name in one.helpers),
        origins=tuple(study.origins[number] for number in one.origins),
        justification="",
        within=f"{digest} {name or one.name}",
        whole=study.of_whole,
        scattered=False,
    )


def cards_of(cards: tuple[Card, ...], one: Analysis) -> tuple[Card, ...]:
    """Return what an analysis uses of these parties, without those of whom it uses nothing."""
    return tuple(used for used in (_card(card, one) for card in cards) if used is not None)


def _card(card: Card, one: Analysis) -> Card | None:
    """Return what an analysis uses of a party, by its own names; None where it uses nothing there."""
    own = {whole: name for name, whole in one.named.items()}
    # A name that stands for another column here hides the column of that name.
    columns = {
        own.get(c.name, c.name): msgspec.structs.replace(c, name=own.get(c.name, c.name))
        for c in card.columns
        if c.name in own or c.name not in one.named
    }
    labels = tuple(own.get(label, label) for label in card.labels if label in own or label not in one.named)
    if one.columns:
        columns = {name: columns[name] for name in one.columns if name in columns}
        labels = tuple(label for label in labels if label in one.columns)
    return msgspec.structs.replace(card, columns=tuple(columns.values()), labels=labels) if columns or labels else None


def budget_of(study: Study, share: float, scale: float) -> tuple[float, float]:
    """Return (epsilon, delta) of an analysis with this share of the study's budget, of which the factor ``scale`` is spent."""
    if math.isinf(study.epsilon):
        return study.epsilon, share * study.delta
    if not study.delta:
        return study.epsilon * share * scale, 0.0
    mu = budget_mu(study.epsilon, study.delta) * math.sqrt(share) * scale
    return gaussian_epsilon(share * study.delta, mu), share * study.delta


# --- Former ----------------------------------------------------------------------------------------------------------------
# Reads studies as unpooled 0.2.0 wrote them, into saved models and records of runs.


def earlier(what: str, plan: str, events: Any) -> ReleasedInput:  # noqa: ANN401, ARG001 - of a file: msgspec checks it
    """Return the origin of bounds that were paid for, from the record that named their price."""
    past = [PastEvent(unit, "", kind, value, count, tv) for unit, kind, value, count, tv in events]
    holds = all(one.kind != UNBOUNDED.kind.name for one in past)
    return ReleasedInput(BOUNDS_INPUT, plan, holds, tuple(past) if holds else ())


def read_study(raw: bytes) -> tuple[Study, bool]:
    """Return the study in these bytes, and whether unpooled 0.2.0 wrote it."""
    told = msgspec.msgpack.decode(raw)
    if not isinstance(told, dict) or "earlier" not in told:
        return msgspec.msgpack.decode(raw, type=Study, strict=True), False
    origins = [earlier(**one) for one in told.pop("earlier")]
    return _in_half_ranges(msgspec.structs.replace(msgspec.convert(told, Study, strict=True), origins=tuple(origins))), True


def _in_half_ranges(study: Study) -> Study:
    """Return the study with the radius of a sound LASSO, which was in units of the response, in half ranges of it.

    The model is named here because this is about the format of one former version, whose files have no other mark.
    """
    if study.row != "lasso":
        return study
    parameters = dict(study.parameters)
    radius, half = parameters.pop("radius", 1.0), parameters.get("response_bound", 1.0)
    return msgspec.structs.replace(study, parameters=parameters | {"radius_in_half_ranges": radius / half})
