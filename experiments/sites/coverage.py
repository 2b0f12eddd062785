"""Coverage where sites differ: constants of sites (fixed and random), and meta-analyses of fits at every site, by the rule of docs/inference.md.

The cells are listed here, before any run. Each run plays the study's own coordinator on exact totals of fresh rows with the noise that is planned
(``experiments/inference/played.py``). Rows of site k of K are (k + 1) parts of K (K + 1) / 2. The true value of a fixed constant is the one drawn in the
run, that of a random one or of a mean over sites the centre of the law that constants or slopes are drawn from.

``python -m experiments.sites.coverage`` makes 60 runs a cell, ``--full`` 200. Runs continue where they stopped: each cell is a file under build/sites.
``--kept`` makes none, and writes the tables of those that are there.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from experiments.common import run, write_table
from experiments.inference.played import played_result, played_tables

import unpooled
from unpooled.errors import UnpooledError
from unpooled.models import load
from unpooled.models.analyses.declared import pooled_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

WHERE = Path("build/sites")
FULL, REDUCED, SAVED = 200, 60, 10
#: Whether only the runs that are there are tabled.
KEPT = "--kept" in sys.argv
COLUMNS = ("a", "b", "c")
SLOPES = np.array([0.5, -0.3, 0.0])


#: What a run depends on that is this experiment's own, by form: runs of other code are not continued.
OWN = {
    "fixed": ("inference/sites.py", "linear/conversation.py"),
    "random": (
        "inference/sites.py",
        "linear/conversation.py",
        "linear/random_sites.py",
        "kernels/between_sites.py",
    ),
    "meta": ("kernels/between_sites.py",),
}
STEPS = ("models/glm/curvature.py",)


class Cell(NamedTuple):
    """One row of the table."""

    #: "fixed", "random", or "meta".
    form: str
    family: str
    sites: int
    rows: int
    epsilon: float
    #: Deviation of the sites' constants, and of their slopes of a.
    apart: float
    slopes: float = 0.0

    @property
    def name(self) -> str:
        """The cell in words."""
        more = f", slopes {self.slopes:g}" if self.slopes else ""
        return f"{self.form}, {self.family}, {self.sites} sites, {self.rows:,} rows, epsilon {self.epsilon:g}, constants {self.apart:g}{more}"


def code(cell: Cell) -> str:
    """A hash of that code."""
    total = hashlib.sha256()
    for name in (*OWN[cell.form], *(STEPS if cell.form == "fixed" and cell.family != "linear" else ())):
        total.update((Path(unpooled.__file__).parent / name).read_bytes())
    return total.hexdigest()[:12]


CELLS = (
    *(
        Cell("fixed", family, sites, rows, epsilon, 0.5)
        for family in ("linear", "logistic", "poisson")
        for sites, rows in ((3, 20_000), (8, 20_000), (30, 60_000))
        for epsilon in (1.0, 3.0)
    ),
    *(
        Cell("random", "linear", sites, rows, epsilon, apart)
        for sites, rows in ((8, 20_000), (30, 60_000))
        for epsilon in (1.0, 3.0)
        for apart in (0.0, 0.3)
    ),
    *(
        Cell("meta", family, sites, rows, epsilon, 0.3, slopes)
        for family in ("linear", "logistic")
        for sites, rows in ((3, 20_000), (8, 40_000), (30, 90_000))
        for epsilon in (1.0, 3.0)
        for slopes in (0.0, 0.1)
    ),
)


def drawn(cell: Cell, rng: np.random.Generator) -> tuple[Table, np.ndarray, dict[str, float]]:
    """Rows, the site of each, and the true value of every line."""
    parts = np.arange(1.0, cell.sites + 1)
    counts = np.maximum((cell.rows * parts / parts.sum()).astype(int), 2)
    site = np.repeat(np.arange(cell.sites), counts)
    constants = rng.normal(0, cell.apart, cell.sites)
    steeper = rng.normal(0, cell.slopes, cell.sites)
    # Random constants are independent of the columns, by assumption; others may go with them.
    shift = 0.0 if cell.form == "random" else 0.4
    x = np.clip(rng.normal(0, 1, (site.size, 3)) + shift * constants[site][:, None], -4, 4)
    u = x @ SLOPES + steeper[site] * x[:, 0] + constants[site]
    if cell.family == "linear":
        y: Any = np.clip(u + rng.normal(0, 1, site.size), -8, 8)
    elif cell.family == "logistic":
        y = np.where(rng.random(site.size) < 1 / (1 + np.exp(-u + 0.5)), "yes", "no").astype(object)
    else:
        y = np.minimum(rng.poisson(np.exp(u)), 30).astype(float)
    names = np.array([f"s{k:02d}" for k in range(cell.sites)])
    truth = dict(zip(COLUMNS, SLOPES.tolist(), strict=True))
    base = -0.5 if cell.family == "logistic" else 0.0
    if cell.form == "fixed":
        truth |= {f"site: {names[k]} - s00": constants[k] - constants[0] for k in range(1, cell.sites)}
        truth["(intercept)"] = base + constants[0]
    elif cell.form == "random":
        truth["(intercept)"] = base
    return Table({**dict(zip(COLUMNS, x.T, strict=True)), "y": y, "site": names[site].astype(object)}), site, truth


def asked(cell: Cell, site: np.ndarray) -> Study:
    """The study of a cell."""
    response = {
        "linear": Column("y", -8.0, 8.0),
        "logistic": Column("y", categories=("no", "yes")),
        "poisson": Column("y", 0.0, 30.0),
    }[cell.family]
    columns = (*(Column(name, -4.0, 4.0) for name in COLUMNS), response)
    cards = tuple(Card(f"s{k:02d}", int(count), columns) for k, count in enumerate(np.bincount(site)))
    model = "bayes" if cell.family == "linear" else "glm"
    fit: dict[str, Any] = {"response": "y"} | ({} if model == "bayes" else {"family": cell.family})
    if cell.form != "meta":
        return Study(model, cards, cell.epsilon, 1e-6, parameters=fit | {"site_effects": cell.form}, derived=())
    listed = [{"name": "fit", "model": model, "parameters": fit, "apart": True, "pool": ["a"]}]
    return Study("analyses", cards, cell.epsilon, 1e-6, parameters={"analyses": listed}, derived=())


def once(cell: Cell, seed: int) -> dict[str, Any]:
    """The lines of a run: whether the interval holds the truth, by the kind of line; p of Q; tau^2."""
    words = zlib.crc32(repr(cell).encode())
    rng, noise = np.random.default_rng([seed, words]), np.random.default_rng([seed, 1, words])
    table, site, truth = drawn(cell, rng)
    plan = load(asked(cell, site).row).compile(asked(cell, site))
    if cell.form == "meta":
        return pooled(plan, table, site, noise)
    tables = played_tables(plan, table, noise)
    if tables is None:
        return {"lines": {}}
    lines: dict[str, list[int]] = {}
    for t in tables.summary().terms:
        kind = "sites" if t.term.startswith("site") else "constant" if t.term == "(intercept)" else "slopes"
        lines.setdefault(kind, []).append(int(t.conf_low <= truth[t.term] <= t.conf_high))
    return {"lines": lines, "tau2": getattr(tables, "spread", None)}


def pooled(plan: Any, table: Table, site: np.ndarray, noise: np.random.Generator) -> dict[str, Any]:
    """The meta-analysis of one run: each site's fit is played on its own rows."""
    results = {}
    for k, (name, inner) in enumerate(plan.parts.items()):
        own = table.take(np.flatnonzero(site == k))
        results[name] = played_result(inner, own, noise)
    found = pooled_of(plan, results)["fit"][0]
    if found.pooled is None:
        return {"lines": {}, "used": len(found.sites)}
    (fixed, variance), (low, high), truth = found.pooled.fixed, found.pooled.interval, float(SLOPES[0])
    lines = {"Hartung-Knapp": [int(low <= truth <= high)], "fixed": [int(abs(fixed - truth) <= 1.959964 * variance**0.5)]}
    lines["at sites"] = [int(t.conf_low <= truth <= t.conf_high) for t in found.sites.values()]
    return {
        "lines": lines,
        "q": int(found.pooled.q_p_value < 0.05),
        "used": len(found.sites),
        "tau2": found.pooled.tau_squared,
    }


def measured(cell: Cell, runs: int) -> list[dict[str, Any]]:
    """The runs of a cell, those that are there already first."""
    version = code(cell)
    file = WHERE / f"{zlib.crc32(repr(cell).encode()):08x}.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    if found.get("code") != version:
        found = {"cell": cell.name, "code": version, "runs": []}
    file.parent.mkdir(parents=True, exist_ok=True)
    while len(found["runs"]) < runs and not KEPT:
        try:
            found["runs"].append(once(cell, len(found["runs"])))
        except (ArithmeticError, np.linalg.LinAlgError, UnpooledError) as error:
            found["runs"].append({"lines": {}, "failed": f"{type(error).__name__}: {error}"})
        if len(found["runs"]) % SAVED == 0 or len(found["runs"]) == runs:
            file.with_suffix(".part").write_text(json.dumps(found))
            file.with_suffix(".part").replace(file)
    return found["runs"][:runs]


def shares(found: list[dict[str, Any]], kind: str, most: int) -> tuple[str, str]:
    """The coverage of a kind of line, and the part of its lines that is printed."""
    held = [one for each in found for one in each["lines"].get(kind, [])]
    return (f"{np.mean(held):.3f}" if held else "", f"{len(held) / most / len(found):.2f}" if most else "")


def main(full: bool) -> None:
    """Write the tables of constants and of meta-analyses."""
    runs = FULL if full else REDUCED
    constants, metas, every = [], [], []
    for cell in CELLS:
        found = measured(cell, runs)
        if not found:
            continue
        spread = [one["tau2"] for one in found if one.get("tau2") is not None]
        failed = sum("failed" in one for one in found)
        head = [cell.family, f"{cell.sites}", f"{cell.rows:,}", f"{cell.epsilon:g}"]
        if cell.form == "meta":
            row = [
                *head,
                f"{cell.slopes:g}",
                *(shares(found, kind, 0)[0] for kind in ("Hartung-Knapp", "fixed", "at sites")),
            ]
            if cell.slopes:  # then neither has the mean as its target
                row[-2:] = ["", ""]
            size = f"{np.mean([one['q'] for one in found if 'q' in one]):.3f}" if any("q" in one for one in found) else ""
            row += [
                size,
                f"{np.mean([one.get('used', 0) for one in found]):.1f}",
                f"{np.mean(spread):.4f}" if spread else "",
                f"{len(found)}",
                f"{failed}",
            ]
            metas.append(row)
        else:
            row = [cell.form, *head, f"{cell.apart:g}"]
            for kind, most in (("slopes", 3), ("sites", (cell.sites - 1) * (cell.form == "fixed")), ("constant", 1)):
                row += shares(found, kind, most)
                every += [float(row[-2])] if row[-2] else []
            row += [f"{np.mean(spread):.3f}" if spread and cell.form == "random" else "", f"{len(found)}", f"{failed}"]
            constants.append(row)
        print(*row, flush=True)
    off = sum(not 0.93 <= one <= 0.97 for one in every)
    words = f"Up to {runs} runs a cell. {len(every)} coverages, mean {np.mean(every):.3f}, from {min(every):.3f} to {max(every):.3f}, {off} outside .93 to .97."
    head = ("family", "sites", "rows", "epsilon")
    write_table(
        "sites/constants",
        "Coverage of 95% intervals where sites have constants of their own",
        (
            "constants",
            *head,
            "deviation",
            "slopes",
            "printed",
            "site lines",
            "printed",
            "constant",
            "printed",
            "mean tau^2",
            "runs",
            "failed",
        ),
        constants,
        words,
    )
    intervals = [float(row[5]) for row in metas if row[5]]
    write_table(
        "sites/meta_analysis",
        "Coverage of 95% intervals of meta-analyses of fits at every site",
        (
            *head,
            "deviation of slopes",
            "Hartung-Knapp",
            "fixed effect",
            "at sites",
            "Q: p < .05",
            "sites used",
            "mean tau^2",
            "runs",
            "failed",
        ),
        metas,
        f"Up to {runs} runs a cell. Hartung-Knapp: mean {np.mean(intervals):.3f}, from {min(intervals):.3f} to {max(intervals):.3f}.",
    )


if __name__ == "__main__":
    sys.argv[1:] = [word for word in sys.argv[1:] if word != "--kept"]
    run(main)
