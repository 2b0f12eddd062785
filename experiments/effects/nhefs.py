"""Giving up smoking and weight: the 1,566 people of the textbook of Hernan and Robins, over regions of birth as if these were sites.

The data come with the package causaldata (extra ``docs``). Each line is of many seeds, for one run at a small epsilon says little.
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
#: Runs of the noise: of partialling out, which is quick, and of the others.
SEEDS, FEWER = 100, 20


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


def least_squares(frame: pd.DataFrame) -> tuple[float, float]:
    """Return the coefficient of giving up and its standard error, without declared ranges and without privacy."""
    levels = {name: BOUNDS[name][1:] for name in ("sex", "race", "education", "exercise", "active")}
    numbers = [np.ones(len(frame)), *(frame[name] for name in ("age", "smokeintensity", "smokeyrs", "wt71"))]
    marks = [frame[name] == level for name, others in levels.items() for level in others]
    rows = np.column_stack([*numbers, *marks, frame["quit"] == "yes"]).astype(float)
    found, left, *_ = np.linalg.lstsq(rows, frame["change"].to_numpy(), rcond=None)
    variance = float(left[0]) / (rows.shape[0] - rows.shape[1])
    return float(found[-1]), math.sqrt(variance * np.linalg.inv(rows.T @ rows)[-1, -1])


def fitted(frame: pd.DataFrame, region: np.ndarray, estimator: str, epsilon: float, seed: int) -> list[float]:
    """Return (effect, standard error, its part by privacy) of one fit; no numbers where there is no effect."""
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
    return [math.nan] * 3 if one is None else [one.estimate, one.std_error, one.privacy]


def main(full: bool) -> None:
    """Write the effect by every estimator and epsilon."""
    frame, region = people()
    lines = []
    for estimator in ("partial", "aipw", "iptw", "g-formula"):
        for epsilon in (math.inf, 10.0, 3.0, 1.0):
            seeds = (SEEDS if estimator == "partial" else FEWER) if full else 3
            runs = seeds if math.isfinite(epsilon) else 1
            found = np.array([fitted(frame, region, estimator, epsilon, seed) for seed in range(runs)])
            shown = found[np.isfinite(found[:, 0])]
            line = (estimator, f"{epsilon:g}", f"{len(shown)} of {runs}")
            if len(shown):
                value, error, privacy = shown.T
                line += (f"{value.mean():.2f} ± {value.std():.2f}", f"{np.median(error):.2f}", f"{np.median(privacy):.2f}")
            lines.append(line if len(shown) else (*line, "not identified", "", ""))
            print(*lines[-1], flush=True)
    naive = frame.loc[frame["quit"] == "yes", "change"].mean() - frame.loc[frame["quit"] == "no", "change"].mean()
    value, error = least_squares(frame)
    within = frame.assign(**{name: frame[name].clip(*ends) for name, ends in BOUNDS.items() if isinstance(ends, tuple)})
    inside, _ = least_squares(within)
    write_table(
        "effects/nhefs",
        "Kilograms gained by those who gave up smoking",
        ("estimator", "epsilon", "printed", "effect", "standard error", "its part by privacy"),
        lines,
        f"{len(frame):,} people, four regions, no interactions, delta 1e-5; means and spreads over the printed runs of the noise, and medians of the standard errors. "
        f"The naive difference is {naive:.2f}. Least squares without privacy: {value:.2f} (standard error {error:.2f}), of values inside the declared ranges "
        f"{inside:.2f}. The textbook: {TEXTBOOK}.",
    )


if __name__ == "__main__":
    run(main)
