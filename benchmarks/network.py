"""Networked studies against the bare engine, in the same run: overhead per round of 300 rounds, and the time of a 100 MB reply.

Starts a server and three parties on loopback. The bare engine is measured inside the same job, by the same two processes: its
calls carry the same bytes without signatures, codec, ledger or transcript.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import msgspec
from board import note

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "network"), str(TESTS / "network" / "inside"), str(TESTS / "contract")]

from contract_model import install  # noqa: E402
from worlds import make_rehearsal  # noqa: E402

from unpooled.network.processes import up  # noqa: E402
from unpooled.network.submit import run_networked  # noqa: E402

ROUNDS, SIZE = 300, 100_000_000


def main() -> None:
    os.environ["UNPOOLED_TEST_MODEL"] = os.environ["UNPOOLED_TEST_RAW"] = "1"
    os.environ["PYTHONPATH"] = str(TESTS / "network" / "inside")
    install()
    with tempfile.TemporaryDirectory() as name:
        made = make_rehearsal(Path(name), "describe")
        world = made.worlds["describe"]
        began = time.monotonic()
        with up(made.kits):
            print(f"server and {len(world.names)} parties up in {time.monotonic() - began:.1f} s")
            for rounds, size in ((ROUNDS, 0), (1, SIZE)):
                study = msgspec.structs.replace(
                    world.study, model="contract", parameters={"rounds": rounds, "size": size}, run=rounds
                )
                world.approve(study)
                began = time.monotonic()
                run_networked(study, made.user, Path(name) / f"out{rounds}", lambda _: None)
                whole = time.monotonic() - began
                ours, raw = json.loads((made.kits / "localhost/raw.json").read_text())
                print(f"\n{rounds} round(s), {size:,} bytes: {whole:.1f} s from submission to result")
                print(f"  opening (each party reads its files, checks its ledger, compiles the plan): {ours[0]:.2f} s")
                if rounds > 1:
                    ours, raw = (1e3 * median(times[1:]) for times in (ours, raw))
                    print(
                        f"  per round: ours {ours:.1f} ms, bare engine {raw:.1f} ms, so {ours - raw:.1f} ms for signatures,"
                    )
                    print("  codec, two durable ledger entries at each party and the transcript")
                else:
                    note("a large reply over the engine", "the bare engine", ours[-1] / raw[-1])
                    print(
                        f"  the large reply: ours {ours[-1]:.2f} s, bare engine {raw[-1]:.2f} s, ratio {ours[-1] / raw[-1]:.2f}"
                    )


if __name__ == "__main__":
    main()
