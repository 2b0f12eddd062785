"""Whether a party's part of a row is better shortened to its share of a whole row's length, or scaled from a length of its own: the sound form's default.

Declared shapes, none of them of a paper's data: columns of five laws within declared ranges, dealt to two, three or five parties evenly or one eighth to the
first; a common factor of correlation .3; a linear predictor of deviation 1.5; equal importance, or the share of every party in the predictor's variance. Every
study is fitted with parts = "shorten" and parts = "scale", with the pure epsilon (log odds are averaged) and with delta 1e-5 (probabilities follow from counts).
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from scipy.special import expit
from scipy.stats import norm
from sklearn.metrics import log_loss, roc_auc_score

from unpooled import PrivateStackingClassifier

LAWS = ("normal", "wide range", "uniform", "skewed", "rare level")
#: Number of parties, number of columns, and whether the first has an eighth of them.
HELD = ((2, 8, False), (2, 16, True), (3, 24, False), (5, 40, False))
SIZES = ((400, 3.0), (1000, 1.0), (5000, 1.0), (20_000, 1.0))
PARTS, NEW, FACTOR, LEAST = ("shorten", "scale"), 4000, 0.3, 1e-6


def columns_of(law: str, z: np.ndarray) -> np.ndarray:
    """Standard normal columns as columns of this law, coded to declared ranges of -1 to 1."""
    if law == "uniform":
        return 2 * norm.cdf(z) - 1
    if law == "rare level":
        return np.where(z > 1.28, 1.0, -1.0)
    found = {"normal": z / 4, "wide range": z / 12, "skewed": np.exp(0.8 * z) / 5 - 1}[law]
    return np.clip(found, -1, 1)


def played(law: str, held: tuple[int, int, bool], size: tuple[int, float], important: bool, seed: int) -> list[float]:
    """Return AUC, and log loss over that of the base rate, of both ways, pure and with a delta."""
    (parties, columns, uneven), (rows, epsilon) = held, size
    rng = np.random.default_rng([seed, parties, columns, rows])
    count = rows + NEW
    z = np.sqrt(1 - FACTOR) * rng.normal(size=(count, columns)) + np.sqrt(FACTOR) * rng.normal(size=(count, 1))
    X, w = columns_of(law, z), rng.normal(size=columns)
    u = z @ w
    u = 1.5 * (u - u.mean()) / u.std() - 0.5 * (seed % 2)
    y = (rng.random(count) < expit(u)).astype(int)
    first = [np.arange(max(1, columns // 8))] if uneven else []
    rest = np.array_split(np.arange(len(first[0]) if uneven else 0, columns), parties - len(first))
    groups = {f"p{k}": part.tolist() for k, part in enumerate([*first, *rest])}
    importance = {name: float(np.sum(w[part] ** 2)) for name, part in groups.items()} if important else None
    new, found = y[rows:], []
    best = log_loss(new, np.full(NEW, new.mean()))
    for delta, parts in itertools.product((None, 1e-5), PARTS):
        model = PrivateStackingClassifier(
            groups,
            epsilon=epsilon,
            delta=delta,
            bounds=(-1, 1),
            classes=(0, 1),
            parts=parts,
            importance=importance,
            random_state=seed,
        ).fit(X[:rows], y[:rows])
        p = np.clip(model.predict_proba(X[rows:])[:, 1], LEAST, 1 - LEAST)
        found += [float(roc_auc_score(new, p)), float(log_loss(new, p) / best)]
    return found


def main(full: bool) -> None:
    """One row for each law, number of parties, size and importance: means over the other shapes."""
    warnings.simplefilter("ignore")
    often = 5 if full else 2
    cells = {
        (law, held, size, important): np.array(
            [
                kept([law, held, size, important, s], lambda s=s, c=(law, held, size, important): played(*c, s))
                for s in range(often)
            ]
        )
        for law, held, size, important in itertools.product(LAWS, HELD, SIZES, (False, True))
    }
    lines = {"all": list(cells)}
    lines |= {law: [c for c in cells if c[0] == law] for law in LAWS}
    lines |= {f"{h[0]} parties{', uneven' if h[2] else ''}": [c for c in cells if c[1] == h] for h in HELD}
    lines |= {f"n = {n}, epsilon {e:g}": [c for c in cells if c[2] == (n, e)] for n, e in SIZES}
    lines |= {
        name: [c for c in cells if c[3] is important]
        for name, important in (("equal importance", False), ("right importance", True))
    }
    rows = []
    for name, chosen in lines.items():
        found = np.concatenate([cells[c] for c in chosen])
        row = [name]
        for k in (0, 4):
            gain = found[:, k] - found[:, k + 2]
            ratio = np.log(found[:, k + 1] / found[:, k + 3])
            error, spread = (v.std(ddof=1) / np.sqrt(v.size) for v in (gain, ratio))
            row += [
                f"{found[:, k].mean():.3f}",
                f"{found[:, k + 2].mean():.3f}",
                f"{gain.mean():.4f} ± {error:.4f}",
                f"{np.exp(ratio.mean()):.4f} ± {spread:.4f}",
            ]
        rows.append(row)
    header = ["shapes"]
    for form in ("pure", "with delta"):
        header += [
            f"{form}: AUC shortened",
            f"{form}: AUC scaled",
            f"{form}: gain in AUC",
            f"{form}: log loss shortened / scaled",
        ]
    note = f"{often} seeds of {len(cells)} shapes; gains and ratios are of paired fits, with standard errors over shapes and seeds."
    write_table(
        "stacking/parts", "Parts shortened to their share of a row's length, or scaled from their own", header, rows, note
    )


if __name__ == "__main__":
    run(main)
