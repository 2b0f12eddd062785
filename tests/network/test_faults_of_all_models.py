"""Processes of the engine that are killed at any moment, for every model: 25 times at full size (UNPOOLED_FULL=1)."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from cases import CASES, FIRST
from faulty_network import Faulty, eventually, started
from world import sized

pytestmark = [pytest.mark.network, pytest.mark.network_slow, pytest.mark.timeout(7200)]

SERVER = "localhost"
#: Their results do without a party that is silent, and a study that was published so stays so: of these the coordinator's job dies.
TOLERANT = {"analyses", "describe", "tables"}


@pytest.mark.parametrize("model", sorted(FIRST))
def test_killed_at_any_moment_and_resumed(model: str, tmp_path: Path) -> None:
    """Parties' jobs and the coordinator's: whatever was killed, the resumed study gives the bits and the debits of an unbroken one."""
    random, ends = Random(model), Counter()
    case = CASES[FIRST[model]]()
    names = [card.name for card in case.study.parties]
    with started(Faulty(tmp_path, FIRST[model], names[0])) as faulty:
        for number in range(1, sized(25, 1) + 1):
            study = faulty.world.variant(run=number)
            victim = SERVER if model in TOLERANT else random.choice([*names, SERVER])
            running = faulty.run(study, patience=5.0)
            eventually(lambda v=victim, r=running: faulty.jobs(v) or r.poll() is not None, 90)
            time.sleep(random.uniform(0.0, 3.0))
            faulty.kill(*faulty.jobs(victim))
            said, _ = running.communicate(timeout=180)
            assert running.returncode in {0, 2}, said
            ends[victim, running.returncode] += 1
            faulty.finish(study)
    print(f"{model}: {dict(ends)}")
