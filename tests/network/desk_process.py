"""A party's desk in a process of its own, over pipes, which can be made to kill itself (SIGKILL) at one point of a step, or has a clock that jumps."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from pathlib import Path

from unpooled.network.service import RequestDesk
from unpooled.privacy.ledger import Ledger


def main() -> None:
    config, point, step = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    reserve, commit = Ledger.reserve, Ledger.commit

    def dying_commit(self: Ledger, plan: str, name: str, *rest: object, **more: object) -> None:
        if name == step and point == "debited":
            die()
        commit(self, plan, name, *rest, **more)
        if name == step and point == "stored":
            die()

    def dying_reserve(self: Ledger, charges: object, *rest: object, **words: object) -> None:
        charges = tuple(charges)
        if point == "asked" and any(charge.key.step == step for charge in charges):
            die()
        reserve(self, charges, *rest, **words)

    Ledger.reserve, Ledger.commit = dying_reserve, dying_commit
    if point == "clock":  # back before the epoch, and far ahead, with every look
        jumps, real = itertools.cycle((0.0, -6.2e10, 4.0e11, 2.0**33)), time.time
        time.time = lambda: real() + next(jumps)
    desk = RequestDesk(config, sys.argv[4])
    inward, outward = sys.stdin.buffer, sys.stdout.buffer
    while len(size := inward.read(8)) == 8:
        answer = desk.answer(inward.read(int.from_bytes(size, "big")))
        outward.write(len(answer).to_bytes(8, "big") + answer)
        outward.flush()


if __name__ == "__main__":
    main()
