"""Damage to whatever is read from others or from disk: honest inputs with a few things wrong, and a campaign that tries thousands of them.

The answer to a damaged input is that to an honest one, or an error of ours with words. Nothing on disk and no ledger changes, and the
work, counted in calls of functions, is in proportion to the input.
"""

from __future__ import annotations

import functools
import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from unpooled.errors import UnpooledError
from unpooled.protocol.registry import names


def calls(work: Callable[[], object]) -> int:
    """Return the number of functions that the work enters, of Python and of C."""
    count = 0

    def seen(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


#: What stands in the place of a value of a text.
WORDS = b"""0 1 -1 1e308 -0.0 nan inf 1e-320 9223372036854775807 99999999999999999999 "" "x" "record" true false [] {} [1] [[]] {a=1} 2020-01-01
'/' "../../x" "\\u0000" """.split()


LINES = (
    b"[study]",
    b"[privacy]",
    b"[policy]",
    b"[[columns]]",
    b"[format]",
    b"x = 1",
    b"epsilon = 1",
    b'name = "x"',
    b"]",
    b"\xff\xfe",
    b"[a.b]",
)


BYTES = (
    b"\x00",
    b"\xff",
    b"\x91" * 40,
    b"\xc0",
    b"\xdd\xff\xff\xff\xff",
    b"\xc6\x7f\xff\xff\xff",
    b"\n",
    b",",
    b'"',
    b"\xcb\x7f\xf0" + bytes(6),
)


def spoilt(blob: bytes, rng: random.Random, others: list[bytes], *, text: bool) -> bytes:
    """Return the input with one to four things wrong."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(blob) + 1)
        length = rng.choice((1, 2, 4, 16, 64))
        kind = rng.randrange(10 if text else 7)
        if kind == 0 and blob:
            at = min(at, len(blob) - 1)
            blob = blob[:at] + bytes([blob[at] ^ 1 << rng.randrange(8)]) + blob[at + 1 :]
        elif kind == 1:
            blob = blob[:at] + blob[at + length :]
        elif kind == 2:
            blob = blob[:at] + blob[at : at + length] * rng.choice((2, 3, 50)) + blob[at + length :]
        elif kind == 3:
            blob = blob[:at] + rng.choice(BYTES) + blob[at + rng.choice((0, length)) :]
        elif kind == 4:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            blob = blob[:at] + other[start : start + length] + blob[at + length :]
        elif kind == 5:
            blob = blob[:at]
        elif kind == 6:
            blob = blob[:at] + rng.randbytes(length) + blob[at + length :]
        else:
            blob = in_lines(blob, rng)
    return blob


def in_lines(blob: bytes, rng: random.Random) -> bytes:
    """Return a text with a line lost, doubled, moved or put in, or with a value exchanged for another."""
    lines = blob.split(b"\n")
    at, kind = rng.randrange(len(lines)), rng.randrange(6)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, lines[rng.randrange(len(lines))])
    elif kind == 2:
        lines.insert(at, rng.choice(LINES))
    elif b" = " in lines[at]:
        key, _, value = lines[at].partition(b" = ")
        lines[at] = key + b" = " + (rng.choice(WORDS) if kind < 5 else value.replace(b"1", rng.choice(WORDS)))
    return b"\n".join(lines)


class Attacked(NamedTuple):
    """Hold honest inputs, the function that takes one, the state that must not change, and a flag for text."""

    honest: list[bytes]
    act: Callable[[bytes], object]
    state: Callable[[], object]
    text: bool


def forget() -> None:
    """Empty every cache of the package, so that a new number in a study is calibrated anew."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "unpooled":
            for kept in vars(module).values():
                if isinstance(kept, functools._lru_cache_wrapper):
                    kept.cache_clear()


def campaign(target: Attacked, seed: str, count: int) -> Counter[str]:
    """Damage inputs, take them, and return the number of answers of each kind."""
    rng, answers, most = random.Random(seed), Counter[str](), (0.0, b"")
    for blob in target.honest:
        target.act(blob)  # whatever is loaded at the first call; and an honest input is taken
    dearest = 0
    for blob in target.honest:
        forget()
        dearest = max(dearest, calls(partial(target.act, blob)))
    names()  # entry points are read once in a process, where an unknown model is asked for
    before = target.state()
    for number in range(count):
        blob = spoilt(rng.choice(target.honest), rng, target.honest, text=target.text)
        said = "taken"

        def act(blob: bytes = blob) -> None:
            nonlocal said
            try:
                target.act(blob)
            except UnpooledError as error:
                said = f"{type(error).__name__}: {error}"

        try:
            most = max(most, (calls(act) / (3 * dearest + 20 * len(blob)), blob))
        except BaseException as error:
            msg = f"input {number} of {seed!r} ended in {type(error).__name__}: {error}\n{blob[:3000]!r}"
            raise AssertionError(msg) from error
        assert len(said) < 2000, "a stranger's words are repeated at length"
        answers[said] += 1
        if number % 50 == 0:
            assert target.state() == before, f"something changed by input {number} of {seed!r}"
    assert target.state() == before
    print(
        f"{seed}: {count} inputs, {answers['taken']} taken, {len(answers)} different answers, work {most[0]:.2f} of what is allowed"
    )
    assert most[0] <= 1, f"more work than in proportion to the input: {most[1][:3000]!r}"
    return answers
