"""The differences between two messages of one step, other than those of values of releases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unpooled.protocol.messages import Array, Disclosed, Entrusted, Masked, Partial, Public, Released, Sealed

if TYPE_CHECKING:
    from collections.abc import Iterator


def differences(ours: Any, theirs: Any) -> Iterator[str]:  # noqa: ANN401, C901 - any field of two replies; a line per way to differ
    """Yield the differences between two fields, other than those of values of releases, which may differ."""
    if type(ours) is not type(theirs):
        yield "the message has another form"
    elif isinstance(ours, tuple):
        if len(ours) != len(theirs):
            yield "the number of messages depends on the data"
        for one, other in zip(ours, theirs, strict=False):
            yield from differences(one, other)
    elif isinstance(ours, Public):
        if ours != theirs:
            yield "a public field depends on the data"
    elif isinstance(ours, Sealed | Masked):
        if (ours.node, len(ours.ciphertext)) != (theirs.node, len(theirs.ciphertext)):
            yield "a sealed message's length or receiver depends on the data"
    elif isinstance(ours, Entrusted | Disclosed | Released | Partial):
        if _shape(ours.values) != _shape(theirs.values):
            yield "the shape of a message depends on the data"
        elif isinstance(ours, Partial) and ours != theirs:
            yield "a partial sum depends on the node's own data, not on its sealed fragment alone"
        elif isinstance(ours, Released) and (ours.name, ours.index) != (theirs.name, theirs.index):
            yield "which release is made depends on the data"


def _shape(array: Array) -> tuple[str, tuple[int, ...]]:
    return array.dtype, array.shape


__all__ = ["differences"]
