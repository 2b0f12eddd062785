"""Targets of misspecified means: the least squares or maximum likelihood fit of the population, from two million rows."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
from experiments.inference.designs import drawn
from experiments.inference.responses import CONSTANTS, INTERCEPT, mean_of

#: Rows that stand for the population, and the seed that they are drawn with.
POPULATION, SEED = 2_000_000, 20_260_101
_STEPS, _CONVERGED = 60, 1e-12


def fitted(family: str, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Maximum likelihood coefficients (least squares of a regression) of the columns of ``X``, among them the constant."""
    beta = np.zeros(X.shape[1])
    beta[-1] = CONSTANTS[family]
    if family == "regression":
        return np.linalg.solve(X.T @ X, X.T @ y)
    for _ in range(_STEPS):
        mean = mean_of(family, X @ beta)
        if family == "gamma":
            pull, weight = y / mean - 1, y / mean
        else:
            pull, weight = y - mean, mean * (1 - mean) if family == "logistic" else mean
        step = np.linalg.solve((X * weight[:, None]).T @ X, X.T @ pull)
        beta += step * min(1.0, 1.0 / float(np.abs(step).max()))
        if float(np.abs(step).max()) < _CONVERGED:
            break
    return beta


def population(family: str, design: str, where: Path) -> dict[str, float]:
    """The value that each line of a misspecified fit has in the population; it is kept in a file of this folder.

    Responses are replaced by their means, which changes no root of the likelihood equations: only the columns are sampled.
    """
    own = Path(__file__).parent
    key = hashlib.sha256(
        b"".join((own / name).read_bytes() for name in ("designs.py", "responses.py", "targets.py"))
    ).hexdigest()
    file = where / f"population-{family}-{design.replace(' ', '-')}-{key[:12]}.json"
    if file.exists():
        found: dict[str, float] = json.loads(file.read_text())
        return found
    rows = drawn(design, family, POPULATION, np.random.default_rng(SEED))
    X = np.column_stack([*(line.values for line in rows.lines.values()), np.ones(POPULATION)])
    beta = fitted(family, X, mean_of(family, rows.eta + CONSTANTS[family]))
    found = dict(zip([*rows.lines, INTERCEPT], beta.tolist(), strict=True))
    where.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(found))
    part.replace(file)
    return found
