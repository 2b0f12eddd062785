"""Table D.2 of the PRIDE paper: the 27 noise levels of Theorem 1, from one theta per data set."""

from __future__ import annotations

from experiments.common import run, write_table

from unpooled.papers.pride import published_sigma
from unpooled.privacy.accounting import gaussian_sigma

EPSILONS = (0.1, 0.25, 0.5, 0.75, 1, 2, 5, 10, 20)
#: theta of Table 1 with the digits that its rounding hides, and what the paper prints.
PRINTED = {
    "simulated": (7.4118, (162.47, 66.99, 35.10, 24.42, 19.05, 10.87, 5.67, 3.68, 2.48)),
    "climate": (8.512, (186.59, 76.93, 40.30, 28.04, 21.88, 12.48, 6.51, 4.22, 2.84)),
    "cancer": (10.9215, (239.41, 98.71, 51.71, 35.98, 28.07, 16.02, 8.35, 5.42, 3.65)),
}


def main(full: bool) -> None:  # noqa: ARG001 - one size
    """All entries, whether they agree, and what the exact Gaussian mechanism needs."""
    rows, right = [], 0
    for name, (theta, printed) in PRINTED.items():
        for epsilon, paper in zip(EPSILONS, printed, strict=True):
            ours, exact = published_sigma(theta, epsilon, 0.05), theta * gaussian_sigma(epsilon, 0.05)
            agrees = f"{ours:.2f}" == f"{paper:.2f}"
            right += agrees
            rows.append([name, f"{epsilon:g}", f"{paper:.2f}", f"{ours:.2f}", "yes" if agrees else "NO", f"{exact:.2f}"])
    rows.append(["all", "", "27", str(right), "entries that agree", ""])
    header = ["data", "epsilon", "paper", "Theorem 1", "agrees", "exact Gaussian mechanism"]
    write_table("pride/table_d2", "Table D.2: largest noise deviation at delta = 0.05", header, rows)


if __name__ == "__main__":
    run(main)
