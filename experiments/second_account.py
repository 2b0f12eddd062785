"""Two accountants over random ledgers: how far the first one's delta is above that of a mechanism that exists (THEORY F.28).

Each block of ledgers is kept in ``build/second_account``, so that a run which was stopped loses one block.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from experiments.common import run, write_table

from unpooled.audit.second_account import LEAST, RELATIVE, ComposedLoss, worst_delta
from unpooled.privacy.events import Event, Kind
from unpooled.privacy.exposure import account

Plans = list[dict[str, list[Event]]]

KEPT = Path(__file__).parents[1] / "build" / "second_account"
BLOCK = 1000


def twins(plans: Sequence[Mapping[str, Sequence[Event]]]) -> list[dict[str, list[ComposedLoss]]]:
    """Return plans in the second accountant's own words."""

    def twin(event: Event) -> ComposedLoss:
        return ComposedLoss(event.kind.name.lower(), event.value, event.count, event.total_variation, event.tails)

    return [{part: [twin(event) for event in events] for part, events in parts.items()} for parts in plans]


def random_event(rng: np.random.Generator) -> Event:
    """Return an event of any kind that has a price: weak to strong, once or often, exact or at a distance from its ideal law."""
    kind = Kind[rng.choice(["GAUSSIAN", "ZCDP", "EXPONENTIAL", "PURE", "PERTURBED"], p=[0.4, 0.15, 0.15, 0.2, 0.1])]
    value = float(np.exp(rng.uniform(math.log(1e-3), math.log(2.0))))
    variation = float(rng.choice([0.0, 0.0, 0.0, 1e-300, 1e-12, 1e-7, 1e-3]))
    if kind is Kind.PERTURBED:
        return Event(kind, value, 1, variation, ((int(rng.integers(1, 6)), float(np.exp(rng.uniform(-4, 0.4)))),))
    return Event(kind, value**2 / 2 if kind is Kind.ZCDP else value, int(rng.choice([1, 1, 2, 3, 10, 40])), variation)


def ledgers(count: int, seed: int = 0) -> Iterator[tuple[Plans, float]]:
    """Yield random ledgers of up to three plans of up to two parts, each with an epsilon at which both accountants are asked."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        plans = [
            {str(k): [random_event(rng) for _ in range(rng.integers(1, 4))] for k in range(rng.integers(1, 3))}
            for _ in range(rng.integers(1, 4))
        ]
        yield plans, float(np.exp(rng.uniform(math.log(1e-2), math.log(30.0))))


def block(number: int) -> list[tuple[str, float]]:
    """Return, for each ledger of a block, its kinds of events and the first accountant's delta over the second's; kept once it is known."""
    file = KEPT / f"{number}.json"
    if file.exists():
        return [tuple(one) for one in json.loads(file.read_text())]
    found = []
    for plans, epsilon in ledgers(BLOCK, seed=1000 + number):
        first, second = account(plans).delta(epsilon), worst_delta(twins(plans), epsilon)
        kinds = {event.kind.name.lower() for parts in plans for events in parts.values() for event in events}
        found.append((", ".join(sorted(kinds)), first / second if second > LEAST else math.nan))
    KEPT.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found))
    return found


def main(full: bool) -> None:
    """Write the ratios by kinds of events."""
    blocks = 100 if full else 5
    ratios: dict[str, list[float]] = {}
    for number in range(blocks):
        for kinds, ratio in block(number):
            if math.isfinite(ratio):
                ratios.setdefault(kinds, []).append(ratio)
        print(f"{number + 1} of {blocks} blocks", flush=True)
    every = np.concatenate([np.array(one) for one in ratios.values()])
    rows = [
        (kinds, f"{len(one):,}", f"{min(one):.6f}", f"{np.median(one):.3g}", f"{np.quantile(one, 0.95):.3g}")
        for kinds, one in sorted(ratios.items(), key=lambda item: -len(item[1]))
        if len(one) >= 0.005 * every.size
    ]
    rows.append(
        ("all", f"{every.size:,}", f"{every.min():.6f}", f"{np.median(every):.3g}", f"{np.quantile(every, 0.95):.3g}")
    )
    write_table(
        "audit/second_account",
        "Two accountants: delta of the first over that of a mechanism that exists",
        ("kinds of events in the ledger", "ledgers", "smallest ratio", "median", "95 % are below"),
        rows,
        f"{blocks * BLOCK:,} random ledgers; {int((every < 1 - RELATIVE).sum())} in which the first says less. The others had no delta above {LEAST:g}.",
    )


if __name__ == "__main__":
    run(main)
