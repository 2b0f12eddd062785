"""Standard errors of inverse probability weights: with derivatives by the propensity of two lengths, and the error of what bounds cut off taken once and twice.

Next to each is the spread of the same weights' effect with exact sums, which sampling and the noise of the released propensity make alone. It continues
where it stopped.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
from experiments.common import RESULTS, run, write_table
from experiments.effects.designs import Design, played

from unpooled.models.effects import fit
from unpooled.models.effects.plan import Rows
from unpooled.privacy.table import Table

DESIGNS = {"A": Design("A", 0.4, 0.2), "D": Design("D", 0.7, 0.2), "B": Design("B", 1.0, 0.2, binary=True)}
CELLS = (("A", 8000, 1.0), ("A", 20_000, 3.0), ("D", 8000, 1.0), ("D", 20_000, 3.0), ("B", 20_000, 1.0))
#: Multiples of the length of derivatives, and of the error of what is cut off.
TRIED = ((1.0, 1.0), (4.0, 1.0), (4.0, 2.0))
FULL, REDUCED = 40, 5
RUNS = RESULTS.parents[1] / "build" / "effects"


def once(design: Design, rows: int, epsilon: float, seed: int) -> list[float]:
    """Return (effect, standard error, effect of the same released models with exact sums) of one study."""
    rng = np.random.default_rng([seed, rows, 19])
    data, kept = design.data(rng, rows), {}
    usual = fit._of_weights  # noqa: SLF001 - what the sums begin from is noted there

    def noted(found, people, doubt):
        kept["models"], kept["means"] = found.models, fit._arm_means(found)  # noqa: SLF001 - as above
        return usual(found, people, doubt)

    fit._of_weights = noted  # noqa: SLF001 - as above
    try:
        effect = played(design.plan(rows, epsilon, estimator="iptw"), data, rng).effect
    finally:
        fit._of_weights = usual  # noqa: SLF001 - as above
    if effect is None:
        return [math.nan] * 3
    table = Table({name: one.astype(object) if one.dtype.kind == "U" else one for name, one in data.items()})
    blocks = Rows.blocks(table, replace(kept["models"], more=()))
    exact = np.concatenate([block.contributions() for block in blocks]).mean()
    return [effect.value, effect.std_error, kept["means"][1] - kept["means"][0] + float(exact)]


def cell(name: str, rows: int, epsilon: float, tried: tuple[float, float], runs: int) -> list[list[float]]:
    """Return every run of a cell; kept between calls."""
    longest, doubt = tried
    path = RUNS / f"iptw_{name}_{rows}_{epsilon:g}_{longest:g}_{doubt:g}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(path.read_text()) if path.is_file() else []
    usual = fit._TUNED  # noqa: SLF001 - what is tried
    fit._TUNED = usual.but(iptw_longest=longest, iptw_doubt=doubt)  # noqa: SLF001 - what is tried
    try:
        while len(found) < runs:
            found.append(once(DESIGNS[name], rows, epsilon, len(found)))
            path.write_text(json.dumps(found))
    finally:
        fit._TUNED = usual  # noqa: SLF001 - what is tried
    return found[:runs]


def main(full: bool) -> None:
    """Write the coverage of every cell."""
    runs, lines = FULL if full else REDUCED, []
    for tried in TRIED:
        first = tuple(f"{number:g}" for number in tried)
        scores = []
        for name, rows, epsilon in CELLS:
            truth = DESIGNS[name].truth(400_000)
            values, errors, exact = np.array(cell(name, rows, epsilon, tried, runs)).T
            shown = np.isfinite(values)
            apart, said = values[shown] - truth, errors[shown]
            scores += (apart / said).tolist()
            lines.append(
                (
                    *first,
                    name,
                    f"{rows:,}",
                    f"{epsilon:g}",
                    f"{shown.mean():.2f}",
                    f"{np.mean(apart):+.4f} ± {np.std(apart):.4f}",
                    f"{np.std(exact[shown]):.4f}",
                    f"{np.median(said):.4f}",
                    f"{np.mean(np.abs(apart) < 1.959964 * said):.3f}",
                )
            )
            print(*lines[-1], flush=True)
        covered = float(np.mean(np.abs(scores) < 1.959964))
        rms = float(np.sqrt(np.mean(np.square(scores))))
        lines.append((*first, "all", "", "", "", f"{rms:.2f} standard errors", "", "", f"{covered:.3f}"))
        print(*lines[-1], flush=True)
    write_table(
        "effects/iptw",
        "Standard errors of inverse probability weights",
        (
            "length of derivatives, times",
            "error of what is cut off, times",
            "design",
            "rows",
            "epsilon",
            "printed",
            "error",
            "spread with exact sums",
            "standard error",
            "coverage",
        ),
        lines,
        f"{runs} runs a cell, delta 1e-6, designs of the page on coverage. Of all cells the root mean square of errors in standard errors is given.",
    )


if __name__ == "__main__":
    run(main)
