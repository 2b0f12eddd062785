"""``unpooled.load``: a fitted estimator, a result or released moments from the file that ``save`` wrote."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from unpooled.aggregation.saving import read_saved
from unpooled.errors import DataError, UsageError, listed
from unpooled.models import load as row_of
from unpooled.protocol.entries import maker, names

_ESTIMATORS = {
    "PrideClassifier": "pride",
    "PrideGLM": "pride",
    "PrideRegressor": "pride",
    "PrivateBayesianRegression": "bayes",
    "PrivateGLM": "glm",
    "PrivateLasso": "lasso",
    "PrivateLinearRegression": "bayes",
    "PrivateLogisticRegression": "stacking",
    "PrivatePLSRegression": "pls",
    "PrivateStackingClassifier": "stacking",
    "Diagnosis": "diagnose",
    "Tabulation": "tables",
    "TreatmentEffect": "effects",
}
#: Class -> the module that defines it. A file names one of these, or a class that an installed model of another distribution
#: declares (``Model.saved``). Nothing else is ever imported for it.
HOMES = {
    **{name: f"unpooled.models.{model}.estimator" for name, model in _ESTIMATORS.items()},
    **dict.fromkeys(
        ("ArmsDescription", "DescribedBounds", "Description", "JointDescription"), "unpooled.models.describe.results"
    ),
    "GlmSummary": "unpooled.aggregation.glm_summary",
    "LinearFit": "unpooled.aggregation.linear_fit",
    "LinearSummary": "unpooled.aggregation.inference",
    "Moments": "unpooled.aggregation.moments",
    "PrivateLassoClassifier": "unpooled.models.lasso.classifier",
    "SurvivalComparison": "unpooled.models.survival.estimator",
    "TwoStageSummary": "unpooled.aggregation.instruments",
}


def load(path: str | Path) -> Any:  # noqa: ANN401 - whatever was saved
    """Return the object that ``save(path)`` wrote: a fitted estimator, a result of ``describe``, a summary or fit, or moments.

    Nothing in the file runs. A damaged file is refused by its digest; a file that somebody changed on purpose, digest and all, is not distinguished
    from a true one. An estimator's plan is made again from its study, and must be the one it was fitted under.

    >>> import tempfile, unpooled
    >>> X, y = [[0.0], [0.4], [0.6], [1.0]] * 500, [0, 0, 1, 1] * 500
    >>> model = unpooled.PrivateLogisticRegression(epsilon=5.0, bounds=(0, 1), classes=(0, 1), random_state=0).fit(X, y)
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     model.save(file.name)
    ...     bool((unpooled.load(file.name).predict(X) == model.predict(X)).all())
    True
    """
    file = read_saved(path)
    home = HOMES.get(file.kind) or _elsewhere(file.kind)
    if home is None:
        msg = f"{Path(path).name}: it holds a class that this version of unpooled does not know, and no installed model declares it"
        raise DataError(msg)
    kind = getattr(importlib.import_module(home), file.kind)
    try:
        return kind._of_saved(file.body)  # noqa: SLF001 - of all savable classes
    except DataError as error:
        msg = f"{Path(path).name}: {error}"
        raise DataError(msg) from None


def _elsewhere(kind: str) -> str | None:
    """Return the module of a class that a model of another distribution declares; None if none does. A class that two declare is refused."""
    homes: dict[str, str] = {}
    unusable: list[UsageError] = []
    for name in names():
        if not maker(name):
            continue
        try:
            row = row_of(name)
        except UsageError as error:
            unusable.append(error)
            continue
        homes |= {home: maker(name) for home, _, said in (place.partition(":") for place in row.saved) if said == kind}
    if len(homes) > 1:
        msg = f"class {kind!r} is declared by {listed(sorted(homes.values()))}, and nobody can tell which one is meant: uninstall all but one"
        raise UsageError(msg)
    if not homes and unusable:
        raise unusable[0]
    return next(iter(homes), None)
