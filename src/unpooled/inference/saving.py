"""Files of fitted models, results and moments: plain data under a manifest and a digest, nothing that runs, no pickle.

A file is a MessagePack of the manifest (format, version, class) and of a body, with the SHA-256 of both. The body holds numbers, texts,
arrays, and records of a closed list of classes, which reading makes anew from their fields. The digest shows damage; anybody
who means to change a file can change its digest too.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from unpooled.errors import DataError, UnpooledError, UsageError
from unpooled.inference.coordinates import Clipping
from unpooled.privacy.bounds import Bounds, Column
from unpooled.privacy.events import Event, Kind
from unpooled.privacy.exposure import Cost
from unpooled.privacy.ledger import Entries, Entry
from unpooled.privacy.ledger.chain import ReleaseKey
from unpooled.privacy.origin import PastEvent, ReleasedInput, Sourced, sourced, unsourced
from unpooled.privacy.plan import Plan
from unpooled.privacy.study import Study, earlier, read_study
from unpooled.privacy.unit import Unit
from unpooled.protocol.messages import Array

FORMAT = "unpooled saved 2"
#: What unpooled 0.2.0 wrote; it is read, and written as :data:`FORMAT` from then on.
_FORMER = "unpooled saved 1"
#: Classes whose records may be in any file; estimators and results add their own.
COMMON: tuple[type, ...] = (Bounds, Clipping, Column, Cost, Entry, Event, Kind, PastEvent, ReleasedInput, ReleaseKey, Unit)
#: Arrays that are stored as their bytes; others are texts, truth values or objects, stored one by one.
_NUMBERS = ("<i8", "<i4", "<u8", "<f8", "<f4", "|u1")
_OTHERS = re.compile(r"<U\d{1,4}|\|b1|\|O")
#: Classes under their names of earlier builds, and fields that lines of its tables had.
_RENAMED = {"NewtonStep": "Estimates", "Origin": "ReleasedInput"}
_LEFT = {"SummaryTerm": ("collinear",)}
#: What a file says whose content does not fit.
_OTHER = "the content of this file is not what its class holds: it was saved by another version, or made up"
_NAME = re.compile(r"[A-Za-z]\w*")

#: Makes a plan of a study again.
Compile = Callable[[Study], Plan]


class SavedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The manifest, the body, and the digest of both."""

    format: str
    version: str
    kind: str
    body: bytes
    digest: bytes


def _digest(format_: str, version: str, kind: str, body: bytes) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode((format_, version, kind, body))).digest()


def write_saved(path: str | Path, kind: str, body: bytes) -> None:
    """Write a body under its manifest."""
    version = importlib.metadata.version("unpooled")
    file = SavedFile(FORMAT, version, kind, body, _digest(FORMAT, version, kind, body))
    Path(path).write_bytes(msgspec.msgpack.encode(file))


def read_saved(path: str | Path) -> SavedFile:
    """Return a file whose digest is right and whose format is this one; whatever else is an error that names the file."""
    name = Path(path).name
    try:
        file = msgspec.msgpack.decode(Path(path).read_bytes(), type=SavedFile, strict=True)
    except OSError as error:
        msg = f"{name}: cannot be read ({error.strerror}): check the path"
        raise DataError(msg) from None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        msg = f"{name}: this is not a file that `save` wrote, or it is damaged"
        raise DataError(msg) from None
    if file.format not in {FORMAT, _FORMER}:
        msg = f"{name}: a file of another format: this version of unpooled reads {FORMAT!r}"
        raise DataError(msg)
    if _digest(file.format, file.version, file.kind, file.body) != file.digest:
        msg = f"{name}: the file is damaged (its digest is not that of its content)"
        raise DataError(msg)
    return file


class Savable:
    """Something with ``save(path)``, which :func:`unpooled.load` reads again."""

    #: Classes whose records may be in its file, beside those that may be in any.
    _saved_types: ClassVar[tuple[type, ...]] = ()

    def save(self, path: str | Path) -> None:
        """Write everything to a file that :func:`unpooled.load` reads: no pickle, with a digest that tells damage."""
        write_saved(path, type(self).__name__, pack(self._saved_fields(), self._saved_types))

    def _saved_fields(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}  # type: ignore[arg-type]

    @classmethod
    def _of_saved(cls, body: bytes) -> Self:
        """Return an object made from the body of a file."""
        held = unpack(body, cls._saved_types, cls._compiles)
        try:
            return cls(**held)
        except TypeError:
            raise DataError(_OTHER) from None

    @staticmethod
    def _compiles(study: Study) -> Plan:
        msg = f"model {study.row!r} is not that of this class"
        raise DataError(msg)


# --- bodies --------------------------------------------------------------------------------------------------------------


def pack(value: object, types: Iterable[type] = ()) -> bytes:
    """Return plain data, arrays, plans, and records of these classes, as bytes."""
    return msgspec.msgpack.encode(_packed(value, {kind.__name__: kind for kind in (*COMMON, *types)}))


def unpack(body: bytes, types: Iterable[type] = (), compiles: Compile = Savable._compiles) -> Any:  # noqa: ANN401, SLF001 - whatever it was
    """Return the object that :func:`pack` turned into bytes."""
    try:
        tree = msgspec.msgpack.decode(body)
        return _unpacked(tree, {kind.__name__: kind for kind in (*COMMON, *types)}, compiles)
    except DataError:
        raise
    except (
        UnpooledError,
        msgspec.MsgspecError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ):
        raise DataError(_OTHER) from None


def model_of(body: bytes) -> str:
    """Return the model of the first study in a body, as its bytes say it; empty where there is none that can be read."""
    try:
        return _model_in(msgspec.msgpack.decode(body))
    except (msgspec.MsgspecError, UnpooledError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        return ""


def _model_in(tree: Any) -> str:  # noqa: ANN401 - plain data
    if isinstance(tree, dict) and isinstance(tree.get("study"), bytes):
        return read_study(tree["study"])[0].model
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return next(filter(None, map(_model_in, parts)), "")


def _packed(value: Any, types: Mapping[str, type]) -> Any:  # noqa: ANN401, C901, PLR0911 - a line per kind
    if isinstance(value, Enum):
        known = types.get(type(value).__name__) is type(value)
        return {"enum": type(value).__name__, "value": value.value} if known else value.value
    if isinstance(value, Sourced):
        plain = _packed(unsourced(value), types)
        return {"sourced": plain, "origins": msgspec.msgpack.encode(value.origins)} if value.origins else plain
    if isinstance(value, np.generic):
        return _packed(value.item(), types)
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, Mapping):
        return {"pairs": [[_packed(k, types), _packed(v, types)] for k, v in value.items()]}
    if isinstance(value, np.ndarray):
        array = value.astype(value.dtype.newbyteorder("<"))
        if array.dtype.str in _NUMBERS:
            return {"array": msgspec.to_builtins(Array.of(array), builtin_types=(bytes,))}
        return {
            "items": [_packed(item, types) for item in array.ravel().tolist()],
            "dtype": array.dtype.str,
            "shape": array.shape,
        }
    if isinstance(value, Plan):
        former = {"former": value.formerly} if value.formerly else {}
        return {"study": msgspec.msgpack.encode(value.study), "plan": value.hash, "draw": value.draw} | former
    if hasattr(value, "stored"):
        return {"stored": type(value).__name__, "data": msgspec.msgpack.encode(value.stored())}
    name, fields = type(value).__name__, _fields(value)
    if fields is not None and types.get(name) is type(value):
        return {"record": name, "fields": {field: _packed(part, types) for field, part in fields.items()}}
    if isinstance(value, list | tuple):
        return {"list" if isinstance(value, list) else "tuple": [_packed(item, types) for item in value]}
    msg = f"a {name} cannot be saved: give numbers, texts, arrays, lists or mappings of them"
    raise UsageError(msg)


def _fields(value: Any) -> dict[str, Any] | None:  # noqa: ANN401
    """Return the fields of a record: a dataclass, a struct or a named tuple."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    return value._asdict() if hasattr(value, "_asdict") else None


def _unpacked(tree: Any, types: Mapping[str, type], compiles: Compile) -> Any:  # noqa: ANN401, C901, PLR0911 - as above
    def inner(part: Any) -> Any:  # noqa: ANN401
        return _unpacked(part, types, compiles)

    match tree:
        case {"enum": str(name), "value": value}:
            return _class(types, name)(value)
        case {"pairs": list(pairs)}:
            return {inner(key): inner(value) for key, value in pairs}
        case {"array": array}:
            return msgspec.convert(array, Array, builtin_types=(bytes,)).numpy().copy()
        case {"items": list(items), "dtype": str(dtype), "shape": shape} if _OTHERS.fullmatch(dtype):
            found = np.empty(len(items), dtype=np.dtype(dtype))
            for k, item in enumerate(items):
                found[k] = inner(item)
            return found.reshape(shape)
        case {"sourced": plain, "origins": bytes(origins)}:
            return sourced(inner(plain), msgspec.msgpack.decode(origins, type=tuple[ReleasedInput, ...], strict=True))
        case {"study": bytes(study), "plan": str(known)}:
            return _plan(study, known, str(tree.get("former", "")), compiles).drawn(str(tree.get("draw", "")))
        case {"stored": str(name), "data": bytes(data)}:
            kind: Any = _class(types, name)
            return kind.of(msgspec.msgpack.decode(data, type=kind.stored_type(), strict=True))
        case {"record": str(name), "fields": dict(fields)}:
            made = earlier if name == "Earlier" else _class(types, _RENAMED.get(name, name))
            return made(**{field: inner(part) for field, part in fields.items() if field not in _LEFT.get(name, ())})
        case {"list": list(items)}:
            return [inner(item) for item in items]
        case {"tuple": list(items)}:
            made = tuple(inner(item) for item in items)
            return Entries(made) if made and all(isinstance(item, Entry) for item in made) else made
        case None | bool() | int() | float() | str() | bytes():
            return tree
    raise ValueError("an unknown kind of value")


def _plan(study: bytes, known: str, former: str, compiles: Compile) -> Plan:
    """Return the plan of a saved study, which must be the plan it was fitted under; of an older version that cannot be compared."""
    asked, is_former = read_study(study)
    plan = compiles(asked)
    if not is_former and plan.hash != known:
        msg = f"saved with plan {known[:16]}, of which this version of unpooled makes {plan.hash[:16]}: use the version that saved it"
        raise DataError(msg)
    return dataclasses.replace(plan, formerly=known if is_former else former)


def _class(types: Mapping[str, type], name: str) -> Any:  # noqa: ANN401 - a class of a closed list
    if name not in types:
        what = repr(name) if _NAME.fullmatch(name) else "a name that no class has"
        msg = f"a record of an unknown class ({what[:80]}): this version of unpooled does not read it"
        raise DataError(msg)
    return types[name]
