"""Tables at epsilon 1e4 against tables without noise: no line may differ by a tenth of its standard error.

Each run plays the same study (same rows, default method) at epsilon 1e4 and at epsilon = inf. The difference of a line is in standard errors of the
table without noise. ``python -m experiments.inference.without_noise`` makes 2 runs a cell, ``--full`` 10.
"""

from __future__ import annotations

import itertools
import math
import zlib
from typing import Any, NamedTuple

import msgspec
import numpy as np
from experiments.common import run, write_table
from experiments.inference.designs import CURVED, MISSING, SKEWED_CURVED, drawn
from experiments.inference.played import played_tables
from experiments.inference.responses import FAMILIES, asked

from unpooled.errors import UsageError
from unpooled.models import load
from unpooled.privacy.plan import Study
from unpooled.privacy.table import Table

EPSILON, CLAIM, ROWS = 1e4, 0.1, 20_000
DESIGNS = (
    "two levels",
    "eight levels",
    "a product",
    "correlation .9",
    "ranges ten times too wide",
    MISSING,
    "t3 columns",
    "exponential columns",
    CURVED,
    SKEWED_CURVED,
)
#: Responses that are hard for one family, in addition to the ten designs.
MORE = (
    ("regression", "t3 residuals"),
    ("regression", "lognormal residuals"),
    ("poisson", "overdispersion 4"),
    ("gamma", "lognormal residuals"),
)
ESTIMATED = "negative-binomial, dispersion estimated"
CELLS = (*itertools.product((*FAMILIES, ESTIMATED), DESIGNS), *MORE)


class Gap(NamedTuple):
    """The difference of a line from that without noise: its size in standard errors, how much longer its own standard error is, and its name."""

    size: float
    longer: float
    line: str


def lines_of(study: Study, table: Table, seed: int) -> dict[str, tuple[float, float]]:
    """(estimate, standard error) of every line that a played study prints."""
    tables = played_tables(load(study.model).compile(study), table, np.random.default_rng([seed, 1]))
    return {} if tables is None else {t.term: (t.estimate, t.std_error) for t in tables.summary().terms}


def gaps(family: str, design: str, seed: int) -> list[Gap]:
    """The gap of every line that the table without noise has; a line that is not printed at epsilon 1e4 is infinitely far."""
    own, parameters = family.split(",", maxsplit=1)[0], {}
    if family == ESTIMATED:
        parameters = {"dispersion": "estimate"}
    elif own == "negative-binomial":
        parameters = {"dispersion": 1.0}
    rng = np.random.default_rng([seed, zlib.crc32(f"{own} {design}".encode())])
    one = asked(own, design, EPSILON, drawn(design, own, ROWS, rng), parameters, rng)
    given: dict[str, Any] = {name: value for name, value in one.study.parameters.items() if name != "method"}
    study = msgspec.structs.replace(one.study, parameters=given)
    noisy = lines_of(study, one.table, seed)
    exact = lines_of(msgspec.structs.replace(study, epsilon=math.inf), one.table, seed)
    found = []
    for name, (value, error) in exact.items():
        if not math.isfinite(error):
            continue
        near = noisy.get(name)
        size = math.inf if near is None else abs(near[0] - value) / error
        found.append(Gap(size, math.nan if near is None else near[1] / error, name))
    return found


def main(full: bool) -> None:
    """All cells; the line of each that is farthest from the one without noise."""
    runs = 10 if full else 2
    rows, failing, largest, soon, lines = [], 0, 0.0, 0, 0
    for family, design in CELLS:
        try:
            found = [gap for seed in range(runs) for gap in gaps(family, design, seed)]
        except UsageError as error:
            soon += 1
            rows.append([f"{family}, {design}", "not yet", "", "", str(error)[:80].replace("|", "/")])
            continue
        if not found:
            soon += 1
            rows.append([f"{family}, {design}", "no lines", "", "", ""])
            continue
        worst = max(found)
        far = list(dict.fromkeys(gap.line for gap in found if gap.size >= CLAIM))
        failing, largest, lines = failing + bool(far), max(largest, worst.size), lines + len(found)
        longer = float(np.nanmedian([gap.longer for gap in found]))
        rows.append([f"{family}, {design}", f"{worst.size:.3f}", worst.line, f"{longer:.3f}", ", ".join(far)])
        print(" | ".join(rows[-1]), flush=True)
    write_table(
        "inference/without_noise",
        "Tables at epsilon 1e4 against tables without noise",
        [
            "family, design",
            "largest difference in standard errors",
            "line",
            "median ratio of standard errors",
            "lines that fail",
        ],
        rows,
        f"{runs} runs a cell, {ROWS} rows, {lines} lines. {failing} of {len(CELLS) - soon} cells have a line that is {CLAIM} standard errors off or more; "
        f"the largest difference is {largest:.3f}; {soon} cells could not run.",
    )


if __name__ == "__main__":
    run(main)
