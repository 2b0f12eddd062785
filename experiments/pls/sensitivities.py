"""Equations (7) to (11) on data: how far one row moves the four functions of (6) and what Algorithm 1 releases, beside the printed bounds.

One training row leaves; both data sets are centred, as the paper's are. The bounds are the sample's own, (8). A ratio above 1 is a row by which the bound
fails. The first component alone: later ones rest on exact deflation too. No noise is drawn, so there is nothing to repeat.
"""

from __future__ import annotations

import numpy as np
from experiments.common import run, write_table
from experiments.pls._corn import corn, split, tecator
from scipy.signal import savgol_filter

Released = dict[str, np.ndarray]


def functions(X: np.ndarray, y: np.ndarray, *, algorithm: bool) -> Released:
    """The first component of centred data: the functions of (6), or what Algorithm 1 adds noise to, whose weights and scores have length 1."""
    E, f = X - X.mean(axis=0), y - y.mean()
    w = E.T @ f
    unit = w / np.linalg.norm(w)
    t = E @ unit
    short = t / np.linalg.norm(t)
    return {
        "weights": unit if algorithm else w,
        "scores": short if algorithm else t,
        "loadings": E.T @ short,
        "y loading": np.array([f @ short]),
    }


def bounds(X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """(7), (9), (10) and (11) with the largest values of the sample, (8)."""
    row = float(np.linalg.norm(X - X.mean(axis=0), axis=1).max())
    response = float(np.abs(y - y.mean()).max())
    return {"weights": row * response, "scores": row, "loadings": row, "y loading": response}


def moved(X: np.ndarray, y: np.ndarray, *, algorithm: bool) -> dict[str, float]:
    """The largest change of each when one row leaves; its own score counts as 0 then."""
    whole = functions(X, y, algorithm=algorithm)
    found = dict.fromkeys(whole, 0.0)
    for i in range(y.size):
        rest = functions(np.delete(X, i, axis=0), np.delete(y, i), algorithm=algorithm)
        rest["scores"] = np.insert(rest["scores"], i, 0.0)
        for name, values in whole.items():
            found[name] = max(found[name], float(np.linalg.norm(values - rest[name])))
    return found


def main(full: bool) -> None:
    """Corn and tecator, raw and after the derivative."""
    del full  # nothing is drawn: both sizes are one
    rows = []
    for name, (X, y) in {"corn": corn(), "tecator": tecator()}.items():
        train = split(y.size, 0)[0]
        for step in ("raw", "SG"):
            Z = (X if step == "raw" else savgol_filter(X, 5, 2, deriv=1, axis=1))[train]
            stated = bounds(Z, y[train])
            own, used = (moved(Z, y[train], algorithm=algorithm) for algorithm in (False, True))
            for part, bound in stated.items():
                cells = [bound, own[part], own[part] / bound, used[part], used[part] / bound]
                rows.append([name, step, part, *(f"{value:.3g}" for value in cells)])
    write_table(
        "pls/sensitivities",
        "Printed bounds, and the largest change when one training row leaves: functions of (6), and what Algorithm 1 releases",
        ["data", "spectra", "part", "bound", "(6) moves by", "(6) / bound", "Algorithm 1 moves by", "Algorithm 1 / bound"],
        rows,
    )


if __name__ == "__main__":
    run(main)
