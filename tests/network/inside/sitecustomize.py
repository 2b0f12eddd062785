"""Test only, put on the path of the engine's processes: a party waits in a step for as long as a file of its name exists; and a
model is known that no release of unpooled contains."""

from __future__ import annotations

import os
import time
from pathlib import Path

if "UNPOOLED_TEST_HOLD" in os.environ:
    from unpooled.protocol.messages import open_envelope
    from unpooled.protocol.party import Party

    folder, answer = Path(os.environ["UNPOOLED_TEST_HOLD"]), Party.answer

    def held(self: Party, blob: bytes, *rest: int) -> bytes:
        place = folder / f"{self.name}-{open_envelope(blob).step}"
        if place.exists():
            place.with_suffix(".reached").touch()
            while place.exists():
                time.sleep(0.05)
        return answer(self, blob, *rest)

    Party.answer = held

if "UNPOOLED_TEST_MODEL" in os.environ:
    from contract_model import install

    install()

if "UNPOOLED_TEST_RAW" in os.environ:
    import raw_times

    raw_times.install()
