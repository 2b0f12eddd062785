"""A folder whose disk fails: every call that changes a file under it, SQLite's own included, has a number, and at one of them something goes wrong."""

from __future__ import annotations

import _pyio  # type: ignore[import-not-found]
import _sqlite3
import builtins
import ctypes
import errno
import io
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Protocol

# --- Sqlite files ----------------------------------------------------------------------------------------------------------
# SQLite's own calls of the file system, handed to a disk of :mod:`unpooled.testing.disks` before they happen.
#
# The default virtual file system of the library that Python has loaded gets other functions to open, write, cut, synchronise and delete files.


class Disk(Protocol):
    """The part of :class:`unpooled.testing.disks.FailingDisk` that is asked here."""

    short: bool

    def has(self, path: object) -> bool:
        """Return True if a path is on it."""
        ...

    def call(self, kind: str, path: str, write: Callable[[bytes], object] | None = None, body: bytes = b"") -> None:
        """Number a call, or raise what goes wrong with it."""
        ...

    def made(self, path: str, *, folder: bool = False, fresh: bool = False) -> None:
        """Note a new name."""
        ...

    def gone(self, path: str) -> None:
        """Note that a name is gone."""
        ...

    def synced(self, path: str) -> None:
        """Note that a file, or a folder's names, are durable."""
        ...


_OK, _FULL, _READ_ONLY, _CANTOPEN, _IOERR = 0, 13, 8, 14, 10
_CREATE, _JOURNAL = 0x4, 0x800
_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
_OPEN = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _POINTER, _INT, _POINTER)
_DELETE = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _INT)
_WRITE = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _INT, ctypes.c_int64)
_TRUNCATE = ctypes.CFUNCTYPE(_INT, _POINTER, ctypes.c_int64)
_SYNC = ctypes.CFUNCTYPE(_INT, _POINTER, _INT)


class _Vfs(ctypes.Structure):
    """The beginning of SQLite's ``sqlite3_vfs``."""

    _fields_ = (
        *((name, _INT) for name in ("version", "size", "longest")),
        *((name, _POINTER) for name in ("next", "name", "data", "open", "delete")),
    )


class _Methods(ctypes.Structure):
    """SQLite's ``sqlite3_io_methods``."""

    _fields_ = (
        ("version", _INT),
        *((name, _POINTER) for name in ("close", "read", "write", "truncate", "sync", "size")),
        *((f"more{k}", _POINTER) for k in range(12)),
    )


#: Everything that SQLite may call stays, as long as this process does: files that are open hold on to it.
_kept: list[Any] = []
_methods: dict[int, _Methods] = {}
_paths: dict[int, str] = {}
_state: dict[str, Any] = {}


def _vfs() -> _Vfs:
    find = ctypes.CDLL(_sqlite3.__file__).sqlite3_vfs_find
    find.restype = ctypes.POINTER(_Vfs)
    found: _Vfs = find(None).contents
    return found


def reachable() -> bool:
    """Return True if SQLite is a library that this process can reach; it is not where it was built into Python."""
    try:
        return bool(_vfs().version)
    except (AttributeError, OSError, ValueError):
        return False


def watch_sqlite(disk: Callable[[], Disk | None]) -> None:
    """Exchange the functions; ``disk`` returns what is to be asked before each call."""
    vfs = _vfs()
    real_open, real_delete = _OPEN(vfs.open), _DELETE(vfs.delete)
    _state.update(vfs=vfs, open=vfs.open, delete=vfs.delete)

    def opened(own: Any, name: Any, file: Any, flags: int, out: Any) -> int:
        path, active = ctypes.string_at(name).decode() if name else "", disk()
        if active is None or not active.has(path):
            return int(real_open(own, name, file, flags, out))
        new = bool(flags & _CREATE) and not Path(path).exists()
        if new and (code := _asked(active, "open", path)):
            return _CANTOPEN if code == _IOERR else code
        code = int(real_open(own, name, file, flags, out))
        if code == _OK:
            if new:
                active.made(path, fresh=bool(flags & _JOURNAL))
            _paths[file] = path
            pointer = ctypes.cast(file, ctypes.POINTER(_POINTER))
            pointer[0] = ctypes.addressof(_watched(pointer[0] or 0, disk))
        return code

    def deleted(own: Any, name: Any, folder: int) -> int:
        path, active = ctypes.string_at(name).decode(), disk()
        if active is None or not active.has(path) or not Path(path).exists():
            return int(real_delete(own, name, folder))
        if code := _asked(active, "unlink", path):
            return code
        code = int(real_delete(own, name, 0))
        active.gone(path)
        parent = str(Path(path).parent)
        if code == _OK and folder:
            code = _asked(active, "fsync", parent)
            if code == _OK:
                active.synced(parent)
        return code

    ours = _OPEN(opened), _DELETE(deleted)
    _kept.extend((*ours, real_open, real_delete))
    vfs.open, vfs.delete = (ctypes.cast(one, _POINTER).value for one in ours)


def leave_sqlite() -> None:
    """Put the functions back."""
    _state["vfs"].open, _state["vfs"].delete = _state["open"], _state["delete"]


def _asked(disk: Disk, kind: str, path: str, write: Callable[[bytes], object] | None = None, body: bytes = b"") -> int:
    """Number a call, and return SQLite's code of what went wrong with it; 0 for nothing."""
    try:
        disk.call(kind, path, write, body)
    except OSError as error:
        return {errno.ENOSPC: _FULL}.get(error.errno or 0, _IOERR)
    except BaseException:  # death: no exception passes through C, the connection raises it
        return _IOERR
    return _OK


def _watched(address: int, disk: Callable[[], Disk | None]) -> _Methods:
    """Return the methods of an open file, with those that change it exchanged; once for each kind of file."""
    if address in {ctypes.addressof(one) for one in _methods.values()}:
        return next(one for one in _methods.values() if ctypes.addressof(one) == address)
    if address in _methods:
        return _methods[address]
    made = _Methods.from_buffer_copy(_Methods.from_address(address))
    real_write, real_truncate, real_sync = _WRITE(made.write), _TRUNCATE(made.truncate), _SYNC(made.sync)

    def write(file: Any, data: Any, amount: int, offset: int) -> int:
        active = disk()
        if active is not None:

            def half(part: bytes) -> None:
                active.short = False  # SQLite writes on until all is there or an error comes: to it, both are one call
                real_write(file, data, len(part), offset)
                raise OSError(errno.EIO, "torn")

            if code := _asked(active, "write", _paths[file], half, ctypes.string_at(data, amount)):
                return code
        return int(real_write(file, data, amount, offset))

    def truncate(file: Any, length: int) -> int:
        active = disk()
        code = _OK if active is None else _asked(active, "truncate", _paths[file])
        return code or int(real_truncate(file, length))

    def sync(file: Any, flags: int) -> int:
        active = disk()
        if active is None:
            return int(real_sync(file, flags))
        code = _asked(active, "fsync", _paths[file])
        if code == _OK:
            active.synced(_paths[file])
        return code

    ours = _WRITE(write), _TRUNCATE(truncate), _SYNC(sync)
    _kept.extend((*ours, real_write, real_truncate, real_sync))
    made.write, made.truncate, made.sync = (ctypes.cast(one, _POINTER).value for one in ours)
    _methods[address] = made
    return made


# --- Disks -----------------------------------------------------------------------------------------------------------------
# A folder whose disk fails: every call that changes a file under it has a number, and at one of them something goes wrong.
#
# Calls of Python go through ``os``; files are opened in Python's own implementation of ``io``, so that each of their writes is a call of ``os``, too.
# Calls of SQLite go through its virtual file system, whose functions are exchanged. No call waits for a real disk: what would survive a loss of power is
# kept here, as POSIX promises it: the bytes of a file when it was last synchronised, and the names in a folder when that was.


class DiskFault(StrEnum):
    """Faults of a disk, each of which happens at one call."""

    FULL = "no space"
    READ_ONLY = "read-only"
    #: Half of the bytes arrive, the next write fails, and later ones work.
    TORN = "torn"
    #: The process dies before the call.
    KILLED = "killed"
    #: The process dies in the middle of a write.
    HALF = "killed in a write"
    #: The power fails before the call: what was not synchronised is lost.
    POWER = "power lost"


#: The errors of the faults that a process lives through.
_ERRORS = {DiskFault.FULL: errno.ENOSPC, DiskFault.READ_ONLY: errno.EROFS, DiskFault.TORN: errno.EIO}
#: Calls that a full disk still answers.
_ALWAYS_ROOM = {"unlink", "truncate"}
_WRITING = os.O_WRONLY | os.O_RDWR


class Short(Exception):  # no error: POSIX lets a write take a part of its bytes
    """A write took half of its bytes."""


class Killed(BaseException):
    """The process was killed; nothing that it would do afterwards reaches the disk."""


@dataclass(eq=False)
class _File:
    """One file, whatever it is called: its bytes when it was last synchronised (None: never), or a folder."""

    synced: bytes | None = None
    folder: bool = False
    #: SQLite makes the name of a new journal durable when it first synchronises it.
    fresh: bool = False


@dataclass
class FailingDisk:
    """The folder ``root``, and what has been called since :meth:`begin`."""

    root: Path
    calls: list[str] = field(default_factory=list)
    fault: DiskFault | None = None
    at: int = -1
    dead: bool = False
    #: Whether a write was short, so that the next one fails.
    short: bool = False
    #: Files by the names that they have now, and by those that would be there after a loss of power.
    _now: dict[str, _File] = field(default_factory=dict, repr=False)
    _kept: dict[str, _File] = field(default_factory=dict, repr=False)
    _paths: dict[int, str] = field(default_factory=dict)
    #: Descriptors of processes that are dead.
    _stale: set[int] = field(default_factory=set)
    active: ClassVar[FailingDisk | None] = None

    def begin(self, fault: DiskFault | None = None, at: int = -1) -> None:
        """Count from 0 again, as another process to which everything on the disk is durable; ``fault`` happens at call ``at``."""
        self.calls, self.fault, self.at, self.dead = [], fault, at, False
        self.short = False
        self._stale |= set(self._paths)
        self._now = {}
        for place in sorted(self.root.rglob("*")):
            self._now[str(place)] = _File(None, folder=True) if place.is_dir() else _File(place.read_bytes())
        self._kept = dict(self._now)

    def has(self, path: object) -> bool:
        """Return True if a path is the root or under it."""
        return isinstance(path, str | os.PathLike) and f"{path}{os.sep}".startswith(f"{self.root}{os.sep}")

    # --- the faults

    def call(self, kind: str, path: str, write: Callable[[bytes], object] | None = None, body: bytes = b"") -> None:
        """Number a call; raise where it fails. Of a write that is torn ``write`` is given the first half of ``body``, and raises what its caller expects."""
        if self.dead:
            raise Killed
        number = len(self.calls)
        self.calls.append(f"{kind} {Path(path).name}")
        if self.fault is None or number < self.at:
            return
        if number == self.at and self.fault in {DiskFault.KILLED, DiskFault.HALF, DiskFault.POWER}:
            self.dead = True
            if self.fault is DiskFault.HALF and write is not None:
                write(body[: len(body) // 2])
            raise Killed
        if self.fault is DiskFault.TORN:
            if number == self.at and write is not None:
                self.short = True
                write(body[: len(body) // 2])
            elif self.short and kind == "write":
                self.short = False
                raise self._error(path)
        elif self.fault is DiskFault.READ_ONLY or (self.fault is DiskFault.FULL and kind not in _ALWAYS_ROOM):
            raise self._error(path)

    def _error(self, path: str) -> OSError:
        assert self.fault is not None
        number = _ERRORS[self.fault]
        return OSError(number, os.strerror(number), path)

    def lose(self) -> None:
        """Leave on the disk what a loss of power leaves there."""
        active, FailingDisk.active = FailingDisk.active, None
        try:
            self._lose()
        finally:
            FailingDisk.active = active

    def _lose(self) -> None:
        for name in sorted({str(place) for place in self.root.rglob("*")} - self._kept.keys(), reverse=True):
            (os.rmdir if Path(name).is_dir() else os.unlink)(name)
        for name, file in sorted(self._kept.items()):
            if file.folder:
                Path(name).mkdir(exist_ok=True)
                continue
            if self._now.get(name) is not file:
                Path(name).unlink(missing_ok=True)
            with Path(name).open(
                "r+b" if Path(name).exists() else "xb"
            ) as stream:  # the same file where its name was not lost
                stream.truncate()
                stream.write(file.synced or b"")

    # --- what is durable

    def made(self, path: str, *, folder: bool = False, fresh: bool = False) -> None:
        """Note a new name."""
        self._now[path] = _File(folder=folder, fresh=fresh)

    def moved(self, path: str, to: str) -> None:
        """Note that a file has another name."""
        self._now[to] = self._now.pop(path)

    def gone(self, path: str) -> None:
        """Note that a name is gone."""
        self._now.pop(path, None)

    def synced(self, path: str) -> None:
        """Note that a file, or a folder's names, are on the disk."""
        file = self._now.get(path)
        if path == str(self.root) or (file is not None and file.folder):
            self._kept = {name: one for name, one in self._kept.items() if os.path.dirname(name) != path}  # noqa: PTH120 - names as they are kept
            self._kept |= {name: one for name, one in self._now.items() if os.path.dirname(name) == path}  # noqa: PTH120
            return
        assert file is not None, path
        file.synced = Path(path).read_bytes()
        if file.fresh:
            file.fresh = False
            self.synced(str(Path(path).parent))


# --- Python's calls -------------------------------------------------------------------------------------------------------------

_real = {
    name: getattr(os, name)
    for name in ("open", "close", "write", "fsync", "replace", "rename", "unlink", "remove", "mkdir", "ftruncate")
}


def _open(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
    disk = FailingDisk.active
    if disk is None or not disk.has(path):
        return int(_real["open"](path, flags, mode, **more))
    if not flags & _WRITING:
        found = int(_real["open"](path, flags, mode, **more))
    else:
        new = bool(flags & os.O_CREAT) and not Path(path).exists()
        disk.call("open", str(path))
        found = int(_real["open"](path, flags, mode, **more))
        if new:
            disk.made(str(path))
    disk._stale.discard(found)
    disk._paths[found] = str(path)
    return found


def _close(descriptor: int) -> None:
    if FailingDisk.active is not None:
        FailingDisk.active._paths.pop(descriptor, None)
        FailingDisk.active._stale.discard(descriptor)
    _real["close"](descriptor)


def _at(kind: str, descriptor: int, write: Callable[[bytes], object] | None = None, body: bytes = b"") -> str | None:
    """Number a call on an open file, and return its path; None where it is none of this disk."""
    disk = FailingDisk.active
    path = None if disk is None else disk._paths.get(descriptor)
    if disk is None or path is None:
        return None
    if descriptor in disk._stale:
        raise OSError(errno.EBADF, "the process that opened it is dead")
    disk.call(kind, path, write, body)
    return path


def _write(descriptor: int, body: Any) -> int:
    def half(part: bytes) -> None:
        _real["write"](descriptor, part)
        raise Short(len(part))

    try:
        _at("write", descriptor, half, bytes(body))
    except Short as short:
        if FailingDisk.active is not None and FailingDisk.active.dead:
            raise Killed from None
        return int(short.args[0])
    return int(_real["write"](descriptor, body))


def _ftruncate(descriptor: int, length: int) -> None:
    _at("truncate", descriptor)
    _real["ftruncate"](descriptor, length)


def _fsync(descriptor: int) -> None:
    path = _at("fsync", descriptor)
    if path is None:
        _real["fsync"](descriptor)
    elif FailingDisk.active is not None:
        FailingDisk.active.synced(path)


def _replace(path: Any, to: Any, **more: Any) -> None:
    disk = FailingDisk.active
    if disk is not None and disk.has(to):
        disk.call("rename", str(to))
        disk.moved(str(path), str(to))
    _real["replace"](path, to, **more)


def _unlink(path: Any, **more: Any) -> None:
    disk = FailingDisk.active
    if disk is not None and disk.has(path) and os.path.lexists(path):
        disk.call("unlink", str(path))
        disk.gone(str(path))
    _real["unlink"](path, **more)


def _mkdir(path: Any, *given: Any, **more: Any) -> None:
    disk = FailingDisk.active
    if disk is not None and disk.has(path) and not os.path.lexists(path):
        disk.call("mkdir", str(path))
        disk.made(str(path), folder=True)
    _real["mkdir"](path, *given, **more)


def _opened(file: Any, mode: str = "r", *given: Any, **more: Any) -> Any:
    disk = FailingDisk.active
    ours = disk is not None and (file in disk._paths if isinstance(file, int) else disk.has(file))
    return (_pyio.open if ours and set(mode) & set("wax+") else _real_open)(file, mode, *given, **more)


_real_open = builtins.open
_OURS: dict[str, Any] = {
    "open": _open,
    "close": _close,
    "write": _write,
    "fsync": _fsync,
    "replace": _replace,
    "rename": _replace,
    "unlink": _unlink,
    "remove": _unlink,
    "mkdir": _mkdir,
    "ftruncate": _ftruncate,
}


class _Connection(sqlite3.Connection):
    """A connection of a process that may have been killed inside SQLite."""

    def execute(self, *given: Any) -> sqlite3.Cursor:
        """Execute a statement; a process that died in it goes no further."""
        try:
            return super().execute(*given)
        finally:
            if FailingDisk.active is not None and FailingDisk.active.dead:
                raise Killed


@contextmanager
def failing(root: Path) -> Iterator[FailingDisk]:
    """Let every call that changes a file under this folder go through a :class:`FailingDisk`, inside the block; of blocks in blocks the inner one's folder."""
    before, FailingDisk.active = FailingDisk.active, FailingDisk(root)
    if before is None:
        _exchange()
    try:
        yield FailingDisk.active
    finally:
        FailingDisk.active = before
        if before is None:
            _put_back()


def _connected(*given: Any, **more: Any) -> sqlite3.Connection:
    return _real_connect(*given, factory=_Connection, **more)


_real_connect = sqlite3.connect


def _exchange() -> None:
    watch_sqlite(lambda: FailingDisk.active)
    for name, ours in _OURS.items():
        setattr(os, name, ours)
    builtins.open = io.open = _opened
    sqlite3.connect = _connected  # type: ignore[assignment]


def _put_back() -> None:
    for name, real in _real.items():
        setattr(os, name, real)
    builtins.open = io.open = _real_open
    sqlite3.connect = _real_connect
    leave_sqlite()


__all__ = ["DiskFault", "FailingDisk", "Killed", "failing", "leave_sqlite", "reachable", "watch_sqlite"]
