"""Ids as the parties compare them: named normalisers, applied in the declared order; what cannot be an id is refused with its row here.

A key of several columns joins its normalised parts with their lengths, so that no two rows are spelled alike by accident.
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import RowsError, UsageError, listed
from unpooled.privacy.plan import Plan, Study, check_parameters
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.study import NOTHING
from unpooled.privacy.unit import Adjacency, Calibration, Split, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Of each letter its group in American Soundex; vowels part groups, h and w do not.
_GROUPS = {letter: str(k) for k, group in enumerate(("bfpv", "cgjkqsxz", "dt", "l", "mn", "r"), 1) for letter in group}
_LONG = 4
#: Whole numbers up to here are told apart as floats.
_EXACT = 2.0**53


def soundex(text: str) -> str:
    """American Soundex of the letters a to z: Robert and Rupert are R163, Ashcraft is A261; without such letters empty."""
    plain = unicodedata.normalize("NFD", text).casefold()
    letters = [letter for letter in plain if "a" <= letter <= "z"]
    if not letters:
        return ""
    code, before = letters[0].upper(), _GROUPS.get(letters[0], "")
    for letter in letters[1:]:
        group = _GROUPS.get(letter, "")
        if group and group != before:
            code += group
        if letter not in "hw":
            before = group
    return (code + "000")[:_LONG]


def _digits(text: str) -> str:
    """Return the decimal digits, whichever script they are of, as 0 to 9."""
    return "".join(str(unicodedata.decimal(sign)) for sign in text if unicodedata.decimal(sign, None) is not None)


NORMALISERS: dict[str, Callable[[str], str]] = {
    "nfc": lambda text: unicodedata.normalize("NFC", text),
    "casefold": lambda text: unicodedata.normalize("NFC", text.casefold()),
    "strip": str.strip,
    "digits": _digits,
    "soundex": soundex,
}


def check_names(names: Sequence[str]) -> None:
    """Refuse a normaliser that nobody knows."""
    unknown = [name for name in names if name not in NORMALISERS]
    if unknown:
        msg = f"normalise names {listed(unknown)}: there are {', '.join(NORMALISERS)}"
        raise UsageError(msg)


def normalised(text: str, names: Sequence[str]) -> str:
    """Return one id. It ends in Unicode's form NFC, whatever else is asked for: the hash is of that."""
    for name in names:
        text = NORMALISERS[name](text)
    return unicodedata.normalize("NFC", text)


def keys_of(columns: Sequence[Sequence[object]], names: Sequence[str], key: str) -> list[bytes]:
    """Return the key of every row; blanks, malformed ids and duplicates are refused with the numbers of their rows, counted from 1."""
    found: list[bytes] = []
    blank: list[int] = []
    malformed: list[int] = []
    for row, values in enumerate(zip(*columns, strict=True), 1):
        coded, is_blank = _coded(values, names)
        if coded is None:
            (blank if is_blank else malformed).append(row)
        else:
            found.append(coded)
    _refuse(blank, key, "is blank", "complete it, or leave those rows out")
    _refuse(
        malformed,
        key,
        f"is malformed (nothing is left after {', '.join(names) or 'nfc'}, or it cannot be printed)",
        "correct it",
    )
    _refuse_repeats(found, key)
    return found


def usable_keys_of(columns: Sequence[Sequence[object]], names: Sequence[str], key: str) -> list[bytes | None]:
    """Return the key of every row, None for a blank or malformed one; duplicates alone are refused."""
    found = [_coded(values, names)[0] for values in zip(*columns, strict=True)]
    _refuse_repeats(found, key)
    return found


def _coded(values: Sequence[object], names: Sequence[str]) -> tuple[bytes | None, bool]:
    """Return the key of a row and False; None where it is none, and True if that is because it is blank."""
    if any(isinstance(value, float) and abs(value) >= _EXACT for value in values):
        return None, False  # a number so long that a neighbour of it is written alike: read the column as text
    parts = [normalised(_text(value), names) for value in values]
    try:
        coded = [part.encode() for part in parts]
    except UnicodeEncodeError:
        return None, False
    if not all(parts):
        return None, not all(_text(value).strip() for value in values)
    if not all(part.isprintable() for part in parts):
        return None, False
    return b"".join(len(part).to_bytes(8, "big") + part for part in coded), False


def _refuse_repeats(found: Sequence[bytes | None], key: str) -> None:
    first: dict[bytes, int] = {}
    twice = [row for row, one in enumerate(found, 1) if one is not None and first.setdefault(one, row) != row]
    _refuse(twice, key, "was met in a row before", "keep one row of each person (docs/linkage.md says how)")


def _text(value: object) -> str:
    """Return a value as it is written: whole numbers without a point, missing ones blank."""
    if value is None or (isinstance(value, float) and value != value):  # noqa: PLR0124 - nan
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _refuse(rows: Sequence[int], key: str, what: str, remedy: str) -> None:
    if rows:
        numbers = listed([str(row) for row in rows])
        msg, outside = (
            f"key {key!r} {what} in row {numbers}: {remedy}",
            f"key {key!r} {what} in a row of a party, which is told which one",
        )
        raise RowsError(msg, outside)


# --- Plan ------------------------------------------------------------------------------------------------------------------
# A study that links rows: its keys, its rounds, and in words who learns what. It has no release and no epsilon.

#: The steps of one pass, in their order.
HELLO, MASK, PASS, FINISH, RETURN, CLOSE = "link-hello", "link-mask", "link-pass", "link-finish", "link-return", "link-close"
#: What a party keeps the name of its row map as.
MAP_NAME = "map"
_FEWEST, MOST_PARTIES, _MOST_KEYS = 2, 10, 10
#: What is revealed, and whose people later studies of a hidden link are about.
INTERSECTION, BOTH, HOLDER = "intersection", "both", "holder"
#: From so many parties on, all multiply a list at the same time and its owner adds: two rounds whatever their number.
_SUM = 4

_WHO = (
    Sentence("link.exact", "Linking tells the facts below exactly, without noise. Epsilon does not limit them."),
    Sentence("link.party-learns", "Every party learns which of its own ids all parties hold, and how many these are."),
    Sentence(
        "link.coordinator-learns",
        "The coordinator learns, under pseudonyms, how many ids are held by exactly each combination of parties.",
    ),
    Sentence(
        "link.party-and-coordinator",
        "A party that colludes with the coordinator learns which other parties hold each of its ids.",
    ),
    Sentence(
        "link.all-but-one",
        "If all parties but one collude, they can test any ids they choose: they learn which of these the remaining party holds.",
    ),
    Sentence(
        "link.two-runs",
        "Two runs whose lists differ by one id reveal, by the sizes of their results, whether the others hold that id.",
    ),
)
_SMALL = Sentence("link.small-cells", "With three or more parties, small counts of that table are told exactly.")
_WATERFALL = Sentence(
    "link.passes",
    "The coordinator and every party learn the size of each pass, and which pass matched each of their own ids.",
)
_HIDDEN = Sentence(
    "link.hidden",
    "Ids that a party does not hold itself. The party sees pseudonyms in their place.",
)


class LinkKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The columns in which two rows must agree (none: the id column of each card), normalised."""

    name: str = "id"
    columns: tuple[str, ...] = ()
    normalise: tuple[str, ...] = ("strip",)


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[parameters]`` of a study that links rows."""

    #: Tried one after the other; rows that one of them matched leave the later lists.
    keys: tuple[LinkKey, ...] = (LinkKey(),)
    #: "intersection": every party learns which of its ids all parties hold. "nothing": no party and no coordinator learns who is on another list.
    reveal: str = INTERSECTION
    #: Of a hidden link. The people of later studies: those of "both" parties, or all of its "holder" (of a hub: of the hospitals).
    population: str = BOTH
    holder: str = ""
    #: Of a hidden link. The registry whose people are matched with those of several hospitals; an id that "several" hospitals hold is "one" person.
    hub: str = ""
    several: str = ""


@dataclass(frozen=True)
class LinkDesign:
    """A study, understood."""

    names: tuple[str, ...]
    keys: tuple[LinkKey, ...]
    #: How many rows the card of each party has.
    rows: tuple[int, ...]

    def guesses(self, party: str) -> int:
        """Return how many ids the other parties can test against this one's set: one for every row and key of theirs."""
        return len(self.keys) * sum(rows for name, rows in zip(self.names, self.rows, strict=True) if name != party)

    @property
    def ring(self) -> bool:
        """Return True if lists go round; else every party multiplies the same list and its owner adds."""
        return len(self.names) < _SUM

    @property
    def hops(self) -> int:
        """Rounds in which lists are multiplied by others."""
        return len(self.names) - 1 if self.ring else 1

    def carried(self, own: int, hop: int) -> list[tuple[str, str, str]]:
        """Return the lists that this party multiplies in this hop: of each its owner, who sends it, and to whom it goes."""
        names, count = self.names, len(self.names)
        if self.ring:
            return [(names[(own - hop - 1) % count], names[own - 1], names[(own + 1) % count])]
        return [(name, name, name) for name in names if name != names[own]]


class LinkResult(msgspec.Struct, frozen=True):
    """The coordinator's result: the number of people that all parties have, by pass, and the name of the parties' row maps."""

    rows: int
    passes: tuple[int, ...]
    ids: str


def render(result: LinkResult) -> str:
    """For a terminal."""
    by_pass = "" if len(result.passes) == 1 else f" (by pass: {', '.join(map(str, result.passes))})"
    if not result.rows:
        return "the parties have nobody in common: no later study can use these rows"
    return f'{result.rows} people are at every party{by_pass}\nlater studies of them say: ids = "{result.ids}"'


def design_of(study: Study) -> LinkDesign:
    """Return the checked design that the study asks for."""
    asked = check_parameters(study, Parameters)
    keys = asked.keys
    if asked != Parameters(keys, asked.reveal) or asked.reveal != INTERSECTION:
        msg = f'reveal is "{INTERSECTION}", which is the default, or "{NOTHING}"; population, holder, hub and several are for reveal = "{NOTHING}" alone'
        raise UsageError(msg)
    if study.helpers or any(card.capped for card in study.parties):
        msg = (
            f'a study that reveals the intersection needs no helper, and no cards with a cap: write reveal = "{NOTHING}" under [parameters] for a hidden link, '
            "or leave the helper out and take cards without a cap"
        )
        raise UsageError(msg)
    if not 1 <= len(keys) <= _MOST_KEYS or len({key.name for key in keys}) != len(keys):
        msg = f"keys are between 1 and {_MOST_KEYS}, each of its own name"
        raise UsageError(msg)
    if not _FEWEST <= len(study.parties) <= MOST_PARTIES or not all(card.key for card in study.parties):
        msg = f"rows are linked between {_FEWEST} and {MOST_PARTIES} parties whose cards carry a key, as `unpooled party init` writes them"
        raise UsageError(msg)
    for key in keys:
        check_key(study, key)
    return LinkDesign(tuple(card.name for card in study.parties), keys, tuple(card.rows for card in study.parties))


def check_key(study: Study, key: LinkKey) -> None:
    """Refuse a key that a card has no column for, or whose normalisers nobody knows."""
    check_names(key.normalise)
    if not key.name or not key.name.isprintable():
        raise UsageError("a key has a name that can be printed")
    for card in study.parties:
        held = {*(column.name for column in card.columns), *card.labels, card.id}
        missing = [column for column in key.columns if column not in held]
        if missing or not (key.columns or card.id):
            what = f"no column {missing[0]!r}" if missing else "no id column"
            msg = f"key {key.name!r}: the card of {card.name!r} has {what}: `unpooled party init --id COLUMN`, or declare it as a label"
            raise UsageError(msg)


def compile_plan(study: Study) -> Plan:
    """Compile a plan without releases: membership is disclosed exactly, and the plan says so in words."""
    usual = (study.unit, study.adjacency, study.calibration) == (Unit.RECORD, Adjacency.REPLACE, Calibration.SOUND)
    if study.epsilon != math.inf or not usual or study.trust or study.ids or study.simulation_seed is not None:
        raise UsageError(
            'model "link" has no epsilon: membership is told exactly. Leave [privacy], [trust], ids and simulation_seed out of its study'
        )
    design = design_of(study)
    words = [
        *_WHO,
        *([_SMALL] if len(design.names) > _FEWEST else []),
        *([_WATERFALL] if len(design.keys) > 1 else []),
    ]
    rows = ", ".join(f"{card.name} {card.rows}" for card in study.parties)
    return Plan(
        study,
        Split.VERTICAL,
        (),
        public=tuple(words),
        not_protected=(
            Sentence(
                "link.guesses",
                "A party can test guessed ids against the others' sets: one for every row of its card ({rows}) and each of {keys} key(s).",
                rows=rows,
                keys=len(design.keys),
            ),
        ),
        assumptions=(
            Sentence(
                "link.follows",
                "Every party masks its list as the protocol says. A party that does not gets a wrong and mostly empty intersection.",
            ),
        ),
        voids=(
            Sentence(
                "link.no-epsilon",
                "Linking rows has no epsilon: it tells the parties named below exactly who is in all sets.",
            ),
        ),
        hidden=(_HIDDEN,),
        links=True,
        design=design,
    )
