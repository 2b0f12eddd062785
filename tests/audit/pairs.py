"""``python tests/audit/pairs.py``: writes tests/audit/pairs.json anew, the farthest pair of neighbours for every release of every contract case.

A pair is kept where it moves its release beyond .9 of the bound under each of several keys of noise, so that it does so whatever an earlier round drew.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
FILE = HERE / "pairs.json"
ROUNDS, KEYS = 8, 4


def main(*names: str) -> None:
    """Search every case, or those that are named."""
    sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "contract")]
    from cases import CASES

    from unpooled.audit.neighbours import write_file
    from unpooled.audit.replay import replay, steady
    from unpooled.models import load

    for name in names or CASES:
        case = CASES[name]()
        model = load(case.model)
        found = replay(model, case.study, case.tables, registry=load, rounds=ROUNDS).pairs
        kept = steady(model, case.study, case.tables, found, registry=load, keys=KEYS)
        write_file(FILE, name, kept)
        print(name, len(found.kept), len(kept.kept), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
