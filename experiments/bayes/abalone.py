"""Abalone (4177 x 9): rings from body measures, ranges as a zoologist would write them down."""

from __future__ import annotations

import numpy as np
import polars as pl
from experiments.bayes._uci import Table, scaled
from experiments.common import data_file, run

RANGES = [(0, 1), (0, 0.8), (0, 0.4), (0, 3), (0, 1.5), (0, 0.8), (0, 1.1), (0, 30)]


def raw() -> tuple[np.ndarray, np.ndarray, list[tuple[float, float]]]:
    """Male and female, seven measures; rings; and their ranges."""
    frame = pl.read_csv(data_file("abalone.csv"), has_header=False)
    sex, rest = frame[:, 0].to_numpy(), frame[:, 1:].to_numpy().astype(float)
    X = np.column_stack([(sex == "M").astype(float), (sex == "F").astype(float), rest[:, :-1]])
    return X, rest[:, -1], [(0, 1), (0, 1), *RANGES]


def main(full: bool) -> None:
    """Error against epsilon, N and the multiple."""
    X, y, _ = raw()
    coded = scaled(np.column_stack([X[:, 2:], y]), RANGES)
    Table("abalone", np.column_stack([X[:, :2], coded[:, :-1]]), coded[:, -1], 15.0).tables(full=full)


if __name__ == "__main__":
    run(main)
