"""Attacks from the literature on small studies of every kind: right without noise, as released, and as often as the claim allows.

Sums of two hundred columns over thirty people are where tracing works without noise; other studies are those of ``tests/contract/cases.py``.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import msgspec
from experiments.common import write_table

from unpooled.audit.attacks import attack_study
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.study.made_up import made_up

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "contract"))

from cases import CASES

EPSILONS = (0.5, 1.0, 4.0)
ROWS = 30


def studies() -> dict[str, Study]:
    """The studies that are attacked."""
    columns = tuple(Column(f"x{j}", -1.0, 1.0) for j in range(200))
    wide = Study("describe", (Card("all", ROWS, columns),), 1.0, 1e-6, unit="record", derived=())
    kinds = ("pride", "stacking", "pls", "lasso, moments", "glm")
    return {"sums of 200 columns": wide} | {
        name: msgspec.structs.replace(CASES[name]().study, simulation_seed=None) for name in kinds
    }


def main(runs: int) -> None:
    """Attack every study at every epsilon."""
    rows = []
    for name, study in studies().items():
        model = load(study.model)
        for epsilon in EPSILONS:
            asked = msgspec.structs.replace(study, epsilon=epsilon, unit="record")
            fitted, _ = made_up(model, asked, ROWS)

            def population(seed: int, asked: Study = asked) -> dict[str, Table]:
                return made_up(load(asked.model), asked, ROWS, seed=seed % 2**31)[1]

            for power in attack_study(model, fitted, population, registry=load, runs=runs):
                shares = (power.without_noise, power.as_released, power.allowed)
                rows.append([name, power.attack, str(epsilon), *(f"{share:.2f}" for share in shares), str(power.runs)])
                print(*rows[-1], flush=True)
    header = ["study", "attack", "epsilon", "without noise", "as released", "allowed", "runs"]
    write_table("audit/attacks", "Attacks: shares of right answers", header, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main(parser.parse_args().runs)
