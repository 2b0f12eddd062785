"""Throughput of the exact samplers beside OpenDP's integer Gaussian, in one run on one core.

Prints million samples per second (median of 5 interleaved rounds) and the ratio to OpenDP; NumPy's floating-point Gaussians, which are
neither exact nor secret; and the floor: the same number of AES-CTR words without any sampling. Then one choice among 50,000 signed scores, beside one argmax of |scores| and beside drawing
all 100,000 Gumbel noises, in microseconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import opendp.prelude as dp
from board import note, rounds

from unpooled.privacy import noise
from unpooled.privacy.noise import KeySource

OURS, THEIRS, ROUNDS = 4_000_000, 20_000, rounds(5)
#: Required by the project: at least this many times OpenDP's integer Gaussian at scale 1000 and at 2^20.
REQUIRED = {1000.0: 300, 2.0**20: 50}


def per_second(work: Callable[[], object], size: int) -> float:
    start = time.perf_counter()
    work()
    return size / (time.perf_counter() - start)


def choices() -> None:
    rng, source = np.random.default_rng(0), KeySource.secret()
    scores = (rng.standard_normal(50_000) * 2**40).astype(np.int64)
    largest, one = float(np.abs(scores).max()), np.array([1])
    print(f"one choice among {scores.size} signed scores, in microseconds (a single candidate: the call itself)")
    for share in (0.02, 0.1, 1.0, 100.0):
        rate, streams = 1 / (share * largest), (source.stream("choice", share, i) for i in range(10_000))
        work: dict[str, Callable[[], object]] = {
            "argmax of |scores|": lambda: np.abs(scores).argmax(),
            "choose": lambda s=streams, r=rate: noise.choose(scores, r, signed=True, stream=next(s)),
            "choose, one candidate": lambda s=streams, r=rate: noise.choose(one, r, stream=next(s)),
            "all Gumbel noise": lambda r=rate: (np.concatenate([scores, -scores]) * r + rng.gumbel(size=100_000)).argmax(),
        }
        found: dict[str, list[float]] = {name: [] for name in work}
        for _ in range(20):
            for name, run in work.items():
                found[name].append(1e6 / per_second(lambda r=run: [r() for _ in range(20)], 20))
        floor = statistics.median(found["argmax of |scores|"])
        print(f"  noise {share:g} of the largest score")
        for name, times in found.items():
            middle = statistics.median(times)
            if name == "choose":
                note(
                    f"one choice of {scores.size:,}, noise {share:g} of the largest",
                    "an argmax of the scores",
                    middle / floor,
                )
            print(f"    {name:<24}{middle:>9.1f}  {middle / floor:>7.1f} x argmax  (fastest {min(times):.1f})")


def main() -> None:
    dp.enable_features("contrib")
    stream, rng = KeySource.secret().stream("benchmark"), np.random.default_rng(0)
    spaces = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    zeros = [0] * THEIRS
    for scale, required in REQUIRED.items():
        opendp_gaussian = dp.m.make_gaussian(*spaces, scale=scale)
        work = {
            "OpenDP integer Gaussian": (lambda m=opendp_gaussian: m(zeros), THEIRS),
            "discrete Gaussian": (lambda s=scale: noise.discrete_gaussian(s, OURS, stream=stream), OURS),
            "rounded Gaussian": (lambda s=scale: noise.rounded_gaussian(s, OURS, stream=stream), OURS),
            "discrete Laplace": (lambda s=scale: noise.discrete_laplace(s, OURS, stream=stream), OURS),
            "NumPy, floating point": (lambda s=scale: rng.normal(scale=s, size=OURS), OURS),
            "floor: key stream": (lambda: [stream.words(i, 1 << 15) for i in range(0, OURS, 1 << 15)], OURS),
        }
        for run, _ in work.values():
            run()  # compiles, and fills the tables
        speeds: dict[str, list[float]] = {name: [] for name in work}
        for _ in range(ROUNDS):
            for name, (run, size) in work.items():
                speeds[name].append(per_second(run, size))
        peer = statistics.median(speeds["OpenDP integer Gaussian"])
        print(f"scale {scale:g} (required: {required} x OpenDP)")
        for name, found in speeds.items():
            median = statistics.median(found)
            if not name.startswith(("OpenDP", "floor", "NumPy")):
                note(
                    f"{name}, scale {scale:g}",
                    "OpenDP's integer Gaussian",
                    median / peer,
                    f"{required}",
                    more_is_better=True,
                )
            print(
                f"  {name:<26}{median / 1e6:>10.2f} M/s  {median / peer:>8.0f} x  (slowest {min(found) / 1e6:.2f}, fastest {max(found) / 1e6:.2f})"
            )
    choices()


if __name__ == "__main__":
    main()
