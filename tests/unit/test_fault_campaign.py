"""The campaign of faults finds what is broken on purpose, and finds nothing in one small study as it is; all models: tests/audit/test_faults.py."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))

from cases import CASES

from unpooled.errors import Refusal
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.ledger import store as files
from unpooled.privacy.ledger.store import Store
from unpooled.study.party import DiskKeeper
from unpooled.testing import disks
from unpooled.testing.disks import FailingDisk, Killed, failing
from unpooled.testing.processes import Campaign, DiskFault, campaign_of, points

pytestmark = [
    pytest.mark.skipif(not disks.reachable(), reason="SQLite is part of this Python: its calls cannot be reached"),
]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with campaign_of(tmp_path_factory.mktemp("campaign") / "disk", CASES["describe"]()) as made:
        yield made


@pytest.mark.parametrize("fault", list(DiskFault))
def test_a_fault_at_any_call_costs_nothing_and_changes_nothing(campaign: Campaign, fault: DiskFault) -> None:
    for at in points(campaign, fault, 3):
        assert campaign.meet(fault, at)[0] == {}, campaign.calm.calls[at]


def test_the_calls_of_python_and_of_sqlite_are_counted(campaign: Campaign) -> None:
    kinds = {call.split()[0] for call in campaign.calm.calls}
    assert kinds == {"open", "write", "fsync", "rename", "unlink", "mkdir", "truncate"}
    ends = ("ledger", "ledger-journal", "anchor.new", "transcript", "result.json")
    assert all(any(call.endswith(end) for call in campaign.calm.calls if call.startswith("write")) for end in ends)


# --- broken on purpose ------------------------------------------------------------------------------------------------------


def _without_sync(file: Path, body: bytes) -> None:
    with file.open("xb") as stream:
        stream.write(body)


def _keep_without_sync(keeper: DiskKeeper, plan: str, name: str, values: np.ndarray) -> None:
    keeper._folder.mkdir(exist_ok=True)
    with keeper._file(plan, name).open("wb") as out:
        np.save(out, values)


def anchors_without_fsync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(files, "write_new", _without_sync)


def a_database_without_fsync(patch: pytest.MonkeyPatch) -> None:
    execute = disks._Connection.execute
    off = "PRAGMA synchronous=OFF"
    patch.setattr(
        disks._Connection, "execute", lambda own, sql, *more: execute(own, off if "synchronous" in sql else sql, *more)
    )


def replies_that_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Store, "keep", lambda store, content, body: None)


def answers_that_nobody_remembers(patch: pytest.MonkeyPatch) -> None:
    """The same request is answered anew, without a debit, with noise of its own."""
    from unpooled.privacy.noise import KeySource

    derive, count = KeySource.stream, iter(range(10**9))
    patch.setattr(KeySource, "stream", lambda own, *names, content=b"": derive(own, *names, content=b"%d" % next(count)))
    patch.setattr(Ledger, "reply", lambda *given: None)


def kept_values_without_fsync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DiskKeeper, "keep", _keep_without_sync)


@pytest.mark.guarantee
@pytest.mark.slow_for("kept_values_without_fsync-power lost-stacking, probabilities")
@pytest.mark.parametrize(
    ("broken", "fault", "case"),
    [
        (anchors_without_fsync, DiskFault.POWER, "describe"),
        (a_database_without_fsync, DiskFault.POWER, "describe"),
        (replies_that_are_not_kept, DiskFault.KILLED, "describe"),
        (answers_that_nobody_remembers, DiskFault.KILLED, "describe"),
        (kept_values_without_fsync, DiskFault.POWER, "stacking, probabilities"),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_what_is_broken_on_purpose_is_found(
    broken: Callable[[pytest.MonkeyPatch], None],
    fault: DiskFault,
    case: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with campaign_of(tmp_path / "disk", CASES[case]()) as made:
        tried = points(made, fault, 12)
        if case != "describe":  # its own honest twin
            assert not any(made.meet(fault, at)[0] for at in tried[-2:])
        broken(monkeypatch)
        assert any(made.meet(fault, at)[0] for at in reversed(tried))


# --- the disk itself --------------------------------------------------------------------------------------------------------


def test_what_was_not_synchronised_is_lost_with_the_power_and_not_with_the_process(tmp_path: Path) -> None:
    def work(folder: Path) -> None:
        kept = folder / "kept"
        files.write_new(kept, b"whole")
        files.sync(folder)
        files.write_new(folder / "name", b"not in the folder yet")
        with kept.open("ab") as stream:
            stream.write(b", and more")
        (folder / "end").touch()

    for fault, left in (
        (DiskFault.KILLED, {"kept": b"whole, and more", "name": b"not in the folder yet"}),
        (DiskFault.POWER, {"kept": b"whole"}),
    ):
        folder = tmp_path / fault.name
        folder.mkdir()
        with failing(folder) as disk:
            disk.begin()
            work(folder)
            assert [call.split()[0] for call in disk.calls] == [
                "open",
                "write",
                "fsync",
                "fsync",
                "open",
                "write",
                "fsync",
                "open",
                "write",
                "open",
            ]
            for file in folder.iterdir():
                file.unlink()
            disk.begin(fault, 9)
            with pytest.raises(Killed):
                work(folder)
            if fault is DiskFault.POWER:
                disk.lose()
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == left


@pytest.mark.guarantee
@pytest.mark.parametrize("fault", [DiskFault.FULL, DiskFault.READ_ONLY, DiskFault.TORN])
def test_a_process_that_lives_sees_the_error(fault: DiskFault, tmp_path: Path) -> None:
    with failing(tmp_path) as disk, Ledger.create(tmp_path / "own.ledger") as ledger:
        disk.begin(fault, 1)
        with pytest.raises(Refusal, match="othing is debited twice"):
            ledger.approve("a" * 64)
        disk.begin()
        ledger.approve("a" * 64)
        assert FailingDisk.active is disk
    assert FailingDisk.active is not disk
