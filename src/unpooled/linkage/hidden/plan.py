"""The plan of a hidden link: its members, its cells and their noise, the lengths of its lists, and in words who learns what."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import UsageError, listed
from unpooled.linkage.hidden.cells import CellNoise, cells_of, check_budget, planted, room_of
from unpooled.linkage.masking import SIZE
from unpooled.linkage.plan import BOTH, HOLDER, MOST_PARTIES, LinkDesign, Parameters, check_key
from unpooled.privacy.exposure import Exposure, Release
from unpooled.privacy.plan import Plan, Study, check_parameters
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.study import HIDDEN, NOTHING
from unpooled.privacy.unit import Adjacency, Calibration, Split, Unit
from unpooled.protocol.messages import PSEUDONYM, SIZE_LIMIT

if TYPE_CHECKING:
    from unpooled.linkage.hidden.cells import Cell
    from unpooled.linkage.plan import LinkKey

#: The steps in their order: of the parties, but for the first, which the helper takes too, and for "match", which is its own.
HELLO, SHARE, LIST, MASK, PASS, FINISH = "hide-hello", "hide-share", "hide-list", "hide-mask", "hide-pass", "hide-finish"
MATCH, PLACES, COMPARE, VERDICT, CLOSE = "hide-match", "hide-places", "hide-compare", "hide-verdict", "hide-close"
#: The release that every party pays for, once for all: the sizes of cells with their noise, which the helper alone sees.
SIZES = "sizes of cells"
#: The only word for an id that several hospitals of a hub hold: it is one person.
ONE = "one"
#: Bytes of a place, and seconds of a multiplication in the group (measured on one core of 2025; 50 to 75 microseconds).
PLACE, _MULTIPLICATION = 4, 75e-6


@dataclass(frozen=True)
class HiddenLinkDesign(LinkDesign):
    """A study that links rows without telling anybody whose they are, understood. ``rows`` are caps."""

    helper: str
    population: str
    holder: str
    hub: str
    cells: tuple[Cell, ...]
    noise: CellNoise

    @property
    def key(self) -> LinkKey:
        """Return the one key."""
        return self.keys[0]

    @property
    def arrays(self) -> tuple[tuple[str, str], ...]:
        """Return the pairs of parties that have places in common: two parties, or the hub with each hospital."""
        if not self.hub:
            first, second = self.names
            return ((first, second),)
        return tuple((self.hub, name) for name in self.names if name != self.hub)

    def arrays_of(self, party: str) -> list[int]:
        """Return the numbers of the arrays in which a party has places."""
        return [number for number, pair in enumerate(self.arrays) if party in pair]

    def guesses(self, party: str) -> int:
        """Return how many ids a party that works with the helper can test against this one's list: one for every entry of its own, pads and all."""
        return sum(map(self.length, self.names)) - self.length(party)

    def length(self, party: str) -> int:
        """Return the number of entries of a party's list, whatever it holds."""
        return self.rows[self.names.index(party)] + room_of(party, self.cells, self.noise.most)

    @property
    def totals(self) -> tuple[int, ...]:
        """Return the number of places of every array."""
        return tuple(self.length(first) + self.length(second) for first, second in self.arrays)


class HiddenResult(msgspec.Struct, frozen=True):
    """The coordinator's result: the name of the places, how many of them each pair of parties has, and the parties' verdicts under the name."""

    ids: str
    places: tuple[int, ...]
    verdicts: tuple[str, ...]


def render_hidden(result: HiddenResult) -> str:
    """For a terminal."""
    places = ", ".join(f"{many:,}" for many in result.places)
    return (
        f"the rows of the parties lie at {places} places, and nobody learned who is in common\n"
        f'later studies of them say: ids = "{result.ids}"'
    )


def reveals_nothing(study: Study) -> bool:
    """Return True if the study asks for a hidden link."""
    return study.parameters.get("reveal") == NOTHING


def hidden_design_of(study: Study) -> HiddenLinkDesign:
    """Return the checked design that the study asks for."""
    asked = check_parameters(study, Parameters)
    _check_members(study)
    if len(asked.keys) != 1:
        msg = (
            f"a hidden link has one key, and this study has {len(asked.keys)}: matching is inside the guarantee, and with several keys one record changes several matches. "
            "Write one [[parameters.keys]], which may have several columns"
        )
        raise UsageError(msg)
    check_key(study, asked.keys[0])
    names = tuple(card.name for card in study.parties)
    _check_hub(asked, names)
    _check_population(asked, names)
    check_budget(study.epsilon, study.delta)
    cells = cells_of(names, asked.hub)
    noise = CellNoise.calibrated(len(cells), study.epsilon, study.delta)
    rows = tuple(card.rows for card in study.parties)
    (helper,) = study.helpers
    design = HiddenLinkDesign(names, asked.keys, rows, helper.name, asked.population, asked.holder, asked.hub, cells, noise)
    for name in names:
        if max(bytes_of(design, name)) >= SIZE_LIMIT:
            msg = f"the lists of party {name!r} are longer than messages may be ({SIZE_LIMIT / 1e9:.1f} GB): declare smaller caps, or link fewer hospitals"
            raise UsageError(msg).at(party=name)
    return design


def _check_members(study: Study) -> None:
    """Refuse members who are not pinned, not one helper, and parties that declare their number of rows instead of a cap."""
    if study.in_process:
        msg = (
            "a hidden link is between members with keys, or one organisation could play two of them: use the cards that `unpooled party init` writes "
            "(with --helper for the helper)"
        )
        raise UsageError(msg)
    if len(study.helpers) != 1:
        has = f"{len(study.helpers)} helpers" if study.helpers else "no helper"
        msg = (
            f"a hidden link has one helper, which matches pseudonyms, and this study has {has}: name one organisation without data under [[party]] and in "
            '[trust] helpers = ["NAME"] (`unpooled party init --helper`)'
        )
        raise UsageError(msg)
    open_ones = [card.name for card in study.parties if not card.capped]
    if open_ones:
        msg = (
            f"the card of {open_ones[0]!r} tells its number of rows, which a hidden link keeps secret: write cap = ... under [party], the most rows that it may "
            "ever have, and the card anew (`unpooled party card`)"
        )
        raise UsageError(msg).at(party=open_ones[0])
    usual = (study.unit, study.adjacency, study.calibration) == (Unit.RECORD, Adjacency.REPLACE, Calibration.SOUND)
    if not usual or study.trust or study.ids or study.simulation_seed is not None:
        raise UsageError(
            "a hidden link is about whole records that are replaced, by sound noise: under [privacy] write epsilon (and delta) alone, and leave ids, simulation_seed and "
            "all of [trust] but helpers out"
        )


def _check_hub(asked: Parameters, names: tuple[str, ...]) -> None:
    """Refuse more parties than two without a registry, and a registry that is none."""
    if not asked.hub:
        if len(names) != 2:  # noqa: PLR2004 - of a person
            msg = (
                f"a hidden link without a hub is between two parties, and this study has {len(names)}: link two of them; or name the registry whose people are matched "
                'with those of all the others: hub = "NAME" and several = "one" under [parameters]'
            )
            raise UsageError(msg)
        if asked.several:
            raise UsageError("several is for a hidden link with a hub: leave it out")
        return
    if asked.hub not in names or not 3 <= len(names) <= MOST_PARTIES:  # noqa: PLR2004 - a registry and two hospitals
        msg = (
            f"hub names the registry of at least two hospitals, one of {listed(list(names))}, and there are at most {MOST_PARTIES} parties: correct it, or "
            "leave hub out between two parties"
        )
        raise UsageError(msg)
    if asked.several != ONE:
        msg = (
            'several says what an id is that several hospitals hold. Write several = "one" under [parameters]: it is one person, and the helper keeps one match of it. '
            "There is no other way"
        )
        raise UsageError(msg)


def _check_population(asked: Parameters, names: tuple[str, ...]) -> None:
    """Refuse a population that is none, and a holder who holds nothing."""
    if asked.population not in {BOTH, HOLDER} or (asked.population == BOTH and asked.holder):
        msg = f'population is "{BOTH}" (the people whom both parties hold) or "{HOLDER}" (all people of the party that holder names): correct it'
        raise UsageError(msg)
    if asked.population == HOLDER and not asked.hub and asked.holder not in names:
        msg = f'population = "{HOLDER}" needs holder = "NAME" under [parameters], one of {listed(list(names))}: all of whose people are in later studies'
        raise UsageError(msg)
    if asked.hub and asked.holder:
        raise UsageError("with a hub the holders are the hospitals: leave holder out")


def compile_hidden(study: Study) -> Plan[HiddenLinkDesign]:
    """Compile the plan of a hidden link: one release, which every party pays for and which the helper alone sees."""
    design = hidden_design_of(study)
    # One value moves the sizes as much as the person, where an id is made of it.
    exposure = Exposure(together=1, label=design.noise.event(Unit.RECORD))
    releases = tuple(Release(SIZES, name, MASK, design.noise, exposure=exposure) for name in design.names)
    return Plan(
        study,
        Split.VERTICAL,
        releases,
        public=_learned(design),
        not_protected=_open(design),
        assumptions=_assumed(design),
        hidden=_kept(design),
        notes=_notes(design),
        design=design,
        links=True,
        hides=True,
        against=f"every party alone, several hospitals together, the coordinator, and helper {design.helper} as long as it works with no party"
        if design.hub
        else f"every party alone, the coordinator, and helper {design.helper} as long as it works with no party",
        excepted=(
            f"helper {design.helper} together with a party",
            *(
                [f"{design.hub} together with a hospital, of people whom both hold and another hospital too"]
                if design.hub
                else []
            ),
        ),
    )


# --- Words -----------------------------------------------------------------------------------------------------------------
# Who learns what, what is assumed, and what the link costs in time and bytes.


def _learned(design: HiddenLinkDesign) -> tuple[Sentence, ...]:
    """Return who learns what, and with whom."""
    who = design.helper
    found = [
        Sentence(
            "hidden.helper",
            "Helper {helper}, also together with the coordinator, learns under pseudonyms of this plan alone how many ids are held by exactly which parties, for "
            "each of {cells} cell(s) with noise of deviation {deviation:.3g} (0 to {most} noise pairs).",
            helper=who,
            cells=len(design.cells),
            deviation=design.noise.scale,
            most=2 * design.noise.most,
        ),
        Sentence(
            "hidden.helper-and-party",
            "Helper {helper} together with a party learns which ids of that party's list the others hold; of other ids nothing.",
            helper=who,
        ),
    ]
    if design.hub:
        found.append(
            Sentence(
                "hidden.hub-and-hospital",
                "{hub} together with a hospital learns of the people whom both hold which ones another hospital holds as well.",
                hub=design.hub,
            )
        )
    if len(design.names) > 3:  # noqa: PLR2004 - a hub and two hospitals
        found.append(
            Sentence(
                "hidden.many-hospitals",
                "Helper {helper} learns exactly, without noise, how many ids are held by exactly which three or more hospitals.",
                helper=who,
            )
        )
    return tuple(found)


def _kept(design: HiddenLinkDesign) -> tuple[Sentence, ...]:
    """Return what stays hidden, and from whom altogether."""
    found = [
        Sentence(
            "hidden.kept",
            "Whether a person is on any list but your own, whom two organisations share, how many these are, and every value of a person.",
        ),
        Sentence(
            "hidden.party", "A party alone, and the coordinator, learn nothing: lengths and steps follow from the caps."
        ),
    ]
    return (*found, *([Sentence("hidden.hospitals", "Hospitals together learn nothing.")] if design.hub else []))


def _open(design: HiddenLinkDesign) -> tuple[Sentence, ...]:
    caps = ", ".join(f"{name} {rows}" for name, rows in zip(design.names, design.rows, strict=True))
    return (
        Sentence(
            "hidden.caps",
            "That an organisation has at most its cap of people ({caps}), who is eligible, the columns and bounds.",
            caps=caps,
        ),
        Sentence(
            "hidden.guesses",
            "A party that works with the helper can test guessed ids against the others' lists: one for every entry of its own list ({lengths}).",
            lengths=", ".join(f"{name} {design.length(name)}" for name in design.names),
        ),
        Sentence("hidden.charged", "Everybody on a list is charged, in a later study or not."),
        Sentence(
            "hidden.planted",
            "In every cell, and in every list alone, {planted} entries are planted by which the parties check what the helper matched.",
            planted=planted(),
        ),
    )


def _assumed(design: HiddenLinkDesign) -> tuple[Sentence, ...]:
    found = [
        Sentence(
            "hidden.no-coalition",
            "Helper {helper} works with no party: together they know which of the party's people the others have, and in later studies the rows that are sent to that party.",
            helper=design.helper,
        ),
        Sentence(
            "hidden.matches",
            "The helper matches and draws places as written; one that does not splits the rows of a person, and later studies cost that person up to {times} times what "
            "they plan (Theorem K.7).",
            times=2 * len(design.arrays),
        ),
        Sentence("hidden.one-person", "One id is one person everywhere, and stands once in a list."),
        Sentence(
            "hidden.population",
            "Later studies are about {people}.",
            people="the people whom both parties of a pair hold"
            if design.population == BOTH
            else f"all people of {design.holder or 'the hospitals'}, the columns of others being 0 where they hold nobody",
        ),
    ]
    if design.hub:
        found.append(
            Sentence(
                "hidden.several",
                "An id that several hospitals hold is one person: the helper keeps one of its matches with {hub}, drawn by a keyed hash.",
                hub=design.hub,
            )
        )
    return tuple(found)


def multiplications(design: HiddenLinkDesign, party: str) -> int:
    """Return how often a party multiplies a point."""
    own = design.length(party)
    return sum(map(design.length, design.names)) + own + (0 if design.ring else own)


def bytes_of(design: HiddenLinkDesign, party: str) -> tuple[int, int]:
    """Return the bytes of lists and places that a party sends and receives, without what surrounds them."""
    own = design.length(party)
    others = sum(map(design.length, design.names)) - own
    count = len(design.names)
    # In a ring each list goes through all hands; else its owner sends it to all, and each sends it back.
    lists = SIZE * (own + others) if design.ring else SIZE * (own * (count - 1) + others)
    marked = {name: room_of(name, design.cells, design.noise.most) for name in design.names}
    met = [one if other == party else other for one, other in design.arrays if party in (one, other)]
    shown, seen = marked[party] * len(met), sum(marked[name] for name in met)
    return lists + PSEUDONYM * own + PLACE * shown, lists + PLACE * (own * len(met) + seen)


def _notes(design: HiddenLinkDesign) -> tuple[str, ...]:
    """Return what the link needs: places, caps, bytes and time of every member."""
    found = []
    for (first, second), total in zip(design.arrays, design.totals, strict=True):
        found.append(f"places of {first} and {second}: {total:,}, the sum of the lengths of their lists")
    for name, cap in zip(design.names, design.rows, strict=True):
        sent, received = bytes_of(design, name)
        seconds = multiplications(design, name) * _MULTIPLICATION
        found.append(
            f"{name}: cap {cap:,}, a list of {design.length(name):,} entries; sends {_size(sent)}, receives {_size(received)}, about {math.ceil(seconds):,} s on one core"
        )
    found.append(
        f"helper {design.helper}: receives {_size(PSEUDONYM * sum(map(design.length, design.names)))} of pseudonyms, which it deletes, and keeps sets of places"
    )
    found.append(f'{HIDDEN}... names the places once it has run: later studies say ids = "{HIDDEN}..."')
    return tuple(found)


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"  # noqa: PLR2004
