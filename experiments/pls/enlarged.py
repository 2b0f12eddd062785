"""What sound privacy costs on corn-like spectra, enlarged by simulation to where it becomes affordable (ours, not the paper's)."""

from __future__ import annotations

import warnings

import numpy as np
from experiments.common import run, write_table
from experiments.pls.figures_1_and_2 import DELTA, published, sound
from scipy.signal import savgol_filter

from unpooled import Bounds, PrivatePLSRegression
from unpooled.datasets import make_spectra
from unpooled.models.pls.spectra import Frame


def snv(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=1, keepdims=True)) / X.std(axis=1, keepdims=True)


def enlarged(n: int, epsilon: float, form: str, seed: int) -> float:
    """RMSEP / sd(y) on 1000 fresh spectra."""
    pure = seed % 6
    data, public, fresh = (
        make_spectra(size, kind="corn", seed=offset + seed, pure_seed=pure)
        for size, offset in ((n, 0), (1000, 10_000), (1000, 20_000))
    )
    X, y, reference = snv(data.spectra), data.response, snv(data.mean_spectrum[None])[0]
    rows, tests = X, snv(fresh.spectra)
    if form == "no privacy":
        model = PrivatePLSRegression(6, basis="none", epsilon=float("inf"))
    elif form in {"published", "package"}:
        model = published(epsilon, seed, 6, "sigma" if form == "published" else "sigma^2")
        # The preprocessing that suits it best: a derivative, which makes spectra and so the noise small.
        rows, tests = (savgol_filter(Z, 5, 2, deriv=1, axis=1) for Z in (data.spectra, fresh.spectra))
    else:
        basis = "none" if form == "sound" else "dct"
        lengths = np.linalg.norm(Frame.of(basis, 700, 20, reference).coordinates(snv(public.spectra)), axis=1)
        model = sound(epsilon, seed, basis, "cv").set_params(
            bounds=Bounds(norm=float(np.quantile(lengths, 0.95))), y_bounds=(8.8, 11.2), reference=reference
        )
    return float(np.sqrt(np.mean((model.fit(rows, y).predict(tests) - fresh.response) ** 2)) / 0.4)


def cost(runs: int) -> None:
    rows = []
    for n in (56, 500, 5000):
        for epsilon in (1.0, 10.0):
            forms = ("no privacy", "published", "package", "sound", "sound + basis")
            repeats = runs if n < 5000 else max(runs // 2, 1)
            found = [np.median([enlarged(n, epsilon, form, seed) for seed in range(repeats)]) for form in forms]
            rows.append([f"{n}, {epsilon:g}", *(f"{value:.3g}" for value in found)])
            print(rows[-1], flush=True)
    write_table(
        "pls/enlarged",
        f"RMSEP / sd(y) on simulated corn-like spectra, medians of {runs} (half as many at n = 5000)",
        ["n, eps", "no privacy", "published", "package", "sound", "sound + basis"],
        rows,
        f"SNV; SG for the published forms, 6 components; delta = {DELTA}, zero-out. 'published' and 'package' are NOT private.",
    )


def main(full: bool) -> None:
    """N = 56 (the paper's), 500 and 5000."""
    warnings.simplefilter("ignore", UserWarning)
    cost(24 if full else 6)


if __name__ == "__main__":
    run(main)
