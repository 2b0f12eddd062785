"""Times a study inside its job, and then the bare engine with calls of the same sizes between the same processes."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from contract_model import filler

from unpooled.network import engine, service
from unpooled.protocol.transcript import Transcript

_RAW = b"RAW "


def install() -> None:
    answer, coordinate = service.RequestDesk.answer, engine.coordinate

    def echo(self: service.RequestDesk, frame: bytes) -> bytes:
        return filler(int(frame[4:20])) if frame.startswith(_RAW) else answer(self, frame)

    def timed(study: object, coordinator: object, call: service.Call, home: Path, out: Path, **words: object) -> None:
        stamps: list[float] = []
        service._log_waiting = lambda _: stamps.append(time.perf_counter())
        coordinate(study, coordinator, call, home, out, **words)
        stamps.append(time.perf_counter())
        ours = [after - before for before, after in pairwise(stamps)]
        record = Transcript.open(max(home.glob("*/transcript"), key=lambda path: path.stat().st_mtime))
        record.close()
        raw, entries = [], record.entries
        with ThreadPoolExecutor(8) as pool:
            while entries:
                names: set[str] = set()
                while len(names) < len(entries) and entries[len(names)].to not in names:
                    names.add(entries[len(names)].to)
                batch, entries = entries[: len(names)], entries[len(names) :]
                frames = [_RAW + f"{len(e.reply):016}".encode() + bytes(max(0, len(e.request) - 20)) for e in batch]
                began = time.perf_counter()
                list(pool.map(lambda pair: call(pair[0].to, pair[1], 60.0), zip(batch, frames, strict=True)))
                raw.append(time.perf_counter() - began)
        (home.parent / "raw.json").write_text(json.dumps([ours, raw]))

    service.RequestDesk.answer, engine.coordinate = echo, timed
