"""Transfer between four hospitals: heart disease in one, with a model of the three others as the prior (UCI; rules are those of the package).

The three others release a logistic model with the same epsilon; their patients are other people. Rows of the fourth: half for the fit, half for the error, 20
divisions. "source" is the released model as it is; "pooled" fits the rows of all four together, which the hospitals may not do.
"hypothesis transfer" is the penalty of stacked logistic regression that pulls to the released weights (the stacking paper).
Columns: age, sex, resting pressure, heart rate, exercise angina, depression of ST; rows with a missing value in them are left out.
"""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
from experiments.common import RESULTS, data_file, run, write_table
from sklearn.metrics import log_loss

from unpooled import PrivateGLM, PrivateLogisticRegression

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
COLUMNS, EPSILONS, DIVISIONS = (0, 1, 3, 7, 8, 9), (1.0, 3.0, 10.0, math.inf), 20
LOW, HIGH = np.array([20.0, 0, 80, 60, 0, -3]), np.array([90.0, 1, 220, 210, 1, 7])
ARMS = ("prior", "alone", "source", "hypothesis transfer", "pooled", "base rate")


def hospital(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the complete rows of a hospital, and whether there is disease."""
    rows = np.genfromtxt(data_file(f"heart_{name}.data"), delimiter=",", missing_values="?", filling_values=np.nan)
    X, y = rows[:, COLUMNS], (rows[:, 13] > 0).astype(int)
    whole = ~np.isnan(X).any(axis=1)
    return np.clip(X[whole], LOW, HIGH), y[whole]


def losses(target: str, epsilon: float) -> dict[str, list[float]]:
    """Return the log-loss of every division."""
    own = {"bounds": (LOW, HIGH), "classes": (0, 1), "epsilon": epsilon, "delta": 1e-5}
    X, y = hospital(target)
    others = [hospital(name) for name in HOSPITALS if name != target]
    XO, yO = np.vstack([x for x, _ in others]), np.concatenate([z for _, z in others])
    sites = np.repeat([name for name in HOSPITALS if name != target], [z.size for _, z in others])
    found: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for division in range(DIVISIONS):
        order = np.random.default_rng(division).permutation(y.size)
        fit, test = order[: y.size // 2], order[y.size // 2 :]
        source = PrivateGLM(**own, random_state=division).fit(XO, yO, sites=sites)
        prior = source.as_prior().of_others()
        models = {
            "prior": PrivateGLM(**own, prior=prior, random_state=100 + division).fit(X[fit], y[fit]),
            "alone": PrivateGLM(**own, random_state=200 + division).fit(X[fit], y[fit]),
            "source": source,
            "pooled": PrivateGLM(**own, random_state=300 + division).fit(np.vstack([XO, X[fit]]), np.append(yO, y[fit])),
        }
        perturbed = {**own, "method": "perturbation"}
        weights = PrivateLogisticRegression(**perturbed, random_state=division).fit(XO, yO).released_["all"]
        models["hypothesis transfer"] = PrivateLogisticRegression(
            **perturbed, prior=list(weights), random_state=400 + division
        ).fit(X[fit], y[fit])
        for arm, model in models.items():
            p = np.clip(model.predict_proba(X[test])[:, 1], 1e-6, 1 - 1e-6)
            found[arm].append(float(log_loss(y[test], p, labels=[0, 1])))
        rate = np.full(test.size, y[fit].mean())
        found["base rate"].append(float(log_loss(y[test], rate, labels=[0, 1])))
    return found


def main(full: bool) -> None:
    """Write the table; cells that are in the file are not run again."""
    del full
    warnings.simplefilter("ignore")
    path = RESULTS / "heart_transfer.json"
    known = json.loads(path.read_text()) if path.is_file() else {}
    lines = []
    for target in HOSPITALS:
        for epsilon in EPSILONS:
            name = f"{target} {epsilon:g}"
            if name not in known:
                known[name] = losses(target, epsilon)
                path.write_text(json.dumps(known))
            own = {arm: np.array(values) for arm, values in known[name].items()}
            gap = own["prior"] - own["alone"]
            rows = hospital(target)[1].size // 2
            cells = [f"{own[arm].mean():.3f}" for arm in ARMS]
            lines.append(
                (target, str(rows), f"{epsilon:g}", *cells, f"{gap.mean():+.3f} +-{gap.std() / np.sqrt(gap.size):.3f}")
            )
            print(*lines[-1], flush=True)
    notes = f"Log-loss on the other half of the hospital's rows, means over {DIVISIONS} divisions with noise of their own. The base rate here is without noise."
    write_table(
        "heart_transfer",
        "Heart disease: a prior from three other hospitals",
        ("hospital", "rows", "epsilon", *ARMS, "prior - alone"),
        lines,
        notes,
    )


if __name__ == "__main__":
    run(main)
