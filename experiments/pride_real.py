"""PRIDE on sea-level pressure (like Figure 5) and breast-cancer expression (like Figure 6), K = 4, and Table E.1.

    python experiments/pride_real.py [repetitions]

The truth is not known, so coefficients are compared with the pooled ridge at its own marginal-likelihood penalty (the paper's
comparison with the optimum on all data). Repetitions differ in noise and in the random sketch; the split into rows is fixed. Columns are
standardised with the training rows: these experiments study error, their bounds (the largest training range, as the paper) are data-derived.
"""

from __future__ import annotations

import sys

import numpy as np
from common import curves, data_file, write_table

from unpooled import PrideRegressor

DELTA, PARTIES = 0.05, 4
EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
MEASURES = ("error to pooled", "correlation", "training MSE", "test MSE")
PRIVATE = {
    "published": {"calibration": "published", "noise_model": "plain"},
    "sound": {"noise_model": "plain"},
    "sound + calibrated": {"noise_model": "calibrated"},
    "DCT + calibrated": {"noise_model": "calibrated", "sketch": "dct"},
}


def pressure() -> tuple[np.ndarray, np.ndarray, int]:
    """January sea-level pressure at 2496 land points; the response is the mean of the standardised field two months later.

    The file has no temperatures, so the target differs from the paper's. The points are ordered by longitude, so that a party holds a region.
    """
    file = np.load(data_file("ncep_slp_land_monthly.npz"))
    slp = file["slp"].astype(float)
    month = np.arange(slp.shape[0]) % 12
    climate = np.array([slp[month == m].mean(axis=0) for m in range(12)])
    anomaly = slp - climate[month]
    order = np.lexsort((file["lonlat"][:, 1], file["lonlat"][:, 0]))
    X = anomaly[:-1][:, order]
    target = anomaly[1:, :]
    weights = np.cos(np.deg2rad(file["lonlat"][:, 1]))
    return X, target @ weights / weights.sum(), 528


def expression() -> tuple[np.ndarray, np.ndarray, int]:
    """1000 probes of 236 breast cancers; the response is the log of the survival time; 188 training rows."""
    file = np.load(data_file("miller05_gse3494_1000genes.npz"))
    X, time = file["X"].astype(float), file["time"].astype(float)
    kept = np.isfinite(time) & (time > 0)
    X, y = X[kept], np.log(time[kept])
    shuffled = np.random.default_rng(0).permutation(y.size)
    return X[shuffled], y[shuffled], 188 if y.size >= 200 else int(0.8 * y.size)


def prepared(data: tuple[np.ndarray, np.ndarray, int]) -> tuple[np.ndarray, ...]:
    X, y, train = data
    mean, deviation = X[:train].mean(axis=0), X[:train].std(axis=0)
    X = (X - mean) / np.where(deviation > 0, deviation, 1.0)
    return X[:train], y[:train], X[train:], y[train:]


def measures(model: PrideRegressor, optimum: np.ndarray, split: tuple[np.ndarray, ...]) -> list[float]:
    X, y, X_test, y_test = split
    return [
        float(((model.coef_ - optimum) ** 2).sum() / (optimum**2).sum()),
        float(np.corrcoef(model.coef_, optimum)[0, 1]),
        float(((y - model.predict(X)) ** 2).mean() / y.var()),
        float(((y_test - model.predict(X_test)) ** 2).mean() / ((y_test - y.mean()) ** 2).mean()),
    ]


def study(
    name: str, split: tuple[np.ndarray, ...], fractions: tuple[float, ...], repetitions: int, *, ordered: bool
) -> None:
    X, y, *_ = split
    theta = float(np.ptp(X, axis=0).max())
    base = {"parties": PARTIES, "bounds": (-theta, theta), "delta": DELTA}
    # Every column inside [-theta, theta] whatever its centre; the range that one value can move in is theta.
    base["bounds"] = (float(X.min()), float(X.min()) + max(theta, float(X.max() - X.min())))
    pooled = PrideRegressor(**{**base, "parties": 1, "sketch_dim": 0, "random_state": 0}).fit(X, y)
    optimum = pooled.coef_
    rows = [[name, "pooled", "", "", *(f"{v:.3f}" for v in measures(pooled, optimum, split))]]
    naive = measures(
        PrideRegressor(**{**base, "sketch_dim": 0, "noise_model": "plain", "random_state": 0}).fit(X, y), optimum, split
    )
    rows.append([name, "semi-naive", "", "", *(f"{v:.3f}" for v in naive)])
    for fraction in fractions:
        settings = {**base, "sketch_dim": fraction}

        def repeated(options: dict, settings: dict = settings) -> np.ndarray:
            return np.array(
                [
                    measures(
                        PrideRegressor(**{**settings, **options, "random_state": s, "public_seed": s}).fit(X, y),
                        optimum,
                        split,
                    )
                    for s in range(repetitions)
                ]
            )

        loco = repeated({"epsilon": np.inf, "noise_model": "plain"})
        rows.append([name, "DUAL-LOCO", f"{fraction:g}", "", *(f"{v:.3f}" for v in np.median(loco, axis=0))])
        private = {
            (method, epsilon): repeated({**options, "epsilon": epsilon})
            for method, options in PRIVATE.items()
            if ordered or method != "DCT + calibrated"
            for epsilon in EPSILONS
        }
        rows += [
            [name, method, f"{fraction:g}", f"{epsilon:g}", *(f"{v:.3f}" for v in np.median(values, axis=0))]
            for (method, epsilon), values in private.items()
        ]
        panels = {}
        for i, measure in enumerate(MEASURES):
            lines = {
                "semi-naive": (np.array([1.0]), np.array([naive[i]]), np.zeros((2, 1))),
                "DUAL-LOCO": (np.array([1.0]), np.median(loco[:, [i]], axis=0), np.zeros((2, 1))),
            }
            for method in dict.fromkeys(m for m, _ in private):
                stack = np.array([private[method, epsilon][:, i] for epsilon in EPSILONS])
                lines[method] = (np.array(EPSILONS), np.median(stack, axis=1), np.quantile(stack, [0.25, 0.75], axis=1))
            panels[measure] = lines
        curves(f"pride_{name}_{fraction:g}", panels, "epsilon")
    write_table(
        f"pride_{name}",
        f"PRIDE on {name}, medians of {repetitions} repetitions",
        ["data", "method", "m/tau", "epsilon", *MEASURES],
        rows,
    )


def penalties(split: tuple[np.ndarray, ...]) -> None:
    """Table E.1: the penalty by global and by local cross-validation, m = 0.05 tau, plain noise, published calibration."""
    X, y, *_ = split
    bound = float(np.abs(X).max())
    rows = []
    for epsilon in EPSILONS[1:]:
        settings = {
            "parties": PARTIES,
            "bounds": (-bound, bound),
            "delta": DELTA,
            "epsilon": epsilon,
            "calibration": "published",
            "noise_model": "plain",
            "random_state": 0,
        }
        both = {alpha: PrideRegressor(alpha=alpha, **settings).fit(X, y) for alpha in ("global-cv", "local-cv")}
        found = [next(iter(both["global-cv"].alpha_.values())), *both["local-cv"].alpha_.values()]
        tested = [measures(model, model.coef_, split)[3] for model in both.values()]
        rows.append([f"{epsilon:g}", *(f"{alpha:.3g}" for alpha in found), *(f"{v:.3f}" for v in tested)])
    header = [
        "epsilon",
        "global alpha",
        *(f"local alpha, k = {k + 1}" for k in range(PARTIES)),
        "test MSE global",
        "test MSE local",
    ]
    write_table("pride_penalties", "Table E.1 on sea-level pressure: alpha = n lambda", header, rows)


def main(repetitions: int = 5) -> None:
    climate = prepared(pressure())
    penalties(climate)
    study("pressure", climate, (0.01, 0.05, 0.1, 0.2), repetitions, ordered=True)
    study("expression", prepared(expression()), (0.05, 0.2), repetitions, ordered=False)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
