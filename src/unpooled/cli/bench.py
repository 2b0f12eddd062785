"""``unpooled bench``: how fast the kernels are on this machine, beside a peer or the floor, in one run."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Between timings, so that a BLAS's threads have stopped spinning.
_PAUSE = 0.1


def bench(
    rounds: int = typer.Option(5, "--rounds", min=1, help="Timings of each; the median is shown."),
    *,
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Time the kernels in turn with a peer or the floor. About half a minute; a busy machine shows in the times, less in the ratios."""
    from unpooled.cli.run import progress

    found = []
    with progress(quiet=as_json) as say:
        for name, peer, ours, theirs in _pairs():
            say(f"timing {name}")
            ours(), theirs()  # compile, and fill caches
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(rounds):
                for kept, work in zip(times, (ours, theirs), strict=True):
                    kept.append(_seconds(work))
            a, b = (statistics.median(kept) for kept in times)
            found.append({"kernel": name, "milliseconds": 1000 * a, "peer": peer, "its_milliseconds": 1000 * b})
    if as_json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    typer.echo(f"{'kernel':<50}{'ms':>9}   {'beside':<46}{'ms':>9}{'ratio':>9}")
    for line in found:
        ours_, theirs_ = float(str(line["milliseconds"])), float(str(line["its_milliseconds"]))
        typer.echo(f"{line['kernel']:<50}{ours_:>9.2f}   {line['peer']:<46}{theirs_:>9.2f}{ours_ / theirs_:>9.2f}")


def _seconds(work: Callable[[], object]) -> float:
    time.sleep(_PAUSE)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _pairs() -> Iterator[tuple[str, str, Callable[[], object], Callable[[], object]]]:
    """(kernel, peer, the kernel's work, the peer's), each with data of its own."""
    import numpy as np
    from scipy.sparse import csc_array, random_array
    from sklearn.linear_model import LogisticRegression

    from unpooled.kernels.frank_wolfe import frank_wolfe
    from unpooled.kernels.hadamard import srht
    from unpooled.kernels.logistic import logistic_minimum
    from unpooled.kernels.moments import add_gram
    from unpooled.privacy.noise import Stream, choose, rounded_gaussian

    rng = np.random.default_rng(0)

    stream = Stream(bytes(32))
    yield (
        "noise: 1,000,000 rounded Gaussians",
        "NumPy's floating-point ones",
        lambda: rounded_gaussian(1000.0, 1_000_000, stream=stream),
        lambda: rng.normal(scale=1000.0, size=1_000_000),
    )
    scores = rng.integers(-(10**9), 10**9, 50_000)
    yield (
        "choice: exponential mechanism, 50,000 scores",
        "one argmax of their magnitudes",
        lambda: choose(scores, 1e-8, signed=True, stream=stream),
        lambda: np.abs(scores).argmax(),
    )
    X = rng.normal(size=(849, 10_368))
    gaussian = rng.normal(size=(10_368, 518))
    yield "sketch: 849 x 10,368 to 518, Hadamard", "Gaussian, BLAS", lambda: srht(X, 518), lambda: X @ gaussian
    coded = np.asfortranarray(rng.integers(-1000, 1000, (500_000, 40)).astype(np.float64))
    total = np.zeros((40, 40), dtype=np.int64)
    yield (
        "moments: exact Gram of 500,000 x 40 integers",
        "X.T @ X in floating point",
        lambda: add_gram(coded, 1000, total),
        lambda: coded.T @ coded,
    )
    rows, labels = rng.normal(size=(50_000, 40)), rng.choice([-1.0, 1.0], 50_000)
    peer = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-8, solver="lbfgs")
    yield (
        "logistic: one fit of 50,000 x 40",
        "scikit-learn, lbfgs",
        lambda: logistic_minimum(rows, labels, 1.0),
        lambda: peer.fit(rows, labels),
    )
    sparse = csc_array(random_array((20_000, 50_000), density=1e-3, rng=rng, data_sampler=rng.standard_normal))
    transposed = sparse.T
    y = rng.normal(size=20_000)

    def recomputing() -> None:
        x = np.zeros(50_000)
        for t in range(30):
            slopes = np.asarray(transposed @ (sparse @ x - y))
            j = np.abs(slopes).argmax()
            x *= 1 - 2 / (t + 2)
            x[j] -= 2 / (t + 2) * 10 * np.sign(slopes[j])

    yield (
        "Frank-Wolfe: 30 rounds, sparse 20,000 x 50,000",
        "SciPy, gradients recomputed",
        lambda: frank_wolfe(sparse, y, 10.0, steps=30),
        recomputing,
    )
