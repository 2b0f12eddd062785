"""Abalone (4177 x 9): rings from body measures, ranges as a zoologist would write them down."""

from __future__ import annotations

import numpy as np
import polars as pl
from experiments.bayes._uci import Table, scaled
from experiments.common import data_file, run


def main(full: bool) -> None:
    """Error against epsilon, N and the multiple."""
    frame = pl.read_csv(data_file("abalone.csv"), has_header=False)
    sex = frame[:, 0].to_numpy()
    ranges = [(0, 1), (0, 0.8), (0, 0.4), (0, 3), (0, 1.5), (0, 0.8), (0, 1.1), (0, 30)]
    coded = scaled(frame[:, 1:].to_numpy().astype(float), ranges)
    X = np.column_stack([(sex == "M").astype(float), (sex == "F").astype(float), coded[:, :-1]])
    Table("abalone", X, coded[:, -1], 15.0).tables(full=full)


if __name__ == "__main__":
    run(main)
