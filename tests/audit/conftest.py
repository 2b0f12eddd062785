"""What must never be true, looked for: `make audit`. Apart from `make test`, which is for the inner loop of a change."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "contract"), str(Path(__file__).parents[2])]
