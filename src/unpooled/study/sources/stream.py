"""The batches of a query, asked for outside the interpreter's lock: the next one is decoded while this one is added up.

``nanoarrow`` calls the engine with the lock held, and so nothing else would run meanwhile. The call is that of Arrow's C stream interface
(``get_next``, ``get_last_error``), which says that the holder of a stream may call it from any thread, one at a time.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Stream(ctypes.Structure):
    """``struct ArrowArrayStream``."""


_GetNext = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.c_void_p)
_LastError = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(_Stream))
_Stream._fields_ = (
    ("get_schema", ctypes.c_void_p),
    ("get_next", _GetNext),
    ("get_last_error", _LastError),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
)


def batches(relation: Any) -> Iterator[Any]:  # noqa: ANN401 - the engine ships no types
    """The rows of a relation as Arrow arrays of structures; an error of the engine is a ``RuntimeError``."""
    import nanoarrow
    from nanoarrow.c_array import allocate_c_array

    source = nanoarrow.c_array_stream(relation)  # which releases it in the end
    schema = source.get_schema()
    stream = ctypes.cast(source._addr(), ctypes.POINTER(_Stream))  # noqa: SLF001 - nanoarrow's own way to hand it on
    while True:
        batch = allocate_c_array(schema)
        if stream.contents.get_next(stream, batch._addr()):  # noqa: SLF001
            said = stream.contents.get_last_error(stream)
            raise RuntimeError(said.decode("utf-8", "replace") if said else "the stream of a query ended in an error")
        if not batch.is_valid():
            return
        yield batch
