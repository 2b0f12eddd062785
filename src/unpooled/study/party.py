"""A party on disk: from its party.toml to a :class:`~unpooled.protocol.party.Party` with data, ledger and keys; its linked rows, and ledgers that share its data."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import DataError, StudyError, UnpooledError, UsageError, listed
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import HelperCard
from unpooled.privacy.study import HIDDEN
from unpooled.privacy.table import BoundedTable, HubTable, NoRows, PlacedTable, Table
from unpooled.protocol.identity import MAP_DATA, ROW_MAP, Identity
from unpooled.protocol.party import Party
from unpooled.study.cluster.section import EngineSection
from unpooled.study.data import no_id_twice, read_table
from unpooled.study.files import (
    HelperSection,
    PartyFile,
    PartySection,
    card_of,
    check_party_name,
    is_helper,
    ledger_of,
    policy_home,
    policy_of,
    read_card,
    read_helper,
    read_party,
    rules_of,
    write_card,
    write_helper,
    write_helper_card,
    write_party,
)
from unpooled.study.sources.query import QueryAddress
from unpooled.study.sources.table import Source, SourceSection, source_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.unit import Target
    from unpooled.protocol.identity import Keeper
    from unpooled.study.reading import DataFormat


# --- Budgets ---------------------------------------------------------------------------------------------------------------
# Finds ledgers that already keep the budget of a data file or a query, so that nobody spends it twice by setting up a second party.
#
# Ledgers are looked for next to the data, next to the new party's folder, and in a list of this user's ledgers (in the state folder of
# the user, where there is one that can be written). A copy of the data somewhere else is found by what it holds. No list is
# complete: the guarantee page says so.

#: Files that are looked at in each place; a folder of thousands of parties is nobody's working folder.
_MOST = 200


def place_of(data: Path | QueryAddress) -> str:
    """Which file this is, or which query of which databases."""
    return data.place if isinstance(data, QueryAddress) else str(data.resolve())


def digest_of(data: Path) -> bytes:
    """Return SHA-256 of a data file."""
    with data.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def other_budgets(data: Path | QueryAddress, folder: Path, digest: bytes | None = None) -> tuple[Path, ...]:
    """Ledgers that keep the budget of these data already: of this very place, or of one that held the same."""
    place = place_of(data)
    if digest is None and isinstance(data, Path):
        digest = digest_of(data)
    found = []
    for ledger in dict.fromkeys(path.resolve() for path in _candidates(data, folder)):
        with suppress(UnpooledError, OSError), Ledger.open(ledger) as opened:
            if any(file == place or held == digest for file, held in opened.data):
                found.append(ledger)
    return tuple(found)


def remember(ledger: Path) -> None:
    """Add a ledger to this user's list, where there is a place for one."""
    with suppress(OSError):
        listed = _list()
        listed.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with listed.open("a", encoding="utf-8") as out:
            out.write(f"{ledger.resolve()}\n")


def _candidates(data: Path | QueryAddress, folder: Path) -> Iterator[Path]:
    with suppress(OSError, UnicodeDecodeError):
        for line in _list().read_text(encoding="utf-8").splitlines()[-_MOST:]:
            yield Path(line)
    beside = data.folder.resolve() if isinstance(data, QueryAddress) else data.resolve().parent
    for place in dict.fromkeys((beside, folder.resolve(), folder.resolve().parent)):
        for pattern in ("*.ledger", "*/*.ledger"):
            with suppress(OSError):
                yield from sorted(place.glob(pattern))[:_MOST]


def _list() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")  # noqa: PTH111, PTH118 - no error without a home
    return Path(state) / "unpooled" / "ledgers"


# --- Linked ----------------------------------------------------------------------------------------------------------------
# Linked rows on disk: a party's rows in the order of one of its row maps, and the party file and card that later studies use.

#: Fewer people than these are in no study.
_FEWEST = 2


class LinkedTable(Table):
    """Some rows of a table, in the order of a row map. They are in memory; what they were read from is still watched."""

    def __init__(self, source: Table, rows: NDArray[Any], name: str) -> None:
        sparse = [column for column in source.names if column in source.sparse_names]
        dense = {column: source[column][rows] for column in source.names if column not in source.sparse_names}
        matrix = source.sparse(sparse) if sparse else None
        super().__init__(dense, None if matrix is None else (sparse, matrix[rows, :]))
        self.linked, self._source, self._taken = name, source, rows

    def _row_ids(self) -> list[str | None]:
        ids = self._source.ids()
        return [ids[row] for row in self._taken]

    @cached_property
    def digest(self) -> bytes:
        """Return SHA-256 of what the rows were read from, and of the row map."""
        return hashlib.sha256(self._source.digest + self.linked.encode()).digest()

    def verify(self) -> None:
        """Refuse if the data have changed."""
        self._source.verify()


def linked_table(source: Table, keeper: Keeper, name: str) -> LinkedTable:
    """Return the rows of a row map that this party keeps."""
    if not keeper.has(name, ROW_MAP):
        msg = f"this party keeps no row map {name[:16]}: only a study that linked its own rows makes one"
        raise StudyError(msg)
    if keeper.kept(name, MAP_DATA).tobytes() != source.digest:
        raise DataError(
            "the data have changed since their rows were linked, so that its row map names other people: put the old file back, or link the new data "
            "as another run of the study that linked them (run = 2 under its [study])"
        )
    rows = keeper.kept(name, ROW_MAP)
    if rows.size < _FEWEST:
        msg = f"the parties have {rows.size} people in common: at least {_FEWEST} are needed for a study"
        raise DataError(msg)
    return LinkedTable(source, rows.astype(np.int64), name)


def at_places(source: Table, keeper: Keeper, name: str) -> Table:
    """Return rows at their places in a hidden link: of a hub, which has places for each hospital, in all arrays.

    Places that this party does not keep, or that are those of other data, are refused.
    """
    from unpooled.linkage.hidden.places import has_places, places_of

    if not has_places(keeper, name):
        msg = f"this party keeps no places {name[:24]}: only a hidden link of its own rows makes them"
        raise StudyError(msg)
    if keeper.kept(name.removeprefix(HIDDEN), MAP_DATA).tobytes() != source.digest:
        raise DataError(
            "the data have changed since a hidden link gave their rows places: put the old file back, or link the new data as another run of the study "
            "that linked them (run = 2 under its [study])"
        )
    found = places_of(keeper, name)
    return HubTable(source, found) if len(found) > 1 else PlacedTable(source, next(iter(found.values())))


# --- Party -----------------------------------------------------------------------------------------------------------------
# A party on disk: from its party.toml to a :class:`~unpooled.protocol.party.Party` with data, ledger, key and policy.

#: So many digits of a plan's hash are in the name of a kept file.
_PLAN = 32


@contextmanager
def open_party(path: str | Path) -> Iterator[Party]:
    """The party that a party.toml describes, its ledger opened and verified."""
    path = Path(path)
    if is_helper(path):
        with _open_helper(path) as party:
            yield party
        return
    text = read_party(path)
    names = (*(column.name for column in text.columns), *text.party.labels)
    keeper = keeper_of(path)
    with ExitStack() as opened:
        table = table_of(path.parent, text, names)
        opened.callback(table.close)
        places = 0
        if text.party.linked.startswith(HIDDEN):
            table = at_places(table, keeper, text.party.linked)
            places = table.n_rows
        elif text.party.linked:
            table = linked_table(table, keeper, text.party.linked)
        ledger = opened.enter_context(Ledger.open(path.parent / text.party.ledger))
        yield Party(
            text.party.name,
            table,
            card_of(
                text.party,
                text.columns,
                table.n_rows,
                Identity(ledger.root_key).public,
                (table.household or (0,))[0],
                joint=text.policy.joint,
                places=places,
            ),
            ledger,
            KeySource(ledger.root_key),
            policy_of(text.policy),
            load,
            keeper,
        )


@contextmanager
def open_account(path: str | Path) -> Iterator[Party]:
    """Yield the party of a party file with its ledger, its policy and its public card: no row is read, so it knows costs, and answers nothing."""
    path = Path(path)
    if is_helper(path):
        with _open_helper(path) as party:
            yield party
        return
    text = read_party(path)
    card = read_card(path.parent / f"{text.party.name}.card.toml")
    with Ledger.open(path.parent / text.party.ledger) as ledger:
        keys, policy = KeySource(ledger.root_key), policy_of(text.policy)
        yield Party(text.party.name, NoRows(), card, ledger, keys, policy, load, keeper_of(path))


@contextmanager
def _open_helper(path: Path) -> Iterator[Party]:
    """The helper that a party file describes, its ledger opened and verified."""
    text = read_helper(path)
    own = text.helper
    with Ledger.open(path.parent / own.ledger) as ledger:
        card = HelperCard(own.name, Identity(ledger.root_key).public, contact=own.contact)
        keys = KeySource(ledger.root_key)
        yield Party(own.name, NoRows(), card, ledger, keys, rules_of(text.policy), load, keeper_of(path))


def create_helper(folder: Path, name: str, contact: str = "") -> tuple[Path, Path]:
    """Write the party file and the public card of a helper, and create its ledger and key; nothing that exists is overwritten."""
    config, card = folder / "party.toml", folder / f"{name}.card.toml"
    for path in (config, card):
        if path.exists():
            msg = f"{path} exists already: edit it, or choose another folder"
            raise StudyError(msg)
    check_party_name(name)
    helper = HelperSection(name, f"{name}.ledger", contact)
    folder.mkdir(parents=True, exist_ok=True)
    with Ledger.create(folder / helper.ledger) as created:
        key = Identity(created.root_key).public
    card.write_text(write_helper_card(HelperCard(name, key, contact=contact)))
    config.write_text(write_helper(helper))
    return config, card


def place_in(folder: Path, text: PartyFile) -> Path | Source:
    """Return the data of a party file in this folder: a file, or a query and where it is asked."""
    return source_of(text.party.data, text.source, folder, text.party.name) or folder / text.party.data


def table_of(folder: Path, text: PartyFile, names: tuple[str, ...]) -> Table:
    """Return the data of a party file in this folder, on its cluster where it names one."""
    return data_of(place_in(folder, text), names, text.party, text.format, text.columns, text.engine, folder)


def data_of(
    data: Path | Source,
    names: tuple[str, ...],
    party: PartySection,
    form: DataFormat | None = None,
    columns: Sequence[Column] = (),
    engine: EngineSection | None = None,
    folder: Path | None = None,
) -> Table:
    """Return the data of a party; where rows belong together, those that count."""
    if isinstance(data, QueryAddress):
        data.of_people(party.id, party.household)

    def read(names: tuple[str, ...]) -> Table:
        if engine is None or engine == EngineSection() or folder is None:
            found = read_table(data, names, party.id, form, columns)
            if party.id and not party.household and isinstance(data, Path):
                no_id_twice(found, party.id)
            return found
        from unpooled.study.cluster.table import cluster_table

        return cluster_table(data, names, party.id, form, columns, engine, party.name, folder, party.household)

    household = party.household
    if household is None:
        return read(names)
    check_household(party, names)
    table = read((*names, household))
    return BoundedTable(table, table[household], party.household_rows, household)


def check_household(party: PartySection, names: tuple[str, ...]) -> None:
    """Refuse a column of households that is declared as data, or as the row ids, as well."""
    if party.household is not None and (party.household in names or party.household == party.id):
        msg = f"column {party.household!r} says which rows belong together: it cannot be data, or the column of row ids, as well"
        raise StudyError(msg).at(column=party.household)


def keeper_of(path: Path) -> DiskKeeper:
    """Where the party of a party.toml keeps what never leaves it."""
    ledger = ledger_of(path)
    return DiskKeeper(ledger.with_name(f"{ledger.name}.kept"))


def create_party(
    folder: Path,
    name: str,
    data: Path | Source,
    columns: tuple[Column, ...],
    budget: Target,
    id_column: str | None = None,
    labels: tuple[str, ...] = (),
    form: DataFormat | None = None,
    *,
    household: str | None = None,
    household_rows: int = 1,
    household_elsewhere: bool = True,
    new_budget: bool = False,
    **more: Any,  # noqa: ANN401 - other fields of the party section
) -> tuple[Path, Path]:
    """Write party.toml and the public card, and create the ledger and its key; nothing that exists is overwritten.

    Refused where another ledger keeps the budget of these data already, unless a ``new_budget`` in addition to it is really meant.
    """
    config, card = folder / "party.toml", folder / f"{name}.card.toml"
    for path in (config, card):
        if path.exists():
            msg = f"{path} exists already: edit it, or choose another folder"
            raise StudyError(msg)
    party = PartySection(
        name,
        written_in(data, folder),
        f"{name}.ledger",
        id_column,
        labels,
        household,
        1 if household is None else household_rows,
        household_elsewhere,
        **more,
    )
    text = write_party(party, columns, budget, form, source=section_in(data, folder))
    _establish(party, data, folder, columns, form, new_budget=new_budget)
    config.write_text(text)
    return config, card


def complete_party(config: Path, *, new_budget: bool = False) -> Path:
    """Make the ledger, the key and the public card of a party file that somebody wrote; returns the card."""
    text = read_party(config)
    folder, party = config.parent, text.party
    card = folder / f"{party.name}.card.toml"
    if card.exists():
        msg = f"{card} exists already: this party has been set up"
        raise StudyError(msg)
    _establish(party, place_in(folder, text), folder, text.columns, text.format, text.engine, new_budget=new_budget)
    return card


def written_in(data: Path | Source, folder: Path) -> str:
    """Return the address of these data as a party file in this folder writes it."""
    return data.written if isinstance(data, Source) else os.path.relpath(data, folder)


def section_in(data: Path | Source, folder: Path) -> SourceSection | None:
    """Return the section that a party file in this folder has in addition, where the data are a query."""
    return data.section(folder) if isinstance(data, Source) else None


def party_of_rows(config: Path, data: Path, folder: Path) -> tuple[Path, Path]:
    """Return a party file and a card for new rows of a party that exists: its declarations, its ledger, key and policy, no labels."""
    text = read_party(config)
    own, new, card = text.party, folder / "party.toml", folder / f"{text.party.name}.card.toml"
    for path in (new, card):
        if path.exists():
            msg = f"{path} exists already: choose another folder"
            raise StudyError(msg)
    party = msgspec.structs.replace(
        own,
        data=os.path.relpath(data, folder),
        ledger=os.path.relpath(config.parent / own.ledger, folder),
        labels=(),
        cap=None,
        linked="",  # other people than those whose rows were linked
        policy_of=os.path.relpath(policy_home(config), folder),
    )
    names = tuple(column.name for column in text.columns)
    table = data_of(data, names, party, text.format, text.columns)
    with Ledger.open(config.parent / own.ledger) as ledger:
        key = Identity(ledger.root_key).public
    made = card_of(party, text.columns, table.n_rows, key, (table.household or (0,))[0])
    folder.mkdir(parents=True, exist_ok=True)
    new.write_text(write_party(party, text.columns, None, text.format))
    card.write_text(write_card(made))
    return new, card


def _establish(
    party: PartySection,
    data: Path | Source,
    folder: Path,
    columns: tuple[Column, ...],
    form: DataFormat | None,
    engine: EngineSection | None = None,
    *,
    new_budget: bool,
) -> None:
    """Look at the data, then make the ledger and the card."""
    names = (*(column.name for column in columns), *party.labels)
    with closing(data_of(data, names, party, form, columns, engine, folder)) as table:
        # Refused, if it is to be, before anything is made.
        card = card_of(party, columns, table.n_rows, "", (table.household or (0,))[0])
        digest = digest_of(data) if isinstance(data, Path) else table.digest
    if not new_budget and (others := other_budgets(data, folder, digest)):
        msg = (
            f"{data.name}: the budget of these data is kept already, in {listed([str(other) for other in others])}. A second ledger would let "
            "them be spent twice: use that party, or add --new-budget if people's total may grow by this one"
        )
        raise StudyError(msg)
    folder.mkdir(parents=True, exist_ok=True)
    ledger = folder / party.ledger
    with Ledger.create(ledger) as created:
        key = Identity(created.root_key).public
        created.belongs_to(place_of(data), digest)
    remember(ledger)
    (folder / f"{party.name}.card.toml").write_text(write_card(msgspec.structs.replace(card, key=key)))


class DiskKeeper:
    """Kept values in files of the party: one per plan and name, readable by nobody else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, plan: str, name: str, values: NDArray[Any]) -> None:
        """Write one value (atomically: a reader sees the old one or the new one)."""
        if not self._folder.exists():
            self._folder.mkdir(mode=0o700, exist_ok=True)
            _sync(self._folder.parent)
        file = self._file(plan, name)
        # A name of its own: another process of this party may answer the same request of another coordinator right now.
        temporary = file.with_name(f"{file.stem}.{secrets.token_hex(8)}.tmp")
        try:
            with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
                np.save(out, values, allow_pickle=False)
                out.flush()
                os.fsync(out.fileno())
            temporary.replace(file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync(self._folder)  # a debit that follows must not outlive what is kept for it

    def kept(self, plan: str, name: str) -> NDArray[Any]:
        """Read one value."""
        try:
            values: NDArray[Any] = np.load(self._file(plan, name), allow_pickle=False)
        except FileNotFoundError:
            msg = f"nothing named {name!r} is kept for plan {plan[:16]}"
            raise UsageError(msg) from None
        return values

    def has(self, plan: str, name: str) -> bool:
        """Return True if there is such a value."""
        return self._file(plan, name).exists()

    def forget(self, plan: str) -> list[str]:
        """Delete what is kept for a plan; the names of what is gone."""
        gone = self.names(plan)
        for name in gone:
            self._file(plan, name).unlink()
        left = [file for file in self._folder.glob("*.tmp") if file.name.startswith(f"{plan[:_PLAN]}-")]
        for file in left:  # by a process that died while it wrote
            file.unlink()
        if gone or left:
            _sync(self._folder)
        return gone

    def names(self, plan: str) -> list[str]:
        """Return the names of the values that are kept for a plan."""
        return sorted(name for known, name in self._stored() if known == plan[:_PLAN])

    def plans(self) -> list[str]:
        """Return the plans for which something is kept, by the beginnings of their hashes."""
        return sorted({plan for plan, _ in self._stored()})

    def _stored(self) -> list[tuple[str, str]]:
        return [(file.stem[:_PLAN], file.stem[_PLAN + 1 :]) for file in self._folder.glob("*-*.npy")]

    def _file(self, plan: str, name: str) -> Path:
        if not name.replace("_", "").isalnum():
            msg = "kept values are named with letters, digits and underscores"
            raise UsageError(msg)
        return self._folder / f"{plan[:_PLAN]}-{name}.npy"


def _sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
