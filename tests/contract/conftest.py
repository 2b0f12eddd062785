from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# The lines that a module runs when it is imported count as covered only if no test without measurement (no_cover) imports it first.
import unpooled.privacy.statement  # noqa: F401
