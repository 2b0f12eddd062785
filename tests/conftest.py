from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path

# Before NumPy loads its BLAS: two test processes with a thread for each of two cores wait for one another, up to 20 times as long.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds the ledgers of another one, or writes into the list of whoever runs it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture(autouse=True)
def _own_draws(request: pytest.FixtureRequest) -> None:
    """A module's generator starts anew for each test, from the test's name: what a test draws depends on neither order nor worker."""
    shared = getattr(request.module, "RNG", None)
    if isinstance(shared, np.random.Generator):
        shared.bit_generator.state = np.random.default_rng(zlib.crc32(request.node.nodeid.encode())).bit_generator.state
