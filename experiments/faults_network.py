"""Sixty sampled faults of a networked study on loopback: each is met by a study of its own, which then goes on without it.

``tests/network/campaign.py`` has the kinds and the invariant. Every sixth point is of the engine itself, whose processes are killed and started again.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / place) for place in ("tests", "tests/contract", "tests/network")]

from campaign import CASE, DESK, ENGINE, PARTIES, STEPS, Point, frames_of, meet, meet_engine, sampled, standing  # noqa: E402 - found through the line above
from cases import CASES  # noqa: E402 - found through the line above
from experiments.cells import kept  # noqa: E402 - found through the line above
from experiments.common import run, write_table  # noqa: E402 - found through the line above
from faulty_network import Faulty, started  # noqa: E402 - found through the line above
from test_killed import COORDINATOR, Process  # noqa: E402 - found through the line above
from worlds import World, make_world  # noqa: E402 - found through the line above

COUNT = 60


def main(full: bool) -> None:
    """Write the table."""
    del full
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)

        @cache
        def desks() -> tuple[World, dict[str, Process]]:
            world = make_world(folder / "desk", CASES[CASE](), COORDINATOR.public, studies=4 * COUNT)
            return world, stack.enter_context(standing(world))

        @cache
        def faulty() -> Faulty:
            place = folder / "engine"
            place.mkdir()
            return stack.enter_context(started(Faulty(place, CASE, PARTIES[0])))

        def met(point: Point) -> dict[str, int]:
            return dict(meet_engine(faulty(), point) if point.kind in ENGINE else meet(*desks(), point, folder))

        frames = kept("frames", lambda: len(frames_of(*desks(), desks()[0].variant(run=99), folder / "99")))
        total: dict[str, Counter[str]] = {kind: Counter() for kind in (*DESK, *ENGINE)}
        runs = Counter[str]()
        for point in sampled(COUNT, PARTIES, STEPS, frames):
            found = kept(list(point), lambda p=point: met(p))
            print(*point, found, flush=True)
            total[point.kind] += Counter(found)
            runs[point.kind] += 1
    findings = ("lost", "debited twice", "other bits")
    rows = [(kind, str(runs[kind]), *(str(total[kind][what]) for what in findings)) for kind in total]
    notes = f"{COUNT} points of one study of {frames} frames, model {CASE}. {sum(sum(own.values()) for own in total.values())} findings."
    write_table("audit/faults_network", "Faults of a networked study", ("fault", "points", *findings), rows, notes)


if __name__ == "__main__":
    run(main)
