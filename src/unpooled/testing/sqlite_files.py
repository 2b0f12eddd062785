"""SQLite's own calls of the file system, handed to a disk of :mod:`unpooled.testing.disks` before they happen.

The default virtual file system of the library that Python has loaded gets other functions to open, write, cut, synchronise and delete files.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol


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


def install(disk: Callable[[], Disk | None]) -> None:
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


def remove() -> None:
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


__all__ = ["install", "reachable", "remove"]
