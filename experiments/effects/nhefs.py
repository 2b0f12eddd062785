"""Giving up smoking and weight: the 1,566 people of the textbook of Hernan and Robins, over regions of birth as if these were sites.

The data come with the package causaldata (extra ``docs``). Each line is the median run of several seeds, for one run at a small epsilon says little.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from experiments.common import run, write_table

import unpooled

#: Declared before the data were looked at: ages and weights of adults, cigarettes a day, years of smoking.
BOUNDS = {
    "age": (25, 75),
    "sex": ["man", "woman"],
    "race": ["white", "other"],
    "education": ["1", "2", "3", "4", "5"],
    "smokeintensity": (0, 60),
    "smokeyrs": (0, 60),
    "exercise": ["much", "some", "little"],
    "active": ["very", "moderately", "inactive"],
    "wt71": (40, 140),
    "quit": ["no", "yes"],
    "change": (-25, 30),
}
COVARIATES = "age + sex + race + education + smokeintensity + smokeyrs + exercise + active + wt71"
#: The textbook's own table of this effect: 3.4 kg [2.4, 4.5] by weights (program 12.2), 3.5 by the g-formula (program 13.3).
TEXTBOOK = "3.4 [2.4, 4.5] by weights, 3.5 [2.6, 4.5] by the g-formula"
_NORTHEAST, _MIDWEST = {9, 23, 25, 33, 34, 36, 42, 44, 50}, {17, 18, 19, 20, 26, 27, 29, 31, 38, 39, 46, 55}
_WEST = {2, 4, 6, 8, 15, 16, 30, 32, 35, 41, 49, 53, 56}
SEEDS = 15


def people() -> tuple[pd.DataFrame, np.ndarray]:
    """Return the people and their regions; say so where the package is missing."""
    found = importlib.util.find_spec("causaldata")
    if found is None or found.origin is None:
        sys.exit("causaldata is not installed: pip install causaldata")
    raw = pd.read_stata(Path(found.origin).parent / "nhefs_complete" / "nhefs_complete.dta")

    def level(name: str, words: list[str]) -> np.ndarray:
        return np.array(words, dtype=object)[raw[name].astype(int).to_numpy()]

    frame = pd.DataFrame(
        {
            **{name: raw[name].astype(float) for name in ("age", "smokeintensity", "smokeyrs", "wt71")},
            "sex": level("sex", BOUNDS["sex"]),
            "race": level("race", BOUNDS["race"]),
            "education": level("education", ["", *BOUNDS["education"]]),
            "exercise": level("exercise", BOUNDS["exercise"]),
            "active": level("active", BOUNDS["active"]),
            "quit": level("qsmk", BOUNDS["quit"]),
            "change": raw["wt82_71"].astype(float),
        }
    )
    born = raw["birthplace"].fillna(0).astype(int)
    region = np.select(
        [born.isin(_NORTHEAST), born.isin(_MIDWEST), born.isin(_WEST)], ["northeast", "midwest", "west"], "south or unknown"
    )
    return frame, region


def main(full: bool) -> None:
    """Write the effect by every estimator and epsilon."""
    frame, region = people()
    seeds = SEEDS if full else 3
    lines = []
    for estimator in ("aipw", "iptw", "g-formula"):
        for epsilon in (math.inf, 10.0, 3.0, 1.0):
            found, hidden = [], 0
            for seed in range(seeds if math.isfinite(epsilon) else 1):
                model = unpooled.TreatmentEffect(
                    "quit",
                    outcome="change",
                    covariates=COVARIATES,
                    estimator=estimator,
                    interactions=False,
                    bounds=BOUNDS,
                    epsilon=epsilon,
                    random_state=seed,
                )
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    one = model.fit(frame, sites=region).effect_
                hidden += one is None
                found += [] if one is None else [(one.estimate, one.std_error, one.privacy)]
            if not found:
                lines.append((estimator, f"{epsilon:g}", "not identified", "", ""))
                continue
            value, error, privacy = np.array(sorted(found)[len(found) // 2])
            lines.append(
                (
                    estimator,
                    f"{epsilon:g}",
                    f"{value:.2f} [{value - 1.96 * error:.2f}, {value + 1.96 * error:.2f}]",
                    f"{privacy:.2f}",
                    f"{hidden} of {hidden + len(found)}",
                )
            )
            print(*lines[-1], flush=True)
    naive = frame.loc[frame["quit"] == "yes", "change"].mean() - frame.loc[frame["quit"] == "no", "change"].mean()
    write_table(
        "effects/nhefs",
        "Kilograms gained by those who gave up smoking",
        ("estimator", "epsilon", "effect", "standard error by privacy", "not identified"),
        lines,
        f"{len(frame):,} people, four regions, no interactions; the median of {seeds} runs. The naive difference is {naive:.2f}. The textbook: {TEXTBOOK}.",
    )


if __name__ == "__main__":
    run(main)
