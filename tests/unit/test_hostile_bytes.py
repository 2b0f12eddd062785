"""Messages that somebody made up are refused after work linear in their length. Work is counted, not timed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import ClassVar

import msgspec
import numpy as np
import pytest
from world import calls

from unpooled.errors import ProtocolError
from unpooled.models.describe.rows import SumsReply
from unpooled.models.pride.plan import EstimateRequest, Sketch
from unpooled.network.signing import open_answer
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.protocol.conversation import OpenRequest, open_request
from unpooled.protocol.messages import WIRE_VERSION, Array, encode, open_body, open_envelope

STUDY = Study("describe", (Card("a", 10, (Column("x", 0.0, 1.0),)),), 1.0, 1e-6, derived=())


class Counted(int):
    """A number that counts the bits that are multiplied with it."""

    bits: ClassVar[int] = 0

    def __mul__(self, other: int) -> int:
        return self.__rmul__(other)

    def __rmul__(self, other: int) -> int:
        type(self).bits += int(other).bit_length() + int(self).bit_length()
        return int(other) * int(self)


@pytest.mark.parametrize("size", [1, 2, 1 << 31, 1 << 63])
def test_the_product_of_a_shape_costs_a_bounded_number_of_operations(size: int) -> None:
    for dimensions in (1, 8, 9, 100, 3000):
        Counted.bits = 0
        with pytest.raises(ValueError, match="array"):
            Array("<i8", (Counted(size),) * dimensions, b"x")
        assert Counted.bits <= 8 * 2 * 8 * 64


def test_shapes_that_numpy_cannot_make_are_refused() -> None:
    """Whatever the codec lets through can be unpacked."""
    rng = np.random.default_rng(0)
    sizes = (0, 0, 1, 1, 2, 3, 1 << 20, 1 << 31, (1 << 31) + 1, 1 << 62, 1 << 63, -1)
    taken = 0
    for _ in range(4000):
        shape = tuple(sizes[k] for k in rng.integers(len(sizes), size=rng.integers(0, 10)))
        data = bytes(8 * int(rng.integers(0, 7)))
        try:
            array = Array("<i8", shape, data)
        except ValueError:
            continue
        taken += 1
        assert array.numpy().shape == shape
        assert len(shape) <= 8
    assert taken > 100


def message(body: bytes) -> bytes:
    return msgspec.msgpack.encode(
        {"version": WIRE_VERSION, "plan": "0" * 64, "step": "sums", "index": 0, "body": msgspec.Raw(body)}
    )


def sums(**changes: object) -> bytes:
    array = {"dtype": "<i8", "shape": [1], "data": bytes(8), **changes}
    return message(msgspec.msgpack.encode({"sums": {"name": "sums", "index": 0, "values": array}}))


def parameters(free: bytes) -> bytes:
    """An `open` whose study's parameters are these bytes."""
    study = msgspec.to_builtins(STUDY)
    return message(msgspec.msgpack.encode({"study": {**study, "parameters": {"x": msgspec.Raw(free)}}}))


ONE = {"name": "s", "index": 0, "values": {"dtype": "<i8", "shape": [1], "data": b"x"}}
#: A message of about n bytes and the type that its step expects.
HOSTILE: dict[str, tuple[Callable[[int], bytes], type[msgspec.Struct]]] = {
    "dimensions": (lambda n: sums(shape=[1 << 63] * (n // 9)), SumsReply),
    "small dimensions": (lambda n: sums(shape=[1] * n), SumsReply),
    "empty dimensions": (lambda n: sums(shape=[0] * n, data=b""), SumsReply),
    "nested lists": (lambda n: message(b"\x91" * n + b"\xc0"), SumsReply),
    "nested maps": (lambda n: message(b"\x81\xa1a" * (n // 3) + b"\xc0"), SumsReply),
    "nested in a field": (lambda n: message(b"\x81\xa4sums" + b"\x91" * n + b"\xc0"), SumsReply),
    "nested parameters": (lambda n: parameters(b"\x91" * n + b"\xc0"), OpenRequest),
    "parameters nested a little": (lambda n: parameters(b"\x91" * 60 + msgspec.msgpack.encode([0] * n)), OpenRequest),
    "nested maps as parameters": (lambda n: parameters(b"\x81\xa1a" * 200 + msgspec.msgpack.encode([0] * n)), OpenRequest),
    "many nested parameters": (
        lambda n: parameters(msgspec.msgpack.encode([[[[[[]]]]]] * (n // 8) + [eval("[" * 20 + "]" * 20)])),
        OpenRequest,
    ),
    "a long dtype": (lambda n: sums(dtype="<" * n), SumsReply),
    "unknown keys": (lambda n: message(msgspec.msgpack.encode({f"{k:06d}": 0 for k in range(n // 8)})), SumsReply),
    "a list": (lambda n: message(msgspec.msgpack.encode([0] * n)), SumsReply),
    "many arrays": (lambda n: message(msgspec.msgpack.encode({"sketch": [ONE] * (n // 40), "disclosed": []})), Sketch),
    "many requests": (lambda n: message(msgspec.msgpack.encode({"received": [[]] * n})), EstimateRequest),
    "claims more than there is": (lambda n: message(b"\x81\xa4sums\xdd\xff\xff\xff\xff" + bytes(n)), SumsReply),
    "nothing": (lambda n: b"\xc0" * n, SumsReply),
}


def refused(blob: bytes, kind: type[msgspec.Struct]) -> None:
    with pytest.raises(ProtocolError) as caught:
        open_body(open_envelope(blob), kind)
    assert "version" not in str(caught.value)  # or none of this would reach what it is about
    assert len(str(caught.value)) < 500  # a stranger's words are not repeated at length


@pytest.mark.guarantee
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_message_is_refused_after_linear_work(name: str) -> None:
    make, kind = HOSTILE[name]
    refused(make(100), kind)  # whatever is loaded at the first call
    small, large = make(20_000), make(80_000)
    assert calls(lambda: refused(large, kind)) <= 4.5 * calls(lambda: refused(small, kind)) + 100


@pytest.mark.long
@pytest.mark.guarantee
@pytest.mark.slow_for("many nested parameters")
@pytest.mark.minutes
@pytest.mark.parametrize("name", HOSTILE)
def test_memory_is_in_proportion_to_the_message(name: str) -> None:
    make, kind = HOSTILE[name]
    blob = make(500_000)
    tracemalloc.start()
    try:
        refused(blob, kind)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most <= 100 * len(blob)


def test_honest_studies_still_travel() -> None:
    deep = {"matrices": {"a": [[1.0, 2.0], [3.0, 4.0]]}, "grids": {"a": [2, 2]}}
    study = msgspec.structs.replace(STUDY, parameters=deep)
    assert open_body(open_envelope(encode("0" * 64, "open", 0, OpenRequest(study))), OpenRequest).study == study


@pytest.mark.guarantee
@pytest.mark.parametrize("body", [b"\x80", b"\xc0", b"\x81\xa7version\xa3two", b"\xff"])
def test_an_opening_without_a_version_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        open_request(open_envelope(message(body)))


@pytest.mark.parametrize("depth", [10, 3000, 1_000_000])
def test_frames_of_the_network_that_nest_deeply_are_refused(depth: int) -> None:
    for frame in (b"\x91" * depth + b"\xc0", b"\x82\xa4type\xa6answer\xa4body" + b"\x91" * depth + b"\xc0"):
        with pytest.raises(ProtocolError):
            open_answer(frame, "a", "0" * 64, b"")
