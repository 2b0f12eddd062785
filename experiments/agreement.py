"""Two tables of one experiment, compared cell by cell within the errors that they state.

``0.12 ± 0.01`` states a standard error, ``0.12 (0.1 .. 0.2)`` or ``0.12 (0.1, 0.2)`` quartiles, ``0.12 (0.2)`` the worst of the runs; of other numbers the table's own
words say how near they must be. Two sizes have other numbers of runs: between them a number without an error is compared only where the table says how near it must be.
"""

from __future__ import annotations

import re
from math import hypot, isclose

#: Standard errors of a difference that count as agreement; tables have hundreds of cells.
WIDTH = 4.0
#: Numbers that state no error agree within this share of the larger one, unless the table says something else.
WITHIN = 0.1
NUMBER = r"-?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?"
ERRORS = re.compile(rf"({NUMBER}) ± ({NUMBER})")
QUARTILES = re.compile(rf"({NUMBER}) \(({NUMBER})(?: \.\.|,) ({NUMBER})\)")
WORST = re.compile(rf"({NUMBER}) \(({NUMBER})\)")
PLAIN = re.compile(rf"(?<![\w.]){NUMBER}(?![\w.]*\w)")
#: Words for what two standard errors of a difference say. Fewer repetitions have larger errors, and may leave open what more of them decide: such
#: words contradict each other where one says yes and the other no. What sums up a row of them follows from the row.
VERDICTS, SUMMED_UP = {"yes", "no", "tie", "within the errors"}, {"holds", "broken"}
SIZE = re.compile(r"^Size: (\w+)\.", re.MULTILINE)
SAID = re.compile(r"Numbers without an error agree within ([\d.]+)\.")


def rows_of(text: str) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the first table of a Markdown file."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[one.strip() for one in line.strip("|").split(" | ")] for line in lines]
    return (cells[0], cells[2:]) if len(cells) > 1 else ([], [])


def _unit(number: str) -> float:
    """One unit of the last digit that is printed."""
    mantissa, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def _numbers(cell: str, within: float) -> tuple[str, list[tuple[float, float, float]]]:
    """Return a cell's words without its numbers, and of each number its value, its error, and one unit of its last digit."""
    found: list[tuple[float, float, float]] = []

    def noted(match: re.Match[str]) -> str:
        value = match[1] if match.re is not PLAIN else match[0]
        if match.re is ERRORS:
            error = float(match[2]) + _unit(match[2]) / 2  # it is rounded itself
        elif match.re is QUARTILES:
            error = (float(match[3]) - float(match[2])) / 2
        elif match.re is WORST:
            error = abs(float(match[2]) - float(value))
        else:
            error = within / WIDTH * abs(float(value))
        found.append((float(value), error, _unit(value)))
        return "#"

    for pattern in (ERRORS, QUARTILES, WORST, PLAIN):
        cell = pattern.sub(noted, cell)
    return cell, found


def cells_agree(old: str, new: str, within: float = WITHIN, *, sizes: bool = False) -> bool:
    """Whether two cells say the same within their errors; ``sizes``: they are of two sizes."""
    if old == new:
        return True
    said = {old.lower(), new.lower()}
    if said <= VERDICTS:
        return said != {"yes", "no"}
    if said <= SUMMED_UP:
        return True
    (words, before), (again, after) = _numbers(old, within), _numbers(new, within)
    if words != again or len(before) != len(after):
        return sizes and not _states(old) and not _states(new)
    if sizes and not (_states(old) and _states(new)):
        return True
    return all(
        isclose(a, b, abs_tol=(WIDTH * hypot(s, t) + max(u, v)) * (1 + 1e-9))
        for (a, s, u), (b, t, v) in zip(before, after, strict=True)
    )


def _states(cell: str) -> bool:
    """Whether a cell states an error; runs that were all alike ("1.00 ± 0.00") say nothing of how far other runs may be."""
    errors = ERRORS.findall(cell)
    return all(float(error) > 0 for _, error in errors) and bool(errors or QUARTILES.search(cell) or WORST.search(cell))


def _width(*tables: list[list[str]]) -> int:
    """Return how many leading cells tell the rows of each table apart."""
    longest = max(len(row) for rows in tables for row in rows)
    return next(
        (w for w in range(1, longest) if all(len({tuple(row[:w]) for row in rows}) == len(rows) for rows in tables)), longest
    )


def differences(old: str, new: str) -> list[str]:
    """Return where two tables differ, a line each; of two sizes what both have is compared."""
    (head, rows), (header, found) = rows_of(old), rows_of(new)
    said = SAID.search(new)
    within = float(said[1]) if said else WITHIN
    sizes = said is None and SIZE.findall(old) != SIZE.findall(new)
    if not rows or not found:
        return [] if (head, rows) == (header, found) else ["one of the two tables has no rows"]
    width = _width(rows, found)
    before = {tuple(row[:width]): dict(zip(head, row, strict=False)) for row in rows}
    after = {tuple(row[:width]): dict(zip(header, row, strict=False)) for row in found}
    shared = [name for name in after if name in before]
    if len(shared) < min(len(before), len(after)) or not shared:
        missing = [name for name in (before if len(before) <= len(after) else after) if name not in shared]
        return [f"{' | '.join(name)}: the other table has no such row" for name in missing]
    return [
        f"{' | '.join(name)}, {column}: {before[name][column]} is now {value}"
        for name in shared
        for column, value in after[name].items()
        if column in before[name] and not cells_agree(before[name][column], value, within, sizes=sizes)
    ]
