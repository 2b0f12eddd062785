"""How long the codec takes to refuse hostile messages of 2 MB, beside reading an honest one of that size.

Every line is the median of five; the last column is the time in units of the honest message's, which is one copy of its bytes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import msgspec
import numpy as np

from unpooled.errors import ProtocolError
from unpooled.models.describe.rows import SumsReply
from unpooled.protocol.messages import Array, Released, encode, open_body, open_envelope

SIZE, ROUNDS = 2_000_000, 5


def message(body: bytes) -> bytes:
    return msgspec.msgpack.encode({"version": 1, "plan": "0" * 64, "step": "sums", "index": 0, "body": msgspec.Raw(body)})


def sums(**changes: object) -> bytes:
    array = {"dtype": "<i8", "shape": [1], "data": bytes(8), **changes}
    return message(msgspec.msgpack.encode({"sums": {"name": "sums", "index": 0, "values": array}}))


def hostile() -> dict[str, bytes]:
    return {
        "220,000 dimensions of 2^63": sums(shape=[1 << 63] * (SIZE // 9)),
        "2,000,000 dimensions of 2": sums(shape=[2] * SIZE),
        "2,000,000 dimensions of 0": sums(shape=[0] * SIZE),
        "nested 2,000,000 deep": message(b"\x91" * SIZE + b"\xc0"),
        "a dtype of 2 MB": sums(dtype="<" * SIZE),
        "a body of 250,000 unknown keys": message(msgspec.msgpack.encode({f"{k:06d}": 0 for k in range(SIZE // 8)})),
        "an array of 2,000,000 items for a reply": message(msgspec.msgpack.encode([0] * SIZE)),
    }


def refuse(blob: bytes) -> None:
    try:
        open_body(open_envelope(blob), SumsReply)
    except ProtocolError:
        return
    raise AssertionError


def median(work: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def main() -> None:
    honest = encode("0" * 64, "sums", 0, SumsReply(Released("sums", 0, Array.of(np.zeros(SIZE // 8)))))
    read = median(lambda: open_body(open_envelope(honest), SumsReply))
    print(f"{'honest':<42}{len(honest):>10} bytes{read:>10.3f} ms")
    for name, blob in hostile().items():
        spent = median(lambda b=blob: refuse(b))
        print(f"{name:<42}{len(blob):>10} bytes{spent:>10.3f} ms{spent / read:>8.1f} x")


if __name__ == "__main__":
    main()
