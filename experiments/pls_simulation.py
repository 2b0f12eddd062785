"""The attack of edPLS' Figures 1 and 2 on the four bands of two holders, and what sound privacy costs on corn-like spectra.

python experiments/pls_simulation.py [runs]
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from common import RESULTS, write_table
from scipy.signal import savgol_filter
from sklearn.cross_decomposition import PLSRegression

from unpooled import Bounds, PrivatePLSRegression
from unpooled.audit.reconstruction import reconstruction
from unpooled.datasets import make_spectra
from unpooled.models.pls.frame import Frame

DELTA, EPSILONS = 0.01, (1.0, 10.0, 100.0)
DATA = make_spectra(200, seed=0)


def published(epsilon: float, seed: int, components: int = 3, sd: str = "sigma") -> PrivatePLSRegression:
    return PrivatePLSRegression(
        components, basis="none", calibration="published", sd=sd, epsilon=epsilon, delta=DELTA, random_state=seed
    )


def sound(epsilon: float, seed: int, basis: str, components: int | str = 3) -> PrivatePLSRegression:
    return PrivatePLSRegression(
        components,
        basis=basis,
        epsilon=epsilon,
        delta=DELTA,
        adjacency="zero-out",
        bounds=Bounds(norm=300.0),
        y_bounds=(0, 10),
        reference=DATA.mean_spectrum,
        random_state=seed,
    )


FORMS = {
    "published": published,
    "package": lambda epsilon, seed: published(epsilon, seed, sd="sigma^2"),
    "sound": lambda epsilon, seed: sound(epsilon, seed, "none"),
    "sound + basis": lambda epsilon, seed: sound(epsilon, seed, "dct"),
}


def attack(model: PrivatePLSRegression, holder: str, band: int, part: str):
    mine = DATA.holder == holder
    own = PLSRegression(3, scale=False).fit(DATA.spectra[mine], DATA.response[mine])
    return reconstruction(getattr(model, part), own.x_weights_, band)


def figure(runs: int) -> None:
    """Prominence of the other holder's band (median), and what is left of the components, drawn."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plain = PrivatePLSRegression(3, basis="none", epsilon=float("inf")).fit(DATA.spectra, DATA.response)
    rows = []
    columns = [("none", plain, float("inf"))]
    for holder, band in (("one", 30), ("two", 40)):
        for part in ("x_weights_", "x_loadings_"):
            rows.append([holder, part, "unprotected", f"{attack(plain, holder, band, part).prominence:.1f}", "", ""])
            for form, make in FORMS.items():
                found = [
                    np.median(
                        [
                            attack(make(e, s).fit(DATA.spectra, DATA.response), holder, band, part).prominence
                            for s in range(runs)
                        ]
                    )
                    for e in EPSILONS
                ]
                rows.append([holder, part, form, *(f"{value:.1f}" for value in found)])
    write_table(
        "pls_attack",
        f"Prominence of the other holder's band after the attack of Eq. (5): medians of {runs}, delta = {DELTA}",
        ["attacker", "from", "model", *(f"eps = {e:g}" for e in EPSILONS)],
        rows,
    )
    columns += [
        (form, make(e, 0).fit(DATA.spectra, DATA.response), e) for form, make in FORMS.items() for e in (100.0, 10.0, 1.0)
    ]
    drawn, axes = plt.subplots(2, len(columns), figsize=(2.1 * len(columns), 4), sharey=True)
    for axis_pair, (form, model, epsilon) in zip(axes.T, columns, strict=True):
        for axis, part in zip(axis_pair, ("x_weights_", "x_loadings_"), strict=True):
            found = attack(model, "one", 30, part)
            if found.directions.shape[1]:
                axis.plot(found.directions[:, found.component], linewidth=0.8)
            axis.axvline(30, linestyle="--", color="grey", linewidth=0.8)
            axis.set_title(f"{form}, eps = {epsilon:g}\n{part[2:-1]}: {found.prominence:.1f}", fontsize=7)
            axis.tick_params(labelsize=6)
    drawn.tight_layout()
    drawn.savefig(RESULTS / "pls_attack.png", dpi=110)
    plt.close(drawn)
    print(f"figure: {RESULTS / 'pls_attack.png'}")


# --- enlarged corn-like data ----------------------------------------------------------------------------------------------------


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
        "pls_cost",
        f"RMSEP / sd(y) on simulated corn-like spectra (SNV; SG for the published forms, 6 components; delta = {DELTA}, zero-out; medians; published and package are NOT private)",
        ["n, eps", "no privacy", "published", "package", "sound", "sound + basis"],
        rows,
    )


if __name__ == "__main__":
    RESULTS.mkdir(exist_ok=True)
    warnings.simplefilter("ignore", UserWarning)
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    figure(repeats)
    cost(repeats)
