"""The lines of a table that a study can expect, before data: how often each is printed in played studies, and with which error."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.inference.tables import Tables

#: Played studies at the epsilon that is asked for, from which shares are taken.
RUNS = table("outlooks").whole("line_runs")
#: A line is narrow where its error is at most this many times that without privacy.
NARROW = 2.0
#: A line is expected where it is printed in this part of the played studies.
EXPECTED = table("outlooks").line_expected


@dataclass(frozen=True)
class ExpectedLine:
    """One line of a table, as played studies have it."""

    term: str
    #: The standard error to expect where the line is printed (the middle one; nan where it never is), and that without privacy.
    std_error: float
    without_privacy: float
    #: The part of the played studies that print it, and the part in which its error is at most twice that without privacy.
    printed: float
    narrow: float
    #: Of columns at several parties: the error that the response's holder can expect of its own columns at the same epsilon; nan where that has none.
    alone: float = math.nan
    #: Where rows with gaps are left out: the error to expect at a tenth and at three tenths of them left out; nan elsewhere.
    missing_10: float = math.nan
    missing_30: float = math.nan

    def at_missing(self, share: float) -> float:
        """Return the error to expect where this part of the rows is left out: sampling grows as fewer rows say, noise as their mean is over fewer."""
        sampling, noise = self.without_privacy**2, max(self.std_error**2 - self.without_privacy**2, 0.0)
        return math.sqrt(sampling / (1 - share) + noise / (1 - share) ** 2) if math.isfinite(self.std_error) else math.nan

    def with_gaps(self, expected: float) -> ExpectedLine:
        """Return the line of a study that leaves rows out, this part of them being expected."""
        free = self.without_privacy / math.sqrt(1 - expected)
        return replace(
            self,
            std_error=self.at_missing(expected),
            without_privacy=free,
            missing_10=self.at_missing(0.1),
            missing_30=self.at_missing(0.3),
        )

    @property
    def is_expected(self) -> bool:
        """Return True if the line is there in most played studies."""
        return self.printed >= EXPECTED

    def at_rows(self, error: float, rows: int) -> float:
        """Return the rows at which the line would have this error: sampling takes a part of its square in 1 / n, noise one in 1 / n^2."""
        sampling = self.without_privacy**2
        noise = max(self.std_error**2 - sampling, 0.0)
        if not self.printed or error <= 0:
            return math.inf
        # (sampling m + noise m^2) = error^2 for m = rows / n.
        times = (
            error**2 / sampling if not noise else (-sampling + math.sqrt(sampling**2 + 4 * noise * error**2)) / (2 * noise)
        )
        return rows / times


#: The errors of the lines of a played study; None where its method makes no table.
Errors: TypeAlias = "dict[str, float] | None"


@dataclass
class PlayedTables:
    """The tables of played studies, by epsilon and number of the study: of one number the same people at every epsilon."""

    #: Whether anybody asks for them.
    wanted: bool = True
    found: dict[float, dict[int, Errors]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, epsilon: float, number: int, tables: Tables | None) -> None:
        """Keep the errors of the lines of a played study."""
        if not self.wanted:
            return
        self.found[epsilon][number] = None if tables is None else tables.errors()

    def missing(self, epsilon: float, runs: int = RUNS) -> list[tuple[float, int]]:
        """Return what is not yet played of so many studies, with noise and without; nothing where the method makes no table."""
        if all(lines is None for lines in self.found[epsilon].values()):
            return []
        return [(at, number) for number in range(runs) for at in (epsilon, math.inf) if number not in self.found[at]]

    def lines(self, epsilon: float) -> tuple[ExpectedLine, ...]:
        """Return the lines at an epsilon, in the order of the table without privacy."""
        exact = {number: lines for number, lines in self.found[math.inf].items() if lines}
        played = {number: lines for number, lines in self.found[epsilon].items() if lines is not None and number in exact}
        if not played:
            return ()
        names = list(dict.fromkeys(name for number in sorted(exact) for name in exact[number]))
        return tuple(line for name in names if (line := _line(name, played, exact)) is not None)


def _line(name: str, played: dict[int, dict[str, float]], exact: dict[int, dict[str, float]]) -> ExpectedLine | None:
    """Return a line of these studies; None where nobody has it without privacy."""
    numbers = [number for number in played if name in exact[number]]
    if not numbers:
        return None
    free = np.array([exact[number][name] for number in numbers])
    errors = np.array([played[number].get(name, math.nan) for number in numbers])
    there = np.isfinite(errors)
    middle = float(np.median(errors[there])) if there.any() else math.nan
    return ExpectedLine(
        name, middle, float(np.median(free)), float(there.mean()), float((there & (errors <= NARROW * free)).mean())
    )


def cells_of(lines: Sequence[ExpectedLine]) -> list[tuple[str, ...]]:
    """Return the lines as the cells of a table, its head first."""
    beside, gaps = (any(math.isfinite(getattr(line, name)) for line in lines) for name in ("alone", "missing_10"))
    head = ("line", "std error", "without privacy", "printed", "at most twice that", *(("holder alone",) if beside else ()))
    head = (*head, *(("10% left out", "30% left out") if gaps else ()))
    return [
        head,
        *(
            (
                line.term,
                "hidden" if math.isnan(line.std_error) else f"{line.std_error:.3g}",
                f"{line.without_privacy:.3g}",
                f"{line.printed:.0%}",
                f"{line.narrow:.0%}",
                *(("" if math.isnan(line.alone) else f"{line.alone:.3g}",) if beside else ()),
                *(("" if math.isnan(at) else f"{at:.3g}" for at in (line.missing_10, line.missing_30)) if gaps else ()),
            )
            for line in lines
        ),
    ]


def in_text(lines: Sequence[ExpectedLine]) -> str:
    """Return the lines as text, a row each."""
    cells = cells_of(lines)
    widths = [max(len(row[j]) for row in cells) for j in range(len(cells[0]))]
    return "\n".join(
        "  "
        + "  ".join(cell.ljust(w) if j == 0 else cell.rjust(w) for j, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in cells
    )
