"""Mutated messages: an honest one with other bytes, another envelope or other content, as no honest sender writes it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from unpooled.models import load
from unpooled.protocol.messages import Ask, open_envelope
from unpooled.testing.cases import Case


def parts_of(reply: msgspec.Struct) -> list[object]:
    """Return the parts of a reply, those of tuples one by one."""
    values = [getattr(reply, name) for name in reply.__struct_fields__]
    return [part for value in values for part in (value if isinstance(value, tuple) else (value,))]


WILD_FLOATS = (np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 1e-300, 1e60)


WILD_INTEGERS = (-1, 0, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))


def places(tree: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Return every place in plain data that can be changed: numbers, texts, bytes, lists, and arrays as wholes."""
    if isinstance(tree, dict) and set(tree) == {"dtype", "shape", "data"}:
        return [path]
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    own = [] if isinstance(tree, dict) or not path else [path]
    return own + [place for key, value in inner for place in places(value, (*path, key))]


def wild(value: object, rng: np.random.Generator) -> object:
    """Return a value of the same kind that no honest coordinator sends."""
    if isinstance(value, dict):
        array = np.frombuffer(value["data"], dtype=value["dtype"]).copy()
        limits = None if array.dtype.kind == "f" else np.iinfo(array.dtype)
        extremes = WILD_FLOATS if limits is None else (limits.min, limits.max, 0, 1)
        array[rng.random(array.size) < rng.choice([0.1, 1.0])] = extremes[int(rng.integers(len(extremes)))]
        return {**value, "data": array.tobytes()}
    if isinstance(value, list):
        return [] if rng.random() < 0.5 else [*value, *value]
    kinds = {bool: (True, False), float: WILD_FLOATS, int: WILD_INTEGERS, str: ("", "x"), bytes: (b"", bytes(32))}
    others = kinds.get(type(value), (0,))
    return others[int(rng.integers(len(others)))]


DTYPES = ("<i8", "<i4", "<u8", "<f8", "<f4", "|u1", "|O", "<c16", "")


def deep(rng: np.random.Generator) -> bytes:
    depth = int(rng.choice([1, 20, 900, 3000, 50_000]))
    inner = rng.choice([0, 1])
    return (b"\x91" if inner else b"\x81\xa1a") * depth + b"\xc0"


def with_body(reply: bytes, body: bytes) -> bytes:
    return msgspec.msgpack.encode({**msgspec.msgpack.decode(reply), "body": msgspec.Raw(body)})


def in_bytes(reply: bytes, rng: np.random.Generator) -> bytes:
    kind = int(rng.integers(6))
    if kind == 0:
        return reply[: int(rng.integers(len(reply)))]
    if kind == 1:
        return reply + bytes(rng.integers(0, 256, int(rng.integers(1, 9))).astype(np.uint8))
    if kind == 2:
        return with_body(reply, deep(rng))
    if kind == 3:
        return bytes(rng.integers(0, 256, int(rng.integers(0, 60))).astype(np.uint8))
    flipped = bytearray(reply)
    for _ in range(int(rng.integers(1, 4))):
        flipped[int(rng.integers(len(flipped)))] ^= 1 << int(rng.integers(8))
    return bytes(flipped)


def in_envelope(reply: bytes, rng: np.random.Generator) -> bytes:
    tree = msgspec.msgpack.decode(reply)
    key = str(rng.choice([*tree, "extra"]))
    strange: list[Any] = [None, 0, -1, 1, 2**63, 1.5, math.nan, "", "open", "sums", b"", [], {}, True]
    tree[key] = strange[int(rng.integers(len(strange)))]
    if rng.random() < 0.1:
        del tree[key]
    return msgspec.msgpack.encode(tree)


def another_array(array: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:  # noqa: PLR0911 - one line per kind
    kind, size, shape = int(rng.integers(7)), len(array["data"]), list(array["shape"])
    if kind == 0:
        return {**array, "dtype": DTYPES[int(rng.integers(len(DTYPES)))]}
    if kind == 1:  # other numbers of the same bits
        dtype = str(rng.choice(["<i8", "<u8", "<f8"]))
        return {**array, "dtype": dtype}
    if kind == 2:
        longer = int(rng.integers(1, 5))
        return {**array, "shape": [size // 8 + longer], "data": array["data"] + bytes(8 * longer)}
    if kind == 3:
        fewer = int(rng.integers(0, max(size // 8, 1)))
        return {**array, "shape": [fewer], "data": array["data"][: 8 * fewer]}
    if kind == 4:
        return {
            **array,
            "shape": [[], [*shape, 1], [1, *shape], [1] * 70, [0], [-1], [2**63], shape * 2][int(rng.integers(8))],
        }
    if kind == 5:
        count = size // 8
        real = np.full(count, [math.nan, math.inf, 1e300, 1e89, -1e89, 0.0, 0.5][int(rng.integers(7))])
        return {"dtype": "<f8", "shape": shape, "data": real.tobytes()}
    fits = array["dtype"] in DTYPES[:6] and size % np.dtype(array["dtype"]).itemsize == 0  # unless it was changed before
    return wild(array, rng) if fits else {**array, "data": b""}  # type: ignore[return-value]


def in_content(reply: bytes, rng: np.random.Generator, words: list[str], others: list[Any]) -> bytes:
    body = msgspec.msgpack.decode(msgspec.msgpack.decode(reply, type=dict[str, msgspec.Raw])["body"])
    for _ in range(int(rng.integers(1, 3))):
        spots = places(body)
        if not spots:
            break
        spot = spots[int(rng.integers(len(spots)))]
        inside = body
        for key in spot[:-1]:
            inside = inside[key]
        old, at = inside[spot[-1]], spot[-1]
        if isinstance(old, dict):
            inside[at] = another_array(old, rng)
        elif isinstance(old, str) and rng.random() < 0.7:
            inside[at] = words[int(rng.integers(len(words)))]
        elif isinstance(old, list) and old and rng.random() < 0.5:
            inside[at] = [old[::-1], old[:1], old[1:], [*old, old[0]]][int(rng.integers(4))]
        elif rng.random() < 0.1:
            inside[at] = [None, "x", 3, 2.5, [], {}][int(rng.integers(6))]
        else:
            inside[at] = wild(old, rng)
    if rng.random() < 0.15 and isinstance(body, dict) and body:  # a field of another reply, or of another name
        keys, other = list(body), others[int(rng.integers(len(others)))]
        values = list(other.values()) if isinstance(other, dict) else [other]
        body[keys[int(rng.integers(len(keys)))]] = values[int(rng.integers(len(values)))] if values else None
    return with_body(reply, msgspec.msgpack.encode(body))


def mutants(seen: list[tuple[Ask, bytes]], case: Case, rng: np.random.Generator, count: int) -> Iterator[tuple[int, bytes]]:
    """Yield positions in an honest run, and replies to stand there instead of the honest ones."""
    plan = load(case.model).compile(case.study)
    words = [
        *{r.name for r in plan.releases},
        *(card.name for card in case.study.parties),
        "",
        "x",
        "é" * 50,
        "00" * 32,
        "ff" * 64,
    ]
    bodies = [msgspec.msgpack.decode(open_envelope(reply).body) for _, reply in seen]
    words += [text for body in bodies for text in texts(body)]
    for _ in range(count):
        at = int(rng.integers(len(seen)))
        reply = seen[at][1]
        kind = rng.random()
        if kind < 0.15:
            yield at, in_bytes(reply, rng)
        elif kind < 0.22:
            yield at, in_envelope(reply, rng)
        elif kind < 0.32:  # somebody else's reply, or one of another step, as if it were this one
            stranger = open_envelope(seen[int(rng.integers(len(seen)))][1])
            yield at, with_body(reply, bytes(stranger.body))
        else:
            yield at, in_content(reply, rng, words, bodies)


def texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    for value in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from texts(value)
