"""A campaign of faults: a study on disk meets one fault at one call of the file layer, then runs again without one, to its end.

Whatever failed, every planned charge is debited once, what was answered stays debited and is answered with the same bytes, no key of noise serves
two statistics, and the result has the bits of the undisturbed run.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.errors import UnpooledError
from unpooled.privacy.noise import KeySource, Stream
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import Ask, Dropped
from unpooled.protocol.transcript import Transcript
from unpooled.study.party import DiskKeeper
from unpooled.study.run import write_results
from unpooled.testing.cases import Case
from unpooled.testing.disks import DiskFault, FailingDisk, Killed, failing
from unpooled.testing.processes import ENTRY, World, entries_of, recorded, spelled

#: The columns of a campaign's table: a debit or an answer that is gone, a second debit, a key that served twice, a result with other bits, and
#: a refusal whose words were not true.
FINDINGS = ("lost", "debited twice", "keys twice", "other bits", "untrue words")
#: The charges that a ledger holds, without their state.
Charged = set[tuple[str, str, int, str, str]]


@dataclass
class Keys:
    """The content for which each key of noise was derived, and each place of a study drew."""

    of: dict[bytes, bytes] = field(default_factory=dict)
    twice: int = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note every derivation, inside the block."""
        derive = KeySource.stream

        def stream(source: KeySource, *names: str | int | bytes, content: bytes = b"") -> Stream:
            found = derive(source, *names, content=content)
            for key in (found.key, repr((source.root, names)).encode()):
                self.twice += self.of.setdefault(key, content) != content
            return found

        KeySource.stream = stream  # type: ignore[assignment,method-assign]
        try:
            yield
        finally:
            KeySource.stream = derive  # type: ignore[method-assign]


@dataclass(frozen=True)
class Undisturbed:
    """The run without a fault: its calls, its record, its result, what is kept, and the charges of every party after each answer."""

    calls: list[str]
    recorded: list[tuple[str, bytes, bytes | None]]
    result: bytes
    kept: dict[str, str]
    entries: dict[str, list[ENTRY]]
    after: list[dict[str, Charged]]


class Campaign:
    """One case on disk, which is put back to its beginning before every run."""

    def __init__(self, folder: Path, case: Case, disk: FailingDisk) -> None:
        self.world, self.disk, self.run_folder = World(folder, case), disk, folder / "run"
        self._pristine = {file: file.read_bytes() for file in folder.iterdir()}
        self._answers: list[dict[str, Charged]] = []
        self._keys = Keys()
        self.calm = self._undisturbed()

    def _reset(self) -> None:
        """Put the disk back: ledgers in place, since each knows its file's number, and nothing else."""
        disk, folder = self.disk, self.world.folder
        active, FailingDisk.active = FailingDisk.active, None
        for place in sorted(folder.rglob("*"), reverse=True):
            if place not in self._pristine:
                (place.rmdir if place.is_dir() else place.unlink)()
        for file, body in self._pristine.items():
            file.write_bytes(body)
        FailingDisk.active = active
        disk.begin()

    def _run(self, *, noting: bool = False) -> bytes:
        """Run the study to its end, or go on with it; return its result."""
        self._answers = []
        self.run_folder.mkdir(exist_ok=True)
        record = Transcript.open(self.run_folder / "transcript")
        try:
            with self.world.opened() as parties:
                exchange = in_process(parties)

                def counted(batch: list[tuple[Ask, bytes]]) -> list[bytes | Dropped]:
                    answers = []
                    for one in batch:
                        answers += exchange([one])
                        found = (
                            {name: charged(entries_of(party.ledger)) for name, party in parties.items()} if noting else {}
                        )
                        self._answers.append(found)
                    return answers

                outcome = drive(self.world.row, self.world.plan, counted, record)
            write_results(self.run_folder, self.world.plan, outcome, record.entries)
        finally:
            with suppress(Killed, OSError):
                record.close()
        return spelled(outcome.result)

    def _undisturbed(self) -> Undisturbed:
        self._reset()
        with self._keys.watched():
            result = self._run(noting=True)
        calls = list(self.disk.calls)
        calm = self.world.calm()
        assert result == calm.result, "on disk as in memory"
        found, kept = self._state()
        assert found == {name: sorted(entries) for name, entries in calm.entries.items()}
        with self.world.opened() as parties:
            for name, party in parties.items():
                planned = {(c.key.step, c.key.index, c.key.name) for c in party.charges(self.world.plan)}
                assert {entry[1:4] for entry in calm.entries[name]} <= planned, "as checked before"
        said = recorded(Transcript.read(self.run_folder / "transcript"))  # on disk without long ciphertext
        return Undisturbed(calls, said, result, kept, found, self._answers)

    def _state(self) -> tuple[dict[str, list[ENTRY]], dict[str, str]]:
        """Return the entries of every ledger, each verified when it is opened, and digests of what is kept."""
        entries: dict[str, list[ENTRY]] = {}
        kept: dict[str, str] = {}
        plan = self.world.plan.hash
        with self.world.opened() as parties:
            for name, party in parties.items():
                entries[name] = sorted(entries_of(party.ledger))
                keeper = party.keeper
                assert isinstance(keeper, DiskKeeper)
                kept |= {f"{name}.{one}": digest(keeper.kept(plan, one)) for one in keeper.names(plan)}
        return entries, kept

    def meet(self, fault: DiskFault, at: int) -> tuple[Counter[str], str]:
        """Return what is wrong after a fault at this call and a run to the end (nothing), and what the failing run said."""
        self._reset()
        found, keys = Counter[str](), Keys(dict(self._keys.of))
        with keys.watched():
            self.disk.begin(fault, at)
            said = "killed"
            try:
                self._run()
                said = ""
            except Killed:
                pass
            except (UnpooledError, OSError) as error:
                said = f"{type(error).__name__}: {error}"
            if self.disk.dead and fault is DiskFault.POWER:
                self.disk.lose()
            self.disk.begin()
            try:
                found += self._between(said)
                self.disk.begin()
                if self._run() != self.calm.result:
                    found["other bits"] += 1
                found += self._after()
            except Exception as error:  # whatever keeps the study from its end
                found["lost"] += 1
                said += f" | and then {type(error).__name__}: {error}"
        found["keys twice"] += keys.twice
        return +found, said

    def _between(self, said: str) -> Counter[str]:
        """Hold the ledgers after the fault against those of the undisturbed run after the same number of answers."""
        found, answered = Counter[str](), len(self._answers)
        entries, _ = self._state()
        before = self.calm.after[answered - 1] if answered else {name: set() for name in entries}
        allowed = self.calm.after[min(answered, len(self.calm.after) - 1)]
        for name, own in entries.items():
            found["debited twice"] += len({entry[:5] for entry in own}) != len(own)
            found["lost"] += not before[name] <= charged(own)
            found["debited twice"] += not charged(own) <= allowed[name]
            found["untrue words"] += "Nothing was debited" in said and charged(own) != before[name]
        return found

    def _after(self) -> Counter[str]:
        """Hold everything that the resumed run left against the undisturbed one."""
        found = Counter[str]()
        entries, kept = self._state()
        record = Transcript.read(self.run_folder / "transcript")
        for name, own in entries.items():
            found["debited twice"] += len({entry[:5] for entry in own}) != len(own) or not charged(own) <= charged(
                self.calm.entries[name]
            )
            found["lost"] += not set(own) >= set(self.calm.entries[name])
        found["lost"] += kept != self.calm.kept
        found["other bits"] += recorded(record) != self.calm.recorded
        return found


def charged(entries: Sequence[ENTRY]) -> Charged:
    """Return the charges of a ledger, without their state."""
    return {entry[:5] for entry in entries}


def digest(values: Any) -> str:
    """Return a digest of a kept array."""
    return hashlib.sha256(
        repr((values.dtype.str, values.shape)).encode() + np.ascontiguousarray(values).tobytes()
    ).hexdigest()


def points(campaign: Campaign, fault: DiskFault, most: int | None = None) -> list[int]:
    """Return the calls at which a fault is tried: all that it can meet, or ``most`` of them, evenly spread."""
    calls = campaign.calm.calls
    partial = fault in {DiskFault.TORN, DiskFault.HALF}
    every = [k for k, call in enumerate(calls) if not partial or call.startswith("write")]
    if most is None or len(every) <= most:
        return every
    return [every[(2 * k + 1) * len(every) // (2 * most)] for k in range(most)]


@contextmanager
def campaign_of(folder: Path, case: Case) -> Iterator[Campaign]:
    """Set a case up on a disk that fails, inside the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with failing(folder) as disk:
        yield Campaign(folder, case, disk)


__all__ = ["FINDINGS", "Campaign", "DiskFault", "campaign_of", "points"]
