"""How long importing unpooled and asking the command for help take, above the interpreter's own start (warm cache)."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from board import note, rounds

ROUNDS = rounds(15)
SCRIPT = str(Path(sys.executable).parent / "unpooled")
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import unpooled (aim: < 0.3 s)": [sys.executable, "-c", "import unpooled"],
    "unpooled --help (aim: < 0.4 s)": [SCRIPT, "--help"],
    "from unpooled import Bounds": [sys.executable, "-c", "from unpooled import Bounds"],
    "from unpooled import describe": [sys.executable, "-c", "from unpooled import describe"],
}


def main() -> None:
    found: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS + 1):
        for name, command in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            found[name].append(time.perf_counter() - start)
    for name, seconds in found.items():
        warm = seconds[1:]
        if name != "python -c pass":
            note(
                name.split(" (")[0],
                "python -c pass",
                statistics.median(warm) / statistics.median(found["python -c pass"][1:]),
            )
        print(f"{name:<32} median {statistics.median(warm):.3f} s  (min {min(warm):.3f}, max {max(warm):.3f})")


if __name__ == "__main__":
    main()
