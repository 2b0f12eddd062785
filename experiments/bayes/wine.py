"""Red wine (1599 x 12): quality from chemistry, ranges as a wine maker would write them down."""

from __future__ import annotations

import numpy as np
import polars as pl
from experiments.bayes._uci import Table, scaled
from experiments.common import data_file, run


def raw() -> tuple[np.ndarray, np.ndarray, list[tuple[float, float]]]:
    """Chemistry, quality, and their ranges."""
    table = pl.read_csv(data_file("wine_red.csv"), infer_schema_length=None).to_numpy().astype(float)
    low = [4, 0, 0, 0, 0, 0, 0, 0.985, 2.7, 0.3, 8, 0]
    high = [16, 1.6, 1, 16, 0.65, 75, 300, 1.005, 4.1, 2, 15, 10]
    return table[:, :-1], table[:, -1], list(zip(low, high, strict=True))


def main(full: bool) -> None:
    """Error against epsilon, N and the multiple."""
    X, y, ranges = raw()
    coded = scaled(np.column_stack([X, y]), ranges)
    Table("wine", coded[:, :-1], coded[:, -1], 5.0).tables(full=full)


if __name__ == "__main__":
    run(main)
