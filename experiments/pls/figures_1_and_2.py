"""edPLS, Figures 1 and 2: the attack of Eq. (5) on the four bands of two holders, unprotected, as printed, and in the sound form."""

from __future__ import annotations

import warnings

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_figure, write_table
from sklearn.cross_decomposition import PLSRegression

from unpooled import Bounds, PrivatePLSRegression
from unpooled.audit.attacks import reconstruction
from unpooled.datasets import make_spectra

DELTA, EPSILONS = 0.01, (1.0, 10.0, 100.0)
DATA = make_spectra(200, seed=0)


def published(epsilon: float, seed: int, components: int = 3, sd: str = "sigma") -> PrivatePLSRegression:
    return PrivatePLSRegression(
        components,
        basis="none",
        calibration="published",
        aggregation="trusted",
        sd=sd,
        epsilon=epsilon,
        delta=DELTA,
        random_state=seed,
    )


def sound(epsilon: float, seed: int, basis: str, components: int | str = 3) -> PrivatePLSRegression:
    return PrivatePLSRegression(
        components,
        method="moments",
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


#: Who attacks, by which of its components, and the other holder's band.
ATTACKS = [(holder, part, band) for holder, band in (("one", 30), ("two", 40)) for part in ("x_weights_", "x_loadings_")]


def fitted(form: str, epsilon: float, seed: int) -> PrivatePLSRegression:
    """A model of both holders' rows; in the published forms they give them to a provider that both trust, as in the paper."""
    return FORMS[form](epsilon, seed).fit(DATA.spectra, DATA.response, sites=DATA.holder)


def attack(model: PrivatePLSRegression, holder: str, band: int, part: str):
    mine = DATA.holder == holder
    own = PLSRegression(3, scale=False).fit(DATA.spectra[mine], DATA.response[mine])
    return reconstruction(getattr(model, part), own.x_weights_, band)


def prominences(model: PrivatePLSRegression) -> list[float]:
    """Of every attack: how far the other holder's band stands out."""
    return [float(attack(model, holder, band, part).prominence) for holder, part, band in ATTACKS]


def figure(runs: int) -> None:
    """Prominence of the other holder's band (median), and what is left of the components, drawn."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plain = PrivatePLSRegression(3, basis="none", epsilon=float("inf")).fit(DATA.spectra, DATA.response)
    found = {
        (form, e): np.quantile(
            [kept([form, e, s], lambda form=form, e=e, s=s: prominences(fitted(form, e, s))) for s in range(runs)],
            [0.5, 0.25, 0.75],
            axis=0,
        )
        for form in FORMS
        for e in EPSILONS
    }
    rows = []
    for i, (holder, part, _) in enumerate(ATTACKS):
        rows.append([holder, part, "unprotected", *[f"{prominences(plain)[i]:.1f}"] * 3])
        rows += [
            [holder, part, form, *("{:.1f} ({:.1f} .. {:.1f})".format(*found[form, e][:, i]) for e in EPSILONS)]
            for form in FORMS
        ]
    write_table(
        "pls/figures_1_and_2",
        f"Prominence of the other holder's band after the attack of Eq. (5): medians of {runs} and their quartiles",
        ["attacker", "from", "model", *(f"eps {e:g}" for e in EPSILONS)],
        rows,
        f"delta = {DELTA}.",
    )
    columns = [("none", plain, float("inf"))]
    columns += [(form, fitted(form, e, 0), e) for form in FORMS for e in (100.0, 10.0, 1.0)]
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
    write_figure("pls/figures_1_and_2", drawn)


def main(full: bool) -> None:
    """Medians over the noise."""
    warnings.simplefilter("ignore", UserWarning)
    figure(100 if full else 12)


if __name__ == "__main__":
    run(main)
