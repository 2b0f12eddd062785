"""Golden runs: one line a contract case, before and after a change that should move no bit.

``python tests/golden.py > build/before.json`` writes digests of every plan, its statement and its transcript, of the releases that ledgers hold and of the result;
``python tests/golden.py build/before.json`` names the cases that differ. Nothing is stored in the repository: another BLAS rounds otherwise.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parent / "contract")]

import msgspec
from test_hostile_parties import STUDIES

from unpooled.models import load
from unpooled.privacy.policy import Policy
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.transcript import Transcript
from unpooled.testing.cases import parties


def digests(name: str) -> dict[str, str]:
    """Return digests of the transcript, the debits and the result of this case."""
    case = STUDIES[name]()
    model, transcript, people = (
        load(case.model),
        Transcript(),
        parties(case, dataclasses.replace(Policy.in_process(), allow_simulation=True)),
    )
    plan = model.compile(case.study)
    outcome = drive(model, plan, in_process(people), transcript)
    messages = b"".join(entry.request + (entry.reply or b"") for entry in transcript.entries)
    debits = repr(
        [[(e.kind, e.key.name, e.key.index) for e in p.ledger.entries() if e.kind == "charge"] for p in people.values()]
    )
    said = "\n".join([plan.hash, str(plan.statement), str(plan)])
    parts = {
        "plan": said.encode(),
        "transcript": messages,
        "debits": debits.encode(),
        "result": msgspec.msgpack.encode(outcome.result),
    }
    return {part: hashlib.sha256(content).hexdigest()[:16] for part, content in parts.items()}


def main() -> int:
    """Print the digests of all cases, or compare them with those of a file; return 1 if any differ."""
    found = {name: digests(name) for name in STUDIES}
    if len(sys.argv) == 1:
        print(json.dumps(found, indent=1))
        return 0
    before = json.loads(Path(sys.argv[1]).read_text())
    differ = {name: [part for part in found[name] if before.get(name, {}).get(part) != found[name][part]] for name in found}
    for name, parts in differ.items():
        print(f"{name}: {'equal' if not parts else 'differs in ' + ', '.join(parts)}")
    return int(any(differ.values()))


if __name__ == "__main__":
    sys.exit(main())
