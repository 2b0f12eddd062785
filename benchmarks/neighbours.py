"""How much processor time processes outside a benchmark took while it was measured (Linux)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
#: Seconds below which the counters of the system are too coarse to say anything.
SHORTEST = 0.5


def busy(stat: Path = Path("/proc/stat")) -> float:
    """Return the seconds that all processors together have worked since the system started."""
    user, nice, system, _, _, interrupts, soft = map(int, stat.read_text(encoding="utf-8").split()[1:8])
    return (user + nice + system + interrupts + soft) / TICKS


def own(root: int | None = None, proc: Path = Path("/proc")) -> float:
    """Return the processor seconds of a process (default: this one) and of all its descendants, ended ones included."""
    spent: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for entry in proc.glob("[0-9]*/stat"):
        try:
            text = entry.read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended: its parent's counters hold its time
            continue
        fields = text.rpartition(")")[2].split()
        pid = int(entry.parent.name)
        spent[pid] = sum(map(int, fields[11:15]))
        children.setdefault(int(fields[1]), []).append(pid)
    tree, total = [os.getpid() if root is None else root], 0
    while tree:
        pid = tree.pop()
        total += spent.get(pid, 0)
        tree += children.get(pid, [])
    return total / TICKS


class Neighbours:
    """The processor time of other processes since the last question."""

    def __init__(
        self,
        busy: Callable[[], float] = busy,
        own: Callable[[], float] = own,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = lambda: (busy(), own(), clock())
        self._before = self._read()
        self._share: float | None = None

    def share(self) -> float:
        """Return the share of one core that other processes used since the last call; where that was just now, the share of then."""
        now = self._read()
        everything, ours, seconds = (b - a for a, b in zip(self._before, now, strict=True))
        if seconds < SHORTEST and self._share is not None:
            return self._share
        self._before, self._share = now, max(0.0, everything - ours) / max(seconds, 1 / TICKS)
        return self._share
