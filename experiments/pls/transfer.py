"""A calibration carried to a second instrument: domain-invariant PLS and direct standardisation against no transfer, on simulated spectra and corn.

Errors are RMSEP over the deviation of y on new samples of the second instrument, of 10 seeds (reduced: 3). Spectra are standardised one by one (SNV). Basis, reference and
row bound come from public spectra: 60 of either instrument ("both": the bound is 1.2 times that of ``whitened``), or 60 of the first ("first": the bound also covers 20 of
the second, times 1.2), or the basis is the first 20 cosines and the bound 1.2 times the longest of both ("smooth"); corn: 16 samples on both. delta 1e-5, replace, one release of moments each.
Simulated: n samples on the first instrument and n others on the second (``make_instruments``, seeds and pure seeds from 6000 on; the noise threshold, the penalties that
are tried, the criterion of the ridge and the two row bounds were fixed on seeds below 6000). Corn: m5 to mp6, moisture; the same 44 samples on both, 20 new ones.

Columns: the source's model as it is; with the target's mean alone (penalty 0); domain-invariant; standardised by public samples (20; corn: 16); standardised by
the target's samples as private pairs; the target's own model; one model of both; and the source's model on its own instrument.
Results are kept seed by seed in results/pls/transfer.json: a run that was stopped continues. transfer.md has medians, transfer_worst.md the largest errors.
"""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
from experiments.common import RESULTS, data_file, run, write_table

from unpooled import Bounds, PrivatePLSRegression
from unpooled.datasets import make_instruments
from unpooled.models.pls.spectra import Frame, whitened

EPSILONS, ROWS, SEEDS, FEW, FIRST = (1.0, 3.0, 10.0, math.inf), (400, 4000), 10, 3, 6000
HEAD = (
    "spectra, epsilon",
    "as it is",
    "mean moved",
    "domain-invariant",
    "standardised, public",
    "standardised, private",
    "target only",
    "pooled",
    "own instrument",
)
KEPT = RESULTS / "pls" / "transfer.json"
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def snv(spectra: np.ndarray) -> np.ndarray:
    """Each spectrum by itself: minus its mean, by its deviation."""
    return (spectra - spectra.mean(axis=1, keepdims=True)) / spectra.std(axis=1, keepdims=True)


def split(kind: str, seed: int) -> Split:
    """Both instruments' spectra, responses, and the rows that are public, the source's, the target's (last: new ones)."""
    if kind == "corn":
        stored = np.load(data_file("nir_corn.npz"))
        order = np.random.default_rng(FIRST + seed).permutation(80)
        source, target, y = stored["m5spec"][order], stored["mp6spec"][order], stored["propvals"][order, 0]
        rows = np.split(np.arange(80), [16, 60])
        return snv(source), snv(target), y, rows[0], np.array([rows[1], rows[1]]), rows[2]
    n = int(kind.split(maxsplit=1)[0])
    data = make_instruments(60 + 2 * n + 1000, seed=FIRST + seed, pure_seed=FIRST + seed)
    rows = np.split(np.arange(data.response.size), [60, 60 + n, 60 + 2 * n])
    return snv(data.source), snv(data.target), data.response, rows[0], np.array(rows[1:3]), rows[3]


def _longest(X: np.ndarray, basis: np.ndarray, reference: np.ndarray) -> float:
    """The length of the longest projected row."""
    return float(np.linalg.norm((X - reference) @ basis, axis=1).max())


def once(kind: str, epsilon: float, seed: int) -> list[float]:
    """The errors of one seed, in the order of the table."""
    source, target, y, public, (here, there), new = split(kind, seed)
    if kind.endswith("first"):
        basis, reference, norm = whitened(source[public])
        norm = max(norm, 1.2 * _longest(target[public[:20]], basis, reference))
    elif kind.endswith("smooth"):
        reference = source[public].mean(axis=0)
        basis = Frame.of("dct", reference.size, 20, reference).basis
        norm = 1.2 * max(_longest(X[public], basis, reference) for X in (source, target))
    else:
        basis, reference, norm = whitened(np.concatenate([source[public], target[public]]))
        norm *= 1.2
    ranges = (float(np.floor(y.min())), float(np.ceil(y.max()))) if kind == "corn" else (8.0, 12.0)

    def fit(X: np.ndarray, response: np.ndarray) -> PrivatePLSRegression:
        asked = PrivatePLSRegression(
            epsilon=epsilon,
            delta=1e-5,
            basis=basis,
            reference=reference,
            bounds=Bounds(norm=norm),
            y_bounds=ranges,
            method="moments",
            random_state=seed,
        )
        return asked.fit(X, response)

    first, second = fit(source[here], y[here]), fit(target[there], y[there])
    pairs = fit(target[there], np.clip(first.predict(source[there]), *ranges))
    standards = public[:20]
    models = [
        first,
        first.adapted(second, penalty=0.0),
        first.adapted(second),
        first.standardised((source[standards], target[standards])),
        first.standardised(pairs),
        second,
        fit(np.concatenate([source[here], target[there]]), np.concatenate([y[here], y[there]])),
    ]
    predicted = [model.predict(target[new]) for model in models] + [first.predict(source[new])]
    return [float(np.sqrt(np.mean((p - y[new]) ** 2)) / y.std()) for p in predicted]


def main(full: bool) -> None:
    """All cells."""
    warnings.simplefilter("ignore")
    found: dict[str, list[list[float]]] = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
    medians, largest = [], []
    for kind in (*(f"{n} {basis}" for basis in ("both", "first", "smooth") for n in ROWS), "corn"):
        for epsilon in EPSILONS:
            name = f"{kind}, {epsilon:g}"
            done = found.setdefault(name, [])
            for seed in range(len(done), SEEDS if full else FEW):
                done.append([round(error, 4) for error in once(kind, epsilon, seed)])
                KEPT.parent.mkdir(parents=True, exist_ok=True)
                KEPT.write_text(json.dumps(found) + "\n")
            errors = np.array(done[: SEEDS if full else FEW])
            medians.append([name, *(f"{value:.2f}" for value in np.median(errors, axis=0))])
            largest.append([name, *(f"{value:.2f}" for value in errors.max(axis=0))])
            print(" | ".join(medians[-1]), flush=True)
    write_table("pls/transfer", "A calibration carried to a second instrument: median errors", HEAD, medians)
    write_table("pls/transfer_worst", "A calibration carried to a second instrument: largest errors", HEAD, largest)


if __name__ == "__main__":
    run(main)
