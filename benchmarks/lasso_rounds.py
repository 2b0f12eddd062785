"""A round of PrivateLasso's parties, in one run: private beside noise-free with all columns scored, and for growing d with a fixed sample.

Requests and answers are real (ledger in memory, signatures, encoding); medians over the rounds after the first, which codes the columns. The floor of a
pick that scores all columns is reading them once.
"""

from __future__ import annotations

import os

from board import note

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import statistics
import time
from collections import defaultdict

import numpy as np
from scipy.sparse import csc_array

from unpooled import PrivateLasso
from unpooled.kernels.columns import scores
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import drive
from unpooled.protocol.party import Party

ROWS, EACH, PARTIES, ROUNDS, TAU = 20_000, 20, 4, 30, 64
#: Required by the project: scoring all columns privately takes at most so many times what it takes without noise.
REQUIRED = 3
MODEL = load("lasso")


def matrix(rng: np.random.Generator, d: int) -> csc_array:
    rows = np.sort(rng.integers(ROWS, size=(d, EACH)), axis=1).ravel()
    found = csc_array((rng.uniform(-1, 1, d * EACH), rows, np.arange(0, d * EACH + 1, EACH)), shape=(ROWS, d))
    found.sum_duplicates()
    return found


def milliseconds(X: csc_array, y: np.ndarray, epsilon: float, sampled: int) -> dict[str, float]:
    """Median time of an answer, per step."""
    model = PrivateLasso(
        PARTIES,
        radius=2.5,  # half ranges of y
        rounds=ROUNDS,
        epsilon=epsilon,
        sampled=sampled,
        bounds=(-1, 1),
        y_bounds=(-2, 2),
        random_state=0,
    )
    plan, parties, taken = model.plan(*X.shape), {}, defaultdict(list)
    for k, card in enumerate(plan.study.parties):
        ledger, width = Ledger.in_memory(), len(card.columns)
        held = ([column.name for column in card.columns], X[:, k * width : (k + 1) * width])
        table = Table({card.labels[0]: y}, sparse=held)
        parties[card.name] = Party(card.name, table, card, ledger, KeySource(ledger.root_key), Policy.in_process(), load)

    def timed(batch):
        answers = []
        for ask, request in batch:
            start = time.perf_counter()
            answers.append(parties[ask.to].answer(request))
            taken[ask.step].append(time.perf_counter() - start)
        return answers

    drive(MODEL, plan, timed)
    for party in parties.values():
        party.ledger.close()
    return {step: 1000 * statistics.median(times[PARTIES:] or times) for step, times in taken.items() if step != "open"}


def main() -> None:
    rng = np.random.default_rng(0)
    y = np.clip(rng.normal(size=ROWS), -2, 2)
    print(
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; {PARTIES} parties, {ROWS} rows, milliseconds per answer"
    )
    X = matrix(rng, 50_000)
    share = X[:, : X.shape[1] // PARTIES]
    marks = []
    for _ in range(21):
        scores(share, None, y)
        marks.append(time.perf_counter())
    floor = 1000 * statistics.median(np.diff(marks))
    silent, private = (milliseconds(X, y, epsilon, 0) for epsilon in (float("inf"), 10.0))
    print(f"all columns of {X.shape[1]}: pick private {private['pick']:.2f}, noise-free {silent['pick']:.2f}")
    note("a private pick", "a noise-free one", private["pick"] / silent["pick"], f"{REQUIRED}")
    print(
        f"  ratio {private['pick'] / silent['pick']:.2f} (required: at most {REQUIRED}); one product of the columns {floor:.2f}; "
        f"private column {private['column']:.2f}, moments {private['refit']:.2f}"
    )
    for d in (5_000, 20_000, 80_000):
        found = milliseconds(matrix(rng, d), y, 10.0, TAU)
        print(
            f"{TAU} columns of {d:>6}: pick {found['pick']:.2f}, column {found['column']:.2f}, moments {found['refit']:.2f}"
        )


if __name__ == "__main__":
    main()
