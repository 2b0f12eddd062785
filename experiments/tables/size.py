"""Size and power of the test of independence, and coverage of effects and quantiles, of private tables (``unpooled.tabulate``).

Each run draws fresh rows as counts, adds noise of the planned release, rounded, and reads the table as the coordinator does. Nothing of the
model was chosen by these cells; those it was looked at during development are others.

``python -m experiments.tables.size --full`` runs every cell 2,000 times (effects half, power and quantiles a quarter of that) and writes
results/tables/{size,power,effects,strata,quantiles}.md; cells that are in build/tables/size.json already are kept, so a run that was stopped continues.
"""

from __future__ import annotations

import itertools
import json
import math
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from experiments.common import run, write_table
from scipy.stats import chi2, gamma, ncx2, norm

from unpooled.models import load
from unpooled.models.tables.declared import RELEASE
from unpooled.models.tables.fit import read
from unpooled.models.tables.result import Contingency, Effect
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Plan, Study

WHERE = Path("build/tables/size.json")
RUNS, DELTA = 2000, 1e-5
#: Shares of lines and of columns under independence.
TABLES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "2 x 2": ((0.4, 0.6), (0.8, 0.2)),
    "2 x 2, rare event": ((0.5, 0.5), (0.97, 0.03)),
    "2 x 3": ((0.6, 0.4), (0.5, 0.35, 0.15)),
    "2 x 4, rare level": ((0.5, 0.5), (0.5, 0.3, 0.17, 0.03)),
    "3 x 3": ((0.4, 0.35, 0.25), (0.45, 0.3, 0.25)),
    "3 x 4, rare line": ((0.6, 0.35, 0.05), (0.4, 0.3, 0.2, 0.1)),
}
ROWS, EPSILONS, SITES = (500, 3000, 20_000), (0.3, 1.0, 3.0), (1, 3)
#: Epsilons at which power is measured, and the tables.
POWER_EPSILONS, POWER_TABLES = (0.3, 0.5, 1.0, 2.0, 3.0, 5.0), ("2 x 2", "2 x 2, rare event", "2 x 3", "3 x 4, rare line")
POWER_SITES = (1, 4)
#: Of tables for effects: the share of the event in the reference, the odds ratio, and how sites differ (factors of the odds).
SHARES, RATIOS, FACTORS = (0.2, 0.04), (1.0, 2.0), (0.6, 0.9, 1.2, 1.6)
#: Numbers of strata between two columns, and the odds ratio within each.
STRATA, STRATA_RATIO = (3, 8), 1.5
#: Laws of a number in [0, 100].
LAWS = {"normal": norm(50, 12), "skewed": gamma(2, scale=10)}
BINS = (8, 50)
#: A cell is judged if at least this part of its runs answered.
JUDGED = 0.5


def plan_of(lines: int, levels: int, rows: int, sites: int, epsilon: float) -> Plan:
    """The plan of a table of two columns."""
    columns = tuple(
        Column(name, categories=tuple(f"{name}{k}" for k in range(size))) for name, size in (("a", lines), ("b", levels))
    )
    return _plan(columns, {"columns": ["a", "b"]}, rows, sites, epsilon)


def _plan(columns: tuple[Column, ...], parameters: dict[str, Any], rows: int, sites: int, epsilon: float) -> Plan:
    cards = tuple(Card(f"site{k}", rows // sites + (k < rows % sites), columns) for k in range(sites))
    return load("tables").compile(Study("tables", cards, epsilon, DELTA, parameters=parameters, derived=()))


def played(plan: Plan, cells: Callable[[int], np.ndarray], rng: np.random.Generator) -> Contingency:
    """The result of one run; ``cells(k)`` are the probabilities of a row's cells at site k."""
    cards = plan.study.parties
    release = plan.release(cards[0].name, RELEASE).mechanism
    exact = np.array([rng.multinomial(card.rows, cells(k).ravel()) for k, card in enumerate(cards)], dtype=float)
    noisy = exact + np.rint(release.scale * rng.standard_normal(exact.shape))
    return read(plan, cards, noisy, float(release.deviations[0]) ** 2)


def rejected(table: np.ndarray, rows: int, sites: int, epsilon: float, runs: int, seed: int) -> list[int]:
    """How many runs answered, and in how many p was at most .05."""
    rng, plan = np.random.default_rng(seed), plan_of(*table.shape, rows, sites, epsilon)
    values = [played(plan, lambda _: table, rng).independence.p_value for _ in range(runs)]
    answered = [value for value in values if value is not None]
    return [len(answered), sum(value <= 0.05 for value in answered)]


def alternative(name: str, rows: int) -> np.ndarray:
    """The table at which Pearson's test without noise finds the effect four times in five: the first line has more of the last level."""
    p, q = (np.array(one) for one in TABLES[name])
    freedom = (p.size - 1) * (q.size - 1)
    limit, low, high = chi2.ppf(0.95, freedom), 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if ncx2.sf(limit, freedom, middle) < 0.8 else (low, middle)
    lines = np.append(p[0], -p[1:] * p[0] / (1 - p[0]))
    levels = np.append(-q[:-1] * q[-1] / (1 - q[-1]), q[-1])
    step = np.outer(lines, levels)
    expected = np.outer(p, q)
    return expected + step * math.sqrt(low / rows / float((step**2 / expected).sum()))


def holds(effect: Effect, truth: float) -> bool:
    """Whether a set of values has the true one."""
    low, high = effect.low, effect.high
    if effect.form == "unknown":
        return True
    if effect.form == "outside":
        return truth <= low or truth >= high
    return (low is None or low <= truth) and (high is None or truth <= high)


def event_tables(share: float, ratio: float, sites: int, common: str) -> list[np.ndarray]:
    """A 2 x 2 table of probabilities for every site: half of the rows in each line, with one odds ratio or one risk difference over sites."""
    found = []
    for factor in FACTORS[:sites] if sites > 1 else (1.0,):
        odds = share / (1 - share) * factor
        base = odds / (1 + odds)
        other = odds * ratio / (1 + odds * ratio) if common == "odds ratio" else base + share * (ratio - 1) / 2
        found.append(np.array([[1 - base, base], [1 - other, other]]) / 2)
    return found


def covered(
    share: float, ratio: float, rows: int, sites: int, epsilon: float, common: str, runs: int, seed: int
) -> dict[str, list[int]]:
    """Per effect: runs in which its set has the true value, and those in which it is an interval."""
    tables = event_tables(share, ratio, sites, common)
    whole = np.mean(tables, axis=0)
    risks = whole[:, 1] / whole.sum(axis=1)
    truths = {
        "odds ratio": whole[0, 0] * whole[1, 1] / (whole[0, 1] * whole[1, 0]),
        "risk ratio": risks[1] / risks[0],
        "risk difference": risks[1] - risks[0],
    }
    if sites > 1 and common == "odds ratio":
        truths["Mantel-Haenszel odds ratio"] = ratio
    if sites > 1 and (common != "odds ratio" or ratio == 1.0):
        truths["common risk difference"] = share * (ratio - 1) / 2
    rng, plan = np.random.default_rng(seed), plan_of(2, 2, rows, sites, epsilon)
    found = {name: [0, 0] for name in truths}
    for _ in range(runs):
        for effect in played(plan, lambda k: tables[k], rng).effects:
            if effect.name in found:
                found[effect.name][0] += holds(effect, float(truths[effect.name]))
                found[effect.name][1] += effect.form == "interval"
    return found


def strata_covered(strata: int, rows: int, sites: int, epsilon: float, runs: int, seed: int) -> list[int]:
    """Runs in which the Mantel-Haenszel odds ratio over strata and sites has the true value, runs in which it is an interval, and runs.

    Strata differ in their size, in the share of the second line and in the event's share in the first: the pooled odds ratio is another one.
    """
    rng = np.random.default_rng(seed)
    sizes, exposed, base = rng.dirichlet(np.full(strata, 2.0)), rng.uniform(0.2, 0.8, strata), rng.uniform(0.08, 0.4, strata)
    odds = STRATA_RATIO * base / (1 - base)
    other = odds / (1 + odds)
    lines = (sizes * (1 - exposed), base), (sizes * exposed, other)
    table = np.array([[[size * (1 - share), size * share] for size, share in zip(*line, strict=True)] for line in lines])
    columns = tuple(
        Column(name, categories=tuple(f"{name}{k}" for k in range(size)))
        for name, size in zip("asb", table.shape, strict=True)
    )
    plan = _plan(columns, {"columns": ["a", "s", "b"]}, rows, sites, epsilon)
    found = [0, 0, runs]
    for _ in range(runs):
        effects = played(plan, lambda _: table, rng).effects
        effect = next(one for one in effects if one.name == "Mantel-Haenszel odds ratio")
        found[0] += holds(effect, STRATA_RATIO)
        found[1] += effect.form == "interval"
    return found


def quantiles_covered(
    law: str, bins: int, rows: int, sites: int, epsilon: float, runs: int, seed: int
) -> dict[str, list[float]]:
    """Per quantile of a number: runs that cover, runs that answer, the median width and the root mean squared error, in deviations of the number."""
    edges = np.linspace(0, 100, bins + 1)
    cumulative = LAWS[law].cdf(edges)
    cumulative[0], cumulative[-1] = 0.0, 1.0
    column = Column("b", 0.0, 100.0)
    plan = _plan((column,), {"columns": ["b"], "cuts": {"b": bins}}, rows, sites, epsilon)
    rng, found = np.random.default_rng(seed), {}
    for _ in range(runs):
        for q in played(plan, lambda _: np.diff(cumulative), rng).quantiles:
            found.setdefault(f"{q.part:g}", []).append((q.value, q.low, q.high))
    summary = {}
    for part, ends in found.items():
        truth = float(np.clip(LAWS[law].ppf(float(part)), 0, 100))
        known = np.array([one for one in ends if one[0] is not None]).reshape(-1, 3)
        width = float(np.median(known[:, 2] - known[:, 1])) / LAWS[law].std() if known.size else math.nan
        error = math.sqrt(float(np.mean((known[:, 0] - truth) ** 2))) / LAWS[law].std() if known.size else math.nan
        summary[part] = [int(np.sum((known[:, 1] <= truth) & (truth <= known[:, 2]))), len(known), width, error]
    return summary


def cells(runs: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every cell by name, and its runs."""

    def seed(name: str) -> int:
        return zlib.crc32(name.encode())

    for table, n, epsilon, sites in itertools.product(TABLES, ROWS, EPSILONS, SITES):
        name = f"size|{table}|{n}|{epsilon:g}|{sites}"
        independent = np.outer(*TABLES[table])
        yield name, lambda name=name, t=independent, n=n, k=sites, e=epsilon: rejected(t, n, k, e, runs, seed(name))
    for table, n, epsilon, sites in itertools.product(POWER_TABLES, ROWS, POWER_EPSILONS, POWER_SITES):
        name = f"power|{table}|{n}|{epsilon:g}|{sites}"
        dependent = alternative(table, n)
        yield name, lambda name=name, t=dependent, n=n, k=sites, e=epsilon: rejected(t, n, k, e, runs // 4, seed(name))
    for share, ratio, n, epsilon, (sites, common) in itertools.product(
        SHARES, RATIOS, ROWS, EPSILONS, ((1, "odds ratio"), (4, "odds ratio"), (4, "risk difference"))
    ):
        if ratio == 1.0 and common != "odds ratio":
            continue
        name = f"effects|{share:g}|{ratio:g}|{n}|{epsilon:g}|{sites}|{common}"
        yield (
            name,
            lambda name=name, s=share, r=ratio, n=n, k=sites, e=epsilon, c=common: covered(
                s, r, n, k, e, c, runs // 2, seed(name)
            ),
        )
    for strata, n, epsilon, sites in itertools.product(STRATA, ROWS, EPSILONS, SITES):
        name = f"strata|{strata}|{n}|{epsilon:g}|{sites}"
        yield name, lambda name=name, m=strata, n=n, k=sites, e=epsilon: strata_covered(m, n, k, e, runs, seed(name))
    for law, bins, n, epsilon, sites in itertools.product(LAWS, BINS, ROWS, EPSILONS, (1, 4)):
        name = f"quantiles|{law}|{bins}|{n}|{epsilon:g}|{sites}"
        yield (
            name,
            lambda name=name, w=law, b=bins, n=n, k=sites, e=epsilon: quantiles_covered(
                w, b, n, k, e, runs // 4, seed(name)
            ),
        )


def written_sizes(found: dict[str, Any], runs: int) -> None:
    """The table of sizes."""
    rows, sizes = [], []
    for name, (answered, hits) in found.items():
        size = hits / answered if answered else math.nan
        judged = answered >= JUDGED * runs
        sizes += [size] if judged else []
        rows.append(
            [*name.split("|"), f"{answered / runs:.2f}", f"{size:.3f}" if judged else "", "" if judged else "refuses"]
        )
    outside = sum(not 0.04 <= size <= 0.06 for size in sizes)
    write_table(
        "tables/size",
        "Size of the test of independence at a nominal .05",
        ["table", "rows", "epsilon", "sites", "answered", "size", ""],
        rows,
        f"{runs} runs a cell, delta {DELTA:g}, sizes of the runs that answered. Over the {len(sizes)} cells in which at least half of the runs answered "
        f"the mean is {np.mean(sizes):.4f}, the range {min(sizes):.3f} to {max(sizes):.3f}, and {outside} cells are outside .04 to .06. "
        f'In the other {len(rows) - len(sizes)} cells noise moves the statistic more than sampling does, and most runs answer "not identified".',
    )


def written_power(found: dict[str, Any], runs: int) -> None:
    """The table of power, and from which epsilon on it is .6."""
    rows = []
    shapes = list(dict.fromkeys((t, n, k) for t, n, _, k in (name.split("|") for name in found)))
    for table, n, sites in shapes:
        power = [found[f"{table}|{n}|{epsilon:g}|{sites}"][1] / (runs // 4) for epsilon in POWER_EPSILONS]
        enough = next((f"{e:g}" for e, value in zip(POWER_EPSILONS, power, strict=True) if value >= 0.6), "above 5")
        rows.append([table, n, sites, *(f"{value:.2f}" for value in power), enough])
    write_table(
        "tables/power",
        "Power of the test of independence where Pearson's test without noise has .80",
        ["table", "rows", "sites", *(f"epsilon {epsilon:g}" for epsilon in POWER_EPSILONS), "first epsilon with .60"],
        rows,
        f'{runs // 4} runs a cell, delta {DELTA:g}. A run that answers "not identified" has found nothing.',
    )


def written_effects(found: dict[str, Any], runs: int) -> None:
    """The table of effects."""
    runs //= 2
    rows, by_name = [], {}
    for cell, effects in found.items():
        for name, (holding, intervals) in effects.items():
            by_name.setdefault(name, []).append(holding / runs)
            rows.append([*cell.split("|"), name, f"{holding / runs:.3f}", f"{intervals / runs:.2f}"])
    said = "; ".join(
        f"{name} {np.mean(c):.3f} ({min(c):.3f} to {max(c):.3f}, {len(c)} cells)" for name, c in by_name.items()
    )
    write_table(
        "tables/effects",
        "Coverage of odds ratios, risk ratios and risk differences",
        ["event", "ratio", "rows", "epsilon", "sites", "common", "effect", "coverage", "intervals"],
        rows,
        f"{runs} runs a cell, delta {DELTA:g}. A set that is no interval counts as covering if it holds the true value. Mean over cells (range): {said}.",
    )


def written_strata(found: dict[str, Any], runs: int) -> None:
    """The table of the odds ratio over strata."""
    coverage = [holding / many for holding, _, many in found.values()]
    rows = [
        [*cell.split("|"), f"{holding / many:.3f}", f"{intervals / many:.2f}"]
        for cell, (holding, intervals, many) in found.items()
    ]
    write_table(
        "tables/strata",
        "Coverage of the Mantel-Haenszel odds ratio over strata of a third column",
        ["strata", "rows", "epsilon", "sites", "coverage", "intervals"],
        rows,
        f"{runs} runs a cell, delta {DELTA:g}; strata differ in size, exposure and base rate. "
        f"Mean coverage {np.mean(coverage):.3f}, from {min(coverage):.3f} to {max(coverage):.3f} over {len(coverage)} cells.",
    )


def written_quantiles(found: dict[str, Any], runs: int) -> None:
    """The table of quantiles."""
    rows, coverage = [], []
    for cell, parts in found.items():
        for part, (holding, answered, width, error) in parts.items():
            coverage += [holding / answered] if answered else []
            rows.append(
                [
                    *cell.split("|"),
                    part,
                    f"{holding / answered:.3f}" if answered else "",
                    f"{answered / (runs // 4):.2f}",
                    f"{width:.2f}",
                    f"{error:.3f}",
                ]
            )
    write_table(
        "tables/quantiles",
        "Coverage of quantiles of a number",
        ["law", "bins", "rows", "epsilon", "sites", "quantile", "coverage", "answered", "width", "error"],
        rows,
        f"{runs // 4} runs a cell, delta {DELTA:g}; equally wide bins over (0, 100); the median width and the root mean squared error are in deviations of the number. Intervals go from cut to cut. "
        f"Mean coverage {np.mean(coverage):.3f}, from {min(coverage):.3f} to {max(coverage):.3f} over {len(coverage)} cells and quantiles.",
    )


def main(full: bool) -> None:
    """All cells, then the tables."""
    runs = RUNS if full else RUNS // 10
    WHERE.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = json.loads(WHERE.read_text()) if WHERE.exists() else {}
    start = last = time.process_time()
    for name, cell in cells(runs):
        key = f"{runs}|{name}"
        if key not in found:
            found[key] = cell()
        if time.process_time() - last > 20:
            last = time.process_time()
            WHERE.write_text(json.dumps(found))
            print(f"{name}: {last - start:.0f} CPU s", flush=True)
    WHERE.write_text(json.dumps(found))
    writers = {
        "size": written_sizes,
        "power": written_power,
        "effects": written_effects,
        "strata": written_strata,
        "quantiles": written_quantiles,
    }
    for kind, write in writers.items():
        begin = f"{runs}|{kind}|"
        write({key.removeprefix(begin): value for key, value in found.items() if key.startswith(begin)}, runs)


if __name__ == "__main__":
    run(main)
